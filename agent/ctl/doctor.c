/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl doctor: what this build can do here, and what objects ask of it. */
#include "ctl/doctor.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/json.h"
#include "ctl/table.h"
#include "operator-shim/spec/transport.h"
#include "weightbridge/version.h"
#include "xport/xport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
	[WB_CTL_YES] = "yes",
	[WB_CTL_NO] = "no",
	[WB_CTL_WORSE] = "worse",
	[WB_CTL_INFO] = "-",
};

void wb__ctl_say(
	struct wb__ctl_sheet *t, const char *name, enum wb__ctl_can can, const char *fmt, ...)
{
	struct wb__ctl_line *l = &t->line[t->n];
	va_list ap;

	if (t->n == WB_CTL_LINES_MAX)
		return;
	t->n++;
	*l = (struct wb__ctl_line){.name = name, .can = can};
	va_start(ap, fmt);
	vsnprintf(l->says, sizeof(l->says), fmt, ap);
	va_end(ap);
}

/* ---- what an object asks for ----------------------------------------------------------------- */

/* Writes the transports that an object allows, as "shm, verbs, tcp", to @out, and returns @out. */
static const char *list_ways(const struct wb_spec *s, char *out, size_t cap)
{
	size_t at = (size_t)snprintf(out, cap, "shm");

	for (uint32_t i = 0; i < s->protocols.n && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, ", %s",
			s->protocols.v[i] == WB_PROTOCOL_TCP ? "tcp" : "verbs");
	return out;
}

static void hold_transport(struct wb__ctl_sheet *t, const struct wb_spec *s)
{
	struct wb_err err = {0};
	const char *field = wb_spec_device_field(s);
	char ways[64];
	int rc = wb_spec_check_devices(s, &err);

	if (rc == 0)
		rc = wb_spec_check_via(
			s, "of this machine", WB_VIA_TCP | (t->has_verbs ? WB_VIA_VERBS : 0), &err);
	if (rc < 0)
		wb__ctl_say(t, "spec.transport", WB_CTL_NO, "%s", err.msg);
	else if (field && !t->has_verbs)
		wb__ctl_say(t, "spec.transport", WB_CTL_WORSE,
			"%s asks for RDMA devices, and TCP takes their place: Degraded says so",
			field);
	else
		wb__ctl_say(t, "spec.transport", WB_CTL_YES,
			"weights go over the first that both ends have of %s",
			list_ways(s, ways, sizeof(ways)));
}

static void hold_encryption(struct wb__ctl_sheet *t, const struct wb_spec *s)
{
	bool is_asked = s->encryption == WB_ENCRYPTION_TLS;

	wb__ctl_say(t, "encryption", is_asked && !t->has_tls ? WB_CTL_NO : WB_CTL_YES, "%s",
		!is_asked    ? "None: weights cross the network in the clear"
		: t->has_tls ? "TLS"
			     : "TLS is asked for, and is not to be had here: see above");
}

static void hold_buffer(struct wb__ctl_sheet *t, const char *name, const char *role, uint64_t bytes)
{
	if (bytes < t->memory_bytes)
		wb__ctl_say(t, name, WB_CTL_YES, "%" PRIu64 " bytes for each %s worker here", bytes,
			role);
	else
		wb__ctl_say(t, name, WB_CTL_NO,
			"%" PRIu64 " bytes for each %s worker, and processes here may have %" PRIu64
			": lower it, or raise the memory limit",
			bytes, role, t->memory_bytes);
}

/* Counts open files as agents do (daemon/limits.h), as if each worker had an agent of its own. */
static void hold_files(struct wb__ctl_sheet *t, const struct wb_spec *s)
{
	uint64_t agents =
		s->trainer_workers + (uint64_t)s->workers_per_engine * WB_MAX(s->engines, 1u);
	uint64_t sockets = wb_xport_sockets(1, "127.0.0.1:1");
	uint64_t files = (agents - 1) * (2 * sockets + 2) * 2 + 256;

	if (files <= t->open_files)
		wb__ctl_say(t, "open-files", WB_CTL_YES,
			"at most %" PRIu64 ", with an agent beside each worker", files);
	else
		wb__ctl_say(t, "open-files", WB_CTL_WORSE,
			"%" PRIu64 " with an agent beside each worker, and the limit is %" PRIu64
			": raise it (ulimit -Hn), or put more workers beside each agent",
			files, t->open_files);
}

/* Compares what an object asks for with what was found; @object: its name, borrowed. */
static void hold(struct wb__ctl_sheet *t, const struct wb_spec *s, const char *object)
{
	size_t from = t->n;

	hold_transport(t, s);
	hold_encryption(t, s);
	hold_buffer(t, "trainer.bufferSize", "trainer", s->trainer_buffer_bytes);
	hold_buffer(t, "rollout.bufferSize", "rollout", s->rollout_buffer_bytes);
	hold_files(t, s);
	for (size_t i = from; i < t->n; i++)
		t->line[i].object = object;
}

/* ---- which objects --------------------------------------------------------------------------- */

/* Reads an object that the operator shows as if it were in a file: JSON is YAML. */
static int spec_of(const json_t *item, struct wb_spec **out, size_t *n, struct wb_err *err)
{
	json_t *doc = json_pack("{s:s, s:s, s:O?, s:O?}", "apiVersion", "weightbridge.io/v1alpha1",
		"kind", "WeightTransfer", "metadata", json_object_get(item, "metadata"), "spec",
		json_object_get(item, "spec"));
	char *text;
	int rc;

	if (doc)
		json_object_del(json_object_get(doc, "metadata"), "creationTimestamp");
	text = doc ? json_dumps(doc, 0) : NULL;
	rc = text ? wb_spec_load("the operator", text, strlen(text), out, n, err)
		  : wb_err_set(err, -ENOMEM, "no memory for an object");
	free(text);
	json_decref(doc);
	return rc;
}

static int spec_from_operator(
	const struct wb__ctl_opts *o, struct wb_spec **out, size_t *n, struct wb_err *err)
{
	json_t *all = NULL, *item;
	char key[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2], name[256], ns[256];
	size_t i;
	int rc = wb__ctl_fetch_json(wb__ctl_operator(o), "/objects", NULL, &all, err);

	if (rc < 0)
		return rc;
	rc = wb_err_set(err, -ENOENT, "the operator has no object %s", o->object);
	json_array_foreach(json_object_get(all, "items"), i, item)
	{
		snprintf(key, sizeof(key), "%s/%s",
			wb__ctl_text(item, "metadata.namespace", ns, sizeof(ns)),
			wb__ctl_text(item, "metadata.name", name, sizeof(name)));
		if (!wb__ctl_is_meant(key, o->object))
			continue;
		rc = spec_of(item, out, n, err);
		break;
	}
	json_decref(all);
	return rc;
}

/* None, unless a file or an object is named. */
static int specs(const struct wb__ctl_opts *o, struct wb_spec **out, size_t *n, struct wb_err *err)
{
	*out = NULL;
	*n = 0;
	if (o->file)
		return wb_spec_load_file(o->file, out, n, err);
	return o->object ? spec_from_operator(o, out, n, err) : 0;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print_json(const struct wb__ctl_sheet *t, bool is_ok, bool is_yaml)
{
	json_t *all = json_pack("{s:s, s:b, s:[]}", "version", WB_VERSION, "ok", is_ok, "checks");

	for (size_t i = 0; i < t->n; i++) {
		const struct wb__ctl_line *l = &t->line[i];
		json_t *o = json_pack("{s:s, s:s, s:s}", "name", l->name, "can",
			l->can == WB_CTL_INFO ? "info" : words[l->can], "says", l->says);

		if (l->object)
			json_object_set_new(o, "object", json_string(l->object));
		json_array_append_new(json_object_get(all, "checks"), o);
	}
	wb__ctl_dump(all, is_yaml);
	json_decref(all);
}

static int print_text(const struct wb__ctl_sheet *t, struct wb_err *err)
{
	const char *before = NULL;
	struct wb__ctl_table table;
	int rc = 0;

	for (size_t i = 0; i < t->n && rc == 0;) {
		before = t->line[i].object;
		if (before)
			printf("\n%s asks for:\n", before);
		else
			printf("wbctl %s, on this machine:\n", WB_VERSION);
		wb__ctl_table_init(&table, 3);
		for (; i < t->n && t->line[i].object == before; i++) {
			wb__ctl_cell(&table, "%s", t->line[i].name);
			wb__ctl_cell(&table, "%s", words[t->line[i].can]);
			wb__ctl_cell(&table, "%s", t->line[i].says);
		}
		rc = wb__ctl_print(&table, "  ", stdout);
		wb__ctl_table_finish(&table);
	}
	return rc < 0 ? wb_err_set(err, rc, "no memory") : 0;
}

/* The first line that makes the command fail: tcp, without which nothing moves, or something that
 * an object asks for. */
static const struct wb__ctl_line *first_missing(const struct wb__ctl_sheet *t)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->line[i].can == WB_CTL_NO &&
			(t->line[i].object || !strcmp(t->line[i].name, "tcp")))
			return &t->line[i];
	return NULL;
}

int wb__ctl_doctor(const struct wb__ctl_opts *o, struct wb_err *err)
{
	const struct wb__ctl_line *missing;
	struct wb__ctl_sheet *t = wb_zalloc(1, sizeof(*t));
	struct wb_spec *s = NULL;
	size_t n = 0;
	int rc = t ? specs(o, &s, &n, err) : wb_err_set(err, -ENOMEM, "no memory");

	if (rc < 0) {
		wb_free(t);
		return rc;
	}
	wb__ctl_look(t);
	for (size_t i = 0; i < n; i++)
		hold(t, &s[i], s[i].name);
	missing = first_missing(t);
	if (o->is_json)
		print_json(t, !missing, o->is_yaml);
	else
		rc = print_text(t, err);
	if (rc == 0 && missing)
		rc = wb_err_set(err, -ENODEV, "%s%s%s cannot work here: %s",
			missing->object ? missing->object : "", missing->object ? ": " : "",
			missing->name, missing->says);
	wb_free(s);
	wb_free(t);
	return rc;
}
