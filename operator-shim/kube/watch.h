/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_WATCH_H
#define WB_KUBE_WATCH_H
/*
 * The objects of one collection, kept up to date by list and watch.
 *
 * It lists in pages, with fewer objects each if these are long, then watches from the list's
 * resourceVersion, an opaque string; a watch that ends at its time continues from the last version
 * heard, bookmarks included.  When that version is too old (410, as HTTP status or as an ERROR
 * event inside an answer of 200), after any other error, and when watches end at once without an
 * event, it waits (backoff with jitter, Retry-After) and lists again.  A list replaces the cache:
 * objects that vanished meanwhile are reported as gone, and an object with the same name and
 * another uid as gone and new.  A connection that is silent for idle_ns is given up.
 *
 * Users act on what is in the cache, not on single events: several changes may be reported as one.
 * Threads: the loop's.  Layer: operator-shim/kube (over base, net).
 */
#include "operator-shim/kube/http.h"

struct wb_kube_watch; /* opaque */

struct wb_kube_watch_cb {
	void *cookie;
	/* New or changed; @object is borrowed (json_incref() to keep). */
	void (*on_put)(void *cookie, json_t *object);
	/* Deleted; @object is the last state known. */
	void (*on_gone)(void *cookie, json_t *object);
	/* The cache shows a whole list: called after the first list, and after each later one. */
	void (*on_synced)(void *cookie);
	/* Optional: remove what is not needed from the object, before it is kept. */
	void (*trim)(void *cookie, json_t *object);
};

struct wb_kube_watch_opts {
	const char *path; /* "/api/v1/pods"; copied */
	const char *label_selector; /* not yet escaped; NULL = all; copied */
	const char *name; /* only objects of this name; NULL = all; copied */
	unsigned page; /* objects a page; 0 = 500 */
	uint64_t backoff_min_ns, backoff_max_ns; /* 0 = 0.5 s, 30 s */
	uint64_t watch_s; /* 0 = 300 to 600, at random */
	uint64_t idle_ns; /* 0 = 3 minutes */
};

struct wb_kube_watch_stats {
	uint64_t lists, watches, events, bookmarks;
	uint64_t expired; /* 410 in any form */
	uint64_t empty; /* closed at once without an event */
	uint64_t failures; /* all failures that led to waiting */
	long last_status; /* HTTP status of the last failure; 0 = another reason */
	char last_failure[256];
};

/** wb_kube_watch_start - 0 or -ENOMEM.  Release with wb_kube_watch_stop(). */
int wb_kube_watch_start(struct wb_kube *k, const struct wb_kube_watch_opts *o,
	const struct wb_kube_watch_cb *cb, struct wb_kube_watch **out);
/** wb_kube_watch_stop - no callback is called afterwards.  May be called from a callback.  NULL is
 * allowed. */
void wb_kube_watch_stop(struct wb_kube_watch *w);

/** wb_kube_watch_is_synced - the cache has shown a whole list; it may be old by now. */
bool wb_kube_watch_is_synced(const struct wb_kube_watch *w);
/** wb_kube_watch_get - an object of the cache, borrowed; NULL = none.  @ns: "" = not namespaced. */
json_t *wb_kube_watch_get(const struct wb_kube_watch *w, const char *ns, const char *name);
/** wb_kube_watch_again - call on_put once more for all objects of @ns.  Must not be called from a
 * callback. */
void wb_kube_watch_again(struct wb_kube_watch *w, const char *ns);
/** wb_kube_watch_count - number of objects in the cache. */
size_t wb_kube_watch_count(const struct wb_kube_watch *w);
/** wb_kube_watch_get_stats - counters, and the last failure; borrowed. */
const struct wb_kube_watch_stats *wb_kube_watch_get_stats(const struct wb_kube_watch *w);

/** wb_kube_meta - metadata.KEY of an object, "" when absent. */
const char *wb_kube_meta(const json_t *object, const char *key);

#endif
