/* SPDX-License-Identifier: Apache-2.0 */
/* Says which transports a spec allows, and whether an agent has one of them. */
#include "operator-shim/spec/transport.h"

#include "base/base.h"
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

uint32_t wb_spec_via(const char *transport)
{
	/* In the order of WB_VIA_*. */
	static const char *const names[] = {"tcp", "verbs", "shm", "verbs+soft"};

	for (uint32_t i = 0; i < WB_ARRAY_SIZE(names); i++)
		if (!strcmp(transport, names[i]))
			return 1u << i;
	return 0;
}

/* The kinds of RDMA that spec.transport.deviceClass allows. */
static uint32_t via_verbs(const struct wb_spec *s)
{
	return s->device_class == WB_DEVICE_HARDWARE   ? WB_VIA_VERBS
	       : s->device_class == WB_DEVICE_SOFTWARE ? WB_VIA_SOFT
						       : WB_VIA_VERBS | WB_VIA_SOFT;
}

uint32_t wb_spec_allowed(const struct wb_spec *s)
{
	uint32_t via = WB_VIA_SHM;

	for (uint32_t i = 0; i < s->protocols.n; i++)
		via |= s->protocols.v[i] == WB_PROTOCOL_TCP ? WB_VIA_TCP : via_verbs(s);
	return via;
}

const char *wb_spec_ways(const struct wb_spec *s, char out[WB_SPEC_WAYS_MAX])
{
	uint32_t via = via_verbs(s);
	size_t at = (size_t)snprintf(out, WB_SPEC_WAYS_MAX, "shm");

	for (uint32_t i = 0; i < s->protocols.n && at < WB_SPEC_WAYS_MAX; i++)
		at += (size_t)snprintf(out + at, WB_SPEC_WAYS_MAX - at, "%s%s",
			s->protocols.v[i] == WB_PROTOCOL_TCP ? ",tcp"
			: via & WB_VIA_VERBS                 ? ",verbs"
							     : "",
			s->protocols.v[i] == WB_PROTOCOL_VERBS && via & WB_VIA_SOFT ? ",verbs+soft"
										    : "");
	return out;
}

const char *wb_spec_device_field(const struct wb_spec *s)
{
	return s->device_class != WB_DEVICE_ANY ? "spec.transport.deviceClass"
	       : s->device_prefixes.n           ? "spec.transport.devicePrefixes"
						: NULL;
}

int wb_spec_check_devices(const struct wb_spec *s, struct wb_err *err)
{
	if (s->gpu_direct == WB_GPU_DIRECT_REQUIRED)
		return wb_err_set(err, -ENODEV,
			"spec.transport.gpuDirect is Required, but agents move all bytes through "
			"host memory: this version has no GPU direct; set it to Auto or Disabled");
	if (wb_spec_device_field(s) && !(wb_spec_allowed(s) & (WB_VIA_VERBS | WB_VIA_SOFT)))
		return wb_err_set(err, -ENODEV,
			"%s chooses among RDMA devices, but spec.transport.protocols has TCP "
			"alone: leave it out, or add Verbs",
			wb_spec_device_field(s));
	return 0;
}

int wb_spec_check_via(const struct wb_spec *s, const char *agent, uint32_t via, struct wb_err *err)
{
	bool wants_tcp = wb_spec_allowed(s) & WB_VIA_TCP;
	uint32_t away = via & ~(uint32_t)WB_VIA_SHM;

	if (!away || away & wb_spec_allowed(s))
		return 0;
	if (!(away & WB_VIA_TCP) && !wants_tcp)
		return wb_err_set(err, -ENODEV,
			"spec.transport.deviceClass is %s, but agent %.100s has RDMA in %s alone: "
			"set it to Any, or add TCP to spec.transport.protocols",
			s->device_class == WB_DEVICE_HARDWARE ? "Hardware" : "Software", agent,
			away & WB_VIA_SOFT ? "software" : "hardware");
	return wb_err_set(err, -ENODEV,
		"spec.transport.protocols has %s alone, but agent %.100s moves weights over %s "
		"alone: add %s to the list",
		wants_tcp ? "TCP" : "Verbs", agent, via & WB_VIA_TCP ? "TCP" : "Verbs",
		via & WB_VIA_TCP ? "TCP" : "Verbs");
}
