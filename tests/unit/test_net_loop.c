/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "net/internal.h"
#include "net/loop.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_loop.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void count(void *cookie)
{
	++*(int *)cookie;
}

static int seen[4], n_seen;
static void note(void *cookie)
{
	seen[n_seen++] = *(int *)cookie;
}

START_TEST(deferred_calls_run_in_order_and_never_inside)
{
	int one = 1, two = 2;

	n_seen = 0;
	ck_assert_int_eq(wb_loop_defer(fx_loop, note, &one), 0);
	ck_assert_int_eq(wb_loop_defer(fx_loop, note, &two), 0);
	ck_assert_int_eq(n_seen, 0);
	wb_loop_run(fx_loop);
	ck_assert(n_seen == 2 && seen[0] == 1 && seen[1] == 2);
}
END_TEST

static void again(void *cookie)
{
	int *n = cookie;

	if (++*n < 5)
		wb_loop_defer(fx_loop, again, n);
}

START_TEST(a_deferred_call_may_defer_the_next)
{
	int n = 0;

	ck_assert_int_eq(wb_loop_defer(fx_loop, again, &n), 0);
	wb_loop_run_once(fx_loop, false);
	ck_assert_int_eq(n, 1);
	wb_loop_run(fx_loop);
	ck_assert_int_eq(n, 5);
}
END_TEST

static struct wb_timer *self_timer;
static void destroy_self(void *cookie)
{
	++*(int *)cookie;
	wb_timer_destroy(self_timer);
}

START_TEST(timers_fire_repeat_stop_and_may_destroy_themselves)
{
	int once = 0, often = 0, never = 0;
	struct wb_timer *a, *b;

	wb_timer_create(fx_loop, destroy_self, &once, &self_timer);
	wb_timer_create(fx_loop, count, &often, &a);
	wb_timer_create(fx_loop, count, &never, &b);
	wb_timer_start(self_timer, 1, 0);
	wb_timer_start(a, WB_NS_PER_MS, WB_NS_PER_MS);
	wb_timer_start(b, WB_NS_PER_MS, 0);
	ck_assert(wb_timer_is_running(b));
	wb_timer_stop(b);
	ck_assert(!wb_timer_is_running(b));
	fx_loop_until(&often, 3);
	ck_assert_int_eq(once, 1);
	ck_assert_int_eq(never, 0);
	wb_timer_destroy(a);
	wb_timer_destroy(b);
	wb_timer_destroy(NULL);
}
END_TEST

struct ev {
	int fd, n;
	uint64_t sum;
};
static void eventfd_fired(void *cookie, int events)
{
	struct ev *e = cookie;

	ck_assert_int_eq(events, WB_READABLE);
	eventfd_t n = 0;

	ck_assert_int_eq(eventfd_read(e->fd, &n), 0);
	e->sum += n;
	e->n++;
}

START_TEST(an_eventfd_wakes_the_loop)
{
	struct ev e = {eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), 0, 0};
	struct wb_watch *w;

	ck_assert_int_eq(wb_watch_create(fx_loop, e.fd, WB_READABLE, eventfd_fired, &e, &w), 0);
	ck_assert_int_eq(eventfd_write(e.fd, 1), 0);
	ck_assert_int_eq(eventfd_write(e.fd, 1), 0);
	fx_loop_until(&e.n, 1);
	ck_assert_uint_eq(e.sum, 2);
	wb_watch_destroy(w);
	close(e.fd);
}
END_TEST

struct answer {
	int fd;
	int is_read, is_due;
	struct wb_timer *due;
};

static void busy_for_long(void *cookie)
{
	const struct answer *a = cookie;
	uint64_t end = wb_now_ns(&wb_clock_real) + 100 * WB_NS_PER_MS;

	wb_timer_start(a->due, 10 * WB_NS_PER_MS, 0);
	ck_assert_int_eq(write(a->fd, &(uint64_t){1}, 8), 8);
	while (wb_now_ns(&wb_clock_real) < end)
		;
}

static void answer_read(void *cookie, int events)
{
	struct answer *a = cookie;
	uint64_t n;

	(void)events;
	ck_assert_int_eq(read(a->fd, &n, 8), 8);
	a->is_read = 1;
}

static void answer_due(void *cookie)
{
	struct answer *a = cookie;

	a->is_due = 1;
	ck_assert(a->is_read);
}

/* Whether the process was stopped or the loop busy: the answer had come in time. */
START_TEST(a_deadline_is_judged_after_what_came_while_nobody_looked)
{
	struct answer a = {.fd = eventfd(0, EFD_NONBLOCK)};
	struct wb_timer *busy;
	struct wb_watch *w;

	ck_assert_int_eq(wb_watch_create(fx_loop, a.fd, WB_READABLE, answer_read, &a, &w), 0);
	wb_timer_create(fx_loop, busy_for_long, &a, &busy);
	wb_timer_create(fx_loop, answer_due, &a, &a.due);
	wb_timer_start(busy, WB_NS_PER_MS, 0);
	fx_loop_until(&a.is_due, 1);
	wb_watch_destroy(w);
	wb_timer_destroy(busy);
	wb_timer_destroy(a.due);
	close(a.fd);
}
END_TEST

struct slices {
	struct ev ev;
	struct wb_timer *timer[2];
	int n, n_timers; /* each timer starts the next one */
};

static void slice(void *cookie)
{
	struct slices *s = cookie;

	ck_assert_msg(++s->n < 100, "work goes on, and nobody looks what has come");
	if (s->n == 10)
		ck_assert_int_eq(eventfd_write(s->ev.fd, 1), 0);
	wb_timer_start(s->timer[s->n % s->n_timers], 0, 0);
}

/* Work without an end is done in slices, so that others have their turn in between. */
START_TEST(a_timer_that_is_started_at_once_lets_the_loop_look_first)
{
	struct slices s = {.ev.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .n_timers = 1 + _i};
	struct wb_watch *w;

	ck_assert_int_eq(
		wb_watch_create(fx_loop, s.ev.fd, WB_READABLE, eventfd_fired, &s.ev, &w), 0);
	for (int i = 0; i < s.n_timers; i++)
		wb_timer_create(fx_loop, slice, &s, &s.timer[i]);
	wb_timer_start(s.timer[0], 0, 0);
	fx_loop_until(&s.ev.n, 1);
	ck_assert(wb_timer_is_running(s.timer[s.n % s.n_timers]));
	wb_watch_destroy(w);
	for (int i = 0; i < s.n_timers; i++)
		wb_timer_destroy(s.timer[i]);
	close(s.ev.fd);
}
END_TEST

static void slow(void *cookie)
{
	uint64_t end = wb_now_ns(&wb_clock_real) + 5 * WB_NS_PER_MS;

	while (wb_now_ns(&wb_clock_real) < end)
		;
	count(cookie);
}

START_TEST(the_lag_is_the_time_of_the_callbacks)
{
	struct wb_loop_lag lag;
	struct wb_timer *t;
	int n = 0;

	wb_timer_create(fx_loop, slow, &n, &t);
	/* What comes before the first turn belongs to none, and a loop without anything to wait for
	 * makes no turn. */
	wb_timer_start(t, 20 * WB_NS_PER_S, 0);
	wb_loop_run_once(fx_loop, false);
	wb_timer_start(t, WB_NS_PER_MS, 0);
	fx_loop_until(&n, 1);
	wb_timer_start(t, 20 * WB_NS_PER_MS, 0);
	wb_loop_run_once(fx_loop, false);
	wb_loop_lag(fx_loop, &lag);
	ck_assert_uint_ge(lag.busy_max_ns, 5 * WB_NS_PER_MS);
	ck_assert_uint_ge(lag.busy_ns, lag.busy_max_ns);
	wb_loop_lag(fx_loop, &lag);
	ck_assert_uint_eq(lag.busy_max_ns, 0);
	wb_timer_destroy(t);
}
END_TEST

struct job {
	int work, done;
};
static void job_work(void *cookie)
{
	((struct job *)cookie)->work = 1;
}
static void job_done(void *cookie)
{
	struct job *j = cookie;

	ck_assert_int_eq(j->work, 1);
	j->done = 1;
}

START_TEST(work_runs_on_the_pool_and_signals_arrive)
{
	struct job job = {0, 0};
	struct wb_signal *s;
	int signals = 0;

	ck_assert_int_eq(wb_loop_work(fx_loop, job_work, job_done, &job), 0);
	fx_loop_until(&job.done, 1);
	ck_assert_int_eq(wb_signal_create(fx_loop, SIGUSR1, count, &signals, &s), 0);
	raise(SIGUSR1);
	fx_loop_until(&signals, 1);
	wb_signal_destroy(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net loop");
	TCase *t = tcase_create("loop");

	tcase_add_checked_fixture(t, fx_loop_set_up, fx_loop_tear_down);
	tcase_add_test(t, deferred_calls_run_in_order_and_never_inside);
	tcase_add_test(t, a_deferred_call_may_defer_the_next);
	tcase_add_test(t, timers_fire_repeat_stop_and_may_destroy_themselves);
	tcase_add_test(t, a_deadline_is_judged_after_what_came_while_nobody_looked);
	tcase_add_loop_test(t, a_timer_that_is_started_at_once_lets_the_loop_look_first, 0, 2);
	tcase_add_test(t, an_eventfd_wakes_the_loop);
	tcase_add_test(t, the_lag_is_the_time_of_the_callbacks);
	tcase_add_test(t, work_runs_on_the_pool_and_signals_arrive);
	suite_add_tcase(s, t);
	return fx_run(s);
}
