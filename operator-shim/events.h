/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_EVENTS_H
#define WB_OPERATOR_EVENTS_H
/*
 * Kubernetes events, written through an API client of their own, so that nothing else waits for
 * them.
 *
 * kube/series.h says which events are written, and when.  An event that cannot be written is not
 * tried again until it happens again.
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/kube/http.h"
#include "operator-shim/kube/series.h"

struct wb_loop;
struct wb_metrics;
struct wb__events; /* opaque */

/** wb__events_start - @kube_take: ours from here on (also on failure); @instance: this replica,
 *  copied.  0 or -ENOMEM.  Release with wb__events_stop(). */
int wb__events_start(struct wb_loop *loop, struct wb_kube *kube_take, struct wb_metrics *metrics,
	const char *instance, struct wb__events **out);
/** wb__events_stop - NULL is allowed. */
void wb__events_stop(struct wb__events *e);
/** wb__events_add - what @o describes has happened; copied. */
void wb__events_add(struct wb__events *e, const struct wb_kube_occurrence *o);

#endif
