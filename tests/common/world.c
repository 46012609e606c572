/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/world.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "lane/lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const uid = "uid-of-the-simulated-object";

static void must(int rc, const struct wb_err *err)
{
	if (rc < 0) {
		fprintf(stderr, "world: %d: %s\n", rc, err ? err->msg : "");
		abort();
	}
}

/* ---- the model ---------------------------------------------------------------------------- */

static uint16_t word_at(uint64_t pos, int64_t version)
{
	return (uint16_t)wb_mix64(pos * 31 + (uint64_t)version * 0x9e3779b97f4a7c15u);
}

static void make_manifest(struct world *w)
{
	struct wb_tensor t[WORLD_TENSORS];
	char names[WORLD_TENSORS][16];
	struct wb_err err = {0};

	memset(t, 0, sizeof(t));
	for (uint32_t i = 0; i < WORLD_TENSORS; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%u", i);
		t[i].name = names[i];
		t[i].dtype = WB_BF16;
		t[i].ndim = i == WORLD_TENSORS - 1 ? 1 : 2;
		t[i].shape[0] = i == WORLD_TENSORS - 1 ? 48 : w->o.scale;
		t[i].shape[1] = 64 + 16 * i;
	}
	must(wb_manifest_create(t, WORLD_TENSORS, &w->manifest, &err), &err);
}

/* Trainers: rows of each matrix; rollouts: columns, odd tensors transposed; the vector: whole. */
static void make_map(struct world_worker *k)
{
	const struct wb_manifest *m = k->world->manifest;
	struct wb_map map;
	struct wb_err err = {0};
	size_t at = 0;

	memset(&map, 0, sizeof(map));
	map.n_param = map.n_op = WORLD_TENSORS;
	map.param = wb_zalloc(WORLD_TENSORS, sizeof(*map.param));
	map.op = wb_zalloc(WORLD_TENSORS, sizeof(*map.op));
	k->place = wb_zalloc(WORLD_TENSORS, sizeof(*k->place));
	for (uint32_t i = 0; i < WORLD_TENSORS; i++) {
		const struct wb_tensor *t = &m->tensor[i];
		struct wb_param *p = &map.param[i];
		struct wb_op *op = &map.op[i];
		bool rows = k->role == WB_ROLE_TRAINER, whole = t->ndim == 1;
		uint64_t r = whole || !rows ? t->rows : t->rows / k->tp;
		uint64_t c = whole || rows ? t->cols : t->cols / k->tp;
		bool turned = !rows && !whole && i % 2;

		p->name = wb_strdup(t->name);
		p->dtype = WB_BF16;
		p->ndim = 2;
		p->shape[0] = turned ? c : r;
		p->shape[1] = turned ? r : c;
		p->stride[0] = (int64_t)p->shape[1];
		p->stride[1] = 1;
		p->span = r * c;
		*op = (struct wb_op){
			.param = i,
			.tensor = i,
			.row = rows && !whole ? r * k->tp_rank : 0,
			.col = rows || whole ? 0 : c * k->tp_rank,
			.n_row = (uint32_t)r,
			.n_col = (uint32_t)c,
			.row_step = 1,
			.col_step = 1,
			.dst_row_stride = turned ? 1 : (int64_t)c,
			.dst_col_stride = turned ? (int64_t)r : 1,
			.repeat = 1,
		};
		k->place[i] = (struct wb_place){0, at};
		at += p->span * 2;
	}
	k->bytes = at;
	k->memory = wb_zalloc(1, at);
	k->base[0] = k->memory;
	must(wb_map_create(m, &map, &k->map, &err), &err);
}

/* Visit every element: where it lies and what its checkpoint position is. */
static void each_word(const struct world_worker *k,
	bool (*visit)(uint16_t *at, uint64_t pos, void *ctx), void *ctx)
{
	for (uint32_t i = 0; i < k->map->n_op; i++) {
		const struct wb_op *op = &k->map->op[i];
		const struct wb_tensor *t = &k->world->manifest->tensor[op->tensor];
		uint16_t *param = (uint16_t *)(void *)(k->memory + k->place[op->param].off_bytes);

		for (uint64_t r = 0; r < op->n_row; r++)
			for (uint64_t c = 0; c < op->n_col; c++) {
				uint64_t pos =
					t->byte_base + ((op->row + r) * t->cols + op->col + c) * 2;

				if (!visit(param + op->dst + (int64_t)r * op->dst_row_stride +
						    (int64_t)c * op->dst_col_stride,
					    pos, ctx))
					return;
			}
	}
}

static bool fill(uint16_t *at, uint64_t pos, void *ctx)
{
	*at = word_at(pos, *(const int64_t *)ctx);
	return true;
}

struct check {
	int64_t version;
	bool same;
};

static bool compare(uint16_t *at, uint64_t pos, void *ctx)
{
	struct check *c = ctx;

	c->same = *at == word_at(pos, c->version);
	return c->same;
}

bool world_holds(const struct world *w, const struct world_worker *k, int64_t version)
{
	struct check c = {version, true};

	(void)w;
	each_word(k, compare, &c);
	return c.same;
}

/* ---- agents ------------------------------------------------------------------------------- */

static void after(struct world_agent *a);

static void on_timer(void *ctx)
{
	struct world_agent *a = ctx;

	a->timer = 0;
	if (a->alive)
		after(a);
}

/* Whatever happened, the core may have work at once or later. */
static void after(struct world_agent *a)
{
	uint64_t next;

	if (!a->alive)
		return;
	wb_core_pump(a->core);
	next = wb_core_tick(a->core);
	if (a->timer)
		wb_sim_timer_cancel(a->world->net, a->timer);
	a->timer = next ? wb_sim_timer(a->world->net, next, on_timer, a) : 0;
}

static void on_message(void *ctx, const char *from, const void *data, size_t bytes)
{
	struct world_agent *a = ctx;
	struct wb_frame f;
	struct wb_msg_peer m;
	const uint8_t *body;
	struct wb_err err = {0};

	must(wb_frame_check(data, bytes, &f, &body, &err), &err);
	must(wb_msg_decode_bin(&f, body, &m, &err), &err);
	wb_core_peer_msg(a->core, from, f.type, &m);
	wb_msg_free(f.type, &m);
	after(a);
}

static void on_peer_down(void *ctx, const char *peer)
{
	struct world_agent *a = ctx;

	for (uint32_t i = 0; i < a->world->n_agent; i++)
		for (uint64_t n = 1; n <= a->world->number; n++)
			if (!strcmp(a->world->agent[i].name, peer))
				wb_core_peer_down(
					a->core, uid, a->world->term, n, i, "connection reset");
	after(a);
}

static void on_ready(void *ctx)
{
	after(ctx);
}

static const struct wb_sim_node_ops node_ops = {
	.on_message = on_message,
	.on_peer_down = on_peer_down,
	.on_ready = on_ready,
};

static void env_to_peer(void *ctx, const struct wb_roster *r, uint32_t agent, uint16_t type,
	const struct wb_msg_peer *msg)
{
	struct world_agent *a = ctx;
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type};
	struct wb_buf b;
	struct wb_err err = {0};

	wb_buf_init(&b, 1u << 20);
	must(wb_msg_encode_bin(&f, msg, &b, &err), &err);
	(void)wb_sim_send(a->world->net, a->name, r->agent[agent].name, b.data, b.len);
	wb_buf_finish(&b);
}

static void env_report(void *ctx, const struct wb_core_report *r)
{
	struct world *w = ((struct world_agent *)ctx)->world;

	if (!r->is_final)
		return;
	w->n_final++;
	w->last_transfer = r->transfer;
	snprintf(w->last_result, sizeof(w->last_result), "%s", r->result);
	snprintf(w->last_culprit, sizeof(w->last_culprit), "%s", r->culprit ? r->culprit : "");
}

static void env_trace(
	void *ctx, const char *what, const char *who, uint64_t transfer, uint64_t value)
{
	const struct world_agent *a = ctx;

	if (getenv("WORLD_TRACE"))
		fprintf(stderr, "%12llu %s: %s %s transfer %llu value %llu\n",
			(unsigned long long)wb_now_ns(wb_sim_clock(a->world->net)), a->name, what,
			who, (unsigned long long)transfer, (unsigned long long)value);
}

/* ---- workers ------------------------------------------------------------------------------ */

/* A message to a worker takes a moment, as on a socket. */
struct parcel {
	struct world_worker *k;
	uint32_t life;
	uint16_t type;
	union wb_msg msg;
};

static void say(struct world_worker *k, uint16_t type, const void *msg)
{
	struct world_agent *a = &k->world->agent[k->agent];

	if (!a->alive || !k->alive)
		return;
	wb_core_worker_msg(a->core, k->id, type, msg);
	after(a);
}

static void poll_later(struct world_worker *k);

static void on_poll(void *ctx)
{
	struct world_worker *k = ctx;
	uint64_t word;

	if (!k->alive || k->parked)
		return;
	k->polls++;
	word = wb_poll_add(&k->page.word);
	if (wb_poll_is_parked(word)) {
		struct wb_msg_app_parked m = {.count = wb_poll_count(word)};

		k->parked = true;
		say(k, WBP_APP_PARKED, &m);
		return;
	}
	poll_later(k);
}

static void poll_later(struct world_worker *k)
{
	struct wb_sim_net *net = k->world->net;

	wb_sim_timer(net,
		wb_now_ns(wb_sim_clock(net)) + 1 + wb_rng_below(wb_sim_rng(net), k->poll_ns),
		on_poll, k);
}

static void on_end(struct world_worker *k, const struct wb_msg_app_end *m)
{
	struct wb_msg_app_resumed r = {.transfer = m->transfer};

	if (m->result == WB_APP_END_TORN || m->result == WB_APP_END_TORN_FINAL) {
		k->n_torn++;
		return; /* stays blocked */
	}
	k->in_update = k->parked = false;
	if (m->result == WB_APP_END_COMMITTED) {
		k->version = m->version;
		k->changed_at = wb_poll_count(k->page.word);
		k->n_updates++;
		say(k, WBP_APP_RESUMED, &r);
	} else {
		k->n_aborted++;
	}
	poll_later(k);
}

static void on_parcel(void *ctx)
{
	struct parcel *p = ctx;
	struct world_worker *k = p->k;

	if (!k->alive || p->life != k->id)
		goto out;
	if (p->type == WBP_APP_GO && k->parked && !k->in_update) {
		if (!wb_poll_is_parked(k->page.word)) {
			k->parked = false;
			poll_later(k);
		}
	} else if (p->type == WBP_APP_BEGIN) {
		struct wb_msg_app_begun m = {.transfer = p->msg.app_begin.transfer};

		k->in_update = true;
		say(k, WBP_APP_BEGUN, &m);
	} else if (p->type == WBP_APP_END) {
		snprintf(k->why, sizeof(k->why), "%s",
			p->msg.app_end.sentence ? p->msg.app_end.sentence : "");
		on_end(k, &p->msg.app_end);
	} else if (p->type == WBP_APP_SEND_STATE) {
		k->send_state = (int)p->msg.app_send_state.state;
		k->send_code = p->msg.app_send_state.code;
		snprintf(k->why, sizeof(k->why), "%s",
			p->msg.app_send_state.sentence ? p->msg.app_send_state.sentence : "");
	}
out:
	wb_msg_free(p->type, &p->msg);
	free(p);
}

static void env_to_worker(void *ctx, uint32_t worker, uint16_t type, const void *msg)
{
	struct world *w = ((struct world_agent *)ctx)->world;
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type};
	struct wb_buf b;

	for (uint32_t i = 0; i < w->n_worker; i++) {
		struct parcel *p;
		struct wb_frame g;
		const uint8_t *body;
		struct wb_err err = {0};

		if (w->worker[i].id != worker || !w->worker[i].alive)
			continue;
		p = calloc(1, sizeof(*p));
		p->k = &w->worker[i];
		p->life = worker;
		p->type = type;
		wb_buf_init(&b, 1u << 17);
		must(wb_msg_encode_bin(&f, msg, &b, &err), &err);
		must(wb_frame_check(b.data, b.len, &g, &body, &err), &err);
		must(wb_msg_decode_bin(&g, body, &p->msg, &err), &err);
		wb_buf_finish(&b);
		wb_sim_timer(w->net, wb_now_ns(wb_sim_clock(w->net)) + 5000, on_parcel, p);
	}
}

/* ---- life --------------------------------------------------------------------------------- */

static void start_agent(struct world_agent *a)
{
	struct world *w = a->world;
	struct wb_xport_opts xo = {.name = a->name, .sim = w->net};
	struct wb_core_opts co = {
		.agent = a->name, .sums = true, .arena = a->arena, .arena_bytes = w->o.arena_bytes};
	struct wb_err err = {0};

	must(wb_sim_node_add(w->net, a->name, &node_ops, a), NULL);
	must(wb_xport_open("sim", &xo, &a->xport, &err), &err);
	must(wb_xport_listen(a->xport, a->endpoint, sizeof(a->endpoint), &err), &err);
	a->env = (struct wb_core_env){
		.ctx = a,
		.clock = wb_sim_clock(w->net),
		.xport = a->xport,
		.to_worker = env_to_worker,
		.to_peer = env_to_peer,
		.report = env_report,
		.trace = env_trace,
	};
	must(wb_core_create(&co, &a->env, &a->core, &err), &err);
	a->alive = true;
}

static void start_worker(struct world_worker *k, uint32_t id)
{
	struct world_agent *a = &k->world->agent[k->agent];
	static const char *const engines[] = {"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"};
	struct wb_err err = {0};
	struct wb_core_worker c;

	k->id = id;
	k->alive = true;
	k->parked = k->in_update = false;
	k->version = -1;
	memset(&k->page, 0, sizeof(k->page));
	must(wb_lane_create_inline(NULL, &k->lane, &err), &err);
	c = (struct wb_core_worker){
		.id = id,
		.object = "default/sim",
		.engine = engines[k->engine],
		.name = a->name,
		.role = k->role,
		.manifest = k->world->manifest,
		.map = k->map,
		.place = k->place,
		.base = k->base,
		.lane = k->lane,
		.page = k->role == WB_ROLE_ROLLOUT ? &k->page : NULL,
	};
	must(wb_core_attach(a->core, &c, &err), &err);
	if (k->role == WB_ROLE_ROLLOUT)
		poll_later(k);
}

static void add_worker(struct world *w, uint32_t agent, enum wb_role role, uint32_t engine,
	uint32_t tp, uint32_t rank)
{
	struct world_worker *k = &w->worker[w->n_worker];

	*k = (struct world_worker){.world = w,
		.agent = agent,
		.role = role,
		.engine = engine,
		.tp = tp,
		.tp_rank = rank,
		.plan_worker = w->n_worker,
		.poll_ns = w->o.poll_ns};
	make_map(k);
	start_worker(k, ++w->n_worker);
}

static struct world_agent *add_agent(struct world *w, const char *what, uint32_t i)
{
	struct world_agent *a = &w->agent[w->n_agent++];

	a->world = w;
	snprintf(a->name, sizeof(a->name), "%s-%u", what, i);
	a->arena = wb_zalloc(1, w->o.arena_bytes);
	start_agent(a);
	return a;
}

void world_init(struct world *w, const struct world_opts *o)
{
	struct wb_sim_opts so = {.seed = o->seed, .jitter_ns = 30000, .bytes_per_s = 1000000000};

	memset(w, 0, sizeof(*w));
	w->o = *o;
	w->o.scale = o->scale ? o->scale : 64;
	w->o.chunk_bytes = o->chunk_bytes ? o->chunk_bytes : 2048;
	w->o.arena_bytes = o->arena_bytes ? o->arena_bytes : 64 * (size_t)w->o.chunk_bytes;
	w->o.poll_ns = o->poll_ns ? o->poll_ns : 200000;
	w->o.step_deadline_ns = o->step_deadline_ns ? o->step_deadline_ns : 5 * WB_NS_PER_S;
	w->o.transfer_deadline_ns =
		o->transfer_deadline_ns ? o->transfer_deadline_ns : 5 * WB_NS_PER_S;
	must(wb_sim_net_create(&so, &w->net), NULL);
	w->term = 1;
	make_manifest(w);
	w->n_trainer = o->trainer_agents * o->trainers_per_agent;
	for (uint32_t a = 0; a < o->trainer_agents; a++) {
		add_agent(w, "trainer", a);
		for (uint32_t t = 0; t < o->trainers_per_agent; t++)
			add_worker(w, a, WB_ROLE_TRAINER, 0, w->n_trainer,
				a * o->trainers_per_agent + t);
	}
	for (uint32_t e = 0; e < o->engines; e++)
		for (uint32_t a = 0; a < o->agents_per_engine; a++) {
			add_agent(w, e == 0 ? "e0" : e == 1 ? "e1" : e == 2 ? "e2" : "e3", a);
			for (uint32_t t = 0; t < o->workers_per_agent; t++)
				add_worker(w, w->n_agent - 1, WB_ROLE_ROLLOUT, e,
					o->agents_per_engine * o->workers_per_agent,
					a * o->workers_per_agent + t);
		}
}

static void stop_agent(struct world_agent *a)
{
	if (a->timer)
		wb_sim_timer_cancel(a->world->net, a->timer);
	a->timer = 0;
	a->alive = false;
	wb_xport_close(a->xport);
	wb_core_destroy(a->core);
	a->xport = NULL;
	a->core = NULL;
}

void world_finish(struct world *w)
{
	for (uint32_t i = 0; i < w->n_agent; i++) {
		if (w->agent[i].core)
			stop_agent(&w->agent[i]);
		wb_free(w->agent[i].arena);
	}
	for (uint32_t i = 0; i < w->n_worker; i++) {
		w->worker[i].alive = false;
		wb_lane_destroy(w->worker[i].lane);
		wb_map_destroy(w->worker[i].map);
		wb_free(w->worker[i].place);
		wb_free(w->worker[i].memory);
	}
	wb_sim_run(w->net, UINT64_MAX); /* parcels under way free themselves */
	wb_plan_destroy(w->plan);
	wb_manifest_destroy(w->manifest);
	wb_sim_net_destroy(w->net);
}

/* ---- plans -------------------------------------------------------------------------------- */

static void fill_roster(const struct world *w, struct wb_roster *r)
{
	memset(r, 0, sizeof(*r));
	r->uid = wb_strdup(uid);
	r->object = wb_strdup("default/sim");
	r->term = w->term;
	r->number = w->number;
	memset(r->key, 7, sizeof(r->key));
	r->n_agent = w->n_agent;
	r->n_engine = w->o.engines;
	r->n_worker = w->n_worker;
	r->agent = wb_zalloc(r->n_agent, sizeof(*r->agent));
	r->engine = wb_zalloc(r->n_engine, sizeof(*r->engine));
	r->worker = wb_zalloc(r->n_worker, sizeof(*r->worker));
	for (uint32_t i = 0; i < w->n_agent; i++) {
		r->agent[i].name = wb_strdup(w->agent[i].name);
		r->agent[i].bulk = wb_strdup(w->agent[i].endpoint);
	}
	for (uint32_t e = 0; e < r->n_engine; e++) {
		char name[16];

		snprintf(name, sizeof(name), "e%u", e);
		r->engine[e].name = wb_strdup(name);
		r->engine[e].lead = world_agent_of_engine(w, e);
	}
	for (uint32_t i = 0; i < w->n_worker; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s/worker %u", w->agent[w->worker[i].agent].name, i);
		r->worker[i].name = wb_strdup(name);
		r->worker[i].local = w->worker[i].id;
	}
	r->transfer_deadline_ns = w->o.transfer_deadline_ns;
	r->engine_step_deadline_ns = w->o.step_deadline_ns;
}

uint32_t world_agent_of_engine(const struct world *w, uint32_t engine)
{
	return w->o.trainer_agents + engine * w->o.agents_per_engine;
}

void world_plan(struct world *w)
{
	const struct wb_map *layout[64];
	struct wb_plan_worker pw[64];
	struct wb_plan_input in = {.manifest = w->manifest,
		.layout = layout,
		.worker = pw,
		.n_worker = w->n_worker,
		.trainer_buffer_bytes = 64 * (uint64_t)w->o.chunk_bytes, /* the arena may be less */
		.rollout_buffer_bytes = 64 * (uint64_t)w->o.chunk_bytes,
		.chunk_bytes = w->o.chunk_bytes};
	struct wb_err err = {0};
	struct wb_buf b;

	for (uint32_t i = 0; i < w->n_worker; i++) {
		uint32_t l = 0;

		while (l < in.n_layout &&
			!wb_digest_eq(layout[l]->digest, w->worker[i].map->digest))
			l++;
		if (l == in.n_layout)
			layout[in.n_layout++] = w->worker[i].map;
		pw[i] = (struct wb_plan_worker){.role = w->worker[i].role,
			.layout = l,
			.engine = w->worker[i].engine,
			.domain = w->worker[i].agent,
			.node = w->worker[i].agent};
	}
	wb_plan_destroy(w->plan);
	must(wb_plan_create(&in, &w->plan, &err), &err);
	w->number++;
	wb_buf_init(&b, 64u << 20);
	must(wb_plan_encode(w->plan, &b), NULL);
	for (uint32_t a = 0; a < w->n_agent; a++) {
		struct wb_plan *copy;
		struct wb_roster r;

		must(wb_plan_decode(b.data, b.len, &copy, &err), &err);
		fill_roster(w, &r);
		must(wb_core_install(w->agent[a].core, copy, &r, &err), &err);
	}
	wb_buf_finish(&b);
	for (uint32_t a = 0; a < w->n_agent; a++) {
		must(wb_core_activate(w->agent[a].core, uid, w->term, w->number), NULL);
		after(&w->agent[a]);
	}
}

/* ---- runs --------------------------------------------------------------------------------- */

static void on_send(void *ctx)
{
	struct world_worker *k = ctx;
	struct wb_msg_app_send m = {.version = k->version};

	say(k, WBP_APP_SEND, &m);
}

void world_send(struct world *w, int64_t version)
{
	for (uint32_t i = 0; i < w->n_trainer; i++) {
		struct world_worker *k = &w->worker[i];
		uint64_t now = wb_now_ns(wb_sim_clock(w->net));

		if (!k->alive)
			continue;
		each_word(k, fill, &version);
		k->version = version;
		k->send_state = 0;
		k->send_code = 0;
		wb_sim_timer(w->net, now + wb_rng_below(wb_sim_rng(w->net), 100000), on_send, k);
	}
}

static bool all_final(const struct world *w)
{
	for (uint32_t i = 0; i < w->n_trainer; i++)
		if (w->worker[i].alive && w->worker[i].send_state != WB_APP_SEND_FINAL)
			return false;
	return true;
}

bool world_run(struct world *w, uint64_t limit_ns)
{
	uint64_t end = wb_now_ns(wb_sim_clock(w->net)) + limit_ns;

	while (!all_final(w) && wb_now_ns(wb_sim_clock(w->net)) < end)
		if (!wb_sim_step(w->net))
			break;
	return all_final(w);
}

void world_run_for(struct world *w, uint64_t ns)
{
	wb_sim_run(w->net, wb_now_ns(wb_sim_clock(w->net)) + ns);
}

void world_kill_agent(struct world *w, uint32_t agent)
{
	struct world_agent *a = &w->agent[agent];

	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].agent == agent)
			w->worker[i].alive = false;
	wb_sim_node_kill(w->net, a->name);
	stop_agent(a);
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].agent == agent) {
			wb_lane_destroy(w->worker[i].lane);
			w->worker[i].lane = NULL;
		}
}

void world_restart(struct world *w, uint32_t agent)
{
	start_agent(&w->agent[agent]);
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].agent == agent) {
			memset(w->worker[i].memory, 0, w->worker[i].bytes);
			start_worker(&w->worker[i], w->worker[i].id + 1000);
		}
}
