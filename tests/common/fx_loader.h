/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_LOADER_H
#define WB_TESTS_FX_LOADER_H
/*
 * A load_weights that is a table: for each parameter element the checkpoint element it is a copy
 * of, or a word below.  fxl_extract() probes it; fxl_check_map() walks the recovered ops element by
 * element, with code of its own, and wants the table back.
 *
 * fxl_use_device() and fxl_use_all(), fixtures, make all of it happen in memory of GPUs: that of
 * the driver without devices, which ends a program that touches it from the host, or with
 * WB_GPU=device of the machine's own (fx_cuda.h).
 * Tests only; one thread.
 */
#include "base/err.h"
#include "base/hash.h"
#include "extract/probe.h"
#include "extract/srcmap.h"

#include <stdbool.h>

#define NONE (-1) /* unwritten */
#define ZERO (-2) /* a constant 0 */
#define ODD (-3) /* value + 1 or so */
#define ONE_HALF (-4) /* a constant that equals the first pass's */
#define NINETY (-5) /* a constant that is the sentinel of bytes */
#define FIRST (-6) /* written by the first call alone */
#define CUT (-7) /* a copy of the passes' constants, and 0 of all else */

struct sim_param {
	struct wb_probe_param p;
	int64_t *src; /* by logical row-major element: tensor << 40 | element, or a word above */
	uint8_t *mem, *before; /* with a canary element at each end */
	uint64_t dev; /* memory of a device that mem is a copy of; 0: mem is the parameter's */
	uint64_t n, span;
};

struct sim {
	struct wb_tensor tensor[64];
	uint32_t n_tensor;
	struct sim_param param[64];
	uint32_t n_param;
	struct wb_manifest *m;
	struct wb_rng rng;
	struct wb_probe_opts opts;
	uint32_t calls;
	uint32_t flaky_from; /* pass index from which elements are swapped; 0 = never */
	bool expand, moves;
	uint8_t moved[40 * 24 * 2]; /* where a rebinding loader puts parameter 0 */
};

uint64_t fxl_numel(const uint64_t *shape, uint32_t ndim);
/** fxl_tensor - add a checkpoint tensor; its number. */
uint32_t fxl_tensor(
	struct sim *s, enum wb_dtype t, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c);
/** fxl_param - add a parameter with dense strides, every element unwritten. */
struct sim_param *fxl_param(
	struct sim *s, enum wb_dtype t, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c);
int64_t fxl_src(uint32_t tensor, uint64_t elem);
/** fxl_here - can it be made happen there?  At the beginning of main(), which returns 77 when not;
 *  the reason is printed.  True with the stand-in; with WB_GPU=device on a machine with one. */
bool fxl_here(void);
/** fxl_use_device, fxl_use_all, fxl_use_host - where fxl_allocate() takes memory from now on: of
 *  device 0; of it, of device 1 and of the host in turns; of the host (at first). */
void fxl_use_device(void);
void fxl_use_all(void);
void fxl_use_host(void);
/** fxl_view - parameter @i has no memory of its own, but that of @owner from @offset bytes on. */
void fxl_view(struct sim *s, uint32_t i, uint32_t owner, uint64_t offset);
/** fxl_pull - parameters' mem is as they are on the device now. */
void fxl_pull(const struct sim *s);
/** fxl_allocate - memory with random content and canaries for parameters that have none. */
void fxl_allocate(struct sim *s);
int fxl_manifest(struct sim *s, struct wb_err *err);
/** fxl_elem - what the engine does with logical element @i, given the tensors' data. */
void fxl_elem(const struct sim *s, const struct sim_param *p, uint64_t i, int64_t src,
	uint8_t *const *data);
void fxl_number(enum wb_dtype t, double v, uint8_t *out);
void fxl_load(struct sim *s, const struct wb_probe *p, const struct wb_pass *pass);
/** fxl_extract - probe; @text (4096 bytes, may be NULL): faults and notes. */
int fxl_extract(struct sim *s, struct wb_srcmap **out, char *text, struct wb_err *err);
/** fxl_check_intact - parameters and what lies around and between them are as before. */
void fxl_check_intact(const struct sim *s);
void fxl_check_map(const struct sim *s, const struct wb_srcmap *map);
void fxl_clear(struct sim *s);

/* Loaders that several tests begin with. */

/** fxl_case_plain - one parameter, one tensor, as it is. */
void fxl_case_plain(struct sim *s);
/** fxl_case_zero_padding - one padded with zeros, one of zeros alone, one of 1.5 alone. */
void fxl_case_zero_padding(struct sim *s);

#endif
