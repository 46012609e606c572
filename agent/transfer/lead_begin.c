/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a lead may begin what it is asked for: numbers, and runs of the object's other plan. */
#include "transfer/lead.h"

#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/object.h"
#include "transfer/wire.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>

void wb__transfer_lead_refuse(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, int64_t code, const char *why)
{
	char text[512];

	snprintf(text, sizeof(text), "%s", why);
	wb__transfer_send(e, from,
		WB_PEER(REFUSED, .transfer = m->transfer, .engine = m->engine, .feed = m->feed,
			.code = code, .sentence = text, .highest = e->obj->highest));
}

/* Fenced: an engine uses a number once.  A feed repeats the number of a transfer that the engine
 * has lost: in all its workers, or in one, whose agent or process began anew; then the others still
 * hold it, from before this plan. */
static bool is_stale(struct epoch *e, const struct wb_msg_peer *m)
{
	const struct lead *l = &e->lead[m->engine];
	bool brought = l->state == LEAD_DONE && l->transfer == m->transfer;

	for_party_worker (e, m->engine, i) {
		const struct worker *w = e->member[i];

		if (w && (m->feed ? w->held_transfer >= m->transfer + !brought
				  : w->seen_transfer >= m->transfer))
			return true;
	}
	if (m->feed)
		return wb__transfer_leads_run(l) && l->transfer >= m->transfer;
	return m->transfer < e->obj->highest;
}

/* The engine may still be in a transfer of the plan before: its workers are in one at a time. */
static struct lead *lead_before(const struct epoch *e, uint32_t engine, bool also_ending)
{
	struct epoch *prev = wb__transfer_before(e);
	uint32_t en = wb__transfer_engine_in(prev, e, engine);
	struct lead *l = en != UINT32_MAX ? &prev->lead[en] : NULL;

	return l && wb__transfer_leads_run(l) && (also_ending || l->state != LEAD_ENDING) ? l
											  : NULL;
}

/* Or the engine is in a transfer of the plan after: what was said under the plan before comes
 * late. */
static const struct lead *lead_after(const struct epoch *e, uint32_t engine)
{
	const struct epoch *cur = e == e->obj->prev ? e->obj->cur : NULL;
	uint32_t en = wb__transfer_engine_in(cur, e, engine);

	return en != UINT32_MAX && wb__transfer_leads_run(&cur->lead[en]) ? &cur->lead[en] : NULL;
}

void wb__transfer_lead_overtake(struct epoch *e, const struct wb_msg_peer *m)
{
	struct lead *before = lead_before(e, m->engine, false);

	if (before && before->transfer <= m->transfer)
		wb__transfer_lead_broken(before, "overtaken under a newer plan");
}

bool wb__transfer_lead_may_begin(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	const struct lead *before, *busy = lead_after(e, m->engine);
	char text[256];

	if (is_stale(e, m)) {
		snprintf(text, sizeof(text),
			"transfer %llu is not above %llu, the highest seen by agent %s",
			(unsigned long long)m->transfer, (unsigned long long)e->obj->highest,
			e->obj->core->agent);
		wb__transfer_lead_refuse(e, from, m, WB_ESTALE, text);
		return false;
	}
	/* A feed may be late: perhaps what it brings has just been committed. */
	before = lead_before(e, m->engine, m->feed);
	if (before && m->feed && before->state != LEAD_STAGED)
		busy = before;
	if (busy) {
		snprintf(text, sizeof(text), "engine %.100s is still in transfer %llu",
			e->r->engine[m->engine].name, (unsigned long long)busy->transfer);
		wb__transfer_lead_refuse(e, from, m, -EBUSY, text);
		return false;
	}
	return true;
}
