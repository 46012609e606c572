/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of extraction against their host references, byte for byte: a part of
 * unit/test_kernels_gpu.c, which runs them on the CPU or on a device.
 */
#include "base/base.h"
#include "base/hash.h"
#include "kernels/ids.h"
#include "tests/common/fx_check.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/shim.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct wb_rng rng;
static const uint64_t orders[] = {0, 1, 0x9e3779b9};
static const uint8_t wire_of[WBK_CAST_COUNT] = {0, 2, 4, 2, 4, 2, 2};
static const uint8_t mem_of[WBK_CAST_COUNT] = {0, 4, 2, 4, 2, 2, 2};

static uint64_t below(uint64_t n)
{
	return wb_rng_below(&rng, n);
}

static void *filled(size_t n)
{
	uint8_t *p = malloc(n + !n);

	ck_assert(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)wb_rng_u64(&rng);
	return p;
}

/* ---- tables ---------------------------------------------------------------------------------- */

#define ITEMS 4u
#define BUFFERS (3 * ITEMS)

/* A buffer that an item points into. */
struct buffer {
	uint32_t item;
	size_t member; /* of the item: the pointer */
	size_t bytes, skip; /* it points skip bytes into it */
	uint8_t *mem; /* owned */
};

/* A table, and what its items point to. */
struct table {
	enum wbk_gpu which;
	void (*host)(const struct wbk_scan_args *a);
	size_t item_bytes;
	uint8_t item[ITEMS * 128] __attribute__((aligned(16)));
	uint32_t n, first[ITEMS + 1];
	struct buffer buffer[BUFFERS];
	uint32_t n_buffer;
	uint64_t cap; /* of hits */
};

struct found {
	struct wbk_found out[ITEMS];
	struct wbk_hit *hit;
	uint64_t n_hit;
};

static void set_pointer(uint8_t *items, const struct table *t, const struct buffer *b, void *mem)
{
	void *at = (uint8_t *)mem + b->skip;

	memcpy(items + b->item * t->item_bytes + b->member, &at, sizeof(at));
}

/* @mem becomes the table's: what the item that is added next points to. */
static void add_buffer(struct table *t, size_t member, void *mem, size_t bytes, size_t skip)
{
	ck_assert(t->n_buffer < BUFFERS);
	t->buffer[t->n_buffer++] = (struct buffer){t->n, member, bytes, skip, mem};
}

static void add_item(struct table *t, const void *item, uint64_t rows, uint64_t cols, uint32_t n)
{
	ck_assert(t->n < ITEMS);
	memcpy(t->item + t->n * t->item_bytes, item, t->item_bytes);
	ck_assert_int_eq(wbk_tiles_add(t->first + t->n, rows, cols, n), 0);
	t->n++;
}

static void found_of(struct found *f, uint64_t cap)
{
	for (uint32_t i = 0; i < ITEMS; i++)
		f->out[i] = wbk_found_none();
	f->hit = calloc(cap + 1, sizeof(*f->hit));
	f->n_hit = 0;
}

static void scan_on_host(struct table *t, uint64_t cap, struct found *f)
{
	struct wbk_scan_args a = {.item = t->item,
		.out = f->out,
		.hit = f->hit,
		.n_hit = &f->n_hit,
		.cap = cap,
		.n_item = t->n};

	for (uint32_t i = 0; i < t->n_buffer; i++)
		set_pointer(t->item, t, &t->buffer[i], t->buffer[i].mem);
	t->host(&a);
}

/* @mem: what became of the buffers there. */
static void scan_on_device(const struct table *t, struct found *f, uint8_t **mem)
{
	void *dev[BUFFERS], *item, *first = wbt_gpu_get(t->first, sizeof(t->first));
	void *out = wbt_gpu_get(f->out, sizeof(f->out)), *n_hit = wbt_gpu_get(&f->n_hit, 8);
	void *hit = wbt_gpu_get(f->hit, t->cap * sizeof(*f->hit));
	uint8_t items[sizeof(t->item)] __attribute__((aligned(16)));
	struct wbk_scan_args a = {.first = first,
		.out = out,
		.hit = hit,
		.n_hit = n_hit,
		.cap = t->cap,
		.n_item = t->n};

	memcpy(items, t->item, sizeof(items));
	for (uint32_t i = 0; i < t->n_buffer; i++) {
		dev[i] = wbt_gpu_get(t->buffer[i].mem, t->buffer[i].bytes);
		set_pointer(items, t, &t->buffer[i], dev[i]);
	}
	a.item = item = wbt_gpu_get(items, t->n * t->item_bytes);
	wbt_gpu_run(t->which, &a, t->first[t->n], below(2) ? 64 : 256);
	wbt_gpu_read(f->out, out, sizeof(f->out));
	wbt_gpu_read(f->hit, hit, t->cap * sizeof(*f->hit));
	wbt_gpu_read(&f->n_hit, n_hit, sizeof(f->n_hit));
	for (uint32_t i = 0; i < t->n_buffer; i++) {
		mem[i] = malloc(t->buffer[i].bytes + 1);
		wbt_gpu_read(mem[i], dev[i], t->buffer[i].bytes);
		wbt_gpu_put(dev[i]);
	}
	wbt_gpu_put(item);
	wbt_gpu_put(first);
	wbt_gpu_put(out);
	wbt_gpu_put(hit);
	wbt_gpu_put(n_hit);
}

static int by_place(const void *a, const void *b)
{
	const struct wbk_hit *x = a, *y = b;

	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* All hits, or as many as there is room for of those that there are. */
static void same_found(const struct found *all, struct found *dev, uint64_t cap)
{
	uint64_t n = dev->n_hit < cap ? dev->n_hit : cap, k = 0, lost[ITEMS] = {0};

	ck_assert_uint_eq(all->n_hit, dev->n_hit);
	qsort(dev->hit, n, sizeof(*dev->hit), by_place);
	for (uint32_t i = 0; i < ITEMS; i++) {
		ck_assert(!memcmp(&all->out[i].a, &dev->out[i].a, sizeof(struct wbk_range)));
		ck_assert(!memcmp(&all->out[i].b, &dev->out[i].b, sizeof(struct wbk_range)));
		ck_assert_uint_eq(all->out[i].n_hit, dev->out[i].n_hit);
		lost[i] = dev->out[i].n_hit;
	}
	for (uint64_t i = 0; i < n; i++, k++) {
		while (k < all->n_hit && by_place(&all->hit[k], &dev->hit[i]) < 0)
			k++;
		ck_assert(k < all->n_hit && !memcmp(&all->hit[k], &dev->hit[i], sizeof(*dev->hit)));
		lost[dev->hit[i].item]--;
	}
	for (uint32_t i = 0; i < ITEMS; i++)
		ck_assert_uint_eq(dev->out[i].is_over, lost[i] != 0);
}

/* The device first: the host changes the buffers in place.  What is found, and every byte of every
 * buffer, is the same. */
static void check_table(struct table *t, uint64_t most)
{
	struct found all, dev;
	uint8_t *mem[BUFFERS];

	found_of(&dev, t->cap);
	found_of(&all, most);
	scan_on_device(t, &dev, mem);
	scan_on_host(t, most, &all);
	same_found(&all, &dev, t->cap);
	for (uint32_t i = 0; i < t->n_buffer; i++) {
		ck_assert(!memcmp(mem[i], t->buffer[i].mem, t->buffer[i].bytes));
		free(mem[i]);
		free(t->buffer[i].mem);
	}
	free(all.hit);
	free(dev.hit);
}

static const uint8_t code_bytes[WBK_CODE_COUNT] = {0, 2, 4, 2, 1, 1, 1, 4};

/* Any shape, with gaps between rows; which rows are looked at. */
static struct wbk_plane random_plane(unsigned elem, size_t *bytes)
{
	uint64_t rows = 1 + below(150), cols = 1 + below(below(4) ? 90 : 600);
	struct wbk_plane p = {.rows = rows,
		.cols = cols,
		.row_stride = (int64_t)(cols + below(5)),
		.elem = (uint8_t)elem};

	if (below(2)) { /* so that several columns are one access */
		p.cols = cols = (cols + 7) / 8 * 8;
		p.row_stride = (int64_t)(cols + 8 * below(3));
	}
	p.row_begin = below(3) ? 0 : below(rows);
	p.row_end = below(3) ? rows : p.row_begin + below(rows - p.row_begin + 1);
	*bytes = ((rows - 1) * (uint64_t)p.row_stride + cols) * elem;
	return p;
}

static struct table table_of(
	enum wbk_gpu which, void (*host)(const struct wbk_scan_args *a), size_t item_bytes)
{
	return (struct table){.which = which, .host = host, .item_bytes = item_bytes};
}

/* A ramp of digits, with faults. */
static uint8_t *digits(const struct wbk_plane *p, enum wbk_code code, bool is_wide, size_t bytes)
{
	uint32_t mask = (uint32_t)((1ull << wbk_code_bits(code)) - 1);
	/* From row to row and from column to column; on the right of @split rows are of one digit.
	 */
	uint64_t down = below(3) * 3, x = below(3) ? below(90) : 0;
	uint64_t split = below(3) ? p->cols : below(p->cols), rare = below(2) ? 200 : 20000;
	uint8_t *data = filled(bytes);

	for (uint64_t r = 0; r < p->rows; r++)
		for (uint64_t c = 0; c < p->cols; c++) {
			uint8_t *at = data + (r * (uint64_t)p->row_stride + c) * p->elem;
			uint32_t digit =
				(uint32_t)(c < split ? r * down + c * x : r * r / 7) & mask;

			if (!below(rare))
				continue;
			if (is_wide) {
				uint16_t word = (uint16_t)(0x2000 + ((digit & 0x7ff) << 3));

				memcpy(at, &word, 2);
			} else {
				wbk_encode_fill(code, digit, at, 1);
			}
		}
	return data;
}

START_TEST(second_differences_are_the_reference_s)
{
	struct table t = table_of(WBK_GPU_DIFF2, wbk_host_diff2, sizeof(struct wbk_diff2));
	uint64_t most = 0;

	rng.state += (uint64_t)_i;
	wbt_shim_order = orders[_i % 3];
	for (uint64_t n = 1 + below(ITEMS); n > 0; n--) {
		enum wbk_code code = (enum wbk_code)(1 + below(WBK_CODE_COUNT - 1));
		bool is_wide = code == WBK_CODE_F32 && below(2);
		size_t bytes;
		struct wbk_plane p = random_plane(is_wide ? 2 : code_bytes[code], &bytes);
		struct wbk_diff2 item = {.f = {.rows = p.rows,
						 .cols = p.cols,
						 .row_stride = p.row_stride,
						 .code = (uint8_t)code},
			.row_begin = p.row_begin,
			.row_end = p.row_end,
			.is_wide = is_wide};
		uint8_t *cls = below(2) ? NULL : filled(p.rows * p.cols);

		add_buffer(&t, offsetof(struct wbk_diff2, f.data), digits(&p, code, is_wide, bytes),
			bytes, 0);
		for (size_t i = 0; cls && i < p.rows * p.cols; i++)
			cls[i] = cls[i] < 20;
		if (cls)
			add_buffer(&t, offsetof(struct wbk_diff2, f.cls), cls, p.rows * p.cols, 0);
		add_item(&t, &item, p.row_end - p.row_begin, p.cols, 1);
		most += p.rows * p.cols;
	}
	t.cap = _i % 5 == 3 ? below(300) : most;
	check_table(&t, most);
}
END_TEST

/* Left of a column rows are all alike, or each of one digit, or neither; right of it each is of one
 * digit: what a row's differences are there depends on its neighbour, and on how the digits go from
 * row to row. */
static const struct seam {
	uint32_t split; /* the first column on the right */
	uint32_t down, across; /* digits on the left, from row to row and from column to column */
	uint32_t bend; /* on the right: the second difference from row to row */
	uint32_t hidden; /* columns left of the seam that are no copies */
	uint32_t bad; /* a column that holds no code; 0 = none */
	/* Sides change: the row at which the left is another digit; hidden is all of the right. */
	uint32_t jump;
} seams[] = {
	{0, 0, 0, 0, 0, 0, 0},
	{0, 0, 0, 1, 0, 0, 0},
	{1, 0, 7, 1, 0, 0, 0},
	{2, 0, 7, 0, 0, 0, 0},
	{2, 5, 0, 1, 0, 0, 0},
	{8, 0, 7, 1, 0, 0, 0},
	{8, 0, 7, 0, 0, 0, 0},
	{8, 0, 0, 1, 0, 0, 0},
	{8, 5, 0, 1, 0, 0, 0},
	{8, 5, 7, 1, 0, 0, 0},
	{8, 0, 7, 1, 1, 0, 0},
	{8, 0, 0, 0, 2, 0, 0},
	{9, 0, 7, 1, 2, 0, 0},
	{256, 0, 7, 1, 0, 0, 0},
	{256, 0, 7, 0, 1, 0, 0},
	{257, 0, 7, 1, 1, 0, 0},
	{264, 0, 0, 1, 2, 0, 0},
	{7, 0, 7, 1, 0, 0, 0},
	{255, 0, 7, 1, 0, 0, 0},
	{520, 0, 7, 0, 0, 3, 0},
	{520, 0, 7, 0, 0, 519, 0},
	{8, 0, 7, 1, 0, 12, 0},
	{0, 0, 0, 0, 0, 258, 0},
	{264, 0, 0, 0, 0, 0, 12},
	{384, 0, 0, 0, 0, 0, 12},
	{384, 0, 7, 0, 0, 0, 12},
	{384, 0, 7, 0, 1, 0, 33},
	{257, 0, 7, 0, 0, 0, 64},
};

START_TEST(differences_at_a_seam_are_the_reference_s)
{
	const struct seam *m = &seams[_i];

	for (unsigned k = 0; k < 2; k++) {
		enum wbk_code code = k ? WBK_CODE_F32 : WBK_CODE_BF16;
		struct table t = table_of(WBK_GPU_DIFF2, wbk_host_diff2, sizeof(struct wbk_diff2));
		uint64_t rows = 70, cols = 520, n = rows * cols;
		uint8_t *data = filled(n * code_bytes[code]), *cls = calloc(n, 1);
		struct wbk_diff2 item = {.f = {.rows = rows,
						 .cols = cols,
						 .row_stride = (int64_t)cols,
						 .code = (uint8_t)code},
			.row_end = rows};

		for (uint64_t r = 0; r < rows; r++)
			for (uint64_t c = 0; c < cols; c++) {
				uint32_t alike =
					(uint32_t)(r * m->down + c * m->across + (m->down ? 0 : 9));
				uint32_t one = (uint32_t)(r * (r + 1) / 2 * m->bend + r * 3 + 9);
				bool is_left = c < m->split, is_one = is_left == (m->jump != 0);
				bool is_hidden = is_left && c + m->hidden >= m->split;

				if (m->jump)
					one = r < m->jump ? 50 : 77;
				if (m->jump)
					is_hidden = m->hidden && !is_left;
				wbk_encode_fill(code, (is_one ? one : alike) & 0x7fff,
					data + (r * cols + c) * code_bytes[code], 1);
				if (m->bad && c == m->bad)
					memset(data + (r * cols + c) * code_bytes[code], 0, 2);
				cls[r * cols + c] = is_hidden;
			}
		add_buffer(&t, offsetof(struct wbk_diff2, f.data), data, n * code_bytes[code], 0);
		add_buffer(&t, offsetof(struct wbk_diff2, f.cls), cls, n, 0);
		add_item(&t, &item, rows, cols, 1);
		t.cap = n;
		check_table(&t, n);
	}
}
END_TEST

/* @n elements that are one of @words, and now and then anything. */
static uint8_t *words_of(size_t n, unsigned elem, const uint32_t *words, uint32_t n_word)
{
	uint8_t *p = filled(n * elem);
	uint32_t word = words[0];

	for (size_t i = 0; i < n; i++) {
		if (!below(6)) /* runs */
			word = words[below(n_word)];
		if (below(80))
			memcpy(p + i * elem, &word, elem);
	}
	return p;
}

START_TEST(what_differs_is_what_the_reference_says)
{
	struct table t = table_of(WBK_GPU_EQUAL, wbk_host_equal, sizeof(struct wbk_equal));

	rng.state += (uint64_t)_i;
	wbt_shim_order = orders[_i % 3];
	for (uint64_t n = 1 + below(ITEMS); n > 0; n--) {
		static const uint32_t words[] = {0x11223344, 0x55667788, 0};
		size_t bytes;
		struct wbk_plane p = random_plane(1u << below(3), &bytes);
		uint32_t n_word = 1 + (uint32_t)below(3);
		struct wbk_equal item = {.p = p};

		memcpy(&item.want, words, p.elem);
		add_buffer(&t, offsetof(struct wbk_equal, p.data),
			words_of(bytes / p.elem, p.elem, words, n_word), bytes, 0);
		if (below(2))
			add_buffer(&t, offsetof(struct wbk_equal, like),
				words_of(p.rows * p.cols, p.elem, words, n_word),
				p.rows * p.cols * p.elem, 0);
		add_item(&t, &item, p.row_end - p.row_begin, p.cols, 1);
	}
	check_table(&t, 0);
}
END_TEST

START_TEST(classes_are_the_reference_s)
{
	struct table t = table_of(WBK_GPU_CLASSIFY, wbk_host_classify, sizeof(struct wbk_classify));
	uint64_t most = 0;

	rng.state += (uint64_t)_i;
	wbt_shim_order = orders[_i % 3];
	for (uint64_t n = 1 + below(ITEMS); n > 0; n--) {
		static const uint32_t words[] = {
			3, 0xfb, 0x5a, 0, 7}; /* the first three mean something */
		size_t bytes, n_elem;
		struct wbk_plane p = random_plane(1u << below(3), &bytes);
		struct wbk_classify item = {.p = p,
			.first = words[0],
			.second = words[1],
			.sentinel = words[2],
			.is_merged = below(3) == 0};

		n_elem = p.rows * p.cols;
		add_buffer(&t, offsetof(struct wbk_classify, p.data),
			words_of(bytes / p.elem, p.elem, words + 1, 4), bytes, 0);
		if (below(4))
			add_buffer(&t, offsetof(struct wbk_classify, was),
				words_of(n_elem, p.elem, words, 5), n_elem * p.elem, 0);
		if (below(2))
			add_buffer(&t, offsetof(struct wbk_classify, before),
				words_of(n_elem, p.elem, words, 5), n_elem * p.elem, 0);
		add_buffer(&t, offsetof(struct wbk_classify, cls), filled(n_elem), n_elem, 0);
		add_item(&t, &item, p.row_end - p.row_begin, p.cols, 1);
		most += n_elem;
		if (t.n_buffer + 4 > BUFFERS)
			break;
	}
	t.cap = _i % 5 == 3 ? below(300) : most;
	check_table(&t, most);
}
END_TEST

START_TEST(elements_of_one_class_are_put_back_and_no_others)
{
	struct table t = table_of(WBK_GPU_PUT, wbk_host_put, sizeof(struct wbk_put));

	rng.state += (uint64_t)_i;
	wbt_shim_order = orders[_i % 3];
	for (uint64_t n = 1 + below(ITEMS); n > 0; n--) {
		size_t bytes, n_elem;
		struct wbk_plane p = random_plane(1u << below(3), &bytes);
		struct wbk_put item = {.p = p, .value = (uint32_t)below(1ull << 32), .only = 1};

		n_elem = p.rows * p.cols;
		add_buffer(&t, offsetof(struct wbk_put, p.data), filled(bytes), bytes, 0);
		if (below(2))
			add_buffer(&t, offsetof(struct wbk_put, from), filled(n_elem * p.elem),
				n_elem * p.elem, 0);
		if (below(3)) {
			uint8_t *cls = filled(n_elem);

			for (size_t i = 0; i < n_elem; i++)
				cls[i] %= 3;
			add_buffer(&t, offsetof(struct wbk_put, cls), cls, n_elem, 0);
		}
		add_item(&t, &item, p.row_end - p.row_begin, p.cols, 1);
	}
	check_table(&t, 0);
}
END_TEST

/* ---- ids ------------------------------------------------------------------------------------- */

static struct wbk_id random_id(enum wbk_code code)
{
	struct wbk_id id = {.seed = wb_rng_u64(&rng),
		.code = (uint8_t)code,
		.is_mixed = below(3) == 0,
		.kind = (uint8_t)below(4),
		.shift = (uint8_t)below(20)};
	unsigned bits = wbk__is_mixed(code, id.is_mixed) ? WBK__MIXED_BITS : wbk_code_bits(code);

	if (id.kind == WBK_ID_SAME)
		bits = 8u * code_bytes[code];
	id.mask = (uint32_t)((1ull << bits) - 1);
	if (id.kind == WBK_ID_SAME)
		id.mask &= (uint32_t)wb_rng_u64(&rng);
	return id;
}

START_TEST(tensors_are_filled_as_the_reference_says)
{
	struct table t = table_of(WBK_GPU_FILL, wbk_host_fill, sizeof(struct wbk_fill));

	rng.state += (uint64_t)_i;
	wbt_shim_order = orders[_i % 3];
	for (uint64_t n = 1 + below(ITEMS); n > 0; n--) {
		enum wbk_code code = (enum wbk_code)(1 + below(WBK_CODE_COUNT - 1));
		size_t bytes;
		struct wbk_fill item = {.p = random_plane(code_bytes[code], &bytes),
			.id = random_id(code),
			.row = below(2) ? below(1u << 20) : below(1ull << 40)};

		add_buffer(&t, offsetof(struct wbk_fill, p.data), filled(bytes), bytes, 0);
		add_item(&t, &item, item.p.row_end - item.p.row_begin, item.p.cols, 1);
	}
	check_table(&t, 0);
}
END_TEST

static const enum wbk_code wire_code[WBK_CAST_COUNT] = {
	0, WBK_CODE_BF16, WBK_CODE_F32, WBK_CODE_F16, WBK_CODE_F32, WBK_CODE_BF16, WBK_CODE_F16};

/* An op of a source map, its memory filled by it but for some elements. */
static void add_check(struct table *t)
{
	unsigned cast = below(2) ? (unsigned)below(WBK_CAST_COUNT) : 0;
	enum wbk_code code =
		cast ? wire_code[cast] : (enum wbk_code)(1 + below(WBK_CODE_COUNT - 1));
	struct wbk_check k = {.at = below(1000),
		.row = below(1ull << 33),
		.col = below(5000),
		.rows = 1 + (uint32_t)below(80),
		.cols = 1 + (uint32_t)below(below(3) ? 40 : 300),
		.repeat = below(3) ? 1 : 1 + (uint32_t)below(3),
		.row_step = 1 + (uint32_t)below(3),
		.col_step = 1 + (uint32_t)below(3),
		.cast = (uint8_t)cast,
		.wire_elem = cast ? wire_of[cast] : code_bytes[code],
		.mem_elem = cast ? mem_of[cast] : code_bytes[code],
		.id = random_id(code)};
	int64_t side = (int64_t)k.cols + (int64_t)below(4), n, before = 0;
	bool is_transposed = below(3) == 0, is_reversed = below(4) == 0;
	uint8_t *mem;

	k.is_lossy = cast == WBK_F32_TO_BF16 || cast == WBK_F32_TO_F16 || cast >= WBK_BF16_TO_F16;
	k.row_stride = is_transposed ? 1 : side;
	k.col_stride = is_transposed ? (int64_t)k.rows : 1;
	n = is_transposed ? (int64_t)k.rows * k.cols : side * k.rows;
	k.repeat_stride = n + 3;
	n = k.repeat_stride * k.repeat;
	if (is_reversed) {
		before = (int64_t)(k.rows - 1) * k.row_stride;
		k.row_stride = -k.row_stride;
	}
	k.at += (uint64_t)before;
	mem = filled((size_t)n * k.mem_elem);
	for (uint64_t i = 0; i < (uint64_t)k.repeat * k.rows * k.cols; i++) {
		uint32_t c = (uint32_t)(i % k.cols), r = (uint32_t)(i / k.cols % k.rows);
		uint32_t word = wbk__id_word(
			&k.id, k.row + (uint64_t)r * k.row_step, k.col + (uint64_t)c * k.col_step);
		int64_t at = before + (int64_t)(i / k.cols / k.rows) * k.repeat_stride +
			     r * k.row_stride + c * k.col_stride;

		if (!below(100))
			continue;
		if (cast)
			wbk_cast_fwd((enum wbk_cast)cast, &word, mem + at * k.mem_elem, 1);
		else
			memcpy(mem + at * k.mem_elem, &word, k.mem_elem);
	}
	add_buffer(t, offsetof(struct wbk_check, data), mem, (size_t)n * k.mem_elem,
		(size_t)before * k.mem_elem);
	add_item(t, &k, k.rows, k.cols, k.repeat);
}

START_TEST(ops_are_checked_as_the_reference_says)
{
	struct table t = table_of(WBK_GPU_CHECK, wbk_host_check, sizeof(struct wbk_check));

	rng.state += (uint64_t)_i;
	wbt_shim_order = orders[_i % 3];
	for (uint64_t n = 1 + below(ITEMS); n > 0; n--)
		add_check(&t);
	check_table(&t, 0);
}
END_TEST

/* What is right is found right: the reference itself. */
START_TEST(an_op_that_holds_has_nothing_found)
{
	uint16_t mem[40];
	struct wbk_id id = {.seed = 5, .mask = 0x7fff, .code = WBK_CODE_BF16, .kind = WBK_ID_HASH};
	struct wbk_fill fill = {.p = {mem, 5, 8, 8, 0, 5, 2, {0}}, .id = id, .row = 11};
	struct wbk_check check = {.data = mem,
		.row_stride = 8,
		.col_stride = 1,
		.row = 11,
		.rows = 5,
		.cols = 8,
		.repeat = 1,
		.row_step = 1,
		.col_step = 1,
		.wire_elem = 2,
		.mem_elem = 2,
		.id = id};
	struct wbk_found out = wbk_found_none();
	struct wbk_scan_args a = {.item = &fill, .n_item = 1};

	wbk_host_fill(&a);
	a.item = &check;
	a.out = &out;
	wbk_host_check(&a);
	ck_assert_uint_eq(out.a.n, 0);
	mem[27] ^= 1;
	mem[33] ^= 1;
	wbk_host_check(&a);
	ck_assert_uint_eq(out.a.n, 2);
	ck_assert_uint_eq(out.a.first, 27);
	ck_assert_uint_eq(out.a.last, 33);
}
END_TEST

/* What a host makes of the hits of a row is the row. */
START_TEST(hits_of_a_row_say_what_its_elements_are)
{
	static const uint32_t words[] = {3, 0xfb, 0x5a, 9};
	uint8_t now[40], was[40], cls[40];
	struct wbk_hit hit[40];
	uint64_t n_hit = 0;
	struct wbk_classify k = {.p = {now, 1, 40, 40, 0, 1, 1, {0}},
		.was = was,
		.cls = cls,
		.first = 3,
		.second = 0xfb,
		.sentinel = 0x5a};
	struct wbk_found out = wbk_found_none();
	struct wbk_scan_args a = {&k, NULL, &out, hit, &n_hit, 40, 1, 0};
	int64_t kind = WBK_CLASS_COPY;

	for (int i = 0; i < 40; i++) {
		now[i] = (uint8_t)words[1 + below(3)];
		was[i] = below(2) ? 3 : now[i];
	}
	wbk_host_classify(&a);
	for (uint64_t i = 0, n = 0; i < 40; i++) {
		if (n < n_hit && hit[n].index == i)
			kind = hit[n++].value;
		ck_assert_int_eq(kind & 0xff, cls[i]);
		if (cls[i] == WBK_CLASS_CONSTANT)
			ck_assert_int_eq(kind >> 8, now[i]);
	}
}
END_TEST

START_TEST(a_table_has_as_many_tiles_as_a_launch_can_number)
{
	uint32_t first[2] = {5, 0};

	ck_assert_int_eq(wbk_tiles_add(first, 64, 256, 3), 0);
	ck_assert_uint_eq(first[1], 8);
	ck_assert_int_eq(wbk_tiles_add(first, 65, 257, 1), 0);
	ck_assert_uint_eq(first[1], 9);
	ck_assert_int_eq(wbk_tiles_add(first, 0, 257, 1), 0);
	ck_assert_uint_eq(first[1], 5);
	ck_assert_int_eq(wbk_tiles_add(first, 64, 256, INT32_MAX - 5), 0);
	ck_assert_int_eq(wbk_tiles_add(first, 64, 256, INT32_MAX - 4), -E2BIG);
	ck_assert_int_eq(wbk_tiles_add(first, UINT64_MAX, UINT64_MAX, UINT32_MAX), -E2BIG);
}
END_TEST

void wbt_scan_tests(Suite *suite, uint64_t seed)
{
	TCase *scan = tcase_create("scans");

	rng.state = seed;
	fx_add_points(scan, second_differences_are_the_reference_s, 0, 40);
	tcase_add_loop_test(scan, differences_at_a_seam_are_the_reference_s, 0,
		(int)(sizeof(seams) / sizeof(*seams)));
	fx_add_points(scan, what_differs_is_what_the_reference_says, 0, 40);
	fx_add_points(scan, classes_are_the_reference_s, 0, 40);
	fx_add_points(scan, elements_of_one_class_are_put_back_and_no_others, 0, 40);
	fx_add_points(scan, tensors_are_filled_as_the_reference_says, 0, 40);
	fx_add_points(scan, ops_are_checked_as_the_reference_says, 0, 60);
	tcase_add_test(scan, an_op_that_holds_has_nothing_found);
	tcase_add_test(scan, hits_of_a_row_say_what_its_elements_are);
	tcase_add_test(scan, a_table_has_as_many_tiles_as_a_launch_can_number);
	suite_add_tcase(suite, scan);
}
