/* SPDX-License-Identifier: Apache-2.0 */
/* The table of known transports.  The functions of xport.h call through the table of operations. */
#include "xport/xport.h"

#include "base/base.h"
#include "xport/internal.h"
#include "xport/ways.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRANSPORTS_MAX 8

static const struct wb_xport_ops *transport[TRANSPORTS_MAX] = {
	&wb_xport_tcp, &wb_xport_shm, &wb_xport_verbs};
static uint32_t n_transport = 3;

int wb_xport_register(const struct wb_xport_ops *ops)
{
	for (uint32_t i = 0; i < n_transport; i++) {
		if (transport[i] == ops)
			return 0;
		if (!strcmp(transport[i]->name, ops->name) ||
			!strcmp(transport[i]->scheme, ops->scheme))
			return -EEXIST;
	}
	if (n_transport == TRANSPORTS_MAX)
		return -ENOSPC;
	transport[n_transport++] = ops;
	return 0;
}

const struct wb_xport_ops *wb_xport_find(const char *name)
{
	for (uint32_t i = 0; i < n_transport; i++) {
		if (!strcmp(transport[i]->name, name))
			return transport[i];
	}
	return NULL;
}

/* The sentence ends like this: "there are tcp, shm and verbs". */
int wb__xport_unknown(const char *name, struct wb_err *err)
{
	char list[128] = "";
	size_t at = 0;

	for (uint32_t i = 0; i < n_transport && at < sizeof(list); i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s",
			!i                     ? ""
			: i + 1 == n_transport ? " and "
					       : ", ",
			transport[i]->name);
	return wb_err_set(err, -EINVAL, "there is no transport '%.40s'; there are %s", name, list);
}

uint32_t wb__xport_count(void)
{
	return n_transport;
}

const struct wb_xport_ops *wb__xport_at(uint32_t i)
{
	return i < n_transport ? transport[i] : NULL;
}

int wb_xport_open(
	const char *name, const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	const struct wb_xport_ops *ops = wb_xport_find(name);

	return ops ? ops->open(o, out, err) : wb__xport_unknown(name, err);
}

void wb_xport_close(struct wb_xport *x)
{
	if (x)
		x->ops->close(x);
}

int wb_xport_listen(struct wb_xport *x, char *endpoint, size_t cap, struct wb_err *err)
{
	return x->ops->listen(x, endpoint, cap, err);
}

static int join_addresses(const struct wb_xport *x, const char *const *at, uint32_t n,
	char *endpoint, size_t cap, struct wb_err *err)
{
	size_t used = 0;

	for (uint32_t i = 0; i < n; i++) {
		int k = snprintf(
			endpoint + used, cap - used, "%s%s%s", i ? "," : "", x->ops->scheme, at[i]);

		if (k < 0 || (size_t)k >= cap - used)
			return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
		used += (size_t)k;
	}
	return 0;
}

int wb_xport_serve(struct wb_xport *x, const char *const *at, uint32_t n, char *endpoint,
	size_t cap, struct wb_err *err)
{
	if (x->ops->serve)
		return x->ops->serve(x, at, n, endpoint, cap, err);
	if (x->ops->caps & WB_XPORT_CAP_LOCAL)
		return wb_xport_listen(x, endpoint, cap, err);
	return join_addresses(x, at, n, endpoint, cap, err);
}

int wb_xport_adopt(struct wb_xport *x, int fd_take, struct wb_err *err)
{
	if (x->ops->adopt)
		return x->ops->adopt(x, fd_take, err);
	close(fd_take);
	return wb_err_set(err, -ENOTSUP, "transport %s has no sockets", x->ops->name);
}

int wb_xport_epoch_add(struct wb_xport *x, const struct wb_xport_epoch *e, struct wb_err *err)
{
	return x->ops->epoch_add(x, e, err);
}

int wb_xport_epoch_remove(struct wb_xport *x, const struct wb_epoch_id *id)
{
	return x->ops->epoch_remove(x, id);
}

int wb_xport_region_add(
	struct wb_xport *x, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err)
{
	return x->ops->region_add(x, r, id, err);
}

int wb_xport_region_remove(struct wb_xport *x, uint32_t id)
{
	return x->ops->region_remove(x, id);
}

int wb_xport_connect(
	struct wb_xport *x, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	char way[WB__WAY_MAX];
	struct wb_xport_peer to = *p;

	if (x->ops->serve || !p->endpoint || !strchr(p->endpoint, ';'))
		return x->ops->connect(x, p, out, err);
	if (!wb__way_of(p->endpoint, x->ops->scheme, way, sizeof(way)))
		return wb_err_set(err, -EPROTONOSUPPORT, "agent %s has no transport %s", p->name,
			x->ops->name);
	to.endpoint = way;
	return x->ops->connect(x, &to, out, err);
}

int wb_xport_disconnect(struct wb_xport *x, wb_conn_t conn)
{
	return x->ops->disconnect(x, conn);
}

int wb_xport_grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g)
{
	return x->ops->grant(x, conn, g);
}

int wb_xport_cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie)
{
	return x->ops->cancel(x, conn, cookie);
}

int wb_xport_write(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w)
{
	return x->ops->write(x, conn, w);
}

int wb_xport_refuse(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code)
{
	return x->ops->refuse(x, conn, grant, code);
}

int wb_xport_poll(struct wb_xport *x, struct wb_xport_event *ev, int max)
{
	return x->ops->poll(x, ev, max);
}

int wb_xport_event_fd(struct wb_xport *x)
{
	return x->ops->event_fd ? x->ops->event_fd(x) : -1;
}

int wb_xport_rail_stats(struct wb_xport *x, uint32_t rail, struct wb_xport_stats *out)
{
	if (x->ops->stats)
		return x->ops->stats(x, rail, out);
	*out = (struct wb_xport_stats){0};
	return rail ? -EINVAL : 0;
}

bool wb_xport_instead(struct wb_xport *x, uint64_t object, char *out, size_t cap)
{
	return x->ops->instead && x->ops->instead(x, object, out, cap);
}

enum wb_xport_path wb_xport_region_path(struct wb_xport *x, uint32_t id, char *out, size_t cap)
{
	assert(cap);
	out[0] = '\0';
	if (x->ops->region_path)
		return x->ops->region_path(x, id, out, cap);
	return WB_XPORT_PATH_HOST; /* only a test double has no such operation */
}

bool wb_xport_reduced(struct wb_xport *x, char *out, size_t cap)
{
	return x->ops->reduced && x->ops->reduced(x, out, cap);
}

bool wb_xport_keys(struct wb_xport *x, char *out, size_t cap)
{
	return x->ops->keys && x->ops->keys(x, out, cap);
}
