/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages between two agents of an epoch come in order and once, or the peer is down.
 *
 * The channel below may break and be made again without anybody hearing of it; what was under way
 * is lost then.  So messages are numbered and kept until the peer has confirmed them.  Messages
 * that are given up (the peer was called down, or has answered no try for as long as that is
 * tolerated) are skipped: `base` is the first number still kept.  A peer that finds some missing
 * calls the sender down as well, for the transfers that these can have been about: a younger
 * transfer, which began before the peer heard of the gap, loses nothing.  The peer is told of the
 * gap until it has confirmed that, since nothing else may follow: nobody who waits must wait for
 * ever.
 */
#include "transfer/wire.h"

#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/object.h"

#include <stdio.h>

#define RESEND_MIN_NS (600 * WB_NS_PER_MS)
#define RESEND_MAX_NS (2 * WB_NS_PER_S)
#define GAP_MAX_NS (60 * WB_NS_PER_S) /* the peer may be dead for as long as this plan lives */
#define CONFIRM_NS (200 * WB_NS_PER_MS) /* most answers are confirmations anyway */

static void tell_gap(struct wire *w, uint64_t now)
{
	if (w->gap_ns)
		return;
	w->gap_ns = now + 1;
	w->gap_backoff_ns = RESEND_MIN_NS;
}

/* Messages about transfers up to @highest are given up.  To the peer 0 would mean any transfer: if
 * there was none yet, say the first. */
static void skip(struct wire *w, uint64_t highest)
{
	w->skipped = WB_MAX(w->skipped, WB_MAX(highest, 1));
}

void wb__transfer_wire_down(struct wire *w, uint64_t highest, uint64_t now)
{
	w->is_down = true;
	skip(w, WB_MAX(highest, w->sent_transfer));
	if (!w->gap_ns)
		w->tx_seq++; /* this number is missing, whatever else is */
	tell_gap(w, now);
	wb_keep_drop(&w->kept);
	w->tried_ns = 0;
	w->resend_ns = w->confirm_ns = 0;
}

/* Whenever a message is sent, it says what is kept, and what was given up, as of now. */
static void post(
	struct epoch *e, uint32_t agent, const struct wb_msg_peer *m, uint8_t *frame, size_t bytes)
{
	struct wire *w = &e->wire[agent];
	const struct wb_transfer_core *c = e->obj->core;

	wb_msg_patch_u64(frame, bytes, "base", w->kept.first ? w->kept.first->mark : w->tx_seq + 1);
	wb_msg_patch_u64(frame, bytes, "skipped", w->skipped);
	c->env->to_peer(c->env->ctx, e->r, agent, m, frame, bytes);
}

void wb__transfer_wire_send(struct epoch *e, uint32_t agent, union wb_msg *m)
{
	struct wire *w = &e->wire[agent];
	uint64_t now = now_ns(e->obj->core);

	m->peer.seq = ++w->tx_seq;
	/* Whenever the message comes, this says what had been heard when it was written. */
	m->peer.ack = w->rx_seq;
	w->confirm_ns = 0;
	w->sent_transfer = WB_MAX(w->sent_transfer, m->peer.transfer);
	if (wb_keep_add(&w->kept, wb_msg_encode_bin, WBP_PEER, m, UINT32_MAX) < 0) {
		skip(w, m->peer.transfer);
		tell_gap(w, now);
		return;
	}
	w->kept.last->mark = m->peer.seq;
	if (!w->resend_ns) {
		w->backoff_ns = RESEND_MIN_NS;
		w->resend_ns = now + w->backoff_ns;
	}
	post(e, agent, &m->peer, w->kept.last->frame, w->kept.last->bytes);
}

bool wb__transfer_wire_take(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, bool *has_gap)
{
	struct wire *w = &e->wire[from];
	uint64_t now = now_ns(e->obj->core);
	uint32_t n = w->kept.n;

	wb_keep_confirm(&w->kept, m->ack);
	if (w->kept.n != n) {
		w->backoff_ns = RESEND_MIN_NS;
		w->resend_ns = w->kept.n ? now + w->backoff_ns : 0;
	}
	w->is_down = false;
	w->tried_ns = 0; /* it was silent, stopped perhaps, and is not any more */
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
	union wb_msg m = {.peer = *WB_PEER(CONFIRM)};
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_PEER};
	struct wb_buf b;

	m.peer.uid = e->r->id.object.text;
	m.peer.term = e->r->id.term;
	m.peer.number = e->r->id.number;
	m.peer.ack = e->wire[agent].rx_seq;
	e->wire[agent].confirm_ns = 0;
	wb_buf_init(&b, WB_FRAME_BYTES + 4096);
	if (wb_msg_encode_bin(&f, &m, &b, NULL) == 0)
		post(e, agent, &m.peer, b.data, b.len);
	wb_buf_finish(&b);
}

static void give_up(struct epoch *e, uint32_t agent)
{
	char why[64];

	snprintf(why, sizeof(why), "it confirmed nothing for %.1f s",
		(double)e->wire[agent].tried_ns / 1e9);
	wb_transfer_peer_down(e->obj->core, &e->r->id, agent, why);
}

static void resend(struct epoch *e, uint32_t agent, uint64_t now)
{
	struct wire *w = &e->wire[agent];

	w->tried_ns += w->backoff_ns;
	if (w->kept.n && w->tried_ns >= e->r->patience_ns) {
		give_up(e, agent);
		return;
	}
	for (const struct wb_kept *k = w->kept.first; k; k = k->next)
		post(e, agent, NULL, k->frame, k->bytes);
	w->backoff_ns = WB_MIN(w->backoff_ns * 2, RESEND_MAX_NS);
	w->resend_ns = w->kept.n ? now + w->backoff_ns : 0;
}

void wb__transfer_wire_flush(struct epoch *e)
{
	for (uint32_t a = 0; a < e->r->n_agent; a++)
		if (e->wire[a].confirm_ns)
			confirm(e, a);
}

bool wb__transfer_wire_keeps(const struct wire *w, uint64_t seq)
{
	return w->kept.first && w->kept.first->mark <= seq;
}

bool wb__transfer_wire_is_busy(const struct epoch *e)
{
	for (uint32_t a = 0; a < e->r->n_agent; a++)
		if (e->wire[a].kept.n && !e->wire[a].is_down) /* no plan waits for the dead */
			return true;
	return false;
}

uint64_t wb__transfer_wire_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (int k = 0; k < 2; k++) {
		struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t a = 0; e && a < e->r->n_agent; a++) {
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
