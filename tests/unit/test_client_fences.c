/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the client library must not believe: an agent that was restarted meanwhile, an end of
 * another update, messages out of place.  The agent is a script in a thread of its own; the two
 * wait for each other at turns.
 */
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#define MS 1000000ull
#define S 1000000000ull

static struct fx_script s;
static pthread_barrier_t turn;

static void take_turns(void)
{
	pthread_barrier_wait(&turn);
}

static struct wb_client *start(void (*script)(struct fx_agent *a))
{
	struct wb_client_opts o;

	pthread_barrier_init(&turn, NULL, 2);
	fx_script_start(&s, script);
	o = fx_opts(&s.a, WB_CLIENT_ROLLOUT);
	return fx_worker(&o);
}

static void stop(struct wb_client *c)
{
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}

/* Without a poll. */
static void wait_until_planned(struct wb_client *c)
{
	struct wb_error err = {0};

	ck_assert_msg(!wb_client_wait_planned(c, 5 * S, NULL, NULL, NULL, &err), "%s", err.msg);
}

static void wait_for_step(struct wb_client *c, int step, uint64_t transfer)
{
	struct wb_client_update u;
	struct wb_error err = {0};

	ck_assert_msg(wb_client_update_step(c, 5 * S, &u, &err) == step, "%s", err.msg);
	ck_assert_uint_eq(u.transfer, transfer);
}

/* Up to its stop for an update that begins. */
static void come_to_before(struct wb_client *c, uint64_t transfer)
{
	while (!wb_client_poll(c))
		;
	wait_for_step(c, WB_CLIENT_STEP_BEFORE, transfer);
}

/* The whole of an update that commits, from BEGIN on. */
static void finish_update(struct wb_client *c, uint64_t transfer)
{
	struct wb_error err = {0};

	wait_for_step(c, WB_CLIENT_STEP_BEFORE, transfer);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	wait_for_step(c, WB_CLIENT_STEP_AFTER, transfer);
	ck_assert_int_eq(wb_client_update_resumed(c, 0, NULL, &err), 0);
}

/* ---- polls while it attaches again ---------------------------------------------------------- */

#define MEANWHILE 5 /* polls between ATTACH and its answer */

static uint32_t attach_count, n_polled;
static bool has_stop;
static int is_asked;

/* The next agent goes on from the count in ATTACH; it may promise a stop before its answer is
 * taken in. */
static void script_attach(struct fx_agent *a)
{
	char name[] = "worker-x";
	struct wb_msg_app_attached m = {7, name, WB_APP_LANE_AGENT};
	uint32_t at;

	fx_agent_up(a);
	take_turns();
	fx_agent_drop(a);
	fx_agent_hello(a);
	attach_count = fx_agent_expect(a, WBP_APP_ATTACH)->app_attach.count;
	__atomic_store_n(&is_asked, 1, __ATOMIC_RELEASE);
	take_turns();
	fx_agent_page(a);
	a->page->word = attach_count;
	if (has_stop)
		wb_poll_set_stop(&a->page->word, attach_count + 2);
	fx_agent_send_fds(a, WBP_APP_ATTACHED, &m, &a->page_fd, 1);
	fx_agent_planned(a);
	if (has_stop) {
		at = fx_agent_expect(a, WBP_APP_PARKED)->app_parked.count;
		ck_assert_uint_eq(at, attach_count + 2);
		ck_assert(wb_poll_is_parked(a->page->word));
		take_turns();
		fx_agent_go(a, 0);
	}
	fx_agent_wait_closed(a);
}

START_TEST(polls_made_while_attaching_count_up_to_a_stop)
{
	struct wb_client_update u;
	struct wb_error err = {0};
	struct wb_client *c;

	has_stop = _i;
	is_asked = 0;
	n_polled = 0;
	c = start(script_attach);
	take_turns();
	for (; !__atomic_load_n(&is_asked, __ATOMIC_ACQUIRE); n_polled++)
		ck_assert_int_eq(wb_client_poll(c), 0);
	while (n_polled < attach_count + MEANWHILE) {
		ck_assert_int_eq(wb_client_poll(c), 0);
		n_polled++;
	}
	take_turns();
	wait_until_planned(c);
	if (has_stop) {
		ck_assert_int_eq(wb_client_poll(c), 1); /* no new one: it stands at the stop */
		take_turns();
		ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), 0);
	}
	ck_assert_uint_eq(wb_poll_count(s.a.page->word), n_polled);
	stop(c);
}
END_TEST

/* ---- an agent that was restarted meanwhile -------------------------------------------------- */

static void comes_back(struct fx_agent *a)
{
	take_turns();
	fx_agent_drop(a);
	take_turns();
	fx_agent_up(a);
}

/* To the worker's eyes. */
static void sees_it_come_back(struct wb_client *c)
{
	take_turns();
	take_turns();
	wait_until_planned(c);
}

static bool is_in_after;

static void script_hook(struct fx_agent *a)
{
	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_begin(a, 8);
	if (is_in_after) {
		fx_agent_expect(a, WBP_APP_BEGUN);
		fx_agent_end(a, 8, WB_APP_END_COMMITTED, "");
	}
	comes_back(a);
	take_turns();
	fx_agent_update(a, 9, WB_APP_END_COMMITTED); /* PARKED is the first that it hears */
	fx_agent_wait_closed(a);
}

/* While a hook runs: the new agent has not begun that update. */
START_TEST(a_restarted_agent_is_not_told_of_the_update_before)
{
	struct wb_error err = {0};
	struct wb_client *c;

	is_in_after = _i;
	c = start(script_hook);
	come_to_before(c, 8);
	if (is_in_after) {
		ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
		wait_for_step(c, WB_CLIENT_STEP_AFTER, 8);
	}
	sees_it_come_back(c);
	if (is_in_after)
		ck_assert_int_eq(wb_client_update_resumed(c, 0, NULL, &err), 0);
	else
		ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	take_turns();
	while (!wb_client_poll(c))
		;
	finish_update(c, 9);
	stop(c);
}
END_TEST

static void script_doubt(struct fx_agent *a)
{
	uint64_t before;

	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_begin(a, 8);
	fx_agent_expect(a, WBP_APP_BEGUN);
	comes_back(a);
	wb_poll_promise(&a->page->word);
	before = wb_poll_load(&a->page->word);
	ck_assert(wb_poll_is_ahead(before));
	take_turns();
	take_turns();
	ck_assert_uint_eq(wb_poll_load(&a->page->word), before);
	fx_agent_end(a, 8, WB_APP_END_ABORTED, "it did not commit");
	fx_agent_update(a, 9, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

/* It may have to go on from where it stands, poll by poll with the others of its engine. */
START_TEST(a_worker_in_doubt_does_not_poll_to_a_stop)
{
	struct wb_client_update u;
	struct wb_error err = {0};
	struct wb_client *c = start(script_doubt);

	come_to_before(c, 8);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	sees_it_come_back(c);
	take_turns();
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(wb_client_update_step(c, MS, &u, &err), -EAGAIN);
	take_turns();
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_NONE);
	while (!wb_client_poll(c))
		;
	finish_update(c, 9);
	stop(c);
}
END_TEST

/* ---- ends of other updates ------------------------------------------------------------------ */

static void script_ends(struct fx_agent *a)
{
	fx_agent_up(a);
	wb_poll_promise(&a->page->word);
	fx_agent_expect(a, WBP_APP_PARKED);
	fx_agent_begin(a, 3);
	fx_agent_end(a, 2, WB_APP_END_ABORTED, "in its hook");
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_BEGUN)->app_begun.code, 0);
	fx_agent_end(a, 2, WB_APP_END_ABORTED, "of the one before");
	fx_agent_end(a, 4, WB_APP_END_COMMITTED, "of one that it is not in");
	fx_agent_end(a, 3, WB_APP_END_TORN, "of its own");
	fx_agent_end(a, 2, WB_APP_END_COMMITTED, "which repairs nothing");
	fx_agent_begin(a, 5);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_BEGUN)->app_begun.code, 0);
	fx_agent_end(a, 5, WB_APP_END_COMMITTED, "");
	fx_agent_expect(a, WBP_APP_RESUMED);
	fx_agent_wait_closed(a);
}

START_TEST(the_end_of_another_update_ends_none)
{
	struct wb_client_update u;
	struct wb_error err = {0};
	struct wb_client *c = start(script_ends);

	come_to_before(c, 3);
	ck_assert_int_eq(wb_client_update_begun(c, 0, NULL, &err), 0);
	ck_assert_int_eq(wb_client_update_step(c, 5 * S, &u, &err), WB_CLIENT_STEP_BEFORE);
	ck_assert_uint_eq(u.transfer, 5);
	ck_assert(u.torn);
	finish_update(c, 5);
	stop(c);
}
END_TEST

/* ---- out of place --------------------------------------------------------------------------- */

static int which;

static void script_out_of_place(struct fx_agent *a)
{
	char build[WB_BUILD_TEXT], name[] = "agent-x";
	struct wb_msg_app_welcome welcome = {WBP_VERSION_MAX, build, name, false};
	struct wb_msg_app_send_state state = {.transfer = 1, .state = WB_APP_SEND_FINAL};

	wb_build_text("test", WBP_VERSION_MAX, WBP_VERSION_MAX, build);
	fx_agent_up(a);
	if (which == 0)
		fx_agent_attached(a);
	else if (which == 1)
		fx_agent_send(a, WBP_APP_WELCOME, &welcome);
	else
		fx_agent_send(a, WBP_APP_SEND_STATE, &state); /* it is no trainer */
	fx_agent_wait_closed(a);
	fx_agent_up(a);
	fx_agent_update(a, 1, WB_APP_END_COMMITTED);
	fx_agent_wait_closed(a);
}

START_TEST(a_message_out_of_place_costs_the_connection)
{
	struct wb_client *c;

	which = _i;
	c = start(script_out_of_place);
	wb_client_fileno(c); /* looks at its socket more often */
	while (!wb_client_poll(c))
		;
	finish_update(c, 1);
	stop(c);
}
END_TEST

static void script_memory(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_update(a, 1, WB_APP_END_COMMITTED); /* nothing else comes in between */
	fx_agent_wait_closed(a);
}

START_TEST(memory_is_not_released_in_an_update)
{
	struct wb_error err = {0};
	struct wb_client *c = start(script_memory);

	come_to_before(c, 1);
	ck_assert_int_eq(wb_client_release_memory(c, 0, &err), -ETIMEDOUT);
	ck_assert_msg(strstr(err.msg, "in an update") != NULL, "%s", err.msg);
	finish_update(c, 1);
	stop(c);
}
END_TEST

/* The agent reads it still, and says so; asked again it has let go of it. */
static void script_memory_in_use(struct fx_agent *a)
{
	char why[] = "an engine reads it";
	struct wb_msg_app_mem_released no = {-EBUSY, why}, yes = {0, NULL};

	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &no);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &yes);
	fx_agent_wait_closed(a);
}

/* It dies before it has answered: nobody has the memory any more. */
static void script_memory_of_nobody(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_drop(a);
}

START_TEST(memory_goes_when_no_agent_has_it)
{
	struct wb_error err = {0};
	struct wb_client *c = start(_i ? script_memory_of_nobody : script_memory_in_use);

	wait_until_planned(c);
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	stop(c);
}
END_TEST

static void on_alarm(int signo)
{
	(void)signo;
}

START_TEST(a_release_that_waits_ends_by_a_signal)
{
	struct itimerval soon = {{0, 10000}, {0, 10000}}, none = {{0, 0}, {0, 0}};
	struct sigaction a = {.sa_handler = on_alarm};
	struct wb_error err = {0};
	struct wb_client *c = start(script_memory);

	come_to_before(c, 1);
	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	ck_assert_int_eq(wb_client_release_memory(c, WB_FOREVER, &err), -EINTR);
	setitimer(ITIMER_REAL, &none, NULL);
	ck_assert_msg(strstr(err.msg, "in an update") != NULL, "%s", err.msg);
	finish_update(c, 1);
	stop(c);
}
END_TEST

/* A new agent is given the memory with ATTACH; before its answer it may be in use already. */
static uint32_t is_attaching; /* atomic */

static void script_attaches(struct fx_agent *a)
{
	struct wb_msg_app_mem_released yes = {0, NULL};

	fx_agent_up(a);
	take_turns();
	fx_agent_drop(a);
	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	__atomic_store_n(&is_attaching, 1, __ATOMIC_RELEASE);
	take_turns();
	fx_agent_attached(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &yes);
	fx_agent_wait_closed(a);
}

START_TEST(memory_is_not_released_while_an_agent_is_being_given_it)
{
	struct wb_error err = {0};
	struct wb_client *c;

	is_attaching = 0;
	c = start(script_attaches);
	take_turns();
	while (!__atomic_load_n(&is_attaching, __ATOMIC_ACQUIRE)) {
		(void)wb_client_poll(c);
		sched_yield();
	}
	ck_assert_int_eq(wb_client_release_memory(c, 0, &err), -ETIMEDOUT);
	ck_assert_msg(strstr(err.msg, "just taking") != NULL, "%s", err.msg);
	take_turns();
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	stop(c);
}
END_TEST

/* It takes the memory (_i 1: refuses it) after the worker's first call is over. */
static pthread_barrier_t called;
static bool is_refused;

static void script_takes_late(struct fx_agent *a)
{
	struct wb_msg_app_mem_released yes = {0, NULL};
	char why[] = "there is no room";
	struct wb_msg_app_mem_acquired taken = {
		.code = is_refused ? -ENOSPC : 0, .sentence = is_refused ? why : NULL};

	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &yes);
	fx_agent_expect(a, WBP_APP_MEM_ACQUIRE);
	pthread_barrier_wait(&called);
	fx_agent_send(a, WBP_APP_MEM_ACQUIRED, &taken);
	fx_agent_wait_closed(a);
}

START_TEST(memory_that_is_being_acquired_is_acquired_by_the_same_call_again)
{
	struct wb_error err = {0};
	struct wb_client_mem mem = {WB_CLIENT_MEM_HEAP, 0, -1, fx_heap, sizeof(fx_heap)};
	struct wb_client_mem other = {WB_CLIENT_MEM_HEAP, 0, -1, fx_heap, sizeof(fx_heap) - 8};
	struct wb_client_param param[2] = {{0, 0}, {0, 128}};
	struct wb_client_acquire a = {
		.size = sizeof(a), .mem = &mem, .n_mem = 1, .param = param, .n_param = 2};
	struct wb_client_acquire b = {
		.size = sizeof(b), .mem = &other, .n_mem = 1, .param = param, .n_param = 2};
	struct wb_client *c;

	is_refused = _i;
	pthread_barrier_init(&called, NULL, 2);
	c = start(script_takes_late);
	wait_until_planned(c);
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	ck_assert_int_eq(wb_client_acquire_memory(c, &a, 0, &err), -ETIMEDOUT);
	ck_assert_int_eq(wb_client_acquire_memory(c, &b, 5 * S, &err), -EBUSY);
	ck_assert_msg(strstr(err.msg, "other memory") != NULL, "%s", err.msg);
	ck_assert_int_eq(wb_client_acquire_memory(c, &a, 0, &err), -ETIMEDOUT);
	pthread_barrier_wait(&called);
	ck_assert_int_eq(wb_client_acquire_memory(c, &a, 5 * S, &err), _i ? -ENOSPC : 0);
	if (!_i)
		ck_assert_int_eq(wb_client_acquire_memory(c, &a, 5 * S, &err), -EALREADY);
	stop(c);
	pthread_barrier_destroy(&called);
}
END_TEST

static void script_dies_acquiring(struct fx_agent *a)
{
	struct wb_msg_app_mem_released yes = {0, NULL};

	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_MEM_RELEASE);
	fx_agent_send(a, WBP_APP_MEM_RELEASED, &yes);
	fx_agent_expect(a, WBP_APP_MEM_ACQUIRE);
	fx_agent_drop(a);
	take_turns();
}

/* That acquire is over with the release: the next one is another, and nobody has answered it. */
START_TEST(memory_released_when_its_agent_was_lost_is_acquired_anew)
{
	struct wb_error err = {0};
	struct wb_client_mem mem = {WB_CLIENT_MEM_HEAP, 0, -1, fx_heap, sizeof(fx_heap)};
	struct wb_client_param param[2] = {{0, 0}, {0, 128}};
	struct wb_client_acquire a = {
		.size = sizeof(a), .mem = &mem, .n_mem = 1, .param = param, .n_param = 2};
	struct wb_client *c = start(script_dies_acquiring);

	wait_until_planned(c);
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	ck_assert_int_eq(wb_client_acquire_memory(c, &a, 0, &err), -ETIMEDOUT);
	take_turns();
	ck_assert_msg(!wb_client_release_memory(c, 5 * S, &err), "%s", err.msg);
	ck_assert_int_lt(wb_client_acquire_memory(c, &a, 50 * MS, &err), 0);
	stop(c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_fences");
	TCase *t = tcase_create("client_fences");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, polls_made_while_attaching_count_up_to_a_stop, 0, 2);
	tcase_add_loop_test(t, a_restarted_agent_is_not_told_of_the_update_before, 0, 2);
	tcase_add_test(t, a_worker_in_doubt_does_not_poll_to_a_stop);
	tcase_add_test(t, the_end_of_another_update_ends_none);
	tcase_add_loop_test(t, a_message_out_of_place_costs_the_connection, 0, 3);
	tcase_add_test(t, memory_is_not_released_in_an_update);
	tcase_add_loop_test(t, memory_goes_when_no_agent_has_it, 0, 2);
	tcase_add_test(t, a_release_that_waits_ends_by_a_signal);
	tcase_add_test(t, memory_released_when_its_agent_was_lost_is_acquired_anew);
	tcase_add_test(t, memory_is_not_released_while_an_agent_is_being_given_it);
	tcase_add_loop_test(
		t, memory_that_is_being_acquired_is_acquired_by_the_same_call_again, 0, 2);
	suite_add_tcase(suite, t);
	return fx_run(suite);
}
