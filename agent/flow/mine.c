/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks whose source is a worker of this agent: nobody is asked for them, and they are begun when
 * they are there. */
#include "flow/wants.h"

#include <errno.h>

static uint32_t source_of(const struct wb_flow *f, uint32_t i)
{
	return (uint32_t)f->local->index_of[f->want[i].src];
}

static uint32_t id_of(const struct wb_flow *f, uint32_t i)
{
	return chunk_id(f, f->local->want[i].cls, f->local->want[i].chunk);
}

static bool is_there(const struct wb_flow *f, uint32_t i)
{
	uint32_t src = source_of(f, i);

	if (wb__want_from_trainer(f, i) && !wb__flow_image_at(f, src, id_of(f, i)))
		return f->source_open[src] == SOURCE_OPEN;
	return f->have[src][id_of(f, i)];
}

/* Refuse as serve.c refuses others: the source will never have the chunk for us, another holder
 * may. 0: the source has it, or will. */
static int refusal(const struct wb_flow *f, uint32_t i)
{
	uint32_t src = source_of(f, i), id = id_of(f, i);
	bool trainer = wb__want_from_trainer(f, i);
	const struct snap *s = trainer ? wb__flow_snap_of(f, src) : NULL;

	/* A snapshot holds only what the plan gives its worker to send, but stays. */
	if (s && wb__flow_image_at(f, src, id))
		return f->have[src][id] ? 0 : s->rc;
	if (s && !wb__flow_reads_on(s))
		return -ENOENT;
	if (f->source_open[src] == SOURCE_CLOSED || (!trainer && f->sink[src].failed))
		return -ECANCELED;
	return !trainer && !f->have[src][id] &&
			       wb__want_asks_around(
				       f, src, f->local->want[i].cls, f->local->want[i].chunk)
		       ? -ENODATA
		       : 0;
}

/* The source has a snapshot: the chunk is packed already. */
static int start_from_image(struct wb_flight *fl)
{
	uint32_t id = chunk_id(fl->flow, fl->cls, fl->chunk);
	int rc;

	wb__flow_trailer_write(fl->flow, fl->flow->sum[id], fl->gen, fl->trailer);
	rc = wb__flow_fetch_assemble(fl);
	if (rc < 0)
		wb__flow_flight_put(fl);
	return rc;
}

/* Pack from one worker into a slot, assemble into the other. */
static int start(struct wb_flow *f, uint32_t i)
{
	bool has_room = f->o.slots->n_free[WB_POOL_DOMAIN] > 0;
	void *wire = wb__flow_image_at(f, source_of(f, i), id_of(f, i));
	struct wb_flight *fl;
	uint32_t dst;
	int rc;

	if (!wire && !has_room)
		return wb__want_slot_rc(f, WB_POOL_DOMAIN);
	fl = wb__flow_fetch_flight(f, i, FETCH_LOCAL);
	if (!fl)
		return -EAGAIN;
	fl->wire = wire;
	if (wire)
		return start_from_image(fl);
	fl->slot = wb_slots_get(f->o.slots, WB_POOL_DOMAIN);
	dst = fl->worker;
	fl->worker = source_of(f, i);
	rc = wb__flow_flight_boxes(fl, false);
	fl->step = STEP_WIRE;
	if (rc == 0)
		rc = wb__flow_flight_lane(fl, WB_LANE_PACK, true);
	fl->worker = dst;
	if (rc < 0)
		wb__flow_flight_put(fl);
	return rc;
}

/* Begin the first in the queue of local worker @src. -EAGAIN: it stays where it is. */
static int pump_one(struct wb_flow *f, uint32_t src, bool *is_moved)
{
	uint32_t i = wb__want_pop(f, &f->mine[src]);
	int rc = refusal(f, i);

	if (rc < 0) {
		f->receive_pending -= wb__want_from_trainer(f, i);
		f->want[i].state = WANT_CLOSED;
		f->want[i].sources_tried++;
		wb__want_enqueue(f, i, rc);
		*is_moved = true;
		return 0;
	}
	if (!is_there(f, i)) {
		wb_keyed_add(&f->mine_waiting, i, chunk_key(src, id_of(f, i)));
		return 0;
	}
	rc = start(f, i);
	if (rc == -EAGAIN) {
		wb__want_push_front(f, &f->mine[src], i);
		return rc;
	}
	wb__flow_fetch_started(f, i);
	if (rc < 0)
		wb__want_failed(f, i, rc);
	return 0;
}

bool wb__flow_mine_pump(struct wb_flow *f)
{
	bool is_moved = false;

	for (uint32_t src = 0; src < f->local->n; src++)
		while (f->mine[src].head != FLOW_NONE && pump_one(f, src, &is_moved) == 0)
			;
	return is_moved;
}

void wb__flow_mine_review(struct wb_flow *f)
{
	uint32_t i;

	while ((i = wb_keyed_oldest(&f->mine_waiting)) != LIST_NONE) {
		wb_keyed_remove(&f->mine_waiting, i);
		wb__want_push(f, &f->mine[source_of(f, i)], i);
	}
}
