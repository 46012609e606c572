/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl plan explain and wbctl trace. */
#include "planner/plan.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/html.h"
#include "ctl/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int read_file(const char *path, struct wb_buf *out, struct wb_err *err)
{
	size_t bytes = 0;
	uint8_t *data;
	int rc = wb_file_read(path, out->max, &data, &bytes);

	if (rc < 0)
		return wb_err_set(err, rc, "read %s: %s%s", path, wb_strerror(rc),
			rc == -ENOENT ? " (an object is named by --object)" : "");
	wb_buf_put(out, data, bytes);
	wb_free(data);
	return out->rc ? wb_err_set(err, out->rc, "read %s: %s", path, wb_strerror(out->rc)) : 0;
}

struct sources {
	struct wb_buf plan, manifest;
	json_t *object; /* NULL when the plan came from a file */
};

static int read_sources(const struct wb__ctl_opts *o, struct sources *s, struct wb_err *err)
{
	const char *addr = wb__ctl_operator(o);
	int rc;

	if (o->file) {
		rc = read_file(o->file, &s->plan, err);
		if (rc == 0 && o->manifest)
			rc = read_file(o->manifest, &s->manifest, err);
		return rc;
	}
	rc = wb__ctl_fetch(addr, "/plan", o->object, &s->plan, err);
	if (rc == 0)
		rc = wb__ctl_fetch(addr, "/manifest", o->object, &s->manifest, err);
	if (rc == 0)
		rc = wb__ctl_fetch_json(addr, "/status", o->object, &s->object, err);
	return rc;
}

/* Names of the plan's workers as the operator knows them; NULL = numbers are shown. */
static const char **worker_names(const struct sources *s, const struct wb_plan *p)
{
	const json_t *m = wb__ctl_at(s->object, "detail.members");
	const char **name;

	if (json_array_size(m) != p->n_worker)
		return NULL;
	name = wb_zalloc(p->n_worker, sizeof(*name));
	for (uint32_t i = 0; name && i < p->n_worker; i++)
		name[i] = json_string_value(json_object_get(json_array_get(m, i), "name"));
	return name;
}

static int explain(const struct wb__ctl_opts *o, const struct sources *s, const struct wb_plan *p,
	const struct wb_manifest *m, struct wb_err *err)
{
	const char **name = worker_names(s, p);
	struct wb_page_part part = {.name = "plan"};
	struct wb_buf text;
	int rc;

	wb_buf_init(&text, WB_CTL_PAGE_MAX);
	rc = wb_plan_explain(p, m, name, o->is_json || o->html, &text);
	if (rc == 0)
		rc = text.rc;
	part.json = wb_buf_cstr(&text);
	part.bytes = text.len;
	if (rc < 0)
		wb_err_set(err, rc, "explain the plan: %s", wb_strerror(rc));
	else if (o->html)
		rc = wb__ctl_html(o->html, o->file ? o->file : "The active plan", &part, 1, err);
	else
		fwrite(text.data, 1, text.len, stdout);
	wb_buf_finish(&text);
	wb_free(name);
	return rc;
}

static int decode(const struct wb__ctl_opts *o, const struct sources *s, struct wb_plan **p,
	struct wb_manifest **m, struct wb_err *err)
{
	int rc = wb_plan_decode(s->plan.data, s->plan.len, p, err);

	if (rc < 0)
		return wb_err_wrap(err, rc, "%s", o->file ? o->file : wb__ctl_operator(o));
	if (!s->manifest.len)
		return 0;
	rc = wb_manifest_decode(s->manifest.data, s->manifest.len, m, err);
	return rc < 0 ? wb_err_wrap(err, rc, "%s", o->file ? o->manifest : wb__ctl_operator(o)) : 0;
}

int wb__ctl_plan_explain(const struct wb__ctl_opts *o, struct wb_err *err)
{
	struct wb_manifest *m = NULL;
	struct wb_plan *p = NULL;
	struct sources s = {0};
	int rc;

	wb_buf_init(&s.plan, WB_CTL_PAGE_MAX);
	wb_buf_init(&s.manifest, WB_CTL_PAGE_MAX);
	rc = read_sources(o, &s, err);
	if (rc == 0)
		rc = decode(o, &s, &p, &m, err);
	if (rc == 0 && m && !wb_digest_eq(m->digest, p->manifest))
		rc = wb_err_set(err, -EINVAL, "the manifest is not the one of this plan");
	if (rc == 0)
		rc = explain(o, &s, p, m, err);
	wb_plan_destroy(p);
	wb_manifest_destroy(m);
	json_decref(s.object);
	wb_buf_finish(&s.plan);
	wb_buf_finish(&s.manifest);
	return rc;
}

int wb__ctl_trace(const struct wb__ctl_opts *o, struct wb_err *err)
{
	char text[32];
	const char *agent = wb__ctl_agent(o, text);
	struct wb_page_part part;
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, WB_CTL_PAGE_MAX);
	rc = wb__ctl_fetch(
		agent ? agent : wb__ctl_operator(o), "/trace", agent ? NULL : o->object, &b, err);
	part = (struct wb_page_part){"trace", wb_buf_cstr(&b), b.len};
	if (rc == 0 && o->html)
		rc = wb__ctl_html(o->html, "Transfers", &part, 1, err);
	else if (rc == 0)
		fwrite(b.data, 1, b.len, stdout);
	if (rc == 0 && !strstr(wb_buf_cstr(&b), "\"ph\""))
		fprintf(stderr, "wbctl: the trace is empty: there was no transfer yet\n");
	wb_buf_finish(&b);
	return rc;
}
