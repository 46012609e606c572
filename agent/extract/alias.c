/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "extract/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Finds parameters that share memory.  One that lies wholly inside another (tied weights, views) is
 * an alias of it and needs no ops; sharing in any other way cannot be one layout and is refused.
 * Pairs are found by their ranges of bytes.  Then a bitmap of the elements decides, since views of
 * one buffer whose elements only alternate share nothing.
 */

struct range {
	uint64_t begin, end; /* addresses */
	uint64_t total; /* elements */
	uint32_t number;
};

static int by_begin(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end > y->end ? -1 : 1; /* the larger one first: it is the owner */
	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static struct range range_of(const struct wb_probe *p, uint32_t i)
{
	const struct wb__param *a = &p->param[i];
	uint64_t begin = (uint64_t)(uintptr_t)a->data;

	return (struct range){begin, begin + a->geom.span * a->elem_bytes, a->geom.total, i};
}

/* Count the elements of @b that are also elements of @a; -ENOMEM. */
static int64_t count_shared(const struct wb__param *a, const struct wb__param *b)
{
	uint8_t *bits = wb_zalloc(a->geom.span / 8 + 1, 1);
	int64_t at = (b->data - a->data) / (int64_t)a->elem_bytes, shared = 0;

	if (!bits)
		return -ENOMEM;
	for (uint64_t r = 0; r < a->geom.rows_all; r++) {
		uint64_t e = wb__geom_row(&a->geom, r);

		for (uint64_t c = 0; c < a->geom.cols; c++, e++)
			bits[e / 8] |= (uint8_t)(1u << e % 8);
	}
	for (uint64_t r = 0; r < b->geom.rows_all; r++) {
		int64_t e = at + (int64_t)wb__geom_row(&b->geom, r);

		for (uint64_t c = 0; c < b->geom.cols; c++, e++)
			shared +=
				e >= 0 && (uint64_t)e < a->geom.span && (bits[e / 8] >> e % 8 & 1);
	}
	wb_free(bits);
	return shared;
}

/* Are @a and @b, which begins @at elements behind @a, different columns of one matrix, so that they
 * never meet?  Many parameters may be cut from one matrix, and every pair of them is compared, so
 * this has to be cheap. */
static bool is_beside(const struct wb__param *a, const struct wb__param *b, uint64_t at)
{
	uint64_t pitch = (uint64_t)a->geom.stride[0], col = at % pitch;

	return a->geom.n_axis == 2 && b->geom.n_axis == 2 &&
	       a->geom.stride[0] == b->geom.stride[0] && col >= a->geom.cols &&
	       col + b->geom.cols <= pitch;
}

static bool is_dense(const struct wb__param *a)
{
	return a->geom.total == a->geom.span;
}

/* Decide about two parameters whose ranges overlap; @na begins first. */
static int judge(struct wb_probe *p, uint32_t na, uint32_t nb, struct wb_err *err)
{
	struct wb__param *a = &p->param[na], *b = &p->param[nb];
	bool is_aligned =
		a->elem_bytes == b->elem_bytes && (size_t)(b->data - a->data) % a->elem_bytes == 0;
	int64_t shared;

	if (!is_aligned && !(is_dense(a) && is_dense(b)))
		return wb_err_set(err, -EINVAL,
			"parameters %s and %s share a range of memory with element sizes or "
			"alignments that differ",
			a->name, b->name);
	if (!is_aligned)
		return wb_err_set(err, -EINVAL,
			"parameters %s (%s) and %s (%s) share memory but not element by element",
			a->name, wb_dtype_name(a->dtype), b->name, wb_dtype_name(b->dtype));
	if (is_beside(a, b, (uint64_t)(b->data - a->data) / a->elem_bytes))
		shared = 0;
	else if (is_dense(a) &&
		 b->data + b->geom.span * b->elem_bytes <= a->data + a->geom.span * a->elem_bytes)
		shared = (int64_t)b->geom.total;
	else
		shared = count_shared(a, b);
	if (shared <= 0)
		return (int)shared;
	if (a->dtype != b->dtype)
		return wb_err_set(err, -EINVAL,
			"parameters %s (%s) and %s (%s) are the same memory with two types",
			a->name, wb_dtype_name(a->dtype), b->name, wb_dtype_name(b->dtype));
	if ((uint64_t)shared != b->geom.total)
		return wb_err_set(err, -EINVAL,
			"parameters %s and %s share %lld of their elements: neither is a view of "
			"the other",
			a->name, b->name, (long long)shared);
	b->state = WB__ALIAS;
	b->alias.owner = na;
	b->alias.offset = (uint64_t)(b->data - a->data) / a->elem_bytes;
	return wb__region_whole(b, nb, WB_REGION_UNWRITTEN);
}

/* Memory that is not a parameter is looked at only if it shares no bytes with a parameter, and none
 * with such memory that begins before it; otherwise it becomes OUT.  Returns the number of ranges
 * that are left. */
static uint32_t drop_shared(struct wb_probe *p, struct range *r, uint32_t n)
{
	uint64_t end = 0, begin = UINT64_MAX;
	uint32_t left = 0;

	for (uint32_t i = n; i-- > 0;) { /* begin: of the parameter that follows */
		struct wb__param *a = &p->param[r[i].number];

		if (a->role == WB_PROBE_PARAM)
			begin = r[i].begin;
		else if (r[i].end > begin)
			a->state = WB__OUT;
	}
	for (uint32_t i = 0; i < n; i++) { /* end: the last end of all that stay before it */
		struct wb__param *a = &p->param[r[i].number];

		if (a->role != WB_PROBE_PARAM && r[i].begin < end)
			a->state = WB__OUT;
		if (a->state == WB__OUT)
			continue;
		end = WB_MAX(end, r[i].end);
		r[left++] = r[i];
	}
	return left;
}

int wb__alias_find(struct wb_probe *p, struct wb_err *err)
{
	struct range *r = wb_zalloc(p->n_param, sizeof(*r));
	uint32_t n = 0;
	int rc = 0;

	if (!r)
		return wb_err_set(err, -ENOMEM, "memory ranges");
	for (uint32_t i = 0; i < p->n_param; i++)
		if (p->param[i].geom.total)
			r[n++] = range_of(p, i);
	qsort(r, n, sizeof(*r), by_begin);
	n = drop_shared(p, r, n);
	for (uint32_t i = 0; i < n && !rc; i++) {
		if (p->param[r[i].number].state == WB__ALIAS)
			continue;
		for (uint32_t k = i + 1; k < n && r[k].begin < r[i].end && !rc; k++)
			if (p->param[r[k].number].state != WB__ALIAS)
				rc = judge(p, r[i].number, r[k].number, err);
	}
	wb_free(r);
	return rc;
}
