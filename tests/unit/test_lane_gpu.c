/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's lane over memory of a device, on the driver without devices; WB_GPU=device: on the
 * machine's. */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "kernels/gpu.h"
#include "lane/gpu.h"
#include "lane/lane.h"
#include "mem/gpu.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_cuda.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEM_BYTES ((size_t)2 << 20)
#define ARENA_BYTES ((size_t)40 << 20) /* more than two windows of pinned memory */
#define BOXES 200u /* more than one entry of the lane */
#define MIB ((uint64_t)1 << 20)
#define MANY 10 /* jobs, of which a device has some under way */

/* Object 0 is a device's, object 1 the host's; the same content twice, for a lane of the host. */
struct rig {
	const struct wbcu *cu;
	struct wb_lane *lane, *host;
	struct wb_lane_worker *worker;
	pthread_t thread;
	uint64_t dev;
	uint8_t *mem[2], *twin[2], *arena, *wire; /* wire: the twin of the arena */
	struct wbk_sum_keys keys, others;
};

static struct wb_rng rng;

static const char *needs_script(int row)
{
	(void)row;
	return FX_SCRIPT;
}

static void *run_worker(void *arg)
{
	return (void *)(intptr_t)wb_lane_worker_run(arg);
}

static uint8_t *room(size_t bytes)
{
	uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert(p != MAP_FAILED);
	return p;
}

static void start(struct rig *r)
{
	const char *s = getenv("WB_SEED");
	struct wb_lane_remote_fds fds;
	struct wb_lane_mem mem[2] = {{.bytes = MEM_BYTES, .is_device = true}, {.bytes = MEM_BYTES}};
	struct wb_lane_worker_opts o = {
		.mem = mem, .n_mem = 2, .arena_bytes = ARENA_BYTES, .device = NULL};
	int number = fx_cuda_second();
	struct wbcu_uuid uuid;
	struct wb_err err = {0};

	*r = (struct rig){.cu = fx_cuda_driver(number)};
	rng.state = s ? strtoull(s, NULL, 0) : 20261127 + (uint64_t)getpid();
	printf("seed %llu\n", (unsigned long long)rng.state);
	wbk_sum_keys_init(&r->keys, 3);
	wbk_sum_keys_init(&r->others, 4);
	r->dev = fx_cuda_vmm(number, MEM_BYTES, true);
	r->arena = o.arena = room(ARENA_BYTES);
	r->wire = room(ARENA_BYTES);
	for (int i = 0; i < 2; i++) {
		r->mem[i] = room(MEM_BYTES);
		r->twin[i] = room(MEM_BYTES);
		for (size_t k = 0; k < MEM_BYTES; k++)
			r->mem[i][k] = r->twin[i][k] = (uint8_t)wb_rng_u64(&rng);
	}
	fx_cuda_write(r->dev, r->mem[0], MEM_BYTES);
	mem[0].addr = (void *)(uintptr_t)r->dev;
	mem[1].addr = r->mem[1];
	uuid = fx_cuda_uuid(number);
	o.device = uuid.bytes;
	ck_assert_int_eq(
		wb_lane_create_remote(NULL, r->arena, ARENA_BYTES, &r->lane, &fds, NULL), 0);
	o.fds = (struct wb_lane_remote_fds){dup(fds.shared), dup(fds.submit), dup(fds.complete)};
	ck_assert_int_eq(wb_lane_create_inline(NULL, &r->host, NULL), 0);
	ck_assert_msg(!wb_lane_worker_open(&o, &r->worker, &err), "%s", err.msg);
	pthread_create(&r->thread, NULL, run_worker, r->worker);
}

static void stop(struct rig *r)
{
	struct fakecuda_counts n;

	if (!fx_cuda_is_device())
		fx_cuda_do("go");
	wb_lane_worker_stop(r->worker);
	pthread_join(r->thread, NULL);
	wb_lane_worker_close(r->worker);
	wb_lane_destroy(r->lane);
	wb_lane_destroy(r->host);
	fx_cuda()->count(&n);
	ck_assert(!n.streams && !n.events && !n.modules && !n.pinned && !n.queued);
}

static struct wb_lane_job await(struct wb_lane *l)
{
	struct pollfd p = {.fd = wb_lane_fd(l), .events = POLLIN};
	struct wb_lane_job job;

	while (!wb_lane_reap(l, &job, 1))
		ck_assert_int_eq(poll(&p, p.fd >= 0, 60000), 1);
	return job;
}

/* Shapes of jobs: small ones, which a kernel moves to and from the slot itself, and such as go by a
 * buffer of the device where the wire is whole enough. */
static const struct shape {
	uint32_t n, rows, cols; /* at most */
	uint32_t host, gap; /* one box in so many is the host's, has nobody's bytes behind it */
} shapes[] = {
	{BOXES, 8, 60, 4, 0},
	{BOXES, 8, 60, 0, 9},
	{3, 400, 400, 0, 0},
	{3, 400, 400, 0, 2},
	{3, 400, 400, 2, 0},
	{BOXES, 1, 2500, 150, 0},
	{BOXES, 1, 2500, 0, 4},
};

static bool one_in(uint32_t n)
{
	return n && wb_rng_below(&rng, n) == 0;
}

/* Boxes that do not touch each other, in rows of their object and on the wire. */
static uint64_t boxes(struct wbk_box *b, uint32_t n, const struct shape *s)
{
	uint64_t wire = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = s->rows - (uint32_t)wb_rng_below(&rng, s->rows / 2 + 1);
		uint32_t col = s->cols - (uint32_t)wb_rng_below(&rng, s->cols / 2 + 1);
		bool turned = one_in(3), cast = one_in(4);
		uint8_t mem_elem = cast ? 4 : 2;

		b[i] = (struct wbk_box){.base = one_in(s->host),
			.mem_off = (uint64_t)i * (MEM_BYTES / n / 16 * 16),
			.wire_off = wire,
			.pos = wire + 4096 * i,
			.n_row = row,
			.n_col = col,
			.row_stride = turned ? mem_elem : (s->cols + 4) * mem_elem,
			.col_stride = turned ? row * mem_elem : mem_elem,
			.pos_row_stride = col * 2,
			.pos_col_stride = 2,
			.wire_elem = 2,
			.mem_elem = mem_elem,
			.cast = cast ? WBK_BF16_TO_F32 : WBK_COPY};
		wire += (uint64_t)row * col * 2;
		wire += one_in(s->gap) ? 2 * wb_rng_below(&rng, 2000) : 0;
	}
	return wire;
}

static void same_memory(struct rig *r)
{
	fx_cuda_read(r->mem[0], r->dev, MEM_BYTES);
	for (int i = 0; i < 2; i++)
		ck_assert(!memcmp(r->mem[i], r->twin[i], MEM_BYTES));
}

/* The same bytes in a part of all slots and of their twins. */
static void scribble(struct rig *r, uint64_t at, uint64_t bytes)
{
	for (uint64_t i = at / 8; i <= (at + bytes) / 8 && i < ARENA_BYTES / 8; i++)
		((uint64_t *)(void *)r->arena)[i] = ((uint64_t *)(void *)r->wire)[i] =
			wb_rng_u64(&rng);
}

/* A job of random boxes, with its slot in the twin. */
static struct wb_lane_job some(struct rig *r, struct wbk_box *b, uint64_t at)
{
	static const enum wb_lane_kind kinds[] = {WB_LANE_PACK, WB_LANE_ASSEMBLE, WB_LANE_SUM};
	const struct shape *s = &shapes[wb_rng_below(&rng, WB_ARRAY_SIZE(shapes))];
	struct wb_lane_job job = {
		.kind = kinds[wb_rng_below(&rng, 3)], .box = b, .wire = r->wire + at};

	job.n_box = s->n < 4 ? s->n : (uint32_t)wb_rng_below(&rng, s->n) + 1;
	job.wire_bytes = boxes(b, job.n_box, s);
	if (job.kind == WB_LANE_SUM || !one_in(3))
		job.keys = one_in(3) ? &r->others : &r->keys;
	return job;
}

/* On the host's lane, whose slot is the twin's. */
static struct wb_lane_job on_host(struct rig *r, struct wb_lane_job job)
{
	void *twin[2] = {r->twin[0], r->twin[1]};

	job.bases = twin;
	ck_assert_int_eq(wb_lane_submit(r->host, &job), 0);
	job = await(r->host);
	ck_assert_int_eq(job.rc, 0);
	return job;
}

static void submit(struct rig *r, struct wb_lane_job job)
{
	job.wire = r->arena + ((uint8_t *)job.wire - r->wire);
	ck_assert_int_eq(wb_lane_submit(r->lane, &job), 0);
}

/* What the device did is what the host did. */
static void same(const struct wb_lane_job *is, const struct wb_lane_job *want)
{
	ck_assert_int_eq(is->rc, want->rc);
	ck_assert_uint_eq(is->cookie, want->cookie);
	ck_assert(!memcmp(&is->sum, &want->sum, sizeof(is->sum)));
}

START_TEST(a_device_does_what_the_host_does)
{
	static struct wbk_box b[BOXES];
	struct rig r;

	start(&r);
	if (!fx_cuda_is_device())
		fx_cuda_do(_i % 2 ? "order 77" : "late cuLaunchKernel 1000000");
	for (int i = 0; i < 10; i++) {
		uint64_t at = wb_rng_below(&rng, (ARENA_BYTES - 4 * MIB) / 64) * 64;
		struct wb_lane_job job = some(&r, b, at), want;

		scribble(&r, at, job.wire_bytes);
		want = on_host(&r, job);
		submit(&r, job);
		job = await(r.lane);
		same(&job, &want);
		ck_assert(!memcmp(r.arena + at, r.wire + at, job.wire_bytes));
		same_memory(&r);
	}
	stop(&r);
}
END_TEST

static const char *const disorders[] = {
	"order 77",
	"late cuLaunchKernel 3000000",
	"order 5; late cuMemcpyDtoHAsync_v2 5000000",
	"order 9; late cuMemcpyHtoDAsync_v2 3000000",
};

/* Slots that touch each other, and lie across the border of two windows. */
START_TEST(jobs_under_way_at_once_are_as_if_run_one_by_one)
{
	static const uint64_t slots[] = {0, MIB / 2, 16 * MIB - 200000, 32 * MIB - 64};
	static struct wbk_box b[MANY][BOXES];
	struct wb_lane_job job[MANY], is;
	struct rig r;

	start(&r);
	if (!fx_cuda_is_device())
		fx_cuda_do(disorders[_i]);
	scribble(&r, 0, ARENA_BYTES);
	for (int i = 0; i < 3; i++) {
		for (unsigned k = 0; k < MANY; k++) {
			job[k] = some(&r, b[k], slots[wb_rng_below(&rng, WB_ARRAY_SIZE(slots))]);
			job[k].cookie = k;
		}
		for (unsigned k = 0; k < MANY; k++)
			submit(&r, job[k]);
		for (unsigned k = 0; k < MANY; k++)
			job[k] = on_host(&r, job[k]);
		for (unsigned k = 0; k < MANY; k++) {
			is = await(r.lane);
			same(&is, &job[k]);
		}
		ck_assert(!memcmp(r.arena, r.wire, ARENA_BYTES));
		same_memory(&r);
	}
	stop(&r);
}
END_TEST

/* The first bytes of the device's object, and a slot that is as large. */
static struct wb_lane_job part(
	struct rig *r, struct wbk_box *b, enum wb_lane_kind kind, uint64_t at, uint64_t bytes)
{
	*b = (struct wbk_box){.n_row = 1,
		.n_col = (uint32_t)(bytes / 4),
		.row_stride = (int64_t)bytes,
		.col_stride = 4,
		.pos_row_stride = bytes,
		.pos_col_stride = 4,
		.wire_elem = 4,
		.mem_elem = 4};
	return (struct wb_lane_job){
		.kind = kind, .box = b, .n_box = 1, .wire = r->wire + at, .wire_bytes = bytes};
}

static struct wb_lane_job whole(struct rig *r, struct wbk_box *b, enum wb_lane_kind kind)
{
	return part(r, b, kind, 0, MEM_BYTES);
}

static struct fakecuda_counts counts(void)
{
	struct fakecuda_counts n;

	fx_cuda()->count(&n);
	return n;
}

START_TEST(a_job_is_over_when_the_device_is_done_with_its_slot)
{
	struct rig r;
	struct wbk_box b;
	struct wb_lane_job job;

	start(&r);
	fx_cuda_do("hold");
	job = whole(&r, &b, WB_LANE_PACK);
	submit(&r, job);
	while (counts().queued < 6) /* tables, launch; event; copy, event */
		sched_yield();
	fx_cuda_do("go 4");
	while (counts().queued > 2)
		sched_yield();
	/* The launch is done, the copy is not. */
	ck_assert_int_eq(wb_lane_reap(r.lane, &job, 1), 0);
	fx_cuda_do("go");
	ck_assert_int_eq(await(r.lane).rc, 0);
	ck_assert(!memcmp(r.arena, r.twin[0], MEM_BYTES));
	stop(&r);
}
END_TEST

static const struct {
	const char *script;
	enum wb_lane_kind kind;
	uint64_t bytes;
} lates[] = {
	/* Tables go in first. */
	{"late cuMemcpyDtoHAsync_v2 100000000", WB_LANE_PACK, MEM_BYTES},
	{"late cuMemcpyHtoDAsync_v2 100000000 0 1", WB_LANE_ASSEMBLE, MEM_BYTES},
	{"late cuLaunchKernel 100000000", WB_LANE_PACK, MEM_BYTES},
	{"late cuLaunchKernel 100000000", WB_LANE_ASSEMBLE, MEM_BYTES},
	{"late cuLaunchKernel 100000000", WB_LANE_PACK, 65536},
	{"late cuLaunchKernel 100000000", WB_LANE_ASSEMBLE, 65536},
};

/* The slot is another's as soon as the job is reaped. */
START_TEST(what_is_late_is_waited_for)
{
	struct rig r;
	struct wbk_box b;
	struct wb_lane_job job, want;

	start(&r);
	fx_cuda_do(lates[_i].script);
	job = part(&r, &b, lates[_i].kind, 3 * MIB, lates[_i].bytes);
	job.keys = &r.keys;
	scribble(&r, 3 * MIB, MEM_BYTES);
	want = on_host(&r, job);
	submit(&r, job);
	job = await(r.lane);
	same(&job, &want);
	ck_assert(!memcmp(r.arena + 3 * MIB, r.wire + 3 * MIB, MEM_BYTES));
	memset(r.arena + 3 * MIB, 0x77, MEM_BYTES);
	same_memory(&r);
	stop(&r);
}
END_TEST

static const struct {
	enum wb_lane_kind kind;
	uint64_t bytes;
} seconds_of_a_slot[] = {
	{WB_LANE_ASSEMBLE, MIB}, /* by way of a buffer */
	{WB_LANE_ASSEMBLE, 65536}, /* from the slot itself */
	{WB_LANE_PACK, 65536},
};

/* The first job's kernel is done long before its slot is written. */
START_TEST(a_job_waits_for_those_before_it_that_touch_its_slot)
{
	struct wbk_box b[2];
	struct wb_lane_job job[2], is;
	struct rig r;

	start(&r);
	scribble(&r, 0, MEM_BYTES);
	fx_cuda_do("late cuMemcpyDtoHAsync_v2 50000000 1");
	job[0] = part(&r, &b[0], WB_LANE_PACK, 0, MEM_BYTES);
	job[1] = part(&r, &b[1], seconds_of_a_slot[_i].kind, MIB / 4, seconds_of_a_slot[_i].bytes);
	b[1].mem_off = MIB;
	for (unsigned k = 0; k < 2; k++)
		submit(&r, job[k]);
	for (unsigned k = 0; k < 2; k++) {
		job[k] = on_host(&r, job[k]);
		is = await(r.lane);
		same(&is, &job[k]);
	}
	ck_assert(!memcmp(r.arena, r.wire, ARENA_BYTES));
	same_memory(&r);
	stop(&r);
}
END_TEST

START_TEST(several_jobs_are_under_way)
{
	struct wbk_box b[WB_LANE_GPU_JOBS + 2];
	struct rig r;

	start(&r);
	fx_cuda_do("hold");
	for (unsigned k = 0; k < WB_ARRAY_SIZE(b); k++) {
		struct wb_lane_job job =
			part(&r, &b[k], WB_LANE_PACK, (9 + 3 * k) * MIB, MEM_BYTES);

		job.cookie = k;
		submit(&r, job);
		(void)on_host(&r, job);
	}
	/* The third lies in two windows: it has a copy more, which does not wait either. */
	while (counts().queued < 6 * WB_LANE_GPU_JOBS + 1)
		sched_yield();
	fx_cuda_do("go");
	for (unsigned k = 0; k < WB_ARRAY_SIZE(b); k++)
		ck_assert_uint_eq(await(r.lane).cookie, k);
	ck_assert(!memcmp(r.arena, r.wire, ARENA_BYTES));
	stop(&r);
}
END_TEST

/* A worker that is told to stop while the device is at its jobs. */
START_TEST(a_worker_ends_what_it_has_begun)
{
	struct wbk_box b[2];
	struct wb_lane_job job;
	struct rig r;

	start(&r);
	fx_cuda_do("hold");
	for (unsigned k = 0; k < 2; k++) {
		job = part(&r, &b[k], WB_LANE_PACK, 3 * k * MIB, MEM_BYTES);
		submit(&r, job);
		(void)on_host(&r, job);
	}
	while (counts().queued < 12)
		sched_yield();
	wb_lane_worker_stop(r.worker);
	fx_cuda_do("go");
	pthread_join(r.thread, NULL);
	ck_assert_int_eq(counts().queued, 0);
	for (unsigned k = 0; k < 2; k++) {
		ck_assert_int_eq(wb_lane_reap(r.lane, &job, 1), 1);
		ck_assert_int_eq(job.rc, 0);
	}
	ck_assert(!memcmp(r.arena, r.wire, ARENA_BYTES));
	pthread_create(&r.thread, NULL, run_worker, r.worker); /* for stop() to end */
	stop(&r);
}
END_TEST

/* A lane without a worker, over the twin of the arena. */
static struct wb_lane_gpu *bare(void *arena)
{
	struct wbcu_uuid uuid = fx_cuda_uuid(fx_cuda_second());
	struct wb_lane_gpu *l;
	struct wb_err err = {0};

	ck_assert_msg(!wb_lane_gpu_create(uuid.bytes, arena, ARENA_BYTES, &l, &err), "%s", err.msg);
	return l;
}

START_TEST(a_lane_that_goes_lets_its_jobs_run_first)
{
	struct wbk_box b[2];
	struct wb_lane_gpu *lane;
	struct rig r;
	void *base;

	start(&r);
	base = (void *)(uintptr_t)r.dev;
	lane = bare(r.wire);
	fx_cuda_do("late cuLaunchKernel 50000000");
	for (unsigned k = 0; k < 2; k++) {
		struct wb_lane_job job = part(&r, &b[k], WB_LANE_PACK, 3 * k * MIB, MEM_BYTES);

		job.bases = &base;
		wb_lane_gpu_begin(lane, &job);
	}
	wb_lane_gpu_destroy(lane);
	ck_assert_int_eq(counts().queued, 0);
	for (unsigned k = 0; k < 2; k++)
		ck_assert(!memcmp(r.wire + 3 * k * MIB, r.twin[0], MEM_BYTES));
	stop(&r);
}
END_TEST

START_TEST(a_wait_that_fails_fails_its_job_and_leaves_nothing_running)
{
	struct wb_lane_gpu *lane;
	struct wb_lane_job job;
	struct wbk_sum sum;
	struct wbk_box b;
	struct rig r;
	void *base;

	start(&r);
	base = (void *)(uintptr_t)r.dev;
	lane = bare(r.wire);
	job = part(&r, &b, WB_LANE_PACK, 0, _i ? 65536 : MEM_BYTES);
	job.bases = &base;
	fx_cuda_do("late cuLaunchKernel 50000000; fail cuEventSynchronize 719 1");
	wb_lane_gpu_begin(lane, &job);
	ck_assert_uint_eq(wb_lane_gpu_under_way(lane), 1);
	ck_assert_int_eq(wb_lane_gpu_end(lane, &sum), -EIO);
	ck_assert_int_eq(counts().queued, 0);
	wb_lane_gpu_begin(lane, &job);
	ck_assert_int_eq(wb_lane_gpu_end(lane, &sum), 0);
	wb_lane_gpu_destroy(lane);
	stop(&r);
}
END_TEST

START_TEST(what_the_application_began_before_is_seen)
{
	struct rig r;
	struct wbk_box b;
	struct wb_lane_job job;
	struct wb_err err = {0};
	struct wbcu_uuid uuid;
	struct wb_gpu *g;

	start(&r);
	uuid = fx_cuda_uuid(fx_cuda_second());
	ck_assert_int_eq(wb_gpu_get(uuid.bytes, &g, NULL), 0);
	memset(r.twin[0], 0x5a, MEM_BYTES);
	fx_cuda_fill_late(r.dev, 0x5a, MEM_BYTES); /* the optimizer's last step */
	ck_assert_msg(!wb_gpu_settle(g, &err), "%s", err.msg);
	job = whole(&r, &b, WB_LANE_PACK);
	submit(&r, job);
	ck_assert_int_eq(await(r.lane).rc, 0);
	ck_assert(!memcmp(r.arena, r.twin[0], MEM_BYTES));
	wb_gpu_put(g);
	stop(&r);
}
END_TEST

static const struct {
	const char *script;
	int rc;
	uint64_t bytes;
} faults[] = {
	{"lose 719 2", -EIO, MEM_BYTES},
	{"lose 700", -EIO, MEM_BYTES},
	{"lose 719 2", -EIO, 65536},
	{"fail cuLaunchKernel 719 1", -EIO, MEM_BYTES},
	{"fail cuLaunchKernel 719 1", -EIO, 65536},
	{"fail cuMemHostRegister_v2 2 1", -ENOMEM, MEM_BYTES},
	{"fail cuCtxPushCurrent_v2 719 1", -EIO, MEM_BYTES},
	/* The tables and the keys go in, the launch follows, then slot and sum come out. */
	{"fail cuMemcpyHtoDAsync_v2 719 1", -EIO, MEM_BYTES},
	{"fail cuMemcpyHtoDAsync_v2 719 1 1", -EIO, MEM_BYTES},
	{"late cuLaunchKernel 50000000; fail cuMemcpyDtoHAsync_v2 719 1", -EIO, MEM_BYTES},
	{"late cuLaunchKernel 50000000; fail cuMemcpyDtoHAsync_v2 719 1 1", -EIO, MEM_BYTES},
	{"late cuLaunchKernel 50000000; fail cuStreamWaitEvent 719 1", -EIO, MEM_BYTES},
	{"late cuLaunchKernel 50000000; fail cuEventRecord 719 1", -EIO, MEM_BYTES},
	{"late cuLaunchKernel 50000000; fail cuEventRecord 719 1 1", -EIO, MEM_BYTES},
	{"late cuLaunchKernel 50000000; fail cuEventRecord 719 1", -EIO, 65536},
	{"late cuLaunchKernel 50000000; fail cuEventQuery 719 1", -EIO, MEM_BYTES},
	{"late cuLaunchKernel 50000000; fail cuEventQuery 719 1 1", -EIO, 65536},
};

START_TEST(a_device_that_fails_fails_its_jobs_and_no_more)
{
	struct rig r;
	struct wbk_box b;
	struct wb_lane_job job, done, want;
	bool is_lost = strstr(faults[_i].script, "lose") != NULL;

	start(&r);
	fx_cuda_do(faults[_i].script);
	job = part(&r, &b, WB_LANE_PACK, 0, faults[_i].bytes);
	job.keys = &r.keys;
	want = on_host(&r, job);
	submit(&r, job);
	ck_assert_int_eq(await(r.lane).rc, faults[_i].rc);
	ck_assert(is_lost || !counts().queued); /* nothing writes the slot any more */
	submit(&r, job);
	done = await(r.lane);
	ck_assert_int_eq(done.rc, is_lost ? -EIO : 0);
	if (!is_lost)
		same(&done, &want);
	b.base = 1; /* of the host */
	submit(&r, job);
	ck_assert_int_eq(await(r.lane).rc, 0);
	if (is_lost) {
		wb_lane_worker_stop(r.worker);
		pthread_join(r.thread, NULL);
		wb_lane_worker_close(r.worker);
		wb_lane_destroy(r.lane);
		wb_lane_destroy(r.host);
	} else {
		stop(&r);
	}
}
END_TEST

/* Of three jobs with keys, of which the second brings others: what each queues is counted. */
static const char *const seconds[] = {
	"fail cuLaunchKernel 719 1 1",
	"fail cuMemcpyHtoDAsync_v2 719 1 2", /* tables */
	"fail cuMemcpyHtoDAsync_v2 719 1 3", /* keys */
	"fail cuStreamWaitEvent 719 1 1",
	"fail cuEventRecord 719 1 2",
	"fail cuMemcpyDtoHAsync_v2 719 1 2", /* slot */
	"fail cuMemcpyDtoHAsync_v2 719 1 3", /* sum */
	"fail cuEventRecord 719 1 3",
};

START_TEST(a_job_that_fails_takes_none_beside_it_along)
{
	struct wb_lane_job job[3], is;
	struct wbk_box b[3];
	struct rig r;

	start(&r);
	fx_cuda_do("late cuLaunchKernel 20000000");
	fx_cuda_do(seconds[_i]);
	for (unsigned k = 0; k < 3; k++) {
		job[k] = part(&r, &b[k], WB_LANE_PACK, 3 * k * MIB, MEM_BYTES);
		b[k].pos = k; /* another sum */
		job[k].keys = k ? &r.others : &r.keys;
		job[k].cookie = k;
		submit(&r, job[k]);
		job[k] = on_host(&r, job[k]);
	}
	for (unsigned k = 0; k < 3; k++) {
		is = await(r.lane);
		if (k == 1) {
			ck_assert_uint_eq(is.cookie, 1);
			ck_assert_int_eq(is.rc, -EIO);
			continue;
		}
		same(&is, &job[k]);
		ck_assert(!memcmp(r.arena + 3 * k * MIB, r.twin[0], MEM_BYTES));
	}
	stop(&r);
}
END_TEST

static const char *const shortages[] = {
	"memory 200000000", /* less than is left to the application */
	"fail cuMemAlloc_v2 2 1",
	"fail cuMemGetInfo_v2 999 1",
};

/* Copies of a job without keys: of its tables, and between its slot and a buffer. */
static long copies_of(struct rig *r, const struct wb_lane_job *job)
{
	long before = counts().copies;

	submit(r, *job);
	ck_assert_int_eq(await(r->lane).rc, 0);
	return counts().copies - before;
}

START_TEST(a_device_without_room_for_buffers_moves_slots_itself)
{
	struct wb_lane_job job;
	struct wbk_box b;
	int n = 0;
	struct rig r;

	start(&r);
	fx_cuda_do(shortages[_i]);
	job = part(&r, &b, WB_LANE_PACK, 0, 300000);
	ck_assert_int_eq(copies_of(&r, &job), 1);
	ck_assert(!memcmp(r.arena, r.twin[0], 300000));
	fx_cuda_do("memory 1073741824");
	/* It is asked again, and not at every job. */
	while (copies_of(&r, &job) == 1)
		ck_assert_int_lt(++n, 100);
	ck_assert_int_gt(n, 10);
	memset(r.arena, 0, 300000);
	ck_assert_int_eq(copies_of(&r, &job), 2);
	ck_assert(!memcmp(r.arena, r.twin[0], 300000));
	stop(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane gpu");
	TCase *t = tcase_create("all");

#ifdef __SANITIZE_THREAD__
	printf("TSan cannot see that counters mapped at two addresses order the two sides of a "
	       "lane in one process\n");
	return 77;
#endif
	if (!fx_cuda_here())
		return 77;
	if (fx_cuda_is_device() && !wbk_gpu_kernel(WBK_GPU_ROWS)->image) {
		printf("built without a CUDA compiler: make CUDA=yes\n");
		return 77;
	}
	/* A process begins with a driver once, so each claim needs one of its own. */
	unsetenv("CK_FORK");
	fx_add_rows(t, a_device_does_what_the_host_does, 4);
	fx_add_rows(t, jobs_under_way_at_once_are_as_if_run_one_by_one, WB_ARRAY_SIZE(disorders));
	FX_CUDA_ADD(t, a_job_is_over_when_the_device_is_done_with_its_slot, FX_HOLD);
	FX_CUDA_ADD_ROWS(t, what_is_late_is_waited_for, lates, needs_script);
	FX_CUDA_ADD_ROWS(t, a_job_waits_for_those_before_it_that_touch_its_slot, seconds_of_a_slot,
		needs_script);
	FX_CUDA_ADD(t, several_jobs_are_under_way, FX_HOLD);
	FX_CUDA_ADD(t, a_worker_ends_what_it_has_begun, FX_HOLD);
	FX_CUDA_ADD(t, a_lane_that_goes_lets_its_jobs_run_first, FX_HOLD);
	fx_cuda_add_rows(t, a_wait_that_fails_fails_its_job_and_leaves_nothing_running,
		"a_wait_that_fails_fails_its_job_and_leaves_nothing_running", 2, needs_script);
	FX_CUDA_ADD(t, what_the_application_began_before_is_seen, NULL);
	FX_CUDA_ADD_ROWS(t, a_device_that_fails_fails_its_jobs_and_no_more, faults, needs_script);
	FX_CUDA_ADD_ROWS(t, a_job_that_fails_takes_none_beside_it_along, seconds, needs_script);
	FX_CUDA_ADD_ROWS(
		t, a_device_without_room_for_buffers_moves_slots_itself, shortages, needs_script);
	suite_add_tcase(s, t);
	return fx_run(s);
}
