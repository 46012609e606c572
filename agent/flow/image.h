/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_IMAGE_H
#define WB_FLOW_IMAGE_H
/*
 * The layout of a snapshot: the chunks that one trainer worker is to send by a plan, and nothing
 * else.
 *
 * It has each chunk of the worker's RECEIVE routes once, packed in wire order, one after the other.
 * The images of all trainers together hold each needed byte once (except classes that several
 * workers take from the trainers directly).  Made once for each plan; the memory behind it is the
 * owner's.
 * Read-only after creation.  Layer: flow (L3).
 */
#include "planner/plan.h"

#define WB_IMAGE_NONE UINT64_MAX

struct wb_image {
	uint64_t bytes;
	uint32_t n;
	uint32_t *cls, *chunk; /* owned, n each: in order of the classes */
	uint64_t *off; /* owned: byte offset by global chunk number, or WB_IMAGE_NONE */
};

/** wb_image_bytes - bytes of memory that the image of @plan_worker takes; 0 = it sends nothing,
 * UINT64_MAX = no memory to find out. */
uint64_t wb_image_bytes(const struct wb_plan *p, uint32_t plan_worker);
/** wb_image_create - 0 or -ENOMEM.  Release with wb_image_destroy(). */
int wb_image_create(const struct wb_plan *p, uint32_t plan_worker, struct wb_image **out);
/** wb_image_destroy - free the layout.  NULL is allowed. */
void wb_image_destroy(struct wb_image *im);

#endif
