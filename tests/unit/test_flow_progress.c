/* SPDX-License-Identifier: Apache-2.0 */
/* What a flow shows of itself: bytes in and out by worker, and of whom it lacks most. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_flow.h"

#include <check.h>
#include <errno.h>

static struct wb_flow_progress shown(void)
{
	struct wb_flow_progress p;

	wb_flow_get_progress(fx.f, 0, &p);
	return p;
}

/* Grants that are out to @src. */
static uint32_t n_out(uint32_t src)
{
	uint32_t n = 0;

	for (int k = 0; k < fx.notes.n_asked; k++)
		n += !fx.notes.asked[k].is_over && fx.notes.asked[k].grant.chunk.src == src;
	return n;
}

static void end_of(uint32_t src)
{
	for (int k = 0; k < fx.notes.n_asked; k++)
		if (!fx.notes.asked[k].is_over && fx.notes.asked[k].grant.chunk.src == src)
			fx_end_grant(k, GOOD);
}

START_TEST(what_is_installed_counts_and_no_more)
{
	uint64_t in = 0;

	fx_flow_open(2, _i, FX_SUMS);
	ck_assert_uint_eq(shown().in_planned, 0); /* it takes no part yet */
	wb_flow_open_sink(fx.f, 0, NULL);
	ck_assert_uint_eq(shown().in_planned, FX_MEMORY);
	fx_end_grant(fx_first_out(true), WRONG_SUM);
	fx_run_lane();
	ck_assert_uint_eq(shown().in_bytes, 0);
	while (!fx.n_complete) {
		fx_end_grant(fx_first_out(n_out(0) + n_out(1) > 0), GOOD);
		fx_run_lane();
		in += FX_CHUNK;
		ck_assert_uint_eq(shown().in_bytes, in);
	}
	ck_assert_uint_eq(in, FX_MEMORY);
	ck_assert_uint_eq(shown().in_planned, FX_MEMORY);
	fx_flow_close();
}
END_TEST

/* A flow of which a chunk was changed behind its back, while others read it. */
START_TEST(what_is_found_damaged_counts_no_more)
{
	struct wb_xport_event ev = {.kind = WB_XP_GRANT, .conn = 103, .grant = 1};

	fx_flow_open(2, true, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	while (!fx.n_complete) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	ev.chunk = fx.notes.asked[0].grant.chunk;
	ev.chunk.src = 2;
	ev.chunk.dst = 3;
	fx.memory[0]++;
	ev.chunk.chunk = 0;
	wb_flow_on_grant(fx.f, &ev);
	fx_run_lane();
	ck_assert_int_eq(fx.n_mismatch, 1);
	ck_assert_uint_eq(shown().in_bytes, FX_MEMORY - FX_CHUNK);
	ck_assert_uint_eq(shown().out_bytes, 0);
	fx_flow_close();
}
END_TEST

START_TEST(what_was_read_from_a_worker_counts_as_it_has_left)
{
	struct wb_xport_event end = {.kind = WB_XP_WRITE_DONE};

	fx_flow_open(0, false, FX_SUMS);
	wb_flow_open_source(fx.f, 0);
	ck_assert_uint_gt(shown().out_planned, 0); /* its part; another trainer has the rest */
	ck_assert_uint_lt(shown().out_planned, FX_MEMORY);
	for (uint32_t chunk = 0; chunk < 3; chunk++) {
		struct wb_xport_event ev = {.kind = WB_XP_GRANT,
			.conn = 102,
			.grant = chunk + 1,
			.chunk = {.transfer = FX_TRANSFER,
				.bytes = FX_CHUNK,
				.chunk = chunk,
				.gen = 1,
				.src = 0,
				.dst = 2}};

		wb_flow_on_grant(fx.f, &ev);
		fx_run_lane();
		ck_assert_uint_eq(shown().out_bytes, chunk * FX_CHUNK);
		end.conn = fx.notes.answer[chunk].conn;
		end.cookie = fx.notes.answer[chunk].write.cookie;
		fx.notes.answer[chunk].is_over = true;
		wb_flow_on_xport(&end);
		ck_assert_uint_eq(shown().out_bytes, (chunk + 1) * FX_CHUNK);
	}
	ck_assert_uint_eq(shown().in_planned, 0);
	fx.now += 5 * WB_NS_PER_S;
	ck_assert_uint_eq(shown().age_ns, 5 * WB_NS_PER_S);
	fx_flow_close();
}
END_TEST

/* A trainer; then the engine that has more of it than another; then the own lane; then nobody. */
START_TEST(whom_it_lacks_most_of_is_named)
{
	struct wb_flow_lack lack;
	uint32_t more;

	fx_flow_open(2, true, FX_SUMS);
	ck_assert(!wb_flow_lacks(fx.f, 0, &lack));
	wb_flow_open_sink(fx.f, 0, NULL);
	ck_assert(wb_flow_lacks(fx.f, 0, &lack) && !lack.is_held);
	ck_assert_uint_lt(lack.src, FX_TRAINERS);
	ck_assert_uint_eq(lack.chunks, n_out(lack.src));
	fx_end_all(true, GOOD);
	more = n_out(3) > n_out(4) ? 3 : 4;
	ck_assert_uint_ne(n_out(3), n_out(4));
	ck_assert(wb_flow_lacks(fx.f, 0, &lack));
	ck_assert_uint_eq(lack.src, more);
	ck_assert_uint_eq(lack.chunks, n_out(more));
	end_of(3);
	end_of(4); /* all are in the lane now */
	ck_assert(wb_flow_lacks(fx.f, 0, &lack));
	ck_assert_uint_eq(lack.src, 2);
	ck_assert_uint_gt(lack.chunks, 0);
	fx_run_lane();
	ck_assert(!wb_flow_lacks(fx.f, 0, &lack));
	ck_assert_int_eq(fx.n_complete, 1);
	fx_flow_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flow_progress");
	TCase *c = tcase_create("flow_progress");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, what_is_installed_counts_and_no_more, 0, 2);
	tcase_add_test(c, what_is_found_damaged_counts_no_more);
	tcase_add_test(c, what_was_read_from_a_worker_counts_as_it_has_left);
	tcase_add_test(c, whom_it_lacks_most_of_is_named);
	return fx_run(s);
}
