/* SPDX-License-Identifier: Apache-2.0 */
/* What readers are shown: objects as JSON, plans, manifests, pages, and traces of transfers. */
#include "base/buf.h"
#include "base/mem.h"
#include "operator-shim/serve/internal.h"
#include "operator-shim/spec/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static json_t *stage_bytes(const struct xfer *x)
{
	return json_pack("{s:I, s:I, s:I}", "receive", (json_int_t)x->bytes[WB_STAGE_RECEIVE],
		"external", (json_int_t)x->bytes[WB_STAGE_EXTERNAL], "internal",
		(json_int_t)x->bytes[WB_STAGE_INTERNAL]);
}

static json_t *xfer_json(const struct xfer *x)
{
	json_t *o = json_pack("{s:I, s:s, s:f, s:I, s:I, s:o}", "transfer", (json_int_t)x->transfer,
		"result", wb_word(&wb_result_words, x->end.result), "averageStallMilliseconds",
		(double)x->end.stall_ns / 1e6, "resentChunks", (json_int_t)x->resent,
		"mismatchedChunks", (json_int_t)x->mismatched, "bytes", stage_bytes(x));

	if (o && x->end.result == WB_RESULT_SUCCEEDED) {
		json_object_set_new(
			o, "endToEndMilliseconds", json_real((double)x->end.ewtt_ns / 1e6));
		json_object_set_new(
			o, "endToEndUncertaintyMilliseconds", json_real((double)x->error_ns / 1e6));
	}
	if (o && x->version >= 0)
		json_object_set_new(o, "version", json_integer(x->version));
	if (o && x->message[0])
		json_object_set_new(o, "message", wb_json_text(x->message));
	if (o && x->mismatch[0])
		json_object_set_new(o, "lastMismatch", wb_json_text(x->mismatch));
	if (o && x->culprit[0])
		json_object_set_new(o, "culprit", wb_json_text(x->culprit));
	return o;
}

static json_t *transfers(const struct object *o)
{
	json_t *list = json_array();

	for (unsigned i = 1; i <= XFERS_MAX; i++) {
		const struct xfer *x = &o->xfer[(o->xfer_at - i) % XFERS_MAX];

		if (x->transfer && x->is_final)
			json_array_append_new(list, xfer_json(x));
	}
	return list;
}

static json_t *hosts(const struct peer *p)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < p->hello.n_hosts; i++)
		json_array_append_new(list, json_string(p->hello.hosts[i]));
	return list;
}

/* The agent's transports, best first. */
static json_t *transports(const struct peer *p)
{
	struct wb_buf b;
	json_t *text;

	wb_buf_init(&b, 4096);
	for (uint32_t i = 0; i < p->hello.n_transports; i++)
		wb_buf_printf(&b, "%s%s", i ? "," : "", p->hello.transports[i]);
	text = json_string(wb_buf_cstr(&b));
	wb_buf_finish(&b);
	return text;
}

static json_t *agents(const struct wb_serve *s, const struct object *o)
{
	json_t *list = json_array();

	for (const struct peer *p = s->peer; p; p = p->next) {
		const struct joined *j = wb__serve_joined(p, o);
		json_t *a;

		if (!wb_session_is_up(&p->session) || !j || !j->is_in)
			continue;
		a = json_pack("{s:s, s:s, s:s, s:i, s:s, s:i}", "name", p->hello.agent, "node",
			p->hello.node, "host", p->hello.host, "port", (int)p->hello.port, "build",
			p->hello.build, "workers", (int)j->workers.n_workers);
		if (a && p->hello.n_transports)
			json_object_set_new(a, "transports", transports(p));
		if (a && j->workers.lane && j->workers.lane[0])
			json_object_set_new(a, "lane", json_string(j->workers.lane));
		if (a && p->hello.n_hosts)
			json_object_set_new(a, "hosts", hosts(p));
		if (a && p->hello.rail_bytes_per_s)
			json_object_set_new(a, "railBytesPerSecond",
				json_integer((json_int_t)p->hello.rail_bytes_per_s));
		if (a)
			json_array_append_new(list, a);
	}
	return list;
}

/* Workers in the order of the active plan, so that it can be explained with names. */
static json_t *members(const struct wb_serve *s, const struct object *o)
{
	json_t *list = json_array();
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_active_members(o->r, &n);

	for (size_t i = 0; i < n; i++) {
		const struct peer *p = wb__serve_peer(s, w[i].agent);
		const struct joined *j = p ? wb__serve_joined(p, o) : NULL;
		json_t *m = json_pack("{s:s, s:s, s:s, s:s}", "name",
			j ? wb__serve_worker_name(&j->workers, w[i].worker) : "", "agent",
			p ? p->hello.agent : w[i].agent_name, "role",
			wb_word(&wb_role_words, w[i].plan.role), "engine", w[i].engine);

		if (m && w[i].is_absent)
			json_object_set_new(m, "absent", json_true());
		if (m)
			json_array_append_new(list, m);
	}
	return list;
}

static json_t *created(const struct wb_serve *s)
{
	time_t t = (time_t)(s->created_wall_ns / WB_NS_PER_S);
	char text[32] = "";
	struct tm tm;

	if (gmtime_r(&t, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_string(text);
}

static json_t *object_json(const struct wb_serve *s, const struct object *o)
{
	return json_pack("{s:s, s:s, s:{s:s, s:s, s:o}, s:o, s:o, s:{s:s, s:o, s:o, s:o}}",
		"apiVersion", "weightbridge.io/v1alpha1", "kind", "WeightTransfer", "metadata",
		"name", o->spec.name, "namespace", o->spec.namespace_, "creationTimestamp",
		created(s), "spec", wb_spec_json(&o->spec), "status", wb_reconcile_status(o->r),
		"detail", "operator", s->name, "agents", agents(s, o), "members", members(s, o),
		"transfers", transfers(o));
}

json_t *wb_serve_object(const struct wb_serve *s, const char *name)
{
	const struct object *o = wb__serve_object(s, name);

	return o ? object_json(s, o) : NULL;
}

static int by_age(const void *a, const void *b)
{
	uint64_t x = (*(const struct object *const *)a)->born;
	uint64_t y = (*(const struct object *const *)b)->born;

	return (x > y) - (x < y);
}

json_t *wb_serve_list(const struct wb_serve *s)
{
	const struct object **list = wb_zalloc(s->n_object + 1, sizeof(*list));
	json_t *items = json_array();

	for (size_t i = 0; list && i < s->n_object; i++)
		list[i] = s->object[i];
	if (list)
		qsort(list, s->n_object, sizeof(*list), by_age);
	for (size_t i = 0; list && i < s->n_object; i++)
		json_array_append_new(items, object_json(s, list[i]));
	wb_free(list);
	return json_pack("{s:s, s:s, s:o}", "apiVersion", "weightbridge.io/v1alpha1", "kind",
		"WeightTransferList", "items", items);
}

/* ---- lent ---- */

static void put(void *blob)
{
	wb__serve_blob_put(blob);
}

static bool lend(struct blob *b, struct wb_lent *out)
{
	if (b)
		*out = (struct wb_lent){b->data, b->bytes, put, wb__serve_blob_get(b)};
	return b != NULL;
}

bool wb_serve_plan(struct wb_serve *s, const char *name, struct wb_lent *out)
{
	const struct object *o = wb__serve_object(s, name);

	return o && lend(o->plan, out);
}

bool wb_serve_manifest(struct wb_serve *s, const char *name, struct wb_lent *out)
{
	const struct object *o = wb__serve_object(s, name);

	return o && lend(o->manifest, out);
}

int wb_serve_lend_page(struct wb_serve *s, const char *name, struct wb_buf *body,
	struct wb_lent *out, struct wb_err *err)
{
	const struct object *o = wb__serve_object(s, name);
	struct blob *b = NULL;
	uint8_t *data;
	size_t bytes;
	int rc = wb_buf_take(body, &data, &bytes);

	if (rc < 0)
		return wb_err_set(err, rc, "%s", wb_strerror(rc));
	b = wb__serve_blob_make(CONTENT_PAGE, (struct wb_digest){0}, data, bytes);
	rc = !o   ? wb_err_set(err, -ENOENT, "there is no such object any more")
	     : !b ? wb_err_set(err, -ENOMEM, "the operator is out of memory")
		  : wb__serve_blob_charge(s, o, b, false, err);
	if (rc == 0)
		(void)lend(b, out);
	wb__serve_blob_put(b);
	return rc;
}

/* ---- trace ---- */

static void put_span(struct wb_buf *b, const struct xfer *x, const struct worker_times *w,
	const char *name, int64_t from_ns, int64_t to_ns)
{
	wb_buf_printf(
		b, "%s\n{\"ph\":\"X\",\"cat\":\"transfer\",\"name\":", b->len > 40 ? "," : "");
	wb_buf_json_str(b, name);
	wb_buf_printf(b,
		",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"transfer\":%llu,"
		"\"version\":%lld,\"uncertainty_us\":%.3f}}",
		(unsigned)(w->agent_instance & 0x7fffffff), w->worker, (double)from_ns / 1e3,
		(double)(to_ns - from_ns) / 1e3, (unsigned long long)x->transfer,
		(long long)x->version, (double)w->error_ns / 1e3);
}

static void put_names(struct wb_buf *b, const struct worker_times *w)
{
	unsigned pid = (unsigned)(w->agent_instance & 0x7fffffff);

	wb_buf_printf(b,
		",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":", pid);
	wb_buf_json_str(b, w->agent);
	wb_buf_printf(b,
		"}},\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":"
		"{\"name\":",
		pid, w->worker);
	wb_buf_json_str(b, w->name);
	wb_buf_printf(b, "}}");
}

static void put_xfer(struct wb_buf *b, const struct xfer *x)
{
	char name[64];

	snprintf(name, sizeof(name), "version %lld", (long long)x->version);
	for (size_t i = 0; i < x->n_worker; i++) {
		const struct worker_times *w = &x->worker[i];

		if (w->resume_ns <= w->stop_ns)
			continue;
		put_span(b, x, w, name, w->stop_ns, w->resume_ns);
		put_names(b, w);
		for (uint32_t k = 0; k < w->n_phase; k++)
			if (w->phase[k].end_ns > w->phase[k].start_ns)
				put_span(b, x, w, w->phase[k].name, w->phase[k].start_ns,
					w->phase[k].end_ns);
	}
}

bool wb_serve_trace(const struct wb_serve *s, const char *name, struct wb_buf *out)
{
	const struct object *o = wb__serve_object(s, name);

	if (!o)
		return false;
	wb_buf_printf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
	for (unsigned i = XFERS_MAX; i > 0; i--)
		put_xfer(out, &o->xfer[(o->xfer_at - i) % XFERS_MAX]);
	wb_buf_printf(out, "\n]}\n");
	return true;
}
