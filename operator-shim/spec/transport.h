/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SPEC_TRANSPORT_H
#define WB_SPEC_TRANSPORT_H
/*
 * Compares what spec.transport asks for with what there is.
 *
 * Pure.  Layer: operator-shim/spec (over base).
 */
#include "operator-shim/spec/spec.h"

/* The ways in which an agent can move weights. */
enum {
	WB_VIA_TCP = 1u << 0,
	WB_VIA_VERBS = 1u << 1,
	WB_VIA_SHM = 1u << 2,
	WB_VIA_SOFT = 1u << 3, /* verbs, and no device is a hardware NIC's: soft-RoCE */
};
#define WB_SPEC_WAYS_MAX 64

/** wb_spec_via - WB_VIA_* of a transport's name; 0: the name is not known. */
uint32_t wb_spec_via(const char *transport);
/** wb_spec_allowed - WB_VIA_* that may carry weights: the object's protocols, and always memory
 * that two agents share, since then nothing travels. */
uint32_t wb_spec_allowed(const struct wb_spec *s);
/** wb_spec_ways - the same by name, best first, separated by commas, for agents.  Returns @out. */
const char *wb_spec_ways(const struct wb_spec *s, char out[WB_SPEC_WAYS_MAX]);
/** wb_spec_device_field - path of the field that asks for certain RDMA devices; NULL: none does. */
const char *wb_spec_device_field(const struct wb_spec *s);
/** wb_spec_check_devices - can this version do what the spec asks of devices?  0; -ENODEV with a
 * sentence that names the field. */
int wb_spec_check_devices(const struct wb_spec *s, struct wb_err *err);
/** wb_spec_check_via - may this agent carry weights?  @via 0: not known, which counts as yes.  If
 * the agent has transports that leave the host, one of them has to be allowed.  0 or -ENODEV. */
int wb_spec_check_via(const struct wb_spec *s, const char *agent, uint32_t via, struct wb_err *err);

#endif
