/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pack and assemble: move boxes between parameters and the wire.
 *
 * There are three ways, best first.  Rows whose elements are adjacent in memory, and are not cast,
 * are copied and summed in one pass.  Transposed boxes (the elements of a column are adjacent in
 * memory) are moved by tiles, with block transposes.  All other boxes are moved by tiles, row by
 * row.  Casts go through a small buffer on the stack where they cannot go directly.  Tiles are so
 * small that the sum finds the wire bytes in the cache.
 */
#include <assert.h>
#include <string.h>

#include "kernels/internal.h"

#define TILE_BYTES (32u << 10)
#define STREAM_MIN_BYTES (512u << 10) /* below this the caches may still help the next reader */

struct job {
	const struct wbk_sum_keys *keys;
	struct wbk_sum *sum; /* NULL = no sum */
	struct wbk_box b;
	uint8_t *mem, *wire; /* element (0, 0); wire NULL = only sum */
	bool pack, stream;
	bool cold; /* pack: the wire buffer is not read again soon */
};

static bool is_one_pos_run(const struct wbk_box *b)
{
	return b->pos_col_stride == b->wire_elem || b->n_col == 1;
}

/* Give the box fewer, longer rows with the same elements, where this is possible. */
static void normalise(struct job *j)
{
	struct wbk_box *b = &j->b;

	if (b->n_col == 1) {
		b->n_col = b->n_row;
		b->n_row = 1;
		b->col_stride = b->row_stride;
		b->pos_col_stride = b->pos_row_stride;
	}
	if (b->n_col == 1) {
		b->col_stride = b->mem_elem;
		b->pos_col_stride = b->wire_elem;
	}
	if (b->n_row == 1) {
		b->row_stride = (int64_t)b->n_col * b->col_stride;
		b->pos_row_stride = b->n_col * b->pos_col_stride;
	} else if (b->row_stride == (int64_t)b->n_col * b->col_stride &&
		   (!j->sum || b->pos_row_stride == b->n_col * b->pos_col_stride) &&
		   (uint64_t)b->n_row * b->n_col <= UINT32_MAX) {
		b->n_col *= b->n_row;
		b->n_row = 1;
	}
}

struct tile {
	uint8_t *wire, *mem; /* element (0, 0) of the tile */
	int64_t pitch; /* bytes from row to row of wire */
	size_t r, c, n_row, n_col;
};

/* Add the wire image of a tile to the sum. */
static void sum_tile(const struct job *j, const struct tile *t)
{
	const struct wbk_box *b = &j->b;
	uint64_t pos = b->pos + t->r * b->pos_row_stride + t->c * b->pos_col_stride;
	struct wbk__rows rows = {.pos = pos,
		.pos_stride = b->pos_row_stride,
		.src = t->wire,
		.src_stride = t->pitch,
		.row_bytes = t->n_col * b->wire_elem,
		.n_row = t->n_row};

	if (is_one_pos_run(b)) {
		wbk__rows_sum(j->keys, &rows, j->sum);
		return;
	}
	for (size_t i = 0; i < t->n_row; i++)
		for (size_t k = 0; k < t->n_col; k++)
			wbk_sum_add(j->keys, pos + i * b->pos_row_stride + k * b->pos_col_stride,
				t->wire + (int64_t)i * t->pitch + k * b->wire_elem, b->wire_elem,
				j->sum);
}

/* The whole box as one tile. */
static struct tile whole(const struct job *j)
{
	return (struct tile){.wire = j->wire,
		.mem = j->mem,
		.pitch = (int64_t)j->b.n_col * j->b.wire_elem,
		.n_row = j->b.n_row,
		.n_col = j->b.n_col};
}

static inline __attribute__((always_inline)) void move_row(size_t elem, const uint8_t *src,
	int64_t src_stride, uint8_t *dst, int64_t dst_stride, size_t n)
{
	for (size_t i = 0; i < n; i++)
		memcpy(dst + (int64_t)i * dst_stride, src + (int64_t)i * src_stride, elem);
}

static void move_strided(size_t elem, const uint8_t *src, int64_t src_stride, uint8_t *dst,
	int64_t dst_stride, size_t n)
{
	switch (elem) {
	case 1:
		move_row(1, src, src_stride, dst, dst_stride, n);
		break;
	case 2:
		move_row(2, src, src_stride, dst, dst_stride, n);
		break;
	case 4:
		move_row(4, src, src_stride, dst, dst_stride, n);
		break;
	default:
		move_row(elem, src, src_stride, dst, dst_stride, n);
	}
}

/* Copy dense rows of memory elements at @dense, @pitch bytes apart, to the memory of a tile.
 * mem_to_dense() does the reverse. */
static void dense_to_mem(const struct job *j, const struct tile *t, uint8_t *dense, int64_t pitch)
{
	const struct wbk_box *b = &j->b;

	if (b->row_stride == b->mem_elem && b->col_stride != b->mem_elem && t->n_row > 1) {
		struct wbk__grid g = {.src = dense,
			.dst = t->mem,
			.src_stride = pitch,
			.dst_stride = b->col_stride,
			.n_a = t->n_row,
			.n_b = t->n_col,
			.ahead = dense == t->wire ? (int64_t)t->n_col * b->wire_elem : 0};

		wbk__transpose(b->mem_elem, &g, j->stream);
		return;
	}
	for (size_t r = 0; r < t->n_row; r++) {
		uint8_t *mem = t->mem + (int64_t)r * b->row_stride;

		if (b->col_stride == b->mem_elem && j->stream)
			wbk__copy_stream(mem, dense + (int64_t)r * pitch, t->n_col * b->mem_elem);
		else
			move_strided(b->mem_elem, dense + (int64_t)r * pitch, b->mem_elem, mem,
				b->col_stride, t->n_col);
	}
}

static void mem_to_dense(const struct job *j, const struct tile *t, uint8_t *dense, int64_t pitch)
{
	const struct wbk_box *b = &j->b;

	if (b->row_stride == b->mem_elem && b->col_stride != b->mem_elem && t->n_row > 1) {
		struct wbk__grid g = {.src = t->mem,
			.dst = dense,
			.src_stride = b->col_stride,
			.dst_stride = pitch,
			.n_a = t->n_col,
			.n_b = t->n_row,
			.ahead = (int64_t)t->n_col * b->col_stride};

		wbk__transpose(b->mem_elem, &g, false);
		return;
	}
	for (size_t r = 0; r < t->n_row; r++)
		move_strided(b->mem_elem, t->mem + (int64_t)r * b->row_stride, b->col_stride,
			dense + (int64_t)r * pitch, b->mem_elem, t->n_col);
}

static void tile_pack(const struct job *j, const struct tile *t)
{
	const struct wbk_box *b = &j->b;
	int64_t pitch = (int64_t)t->n_col * b->mem_elem;
	_Alignas(64) uint8_t buf[TILE_BYTES];

	if (b->cast == WBK_COPY) {
		mem_to_dense(j, t, t->wire, t->pitch);
		return;
	}
	if (b->col_stride != b->mem_elem)
		mem_to_dense(j, t, buf, pitch);
	for (size_t r = 0; r < t->n_row; r++)
		wbk_cast_back(b->cast,
			b->col_stride == b->mem_elem ? t->mem + (int64_t)r * b->row_stride
						     : buf + (int64_t)r * pitch,
			t->wire + (int64_t)r * t->pitch, t->n_col);
}

static void tile_assemble(const struct job *j, const struct tile *t)
{
	const struct wbk_box *b = &j->b;
	int64_t pitch = (int64_t)t->n_col * b->mem_elem;
	_Alignas(64) uint8_t buf[TILE_BYTES];
	uint8_t *dense = b->cast == WBK_COPY ? t->wire : buf;
	bool direct =
		b->col_stride == b->mem_elem && b->cast != WBK_COPY && b->repeat == 1 && !j->stream;

	if (b->cast == WBK_COPY)
		pitch = t->pitch;
	for (size_t r = 0; b->cast != WBK_COPY && r < t->n_row; r++)
		wbk_cast_fwd(b->cast, t->wire + (int64_t)r * t->pitch,
			direct ? t->mem + (int64_t)r * b->row_stride : buf + (int64_t)r * pitch,
			t->n_col);
	for (uint32_t i = 0; !direct && i < b->repeat; i++) {
		struct tile copy = *t;

		copy.mem += (int64_t)i * b->repeat_stride;
		dense_to_mem(j, &copy, dense, pitch);
	}
}

/* Choose the shape of tiles so that both sides move whole cache lines.  What goes through a buffer
 * fits there in either dtype. */
static void tile_shape(const struct job *j, size_t *rows, size_t *cols)
{
	const struct wbk_box *b = &j->b;
	size_t elem = b->mem_elem > b->wire_elem ? b->mem_elem : b->wire_elem;
	bool transposed = b->row_stride == b->mem_elem && b->n_row > 1;

	if (transposed && j->pack) {
		*rows = 64;
		*cols = 512 / elem;
	} else if (transposed) {
		*rows = 128 / b->mem_elem;
		*cols = (b->cast == WBK_COPY ? 1024u : 512u) / b->wire_elem;
		if (*rows * *cols * elem > TILE_BYTES && b->cast != WBK_COPY)
			*cols = TILE_BYTES / (*rows * elem);
	} else {
		*cols = TILE_BYTES / elem;
		*rows = b->n_col < *cols ? *cols / b->n_col : 1;
	}
}

static void by_tiles(struct job *j)
{
	const struct wbk_box *b = &j->b;
	size_t rows, cols, lead = 0;
	_Alignas(64) uint8_t sink[TILE_BYTES];

	tile_shape(j, &rows, &cols);
	/* Make tiles end where cache lines of memory end. */
	if (b->row_stride == b->mem_elem && (uintptr_t)j->mem % b->mem_elem == 0)
		lead = (-(uintptr_t)j->mem & 63) / b->mem_elem;
	for (size_t r = 0, nr; r < b->n_row; r += nr) {
		nr = !r && lead ? lead : rows;
		if (nr > b->n_row - r)
			nr = b->n_row - r;
		for (size_t c = 0, nc; c < b->n_col; c += nc) {
			struct tile t = whole(j);

			t.r = r;
			t.c = c;
			t.n_row = nr;
			t.n_col = nc = b->n_col - c < cols ? b->n_col - c : cols;
			t.mem += (int64_t)r * b->row_stride + (int64_t)c * b->col_stride;
			if (j->wire)
				t.wire += (int64_t)r * t.pitch + c * b->wire_elem;
			else
				t.pitch = (int64_t)nc * b->wire_elem;
			if (!j->wire)
				t.wire = sink;
			if (j->pack)
				tile_pack(j, &t);
			if (j->sum)
				sum_tile(j, &t);
			if (!j->pack)
				tile_assemble(j, &t);
		}
	}
	if (j->stream)
		wbk__stream_fence();
}

static void by_rows(struct job *j)
{
	const struct wbk_box *b = &j->b;
	int64_t pitch = (int64_t)b->n_col * b->wire_elem;
	struct wbk__rows r = {.pos = b->pos,
		.pos_stride = b->pos_row_stride,
		.src = j->pack ? j->mem : j->wire,
		.dst = j->pack ? j->wire : j->mem,
		.src_stride = j->pack ? b->row_stride : pitch,
		.dst_stride = j->pack ? pitch : b->row_stride,
		.row_bytes = (size_t)pitch,
		.n_row = b->n_row,
		.stream = j->stream};

	if (j->sum && is_one_pos_run(b)) {
		wbk__rows_sum(j->keys, &r, j->sum);
	} else {
		struct tile t = whole(j);

		if (j->wire)
			wbk__rows_copy(&r);
		if (!j->wire) { /* the memory is its own wire image */
			t.wire = j->mem;
			t.pitch = b->row_stride;
		}
		if (j->sum)
			sum_tile(j, &t);
	}
	for (uint32_t i = 1; !j->pack && i < b->repeat; i++) {
		r.dst = j->mem + (int64_t)i * b->repeat_stride;
		wbk__rows_copy(&r);
	}
	if (j->stream)
		wbk__stream_fence();
}

static void box_move(struct job *j)
{
	struct wbk_box *b = &j->b;
	bool by_row;

	assert(wbk__cast_ok(b->cast, b->wire_elem, b->mem_elem));
	if (!b->n_row || !b->n_col)
		return;
	b->repeat += !b->repeat;
	normalise(j);
	by_row = b->cast == WBK_COPY && b->col_stride == b->mem_elem;
	j->stream = (j->pack ? j->cold && by_row : true) &&
		    (uint64_t)b->n_row * b->n_col * b->mem_elem >= STREAM_MIN_BYTES;
	if (by_row)
		by_rows(j);
	else
		by_tiles(j);
}

static void pack(void *const *bases, const struct wbk_box *box, size_t n, void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum, bool cold)
{
	assert(!n || (bases && box && wire && (keys || !sum)));
	for (size_t i = 0; i < n; i++) {
		struct job j = {.keys = keys,
			.sum = sum,
			.b = box[i],
			.mem = (uint8_t *)bases[box[i].base] + box[i].mem_off,
			.wire = (uint8_t *)wire + box[i].wire_off,
			.pack = true,
			.cold = cold};

		box_move(&j);
	}
}

void wbk_pack(void *const *bases, const struct wbk_box *box, size_t n, void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum)
{
	pack(bases, box, n, wire, keys, sum, false);
}

void wbk_pack_cold(void *const *bases, const struct wbk_box *box, size_t n, void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum)
{
	pack(bases, box, n, wire, keys, sum, true);
}

void wbk_assemble(void *const *bases, const struct wbk_box *box, size_t n, const void *wire,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum)
{
	assert(!n || (bases && box && wire && (keys || !sum)));
	for (size_t i = 0; i < n; i++) {
		struct job j = {.keys = keys,
			.sum = sum,
			.b = box[i],
			.mem = (uint8_t *)bases[box[i].base] + box[i].mem_off,
			.wire = (uint8_t *)(uintptr_t)wire + box[i].wire_off};

		box_move(&j);
	}
}

void wbk_sum_mem(void *const *bases, const struct wbk_box *box, size_t n,
	const struct wbk_sum_keys *keys, struct wbk_sum *sum)
{
	assert(!n || (bases && box && keys && sum));
	for (size_t i = 0; i < n; i++) {
		struct job j = {.keys = keys,
			.sum = sum,
			.b = box[i],
			.mem = (uint8_t *)bases[box[i].base] + box[i].mem_off,
			.pack = true};

		box_move(&j);
	}
}

int wbk_box_fits(const struct wbk_box *b, uint64_t mem_bytes, uint64_t wire_bytes)
{
	const int64_t stride[3] = {b->row_stride, b->col_stride, b->repeat_stride};
	const uint32_t count[3] = {b->n_row, b->n_col, b->repeat};
	__int128 lo = (__int128)b->mem_off, hi = lo + b->mem_elem;

	if (!wbk__cast_ok(b->cast, b->wire_elem, b->mem_elem))
		return 0;
	if (!b->n_row || !b->n_col)
		return 1;
	for (int i = 0; i < 3; i++) {
		__int128 span = count[i] ? (__int128)(count[i] - 1) * stride[i] : 0;

		if (span < 0)
			lo += span;
		else
			hi += span;
	}
	return lo >= 0 && hi <= (__int128)mem_bytes &&
	       (unsigned __int128)b->wire_off +
			       (unsigned __int128)b->n_row * b->n_col * b->wire_elem <=
		       wire_bytes;
}
