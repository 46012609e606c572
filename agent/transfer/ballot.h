/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_BALLOT_H
#define WB_TRANSFER_BALLOT_H
/*
 * A ballot: how a coordinator, or a lead in doubt, has the decision on a joint transfer made, or
 * learns it.  Owned by the coordinator or the lead.  Judges answer it (judge.h).
 *
 * First it asks the judges to promise, and to tell what they have accepted; then it asks them to
 * accept a value.  When no majority has answered in time it begins again; so it does, after a
 * little while, when another proposer was ahead.  The coordinator's first ballot begins with the
 * second step.  States and steps: states.h.  Invariants: a value is chosen only by a majority of
 * all judges, each counted once; a value that a judge has accepted before takes the place of the
 * one that was wanted.
 */
#include "transfer/internal.h"

enum ballot_state { BALLOT_NONE, BALLOT_ASKING, BALLOT_ACCEPTING, BALLOT_WAITING }; /* states.h */
/* On the wire and in judges' files. */
enum decision { DECIDE_NONE, DECIDE_COMMIT, DECIDE_ABORT };

struct ballot {
	enum ballot_state state;
	struct object *obj;
	/* number: its own; accepted: the greatest that a judge has accepted; seen: the greatest
	 * met */
	uint64_t transfer, number, accepted, seen;
	uint64_t retry_ns, backoff_ns;
	enum decision want, value;
	uint32_t n_judge, n_yes;
	uint64_t judge[WB_AREA_JUDGES_MAX];
	bool answered[WB_AREA_JUDGES_MAX];
};

/** wb__transfer_ballot_first - begin the coordinator's ballot: COMMIT, number 1, put to the judges
 * of @e. */
void wb__transfer_ballot_first(struct ballot *b, struct epoch *e, uint64_t transfer);
/** wb__transfer_ballot_ask - begin a lead's ballot: ABORT, unless a judge has accepted COMMIT; put
 * to the judges that an area names.  @judge is copied. */
void wb__transfer_ballot_ask(struct ballot *b, struct object *o, uint64_t transfer,
	const uint64_t *judge, uint32_t n_judge);
/** wb__transfer_ballot_stop - answers do not count any more. */
void wb__transfer_ballot_stop(struct ballot *b);
/** wb__transfer_ballot_tick - ask again when it is time; when to call again, 0 = never. */
uint64_t wb__transfer_ballot_tick(struct object *o, uint64_t now);
/** wb__transfer_judges - fill @judge with a plan's judges: hashes of their names, so that they are
 * found again under another plan.  Returns how many. */
uint32_t wb__transfer_judges(const struct epoch *e, uint64_t judge[WB_AREA_JUDGES_MAX]);

#endif
