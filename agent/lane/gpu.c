/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/gpu.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "kernels/gpu.h"
#include "lane/internal.h"
#include "mem/gpu.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#define WINDOW ((uint64_t)16 << 20) /* slots are pinned in pieces of this size */
#define STAGE_ALIGN ((uint64_t)256) /* a job's bytes are aligned in its buffer as on the wire */
#define DIRECT_BYTES ((uint64_t)256 << 10) /* up to so many, a kernel accesses the slot itself */
#define DIRECT_TILES 4u /* up to so many, a kernel adds to a sum in host memory */
#define SPANS 8u /* most spans that a job copies */
#define RETRY_JOBS 64u /* jobs until a device that had no room is asked again */
/* The interrupt that reports the end of a job comes tens of microseconds after that end. */
#define POLL_NS (50 * WB_NS_PER_US)
#define SLICE_MAX_NS (10 * WB_NS_PER_MS) /* between two queries for a job that takes long */
#define POLL_BYTES ((uint64_t)1 << 20) /* what a bus moves in about POLL_NS */

enum { IN, WORK, OUT, STREAMS };

/*
 * What a launch reads.  The host and the device have the same layout.  One copy takes it to the
 * device, so the parts follow each other without a gap: addresses of the boxes' objects, ops, then
 * n_box + 1 numbers for each kernel.
 */
struct tables {
	struct wbk_sum sum; /* written by the kernel */
	uint64_t part[WB_LANE_GPU_BOXES + (WB_LANE_GPU_BOXES * sizeof(struct wbk_op) +
						  WBK_MOVES * (WB_LANE_GPU_BOXES + 1) * 4 + 7) /
						  8];
};
_Static_assert(sizeof(struct wbk_op) % 8 == 0, "no gaps");

/* Offsets of the parts from the beginning of the tables, and the length of all. */
struct layout {
	uint32_t base, op, first, bytes;
};

/* A job under way, and what belongs to it alone. */
struct place {
	struct wb_lane_job job; /* what it points to is not used after wb_lane_gpu_begin() */
	bool is_queued; /* its work is queued, and `done` tells when it is over */
	int result; /* state of `done` at the last query; WBCU_NOT_READY = not over */
	uint64_t bytes; /* moved by the job */
	struct wb__lane_span slot; /* addresses touched by the job */
	void *done; /* event */
	struct tables *host; /* pinned, as are the keys */
	struct wbk_sum_keys *keys;
	uint64_t dev; /* address of the device's copy of the tables */
	uint64_t stage; /* address of its staging buffer; 0 = none yet */
};

/* How a job is done. */
struct route {
	enum wbk_way way;
	bool is_staged, sums_here; /* sums_here: the kernel adds to the sum in the host's memory */
	struct layout at;
	uint64_t base; /* offset on the wire of the staging buffer's first byte */
	uint32_t n_span;
	struct wb__lane_span span[WB_LANE_GPU_BOXES];
};

struct wb_lane_gpu {
	struct wb_gpu *gpu;
	void *module, *fn[WBK_MOVES], *stream[STREAMS];
	void *step; /* event that orders a job's work in one stream before that in the next */
	struct place place[WB_LANE_GPU_JOBS];
	uint32_t first, n; /* places under way: n from first on */
	bool is_entered; /* the context is current in the lane's thread */
	void *host; /* owned: memory for all places */
	uint64_t dev; /* owned: memory for all places */
	uint64_t dev_keys;
	bool has_keys; /* kernels queued from now on find the keys of these seeds */
	uint64_t seed[2];
	uint8_t *arena; /* borrowed */
	uint64_t arena_bytes;
	uint8_t *is_pinned; /* owned; one for each window */
	uint32_t poor; /* jobs until the device is asked for room again */
};

/* An image without code, for builds without a CUDA compiler.  A real driver refuses it; the
 * stand-in for the driver in the tests has the kernels built in. */
static const uint32_t no_code[4] = {0xBA55ED50u, 0x00100001u, 0, 0};

/* ---- life ------------------------------------------------------------------------------------ */

static int load(struct wb_lane_gpu *l, struct wb_err *err)
{
	const void *image = wbk_gpu_kernel(WBK_GPU_ROWS)->image; /* has all moves */
	const struct wbcu *cu = l->gpu->cu;
	int rc = cu->module_load(&l->module, image ? image : no_code);

	if (rc && !image)
		return wb_err_set(err, -ENOTSUP,
			"this build has no code for GPUs: it was built without a CUDA compiler");
	rc = wb_gpu_rc(l->gpu, rc, "cuModuleLoadData", err);
	for (unsigned i = 0; i < WBK_MOVES && !rc; i++) {
		const char *name = wbk_gpu_kernel((enum wbk_gpu)i)->name;

		rc = wb_gpu_rc(l->gpu, cu->module_function(&l->fn[i], l->module, name), name, err);
	}
	return rc;
}

static int make_event(struct wb_lane_gpu *l, void **event, struct wb_err *err)
{
	return wb_gpu_rc(l->gpu,
		l->gpu->cu->event_create(event, WBCU_EVENT_BLOCKING | WBCU_EVENT_NO_TIMING),
		"cuEventCreate", err);
}

static int make_order(struct wb_lane_gpu *l, struct wb_err *err)
{
	int rc = make_event(l, &l->step, err);

	for (unsigned i = 0; i < STREAMS && !rc; i++)
		rc = wb_gpu_rc(l->gpu,
			l->gpu->cu->stream_create(&l->stream[i], WBCU_STREAM_NON_BLOCKING),
			"cuStreamCreate", err);
	for (unsigned i = 0; i < WB_LANE_GPU_JOBS && !rc; i++)
		rc = make_event(l, &l->place[i].done, err);
	return rc;
}

/* Parts of one allocation are aligned for the widest accesses of kernels. */
#define ROUND(bytes) (((bytes) + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN)

static int make_tables(struct wb_lane_gpu *l, struct wb_err *err)
{
	const uint64_t tables = ROUND(sizeof(struct tables)),
		       keys = ROUND(sizeof(struct wbk_sum_keys));
	const struct wbcu *cu = l->gpu->cu;
	int rc = wb_gpu_rc(l->gpu,
		cu->host_alloc(&l->host, WB_LANE_GPU_JOBS * (tables + keys),
			WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED),
		"cuMemHostAlloc", err);

	if (!rc)
		rc = wb_gpu_rc(l->gpu, cu->mem_alloc(&l->dev, WB_LANE_GPU_JOBS * tables + keys),
			"cuMemAlloc", err);
	for (unsigned i = 0; i < WB_LANE_GPU_JOBS && !rc; i++) {
		uint8_t *at = (uint8_t *)l->host + i * (tables + keys);

		l->place[i].host = (struct tables *)(void *)at;
		l->place[i].keys = (struct wbk_sum_keys *)(void *)(at + tables);
		l->place[i].dev = l->dev + i * tables;
	}
	l->dev_keys = l->dev + WB_LANE_GPU_JOBS * tables;
	return rc;
}

static int make(struct wb_lane_gpu *l, struct wb_err *err)
{
	int rc = load(l, err);

	if (!rc)
		rc = make_order(l, err);
	return rc ? rc : make_tables(l, err);
}

static uint64_t n_window(const struct wb_lane_gpu *l)
{
	return (l->arena_bytes + WINDOW - 1) / WINDOW;
}

static void unmake(struct wb_lane_gpu *l)
{
	const struct wbcu *cu = l->gpu->cu;

	for (uint64_t i = 0; l->is_pinned && i < n_window(l); i++)
		if (l->is_pinned[i])
			cu->host_unregister(l->arena + i * WINDOW);
	for (unsigned i = 0; i < WB_LANE_GPU_JOBS; i++) {
		if (l->place[i].stage)
			cu->mem_free(l->place[i].stage);
		if (l->place[i].done)
			cu->event_destroy(l->place[i].done);
	}
	if (l->dev)
		cu->mem_free(l->dev);
	if (l->host)
		cu->host_free(l->host);
	if (l->step)
		cu->event_destroy(l->step);
	for (unsigned i = 0; i < STREAMS; i++)
		if (l->stream[i])
			cu->stream_destroy(l->stream[i]);
	if (l->module)
		cu->module_unload(l->module);
}

/* The objects of a lost device stay until the process ends: nothing else frees them. */
static void discard(struct wb_lane_gpu *l)
{
	if (l->gpu && !wb_gpu_enter(l->gpu, NULL)) {
		unmake(l);
		wb_gpu_leave(l->gpu);
	}
	wb_gpu_put(l->gpu);
	wb_free(l->is_pinned);
	wb_free(l);
}

int wb_lane_gpu_create(const uint8_t *uuid, void *arena, uint64_t arena_bytes,
	struct wb_lane_gpu **out, struct wb_err *err)
{
	struct wb_lane_gpu *l;
	int rc;

	assert(out && (arena || !arena_bytes));
	l = wb_zalloc(1, sizeof(*l));
	if (!l)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	l->arena = arena;
	l->arena_bytes = arena_bytes;
	l->is_pinned = wb_zalloc(n_window(l) + 1, 1);
	rc = l->is_pinned ? wb_gpu_get(uuid, &l->gpu, err)
			  : wb_err_set(err, -ENOMEM, "no memory for a lane");
	if (!rc)
		rc = wb_gpu_enter(l->gpu, err);
	if (!rc) {
		rc = make(l, err);
		wb_gpu_leave(l->gpu);
	}
	if (rc) {
		discard(l);
		return rc;
	}
	*out = l;
	return 0;
}

/* ---- which way a job goes -------------------------------------------------------------------- */

static int way_of(enum wb_lane_kind kind)
{
	switch (kind) {
	case WB_LANE_PACK:
		return WBK_WAY_PACK;
	case WB_LANE_ASSEMBLE:
		return WBK_WAY_ASSEMBLE;
	case WB_LANE_SUM:
		return WBK_WAY_SUM;
	}
	return -EINVAL;
}

static struct layout layout_of(uint32_t n)
{
	struct layout at = {.base = offsetof(struct tables, part)};

	at.op = at.base + n * (uint32_t)sizeof(uint64_t);
	at.first = at.op + n * (uint32_t)sizeof(struct wbk_op);
	at.bytes = at.first + WBK_MOVES * (n + 1) * (uint32_t)sizeof(uint32_t);
	return at;
}

static void *here(const struct place *p, uint32_t at)
{
	return (uint8_t *)p->host + at;
}

static void *there(const struct place *p, uint32_t at)
{
	return (void *)(uintptr_t)(p->dev + at);
}

/* Fill the tables.  Returns the number of tiles of all kernels, or -EINVAL. */
static int64_t fill_tables(struct place *p, const struct route *r)
{
	struct wbk_op *op = here(p, r->at.op);
	void **base = here(p, r->at.base);
	uint32_t *first = here(p, r->at.first), n = p->job.n_box, bad;
	int64_t tiles = 0;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		op[i] = wbk_op_of_box(&p->job.box[i], 0);
		op[i].base = i;
		base[i] = p->job.bases[p->job.box[i].base];
	}
	p->host->sum = (struct wbk_sum){{0, 0}};
	rc = wbk_move_prepare(op, n, r->way, first, &bad);
	for (unsigned i = 0; i < WBK_MOVES && !rc; i++)
		tiles += wbk_move_tiles(first, n, i);
	return rc ? rc : tiles;
}

/* Does the job have a staging buffer, or can it get one?  The device may be short of memory for a
 * while. */
static bool has_stage(struct wb_lane_gpu *l, struct place *p)
{
	const struct wbcu *cu = l->gpu->cu;
	size_t left, all;

	if (p->stage)
		return true;
	if (l->poor) {
		l->poor--;
		return false;
	}
	if (cu->mem_info(&left, &all) || left < WB_LANE_GPU_LEAVE + WB_LANE_GPU_STAGE ||
		cu->mem_alloc(&p->stage, WB_LANE_GPU_STAGE + STAGE_ALIGN)) {
		p->stage = 0;
		l->poor = RETRY_JOBS;
	}
	return p->stage != 0;
}

/* Are there few enough spans to copy each?  Otherwise ASSEMBLE may copy all from the first to
 * the last at once.  Bytes between them, which no box of this job covers, may belong to
 * another part of the chunk: they are read needlessly if that costs less than many copies, but
 * are never written. */
static bool has_few_spans(struct route *r, enum wb_lane_kind kind, uint64_t bytes)
{
	uint64_t end = r->span[r->n_span - 1].end;

	if (r->n_span <= SPANS)
		return true;
	if (kind == WB_LANE_PACK || bytes < (end - r->span[0].begin) / 2)
		return false;
	r->span[0].end = end;
	r->n_span = 1;
	return true;
}

static uint64_t bytes_of(const struct wb_lane_job *job)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < job->n_box; i++)
		bytes += (uint64_t)job->box[i].n_row * job->box[i].n_col * job->box[i].wire_elem;
	return bytes;
}

static void choose_way(struct wb_lane_gpu *l, struct place *p, struct route *r)
{
	uint64_t end;

	if (r->way == WBK_WAY_SUM)
		return;
	r->n_span = wb__lane_spans(p->job.box, p->job.n_box, r->span);
	if (!r->n_span)
		return;
	end = r->span[r->n_span - 1].end;
	r->base = r->span[0].begin / STAGE_ALIGN * STAGE_ALIGN;
	p->slot.begin = (uintptr_t)p->job.wire + r->span[0].begin;
	p->slot.end = (uintptr_t)p->job.wire + end;
	r->is_staged = p->bytes > DIRECT_BYTES &&
		       end - r->base <= WB_LANE_GPU_STAGE + STAGE_ALIGN &&
		       has_few_spans(r, p->job.kind, p->bytes) && has_stage(l, p);
}

/* ---- queueing it ----------------------------------------------------------------------------- */

/* Pin the windows with [@wire, @wire + @bytes) of the slots, so that kernels may access these
 * bytes. */
static int pin(struct wb_lane_gpu *l, const uint8_t *wire, uint64_t bytes)
{
	uint64_t at = (uint64_t)(wire - l->arena), end = at + bytes;

	for (uint64_t i = at / WINDOW; bytes && i <= (end - 1) / WINDOW; i++) {
		uint64_t left = l->arena_bytes - i * WINDOW;
		int rc;

		if (l->is_pinned[i])
			continue;
		rc = l->gpu->cu->host_register(l->arena + i * WINDOW, WB_MIN(left, WINDOW),
			WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED);
		if (rc)
			return wb_gpu_rc(l->gpu, rc, "cuMemHostRegister", NULL);
		l->is_pinned[i] = 1;
	}
	return 0;
}

/* Make @stream wait for all jobs under way that touch a part of the slot that @p touches. */
static int wait_for_slot(struct wb_lane_gpu *l, const struct place *p, int stream)
{
	int rc = WBCU_SUCCESS;

	for (uint32_t i = 0; i < l->n && !rc; i++) {
		const struct place *q = &l->place[(l->first + i) % WB_LANE_GPU_JOBS];

		if (q->is_queued && q->slot.begin < p->slot.end && p->slot.begin < q->slot.end)
			rc = l->gpu->cu->stream_wait(l->stream[stream], q->done, 0);
	}
	return rc;
}

/* Make stream @to wait for the work that is queued in stream @from. */
static int hand_on(struct wb_lane_gpu *l, int from, int to)
{
	const struct wbcu *cu = l->gpu->cu;
	int rc = cu->event_record(l->step, l->stream[from]);

	return rc ? rc : cu->stream_wait(l->stream[to], l->step, 0);
}

/* Copy a span between slot and staging buffer.  A copy ends at the border of a window: nothing says
 * that a driver takes two windows, which were pinned one by one, for one range of pinned memory. */
static int copy_span(struct wb_lane_gpu *l, const struct place *p, const struct route *r,
	const struct wb__lane_span *s)
{
	const struct wbcu *cu = l->gpu->cu;
	uint8_t *wire = p->job.wire;
	uint64_t n;
	int rc = WBCU_SUCCESS;

	for (uint64_t at = s->begin; at < s->end && !rc; at += n) {
		uint64_t dev = p->stage + (at - r->base);

		n = WINDOW - (uint64_t)(wire + at - l->arena) % WINDOW;
		n = WB_MIN(n, s->end - at);
		rc = r->way == WBK_WAY_PACK ? cu->copy_out(wire + at, dev, n, l->stream[OUT])
					    : cu->copy_in(dev, wire + at, n, l->stream[IN]);
	}
	return rc;
}

static int copy_spans(struct wb_lane_gpu *l, const struct place *p, const struct route *r)
{
	int rc = WBCU_SUCCESS;

	for (uint32_t i = 0; i < r->n_span && !rc; i++)
		rc = copy_span(l, p, r, &r->span[i]);
	return rc;
}

/* Copy the keys to the device if it has others.  They are most of the bytes of a small job, and
 * nearly always the same as for the job before. */
static int send_keys(struct wb_lane_gpu *l, struct place *p)
{
	const struct wbk_sum_keys *k = p->job.keys;

	if (!k || (l->has_keys && !memcmp(l->seed, k->seed, sizeof(l->seed))))
		return WBCU_SUCCESS;
	*p->keys = *k;
	memcpy(l->seed, k->seed, sizeof(l->seed));
	l->has_keys = true;
	/* In this stream, the copy comes after the kernels that read the old keys. */
	return l->gpu->cu->copy_in(l->dev_keys, p->keys, sizeof(*p->keys), l->stream[WORK]);
}

/* Queue copies of what the kernel reads: the tables, the content of its staging buffer, the
 * keys. */
static int queue_in(struct wb_lane_gpu *l, struct place *p, const struct route *r)
{
	bool is_fed = r->is_staged && r->way == WBK_WAY_ASSEMBLE;
	int stream = is_fed ? IN : WORK;
	int rc = l->gpu->cu->copy_in(p->dev, p->host, r->at.bytes, l->stream[stream]);

	if (!rc && (is_fed || !r->is_staged))
		rc = wait_for_slot(l, p, stream);
	if (!rc && is_fed)
		rc = copy_spans(l, p, r);
	if (!rc && is_fed)
		rc = hand_on(l, IN, WORK);
	return rc ? rc : send_keys(l, p);
}

/* Launch each kernel that has tiles in the table. */
static int launch(struct wb_lane_gpu *l, const struct place *p, const struct route *r)
{
	uint32_t n = p->job.n_box, *first = here(p, r->at.first);
	uint8_t *stage = (uint8_t *)(uintptr_t)(p->stage - r->base);
	struct wbk_move_args a = {.op = there(p, r->at.op),
		.bases = there(p, r->at.base),
		.n_op = n,
		.way = (uint32_t)r->way};
	int rc = WBCU_SUCCESS;

	if (r->way != WBK_WAY_SUM)
		a.wire = r->is_staged ? stage : p->job.wire;
	if (p->job.keys) {
		a.keys = (void *)(uintptr_t)l->dev_keys;
		a.sum = r->sums_here ? &p->host->sum : there(p, 0);
	}
	for (unsigned i = 0; i < WBK_MOVES && !rc; i++) {
		uint32_t grid = wbk_gpu_grid(
			(enum wbk_gpu)i, wbk_move_tiles(first, n, i), (uint32_t)l->gpu->n_sm);
		void *args[] = {&a};

		a.first = there(p, r->at.first + i * (n + 1) * (uint32_t)sizeof(*first));
		if (grid)
			rc = l->gpu->cu->launch(l->fn[i], grid, 1, 1,
				wbk_gpu_kernel((enum wbk_gpu)i)->threads, 1, 1, 0, l->stream[WORK],
				args, NULL);
	}
	return rc;
}

/* Queue copies of what the host needs, and then the event.  A kernel waits for a copy in stream OUT
 * only if it accesses the same part of a slot itself. */
static int queue_out(struct wb_lane_gpu *l, struct place *p, const struct route *r)
{
	const struct wbcu *cu = l->gpu->cu;
	bool is_drained = r->is_staged && r->way == WBK_WAY_PACK;
	bool has_sum = p->job.keys && !r->sums_here;
	int stream = is_drained || has_sum ? OUT : WORK, rc = WBCU_SUCCESS;

	if (stream == OUT)
		rc = hand_on(l, WORK, OUT);
	if (!rc && is_drained)
		rc = wait_for_slot(l, p, OUT);
	if (!rc && is_drained)
		rc = copy_spans(l, p, r);
	if (!rc && has_sum)
		rc = cu->copy_out(&p->host->sum, p->dev, sizeof(p->host->sum), l->stream[OUT]);
	return rc ? rc : cu->event_record(p->done, l->stream[stream]);
}

/* Wait until everything that was queued has run, or the device is lost and runs nothing. */
static void settle(struct wb_lane_gpu *l)
{
	for (unsigned i = 0; i < STREAMS; i++)
		(void)l->gpu->cu->stream_sync(l->stream[i]);
}

static int queue(struct wb_lane_gpu *l, struct place *p, const struct route *r)
{
	int rc = queue_in(l, p, r);

	if (!rc)
		rc = launch(l, p, r);
	if (!rc)
		rc = queue_out(l, p, r);
	p->is_queued = !rc;
	p->result = WBCU_NOT_READY;
	if (rc) {
		/* What was queued before the failure reads the tables and writes the slot, which
		 * others use afterwards. */
		settle(l);
		l->has_keys = false; /* the keys may not have reached the device */
	}
	return wb_gpu_rc(l->gpu, rc, "a kernel", NULL);
}

/* Choose how the job is done, and queue it.  The device's context is current. */
static int begin(struct wb_lane_gpu *l, struct place *p)
{
	const struct wb_lane_job *job = &p->job;
	int way = way_of(job->kind), rc = 0;
	struct route r = {.at = layout_of(job->n_box)};
	int64_t tiles;

	if (way < 0 || job->n_box > WB_LANE_GPU_BOXES || (way == WBK_WAY_SUM && !job->keys))
		return -EINVAL;
	r.way = (enum wbk_way)way;
	tiles = fill_tables(p, &r);
	if (tiles <= 0)
		return (int)tiles;
	if (way != WBK_WAY_SUM)
		rc = pin(l, job->wire, job->wire_bytes);
	if (rc)
		return rc;
	p->bytes = bytes_of(job);
	r.sums_here = tiles <= DIRECT_TILES && p->bytes <= DIRECT_BYTES;
	choose_way(l, p, &r);
	return queue(l, p, &r);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

void wb_lane_gpu_begin(struct wb_lane_gpu *l, const struct wb_lane_job *job)
{
	struct place *p = &l->place[(l->first + l->n) % WB_LANE_GPU_JOBS];

	assert(job && (job->box || !job->n_box) && l->n < WB_LANE_GPU_JOBS);
	p->job = *job;
	p->job.rc = 0;
	p->is_queued = false;
	p->slot = (struct wb__lane_span){0, 0};
	p->host->sum = (struct wbk_sum){{0, 0}};
	if (!l->is_entered)
		p->job.rc = wb_gpu_enter(l->gpu, NULL);
	l->is_entered |= !p->job.rc;
	if (!p->job.rc)
		p->job.rc = begin(l, p);
	l->n++;
}

uint32_t wb_lane_gpu_under_way(const struct wb_lane_gpu *l)
{
	return l->n;
}

/* Once the event is over or has failed, it is not queried again. */
static bool is_over(struct wb_lane_gpu *l, struct place *p)
{
	if (p->is_queued && p->result == WBCU_NOT_READY)
		p->result = l->gpu->cu->event_query(p->done);
	return !p->is_queued || p->result != WBCU_NOT_READY;
}

bool wb_lane_gpu_is_over(struct wb_lane_gpu *l)
{
	assert(l->n);
	return is_over(l, &l->place[l->first]);
}

/* As is_over(), but polls for a moment if the job is too small to take long. */
static bool is_soon_over(struct wb_lane_gpu *l, struct place *p)
{
	uint64_t until = wb_now_ns(&wb_clock_real) + POLL_NS;

	while (!is_over(l, p) && p->bytes <= POLL_BYTES && wb_now_ns(&wb_clock_real) < until)
		;
	return is_over(l, p);
}

bool wb_lane_gpu_wait(struct wb_lane_gpu *l, int fd)
{
	struct place *p = &l->place[l->first];
	uint64_t since = wb_now_ns(&wb_clock_real), slice;
	struct pollfd news = {.fd = fd, .events = POLLIN};
	struct timespec t = {0, 0};

	assert(l->n);
	if (is_soon_over(l, p))
		return true;
	do {
		slice = (wb_now_ns(&wb_clock_real) - since) / 8;
		slice = WB_MAX(slice, POLL_NS);
		t.tv_nsec = (long)WB_MIN(slice, SLICE_MAX_NS);
		if (ppoll(&news, 1, &t, NULL) > 0)
			return false;
	} while (!is_over(l, p));
	return true;
}

static int wait_for(struct wb_lane_gpu *l, struct place *p)
{
	if (!is_soon_over(l, p))
		p->result = l->gpu->cu->event_sync(p->done);
	if (p->result) {
		settle(l);
		l->has_keys = false;
	}
	return wb_gpu_rc(l->gpu, p->result, "a kernel", NULL);
}

int wb_lane_gpu_end(struct wb_lane_gpu *l, struct wbk_sum *sum)
{
	struct place *p = &l->place[l->first];
	int rc = p->job.rc;

	assert(l->n && sum);
	if (p->is_queued)
		rc = wait_for(l, p);
	*sum = rc || !p->job.keys ? (struct wbk_sum){{0, 0}} : p->host->sum;
	p->is_queued = false;
	l->first = (l->first + 1) % WB_LANE_GPU_JOBS;
	l->n--;
	if (!l->n && l->is_entered) {
		l->is_entered = false;
		wb_gpu_leave(l->gpu);
	}
	return rc;
}

void wb_lane_gpu_destroy(struct wb_lane_gpu *l)
{
	struct wbk_sum sum;

	while (l && l->n)
		(void)wb_lane_gpu_end(l, &sum);
	if (l)
		discard(l);
}
