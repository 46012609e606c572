/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_PARTS_INTERNAL_H
#define WB_PLANNER_PARTS_INTERNAL_H
/*
 * Head and parts, for those who write (parts.c) and read (unpack.c) them.  Layer: planner (L1).
 */
#include "planner/parts.h"
#include "planner/sections.h"

#define WB__HEAD_MAGIC 0x48504257u /* "WBPH" */
#define WB__PART_MAGIC 0x50504257u /* "WBPP" */
#define WB__PARTS_VERSION 2
#define WB__SEGMENTS_MAX (1u << 25) /* that a part, or all parts, may make */

enum wb__head_section {
	WB__HEAD_WORKER,
	WB__HEAD_LAYOUT,
	WB__HEAD_CLASS,
	WB__HEAD_MEMBER,
	WB__HEAD_PART,
	WB__HEAD_SECTIONS
};
#define WB__HEAD_BYTES (96 + WB__HEAD_SECTIONS * WB__SECTION_ENTRY)
#define WB__HEAD_PART_BYTES 24

enum wb__part_section {
	WB__PART_CLASS,
	WB__PART_RUN,
	WB__PART_LEVEL,
	WB__PART_ROUTE,
	WB__PART_SECTIONS
};
#define WB__PART_BYTES (32 + WB__PART_SECTIONS * WB__SECTION_ENTRY)
#define WB__RUN_BYTES 48
#define WB__LEVEL_BYTES 24

extern const struct wb__section wb__head_section[WB__HEAD_SECTIONS];
extern const struct wb__section wb__part_section[WB__PART_SECTIONS];

/** wb__plan_unpack_all - a whole plan from a packed one; -EBADMSG also when it is not the plan that
 *  the head names, or a part is damaged; -ENOMEM.  Untrusted input. */
int wb__plan_unpack_all(const void *packed, size_t bytes, struct wb_plan **out, struct wb_err *err);

#endif
