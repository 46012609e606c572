/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans of extraction on a device: one launch over a table of parameters.
 *
 * A tile is WBK__SCAN_COLS columns of WBK__SCAN_ROWS rows.  A thread goes down a column; what it
 * finds is written together with what the other lanes of its warp found in the same row: a ballot
 * says who, one lane reserves the room for all.
 */
#include "kernels/codes.h"
#include "kernels/gpu_body.h"
#include "kernels/gpu_tile.h"

struct tile {
	const struct wbk_scan_args *a;
	const struct wbk_scan *s;
	uint32_t scan;
	uint64_t row, row_end, col; /* col: the first of the tile */
};

DEV struct tile tile_at(const struct wbk_scan_args *a, uint32_t number)
{
	struct tile t = {a, NULL, piece_of(a->first, a->n_scan, number), 0, 0, 0};
	uint64_t across;

	t.s = &a->scan[t.scan];
	number -= a->first[t.scan];
	across = (t.s->f.cols - 1) / WBK__SCAN_COLS + 1;
	t.col = number % across * WBK__SCAN_COLS;
	t.row = t.s->row_begin + number / across * WBK__SCAN_ROWS;
	t.row_end = t.s->row_end - t.row < WBK__SCAN_ROWS ? t.s->row_end : t.row + WBK__SCAN_ROWS;
	return t;
}

DEV uint32_t raw_at(const struct tile *t, unsigned elem, uint64_t r, uint64_t c)
{
	const uint8_t *row = (const uint8_t *)t->s->f.data +
			     (int64_t)r * t->s->f.row_stride * (int64_t)elem;

	return (uint32_t)load_bits(row + c * elem, elem);
}

/* The lanes that are @found write their hits, all of a warp in one piece. */
DEV void put(const struct tile *t, int found, uint64_t index, int64_t value)
{
	unsigned who = __ballot_sync(WBK_FULL, found), lane = threadIdx.x % 32, n = __popc(who);
	wbk_u64 at = 0;

	if (!who)
		return;
	if (lane == 0) {
		at = atomicAdd((wbk_u64 *)t->a->n_hit, (wbk_u64)n);
		add_u64(&t->a->out[t->scan].n_hit, n);
		if (at + n > t->a->cap)
			t->a->out[t->scan].is_over = 1;
	}
	at = __shfl_sync(WBK_FULL, at, 0) + __popc(who & ((1u << lane) - 1));
	if (found && at < t->a->cap) {
		struct wbk_hit *h = &t->a->hit[at];

		h->index = index;
		h->value = value;
		h->scan = t->scan;
		h->pad = 0;
	}
}

DEV void hand_in(const struct tile *t, uint64_t n)
{
	n = warp_sum(n);
	if (threadIdx.x % 32 == 0 && n)
		add_u64(&t->a->out[t->scan].n, n);
}

/* ---- second differences ---------------------------------------------------------------------- */

struct digit {
	int64_t v; /* 0 where there is none */
	int is_bad;
};

DEV struct digit digit_at(const struct tile *t, uint64_t r, uint64_t c)
{
	const struct wbk_field *f = &t->s->f;
	enum wbk_code code = (enum wbk_code)f->code;
	struct digit d = {0, 0};

	if (f->cls && f->cls[r * f->cols + c])
		return d;
	d.v = wbk__decode_bits(code, raw_at(t, (unsigned)wbk__code_bytes(code), r, c));
	if (d.v < 0) {
		d.v = 0;
		d.is_bad = 1;
	}
	return d;
}

/* The second difference along the row, 0 outside; *@bad: the element itself is no code. */
DEV int64_t along(const struct tile *t, uint64_t r, uint64_t c, int *bad)
{
	struct digit d = digit_at(t, r, c);
	int64_t h = d.v;

	*bad = d.is_bad;
	if (c >= 1)
		h -= 2 * digit_at(t, r, c - 1).v;
	if (c >= 2)
		h += digit_at(t, r, c - 2).v;
	return h;
}

/* Is there a column for one lane at least of the warp whose lane is at column @c? */
DEV int has_columns(const struct tile *t, uint64_t c)
{
	return c - threadIdx.x % 32 < t->s->f.cols;
}

/* One column of a tile; lanes beyond the last column go along. */
DEV void column(const struct tile *t, uint64_t c)
{
	int is_in = c < t->s->f.cols, bad = 0;
	int64_t h1 = is_in && t->row >= 1 ? along(t, t->row - 1, c, &bad) : 0;
	int64_t h2 = is_in && t->row >= 2 ? along(t, t->row - 2, c, &bad) : 0;
	uint64_t n_bad = 0;

	for (uint64_t r = t->row; r < t->row_end; r++) {
		int64_t h = 0, d;

		bad = 0;
		if (is_in)
			h = along(t, r, c, &bad);
		d = h - 2 * h1 + h2;
		n_bad += bad;
		put(t, is_in && d != 0, r * t->s->f.cols + c, d);
		h2 = h1;
		h1 = h;
	}
	hand_in(t, n_bad);
}

WBK_KERNEL(wbk_gpu_diff2, 4)(const struct wbk_scan_args a)
{
	uint32_t n_tile = a.first[a.n_scan];

	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		struct tile t = tile_at(&a, i);

		for (uint32_t c = threadIdx.x; c < WBK__SCAN_COLS; c += blockDim.x)
			if (has_columns(&t, t.col + c))
				column(&t, t.col + c);
	}
}

/* ---- classes --------------------------------------------------------------------------------- */

/* An element and its left neighbour. */
DEV void classify(const struct tile *t, uint64_t r, uint64_t c, uint64_t *n_same)
{
	const struct wbk_scan *s = t->s;
	int is_in = c < s->f.cols;
	uint32_t raw = 0, left = s->want;

	if (is_in) {
		raw = raw_at(t, s->elem, r, c);
		if (c)
			left = raw_at(t, s->elem, r, c - 1);
		*n_same += raw == s->want;
		if (s->mark && raw != s->want)
			s->mark[r * s->f.cols + c] = 1;
	}
	put(t, is_in && raw != left, r * s->f.cols + c, raw);
}

WBK_KERNEL(wbk_gpu_classify, 4)(const struct wbk_scan_args a)
{
	uint32_t n_tile = a.first[a.n_scan];

	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		struct tile t = tile_at(&a, i);

		for (uint32_t c = threadIdx.x; c < WBK__SCAN_COLS; c += blockDim.x) {
			uint64_t n_same = 0;

			if (!has_columns(&t, t.col + c))
				continue;
			for (uint64_t r = t.row; r < t.row_end; r++)
				classify(&t, r, t.col + c, &n_same);
			hand_in(&t, n_same);
		}
	}
}
