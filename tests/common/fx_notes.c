/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_notes.h"
#include "tests/common/fx_check.h"

#include "base/base.h"

#include <string.h>

static struct fx_notes *notes_of(struct wb_xport *x)
{
	return wb_container_of(x, struct fx_notes, x);
}

static int on_grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g)
{
	struct fx_notes *n = notes_of(x);

	ck_assert_int_lt(n->n_asked, FX_NOTES_MAX);
	n->asked[n->n_asked++] = (struct fx_asked){.conn = conn, .grant = *g};
	return 0;
}

static int on_cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie)
{
	struct fx_notes *n = notes_of(x);

	(void)conn;
	n->n_cancel++;
	for (int k = 0; k < n->n_asked; k++)
		if (!n->asked[k].is_over && n->asked[k].grant.cookie == cookie)
			n->asked[k].is_taken_back = true;
	return 0;
}

static struct fx_answer *answer(struct wb_xport *x, wb_conn_t conn, uint64_t grant)
{
	struct fx_notes *n = notes_of(x);

	ck_assert_int_lt(n->n_answer, FX_NOTES_MAX);
	n->answer[n->n_answer] = (struct fx_answer){.conn = conn, .grant = grant};
	return &n->answer[n->n_answer++];
}

static int on_write(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w)
{
	answer(x, conn, w->grant)->write = *w;
	return 0;
}

static int on_refuse(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code)
{
	answer(x, conn, grant)->code = code;
	return 0;
}

static int on_disconnect(struct wb_xport *x, wb_conn_t conn)
{
	(void)conn;
	notes_of(x)->n_hang_up++;
	return 0;
}

static const struct wb_xport_ops ops = {.name = "notes",
	.disconnect = on_disconnect,
	.grant = on_grant,
	.cancel = on_cancel,
	.write = on_write,
	.refuse = on_refuse};

void fx_notes_init(struct fx_notes *n)
{
	memset(n, 0, sizeof(*n));
	n->ops = ops;
	n->x.ops = &n->ops;
}
