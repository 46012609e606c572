/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels   Kernel speeds, one JSON object a line; medians of 7 in CPU time, ratios of
 * interleaved pairs.
 *
 * Boxes are 2048 x 4096 bf16 (16 MiB), several of them, so that memory is cold as it is for chunks.
 */
#include "kernels/codes.h"
#include "kernels/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define REPS 7
#define N_BOX 4
#define ROWS 2048u
#define COLS 4096u
#define BOX_BYTES ((size_t)ROWS * COLS * 2)

static struct wbk_sum_keys keys;
static uint8_t *wire, *mem;
static volatile uint64_t sink;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

typedef void bench_fn(const void *arg, size_t bytes);

static double seconds(bench_fn *fn, const void *arg, size_t bytes)
{
	int calls = bytes > (1 << 20) ? 1 : (int)((4u << 20) / bytes);
	double start = now();

	for (int i = 0; i < calls; i++)
		fn(arg, bytes);
	return (now() - start) / calls;
}

struct pair {
	double s, of_ref; /* median seconds of a call; median of reference time / time */
};

/* @fn and @ref by turns. */
static struct pair median(bench_fn *fn, const void *arg, bench_fn *ref, size_t bytes)
{
	double t[REPS], q[REPS];

	fn(arg, bytes);
	for (int r = 0; r < REPS; r++) {
		double x = seconds(ref, NULL, bytes);

		t[r] = seconds(fn, arg, bytes);
		q[r] = x / t[r];
	}
	qsort(t, REPS, sizeof(t[0]), by_value);
	qsort(q, REPS, sizeof(q[0]), by_value);
	return (struct pair){t[REPS / 2], q[REPS / 2]};
}

static void run_memcpy(const void *arg, size_t bytes)
{
	(void)arg;
	memcpy(mem, wire, bytes);
	__asm__ volatile("" : : "r"(mem) : "memory");
}

static void run_xxh3(const void *arg, size_t bytes)
{
	(void)arg;
	sink += XXH3_128bits(wire, bytes).low64;
}

static void run_sum(const void *arg, size_t bytes)
{
	struct wbk_sum s = {{0, 0}};

	wbk_sum_add(&keys, *(const uint64_t *)arg, wire, bytes, &s);
	sink += s.lane[0];
}

static void bench_sum(void)
{
	static const size_t sizes[] = {128, 512, 4096, 256 << 10, N_BOX * BOX_BYTES};
	static const char *const isa[] = {"scalar", "avx2", "avx512"};
	enum wbk__isa best = wbk__isa();
	uint64_t pos = 36;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct pair x = {0};

		printf("{\"name\":\"checksum of %zu bytes\"", sizes[i]);
		for (enum wbk__isa k = WBK__SCALAR; k <= best; k++) {
			wbk__isa_max = k;
			x = median(run_sum, &pos, run_xxh3, sizes[i]);
			printf(",\"%s_GBps\":%.2f", isa[k], (double)sizes[i] / x.s / 1e9);
		}
		printf(",\"figure\":%.2f,\"unit\":\"GB/"
		       "s\",\"bar\":null,\"met\":null,\"body\":\"%s\","
		       "\"ns\":%.0f,\"xxh3_128_GBps\":%.2f}\n",
			(double)sizes[i] / x.s / 1e9, isa[best], x.s * 1e9,
			(double)sizes[i] / x.s / x.of_ref / 1e9);
	}
}

struct move {
	const char *name;
	struct wbk_box box;
	bool pack, sums;
};

static void run_move(const void *arg, size_t bytes)
{
	const struct move *m = arg;
	struct wbk_sum s = {{0, 0}};
	void *base = mem;
	struct wbk_box b = m->box;

	(void)bytes;
	for (int i = 0; i < N_BOX; i++) {
		b.wire_off = i * BOX_BYTES;
		b.mem_off = i * BOX_BYTES * 2;
		if (m->pack)
			wbk_pack(&base, &b, 1, wire, &keys, m->sums ? &s : NULL);
		else
			wbk_assemble(&base, &b, 1, wire, &keys, m->sums ? &s : NULL);
	}
	sink += s.lane[0];
}

static void bench_moves(void)
{
	const struct wbk_box dense = {.n_row = ROWS,
		.n_col = COLS,
		.repeat = 1,
		.wire_elem = 2,
		.mem_elem = 2,
		.row_stride = COLS * 2,
		.col_stride = 2,
		.pos_row_stride = COLS * 2,
		.pos_col_stride = 2};
	struct wbk_box rows = dense, narrow = dense, transposed = dense, cast = dense, both = dense;
	struct pair t = median(run_memcpy, NULL, run_memcpy, N_BOX * BOX_BYTES);

	rows.row_stride = COLS * 4;
	rows.pos_row_stride = COLS * 8;
	narrow.n_row = ROWS * 32; /* rows of 256 bytes */
	narrow.n_col = COLS / 32;
	narrow.row_stride = 512;
	narrow.pos_row_stride = 4096;
	transposed.row_stride = 2;
	transposed.col_stride = ROWS * 2;
	cast.cast = WBK_BF16_TO_F32;
	cast.mem_elem = cast.col_stride = 4;
	cast.row_stride = COLS * 4;
	both = cast;
	both.row_stride = 4;
	both.col_stride = ROWS * 4;
	printf("{\"name\":\"memcpy of %zu bytes\",\"figure\":%.2f,\"unit\":\"GB/s\",\"bar\":null,"
	       "\"met\":null}\n",
		N_BOX * BOX_BYTES, (double)(N_BOX * BOX_BYTES) / t.s / 1e9);
	const struct move moves[] = {{"dense", dense, 0, 0}, {"rows", rows, 0, 0},
		{"rows_256", narrow, 0, 0}, {"transposed", transposed, 0, 0},
		{"bf16_to_f32", cast, 0, 0}, {"bf16_to_f32_transposed", both, 0, 0}};

	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
		for (int way = 0; way < 4; way++) {
			struct move m = moves[i];

			m.pack = way / 2;
			m.sums = way % 2;
			t = median(run_move, &m, run_memcpy, N_BOX * BOX_BYTES);
			printf("{\"name\":\"%s %s\",\"sums\":\"%s\",\"figure\":%.2f,"
			       "\"unit\":\"GB/s\",\"bar\":null,\"met\":null,"
			       "\"of_memcpy\":%.2f}\n",
				m.pack ? "pack" : "assemble", m.name, m.sums ? "on" : "off",
				(double)(N_BOX * BOX_BYTES) / t.s / 1e9, t.of_ref);
		}
}

static void run_diff2(const void *arg, size_t bytes)
{
	static struct wbk_record rec[4096];
	const struct wbk_field *f = arg;
	uint64_t at = 0, bad = 0;

	(void)bytes;
	while (at < f->rows * f->cols)
		sink += wbk_diff2(f, at, rec, 4096, &at, &bad);
}

static void run_read(const void *arg, size_t bytes)
{
	const uint64_t *p = (const void *)mem;
	uint64_t x = 0;

	(void)arg;
	for (size_t i = 0; i < bytes / 8; i++)
		x |= p[i];
	sink += x;
}

static void bench_diff2(void)
{
	static const struct {
		const char *name;
		enum wbk_code code;
		bool cls;
	} kinds[] = {{"bf16", WBK_CODE_BF16, false}, {"bf16 with classes", WBK_CODE_BF16, true},
		{"f32", WBK_CODE_F32, false}, {"e4m3", WBK_CODE_E4M3, false},
		{"i32", WBK_CODE_I32, false}};
	const size_t bytes = N_BOX * BOX_BYTES;

	memset(wire, 0, bytes);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t elem = wbk__code_bytes(kinds[i].code);
		uint32_t mask = (uint32_t)((1ull << wbk_code_bits(kinds[i].code)) - 1);
		struct wbk_field f = {.data = mem,
			.rows = bytes / COLS / elem,
			.cols = COLS,
			.row_stride = COLS,
			.cls = kinds[i].cls ? wire : NULL,
			.code = kinds[i].code};

		for (int pass = 0; pass < 2; pass++) { /* a column digit; a row digit */
			struct pair t;

			for (uint64_t r = 0; r < f.rows; r++) {
				uint8_t *row = mem + r * COLS * elem;

				if (pass)
					wbk_encode_fill(f.code, (uint32_t)r & mask, row, COLS);
				else
					wbk_encode_ramp(f.code, 7, 0, mask, row, COLS);
			}
			t = median(run_diff2, &f, run_read, bytes);
			printf("{\"name\":\"diff2 %s, digit of %s\",\"figure\":%.2f,"
			       "\"unit\":\"GB/s\",\"bar\":null,\"met\":null,"
			       "\"of_read\":%.2f}\n",
				kinds[i].name, pass ? "rows" : "columns", (double)bytes / t.s / 1e9,
				t.of_ref);
		}
	}
}

int main(void)
{
	wire = aligned_alloc(4096, N_BOX * BOX_BYTES);
	mem = aligned_alloc(4096, N_BOX * BOX_BYTES * 2);
	if (!wire || !mem)
		return 1;
	for (size_t i = 0; i < N_BOX * BOX_BYTES; i += 2) { /* bf16 numbers near 1 */
		wire[i] = (uint8_t)(i * 2654435761u >> 13);
		wire[i + 1] = 0x3f;
	}
	memset(mem, 0, N_BOX * BOX_BYTES * 2);
	wbk_sum_keys_init(&keys, 1);
	bench_sum();
	bench_moves();
	bench_diff2();
	free(wire);
	free(mem);
	return 0;
}
