/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/bodies.h"

#include "base/base.h"
#include "base/buf.h"
#include "operator-shim/kube/text.h"

#include <stdio.h>
#include <string.h>

#define API "weightbridge.io/v1alpha1"

void wb_kube_wt_path(struct wb_buf *b, const char *ns, const char *name, const char *sub)
{
	wb_buf_printf(b, "/apis/" API);
	if (*ns) {
		wb_buf_printf(b, "/namespaces/");
		wb_kube_put_escaped(b, ns);
	}
	wb_buf_printf(b, "/weighttransfers");
	if (name) {
		wb_buf_printf(b, "/");
		wb_kube_put_escaped(b, name);
	}
	wb_buf_printf(b, "%s", sub);
}

void wb_kube_observed(json_t *status, int64_t generation)
{
	json_t *c;
	size_t i;

	json_object_set_new(status, "observedGeneration", json_integer(generation));
	json_array_foreach(json_object_get(status, "conditions"), i, c)
	{
		json_object_set_new(c, "observedGeneration", json_integer(generation));
	}
}

json_t *wb_kube_apply_status(const char *ns, const char *name, const char *version, json_t *status)
{
	return json_pack("{s:s, s:s, s:{s:s, s:s, s:s}, s:O}", "apiVersion", API, "kind",
		"WeightTransfer", "metadata", "name", name, "namespace", ns, "resourceVersion",
		version, "status", status);
}

static const struct {
	const char *reason, *type, *action;
} kinds[] = {
	{"AgentLost", "Warning", "Connect"},
	{"AuthenticationRejected", "Warning", "Connect"},
	{"EngineFed", "Normal", "Transfer"},
	{"EngineTorn", "Warning", "Transfer"},
	{"PlanActivated", "Normal", "Plan"},
	{"PlanAdopted", "Normal", "Plan"},
	{"PlanDiffers", "Warning", "Plan"},
	{"PlanFailed", "Warning", "Plan"},
	{"SpecRefused", "Warning", "Plan"},
	{"TransferCompleted", "Normal", "Transfer"},
	{"TransferFailed", "Warning", "Transfer"},
	{"TransferTimedOut", "Warning", "Transfer"},
};

/* At most WB_KUBE_NOTE_MAX bytes, and not half a character at the end. */
static size_t note_bytes(const char *note)
{
	size_t n = strnlen(note, WB_KUBE_NOTE_MAX + 1);

	if (n <= WB_KUBE_NOTE_MAX)
		return n;
	n = WB_KUBE_NOTE_MAX;
	while (n && ((unsigned char)note[n] & 0xc0) == 0x80)
		n--;
	return n;
}

json_t *wb_kube_event_body(const struct wb_kube_event_about *e)
{
	const char *type = "Normal", *action = "Reconcile";
	char when[WB_KUBE_TIME_TEXT], name[300];

	for (size_t i = 0; i < WB_ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].reason, e->reason)) {
			type = kinds[i].type;
			action = kinds[i].action;
		}
	snprintf(name, sizeof(name), "%.200s.%016llx", e->name, (unsigned long long)e->unique);
	return json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:s%, "
			 "s:{s:s, s:s, s:s, s:s, s:s}}",
		"apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "name", name,
		"namespace", e->ns, "eventTime", wb_kube_time(e->wall_ns, when),
		"reportingController", "weightbridge.io/operator", "reportingInstance", e->instance,
		"type", type, "reason", e->reason, "action", action, "note", e->note,
		note_bytes(e->note), "regarding", "apiVersion", API, "kind", "WeightTransfer",
		"name", e->name, "namespace", e->ns, "uid", e->uid);
}
