/* SPDX-License-Identifier: Apache-2.0 */
/* Makes regions of the elements of a parameter that are not copies. */
#include "base/base.h"
#include "base/mem.h"
#include "extract/internal.h"

#include <errno.h>

#define SIDE_MAX (UINT32_C(1) << 31)

static int put_region(struct wb__param *a, const struct wb_region *r)
{
	int rc = wb_grow(&a->region, &a->region_cap, a->n_region + 1, WB_OPS_MAX, sizeof(*r));

	if (rc < 0)
		return rc;
	a->region[a->n_region++] = *r;
	return 0;
}

/* One region for all elements, or as few as 32-bit sides and gaps allow. */
int wb__region_whole(struct wb__param *a, uint32_t number, enum wb_region_kind kind)
{
	const struct wb__geom *g = &a->geom;
	uint64_t pitch = (uint64_t)g->stride[g->n_axis - 2];
	int rc = 0;

	for (uint64_t s = 0; s < g->slabs && !rc && g->total; s++)
		for (uint64_t r = 0; r < g->rows && !rc; r += SIDE_MAX)
			for (uint64_t c = 0; c < g->cols && !rc; c += SIDE_MAX)
				rc = put_region(
					a, &(struct wb_region){number, kind,
						   wb__geom_row(g, s * g->rows + r) + c, pitch,
						   (uint32_t)WB_MIN(g->rows - r, SIDE_MAX),
						   (uint32_t)WB_MIN(g->cols - c, SIDE_MAX), 0});
	return rc;
}

/* ---- rows of runs ---------------------------------------------------------------------------- */

void wb__regions_begin(struct wb__regions *m, struct wb__param *a, uint32_t number)
{
	*m = (struct wb__regions){.a = a, .number = number, .row = UINT64_MAX};
	a->n_region = 0;
}

void wb__regions_finish(struct wb__regions *m)
{
	wb_free(m->was.last);
	wb_free(m->is.last);
}

/* Go on to @row.  That row may extend the regions of the row before, but not those of another slab,
 * to which the row stride does not lead. */
static void next_row(struct wb__regions *m, uint64_t row)
{
	struct wb__open swap = m->was;

	m->was = m->is;
	m->is = swap;
	m->is.n = 0;
	if (m->row == UINT64_MAX || row != m->row + 1 || row % m->a->geom.rows == 0)
		m->was.n = 0;
	m->above = 0;
	m->row = row;
}

/* Extend the region above if it has the same columns and content; otherwise begin a new one. */
static int put_run(struct wb__regions *m, const struct wb_region *run)
{
	struct wb__param *a = m->a;
	uint64_t pitch = (uint64_t)a->geom.stride[a->geom.n_axis - 2];
	uint32_t number = (uint32_t)a->n_region;
	int rc;

	for (; m->above < m->was.n; ++m->above) {
		struct wb_region *r = &a->region[m->was.last[m->above]];
		uint64_t next = r->dst + r->n_row * pitch;

		if (next > run->dst)
			break;
		if (next == run->dst && r->n_col == run->n_col && r->kind == run->kind &&
			r->value == run->value && r->n_row < SIDE_MAX) {
			r->n_row++;
			number = m->was.last[m->above++];
			break;
		}
	}
	if (number == a->n_region) {
		rc = put_region(a, run);
		if (rc < 0)
			return rc;
	}
	rc = wb_grow(&m->is.last, &m->is.cap, m->is.n + 1, SIZE_MAX / 8, sizeof(*m->is.last));
	if (rc < 0)
		return rc;
	m->is.last[m->is.n++] = number;
	return 0;
}

int wb__regions_run(struct wb__regions *m, const struct wb__region_run *run)
{
	const struct wb__geom *g = &m->a->geom;
	bool is_constant = run->is_constant && !m->a->is_merged;
	struct wb_region r = {.param = m->number,
		.kind = is_constant ? WB_REGION_CONSTANT : WB_REGION_UNWRITTEN,
		.value = is_constant ? run->value : 0,
		.row_stride = (uint64_t)g->stride[g->n_axis - 2],
		.n_row = 1};
	int rc = 0;

	if (run->row != m->row)
		next_row(m, run->row);
	for (uint64_t c = run->col; c < run->col_end && !rc; c += r.n_col) {
		r.dst = wb__geom_row(g, run->row) + c;
		r.n_col = (uint32_t)WB_MIN(run->col_end - c, SIDE_MAX);
		rc = put_run(m, &r);
	}
	if (!rc && !m->a->is_merged && m->a->n_region > WB__CONSTANT_REGIONS_MAX)
		return -E2BIG;
	return rc;
}

/* ---- classes of the host --------------------------------------------------------------------- */

struct scan {
	struct wb__param *a;
	size_t run; /* of the residual */
	struct wb__regions to;
};

static uint64_t constant_at(struct scan *s, uint64_t index)
{
	const struct wb__residual *res = &s->a->residual;

	while (s->run < res->n && res->run[s->run].begin + res->run[s->run].n <= index)
		s->run++;
	/* An element that holds the constant of the first pass itself is not in the residual. */
	if (s->run == res->n || res->run[s->run].begin > index)
		return wb__const_raw(s->a->dtype, WB_PASS_CONST);
	return wb__raw_at(res->value + (res->run[s->run].at + index - res->run[s->run].begin) *
					       s->a->elem_bytes,
		s->a->elem_bytes);
}

static struct wb__region_run cell(struct scan *s, uint64_t row, uint64_t col)
{
	uint64_t index = row * s->a->geom.cols + col;
	struct wb__region_run r = {row, col, col + 1, false, 0};

	if (s->a->cls[index] == WB__CONSTANT && !s->a->is_merged) {
		r.is_constant = true;
		r.value = constant_at(s, index);
	}
	return r;
}

static int scan_row(struct scan *s, uint64_t row)
{
	const struct wb__geom *g = &s->a->geom;
	const uint8_t *cls = s->a->cls + row * g->cols;

	for (uint64_t c = 0; c < g->cols;) {
		struct wb__region_run run;
		int rc;

		if (cls[c] == WB__COPY) {
			c++;
			continue;
		}
		run = cell(s, row, c);
		for (; run.col_end < g->cols && cls[run.col_end] != WB__COPY; run.col_end++) {
			struct wb__region_run next = cell(s, row, run.col_end);

			if (next.is_constant != run.is_constant || next.value != run.value)
				break;
		}
		rc = wb__regions_run(&s->to, &run);
		if (rc < 0)
			return rc;
		c = run.col_end;
	}
	return 0;
}

static int scan_all(struct scan *s, uint32_t number)
{
	int rc = 0;

	s->run = 0;
	wb__regions_begin(&s->to, s->a, number);
	for (uint64_t r = 0; r < s->a->geom.rows_all && !rc; r++)
		rc = scan_row(s, r);
	wb__regions_finish(&s->to);
	return rc;
}

int wb__regions(struct wb_probe *p, struct wb__param *a)
{
	struct scan s = {.a = a};
	uint32_t number = (uint32_t)(a - p->param);
	int rc = scan_all(&s, number);

	if (rc == -E2BIG && !a->is_merged) {
		/* Probably a table made at load time: it has nothing of the checkpoint, and is left
		 * as it is. */
		a->is_merged = true;
		rc = scan_all(&s, number);
	}
	return rc;
}
