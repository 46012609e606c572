/* SPDX-License-Identifier: Apache-2.0 */
/* What rails say becomes what the user is told. */
#include "xport/conn.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void free_sock(struct wb__sock *s)
{
	struct wb__cmd c = {.kind = WB__CMD_FREE, .sock = s};

	wb__cmd_must(s->rail, &c);
}

static void close_sock(struct wb__sock *s, int code)
{
	struct wb__cmd c = {.kind = WB__CMD_CLOSE, .sock = s, .code = code};

	wb__cmd_must(s->rail, &c);
}

static uint32_t sock_index(const struct wb__conn *c, const struct wb__sock *s)
{
	for (uint32_t i = 0; i < c->info.n_socket; i++) {
		if (c->sock[i] == s)
			return i;
	}
	return WB_XPORT_SOCKETS_MAX;
}

static void free_op(struct wb__conn *c, struct wb__op *op)
{
	uint32_t k = (uint32_t)(op - c->op), i = k / c->n_slot;

	op->state = WB__OP_FREE;
	c->load[i] -= op->bytes;
	c->outstanding--;
	c->free_slot[i * c->n_slot + c->n_free[i]++] = (uint16_t)(k % c->n_slot);
}

/* ---- connections ------------------------------------------------------------------------------
 */

static struct wb__conn *find_session(struct wb__sx *x, const struct wb__hello *h)
{
	for (uint32_t i = 0; i < x->conn_cap; i++) {
		struct wb__conn *c = x->conn[i];

		if (c && !c->info.is_dialer && c->state == WB__C_OPENING &&
			c->session == h->session && c->info.object == h->object &&
			c->info.term == h->term && c->info.number == h->number &&
			!strcmp(c->info.peer, h->dialer))
			return c;
	}
	return NULL;
}

static bool tell_up(struct wb__conn *c, struct wb_xport_event *ev)
{
	c->state = WB__C_UP;
	c->was_announced = true;
	ev->kind = WB_XP_CONN_UP;
	ev->info = &c->info;
	return true;
}

/* A socket proved itself: the first of a session makes the conn, the last one opens it. */
static bool on_authed(struct wb__sx *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__sock *s = e->sock;
	const struct wb__hello *h = &s->hello;
	struct wb__conn *c = find_session(x, h);

	if (!wb__sx_epoch_find(x, h->object, h->term, h->number, NULL)) {
		close_sock(s, WB_ESTALE);
		return false;
	}
	if (!c) {
		struct wb_xport_conn_info info = {.object = h->object,
			.term = h->term,
			.number = h->number,
			.n_socket = h->count,
			.depth = (uint32_t)h->count * h->slots};
		int rc;

		memcpy(info.peer, h->dialer, sizeof(info.peer));
		rc = wb__conn_create(x, &info, h->slots, &c);
		if (rc) {
			close_sock(s, rc);
			return false;
		}
		c->session = h->session;
	}
	if (c->info.n_socket != h->count || c->n_slot != h->slots || c->sock[h->index]) {
		close_sock(s, -EPROTO);
		return false;
	}
	s->conn = c;
	c->sock[h->index] = s;
	c->n_present++;
	if (++c->n_up < h->count)
		return false;
	for (uint32_t i = 0; i < h->count; i++) {
		struct wb__cmd cmd = {.kind = WB__CMD_ADMIT, .sock = c->sock[i]};

		wb__cmd_must(cmd.sock->rail, &cmd);
	}
	ev->conn = c->id;
	return tell_up(c, ev);
}

static bool on_up(const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__conn *c = e->sock->conn;

	if (++c->n_up < c->info.n_socket || c->state != WB__C_OPENING)
		return false;
	return tell_up(c, ev);
}

static bool on_down(struct wb__sx *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__sock *s = e->sock;

	if (s->conn) {
		wb__conn_take_down(x, s->conn, s);
		free_sock(s);
		return false;
	}
	/* Never admitted.  Its sentence lives until the next poll. */
	s->down_next = x->rejected;
	x->rejected = s;
	ev->kind = WB_XP_REJECTED;
	ev->code = s->code;
	ev->reason = s->reason;
	ev->conn = 0;
	return true;
}

/* ---- chunks -----------------------------------------------------------------------------------
 */

static bool on_grant_end(const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__conn *c = e->sock->conn;
	struct wb__op *op = e->op;

	ev->cookie = op->cookie;
	switch (e->kind) {
	case WB__EV_ARRIVED:
		ev->kind = WB_XP_ARRIVED;
		memcpy(ev->trailer, e->u.trailer, sizeof(ev->trailer));
		break;
	case WB__EV_REFUSED:
		ev->kind = WB_XP_REFUSED;
		ev->code = e->code;
		break;
	case WB__EV_CANCELLED:
		ev->kind = WB_XP_CANCELLED;
		op->state = WB__OP_CANCELLED; /* the slot is not free yet */
		return true;
	default: /* RETIRED: the user knows the end already */
		free_op(c, op);
		return false;
	}
	free_op(c, op);
	return true;
}

static bool on_grant(struct wb__sx *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__conn *c = e->sock->conn;
	uint32_t i = sock_index(c, e->sock), slot = (uint32_t)(e->id & 0xffff);
	struct wb__ask *ask;

	if (c->state != WB__C_UP || i >= c->info.n_socket)
		return false; /* it is closing */
	ask = &c->ask[i * c->n_slot + slot];
	if (ask->state != WB__ASK_NONE) {
		wb__conn_close(x, c, -EPROTO, "the peer asks for more than was agreed");
		return false;
	}
	ask->state = WB__ASK_OPEN;
	ask->id = e->id;
	ask->bytes = e->u.chunk.bytes;
	ev->kind = WB_XP_GRANT;
	ev->grant = e->id | (uint64_t)i << 48;
	ev->chunk = e->u.chunk;
	return true;
}

static bool on_gone(const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__conn *c = e->sock->conn;
	struct wb__cmd cmd = {.kind = WB__CMD_REFUSE, .code = -ECANCELED, .sock = e->sock};
	uint32_t i = sock_index(c, e->sock), slot = (uint32_t)(e->id & 0xffff);
	struct wb__ask *ask;

	if (c->state != WB__C_UP || i >= c->info.n_socket)
		return false;
	ask = &c->ask[i * c->n_slot + slot];
	if (ask->state != WB__ASK_OPEN || ask->id != e->id)
		return false; /* our answer crossed with it */
	ask->state = WB__ASK_NONE;
	cmd.id = e->id;
	wb__cmd_must(e->sock->rail, &cmd);
	ev->kind = WB_XP_GRANT_GONE;
	ev->grant = e->id | (uint64_t)i << 48;
	return true;
}

static void end_write(struct wb__sx *x, struct wb__conn *c, struct wb__op *op)
{
	if (x->base.ops->caps & WB_XPORT_CAP_REGIONS)
		wb__region_drop(x, c->info.object, op->iov, op->n_iov);
	op->state = WB__OP_FREE;
	c->ask[op - c->op].state = WB__ASK_NONE;
}

static bool on_written(struct wb__sx *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	end_write(x, e->sock->conn, e->op);
	ev->kind = WB_XP_WRITE_DONE;
	ev->cookie = e->op->cookie;
	ev->code = e->code;
	return true;
}

static bool translate(struct wb__sx *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	memset(ev, 0, sizeof(*ev));
	ev->at_ns = e->at_ns;
	ev->rail = e->sock->rail->index;
	ev->conn = e->sock->conn ? e->sock->conn->id : 0;
	switch (e->kind) {
	case WB__EV_AUTHED:
		return on_authed(x, e, ev);
	case WB__EV_UP:
		return on_up(e, ev);
	case WB__EV_DOWN:
		return on_down(x, e, ev);
	case WB__EV_GRANT:
		return on_grant(x, e, ev);
	case WB__EV_GONE:
		return on_gone(e, ev);
	case WB__EV_WRITTEN:
		return on_written(x, e, ev);
	default:
		return on_grant_end(e, ev);
	}
}

/* ---- the end of a connection ------------------------------------------------------------------
 */

static bool tell_op(
	struct wb__sx *x, struct wb__conn *c, struct wb__op *op, struct wb_xport_event *ev)
{
	if (op->state == WB__OP_FREE || op->state == WB__OP_CANCELLED)
		return false;
	ev->kind = c->info.is_dialer ? WB_XP_LOST : WB_XP_WRITE_DONE;
	ev->cookie = op->cookie;
	if (!c->info.is_dialer)
		end_write(x, c, op);
	op->state = WB__OP_FREE;
	return true;
}

/* One more event of a dying conn; the last one takes it off the list.  False: none came of it. */
static bool tell_end(struct wb__sx *x, struct wb__conn *c, struct wb_xport_event *ev)
{
	memset(ev, 0, sizeof(*ev));
	ev->conn = c->id;
	ev->code = c->code;
	ev->at_ns = wb_now_ns(x->o.clock);
	while (c->told < c->info.n_socket * c->n_slot) {
		struct wb__op *op = &c->op[c->told++];

		if (tell_op(x, c, op, ev))
			return true;
	}
	x->dying = c->next;
	if (!x->dying)
		x->dying_tail = &x->dying;
	wb__conn_drop(x, c);
	c->next = x->dead;
	x->dead = c;
	ev->kind = c->was_announced ? WB_XP_CONN_DOWN : WB_XP_REJECTED;
	ev->conn = c->was_announced ? c->id : 0;
	ev->info = &c->info;
	ev->reason = c->reason;
	return true;
}

static void bury(struct wb__sx *x)
{
	while (x->dead) {
		struct wb__conn *c = x->dead;

		x->dead = c->next;
		wb__conn_free(c);
	}
	while (x->rejected) {
		struct wb__sock *s = x->rejected;

		x->rejected = s->down_next;
		free_sock(s);
	}
}

int wb__sx_poll(struct wb_xport *base, struct wb_xport_event *ev, int max)
{
	struct wb__sx *x = wb__sx(base);
	struct wb__ev e;
	uint64_t v;
	int n = 0;

	bury(x);
	/* Order matters: empty the descriptor, allow signals, then look at the rings.  Always empty
	 * it: a rail may write after we saw its event, and that would wake the loop for ever. */
	(void)!read(x->event_fd, &v, sizeof(v));
	atomic_exchange(&x->signalled, 0);
	for (uint32_t i = 0; i < x->n_rail; i++) {
		while (n < max && !wb_ring_pop(&x->rail[i].ev, &e))
			n += translate(x, &e, &ev[n]);
	}
	while (n < max && x->dying)
		n += tell_end(x, x->dying, &ev[n]);
	return n;
}
