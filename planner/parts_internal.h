/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_PARTS_INTERNAL_H
#define WB_PLANNER_PARTS_INTERNAL_H
/*
 * Head and parts, for the files that write them (parts.c), read one part (unpack.c) and read all
 * parts (unpack_all.c).  Layer: planner (L1).
 */
#include "planner/parts.h"
#include "planner/runs.h"
#include "planner/sections.h"

#define WB__HEAD_MAGIC 0x48504257u /* "WBPH" */
#define WB__PART_MAGIC 0x50504257u /* "WBPP" */
#define WB__PARTS_VERSION 2
#define WB__SEGMENTS_MAX (1u << 25) /* most that a part, or all parts together, may make */

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

/* A head whose header was read: where it ends; the parts' entries lie just before its end. */
struct wb__head {
	const uint8_t *start;
	uint32_t count[WB__HEAD_SECTIONS];
	uint64_t end; /* of the head */
};

/* A part whose header was read: cursors at its sections. */
struct wb__part {
	uint32_t domain;
	uint32_t count[WB__PART_SECTIONS];
	struct wb_cursor at[WB__PART_SECTIONS];
	uint64_t n_segment;
	uint32_t next_class, next_run;
};

/* A class of a part, as in its record. */
struct wb__own {
	uint32_t cls, n_run, n_segment;
};

/** wb__plan_damaged - set the sentence that @what is damaged; returns -EBADMSG. */
int wb__plan_damaged(struct wb_err *err, const char *what);
/** wb__head_table - read the header of a head: sets @p's numbers, and where the sections of the
 * head are.  0, -EBADMSG. */
int wb__head_table(struct wb_cursor *c, struct wb_plan *p, struct wb__head *h, struct wb_err *err);
/** wb__head_sections - read what follows the header, into arrays of @p that are allocated here.  0,
 * -EBADMSG, -ENOMEM. */
int wb__head_sections(
	struct wb_cursor *c, struct wb_plan *p, const struct wb__head *h, struct wb_err *err);
/** wb__head_entry - the entry of a domain's part, without its position.  @h must have a part of
 * that domain. */
struct wb_plan_slice wb__head_entry(const struct wb__head *h, uint32_t domain);
/** wb__body_make - allocate @p's segments and routes, to be filled in.  0, -EBADMSG, -ENOMEM. */
int wb__body_make(struct wb_plan *p, uint64_t n_segment, uint64_t n_route, struct wb_err *err);
/** wb__part_open - read the header of a part of @p, whose head was read.  0, -EBADMSG. */
int wb__part_open(
	const struct wb_plan *p, struct wb_plan_piece in, struct wb__part *x, struct wb_err *err);
/** wb__part_class - read the next class; false: it is damaged, or not after the previous one. */
bool wb__part_class(struct wb__part *x, const struct wb_plan *p, struct wb__own *o);
/** wb__part_run - read the next run, with its levels; false: it is damaged, or there is none. */
bool wb__part_run(struct wb__part *x, struct wb__run *r);
/** wb__part_segments - make the @n segments of class @cls from the next @n_run runs; false:
 * damaged. */
bool wb__part_segments(
	struct wb__part *x, uint32_t n_run, uint32_t cls, struct wb_segment *out, uint32_t n);

/** wb__plan_unpack_all - read a whole plan from a packed one.  0; -EBADMSG, also when it is not the
 * plan that the head names, or a part is damaged; -ENOMEM.  Untrusted input. */
int wb__plan_unpack_all(const void *packed, size_t bytes, struct wb_plan **out, struct wb_err *err);

#endif
