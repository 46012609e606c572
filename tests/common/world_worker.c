/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of the simulated world: a model of the client library. */
#include "tests/common/world.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "lane/lane.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOCKET_NS 5000
#define IMAGE_BYTES(k) (2 * (k)->bytes + (64u << 10))
#define RECONNECT_NS (50 * WB_NS_PER_MS)

/* ---- the socket between worker and agent --------------------------------------------------- */

/* A message takes a moment; it is gone when either side is.  The order is kept, also when one that
 * is stopped is stopped for longer. */
struct parcel {
	struct parcel *next;
	uint32_t id;
	uint16_t type;
	uint64_t sent_ns;
	union wb_msg msg;
};

static void on_message(struct world_worker *k, uint16_t type, union wb_msg *m);

static void take_first(struct world_line *l)
{
	struct parcel *p = l->first;

	l->first = p->next;
	if (!l->first)
		l->last = NULL;
	p->next = NULL;
}

static void free_parcel(struct parcel *p)
{
	wb_msg_free(p->type, &p->msg);
	free(p);
}

/* Once for each parcel: the first that is under way comes in. */
static void on_parcel(void *ctx)
{
	struct world_line *l = ctx;
	struct world_worker *k = l->k;
	struct world *w = k->world;
	struct world_agent *a = &w->agent[k->agent];
	uint64_t stall = l == &k->up ? a->stall_until_ns : k->stall_until_ns;
	struct parcel *p;

	while ((p = l->first) && (k->phase == WORLD_DOWN || !a->alive || p->id != k->id)) {
		take_first(l);
		free_parcel(p);
	}
	if (!p)
		return;
	if (stall > world_now(w)) {
		wb_sim_timer(w->net, stall, on_parcel, l);
		return;
	}
	take_first(l);
	w->n_overtaken += p->sent_ns < w->arrived_sent_ns;
	w->arrived_sent_ns = WB_MAX(w->arrived_sent_ns, p->sent_ns);
	if (l == &k->up) {
		wb_transfer_worker_msg(a->core, k->id, p->type, &p->msg);
		world_after(a);
	} else {
		on_message(k, p->type, &p->msg);
	}
	free_parcel(p);
}

static uint64_t socket_ns(struct world *w)
{
	return w->o.socket_ns ? 1 + wb_rng_below(wb_sim_rng(w->net), w->o.socket_ns) : SOCKET_NS;
}

static void post(struct world_worker *k, bool up, uint16_t type, const void *msg)
{
	struct world *w = k->world;
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type}, g;
	struct parcel *p = calloc(1, sizeof(*p));
	struct world_line *l = up ? &k->up : &k->down;
	const uint8_t *body;
	struct wb_err err = {0};
	struct wb_buf b;

	p->id = k->id;
	p->type = type;
	p->sent_ns = world_now(w);
	wb_buf_init(&b, 1u << 17);
	world_must(wb_msg_encode_bin(&f, msg, &b, &err), &err);
	world_note(w, b.data, b.len);
	world_must(wb_frame_check(b.data, b.len, &g, &body, &err), &err);
	world_must(wb_msg_decode_bin(&g, body, &p->msg, &err), &err);
	wb_buf_finish(&b);
	l->k = k;
	*(l->last ? &l->last->next : &l->first) = p;
	l->last = p;
	l->last_ns = WB_MAX(l->last_ns, world_now(w) + socket_ns(w));
	wb_sim_timer(w->net, l->last_ns, on_parcel, l);
}

static void say(struct world_worker *k, uint16_t type, const void *msg)
{
	if (k->id)
		post(k, true, type, msg);
}

void world_to_worker(struct world_agent *a, uint32_t id, uint16_t type, const void *msg)
{
	for (uint32_t i = 0; i < a->world->n_worker; i++)
		if (a->world->worker[i].id == id)
			post(&a->world->worker[i], false, type, msg);
}

/* ---- the client library, as client/update.c has it ------------------------------------------ */

static void poll_later(struct world_worker *k);

static void serve(struct world_worker *k)
{
	const struct world_watch *x = &k->world->watch;

	if (x->serve && k->role == WB_ROLE_ROLLOUT)
		x->serve(x->ctx, k, k->page ? wb_poll_count(k->page->word) : 0);
}

const char *world_phase_name(enum world_phase p)
{
	static const char *const names[] = {"down", "connecting", "running", "parked", "before",
		"begun", "install", "installed", "after", "torn"};

	return names[p];
}

static void set_phase(struct world_worker *k, enum world_phase phase)
{
	enum world_phase before = k->phase;
	const struct world_watch *x = &k->world->watch;

	k->phase = phase;
	k->phase_ns = world_now(k->world);
	if (k->world->is_tracing && k->role == WB_ROLE_ROLLOUT)
		fprintf(stderr, "%14.6f worker %u (engine %u): %s -> %s at %u, stop %u\n",
			(double)k->phase_ns / 1e6, k->index, k->engine, world_phase_name(before),
			world_phase_name(phase), k->page ? wb_poll_count(k->page->word) : 0,
			k->page ? wb_poll_stop(k->page->word) : 0);
	if (x->phase)
		x->phase(x->ctx, k, before);
	if (phase == WORLD_RUN)
		serve(k);
	if (phase == WORLD_RUN || phase == WORLD_TORN)
		poll_later(k);
}

static void park(struct world_worker *k, uint32_t count)
{
	struct wb_msg_app_parked m = {.count = count};

	k->parked_id = k->id;
	k->parked_count = count;
	say(k, WBP_APP_PARKED, &m);
}

/* A torn worker does not serve, so it may poll up to any stop at once. */
static void poll_while_torn(struct world_worker *k)
{
	uint64_t w = wb_poll_load(&k->page->word);

	if (!k->id || k->past.begun)
		return;
	if (wb_poll_is_ahead(w) && k->down.first)
		return; /* the library reads what was said before this stop was set */
	while (wb_poll_is_ahead(w))
		w = wb_poll_add(&k->page->word);
	if (wb_poll_is_parked(w) && (k->parked_id != k->id || k->parked_count != wb_poll_count(w)))
		park(k, wb_poll_count(w));
}

/* Polls that have returned: one in an update is inside its last, wherever torn ones poll to. */
static uint32_t steps_of(const struct world_worker *k)
{
	uint32_t count = k->page ? wb_poll_count(k->page->word) : 0;

	return k->phase < WORLD_PARKED ? count : k->inside_at - 1;
}

/* Steps of one engine: nobody runs away from the slowest, who may be in an update still. */
static bool is_ahead(const struct world_worker *k)
{
	const struct world *w = k->world;
	uint32_t count = wb_poll_count(k->page->word);

	for (uint32_t i = 0; w->o.drift && i < w->n_worker; i++) {
		const struct world_worker *x = &w->worker[i];

		if (x->role != k->role || x->engine != k->engine || x->phase == WORLD_DOWN)
			continue;
		if (wb_poll_later(count, steps_of(x) + w->o.drift - 1))
			return true;
	}
	return false;
}

static void on_poll(void *ctx)
{
	struct world_worker *k = ctx;
	uint64_t word;

	k->poll_due = false;
	if (k->stall_until_ns > world_now(k->world)) {
		k->poll_due = true;
		wb_sim_timer(k->world->net, k->stall_until_ns, on_poll, k);
		return;
	}
	if (k->phase == WORLD_TORN) {
		poll_while_torn(k);
		poll_later(k);
	}
	if (k->phase != WORLD_RUN)
		return;
	if (is_ahead(k)) {
		poll_later(k);
		return;
	}
	word = wb_poll_add(&k->page->word);
	if (wb_poll_is_parked(word)) {
		k->inside_at = wb_poll_count(word);
		set_phase(k, WORLD_PARKED);
		park(k, wb_poll_count(word));
		return;
	}
	serve(k);
	poll_later(k);
}

static void poll_later(struct world_worker *k)
{
	struct wb_sim_net *net = k->world->net;

	if (k->poll_due || k->role != WB_ROLE_ROLLOUT)
		return;
	k->poll_due = true;
	wb_sim_timer(net, world_now(k->world) + 1 + wb_rng_below(wb_sim_rng(net), k->poll_ns),
		on_poll, k);
}

/* A hook of the user runs; it may take its time. */
struct hook {
	struct world_worker *k;
	uint32_t life;
	enum world_phase phase;
	uint64_t transfer;
};

static void begun(struct world_worker *k)
{
	static char raised[] = "ValueError: the hook does not want to";
	struct wb_msg_app_begun m = {.transfer = k->transfer};

	if (k->hook_raises) {
		m.code = -EPERM;
		m.sentence = raised;
		k->hook_raises = false;
	}
	if (k->id && k->parked_id == k->id) {
		set_phase(k, WORLD_BEGUN);
		say(k, WBP_APP_BEGUN, &m);
	} else {
		set_phase(k, k->was_torn ? WORLD_TORN : WORLD_RUN);
	}
}

static void resumed(struct world_worker *k)
{
	struct wb_msg_app_resumed r = {.transfer = k->transfer};

	k->was_torn = false;
	k->is_torn_final = false;
	k->version = k->to_version;
	k->changed_at = wb_poll_count(k->page->word);
	k->n_updates++;
	if (k->id && k->parked_id == k->id)
		say(k, WBP_APP_RESUMED, &r);
	set_phase(k, WORLD_RUN);
}

static void on_begin(struct world_worker *k, const struct wb_msg_app_begin *m);

/* The decision stands: the copy is finished whether the agent is there or not. */
static void installed(struct world_worker *k)
{
	struct wb_msg_app_installed m = {.transfer = k->transfer};
	struct wb_msg_app_begin next;
	struct wb_area_head *h = (struct wb_area_head *)(void *)k->area;
	void *from = k->area + WB_AREA_HEAD_BYTES, *to = k->memory;
	struct wb_area_range *r;
	uint32_t n;

	if (wb_area_state(h) < WB_AREA_WHOLE || h->transfer != k->transfer) {
		m.code = WB_ESTALE;
	} else {
		h->held_transfer = 0;
		wb_area_set(h, WB_AREA_INSTALLING);
		world_must(wb_area_ranges(k->map, k->place, &r, &n), NULL);
		wb_area_copy(r, n, &from, &to);
		wb_free(r);
		wb_area_set(h, WB_AREA_INSTALLED);
	}
	if (!k->is_given_up && k->id && k->parked_id == k->id) {
		set_phase(k, WORLD_INSTALLED);
		say(k, WBP_APP_INSTALLED, &m);
	} else {
		set_phase(k, WORLD_TORN);
	}
	next = k->next_begin;
	k->next_begin.transfer = 0;
	if (next.transfer)
		on_begin(k, &next);
}

static void on_hook(void *ctx)
{
	struct hook *h = ctx;
	struct world_worker *k = h->k;

	if (k->life == h->life && k->phase == h->phase && k->transfer == h->transfer) {
		if (k->stall_until_ns > world_now(k->world)) {
			wb_sim_timer(k->world->net, k->stall_until_ns, on_hook, h);
			return;
		}
		if (h->phase == WORLD_BEFORE)
			begun(k);
		else if (h->phase == WORLD_INSTALL)
			installed(k);
		else
			resumed(k);
	}
	free(h);
}

static void run_hook(struct world_worker *k)
{
	struct wb_sim_net *net = k->world->net;
	struct hook *h = calloc(1, sizeof(*h));

	*h = (struct hook){k, k->life, k->phase, k->transfer};
	wb_sim_timer(net,
		world_now(k->world) + (k->hook_ns ? wb_rng_below(wb_sim_rng(net), k->hook_ns) : 0),
		on_hook, h);
}

static void on_begin(struct world_worker *k, const struct wb_msg_app_begin *m)
{
	static char sentence[] = "this worker is not parked: its agent restarted";
	struct wb_msg_app_begun no = {
		.transfer = m->transfer, .code = -EAGAIN, .sentence = sentence};

	if (k->phase == WORLD_INSTALL) {
		k->next_begin = *m;
		return;
	}
	if (k->phase != WORLD_PARKED && k->phase != WORLD_TORN) {
		say(k, WBP_APP_BEGUN, &no);
		return;
	}
	k->transfer = m->transfer;
	k->to_version = m->version;
	k->was_torn = k->phase == WORLD_TORN && !k->past.begun;
	k->past.begun = 0;
	k->begun_at = k->parked_count;
	k->is_staged = m->staged;
	set_phase(k, WORLD_BEFORE);
	run_hook(k);
}

static void on_install(struct world_worker *k, const struct wb_msg_app_install *m)
{
	struct wb_msg_app_installed no = {.transfer = m->transfer, .code = -EAGAIN};

	if (k->phase != WORLD_BEGUN || k->transfer != m->transfer) {
		say(k, WBP_APP_INSTALLED, &no);
		return;
	}
	k->is_given_up = false;
	set_phase(k, WORLD_INSTALL);
	run_hook(k);
}

static bool is_end_of_this(const struct world_worker *k, const struct wb_msg_app_end *m)
{
	switch (k->phase) {
	case WORLD_PARKED:
		return m->result == WB_APP_END_ABORTED && !wb_poll_is_parked(k->page->word);
	case WORLD_BEFORE:
	case WORLD_BEGUN:
	case WORLD_INSTALLED:
		return m->transfer == k->transfer;
	case WORLD_TORN:
		return m->transfer >= k->transfer;
	default:
		return false;
	}
}

static void on_end(struct world_worker *k, const struct wb_msg_app_end *m)
{
	bool early = k->phase == WORLD_INSTALL && m->transfer == k->transfer;
	bool in_doubt = k->past.begun;

	if (k->phase == WORLD_INSTALL && m->transfer >= k->next_begin.transfer)
		k->next_begin.transfer = 0;
	if (k->phase == WORLD_INSTALL && m->transfer > k->transfer) {
		k->is_torn_final |= m->result == WB_APP_END_TORN_FINAL;
		return;
	}
	if (!early && !is_end_of_this(k, m))
		return;
	k->past.begun = 0;
	snprintf(k->why, sizeof(k->why), "%s", m->sentence ? m->sentence : "");
	k->is_torn_final |= m->result == WB_APP_END_TORN_FINAL;
	k->is_given_up = early;
	if (early)
		return;
	if (m->result == WB_APP_END_COMMITTED) {
		k->past.done_at = k->transfer == m->transfer ? k->begun_at : k->parked_count;
		k->past.done = m->transfer;
		k->transfer = m->transfer;
		k->to_version = m->version;
		set_phase(k, WORLD_AFTER);
		run_hook(k);
	} else if (m->result == WB_APP_END_ABORTED) {
		k->n_aborted++;
		set_phase(k, (k->phase == WORLD_TORN && !in_doubt) || k->was_torn ? WORLD_TORN
										  : WORLD_RUN);
	} else {
		k->n_torn++;
		set_phase(k, WORLD_TORN);
	}
}

static void let_go(struct world_worker *k)
{
	const struct world_watch *x = &k->world->watch;

	if (k->held && x->let_go) {
		k->held = false;
		x->let_go(x->ctx, k);
	}
	k->held = false;
}

static void on_send_state(struct world_worker *k, const struct wb_msg_app_send_state *m)
{
	const struct world_watch *x = &k->world->watch;

	if (!k->send_ns && m->transfer == k->send_transfer && !m->held)
		let_go(k); /* after the end */
	if (!k->send_ns || (m->transfer && m->transfer == k->before_transfer))
		return; /* news of the one before */
	k->send_state = (int)m->state;
	k->send_code = m->code;
	k->send_transfer = m->transfer;
	k->held = m->held;
	if (m->state == WB_APP_SEND_FINAL)
		k->send_ns = 0;
	snprintf(k->why, sizeof(k->why), "%s", m->sentence ? m->sentence : "");
	if (x->send_state)
		x->send_state(x->ctx, k);
}

static void on_message(struct world_worker *k, uint16_t type, union wb_msg *m)
{
	if (type == WBP_APP_GO && k->phase == WORLD_PARKED && !wb_poll_is_parked(k->page->word))
		set_phase(k, WORLD_RUN);
	else if (type == WBP_APP_PLANNED && k->phase == WORLD_CONNECTING)
		set_phase(k, WORLD_RUN);
	else if (type == WBP_APP_BEGIN)
		on_begin(k, &m->app_begin);
	else if (type == WBP_APP_INSTALL)
		on_install(k, &m->app_install);
	else if (type == WBP_APP_END)
		on_end(k, &m->app_end);
	else if (type == WBP_APP_SEND_STATE)
		on_send_state(k, &m->app_send_state);
}

/* ---- life --------------------------------------------------------------------------------- */

static void junk_add(struct world_worker *k, bool memory)
{
	struct world_junk *j = wb_zalloc(1, sizeof(*j));

	*j = (struct world_junk){k->world->junk, k->lane, k->page, memory ? k->memory : NULL,
		k->base, memory ? k->area : NULL};
	k->world->junk = j;
	k->lane = NULL;
	k->page = NULL;
	k->base = NULL;
}

/* A page for each attachment, as the agent makes them; the count goes on. */
void world_worker_attach(struct world_worker *k)
{
	struct world_agent *a = &k->world->agent[k->agent];
	struct wb_err err = {0};
	struct wb_transfer_worker c;
	uint32_t count = k->page ? wb_poll_count(k->page->word) : 0;

	if (k->page)
		junk_add(k, false);
	k->page = wb_zalloc(1, sizeof(*k->page));
	k->page->word = count;
	k->base = wb_zalloc(2, sizeof(*k->base));
	k->base[0] = k->memory;
	k->base[1] = k->area ? k->area + WB_AREA_HEAD_BYTES : NULL;
	k->id = ++k->world->next_id;
	k->lane = world_lane_create(a);
	c = (struct wb_transfer_worker){
		.id = k->id,
		.object = "default/sim",
		.engine = k->engine_name,
		.name = k->name,
		.role = k->role,
		.manifest = k->world->manifest,
		.map = k->map,
		.place = k->place,
		.base = k->base,
		.lane = k->lane,
		.page = k->role == WB_ROLE_ROLLOUT ? k->page : NULL,
		.past = k->past,
	};
	c.past.is_torn = k->past.begun || k->phase == WORLD_BEFORE
				 ? k->was_torn
				 : k->phase == WORLD_TORN || k->phase == WORLD_INSTALL;
	world_must(wb_transfer_attach(a->core, &c, &err), &err);
	k->regions = (struct world_regions){.worker = k->id};
	world_region_add(a, &k->regions, k->memory, k->bytes);
	if (k->role == WB_ROLE_TRAINER) {
		if (k->image_life != a->life) /* it may be read when the worker has left */
			world_region_add(a, &(struct world_regions){0}, k->image, IMAGE_BYTES(k));
		k->image_life = a->life;
		wb_transfer_set_image(a->core, k->id, k->image, IMAGE_BYTES(k));
	}
	if (k->area) {
		struct wb_transfer_area area = {
			.head = (void *)k->area, .base = k->base + 1, .lane = k->lane};

		world_region_add(a, &k->regions, k->area, k->area_bytes);
		wb_transfer_set_area(a->core, k->id, &area);
	}
	if (k->phase == WORLD_PARKED) /* the restart released it from its stop */
		set_phase(k, WORLD_RUN);
}

static void on_attach(void *ctx)
{
	struct hook *h = ctx;
	struct world_worker *k = h->k;

	if (k->life == h->life && k->phase != WORLD_DOWN) {
		k->is_attaching = false;
		if (k->stall_until_ns > world_now(k->world)) {
			k->is_attaching = true;
			wb_sim_timer(k->world->net, k->stall_until_ns, on_attach, h);
			return;
		}
		/* In its collective it does not look at its socket. */
		if (k->world->o.deaf && k->phase == WORLD_RUN && k->role == WB_ROLE_ROLLOUT &&
			k->page && is_ahead(k)) {
			k->is_attaching = true;
			wb_sim_timer(
				k->world->net, world_now(k->world) + RECONNECT_NS, on_attach, h);
			return;
		}
		if (!k->id && k->world->agent[k->agent].alive)
			world_worker_attach(k);
	}
	free(h);
}

static void attach_later(struct world_worker *k)
{
	struct wb_sim_net *net = k->world->net;
	struct hook *h;

	if (k->is_attaching)
		return;
	h = calloc(1, sizeof(*h));
	*h = (struct hook){.k = k, .life = k->life};
	k->is_attaching = true;
	wb_sim_timer(net, world_now(k->world) + wb_rng_below(wb_sim_rng(net), RECONNECT_NS),
		on_attach, h);
}

void world_come_back(struct world_worker *k)
{
	if (!k->id && k->world->agent[k->agent].alive)
		attach_later(k);
}

/* Only the message was lost. */
static bool is_committed(const struct world_worker *k)
{
	const struct wb_area_head *h = (const struct wb_area_head *)(const void *)k->area;

	return h->transfer == k->transfer && h->held_transfer == k->transfer &&
	       wb_area_state(h) == WB_AREA_INSTALLED;
}

/* The agent is gone (or comes back): what the client makes of it. */
void world_worker_agent_lost(struct world_worker *k)
{
	const struct world_watch *x = &k->world->watch;
	bool is_touched = k->page && k->page->touched == k->transfer;

	if (k->world->agent[k->agent].alive) {
		if (!k->world->o.lazy_trainers || k->role != WB_ROLE_TRAINER ||
			k->phase != WORLD_RUN)
			attach_later(k);
		return;
	}
	k->id = 0;
	k->next_begin.transfer = 0;
	if (k->phase == WORLD_BEGUN && k->is_staged && !is_touched)
		set_phase(k, k->was_torn ? WORLD_TORN : WORLD_RUN);
	else if (k->phase == WORLD_INSTALLED && is_committed(k)) {
		k->past.done = k->transfer;
		k->past.done_at = k->begun_at;
		set_phase(k, WORLD_AFTER);
		run_hook(k);
	} else if (k->phase == WORLD_BEGUN || k->phase == WORLD_INSTALLED) {
		k->past.begun = k->transfer;
		k->past.begun_version = k->to_version;
		k->past.begun_at = k->begun_at;
		k->past.is_touched = k->phase == WORLD_INSTALLED || (is_touched && !k->is_staged);
		set_phase(k, WORLD_TORN);
	}
	if (!k->send_ns)
		let_go(k);
	if (k->send_ns) {
		k->send_ns = 0;
		k->held = false;
		k->send_state = WB_APP_SEND_FINAL;
		k->send_code = -ECONNRESET;
		snprintf(k->why, sizeof(k->why), "the agent went away");
		if (x->send_state)
			x->send_state(x->ctx, k);
	}
	k->send_transfer = 0; /* the next agent may give its number to another one */
}

void world_worker_create(struct world *w, uint32_t agent, enum wb_role role, uint32_t engine,
	uint32_t tp, uint32_t rank)
{
	struct world_worker *k = &w->worker[w->n_worker];
	char pod[sizeof(w->agent[0].name)];

	*k = (struct world_worker){.world = w,
		.index = w->n_worker++,
		.agent = agent,
		.role = role,
		.engine = engine,
		.tp = tp,
		.tp_rank = rank,
		.hook_ns = w->o.hook_ns,
		.poll_ns = w->o.poll_ns};
	snprintf(k->engine_name, sizeof(k->engine_name), "e%u", engine);
	memcpy(pod, w->agent[agent].name, sizeof(pod));
	snprintf(k->name, sizeof(k->name), "%s/worker %u", pod, k->index);
	world_make_map(k);
	if (role == WB_ROLE_TRAINER)
		k->image = wb_zalloc(1, IMAGE_BYTES(k));
	world_start_worker(w, k->index);
}

void world_start_worker(struct world *w, uint32_t worker)
{
	struct world_worker *k = &w->worker[worker];

	if (k->phase != WORLD_DOWN)
		return;
	k->memory = wb_zalloc(1, k->bytes);
	if (k->role == WB_ROLE_ROLLOUT && w->o.rollout_staged) {
		uint64_t bytes = k->bytes;

		k->area_bytes = wb_area_layout(&bytes, 1, NULL);
		k->area = wb_zalloc(1, k->area_bytes);
		wb_area_reset((void *)k->area, k->area_bytes);
	}
	k->life++;
	k->version = -1;
	k->changed_at = 0;
	k->was_torn = k->is_torn_final = k->is_attaching = false;
	k->next_begin.transfer = 0;
	k->past = (struct wb_transfer_past){0};
	k->send_state = 0;
	k->send_ns = 0;
	k->held = false;
	set_phase(k, WORLD_CONNECTING);
	if (w->agent[k->agent].alive)
		world_worker_attach(k);
}

void world_kill_worker(struct world *w, uint32_t worker)
{
	world_end_worker(w, worker, "exited (killed)");
}

void world_end_worker(struct world *w, uint32_t worker, const char *why)
{
	struct world_worker *k = &w->worker[worker];
	struct world_agent *a = &w->agent[k->agent];

	if (k->phase == WORLD_DOWN)
		return;
	set_phase(k, WORLD_DOWN);
	k->send_ns = 0;
	k->held = false;
	if (k->id && a->alive) {
		if (!wb_transfer_detach(a->core, k->id, why))
			a->leaving[a->n_leaving++] = k->regions;
		else
			world_regions_remove(a, &k->regions);
		world_after(a);
	}
	k->id = 0;
	junk_add(k, true);
	k->memory = k->area = NULL;
}

void world_worker_destroy(struct world_worker *k)
{
	k->phase = WORLD_DOWN;
	wb_lane_destroy(k->lane);
	wb_map_destroy(k->map);
	wb_free(k->place);
	wb_free(k->page);
	wb_free(k->base);
	wb_free(k->memory);
	wb_free(k->image);
	wb_free(k->area);
}

/* ---- trainers ----------------------------------------------------------------------------- */

void world_send_one(struct world_worker *k, int64_t version)
{
	const struct world_opts *o = &k->world->o;
	struct wb_msg_app_send m = {.version = version,
		.flags = (o->hold ? WB_APP_SEND_HOLD : 0) | (o->keep ? WB_APP_SEND_KEEP : 0)};

	k->held = false;
	k->before_transfer = k->send_transfer; /* its end, or that of its hold, may come yet */
	k->send_transfer = 0;
	k->send_state = 0;
	k->send_code = 0;
	k->send_ns = world_now(k->world);
	say(k, WBP_APP_SEND, &m);
}

void world_release_one(struct world_worker *k)
{
	struct wb_msg_app_release m = {.transfer = k->send_transfer};

	if (k->held)
		say(k, WBP_APP_RELEASE, &m);
}

void world_release(struct world *w)
{
	for (uint32_t i = 0; i < w->n_trainer; i++)
		world_release_one(&w->worker[i]);
}
