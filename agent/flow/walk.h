/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_WALK_H
#define WB_FLOW_WALK_H
/*
 * Walks over the boxes of one chunk: the checksum of wire bytes as they pass by, and the list of
 * memory ranges that hold the chunk.
 *
 * Boxes are in wire order and cover the wire buffer without gap or overlap; a walk never goes past
 * the last box (asserted).  No allocation.  One thread at a time.  Layer: flow (L3).
 */
#include "kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct wb_walk {
	const struct wbk_box *box; /* borrowed */
	uint32_t n_box, at;
	uint64_t in_box; /* wire bytes of box `at` that have passed */
	const struct wbk_sum_keys *keys; /* borrowed */
	struct wbk_sum sum;
};

/** wb_walk_start - begin at the first byte; @keys NULL = no sum, feeding is a no-op. */
void wb_walk_start(struct wb_walk *w, const struct wbk_box *box, uint32_t n_box,
	const struct wbk_sum_keys *keys);
/** wb_walk_feed - add the next @bytes wire bytes to the sum. */
void wb_walk_feed(struct wb_walk *w, const void *data, size_t bytes);
/** wb_walk_copy - copy the next @bytes wire bytes with stores that bypass the caches, and add them
 * to the sum, if there is one. */
void wb_walk_copy(struct wb_walk *w, void *to, const void *from, size_t bytes);
/** wb_walk_copy_end - after this, what was copied may be handed to other threads. */
void wb_walk_copy_end(void);

/**
 * wb_walk_runs - the memory ranges of a chunk in wire order
 * @bases:	start of each memory object that box.base indexes
 * @run_bytes_min: refuse when there are several ranges and their average is shorter, in bytes
 * Neighbouring ranges are merged.  Returns the number of ranges, or -EOPNOTSUPP when the boxes
 * convert, transpose, skip or repeat, or when the ranges are short or more than @cap.
 */
int wb_walk_runs(const struct wbk_box *box, uint32_t n_box, void *const *bases,
	size_t run_bytes_min, struct iovec *iov, size_t cap);

#endif
