/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "tests/common/fx_agent.h"
#include "tests/common/fx_check.h"
#include "weightbridge/weightbridge.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define S 1000000000ull

static void says(const struct wb_error *err, const char *part)
{
	ck_assert_msg(strstr(err->msg, part) != NULL, "\"%s\" is not in: %s", part, err->msg);
}

static pthread_barrier_t both;

static void state(struct fx_agent *a, uint64_t transfer, uint32_t st, int64_t code, const char *why)
{
	const char *engine[] = {"e0", "e1"};
	uint32_t word[] = {WB_ENGINE_COMMITTED, WB_ENGINE_ABORTED};
	char text[256];

	snprintf(text, sizeof(text), "%s", why);
	fx_agent_send(a, WBP_APP_SEND_STATE,
		&(struct wb_msg_app_send_state){.transfer = transfer,
			.version = (int64_t)transfer * 10,
			.state = st,
			.code = code,
			.sentence = text,
			.engine = engine,
			.engine_state = word,
			.n_engine = st == WB_APP_SEND_FINAL ? 2 : 0,
			.n_engine_state = st == WB_APP_SEND_FINAL ? 2 : 0,
			.seconds_x1e6 = 1500000});
}

static void script_sends(struct fx_agent *a)
{
	fx_agent_up(a);
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_SEND)->app_send.version, 70);
	state(a, 7, WB_APP_SEND_STARTED, 0, "");
	state(a, 6, WB_APP_SEND_FINAL, -EIO, "old news");
	state(a, 7, WB_APP_SEND_RELEASED, 0, "");
	state(a, 7, WB_APP_SEND_FINAL, 0, "");
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_SEND)->app_send.version, -1);
	state(a, 8, WB_APP_SEND_STARTED, WB_EABORTED, "engine e0: worker 2 is gone");
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_SEND)->app_send.version, 90);
	state(a, 9, WB_APP_SEND_FINAL, 0, "");
	fx_agent_expect(a, WBP_APP_DETACH);
}

START_TEST(send_goes_through_its_states)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t, *u, *v;
	struct wb_client_transfer_info info;
	struct wb_client_opts o;
	char name[8], word[16];

	fx_script_start(&s, script_sends);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_poll(c), -EINVAL);
	ck_assert_int_eq(wb_client_send(c, -2, 0, S, &t, &err), -EINVAL);
	ck_assert_msg(!wb_client_send(c, 70, 0, S, &t, &err), "%s", err.msg);
	ck_assert_int_eq(wb_client_release(t, &err), -EINVAL); /* not held */
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, S, &err), 0);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, S, &err), 0);
	wb_client_transfer_get(t, &info);
	ck_assert_uint_eq(info.transfer, 7);
	ck_assert_int_eq(info.version, 70);
	ck_assert_int_eq(info.code, 0);
	ck_assert_double_eq(info.seconds, 1.5);
	ck_assert_uint_eq(info.n_engine, 2);
	ck_assert(!wb_client_transfer_engine(t, 1, name, sizeof(name), word, sizeof(word)));
	ck_assert_str_eq(name, "e1");
	ck_assert_str_eq(word, "Aborted");
	ck_assert_int_eq(wb_client_transfer_engine(t, 2, name, 8, word, 16), -ENOENT);

	/* A failure that nobody has seen comes out of the next send, once. */
	ck_assert_int_eq(wb_client_send(c, -1, 0, S, &u, &err), 0);
	ck_assert_int_eq(wb_client_send(c, 90, 0, S, &v, &err), WB_CODE_ABORTED);
	says(&err, "transfer 8");
	says(&err, "worker 2 is gone");
	ck_assert_int_eq(wb_client_send(c, 90, 0, S, &v, &err), 0);
	/* Old handles keep their result. */
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, 0, &err), 0);
	ck_assert_int_eq(
		wb_client_transfer_wait(u, WB_CLIENT_TRANSFER_FINAL, 0, &err), WB_CODE_ABORTED);
	wb_client_transfer_free(t);
	wb_client_transfer_free(u);
	ck_assert_int_eq(wb_client_close(c, S, &err), 0); /* waits for the last one */
	wb_client_transfer_get(v, &info);
	ck_assert_uint_eq(info.transfer, 9);
	ck_assert_int_eq(info.state, WB_CLIENT_TRANSFER_FINAL);
	wb_client_transfer_free(v);
	fx_script_stop(&s);
}
END_TEST

static void script_news(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 7, WB_APP_SEND_RELEASED, 0, "");
	state(a, 7, WB_APP_SEND_STARTED, 0, "said late");
	pthread_barrier_wait(&both);
	state(a, 7, WB_APP_SEND_FINAL, 0, "");
	fx_agent_wait_closed(a);
}

/* Who was told that its parameters may change has changed them. */
START_TEST(what_was_released_is_not_read_again)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_transfer_info info;
	struct wb_client_opts o;

	pthread_barrier_init(&both, NULL, 2);
	fx_script_start(&s, script_news);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_send(c, 70, 0, 10 * S, &t, &err), 0);
	do {
		ck_assert_int_eq(
			wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, MS, &err), -ETIMEDOUT);
		wb_client_transfer_get(t, &info);
	} while (strcmp(info.sentence, "said late"));
	ck_assert_int_eq(info.state, WB_CLIENT_TRANSFER_RELEASED);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, 0, &err), 0);
	pthread_barrier_wait(&both);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, 10 * S, &err), 0);
	wb_client_transfer_free(t);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

/* With overlap: Supersede, up to the first SEND. */
static void up_superseding(struct fx_agent *a)
{
	char digest[] = "xxh128:00000000000000000000000000000001";
	struct wb_msg_app_planned m = {3, 5, digest, -1, true};

	fx_agent_hello(a);
	fx_agent_expect(a, WBP_APP_ATTACH);
	fx_agent_attached(a);
	fx_agent_send(a, WBP_APP_PLANNED, &m);
	fx_agent_expect(a, WBP_APP_SEND);
}

/* overlap: Supersede; transfer 4 is let go, then 5 is sent beside it. */
static void script_supersede(struct fx_agent *a)
{
	up_superseding(a);
	state(a, 4, WB_APP_SEND_STARTED, 0, "");
	state(a, 4, WB_APP_SEND_RELEASED, 0, "");
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_SEND)->app_send.version, 50);
	state(a, 4, WB_APP_SEND_FINAL, 0, "superseded");
	state(a, 5, WB_APP_SEND_STARTED, 0, "");
	fx_agent_wait_closed(a);
}

START_TEST(with_supersede_a_send_follows_the_release_of_the_last)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t, *u, *v;
	struct wb_client_transfer_info info;
	struct wb_client_opts o;

	fx_script_start(&s, script_supersede);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_send(c, 40, 0, S, &t, &err), 0);
	ck_assert_int_eq(wb_client_send(c, 50, 0, S, &u, &err), 0);
	/* The end of the first is the first's. */
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, S, &err), 0);
	wb_client_transfer_get(t, &info);
	ck_assert_uint_eq(info.transfer, 4);
	ck_assert_str_eq(info.sentence, "superseded");
	ck_assert_int_eq(wb_client_transfer_wait(u, WB_CLIENT_TRANSFER_STARTED, S, &err), 0);
	wb_client_transfer_get(u, &info);
	ck_assert_uint_eq(info.transfer, 5);
	ck_assert_int_eq(info.state, WB_CLIENT_TRANSFER_STARTED);
	/* A third waits until the second lets go. */
	ck_assert_int_eq(wb_client_send(c, 60, 0, 50 * MS, &v, &err), -ETIMEDOUT);
	says(&err, "transfer 5");
	wb_client_transfer_free(t);
	wb_client_transfer_free(u);
	(void)wb_client_close(c, 10 * MS, &err);
	fx_script_stop(&s);
}
END_TEST

static void script_three(struct fx_agent *a)
{
	up_superseding(a);
	state(a, 4, WB_APP_SEND_RELEASED, 0, "");
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 5, WB_APP_SEND_RELEASED, 0, "");
	pthread_barrier_wait(&both);
	state(a, 4, WB_APP_SEND_FINAL, 0, "superseded");
	ck_assert_int_eq(fx_agent_expect(a, WBP_APP_SEND)->app_send.version, 60);
	fx_agent_wait_closed(a);
}

/* The second was let go as well; the first has not ended. */
START_TEST(with_supersede_two_transfers_are_in_flight_not_three)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t, *u, *v;
	struct wb_client_opts o;

	pthread_barrier_init(&both, NULL, 2);
	fx_script_start(&s, script_three);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_send(c, 40, 0, 5 * S, &t, &err), 0);
	ck_assert_int_eq(wb_client_send(c, 50, 0, 5 * S, &u, &err), 0);
	ck_assert_int_eq(wb_client_transfer_wait(u, WB_CLIENT_TRANSFER_RELEASED, 5 * S, &err), 0);
	ck_assert_int_eq(wb_client_send(c, 60, 0, 50 * MS, &v, &err), -ETIMEDOUT);
	pthread_barrier_wait(&both);
	ck_assert_int_eq(wb_client_send(c, 60, 0, 5 * S, &v, &err), 0);
	wb_client_transfer_free(t);
	wb_client_transfer_free(u);
	wb_client_transfer_free(v);
	(void)wb_client_close(c, 10 * MS, &err);
	fx_script_stop(&s);
}
END_TEST

static void held(struct fx_agent *a, uint64_t transfer, uint32_t st, bool is_held)
{
	struct wb_msg_app_send_state m = {.transfer = transfer,
		.version = (int64_t)transfer * 10,
		.state = st,
		.held = is_held};

	fx_agent_send(a, WBP_APP_SEND_STATE, &m);
}

static void script_superseded_hold(struct fx_agent *a)
{
	up_superseding(a);
	held(a, 4, WB_APP_SEND_RELEASED, true);
	fx_agent_expect(a, WBP_APP_RELEASE); /* by the next send */
	pthread_barrier_wait(&both); /* which waits until nobody reads any more */
	held(a, 4, WB_APP_SEND_RELEASED, false);
	fx_agent_expect(a, WBP_APP_SEND);
	fx_agent_wait_closed(a);
}

START_TEST(with_supersede_a_hold_is_waited_for)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t, *u;
	struct wb_client_opts o;

	pthread_barrier_init(&both, NULL, 2);
	fx_script_start(&s, script_superseded_hold);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_send(c, 40, WB_CLIENT_SEND_HOLD, 5 * S, &t, &err), 0);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, 5 * S, &err), 0);
	ck_assert_int_eq(wb_client_send(c, 50, 0, 50 * MS, &u, &err), -ETIMEDOUT);
	pthread_barrier_wait(&both);
	ck_assert_int_eq(wb_client_send(c, 50, 0, 5 * S, &u, &err), 0);
	wb_client_transfer_free(t);
	wb_client_transfer_free(u);
	(void)wb_client_close(c, 10 * MS, &err);
	fx_script_stop(&s);
}
END_TEST

static bool is_read; /* guarded by the order of messages */
static int released[2]; /* a pipe: release() has returned */

/* Its transfers are over, and it reads on for others. */
static void script_kept_hold(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	held(a, 4, WB_APP_SEND_FINAL, true);
	fx_agent_expect(a, WBP_APP_RELEASE); /* by the next send */
	pthread_barrier_wait(&both); /* which waits until nobody reads any more */
	held(a, 4, WB_APP_SEND_RELEASED, false);
	fx_agent_expect(a, WBP_APP_SEND);
	held(a, 5, WB_APP_SEND_FINAL, true);
	ck_assert_uint_eq(fx_agent_expect(a, WBP_APP_RELEASE)->app_release.transfer, 5);
	ck_assert_int_eq(poll(&(struct pollfd){released[0], POLLIN, 0}, 1, 100), 0);
	is_read = false;
	held(a, 5, WB_APP_SEND_RELEASED, false);
	fx_agent_expect(a, WBP_APP_SEND);
	held(a, 6, WB_APP_SEND_FINAL, true);
	pthread_barrier_wait(&both);
	fx_agent_drop(a);
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 7, WB_APP_SEND_FINAL, 0, "");
	fx_agent_wait_closed(a);
}

START_TEST(a_hold_outlasts_the_end_until_nobody_reads)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_opts o;

	is_read = true;
	ck_assert_int_eq(pipe(released), 0);
	pthread_barrier_init(&both, NULL, 2);
	fx_script_start(&s, script_kept_hold);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 40, WB_CLIENT_SEND_HOLD, 5 * S, &t, &err));
	ck_assert(!wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, 5 * S, &err));
	wb_client_transfer_free(t);
	ck_assert_int_eq(wb_client_send(c, 50, WB_CLIENT_SEND_HOLD, 50 * MS, &t, &err), -ETIMEDOUT);
	says(&err, "the parameters of transfer 4 (version 40) are still read");
	pthread_barrier_wait(&both);
	ck_assert(!wb_client_send(c, 50, WB_CLIENT_SEND_HOLD, 5 * S, &t, &err));
	ck_assert(!wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, 5 * S, &err));
	ck_assert(!wb_client_release(t, &err));
	ck_assert_int_eq(write(released[1], "", 1), 1);
	ck_assert(!is_read);
	wb_client_transfer_free(t);
	ck_assert(!wb_client_send(c, 60, WB_CLIENT_SEND_HOLD, 5 * S, &t, &err));
	ck_assert(!wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, 5 * S, &err));
	pthread_barrier_wait(&both);
	ck_assert(!wb_client_release(t, &err)); /* an agent that is gone reads nothing */
	wb_client_transfer_free(t);
	ck_assert(!wb_client_send(c, 70, 0, 5 * S, &t, &err));
	wb_client_transfer_free(t);
	ck_assert_int_eq(wb_client_close(c, S, &err), 0);
	fx_script_stop(&s);
	close(released[0]);
	close(released[1]);
}
END_TEST

static void script_slow(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 4, WB_APP_SEND_RELEASED, 0, "engine e1 still receives");
	fx_agent_wait_closed(a);
}

START_TEST(second_send_waits_for_the_first_and_names_it_at_its_deadline)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t, *u = NULL;
	struct wb_client_opts o;

	fx_script_start(&s, script_slow);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 1, 0, S, &t, &err));
	ck_assert(!wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, S, &err));
	ck_assert_int_eq(wb_client_send(c, 2, 0, 20 * MS, &u, &err), -ETIMEDOUT);
	says(&err, "transfer 4 (version 40) is still in flight");
	ck_assert_ptr_null(u);
	ck_assert_int_eq(
		wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, MS, &err), -ETIMEDOUT);
	says(&err, "received, not final");
	says(&err, "engine e1 still receives");
	ck_assert_int_eq(wb_client_close(c, 20 * MS, &err), -ETIMEDOUT);
	wb_client_transfer_free(t);
	fx_script_stop(&s);
}
END_TEST

struct second {
	struct wb_client *c;
	int rc;
	struct wb_error err;
};

static void script_ends_by_a_deadline(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 4, WB_APP_SEND_STARTED, -ETIMEDOUT, "not called by t1");
	fx_agent_expect(a, WBP_APP_DETACH);
}

START_TEST(transfer_that_missed_its_deadline_says_so_in_its_own_words)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_opts o;

	fx_script_start(&s, script_ends_by_a_deadline);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_send(c, -1, 0, S, &t, &err), 0);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, WB_FOREVER, &err),
		WB_CODE_ABORTED);
	says(&err, "not called by t1");
	ck_assert(!strstr(err.msg, "after")); /* the time that was not waited */
	wb_client_transfer_free(t);
	wb_client_close(c, S, &err);
	fx_script_stop(&s);
}
END_TEST

static void *send_in_thread(void *arg)
{
	struct second *x = arg;
	struct wb_client_transfer *t;

	do /* until it is inside for good */
		x->rc = wb_client_send(x->c, 2, 0, 5 * S, &t, &x->err);
	while (x->rc == -EBUSY);
	if (!x->rc)
		wb_client_transfer_free(t);
	return NULL;
}

static void script_release_later(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 4, WB_APP_SEND_RELEASED, 0, "");
	pthread_barrier_wait(&both);
	state(a, 4, WB_APP_SEND_FINAL, 0, "");
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 5, WB_APP_SEND_FINAL, 0, "");
	fx_agent_wait_closed(a);
}

START_TEST(send_from_a_second_thread_is_ebusy)
{
	struct fx_script s;
	struct second x = {0};
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t, *u;
	struct wb_client_opts o;
	pthread_t th;
	int rc;

	pthread_barrier_init(&both, NULL, 2);
	fx_script_start(&s, script_release_later);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	x.c = c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 1, 0, S, &t, &err));
	ck_assert(!pthread_create(&th, NULL, send_in_thread, &x));
	/* The other thread waits inside send: this one is turned away at some point. */
	while ((rc = wb_client_send(c, 3, 0, 0, &u, &err)) == -ETIMEDOUT)
		;
	ck_assert_int_eq(rc, -EBUSY);
	says(&err, "another thread is inside send_weights");
	pthread_barrier_wait(&both);
	/* While it is there, others may wait for the first transfer. */
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, 5 * S, &err), 0);
	pthread_join(th, NULL);
	ck_assert_msg(x.rc == 0, "%s", x.err.msg);
	wb_client_transfer_free(t);
	ck_assert_int_eq(wb_client_close(c, S, &err), 0);
	fx_script_stop(&s);
}
END_TEST

static void script_hold(struct fx_agent *a)
{
	fx_agent_up(a);
	ck_assert_uint_eq(fx_agent_expect(a, WBP_APP_SEND)->app_send.flags,
		WB_APP_SEND_HOLD | WB_APP_SEND_KEEP);
	state(a, 4, WB_APP_SEND_RELEASED, 0, "");
	ck_assert_uint_eq(fx_agent_expect(a, WBP_APP_RELEASE)->app_release.transfer, 4);
	state(a, 4, WB_APP_SEND_FINAL, 0, "");
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 5, WB_APP_SEND_RELEASED, 0, "");
	fx_agent_expect(a, WBP_APP_RELEASE); /* by the next send */
	state(a, 5, WB_APP_SEND_FINAL, 0, "");
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 6, WB_APP_SEND_STARTED, 0, "");
	fx_agent_expect(a, WBP_APP_RELEASE); /* by close */
	state(a, 6, WB_APP_SEND_FINAL, 0, "");
	fx_agent_expect(a, WBP_APP_DETACH);
}

static void script_released_later(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 4, WB_APP_SEND_STARTED, 0, "");
	fx_agent_expect(a, WBP_APP_RELEASE);
	/* A release() that does not wait has returned by then. */
	ck_assert_int_eq(poll(&(struct pollfd){released[0], POLLIN, 0}, 1, 100), 0);
	state(a, 4, WB_APP_SEND_RELEASED, 0, "");
	state(a, 4, WB_APP_SEND_FINAL, 0, "");
	fx_agent_expect(a, WBP_APP_DETACH);
}

/* The receive stage reads the parameters, whoever holds them. */
START_TEST(a_hold_released_before_all_is_read_ends_when_it_is)
{
	struct wb_client_transfer_info info;
	struct wb_client_transfer *t;
	struct wb_error err = {0};
	struct wb_client_opts o;
	struct fx_script s;
	struct wb_client *c;

	ck_assert_int_eq(pipe(released), 0);
	fx_script_start(&s, script_released_later);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_send(c, 1, WB_CLIENT_SEND_HOLD, 5 * S, &t, &err), 0);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_STARTED, 5 * S, &err), 0);
	ck_assert_int_eq(wb_client_release(t, &err), 0);
	ck_assert_int_eq(write(released[1], "", 1), 1);
	wb_client_transfer_get(t, &info);
	ck_assert_int_ge(info.state, WB_CLIENT_TRANSFER_RELEASED);
	wb_client_transfer_free(t);
	ck_assert_int_eq(wb_client_close(c, 5 * S, &err), 0);
	fx_script_stop(&s);
	close(released[0]);
	close(released[1]);
}
END_TEST

static void script_held_for_ever(struct fx_agent *a)
{
	struct wb_msg_app_send_state held = {
		.transfer = 4, .version = 1, .state = WB_APP_SEND_RELEASED, .held = true};

	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	fx_agent_send(a, WBP_APP_SEND_STATE, &held);
	fx_agent_expect(a, WBP_APP_RELEASE);
	fx_agent_expect(a, WBP_APP_DETACH);
}

START_TEST(close_waits_for_a_hold_no_longer_than_its_timeout)
{
	struct wb_client_transfer *t;
	struct wb_error err = {0};
	struct wb_client_opts o;
	struct fx_script s;
	struct wb_client *c;

	fx_script_start(&s, script_held_for_ever);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert_int_eq(wb_client_send(c, 1, WB_CLIENT_SEND_HOLD, 5 * S, &t, &err), 0);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, 5 * S, &err), 0);
	wb_client_transfer_free(t);
	ck_assert_int_eq(wb_client_close(c, 0, &err), -ETIMEDOUT);
	fx_script_stop(&s);
}
END_TEST

START_TEST(hold_ends_by_release_by_the_next_send_and_by_close)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_opts o;

	fx_script_start(&s, script_hold);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 1, WB_CLIENT_SEND_HOLD, S, &t, &err));
	ck_assert(!wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, S, &err));
	ck_assert(!wb_client_release(t, &err));
	ck_assert(!wb_client_release(t, &err));
	ck_assert(!wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, S, &err));
	wb_client_transfer_free(t);
	ck_assert(!wb_client_send(c, 2, WB_CLIENT_SEND_HOLD, S, &t, &err));
	wb_client_transfer_free(t);
	ck_assert(!wb_client_send(c, 3, WB_CLIENT_SEND_HOLD, S, &t, &err));
	wb_client_transfer_free(t);
	ck_assert_int_eq(wb_client_close(c, S, &err), 0);
	fx_script_stop(&s);
}
END_TEST

static uint64_t next_number;

static void script_dies_in_send(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, 4, WB_APP_SEND_STARTED, 0, "");
	fx_agent_drop(a);
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	state(a, next_number, WB_APP_SEND_FINAL, 0, "");
	fx_agent_wait_closed(a);
}

/* Nobody else may have heard of its transfer (_i 1): the agent that follows gives that number
 * again. */
START_TEST(agent_lost_in_a_transfer_ends_it_and_the_next_one_works)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_opts o;

	next_number = _i ? 4 : 5;
	fx_script_start(&s, script_dies_in_send);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 1, 0, S, &t, &err));
	ck_assert_int_eq(
		wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, S, &err), WB_CODE_UNKNOWN);
	says(&err, "the agent went away during the transfer");
	wb_client_transfer_free(t);
	ck_assert_msg(!wb_client_send(c, 1, 0, 5 * S, &t, &err), "%s", err.msg);
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, S, &err), 0);
	wb_client_transfer_free(t);
	wb_client_close(c, S, NULL);
	fx_script_stop(&s);
}
END_TEST

static void script_dies_for_good(struct fx_agent *a)
{
	fx_agent_up(a);
	fx_agent_expect(a, WBP_APP_SEND);
	close(a->listen_fd);
	a->listen_fd = -1;
	fx_agent_drop(a);
}

START_TEST(agent_that_stays_away_is_econnreset_with_the_cause)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_opts o;

	fx_script_start(&s, script_dies_for_good);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	o.reconnect_timeout = 50 * MS;
	c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 1, 0, S, &t, &err));
	ck_assert_int_eq(
		wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, S, &err), WB_CODE_UNKNOWN);
	wb_client_transfer_free(t);
	ck_assert_int_eq(wb_client_send(c, 2, 0, S, &t, &err), -ECONNRESET);
	says(&err, "Connection refused");
	says(&err, " s (reconnect_timeout)");
	ck_assert_int_eq(wb_client_close(c, S, &err), 0); /* reported already */
	fx_script_stop(&s);
}
END_TEST

/* ---- process ---- */

static void on_alarm(int sig)
{
	(void)sig;
}

START_TEST(signal_handler_ends_a_wait_with_eintr)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_opts o;
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	timer_t timer;
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec in = {{0, 5 * MS}, {0, 5 * MS}};

	fx_script_start(&s, script_slow);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 1, 0, S, &t, &err));
	sigaction(SIGUSR1, &sa, NULL);
	ck_assert(!timer_create(CLOCK_MONOTONIC, &ev, &timer));
	timer_settime(timer, 0, &in, NULL);
	ck_assert_int_eq(
		wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_FINAL, WB_FOREVER, &err), -EINTR);
	timer_delete(timer);
	wb_client_transfer_free(t);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

START_TEST(forked_child_is_kept_out)
{
	struct fx_script s;
	struct wb_error err;
	struct wb_client *c;
	struct wb_client_transfer *t;
	struct wb_client_opts o;
	pid_t pid;
	int st;

	fx_script_start(&s, script_slow);
	o = fx_opts(&s.a, WB_CLIENT_TRAINER);
	c = fx_worker(&o);
	ck_assert(!wb_client_send(c, 1, 0, S, &t, &err));
	pid = fork();
	if (!pid) {
		bool ok = wb_client_send(c, 1, 0, S, &t, &err) == -EPERM &&
			  strstr(err.msg, "forked") && wb_client_poll(c) == -EPERM &&
			  wb_client_fileno(c) == -EPERM && !*wb_client_worker(c) &&
			  wb_client_close(c, S, &err) == 0;

		_exit(ok ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
	/* The parent's connection has not noticed. */
	ck_assert_int_eq(wb_client_transfer_wait(t, WB_CLIENT_TRANSFER_RELEASED, S, &err), 0);
	wb_client_transfer_free(t);
	wb_client_close(c, 0, NULL);
	fx_script_stop(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client_send");
	TCase *t = tcase_create("client_send");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, send_goes_through_its_states);
	tcase_add_test(t, what_was_released_is_not_read_again);
	tcase_add_test(t, transfer_that_missed_its_deadline_says_so_in_its_own_words);
	tcase_add_test(t, with_supersede_a_send_follows_the_release_of_the_last);
	tcase_add_test(t, with_supersede_two_transfers_are_in_flight_not_three);
	tcase_add_test(t, with_supersede_a_hold_is_waited_for);
	tcase_add_test(t, a_hold_outlasts_the_end_until_nobody_reads);
	tcase_add_test(t, second_send_waits_for_the_first_and_names_it_at_its_deadline);
	tcase_add_test(t, send_from_a_second_thread_is_ebusy);
	tcase_add_test(t, a_hold_released_before_all_is_read_ends_when_it_is);
	tcase_add_test(t, close_waits_for_a_hold_no_longer_than_its_timeout);
	tcase_add_test(t, hold_ends_by_release_by_the_next_send_and_by_close);
	tcase_add_loop_test(t, agent_lost_in_a_transfer_ends_it_and_the_next_one_works, 0, 2);
	tcase_add_test(t, agent_that_stays_away_is_econnreset_with_the_cause);
	tcase_add_test(t, signal_handler_ends_a_wait_with_eintr);
	tcase_add_test(t, forked_child_is_kept_out);
	suite_add_tcase(s, t);
	return fx_run(s);
}
