/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_RANGES_H
#define WB_XPORT_RANGES_H
/*
 * Answers that name memory instead of carrying it: for links whose receiver moves the bytes.
 *
 * After WRITE come TABLEs of ranges in the source's regions and a TRAILER; the receiver moves the
 * bytes by itself and answers RELEASE.
 *
 * Invariants: TRAILER follows when all of the chunk was named and the observer has seen all of it;
 * a range that was taken lies in its region, up to its last byte.
 * Threads: the rail's.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"

/* The source: its regions, and where in the running answer it is. */
struct wb__giver {
	struct wb__regions *by_address; /* the rail's */
	const struct wb_xport_region *region; /* by number */
	bool is_begun; /* WRITE was queued */
};

/** wb__give_step - one step of the running answer: WRITE, a TABLE, a look at a piece, or the
 *  TRAILER.  As link's tx_payload. */
int wb__give_step(struct wb__sock *s, struct wb__giver *g, uint32_t *budget);
/** wb__give_released - RELEASE came: that write is over. */
int wb__give_released(struct wb__sock *s, const struct wb__frame *f);

/* The receiver: the ranges of a TABLE that are left. */
struct wb__taker {
	struct wb__range range[WBP_BULK_TABLE_MAX];
	uint32_t n, at;
};

/** wb__take_ranges - the ranges of a TABLE of the running chunk; @bytes_of says how large a region
 *  of the source is, 0 = there is none.  0, or the socket failed. */
int wb__take_ranges(struct wb__sock *s, struct wb__taker *t, const struct wb__frame *f,
	uint64_t (*bytes_of)(const struct wb__sock *s, uint32_t region));

#endif
