/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/spec/transport.h"

#include "base/base.h"
#include "base/err.h"

#include <errno.h>
#include <string.h>

uint32_t wb_spec_via(const char *transport)
{
	static const char *const names[] = {"tcp", "verbs", "shm"}; /* in the order of WB_VIA_* */

	for (uint32_t i = 0; i < WB_ARRAY_SIZE(names); i++)
		if (!strcmp(transport, names[i]))
			return 1u << i;
	return 0;
}

uint32_t wb_spec_allowed(const struct wb_spec *s)
{
	uint32_t via = WB_VIA_SHM;

	for (uint32_t i = 0; i < s->protocols.n; i++)
		via |= s->protocols.v[i] == WB_PROTOCOL_TCP ? WB_VIA_TCP : WB_VIA_VERBS;
	return via;
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
	if (wb_spec_device_field(s) && !(wb_spec_allowed(s) & WB_VIA_VERBS))
		return wb_err_set(err, -ENODEV,
			"%s chooses among RDMA devices, but spec.transport.protocols has TCP "
			"alone: leave it out, or add Verbs",
			wb_spec_device_field(s));
	return 0;
}

int wb_spec_check_via(const struct wb_spec *s, const char *agent, uint32_t via, struct wb_err *err)
{
	bool wants_tcp = wb_spec_allowed(s) & WB_VIA_TCP;

	if (!via || via & wb_spec_allowed(s))
		return 0;
	return wb_err_set(err, -ENODEV,
		"spec.transport.protocols has %s alone, but agent %.100s moves weights over %s "
		"alone: add %s to the list",
		wants_tcp ? "TCP" : "Verbs", agent, via & WB_VIA_TCP ? "TCP" : "Verbs",
		via & WB_VIA_TCP ? "TCP" : "Verbs");
}
