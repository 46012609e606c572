/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_SRCMAP_H
#define WB_EXTRACT_SRCMAP_H
/*
 * The result of extraction: manifest, source map, and the parameters that are views of others.
 *
 * A parameter that lies inside another one's memory (tied weights, views) has no ops of its own in
 * the map: what is written for its owner is written for it.  Read-only after creation, any thread.
 * Layer: extract.
 */
#include "planner/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_buf;
struct wb_err;

#define WB_ALIAS_NONE UINT32_MAX

struct wb_alias {
	uint32_t owner; /* parameter number, or WB_ALIAS_NONE */
	uint64_t offset; /* elements from the owner's first */
};

struct wb_srcmap_stats {
	uint32_t n_pass;
	bool from_cache;
	uint64_t n_record, load_ns, host_ns; /* load: between next_pass and end_pass */
	uint64_t dev_out_bytes; /* bytes copied from GPUs to the host */
};

struct wb_srcmap {
	struct wb_manifest *manifest; /* owned */
	struct wb_map *map; /* owned */
	struct wb_alias *alias; /* owned; one for each parameter of the map */
	uint32_t
		*op_first; /* owned; ops of parameter i: op_order[op_first[i] .. op_first[i + 1]) */
	uint32_t *op_order; /* owned */
	struct wb_srcmap_stats stats; /* not part of the encoding */
};

/** wb_srcmap_create - make the result from its parts; on success takes @manifest, @map and @alias.
 * 0 or -ENOMEM. */
int wb_srcmap_create(struct wb_manifest *manifest, struct wb_map *map, struct wb_alias *alias,
	struct wb_srcmap **out);
/** wb_srcmap_destroy - free it with what it owns; NULL is allowed. */
void wb_srcmap_destroy(struct wb_srcmap *s);

/** wb_srcmap_encode - append the encoding that wb_srcmap_decode() reads.  0, -ENOMEM, -E2BIG:
 * @out's error. */
int wb_srcmap_encode(const struct wb_srcmap *s, struct wb_buf *out);
/** wb_srcmap_decode - read a result.  0, -EBADMSG or -ENOMEM; @p is untrusted. */
int wb_srcmap_decode(const void *p, size_t bytes, struct wb_srcmap **out, struct wb_err *err);

/**
 * wb_srcmap_apply - build parameters from checkpoint tensors, using only the map
 * @tensor:	data of each manifest tensor, row-major and dense, in its dtype; NULL only where no
 *		parameter asked for needs it
 * @param:	first element of each parameter of the map; NULL = leave out
 * Constants are written, unwritten elements left alone.  Returns 0; -EINVAL (names the tensor that
 * is missing); -ENOMEM.
 */
int wb_srcmap_apply(const struct wb_srcmap *s, const void *const *tensor, void *const *param,
	struct wb_err *err);

/** wb_srcmap_constants - write only the constants; @param as in wb_srcmap_apply(). */
void wb_srcmap_constants(const struct wb_srcmap *s, void *const *param);
/** wb_srcmap_write_constants - the same for parameters of which some may lie on GPUs; waits for all
 *  that is under way there, and for its own work.  0, -ENOMEM, or as wb_gpu_get(). */
int wb_srcmap_write_constants(const struct wb_srcmap *s, void *const *param, struct wb_err *err);

/** wb_srcmap_report - append text for people: ops and nests of each parameter, constants, unwritten
 * elements, times. */
int wb_srcmap_report(const struct wb_srcmap *s, struct wb_buf *out);

/**
 * wb_srcmap_gaps - append what the map leaves out, one line for each kind
 * Tensors that go nowhere; parameters without elements, not written, written in part or only with
 * constants; tensors that are rounded.
 * @shown_max:	most names in one line
 * Returns 0 or -ENOMEM.
 */
int wb_srcmap_gaps(const struct wb_srcmap *s, uint32_t shown_max, struct wb_buf *out);

/** wb_srcmap_nests - fold ops of one parameter that have equal extents and constant deltas; returns
 * the number of loop nests that remain, or -ENOMEM. */
int64_t wb_srcmap_nests(const struct wb_srcmap *s, uint32_t param);

#endif
