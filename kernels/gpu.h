/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_GPU_H
#define WBK_GPU_H
/*
 * Kernels of a GPU: their tables, their launches, and for each a host reference.
 *
 * A kernel takes a table of any number of pieces of work, so that a round is one launch or two, and
 * cuts it into tiles that blocks of threads take in turns.  A kernel does what a host function
 * wbk_host_X() does, byte for byte: the first WBK_MOVES kernels together do wbk_host_move(), and
 * each of the others does the function of the same name; all pointers in a kernel's arguments, and
 * in the tables they point to, are to memory of the device (or mapped there) instead of the host's.
 * move.cu, scan.cu and ids.cu have the bodies.  Nothing here calls a driver: a caller that has one
 * loads wbk_gpu_kernel()'s image, finds the function by its name, and passes the arguments by
 * value.
 *
 * No allocation, no lock, no log.  Any thread; callers own all memory.  Layer: L1.
 */
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- moving: pack, assemble, sum ------------------------------------------------------------ */

#define WBK_DIMS 4u
#define WBK_MOVES 3u /* kernels that move: the first of enum wbk_gpu */

enum wbk_way {
	WBK_WAY_PACK = 0, /* memory -> wire */
	WBK_WAY_ASSEMBLE = 1, /* wire -> memory */
	WBK_WAY_SUM = 2, /* only the sum of what pack would write; there is no wire */
};

/*
 * A loop nest: a box of WBK_DIMS dimensions, outermost first.  Element (i0, i1, i2, i3) lies at
 *	memory		bases[base] + mem_off + sum of i * mem_stride	(bytes; may be negative)
 *	wire		wire_off + its row-major number in the box * wire_elem
 *	checkpoint	pos + sum of i * pos_stride			(bytes)
 * Assemble writes it repeat times (0 is 1), repeat_stride bytes apart; pack reads the first.
 * A fill has no wire and no sum: assemble writes @value into its memory.
 */
struct wbk_op {
	uint64_t wire_off, mem_off, pos;
	int64_t mem_stride[WBK_DIMS];
	uint64_t pos_stride[WBK_DIMS];
	int64_t repeat_stride;
	uint64_t value; /* for a fill: an element of memory, in the low bytes */
	uint32_t n[WBK_DIMS]; /* 0 = nothing to do */
	uint32_t repeat;
	uint32_t base; /* index into the bases table */
	uint32_t sum; /* index into the sums */
	uint8_t wire_elem, mem_elem; /* bytes of an element */
	uint8_t cast; /* enum wbk_cast */
	uint8_t is_fill;
	/* Written by wbk_move_prepare(): how the op is cut.  A row is n[3] elements. */
	uint32_t tile_rows, tile_cols; /* elements of a tile */
	uint32_t col_tiles; /* tiles side by side in a row */
	/* The rows of a tile are neighbours in this dimension; 3: in all dimensions */
	uint8_t row_dim;
	uint8_t kernel; /* enum wbk_gpu: which one moves it */
	uint8_t pad[2];
};

struct wbk_move_args {
	const struct wbk_op *op;
	const uint32_t
		*first; /* n_op + 1: each op's first tile, then all tiles, of the kernel run */
	void *const *bases;
	void *wire; /* NULL for WBK_WAY_SUM */
	const struct wbk_sum_keys *keys; /* with @sum */
	struct wbk_sum *sum; /* added to; NULL = no sums */
	uint32_t n_op;
	uint32_t way; /* enum wbk_way */
};

/** wbk_op_of_box - the op that does what the box does, summed into sums[@sum]. */
struct wbk_op wbk_op_of_box(const struct wbk_box *box, uint32_t sum);
/**
 * wbk_move_prepare - complete @n ops for one way, and number their tiles
 * Dimensions that follow each other without a gap are joined, which does not change the meaning.
 * Each op is done by one of WBK_MOVES kernels; for the others it has no tiles.
 * @first:	for each of these kernels n + 1 numbers: each op's first tile, then the number of
 *		all tiles
 * 0; -EINVAL: an op whose element sizes do not fit its cast, or a fill when @way is not assemble
 * (*bad is its number); -E2BIG: more than 2^31 - 1 tiles, or sizes beyond 2^63 bytes.
 */
int wbk_move_prepare(
	struct wbk_op *op, uint32_t n, enum wbk_way way, uint32_t *first, uint32_t *bad);
/** wbk_move_tiles - number of tiles of kernel @which, from what wbk_move_prepare() wrote for @n
 * ops. */
static inline uint32_t wbk_move_tiles(const uint32_t *first, uint32_t n, unsigned which)
{
	return first[which * (n + 1) + n];
}
/** wbk_host_move - the reference: element by element, in order; blocks for as long as that takes.
 */
void wbk_host_move(const struct wbk_move_args *a);

/* ---- scanning: counts, classes, second differences ------------------------------------------ */

/*
 * A scan goes over a table of items, each a matrix, in tiles.  What it finds in an item is added to
 * the item's wbk_found; the hits of all items are in one list, in any order.
 */

/* A matrix in memory: a parameter, or a part of one. */
struct wbk_plane {
	void *data; /* element (0, 0) */
	uint64_t rows, cols;
	int64_t row_stride; /* elements from a row to the next; cols are adjacent */
	uint64_t row_begin, row_end; /* rows to look at */
	uint8_t elem; /* bytes of an element: 1, 2 or 4 */
	uint8_t pad[7];
};

/* A number of elements, and the lowest and highest index of these. */
struct wbk_range {
	uint64_t n, first, last; /* none: 0, UINT64_MAX, 0 */
};

struct wbk_found {
	struct wbk_range a, b; /* each kernel says what they mean; index r * cols + c */
	uint64_t n_hit; /* hits found, written or not */
	uint32_t is_over; /* some of its hits were not written */
	uint32_t pad;
};

/* A place where something begins, or differs. */
struct wbk_hit {
	uint64_t index; /* r * cols + c */
	int64_t value;
	uint32_t item; /* number in the table */
	uint32_t pad; /* 0 */
};

struct wbk_scan_args {
	const void *item; /* items of the kernel's type, below */
	/* n_item + 1: the number of each item's first tile, then of all tiles */
	const uint32_t *first;
	struct wbk_found *out; /* n_item */
	struct wbk_hit *hit; /* NULL: the kernel has none */
	uint64_t *n_hit; /* hits found, in all; those beyond @cap were not written */
	uint64_t cap;
	uint32_t n_item;
	uint32_t pad;
};

/** wbk_found_none - nothing found yet. */
struct wbk_found wbk_found_none(void);
/**
 * wbk_tiles_add - number the tiles of one more item
 * @first:	[0] is the number of its first tile; [1] is written: the number of the next item's
 *		first tile
 * @rows, @cols: size of what is scanned; @times: copies of the item
 * 0; -E2BIG: more than 2^31 - 1 tiles in all.
 */
int wbk_tiles_add(uint32_t *first, uint64_t rows, uint64_t cols, uint32_t times);

/* Second differences of a parameter, or of some of its rows, in one pass. */
struct wbk_diff2 {
	struct wbk_field f; /* as wbk_diff2() has it */
	uint64_t row_begin, row_end; /* rows to look at; those before are read where needed */
	uint8_t is_wide; /* elements are F16, and are widened to F32 when read: f.code is F32 */
	uint8_t pad[7];
};
/**
 * wbk_host_diff2 - find the nonzeros of the second difference of each item's rows
 * Hits: value is never 0.  a: copies that do not decode to a digit.  The host writes hits in order,
 * a device in any order.  If the buffer is too small, host and device may write different hits, but
 * they count the same.  An item with is_over can be done again, alone or some rows at a time, since
 * nothing was changed.  Blocks.
 */
void wbk_host_diff2(const struct wbk_scan_args *a);

struct wbk_equal {
	struct wbk_plane p;
	const void *like; /* rows * cols elements, dense; NULL = none */
	uint32_t want; /* a raw element */
	uint32_t pad;
};
/** wbk_host_equal - compare.  a: elements that are not @want; b: elements that differ from @like.
 * No hits.  Blocks. */
void wbk_host_equal(const struct wbk_scan_args *a);

/* What an element is, after two passes of constants. */
enum wbk_class {
	WBK_CLASS_COPY = 0, /* it holds the constant of each pass */
	WBK_CLASS_UNWRITTEN = 1, /* it holds what was there before */
	WBK_CLASS_ARITHMETIC = 2, /* none of the others */
	WBK_CLASS_CONSTANT = 4, /* it holds the same value after both */
};

struct wbk_classify {
	struct wbk_plane p; /* as the second pass left it */
	const void *was; /* after the first pass; dense; NULL: all elements were @first */
	const void *before; /* before any pass; dense; NULL: not known */
	uint8_t *cls; /* rows * cols, written: enum wbk_class */
	uint32_t first, second, sentinel; /* raw elements; the second pass ran on the sentinel */
	uint8_t is_merged; /* hits do not distinguish the kinds of elements that are no copy */
	uint8_t pad[3];
};
/**
 * wbk_host_classify - find the class of each element
 * Hits: where the class (or constant) changes along a row, which begins as if after a copy.  Value:
 * the class, and above the low 8 bits the constant; if merged: 0 or 1.  a: arithmetic; b: written
 * by the first pass and not by the second.  If the buffer for hits is too small, everything is as
 * for second differences.  Blocks.
 */
void wbk_host_classify(const struct wbk_scan_args *a);

struct wbk_put {
	struct wbk_plane p; /* written */
	const void *from; /* rows * cols elements, dense; NULL: all are @value */
	const uint8_t *cls; /* rows * cols; NULL = every element */
	uint32_t value;
	uint8_t only; /* the class of elements that are written */
	uint8_t pad[3];
};
/** wbk_host_put - write elements of one class.  No counts, no hits (out is NULL).  Blocks. */
void wbk_host_put(const struct wbk_scan_args *a);

/* ---- ids: what a probe writes into a checkpoint ---------------------------------------------- */

enum wbk_id_kind {
	WBK_ID_SAME = 0, /* all elements are mask */
	WBK_ID_COLUMN = 1, /* a digit of the column */
	WBK_ID_ROW = 2, /* a digit of the row */
	WBK_ID_HASH = 3, /* a hash of both */
};

/* How an element's row and column in the checkpoint make its bits (kernels/ids.h). */
struct wbk_id {
	uint64_t seed; /* of the hash */
	uint32_t mask; /* of a digit; the element itself for WBK_ID_SAME */
	uint8_t shift; /* of a digit */
	uint8_t code; /* enum wbk_code */
	uint8_t is_mixed; /* use digits that bf16, f16 and f32 can all hold */
	uint8_t kind; /* enum wbk_id_kind */
};

struct wbk_fill {
	struct wbk_plane p; /* written */
	struct wbk_id id;
	uint64_t row; /* row of the checkpoint that row 0 of p is */
};
/** wbk_host_fill - write what a tensor of the checkpoint holds in this pass.  No counts, no hits.
 * Blocks. */
void wbk_host_fill(const struct wbk_scan_args *a);

/* An op of a source map: element (r, c), and each of its repeats, is the checkpoint's element
 * (row + r * row_step, col + c * col_step), cast. */
struct wbk_check {
	const void *data; /* address of element (0, 0) */
	int64_t row_stride, col_stride, repeat_stride; /* elements of memory */
	uint64_t at; /* index of the first element in the parameter */
	uint64_t row, col;
	uint32_t rows, cols, repeat; /* repeat: at least 1 */
	uint32_t row_step, col_step;
	uint8_t wire_elem, mem_elem; /* bytes of an element: 1, 2 or 4 */
	uint8_t cast; /* enum wbk_cast */
	uint8_t is_lossy; /* compare after the checkpoint's element was cast to memory and back */
	struct wbk_id id;
};
/** wbk_host_check - check ops.  a: elements that would not be packed as what the checkpoint holds;
 * their indices are at plus their distance in memory.  No hits.  Blocks. */
void wbk_host_check(const struct wbk_scan_args *a);

/* ---- launches ------------------------------------------------------------------------------- */

enum wbk_gpu {
	WBK_GPU_ROWS, /* struct wbk_move_args: the same bytes in memory and on the wire */
	WBK_GPU_TURNS, /* struct wbk_move_args: transposes whose accesses are wide */
	WBK_GPU_IMAGE, /* struct wbk_move_args: all other ops */
	/* struct wbk_scan_args, over a table of the struct with the same name: */
	WBK_GPU_DIFF2,
	WBK_GPU_EQUAL,
	WBK_GPU_CLASSIFY,
	WBK_GPU_PUT,
	WBK_GPU_FILL,
	WBK_GPU_CHECK,
	WBK_GPU_COUNT,
};

struct wbk_gpu_kernel {
	const char *name; /* of the function in the image */
	const void *image; /* what a driver loads (a fatbin); NULL: built without a CUDA compiler */
	uint32_t args_bytes;
	uint32_t threads; /* threads of a block; any multiple of 32 up to this works */
	uint32_t blocks; /* blocks that a multiprocessor runs at once */
	uint32_t tiles; /* tiles that a block takes at once: one, or one per warp */
};

/** wbk_gpu_kernel - what a driver needs to know; static. */
const struct wbk_gpu_kernel *wbk_gpu_kernel(enum wbk_gpu which);
/** wbk_gpu_grid - blocks for a launch of @n_tile tiles on @n_sm multiprocessors, all of which run
 *  at once; 0: nothing to launch.  Any number from 1 works. */
uint32_t wbk_gpu_grid(enum wbk_gpu which, uint32_t n_tile, uint32_t n_sm);

#ifdef __cplusplus
}
#endif
#endif
