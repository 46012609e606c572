/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that block until an update comes, aligned by call, and children that must not poll. */
#include "base/clock.h"
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
#define S 1000000000ull

struct idler {
	struct fx_agent a; /* played by the test's thread */
	pthread_t thread;
	unsigned n_poll; /* polls before the calls */
	uint64_t timeout[3]; /* of the calls, 0 ends */
	int rc[3];
	pthread_barrier_t *ready; /* before the calls */
};

static void *idler_main(void *arg)
{
	struct idler *x = arg;
	struct wb_client_opts o = fx_opts(&x->a, WB_CLIENT_ROLLOUT);
	struct wb_client *c = fx_worker(&o);
	struct wb_client_update u;
	struct wb_error err;

	for (unsigned i = 0; i < x->n_poll; i++)
		if (wb_client_poll_requests(c, NULL, &u, &err))
			abort();
	if (x->ready)
		pthread_barrier_wait(x->ready);
	for (int i = 0; i < 3 && x->timeout[i]; i++)
		x->rc[i] = wb_client_update_wait(c, x->timeout[i], NULL, &u, &err);
	wb_client_close(c, 0, NULL);
	return NULL;
}

static void idler_start(struct idler *x)
{
	fx_agent_start(&x->a);
	ck_assert(!pthread_create(&x->thread, NULL, idler_main, x));
	fx_agent_up(&x->a);
}

static void idler_stop(struct idler *x)
{
	fx_agent_wait_closed(&x->a);
	pthread_join(x->thread, NULL);
	fx_agent_stop(&x->a);
}

static void wait_count(struct idler *x, uint32_t count)
{
	while (wb_poll_count(wb_poll_load(&x->a.page->word)) != count)
		sched_yield();
}

/* Promise at both, raise both to the greater, begin and end both. */
static void update_both(struct idler *x, struct idler *y, uint32_t target_wanted)
{
	struct wb_msg_app_wake wake = {0};
	struct idler *both[] = {x, y};
	uint32_t p = wb_poll_promise(&x->a.page->word), q = wb_poll_promise(&y->a.page->word);
	uint32_t target = wb_poll_later(p, q) ? p : q;

	ck_assert_uint_eq(target, target_wanted);
	for (int i = 0; i < 2; i++)
		fx_agent_send(&both[i]->a, WBP_APP_WAKE, &wake);
	for (int i = 0; i < 2; i++)
		fx_agent_go(&both[i]->a, target);
	for (int i = 0; i < 2; i++) {
		while (fx_agent_expect(&both[i]->a, WBP_APP_PARKED)->app_parked.count != target)
			;
		fx_agent_begin(&both[i]->a, 1);
	}
	for (int i = 0; i < 2; i++) {
		fx_agent_expect(&both[i]->a, WBP_APP_BEGUN);
		fx_agent_end(&both[i]->a, 1, WB_APP_END_COMMITTED, "");
		fx_agent_expect(&both[i]->a, WBP_APP_RESUMED);
	}
}

START_TEST(blocking_update_is_one_call_on_all_workers)
{
	pthread_barrier_t late;
	struct idler x = {.n_poll = 5, .timeout = {WB_FOREVER}};
	struct idler y = {.n_poll = 5, .timeout = {5 * S}, .ready = &late};

	pthread_barrier_init(&late, NULL, 2);
	idler_start(&x);
	idler_start(&y);
	wait_count(&x, 6); /* it waits inside update */
	wait_count(&y, 5); /* it is on its way there */
	pthread_t t;
	ck_assert(
		!pthread_create(&t, NULL, (void *(*)(void *))(void *)pthread_barrier_wait, &late));
	update_both(&x, &y, 7);
	pthread_join(t, NULL);
	idler_stop(&x);
	idler_stop(&y);
	ck_assert_int_eq(x.rc[0], 1);
	ck_assert_int_eq(y.rc[0], 1);
}
END_TEST

START_TEST(blocking_update_stays_aligned_when_only_one_times_out)
{
	struct idler x = {.timeout = {10 * MS, WB_FOREVER}};
	struct idler y = {.timeout = {5 * S, WB_FOREVER}};

	idler_start(&x);
	idler_start(&y);
	wait_count(&x, 3); /* timed out, and in its second call */
	wait_count(&y, 1); /* in its first */
	update_both(&x, &y, 4);
	idler_stop(&x);
	idler_stop(&y);
	/* Both saw nothing in the first call and the update in the second. */
	ck_assert_int_eq(x.rc[0], 0);
	ck_assert_int_eq(y.rc[0], 0);
	ck_assert_int_eq(x.rc[1], 1);
	ck_assert_int_eq(y.rc[1], 1);
}
END_TEST

static uint32_t count_seen;

static void script_counts(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_wait_closed(a);
	count_seen = wb_poll_count(wb_poll_load(&a->page->word));
}

START_TEST(forked_child_does_not_poll_for_its_parent)
{
	struct fx_script s;
	struct wb_client_opts o;
	struct wb_client *c;
	pid_t pid;
	int st;

	fx_script_start(&s, script_counts);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_poll(c), 0);
	pid = fork();
	if (!pid) {
		for (int i = 0; i < 100; i++)
			if (wb_client_poll(c) != -EPERM)
				_exit(1);
		wb_client_close(c, 0, NULL);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	ck_assert_int_eq(wb_client_poll(c), 0);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
	ck_assert_uint_eq(count_seen, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client_wait");
	TCase *t = tcase_create("client_wait");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, blocking_update_is_one_call_on_all_workers);
	tcase_add_test(t, blocking_update_stays_aligned_when_only_one_times_out);
	tcase_add_test(t, forked_child_does_not_poll_for_its_parent);
	suite_add_tcase(s, t);
	return fx_run(s);
}
