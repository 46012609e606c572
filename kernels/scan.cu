/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans of extraction on a device: one launch goes over a table of parameters.
 *
 * The lanes of a warp write together what they found in a row: a ballot tells which lanes found
 * something, and one lane reserves the room for all.
 */
#include "kernels/codes.h"
#include "kernels/scan_body.h"

/* Lanes with @found write their hits; those of a warp lie side by side.  All lanes of the warp call
 * it. */
DEV void put(const struct wbk_scan_args *a, uint32_t item, int found, uint64_t index, int64_t value)
{
	unsigned who = __ballot_sync(WBK_FULL, found), lane = threadIdx.x % 32, n = __popc(who);
	wbk_u64 at = 0;

	if (!who)
		return;
	if (lane == 0) {
		at = atomicAdd((wbk_u64 *)a->n_hit, (wbk_u64)n);
		add_u64(&a->out[item].n_hit, n);
		if (at + n > a->cap)
			a->out[item].is_over = 1;
	}
	at = __shfl_sync(WBK_FULL, at, 0) + __popc(who & ((1u << lane) - 1));
	if (found && at < a->cap) {
		struct wbk_hit *h = &a->hit[at];

		h->index = index;
		h->value = value;
		h->item = item;
		h->pad = 0;
	}
}

/* ---- second differences ---------------------------------------------------------------------- */

struct digit {
	int64_t v; /* 0 where there is none */
	int is_bad;
};

DEV struct digit digit_at(const struct wbk_diff2 *s, uint64_t r, uint64_t c)
{
	const struct wbk_field *f = &s->f;
	enum wbk_code code = (enum wbk_code)f->code;
	unsigned elem = s->is_wide ? 2 : (unsigned)wbk__code_bytes(code);
	struct digit d = {0, 0};
	uint32_t raw;

	if (f->cls && f->cls[r * f->cols + c])
		return d;
	raw = elem_at(
		(const uint8_t *)f->data + (int64_t)r * f->row_stride * (int64_t)elem, c, elem);
	d.v = wbk__decode_bits(code, s->is_wide ? wbk__f32_of_f16((uint16_t)raw) : raw);
	if (d.v < 0) {
		d.v = 0;
		d.is_bad = 1;
	}
	return d;
}

/* The second difference along the row, 0 outside; *@bad: the element itself is no code. */
DEV int64_t along(const struct wbk_diff2 *s, uint64_t r, uint64_t c, int *bad)
{
	struct digit d = digit_at(s, r, c);
	int64_t h = d.v;

	*bad = d.is_bad;
	if (c >= 1)
		h -= 2 * digit_at(s, r, c - 1).v;
	if (c >= 2)
		h += digit_at(s, r, c - 2).v;
	return h;
}

/* Scan one column of a tile.  Lanes beyond the last column take part, since put() needs all
 * lanes. */
DEV void diff2_column(const struct wbk_scan_args *a, uint32_t item, const struct wbk_diff2 *s,
	const struct wbk_tile *t, uint64_t c)
{
	int is_in = c < s->f.cols, bad = 0;
	int64_t h1 = is_in && t->row >= 1 ? along(s, t->row - 1, c, &bad) : 0;
	int64_t h2 = is_in && t->row >= 2 ? along(s, t->row - 2, c, &bad) : 0;
	struct wbk_range range = range_none();

	for (uint64_t r = t->row; r < t->row_end; r++) {
		int64_t h = 0, d;

		bad = 0;
		if (is_in)
			h = along(s, r, c, &bad);
		d = h - 2 * h1 + h2;
		if (bad)
			range_note(&range, r * s->f.cols + c);
		put(a, item, is_in && d != 0, r * s->f.cols + c, d);
		h2 = h1;
		h1 = h;
	}
	range_hand_in(&a->out[item].a, range);
}

/*
 * Where rows are aligned (is_spanned()), a lane reads SPAN columns at once.  It has their digits
 * and differences in registers, gets the last two digits of its left neighbour by a shuffle, and
 * reads some rows ahead.  Digits of such codes have 15 bits, so 32 bits hold every difference.
 */
#define SPAN 8u

struct span {
	uint32_t w[SPAN]; /* elements of 2 bytes: two a word */
	uint32_t left[2]; /* in lane 0: the two elements before, in the same form */
	uint64_t cls; /* a byte for each element */
	uint32_t left_cls; /* in lane 0: of the two elements before */
};

/* A span without elements: by its classes, none is a copy. */
DEV struct span span_none(void)
{
	struct span x = {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0}, UINT64_MAX, 0x101};

	return x;
}

DEV int is_spanned(const struct wbk_diff2 *s)
{
	unsigned elem = (unsigned)wbk__code_bytes((enum wbk_code)s->f.code);

	if (s->is_wide || s->f.code == WBK_CODE_I32 || elem < 2 || s->f.cols % SPAN)
		return 0;
	return ((uintptr_t)s->f.data | (uintptr_t)(s->f.row_stride * (int64_t)elem)) % 16 == 0 &&
	       (uintptr_t)s->f.cls % SPAN == 0;
}

DEV struct span load_span(const struct wbk_diff2 *s, const unsigned elem, uint64_t r, uint64_t c)
{
	const uint8_t *p =
		(const uint8_t *)s->f.data + ((int64_t)r * s->f.row_stride + (int64_t)c) * elem;
	const uint8_t *cls = s->f.cls ? s->f.cls + r * s->f.cols + c : NULL;
	struct span x = {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0}, 0, 0};

	WBK_UNROLL
	for (unsigned k = 0; k < SPAN * elem / 16; k++) {
		uint4 v = ((const uint4 *)(const void *)p)[k];

		x.w[4 * k] = v.x;
		x.w[4 * k + 1] = v.y;
		x.w[4 * k + 2] = v.z;
		x.w[4 * k + 3] = v.w;
	}
	if (cls)
		x.cls = *(const uint64_t *)(const void *)cls;
	if (threadIdx.x % 32 == 0 && c) {
		WBK_UNROLL
		for (unsigned k = 0; k < elem / 2; k++)
			x.left[k] = ((const uint32_t *)(const void *)p)[(int)k - (int)(elem / 2)];
		if (cls)
			x.left_cls = *(const uint16_t *)(const void *)(cls - 2);
	}
	return x;
}

/* The digit of an element, or 0.  Bit @k of *@bad is set if the element is a copy and no code. */
DEV int32_t digit_of(uint32_t raw, const unsigned elem, unsigned cls, unsigned k, uint32_t *bad)
{
	uint32_t x = elem == 4 ? raw >> 16 : raw, t = (x & 0x7fff) - 0x2000;
	int is_code = t < 0x4000 && (elem == 2 || (raw & 0xffff) == 0);

	if (cls)
		return 0;
	if (!is_code)
		*bad |= 1u << k;
	return is_code ? (int32_t)(t | (x >> 1 & 0x4000)) : 0;
}

/* An element before the span: the second one before its first (@k 0), or the one before it (1). */
DEV uint32_t left_of(const struct span *x, unsigned k, const unsigned elem)
{
	return elem == 4 ? x->left[k] : x->left[0] >> 16 * k & 0xffff;
}

struct differences {
	int32_t h[SPAN];
};

/* Second differences along the row; *@bad: a bit for each element that is no code.  All lanes of
 * the warp call it. */
DEV struct differences along_span(const struct span *x, const unsigned elem, uint32_t *bad)
{
	uint32_t ignored = 0;
	struct differences d;
	int32_t v[SPAN], last;

	WBK_UNROLL
	for (unsigned k = 0; k < SPAN; k++) {
		uint32_t raw = elem == 4 ? x->w[k] : x->w[k / 2] >> 16 * (k % 2) & 0xffff;

		v[k] = digit_of(raw, elem, (unsigned)(x->cls >> 8 * k) & 0xff, k, bad);
	}
	last = (int32_t)__shfl_sync(
		WBK_FULL, (uint32_t)(v[SPAN - 2] | v[SPAN - 1] << 16), (threadIdx.x + 31) % 32);
	if (threadIdx.x % 32 == 0)
		last = digit_of(left_of(x, 0, elem), elem, x->left_cls & 0xff, 0, &ignored) |
		       digit_of(left_of(x, 1, elem), elem, x->left_cls >> 8, 0, &ignored) << 16;
	WBK_UNROLL
	for (unsigned k = 0; k < SPAN; k++) {
		int32_t one = k >= 1 ? v[k - 1] : last >> 16;
		int32_t two = k >= 2 ? v[k - 2] : k ? last >> 16 : last & 0xffff;

		d.h[k] = v[k] - 2 * one + two;
	}
	return d;
}

/* Write what is found in a row.  There is hardly ever anything, so this may be slow. */
DEV void put_span(const struct wbk_scan_args *a, uint32_t item, uint64_t at,
	const struct differences *d, uint32_t bad)
{
	struct wbk_range range = range_none();
	const struct differences all = *d;

	WBK_ROLLED
	for (unsigned k = 0; k < SPAN; k++) {
		if (bad >> k & 1)
			range_note(&range, at + k);
		put(a, item, all.h[k] != 0, at + k, all.h[k]);
	}
	range_hand_in(&a->out[item].a, range);
}

/* Compute the differences of row @r from this row and the two before it, and write those that are
 * not 0.  True: every element that should be a code is one.  All lanes of the warp call it. */
DEV int row_by_row(const struct wbk_scan_args *a, uint32_t item, const struct wbk_diff2 *s,
	uint64_t r, uint64_t c, const unsigned elem)
{
	struct differences h = {{0, 0, 0, 0, 0, 0, 0, 0}};
	uint32_t bad = 0, any = 0;
	int is_in = c < s->f.cols;

	WBK_ROLLED
	for (unsigned back = 0; back < 3 && back <= r; back++) {
		struct span x = is_in ? load_span(s, elem, r - back, c) : span_none();
		uint32_t its = 0;
		struct differences d = along_span(&x, elem, &its);

		bad |= back ? 0 : its;
		WBK_UNROLL
		for (unsigned k = 0; k < SPAN; k++)
			h.h[k] += back == 1 ? -2 * d.h[k] : d.h[k];
	}
	WBK_UNROLL
	for (unsigned k = 0; k < SPAN; k++) {
		h.h[k] = is_in ? h.h[k] : 0; /* beyond the last column: only its left has digits */
		any |= (uint32_t)h.h[k];
	}
	if (__ballot_sync(WBK_FULL, (any | bad) != 0))
		put_span(a, item, r * s->f.cols + c, &h, bad);
	return __ballot_sync(WBK_FULL, bad != 0) == 0;
}

/*
 * Most rows need no arithmetic.  In a pass of column digits all rows are the same, and in a pass of
 * row digits all elements of a row are the same.  So the differences of row r are 0 in two cases:
 *	(A) rows r, r - 1 and r - 2 are the same, or
 *	(B) each of the three rows holds one digit in all these columns and in the one before
 *	them, and the second difference of the three digits is 0.  Along such a row, differences
 *	are 0 except in columns 0 and 1, where they are the digit and its negative.  In other
 *	columns the result is 0 whatever the three digits are; but a neighbour for which (A)
 *	holds relies on nothing changing on its left.
 * One of the cases must hold in each lane of the warp, since a lane sees its neighbour's columns.
 * (A) does not say whether elements are codes, so this has to be known of the row before the first.
 * Rows are read and tested in groups, so that many loads are under way.  Only where the test fails
 * are the differences computed, for all rows of the group.
 */
#define GROUP_BYTES 64u /* that a lane reads at once: rows of a group times bytes of a span */
#define GROUP(elem) (GROUP_BYTES / SPAN / (elem))

/* What is known of the last rows before a group. */
struct past {
	struct span x; /* the last one */
	int is_same; /* is it the same as the one before? */
	int is_one[2]; /* does the last row, and the one before, hold one digit? */
	int32_t digit[2];
};

DEV int is_same_span(const struct span *a, const struct span *b, const unsigned elem)
{
	uint32_t odd = (a->left[0] ^ b->left[0]) | (a->left_cls ^ b->left_cls);

	if (elem == 4)
		odd |= a->left[1] ^ b->left[1];
	WBK_UNROLL
	for (unsigned k = 0; k < SPAN * elem / 4; k++)
		odd |= a->w[k] ^ b->w[k];
	return odd == 0 && a->cls == b->cls;
}

/* Do all columns of the span hold one digit, and the column before them (if there is one) the
 * same? */
DEV int one_digit(const struct span *x, const unsigned elem, uint64_t c, int32_t *digit)
{
	uint32_t first = elem == 4 ? x->w[0] : (x->w[0] & 0xffff) * 0x10001u, odd = 0, bad = 0;
	uint32_t last, left;

	WBK_UNROLL
	for (unsigned k = 0; k < SPAN * elem / 4; k++)
		odd |= x->w[k] ^ first;
	/* The last element of the left neighbour is enough: its columns hold one digit too, or are
	 * the same in all rows (A). */
	last = elem == 4 ? x->w[7] : x->w[3];
	if (x->cls >> 48)
		last = 0;
	left = (uint32_t)__shfl_sync(WBK_FULL, last, (threadIdx.x + 31) % 32);
	if (threadIdx.x % 32 == 0)
		left = elem == 4 && x->left[0] != x->left[1] ? 0 : x->left[elem / 4];
	*digit = digit_of(elem == 4 ? first : first & 0xffff, elem, 0, 0, &bad);
	return !odd && !bad && (c == 0 || left == first) && x->cls == 0 && !x->left_cls;
}

/* Test one more row.  True: its differences are 0, provided that the rows before it hold codes.
 * All lanes call it. */
DEV int look(struct past *p, const struct span *x, const unsigned elem, uint64_t c, int is_in)
{
	int32_t digit;
	int is_same = is_same_span(x, &p->x, elem);
	int is_one = one_digit(x, elem, c, &digit) || !is_in;
	int is_zero =
		(is_same && p->is_same) || (is_one && p->is_one[0] && p->is_one[1] &&
						   digit - 2 * p->digit[0] + p->digit[1] == 0);

	p->x = *x;
	p->is_same = is_same;
	p->is_one[1] = p->is_one[0];
	p->is_one[0] = is_one;
	p->digit[1] = p->digit[0];
	p->digit[0] = digit;
	return is_zero;
}

/* Does (A) hold for all rows of a group, in all lanes?  Then *@p is brought to the end of the
 * group.  All lanes of the warp call it. */
DEV int are_same(struct past *p, const struct span *x, const unsigned elem)
{
	int is_same = p->is_same && is_same_span(&x[0], &p->x, elem);

	WBK_UNROLL
	for (unsigned k = 1; k < GROUP(elem); k++)
		is_same &= is_same_span(&x[k], &x[k - 1], elem);
	if (__ballot_sync(WBK_FULL, !is_same))
		return 0;
	p->is_one[1] = p->is_one[0]; /* the rows are the same, and so are their digits */
	p->digit[1] = p->digit[0];
	return 1;
}

/* Set *@p for the rows before the first row of a tile.  True: the last of them holds codes. */
DEV int begin_spans(
	struct past *p, const struct wbk_diff2 *s, uint64_t row, uint64_t c, const unsigned elem)
{
	struct past none = {span_none(), 0, {1, 1}, {0, 0}};
	uint32_t bad = 0;

	*p = none;
	WBK_ROLLED
	for (unsigned back = row < 2 ? (unsigned)row : 2; back; back--) {
		struct span x = c < s->f.cols ? load_span(s, elem, row - back, c) : span_none();

		(void)look(p, &x, elem, c, c < s->f.cols);
	}
	if (row)
		(void)along_span(&p->x, elem, &bad);
	return __ballot_sync(WBK_FULL, bad != 0) == 0;
}

/* Scan a tile by one warp.  Lanes beyond the last column take part, since ballots and shuffles need
 * all lanes. */
DEV void diff2_spans(const struct wbk_scan_args *a, uint32_t item, const struct wbk_diff2 *s,
	const struct wbk_tile *t, const unsigned elem)
{
	uint64_t c = t->col + threadIdx.x % 32 * SPAN;
	int is_in = c < s->f.cols, is_sound;
	struct past p;

	is_sound = begin_spans(&p, s, t->row, c, elem);
	WBK_ROLLED
	for (uint64_t r = t->row; r < t->row_end; r += GROUP(elem)) {
		struct span x[GROUP(2)]; /* GROUP(elem) of them are used */
		int is_zero = is_sound;

		WBK_UNROLL
		for (unsigned k = 0; k < GROUP(elem);
			k++) { /* below the last row, take the last row again */
			uint64_t at = r + k < t->row_end ? r + k : t->row_end - 1;

			x[k] = is_in ? load_span(s, elem, at, c) : span_none();
		}
		if (is_sound && are_same(&p, x, elem))
			continue;
		WBK_UNROLL
		for (unsigned k = 0; k < GROUP(elem); k++)
			is_zero &= look(&p, &x[k], elem, c, is_in) | (r + k >= t->row_end);
		if (!__ballot_sync(WBK_FULL, !is_zero))
			continue;
		WBK_ROLLED
		for (unsigned k = 0; k < GROUP(elem) && r + k < t->row_end; k++)
			is_sound = row_by_row(a, item, s, r + k, c, elem);
	}
}

/* Each warp takes a tile of its own. */
WBK_KERNEL(wbk_gpu_diff2, WBK__BLOCKS_DIFF2)(const struct wbk_scan_args a)
{
	uint32_t n_tile = a.first[a.n_item], warps = blockDim.x / 32, lane = threadIdx.x % 32;

	for (uint32_t i = blockIdx.x * warps + threadIdx.x / 32; i < n_tile;
		i += gridDim.x * warps) {
		uint32_t item = piece_of(a.first, a.n_item, i);
		const struct wbk_diff2 s = ((const struct wbk_diff2 *)a.item)[item];
		struct wbk_tile t = tile_in(i - a.first[item], s.row_begin, s.row_end, s.f.cols);

		if (is_spanned(&s) && wbk__code_bytes((enum wbk_code)s.f.code) == 2) {
			diff2_spans(&a, item, &s, &t, 2);
			continue;
		}
		if (is_spanned(&s)) {
			diff2_spans(&a, item, &s, &t, 4);
			continue;
		}
		for (uint64_t c = t.col + lane; c < t.col + WBK__SCAN_COLS; c += 32)
			if (has_columns(c, s.f.cols))
				diff2_column(&a, item, &s, &t, c);
	}
}

/* ---- what differs ---------------------------------------------------------------------------- */

DEV void equal_column(const struct wbk_scan_args *a, uint32_t item, const struct wbk_equal *q,
	const struct wbk_tile *t, uint64_t c)
{
	const struct wbk_plane *p = &q->p;
	struct wbk_range other = range_none(), unlike = range_none();

	for (uint64_t r = t->row; c < p->cols && r < t->row_end; r++) {
		uint64_t at = r * p->cols + c;
		uint32_t raw = elem_at(plane_row(p, r), c, p->elem);

		if (raw != q->want)
			range_note(&other, at);
		if (q->like && raw != elem_at(q->like, at, p->elem))
			range_note(&unlike, at);
	}
	range_hand_in(&a->out[item].a, other);
	range_hand_in(&a->out[item].b, unlike);
}

WBK_COLUMNS(wbk_gpu_equal, struct wbk_equal, equal_column)

/* ---- classes --------------------------------------------------------------------------------- */

struct kind {
	enum wbk_class cls;
	int64_t value; /* of a hit */
	int is_once; /* the first pass wrote it, the second did not */
};

DEV struct kind kind_at(const struct wbk_classify *k, uint64_t r, uint64_t c)
{
	uint64_t at = r * k->p.cols + c;
	uint32_t now = elem_at(plane_row(&k->p, r), c, k->p.elem);
	uint32_t was = k->was ? elem_at(k->was, at, k->p.elem) : k->first;
	struct kind is = {WBK_CLASS_ARITHMETIC, 0, now == k->sentinel && was == k->first};

	if (was == k->first && now == k->second)
		is.cls = WBK_CLASS_COPY;
	else if (now == k->sentinel && (!k->before || elem_at(k->before, at, k->p.elem) == was))
		is.cls = WBK_CLASS_UNWRITTEN;
	else if (was == now)
		is.cls = WBK_CLASS_CONSTANT;
	is.value = k->is_merged ? is.cls != WBK_CLASS_COPY : (int64_t)is.cls;
	if (is.cls == WBK_CLASS_CONSTANT && !k->is_merged)
		is.value |= (int64_t)now << 8;
	return is;
}

DEV void classify_column(const struct wbk_scan_args *a, uint32_t item, const struct wbk_classify *k,
	const struct wbk_tile *t, uint64_t c)
{
	int is_in = c < k->p.cols;
	struct wbk_range odd = range_none(), once = range_none();

	for (uint64_t r = t->row; r < t->row_end; r++) {
		uint64_t at = r * k->p.cols + c;
		struct kind is = {WBK_CLASS_COPY, 0, 0};
		int64_t left = WBK_CLASS_COPY;

		if (is_in) {
			is = kind_at(k, r, c);
			k->cls[at] = (uint8_t)is.cls;
			if (c)
				left = kind_at(k, r, c - 1).value;
		}
		if (is.is_once && (is.cls == WBK_CLASS_ARITHMETIC || !k->before))
			range_note(&once, at);
		else if (is.cls == WBK_CLASS_ARITHMETIC)
			range_note(&odd, at);
		put(a, item, is.value != left, at, is.value);
	}
	range_hand_in(&a->out[item].a, odd);
	range_hand_in(&a->out[item].b, once);
}

WBK_COLUMNS(wbk_gpu_classify, struct wbk_classify, classify_column)

/* ---- putting back ---------------------------------------------------------------------------- */

DEV void put_column(const struct wbk_scan_args *a, uint32_t item, const struct wbk_put *what,
	const struct wbk_tile *t, uint64_t c)
{
	const struct wbk_put copy = *what, *k = &copy; /* not read again after each store */

	(void)a, (void)item;
	for (uint64_t r = t->row; c < k->p.cols && r < t->row_end; r++) {
		uint64_t at = r * k->p.cols + c;

		if (k->cls && k->cls[at] != k->only)
			continue;
		store_bits(plane_row(&k->p, r) + c * k->p.elem, k->p.elem,
			k->from ? elem_at(k->from, at, k->p.elem) : k->value);
	}
}

WBK_COLUMNS(wbk_gpu_put, struct wbk_put, put_column)
