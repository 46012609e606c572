/* SPDX-License-Identifier: Apache-2.0 */
/* Trainer workers go on when all that is unsent, or not verified, lies in slots. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"
#include "tests/common/world_check.h"

#define SLOW 20000000 /* bytes a second: what is left takes a while */
#define CHUNK 2048

struct heard {
	uint32_t n_left; /* trainer workers let go early */
	uint32_t n_told; /* by send_weights */
	uint64_t released_ns; /* every engine has its receive stage */
	uint64_t last_told_ns;
};

static void trace(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	struct heard *h = ctx;

	(void)who, (void)transfer, (void)value;
	h->n_left += !strcmp(what, "left early");
	if (!strcmp(what, "released"))
		h->released_ns = world_now(a->world);
}

/* Parameters are written over the moment that send_weights returns. */
static void scribble(void *ctx, struct world_worker *k)
{
	struct heard *h = ctx;

	if (k->send_state != WB_APP_SEND_RELEASED || k->held)
		return;
	memset(k->memory, 0xee, k->bytes);
	h->n_told++;
	h->last_told_ns = world_now(k->world);
}

static struct world_opts slow(const struct world_opts *shape)
{
	struct world_opts o = *shape;

	o.bytes_per_s = SLOW;
	o.scale = 256;
	o.chunk_bytes = o.chunk_bytes ? o.chunk_bytes : CHUNK;
	return o;
}

static void begin_heard(struct world *x, const struct world_opts *o, struct heard *h)
{
	*h = (struct heard){0};
	world_init(x, o);
	x->watch = (struct world_watch){.ctx = h, .trace = trace, .send_state = scribble};
	world_plan(x);
}

static void run_until_all_left(struct world *x, const struct heard *h)
{
	uint64_t end = world_now(x) + 20 * WB_NS_PER_S;

	while (h->n_told < x->n_trainer && world_now(x) < end)
		ck_assert(wb_sim_step(x->net));
	ck_assert_uint_eq(h->n_left, x->n_trainer);
	ck_assert_uint_eq(h->released_ns, 0);
}

/* In every shape and mode of rollouts, again and again: the versions are those that were sent. */
START_TEST(trainers_go_on_before_the_receive_stage_is_over)
{
	struct world_opts o = slow(&world_shapes[_i / 2]);
	struct world x;
	struct heard h;

	o.rollout_staged = _i % 2;
	begin_heard(&x, &o, &h);
	for (int64_t v = 1; v <= 3; v++) {
		h = (struct heard){0};
		world_check_send(&x, v, 20 * WB_NS_PER_S);
		world_check_hold(&x, v);
		ck_assert_str_eq(x.last_result, "Succeeded");
		ck_assert_uint_eq(h.n_told, x.n_trainer);
		/* One may be the last for whom there is room, and too late. */
		ck_assert_uint_ge(4 * h.n_left, 3 * x.n_trainer);
		if (h.n_left == x.n_trainer)
			ck_assert_uint_lt(h.last_told_ns, h.released_ns);
	}
	world_finish(&x);
}
END_TEST

/* What was on its way, and what came from slots: asked for again, it is there. */
START_TEST(a_wrong_sum_is_mended_from_slots_when_the_trainers_have_left)
{
	struct world_opts o = slow(&world_shapes[_i % 2 ? 4 : 1]);
	struct world x;
	struct heard h;

	o.seed = 700 + (uint64_t)_i;
	begin_heard(&x, &o, &h);
	world_send(&x, 1);
	while (!h.n_left)
		ck_assert(wb_sim_step(x.net));
	for (uint32_t i = 0; i < o.trainer_agents; i++) {
		struct wb_sim_fault flip = {.kind = WB_SIM_FLIP,
			.items = WB_SIM_DATA,
			.from = x.agent[x.worker[i * o.trainers_per_agent].agent].name,
			.ppm = 50000};

		ck_assert_int_eq(wb_sim_fault_add(x.net, &flip), 0);
	}
	ck_assert(world_run(&x, 20 * WB_NS_PER_S));
	world_run_for(&x, WB_NS_PER_MS);
	ck_assert_uint_gt(wb_sim_hits(x.net), 0);
	ck_assert_uint_gt(x.n_mismatch, 0);
	ck_assert_str_eq(x.last_result, "Succeeded");
	world_check_hold(&x, 1);
	world_finish(&x);
}
END_TEST

/* At any moment after they left.  What it would have relayed comes from slots, or the other engine
 * is torn, by name; the next version repairs it. */
START_TEST(an_engine_dies_after_the_trainers_left)
{
	struct world_opts o = slow(&world_shapes[1]);
	struct wb_rng rng = {(uint64_t)_i};
	struct world x;
	struct heard h;

	o.seed = 100 + (uint64_t)_i;
	o.rollout_staged = _i % 2;
	begin_heard(&x, &o, &h);
	world_send(&x, 2);
	run_until_all_left(&x, &h);
	world_run_for(&x, wb_rng_below(&rng, 3000000));
	world_kill_agent(&x, world_agent_of_engine(&x, 1));
	ck_assert_msg(world_run(&x, 60 * WB_NS_PER_S), "seed %d: the send hangs", _i);
	world_run_for(&x, 10 * WB_NS_PER_MS);
	if (!strcmp(x.last_result, "Succeeded"))
		world_check_hold(&x, 2);
	else
		ck_assert_msg(strstr(x.last_culprit, "chunk ") || strstr(x.last_culprit, "agent "),
			"%s: %s", x.last_result, x.last_culprit);
	x.watch.send_state = NULL;
	world_restart(&x, world_agent_of_engine(&x, 1));
	world_run_for(&x, WB_NS_PER_S);
	world_plan(&x);
	world_check_send(&x, 3, 20 * WB_NS_PER_S);
	ck_assert_str_eq(x.last_result, "Succeeded");
	world_run_for(&x, WB_NS_PER_S);
	world_check_hold(&x, 3);
	world_finish(&x);
}
END_TEST

START_TEST(trainers_may_exit_once_they_have_left)
{
	struct world_opts o = slow(&world_shapes[_i]);
	struct world x;
	struct heard h;

	begin_heard(&x, &o, &h);
	world_send(&x, 1);
	run_until_all_left(&x, &h);
	for (uint32_t i = 0; i < x.n_trainer; i++)
		world_kill_worker(&x, i);
	world_run_for(&x, WB_NS_PER_S);
	ck_assert_str_eq(x.last_result, "Succeeded");
	world_check_hold(&x, 1);
	world_finish(&x);
}
END_TEST

/* They hold, they have snapshots, others do not know the question, or nothing leaves the host. */
START_TEST(who_does_not_leave_early)
{
	struct world_opts o = slow(&world_shapes[2]);
	struct world x;
	struct heard h;

	o.hold = _i == 0;
	o.trainer_staged = _i == 1;
	o.older_agents = _i == 2;
	o.xport_caps = _i == 3 ? WB_XPORT_CAP_LOCAL : 0;
	begin_heard(&x, &o, &h);
	world_send(&x, 1);
	if (_i == 0) {
		world_run_for(&x, 100 * WB_NS_PER_MS);
		ck_assert_uint_gt(h.released_ns, 0);
		world_release(&x);
	}
	ck_assert(world_run(&x, 20 * WB_NS_PER_S));
	world_run_for(&x, WB_NS_PER_MS);
	ck_assert_uint_eq(h.n_left, 0);
	ck_assert_str_eq(x.last_result, "Succeeded");
	world_check_hold(&x, 1);
	world_finish(&x);
}
END_TEST

/* ---- who says what -------------------------------------------------------------------------- */

static const struct world_opts shape = {
	.seed = 31, TWO_ENGINES, .peers_reconnect = true, .bytes_per_s = SLOW};

static struct trainers *trainers_of(uint32_t agent)
{
	return &object_of(agent)->trainers;
}

static struct wb_msg_peer lacked(const struct trainers *t)
{
	struct wb_msg_peer m = about(WBP_PEER_LACKED, t->transfer);

	m.question = t->leave.question;
	return m;
}

/* The question is out, and no answer has come. */
static const struct trainers *ask(void)
{
	struct trainers *t;
	struct world_opts o = shape;

	o.scale = 384;
	o.chunk_bytes = CHUNK;
	begin(&o);
	t = trainers_of(TRAINER);
	forget_said();
	world_send(&w, 1);
	RUN_UNTIL(t->leave.n_asked);
	return t;
}

START_TEST(all_agents_with_rollout_workers_are_asked)
{
	const struct trainers *t = ask();

	ck_assert_uint_eq(t->leave.n_asked, 4);
	for (uint32_t a = LEAD; a <= PARTY1; a++)
		ck_assert_uint_eq(n_times(TRAINER, w.agent[a].name, WBP_PEER_LACK), 1);
	ck_assert_uint_eq(n_times(TRAINER, NULL, WBP_PEER_LACK), 4);
	end();
}
END_TEST

/* Each answers once, the question that was asked, of this transfer. */
START_TEST(only_answers_to_the_question_count)
{
	const struct trainers *t = ask();
	struct wb_msg_peer late = lacked(t), other = lacked(t);

	late.question--;
	other.transfer++;
	say(TRAINER, PARTY, late);
	say(TRAINER, PARTY, other);
	say(TRAINER, COORDINATOR, lacked(t)); /* has no rollout workers */
	ck_assert_uint_eq(t->leave.n_asked, 4);
	say(TRAINER, PARTY, lacked(t));
	say(TRAINER, PARTY, lacked(t));
	ck_assert_uint_eq(t->leave.n_asked, 3);
	end();
}
END_TEST

/* What they do not lack, nobody has in a slot; who lacks more than can be said keeps them. */
START_TEST(nobody_leaves_before_all_have_answered)
{
	const struct trainers *t = ask();
	struct wb_msg_peer m = lacked(t);

	for (uint32_t a = LEAD; a < PARTY1; a++)
		say(TRAINER, a, lacked(t));
	ck_assert(!wb__transfer_has_left(t, 0));
	m.code = _i ? -E2BIG : 0;
	say(TRAINER, PARTY1, m);
	ck_assert_uint_eq(t->leave.n_asked, 0);
	if (_i) /* no stock was made */
		ck_assert_int_eq(wb_flow_stock(t->flow, 0, NULL, 0), 0);
	RUN_UNTIL(_i ? t->leave.n_asked || t->state != TRAINERS_SERVING
		     : wb__transfer_has_left(t, 0));
	ck_assert(_i || t->state == TRAINERS_SERVING);
	end();
}
END_TEST

/* A first question. */
static struct wb_msg_peer lack(uint64_t transfer)
{
	struct wb_msg_peer m = about(WBP_PEER_LACK, transfer);

	m.question = 1;
	return m;
}

/* Who has not begun lacks all that the plan brings it from there, who is done nothing. */
START_TEST(what_an_agent_says_that_it_lacks)
{
	struct wb_msg_peer q = lack(1);
	const struct said *s;

	begin(&shape);
	forget_said();
	say(PARTY, TRAINER, q);
	s = last(PARTY, w.agent[TRAINER].name, WBP_PEER_LACKED);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->m.n_lacked, 1);
	commits(1);
	forget_said();
	say(PARTY, TRAINER, q);
	s = last(PARTY, w.agent[TRAINER].name, WBP_PEER_LACKED);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->m.n_lacked, 0);
	ck_assert_int_eq(s->m.code, 0);
	end();
}
END_TEST

/* It does not reach all that the plan names, so it does not know yet whom it will ask. */
START_TEST(an_agent_that_cannot_go_by_the_plan_cannot_say_what_it_lacks)
{
	struct world_opts o = shape;
	const struct said *s;

	o.apart = true;
	begin(&o);
	say(PARTY, TRAINER, lack(1));
	s = last(PARTY, w.agent[TRAINER].name, WBP_PEER_LACKED);
	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(s->m.code, -E2BIG);
	end();
}
END_TEST

/* Neither does one that heard of a lost engine before it began: others have to bring what that one
 * would have. */
START_TEST(an_agent_that_heard_of_a_lost_engine_cannot_say_what_it_lacks)
{
	struct wb_msg_peer loss, q;
	const struct said *s;

	begin(&shape);
	world_send(&w, 1);
	RUN_UNTIL(party_of(PARTY)->state == PARTY_STOPPED);
	q = lack(party_of(PARTY)->transfer);
	loss = about(WBP_PEER_LOST, q.transfer);
	loss.lost = 1;
	if (_i)
		say(PARTY, LEAD, loss);
	forget_said();
	say(PARTY, TRAINER, q);
	s = last(PARTY, w.agent[TRAINER].name, WBP_PEER_LACKED);
	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(s->m.code, _i ? -E2BIG : 0);
	ck_assert_uint_eq(s->m.n_lacked, _i ? 0 : 1);
	end();
}
END_TEST

/* release_memory() of one that left: its parameters are nobody's concern. */
START_TEST(who_has_left_may_take_its_memory_away)
{
	const struct trainers *t;
	struct world_opts o = shape;
	struct wb_err err = {0};

	o.scale = 384;
	o.chunk_bytes = CHUNK;
	begin(&o);
	t = trainers_of(TRAINER);
	world_send(&w, 1);
	RUN_UNTIL(t->state == TRAINERS_SERVING);
	ck_assert_int_eq(
		wb_transfer_sleep(w.agent[TRAINER].core, worker_of(TRAINER)->w.id, &err), -EBUSY);
	RUN_UNTIL(wb__transfer_has_left(t, 0));
	ck_assert_int_eq(t->state, TRAINERS_SERVING);
	ck_assert_int_eq(
		wb_transfer_sleep(w.agent[TRAINER].core, worker_of(TRAINER)->w.id, &err), 0);
	RUN_UNTIL(wb_transfer_is_quiet(w.agent[TRAINER].core, worker_of(TRAINER)->w.id));
	RUN_UNTIL(!strcmp(w.last_result, "Succeeded"));
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leave");
	TCase *tc = tcase_create("leave");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(
		tc, trainers_go_on_before_the_receive_stage_is_over, 0, 2 * WORLD_SHAPES);
	tcase_add_loop_test(tc, a_wrong_sum_is_mended_from_slots_when_the_trainers_have_left, 0, 6);
	fx_add_points(tc, an_engine_dies_after_the_trainers_left, 0, 40);
	tcase_add_loop_test(tc, trainers_may_exit_once_they_have_left, 0, WORLD_SHAPES);
	tcase_add_loop_test(tc, who_does_not_leave_early, 0, 4);
	tcase_add_test(tc, all_agents_with_rollout_workers_are_asked);
	tcase_add_test(tc, only_answers_to_the_question_count);
	tcase_add_loop_test(tc, nobody_leaves_before_all_have_answered, 0, 2);
	tcase_add_test(tc, what_an_agent_says_that_it_lacks);
	tcase_add_test(tc, an_agent_that_cannot_go_by_the_plan_cannot_say_what_it_lacks);
	tcase_add_loop_test(
		tc, an_agent_that_heard_of_a_lost_engine_cannot_say_what_it_lacks, 0, 2);
	tcase_add_test(tc, who_has_left_may_take_its_memory_away);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
