/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listen.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TLS_HANDSHAKE 0x16 /* first byte of every TLS connection */
#define BACKLOG 4096 /* as far as the system goes: agents of a plan dial at once */
#define LINGER_NS (2 * WB_NS_PER_S) /* whoever wants something has said more by then */

/* A connection whose kind is not known yet, or whose handshake is not done. */
struct pending {
	struct pending *next, **prev;
	struct wb_listener *l;
	struct wb_watch *watch;
	struct wb_timer *timer;
	struct wb_chan *chan; /* in its handshake */
	int fd; /* -1 once handed on */
	uint64_t since_ns;
	char peer[WB__PEER_MAX];
};

struct wb_listener {
	struct wb_loop *loop;
	struct wb_listen_opts o;
	struct wb_listen_cb cb;
	struct wb_watch *watch;
	struct wb_timer *pause;
	struct pending *pending, **pending_tail; /* oldest first */
	uint32_t n_pending, n_chan;
	int fd;
	uint16_t port;
	bool is_closed; /* freed when the last channel is gone */
};

void wb__addr_text(const struct sockaddr *sa, char *out, size_t cap)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)(const void *)sa;
	const struct sockaddr_in *s4 = (const struct sockaddr_in *)(const void *)sa;
	char host[INET6_ADDRSTRLEN] = "?";

	if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&s6->sin6_addr)) {
		inet_ntop(AF_INET, s6->sin6_addr.s6_addr + 12, host, sizeof(host));
		snprintf(out, cap, "%s:%u", host, ntohs(s6->sin6_port));
	} else if (sa->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &s6->sin6_addr, host, sizeof(host));
		snprintf(out, cap, "[%s]:%u", host, ntohs(s6->sin6_port));
	} else {
		inet_ntop(AF_INET, &s4->sin_addr, host, sizeof(host));
		snprintf(out, cap, "%s:%u", host, ntohs(s4->sin_port));
	}
}

bool wb__accept_pause(int e)
{
	return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM;
}

/* ---- pending connections --------------------------------------------------------------------- */

static void pending_free(struct pending *p)
{
	*p->prev = p->next;
	*(p->next ? &p->next->prev : &p->l->pending_tail) = p->prev;
	p->l->n_pending--;
	wb_watch_destroy(p->watch);
	wb_timer_destroy(p->timer);
	if (p->fd >= 0)
		close(p->fd);
	wb_free(p);
}

static void listener_free_if_idle(struct wb_listener *l)
{
	if (!l->is_closed || l->n_chan)
		return;
	wb_tls_put(l->o.tls);
	wb_free(l);
}

static void refuse(struct pending *p, const struct wb_err *why)
{
	if (p->l->cb.on_refused)
		p->l->cb.on_refused(p->l->cb.cookie, p->peer, why);
	pending_free(p);
}

static void chan_ready(void *cookie, struct wb_chan *ch)
{
	struct pending *p = cookie;
	struct wb_listener *l = p->l;

	pending_free(p);
	l->n_chan++;
	l->cb.on_chan(l->cb.cookie, ch);
}

static void chan_failed(
	void *cookie, struct wb_chan *ch, const char *peer, const struct wb_err *why)
{
	(void)ch;
	(void)peer;
	refuse(cookie, why);
}

static void chan_gone(void *cookie)
{
	struct wb_listener *l = cookie;

	l->n_chan--;
	listener_free_if_idle(l);
}

static void silent(void *cookie)
{
	struct pending *p = cookie;
	struct wb_err err = {0};

	wb_err_set(&err, -ETIMEDOUT, "%s connected and said nothing", p->peer);
	refuse(p, &err);
}

static void begin_tls(struct pending *p)
{
	const struct wb__chan_owner owner = {p, p->l, chan_ready, chan_failed, chan_gone};
	struct wb_err err = {0};
	int rc;

	wb_watch_destroy(p->watch);
	p->watch = NULL;
	wb_timer_destroy(p->timer);
	p->timer = NULL;
	rc = wb__tls_accept(
		p->l->loop, p->l->o.tls, p->fd, p->peer, &p->l->o.limits, &owner, &p->chan);
	if (rc < 0) {
		wb_err_set(&err, rc, "%s: %s", p->peer, wb_strerror(rc));
		refuse(p, &err);
		return;
	}
	p->fd = -1;
}

static void hand_out_raw(struct pending *p)
{
	struct wb_listener *l = p->l;
	struct wb_err err = {0};
	char peer[WB__PEER_MAX];
	int fd = p->fd;

	if (!l->cb.on_raw) {
		wb_err_set(&err, -EPROTO, "%s does not speak TLS", p->peer);
		refuse(p, &err);
		return;
	}
	strcpy(peer, p->peer);
	p->fd = -1;
	pending_free(p);
	l->cb.on_raw(l->cb.cookie, fd, peer);
}

static void first_byte(void *cookie, int events)
{
	struct pending *p = cookie;
	struct wb_err err = {0};
	uint8_t byte;
	ssize_t n = recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		wb_err_set(
			&err, n ? -errno : -ECONNRESET, "%s left before it said anything", p->peer);
		refuse(p, &err);
		return;
	}
	if (byte == TLS_HANDSHAKE)
		begin_tls(p);
	else {
		/* The watcher must be gone before another owner closes the descriptor. */
		wb_watch_destroy(p->watch);
		p->watch = NULL;
		hand_out_raw(p);
	}
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void turn_away(struct wb_listener *l, int fd, const char *peer, int rc, const char *why)
{
	struct wb_err err = {0};

	wb_err_set(&err, rc, "%s turned away: %s", peer, why);
	close(fd);
	if (l->cb.on_refused)
		l->cb.on_refused(l->cb.cookie, peer, &err);
}

static void drop(struct pending *p)
{
	if (p->chan)
		wb__tls_abandon(p->chan);
	pending_free(p);
}

/* When all places are taken, who has held one for long without getting on makes room; not who has
 * just come: of many that come at once those before would end those that are nearly through. */
static bool make_room(struct wb_listener *l)
{
	struct pending *p = l->pending;

	if (l->n_pending + l->n_chan >= l->o.conns_max)
		return false;
	if (l->n_pending < l->o.pending_max)
		return true;
	if (wb_now_ns(&wb_clock_real) - p->since_ns < LINGER_NS)
		return false;
	drop(p);
	return true;
}

static void take_connection(struct wb_listener *l, int fd, const char *peer)
{
	uint64_t ns = l->o.limits.connect_ns ? l->o.limits.connect_ns : 10 * WB_NS_PER_S;
	struct pending *p;

	if (!make_room(l)) {
		turn_away(l, fd, peer, -EUSERS, "too many connections");
		return;
	}
	p = wb_zalloc(1, sizeof(*p));
	if (!p) {
		turn_away(l, fd, peer, -ENOMEM, "out of memory");
		return;
	}
	p->l = l;
	p->fd = fd;
	strcpy(p->peer, peer);
	p->since_ns = wb_now_ns(&wb_clock_real);
	p->prev = l->pending_tail;
	*p->prev = p;
	l->pending_tail = &p->next;
	l->n_pending++;
	if (wb_timer_create(l->loop, silent, p, &p->timer) < 0 ||
		wb_watch_create(l->loop, fd, WB_READABLE, first_byte, p, &p->watch) < 0) {
		pending_free(p);
		return;
	}
	wb_timer_start(p->timer, ns, 0);
}

static void pause_over(void *cookie)
{
	struct wb_listener *l = cookie;

	wb_watch_set(l->watch, WB_READABLE);
}

static void listener_fired(void *cookie, int events)
{
	struct wb_listener *l = cookie;

	(void)events;
	for (int i = 0; i < 64 && !l->is_closed; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t len = sizeof(sa);
		char peer[WB__PEER_MAX];
		int fd = accept4(l->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			wb__addr_text((const struct sockaddr *)&sa, peer, sizeof(peer));
			take_connection(l, fd, peer);
			continue;
		}
		if (wb__accept_pause(errno)) {
			wb_watch_set(l->watch, 0);
			wb_timer_start(l->pause, WB__ACCEPT_PAUSE_NS, 0);
		}
		if (errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

/* ---- opening --------------------------------------------------------------------------------- */

int wb__bind_refused(const char *what, const char *host, unsigned port, int rc, struct wb_err *err)
{
	const char *why = wb_strerror(rc);

	if (rc == -EADDRINUSE)
		why = "another process has the port: stop it or choose another";
	else if (rc == -EADDRNOTAVAIL)
		why = "this machine has no such address";
	else if (rc == -EACCES)
		why = "this user may not have that port: choose one from 1024 on";
	return wb_err_set(err, rc, "%s on %s:%u: %s", what, host && *host ? host : "*", port, why);
}

static int bind_one(struct wb_listener *l, const struct addrinfo *ai)
{
	const int on = 1, off = 0;
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int rc;

	l->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0)
		return -errno;
	setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ai->ai_family == AF_INET6)
		setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(l->fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(l->fd, BACKLOG) < 0 ||
		getsockname(l->fd, (struct sockaddr *)&sa, &len) < 0) {
		rc = -errno;
		close(l->fd);
		l->fd = -1;
		return rc;
	}
	l->port = ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
						 : ((struct sockaddr_in *)&sa)->sin_port);
	return 0;
}

static int bind_any(struct wb_listener *l, struct wb_err *err)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	const char *host = l->o.host && *l->o.host ? l->o.host : NULL;
	struct addrinfo *list, *ai;
	char port[8];
	int rc;

	snprintf(port, sizeof(port), "%u", l->o.port);
	rc = getaddrinfo(host, port, &hints, &list);
	if (rc)
		return wb_err_set(err, -EADDRNOTAVAIL, "listen on %s:%s: %s", host ? host : "*",
			port, gai_strerror(rc));
	/* With no host, a socket for both families where there is one. */
	rc = -EADDRNOTAVAIL;
	for (ai = list; ai && !host && rc < 0; ai = ai->ai_next)
		if (ai->ai_family == AF_INET6)
			rc = bind_one(l, ai);
	for (ai = list; ai && rc < 0 && rc != -EADDRINUSE; ai = ai->ai_next)
		rc = bind_one(l, ai);
	freeaddrinfo(list);
	return rc < 0 ? wb__bind_refused("listen", host, l->o.port, rc, err) : 0;
}

int wb_listen(struct wb_loop *loop, const struct wb_listen_opts *o, const struct wb_listen_cb *cb,
	struct wb_listener **out, struct wb_err *err)
{
	struct wb_listener *l;
	int rc;

	if (!o->tls || !wb__tls_is_server(o->tls) || !o->limits.framer || !cb->on_chan)
		return wb_err_set(err, -EINVAL, "listen: options are missing");
	l = wb_zalloc(1, sizeof(*l));
	if (!l)
		return wb_err_set(err, -ENOMEM, "listen: out of memory");
	l->loop = loop;
	l->o = *o;
	l->cb = *cb;
	l->fd = -1;
	l->pending_tail = &l->pending;
	l->o.conns_max = o->conns_max ? o->conns_max : 4096;
	l->o.pending_max = o->pending_max ? o->pending_max : 256;
	wb__tls_ref(o->tls);
	rc = bind_any(l, err);
	if (!rc && (wb_timer_create(loop, pause_over, l, &l->pause) < 0 ||
			   wb_watch_create(loop, l->fd, WB_READABLE, listener_fired, l, &l->watch) <
				   0))
		rc = wb_err_set(err, -ENOMEM, "listen: out of memory");
	l->o.host = NULL;
	if (rc < 0) {
		wb_listener_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

uint16_t wb_listener_port(const struct wb_listener *l)
{
	return l->port;
}

void wb_listener_close(struct wb_listener *l)
{
	if (!l)
		return;
	l->is_closed = true;
	wb_watch_destroy(l->watch);
	wb_timer_destroy(l->pause);
	if (l->fd >= 0)
		close(l->fd);
	while (l->pending)
		drop(l->pending);
	listener_free_if_idle(l);
}
