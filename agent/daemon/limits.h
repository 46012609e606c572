/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_LIMITS_H
#define WB_DAEMON_LIMITS_H
/*
 * What a plan asks of this process, held against what it may have: bulk connections, open files.
 *
 * Any agent may have to get a chunk from any other that can have it, so each that has rollout
 * workers is counted to dial all others.  A plan that is not within the limits is refused: it would
 * begin, and engines would be Torn for want of a connection.  Pure.  Layer: daemon (L4).
 */
#include "daemon/options.h"
#include "transfer/roster.h"

/* Of one plan.  The plan that takes its place lives beside it for a while. */
struct wb__limits_need {
	uint64_t conns, files; /* files: sockets of those, and control channels */
};

struct wb__limits_in {
	uint32_t n_rail; /* that it has */
	const struct wb_roster
		*roster; /* its workers' rails too: each set has connections of its own */
	/* By object served here: what the plan it has needs. */
	const struct wb__limits_need *has;
	uint32_t object; /* whose plan this is */
	uint64_t open_files; /* that the process may have */
	uint32_t n_memory; /* memory objects that transports keep open, each and for each rail */
};

/**
 * wb__limits_check - does the plan fit, beside those of other objects?
 * @out:	what it needs
 * Returns 0; -EMFILE with a sentence that names the limit; -ENOMEM.
 */
int wb__limits_check(
	const struct wb__limits_in *in, struct wb__limits_need *out, struct wb_err *err);

#endif
