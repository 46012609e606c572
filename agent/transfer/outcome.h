/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_OUTCOME_H
#define WB_TRANSFER_OUTCOME_H
/*
 * How a transfer ended, by its coordinator's book: for each engine, and in one word.
 * Loop thread.
 */
#include "proto/peers.h"
#include "transfer/coordinator.h"

/* n is 0 when there was no memory for the engines. */
struct outcome {
	uint32_t n;
	const char **name, **why; /* owned arrays; the text is borrowed */
	enum wb_engine_state *state; /* owned */
	enum wb_result result;
	char text[WB_ERR_MSG_MAX];
};

/** wb__transfer_is_joint - is there one decision for all engines of this transfer? */
bool wb__transfer_is_joint(const struct coordinator *l);
/** wb__transfer_outcome - sum up a transfer whose engines have ended.  @m becomes the FINAL to
 * send, but for the call that it answers; it borrows @f. */
void wb__transfer_outcome(const struct coordinator *l, struct outcome *f, struct wb_peer_FINAL *m);
/** wb__transfer_outcome_free - free what wb__transfer_outcome() allocated. */
void wb__transfer_outcome_free(struct outcome *f);

#endif
