/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of a GPU against their host references, byte for byte.
 *
 * On every machine the kernels' source runs on the CPU, with threads of a block in several orders;
 * WB_GPU=device runs the same on a device.
 */
#include "base/base.h"
#include "base/hash.h"
#include "kernels/codes.h"
#include "kernels/gpu.h"
#include "tests/common/fx_check.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/shim.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 12u
#define BASES 3u
#define SUMS 4u

static struct wb_rng rng;
static struct wbk_sum_keys keys;
static const uint64_t orders[] = {0, 1, 0x9e3779b9};

static uint64_t below(uint64_t n)
{
	return wb_rng_below(&rng, n);
}

static void setup(void)
{
	const char *s = getenv("WB_SEED");

	rng.state = s ? strtoull(s, NULL, 0) : 20261125;
	wbk_sum_keys_init(&keys, 77);
}

static void *filled(size_t n)
{
	uint8_t *p = malloc(n + !n);

	ck_assert(p);
	for (size_t i = 0; i < n; i += 8) {
		uint64_t x = wb_rng_u64(&rng);

		memcpy(p + i, &x, n - i < 8 ? n - i : 8);
	}
	return p;
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* A table of ops, and what they work on. */
struct world {
	struct wbk_op op[OPS];
	uint32_t n_op;
	size_t mem_bytes[BASES], wire_bytes;
	size_t askew; /* bytes from where memory begins to what is told as a base */
	const char *name;
};

/* One side: the reference's memory, or the device's. */
struct side {
	uint8_t *mem[BASES], *wire;
	struct wbk_sum sum[SUMS];
};

static void side_of(struct side *s, const struct world *w, const struct side *as)
{
	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < BASES; i++) {
		s->mem[i] = as ? malloc(w->mem_bytes[i] + 1) : filled(w->mem_bytes[i]);
		if (as)
			memcpy(s->mem[i], as->mem[i], w->mem_bytes[i]);
	}
	s->wire = as ? malloc(w->wire_bytes + 1) : filled(w->wire_bytes);
	if (as)
		memcpy(s->wire, as->wire, w->wire_bytes);
}

static void side_free(struct side *s)
{
	for (unsigned i = 0; i < BASES; i++)
		free(s->mem[i]);
	free(s->wire);
}

/* A table on the device, from what is in @s and back to it. */
static void on_device(const struct world *w, enum wbk_way way, bool has_sum, uint32_t threads,
	const uint32_t *first, struct side *s)
{
	void *mem[BASES], *base[BASES], *op = wbt_gpu_get(w->op, sizeof(*w->op) * w->n_op);
	void *at = wbt_gpu_get(first, sizeof(*first) * WBK_MOVES * (w->n_op + 1)), *bases;
	void *wire = wbt_gpu_get(s->wire, w->wire_bytes),
	     *sum = wbt_gpu_get(s->sum, sizeof(s->sum));
	void *key = wbt_gpu_get(&keys, sizeof(keys));
	struct wbk_move_args a = {.op = op,
		.first = at,
		.wire = way == WBK_WAY_SUM ? NULL : wire,
		.keys = has_sum ? key : NULL,
		.sum = has_sum ? sum : NULL,
		.n_op = w->n_op,
		.way = way};

	for (unsigned i = 0; i < BASES; i++) {
		mem[i] = wbt_gpu_get(s->mem[i], w->mem_bytes[i]);
		base[i] = (uint8_t *)mem[i] + w->askew;
	}
	a.bases = bases = wbt_gpu_get(base, sizeof(base));
	for (unsigned i = 0; i < WBK_MOVES; i++, a.first += w->n_op + 1)
		wbt_gpu_run((enum wbk_gpu)i, &a, wbk_move_tiles(first, w->n_op, i), threads);
	for (unsigned i = 0; i < BASES; i++) {
		wbt_gpu_read(s->mem[i], mem[i], w->mem_bytes[i]);
		wbt_gpu_put(mem[i]);
	}
	wbt_gpu_read(s->wire, wire, w->wire_bytes);
	wbt_gpu_read(s->sum, sum, sizeof(s->sum));
	wbt_gpu_put(op);
	wbt_gpu_put(at);
	wbt_gpu_put(wire);
	wbt_gpu_put(sum);
	wbt_gpu_put(key);
	wbt_gpu_put(bases);
}

static void same_side(
	const struct world *w, enum wbk_way way, const struct side *a, const struct side *b)
{
	for (unsigned i = 0; i < BASES; i++)
		ck_assert_msg(!memcmp(a->mem[i], b->mem[i], w->mem_bytes[i]),
			"%s, way %d: memory %u differs", w->name, way, i);
	ck_assert_msg(!memcmp(a->wire, b->wire, w->wire_bytes), "%s, way %d: the wire differs",
		w->name, way);
	ck_assert_msg(
		!memcmp(a->sum, b->sum, sizeof(a->sum)), "%s, way %d: sums differ", w->name, way);
}

/* The reference works on the ops as they are, the device on prepared ones. */
static void check_way(struct world w, enum wbk_way way, bool has_sum, uint32_t threads)
{
	uint32_t first[WBK_MOVES * (OPS + 1)], bad;
	struct side host, dev;
	struct wbk_move_args a = {.op = w.op, .n_op = w.n_op, .way = way};
	void *base[BASES];

	side_of(&host, &w, NULL);
	side_of(&dev, &w, &host);
	for (unsigned i = 0; i < BASES; i++)
		base[i] = host.mem[i] + w.askew;
	a.bases = base;
	a.wire = way == WBK_WAY_SUM ? NULL : host.wire;
	a.keys = has_sum ? &keys : NULL;
	a.sum = has_sum ? host.sum : NULL;
	wbk_host_move(&a);
	ck_assert_int_eq(wbk_move_prepare(w.op, w.n_op, way, first, &bad), 0);
	on_device(&w, way, has_sum, threads, first, &dev);
	same_side(&w, way, &host, &dev);
	side_free(&host);
	side_free(&dev);
}

static bool has_fill(const struct world *w)
{
	for (uint32_t i = 0; i < w->n_op; i++)
		if (w->op[i].is_fill)
			return true;
	return false;
}

static void check_ways(const struct world *w, uint32_t threads)
{
	bool has_none = below(3) == 0; /* also without sums */

	check_way(*w, WBK_WAY_ASSEMBLE, true, threads);
	if (has_none)
		check_way(*w, WBK_WAY_ASSEMBLE, false, threads);
	if (has_fill(w))
		return;
	check_way(*w, WBK_WAY_PACK, true, threads);
	if (has_none)
		check_way(*w, WBK_WAY_PACK, false, threads);
	check_way(*w, WBK_WAY_SUM, true, threads);
}

/* Bytes between the first and one past the last that @o touches, and where its first element is. */
static uint64_t span(const struct wbk_op *o, uint64_t *before)
{
	int64_t lo = 0, hi = o->mem_elem, far;

	for (unsigned d = 0; d <= WBK_DIMS; d++) {
		if (d == WBK_DIMS)
			far = (int64_t)(o->repeat ? o->repeat - 1 : 0) * o->repeat_stride;
		else
			far = (int64_t)(o->n[d] - 1) * o->mem_stride[d];
		lo += far < 0 ? far : 0;
		hi += far > 0 ? far : 0;
	}
	*before = (uint64_t)-lo;
	return (uint64_t)(hi - lo);
}

/* Puts an op (its offsets are distances from what is there) into a world. */
static void add(struct world *w, struct wbk_op o)
{
	uint64_t n = (uint64_t)o.n[0] * o.n[1] * o.n[2] * o.n[3], before = 0;
	uint64_t bytes = n ? span(&o, &before) : 0;

	ck_assert(w->n_op < OPS);
	o.mem_off += w->mem_bytes[o.base] + before;
	w->mem_bytes[o.base] = o.mem_off - before + bytes;
	if (!o.is_fill) {
		o.wire_off += w->wire_bytes;
		w->wire_bytes = o.wire_off + n * o.wire_elem;
	}
	w->op[w->n_op++] = o;
}

/* Dense but for what is said: sizes and strides in elements, 0 = follows from the inner ones. */
struct shape {
	const char *name;
	uint32_t n[WBK_DIMS];
	int64_t stride[WBK_DIMS];
	uint64_t pos_col; /* elements from column to column in the checkpoint; 0 = 1 */
	uint64_t mem_off, wire_off, pos; /* bytes */
	uint32_t repeat;
};

static const struct shape shapes[] = {
	{"one element", {1, 1, 1, 1}, {0}, 0, 0, 0, 0, 0},
	{"a vector", {1, 1, 1, 4096}, {0}, 0, 0, 0, 0, 0},
	{"a row longer than a tile", {1, 1, 1, 70001}, {0}, 0, 0, 0, 4, 0},
	{"rows", {1, 1, 40, 512}, {0, 0, 640, 1}, 0, 0, 0, 0, 0},
	{"short rows", {1, 1, 700, 8}, {0, 0, 24, 1}, 0, 0, 0, 8, 0},
	{"rows of one element", {1, 1, 700, 1}, {0, 0, 5, 1}, 0, 0, 0, 0, 0},
	{"long rows", {1, 1, 3, 9000}, {0, 0, 9100, 1}, 0, 0, 0, 4000, 0},
	{"off by 2 in memory", {1, 1, 9, 300}, {0, 0, 301, 1}, 0, 2, 0, 0, 0},
	{"off by 1 on the wire", {1, 1, 9, 300}, {0, 0, 300, 1}, 0, 0, 1, 0, 0},
	{"off by 3 and 1", {1, 1, 9, 3000}, {0, 0, 3000, 1}, 0, 3, 1, 5, 0},
	{"off by 4 and 8", {1, 1, 9, 3000}, {0, 0, 3000, 1}, 0, 4, 8, 4095, 0},
	{"a column slice", {1, 1, 300, 20}, {0, 0, 77, 1}, 0, 6, 0, 2, 0},
	{"every third column", {1, 1, 50, 100}, {0, 0, 330, 3}, 0, 0, 0, 0, 0},
	{"scattered in the checkpoint", {1, 1, 30, 60}, {0, 0, 64, 1}, 5, 0, 0, 3, 0},
	{"scattered, strided", {1, 1, 30, 60}, {0, 0, 200, 3}, 7, 0, 0, 4090, 0},
	{"transposed", {1, 1, 128, 192}, {0, 0, 1, 128}, 0, 0, 0, 0, 0},
	{"transposed, odd", {1, 1, 131, 67}, {0, 0, 1, 135}, 0, 2, 6, 10, 0},
	{"transposed, one column wide", {1, 1, 400, 2}, {0, 0, 1, 500}, 0, 0, 0, 0, 0},
	{"backwards", {1, 1, 20, 90}, {0, 0, -100, 1}, 0, 0, 0, 0, 0},
	{"columns backwards", {1, 1, 20, 90}, {0, 0, 100, -1}, 0, 0, 0, 0, 0},
	{"three dimensions", {1, 5, 7, 64}, {0, 1000, 72, 1}, 0, 0, 0, 0, 0},
	{"four dimensions", {3, 4, 5, 33}, {2000, 400, 66, 2}, 0, 0, 0, 0, 0},
	{"middle dimension fastest", {3, 70, 4, 66}, {20000, 1, 4700, 71}, 0, 0, 0, 0, 0},
	{"outer dimension fastest", {80, 3, 4, 9}, {1, 3000, 750, 81}, 0, 4, 0, 0, 0},
	{"dense in four", {3, 4, 5, 32}, {640, 160, 32, 1}, 0, 0, 0, 0, 0},
	{"twice", {1, 1, 30, 70}, {0, 0, 80, 1}, 0, 0, 0, 0, 2},
	{"three times, transposed", {1, 1, 65, 70}, {0, 0, 1, 65}, 0, 0, 0, 0, 3},
	{"nothing", {1, 1, 0, 70}, {0, 0, 70, 1}, 0, 0, 0, 0, 0},
/* Transposes that are moved by squares, of two bytes and of four; in whole tiles and less. */
#define SQUARES 28
	{"squares", {1, 1, 272, 136}, {0, 0, 1, 288}, 0, 0, 0, 0, 0},
	{"squares in three dimensions", {1, 3, 64, 24}, {0, 2000, 1, 72}, 0, 32, 16, 4080, 0},
	{"squares across the middle", {2, 72, 3, 64}, {14400, 1, 4608, 72}, 0, 0, 48, 64, 0},
};
#define N_SHAPE ((int)(sizeof(shapes) / sizeof(*shapes)))

static const uint8_t wire_of[WBK_CAST_COUNT] = {0, 2, 4, 2, 4, 2, 2};
static const uint8_t mem_of[WBK_CAST_COUNT] = {0, 4, 2, 4, 2, 2, 2};

static struct wbk_op op_of(const struct shape *s, unsigned cast, unsigned elem)
{
	struct wbk_op o = {.wire_off = s->wire_off, .mem_off = s->mem_off, .pos = s->pos};
	uint64_t before;

	memcpy(o.n, s->n, sizeof(o.n));
	o.cast = (uint8_t)cast;
	o.wire_elem = (uint8_t)(cast ? wire_of[cast] : elem);
	o.mem_elem = (uint8_t)(cast ? mem_of[cast] : elem);
	for (unsigned d = WBK_DIMS; d-- > 0;) {
		int64_t dense = d == 3 ? 1 : s->stride[d + 1] * s->n[d + 1];
		uint64_t pos = d == 3 ? o.wire_elem * (s->pos_col ? s->pos_col : 1)
				      : o.pos_stride[d + 1] * s->n[d + 1];

		o.mem_stride[d] = (s->stride[d] ? s->stride[d] : dense) * o.mem_elem;
		o.pos_stride[d] = d == 2 && s->stride[2] != 0 ? pos + 64 : pos;
	}
	o.repeat = s->repeat;
	o.repeat_stride = (int64_t)span(&o, &before) + 10;
	return o;
}

/* Copies of each element size and each cast; threads of a block in every order. */
START_TEST(shapes_move_as_the_reference_says)
{
	static const uint8_t elems[] = {1, 2, 4, 8, 3, 7};
	const struct shape *s = &shapes[_i];

	for (unsigned i = 0; i < sizeof(elems); i++) {
		struct world w = {.name = s->name};

		wbt_shim_order = orders[i % 3];
		add(&w, op_of(s, WBK_COPY, elems[i]));
		check_ways(&w, i == 1 ? 256 : 64);
	}
	for (unsigned cast = 1; cast < WBK_CAST_COUNT; cast++) {
		struct world w = {.name = s->name};

		wbt_shim_order = orders[cast % 3];
		add(&w, op_of(s, cast, 0));
		check_ways(&w, 64);
	}
}
END_TEST

/* Alignment of a base is not known when ops are cut. */
START_TEST(squares_are_moved_from_any_base)
{
	for (unsigned i = 0; i < 6; i++) {
		struct world w = {.name = shapes[SQUARES + _i].name, .askew = 2u << i % 3};
		uint32_t first[WBK_MOVES * 2], bad;

		wbt_shim_order = orders[i % 3];
		add(&w, op_of(&shapes[SQUARES + _i], WBK_COPY, i < 3 ? 2 : 4));
		w.mem_bytes[0] += w.askew;
		check_ways(&w, i % 2 ? 64 : 256);
		ck_assert_int_eq(wbk_move_prepare(w.op, 1, WBK_WAY_PACK, first, &bad), 0);
		ck_assert_uint_gt(wbk_move_tiles(first, 1, WBK_GPU_TURNS), 0);
	}
}
END_TEST

START_TEST(constants_fill_their_elements_and_nothing_else)
{
	for (unsigned elem = 1; elem <= 8; elem++) {
		const struct shape *s = &shapes[_i];
		struct world w = {.name = s->name};
		struct wbk_op o = op_of(s, WBK_COPY, elem);

		wbt_shim_order = orders[elem % 3];
		o.is_fill = 1;
		o.value = 0x1122334455667788u;
		add(&w, o);
		o = op_of(&shapes[3], WBK_COPY, 2); /* in one table with a copy */
		o.sum = 2;
		add(&w, o);
		check_ways(&w, 64);
	}
}
END_TEST

static void random_order(unsigned *order, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = (unsigned)below(i), x = order[i - 1];

		order[i - 1] = order[k];
		order[k] = x;
	}
}

/* Any dimensions in any order of memory, with gaps; each element has its own place. */
static struct wbk_op random_op(void)
{
	struct wbk_op o = {
		.wire_off = below(3) ? 0 : below(40), .mem_off = below(3) ? 0 : below(40)};
	unsigned order[WBK_DIMS], n_dim = 1 + (unsigned)below(4);
	uint64_t most = below(8) ? 4000 : 60000, all = 1, reach, before;

	o.cast = below(2) ? WBK_COPY : (uint8_t)below(WBK_CAST_COUNT);
	o.wire_elem =
		o.cast ? wire_of[o.cast] : (uint8_t)(below(4) ? 1u << below(4) : 1 + below(8));
	o.mem_elem = o.cast ? mem_of[o.cast] : o.wire_elem;
	for (unsigned d = 0; d < WBK_DIMS; d++) {
		o.n[d] = WBK_DIMS - d > n_dim ? 1
					      : 1 + (uint32_t)below(below(3) ? 12 : most / all + 1);
		all *= o.n[d];
		if (all > most) {
			all /= o.n[d];
			o.n[d] = 1;
		}
	}
	random_order(order, WBK_DIMS);
	if (below(2)) /* as in the checkpoint */
		for (unsigned d = 0; d < WBK_DIMS; d++)
			order[d] = 3 - d;
	reach = o.mem_elem;
	for (unsigned i = 0; i < WBK_DIMS; i++) {
		unsigned d = order[i];

		o.mem_stride[d] = (int64_t)(reach + (below(3) ? 0 : below(30)));
		reach = (uint64_t)o.mem_stride[d] * o.n[d];
		if (below(12) == 0)
			o.mem_stride[d] = -o.mem_stride[d];
	}
	o.repeat = below(4) ? 0 : (uint32_t)below(4);
	o.repeat_stride = (int64_t)(span(&o, &before) + below(9)) * (below(5) ? 1 : -1);
	o.pos = below(2) ? 4 * below(10000) : below(1ull << 41);
	o.pos_stride[3] = o.wire_elem * (below(8) ? 1 : 1 + below(3));
	for (unsigned d = 3; d-- > 0;)
		o.pos_stride[d] = o.n[d + 1] * o.pos_stride[d + 1] + (below(2) ? 0 : below(5000));
	o.base = (uint32_t)below(BASES);
	o.sum = (uint32_t)below(SUMS);
	return o;
}

START_TEST(random_tables_move_as_the_reference_says)
{
	struct world w = {.name = "random"};
	uint32_t n = 1 + (uint32_t)below(8);

	wb_rng_u64(&rng);
	rng.state += (uint64_t)_i * 0x9e3779b97f4a7c15u;
	wbt_shim_order = orders[_i % 3] + (_i % 3 == 2 ? (uint64_t)_i : 0);
	for (uint32_t i = 0; i < n; i++)
		add(&w, random_op());
	check_ways(&w, _i % 5 ? 64 : 256);
}
END_TEST

/* Boxes, as plans have them, against the code that moves them on hosts. */
START_TEST(boxes_move_as_on_the_host)
{
	rng.state += (uint64_t)_i;
	for (int i = 0; i < 12; i++) {
		struct wbk_op o = random_op();
		struct wbk_box b = {.n_row = o.n[2],
			.n_col = o.n[3],
			.row_stride = o.mem_stride[2],
			.col_stride = o.mem_stride[3],
			.pos = o.pos,
			.pos_row_stride = o.pos_stride[2],
			.pos_col_stride = o.pos_stride[3],
			.wire_off = o.wire_off,
			.repeat = o.repeat,
			.wire_elem = o.wire_elem,
			.mem_elem = o.mem_elem,
			.cast = o.cast};
		enum wbk_way way = (enum wbk_way)(i % 3);
		struct world w = {.name = "box", .n_op = 1};
		uint32_t first[WBK_MOVES * 2], bad;
		struct side host, dev;
		uint64_t before;

		o = wbk_op_of_box(&b, 1);
		o.repeat_stride = b.repeat_stride = (int64_t)span(&o, &before) + 3;
		w.mem_bytes[0] = span(&o, &before);
		o.mem_off = b.mem_off = before;
		w.wire_bytes = b.wire_off + (uint64_t)b.n_row * b.n_col * b.wire_elem;
		ck_assert(wbk_box_fits(&b, w.mem_bytes[0], w.wire_bytes));
		w.op[0] = o;
		side_of(&host, &w, NULL);
		side_of(&dev, &w, &host);
		if (way == WBK_WAY_PACK)
			wbk_pack((void *const *)host.mem, &b, 1, host.wire, &keys, &host.sum[1]);
		else if (way == WBK_WAY_ASSEMBLE)
			wbk_assemble(
				(void *const *)host.mem, &b, 1, host.wire, &keys, &host.sum[1]);
		else
			wbk_sum_mem((void *const *)host.mem, &b, 1, &keys, &host.sum[1]);
		ck_assert_int_eq(wbk_move_prepare(w.op, 1, way, first, &bad), 0);
		on_device(&w, way, true, 64, first, &dev);
		same_side(&w, way, &host, &dev);
		side_free(&host);
		side_free(&dev);
	}
}
END_TEST

/* Every pattern of 16 bits, and of 32 bits those at which something changes. */
START_TEST(casts_are_the_host_s_for_every_pattern)
{
	bool is_wide = mem_of[_i] == 2 && wire_of[_i] == 4;
	size_t n = is_wide ? 65536 * 8 : 65536;
	struct wbk_op o = {.n = {1, 1, 1, (uint32_t)n},
		.cast = (uint8_t)_i,
		.wire_elem = wire_of[_i],
		.mem_elem = mem_of[_i],
		.mem_stride = {0, 0, 0, mem_of[_i]},
		.pos_stride = {0, 0, 0, wire_of[_i]}};
	struct world w = {.name = "cast",
		.n_op = 1,
		.mem_bytes = {n * mem_of[_i]},
		.wire_bytes = n * wire_of[_i]};
	uint8_t *want = malloc(w.mem_bytes[0]);
	uint32_t first[WBK_MOVES * 2], bad;
	struct side s;

	w.op[0] = o;
	side_of(&s, &w, NULL);
	for (uint32_t i = 0; i < n; i++) {
		static const uint16_t low[8] = {
			0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1000, 0x2fff};
		uint32_t x = is_wide ? i / 8 << 16 | low[i % 8] : i;

		memcpy(s.wire + (size_t)i * wire_of[_i], &x, wire_of[_i]);
	}
	wbk_cast_fwd((enum wbk_cast)_i, s.wire, want, n);
	ck_assert_int_eq(wbk_move_prepare(w.op, 1, WBK_WAY_ASSEMBLE, first, &bad), 0);
	on_device(&w, WBK_WAY_ASSEMBLE, false, 256, first, &s);
	ck_assert(!memcmp(s.mem[0], want, w.mem_bytes[0]));
	free(want);
	side_free(&s);
}
END_TEST

START_TEST(tables_that_are_none_are_refused)
{
	struct wbk_op good = op_of(&shapes[3], WBK_COPY, 2), op[3];
	uint32_t first[WBK_MOVES * 4], bad = 99;

	for (int i = 0; i < 3; i++)
		op[i] = good;
	op[1].cast = WBK_F32_TO_BF16; /* elements of 2 bytes on both sides */
	ck_assert_int_eq(wbk_move_prepare(op, 3, WBK_WAY_PACK, first, &bad), -EINVAL);
	ck_assert_uint_eq(bad, 1);
	op[1] = good;
	op[2].cast = WBK_CAST_COUNT;
	ck_assert_int_eq(wbk_move_prepare(op, 3, WBK_WAY_PACK, first, &bad), -EINVAL);
	ck_assert_uint_eq(bad, 2);
	op[2] = good;
	op[0].is_fill = 1;
	ck_assert_int_eq(wbk_move_prepare(op, 3, WBK_WAY_PACK, first, &bad), -EINVAL);
	ck_assert_uint_eq(bad, 0);
	ck_assert_int_eq(wbk_move_prepare(op, 3, WBK_WAY_ASSEMBLE, first, &bad), 0);
	op[0] = good;
	for (int i = 0; i < 4; i++)
		op[1].n[i] = UINT32_MAX;
	ck_assert_int_eq(wbk_move_prepare(op, 3, WBK_WAY_PACK, first, &bad), -E2BIG);
	ck_assert_uint_eq(bad, 1);
	op[1] = good; /* 2^30 tiles each */
	for (int i = 0; i < 3; i++) {
		op[i].n[2] = 1u << 30;
		op[i].n[3] = 20000;
		op[i].mem_stride[3] = 2;
		op[i].mem_stride[2] = 50000;
	}
	ck_assert_int_eq(wbk_move_prepare(op, 3, WBK_WAY_PACK, first, &bad), -E2BIG);
	ck_assert_uint_eq(bad, 1);
}
END_TEST

/* Claims at few points: all of them, but for a device, where it is compute-sanitizer that samples
 * and each launch costs. */
#define ADD_FEW(tc, test, from, to)                                                                \
	do {                                                                                       \
		if (wbt_gpu_is_device())                                                           \
			fx_add_points(tc, test, from, to);                                         \
		else                                                                               \
			tcase_add_loop_test(tc, test, from, to);                                   \
	} while (0)

int main(void)
{
	Suite *suite = suite_create("kernels of a GPU");
	TCase *shape = tcase_create("shapes"), *table = tcase_create("tables");
	TCase *host = tcase_create("host");
	char why[256];

	setup();
	if (!wbt_gpu_open(why, sizeof(why))) {
		printf("%s\n", why);
		return 77;
	}
	printf("seed %llu (WB_SEED=), on %s\n", (unsigned long long)rng.state, wbt_gpu_name());
	ADD_FEW(shape, shapes_move_as_the_reference_says, 0, N_SHAPE);
	ADD_FEW(shape, constants_fill_their_elements_and_nothing_else, 0, N_SHAPE);
	ADD_FEW(shape, squares_are_moved_from_any_base, 0, N_SHAPE - SQUARES);
	fx_add_points(table, random_tables_move_as_the_reference_says, 0, 200);
	ADD_FEW(host, boxes_move_as_on_the_host, 0, 10);
	ADD_FEW(host, casts_are_the_host_s_for_every_pattern, 1, WBK_CAST_COUNT);
	tcase_add_test(host, tables_that_are_none_are_refused);
	suite_add_tcase(suite, shape);
	suite_add_tcase(suite, table);
	suite_add_tcase(suite, host);
	wbt_scan_tests(suite, rng.state);
	return fx_run(suite);
}
