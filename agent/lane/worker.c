/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of a remote lane.  Requests are copied before they are checked, and every byte
 * they touch is checked against what the process registered. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "lane/gpu.h"
#include "lane/internal.h"
#include "lane/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct wb_lane_worker {
	struct wb_lane_worker_opts o;
	struct wb_lane_mem *mem; /* owned */
	void **base; /* owned: their addresses */
	struct wb_lane_shm *shm;
	uint32_t done;
	_Atomic bool stop;
	_Atomic uint32_t turn; /* see wb_lane_worker_pass() */
	bool has_keys;
	struct wbk_sum_keys keys;
	struct wb_lane_gpu *gpu; /* owned; NULL = no object is a device's */
	struct wbk_box batch[WB_LANE_SHM_BOXES]; /* boxes of an entry for one launch */
	uint32_t n_batch;
};

/* Tables for the seeds of a request; transfers change rarely. */
static const struct wbk_sum_keys *keys_for(struct wb_lane_worker *w, const uint64_t seed[2])
{
	if (!w->has_keys || memcmp(w->keys.seed, seed, sizeof(w->keys.seed)) != 0)
		wbk_sum_keys_of(&w->keys, seed);
	w->has_keys = true;
	return &w->keys;
}

struct request {
	uint32_t kind, n_box, has_keys;
	uint64_t wire_off, wire_bytes, seed[2];
};
_Static_assert(WB_LANE_SHM_BOXES <= WB_LANE_GPU_BOXES, "an entry is one launch");

/* Elements of a box are distinct.  One that visits some again (strides of 0) could keep the lane,
 * and who waits for its end, for years. */
static bool is_bounded(const struct wbk_box *b, uint64_t mem_bytes)
{
	unsigned __int128 n = (unsigned __int128)b->n_row * b->n_col;

	return n * (b->repeat ? b->repeat : 1) * b->mem_elem <= mem_bytes;
}

static void add_sum(struct wbk_sum *sum, const struct wb_lane_job *job)
{
	if (!sum)
		return;
	sum->lane[0] += job->sum.lane[0];
	sum->lane[1] += job->sum.lane[1];
}

static struct wb_lane_job job_of(
	struct wb_lane_worker *w, const struct request *q, const struct wbk_box *box, uint32_t n)
{
	return (struct wb_lane_job){.kind = (enum wb_lane_kind)q->kind,
		.bases = w->base,
		.box = box,
		.n_box = n,
		.wire = (uint8_t *)w->o.arena + q->wire_off,
		.wire_bytes = q->wire_bytes,
		.keys = q->has_keys ? keys_for(w, q->seed) : NULL};
}

/* Boxes of a device are put together for one launch. */
static int run_box(struct wb_lane_worker *w, const struct request *q, const struct wbk_box *box,
	struct wbk_sum *sum)
{
	uint64_t wire_bytes = q->kind == WB_LANE_SUM ? UINT64_MAX : q->wire_bytes;
	struct wb_lane_job job;

	if (box->base >= w->o.n_mem || !wbk_box_fits(box, w->mem[box->base].bytes, wire_bytes) ||
		!is_bounded(box, w->mem[box->base].bytes))
		return -EINVAL;
	if (!box->n_row || !box->n_col)
		return 0; /* where it lies was not checked */
	if (w->mem[box->base].is_device) {
		w->batch[w->n_batch++] = *box;
		return 0;
	}
	job = job_of(w, q, box, 1);
	wb__lane_run(&job);
	add_sum(sum, &job);
	return job.rc;
}

static int run_batch(struct wb_lane_worker *w, const struct request *q, struct wbk_sum *sum)
{
	struct wb_lane_job job = job_of(w, q, w->batch, w->n_batch);

	if (!w->n_batch)
		return 0;
	wb_lane_gpu_begin(w->gpu, &job);
	job.rc = wb_lane_gpu_end(w->gpu, &job.sum);
	add_sum(sum, &job);
	return job.rc;
}

static void run_entry(struct wb_lane_worker *w, struct wb_lane_shm_entry *e)
{
	struct request q = {.kind = e->kind,
		.n_box = e->n_box,
		.has_keys = e->has_keys,
		.wire_off = e->wire_off,
		.wire_bytes = e->wire_bytes,
		.seed = {e->seed[0], e->seed[1]}};
	struct wbk_sum sum = {{0, 0}};
	int rc = 0;

	/* As with the boxes: what was checked is what is used. */
	__asm__ volatile("" : "+m"(q));
	if (q.n_box > WB_LANE_SHM_BOXES || q.wire_off > w->o.arena_bytes ||
		q.wire_bytes > w->o.arena_bytes - q.wire_off)
		rc = -EINVAL;
	w->n_batch = 0;
	for (uint32_t i = 0; !rc && i < q.n_box; i++) {
		struct wbk_box box;

		memcpy(&box, &e->box[i], sizeof(box));
		/* The copy is what is checked and run, whatever happens to the shared one. */
		__asm__ volatile("" : "+m"(box));
		rc = run_box(w, &q, &box, q.has_keys ? &sum : NULL);
	}
	if (!rc)
		rc = run_batch(w, &q, q.has_keys ? &sum : NULL);
	e->rc = rc;
	e->sum[0] = sum.lane[0];
	e->sum[1] = sum.lane[1];
}

void wb_lane_worker_pass(struct wb_lane_worker *w)
{
	atomic_fetch_add_explicit(&w->turn, 1, memory_order_acq_rel);
}

int wb_lane_worker_run(struct wb_lane_worker *w)
{
	while (!atomic_load(&w->stop)) {
		uint32_t submitted = atomic_load_explicit(&w->shm->submitted, memory_order_acquire);

		if (submitted - w->done > WB_LANE_SHM_ENTRIES)
			return -EPROTO;
		if (submitted == w->done) {
			int rc = wb__lane_wait(w->o.fds.submit);

			if (rc)
				return rc;
			continue;
		}
		wb_lane_worker_pass(w);
		run_entry(w, &w->shm->entry[w->done % WB_LANE_SHM_ENTRIES]);
		wb_lane_worker_pass(w);
		atomic_store_explicit(&w->shm->done, ++w->done, memory_order_release);
		wb__lane_signal(w->o.fds.complete);
	}
	return 0;
}

void wb_lane_worker_stop(struct wb_lane_worker *w)
{
	atomic_store(&w->stop, true);
	wb__lane_signal(w->o.fds.submit);
}

void wb_lane_worker_forked(struct wb_lane_worker *w)
{
	w->gpu = NULL;
}

static int open_shared(struct wb_lane_worker *w, struct wb_err *err)
{
	int fd = w->o.fds.shared, seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return wb_err_set(err, -EPERM, "the rings of the lane are not sealed");
	if (fstat(fd, &st) || st.st_size < (off_t)sizeof(*w->shm))
		return wb_err_set(err, -EPROTO, "the rings of the lane are too short");
	w->shm = mmap(NULL, sizeof(*w->shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (w->shm == MAP_FAILED) {
		w->shm = NULL;
		return wb_err_set(err, -errno, "map the rings of the lane: %s", strerror(errno));
	}
	if (w->shm->magic != WB_LANE_SHM_MAGIC || w->shm->n_entry != WB_LANE_SHM_ENTRIES ||
		w->shm->entry_bytes != sizeof(w->shm->entry[0]))
		return wb_err_set(err, -EPROTO,
			"the agent's lane has another layout: agent and library are of different "
			"versions");
	w->done = atomic_load(&w->shm->done);
	return 0;
}

static void release(struct wb_lane_worker *w)
{
	wb_lane_gpu_destroy(w->gpu);
	if (w->shm)
		munmap(w->shm, sizeof(*w->shm));
	wb_free(w->mem);
	wb_free(w->base);
	wb_free(w);
}

int wb_lane_worker_open(
	const struct wb_lane_worker_opts *o, struct wb_lane_worker **out, struct wb_err *err)
{
	struct wb_lane_worker *w;
	int rc;

	assert(o && out && (o->mem || !o->n_mem) && (o->arena || !o->arena_bytes));
	w = wb_zalloc(1, sizeof(*w));
	if (!w)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	w->o = *o;
	w->mem = wb_zalloc(o->n_mem, sizeof(*w->mem));
	w->base = wb_zalloc(o->n_mem, sizeof(*w->base));
	if (!w->mem || !w->base)
		rc = wb_err_set(err, -ENOMEM, "no memory for %u memory objects", o->n_mem);
	else
		rc = open_shared(w, err);
	if (!rc && o->device)
		rc = wb_lane_gpu_create(o->device, o->arena, o->arena_bytes, &w->gpu, err);
	w->o.device = NULL;
	if (rc) {
		release(w);
		return rc;
	}
	for (uint32_t i = 0; i < o->n_mem; i++) {
		assert(!o->mem[i].is_device || w->gpu);
		w->mem[i] = o->mem[i];
		w->base[i] = o->mem[i].addr;
	}
	*out = w;
	return 0;
}

void wb_lane_worker_close(struct wb_lane_worker *w)
{
	if (!w)
		return;
	close(w->o.fds.shared);
	close(w->o.fds.submit);
	close(w->o.fds.complete);
	release(w);
}
