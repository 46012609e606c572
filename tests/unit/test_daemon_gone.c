/* SPDX-License-Identifier: Apache-2.0 */
/* When an agent is called gone by another one: peers over real sockets, the other side by hand. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/env.h"
#include "daemon/peers.h"
#include "net/internal.h"
#include "net/listen.h"
#include "net/loop.h"
#include "proto/frame.h"
#include "tests/common/fx_check.h"
#include "transfer/core.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define UID 0xaaaaaaaaaaaaaaaaull
#define KEY_ID "aaaaaaaaaaaaaaaa/1/1"

static struct wb__agent agent;
static struct wb_roster roster;
static int n_gone; /* times that the core was told that the peer is */
static int n_up; /* channels that the other side has */
static int n_ended; /* connections that it ended */
static uint64_t begun_ns;
static int said; /* what is logged goes here */

void wb__env_kick(struct wb__env *e)
{
	(void)e;
	n_gone++;
}

static uint64_t since_ns(void)
{
	return wb_now_ns(&wb_clock_real) - begun_ns;
}

/* ---- the other side ---------------------------------------------------------------------------
 */

static struct wb_chan *up;

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	(void)cookie;
	(void)ch;
	(void)why;
	up = NULL;
}

static void on_chan(void *cookie, struct wb_chan *ch)
{
	const struct wb_chan_cb cb = {.on_closed = on_closed};

	(void)cookie;
	n_up++;
	up = ch;
	wb_chan_bind(ch, &cb);
}

static int find_key(void *cookie, const char *id, struct wb_psk *out)
{
	if (strcmp(id, cookie))
		return -ENOENT;
	*out = (struct wb_psk){.bytes = sizeof(roster.key)};
	strcpy(out->id, id);
	memcpy(out->key, roster.key, sizeof(roster.key));
	return 0;
}

/* A process that knows one key, by this name. */
static struct wb_listener *serve(const char *key_id, uint16_t port)
{
	struct wb_tls_opts t = {
		.mode = WB_TLS_PSK, .psk_find = find_key, .psk_cookie = (void *)(uintptr_t)key_id};
	struct wb_listen_opts o = {.host = "127.0.0.1", .port = port};
	const struct wb_listen_cb cb = {.on_chan = on_chan};
	struct wb_listener *l;
	struct wb_err err = {0};

	o.limits.framer = wb_frame_length;
	ck_assert_int_eq(wb_tls_server_create(&t, &o.tls, &err), 0);
	ck_assert_msg(wb_listen(agent.loop, &o, &cb, &l, &err) == 0, "%s", err.msg);
	wb_tls_put(o.tls);
	return l;
}

/* One that has no time for anybody: its machine takes connections, and it ends them. */
struct busy {
	int fd;
	uint16_t port;
	struct wb_watch *watch;
};

static void end_it(void *cookie, int events)
{
	const struct busy *b = cookie;
	int fd = accept(b->fd, NULL, NULL);

	(void)events;
	ck_assert_int_ge(fd, 0);
	close(fd);
	n_ended++;
}

static void busy_open(struct busy *b, bool ends)
{
	struct wb_err err = {0};

	ck_assert_int_eq(wb__tcp_bind("busy", "127.0.0.1", 0, &b->fd, &b->port, &err), 0);
	b->watch = NULL;
	if (ends)
		ck_assert_int_eq(
			wb_watch_create(agent.loop, b->fd, WB_READABLE, end_it, b, &b->watch), 0);
}

static void busy_close(struct busy *b)
{
	wb_watch_destroy(b->watch);
	close(b->fd);
}

/* ---- this side ---------------------------------------------------------------------------------
 */

static void set_up(void)
{
	static const struct wb_transfer_env env = {.clock = &wb_clock_real};
	struct wb_transfer_opts o = {.agent = "me"};
	struct wb_err err = {0};

	memset(&agent, 0, sizeof(agent));
	agent.o.name = "me";
	n_gone = n_up = n_ended = 0;
	up = NULL;
	said = memfd_create("said", MFD_CLOEXEC);
	ck_assert_int_eq(wb_log_setup("text", "warn"), 0);
	ck_assert_int_eq(dup2(said, STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(wb_loop_create(&agent.loop, &err), 0);
	ck_assert_int_eq(wb_transfer_create(&o, &env, &agent.core, &err), 0);
	ck_assert_int_eq(wb__peers_start(&agent, &agent.peers, &err), 0);
}

/* A message for "x", which is at this port. */
static void speak(uint16_t port, uint64_t patience_ns)
{
	static char me[] = "me", x[] = "x", mine[] = "127.0.0.1:1", at[32];
	static struct wb_roster_agent list[] = {
		{.name = me, .control = mine}, {.name = x, .control = at}};
	struct wb_msg_peer m = {.uid = "aaaaaaaaaaaaaaaa", .term = 1, .number = 1};
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = WBP_PEER};
	struct wb_err err = {0};
	struct wb_buf b;

	snprintf(at, sizeof(at), "127.0.0.1:%u", port);
	roster = (struct wb_roster){.id = {wb_object_id_of(UID), 1, 1},
		.agent = list,
		.n_agent = 2,
		.patience_ns = patience_ns};
	memset(roster.key, 7, sizeof(roster.key));
	ck_assert_msg(wb__peers_epoch_add(agent.peers, &roster, &err) == 0, "%s", err.msg);
	wb_buf_init(&b, 1 << 20);
	ck_assert_int_eq(wb_msg_encode(&f, &m, &b, &err), 0);
	begun_ns = wb_now_ns(&wb_clock_real);
	wb__peers_send(agent.peers, &roster, 1, NULL, b.data, b.len);
	wb_buf_finish(&b);
}

static void is_said(const char *what)
{
	char text[4096] = "";
	ssize_t n = pread(said, text, sizeof(text) - 1, 0);

	ck_assert_int_ge(n, 0);
	ck_assert_msg(strstr(text, what) != NULL, "no '%s' in: %s", what, text);
}

static void tear_down(void)
{
	wb__peers_close(agent.peers);
	if (up)
		wb_chan_close(up);
	while (!wb__peers_is_empty(agent.peers) || up)
		wb_loop_run_once(agent.loop, true);
	wb__peers_epoch_over(agent.peers, &roster);
	wb__peers_destroy(agent.peers);
	wb_transfer_destroy(agent.core);
	wb_loop_destroy(agent.loop);
	close(said);
}

/* For longer than a process that began anew is given: the message arrives when it has time. */
START_TEST(a_peer_that_ends_what_is_being_opened_is_busy_and_not_gone)
{
	struct wb_listener *l;
	struct busy b;

	busy_open(&b, true);
	speak(b.port, 60 * WB_NS_PER_S);
	while (!n_gone && (n_ended < 3 || since_ns() < 1500 * WB_NS_PER_MS))
		wb_loop_run_once(agent.loop, true);
	busy_close(&b);
	l = serve(KEY_ID, b.port);
	while (!n_gone && !n_up)
		wb_loop_run_once(agent.loop, true);
	ck_assert_int_eq(n_gone, 0);
	wb_listener_close(l);
}
END_TEST

/* Its machine takes the connection, and nothing comes. */
START_TEST(a_peer_that_says_nothing_is_borne_with_as_long_as_the_plan_says)
{
	struct busy b;

	busy_open(&b, false);
	speak(b.port, 1500 * WB_NS_PER_MS);
	while (!n_gone)
		wb_loop_run_once(agent.loop, true);
	ck_assert_uint_ge(since_ns(), 1400 * WB_NS_PER_MS);
	is_said("agent x at 127.0.0.1:");
	is_said("(spec.heartbeatTimeoutSeconds");
	is_said("has not been heard for ");
	busy_close(&b);
}
END_TEST

START_TEST(where_nobody_listens_a_peer_is_gone_soon)
{
	struct busy b;

	busy_open(&b, false);
	busy_close(&b);
	speak(b.port, 60 * WB_NS_PER_S);
	while (!n_gone)
		wb_loop_run_once(agent.loop, true);
	ck_assert_uint_lt(since_ns(), 60 * WB_NS_PER_S);
	is_said("nobody listens there");
}
END_TEST

/* It answers, and has nothing of the one that was there. */
START_TEST(a_process_that_began_anew_is_not_the_peer)
{
	struct wb_listener *l = serve("another/1/1", 0);

	speak(wb_listener_port(l), 60 * WB_NS_PER_S);
	while (!n_gone)
		wb_loop_run_once(agent.loop, true);
	ck_assert_uint_lt(since_ns(), 60 * WB_NS_PER_S);
	wb_listener_close(l);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gone");
	TCase *t = tcase_create("gone");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 50);
	tcase_add_test(t, a_peer_that_ends_what_is_being_opened_is_busy_and_not_gone);
	tcase_add_test(t, a_peer_that_says_nothing_is_borne_with_as_long_as_the_plan_says);
	tcase_add_test(t, where_nobody_listens_a_peer_is_gone_soon);
	tcase_add_test(t, a_process_that_began_anew_is_not_the_peer);
	suite_add_tcase(s, t);
	return fx_run(s);
}
