/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated net: messages, timers, faults, and that a seed is a run. */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "tests/common/fx_check.h"
#include "tests/common/sim.h"
#include "xport/xport.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct box {
	struct wb_sim_net *net;
	int n, n_down, n_ready;
	uint32_t got[1000];
	uint64_t at[1000];
	char from[64], down[64];
};

static void on_message(void *ctx, const char *from, const void *data, size_t bytes)
{
	struct box *b = ctx;

	ck_assert_uint_eq(bytes, 4);
	ck_assert_int_lt(b->n, 1000);
	b->at[b->n] = wb_now_ns(wb_sim_clock(b->net));
	memcpy(&b->got[b->n++], data, 4);
	snprintf(b->from, sizeof(b->from), "%s", from);
}

static void on_down(void *ctx, const char *peer)
{
	struct box *b = ctx;

	b->n_down++;
	snprintf(b->down, sizeof(b->down), "%s", peer);
}

static void on_ready(void *ctx)
{
	((struct box *)ctx)->n_ready++;
}

static const struct wb_sim_node_ops box_ops = {on_message, on_down, on_ready};

static struct wb_sim_net *net_with(struct box *a, struct box *b, uint64_t seed)
{
	struct wb_sim_opts o = {.seed = seed, .jitter_ns = 50000};
	struct wb_sim_net *net;

	memset(a, 0, sizeof(*a));
	memset(b, 0, sizeof(*b));
	ck_assert_int_eq(wb_sim_net_create(&o, &net), 0);
	ck_assert_int_eq(wb_sim_node_add(net, "a", &box_ops, a), 0);
	ck_assert_int_eq(wb_sim_node_add(net, "b", &box_ops, b), 0);
	ck_assert_int_eq(wb_sim_node_add(net, "a", &box_ops, a), -EEXIST);
	a->net = b->net = net;
	return net;
}

static void send(struct wb_sim_net *net, const char *from, const char *to, uint32_t v)
{
	ck_assert_int_eq(wb_sim_send(net, from, to, &v, sizeof(v)), 0);
}

START_TEST(messages_keep_their_order)
{
	struct box a, b;
	struct wb_sim_net *net = net_with(&a, &b, 1);
	struct wb_sim_fault f = {.kind = WB_SIM_DELAY, .ns = WB_NS_PER_MS};

	wb_sim_fault_add(net, &f);
	for (uint32_t i = 0; i < 500; i++)
		send(net, "a", "b", i);
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(b.n, 500);
	for (uint32_t i = 0; i < 500; i++)
		ck_assert_uint_eq(b.got[i], i);
	ck_assert_str_eq(b.from, "a");
	ck_assert_uint_eq(wb_sim_hits(net), 500);
	wb_sim_net_destroy(net);
}
END_TEST

START_TEST(messages_are_overtaken_only_by_a_rule)
{
	struct box a, b;
	struct wb_sim_net *net = net_with(&a, &b, 1);
	struct wb_sim_fault f = {.kind = WB_SIM_REORDER, .ns = WB_NS_PER_MS, .nth = 3};
	struct wb_sim_fault twice = {.kind = WB_SIM_DUP, .nth = 3};

	wb_sim_fault_add(net, &f);
	if (_i)
		wb_sim_fault_add(net, &twice);
	for (uint32_t i = 1; i <= 4; i++)
		send(net, "a", "b", i);
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(b.n, 4 + _i);
	ck_assert_uint_eq(b.got[0], 1);
	ck_assert_uint_eq(b.got[1], 2);
	ck_assert_uint_eq(b.got[2 + _i], 4);
	ck_assert_uint_eq(b.got[3 + _i], 3);
	wb_sim_net_destroy(net);
}
END_TEST

START_TEST(drop_loses_what_is_under_way_and_tells_both)
{
	struct box a, b;
	struct wb_sim_net *net = net_with(&a, &b, 1);
	struct wb_sim_fault f = {.kind = WB_SIM_DROP, .nth = 3, .from = "a"};

	wb_sim_fault_add(net, &f);
	for (uint32_t i = 0; i < 3; i++)
		send(net, "a", "b", i);
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(b.n, 0);
	ck_assert_int_eq(a.n_down, 1);
	ck_assert_int_eq(b.n_down, 1);
	ck_assert_str_eq(a.down, "b");
	send(net, "a", "b", 9);
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(b.n, 1);
	ck_assert_uint_eq(b.got[0], 9);
	wb_sim_net_destroy(net);
}
END_TEST

START_TEST(dup_stall_and_partition)
{
	struct box a, b;
	struct wb_sim_net *net = net_with(&a, &b, 1);
	uint64_t t0 = wb_now_ns(wb_sim_clock(net));
	struct wb_sim_fault dup = {.kind = WB_SIM_DUP, .nth = 1},
			    stall = {.kind = WB_SIM_STALL, .nth = 2, .ns = WB_NS_PER_S},
			    part = {.kind = WB_SIM_PARTITION,
				    .from = "b",
				    .until_ns = t0 + 5 * WB_NS_PER_S};

	wb_sim_fault_add(net, &dup);
	wb_sim_fault_add(net, &stall);
	wb_sim_fault_add(net, &part);
	send(net, "a", "b", 1); /* doubled */
	send(net, "a", "b", 2); /* b stands still from here */
	send(net, "b", "a", 3); /* waits for the end of the partition */
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(b.n, 3);
	ck_assert(b.got[0] == 1 && b.got[1] == 1 && b.got[2] == 2);
	ck_assert_uint_ge(b.at[0], t0 + WB_NS_PER_S);
	ck_assert_int_eq(a.n, 1);
	ck_assert_uint_ge(a.at[0], t0 + 5 * WB_NS_PER_S);
	wb_sim_net_destroy(net);
}
END_TEST

/* What is sent from some to others waits, the answers do not; the rule counts its own. */
START_TEST(a_partition_may_be_one_way_between_groups)
{
	struct box a, b, e1, e2;
	struct wb_sim_net *net = net_with(&a, &b, 1);
	uint64_t t0 = wb_now_ns(wb_sim_clock(net)), hits = 0;
	struct wb_sim_fault part = {.kind = WB_SIM_PARTITION,
		.from = "e1-*",
		.to = "b*",
		.until_ns = t0 + 5 * WB_NS_PER_S,
		.hits = &hits};

	memset(&e1, 0, sizeof(e1));
	memset(&e2, 0, sizeof(e2));
	e1.net = e2.net = net;
	ck_assert_int_eq(wb_sim_node_add(net, "e1-0", &box_ops, &e1), 0);
	ck_assert_int_eq(wb_sim_node_add(net, "e10-0", &box_ops, &e2), 0);
	wb_sim_fault_add(net, &part);
	send(net, "e1-0", "b", 1); /* waits */
	send(net, "b", "e1-0", 2);
	send(net, "e1-0", "a", 3);
	send(net, "e10-0", "b", 4);
	while (wb_sim_step(net))
		;
	ck_assert(b.n == 2 && b.got[0] == 4 && b.got[1] == 1);
	ck_assert_uint_lt(b.at[0], t0 + WB_NS_PER_S);
	ck_assert_uint_ge(b.at[1], t0 + 5 * WB_NS_PER_S);
	ck_assert(e1.n == 1 && a.n == 1);
	ck_assert_uint_lt(e1.at[0], t0 + WB_NS_PER_S);
	ck_assert_uint_lt(a.at[0], t0 + WB_NS_PER_S);
	ck_assert_uint_eq(hits, 1);
	wb_sim_net_destroy(net);
}
END_TEST

START_TEST(killed_node_is_silent_and_peers_hear)
{
	struct box a, b, c = {0};
	struct wb_sim_net *net = net_with(&a, &b, 1);

	send(net, "a", "b", 1);
	while (wb_sim_step(net))
		;
	send(net, "a", "b", 2);
	wb_sim_node_kill(net, "b");
	send(net, "a", "b", 3);
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(b.n, 1);
	ck_assert_int_eq(a.n_down, 2); /* the kill, and the message to nobody */
	c.net = net;
	ck_assert_int_eq(wb_sim_node_add(net, "b", &box_ops, &c), 0);
	send(net, "a", "b", 4);
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(b.n, 1);
	ck_assert_int_eq(c.n, 1);
	ck_assert_int_eq(wb_sim_send(net, "nobody", "a", "x", 1), -ENOENT);
	wb_sim_net_destroy(net);
}
END_TEST

static int fired[8], n_fired;

static void fire(void *ctx)
{
	fired[n_fired++] = (int)(intptr_t)ctx;
}

START_TEST(timers_fire_in_time_order_and_cancel)
{
	struct box a, b;
	struct wb_sim_net *net = net_with(&a, &b, 1);
	uint64_t t0 = wb_now_ns(wb_sim_clock(net)), id;

	n_fired = 0;
	wb_sim_timer(net, t0 + 300, fire, (void *)3);
	wb_sim_timer(net, t0 + 100, fire, (void *)1);
	id = wb_sim_timer(net, t0 + 150, fire, (void *)9);
	wb_sim_timer(net, t0 + 200, fire, (void *)2);
	wb_sim_timer(net, 0, fire, (void *)7);
	ck_assert_int_eq(n_fired, 0);
	wb_sim_timer_cancel(net, id);
	wb_sim_timer_cancel(net, 12345);
	ck_assert_uint_eq(wb_sim_run(net, t0 + 250), 3);
	ck_assert_uint_eq(wb_now_ns(wb_sim_clock(net)), t0 + 250);
	while (wb_sim_step(net))
		;
	ck_assert_int_eq(n_fired, 4);
	ck_assert(fired[0] == 7 && fired[1] == 1 && fired[2] == 2 && fired[3] == 3);
	wb_sim_net_destroy(net);
}
END_TEST

/* ---- bulk -------------------------------------------------------------------------------------
 */

#define NODES 4
#define CHUNK 300001
#define GRANTS 12

static const struct wb_xport_epoch epoch = {.id = {{.uid = 1, .hash = 1}, 1, 1}, .key = {7}};
static uint8_t memory[NODES][CHUNK], landing[NODES][CHUNK];

struct soak {
	struct wb_sim_net *net;
	struct wb_xport *x[NODES];
	wb_conn_t conn[NODES][NODES]; /* dialled by [i] to [j]; 0 = none */
	int asked[NODES], ended[NODES][GRANTS];
	struct iovec land[NODES];
	int write_ended[NODES][4096], n_write[NODES];
	uint64_t trace;
	bool is_dead[NODES];
};

static void note(struct soak *s, uint64_t v)
{
	s->trace = wb_mix64(s->trace ^ v);
}

static void dial(struct soak *s, int i, int j)
{
	char name[2] = {(char)('a' + j)}, endpoint[8];
	struct wb_xport_peer p = {.name = name, .endpoint = endpoint, .epoch = &epoch.id};
	struct wb_err err = {0};

	snprintf(endpoint, sizeof(endpoint), "sim:%s", name);
	ck_assert_int_eq(wb_xport_connect(s->x[i], &p, &s->conn[i][j], &err), 0);
}

static void answer(struct soak *s, int i, const struct wb_xport_event *e)
{
	struct iovec *v = &s->land[i]; /* same memory, any chunk */
	struct wb_xport_write w = {
		.grant = e->grant, .cookie = (uint64_t)s->n_write[i], .iov = v, .n_iov = 1};

	if (wb_rng_below(wb_sim_rng(s->net), 5) == 0) {
		wb_xport_refuse(s->x[i], e->conn, e->grant, -EBUSY);
		return;
	}
	if (!wb_xport_write(s->x[i], e->conn, &w))
		s->n_write[i]++;
}

static void take(struct soak *s, int i)
{
	struct wb_xport_event ev[4];
	int n;

	do {
		n = wb_xport_poll(s->x[i], ev, 4);
		for (int k = 0; k < n; k++) {
			note(s, ev[k].kind * 1000003u + ev[k].cookie + ev[k].at_ns);
			switch (ev[k].kind) {
			case WB_XP_GRANT:
				answer(s, i, &ev[k]);
				break;
			case WB_XP_ARRIVED:
			case WB_XP_REFUSED:
			case WB_XP_CANCELLED:
			case WB_XP_LOST:
				s->ended[i][ev[k].cookie]++;
				break;
			case WB_XP_WRITE_DONE:
				s->write_ended[i][ev[k].cookie]++;
				break;
			case WB_XP_CONN_DOWN:
				for (int j = 0; j < NODES; j++) {
					if (s->conn[i][j] == ev[k].conn)
						s->conn[i][j] = 0;
				}
				break;
			default:
				break;
			}
		}
	} while (n == 4);
}

static void act(struct soak *s)
{
	struct wb_rng *r = wb_sim_rng(s->net);
	int i = (int)wb_rng_below(r, NODES), j = (int)wb_rng_below(r, NODES);
	struct wb_xport_grant g = {.cookie = (uint64_t)s->asked[i],
		.chunk = {.bytes = CHUNK},
		.iov = &(struct iovec){landing[i], CHUNK},
		.n_iov = 1};
	static struct iovec lists[NODES];

	lists[i] = (struct iovec){landing[i], CHUNK};
	g.iov = &lists[i];
	if (i == j || s->is_dead[i])
		return;
	if (!s->conn[i][j]) {
		dial(s, i, j);
	} else if (wb_rng_below(r, 30) == 0) {
		wb_xport_disconnect(s->x[i], s->conn[i][j]);
	} else if (wb_rng_below(r, 20) == 0 && s->asked[i]) {
		wb_xport_cancel(s->x[i], s->conn[i][j], wb_rng_below(r, s->asked[i]));
	} else if (s->asked[i] < GRANTS && !wb_xport_grant(s->x[i], s->conn[i][j], &g)) {
		s->asked[i]++;
	}
}

static const struct soak_kind {
	uint32_t caps, n_rail;
} soak_kinds[] = {{0, 1}, {WB_XPORT_CAP_REGIONS, 1}, {WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_LOCAL, 1},
	{0, 3}, {WB_XPORT_CAP_LOCAL, 2}};
static struct wb_sim_counts soak_counts; /* of all so far */

static void soak_count(const struct wb_sim_net *net)
{
	const struct wb_sim_counts *n = wb_sim_counts(net);

	soak_counts.overtaken += n->overtaken;
	soak_counts.in_regions += n->in_regions;
	soak_counts.pulled += n->pulled;
}

static uint64_t soak(uint64_t seed, const struct soak_kind *kind)
{
	struct wb_sim_opts o = {
		.seed = seed, .jitter_ns = 100000, .bytes_per_s = 1000000000, .caps = kind->caps};
	struct wb_xport_rail rail[3] = {{0}, {.rate_bytes_per_s = 50000000}, {0}};
	struct soak *s = calloc(1, sizeof(*s));
	struct wb_rng r = {seed};
	struct wb_err err = {0};
	uint64_t trace;
	char endpoint[64];

	ck_assert_int_eq(wb_sim_net_create(&o, &s->net), 0);
	for (int i = 0; i < NODES; i++) {
		char name[2] = {(char)('a' + i)};
		struct wb_xport_opts xo = {
			.name = name, .rail = rail, .n_rail = kind->n_rail, .medium = s->net};
		struct wb_xport_region region = {
			.object = epoch.id.object.hash, .base = memory[i], .bytes = CHUNK};
		uint32_t id;

		s->land[i] = (struct iovec){memory[i], CHUNK};
		ck_assert_int_eq(wb_xport_open("sim", &xo, &s->x[i], &err), 0);
		ck_assert_int_eq(wb_xport_region_add(s->x[i], &region, &id, &err), 0);
		wb_xport_epoch_add(s->x[i], &epoch, &err);
		wb_xport_listen(s->x[i], endpoint, sizeof(endpoint), &err);
	}
	for (int k = 0; k < 4; k++) {
		struct wb_sim_fault f = {.kind = (enum wb_sim_fault_kind)wb_rng_below(&r, 6),
			.ppm = 1 + (uint32_t)wb_rng_below(&r, 30000),
			.ns = 5 * WB_NS_PER_MS,
			.until_ns = 2 * WB_NS_PER_S};

		wb_sim_fault_add(s->net, &f);
	}
	for (int step = 0; step < 600; step++) {
		act(s);
		if (wb_rng_below(&r, 400) == 0) {
			int i = (int)wb_rng_below(&r, NODES);
			char name[2] = {(char)('a' + i)};

			s->is_dead[i] = true;
			wb_sim_node_kill(s->net, name);
		}
		for (int k = 0; k < 5; k++)
			wb_sim_step(s->net);
		for (int i = 0; i < NODES; i++)
			take(s, i);
	}
	do {
		for (int i = 0; i < NODES; i++)
			take(s, i);
	} while (wb_sim_step(s->net));
	for (int i = 0; i < NODES; i++) { /* what is still open ends with its connection */
		for (int j = 0; j < NODES; j++) {
			if (s->conn[i][j])
				wb_xport_disconnect(s->x[i], s->conn[i][j]);
		}
		take(s, i);
	}
	do {
		for (int i = 0; i < NODES; i++)
			take(s, i);
	} while (wb_sim_step(s->net));
	for (int i = 0; i < NODES; i++) {
		for (int k = 0; k < s->asked[i]; k++)
			ck_assert_msg(s->ended[i][k] == 1 || (s->is_dead[i] && !s->ended[i][k]),
				"seed %llu: grant %d of %d ended %d times",
				(unsigned long long)seed, k, i, s->ended[i][k]);
		for (int k = 0; k < s->n_write[i]; k++)
			ck_assert_msg(s->write_ended[i][k] == 1 ||
					      (s->is_dead[i] && !s->write_ended[i][k]),
				"seed %llu: write %d of %d ended %d times",
				(unsigned long long)seed, k, i, s->write_ended[i][k]);
	}
	for (int i = 0; i < NODES; i++)
		wb_xport_close(s->x[i]);
	note(s, wb_now_ns(wb_sim_clock(s->net)));
	trace = s->trace;
	soak_count(s->net);
	wb_sim_net_destroy(s->net);
	free(s);
	return trace;
}

START_TEST(every_grant_and_write_ends_once_whatever_breaks)
{
	const struct soak_kind *kind = &soak_kinds[_i];

	memset(&soak_counts, 0, sizeof(soak_counts));
	for (uint64_t seed = 1; seed <= 30; seed++)
		soak(seed, kind);
	ck_assert_int_eq(soak_counts.overtaken > 0, kind->n_rail > 1);
	ck_assert_int_eq(soak_counts.in_regions > 0, kind->caps & WB_XPORT_CAP_REGIONS ? 1 : 0);
	ck_assert_int_eq(soak_counts.pulled > 0, kind->caps & WB_XPORT_CAP_LOCAL ? 1 : 0);
}
END_TEST

START_TEST(a_seed_is_a_run)
{
	ck_assert_uint_eq(soak(77, soak_kinds), soak(77, soak_kinds));
	ck_assert_uint_ne(soak(77, soak_kinds), soak(78, soak_kinds));
}
END_TEST

/* A net of one host where regions are required: what lies in none is not sent, and what is sent
 * stays the source's until the receiver has taken it. */
START_TEST(a_receiver_takes_what_a_region_holds)
{
	struct wb_sim_opts o = {.seed = 1, .caps = WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_LOCAL};
	static uint8_t from[2][64], to[64];
	struct wb_xport_region r = {.object = epoch.id.object.hash, .base = from[0], .bytes = 64};
	struct wb_xport_rail rail = {0};
	struct wb_sim_net *net;
	struct wb_xport *x[2];
	struct wb_err err = {0};
	struct iovec v = {from[1], 64}, land = {to, 64};
	struct wb_xport_peer p = {.name = "a", .endpoint = "sim:a", .epoch = &epoch.id};
	struct wb_xport_grant g = {.chunk = {.bytes = 64}, .iov = &land, .n_iov = 1};
	bool arrived = false, done = false;
	char endpoint[64];
	wb_conn_t conn;
	uint32_t id;

	ck_assert_int_eq(wb_sim_net_create(&o, &net), 0);
	for (int i = 0; i < 2; i++) {
		struct wb_xport_opts xo = {
			.name = i ? "b" : "a", .rail = &rail, .n_rail = 1, .medium = net};

		ck_assert_int_eq(wb_xport_open("sim", &xo, &x[i], &err), 0);
		wb_xport_epoch_add(x[i], &epoch, &err);
		wb_xport_listen(x[i], endpoint, sizeof(endpoint), &err);
	}
	ck_assert_uint_eq(wb_xport_caps(x[0]), WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_LOCAL);
	ck_assert_int_eq(wb_xport_region_add(x[0], &r, &id, &err), 0);
	ck_assert_int_eq(wb_xport_connect(x[1], &p, &conn, &err), 0);
	while (!done) {
		struct wb_xport_event ev;

		ck_assert(wb_sim_step(net));
		while (wb_xport_poll(x[1], &ev, 1)) {
			if (ev.kind == WB_XP_CONN_UP)
				ck_assert_int_eq(wb_xport_grant(x[1], conn, &g), 0);
			arrived |= ev.kind == WB_XP_ARRIVED;
		}
		while (wb_xport_poll(x[0], &ev, 1)) {
			struct wb_xport_write w = {.grant = ev.grant, .iov = &v, .n_iov = 1};

			done |= ev.kind == WB_XP_WRITE_DONE;
			if (ev.kind != WB_XP_GRANT)
				continue;
			v.iov_base = from[1];
			ck_assert_int_eq(wb_xport_write(x[0], ev.conn, &w), -EINVAL);
			v.iov_base = from[0];
			ck_assert_int_eq(wb_xport_write(x[0], ev.conn, &w), 0);
			ck_assert_int_eq(wb_xport_region_remove(x[0], id), -EBUSY);
		}
		if (!arrived) /* until the receiver hears of it, it may change */
			from[0][5]++;
		ck_assert(arrived || !done);
	}
	ck_assert_uint_eq(wb_sim_counts(net)->outside, 1);
	ck_assert_uint_eq(to[5], from[0][5]);
	ck_assert_uint_gt(to[5], 2);
	ck_assert_int_eq(wb_xport_region_remove(x[0], id), 0);
	for (int i = 0; i < 2; i++)
		wb_xport_close(x[i]);
	wb_sim_net_destroy(net);
}
END_TEST

/* Two sources at 1 GB/s each, one receiver at 1 GB/s: its ingress sets the time. */
START_TEST(ingress_is_shared)
{
	struct wb_sim_opts o = {.seed = 1};
	struct wb_sim_net *net;
	struct wb_xport *x[3];
	struct wb_xport_event ev[16];
	struct wb_err err = {0};
	static uint8_t bytes[2][8 << 20];
	struct iovec v[2];
	wb_conn_t conn[2];
	char endpoint[3][64];
	int arrived = 0, up = 0;
	uint64_t t0 = 0, ms;

	ck_assert_int_eq(wb_sim_net_create(&o, &net), 0);
	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('a' + i)};
		struct wb_xport_rail rail = {.rate_bytes_per_s = 1000000000};
		struct wb_xport_opts xo = {.name = name, .rail = &rail, .n_rail = 1, .medium = net};

		ck_assert_int_eq(wb_xport_open("sim", &xo, &x[i], &err), 0);
		wb_xport_epoch_add(x[i], &epoch, &err);
		wb_xport_listen(x[i], endpoint[i], sizeof(endpoint[i]), &err);
	}
	for (int i = 0; i < 2; i++) {
		char name[2] = {(char)('a' + i)};
		struct wb_xport_peer p = {
			.name = name, .endpoint = endpoint[i], .epoch = &epoch.id};

		v[i] = (struct iovec){bytes[i], sizeof(bytes[i])};
		ck_assert_int_eq(wb_xport_connect(x[2], &p, &conn[i], &err), 0);
	}
	while (arrived < 2) {
		ck_assert(wb_sim_step(net));
		for (int i = 0; i < 3; i++) {
			int n = wb_xport_poll(x[i], ev, 16);

			for (int k = 0; k < n; k++) {
				struct wb_xport_write w = {
					.grant = ev[k].grant, .iov = &v[i], .n_iov = 1};

				if (ev[k].kind == WB_XP_GRANT)
					wb_xport_write(x[i], ev[k].conn, &w);
				arrived += ev[k].kind == WB_XP_ARRIVED;
				up += i == 2 && ev[k].kind == WB_XP_CONN_UP;
			}
		}
		for (int i = 0; up == 2 && i < 2; i++) {
			struct wb_xport_grant g = {
				.chunk = {.bytes = sizeof(bytes[i])}, .iov = &v[i], .n_iov = 1};

			ck_assert_int_eq(wb_xport_grant(x[2], conn[i], &g), 0);
			t0 = wb_now_ns(wb_sim_clock(net));
		}
		up = up == 2 ? 3 : up;
	}
	ms = (wb_now_ns(wb_sim_clock(net)) - t0) / WB_NS_PER_MS;
	ck_assert_uint_ge(ms, 16);
	ck_assert_uint_le(ms, 18);
	for (int i = 0; i < 3; i++)
		wb_xport_close(x[i]);
	wb_sim_net_destroy(net);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim");
	TCase *c = tcase_create("sim");

	suite_add_tcase(s, c);
	tcase_add_test(c, messages_keep_their_order);
	tcase_add_loop_test(c, messages_are_overtaken_only_by_a_rule, 0, 2);
	tcase_add_test(c, drop_loses_what_is_under_way_and_tells_both);
	tcase_add_test(c, dup_stall_and_partition);
	tcase_add_test(c, a_partition_may_be_one_way_between_groups);
	tcase_add_test(c, killed_node_is_silent_and_peers_hear);
	tcase_add_test(c, timers_fire_in_time_order_and_cancel);
	tcase_add_loop_test(c, every_grant_and_write_ends_once_whatever_breaks, 0,
		(int)WB_ARRAY_SIZE(soak_kinds));
	tcase_add_test(c, a_receiver_takes_what_a_region_holds);
	tcase_add_test(c, a_seed_is_a_run);
	tcase_add_test(c, ingress_is_shared);
	return fx_run(s);
}
