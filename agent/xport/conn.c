/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/conn.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int wb__conn_create(struct wb__sx *x, const struct wb_xport_conn_info *info, uint32_t n_slot,
	struct wb__conn **out)
{
	uint32_t n_op = info->n_socket * n_slot, i, at = 0;
	struct wb__conn *c;

	for (i = 0; i < x->o.conns_max; i++) {
		at = (x->conn_hint + i) % x->o.conns_max;
		if (!x->conn[at])
			break;
	}
	if (i == x->o.conns_max)
		return -ENOSPC;
	c = wb_zalloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->info = *info;
	c->n_slot = n_slot;
	c->op = wb_zalloc(n_op, sizeof(*c->op));
	if (info->is_dialer)
		c->free_slot = wb_zalloc(n_op, sizeof(*c->free_slot));
	else
		c->ask = wb_zalloc(n_op, sizeof(*c->ask));
	if (!c->op || (!c->free_slot && !c->ask)) {
		wb__conn_free(c);
		return -ENOMEM;
	}
	for (i = 0; info->is_dialer && i < n_op; i++)
		c->free_slot[i] = (uint16_t)(n_slot - 1 - i % n_slot);
	for (i = 0; i < info->n_socket; i++)
		c->n_free[i] = (uint16_t)n_slot;
	/* The place is used round about, and the upper bits count up: no number comes back soon. */
	x->conn_gen++;
	c->id = ((x->conn_gen << WB__CONN_SLOT_BITS) | at);
	if (!(c->id >> WB__CONN_SLOT_BITS))
		c->id |= ++x->conn_gen << WB__CONN_SLOT_BITS;
	c->info.conn = c->id;
	x->conn[at] = c;
	x->n_conn++;
	x->conn_hint = at + 1;
	*out = c;
	return 0;
}

void wb__conn_free(struct wb__conn *c)
{
	if (!c)
		return;
	wb_free(c->op);
	wb_free(c->free_slot);
	wb_free(c->ask);
	wb_free(c);
}

struct wb__conn *wb__conn_get(struct wb__sx *x, wb_conn_t id)
{
	uint32_t at = id & ((1u << WB__CONN_SLOT_BITS) - 1);

	if (at >= x->o.conns_max || !x->conn[at] || x->conn[at]->id != id)
		return NULL;
	return x->conn[at];
}

static void die(struct wb__sx *x, struct wb__conn *c)
{
	c->state = WB__C_DYING;
	c->told = 0;
	c->next = NULL;
	*x->dying_tail = c;
	x->dying_tail = &c->next;
}

void wb__conn_close(struct wb__sx *x, struct wb__conn *c, int code, const char *reason)
{
	if (c->state >= WB__C_CLOSING)
		return;
	c->state = WB__C_CLOSING;
	c->code = code;
	snprintf(c->reason, sizeof(c->reason), "%s", reason);
	for (uint32_t i = 0; i < c->info.n_socket; i++) {
		struct wb__cmd cmd = {.kind = WB__CMD_CLOSE, .code = code, .sock = c->sock[i]};

		if (c->sock[i])
			wb__cmd_must(c->sock[i]->rail, &cmd);
	}
	if (!c->n_present)
		die(x, c);
}

void wb__conn_take_down(struct wb__sx *x, struct wb__conn *c, struct wb__sock *s)
{
	bool was_closing = c->state >= WB__C_CLOSING;
	char text[WB__REASON_MAX];

	for (uint32_t i = 0; i < c->info.n_socket; i++) {
		if (c->sock[i] != s)
			continue;
		c->sock[i] = NULL;
		c->n_present--;
	}
	if (x->n_rail > 1)
		snprintf(text, sizeof(text), "rail %u: %.300s", s->rail->index, s->reason);
	else
		snprintf(text, sizeof(text), "%s", s->reason);
	if (c->state < WB__C_CLOSING) {
		wb__conn_close(x, c, s->code, text);
		c->cause_ns = s->closed_ns;
	} else if (s->closed_ns < c->cause_ns) { /* we heard of an effect of it first */
		c->code = s->code;
		c->cause_ns = s->closed_ns;
		snprintf(c->reason, sizeof(c->reason), "%s", text);
	}
	if (was_closing && !c->n_present && c->state == WB__C_CLOSING)
		die(x, c);
}

/* ---- regions ----------------------------------------------------------------------------------
 */

/* A region that holds all of a range; regions may overlap. */
static struct wb__region *region_of(
	struct wb__sx *x, uint64_t object, const uint8_t *p, size_t bytes, uint32_t *hint)
{
	for (uint32_t k = 0; k < x->n_region; k++) {
		struct wb__region *g = &x->region[(*hint + k) % x->n_region];
		const uint8_t *base = g->r.base;

		if (g->is_used && g->r.fd >= 0 && g->r.object == object && p >= base &&
			(size_t)(p - base) < g->r.bytes &&
			bytes <= g->r.bytes - (size_t)(p - base)) {
			*hint = (uint32_t)(g - x->region);
			return g;
		}
	}
	return NULL;
}

/* Adds @by to every region that a range touches; returns how many ranges were inside. */
static uint32_t count_ranges(
	struct wb__sx *x, uint64_t object, const struct iovec *iov, uint32_t n_iov, uint32_t by)
{
	uint32_t hint = 0, i;

	for (i = 0; i < n_iov; i++) {
		struct wb__region *g = region_of(x, object, iov[i].iov_base, iov[i].iov_len, &hint);

		if (!g)
			return i;
		g->refs += by;
	}
	return i;
}

int wb__region_hold(struct wb__sx *x, uint64_t object, const struct iovec *iov, uint32_t n_iov)
{
	uint32_t n = count_ranges(x, object, iov, n_iov, 1);

	if (n == n_iov)
		return 0;
	count_ranges(x, object, iov, n, (uint32_t)-1);
	return -EINVAL;
}

void wb__region_drop(struct wb__sx *x, uint64_t object, const struct iovec *iov, uint32_t n_iov)
{
	count_ranges(x, object, iov, n_iov, (uint32_t)-1);
}
