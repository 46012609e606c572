/* SPDX-License-Identifier: Apache-2.0 */
/* Channels between agents, over channels in memory: what a peer may speak of.  The core is a spy.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/env.h"
#include "daemon/peers.h"
#include "net/chan.h"
#include "net/loop.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Comes after each message that the core was given. */
static unsigned n_heard;

void wb__env_kick(struct wb__env *e)
{
	(void)e;
	n_heard++;
}

/* ---- a channel whose peer has proved to hold one key ---- */

struct wire {
	struct wb_chan ch;
	const char *key;
	bool is_closed;
	uint16_t last; /* type of the last frame that was sent to the peer */
};

static int wire_send(struct wb_chan *ch, const void *frame, size_t bytes)
{
	struct wire *w = wb_container_of(ch, struct wire, ch);
	struct wb_frame f;

	ck_assert_int_eq(wb_frame_decode(frame, bytes, &f, NULL), 0);
	w->last = f.type;
	return 0;
}

static void wire_close(struct wb_chan *ch)
{
	wb_container_of(ch, struct wire, ch)->is_closed = true;
}

static const char *wire_peer(const struct wb_chan *ch)
{
	(void)ch;
	return "wire";
}

static const char *wire_identity(const struct wb_chan *ch)
{
	return wb_container_of((struct wb_chan *)(uintptr_t)ch, struct wire, ch)->key;
}

static size_t wire_queued(const struct wb_chan *ch)
{
	(void)ch;
	return 0;
}

static const struct wb_chan_ops wire_ops = {.send = wire_send,
	.close = wire_close,
	.peer = wire_peer,
	.identity = wire_identity,
	.queued = wire_queued};

static void say(struct wire *w, uint16_t type, const void *msg)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type};
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	ck_assert_msg(wb_msg_encode(&f, msg, &b, &err) == 0, "%s", err.msg);
	w->ch.cb.on_frame(w->ch.cb.cookie, &w->ch, b.data, b.len);
	wb_buf_finish(&b);
}

/* ---- agent "me" of two objects, "x" is in all their epochs ---- */

#define A "aaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbb"

static struct wb__agent agent;
static struct wire wire;

static void add_epoch(const char *uid, uint64_t term, uint64_t number)
{
	char me[] = "me", x[] = "x", at[] = "h:1";
	struct wb_roster_agent list[] = {{.name = me, .control = at}, {.name = x, .control = at}};
	struct wb_roster r = {.uid = (char *)(uintptr_t)uid,
		.term = term,
		.number = number,
		.agent = list,
		.n_agent = 2};

	memset(r.key, (int)(uid[0] + term + 16 * number), sizeof(r.key));
	ck_assert_int_eq(wb__peers_epoch_add(agent.peers, &r), 0);
}

static void set_up(void)
{
	static const struct wb_transfer_env env = {.clock = &wb_clock_real};
	struct wb_transfer_opts o = {.agent = "me"};
	struct wb_err err = {0};

	wb_log_level_max = -1;
	memset(&agent, 0, sizeof(agent));
	agent.o.name = "me";
	n_heard = 0;
	ck_assert_int_eq(wb_loop_create(&agent.loop, &err), 0);
	ck_assert_int_eq(wb_transfer_create(&o, &env, &agent.core, &err), 0);
	ck_assert_int_eq(wb__peers_start(&agent, &agent.peers, &err), 0);
	add_epoch(A, 1, 1);
	add_epoch(A, 2, 1);
	add_epoch(A, 1, 2);
	add_epoch(B, 1, 1);
}

static void tear_down(void)
{
	struct wb_err none = {0};

	wb__peers_close(agent.peers);
	wire.ch.cb.on_closed(wire.ch.cb.cookie, &wire.ch, &none);
	ck_assert(wb__peers_is_empty(agent.peers));
	wb__peers_destroy(agent.peers);
	wb_transfer_destroy(agent.core);
	wb_loop_destroy(agent.loop);
}

/* "x" dials in with the key of A's epoch 1.1. */
static void come_up(void)
{
	struct wb_msg_peer_hello hello = {.version_min = WBP_VERSION_MIN,
		.version_max = WBP_VERSION_MAX,
		.agent = "x",
		.to = "me",
		.object = 0xaaaaaaaaaaaaaaaaull,
		.epoch = {1, 1}};

	wire = (struct wire){.ch.ops = &wire_ops, .key = A "/1/1"};
	wb__peers_accept(agent.peers, &wire.ch);
	say(&wire, WBP_PEER_HELLO, &hello);
	ck_assert_uint_eq(wire.last, WBP_PEER_WELCOME);
	ck_assert_uint_eq(wb__peers_n_up(agent.peers), 1);
}

static const struct {
	const char *uid;
	uint64_t term, number;
} others[] = {{B, 1, 1}, {A, 2, 1}, {A, 1, 2}, {"", 1, 1}, {"cc", 1, 1}};

/* It is a member of both objects by name, but has shown the key of one epoch of one of them. */
START_TEST(a_peer_speaks_of_the_epoch_whose_key_it_has_shown_and_of_no_other)
{
	struct wb_msg_peer m = {.uid = A, .term = 1, .number = 1, .kind = 1};

	come_up();
	say(&wire, WBP_PEER, &m);
	ck_assert_uint_eq(n_heard, 1);
	m.uid = others[_i].uid;
	m.term = others[_i].term;
	m.number = others[_i].number;
	say(&wire, WBP_PEER, &m);
	ck_assert_uint_eq(n_heard, 1);
	ck_assert(wire.is_closed);
	m.uid = A; /* what comes after it is not heard, either */
	m.term = m.number = 1;
	say(&wire, WBP_PEER, &m);
	ck_assert_uint_eq(n_heard, 1);
}
END_TEST

/* The hello must be of the key's epoch as well. */
START_TEST(a_hello_of_another_epoch_than_the_keys_is_refused)
{
	struct wb_msg_peer_hello hello = {.version_min = WBP_VERSION_MIN,
		.version_max = WBP_VERSION_MAX,
		.agent = "x",
		.to = "me",
		.object = _i == 0 ? 0xbbbbbbbbbbbbbbbbull : 0xaaaaaaaaaaaaaaaaull,
		.epoch = {1 + (_i == 1), 1 + (_i == 2)}};

	wire = (struct wire){.ch.ops = &wire_ops, .key = A "/1/1"};
	wb__peers_accept(agent.peers, &wire.ch);
	say(&wire, WBP_PEER_HELLO, &hello);
	ck_assert_uint_eq(wire.last, WBP_REJECT);
	ck_assert(wire.is_closed);
	ck_assert_uint_eq(wb__peers_n_up(agent.peers), 0);
}
END_TEST

/* It has shown a key, and holds a place for as long as nobody looks at the clock. */
START_TEST(a_peer_that_says_nothing_is_not_waited_for)
{
	wire = (struct wire){.ch.ops = &wire_ops, .key = A "/1/1"};
	wb__peers_accept(agent.peers, &wire.ch);
	while (!wire.is_closed) /* Check has a deadline */
		(void)wb_loop_run_once(agent.loop, true);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("peers");
	TCase *t = tcase_create("peers");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, a_peer_speaks_of_the_epoch_whose_key_it_has_shown_and_of_no_other, 0,
		(int)WB_ARRAY_SIZE(others));
	tcase_add_loop_test(t, a_hello_of_another_epoch_than_the_keys_is_refused, 0, 3);
	tcase_add_test(t, a_peer_that_says_nothing_is_not_waited_for);
	suite_add_tcase(s, t);
	return fx_run(s);
}
