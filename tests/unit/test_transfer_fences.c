/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What those who decide must not believe: judges and ballots, the coordinator of a transfer, the
 * lead of an engine.  Each check is reached by the very message that it is for.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

#include <unistd.h>

enum { JUDGES = 3 };
enum { ROLLOUT = 3 }; /* first worker of e0 */

static const struct world_opts shape = {.seed = 21, TWO_ENGINES};

static struct world_opts joint(void)
{
	struct world_opts o = shape;

	o.rollout_staged = o.all_engines = true;
	return o;
}

/* ---- ballots ------------------------------------------------------------------------------- */

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
			.value = value});
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
	ck_assert_uint_eq(last(LEAD, "trainer-0", WBP_PEER_ACCEPT)->m.value, DECIDE_COMMIT);
	end();
}
END_TEST

/* ---- judges -------------------------------------------------------------------------------- */

/* The judge's answer to the lead of e0; NULL: it said nothing. */
static const struct wb_msg_peer *judge(
	uint32_t kind, uint64_t transfer, uint64_t ballot, enum decision value)
{
	const struct said *s;

	forget_said();
	say(0, LEAD,
		(struct wb_msg_peer){
			.kind = kind, .transfer = transfer, .ballot = ballot, .value = value});
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
	ck_assert_uint_eq(judge(WBP_PEER_BALLOT, 7, 13, 0)->value, DECIDE_ABORT);
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
		ck_assert_uint_eq(judge(WBP_PEER_BALLOT, t, 11, 0)->value, DECIDE_COMMIT);
	end();
}
END_TEST

/* ---- the coordinator ----------------------------------------------------------------------------
 */

static struct wb_msg_peer engine_is(
	uint32_t engine, uint64_t transfer, enum wb_engine_state state, uint32_t losses)
{
	return (struct wb_msg_peer){.kind = WBP_PEER_ENGINE,
		.engine = engine,
		.transfer = transfer,
		.state = state,
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
			.kind = WBP_PEER_TRIGGER, .version = version, .count = refusals});
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
	ck_assert_uint_eq(no->m.count, 1);
	trigger(2, 11, 1);
	ck_assert(e->trigger[2].asked);
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

/* ---- the lead of an engine ----------------------------------------------------------------- */

static void prepare(uint32_t to, uint32_t from, uint32_t engine, uint64_t transfer, bool feed)
{
	say(to, from,
		(struct wb_msg_peer){.kind = WBP_PEER_PREPARE,
			.transfer = transfer,
			.version = (int64_t)transfer * 10,
			.engine = engine,
			.feed = feed,
			.source = 1});
}

static struct wb_msg_peer of_lead(uint32_t kind, uint64_t transfer)
{
	return (struct wb_msg_peer){.kind = kind, .transfer = transfer};
}

static struct wb_msg_peer progress(uint64_t transfer, enum progress what, uint32_t losses)
{
	struct wb_msg_peer m = of_lead(WBP_PEER_PROGRESS, transfer);

	m.state = what;
	m.losses = losses;
	m.code = what == PROGRESS_FAILED ? -EIO : 0;
	return m;
}

START_TEST(a_lead_hears_of_its_own_transfer_only)
{
	struct lead *l;
	struct wb_msg_peer stopped = of_lead(WBP_PEER_STOPPED, 4);

	stopped.code = -EIO;
	begin(&shape);
	l = lead_of(LEAD);
	prepare(LEAD, COORDINATOR, 0, 5, false);
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	say(LEAD, PARTY, of_lead(WBP_PEER_PROMISE, 4));
	ck_assert(!l->agent[PARTY].promised);
	say(LEAD, PARTY, stopped);
	say(LEAD, PARTY, progress(4, PROGRESS_FAILED, 0));
	say(LEAD, COORDINATOR, of_lead(WBP_PEER_CANCEL, 4));
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	say(LEAD, PARTY, progress(5, PROGRESS_FAILED, 0));
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, WB_ENGINE_ABORTED);
	end();
}
END_TEST

/* Engine e0 is whole in its areas and waits for the joint decision. */
static struct lead *run_until_staged(void)
{
	struct world_opts o = joint();

	begin(&o);
	world_send(&w, 1);
	RUN_UNTIL(lead_of(LEAD)->state == LEAD_STAGED);
	forget_said();
	return lead_of(LEAD);
}

/* Whoever feeds a transfer holds it: it was committed. */
START_TEST(a_feed_of_what_is_in_doubt_proves_that_it_was_committed)
{
	struct lead *l = run_until_staged();

	prepare(LEAD, LEAD1, 0, l->transfer, true);
	ck_assert(l->is_decided);
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	ck_assert_uint_eq(last(LEAD, "e0-1", WBP_PEER_STOP)->m.value, true);
	end();
}
END_TEST

/* Not at the deadline only: the other engines wait as well. */
START_TEST(judges_are_asked_when_the_coordinator_dies)
{
	struct lead *l = run_until_staged();

	is_gone(LEAD, COORDINATOR);
	ck_assert_int_eq(l->ballot.state, BALLOT_ASKING);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_BALLOT), JUDGES);
	end();
}
END_TEST

START_TEST(a_number_that_an_engine_has_seen_is_refused)
{
	struct world_opts o = shape;

	o.rollout_staged = _i;
	begin(&o);
	commits(1);
	forget_said();
	prepare(LEAD, COORDINATOR, 0, 1, false);
	ck_assert_ptr_nonnull(last(LEAD, "trainer-0", WBP_PEER_REFUSED));
	ck_assert_int_eq(lead_of(LEAD)->state, LEAD_DONE);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_STOP), 0);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_STAGE), 0);
	prepare(LEAD, COORDINATOR, 0, 2, false);
	ck_assert_int_eq(lead_of(LEAD)->state, _i ? LEAD_STAGING : LEAD_PROMISES);
	end();
}
END_TEST

/* An engine of this pod has not seen the number, another one here has seen a greater. */
START_TEST(a_number_below_one_that_the_agent_has_seen_is_refused)
{
	struct world_opts o = shape;
	const struct said *no;

	o.one_pod = true;
	o.agents_per_engine = 1;
	begin(&o);
	prepare(LEAD, COORDINATOR, 0, 9, false);
	prepare(LEAD, COORDINATOR, 1, 5, false);
	no = last(LEAD, "trainer-0", WBP_PEER_REFUSED);
	ck_assert_ptr_nonnull(no);
	ck_assert_uint_eq(no->m.engine, 1);
	ck_assert_uint_eq(no->m.highest, 9);
	ck_assert_int_eq(epoch_of(LEAD)->lead[1].state, LEAD_NONE);
	end();
}
END_TEST

START_TEST(a_feed_brings_no_engine_back)
{
	struct world_opts o = shape;

	o.rollout_staged = _i;
	begin(&o);
	commits(1);
	commits(2);
	for (uint64_t t = 1; t <= 2; t++) {
		forget_said();
		prepare(LEAD, LEAD1, 0, t, true);
		ck_assert_ptr_nonnull(last(LEAD, "e1-0", WBP_PEER_REFUSED));
		ck_assert_int_eq(lead_of(LEAD)->state, LEAD_DONE);
	}
	end();
}
END_TEST

static bool has_said_received(void)
{
	const struct said *s = last(LEAD, NULL, WBP_PEER_ENGINE);

	return s && s->m.state == WB_ENGINE_RECEIVED;
}

/* What was received before the loss says nothing of the lost engine's share. */
START_TEST(received_counts_when_the_loss_was_taken_in)
{
	struct wb_msg_peer lost = of_lead(WBP_PEER_LOST, 1);
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(l->state == LEAD_MOVING);
	lost.source = 1;
	lost.losses = 1;
	say(LEAD, COORDINATOR, lost);
	for (uint32_t a = LEAD; a <= PARTY; a++)
		say(LEAD, a, progress(1, PROGRESS_RECEIVED, 0));
	ck_assert(!has_said_received());
	say(LEAD, PARTY, progress(1, PROGRESS_RECEIVED, 1));
	ck_assert(!has_said_received());
	say(LEAD, LEAD, progress(1, PROGRESS_RECEIVED, 1));
	ck_assert(has_said_received());
	end();
}
END_TEST

/* One that cannot follow the decision must not serve; one that does not know it cannot say. */
START_TEST(an_engine_that_loses_an_agent_after_the_decision_is_torn)
{
	bool is_decided = _i;
	struct lead *l = run_until_staged();

	if (is_decided)
		say(LEAD, COORDINATOR, of_lead(WBP_PEER_DECIDED, 1));
	is_gone(LEAD, PARTY);
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, is_decided ? WB_ENGINE_TORN : WB_ENGINE_UNKNOWN);
	end();
}
END_TEST

START_TEST(an_engine_that_loses_an_agent_while_bytes_move_is_torn)
{
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(l->state == (_i ? LEAD_MOVING : LEAD_STOPS));
	is_gone(LEAD, PARTY);
	ck_assert_int_eq(l->result, _i ? WB_ENGINE_TORN : WB_ENGINE_ABORTED);
	end();
}
END_TEST

START_TEST(what_is_decided_against_is_not_installed)
{
	struct lead *l = run_until_staged();
	struct wb_msg_peer m = {.transfer = 1};

	is_gone(LEAD, COORDINATOR);
	for (int k = 0; k < 2; k++)
		for (uint32_t j = 1; j < JUDGES; j++) {
			ck_assert_int_eq(l->state, LEAD_STAGED);
			m.kind = k ? WBP_PEER_ACCEPTED : WBP_PEER_BALLOTED;
			m.ballot = l->ballot.number;
			say(LEAD, j, m);
		}
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, WB_ENGINE_ABORTED);
	ck_assert_uint_eq(n_times(LEAD, NULL, WBP_PEER_STOP), 0);
	end();
}
END_TEST

/* One that may be let go, and be needed at the common poll, hears first how its update ended. */
START_TEST(the_target_is_said_when_nobody_is_in_doubt)
{
	struct wb_msg_peer m = {.kind = WBP_PEER_DOUBT, .transfer = 5, .count = 9};
	struct lead *l;

	begin(&shape);
	l = lead_of(LEAD);
	say(LEAD, PARTY, m);
	prepare(LEAD, COORDINATOR, 0, 6, false);
	say(LEAD, PARTY, of_lead(WBP_PEER_PROMISE, 6));
	ck_assert(l->agent[LEAD].promised && l->agent[PARTY].promised);
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	m.kind = WBP_PEER_RECALLED;
	say(LEAD, PARTY, m);
	ck_assert_ptr_nonnull(last(LEAD, "e0-1", WBP_PEER_OUTCOME));
	ck_assert_int_eq(l->state, LEAD_STOPS);
	end();
}
END_TEST

START_TEST(what_is_decided_is_not_cancelled)
{
	struct lead *l = run_until_staged();

	say(LEAD, COORDINATOR, of_lead(WBP_PEER_DECIDED, 1));
	say(LEAD, COORDINATOR, of_lead(WBP_PEER_CANCEL, 1));
	ck_assert_int_eq(l->state, LEAD_PROMISES);
	end();
}
END_TEST

START_TEST(nobody_but_the_coordinator_cancels_or_decides)
{
	struct lead *l = run_until_staged();
	struct wb_msg_peer cancel = of_lead(WBP_PEER_CANCEL, 1);
	struct wb_msg_peer decided = of_lead(WBP_PEER_DECIDED, 1);

	for (int feed = 0; feed < 2; feed++) { /* a lead leads feeds: this run is none of those */
		cancel.feed = decided.feed = feed;
		say(LEAD, LEAD1, cancel);
		say(LEAD, LEAD1, decided);
		ck_assert_int_eq(l->state, LEAD_STAGED);
	}
	say(LEAD, COORDINATOR, of_lead(WBP_PEER_CANCEL, 1));
	ck_assert_int_eq(l->state, LEAD_DONE);
	ck_assert_int_eq(l->result, WB_ENGINE_ABORTED);
	end();
}
END_TEST

/* Its workers are in one transfer at a time. */
START_TEST(a_transfer_of_a_newer_plan_ends_that_of_the_plan_before)
{
	struct lead *before;
	struct world_epoch *e;

	begin(&shape);
	before = lead_of(LEAD);
	world_send(&w, 1);
	RUN_UNTIL(before->state == LEAD_STOPS);
	e = world_epoch_make(&w);
	world_must(world_epoch_install(&w, e, LEAD, NULL), NULL);
	prepare(LEAD, COORDINATOR, 0, 2, false);
	ck_assert_int_eq(before->state, LEAD_DONE);
	ck_assert_int_eq(before->result, WB_ENGINE_ABORTED);
	ck_assert_int_eq(lead_of(LEAD)->state, LEAD_PROMISES);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences");
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
	tcase_add_test(tc, trainers_stay_until_a_loss_is_taken_in);
	tcase_add_test(tc, an_engine_whose_lead_is_lost_is_unknown);
	tcase_add_test(tc, a_question_from_before_a_refusal_is_not_of_the_next_transfer);
	tcase_add_test(tc, a_call_that_was_answered_is_answered_again_and_begins_nothing);
	tcase_add_test(tc, trainers_that_send_different_versions_begin_nothing);
	tcase_add_test(tc, an_engine_ends_once);
	tcase_add_test(tc, a_version_is_superseded_when_all_trainers_have_the_next);
	tcase_add_test(tc, what_is_proposed_is_not_cancelled);
	tcase_add_test(tc, what_is_proposed_is_not_superseded);
	tcase_add_loop_test(tc, a_trainer_that_is_lost_cancels_until_the_trainers_are_let_go, 0, 2);
	tcase_add_test(tc, a_lead_hears_of_its_own_transfer_only);
	tcase_add_test(tc, a_feed_of_what_is_in_doubt_proves_that_it_was_committed);
	tcase_add_test(tc, judges_are_asked_when_the_coordinator_dies);
	tcase_add_loop_test(tc, a_number_that_an_engine_has_seen_is_refused, 0, 2);
	tcase_add_test(tc, a_number_below_one_that_the_agent_has_seen_is_refused);
	tcase_add_loop_test(tc, a_feed_brings_no_engine_back, 0, 2);
	tcase_add_test(tc, received_counts_when_the_loss_was_taken_in);
	tcase_add_loop_test(tc, an_engine_that_loses_an_agent_after_the_decision_is_torn, 0, 2);
	tcase_add_loop_test(tc, an_engine_that_loses_an_agent_while_bytes_move_is_torn, 0, 2);
	tcase_add_test(tc, what_is_decided_against_is_not_installed);
	tcase_add_test(tc, the_target_is_said_when_nobody_is_in_doubt);
	tcase_add_test(tc, what_is_decided_is_not_cancelled);
	tcase_add_test(tc, nobody_but_the_coordinator_cancels_or_decides);
	tcase_add_test(tc, a_transfer_of_a_newer_plan_ends_that_of_the_plan_before);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
