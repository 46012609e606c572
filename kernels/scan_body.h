/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_SCAN_BODY_H
#define WBK_SCAN_BODY_H
/*
 * Shared by the kernels that go over tables of matrices (scan.cu, ids.cu): where a tile lies, and
 * how its threads hand in what they found.
 *
 * A tile is WBK__SCAN_COLS columns of WBK__SCAN_ROWS rows.  A thread goes down a column, so all
 * lanes of a warp are in the same row, side by side.
 */
#include "kernels/gpu_body.h"
#include "kernels/gpu_tile.h"

/* Rows [row, row_end), columns [col, col + WBK__SCAN_COLS) of one copy of the item. */
struct wbk_tile {
	uint64_t row, row_end, col;
	uint32_t copy;
};

/** tile_in - tile @number of an item whose rows [@row_begin, @row_end) are scanned. */
DEV struct wbk_tile tile_in(uint32_t number, uint64_t row_begin, uint64_t row_end, uint64_t cols)
{
	uint64_t across = (cols - 1) / WBK__SCAN_COLS + 1;
	uint64_t down = (row_end - row_begin - 1) / WBK__SCAN_ROWS + 1;
	struct wbk_tile t;

	t.col = number % across * WBK__SCAN_COLS;
	t.row = row_begin + number / across % down * WBK__SCAN_ROWS;
	t.row_end = row_end - t.row < WBK__SCAN_ROWS ? row_end : t.row + WBK__SCAN_ROWS;
	t.copy = (uint32_t)(number / across / down);
	return t;
}

/** has_columns - is there a column for at least one lane of the warp that has a lane at @c? */
DEV int has_columns(uint64_t c, uint64_t cols)
{
	return c - threadIdx.x % 32 < cols;
}

/** range_none - a range with no elements. */
DEV struct wbk_range range_none(void)
{
	struct wbk_range r = {0, UINT64_MAX, 0};

	return r;
}

/** range_note - add one element, with index @at. */
DEV void range_note(struct wbk_range *r, uint64_t at)
{
	r->n++;
	r->first = at < r->first ? at : r->first;
	r->last = at > r->last ? at : r->last;
}

/** range_hand_in - add what the lanes of a warp have to *@to; all lanes must call it. */
DEV void range_hand_in(struct wbk_range *to, struct wbk_range r)
{
	if (!__ballot_sync(WBK_FULL, r.n != 0))
		return;
	for (unsigned d = 16; d; d /= 2) {
		uint64_t first = __shfl_down_sync(WBK_FULL, (wbk_u64)r.first, d);
		uint64_t last = __shfl_down_sync(WBK_FULL, (wbk_u64)r.last, d);

		r.n += __shfl_down_sync(WBK_FULL, (wbk_u64)r.n, d);
		r.first = first < r.first ? first : r.first;
		r.last = last > r.last ? last : r.last;
	}
	if (threadIdx.x % 32)
		return;
	add_u64(&to->n, r.n);
	atomicMin((wbk_u64 *)&to->first, (wbk_u64)r.first);
	atomicMax((wbk_u64 *)&to->last, (wbk_u64)r.last);
}

/** plane_row - address of element (@r, 0). */
DEV uint8_t *plane_row(const struct wbk_plane *p, uint64_t r)
{
	return (uint8_t *)p->data + (int64_t)r * p->row_stride * (int64_t)p->elem;
}

/** elem_at - the bits of element @i at @p. */
DEV uint32_t elem_at(const void *p, uint64_t i, unsigned elem)
{
	return (uint32_t)load_bits((const uint8_t *)p + i * elem, elem);
}

/**
 * WBK_COLUMNS - defines a kernel in which blocks take tiles in turns, and each thread a column of a
 * tile
 * @type:	type of the items, which must have a matrix p
 * @column:	(args, number of the item, item, tile, column): also called for lanes beyond the
 *		last column
 */
#define WBK_COLUMNS(name, type, column)                                                            \
	WBK_KERNEL(name, WBK__BLOCKS)(const struct wbk_scan_args a)                                \
	{                                                                                          \
		uint32_t n_tile = a.first[a.n_item];                                               \
                                                                                                   \
		for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {                        \
			uint32_t item = piece_of(a.first, a.n_item, i);                            \
			const type *k = (const type *)a.item + item;                               \
			struct wbk_tile t = tile_in(                                               \
				i - a.first[item], k->p.row_begin, k->p.row_end, k->p.cols);       \
			uint64_t c = t.col + threadIdx.x;                                          \
                                                                                                   \
			for (; c < t.col + WBK__SCAN_COLS; c += blockDim.x)                        \
				if (has_columns(c, k->p.cols))                                     \
					column(&a, item, k, &t, c);                                \
		}                                                                                  \
	}

#endif
