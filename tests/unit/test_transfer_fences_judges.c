/* SPDX-License-Identifier: Apache-2.0 */
/* What a judge, and who asks judges, must not believe.  Each check is reached by the very message
 * that it is for. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

#include <unistd.h>

enum { JUDGES = 3 };

static const struct world_opts shape = {.seed = 21, TWO_ENGINES};

static struct world_opts joint(void)
{
	struct world_opts o = shape;

	o.rollout_staged = o.all_engines = true;
	return o;
}

#define DOUBTED 7 /* the transfer that is asked about */

/* The lead of e0 asks the judges about a transfer, and nobody hears it. */
static struct ballot *ask_judges_by_hand(void)
{
	struct world_opts o = joint();
	struct ballot *b;
	uint64_t names[WB_AREA_JUDGES_MAX];
	uint32_t n;

	begin(&o);
	n = wb__transfer_judges(epoch_of(LEAD), names);
	ck_assert_uint_eq(n, JUDGES);
	b = &epoch_of(LEAD)->lead[0].ballot;
	wb__transfer_ballot_ask(b, object_of(LEAD), DOUBTED, names, n);
	ck_assert_int_eq(b->state, BALLOT_ASKING);
	return b;
}

static void answer(
	uint32_t judge, uint32_t kind, uint64_t ballot, uint64_t accepted, enum decision value)
{
	say(LEAD, judge,
		(struct wb_msg_peer){.kind = kind,
			.transfer = DOUBTED,
			.ballot = ballot,
			.accepted = accepted,
			.decision = value});
}

START_TEST(an_answer_to_an_older_ballot_does_not_count)
{
	struct ballot *b = ask_judges_by_hand();
	uint64_t older = b->number;

	b->retry_ns = 0;
	(void)wb_transfer_tick(w.agent[LEAD].core);
	ck_assert_uint_gt(b->number, older);
	for (uint32_t j = 0; j < JUDGES; j++)
		answer(j, WBP_PEER_BALLOTED, older, 0, DECIDE_NONE);
	ck_assert_int_eq(b->state, BALLOT_ASKING);
	for (uint32_t j = 0; j < 2; j++)
		answer(j, WBP_PEER_BALLOTED, b->number, 0, DECIDE_NONE);
	ck_assert_int_eq(b->state, BALLOT_ACCEPTING);
	for (uint32_t j = 0; j < JUDGES; j++)
		answer(j, WBP_PEER_ACCEPTED, older, older, DECIDE_ABORT);
	ck_assert_int_eq(b->state, BALLOT_ACCEPTING);
	end();
}
END_TEST

START_TEST(one_judge_is_no_majority_however_often_it_answers)
{
	struct ballot *b = ask_judges_by_hand();

	for (int i = 0; i < 3; i++)
		answer(1, WBP_PEER_BALLOTED, b->number, 0, DECIDE_NONE);
	ck_assert_int_eq(b->state, BALLOT_ASKING);
	answer(2, WBP_PEER_BALLOTED, b->number, 0, DECIDE_NONE);
	ck_assert_int_eq(b->state, BALLOT_ACCEPTING);
	for (int i = 0; i < 3; i++)
		answer(1, WBP_PEER_ACCEPTED, b->number, b->number, DECIDE_ABORT);
	ck_assert_int_eq(b->state, BALLOT_ACCEPTING);
	answer(0, WBP_PEER_ACCEPTED, b->number, b->number, DECIDE_ABORT);
	ck_assert_int_eq(b->state, BALLOT_NONE);
	end();
}
END_TEST

START_TEST(a_promise_is_not_an_acceptance)
{
	struct ballot *b = ask_judges_by_hand();

	for (uint32_t j = 0; j < JUDGES; j++)
		answer(j, WBP_PEER_BALLOTED, b->number, 0, DECIDE_NONE);
	for (uint32_t j = 0; j < JUDGES; j++)
		answer(j, WBP_PEER_BALLOTED, b->number, 0, DECIDE_NONE);
	ck_assert_int_eq(b->state, BALLOT_ACCEPTING);
	end();
}
END_TEST

/* In any order: what was accepted by the greatest ballot is proposed. */
START_TEST(the_newest_accepted_value_is_proposed)
{
	struct ballot *b = ask_judges_by_hand();

	for (uint32_t i = 0; i < 2; i++) {
		bool newer = (int)i == _i;

		answer(i, WBP_PEER_BALLOTED, b->number, newer ? 9 : 5,
			newer ? DECIDE_COMMIT : DECIDE_ABORT);
	}
	ck_assert_int_eq(b->state, BALLOT_ACCEPTING);
	ck_assert_int_eq(b->value, DECIDE_COMMIT);
	ck_assert_uint_eq(last(LEAD, "trainer-0", WBP_PEER_ACCEPT)->m.decision, DECIDE_COMMIT);
	end();
}
END_TEST

/* The judge's answer to the lead of e0; NULL: it said nothing. */
static const struct wb_msg_peer *judge(
	uint32_t kind, uint64_t transfer, uint64_t ballot, enum decision value)
{
	const struct said *s;

	forget_said();
	say(0, LEAD,
		(struct wb_msg_peer){
			.kind = kind, .transfer = transfer, .ballot = ballot, .decision = value});
	s = last(0, w.agent[LEAD].name,
		kind == WBP_PEER_BALLOT ? WBP_PEER_BALLOTED : WBP_PEER_ACCEPTED);
	return s ? &s->m : NULL;
}

static bool says_yes(const struct wb_msg_peer *m)
{
	return m && m->code == 0;
}

static bool says_no(const struct wb_msg_peer *m, uint64_t promised)
{
	return m && m->code == WB_ESTALE && m->ballot == promised;
}

START_TEST(a_judge_goes_back_behind_no_promise)
{
	struct world_opts o = joint();

	begin(&o);
	ck_assert(says_yes(judge(WBP_PEER_BALLOT, 7, 10, 0)));
	ck_assert(says_no(judge(WBP_PEER_BALLOT, 7, 10, 0), 10)); /* somebody else's, too */
	ck_assert(says_no(judge(WBP_PEER_BALLOT, 7, 9, 0), 10));
	ck_assert(says_no(judge(WBP_PEER_ACCEPT, 7, 9, DECIDE_COMMIT), 10));
	ck_assert(says_no(judge(WBP_PEER_ACCEPT, 7, 1, DECIDE_COMMIT), 10)); /* the coordinator's */
	ck_assert(says_yes(judge(WBP_PEER_ACCEPT, 7, 10, DECIDE_ABORT)));
	ck_assert(says_yes(judge(WBP_PEER_BALLOT, 7, 11, 0)));
	ck_assert_uint_eq(judge(WBP_PEER_BALLOT, 7, 12, 0)->accepted, 10);
	ck_assert_uint_eq(judge(WBP_PEER_BALLOT, 7, 13, 0)->decision, DECIDE_ABORT);
	ck_assert_ptr_null(judge(WBP_PEER_ACCEPT, 7, 13, DECIDE_NONE)); /* it says nothing */
	ck_assert_uint_eq(judge(WBP_PEER_BALLOT, 7, 14, 0)->accepted, 10);
	end();
}
END_TEST

static int cannot_save(void *ctx, const char *name, const void *data, size_t bytes)
{
	(void)ctx;
	(void)name;
	(void)data;
	(void)bytes;
	return -EIO;
}

START_TEST(a_judge_that_cannot_keep_its_word_does_not_give_it)
{
	struct world_opts o = joint();
	int (*save)(void *, const char *, const void *, size_t);

	begin(&o);
	save = w.agent[0].store.save;
	w.agent[0].store.save = cannot_save;
	ck_assert_ptr_null(judge(WBP_PEER_BALLOT, 7, 10, 0));
	ck_assert_ptr_null(judge(WBP_PEER_ACCEPT, 7, 10, DECIDE_COMMIT));
	w.agent[0].store.save = save;
	ck_assert(says_yes(judge(WBP_PEER_BALLOT, 7, 5, 0))); /* it has promised nothing */
	ck_assert_uint_eq(judge(WBP_PEER_BALLOT, 7, 6, 0)->accepted, 0);
	end();
}
END_TEST

static int64_t cannot_load(void *ctx, const char *name, void *data, size_t cap)
{
	(void)ctx;
	(void)name;
	(void)data;
	(void)cap;
	return -EIO;
}

static FILE *log_file;
static int log_was;

static void listen_to_log(void)
{
	log_file = tmpfile();
	ck_assert_ptr_nonnull(log_file);
	fflush(stderr);
	log_was = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(fileno(log_file), STDERR_FILENO), 0);
}

/* What it said since; static. */
static const char *end_of_log(void)
{
	static char text[4096];

	fflush(stderr);
	ck_assert_int_ge(dup2(log_was, STDERR_FILENO), 0);
	close(log_was);
	rewind(log_file);
	text[fread(text, 1, sizeof(text) - 1, log_file)] = '\0';
	fclose(log_file);
	return text;
}

/* It has promised, is restarted, and its file is damaged, or cannot be read. */
START_TEST(a_judge_that_does_not_know_what_it_said_does_not_speak)
{
	struct world_opts o = joint();

	begin(&o);
	ck_assert(says_yes(judge(WBP_PEER_BALLOT, 7, 10, 0)));
	world_kill_agent_only(&w, 0);
	world_start_agent(&w, 0);
	if (_i == 0)
		w.agent[0].store.load = cannot_load;
	else
		w.agent[0].n_file -= 1;
	world_run_for(&w, WB_NS_PER_S);
	listen_to_log();
	world_plan(&w);
	ck_assert_ptr_nonnull(strstr(end_of_log(), "the file of decisions is damaged"));
	ck_assert_ptr_null(judge(WBP_PEER_BALLOT, 7, 5, 0));
	ck_assert_ptr_null(judge(WBP_PEER_ACCEPT, 7, 1, DECIDE_COMMIT));
	ck_assert_ptr_null(judge(WBP_PEER_BALLOT, 8, 5, 0));
	end();
}
END_TEST

/* A restart with a good file in between changes nothing. */
START_TEST(a_judge_does_not_speak_of_what_it_has_forgotten)
{
	struct world_opts o = joint();
	uint32_t n = TRANSFER_VERDICTS_MAX + 3;

	begin(&o);
	for (uint32_t t = 1; t <= n; t++)
		ck_assert(says_yes(judge(WBP_PEER_ACCEPT, t, 10, DECIDE_COMMIT)));
	if (_i) {
		world_kill_agent_only(&w, 0);
		world_start_agent(&w, 0);
		world_run_for(&w, WB_NS_PER_S);
		world_plan(&w);
	}
	for (uint32_t t = 1; t <= 3; t++)
		ck_assert_ptr_null(judge(WBP_PEER_BALLOT, t, 11, 0));
	for (uint32_t t = 4; t <= n; t++)
		ck_assert_uint_eq(judge(WBP_PEER_BALLOT, t, 11, 0)->decision, DECIDE_COMMIT);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences_judges");
	TCase *tc = tcase_create("fences");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, an_answer_to_an_older_ballot_does_not_count);
	tcase_add_test(tc, one_judge_is_no_majority_however_often_it_answers);
	tcase_add_test(tc, a_promise_is_not_an_acceptance);
	tcase_add_loop_test(tc, the_newest_accepted_value_is_proposed, 0, 2);
	tcase_add_test(tc, a_judge_goes_back_behind_no_promise);
	tcase_add_test(tc, a_judge_that_cannot_keep_its_word_does_not_give_it);
	tcase_add_loop_test(tc, a_judge_that_does_not_know_what_it_said_does_not_speak, 0, 2);
	tcase_add_loop_test(tc, a_judge_does_not_speak_of_what_it_has_forgotten, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
