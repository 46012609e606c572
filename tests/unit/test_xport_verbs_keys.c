/* SPDX-License-Identifier: Apache-2.0 */
/* What a source tells its peer of regions' keys, and how often, to a dialer that is made by hand.
 */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_raw.h"
#include "tests/common/fx_verbs.h"
#include "xport/verbs/verbs.h"

#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (1u << 20)
#define DEVICES 2
#define REGIONS 4 /* of the source */
#define ALL ((1u << WBP_BULK_QPS) - 1)

/* ---- a receiver made by hand --------------------------------------------------------------------
 */

struct peer {
	struct fx_xport *f;
	struct fx_raw raw;
	uint32_t numbers, grants;
	uint32_t memory, unregion, up, lost; /* frames that came since forget() */
	uint32_t key[REGIONS][WBP_BULK_QPS]; /* by region, as told last */
};

static void take(struct peer *p, const struct wb__frame *f)
{
	if (f->type == WBP_BULK_MEMORY) {
		ck_assert_uint_lt(f->region, REGIONS);
		memcpy(p->key[f->region], f->key, sizeof(f->key));
	}
	p->memory += f->type == WBP_BULK_MEMORY;
	p->unregion += f->type == WBP_BULK_UNREGION;
	p->up += f->type == WBP_BULK_QP && f->qp.number;
	p->lost += f->type == WBP_BULK_QP && !f->qp.number;
}

static void forget(struct peer *p)
{
	p->memory = p->unregion = p->up = p->lost = 0;
}

/* Frames until @n queue pairs are answered for. */
static void read_up(struct peer *p, uint32_t n)
{
	struct wb__frame f;

	while (p->up < n) {
		ck_assert(fx_raw_recv(p->raw.fd, &f));
		take(p, &f);
	}
}

/* The source has seen what was said before, and has said what it had to say: it answers no
 * earlier. */
static void settle(struct peer *p)
{
	struct wb__frame f = {.type = WBP_BULK_GRANT,
		.id = (uint64_t)++p->grants << 16,
		.chunk = {.transfer = 1, .bytes = 4096}};
	struct wb_xport_event *e = NULL;
	int at = 0;

	fx_raw_send(p->raw.fd, &f);
	fx_wait(p->f, &p->f->src, WB_XP_GRANT, (int)p->grants);
	for (uint32_t i = 0; i < p->grants; i++)
		e = fx_take(&p->f->src, WB_XP_GRANT, &at);
	ck_assert_int_eq(wb_xport_refuse(p->f->src.x, e->conn, e->grant, -EBUSY), 0);
	do {
		ck_assert(fx_raw_recv(p->raw.fd, &f));
		take(p, &f);
	} while (f.type != WBP_BULK_REFUSE);
}

/* Of each queue pair in @which: it is new, or (not @is_new) lost.  All in one piece of the stream.
 */
static void say_qps(struct peer *p, uint32_t which, bool is_new)
{
	static const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 99, 0, 1};
	uint8_t buf[WBP_BULK_QPS * WBP_BULK_FRAME_MAX];
	size_t n = 0;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		struct wb__frame f = {.type = WBP_BULK_QP, .qp = {.k = (uint16_t)k}};

		if (!(which & 1u << k))
			continue;
		if (is_new)
			f.qp = (struct wb__qp_frame){.k = (uint16_t)k,
				.number = ++p->numbers,
				.psn = 1,
				.mtu = IBV_MTU_1024,
				.reads = 4,
				.has_gid = true};
		memcpy(f.qp.gid, gid, sizeof(gid));
		n += wb__frame_encode(&f, buf + n);
	}
	ck_assert_int_eq(send(p->raw.fd, buf, n, MSG_NOSIGNAL), n);
}

static void add_regions(struct fx_xport *f)
{
	struct wb_err err = {0};
	char says[400];
	uint32_t id;

	for (int i = 1; i < REGIONS; i++) {
		struct wb_xport_region r = {.object = FX_OBJECT,
			.fd = f->src.mem_fd,
			.base = f->src.mem,
			.bytes = (uint64_t)i * 4096};

		ck_assert_int_eq(wb_xport_region_add(f->src.x, &r, &id, &err), 0);
		while (wb_xport_region_path(f->src.x, id, says, sizeof(says)) ==
			WB_XPORT_PATH_PENDING)
			fx_pump_some(f);
	}
}

static const struct fx_verbs *with_windows(bool has)
{
	const struct fx_verbs *v = fx_verbs_fresh();

	for (int d = 0; d < DEVICES; d++)
		v->windows(d, has);
	return v;
}

static struct fakeverbs_counts counts(const struct fx_verbs *v)
{
	struct fakeverbs_counts n;

	v->count(&n);
	return n;
}

static void open_peer(struct peer *p, struct fx_xport *f)
{
	struct wb__hello h = fx_raw_hello(WBP_BULK_OVER_VERBS);
	struct wb__frame in;

	memset(p, 0, sizeof(*p));
	p->f = f;
	fx_open(f, "verbs", &(struct fx_opts){.mem_bytes = MIB});
	add_regions(f);
	fx_raw_prove(f, &p->raw, &h);
	fx_wait(f, &f->src, WB_XP_CONN_UP, 1);
	ck_assert(fx_raw_recv(p->raw.fd, &in) && in.type == WBP_BULK_WELCOME);
	say_qps(p, ALL, true);
	read_up(p, WBP_BULK_QPS);
	settle(p);
	ck_assert_uint_eq(p->memory, REGIONS);
	forget(p);
}

static void close_peer(struct peer *p)
{
	close(p->raw.fd);
	fx_close(p->f);
}

/* ---- how often ----------------------------------------------------------------------------------
 */

static const struct {
	uint32_t lost;
	bool at_source; /* by a port of its own that is down */
	bool has_windows; /* or keys are the region's */
} losses[] = {{0x1, false, false}, {0x7, false, false}, {ALL, false, false}, {0x5, true, false},
	{0x1, false, true}, {0x7, false, true}, {ALL, false, true}, {0x5, true, true}};

/* However many are lost at once, and one after the other as they are told of: that one is lost says
 * nothing of keys, and those that are made anew together are told of together. */
START_TEST(keys_are_told_anew_once_however_many_queue_pairs_were_lost)
{
	const struct fx_verbs *v = with_windows(losses[_i].has_windows);
	struct fx_xport f;
	struct peer p;

	open_peer(&p, &f);
	if (losses[_i].at_source)
		v->port(0, 1, false);
	for (uint32_t k = 0; !losses[_i].at_source && k < WBP_BULK_QPS; k++) {
		if (!(losses[_i].lost & 1u << k))
			continue;
		say_qps(&p, 1u << k, false);
		settle(&p);
	}
	while (losses[_i].at_source && p.lost < 2)
		settle(&p);
	ck_assert_uint_eq(p.memory, 0);
	say_qps(&p, losses[_i].lost, true);
	read_up(&p, (uint32_t)__builtin_popcount(losses[_i].lost));
	settle(&p);
	ck_assert_uint_le(p.memory, REGIONS);
	ck_assert_uint_ge(p.memory, losses[_i].has_windows ? REGIONS : 0);
	ck_assert_uint_eq(p.unregion, 0);
	for (int i = 0; i < REGIONS; i++)
		for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
			ck_assert_uint_ne(p.key[i][k], 0);
	close_peer(&p);
}
END_TEST

/* ---- windows ------------------------------------------------------------------------------------
 */

/* That others are refused: tests/roce/rc_semantics.c. */
START_TEST(a_key_is_one_queue_pair_s_where_devices_have_windows)
{
	const struct fx_verbs *v = with_windows(true);
	struct fx_xport f;
	struct peer p;

	open_peer(&p, &f);
	for (uint32_t i = 0; i < REGIONS * WBP_BULK_QPS; i++) {
		ck_assert_uint_ne((&p.key[0][0])[i], 0);
		for (uint32_t k = 0; k < i; k++)
			ck_assert_uint_ne((&p.key[0][0])[i], (&p.key[0][0])[k]);
	}
	/* Both sides' regions are sources, too; nobody reads them without a window. */
	ck_assert_uint_eq(counts(v).region_rights, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	ck_assert_uint_eq(counts(v).window_rights, IBV_ACCESS_REMOTE_READ);
	ck_assert_int_eq(counts(v).windows, REGIONS * WBP_BULK_QPS);
	close_peer(&p);
	ck_assert_int_eq(counts(v).windows, 0);
	ck_assert_int_eq(counts(v).qps, 0);
	ck_assert_int_eq(counts(v).mrs, 0);
	ck_assert_int_eq(counts(v).pds, 0);
}
END_TEST

START_TEST(a_device_without_windows_beside_one_that_has_them_carries_too)
{
	const struct fx_verbs *v = with_windows(true);
	struct fx_xport f;
	struct fx_job *j;

	v->windows(_i, false);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	fx_job_run(&f, j, true);
	ck_assert_int_eq(counts(v).windows, WBP_BULK_QPS / DEVICES);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(the_windows_of_a_queue_pair_and_of_a_region_go_with_it)
{
	const struct fx_verbs *v = with_windows(true);
	struct fx_xport f;
	struct peer p;
	int64_t mrs;

	open_peer(&p, &f);
	say_qps(&p, 0x6, false);
	settle(&p);
	ck_assert_int_eq(counts(v).windows, REGIONS * (WBP_BULK_QPS - 2));
	mrs = counts(v).mrs;
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	/* No region that has any can be let go, which a thread does while the peer hears of it. */
	while (counts(v).mrs > mrs - DEVICES || !p.unregion)
		settle(&p);
	ck_assert_int_eq(counts(v).windows, (REGIONS - 1) * (WBP_BULK_QPS - 2));
	ck_assert_uint_eq(p.unregion, 1);
	close_peer(&p);
}
END_TEST

static struct fakeverbs_rule bind_rule(uint32_t count)
{
	return (struct fakeverbs_rule){.device = FAKEVERBS_ANY,
		.port = FAKEVERBS_ANY,
		.opcode = IBV_WR_BIND_MW,
		.count = count};
}

static void await_windows(struct fx_xport *f, const struct fx_verbs *v, int64_t regions)
{
	while (counts(v).windows != regions * WBP_BULK_QPS)
		fx_pump_some(f);
}

/* The request names the window, and the next region has the number. */
START_TEST(a_region_that_goes_while_its_windows_are_bound_is_taken_back)
{
	const struct fx_verbs *v = with_windows(true);
	struct fakeverbs_rule r = bind_rule(WBP_BULK_QPS);
	struct wb_err err = {0};
	struct wb_xport_region is;
	struct fx_xport f;
	struct peer p;
	uint32_t id, old;

	open_peer(&p, &f);
	old = p.key[REGIONS - 1][0];
	r.delay_ns = 500 * WB_NS_PER_MS;
	v->rule(&r);
	is = (struct wb_xport_region){
		.object = FX_OBJECT, .fd = f.src.mem_fd, .base = f.src.mem, .bytes = 64 << 10};
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, REGIONS - 1), 0);
	await_windows(&f, v, REGIONS - 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(wb_xport_region_add(f.src.x, &is, &id, &err), 0);
		ck_assert_uint_eq(id, REGIONS - 1);
		if (i)
			break;
		await_windows(&f, v, REGIONS); /* made, and not bound for a while */
		ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	}
	while (p.key[REGIONS - 1][0] == old)
		settle(&p);
	settle(&p);
	ck_assert_int_eq(counts(v).windows, REGIONS * WBP_BULK_QPS);
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
		ck_assert_uint_ne(p.key[REGIONS - 1][k], 0);
	ck_assert_uint_eq(p.lost, 0);
	close_peer(&p);
	ck_assert_int_eq(counts(v).mrs, 0);
}
END_TEST

/* ---- windows that cannot be had -----------------------------------------------------------------
 */

static _Atomic uint64_t later_ns;

static uint64_t later(const struct wb_clock *c)
{
	(void)c;
	return wb_now_ns(&wb_clock_real) + atomic_load(&later_ns);
}

enum { FAILS, HANGS, N_WAYS };

/* Whatever a device makes of it, the others carry, and the queue pair is made anew. */
START_TEST(a_window_that_is_not_bound_costs_its_queue_pair)
{
	static const struct wb_clock clock = {later};
	const struct fx_verbs *v = with_windows(true);
	struct fakeverbs_rule r = bind_rule(1);
	struct wb_xport_stats s = {0};
	struct fx_xport f;
	struct fx_job *j;

	atomic_store(&later_ns, 0);
	r.status = _i == FAILS ? IBV_WC_MW_BIND_ERR : 0;
	r.hangs = _i == HANGS;
	v->rule(&r);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB, .clock = &clock});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	if (_i == HANGS) {
		while (counts(v).windows < WBP_BULK_QPS)
			fx_pump_some(&f);
		atomic_store(&later_ns, WB__READ_DEADLINE_NS);
	}
	fx_job_run(&f, j, true);
	ck_assert_int_eq(wb_xport_rail_stats(f.src.x, 0, &s), 0);
	ck_assert_uint_eq(s.rails_lost, 1);
	while (counts(v).windows < WBP_BULK_QPS) {
		f.src.n_ev = f.dst.n_ev = 0;
		fx_job_run(&f, j, false);
	}
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

static const struct {
	uint32_t denied;
	bool is_carried;
} denials[] = {{1, true}, {WBP_BULK_QPS - 1, true}, {WBP_BULK_QPS, false}};

/* The device has no more: what is left carries, and where nothing is left, the chunk is refused. */
START_TEST(what_no_window_can_be_made_for_is_refused_and_logged)
{
	const struct fx_verbs *v = with_windows(true);
	int was = dup(STDERR_FILENO), to = memfd_create("log", MFD_CLOEXEC);
	struct fx_xport f;
	struct fx_job *j;
	char said[8192] = "";
	struct wb_xport_event *e;
	struct wb_xport_write w;
	int at = 0;

	ck_assert_int_ge(dup2(to, STDERR_FILENO), 0);
	v->break_calls("ibv_alloc_mw", ENOMEM, denials[_i].denied);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	if (denials[_i].is_carried) {
		fx_job_run(&f, j, true);
	} else {
		e = fx_ask(&f, j, 1, NULL);
		w = fx_write_of(j, e->grant, NULL);
		ck_assert_int_eq(wb_xport_write(f.src.x, e->conn, &w), 0);
		fx_wait(&f, &f.dst, WB_XP_REFUSED, 1);
		ck_assert_int_eq(fx_take(&f.dst, WB_XP_REFUSED, &at)->code, -ENOMEM);
	}
	ck_assert_int_ge(dup2(was, STDERR_FILENO), 0);
	ck_assert_int_ge(pread(to, said, sizeof(said) - 1, 0), 0);
	ck_assert_msg(strstr(said, "no memory window") && strstr(said, "device=fake") &&
			      strstr(said, "device_max=") && strstr(said, "remedy="),
		"%s", said);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_DOWN], 0);
	close(was);
	close(to);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

static const struct {
	bool has, is_off;
	const char *says;
} choices[] = {{true, false, "of a queue pair each, by memory windows"},
	{true, true, "of regions, memory windows are turned off"},
	{false, false, "of regions, it has no memory windows 2B"},
	{false, true, "of regions, it has no memory windows 2B"}};

/* Also by a set, whose members are asked one after the other. */
START_TEST(windows_are_used_where_there_are_unless_they_are_turned_off)
{
	const struct fx_verbs *v = with_windows(choices[_i].has);
	bool is_used = choices[_i].has && !choices[_i].is_off;
	char says[200] = "", want[200];
	struct fx_xport f;
	struct fx_job *j;

	fx_open(&f, "set:tcp,verbs/tcp,verbs", &(struct fx_opts){.no_windows = choices[_i].is_off});
	snprintf(want, sizeof(want), "fake0: %s; fake1: %s", choices[_i].says, choices[_i].says);
	ck_assert(wb_xport_keys(f.src.x, says, sizeof(says)));
	ck_assert_str_eq(says, want);
	fx_close(&f);
	fx_open(&f, "tcp", &(struct fx_opts){0});
	ck_assert(!wb_xport_keys(f.src.x, says, sizeof(says)));
	fx_close(&f);

	fx_open(&f, "verbs",
		&(struct fx_opts){.mem_bytes = 17 * MIB, .no_windows = choices[_i].is_off});
	fx_join(&f);
	j = fx_job_make(&f, 16 * MIB, 3, 1);
	fx_job_run(&f, j, true);
	ck_assert_int_eq(counts(v).windows, is_used ? WBP_BULK_QPS : 0);
	ck_assert_uint_eq(counts(v).region_rights,
		IBV_ACCESS_LOCAL_WRITE | (is_used ? IBV_ACCESS_MW_BIND : IBV_ACCESS_REMOTE_READ));
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* The kernel lets nobody bind to it. */
START_TEST(memory_that_is_mapped_to_be_read_alone_is_read_by_its_own_key)
{
	const struct fx_verbs *v = with_windows(true);
	uint8_t *p = mmap(NULL, MIB, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct wb_xport_region r = {.object = FX_OBJECT, .fd = -1, .base = p, .bytes = MIB};
	struct wb_err err = {0};
	char says[400] = "";
	struct fx_xport f;
	struct peer peer;
	uint32_t id;

	open_peer(&peer, &f);
	r.fd = f.src.mem_fd;
	r.direction = _i ? WB_XPORT_SOURCE : WB_XPORT_BOTH;
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, REGIONS - 1), 0);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
	while (wb_xport_region_path(f.src.x, id, says, sizeof(says)) == WB_XPORT_PATH_PENDING)
		settle(&peer);
	settle(&peer);
	ck_assert_uint_eq(peer.unregion, 1);
	ck_assert_uint_eq(peer.memory, 1);
	ck_assert_uint_eq(peer.key[id][0], peer.key[id][2]); /* on the same device */
	ck_assert_int_eq(counts(v).windows, (REGIONS - 1) * WBP_BULK_QPS);
	close_peer(&peer);
	munmap(p, MIB);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_keys");
	TCase *c = tcase_create("xport_verbs_keys");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, keys_are_told_anew_once_however_many_queue_pairs_were_lost, 0,
		(int)WB_ARRAY_SIZE(losses));
	tcase_add_test(c, a_key_is_one_queue_pair_s_where_devices_have_windows);
	tcase_add_loop_test(
		c, a_device_without_windows_beside_one_that_has_them_carries_too, 0, DEVICES);
	tcase_add_test(c, the_windows_of_a_queue_pair_and_of_a_region_go_with_it);
	tcase_add_test(c, a_region_that_goes_while_its_windows_are_bound_is_taken_back);
	tcase_add_loop_test(c, a_window_that_is_not_bound_costs_its_queue_pair, 0, N_WAYS);
	tcase_add_loop_test(c, what_no_window_can_be_made_for_is_refused_and_logged, 0,
		(int)WB_ARRAY_SIZE(denials));
	tcase_add_loop_test(c, windows_are_used_where_there_are_unless_they_are_turned_off, 0,
		(int)WB_ARRAY_SIZE(choices));
	tcase_add_loop_test(c, memory_that_is_mapped_to_be_read_alone_is_read_by_its_own_key, 0, 2);
	return fx_run(s);
}
