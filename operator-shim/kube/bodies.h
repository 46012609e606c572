/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_BODIES_H
#define WB_KUBE_BODIES_H
/*
 * What is written to the API server, as JSON.  Pure.
 *
 * Threads: any.  Layer: operator-shim/kube (over base).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct wb_buf;
struct wb_kube_series_write;

#define WB_KUBE_API "weightbridge.io/v1alpha1"
#define WB_KUBE_FIELD_MANAGER "weightbridge-operator"
#define WB_KUBE_APPLY "application/apply-patch+yaml"
#define WB_KUBE_MERGE "application/merge-patch+json"
#define WB_KUBE_NOTE_MAX 1024 /* of an event */

/** wb_kube_wt_path - append the path of WeightTransfers; @ns "" = of all namespaces; @name NULL =
 *  the collection; @sub "" or "/status?..." */
void wb_kube_wt_path(struct wb_buf *b, const char *ns, const char *name, const char *sub);

/* ---- what the users of this folder add to a status that reconcile made; each function changes
 * @status ---- */

/** wb_kube_observed - set observedGeneration in the status and in each condition.  Where an earlier
 * operator wrote it, and this one has only read it, the earlier value stays. */
void wb_kube_observed(json_t *status, int64_t generation);

/* Whether the newest spec is in force. */
struct wb_kube_verdict {
	int64_t generation; /* of that spec */
	const char *reason; /* one word */
	const char *why; /* why it is not in force; NULL = it is */
	uint64_t wall_ns;
};
/** wb_kube_accepted - set condition Accepted.  @written: the stored status, from which the time of
 * the last transition is taken; NULL = none. */
void wb_kube_accepted(json_t *status, const json_t *written, const struct wb_kube_verdict *v);
/** wb_kube_not_ready - set condition Ready to False, for the reason in @v: no spec was ever in
 * force. */
void wb_kube_not_ready(json_t *status, const json_t *written, const struct wb_kube_verdict *v);
/** wb_kube_confirm - set which operator vouches for the status, and when it did so. */
void wb_kube_confirm(json_t *status, const char *name, uint64_t wall_ns);
/** wb_kube_confirmed_ns - when an operator last vouched for the status, ns since the epoch; 0 =
 * never. */
uint64_t wb_kube_confirmed_ns(const json_t *status);
/** wb_kube_same_status - they say the same, no matter which operator says it, when, and about which
 * accepted spec. */
bool wb_kube_same_status(const json_t *a, const json_t *b);
/** wb_kube_is_news - @status has something new that is worth a write of its own, without waiting
 * for the usual interval: a version, how a transfer ended, or that a condition became true or
 * stopped being true.  Not worth it are a condition's reason, the transfer that is under way, and
 * what engines do meanwhile.  @written: what is stored; NULL = nothing. */
bool wb_kube_is_news(const json_t *status, const json_t *written);
/** wb_kube_without_news - remove what resources (CRDs) of earlier versions do not know. */
void wb_kube_without_news(json_t *status);

/** wb_kube_apply_status - body of a server-side apply of the whole status.  @version is the
 * resourceVersion, which guards against an object that was made again.  New reference; NULL = no
 * memory. */
json_t *wb_kube_apply_status(const char *ns, const char *name, const char *version, json_t *status);

/** wb_kube_event_path - append the path of an Event; when w->is_new, the path of the collection. */
void wb_kube_event_path(struct wb_buf *b, const struct wb_kube_series_write *w);
/** wb_kube_event_body - a v1 Event, or a merge patch with what has changed in it; type and action
 * follow from the reason.  @instance: this replica.  New reference; NULL = no memory. */
json_t *wb_kube_event_body(const struct wb_kube_series_write *w, const char *instance);

#endif
