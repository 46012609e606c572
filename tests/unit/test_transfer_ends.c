/* SPDX-License-Identifier: Apache-2.0 */
/* Every run ends, and who waits for it hears how: cases that the simulation has found, each written
 * out so that it stays what it is when seeds make other worlds. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include "base/base.h"
#include "base/log.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SOON (20 * WB_NS_PER_S)

static const struct world_opts shape = {.seed = 31,
	.trainer_agents = 1,
	.trainers_per_agent = 1,
	.engines = 2,
	.agents_per_engine = 1,
	.workers_per_agent = 1,
	.scale = 128,
	.step_deadline_ns = 600 * WB_NS_PER_S,
	.transfer_deadline_ns = 120 * WB_NS_PER_S,
	.peers_reconnect = true};

static struct world w;

static void begin(const struct world_opts *o)
{
	world_init(&w, o);
	world_plan(&w);
}

static void commits(int64_t version)
{
	world_check_send(&w, version, SOON);
	ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s: %s", w.last_result, w.last_culprit);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, version);
}

static void call(uint32_t trainer, int64_t version)
{
	struct world_worker *k = &w.worker[trainer];

	world_fill(k, version);
	k->version = version;
	world_send_one(k, version);
}

static void until_phase(uint32_t worker, enum world_phase phase)
{
	uint64_t end = world_now(&w) + SOON;

	while (w.worker[worker].phase != phase && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	ck_assert_int_eq(w.worker[worker].phase, phase);
}

/* Every agent takes the plan: none is busy with a run of the plan before the last. */
static void all_take(const struct world_epoch *e)
{
	for (uint32_t i = 0; i < e->n_agent; i++) {
		struct wb_err err = {0};
		int rc = world_epoch_install(&w, e, e->agent[i], &err);

		ck_assert_msg(rc == 0, "%s: %s", w.agent[e->agent[i]].name, err.msg);
		world_after(&w.agent[e->agent[i]]);
	}
}

/* It is committed, and the next transfer begins while its after_update_hook runs. */
START_TEST(who_leads_a_feed_hears_of_its_end_when_it_is_overtaken)
{
	struct world_opts o = shape;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.rollout_staged = _i;
	begin(&o);
	commits(1);
	world_kill_agent(&w, 2);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_restart(&w, 2);
	w.worker[2].hook_ns = 5 * WB_NS_PER_S;
	world_plan(&w);
	e = w.epochs;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	until_phase(2, WORLD_AFTER);
	world_check_send(&w, 2, SOON);
	ck_assert_str_eq(w.last_result, "Succeeded");
	world_plan(&w);
	commits(3);
	all_take(world_epoch_make(&w));
	world_finish(&w);
}
END_TEST

/* The only engine that holds the version leaves while it feeds another, which gets the rest from
 * trainers when all of them keep the version (_i 2, 3), and is Torn when none does (0, 1), or one
 * has let go and changed it (4, 5).  _i & 1: with staging. */
START_TEST(who_is_fed_gets_from_trainers_that_keep_it_what_its_source_does_not_give)
{
	bool keeps = _i >> 1 == 1, has_one_let_go = _i >> 1 == 2;
	struct world_opts o = shape;
	uint32_t source;
	struct wb_err err = {0};

	o.trainers_per_agent = 2;
	o.rollout_staged = _i & 1;
	o.scale = 256;
	o.hold = true;
	o.keep = keeps || has_one_let_go;
	begin(&o);
	commits(1);
	ck_assert_int_eq(w.worker[0].held, o.keep);
	if (has_one_let_go) {
		w.worker[0].held = false;
		world_release(&w);
		w.worker[0].held = true;
		world_run_for(&w, WB_NS_PER_S);
		ck_assert(!w.worker[1].held);
		memset(w.worker[1].memory, 0xee, w.worker[1].bytes);
	}
	world_kill_worker(&w, 3);
	world_run_for(&w, WB_NS_PER_S);
	world_start_worker(&w, 3);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	world_plan(&w);
	for (uint32_t i = 0; i < w.n_agent; i++) /* as the operator says to all */
		wb_transfer_seen(w.agent[i].core, &world_object, 1);
	source = world_agent_of_engine(&w, 0);
	ck_assert_int_eq(wb_transfer_feed(w.agent[source].core, &w.epochs->id, 1, 0, &err), 0);
	world_after(&w.agent[source]);
	until_phase(3, WORLD_BEGUN);
	world_kill_worker(&w, 2);
	world_run_for(&w, 10 * WB_NS_PER_S);
	ck_assert_uint_eq(w.worker[3].n_torn, !keeps);
	ck_assert(!keeps || (w.worker[3].phase == WORLD_RUN && w.worker[3].version == 1));
	world_release(&w);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert(!w.worker[0].held && !w.worker[1].held);
	world_finish(&w);
}
END_TEST

/* The promise of one agent of a new engine comes after the run that it was for, and after the feed
 * of the same number has begun.  Taken for an answer to that, the others would stop at a poll which
 * its worker has passed, and never meet it again. */
START_TEST(a_promise_for_a_transfer_is_none_for_the_feed_of_its_number)
{
	struct world_opts o = shape;
	struct wb_sim_fault mute = {
		.kind = WB_SIM_PARTITION, .items = WB_SIM_MSG, .from = "e1-1", .to = "e1-0"};
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	o.step_deadline_ns = WB_NS_PER_S;
	begin(&o);
	mute.until_ns = world_now(&w) + 1500 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &mute), 0);
	world_check_send(&w, 1, SOON);
	ck_assert_int_eq(w.worker[1].version, 1);
	ck_assert_int_ne(w.worker[3].version, 1);
	w.worker[3].stall_until_ns = world_now(&w) + 300 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &w.epochs->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	world_run_for(&w, 3 * WB_NS_PER_S);
	world_check_hold(&w, 1);
	commits(2);
	world_finish(&w);
}
END_TEST

/* The source has got a newer version meanwhile: what was asked for is not what is under way. */
START_TEST(a_feed_of_a_newer_version_is_not_taken_for_the_one_before)
{
	struct world_opts o = shape;
	struct wb_sim_fault deaf = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "trainer-0",
		.to = "e1-0",
		.until_ns = UINT64_MAX};
	struct world_epoch *e;
	struct wb_err err = {0};
	uint64_t end;

	begin(&o);
	commits(1);
	world_kill_agent(&w, 2);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_restart(&w, 2);
	w.worker[2].hook_ns = 60 * WB_NS_PER_S;
	world_plan(&w);
	e = w.epochs;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	end = world_now(&w) + 120 * WB_NS_PER_S;
	while (w.worker[2].phase != WORLD_AFTER && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	ck_assert_int_eq(wb_sim_fault_add(w.net, &deaf), 0);
	world_send(&w, 2);
	while (w.worker[1].version != 2 && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	ck_assert_int_eq(w.worker[2].phase, WORLD_AFTER);
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), -EBUSY);
	ck_assert_msg(strstr(err.msg, "e1") != NULL, "%s", err.msg);
	world_finish(&w);
}
END_TEST

/* Both sides staged, and every trainer process ends as soon as it is told that it may: before any
 * chunk was asked for, where engines are slow to begin. */
START_TEST(images_of_trainers_that_are_gone_are_read_to_the_end)
{
	struct world_opts o = shape;

	o.trainer_staged = o.rollout_staged = true;
	begin(&o);
	commits(1);
	world_stall_agent(&w, w.worker[w.n_trainer].agent, 200 * WB_NS_PER_MS);
	world_send(&w, 2);
	while (w.worker[0].send_state < WB_APP_SEND_RELEASED)
		ck_assert_msg(wb_sim_step(w.net), "the trainer is not let go");
	for (uint32_t i = 0; i < w.n_trainer; i++)
		world_kill_worker(&w, i);
	world_run_for(&w, SOON);
	ck_assert_str_eq(w.last_result, "Succeeded");
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert_int_eq(w.worker[i].version, 2);
	world_finish(&w);
}
END_TEST

/* By its own clock an agent of an engine has waited too long for the lead, who is at it still. What
 * the lead makes of its workers, which stand still for it, is the lead's to say. */
START_TEST(a_party_that_gives_up_its_lead_asks_what_became_of_it)
{
	struct world_opts o = shape;

	o.agents_per_engine = 2;
	o.drift = 1;
	begin(&o);
	commits(1);
	w.worker[1].hook_ns = 8 * WB_NS_PER_S;
	call(0, 2);
	until_phase(2, WORLD_BEGUN);
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[1].phase, WORLD_BEFORE);
	world_set_clock(&w, 2, 3600 * WB_NS_PER_S, 1000000);
	world_run_for(&w, SOON);
	ck_assert_int_eq(w.worker[1].version, w.worker[2].version);
	w.worker[1].hook_ns = 0;
	commits(3);
	world_finish(&w);
}
END_TEST

/*
 * One agent of an engine is writing parameters, the other still waits for those who read what is
 * to change, when the time is over.  The engine's workers wait for each other in every step, so all
 * of them have to be torn, whatever was written to whom: one that ran on would stand in its step,
 * and no common poll would be reached any more.
 */
START_TEST(an_engine_of_which_one_agent_had_not_begun_to_write_is_torn_as_one)
{
	struct world_opts o = shape;
	/* What another engine reads from the second agent stays under way. */
	struct wb_sim_fault slow = {
		.kind = WB_SIM_PARTITION, .items = WB_SIM_DATA, .from = "e0-1", .to = "e1-*"};

	o.agents_per_engine = 2;
	o.drift = 1;
	o.xport_caps = WB_XPORT_CAP_LOCAL;
	o.transfer_deadline_ns = WB_NS_PER_S;
	begin(&o);
	commits(1);
	slow.until_ns = world_now(&w) + 20 * WB_NS_PER_S;
	wb_sim_fault_add(w.net, &slow);
	world_check_send(&w, 2, SOON);
	ck_assert_str_eq(w.last_result, "PartlyTorn");
	world_check_send(&w, 3, SOON);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, w.worker[2].phase);
	wb_sim_faults_clear(w.net);
	world_run_for(&w, 20 * WB_NS_PER_S);
	commits(4);
	world_finish(&w);
}
END_TEST

/* SERVE is lost, and the coordinator gives that agent up.  It asks again when it hears so, and then
 * hears FINAL; what it asked comes after that. */
START_TEST(a_call_that_is_asked_again_is_not_taken_for_the_next)
{
	struct world_opts o = shape;
	struct wb_sim_fault loss = {
		.kind = WB_SIM_DROP, .items = WB_SIM_MSG, .from = "trainer-0", .to = "trainer-1"};
	struct wb_sim_fault mute = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "trainer-1",
		.to = "trainer-0"};

	o.trainer_agents = 2;
	begin(&o);
	commits(1);
	loss.until_ns = world_now(&w) + 100 * WB_NS_PER_MS;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &loss), 0);
	call(1, 2);
	call(0, 2);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	mute.until_ns = world_now(&w) + WB_NS_PER_S;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &mute), 0);
	wb_transfer_peer_down(w.agent[0].core, &w.epochs->id, 1, "connection reset");
	world_after(&w.agent[0]);
	ck_assert(world_run(&w, SOON));
	ck_assert_int_ne(w.worker[0].send_code, 0);
	ck_assert_int_ne(w.worker[1].send_code, 0);
	world_run_for(&w, 3 * WB_NS_PER_S);
	call(0, 3);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	call(1, 3);
	ck_assert(world_run(&w, SOON));
	ck_assert_msg(!w.worker[0].send_code, "%s", w.worker[0].why);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 3);
	world_finish(&w);
}
END_TEST

/* A plan that never became active: its coordinator goes by the one before a second later, and its
 * own workers cannot have been heard sooner. */
START_TEST(the_time_to_call_begins_when_the_plan_before_may_be_used)
{
	struct world_opts o = shape;

	o.trainer_agents = 2;
	o.step_deadline_ns = WB_NS_PER_S;
	begin(&o);
	commits(1);
	call(1, 2);
	world_run_for(&w, WB_NS_PER_S / 5);
	ck_assert_int_eq(world_epoch_install(&w, world_epoch_make(&w), 0, NULL), 0);
	world_after(&w.agent[0]);
	call(0, 2);
	ck_assert(world_run(&w, SOON));
	ck_assert_msg(!w.worker[0].send_code, "%s", w.worker[0].why);
	ck_assert_int_eq(w.worker[1].send_code, 0);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* Its coordinator was asked by all before it went by the plan before, and hears nothing more. */
START_TEST(what_was_asked_before_the_plan_before_may_be_used_is_begun_then)
{
	struct world_opts o = shape;

	o.trainer_agents = 2;
	begin(&o);
	commits(1);
	call(0, 2);
	world_run_for(&w, WB_NS_PER_S / 5);
	ck_assert_int_eq(world_epoch_install(&w, world_epoch_make(&w), 0, NULL), 0);
	world_after(&w.agent[0]);
	call(1, 2);
	ck_assert(world_run(&w, 3 * WB_NS_PER_S));
	ck_assert_msg(!w.worker[0].send_code, "%s", w.worker[0].why);
	ck_assert_int_eq(w.worker[1].send_code, 0);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* Its bytes had begun to come when it was stopped.  Its agent ended that run, began another, and
 * died before the worker had heard of either. */
START_TEST(a_worker_that_was_stopped_knows_that_it_was_written_to)
{
	struct world_opts o = shape;
	struct world_worker *k;
	uint64_t end;

	o.engines = 1;
	o.scale = 512;
	o.step_deadline_ns = WB_NS_PER_S;
	o.transfer_deadline_ns = 2 * WB_NS_PER_S;
	begin(&o);
	k = &w.worker[1];
	commits(1);
	world_send(&w, 2);
	until_phase(1, WORLD_BEGUN);
	while (k->page->touched != 2)
		ck_assert(wb_sim_step(w.net));
	world_run_for(&w, WB_NS_PER_MS / 10);
	k->stall_until_ns = world_now(&w) + 30 * WB_NS_PER_S;
	world_kill_agent(&w, 0);
	world_run_for(&w, 8 * WB_NS_PER_S);
	world_restart(&w, 0);
	world_plan(&w);
	world_send(&w, 3);
	world_run_for(&w, WB_NS_PER_S / 2);
	ck_assert_int_eq(k->phase, WORLD_BEGUN);
	ck_assert(!world_holds(&w, k, 1));
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	end = k->stall_until_ns + WB_NS_PER_S;
	while (world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	world_plan(&w);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_int_eq(k->phase, WORLD_TORN);
	commits(4);
	world_finish(&w);
}
END_TEST

/* An engine's lead is gone, or has not heard of the transfer, which begins all the same; then the
 * transfer's coordinator dies, before it has called that engine lost.  The engine is asked for
 * chunks that it will never have.  _i 0: by a worker of it that is another one now, 1: one that is
 * the same, 2: under a lead that is there. */
START_TEST(chunks_of_an_engine_that_will_not_begin_are_not_waited_for)
{
	struct wb_sim_fault deaf = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "trainer-0",
		.to = "e1-0",
		.until_ns = UINT64_MAX};
	struct world_opts o = shape;

	o.agents_per_engine = 2;
	o.rollout_staged = true;
	begin(&o);
	commits(1);
	if (_i == 2) {
		ck_assert_int_eq(wb_sim_fault_add(w.net, &deaf), 0);
	} else {
		world_kill_agent_only(&w, 3);
		world_run_for(&w, 2 * WB_NS_PER_S); /* everybody knows */
		world_start_agent(&w, 3);
	}
	for (uint32_t i = 3; _i == 0 && i <= 4; i++)
		world_kill_worker(&w, i);
	world_send(&w, 2);
	world_run_for(&w, 5 * WB_NS_PER_MS);
	for (uint32_t i = 3; _i == 0 && i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[0].send_state, WB_APP_SEND_STARTED);
	world_kill_agent(&w, 0);
	world_run_for(&w, SOON);
	wb_sim_faults_clear(w.net);
	world_restart(&w, 0);
	world_run_for(&w, WB_NS_PER_S);
	all_take(world_epoch_make(&w));
	world_plan(&w);
	commits(3);
	world_finish(&w);
}
END_TEST

/* Staged, and each worker waits for the others in every step.  One has stopped, and its agent dies
 * before it has read INSTALL, which the other has followed: it cannot go on alone with what it
 * holds.  _i 0: its own agent; 1: that of the lead. */
START_TEST(who_was_stopped_does_not_leave_those_behind_who_install)
{
	struct world_opts o = shape;
	uint32_t late = _i ? 1 : 2, agent = _i ? 1 : 2;

	o.engines = 1;
	o.agents_per_engine = 2;
	o.rollout_staged = true;
	o.drift = 1;
	begin(&o);
	commits(1);
	world_send(&w, 2);
	until_phase(late, WORLD_BEGUN);
	w.worker[late].stall_until_ns = world_now(&w) + WB_NS_PER_S;
	until_phase(3 - late, WORLD_INSTALLED);
	ck_assert_int_eq(w.worker[late].phase, WORLD_BEGUN);
	world_kill_agent_only(&w, agent);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_start_agent(&w, agent);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, w.worker[2].phase);
	ck_assert_int_eq(w.worker[1].version, w.worker[2].version);
	commits(3);
	world_finish(&w);
}
END_TEST

/* An engine that is new, whose workers wait for each other in every step: half of it loses its
 * agent while it is fed, and goes on.  The other half must not be left in that feed. */
START_TEST(a_new_engine_whose_feed_came_to_nothing_is_fed_by_the_next)
{
	struct world_opts o = shape;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	o.drift = 1;
	begin(&o);
	commits(1);
	for (uint32_t i = 3; i <= 4; i++)
		world_kill_worker(&w, i);
	for (uint32_t i = 3; i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	e = w.epochs;
	for (uint32_t a = 3; a <= 4; a++) {
		wb_transfer_expect_feed(w.agent[a].core, &world_object, 1);
		world_after(&w.agent[a]);
	}
	w.worker[4].hook_ns = 10 * WB_NS_PER_S;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	until_phase(4, WORLD_BEFORE);
	until_phase(3, WORLD_BEGUN);
	world_kill_agent_only(&w, 4);
	world_start_agent(&w, 4);
	w.worker[4].hook_ns = 0;
	until_phase(4, WORLD_RUN);
	world_plan(&w);
	commits(2);
	world_finish(&w);
}
END_TEST

/* As before, but the hook of one worker raises in that feed while the other is on its way to its
 * stop, and in the next transfer that of the other.  The one that was in the feed is not torn: it
 * goes on with the other, at once (_i 0) or when the time for a repair is over (1). */
START_TEST(a_new_engine_whose_feed_came_to_nothing_goes_on_as_one)
{
	struct world_opts o = shape;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	o.drift = 1;
	o.transfer_deadline_ns = 2 * WB_NS_PER_S;
	begin(&o);
	commits(1);
	for (uint32_t i = 3; i <= 4; i++)
		world_kill_worker(&w, i);
	for (uint32_t i = 3; i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	e = w.epochs;
	for (uint32_t a = 3; a <= 4; a++) {
		wb_transfer_expect_feed(w.agent[a].core, &world_object, 1);
		world_after(&w.agent[a]);
	}
	w.worker[3].stall_until_ns = world_now(&w) + WB_NS_PER_S;
	w.worker[4].hook_raises = true;
	ck_assert_int_eq(wb_transfer_feed(w.agent[1].core, &e->id, 1, 0, &err), 0);
	world_after(&w.agent[1]);
	until_phase(4, WORLD_BEGUN);
	world_run_for(&w, (_i ? 5 : 1) * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[4].phase, WORLD_BEGUN);
	w.worker[3].hook_raises = true;
	world_send(&w, 2);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert(!w.worker[3].hook_raises);
	commits(3);
	world_finish(&w);
}
END_TEST

/* An engine was torn, and all its workers are new processes since.  In the next transfer one of
 * them stands in its update when its lead dies, with nothing written, and the other has not begun:
 * it is not torn by what its forerunner was, and goes on with the other, who waits for it in each
 * step. _i: with staging. */
START_TEST(a_process_is_not_torn_by_the_one_before_it)
{
	struct world_opts o = shape;

	o.agents_per_engine = 2;
	o.drift = 1;
	o.rollout_staged = _i;
	o.scale = 256;
	begin(&o);
	commits(1);
	world_send(&w, 2);
	until_phase(4, _i ? WORLD_INSTALL : WORLD_BEGUN);
	while (w.worker[4].page->touched != 2)
		ck_assert(wb_sim_step(w.net));
	for (uint32_t i = 3; i <= 4; i++)
		world_kill_worker(&w, i);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = 3; i <= 4; i++)
		world_start_worker(&w, i);
	world_plan(&w);
	w.worker[3].hook_ns = 10 * WB_NS_PER_S;
	world_send(&w, 3);
	until_phase(3, WORLD_BEFORE);
	until_phase(4, WORLD_BEGUN);
	world_kill_agent_only(&w, 3);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_start_agent(&w, 3);
	w.worker[3].hook_ns = 0;
	until_phase(3, WORLD_RUN);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[4].phase, WORLD_RUN);
	commits(4);
	world_finish(&w);
}
END_TEST

/* Transfers fill areas and feeds parameters.  Two engines are fed when their source dies, and each
 * asks the other for what that had: neither has it, and both hear so at once. */
START_TEST(engines_that_are_fed_do_not_wait_for_each_other)
{
	struct world_opts o = shape;
	const struct world_epoch *e;

	o.engines = 3;
	o.rollout_staged = _i;
	o.bytes_per_s = 1000000;
	begin(&o);
	commits(1);
	for (uint32_t a = 1; a <= 2; a++) {
		world_kill_agent(&w, a);
		world_run_for(&w, 2 * WB_NS_PER_S);
		world_restart(&w, a);
	}
	world_plan(&w);
	e = w.epochs;
	for (uint32_t a = 0; a < w.n_agent; a++) /* trainers have nothing of it any more */
		wb_transfer_seen(w.agent[a].core, &world_object, 1);
	for (uint32_t en = 0; en < 2; en++) {
		struct wb_err err = {0};

		ck_assert_int_eq(wb_transfer_feed(w.agent[3].core, &e->id, en, 2, &err), 0);
		world_after(&w.agent[3]);
	}
	for (uint32_t i = 1; i <= 2; i++)
		while (w.worker[i].page->touched != 1) /* each has asked the source */
			ck_assert(wb_sim_step(w.net));
	world_kill_agent(&w, 3);
	until_phase(1, WORLD_TORN);
	until_phase(2, WORLD_TORN);
	world_restart(&w, 3);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	commits(2);
	world_finish(&w);
}
END_TEST

/* Its agent died when it had begun to copy its area, and another is there before that ends. */
START_TEST(who_installs_does_not_hold_what_it_had)
{
	struct world_opts o = shape;
	struct world_worker *k;
	int64_t version;

	o.rollout_staged = true;
	begin(&o);
	k = &w.worker[1];
	commits(1);
	world_send(&w, 2);
	until_phase(1, WORLD_BEGUN);
	k->hook_ns = 10 * WB_NS_PER_S;
	until_phase(1, WORLD_INSTALL);
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert_int_eq(k->phase, WORLD_INSTALL);
	ck_assert(world_is_seen(&w, k));
	ck_assert_uint_eq(wb_transfer_held(w.agent[1].core, k->id, &version), 0);
	k->hook_ns = 0;
	until_phase(1, WORLD_TORN);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	commits(3);
	world_finish(&w);
}
END_TEST

/* An agent is stopped while its worker waits in an update, until the engine's lead has given both
 * up.  It has a newer plan, too, which is not active: the next transfer begins under the one in
 * use, and there the lead is asked how the last one ended. */
START_TEST(who_is_in_doubt_asks_under_the_plan_in_use)
{
	struct world_opts o = shape;

	o.engines = 1;
	o.agents_per_engine = 2;
	o.rollout_staged = true;
	o.drift = 1;
	o.step_deadline_ns = WB_NS_PER_S;
	begin(&o);
	commits(1);
	w.worker[1].hook_ns = 60 * WB_NS_PER_S;
	world_send(&w, 2);
	until_phase(2, WORLD_BEGUN);
	ck_assert_int_eq(world_epoch_install(&w, world_epoch_make(&w), 2, NULL), 0);
	world_after(&w.agent[2]);
	world_run_for(&w, WB_NS_PER_MS);
	world_stall_agent(&w, 2, 15 * WB_NS_PER_S);
	world_run_for(&w, 15 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, WORLD_RUN);
	ck_assert_int_eq(w.worker[2].phase, WORLD_BEGUN);
	w.worker[1].hook_ns = 0;
	world_send(&w, 3);
	world_run_for(&w, 3 * WB_NS_PER_S);
	ck_assert_int_ne(w.worker[2].phase, WORLD_TORN);
	commits(4);
	world_finish(&w);
}
END_TEST

/* Its lead committed and died before it said so here.  The next plan, under which it is answered,
 * comes late: a worker that may wait for a step so long waits for it (_i 0), any other (1) goes by
 * what it knows of itself. */
START_TEST(an_answer_is_awaited_as_long_as_a_step_may_take)
{
	struct world_opts o = shape;
	struct wb_sim_fault deaf = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_MSG,
		.from = "e0-0",
		.to = "e0-1",
		.until_ns = UINT64_MAX};

	o.engines = 1;
	o.agents_per_engine = 2;
	o.rollout_staged = true;
	o.drift = !_i; /* who is Torn stays in its step, where the other waits */
	if (_i)
		o.step_deadline_ns = 5 * WB_NS_PER_S;
	begin(&o);
	commits(1);
	world_send(&w, 2);
	until_phase(2, WORLD_INSTALLED);
	ck_assert_int_eq(wb_sim_fault_add(w.net, &deaf), 0);
	until_phase(1, WORLD_RUN);
	ck_assert_int_eq(w.worker[1].version, 2);
	world_kill_agent_only(&w, 1);
	world_run_for(&w, 20 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[2].phase, _i ? WORLD_TORN : WORLD_INSTALLED);
	wb_sim_faults_clear(w.net);
	world_start_agent(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	world_run_for(&w, WB_NS_PER_S);
	if (!_i)
		world_check_hold(&w, 2);
	commits(3);
	world_finish(&w);
}
END_TEST

/* A run ended before a worker of it had begun, after one of that number in which it was written to
 * by nobody either: when its agent dies it does not take the mark of that for its own. */
START_TEST(the_mark_of_a_run_does_not_outlive_it)
{
	struct world_opts o = shape;
	struct world_worker *k;

	o.rollout_staged = true;
	o.step_deadline_ns = WB_NS_PER_S;
	o.agents_per_engine = 2;
	begin(&o);
	k = &w.worker[3];
	commits(1);
	w.worker[4].hook_ns = 60 * WB_NS_PER_S;
	world_send(&w, 2);
	until_phase(3, WORLD_BEGUN);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert_uint_eq(k->page->touched, 2);
	until_phase(3, WORLD_RUN);
	ck_assert_uint_eq(k->page->touched, 0);
	world_finish(&w);
}
END_TEST

/* The agent of a torn worker dies while that runs its hook for the repair: the next one hears that
 * it is torn. */
START_TEST(a_torn_worker_says_so_while_its_hook_runs)
{
	struct world_opts o = shape;

	o.engines = 1;
	o.scale = 256;
	begin(&o);
	commits(1);
	world_send(&w, 2);
	until_phase(1, WORLD_BEGUN);
	world_kill_worker(&w, 0);
	until_phase(1, WORLD_TORN);
	world_start_worker(&w, 0);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	w.worker[1].hook_ns = 600 * WB_NS_PER_S;
	world_send(&w, 3);
	until_phase(1, WORLD_BEFORE);
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, WORLD_BEFORE);
	world_plan(&w);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_ptr_nonnull(wb_transfer_torn(w.agent[1].core));
	world_finish(&w);
}
END_TEST

/* Its after_update_hook takes long, and a feed of the same number begins under a newer plan: that
 * it has run belongs to the update before, which is over then. */
START_TEST(a_hook_that_has_run_ends_the_update_that_it_was_for)
{
	struct world_opts o = shape;
	struct world_epoch *e;
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	begin(&o);
	world_send(&w, 1);
	until_phase(2, WORLD_BEGUN);
	w.worker[2].hook_ns = 10 * WB_NS_PER_S;
	until_phase(2, WORLD_AFTER);
	until_phase(1, WORLD_RUN);
	world_kill_agent_only(&w, 1);
	world_start_agent(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	world_plan(&w);
	e = w.epochs;
	ck_assert_int_eq(wb_transfer_feed(w.agent[3].core, &e->id, 0, 1, &err), 0);
	world_after(&w.agent[3]);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[2].phase, WORLD_AFTER);
	until_phase(2, WORLD_RUN);
	w.worker[2].hook_ns = 0;
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_check_hold(&w, 1);
	commits(2);
	all_take(world_epoch_make(&w));
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ends");
	TCase *tc = tcase_create("ends");

	wb_log_level_max = WB_LOG_ERROR; /* connections end here all the time */
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, who_leads_a_feed_hears_of_its_end_when_it_is_overtaken, 0, 2);
	tcase_add_loop_test(
		tc, who_is_fed_gets_from_trainers_that_keep_it_what_its_source_does_not_give, 0, 6);
	tcase_add_test(tc, a_feed_of_a_newer_version_is_not_taken_for_the_one_before);
	tcase_add_test(tc, a_promise_for_a_transfer_is_none_for_the_feed_of_its_number);
	tcase_add_test(tc, a_party_that_gives_up_its_lead_asks_what_became_of_it);
	tcase_add_test(tc, images_of_trainers_that_are_gone_are_read_to_the_end);
	tcase_add_test(tc, an_engine_of_which_one_agent_had_not_begun_to_write_is_torn_as_one);
	tcase_add_test(tc, a_call_that_is_asked_again_is_not_taken_for_the_next);
	tcase_add_test(tc, the_time_to_call_begins_when_the_plan_before_may_be_used);
	tcase_add_test(tc, what_was_asked_before_the_plan_before_may_be_used_is_begun_then);
	tcase_add_test(tc, a_worker_that_was_stopped_knows_that_it_was_written_to);
	tcase_add_loop_test(tc, chunks_of_an_engine_that_will_not_begin_are_not_waited_for, 0, 3);
	tcase_add_loop_test(tc, who_was_stopped_does_not_leave_those_behind_who_install, 0, 2);
	tcase_add_test(tc, a_new_engine_whose_feed_came_to_nothing_is_fed_by_the_next);
	tcase_add_loop_test(tc, a_new_engine_whose_feed_came_to_nothing_goes_on_as_one, 0, 2);
	tcase_add_test(tc, a_torn_worker_says_so_while_its_hook_runs);
	tcase_add_test(tc, a_hook_that_has_run_ends_the_update_that_it_was_for);
	tcase_add_test(tc, who_installs_does_not_hold_what_it_had);
	tcase_add_test(tc, who_is_in_doubt_asks_under_the_plan_in_use);
	tcase_add_loop_test(tc, an_answer_is_awaited_as_long_as_a_step_may_take, 0, 2);
	tcase_add_test(tc, the_mark_of_a_run_does_not_outlive_it);
	tcase_add_loop_test(tc, engines_that_are_fed_do_not_wait_for_each_other, 0, 2);
	tcase_add_loop_test(tc, a_process_is_not_torn_by_the_one_before_it, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
