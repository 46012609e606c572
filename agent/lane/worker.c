/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of a remote lane.  A request is copied before it is checked, and every byte
 * that it touches is checked against the memory that the process registered. */
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
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* An entry that was begun and has not been answered. */
struct begun {
	int rc; /* of the part that was done at once, by the host */
	struct wbk_sum sum;
	bool has_sum, is_under_way; /* is_under_way: the rest runs on the device */
};

struct wb_lane_worker {
	struct wb_lane_worker_opts o;
	struct wb_lane_mem *mem; /* owned */
	void **base; /* owned: addresses of the objects */
	struct wb_lane_shm *shm;
	uint32_t begun, done; /* entries */
	struct begun begun_at[WB_LANE_GPU_JOBS]; /* by number of the entry, modulo the size */
	_Atomic bool stop;
	_Atomic uint32_t turn; /* see wb_lane_worker_pass() */
	bool has_keys;
	struct wbk_sum_keys keys;
	struct wb_lane_gpu *gpu; /* owned; NULL = no object is on a device */
	struct wbk_box batch[WB_LANE_SHM_BOXES]; /* boxes of an entry that one launch moves */
	uint32_t n_batch;
};

/* The key tables for the seeds of a request.  They are kept, since seeds change only with the
 * transfer. */
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

/* Does the box have no more elements than its object has room for?  The elements of a valid box are
 * distinct.  A box that visits some of them again (strides of 0) could occupy the lane for years,
 * and whoever waits for the end of the lane would wait as long. */
static bool is_bounded(const struct wbk_box *b, uint64_t mem_bytes)
{
	unsigned __int128 n = (unsigned __int128)b->n_row * b->n_col;

	return n * (b->repeat ? b->repeat : 1) * b->mem_elem <= mem_bytes;
}

static void add_sum(struct begun *b, const struct wbk_sum *sum)
{
	if (!b->has_sum)
		return;
	b->sum.lane[0] += sum->lane[0];
	b->sum.lane[1] += sum->lane[1];
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

/* Wait for the device's part of the oldest entry, and answer the entry. */
static void end_entry(struct wb_lane_worker *w)
{
	struct begun *b = &w->begun_at[w->done % WB_LANE_GPU_JOBS];
	struct wb_lane_shm_entry *e = &w->shm->entry[w->done % WB_LANE_SHM_ENTRIES];
	struct wbk_sum sum;

	if (b->is_under_way) {
		b->rc = wb_lane_gpu_end(w->gpu, &sum);
		add_sum(b, &sum);
	}
	e->rc = b->rc;
	e->sum[0] = b->sum.lane[0];
	e->sum[1] = b->sum.lane[1];
	wb_lane_worker_pass(w);
	atomic_store_explicit(&w->shm->done, ++w->done, memory_order_release);
	wb__lane_signal(w->o.fds.complete);
}

static void end_entries(struct wb_lane_worker *w)
{
	while (w->done != w->begun)
		end_entry(w);
}

/* Boxes on a device are gathered for one launch.  A box in host memory is moved at once, when
 * everything that was begun before is over: the result is as if entries were run one by one. */
static int run_box(struct wb_lane_worker *w, const struct request *q, const struct wbk_box *box,
	struct begun *b)
{
	uint64_t wire_bytes = q->kind == WB_LANE_SUM ? UINT64_MAX : q->wire_bytes;
	struct wb_lane_job job;

	if (box->base >= w->o.n_mem || !wbk_box_fits(box, w->mem[box->base].bytes, wire_bytes) ||
		!is_bounded(box, w->mem[box->base].bytes))
		return -EINVAL;
	if (!box->n_row || !box->n_col)
		return 0; /* an empty box: its place was not checked */
	if (w->mem[box->base].is_device) {
		w->batch[w->n_batch++] = *box;
		return 0;
	}
	end_entries(w);
	job = job_of(w, q, box, 1);
	wb__lane_run(&job);
	add_sum(b, &job.sum);
	return job.rc;
}

static int run_boxes(struct wb_lane_worker *w, const struct wb_lane_shm_entry *e,
	const struct request *q, struct begun *b)
{
	int rc = 0;

	if (q->n_box > WB_LANE_SHM_BOXES || q->wire_off > w->o.arena_bytes ||
		q->wire_bytes > w->o.arena_bytes - q->wire_off)
		return -EINVAL;
	for (uint32_t i = 0; !rc && i < q->n_box; i++) {
		struct wbk_box box;

		memcpy(&box, &e->box[i], sizeof(box));
		/* From here on the compiler must use the copy, whatever happens to the shared
		 * box. */
		__asm__ volatile("" : "+m"(box));
		rc = run_box(w, q, &box, b);
	}
	return rc;
}

/* Begin the next entry: do the host's part, and start the device's part. */
static void begin_entry(struct wb_lane_worker *w)
{
	const struct wb_lane_shm_entry *e = &w->shm->entry[w->begun % WB_LANE_SHM_ENTRIES];
	struct request q = {.kind = e->kind,
		.n_box = e->n_box,
		.has_keys = e->has_keys,
		.wire_off = e->wire_off,
		.wire_bytes = e->wire_bytes,
		.seed = {e->seed[0], e->seed[1]}};
	struct begun b = {0};

	/* As for the boxes: the copy that is checked is the one that is used. */
	__asm__ volatile("" : "+m"(q));
	wb_lane_worker_pass(w);
	b.has_sum = q.has_keys;
	w->n_batch = 0;
	b.rc = run_boxes(w, e, &q, &b);
	if (!b.rc && w->n_batch) {
		struct wb_lane_job job = job_of(w, &q, w->batch, w->n_batch);

		wb_lane_gpu_begin(w->gpu, &job);
		b.is_under_way = true;
	}
	w->begun_at[w->begun++ % WB_LANE_GPU_JOBS] = b;
}

void wb_lane_worker_pass(struct wb_lane_worker *w)
{
	atomic_fetch_add_explicit(&w->turn, 1, memory_order_acq_rel);
}

/* Can the oldest entry be answered without a wait? */
static bool is_over(struct wb_lane_worker *w)
{
	return w->begun != w->done && (!w->begun_at[w->done % WB_LANE_GPU_JOBS].is_under_way ||
					      wb_lane_gpu_is_over(w->gpu));
}

/* Answer an entry that is over; else begin a new entry, if the device can take more; else wait for
 * the oldest entry or a new one. */
static int step(struct wb_lane_worker *w)
{
	uint32_t submitted = atomic_load_explicit(&w->shm->submitted, memory_order_acquire);
	uint32_t under_way = w->begun - w->done;
	bool has_room = under_way < WB_LANE_GPU_JOBS;

	if (submitted - w->done > WB_LANE_SHM_ENTRIES || submitted - w->done < under_way)
		return -EPROTO;
	if (is_over(w))
		end_entry(w);
	else if (submitted != w->begun && has_room)
		begin_entry(w);
	else if (!under_way)
		return wb__lane_wait(w->o.fds.submit);
	else if (!has_room || wb_lane_gpu_wait(w->gpu, w->o.fds.submit))
		end_entry(w);
	else
		wb__lane_drain(w->o.fds.submit);
	return 0;
}

int wb_lane_worker_run(struct wb_lane_worker *w)
{
	int rc = 0;

	if (w->gpu) /* by default, the short waits for a GPU take up to twice as long */
		(void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	while (!rc && !atomic_load(&w->stop))
		rc = step(w);
	end_entries(w);
	return rc;
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
	w->begun = w->done = atomic_load(&w->shm->done);
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
