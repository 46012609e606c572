/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBK_GPU_TILE_H
#define WBK_GPU_TILE_H
/*
 * How tables are cut into tiles: shared by the host, which prepares the tables, and the kernels.
 *
 * A tile of an op is some rows (of at most WBK__TILE_ROWS) times some columns.  If memory and wire
 * hold the same bytes the tile is moved directly.  All other tiles go through an image of their
 * wire bytes in shared memory, whose rows lie a pitch apart.
 */
#include <assert.h>

#include "kernels/gpu.h"

/* Host and device compilers lay these out alike. */
static_assert(sizeof(struct wbk_op) == 152, "ops are passed to the device");
static_assert(sizeof(struct wbk_move_args) == 56, "passed by value");
static_assert(sizeof(struct wbk_plane) == 56, "so are items of scans");
static_assert(sizeof(struct wbk_diff2) == 72 && sizeof(struct wbk_equal) == 72, "and these");
static_assert(sizeof(struct wbk_classify) == 96 && sizeof(struct wbk_put) == 80, "and these");
static_assert(sizeof(struct wbk_fill) == 80 && sizeof(struct wbk_check) == 96, "and these");
static_assert(sizeof(struct wbk_hit) == 24 && sizeof(struct wbk_found) == 64, "and come back");
static_assert(sizeof(struct wbk_scan_args) == 56, "passed by value");

/* Threads of a block, and blocks that a multiprocessor runs at once: these determine how many
 * registers a thread has.  Chips with less shared memory than sm_90 run fewer of wbk_gpu_image's:
 * three on sm_80. */
#define WBK__THREADS 256
#define WBK__BLOCKS 4
#define WBK__BLOCKS_ROWS 3
#define WBK__BLOCKS_DIFF2 3

#define WBK__TILE_ROWS 256u
#define WBK__TILE_DIRECT (64u << 10) /* bytes of a direct tile */
/* Most blocks of the sum in which a tile's rows lie: for each row two more than its bytes fill. */
#define WBK__TILE_BLOCKS (2 * WBK__TILE_ROWS + WBK__TILE_DIRECT / 4096)
#define WBK__TURNED_ROW 256u /* bytes of a row of a turned tile, which needs no image */
#define WBK__TILE_IMAGE 18432u /* bytes of the image */
#define WBK__BAND                                                                                  \
	8u /* tiles behind each other in memory that are taken before those beside them            \
	    */
#define WBK__PITCH(row_bytes) (((row_bytes) + 15) / 16 * 16 + 16)

#define WBK__SCAN_ROWS 64u
#define WBK__SCAN_COLS 256u

#endif
