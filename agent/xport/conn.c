/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/conn.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int wb__conn_create(struct wb__xport_stream *x, const struct wb_xport_conn_info *info,
	uint32_t n_slot, struct wb__conn **out)
{
	struct wb__conn *c = wb_zalloc(1, sizeof(*c));
	int rc = c ? wb__book_open(&x->desk.book, &c->a, info, info->n_socket, n_slot) : -ENOMEM;

	if (rc)
		wb_free(c);
	else
		*out = c;
	return rc;
}

void wb__conn_free(struct wb__account *a)
{
	wb__account_finish(a);
	wb_free(wb__conn_of(a));
}

void wb__conn_close(struct wb__xport_stream *x, struct wb__conn *c, int code, const char *reason)
{
	if (!wb__book_close(&c->a, code, reason))
		return;
	for (uint32_t i = 0; i < c->a.n_lane; i++) {
		struct wb__cmd cmd = {.kind = WB__CMD_CLOSE, .code = code, .sock = c->sock[i]};

		if (c->sock[i])
			wb__cmd_must(c->sock[i]->rail, &cmd);
	}
	if (!c->n_present)
		wb__book_down(&x->desk.book, &c->a);
}

void wb__conn_take_down(struct wb__xport_stream *x, struct wb__conn *c, struct wb__sock *s)
{
	bool was_closing = c->a.state >= WB__C_CLOSING;
	char text[WB__REASON_MAX];

	for (uint32_t i = 0; i < c->a.n_lane; i++) {
		if (c->sock[i] != s)
			continue;
		assert(s->conn == c && c->n_present);
		c->sock[i] = NULL;
		c->n_present--;
	}
	if (x->n_rail > 1)
		snprintf(text, sizeof(text), "rail %u: %.300s", s->rail->index, s->reason);
	else
		snprintf(text, sizeof(text), "%s", s->reason);
	if (!was_closing) {
		wb__conn_close(x, c, s->code, text);
		c->cause_ns = s->closed_ns;
	} else if (s->closed_ns < c->cause_ns) { /* this socket failed first */
		c->a.code = s->code;
		c->cause_ns = s->closed_ns;
		snprintf(c->a.reason, sizeof(c->a.reason), "%s", text);
	}
	if (was_closing && !c->n_present && c->a.state == WB__C_CLOSING)
		wb__book_down(&x->desk.book, &c->a);
}
