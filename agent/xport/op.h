/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_OP_H
#define WB_XPORT_OP_H
/*
 * An op: a grant at the receiver or a write at the source, and how far it is in its memory.
 *
 * Its owner changes.  The loop fills it in (book.h) and sets it going; from then on whoever moves
 * the bytes owns it, until the loop is told how it ended.  Comments at the fields say whose they
 * are.
 *
 * Places in the range list only go forward: seen.done <= at.done at the receiver; at the source,
 * which shows bytes before they leave, at.done <= seen.done; neither passes op.bytes.
 * Nothing here allocates, locks or logs.  Layer: xport (L2), internal.
 */
#include "base/base.h"
#include "xport/xport.h"

#define WB__IOV_BATCH 64 /* ranges in one system call */
#define WB__FETCH_AHEAD 512u /* bytes of the next range that are prefetched */

struct wb__sock;

/* A place in an op's range list. */
struct wb__at {
	uint32_t i;
	size_t off; /* into iov[i] */
	uint64_t done; /* wire bytes before it */
};

enum wb__op_state {
	WB__OP_FREE, /* its slot may be used */
	WB__OP_OUT, /* the user waits for its end */
	WB__OP_CANCELLING, /* the user took it back and has not heard CANCELLED */
	WB__OP_CANCELLED, /* the user has heard CANCELLED; the other side may still answer */
};

struct wb__op {
	/* set by the loop before the op is set going, then constant */
	uint64_t cookie, id, bytes;
	const struct iovec *iov;
	uint32_t n_iov;
	wb_observe_fn observe;
	wb_copy_fn copy;
	wb_trailer_fn trailer;
	void *ctx;
	bool is_gpu; /* memory of a GPU is among the ranges: the CPU touches none of them */
	/* owned by who moves the bytes */
	struct wb__at at, seen; /* at: moved up to here; seen: shown to the observer up to here */
	uint64_t flip_bit; /* fault: position in the chunk, UINT64_MAX = none */
	bool is_dead; /* cancelled: the landing is not ours any more */
	bool is_answered; /* its bytes have begun to come */
	/* late_*: an event that a command made of it, and for which there was no room */
	struct wb__op *late_next;
	struct wb__sock *late_sock;
	uint8_t late_kind; /* enum wb__ev_kind */
	int late_code;
	/* owned by the loop: the book's */
	enum wb__op_state state;
	uint32_t gen;
};

/** wb__op_span - the memory at @at, which is not the end, and how many bytes of it are
 * contiguous. */
static inline uint8_t *wb__op_span(const struct wb__op *op, const struct wb__at *at, size_t *len)
{
	wb_dassert(at->i < op->n_iov);
	*len = op->iov[at->i].iov_len - at->off;
	return (uint8_t *)op->iov[at->i].iov_base + at->off;
}

/** wb__op_skip - move @at on by @n bytes, no further than the op's end. */
static inline void wb__op_skip(const struct wb__op *op, struct wb__at *at, size_t n)
{
	wb_dassert(n <= op->bytes - at->done);
	at->done += n;
	while (n) {
		size_t left = op->iov[at->i].iov_len - at->off;

		if (n < left) {
			at->off += n;
			return;
		}
		n -= left;
		at->i++;
		at->off = 0;
	}
}

/** wb__fetch_ahead - prefetch the start of the next range; hardware fetches ahead only within a
 * page.  @p: any address; of its @bytes at most WB__FETCH_AHEAD are prefetched. */
static inline void wb__fetch_ahead(const void *p, size_t bytes)
{
	bytes = WB_MIN(bytes, (size_t)WB__FETCH_AHEAD);
	for (size_t k = 0; k < bytes; k += 64)
		__builtin_prefetch((const char *)p + k);
}

/** wb__op_gather - fill in iov entries for up to @max bytes from @at, at most WB__IOV_BATCH of
 * them; returns how many.  @at does not change. */
int wb__op_gather(const struct wb__op *op, const struct wb__at *at, size_t max, struct iovec *out);
/** wb__op_observe - show the observer, if there is one, what lies before @upto and was not shown
 * yet, in pieces of at most @piece_bytes.  Where no range ends, bytes that do not fill
 * WB_XPORT_PIECE_ALIGN wait for more. */
void wb__op_observe(struct wb__op *op, uint64_t upto, uint32_t piece_bytes);
/** wb__op_move - move @n bytes at @from into the landing at op->at, which has room for them in one
 * range.  The receiver's copy function copies and observes them, else memcpy and its observer; the
 * flip fault happens if it is due. */
void wb__op_move(struct wb__op *op, const void *from, size_t n, uint32_t piece_bytes);
/** wb__op_landed - @n bytes have come to the landing at op->at without us: show them to the
 * observer; the flip fault happens if it is due. */
void wb__op_landed(struct wb__op *op, size_t n, uint32_t piece_bytes);
/** wb__op_take - move all of @from to the landing of @to on this thread, and show it: for a
 * receiver that can read the source's memory.  Both are at their beginning and have equal sizes. */
void wb__op_take(struct wb__op *to, const struct wb__op *from);

#endif
