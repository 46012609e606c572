/* SPDX-License-Identifier: Apache-2.0 */
/* What all kinds of lanes share, and the inline kind. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "lane/internal.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

int wb__lane_depth(const struct wb_lane_opts *o, uint32_t *depth_out, struct wb_err *err)
{
	uint32_t depth = o && o->depth ? o->depth : WB__LANE_DEPTH;

	if (depth > WB__LANE_DEPTH_MAX)
		return wb_err_set(
			err, -EINVAL, "a lane of depth %u: at most %u", depth, WB__LANE_DEPTH_MAX);
	*depth_out = depth;
	return 0;
}

void wb__lane_run(struct wb_lane_job *job)
{
	struct wbk_sum *sum = job->keys ? &job->sum : NULL;

	job->sum = (struct wbk_sum){{0, 0}};
	job->rc = 0;
	switch (job->kind) {
	case WB_LANE_PACK:
		(job->cold ? wbk_pack_cold : wbk_pack)(
			job->bases, job->box, job->n_box, job->wire, job->keys, sum);
		break;
	case WB_LANE_ASSEMBLE:
		wbk_assemble(job->bases, job->box, job->n_box, job->wire, job->keys, sum);
		break;
	case WB_LANE_SUM:
		if (sum)
			wbk_sum_mem(job->bases, job->box, job->n_box, job->keys, sum);
		else
			job->rc = -EINVAL;
		break;
	default:
		job->rc = -EINVAL;
	}
}

void wb__lane_signal(int fd)
{
	uint64_t one = 1;
	ssize_t n;

	do
		n = write(fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	/* EAGAIN: the count is at its top, so the fd is readable anyway. */
}

void wb__lane_drain(int fd)
{
	uint64_t count;
	ssize_t n;

	do
		n = read(fd, &count, sizeof(count));
	while (n < 0 && errno == EINTR);
}

int wb__lane_wait(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t count;

	for (;;) {
		ssize_t n = read(fd, &count, sizeof(count));

		if (n == (ssize_t)sizeof(count))
			return 0;
		if (n >= 0)
			return -EPROTO;
		if (errno == EAGAIN && poll(&p, 1, -1) < 0 && errno != EINTR)
			return -errno;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
}

int wb_lane_submit(struct wb_lane *l, const struct wb_lane_job *job)
{
	int rc;

	assert(l && job && (job->box || !job->n_box));
	if (l->is_aborted)
		return -EPIPE;
	if (l->n_out == l->depth)
		return -EAGAIN;
	rc = l->ops->submit(l, job);
	if (!rc)
		l->n_out++;
	return rc;
}

int wb_lane_reap(struct wb_lane *l, struct wb_lane_job *job, int n)
{
	int got;

	assert(l && (job || !n));
	got = l->ops->reap(l, job, n);
	assert(got >= 0 && (uint32_t)got <= l->n_out);
	l->n_out -= (uint32_t)got;
	return got;
}

void wb_lane_fired(struct wb_lane *l)
{
	if (l->fd >= 0 && !l->ops->is_due(l))
		wb__lane_drain(l->fd);
}

int wb_lane_fd(const struct wb_lane *l)
{
	return l->fd;
}

void wb_lane_abort(struct wb_lane *l)
{
	if (l->is_aborted)
		return;
	l->is_aborted = true;
	l->ops->abort(l);
}

void wb_lane_destroy(struct wb_lane *l)
{
	if (l)
		l->ops->destroy(l);
}

/* ---- inline: the job is done when submit returns --------------------------------------------- */

struct inline_lane {
	struct wb_lane lane;
	uint32_t head; /* index of the oldest of the n_out jobs that are not reaped */
	struct wb_lane_job done[];
};

static int inline_submit(struct wb_lane *l, const struct wb_lane_job *job)
{
	struct inline_lane *i = wb_container_of(l, struct inline_lane, lane);
	struct wb_lane_job *at = &i->done[(i->head + l->n_out) % l->depth];

	*at = *job;
	wb__lane_run(at);
	return 0;
}

static int inline_reap(struct wb_lane *l, struct wb_lane_job *job, int n)
{
	struct inline_lane *i = wb_container_of(l, struct inline_lane, lane);
	int got = 0;

	for (; got < n && (uint32_t)got < l->n_out; got++) {
		job[got] = i->done[i->head];
		i->head = (i->head + 1) % l->depth;
	}
	return got;
}

static void inline_abort(struct wb_lane *l)
{
	(void)l; /* nothing is ever under way */
}

static void inline_destroy(struct wb_lane *l)
{
	wb_free(wb_container_of(l, struct inline_lane, lane));
}

static const struct wb_lane_ops inline_ops = {
	inline_submit, inline_reap, NULL, inline_abort, inline_destroy};

int wb_lane_create_inline(const struct wb_lane_opts *o, struct wb_lane **out, struct wb_err *err)
{
	struct inline_lane *i;
	uint32_t depth = 0;
	int rc = wb__lane_depth(o, &depth, err);

	assert(out);
	if (rc)
		return rc;
	i = wb_zalloc(1, sizeof(*i) + depth * sizeof(i->done[0]));
	if (!i)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	i->lane = (struct wb_lane){.ops = &inline_ops, .depth = depth, .fd = -1};
	*out = &i->lane;
	return 0;
}
