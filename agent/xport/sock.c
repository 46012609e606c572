/* SPDX-License-Identifier: Apache-2.0 */
/* One socket of a rail: frames in and out, grants, answers, and faults that tests ask for. */
#include "xport/internal.h"
#include "xport/secure.h"

#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HANDSHAKE_TX 1024
#define FRAMES_A_TURN 64

/* ---- faults -----------------------------------------------------------------------------------
 */

int wb__fault_begin(struct wb__sock *s, struct wb__op *op)
{
	struct wb__rail *r = s->rail;
	struct wb_fault *fault = r->x->o.fault;
	struct wb_fault_at at = {WB_FAULT_ANY, WB_FAULT_ANY, r->index};
	struct wb_fault_hit hit;

	if (!fault)
		return 0;
	if (wb_fault_hit(fault, WB_FAULT_RAIL, &at, &hit)) {
		if (hit.actions & (WB_FAULT_STALL | WB_FAULT_DELAY))
			r->stall_until_ns = r->now_ns + hit.delay_ns;
		if (hit.actions & WB_FAULT_DROP)
			return wb__sock_fail(s, -ECONNABORTED, "dropped by WB_FAULT");
	}
	if (wb_fault_hit(fault, WB_FAULT_WIRE, &at, &hit)) {
		if (hit.actions & (WB_FAULT_STALL | WB_FAULT_DELAY))
			s->hold_until_ns = r->now_ns + hit.delay_ns;
		if (hit.actions & WB_FAULT_FLIP && !op->is_gpu)
			op->flip_bit = hit.bit % (op->bytes * 8);
		if (hit.actions & WB_FAULT_DROP)
			s->drop_soon = true;
	}
	return 0;
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct wb__sock *wb__sock_create(struct wb__rail *r, int fd, bool is_dialer)
{
	struct wb__sock *s = wb_zalloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->txb = wb_alloc(HANDSHAKE_TX);
	if (!s->txb) {
		wb_free(s);
		return NULL;
	}
	s->tx_cap = HANDSHAKE_TX;
	s->rail = r;
	s->fd = fd;
	s->is_dialer = is_dialer;
	s->q_tail = &s->q_head;
	return s;
}

int wb__sock_tables(struct wb__sock *s, uint32_t n_slot)
{
	/* A slot has at most three frames queued: GRANT, CANCEL and RELEASE, or an answer. */
	uint32_t cap = HANDSHAKE_TX + n_slot * 3 * 64 + s->rail->x->link->tx_extra;
	uint8_t *txb = wb_alloc(cap);

	if (!txb)
		return -ENOMEM;
	if (s->is_dialer)
		s->grant = wb_zalloc(n_slot, sizeof(*s->grant));
	else
		s->in = wb_zalloc(n_slot, sizeof(*s->in));
	if (!s->grant && !s->in) {
		wb_free(txb);
		return -ENOMEM;
	}
	/* Nothing should be left to copy: in the challenge each side waits for the other, so all
	 * that was queued has been sent. */
	memcpy(txb, s->txb, s->tx_have);
	wb_free(s->txb);
	s->txb = txb;
	s->tx_cap = cap;
	s->n_slot = n_slot;
	return 0;
}

void wb__sock_free(struct wb__sock *s)
{
	if (!s)
		return;
	wb__secure_free(s->secure);
	wb_free(s->txb);
	wb_free(s->grant);
	wb_free(s->in);
	wb_free(s);
}

int wb__sock_fail(struct wb__sock *s, int code, const char *fmt, ...)
{
	va_list ap;

	if (s->code)
		return s->code;
	s->code = code;
	va_start(ap, fmt);
	vsnprintf(s->reason, sizeof(s->reason), fmt, ap);
	va_end(ap);
	return code;
}

int wb__sock_errno(struct wb__sock *s, int err)
{
	const char *agent = s->peer[0] ? "agent " : "a peer", *who = s->peer;

	if (!err) /* end of file */
		return wb__sock_fail(s, -ECONNRESET, "%s%s closed the connection%s", agent, who,
			s->in_payload || s->tx_in ? " in the middle of a chunk"
			: s->state == WB__S_UP    ? ""
						  : " before the challenge was over");
	if (s->state == WB__S_CONNECTING)
		return wb__sock_fail(
			s, -err, "cannot connect to %s%s: %s", agent, who, strerror(err));
	return wb__sock_fail(
		s, -err, "the connection with %s%s broke: %s", agent, who, strerror(err));
}

/* ---- frames out -------------------------------------------------------------------------------
 */

int wb__sock_send(struct wb__sock *s, const struct wb__frame *f)
{
	uint8_t buf[WBP_BULK_FRAME_MAX];
	size_t n = wb__frame_encode(f, buf);

	if (s->tx_at) {
		memmove(s->txb, s->txb + s->tx_at, s->tx_have - s->tx_at);
		s->tx_have -= s->tx_at;
		s->tx_at = 0;
	}
	wb__count(&s->rail->word_bytes, n);
	if (s->tx_cap - s->tx_have < n)
		return wb__sock_fail(s, -EPROTO, "agent %s makes us answer too much", s->peer);
	memcpy(s->txb + s->tx_have, buf, n);
	s->tx_have += (uint32_t)n;
	return 0;
}

int wb__sock_send_lazy(struct wb__sock *s, const struct wb__frame *f)
{
	bool is_alone = s->tx_have - s->tx_at == s->tx_lazy;
	int rc = wb__sock_send(s, f);

	if (is_alone)
		s->tx_lazy = s->tx_have - s->tx_at;
	return rc;
}

static ssize_t put_raw(struct wb__sock *s, const void *p, size_t n, int flags)
{
	return send(s->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
}

static ssize_t put_secure(struct wb__sock *s, const void *p, size_t n, int flags)
{
	struct iovec v = {(void *)(uintptr_t)p, n};

	return wb__secure_writev(s, &v, 1, flags);
}

static int push(struct wb__sock *s, ssize_t (*put)(struct wb__sock *, const void *, size_t, int),
	const uint8_t *p, uint32_t *at, uint32_t have, int flags)
{
	assert(*at <= have);
	while (*at < have) {
		ssize_t n;

		if (!s->wr_ready)
			return 0;
		n = put(s, p + *at, have - *at, flags);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				return wb__sock_errno(s, errno);
			s->wr_ready = false;
			return 0;
		}
		*at += (uint32_t)n;
	}
	return 1;
}

int wb__sock_push(struct wb__sock *s, const uint8_t *p, uint32_t *at, uint32_t have, int flags)
{
	return push(s, put_raw, p, at, have, flags);
}

int wb__sock_flush(struct wb__sock *s, int flags)
{
	int rc;

	if (s->rx_op && s->tx_have - s->tx_at == s->tx_lazy)
		return s->secure ? wb__secure_flush(s, flags) : 1;
	s->tx_lazy = 0;
	rc = push(s, s->secure ? put_secure : put_raw, s->txb, &s->tx_at, s->tx_have, flags);
	if (rc <= 0)
		return rc;
	s->tx_at = s->tx_have = 0;
	return s->secure ? wb__secure_flush(s, flags) : 1;
}

static void queue_answer(struct wb__sock *s, struct wb__in *in)
{
	in->next = NULL;
	*s->q_tail = in;
	s->q_tail = &in->next;
}

static int start_answer(struct wb__sock *s)
{
	struct wb__in *in = s->q_head;
	struct wb__frame f = {.type = WBP_BULK_REFUSE, .id = in->id, .code = in->code};

	s->q_head = in->next;
	if (!s->q_head)
		s->q_tail = &s->q_head;
	if (in->state == WB__IN_REFUSE) {
		in->state = WB__IN_FREE;
		return wb__sock_send(s, &f);
	}
	assert(in->state == WB__IN_WRITE && !s->tx_in);
	in->state = WB__IN_SENDING;
	s->tx_in = in;
	s->is_trailer_queued = false;
	return s->rail->x->link->tx_begin(s);
}

/* How many bytes a socket may move in one turn.  On a rail with a cap this is one piece, so that
 * all sockets share what the bucket has gathered while the thread did not run. */
static uint32_t quantum(const struct wb__bucket *b)
{
	return (uint32_t)WB_MIN((size_t)WB__QUANTUM, b->most);
}

/* Send control frames, then answers one after the other. */
static int turn_out(struct wb__sock *s)
{
	struct wb__rail *r = s->rail;
	uint32_t budget = quantum(&r->tx);
	int rc;

	for (;;) {
		rc = wb__sock_flush(s, s->tx_in && !s->is_trailer_queued ? MSG_MORE : 0);
		if (rc <= 0)
			return rc; /* 0: WB__IDLE until the socket has room */
		if (s->state == WB__S_UP && !s->tx_in && r->x->link->tx_idle) {
			rc = r->x->link->tx_idle(s);
			if (rc)
				return rc < 0 ? rc : WB__IDLE;
		}
		if (s->state != WB__S_UP || (!s->tx_in && !s->q_head))
			return WB__IDLE;
		if (r->now_ns < s->hold_until_ns) {
			wb__rail_wake_at(r, s->hold_until_ns);
			return WB__WAIT;
		}
		if (!wb__rail_has_room(r)) {
			wb__rail_wake_at(r, r->now_ns + 100 * WB_NS_PER_US);
			return WB__WAIT;
		}
		if (!budget)
			return WB__AGAIN;
		if (!s->tx_in)
			rc = start_answer(s);
		else
			rc = r->x->link->tx_payload(s, &budget);
		if (rc)
			return rc;
		if (s->tx_in && !s->wr_ready)
			return WB__IDLE;
	}
}

void wb__sock_written(struct wb__sock *s, struct wb__in *in)
{
	struct wb__ev e = {.kind = WB__EV_WRITTEN, .sock = s, .op = in->op};

	assert(in->op && s->tx_in != in);
	in->state = WB__IN_FREE;
	in->op = NULL;
	wb__count(&s->rail->tx_chunks, 1);
	wb__emit(s->rail, &e, false);
}

/* ---- frames in --------------------------------------------------------------------------------
 */

static struct wb__op *grant_of(struct wb__sock *s, uint64_t id)
{
	uint32_t slot = (uint32_t)(id & 0xffff);
	struct wb__op *op = slot < s->n_slot ? s->grant[slot] : NULL;

	return op && op->id == id ? op : NULL;
}

/* The source's answer to a grant is complete: the slot is free again. */
static void retire(struct wb__sock *s, struct wb__op *op, struct wb__ev *e)
{
	assert(s->grant[wb__book_slot(op->id)] == op && s->n_grant);
	s->grant[wb__book_slot(op->id)] = NULL;
	s->n_grant--;
	if (op->is_dead)
		e->kind = WB__EV_RETIRED;
	e->op = op;
	e->sock = s;
	wb__emit(s->rail, e, s->n_grant >= WB__AHEAD_MIN);
}

void wb__sock_whole(
	struct wb__sock *s, struct wb__op *op, const uint8_t trailer[WB_XPORT_TRAILER_BYTES])
{
	struct wb__ev e = {.kind = WB__EV_ARRIVED};

	memcpy(e.u.trailer, trailer, sizeof(e.u.trailer));
	wb__count(&s->rail->rx_chunks, 1);
	retire(s, op, &e);
}

void wb__sock_arrived(struct wb__sock *s)
{
	wb__sock_whole(s, s->rx_op, s->trailer);
	s->rx_op = NULL;
	s->in_payload = false;
}

static int on_write(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__op *op = grant_of(s, f->id);

	if (!op || op->is_answered || s->rx_op)
		return wb__sock_fail(
			s, -EPROTO, "agent %s sent a chunk that was not asked for", s->peer);
	if (f->bytes != op->bytes)
		return wb__sock_fail(s, -EPROTO,
			"agent %s sent a chunk of %llu bytes where %llu were asked for", s->peer,
			(unsigned long long)f->bytes, (unsigned long long)op->bytes);
	op->is_answered = true;
	s->rx_op = op;
	s->rx_left = f->bytes;
	s->trailer_have = 0;
	return s->rail->x->link->rx_begin(s);
}

static int on_refuse(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__op *op = grant_of(s, f->id);
	struct wb__ev e = {.kind = WB__EV_REFUSED, .code = f->code < 0 ? f->code : -EPROTO};

	if (!op || op->is_answered)
		return wb__sock_fail(
			s, -EPROTO, "agent %s refused what was not asked for", s->peer);
	retire(s, op, &e);
	return 0;
}

int wb__sock_unwrite(struct wb__sock *s, int code)
{
	struct wb__in *in = s->tx_in;
	struct wb__frame f = {.type = WBP_BULK_REFUSE, .id = in->id, .code = code};
	struct wb__ev e = {.kind = WB__EV_WRITTEN, .sock = s, .op = in->op, .code = code};

	s->tx_in = NULL;
	in->state = WB__IN_FREE;
	in->op = NULL;
	wb__emit(s->rail, &e, false);
	return wb__sock_send(s, &f);
}

struct wb__in *wb__sock_in(struct wb__sock *s, uint64_t id)
{
	uint32_t slot = (uint32_t)(id & 0xffff);
	struct wb__in *in = slot < s->n_slot ? &s->in[slot] : NULL;

	return in && in->state != WB__IN_FREE && in->id == id ? in : NULL;
}

/* A turn may end after the trailer is sent and before we note that.  The receiver's next grant for
 * the same slot then shows that the whole answer has arrived. */
static void note_sent(struct wb__sock *s, uint32_t slot)
{
	struct wb__in *in = s->tx_in;

	if (slot >= s->n_slot || in != &s->in[slot] || !s->is_trailer_queued ||
		s->tx_at < s->tx_have)
		return;
	s->tx_in = NULL;
	wb__sock_written(s, in);
}

static int on_grant(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__ev e = {.kind = WB__EV_GRANT, .sock = s, .id = f->id};
	uint32_t slot = (uint32_t)(f->id & 0xffff);

	note_sent(s, slot);
	if (slot >= s->n_slot || f->id >> 48 || s->in[slot].state != WB__IN_FREE)
		return wb__sock_fail(s, -EPROTO, "agent %s asks for more than was agreed", s->peer);
	s->in[slot].id = f->id;
	s->in[slot].bytes = f->chunk.bytes;
	s->in[slot].state = WB__IN_WAITING;
	e.u.chunk = f->chunk;
	wb__emit(s->rail, &e, false);
	return 0;
}

static void late_write(struct wb__sock *s, struct wb__op *op)
{
	struct wb__ev e = {.kind = WB__EV_WRITTEN, .sock = s, .op = op, .code = -ECANCELED};

	wb__emit_of_cmd(s->rail, &e);
}

static int on_cancel(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__in *in = wb__sock_in(s, f->id);
	struct wb__ev e = {.kind = WB__EV_GONE, .sock = s, .id = f->id};

	if (!in)
		return 0; /* we answered before the cancel came */
	if (in->state == WB__IN_WAITING) {
		in->state = WB__IN_GONE;
		wb__emit(s->rail, &e, false);
	} else if (in->state == WB__IN_WRITE) {
		late_write(s, in->op);
		in->op = NULL;
		in->state = WB__IN_REFUSE;
		in->code = -ECANCELED;
	}
	return 0;
}

static int on_frame(struct wb__sock *s, const uint8_t *raw, size_t bytes)
{
	struct wb__frame f;

	if (wb__frame_decode(raw, bytes, &f))
		return wb__sock_fail(s, -EBADMSG, "%s%s sent a damaged frame",
			s->peer[0] ? "agent " : "a peer", s->peer);
	if (s->state != WB__S_UP)
		return wb__handshake_frame(s, &f, raw);
	if (s->is_dialer && f.type == WBP_BULK_WRITE)
		return on_write(s, &f);
	if (s->is_dialer && f.type == WBP_BULK_REFUSE)
		return on_refuse(s, &f);
	if (!s->is_dialer && f.type == WBP_BULK_GRANT)
		return on_grant(s, &f);
	if (!s->is_dialer && f.type == WBP_BULK_CANCEL)
		return on_cancel(s, &f);
	if (s->rail->x->link->on_frame)
		return s->rail->x->link->on_frame(s, &f);
	return wb__sock_fail(
		s, -EPROTO, "agent %s sent an unexpected frame of type %d", s->peer, (int)f.type);
}

/* Read up to @want bytes (or what there is room for); 1 = got some, 0 = none now, negative. */
static int read_some(struct wb__sock *s, uint32_t want)
{
	const struct wb__link_ops *link = s->rail->x->link;
	size_t room;
	ssize_t n;

	if (!s->rd_ready)
		return 0;
	if (s->rx_at == s->rx_have) {
		s->rx_at = s->rx_have = 0;
	} else if (s->rx_at && sizeof(s->rxb) - s->rx_at < WBP_BULK_FRAME_MAX) {
		memmove(s->rxb, s->rxb + s->rx_at, s->rx_have - s->rx_at);
		s->rx_have -= s->rx_at;
		s->rx_at = 0;
	}
	room = sizeof(s->rxb) - s->rx_have;
	/* Do not read past the frame: after WELCOME descriptors may come, for which the link is not
	 * ready before, and after PROOF TLS may begin.  With rx_exact, payload follows. */
	if (s->state != WB__S_UP || (s->is_dialer && link->rx_exact))
		room = WB_MIN(room, want);
	for (;;) {
		n = link->recv(s, s->rxb + s->rx_have, room);
		if (n > 0)
			break;
		if (!n)
			return wb__sock_errno(s, 0);
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return wb__sock_errno(s, errno);
		s->rd_ready = false;
		return 0;
	}
	s->rx_have += (uint32_t)n;
	return 1;
}

/* Handle one frame, if all of it is there: 1, 0 (socket empty) or negative. */
static int next_frame(struct wb__sock *s)
{
	for (;;) {
		uint32_t have = s->rx_have - s->rx_at;
		const uint8_t *p = s->rxb + s->rx_at;
		int need = WBP_BULK_PREFIX, rc;

		if (have >= WBP_BULK_PREFIX) {
			need = wb__frame_bytes(p);
			if (need < 0)
				return wb__sock_fail(s, need,
					need == WB_EVERSION
						? "%s%s speaks another version of the protocol"
						: "%s%s sent something that is not a frame",
					s->peer[0] ? "agent " : "a peer", s->peer);
		} else if (s->state == WB__S_UP) {
			need = WBP_BULK_ANSWER_BYTES; /* all that a tcp dialer gets */
		}
		if (have >= WBP_BULK_PREFIX && have >= (uint32_t)need) {
			s->rx_at += (uint32_t)need;
			rc = on_frame(s, p, (size_t)need);
			return rc ? rc : 1;
		}
		rc = read_some(s, (uint32_t)need - have);
		if (rc <= 0)
			return rc;
	}
}

static int turn_in(struct wb__sock *s)
{
	struct wb__rail *r = s->rail;
	uint32_t budget = quantum(&r->rx), frames = FRAMES_A_TURN;
	int rc;

	for (;;) {
		if (!wb__rail_has_room(r)) {
			wb__rail_wake_at(r, r->now_ns + 100 * WB_NS_PER_US);
			return WB__WAIT;
		}
		if (s->state == WB__S_SECURE)
			return WB__IDLE;
		if (!budget || !frames--)
			return WB__AGAIN;
		if (s->in_payload) {
			rc = r->x->link->rx_payload(s, &budget);
			if (rc || s->in_payload)
				return rc;
			continue;
		}
		rc = next_frame(s);
		if (rc <= 0)
			return rc;
	}
}

/* ---- commands and turns -----------------------------------------------------------------------
 */

void wb__sock_cancelled(struct wb__sock *s, struct wb__op *op)
{
	struct wb__ev e = {.kind = WB__EV_CANCELLED, .sock = s, .op = op};

	wb__emit_of_cmd(s->rail, &e);
}

static void cmd_grant(struct wb__sock *s, const struct wb__cmd *c)
{
	struct wb__frame f = {.type = WBP_BULK_GRANT, .id = c->op->id, .chunk = c->chunk};

	assert(wb__book_slot(c->op->id) < s->n_slot && !s->grant[wb__book_slot(c->op->id)]);
	s->grant[wb__book_slot(c->op->id)] = c->op;
	s->n_grant++;
	wb__sock_send(s, &f); /* a failure is in s->code; the turn sees it */
}

static void cmd_cancel(struct wb__sock *s, const struct wb__cmd *c)
{
	const struct wb__link_ops *link = s->rail->x->link;
	struct wb__frame f = {.type = WBP_BULK_CANCEL, .id = c->id};

	if (grant_of(s, c->id) != c->op || c->op->is_dead)
		return; /* the grant ended before this; the event is on its way */
	c->op->is_dead = true;
	if (!c->op->is_answered)
		wb__sock_send(s, &f);
	if (!link->revoke || link->revoke(s, c->op))
		wb__sock_cancelled(s, c->op);
}

static void cmd_answer(struct wb__sock *s, const struct wb__cmd *c)
{
	struct wb__in *in = wb__sock_in(s, c->id);

	if (!in || (in->state != WB__IN_WAITING && in->state != WB__IN_GONE)) {
		if (c->kind == WB__CMD_WRITE)
			late_write(s, c->op);
		return;
	}
	in->code = c->code;
	if (c->kind == WB__CMD_WRITE && in->state == WB__IN_WAITING) {
		in->op = c->op;
		in->state = WB__IN_WRITE;
	} else {
		if (c->kind == WB__CMD_WRITE) {
			late_write(s, c->op);
			in->code = -ECANCELED;
		}
		in->state = WB__IN_REFUSE;
	}
	queue_answer(s, in);
}

void wb__sock_cmd(struct wb__sock *s, const struct wb__cmd *c)
{
	switch (c->kind) {
	case WB__CMD_GRANT:
		cmd_grant(s, c);
		break;
	case WB__CMD_CANCEL:
		cmd_cancel(s, c);
		break;
	default:
		cmd_answer(s, c);
		break;
	}
}

static int finish_connect(struct wb__sock *s)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (!s->wr_ready)
		return 0;
	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	return err ? wb__sock_errno(s, err) : wb__handshake_start(s);
}

int wb__sock_turn(struct wb__sock *s)
{
	int in, out, rc;

	if (s->code)
		return s->code;
	if (s->state == WB__S_CONNECTING) {
		rc = finish_connect(s);
		if (rc || s->state == WB__S_CONNECTING)
			return rc;
	}
	in = turn_in(s);
	if (in < 0)
		return in;
	out = turn_out(s);
	if (out < 0)
		return out;
	if (s->code)
		return s->code;
	if (s->state == WB__S_SECURE)
		return wb__secure_turn(s);
	if (in == WB__AGAIN || out == WB__AGAIN)
		return WB__AGAIN;
	return in == WB__WAIT || out == WB__WAIT ? WB__WAIT : WB__IDLE;
}
