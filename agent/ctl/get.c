/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl get: the columns of crds/weighttransfer.yaml, as kubectl prints them. */
#include "base/base.h"
#include "base/err.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"
#include "ctl/table.h"

#include <string.h>

enum kind { PLAIN, AGE, CONDITION };

static const struct {
	const char *name, *path; /* CONDITION: type.field */
	enum kind kind;
	bool is_wide;
} columns[] = {
	{"READY", "Ready.status", CONDITION, false},
	{"VERSION", "status.version", PLAIN, false},
	{"UP-TO-DATE", "status.updatedEngines", PLAIN, false},
	{"ENGINES", "status.engineCount", PLAIN, false},
	{"TIME(MS)", "status.lastTransfer.endToEndMilliseconds", PLAIN, false},
	{"LAST-TRANSFER", "status.lastTransfer.completionTime", AGE, false},
	{"AGE", "metadata.creationTimestamp", AGE, false},
	{"REASON", "Ready.reason", CONDITION, true},
	{"TRANSFER", "status.transfer", PLAIN, true},
	{"STALL(MS)", "status.lastTransfer.averageStallMilliseconds", PLAIN, true},
	{"BOUND(MS)", "status.plan.lowerBoundMilliseconds", PLAIN, true},
	{"MBIT/S", "status.lastTransfer.throughputMegabitsPerSecond", PLAIN, true},
	{"ROUNDS", "status.plan.rounds", PLAIN, true},
	{"WORKERS", "status.connectedWorkers", PLAIN, true},
};

static void put_cell(struct wb__ctl_table *t, const json_t *o, size_t col)
{
	char text[256], type[32];
	const char *path = columns[col].path, *dot = strchr(path, '.');
	double age;

	switch (columns[col].kind) {
	case PLAIN:
		wb__ctl_cell(t, "%s", wb__ctl_text(o, path, text, sizeof(text)));
		break;
	case CONDITION:
		snprintf(type, sizeof(type), "%.*s", (int)(dot - path), path);
		wb__ctl_cell(t, "%s",
			wb__ctl_text(wb__ctl_condition(o, type), dot + 1, text, sizeof(text)));
		break;
	case AGE:
		age = wb__ctl_since(o, path);
		text[0] = '\0';
		if (age >= 0)
			wb__ctl_age(age, text, sizeof(text));
		wb__ctl_cell(t, "%s", text);
		break;
	}
}

static void put_row(struct wb__ctl_table *t, const json_t *o, bool is_wide)
{
	char text[256];

	wb__ctl_cell(t, "%s", wb__ctl_text(o, "metadata.name", text, sizeof(text)));
	for (size_t c = 0; c < WB_ARRAY_SIZE(columns); c++)
		if (is_wide || !columns[c].is_wide)
			put_cell(t, o, c);
}

static bool is_asked_for(const json_t *o, const char *object)
{
	char name[256], ns[256], key[520];

	snprintf(key, sizeof(key), "%s/%s", wb__ctl_text(o, "metadata.namespace", ns, sizeof(ns)),
		wb__ctl_text(o, "metadata.name", name, sizeof(name)));
	return wb__ctl_is_meant(key, object);
}

static int print(const json_t *items, const struct wb__ctl_opts *o, struct wb_err *err)
{
	struct wb__ctl_table t;
	size_t i, n_col = 1, n = 0;
	const json_t *item;
	int rc;

	for (size_t c = 0; c < WB_ARRAY_SIZE(columns); c++)
		n_col += o->is_wide || !columns[c].is_wide;
	wb__ctl_table_init(&t, n_col);
	wb__ctl_cell(&t, "NAME");
	for (size_t c = 0; c < WB_ARRAY_SIZE(columns); c++)
		if (o->is_wide || !columns[c].is_wide)
			wb__ctl_cell(&t, "%s", columns[c].name);
	json_array_foreach(items, i, item)
	{
		if (!is_asked_for(item, o->object))
			continue;
		put_row(&t, item, o->is_wide);
		n++;
	}
	rc = n ? wb__ctl_print(&t, "", stdout) : wb__ctl_no_object(items, o->object, err);
	wb__ctl_table_finish(&t);
	return rc;
}

int wb__ctl_get(const struct wb__ctl_opts *o, struct wb_err *err)
{
	json_t *list = NULL;
	int rc;

	if (o->is_json && o->object)
		rc = wb__ctl_fetch_json(wb__ctl_operator(o), "/status", o->object, &list, err);
	else
		rc = wb__ctl_fetch_json(wb__ctl_operator(o), "/objects", NULL, &list, err);
	if (rc < 0)
		return rc;
	if (o->is_json)
		wb__ctl_dump(list);
	else
		rc = print(json_object_get(list, "items"), o, err);
	json_decref(list);
	return rc;
}
