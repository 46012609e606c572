/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One decision for all engines: the coordinator, the lead of an engine, another agent of an engine
 * or a second judge is killed or stopped after every single event between the first engine that is
 * staged and the end.  Never may two engines hold different versions once everybody is back, nor
 * the workers of one engine serve a mix meanwhile.
 */
#include "tests/common/fx_check.h"
#include "tests/common/world_op.h"
#include "tests/common/world_steps.h"

#include "base/log.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS 180 /* events after the first engine is staged; the transfer is over by then */
#define A_TEST 12
#ifdef __SANITIZE_THREAD__ /* one thread: nothing to find, and 20 times slower */
#define STEP 60
#else
#define STEP 9 /* `test_transfer_joint 1` takes every point */
#endif
#define STOP_NS (14 * WB_NS_PER_S)

enum victim { COORDINATOR, LEAD, PARTY, JUDGE, VICTIMS };
static const char *const victims[] = {"coordinator", "lead", "party", "judge"};

struct run {
	struct world w;
	struct world_op op;
	struct world_steps steps;
	bool is_staged, is_wrong;
	char wrong[256];
	uint32_t n_doubt, n_resume, n_decided;
	bool is_tracing; /* stays */
};

static void on_trace(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	struct run *r = ctx;

	(void)who;
	(void)value;
	(void)a;
	r->is_staged |= !strcmp(what, "staged") && transfer == 2;
	r->n_doubt += !strcmp(what, "in doubt");
	r->n_resume += !strcmp(what, "resume");
	r->n_decided += !strcmp(what, "decided") && transfer == 2;
}

static void on_report(void *ctx, struct world_agent *a, const struct wb_transfer_report *rep)
{
	struct run *r = ctx;

	world_op_report(&r->op, a, rep);
}

static void on_phase(void *ctx, struct world_worker *k, enum world_phase before)
{
	struct run *r = ctx;
	bool told = k->phase == WORLD_AFTER, runs = k->phase == WORLD_RUN;

	(void)before;
	if (k->role != WB_ROLE_ROLLOUT || (!told && !runs))
		return;
	if (!world_holds(&r->w, k, told ? k->to_version : k->version)) {
		r->is_wrong = true;
		snprintf(r->wrong, sizeof(r->wrong), "worker %u %s version %lld without its bytes",
			k->index, told ? "is told" : "serves",
			(long long)(told ? k->to_version : k->version));
	}
}

static void on_serve(void *ctx, struct world_worker *k, uint32_t count)
{
	struct run *r = ctx;

	r->is_wrong |= !world_steps_serve(&r->steps, k, count, r->wrong, sizeof(r->wrong));
}

static uint32_t agent_of(const struct world *w, enum victim v)
{
	switch (v) {
	case COORDINATOR:
		return 0;
	case JUDGE:
		return 1;
	case LEAD:
		return world_agent_of_engine(w, 1);
	default:
		return world_agent_of_engine(w, 1) + 1;
	}
}

/* All engines the same; every worker runs and holds what it was told. */
static bool is_even(const struct world *w, int64_t *version)
{
	*version = w->worker[w->n_trainer].version;
	for (uint32_t i = w->n_trainer; i < w->n_worker; i++)
		if (w->worker[i].phase != WORLD_RUN || w->worker[i].version != *version ||
			!world_holds(w, &w->worker[i], *version))
			return false;
	return true;
}

static bool is_alone; /* not run by Check */
#define NEED(cond, ...)                                                                            \
	do {                                                                                       \
		if (cond)                                                                          \
			break;                                                                     \
		if (!is_alone)                                                                     \
			ck_abort_msg(__VA_ARGS__);                                                 \
		printf(__VA_ARGS__);                                                               \
		printf("\n");                                                                      \
		exit(1);                                                                           \
	} while (0)

/* Two engines hold version 1, and 2 is on its way.  @o: seed, agents, modes that are not all
 * tests'. */
static struct world *begin(struct run *r, struct world_opts o, int point)
{
	struct world *w = &r->w;

	o.trainers_per_agent = 1;
	o.engines = 2;
	o.workers_per_agent = 1;
	o.scale = 48;
	o.poll_ns = 50000;
	o.drift = 8; /* it steps together */
	o.step_deadline_ns = o.step_deadline_ns ? o.step_deadline_ns : WB_NS_PER_S;
	o.transfer_deadline_ns = o.step_deadline_ns;
	o.peers_reconnect = o.rollout_staged = o.all_engines = true;
	memset(r, 0, offsetof(struct run, is_tracing));
	world_init(w, &o);
	w->is_tracing = r->is_tracing;
	w->watch = (struct world_watch){.ctx = r,
		.trace = on_trace,
		.report = on_report,
		.phase = on_phase,
		.serve = on_serve};
	world_op_start(&r->op, w);
	while (!r->op.active)
		world_run_for(w, WB_NS_PER_MS);
	world_run_for(w, 100 * WB_NS_PER_MS);
	world_send(w, 1);
	NEED(world_run(w, 20 * WB_NS_PER_S), "at %d", point);
	world_run_for(w, 10 * WB_NS_PER_MS);
	world_send(w, 2);
	return w;
}

/* A world that ends is no news. */
static void end_run(struct run *r)
{
	r->op.alive = false;
	r->w.watch = (struct world_watch){0};
	world_finish(&r->w);
}

static void one(struct run *r, enum victim v, bool kill, int point)
{
	struct world_opts o = {.seed = 7 + (uint64_t)point,
		.trainer_agents = 3,
		.agents_per_engine = 2,
		.trainer_staged = point % 2};
	struct world *w = begin(r, o, point);
	uint32_t agent;
	int64_t version;
	uint64_t end;

	while (!r->is_staged)
		NEED(wb_sim_step(w->net), "at %d", point);
	for (int n = 0; n < point; n++)
		NEED(wb_sim_step(w->net), "at %d", point);
	agent = agent_of(w, v);
	if (kill) {
		world_kill_agent_only(w, agent);
		world_run_for(w, 300 * WB_NS_PER_MS);
		world_start_agent(w, agent);
	} else {
		world_stall_agent(w, agent, STOP_NS);
	}
	end = world_now(w) + 60 * WB_NS_PER_S;
	if (!kill) /* nobody may depend on it meanwhile, nor on its return */
		world_run_for(w, STOP_NS + WB_NS_PER_S);
	do {
		world_run_for(w, 200 * WB_NS_PER_MS);
	} while ((!is_even(w, &version) || !world_op_is_quiet(&r->op)) && world_now(w) < end);
	NEED(!r->is_wrong, "%s at %d: %s", victims[v], point, r->wrong);
	NEED(is_even(w, &version),
		"%s %s at %d: engines differ: worker phases %d %d %d %d, versions %lld %lld %lld "
		"%lld (%s)",
		victims[v], kill ? "killed" : "stopped", point, (int)w->worker[3].phase,
		(int)w->worker[4].phase, (int)w->worker[5].phase, (int)w->worker[6].phase,
		(long long)w->worker[3].version, (long long)w->worker[4].version,
		(long long)w->worker[5].version, (long long)w->worker[6].version, w->last_culprit);
	NEED(version == 1 || version == 2, "version %lld", (long long)version);
	world_send(w, 3);
	NEED(world_run(w, 60 * WB_NS_PER_S), "%s at %d: the next one hangs", victims[v], point);
	world_run_for(w, WB_NS_PER_S);
	NEED(is_even(w, &version) && version == 3, "%s %s at %d: the next one: %s", victims[v],
		kill ? "killed" : "stopped", point, w->last_culprit);
	NEED(!r->is_wrong, "%s at %d: %s", victims[v], point, r->wrong);
	end_run(r);
}

static struct run r;

START_TEST(no_moment_of_a_loss_parts_the_engines)
{
	enum victim v = (enum victim)(_i % VICTIMS);
	bool kill = _i / VICTIMS % 2;
	int first = _i / VICTIMS / 2 * A_TEST;

	for (int p = first + _i % STEP; p < first + A_TEST; p += STEP)
		one(&r, v, kill, p);
}
END_TEST

/*
 * One engine has heard COMMIT when the coordinator and a second judge die; the other asks for the
 * decision.  Those two were the majority that accepted it: they are asked after their restart, and
 * what they said before is in their files only.
 */
START_TEST(judges_that_restart_keep_their_word)
{
	struct world_opts o = {.seed = 100 + (uint64_t)_i,
		.trainer_agents = 3,
		.agents_per_engine = 1,
		.trainer_staged = true};
	struct world *w = begin(&r, o, 0);
	int64_t version = -1;
	uint64_t end;

	while (!r.n_decided)
		ck_assert(wb_sim_step(w->net));
	world_kill_agent_only(w, 0);
	world_kill_agent_only(w, 1);
	world_run_for(w, 300 * WB_NS_PER_MS);
	world_start_agent(w, 0);
	world_start_agent(w, 1);
	end = world_now(w) + 60 * WB_NS_PER_S;
	do {
		world_run_for(w, 200 * WB_NS_PER_MS);
		/* Both may hold version 1 yet: that is even, too. */
	} while ((!is_even(w, &version) || version != 2 || !world_op_is_quiet(&r.op)) &&
		 world_now(w) < end);
	ck_assert_msg(!r.is_wrong, "%s", r.wrong);
	ck_assert_msg(is_even(w, &version) && version == 2, "engines hold %lld and %lld",
		(long long)w->worker[3].version, (long long)w->worker[4].version);
	end_run(&r);
}
END_TEST

/*
 * One of two judges cannot keep its word, its disk is full, and it is restarted twice.  The plan
 * that all run reaches it no more, and the next has no place while the decision stands out.
 * Deadlines are minutes: nothing may wait for them.
 */
START_TEST(a_judge_that_restarts_twice_without_a_word_stops_no_plan)
{
	struct world_opts o = {.seed = 200 + (uint64_t)_i,
		.trainer_agents = 2,
		.agents_per_engine = 1,
		.trainer_staged = true,
		.step_deadline_ns = 600 * WB_NS_PER_S};
	struct world *w = begin(&r, o, 0);
	int64_t version = -1;
	uint64_t end;

	world_fill_disk(w, 1, 100 * WB_NS_PER_S);
	while (!r.is_staged)
		ck_assert(wb_sim_step(w->net));
	for (int n = 0; n < 2; n++) {
		const struct world_epoch *was = r.op.active;

		world_run_for(w, 10 * WB_NS_PER_MS);
		world_kill_agent_only(w, 1);
		world_run_for(w, 300 * WB_NS_PER_MS);
		world_start_agent(w, 1);
		/* The second is planned in any case. */
		for (end = world_now(w) + 30 * WB_NS_PER_S; r.op.active == was;)
			ck_assert_msg(wb_sim_step(w->net) && world_now(w) < end,
				"no plan after restart %d", n + 1);
	}
	ck_assert_uint_eq(r.n_decided, 0);
	w->agent[1].full_until_ns = 0;
	end = world_now(w) + 30 * WB_NS_PER_S;
	do {
		world_run_for(w, 200 * WB_NS_PER_MS);
	} while ((!is_even(w, &version) || !world_op_is_quiet(&r.op)) && world_now(w) < end);
	ck_assert_msg(!r.is_wrong, "%s", r.wrong);
	ck_assert_msg(is_even(w, &version), "engines hold %lld and %lld",
		(long long)w->worker[2].version, (long long)w->worker[3].version);
	world_send(w, 3);
	ck_assert(world_run(w, 60 * WB_NS_PER_S));
	world_run_for(w, WB_NS_PER_S);
	ck_assert(is_even(w, &version) && version == 3);
	end_run(&r);
}
END_TEST

/* The plan under which the restarted judge is reached cuts chunks of another size, for which there
 * are no slots while what is staged has the flow.  It has them when the decision is overdue. */
START_TEST(a_plan_of_other_chunks_does_not_wait_for_the_judge_that_it_brings)
{
	struct world_opts o = {.seed = 300 + (uint64_t)_i,
		.trainer_agents = 2,
		.agents_per_engine = 1 + (uint32_t)_i / 2,
		.trainer_staged = _i % 2,
		.step_deadline_ns = 20 * WB_NS_PER_S};
	struct world *w = begin(&r, o, 0);
	const struct world_epoch *was = r.op.active;
	int64_t version = -1;
	uint64_t end;

	world_fill_disk(w, 1, 100 * WB_NS_PER_S);
	while (!r.is_staged)
		ck_assert(wb_sim_step(w->net));
	world_run_for(w, 10 * WB_NS_PER_MS);
	world_kill_agent_only(w, 1);
	world_run_for(w, 300 * WB_NS_PER_MS);
	w->o.chunk_bytes = 1024;
	world_start_agent(w, 1);
	w->agent[1].full_until_ns = 0;
	ck_assert_uint_eq(r.n_decided, 0);
	for (end = world_now(w) + 60 * WB_NS_PER_S; r.op.active == was;)
		ck_assert_msg(
			wb_sim_step(w->net) && world_now(w) < end, "no plan after the restart");
	do {
		world_run_for(w, 200 * WB_NS_PER_MS);
	} while ((!is_even(w, &version) || !world_op_is_quiet(&r.op)) && world_now(w) < end);
	ck_assert_msg(!r.is_wrong, "%s", r.wrong);
	ck_assert_msg(is_even(w, &version), "engines differ");
	ck_assert_uint_gt(r.n_resume, 0);
	world_send(w, 3);
	ck_assert(world_run(w, 60 * WB_NS_PER_S));
	world_run_for(w, WB_NS_PER_S);
	ck_assert(is_even(w, &version) && version == 3);
	end_run(&r);
}
END_TEST

/* A staging area is its worker's to write, too, at any time: also when its head says who keeps the
 * decision.  An engine in doubt asks whom it can, and ends by its deadline. */
START_TEST(a_count_of_judges_that_a_worker_wrote_is_not_believed)
{
	struct world_opts o = {.seed = 3, .trainer_agents = 1, .agents_per_engine = 1};
	struct world *w = begin(&r, o, 0);

	while (!r.is_staged)
		ck_assert(wb_sim_step(w->net));
	for (uint32_t i = w->n_trainer; i < w->n_worker; i++)
		((struct wb_area_head *)(void *)w->worker[i].area)->n_judge = UINT32_MAX;
	world_kill_agent_only(w, 0);
	world_run_for(w, 10 * WB_NS_PER_S);
	ck_assert_uint_gt(r.n_doubt, 0);
	end_run(&r);
}
END_TEST

/* What the points are worth: how often the decision was asked for, and a transfer taken up. */
static int figures(int step)
{
	for (int v = 0; v < VICTIMS; v++)
		for (int kill = 0; kill < 2; kill++) {
			uint32_t doubt = 0, resume = 0, n = 0;

			for (int p = 0; p < POINTS; p += step, n++) {
				one(&r, (enum victim)v, kill, p);
				doubt += r.n_doubt;
				resume += r.n_resume;
			}
			printf("%-7s %-7s at %u points: %u in doubt, %u taken up again\n",
				victims[v], kill ? "killed" : "stopped", n, doubt, resume);
		}
	return 0;
}

int main(int argc, char **argv)
{
	Suite *s = suite_create("joint");
	TCase *tc = tcase_create("joint");

	wb_log_level_max = WB_LOG_ERROR;
	is_alone = argc > 1;
	if (argc > 3) { /* one, with its trace */
		r.is_tracing = true;
		one(&r, (enum victim)atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
		return 0;
	}
	if (argc > 1)
		return figures(atoi(argv[1]));
	tcase_set_timeout(tc, 60);
	fx_add_points(tc, no_moment_of_a_loss_parts_the_engines, 0, POINTS / A_TEST * VICTIMS * 2);
	tcase_add_loop_test(tc, judges_that_restart_keep_their_word, 0, 6);
	tcase_add_loop_test(tc, a_judge_that_restarts_twice_without_a_word_stops_no_plan, 0, 3);
	tcase_add_loop_test(
		tc, a_plan_of_other_chunks_does_not_wait_for_the_judge_that_it_brings, 0, 4);
	tcase_add_test(tc, a_count_of_judges_that_a_worker_wrote_is_not_believed);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
