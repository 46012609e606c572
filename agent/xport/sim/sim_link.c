/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/sim/sim_link.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CONNS_EVER (1u << 20) /* numbers of connections are not used again */
#define WINDOW (4u << 20) /* bytes of a connection that have left and not arrived */

/* ---- events for the user ----------------------------------------------------------------------
 */

struct wb_xport_event *wb__sim_tell(
	struct wb__simx *x, enum wb_xport_event_kind kind, const struct wb__sim_end *e, int code)
{
	struct wb__sim_told *t;

	t = wb_zalloc(1, sizeof(*t));
	assert(t); /* a simulation without memory has no meaning */
	t->ev.kind = kind;
	t->ev.code = code;
	t->ev.at_ns = wb__sim_now(x->net);
	if (e) {
		t->ev.conn = e->info.conn;
		t->info = e->info;
	}
	if (kind == WB_XP_CONN_UP || kind == WB_XP_CONN_DOWN)
		t->ev.info = &t->info;
	*x->tail = t;
	x->tail = &t->next;
	wb__sim_node_ready(x->net, x->node);
	return &t->ev;
}

void wb__sim_say(struct wb_xport_event *ev, const char *reason)
{
	struct wb__sim_told *t = wb_container_of(ev, struct wb__sim_told, ev);

	snprintf(t->reason, sizeof(t->reason), "%s", reason);
	ev->reason = t->reason;
}

void wb__sim_told_free(struct wb__sim_told *t)
{
	while (t) {
		struct wb__sim_told *next = t->next;

		wb_free(t);
		t = next;
	}
}

/* ---- links ------------------------------------------------------------------------------------
 */

static void link_put(struct wb__sim_link *l)
{
	if (!--l->refs)
		wb_free(l);
}

struct wb__sim_end *wb__sim_end_create(
	struct wb__simx *x, struct wb__sim_link *l, int side, const char *peer)
{
	struct wb__sim_end *e = wb_zalloc(1, sizeof(*e));

	if (!e || wb_grow(&x->by_conn, &x->cap_conn, x->next_conn + 2, CONNS_EVER,
			  sizeof(struct wb__sim_end *)) < 0) {
		wb_free(e);
		return NULL;
	}
	if (side == 0) {
		e->op = wb_zalloc(l->depth, sizeof(*e->op));
		if (!e->op) {
			wb_free(e);
			return NULL;
		}
	}
	e->x = x;
	e->link = l;
	e->side = side;
	e->info.conn = ++x->next_conn;
	x->by_conn[e->info.conn] = e;
	e->info.is_dialer = side == 0;
	e->info.object = l->epoch.object;
	e->info.term = l->epoch.term;
	e->info.number = l->epoch.number;
	e->info.n_socket = l->n_socket;
	e->info.depth = l->depth;
	snprintf(e->info.peer, sizeof(e->info.peer), "%s", peer);
	l->refs++;
	l->end[side] = e;
	l->node[side] = x->node;
	e->next = x->end;
	x->end = e;
	x->n_end++;
	return e;
}

static void unqueue(struct wb__simx *x, struct wb__sim_write *w)
{
	struct wb__sim_write **p = &x->tx_head;

	if (!w->is_queued)
		return;
	while (*p != w)
		p = &(*p)->tx_next;
	*p = w->tx_next;
	if (!*p)
		x->tx_tail = p;
	w->is_queued = false;
}

static void free_write(struct wb__sim_write *w)
{
	struct wb__sim_write **p = &w->end->write;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	unqueue(w->end->x, w);
	wb_free(w);
}

void wb__sim_end_free(struct wb__sim_end *e)
{
	struct wb__sim_end **p = &e->x->end;

	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	e->x->n_end--;
	e->x->by_conn[e->info.conn] = NULL;
	while (e->write)
		free_write(e->write);
	while (e->ask) {
		struct wb__sim_ask *a = e->ask;

		e->ask = a->next;
		wb_free(a);
	}
	e->link->end[e->side] = NULL;
	link_put(e->link);
	wb_free(e->op);
	wb_free(e);
}

/* The end of an end: everything it owes is told. */
void wb__sim_end_down(struct wb__sim_end *e, int code, const char *reason)
{
	struct wb__simx *x = e->x;

	for (uint32_t i = 0; e->op && i < e->link->depth; i++) {
		struct wb__op *op = &e->op[i];

		if (op->state == WB__OP_OUT)
			wb__sim_tell(x, WB_XP_LOST, e, code)->cookie = op->cookie;
	}
	for (struct wb__sim_write *w = e->write; w; w = w->next)
		wb__sim_tell(x, WB_XP_WRITE_DONE, e, code)->cookie = w->op.cookie;
	wb__sim_say(wb__sim_tell(x, WB_XP_CONN_DOWN, e, code), reason);
	wb__sim_end_free(e);
}

/* ---- items on a link --------------------------------------------------------------------------
 */

static void item_deliver(struct wb_sim_net *net, struct wb__sim_item *it);

static void item_drop(struct wb_sim_net *net, struct wb__sim_ev *ev)
{
	struct wb__sim_item *it = wb_container_of(ev, struct wb__sim_item, e);

	if (it->what == WB__SIM_CONNECT && it->e.to->is_dead && it->link->end[0]) {
		/* The node died before it could answer; its host says so. */
		struct wb__sim_item *no = wb__sim_item_make(it->link, 0, WB__SIM_WELCOME, 0);

		no->code = -ECONNREFUSED;
		snprintf(no->text, sizeof(no->text),
			"cannot connect to agent %.63s: nobody listens", it->text);
		wb__sim_item_send(net, no);
	}
	it->link->inflight -= it->bytes;
	link_put(it->link);
	wb_free(it);
}

static void item_run(struct wb_sim_net *net, struct wb__sim_ev *ev)
{
	struct wb__sim_item *it = wb_container_of(ev, struct wb__sim_item, e);

	if (it->what != WB__SIM_DOWN) {
		wb__sim_counts(net)->overtaken += it->number < it->link->newest[it->side];
		it->link->newest[it->side] = WB_MAX(it->number, it->link->newest[it->side]);
	}
	if (!it->link->is_cut || it->what == WB__SIM_DOWN)
		item_deliver(net, it);
	item_drop(net, ev);
}

struct wb__sim_item *wb__sim_item_make(
	struct wb__sim_link *l, int side, enum wb__sim_what what, size_t bytes)
{
	struct wb__sim_item *it = wb_alloc(sizeof(*it) + bytes);

	assert(it);
	memset(it, 0, sizeof(*it));
	it->e.run = item_run;
	it->e.drop = item_drop;
	it->e.to = l->node[side];
	it->link = l;
	it->side = side;
	it->what = what;
	it->bytes = bytes;
	it->number = ++l->sent;
	it->flip_bit = UINT64_MAX;
	l->refs++;
	l->inflight += bytes;
	return it;
}

struct wb__sim_item *wb__sim_item_of(
	struct wb__sim_link *l, int side, enum wb__sim_what what, uint64_t op, size_t bytes)
{
	struct wb__sim_item *it = wb__sim_item_make(l, side, what, bytes);

	it->op = op;
	it->socket = (uint32_t)(op % l->n_socket);
	return it;
}

static unsigned item_class(enum wb__sim_what what)
{
	switch (what) {
	case WB__SIM_CONNECT:
	case WB__SIM_WELCOME:
		return WB_SIM_CONNECT;
	case WB__SIM_GRANT:
	case WB__SIM_CANCEL:
	case WB__SIM_TAKEN:
		return WB_SIM_GRANT;
	default:
		return WB_SIM_DATA;
	}
}

static void link_cut(struct wb_sim_net *net, struct wb__sim_link *l)
{
	l->is_cut = true;
	for (int side = 0; side < 2; side++) {
		struct wb__sim_item *it;

		if (!l->node[side])
			continue;
		it = wb__sim_item_make(l, side, WB__SIM_DOWN, 0);
		it->code = -ECONNRESET;
		snprintf(it->text, sizeof(it->text), "the connection broke");
		wb__sim_schedule(net, &it->e, wb__sim_now(net) + wb__sim_latency(net));
	}
}

/* Takes @it.  @at_ns: when it is all there, if nothing goes wrong. */
static void item_send(struct wb_sim_net *net, struct wb__sim_item *it, uint64_t at_ns)
{
	struct wb__sim_link *l = it->link;
	struct wb__sim_fate fate = {0};
	uint64_t *last;

	if (it->what != WB__SIM_DOWN && l->node[0] && l->node[1])
		fate = wb__sim_fate(
			net, item_class(it->what), l->node[!it->side], l->node[it->side]);
	if (fate.is_dropped) {
		link_cut(net, l);
		item_drop(net, &it->e);
		return;
	}
	if (fate.is_flipped && it->what == WB__SIM_OFFER) {
		it->flip_bit = wb_rng_below(wb_sim_rng(net), it->off * 8);
	} else if (fate.is_flipped && it->bytes) {
		uint64_t bit = wb_rng_below(wb_sim_rng(net), it->bytes * 8);

		it->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	last = &l->last_ns[it->side][it->socket];
	at_ns = WB_MAX(WB_MAX(at_ns + fate.delay_ns, fate.hold_until_ns), *last);
	*last = at_ns;
	if (fate.is_doubled && it->what == WB__SIM_GRANT) {
		struct wb__sim_item *again = wb__sim_item_of(l, it->side, WB__SIM_GRANT, it->op, 0);

		again->number = it->number;
		again->chunk = it->chunk;
		wb__sim_schedule(net, &again->e, at_ns);
	}
	wb__sim_schedule(net, &it->e, at_ns);
}

void wb__sim_item_send(struct wb_sim_net *net, struct wb__sim_item *it)
{
	item_send(net, it, wb__sim_now(net) + wb__sim_latency(net));
}

/* ---- opening a connection ---------------------------------------------------------------------
 */

struct wb_xport_epoch *wb__sim_epoch_find(struct wb__simx *x, const struct wb_xport_epoch *e)
{
	for (uint32_t i = 0; i < x->n_epoch; i++) {
		struct wb_xport_epoch *k = &x->epoch[i];

		if (k->object == e->object && k->term == e->term && k->number == e->number)
			return k;
	}
	return NULL;
}

/* What the challenge would say: 0 or a code and a sentence. */
static int judge(struct wb__simx *x, const struct wb__sim_item *it, char *text, size_t cap)
{
	const struct wb_xport_epoch *e = &it->link->epoch, *known;

	if (!x || x->is_dead || !x->is_listening) {
		snprintf(text, cap, "cannot connect to agent %.63s: nobody listens", it->text);
		return -ECONNREFUSED;
	}
	if (strcmp(it->text, x->name)) {
		snprintf(text, cap, "agent %.63s refused: this is agent %s", it->text, x->name);
		return -EADDRNOTAVAIL;
	}
	known = wb__sim_epoch_find(x, e);
	if (!known) {
		snprintf(text, cap, "agent %s refused: it does not know epoch %llu.%llu", x->name,
			(unsigned long long)e->term, (unsigned long long)e->number);
		return WB_ESTALE;
	}
	if (memcmp(known->key, e->key, sizeof(e->key))) {
		snprintf(text, cap, "agent %s does not hold our key of epoch %llu.%llu", x->name,
			(unsigned long long)e->term, (unsigned long long)e->number);
		return -EKEYREJECTED;
	}
	if (x->n_end >= x->conns_max) {
		snprintf(text, cap, "agent %s refused: too many connections", x->name);
		return -ENOSPC;
	}
	return 0;
}

static void on_connect(struct wb_sim_net *net, struct wb__sim_item *it)
{
	struct wb__simx *x = it->e.to->x;
	struct wb__sim_item *answer = wb__sim_item_make(it->link, 0, WB__SIM_WELCOME, 0);
	struct wb__sim_end *e;

	answer->code = judge(x, it, answer->text, sizeof(answer->text));
	if (!answer->code) {
		e = wb__sim_end_create(x, it->link, 1, it->peer);
		assert(e);
		e->is_up = true;
		wb__sim_tell(x, WB_XP_CONN_UP, e, 0);
	} else if (x && !x->is_dead) {
		x->stats.rejected++;
		wb__sim_say(wb__sim_tell(x, WB_XP_REJECTED, NULL, answer->code), answer->text);
	}
	wb__sim_item_send(net, answer);
}

static void on_welcome(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	if (it->code) {
		wb__sim_end_down(e, it->code, it->text);
		return;
	}
	e->is_up = true;
	wb__sim_tell(e->x, WB_XP_CONN_UP, e, 0);
}

/* ---- receiver ---------------------------------------------------------------------------------
 */

static void op_free(struct wb__sim_end *e, struct wb__op *op)
{
	op->state = WB__OP_FREE;
	e->outstanding--;
}

static struct wb__op *op_find(struct wb__sim_end *e, uint64_t id)
{
	for (uint32_t i = 0; i < e->link->depth; i++) {
		if (e->op[i].state != WB__OP_FREE && e->op[i].id == id)
			return &e->op[i];
	}
	return NULL;
}

static void on_refuse(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__op *op = op_find(e, it->op);

	if (!op)
		return;
	if (op->state == WB__OP_OUT)
		wb__sim_tell(e->x, WB_XP_REFUSED, e, it->code)->cookie = op->cookie;
	op_free(e, op);
}

static void on_piece(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__op *op = op_find(e, it->op);
	size_t at = 0;

	if (!op)
		return; /* the answer to a doubled grant */
	e->x->stats.rx_bytes += it->bytes;
	while (op->state == WB__OP_OUT && at < it->bytes && op->at.done == it->off + at) {
		size_t len;
		uint8_t *p = wb__op_span(op, &op->at, &len);

		len = WB_MIN(len, it->bytes - at);
		memcpy(p, it->data + at, len);
		wb__op_skip(op, &op->at, len);
		at += len;
	}
	if (op->state == WB__OP_OUT)
		wb__op_observe(op, op->at.done, e->x->piece_bytes);
	if (it->what != WB__SIM_LAST)
		return;
	if (op->state == WB__OP_OUT) {
		struct wb_xport_event *ev = wb__sim_tell(e->x, WB_XP_ARRIVED, e, 0);

		ev->cookie = op->cookie;
		ev->rail = it->socket % e->x->node->n_rail;
		memcpy(ev->trailer, it->trailer, sizeof(ev->trailer));
		e->x->stats.rx_chunks++;
	}
	op_free(e, op);
}

static struct wb__sim_write *offered(struct wb__sim_end *e, uint64_t op)
{
	struct wb__sim_write *w = e ? e->write : NULL;

	while (w && !(w->is_offered && w->op.id == op))
		w = w->next;
	return w;
}

/* From one range of the source's to one of the landing, and looked at on the way. */
static void move(struct wb__op *op, const uint8_t *from, size_t n, uint64_t flip_bit)
{
	uint64_t at = op->at.done, flip = flip_bit / 8;
	bool is_flipped = flip >= at && flip < at + n;
	bool is_seen = !op->observe || op->seen.done == at;
	size_t len;
	uint8_t *to = wb__op_span(op, &op->at, &len);

	wb__op_skip(op, &op->at, n);
	if (op->copy && !is_flipped && is_seen) {
		op->copy(op->ctx, to, from, n, at);
		op->seen = op->at;
		return;
	}
	memcpy(to, from, n);
	if (is_flipped)
		to[flip - at] ^= (uint8_t)(1u << flip_bit % 8);
	wb__op_observe(op, op->at.done, UINT32_MAX);
}

static void take(struct wb__op *op, const struct wb__op *of, uint64_t flip_bit)
{
	struct wb__at at = {0};

	while (op->at.done < op->bytes) {
		size_t have, room;
		const uint8_t *from = wb__op_span(of, &at, &have);

		(void)wb__op_span(op, &op->at, &room);
		have = WB_MIN(have, room);
		move(op, from, have, flip_bit);
		wb__op_skip(of, &at, have);
	}
	if (op->copy)
		op->copy(op->ctx, NULL, NULL, 0, op->at.done);
}

static void on_offer(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__sim_write *w = offered(it->link->end[1], it->op);
	struct wb__op *op = op_find(e, it->op);

	if (!w)
		return; /* the source has gone, and this connection with it */
	if (op && op->state == WB__OP_OUT) {
		struct wb_xport_event *ev;

		take(op, &w->op, it->flip_bit);
		e->x->stats.rx_bytes += op->bytes;
		e->x->stats.rx_chunks++;
		wb__sim_counts(e->x->net)->pulled++;
		ev = wb__sim_tell(e->x, WB_XP_ARRIVED, e, 0);
		ev->cookie = op->cookie;
		ev->rail = it->socket % e->x->node->n_rail;
		memcpy(ev->trailer, it->trailer, sizeof(ev->trailer));
	}
	if (op)
		op_free(e, op);
	wb__sim_item_send(e->x->net, wb__sim_item_of(e->link, 1, WB__SIM_TAKEN, it->op, 0));
}

/* ---- source -----------------------------------------------------------------------------------
 */

static void on_grant(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__sim_ask *a = wb_zalloc(1, sizeof(*a));
	struct wb_xport_event *ev;

	assert(a);
	a->id = ++e->next_ask;
	a->op = it->op;
	a->bytes = it->chunk.bytes;
	a->next = e->ask;
	e->ask = a;
	ev = wb__sim_tell(e->x, WB_XP_GRANT, e, 0);
	ev->grant = a->id;
	ev->chunk = it->chunk;
}

struct wb__sim_ask **wb__sim_ask_find(struct wb__sim_end *e, uint64_t id, bool by_op)
{
	struct wb__sim_ask **p = &e->ask;

	while (*p && (by_op ? (*p)->op : (*p)->id) != id)
		p = &(*p)->next;
	return p;
}

void wb__sim_refuse(struct wb__sim_end *e, uint64_t op, int code)
{
	struct wb__sim_item *it = wb__sim_item_of(e->link, 0, WB__SIM_REFUSE, op, 0);

	it->code = code;
	wb__sim_item_send(e->x->net, it);
}

static void on_cancel(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__sim_ask **p = wb__sim_ask_find(e, it->op, true), *a = *p;

	if (!a)
		return;
	wb__sim_tell(e->x, WB_XP_GRANT_GONE, e, 0)->grant = a->id;
	*p = a->next;
	wb_free(a);
	wb__sim_refuse(e, it->op, -ECANCELED);
}

static void on_taken(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__sim_write *w = offered(e, it->op);

	if (!w)
		return;
	wb__sim_tell(e->x, WB_XP_WRITE_DONE, e, 0)->cookie = w->op.cookie;
	free_write(w);
}

struct tick {
	struct wb__sim_ev e;
	struct wb__simx *x; /* not used when the node is dead */
};

static void tx_queue(struct wb__simx *x, struct wb__sim_write *w)
{
	w->tx_next = NULL;
	w->is_queued = true;
	*x->tx_tail = w;
	x->tx_tail = &w->tx_next;
}

static void tick_drop(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	(void)net;
	if (e->to->x)
		e->to->x->is_tx_due = false;
	wb_free(wb_container_of(e, struct tick, e));
}

static void tx_run(struct wb__simx *x);

static void tick_run(struct wb_sim_net *net, struct wb__sim_ev *e)
{
	struct wb__simx *x = e->to->x;

	tick_drop(net, e);
	if (x)
		tx_run(x);
}

static struct wb__sim_rail *rail_at(struct wb__sim_node *n, uint32_t socket)
{
	return &n->rail[socket % n->n_rail];
}

static struct wb__sim_rail *rail_of(const struct wb__sim_write *w)
{
	return rail_at(w->end->x->node, (uint32_t)(w->op.id % w->end->link->n_socket));
}

/* The next piece leaves when the last one has, of its rail. */
static void tx_kick(struct wb__simx *x)
{
	uint64_t free_ns = UINT64_MAX;
	struct tick *t;

	if (x->is_tx_due || !x->tx_head || x->is_dead)
		return;
	for (const struct wb__sim_write *w = x->tx_head; w; w = w->tx_next)
		free_ns = WB_MIN(free_ns, rail_of(w)->egress_free_ns);
	t = wb_zalloc(1, sizeof(*t));
	assert(t);
	t->e.run = tick_run;
	t->e.drop = tick_drop;
	t->e.to = x->node;
	x->is_tx_due = true;
	wb__sim_schedule(x->net, &t->e, free_ns);
}

/* A piece passes our egress, the latency, and the receiver's ingress. */
static uint64_t pass(struct wb__simx *x, struct wb__sim_node *to, uint32_t socket, size_t bytes)
{
	struct wb__sim_rail *here = rail_at(x->node, socket), *there = rail_at(to, socket);
	uint64_t now = wb__sim_now(x->net), out, in, at;

	out = (uint64_t)((double)bytes * 1e9 / here->rate);
	in = (uint64_t)((double)bytes * 1e9 / there->rate);
	here->egress_free_ns = WB_MAX(now, here->egress_free_ns) + out;
	at = WB_MAX(here->egress_free_ns + wb__sim_latency(x->net), there->ingress_free_ns + in);
	there->ingress_free_ns = at;
	return at;
}

/* The bytes stay where they are; the receiver takes them when it hears of them. */
static void offer(struct wb__sim_write *w)
{
	struct wb__sim_end *e = w->end;
	struct wb__sim_item *it = wb__sim_item_of(e->link, 0, WB__SIM_OFFER, w->op.id, 0);

	for (size_t len; w->op.at.done < w->op.bytes; wb__op_skip(&w->op, &w->op.at, len))
		(void)wb__op_span(&w->op, &w->op.at, &len);
	wb__op_observe(&w->op, w->op.bytes, e->x->piece_bytes);
	if (w->op.trailer)
		w->op.trailer(w->op.ctx, it->trailer);
	it->off = w->op.bytes;
	w->is_offered = true;
	e->x->stats.tx_bytes += w->op.bytes;
	e->x->stats.tx_chunks++;
	item_send(e->x->net, it, pass(e->x, it->link->node[0], it->socket, w->op.bytes));
}

static void send_piece(struct wb__sim_write *w)
{
	struct wb__sim_end *e = w->end;
	struct wb__simx *x = e->x;
	struct wb__op *op = &w->op;
	size_t n = WB_MIN(wb__sim_piece(x->net), op->bytes - op->at.done), at = 0;
	struct wb__sim_item *it = wb__sim_item_of(e->link, 0, WB__SIM_PIECE, op->id, n);

	it->off = op->at.done;
	while (at < n) {
		size_t len;
		uint8_t *p = wb__op_span(op, &op->at, &len);

		len = WB_MIN(len, n - at);
		memcpy(it->data + at, p, len);
		wb__op_skip(op, &op->at, len);
		at += len;
	}
	wb__op_observe(op, op->at.done, x->piece_bytes);
	x->stats.tx_bytes += n;
	if (op->at.done == op->bytes) {
		it->what = WB__SIM_LAST;
		if (op->trailer)
			op->trailer(op->ctx, it->trailer);
		x->stats.tx_chunks++;
		wb__sim_tell(x, WB_XP_WRITE_DONE, e, 0)->cookie = op->cookie;
		free_write(w);
	} else {
		tx_queue(x, w);
	}
	item_send(x->net, it, pass(x, it->link->node[0], it->socket, n));
}

static void tx_run(struct wb__simx *x)
{
	struct wb__sim_write *w;
	bool is_full = false;

	for (w = x->tx_head; w; w = w->tx_next) {
		bool is_free = rail_of(w)->egress_free_ns <= wb__sim_now(x->net);

		is_full |= is_free && w->end->link->inflight >= WINDOW;
		if (is_free && w->end->link->inflight < WINDOW)
			break;
	}
	if (!w && is_full)
		return; /* an arrival kicks */
	if (w) {
		unqueue(x, w);
		if (x->base.ops->caps & WB_XPORT_CAP_LOCAL)
			offer(w);
		else
			send_piece(w);
	}
	tx_kick(x);
}

/* ---- delivery and ends ------------------------------------------------------------------------
 */

static void item_deliver(struct wb_sim_net *net, struct wb__sim_item *it)
{
	struct wb__sim_end *e = it->link->end[it->side];
	struct wb__sim_node *source = it->link->node[1];

	if (it->what == WB__SIM_CONNECT) {
		on_connect(net, it);
		return;
	}
	if ((it->what == WB__SIM_PIECE || it->what == WB__SIM_LAST) && source->x)
		tx_kick(source->x);
	if (!e)
		return; /* closed here meanwhile */
	switch (it->what) {
	case WB__SIM_WELCOME:
		on_welcome(e, it);
		break;
	case WB__SIM_DOWN:
		wb__sim_end_down(e, it->code, it->text);
		break;
	case WB__SIM_GRANT:
		on_grant(e, it);
		break;
	case WB__SIM_CANCEL:
		on_cancel(e, it);
		break;
	case WB__SIM_REFUSE:
		on_refuse(e, it);
		break;
	case WB__SIM_OFFER:
		on_offer(e, it);
		break;
	case WB__SIM_TAKEN:
		on_taken(e, it);
		break;
	default:
		on_piece(e, it);
		break;
	}
}

/* Tell the other end that this one is gone, after all that was sent. */
void wb__sim_say_down(struct wb__sim_end *e)
{
	struct wb__sim_link *l = e->link;
	struct wb__sim_item *it;

	if (!l->node[!e->side])
		return;
	it = wb__sim_item_make(l, !e->side, WB__SIM_DOWN, 0);
	/* Whichever socket's end is seen first. */
	if (l->n_socket > 1)
		it->socket = (uint32_t)wb_rng_below(wb_sim_rng(e->x->net), l->n_socket);
	it->code = -ECONNRESET;
	snprintf(it->text, sizeof(it->text), "agent %s closed the connection", e->x->name);
	wb__sim_item_send(e->x->net, it);
}

void wb__simx_kill(struct wb__simx *x)
{
	while (x->end) {
		wb__sim_say_down(x->end);
		wb__sim_end_free(x->end);
	}
	x->is_dead = true;
}

void wb__sim_tx_add(struct wb__simx *x, struct wb__sim_write *w)
{
	tx_queue(x, w);
	tx_kick(x);
}
