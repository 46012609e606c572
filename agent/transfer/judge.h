/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_JUDGE_H
#define WB_TRANSFER_JUDGE_H
/*
 * A judge: an agent with trainer workers, which keeps what was decided on joint transfers.  Its
 * verdicts belong to the object, oldest first, and each is in a file before anybody is answered.
 *
 * Invariants: `promised` and `accepted` of a verdict only rise, and accepted <= promised; a judge
 * whose file could not be read answers nobody.
 */
#include "transfer/ballot.h"

#define TRANSFER_VERDICTS_MAX 64

/* What this agent remembers as a judge of one transfer; kept in a file. */
struct verdict {
	uint64_t transfer, promised, accepted;
	uint64_t value; /* enum decision */
};

/** wb__transfer_judge_load - read what an earlier process kept. */
void wb__transfer_judge_load(struct object *o);
/** wb__transfer_judge_number - a coordinator here has given a transfer this number: keep it in the
 * file, so that it outlives the process.  A file that cannot be written is logged. */
void wb__transfer_judge_number(struct object *o, uint64_t transfer);

#endif
