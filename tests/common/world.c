/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/world.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "lane/lane.h"
#include "proto/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENT_NS (10 * WB_NS_PER_S) /* without a sign of life: given up */
#define RATE 1000000000 /* bytes a second */
#define GIVE_UP_NS WB_NS_PER_S /* a peer that cannot be reached for so long is gone */

void world_must(int rc, const struct wb_err *err)
{
	if (rc < 0) {
		fprintf(stderr, "world: %d: %s\n", rc, err ? err->msg : "");
		abort();
	}
}

uint64_t world_now(const struct world *w)
{
	return wb_now_ns(wb_sim_clock(w->net));
}

void world_note(struct world *w, const void *data, size_t bytes)
{
	w->digest = wb_mix64(w->digest ^ wb_hash64(data, bytes, world_now(w)));
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
	world_must(wb_manifest_create(t, WORLD_TENSORS, &w->manifest, &err), &err);
}

/* ---- clocks ------------------------------------------------------------------------------- */

static uint64_t clock_now(const struct wb_clock *c)
{
	const struct world_clock *k = (const struct world_clock *)(const void *)c; /* its first */
	uint64_t ns = wb_now_ns(wb_sim_clock(k->net)) - k->since_ns;

	return k->base_ns + (k->ppm == 1000000 ? ns : (uint64_t)((double)ns * k->ppm / 1e6));
}

static void clock_init(struct world_clock *k, const struct wb_sim_net *net)
{
	*k = (struct world_clock){.clock = {clock_now}, .net = net, .ppm = 1000000};
	k->since_ns = k->base_ns = wb_now_ns(wb_sim_clock(net));
}

/* When the net's clock says what this one calls @at_ns. */
static uint64_t clock_due(const struct world_clock *k, uint64_t at_ns)
{
	uint64_t now = clock_now(&k->clock), left = at_ns > now ? at_ns - now : 0;

	if (k->ppm != 1000000)
		left = (uint64_t)((double)left * 1e6 / k->ppm) + (left > 0);
	return wb_now_ns(wb_sim_clock(k->net)) + left;
}

/* ---- agents ------------------------------------------------------------------------------- */

static bool is_stalled(const struct world_agent *a)
{
	return a->stall_until_ns > world_now(a->world);
}

static void on_timer(void *ctx)
{
	struct world_agent *a = ctx;

	a->timer = 0;
	if (!a->alive)
		return;
	if (is_stalled(a))
		a->timer = wb_sim_timer(a->world->net, a->stall_until_ns, on_timer, a);
	else
		world_after(a);
}

/* Whatever happened, the core may have work at once or later. */
void world_after(struct world_agent *a)
{
	uint64_t next;

	if (!a->alive)
		return;
	wb_transfer_pump(a->core);
	next = wb_transfer_tick(a->core);
	for (uint32_t i = 0; i < a->n_leaving; i++)
		if (wb_transfer_is_detached(a->core, a->leaving[i].worker)) {
			world_regions_remove(a, &a->leaving[i]);
			a->leaving[i--] = a->leaving[--a->n_leaving];
		}
	if (a->timer)
		wb_sim_timer_cancel(a->world->net, a->timer);
	a->timer = next ? wb_sim_timer(a->world->net, clock_due(&a->clock, next), on_timer, a) : 0;
}

static struct world_agent *agent_named(struct world *w, const char *name)
{
	for (uint32_t i = 0; i < w->n_agent; i++)
		if (!strcmp(w->agent[i].name, name))
			return &w->agent[i];
	return NULL;
}

static void on_message(void *ctx, const char *from, const void *data, size_t bytes)
{
	struct world_agent *a = ctx;
	struct wb_frame f;
	struct wb_msg_peer m;
	const uint8_t *body;
	struct wb_err err = {0};

	world_must(wb_frame_check(data, bytes, &f, &body, &err), &err);
	world_must(wb_msg_decode_bin(&f, body, &m, &err), &err);
	world_note(a->world, data, bytes);
	for (const struct world_epoch *e = a->world->epochs; e; e = e->next)
		if (e->id.term == m.term && e->id.number == m.number)
			wb_transfer_peer_msg(a->core, &e->id,
				(uint32_t)world_epoch_agent(e, agent_named(a->world, from)->index),
				&m);
	wb_msg_free(f.type, &m);
	world_after(a);
}

/* Processes of @peer are gone, or cannot be reached: all up to @life. */
static void tell_down(struct world_agent *a, const struct world_agent *peer, uint32_t life)
{
	for (const struct world_epoch *e = a->world->epochs; e; e = e->next) {
		int i = world_epoch_agent(e, peer->index);

		if (i >= 0 && e->life[i] <= life)
			wb_transfer_peer_down(a->core, &e->id, (uint32_t)i, "connection reset");
	}
	world_after(a);
}

struct lost {
	struct world_agent *a, *peer;
	uint32_t a_life;
};

static void on_lost(void *ctx)
{
	struct lost *l = ctx;
	bool here = l->a->alive && l->a->life == l->a_life;

	if (here && is_stalled(l->a)) {
		wb_sim_timer(l->a->world->net, l->a->stall_until_ns, on_lost, l);
		return;
	}
	/* Dialled again in time, nobody hears of it; what was under way is lost.  A new process
	 * does not know the keys of the old one's epochs. */
	if (here)
		tell_down(l->a, l->peer, l->peer->life - l->peer->alive);
	free(l);
}

static void on_peer_down(void *ctx, const char *name)
{
	struct world_agent *a = ctx, *peer = agent_named(a->world, name);
	struct wb_sim_net *net = a->world->net;
	struct lost *l;

	if (!a->world->o.peers_reconnect) {
		tell_down(a, peer, peer->life);
		return;
	}
	l = calloc(1, sizeof(*l));
	*l = (struct lost){a, peer, a->life};
	wb_sim_timer(net, world_now(a->world) + 1 + wb_rng_below(wb_sim_rng(net), GIVE_UP_NS),
		on_lost, l);
}

static void on_ready(void *ctx)
{
	world_after(ctx);
}

static const struct wb_sim_node_ops node_ops = {
	.on_message = on_message,
	.on_peer_down = on_peer_down,
	.on_ready = on_ready,
};

static void env_to_peer(void *ctx, const struct wb_roster *r, uint32_t agent,
	const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes)
{
	struct world_agent *a = ctx;
	const uint8_t *body;
	struct wb_frame f;
	union wb_msg m;
	struct wb_err err = {0};

	(void)msg; /* what is sent counts, also again */
	world_must(wb_frame_check(frame, bytes, &f, &body, &err), &err);
	world_must(wb_msg_decode_bin(&f, body, &m, &err), &err);
	for (uint32_t i = 0;
		a->world->o.naive && m.peer.kind == WBP_PEER_PROMISE && i < a->world->n_worker; i++)
		if (a->world->worker[i].agent == a->index && a->world->worker[i].page)
			wb_poll_set_stop(&a->world->worker[i].page->word, 0);
	if (a->world->watch.message)
		a->world->watch.message(
			a->world->watch.ctx, a, r->agent[agent].name, &m.peer, frame, bytes);
	(void)wb_sim_send(a->world->net, a->name, r->agent[agent].name, frame, bytes);
	wb_msg_free(f.type, &m);
}

static void env_report(void *ctx, const struct wb_transfer_report *r)
{
	struct world_agent *a = ctx;
	struct world *w = a->world;

	if (w->watch.report)
		w->watch.report(w->watch.ctx, a, r);
	if (r->kind != WB_REPORT_FINAL)
		return;
	w->n_final++;
	w->last_transfer = r->transfer;
	snprintf(
		w->last_result, sizeof(w->last_result), "%s", wb_word(&wb_result_words, r->result));
	snprintf(w->last_culprit, sizeof(w->last_culprit), "%s", r->culprit ? r->culprit : "");
}

static void env_times(void *ctx, const struct wb_transfer_times *t)
{
	struct world_agent *a = ctx;

	for (uint32_t i = 0; i < t->n_worker; i++)
		a->world->n_resent += (uint32_t)t->worker[i].resent_chunks;
}

static void env_trace(
	void *ctx, const char *what, const char *who, uint64_t transfer, uint64_t value)
{
	struct world_agent *a = ctx;
	struct world *w = a->world;

	world_note(w, what, strlen(what));
	world_note(w, who, strlen(who));
	world_note(w, &transfer, sizeof(transfer));
	if (w->is_tracing)
		fprintf(stderr, "%14.6f %s: %s %s transfer %llu value %llu\n",
			(double)world_now(w) / 1e6, a->name, what, who,
			(unsigned long long)transfer, (unsigned long long)value);
	w->n_mismatch += !strcmp(what, "mismatch");
	if (w->watch.trace)
		w->watch.trace(w->watch.ctx, a, what, who, transfer, value);
}

static void env_to_worker(void *ctx, uint32_t worker, uint16_t type, const void *msg)
{
	world_to_worker(ctx, worker, type, msg);
}

/* ---- life --------------------------------------------------------------------------------- */

static int store_save(void *ctx, const char *name, const void *data, size_t bytes)
{
	struct world_agent *a = ctx;

	(void)name; /* there is one object */
	if (bytes > sizeof(a->file))
		return -1;
	if (a->full_until_ns > world_now(a->world)) {
		a->world->n_unsaved++;
		return -ENOSPC;
	}
	memcpy(a->file, data, bytes);
	a->n_file = bytes;
	return 0;
}

static int64_t store_load(void *ctx, const char *name, void *data, size_t cap)
{
	struct world_agent *a = ctx;

	(void)name;
	memcpy(data, a->file, WB_MIN(cap, a->n_file));
	return (int64_t)a->n_file;
}

void world_region_add(struct world_agent *a, struct world_regions *r, void *base, size_t bytes)
{
	struct wb_xport_region g = {.object = world_object.hash, .base = base, .bytes = bytes};
	struct wb_err err = {0};

	if (!(wb_xport_caps(a->xport) & WB_XPORT_CAP_REGIONS))
		return;
	world_must(wb_xport_region_add(a->xport, &g, &r->id[r->n++], &err), &err);
}

void world_regions_remove(struct world_agent *a, const struct world_regions *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (wb_xport_region_remove(a->xport, r->id[i]) < 0)
			snprintf(a->world->wrong, sizeof(a->world->wrong),
				"%s lets worker %u go while its memory is read", a->name,
				r->worker);
}

/* As many as its number says; each half as fast as the one before, or as fast. */
static void choose_rails(const struct world_agent *a, struct wb_xport_rail *rail, uint32_t *n)
{
	const struct world_opts *o = &a->world->o;
	uint64_t x = wb_mix64(o->seed ^ a->index), rate = o->bytes_per_s ? o->bytes_per_s : RATE;

	*n = WB_MAX(1, o->rails_min);
	*n += o->rails ? (uint32_t)(x % (o->rails - *n + 1)) : 0;
	for (uint32_t i = 0; i < *n && o->rails; i++)
		rail[i].rate_bytes_per_s = rate / *n >> (x >> (8 + 3 * i) & 7);
}

static void start_agent(struct world_agent *a)
{
	struct world *w = a->world;
	struct wb_xport_rail rail[WB_XPORT_RAILS_MAX] = {{0}};
	struct world_regions all = {0};
	struct wb_xport_opts xo = {
		.name = a->name, .medium = w->net, .rail = rail, .conns_max = WB_XPORT_CONNS_MAX};
	struct wb_transfer_opts co = {.agent = a->name,
		.is_checked = !w->o.is_unchecked,
		.arena = a->arena,
		.arena_bytes = w->o.arena_bytes,
		.window = w->o.window,
		.store = &a->store};
	struct wb_err err = {0};

	world_must(wb_sim_node_add(w->net, a->name, &node_ops, a), NULL);
	choose_rails(a, rail, &xo.n_rail);
	world_must(wb_xport_open("sim", &xo, &a->xport, &err), &err);
	world_region_add(a, &all, a->arena, w->o.arena_bytes);
	world_must(wb_xport_listen(a->xport, a->endpoint, sizeof(a->endpoint), &err), &err);
	world_must(wb_fault_parse(w->o.fault, &a->fault, &err), &err);
	a->env = (struct wb_transfer_env){
		.ctx = a,
		.clock = &a->clock.clock,
		.xport = a->xport,
		.fault = a->fault,
		.to_worker = env_to_worker,
		.to_peer = env_to_peer,
		.report = env_report,
		.times = env_times,
		.trace = env_trace,
	};
	a->store = (struct wb_transfer_store){a, store_save, store_load};
	world_must(wb_transfer_create(&co, &a->env, &a->core, &err), &err);
	a->n_leaving = 0;
	a->stall_until_ns = 0;
	a->is_silent = false;
	a->life++;
	a->alive = true;
}

static struct world_agent *add_agent(struct world *w, const char *what, uint32_t i)
{
	struct world_agent *a = &w->agent[w->n_agent];

	a->world = w;
	a->index = w->n_agent++;
	snprintf(a->name, sizeof(a->name), "%s-%u", what, i);
	a->arena = wb_zalloc(1, w->o.arena_bytes);
	clock_init(&a->clock, w->net);
	start_agent(a);
	return a;
}

static void alloc_members(struct world *w)
{
	const struct world_opts *o = &w->o;
	uint32_t pods = o->one_pod ? 1 : o->engines * o->agents_per_engine;
	uint32_t rollouts = o->engines * o->agents_per_engine * o->workers_per_agent;
	uint32_t trainers = o->trainer_agents * o->trainers_per_agent;

	assert(o->trainer_agents + pods <= WORLD_AGENTS && o->engines <= WORLD_ENGINES &&
		trainers + rollouts <= WORLD_WORKERS);
	w->agent = wb_zalloc(o->trainer_agents + pods, sizeof(*w->agent));
	w->worker = wb_zalloc(trainers + rollouts, sizeof(*w->worker));
}

void world_init(struct world *w, const struct world_opts *o)
{
	struct wb_sim_opts so = {.seed = o->seed,
		.jitter_ns = 30000,
		.bytes_per_s = o->bytes_per_s ? o->bytes_per_s : RATE,
		.caps = o->xport_caps,
		.piece_bytes = o->piece_bytes};

	memset(w, 0, sizeof(*w));
	w->o = *o;
	w->is_tracing = getenv("WORLD_TRACE") != NULL;
	w->o.scale = o->scale ? o->scale : 64;
	w->o.chunk_bytes = o->chunk_bytes ? o->chunk_bytes : 2048;
	w->o.arena_bytes = o->arena_bytes ? o->arena_bytes : 64 * (size_t)w->o.chunk_bytes;
	w->o.poll_ns = o->poll_ns ? o->poll_ns : 200000;
	w->o.step_deadline_ns = o->step_deadline_ns ? o->step_deadline_ns : 5 * WB_NS_PER_S;
	w->o.transfer_deadline_ns =
		o->transfer_deadline_ns ? o->transfer_deadline_ns : 5 * WB_NS_PER_S;
	world_must(wb_sim_net_create(&so, &w->net), NULL);
	w->term = 1;
	make_manifest(w);
	alloc_members(w);
	w->n_trainer = o->trainer_agents * o->trainers_per_agent;
	for (uint32_t a = 0; a < o->trainer_agents; a++) {
		add_agent(w, "trainer", a);
		for (uint32_t t = 0; t < o->trainers_per_agent; t++)
			world_worker_create(w, a, WB_ROLE_TRAINER, 0, w->n_trainer,
				a * o->trainers_per_agent + t);
	}
	for (uint32_t e = 0; e < o->engines; e++)
		for (uint32_t a = 0; a < o->agents_per_engine; a++) {
			char name[16];

			snprintf(name, sizeof(name), "e%u", e);
			if (!e || !o->one_pod)
				add_agent(w, name, a);
			for (uint32_t t = 0; t < o->workers_per_agent; t++)
				world_worker_create(w, w->n_agent - 1, WB_ROLE_ROLLOUT, e,
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
	a->xport = NULL;
	a->world->violations += wb_transfer_violations(a->core);
	wb_transfer_destroy(a->core);
	world_must(a->n_epoch ? -EBUSY : 0, NULL); /* somebody still has a reference */
	wb_fault_destroy(a->fault);
	a->core = NULL;
	a->fault = NULL;
}

uint64_t world_violations(const struct world *w)
{
	uint64_t n = w->violations;

	for (uint32_t i = 0; i < w->n_agent; i++)
		n += w->agent[i].alive ? wb_transfer_violations(w->agent[i].core) : 0;
	return n;
}

void world_finish(struct world *w)
{
	for (uint32_t i = 0; i < w->n_agent; i++) {
		if (w->agent[i].alive) {
			wb_sim_node_kill(w->net, w->agent[i].name);
			stop_agent(&w->agent[i]);
		}
		wb_free(w->agent[i].arena);
	}
	for (uint32_t i = 0; i < w->n_worker; i++)
		world_worker_destroy(&w->worker[i]);
	wb_sim_run(w->net, UINT64_MAX); /* parcels under way free themselves */
	while (w->junk) {
		struct world_junk *j = w->junk;

		w->junk = j->next;
		wb_lane_destroy(j->lane);
		wb_free(j->page);
		wb_free(j->memory);
		wb_free(j->area);
		wb_free(j->base);
		wb_free(j);
	}
	while (w->epochs) {
		struct world_epoch *e = w->epochs;

		w->epochs = e->next;
		wb_free(e->bytes);
		wb_free(e);
	}
	for (uint32_t i = 0; i < WORLD_TRUTHS; i++)
		wb_free(w->truth[i].words);
	wb_manifest_destroy(w->manifest);
	wb_free(w->agent);
	wb_free(w->worker);
	wb_sim_net_destroy(w->net);
}

void world_kill_agent_only(struct world *w, uint32_t agent)
{
	struct world_agent *a = &w->agent[agent];

	if (!a->alive)
		return;
	wb_sim_node_kill(w->net, a->name);
	stop_agent(a);
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].agent == agent && w->worker[i].phase != WORLD_DOWN)
			world_worker_agent_lost(&w->worker[i]);
}

void world_kill_agent(struct world *w, uint32_t agent)
{
	world_kill_agent_only(w, agent);
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].agent == agent)
			world_kill_worker(w, i);
}

void world_start_agent(struct world *w, uint32_t agent)
{
	if (w->agent[agent].alive)
		return;
	start_agent(&w->agent[agent]);
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].agent == agent && w->worker[i].phase != WORLD_DOWN)
			world_worker_agent_lost(&w->worker[i]);
}

void world_restart(struct world *w, uint32_t agent)
{
	world_start_agent(w, agent);
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].agent == agent)
			world_start_worker(w, i);
}

struct stall {
	struct world_agent *a;
	uint32_t life;
};

/* Its connections were closed by the others; it finds out when it runs again. */
static void on_stall_over(void *ctx)
{
	struct stall *s = ctx;
	struct world *w = s->a->world;

	if (s->a->alive && s->a->life == s->life && is_stalled(s->a)) {
		wb_sim_timer(w->net, s->a->stall_until_ns, on_stall_over, s);
		return;
	}
	if (s->a->alive && s->a->life == s->life) {
		s->a->is_silent = false;
		for (uint32_t i = 0; i < w->n_agent; i++)
			if (&w->agent[i] != s->a)
				tell_down(s->a, &w->agent[i], w->agent[i].life);
	}
	free(s);
}

static void on_silent(void *ctx)
{
	struct stall *s = ctx;
	struct world *w = s->a->world;

	if (!s->a->alive || s->a->life != s->life || !is_stalled(s->a) || s->a->is_silent) {
		free(s);
		return;
	}
	s->a->is_silent = true;
	for (uint32_t i = 0; i < w->n_agent; i++) {
		struct world_agent *b = &w->agent[i];

		wb_sim_pipe_cut(w->net, s->a->name, b->name);
		if (b != s->a && b->alive && !is_stalled(b))
			tell_down(b, s->a, s->life);
	}
	wb_sim_timer(w->net, s->a->stall_until_ns, on_stall_over, s);
}

void world_stall_agent(struct world *w, uint32_t agent, uint64_t ns)
{
	struct world_agent *a = &w->agent[agent];
	struct stall *s = calloc(1, sizeof(*s));

	a->stall_until_ns = WB_MAX(a->stall_until_ns, world_now(w) + ns);
	wb_sim_node_stall(w->net, a->name, ns);
	*s = (struct stall){a, a->life};
	wb_sim_timer(w->net, world_now(w) + SILENT_NS, on_silent, s);
}

void world_fill_disk(struct world *w, uint32_t agent, uint64_t ns)
{
	w->agent[agent].full_until_ns = WB_MAX(w->agent[agent].full_until_ns, world_now(w) + ns);
}

void world_set_clock(struct world *w, uint32_t agent, uint64_t ns, uint32_t ppm)
{
	struct world_agent *a = &w->agent[agent];

	a->clock.base_ns = clock_now(&a->clock.clock) + ns;
	a->clock.since_ns = world_now(w);
	a->clock.ppm = ppm;
	if (!a->timer)
		return;
	wb_sim_timer_cancel(w->net, a->timer);
	a->timer = wb_sim_timer(w->net, world_now(w), on_timer, a);
}

/* ---- runs --------------------------------------------------------------------------------- */

static void on_send(void *ctx)
{
	struct world_worker *k = ctx;

	world_send_one(k, k->version);
}

void world_send(struct world *w, int64_t version)
{
	for (uint32_t i = 0; i < w->n_trainer; i++) {
		struct world_worker *k = &w->worker[i];

		if (k->phase == WORLD_DOWN)
			continue;
		world_fill(k, version);
		k->version = version;
		k->send_state = 0;
		wb_sim_timer(w->net, world_now(w) + wb_rng_below(wb_sim_rng(w->net), 100000),
			on_send, k);
	}
}

static bool all_final(const struct world *w)
{
	for (uint32_t i = 0; i < w->n_trainer; i++)
		if (w->worker[i].phase != WORLD_DOWN &&
			w->worker[i].send_state != WB_APP_SEND_FINAL)
			return false;
	return true;
}

bool world_run(struct world *w, uint64_t limit_ns)
{
	uint64_t end = world_now(w) + limit_ns;

	while (!all_final(w) && world_now(w) < end)
		if (!wb_sim_step(w->net))
			break;
	return all_final(w);
}

void world_run_for(struct world *w, uint64_t ns)
{
	wb_sim_run(w->net, world_now(w) + ns);
}
