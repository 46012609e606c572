/* SPDX-License-Identifier: Apache-2.0 */
/* A new leader goes on from the status that the last one wrote. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

#include "proto/beat.h"

/* An operator that ran, and another that starts with the status it wrote. */
static json_t *restart(uint64_t id)
{
	struct wb_spec s = spec_of(2, 1);
	json_t *stored;

	run_two_engines();
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	transfer(6, true, WB_RESULT_SUCCEEDED);
	stored = wb_reconcile_status(r);
	now.ns += 1000 * S;
	now.wall_ns += 1000 * S;
	s.engines = 2;
	make(&s, id);
	ck_assert_int_eq(wb_reconcile_restore(r, now, stored), 0);
	ck_assert_int_eq(wb_reconcile_tick(r, now), 0);
	return stored;
}

static void same_status(json_t *want)
{
	json_t *is = wb_reconcile_status(r);
	char *a = json_dumps(want, JSON_SORT_KEYS | JSON_INDENT(1));
	char *b = json_dumps(is, JSON_SORT_KEYS | JSON_INDENT(1));
	size_t at = 0;

	while (a[at] && a[at] == b[at])
		at++;
	at -= at > 200 ? 200 : at;
	ck_assert_msg(!strcmp(a, b), "%.600s\n--- is\n%.600s", a + at, b + at);
	free(a);
	free(b);
	json_decref(is);
}

START_TEST(new_leader_shows_the_stored_status_until_it_knows_better)
{
	json_t *stored = restart(78);

	same_status(stored);
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + wb_beat_return_ns(15 * S));
	later(wb_beat_return_ns(15 * S) - S);
	same_status(stored);
	later(S);
	/* Nobody came back: that is evidence, but not against the version. */
	ck_assert_int_eq(field("connectedAgents", NULL), 0);
	ck_assert_str_eq(cond("Ready", NULL, NULL), "False");
	ck_assert_str_eq(cond("UpToDate", NULL, NULL), "False"); /* all engines, of none */
	ck_assert_int_eq(field("transfer", NULL), 6);
	ck_assert_int_eq(
		field("version", NULL), json_integer_value(json_object_get(stored, "version")));
	ck_assert_int_eq(field("plan", "term"), 1);
	ck_assert_int_eq(field("lastTransfer", "endToEndMilliseconds"), 188);
	ck_assert_int_eq(field("lastTransfer", "throughputMegabitsPerSecond"), 10000);
	ck_assert_uint_eq(wb_reconcile_transfer_seen(r), 6);
	ck_assert_uint_eq(wb_reconcile_term(r), 2);
	json_decref(stored);
}
END_TEST

START_TEST(adoption_after_a_restart_leaves_the_status_as_it_was)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_reconcile_worker *w[] = {t, &e1, &e2};
	static const char *const names[] = {"train", "roll-a", "roll-b"};
	json_t *stored = restart(78);
	uint32_t index = 0;

	for (uint32_t i = 0; i < 3; i++) {
		size_t n = i ? 1 : 2;
		struct wb_reconcile_agent a = agent(21 + i, names[i], w[i], n);

		a.heard_term = 1;
		a.heard_operator = 77;
		a.running = (struct wb_reconcile_known){{1, 1}, dig(99), 4};
		for (size_t k = 0; k < n; k++) {
			w[i][k].plan_index = index++;
			w[i][k].held = (struct wb_reconcile_held){
				6, json_integer_value(json_object_get(stored, "version")), false};
		}
		same_status(stored);
		up(a);
	}
	same_status(stored);
	json_decref(stored);
}
END_TEST

static const char *const odd[] = {"{}", "{\"transfer\": -1, \"version\": \"x\"}",
	"{\"transfer\": 9007199254740992}",
	"{\"plan\": [], \"recentTransfers\": {}, \"conditions\": [1, {\"type\": 5}]}",
	"{\"recentTransfers\": [1, {}, {\"transfer\": 1}, {\"transfer\": 1, \"result\": "
	"\"Other\"}]}",
	"{\"engines\": [{\"name\": 1}], \"currentTransfer\": 7}"};

START_TEST(odd_stored_status_is_left_out)
{
	struct wb_spec s = spec_of(2, 1);
	json_t *o = json_loads(odd[_i], 0, NULL);

	make(&s, 78);
	ck_assert_int_eq(wb_reconcile_restore(r, now, o), 0);
	later(60 * S);
	ck_assert_int_eq(field("transfer", NULL), -1);
	ck_assert_int_eq(field("lastTransfer", "transfer"), -1);
	json_decref(o);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("restore");
	TCase *tc = tcase_create("restore");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, new_leader_shows_the_stored_status_until_it_knows_better);
	tcase_add_test(tc, adoption_after_a_restart_leaves_the_status_as_it_was);
	tcase_add_loop_test(tc, odd_stored_status_is_left_out, 0, (int)WB_ARRAY_SIZE(odd));
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
