/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_BALLOT_H
#define WB_TRANSFER_BALLOT_H
/*
 * A ballot: how a coordinator, or a lead in doubt, has the decision on a joint transfer made, or
 * learns it.  Owned by who proposes.  Judges answer (judge.h).
 *
 * It asks judges to promise, and to tell what they accepted; then to accept this; and begins again
 * when no majority has answered in time, or somebody was ahead: then after a little while.  The
 * coordinator begins with the second.  States and steps: states.h.  Invariants: a value is accepted
 * only by a majority of all judges, each counted once; what a judge has accepted before takes the
 * place of what was wanted.
 */
#include "transfer/internal.h"

enum ballot_state { BALLOT_NONE, BALLOT_ASKING, BALLOT_ACCEPTING, BALLOT_WAITING }; /* states.h */
/* On the wire and in judges' files. */
enum decision { DECIDE_NONE, DECIDE_COMMIT, DECIDE_ABORT };

struct ballot {
	enum ballot_state state;
	struct object *obj;
	uint64_t transfer, number, accepted, seen; /* seen: greatest number met */
	uint64_t retry_ns, backoff_ns;
	enum decision want, value;
	uint32_t n_judge, n_yes;
	uint64_t judge[WB_AREA_JUDGES_MAX];
	bool answered[WB_AREA_JUDGES_MAX];
};

/** wb__transfer_ballot_first - the coordinator's: COMMIT, number 1, by the judges of @e. */
void wb__transfer_ballot_first(struct ballot *b, struct epoch *e, uint64_t transfer);
/** wb__transfer_ballot_ask - ABORT, unless COMMIT was accepted; by the judges that an area names.
 */
void wb__transfer_ballot_ask(struct ballot *b, struct object *o, uint64_t transfer,
	const uint64_t *judge, uint32_t n_judge);
/** wb__transfer_ballot_stop - answers do not count any more. */
void wb__transfer_ballot_stop(struct ballot *b);
/** wb__transfer_ballot_tick - ask again; when to call again, 0 = never. */
uint64_t wb__transfer_ballot_tick(struct object *o, uint64_t now);
/** wb__transfer_judges - those of a plan, by hash, so that they are found again under another; how
 *  many. */
uint32_t wb__transfer_judges(const struct epoch *e, uint64_t judge[WB_AREA_JUDGES_MAX]);

#endif
