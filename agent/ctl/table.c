/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/table.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define CELLS_MAX (1u << 20)

void wb__ctl_table_init(struct wb__ctl_table *t, size_t n_col)
{
	assert(n_col > 0 && n_col <= WB_CTL_COLUMNS_MAX);
	*t = (struct wb__ctl_table){.n_col = n_col};
}

void wb__ctl_table_finish(struct wb__ctl_table *t)
{
	for (size_t i = 0; i < t->n_row; i++)
		wb_free(t->cell[i]);
	wb_free(t->cell);
	memset(t, 0, sizeof(*t));
}

/* n_row counts cells, not rows. */
void wb__ctl_cell(struct wb__ctl_table *t, const char *fmt, ...)
{
	char text[WB_CTL_CELL_MAX];
	va_list ap;
	int rc;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rc = wb_grow(&t->cell, &t->cap, t->n_row + 1, CELLS_MAX, sizeof(*t->cell));
	if (rc == 0) {
		t->cell[t->n_row] = wb_strdup(text);
		rc = t->cell[t->n_row] ? 0 : -ENOMEM;
	}
	if (rc == 0)
		t->n_row++;
	else if (!t->rc)
		t->rc = rc;
}

int wb__ctl_print(const struct wb__ctl_table *t, const char *indent, FILE *out)
{
	size_t width[WB_CTL_COLUMNS_MAX] = {0};

	if (t->rc)
		return t->rc;
	for (size_t i = 0; i < t->n_row; i++)
		width[i % t->n_col] = WB_MAX(width[i % t->n_col], strlen(t->cell[i]));
	for (size_t i = 0; i < t->n_row; i++) {
		size_t c = i % t->n_col;
		bool is_last = c == t->n_col - 1;

		if (!c)
			fputs(indent, out);
		if (is_last)
			fprintf(out, "%s\n", t->cell[i]);
		else
			fprintf(out, "%-*s   ", (int)width[c], t->cell[i]);
	}
	return 0;
}

void wb__ctl_age(double seconds, char *out, size_t bytes)
{
	long s = seconds > 0 ? (long)seconds : 0, m = s / 60, h = m / 60, d = h / 24;

	if (s < 120)
		snprintf(out, bytes, "%lds", s);
	else if (m < 10 && s % 60)
		snprintf(out, bytes, "%ldm%lds", m, s % 60);
	else if (m < 180)
		snprintf(out, bytes, "%ldm", m);
	else if (h < 8 && m % 60)
		snprintf(out, bytes, "%ldh%ldm", h, m % 60);
	else if (h < 48)
		snprintf(out, bytes, "%ldh", h);
	else if (d < 8 && h % 24)
		snprintf(out, bytes, "%ldd%ldh", d, h % 24);
	else
		snprintf(out, bytes, "%ldd", d);
}
