/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: pack what a trainer worker is to send into its image, then serve from there. */
#include "base/mem.h"
#include "flow/internal.h"

#include <errno.h>
#include <string.h>

#define SNAPS_EACH 4 /* chunks of one worker with its lane: what keeps that busy */

static void done(struct wb_flow *f, uint32_t worker)
{
	struct snap *s = &f->snap[worker];

	if (s->is_told || s->n_out || (s->rc == 0 && s->next < s->image->n && !f->stopping))
		return;
	s->is_told = true;
	f->o.env->on_snapped(f->o.env->ctx, f, worker, f->stopping && !s->rc ? -ECANCELED : s->rc);
}

/* One chunk to its lane; false when it has to wait. */
static bool start(struct wb_flow *f, uint32_t worker)
{
	struct snap *s = &f->snap[worker];
	struct wb_flight *fl;
	int n;

	if (!s->image || s->rc || s->next == s->image->n || s->n_out == SNAPS_EACH || f->stopping ||
		f->source_open[worker] != SOURCE_OPEN)
		return false;
	fl = wb__flow_flight_get(&f->snaps);
	if (!fl)
		return false;
	fl->worker = worker;
	fl->cls = s->image->cls[s->next];
	fl->chunk = s->image->chunk[s->next];
	fl->bytes = wb_chunk_len(f->plan, &f->plan->cls[fl->cls], fl->chunk);
	fl->wire = s->base + s->image->off[chunk_id(f, fl->cls, fl->chunk)];
	fl->step = STEP_LANE;
	n = wb_local_boxes(f->local, worker, fl->cls, fl->chunk, false, fl->box, fl->scratch);
	fl->n_box = n < 0 ? 0 : (uint32_t)n;
	n = n < 0 ? n : wb__flow_flight_lane(fl, true, true);
	if (n < 0) {
		wb__flow_flight_put(fl);
		s->rc = n == -EAGAIN ? s->rc : n;
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
}

void wb__flow_snap_lane(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	struct snap *s = &f->snap[fl->worker];
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);

	s->n_out--;
	if (job->rc < 0) {
		s->rc = job->rc;
	} else {
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

int wb_flow_open_image(struct wb_flow *f, uint32_t worker, const struct wb_image *image, void *base)
{
	int rc;

	if (!f->snap) {
		f->snap = wb_zalloc(f->local->n, sizeof(*f->snap));
		if (!f->snap)
			return -ENOMEM;
		rc = wb__flow_pool_init(f, &f->snaps, SNAPS_EACH * f->local->n, FLIGHT_SNAP);
		if (rc < 0)
			return rc;
	}
	f->snap[worker] = (struct snap){.image = image, .base = base};
	f->source_open[worker] = SOURCE_OPEN;
	wb__flow_review(f); /* some of it may be refused, and is in no image */
	wb__flow_pump(f, DUE_SNAP);
	return 0;
}

bool wb_flow_image_is_whole(const struct wb_flow *f, uint32_t worker)
{
	return f->snap && f->snap[worker].image && f->snap[worker].is_told && !f->snap[worker].rc;
}

void *wb__flow_image_at(const struct wb_flow *f, uint32_t worker, uint32_t id)
{
	const struct snap *s = f->snap ? &f->snap[worker] : NULL;

	if (!s || !s->image || s->image->off[id] == WB_IMAGE_NONE)
		return NULL;
	return s->base + s->image->off[id];
}
