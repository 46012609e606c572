/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_TABLE_H
#define WB_CTL_TABLE_H
/*
 * Columns of text, as wide as their widest cell, three spaces between, like kubectl.
 * Layer: ctl (L4).
 */
#include <stddef.h>
#include <stdio.h>

#define WB_CTL_COLUMNS_MAX 24
#define WB_CTL_CELL_MAX 512

struct wb__ctl_table {
	size_t n_col, n_row;
	char **cell; /* owned; row by row */
	size_t cap;
	int rc; /* first failure to allocate */
};

/** wb__ctl_table_init - an empty table of @n_col columns, 1 to WB_CTL_COLUMNS_MAX. */
void wb__ctl_table_init(struct wb__ctl_table *t, size_t n_col);
/** wb__ctl_table_finish - free its cells. */
void wb__ctl_table_finish(struct wb__ctl_table *t);
/** wb__ctl_cell - append one cell, left to right; longer text is cut. */
void wb__ctl_cell(struct wb__ctl_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/** wb__ctl_print - write the whole table, each line after @indent.  0 or -ENOMEM. */
int wb__ctl_print(const struct wb__ctl_table *t, const char *indent, FILE *out);

/** wb__ctl_age - a duration as kubectl writes it: 6s, 3m12s, 3h12m, 5d. */
void wb__ctl_age(double seconds, char *out, size_t bytes);

#endif
