/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WBT_BENCH_GPU_H
#define WBT_BENCH_GPU_H
/*
 * What the parts of tests/bench/gpu.c share: one device, memory on it, and measuring in turns.
 *
 * What goes wrong ends the program with the driver's sentence.  One thread.
 */
#include "kernels/gpu.h"
#include "mem/gpu.h"

#include <stdbool.h>
#include <stdint.h>

#define GB_WIRE_BYTES ((uint64_t)2 << 30) /* of the largest shape */

/* The device, and what was asked for on the command line. */
extern struct gb {
	struct wb_gpu *gpu;
	const struct wbcu *cu;
	void *stream;
	struct wbk_sum_keys keys;
	const char *move, *scan, *only;
	uint32_t blocks;
	uint64_t wire_bytes; /* of a plan, at most */
} gb;

/** gb_must - a result of the driver, or a code; not 0: ends the program. */
void gb_must(int rc, const char *what);
/** gb_must_err - the same with a sentence. */
void gb_must_err(int rc, const struct wb_err *err);

/** gb_device - memory of the device, never NULL; gb_pinned - of the host, for it. */
uint64_t gb_device(uint64_t bytes);
void *gb_pinned(uint64_t bytes);
/** gb_sent - memory of the device with a copy of @p. */
uint64_t gb_sent(const void *p, uint64_t bytes);
/** gb_scribble - bytes that are as good as random to a kernel. */
void gb_scribble(uint64_t at, uint64_t bytes);
/** gb_image_of - a file's content, with a 0 behind it; kept. */
void *gb_image_of(const char *file);
/** gb_function - a function of an image. */
void *gb_function(const void *image, const char *name);
/** gb_launch - one of our kernels over @n_tile tiles, into the stream. */
void gb_launch(enum wbk_gpu which, void *a, uint32_t n_tile);

/* Puts work into the stream. */
typedef void gb_queue_fn(void *arg);

struct gb_timed {
	double s, ratio; /* median seconds; median of the other's seconds over these */
};

/** gb_beside - @fn and @other in turns, seven times. */
struct gb_timed gb_beside(gb_queue_fn *fn, void *arg, gb_queue_fn *other, void *with);
/** gb_is_wanted - is the row asked for? */
bool gb_is_wanted(const char *name);
/** gb_row - a line.  @bytes: read and written, for the rate; @bar 0: none; @more: what it is the
 *  ratio to. */
void gb_row(const char *name, struct gb_timed t, double bytes, double bar, const char *more);

struct gb_copy {
	uint64_t to, from, bytes;
};

/** gb_copy_on, gb_copy_out, gb_copy_in - queue a struct gb_copy: on the device, to the host, from
 * it. */
void gb_copy_on(void *arg);
void gb_copy_out(void *arg);
void gb_copy_in(void *arg);

/** gb_moves, gb_scans, gb_jobs - the rows of moves.c, scans.c, jobs.c. */
void gb_moves(void);
void gb_scans(void);
void gb_jobs(void);

#endif
