/* SPDX-License-Identifier: Apache-2.0 */
/* What spec.transport asks for, and what agents have. */
#include "operator-shim/spec/transport.h"
#include "base/err.h"
#include "operator-shim/reconcile/internal.h"

#include <stdio.h>
#include <strings.h>

bool wb__reconcile_transport_fits(struct wb_reconcile *r, const struct membership *m)
{
	struct wb_err err = {0};
	int rc = wb_spec_check_devices(&r->spec, &err);

	for (size_t i = 0; i < m->n && rc == 0; i++) {
		const struct agent *a = wb__reconcile_agent_by_instance(r, m->m[i].instance);

		if (a)
			rc = wb_spec_check_via(&r->spec, a->name, a->via, &err);
	}
	if (rc < 0)
		wb__reconcile_fail(r, "NoUsableDevice", err.msg);
	return rc == 0;
}

uint32_t wb__reconcile_transport_print(const struct wb_reconcile *r)
{
	return wb_spec_allowed(&r->spec) |
	       (r->spec.gpu_direct == WB_GPU_DIRECT_REQUIRED ? 1u << 16 : 0) |
	       (wb_spec_device_field(&r->spec) ? 1u << 17 : 0);
}

/* The default list has Verbs first for machines that have it; where nobody asked for a device, TCP
 * is as it should be. */
bool wb__reconcile_is_tcp_instead(const struct wb_reconcile *r, char *text, size_t cap)
{
	const char *field = wb_spec_device_field(&r->spec);

	for (size_t i = 0; i < r->n_engine && field; i++) {
		if (strncasecmp(r->engine[i].transport, "tcp", 3) != 0)
			continue;
		snprintf(text, cap,
			"engine %s is reached by TCP: %s asks for RDMA devices, and agents of this "
			"version use none",
			r->engine[i].name, field);
		return true;
	}
	return false;
}
