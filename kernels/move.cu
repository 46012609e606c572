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
 * block's threads have in common lies in shared memory; none may be spilled.
 */
#include "kernels/gpu_body.h"
#include "kernels/gpu_tile.h"

#define WORDS_BLOCK 4096u /* bytes of the checkpoint that share a factor of the sum */
#define WIDE ((uint32_t)sizeof(uint4)) /* bytes of the widest access */
#define AHEAD 4u /* wide loads of a lane under way at once */

/* A tile, and where its rows are. */
struct tile {
	uint32_t table[2][1024]; /* the keys of the words of a block */
	int64_t mem_off[WBK__TILE_ROWS]; /* from the op's first element */
	uint64_t wire_off[WBK__TILE_ROWS];
	uint64_t pos[WBK__TILE_ROWS];
	const struct wbk_op *o;
	uint8_t *mem, *wire; /* element 0 of the op; wire NULL: there is none */
	uint32_t n_row, n_col;
	uint32_t pitch; /* of the image */
};

/* A part of a sum. */
struct acc {
	uint64_t v[2];
};

/* What this thread has added up and not handed in: many tiles in a row add to one sum. */
struct sums {
	struct acc acc;
	uint32_t of; /* number of that sum */
};

/* ---- where things are ------------------------------------------------------------------------ */

/* A tile's first row and columns. */
struct corner {
	uint64_t row0,
		row_step; /* number of the first row in the op, and from one row to the next */
	uint32_t col0, n_row, n_col;
};

/* Tiles of an op whose rows are taken down its memory: some of them below each other, then those
 * beside these, so that what is at work together is near in memory and on the wire alike. */
DEV void find_band(const struct wbk_op *o, uint32_t lines, uint32_t *line, uint32_t *col)
{
	uint32_t n = *line * o->col_tiles + *col, band = WBK__BAND * o->col_tiles;
	uint32_t first = n / band * WBK__BAND;
	uint32_t high = lines - first < WBK__BAND ? lines - first : WBK__BAND;

	*line = first + n % band % high;
	*col = n % band / high;
}

/* Rows of a tile that are neighbours in one dimension have all others in common. */
DEV struct corner corner_of(const struct wbk_op *o, uint32_t number)
{
	uint32_t down = number / o->col_tiles, col = number % o->col_tiles, lines, line;
	struct corner c = {0, 1, 0, 0, 0};
	uint64_t left;

	if (o->row_dim == 3) {
		c.row0 = (uint64_t)down * o->tile_rows;
		left = (uint64_t)o->n[0] * o->n[1] * o->n[2] - c.row0;
	} else {
		for (unsigned d = 2; d > o->row_dim; d--)
			c.row_step *= o->n[d];
		lines = (o->n[o->row_dim] - 1) / o->tile_rows + 1; /* tiles behind each other */
		line = down % lines;
		down /= lines;
		find_band(o, lines, &line, &col);
		left = o->n[o->row_dim] - (uint64_t)line * o->tile_rows;
		c.row0 = down / c.row_step * c.row_step * o->n[o->row_dim] +
			 (uint64_t)line * o->tile_rows * c.row_step + down % c.row_step;
	}
	c.n_row = left < o->tile_rows ? (uint32_t)left : o->tile_rows;
	c.col0 = col * o->tile_cols;
	c.n_col = o->n[3] - c.col0 < o->tile_cols ? o->n[3] - c.col0 : o->tile_cols;
	return c;
}

/* The index of row *@left in a dimension of @n; *@left becomes what is left for those outside it.
 * A division of 64 bits is a hundred instructions, and hardly an op needs one. */
DEV uint32_t take_index(uint64_t *left, uint32_t n)
{
	uint32_t at;

	if (*left < n) {
		at = (uint32_t)*left;
		*left = 0;
	} else if (*left <= UINT32_MAX) {
		at = (uint32_t)*left % n;
		*left = (uint32_t)*left / n;
	} else {
		at = (uint32_t)(*left % n);
		*left /= n;
	}
	return at;
}

/* Where each row is: in memory, on the wire, in the checkpoint. */
DEV void fill_rows(struct tile *t, const struct wbk_op *o, const struct corner *c)
{
	for (uint32_t i = threadIdx.x; i < c->n_row; i += blockDim.x) {
		uint64_t row = c->row0 + i * c->row_step, left = row, pos = o->pos;
		int64_t off = (int64_t)c->col0 * o->mem_stride[3];

		pos += c->col0 * o->pos_stride[3];
		for (int d = 2; d >= 0; d--) {
			uint32_t at = take_index(&left, o->n[d]);

			off += (int64_t)at * o->mem_stride[d];
			pos += at * o->pos_stride[d];
		}
		t->mem_off[i] = off;
		t->pos[i] = pos;
		t->wire_off[i] = (row * o->n[3] + c->col0) * o->wire_elem;
	}
}

DEV uint8_t *wire_row(const struct tile *t, uint32_t i)
{
	return t->wire + t->wire_off[i];
}

DEV uint8_t *memory_row(const struct tile *t, uint32_t i)
{
	return t->mem + t->mem_off[i];
}

/* A row of the image begins like its row on the wire, modulo what one access moves, but at an
 * element's own alignment in any case. */
DEV uint8_t *image_row(const struct tile *t, uint4 *image, uint32_t i)
{
	uint32_t elem = t->o->wire_elem;
	uintptr_t shift = t->wire ? (uintptr_t)wire_row(t, i) & (WIDE - 1) : 0;

	if ((elem & (elem - 1)) == 0)
		shift &= ~(uintptr_t)(elem - 1);
	return (uint8_t *)image + (size_t)i * t->pitch + shift;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* @bytes bytes in @x, the first of them byte @at of its block, all in one block. */
DEV void add_bytes(const struct tile *t, struct acc *a, uint32_t at, uint32_t x, unsigned bytes)
{
	const uint32_t *k0 = t->table[0] + at / 4, *k1 = t->table[1] + at / 4;
	unsigned shift = 8 * (at & 3);
	uint32_t word = x << shift;

	a->v[0] += (uint64_t)word * k0[0];
	a->v[1] += (uint64_t)word * k1[0];
	if ((at & 3) + bytes > 4) {
		word = x >> (32 - shift);
		a->v[0] += (uint64_t)word * k0[1];
		a->v[1] += (uint64_t)word * k1[1];
	}
}

DEV void add_words(uint64_t *acc, const uint4 *x, const uint32_t *key)
{
	uint4 k = *(const uint4 *)(const void *)key;

	*acc += (uint64_t)x->x * k.x;
	*acc += (uint64_t)x->y * k.y;
	*acc += (uint64_t)x->z * k.z;
	*acc += (uint64_t)x->w * k.w;
}

/* 16 bytes; their keys are read at once where they lie so. */
DEV void add_wide(const struct tile *t, struct acc *a, uint32_t at, const uint4 *x)
{
	if (at % WIDE == 0) {
		add_words(&a->v[0], x, t->table[0] + at / 4);
		add_words(&a->v[1], x, t->table[1] + at / 4);
		return;
	}
	add_bytes(t, a, at, x->x, 4);
	add_bytes(t, a, at + 4, x->y, 4);
	add_bytes(t, a, at + 8, x->z, 4);
	add_bytes(t, a, at + 12, x->w, 4);
}

DEV void add_block(
	const struct wbk_sum_keys *k, struct acc *sum, const struct acc *a, uint64_t block)
{
	sum->v[0] += a->v[0] * wbk__block_key(k->seed[0], block);
	sum->v[1] += a->v[1] * wbk__block_key(k->seed[1], block);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Bytes of a row that some lanes move together, all in one block of the checkpoint. */
struct piece {
	const uint8_t *src;
	uint8_t *dst; /* NULL: only the sum */
	uint32_t bytes, at; /* at: of its first byte in the block */
	uint32_t lane, lanes;
};

DEV void put_wide(const struct tile *t, const struct piece *p, uint32_t i, const uint4 *x,
	int has_sum, struct acc *a)
{
	if (p->dst)
		*(uint4 *)(void *)(p->dst + i) = *x;
	if (has_sum)
		add_wide(t, a, p->at + i, x);
}

/* Bytes [@i, @end), both sides aligned: a lane loads a few times before it stores, so that memory's
 * latency is paid once for all of them. */
DEV void move_wide(const struct tile *t, const struct piece *p, uint32_t i, uint32_t end,
	int has_sum, struct acc *a)
{
	uint32_t step = p->lanes * WIDE;
	uint4 x[AHEAD];

	for (i += p->lane * WIDE; i + (AHEAD - 1) * step < end; i += AHEAD * step) {
		WBK_UNROLL
		for (unsigned k = 0; k < AHEAD; k++)
			x[k] = *(const uint4 *)(const void *)(p->src + i + k * step);
		WBK_UNROLL
		for (unsigned k = 0; k < AHEAD; k++)
			put_wide(t, p, i + k * step, &x[k], has_sum, a);
	}
	WBK_ROLLED
	for (; i < end; i += step) {
		x[0] = *(const uint4 *)(const void *)(p->src + i);
		put_wide(t, p, i, &x[0], has_sum, a);
	}
}

/* One access of 4, 2 or 1 bytes at @i. */
DEV void move_narrow(const struct tile *t, const struct piece *p, uint32_t i, unsigned width,
	int has_sum, struct acc *a)
{
	uint32_t x = (uint32_t)load_bits(p->src + i, width);

	if (p->dst)
		store_bits(p->dst + i, width, x);
	if (has_sum)
		add_bytes(t, a, p->at + i, x, width);
}

/* The widest access that both sides allow between a piece's first bytes and its last ones. */
DEV unsigned width_of(const struct piece *p)
{
	unsigned off = p->dst ? ((uintptr_t)p->src ^ (uintptr_t)p->dst) & 15 : 0;

	return off == 0 ? 16 : off & 1 ? 1 : off & 2 ? 2 : 4;
}

DEV void move_piece(const struct tile *t, const struct piece *p, int has_sum, struct acc *a)
{
	unsigned width = width_of(p);
	uint32_t head = (uint32_t)(-(uintptr_t)p->src & (width - 1)), mid, end;

	head = head < p->bytes ? head : p->bytes;
	mid = (p->bytes - head) & ~(width - 1);
	end = head + mid;
	if (width == WIDE) {
		move_wide(t, p, head, end, has_sum, a);
	} else {
		WBK_ROLLED
		for (uint32_t i = head + p->lane * width; i < end; i += p->lanes * width)
			move_narrow(t, p, i, width, has_sum, a);
	}
	WBK_ROLLED
	for (uint32_t i = p->lane; i < p->bytes - mid; i += p->lanes)
		move_narrow(t, p, i < head ? i : i + mid, 1, has_sum, a);
}

/* Bytes [begin, end) of a row at @pos of the checkpoint; @p has its first byte. */
DEV void move_part(const struct tile *t, const struct wbk_sum_keys *k, struct piece p, uint64_t pos,
	uint32_t begin, uint32_t end, struct acc *sum)
{
	pos += begin;
	p.src += begin;
	if (p.dst)
		p.dst += begin;
	end -= begin;
	while (end) {
		struct acc a = {{0, 0}};

		p.at = (uint32_t)(pos % WORDS_BLOCK);
		p.bytes = WORDS_BLOCK - p.at < end ? WORDS_BLOCK - p.at : end;
		move_piece(t, &p, k != NULL, &a);
		if (k)
			add_block(k, sum, &a, pos / WORDS_BLOCK);
		end -= p.bytes;
		pos += p.bytes;
		p.src += p.bytes;
		if (p.dst)
			p.dst += p.bytes;
	}
}

/* Elements that are no neighbours in the checkpoint: each byte by itself, from where it lies now.
 */
DEV void sum_apart(const struct tile *t, const struct wbk_sum_keys *k, int is_on_wire, uint4 *image,
	struct acc *sum)
{
	const struct wbk_op *o = t->o;

	WBK_ROLLED
	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row = i / t->n_col, col = i % t->n_col;
		const uint8_t *p = is_on_wire ? wire_row(t, row)
				   : image    ? image_row(t, image, row)
					      : memory_row(t, row);
		uint64_t pos = t->pos[row] + col * o->pos_stride[3];

		p += (size_t)col * o->wire_elem;
		WBK_ROLLED
		for (unsigned b = 0; b < o->wire_elem; b++) {
			struct acc a = {{0, 0}};

			add_bytes(t, &a, (uint32_t)((pos + b) % WORDS_BLOCK), p[b], 1);
			add_block(k, sum, &a, (pos + b) / WORDS_BLOCK);
		}
	}
}

/*
 * The tile's rows between the wire and memory, or where there is one the image; @off: bytes from
 * where that is in memory.  Short rows are moved by a few lanes, several at once; long ones in
 * parts.  @k NULL: without sums.
 */
DEV void move_rows(const struct tile *t, uint4 *image, const struct wbk_sum_keys *k,
	int is_assembled, int64_t off, struct acc *sum)
{
	uint32_t bytes = t->n_col * t->o->wire_elem, lanes = 32, parts;

	while (lanes > 1 && bytes <= lanes * 8)
		lanes /= 2;
	parts = bytes < 2 * WORDS_BLOCK ? 1 : bytes / WORDS_BLOCK;
	for (uint32_t i = threadIdx.x / lanes; i < t->n_row * parts; i += blockDim.x / lanes) {
		uint32_t row = i / parts, part = i % parts;
		uint8_t *wire = t->wire ? wire_row(t, row) : NULL;
		uint8_t *here = image ? image_row(t, image, row) : memory_row(t, row) + off;
		struct piece p = {is_assembled ? wire : here, is_assembled ? here : wire, 0, 0,
			threadIdx.x % lanes, lanes};

		move_part(t, k, p, t->pos[row], part * WORDS_BLOCK,
			part == parts - 1 ? bytes : (part + 1) * WORDS_BLOCK, sum);
	}
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* All threads of the block come here together. */
DEV void hand_in(const struct wbk_move_args *a, struct sums *sum)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t x = warp_sum(sum->acc.v[i]);

		if (threadIdx.x % 32 == 0 && x)
			add_u64(&a->sum[sum->of].lane[i], x);
		sum->acc.v[i] = 0;
	}
}

DEV void begin_tile(
	struct tile *t, const struct wbk_move_args *a, uint32_t number, struct sums *sum)
{
	uint32_t op = piece_of(a->first, a->n_op, number);
	const struct wbk_op *o = &a->op[op];
	struct corner c = corner_of(o, number - a->first[op]);

	if (a->sum && o->sum != sum->of) {
		hand_in(a, sum);
		sum->of = o->sum;
	}
	__syncthreads(); /* nobody is at the tile before */
	fill_rows(t, o, &c);
	if (threadIdx.x == 0) {
		t->o = o;
		t->mem = (uint8_t *)a->bases[o->base] + o->mem_off;
		t->wire = a->wire ? (uint8_t *)a->wire + o->wire_off : NULL;
		t->n_row = c.n_row;
		t->n_col = c.n_col;
		t->pitch = WBK__PITCH(o->tile_cols * o->wire_elem);
	}
	__syncthreads();
}

/* Are elements that are neighbours on the wire none in the checkpoint? */
DEV int is_apart(const struct wbk_op *o)
{
	return o->n[3] > 1 && o->pos_stride[3] != o->wire_elem;
}

DEV void load_table(struct tile *t, const struct wbk_move_args *a)
{
	for (uint32_t i = threadIdx.x; a->sum && i < 2048; i += blockDim.x)
		t->table[i / 1024][i % 1024] = a->keys->table[i / 1024][i % 1024];
}

WBK_KERNEL(wbk_gpu_rows, 5)(const struct wbk_move_args a)
{
	__shared__ struct tile t;
	struct sums sum = {{{0, 0}}, 0};
	uint32_t n_tile = a.first[a.n_op];

	load_table(&t, &a);
	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		const struct wbk_sum_keys *k = a.sum ? a.keys : NULL;
		uint32_t copy = 0;

		begin_tile(&t, &a, i, &sum);
		if (k && is_apart(t.o)) {
			sum_apart(&t, k, a.way == WBK_WAY_ASSEMBLE, NULL, &sum.acc);
			k = NULL;
		}
		do {
			move_rows(&t, NULL, k, a.way == WBK_WAY_ASSEMBLE,
				(int64_t)copy * t.o->repeat_stride, &sum.acc);
			k = NULL; /* copies are not summed */
		} while (a.way == WBK_WAY_ASSEMBLE && ++copy < t.o->repeat);
	}
	if (a.sum)
		hand_in(&a, &sum);
}

/* ---- the image and memory -------------------------------------------------------------------- */

DEV uint64_t cast_of(unsigned cast, uint64_t x)
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

/* The cast from memory to the wire. */
DEV unsigned inverse(unsigned cast)
{
	switch (cast) {
	case WBK_BF16_TO_F32:
		return WBK_F32_TO_BF16;
	case WBK_F32_TO_BF16:
		return WBK_BF16_TO_F32;
	case WBK_F16_TO_F32:
		return WBK_F32_TO_F16;
	case WBK_F32_TO_F16:
		return WBK_F16_TO_F32;
	case WBK_BF16_TO_F16:
		return WBK_F16_TO_BF16;
	case WBK_F16_TO_BF16:
		return WBK_BF16_TO_F16;
	default:
		return cast;
	}
}

DEV uint8_t *memory_at(const struct tile *t, uint32_t row, uint32_t col)
{
	return memory_row(t, row) + (int64_t)col * t->o->mem_stride[3];
}

DEV uint8_t *image_at(const struct tile *t, uint4 *image, uint32_t row, uint32_t col)
{
	return image_row(t, image, row) + (size_t)col * t->o->wire_elem;
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
			cast_of(inverse(o->cast), load_bits(memory_at(t, row, col), o->mem_elem)));
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
			x = cast_of(o->cast, load_bits(image_at(t, image, row, col), o->wire_elem));
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

		x = cast_of(cast, x);
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
	unsigned cast = is_gather ? inverse(o->cast) : o->cast;
	struct four v;

	if (n == CAST_RUN) {
		v = load_four(src, from);
		v = cast_four(&v, from, to, cast);
		store_four(dst, to, &v);
		return;
	}
	WBK_ROLLED
	for (uint32_t k = 0; k < n; k++)
		store_bits(dst + k * to, to, cast_of(cast, load_bits(src + k * from, from)));
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

/* Elements down the rows that are neighbours in memory, where they fill one wide access. */
struct run {
	uint8_t *mem; /* of the first element */
	uint32_t row, col, n;
};

/* Two lanes take neighbours in memory, a whole sector of it; the pairs of a warp take columns side
 * by side, which are neighbours in the image. */
DEV uint32_t n_run(const struct tile *t, unsigned max)
{
	return ((t->n_row - 1) / (2 * max) + 1) * 2 * t->n_col;
}

DEV struct run run_at(const struct tile *t, uint32_t i, unsigned max)
{
	uint32_t pair = i / 2;
	struct run r = {NULL, (pair / t->n_col * 2 + i % 2) * max, pair % t->n_col, 0};

	if (r.row < t->n_row) {
		r.n = t->n_row - r.row < max ? t->n_row - r.row : max;
		r.mem = memory_at(t, r.row, r.col);
	}
	return r;
}

DEV int is_whole(const struct run *r, unsigned max)
{
	return r->n == max && (uintptr_t)r->mem % WIDE == 0;
}

/* @elem is a constant in each call, so that x stays in registers. */
DEV void gather_run(const struct tile *t, uint4 *image, const struct run *r, const unsigned elem)
{
	uint4 v = *(const uint4 *)(const void *)r->mem;
	uint32_t x[4] = {v.x, v.y, v.z, v.w};

	WBK_UNROLL
	for (unsigned k = 0; k < WIDE / elem; k++) {
		uint8_t *to = image_at(t, image, r->row + k, r->col);

		if (elem == 2)
			*(uint16_t *)(void *)to = (uint16_t)(x[k / 2] >> 16 * (k % 2));
		else
			*(uint32_t *)(void *)to = x[k % 4];
	}
}

DEV void scatter_run(const struct tile *t, uint4 *image, const struct run *r, const unsigned elem)
{
	uint32_t x[4] = {0, 0, 0, 0};
	uint4 v;

	WBK_UNROLL
	for (unsigned k = 0; k < WIDE / elem; k++) {
		const uint8_t *from = image_at(t, image, r->row + k, r->col);

		if (elem == 2)
			x[k / 2] |= (uint32_t) * (const uint16_t *)(const void *)from
				    << 16 * (k % 2);
		else
			x[k % 4] = *(const uint32_t *)(const void *)from;
	}
	v.x = x[0];
	v.y = x[1];
	v.z = x[2];
	v.w = x[3];
	*(uint4 *)(void *)r->mem = v;
}

DEV void move_runs(const struct tile *t, uint4 *image, const unsigned elem, int is_gather)
{
	unsigned max = WIDE / elem;

	for (uint32_t i = threadIdx.x; i < n_run(t, max); i += blockDim.x) {
		struct run r = run_at(t, i, max);

		if (is_whole(&r, max) && is_gather) {
			gather_run(t, image, &r, elem);
			continue;
		}
		if (is_whole(&r, max)) {
			scatter_run(t, image, &r, elem);
			continue;
		}
		for (uint32_t k = 0; k < r.n; k++) {
			uint8_t *mem = r.mem + k * elem, *at = image_at(t, image, r.row + k, r.col);

			if (is_gather)
				store_bits(at, elem, load_bits(mem, elem));
			else
				store_bits(mem, elem, load_bits(at, elem));
		}
	}
}

/* What one thread takes at once. */
enum kind { EACH, FOUR, RUN_2, RUN_4 };

DEV enum kind kind_of(const struct wbk_op *o)
{
	if (o->is_fill || o->repeat > 1 || o->mem_stride[o->row_dim] != o->mem_elem)
		return EACH;
	if (o->row_dim == 3)
		return o->cast == WBK_COPY ? EACH : FOUR;
	if (o->cast != WBK_COPY)
		return EACH;
	return o->mem_elem == 2 ? RUN_2 : o->mem_elem == 4 ? RUN_4 : EACH;
}

DEV void gather(const struct tile *t, uint4 *image)
{
	switch (kind_of(t->o)) {
	case FOUR:
		cast_runs(t, image, 1);
		return;
	case RUN_2:
		move_runs(t, image, 2, 1);
		return;
	case RUN_4:
		move_runs(t, image, 4, 1);
		return;
	default:
		gather_each(t, image);
	}
}

DEV void scatter(const struct tile *t, uint4 *image)
{
	switch (kind_of(t->o)) {
	case FOUR:
		cast_runs(t, image, 0);
		return;
	case RUN_2:
		move_runs(t, image, 2, 0);
		return;
	case RUN_4:
		move_runs(t, image, 4, 0);
		return;
	default:
		scatter_each(t, image);
	}
}

/* All threads of the block take the same way through here. */
DEV void move_tile(
	const struct tile *t, const struct wbk_move_args *a, uint4 *image, struct acc *sum)
{
	const struct wbk_sum_keys *k = a->sum && !t->o->is_fill ? a->keys : NULL;
	int is_assembled = a->way == WBK_WAY_ASSEMBLE;

	if (!is_assembled) {
		gather(t, image);
		__syncthreads();
	}
	if (k && is_apart(t->o)) {
		sum_apart(t, k, is_assembled, image, sum);
		k = NULL;
	}
	if (!t->o->is_fill)
		move_rows(t, image, k, is_assembled, 0, sum);
	if (is_assembled) {
		__syncthreads();
		scatter(t, image);
	}
}

WBK_KERNEL(wbk_gpu_image, 4)(const struct wbk_move_args a)
{
	__shared__ struct tile t;
	__shared__ uint4 image[WBK__TILE_IMAGE / sizeof(uint4)];
	struct sums sum = {{{0, 0}}, 0};
	uint32_t n_tile = a.first[a.n_op];

	load_table(&t, &a);
	for (uint32_t i = blockIdx.x; i < n_tile; i += gridDim.x) {
		begin_tile(&t, &a, i, &sum);
		move_tile(&t, &a, image, &sum.acc);
	}
	if (a.sum)
		hand_in(&a, &sum);
}
