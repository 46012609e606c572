/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A probe's checkpoint on a device: writing what a tensor holds, and comparing what arrived in
 * parameters with what the ops of a source map say.
 */
#include "kernels/ids.h"
#include "kernels/scan_body.h"

/* An id at one row: the hash of the row is mixed once, for all columns. */
struct row_id {
	struct wbk_id id;
	uint64_t row;
	uint32_t hash;
};

DEV void row_begin(struct row_id *w, uint64_t row)
{
	w->row = row;
	if (w->id.kind == WBK_ID_HASH)
		w->hash = wbk__hash_row_begin(w->id.seed, row);
}

DEV uint32_t word_at(const struct row_id *w, uint64_t col)
{
	if (w->id.kind != WBK_ID_HASH)
		return wbk__id_word(&w->id, w->row, col);
	return wbk__hash_word((enum wbk_code)w->id.code, w->id.is_mixed, w->id.mask,
		wbk__hash_mix(w->hash + (uint32_t)col * WBK__HASH_COLUMN));
}

/* ---- filling --------------------------------------------------------------------------------- */

DEV void fill_column(const struct wbk_scan_args *a, uint32_t item, const struct wbk_fill *what,
	const struct wbk_tile *t, uint64_t c)
{
	const struct wbk_fill copy = *what, *k = &copy; /* not read again after each store */
	struct row_id w = {k->id, 0, 0};

	(void)a, (void)item;

	for (uint64_t r = t->row; c < k->p.cols && r < t->row_end; r++) {
		row_begin(&w, k->row + r);
		store_bits(plane_row(&k->p, r) + c * k->p.elem, k->p.elem, word_at(&w, c));
	}
}

WBK_COLUMNS(wbk_gpu_fill, struct wbk_fill, fill_column)

/* ---- checking -------------------------------------------------------------------------------- */

DEV void check_column(
	struct wbk_found *out, const struct wbk_check *k, const struct wbk_tile *t, uint64_t c)
{
	struct row_id w = {k->id, 0, 0};
	struct wbk_range bad = range_none();

	for (uint64_t r = t->row; c < k->cols && r < t->row_end; r++) {
		int64_t at = (int64_t)t->copy * k->repeat_stride + (int64_t)r * k->row_stride +
			     (int64_t)c * k->col_stride;
		const uint8_t *mem = (const uint8_t *)k->data + at * (int64_t)k->mem_elem;
		uint32_t want, got = (uint32_t)load_bits(mem, k->mem_elem);

		row_begin(&w, k->row + r * k->row_step);
		want = word_at(&w, k->col + c * k->col_step);
		if (k->is_lossy)
			want = (uint32_t)cast_one(cast_back(k->cast), cast_one(k->cast, want));
		if (cast_one(cast_back(k->cast), got) != want)
			range_note(&bad, k->at + (uint64_t)at);
	}
	range_hand_in(&out->a, bad);
}

WBK_KERNEL(wbk_gpu_check, WBK__BLOCKS)(const struct wbk_scan_args a)
{
	uint32_t n_tile = a.first[a.n_item];

	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		uint32_t item = piece_of(a.first, a.n_item, i);
		const struct wbk_check k = ((const struct wbk_check *)a.item)[item];
		struct wbk_tile t = tile_in(i - a.first[item], 0, k.rows, k.cols);

		for (uint64_t c = t.col + threadIdx.x; c < t.col + WBK__SCAN_COLS; c += blockDim.x)
			if (has_columns(c, k.cols))
				check_column(&a.out[item], &k, &t, c);
	}
}
