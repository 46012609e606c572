/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets: what tenants may take of the operator, charged and released, and what they are told. */
#include "base/base.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "operator-shim/serve/budget.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MI (UINT64_C(1) << 20)
#define GI (UINT64_C(1) << 30)

static struct wb_budget *b;

static uint64_t used(enum wb_budget_kind kind, enum wb_budget_scope scope)
{
	uint64_t most[WB_BUDGET_KINDS][WB_BUDGET_SCOPES];

	wb_budget_most(b, most);
	return most[kind][scope];
}
static struct wb_err err;

/* Agents: 8 in all, 4 of a namespace, 2 of an object.  Maps: 64, 32 and 16 MiB. */
static void set_up(void)
{
	struct wb_budget_limits l;

	wb_budget_size(GI, &l);
	ck_assert_int_eq(wb_budget_override(&l, "agents=8/4/2"), 0);
	ck_assert_int_eq(wb_budget_override(&l, "maps=64Mi/32Mi/16Mi"), 0);
	ck_assert_int_eq(wb_budget_create(&l, &b), 0);
}

static void tear_down(void)
{
	wb_budget_put(b);
	b = NULL;
}

static int agent(const char *object)
{
	memset(&err, 0, sizeof(err));
	return wb_budget_charge(b, WB_BUDGET_AGENTS, object, 1, &err);
}

static const struct {
	const char *before[9]; /* charged first */
	const char *object;
	int rc;
	const char *says;
} charges[] = {
	{{NULL}, "a/x", 0, ""}, {{"a/x"}, "a/x", 0, ""},
	{{"a/x", "a/x"}, "a/x", -EDQUOT,
		"WeightTransfer a/x has 2 connected agents, 1 more would be above the budget of 2"},
	{{"a/x", "a/x"}, "a/y", 0, ""},
	{{"a/x", "a/x", "a/y", "a/y"}, "a/z", -EDQUOT,
		"namespace a has 4 connected agents, 1 more would be above the budget of 4"},
	/* Others notice nothing of it. */
	{{"a/x", "a/x", "a/y", "a/y"}, "b/x", 0, ""},
	/* A namespace whose name begins like another one's. */
	{{"a/x", "a/x", "a/y", "a/y"}, "aa/x", 0, ""},
	{{"a/x", "a/x", "a/y", "a/y", "b/x", "b/x", "b/y", "b/y"}, "c/x", -EDQUOT,
		"all tenants of this operator together have 8 connected agents, 1 more would be "
		"above the budget of 8"},
	{{"a/x", "a/x", "a/y", "a/y", "b/x", "b/x", "b/y", ""}, "", -EDQUOT, "all tenants"},
	{{"", "", "", "", ""}, "", 0, ""}, /* of no object: only in all */
};

START_TEST(charge_is_refused_where_the_narrowest_account_is_full)
{
	const char *remedy = "resources.limits.memory) or --budget agents (chart value "
			     "budgets.agents)";

	for (size_t i = 0; charges[_i].before[i]; i++)
		ck_assert_int_eq(agent(charges[_i].before[i]), 0);
	ck_assert_int_eq(agent(charges[_i].object), charges[_i].rc);
	ck_assert_msg(strstr(err.msg, charges[_i].says), "%s", err.msg);
	if (charges[_i].rc)
		ck_assert_msg(strstr(err.msg, remedy), "%s", err.msg);
}
END_TEST

START_TEST(refusal_charges_nobody_and_release_makes_room)
{
	ck_assert_int_eq(agent("a/x"), 0);
	ck_assert_int_eq(agent("a/x"), 0);
	ck_assert(!wb_budget_has_room(b, WB_BUDGET_AGENTS, "a/x", 1));
	ck_assert_int_eq(agent("a/x"), -EDQUOT);
	ck_assert_uint_eq(used(WB_BUDGET_AGENTS, WB_BUDGET_ALL), 2);
	ck_assert_uint_eq(wb_budget_refused(b, WB_BUDGET_AGENTS, WB_BUDGET_OBJECT), 1);
	wb_budget_release(b, WB_BUDGET_AGENTS, "a/x", 1);
	ck_assert(wb_budget_has_room(b, WB_BUDGET_AGENTS, "a/x", 1));
	ck_assert_int_eq(agent("a/x"), 0);
	wb_budget_release(b, WB_BUDGET_AGENTS, "a/x", 2);
	for (int s = 0; s < WB_BUDGET_SCOPES; s++)
		ck_assert_uint_eq(used(WB_BUDGET_AGENTS, (enum wb_budget_scope)s), 0);
}
END_TEST

START_TEST(bytes_are_told_in_units_and_do_not_wrap)
{
	ck_assert_int_eq(wb_budget_charge(b, WB_BUDGET_MAPS, "a/x", 15 * MI, &err), 0);
	ck_assert_int_eq(wb_budget_charge(b, WB_BUDGET_MAPS, "a/x", 2 * MI, &err), -EDQUOT);
	ck_assert_msg(strstr(err.msg, "WeightTransfer a/x has 15 MiB of manifests and source maps, "
				      "2048 KiB more would be above the budget of 16 MiB"),
		"%s", err.msg);
	ck_assert_int_eq(wb_budget_charge(b, WB_BUDGET_MAPS, "a/x", UINT64_MAX, &err), -EDQUOT);
	ck_assert_int_eq(wb_budget_charge(b, WB_BUDGET_MAPS, "b/x", 17 * MI, &err), -EDQUOT);
	ck_assert_uint_eq(used(WB_BUDGET_MAPS, WB_BUDGET_ALL), 15 * MI);
	ck_assert_uint_eq(used(WB_BUDGET_MAPS, WB_BUDGET_NAMESPACE), 15 * MI);
}
END_TEST

START_TEST(one_kind_leaves_the_others_alone)
{
	ck_assert_int_eq(wb_budget_charge(b, WB_BUDGET_MAPS, "a/x", 16 * MI, &err), 0);
	ck_assert_int_eq(agent("a/x"), 0);
	ck_assert_int_eq(wb_budget_charge(b, WB_BUDGET_PLANNING, "a/x", 1, &err), 0);
	ck_assert(!wb_budget_has_room(b, WB_BUDGET_PLANNING, "a/y", 1)); /* one a namespace */
	ck_assert(wb_budget_has_room(b, WB_BUDGET_PLANNING, "b/y", 1));
}
END_TEST

/* Whatever is charged and released: no account is ever above its bound, and in the end all are
 * empty. */
START_TEST(sums_hold_for_any_order)
{
	static const char *const who[] = {"a/x", "a/y", "b/x", "b/y", "c/x", ""};
	uint64_t held[WB_ARRAY_SIZE(who)] = {0};
	struct wb_rng rng = {UINT64_C(0x5eed) + (uint64_t)_i};
	uint64_t sum = 0;

	for (int i = 0; i < 2000; i++) {
		size_t w = wb_rng_below(&rng, WB_ARRAY_SIZE(who));
		uint64_t n = wb_rng_below(&rng, 3);

		if (wb_rng_below(&rng, 2)) {
			n = WB_MIN(n, held[w]);
			wb_budget_release(b, WB_BUDGET_AGENTS, who[w], n);
			held[w] -= n;
			sum -= n;
		} else if (wb_budget_charge(b, WB_BUDGET_AGENTS, who[w], n, NULL) == 0) {
			held[w] += n;
			sum += n;
		}
		ck_assert_uint_eq(used(WB_BUDGET_AGENTS, WB_BUDGET_ALL), sum);
		ck_assert_uint_le(sum, 8);
		ck_assert_uint_le(used(WB_BUDGET_AGENTS, WB_BUDGET_NAMESPACE), 4);
		ck_assert_uint_le(used(WB_BUDGET_AGENTS, WB_BUDGET_OBJECT), 2);
	}
	for (size_t w = 0; w < WB_ARRAY_SIZE(who); w++)
		wb_budget_release(b, WB_BUDGET_AGENTS, who[w], held[w]);
	ck_assert_uint_eq(used(WB_BUDGET_AGENTS, WB_BUDGET_NAMESPACE), 0);
}
END_TEST

/* Names are anybody's choice, and there are many. */
START_TEST(who_has_left_takes_no_memory)
{
	wb_mem_allow(64 * 1024);
	for (int i = 0; i < 1000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "n%d/x", i);
		ck_assert_msg(agent(name) == 0, "%s: %s", name, err.msg);
		wb_budget_release(b, WB_BUDGET_AGENTS, name, 1);
	}
	wb_mem_allow(0);
}
END_TEST

START_TEST(short_memory_charges_nobody)
{
	for (uint64_t n = 1;; n++) {
		int rc;

		wb_mem_fail_at(n);
		rc = agent("new/x");
		wb_mem_fail_at(0);
		if (rc == 0)
			break;
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert_uint_eq(used(WB_BUDGET_AGENTS, WB_BUDGET_ALL), 0);
		ck_assert_uint_eq(used(WB_BUDGET_AGENTS, WB_BUDGET_NAMESPACE), 0);
		tear_down();
		set_up();
	}
	ck_assert_uint_eq(used(WB_BUDGET_AGENTS, WB_BUDGET_OBJECT), 1);
}
END_TEST

/* ---- sizes ---- */

static const uint64_t memories[] = {0, 64 * MI, 256 * MI, GI, 4 * GI, 64 * GI, UINT64_C(1) << 50};

START_TEST(default_budgets_fit_into_the_memory_together)
{
	struct wb_budget_limits l;
	uint64_t all = 0;

	wb_budget_size(memories[_i], &l);
	all += l.v[WB_BUDGET_OBJECTS][WB_BUDGET_ALL] * 128 * 1024;
	all += l.v[WB_BUDGET_AGENTS][WB_BUDGET_ALL] * 64 * 1024;
	all += l.v[WB_BUDGET_CONNECTIONS][WB_BUDGET_ALL] * 128 * 1024;
	all += l.v[WB_BUDGET_WORKERS][WB_BUDGET_ALL] * 2 * 1024;
	all += l.v[WB_BUDGET_MAPS][WB_BUDGET_ALL] + l.v[WB_BUDGET_PLANS][WB_BUDGET_ALL];
	all += l.v[WB_BUDGET_FRAMES][WB_BUDGET_ALL] + l.v[WB_BUDGET_REPORTS][WB_BUDGET_ALL];
	all += l.v[WB_BUDGET_PAGES][WB_BUDGET_ALL];
	all += l.v[WB_BUDGET_PLANNING][WB_BUDGET_ALL] * l.planning_bytes;
	if (memories[_i] >= 256 * MI)
		ck_assert_uint_le(all, WB_MAX(memories[_i] / 16 * 15, 252 * MI));
	for (int k = 0; k < WB_BUDGET_KINDS; k++) {
		const uint64_t *v = l.v[k];

		ck_assert_uint_ge(v[WB_BUDGET_ALL], v[WB_BUDGET_NAMESPACE]);
		ck_assert_uint_ge(v[WB_BUDGET_NAMESPACE], v[WB_BUDGET_OBJECT]);
		ck_assert_uint_ge(v[WB_BUDGET_OBJECT], 1);
		/* One tenant at its bound leaves others room; who is not known is nobody's. */
		if (k != WB_BUDGET_CONNECTIONS)
			ck_assert_uint_le(v[WB_BUDGET_NAMESPACE], v[WB_BUDGET_ALL] / 2);
	}
}
END_TEST

/* What the chart's default limit of 1 GiB gives: the figures of the manual. */
START_TEST(figures_of_the_manual_are_those_of_one_gib)
{
	static const uint64_t want[WB_BUDGET_KINDS][WB_BUDGET_SCOPES] = {
		[WB_BUDGET_OBJECTS] = {1024, 256, 1},
		[WB_BUDGET_AGENTS] = {4096, 2048, 2048},
		[WB_BUDGET_CONNECTIONS] = {512, 512, 512},
		[WB_BUDGET_WORKERS] = {32768, 16384, 16384},
		[WB_BUDGET_MAPS] = {128 * MI, 64 * MI, 64 * MI},
		[WB_BUDGET_PLANS] = {64 * MI, 32 * MI, 32 * MI},
		[WB_BUDGET_FRAMES] = {16 * MI, 8 * MI, 8 * MI},
		[WB_BUDGET_REPORTS] = {16 * MI, 8 * MI, 8 * MI},
		[WB_BUDGET_PAGES] = {32 * MI, 16 * MI, 16 * MI},
		[WB_BUDGET_PLANNING] = {2, 1, 1},
	};
	struct wb_budget_limits l;

	wb_budget_size(GI, &l);
	for (int k = 0; k < WB_BUDGET_KINDS; k++)
		for (int i = 0; i < WB_BUDGET_SCOPES; i++)
			ck_assert_msg(l.v[k][i] == want[k][i], "%s %d: %" PRIu64,
				wb_budget_name((enum wb_budget_kind)k), i, l.v[k][i]);
	ck_assert_uint_eq(l.planning_bytes, 96 * MI);
}
END_TEST

static const struct {
	const char *text;
	int rc;
	enum wb_budget_kind kind;
	uint64_t v[WB_BUDGET_SCOPES];
} options[] = {
	{"agents=100/10/5", 0, WB_BUDGET_AGENTS, {100, 10, 5}},
	{"agents=9000", 0, WB_BUDGET_AGENTS, {9000, 2048, 2048}},
	{"agents=100", 0, WB_BUDGET_AGENTS, {100, 100, 100}},
	{"agents=9000/3000", 0, WB_BUDGET_AGENTS, {9000, 3000, 2048}},
	{"maps=1Gi/512Mi/100Ki", 0, WB_BUDGET_MAPS, {GI, 512 * MI, 100 * 1024}},
	{"plans=5", 0, WB_BUDGET_PLANS, {5, 5, 5}},
	{"planning=4/2/1", 0, WB_BUDGET_PLANNING, {4, 2, 1}},
	{"agents", -EINVAL, 0, {0}},
	{"agents=", -EINVAL, 0, {0}},
	{"agents=0", -EINVAL, 0, {0}},
	{"agents=1/2", -EINVAL, 0, {0}},
	{"agents=4/3/2/1", -EINVAL, 0, {0}},
	{"agents=4/", -EINVAL, 0, {0}},
	{"agents=4Ki", -EINVAL, 0, {0}},
	{"agents=-4", -EINVAL, 0, {0}},
	{"agents=4 ", -EINVAL, 0, {0}},
	{"agent=4", -EINVAL, 0, {0}},
	{"maps=4M", -EINVAL, 0, {0}},
	{"maps=9999999Ti", -EINVAL, 0, {0}},
	{"=4", -EINVAL, 0, {0}},
	{"", -EINVAL, 0, {0}},
};

START_TEST(option_overrides_what_it_names)
{
	struct wb_budget_limits l, before;

	wb_budget_size(GI, &l);
	before = l;
	ck_assert_int_eq(wb_budget_override(&l, options[_i].text), options[_i].rc);
	if (options[_i].rc)
		ck_assert_int_eq(memcmp(&l, &before, sizeof(l)), 0);
	else
		ck_assert_int_eq(
			memcmp(l.v[options[_i].kind], options[_i].v, sizeof(options[_i].v)), 0);
}
END_TEST

/* ---- memory of a job ---- */

START_TEST(thread_takes_no_more_than_it_is_allowed)
{
	void *a, *b2, *before = wb_alloc(3000);

	wb_mem_allow(10000);
	wb_free(before); /* of before: makes no room */
	a = wb_alloc(6000);
	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_null(wb_zalloc(1000, 6));
	ck_assert(wb_mem_over());
	ck_assert_ptr_null(wb_realloc_array(a, 11000, 1));
	wb_free(a);
	b2 = wb_zalloc(1000, 6);
	ck_assert_ptr_nonnull(b2);
	b2 = wb_realloc_array(b2, 9000, 1); /* in exchange for it */
	ck_assert_ptr_nonnull(b2);
	ck_assert_ptr_null(wb_zalloc(SIZE_MAX, 2));
	ck_assert_ptr_null(wb_pages_alloc(2000)); /* pages of its own count as well */
	wb_free(b2);
	b2 = wb_pages_alloc(9000);
	ck_assert_ptr_nonnull(b2);
	ck_assert_ptr_null(wb_alloc(2000));
	wb_pages_free(b2, 9000);
	wb_pages_free(NULL, 9000);
	wb_mem_allow(0);
	ck_assert(!wb_mem_over());
	a = wb_alloc(20000);
	ck_assert_ptr_nonnull(a);
	wb_free(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("budget");
	TCase *tc = tcase_create("accounts"), *sizes = tcase_create("sizes");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, charge_is_refused_where_the_narrowest_account_is_full, 0,
		WB_ARRAY_SIZE(charges));
	tcase_add_test(tc, refusal_charges_nobody_and_release_makes_room);
	tcase_add_test(tc, bytes_are_told_in_units_and_do_not_wrap);
	tcase_add_test(tc, one_kind_leaves_the_others_alone);
	tcase_add_loop_test(tc, sums_hold_for_any_order, 0, 20);
	tcase_add_test(tc, who_has_left_takes_no_memory);
	tcase_add_test(tc, short_memory_charges_nobody);
	suite_add_tcase(suite, tc);
	tcase_add_loop_test(
		sizes, default_budgets_fit_into_the_memory_together, 0, WB_ARRAY_SIZE(memories));
	tcase_add_test(sizes, figures_of_the_manual_are_those_of_one_gib);
	tcase_add_loop_test(sizes, option_overrides_what_it_names, 0, WB_ARRAY_SIZE(options));
	tcase_add_test(sizes, thread_takes_no_more_than_it_is_allowed);
	suite_add_tcase(suite, sizes);
	return fx_run(suite);
}
