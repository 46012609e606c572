/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum: choice of body, partial words, the scalar reference. */
#include <assert.h>
#include <string.h>

#include "kernels/internal.h"

enum wbk__isa wbk__isa_max = WBK__AVX512;

enum wbk__isa wbk__isa(void)
{
#if WBK_X86
	if (wbk__isa_max >= WBK__AVX512 && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
		return WBK__AVX512;
	if (wbk__isa_max >= WBK__AVX2 && __builtin_cpu_supports("avx2"))
		return WBK__AVX2;
#endif
	return WBK__SCALAR;
}

void wbk_sum_keys_of(struct wbk_sum_keys *k, const uint64_t seed[2])
{
	assert(k && seed);
	for (unsigned lane = 0; lane < 2; lane++) {
		k->seed[lane] = seed[lane];
		for (unsigned i = 0; i < 1024; i++)
			k->table[lane][i] = (uint32_t)(wbk__block_key(~seed[lane], i) >> 32) | 1;
	}
}

void wbk_sum_keys_init(struct wbk_sum_keys *k, uint64_t seed)
{
	uint64_t lanes[2] = {
		wbk__block_key(seed, 0x100000000u), wbk__block_key(seed, 0x100000001u)};

	wbk_sum_keys_of(k, lanes);
}

/* Add word @w at word position @p.  If only a part of the word is to be added, its other bytes are
 * 0. */
static void add_word(const struct wbk_sum_keys *k, uint64_t p, uint32_t w, struct wbk_sum *s)
{
	for (unsigned lane = 0; lane < 2; lane++)
		s->lane[lane] += (uint64_t)w * k->table[lane][p % 1024] *
				 wbk__block_key(k->seed[lane], p / 1024);
}

static void add_part(
	const struct wbk_sum_keys *k, uint64_t pos, const uint8_t *b, size_t n, struct wbk_sum *s)
{
	uint32_t w = 0;

	for (size_t i = 0; i < n; i++)
		w |= (uint32_t)b[i] << 8 * ((pos + i) % 4);
	add_word(k, pos / 4, w, s);
}

void wbk__words_scalar(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t n_word, struct wbk_sum *s)
{
	for (size_t row = 0; row < r->n_row; row++) {
		const uint8_t *src = r->src + (int64_t)row * r->src_stride + head;
		uint64_t p = (r->pos + row * r->pos_stride + head) / 4;

		if (r->dst)
			memcpy(r->dst + (int64_t)row * r->dst_stride + head, src, n_word * 4);
		for (size_t i = 0, n; i < n_word; i += n) {
			uint64_t at = (p + i) % 1024, a0 = 0, a1 = 0;

			n = n_word - i < 1024 - at ? n_word - i : 1024 - at;
			for (size_t j = 0; j < n; j++) {
				uint32_t w;

				memcpy(&w, src + (i + j) * 4, 4);
				a0 += (uint64_t)w * k->table[0][at + j];
				a1 += (uint64_t)w * k->table[1][at + j];
			}
			s->lane[0] += a0 * wbk__block_key(k->seed[0], (p + i) / 1024);
			s->lane[1] += a1 * wbk__block_key(k->seed[1], (p + i) / 1024);
		}
	}
}

static wbk__words_fn *words_body(void)
{
#if WBK_X86
	switch (wbk__isa()) {
	case WBK__AVX512:
		return wbk__words_avx512;
	case WBK__AVX2:
		return wbk__words_avx2;
	default:
		break;
	}
#endif
	return wbk__words_scalar;
}

/* Add, and copy, the bytes before the first whole word and after the last one, of every row. */
static void rows_edges(const struct wbk_sum_keys *k, const struct wbk__rows *r, size_t head,
	size_t tail, struct wbk_sum *s)
{
	for (size_t row = 0; row < r->n_row; row++) {
		const uint8_t *src = r->src + (int64_t)row * r->src_stride;
		uint64_t pos = r->pos + row * r->pos_stride;
		uint8_t *dst = r->dst ? r->dst + (int64_t)row * r->dst_stride : NULL;

		if (head) {
			add_part(k, pos, src, head, s);
			if (dst)
				memcpy(dst, src, head);
		}
		if (tail) {
			size_t at = r->row_bytes - tail;

			add_part(k, pos + at, src + at, tail, s);
			if (dst)
				memcpy(dst + at, src + at, tail);
		}
	}
}

static void rows_aligned_alike(const struct wbk_sum_keys *k, const struct wbk__rows *r,
	wbk__words_fn *body, struct wbk_sum *s)
{
	size_t head = -r->pos & 3, tail, n_word;

	if (head > r->row_bytes)
		head = r->row_bytes;
	n_word = (r->row_bytes - head) / 4;
	tail = r->row_bytes - head - 4 * n_word;
	if (n_word)
		body(k, r, head, n_word, s);
	if (head || tail)
		rows_edges(k, r, head, tail, s);
}

void wbk__rows_sum(const struct wbk_sum_keys *k, const struct wbk__rows *r, struct wbk_sum *s)
{
	wbk__words_fn *body = words_body();
	struct wbk__rows one = *r;

	if (r->n_row == 1 || r->pos_stride % 4 == 0) {
		rows_aligned_alike(k, r, body, s);
		return;
	}
	one.n_row = 1;
	for (size_t row = 0; row < r->n_row; row++) {
		rows_aligned_alike(k, &one, body, s);
		one.pos += r->pos_stride;
		one.src += r->src_stride;
		if (one.dst)
			one.dst += r->dst_stride;
	}
}

void wbk_sum_add(const struct wbk_sum_keys *k, uint64_t pos, const void *data, size_t bytes,
	struct wbk_sum *s)
{
	struct wbk__rows r = {.pos = pos, .src = data, .row_bytes = bytes, .n_row = 1};

	assert(k && s && (data || !bytes));
	if (bytes)
		wbk__rows_sum(k, &r, s);
}

void wbk_sum_copy(const struct wbk_sum_keys *k, uint64_t pos, void *dst, const void *data,
	size_t bytes, struct wbk_sum *s)
{
	struct wbk__rows r = {.pos = pos,
		.src = data,
		.dst = dst,
		.row_bytes = bytes,
		.n_row = 1,
		.stream = true};

	assert((dst && data) || !bytes);
	if (!bytes)
		return;
	if (k)
		wbk__rows_sum(k, &r, s);
	else
		wbk__rows_copy(&r);
}

void wbk_copy_end(void)
{
	wbk__stream_fence();
}
