/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs transport on a libibverbs whose devices do as they are told: what becomes of errors,
 * ports and devices that go, and what a chunk costs. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_verbs.h"

#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)
#define LONG_NS (200 * WB_NS_PER_MS) /* a READ that is slow enough for something to happen */

/* The fake with devices as they should be. */
static void open_pair(struct fx_xport *f)
{
	fx_open(f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(f);
}

static struct wb_xport_stats stats(struct wb_xport *x)
{
	struct wb_xport_stats s = {0};

	ck_assert_int_eq(wb_xport_rail_stats(x, 0, &s), 0);
	return s;
}

/* Ask for the chunk and answer; who waits for what comes of it is the caller. */
static void begin(struct fx_xport *f, struct fx_job *j, uint64_t cookie)
{
	struct wb_xport_event *e = fx_ask(f, j, cookie, NULL);
	struct wb_xport_write w = fx_write_of(j, e->grant, NULL);

	ck_assert_int_eq(wb_xport_write(f->src.x, e->conn, &w), 0);
}

static struct fakeverbs_rule any(void)
{
	return (struct fakeverbs_rule){.device = FAKEVERBS_ANY,
		.port = FAKEVERBS_ANY,
		.opcode = FAKEVERBS_ANY,
		.count = 1};
}

/* ---- a rail is lost -----------------------------------------------------------------------------
 */

static const struct {
	int status;
	bool lands;
} lost[] = {{IBV_WC_RETRY_EXC_ERR, false}, {IBV_WC_RETRY_EXC_ERR, true},
	{IBV_WC_WR_FLUSH_ERR, false}, {IBV_WC_LOC_QP_OP_ERR, true}, {IBV_WC_FATAL_ERR, false}};

START_TEST(reads_of_a_lost_queue_pair_are_made_by_the_others)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	open_pair(&f);
	r.device = 0;
	r.after = 2;
	r.status = lost[_i].status;
	r.lands = lost[_i].lands;
	v->rule(&r);
	j = fx_job_make(&f, 16 * MIB, 7, 1);
	for (int i = 0; i < 4; i++)
		fx_job_run(&f, j, !i);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 1);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

static const struct {
	const char *addr;
	bool is_apart;
	int broken; /* a device where each READ fails */
	uint32_t lost;
} apart[] = {
	{NULL, true, 1, 0}, {NULL, false, 1, 1},
	{"127.99.1.1:0", true, 0, 0}, /* which is a GID of the other device */
	{"fake1@127.0.0.1:0", true, 0, 0},
	{"fake0@127.99.1.1:0", true, 1, 0}, /* a name goes before an address */
};

START_TEST(rails_that_are_apart_keep_to_their_ports)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	r.device = apart[_i].broken;
	r.status = IBV_WC_RETRY_EXC_ERR;
	v->rule(&r);
	fx_open(&f, "verbs",
		&(struct fx_opts){.mem_bytes = 17 * MIB,
			.is_apart = apart[_i].is_apart,
			.addr = apart[_i].addr});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 7, 1);
	fx_job_run(&f, j, true);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, apart[_i].lost);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

enum what { PORT_DOWN, DEVICE_GONE, GID_CHANGED, WHATS };

/* The event is what tells: no READ on it is answered, and each would be tried for 4 s. */
START_TEST(what_a_port_s_event_says_is_done_within_the_chunk)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;
	char text[300] = "";
	uint64_t t0;

	open_pair(&f);
	ck_assert(!wb_xport_reduced(f.dst.x, text, sizeof(text)));
	r.device = 0;
	r.count = 2;
	r.hangs = true;
	v->rule(&r);
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	begin(&f, j, 1);
	for (struct wb_xport_stats s = {0}; !s.requests; s = stats(f.dst.x))
		fx_pump_some(&f);
	t0 = wb_now_ns(&wb_clock_real);
	if (_i == PORT_DOWN)
		v->port(0, 1, false);
	else if (_i == DEVICE_GONE)
		v->remove(0);
	else
		v->regid(0, 1, 77);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	ck_assert(fx_job_arrived(j));
	ck_assert_uint_lt(wb_now_ns(&wb_clock_real) - t0, 3 * WB_NS_PER_S);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	ck_assert_int_eq(wb_xport_reduced(f.dst.x, text, sizeof(text)), _i != GID_CHANGED);
	if (_i != GID_CHANGED)
		ck_assert_ptr_nonnull(strstr(text, "fake0 port 1"));
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(a_port_that_comes_back_is_used_again)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fakeverbs_counts before, now;
	struct fx_xport f;
	struct fx_job *j;
	char text[300];

	open_pair(&f);
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	v->count(&before);
	v->port(0, 1, false);
	while (stats(f.dst.x).rails_lost < 2)
		fx_job_run(&f, j, false);
	do { /* after a second they are made on the other port */
		f.src.n_ev = f.dst.n_ev = 0; /* they would not hold all of them */
		fx_job_run(&f, j, false);
		v->count(&now);
	} while (_i && now.qps < before.qps);
	v->port(0, 1, true);
	do { /* the dialer makes new ones, of which it tells the other side */
		fx_job_run(&f, j, false);
		v->count(&now);
	} while (now.qps < before.qps);
	ck_assert(!wb_xport_reduced(f.dst.x, text, sizeof(text)));
	/* And they carry bytes: one of device 0 is lost again. */
	r.device = 0;
	r.status = IBV_WC_RETRY_EXC_ERR;
	v->rule(&r);
	for (int i = 0; i < 300 && stats(f.dst.x).rails_lost < 3; i++)
		fx_job_run(&f, j, false);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 3);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* All queue pairs belong to a port that was down.  It is up, and reaches nobody yet: one stays
 * where it carries, or all would be lost there, and the connection with them. */
START_TEST(one_queue_pair_stays_when_a_port_comes_back_that_reaches_nobody)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;
	char text[300];

	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB, .is_apart = true});
	v->port(0, 1, false);
	/* Both have heard of it, or all four begin there and end with the news. */
	while (!wb_xport_reduced(f.src.x, text, sizeof(text)) ||
		!wb_xport_reduced(f.dst.x, text, sizeof(text)))
		fx_pump_some(&f);
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	fx_job_run(&f, j, true);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 0);
	r.device = 0;
	r.count = 0;
	r.status = IBV_WC_RETRY_EXC_ERR;
	v->rule(&r);
	v->port(0, 1, true);
	while (stats(f.dst.x).rails_lost < 3) { /* those that went back */
		f.src.n_ev = f.dst.n_ev = 0;
		fx_job_run(&f, j, false);
		ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	}
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* The port is up, and nothing answers there. */
START_TEST(a_way_that_swallows_reads_gets_few_of_them)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct wb_xport_stats a, b;
	struct fx_xport f;
	struct fx_job *j;
	uint64_t t0, of_job, jobs = 0;

	open_pair(&f);
	r.device = 0;
	r.count = 0;
	r.status = IBV_WC_RETRY_EXC_ERR;
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	fx_job_run(&f, j, false);
	a = stats(f.dst.x);
	fx_job_run(&f, j, false);
	of_job = stats(f.dst.x).requests - a.requests;
	v->rule(&r);
	while (stats(f.dst.x).rails_lost < 2)
		fx_job_run(&f, j, false);
	t0 = wb_now_ns(&wb_clock_real);
	a = b = stats(f.dst.x);
	for (; b.rails_lost < 5; jobs++) { /* two, two, and the next */
		f.src.n_ev = f.dst.n_ev = 0;
		fx_job_run(&f, j, false);
		b = stats(f.dst.x);
	}
	ck_assert_uint_ge(wb_now_ns(&wb_clock_real) - t0, 3 * WB_NS_PER_S - LONG_NS);
	ck_assert_uint_eq(b.requests - a.requests, jobs * of_job + (b.rails_lost - a.rails_lost));
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- all are lost -------------------------------------------------------------------------------
 */

static void expect_down(struct fx_xport *f, int code, const char *const *words)
{
	int at = 0;

	fx_wait(f, &f->dst, WB_XP_LOST, 1);
	fx_wait(f, &f->dst, WB_XP_CONN_DOWN, 1);
	fx_wait(f, &f->src, WB_XP_CONN_DOWN, 1);
	ck_assert_int_eq(fx_take(&f->dst, WB_XP_CONN_DOWN, &at)->code, code);
	for (; *words; words++)
		ck_assert_msg(strstr(f->dst.reason, *words) != NULL, "%s", f->dst.reason);
}

static void rejoin(struct fx_xport *f)
{
	int at = 0;

	fx_verbs_fresh();
	f->conn = fx_dial(f, &fx_epoch, "src");
	fx_wait(f, &f->dst, WB_XP_CONN_UP, 2);
	fx_wait(f, &f->src, WB_XP_CONN_UP, 2);
	fx_take(&f->src, WB_XP_CONN_UP, &at);
	f->src_conn = fx_take(&f->src, WB_XP_CONN_UP, &at)->conn;
}

START_TEST(the_last_queue_pair_s_end_names_device_port_and_peer)
{
	static const char *const words[] = {
		"port 1", "GID ::ffff:127.99.", "reading from agent src", "retry counter", NULL};
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	open_pair(&f);
	r.count = 0;
	r.status = IBV_WC_RETRY_EXC_ERR;
	v->rule(&r);
	j = fx_job_make(&f, 8 * MIB, 3, 1);
	begin(&f, j, 1);
	expect_down(&f, -ETIMEDOUT, words);
	rejoin(&f);
	begin(&f, j, 2);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	ck_assert(fx_job_arrived(j));
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* Those that were lost first are made anew, and what the source says of them stands behind the
 * chunk, of which not all is asked for: nobody would ever read it. */
START_TEST(a_chunk_that_the_last_queue_pair_leaves_half_asked_for_ends_the_connection)
{
	static const char *const words[] = {
		"fake1 port 1", "reading from agent src", "retry counter", NULL};
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	v->limit(1, 0, 0); /* READs of a queue pair at once: most of the chunk waits */
	open_pair(&f);
	r.count = 0;
	r.status = IBV_WC_RETRY_EXC_ERR;
	r.device = 0;
	v->rule(&r);
	r.device = 1;
	r.delay_ns = 3 * WB_NS_PER_S / 2; /* those of the other are made anew by then */
	v->rule(&r);
	j = fx_job_make(&f, 16 * MIB, 1, 1);
	begin(&f, j, 1);
	expect_down(&f, -ETIMEDOUT, words);
	rejoin(&f);
	fx_job_run(&f, j, true);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(who_has_no_port_that_is_up_says_which_is_down)
{
	static const char *const words[] = {"no queue pair to agent src", "fake0 port 1 (GID",
		"is down, 0 of 2 ports are up", NULL};
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fx_xport f;
	int at = 0;

	open_pair(&f);
	v->port(0, 1, false);
	v->port(1, 1, false);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	f.conn = fx_dial(&f, &fx_epoch, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 2);
	fx_take(&f.dst, WB_XP_CONN_DOWN, &at);
	ck_assert_int_eq(fx_take(&f.dst, WB_XP_CONN_DOWN, &at)->code, -ENETDOWN);
	for (const char *const *w = words; *w; w++)
		ck_assert_msg(strstr(f.dst.reason, *w) != NULL, "%s", f.dst.reason);
	fx_close(&f);
}
END_TEST

START_TEST(what_the_source_refuses_is_not_tried_elsewhere)
{
	static const char *const words[] = {"remote access error", "agent src", NULL};
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	open_pair(&f);
	r.status = IBV_WC_REM_ACCESS_ERR;
	v->rule(&r);
	j = fx_job_make(&f, 8 * MIB, 3, 1);
	begin(&f, j, 1);
	expect_down(&f, -EIO, words);
	ck_assert_uint_eq(stats(f.dst.x).rails_lost, 1);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(a_peer_that_is_gone_ends_the_connection)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	open_pair(&f);
	r.count = 0;
	r.delay_ns = LONG_NS;
	v->rule(&r);
	j = fx_job_make(&f, 8 * MIB, 3, 1);
	begin(&f, j, 1);
	wb_xport_close(f.src.x);
	f.src.x = NULL;
	fx_wait(&f, &f.dst, WB_XP_LOST, 1);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	memset(f.dst.mem, 0xee, f.dst.mem_bytes);
	for (uint64_t t0 = wb_now_ns(&wb_clock_real); wb_now_ns(&wb_clock_real) - t0 < 2 * LONG_NS;)
		usleep(1000);
	ck_assert(fx_is_only(f.dst.mem, 0xee, f.dst.mem_bytes));
	wb_xport_close(f.dst.x);
	f.dst.x = NULL;
	fx_job_free(j);
}
END_TEST

/* ---- what lands, and where ----------------------------------------------------------------------
 */

START_TEST(cancelled_is_told_when_nothing_lands_any_more)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	open_pair(&f);
	r.count = 0;
	r.delay_ns = LONG_NS;
	v->rule(&r);
	j = fx_job_make(&f, 4 * MIB, 1, 1);
	begin(&f, j, 1);
	for (struct wb_xport_stats s = {0}; !s.requests; s = stats(f.dst.x))
		fx_pump_some(&f);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 1), 0);
	fx_wait(&f, &f.dst, WB_XP_CANCELLED, 1);
	memset(f.dst.mem, 0xee, f.dst.mem_bytes);
	fx_wait(&f, &f.src, WB_XP_WRITE_DONE, 1);
	for (uint64_t t0 = wb_now_ns(&wb_clock_real); wb_now_ns(&wb_clock_real) - t0 < 2 * LONG_NS;)
		fx_pump_some(&f);
	ck_assert(fx_is_only(f.dst.mem, 0xee, f.dst.mem_bytes));
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(a_landing_that_is_not_registered_is_copied_into)
{
	struct fx_xport f;
	struct fx_job *j;
	uint8_t *own;

	fx_verbs_fresh();
	open_pair(&f);
	j = fx_job_make(&f, 5000011, 3, 1);
	own = malloc(5000011);
	j->n_dst = 1;
	j->dst_iov[0] = (struct iovec){own, 5000011};
	fx_job_run(&f, j, true);
	free(own);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(requests_keep_within_what_devices_say)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_counts n;
	struct fx_xport f;
	struct fx_job *j;

	v->limit(3, 100000, 0);
	open_pair(&f);
	j = fx_job_make(&f, 16 * MIB, 5, 1);
	fx_job_run(&f, j, true);
	v->count(&n);
	ck_assert_uint_le(n.in_flight_max, 3);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0); /* nothing longer than a message */
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* Each is woken for by one event, which is all that a device is asked for: there are system calls
 * in the way of the next READ. */
START_TEST(reads_go_one_at_a_time_where_the_transport_was_opened_so)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_counts a, b;
	struct wb_xport_stats s;
	struct fx_xport f;
	struct fx_job *j;

	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB, .reads_max = 1});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 100, 1);
	fx_job_run(&f, j, true);
	v->count(&a);
	fx_job_run(&f, j, false);
	v->count(&b);
	s = stats(f.dst.x);
	ck_assert_uint_eq(b.all_in_flight_max, 1);
	ck_assert_uint_ge(s.requests, 2 * 16);
	ck_assert_uint_eq(s.doorbells, s.requests);
	ck_assert_uint_eq(s.completions, s.requests);
	/* One that was armed for before the first count may be heard of after it. */
	ck_assert_uint_le(b.looks - a.looks, b.arms - a.arms + 1);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(reads_under_way_keep_within_the_completion_queue)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	v->limit(0, 0, 32);
	r.count = 0;
	r.hangs = true; /* each would end in a completion if its port went now */
	v->rule(&r);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB, .is_apart = true});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 60, 1);
	begin(&f, j, 1);
	while (stats(f.dst.x).requests < 32)
		fx_pump_some(&f);
	for (uint64_t t0 = wb_now_ns(&wb_clock_real); wb_now_ns(&wb_clock_real) - t0 < LONG_NS;)
		fx_pump_some(&f);
	ck_assert_uint_eq(stats(f.dst.x).requests, 32);
	fx_close(&f); /* nobody reads the ranges any more */
	fx_job_free(j);
}
END_TEST

START_TEST(queue_pairs_of_both_sides_ask_for_the_class_that_was_given)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_counts n;
	struct fx_xport f;
	struct fx_job *j;

	fx_open(&f, "verbs",
		&(struct fx_opts){.mem_bytes = 17 * MIB, .traffic_class = 106, .service_level = 3});
	fx_join(&f);
	j = fx_job_make(&f, MIB, 5, 1);
	fx_job_run(&f, j, true);
	v->count(&n);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(n.traffic_class[i], 106);
		ck_assert_uint_eq(n.service_level[i], 3);
	}
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- what a chunk costs -------------------------------------------------------------------------
 */

#define CHUNKS 64

START_TEST(a_gibibyte_costs_few_words_and_doorbells)
{
	struct wb_xport_stats a, b, s;
	struct fx_xport f;
	struct fx_job *j;
	double to_gib;

	fx_verbs_fresh();
	open_pair(&f);
	j = fx_job_make(&f, 8 * MIB, 1, 1);
	fx_job_run(&f, j, false);
	a = stats(f.dst.x);
	s = stats(f.src.x);
	for (int i = 0; i < CHUNKS; i++)
		fx_job_run(&f, j, false);
	b = stats(f.dst.x);
	to_gib = 1024.0 / (CHUNKS * 8);
	printf("a GiB in chunks of 8 MiB: %.0f requests, %.0f doorbells, %.0f completions, %.0f + "
	       "%.0f bytes of words\n",
		(double)(b.requests - a.requests) * to_gib,
		(double)(b.doorbells - a.doorbells) * to_gib,
		(double)(b.completions - a.completions) * to_gib,
		(double)(b.word_bytes - a.word_bytes) * to_gib,
		(double)(stats(f.src.x).word_bytes - s.word_bytes) * to_gib);
	ck_assert_uint_le(b.requests - a.requests, CHUNKS * 8);
	ck_assert_uint_le(b.doorbells - a.doorbells, CHUNKS * 5);
	ck_assert_uint_le(b.completions - a.completions, b.doorbells - a.doorbells);
	ck_assert_uint_le(b.word_bytes - a.word_bytes, CHUNKS * 256);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- main ---------------------------------------------------------------------------------------
 */

int main(void)
{
	Suite *s = suite_create("xport_verbs");
	TCase *c = tcase_create("xport_verbs");

	suite_add_tcase(s, c);
	tcase_add_loop_test(
		c, reads_of_a_lost_queue_pair_are_made_by_the_others, 0, (int)WB_ARRAY_SIZE(lost));
	tcase_add_loop_test(
		c, rails_that_are_apart_keep_to_their_ports, 0, (int)WB_ARRAY_SIZE(apart));
	tcase_add_loop_test(c, what_a_port_s_event_says_is_done_within_the_chunk, 0, WHATS);
	tcase_add_loop_test(c, a_port_that_comes_back_is_used_again, 0, 2);
	tcase_add_test(c, one_queue_pair_stays_when_a_port_comes_back_that_reaches_nobody);
	tcase_add_test(c, a_way_that_swallows_reads_gets_few_of_them);
	tcase_add_test(c, the_last_queue_pair_s_end_names_device_port_and_peer);
	tcase_add_test(
		c, a_chunk_that_the_last_queue_pair_leaves_half_asked_for_ends_the_connection);
	tcase_add_test(c, who_has_no_port_that_is_up_says_which_is_down);
	tcase_add_test(c, what_the_source_refuses_is_not_tried_elsewhere);
	tcase_add_test(c, a_peer_that_is_gone_ends_the_connection);
	tcase_add_test(c, cancelled_is_told_when_nothing_lands_any_more);
	tcase_add_test(c, a_landing_that_is_not_registered_is_copied_into);
	tcase_add_test(c, requests_keep_within_what_devices_say);
	tcase_add_test(c, queue_pairs_of_both_sides_ask_for_the_class_that_was_given);
	tcase_add_test(c, reads_go_one_at_a_time_where_the_transport_was_opened_so);
	tcase_add_test(c, reads_under_way_keep_within_the_completion_queue);
	tcase_add_test(c, a_gibibyte_costs_few_words_and_doorbells);
	return fx_run(s);
}
