/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pack, assemble and sum on a device: one launch for ops with the same bytes in memory and on the
 * wire, one for transposes, and one for all others.
 *
 * Blocks take tiles in turns, and sum in the same pass in which they move.  wbk_gpu_rows moves rows
 * between wire and memory: groups of lanes use the widest accesses that the alignment of both sides
 * allows.  wbk_gpu_turns moves squares of a transpose, with wide accesses on both sides; a thread
 * has a square in registers.  wbk_gpu_image casts four elements at a time where alignment allows
 * it.  It moves all others through an image of the tile's wire bytes in shared memory; the image is
 * filled from memory, or emptied into memory, in the order in which elements are neighbours in
 * memory.
 *
 * The speed depends on how many loads are under way: blocks of a multiprocessor times loads of a
 * lane.  So a kernel uses as few registers as possible.  This is why there are three kernels, and
 * why values that the threads of a block have in common lie in shared memory.  What the compiler
 * spills belongs to the beginning of a tile.
 */
#include "kernels/move_body.h"

/* ---- rows ------------------------------------------------------------------------------------ */

/* Go on to the next copy of each row. */
DEV void next_copy(struct tile *t)
{
	__syncthreads(); /* no thread is at the previous copy any more */
	for (uint32_t i = threadIdx.x; i < t->n_row; i += blockDim.x)
		t->row[MEMORY][i] += t->o->repeat_stride;
	__syncthreads();
}

WBK_KERNEL(wbk_gpu_rows, WBK__BLOCKS_ROWS)(const struct wbk_move_args a)
{
	__shared__ struct tile t;
	struct sums sum = {{{0, 0}}, 0};
	uint32_t n_tile = a.first[a.n_op];
	enum place from = a.way == WBK_WAY_ASSEMBLE ? WIRE : MEMORY;
	enum place to = a.way == WBK_WAY_ASSEMBLE ? MEMORY : a.wire ? WIRE : NOWHERE;

	load_table(&t, &a);
	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		begin_tile(&t, &a, i, &sum);
		move_all(&t, NULL, a.sum ? a.keys : NULL, from, to, &sum.acc);
		for (uint32_t k = 1; to == MEMORY && k < t.o->repeat; k++) {
			next_copy(&t);
			move_all(&t, NULL, NULL, from, to, &sum.acc); /* copies are not summed */
		}
	}
	if (a.sum)
		hand_in(&a, &sum);
}

/* ---- the image and memory -------------------------------------------------------------------- */

DEV uint8_t *memory_at(const struct tile *t, uint32_t row, uint32_t col)
{
	return row_at(t, NULL, MEMORY, row) + (int64_t)col * t->o->mem_stride[3];
}

DEV uint8_t *image_at(const struct tile *t, uint4 *image, uint32_t row, uint32_t col)
{
	return row_at(t, image, IMAGE, row) + (size_t)col * t->o->wire_elem;
}

/* The row and column of element @i of the tile, in the order of memory. */
DEV void element(const struct tile *t, uint32_t i, uint32_t *row, uint32_t *col)
{
	if (t->o->row_dim == 3) {
		*row = i / t->n_col;
		*col = i % t->n_col;
	} else {
		*row = i % t->n_row;
		*col = i / t->n_row;
	}
}

/* Move one element at a time: for tiles that no faster way below can move. */
DEV void gather_each(const struct tile *t, uint4 *image)
{
	const struct wbk_op *o = t->o;

	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row, col;

		element(t, i, &row, &col);
		store_bits(image_at(t, image, row, col), o->wire_elem,
			cast_one(cast_back(o->cast),
				load_bits(memory_at(t, row, col), o->mem_elem)));
	}
}

DEV void scatter_each(const struct tile *t, uint4 *image)
{
	const struct wbk_op *o = t->o;

	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row, col, k = 0;
		uint64_t x = o->value;
		uint8_t *mem;

		element(t, i, &row, &col);
		if (!o->is_fill)
			x = cast_one(
				o->cast, load_bits(image_at(t, image, row, col), o->wire_elem));
		mem = memory_at(t, row, col);
		do {
			store_bits(mem, o->mem_elem, x);
			mem += o->repeat_stride;
		} while (++k < o->repeat);
	}
}

/* Load the words of a wide access. */
DEV void load_line(uint32_t *w, const void *p)
{
	uint4 x = read_wide(p, 1);

	w[0] = x.x;
	w[1] = x.y;
	w[2] = x.z;
	w[3] = x.w;
}

DEV uint4 line_of(const uint32_t *w)
{
	uint4 x;

	x.x = w[0];
	x.y = w[1];
	x.z = w[2];
	x.w = w[3];
	return x;
}

/*
 * A flat tile with a cast is moved without an image.  At a time, a thread takes what is one wide
 * access on the wire; in memory this is half of a wide access, one, or two.
 */
struct four {
	uint32_t w[4]; /* elements; those of 2 bytes are in the first two words */
};

DEV struct four load_four(const uint8_t *p, unsigned elem)
{
	struct four r = {{0, 0, 0, 0}};

	if (elem == 4) {
		load_line(r.w, p);
	} else {
		uint64_t x = *(const uint64_t *)(const void *)p;

		r.w[0] = (uint32_t)x;
		r.w[1] = (uint32_t)(x >> 32);
	}
	return r;
}

DEV void store_four(uint8_t *p, unsigned elem, const struct four *v)
{
	if (elem == 4)
		write_wide(p, line_of(v->w), 1);
	else
		*(uint64_t *)(void *)p = v->w[0] | (uint64_t)v->w[1] << 32;
}

DEV struct four cast_four(const uint32_t *v, unsigned from, unsigned to, unsigned cast)
{
	struct four r = {{0, 0, 0, 0}};

	WBK_UNROLL
	for (unsigned k = 0; k < 4; k++) {
		uint32_t x = from == 4 ? v[k] : v[k / 2] >> 16 * (k % 2) & 0xffff;

		x = (uint32_t)cast_one(cast, x);
		if (to == 4)
			r.w[k] = x;
		else
			r.w[k / 2] |= x << 16 * (k % 2);
	}
	return r;
}

/* How an op casts.  These are constants in each call but the last, which is for rare casts. */
struct casting {
	unsigned wire_elem, mem_elem, cast;
};

/* Cast elements at @mem to what they are on the wire. */
DEV void pack_wide(const struct casting *c, uint32_t *wire, const uint8_t *mem)
{
	WBK_UNROLL
	for (unsigned g = 0; g < 4 / c->wire_elem; g++) {
		struct four x = load_four(mem + 4 * g * c->mem_elem, c->mem_elem);

		x = cast_four(x.w, c->mem_elem, c->wire_elem, cast_back(c->cast));
		WBK_UNROLL
		for (unsigned k = 0; k < c->wire_elem; k++)
			wire[g * c->wire_elem + k] = x.w[k];
	}
}

DEV void assemble_wide(const struct casting *c, const uint32_t *wire, uint8_t *mem)
{
	WBK_UNROLL
	for (unsigned g = 0; g < 4 / c->wire_elem; g++) {
		struct four x =
			cast_four(wire + g * c->wire_elem, c->wire_elem, c->mem_elem, c->cast);

		store_four(mem + 4 * g * c->mem_elem, c->mem_elem, &x);
	}
}

DEV void move_casts(const struct tile *t, const struct wbk_move_args *a, const struct casting c,
	struct acc *sum)
{
	uint32_t down = blockDim.x / t->across, right = blockDim.x % t->across;
	struct spot p = {threadIdx.x / t->across, threadIdx.x % t->across};
	int is_assemble = a->way == WBK_WAY_ASSEMBLE;

	WBK_ROLLED
	for (; p.row < t->n_row; next_spot(t->across, &p, down, right)) {
		uint8_t *mem = memory_at(t, p.row, p.i * (WIDE / c.wire_elem));
		uint32_t w[4] = {0, 0, 0, 0};
		uint4 x;

		if (is_assemble) {
			load_line(w, wide_at(t, NULL, WIRE, &p));
			assemble_wide(&c, w, mem);
		} else {
			pack_wide(&c, w, mem);
		}
		x = line_of(w);
		if (a->wire && !is_assemble)
			write_wide(wide_at(t, NULL, WIRE, &p), x, 1);
		if (a->sum)
			add_flat(t, p.row, p.i, &x, sum);
	}
}

DEV int is_casts(const struct tile *t)
{
	const struct wbk_op *o = t->o;
	unsigned wide = o->mem_elem < o->wire_elem ? WIDE / 2 : WIDE;

	return t->is_flat && o->row_dim == 3 && o->cast != WBK_COPY && o->repeat <= 1 &&
	       o->mem_stride[3] == o->mem_elem &&
	       ((uintptr_t)row_at(t, NULL, MEMORY, 0) | (uintptr_t)o->mem_stride[0] |
		       (uintptr_t)o->mem_stride[1] | (uintptr_t)o->mem_stride[2]) %
			       wide ==
		       0;
}

DEV void move_cast(const struct tile *t, const struct wbk_move_args *a, struct acc *sum)
{
	switch (t->o->cast) {
	case WBK_BF16_TO_F32:
		move_casts(t, a, (struct casting){2, 4, WBK_BF16_TO_F32}, sum);
		return;
	case WBK_F32_TO_BF16:
		move_casts(t, a, (struct casting){4, 2, WBK_F32_TO_BF16}, sum);
		return;
	case WBK_F16_TO_F32:
		move_casts(t, a, (struct casting){2, 4, WBK_F16_TO_F32}, sum);
		return;
	case WBK_F32_TO_F16:
		move_casts(t, a, (struct casting){4, 2, WBK_F32_TO_F16}, sum);
		return;
	default:
		move_casts(t, a, (struct casting){2, 2, t->o->cast}, sum);
	}
}

/* All threads of the block take the same branches here. */
DEV void move_tile(
	const struct tile *t, uint4 *image, const struct wbk_move_args *a, struct acc *sum)
{
	const struct wbk_sum_keys *k = a->sum ? a->keys : NULL;

	if (is_casts(t)) {
		move_cast(t, a, sum);
	} else if (a->way == WBK_WAY_ASSEMBLE) {
		if (!t->o->is_fill)
			move_all(t, image, k, WIRE, IMAGE, sum);
		__syncthreads();
		scatter_each(t, image);
	} else {
		gather_each(t, image);
		__syncthreads();
		move_all(t, image, k, IMAGE, a->wire ? WIRE : NOWHERE, sum);
	}
}

WBK_KERNEL(wbk_gpu_image, WBK__BLOCKS)(const struct wbk_move_args a)
{
	__shared__ struct tile t;
	__shared__ uint4 image[WBK__TILE_IMAGE / sizeof(uint4)];
	struct sums sum = {{{0, 0}}, 0};
	uint32_t n_tile = a.first[a.n_op];

	load_table(&t, &a);
	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		begin_tile(&t, &a, i, &sum);
		move_tile(&t, image, &a, &sum.acc);
	}
	if (a.sum)
		hand_in(&a, &sum);
}

/* ---- transposes --------------------------------------------------------------------------------
 */

/*
 * A transposed tile is moved by squares, without an image.  The rows and columns of a square are 16
 * bytes long: in memory each of its columns is a line of 16 bytes, and on the wire each of its rows
 * is one.  A thread has a square in registers.  The lanes of a warp take 4 squares side by side on
 * the wire, which are two sectors of a line there, and 8 below each other, which are a whole line
 * in memory.
 */
#define SQUARES_ACROSS 4u
#define SQUARES_DOWN (32u / SQUARES_ACROSS)

struct square {
	uint32_t w[WIDE / 2][WIDE / 4]; /* lines, words; 4-byte elements use half of the lines */
};

/* Transpose a square.  @elem is a constant in each call, so that squares stay in registers. */
DEV struct square turned(const struct square *s, const unsigned elem)
{
	struct square r = *s;

	WBK_UNROLL
	for (unsigned i = 0; i < WIDE / 4; i++) {
		WBK_UNROLL
		for (unsigned j = 0; j < WIDE / 4; j++) {
			if (elem == 4) {
				r.w[j][i] = s->w[i][j];
			} else {
				uint32_t a = s->w[2 * i][j], b = s->w[2 * i + 1][j];

				r.w[2 * j][i] = (a & 0xffff) | b << 16;
				r.w[2 * j + 1][i] = a >> 16 | (b & 0xffff0000);
			}
		}
	}
	return r;
}

DEV void sum_line(const struct tile *t, const struct spot *p, const uint32_t *w, struct acc *sum)
{
	uint4 x = line_of(w);

	add_flat(t, p->row, p->i, &x, sum);
}

/* Move a square to the wire: @p is the wide access of its first row there. */
DEV void square_to_wire(const struct tile *t, const struct wbk_move_args *a, struct spot p,
	const unsigned elem, const uint8_t *mem, struct acc *sum)
{
	struct square s;

	WBK_UNROLL
	for (unsigned i = 0; i < WIDE / elem; i++, mem += t->o->mem_stride[3])
		load_line(s.w[i], mem);
	s = turned(&s, elem);
	WBK_UNROLL
	for (unsigned i = 0; i < WIDE / elem; i++, p.row++) {
		if (a->wire)
			write_wide(wide_at(t, NULL, WIRE, &p), line_of(s.w[i]), 1);
		if (a->sum)
			sum_line(t, &p, s.w[i], sum);
	}
}

DEV void square_to_memory(const struct tile *t, const struct wbk_move_args *a, struct spot p,
	const unsigned elem, uint8_t *mem, struct acc *sum)
{
	struct spot q = p;
	struct square s;

	WBK_UNROLL
	for (unsigned i = 0; i < WIDE / elem; i++, q.row++)
		load_line(s.w[i], wide_at(t, NULL, WIRE, &q));
	WBK_UNROLL
	for (unsigned i = 0; i < WIDE / elem && a->sum; i++, p.row++)
		sum_line(t, &p, s.w[i], sum);
	s = turned(&s, elem);
	WBK_UNROLL
	for (unsigned i = 0; i < WIDE / elem; i++, mem += t->o->mem_stride[3])
		write_wide(mem, line_of(s.w[i]), 1);
}

DEV void move_squares(
	const struct tile *t, const struct wbk_move_args *a, const unsigned elem, struct acc *sum)
{
	uint32_t side = WIDE / elem, across = (t->across - 1) / SQUARES_ACROSS + 1;
	uint32_t down = (t->n_row / side - 1) / SQUARES_DOWN + 1, lane = threadIdx.x % 32;

	WBK_ROLLED
	for (uint32_t i = threadIdx.x / 32; i < across * down; i += blockDim.x / 32) {
		struct spot p = {(i / across * SQUARES_DOWN + lane / SQUARES_ACROSS) * side,
			i % across * SQUARES_ACROSS + lane % SQUARES_ACROSS};
		uint8_t *mem;

		if (p.row >= t->n_row || p.i >= t->across)
			continue;
		mem = memory_at(t, p.row, p.i * side);
		if (a->way == WBK_WAY_ASSEMBLE)
			square_to_memory(t, a, p, elem, mem, sum);
		else
			square_to_wire(t, a, p, elem, mem, sum);
	}
}

/* Move a transposed tile element by element, since its memory or its wire is not aligned. */
DEV void turn_each(const struct tile *t, const struct wbk_move_args *a, struct acc *sum)
{
	const unsigned elem = t->o->wire_elem;

	WBK_ROLLED
	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row, col;
		uint8_t *mem, *wire;
		uint64_t x;

		element(t, i, &row, &col);
		mem = memory_at(t, row, col);
		wire = a->wire ? row_at(t, NULL, WIRE, row) + (size_t)col * elem : NULL;
		x = load_bits(a->way == WBK_WAY_ASSEMBLE ? wire : mem, elem);
		if (wire)
			store_bits(a->way == WBK_WAY_ASSEMBLE ? mem : wire, elem, x);
		if (a->sum)
			sum_element(t, a->keys, row, col, x, sum);
	}
}

DEV void turn(const struct tile *t, const struct wbk_move_args *a, struct acc *sum)
{
	if (!t->is_flat || (uintptr_t)row_at(t, NULL, MEMORY, 0) % WIDE)
		turn_each(t, a, sum);
	else if (t->o->wire_elem == 2)
		move_squares(t, a, 2, sum);
	else
		move_squares(t, a, 4, sum);
}

WBK_KERNEL(wbk_gpu_turns, WBK__BLOCKS)(const struct wbk_move_args a)
{
	__shared__ struct tile t;
	struct sums sum = {{{0, 0}}, 0};
	uint32_t n_tile = a.first[a.n_op];

	load_table(&t, &a);
	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		begin_tile(&t, &a, i, &sum);
		turn(&t, &a, &sum.acc);
	}
	if (a.sum)
		hand_in(&a, &sum);
}
