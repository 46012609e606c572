/* SPDX-License-Identifier: Apache-2.0 */
/* One set of claims for every kind of lane; the remote one in a thread and in another process. */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "lane/internal.h"
#include "lane/lane.h"
#include "lane/shared.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INLINE, HOST, THREAD, PROCESS, KINDS };
#define MEM_BYTES (1u << 20)
#define ARENA_BYTES (4u << 20)

struct rig {
	int kind;
	struct wb_lane *lane;
	uint8_t *mem[2], *arena;
	void *base[2];
	struct wb_lane_remote_fds fds;
	struct wb_lane_worker *worker;
	pthread_t thread;
	pid_t pid;
	struct wbk_sum_keys keys;
};

static struct wb_rng rng = {7};

/* TSan cannot see that counters mapped at two addresses order the two sides of one process. */
#ifdef __SANITIZE_THREAD__
#define IS_TSAN true
#else
#define IS_TSAN false
#endif

static void *run_worker(void *arg)
{
	return (void *)(intptr_t)wb_lane_worker_run(arg);
}

static struct wb_lane_worker *open_worker(struct rig *r, bool dup_fds)
{
	struct wb_lane_mem mem[2] = {{r->mem[0], MEM_BYTES, false}, {r->mem[1], MEM_BYTES, false}};
	struct wb_lane_worker_opts o = {.fds = r->fds,
		.mem = mem,
		.n_mem = 2,
		.arena = r->arena,
		.arena_bytes = ARENA_BYTES};
	struct wb_lane_worker *w = NULL;
	struct wb_err err = {0};

	if (dup_fds)
		o.fds = (struct wb_lane_remote_fds){
			dup(r->fds.shared), dup(r->fds.submit), dup(r->fds.complete)};
	ck_assert_msg(!wb_lane_worker_open(&o, &w, &err), "%s", err.msg);
	return w;
}

static void start(struct rig *r, int kind, uint32_t depth)
{
	struct wb_lane_opts o = {.depth = depth};

	if (IS_TSAN && kind == THREAD)
		kind = PROCESS;
	*r = (struct rig){.kind = kind};
	wbk_sum_keys_init(&r->keys, 5);
	r->arena =
		mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 2; i++) {
		r->base[i] = r->mem[i] = malloc(MEM_BYTES);
		memset(r->mem[i], 0xee, MEM_BYTES);
	}
	if (kind == INLINE)
		ck_assert_int_eq(wb_lane_create_inline(&o, &r->lane, NULL), 0);
	else if (kind == HOST)
		ck_assert_int_eq(wb_lane_create_host(&o, &r->lane, NULL), 0);
	else
		ck_assert_int_eq(
			wb_lane_create_remote(&o, r->arena, ARENA_BYTES, &r->lane, &r->fds, NULL),
			0);
	if (kind == THREAD) {
		r->worker = open_worker(r, true);
		pthread_create(&r->thread, NULL, run_worker, r->worker);
	}
	if (kind == PROCESS) {
		r->pid = fork();
		if (!r->pid)
			_exit(wb_lane_worker_run(open_worker(r, false)) != 0);
	}
}

static void stop(struct rig *r)
{
	if (r->kind == THREAD) {
		wb_lane_worker_stop(r->worker);
		pthread_join(r->thread, NULL);
		wb_lane_worker_close(r->worker);
	}
	if (r->kind == PROCESS && r->pid) {
		kill(r->pid, SIGKILL);
		waitpid(r->pid, NULL, 0);
	}
	wb_lane_destroy(r->lane);
	munmap(r->arena, ARENA_BYTES);
	free(r->mem[0]);
	free(r->mem[1]);
}

/* Wait for @n jobs. */
static void reap(struct rig *r, struct wb_lane_job *job, int n)
{
	struct pollfd p = {.fd = wb_lane_fd(r->lane), .events = POLLIN};

	for (int got = 0; got < n;) {
		int k;

		if (p.fd >= 0)
			ck_assert_int_eq(poll(&p, 1, 20000), 1);
		k = wb_lane_reap(r->lane, job + got, n - got);
		ck_assert_int_ge(k, p.fd < 0);
		got += k;
	}
}

/* Boxes that cover @bytes of wire in pieces, strewn over the two memories without overlap. */
static uint32_t boxes(struct wbk_box *b, uint32_t n, uint32_t elems)
{
	for (uint32_t i = 0; i < n; i++)
		b[i] = (struct wbk_box){.n_row = 1,
			.n_col = elems,
			.repeat = 1,
			.wire_elem = 2,
			.mem_elem = 2,
			.col_stride = i % 3 ? 2 : 4,
			.pos_col_stride = 2,
			.pos = (uint64_t)i * elems * 2,
			.base = i % 2,
			.mem_off = (uint64_t)i / 2 * elems * 4,
			.wire_off = (uint64_t)i * elems * 2};
	return n * elems * 2;
}

static struct wb_lane_job job_of(
	struct rig *r, int kind, const struct wbk_box *b, uint32_t n, uint64_t at)
{
	return (struct wb_lane_job){.kind = kind,
		.bases = r->base,
		.box = b,
		.n_box = n,
		.wire = r->arena + at,
		.wire_bytes = 1 << 20,
		.keys = &r->keys,
		.cookie = at + kind};
}

/* From a few boxes to more than all shared entries hold. */
static const uint32_t counts[] = {0, 1, 3, 127, 128, 129, 2000, 64 * 128 + 77};

START_TEST(what_is_assembled_is_packed_again_with_the_same_sum)
{
	struct wbk_box *b = calloc(10000, sizeof(*b));
	struct rig r;

	start(&r, _i, 0);
	for (unsigned c = 0; c < WB_ARRAY_SIZE(counts); c++) {
		struct wb_lane_job job[3];
		uint32_t bytes = boxes(b, counts[c], counts[c] > 1000 ? 30 : 501);

		for (uint32_t i = 0; i < bytes; i++)
			r.arena[i] = (uint8_t)wb_rng_u64(&rng);
		memset(r.arena + (1 << 20), 0, bytes);
		for (int k = 0; k < 3; k++) {
			static const int kind[] = {WB_LANE_ASSEMBLE, WB_LANE_PACK, WB_LANE_SUM};

			job[k] = job_of(&r, kind[k], b, counts[c], (uint64_t)k << 20);
			if (k == 2)
				job[k].wire = NULL;
			ck_assert_int_eq(wb_lane_submit(r.lane, &job[k]), 0);
		}
		reap(&r, job, 3);
		for (int k = 0; k < 3; k++) {
			struct wbk_sum want = {{0}};

			wbk_sum_add(&r.keys, 0, r.arena, bytes, &want);
			ck_assert_int_eq(job[k].rc, 0);
			ck_assert_mem_eq(&job[k].sum, &want, sizeof(want));
		}
		ck_assert_uint_eq(job[1].cookie, (1 << 20) + WB_LANE_PACK);
		ck_assert_mem_eq(r.arena, r.arena + (1 << 20), bytes);
	}
	stop(&r);
	free(b);
}
END_TEST

START_TEST(full_is_eagain_and_order_is_kept)
{
	struct wbk_box b[3];
	struct wb_lane_job job, done[4];
	struct rig r;
	uint64_t next = 0, given = 0;

	start(&r, _i, 5);
	boxes(b, 3, 100);
	while (next < 300) {
		int n, rc;

		job = job_of(&r, WB_LANE_SUM, b, 3, 0);
		job.cookie = given;
		rc = wb_lane_submit(r.lane, &job);
		ck_assert_int_eq(rc, given - next == 5 ? -EAGAIN : 0);
		given += rc == 0;
		if (!rc)
			continue;
		do {
			reap(&r, done, 1);
			n = 1 + wb_lane_reap(r.lane, done + 1, 3);
			for (int i = 0; i < n; i++)
				ck_assert_uint_eq(done[i].cookie, next++);
		} while (given - next > 3);
	}
	stop(&r);
}
END_TEST

START_TEST(remote_box_out_of_bounds_is_einval_and_touches_nothing)
{
	struct wbk_box good, b;
	struct wb_lane_job job;
	struct rig r;

	start(&r, _i, 0);
	boxes(&good, 1, 100);
	for (int i = 0; i < 12; i++) {
		b = good;
		job = job_of(&r, i % 2 ? WB_LANE_PACK : WB_LANE_ASSEMBLE, &b, 1, 0);
		switch (i / 2) {
		case 0:
			b.base = 2;
			break;
		case 1:
			b.mem_off = MEM_BYTES - 100;
			break;
		case 2:
			b.col_stride = -4;
			break;
		case 3:
			b.wire_off = (1 << 20) - 100;
			break;
		case 4:
			b.cast = WBK_CAST_COUNT;
			break;
		default:
			job.kind = 77;
		}
		ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
		reap(&r, &job, 1);
		ck_assert_int_eq(job.rc, -EINVAL);
	}
	job = job_of(&r, WB_LANE_PACK, &good, 1, ARENA_BYTES - 100);
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), -EINVAL);
	job = job_of(&r, WB_LANE_PACK, &good, 1, 0);
	job.wire = &good;
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), -EINVAL);
	/* and the lane goes on */
	job = job_of(&r, WB_LANE_PACK, &good, 1, 0);
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	reap(&r, &job, 1);
	ck_assert_int_eq(job.rc, 0);
	stop(&r);
}
END_TEST

/* Bytes of a box are distinct: one that visits some again could keep the lane for years. */
START_TEST(remote_box_without_end_is_einval)
{
	struct wbk_box good, b;
	struct wb_lane_job job;
	struct rig r;

	start(&r, _i, 0);
	boxes(&good, 1, 100);
	for (int i = 0; i < 3; i++) {
		b = good;
		if (i < 2)
			b.n_row = b.n_col = UINT32_MAX, b.row_stride = b.col_stride = 0;
		else
			b.repeat = UINT32_MAX, b.repeat_stride = 0;
		/* The wire bounds what is packed, nothing else bounds a sum. */
		job = job_of(&r, i < 2 ? WB_LANE_SUM : WB_LANE_ASSEMBLE, &b, 1, 0);
		ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
		reap(&r, &job, 1);
		ck_assert_int_eq(job.rc, -EINVAL);
	}
	/* Nothing to do, wherever it says it lies. */
	b = good;
	b.n_row = 0;
	b.mem_off = b.wire_off = UINT64_MAX;
	job = job_of(&r, WB_LANE_PACK, &b, 1, 0);
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	reap(&r, &job, 1);
	ck_assert_int_eq(job.rc, 0);
	stop(&r);
}
END_TEST

START_TEST(jobs_of_a_dead_worker_end_with_epipe_after_abort)
{
	struct wbk_box b;
	struct wb_lane_job job[8];
	struct rig r;

	start(&r, PROCESS, 0);
	boxes(&b, 1, 100);
	job[0] = job_of(&r, WB_LANE_PACK, &b, 1, 0);
	ck_assert_int_eq(wb_lane_submit(r.lane, &job[0]), 0);
	reap(&r, job, 1);
	ck_assert_int_eq(job[0].rc, 0);
	kill(r.pid, SIGKILL);
	waitpid(r.pid, NULL, 0);
	r.pid = 0;
	for (int i = 0; i < 5; i++) {
		job[i] = job_of(&r, WB_LANE_PACK, &b, 1, 0);
		ck_assert_int_eq(wb_lane_submit(r.lane, &job[i]), 0);
	}
	ck_assert_int_eq(wb_lane_reap(r.lane, job, 8), 0);
	wb_lane_abort(r.lane);
	ck_assert_int_eq(wb_lane_submit(r.lane, &job[0]), -EPIPE);
	reap(&r, job, 2);
	reap(&r, job + 2, 3);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(job[i].rc, -EPIPE);
	ck_assert_int_eq(wb_lane_reap(r.lane, job, 8), 0);
	stop(&r);
}
END_TEST

START_TEST(aborted_host_jobs_are_all_reaped)
{
	struct wbk_box b[2];
	struct wb_lane_job job[40];
	struct rig r;

	start(&r, HOST, 0);
	boxes(b, 2, 100000);
	for (int i = 0; i < 40; i++) {
		job[i] = job_of(&r, WB_LANE_SUM, b, 2, 0);
		ck_assert_int_eq(wb_lane_submit(r.lane, &job[i]), 0);
	}
	wb_lane_abort(r.lane);
	reap(&r, job, 40);
	for (int i = 0; i < 40; i++)
		ck_assert(!job[i].rc || job[i].rc == -ECANCELED);
	stop(&r);
}
END_TEST

START_TEST(rings_that_make_no_sense_end_either_side)
{
	struct wbk_box b;
	struct wb_lane_job job;
	struct wb_lane_worker *w;
	struct wb_lane_shm *shm;
	struct rig r;

	start(&r, PROCESS, 0);
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED, r.fds.shared, 0);
	ck_assert_ptr_ne(shm, MAP_FAILED);
	boxes(&b, 1, 100);
	kill(r.pid, SIGKILL);
	waitpid(r.pid, NULL, 0);
	r.pid = 0;
	job = job_of(&r, WB_LANE_PACK, &b, 1, 0);
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	atomic_store(&shm->done, 2); /* one was submitted */
	wb_lane_reap(r.lane, &job, 1);
	ck_assert_int_eq(job.rc, -EPIPE);
	atomic_store(&shm->done, 0);
	atomic_store(&shm->submitted, 1000);
	w = open_worker(&r, true);
	ck_assert_int_eq(wb_lane_worker_run(w), -EPROTO);
	wb_lane_worker_close(w);
	/* A count of boxes beyond the entry. */
	atomic_store(&shm->submitted, 1);
	shm->entry[0].n_box = WB_LANE_SHM_BOXES + 1;
	w = open_worker(&r, true);
	ck_assert_int_eq(pthread_create(&r.thread, NULL, run_worker, w), 0);
	while (!atomic_load(&shm->done))
		poll(&(struct pollfd){.fd = r.fds.complete, .events = POLLIN}, 1, 1000);
	ck_assert_int_eq(shm->entry[0].rc, -EINVAL);
	wb_lane_worker_stop(w);
	pthread_join(r.thread, NULL);
	wb_lane_worker_close(w);
	munmap(shm, sizeof(*shm));
	stop(&r);
}
END_TEST

START_TEST(foreign_rings_are_refused)
{
	struct wb_lane_worker_opts o = {.fds = {-1, -1, -1}};
	struct wb_lane_worker *w = (void *)1;
	struct wb_err err = {0};
	int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(wb_lane_worker_open(&o, &w, &err), -EPERM);
	o.fds.shared = fd;
	ck_assert_int_eq(wb_lane_worker_open(&o, &w, &err), -EPERM);
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
	ck_assert_int_eq(wb_lane_worker_open(&o, &w, &err), -EPROTO);
	ck_assert_int_eq(ftruncate(fd, sizeof(struct wb_lane_shm)), 0);
	ck_assert_int_eq(wb_lane_worker_open(&o, &w, &err), -EPROTO);
	ck_assert_ptr_eq(w, (void *)1);
	close(fd);
}
END_TEST

START_TEST(failed_allocation_leaves_nothing)
{
	struct wb_lane_opts o = {.depth = 8};
	struct wb_lane_remote_fds fds;

	for (uint64_t n = 1;; n++) {
		struct wb_lane *l = NULL;
		int rc;

		wb_mem_fail_at(n);
		if (_i == INLINE)
			rc = wb_lane_create_inline(&o, &l, NULL);
		else if (_i == HOST)
			rc = wb_lane_create_host(&o, &l, NULL);
		else
			rc = wb_lane_create_remote(&o, NULL, 0, &l, &fds, NULL);
		if (!wb_mem_failed()) {
			wb_mem_fail_at(0);
			ck_assert_int_eq(rc, 0);
			wb_lane_destroy(l);
			break;
		}
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert_ptr_null(l);
	}
	o.depth = 1 << 20;
	ck_assert_int_eq(wb_lane_create_inline(&o, &(struct wb_lane *){NULL}, NULL), -EINVAL);
	wb_lane_destroy(NULL);
	wb_lane_worker_close(NULL);
}
END_TEST

static bool is_readable(const struct wb_lane *l)
{
	struct pollfd p = {.fd = wb_lane_fd(l), .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* An agent has a lane a worker, and looks at all of them whenever anything wakes it. */
START_TEST(an_idle_lane_is_not_read_and_a_signal_that_came_late_is_taken)
{
	struct wb_lane_job job, done;
	const uint64_t one = 1;
	struct wbk_box b[2];
	struct rig r;

	start(&r, _i, 4);
	boxes(b, 2, 100);
	job = job_of(&r, WB_LANE_PACK, b, 2, 0);
	ck_assert_int_eq(write(wb_lane_fd(r.lane), &one, sizeof(one)), sizeof(one));
	ck_assert_int_eq(wb_lane_reap(r.lane, &done, 1), 0);
	ck_assert(is_readable(r.lane));
	wb_lane_fired(r.lane);
	ck_assert(!is_readable(r.lane));
	/* What is there to reap is not lost by that. */
	ck_assert_int_eq(wb_lane_submit(r.lane, &job), 0);
	while (!is_readable(r.lane))
		poll(NULL, 0, 1);
	wb_lane_fired(r.lane);
	ck_assert_int_eq(wb_lane_reap(r.lane, &done, 1), 1);
	ck_assert_int_eq(wb_lane_reap(r.lane, &done, 1), 0);
	stop(&r);
}
END_TEST

/* What boxes cover of the wire, by rows of n_row bytes. */
static const struct {
	uint64_t at[5], bytes[5]; /* of each box; the list ends with 0 bytes */
	struct wb__lane_span want[5];
} covers[] = {
	{{0}, {0}, {{0, 0}}},
	{{7}, {5}, {{7, 12}}},
	{{0, 8, 16}, {8, 8, 8}, {{0, 24}}}, /* neighbours */
	{{0, 9, 16}, {8, 7, 8}, {{0, 8}, {9, 24}}},
	{{16, 8, 0}, {8, 7, 8}, {{0, 15}, {16, 24}}}, /* in any order */
	{{0, 2, 4, 30}, {20, 4, 30, 1}, {{0, 34}}}, /* within each other */
	{{5, 5, 1, 40}, {3, 3, 2, 1}, {{1, 3}, {5, 8}, {40, 41}}},
};

START_TEST(spans_are_what_boxes_cover)
{
	struct wb__lane_span is[6];
	struct wbk_box b[6] = {{0}};
	uint32_t n = 0, n_is, n_want = 0;

	for (; n < 5 && covers[_i].bytes[n]; n++)
		b[n + 1] = (struct wbk_box){.wire_off = covers[_i].at[n],
			.n_row = (uint32_t)covers[_i].bytes[n],
			.n_col = 1,
			.wire_elem = 1};
	while (n_want < 5 && covers[_i].want[n_want].end)
		n_want++;
	n_is = wb__lane_spans(b, n + 1, is); /* the first is empty */
	ck_assert_uint_eq(n_is, n_want);
	ck_assert(!n_is || !memcmp(is, covers[_i].want, n_is * sizeof(*is)));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane");
	TCase *tc = tcase_create("lanes");

	tcase_add_loop_test(tc, what_is_assembled_is_packed_again_with_the_same_sum, 0, KINDS);
	tcase_add_loop_test(tc, full_is_eagain_and_order_is_kept, 0, KINDS);
	tcase_add_loop_test(
		tc, remote_box_out_of_bounds_is_einval_and_touches_nothing, THREAD, KINDS);
	tcase_add_loop_test(tc, remote_box_without_end_is_einval, THREAD, KINDS);
	tcase_add_test(tc, jobs_of_a_dead_worker_end_with_epipe_after_abort);
	tcase_add_test(tc, aborted_host_jobs_are_all_reaped);
	tcase_add_test(tc, rings_that_make_no_sense_end_either_side);
	tcase_add_test(tc, foreign_rings_are_refused);
	tcase_add_loop_test(tc, failed_allocation_leaves_nothing, 0, THREAD + 1);
	tcase_add_loop_test(
		tc, an_idle_lane_is_not_read_and_a_signal_that_came_late_is_taken, HOST, KINDS);
	tcase_add_loop_test(tc, spans_are_what_boxes_cover, 0, (int)WB_ARRAY_SIZE(covers));
	suite_add_tcase(suite, tc);
	return fx_run(suite);
}
