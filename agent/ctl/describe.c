/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl describe, all that the operator knows of one object, and wbctl status, of an agent. */
#include "base/base.h"
#include "base/err.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"
#include "ctl/table.h"

#include <errno.h>
#include <string.h>

static void line(const json_t *o, const char *label, const char *path)
{
	char text[1024];

	if (*wb__ctl_text(o, path, text, sizeof(text)))
		printf("%-24s%s\n", label, text);
}

static void nested(const json_t *v, int depth)
{
	const json_t *item;
	const char *key;
	char text[1024];
	void *it;

	for (it = json_object_iter((json_t *)(uintptr_t)v); it;
		it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
		key = json_object_iter_key(it);
		item = json_object_iter_value(it);
		if (json_is_object(item)) {
			printf("%*s%s:\n", depth * 2, "", key);
			nested(item, depth + 1);
		} else if (json_is_array(item)) {
			printf("%*s%s:", depth * 2, "", key);
			for (size_t i = 0; i < json_array_size(item); i++)
				printf("%s %s", i ? "," : "",
					wb__ctl_text(
						json_array_get(item, i), "", text, sizeof(text)));
			putchar('\n');
		} else {
			printf("%*s%s: %s\n", depth * 2, "", key,
				wb__ctl_text(item, "", text, sizeof(text)));
		}
	}
}

struct column {
	const char *title, *path;
};

/* Prints one row for each element; columns without a value in any row are left out. */
static void list(const char *title, const json_t *rows, const struct column *col, size_t n_col)
{
	bool is_used[WB_CTL_COLUMNS_MAX] = {false};
	struct wb__ctl_table t;
	size_t i, n = 0;
	const json_t *row;
	char text[WB_CTL_CELL_MAX];

	json_array_foreach(rows, i, row) for (size_t c = 0; c < n_col; c++) is_used[c] |=
		*wb__ctl_text(row, col[c].path, text, sizeof(text)) != '\0';
	for (size_t c = 0; c < n_col; c++)
		n += is_used[c];
	if (!n)
		return;
	printf("%s:\n", title);
	wb__ctl_table_init(&t, n);
	for (size_t c = 0; c < n_col; c++)
		if (is_used[c])
			wb__ctl_cell(&t, "%s", col[c].title);
	json_array_foreach(rows, i, row) for (size_t c = 0; c < n_col; c++) if (is_used[c])
		wb__ctl_cell(&t, "%s", wb__ctl_text(row, col[c].path, text, sizeof(text)));
	wb__ctl_print(&t, "  ", stdout);
	wb__ctl_table_finish(&t);
}

static const struct column conditions[] = {{"TYPE", "type"}, {"STATUS", "status"},
	{"REASON", "reason"}, {"SINCE", "lastTransitionTime"}, {"MESSAGE", "message"}};
static const struct column engines[] = {{"NAME", "name"}, {"STATE", "state"},
	{"WORKERS", "workers"}, {"VERSION", "version"}, {"TRANSFER", "transfer"},
	{"TRANSPORT", "transport"}, {"MEMORY", "memoryPath"}, {"REASON", "reason"},
	{"MESSAGE", "message"}};
static const struct column agents[] = {{"NAME", "name"}, {"NODE", "node"}, {"HOST", "host"},
	{"PORT", "port"}, {"WORKERS", "workers"}, {"TRANSPORTS", "transports"},
	{"RAIL(B/S)", "railBytesPerSecond"}, {"BUILD", "build"}, {"LANE", "lane"}};
static const struct column transfers[] = {{"TRANSFER", "transfer"}, {"VERSION", "version"},
	{"RESULT", "result"}, {"TIME(MS)", "endToEndMilliseconds"},
	{"+-(MS)", "endToEndUncertaintyMilliseconds"}, {"STALL(MS)", "averageStallMilliseconds"},
	{"RECEIVED", "bytes.receive"}, {"EXTERNAL", "bytes.external"},
	{"INTERNAL", "bytes.internal"}, {"RESENT", "resentChunks"},
	{"MISMATCHED", "mismatchedChunks"}, {"LAST MISMATCH", "lastMismatch"},
	{"CULPRIT", "culprit"}, {"MESSAGE", "message"}};

/* Prints the time of the last transfer against the plan's lower bound. */
static void bound(const json_t *o)
{
	double bound_ms = wb__ctl_number(o, "status.plan.lowerBoundMilliseconds", 0);
	const json_t *last = json_array_get(wb__ctl_at(o, "detail.transfers"), 0);
	double ms = wb__ctl_number(last, "endToEndMilliseconds", 0);

	if (bound_ms > 0 && ms > 0)
		printf("%-24s%.2f (%.0f ms against %.0f ms)\n", "Last / bound:", ms / bound_ms, ms,
			bound_ms);
}

static void describe(const json_t *o)
{
	line(o, "Name:", "metadata.name");
	line(o, "Namespace:", "metadata.namespace");
	line(o, "Operator:", "detail.operator");
	printf("Spec:\n");
	nested(wb__ctl_at(o, "spec"), 1);
	list("Conditions", wb__ctl_at(o, "status.conditions"), conditions,
		WB_ARRAY_SIZE(conditions));
	if (wb__ctl_at(o, "status.plan")) {
		printf("Plan:\n");
		nested(wb__ctl_at(o, "status.plan"), 1);
	}
	line(o, "Version:", "status.version");
	line(o, "Transfer:", "status.transfer");
	line(o, "Engines up to date:", "status.updatedEngines");
	line(o, "Running transfer:", "status.currentTransfer.transfer");
	bound(o);
	list("Engines", wb__ctl_at(o, "status.engines"), engines, WB_ARRAY_SIZE(engines));
	list("Agents", wb__ctl_at(o, "detail.agents"), agents, WB_ARRAY_SIZE(agents));
	list("Transfers", wb__ctl_at(o, "detail.transfers"), transfers, WB_ARRAY_SIZE(transfers));
}

int wb__ctl_describe(const struct wb__ctl_opts *o, struct wb_err *err)
{
	json_t *v = NULL;
	int rc = wb__ctl_fetch_json(wb__ctl_operator(o), "/status", o->object, &v, err);

	if (rc < 0)
		return rc;
	if (o->is_json)
		wb__ctl_dump(v, o->is_yaml);
	else
		describe(v);
	json_decref(v);
	return 0;
}

static const struct column workers[] = {{"WORKER", "name"}, {"ROLE", "role"}, {"ENGINE", "engine"},
	{"RANK", "rank"}, {"PID", "pid"}, {"PLANNED", "planned"}, {"ASLEEP", "asleep"},
	{"VERSION", "version"}, {"TRANSFER", "transfer"}, {"LANE", "lane"}, {"PARAMS", "params"},
	{"WHY NOT THE AGENT'S", "laneReason"}};

static void agent_status(const json_t *v)
{
	line(v, "Agent:", "agent");
	line(v, "Node:", "node");
	line(v, "Transport:", "transport");
	line(v, "Operator connected:", "operator.up");
	line(v, "Operator trouble:", "operator.trouble");
	line(v, "Object:", "operator.object");
	line(v, "Epoch, term:", "operator.term");
	line(v, "Epoch, number:", "operator.number");
	line(v, "Peers connected:", "peers");
	line(v, "Transfer running:", "busy");
	line(v, "Draining:", "draining");
	line(v, "Slot bytes:", "bufferBytes");
	line(v, "Mismatches, wire:", "mismatches.wire");
	line(v, "Mismatches, slot:", "mismatches.slot");
	line(v, "Mismatches, relay:", "mismatches.relay");
	line(v, "Mismatches, install:", "mismatches.install");
	line(v, "Last mismatch:", "lastMismatch");
	list("Workers", wb__ctl_at(v, "workers"), workers, WB_ARRAY_SIZE(workers));
}

/* The status of an agent, or in short that of all objects of an operator. */
int wb__ctl_status(const struct wb__ctl_opts *o, struct wb_err *err)
{
	char text[32];
	const char *agent = wb__ctl_agent(o, text);
	json_t *v = NULL;
	int rc;

	if (!agent)
		return wb__ctl_get(o, err);
	rc = wb__ctl_fetch_json(agent, "/status", NULL, &v, err);
	if (rc < 0)
		return rc;
	if (!json_object_get(v, "agent"))
		rc = wb_err_set(err, -EINVAL, "%s is not an agent's page", agent);
	else if (o->is_json)
		wb__ctl_dump(v, o->is_yaml);
	else
		agent_status(v);
	json_decref(v);
	return rc;
}
