/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls_chan.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <string.h>
#include <unistd.h>

#define QUEUE_BYTES_DEFAULT (64u << 20)
#define CONNECT_NS_DEFAULT (10 * WB_NS_PER_S)
#define LINGER_NS_DEFAULT (2 * WB_NS_PER_S)
#define READ_BYTES_A_ROUND (256u << 10) /* then others have their turn */
#define WRITE_BYTES_A_ROUND (512u << 10)
#define STUCK_BYTES (64u << 10)

static const struct wb_chan_ops tls_ops;

static struct wb__tls_chan *of(struct wb_chan *ch)
{
	assert(ch->ops == &tls_ops);
	return wb_container_of(ch, struct wb__tls_chan, base);
}

/* The channel is the first member. */
static const struct wb__tls_chan *of_const(const struct wb_chan *ch)
{
	return (const struct wb__tls_chan *)(const void *)ch;
}

/* ---- end ------------------------------------------------------------------------------------- */

static void tell_failed_or_closed(struct wb__tls_chan *c)
{
	const struct wb__chan_owner *o = &c->owner;

	if (c->is_abandoned)
		return;
	if (o->on_failed && !c->was_open)
		o->on_failed(o->cookie, &c->base, c->peer, &c->why);
	else if (c->base.cb.on_closed)
		c->base.cb.on_closed(c->base.cb.cookie, &c->base, &c->why);
	if (o->on_gone && c->was_open)
		o->on_gone(o->gone_cookie);
}

static void chan_ended(void *cookie)
{
	struct wb__tls_chan *c = cookie;

	tell_failed_or_closed(c);
	wb_free(c);
}

/* Frames are wiped when they are freed: HELLO has a token, PLAN the key of an epoch. */
static void drop_block(struct wb__tls_chan *c)
{
	struct wb__block *b = c->head;

	struct wb_lent rest = b->rest;

	c->head = b->next;
	if (!c->head)
		c->tail = &c->head;
	c->queued_bytes -= b->bytes;
	wb_free_wiped(b);
	if (rest.bytes)
		rest.put(rest.cookie);
}

void wb__chan_end(struct wb__tls_chan *c, const struct wb_err *why)
{
	if (c->state == WB__ENDED)
		return;
	/* The reason for a close that lingers was given when it began. */
	if (why && c->state != WB__CLOSING)
		c->why = *why;
	c->state = WB__ENDED;
	wb__dial_stop(c);
	wb_watch_destroy(c->watch);
	wb_timer_destroy(c->timer);
	SSL_free(c->ssl);
	if (c->fd >= 0)
		close(c->fd);
	while (c->head)
		drop_block(c);
	wb_free_wiped(c->frame);
	wb_tls_put(c->tls);
	c->watch = NULL;
	c->timer = NULL;
	c->ssl = NULL;
	c->frame = NULL;
	c->tls = NULL;
	c->fd = -1;
	if (c->is_deferred)
		return; /* resume_reading() finds the end and does the rest */
	c->later.fn = chan_ended;
	c->later.cookie = c;
	wb__defer(c->loop, &c->later);
}

static void chan_fail_ssl(struct wb__tls_chan *c, int ret)
{
	int sys = errno, e = SSL_get_error(c->ssl, ret);
	struct wb_err err = {0};

	wb__tls_sentence(c->ssl, &c->seen, c->peer, e, sys, &err);
	wb__chan_end(c, &err);
}

/* ---- progress of the peer -------------------------------------------------------------------- */

static void look_after(struct wb__tls_chan *c)
{
	if (!c->limits.stuck_ns || c->is_looked_after || c->state != WB__OPEN ||
		(!c->head && !c->have))
		return;
	c->is_looked_after = true;
	wb_timer_start(c->timer, c->limits.stuck_ns, 0);
}

/* The timer checks progress rarely, so reading and writing only have to count bytes. */
static void look(struct wb__tls_chan *c)
{
	unsigned long long ms = c->limits.stuck_ns / WB_NS_PER_MS;
	struct wb_err err = {0};

	if (c->have && c->came < STUCK_BYTES && !c->is_put_off)
		wb_err_set(&err, -ETIMEDOUT,
			"%s has begun a frame of %zu bytes and sent %zu of them in %llu ms",
			c->peer, c->frame ? c->frame_bytes : (size_t)WB_FRAME_HEAD_BYTES, c->came,
			ms);
	else if (c->head && c->went < STUCK_BYTES)
		wb_err_set(&err, -ETIMEDOUT,
			"%s has %zu bytes to read and read %zu of them in %llu ms", c->peer,
			c->queued_bytes, c->went, ms);
	c->is_looked_after = false;
	c->came = c->went = 0;
	if (!err.code)
		look_after(c);
	else if (c->base.cb.on_stuck)
		c->base.cb.on_stuck(c->base.cb.cookie, &c->base, &err);
	else
		wb__chan_end(c, &err);
}

static void timer_fired(void *cookie)
{
	struct wb__tls_chan *c = cookie;
	struct wb_err err = {0};

	if (c->state == WB__OPEN) {
		look(c);
		return;
	}
	if (c->state != WB__CLOSING)
		wb_err_set(&err, -ETIMEDOUT, "%s: no answer within %llu ms (%s)", c->peer,
			(unsigned long long)(c->limits.connect_ns / WB_NS_PER_MS),
			c->state == WB__HANDSHAKE ? "TLS handshake" : "connecting");
	wb__chan_end(c, &err);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* WB_READABLE if we are to read now.  A channel that closes reads nothing before its goodbye; if it
 * were watched for input, it would be called for the same bytes again and again. */
static int readable(const struct wb__tls_chan *c)
{
	bool reads = c->state == WB__CLOSING ? c->said_goodbye : !c->is_put_off;

	return reads ? WB_READABLE : 0;
}

static void want(struct wb__tls_chan *c, int events)
{
	if (c->events != events)
		wb_watch_set(c->watch, events);
	c->events = events;
}

/* Nothing more is to be sent: send close_notify, then read until the peer has closed, since closing
 * a socket with unread bytes would reset it and could lose what was sent last. */
static void say_goodbye(struct wb__tls_chan *c)
{
	c->said_goodbye = true;
	ERR_clear_error();
	SSL_shutdown(c->ssl);
	ERR_clear_error();
	shutdown(c->fd, SHUT_WR);
	want(c, WB_READABLE);
}

/* Write what is queued, as far as the socket takes it, and at most a round's share. */
static void flush(struct wb__tls_chan *c)
{
	size_t budget = WRITE_BYTES_A_ROUND;

	while (c->head) {
		struct wb__block *b = c->head;
		size_t own = b->bytes - b->rest.bytes;
		bool is_own = b->at < own;
		const uint8_t *from =
			is_own ? b->data + b->at : (const uint8_t *)b->rest.data + (b->at - own);
		int ret;

		if (!budget) {
			want(c, readable(c) | WB_WRITABLE);
			return;
		}
		ERR_clear_error();
		errno = 0;
		ret = SSL_write(
			c->ssl, from, (int)WB_MIN((is_own ? own : b->bytes) - b->at, budget));
		if (ret <= 0) {
			int e = SSL_get_error(c->ssl, ret);

			if (e == SSL_ERROR_WANT_WRITE)
				want(c, readable(c) | WB_WRITABLE);
			else if (e != SSL_ERROR_WANT_READ)
				chan_fail_ssl(c, ret);
			return;
		}
		b->at += (size_t)ret;
		c->went += (size_t)ret;
		budget -= WB_MIN(budget, (size_t)ret);
		if (b->at == b->bytes)
			drop_block(c);
	}
	if (c->state == WB__CLOSING && !c->said_goodbye)
		say_goodbye(c);
	else
		want(c, readable(c));
}

static int chan_send_lent(
	struct wb_chan *ch, const void *head, size_t own, const struct wb_lent *rest)
{
	struct wb__tls_chan *c = of(ch);
	size_t bytes = own + (rest ? rest->bytes : 0);
	struct wb__block *b;

	if (c->state != WB__OPEN)
		return -ENOTCONN;
	if (!bytes || bytes > c->limits.queue_bytes_max)
		return -EMSGSIZE;
	if (c->queued_bytes + bytes > c->limits.queue_bytes_max)
		return -EAGAIN;
	b = wb_alloc(sizeof(*b) + own);
	if (!b)
		return -ENOMEM;
	*b = (struct wb__block){.bytes = bytes};
	if (rest)
		b->rest = *rest;
	if (own)
		memcpy(b->data, head, own);
	*c->tail = b;
	c->tail = &b->next;
	c->queued_bytes += bytes;
	if (c->head != b)
		return 0;
	flush(c);
	c->went = STUCK_BYTES; /* the time for what is left begins now */
	look_after(c);
	return 0;
}

static int chan_send(struct wb_chan *ch, const void *frame, size_t bytes)
{
	return chan_send_lent(ch, frame, bytes, NULL);
}

static void chan_close(struct wb_chan *ch)
{
	struct wb__tls_chan *c = of(ch);

	if (c->state == WB__ENDED || c->state == WB__CLOSING)
		return;
	if (c->state != WB__OPEN) {
		wb__chan_end(c, NULL);
		return;
	}
	c->state = WB__CLOSING;
	c->is_put_off = false;
	wb_timer_start(c->timer, c->limits.linger_ns, 0);
	flush(c);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Ask the owner whether to read the frame now.  Negative: the owner puts it off, or has closed the
 * channel. */
static int ask_owner(struct wb__tls_chan *c, size_t total)
{
	int rc = c->base.cb.on_head ? c->base.cb.on_head(c->base.cb.cookie, &c->base, total) : 0;

	c->is_put_off = rc == -EAGAIN && c->state == WB__OPEN;
	if (c->is_put_off)
		want(c, c->head ? WB_WRITABLE : 0);
	return rc;
}

/* A frame's header is complete: allocate the whole frame. */
static int begin_frame(struct wb__tls_chan *c)
{
	struct wb_err err = {0};
	size_t total = 0;
	int rc = c->limits.framer(c->limits.framer_cookie, c->frame_head, &total, &err);

	if (!rc && c->frame_max && total > c->frame_max)
		rc = wb_err_set(&err, -EMSGSIZE,
			"a frame of %zu bytes, and it has not shown yet who it is: at most %zu",
			total, c->frame_max);
	if (!rc && ask_owner(c, total) < 0)
		return -EAGAIN;
	if (!rc) {
		assert(total >= WB_FRAME_HEAD_BYTES);
		c->frame = wb_alloc(total);
		if (!c->frame)
			rc = wb_err_set(
				&err, -ENOMEM, "out of memory for a frame of %zu bytes", total);
	}
	if (rc < 0) {
		wb_err_wrap(&err, rc, "%s", c->peer);
		wb__chan_end(c, &err);
		return rc;
	}
	memcpy(c->frame, c->frame_head, WB_FRAME_HEAD_BYTES);
	c->frame_bytes = total;
	return 0;
}

static void give_frame(struct wb__tls_chan *c)
{
	uint8_t *frame = c->frame;

	c->frame = NULL;
	c->have = 0;
	if (c->base.cb.on_frame)
		c->base.cb.on_frame(c->base.cb.cookie, &c->base, frame, c->frame_bytes);
	wb_free_wiped(frame);
}

static void peer_ended(struct wb__tls_chan *c, int ret)
{
	struct wb_err err = {0};

	if (SSL_get_error(c->ssl, ret) != SSL_ERROR_ZERO_RETURN) {
		chan_fail_ssl(c, ret);
		return;
	}
	if (c->have)
		wb_err_set(&err, -EBADMSG, "%s closed in the middle of a frame", c->peer);
	else if (c->state == WB__OPEN) {
		/* The peer closed in order; what is still queued for it is lost. */
		SSL_shutdown(c->ssl);
		ERR_clear_error();
	}
	wb__chan_end(c, &err);
}

/* Read what has come, at most a round's share; false when the socket has no more. */
static bool read_some(struct wb__tls_chan *c, size_t *budget)
{
	uint8_t *to = c->frame ? c->frame : c->frame_head;
	size_t want_bytes = (c->frame ? c->frame_bytes : WB_FRAME_HEAD_BYTES) - c->have;
	int ret;

	ERR_clear_error();
	errno = 0;
	ret = SSL_read(c->ssl, to + c->have, (int)WB_MIN(want_bytes, 1u << 20));
	if (ret <= 0) {
		int e = SSL_get_error(c->ssl, ret);

		if (e == SSL_ERROR_WANT_WRITE)
			want(c, WB_READABLE | WB_WRITABLE);
		else if (e != SSL_ERROR_WANT_READ)
			peer_ended(c, ret);
		return false;
	}
	*budget -= WB_MIN(*budget, (size_t)ret);
	c->came = c->have ? c->came + (size_t)ret : STUCK_BYTES;
	c->have += (size_t)ret;
	look_after(c);
	if (!c->frame && c->have == WB_FRAME_HEAD_BYTES && begin_frame(c) < 0)
		return false;
	if (!c->frame || c->have < c->frame_bytes)
		return true;
	give_frame(c);
	/* If the socket has more, the loop tells us.  Another read, to find out that there is no
	 * more, would cost one system call for each frame. */
	return c->state == WB__OPEN && SSL_has_pending(c->ssl);
}

static void resume_reading(void *cookie);

static void read_later(struct wb__tls_chan *c)
{
	if (c->is_deferred)
		return;
	c->is_deferred = true;
	c->later.fn = resume_reading;
	c->later.cookie = c;
	wb__defer(c->loop, &c->later);
}

/* Begin a frame whose header came before and was put off, if there is one.  False: it is put off
 * again, or the channel has ended. */
static bool take_put_off(struct wb__tls_chan *c)
{
	if (c->frame || c->have < WB_FRAME_HEAD_BYTES)
		return true;
	if (begin_frame(c) < 0)
		return false;
	if (c->have == c->frame_bytes)
		give_frame(c);
	return c->state == WB__OPEN;
}

static void read_frames(struct wb__tls_chan *c)
{
	size_t budget = READ_BYTES_A_ROUND;

	if (!take_put_off(c))
		return;
	while (budget)
		if (!read_some(c, &budget))
			return;
	/* OpenSSL may hold bytes that the socket does not show any more. */
	read_later(c);
}

static void resume_reading(void *cookie)
{
	struct wb__tls_chan *c = cookie;

	c->is_deferred = false;
	if (c->state == WB__ENDED)
		chan_ended(c);
	else if (c->state == WB__OPEN && !c->is_put_off)
		read_frames(c);
}

static void chan_resume(struct wb_chan *ch)
{
	struct wb__tls_chan *c = of(ch);

	if (!c->is_put_off || c->state != WB__OPEN)
		return;
	c->is_put_off = false;
	c->came = STUCK_BYTES;
	want(c, WB_READABLE | (c->head ? WB_WRITABLE : 0));
	read_later(c);
}

/* After goodbye: drop what comes until the peer closes too. */
static void drain(struct wb__tls_chan *c)
{
	uint8_t buf[16384];
	ssize_t n = 1;

	for (int i = 0; i < 16 && n > 0; i++)
		n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		wb__chan_end(c, NULL);
}

/* ---- handshake ------------------------------------------------------------------------------- */

static void opened(struct wb__tls_chan *c)
{
	struct wb_err err = {0};

	if (wb__tls_check(c->ssl, &c->seen, c->peer, &err) < 0) {
		wb__chan_end(c, &err);
		return;
	}
	wb_timer_stop(c->timer);
	c->state = WB__OPEN;
	c->is_looked_after = false;
	c->was_open = true;
	want(c, WB_READABLE);
	if (c->owner.on_ready)
		c->owner.on_ready(c->owner.cookie, &c->base);
	else if (c->base.cb.on_open)
		c->base.cb.on_open(c->base.cb.cookie, &c->base);
	/* Frames may have come with the end of the handshake. */
	if (c->state == WB__OPEN)
		read_frames(c);
}

void wb__chan_handshake(struct wb__tls_chan *c)
{
	int ret, e;

	ERR_clear_error();
	errno = 0;
	ret = SSL_do_handshake(c->ssl);
	if (ret == 1) {
		opened(c);
		return;
	}
	e = SSL_get_error(c->ssl, ret);
	if (e == SSL_ERROR_WANT_READ)
		want(c, WB_READABLE);
	else if (e == SSL_ERROR_WANT_WRITE)
		want(c, WB_READABLE | WB_WRITABLE);
	else
		chan_fail_ssl(c, ret);
}

static void socket_fired(void *cookie, int events)
{
	struct wb__tls_chan *c = cookie;

	if (c->state == WB__HANDSHAKE) {
		wb__chan_handshake(c);
		return;
	}
	if (c->state == WB__OPEN && c->head && (events & WB_WRITABLE))
		flush(c);
	if (c->state == WB__OPEN && (events & WB_READABLE) && !c->is_put_off)
		read_frames(c);
	if (c->state == WB__OPEN && !c->head)
		want(c, readable(c));
	if (c->state == WB__OPEN && !c->head && (events & WB_WRITABLE) && c->base.cb.on_room)
		c->base.cb.on_room(c->base.cb.cookie, &c->base);
	if (c->state != WB__CLOSING)
		return;
	if (!c->said_goodbye && (events & WB_WRITABLE))
		flush(c);
	if (c->state == WB__CLOSING && c->said_goodbye)
		drain(c);
}

/* Send small frames without delay, and notice a dead peer in half a minute.  An option that the
 * kernel refuses stays as it was. */
static void tune(int fd)
{
	const struct {
		int level, name, value;
	} opt[] = {{IPPROTO_TCP, TCP_NODELAY, 1}, {SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, 15}, {IPPROTO_TCP, TCP_KEEPINTVL, 5},
		{IPPROTO_TCP, TCP_KEEPCNT, 3}};

	for (size_t i = 0; i < WB_ARRAY_SIZE(opt); i++)
		setsockopt(fd, opt[i].level, opt[i].name, &opt[i].value, sizeof(int));
}

int wb__chan_start(struct wb__tls_chan *c, int fd_take)
{
	int rc;

	tune(fd_take);
	c->ssl = wb__tls_ssl(c->tls, fd_take, c->host, &c->seen);
	if (!c->ssl) {
		ERR_clear_error();
		return -ENOMEM;
	}
	rc = wb_watch_create(c->loop, fd_take, WB_READABLE, socket_fired, c, &c->watch);
	if (rc < 0) {
		SSL_free(c->ssl);
		c->ssl = NULL;
		return rc;
	}
	c->events = WB_READABLE;
	c->fd = fd_take;
	c->state = WB__HANDSHAKE;
	return 0;
}

/* ---- making channels ------------------------------------------------------------------------- */

int wb__chan_new(struct wb_loop *loop, struct wb_tls *tls, const char *peer,
	const struct wb_chan_limits *limits, struct wb__tls_chan **out)
{
	struct wb__tls_chan *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	assert(limits->framer);
	c->base.ops = &tls_ops;
	c->loop = loop;
	c->fd = -1;
	c->tail = &c->head;
	c->limits = *limits;
	if (!c->limits.queue_bytes_max)
		c->limits.queue_bytes_max = QUEUE_BYTES_DEFAULT;
	if (!c->limits.connect_ns)
		c->limits.connect_ns = CONNECT_NS_DEFAULT;
	if (!c->limits.linger_ns)
		c->limits.linger_ns = LINGER_NS_DEFAULT;
	memcpy(c->peer, peer, WB_MIN(strlen(peer), sizeof(c->peer) - 1));
	if (wb_timer_create(loop, timer_fired, c, &c->timer) < 0) {
		wb_free(c);
		return -ENOMEM;
	}
	wb_timer_start(c->timer, c->limits.connect_ns, 0);
	c->tls = wb__tls_ref(tls);
	*out = c;
	return 0;
}

/* NOLINTNEXTLINE(readability-function-size): one call, of the listener. */
int wb__tls_accept(struct wb_loop *loop, struct wb_tls *tls, int fd_take, const char *peer,
	const struct wb_chan_limits *limits, uint64_t waited_ns, const struct wb__chan_owner *owner,
	struct wb_chan **out)
{
	struct wb__tls_chan *c;
	int rc = wb__chan_new(loop, tls, peer, limits, &c);

	if (rc < 0)
		return rc;
	rc = wb__chan_start(c, fd_take);
	if (rc < 0) {
		wb_timer_destroy(c->timer);
		wb_tls_put(c->tls);
		wb_free(c);
		return rc;
	}
	wb_timer_start(c->timer, c->limits.connect_ns - WB_MIN(waited_ns, c->limits.connect_ns), 0);
	c->owner = *owner;
	*out = &c->base;
	return 0;
}

void wb__tls_abandon(struct wb_chan *ch)
{
	struct wb__tls_chan *c = of(ch);

	c->is_abandoned = true;
	wb__chan_end(c, NULL);
}

void wb__tls_end(struct wb_chan *ch, const struct wb_err *why)
{
	wb__chan_end(of(ch), why);
}

static int chan_trust(struct wb_chan *ch, enum wb_chan_trust how_far)
{
	struct wb__tls_chan *c = of(ch);

	/* While the channel ends, its listener only waits for that end. */
	return c->owner.on_trust && c->state == WB__OPEN
		       ? c->owner.on_trust(c->owner.gone_cookie, how_far)
		       : 0;
}

static void chan_limit(struct wb_chan *ch, size_t frame_bytes_max)
{
	of(ch)->frame_max = frame_bytes_max;
}

static const char *chan_peer(const struct wb_chan *ch)
{
	return of_const(ch)->peer;
}

static const char *chan_identity(const struct wb_chan *ch)
{
	return of_const(ch)->seen.identity;
}

static size_t chan_queued(const struct wb_chan *ch)
{
	return of_const(ch)->queued_bytes;
}

static int chan_binding(const struct wb_chan *ch, uint8_t *out)
{
	static const char label[] = "EXPORTER-weightbridge-hello";
	const struct wb__tls_chan *c = of_const(ch);

	if (c->state != WB__OPEN)
		return -ENOTCONN;
	if (SSL_export_keying_material(
		    c->ssl, out, WB_CHAN_BINDING_BYTES, label, sizeof(label) - 1, NULL, 0, 0) == 1)
		return 0;
	ERR_clear_error();
	return -EIO;
}

static const struct wb_chan_ops tls_ops = {.send = chan_send,
	.send_lent = chan_send_lent,
	.close = chan_close,
	.peer = chan_peer,
	.identity = chan_identity,
	.queued = chan_queued,
	.binding = chan_binding,
	.trust = chan_trust,
	.limit = chan_limit,
	.resume = chan_resume};
