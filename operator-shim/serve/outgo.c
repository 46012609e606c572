/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends plans to agents, piece by piece.
 *
 * There is one copy of a plan, however many agents get a part of it.  A connection is lent one
 * piece of it at a time, and the next one when it has given the last one to the kernel.  So little
 * is queued however long the plan is, answers to heartbeats are sent between two pieces, and an
 * agent that reads slowly holds up no other agent.
 */
#include "base/fault.h"
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <string.h>

#define OUTGO_MAX 4096 /* objects of one agent */

static struct outgo *find(const struct peer *p, const struct object *o)
{
	for (size_t i = 0; i < p->n_outgo; i++)
		if (p->outgo[i].o == o)
			return &p->outgo[i];
	return NULL;
}

static void drop(struct peer *p, size_t i)
{
	wb__serve_blob_put(p->outgo[i].share.of);
	wb__serve_blob_put(p->outgo[i].told);
	p->n_outgo--;
	memmove(&p->outgo[i], &p->outgo[i + 1], (p->n_outgo - i) * sizeof(*p->outgo));
}

void wb__serve_drop_outgo(struct peer *p, const struct object *o)
{
	for (size_t i = p->n_outgo; i-- > 0;)
		if (!o || p->outgo[i].o == o)
			drop(p, i);
}

static void put(void *blob)
{
	wb__serve_blob_put(blob);
}

static void lend(
	struct peer *p, uint16_t type, const void *msg, struct blob *b, uint64_t at, size_t bytes)
{
	struct wb_lent rest = {
		.data = b->data + at, .bytes = bytes, .put = put, .cookie = wb__serve_blob_get(b)};

	if (wb_session_send_lent(&p->session, type, msg, &rest) < 0)
		wb__serve_blob_put(b);
}

static void send_piece(struct peer *p, struct outgo *g)
{
	const struct wb_plan_slice *x = &g->share.slice[g->slice];
	struct wb_msg_content m = {.object = g->o->key,
		.kind = g->share.kind[g->slice],
		.digest = x->digest,
		.total_bytes = x->bytes,
		.offset = g->at};
	size_t n = WB_MIN(x->bytes - g->at, CONTENT_PART_BYTES);

	g->at += n;
	if (g->at == x->bytes) {
		g->slice++;
		g->at = 0;
	}
	wb_metric_add(p->s->metrics, WB_SM_CONTENT_BYTES, WB_LABELS("out"), (double)n);
	lend(p, WBP_CONTENT, &m, g->share.of, x->at + m.offset, n);
}

static void end_first(struct peer *p)
{
	struct outgo g = p->outgo[0];

	wb_fault_phase(p->s->env.fault, WB_FAULT_PLAN);
	lend(p, WBP_PLAN, NULL, g.told, 0, g.told->bytes);
	drop(p, 0);
	if (g.has_activate)
		wb__serve_send_activate(p->s, g.o, &g.activate);
}

void wb__serve_pump(struct peer *p)
{
	while (p->n_outgo && wb_session_is_up(&p->session) && !wb_chan_queued(p->ch)) {
		struct outgo *g = &p->outgo[0];

		if (!g->share.of)
			return;
		if (g->slice < g->share.n)
			send_piece(p, g);
		else
			end_first(p);
	}
}

void wb__serve_outgo(struct peer *p, struct object *o, struct wb_reconcile_epoch epoch,
	const struct share *share, struct blob *told)
{
	struct outgo next = {
		.o = o, .epoch = epoch, .share = *share, .told = wb__serve_blob_get(told)};
	const struct outgo *old = find(p, o);

	if (old && share->of && old->share.of == share->of) { /* the same plan: continue with it */
		next.slice = old->slice;
		next.at = old->at;
	}
	wb__serve_drop_outgo(p, o);
	if (wb_grow(&p->outgo, &p->outgo_cap, p->n_outgo + 1, OUTGO_MAX, sizeof(next)) < 0) {
		wb__serve_blob_put(share->of);
		wb__serve_blob_put(told);
		wb_session_end(&p->session, -ENOMEM, "memory is short");
		return;
	}
	p->outgo[p->n_outgo++] = next;
	wb__serve_pump(p);
}

bool wb__serve_outgo_waits(const struct peer *p, const struct object *o)
{
	const struct outgo *g = find(p, o);

	return g && !g->share.of;
}

void wb__serve_outgo_share(struct peer *p, const struct object *o, const struct share *share)
{
	find(p, o)->share = *share;
	wb__serve_pump(p);
}

bool wb__serve_outgo_activate(
	struct peer *p, const struct object *o, const struct wb_reconcile_action *a)
{
	struct outgo *g = find(p, o);

	if (!g || g->epoch.term != a->epoch.term || g->epoch.number != a->epoch.number)
		return false;
	g->activate = *a;
	g->activate.sentence = NULL; /* ACTIVATE has none */
	g->has_activate = true;
	return true;
}
