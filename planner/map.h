/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_MAP_H
#define WB_PLANNER_MAP_H
/*
 * Manifest and source map: what a checkpoint holds, and which of its elements each parameter
 * element of a worker is a copy of.
 *
 * A manifest is the ordered list of checkpoint tensors.  Tensor t is seen as a matrix of rows x
 * cols (last dimension = columns, a vector or scalar is one row).  Its bytes lie in the checkpoint
 * image at byte_base[t], a running sum in manifest order, each start aligned to 64 bytes; this
 * position keys the checksum.
 *
 * A source map lists ops.  One op copies a lattice box of one tensor,
 *	rows row + a * row_step (a < n_row), columns col + b * col_step (b < n_col),
 * to parameter elements
 *	dst + a * dst_row_stride + b * dst_col_stride + k * dst_repeat_stride (k < repeat),
 * counted in elements from the parameter's first byte (strides may be negative; along an axis of
 * one element they are zero).  Plain, transposed, strided, reversed and broadcast copies are all
 * this one form.  Elements that are not copied are listed as regions: ops and regions of a
 * parameter together contain each of its elements once (the planner refuses a rollout layout that
 * violates this).
 *
 * Invariants of a parsed object (checked by the readers): every op lies inside its tensor and its
 * parameter; steps >= 1, counts >= 1; ops sorted by (tensor, row, col, param, dst); names unique
 * in the manifest.  Along an axis of one element a step is 1 and a stride is 0: wb_map_create()
 * makes it so.  The encoding is canonical: equal content gives equal bytes and digest.
 * Format: planner/FORMAT.md.  Threads: read-only after creation.  Layer: planner (L1).
 */
#include "base/dtype.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_buf;
struct wb_err;

#define WB_NDIM_MAX 8
#define WB_NAME_MAX 512
#define WB_TENSORS_MAX (1u << 22)
#define WB_PARAMS_MAX (1u << 20)
#define WB_OPS_MAX (1u << 26)

struct wb_tensor {
	char *name; /* owned by the manifest */
	enum wb_dtype dtype;
	uint32_t ndim;
	uint64_t shape[WB_NDIM_MAX];
	/* derived */
	uint64_t rows, cols;
	uint64_t row_base; /* running sum of rows, which gives the row numbers of extraction */
	uint64_t byte_base; /* position in the checkpoint image, bytes, 64-aligned */
};

struct wb_manifest {
	struct wb_tensor *tensor; /* owned */
	uint32_t *by_name; /* owned: tensor numbers in the order of their names */
	uint32_t n;
	uint64_t rows, bytes; /* sums over tensors; bytes without alignment gaps */
	struct wb_digest digest;
};

/**
 * wb_manifest_create - manifest of @n tensors (name, dtype, ndim, shape read; the rest derived)
 * Copies names.  Returns 0; -EINVAL (empty or repeated name, unknown dtype, zero or overflowing
 * shape: the sentence names the tensor); -ENOMEM.  Release with wb_manifest_destroy().
 */
int wb_manifest_create(
	const struct wb_tensor *tensor, uint32_t n, struct wb_manifest **out, struct wb_err *err);
void wb_manifest_destroy(struct wb_manifest *m);
/** wb_manifest_encode - append the encoding that wb_manifest_decode() reads.  0, -ENOMEM or -E2BIG,
 * as @out's error. */
int wb_manifest_encode(const struct wb_manifest *m, struct wb_buf *out);
/** wb_manifest_decode - read a manifest.  0, -EBADMSG or -ENOMEM; the bytes at @p are untrusted. */
int wb_manifest_decode(const void *p, size_t bytes, struct wb_manifest **out, struct wb_err *err);

/**
 * wb_manifest_differ - describe how two manifests differ, in words
 * @who:	how the sentence calls each of them
 * @shown_max:	greatest number of tensors that are named
 * Writes "X: trainer F32 [1000,256], rollout BF16 [1008,256]; Y: only rollout F32 [4]; and 3 more"
 * to @out.  Returns the number of differences, 0 = equal.
 */
uint32_t wb_manifest_differ(const struct wb_manifest *const m[2], const char *const who[2],
	uint32_t shown_max, struct wb_buf *out);

struct wb_param {
	char *name; /* owned by the map */
	enum wb_dtype dtype;
	uint32_t ndim;
	uint64_t shape[WB_NDIM_MAX];
	int64_t stride[WB_NDIM_MAX]; /* elements */
	uint64_t span; /* elements from the first to one past the last, gaps of a pitch included */
};

struct wb_op {
	uint32_t param, tensor;
	uint64_t dst; /* elements */
	uint64_t row, col;
	uint32_t n_row, n_col;
	uint32_t row_step, col_step;
	int64_t dst_row_stride, dst_col_stride, dst_repeat_stride; /* elements */
	uint32_t repeat;
};

enum wb_region_kind { WB_REGION_CONSTANT = 1, WB_REGION_UNWRITTEN = 2 };

/* n_row x n_col elements from dst, row_stride apart (elements); columns are adjacent. */
struct wb_region {
	uint32_t param;
	enum wb_region_kind kind;
	uint64_t dst, row_stride;
	uint32_t n_row, n_col;
	uint64_t value; /* raw little-endian element, constants only */
};

struct wb_map {
	struct wb_param *param; /* owned */
	struct wb_op *op; /* owned */
	struct wb_region *region; /* owned */
	uint32_t n_param, n_op, n_region;
	struct wb_digest manifest; /* of the manifest the tensor numbers refer to */
	struct wb_digest digest; /* of the encoding */
};

/**
 * wb_map_create - make a map from arrays that the caller hands over
 * @m:		manifest; borrowed for the call
 * @map:	n_* and arrays filled (allocated with wb_alloc family); on success the arrays belong
 *		to the returned map, ops and regions sorted, digests set; on failure the
 *		caller keeps them (ops may be in another order)
 * Returns 0; -EINVAL with the offending parameter or tensor named; -ENOMEM.
 */
int wb_map_create(
	const struct wb_manifest *m, struct wb_map *map, struct wb_map **out, struct wb_err *err);
/** wb_map_destroy - free it with its names; NULL is allowed. */
void wb_map_destroy(struct wb_map *map);
/** wb_map_encode - append the encoding that wb_map_decode() reads.  0, -ENOMEM or -E2BIG, as @out's
 * error. */
int wb_map_encode(const struct wb_map *map, struct wb_buf *out);
/** wb_map_decode - read a map.  0, -EBADMSG (also when it is for another manifest) or -ENOMEM; @p
 * is untrusted. */
int wb_map_decode(const struct wb_manifest *m, const void *p, size_t bytes, struct wb_map **out,
	struct wb_err *err);
/** wb_map_json - append the whole map as JSON text (for people and tools). */
int wb_map_json(const struct wb_manifest *m, const struct wb_map *map, struct wb_buf *out);

/**
 * wb_cast_between - kernel cast id (enum wbk_cast) for a wire dtype and a parameter dtype
 * @is_exact:	on success: the parameter holds the wire value bit for bit, so it can be a source
 * Returns the id, or -ENOTSUP when no cast is known.
 */
int wb_cast_between(enum wb_dtype wire, enum wb_dtype param, bool *is_exact);

#endif
