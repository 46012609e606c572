/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/mem.h"
#include "tests/common/sim_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define START_NS WB_NS_PER_S
#define LATENCY_NS (20 * WB_NS_PER_US)
#define BYTES_PER_S 10000000000.0
#define RULES_MAX 64
#define EVENTS_MAX (1u << 24)
#define MESSAGE_MAX (64u << 20)
#define PIECE_BYTES (256u << 10)
#define PIPE_BUCKETS 8192

struct rule {
	struct wb_sim_fault f;
	char from[WB__SIM_NAME_MAX], to[WB__SIM_NAME_MAX];
	uint64_t matches;
};

/* Messages between two nodes.  What was sent in an older incarnation is gone. */
struct pipe {
	struct wb__sim_node *a, *b;
	uint64_t incarnation;
	uint64_t last_ns[2]; /* delivery of the last message a -> b, b -> a */
	struct pipe *next, *same; /* all; those of its bucket */
};

struct wb_sim_net {
	struct wb_fake_clock clock;
	struct wb_rng rng;
	uint64_t latency_ns, jitter_ns;
	double rate;
	uint32_t caps;
	size_t piece_bytes;
	struct wb_sim_counts counts;
	struct wb__sim_ev **heap;
	size_t n_heap, cap_heap;
	uint64_t seq, n_timer, hits;
	struct timer **timer; /* by place; NULL = free.  Its number says place and how many came */
	size_t n_place, cap_place, hint;
	struct wb__sim_node *node;
	struct pipe *pipe, *bucket[PIPE_BUCKETS];
	struct rule rule[RULES_MAX];
	uint32_t n_rule;
};

/* ---- the queue --------------------------------------------------------------------------------
 */

static bool before(const struct wb__sim_ev *a, const struct wb__sim_ev *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void put(struct wb_sim_net *net, size_t i, struct wb__sim_ev *e)
{
	net->heap[i] = e;
	e->heap_at = i;
}

static void sift_down(struct wb_sim_net *net, size_t i, struct wb__sim_ev *e)
{
	size_t k;

	while ((k = 2 * i + 1) < net->n_heap) {
		if (k + 1 < net->n_heap && before(net->heap[k + 1], net->heap[k]))
			k++;
		if (!before(net->heap[k], e))
			break;
		put(net, i, net->heap[k]);
		i = k;
	}
	put(net, i, e);
}

/* Into the free place @i, or above it. */
static void sift_up(struct wb_sim_net *net, size_t i, struct wb__sim_ev *e)
{
	while (i && before(e, net->heap[(i - 1) / 2])) {
		put(net, i, net->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	put(net, i, e);
}

static void push(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	sift_up(net, net->n_heap++, e);
}

static void take_out(struct wb_sim_net *net, size_t i)
{
	struct wb__sim_ev *last = net->heap[--net->n_heap];

	if (i == net->n_heap)
		return;
	if (i && before(last, net->heap[(i - 1) / 2]))
		sift_up(net, i, last);
	else
		sift_down(net, i, last);
}

static struct wb__sim_ev *pop(struct wb_sim_net *net)
{
	struct wb__sim_ev *e = net->heap[0];

	take_out(net, 0);
	return e;
}

int wb__sim_schedule(struct wb_sim_net *net, struct wb__sim_ev *e, uint64_t at_ns)
{
	int rc = wb_grow(
		&net->heap, &net->cap_heap, net->n_heap + 1, EVENTS_MAX, sizeof(*net->heap));

	if (rc) {
		e->drop(net, e);
		return rc;
	}
	e->at_ns = WB_MAX(at_ns, net->clock.now);
	e->seq = net->seq++;
	push(net, e);
	return 0;
}

bool wb_sim_step(struct wb_sim_net *net)
{
	struct wb__sim_ev *e;

	if (!net->n_heap)
		return false;
	e = pop(net);
	assert(e->at_ns >= net->clock.now);
	net->clock.now = e->at_ns;
	if (e->to && e->to->is_dead) {
		e->drop(net, e);
	} else if (e->to && e->to->stall_until_ns > e->at_ns) {
		e->at_ns = e->to->stall_until_ns; /* its number keeps its place */
		push(net, e);
	} else {
		e->run(net, e);
	}
	return true;
}

uint64_t wb_sim_run(struct wb_sim_net *net, uint64_t until_ns)
{
	uint64_t n = 0;

	while (net->n_heap && net->heap[0]->at_ns <= until_ns) {
		wb_sim_step(net);
		n++;
	}
	net->clock.now = WB_MAX(net->clock.now, until_ns);
	return n;
}

/* ---- the net ----------------------------------------------------------------------------------
 */

int wb_sim_net_create(const struct wb_sim_opts *o, struct wb_sim_net **out)
{
	struct wb_sim_net *net = wb_zalloc(1, sizeof(*net));

	if (!net)
		return -ENOMEM;
	wb_xport_register(&wb__xport_sim);
	wb_fake_clock_init(&net->clock, START_NS);
	net->rng.state = wb_mix64(o->seed);
	net->latency_ns = o->latency_ns ? o->latency_ns : LATENCY_NS;
	net->jitter_ns = o->jitter_ns;
	net->rate = o->bytes_per_s ? (double)o->bytes_per_s : BYTES_PER_S;
	net->caps = o->caps;
	net->piece_bytes = o->piece_bytes ? o->piece_bytes : PIECE_BYTES;
	*out = net;
	return 0;
}

void wb_sim_net_destroy(struct wb_sim_net *net)
{
	if (!net)
		return;
	while (net->n_heap) {
		struct wb__sim_ev *e = pop(net);

		e->drop(net, e);
	}
	while (net->node) {
		struct wb__sim_node *n = net->node;

		net->node = n->next;
		wb_free(n);
	}
	while (net->pipe) {
		struct pipe *p = net->pipe;

		net->pipe = p->next;
		wb_free(p);
	}
	wb_free(net->timer);
	wb_free(net->heap);
	wb_free(net);
}

const struct wb_clock *wb_sim_clock(const struct wb_sim_net *net)
{
	return &net->clock.clock;
}

struct wb_rng *wb_sim_rng(struct wb_sim_net *net)
{
	return &net->rng;
}

uint64_t wb__sim_now(const struct wb_sim_net *net)
{
	return net->clock.now;
}

uint64_t wb__sim_latency(struct wb_sim_net *net)
{
	return net->latency_ns + (net->jitter_ns ? wb_rng_below(&net->rng, net->jitter_ns) : 0);
}

double wb__sim_rate(const struct wb_sim_net *net)
{
	return net->rate;
}

uint32_t wb__sim_caps(const struct wb_sim_net *net)
{
	return net->caps;
}

size_t wb__sim_piece(const struct wb_sim_net *net)
{
	return net->piece_bytes;
}

struct wb_sim_counts *wb__sim_counts(struct wb_sim_net *net)
{
	return &net->counts;
}

const struct wb_sim_counts *wb_sim_counts(const struct wb_sim_net *net)
{
	return &net->counts;
}

/* ---- timers -----------------------------------------------------------------------------------
 */

struct timer {
	struct wb__sim_ev e;
	uint64_t id;
	wb_sim_timer_fn fn; /* NULL: cancelled */
	void *ctx;
};

#define TIMER_PLACES (1u << 20)

static void timer_drop(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	struct timer *t = wb_container_of(e, struct timer, e);

	net->hint = t->id % TIMER_PLACES;
	net->timer[net->hint] = NULL;
	wb_free(t);
}

/* -1: no memory, or all places are taken. */
static int timer_place(struct wb_sim_net *net, struct timer *t)
{
	size_t at = net->hint;

	while (at < net->n_place && net->timer[at])
		at++;
	if (at >= net->n_place) {
		at = net->n_place;
		if (wb_grow(&net->timer, &net->cap_place, at + 1, TIMER_PLACES,
			    sizeof(*net->timer)) < 0)
			return -1;
		net->n_place++;
	}
	net->timer[at] = t;
	net->hint = at + 1;
	t->id = ++net->n_timer * TIMER_PLACES + at;
	return 0;
}

static void timer_run(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	struct timer t = *wb_container_of(e, struct timer, e);

	timer_drop(net, e);
	if (t.fn)
		t.fn(t.ctx);
}

uint64_t wb_sim_timer(struct wb_sim_net *net, uint64_t at_ns, wb_sim_timer_fn fn, void *ctx)
{
	struct timer *t = wb_zalloc(1, sizeof(*t));
	uint64_t id;

	if (!t || timer_place(net, t) < 0) {
		wb_free(t);
		return 0;
	}
	id = t->id;
	t->e.run = timer_run;
	t->e.drop = timer_drop;
	t->fn = fn;
	t->ctx = ctx;
	return wb__sim_schedule(net, &t->e, at_ns) ? 0 : id;
}

void wb_sim_timer_cancel(struct wb_sim_net *net, uint64_t id)
{
	size_t at = id % TIMER_PLACES;

	if (!id || at >= net->n_place || !net->timer[at] || net->timer[at]->id != id)
		return;
	/* Out of the queue, so that a net with only cancelled timers has come to rest. */
	take_out(net, net->timer[at]->e.heap_at);
	timer_drop(net, &net->timer[at]->e);
}

/* ---- faults -----------------------------------------------------------------------------------
 */

int wb_sim_fault_add(struct wb_sim_net *net, const struct wb_sim_fault *f)
{
	struct rule *r;

	if (net->n_rule == RULES_MAX)
		return -ENOSPC;
	r = &net->rule[net->n_rule++];
	memset(r, 0, sizeof(*r));
	r->f = *f;
	snprintf(r->from, sizeof(r->from), "%s", f->from ? f->from : "");
	snprintf(r->to, sizeof(r->to), "%s", f->to ? f->to : "");
	return 0;
}

void wb_sim_faults_clear(struct wb_sim_net *net)
{
	net->n_rule = 0;
}

uint64_t wb_sim_hits(const struct wb_sim_net *net)
{
	return net->hits;
}

/* @rule: "" = any, "e1-*" = whatever begins so. */
static bool is_named(const char *rule, const char *name)
{
	size_t n = strlen(rule);

	if (n && rule[n - 1] == '*')
		return !strncmp(rule, name, n - 1);
	return !n || !strcmp(rule, name);
}

static bool applies(
	struct wb_sim_net *net, struct rule *r, unsigned item, const char *from, const char *to)
{
	uint64_t now = net->clock.now;

	if ((r->f.items && !(r->f.items & item)) || !is_named(r->from, from) ||
		!is_named(r->to, to) || now < r->f.from_ns ||
		(r->f.until_ns && now >= r->f.until_ns))
		return false;
	r->matches++;
	if (r->f.nth && r->matches != r->f.nth)
		return false;
	return !r->f.ppm || wb_rng_below(&net->rng, 1000000) < r->f.ppm;
}

struct wb__sim_fate wb__sim_fate(
	struct wb_sim_net *net, unsigned item, struct wb__sim_node *from, struct wb__sim_node *to)
{
	struct wb__sim_fate fate = {0};

	for (uint32_t i = 0; i < net->n_rule; i++) {
		struct rule *r = &net->rule[i];

		if (!applies(net, r, item, from->name, to->name))
			continue;
		net->hits++;
		if (r->f.hits)
			++*r->f.hits;
		switch (r->f.kind) {
		case WB_SIM_DROP:
			fate.is_dropped = true;
			break;
		case WB_SIM_DELAY:
			fate.delay_ns += r->f.ns ? wb_rng_below(&net->rng, r->f.ns) + 1 : 0;
			break;
		case WB_SIM_REORDER:
			fate.late_ns += r->f.ns ? wb_rng_below(&net->rng, r->f.ns) + 1 : 0;
			break;
		case WB_SIM_DUP:
			fate.is_doubled = true;
			break;
		case WB_SIM_FLIP:
			fate.is_flipped = true;
			break;
		case WB_SIM_STALL:
			to->stall_until_ns = WB_MAX(to->stall_until_ns, net->clock.now + r->f.ns);
			break;
		case WB_SIM_PARTITION:
			fate.hold_until_ns = r->f.until_ns ? r->f.until_ns : UINT64_MAX / 2;
			break;
		case WB_SIM_KILL:
			wb_sim_node_kill(net, to->name);
			break;
		}
	}
	return fate;
}

/* ---- nodes ------------------------------------------------------------------------------------
 */

struct wb__sim_node *wb__sim_node_find(struct wb_sim_net *net, const char *name)
{
	for (struct wb__sim_node *n = net->node; n; n = n->next) {
		if (!n->is_dead && !strcmp(n->name, name))
			return n;
	}
	return NULL;
}

struct wb__sim_node *wb__sim_node_get(struct wb_sim_net *net, const char *name)
{
	struct wb__sim_node *n = wb__sim_node_find(net, name);

	if (n)
		return n;
	n = wb_zalloc(1, sizeof(*n));
	if (!n)
		return NULL;
	snprintf(n->name, sizeof(n->name), "%s", name);
	n->n_rail = 1;
	n->rail[0].rate = net->rate;
	n->next = net->node;
	net->node = n;
	return n;
}

int wb_sim_node_add(
	struct wb_sim_net *net, const char *name, const struct wb_sim_node_ops *ops, void *ctx)
{
	struct wb__sim_node *n;

	if (!name || !*name || strlen(name) >= WB__SIM_NAME_MAX)
		return -EINVAL;
	n = wb__sim_node_get(net, name);
	if (!n)
		return -ENOMEM;
	if (n->ops)
		return -EEXIST;
	n->ops = ops;
	n->ctx = ctx;
	return 0;
}

struct ready {
	struct wb__sim_ev e;
};

static void ready_drop(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	(void)net;
	e->to->is_ready_due = false;
	wb_free(wb_container_of(e, struct ready, e));
}

static void ready_run(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	struct wb__sim_node *n = e->to;

	ready_drop(net, e);
	if (n->ops && n->ops->on_ready)
		n->ops->on_ready(n->ctx);
}

void wb__sim_node_ready(struct wb_sim_net *net, struct wb__sim_node *n)
{
	struct ready *r;

	if (n->is_ready_due || n->is_dead)
		return;
	r = wb_zalloc(1, sizeof(*r));
	if (!r)
		return;
	r->e.run = ready_run;
	r->e.drop = ready_drop;
	r->e.to = n;
	n->is_ready_due = true;
	wb__sim_schedule(net, &r->e, net->clock.now);
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static struct pipe *pipe_find(
	struct wb_sim_net *net, struct wb__sim_node *a, struct wb__sim_node *b, bool make)
{
	uintptr_t both = (uintptr_t)a + (uintptr_t)b; /* the same either way */
	struct pipe **at = &net->bucket[wb_mix64(both) % PIPE_BUCKETS], *p;

	for (p = *at; p; p = p->same) {
		if ((p->a == a && p->b == b) || (p->a == b && p->b == a))
			return p;
	}
	p = make ? wb_zalloc(1, sizeof(*p)) : NULL;
	if (!p)
		return NULL;
	p->a = a;
	p->b = b;
	p->next = net->pipe;
	net->pipe = p;
	p->same = *at;
	*at = p;
	return p;
}

struct message {
	struct wb__sim_ev e;
	struct pipe *pipe; /* NULL: only tell that @from is down */
	uint64_t incarnation;
	char from[WB__SIM_NAME_MAX];
	size_t bytes;
	uint8_t data[];
};

static void message_drop(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	(void)net;
	wb_free(wb_container_of(e, struct message, e));
}

static void message_run(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	struct message *m = wb_container_of(e, struct message, e);
	struct wb__sim_node *n = e->to;

	if (!m->pipe) {
		if (n->ops && n->ops->on_peer_down)
			n->ops->on_peer_down(n->ctx, m->from);
	} else if (m->incarnation == m->pipe->incarnation) {
		if (n->ops && n->ops->on_message)
			n->ops->on_message(n->ctx, m->from, m->data, m->bytes);
	}
	message_drop(net, e);
}

static struct message *message_make(
	const char *from, struct wb__sim_node *to, const void *data, size_t bytes)
{
	struct message *m = wb_alloc(sizeof(*m) + bytes);

	if (!m)
		return NULL;
	memset(m, 0, sizeof(*m));
	snprintf(m->from, sizeof(m->from), "%s", from);
	m->e.run = message_run;
	m->e.drop = message_drop;
	m->e.to = to;
	m->bytes = bytes;
	if (bytes)
		memcpy(m->data, data, bytes);
	return m;
}

static void tell_down(struct wb_sim_net *net, const char *peer, struct wb__sim_node *to)
{
	struct message *m = message_make(peer, to, NULL, 0);

	if (m)
		wb__sim_schedule(net, &m->e, net->clock.now + wb__sim_latency(net));
}

static void pipe_break(struct wb_sim_net *net, struct pipe *p)
{
	p->incarnation++;
	tell_down(net, p->a->name, p->b);
	tell_down(net, p->b->name, p->a);
}

int wb_sim_send(
	struct wb_sim_net *net, const char *from, const char *to, const void *data, size_t bytes)
{
	struct wb__sim_node *a = wb__sim_node_find(net, from), *b = wb__sim_node_find(net, to);
	struct wb__sim_fate fate;
	struct pipe *p;
	uint64_t at, *last;

	if (!a)
		return -ENOENT;
	if (bytes > MESSAGE_MAX)
		return -EMSGSIZE;
	if (!b) {
		tell_down(net, to, a);
		return 0;
	}
	p = pipe_find(net, a, b, true);
	if (!p)
		return -ENOMEM;
	fate = wb__sim_fate(net, WB_SIM_MSG, a, b);
	if (a->is_dead || b->is_dead)
		return 0; /* a kill rule has told the living */
	if (fate.is_dropped) {
		pipe_break(net, p);
		return 0;
	}
	last = &p->last_ns[a == p->b];
	at = net->clock.now + wb__sim_latency(net) + fate.delay_ns +
	     (uint64_t)((double)bytes * 1e9 / net->rate);
	at = WB_MAX(WB_MAX(at, fate.hold_until_ns), *last);
	*last = at;
	for (int i = 0; i < 1 + fate.is_doubled; i++) {
		struct message *m = message_make(from, b, data, bytes);

		if (!m)
			return -ENOMEM;
		m->pipe = p;
		m->incarnation = p->incarnation;
		if (wb__sim_schedule(net, &m->e, at + (i == fate.is_doubled ? fate.late_ns : 0)))
			return -ENOMEM;
	}
	return 0;
}

void wb_sim_node_kill(struct wb_sim_net *net, const char *name)
{
	struct wb__sim_node *n = wb__sim_node_find(net, name);

	if (!n)
		return;
	for (struct pipe *p = net->pipe; p; p = p->next) {
		if (p->a == n || p->b == n)
			pipe_break(net, p);
	}
	if (n->x)
		wb__simx_kill(n->x);
	n->is_dead = true;
	n->ops = NULL;
}

void wb_sim_node_stall(struct wb_sim_net *net, const char *name, uint64_t ns)
{
	struct wb__sim_node *n = wb__sim_node_find(net, name);

	if (n)
		n->stall_until_ns = WB_MAX(n->stall_until_ns, net->clock.now + ns);
}

void wb_sim_pipe_cut(struct wb_sim_net *net, const char *a, const char *b)
{
	struct wb__sim_node *x = wb__sim_node_find(net, a), *y = wb__sim_node_find(net, b);
	struct pipe *p = x && y ? pipe_find(net, x, y, false) : NULL;

	if (p)
		pipe_break(net, p);
}
