/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_EXTRACT_COVER_H
#define WB_EXTRACT_COVER_H
/*
 * What of each parameter a source map covers, and what it leaves out, by name.
 *
 * Read-only over a source map.  Any thread.  Layer: extract.
 */
#include "extract/srcmap.h"

/* What one parameter is made of: elements by kind, nothing for a view of another. */
struct wb__cover {
	uint32_t n_op, n_constant; /* constants: different values, at least */
	uint64_t copied, constant, unwritten; /* elements */
	uint64_t value; /* of the first constant */
};

/** wb__cover_of - fill @cover, one a parameter of the map, zeroed. */
void wb__cover_of(const struct wb_srcmap *s, struct wb__cover *cover);

#endif
