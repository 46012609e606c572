/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listen.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TLS_HANDSHAKE 0x16 /* first byte of every TLS connection */
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
	rc = wb__tcp_bind("listen", o->host, o->port, &l->fd, &l->port, err);
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
