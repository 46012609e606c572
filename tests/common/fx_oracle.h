/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FX_ORACLE_H
#define TESTS_FX_ORACLE_H
/*
 * What a random deployment holds and a load of its checkpoint gives, element by element and by
 * brute force: what plans are held against.  An element's number is d->base[tensor] and its place
 * in the tensor, row by row.
 */
#include "tests/common/fx_deploy.h"

#include <stddef.h>

/* How a layout has an element; several of its parameters may differ. */
enum {
	HAS_ROUNDED = 1, /* F32 in the checkpoint, BF16 in the parameter */
	HAS_EXACT = 2, /* without loss */
};

struct fx_oracle {
	uint8_t *image; /* of the checkpoint, as the trainers' best copies give it */
	uint8_t *has[2 * FX_DEPLOY_LAYOUTS + 1]; /* by layout and element */
};

/** fx_oracle_init - of @d, whose random numbers it draws on.  fx_oracle_finish() before that of
 *  @d. */
void fx_oracle_init(struct fx_oracle *o, struct fx_deploy *d);
void fx_oracle_finish(struct fx_oracle *o, const struct fx_deploy *d);
/** fx_tensor_of - the tensor of element @e. */
uint32_t fx_tensor_of(const struct fx_deploy *d, uint64_t e);
/** fx_elem_bytes - of element @e in the checkpoint. */
size_t fx_elem_bytes(const struct fx_deploy *d, uint64_t e);
/** fx_image_at - element @i of tensor @t in the image. */
uint8_t *fx_image_at(const struct fx_deploy *d, const struct fx_oracle *o, uint32_t t, uint64_t i);
/** fx_held - how the trainers have element @e, of all of them together. */
uint8_t fx_held(const struct fx_deploy *d, const struct fx_oracle *o, uint64_t e);
/** fx_cast - one element as a load makes it: the same type, F32 of BF16 or the reverse. */
void fx_cast(enum wb_dtype wire, enum wb_dtype param, const uint8_t *from, uint8_t *to);
/** fx_walk - every element of every op: @each(cookie, op, element of the checkpoint, of the
 *  parameter). */
void fx_walk(const struct fx_deploy *d, const struct wb_map *map,
	void (*each)(void *, const struct wb_op *, uint64_t, uint64_t), void *cookie);

#endif
