/* SPDX-License-Identifier: Apache-2.0 */
/* A lane with a thread of this process: two rings, two eventfds. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/ring.h"
#include "base/thread.h"
#include "lane/internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct host {
	struct wb_lane lane;
	void *raw; /* what was allocated */
	pthread_t thread;
	int in_fd;
	_Atomic bool stop, cancel;
	struct wb_ring in, out;
};

static void *host_main(void *arg)
{
	struct host *h = arg;
	struct wb_lane_job job;
	int rc;

	while (!atomic_load(&h->stop)) {
		if (wb_ring_pop(&h->in, &job)) {
			wb__lane_wait(h->in_fd);
			continue;
		}
		if (atomic_load(&h->cancel))
			job.rc = -ECANCELED;
		else
			wb__lane_run(&job);
		rc = wb_ring_push(&h->out, &job);
		assert(!rc); /* the ring has room for all jobs that are not reaped */
		wb__lane_signal(h->lane.fd);
	}
	return NULL;
}

static int host_submit(struct wb_lane *l, const struct wb_lane_job *job)
{
	struct host *h = wb_container_of(l, struct host, lane);
	int rc = wb_ring_push(&h->in, job);

	if (!rc)
		wb__lane_signal(h->in_fd);
	return rc;
}

static bool host_is_due(struct wb_lane *l)
{
	return !wb_ring_is_empty(&wb_container_of(l, struct host, lane)->out);
}

static int host_reap(struct wb_lane *l, struct wb_lane_job *job, int n)
{
	struct host *h = wb_container_of(l, struct host, lane);
	int got = 0;

	if (!host_is_due(l))
		return 0;
	/* The eventfd is drained before the ring is read: a job that comes later signals again. */
	wb__lane_drain(l->fd);
	while (got < n && !wb_ring_pop(&h->out, &job[got]))
		got++;
	if (got == n && !wb_ring_is_empty(&h->out))
		wb__lane_signal(l->fd);
	return got;
}

static void host_abort(struct wb_lane *l)
{
	struct host *h = wb_container_of(l, struct host, lane);

	atomic_store(&h->cancel, true);
}

static void host_free(struct host *h)
{
	if (h->in_fd >= 0)
		close(h->in_fd);
	if (h->lane.fd >= 0)
		close(h->lane.fd);
	wb_ring_finish(&h->in);
	wb_ring_finish(&h->out);
	wb_free(h->raw);
}

static void host_destroy(struct wb_lane *l)
{
	struct host *h = wb_container_of(l, struct host, lane);

	atomic_store(&h->stop, true);
	wb__lane_signal(h->in_fd);
	pthread_join(h->thread, NULL);
	host_free(h);
}

static const struct wb_lane_ops host_ops = {
	host_submit, host_reap, host_is_due, host_abort, host_destroy};

int wb_lane_create_host(const struct wb_lane_opts *o, struct wb_lane **out, struct wb_err *err)
{
	uint32_t depth = 0;
	struct host *h;
	void *raw;
	int rc = wb__lane_depth(o, &depth, err);

	assert(out);
	if (rc)
		return rc;
	raw = wb_zalloc(1, sizeof(*h) + _Alignof(struct host));
	if (!raw)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	h = (struct host *)wb_align_up((uintptr_t)raw, _Alignof(struct host));
	h->raw = raw;
	h->lane = (struct wb_lane){.ops = &host_ops, .depth = depth};
	h->lane.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h->in_fd = eventfd(0, EFD_CLOEXEC);
	if (h->lane.fd < 0 || h->in_fd < 0) {
		rc = wb_err_set(err, -errno, "eventfd for a lane: %s", strerror(errno));
		goto fail;
	}
	if (wb_ring_init(&h->in, depth, sizeof(struct wb_lane_job)) ||
		wb_ring_init(&h->out, depth, sizeof(struct wb_lane_job))) {
		rc = wb_err_set(err, -ENOMEM, "no memory for a lane of %u jobs", depth);
		goto fail;
	}
	rc = wb_thread_start(&h->thread, o && o->name ? o->name : "wb-lane", host_main, h);
	if (rc) {
		wb_err_set(err, rc, "start a lane thread: %s", strerror(-rc));
		goto fail;
	}
	*out = &h->lane;
	return 0;
fail:
	host_free(h);
	return rc;
}
