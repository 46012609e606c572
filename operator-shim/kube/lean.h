/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_LEAN_H
#define WB_KUBE_LEAN_H
/*
 * Reduces objects that tenants write, and of which one is watched in each namespace, to the parts
 * that are used.
 *
 * Such an object may be as long as the API server accepts, a megabyte and more, and takes ten times
 * that as JSON in memory.  So parts that are not used are removed before it is kept (trim of
 * watch.h).  In metadata only name, namespace, uid and resourceVersion stay.
 *
 * Pure.  Threads: any.  Layer: operator-shim/kube (over base).
 */
#include <jansson.h>
#include <stddef.h>

#define WB_KUBE_LEAN_OWNERS 64
#define WB_KUBE_LEAN_TEXT 65536 /* bytes */

/**
 * wb_kube_lean_map - reduce a ConfigMap to data[@key] and its owners
 * In metadata.ownerReferences, to which anybody may add, the uids of the first WB_KUBE_LEAN_OWNERS
 * WeightTransfers stay.  A data[@key] that is longer than WB_KUBE_LEAN_TEXT is removed, and its
 * length returned; else returns 0.
 */
size_t wb_kube_lean_map(json_t *map, const char *key);
/** wb_kube_lean_lease - reduce a Lease to spec.holderIdentity, as wb_kube_lease_holder() returns
 * it. */
void wb_kube_lean_lease(json_t *lease);

#endif
