/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_RANGES_H
#define WB_XPORT_RANGES_H
/*
 * Answers that name memory instead of carrying bytes: for links whose receiver moves the bytes.
 *
 * After WRITE come TABLEs of ranges in the source's regions and a TRAILER; the receiver moves the
 * bytes by itself and answers RELEASE.
 *
 * Invariants: TRAILER is sent when all of the chunk was named and the observer has seen all of it;
 * a range that was taken lies whole in its region.
 * Threads: the rail's.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"

/* The source's side: its regions, and how far the running answer is. */
struct wb__giver {
	struct wb__regions *by_address; /* the rail's */
	const struct wb_xport_region *region; /* by number */
	bool is_begun; /* WRITE was queued */
};

/** wb__give_step - do one step of the running answer: send WRITE, a TABLE or the TRAILER, or
 * observe a piece.  As a link's tx_payload. */
int wb__give_step(struct wb__sock *s, struct wb__giver *g, uint32_t *budget);
/** wb__give_released - RELEASE came: the write that it names is over. */
int wb__give_released(struct wb__sock *s, const struct wb__frame *f);

/* The receiver's side: ranges of a TABLE; those from `at` on are left. */
struct wb__taker {
	struct wb__range range[WBP_BULK_TABLE_MAX];
	uint32_t n, at;
};

/** wb__take_ranges - take in the ranges of a TABLE of the running chunk.  @bytes_of: how large a
 * region of the source is, 0 = there is none.  0; negative: the socket failed. */
int wb__take_ranges(struct wb__sock *s, struct wb__taker *t, const struct wb__frame *f,
	uint64_t (*bytes_of)(const struct wb__sock *s, uint32_t region));

#endif
