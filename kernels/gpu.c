/* SPDX-License-Identifier: Apache-2.0 */
/* Cut the tables of GPU kernels into tiles, and say where the images of the kernels are. */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/gpu_tile.h"
#include "kernels/internal.h"

#define LAST (WBK_DIMS - 1)
#define TILES_MAX INT32_MAX

struct wbk_op wbk_op_of_box(const struct wbk_box *b, uint32_t sum)
{
	return (struct wbk_op){.wire_off = b->wire_off,
		.mem_off = b->mem_off,
		.pos = b->pos,
		.mem_stride = {0, 0, b->row_stride, b->col_stride},
		.pos_stride = {0, 0, b->pos_row_stride, b->pos_col_stride},
		.repeat_stride = b->repeat_stride,
		.n = {1, 1, b->n_row, b->n_col},
		.repeat = b->repeat,
		.base = b->base,
		.sum = sum,
		.wire_elem = b->wire_elem,
		.mem_elem = b->mem_elem,
		.cast = b->cast};
}

/* Are two dimensions really one, since they follow each other without a gap, in memory and in the
 * checkpoint? */
static bool is_seamless(const struct wbk_op *o, unsigned outer, unsigned inner)
{
	return o->mem_stride[outer] == (int64_t)o->n[inner] * o->mem_stride[inner] &&
	       o->pos_stride[outer] == o->n[inner] * o->pos_stride[inner] &&
	       (uint64_t)o->n[outer] * o->n[inner] <= UINT32_MAX;
}

/* Give the op as few dimensions as possible, at the end of its arrays. */
static void fold(struct wbk_op *o)
{
	struct wbk_op x = *o;
	unsigned at = WBK_DIMS; /* the dimension that was taken over last */

	for (unsigned d = 0; d < WBK_DIMS; d++) {
		x.n[d] = 1;
		x.mem_stride[d] = 0;
		x.pos_stride[d] = 0;
	}
	x.mem_stride[LAST] = x.mem_elem;
	x.pos_stride[LAST] = x.wire_elem;
	for (unsigned d = WBK_DIMS; d-- > 0;) {
		if (o->n[d] == 1)
			continue;
		at--;
		x.n[at] = o->n[d];
		x.mem_stride[at] = o->mem_stride[d];
		x.pos_stride[at] = o->pos_stride[d];
		if (at < LAST && is_seamless(&x, at, at + 1)) {
			x.n[at + 1] *= x.n[at];
			x.n[at] = 1;
			x.mem_stride[at] = 0;
			x.pos_stride[at] = 0;
			at++;
		}
	}
	*o = x;
}

static bool is_sound(const struct wbk_op *o, enum wbk_way way)
{
	if (o->is_fill)
		return way == WBK_WAY_ASSEMBLE && o->mem_elem >= 1 && o->mem_elem <= 8;
	return wbk__cast_ok(o->cast, o->wire_elem, o->mem_elem);
}

static uint32_t at_most(uint64_t x, uint32_t max)
{
	return x < max ? (uint32_t)x : max;
}

/* The dimension in which rows of a tile are neighbours.  If elements of rows are not adjacent in
 * memory, but those of another dimension are, it is that one: then accesses to memory are whole
 * lines. */
static unsigned row_dim(const struct wbk_op *o)
{
	for (unsigned d = 0; d < LAST && o->mem_stride[LAST] != o->mem_elem; d++)
		if (o->n[d] > 1 && o->mem_stride[d] == o->mem_elem)
			return d;
	return LAST;
}

/* Is the op a transpose that can be moved in wide accesses, aligned in memory and on the wire, and
 * also in the checkpoint, whose words are summed? */
static bool is_turn(const struct wbk_op *o)
{
	uint64_t all = o->wire_off | o->mem_off | o->pos | (uint64_t)o->n[LAST] * o->wire_elem;

	if (o->row_dim == LAST || o->cast != WBK_COPY || o->is_fill || o->repeat > 1 ||
		(o->wire_elem != 2 && o->wire_elem != 4) || o->pos_stride[LAST] != o->wire_elem)
		return false;
	for (unsigned d = 0; d < WBK_DIMS; d++) {
		all |= d == o->row_dim ? (uint64_t)o->n[d] * o->mem_elem
				       : (uint64_t)o->mem_stride[d];
		all |= d == LAST ? 0 : o->pos_stride[d];
	}
	return all % 16 == 0;
}

static void shape(struct wbk_op *o, uint64_t rows)
{
	uint32_t elem = o->is_fill ? o->mem_elem : o->wire_elem, cols = o->n[LAST];

	o->row_dim = (uint8_t)row_dim(o);
	o->kernel = WBK_GPU_IMAGE;
	if (o->cast == WBK_COPY && !o->is_fill && o->mem_stride[LAST] == o->mem_elem) {
		o->kernel = WBK_GPU_ROWS;
		o->tile_cols = at_most(cols, WBK__TILE_DIRECT / elem);
		o->tile_rows = at_most(rows, WBK__TILE_DIRECT / (o->tile_cols * elem));
	} else if (is_turn(o)) {
		o->kernel = WBK_GPU_TURNS;
		o->tile_cols = at_most(cols, WBK__TURNED_ROW / elem);
		o->tile_rows = at_most(o->n[o->row_dim], WBK__TILE_ROWS);
	} else if (o->row_dim != LAST) {
		/* As many rows as the image has room for, so that stretches of memory are long; a
		 * multiple of 16 rows, so that accesses are whole. */
		o->tile_cols = at_most(cols, (elem <= 2 ? 128 : 256) / elem);
		o->tile_rows = at_most(o->n[o->row_dim],
			WBK__TILE_IMAGE / WBK__PITCH(o->tile_cols * elem) / 16 * 16);
	} else {
		o->tile_cols = at_most(cols, 16384 / elem);
		o->tile_rows = at_most(rows, WBK__TILE_IMAGE / WBK__PITCH(o->tile_cols * elem));
	}
	o->tile_rows = at_most(o->tile_rows, WBK__TILE_ROWS);
	assert(o->kernel != WBK_GPU_IMAGE ||
		o->tile_rows * WBK__PITCH(o->tile_cols * elem) <= WBK__TILE_IMAGE);
}

/* Cut an op into tiles, and return their number.  UINT64_MAX: its wire image is too large to be
 * numbered. */
static uint64_t cut(struct wbk_op *o)
{
	unsigned __int128 rows = (unsigned __int128)o->n[0] * o->n[1] * o->n[2], all;
	uint64_t lines;

	o->kernel = WBK_GPU_ROWS; /* also of an op that has no tiles: the caller counts by this */
	if (rows * o->n[LAST] == 0)
		return 0;
	if (rows * o->n[LAST] > INT64_MAX / 8)
		return UINT64_MAX;
	fold(o);
	rows = (uint64_t)o->n[0] * o->n[1] * o->n[2];
	shape(o, (uint64_t)rows);
	o->col_tiles = (o->n[LAST] - 1) / o->tile_cols + 1;
	lines = o->row_dim == LAST ? (uint64_t)rows : o->n[o->row_dim];
	all = (lines - 1) / o->tile_rows + 1;
	if (o->row_dim != LAST)
		all *= (uint64_t)rows / o->n[o->row_dim];
	all *= o->col_tiles;
	return all > UINT64_MAX ? UINT64_MAX : (uint64_t)all;
}

int wbk_move_prepare(
	struct wbk_op *op, uint32_t n, enum wbk_way way, uint32_t *first, uint32_t *bad)
{
	uint64_t tiles[WBK_MOVES] = {0};

	assert((op || !n) && first && bad);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t more, *its;

		*bad = i;
		for (unsigned k = 0; k < WBK_MOVES; k++)
			first[k * (n + 1) + i] = (uint32_t)tiles[k];
		if (!is_sound(&op[i], way))
			return -EINVAL;
		more = cut(&op[i]);
		its = &tiles[op[i].kernel];
		if (more > TILES_MAX - *its)
			return -E2BIG;
		*its += more;
	}
	for (unsigned k = 0; k < WBK_MOVES; k++)
		first[k * (n + 1) + n] = (uint32_t)tiles[k];
	return 0;
}

struct wbk_found wbk_found_none(void)
{
	return (struct wbk_found){.a = {0, UINT64_MAX, 0}, .b = {0, UINT64_MAX, 0}};
}

int wbk_tiles_add(uint32_t *first, uint64_t rows, uint64_t cols, uint32_t times)
{
	unsigned __int128 more;

	assert(first && first[0] <= TILES_MAX);
	more = (unsigned __int128)(rows / WBK__SCAN_ROWS + !!(rows % WBK__SCAN_ROWS)) *
	       (cols / WBK__SCAN_COLS + !!(cols % WBK__SCAN_COLS));
	if (more > TILES_MAX || more * times > TILES_MAX - first[0])
		return -E2BIG;
	first[1] = first[0] + (uint32_t)(more * times);
	return 0;
}

/* The images, as nvcc made them (see the Makefile). */
#ifdef WBK_GPU_IMAGES
#define IMAGE(symbol, file)                                                                        \
	__asm__(".section .rodata." #symbol ",\"a\"\n"                                             \
		".balign 64\n" #symbol ":\n"                                                       \
		".incbin \"" file "\"\n"                                                           \
		".previous\n");                                                                    \
	extern __attribute__((visibility("hidden"))) const uint8_t symbol[]
IMAGE(wbk__image_move, WBK_GPU_IMAGES "/move.fatbin");
IMAGE(wbk__image_scan, WBK_GPU_IMAGES "/scan.fatbin");
IMAGE(wbk__image_ids, WBK_GPU_IMAGES "/ids.fatbin");
#else
#define wbk__image_move NULL
#define wbk__image_scan NULL
#define wbk__image_ids NULL
#endif

#define MOVE(name) name, wbk__image_move, sizeof(struct wbk_move_args), WBK__THREADS
#define SCAN(name) name, wbk__image_scan, sizeof(struct wbk_scan_args), WBK__THREADS
#define IDS(name) name, wbk__image_ids, sizeof(struct wbk_scan_args), WBK__THREADS

const struct wbk_gpu_kernel *wbk_gpu_kernel(enum wbk_gpu which)
{
	static const struct wbk_gpu_kernel kernels[WBK_GPU_COUNT] = {
		{MOVE("wbk_gpu_rows"), WBK__BLOCKS_ROWS, 1},
		{MOVE("wbk_gpu_turns"), WBK__BLOCKS, 1},
		{MOVE("wbk_gpu_image"), WBK__BLOCKS, 1},
		{SCAN("wbk_gpu_diff2"), WBK__BLOCKS_DIFF2, WBK__THREADS / 32},
		{SCAN("wbk_gpu_equal"), WBK__BLOCKS, 1},
		{SCAN("wbk_gpu_classify"), WBK__BLOCKS, 1},
		{SCAN("wbk_gpu_put"), WBK__BLOCKS, 1},
		{IDS("wbk_gpu_fill"), WBK__BLOCKS, 1},
		{IDS("wbk_gpu_check"), WBK__BLOCKS, 1},
	};

	assert(which < WBK_GPU_COUNT);
	return &kernels[which];
}

uint32_t wbk_gpu_grid(enum wbk_gpu which, uint32_t n_tile, uint32_t n_sm)
{
	const struct wbk_gpu_kernel *k = wbk_gpu_kernel(which);
	uint64_t most = (uint64_t)k->blocks * n_sm;
	uint32_t blocks = n_tile / k->tiles + (n_tile % k->tiles != 0);

	assert(n_sm);
	return blocks < most ? blocks : (uint32_t)most;
}
