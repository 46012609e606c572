/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_SERIES_H
#define WB_KUBE_SERIES_H
/*
 * Which Kubernetes events to write, out of what happens.  Pure.
 *
 * What happens again is one Event: of an object, a reason and what it is about there is one, whose
 * count, time and sentence are brought up to date, at first after 5 s, then ever more rarely, at
 * last once a minute.  One that was quiet for ten minutes is over; then another begins.  Of an
 * object and a reason WB_KUBE_ABOUT_MAX are told apart; what else has that reason (a thousand
 * agents that are lost at once) shares one more.
 *
 * Namespaces take turns, and each has a budget of writes: a burst, then so many a minute.  What
 * waits for it waits as a count, not as a queue.  A namespace that has more series than
 * WB_KUBE_SERIES_MAX that are all still to be written loses the newest: wb_kube_series_add() says
 * so.
 *
 * Threads: one.  Layer: operator-shim/kube (over base).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_kube_series; /* opaque */

#define WB_KUBE_ABOUT_MAX 8
#define WB_KUBE_SERIES_MAX 256 /* of a namespace */
#define WB_KUBE_SERIES_BURST 40 /* writes of a namespace */
#define WB_KUBE_SERIES_PER_MIN 30

/* An occurrence; borrowed. */
struct wb_kube_occurrence {
	const char *api, *kind; /* of the object it is shown at; static */
	const char *ns, *name, *uid;
	const char *reason; /* static */
	const char *about; /* what else is told apart, "" = nothing */
	const char *note;
};

/* What is to be written; valid until the series is told of again. */
struct wb_kube_series_write {
	uint64_t id; /* of the series */
	bool is_new; /* POST, else PATCH */
	const char *event; /* name of the Event */
	struct wb_kube_occurrence of; /* the last one */
	uint64_t count, first_wall_ns, last_wall_ns;
};

enum wb_kube_written {
	WB_KUBE_WRITTEN,
	WB_KUBE_VANISHED, /* PATCH of an Event that has expired */
	WB_KUBE_IS_THERE, /* POST of one that is there: the answer to an earlier POST was lost */
	WB_KUBE_NOT_WRITTEN,
};

/** wb_kube_series_create - NULL = no memory.  Release with wb_kube_series_destroy(). */
struct wb_kube_series *wb_kube_series_create(void);
void wb_kube_series_destroy(struct wb_kube_series *s);

/** wb_kube_series_add - it has happened.  @unique: random bits, for a name.  0; -ENOBUFS: above
 * what the namespace may have waiting, left out; -ENOMEM. */
int wb_kube_series_add(struct wb_kube_series *s, uint64_t now_ns, uint64_t wall_ns, uint64_t unique,
	const struct wb_kube_occurrence *o);
/** wb_kube_series_next - what to write now; false: nothing until wb_kube_series_due(). */
bool wb_kube_series_next(
	struct wb_kube_series *s, uint64_t now_ns, struct wb_kube_series_write *out);
/** wb_kube_series_wrote - how it went.  WB_KUBE_VANISHED: the Event has expired, another is made.
 *  WB_KUBE_IS_THERE: it is brought up to date, at once.
 *  WB_KUBE_NOT_WRITTEN: what had to be said is lost; the next occurrence is said again. */
void wb_kube_series_wrote(
	struct wb_kube_series *s, uint64_t now_ns, uint64_t id, enum wb_kube_written how);
/** wb_kube_series_due - when wb_kube_series_next() may have something, UINT64_MAX = never. */
uint64_t wb_kube_series_due(const struct wb_kube_series *s, uint64_t now_ns);
/** wb_kube_series_count - series kept now, of all namespaces. */
size_t wb_kube_series_count(const struct wb_kube_series *s);

#endif
