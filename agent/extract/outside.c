/* SPDX-License-Identifier: Apache-2.0 */
#include "extract/internal.h"

/*
 * Looks at memory that is not a parameter: buffers and attributes of a module.  What load_weights
 * copies there belongs to the map, or the caller must be told that no transfer will write it.
 */

static bool is_written(struct wb_probe *p, const struct wb__param *a)
{
	if (a->fault[0] || a->n_op)
		return true;
	return a->state == WB__ASIDE && a->has_snapshot && !wb__equals_snapshot(p, a);
}

/* Does @a belong to the map?  An attribute may be ACTIVE without being written, since it may hold
 * the constant of the first pass by chance. */
static bool is_of_map(const struct wb__param *a)
{
	bool is_any = a->n_op != 0;

	if (a->role == WB_PROBE_PARAM)
		return true;
	for (size_t i = 0; i < a->n_region && !is_any; i++)
		is_any = a->region[i].kind == WB_REGION_CONSTANT;
	return a->role == WB_PROBE_ATTRIBUTE && a->state == WB__ACTIVE && is_any;
}

uint32_t wb__outside_settle(struct wb_probe *p)
{
	uint32_t n = 0;

	wb_buf_reset(&p->outside);
	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];
		bool is_in = is_of_map(a);

		a->out = is_in ? n++ : WB__NOT_OUT;
		if (is_in || a->state == WB__OUT || !is_written(p, a))
			continue;
		wb_buf_printf(&p->outside, "%s\t%s\n", a->name,
			a->fault[0] ? a->fault : "load_weights writes it");
	}
	return n;
}

const char *wb_probe_outside(struct wb_probe *p)
{
	return wb_buf_cstr(&p->outside);
}
