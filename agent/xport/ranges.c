/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/ranges.h"

#include <errno.h>

/* ---- the source ---------------------------------------------------------------------------------
 */

/* Find the region of a range.  There is one: the loop has checked it. */
static bool find_range(struct wb__sock *s, struct wb__giver *g, const uint8_t *p, size_t len,
	struct wb__range *out)
{
	uint32_t id = wb__regions_find(g->by_address, s->hello.object, p, len);

	if (id == WB__REGION_NONE)
		return false;
	out->region = id;
	out->bytes = (uint32_t)len;
	out->off = (uint64_t)(p - (const uint8_t *)g->region[id].base);
	return true;
}

static int send_table(struct wb__sock *s, struct wb__giver *g, struct wb__op *op)
{
	uint8_t ranges[WBP_BULK_TABLE_MAX * WBP_BULK_RANGE_BYTES];
	struct wb__frame f = {.type = WBP_BULK_TABLE, .range = ranges};

	while (op->at.done < op->bytes && f.n_range < WBP_BULK_TABLE_MAX) {
		struct wb__range at;
		size_t len;
		const uint8_t *p = wb__op_span(op, &op->at, &len);

		if (!find_range(s, g, p, len, &at))
			return wb__sock_fail(s, -EFAULT, "a write lies outside of the regions");
		wb__range_put(ranges, f.n_range++, &at);
		wb__op_skip(op, &op->at, len);
	}
	return wb__sock_send(s, &f);
}

static int end_write(struct wb__sock *s, struct wb__op *op)
{
	struct wb__frame f = {.type = WBP_BULK_TRAILER, .id = op->id};

	wb_dassert(op->at.done == op->bytes && (!op->observe || op->seen.done == op->bytes));
	if (op->trailer)
		op->trailer(op->ctx, f.mac);
	s->tx_in->state = WB__IN_SENT;
	s->tx_in = NULL;
	wb__count(&s->rail->tx_bytes, op->bytes);
	return wb__sock_send(s, &f);
}

int wb__give_step(struct wb__sock *s, struct wb__giver *g, uint32_t *budget)
{
	struct wb__rail *r = s->rail;
	struct wb__op *op = s->tx_in->op;
	struct wb__frame f = {.type = WBP_BULK_WRITE, .id = op->id, .bytes = op->bytes};
	uint64_t upto;

	if (!g->is_begun) {
		if (!wb__bucket_ok(r, &r->tx))
			return WB__WAIT;
		wb__bucket_take(&r->tx, op->bytes);
		g->is_begun = true;
		if (wb__sock_send(s, &f) < 0)
			return s->code;
		return send_table(s, g, op);
	}
	if (op->at.done < op->bytes)
		return send_table(s, g, op);
	if (op->observe && op->seen.done < op->bytes) {
		upto = WB_MIN(op->bytes, op->seen.done + WB_MIN(*budget, r->x->o.piece_bytes));
		*budget -= (uint32_t)(upto - op->seen.done);
		if (upto - op->seen.done < WB_XPORT_PIECE_ALIGN)
			upto = WB_MIN(op->bytes, op->seen.done + WB_XPORT_PIECE_ALIGN);
		wb__op_observe(op, upto, r->x->o.piece_bytes);
		return 0;
	}
	return end_write(s, op);
}

int wb__give_released(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__in *in = wb__sock_in(s, f->id);

	if (!in || in->state != WB__IN_SENT)
		return wb__sock_fail(s, -EPROTO, "agent %s released what was not sent", s->peer);
	wb__sock_written(s, in);
	return 0;
}

/* ---- the receiver -------------------------------------------------------------------------------
 */

int wb__take_ranges(struct wb__sock *s, struct wb__taker *t, const struct wb__frame *f,
	uint64_t (*bytes_of)(const struct wb__sock *s, uint32_t region))
{
	uint64_t left = s->rx_left;

	if (!s->rx_op)
		return wb__sock_fail(s, -EPROTO, "agent %s sent ranges of no chunk", s->peer);
	for (uint32_t i = 0; i < f->n_range; i++) {
		struct wb__range g = wb__range_get(f->range, i);
		uint64_t end, bytes = g.region < WB__REGIONS_MAX ? bytes_of(s, g.region) : 0;

		if (!bytes || !g.bytes || g.bytes > left || !wb_add_u64(g.off, g.bytes, &end) ||
			end > bytes)
			return wb__sock_fail(s, -EPROTO,
				"agent %s sent a range outside of its regions or its chunk",
				s->peer);
		left -= g.bytes;
		t->range[i] = g;
	}
	assert(f->n_range <= WBP_BULK_TABLE_MAX); /* the frame decoder has checked this */
	t->n = f->n_range;
	t->at = 0;
	s->in_payload = true;
	return 0;
}
