/* SPDX-License-Identifier: Apache-2.0 */
/* Between the question for a chunk and its arrival nothing of ours takes memory or a lock, on any
 * thread.  This program's calls of the functions below come here first (--wrap, Makefile); those of
 * shared libraries do not: what OpenSSL or a driver does is theirs. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_far.h"
#include "tests/common/fx_job.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)
#define WARM 3 /* rounds in which things are made that stay */
#define ROUNDS 40

/* ---- what is counted ----------------------------------------------------------------------------
 */

static _Atomic bool is_counting;
static _Atomic uint32_t n_memory, n_lock;

static void begin_to_count(void)
{
	atomic_store(&n_memory, 0);
	atomic_store(&n_lock, 0);
	atomic_store(&is_counting, true);
}

static void note(_Atomic uint32_t *n)
{
	if (atomic_load(&is_counting))
		atomic_fetch_add(n, 1);
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_reallocarray(void *p, size_t n, size_t bytes);
int __real_pthread_mutex_lock(pthread_mutex_t *m);

void *__wrap_malloc(size_t bytes)
{
	note(&n_memory);
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	note(&n_memory);
	return __real_calloc(n, bytes);
}

void *__wrap_reallocarray(void *p, size_t n, size_t bytes)
{
	note(&n_memory);
	return __real_reallocarray(p, n, bytes);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	note(&n_lock);
	return __real_pthread_mutex_lock(m);
}

/* ---- chunks -------------------------------------------------------------------------------------
 */

static _Atomic uint64_t seen;

static void look(void *ctx, const void *data, size_t bytes, uint64_t off)
{
	(void)ctx;
	(void)data;
	(void)off;
	atomic_fetch_add(&seen, bytes);
}

static void end(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES])
{
	(void)ctx;
	out[0] = 1;
}

/* Large ones in few pieces, small ones, and one in many pieces, which goes by way of slabs where
 * pieces are too short for a request of their own. */
static const struct {
	uint32_t bytes, ranges;
} shapes[] = {{8 * MIB, 1}, {100, 1}, {64 << 10, 3}, {MIB + 11, 500}};
#define JOBS WB_ARRAY_SIZE(shapes)
#define SPACE (9 * MIB) /* of each, since all are under way together */

/* Ask for all, answer as they come, wait for all.  Nothing is asserted on the way: that takes
 * memory. */
static int move_all(struct fx_xport *f, struct fx_job *const *jobs)
{
	int at = 0, rc = 0;

	f->src.n_ev = f->dst.n_ev = 0;
	memset(f->src.count, 0, sizeof(f->src.count));
	memset(f->dst.count, 0, sizeof(f->dst.count));
	for (uint32_t i = 0; i < JOBS; i++) {
		struct wb_xport_grant g = fx_grant_of(jobs[i], i, NULL);

		g.observe = look;
		rc = rc ? rc : wb_xport_grant(f->dst.x, f->conn, &g);
	}
	for (uint32_t i = 0; i < JOBS && !rc; i++) {
		struct wb_xport_write w;
		struct wb_xport_event *e;

		fx_wait(f, &f->src, WB_XP_GRANT, (int)i + 1);
		e = fx_take(&f->src, WB_XP_GRANT, &at);
		w = fx_write_of(jobs[e->chunk.chunk], e->grant, NULL);
		w.observe = look;
		w.trailer = end;
		rc = wb_xport_write(f->src.x, e->conn, &w);
	}
	if (rc)
		return rc;
	fx_wait(f, &f->dst, WB_XP_ARRIVED, JOBS);
	fx_wait(f, &f->src, WB_XP_WRITE_DONE, JOBS);
	return 0;
}

START_TEST(a_chunk_takes_no_memory_and_no_lock)
{
	struct fx_job *jobs[JOBS];
	struct fx_xport f;
	int rc = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.mem_bytes = JOBS * SPACE});
	fx_join(&f);
	for (uint32_t i = 0; i < JOBS; i++)
		jobs[i] = fx_job_make_at(&f, i * SPACE, shapes[i].bytes, shapes[i].ranges, i);
	for (int i = 0; i < WARM; i++)
		ck_assert_int_eq(move_all(&f, jobs), 0);
	atomic_store(&seen, 0);
	begin_to_count();
	for (int i = 0; i < ROUNDS && !rc; i++)
		rc = move_all(&f, jobs);
	atomic_store(&is_counting, false);
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_ge(seen, 2ull * ROUNDS * 8 * MIB);
	ck_assert_uint_eq(n_memory, 0);
	ck_assert_uint_eq(n_lock, 0);
	for (uint32_t i = 0; i < JOBS; i++) {
		ck_assert(fx_job_arrived(jobs[i]));
		fx_job_free(jobs[i]);
	}
	fx_close(&f);
}
END_TEST

/* Straight from one to another, and where a device cannot put it, by the grant's copy function. */
static const enum wb_xport_direction landings[] = {WB_XPORT_LANDING, WB_XPORT_SOURCE};

START_TEST(a_chunk_of_a_gpu_takes_no_memory_and_no_lock)
{
	struct wb_err err = {0};
	struct wb_xport_region r;
	struct fx_far from, to;
	struct fx_xport f;
	uint32_t a, b;
	char says[400];
	int rc = 0;

	fx_open(&f, "verbs", &(struct fx_opts){0});
	fx_join(&f);
	fx_far_make(&from, 4 * MIB);
	fx_far_make(&to, 4 * MIB);
	fx_fill(from.see, 4 * MIB, 3);
	r = fx_far_region(&from, WB_XPORT_SOURCE);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &a, &err), 0);
	r = fx_far_region(&to, landings[_i]);
	ck_assert_int_eq(wb_xport_region_add(f.dst.x, &r, &b, &err), 0);
	ck_assert_int_eq(fx_far_path(&f, &f.src, a, says), WB_XPORT_PATH_DMABUF);
	ck_assert_int_eq(fx_far_path(&f, &f.dst, b, says), WB_XPORT_PATH_DMABUF);
	for (int i = 0; i < WARM; i++)
		ck_assert_int_eq(fx_far_move(&f, from.addr, to.addr, 4 * MIB, &to), 0);
	begin_to_count();
	for (int i = 0; i < ROUNDS && !rc; i++)
		rc = fx_far_move(&f, from.addr, to.addr, 4 * MIB, &to);
	atomic_store(&is_counting, false);
	ck_assert_int_eq(rc, 0);
	ck_assert(!memcmp(to.see, from.see, 4 * MIB));
	ck_assert_int_eq(to.puts > 0, landings[_i] == WB_XPORT_SOURCE);
	ck_assert_uint_eq(n_memory, 0);
	ck_assert_uint_eq(n_lock, 0);
	fx_close(&f);
	fx_far_free(&from);
	fx_far_free(&to);
}
END_TEST

/* Else none of the above could fail. */
START_TEST(what_is_taken_is_counted)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	struct fx_xport f;

	begin_to_count();
	fx_open(&f, "tcp", &(struct fx_opts){0}); /* takes memory by way of base/mem.h */
	pthread_mutex_lock(&m);
	pthread_mutex_unlock(&m);
	atomic_store(&is_counting, false);
	ck_assert_uint_gt(n_memory, 0);
	ck_assert_uint_gt(n_lock, 0);
	fx_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_path");
	TCase *c = tcase_create("xport_path");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, a_chunk_takes_no_memory_and_no_lock, 0, FX_REAL_KINDS);
	tcase_add_loop_test(
		c, a_chunk_of_a_gpu_takes_no_memory_and_no_lock, 0, (int)WB_ARRAY_SIZE(landings));
	tcase_add_test(c, what_is_taken_is_counted);
	return fx_run(s);
}
