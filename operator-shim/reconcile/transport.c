/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what spec.transport asks for with what agents have. */
#include "operator-shim/spec/transport.h"
#include "base/err.h"
#include "operator-shim/reconcile/internal.h"

#include <stdio.h>
#include <string.h>
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
	       (r->spec.protocols.n && r->spec.protocols.v[0] == WB_PROTOCOL_TCP ? 1u << 18 : 0) |
	       (r->spec.gpu_direct == WB_GPU_DIRECT_REQUIRED ? 1u << 16 : 0) |
	       (wb_spec_device_field(&r->spec) ? 1u << 17 : 0);
}

/* Whether @name is in the list of transports, alone or with more behind a plus ("tcp+tls"). */
static bool has(const char *transports, const char *name)
{
	size_t n = strlen(name);

	for (const char *s = transports; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncasecmp(s, name, n) && strchr(",+", s[n]))
			return true;
	return false;
}

int wb_reconcile_rails(
	struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent, const char *sentence)
{
	struct agent *a = wb__reconcile_agent_by_id(r, agent);
	char text[sizeof(a->reduced)];

	snprintf(text, sizeof(text), "%.300s", sentence);
	if (!a || !strcmp(a->reduced, text))
		return 0;
	memcpy(a->reduced, text, sizeof(text));
	r->is_dirty = true;
	return wb__reconcile_look(r, now);
}

/* Whether an agent has a port that is down, which matters only if an engine is reached by Verbs.
 * The sentence is in @text. */
static bool is_reduced(const struct wb_reconcile *r, char *text, size_t cap)
{
	bool goes_by_ports = false;
	size_t n = 0;

	for (size_t i = 0; i < r->n_engine; i++)
		goes_by_ports |= has(r->engine[i].transport, "verbs");
	for (size_t i = 0; goes_by_ports && i < r->n_agent; i++)
		if (r->agent[i].is_up && r->agent[i].reduced[0] && !n++)
			snprintf(text, cap, "agent %s: %s", r->agent[i].name, r->agent[i].reduced);
	if (n > 1)
		snprintf(text + strlen(text), cap - strlen(text), " (and %zu more)", n - 1);
	return n;
}

/* The default list has Verbs first, for machines that have it.  So TCP is a fallback only if the
 * spec asks for devices, or an agent found that it could not use one. */
const char *wb__reconcile_worse_transport(const struct wb_reconcile *r, char *text, size_t cap)
{
	const char *field = wb_spec_device_field(&r->spec);

	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		if (has(e->transport, "tcp") && e->fallback[0])
			snprintf(text, cap, "engine %s: %s", e->name, e->fallback);
		else if (has(e->transport, "tcp") && field)
			snprintf(text, cap, "engine %s is reached by TCP: %s asks for RDMA devices",
				e->name, field);
		else
			continue;
		return "TCPFallback";
	}
	if (is_reduced(r, text, cap))
		return "ReducedRails";
	for (size_t i = 0; i < r->n_engine && r->spec.device_class != WB_DEVICE_SOFTWARE; i++) {
		if (!has(r->engine[i].transport, "verbs+soft"))
			continue;
		snprintf(text, cap,
			"engine %s is reached by RDMA in software: set spec.transport.deviceClass "
			"to Hardware, or to Software where that is meant",
			r->engine[i].name);
		return "SoftwareRDMA";
	}
	return NULL;
}
