/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages between two agents of an epoch come in order and once, or the peer is down.
 *
 * The channel below may break and be made again without anybody hearing of it; what was under way
 * is lost then.  So messages are numbered and kept until the peer has confirmed them; numbers that
 * were given up (the peer was called down) are skipped: `base` is the first one still kept.
 */
#include "transfer/internal.h"

#define RESEND_MIN_NS (600 * WB_NS_PER_MS)
#define RESEND_MAX_NS (2 * WB_NS_PER_S)
#define CONFIRM_NS (200 * WB_NS_PER_MS) /* most answers are confirmations anyway */
#define GIVE_UP_NS (10 * WB_NS_PER_S) /* by then the channel has called the peer down */

struct kept {
	struct kept *next;
	uint64_t seq, born_ns;
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

void wb__core_wire_clear(struct wire *w)
{
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
	k->born_ns = now;
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
	m->ack = w->rx_seq;
	w->confirm_ns = 0;
	c->env->to_peer(c->env->ctx, &e->r, agent, WBP_PEER, m);
}

void wb__core_wire_send(struct epoch *e, uint32_t agent, struct wb_msg_peer *m)
{
	struct wire *w = &e->wire[agent];

	m->seq = ++w->tx_seq;
	keep(w, m, now_ns(e->obj->core));
	send(e, agent, m);
}

bool wb__core_wire_take(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct wire *w = &e->wire[from];
	uint64_t now = now_ns(e->obj->core);

	while (w->head && w->head->seq <= m->ack) {
		drop_first(w);
		w->backoff_ns = RESEND_MIN_NS;
		w->resend_ns = w->head ? now + w->backoff_ns : 0;
	}
	if (!m->seq)
		return m->kind != WBP_PEER_CONFIRM; /* an older agent does not number */
	if (m->base > w->rx_seq + 1)
		w->rx_seq = m->base - 1;
	if (!w->confirm_ns)
		w->confirm_ns = now + CONFIRM_NS;
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
	};

	send(e, agent, &m);
}

static void resend(struct epoch *e, uint32_t agent, uint64_t now)
{
	struct wire *w = &e->wire[agent];

	while (w->head && now - w->head->born_ns >= GIVE_UP_NS)
		drop_first(w);
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

bool wb__core_wire_is_busy(const struct epoch *e)
{
	for (uint32_t a = 0; a < e->r.n_agent; a++)
		if (e->wire[a].head)
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
			if (w->confirm_ns && now >= w->confirm_ns)
				confirm(e, a);
			next = sooner(next, w->resend_ns);
			next = sooner(next, w->confirm_ns);
		}
	}
	return next;
}
