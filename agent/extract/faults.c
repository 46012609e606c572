/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of parameters and notes for people, as text. */
#include "extract/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void wb__fault(struct wb__param *a, const char *fmt, ...)
{
	va_list ap;

	if (a->fault[0])
		return; /* the first reason is the cause of the others */
	va_start(ap, fmt);
	vsnprintf(a->fault, sizeof(a->fault), fmt, ap);
	va_end(ap);
	a->state = WB__FAULTY;
}

void wb__note(struct wb_probe *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	wb_buf_vprintf(&p->note, fmt, ap);
	va_end(ap);
	wb_buf_put(&p->note, "\n", 1);
}

const char *wb__range_text(
	const struct wb__param *a, uint64_t first, uint64_t last, char text[WB__RANGE_TEXT])
{
	const struct wb__geom *g = &a->geom;
	uint64_t r0 = first / g->cols, r1 = last / g->cols;

	if (g->rows_all == 1)
		snprintf(text, WB__RANGE_TEXT, "elements %" PRIu64 "..%" PRIu64, first, last);
	else if (r0 == r1)
		snprintf(text, WB__RANGE_TEXT, "row %" PRIu64 ", columns %" PRIu64 "..%" PRIu64, r0,
			first % g->cols, last % g->cols);
	else
		snprintf(text, WB__RANGE_TEXT, "rows %" PRIu64 "..%" PRIu64, r0, r1);
	return text;
}

uint32_t wb__faults_text(struct wb_probe *p)
{
	uint32_t n = 0;

	wb_buf_reset(&p->fault);
	for (uint32_t i = 0; i < p->n_param; i++) {
		if (!p->param[i].fault[0] || p->param[i].role != WB_PROBE_PARAM)
			continue;
		n++;
		wb_buf_printf(&p->fault, "parameter %s: %s\n", p->param[i].name, p->param[i].fault);
	}
	return n;
}
