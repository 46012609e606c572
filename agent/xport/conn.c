/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/conn.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CONNS_FIRST 64u

/* A table that stays half empty: a place is found at once, and looking through all of it costs what
 * there is. */
static int make_room(struct wb__sx *x)
{
	uint32_t cap = WB_MAX(2 * x->conn_cap, CONNS_FIRST);
	struct wb__conn **conn;

	if (x->n_conn == x->o.conns_max)
		return -ENOSPC;
	cap = WB_MIN(cap, x->o.conns_max);
	if (2 * x->n_conn < x->conn_cap || cap == x->conn_cap)
		return 0;
	conn = wb_realloc_array(x->conn, cap, sizeof(struct wb__conn *));
	if (!conn)
		return -ENOMEM;
	memset(conn + x->conn_cap, 0, (cap - x->conn_cap) * sizeof(struct wb__conn *));
	x->conn = conn;
	x->conn_cap = cap;
	return 0;
}

int wb__conn_create(struct wb__sx *x, const struct wb_xport_conn_info *info, uint32_t n_slot,
	struct wb__conn **out)
{
	uint32_t n_op = info->n_socket * n_slot, i, at;
	struct wb__conn *c;
	int rc = make_room(x);

	if (rc)
		return rc;
	at = x->conn_hint % x->conn_cap;
	while (x->conn[at])
		at = (at + 1) % x->conn_cap;
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

static uint32_t place_of(wb_conn_t id)
{
	return id & ((1u << WB__CONN_SLOT_BITS) - 1);
}

void wb__conn_drop(struct wb__sx *x, struct wb__conn *c)
{
	x->conn[place_of(c->id)] = NULL;
	x->n_conn--;
}

struct wb__conn *wb__conn_get(struct wb__sx *x, wb_conn_t id)
{
	uint32_t at = place_of(id);

	if (at >= x->conn_cap || !x->conn[at] || x->conn[at]->id != id)
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

/* Adds @by to every region that a range touches; returns how many ranges were inside. */
static uint32_t count_ranges(
	struct wb__sx *x, uint64_t object, const struct iovec *iov, uint32_t n_iov, uint32_t by)
{
	uint32_t i;

	for (i = 0; i < n_iov; i++) {
		uint32_t id =
			wb__regions_find(&x->by_address, object, iov[i].iov_base, iov[i].iov_len);

		if (id == WB__REGION_NONE)
			return i;
		x->region[id].refs += by;
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
