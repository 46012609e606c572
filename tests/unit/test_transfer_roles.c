/* SPDX-License-Identifier: Apache-2.0 */
/* Who may say what to whom in a transfer (proto/peers.h), as a table and in an agent. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

#define N_KIND 37
#define TRANSFER 9

enum { AGENTS = 7, TRAINERS = 3 };
static const struct world_opts shape = {.seed = 3, TWO_ENGINES};

/* Of e0, said anew so that the table is not checked against itself. */
static bool is_one(uint32_t agent, const char *who)
{
	if (!strcmp(who, "coordinator"))
		return agent == 0;
	if (!strcmp(who, "trainers"))
		return agent < TRAINERS;
	if (!strcmp(who, "lead"))
		return agent == 3;
	if (!strcmp(who, "party"))
		return agent == 3 || agent == 4;
	return !strcmp(who, "any");
}

static const struct {
	const char *kind, *from, *to, *to_too;
} who[N_KIND] = {
	{"PREPARE", "coordinator", "lead", ""},
	{"REFUSED", "lead", "coordinator", ""},
	{"STOP", "lead", "party", ""},
	{"PROMISE", "party", "lead", ""},
	{"TARGET", "lead", "party", ""},
	{"STOPPED", "party", "lead", ""},
	{"OPEN", "lead", "party", ""},
	{"PROGRESS", "party", "lead", ""},
	{"END", "lead", "party", ""},
	{"ENDED", "party", "lead", ""},
	{"ENGINE", "lead", "coordinator", ""},
	{"LOST", "coordinator", "lead", "party"},
	{"CANCEL", "coordinator", "lead", ""},
	{"TRIGGER", "trainers", "coordinator", ""},
	{"SERVE", "coordinator", "trainers", ""},
	{"RELEASE", "coordinator", "trainers", ""},
	{"FINAL", "coordinator", "trainers", ""},
	{"TRAINER_LOST", "trainers", "coordinator", ""},
	{"CONFIRM", "any", "any", ""},
	{"STAGE", "lead", "party", ""},
	{"INSTALL", "lead", "party", ""},
	{"DECIDED", "coordinator", "lead", ""},
	{"RESUME", "party", "lead", ""},
	{"BALLOT", "any", "any", ""},
	{"BALLOTED", "any", "any", ""},
	{"ACCEPT", "any", "any", ""},
	{"ACCEPTED", "any", "any", ""},
	{"NEXT", "trainers", "coordinator", ""},
	{"ACTIVE", "coordinator", "trainers", ""},
	{"DOUBT", "party", "lead", ""},
	{"RECALL", "lead", "party", ""},
	{"RECALLED", "party", "lead", ""},
	{"OUTCOME", "lead", "party", ""},
	{"LACK", "trainers", "any", ""},
	{"LACKED", "any", "trainers", ""},
	{"ALL_STOPPED", "lead", "party", ""},
	{"HEARD", "party", "lead", ""},
};

START_TEST(each_kind_has_a_row_under_its_number)
{
	for (uint32_t k = 0; k < N_KIND; k++)
		ck_assert_str_eq(wb_peer_rule(k + 1)->name, who[k].kind);
	ck_assert_ptr_null(wb_peer_rule(0));
	ck_assert_ptr_null(wb_peer_rule(N_KIND + 1));
	ck_assert_ptr_null(wb_peer_rule(UINT32_MAX));
}
END_TEST

/* What agents of this plan may say of e0, one kind at a time; nothing comes of the rest. */
START_TEST(only_who_may_say_it_is_heard)
{
	const struct wb_msg_peer m = {.kind = (uint32_t)_i + 1,
		.transfer = TRANSFER,
		.question = _i + 1 == WBP_PEER_LACK};
	bool lost = m.kind == WBP_PEER_LOST;

	for (uint32_t from = 0; from < AGENTS; from++)
		for (uint32_t to = 0; to < AGENTS; to++) {
			bool may = is_one(from, who[_i].from) || (lost && is_one(from, "lead"));
			uint64_t was;

			may = may && (is_one(to, who[_i].to) || is_one(to, who[_i].to_too));
			begin(&shape);
			was = wb_transfer_violations(w.agent[to].core);
			say(to, from, m);
			ck_assert_msg(
				wb_transfer_violations(w.agent[to].core) - was == (may ? 0 : 1),
				"%s from agent %u to %u", who[_i].kind, from, to);
			ck_assert_msg(may || !n_said, "%s from agent %u to %u is answered",
				who[_i].kind, from, to);
			end();
		}
}
END_TEST

/* @from and @to have every role there is. */
static int check(struct wb_msg_peer m, struct wb_err *err)
{
	return wb_peer_check(&m, 2, UINT32_MAX, UINT32_MAX, err);
}

START_TEST(an_engine_is_one_of_the_plan)
{
	struct wb_err err;
	int n_engine = 0;

	for (uint32_t k = 1; k <= N_KIND; k++) {
		ck_assert_int_eq(check((struct wb_msg_peer){.kind = k, .transfer = 1}, &err), 0);
		if (check((struct wb_msg_peer){.kind = k, .transfer = 1, .engine = 2}, &err)) {
			ck_assert_ptr_nonnull(strstr(err.msg, "of engine 2, and the plan has 2"));
			n_engine++;
		}
	}
	ck_assert_int_eq(n_engine, 23);
	ck_assert_int_eq(
		check((struct wb_msg_peer){.kind = N_KIND + 1, .transfer = 1}, &err), -EBADMSG);
}
END_TEST

/* The lead of an engine leads the feed that comes from it, and no transfer of the trainers. */
START_TEST(a_lead_may_lead_a_feed)
{
	struct wb_msg_peer m = {.kind = WBP_PEER_CANCEL, .transfer = TRANSFER, .feed = true};

	begin(&shape);
	say(3, 5, m);
	ck_assert_uint_eq(wb_transfer_violations(w.agent[3].core), 0);
	m.feed = false;
	say(3, 5, m);
	ck_assert_uint_eq(wb_transfer_violations(w.agent[3].core), 1);
	m.feed = true;
	say(3, 6, m); /* leads nothing */
	ck_assert_uint_eq(wb_transfer_violations(w.agent[3].core), 2);
	end();
}
END_TEST

/* One engine's agent says all that it may not, to everybody, while a version is on its way. */
START_TEST(a_transfer_goes_on_beside_an_agent_that_says_what_it_may_not)
{
	uint64_t n = 0;

	begin(&shape);
	world_send(&w, 1);
	for (int steps = 0; w.n_final == 0; steps++) {
		uint32_t kind = 1 + (uint32_t)steps % N_KIND, to = (uint32_t)steps % AGENTS;

		ck_assert_msg(wb_sim_step(w.net), "the transfer does not end");
		if (to == 6 || is_one(3, who[kind - 1].from) || is_one(6, who[kind - 1].from))
			continue;
		if (!strcmp(who[kind - 1].from, "any"))
			continue;
		say(to, 6, (struct wb_msg_peer){.kind = kind, .transfer = 1, .code = -EIO});
		n++;
	}
	ck_assert_str_eq(w.last_result, "Succeeded");
	ck_assert_uint_gt(n, 20);
	ck_assert_uint_eq(world_violations(&w), n);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("roles");
	TCase *t = tcase_create("roles");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_add_test(t, each_kind_has_a_row_under_its_number);
	tcase_add_loop_test(t, only_who_may_say_it_is_heard, 0, N_KIND);
	tcase_add_test(t, an_engine_is_one_of_the_plan);
	tcase_add_test(t, a_lead_may_lead_a_feed);
	tcase_add_test(t, a_transfer_goes_on_beside_an_agent_that_says_what_it_may_not);
	suite_add_tcase(s, t);
	return fx_run(s);
}
