/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trainers must not believe, nor do too early, and which plans and messages are fenced off.
 * Each check is reached by the very message or moment that it is for.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

#define CHUNK 16384 /* large ones go from and into parameters themselves */
#define SLOW 2000000 /* bytes a second of a slow network */
#define CHUNK_NS (CHUNK * WB_NS_PER_S / SLOW)

static const struct world_opts shape = {.seed = 31, TWO_ENGINES, .peers_reconnect = true};

/* @how, @poll: or what that kind has in their place. */
static struct wb_msg_peer says(uint32_t kind, uint64_t transfer, uint32_t how, uint32_t poll)
{
	struct wb_msg_peer m = about(kind, transfer);

	m.how = how;
	m.poll = poll;
	return m;
}

/* ---- trainers ------------------------------------------------------------------------------- */

static struct trainers *trainers_of(uint32_t agent)
{
	return &object_of(agent)->trainers;
}

static void send_is_called(uint32_t agent)
{
	struct wb_msg_app_send m = {.version = 10};

	worker_says(agent, WBP_APP_SEND, &m);
	ck_assert_int_eq(trainers_of(agent)->state, TRAINERS_ASKED);
}

/* Whatever the coordinator says: the caller may change its parameters then. */
START_TEST(send_weights_does_not_return_while_somebody_reads)
{
	bool holds = _i;
	struct world_opts o = shape;
	struct trainers *t;
	struct wb_msg_app_release release = {0};

	o.scale = 768;
	o.chunk_bytes = CHUNK;
	o.hold = holds;
	begin(&o);
	t = trainers_of(TRAINER);
	world_send(&w, 1);
	RUN_UNTIL(t->state == TRAINERS_SERVING && wb_flow_source_busy(t->flow, 0));
	say(TRAINER, COORDINATOR, about(WBP_PEER_RELEASE, t->transfer));
	ck_assert_int_eq(t->state, holds ? TRAINERS_RELEASED : TRAINERS_RELEASING);
	if (holds) {
		release.transfer = t->transfer;
		worker_says(TRAINER, WBP_APP_RELEASE, &release);
		ck_assert(worker_of(TRAINER)->letting_go);
		RUN_UNTIL(!worker_of(TRAINER)->letting_go);
	} else {
		ck_assert(!t->is_told);
		RUN_UNTIL(t->is_told);
	}
	ck_assert(!t->flow || !wb_flow_source_busy(t->flow, 0));
	end();
}
END_TEST

static bool is_kept_read(uint32_t agent)
{
	for_flow (object_of(agent), x)
		if (wb_flow_transfer(x->flow) == 1 && wb_flow_source_busy(x->flow, 0))
			return true;
	return false;
}

/* After the end, by e0, whose source has left. */
START_TEST(what_is_kept_is_let_go_when_nobody_reads)
{
	struct world_opts o = shape;
	struct wb_msg_app_release release = {.transfer = 1};
	struct worker *k;

	o.scale = 768;
	o.chunk_bytes = CHUNK;
	o.hold = o.keep = true;
	begin(&o);
	commits(1);
	k = worker_of(TRAINER);
	ck_assert(
		wb__transfer_keeps(k, 1) && !wb__transfer_keeps(k, 0) && !wb__transfer_keeps(k, 2));
	restart_e0();
	feed_e0();
	RUN_UNTIL(party_of(PARTY)->state == PARTY_MOVING);
	for (uint32_t i = LEAD1; i <= PARTY1; i++)
		world_kill_worker(&w, i);
	RUN_UNTIL(is_kept_read(TRAINER));
	worker_says(TRAINER, WBP_APP_RELEASE, &release);
	ck_assert(k->kept_transfer == 1 && !wb__transfer_keeps(k, 1));
	RUN_UNTIL(!k->kept_transfer);
	ck_assert(!is_kept_read(TRAINER));
	end();
}
END_TEST

/* It comes twice, or late: it answered the call before. */
START_TEST(a_refusal_that_was_known_answers_no_new_call)
{
	struct wb_msg_peer no = says(WBP_PEER_FINAL, 0, 0, 1);

	no.code = -EINVAL;
	begin(&shape);
	send_is_called(TRAINER);
	say(TRAINER, COORDINATOR, no);
	ck_assert_int_eq(trainers_of(TRAINER)->state, TRAINERS_IDLE);
	send_is_called(TRAINER);
	say(TRAINER, COORDINATOR, no);
	ck_assert_int_eq(trainers_of(TRAINER)->state, TRAINERS_ASKED);
	no.refusals = 2;
	say(TRAINER, COORDINATOR, no);
	ck_assert_int_eq(trainers_of(TRAINER)->state, TRAINERS_IDLE);
	end();
}
END_TEST

/* It comes seconds late: the coordinator had not heard of this call.  One of this version or a
 * later one answers it. */
START_TEST(a_refusal_of_an_earlier_version_answers_no_call)
{
	struct wb_msg_peer no = says(WBP_PEER_FINAL, 0, 0, 1);
	const struct trainers *t;

	no.code = -ETIMEDOUT;
	begin(&shape);
	t = trainers_of(TRAINER);
	send_is_called(TRAINER);
	no.version = t->version - 1;
	say(TRAINER, COORDINATOR, no);
	ck_assert_int_eq(t->state, TRAINERS_ASKED);
	no.refusals = 2;
	no.version = t->version + _i;
	say(TRAINER, COORDINATOR, no);
	ck_assert_int_eq(t->state, TRAINERS_IDLE);
	end();
}
END_TEST

/* It came late: the call was given up with the coordinator, and other versions are in the
 * parameters. */
START_TEST(an_answer_to_the_call_before_answers_no_new_call)
{
	const struct trainers *t;
	struct wb_msg_peer serve = says(WBP_PEER_SERVE, 5, 0, 0);
	struct wb_msg_peer final = says(WBP_PEER_FINAL, 5, 0, 0);

	begin(&shape);
	t = trainers_of(TRAINER);
	send_is_called(TRAINER);
	serve.call = final.call = t->call;
	say(TRAINER, COORDINATOR, final);
	ck_assert_int_eq(t->state, TRAINERS_IDLE);
	send_is_called(TRAINER);
	say(TRAINER, COORDINATOR, serve);
	say(TRAINER, COORDINATOR, final);
	ck_assert_int_eq(t->state, TRAINERS_ASKED);
	serve.call = t->call;
	say(TRAINER, COORDINATOR, serve);
	ck_assert_int_eq(t->state, TRAINERS_SERVING);
	end();
}
END_TEST

START_TEST(trainers_hear_of_their_own_transfer_and_from_its_coordinator_only)
{
	struct wb_msg_peer serve = about(WBP_PEER_SERVE, 5), final = about(WBP_PEER_FINAL, 5);
	const struct trainers *t;

	begin(&shape);
	t = trainers_of(TRAINER);
	send_is_called(TRAINER);
	for (int feed = 0; feed < 2; feed++) { /* a lead leads feeds, which no trainer is in */
		serve.feed = final.feed = feed;
		say(TRAINER, LEAD, serve);
		say(TRAINER, LEAD, final);
		ck_assert_int_eq(t->state, TRAINERS_ASKED);
	}
	say(TRAINER, COORDINATOR, about(WBP_PEER_SERVE, 5));
	ck_assert_int_eq(t->state, TRAINERS_SERVING);
	say(TRAINER, COORDINATOR, about(WBP_PEER_RELEASE, 4));
	say(TRAINER, COORDINATOR, about(WBP_PEER_FINAL, 4));
	say(TRAINER, LEAD, about(WBP_PEER_RELEASE, 5));
	ck_assert_int_eq(t->state, TRAINERS_SERVING);
	say(TRAINER, COORDINATOR, about(WBP_PEER_FINAL, 5));
	ck_assert_int_eq(t->state, TRAINERS_IDLE);
	end();
}
END_TEST

/* ---- plans and messages --------------------------------------------------------------------- */

/* By its number, or its operator's term. */
START_TEST(an_older_plan_is_refused)
{
	struct world_epoch *older, *newer;
	struct wb_err err = {0};

	begin(&shape);
	older = world_epoch_make(&w);
	newer = world_epoch_make(&w);
	if (_i) {
		newer->id.term = older->id.term + 1;
		newer->id.number = 1;
	}
	ck_assert_int_eq(world_epoch_install(&w, newer, LEAD, &err), 0);
	ck_assert_int_eq(world_epoch_install(&w, older, LEAD, &err), WB_ESTALE);
	ck_assert_int_eq(world_epoch_install(&w, newer, LEAD, &err), WB_ESTALE);
	ck_assert_uint_eq(epoch_of(LEAD)->r->id.number, newer->id.number);
	end();
}
END_TEST

/* Its key is good for as long as an engine may be about what began under it. */
START_TEST(a_plan_goes_when_a_transfer_of_the_next_has_begun)
{
	struct world_opts o = shape;

	o.all_engines = _i == 1;
	begin(&o);
	commits(1);
	for (uint32_t i = 0; i < w.n_agent; i++)
		ck_assert_uint_eq(w.agent[i].n_epoch, 1);
	world_plan(&w);
	world_run_for(&w, 60 * WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++)
		ck_assert_uint_eq(w.agent[i].n_epoch, 2);
	commits(2);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++)
		ck_assert_uint_eq(w.agent[i].n_epoch, 1);
	end();
}
END_TEST

/* Its memory is only there until the last reader has left. */
START_TEST(a_plan_with_a_worker_that_has_left_is_refused)
{
	struct world_opts o = shape;
	struct world_epoch *e;
	struct wb_err err = {0};
	const struct trainers *t;

	o.scale = 768;
	o.chunk_bytes = CHUNK;
	begin(&o);
	t = trainers_of(TRAINER);
	world_send(&w, 1);
	RUN_UNTIL(t->state == TRAINERS_SERVING && wb_flow_source_busy(t->flow, 0));
	e = world_epoch_make(&w);
	world_end_worker(&w, TRAINER, NULL);
	ck_assert_uint_eq(w.agent[TRAINER].n_leaving, 1);
	ck_assert_int_eq(world_epoch_install(&w, e, TRAINER, &err), -ENOENT);
	end();
}
END_TEST

/* What is left of an older transfer, or of another object, cannot have the right sum. */
START_TEST(sums_of_each_transfer_have_a_seed_of_their_own)
{
	struct object other = {.id = {.uid = 2, .text = "another"}};

	begin(&shape);
	for (uint64_t t = 1; t < 100; t++)
		ck_assert_uint_ne(wb__transfer_seed(object_of(LEAD), t),
			wb__transfer_seed(object_of(LEAD), t + 1));
	ck_assert_uint_ne(wb__transfer_seed(object_of(LEAD), 1), wb__transfer_seed(&other, 1));
	ck_assert_uint_eq(wb__transfer_seed(object_of(LEAD), 1),
		wb__transfer_seed(object_of(COORDINATOR), 1));
	end();
}
END_TEST

START_TEST(a_message_that_comes_again_is_not_heard_again)
{
	struct wb_msg_peer m = says(WBP_PEER_RECALL, 5, 0, 9);

	begin(&shape);
	m.seq = epoch_of(PARTY)->wire[epoch_of(LEAD)->me].rx_seq + 1;
	m.base = 1;
	say(PARTY, LEAD, m);
	say(PARTY, LEAD, m);
	ck_assert_uint_eq(n_times(PARTY, "e0-0", WBP_PEER_RECALLED), 1);
	m.seq += 2; /* one before it is missing */
	say(PARTY, LEAD, m);
	ck_assert_uint_eq(n_times(PARTY, "e0-0", WBP_PEER_RECALLED), 1);
	end();
}
END_TEST

/* What it confirms is what its sender knew then: an answer to one run is none to the next, which is
 * told by that. */
START_TEST(a_message_that_comes_again_confirms_what_was_heard_at_first)
{
	struct wb_msg_peer m = says(WBP_PEER_RECALL, 5, 0, 9), first;
	uint32_t n = 0;

	begin(&shape);
	m.seq = epoch_of(PARTY)->wire[epoch_of(LEAD)->me].rx_seq + 1;
	m.base = 1;
	say(PARTY, LEAD, m);
	first = last(PARTY, "e0-0", WBP_PEER_RECALLED)->m;
	ck_assert_uint_eq(first.ack, m.seq);
	m.seq++;
	say(PARTY, LEAD, m);
	forget_said();
	world_stall_agent(&w, LEAD, 2 * WB_NS_PER_S); /* so that nobody confirms the answer */
	world_after(&w.agent[PARTY]);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = 0; i < n_said; i++)
		if (said[i].from == &w.agent[PARTY] && said[i].m.seq == first.seq &&
			!strcmp(said[i].to, "e0-0")) {
			ck_assert_uint_eq(said[i].m.ack, first.ack);
			n++;
		}
	ck_assert_uint_eq(n, 1);
	end();
}
END_TEST

/* Under the next plan, which knows nothing of that transfer: who asks looks elsewhere. */
START_TEST(a_chunk_of_what_is_over_is_refused_at_once)
{
	struct epoch *e;
	struct wb_flow *f;
	struct wb_flow_stats st;
	uint8_t feed[16] = {0};

	begin(&shape);
	commits(1);
	commits(2);
	world_plan(&w);
	e = epoch_of(LEAD);
	for (uint32_t i = 0; i < e->plan->n_worker; i++)
		feed[i] = e->plan->worker[i].role == WB_ROLE_ROLLOUT &&
			  e->plan->worker[i].engine == 1;
	f = wb__transfer_flow_direct(e, 1, true);
	wb_flow_open_sink(f, 0, feed);
	world_after(&w.agent[LEAD]);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	wb_flow_get_stats(f, &st);
	ck_assert_uint_gt(st.refused, 0);
	for (uint32_t a = LEAD1; a <= PARTY1; a++)
		ck_assert_uint_eq(w.agent[a].core->n_orphan, 0);
	end();
}
END_TEST

/* By name, at once, and nobody is parked. */
START_TEST(an_engine_whose_memory_is_released_takes_no_transfer)
{
	struct world_opts o = shape;
	struct wb_err err = {0};
	const struct said *no;

	o.rollout_staged = _i;
	begin(&o);
	commits(1);
	ck_assert_int_eq(wb_transfer_sleep(w.agent[PARTY].core, w.worker[PARTY].id, &err), 0);
	forget_said();
	say(PARTY, LEAD, about(_i ? WBP_PEER_STAGE : WBP_PEER_STOP, 2));
	no = last(PARTY, "e0-0", WBP_PEER_PROGRESS);
	ck_assert_ptr_nonnull(no);
	ck_assert_int_eq(no->m.code, -ENOTCONN);
	ck_assert_msg(strstr(no->sentence, "release_memory") != NULL, "%s", no->sentence);
	ck_assert_int_eq(party_of(PARTY)->state, PARTY_NONE);
	ck_assert(!wb_poll_stop(w.worker[PARTY].page->word));
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fences_trainers");
	TCase *tc = tcase_create("fences_trainers");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, send_weights_does_not_return_while_somebody_reads, 0, 2);
	tcase_add_test(tc, what_is_kept_is_let_go_when_nobody_reads);
	tcase_add_test(tc, a_refusal_that_was_known_answers_no_new_call);
	tcase_add_loop_test(tc, a_refusal_of_an_earlier_version_answers_no_call, 0, 2);
	tcase_add_test(tc, an_answer_to_the_call_before_answers_no_new_call);
	tcase_add_test(tc, trainers_hear_of_their_own_transfer_and_from_its_coordinator_only);
	tcase_add_loop_test(tc, an_older_plan_is_refused, 0, 2);
	tcase_add_loop_test(tc, a_plan_goes_when_a_transfer_of_the_next_has_begun, 0, 2);
	tcase_add_test(tc, a_plan_with_a_worker_that_has_left_is_refused);
	tcase_add_test(tc, sums_of_each_transfer_have_a_seed_of_their_own);
	tcase_add_test(tc, a_message_that_comes_again_is_not_heard_again);
	tcase_add_test(tc, a_message_that_comes_again_confirms_what_was_heard_at_first);
	tcase_add_test(tc, a_chunk_of_what_is_over_is_refused_at_once);
	tcase_add_loop_test(tc, an_engine_whose_memory_is_released_takes_no_transfer, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
