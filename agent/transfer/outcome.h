/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_OUTCOME_H
#define WB_TRANSFER_OUTCOME_H
/*
 * How a transfer ended, from what its coordinator's book has: engine by engine, and in a word.
 * Loop thread.
 */
#include "proto/peers.h"
#include "transfer/coordinator.h"

/* No engine where there was no memory for that. */
struct outcome {
	uint32_t n;
	const char **name, **why; /* owned; what they name is not */
	enum wb_engine_state *state; /* owned */
	enum wb_result result;
	char text[WB_ERR_MSG_MAX];
};

/** wb__transfer_is_joint - is there one decision for all engines of this transfer? */
bool wb__transfer_is_joint(const struct coordinator *l);
/** wb__transfer_outcome - of a transfer whose engines have ended; fills FINAL but for the call
 * that it answers, which borrows @f. */
void wb__transfer_outcome(const struct coordinator *l, struct outcome *f, struct wb_peer_FINAL *m);
/** wb__transfer_outcome_free - what that took. */
void wb__transfer_outcome_free(struct outcome *f);

#endif
