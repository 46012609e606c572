/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_SECTIONS_H
#define WB_PLANNER_SECTIONS_H
/*
 * What the encodings of a plan have in common (FORMAT.md): a table of sections, and the sections
 * that are the same in several encodings.  Only for the planner.  Layer: planner (L1).
 */
#include "base/buf.h"
#include "planner/plan.h"

#define WB__SECTION_ALIGN 64
#define WB__SECTION_ENTRY 12 /* bytes in the table */
#define WB__SECTION_MEMBER                                                                         \
	{                                                                                          \
		"member", 4, 1u << 28                                                              \
	}
#define WB__SECTION_ROUTE                                                                          \
	{                                                                                          \
		"route", 24, 1u << 27                                                              \
	}
#define WB__SECTION_WORKER                                                                         \
	{                                                                                          \
		"worker", 32, WB_WORKERS_MAX                                                       \
	}
#define WB__SECTION_LAYOUT                                                                         \
	{                                                                                          \
		"layout", 16, WB_WORKERS_MAX                                                       \
	}
#define WB__CLASSES_MAX (1u << 24)

struct wb__section {
	const char *name; /* of one record */
	uint32_t bytes, max; /* bytes of a record; greatest number of records */
};

/** wb__table_put - append the table of @n sections, which is the end of a header of @header
 * bytes. */
void wb__table_put(struct wb_buf *b, const struct wb__section *s, const uint32_t *count, int n,
	uint64_t header);
/** wb__table_get - read the table; @end: set to where the last section ends, at most @whole.
 * False: damaged, or more than @whole bytes. */
bool wb__table_get(struct wb_cursor *c, const struct wb__section *s, uint32_t *count, int n,
	uint64_t header, uint64_t whole, uint64_t *end);
/** wb__section_align - append zeros up to where a section begins; @start: position of the
 * header. */
void wb__section_align(struct wb_buf *b, size_t start);

/** wb__workers_put, wb__layouts_put, wb__members_put - append the section of a plan. */
void wb__workers_put(struct wb_buf *b, const struct wb_plan *p);
void wb__layouts_put(struct wb_buf *b, const struct wb_plan *p);
void wb__members_put(struct wb_buf *b, const struct wb_plan *p);
/** wb__route_put - append one record. */
void wb__route_put(struct wb_buf *b, const struct wb_route *r);
/** wb__workers_get, wb__layouts_get, wb__members_get - read the section into the plan's arrays,
 * which are allocated; a short section, or a number out of range, makes the cursor bad. */
void wb__workers_get(struct wb_cursor *c, struct wb_plan *p);
void wb__layouts_get(struct wb_cursor *c, struct wb_plan *p);
void wb__members_get(struct wb_cursor *c, struct wb_plan *p);
/** wb__routes_get - read @n records; numbers are not checked, except that each rail must have its
 * only valid encoding. */
void wb__routes_get(struct wb_cursor *c, struct wb_route *r, uint32_t n);

/** wb__class_put, wb__class_get - append or read the 48 bytes that each encoding has for a class:
 * its holders, its needers, its chunks.  wb__class_get() makes the cursor bad when the bytes are
 * short or the last word is not zero. */
void wb__class_put(struct wb_buf *b, const struct wb_class *k);
void wb__class_get(struct wb_cursor *c, struct wb_class *k);

/** wb__sums_put, wb__sums_get - append or read slot bytes, bounds, model and delivered bytes. */
void wb__sums_put(struct wb_buf *b, const struct wb_plan *p);
void wb__sums_get(struct wb_cursor *c, struct wb_plan *p);

#endif
