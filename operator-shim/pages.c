/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/pages.h"

#include "base/base.h"
#include "base/clock.h"
#include "net/loop.h"
#include "operator-shim/cluster.h"
#include "operator-shim/readers.h"
#include "operator-shim/serve/metrics.h"
#include "page/page.h"

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

/* That the loop answers is the proof that it runs. */
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
	json_t *one = object ? wb_serve_object(p->serve, object) : NULL;

	if (object && !one)
		return -ENOENT;
	return put_json(
		one ? json_pack("{s:s, s:s, s:[o]}", "apiVersion", "weightbridge.io/v1alpha1",
			      "kind", "WeightTransferList", "items", one)
		    : wb_serve_list(p->serve),
		r);
}

static int plan(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	r->content_type = "application/octet-stream";
	return wb_serve_plan(p->serve, object, &r->lent) ? 0 : -ENOENT;
}

static int manifest(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	r->content_type = "application/octet-stream";
	return wb_serve_manifest(p->serve, object, &r->lent) ? 0 : -ENOENT;
}

static int picture(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	(void)p;
	(void)object;
	r->content_type = "text/html; charset=utf-8";
	wb_page_put(NULL, NULL, 0, &r->body);
	return r->body.rc;
}

static int trace(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	r->content_type = "application/json";
	return wb_serve_trace(p->serve, object, &r->body) ? 0 : -ENOENT;
}

enum reader { EVERYBODY, METRICS, OF_THE_OBJECT };

struct page {
	const char *path;
	page_fn fn;
	enum reader reader;
	bool is_leaders; /* only the leader knows the content */
};

static const struct page pages[] = {
	{"/", picture, OF_THE_OBJECT, false},
	{"/metrics", metrics, METRICS, false},
	{"/healthz", healthz, EVERYBODY, false},
	{"/readyz", readyz, EVERYBODY, false},
	{"/status", status, OF_THE_OBJECT, true},
	{"/objects", objects, OF_THE_OBJECT, true},
	{"/plan", plan, OF_THE_OBJECT, true},
	{"/manifest", manifest, OF_THE_OBJECT, true},
	{"/trace", trace, OF_THE_OBJECT, true},
};

/* ---- who may read ---- */

static int refuse(struct wb_http_reply *r, unsigned status, const char *path, const char *why)
{
	r->status = status;
	wb_buf_printf(&r->body, "%s: %s\n", path, why);
	return -EACCES;
}

static int refuse_stranger(const struct wb__pages *p, const struct page *page, bool has_token,
	const char *object, struct wb_http_reply *r)
{
	if (page->reader == METRICS)
		return refuse(r, 401, page->path,
			"show a token of who may get the path /metrics (Authorization: Bearer)");
	if (!p->readers)
		return refuse(r, 401, page->path,
			"it tells of objects, and this operator cannot ask whose token it is: ask "
			"from its own machine, at 127.0.0.1");
	if (has_token && !object)
		return refuse(r, 401, page->path,
			"a token is for one object: name it (?object=NAMESPACE/NAME)");
	return refuse(r, 401, page->path,
		"it tells of objects: show a token of the object's namespace (kubectl create token "
		"ACCOUNT -n NAMESPACE --audience weightbridge.io/NAMESPACE/NAME; wbctl "
		"--token-file), or ask within (kubectl exec deploy/weightbridge-operator -- "
		"wbctl)");
}

static unsigned status_of(int rc)
{
	return rc == -EACCES ? 401 : rc == -EPERM ? 403 : 503;
}

static void on_reader(void *cookie, int rc, const char *sentence)
{
	wb_http_go_on(cookie, rc, sentence);
}

static int find_out(
	struct wb__pages *p, const char *token, const char *object, struct wb_http_request *rq)
{
	char turn[1 + WB_HTTP_SOURCE_TEXT] = "@"; /* so it is no namespace */
	struct wb__reader who = {
		.token = token, .object = object, .path = "/metrics", .turn = turn};
	struct wb_http_held *held = wb_http_hold(rq);

	wb_http_source(rq, turn + 1);
	if (!held)
		return -ENOMEM;
	wb__readers_ask(p->readers, &who, on_reader, held);
	return -EINPROGRESS;
}

/* 0: yes; -EACCES: @r says why not; -EINPROGRESS: it is being found out. */
static int may_read(struct wb__pages *p, const struct page *page, const char *object,
	struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *token = wb_http_bearer(rq), *sentence;
	bool is_object = page->reader == OF_THE_OBJECT;
	int rc;

	if (page->reader == EVERYBODY || wb_http_is_local(rq) ||
		(!is_object && !p->asks_for_metrics))
		return 0;
	if (wb_http_outcome(rq, &rc, &sentence))
		return rc == 0 ? 0 : refuse(r, status_of(rc), page->path, sentence);
	if (is_object && wb_ticket_holds(&p->ticket, page->path, object,
				 wb_http_query(rq, "ticket"), wb_wall_ns()))
		return 0;
	if (!token || !*token || !p->readers || (is_object && (!object || !strchr(object, '/'))))
		return refuse_stranger(p, page, token && *token, object, r);
	return find_out(p, token, is_object ? object : NULL, rq);
}

/* ---- sending on ---- */

static void send_to_leader(const struct wb__pages *p, const char *path, const char *object,
	struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *host = wb_serve_leader(p->serve);
	bool is_v6 = strchr(host, ':') != NULL;
	char ticket[WB_TICKET_TEXT] = "";
	int n;

	if (wb_http_is_local(rq))
		wb_ticket_make(&p->ticket, path, object, wb_wall_ns(), ticket);
	r->status = 307;
	n = snprintf(r->location, sizeof(r->location), "http://%s%s%s:%u%s", is_v6 ? "[" : "", host,
		is_v6 ? "]" : "", p->port, path);
	if (n > 0 && (object || *ticket))
		snprintf(r->location + n, sizeof(r->location) - (size_t)n, "?%s%s%s%s%s",
			object ? "object=" : "", object ? object : "", object && *ticket ? "&" : "",
			*ticket ? "ticket=" : "", ticket);
	wb_buf_printf(&r->body, "the leader has it, at %s\n", host);
}

/* @object becomes part of a header. */
static bool is_plain(const char *object)
{
	return !object ||
	       (strlen(object) < 330 &&
		       !object[strspn(object, "abcdefghijklmnopqrstuvwxyz0123456789.-/")]);
}

/* A slow reader may hold a page for a minute, so its bytes are charged to the object. */
static int charge(struct wb__pages *p, const char *object, struct wb_http_reply *r)
{
	struct wb_err err = {0};
	int rc;

	if (r->lent.put)
		return 0;
	rc = wb_serve_lend_page(p->serve, object, &r->body, &r->lent, &err);
	if (rc != -EDQUOT)
		return rc;
	wb_buf_init(&r->body, WB_HTTP_BODY_MAX);
	(void)refuse(r, 503, object, err.msg);
	return r->body.rc;
}

static int answer(struct wb__pages *p, const struct page *page, const char *object,
	const struct wb_http_request *rq, struct wb_http_reply *r)
{
	int rc = page->fn(p, object, r);

	if (rc < 0 || page->reader != OF_THE_OBJECT || !object || wb_http_is_local(rq))
		return rc;
	return charge(p, object, r);
}

int wb__pages_answer(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *object = wb_http_query(rq, "object");
	struct wb__pages *p = cookie;
	int rc;

	for (size_t i = 0; i < WB_ARRAY_SIZE(pages); i++) {
		if (strcmp(path, pages[i].path) != 0)
			continue;
		if (pages[i].is_leaders && *wb_serve_leader(p->serve) && is_plain(object)) {
			send_to_leader(p, path, object, rq, r);
			return 0;
		}
		rc = may_read(p, &pages[i], object, rq, r);
		return rc == -EACCES ? r->body.rc : rc ? rc : answer(p, &pages[i], object, rq, r);
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
