/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/area_gpu.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "lane/gpu.h"

#include <errno.h>

#define ALIGN ((uint64_t)256) /* up to this, an offset on the wire is aligned like its address */

struct wb_area_gpu {
	struct wb_lane_gpu *lane; /* owned */
	uint8_t *area; /* borrowed */
	uint64_t area_bytes;
	struct wbk_sum_keys keys;
	struct wbk_box box[WB_LANE_GPU_BOXES];
};

/* ---- pieces ---------------------------------------------------------------------------------- */

/* A position in a list of ranges: the next piece, and how much of it was taken. */
struct cursor {
	const struct wb_area_range *r;
	uint32_t n, i;
	struct wb_area_range now; /* r[i], with its pieces joined where they follow each other */
	uint64_t row, rep, at;
};

static struct wb_area_range joined(const struct wb_area_range *r)
{
	struct wb_area_range x = *r;

	if (x.rep_stride == (int64_t)x.bytes) {
		x.bytes *= x.n_rep;
		x.n_rep = 1;
	}
	if (x.n_rep == 1 && x.row_stride == (int64_t)x.bytes) {
		x.bytes *= x.n_row;
		x.n_row = 1;
	}
	return x;
}

static bool is_empty(const struct wb_area_range *r)
{
	return !r->bytes || !r->n_row || !r->n_rep;
}

static void settle_on(struct cursor *c, uint32_t i)
{
	while (i < c->n && is_empty(&c->r[i]))
		i++;
	c->i = i;
	c->row = c->rep = c->at = 0;
	if (i < c->n)
		c->now = joined(&c->r[i]);
}

static struct cursor begin_at(const struct wb_area_range *r, uint32_t n, uint32_t i)
{
	struct cursor c = {.r = r, .n = n};

	settle_on(&c, i);
	return c;
}

static uint64_t offset(const struct cursor *c)
{
	return c->now.off + (uint64_t)((int64_t)c->row * c->now.row_stride) +
	       (uint64_t)((int64_t)c->rep * c->now.rep_stride) + c->at;
}

static void take(struct cursor *c, uint64_t bytes)
{
	c->at += bytes;
	if (c->at < c->now.bytes)
		return;
	c->at = 0;
	if (++c->rep < c->now.n_rep)
		return;
	c->rep = 0;
	if (++c->row == c->now.n_row)
		settle_on(c, c->i + 1);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Put pieces from @c on into @job, as many as one job may have.  0, or -EINVAL: a piece is beyond
 * the area. */
static int fill(struct wb_area_gpu *g, struct cursor *c, uint32_t max, void *const *from,
	struct wb_lane_job *job)
{
	uint64_t wire = 0, end = 0;

	while (c->i < c->n && job->n_box < max) {
		const uint8_t *object = from[c->now.mem];
		uint64_t off = offset(c), at = (uint64_t)(object - g->area) + off;
		uint64_t left = c->now.bytes - c->at;

		if (off > g->area_bytes || at > g->area_bytes || left > g->area_bytes - at)
			return -EINVAL;
		if (!job->n_box)
			wire = at / ALIGN * ALIGN;
		if (at < wire || at >= wire + WB_LANE_GPU_STAGE)
			break;
		left = WB_MIN(left, wire + WB_LANE_GPU_STAGE - at);
		g->box[job->n_box++] = (struct wbk_box){.base = c->now.mem,
			.mem_off = off,
			.wire_off = at - wire,
			.pos = at,
			.n_row = 1,
			.n_col = (uint32_t)left,
			.col_stride = 1,
			.pos_col_stride = 1,
			.wire_elem = 1,
			.mem_elem = 1,
			.cast = WBK_COPY};
		end = WB_MAX(end, at + left);
		take(c, left);
	}
	job->box = g->box;
	job->wire = g->area + wire;
	job->wire_bytes = end - wire;
	return 0;
}

int wb_area_gpu_copy(struct wb_area_gpu *g, const struct wb_area_range *r, uint32_t n,
	void *const *from, void *const *to)
{
	struct cursor c = begin_at(r, n, 0);
	struct wbk_sum none;
	int rc = 0;

	while ((!rc && c.i < n) || wb_lane_gpu_under_way(g->lane)) {
		struct wb_lane_job job = {.kind = WB_LANE_ASSEMBLE, .bases = to};
		int bad = 0;

		if (rc || c.i == n || wb_lane_gpu_under_way(g->lane) == WB_LANE_GPU_JOBS)
			bad = wb_lane_gpu_end(g->lane, &none);
		else if (!(bad = fill(g, &c, WB_LANE_GPU_BOXES, from, &job)))
			wb_lane_gpu_begin(g->lane, &job);
		rc = rc ? rc : bad;
	}
	return rc;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static struct wbk_sum sum_here(const struct wb_area_gpu *g, const struct wb_lane_job *job)
{
	struct wbk_sum sum = {{0, 0}};

	for (uint32_t i = 0; i < job->n_box; i++)
		wbk_sum_add(
			&g->keys, g->box[i].pos, g->area + g->box[i].pos, g->box[i].n_col, &sum);
	return sum;
}

/* Compare the next pieces, at most @max.  @n gets their number, @differ whether any of them
 * differs. */
static int compare(struct wb_area_gpu *g, struct cursor *c, uint32_t max, void *const *from,
	void *const *to, uint32_t *n, bool *differ)
{
	struct wb_lane_job job = {.kind = WB_LANE_SUM, .bases = to, .keys = &g->keys};
	struct wbk_sum here, there;
	int rc = fill(g, c, max, from, &job);

	*n = job.n_box;
	*differ = false;
	if (rc)
		return rc;
	wb_lane_gpu_begin(g->lane, &job);
	here = sum_here(g, &job);
	rc = wb_lane_gpu_end(g->lane, &there);
	*differ = here.lane[0] != there.lane[0] || here.lane[1] != there.lane[1];
	return rc;
}

/* One of the @n_box pieces from @c on differs: find its range by halving.  A job that begins in the
 * middle of the pieces may end before half of them, if their addresses go back and forth.  If the
 * piece that differed changes meanwhile and does not differ any more, another range is named in its
 * place. */
static int find(struct wb_area_gpu *g, struct cursor *c, uint32_t n_box, void *const *from,
	void *const *to, uint32_t *range)
{
	int rc = 0;

	while (!rc && n_box > 1) {
		struct cursor behind = *c;
		uint32_t n;
		bool differ;

		rc = compare(g, &behind, n_box / 2, from, to, &n, &differ);
		n_box = differ ? n : n_box - n;
		if (!differ)
			*c = behind;
	}
	*range = c->i;
	return rc;
}

int wb_area_gpu_differs(struct wb_area_gpu *g, const struct wb_area_range *r, uint32_t n,
	uint32_t i, void *const *from, void *const *to, uint32_t *out)
{
	struct cursor c = begin_at(r, n, i), before = c;
	uint32_t n_box = 0;
	bool differ = false;
	int rc = 0;

	while (!rc && !differ && c.i < n) {
		before = c;
		rc = compare(g, &c, WB_LANE_GPU_BOXES, from, to, &n_box, &differ);
	}
	*out = n;
	return rc || !differ ? rc : find(g, &before, n_box, from, to, out);
}

/* ---- life ------------------------------------------------------------------------------------ */

int wb_area_gpu_create(const uint8_t *uuid, void *area, uint64_t area_bytes,
	struct wb_area_gpu **out, struct wb_err *err)
{
	struct wb_area_gpu *g;
	int rc;

	assert(area && out && (uintptr_t)area % ALIGN == 0);
	g = wb_zalloc(1, sizeof(*g));
	if (!g)
		return wb_err_set(err, -ENOMEM, "no memory to install on a GPU");
	g->area = area;
	g->area_bytes = area_bytes;
	wbk_sum_keys_init(&g->keys, 1);
	rc = wb_lane_gpu_create(uuid, area, area_bytes, &g->lane, err);
	if (rc) {
		wb_free(g);
		return rc;
	}
	*out = g;
	return 0;
}

void wb_area_gpu_forked(struct wb_area_gpu *g)
{
	if (g)
		g->lane = NULL;
}

void wb_area_gpu_destroy(struct wb_area_gpu *g)
{
	if (!g)
		return;
	wb_lane_gpu_destroy(g->lane);
	wb_free(g);
}
