/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_PLAN_H
#define TESTS_FX_PLAN_H
/*
 * Fixtures of the planner: a map under construction, small deployments, golden files.
 * Everything asserts instead of returning errors.
 */
#include "planner/parts.h"

#include <stdbool.h>

struct wb_buf;

/* A map under construction. */
struct fx_map {
	const struct wb_manifest *m;
	struct wb_map map;
	size_t cap_param, cap_op, cap_region;
};

struct wb_tensor fx_tensor(const char *name, enum wb_dtype t, uint64_t rows, uint64_t cols);
/** fx_param - add a parameter, a dense matrix (one dimension when @rows is 0); its number. */
uint32_t fx_param(
	struct fx_map *f, const char *name, enum wb_dtype t, uint64_t rows, uint64_t cols);
/** fx_op - add an op. */
void fx_op(struct fx_map *f, struct wb_op op);
/** fx_copy - op of a dense box: tensor rows [row, +n_row) and columns [col, +n_col) to element
 *  (@dst_row, @dst_col) of a dense parameter. */
struct fx_box {
	uint64_t row, n_row, col, n_col, dst_row, dst_col;
};
void fx_copy(struct fx_map *f, uint32_t param, const char *tensor, struct fx_box b);
void fx_region(struct fx_map *f, struct wb_region r);
struct wb_map *fx_map_done(struct fx_map *f);
/** fx_packed - the plan as it travels; @slice: wb_free() it, @b: wb_buf_finish().  Their number. */
int fx_packed(const struct wb_plan *p, struct wb_buf *b, struct wb_plan_slice **slice);
/** fx_part - what the agent of @domain reads of that; wb_plan_destroy(). */
struct wb_plan *fx_part(const struct wb_buf *b, const struct wb_plan_slice *slice, uint32_t domain);
/** fx_golden - @b equals tests/golden/@name; WB_GOLDEN_UPDATE=1 writes the file instead. */
void fx_golden(const char *name, const void *data, size_t len);

#endif
