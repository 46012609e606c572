/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_PACE_H
#define WB_NET_PACE_H
/*
 * Bounds how often one address may cause work that costs processor time: a TLS handshake, which
 * anybody who connects can ask for without saying who he is.
 *
 * Each address may have a burst of handshakes at once, and then a fixed number a second; those that
 * come faster wait for their turn.  It is the virtual scheduling form of GCRA (ITU-T I.371, annex
 * A): the state of an address is one number, the time from which all of its allowance is available
 * again.  Addresses of this pod itself, which nobody else can use, have no limit.  256 addresses
 * are remembered; if there are more, the one with the earliest such time is forgotten, as if it had
 * never come.
 * No sockets and no clock in here.  Threads: the loop's.  Layer: net (L1), internal.
 */
#include "net/internal.h"

#define WB__PACE_SOURCES 256

struct wb__pace {
	uint64_t step_ns, burst_ns;
	uint32_t n;
	struct wb__pace_source {
		struct wb__source source;
		uint64_t due_ns;
	} at[WB__PACE_SOURCES];
};

/** wb__pace_init - @burst at once, then @a_second; both at least 1. */
void wb__pace_init(struct wb__pace *p, uint32_t burst, uint32_t a_second);
/** wb__pace_take - when is the next turn of @source?  True: at *@at (@now_ns: at once), and the
 * turn is taken; false: only after @latest_ns, and nothing is taken. */
bool wb__pace_take(struct wb__pace *p, const struct wb__source *source, uint64_t now_ns,
	uint64_t latest_ns, uint64_t *at);

#endif
