/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_STATES_H
#define WB_TRANSFER_STATES_H
/*
 * The states of the four roles and of ballots, and which state may follow which: one table for each
 * (states.c), which its setter asserts.  agent/DESIGN.md shows the same tables; a test compares
 * them.
 *
 * Only these setters change a state.  What a peer says cannot make a setter fail: each handler
 * looks at the state first, and ignores an order that does not fit it.
 */
#include "transfer/ballot.h"
#include "transfer/coordinator.h"
#include "transfer/lead.h"
#include "transfer/party.h"
#include "transfer/trainers.h"

struct state_row {
	const char *name; /* for people */
	uint32_t to; /* bit set of the states that may come next */
};

struct state_table {
	const char *role;
	const struct state_row *row; /* by state; the first one: nothing is under way */
	uint32_t n;
};

enum { STATES_PARTY, STATES_LEAD, STATES_COORDINATOR, STATES_TRAINERS, STATES_BALLOT, STATES_N };
extern const struct state_table wb__transfer_states[STATES_N];

/** wb__transfer_party_set - change the state; asserts that the table allows it. */
void wb__transfer_party_set(struct party *p, enum party_state to);
/** wb__transfer_lead_set - the same. */
void wb__transfer_lead_set(struct lead *l, enum lead_state to);
/** wb__transfer_coordinator_set - the same. */
void wb__transfer_coordinator_set(struct coordinator *l, enum coordinator_state to);
/** wb__transfer_trainers_set - the same. */
void wb__transfer_trainers_set(struct trainers *t, enum trainers_state to);
/** wb__transfer_ballot_set - the same. */
void wb__transfer_ballot_set(struct ballot *b, enum ballot_state to);
/** wb__transfer_party_name - name of a state, for people.  Static. */
const char *wb__transfer_party_name(enum party_state s);
/** wb__transfer_lead_name - the same. */
const char *wb__transfer_lead_name(enum lead_state s);
/** wb__transfer_trainers_name - the same. */
const char *wb__transfer_trainers_name(enum trainers_state s);

#endif
