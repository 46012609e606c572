/* SPDX-License-Identifier: Apache-2.0 */
/* Whose claim to serve all namespaces counts: what lists of Leases say, and who is asked about. */
#include "base/base.h"
#include "base/clock.h"
#include "operator-shim/kube/rivals.h"
#include "operator-shim/kube/token.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define S WB_NS_PER_S
#define OWN "uid-own"

static struct wb_kube_rivals rivals;

static json_t *lease(const char *ns, const char *name, const char *account, const char *version)
{
	return json_pack("{s:{s:s, s:s, s:o, s:s, s:s, s:{s:s*}}}", "metadata", "namespace", ns,
		"name", name, "uid", json_sprintf("uid-%s", name), "resourceVersion", version,
		"creationTimestamp", "2026-01-02T00:00:00Z", "annotations",
		"weightbridge.io/account", account);
}

static void add(
	const char *ns, const char *name, const char *account, const char *version, uint64_t now)
{
	json_t *list = json_pack("{s:[o]}", "items", lease(ns, name, account, version));

	ck_assert_int_eq(wb_kube_rivals_page(&rivals, list, OWN, now), 0);
	json_decref(list);
}

static void begin(void)
{
	wb_kube_rivals_begin(&rivals);
}

/* The list has ended; @is_proved is the answer about each that is asked about.  How many are. */
static unsigned prove(bool is_proved, uint64_t now)
{
	struct wb_kube_rival *x;
	unsigned n = 0;

	wb_kube_rivals_end(&rivals);
	for (; (x = wb_kube_rivals_unproved(&rivals, now)); n++) {
		wb_kube_rivals_answered(x, is_proved, now);
	}
	return n;
}

static const char *live(uint64_t now)
{
	unsigned n;
	const struct wb_kube_rival *x = wb_kube_rivals_live(&rivals, now, &n);

	ck_assert(!x == !n);
	return x ? x->name : "";
}

static void teardown(void)
{
	wb_kube_rivals_finish(&rivals);
}

START_TEST(claim_counts_when_its_account_is_allowed)
{
	begin();
	add("tenant", "a-forged", "default", "1", S);
	ck_assert_uint_eq(prove(false, S), 1);
	ck_assert_str_eq(live(S), "");
	begin();
	add("tenant", "a-forged", "default", "2", 2 * S);
	add("ops", "honest", "operator", "1", 2 * S);
	ck_assert_uint_eq(prove(true, 2 * S), 1); /* the other was asked about a second ago */
	ck_assert_str_eq(live(2 * S), "honest");
}
END_TEST

START_TEST(claim_without_an_account_counts_for_nothing)
{
	begin();
	add("tenant", "plain", NULL, "1", S);
	ck_assert_uint_eq(prove(true, S), 0);
	ck_assert_str_eq(live(S), "");
}
END_TEST

/* A question about it could not be asked, or would be refused each time. */
START_TEST(claim_of_what_is_no_account_is_not_asked_about)
{
	char two_bytes[255], long_one[255], longest[254];
	const char *const bad[] = {two_bytes, long_one, "", "Upper", "under_score", "-a", "a.",
		"a b", "a:b", "\xc3\xa9"};

	for (size_t i = 0; i < 127; i++)
		memcpy(two_bytes + 2 * i, "\xc3\xa9", 2);
	two_bytes[254] = '\0';
	memset(long_one, 'x', sizeof(long_one));
	long_one[254] = '\0';
	memset(longest, 'x', sizeof(longest));
	longest[253] = '\0';
	for (size_t i = 0; i < WB_ARRAY_SIZE(bad); i++) {
		begin();
		add("tenant", "forged", bad[i], "1", S);
		ck_assert_msg(prove(true, S) == 0, "case %zu", i);
		ck_assert_str_eq(live(S), "");
	}
	begin();
	add("ops", "x", longest, "1", S);
	add("ops", "y", "a-1.b", "1", S);
	ck_assert_uint_eq(prove(true, S), 2);
}
END_TEST

/* Neither is an honest one missed for one lost answer, nor does one without an answer hold up all.
 */
START_TEST(claim_without_an_answer_is_asked_about_a_few_times)
{
	begin();
	add("ops", "x", "operator", "1", S);
	wb_kube_rivals_end(&rivals);
	for (int i = 0; i < WB_KUBE_RIVALS_TRIES; i++) {
		struct wb_kube_rival *x = wb_kube_rivals_unproved(&rivals, S);

		ck_assert_ptr_nonnull(x);
		wb_kube_rivals_failed(x, S);
	}
	ck_assert_ptr_null(wb_kube_rivals_unproved(&rivals, S));
	ck_assert_str_eq(live(S), "");
	begin();
	add("ops", "x", "operator", "2", 61 * S); /* and again a minute later */
	ck_assert_uint_eq(prove(true, 61 * S), 1);
	ck_assert_str_eq(live(61 * S), "x");
	begin();
	add("ops", "x", "operator", "3", 121 * S);
	wb_kube_rivals_end(&rivals);
	for (int i = 0; i < WB_KUBE_RIVALS_TRIES; i++)
		wb_kube_rivals_failed(wb_kube_rivals_unproved(&rivals, 121 * S), 121 * S);
	ck_assert_str_eq(live(121 * S), "x"); /* for what it was known to be */
}
END_TEST

START_TEST(another_account_in_the_same_lease_is_proved_anew)
{
	begin();
	add("ops", "x", "operator", "1", S);
	prove(true, S);
	begin();
	add("ops", "x", "default", "2", 2 * S);
	ck_assert_str_eq(live(2 * S), "");
	ck_assert_uint_eq(prove(false, 2 * S), 1);
	ck_assert_str_eq(live(2 * S), "");
}
END_TEST

START_TEST(proof_is_asked_for_again_after_a_minute)
{
	begin();
	add("ops", "x", "operator", "1", S);
	prove(true, S);
	for (unsigned i = 2; i < 61; i++) {
		begin();
		add("ops", "x", "operator", i % 2 ? "1" : "2", i * S);
		ck_assert_uint_eq(prove(false, i * S), 0);
	}
	begin();
	add("ops", "x", "operator", "3", 61 * S);
	ck_assert_uint_eq(prove(false, 61 * S), 1);
	ck_assert_str_eq(live(61 * S), "");
}
END_TEST

START_TEST(lease_that_does_not_change_for_a_minute_is_dead)
{
	begin();
	add("ops", "x", "operator", "1", S);
	prove(true, S);
	begin();
	add("ops", "x", "operator", "1", 30 * S);
	prove(true, 30 * S);
	ck_assert_str_eq(live(61 * S - 1), "x");
	ck_assert_str_eq(live(61 * S), "");
	begin();
	ck_assert_uint_eq(prove(true, 61 * S), 0); /* and gone */
	ck_assert_uint_eq(rivals.n, 0);
}
END_TEST

START_TEST(ours_is_no_rival)
{
	begin();
	add("ops", "own", "operator", "1", S);
	ck_assert_uint_eq(prove(true, S), 0);
}
END_TEST

/* However many a tenant forges, so few are asked about, and all of another namespace are seen. */
START_TEST(forged_ones_do_not_hide_an_honest_one)
{
	char name[32];

	begin();
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		add("a-tenant", name, name, "1", S);
	}
	add("ops", "honest", "operator", "1", S);
	wb_kube_rivals_end(&rivals);
	ck_assert_uint_eq(rivals.n, WB_KUBE_RIVALS_OF_NAMESPACE + 1);
	ck_assert_uint_eq(prove(true, S), WB_KUBE_RIVALS_OF_NAMESPACE + 1);
	rivals.rival[0].is_proved = false;
	ck_assert_str_eq(rivals.rival[WB_KUBE_RIVALS_OF_NAMESPACE].name, "honest");
}
END_TEST

static void add_some(char first, unsigned from, unsigned n)
{
	char name[32];

	for (unsigned i = from; i < from + n; i++) {
		snprintf(name, sizeof(name), "%c%u", first, i);
		add("a-tenant", name, name, "1", S);
	}
}

/* Lists of 300 Leases of a tenant, who had eight before: so many of them come first, then those. */
static const unsigned before_known[] = {0, 1, 7, 8, 9, 292};

START_TEST(of_a_namespace_that_grows_no_more_are_kept)
{
	unsigned n = before_known[_i];

	begin();
	add_some('k', 0, WB_KUBE_RIVALS_OF_NAMESPACE);
	ck_assert_uint_eq(prove(false, S), WB_KUBE_RIVALS_OF_NAMESPACE);
	begin();
	add_some('f', 0, n);
	add_some('k', 0, WB_KUBE_RIVALS_OF_NAMESPACE);
	add_some('f', n, 292 - n);
	add("ops", "honest", "operator", "1", S);
	ck_assert_uint_le(prove(true, S), WB_KUBE_RIVALS_OF_NAMESPACE + 1);
	ck_assert_uint_eq(rivals.n, WB_KUBE_RIVALS_OF_NAMESPACE + 1);
	ck_assert_str_eq(rivals.rival[WB_KUBE_RIVALS_OF_NAMESPACE].name, "honest");
}
END_TEST

/* All of a namespace were replaced since the last list. */
START_TEST(leases_that_are_gone_take_no_place_of_others)
{
	begin();
	add_some('k', 0, WB_KUBE_RIVALS_OF_NAMESPACE);
	prove(false, S);
	begin();
	add_some('f', 0, WB_KUBE_RIVALS_OF_NAMESPACE);
	ck_assert_uint_eq(prove(true, S), WB_KUBE_RIVALS_OF_NAMESPACE);
	ck_assert_uint_eq(rivals.n, WB_KUBE_RIVALS_OF_NAMESPACE);
	ck_assert_str_eq(live(S), "f0");
}
END_TEST

START_TEST(lists_that_do_not_end_keep_no_more_and_more)
{
	for (unsigned i = 0; i < 100; i++) {
		begin();
		add_some('f', 8 * i, WB_KUBE_RIVALS_OF_NAMESPACE);
	}
	ck_assert_uint_le(rivals.n, 2 * WB_KUBE_RIVALS_OF_NAMESPACE);
	wb_kube_rivals_end(&rivals);
	begin();
	add_some('f', 1000, WB_KUBE_RIVALS_OF_NAMESPACE);
	wb_kube_rivals_end(&rivals);
	ck_assert_uint_eq(rivals.n, WB_KUBE_RIVALS_OF_NAMESPACE);
}
END_TEST

START_TEST(eldest_is_before_all_that_count)
{
	begin();
	add("ops", "x", "operator", "1", S);
	add("tenant", "w", NULL, "1", S);
	prove(true, S);
	ck_assert(wb_kube_rivals_is_eldest(&rivals, "2026-01-01T00:00:00Z", "z", S));
	ck_assert(!wb_kube_rivals_is_eldest(&rivals, "2026-01-03T00:00:00Z", "a", S));
	/* Of the same second: by uid, and of those that count. */
	ck_assert(wb_kube_rivals_is_eldest(&rivals, "2026-01-02T00:00:00Z", "uid-wz", S));
	ck_assert(!wb_kube_rivals_is_eldest(&rivals, "2026-01-02T00:00:00Z", "uid-y", S));
}
END_TEST

START_TEST(what_is_asked_names_the_account_of_that_namespace)
{
	json_t *body = wb_kube_server_body("ops", "operator");
	const json_t *spec = json_object_get(body, "spec");
	const json_t *what = json_object_get(spec, "resourceAttributes");

	ck_assert_str_eq(json_string_value(json_object_get(spec, "user")),
		"system:serviceaccount:ops:operator");
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(spec, "groups"), 1)),
		"system:serviceaccounts:ops");
	ck_assert_str_eq(json_string_value(json_object_get(what, "subresource")), "status");
	ck_assert(!json_object_get(what, "namespace")); /* of all */
	json_decref(body);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kube rivals");
	TCase *tc = tcase_create("rivals");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, claim_counts_when_its_account_is_allowed);
	tcase_add_test(tc, claim_without_an_account_counts_for_nothing);
	tcase_add_test(tc, claim_of_what_is_no_account_is_not_asked_about);
	tcase_add_test(tc, claim_without_an_answer_is_asked_about_a_few_times);
	tcase_add_test(tc, another_account_in_the_same_lease_is_proved_anew);
	tcase_add_test(tc, proof_is_asked_for_again_after_a_minute);
	tcase_add_test(tc, lease_that_does_not_change_for_a_minute_is_dead);
	tcase_add_test(tc, ours_is_no_rival);
	tcase_add_test(tc, forged_ones_do_not_hide_an_honest_one);
	tcase_add_loop_test(tc, of_a_namespace_that_grows_no_more_are_kept, 0,
		(int)WB_ARRAY_SIZE(before_known));
	tcase_add_test(tc, leases_that_are_gone_take_no_place_of_others);
	tcase_add_test(tc, lists_that_do_not_end_keep_no_more_and_more);
	tcase_add_test(tc, eldest_is_before_all_that_count);
	tcase_add_test(tc, what_is_asked_names_the_account_of_that_namespace);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
