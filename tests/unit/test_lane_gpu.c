/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's lane over memory of a device, on the driver without devices; WB_GPU=device: on the
 * machine's. */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "kernels/gpu.h"
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

/* Object 0 is a device's, object 1 the host's; the same content twice, for a lane of the host. */
struct rig {
	const struct wbcu *cu;
	struct wb_lane *lane, *host;
	struct wb_lane_worker *worker;
	pthread_t thread;
	uint64_t dev;
	uint8_t *mem[2], *twin[2], *arena, *wire;
	struct wbk_sum_keys keys;
};

static struct wb_rng rng;

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

/* Boxes that do not touch each other, in rows of their object and on the wire. */
static uint64_t boxes(struct wbk_box *b, uint32_t n)
{
	uint64_t wire = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = (uint32_t)wb_rng_below(&rng, 60) + 1;
		uint32_t col = (uint32_t)wb_rng_below(&rng, 60) + 1;
		bool turned = wb_rng_below(&rng, 3) == 0, cast = wb_rng_below(&rng, 4) == 0;
		uint8_t mem_elem = cast ? 4 : 2;

		b[i] = (struct wbk_box){.base = (uint32_t)wb_rng_below(&rng, 4) == 0,
			.mem_off = (uint64_t)i * (MEM_BYTES / n / 16 * 16),
			.wire_off = wire,
			.pos = wire + 4096 * i,
			.n_row = row / 8 + 1,
			.n_col = col,
			.row_stride = turned ? mem_elem : 64 * mem_elem,
			.col_stride = turned ? (row / 8 + 1) * mem_elem : mem_elem,
			.pos_row_stride = col * 2,
			.pos_col_stride = 2,
			.wire_elem = 2,
			.mem_elem = mem_elem,
			.cast = cast ? WBK_BF16_TO_F32 : WBK_COPY};
		wire += (uint64_t)b[i].n_row * col * 2;
	}
	return wire;
}

static void same_memory(struct rig *r)
{
	fx_cuda_read(r->mem[0], r->dev, MEM_BYTES);
	for (int i = 0; i < 2; i++)
		fx_must(!memcmp(r->mem[i], r->twin[i], MEM_BYTES));
}

/* One job on both lanes; slots lie anywhere. */
static void both(
	struct rig *r, enum wb_lane_kind kind, const struct wbk_box *b, uint32_t n, uint64_t bytes)
{
	void *twin[2] = {r->twin[0], r->twin[1]};
	uint64_t at = wb_rng_below(&rng, (ARENA_BYTES - bytes) / 64) * 64;
	struct wb_lane_job job = {.kind = kind,
		.bases = twin,
		.box = b,
		.n_box = n,
		.wire = r->wire,
		.wire_bytes = bytes,
		.keys = wb_rng_below(&rng, 4) || kind == WB_LANE_SUM ? &r->keys : NULL};
	struct wb_lane_job a, h;

	for (uint64_t i = 0; kind == WB_LANE_ASSEMBLE && i < bytes; i++)
		r->arena[at + i] = r->wire[i] = (uint8_t)wb_rng_u64(&rng);
	ck_assert_int_eq(wb_lane_submit(r->host, &job), 0);
	job.wire = r->arena + at;
	ck_assert_int_eq(wb_lane_submit(r->lane, &job), 0);
	a = await(r->lane);
	h = await(r->host);
	ck_assert(!a.rc && !h.rc);
	ck_assert(!memcmp(&a.sum, &h.sum, sizeof(a.sum)));
	if (kind != WB_LANE_SUM)
		fx_must(!memcmp(r->arena + at, r->wire, bytes));
}

START_TEST(a_device_does_what_the_host_does)
{
	static const enum wb_lane_kind kinds[] = {WB_LANE_PACK, WB_LANE_ASSEMBLE, WB_LANE_SUM};
	static struct wbk_box b[BOXES];
	struct rig r;

	start(&r);
	if (!fx_cuda_is_device())
		fx_cuda_do(_i % 2 ? "order 77" : "late cuLaunchKernel 1000000");
	for (int i = 0; i < 4; i++) {
		uint32_t n = (uint32_t)wb_rng_below(&rng, BOXES) + 1;
		uint64_t bytes = boxes(b, n);

		for (size_t k = 0; k < WB_ARRAY_SIZE(kinds); k++)
			both(&r, kinds[k], b, n, bytes);
		same_memory(&r);
	}
	stop(&r);
}
END_TEST

/* All of the device's object. */
static struct wb_lane_job whole(struct rig *r, struct wbk_box *b, enum wb_lane_kind kind)
{
	*b = (struct wbk_box){.n_row = 1,
		.n_col = MEM_BYTES / 4,
		.row_stride = MEM_BYTES,
		.col_stride = 4,
		.pos_row_stride = MEM_BYTES,
		.pos_col_stride = 4,
		.wire_elem = 4,
		.mem_elem = 4};
	return (struct wb_lane_job){
		.kind = kind, .box = b, .n_box = 1, .wire = r->arena, .wire_bytes = MEM_BYTES};
}

START_TEST(a_job_is_over_when_the_device_is_done_with_its_slot)
{
	struct rig r;
	struct wbk_box b;
	struct wb_lane_job job;
	struct fakecuda_counts n;

	start(&r);
	fx_cuda_do("hold");
	job = whole(&r, &b, WB_LANE_PACK);
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	while (fx_cuda()->count(&n), n.queued < 5) /* tables, launch, sum, event */
		sched_yield();
	fx_cuda_do("go 3");
	while (fx_cuda()->count(&n), n.launches < 1)
		sched_yield();
	ck_assert_int_eq(
		wb_lane_reap(r.lane, &job, 1), 0); /* the launch is done, the event is not */
	fx_cuda_do("go");
	ck_assert_int_eq(await(r.lane).rc, 0);
	ck_assert(!memcmp(r.arena, r.twin[0], MEM_BYTES));
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
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	ck_assert_int_eq(await(r.lane).rc, 0);
	ck_assert(!memcmp(r.arena, r.twin[0], MEM_BYTES));
	wb_gpu_put(g);
	stop(&r);
}
END_TEST

/* As the lane of the host has it. */
static void same_sum(struct rig *r, const struct wb_lane_job *job, const struct wbk_sum *sum)
{
	void *twin[2] = {r->twin[0], r->twin[1]};
	struct wb_lane_job want = *job;

	want.bases = twin;
	want.wire = r->wire;
	ck_assert_int_eq(wb_lane_submit(r->host, &want), 0);
	want = await(r->host);
	ck_assert_int_eq(want.rc, 0);
	ck_assert(!memcmp(&want.sum, sum, sizeof(*sum)));
}

static const struct {
	const char *script;
	int rc;
} faults[] = {
	{"lose 719 2", -EIO},
	{"lose 700", -EIO},
	{"fail cuLaunchKernel 719 1", -EIO},
	{"fail cuMemHostRegister_v2 2 1", -ENOMEM},
	{"fail cuCtxPushCurrent_v2 719 1", -EIO},
	/* The sum's zero and the keys go in, the launch follows, the sum comes out. */
	{"fail cuMemcpyHtoDAsync_v2 719 1", -EIO},
	{"fail cuMemcpyHtoDAsync_v2 719 1 1", -EIO},
	{"late cuLaunchKernel 50000000; fail cuMemcpyDtoHAsync_v2 719 1", -EIO},
	{"late cuLaunchKernel 50000000; fail cuEventRecord 719 1", -EIO},
	{"late cuLaunchKernel 50000000; fail cuEventSynchronize 719 1", -EIO},
};

static const char *fault_needs(int row)
{
	(void)row;
	return FX_SCRIPT;
}

START_TEST(a_device_that_fails_fails_its_jobs_and_no_more)
{
	struct rig r;
	struct wbk_box b;
	struct wb_lane_job job, done;
	struct fakecuda_counts n;
	bool is_lost = strstr(faults[_i].script, "lose") != NULL;

	start(&r);
	fx_cuda_do(faults[_i].script);
	job = whole(&r, &b, WB_LANE_PACK);
	job.keys = &r.keys;
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	ck_assert_int_eq(await(r.lane).rc, faults[_i].rc);
	fx_cuda()->count(&n);
	ck_assert(is_lost || !n.queued); /* nothing writes the slot any more */
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	done = await(r.lane);
	ck_assert_int_eq(done.rc, is_lost ? -EIO : 0);
	if (!is_lost)
		same_sum(&r, &job, &done.sum);
	b.base = 1; /* of the host */
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
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

int main(void)
{
	Suite *s = suite_create("lane gpu");
	TCase *t = tcase_create("all");

	if (!fx_cuda_here())
		return 77;
	if (fx_cuda_is_device() && !wbk_gpu_kernel(WBK_GPU_ROWS)->image) {
		printf("built without a CUDA compiler: make CUDA=yes\n");
		return 77;
	}
	/* A process begins with a driver once, so each claim needs one of its own. */
	unsetenv("CK_FORK");
	tcase_add_loop_test(t, a_device_does_what_the_host_does, 0, 4);
	FX_CUDA_ADD(t, a_job_is_over_when_the_device_is_done_with_its_slot, FX_HOLD);
	FX_CUDA_ADD(t, what_the_application_began_before_is_seen, NULL);
	FX_CUDA_ADD_ROWS(t, a_device_that_fails_fails_its_jobs_and_no_more, faults, fault_needs);
	suite_add_tcase(s, t);
	return fx_run(s);
}
