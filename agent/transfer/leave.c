/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainer workers that may go on before every engine has its receive stage: when all that engines
 * still lack from them lies in slots.
 *
 * Only receivers know what they lack, since what was sent may be asked for again until its sum was
 * compared.  So when little is left (the flow says when), the trainers' agent asks all agents with
 * rollout workers, LACK, and puts what they answer, LACKED, into slots (flow/stock.c).  A worker
 * that has not begun to receive lacks all that the plan brings it from here; but if it will ask
 * others than the plan says, because it does not reach some of them, it cannot tell yet.  What an
 * engine finds afterwards that it lacks, because another engine that would have relayed it died, or
 * because it was damaged, comes out of a slot or from nobody: then the engine fails and names the
 * chunk.
 *
 * Only the trainers' agent offers this.  If an answer does not come, or is more than fits, the
 * trainers stay where they are until RELEASE.
 */
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/hears.h"
#include "transfer/object.h"
#include "transfer/trainers.h"
#include "transfer/wire.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void wb__transfer_leave_reset(struct trainers *t)
{
	wb_free(t->leave.is_asked);
	wb_free(t->leave.lack);
	t->leave = (struct leave){.question = t->leave.question};
}

/* May the worker be let go early at all? */
static bool may_leave(const struct trainers *t, uint32_t local)
{
	const struct worker *w = t->e->member[local];

	return w && !w->gone && !w->holds && w->w.role == WB_ROLE_TRAINER &&
	       !wb__transfer_has_left(t, local);
}

static bool any_may_leave(const struct trainers *t)
{
	for (uint32_t i = 0; i < t->e->local->n; i++)
		if (may_leave(t, i))
			return true;
	return false;
}

/* Number of agents to ask; 0 = one of them cannot be asked. */
static uint32_t choose_asked(const struct epoch *e, bool *is_asked)
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < e->plan->n_worker; w++) {
		uint32_t a = e->plan->worker[w].domain;

		if (e->plan->worker[w].role != WB_ROLE_ROLLOUT || is_asked[a])
			continue;
		if (e->r->agent[a].version < WBP_LACK_SINCE || e->r->agent[a].is_foreign ||
			e->wire[a].is_down)
			return 0;
		is_asked[a] = true;
		n++;
	}
	return n;
}

void wb__transfer_leave_ask(struct epoch *e, const struct wb_flow *f)
{
	struct trainers *t = &e->obj->trainers;

	if (t->flow != f || t->e != e || t->state != TRAINERS_SERVING || e->r->trainer_staged ||
		!any_may_leave(t))
		return;
	wb__transfer_leave_reset(t);
	t->leave.is_asked = wb_zalloc(e->r->n_agent, sizeof(*t->leave.is_asked));
	t->leave.n_asked = t->leave.is_asked ? choose_asked(e, t->leave.is_asked) : 0;
	if (!t->leave.n_asked) {
		wb__transfer_leave_reset(t);
		return;
	}
	t->leave.question++;
	for (uint32_t a = 0; a < e->r->n_agent; a++)
		if (t->leave.is_asked[a])
			wb__transfer_send(e, a,
				WB_PEER(LACK, .transfer = t->transfer,
					.question = t->leave.question));
}

/* ---- the answer ----------------------------------------------------------------------------- */

/* Is everybody whom the plan names there for this agent's workers, as far as the agent knows? */
static bool goes_by_plan(const struct epoch *e, const struct wb_flow *f)
{
	for (uint32_t w = 0; w < e->plan->n_worker; w++)
		if (e->r->agent[e->plan->worker[w].domain].is_foreign ||
			(f && wb_flow_has_lost(f, w)))
			return false;
	return true;
}

/* What rollout worker @i of this agent lacks from @from's trainers, in @out; returns how many
 * entries, more than @cap: too many, or not known yet. */
static uint32_t lacked_by(
	struct epoch *e, uint32_t i, uint32_t from, uint64_t transfer, uint64_t *out, uint32_t cap)
{
	const struct party *p = &e->party[e->plan->worker[e->local->member[i].plan_worker].engine];
	const struct worker *w = e->member[i];

	if (w && w->held_transfer == transfer)
		return 0;
	if (p->state != PARTY_NONE && p->transfer == transfer && p->flow &&
		wb_flow_was_opened(p->flow, i))
		return wb_flow_lacking(p->flow, i, from, out, cap);
	if (!goes_by_plan(e, p->transfer == transfer ? p->flow : NULL))
		return cap + 1;
	if (cap)
		out[0] = WB_FLOW_LACK(e->local->member[i].plan_worker, WBP_LACK_ALL);
	return 1;
}

void wb__transfer_on_LACK(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	uint64_t *lack = wb_alloc(WBP_LACK_MAX * sizeof(*lack));
	uint32_t n = 0;
	bool is_told;

	for (uint32_t i = 0; lack && i < e->local->n && n <= WBP_LACK_MAX; i++)
		if (e->plan->worker[e->local->member[i].plan_worker].role == WB_ROLE_ROLLOUT)
			n += lacked_by(e, i, from, m->transfer, lack + n, WBP_LACK_MAX - n);
	is_told = lack && n <= WBP_LACK_MAX;
	wb__transfer_send(e, from,
		WB_PEER(LACKED, .transfer = m->transfer, .question = m->question,
			.code = is_told ? 0 : -E2BIG, .lacked = lack, .n_lacked = is_told ? n : 0));
	wb_free(lack);
}

/* ---- and what is made of it ----------------------------------------------------------------- */

/* Mark all that the plan brings @dst from @src. */
static void mark_routes(const struct wb_plan *p, uint32_t src, uint32_t dst, uint8_t *is_lacked)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (r->src == src && r->dst == dst && r->stage == WB_STAGE_RECEIVE)
			memset(is_lacked + p->cls[r->class_id].chunk_base + r->chunk_begin, 1,
				r->chunk_end - r->chunk_begin);
	}
}

static void mark(const struct wb_plan *p, const struct leave *l, uint32_t src, uint8_t *is_lacked)
{
	for (uint32_t k = 0; k < l->n_lack; k++) {
		uint32_t w = (uint32_t)(l->lack[k] >> 32), id = (uint32_t)l->lack[k];

		if (id == WBP_LACK_ALL)
			mark_routes(p, src, w, is_lacked);
		else if (w == src && id < p->n_chunk)
			is_lacked[id] = 1;
	}
}

/* @id, @is_lacked: room for plan->n_chunk. */
static void stock_one(
	struct trainers *t, const struct leave *l, uint32_t local, uint32_t *id, uint8_t *is_lacked)
{
	const struct wb_plan *p = t->e->plan;
	uint32_t w = t->e->local->member[local].plan_worker, n = 0;

	memset(is_lacked, 0, p->n_chunk);
	mark(p, l, w, is_lacked);
	for (uint32_t c = 0; c < p->n_chunk; c++)
		if (is_lacked[c])
			id[n++] = c;
	if (wb_flow_stock(t->flow, local, id, n) == 0)
		wb__transfer_trace(
			t->e->obj, "stock", wb__transfer_worker_name(t->e, w), t->transfer, n);
}

/* All have answered: trainer workers whose chunks fit leave, one after the other (flow.h).  Each of
 * them may make the flow say that there is less left, which asks the next question while this
 * answer is gone through. */
static void stock_all(struct trainers *t)
{
	struct leave l = t->leave;
	uint32_t *id = wb_alloc(t->e->plan->n_chunk * sizeof(*id));
	uint8_t *is_lacked = wb_alloc(t->e->plan->n_chunk);

	t->leave = (struct leave){.question = l.question};
	for (uint32_t i = 0; id && is_lacked && i < t->e->local->n; i++)
		if (may_leave(t, i) && wb_flow_sends_far(t->flow, i))
			stock_one(t, &l, i, id, is_lacked);
	wb_free(id);
	wb_free(is_lacked);
	wb_free(l.is_asked);
	wb_free(l.lack);
}

static bool add(struct leave *l, const uint64_t *lacked, uint32_t n)
{
	uint64_t *more = wb_alloc((l->n_lack + (size_t)n) * sizeof(*more));

	if (!more)
		return false;
	if (l->n_lack)
		memcpy(more, l->lack, l->n_lack * sizeof(*more));
	memcpy(more + l->n_lack, lacked, n * sizeof(*more));
	wb_free(l->lack);
	l->lack = more;
	l->n_lack += n;
	return true;
}

void wb__transfer_on_LACKED(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct trainers *t = &e->obj->trainers;
	struct leave *l = &t->leave;

	if (t->e != e || t->state != TRAINERS_SERVING || !t->flow || m->transfer != t->transfer ||
		m->question != l->question || !l->n_asked || !l->is_asked[from])
		return;
	l->is_asked[from] = false;
	if (m->code < 0 || (m->n_lacked && !add(l, m->lacked, m->n_lacked))) {
		wb__transfer_leave_reset(t); /* LACK is asked again when less is left */
		return;
	}
	if (!--l->n_asked)
		stock_all(t);
}
