/* SPDX-License-Identifier: Apache-2.0 */
/* What wbctl bench makes of its options: points, addresses, figures. */
#include "base/base.h"
#include "base/err.h"
#include "ctl/bench.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct wb__bench_sweep sweep;
static struct wb_err err;

/* ---- points ------------------------------------------------------------------------------------
 */

START_TEST(without_options_a_sweep_takes_ten_seconds)
{
	uint32_t latency = 0;

	ck_assert_int_eq(wb__bench_sweep(&(struct wb__ctl_bench){0}, &sweep, &err), 0);
	for (uint32_t i = 0; i < sweep.n; i++)
		latency += sweep.point[i].is_latency;
	ck_assert_uint_eq(latency, 1);
	ck_assert_uint_eq(sweep.n, 1 + 2 * 3 * 2);
	ck_assert_uint_eq(sweep.point_ns, 10 * WB_NS_PER_S / sweep.n);
}
END_TEST

START_TEST(every_size_is_measured_at_every_depth_with_and_without_sums)
{
	const struct wb__ctl_bench b = {
		.rails = "1,4", .sizes = "4096,1Mi", .depths = "1,2,8", .seconds = "26"};
	uint32_t seen[2][2][2][9] = {{{{0}}}};

	ck_assert_int_eq(wb__bench_sweep(&b, &sweep, &err), 0);
	for (uint32_t i = 0; i < sweep.n; i++) {
		const struct wb__bench_point *p = &sweep.point[i];

		ck_assert(p->rails == 1 || p->rails == 4);
		if (!p->is_latency)
			seen[p->rails == 4][p->bytes == 1 << 20][p->has_sums][p->depth]++;
	}
	for (int rails = 0; rails < 2; rails++)
		for (int size = 0; size < 2; size++)
			for (int sums = 0; sums < 2; sums++)
				for (int depth = 1; depth < 9; depth++)
					ck_assert_uint_eq(seen[rails][size][sums][depth],
						depth == 1 || depth == 2 || depth == 8);
	ck_assert_uint_eq(sweep.n, 26);
	ck_assert_uint_eq(sweep.point_ns, WB_NS_PER_S);
	ck_assert_uint_eq(sweep.rails_max, 4);
	ck_assert_uint_eq(sweep.depth_max, 8);
	ck_assert_uint_eq(sweep.bytes_max, 1 << 20);
	ck_assert_uint_eq(wb__bench_landing(&sweep, 0), 8 << 20);
}
END_TEST

/* What the other transports do has no READ in it, and a source goes through no points. */
START_TEST(one_read_alone_is_measured_once_and_by_verbs)
{
	static const struct {
		struct wb__ctl_bench b;
		uint32_t n;
	} of[] = {
		{{.to = "verbs:10.0.0.5:1", .rails = "2,1"}, 1},
		{{.to = "verbs:10.0.0.5:1", .rails = "2,1", .sizes = "64", .depths = "1"}, 1},
		{{.to = "10.0.0.5:1", .transport = "verbs", .rails = "2,1"}, 1},
		{{.to = "10.0.0.5:1", .rails = "2,1"}, 0},
		{{.to = "unix:@name", .rails = "2,1"}, 0},
		{{.listen = "10.0.0.5", .transport = "verbs", .rails = "2,1"}, 0},
	};
	char text[64];

	for (size_t i = 0; i < WB_ARRAY_SIZE(of); i++) {
		uint32_t n = 0;

		ck_assert_int_eq(wb__bench_sweep(&of[i].b, &sweep, &err), 0);
		for (uint32_t k = 0; k < sweep.n; k++)
			n += sweep.point[k].is_read;
		ck_assert_uint_eq(n, of[i].n);
		if (!n)
			continue;
		ck_assert_uint_ge(
			wb__bench_landing(&sweep, 0), WB__BENCH_READS * WB__BENCH_READ_BYTES);
		ck_assert(sweep.point[0].is_read && sweep.point[0].is_latency);
		ck_assert_uint_eq(sweep.point[0].rails, 2);
		ck_assert_str_eq(wb__bench_point_text(&sweep.point[0], text), "one READ of 64 B");
		ck_assert_str_eq(wb__bench_point_times(&sweep.point[0]), "READ");
		ck_assert_str_eq(wb__bench_point_times(&sweep.point[1]), "ask");
	}
}
END_TEST

START_TEST(points_of_equal_rails_stand_together)
{
	const struct wb__ctl_bench b = {.rails = "1,2,3"};
	uint32_t changes = 0;

	ck_assert_int_eq(wb__bench_sweep(&b, &sweep, &err), 0);
	for (uint32_t i = 1; i < sweep.n; i++)
		changes += sweep.point[i].rails != sweep.point[i - 1].rails;
	ck_assert_uint_eq(changes, 2);
}
END_TEST

START_TEST(a_landing_of_odd_chunks_has_pages_of_its_own_for_each)
{
	const struct wb__ctl_bench b = {.sizes = "5000", .depths = "3"};

	ck_assert_int_eq(wb__bench_sweep(&b, &sweep, &err), 0);
	ck_assert_uint_eq(wb__bench_landing(&sweep, 0), 3 * 8192);
}
END_TEST

#define MIB (1ull << 20)

static const struct {
	struct wb__ctl_bench b;
	uint64_t room;
} rooms[] = {
	{{.to = "10.0.0.5:1"}, 128 * MIB},
	{{.to = "t0"},
		64 * MIB}, /* half of what an agent has beside its buffers is about 100 MiB */
	{{.to = "10.0.0.5:1", .agent_there = "t0"}, 64 * MIB}, /* the same, when it dials */
	{{.to = "t0", .transport = "verbs"}, 64 * MIB + WB__BENCH_READS *WB__BENCH_READ_BYTES},
	{{.to = "t0", .sizes = "64Mi", .depths = "64"}, 4096 * MIB},
	{{.to = "t0", .sizes = "64Mi", .depths = "2", .rails = "1,2,4"}, 256 * MIB},
	{{.to = "t0", .sizes = "64Ki", .depths = "1"}, 2 * WB__BENCH_MEMCPY_BYTES},
};

START_TEST(a_receiver_knows_how_much_memory_it_takes_at_one_time)
{
	ck_assert_int_eq(wb__bench_sweep(&rooms[_i].b, &sweep, &err), 0);
	ck_assert_uint_eq(wb__bench_room(&sweep), rooms[_i].room);
}
END_TEST

START_TEST(sums_may_be_on_or_off_alone)
{
	static const char *const word[] = {"off", "on"};
	const struct wb__ctl_bench b = {.sums = word[_i]};

	ck_assert_int_eq(wb__bench_sweep(&b, &sweep, &err), 0);
	ck_assert_uint_eq(sweep.n, 7);
	for (uint32_t i = 0; i < sweep.n; i++)
		ck_assert(sweep.point[i].is_latency || sweep.point[i].has_sums == _i);
}
END_TEST

static const struct {
	struct wb__ctl_bench b;
	const char *words;
} bad[] = {
	{{.sizes = "1Mi,0"}, "--sizes 1Mi,0: '0' is none: expected 1 to 256Mi"},
	{{.sizes = "257Mi"}, "expected 1 to 256Mi bytes"},
	{{.sizes = "1Mi,,2Mi"}, "'' is none"},
	{{.depths = "257"}, "--depths 257: '257' is none: expected 1 to 256"},
	{{.depths = "a"}, "--depths a"},
	{{.rails = "0"}, "--rails 0: '0' is none: expected 1 to 16"},
	{{.rails = "17"}, "expected 1 to 16"},
	{{.seconds = "0"}, "--seconds 0: expected 0.1 to 86400 seconds"},
	{{.seconds = "1x"}, "--seconds 1x"},
	{{.seconds = "nan"}, "--seconds nan"},
	{{.seconds = "0.1", .depths = "1,2,3,4"}, "--seconds 0.1 for 25 points: each needs 10 ms"},
	{{.rails = "1,2,3,4,5,6,7,8", .depths = "1,2,3,4,5,6"}, "more than 256 points"},
	{{.depths = "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}, "more than 16"},
};

START_TEST(what_cannot_be_measured_is_refused_by_its_option)
{
	ck_assert_int_eq(wb__bench_sweep(&bad[_i].b, &sweep, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, bad[_i].words) != NULL, "%s", err.msg);
}
END_TEST

START_TEST(a_point_says_what_it_is)
{
	char text[64];

	ck_assert_str_eq(
		wb__bench_point_text(
			&(struct wb__bench_point){
				.rails = 1, .depth = 16, .bytes = 1 << 20, .has_sums = true},
			text),
		"1 MiB, 16 deep, 1 rail, sums on");
	ck_assert_str_eq(
		wb__bench_point_text(
			&(struct wb__bench_point){.rails = 2, .depth = 1, .bytes = 1536}, text),
		"1.5 KiB, 1 deep, 2 rails, sums off");
}
END_TEST

/* ---- figures -----------------------------------------------------------------------------------
 */

START_TEST(times_are_the_least_the_middle_and_one_in_a_hundred)
{
	static uint64_t ns[1000];
	struct wb__bench_result r = {0};

	for (uint64_t i = 0; i < 1000; i++)
		ns[i] = (i * 7919 % 1000 + 1) * 1000; /* 1 to 1000 us, shuffled */
	wb__bench_times(ns, 1000, &r);
	ck_assert(r.min_us == 1 && r.median_us == 501 && r.p99_us == 990);
	r = (struct wb__bench_result){0};
	ns[0] = 5000;
	wb__bench_times(ns, 1, &r);
	ck_assert(r.min_us == 5 && r.median_us == 5 && r.p99_us == 5);
	r = (struct wb__bench_result){0};
	wb__bench_times(ns, 0, &r);
	ck_assert(r.min_us == 0 && r.p99_us == 0);
}
END_TEST

/* ---- addresses ---------------------------------------------------------------------------------
 */

static const struct {
	const char *transport, *text;
	uint32_t i;
	const char *is; /* NULL: refused */
} rails[] = {
	{"tcp", "10.0.0.5", 0, "10.0.0.5:0"},
	{"tcp", "10.0.0.5:7000", 0, "10.0.0.5:7000"},
	{"tcp", "fd00::5", 0, "[fd00::5]:0"},
	{"tcp", "[fd00::5]", 0, "[fd00::5]:0"},
	{"tcp", "[fd00::5]:7000", 0, "[fd00::5]:7000"},
	{"tcp", "10.0.0.5,10.0.1.5", 1, "10.0.1.5:0"},
	{"tcp", "10.0.0.5,10.0.1.5", 2, "10.0.0.5:0"},
	{"tcp", "/run/bench", 0, NULL},
	{"tcp", ",", 0, NULL},
	{"verbs", "10.0.0.5", 0, "10.0.0.5:0"},
	{"verbs", "mlx5_0@10.0.0.5", 0, "mlx5_0@10.0.0.5:0"},
	{"verbs", "mlx5_0/1@fd00::5", 0, "mlx5_0/1@[fd00::5]:0"},
	{"verbs", "mlx5_0@10.0.0.5:7000", 0, "mlx5_0@10.0.0.5:7000"},
	{"verbs", "mlx5_0@", 0, NULL},
	{"shm", "/run/bench", 0, "unix:/run/bench"},
	{"shm", "@", 0, "unix:@"},
	{"shm", "@name", 0, "unix:@name"},
	{"shm", "unix:@name", 0, "unix:@name"},
	{"shm", "10.0.0.5", 0, NULL},
};

START_TEST(an_address_is_completed_or_refused)
{
	char out[WB__BENCH_ADDR_MAX];
	int rc = wb__bench_rail(rails[_i].transport, rails[_i].text, rails[_i].i, out, &err);

	ck_assert_int_eq(rc, rails[_i].is ? 0 : -EINVAL);
	if (rails[_i].is)
		ck_assert_str_eq(out, rails[_i].is);
	else
		ck_assert_msg(strstr(err.msg, "is no address for") != NULL, "%s", err.msg);
}
END_TEST

static const struct {
	const char *transport, *to; /* transport NULL: not given */
	uint32_t n;
	const char *kind, *is; /* is NULL: refused */
} ends[] = {
	{NULL, "10.0.0.5:1,10.0.0.5:2", 0, "tcp", "10.0.0.5:1,10.0.0.5:2"},
	{NULL, "10.0.0.5:1,10.0.0.5:2", 1, "tcp", "10.0.0.5:1"},
	{NULL, "10.0.0.5:1,10.0.0.5:2", 5, "tcp", "10.0.0.5:1,10.0.0.5:2"},
	{NULL, "verbs:10.0.0.5:1,verbs:10.0.0.5:2", 0, "verbs",
		"verbs:10.0.0.5:1,verbs:10.0.0.5:2"},
	{"verbs", "10.0.0.5:1,10.0.0.5:2", 0, "verbs", "verbs:10.0.0.5:1,verbs:10.0.0.5:2"},
	{NULL, "unix:@name", 0, "shm", "unix:@name"},
	{NULL, "/run/bench", 0, "shm", "unix:/run/bench"},
	{"tcp", "verbs:10.0.0.5:1", 0, "tcp", NULL},
	{"tcp", "/run/bench", 0, "tcp", NULL},
	{"shm", "10.0.0.5:1", 0, "shm", NULL},
	{"verbs", "unix:@name", 0, "verbs", NULL},
};

START_TEST(the_other_end_is_of_the_same_transport_or_refused)
{
	const struct wb__ctl_bench b = {.transport = ends[_i].transport, .to = ends[_i].to};
	const char *kind = wb__bench_transport(&b);
	char out[WB_XPORT_ENDPOINT_MAX];
	int rc = wb__bench_endpoint(kind, b.to, ends[_i].n, out, &err);

	ck_assert_str_eq(kind, ends[_i].kind);
	ck_assert_int_eq(rc, ends[_i].is ? 0 : -EINVAL);
	if (ends[_i].is)
		ck_assert_str_eq(out, ends[_i].is);
	else
		ck_assert_msg(strstr(err.msg, "--transport is ") != NULL, "%s", err.msg);
}
END_TEST

/* ---- keys --------------------------------------------------------------------------------------
 */

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

START_TEST(both_ends_make_the_same_of_a_key_and_the_source_makes_one)
{
	uint8_t a[WB_XPORT_KEY_BYTES], b[WB_XPORT_KEY_BYTES];
	char text[65];

	unsetenv("WEIGHTBRIDGE_BENCH_KEY");
	ck_assert_int_eq(wb__bench_key(&(struct wb__ctl_bench){.to = "x"}, a, text, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "--key-file FILE") != NULL, "%s", err.msg);
	ck_assert_int_eq(wb__bench_key(&(struct wb__ctl_bench){.listen = "x"}, a, text, &err), 0);
	ck_assert_uint_eq(strlen(text), 64);
	setenv("WEIGHTBRIDGE_BENCH_KEY", text, 1);
	ck_assert_int_eq(wb__bench_key(&(struct wb__ctl_bench){.to = "x"}, b, text, &err), 0);
	ck_assert_str_eq(text, "");
	ck_assert_mem_eq(a, b, sizeof(a));
	setenv("WEIGHTBRIDGE_BENCH_KEY", KEY, 1);
	ck_assert_int_eq(wb__bench_key(&(struct wb__ctl_bench){.to = "x"}, b, text, &err), 0);
	ck_assert(memcmp(a, b, sizeof(a)) != 0);
	ck_assert(b[1] != 1); /* derived: a cluster's key given here opens nothing of it */
	setenv("WEIGHTBRIDGE_BENCH_KEY", "0011", 1);
	ck_assert_int_eq(
		wb__bench_key(&(struct wb__ctl_bench){.to = "x"}, b, text, &err), -EBADMSG);
}
END_TEST

START_TEST(no_address_is_taken_for_the_name_of_an_agent)
{
	static const struct {
		const char *to;
		bool is;
	} of[] = {{"trainer-0", true}, {"r0", true}, {"10.0.0.5", true}, {"10.0.0.5:1", false},
		{"10.0.0.5:1,10.0.1.5:1", false}, {"[::1]:7", false}, {"verbs:10.0.0.5:1", false},
		{"unix:@name", false}, {"@name", false}, {"/run/bench", false},
		{"rxe_a0@10.0.0.5", false}};

	for (size_t i = 0; i < WB_ARRAY_SIZE(of); i++)
		ck_assert_msg(wb__bench_is_agent(of[i].to) == of[i].is, "%s", of[i].to);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ctl_bench");
	TCase *c = tcase_create("ctl_bench");

	tcase_add_test(c, without_options_a_sweep_takes_ten_seconds);
	tcase_add_test(c, every_size_is_measured_at_every_depth_with_and_without_sums);
	tcase_add_test(c, one_read_alone_is_measured_once_and_by_verbs);
	tcase_add_test(c, points_of_equal_rails_stand_together);
	tcase_add_test(c, a_landing_of_odd_chunks_has_pages_of_its_own_for_each);
	tcase_add_loop_test(c, a_receiver_knows_how_much_memory_it_takes_at_one_time, 0,
		(int)WB_ARRAY_SIZE(rooms));
	tcase_add_loop_test(c, sums_may_be_on_or_off_alone, 0, 2);
	tcase_add_loop_test(
		c, what_cannot_be_measured_is_refused_by_its_option, 0, WB_ARRAY_SIZE(bad));
	tcase_add_test(c, a_point_says_what_it_is);
	tcase_add_test(c, times_are_the_least_the_middle_and_one_in_a_hundred);
	tcase_add_loop_test(c, an_address_is_completed_or_refused, 0, WB_ARRAY_SIZE(rails));
	tcase_add_loop_test(
		c, the_other_end_is_of_the_same_transport_or_refused, 0, WB_ARRAY_SIZE(ends));
	tcase_add_test(c, both_ends_make_the_same_of_a_key_and_the_source_makes_one);
	tcase_add_test(c, no_address_is_taken_for_the_name_of_an_agent);
	suite_add_tcase(s, c);
	return fx_run(s);
}
