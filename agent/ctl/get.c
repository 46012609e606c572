/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl get: the columns of crds/weighttransfer.yaml, as kubectl prints them. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"
#include "ctl/table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* ---- what has changed ---- */

/* What is shown of an object, except ages, which always change. */
static void put_seen(struct wb_buf *b, const json_t *o, bool is_wide)
{
	char text[256], type[32];

	for (size_t c = 0; c < WB_ARRAY_SIZE(columns); c++) {
		const char *path = columns[c].path, *dot = strchr(path, '.');

		if (columns[c].kind == AGE || (columns[c].is_wide && !is_wide))
			continue;
		snprintf(type, sizeof(type), "%.*s", (int)(dot - path), path);
		wb_buf_printf(b, "%s\n",
			columns[c].kind == PLAIN ? wb__ctl_text(o, path, text, sizeof(text))
						 : wb__ctl_text(wb__ctl_condition(o, type), dot + 1,
							   text, sizeof(text)));
	}
}

/* Is the object new, or different from what @seen has under its name?  Then @seen is updated.  For
 * @seen NULL: always. */
static bool has_changed(json_t *seen, const json_t *o, bool is_wide)
{
	char name[256], ns[256], key[520];
	const char *before;
	struct wb_buf b;
	bool is_same;

	if (!seen)
		return true;
	snprintf(key, sizeof(key), "%s/%s", wb__ctl_text(o, "metadata.namespace", ns, sizeof(ns)),
		wb__ctl_text(o, "metadata.name", name, sizeof(name)));
	wb_buf_init(&b, 1u << 16);
	put_seen(&b, o, is_wide);
	before = json_string_value(json_object_get(seen, key));
	is_same = before && !strcmp(before, wb_buf_cstr(&b));
	if (!is_same)
		json_object_set_new(seen, key, json_string(wb_buf_cstr(&b)));
	wb_buf_finish(&b);
	return !is_same;
}

/* ---- printing ---- */

static void put_head(struct wb__ctl_table *t, bool is_wide)
{
	wb__ctl_cell(t, "NAME");
	for (size_t c = 0; c < WB_ARRAY_SIZE(columns); c++)
		if (is_wide || !columns[c].is_wide)
			wb__ctl_cell(t, "%s", columns[c].name);
}

/* @seen: print only what has changed since, with a head when it is empty; NULL: print all. */
static int print(
	const json_t *items, const struct wb__ctl_opts *o, json_t *seen, struct wb_err *err)
{
	bool has_head = !seen || !json_object_size(seen);
	size_t i, n_col = 1, n = 0, n_row = 0;
	struct wb__ctl_table t;
	const json_t *item;
	int rc = 0;

	for (size_t c = 0; c < WB_ARRAY_SIZE(columns); c++)
		n_col += o->is_wide || !columns[c].is_wide;
	wb__ctl_table_init(&t, n_col);
	if (has_head && !o->is_json)
		put_head(&t, o->is_wide);
	json_array_foreach(items, i, item)
	{
		if (!is_asked_for(item, o->object))
			continue;
		n++;
		if (!has_changed(seen, item, o->is_wide))
			continue;
		if (o->is_json && seen)
			wb__ctl_dump(item, o->is_yaml);
		else
			put_row(&t, item, o->is_wide);
		n_row++;
	}
	if (!n && !seen)
		rc = wb__ctl_no_object(items, o->object, err);
	else if (!o->is_json && n_row)
		rc = wb__ctl_print(&t, "", stdout);
	wb__ctl_table_finish(&t);
	return rc;
}

/* Goes on until the user ends it.  When the operator stops answering, this is said once, and it is
 * asked again; before it has answered once it is a failure. */
static int watch(const struct wb__ctl_opts *o, struct wb_err *err)
{
	const struct timespec second = {.tv_sec = 1};
	json_t *seen = json_object(), *list = NULL;
	bool is_away = false, was_there = false;
	int rc = seen ? 0 : -ENOMEM;

	while (rc == 0) {
		rc = wb__ctl_fetch_json(wb__ctl_operator(o), "/objects", NULL, &list, err);
		if (rc == 0) {
			rc = print(json_object_get(list, "items"), o, seen, err);
			json_decref(list);
			is_away = false;
			was_there = true;
		} else if (was_there) {
			if (!is_away)
				fprintf(stderr, "wbctl: %s; asking again\n", err->msg);
			is_away = true;
			rc = 0;
		}
		if (rc == 0 && fflush(stdout))
			rc = wb_err_set(err, -errno, "write to stdout: %s", strerror(errno));
		nanosleep(&second, NULL);
	}
	json_decref(seen);
	return rc;
}

int wb__ctl_get(const struct wb__ctl_opts *o, struct wb_err *err)
{
	bool is_one = o->is_json && o->object;
	json_t *list = NULL;
	int rc;

	if (o->is_watch)
		return watch(o, err);
	rc = wb__ctl_fetch_json(wb__ctl_operator(o), is_one ? "/status" : "/objects",
		is_one ? o->object : NULL, &list, err);
	if (rc < 0)
		return rc;
	if (o->is_json)
		wb__ctl_dump(list, o->is_yaml);
	else
		rc = print(json_object_get(list, "items"), o, NULL, err);
	json_decref(list);
	return rc;
}
