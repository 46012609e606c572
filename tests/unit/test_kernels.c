/* SPDX-License-Identifier: Apache-2.0 */
/* Checksum, pack and assemble against byte-by-byte oracles, for every instruction set. */
#include "base/base.h"
#include "base/hash.h"
#include "kernels/internal.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct wb_rng rng;
static struct wbk_sum_keys keys;

static void setup(void)
{
	const char *s = getenv("WB_SEED");

	rng.state = s ? strtoull(s, NULL, 0) : 20240611;
	wbk_sum_keys_init(&keys, 77);
}

static uint64_t below(uint64_t n)
{
	return wb_rng_below(&rng, n);
}

static void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)wb_rng_u64(&rng);
}

/* The definition, a byte at a time. */
static void oracle_sum(uint64_t pos, const uint8_t *p, size_t n, struct wbk_sum *s)
{
	for (size_t i = 0; i < n; i++)
		for (int lane = 0; lane < 2; lane++) {
			uint64_t q = pos + i, w = q / 4;

			s->lane[lane] += ((uint64_t)p[i] << 8 * (q % 4)) *
					 keys.table[lane][w % 1024] *
					 wbk__block_key(keys.seed[lane], w / 1024);
		}
}

static bool same(struct wbk_sum a, struct wbk_sum b)
{
	return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1];
}

START_TEST(sum_is_its_definition_at_any_place)
{
	uint8_t *p = malloc(100000);
	size_t n_max[] = {40, 700, 9000, 70000};

	wbk__isa_max = _i;
	fill(p, 100000);
	for (int i = 0; i < 160; i++) {
		size_t n = below(n_max[i % 4]), at = below(64);
		uint64_t pos = below(1 << 14) + (i % 3 ? 0 : below(1ull << 45));
		struct wbk_sum a = {{1, 2}}, b = {{1, 2}};

		wbk_sum_add(&keys, pos, p + at, n, &a);
		oracle_sum(pos, p + at, n, &b);
		ck_assert_msg(
			same(a, b), "isa %d pos %llu bytes %zu", _i, (unsigned long long)pos, n);
	}
	free(p);
}
END_TEST

START_TEST(sum_copy_copies_sums_and_touches_nothing_else)
{
	uint8_t *p = malloc(100000), *q = malloc(100000), *was = malloc(100000);
	size_t n_max[] = {40, 700, 9000, 70000};

	wbk__isa_max = _i;
	fill(p, 100000);
	for (int i = 0; i < 160; i++) {
		size_t n = below(n_max[i % 4]), at = below(64), to = below(200);
		uint64_t pos = below(1 << 14);
		struct wbk_sum a = {{1, 2}}, b = {{1, 2}};

		fill(q, 100000);
		memcpy(was, q, 100000);
		memcpy(was + to, p + at, n);
		wbk_sum_copy(i % 5 ? &keys : NULL, pos, q + to, p + at, n, &a);
		ck_assert_msg(!memcmp(q, was, 100000), "isa %d bytes %zu to %zu", _i, n, to);
		if (i % 5)
			oracle_sum(pos, p + at, n, &b);
		ck_assert(same(a, b));
	}
	free(p);
	free(q);
	free(was);
}
END_TEST

START_TEST(sum_of_any_split_is_the_sum)
{
	uint8_t *p = malloc(60000);

	wbk__isa_max = _i;
	fill(p, 60000);
	for (int i = 0; i < 50; i++) {
		size_t n = below(60000), at = 0;
		uint64_t pos = below(10000);
		struct wbk_sum whole = {{0}}, parts = {{0}};

		wbk_sum_add(&keys, pos, p, n, &whole);
		while (at < n) {
			size_t m = 1 + below(i % 2 ? 50 : 9000);

			m = m > n - at ? n - at : m;
			wbk_sum_add(&keys, pos + at, p + at, m, &parts);
			at += m;
		}
		ck_assert(same(whole, parts));
	}
	free(p);
}
END_TEST

START_TEST(sum_is_linear)
{
	uint32_t a[500], b[500];
	struct wbk_sum sa = {{0}}, sb = {{0}}, sd = {{0}};

	wbk__isa_max = _i;
	/* Halved words add without carries between words. */
	for (int i = 0; i < 500; i++) {
		uint32_t x = (uint32_t)wb_rng_u64(&rng) >> 1, y = (uint32_t)wb_rng_u64(&rng) >> 1;

		a[i] = x;
		b[i] = y;
	}
	wbk_sum_add(&keys, 4000, a, sizeof(a), &sa);
	wbk_sum_add(&keys, 4000, b, sizeof(b), &sb);
	for (int i = 0; i < 500; i++)
		a[i] += b[i];
	wbk_sum_add(&keys, 4000, a, sizeof(a), &sd);
	ck_assert_uint_eq(sd.lane[0], sa.lane[0] + sb.lane[0]);
	ck_assert_uint_eq(sd.lane[1], sa.lane[1] + sb.lane[1]);
}
END_TEST

START_TEST(sum_sees_flips_and_swaps_in_each_lane)
{
	uint8_t p[20000];
	struct wbk_sum good = {{0}};

	fill(p, sizeof(p));
	wbk_sum_add(&keys, 123, p, sizeof(p), &good);
	for (int i = 0; i < 3000; i++) {
		size_t x = below(sizeof(p) - 4), y = below(sizeof(p) - 4);
		struct wbk_sum s = {{0}};
		uint8_t keep[4];

		if (i % 2) {
			p[x] ^= (uint8_t)(1 << i / 2 % 8);
		} else {
			memcpy(keep, p + x, 4);
			memmove(p + x, p + y, 4);
			memcpy(p + y, keep, 4);
		}
		wbk_sum_add(&keys, 123, p, sizeof(p), &s);
		ck_assert(i % 2 == 0 || (s.lane[0] != good.lane[0] && s.lane[1] != good.lane[1]));
		if (i % 2 == 0 && (x > y + 4 || y > x + 4))
			ck_assert(s.lane[0] != good.lane[0] && s.lane[1] != good.lane[1]);
		good = s;
	}
}
END_TEST

/* Peers of different builds must agree. */
START_TEST(sum_of_seed_0_never_changes)
{
	static uint8_t p[10000];
	struct wbk_sum s = {{0}};
	struct wbk_sum_keys k;

	for (size_t i = 0; i < sizeof(p); i++)
		p[i] = (uint8_t)(i * 7 + i / 256);
	wbk_sum_keys_init(&k, 0);
	wbk_sum_add(&k, 1000003, p, sizeof(p), &s);
	ck_assert_uint_eq(s.lane[0], 13727020828075316576u);
	ck_assert_uint_eq(s.lane[1], 9469660952957520314u);
}
END_TEST

enum { ROWS, TRANSPOSED, STRIDED, DENSE, KINDS };

/* A random box in a memory of *bytes; each element has its own place. */
static struct wbk_box random_box(int kind, size_t *bytes)
{
	static const uint8_t we[WBK_CAST_COUNT] = {0, 2, 4, 2, 4, 2, 2};
	static const uint8_t me[WBK_CAST_COUNT] = {0, 4, 2, 4, 2, 2, 2};
	struct wbk_box b = {.n_row = 1 + below(kind == DENSE ? 200 : 150), .n_col = 1 + below(150)};
	int64_t outer;

	if (below(6) == 0)
		b.n_row = 1 + below(3);
	if (below(6) == 0)
		b.n_col = 1 + below(3);
	if (below(10) == 0)
		b.n_col = 4000 + below(3000), b.n_row = 1 + below(20);
	b.cast = below(2) ? WBK_COPY : below(WBK_CAST_COUNT);
	b.wire_elem = b.cast ? we[b.cast] : 1 << below(4);
	b.mem_elem = b.cast ? me[b.cast] : b.wire_elem;
	b.repeat = below(4) ? 1 : 1 + below(3);
	if (kind == TRANSPOSED) {
		b.row_stride = b.mem_elem;
		outer = b.col_stride = (int64_t)(b.n_row + below(9)) * b.mem_elem;
		if (below(2))
			outer = b.col_stride = (b.col_stride + 63) / 64 * 64;
		outer *= b.n_col;
	} else {
		b.col_stride = b.mem_elem * (kind == STRIDED ? 1 + below(4) : 1);
		b.row_stride = b.n_col * b.col_stride + (kind == DENSE ? 0 : below(20));
		outer = b.row_stride * b.n_row;
	}
	b.repeat_stride = outer + below(50);
	b.mem_off = below(70);
	*bytes = b.mem_off + b.repeat * b.repeat_stride;
	if (kind != DENSE && below(5) == 0) { /* backwards */
		b.mem_off += (b.n_row - 1) * b.row_stride;
		b.row_stride = -b.row_stride;
	}
	b.wire_off = below(2) ? 0 : below(100);
	b.pos = below(100000);
	b.pos_col_stride = b.wire_elem * (below(8) ? 1 : 3);
	b.pos_row_stride = b.n_col * b.pos_col_stride + (below(2) ? 0 : below(5000));
	return b;
}

static void oracle_pack(
	const struct wbk_box *b, const uint8_t *mem, uint8_t *wire, struct wbk_sum *s)
{
	for (uint64_t r = 0; r < b->n_row; r++)
		for (uint64_t c = 0; c < b->n_col; c++) {
			uint8_t *w = wire + b->wire_off + (r * b->n_col + c) * b->wire_elem;
			const uint8_t *m = mem + b->mem_off + (int64_t)r * b->row_stride +
					   (int64_t)c * b->col_stride;

			if (b->cast)
				wbk_cast_back(b->cast, m, w, 1);
			else
				memcpy(w, m, b->wire_elem);
			oracle_sum(b->pos + r * b->pos_row_stride + c * b->pos_col_stride, w,
				b->wire_elem, s);
		}
}

static void oracle_assemble(
	const struct wbk_box *b, uint8_t *mem, const uint8_t *wire, struct wbk_sum *s)
{
	for (uint64_t i = 0; i < b->repeat; i++)
		for (uint64_t r = 0; r < b->n_row; r++)
			for (uint64_t c = 0; c < b->n_col; c++) {
				const uint8_t *w =
					wire + b->wire_off + (r * b->n_col + c) * b->wire_elem;
				uint8_t *m = mem + b->mem_off + (int64_t)r * b->row_stride +
					     (int64_t)c * b->col_stride +
					     (int64_t)i * b->repeat_stride;

				if (b->cast)
					wbk_cast_fwd(b->cast, w, m, 1);
				else
					memcpy(m, w, b->wire_elem);
				if (i == 0)
					oracle_sum(b->pos + r * b->pos_row_stride +
							   c * b->pos_col_stride,
						w, b->wire_elem, s);
			}
}

START_TEST(boxes_move_as_a_byte_oracle_says)
{
	wbk__isa_max = _i / KINDS;
	for (int i = 0; i < 60; i++) {
		size_t bytes, wire_bytes;
		struct wbk_box b = random_box(_i % KINDS, &bytes);
		struct wbk_sum s[3] = {{{0}}};
		uint8_t *mem, *mem2, *wire, *wire2;
		void *base;

		wire_bytes = b.wire_off + (size_t)b.n_row * b.n_col * b.wire_elem + 64;
		base = mem = aligned_alloc(64, (bytes + 127) / 64 * 64);
		mem2 = malloc(bytes + 64);
		wire = malloc(wire_bytes);
		wire2 = malloc(wire_bytes);
		fill(mem, bytes + 64);
		memcpy(mem2, mem, bytes + 64);
		fill(wire, wire_bytes);
		memcpy(wire2, wire, wire_bytes);
		(below(2) ? wbk_pack : wbk_pack_cold)(
			&base, &b, 1, wire, &keys, below(4) ? &s[0] : NULL);
		oracle_pack(&b, mem, wire2, &s[1]);
		ck_assert_mem_eq(wire, wire2, wire_bytes);
		ck_assert(same(s[0], s[1]) || !(s[0].lane[0] | s[0].lane[1]));
		wbk_sum_mem(&base, &b, 1, &keys, &s[2]);
		ck_assert(same(s[2], s[1]));
		ck_assert(wbk_box_fits(&b, bytes, wire_bytes - 64));
		ck_assert(!wbk_box_fits(&b, bytes, wire_bytes - 65));
		for (size_t k = b.wire_off; k < wire_bytes - 64; k++)
			wire[k] ^= 0x11;
		memset(s, 0, sizeof(s));
		wbk_assemble(&base, &b, 1, wire, &keys, &s[0]);
		oracle_assemble(&b, mem2, wire, &s[1]);
		ck_assert_mem_eq(mem, mem2, bytes + 64);
		ck_assert(same(s[0], s[1]));
		free(mem);
		free(mem2);
		free(wire);
		free(wire2);
	}
}
END_TEST

/* Large enough for streaming stores, at every alignment of the destination. */
START_TEST(large_boxes_move_as_a_byte_oracle_says)
{
	bool transposed = _i % 2;
	uint32_t n_row = transposed ? 544 : 3, n_col = transposed ? 700 : 150001;
	size_t wire_bytes = (size_t)n_row * n_col * 2, mem_bytes = wire_bytes + 512 * 1024;
	uint8_t *mem = aligned_alloc(64, mem_bytes / 64 * 64 + 64), *mem2 = malloc(mem_bytes);
	uint8_t *wire = malloc(wire_bytes);
	void *base = mem;

	wbk__isa_max = _i / 2;
	fill(wire, wire_bytes);
	for (int off = 0; off < 6; off++) {
		static const int offs[] = {0, 2, 1, 64, 36, 62};
		struct wbk_box b = {.n_row = n_row,
			.n_col = n_col,
			.repeat = 1,
			.wire_elem = 2,
			.mem_elem = 2,
			.mem_off = offs[off],
			.pos = 4 * off * off + 2 * (off & 1),
			.pos_col_stride = 2,
			.pos_row_stride = 2 * n_col + 512 + off,
			.row_stride = transposed ? 2 : 2 * n_col + 130,
			.col_stride = transposed ? 2 * n_row + 64 : 2};
		struct wbk_sum s[2] = {{{0}}};

		memset(mem, off, mem_bytes);
		memset(mem2, off, mem_bytes);
		wbk_assemble(&base, &b, 1, wire, &keys, &s[0]);
		oracle_assemble(&b, mem2, wire, &s[1]);
		ck_assert_int_eq(memcmp(mem, mem2, mem_bytes), 0);
		ck_assert(same(s[0], s[1]));
	}
	free(mem);
	free(mem2);
	free(wire);
}
END_TEST

/* The bounds check against the set of bytes the oracle would touch. */
START_TEST(box_that_fits_touches_nothing_outside)
{
	int n_fit = 0;

	for (int i = 0; i < 20000; i++) {
		struct wbk_box b = {.n_row = below(4),
			.n_col = below(4),
			.repeat = below(4),
			.wire_elem = 1 << below(3),
			.mem_off = below(60),
			.wire_off = below(60),
			.row_stride = (int64_t)below(60) - 30,
			.col_stride = (int64_t)below(60) - 30,
			.repeat_stride = (int64_t)below(60) - 30};
		int64_t lo = 0, hi = 100, wire = b.wire_off;
		bool fits;

		b.mem_elem = b.wire_elem;
		for (int64_t r = 0; r < b.n_row; r++)
			for (int64_t c = 0; c < b.n_col; c++)
				for (int64_t k = 0; k < (b.repeat ? b.repeat : 1); k++) {
					int64_t at = (int64_t)b.mem_off + r * b.row_stride +
						     c * b.col_stride + k * b.repeat_stride;

					lo = at < lo ? at : lo;
					hi = at + b.mem_elem > hi ? at + b.mem_elem : hi;
					wire = b.wire_off + (r * b.n_col + c + 1) * b.wire_elem;
				}
		fits = !b.n_row || !b.n_col || (lo == 0 && hi == 100 && wire <= 80);
		ck_assert(wbk_box_fits(&b, 100, 80) == fits);
		n_fit += fits;
	}
	ck_assert_int_gt(n_fit, 1000);
	for (int i = 0; i < 20000; i++) { /* any numbers: no overflow, and mostly a no */
		struct wbk_box b;

		fill((uint8_t *)&b, sizeof(b));
		b.cast = WBK_COPY;
		b.wire_elem = b.mem_elem = 2;
		ck_assert(!wbk_box_fits(&b, UINT64_MAX >> (i % 64), UINT32_MAX));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kernels");
	TCase *tc = tcase_create("sum and boxes");

	setup();
	printf("seed %llu (WB_SEED=)\n", (unsigned long long)rng.state);
	tcase_add_loop_test(tc, sum_is_its_definition_at_any_place, 0, 3);
	tcase_add_loop_test(tc, sum_copy_copies_sums_and_touches_nothing_else, 0, 3);
	tcase_add_loop_test(tc, sum_of_any_split_is_the_sum, 0, 3);
	tcase_add_loop_test(tc, sum_is_linear, 0, 3);
	tcase_add_test(tc, sum_sees_flips_and_swaps_in_each_lane);
	tcase_add_test(tc, sum_of_seed_0_never_changes);
	tcase_add_loop_test(tc, boxes_move_as_a_byte_oracle_says, 0, 3 * KINDS);
	tcase_add_loop_test(tc, large_boxes_move_as_a_byte_oracle_says, 0, 6);
	tcase_add_test(tc, box_that_fits_touches_nothing_outside);
	suite_add_tcase(suite, tc);
	return fx_run(suite);
}
