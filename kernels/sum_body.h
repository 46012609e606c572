/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum over whole words with vectors, and the copy fused into it.  Included by one file an
 * instruction set, which defines
 *	FN		target attribute		VL	words of a vector
 *	vec, vmask	a vector of words; a choice of lanes
 *	v_zero v_load v_odd v_add v_mul v_shift v_store v_stream
 *	v_mask_lo(n), v_mask_hi(n)	lanes below n, lanes from n on
 *	v_load_mask v_store_mask v_mul64 v_fold
 *
 * A 64-bit lane of a vector holds two words.  v_mul multiplies the low ones; v_odd loads with the
 * high ones moved down, which costs a load but no shuffle.  Sums of a block stay in vectors, are
 * multiplied by the block key as vectors, and fold to a scalar once a call.  Long runs walk four
 * blocks at once: the keys are loaded once for the four, and memory sees four streams.
 */
#include "kernels/internal.h"

#ifdef FN /* nothing by itself */

#define INLINE FN static inline __attribute__((always_inline))
#define BLOCK 1024u /* words */

enum mode { SUM, COPY, STREAM };

struct acc {
	vec l[2];
};

struct keys {
	vec even[2], odd[2];
};

/** add_products - a += words times their keys; even and odd words are passed separately. */
INLINE void add_products(struct acc *a, const struct keys *k, vec even, vec odd)
{
	for (unsigned i = 0; i < 2; i++)
		a->l[i] = v_add(v_add(a->l[i], v_mul(even, k->even[i])), v_mul(odd, k->odd[i]));
}

/* Add one vector of data at @src; it is also stored to @dst, as @m says. */
INLINE void step(struct acc *a, const struct keys *k, const uint8_t *src, uint8_t *dst, enum mode m)
{
	vec v = v_load(src);

	if (m == COPY)
		v_store(dst, v);
	else if (m == STREAM)
		v_stream(dst, v);
	add_products(a, k, v, v_odd(src));
}

/** load_keys - load the keys of the words of one vector; the first is number @at of the table. */
INLINE struct keys load_keys(const struct wbk_sum_keys *k, int64_t at)
{
	const uint32_t *k0 = k->table[0] + at, *k1 = k->table[1] + at;

	return (struct keys){{v_load(k0), v_load(k1)}, {v_odd(k0), v_odd(k1)}};
}

/* Load the keys of the lanes in @m; the others are 0.  @at may lie outside the table for lanes that
 * are not in @m. */
INLINE struct keys load_keys_mask(const struct wbk_sum_keys *k, int64_t at, vmask m)
{
	uintptr_t t0 = (uintptr_t)k->table[0] + (uintptr_t)(at * 4);
	uintptr_t t1 = (uintptr_t)k->table[1] + (uintptr_t)(at * 4);
	vec e0 = v_load_mask((const void *)t0, m), e1 = v_load_mask((const void *)t1, m);

	return (struct keys){{e0, e1}, {v_shift(e0), v_shift(e1)}};
}

/** flush - t += a times the key of its block. */
INLINE void flush(struct acc *t, const struct acc *a, const struct wbk_sum_keys *k, uint64_t block)
{
	for (unsigned i = 0; i < 2; i++)
		t->l[i] = v_add(t->l[i], v_mul64(a->l[i], wbk__block_key(k->seed[i], block)));
}

/* What to prefetch: hardware does so only up to the end of a page, and beyond the end of a row only
 * the next row is wanted. */
struct ahead {
	/* End of the row, or a little more if that is likely to be wanted next */
	const uint8_t *end;
	int64_t skip; /* from there to the next row; 0 = there is none */
	size_t dist; /* bytes from what is worked on to what is fetched */
};

/** ahead_of - what to prefetch when @p is next: @p itself up to @h->end, behind that its place in
 *  the next row; NULL when there is no next row. */
INLINE const uint8_t *ahead_of(const struct ahead *h, const uint8_t *p)
{
	return p < h->end ? p : h->skip ? p + h->skip : NULL;
}

/* Add at most a block's words, all in one block.  STREAM needs dst aligned to a vector. */
INLINE void piece(const struct wbk_sum_keys *k, uint64_t p, const uint8_t *src, uint8_t *dst,
	size_t n, const struct ahead *h, enum mode m, struct acc *t)
{
	struct acc a = {{v_zero(), v_zero()}};
	int64_t at = (int64_t)(p % BLOCK);
	size_t i = 0;

	for (; i + VL <= n; i += VL) {
		struct keys q = load_keys(k, at + (int64_t)i);

		const uint8_t *next = ahead_of(h, src + 4 * i + h->dist);

		if (next)
			__builtin_prefetch(next);
		step(&a, &q, src + 4 * i, m == SUM ? NULL : dst + 4 * i, m);
	}
	if (i < n) {
		vmask left = v_mask_lo((unsigned)(n - i));
		struct keys q = load_keys_mask(k, at + (int64_t)i, left);
		vec v = v_load_mask(src + 4 * i, left);

		if (m != SUM)
			v_store_mask(dst + 4 * i, left, v);
		add_products(&a, &q, v, v_shift(v));
	}
	flush(t, &a, k, p / BLOCK);
}

/* Add the vector at @i of each of four blocks; @next: what to prefetch meanwhile. */
INLINE void step4(struct acc a[4], const struct keys *q, const uint8_t *src, uint8_t *dst,
	const uint8_t *const next[4], size_t i, enum mode m)
{
	src += i;
	dst += i;
	for (unsigned b = 0; b < 4; b++)
		if (next[b])
			__builtin_prefetch(next[b] + i);
	step(&a[0], q, src, dst, m);
	step(&a[1], q, src + 4 * BLOCK, dst + 4 * BLOCK, m);
	step(&a[2], q, src + 8 * BLOCK, dst + 8 * BLOCK, m);
	step(&a[3], q, src + 12 * BLOCK, dst + 12 * BLOCK, m);
}

/** flush4 - the same for four blocks from @block on; their sums are set to 0. */
INLINE void flush4(struct acc *t, struct acc a[4], const struct wbk_sum_keys *k, uint64_t block)
{
	for (unsigned b = 0; b < 4; b++) {
		flush(t, &a[b], k, block + b);
		a[b] = (struct acc){{v_zero(), v_zero()}};
	}
}

/*
 * Add 4 * BLOCK words from any p: four streams one block apart, each of which is the end of a block
 * and the start of the next one.  The vector that holds the border is multiplied twice, by the keys
 * of its low and of its high lanes, so that vectors keep their alignment and streaming stores stay
 * possible.
 */
INLINE void quad(const struct wbk_sum_keys *k, uint64_t p, const uint8_t *src, uint8_t *dst,
	const struct ahead *h, enum mode m, struct acc *t)
{
	struct acc a[4] = {{{v_zero(), v_zero()}}, {{v_zero(), v_zero()}}, {{v_zero(), v_zero()}},
		{{v_zero(), v_zero()}}};
	uint32_t x = (uint32_t)(p % BLOCK), till = BLOCK - x, i = 0;
	const uint8_t *next[4];
	struct keys q;

	for (unsigned b = 0; b < 4; b++)
		next[b] = ahead_of(h, src + (4 + b) * 4 * BLOCK);
	for (; i + VL <= till; i += VL) {
		q = load_keys(k, x + i);
		step4(a, &q, src, dst, next, 4 * i, m);
	}
	if (i < till) {
		q = load_keys_mask(k, x + i, v_mask_lo(till - i));
		step4(a, &q, src, dst, next, 4 * i, SUM);
	}
	flush4(t, a, k, p / BLOCK);
	if (!x)
		return;
	if (i < till) {
		q = load_keys_mask(k, (int64_t)i - till, v_mask_hi(till - i));
		step4(a, &q, src, dst, next, 4 * i, m);
		i += VL;
	}
	for (; i < BLOCK; i += VL) {
		q = load_keys(k, i - till);
		step4(a, &q, src, dst, next, 4 * i, m);
	}
	flush4(t, a, k, p / BLOCK + 1);
}

/** mode_at - what to do with the words: only sum them, or also copy them, bypassing the caches if
 * @stream says so and @dst is aligned for that. */
INLINE enum mode mode_at(const uint8_t *dst, bool stream)
{
	if (!dst)
		return SUM;
	return stream && (uintptr_t)dst % (4 * VL) == 0 ? STREAM : COPY;
}

/* Add the first words of a run of @n words; returns how many. */
INLINE size_t some(const struct wbk_sum_keys *k, uint64_t p, const uint8_t *src, uint8_t *dst,
	size_t n, const struct ahead *h, enum mode m, struct acc *t)
{
	if (n >= 4 * BLOCK) {
		quad(k, p, src, dst, h, m, t);
		return 4 * BLOCK;
	}
	if (n > BLOCK - p % BLOCK)
		n = BLOCK - p % BLOCK;
	piece(k, p, src, dst, n, h, m, t);
	return n;
}

/* Add one run of words.  Streaming stores need aligned vectors: a first piece makes dst aligned. */
INLINE void run(const struct wbk_sum_keys *k, uint64_t p, const uint8_t *src, uint8_t *dst,
	size_t n_word, bool stream, const struct ahead *h, struct acc *t)
{
	size_t lead = stream ? (-(uintptr_t)dst & (4 * VL - 1)) / 4 : 0;

	for (size_t i = 0, n; i < n_word; i += n) {
		const uint8_t *from = src + 4 * i;
		uint8_t *to = dst ? dst + 4 * i : NULL;

		n = !i && lead && lead < n_word ? lead : n_word - i;
		switch (mode_at(to, stream)) {
		case SUM:
			n = some(k, p + i, from, NULL, n, h, SUM, t);
			break;
		case COPY:
			n = some(k, p + i, from, to, n, h, COPY, t);
			break;
		default:
			n = some(k, p + i, from, to, n, h, STREAM, t);
		}
	}
}

/* What to prefetch in row @row, whose words are [src, src + bytes). */
INLINE struct ahead ahead_of_row(
	const struct wbk__rows *r, size_t row, const uint8_t *src, size_t bytes)
{
	struct ahead h = {.end = src + bytes, .dist = 4 * BLOCK};

	if (row + 1 < r->n_row && r->src_stride != (int64_t)r->row_bytes) {
		h.skip = r->src_stride - (int64_t)bytes;
		h.dist = bytes < 4 * BLOCK ? bytes : 4 * BLOCK;
	} else if (row + 1 < r->n_row || bytes >= 64 * BLOCK) {
		h.end += 16 * BLOCK;
	}
	return h;
}

/** words - wbk__words_fn of this instruction set. */
FN static void words(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s)
{
	struct acc t = {{v_zero(), v_zero()}};

	for (size_t row = 0; row < r->n_row; row++) {
		uint64_t p = (r->pos + row * r->pos_stride + head) / 4;
		const uint8_t *src = r->src + (int64_t)row * r->src_stride + head;
		uint8_t *dst = r->dst ? r->dst + (int64_t)row * r->dst_stride + head : NULL;
		struct ahead h = ahead_of_row(r, row, src, 4 * n_word);

		run(k, p, src, dst, n_word, r->stream, &h, &t);
	}
	s->lane[0] += v_fold(t.l[0]);
	s->lane[1] += v_fold(t.l[1]);
}

#endif
