/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator of a transfer must not believe.  Each check is reached by the very message
 * that it is for. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

enum { JUDGES = 3 };

static const struct world_opts shape = {.seed = 21, TWO_ENGINES};

static struct world_opts joint(void)
{
	struct world_opts o = shape;

	o.rollout_staged = o.all_engines = true;
	return o;
}

static struct wb_msg_peer engine_is(
	uint32_t engine, uint64_t transfer, enum wb_engine_state state, uint32_t losses)
{
	return (struct wb_msg_peer){.kind = WBP_PEER_ENGINE,
		.engine = engine,
		.transfer = transfer,
		.how = state,
		.losses = losses};
}

static void trainer_asks(uint32_t agent, int64_t version)
{
	struct wb_msg_app_send m = {.version = version};

	worker_says(agent, WBP_APP_SEND, &m);
}

static void trigger(uint32_t from, int64_t version, uint32_t refusals)
{
	say(COORDINATOR, from,
		(struct wb_msg_peer){
			.kind = WBP_PEER_TRIGGER, .version = version, .refusals = refusals});
}

/* Transfer 1, of which only the coordinator knows. */
static struct coordinator *lead_a_transfer(const struct world_opts *o)
{
	struct coordinator *l;

	begin(o);
	l = &object_of(COORDINATOR)->coordinator;
	trainer_asks(0, 10);
	for (uint32_t a = 1; a < JUDGES; a++)
		trigger(a, 10, 0);
	ck_assert_int_eq(l->state, COORDINATOR_RUNNING);
	ck_assert_uint_eq(l->transfer, 1);
	return l;
}

/* An engine is lost: the trainers stay until the others have said that they need nobody for its
 * share; RECEIVED that was on its way before does not say so. */
START_TEST(trainers_stay_until_a_loss_is_taken_in)
{
	struct world_opts o = shape;
	struct coordinator *l;

	o.engines = 3;
	l = lead_a_transfer(&o);
	say(COORDINATOR, LEAD, engine_is(0, 1, WB_ENGINE_RECEIVED, 0));
	say(COORDINATOR, 7, engine_is(2, 1, WB_ENGINE_ABORTED, 0));
	ck_assert_uint_eq(last(COORDINATOR, w.agent[LEAD].name, WBP_PEER_LOST)->m.losses, 1);
	say(COORDINATOR, LEAD1, engine_is(1, 1, WB_ENGINE_RECEIVED, 0));
	ck_assert_int_eq(l->state, COORDINATOR_RUNNING);
	say(COORDINATOR, LEAD1, engine_is(1, 1, WB_ENGINE_RECEIVED, 1));
	ck_assert_int_eq(l->state, COORDINATOR_RUNNING);
	say(COORDINATOR, LEAD, engine_is(0, 1, WB_ENGINE_RECEIVED, 1));
	ck_assert_int_eq(l->state, COORDINATOR_RELEASED);
	end();
}
END_TEST

/* Nobody knows what became of its engine: it may have committed. */
START_TEST(an_engine_whose_lead_is_lost_is_unknown)
{
	struct coordinator *l = lead_a_transfer(&shape);

	is_gone(COORDINATOR, LEAD);
	ck_assert_int_eq(l->engine[0].state, WB_ENGINE_UNKNOWN);
	say(COORDINATOR, LEAD1, engine_is(1, 1, WB_ENGINE_ABORTED, 0));
	ck_assert(told.is_final);
	ck_assert_str_eq(told.state, "Unknown");
	ck_assert_msg(strstr(told.sentence, "agent e0-0 is gone") != NULL, "%s", told.sentence);
	end();
}
END_TEST

/* It was on its way when the call of others was refused: it got that answer, too. */
START_TEST(a_question_from_before_a_refusal_is_not_of_the_next_transfer)
{
	const struct epoch *e;
	const struct said *no;

	begin(&shape);
	e = epoch_of(COORDINATOR);
	trigger(1, 10, 0);
	trigger(2, 11, 0);
	trainer_asks(0, 10);
	ck_assert_uint_eq(e->n_refused, 1);
	no = last(COORDINATOR, "trainer-2", WBP_PEER_FINAL);
	ck_assert_ptr_nonnull(no);
	ck_assert_msg(strstr(no->sentence, "10 at trainer-0, 11 at trainer-2") != NULL, "%s",
		no->sentence);
	forget_said();
	trigger(2, 11, 0);
	ck_assert(!e->trigger[2].asked);
	no = last(COORDINATOR, "trainer-2", WBP_PEER_FINAL);
	ck_assert_ptr_nonnull(no);
	ck_assert_int_eq(no->m.code, -EAGAIN);
	ck_assert_uint_eq(no->m.refusals, 1);
	trigger(2, 11, 1);
	ck_assert(e->trigger[2].asked);
	end();
}
END_TEST

/* Lost with the connection: it answers what was asked before that was known there (_i 0), and
 * nothing that was asked since (1). */
START_TEST(a_refusal_that_was_lost_answers_no_later_question)
{
	struct wb_msg_peer m = {.kind = WBP_PEER_TRIGGER, .version = 11};
	const struct epoch *e;
	struct wire *wire;

	begin(&shape);
	e = epoch_of(COORDINATOR);
	wire = &e->wire[2];
	trigger(1, 10, 0);
	trigger(2, 11, 0);
	trainer_asks(0, 10);
	ck_assert_uint_eq(e->n_refused, 1);
	is_gone(COORDINATOR, 2);
	m.seq = m.base = wire->rx_seq + 1;
	m.ack = _i ? wire->tx_seq : e->trigger[2].refused_seq - 1;
	say(COORDINATOR, 2, m);
	ck_assert_int_eq(e->trigger[2].asked, _i);
	end();
}
END_TEST

/* The others' call was of version 10; this one is of 11, made before that refusal came.  One of 9
 * has been on its way for longer, and what called is refused as well. */
START_TEST(a_question_for_the_next_version_is_not_refused_with_the_last)
{
	const struct epoch *e;
	const struct said *no;
	struct world_opts o = shape;

	o.step_deadline_ns = WB_NS_PER_S;
	begin(&o);
	e = epoch_of(COORDINATOR);
	trainer_asks(0, 10);
	trigger(1, 10, 0);
	RUN_UNTIL(e->n_refused == 1);
	no = last(COORDINATOR, "trainer-2", WBP_PEER_FINAL);
	ck_assert_ptr_nonnull(no);
	ck_assert_int_eq(no->m.code, -ETIMEDOUT);
	ck_assert_int_eq(no->m.version, 10);
	forget_said();
	trigger(2, 10 + _i, 0);
	ck_assert_int_eq(e->trigger[2].asked, _i > 0);
	no = last(COORDINATOR, "trainer-2", WBP_PEER_FINAL);
	ck_assert(_i > 0 ? !no : no && no->m.version == 10 + _i);
	end();
}
END_TEST

static void trigger_call(uint32_t from, int64_t version, uint32_t call)
{
	say(COORDINATOR, from,
		(struct wb_msg_peer){.kind = WBP_PEER_TRIGGER, .version = version, .call = call});
}

/* It asks again when messages were given up: the transfer that its call began may be over by then,
 * and the next one is of another version. */
START_TEST(a_call_that_was_answered_is_answered_again_and_begins_nothing)
{
	const struct epoch *e;
	const struct said *final;

	begin(&shape);
	e = epoch_of(COORDINATOR);
	trainer_asks(0, 10);
	for (uint32_t a = 1; a < JUDGES; a++)
		trigger_call(a, 10, 4);
	ck_assert_uint_eq(last(COORDINATOR, "trainer-2", WBP_PEER_SERVE)->m.call, 4);
	trigger_call(2, 10, 4);
	ck_assert(!e->trigger[2].asked);
	ck_assert_ptr_null(last(COORDINATOR, "trainer-2", WBP_PEER_FINAL));
	trigger_call(1, 11, 5);
	ck_assert(e->trigger[1].asked);
	say(COORDINATOR, LEAD, engine_is(0, 1, WB_ENGINE_ABORTED, 0));
	say(COORDINATOR, LEAD1, engine_is(1, 1, WB_ENGINE_TORN, 0));
	ck_assert_uint_eq(last(COORDINATOR, "trainer-1", WBP_PEER_FINAL)->m.call, 4);
	ck_assert(e->trigger[1].asked);
	forget_said();
	trigger_call(2, 10, 4);
	ck_assert(!e->trigger[2].asked);
	final = last(COORDINATOR, "trainer-2", WBP_PEER_FINAL);
	ck_assert_ptr_nonnull(final);
	ck_assert_uint_eq(final->m.transfer, 1);
	ck_assert_uint_eq(final->m.call, 4);
	ck_assert_int_eq(final->m.code, WB_ETORN);
	trigger_call(2, 11, 5);
	ck_assert(e->trigger[2].asked);
	end();
}
END_TEST

START_TEST(trainers_that_send_different_versions_begin_nothing)
{
	begin(&shape);
	trainer_asks(0, 10);
	trigger(1, 10, 0);
	trigger(2, 11, 0);
	ck_assert_int_eq(object_of(COORDINATOR)->coordinator.state, COORDINATOR_IDLE);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_PREPARE), 0);
	end();
}
END_TEST

START_TEST(an_engine_ends_once)
{
	struct coordinator *l = lead_a_transfer(&shape);

	say(COORDINATOR, LEAD, engine_is(0, 1, WB_ENGINE_COMMITTED, 0));
	say(COORDINATOR, LEAD, engine_is(0, 1, WB_ENGINE_ABORTED, 0));
	ck_assert_int_eq(l->engine[0].state, WB_ENGINE_COMMITTED);
	ck_assert_uint_eq(l->losses, 0);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_LOST), 0);
	end();
}
END_TEST

START_TEST(a_version_is_superseded_when_all_trainers_have_the_next)
{
	struct world_opts o = shape;
	struct wb_msg_peer next = {.kind = WBP_PEER_NEXT, .transfer = 1};
	struct coordinator *l;

	o.rollout_staged = o.supersede = true;
	l = lead_a_transfer(&o);
	for (uint32_t a = 0; a < JUDGES; a++) {
		ck_assert(!l->is_superseded);
		say(COORDINATOR, a, next);
	}
	ck_assert(l->is_superseded);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_CANCEL), 2);
	end();
}
END_TEST

/* COMMIT may be chosen already, whoever is lost now. */
START_TEST(what_is_proposed_is_not_cancelled)
{
	struct world_opts o = joint();
	struct coordinator *l = lead_a_transfer(&o);

	for (uint32_t en = 0; en < 2; en++)
		say(COORDINATOR, LEAD + 2 * en, engine_is(en, 1, WB_ENGINE_RECEIVED, 0));
	ck_assert(!l->is_proposed);
	say(COORDINATOR, LEAD, engine_is(0, 1, WB_ENGINE_STAGED, 0));
	ck_assert(!l->is_proposed);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_ACCEPT), 0);
	say(COORDINATOR, LEAD1, engine_is(1, 1, WB_ENGINE_STAGED, 0));
	ck_assert(l->is_proposed);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_ACCEPT), JUDGES - 1);
	is_gone(COORDINATOR, LEAD1);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_CANCEL), 0);
	end();
}
END_TEST

/* The engines' own end tells what became of it. */
START_TEST(what_is_proposed_is_not_superseded)
{
	struct world_opts o = joint();
	struct wb_msg_peer next = {.kind = WBP_PEER_NEXT, .transfer = 1};
	struct coordinator *l;

	o.supersede = true;
	l = lead_a_transfer(&o);
	for (uint32_t en = 0; en < 2; en++)
		say(COORDINATOR, LEAD + 2 * en, engine_is(en, 1, WB_ENGINE_STAGED, 0));
	ck_assert(l->is_proposed);
	for (uint32_t a = 0; a < JUDGES; a++)
		say(COORDINATOR, a, next);
	ck_assert(!l->is_superseded);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_CANCEL), 0);
	end();
}
END_TEST

/* What a trainer has not sent nobody has; once all have received, nobody needs it. */
START_TEST(a_trainer_that_is_lost_cancels_until_the_trainers_are_let_go)
{
	struct wb_msg_peer lost = {.kind = WBP_PEER_TRAINER_LOST, .transfer = 1, .code = -EPIPE};
	bool is_released = _i;
	struct coordinator *l = lead_a_transfer(&shape);

	for (uint32_t en = 0; is_released && en < 2; en++)
		say(COORDINATOR, LEAD + 2 * en, engine_is(en, 1, WB_ENGINE_RECEIVED, 0));
	ck_assert_int_eq(l->state, is_released ? COORDINATOR_RELEASED : COORDINATOR_RUNNING);
	say(COORDINATOR, 1, lost);
	ck_assert_uint_eq(n_times(COORDINATOR, NULL, WBP_PEER_CANCEL), is_released ? 0 : 2);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences");
	TCase *tc = tcase_create("fences");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, trainers_stay_until_a_loss_is_taken_in);
	tcase_add_test(tc, an_engine_whose_lead_is_lost_is_unknown);
	tcase_add_test(tc, a_question_from_before_a_refusal_is_not_of_the_next_transfer);
	tcase_add_loop_test(tc, a_refusal_that_was_lost_answers_no_later_question, 0, 2);
	tcase_add_loop_test(
		tc, a_question_for_the_next_version_is_not_refused_with_the_last, -1, 2);
	tcase_add_test(tc, a_call_that_was_answered_is_answered_again_and_begins_nothing);
	tcase_add_test(tc, trainers_that_send_different_versions_begin_nothing);
	tcase_add_test(tc, an_engine_ends_once);
	tcase_add_test(tc, a_version_is_superseded_when_all_trainers_have_the_next);
	tcase_add_test(tc, what_is_proposed_is_not_cancelled);
	tcase_add_test(tc, what_is_proposed_is_not_superseded);
	tcase_add_loop_test(tc, a_trainer_that_is_lost_cancels_until_the_trainers_are_let_go, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
