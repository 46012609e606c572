/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/op.h"

#include <string.h>

int wb__op_gather(const struct wb__op *op, const struct wb__at *at, size_t max, struct iovec *out)
{
	struct wb__at a = *at;
	int n = 0;

	while (max && n < WB__IOV_BATCH && a.i < op->n_iov) {
		size_t len;
		uint8_t *p = wb__op_span(op, &a, &len);

		len = WB_MIN(len, max);
		out[n].iov_base = p;
		out[n++].iov_len = len;
		max -= len;
		wb__op_skip(op, &a, len);
	}
	return n;
}

void wb__op_observe(struct wb__op *op, uint64_t upto, uint32_t piece_bytes)
{
	if (!op->observe)
		return;
	while (op->seen.done < upto) {
		size_t len, n;
		uint8_t *p = wb__op_span(op, &op->seen, &len);

		n = WB_MIN(WB_MIN(len, (size_t)piece_bytes), upto - op->seen.done);
		if (n < len) { /* the piece ends within the range: cut it where summing is fast */
			uint64_t end = op->seen.done + n;

			end -= end % WB_XPORT_PIECE_ALIGN;
			if (end <= op->seen.done)
				return;
			n = end - op->seen.done;
		}
		if (n == len && op->seen.i + 1 < op->n_iov)
			wb__fetch_ahead(
				op->iov[op->seen.i + 1].iov_base, op->iov[op->seen.i + 1].iov_len);
		op->observe(op->ctx, p, n, op->seen.done);
		wb__op_skip(op, &op->seen, n);
	}
}

/* Carry out a flip fault whose bit lies in [from, op->at.done) of the chunk, in the landing. */
static void do_flip(struct wb__op *op, uint64_t from)
{
	struct wb__at a = {0};
	size_t len;

	if (op->flip_bit == UINT64_MAX || op->flip_bit / 8 < from ||
		op->flip_bit / 8 >= op->at.done)
		return;
	wb__op_skip(op, &a, op->flip_bit / 8);
	*wb__op_span(op, &a, &len) ^= (uint8_t)(1u << op->flip_bit % 8);
	op->flip_bit = UINT64_MAX;
}

void wb__op_move(struct wb__op *op, const void *from, size_t n, uint32_t piece_bytes)
{
	uint64_t at = op->at.done, flip = op->flip_bit / 8;
	bool is_seen = !op->observe || op->seen.done == at;
	size_t room;
	uint8_t *to = wb__op_span(op, &op->at, &room);

	wb_dassert(n <= room);
	wb__op_skip(op, &op->at, n);
	/* A flip fault has to change the landing before the observer sees it, which op->copy cannot
	 * do: it moves and observes in one step. */
	if (op->copy && is_seen && (flip < at || flip >= at + n)) {
		op->copy(op->ctx, to, from, n, at);
		op->seen = op->at;
		return;
	}
	memcpy(to, from, n);
	do_flip(op, at);
	wb__op_observe(op, op->at.done, piece_bytes);
}

void wb__op_landed(struct wb__op *op, size_t n, uint32_t piece_bytes)
{
	uint64_t at = op->at.done;

	wb__op_skip(op, &op->at, n);
	do_flip(op, at);
	wb__op_observe(op, op->at.done, piece_bytes);
}

void wb__op_take(struct wb__op *to, const struct wb__op *from)
{
	struct wb__at at = {0};

	assert(to->bytes == from->bytes && !to->at.done);
	while (to->at.done < to->bytes) {
		size_t have, room;
		const uint8_t *p = wb__op_span(from, &at, &have);

		(void)wb__op_span(to, &to->at, &room);
		have = WB_MIN(have, room);
		wb__op_move(to, p, have, UINT32_MAX);
		wb__op_skip(from, &at, have);
	}
	if (to->copy)
		to->copy(to->ctx, NULL, NULL, 0, to->at.done);
}
