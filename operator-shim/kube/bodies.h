/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_BODIES_H
#define WB_KUBE_BODIES_H
/*
 * What is written to the API server, as JSON.  Pure.
 *
 * Threads: any.  Layer: operator-shim/kube (over base).
 */
#include <jansson.h>
#include <stddef.h>
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

/** wb_kube_observed - @status with observedGeneration, also in each condition; changes @status. */
void wb_kube_observed(json_t *status, int64_t generation);

/** wb_kube_apply_status - body of a server-side apply of the whole status; @version guards against
 *  an object that was made again.  New reference; NULL = no memory. */
json_t *wb_kube_apply_status(const char *ns, const char *name, const char *version, json_t *status);

/** wb_kube_event_path - append the path of an Event: the collection where it @is_new. */
void wb_kube_event_path(struct wb_buf *b, const struct wb_kube_series_write *w);
/** wb_kube_event_body - a v1 Event, or what has changed of it (a merge patch); type and action
 * follow from the reason.  @instance: this replica.  New reference; NULL = no memory. */
json_t *wb_kube_event_body(const struct wb_kube_series_write *w, const char *instance);

#endif
