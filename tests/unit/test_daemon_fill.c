/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of snapshots and staging areas are taken beside the loop, which turns meanwhile; what
 * cannot be taken is said in a sentence. */
#include "base/base.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/area.h"
#include "daemon/env.h"
#include "daemon/fill.h"
#include "net/loop.h"
#include "tests/common/fx_check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define MUCH (600 * MIB) /* three pieces */
static const struct wb_object_id object = {.uid = 0x0123456789abcdef};

/* In place of the C library's: it takes as long as the test wants, and on the thread of the loop,
 * which would wait for itself then, it fails. */
static sem_t gate;
static _Atomic int n_call, answer;
static pthread_t loops;

int posix_fallocate(int fd, off_t off, off_t bytes)
{
	(void)fd;
	(void)off;
	atomic_fetch_add(&n_call, 1);
	if (pthread_equal(pthread_self(), loops) && bytes > (off_t)(16 * MIB))
		return EDEADLK;
	while (sem_wait(&gate))
		;
	return atomic_load(&answer);
}

static struct wb_loop *loop;
static int n_tick;

static void tick(void *cookie)
{
	(void)cookie;
	n_tick++;
}

static void set_up(void)
{
	wb_log_level_max = -1;
	loops = pthread_self();
	ck_assert_int_eq(sem_init(&gate, 0, 0), 0);
	atomic_store(&n_call, 0);
	atomic_store(&answer, 0);
	ck_assert_int_eq(wb_loop_create(&loop, NULL), 0);
}

static void tear_down(void)
{
	wb_loop_destroy(loop);
	sem_destroy(&gate);
}

/* The loop turns: a timer of it runs @n times. */
static void turn(int n)
{
	struct wb_timer *t;

	n_tick = 0;
	ck_assert_int_eq(wb_timer_create(loop, tick, NULL, &t), 0);
	wb_timer_start(t, WB_NS_PER_MS, WB_NS_PER_MS);
	while (n_tick < n)
		wb_loop_run_once(loop, true);
	wb_timer_destroy(t);
}

static void open_gate(void)
{
	for (int i = 0; i < 8; i++)
		sem_post(&gate);
}

START_TEST(the_loop_turns_while_pages_are_taken)
{
	struct wb__fill *f = NULL;
	int fd = memfd_create("x", MFD_CLOEXEC), rc;

	ck_assert_int_eq(wb__fill(loop, &f, fd, 0, MUCH), -EINPROGRESS);
	turn(20);
	ck_assert_int_eq(wb__fill(loop, &f, fd, 0, MUCH), -EINPROGRESS);
	close(fd); /* it has its own */
	atomic_store(&answer, _i ? ENOSPC : 0);
	open_gate();
	while ((rc = wb__fill(loop, &f, -1, 0, MUCH)) == -EINPROGRESS)
		turn(1);
	ck_assert_int_eq(rc, _i ? -ENOSPC : 0);
	ck_assert_ptr_null(f);
	ck_assert_int_eq(atomic_load(&n_call), _i ? 1 : 3);
}
END_TEST

START_TEST(what_nobody_wants_any_more_ends_with_its_piece)
{
	struct wb__fill *f = NULL;
	int fd = memfd_create("x", MFD_CLOEXEC);

	ck_assert_int_eq(wb__fill(loop, &f, fd, 0, MUCH), -EINPROGRESS);
	while (!atomic_load(&n_call))
		turn(1);
	wb__fill_drop(f);
	open_gate();
	wb_loop_destroy(loop); /* waits for the thread */
	ck_assert_int_eq(atomic_load(&n_call), 1);
	ck_assert_int_eq(wb_loop_create(&loop, NULL), 0);
	close(fd);
}
END_TEST

START_TEST(another_range_is_not_the_one_that_was_taken)
{
	struct wb__fill *f = NULL;
	int fd = memfd_create("x", MFD_CLOEXEC);

	ck_assert_int_eq(wb__fill(loop, &f, fd, 0, MUCH), -EINPROGRESS);
	open_gate();
	turn(20);
	ck_assert_int_eq(wb__fill(loop, &f, fd, 0, MUCH + MIB), -EINPROGRESS);
	wb__fill_drop(f);
	open_gate();
	close(fd);
}
END_TEST

START_TEST(an_agent_waits_for_the_pages_of_snapshots_and_names_what_is_missing)
{
	struct wb_xport_rail rail = {.addr = "127.0.0.1:0"};
	struct wb_xport_opts xo = {.name = "a", .rail = &rail, .n_rail = 1};
	struct wb__agent a = {.o = {.name = "a", .socket = "none", .n_served = 1, .n_rail = 1}};
	struct wb_err err = {0};
	int rc;

	a.loop = loop;
	ck_assert_int_eq(wb_xport_open("tcp", &xo, &a.xport, &err), 0);
	ck_assert_int_eq(wb__env_start(&a, &a.env, &err), 0);
	ck_assert_int_eq(wb__env_arena_use(a.env, 0, MIB, &object, &err), 0);
	ck_assert_int_eq(wb__env_images(a.env, 0, MUCH, &object, &err), -EINPROGRESS);
	turn(20);
	ck_assert_uint_eq(wb__env_images_used(a.env, 0), 0);
	atomic_store(&answer, _i ? ENOMEM : 0);
	open_gate();
	while ((rc = wb__env_images(a.env, 0, MUCH, &object, &err)) == -EINPROGRESS)
		turn(1);
	ck_assert_int_eq(rc, _i ? -ENOMEM : 0);
	if (_i)
		ck_assert_str_eq(err.msg,
			"no memory for snapshots of 629145600 bytes: Cannot allocate memory");
	ck_assert_uint_eq(wb__env_images_used(a.env, 0), _i ? 0 : MUCH);
	wb__env_stop(a.env);
}
END_TEST

START_TEST(a_staging_area_is_there_when_its_pages_are)
{
	uint64_t sizes[] = {MUCH, 4096};
	const struct wb__area_in in = {
		.loop = loop, .mem_bytes = sizes, .n_mem = 2, .used = MUCH + 4096};
	struct wb__worker_area *area = NULL;
	struct wb__area_raw raw = {0};
	struct wb_err err = {0};
	int rc;

	ck_assert_int_eq(wb__worker_area_create(&in, &raw, &area, &err), -EINPROGRESS);
	turn(20);
	ck_assert_ptr_null(area);
	atomic_store(&answer, _i ? ENOSPC : 0);
	open_gate();
	while ((rc = wb__worker_area_create(&in, &raw, &area, &err)) == -EINPROGRESS)
		turn(1);
	ck_assert_int_eq(rc, _i ? -ENOSPC : 0);
	ck_assert(!raw.is_made && !raw.fill);
	if (_i)
		ck_assert_ptr_nonnull(strstr(err.msg, "no memory for a staging area of"));
	else
		ck_assert(area->is_new);
	wb__worker_area_destroy(area);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fill");
	TCase *t = tcase_create("fill");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, the_loop_turns_while_pages_are_taken, 0, 2);
	tcase_add_test(t, what_nobody_wants_any_more_ends_with_its_piece);
	tcase_add_test(t, another_range_is_not_the_one_that_was_taken);
	tcase_add_loop_test(
		t, an_agent_waits_for_the_pages_of_snapshots_and_names_what_is_missing, 0, 2);
	tcase_add_loop_test(t, a_staging_area_is_there_when_its_pages_are, 0, 2);
	return fx_run(s);
}
