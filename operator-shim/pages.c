/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/pages.h"

#include "base/base.h"
#include "net/loop.h"
#include "operator-shim/cluster.h"
#include "operator-shim/serve/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*page_fn)(struct wb__pages *p, const char *object, struct wb_http_reply *r);

static int metrics(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	struct wb_loop_lag lag;

	(void)object;
	wb_loop_lag(p->loop, &lag);
	wb_metric_set(wb_serve_own_metrics(p->serve), WB_SM_LOOP_LAG, NULL,
		(double)lag.busy_max_ns / 1e9);
	r->content_type = "text/plain; version=0.0.4; charset=utf-8";
	wb_serve_metrics(p->serve, &r->body);
	return 0;
}

/* The loop answers, so it turns. */
static int healthz(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	(void)p;
	(void)object;
	wb_buf_printf(&r->body, "ok\n");
	return 0;
}

static int readyz(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	const char *why = p->is_ready ? NULL : "stopping";

	(void)object;
	/* A standby is ready too: it sends agents to the leader. */
	if (!why && p->cluster)
		why = wb__cluster_why_unready(p->cluster);
	r->status = why ? 503 : 200;
	wb_buf_printf(&r->body, "%s\n", why ? why : "ok");
	return 0;
}

static int put_json(json_t *v, struct wb_http_reply *r)
{
	char *text;

	if (!v)
		return -ENOENT;
	text = json_dumps(v, JSON_INDENT(1));
	json_decref(v);
	if (!text)
		return -ENOMEM;
	r->content_type = "application/json";
	wb_buf_printf(&r->body, "%s\n", text);
	free(text);
	return 0;
}

static int status(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	return put_json(wb_serve_object(p->serve, object), r);
}

static int objects(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	(void)object;
	return put_json(wb_serve_list(p->serve), r);
}

static int put_bytes(const void *data, size_t bytes, struct wb_http_reply *r)
{
	if (!data)
		return -ENOENT;
	r->content_type = "application/octet-stream";
	wb_buf_put(&r->body, data, bytes);
	return r->body.rc;
}

static int plan(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	size_t bytes = 0;
	const void *data = wb_serve_plan(p->serve, object, &bytes);

	return put_bytes(data, bytes, r);
}

static int manifest(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	size_t bytes = 0;
	const void *data = wb_serve_manifest(p->serve, object, &bytes);

	return put_bytes(data, bytes, r);
}

static int trace(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	r->content_type = "application/json";
	return wb_serve_trace(p->serve, object, &r->body) ? 0 : -ENOENT;
}

static const struct {
	const char *path;
	page_fn fn;
	bool is_leaders; /* a standby knows nothing of it */
} pages[] = {
	{"/metrics", metrics, false},
	{"/healthz", healthz, false},
	{"/readyz", readyz, false},
	{"/status", status, true},
	{"/objects", objects, true},
	{"/plan", plan, true},
	{"/manifest", manifest, true},
	{"/trace", trace, true},
};

static void send_to_leader(
	const struct wb__pages *p, const char *path, const char *object, struct wb_http_reply *r)
{
	const char *host = wb_serve_leader(p->serve);
	bool is_v6 = strchr(host, ':') != NULL;

	r->status = 307;
	snprintf(r->location, sizeof(r->location), "http://%s%s%s:%u%s%s%s", is_v6 ? "[" : "", host,
		is_v6 ? "]" : "", p->port, path, object ? "?object=" : "", object ? object : "");
	wb_buf_printf(&r->body, "the leader has it: %s\n", r->location);
}

/* It becomes part of a header. */
static bool is_plain(const char *object)
{
	return !object ||
	       (strlen(object) < 400 &&
		       !object[strspn(object, "abcdefghijklmnopqrstuvwxyz0123456789.-/")]);
}

int wb__pages_answer(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *object = wb_http_query(rq, "object");
	struct wb__pages *p = cookie;

	for (size_t i = 0; i < WB_ARRAY_SIZE(pages); i++) {
		if (strcmp(path, pages[i].path) != 0)
			continue;
		if (!pages[i].is_leaders || !*wb_serve_leader(p->serve) || !is_plain(object))
			return pages[i].fn(p, object, r);
		send_to_leader(p, path, object, r);
		return 0;
	}
	return -ENOENT;
}

int wb__pages_probe(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	(void)rq;
	if (!strcmp(path, "/healthz"))
		return healthz(cookie, NULL, r);
	return !strcmp(path, "/readyz") ? readyz(cookie, NULL, r) : -ENOENT;
}
