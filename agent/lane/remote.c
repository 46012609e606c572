/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of a lane that runs in the worker; shared.h has the layout. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "lane/internal.h"
#include "lane/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* A job and how much of it has been handed over. */
struct pending {
	struct wb_lane_job job;
	uint32_t n_sent; /* boxes */
	bool is_sent, is_done; /* all parts */
};

/* Jobs and entries are both first in, first out.  Job `head` is the oldest that is not reaped, and
 * job `head + at` is the first that was not handed over whole. */
struct remote {
	struct wb_lane lane;
	struct wb_lane_shm *shm;
	int shm_fd, submit_fd;
	uint8_t *arena; /* borrowed */
	uint64_t arena_bytes;
	uint32_t head, at;
	uint32_t submitted, done; /* entries, as counted on this side */
	uint32_t owner[WB_LANE_SHM_ENTRIES]; /* index of the job of an entry */
	bool is_last[WB_LANE_SHM_ENTRIES]; /* is the entry the last of its job? */
	struct pending pending[];
};

static void send_part(struct remote *r, uint32_t index)
{
	struct pending *p = &r->pending[index];
	uint32_t slot = r->submitted % WB_LANE_SHM_ENTRIES;
	struct wb_lane_shm_entry *e = &r->shm->entry[slot];
	uint32_t left = p->job.n_box - p->n_sent;

	e->kind = p->job.kind;
	e->n_box = WB_MIN(left, WB_LANE_SHM_BOXES);
	e->wire_off = p->job.wire ? (uint64_t)((uint8_t *)p->job.wire - r->arena) : 0;
	e->wire_bytes = p->job.wire ? p->job.wire_bytes : 0;
	e->has_keys = p->job.keys != NULL;
	if (p->job.keys)
		memcpy(e->seed, p->job.keys->seed, sizeof(e->seed));
	if (e->n_box)
		memcpy(e->box, p->job.box + p->n_sent, e->n_box * sizeof(e->box[0]));
	p->n_sent += WB_MIN(left, WB_LANE_SHM_BOXES);
	p->is_sent = p->n_sent == p->job.n_box;
	r->owner[slot] = index;
	r->is_last[slot] = p->is_sent;
	r->submitted++;
}

/* Hand over parts of the @n_out jobs until the entries are full. */
static void pump(struct remote *r, uint32_t n_out)
{
	uint32_t before = r->submitted;

	while (r->at < n_out && r->submitted - r->done < WB_LANE_SHM_ENTRIES) {
		uint32_t index = (r->head + r->at) % r->lane.depth;

		send_part(r, index);
		if (r->pending[index].is_sent)
			r->at++;
	}
	if (r->submitted == before)
		return;
	atomic_store_explicit(&r->shm->submitted, r->submitted, memory_order_release);
	wb__lane_signal(r->submit_fd);
}

static int remote_submit(struct wb_lane *l, const struct wb_lane_job *job)
{
	struct remote *r = wb_container_of(l, struct remote, lane);
	uintptr_t at = (uintptr_t)job->wire - (uintptr_t)r->arena;
	struct pending *p = &r->pending[(r->head + l->n_out) % l->depth];

	if (job->wire ? at > r->arena_bytes || job->wire_bytes > r->arena_bytes - at
		      : job->kind != WB_LANE_SUM)
		return -EINVAL;
	*p = (struct pending){.job = *job};
	p->job.rc = 0;
	p->job.sum = (struct wbk_sum){{0, 0}};
	pump(r, l->n_out + 1);
	return 0;
}

/* Take the results of entry @slot, which the worker may still overwrite. */
static void take_result(struct remote *r, uint32_t slot)
{
	const struct wb_lane_shm_entry *e = &r->shm->entry[slot];
	struct pending *p = &r->pending[r->owner[slot]];
	int32_t rc = e->rc;

	if (!p->job.rc && rc)
		p->job.rc = rc < 0 && rc > -4096 ? rc : -EPROTO;
	if (p->job.keys) {
		p->job.sum.lane[0] += e->sum[0];
		p->job.sum.lane[1] += e->sum[1];
	}
	p->is_done = r->is_last[slot];
}

static void take_results(struct remote *r)
{
	uint32_t done = atomic_load_explicit(&r->shm->done, memory_order_acquire);

	if (done - r->done > r->submitted - r->done) {
		r->lane.is_aborted = true; /* a correct worker never counts so */
		return;
	}
	for (; r->done != done; r->done++)
		take_result(r, r->done % WB_LANE_SHM_ENTRIES);
}

/* Is there something to reap: has the worker finished more entries, or was a job that is done not
 * reaped yet? */
static bool remote_is_due(struct wb_lane *l)
{
	struct remote *r = wb_container_of(l, struct remote, lane);

	return l->n_out &&
	       (l->is_aborted || r->pending[r->head].is_done ||
		       atomic_load_explicit(&r->shm->done, memory_order_acquire) != r->done);
}

static int remote_reap(struct wb_lane *l, struct wb_lane_job *job, int n)
{
	struct remote *r = wb_container_of(l, struct remote, lane);
	int got = 0;

	if (!remote_is_due(l))
		return 0;
	wb__lane_drain(l->fd);
	if (!l->is_aborted)
		take_results(r);
	for (; got < n && (uint32_t)got < l->n_out; got++) {
		struct pending *p = &r->pending[r->head];

		if (!p->is_done && !l->is_aborted)
			break;
		job[got] = p->job;
		if (!p->is_done)
			job[got].rc = -EPIPE;
		r->head = (r->head + 1) % l->depth;
		r->at -= r->at > 0;
	}
	if (!l->is_aborted)
		pump(r, l->n_out - (uint32_t)got);
	if ((uint32_t)got < l->n_out && (r->pending[r->head].is_done || l->is_aborted))
		wb__lane_signal(l->fd);
	return got;
}

static void remote_abort(struct wb_lane *l)
{
	struct remote *r = wb_container_of(l, struct remote, lane);

	take_results(r); /* jobs that the worker has finished keep their results */
	l->is_aborted = true;
	wb__lane_signal(l->fd);
}

static void remote_destroy(struct wb_lane *l)
{
	struct remote *r = wb_container_of(l, struct remote, lane);

	if (r->shm)
		munmap(r->shm, sizeof(*r->shm));
	if (r->shm_fd >= 0)
		close(r->shm_fd);
	if (r->submit_fd >= 0)
		close(r->submit_fd);
	if (l->fd >= 0)
		close(l->fd);
	wb_free(r);
}

static const struct wb_lane_ops remote_ops = {
	remote_submit, remote_reap, remote_is_due, remote_abort, remote_destroy};

/* Make the shared memory.  It is sealed, so that neither side can make the other's access fault. */
static int share(struct remote *r, struct wb_err *err)
{
	r->shm_fd = memfd_create("wb-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (r->shm_fd < 0 || ftruncate(r->shm_fd, sizeof(*r->shm)) ||
		fcntl(r->shm_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return wb_err_set(err, -errno, "memory file of a lane: %s", strerror(errno));
	r->shm = mmap(NULL, sizeof(*r->shm), PROT_READ | PROT_WRITE, MAP_SHARED, r->shm_fd, 0);
	if (r->shm == MAP_FAILED) {
		r->shm = NULL;
		return wb_err_set(err, -errno, "map the rings of a lane: %s", strerror(errno));
	}
	r->shm->magic = WB_LANE_SHM_MAGIC;
	r->shm->n_entry = WB_LANE_SHM_ENTRIES;
	r->shm->entry_bytes = sizeof(r->shm->entry[0]);
	return 0;
}

int wb_lane_create_remote(const struct wb_lane_opts *o, void *arena, uint64_t arena_bytes,
	struct wb_lane **out, struct wb_lane_remote_fds *fds, struct wb_err *err)
{
	struct remote *r;
	uint32_t depth = 0;
	int rc = wb__lane_depth(o, &depth, err);

	assert(out && fds && (arena || !arena_bytes));
	if (rc)
		return rc;
	r = wb_zalloc(1, sizeof(*r) + depth * sizeof(r->pending[0]));
	if (!r)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	r->lane = (struct wb_lane){.ops = &remote_ops, .depth = depth};
	r->arena = arena;
	r->arena_bytes = arena_bytes;
	r->shm_fd = -1;
	r->lane.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->submit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->lane.fd < 0 || r->submit_fd < 0)
		rc = wb_err_set(err, -errno, "eventfd for a lane: %s", strerror(errno));
	else
		rc = share(r, err);
	if (rc) {
		remote_destroy(&r->lane);
		return rc;
	}
	*fds = (struct wb_lane_remote_fds){r->shm_fd, r->submit_fd, r->lane.fd};
	*out = &r->lane;
	return 0;
}
