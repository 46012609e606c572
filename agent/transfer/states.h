/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_STATES_H
#define WB_TRANSFER_STATES_H
/*
 * The states of the four roles and of their ballots, and which may follow which: a table each
 * (states.c), which the setters assert.  agent/DESIGN.md shows the same tables; a test compares.
 *
 * Nobody assigns a state otherwise.  What a peer says cannot make a setter fail: each handler looks
 * at the state first, and an order that does not fit is not followed.
 */
#include "transfer/ballot.h"
#include "transfer/coordinator.h"
#include "transfer/lead.h"
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

enum { STATES_PARTY, STATES_LEAD, STATES_COORDINATOR, STATES_TRAINERS, STATES_BALLOT, STATES_N };
extern const struct state_table wb__transfer_states[STATES_N];

/** wb__transfer_party_set - asserts that it may. */
void wb__transfer_party_set(struct party *p, enum party_state to);
/** wb__transfer_lead_set - the same. */
void wb__transfer_lead_set(struct lead *l, enum lead_state to);
/** wb__transfer_coordinator_set - the same. */
void wb__transfer_coordinator_set(struct coordinator *l, enum coordinator_state to);
/** wb__transfer_trainers_set - the same. */
void wb__transfer_trainers_set(struct trainers *t, enum trainers_state to);
/** wb__transfer_ballot_set - the same. */
void wb__transfer_ballot_set(struct ballot *b, enum ballot_state to);
/** wb__transfer_party_name - of a state, for people.  Static. */
const char *wb__transfer_party_name(enum party_state s);
/** wb__transfer_lead_name - the same. */
const char *wb__transfer_lead_name(enum lead_state s);
/** wb__transfer_trainers_name - the same. */
const char *wb__transfer_trainers_name(enum trainers_state s);

#endif
