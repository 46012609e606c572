/* SPDX-License-Identifier: Apache-2.0 */
/* Takes in what rails report, enters it in the book, and makes events for the user of it. */
#include "xport/conn.h"

#include <errno.h>
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

static uint32_t lane_of(const struct wb__conn *c, const struct wb__sock *s)
{
	for (uint32_t i = 0; i < c->a.n_lane; i++) {
		if (c->sock[i] == s)
			return i;
	}
	assert(false && "a socket tells of chunks that is no lane");
	return WB_XPORT_SOCKETS_MAX;
}

/* ---- connections ------------------------------------------------------------------------------
 */

static struct wb__conn *find_session(
	struct wb__xport_stream *x, const struct wb__hello *h, const struct wb_epoch_id *id)
{
	struct wb__account *a;

	for (uint32_t at = 0; (a = wb__book_next(&x->desk.book, &at));) {
		if (!a->info.is_dialer && a->state == WB__C_OPENING &&
			wb__conn_of(a)->session == h->session &&
			wb_epoch_id_eq(&a->info.epoch, id) && !strcmp(a->info.peer, h->dialer))
			return wb__conn_of(a);
	}
	return NULL;
}

/* An accepted socket has passed the challenge.  The first one of a session makes the connection.
 * When all are there they are admitted, and the connection is up. */
static bool on_authed(struct wb__xport_stream *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__sock *s = e->sock;
	const struct wb__hello *h = &s->hello;
	const struct wb_xport_epoch *of =
		wb__book_epoch_named(&x->desk.book, h->object, h->term, h->number);
	struct wb__conn *c;

	if (!of) {
		close_sock(s, WB_ESTALE);
		return false;
	}
	c = find_session(x, h, &of->id);
	if (!c) {
		struct wb_xport_conn_info info = {.epoch = of->id,
			.via = wb__xport_stream_via(x, of),
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
	if (c->a.n_lane != h->count || c->a.n_slot != h->slots || c->sock[h->index]) {
		close_sock(s, -EPROTO);
		return false;
	}
	assert(c->n_up < h->count && c->n_up == c->n_present);
	s->conn = c;
	c->sock[h->index] = s;
	c->n_present++;
	if (++c->n_up < h->count)
		return false;
	for (uint32_t i = 0; i < h->count; i++) {
		struct wb__cmd cmd = {.kind = WB__CMD_ADMIT, .sock = c->sock[i]};

		wb__cmd_must(cmd.sock->rail, &cmd);
	}
	wb__book_up(&c->a, ev);
	return true;
}

static bool on_up(const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__conn *c = e->sock->conn;

	assert(e->sock->is_dialer && c->n_up < c->a.n_lane);
	if (++c->n_up < c->a.n_lane || c->a.state != WB__C_OPENING)
		return false;
	wb__book_up(&c->a, ev);
	return true;
}

static bool on_down(struct wb__xport_stream *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__sock *s = e->sock;

	if (s->conn) {
		wb__conn_take_down(x, s->conn, s);
		free_sock(s);
		return false;
	}
	/* This socket was never admitted.  It is freed at the next poll, since the event borrows
	 * its reason. */
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
	struct wb__account *a = &e->sock->conn->a;

	switch (e->kind) {
	case WB__EV_ARRIVED:
		memcpy(ev->trailer, e->u.trailer, sizeof(ev->trailer));
		return wb__book_ended(a, e->op, WB__ARRIVED, ev);
	case WB__EV_REFUSED:
		ev->code = e->code;
		return wb__book_ended(a, e->op, WB__REFUSED, ev);
	case WB__EV_CANCELLED:
		return wb__book_ended(a, e->op, WB__CANCELLED, ev);
	default:
		return wb__book_ended(a, e->op, WB__RETIRED, ev);
	}
}

static bool on_grant(struct wb__xport_stream *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__conn *c = e->sock->conn;
	int rc = wb__book_asked(&c->a, lane_of(c, e->sock), e->id, &e->u.chunk, ev);

	if (rc < 0)
		wb__conn_close(x, c, -EPROTO, "the peer asks for more than was agreed");
	return rc > 0;
}

static bool on_gone(const struct wb__ev *e, struct wb_xport_event *ev)
{
	struct wb__conn *c = e->sock->conn;
	struct wb__cmd cmd = {
		.kind = WB__CMD_REFUSE, .code = -ECANCELED, .sock = e->sock, .id = e->id};

	if (!wb__book_gone(&c->a, lane_of(c, e->sock), e->id, ev))
		return false;
	wb__cmd_must(e->sock->rail, &cmd);
	return true;
}

static bool on_written(
	struct wb__xport_stream *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	wb__book_written(&x->desk.book, &e->sock->conn->a, e->op, e->code, ev);
	return true;
}

static bool translate(struct wb__xport_stream *x, const struct wb__ev *e, struct wb_xport_event *ev)
{
	assert(e->sock->conn || e->kind == WB__EV_AUTHED || e->kind == WB__EV_DOWN);
	memset(ev, 0, sizeof(*ev));
	ev->at_ns = e->at_ns;
	ev->rail = e->sock->rail->index;
	ev->conn = e->sock->conn ? e->sock->conn->a.id : 0;
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

static void bury(struct wb__xport_stream *x)
{
	wb__desk_bury(&x->desk);
	while (x->rejected) {
		struct wb__sock *s = x->rejected;

		x->rejected = s->down_next;
		free_sock(s);
	}
}

int wb__xport_stream_poll(struct wb_xport *base, struct wb_xport_event *ev, int max)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	struct wb__ev e;
	uint64_t v;
	int n = 0;

	bury(x);
	/* The order matters: empty the descriptor, then let rails signal again, then look at the
	 * rings.  The descriptor is always emptied: a rail may write to it after we have taken its
	 * event, and a descriptor that stays readable would wake the loop without end. */
	(void)!read(x->event_fd, &v, sizeof(v));
	atomic_exchange(&x->signalled, 0);
	if (x->link->poll)
		x->link->poll(x);
	for (uint32_t i = 0; i < x->n_rail; i++) {
		while (n < max && !wb_ring_pop(&x->rail[i].ev, &e))
			n += translate(x, &e, &ev[n]);
	}
	return n + wb__desk_tell(&x->desk, ev + n, max - n, wb_now_ns(x->o.clock));
}
