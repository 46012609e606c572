/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/sim_link.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WINDOW (4u << 20) /* bytes of a connection that have left and not arrived */

/* ---- events for the user ----------------------------------------------------------------------
 */

struct wb__sim_told *wb__sim_tell(struct wb__simx *x, const struct wb_xport_event *ev)
{
	struct wb__sim_told *t;

	t = wb_zalloc(1, sizeof(*t));
	assert(t); /* a simulation without memory has no meaning */
	t->ev = *ev;
	t->ev.at_ns = wb__sim_now(x->net);
	if (ev->info) {
		t->info = *ev->info;
		t->ev.info = &t->info;
	}
	if (ev->reason) {
		snprintf(t->reason, sizeof(t->reason), "%s", ev->reason);
		t->ev.reason = t->reason;
	}
	*x->tail = t;
	x->tail = &t->next;
	wb__sim_node_ready(x->net, x->node);
	return t;
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

/* Going round those that the link has at that side. */
static uint32_t rail_at(const struct wb__sim_link *l, int side, uint32_t socket)
{
	uint32_t rails = l->rails[side];

	if (!rails)
		return socket % l->node[side]->n_rail;
	for (socket %= (uint32_t)__builtin_popcount(rails); socket; socket--)
		rails &= rails - 1;
	return (uint32_t)__builtin_ctz(rails);
}

uint32_t wb__sim_rail_of(const struct wb__sim_end *e, uint32_t socket)
{
	return rail_at(e->link, e->side, socket);
}

struct wb__sim_end *wb__sim_end_create(
	struct wb__simx *x, struct wb__sim_link *l, int side, const char *peer)
{
	struct wb__sim_end *e = wb_zalloc(1, sizeof(*e));
	struct wb_xport_conn_info info = {.is_dialer = side == 0,
		.epoch = l->epoch.id,
		.n_socket = l->n_socket,
		.depth = l->depth};

	snprintf(info.peer, sizeof(info.peer), "%s", peer);
	if (e && side)
		e->theirs = wb_zalloc(2 * l->n_socket * l->n_slot, sizeof(*e->theirs));
	if (!e || (side && !e->theirs) ||
		wb__book_open(&x->desk.book, &e->a, &info, l->n_socket, l->n_slot * (side + 1u))) {
		wb_free(e ? e->theirs : NULL);
		wb_free(e);
		return NULL;
	}
	e->x = x;
	e->link = l;
	e->side = side;
	l->refs++;
	l->end[side] = e;
	l->node[side] = x->node;
	e->next = x->end;
	x->end = e;
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

static void end_free(struct wb__sim_end *e)
{
	struct wb__sim_end **p = &e->x->end;

	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	while (e->write)
		free_write(e->write);
	e->link->end[e->side] = NULL;
	link_put(e->link);
	wb__account_finish(&e->a);
	wb_free(e->theirs);
	wb_free(e);
}

/* The end of an end: everything it owes is told, or, when its process has died, not even that. */
static void end_down(struct wb__sim_end *e, int code, const char *reason, bool is_told)
{
	struct wb__simx *x = e->x;
	struct wb_xport_event ev = {0};
	struct wb__account *ended = NULL;

	for (uint32_t i = 0; !e->side && i < e->a.n_lane * e->a.n_slot; i++) {
		/* That event is on its way to the user. */
		if (e->a.op[i].state == WB__OP_CANCELLING)
			wb__book_ended(&e->a, &e->a.op[i], WB__CANCELLED, &ev);
	}
	wb__book_close(&e->a, code, reason);
	wb__book_down(&x->desk.book, &e->a);
	while (!ended) {
		ev = (struct wb_xport_event){0};
		wb__book_tell(&x->desk.book, &ev, &ended);
		if (is_told)
			wb__sim_tell(x, &ev);
	}
	end_free(e);
}

void wb__sim_end_down(struct wb__sim_end *e, int code, const char *reason)
{
	end_down(e, code, reason, true);
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

struct wb__sim_item *wb__sim_item_of(struct wb__sim_link *l, int side, enum wb__sim_what what,
	uint32_t socket, uint64_t id, size_t bytes)
{
	struct wb__sim_item *it = wb__sim_item_make(l, side, what, bytes);

	it->op = id;
	it->socket = socket;
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
		struct wb__sim_item *again =
			wb__sim_item_of(l, it->side, WB__SIM_GRANT, it->socket, it->op, 0);

		again->is_again = true;

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
	known = wb__book_epoch_find(&x->desk.book, &e->id);
	if (!known) {
		snprintf(text, cap, "agent %s refused: it does not know epoch %llu.%llu", x->name,
			(unsigned long long)e->id.term, (unsigned long long)e->id.number);
		return WB_ESTALE;
	}
	if (memcmp(known->key, e->key, sizeof(e->key))) {
		snprintf(text, cap, "agent %s does not hold our key of epoch %llu.%llu", x->name,
			(unsigned long long)e->id.term, (unsigned long long)e->id.number);
		return -EKEYREJECTED;
	}
	if (x->desk.book.n_conn >= x->desk.book.conns_max) {
		snprintf(text, cap, "agent %s refused: too many connections", x->name);
		return -ENOSPC;
	}
	return 0;
}

static void tell_up(struct wb__sim_end *e)
{
	struct wb_xport_event ev = {0};

	wb__book_up(&e->a, &ev);
	wb__sim_tell(e->x, &ev);
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
		tell_up(e);
	} else if (x && !x->is_dead) {
		struct wb_xport_event ev = {
			.kind = WB_XP_REJECTED, .code = answer->code, .reason = answer->text};

		x->stats[0].rejected++;
		wb__sim_tell(x, &ev);
	}
	wb__sim_item_send(net, answer);
}

static void on_welcome(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	if (it->code) {
		wb__sim_end_down(e, it->code, it->text);
		return;
	}
	tell_up(e);
}

/* ---- receiver ---------------------------------------------------------------------------------
 */

/* A grant that the source has answered, and as @ev says if its user waits for that. */
static void tell_ended(
	struct wb__sim_end *e, struct wb__op *op, enum wb__end end, struct wb_xport_event *ev)
{
	ev->conn = e->a.id;
	if (op->state == WB__OP_CANCELLING) /* CANCELLED is on its way to the user */
		wb__book_ended(&e->a, op, WB__CANCELLED, ev);
	if (op->state == WB__OP_CANCELLED)
		end = WB__RETIRED;
	if (wb__book_ended(&e->a, op, end, ev))
		wb__sim_tell(e->x, ev);
}

static void on_refuse(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__op *op = wb__book_op(&e->a, it->socket, it->op);
	struct wb_xport_event ev = {.code = it->code};

	if (op)
		tell_ended(e, op, WB__REFUSED, &ev);
}

/* The landing is full. */
static void arrived(struct wb__sim_end *e, struct wb__op *op, const struct wb__sim_item *it)
{
	struct wb_xport_event ev = {.rail = wb__sim_rail_of(e, it->socket)};

	memcpy(ev.trailer, it->trailer, sizeof(ev.trailer));
	e->x->stats[ev.rail].rx_chunks += op->state == WB__OP_OUT;
	tell_ended(e, op, WB__ARRIVED, &ev);
}

static void on_piece(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__op *op = wb__book_op(&e->a, it->socket, it->op);
	size_t at = 0;

	if (!op)
		return; /* the answer to a doubled grant */
	e->x->stats[wb__sim_rail_of(e, it->socket)].rx_bytes += it->bytes;
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
	if (it->what == WB__SIM_LAST)
		arrived(e, op, it);
}

static struct wb__sim_write *offered(struct wb__sim_end *e, uint32_t socket, uint64_t id)
{
	struct wb__sim_write *w = e ? e->write : NULL;

	while (w && !(w->is_offered && w->id == id && wb__book_lane(&e->a, w->op) == socket))
		w = w->next;
	return w;
}

static void on_offer(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__sim_write *w = offered(it->link->end[1], it->socket, it->op);
	struct wb__op *op = wb__book_op(&e->a, it->socket, it->op);

	if (!w)
		return; /* the source has gone, and this connection with it */
	if (op && op->state == WB__OP_OUT) {
		op->flip_bit = it->flip_bit;
		wb__op_take(op, w->op);
		e->x->stats[wb__sim_rail_of(e, it->socket)].rx_bytes += op->bytes;
		wb__sim_counts(e->x->net)->pulled++;
	}
	if (op)
		arrived(e, op, it);
	wb__sim_item_send(
		e->x->net, wb__sim_item_of(e->link, 1, WB__SIM_TAKEN, it->socket, it->op, 0));
}

/* ---- source -----------------------------------------------------------------------------------
 */

/* A free slot of ours.  There are twice as many as the receiver has: its own grants always find one
 * when what is doubled takes no more than half. */
static bool find_slot(const struct wb__sim_end *e, const struct wb__sim_item *it, uint32_t *slot)
{
	const struct wb__ask *ask = &e->a.ask[it->socket * e->a.n_slot];
	uint32_t n_free = 0;

	for (uint32_t i = e->a.n_slot; i--;) {
		if (ask[i].state != WB__ASK_NONE)
			continue;
		n_free++;
		*slot = i;
	}
	return n_free > (it->is_again ? e->a.n_slot / 2 : 0);
}

static void on_grant(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb_xport_event ev = {.conn = e->a.id};
	uint32_t slot = 0;
	int rc;

	if (!find_slot(e, it, &slot)) {
		assert(it->is_again);
		return;
	}
	e->theirs[it->socket * e->a.n_slot + slot] = it->op;
	rc = wb__book_asked(&e->a, it->socket, slot | ++e->n_ask << 16, &it->chunk, &ev);
	assert(rc > 0);
	wb__sim_tell(e->x, &ev);
}

void wb__sim_refuse(struct wb__sim_end *e, uint32_t socket, uint64_t id, int code)
{
	struct wb__sim_item *it = wb__sim_item_of(e->link, 0, WB__SIM_REFUSE, socket, id, 0);

	it->code = code;
	wb__sim_item_send(e->x->net, it);
}

/* Of a doubled grant only the later one: the other has yet to be answered. */
static void on_cancel(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb_xport_event ev = {.conn = e->a.id};
	uint64_t id = 0;

	for (uint32_t i = 0; i < e->a.n_slot; i++) {
		uint32_t k = it->socket * e->a.n_slot + i;

		if (e->a.ask[k].state == WB__ASK_OPEN && e->theirs[k] == it->op)
			id = WB_MAX(id, e->a.ask[k].id);
	}
	if (!id || !wb__book_gone(&e->a, it->socket, id, &ev))
		return;
	wb__sim_tell(e->x, &ev);
	wb__sim_refuse(e, it->socket, it->op, -ECANCELED);
}

static void tell_written(struct wb__sim_write *w)
{
	struct wb__sim_end *e = w->end;
	struct wb_xport_event ev = {.conn = e->a.id};

	wb__book_written(&e->x->desk.book, &e->a, w->op, 0, &ev);
	wb__sim_tell(e->x, &ev);
	free_write(w);
}

static void on_taken(struct wb__sim_end *e, const struct wb__sim_item *it)
{
	struct wb__sim_write *w = offered(e, it->socket, it->op);

	if (w)
		tell_written(w);
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

static struct wb__sim_rail *rail_of(const struct wb__sim_write *w)
{
	uint32_t socket = wb__book_lane(&w->end->a, w->op);

	return &w->end->x->node->rail[wb__sim_rail_of(w->end, socket)];
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
static uint64_t pass(const struct wb__sim_end *e, uint32_t socket, size_t bytes)
{
	struct wb__sim_link *l = e->link;
	struct wb__simx *x = e->x;
	struct wb__sim_rail *here = &x->node->rail[rail_at(l, 1, socket)],
			    *there = &l->node[0]->rail[rail_at(l, 0, socket)];
	uint64_t now = wb__sim_now(x->net), out, in, at;

	out = (uint64_t)((double)bytes * 1e9 / here->rate);
	in = (uint64_t)((double)bytes * 1e9 / there->rate);
	here->egress_free_ns = WB_MAX(now, here->egress_free_ns) + out;
	at = WB_MAX(here->egress_free_ns + wb__sim_latency(x->net), there->ingress_free_ns + in);
	there->ingress_free_ns = at;
	return at;
}

static struct wb__sim_item *item_of_write(
	const struct wb__sim_write *w, enum wb__sim_what what, size_t bytes)
{
	return wb__sim_item_of(
		w->end->link, 0, what, wb__book_lane(&w->end->a, w->op), w->id, bytes);
}

/* The bytes stay where they are; the receiver takes them when it hears of them. */
static void offer(struct wb__sim_write *w)
{
	struct wb__sim_end *e = w->end;
	struct wb__op *op = w->op;
	struct wb__sim_item *it = item_of_write(w, WB__SIM_OFFER, 0);

	wb__op_skip(op, &op->at, op->bytes);
	wb__op_observe(op, op->bytes, e->x->piece_bytes);
	if (op->trailer)
		op->trailer(op->ctx, it->trailer);
	it->off = op->bytes;
	w->is_offered = true;
	e->x->stats[wb__sim_rail_of(e, it->socket)].tx_bytes += op->bytes;
	e->x->stats[wb__sim_rail_of(e, it->socket)].tx_chunks++;
	item_send(e->x->net, it, pass(e, it->socket, op->bytes));
}

static void send_piece(struct wb__sim_write *w)
{
	struct wb__sim_end *e = w->end; /* outlives the write, which ends with its last piece */
	struct wb__simx *x = e->x;
	struct wb__op *op = w->op;
	size_t n = WB_MIN(wb__sim_piece(x->net), op->bytes - op->at.done), at = 0;
	struct wb__sim_item *it = item_of_write(w, WB__SIM_PIECE, n);

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
	x->stats[wb__sim_rail_of(e, it->socket)].tx_bytes += n;
	if (op->at.done == op->bytes) {
		it->what = WB__SIM_LAST;
		if (op->trailer)
			op->trailer(op->ctx, it->trailer);
		x->stats[wb__sim_rail_of(e, it->socket)].tx_chunks++;
		tell_written(w);
	} else {
		tx_queue(x, w);
	}
	item_send(x->net, it, pass(e, it->socket, n));
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
		if (x->desk.base.ops->caps & WB_XPORT_CAP_LOCAL)
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
		end_down(x->end, -ECONNABORTED, "killed", false);
	}
	x->is_dead = true;
}

void wb__sim_tx_add(struct wb__simx *x, struct wb__sim_write *w)
{
	tx_queue(x, w);
	tx_kick(x);
}
