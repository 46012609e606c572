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

#define WB_KUBE_FIELD_MANAGER "weightbridge-operator"
#define WB_KUBE_APPLY "application/apply-patch+yaml"
#define WB_KUBE_NOTE_MAX 1024 /* of an event */

/** wb_kube_wt_path - append the path of WeightTransfers; @ns "" = of all namespaces; @name NULL =
 *  the collection; @sub "" or "/status?..." */
void wb_kube_wt_path(struct wb_buf *b, const char *ns, const char *name, const char *sub);

/** wb_kube_observed - @status with observedGeneration, also in each condition; changes @status. */
void wb_kube_observed(json_t *status, int64_t generation);

/** wb_kube_apply_status - body of a server-side apply of the whole status; @version guards against
 *  an object that was made again.  New reference; NULL = no memory. */
json_t *wb_kube_apply_status(const char *ns, const char *name, const char *version, json_t *status);

struct wb_kube_event_about {
	const char *ns, *name, *uid; /* of the WeightTransfer */
	const char *instance; /* this replica */
	const char *reason, *note;
	uint64_t wall_ns, unique;
};

/** wb_kube_event_body - an events.k8s.io/v1 Event; type and action follow from the reason.  New
 *  reference; NULL = no memory. */
json_t *wb_kube_event_body(const struct wb_kube_event_about *e);

#endif
