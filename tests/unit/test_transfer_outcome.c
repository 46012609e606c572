/* SPDX-License-Identifier: Apache-2.0 */
/* What trainers and the operator are told of a transfer follows from how its engines ended: nobody
 * hears that old weights are whole where they may not be, nor of a success that leaves one torn. */
#include "base/base.h"
#include "base/err.h"
#include "tests/common/fx_check.h"
#include "transfer/epoch.h"
#include "transfer/outcome.h"

#include <stdio.h>
#include <string.h>

#define ENGINES 3

enum is { EACH, ALL, DROPPED }; /* engines decide alone, or as one; a newer version came */

static const struct {
	const char *ends; /* of each engine: Committed, Aborted, Torn, Unknown; '-' has no part */
	enum is is;
	enum wb_result result;
	int code;
	const char *text; /* begins with */
} rows[] = {
	{"CCC", EACH, WB_RESULT_SUCCEEDED, 0, ""},
	{"C--", EACH, WB_RESULT_SUCCEEDED, 0, ""},
	{"CAC", EACH, WB_RESULT_SUCCEEDED, 0, "e1 ended"},
	{"CUC", EACH, WB_RESULT_SUCCEEDED, 0, "it is not known which version engine e1 holds: e1 "},
	{"CTC", EACH, WB_RESULT_PARTLY_TORN, 0, "1 of 3 Torn: engine e1 holds a mix of two versio"},
	{"TCT", EACH, WB_RESULT_PARTLY_TORN, 0, "2 of 3 Torn: engine e0 holds a mix of two versio"},
	{"T-C", EACH, WB_RESULT_PARTLY_TORN, 0, "1 of 2 Torn: engine e0 holds a mix of two versio"},
	{"AAA", EACH, WB_RESULT_ABORTED, WB_EABORTED, "e0 ended"},
	{"AUA", EACH, WB_RESULT_UNKNOWN, WB_EUNKNOWN, "it is not known which version engine e1 "},
	{"AUT", EACH, WB_RESULT_TORN, WB_ETORN, "1 of 3 Torn: engine e2 holds a mix of two versio"},
	{"TTT", EACH, WB_RESULT_TORN, WB_ETORN, "3 of 3 Torn: engine e0 holds a mix of two versio"},
	{"CCC", ALL, WB_RESULT_SUCCEEDED, 0, ""},
	{"CUC", ALL, WB_RESULT_SUCCEEDED, WB_EUNKNOWN, "it is not known which version engine e1 "},
	{"CTC", ALL, WB_RESULT_PARTLY_TORN, WB_ETORN, "1 of 3 Torn: engine e1 holds a mix of two"},
	{"AAA", ALL, WB_RESULT_ABORTED, WB_EABORTED, "e0 ended"},
	{"AAA", DROPPED, WB_RESULT_SUPERSEDED, 0, "e0 ended"},
	{"CAA", DROPPED, WB_RESULT_SUCCEEDED, 0, "e1 ended"},
};

static enum wb_engine_state state_of(char c)
{
	return c == 'C'   ? WB_ENGINE_COMMITTED
	       : c == 'T' ? WB_ENGINE_TORN
	       : c == 'U' ? WB_ENGINE_UNKNOWN
			  : WB_ENGINE_ABORTED;
}

START_TEST(trainers_hear_the_worst_of_what_engines_have)
{
	char name[ENGINES][4] = {"e0", "e1", "e2"};
	struct wb_roster_engine engine[ENGINES] = {{0}};
	struct coordinator_engine book[ENGINES] = {{0}};
	struct wb_roster r = {.n_engine = ENGINES,
		.engine = engine,
		.rollout_staged = rows[_i].is != EACH,
		.all_engines = rows[_i].is == ALL};
	struct epoch e = {.r = &r};
	struct coordinator l = {.e = &e, .engine = book, .is_superseded = rows[_i].is == DROPPED};
	struct wb_peer_FINAL m;
	struct outcome o;
	uint32_t n = 0;

	for (uint32_t i = 0; i < ENGINES; i++) {
		engine[i].name = name[i];
		book[i].takes_part = rows[_i].ends[i] != '-';
		book[i].state = state_of(rows[_i].ends[i]);
		n += book[i].takes_part;
		if (book[i].state != WB_ENGINE_COMMITTED)
			snprintf(book[i].sentence, sizeof(book[i].sentence), "%s ended", name[i]);
	}
	wb__transfer_outcome(&l, &o, &m);
	ck_assert_int_eq(o.result, rows[_i].result);
	ck_assert_int_eq((int)m.code, rows[_i].code);
	ck_assert_msg(!strncmp(o.text, rows[_i].text, strlen(rows[_i].text)), "%s", o.text);
	ck_assert_uint_eq(!!o.text[0], !!rows[_i].text[0]);
	ck_assert_uint_eq(m.n_engines, n);
	for (uint32_t i = 0, k = 0; i < ENGINES; i++)
		if (book[i].takes_part)
			ck_assert_int_eq(o.state[k++], book[i].state);
	wb__transfer_outcome_free(&o);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("outcome");
	TCase *t = tcase_create("outcome");

	suite_add_tcase(s, t);
	tcase_add_loop_test(
		t, trainers_hear_the_worst_of_what_engines_have, 0, (int)WB_ARRAY_SIZE(rows));
	return fx_run(s);
}
