/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/mem.h"
#include "extract/internal.h"

#include <errno.h>

#define SIDE_MAX (UINT32_C(1) << 31)

/* The regions of the row before, which the next row may extend. */
struct open {
	uint32_t *last; /* region number by order of column; owned */
	size_t n, cap;
};

struct scan {
	struct wb__param *a;
	uint32_t number;
	size_t run; /* of the residual */
	struct open was, is;
};

static int put_region(struct wb__param *a, const struct wb_region *r)
{
	int rc = wb_grow(&a->region, &a->region_cap, a->n_region + 1, WB_OPS_MAX, sizeof(*r));

	if (rc < 0)
		return rc;
	a->region[a->n_region++] = *r;
	return 0;
}

/* One region for all elements, as far as 32-bit sides and gaps allow. */
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

static uint64_t constant_at(struct scan *s, uint64_t index)
{
	const struct wb__residual *res = &s->a->residual;

	while (s->run < res->n && res->run[s->run].begin + res->run[s->run].n <= index)
		s->run++;
	/* A constant that equals the pass's own is no residual. */
	if (s->run == res->n || res->run[s->run].begin > index)
		return wb__const_raw(s->a->dtype, WB_PASS_CONST);
	return wb__raw_at(res->value + (res->run[s->run].at + index - res->run[s->run].begin) *
					       s->a->elem_bytes,
		s->a->elem_bytes);
}

static struct wb_region cell(struct scan *s, uint64_t index)
{
	struct wb_region r = {.param = s->number, .kind = WB_REGION_UNWRITTEN};

	if (s->a->cls[index] == WB__CONSTANT && !s->a->is_merged) {
		r.kind = WB_REGION_CONSTANT;
		r.value = constant_at(s, index);
	}
	return r;
}

/* A run of one row: extends the region above it when that has the same columns and content. */
static int put_run(struct scan *s, const struct wb_region *run, size_t *above)
{
	struct wb__param *a = s->a;
	uint64_t pitch = (uint64_t)a->geom.stride[a->geom.n_axis - 2];
	uint32_t number = (uint32_t)a->n_region;
	int rc;

	for (; *above < s->was.n; ++*above) {
		struct wb_region *r = &a->region[s->was.last[*above]];
		uint64_t next = r->dst + r->n_row * pitch;

		if (next > run->dst)
			break;
		if (next == run->dst && r->n_col == run->n_col && r->kind == run->kind &&
			r->value == run->value && r->n_row < SIDE_MAX) {
			r->n_row++;
			number = s->was.last[(*above)++];
			break;
		}
	}
	if (number == a->n_region) {
		rc = put_region(a, run);
		if (rc < 0)
			return rc;
	}
	rc = wb_grow(&s->is.last, &s->is.cap, s->is.n + 1, SIZE_MAX / 8, sizeof(*s->is.last));
	if (rc < 0)
		return rc;
	s->is.last[s->is.n++] = number;
	return 0;
}

static int scan_row(struct scan *s, uint64_t row)
{
	const struct wb__geom *g = &s->a->geom;
	const uint8_t *cls = s->a->cls + row * g->cols;
	size_t above = 0;

	for (uint64_t c = 0; c < g->cols;) {
		struct wb_region run;
		uint64_t end = c + 1;
		int rc;

		if (cls[c] == WB__COPY) {
			c++;
			continue;
		}
		run = cell(s, row * g->cols + c);
		for (; end < g->cols && end - c < SIDE_MAX && cls[end] != WB__COPY; end++) {
			struct wb_region next = cell(s, row * g->cols + end);

			if (next.kind != run.kind || next.value != run.value)
				break;
		}
		run.dst = wb__geom_row(g, row) + c;
		run.row_stride = (uint64_t)g->stride[g->n_axis - 2];
		run.n_row = 1;
		run.n_col = (uint32_t)(end - c);
		rc = put_run(s, &run, &above);
		if (rc < 0)
			return rc;
		c = end;
	}
	return 0;
}

static int scan_all(struct scan *s)
{
	const struct wb__geom *g = &s->a->geom;
	int rc = 0;

	for (uint64_t r = 0; r < g->rows_all && !rc; r++) {
		struct open swap = s->was;

		s->was = s->is;
		s->is = swap;
		s->is.n = 0;
		if (r % g->rows == 0)
			s->was.n = 0; /* another slab: the pitch does not lead there */
		rc = scan_row(s, r);
		if (!rc && !s->a->is_merged && s->a->n_region > WB__CONSTANT_REGIONS_MAX)
			return -E2BIG;
	}
	return rc;
}

int wb__regions(struct wb_probe *p, struct wb__param *a)
{
	struct scan s = {.a = a, .number = (uint32_t)(a - p->param)};
	int rc = scan_all(&s);

	if (rc == -E2BIG) {
		/* Like a table made at load time: nothing of the checkpoint, left as it is. */
		a->n_region = 0;
		a->is_merged = true;
		s.run = s.was.n = s.is.n = 0;
		rc = scan_all(&s);
	}
	wb_free(s.was.last);
	wb_free(s.is.last);
	return rc;
}
