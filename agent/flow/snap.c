/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: pack what a trainer worker is to send into its image, then serve from there. */
#include "base/mem.h"
#include "flow/internal.h"

#include <errno.h>
#include <string.h>

#define SNAPS_EACH 4 /* chunks of one worker that its lane has at a time, to be kept busy */

static void done(struct wb_flow *f, uint32_t worker)
{
	struct snap *s = &f->snap[worker];

	if (s->is_told || s->n_out || s->is_over ||
		(s->rc == 0 && s->next < s->image->n && !f->stopping))
		return;
	if (s->stock && !wb__flow_stock_is_free(f, worker))
		return;
	s->is_told = true;
	f->due |= DUE_FEW; /* the next worker's turn */
	f->o.env->on_snapped(f->o.env->ctx, f, worker, f->stopping && !s->rc ? -ECANCELED : s->rc);
}

/* A stock that cannot be made leaves everything as it was. */
static void failed(struct wb_flow *f, uint32_t worker, int rc)
{
	struct snap *s = &f->snap[worker];

	if (rc < 0)
		s->rc = rc;
	if (s->rc && s->stock)
		wb__flow_stock_drop(f, worker);
}

/* Give one chunk to its lane; false when it has to wait. */
static bool start(struct wb_flow *f, uint32_t worker)
{
	struct snap *s = &f->snap[worker];
	struct wb_flight *fl;
	int n;

	if (!s->image || s->is_over || s->rc || s->next == s->image->n || s->n_out == SNAPS_EACH ||
		f->stopping || f->source_open[worker] != SOURCE_OPEN)
		return false;
	fl = wb__flow_flight_get(&f->snaps);
	if (!fl)
		return false;
	fl->worker = worker;
	fl->cls = s->image->cls[s->next];
	fl->chunk = s->image->chunk[s->next];
	fl->bytes = wb_chunk_len(f->plan, &f->plan->cls[fl->cls], fl->chunk);
	fl->wire = s->stock ? wb__flow_stock_slot(f, s)
			    : s->base + s->image->off[chunk_id(f, fl->cls, fl->chunk)];
	fl->step = STEP_LANE;
	n = !fl->wire ? -EAGAIN
		      : wb_local_boxes(
				f->local, worker, fl->cls, fl->chunk, false, fl->box, fl->scratch);
	fl->n_box = n < 0 ? 0 : (uint32_t)n;
	n = n < 0 ? n : wb__flow_flight_lane(fl, WB_LANE_PACK, true);
	if (n < 0) {
		if (s->stock && fl->wire)
			wb_slots_put(f->o.slots, s->slot[s->next]);
		wb__flow_flight_put(fl);
		failed(f, worker, n == -EAGAIN ? 0 : n);
		return false;
	}
	s->next++;
	s->n_out++;
	return true;
}

/* Each worker has flights of its own, so that all lanes are busy whoever was opened first. */
void wb__flow_snap_pump(struct wb_flow *f)
{
	for (uint32_t w = 0; f->snap && w < f->local->n; w++)
		while (start(f, w))
			;
	for (uint32_t w = 0; f->snap && w < f->local->n; w++)
		if (f->snap[w].image)
			done(f, w);
	wb__flow_stock_reap(f);
}

void wb__flow_snap_lane(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	struct snap *s = &f->snap[fl->worker];
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);

	s->n_out--;
	if (job->rc < 0) {
		failed(f, fl->worker, job->rc);
	} else {
		if (s->stock)
			wb__flow_stock_packed(f, s, id, fl->wire);
		f->sum[id] = job->sum;
		f->sum_known[id] = f->o.sums;
		f->have[fl->worker][id] = 1;
		wb__flow_wake(f, fl->worker, id);
	}
	if (job->rc < 0)
		wb__flow_review(f);
	wb__flow_flight_put(fl);
	f->due |= DUE_SNAP | DUE_SERVE | DUE_FETCH;
}

int wb__flow_snaps_init(struct wb_flow *f)
{
	int rc;

	if (f->snap)
		return 0;
	f->snap = wb_zalloc(f->local->n, sizeof(*f->snap));
	rc = f->snap ? wb__flow_pool_init(f, &f->snaps, SNAPS_EACH * f->local->n, FLIGHT_SNAP)
		     : -ENOMEM;
	if (rc == 0)
		return 0;
	wb__flow_pool_finish(&f->snaps);
	wb_free(f->snap);
	f->snap = NULL;
	return rc;
}

int wb_flow_open_image(struct wb_flow *f, uint32_t worker, const struct wb_image *image, void *base)
{
	int rc = wb__flow_snaps_init(f);

	if (rc < 0)
		return rc;
	f->snap[worker] = (struct snap){.image = image, .base = base};
	f->source_open[worker] = SOURCE_OPEN;
	wb__flow_review(f); /* asks for what is in no image may be refused */
	wb__flow_pump(f, DUE_SNAP);
	return 0;
}

bool wb_flow_image_is_whole(const struct wb_flow *f, uint32_t worker)
{
	const struct snap *s = f->snap ? &f->snap[worker] : NULL;

	/* What a stock had in slots may be gone by now, as nobody lacks it. */
	return s && (s->image || s->is_over) && s->is_told && !s->rc;
}

void *wb__flow_image_at(const struct wb_flow *f, uint32_t worker, uint32_t id)
{
	const struct snap *s = wb__flow_snap_of(f, worker);

	if (!s || s->image->off[id] == WB_IMAGE_NONE)
		return NULL;
	return s->base + s->image->off[id];
}
