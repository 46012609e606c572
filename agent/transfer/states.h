/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_STATES_H
#define WB_TRANSFER_STATES_H
/*
 * The states of the four roles, and which may follow which: a table each (states.c), which the
 * setters assert.  agent/DESIGN.md shows the same tables; a test compares.
 *
 * Nobody assigns a state otherwise.  What a peer says cannot make a setter fail: each handler looks
 * at the state first, and an order that does not fit is not followed.
 */
#include "transfer/lead.h"
#include "transfer/leader.h"
#include "transfer/party.h"
#include "transfer/trainers.h"

struct state_row {
	const char *name; /* for people */
	uint32_t to; /* bit by state: those that may come next */
};

struct state_table {
	const char *role;
	const struct state_row *row; /* by state; the first is that of nothing under way */
	uint32_t n;
};

enum { STATES_PARTY, STATES_LEAD, STATES_LEADER, STATES_TRAINERS, STATES_N };
extern const struct state_table wb__core_states[STATES_N];

/** wb__core_may_follow - may @to come after @from?  Pure. */
bool wb__core_may_follow(const struct state_table *t, uint32_t from, uint32_t to);
/** wb__core_party_set - asserts that it may. */
void wb__core_party_set(struct party *p, enum party_state to);
/** wb__core_lead_set - the same. */
void wb__core_lead_set(struct lead *l, enum lead_state to);
/** wb__core_leader_set - the same. */
void wb__core_leader_set(struct leader *l, enum leader_state to);
/** wb__core_trainers_set - the same. */
void wb__core_trainers_set(struct trainers *t, enum trainers_state to);
/** wb__core_party_name - of a state, for people.  Static. */
const char *wb__core_party_name(enum party_state s);
/** wb__core_lead_name - the same. */
const char *wb__core_lead_name(enum lead_state s);
/** wb__core_trainers_name - the same. */
const char *wb__core_trainers_name(enum trainers_state s);

#endif
