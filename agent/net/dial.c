/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include "base/base.h"
#include "base/mem.h"
#include "net/tls_chan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

/* From a name to a connected socket.  Outlives its channel while a name is looked up. */
struct wb__dial {
	uv_getaddrinfo_t req;
	struct wb__tls_chan *chan; /* NULL: nobody waits any more */
	struct addrinfo *list, *next; /* owned list; next to try */
	struct wb_watch *watch;
	bool is_looking_up;
	int fd;
	char host[256], port[8];
};

static void try_next(struct wb__dial *d, int last_rc);

static void dial_free(struct wb__dial *d)
{
	uv_freeaddrinfo(d->list);
	wb_free(d);
}

static void drop_socket(struct wb__dial *d)
{
	wb_watch_destroy(d->watch);
	d->watch = NULL;
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

void wb__dial_stop(struct wb__tls_chan *c)
{
	struct wb__dial *d = c->dial;

	if (!d)
		return;
	c->dial = NULL;
	c->host = NULL;
	d->chan = NULL;
	drop_socket(d);
	if (d->is_looking_up)
		uv_cancel((uv_req_t *)&d->req);
	else
		dial_free(d);
}

static void connected(struct wb__dial *d)
{
	struct wb__tls_chan *c = d->chan;
	int fd = d->fd, rc;

	/* The watcher goes first: a descriptor has one at a time. */
	d->fd = -1;
	drop_socket(d);
	rc = wb__chan_start(c, fd);
	if (rc < 0) {
		struct wb_err err = {0};

		close(fd);
		wb_err_set(&err, rc, "%s: %s", c->peer, wb_strerror(rc));
		wb__chan_end(c, &err);
		return;
	}
	wb__dial_stop(c);
	wb__chan_handshake(c);
}

static void socket_fired(void *cookie, int events)
{
	struct wb__dial *d = cookie;
	socklen_t len = sizeof(int);
	int e = 0;

	(void)events;
	if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		e = errno;
	if (!e) {
		connected(d);
		return;
	}
	drop_socket(d);
	try_next(d, -e);
}

static int start_connect(struct wb__dial *d, const struct addrinfo *ai)
{
	int rc;

	d->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (d->fd < 0)
		return -errno;
	if (connect(d->fd, ai->ai_addr, ai->ai_addrlen) < 0 && errno != EINPROGRESS)
		rc = -errno;
	else
		rc = wb_watch_create(d->chan->loop, d->fd, WB_WRITABLE, socket_fired, d, &d->watch);
	if (rc < 0)
		drop_socket(d);
	return rc;
}

static void try_next(struct wb__dial *d, int last_rc)
{
	struct wb_err err = {0};

	while (d->next) {
		const struct addrinfo *ai = d->next;

		d->next = ai->ai_next;
		last_rc = start_connect(d, ai);
		if (!last_rc)
			return;
	}
	if (last_rc == -ECONNREFUSED)
		wb_err_set(&err, last_rc,
			"%s: connection refused: nobody listens there (not started yet, or another "
			"port)",
			d->chan->peer);
	else
		wb_err_set(&err, last_rc, "%s: %s", d->chan->peer, wb_strerror(last_rc));
	wb__chan_end(d->chan, &err);
}

static void looked_up(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
	struct wb__dial *d = wb_container_of(req, struct wb__dial, req);
	struct wb_err err = {0};

	d->is_looking_up = false;
	d->list = d->next = list;
	if (!d->chan) {
		dial_free(d);
		return;
	}
	if (!status) {
		try_next(d, -EADDRNOTAVAIL);
		return;
	}
	wb_err_set(&err, -EHOSTUNREACH, "%s: the name %s is not known: %s", d->chan->peer, d->host,
		uv_strerror(status));
	wb__chan_end(d->chan, &err);
}

int wb_tls_connect(struct wb_loop *loop, struct wb_tls *tls, const char *host, uint16_t port,
	const struct wb_chan_limits *limits, const struct wb_chan_cb *cb, struct wb_chan **out)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	char peer[WB__PEER_MAX + 300];
	struct wb__tls_chan *c;
	struct wb__dial *d;
	int rc;

	if (!port || !*host || strlen(host) >= sizeof(d->host) || wb__tls_is_server(tls))
		return -EINVAL;
	snprintf(peer, sizeof(peer), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
	d = wb_zalloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	rc = wb__chan_new(loop, tls, peer, limits, &c);
	if (rc < 0) {
		wb_free(d);
		return rc;
	}
	d->chan = c;
	d->fd = -1;
	strcpy(d->host, host);
	snprintf(d->port, sizeof(d->port), "%u", port);
	rc = uv_getaddrinfo(wb_loop_uv(loop), &d->req, looked_up, d->host, d->port, &hints);
	if (rc < 0) {
		wb_timer_destroy(c->timer);
		wb_tls_put(tls);
		wb_free(c);
		wb_free(d);
		return rc == UV_ENOMEM ? -ENOMEM : -EINVAL;
	}
	d->is_looking_up = true;
	c->dial = d;
	c->host = d->host;
	c->base.cb = *cb;
	*out = &c->base;
	return 0;
}
