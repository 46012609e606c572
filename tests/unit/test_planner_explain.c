/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a plan: bounds and what sets them, names, rails without a rate, who sends to
 * whom. */
#include "base/base.h"
#include "base/buf.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_small.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

START_TEST(the_explanation_says_what_sets_the_bound)
{
	struct fx_small s;
	struct wb_plan *p = fx_small_plan(&s);
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	ck_assert(!wb_plan_explain(p, s.m, NULL, false, &b));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "set by egress of all trainers"));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "norm (direct: its needers round it)"));
	wb_buf_reset(&b);
	ck_assert(!wb_plan_explain(p, NULL, NULL, true, &b));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "\"node_bound_set_by\":\"trainer egress\""));
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

START_TEST(what_sets_the_greater_bound_is_named)
{
	static const struct {
		uint64_t rate; /* of the first trainer */
		const char *by;
	} rows[] = {
		{1000000, "trainer egress"},
		{100000, "rail of one worker"},
		{0, NULL},
	};

	for (size_t i = 0; i < WB_ARRAY_SIZE(rows); i++) {
		struct wb_plan *p = NULL;
		const char *by;
		struct fx_small s;

		fx_small_init(&s, WB_F32);
		s.worker[0].rail_bytes_per_s = rows[i].rate;
		ck_assert(!wb_plan_create(&s.in, &p, NULL));
		by = wb_plan_bound_by(p);
		ck_assert(rows[i].by ? by && !strcmp(by, rows[i].by) : !by);
		wb_plan_destroy(p);
		/* Two faster trainers leave it to the nodes of the rollouts. */
		s.worker[0].rail_bytes_per_s = s.worker[1].rail_bytes_per_s = 2000000;
		ck_assert(!wb_plan_create(&s.in, &p, NULL));
		ck_assert_str_eq(wb_plan_bound_by(p), "rollout ingress");
		wb_plan_destroy(p);
		fx_small_finish(&s);
	}
}
END_TEST

START_TEST(the_explanation_names_workers_whole_and_rails_without_a_rate)
{
	char name[200];
	const char *names[6] = {"", name, "r-0/0", "r-0/1", "r-1/0", "r-1/1"};
	struct fx_small s;
	struct wb_plan *p = NULL;
	struct wb_buf b;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	fx_small_init(&s, WB_F32);
	s.worker[1].rail_bytes_per_s = s.worker[4].rail_bytes_per_s = 0;
	ck_assert(!wb_plan_create(&s.in, &p, NULL));
	wb_buf_init(&b, 1 << 20);
	ck_assert(!wb_plan_explain(p, s.m, names, true, &b));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), name));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "\"name\":\"worker 0\""));
	wb_buf_reset(&b);
	ck_assert(!wb_plan_explain(p, s.m, NULL, false, &b));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b),
		"unknown: the rates of 2 of 6 rails are not known, worker 1 among them"));
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

/* Read from a file, rails may have any rate, and a time may be longer than 64 bits of ns. */
START_TEST(the_explanation_stands_rails_of_any_rate)
{
	static const uint64_t rate[] = {0, 1, UINT64_MAX};
	struct fx_small s;
	struct wb_plan *p = fx_small_plan(&s);
	struct wb_buf b;

	p->worker_bound_ns = 1;
	wb_buf_init(&b, 1 << 20);
	for (size_t i = 0; i < WB_ARRAY_SIZE(rate); i++)
		for (uint32_t w = 0; w <= p->n_worker; w++) {
			for (uint32_t v = 0; v < p->n_worker; v++)
				p->worker[v].rail_bytes_per_s = v == w ? 50 : rate[i];
			p->cls[0].bytes = UINT64_MAX;
			wb_buf_reset(&b);
			ck_assert(!wb_plan_explain(p, s.m, NULL, true, &b));
			ck_assert_ptr_null(strstr(wb_buf_cstr(&b), "inf"));
		}
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

/* Every byte that crosses the network stands in one pair of domains. */
START_TEST(who_sends_to_whom_adds_up_to_what_crosses)
{
	uint64_t from, to, bytes, in_pairs = 0, in_routes = 0;
	struct fx_small s;
	struct wb_plan *p = fx_small_plan(&s);
	struct wb_buf b;
	const char *at;

	wb_buf_init(&b, 1 << 20);
	ck_assert(!wb_plan_explain(p, s.m, NULL, true, &b));
	at = strstr(wb_buf_cstr(&b), "\"domain_pairs\":[");
	ck_assert_ptr_nonnull(at);
	/* Each begins after "[" or ",". */
	for (at = strchr(at, '['); at[0] != ']'; at = strchr(at, ']') + 1) {
		ck_assert_int_eq(
			sscanf(at + 1, "[%" SCNu64 ",%" SCNu64 ",%" SCNu64, &from, &to, &bytes), 3);
		ck_assert_uint_ne(from, to);
		in_pairs += bytes;
	}
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		for (uint32_t c = r->chunk_begin; r->stage != WB_STAGE_INTERNAL && c < r->chunk_end;
			c++)
			in_routes += wb_chunk_len(p, &p->cls[r->class_id], c);
	}
	ck_assert_uint_eq(in_pairs, in_routes);
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_explain");
	TCase *c = tcase_create("explain");

	tcase_add_test(c, the_explanation_says_what_sets_the_bound);
	tcase_add_test(c, what_sets_the_greater_bound_is_named);
	tcase_add_test(c, the_explanation_names_workers_whole_and_rails_without_a_rate);
	tcase_add_test(c, the_explanation_stands_rails_of_any_rate);
	tcase_add_test(c, who_sends_to_whom_adds_up_to_what_crosses);
	suite_add_tcase(s, c);
	return fx_run(s);
}
