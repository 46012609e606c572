/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading back.  Sums of what arrived say nothing about where it was put: with o.read_back each
 * chunk is summed again in the memory it was installed in, and when all of a sink is there, all of
 * it once more, so that what one chunk did to another's place is found as well.
 */
#include "base/mem.h"
#include "flow/wants.h"

#include <errno.h>
#include <string.h>

const char *wb_flow_place_name(enum wb_flow_place p)
{
	static const char *const names[WB_FLOW_PLACES] = {"wire", "slot", "relay", "install"};

	return (unsigned)p < WB_FLOW_PLACES ? names[p] : "?";
}

/* The parameter that the chunk begins in. */
static const char *param_of(struct wb_flow *f, uint32_t worker, const struct wb_flight *fl)
{
	size_t n = f->local->boxes_max;
	struct wbk_box *box = wb_alloc(n * sizeof(*box));
	uint32_t *param = wb_alloc(n * sizeof(*param));
	const char *name = "?";

	if (box && param &&
		wb_local_boxes(f->local, worker, fl->cls, fl->chunk, false, box, param) > 0)
		name = f->local->member[worker].map->param[param[0]].name;
	wb_free(box);
	wb_free(param);
	return name;
}

void wb__flow_mismatch(struct wb_flow *f, enum wb_flow_place place, uint32_t src, uint32_t worker,
	const struct wb_flight *fl)
{
	struct wb_flow_mismatch m = {.place = place,
		.src = src,
		.dst = f->local->member[worker].plan_worker,
		.cls = fl->cls,
		.chunk = fl->chunk,
		.rail = fl->rail};

	f->stats.mismatched++;
	if (!f->o.env->on_mismatch)
		return;
	m.param = param_of(f, worker, fl);
	f->o.env->on_mismatch(f->o.env->ctx, f, &m);
}

/* ---- faults on demand --------------------------------------------------------------------- */

/* The same elements in the opposite order: the sum of what is read from the wire does not change.
 */
static void reverse(struct wbk_box *b)
{
	if (b->n_row > 1) {
		b->mem_off += (uint64_t)((int64_t)(b->n_row - 1) * b->row_stride);
		b->row_stride = -b->row_stride;
	} else {
		b->mem_off += (uint64_t)((int64_t)(b->n_col - 1) * b->col_stride);
		b->col_stride = -b->col_stride;
	}
}

/* WB_FAULT: bytes of the chunk go where other bytes of it belong. */
void wb__flow_misplace(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	size_t half;

	if (!fl->misplaced && !(wb__flow_fault(f, WB_FAULT_ASSEMBLE, NULL, 0) & WB_FAULT_MISPLACE))
		return;
	fl->misplaced = true;
	if (fl->n_iov == 0) {
		reverse(&fl->box[0]);
		return;
	}
	half = fl->iov[0].iov_len / 8 * 4;
	if (fl->slot != WB_SLOT_NONE || fl->n_iov == FLOW_IOV_MAX || !half)
		return;
	memmove(&fl->iov[1], &fl->iov[0], fl->n_iov++ * sizeof(fl->iov[0]));
	fl->iov[0].iov_base = (uint8_t *)fl->iov[1].iov_base + half;
	fl->iov[0].iov_len -= half;
	fl->iov[1].iov_len = half;
}

/* WB_FAULT: a parameter goes bad after what arrived for it was verified. */
static void damage(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	void *const *base = f->local->member[fl->worker].base;
	void *at = NULL;
	uint64_t bytes = 0;

	if (!f->o.env->fault)
		return;
	if (fl->slot == WB_SLOT_NONE && fl->n_iov) {
		at = fl->iov[0].iov_base;
		bytes = fl->iov[0].iov_len;
	} else if (base && fl->n_box && base[fl->box[0].base]) {
		at = (uint8_t *)base[fl->box[0].base] + fl->box[0].mem_off;
		bytes = fl->box[0].mem_elem;
	}
	wb__flow_fault(f, WB_FAULT_INSTALL, at, bytes);
}

/* ---- one chunk ---------------------------------------------------------------------------- */

/* Read all copies of the chunk, or the first ones if there are no others. */
int wb__flow_read(struct wb_flight *fl)
{
	int rc = wb__flow_flight_boxes(fl, true);

	return rc < 0 ? rc : wb__flow_flight_lane(fl, WB_LANE_SUM, true);
}

/* The sum that a read of all copies must give. */
static const struct wbk_sum *wanted(const struct wb_flow *f, uint32_t worker, uint32_t id)
{
	const struct wbk_sum *all = f->copies ? &f->copies[worker][id] : NULL;

	return all && (all->lane[0] || all->lane[1]) ? all : &f->sum[id];
}

void wb__flow_installed(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	int rc;

	damage(fl);
	if (!f->o.read_back || !f->o.sums) {
		wb__flow_fetch_ok(fl);
		return;
	}
	wb__flow_slot_put(fl);
	fl->step = STEP_READ;
	rc = wb__flow_read(fl);
	if (rc < 0)
		wb__flow_fetch_park(fl, rc);
}

void wb__flow_read_done(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);

	if (job->rc == 0 && !memcmp(&job->sum, wanted(f, fl->worker, id), sizeof(job->sum))) {
		wb__flow_fetch_ok(fl);
		return;
	}
	if (job->rc == 0)
		wb__flow_mismatch(f, WB_FLOW_INSTALL, f->want[fl->want].src, fl->worker, fl);
	wb__flow_fetch_retry(fl, job->rc < 0 ? job->rc : WB_ECKSUM, false);
}

/* ---- all of a sink ------------------------------------------------------------------------ */

static bool is_wanted(const struct wb_flow *f, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];

	return f->want[i].state == WANT_DONE && f->sum_known[chunk_id(f, w->cls, w->chunk)];
}

static bool is_out(const struct wb_flow *f, uint32_t worker)
{
	for (uint32_t i = 0; i < f->checks.n; i++)
		if (f->checks.all[i].in_use && f->checks.all[i].worker == worker &&
			f->checks.all[i].gen == f->sink[worker].pass)
			return true;
	return false;
}

/* Give the next chunk of the pass to the lane; false when there is none or it has to wait. */
static bool check_one(struct wb_flow *f, uint32_t worker)
{
	struct sink *s = &f->sink[worker];
	struct wb_flight *fl;
	uint32_t i = s->check_next;

	while (i != FLOW_NONE && !is_wanted(f, i))
		i = f->local->want_same[i];
	s->check_next = i;
	if (i == FLOW_NONE || !(fl = wb__flow_flight_get(&f->checks)))
		return false;
	fl->want = i;
	fl->worker = worker;
	fl->cls = f->local->want[i].cls;
	fl->chunk = f->local->want[i].chunk;
	fl->gen = s->pass;
	fl->step = STEP_READ;
	if (wb__flow_read(fl) < 0) {
		wb__flow_flight_put(fl); /* the lane is full: the tick comes again */
		return false;
	}
	s->check_next = f->local->want_same[i];
	return true;
}

static void check_sink(struct wb_flow *f, uint32_t worker)
{
	struct sink *s = &f->sink[worker];

	if (!s->pass || sink_is_over(f, worker))
		return;
	while (check_one(f, worker))
		;
	if (s->check_next != FLOW_NONE || is_out(f, worker))
		return;
	s->pass = 0;
	s->clean = s->left == 0;
	wb__flow_announce(f, worker);
}

void wb__flow_check_pump(struct wb_flow *f)
{
	for (uint32_t w = 0; f->checks.n && w < f->local->n; w++)
		check_sink(f, w);
}

bool wb__flow_check_is_clean(struct wb_flow *f, uint32_t worker)
{
	struct sink *s = &f->sink[worker];

	if (!f->checks.n || s->clean)
		return true;
	if (!s->pass) {
		s->pass = ++f->n_pass;
		s->check_next = f->local->want_first[worker];
		check_sink(f, worker); /* announces the sink, at once or later */
	}
	return false;
}

void wb__flow_check_lane(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	uint32_t worker = fl->worker, cls = fl->cls, chunk = fl->chunk;
	bool is_bad = job->rc < 0 || memcmp(&job->sum, wanted(f, worker, chunk_id(f, cls, chunk)),
					     sizeof(job->sum)) != 0;
	bool counts = fl->gen == f->sink[worker].pass && !sink_is_over(f, worker);

	wb__flow_flight_put(fl);
	if (is_bad && counts)
		wb__flow_fetch_again(f, worker, cls, chunk, WB_FLOW_INSTALL);
	f->due |= DUE_CHECK | DUE_FETCH;
}
