/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_SERIES_H
#define WB_KUBE_SERIES_H
/*
 * Decides which Kubernetes Events to write about what happens.  Pure.
 *
 * What happens repeatedly is one Event, a series: there is one for each object, reason and thing
 * that it is about.  Its count, time and sentence are brought up to date, at first after 5 s, then
 * less and less often, in the end once a minute.  A series that was quiet for ten minutes is over;
 * after that a new one begins.  For one object and reason, WB_KUBE_ABOUT_MAX things are told apart;
 * all others with that reason (a thousand agents that are lost at once) share one more series.
 *
 * Namespaces take turns, and each has a budget of writes: a burst, then a number per minute.
 * Occurrences that wait for the budget are counted, not queued.  When WB_KUBE_SERIES_MAX series of
 * a namespace are all still waiting to be written, a new one is dropped: wb_kube_series_add() says
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
	const char *api, *kind; /* of the object that the Event is attached to; static */
	const char *ns, *name, *uid;
	const char *reason; /* static */
	const char *about; /* the thing that it is about, "" = the object itself */
	const char *note;
};

/* What is to be written; valid until the next call that changes the series. */
struct wb_kube_series_write {
	uint64_t id; /* of the series */
	bool is_new; /* POST, else PATCH */
	const char *event; /* name of the Event */
	struct wb_kube_occurrence of; /* the last occurrence */
	uint64_t count, first_wall_ns, last_wall_ns;
};

enum wb_kube_written {
	WB_KUBE_WRITTEN,
	WB_KUBE_VANISHED, /* PATCH found that the Event has expired */
	/* POST found that the Event exists: the answer to an earlier POST was lost */
	WB_KUBE_IS_THERE,
	WB_KUBE_NOT_WRITTEN,
};

/** wb_kube_series_create - NULL = no memory.  Release with wb_kube_series_destroy(). */
struct wb_kube_series *wb_kube_series_create(void);
void wb_kube_series_destroy(struct wb_kube_series *s);

/** wb_kube_series_add - record an occurrence.  @unique: random bits, for the name of an Event.  0;
 * -ENOBUFS: it is left out, since too many series of the namespace are waiting; -ENOMEM. */
int wb_kube_series_add(struct wb_kube_series *s, uint64_t now_ns, uint64_t wall_ns, uint64_t unique,
	const struct wb_kube_occurrence *o);
/** wb_kube_series_next - what to write now; false: nothing until wb_kube_series_due(). */
bool wb_kube_series_next(
	struct wb_kube_series *s, uint64_t now_ns, struct wb_kube_series_write *out);
/** wb_kube_series_wrote - report how the write went.  WB_KUBE_VANISHED: the Event has expired, so
 * another is made.  WB_KUBE_IS_THERE: the Event is brought up to date at once.
 * WB_KUBE_NOT_WRITTEN: this write is lost; the next occurrence is written again. */
void wb_kube_series_wrote(
	struct wb_kube_series *s, uint64_t now_ns, uint64_t id, enum wb_kube_written how);
/** wb_kube_series_due - when wb_kube_series_next() may have something, UINT64_MAX = never. */
uint64_t wb_kube_series_due(const struct wb_kube_series *s, uint64_t now_ns);
/** wb_kube_series_count - number of series kept now, of all namespaces. */
size_t wb_kube_series_count(const struct wb_kube_series *s);

#endif
