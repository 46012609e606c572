/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PAGE_PAGE_H
#define WB_PAGE_PAGE_H
/*
 * Pictures: one HTML page that draws plans, predictions and traces, or what an operator says.
 *
 * The page is a part of the program (page.html) and needs nothing else, no network either: what it
 * draws is put into it as JSON.  Without any it asks the address that it came from for "objects".
 * Pure; any thread.  Layer: page (L1).
 */
#include <stddef.h>

struct wb_buf;

/* What is drawn, as JSON text; borrowed. */
struct wb_page_part {
	const char *name; /* "plan", "prediction" or "trace" */
	const char *json;
	size_t bytes;
};

/**
 * wb_page_put - append the page
 * @title:	a line of text; NULL: the page of an operator, and no parts
 * Text of the parts cannot end the element they stand in.  Errors are @out's.
 */
void wb_page_put(
	const char *title, const struct wb_page_part *part, size_t n_part, struct wb_buf *out);

#endif
