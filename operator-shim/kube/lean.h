/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_LEAN_H
#define WB_KUBE_LEAN_H
/*
 * What is kept of objects that tenants write, and of which one is watched in each namespace.
 *
 * Such an object may be as long as the API server takes, a megabyte and more, and as JSON in memory
 * ten times that.  So what is not looked at goes before it is kept (trim of watch.h).  Of metadata
 * there stay name, namespace, uid and resourceVersion.
 *
 * Pure.  Threads: any.  Layer: operator-shim/kube (over base).
 */
#include <jansson.h>
#include <stddef.h>

#define WB_KUBE_LEAN_OWNERS 64
#define WB_KUBE_LEAN_TEXT 65536 /* bytes */

/**
 * wb_kube_lean_map - of a ConfigMap: data[@key] and who owns it
 * Of metadata.ownerReferences, which anybody may add to, there stay the uids of the first
 * WB_KUBE_LEAN_OWNERS that are WeightTransfers.  Returns the length of a data[@key] above
 * WB_KUBE_LEAN_TEXT, which does not stay; else 0.
 */
size_t wb_kube_lean_map(json_t *map, const char *key);
/** wb_kube_lean_lease - of a Lease: spec.holderIdentity, as wb_kube_lease_holder() tells it. */
void wb_kube_lean_lease(json_t *lease);

#endif
