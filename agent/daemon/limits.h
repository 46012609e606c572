/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_LIMITS_H
#define WB_DAEMON_LIMITS_H
/*
 * What a plan needs of this process, compared with what the process may have: bulk connections,
 * open files.
 *
 * Any agent may have to get a chunk from any other that can have it, so each agent with rollout
 * workers is counted as dialling all others.  A plan that exceeds a limit is refused: else it would
 * begin, and engines would be Torn for want of a connection.  Pure.  Layer: daemon (L4).
 */
#include "daemon/options.h"
#include "transfer/roster.h"

/* What one plan needs.  For a while the plan that takes its place lives beside it. */
struct wb__limits_need {
	/* conns: bulk connections; files: their sockets, and control channels */
	uint64_t conns, files;
};

struct wb__limits_in {
	uint32_t n_rail; /* rails of this agent */
	const struct wb_roster
		*roster; /* with workers' rails, as each set of rails has its own connections */
	/* By object served here: what the plan that it has now needs. */
	const struct wb__limits_need *has;
	uint32_t object; /* object that this plan is of */
	uint64_t open_files; /* open files that the process may have */
	/* memory objects that transports keep open: a few files each, and one more for each rail */
	uint32_t n_memory;
};

/**
 * wb__limits_check - does the plan fit, beside those of other objects?
 * @out:	what it needs
 * Returns 0; -EMFILE with a sentence that names the limit; -ENOMEM.
 */
int wb__limits_check(
	const struct wb__limits_in *in, struct wb__limits_need *out, struct wb_err *err);

#endif
