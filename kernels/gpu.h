/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_GPU_H
#define WBK_GPU_H
/*
 * Kernels of a GPU: their tables, their launches, and for each a host reference.
 *
 * A kernel takes a table of any number of pieces of work, so that a round is one launch or two, and
 * cuts it into tiles that blocks of threads take in turns.  Kernels mean what the host's functions
 * wbk_host_X(const struct wbk_X_args *) do, byte for byte: wbk_gpu_rows and wbk_gpu_image together
 * wbk_host_move, the others what is called as they are; all pointers in the arguments,
 * and the tables they point to, are then of the device (or mapped there) instead of the host.
 * move.cu and scan.cu are the bodies.  Nothing here calls a driver: whoever has one loads
 * wbk_gpu_kernel()'s image, finds the function by its name, and passes it the arguments by value.
 *
 * No allocation, no lock, no log.  Any thread; callers own all memory.  Layer: L1.
 */
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- moving: pack, assemble, sum ------------------------------------------------------------ */

#define WBK_DIMS 4u

enum wbk_way {
	WBK_WAY_PACK = 0, /* memory -> wire */
	WBK_WAY_ASSEMBLE = 1, /* wire -> memory */
	WBK_WAY_SUM = 2, /* the sum of what pack would write; there is no wire */
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
	uint64_t value; /* of a fill: an element of memory, in the low bytes */
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
	uint8_t row_dim; /* the rows of a tile are neighbours in this dimension; 3: in all */
	uint8_t is_direct; /* rows are the same bytes in memory and on the wire */
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
 * Dimensions that follow each other without a gap become one, which changes no meaning.  An op is
 * done by one of two kernels; of the other it has no tiles.
 * @first:	n + 1 numbers for WBK_GPU_ROWS, then as many for WBK_GPU_IMAGE
 * 0; -EINVAL: an op whose element sizes do not fit its cast, or a fill that is not assembled (*bad
 * is its number); -E2BIG: more than 2^31 - 1 tiles, or sizes beyond 2^63 bytes.
 */
int wbk_move_prepare(
	struct wbk_op *op, uint32_t n, enum wbk_way way, uint32_t *first, uint32_t *bad);
/** wbk_host_move - the reference: element by element, in order; blocks for as long as that takes.
 */
void wbk_host_move(const struct wbk_move_args *a);

/* ---- scanning: second differences, classes -------------------------------------------------- */

/* A parameter, or some of its rows, in one pass. */
struct wbk_scan {
	struct wbk_field f; /* diff2: as wbk_diff2() has it; classify: code and cls are not used */
	uint64_t row_begin, row_end; /* rows to look at; those before are read where needed */
	uint8_t *mark; /* classify: rows * cols classes, or NULL */
	uint32_t want; /* classify: the raw element that a copy holds now */
	uint8_t elem; /* classify: bytes of an element: 1, 2 or 4 */
	uint8_t pad[3];
};

/* Something found. */
struct wbk_hit {
	uint64_t index; /* r * cols + c */
	int64_t value; /* diff2: never 0; classify: the raw element */
	uint32_t scan; /* number in the table */
	uint32_t pad; /* 0 */
};

struct wbk_scan_out {
	uint64_t n; /* diff2: copies that decode to nothing; classify: elements that are @want */
	uint64_t n_hit; /* found, written or not */
	uint32_t is_over; /* some of its hits were not written */
	uint32_t pad;
};

struct wbk_scan_args {
	const struct wbk_scan *scan;
	const uint32_t *first; /* n_scan + 1, as for ops */
	struct wbk_scan_out *out; /* n_scan; added to */
	struct wbk_hit *hit;
	uint64_t *n_hit; /* hits found, in all; those beyond @cap were not written */
	uint64_t cap;
	uint32_t n_scan;
	uint32_t pad;
};

/** wbk_scan_prepare - number the tiles of @n scans; 0; -E2BIG: more than 2^31 - 1. */
int wbk_scan_prepare(const struct wbk_scan *scan, uint32_t n, uint32_t *first);
/**
 * wbk_host_diff2 - the nonzeros of the second difference of each scan's rows
 * The host writes hits in order, a device in any order.  Where the buffer is too small which hits
 * are written may differ, what is counted may not.  A scan with is_over is done again, alone or
 * some rows of it: nothing was changed.  Blocks.
 */
void wbk_host_diff2(const struct wbk_scan_args *a);
/**
 * wbk_host_classify - what does not hold the constant of a pass
 * A hit is an element that differs from its left neighbour, the first of a row from @want: those
 * of a row say what all its elements are.  Elements that are not @want get their class in @mark
 * set to 1 (others are left as they are: two passes make 0 of what was a copy in both).  Blocks.
 */
void wbk_host_classify(const struct wbk_scan_args *a);

/* ---- launches ------------------------------------------------------------------------------- */

enum wbk_gpu {
	WBK_GPU_ROWS, /* struct wbk_move_args: the same bytes in memory and on the wire */
	WBK_GPU_IMAGE, /* struct wbk_move_args: all else */
	WBK_GPU_DIFF2, /* struct wbk_scan_args */
	WBK_GPU_CLASSIFY, /* struct wbk_scan_args */
	WBK_GPU_COUNT,
};

struct wbk_gpu_kernel {
	const char *name; /* of the function in the image */
	const void *image; /* what a driver loads (a fatbin); NULL: built without a CUDA compiler */
	uint32_t args_bytes;
	uint32_t threads; /* of a block; any multiple of 32 up to this works */
};

/** wbk_gpu_kernel - what a driver needs to know; static. */
const struct wbk_gpu_kernel *wbk_gpu_kernel(enum wbk_gpu which);
/** wbk_gpu_grid - blocks for a launch of @n_tile tiles on @n_sm multiprocessors; 0: nothing to
 *  launch.  Any number from 1 works. */
uint32_t wbk_gpu_grid(uint32_t n_tile, uint32_t n_sm);

#ifdef __cplusplus
}
#endif
#endif
