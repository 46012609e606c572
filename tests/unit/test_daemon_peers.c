/* SPDX-License-Identifier: Apache-2.0 */
/* Channels between agents, over channels in memory: what a peer may speak of, and for how long. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/peers.h"
#include "daemon/plans.h"
#include "daemon/staging.h"
#include "daemon/worker.h"
#include "net/chan.h"
#include "net/loop.h"
#include "planner/parts.h"
#include "proto/peers.h"
#include "tests/common/fx_check.h"
#include "tests/common/world.h"

#include <check.h>
#include <errno.h>
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
#define A_UID 0xaaaaaaaaaaaaaaaaull
#define B_UID 0xbbbbbbbbbbbbbbbbull

static struct wb__agent agent;
static struct wire wire;
static struct wb_roster roster[4];

static void add_epoch(struct wb_roster *r, uint64_t uid, uint64_t term, uint64_t number)
{
	static char me[] = "me", x[] = "x", at[] = "h:1";
	static struct wb_roster_agent list[] = {
		{.name = me, .control = at}, {.name = x, .control = at}};
	struct wb_err err = {0};

	*r = (struct wb_roster){.id = {wb_object_id_of(uid), term, number},
		.agent = list,
		.n_agent = 2,
		.patience_ns = 2 * WB_NS_PER_S};
	memset(r->key, (int)(uid + term + 16 * number), sizeof(r->key));
	ck_assert_msg(wb__peers_epoch_add(agent.peers, r, &err) == 0, "%s", err.msg);
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
	add_epoch(&roster[0], A_UID, 1, 1);
	add_epoch(&roster[1], A_UID, 2, 1);
	add_epoch(&roster[2], A_UID, 1, 2);
	add_epoch(&roster[3], B_UID, 1, 1);
}

static void tear_down(void)
{
	struct wb_err none = {0};

	wb__peers_close(agent.peers);
	wire.ch.cb.on_closed(wire.ch.cb.cookie, &wire.ch, &none);
	ck_assert(wb__peers_is_empty(agent.peers));
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(roster); i++)
		wb__peers_epoch_over(agent.peers, &roster[i]);
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
		.object = A_UID,
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
	struct wb_msg_peer m = {
		.uid = A, .term = 1, .number = 1, .kind = WBP_PEER_PREPARE, .transfer = 1};

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
		.object = _i == 0 ? B_UID : A_UID,
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

/* ---- how long a key is good -------------------------------------------------------------------
 *
 * The trainers' agent of a small world: its core, its workers and its transport, with plans and
 * peers of the daemon.  Memory is ready when the test says so.
 */

static struct world w;
static struct wb__plans *plans;
static int room; /* what making room for a plan returns */
static int answer; /* to the last PLAN: 1 = none yet */
static char why[WB_ERR_MSG_MAX];

struct wb__worker *wb__apps_first(const struct wb__apps *a)
{
	(void)a;
	return NULL;
}

int wb__env_arena_use(struct wb__env *e, uint32_t index, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err)
{
	(void)e;
	(void)index;
	(void)bytes;
	(void)object;
	(void)err;
	return 0;
}

int wb__staging_check(
	const struct wb__agent *a, const struct wb__staging_in *in, struct wb_err *err)
{
	(void)a;
	(void)in;
	(void)err;
	return 0;
}

void wb__env_arena_trim(struct wb__env *e, uint32_t index)
{
	(void)e;
	(void)index;
}

int wb__staging_reserve(struct wb__agent *a, const struct wb__staging_in *in, struct wb_err *err)
{
	(void)a;
	(void)in;
	return room ? wb_err_set(err, room, "a test says so") : 0;
}

static uint64_t memory_limit, memory_left;

uint64_t wb__staging_left(const struct wb__agent *a, uint32_t index, uint64_t buffer_bytes)
{
	(void)a;
	(void)index;
	(void)buffer_bytes;
	return memory_limit ? memory_left : UINT64_MAX;
}

uint64_t wb__memory_limit(void)
{
	return memory_limit;
}

int wb__worker_regions_add(struct wb__worker *k, uint64_t object, struct wb_err *err)
{
	(void)k;
	(void)object;
	(void)err;
	return 0;
}

static void on_installed(void *cookie, const struct wb_p_epoch *epoch, struct wb_digest digest,
	const struct wb_err *err)
{
	(void)cookie;
	(void)epoch;
	(void)digest;
	answer = err ? err->code : 0;
	snprintf(why, sizeof(why), "%s", err ? err->msg : "");
}

static void set_object(uint64_t uid)
{
	struct wb_p_object o = {.uid = uid, .transfer_deadline_ns = 1, .step_deadline_ns = 1};
	struct wb_object_id id = wb_object_id_of(uid);

	wb__plans_object(plans, &id, &o, WB_NS_PER_S);
}

static void set_up_plans(void)
{
	const struct world_opts o = {.trainer_agents = 1,
		.trainers_per_agent = 1,
		.engines = 1,
		.agents_per_engine = 1,
		.workers_per_agent = 1};
	const struct wb__plans_cb cb = {.on_installed = on_installed};
	struct wb_err err = {0};

	wb_log_level_max = -1;
	memset(&agent, 0, sizeof(agent));
	wire = (struct wire){.ch.ops = NULL};
	room = 0;
	world_init(&w, &o);
	agent.o.name = w.agent[0].name;
	agent.o.n_served = agent.o.n_rail = 1;
	agent.open_files = 4096;
	agent.core = w.agent[0].core;
	agent.xport = w.agent[0].xport;
	ck_assert_int_eq(wb_loop_create(&agent.loop, &err), 0);
	ck_assert_int_eq(wb__peers_start(&agent, &agent.peers, &err), 0);
	ck_assert_int_eq(wb__plans_create(&agent, 0, &cb, &plans), 0);
	set_object(A_UID);
}

/* The order of the agent's end. */
static void tear_down_plans(void)
{
	struct wb_err none = {0};

	wb__peers_close(agent.peers);
	if (wire.ch.ops)
		wire.ch.cb.on_closed(wire.ch.cb.cookie, &wire.ch, &none);
	wb__plans_destroy(plans);
	agent.xport = NULL;
	world_finish(&w);
	wb__peers_destroy(agent.peers);
	wb_loop_destroy(agent.loop);
}

static void content_comes(enum wb_content kind, const uint8_t *data, const struct wb_plan_slice *s)
{
	struct wb_err err = {0};
	struct wb_msg_content m = {.kind = kind,
		.digest = s->digest,
		.total_bytes = s->bytes,
		.data = (void *)(uintptr_t)(data + s->at),
		.n_data = (uint32_t)s->bytes};

	ck_assert_msg(!wb__plans_content(plans, &m, &err), "%s", err.msg);
}

/* PLAN of epoch 1.@number, over all that there are in the world: from operators of version 1 and 2
 * in turns. */
static void plan_comes(uint64_t number)
{
	bool has_parts = number % 2 == 0;
	struct world_epoch *e = world_epoch_make(&w);
	struct wb_p_endpoint at[2];
	uint32_t of[2] = {0, 1};
	char key[65], engine[] = "e0", *engines[] = {engine};
	struct wb_plan *plan;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_plan_decode(e->bytes, e->len, &plan, &err), 0);
	snprintf(key, sizeof(key), "%064llx", (unsigned long long)number);
	for (uint32_t i = 0; i < 2; i++)
		at[i] = (struct wb_p_endpoint){.agent = w.agent[i].name,
			.host = "127.0.0.1",
			.port = 1,
			.bulk = w.agent[i].endpoint,
			.workers = &of[i],
			.n_workers = 1,
			.ids = &e->worker_id[i],
			.n_ids = 1};
	struct wb_plan_slice whole = {.digest = plan->digest}, *slice;
	struct wb_buf listed;
	int n_slice = wb_plan_slices(e->bytes, e->len, &slice, &err);
	struct wb_msg_plan m = {.object = "default/sim",
		.epoch = {1, number},
		.digest = plan->digest,
		.head = has_parts ? slice[0].digest : (struct wb_digest){0},
		.key = key,
		.agents = at,
		.n_agents = 2,
		.engines = (void *)engines,
		.n_engines = 1};

	answer = 1;
	ck_assert_int_eq(n_slice, 3);
	wb_buf_init(&listed, 1 << 20);
	ck_assert_int_eq(wb_plan_encode(plan, &listed), 0);
	whole.bytes = listed.len;
	if (has_parts) {
		content_comes(WB_CONTENT_HEAD, e->bytes, &slice[0]);
		content_comes(WB_CONTENT_PART, e->bytes, &slice[1]);
	} else {
		content_comes(WB_CONTENT_PLAN, listed.data, &whole);
	}
	wb__plans_plan(plans, &m);
	wb_buf_finish(&listed);
	wb_free(slice);
	wb_plan_destroy(plan);
}

static void activate(uint64_t number)
{
	struct wb_msg_activate m = {.object = "default/sim", .epoch = {1, number}};

	wb__plans_activate(plans, &m);
}

/* Is the key good for whoever dials in, for tickets, and for bulk connections?  In all or none. */
static bool is_good_of(uint64_t uid, uint64_t number)
{
	struct wb_epoch_id of = {wb_object_id_of(uid), 1, number};
	struct wb_xport_peer to = {
		.name = w.agent[1].name, .endpoint = w.agent[1].endpoint, .epoch = &of};
	struct wb_err err = {0};
	struct wb_psk psk;
	wb_conn_t conn;
	char id[WB_PSK_ID_MAX];
	bool is_here, is_there;

	snprintf(id, sizeof(id), "%s/1/%llu", of.object.text, (unsigned long long)number);
	is_here = wb__peers_psk_find(agent.peers, id, &psk) == 0;
	is_there = wb_xport_connect(agent.xport, &to, &conn, &err) != -ENOENT;
	ck_assert_int_eq(is_here, is_there);
	return is_here;
}

static bool is_good(uint64_t number)
{
	return is_good_of(A_UID, number);
}

/* The other agent dials in with the key of epoch 1.1. */
static void other_comes_up(void)
{
	struct wb_msg_peer_hello hello = {.version_min = WBP_VERSION_MIN,
		.version_max = WBP_VERSION_MAX,
		.agent = w.agent[1].name,
		.to = w.agent[0].name,
		.object = A_UID,
		.epoch = {1, 1}};

	wire = (struct wire){.ch.ops = &wire_ops, .key = A "/1/1"};
	wb__peers_accept(agent.peers, &wire.ch);
	say(&wire, WBP_PEER_HELLO, &hello);
	ck_assert_uint_eq(wire.last, WBP_PEER_WELCOME);
}

/* The core goes by two plans; the one before them goes with its channels, and not before. */
START_TEST(an_epochs_key_is_good_as_long_as_the_core_goes_by_it)
{
	plan_comes(1);
	ck_assert_int_eq(answer, 0);
	activate(1);
	other_comes_up();
	plan_comes(2);
	activate(2);
	ck_assert(is_good(1) && is_good(2) && !wire.is_closed);
	plan_comes(3);
	ck_assert(!is_good(1) && is_good(2) && is_good(3) && wire.is_closed);
	plan_comes(4); /* 1.3 was never active */
	ck_assert(is_good(2) && !is_good(3) && is_good(4));
}
END_TEST

enum { TAKEN, REFUSED, REPLACED, LOST, N_ENDS };

/* A transfer by the plan before the newest is in the way of one more. */
START_TEST(a_plan_that_waits_for_a_transfer_has_a_good_key_until_its_answer)
{
	plan_comes(1);
	activate(1);
	world_send(&w, 1); /* the other agent has no plan: it does not answer */
	world_run_for(&w, WB_NS_PER_MS);
	plan_comes(2);
	activate(2);
	plan_comes(3);
	ck_assert_int_eq(answer, 1);
	ck_assert(is_good(1) && is_good(2) && is_good(3));
	if (_i == TAKEN)
		world_run_for(&w, 60 * WB_NS_PER_S);
	else if (_i == REFUSED)
		room = -ENOMEM;
	else if (_i == REPLACED)
		plan_comes(4);
	else
		wb__plans_reset(plans);
	while (_i <= REFUSED && answer == 1)
		(void)wb_loop_run_once(agent.loop, true);
	ck_assert_int_eq(answer, _i == TAKEN ? 0 : _i == REFUSED ? -ENOMEM : 1);
	ck_assert_int_eq(is_good(1), _i != TAKEN);
	ck_assert(is_good(2));
	ck_assert_int_eq(is_good(3), _i == TAKEN);
	ck_assert_int_eq(is_good(4), _i == REPLACED);
}
END_TEST

/* What the core will not have, nobody may use. */
START_TEST(a_plan_that_is_refused_leaves_no_key)
{
	plan_comes(2);
	plan_comes(1); /* older */
	ck_assert_int_eq(answer, WB_ESTALE);
	ck_assert(!is_good(1) && is_good(2));
	w.o.chunk_bytes *= 2; /* another plan of the same epoch */
	plan_comes(2);
	ck_assert_int_eq(answer, -EEXIST);
	ck_assert(is_good(2));
}
END_TEST

/* As long as it is not forgotten; then all of it goes. */
/* A content that is counted and never looked at; of PLAN only the agent reads no more than that. */
static void large_plan_comes(uint64_t head_bytes)
{
	static uint8_t data[1 << 20];
	const struct wb_digest digest = {1, 2};
	struct wb_msg_plan m = {
		.object = "default/sim", .epoch = {1, 9}, .digest = digest, .head = digest};
	struct wb_plan_slice part = {.bytes = 1, .digest = digest};
	struct wb_err err = {0};

	for (uint64_t at = 0; at < head_bytes; at += sizeof(data)) {
		struct wb_msg_content c = {.kind = WB_CONTENT_HEAD,
			.digest = digest,
			.total_bytes = head_bytes,
			.offset = at,
			.data = data,
			.n_data = (uint32_t)WB_MIN(sizeof(data), head_bytes - at)};

		ck_assert_msg(!wb__plans_content(plans, &c, &err), "%s", err.msg);
	}
	content_comes(WB_CONTENT_PART, data, &part);
	answer = 1;
	wb__plans_plan(plans, &m);
}

/* Half of what is left is for a plan, and never less than 16 MiB; the limit is named. */
START_TEST(a_plan_beyond_the_memory_limit_is_refused_with_the_limit)
{
	static const struct {
		uint64_t left, room;
	} c[] = {{64 << 20, 32 << 20}, {20 << 20, 16 << 20}, {0, 16 << 20}};
	char want[400];

	memory_limit = 100 << 20;
	for (size_t i = 0; i < WB_ARRAY_SIZE(c); i++) {
		memory_left = c[i].left;
		large_plan_comes(c[i].room);
		ck_assert_int_eq(answer, -EFBIG);
		snprintf(want, sizeof(want),
			"this agent's part of the plan comes in %llu bytes, and %llu are left for "
			"it: the agent's memory limit of 104857600 bytes leaves no more beside "
			"slots and staging; raise it (chart value baseMemory)",
			(unsigned long long)c[i].room + 1, (unsigned long long)c[i].room);
		ck_assert_str_eq(why, want);
	}
	memory_limit = 0;
	plan_comes(2);
	ck_assert_int_eq(answer, 0);
}
END_TEST

START_TEST(keys_of_a_deleted_object_go_with_it)
{
	plan_comes(1);
	activate(1);
	plan_comes(2);
	set_object(B_UID);
	plan_comes(1);
	ck_assert_int_eq(answer, 0);
	ck_assert(is_good(1) && is_good(2) && is_good_of(B_UID, 1));
	activate(1);
	(void)wb_transfer_tick(agent.core);
	ck_assert(!is_good(1) && !is_good(2) && is_good_of(B_UID, 1));
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
	t = tcase_create("epochs");
	tcase_add_checked_fixture(t, set_up_plans, tear_down_plans);
	tcase_add_test(t, an_epochs_key_is_good_as_long_as_the_core_goes_by_it);
	tcase_add_loop_test(
		t, a_plan_that_waits_for_a_transfer_has_a_good_key_until_its_answer, 0, N_ENDS);
	tcase_add_test(t, a_plan_that_is_refused_leaves_no_key);
	tcase_add_test(t, a_plan_beyond_the_memory_limit_is_refused_with_the_limit);
	tcase_add_test(t, keys_of_a_deleted_object_go_with_it);
	suite_add_tcase(s, t);
	return fx_run(s);
}
