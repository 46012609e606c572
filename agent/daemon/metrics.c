/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/gate.h"
#include "daemon/measure.h"
#include "daemon/oplink.h"
#include "daemon/peers.h"
#include "daemon/status.h"
#include "daemon/trace.h"
#include "net/http.h"
#include "net/loop.h"
#include "weightbridge/version.h"
#include "xport/xport.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOD "http"

enum {
	M_BUILD,
	M_WORKERS,
	M_PEERS,
	M_OPERATOR,
	M_RECONNECTS,
	M_TRANSFERS,
	M_UPDATES,
	M_TRANSFER_SECONDS,
	M_UPDATE_SECONDS,
	M_STALL,
	M_STAGE_BYTES,
	M_BYTES,
	M_CHUNKS,
	M_CONTROL_BYTES,
	M_CONTROL_FRAMES,
	M_BEATS,
	M_THROTTLED,
	M_SLEEPS,
	M_BUFFER,
	M_LOOP_LAG,
	M_LOOP_BUSY,
	M_CLOCK_OFFSET,
	M_CLOCK_ERROR,
	M_MISMATCH,
	M_VIOLATIONS,
};

static const struct wb_metric table[] = {
	[M_BUILD] = {"wb_build_info", "Version of this program", WB_METRIC_GAUGE, {"version"}, 0,
		0},
	[M_WORKERS] = {"wb_workers", "Workers attached", WB_METRIC_GAUGE, {"role"}, 0, 0},
	[M_PEERS] = {"wb_peers", "Control channels to other agents", WB_METRIC_GAUGE, {NULL}, 0, 0},
	[M_OPERATOR] = {"wb_operator_up", "1 while the operator is connected", WB_METRIC_GAUGE,
		{NULL}, 0, 0},
	[M_RECONNECTS] = {"wb_operator_reconnects_total",
		"Connections to the operator after the first", WB_METRIC_COUNTER, {NULL}, 0, 0},
	[M_TRANSFERS] = {"wb_transfers_total", "Transfers and feeds led here, by result",
		WB_METRIC_COUNTER, {"kind", "result"}, 0, 0},
	[M_UPDATES] = {"wb_engine_updates_total", "Updates of engines led here, by state",
		WB_METRIC_COUNTER, {"state"}, 0, 0},
	[M_TRANSFER_SECONDS] = {"wb_transfer_seconds", "Duration of transfers led here",
		WB_METRIC_HISTOGRAM, {NULL}, -6, 8},
	[M_UPDATE_SECONDS] = {"wb_engine_update_seconds", "Duration of updates of engines led here",
		WB_METRIC_HISTOGRAM, {NULL}, -6, 8},
	[M_STALL] = {"wb_stall_seconds", "Mean stall of the workers of an update",
		WB_METRIC_HISTOGRAM, {NULL}, -8, 6},
	[M_STAGE_BYTES] = {"wb_stage_bytes_total", "Verified bytes of transfers led here, by stage",
		WB_METRIC_COUNTER, {"stage"}, 0, 0},
	[M_BYTES] = {"wb_bytes_total", "Payload bytes, by rail and direction", WB_METRIC_COUNTER,
		{"rail", "dir"}, 0, 0},
	[M_CHUNKS] = {"wb_chunks_total", "Chunks, by rail and direction", WB_METRIC_COUNTER,
		{"rail", "dir"}, 0, 0},
	[M_CONTROL_BYTES] = {"wb_control_bytes_total",
		"Bytes of control messages but heartbeats, by the other end and direction",
		WB_METRIC_COUNTER, {"channel", "dir"}, 0, 0},
	[M_CONTROL_FRAMES] = {"wb_control_messages_total",
		"Control messages but heartbeats, by the other end and direction",
		WB_METRIC_COUNTER, {"channel", "dir"}, 0, 0},
	[M_BEATS] = {"wb_heartbeat_bytes_total",
		"Bytes of heartbeats of both directions, by the other end", WB_METRIC_COUNTER,
		{"channel"}, 0, 0},
	[M_THROTTLED] = {"wb_rail_throttled_seconds_total",
		"Time that work waited for the rate cap", WB_METRIC_COUNTER, {"rail"}, 0, 0},
	[M_SLEEPS] = {"wb_rail_sleeps_total", "Times a rail's thread blocked", WB_METRIC_COUNTER,
		{"rail"}, 0, 0},
	[M_BUFFER] = {"wb_buffer_bytes", "Memory for slots", WB_METRIC_GAUGE, {NULL}, 0, 0},
	[M_LOOP_LAG] = {"wb_loop_lag_seconds", "Longest round of the loop since the last scrape",
		WB_METRIC_GAUGE, {NULL}, 0, 0},
	[M_LOOP_BUSY] = {"wb_loop_busy_seconds_total", "Time the loop worked", WB_METRIC_COUNTER,
		{NULL}, 0, 0},
	[M_CLOCK_OFFSET] = {"wb_clock_offset_seconds", "This machine's clock less the operator's",
		WB_METRIC_GAUGE, {NULL}, 0, 0},
	[M_CLOCK_ERROR] = {"wb_clock_error_seconds", "Greatest error of the offset",
		WB_METRIC_GAUGE, {NULL}, 0, 0},
	[M_MISMATCH] = {"wb_checksum_mismatches_total",
		"Chunks without the trainer's sum, asked for again, by where that was seen",
		WB_METRIC_COUNTER, {"place"}, 0, 0},
	[M_VIOLATIONS] = {"wb_protocol_violations_total",
		"Messages of other agents that were not theirs to say, and were not heard",
		WB_METRIC_COUNTER, {NULL}, 0, 0},
};

struct wb__http {
	struct wb__agent *a;
	struct wb_metrics *m;
	struct wb_http *server; /* NULL = no address was given */
	struct wb_http *local; /* on a unix socket: probes, and wbctl of this pod */
};

uint16_t wb__http_port(const struct wb__http *h)
{
	return h && h->server ? wb_http_port(h->server) : 0;
}

void wb__metrics_mismatch(struct wb__http *h, const struct wb_transfer_mismatch *m)
{
	if (h)
		wb_metric_add(h->m, M_MISMATCH, WB_LABELS(m->place), m->n);
}

void wb__metrics_mismatches_json(const struct wb__http *h, struct wb_buf *out)
{
	wb_buf_u8(out, '{');
	for (int p = 0; p < WB_FLOW_PLACES; p++) {
		const char *name = wb_flow_place_name((enum wb_flow_place)p);

		wb_buf_printf(out, "%s\"%s\":%.0f", p ? "," : "", name,
			wb_metric_get(h->m, M_MISMATCH, WB_LABELS(name)));
	}
	wb_buf_u8(out, '}');
}

static const char *const stage_names[WB_STAGES] = {"receive", "external", "internal"};

void wb__metrics_report(struct wb__http *h, const struct wb_transfer_report *r)
{
	double s = r->end_wall_ns > r->begin_wall_ns
			   ? (double)(r->end_wall_ns - r->begin_wall_ns) / 1e9
			   : 0;

	if (!h)
		return;
	if (r->kind == WB_REPORT_ENGINE) {
		wb_metric_add(h->m, M_UPDATES,
			WB_LABELS(wb_word(&wb_engine_state_words, r->state[0])), 1);
		wb_metric_observe(h->m, M_UPDATE_SECONDS, NULL, s);
		wb_metric_observe(h->m, M_STALL, NULL, (double)r->stall_ns / 1e9);
		return;
	}
	wb_metric_add(h->m, M_TRANSFERS,
		WB_LABELS(r->is_feed ? "feed" : "transfer", wb_word(&wb_result_words, r->result)),
		1);
	wb_metric_observe(h->m, M_TRANSFER_SECONDS, NULL, s);
	for (int i = 0; i < WB_STAGES; i++)
		wb_metric_add(h->m, M_STAGE_BYTES, WB_LABELS(stage_names[i]), (double)r->bytes[i]);
}

static void sample_rails(struct wb__http *h)
{
	for (uint32_t i = 0; i < h->a->rails.n; i++) {
		struct wb_xport_stats st;
		char rail[12];

		if (wb_xport_rail_stats(h->a->xport, i, &st) < 0)
			return;
		snprintf(rail, sizeof(rail), "%u", i);
		wb_metric_set(h->m, M_BYTES, WB_LABELS(rail, "rx"), (double)st.rx_bytes);
		wb_metric_set(h->m, M_BYTES, WB_LABELS(rail, "tx"), (double)st.tx_bytes);
		wb_metric_set(h->m, M_CHUNKS, WB_LABELS(rail, "rx"), (double)st.rx_chunks);
		wb_metric_set(h->m, M_CHUNKS, WB_LABELS(rail, "tx"), (double)st.tx_chunks);
		wb_metric_set(h->m, M_THROTTLED, WB_LABELS(rail), (double)st.throttled_ns / 1e9);
		wb_metric_set(h->m, M_SLEEPS, WB_LABELS(rail), (double)st.sleeps);
	}
}

static void sample_control(struct wb__http *h)
{
	static const char *const name[] = {
		[WB__CONTROL_OPERATOR] = "operator",
		[WB__CONTROL_AGENT] = "agent",
		[WB__CONTROL_WORKER] = "worker",
	};

	for (int i = 0; i < WB__CONTROL_KINDS; i++) {
		const struct wb_session_counts *c = &h->a->control[i];

		wb_metric_set(h->m, M_CONTROL_BYTES, WB_LABELS(name[i], "tx"), (double)c->tx.bytes);
		wb_metric_set(h->m, M_CONTROL_BYTES, WB_LABELS(name[i], "rx"), (double)c->rx.bytes);
		wb_metric_set(
			h->m, M_CONTROL_FRAMES, WB_LABELS(name[i], "tx"), (double)c->tx.frames);
		wb_metric_set(
			h->m, M_CONTROL_FRAMES, WB_LABELS(name[i], "rx"), (double)c->rx.frames);
		wb_metric_set(h->m, M_BEATS, WB_LABELS(name[i]), (double)c->beat.bytes);
	}
}

static void sample(struct wb__http *h)
{
	struct wb__agent *a = h->a;
	struct wb__oplink_state op;
	struct wb_loop_lag lag;
	double n[WB_ROLE_ROLLOUT + 1] = {0};

	for (struct wb__worker *w = wb__apps_first(a->apps); w; w = w->next)
		n[w->role] += !w->is_leaving;
	for (uint32_t r = WB_ROLE_TRAINER; r <= WB_ROLE_ROLLOUT; r++)
		wb_metric_set(h->m, M_WORKERS, WB_LABELS(wb_word(&wb_role_words, r)), n[r]);
	wb_metric_set(h->m, M_PEERS, NULL, wb__peers_n_up(a->peers));
	wb__oplink_all(a, &op);
	wb_metric_set(h->m, M_OPERATOR, NULL, op.is_up);
	wb_metric_set(h->m, M_RECONNECTS, NULL, (double)op.reconnects);
	wb_metric_set(h->m, M_CLOCK_OFFSET, NULL, (double)op.clock_offset_ns / 1e9);
	wb_metric_set(h->m, M_CLOCK_ERROR, NULL, (double)op.clock_error_ns / 1e9);
	wb_metric_set(h->m, M_BUFFER, NULL, (double)wb__env_arena_used(a->env));
	wb_metric_set(h->m, M_VIOLATIONS, NULL, (double)wb_transfer_violations(a->core));
	wb_loop_lag(a->loop, &lag);
	wb_metric_set(h->m, M_LOOP_LAG, NULL, (double)lag.busy_max_ns / 1e9);
	wb_metric_set(h->m, M_LOOP_BUSY, NULL, (double)lag.busy_ns / 1e9);
	sample_rails(h);
	sample_control(h);
}

static void ready(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	struct wb__oplink_state op;

	(void)rq;
	wb__oplink_all(h->a, &op);
	if (wb__agent_is_draining(h->a))
		wb_buf_printf(&r->body, "not ready: the agent is stopping\n");
	else if (!op.term)
		wb_buf_printf(&r->body, "not ready: no plan yet%s%s\n", op.trouble[0] ? ": " : "",
			op.trouble);
	else
		wb_buf_printf(&r->body, "ready\n");
	r->status = op.term && !wb__agent_is_draining(h->a) ? 200 : 503;
}

/* For the pod's readiness: an engine with a mix of versions must not be asked anything. */
static void serving(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *engine = wb_transfer_torn(h->a->core);

	(void)rq;
	if (engine) {
		r->status = 503;
		wb_buf_printf(
			&r->body, "engine %s is Torn: its weights are a mix of versions\n", engine);
	} else {
		wb_buf_printf(&r->body, "ok\n");
	}
}

static void metrics_page(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	(void)rq;
	sample(h);
	r->content_type = "text/plain; version=0.0.4; charset=utf-8";
	wb_metrics_write(h->m, &r->body);
}

static void healthz(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	(void)h;
	(void)rq;
	wb_buf_printf(&r->body, "ok\n"); /* the loop turns, or nobody would answer */
}

static uint64_t number_of(struct wb_http_request *rq, const char *name)
{
	const char *v = wb_http_query(rq, name);

	return v ? strtoull(v, NULL, 10) : 0;
}

static void status(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	(void)rq;
	r->content_type = "application/json";
	wb__status_json(h->a, &r->body);
}

static void digest(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	r->content_type = "application/json";
	wb_transfer_digest_json(h->a->core, number_of(rq, "number"), &r->body);
	wb__env_kick(h->a->env);
}

static void trace(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	r->content_type = "application/json";
	wb__trace_json(h->a->trace, number_of(rq, "transfer"), &r->body);
}

/* So that wbctl verify and bench, here, may ask the other agents of an object. */
static void tickets(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	if (wb_http_query(rq, "bench"))
		wb__measure_ticket(h->a->measure, rq, r);
	else
		wb__peers_tickets(h->a->peers, "/digest", &r->body);
}

static void bench(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	(void)rq;
	wb__measure_answer(h->a->measure, r);
}

/* BY_TICKET: a ticket is needed even from 127.0.0.1 and the socket, since it says what is to be
 * done. */
enum reader { EVERYBODY, METRICS, OF_THE_POD, BY_TICKET };

static const struct page {
	const char *path;
	void (*fn)(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r);
	enum reader reader; /* only pages OF_THE_POD say anything of objects */
} pages[] = {
	{"/metrics", metrics_page, METRICS},
	{"/healthz", healthz, EVERYBODY},
	{"/readyz", ready, EVERYBODY},
	{"/serving", serving, EVERYBODY},
	{"/status", status, OF_THE_POD},
	{"/digest", digest, OF_THE_POD},
	{"/trace", trace, OF_THE_POD},
	{"/tickets", tickets, OF_THE_POD},
	{"/bench", bench, BY_TICKET},
};

static int refuse(struct wb_http_reply *r, unsigned status_code, const char *path, const char *why)
{
	r->status = status_code;
	wb_buf_printf(&r->body, "%s: %s\n", path, why);
	return -EACCES;
}

/* As may_read(). */
static int may_read_metrics(struct wb__http *h, struct wb_http_request *rq, struct wb_http_reply *r)
{
	const char *token = wb_http_bearer(rq), *why;
	char source[WB_HTTP_SOURCE_TEXT];
	struct wb_http_held *held;
	int rc;

	if (wb_http_outcome(rq, &rc, &why))
		return rc == 0         ? 0
		       : rc == -EACCES ? refuse(r, 401, "/metrics", why)
		       : rc == -EPERM  ? refuse(r, 403, "/metrics", why)
				       : refuse(r, 503, "/metrics", why);
	if (!token || !*token || strlen(token) >= WBP_TOKEN_MAX)
		return refuse(r, 401, "/metrics",
			"show a token of who may get the path " WBP_READER_PATH
			" by the cluster's roles (Authorization: Bearer), or ask from 127.0.0.1 "
			"(kubectl port-forward)");
	held = wb_http_hold(rq);
	if (!held)
		return -ENOMEM;
	wb_http_source(rq, source);
	wb__gate_ask(h->a->gate, token, source, held);
	return -EINPROGRESS;
}

/* 0: yes; -EACCES: @r says why not; -EINPROGRESS: that is being found out. */
static int may_read(struct wb__http *h, const struct page *p, struct wb_http_request *rq,
	struct wb_http_reply *r)
{
	if (p->reader == BY_TICKET)
		return wb__measure_ask(h->a->measure, rq, r);
	if (p->reader == EVERYBODY || wb_http_is_local(rq) || (p->reader == METRICS && !h->a->gate))
		return 0;
	if (p->reader == METRICS)
		return may_read_metrics(h, rq, r);
	if (wb__peers_ticket_holds(h->a->peers, p->path, wb_http_query(rq, "ticket")))
		return 0;
	return refuse(r, 401, p->path,
		"it is for this agent's own pod, and sums for agents of its object: ask there "
		"(kubectl exec POD -c weightbridge-agent -- wbctl), or from 127.0.0.1");
}

static int on_request(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	struct wb__http *h = cookie;
	int rc;

	for (size_t i = 0; i < WB_ARRAY_SIZE(pages); i++) {
		if (strcmp(path, pages[i].path) != 0)
			continue;
		rc = may_read(h, &pages[i], rq, r);
		if (rc == 0)
			pages[i].fn(h, rq, r);
		return rc == 0 || rc == -EACCES ? r->body.rc : rc;
	}
	return -ENOENT;
}

static int start_server(struct wb__http *h, struct wb_err *err)
{
	struct wb_http_opts o = {.host = h->a->o.http.host,
		.port = h->a->o.http.port,
		.fn = on_request,
		.cookie = h};

	return h->a->o.http.is_given ? wb_http_start(h->a->loop, &o, &h->server, err) : 0;
}

/* The agent works without this socket, but probes over it do not. */
static void start_local(struct wb__http *h)
{
	char path[PATH_MAX];
	struct wb_http_opts o = {.socket = path, .fn = on_request, .cookie = h};
	struct wb_err err = {0};

	snprintf(path, sizeof(path), "%s" WB_AGENT_PAGES_SUFFIX, h->a->o.socket);
	if (wb_http_start(h->a->loop, &o, &h->local, &err) < 0)
		WB_LOG_WRN(MOD, "no socket for probes and wbctl", WB_S("why", err.msg));
}

int wb__http_start(struct wb__agent *a, struct wb__http **out, struct wb_err *err)
{
	struct wb__http *h = wb_zalloc(1, sizeof(*h));
	int rc = -ENOMEM;

	if (h)
		rc = wb_metrics_create(table, WB_ARRAY_SIZE(table), &h->m);
	if (rc < 0) {
		wb_free(h);
		return wb_err_set(err, rc, "no memory for metrics");
	}
	h->a = a;
	wb_metric_set(h->m, M_BUILD, WB_LABELS(WB_VERSION), 1);
	for (int p = 0; p < WB_FLOW_PLACES; p++) /* there from the start, with 0 */
		wb_metric_add(
			h->m, M_MISMATCH, WB_LABELS(wb_flow_place_name((enum wb_flow_place)p)), 0);
	rc = start_server(h, err);
	if (rc < 0) {
		wb__http_stop(h);
		return rc;
	}
	start_local(h);
	if (h->server)
		WB_LOG_INFO(MOD, "listening", WB_S("host", a->o.http.host),
			WB_U("port", wb_http_port(h->server)));
	*out = h;
	return 0;
}

void wb__http_stop(struct wb__http *h)
{
	if (!h)
		return;
	wb_http_stop(h->server);
	wb_http_stop(h->local);
	wb_metrics_destroy(h->m);
	wb_free(h);
}
