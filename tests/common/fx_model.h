/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_MODEL_H
#define TESTS_FX_MODEL_H
/*
 * A model of one tensor, w, of BF16, which a worker has whole or in part in one parameter of the
 * same name: for tests to which it does not matter what is in a model.  Everything asserts instead
 * of returning errors.
 */
#include "base/buf.h"
#include "planner/plan.h"

#define MODEL_ROWS 512
#define MODEL_COLS 256
#define MODEL_BYTES (MODEL_ROWS * MODEL_COLS * 2)

/** fx_model_manifest - wb_manifest_destroy() it after what refers to it. */
struct wb_manifest *fx_model_manifest(void);
/** fx_model_rows - who has @n rows of it, from row @row on; wb_map_destroy() it. */
struct wb_map *fx_model_rows(const struct wb_manifest *m, uint64_t row, uint64_t n);
/** fx_model_turned - who has all of it, transposed; wb_map_destroy() it. */
struct wb_map *fx_model_turned(const struct wb_manifest *m);
/** fx_model_blocks - who has all of it in blocks of MODEL_BLOCK bytes, the last one first;
 *  wb_map_destroy() it. */
#define MODEL_BLOCK 4096
struct wb_map *fx_model_blocks(const struct wb_manifest *m);
/** fx_model_encode - the map of fx_model_rows(), as it travels, and its digest; wb_buf_finish(). */
struct wb_digest fx_model_encode(uint64_t row, uint64_t n, struct wb_buf *b);

/* What make_model() has made: the manifest, and the map of who has all of it, as they travel. */
extern struct wb_buf manifest_bytes, map_bytes;
extern struct wb_digest manifest_digest, map_digest;

/** make_model - free_model() before the next one. */
void make_model(void);
void free_model(void);

#endif
