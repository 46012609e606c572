/* SPDX-License-Identifier: Apache-2.0 */
/* Channels whose peers do not get on, frames that wait for room, and bytes that many send. */
#include "base/base.h"
#include "base/clock.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_tls.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (1u << 20)

/* Both ends of one connection; the server's callbacks are this test's. */
static struct fx_end server, client;
static struct wb_tls *st, *ct;
static struct wb_listener *l;
static struct wb_chan_limits limits;
static int n_room, n_head, n_stuck, n_given_back, n_put_off;
static char stuck_msg[WB_ERR_MSG_MAX];

static int on_head(void *cookie, struct wb_chan *ch, size_t bytes)
{
	(void)cookie;
	(void)ch;
	n_head += bytes > 1000;
	return bytes > 1000 && n_head <= n_put_off ? -EAGAIN : 0;
}

static void on_stuck(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	(void)cookie;
	ck_assert_int_eq(why->code, -ETIMEDOUT);
	strcpy(stuck_msg, why->msg);
	n_stuck++;
	wb_chan_close(ch);
}

static void on_room(void *cookie, struct wb_chan *ch)
{
	(void)cookie;
	(void)ch;
	n_room++;
}

static void on_chan(void *cookie, struct wb_chan *ch)
{
	struct wb_chan_cb cb = fx_cb_of(cookie);

	fx_on_chan(cookie, ch);
	cb.on_head = on_head;
	cb.on_stuck = on_stuck;
	cb.on_room = on_room;
	wb_chan_bind(ch, &cb);
}

static void connect_both(void)
{
	const struct wb_listen_cb cb = {&server, on_chan, NULL, fx_on_refused};
	struct wb_listen_opts o = {.host = "127.0.0.1", .limits = limits};
	struct wb_err err = {0};

	st = fx_psk_tls(true, "k", 1);
	ct = fx_psk_tls(false, "k", 1);
	o.tls = st;
	ck_assert_msg(!wb_listen(fx_loop, &o, &cb, &l, &err), "%s", err.msg);
	fx_tls_dial(ct, "127.0.0.1", wb_listener_port(l), &client);
	fx_loop_until(&client.opened, 1);
	fx_loop_until(&server.opened, 1);
}

/* Under ThreadSanitizer the tests share a process. */
static void set_up(void)
{
	server = client = (struct fx_end){.opened = 0};
	n_room = n_head = n_stuck = n_given_back = n_put_off = 0;
	fx_loop_set_up();
	limits = fx_limits;
	limits.stuck_ns = 50 * WB_NS_PER_MS;
	limits.linger_ns = 100 * WB_NS_PER_MS;
}

static void tear_down(void)
{
	if (client.ch)
		wb_chan_close(client.ch);
	fx_loop_until(&client.closed, 1);
	fx_loop_until(&server.closed, 1);
	wb_listener_close(l);
	wb_tls_put(st);
	wb_tls_put(ct);
	fx_loop_tear_down();
}

static void count(void *n)
{
	++*(int *)n;
}

/* Nothing else is to be seen of what does not happen. */
static void wait_ms(unsigned ms)
{
	struct wb_timer *t;
	int n = 0;

	ck_assert_int_eq(wb_timer_create(fx_loop, count, &n, &t), 0);
	wb_timer_start(t, ms * WB_NS_PER_MS, 0);
	fx_loop_until(&n, 1);
	wb_timer_destroy(t);
}

START_TEST(a_frame_that_does_not_grow_is_told_to_the_owner)
{
	uint8_t *f = fx_make_frame(1, LARGE);

	connect_both();
	ck_assert_int_eq(wb_chan_send(client.ch, f, 100), 0);
	fx_loop_until(&n_stuck, 1);
	ck_assert_msg(strstr(stuck_msg, "has begun a frame of 1048576 bytes and sent") != NULL,
		"%s", stuck_msg);
	fx_loop_until(&server.closed, 1);
	free(f);
}
END_TEST

START_TEST(a_peer_that_does_not_read_is_told_to_the_owner)
{
	struct wb_chan_cb cb = fx_cb_of(&client);
	int rc = 0;

	connect_both();
	n_put_off = 1000;
	cb.on_head = on_head; /* it reads a head, and then no more */
	wb_chan_bind(client.ch, &cb);
	while (rc == 0)
		rc = fx_send_frame(server.ch, 1, LARGE);
	ck_assert_int_eq(rc, -EAGAIN);
	fx_loop_until(&n_stuck, 1);
	ck_assert_msg(strstr(stuck_msg, "bytes to read and read") != NULL, "%s", stuck_msg);
	fx_loop_until(&server.closed, 1);
}
END_TEST

START_TEST(a_silent_connection_is_left_alone)
{
	connect_both();
	ck_assert_int_eq(fx_send_frame(client.ch, 1, 500), 0);
	fx_loop_until(&server.frames, 1);
	wait_ms(200);
	ck_assert_int_eq(n_stuck, 0);
	ck_assert_int_eq(server.closed, 0);
}
END_TEST

static void resume(void *cookie)
{
	(void)cookie;
	wb_chan_resume(server.ch);
}

START_TEST(a_frame_that_is_put_off_comes_when_there_is_room)
{
	n_put_off = 2;
	connect_both();
	ck_assert_int_eq(fx_send_frame(client.ch, 1, 500), 0);
	ck_assert_int_eq(fx_send_frame(client.ch, 2, LARGE), 0);
	ck_assert_int_eq(fx_send_frame(client.ch, 3, LARGE), 0);
	fx_loop_until(&n_head, 1);
	wait_ms(200); /* longer than stuck: it is not the peer's fault */
	for (int i = 1; i < 5; i++)
		ck_assert_int_eq(fx_send_frame(server.ch, i, 300), 0);
	fx_loop_until(&client.frames, 4);
	ck_assert_int_eq(server.frames, 1);
	ck_assert_int_eq(n_head, 1);
	wb_chan_resume(server.ch);
	fx_loop_until(&n_head, 2);
	ck_assert_int_eq(server.frames, 1);
	/* The socket is looked at before what is deferred here is done. */
	ck_assert_int_eq(wb_loop_defer(fx_loop, resume, NULL), 0);
	fx_loop_until(&server.frames, 3);
	ck_assert_int_eq(n_head, 4);
	ck_assert_int_eq(n_stuck, 0);
}
END_TEST

/* What it sends meanwhile goes, and so does its end. */
START_TEST(a_channel_that_puts_off_a_frame_sends_and_closes)
{
	n_put_off = 1000;
	connect_both();
	ck_assert_int_eq(fx_send_frame(client.ch, 1, LARGE), 0);
	fx_loop_until(&n_head, 1);
	ck_assert_int_eq(fx_send_frame(server.ch, 1, LARGE), 0);
	fx_loop_until(&client.frames, 1);
	ck_assert_int_eq(fx_send_frame(server.ch, 2, 600), 0);
	wb_chan_close(server.ch);
	fx_loop_until(&client.frames, 2);
	fx_loop_until(&client.closed, 1);
}
END_TEST

static void give_back(void *cookie)
{
	(void)cookie;
	n_given_back++;
}

START_TEST(lent_bytes_arrive_and_are_given_back_once)
{
	uint8_t *f = fx_make_frame(1, LARGE), *g = fx_make_frame(2, LARGE);
	struct wb_lent first = {f + 100, LARGE - 100, give_back, NULL};
	struct wb_lent second = {g, LARGE, give_back, NULL};

	connect_both();
	ck_assert_int_eq(wb_chan_send_lent(server.ch, f, 100, &first), 0);
	ck_assert_int_eq(wb_chan_send_lent(server.ch, NULL, 0, &second), 0);
	ck_assert_int_eq(fx_send_frame(server.ch, 3, 700), 0);
	fx_loop_until(&client.frames, 3);
	fx_loop_until(&n_room, 1);
	ck_assert_int_eq(n_given_back, 2);
	ck_assert_uint_eq(wb_chan_queued(server.ch), 0);
	free(f);
	free(g);
}
END_TEST

START_TEST(lent_bytes_of_a_channel_that_ends_are_given_back)
{
	uint8_t *f = fx_make_frame(1, LARGE);
	struct wb_lent rest = {f, LARGE, give_back, NULL};
	int n = 0, rc = 0;

	connect_both();
	while (rc == 0) {
		rc = wb_chan_send_lent(server.ch, NULL, 0, &rest);
		n += rc == 0;
	}
	ck_assert_int_eq(rc, -EAGAIN); /* not taken */
	ck_assert_int_lt(n_given_back, n);
	client.close_at = 1;
	fx_loop_until(&server.closed, 1);
	ck_assert_int_eq(n_given_back, n);
	free(f);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("net_room");
	TCase *t = tcase_create("room");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, a_frame_that_does_not_grow_is_told_to_the_owner);
	tcase_add_test(t, a_peer_that_does_not_read_is_told_to_the_owner);
	tcase_add_test(t, a_silent_connection_is_left_alone);
	tcase_add_test(t, a_frame_that_is_put_off_comes_when_there_is_room);
	tcase_add_test(t, a_channel_that_puts_off_a_frame_sends_and_closes);
	tcase_add_test(t, lent_bytes_arrive_and_are_given_back_once);
	tcase_add_test(t, lent_bytes_of_a_channel_that_ends_are_given_back);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
