/* SPDX-License-Identifier: Apache-2.0 */
/* What is written to the API server, and in which order: events as series with a budget a
 * namespace, and turns of namespaces; and what it has said lately of tokens. */
#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "operator-shim/kube/answers.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/series.h"
#include "operator-shim/kube/turns.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S WB_NS_PER_S

/* ---- answers ---- */

static struct wb_kube_answers answers;

static const uint8_t *key_of(unsigned n)
{
	static uint8_t key[WB_KUBE_ANSWER_KEY];

	memcpy(key, &n, sizeof(n));
	return key;
}

/* 1: nothing is known. */
static int known(unsigned n, uint64_t now)
{
	const struct wb_kube_answer *a = wb_kube_answers_find(&answers, key_of(n), now);

	return a ? a->rc : 1;
}

START_TEST(answer_holds_for_its_time_and_no_longer)
{
	memset(&answers, 0, sizeof(answers));
	wb_kube_answers_put(&answers, key_of(1), 0, "", S);
	wb_kube_answers_put(&answers, key_of(2), -EPERM, "may not", S);
	ck_assert_int_eq(known(1, S), 0);
	ck_assert_int_eq(known(2, S), -EPERM);
	ck_assert_str_eq(wb_kube_answers_find(&answers, key_of(2), S)->sentence, "may not");
	ck_assert_int_eq(known(3, S), 1);
	ck_assert_int_eq(known(2, S + WB_KUBE_ANSWER_NO_NS), 1);
	ck_assert_int_eq(known(1, S + WB_KUBE_ANSWER_YES_NS - 1), 0);
	ck_assert_int_eq(known(1, S + WB_KUBE_ANSWER_YES_NS), 1);
}
END_TEST

START_TEST(made_up_tokens_push_out_no_good_one)
{
	memset(&answers, 0, sizeof(answers));
	wb_kube_answers_put(&answers, key_of(0), 0, "", S);
	for (unsigned i = 1; i <= 1000; i++)
		wb_kube_answers_put(&answers, key_of(i), -EACCES, "nobody's", S + i);
	ck_assert_int_eq(known(0, S + 1000), 0);
	ck_assert_int_eq(known(1000, S + 1000), -EACCES);
	ck_assert_int_eq(known(1000 - WB_KUBE_ANSWERS + 1, S + 1000), -EACCES);
	ck_assert_int_eq(known(1000 - WB_KUBE_ANSWERS, S + 1000), 1); /* the oldest went */
}
END_TEST

/* ---- turns ---- */

struct entry {
	struct wb_kube_turn turn;
	const char *name;
};

static struct wb_kube_turns turns;

static const char *pop(void)
{
	struct wb_kube_turn *t = wb_kube_turns_pop(&turns);

	return t ? wb_container_of(t, struct entry, turn)->name : "";
}

START_TEST(namespaces_take_turns_and_within_one_the_oldest_goes_first)
{
	struct entry e[] = {{.name = "a1"}, {.name = "a2"}, {.name = "a3"}, {.name = "b1"},
		{.name = "c1"}, {.name = "c2"}};
	static const char *const order[] = {"a1", "b1", "c1", "a2", "c2", "a3", ""};

	for (size_t i = 0; i < WB_ARRAY_SIZE(e); i++) {
		char ns[2] = {e[i].name[0], '\0'};

		ck_assert_int_eq(wb_kube_turns_push(&turns, ns, &e[i].turn), 0);
		ck_assert_int_eq(
			wb_kube_turns_push(&turns, ns, &e[i].turn), 0); /* keeps its place */
	}
	ck_assert_uint_eq(turns.n, 6);
	for (size_t i = 0; i < WB_ARRAY_SIZE(order); i++)
		ck_assert_str_eq(pop(), order[i]);
	ck_assert_ptr_null(turns.last);
}
END_TEST

START_TEST(newcomer_waits_for_one_of_each_namespace_and_not_for_a_thousand)
{
	struct entry *many = calloc(1000, sizeof(*many)), one = {.name = "victim"};

	for (int i = 0; i < 1000; i++) {
		many[i].name = "flood";
		ck_assert_int_eq(wb_kube_turns_push(&turns, "flood", &many[i].turn), 0);
	}
	ck_assert_str_eq(pop(), "flood");
	ck_assert_int_eq(wb_kube_turns_push(&turns, "quiet", &one.turn), 0);
	ck_assert_str_eq(pop(), "flood");
	ck_assert_str_eq(pop(), "victim");
	wb_kube_turns_finish(&turns);
	ck_assert(!wb_kube_turns_has(&many[999].turn));
	free(many);
}
END_TEST

START_TEST(who_is_removed_has_no_turn)
{
	struct entry e[] = {{.name = "a1"}, {.name = "a2"}, {.name = "a3"}, {.name = "b1"}};

	for (int at = 0; at < 4; at++) {
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(
				wb_kube_turns_push(&turns, i < 3 ? "a" : "b", &e[i].turn), 0);
		wb_kube_turns_remove(&turns, &e[at].turn);
		wb_kube_turns_remove(&turns, &e[at].turn); /* nothing */
		for (int i = 0; i < 3; i++)
			ck_assert_str_ne(pop(), e[at].name);
		ck_assert_str_eq(pop(), "");
	}
}
END_TEST

START_TEST(turn_without_memory_is_not_lost)
{
	struct entry e = {.name = "a1"};

	wb_mem_fail_at(1);
	ck_assert_int_eq(wb_kube_turns_push(&turns, "a", &e.turn), -ENOMEM);
	wb_mem_fail_at(0);
	ck_assert(!wb_kube_turns_has(&e.turn));
	ck_assert_int_eq(wb_kube_turns_push(&turns, "a", &e.turn), 0);
	ck_assert_str_eq(pop(), "a1");
}
END_TEST

/* ---- series ---- */

static struct wb_kube_series *s;
static uint64_t now;
static char said[400]; /* of the last write: "POST name reason about count note" */

static void set_up(void)
{
	s = wb_kube_series_create();
	ck_assert_ptr_nonnull(s);
	now = 1000 * S;
}

static void tear_down(void)
{
	wb_kube_series_destroy(s);
}

static int add_to(
	const char *ns, const char *object, const char *reason, const char *about, const char *note)
{
	return wb_kube_series_add(s, now, now, now,
		&(struct wb_kube_occurrence){"v1", "Pod", ns, object, object, reason, about, note});
}

static void add(const char *reason, const char *about, const char *note)
{
	ck_assert_int_eq(add_to("n", "t", reason, about, note), 0);
}

/* The next write, which succeeds unless @how says else; "" = none. */
static const char *write_how(enum wb_kube_written how)
{
	struct wb_kube_series_write w;

	said[0] = '\0';
	if (!wb_kube_series_next(s, now, &w))
		return said;
	snprintf(said, sizeof(said), "%s %s %s %s %llu %s", w.is_new ? "POST" : "PATCH", w.of.name,
		w.of.reason, w.of.about, (unsigned long long)w.count, w.of.note);
	wb_kube_series_wrote(s, now, w.id, how);
	return said;
}

static const char *written(void)
{
	return write_how(WB_KUBE_WRITTEN);
}

/* All that is due now. */
static unsigned count_written(void)
{
	unsigned n = 0;

	while (*written())
		n++;
	return n;
}

START_TEST(what_happens_again_is_one_event_with_a_count)
{
	add("A", "", "first");
	ck_assert_str_eq(written(), "POST t A  1 first");
	ck_assert_uint_eq(wb_kube_series_due(s, now), UINT64_MAX);
	add("A", "", "second");
	add("A", "", "third");
	ck_assert_str_eq(written(), ""); /* not at once */
	ck_assert_uint_eq(wb_kube_series_due(s, now), now + 5 * S);
	now += 5 * S;
	ck_assert_str_eq(written(), "PATCH t A  3 third");
	ck_assert_str_eq(written(), "");
}
END_TEST

/* It was cut in the middle of a character; in JSON there is no such text. */
START_TEST(note_that_ends_in_half_a_character_is_written)
{
	struct wb_kube_series_write w;
	json_t *o;

	add("A", "", "\xe6\xa8\xa1 \xe6\xa8");
	ck_assert(wb_kube_series_next(s, now, &w));
	o = wb_kube_event_body(&w, "i");
	ck_assert_ptr_nonnull(o);
	ck_assert_str_eq(json_string_value(json_object_get(o, "message")), "\xe6\xa8\xa1 ??");
	json_decref(o);
}
END_TEST

/* 2,800 a minute, for ten minutes: the attack that was seen. */
START_TEST(flood_of_one_cause_is_a_write_a_minute)
{
	unsigned n = 0;

	for (int i = 0; i < 28000; i++) {
		now += 600 * S / 28000;
		add("AuthenticationRejected", "pod", "another random name");
		n += count_written();
	}
	printf("28,000 occurrences in ten minutes: %u writes\n", n);
	ck_assert_uint_le(n, 16);
	ck_assert_uint_eq(wb_kube_series_count(s), 1);
}
END_TEST

START_TEST(two_refusals_that_alternate_are_two_events)
{
	unsigned n = 0;

	for (int i = 0; i < 384; i++) {
		now += 20 * S / 384;
		add(i % 2 ? "AgentNameTaken" : "AuthenticationRejected", "pod", "x");
		n += count_written();
	}
	ck_assert_uint_eq(wb_kube_series_count(s), 2);
	ck_assert_uint_le(n, 6);
}
END_TEST

START_TEST(of_a_thousand_subjects_eight_are_told_apart)
{
	char about[32];
	unsigned n = 0;

	for (int i = 0; i < 1000; i++) {
		snprintf(about, sizeof(about), "agent-%d", i);
		add("AgentLost", about, about);
	}
	ck_assert_str_eq(written(), "POST t AgentLost agent-0 1 agent-0");
	for (n = 1; n < WB_KUBE_ABOUT_MAX; n++)
		ck_assert_str_ne(written(), "");
	ck_assert_str_eq(written(), "POST t AgentLost  992 agent-999");
	ck_assert_str_eq(written(), "");
	/* Other reasons and objects are not the worse for it. */
	add("EngineFed", "e0", "x");
	ck_assert_str_eq(written(), "POST t EngineFed e0 1 x");
	ck_assert_int_eq(add_to("n", "u", "AgentLost", "agent-7", "y"), 0);
	ck_assert_str_eq(written(), "POST u AgentLost agent-7 1 y");
}
END_TEST

START_TEST(budget_is_a_namespace_s_own)
{
	char name[16];
	unsigned n;

	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "o%d", i);
		ck_assert_int_eq(add_to("flood", name, "A", "", "x"), 0);
	}
	ck_assert_uint_eq(count_written(), WB_KUBE_SERIES_BURST);
	ck_assert_int_eq(add_to("quiet", "o", "A", "", "mine"), 0);
	ck_assert_str_eq(written(), "POST o A  1 mine");
	/* The rest comes as the budget does, the oldest first, and none is lost. */
	ck_assert_uint_gt(wb_kube_series_due(s, now), now);
	now = wb_kube_series_due(s, now);
	ck_assert_str_eq(written(), "POST o40 A  1 x");
	ck_assert_str_eq(written(), "");
	for (n = 1; wb_kube_series_due(s, now) != UINT64_MAX; n += count_written())
		now = WB_MAX(now, wb_kube_series_due(s, now));
	ck_assert_uint_eq(n, 200 - WB_KUBE_SERIES_BURST);
	ck_assert_uint_eq(now, 1000 * S + n * (60 * S / WB_KUBE_SERIES_PER_MIN));
}
END_TEST

START_TEST(namespaces_take_turns_at_events)
{
	static const char *const order[] = {"a1", "b1", "a2", "b2", "a3", "a4"};

	for (int i = 1; i <= 4; i++) {
		char a[4] = {'a', (char)('0' + i), '\0'}, b[4] = {'b', (char)('0' + i), '\0'};

		ck_assert_int_eq(add_to("a", a, "A", "", "x"), 0);
		if (i <= 2)
			ck_assert_int_eq(add_to("b", b, "A", "", "x"), 0);
		now++;
	}
	for (size_t i = 0; i < WB_ARRAY_SIZE(order); i++)
		ck_assert(!strncmp(written() + 5, order[i], 2));
}
END_TEST

START_TEST(namespace_with_too_much_to_say_is_told_so_and_others_are_not)
{
	char name[16];
	int rc = 0;

	for (int i = 0; i < WB_KUBE_SERIES_MAX; i++) {
		snprintf(name, sizeof(name), "o%d", i);
		ck_assert_int_eq(add_to("n", name, "A", "", "x"), 0);
	}
	ck_assert_int_eq(add_to("n", "one-more", "A", "", "x"), -ENOBUFS);
	ck_assert_int_eq(add_to("n", "o7", "A", "", "x"), 0); /* is there */
	ck_assert_int_eq(add_to("m", "o", "A", "", "x"), 0);
	/* One that has been told makes room. */
	ck_assert_str_ne(written(), "");
	rc = add_to("n", "one-more", "A", "", "x");
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(wb_kube_series_count(s), WB_KUBE_SERIES_MAX + 1);
}
END_TEST

static const struct {
	uint64_t quiet_s;
	const char *at_once, *later; /* what is written of the next occurrence, and after 5 s */
} quiet[] = {
	{1, "", "PATCH t A  2 again"}, /* it is no news */
	{61, "PATCH t A  2 again", ""}, {601, "POST t A  1 again", ""}, /* another story */
};

START_TEST(after_quiet_it_is_news_again)
{
	add("A", "", "once");
	written();
	now += quiet[_i].quiet_s * S;
	add("A", "", "again");
	ck_assert_str_eq(written(), quiet[_i].at_once);
	now += 5 * S;
	ck_assert_str_eq(written(), quiet[_i].later);
}
END_TEST

START_TEST(event_that_has_expired_is_made_anew)
{
	add("A", "", "1");
	written();
	add("A", "", "2");
	add("A", "", "3");
	now += 5 * S;
	ck_assert_str_eq(write_how(WB_KUBE_VANISHED), "PATCH t A  3 3");
	ck_assert_str_eq(written(), "POST t A  2 3"); /* what nobody was told of */
	ck_assert_str_eq(written(), "");
}
END_TEST

START_TEST(event_that_is_refused_waits_until_it_happens_again)
{
	add("A", "", "1");
	ck_assert_str_eq(write_how(WB_KUBE_NOT_WRITTEN), "POST t A  1 1");
	ck_assert_uint_eq(wb_kube_series_due(s, now), UINT64_MAX);
	add("A", "", "2");
	ck_assert_str_eq(written(), "");
	now += 5 * S;
	ck_assert_str_eq(written(), "POST t A  2 2");
}
END_TEST

START_TEST(event_whose_first_answer_was_lost_is_brought_up_to_date)
{
	add("A", "", "1");
	ck_assert_str_eq(write_how(WB_KUBE_NOT_WRITTEN), "POST t A  1 1");
	add("A", "", "2");
	now += 5 * S;
	ck_assert_str_eq(write_how(WB_KUBE_IS_THERE), "POST t A  2 2");
	ck_assert_uint_le(wb_kube_series_due(s, now), now);
	ck_assert_str_eq(written(), "PATCH t A  2 2");
	ck_assert_str_eq(written(), "");
	add("A", "", "3");
	now += 10 * S;
	ck_assert_str_eq(written(), "PATCH t A  3 3");
}
END_TEST

START_TEST(name_of_an_event_is_a_name_wherever_it_is_cut)
{
	struct wb_kube_series_write w;
	char name[240];

	memset(name, 'a', sizeof(name));
	memcpy(name + 197, ".-.", 3);
	name[239] = '\0';
	ck_assert_int_eq(add_to("n", name, "A", "", "x"), 0);
	ck_assert(wb_kube_series_next(s, now, &w));
	ck_assert_uint_eq(strcspn(w.event, ".-"), 197);
	ck_assert_uint_eq(strlen(w.event), 197 + 1 + 16);
}
END_TEST

START_TEST(what_was_said_long_ago_takes_no_memory)
{
	char name[16];

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		ck_assert_int_eq(add_to(name, "o", "A", "", "x"), 0);
		written();
	}
	now += 1300 * S;
	ck_assert_int_eq(add_to("n", "o", "A", "", "x"), 0);
	ck_assert_uint_eq(wb_kube_series_count(s), 1);
}
END_TEST

START_TEST(occurrence_without_memory_is_an_error_and_nothing_else)
{
	int rc = -ENOMEM;

	for (uint64_t at = 1; rc; at++) {
		wb_mem_fail_at(at);
		rc = add_to("n", "o", "A", "b", "x");
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || rc == -ENOMEM);
		ck_assert_uint_lt(at, 20);
	}
	ck_assert_str_eq(written(), "POST o A b 1 x");
	ck_assert_str_eq(written(), "");
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("series");
	TCase *tc = tcase_create("turns");

	tcase_add_test(tc, answer_holds_for_its_time_and_no_longer);
	tcase_add_test(tc, made_up_tokens_push_out_no_good_one);
	tcase_add_test(tc, namespaces_take_turns_and_within_one_the_oldest_goes_first);
	tcase_add_test(tc, newcomer_waits_for_one_of_each_namespace_and_not_for_a_thousand);
	tcase_add_test(tc, who_is_removed_has_no_turn);
	tcase_add_test(tc, turn_without_memory_is_not_lost);
	suite_add_tcase(su, tc);
	tc = tcase_create("series");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, what_happens_again_is_one_event_with_a_count);
	tcase_add_test(tc, note_that_ends_in_half_a_character_is_written);
	tcase_add_test(tc, flood_of_one_cause_is_a_write_a_minute);
	tcase_add_test(tc, two_refusals_that_alternate_are_two_events);
	tcase_add_test(tc, of_a_thousand_subjects_eight_are_told_apart);
	tcase_add_test(tc, budget_is_a_namespace_s_own);
	tcase_add_test(tc, namespaces_take_turns_at_events);
	tcase_add_test(tc, namespace_with_too_much_to_say_is_told_so_and_others_are_not);
	tcase_add_loop_test(tc, after_quiet_it_is_news_again, 0, (int)WB_ARRAY_SIZE(quiet));
	tcase_add_test(tc, event_that_has_expired_is_made_anew);
	tcase_add_test(tc, event_that_is_refused_waits_until_it_happens_again);
	tcase_add_test(tc, event_whose_first_answer_was_lost_is_brought_up_to_date);
	tcase_add_test(tc, name_of_an_event_is_a_name_wherever_it_is_cut);
	tcase_add_test(tc, what_was_said_long_ago_takes_no_memory);
	tcase_add_test(tc, occurrence_without_memory_is_an_error_and_nothing_else);
	suite_add_tcase(su, tc);
	return su;
}

int main(void)
{
	return fx_run(suite());
}
