/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of a lane between a device and slots of the host. */
#include "base/err.h"
#include "lane/gpu.h"
#include "lane/lane.h"
#include "tests/bench/gpu/bench.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK ((uint64_t)16 << 20)
#define CHUNKS 16u

struct jobs {
	struct wb_lane_gpu *lane;
	struct wb_lane *remote; /* instead: the lane of another thread, by its rings */
	struct wb_lane_job job;
	struct wbk_box box;
	void *base;
	uint8_t *arena;
	uint32_t n;
};

static void end_job(struct jobs *j)
{
	struct wbk_sum sum;

	gb_must(wb_lane_gpu_end(j->lane, &sum), "a job of the lane");
}

/* As many under way as a worker's lane has. */
static void jobs_run(void *arg)
{
	struct jobs *j = arg;

	for (uint32_t i = 0; i < j->n; i++) {
		if (wb_lane_gpu_under_way(j->lane) == WB_LANE_GPU_JOBS)
			end_job(j);
		j->job.wire = j->arena + i * CHUNK;
		wb_lane_gpu_begin(j->lane, &j->job);
	}
	while (wb_lane_gpu_under_way(j->lane))
		end_job(j);
}

/* As an agent has them run. */
static void jobs_send(void *arg)
{
	struct jobs *j = arg;
	struct pollfd p = {.fd = wb_lane_fd(j->remote), .events = POLLIN};
	struct wb_lane_job done;

	for (uint32_t i = 0; i < j->n; i++) {
		j->job.wire = j->arena + i * CHUNK;
		gb_must(wb_lane_submit(j->remote, &j->job), "wb_lane_submit");
	}
	for (uint32_t i = 0; i < j->n;) {
		if (!wb_lane_reap(j->remote, &done, 1)) {
			gb_must(poll(&p, 1, 60000) != 1, "a job of the worker");
			continue;
		}
		gb_must(done.rc, "a job of the worker");
		i++;
	}
}

static void bench_chunks(struct jobs *j, const char *how, gb_queue_fn *run)
{
	struct gb_copy c = {.bytes = CHUNKS * CHUNK};
	char name[128];

	c.from = gb_device(c.bytes);
	c.to = (uintptr_t)gb_pinned(c.bytes);
	j->n = CHUNKS;
	j->box.n_row = 1024;
	j->job.keys = &gb.keys;
	j->job.kind = WB_LANE_PACK;
	snprintf(name, sizeof(name), "staging, pack into slots of the host, 16 chunks of 16 MiB%s",
		how);
	gb_row(name, gb_beside(run, j, gb_copy_out, &c), (double)c.bytes, 0.9,
		"cuMemcpyDtoHAsync, pinned");
	j->job.kind = WB_LANE_ASSEMBLE;
	c = (struct gb_copy){c.from, c.to, c.bytes};
	snprintf(name, sizeof(name),
		"staging, assemble from slots of the host, 16 chunks of 16 MiB%s", how);
	gb_row(name, gb_beside(run, j, gb_copy_in, &c), (double)c.bytes, 0.9,
		"cuMemcpyHtoDAsync, pinned");
	gb.cu->mem_free(c.to);
	gb.cu->host_free((void *)(uintptr_t)c.from);
}

/* @n jobs of @rows times 16 KiB, in microseconds a job. */
static void bench_small(struct jobs *j, const char *name, gb_queue_fn *run, uint32_t rows,
	uint32_t n, bool has_sum, double bar)
{
	struct gb_timed t;

	j->n = n;
	j->box.n_row = rows;
	j->job.kind = WB_LANE_PACK;
	j->job.keys = has_sum ? &gb.keys : NULL;
	t = gb_beside(run, j, run, j);
	printf("{\"name\":\"gpu: staging, %s\",\"figure\":%.1f,\"unit\":\"us\",", name,
		1e6 * t.s / n);
	if (bar > 0)
		printf("\"bar\":%.0f,\"met\":%s}\n", bar, 1e6 * t.s / n <= bar ? "true" : "false");
	else
		printf("\"bar\":null,\"met\":null}\n");
	fflush(stdout);
}

static void bench_lane(struct jobs *j)
{
	struct wb_err err = {0};

	gb_must_err(wb_lane_gpu_create(NULL, j->arena, CHUNKS * CHUNK, &j->lane, &err), &err);
	bench_chunks(j, "", jobs_run);
	bench_small(j, "a job of 16 KiB from its call to its end", jobs_run, 1, 1, true, 20);
	bench_small(j, "a job of 16 KiB from its call to its end, not summed", jobs_run, 1, 1,
		false, 0);
	bench_small(j, "a job of 16 KiB, four under way", jobs_run, 1, CHUNKS, true, 0);
	bench_small(j, "a job of 256 KiB, the kernel writes the slot, four under way", jobs_run, 16,
		CHUNKS, true, 0);
	bench_small(
		j, "a job of 272 KiB, by a buffer, four under way", jobs_run, 17, CHUNKS, true, 0);
	bench_small(
		j, "a job of 1 MiB, by a buffer, four under way", jobs_run, 64, CHUNKS, true, 0);
	wb_lane_gpu_destroy(j->lane);
}

static void *worker_main(void *worker)
{
	gb_must(wb_lane_worker_run(worker), "wb_lane_worker_run");
	return NULL;
}

/* The same by a thread that takes them from the rings, as in the library. */
static void bench_worker(struct jobs *j)
{
	struct wb_lane_mem mem = {.addr = j->base, .bytes = CHUNK, .is_device = true};
	struct wb_lane_worker_opts o = {.mem = &mem,
		.n_mem = 1,
		.arena = j->arena,
		.arena_bytes = CHUNKS * CHUNK,
		.device = gb.gpu->uuid.bytes};
	struct wb_lane_remote_fds fds;
	struct wb_lane_worker *worker;
	struct wb_err err = {0};
	pthread_t thread;

	gb_must_err(wb_lane_create_remote(NULL, j->arena, CHUNKS * CHUNK, &j->remote, &fds, &err),
		&err);
	o.fds = (struct wb_lane_remote_fds){dup(fds.shared), dup(fds.submit), dup(fds.complete)};
	gb_must_err(wb_lane_worker_open(&o, &worker, &err), &err);
	gb_must(pthread_create(&thread, NULL, worker_main, worker), "pthread_create");
	bench_chunks(j, ", through the rings of a worker", jobs_send);
	bench_small(j, "a job of 16 KiB through the rings of a worker", jobs_send, 1, 1, true, 0);
	wb_lane_worker_stop(worker);
	pthread_join(thread, NULL);
	wb_lane_worker_close(worker);
	wb_lane_destroy(j->remote);
}

void gb_jobs(void)
{
	struct jobs j = {0};

	if (!gb_is_wanted("staging"))
		return;
	j.arena = mmap(
		NULL, CHUNKS * CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	j.base = (void *)(uintptr_t)gb_device(CHUNK);
	gb_scribble((uintptr_t)j.base, CHUNK);
	j.box = (struct wbk_box){.n_col = CHUNK / 2048,
		.row_stride = CHUNK / 1024,
		.col_stride = 2,
		.pos_row_stride = CHUNK / 1024,
		.pos_col_stride = 2,
		.wire_elem = 2,
		.mem_elem = 2};
	j.job = (struct wb_lane_job){
		.bases = &j.base, .box = &j.box, .n_box = 1, .wire_bytes = CHUNK};
	bench_lane(&j);
	bench_worker(&j);
	gb.cu->mem_free((uintptr_t)j.base);
	munmap(j.arena, CHUNKS * CHUNK);
}
