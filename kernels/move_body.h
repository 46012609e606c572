/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_MOVE_BODY_H
#define WBK_MOVE_BODY_H
/*
 * Shared by the kernels of move.cu: what a tile is and where its rows are, sums, and how rows are
 * moved from one place to another.
 */
#include "kernels/gpu_body.h"
#include "kernels/gpu_tile.h"

#define WORDS_BLOCK 4096u /* bytes of the checkpoint that share a factor of the sum */
#define WIDE ((uint32_t)sizeof(uint4)) /* bytes of the widest access */
#define LONG 2048u /* rows of at least this many bytes are moved in blocks */
#define AHEAD 4u /* wide loads of a lane from memory or the wire that are under way at once */

/* Where a row can be; only wbk_gpu_image has an image. */
enum place { MEMORY, WIRE, SIDES, IMAGE = SIDES, NOWHERE };

/* A tile, and where its rows are. */
struct tile {
	WBK_ALIGNED(16) uint32_t table[2][1024]; /* the keys of the words of a block */
	uint8_t *row[SIDES][WBK__TILE_ROWS];
	uint32_t image_off[WBK__TILE_ROWS];
	uint64_t pos[WBK__TILE_ROWS];
	/* For a flat tile, the factors of blocks: of the block in which each row begins, and of
	 * those that follow. */
	uint64_t factor[WBK__TILE_BLOCKS][2];
	const struct wbk_op *o;
	uint32_t n_row, n_col;
	/* All rows begin and end at borders of wide accesses, and so do the words of their sums. */
	uint32_t is_flat;
	uint32_t across, blocks; /* of a row: wide accesses; blocks of the checkpoint, at most */
	uint32_t pitch; /* bytes from a row of a flat tile's image to the next */
};

/* A part of a sum. */
struct acc {
	uint64_t v[2];
};

/* What this thread has added up and not handed in: many successive tiles add to one sum. */
struct sums {
	struct acc acc;
	uint32_t of; /* number of the sum */
};

/* ---- where things are ------------------------------------------------------------------------ */

/* A tile's first row and columns. */
struct corner {
	uint64_t row0,
		row_step; /* number of the first row in the op, and from one row to the next */
	uint32_t col0, n_row, n_col;
};

/* Order of the tiles of an op whose rows are taken down its memory: first some tiles below each
 * other, then those beside these, so that tiles that are moved at the same time are close together
 * both in memory and on the wire. */
DEV void find_band(const struct wbk_op *o, uint32_t lines, uint32_t *line, uint32_t *col)
{
	uint32_t n = *line * o->col_tiles + *col, band = WBK__BAND * o->col_tiles;
	uint32_t first = n / band * WBK__BAND;
	uint32_t high = lines - first < WBK__BAND ? lines - first : WBK__BAND;

	*line = first + n % band % high;
	*col = n % band / high;
}

/* The rows of a tile are neighbours in one dimension, and have the indices of all others in
 * common. */
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
		/* Number of tiles behind each other */
		lines = (o->n[o->row_dim] - 1) / o->tile_rows + 1;
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

/* The index of row *@left in a dimension of @n; *@left becomes the number that is left for the
 * dimensions outside it.  A division of 64 bits takes a hundred instructions, and few ops need
 * one. */
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

/* A row of the image begins at the same address as its row on the wire, modulo the size of one
 * access, but always at the alignment of an element. */
DEV uint32_t shift_of(const struct wbk_op *o, const uint8_t *wire)
{
	uint32_t elem = o->wire_elem, shift = (uint32_t)(uintptr_t)wire & (WIDE - 1);

	return (elem & (elem - 1)) == 0 ? shift & ~(elem - 1) : shift;
}

/* What follows from the number of row @i of a tile. */
struct where {
	uint64_t row; /* in the op */
	int64_t mem_off;
	uint64_t pos;
};

/** where_is - find row @i of the tile whose corner is @c. */
DEV struct where where_is(const struct wbk_op *o, const struct corner *c, uint32_t i)
{
	uint64_t left = c->row0 + i * c->row_step;
	struct where w = {left, (int64_t)o->mem_off + (int64_t)c->col0 * o->mem_stride[3],
		o->pos + c->col0 * o->pos_stride[3]};

	for (int d = 2; d >= 0; d--) {
		uint32_t at = take_index(&left, o->n[d]);

		w.mem_off += (int64_t)at * o->mem_stride[d];
		w.pos += at * o->pos_stride[d];
	}
	return w;
}

/* Find where each row is, on all sides.  Returns whether one of this thread's rows is not flat. */
DEV int fill_rows(struct tile *t, const struct wbk_move_args *a, const struct wbk_op *o,
	const struct corner *c)
{
	uint32_t pitch = WBK__PITCH(o->tile_cols * o->wire_elem);
	uintptr_t all = (uintptr_t)c->n_col * o->wire_elem;

	for (uint32_t i = threadIdx.x; i < c->n_row; i += blockDim.x) {
		struct where w = where_is(o, c, i);
		uint8_t *mem = (uint8_t *)a->bases[o->base] + w.mem_off, *wire = (uint8_t *)a->wire;

		if (wire)
			wire += o->wire_off + (w.row * o->n[3] + c->col0) * o->wire_elem;
		t->row[MEMORY][i] = mem;
		t->row[WIRE][i] = wire;
		t->pos[i] = w.pos;
		t->image_off[i] = i * pitch + (wire ? shift_of(o, wire) : 0);
		all |= (uintptr_t)wire;
		if (o->kernel == WBK_GPU_ROWS)
			all |= (uintptr_t)mem | (uintptr_t)o->repeat_stride;
		if (a->sum)
			all |= (uintptr_t)w.pos;
	}
	return all % WIDE != 0;
}

/** fill_factors - write the factors of the blocks in which each row lies, @blocks for each row, for
 * a flat tile. */
DEV void fill_factors(struct tile *t, const struct wbk_sum_keys *k, const struct wbk_op *o,
	const struct corner *c, uint32_t blocks)
{
	for (uint32_t i = threadIdx.x; i < c->n_row * blocks; i += blockDim.x) {
		uint64_t block = where_is(o, c, i / blocks).pos / WORDS_BLOCK + i % blocks;

		t->factor[i][0] = wbk__block_key(k->seed[0], block);
		t->factor[i][1] = wbk__block_key(k->seed[1], block);
	}
}

/** row_at - the first byte of row @i on one side; @image is used only for rows of the image. */
DEV uint8_t *row_at(const struct tile *t, uint4 *image, enum place at, uint32_t i)
{
	uint8_t *p;

	if (at == IMAGE)
		return (uint8_t *)image + t->image_off[i];
	p = t->row[at][i];
	WBK_IS_GLOBAL(p);
	return p;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Add @bytes bytes in @x, of which the first is byte @at of its block; all are in one block. */
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

/** add_words - add four words times their keys, which are aligned to 16 bytes, to a lane of a
 * sum. */
DEV void add_words(uint64_t *acc, const uint4 *x, const uint32_t *key)
{
	uint4 k = *(const uint4 *)(const void *)key;

	*acc += (uint64_t)x->x * k.x;
	*acc += (uint64_t)x->y * k.y;
	*acc += (uint64_t)x->z * k.z;
	*acc += (uint64_t)x->w * k.w;
}

/* Add 16 bytes; their keys are read in one access if they are aligned. */
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

/** add_block - add a block's words, times the block's factor, to the sum. */
DEV void add_block(
	const struct wbk_sum_keys *k, struct acc *sum, const struct acc *a, uint64_t block)
{
	sum->v[0] += a->v[0] * wbk__block_key(k->seed[0], block);
	sum->v[1] += a->v[1] * wbk__block_key(k->seed[1], block);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Bytes of a row that several lanes move together, all in one block of the checkpoint. */
struct piece {
	const uint8_t *src;
	uint8_t *dst; /* NULL: only the sum */
	uint32_t bytes, at; /* at: place of its first byte in the block */
	uint32_t lane, lanes;
};

/* Move bytes [@i, @end); both sides are aligned. */
DEV void move_wide(const struct tile *t, const struct piece *p, uint32_t i, uint32_t end,
	int has_sum, struct acc *a)
{
	WBK_ROLLED
	for (i += p->lane * WIDE; i < end; i += p->lanes * WIDE) {
		uint4 x = *(const uint4 *)(const void *)(p->src + i);

		if (p->dst)
			*(uint4 *)(void *)(p->dst + i) = x;
		if (has_sum)
			add_wide(t, a, p->at + i, &x);
	}
}

/* Move 4, 2 or 1 bytes at @i in one access. */
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

/** move_piece - move a piece with the widest accesses that both sides allow; its sum is added to
 * @a. */
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

/* Move bytes [begin, end) of a row that lies at @pos of the checkpoint; @p has the row's first
 * byte. */
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

/* Add element @x at (@row, @col) to the sum, each byte by itself, since it may lie in two
 * blocks. */
DEV void sum_element(const struct tile *t, const struct wbk_sum_keys *k, uint32_t row, uint32_t col,
	uint64_t x, struct acc *sum)
{
	uint64_t pos = t->pos[row] + col * t->o->pos_stride[3];

	WBK_ROLLED
	for (unsigned b = 0; b < t->o->wire_elem; b++) {
		struct acc a = {{0, 0}};

		add_bytes(t, &a, (uint32_t)((pos + b) % WORDS_BLOCK), (uint8_t)(x >> 8 * b), 1);
		add_block(k, sum, &a, (pos + b) / WORDS_BLOCK);
	}
}

/* Add elements that are not neighbours in the checkpoint to the sum, from where they lie now. */
DEV void sum_apart(const struct tile *t, uint4 *image, const struct wbk_sum_keys *k,
	enum place from, struct acc *sum)
{
	uint32_t elem = t->o->wire_elem;

	WBK_ROLLED
	for (uint32_t i = threadIdx.x; i < t->n_row * t->n_col; i += blockDim.x) {
		uint32_t row = i / t->n_col, col = i % t->n_col;

		sum_element(t, k, row, col,
			load_bits(row_at(t, image, from, row) + (size_t)col * elem, elem), sum);
	}
}

/* Move the tile's rows from one place to another.  Short rows are moved by a few lanes each,
 * several rows at once; long rows are moved in parts.  @k NULL: without sums. */
DEV void move_rows(const struct tile *t, uint4 *image, const struct wbk_sum_keys *k,
	enum place from, enum place to, struct acc *sum)
{
	uint32_t bytes = t->n_col * t->o->wire_elem, lanes = 32, parts;

	while (lanes > 1 && bytes <= lanes * 8)
		lanes /= 2;
	parts = bytes < 2 * WORDS_BLOCK ? 1 : bytes / WORDS_BLOCK;
	for (uint32_t i = threadIdx.x / lanes; i < t->n_row * parts; i += blockDim.x / lanes) {
		uint32_t row = i / parts, part = i % parts;
		struct piece p = {row_at(t, image, from, row),
			to == NOWHERE ? NULL : row_at(t, image, to, row), 0, 0, threadIdx.x % lanes,
			lanes};

		move_part(t, k, p, t->pos[row], part * WORDS_BLOCK,
			part == parts - 1 ? bytes : (part + 1) * WORDS_BLOCK, sum);
	}
}

/*
 * The same for a flat tile, as nearly all tiles are: its wide accesses are numbered row by row, and
 * a thread loads a few, from any rows, before it stores them, so that memory's latency is paid once
 * for all of them.
 */
DEV void add_flat(const struct tile *t, uint32_t row, uint32_t i, const uint4 *x, struct acc *sum)
{
	uint32_t at = (uint32_t)t->pos[row] % WORDS_BLOCK + i * WIDE;
	const uint64_t *factor = t->factor[row * t->blocks + at / WORDS_BLOCK];
	uint64_t a = 0;

	at = at % WORDS_BLOCK / 4;
	add_words(&a, x, t->table[0] + at);
	sum->v[0] += a * factor[0];
	a = 0;
	add_words(&a, x, t->table[1] + at);
	sum->v[1] += a * factor[1];
}

/* Identifies one of a flat tile's accesses: its row, and its number in the row. */
struct spot {
	uint32_t row, i;
};

/** wide_at - the access @p of the tile on one side. */
DEV uint4 *wide_at(const struct tile *t, uint4 *image, enum place at, const struct spot *p)
{
	return (uint4 *)(void *)row_at(t, image, at, p->row) + p->i;
}

/** read_wide, write_wide - @is_once: the bytes are accessed only once, and caches need not keep
 * them. */
DEV uint4 read_wide(const void *p, int is_once)
{
#ifdef __CUDACC__
	if (is_once)
		return __ldcs((const uint4 *)p);
#endif
	(void)is_once;
	return *(const uint4 *)p;
}

DEV void write_wide(void *p, uint4 x, int is_once)
{
#ifdef __CUDACC__
	if (is_once) {
		__stcs((uint4 *)p, x);
		return;
	}
#endif
	(void)is_once;
	*(uint4 *)p = x;
}

/** ahead_of - number of loads under way at once: fewer with an image, which is near. */
DEV unsigned ahead_of(const uint4 *image)
{
	return image ? 1 : AHEAD;
}

/** next_spot - go to the thread's next access: @down rows and @right accesses further, with @across
 * accesses in a row. */
DEV void next_spot(uint32_t across, struct spot *p, uint32_t down, uint32_t right)
{
	p->row += down;
	p->i += right;
	if (p->i >= across) {
		p->i -= across;
		p->row++;
	}
}

/** move_flat - move all rows of a flat tile; @to NOWHERE: only sum. */
DEV void move_flat(const struct tile *t, uint4 *image, int has_sum, enum place from, enum place to,
	struct acc *sum)
{
	const unsigned ahead = ahead_of(image);
	uint32_t down = blockDim.x / t->across, right = blockDim.x % t->across;
	struct spot p = {threadIdx.x / t->across, threadIdx.x % t->across};

	WBK_ROLLED
	while (p.row < t->n_row) {
		struct spot q = p;
		uint4 x[AHEAD] = {{0, 0, 0, 0}};

		WBK_UNROLL
		for (unsigned k = 0; k < ahead; k++) {
			if (q.row < t->n_row)
				x[k] = read_wide(wide_at(t, image, from, &q), !image);
			next_spot(t->across, &q, down, right);
		}
		WBK_UNROLL
		for (unsigned k = 0; k < ahead; k++) {
			if (p.row < t->n_row && to != NOWHERE)
				write_wide(wide_at(t, image, to, &p), x[k], !image);
			if (p.row < t->n_row && has_sum)
				add_flat(t, p.row, p.i, &x[k], sum);
			next_spot(t->across, &p, down, right);
		}
	}
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Are there neighbours on the wire that are not neighbours in the checkpoint? */
DEV int is_apart(const struct wbk_op *o)
{
	return o->n[3] > 1 && o->pos_stride[3] != o->wire_elem;
}

/* Add what the threads have added up to the sum in memory.  All threads of the block must call it
 * together. */
DEV void hand_in(const struct wbk_move_args *a, struct sums *sum)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t x = warp_sum(sum->acc.v[i]);

		if (threadIdx.x % 32 == 0 && x)
			add_u64(&a->sum[sum->of].lane[i], x);
		sum->acc.v[i] = 0;
	}
}

/** begin_tile - prepare what all threads need to know of tile @number.  All threads of the block
 * must call it together; sums for another op are handed in first. */
DEV void begin_tile(
	struct tile *t, const struct wbk_move_args *a, uint32_t number, struct sums *sum)
{
	uint32_t op = piece_of(a->first, a->n_op, number), blocks;
	const struct wbk_op *o = &a->op[op];
	struct corner c = corner_of(o, number - a->first[op]);
	int is_odd;

	if (a->sum && o->sum != sum->of) {
		hand_in(a, sum);
		sum->of = o->sum;
	}
	blocks = c.n_col * o->wire_elem / WORDS_BLOCK + 2;
	is_odd = o->is_fill || (a->sum && is_apart(o));
	__syncthreads(); /* no thread is at the previous tile any more */
	if (threadIdx.x == 0) {
		t->o = o;
		t->n_row = c.n_row;
		t->n_col = c.n_col;
		t->across = c.n_col * o->wire_elem / WIDE;
		t->blocks = blocks;
		t->pitch = WBK__PITCH(o->tile_cols * o->wire_elem);
	}
	if (a->sum && !is_odd)
		fill_factors(t, a->keys, o, &c, blocks);
	is_odd |= fill_rows(t, a, o, &c);
	is_odd = __syncthreads_or(is_odd);
	t->is_flat = !is_odd; /* all threads write the same value */
}

/*
 * In a flat tile with long rows, a warp takes one block of the checkpoint at a time, which has one
 * factor.
 */
DEV void move_block(const struct tile *t, const uint8_t *src, uint8_t *dst, uint32_t at,
	uint32_t bytes, int has_sum, const unsigned ahead, struct acc *a)
{
	uint32_t i = threadIdx.x % 32 * WIDE;

	WBK_ROLLED
	for (; i < bytes; i += ahead * 32 * WIDE) {
		uint4 x[AHEAD] = {{0, 0, 0, 0}};

		WBK_UNROLL
		for (unsigned k = 0; k < ahead; k++)
			if (i + k * 32 * WIDE < bytes)
				x[k] = read_wide(src + i + k * 32 * WIDE, ahead == AHEAD);
		WBK_UNROLL
		for (unsigned k = 0; k < ahead; k++) {
			uint32_t off = i + k * 32 * WIDE;

			if (off < bytes && dst)
				write_wide(dst + off, x[k], ahead == AHEAD);
			if (off < bytes && has_sum) {
				add_words(&a->v[0], &x[k], t->table[0] + (at + off) / 4);
				add_words(&a->v[1], &x[k], t->table[1] + (at + off) / 4);
			}
		}
	}
}

/** move_blocks - move all rows of a flat tile with long rows; @to NOWHERE: only sum. */
DEV void move_blocks(const struct tile *t, uint4 *image, int has_sum, enum place from,
	enum place to, struct acc *sum)
{
	uint32_t row_bytes = t->across * WIDE;

	WBK_ROLLED
	for (uint32_t i = threadIdx.x / 32; i < t->n_row * t->blocks; i += blockDim.x / 32) {
		/* Without sums it does not matter where blocks begin. */
		uint32_t row = i / t->blocks,
			 at = has_sum ? (uint32_t)t->pos[row] % WORDS_BLOCK : 0;
		uint32_t begin = i % t->blocks * WORDS_BLOCK, end = begin + WORDS_BLOCK - at;
		struct acc a = {{0, 0}};

		/* Blocks begin where the checkpoint's blocks do, but the first block of a row
		 * begins where the row does. */
		begin = begin < at ? 0 : begin - at;
		end = end < row_bytes ? end : row_bytes;
		if (begin >= end)
			continue;
		move_block(t, row_at(t, image, from, row) + begin,
			to == NOWHERE ? NULL : row_at(t, image, to, row) + begin,
			(at + begin) % WORDS_BLOCK, end - begin, has_sum, ahead_of(image), &a);
		if (has_sum) {
			sum->v[0] += a.v[0] * t->factor[i][0];
			sum->v[1] += a.v[1] * t->factor[i][1];
		}
	}
}

/* Move the tile's rows in the best way. */
DEV void move_all(const struct tile *t, uint4 *image, const struct wbk_sum_keys *k, enum place from,
	enum place to, struct acc *sum)
{
	if (t->is_flat && t->across >= LONG / WIDE) {
		move_blocks(t, image, k != NULL, from, to, sum);
		return;
	}
	if (t->is_flat) {
		move_flat(t, image, k != NULL, from, to, sum);
		return;
	}
	if (k && is_apart(t->o)) {
		sum_apart(t, image, k, from, sum);
		k = NULL;
	}
	move_rows(t, image, k, from, to, sum);
}

/** load_table - load the keys, once for each block of threads; the barrier after it is in
 * begin_tile(). */
DEV void load_table(struct tile *t, const struct wbk_move_args *a)
{
	for (uint32_t i = threadIdx.x; a->sum && i < 2048; i += blockDim.x)
		t->table[i / 1024][i % 1024] = a->keys->table[i / 1024][i % 1024];
}

#endif
