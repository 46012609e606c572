/* SPDX-License-Identifier: Apache-2.0 */
/* The modelled agents: each calls the production flow (agent/flow) as an agent does, from one loop
 * that needs time for each event. */
#include "predict/internal.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* Addresses in place of memory: nothing is read or written there. */
#define ARENA_AT ((uintptr_t)1 << 40)
#define HOST_AT ((uintptr_t)1 << 46)
#define HOST_STEP ((uintptr_t)1 << 40)
#define QUEUE_MAX ((size_t)1 << 26)
#define TICKS_MAX 2 /* events of one agent under way */
#define LACK_MAX 16384 /* WBP_LACK_MAX */

bool wb__predict_is_host(const struct model_agent *a, const void *wire)
{
	return a->image && (uintptr_t)wire >= HOST_AT;
}

/* ---- what a flow tells ---- */

static wb_conn_t conn_to(void *ctx, uint32_t dst, uint32_t src, bool may_miss)
{
	const struct model_agent *a = ctx;

	(void)may_miss;
	return wb__predict_conn(a->m, dst, src);
}

static void on_received(void *ctx, struct wb_flow *f, uint32_t worker)
{
	struct model_agent *a = ctx;
	uint32_t e = a->m->in.plan->worker[a->member[worker].plan_worker].engine;

	(void)f;
	if (!--a->m->left_received[e])
		a->m->engine[e].received_s = a->m->now;
}

static void on_complete(void *ctx, struct wb_flow *f, uint32_t worker)
{
	struct model_agent *a = ctx;
	uint32_t e = a->m->in.plan->worker[a->member[worker].plan_worker].engine;

	(void)f;
	if (!--a->m->left_complete[e])
		a->m->engine[e].complete_s = a->m->now;
}

static void on_snapped(void *ctx, struct wb_flow *f, uint32_t worker, int rc)
{
	struct model_agent *a = ctx;

	(void)f;
	a->m->trainer_s[a->member[worker].plan_worker] = a->m->now;
	wb__predict_fail(a->m, rc);
}

/* How long one message takes; releaseMs is the time of two. */
static double message_s(const struct model *m)
{
	return m->in.params.release_ms * 1e-3 / 2;
}

/* Little is left to send: ask all agents what they lack. */
static void on_few(void *ctx, struct wb_flow *f)
{
	struct model_agent *a = ctx;

	(void)f;
	if (a->lack || a->m->is_stopping)
		return;
	a->lack = wb_alloc(LACK_MAX * sizeof(*a->lack));
	if (!a->lack) {
		wb__predict_fail(a->m, -ENOMEM);
		return;
	}
	wb__predict_at(a->m, a->m->now + message_s(a->m), EV_LACK, a->domain, NULL);
}

static void on_failed(void *ctx, struct wb_flow *f, uint32_t worker, const struct wb_err *err)
{
	struct model_agent *a = ctx;

	(void)f, (void)worker;
	wb__predict_fail(a->m, err->code ? err->code : -EIO);
}

/* ---- making them ---- */

static int add_members(struct model_agent *a)
{
	const struct wb_predict_input *in = &a->m->in;
	uint32_t params = 0, n = 0;

	for (uint32_t w = 0; w < in->plan->n_worker; w++)
		if (in->plan->worker[w].domain == a->domain) {
			params = WB_MAX(params, in->layout[in->plan->worker[w].layout]->n_param);
			n++;
		}
	a->member = wb_zalloc(n, sizeof(*a->member));
	a->lane = wb_zalloc(n, sizeof(*a->lane));
	a->place = wb_zalloc(params, sizeof(*a->place));
	if (!a->member || !a->lane || !a->place)
		return -ENOMEM;
	for (uint32_t w = 0; w < in->plan->n_worker; w++) {
		if (in->plan->worker[w].domain != a->domain)
			continue;
		if (wb__predict_lane_init(&a->lane[a->n], a->m, a->domain, w) < 0)
			return -ENOMEM;
		a->member[a->n] = (struct wb_member){
			.plan_worker = w,
			.map = in->layout[in->plan->worker[w].layout],
			.place = a->place,
			.lane = &a->lane[a->n].lane,
		};
		a->n++;
	}
	return 0;
}

static bool is_rollout(const struct model_agent *a, uint32_t i)
{
	return a->m->in.plan->worker[a->member[i].plan_worker].role == WB_ROLE_ROLLOUT;
}

static int make_slots(struct model_agent *a, struct wb_err *err)
{
	const struct wb_predict_input *in = &a->m->in;
	uint8_t share[WB_POOLS];
	double mib = 0;
	bool rolls = false;

	for (uint32_t i = 0; i < a->n; i++) {
		rolls |= is_rollout(a, i);
		mib += is_rollout(a, i) ? in->params.rollout_mib : in->params.trainer_mib;
	}
	wb_slots_shares(rolls, share);
	return wb_slots_init(&a->slots, (void *)ARENA_AT, (size_t)(mib * 1048576), // NOLINT
		in->plan->chunk_bytes, share, err);
}

static int make_agent(struct model_agent *a, struct wb_err *err)
{
	const struct wb_predict_input *in = &a->m->in;
	struct wb_flow_opts o = {
		.slots = &a->slots,
		.env = &a->env,
		.transfer = 1,
		.sum_seed = 1,
		.window = (uint32_t)in->params.window,
	};
	int rc = add_members(a);

	if (rc < 0)
		return wb_err_set(err, rc, "no memory for the workers of agent %u", a->domain);
	rc = wb_local_create(in->plan, in->manifest, a->member, a->n, &a->local, err);
	if (rc == 0)
		rc = make_slots(a, err);
	if (rc < 0)
		return rc;
	a->x.ops = &wb__predict_xport;
	a->env = (struct wb_flow_env){
		.ctx = a,
		.xport = &a->x,
		.clock = &a->m->clock.clock,
		.conn = conn_to,
		.on_received = on_received,
		.on_complete = on_complete,
		.on_snapped = on_snapped,
		.on_few = on_few,
		.on_failed = on_failed,
	};
	o.local = a->local;
	return wb_flow_create(&o, &a->flow, err);
}

int wb__predict_agents(struct model *m, struct wb_err *err)
{
	const struct wb_plan *p = m->in.plan;
	int rc = 0;

	for (uint32_t w = 0; w < p->n_worker; w++)
		m->n_agent = WB_MAX(m->n_agent, p->worker[w].domain + 1);
	m->agent = wb_zalloc(m->n_agent, sizeof(*m->agent));
	if (!m->agent)
		return wb_err_set(err, -ENOMEM, "no memory for %u agents", m->n_agent);
	/* EV_OPEN, TICKS_MAX of EV_TICK, EV_LOOP, EV_LACK */
	if (wb__predict_reserve(m, (3 + TICKS_MAX) * (size_t)m->n_agent) < 0)
		return wb_err_set(err, -ENOMEM, "no memory for events of %u agents", m->n_agent);
	for (uint32_t d = 0; d < m->n_agent && rc == 0; d++) {
		m->agent[d].m = m;
		m->agent[d].domain = d;
		rc = make_agent(&m->agent[d], err);
		wb__predict_at(m, m->in.params.prepare_ms * 1e-3, EV_OPEN, d, NULL);
	}
	return rc;
}

void wb__predict_agents_stop(struct model *m)
{
	m->is_stopping = true;
	for (uint32_t d = 0; d < m->n_agent; d++)
		wb_flow_stop(m->agent[d].flow);
}

void wb__predict_agents_finish(struct model *m)
{
	for (uint32_t d = 0; m->agent && d < m->n_agent; d++) {
		struct model_agent *a = &m->agent[d];

		if (a->flow) {
			wb_flow_stop(a->flow);
			assert(wb_flow_is_idle(a->flow)); /* all events have come */
			wb_flow_destroy(a->flow);
		}
		for (uint32_t i = 0; a->image && i < a->n; i++)
			wb_image_destroy(a->image[i]);
		wb_free(a->image);
		wb_free(a->lack);
		wb_slots_finish(&a->slots);
		wb_local_destroy(a->local);
		for (uint32_t i = 0; a->lane && i < a->n; i++)
			wb_free(a->lane[i].job);
		wb_free(a->lane);
		wb_free(a->place);
		wb_free(a->member);
		wb_free(a->queue);
	}
	wb_free(m->agent);
}

/* ---- events ---- */

static int open_image(struct model_agent *a, uint32_t i)
{
	uint32_t w = a->member[i].plan_worker;
	int rc;

	if (!a->image)
		a->image = wb_zalloc(a->n, sizeof(*a->image));
	if (!a->image)
		return -ENOMEM;
	rc = wb_image_create(a->m->in.plan, w, &a->image[i]);
	if (rc < 0)
		return rc;
	return wb_flow_open_image(
		a->flow, i, a->image[i], (void *)(HOST_AT + i * HOST_STEP)); // NOLINT
}

static void open_all(struct model_agent *a)
{
	const struct wb_predict_input *in = &a->m->in;

	if (a->m->is_stopping)
		return;
	for (uint32_t i = 0; i < a->n; i++) {
		if (in->plan->worker[a->member[i].plan_worker].role == WB_ROLE_ROLLOUT) {
			wb_flow_open_sink(a->flow, i, NULL);
		} else if (in->trainer_staged) {
			wb__predict_fail(a->m, open_image(a, i));
		} else {
			wb_flow_open_source(a->flow, i);
		}
	}
}

/* Collects the answers of all agents.  All sinks are open by now.  The loops of the agents that
 * answer are not charged: these are a few events in a transfer. */
static void answer(struct model_agent *a)
{
	struct model *m = a->m;

	a->n_lack = 0;
	for (uint32_t d = 0; d < m->n_agent; d++)
		for (uint32_t i = 0; i < m->agent[d].n && a->n_lack <= LACK_MAX; i++)
			if (is_rollout(&m->agent[d], i))
				a->n_lack += wb_flow_lacking(m->agent[d].flow, i, a->domain,
					a->lack + a->n_lack, LACK_MAX - a->n_lack);
	wb__predict_at(m, m->now + message_s(m), EV_LACKED, a->domain, NULL);
}

static void stock_one(
	struct model_agent *a, const uint64_t *lack, uint32_t i, uint32_t *id, uint8_t *is_lacked)
{
	const struct wb_plan *p = a->m->in.plan;
	uint32_t n = 0;

	memset(is_lacked, 0, p->n_chunk);
	for (uint32_t k = 0; k < a->n_lack; k++)
		if (lack[k] >> 32 == a->member[i].plan_worker)
			is_lacked[(uint32_t)lack[k]] = 1;
	for (uint32_t c = 0; c < p->n_chunk; c++)
		if (is_lacked[c])
			id[n++] = c;
	(void)wb_flow_stock(a->flow, i, id, n);
}

/* Packs what others lack, as transfer/leave.c does. */
static void stock_all(struct model_agent *a)
{
	uint32_t *id = wb_alloc(a->m->in.plan->n_chunk * sizeof(*id));
	uint8_t *is_lacked = wb_alloc(a->m->in.plan->n_chunk);
	uint64_t *lack = a->lack;

	a->lack = NULL;
	if (!id || !is_lacked)
		wb__predict_fail(a->m, -ENOMEM);
	for (uint32_t i = 0; id && is_lacked && a->n_lack <= LACK_MAX && i < a->n; i++)
		if (!is_rollout(a, i) && wb_flow_sends_far(a->flow, i))
			stock_one(a, lack, i, id, is_lacked);
	wb_free(id);
	wb_free(is_lacked);
	wb_free(lack);
}

static void lane_done(struct model_agent *a, struct model_lane *l)
{
	struct wb_lane_job job;

	(void)a;
	wb__predict_lane_done(l);
	while (wb_lane_reap(&l->lane, &job, 1))
		wb_flow_on_lane(&job);
}

/* Calls the flow, and again when it says: then it asks a source again that refused for lack of
 * room.  When it wants an earlier time than before, the later event stays, too; with TICKS_MAX
 * of them under way the earliest of these calls it, and it says again when. */
static void tick(struct model_agent *a)
{
	uint64_t at_ns = wb_flow_tick(a->flow, wb_now_ns(&a->m->clock.clock));
	double at_s = ((double)at_ns - 1e9) * 1e-9;

	if (!at_ns || (a->tick_s > 0 && a->tick_s <= at_s) || a->n_tick == TICKS_MAX)
		return;
	a->n_tick++;
	a->tick_s = WB_MAX(at_s, a->m->now);
	wb__predict_at(a->m, a->tick_s, EV_TICK, a->domain, NULL);
}

static void on_op(struct model_agent *a, const struct event *e)
{
	struct op *op = e->p;
	struct wb_xport_event x = {.chunk = op->chunk, .code = op->code};

	x.conn = op->conn;
	if (e->kind == EV_GRANT) {
		x.kind = WB_XP_GRANT;
		x.grant = (uint64_t)(uintptr_t)op;
		wb_flow_on_grant(
			a->flow, &x); /* it may refuse the grant at once, so op is not used below */
		return;
	}
	x.cookie = e->kind == EV_WRITTEN ? op->serve_cookie : op->cookie;
	x.kind = e->kind == EV_WRITTEN   ? WB_XP_WRITE_DONE
		 : e->kind == EV_ARRIVED ? WB_XP_ARRIVED
					 : WB_XP_REFUSED;
	memcpy(x.trailer, op->trailer, sizeof(x.trailer));
	wb_flow_on_xport(&x);
	if (e->kind == EV_REFUSED)
		tick(a);
	wb__predict_op_put(a->m, op);
}

static void handle(struct model_agent *a, const struct event *e)
{
	a->n_event++;
	a->m->n_event++;
	switch (e->kind) {
	case EV_OPEN:
		open_all(a);
		break;
	case EV_LANE:
		lane_done(a, e->p);
		break;
	case EV_LACK:
		answer(a);
		break;
	case EV_LACKED:
		stock_all(a);
		break;
	case EV_TICK:
		a->n_tick--;
		if (a->tick_s <= a->m->now)
			a->tick_s = 0;
		tick(a);
		break;
	default:
		on_op(a, e);
	}
}

static bool make_room(struct model_agent *a)
{
	size_t cap = a->q_cap ? 2 * a->q_cap : 64;
	struct event *q;

	if (a->q_n < a->q_cap)
		return true;
	q = cap > QUEUE_MAX ? NULL : wb_zalloc(cap, sizeof(*q));
	if (!q)
		return false;
	for (size_t i = 0; i < a->q_n; i++)
		q[i] = a->queue[(a->q_head + i) % a->q_cap];
	wb_free(a->queue);
	a->queue = q;
	a->q_cap = cap;
	a->q_head = 0;
	return true;
}

/* The loop is not free: the event waits behind those that wait already. */
static void wait_for_loop(struct model_agent *a, const struct event *e)
{
	if (!make_room(a)) { /* the event comes again later; the prediction has failed anyway */
		wb__predict_fail(a->m, -ENOMEM);
		wb__predict_at(a->m, a->loop_free_s, e->kind, e->at, e->p);
		return;
	}
	a->queue[(a->q_head + a->q_n++) % a->q_cap] = *e;
	if (a->q_n == 1)
		wb__predict_at(a->m, a->loop_free_s, EV_LOOP, a->domain, NULL);
}

void wb__predict_event(struct model *m, struct event *e)
{
	struct model_agent *a = &m->agent[e->at];
	double cost = wb__predict_us(m->in.params.loop_us);

	if (cost > 0 && e->kind != EV_LOOP && (a->q_n || a->loop_free_s > m->now)) {
		wait_for_loop(a, e);
		return;
	}
	if (e->kind == EV_LOOP) {
		*e = a->queue[a->q_head];
		a->q_head = (a->q_head + 1) % a->q_cap;
		a->q_n--;
	}
	a->loop_busy_s += cost;
	a->loop_free_s = m->now += cost; /* what the event causes happens at its end */
	if (a->q_n)
		wb__predict_at(m, a->loop_free_s, EV_LOOP, a->domain, NULL);
	handle(a, e);
}
