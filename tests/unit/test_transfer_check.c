/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of an agent's core (transfer/check.c): each that is broken here ends the process. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_two_engines.h"

#include "transfer/link.h"

#include <signal.h>

static const struct world_opts shape = {.seed = 5, TWO_ENGINES};

static void torn_late(void)
{
	worker_of(LEAD)->repair_ns = 1;
}

static void trainer_that_polls(void)
{
	worker_of(0)->is_parked = true;
}

static void party_of_another_lead(void)
{
	party_of(PARTY)->lead = 0;
}

static void party_that_opens_early(void)
{
	party_of(PARTY)->is_opened = true;
}

static void lead_without_deadline(void)
{
	lead_of(LEAD)->deadline_ns = 0;
}

static void lead_in_two_modes(void)
{
	lead_of(LEAD)->is_decided = true;
}

static void coordinator_of_no_plan(void)
{
	object_of(COORDINATOR)->coordinator.e = NULL;
}

static void trainers_with_an_end_too_early(void)
{
	static uint8_t body;

	object_of(COORDINATOR)->trainers.final_body = &body;
}

static void epoch_begun_before_it_is_active(void)
{
	epoch_of(PARTY)->is_active = false;
}

static void link_up_without_connection(void)
{
	epoch_of(PARTY)->links.link[0] = (struct link){.up = true};
}

static void verdict_above_its_promise(void)
{
	struct object *o = object_of(COORDINATOR);

	o->verdict[0] = (struct verdict){.transfer = 9, .accepted = 2, .promised = 1, .value = 1};
	o->n_verdict = 1;
}

static void flow_of_no_plan(void)
{
	for_flow (object_of(COORDINATOR), x)
		x->e = NULL;
}

static const struct {
	uint32_t agent;
	void (*breaks)(void);
} broken[] = {
	{LEAD, torn_late},
	{0, trainer_that_polls},
	{PARTY, party_of_another_lead},
	{PARTY, party_that_opens_early},
	{LEAD, lead_without_deadline},
	{LEAD, lead_in_two_modes},
	{COORDINATOR, coordinator_of_no_plan},
	{COORDINATOR, trainers_with_an_end_too_early},
	{PARTY, epoch_begun_before_it_is_active},
	{PARTY, link_up_without_connection},
	{COORDINATOR, verdict_above_its_promise},
	{COORDINATOR, flow_of_no_plan},
};

static void to_the_middle_of_a_transfer(void)
{
	begin(&shape);
	commits(1);
	world_send(&w, 2);
	RUN_UNTIL(party_of(PARTY)->state == PARTY_STOPPING);
}

START_TEST(what_is_broken_is_noticed)
{
	to_the_middle_of_a_transfer();
	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* it says so each time */
	broken[_i].breaks();
	wb__transfer_check(w.agent[broken[_i].agent].core);
}
END_TEST

START_TEST(nothing_is_broken_in_a_transfer)
{
	to_the_middle_of_a_transfer();
	for (uint32_t a = 0; a < w.n_agent; a++)
		wb__transfer_check(w.agent[a].core);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transfer_check");
	TCase *tc = tcase_create("invariants");

	if (fx_forks())
		tcase_add_loop_test_raise_signal(
			tc, what_is_broken_is_noticed, SIGABRT, 0, (int)WB_ARRAY_SIZE(broken));
	tcase_add_test(tc, nothing_is_broken_in_a_transfer);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
