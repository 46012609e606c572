/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse fields: append records, and add one field to another. */
#include "base/mem.h"
#include "extract/internal.h"

#include <errno.h>
#include <string.h>

void wb__recs_finish(struct wb__recs *a)
{
	wb_free(a->r);
	*a = (struct wb__recs){0};
}

int wb__recs_put(struct wb__recs *a, const struct wbk_record *r, size_t n, size_t max)
{
	int rc = wb_grow(&a->r, &a->cap, a->n + n, max, sizeof(*r));

	if (rc < 0)
		return rc;
	if (n)
		memcpy(a->r + a->n, r, n * sizeof(*r));
	a->n += n;
	return 0;
}

int wb__recs_add(
	struct wb__recs *a, const struct wb__recs *b, int64_t scale, uint64_t shift, size_t max)
{
	struct wb__recs sum = {0};
	size_t i = 0, k = 0;

	if (!b->n)
		return 0;
	/* There is room for both.  Records that cancel do not count for @max, which is checked at
	 * the end. */
	sum.cap = a->n + b->n;
	sum.r = wb_realloc_array(NULL, sum.cap, sizeof(*sum.r));
	if (!sum.r)
		return -ENOMEM;
	while (i < a->n || k < b->n) {
		struct wbk_record x;

		if (k == b->n || (i < a->n && a->r[i].index < b->r[k].index + shift)) {
			x = a->r[i++];
		} else {
			x.index = b->r[k].index + shift;
			x.value = b->r[k].value * scale;
			k++;
			if (i < a->n && a->r[i].index == x.index)
				x.value += a->r[i++].value;
		}
		if (x.value)
			sum.r[sum.n++] = x;
	}
	wb__recs_finish(a);
	*a = sum;
	return a->n > max ? -E2BIG : 0;
}
