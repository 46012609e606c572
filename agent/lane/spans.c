/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of the wire boxes cover. */
#include "base/base.h"
#include "lane/internal.h"

static struct wb__lane_span span_of(const struct wbk_box *b)
{
	uint64_t bytes = (uint64_t)b->n_row * b->n_col * b->wire_elem;

	return (struct wb__lane_span){b->wire_off, b->wire_off + bytes};
}

/* The spans of the boxes in order.  Boxes nearly always come in the order of the wire, so inserting
 * each at its place takes about one step. */
static uint32_t sorted(const struct wbk_box *box, uint32_t n, struct wb__lane_span *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct wb__lane_span s = span_of(&box[i]);
		uint32_t at = count;

		if (s.begin == s.end)
			continue;
		for (; at && out[at - 1].begin > s.begin; at--)
			out[at] = out[at - 1];
		out[at] = s;
		count++;
	}
	return count;
}

uint32_t wb__lane_spans(const struct wbk_box *box, uint32_t n, struct wb__lane_span *out)
{
	uint32_t count = sorted(box, n, out), last = 0;

	for (uint32_t i = 1; i < count; i++) {
		if (out[i].begin > out[last].end)
			out[++last] = out[i];
		else
			out[last].end = WB_MAX(out[last].end, out[i].end);
	}
	return count ? last + 1 : 0;
}
