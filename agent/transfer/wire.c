/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages between two agents of an epoch come in order and once, or the peer is down.
 *
 * The channel below may break and be made again without anybody hearing of it; what was under way
 * is lost then.  So messages are numbered and kept until the peer has confirmed them.  What is
 * given up (the peer was called down, or answered none of many tries) is skipped: `base` is the
 * first number still kept, and a peer that finds some missing calls the sender down as well, for
 * the transfers that these can have been about: a younger one, which began before the peer heard of
 * the gap, loses nothing.  It is told so until it has confirmed that, since nothing else may
 * follow: who waits must not wait for ever.
 */
#include "transfer/wire.h"

#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/object.h"

#define RESEND_MIN_NS (600 * WB_NS_PER_MS)
#define RESEND_MAX_NS (2 * WB_NS_PER_S)
#define GAP_MAX_NS (60 * WB_NS_PER_S) /* it may be dead for as long as this plan lives */
#define CONFIRM_NS (200 * WB_NS_PER_MS) /* most answers are confirmations anyway */
/* About 10 s of our own time: a stopped process must not give up what it could not send again. */
#define TRIES_MAX 6

struct kept {
	struct kept *next;
	uint64_t seq;
	uint32_t tries;
	uint8_t *bytes;
	size_t len;
};

static void drop_first(struct wire *w)
{
	struct kept *k = w->head;

	w->head = k->next;
	if (!w->head)
		w->tail = NULL;
	wb_free(k->bytes);
	wb_free(k);
}

void wb__core_wire_down(struct wire *w, uint64_t highest, uint64_t now)
{
	w->is_down = true;
	w->skipped = WB_MAX(highest, w->sent_transfer);
	if (!w->gap_ns) {
		w->tx_seq++; /* one that is missing, whatever else is */
		w->gap_ns = now + 1;
		w->gap_backoff_ns = RESEND_MIN_NS;
	}
	while (w->head)
		drop_first(w);
	w->resend_ns = w->confirm_ns = 0;
}

static void keep(struct wire *w, const struct wb_msg_peer *m, uint64_t now)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_PEER};
	struct kept *k = wb_zalloc(1, sizeof(*k));
	struct wb_buf b;

	wb_buf_init(&b, 1u << 20);
	if (!k || wb_msg_encode_bin(&f, m, &b, NULL) < 0 ||
		wb_buf_take(&b, &k->bytes, &k->len) < 0) {
		wb_buf_finish(&b); /* it goes out once, as before */
		wb_free(k);
		return;
	}
	k->seq = m->seq;
	if (w->tail)
		w->tail->next = k;
	else
		w->head = k;
	w->tail = k;
	if (!w->resend_ns) {
		w->backoff_ns = RESEND_MIN_NS;
		w->resend_ns = now + w->backoff_ns;
	}
}

static void send(struct epoch *e, uint32_t agent, struct wb_msg_peer *m)
{
	struct wire *w = &e->wire[agent];
	const struct wb_core *c = e->obj->core;

	m->base = w->head ? w->head->seq : w->tx_seq + 1;
	m->skipped = w->skipped;
	c->env->to_peer(c->env->ctx, &e->r, agent, WBP_PEER, m);
}

void wb__core_wire_send(struct epoch *e, uint32_t agent, struct wb_msg_peer *m)
{
	struct wire *w = &e->wire[agent];

	m->seq = ++w->tx_seq;
	m->ack = w->rx_seq; /* whenever it comes, this is what had been heard when it was said */
	w->confirm_ns = 0;
	w->sent_transfer = WB_MAX(w->sent_transfer, m->transfer);
	keep(w, m, now_ns(e->obj->core));
	send(e, agent, m);
}

bool wb__core_wire_take(struct epoch *e, uint32_t from, const struct wb_msg_peer *m, bool *has_gap)
{
	struct wire *w = &e->wire[from];
	uint64_t now = now_ns(e->obj->core);

	while (w->head && w->head->seq <= m->ack) {
		drop_first(w);
		w->backoff_ns = RESEND_MIN_NS;
		w->resend_ns = w->head ? now + w->backoff_ns : 0;
	}
	w->is_down = false;
	if (w->head)
		w->head->tries = 0; /* it was silent, stopped perhaps, and is not any more */
	if (m->ack >= w->tx_seq)
		w->gap_ns = 0;
	*has_gap = m->base > w->rx_seq + 1;
	if (*has_gap)
		w->rx_seq = m->base - 1;
	if (!m->seq && !*has_gap)
		return m->kind != WBP_PEER_CONFIRM; /* an older agent does not number */
	if (!w->confirm_ns)
		w->confirm_ns = now + CONFIRM_NS;
	if (!m->seq)
		return false;
	if (m->seq != w->rx_seq + 1)
		return false; /* known, or one before it is missing: it comes again */
	w->rx_seq = m->seq;
	return true;
}

static void confirm(struct epoch *e, uint32_t agent)
{
	struct wb_msg_peer m = {
		.kind = WBP_PEER_CONFIRM,
		.uid = e->r.uid,
		.term = e->r.term,
		.number = e->r.number,
		.ack = e->wire[agent].rx_seq,
	};

	e->wire[agent].confirm_ns = 0;
	send(e, agent, &m);
}

static void resend(struct epoch *e, uint32_t agent, uint64_t now)
{
	struct wire *w = &e->wire[agent];

	if (w->head && w->head->tries++ == TRIES_MAX) {
		wb_core_peer_down(e->obj->core, e->r.uid, e->r.term, e->r.number, agent,
			"it confirmed nothing");
		return;
	}
	for (struct kept *k = w->head; k; k = k->next) {
		struct wb_frame f;
		struct wb_msg_peer m;
		const uint8_t *body;

		if (wb_frame_check(k->bytes, k->len, &f, &body, NULL) < 0 ||
			wb_msg_decode_bin(&f, body, &m, NULL) < 0)
			continue;
		send(e, agent, &m);
		wb_msg_free(WBP_PEER, &m);
	}
	w->backoff_ns = WB_MIN(w->backoff_ns * 2, RESEND_MAX_NS);
	w->resend_ns = w->head ? now + w->backoff_ns : 0;
}

void wb__core_wire_flush(struct epoch *e)
{
	for (uint32_t a = 0; a < e->r.n_agent; a++)
		if (e->wire[a].confirm_ns)
			confirm(e, a);
}

bool wb__core_wire_keeps(const struct wire *w, uint64_t seq)
{
	return w->head && w->head->seq <= seq;
}

bool wb__core_wire_is_busy(const struct epoch *e)
{
	for (uint32_t a = 0; a < e->r.n_agent; a++)
		if (e->wire[a].head && !e->wire[a].is_down) /* no plan waits for the dead */
			return true;
	return false;
}

uint64_t wb__core_wire_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t a = 0; e && a < e->r.n_agent; a++) {
			struct wire *w = &e->wire[a];

			if (w->resend_ns && now >= w->resend_ns)
				resend(e, a, now);
			if (w->gap_ns && now >= w->gap_ns) {
				confirm(e, a);
				w->gap_ns = now + w->gap_backoff_ns;
				w->gap_backoff_ns = WB_MIN(w->gap_backoff_ns * 2, GAP_MAX_NS);
			}
			if (w->confirm_ns && now >= w->confirm_ns)
				confirm(e, a);
			next = sooner(next, w->resend_ns);
			next = sooner(next, w->gap_ns);
			next = sooner(next, w->confirm_ns);
		}
	}
	return next;
}
