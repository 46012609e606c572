/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/states.h"

#define TO(state) (1u << (state))

/* Whatever a party is about, its run may end: by its lead, without its lead, or for a newer run. */
static const struct state_row party[] = {
	[PARTY_NONE] = {"Idle", TO(PARTY_CLEARING) | TO(PARTY_STAGED) | TO(PARTY_STOPPING)},
	[PARTY_CLEARING] = {"Clearing", TO(PARTY_MOVING) | TO(PARTY_NONE)},
	[PARTY_STAGED] = {"Staged", TO(PARTY_STOPPING) | TO(PARTY_NONE)},
	[PARTY_STOPPING] = {"Stopping", TO(PARTY_HOOKS) | TO(PARTY_NONE)},
	[PARTY_HOOKS] = {"Hooks", TO(PARTY_STOPPED) | TO(PARTY_NONE)},
	[PARTY_STOPPED] = {"Stopped", TO(PARTY_OPENING) | TO(PARTY_NONE)},
	[PARTY_OPENING] = {"Opening",
		TO(PARTY_MOVING) | TO(PARTY_COPYING) | TO(PARTY_STOPPED) | TO(PARTY_NONE)},
	[PARTY_MOVING] = {"Moving", TO(PARTY_COMPLETE) | TO(PARTY_NONE)},
	[PARTY_COPYING] = {"Copying", TO(PARTY_COMPLETE) | TO(PARTY_NONE)},
	[PARTY_COMPLETE] = {"Complete", TO(PARTY_STAGED) | TO(PARTY_ENDING) | TO(PARTY_NONE)},
	[PARTY_ENDING] = {"Ending", TO(PARTY_NONE)},
};

static const struct state_row lead[] = {
	[LEAD_NONE] = {"Idle", TO(LEAD_STAGING) | TO(LEAD_STAGED) | TO(LEAD_PROMISES)},
	[LEAD_STAGING] = {"Staging", TO(LEAD_STAGED) | TO(LEAD_DONE)},
	[LEAD_STAGED] = {"Staged", TO(LEAD_PROMISES) | TO(LEAD_DONE)},
	[LEAD_PROMISES] = {"Promises", TO(LEAD_STOPS) | TO(LEAD_DONE)},
	[LEAD_STOPS] = {"Stops", TO(LEAD_TELLING) | TO(LEAD_DONE)},
	[LEAD_TELLING] = {"Telling", TO(LEAD_MOVING) | TO(LEAD_INSTALLING) | TO(LEAD_DONE)},
	[LEAD_MOVING] = {"Moving", TO(LEAD_ENDING) | TO(LEAD_DONE)},
	[LEAD_INSTALLING] = {"Installing", TO(LEAD_ENDING) | TO(LEAD_DONE)},
	[LEAD_ENDING] = {"Ending", TO(LEAD_DONE)},
	[LEAD_DONE] = {"Done", TO(LEAD_STAGING) | TO(LEAD_STAGED) | TO(LEAD_PROMISES)},
};

static const struct state_row coordinator[] = {
	[COORDINATOR_IDLE] = {"Idle", TO(COORDINATOR_RUNNING)},
	[COORDINATOR_RUNNING] = {"Running", TO(COORDINATOR_RELEASED) | TO(COORDINATOR_IDLE)},
	[COORDINATOR_RELEASED] = {"Released", TO(COORDINATOR_IDLE)},
};

static const struct state_row trainers[] = {
	[TRAINERS_IDLE] = {"Idle", TO(TRAINERS_ASKED)},
	[TRAINERS_ASKED] = {"Asked", TO(TRAINERS_SERVING) | TO(TRAINERS_IDLE)},
	[TRAINERS_SERVING] = {"Serving", TO(TRAINERS_RELEASING)},
	[TRAINERS_RELEASING] = {"Releasing", TO(TRAINERS_RELEASED)},
	[TRAINERS_RELEASED] = {"Released", TO(TRAINERS_RELEASING) | TO(TRAINERS_IDLE)},
};

/* A ballot asks again when too few have answered; its owner may give it up at any time. */
static const struct state_row ballot[] = {
	[BALLOT_NONE] = {"Idle", TO(BALLOT_ASKING) | TO(BALLOT_ACCEPTING)},
	[BALLOT_ASKING] = {"Asking",
		TO(BALLOT_ASKING) | TO(BALLOT_ACCEPTING) | TO(BALLOT_WAITING) | TO(BALLOT_NONE)},
	[BALLOT_ACCEPTING] = {"Accepting",
		TO(BALLOT_ASKING) | TO(BALLOT_WAITING) | TO(BALLOT_NONE)},
	[BALLOT_WAITING] = {"Waiting", TO(BALLOT_ASKING) | TO(BALLOT_NONE)},
};

const struct state_table wb__transfer_states[STATES_N] = {
	[STATES_PARTY] = {"party", party, WB_ARRAY_SIZE(party)},
	[STATES_LEAD] = {"lead", lead, WB_ARRAY_SIZE(lead)},
	[STATES_COORDINATOR] = {"coordinator", coordinator, WB_ARRAY_SIZE(coordinator)},
	[STATES_TRAINERS] = {"trainers", trainers, WB_ARRAY_SIZE(trainers)},
	[STATES_BALLOT] = {"ballot", ballot, WB_ARRAY_SIZE(ballot)},
};

/* May @to come after @from?  Pure. */
static bool may_follow(const struct state_table *t, uint32_t from, uint32_t to)
{
	return from < t->n && to < t->n && (t->row[from].to & TO(to));
}

void wb__transfer_party_set(struct party *p, enum party_state to)
{
	assert(may_follow(&wb__transfer_states[STATES_PARTY], p->state, to));
	p->state = to;
}

void wb__transfer_lead_set(struct lead *l, enum lead_state to)
{
	assert(may_follow(&wb__transfer_states[STATES_LEAD], l->state, to));
	l->state = to;
}

void wb__transfer_coordinator_set(struct coordinator *l, enum coordinator_state to)
{
	assert(may_follow(&wb__transfer_states[STATES_COORDINATOR], l->state, to));
	l->state = to;
}

void wb__transfer_trainers_set(struct trainers *t, enum trainers_state to)
{
	assert(may_follow(&wb__transfer_states[STATES_TRAINERS], t->state, to));
	t->state = to;
}

void wb__transfer_ballot_set(struct ballot *b, enum ballot_state to)
{
	assert(may_follow(&wb__transfer_states[STATES_BALLOT], b->state, to));
	b->state = to;
}

const char *wb__transfer_party_name(enum party_state s)
{
	return party[s].name;
}

const char *wb__transfer_lead_name(enum lead_state s)
{
	return lead[s].name;
}

const char *wb__transfer_trainers_name(enum trainers_state s)
{
	return trainers[s].name;
}
