/* SPDX-License-Identifier: Apache-2.0 */
/* Describe in words how two manifests differ. */
#include "planner/map.h"

#include "base/buf.h"

#include <inttypes.h>
#include <string.h>

/* Two manifests whose tensors are compared in the order of their names. */
struct pair {
	const struct wb_manifest *m[2];
	const char *who[2];
	struct wb_buf *out;
	uint32_t n, shown_max;
};

/* Count one more difference.  Returns whether it is to be written too. */
static bool next(struct pair *p)
{
	if (p->n++ >= p->shown_max)
		return false;
	if (p->n > 1)
		wb_buf_printf(p->out, "; ");
	return true;
}

static void put_kind(struct wb_buf *out, const char *who, const struct wb_tensor *t)
{
	wb_buf_printf(out, "%s %s [", who, wb_dtype_name(t->dtype));
	for (uint32_t d = 0; d < t->ndim; d++)
		wb_buf_printf(out, "%s%" PRIu64, d ? "," : "", t->shape[d]);
	wb_buf_printf(out, "]");
}

static void put_only(struct pair *p, int side, uint32_t i)
{
	const struct wb_tensor *t = &p->m[side]->tensor[i];

	if (!next(p))
		return;
	wb_buf_printf(p->out, "%s: only ", t->name);
	put_kind(p->out, p->who[side], t);
}

static void put_both(struct pair *p, const struct wb_tensor *a, const struct wb_tensor *b)
{
	if (a->dtype == b->dtype && a->ndim == b->ndim &&
		!memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])))
		return;
	if (!next(p))
		return;
	wb_buf_printf(p->out, "%s: ", a->name);
	put_kind(p->out, p->who[0], a);
	wb_buf_printf(p->out, ", ");
	put_kind(p->out, p->who[1], b);
}

static void put_order(struct pair *p)
{
	for (uint32_t i = 0; i < p->m[0]->n; i++) {
		const char *a = p->m[0]->tensor[i].name, *b = p->m[1]->tensor[i].name;

		if (!strcmp(a, b))
			continue;
		p->n++;
		wb_buf_printf(p->out,
			"the same tensors in another order: number %" PRIu32
			" is %s for %s and %s for %s",
			i, a, p->who[0], b, p->who[1]);
		return;
	}
}

uint32_t wb_manifest_differ(const struct wb_manifest *const m[2], const char *const who[2],
	uint32_t shown_max, struct wb_buf *out)
{
	struct pair p = {{m[0], m[1]}, {who[0], who[1]}, out, 0, shown_max};
	uint32_t i = 0, k = 0;

	while (i < m[0]->n || k < m[1]->n) {
		uint32_t a = i < m[0]->n ? m[0]->by_name[i] : 0;
		uint32_t b = k < m[1]->n ? m[1]->by_name[k] : 0;
		int order = i == m[0]->n   ? 1
			    : k == m[1]->n ? -1
					   : strcmp(m[0]->tensor[a].name, m[1]->tensor[b].name);

		if (order < 0)
			put_only(&p, 0, a);
		else if (order > 0)
			put_only(&p, 1, b);
		else
			put_both(&p, &m[0]->tensor[a], &m[1]->tensor[b]);
		i += order <= 0;
		k += order >= 0;
	}
	if (!p.n)
		put_order(&p);
	if (p.n > shown_max)
		wb_buf_printf(out, "; and %" PRIu32 " more", p.n - shown_max);
	return p.n;
}
