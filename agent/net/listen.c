/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listen.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/internal.h"
#include "net/pace.h"
#include "net/places.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TLS_HANDSHAKE 0x16 /* first byte of every TLS connection */
/* An honest peer has sent something by SILENT_NS, and has made progress by LINGER_NS. */
#define SILENT_NS (500 * WB_NS_PER_MS)
#define LINGER_NS (2 * WB_NS_PER_S)
#define DEADLINE_NS (5 * WB_NS_PER_S)
#define CONNS_MAX 4096
#define PENDING_MAX 256
#define SOURCE_MAX 64
/* Handshakes of one address: a processor does some thousand a second. */
#define PACE_BURST 64
#define PACE_A_SECOND 32
#define CLAIMS_MAX 1024
#define CLAIMS_SOURCE_MAX 256

enum state { WAITS, QUEUED, HANDSHAKE, SILENT, CLAIMS, KNOWN };

/* A connection, and how far it has come.  Until it is known who the peer is, the connection holds a
 * place among strangers, or, while the peer's claim is checked, among claims. */
struct conn {
	struct conn *next, **prev; /* list of those without an open channel */
	struct wb_listener *l;
	struct wb__place place;
	struct wb_watch *watch;
	struct wb_timer *timer;
	struct wb_chan *chan; /* from its handshake on */
	enum state state;
	int fd; /* -1 once handed on */
	char peer[WB__PEER_MAX];
};

struct wb_listener {
	struct wb_loop *loop;
	struct wb_listen_opts o;
	struct wb_listen_cb cb;
	struct wb_watch *watch;
	struct wb_timer *pause;
	struct wb__places strangers, claims;
	struct wb__pace pace;
	struct conn *unopened;
	uint32_t n_unopened, n_chan;
	int fd;
	uint16_t port;
	bool is_closed; /* freed when the last channel is gone */
};

/* ---- connections ----------------------------------------------------------------------------- */

static void leave(struct conn *c)
{
	wb__place_leave(c->state == CLAIMS ? &c->l->claims : &c->l->strangers, &c->place);
}

static void opened_or_gone(struct conn *c)
{
	if (!c->prev)
		return;
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->prev = NULL;
	c->l->n_unopened--;
}

static void free_conn(struct conn *c)
{
	leave(c);
	opened_or_gone(c);
	wb_watch_destroy(c->watch);
	wb_timer_destroy(c->timer);
	if (c->fd >= 0)
		close(c->fd);
	wb_free(c);
}

static void listener_free_if_idle(struct wb_listener *l)
{
	if (!l->is_closed || l->n_chan)
		return;
	wb_tls_put(l->o.tls);
	wb_free(l);
}

static void refuse(struct conn *c, const struct wb_err *why)
{
	if (c->l->cb.on_refused)
		c->l->cb.on_refused(c->l->cb.cookie, c->peer, why);
	free_conn(c);
}

static void chan_ready(void *cookie, struct wb_chan *ch)
{
	struct conn *c = cookie;

	opened_or_gone(c);
	c->l->n_chan++;
	if (c->l->o.proves_later) {
		c->state = SILENT;
		c->place.since_ns = wb_now_ns(&wb_clock_real);
	} else {
		leave(c);
		c->state = KNOWN;
	}
	c->l->cb.on_chan(c->l->cb.cookie, ch);
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
	struct conn *c = cookie;
	struct wb_listener *l = c->l;

	free_conn(c);
	l->n_chan--;
	listener_free_if_idle(l);
}

/* End the connection that has this place: another needs the place, or the listener closes. */
static void put_out(struct wb__place *p)
{
	struct conn *c = wb_container_of(p, struct conn, place);
	struct wb_err err = {0};

	if (c->state <= HANDSHAKE) {
		if (c->chan)
			wb__tls_abandon(c->chan);
		free_conn(c);
		return;
	}
	leave(c);
	c->state = KNOWN; /* it has no place any more */
	wb_err_set(&err, -EUSERS, "%s made room for others: it has not proved who it is", c->peer);
	wb__tls_end(c->chan, &err);
}

static int chan_trust(void *cookie, enum wb_chan_trust how_far)
{
	struct conn *c = cookie;
	struct wb_listener *l = c->l;
	struct wb__place *gone;
	uint64_t now = wb_now_ns(&wb_clock_real);

	if (c->state == SILENT && how_far == WB_CHAN_CLAIMS) {
		if (!wb__places_room(&l->claims, &c->place.source, now, &gone))
			return -EUSERS;
		leave(c);
		if (gone)
			put_out(gone);
		c->state = CLAIMS;
		c->place.since_ns = now;
		c->place.patience_ns = UINT64_MAX; /* the peer cannot hurry the check */
		wb__place_take(&l->claims, &c->place);
	} else if (c->state != KNOWN && how_far == WB_CHAN_PROVED) {
		leave(c);
		c->state = KNOWN;
	}
	return 0;
}

/* The deadline is for waiting and handshake together. */
static void begin_tls(struct conn *c)
{
	const struct wb__chan_owner owner = {c, c, chan_ready, chan_failed, chan_gone, chan_trust};
	uint64_t waited = wb_now_ns(&wb_clock_real) - c->place.since_ns;
	struct wb_err err = {0};
	int rc;

	wb_watch_destroy(c->watch);
	c->watch = NULL;
	wb_timer_destroy(c->timer);
	c->timer = NULL;
	c->state = HANDSHAKE;
	c->place.patience_ns = waited + LINGER_NS; /* LINGER_NS from now */
	rc = wb__tls_accept(
		c->l->loop, c->l->o.tls, c->fd, c->peer, &c->l->o.limits, waited, &owner, &c->chan);
	if (rc < 0) {
		wb_err_set(&err, rc, "%s: %s", c->peer, wb_strerror(rc));
		refuse(c, &err);
		return;
	}
	c->fd = -1;
}

/* An address that has begun many handshakes waits for its turn.  If its turn is after the deadline,
 * the connection is refused. */
static void take_turn(struct conn *c)
{
	uint64_t now = wb_now_ns(&wb_clock_real), at;
	struct wb_err err = {0};

	if (!wb__pace_take(&c->l->pace, &c->place.source, now,
		    c->place.since_ns + c->l->o.limits.connect_ns, &at)) {
		wb_err_set(&err, -EUSERS,
			"%s turned away: more than %d handshakes a second of its address, which "
			"agents behind one gateway share: they come in at that pace",
			c->peer, PACE_A_SECOND);
		refuse(c, &err);
		return;
	}
	if (at == now) {
		begin_tls(c);
		return;
	}
	c->state = QUEUED;
	c->place.patience_ns = at - c->place.since_ns + LINGER_NS;
	wb_watch_set(c->watch, 0);
	wb_timer_start(c->timer, at - now, 0);
}

static void its_time(void *cookie)
{
	struct conn *c = cookie;
	struct wb_err err = {0};

	if (c->state == QUEUED) {
		begin_tls(c);
		return;
	}
	wb_err_set(&err, -ETIMEDOUT, "%s connected and said nothing", c->peer);
	refuse(c, &err);
}

static void hand_out_raw(struct conn *c)
{
	struct wb_listener *l = c->l;
	struct wb_err err = {0};
	char peer[WB__PEER_MAX];
	int fd = c->fd;

	if (!l->cb.on_raw) {
		wb_err_set(&err, -EPROTO, "%s does not speak TLS", c->peer);
		refuse(c, &err);
		return;
	}
	strcpy(peer, c->peer);
	c->fd = -1;
	free_conn(c);
	l->cb.on_raw(l->cb.cookie, fd, peer);
}

static void first_byte(void *cookie, int events)
{
	struct conn *p = cookie;
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
		take_turn(p);
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

static bool make_room(struct wb_listener *l, const struct wb__source *source)
{
	struct wb__place *gone;

	if (l->n_unopened + l->n_chan >= l->o.conns_max ||
		!wb__places_room(&l->strangers, source, wb_now_ns(&wb_clock_real), &gone))
		return false;
	if (gone)
		put_out(gone);
	return true;
}

static void take_connection(
	struct wb_listener *l, int fd, const struct wb__source *source, const char *peer)
{
	struct conn *c;

	if (!make_room(l, source)) {
		turn_away(l, fd, peer, -EUSERS, "too many connections");
		return;
	}
	c = wb_zalloc(1, sizeof(*c));
	if (!c) {
		turn_away(l, fd, peer, -ENOMEM, "out of memory");
		return;
	}
	c->l = l;
	c->fd = fd;
	strcpy(c->peer, peer);
	c->place = (struct wb__place){
		.source = *source, .since_ns = wb_now_ns(&wb_clock_real), .patience_ns = SILENT_NS};
	wb__place_take(&l->strangers, &c->place);
	c->next = l->unopened;
	c->prev = &l->unopened;
	if (c->next)
		c->next->prev = &c->next;
	l->unopened = c;
	l->n_unopened++;
	if (wb_timer_create(l->loop, its_time, c, &c->timer) < 0 ||
		wb_watch_create(l->loop, fd, WB_READABLE, first_byte, c, &c->watch) < 0) {
		free_conn(c);
		return;
	}
	wb_timer_start(c->timer, l->o.limits.connect_ns, 0);
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
		struct wb__source source;
		char peer[WB__PEER_MAX];
		int fd = accept4(l->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			wb__addr_text((const struct sockaddr *)&sa, peer, sizeof(peer));
			source = wb__source_of((const struct sockaddr *)&sa);
			take_connection(l, fd, &source, peer);
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
	l->o.conns_max = o->conns_max ? o->conns_max : CONNS_MAX;
	l->o.limits.connect_ns = o->limits.connect_ns ? o->limits.connect_ns : DEADLINE_NS;
	wb__places_init(&l->strangers, o->pending_max ? o->pending_max : PENDING_MAX,
		o->source_max ? o->source_max : SOURCE_MAX);
	wb__places_init(&l->claims, CLAIMS_MAX, CLAIMS_SOURCE_MAX);
	wb__pace_init(&l->pace, PACE_BURST, PACE_A_SECOND);
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
	while (l->unopened)
		put_out(&l->unopened->place);
	listener_free_if_idle(l);
}
