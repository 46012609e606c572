/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/bodies.h"

#include "base/base.h"
#include "base/buf.h"
#include "operator-shim/kube/series.h"
#include "operator-shim/kube/text.h"

#include <string.h>

#define API WB_KUBE_API
#define COMPONENT "weightbridge.io/operator"

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
	{"AgentNameTaken", "Warning", "Connect"},
	{"AuthenticationRejected", "Warning", "Connect"},
	{"BudgetExceeded", "Warning", "Connect"},
	{"EngineFed", "Normal", "Transfer"},
	{"EngineLabelMissing", "Warning", "Connect"},
	{"EngineNotFed", "Warning", "Transfer"},
	{"EngineTorn", "Warning", "Transfer"},
	{"NotServed", "Warning", "Plan"},
	{"PlanActivated", "Normal", "Plan"},
	{"PlanAdopted", "Normal", "Plan"},
	{"PlanDiffers", "Warning", "Plan"},
	{"PlanFailed", "Warning", "Plan"},
	{"RoleMismatch", "Warning", "Connect"},
	{"SpecRefused", "Warning", "Plan"},
	{"TransferCompleted", "Normal", "Transfer"},
	{"TransferFailed", "Warning", "Transfer"},
};

/* Length of @note, cut to at most WB_KUBE_NOTE_MAX bytes and never inside a character. */
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

void wb_kube_event_path(struct wb_buf *b, const struct wb_kube_series_write *w)
{
	wb_buf_printf(b, "/api/v1/namespaces/");
	wb_kube_put_escaped(b, w->of.ns);
	wb_buf_printf(b, "/events");
	if (!w->is_new) {
		wb_buf_printf(b, "/");
		wb_kube_put_escaped(b, w->event);
	}
	wb_buf_printf(b, "?fieldManager=" WB_KUBE_FIELD_MANAGER);
}

static json_t *event_change(const struct wb_kube_series_write *w)
{
	char last[WB_KUBE_TIME_TEXT];

	return json_pack("{s:I, s:s, s:s%}", "count", (json_int_t)w->count, "lastTimestamp",
		wb_kube_seconds(w->last_wall_ns, last), "message", w->of.note,
		note_bytes(w->of.note));
}

json_t *wb_kube_event_body(const struct wb_kube_series_write *w, const char *instance)
{
	const char *type = "Normal", *action = "Reconcile";
	char first[WB_KUBE_TIME_TEXT];
	json_t *o, *body;

	if (!w->is_new)
		return event_change(w);
	for (size_t i = 0; i < WB_ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].reason, w->of.reason)) {
			type = kinds[i].type;
			action = kinds[i].action;
		}
	body = json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:{s:s}, s:s, s:s, s:s, "
			 "s:{s:s, s:s, s:s, s:s, s:s}}",
		"apiVersion", "v1", "kind", "Event", "metadata", "name", w->event, "namespace",
		w->of.ns, "firstTimestamp", wb_kube_seconds(w->first_wall_ns, first),
		"reportingComponent", COMPONENT, "reportingInstance", instance, "source",
		"component", COMPONENT, "type", type, "reason", w->of.reason, "action", action,
		"involvedObject", "apiVersion", w->of.api, "kind", w->of.kind, "name", w->of.name,
		"namespace", w->of.ns, "uid", w->of.uid);
	o = event_change(w);
	if (!body || !o || json_object_update(body, o) < 0) {
		json_decref(body);
		body = NULL;
	}
	json_decref(o);
	return body;
}
