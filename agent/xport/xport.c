/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/xport.h"

#include "base/base.h"
#include "xport/internal.h"

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

/* The transport with the longest scheme that the text begins with. */
static const struct wb_xport_ops *find_by_endpoint(const char *endpoint)
{
	const struct wb_xport_ops *best = NULL;
	size_t longest = 0;

	for (uint32_t i = 0; i < n_transport; i++) {
		size_t n = strlen(transport[i]->scheme);

		if (strncmp(endpoint, transport[i]->scheme, n) || (best && n < longest))
			continue;
		best = transport[i];
		longest = n;
	}
	assert(best); /* tcp takes what nobody else does */
	return best;
}

const char *wb_xport_of_endpoint(const char *endpoint)
{
	return endpoint[0] ? find_by_endpoint(endpoint)->name : "";
}

uint32_t wb_xport_sockets(uint32_t n_rail, const char *endpoint)
{
	uint32_t n = find_by_endpoint(endpoint)->sockets_min, theirs = 1;

	for (const char *s = endpoint; *s; s++)
		theirs += *s == ',';
	n = WB_MAX(n, WB_MAX(n_rail, theirs));
	return WB_MIN(n, (uint32_t)WB_XPORT_SOCKETS_MAX);
}

int wb_xport_endpoint_of(const char *endpoint, uint32_t rails, char *out, size_t cap)
{
	uint32_t left = rails, i = 0;
	size_t at = 0;

	for (const char *s = endpoint, *end; s; s = *end ? end + 1 : NULL, i++) {
		int n;

		end = strchrnul(s, ',');
		if (rails && !(i < 32 && rails >> i & 1))
			continue;
		left &= ~(uint32_t)(1ull << i);
		n = snprintf(out + at, cap - at, "%s%.*s", at ? "," : "", (int)(end - s), s);
		if (n < 0 || (size_t)n >= cap - at)
			return -ENOSPC;
		at += (size_t)n;
	}
	return left ? -EINVAL : 0;
}

/* "there are tcp, shm and verbs" */
static int unknown(const char *name, struct wb_err *err)
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

int wb_xport_open(
	const char *name, const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	const struct wb_xport_ops *ops = wb_xport_find(name);

	return ops ? ops->open(o, out, err) : unknown(name, err);
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
	return x->ops->connect(x, p, out, err);
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
