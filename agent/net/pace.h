/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_PACE_H
#define WB_NET_PACE_H
/*
 * How often one address may have us do what costs processor time: a TLS handshake, which whoever
 * connects can ask for without a word about who it is.
 *
 * Each address may have so many at once, and so many a second after that; those that come faster
 * wait for their turn.  It is the virtual scheduling form of GCRA (ITU-T I.371, annex A): an
 * address is one number, the time from which it has used up nothing.  Addresses from within this
 * pod, which nobody else can be, have no pace.  256 are remembered; of more, the one that owes
 * least is forgotten, as if it had never come.
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
/** wb__pace_take - when does the next of @source have its turn?  True: at *@at (@now_ns: at once),
 *  and it has taken it; false: only after @latest_ns, and it has taken nothing. */
bool wb__pace_take(struct wb__pace *p, const struct wb__source *source, uint64_t now_ns,
	uint64_t latest_ns, uint64_t *at);

#endif
