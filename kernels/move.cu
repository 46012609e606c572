/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pack, assemble and sum on a device: a launch for what is the same bytes in memory and on the
 * wire, and one for all else.
 *
 * Blocks take tiles in turns.  Wire bytes are always moved as rows, by groups of lanes with the
 * widest accesses that both sides' alignment allows, and summed in the same pass.  wbk_gpu_rows
 * moves rows between wire and memory.  wbk_gpu_image (casts, strides, transposes) moves them
 * between the wire and an image of the tile's wire bytes in shared memory, which is filled from or
 * emptied into memory in the order in which memory's elements are neighbours.
 *
 * What decides the speed is how many loads are under way: blocks of a multiprocessor times loads of
 * a lane.  So a kernel has as few registers as can be, which is why there are two, and why what a
 * block's threads have in common lies in shared memory; what is spilled is of a tile's beginning.
 */
#include "kernels/move_body.h"

/* ---- rows ------------------------------------------------------------------------------------ */

/* The next copy of each row. */
DEV void next_copy(struct tile *t)
{
	__syncthreads(); /* nobody is at the one before */
	for (uint32_t i = threadIdx.x; i < t->n_row; i += blockDim.x)
		t->row[MEMORY][i] += t->o->repeat_stride;
	__syncthreads();
}

WBK_KERNEL(wbk_gpu_rows, WBK__BLOCKS)(const struct wbk_move_args a)
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

/* Element @i of the tile in the order of memory. */
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

/* One element a turn: what nothing below is made for. */
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

/* Four elements in a row of memory and image, with a cast between: each side one access. */
#define CAST_RUN 4u

struct four {
	uint64_t x[2]; /* of 2 bytes: all in the first */
};

DEV struct four load_four(const uint8_t *p, unsigned elem)
{
	struct four r = {{load_bits(p, 8), 0}};

	if (elem == 4)
		r.x[1] = load_bits(p + 8, 8);
	return r;
}

DEV void store_four(uint8_t *p, unsigned elem, const struct four *v)
{
	store_bits(p, 8, v->x[0]);
	if (elem == 4)
		store_bits(p + 8, 8, v->x[1]);
}

DEV struct four cast_four(const struct four *v, unsigned from, unsigned to, unsigned cast)
{
	struct four r = {{0, 0}};

	WBK_UNROLL
	for (unsigned k = 0; k < CAST_RUN; k++) {
		uint64_t x = from == 4 ? v->x[k / 2] >> 32 * (k % 2) & 0xffffffff
				       : v->x[0] >> 16 * k & 0xffff;

		x = cast_one(cast, x);
		if (to == 4)
			r.x[k / 2] |= x << 32 * (k % 2);
		else
			r.x[0] |= x << 16 * k;
	}
	return r;
}

/* @n elements from one side to the other. */
DEV void cast_run(const struct wbk_op *o, uint8_t *mem, uint8_t *wire, uint32_t n, int is_gather)
{
	const uint8_t *src = is_gather ? mem : wire;
	uint8_t *dst = is_gather ? wire : mem;
	unsigned from = is_gather ? o->mem_elem : o->wire_elem;
	unsigned to = is_gather ? o->wire_elem : o->mem_elem;
	unsigned cast = is_gather ? cast_back(o->cast) : o->cast;
	struct four v;

	if (n == CAST_RUN) {
		v = load_four(src, from);
		v = cast_four(&v, from, to, cast);
		store_four(dst, to, &v);
		return;
	}
	WBK_ROLLED
	for (uint32_t k = 0; k < n; k++)
		store_bits(dst + k * to, to, cast_one(cast, load_bits(src + k * from, from)));
}

DEV void cast_runs(const struct tile *t, uint4 *image, int is_gather)
{
	uint32_t across = (t->n_col - 1) / CAST_RUN + 1;

	for (uint32_t i = threadIdx.x; i < t->n_row * across; i += blockDim.x) {
		uint32_t row = i / across, col = i % across * CAST_RUN, left = t->n_col - col;

		cast_run(t->o, memory_at(t, row, col), image_at(t, image, row, col),
			left < CAST_RUN ? left : CAST_RUN, is_gather);
	}
}

/*
 * Elements down the rows that are neighbours in memory, where they fill one wide access: a run. Two
 * lanes take neighbours in memory, a whole sector of it; the pairs of a warp take columns side by
 * side, which are neighbours in the image.  A spot is a pair's: rows of 2 * max elements, columns.
 */
struct run {
	uint8_t *mem; /* of the first element */
	uint32_t row, col, n; /* n: elements; 0 = none */
};

DEV struct run run_at(const struct tile *t, const struct spot *p, unsigned max)
{
	struct run r = {NULL, (p->row * 2 + threadIdx.x % 2) * max, p->i, 0};

	if (r.row < t->n_row) {
		r.n = t->n_row - r.row < max ? t->n_row - r.row : max;
		r.mem = row_at(t, NULL, MEMORY, r.row) + (int64_t)r.col * t->o->mem_stride[3];
	}
	return r;
}

DEV int is_whole(const struct run *r, unsigned max)
{
	return r->n == max && (uintptr_t)r->mem % WIDE == 0;
}

/* @elem is a constant in each call, so that x stays in registers.  @image: of the run's first. */
DEV void gather_run(uint8_t *image, uint32_t pitch, const uint4 *v, const unsigned elem)
{
	uint32_t x[4] = {v->x, v->y, v->z, v->w};

	WBK_UNROLL
	for (unsigned k = 0; k < WIDE / elem; k++, image += pitch) {
		if (elem == 2)
			*(uint16_t *)(void *)image = (uint16_t)(x[k / 2] >> 16 * (k % 2));
		else
			*(uint32_t *)(void *)image = x[k % 4];
	}
}

DEV void scatter_run(const uint8_t *image, uint32_t pitch, uint8_t *mem, const unsigned elem)
{
	uint32_t x[4] = {0, 0, 0, 0};
	uint4 v;

	WBK_UNROLL
	for (unsigned k = 0; k < WIDE / elem; k++, image += pitch) {
		if (elem == 2)
			x[k / 2] |= (uint32_t) * (const uint16_t *)(const void *)image
				    << 16 * (k % 2);
		else
			x[k % 4] = *(const uint32_t *)(const void *)image;
	}
	v.x = x[0];
	v.y = x[1];
	v.z = x[2];
	v.w = x[3];
	*(uint4 *)(void *)mem = v;
}

/* A run that is not whole, or lies askew. */
DEV void each_of_run(
	const struct tile *t, uint4 *image, const struct run *r, const unsigned elem, int is_gather)
{
	WBK_ROLLED
	for (uint32_t k = 0; k < r->n; k++) {
		uint8_t *mem = r->mem + k * elem, *at = image_at(t, image, r->row + k, r->col);

		if (is_gather)
			store_bits(at, elem, load_bits(mem, elem));
		else
			store_bits(mem, elem, load_bits(at, elem));
	}
}

DEV void gather_runs(const struct tile *t, uint4 *image, const unsigned elem)
{
	const unsigned max = WIDE / elem;
	uint32_t down = blockDim.x / 2 / t->n_col, right = blockDim.x / 2 % t->n_col;
	struct spot p = {threadIdx.x / 2 / t->n_col, threadIdx.x / 2 % t->n_col};

	WBK_ROLLED
	while (p.row * 2 * max < t->n_row) {
		struct spot q = p;
		uint4 x[AHEAD];

		WBK_UNROLL
		for (unsigned k = 0; k < AHEAD; k++) {
			struct run r = run_at(t, &q, max);

			if (is_whole(&r, max))
				x[k] = *(const uint4 *)(const void *)r.mem;
			next_spot(t->n_col, &q, down, right);
		}
		WBK_UNROLL
		for (unsigned k = 0; k < AHEAD; k++) {
			struct run r = run_at(t, &p, max);

			if (is_whole(&r, max))
				gather_run(image_at(t, image, r.row, r.col), t->pitch, &x[k], elem);
			else
				each_of_run(t, image, &r, elem, 1);
			next_spot(t->n_col, &p, down, right);
		}
	}
}

DEV void scatter_runs(const struct tile *t, uint4 *image, const unsigned elem)
{
	const unsigned max = WIDE / elem;
	uint32_t down = blockDim.x / 2 / t->n_col, right = blockDim.x / 2 % t->n_col;
	struct spot p = {threadIdx.x / 2 / t->n_col, threadIdx.x / 2 % t->n_col};

	WBK_ROLLED
	while (p.row * 2 * max < t->n_row) {
		struct run r = run_at(t, &p, max);

		if (is_whole(&r, max))
			scatter_run(image_at(t, image, r.row, r.col), t->pitch, r.mem, elem);
		else
			each_of_run(t, image, &r, elem, 0);
		next_spot(t->n_col, &p, down, right);
	}
}

/* What one thread takes at once. */
enum kind { EACH, FOUR, RUN_2, RUN_4 };

DEV enum kind kind_of(const struct tile *t)
{
	const struct wbk_op *o = t->o;

	if (o->is_fill || o->repeat > 1 || o->mem_stride[o->row_dim] != o->mem_elem)
		return EACH;
	if (o->row_dim == 3)
		return o->cast == WBK_COPY ? EACH : FOUR;
	if (o->cast != WBK_COPY || !t->is_flat)
		return EACH;
	return o->mem_elem == 2 ? RUN_2 : o->mem_elem == 4 ? RUN_4 : EACH;
}

DEV void gather(const struct tile *t, uint4 *image)
{
	switch (kind_of(t)) {
	case FOUR:
		cast_runs(t, image, 1);
		return;
	case RUN_2:
		gather_runs(t, image, 2);
		return;
	case RUN_4:
		gather_runs(t, image, 4);
		return;
	default:
		gather_each(t, image);
	}
}

DEV void scatter(const struct tile *t, uint4 *image)
{
	switch (kind_of(t)) {
	case FOUR:
		cast_runs(t, image, 0);
		return;
	case RUN_2:
		scatter_runs(t, image, 2);
		return;
	case RUN_4:
		scatter_runs(t, image, 4);
		return;
	default:
		scatter_each(t, image);
	}
}

/* All threads of the block take the same way through here. */
DEV void move_tile(
	const struct tile *t, uint4 *image, const struct wbk_move_args *a, struct acc *sum)
{
	const struct wbk_sum_keys *k = a->sum ? a->keys : NULL;

	if (a->way == WBK_WAY_ASSEMBLE) {
		if (!t->o->is_fill)
			move_all(t, image, k, WIRE, IMAGE, sum);
		__syncthreads();
		scatter(t, image);
	} else {
		gather(t, image);
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
