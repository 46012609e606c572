/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include "base/base.h"
#include "base/clock.h"
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

#define DIAL_NS_DEFAULT (4 * WB_NS_PER_S)

/* A connect to one address, under way. */
struct attempt {
	struct wb__dial *d;
	struct wb_watch *watch;
	int fd; /* -1: over, or not begun */
};

/* The way from a name to a connected socket.  May outlive its channel while a name is looked up. */
struct wb__dial {
	uv_getaddrinfo_t req;
	struct wb__tls_chan *chan; /* NULL: it has ended */
	struct addrinfo *list, *next; /* owned list; next to try */
	struct attempt attempt[WB_DIAL_ADDRS_MAX];
	uint32_t n; /* attempts begun; attempt i is for address i */
	struct wb_timer *timer; /* when the next address has its turn, or all have had their time */
	uint64_t until_ns;
	bool is_looking_up, is_own; /* is_own: list is from make_list() */
	int last_rc; /* of the attempt that failed last */
	char host[256], port[8];
	char failed[300]; /* "ADDRESS: why; ..." of those that failed */
};

static void try_next(struct wb__dial *d);

static void free_list(struct addrinfo *list, bool is_own)
{
	while (is_own && list) {
		struct addrinfo *next = list->ai_next;

		wb_free(list);
		list = next;
	}
	if (list)
		uv_freeaddrinfo(list);
}

static void dial_free(struct wb__dial *d)
{
	free_list(d->list, d->is_own);
	wb_free(d);
}

static void drop_socket(struct attempt *t)
{
	wb_watch_destroy(t->watch);
	t->watch = NULL;
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
}

static void drop_sockets(struct wb__dial *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		drop_socket(&d->attempt[i]);
}

void wb__dial_stop(struct wb__tls_chan *c)
{
	struct wb__dial *d = c->dial;

	if (!d)
		return;
	c->dial = NULL;
	c->host = NULL;
	d->chan = NULL;
	drop_sockets(d);
	wb_timer_destroy(d->timer);
	d->timer = NULL;
	if (d->is_looking_up)
		uv_cancel((uv_req_t *)&d->req);
	else
		dial_free(d);
}

static const struct addrinfo *address(const struct wb__dial *d, uint32_t i)
{
	const struct addrinfo *ai = d->list;

	while (i--)
		ai = ai->ai_next;
	return ai;
}

static void connected(struct attempt *t)
{
	struct wb__dial *d = t->d;
	struct wb__tls_chan *c = d->chan;
	int fd = t->fd, rc;

	/* If there are several addresses, the one that answered names the peer from now on. */
	if (d->is_own)
		wb__addr_text(
			address(d, (uint32_t)(t - d->attempt))->ai_addr, c->peer, sizeof(c->peer));
	/* Destroy our watcher first: a descriptor can have only one, and the channel makes one. */
	t->fd = -1;
	drop_sockets(d);
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

static void note_failure(struct wb__dial *d, const struct addrinfo *ai, int rc)
{
	size_t at = strlen(d->failed);
	char text[WB__PEER_MAX] = "?";

	wb__addr_text(ai->ai_addr, text, sizeof(text));
	snprintf(d->failed + at, sizeof(d->failed) - at, "%s%s: %s", at ? "; " : "", text,
		wb_strerror(rc));
	d->last_rc = rc;
}

static void socket_fired(void *cookie, int events)
{
	struct attempt *t = cookie;
	struct wb__dial *d = t->d;
	socklen_t len = sizeof(int);
	int e = 0;

	(void)events;
	if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		e = errno;
	if (!e) {
		connected(t);
		return;
	}
	drop_socket(t);
	note_failure(d, address(d, (uint32_t)(t - d->attempt)), -e);
	try_next(d);
}

static int start_connect(struct attempt *t, const struct addrinfo *ai)
{
	int rc;

	t->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (t->fd < 0)
		return -errno;
	if (connect(t->fd, ai->ai_addr, ai->ai_addrlen) < 0 && errno != EINPROGRESS)
		rc = -errno;
	else
		rc = wb_watch_create(
			t->d->chan->loop, t->fd, WB_WRITABLE, socket_fired, t, &t->watch);
	if (rc < 0)
		drop_socket(t);
	return rc;
}

static uint32_t n_under_way(const struct wb__dial *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n; i++)
		n += d->attempt[i].fd >= 0;
	return n;
}

/* All addresses have failed, or have not answered in time. */
static void give_up(struct wb__dial *d)
{
	struct wb__tls_chan *c = d->chan;
	struct wb_err err = {0};

	if (n_under_way(d)) {
		for (uint32_t i = 0; i < d->n && d->n > 1; i++)
			if (d->attempt[i].fd >= 0)
				note_failure(d, address(d, i), -ETIMEDOUT);
		wb_err_set(&err, -ETIMEDOUT, "%s: no answer within %llu ms (connecting)%s%s",
			c->peer, (unsigned long long)(c->limits.dial_ns / WB_NS_PER_MS),
			d->n > 1 ? ": " : "", d->n > 1 ? d->failed : "");
	} else if (d->n > 1) {
		wb_err_set(&err, d->last_rc, "%s: none of its addresses can be reached: %s",
			c->peer, d->failed);
	} else if (d->last_rc == -ECONNREFUSED) {
		wb_err_set(&err, d->last_rc,
			"%s: connection refused: nobody listens there (not started yet, or another "
			"port)",
			c->peer);
	} else {
		wb_err_set(&err, d->last_rc, "%s: %s", c->peer, wb_strerror(d->last_rc));
	}
	wb__chan_end(c, &err);
}

/* Begin with the next address, if there is one.  Attempts under way go on. */
static void try_next(struct wb__dial *d)
{
	uint64_t now = wb_now_ns(&wb_clock_real), wait;

	while (d->next && d->n < WB_DIAL_ADDRS_MAX) {
		const struct addrinfo *ai = d->next;
		struct attempt *t = &d->attempt[d->n++];
		int rc;

		*t = (struct attempt){.d = d, .fd = -1};
		d->next = ai->ai_next;
		rc = start_connect(t, ai);
		if (!rc)
			break;
		note_failure(d, ai, rc);
	}
	if (!n_under_way(d) || now >= d->until_ns) {
		give_up(d);
		return;
	}
	wait = d->until_ns - now;
	if (d->next && d->n < WB_DIAL_ADDRS_MAX)
		wait = WB_MIN(wait, WB_DIAL_STAGGER_NS);
	wb_timer_start(d->timer, wait, 0);
}

static void timer_fired(void *cookie)
{
	try_next(cookie);
}

static void begin(struct wb__dial *d)
{
	d->next = d->list;
	d->until_ns = wb_now_ns(&wb_clock_real) + d->chan->limits.dial_ns;
	try_next(d);
}

static void looked_up(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
	struct wb__dial *d = wb_container_of(req, struct wb__dial, req);
	struct wb_err err = {0};

	d->is_looking_up = false;
	d->list = list;
	if (!d->chan) {
		dial_free(d);
		return;
	}
	if (!status) {
		begin(d);
		return;
	}
	wb_err_set(&err, -EHOSTUNREACH, "%s: the name %s is not known: %s", d->chan->peer, d->host,
		uv_strerror(status));
	wb__chan_end(d->chan, &err);
}

static int look_up(struct wb__dial *d, struct wb_loop *loop)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	int rc = uv_getaddrinfo(wb_loop_uv(loop), &d->req, looked_up, d->host, d->port, &hints);

	d->is_looking_up = rc == 0;
	return rc == UV_ENOMEM ? -ENOMEM : rc < 0 ? -EINVAL : 0;
}

/* Make an addrinfo with its address behind it.  So there is one kind of list to walk, wherever the
 * addresses come from. */
static struct addrinfo *make_node(const char *addr, uint16_t port)
{
	struct {
		struct addrinfo ai;
		struct sockaddr_storage sa;
	} *node = wb_zalloc(1, sizeof(*node));
	struct sockaddr_in *s4;
	struct sockaddr_in6 *s6;

	if (!node)
		return NULL;
	node->ai.ai_addr = (struct sockaddr *)&node->sa;
	s4 = (struct sockaddr_in *)&node->sa;
	s6 = (struct sockaddr_in6 *)&node->sa;
	if (inet_pton(AF_INET, addr, &s4->sin_addr) == 1) {
		node->ai.ai_family = s4->sin_family = AF_INET;
		node->ai.ai_addrlen = sizeof(*s4);
		s4->sin_port = htons(port);
	} else if (inet_pton(AF_INET6, addr, &s6->sin6_addr) == 1) {
		node->ai.ai_family = s6->sin6_family = AF_INET6;
		node->ai.ai_addrlen = sizeof(*s6);
		s6->sin6_port = htons(port);
	}
	return &node->ai; /* ai_addrlen 0: not an address */
}

static int make_list(const struct wb_dial_to *to, struct addrinfo **out)
{
	struct addrinfo *list = NULL, **at = &list;
	int rc = 0;

	for (size_t i = 0; i < to->n && rc == 0; i++) {
		*at = make_node(to->addr[i], to->port);
		rc = !*at ? -ENOMEM : (*at)->ai_addrlen ? 0 : -EINVAL;
		if (*at)
			at = &(*at)->ai_next;
	}
	if (rc < 0)
		free_list(list, true);
	else
		*out = list;
	return rc;
}

/* @list NULL: the first address of @to is a name, which is looked up.  Else @list is taken on
 * success. */
static int dial(struct wb_loop *loop, struct wb_tls *tls, const struct wb_dial_to *to,
	struct addrinfo *list, const struct wb_chan_limits *limits, const struct wb_chan_cb *cb,
	struct wb_chan **out)
{
	const char *host = to->addr[0];
	char peer[WB__PEER_MAX + 300];
	struct wb__tls_chan *c;
	struct wb__dial *d;
	int rc;

	if (!to->port || !*host || strlen(host) >= sizeof(d->host) || wb__tls_is_server(tls))
		return -EINVAL;
	snprintf(peer, sizeof(peer), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, to->port);
	d = wb_zalloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	rc = wb__chan_new(loop, tls, peer, limits, &c);
	if (rc < 0) {
		wb_free(d);
		return rc;
	}
	d->chan = c;
	d->last_rc = -EADDRNOTAVAIL;
	if (!c->limits.dial_ns)
		c->limits.dial_ns = DIAL_NS_DEFAULT;
	c->limits.dial_ns = WB_MIN(c->limits.dial_ns, c->limits.connect_ns);
	strcpy(d->host, host);
	snprintf(d->port, sizeof(d->port), "%u", to->port);
	rc = wb_timer_create(loop, timer_fired, d, &d->timer);
	if (rc == 0 && !list)
		rc = look_up(d, loop);
	if (rc < 0) {
		wb_timer_destroy(d->timer);
		wb_timer_destroy(c->timer);
		wb_tls_put(tls);
		wb_free(c);
		wb_free(d);
		return rc;
	}
	c->dial = d;
	c->host = d->host;
	c->base.cb = *cb;
	*out = &c->base;
	if (list) { /* if this fails at once, on_closed still comes from the loop */
		d->list = list;
		d->is_own = true;
		begin(d);
	}
	return 0;
}

int wb_tls_connect(struct wb_loop *loop, struct wb_tls *tls, const char *host, uint16_t port,
	const struct wb_chan_limits *limits, const struct wb_chan_cb *cb, struct wb_chan **out)
{
	return dial(loop, tls, &(struct wb_dial_to){&host, 1, port}, NULL, limits, cb, out);
}

int wb_tls_connect_any(struct wb_loop *loop, struct wb_tls *tls, const struct wb_dial_to *to,
	const struct wb_chan_limits *limits, const struct wb_chan_cb *cb, struct wb_chan **out)
{
	struct addrinfo *list = NULL;
	int rc;

	if (!to->n || to->n > WB_DIAL_ADDRS_MAX)
		return -EINVAL;
	rc = make_list(to, &list);
	if (rc < 0)
		return rc;
	rc = dial(loop, tls, to, list, limits, cb, out);
	if (rc < 0)
		free_list(list, true);
	return rc;
}
