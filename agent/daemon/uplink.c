/* SPDX-License-Identifier: Apache-2.0 */
/* What goes up to the operator: who is attached, contents that it wants, reports. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/content.h"
#include "daemon/oplink_internal.h"
#include "mem/cgroup.h"
#include "net/loop.h"
#include "planner/plan.h"
#include "xport/xport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "oplink"
#define REPORTS_MAX 64
#define PART_BYTES (1u << 20)
#define QUEUED_MAX (8u << 20) /* bytes queued in the channel before uploads wait */
#define UPLOAD_RETRY_NS (10 * WB_NS_PER_MS)

uint64_t wb__memory_limit(void)
{
	struct wb_cgroup_memory m;

	if (wb_cgroup_memory(NULL, NULL, &m, NULL) < 0 || m.limit_bytes == UINT64_MAX)
		return 0;
	return m.limit_bytes;
}

/* ---- workers --------------------------------------------------------------------------------- */

static uint32_t number_in(const struct wb_roster *r, uint32_t id)
{
	for (uint32_t w = 0; r && w < r->n_worker; w++)
		if (r->plan->worker[w].domain == r->me && r->worker[w].local == id)
			return w + 1;
	return 0;
}

static void fill_worker(struct wb__oplink *l, const struct wb__worker *w, struct wb_p_worker *out)
{
	*out = (struct wb_p_worker){.id = w->id,
		.name = w->name,
		.role = w->role,
		.engine = w->engine,
		.rank = w->rank,
		.manifest = w->manifest->digest,
		.map = w->map->digest,
		.mem_kind = w->t.has_heap ? WB_APP_MEM_HEAP : WB_APP_MEM_MEMFD,
		.sender_staging = w->sender_staging,
		.receiver_staging = w->receiver_staging};
	out->plan_worker = number_in(wb_transfer_running(l->a->core, &l->id), w->id);
	out->ready_worker = number_in(wb_transfer_ready(l->a->core, &l->id), w->id);
	out->transfer = wb_transfer_held(l->a->core, w->id, &out->version);
}

static bool is_ours(const struct wb__oplink *l, const struct wb__worker *w)
{
	return !w->is_leaving && w->object_index == l->index;
}

/* Say whose each rail is, among the workers that are here now; @order has room for them all. */
static void set_rails(
	struct wb__oplink *l, struct wb__rails_worker *order, struct wb_msg_workers *m)
{
	uint32_t n = 0;

	for (struct wb__worker *w = wb__apps_first(l->a->apps); w; w = w->next)
		if (is_ours(l, w))
			order[n++] = (struct wb__rails_worker){.role = w->role,
				.engine = w->engine,
				.rank = w->rank,
				.id = w->id,
				.numa = w->numa};
	wb__rails_share(&l->a->rails, order, n);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; order[i].rails && k < n; k++)
			if (m->workers[k].id == order[i].id)
				m->workers[k].rails = order[i].rails;
}

/* "agent", "worker" or "agent, worker", and why the first of a GPU has no lane here. */
static void lanes(const struct wb__oplink *l, char *out, size_t bytes)
{
	const struct wb__worker *kept = NULL;
	bool is_here = false, is_there = false;

	for (const struct wb__worker *w = wb__apps_first(l->a->apps); w; w = w->next) {
		if (!is_ours(l, w) || !w->is_lane_known)
			continue;
		is_here |= wb__worker_lane_is_here(w);
		is_there |= !wb__worker_lane_is_here(w);
		kept = kept || !w->lane_why[0] ? kept : w;
	}
	snprintf(out, bytes, "%s%s%s", is_here ? "agent" : "", is_here && is_there ? ", " : "",
		is_there ? "worker" : "");
	if (kept)
		snprintf(out + strlen(out), bytes - strlen(out), ": %s: %.700s", kept->name,
			kept->lane_why);
}

static void send_workers(struct wb__oplink *l)
{
	char lane[WBP_TEXT_MAX];
	struct wb_msg_workers m = {.object = l->object,
		.library = wb__apps_library(l->a->apps),
		.reduced = l->reduced,
		.lane = lane};
	struct wb__rails_worker *order;
	const struct wb_roster *running = wb_transfer_running(l->a->core, &l->id);
	const struct wb_roster *ready = wb_transfer_ready(l->a->core, &l->id);
	uint32_t n = 0;

	lanes(l, lane, sizeof(lane));
	for (struct wb__worker *w = wb__apps_first(l->a->apps); w; w = w->next)
		n += is_ours(l, w);
	m.workers = wb_zalloc(n, sizeof(*m.workers));
	order = wb_zalloc(n, sizeof(*order));
	if (!m.workers || !order) {
		wb_free(m.workers);
		wb_free(order);
		wb_timer_start(l->news_timer, WB_NS_PER_S, 0);
		return;
	}
	for (struct wb__worker *w = wb__apps_first(l->a->apps); w; w = w->next)
		if (is_ours(l, w))
			fill_worker(l, w, &m.workers[m.n_workers++]);
	assert(m.n_workers == n);
	set_rails(l, order, &m);
	if (running) {
		m.running = (struct wb_p_epoch){running->id.term, running->id.number};
		m.plan = running->plan->digest;
		m.plan_workers = running->n_worker;
	}
	if (ready) {
		m.ready = (struct wb_p_epoch){ready->id.term, ready->id.number};
		m.ready_plan = ready->plan->digest;
		m.ready_workers = ready->n_worker;
	}
	l->workers_due = false;
	(void)wb_session_send(&l->session, WBP_WORKERS, &m);
	wb_free(m.workers);
	wb_free(order);
}

void wb__oplink_workers_changed(struct wb__oplink *l)
{
	l->workers_due = true;
	if (wb_session_is_up(&l->session))
		wb_timer_start(l->news_timer, WB_NS_PER_MS, 0);
}

void wb__oplink_look_at_rails(struct wb__oplink *l)
{
	char text[sizeof(l->reduced)] = "";

	(void)wb_xport_reduced(l->a->xport, text, sizeof(text));
	if (!strcmp(text, l->reduced))
		return;
	memcpy(l->reduced, text, sizeof(text));
	wb__oplink_workers_changed(l);
}

/* ---- uploads --------------------------------------------------------------------------------- */

static void upload_pop(struct wb__oplink *l)
{
	assert(l->n_upload && (l->n_upload == 1 || !l->upload[1].data));
	wb_free(l->upload[0].data);
	l->n_upload--;
	memmove(&l->upload[0], &l->upload[1], l->n_upload * sizeof(l->upload[0]));
}

void wb__uploads_reset(struct wb__oplink *l)
{
	while (l->n_upload)
		upload_pop(l);
	wb_free(l->upload);
	l->upload = NULL;
	l->upload_cap = 0;
}

void wb__uploads_add(struct wb__oplink *l, const struct wb_msg_want *m)
{
	for (uint32_t i = 0; i < m->n_digests; i++) {
		struct wb_digest d;

		if (wb_digest_parse(m->digests[i], &d) < 0 ||
			wb_grow(&l->upload, &l->upload_cap, l->n_upload + 1, UPLOADS_MAX,
				sizeof(*l->upload)) < 0) {
			wb_session_end(&l->session, -EPROTO, "it wants more than there can be");
			return;
		}
		l->upload[l->n_upload++] = (struct upload){.digest = d};
	}
	wb_timer_start(l->news_timer, 1, 0);
}

static int upload_begin(struct wb__oplink *l, struct upload *u)
{
	char digest[WB_DIGEST_TEXT];
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, WB__MAP_BYTES_MAX);
	rc = wb__contents_encode(wb__apps_contents(l->a->apps), u->digest, &u->kind, &b);
	if (rc == 0)
		rc = wb_buf_take(&b, &u->data, &u->bytes);
	else
		wb_buf_finish(&b);
	wb_digest_text(u->digest, digest);
	if (rc < 0)
		WB_LOG_ERR(MOD, "content wanted that cannot be sent", WB_S("digest", digest),
			WB_S("reason", wb_strerror(rc)));
	else
		WB_LOG_INFO(MOD, "upload", WB_S("what", wb_word(&wb_content_words, u->kind)),
			WB_S("digest", digest), WB_U("bytes", u->bytes));
	return rc;
}

/* Send parts, as far as the channel takes them without holding up other messages. */
static void upload_some(struct wb__oplink *l)
{
	while (l->n_upload && wb_session_is_up(&l->session)) {
		struct upload *u = &l->upload[0];
		struct wb_msg_content m = {.object = l->object};

		if (!u->data && upload_begin(l, u) < 0) {
			upload_pop(l);
			continue;
		}
		if (wb_chan_queued(l->chan) > QUEUED_MAX) {
			wb_timer_start(l->news_timer, UPLOAD_RETRY_NS, 0);
			return;
		}
		assert(u->at <= u->bytes);
		m.kind = u->kind;
		m.digest = u->digest;
		m.total_bytes = u->bytes;
		m.offset = u->at;
		m.data = u->data + u->at;
		m.n_data = (uint32_t)WB_MIN(u->bytes - u->at, PART_BYTES);
		if (wb_session_send(&l->session, WBP_CONTENT, &m) < 0)
			return;
		u->at += m.n_data;
		if (u->at == u->bytes)
			upload_pop(l);
	}
}

void wb__oplink_news(void *cookie)
{
	struct wb__oplink *l = cookie;

	if (!wb_session_is_up(&l->session))
		return;
	if (l->workers_due)
		send_workers(l);
	upload_some(l);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* What goes into a connection may be lost with it, and only the report of its end tells an operator
 * that a transfer does not run any more.  So reports are kept, and the operator may hear one twice;
 * if they are too many, the oldest go. */
static void send_report(struct wb__oplink *l, struct wb_msg_report *m)
{
	m->object = l->object;
	m->clock_offset_ns = l->clock.offset_ns;
	m->clock_error_ns = l->clock.error_ns;
	m->memory_path = "agent";
	for (struct wb__worker *w = wb__apps_first(l->a->apps); w; w = w->next)
		if (is_ours(l, w) && w->is_lane_known && !wb__worker_lane_is_here(w))
			m->memory_path = "worker";
	if (wb_keep_add(&l->reports, wb_msg_encode, WBP_REPORT, m, REPORTS_MAX) == 0)
		(void)wb_keep_send(&l->reports, &l->session, wb_now_ns(&wb_clock_real));
}

static int code_of(enum wb_engine_state state)
{
	switch (state) {
	case WB_ENGINE_COMMITTED:
		return 0;
	case WB_ENGINE_TORN:
		return WB_ETORN;
	case WB_ENGINE_UNKNOWN:
		return WB_EUNKNOWN;
	default:
		return WB_EABORTED;
	}
}

static void fill_engine(const struct wb_transfer_report *r, uint32_t i, struct wb_p_engine_state *e)
{
	*e = (struct wb_p_engine_state){.engine = r->engine[i],
		.state = r->state[i],
		.version = -1,
		.code = code_of(r->state[i]),
		.sentence = r->sentence && r->sentence[i] ? r->sentence[i] : ""};
	if (!e->code) {
		e->version = r->version;
		e->transfer = r->transfer;
	}
}

static uint32_t state_of(const struct wb_transfer_report *r)
{
	_Static_assert(WB_REPORT_FINAL + (int)WB_RESULT_UNKNOWN == (int)WB_REPORT_FINAL_UNKNOWN,
		"a word for each result");
	return r->kind == WB_REPORT_FINAL ? WB_REPORT_FINAL + (uint32_t)r->result : r->kind;
}

static bool is_worse(int64_t a, int64_t b)
{
	return a && (!b || b == WB_EABORTED || a == WB_ETORN) && a != b;
}

static void send_start(struct wb__oplink *l, const struct wb_transfer_report *r)
{
	struct wb_msg_report m = {.epoch = {r->epoch->term, r->epoch->number},
		.transfer = r->transfer,
		.version = r->version,
		.state = state_of(r),
		.begin_wall_ns = r->begin_wall_ns};

	if (!r->is_feed) /* the operator has asked for it */
		send_report(l, &m);
}

static void send_end(struct wb__oplink *l, const struct wb_transfer_report *r)
{
	bool is_final = r->kind == WB_REPORT_FINAL;
	char via[64], instead[512];
	struct wb_msg_report m = {.epoch = {r->epoch->term, r->epoch->number},
		.transfer = r->transfer,
		.version = r->version,
		.state = state_of(r),
		.sentence = r->culprit ? r->culprit : "",
		.is_final = is_final,
		.is_feed = r->is_feed,
		.begin_wall_ns = r->begin_wall_ns,
		.end_wall_ns = r->end_wall_ns,
		.stall_ns = is_final ? r->stall_ns : 0};

	m.engines = wb_zalloc(r->n_engine, sizeof(*m.engines));
	if (!m.engines)
		return;
	for (uint32_t i = 0; i < r->n_engine; i++) {
		fill_engine(r, i, &m.engines[m.n_engines++]);
		if (!is_worse(m.engines[i].code, m.code))
			continue;
		m.culprit = r->engine[i];
		m.code = m.engines[i].code;
	}
	if (is_final) { /* an engine's bytes are in the sum of the whole */
		m.bytes = r->bytes;
		m.n_bytes = WB_STAGES;
	}
	/* The lead's agent knows which transport brings its engine's weights. */
	if (!is_final) {
		m.transport = wb_transfer_via(l->a->core, r->epoch, via, sizeof(via));
		if (wb_xport_instead(l->a->xport, r->epoch->object.hash, instead, sizeof(instead)))
			m.fallback = instead;
	}
	send_report(l, &m);
	wb_free(m.engines);
}

void wb__oplink_report(struct wb__oplink *l, const struct wb_transfer_report *r)
{
	(r->kind == WB_REPORT_STARTED ? send_start : send_end)(l, r);
}

void wb__oplink_times(struct wb__oplink *l, const struct wb_transfer_times *t)
{
	struct wb_msg_report m = {.epoch = {t->epoch->term, t->epoch->number},
		.transfer = t->transfer,
		.version = t->version,
		.state = WB_REPORT_WORKERS,
		.workers = t->worker,
		.n_workers = t->n_worker};

	send_report(l, &m);
}

int wb__oplink_ask_reader(struct wb__oplink *l, uint64_t number, const char *token)
{
	struct wb_msg_reader m = {.number = number, .token = token};

	if (!wb_session_is_up(&l->session))
		return -ENOTCONN;
	if (l->session.version < WBP_READER_SINCE)
		return -EPROTONOSUPPORT;
	return wb_session_send(&l->session, WBP_READER, &m);
}

void wb__oplink_draining(struct wb__oplink *l)
{
	struct wb_msg_drain m = {.sentence = "the agent was told to stop"};

	(void)wb_session_send(&l->session, WBP_DRAIN, &m);
}
