/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_COVER_H
#define WB_EXTRACT_COVER_H
/*
 * How much of each parameter a source map covers, and what it leaves out.
 *
 * Read-only over a source map.  Any thread.  Layer: extract.
 */
#include "extract/srcmap.h"

/* What one parameter is made of: numbers of elements by kind; all 0 for a view of another
 * parameter. */
struct wb__cover {
	uint32_t n_op, n_constant; /* n_constant: at least so many different values */
	uint64_t copied, constant, unwritten; /* elements */
	uint64_t value; /* of the first constant */
};

/** wb__cover_of - fill @cover, an array with one zeroed entry for each parameter of the map. */
void wb__cover_of(const struct wb_srcmap *s, struct wb__cover *cover);

#endif
