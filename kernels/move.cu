/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pack, assemble and sum on a device: one launch over a table of ops.
 *
 * Blocks take tiles in turns.  Wire bytes are always moved as rows, by groups of lanes with the
 * widest accesses that both sides' alignment allows, and summed in the same pass.  Rows go between
 * wire and memory directly where both hold the same bytes; everything else (casts, strides,
 * transposes) goes through an image of the tile's wire bytes in shared memory, which is filled
 * from or emptied into memory in the order in which memory's elements are neighbours.
 */
#include "kernels/gpu_body.h"
#include "kernels/gpu_tile.h"

#define WORDS_BLOCK 4096u /* bytes of the checkpoint that share a factor of the sum */

struct shared {
	uint32_t table[2][1024]; /* the keys of the words of a block */
	int64_t mem_off[WBK__TILE_ROWS]; /* of the tile's rows, from the op's first element */
	uint64_t pos[WBK__TILE_ROWS];
	uint4 image[WBK__TILE_IMAGE / sizeof(uint4)];
};

struct tile {
	const struct wbk_move_args *a;
	const struct wbk_op *o;
	struct shared *s;
	uint8_t *mem, *wire; /* element 0 of the op; wire NULL: there is none */
	uint64_t row0, row_step; /* number of the first row in the op, and from one row to the next */
	uint32_t col0, n_row, n_col;
	uint32_t pitch; /* of the image */
	/* What this thread has added up and not handed in: many tiles in a row add to one sum. */
	uint64_t sum[2];
	uint32_t sum_of; /* number of that sum */
};

/* ---- where things are ------------------------------------------------------------------------ */

/* Rows of a tile that are neighbours in one dimension have all others in common. */
DEV void find_rows(struct tile *t, uint32_t number)
{
	const struct wbk_op *o = t->o;
	uint32_t down = number / o->col_tiles, lines = 0;
	uint64_t rows = (uint64_t)o->n[0] * o->n[1] * o->n[2], begin;

	t->col0 = number % o->col_tiles * o->tile_cols;
	t->n_col = o->n[3] - t->col0 < o->tile_cols ? o->n[3] - t->col0 : o->tile_cols;
	t->row_step = 1;
	if (o->row_dim == 3) {
		t->row0 = begin = (uint64_t)down * o->tile_rows;
		t->n_row = rows - begin < o->tile_rows ? (uint32_t)(rows - begin) : o->tile_rows;
		return;
	}
	for (unsigned d = 2; d > o->row_dim; d--)
		t->row_step *= o->n[d];
	lines = (o->n[o->row_dim] - 1) / o->tile_rows + 1; /* tiles behind each other */
	begin = (uint64_t)(down % lines) * o->tile_rows;
	down /= lines;
	t->row0 = down / t->row_step * t->row_step * o->n[o->row_dim] + begin * t->row_step +
		  down % t->row_step;
	t->n_row = o->n[o->row_dim] - begin < o->tile_rows ? (uint32_t)(o->n[o->row_dim] - begin)
							   : o->tile_rows;
}

/* Memory offset and checkpoint position of each row. */
DEV void fill_rows(const struct tile *t)
{
	const struct wbk_op *o = t->o;

	for (uint32_t i = threadIdx.x; i < t->n_row; i += blockDim.x) {
		uint64_t left = t->row0 + i * t->row_step, at, pos = o->pos;
		int64_t off = (int64_t)t->col0 * o->mem_stride[3];

		pos += t->col0 * o->pos_stride[3];
		for (int d = 2; d >= 0; d--) {
			at = left % o->n[d];
			left /= o->n[d];
			off += (int64_t)at * o->mem_stride[d];
			pos += at * o->pos_stride[d];
		}
		t->s->mem_off[i] = off;
		t->s->pos[i] = pos;
	}
}

DEV uint8_t *wire_row(const struct tile *t, uint32_t i)
{
	const struct wbk_op *o = t->o;

	return t->wire + ((t->row0 + i * t->row_step) * o->n[3] + t->col0) * o->wire_elem;
}

/* A row of the image begins like its row on the wire, modulo what one access moves. */
DEV uint8_t *image_row(const struct tile *t, uint32_t i)
{
	uintptr_t shift = t->wire ? (uintptr_t)wire_row(t, i) & 15 : 0;

	return (uint8_t *)t->s->image + (size_t)i * t->pitch + shift;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* @bytes bytes in @x, the first of them byte @at of its block, all in one block. */
DEV void add_bytes(const struct tile *t, uint64_t acc[2], uint32_t at, uint32_t x, unsigned bytes)
{
	const uint32_t *k0 = t->s->table[0] + at / 4, *k1 = t->s->table[1] + at / 4;
	unsigned shift = 8 * (at & 3);
	uint32_t word = x << shift;

	acc[0] += (uint64_t)word * k0[0];
	acc[1] += (uint64_t)word * k1[0];
	if ((at & 3) + bytes > 4) {
		word = x >> (32 - shift);
		acc[0] += (uint64_t)word * k0[1];
		acc[1] += (uint64_t)word * k1[1];
	}
}

DEV void add_block(struct tile *t, const uint64_t acc[2], uint64_t block)
{
	t->sum[0] += acc[0] * wbk__block_key(t->a->keys->seed[0], block);
	t->sum[1] += acc[1] * wbk__block_key(t->a->keys->seed[1], block);
}

/* Elements that are no neighbours in the checkpoint: each byte by itself. */
DEV void add_apart(struct tile *t, const uint8_t *p, uint64_t pos)
{
	for (unsigned i = 0; i < t->o->wire_elem; i++) {
		uint64_t acc[2] = {0, 0};

		add_bytes(t, acc, (uint32_t)((pos + i) % WORDS_BLOCK), p[i], 1);
		add_block(t, acc, (pos + i) / WORDS_BLOCK);
	}
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Some lanes that move a piece of a row together. */
struct group {
	uint32_t lane, lanes;
};

/* A piece of a row: its bytes, all in one block of the checkpoint. */
struct piece {
	const uint8_t *src;
	uint8_t *dst; /* NULL: only the sum */
	uint32_t bytes, at; /* at: of its first byte in the block */
};

DEV void move_bytes(const struct tile *t, const struct group *g, const struct piece *p,
	uint32_t begin, uint32_t end, int has_sum, uint64_t acc[2])
{
	for (uint32_t i = begin + g->lane; i < end; i += g->lanes) {
		uint8_t x = p->src[i];

		if (p->dst)
			p->dst[i] = x;
		if (has_sum)
			add_bytes(t, acc, p->at + i, x, 1);
	}
}

/* One access of @width bytes (16, 4 or 2) at @i. */
DEV void move_wide(const struct tile *t, const struct piece *p, uint32_t i, unsigned width,
	int has_sum, uint64_t acc[2])
{
	uint4 v = {0, 0, 0, 0};

	if (width == 16)
		v = *(const uint4 *)(const void *)(p->src + i);
	else
		v.x = (uint32_t)load_bits(p->src + i, width);
	if (p->dst && width == 16)
		*(uint4 *)(void *)(p->dst + i) = v;
	else if (p->dst)
		store_bits(p->dst + i, width, v.x);
	if (!has_sum)
		return;
	add_bytes(t, acc, p->at + i, v.x, width == 2 ? 2 : 4);
	if (width == 16) {
		add_bytes(t, acc, p->at + i + 4, v.y, 4);
		add_bytes(t, acc, p->at + i + 8, v.z, 4);
		add_bytes(t, acc, p->at + i + 12, v.w, 4);
	}
}

DEV void move_by(const struct tile *t, const struct group *g, const struct piece *p,
	unsigned width, int has_sum, uint64_t acc[2])
{
	uint32_t head = (uint32_t)(-(uintptr_t)p->src & (width - 1)), end;

	head = head < p->bytes ? head : p->bytes;
	end = p->bytes - (p->bytes - head) % width;
	move_bytes(t, g, p, 0, head, has_sum, acc);
	for (uint32_t i = head + g->lane * width; i < end; i += g->lanes * width)
		move_wide(t, p, i, width, has_sum, acc);
	move_bytes(t, g, p, end, p->bytes, has_sum, acc);
}

DEV void move_piece(const struct tile *t, const struct group *g, const struct piece *p, int has_sum,
	uint64_t acc[2])
{
	uintptr_t off = p->dst ? (uintptr_t)p->src ^ (uintptr_t)p->dst : 0;

	if ((off & 15) == 0)
		move_by(t, g, p, 16, has_sum, acc);
	else if ((off & 3) == 0)
		move_by(t, g, p, 4, has_sum, acc);
	else if ((off & 1) == 0)
		move_by(t, g, p, 2, has_sum, acc);
	else
		move_bytes(t, g, p, 0, p->bytes, has_sum, acc);
}

/* Bytes [begin, end) of a row at @pos of the checkpoint. */
DEV void move_part(struct tile *t, const struct group *g, const uint8_t *src, uint8_t *dst,
	uint64_t pos, uint32_t begin, uint32_t end, int has_sum)
{
	while (begin < end) {
		uint32_t at = (uint32_t)((pos + begin) % WORDS_BLOCK);
		uint32_t n = WORDS_BLOCK - at < end - begin ? WORDS_BLOCK - at : end - begin;
		struct piece p = {src + begin, dst ? dst + begin : NULL, n, at};
		uint64_t acc[2] = {0, 0};

		move_piece(t, g, &p, has_sum, acc);
		if (has_sum)
			add_block(t, acc, (pos + begin) / WORDS_BLOCK);
		begin += n;
	}
}

enum place { MEMORY, WIRE, IMAGE, NOWHERE };

DEV uint8_t *row_at(const struct tile *t, enum place at, uint32_t i)
{
	switch (at) {
	case MEMORY:
		return t->mem + t->s->mem_off[i];
	case WIRE:
		return wire_row(t, i);
	case IMAGE:
		return image_row(t, i);
	default:
		return NULL;
	}
}

/* The tile's rows from one place to another (@copy repeats away), the first copy with their sum.
 * Short rows are moved by a few lanes, several at once; long ones in parts. */
DEV void move_rows(struct tile *t, enum place from, enum place to, uint32_t copy)
{
	const struct wbk_op *o = t->o;
	uint32_t bytes = t->n_col * o->wire_elem, lanes = 32, parts, groups;
	int is_apart = o->n[3] > 1 && o->pos_stride[3] != o->wire_elem;
	int has_sum = t->a->sum && !copy;
	int64_t to_off = (int64_t)copy * o->repeat_stride;
	struct group g;

	while (lanes > 1 && bytes <= lanes * 8)
		lanes /= 2;
	parts = bytes < 2 * WORDS_BLOCK ? 1 : bytes / WORDS_BLOCK;
	groups = blockDim.x / lanes;
	g.lane = threadIdx.x % lanes;
	g.lanes = lanes;
	for (uint32_t i = threadIdx.x / lanes; i < t->n_row * parts; i += groups) {
		uint32_t row = i / parts, begin = i % parts * WORDS_BLOCK;
		uint32_t end = i % parts == parts - 1 ? bytes : begin + WORDS_BLOCK;
		const uint8_t *src = row_at(t, from, row);
		uint8_t *dst = row_at(t, to, row);

		move_part(t, &g, src, dst ? dst + to_off : NULL, t->s->pos[row], begin, end,
			has_sum && !is_apart);
	}
	if (!has_sum || !is_apart)
		return;
	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row = i / t->n_col, col = i % t->n_col;

		add_apart(t, row_at(t, from, row) + (size_t)col * o->wire_elem,
			t->s->pos[row] + col * o->pos_stride[3]);
	}
}

/* ---- the image and memory -------------------------------------------------------------------- */

DEV uint64_t cast_fwd(unsigned cast, uint64_t x)
{
	switch (cast) {
	case WBK_BF16_TO_F32:
		return wbk__f32_of_bf16((uint16_t)x);
	case WBK_F32_TO_BF16:
		return wbk__bf16_of_f32((uint32_t)x);
	case WBK_F16_TO_F32:
		return wbk__f32_of_f16((uint16_t)x);
	case WBK_F32_TO_F16:
		return wbk__f16_of_f32((uint32_t)x);
	case WBK_BF16_TO_F16:
		return wbk__f16_of_f32(wbk__f32_of_bf16((uint16_t)x));
	case WBK_F16_TO_BF16:
		return wbk__bf16_of_f32(wbk__f32_of_f16((uint16_t)x));
	default:
		return x;
	}
}

DEV uint64_t cast_back(unsigned cast, uint64_t x)
{
	switch (cast) {
	case WBK_BF16_TO_F32:
		return cast_fwd(WBK_F32_TO_BF16, x);
	case WBK_F32_TO_BF16:
		return cast_fwd(WBK_BF16_TO_F32, x);
	case WBK_F16_TO_F32:
		return cast_fwd(WBK_F32_TO_F16, x);
	case WBK_F32_TO_F16:
		return cast_fwd(WBK_F16_TO_F32, x);
	case WBK_BF16_TO_F16:
		return cast_fwd(WBK_F16_TO_BF16, x);
	case WBK_F16_TO_BF16:
		return cast_fwd(WBK_BF16_TO_F16, x);
	default:
		return x;
	}
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

DEV void gather(const struct tile *t)
{
	const struct wbk_op *o = t->o;

	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row, col;
		const uint8_t *mem;

		element(t, i, &row, &col);
		mem = t->mem + t->s->mem_off[row] + (int64_t)col * o->mem_stride[3];
		store_bits(image_row(t, row) + (size_t)col * o->wire_elem, o->wire_elem,
			cast_back(o->cast, load_bits(mem, o->mem_elem)));
	}
}

DEV void scatter(const struct tile *t)
{
	const struct wbk_op *o = t->o;

	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row, col, k = 0;
		uint64_t x = o->value;
		uint8_t *mem;

		element(t, i, &row, &col);
		if (!o->is_fill)
			x = cast_fwd(o->cast, load_bits(image_row(t, row) +
								(size_t)col * o->wire_elem,
						      o->wire_elem));
		mem = t->mem + t->s->mem_off[row] + (int64_t)col * o->mem_stride[3];
		do {
			store_bits(mem, o->mem_elem, x);
			mem += o->repeat_stride;
		} while (++k < o->repeat);
	}
}

/* ---- tiles ----------------------------------------------------------------------------------- */

DEV void move_direct(struct tile *t)
{
	if (t->a->way == WBK_WAY_SUM) {
		move_rows(t, MEMORY, NOWHERE, 0);
		return;
	}
	if (t->a->way == WBK_WAY_PACK) {
		move_rows(t, MEMORY, WIRE, 0);
		return;
	}
	move_rows(t, WIRE, MEMORY, 0);
	for (uint32_t k = 1; k < t->o->repeat; k++)
		move_rows(t, WIRE, MEMORY, k);
}

/* All threads of the block take the same way through here. */
DEV void move_tile(struct tile *t)
{
	if (t->o->is_direct) {
		move_direct(t);
	} else if (t->o->is_fill) {
		scatter(t);
	} else if (t->a->way == WBK_WAY_ASSEMBLE) {
		move_rows(t, WIRE, IMAGE, 0);
		__syncthreads();
		scatter(t);
	} else {
		gather(t);
		__syncthreads();
		move_rows(t, IMAGE, t->wire ? WIRE : NOWHERE, 0);
	}
}

/* All threads of the block come here together. */
DEV void hand_in(struct tile *t)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t x = warp_sum(t->sum[i]);

		if (threadIdx.x % 32 == 0 && x)
			add_u64(&t->a->sum[t->sum_of].lane[i], x);
		t->sum[i] = 0;
	}
}

DEV void begin_tile(struct tile *t, uint32_t number)
{
	const struct wbk_move_args *a = t->a;
	uint32_t op = piece_of(a->first, a->n_op, number);

	t->o = &a->op[op];
	t->mem = (uint8_t *)a->bases[t->o->base] + t->o->mem_off;
	t->wire = a->wire ? (uint8_t *)a->wire + t->o->wire_off : NULL;
	t->pitch = WBK__PITCH(t->o->tile_cols * t->o->wire_elem);
	find_rows(t, number - a->first[op]);
	if (!a->sum || t->o->sum == t->sum_of)
		return;
	hand_in(t);
	t->sum_of = t->o->sum;
}

WBK_KERNEL(wbk_gpu_move)(const struct wbk_move_args a)
{
	__shared__ struct shared s;
	struct tile t = {&a, NULL, &s, NULL, NULL, 0, 0, 0, 0, 0, 0, {0, 0}, 0};
	uint32_t n_tile = a.first[a.n_op];

	for (uint32_t i = threadIdx.x; a.sum && i < 2048; i += blockDim.x)
		s.table[i / 1024][i % 1024] = a.keys->table[i / 1024][i % 1024];
	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		begin_tile(&t, i);
		__syncthreads(); /* nobody is at the tile before */
		fill_rows(&t);
		__syncthreads();
		move_tile(&t);
	}
	if (a.sum)
		hand_in(&t);
}
