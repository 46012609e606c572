/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/desk.h"

#include "xport/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void wb__desk_init(struct wb__desk *d, const struct wb_xport_ops *ops,
	const struct wb__desk_ops *desk_ops, uint32_t conns_max)
{
	assert(desk_ops->send && desk_ops->hang_up && desk_ops->free);
	d->base.ops = ops;
	d->ops = desk_ops;
	wb__book_init(&d->book, conns_max ? conns_max : WB_XPORT_CONNS_MAX, ops->caps);
	d->book.via = ops->name;
}

void wb__desk_finish(struct wb__desk *d)
{
	struct wb__account *c;

	for (uint32_t at = 0; (c = wb__book_next(&d->book, &at));)
		d->ops->free(c);
	wb__desk_bury(d);
	wb__book_finish(&d->book);
}

int wb__desk_tell(struct wb__desk *d, struct wb_xport_event *ev, int max, uint64_t now_ns)
{
	struct wb__account *ended;
	int n;

	for (n = 0; n < max; n++) {
		memset(&ev[n], 0, sizeof(ev[n]));
		ev[n].at_ns = now_ns;
		if (!wb__book_tell(&d->book, &ev[n], &ended))
			break;
		if (!ended)
			continue;
		ended->next = d->ended;
		d->ended = ended;
	}
	return n;
}

void wb__desk_bury(struct wb__desk *d)
{
	while (d->ended) {
		struct wb__account *c = d->ended;

		d->ended = c->next;
		d->ops->free(c);
	}
}

int wb__desk_dial(struct wb__desk *d, const struct wb_xport_peer *p,
	struct wb_xport_conn_info *info, struct wb_err *err)
{
	if (!wb__name_ok(p->name) || !p->endpoint)
		return wb_err_set(err, -EINVAL, "a peer needs a name and an endpoint");
	if (!wb__book_epoch_find(&d->book, p->epoch))
		return wb_err_set(err, -ENOENT, "epoch %llu.%llu is not known here",
			(unsigned long long)p->epoch->term, (unsigned long long)p->epoch->number);
	*info = (struct wb_xport_conn_info){.is_dialer = true, .user = p->user, .epoch = *p->epoch};
	snprintf(info->peer, sizeof(info->peer), "%s", p->name);
	return 0;
}

int wb__desk_epoch_add(struct wb_xport *x, const struct wb_xport_epoch *e, struct wb_err *err)
{
	struct wb__book *b = &wb__desk(x)->book;
	int rc = wb__book_epoch_known(b, e, err);

	if (rc)
		return rc > 0 ? 0 : rc;
	if (e->is_encrypted)
		return wb_err_set(err, -ENOTSUP,
			"transport %s has no encryption: set spec.transport.encryption to None, "
			"or use transport tcp",
			x->ops->name);
	return wb__book_epoch_put(b, e, err);
}

int wb__desk_epoch_remove(struct wb_xport *x, const struct wb_epoch_id *id)
{
	struct wb__desk *d = wb__desk(x);
	struct wb__account *c;
	int n = 0, rc = wb__book_epoch_forget(&d->book, id);

	for (uint32_t at = 0; !rc && (c = wb__book_of_epoch(&d->book, id, &at));) {
		n += c->was_announced;
		if (c->state < WB__C_DYING)
			d->ops->hang_up(d, c, "the epoch was revoked here");
	}
	return rc ? rc : n;
}

int wb__desk_region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err)
{
	return wb__book_region_put(&wb__desk(x)->book, r, id, err);
}

int wb__desk_region_remove(struct wb_xport *x, uint32_t id)
{
	return wb__book_region_drop(&wb__desk(x)->book, id);
}

enum wb_xport_path wb__desk_region_path(struct wb_xport *x, uint32_t id, char *out, size_t cap)
{
	const struct wb_xport_region *r = wb__book_region_get(&wb__desk(x)->book, id);

	if (r && !r->gpu.is_there)
		return WB_XPORT_PATH_HOST;
	snprintf(out, cap, r ? "%s moves no memory of a GPU" : "%s has no such region",
		wb_xport_name(x));
	return r ? WB_XPORT_PATH_BOUNCE : WB_XPORT_PATH_FAILED;
}

int wb__desk_disconnect(struct wb_xport *x, wb_conn_t conn)
{
	struct wb__desk *d = wb__desk(x);
	struct wb__account *c = wb__book_get(&d->book, conn);

	if (!c || c->state == WB__C_DYING)
		return -ENOTCONN;
	d->ops->hang_up(d, c, "disconnected here");
	return 0;
}

/* Enter the word in the book and send it.  If it cannot be sent now, neither is done. */
static int take(struct wb__desk *d, const struct wb__entry *e)
{
	if (d->ops->has_room && !d->ops->has_room(d, e)) {
		wb__book_abandon(&d->book, e);
		return -EAGAIN;
	}
	wb__book_commit(&d->book, e);
	d->ops->send(d, e);
	return 0;
}

int wb__desk_grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g)
{
	struct wb__desk *d = wb__desk(x);
	struct wb__entry e;
	int rc = wb__book_grant(&d->book, conn, g, &e);

	return rc ? rc : take(d, &e);
}

int wb__desk_cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie)
{
	struct wb__desk *d = wb__desk(x);
	struct wb__entry e;
	int rc = wb__book_cancel(&d->book, conn, cookie, &e);

	return rc ? rc : take(d, &e);
}

int wb__desk_write(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w)
{
	struct wb__desk *d = wb__desk(x);
	struct wb__entry e;
	int rc = wb__book_write(&d->book, conn, w, &e);

	return rc ? rc : take(d, &e);
}

int wb__desk_refuse(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code)
{
	struct wb__desk *d = wb__desk(x);
	struct wb__entry e;
	int rc = wb__book_refuse(&d->book, conn, grant, code, &e);

	return rc ? rc : take(d, &e);
}
