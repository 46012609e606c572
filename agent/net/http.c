/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/internal.h"
#include "net/places.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ACCEPTS_A_ROUND 64
#define CONNS_MAX 64
#define SOURCE_MAX 16 /* a scraper, probes and some people behind one address */
#define REQUEST_NS (5 * WB_NS_PER_S)
#define REPLY_NS (60 * WB_NS_PER_S)
#define SLOW_NS (10 * WB_NS_PER_MS) /* in a cluster, an honest client has asked by then */

struct conn {
	struct conn *next, **prev;
	struct wb_http *h;
	struct wb__place place; /* until it is cut */
	struct MHD_Connection *mhd;
	struct wb_http_held *held; /* NULL = it waits for no wb_http_go_on() */
	uint64_t due_ns; /* when it is cut */
	int fd; /* libmicrohttpd's */
	bool is_asked; /* the request is here */
	bool is_cut; /* it gets no answer any more */
};

struct wb_http {
	struct wb_loop *loop;
	struct MHD_Daemon *daemon;
	struct wb_watch *watch, *accept;
	struct wb_timer *timer, *pause;
	struct wb_http_held *first, **last; /* held requests that may go on, in their order */
	struct wb__places places;
	struct conn *conn; /* list */
	struct conn *adding; /* libmicrohttpd is being given this one */
	struct wb__unix_file file;
	int fd; /* listens */
	uint16_t port;
	uint64_t request_ns, reply_ns, slow_ns;
	wb_http_fn fn;
	void *cookie;
};

struct wb_http_request {
	struct MHD_Connection *conn;
	struct conn *c;
};

struct wb_http_held {
	struct wb_http_held *next, **prev; /* prev NULL = not among those that may go on */
	struct wb_http *h; /* NULL: the connection is gone */
	struct conn *c;
	int rc;
	bool is_decided;
	char sentence[512];
};

const char *wb_http_query(struct wb_http_request *rq, const char *name)
{
	return MHD_lookup_connection_value(rq->conn, MHD_GET_ARGUMENT_KIND, name);
}

const char *wb_http_bearer(struct wb_http_request *rq)
{
	const char *v = MHD_lookup_connection_value(
		rq->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);

	if (!v || strncasecmp(v, "Bearer ", 7) != 0)
		return NULL;
	v += 7;
	return v + strspn(v, " ");
}

void wb_http_source(const struct wb_http_request *rq, char out[WB_HTTP_SOURCE_TEXT])
{
	const uint8_t *a = rq->c->place.source.a;

	for (size_t i = 0; i < sizeof(rq->c->place.source.a); i++)
		snprintf(out + 2 * i, 3, "%02x", a[i]);
}

bool wb_http_is_local(const struct wb_http_request *rq)
{
	return wb__source_is_here(&rq->c->place.source);
}

bool wb_http_is_unix(const struct wb_http_request *rq)
{
	static const struct wb__source none;

	return wb__source_equal(&rq->c->place.source, &none);
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct wb_http_held *wb_http_hold(struct wb_http_request *rq)
{
	struct wb_http_held *d = wb_zalloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->c = rq->c;
	d->h = rq->c->h;
	rq->c->held = d;
	rq->c->place.patience_ns = UINT64_MAX;
	MHD_suspend_connection(rq->conn);
	return d;
}

void wb_http_go_on(struct wb_http_held *held, int rc, const char *sentence)
{
	if (!held->h) {
		wb_free(held);
		return;
	}
	held->rc = rc;
	held->is_decided = true;
	snprintf(held->sentence, sizeof(held->sentence), "%s", sentence ? sentence : "");
	held->prev = held->h->last;
	*held->prev = held;
	held->h->last = &held->next;
	if (held->h->first == held)
		wb_timer_start(held->h->timer, 0, 0);
}

static void leave_line(struct wb_http_held *held)
{
	if (!held->prev)
		return;
	*held->prev = held->next;
	*(held->next ? &held->next->prev : &held->h->last) = held->prev;
	held->prev = NULL;
}

/* Let the first of the requests that may go on do so. */
static void go_on(struct wb_http *h)
{
	struct wb_http_held *held = h->first;

	if (!held)
		return;
	leave_line(held);
	MHD_resume_connection(held->c->mhd);
}

bool wb_http_outcome(const struct wb_http_request *rq, int *rc, const char **sentence)
{
	const struct wb_http_held *held = rq->c->held;

	if (!held || !held->is_decided)
		return false;
	*rc = held->rc;
	*sentence = held->sentence;
	return true;
}

/* Separate a connection from its held request.  If the request is not decided yet, it is freed by
 * wb_http_go_on(), which will still be called. */
static void let_go(struct conn *c)
{
	if (c->held && c->held->is_decided) {
		leave_line(c->held);
		wb_free(c->held);
	} else if (c->held) {
		c->held->h = NULL;
	}
	c->held = NULL;
}

/* ---- answering ------------------------------------------------------------------------------- */

struct head {
	unsigned status;
	const char *type, *location; /* location "" = none */
};

static enum MHD_Result reply(
	struct MHD_Connection *conn, const struct head *head, struct MHD_Response *r)
{
	enum MHD_Result ok;

	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, head->type);
	if (head->location[0])
		MHD_add_response_header(r, MHD_HTTP_HEADER_LOCATION, head->location);
	if (head->status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
	if (head->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	ok = MHD_queue_response(conn, head->status, r);
	MHD_destroy_response(r);
	return ok;
}

/* The bytes are given back when the last one was sent, or the connection is gone. */
static enum MHD_Result reply_lent(
	struct MHD_Connection *conn, const struct head *head, const struct wb_lent *lent)
{
	struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback_cls(
		lent->bytes, (void *)(uintptr_t)lent->data, lent->put, lent->cookie);

	if (r)
		return reply(conn, head, r);
	lent->put(lent->cookie);
	return MHD_NO;
}

static enum MHD_Result reply_text(struct MHD_Connection *conn, unsigned status, const char *text)
{
	struct head head = {status, "text/plain; charset=utf-8", ""};
	char line[256];

	struct MHD_Response *r;

	snprintf(line, sizeof(line), "%s\n", text);
	r = MHD_create_response_from_buffer(strlen(line), line, MHD_RESPMEM_MUST_COPY);
	return r ? reply(conn, &head, r) : MHD_NO;
}

static enum MHD_Result answer(struct wb_http *h, struct wb_http_request *rq, const char *path)
{
	struct MHD_Connection *conn = rq->conn;
	struct wb_http_reply r = {
		.status = MHD_HTTP_OK, .content_type = "text/plain; charset=utf-8"};
	struct head head;
	void (*put)(void *);
	uint8_t *data;
	size_t bytes;
	int rc;

	wb_buf_init(&r.body, WB_HTTP_BODY_MAX);
	rc = h->fn(h->cookie, path, rq, &r);
	if (rc == -EINPROGRESS) {
		wb_buf_finish(&r.body);
		return MHD_YES;
	}
	let_go(rq->c);
	rq->c->place.patience_ns = h->request_ns;
	if (rc < 0) {
		wb_buf_finish(&r.body);
		return rc == -ENOENT
			       ? reply_text(conn, MHD_HTTP_NOT_FOUND, "404 Not Found")
			       : reply_text(conn, MHD_HTTP_INTERNAL_SERVER_ERROR, wb_strerror(rc));
	}
	head = (struct head){r.status, r.content_type, r.location};
	if (r.lent.put) {
		wb_buf_finish(&r.body);
		return reply_lent(conn, &head, &r.lent);
	}
	put = r.body.is_secret ? wb_free_wiped : wb_free; /* wb_buf_take() forgets it */
	rc = wb_buf_take(&r.body, &data, &bytes);
	if (rc < 0)
		return reply_text(conn, MHD_HTTP_INTERNAL_SERVER_ERROR, wb_strerror(rc));
	return reply_lent(conn, &head,
		&(struct wb_lent){.data = data, .bytes = bytes, .put = put, .cookie = data});
}

/* The request has come: from now on the deadlines are those for the answer. */
static void asked(struct conn *c)
{
	c->is_asked = true;
	c->place.is_firm = true;
	c->place.since_ns = wb_now_ns(&wb_clock_real);
	c->place.patience_ns = c->h->request_ns;
	c->due_ns = c->place.since_ns + c->h->reply_ns;
}

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd sets the parameters. */
static enum MHD_Result on_request(void *cookie, struct MHD_Connection *conn, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_bytes,
	void **state)
{
	static char seen;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct wb_http_request rq = {conn, info ? info->socket_context : NULL};

	(void)version;
	(void)upload;
	/* The first call comes before the body, if there is one. */
	if (!*state) {
		*state = &seen;
		return MHD_YES;
	}
	if (*upload_bytes) {
		*upload_bytes = 0;
		return MHD_YES;
	}
	if (!rq.c)
		return MHD_NO;
	if (rq.c->is_cut)
		return MHD_NO;
	if (!rq.c->is_asked)
		asked(rq.c);
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return reply_text(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "405 only GET and HEAD");
	/* libmicrohttpd accepts any word as an address; handlers rely on its first slash. */
	if (url[0] != '/')
		return reply_text(conn, MHD_HTTP_BAD_REQUEST, "400 not an address of this server");
	return answer(cookie, &rq, url);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void free_conn(struct conn *c)
{
	wb__place_leave(&c->h->places, &c->place);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	wb_free(c);
}

/* libmicrohttpd does not look at such a connection, and cannot be stopped while there is one. */
static bool is_suspended(const struct conn *c)
{
	return c->held && (!c->held->is_decided || c->held->prev);
}

/* Close the connection for both ends.  libmicrohttpd notices that when it looks next. */
static void cut(struct conn *c)
{
	bool waits = is_suspended(c);

	wb__place_leave(&c->h->places, &c->place);
	c->due_ns = UINT64_MAX;
	c->is_cut = true;
	let_go(c);
	if (waits)
		MHD_resume_connection(c->mhd);
	(void)shutdown(c->fd, SHUT_RDWR);
}

/* Cut the connections whose time is over; *@n: how many.  Returns when the time of the next one is
 * over; UINT64_MAX = never. */
static uint64_t cut_late(struct wb_http *h, uint32_t *n)
{
	uint64_t now = wb_now_ns(&wb_clock_real), due = UINT64_MAX;

	*n = 0;
	for (struct conn *c = h->conn; c; c = c->next) {
		if (now < c->due_ns) {
			due = WB_MIN(due, c->due_ns);
			continue;
		}
		cut(c);
		++*n;
	}
	return due;
}

static void on_connection(void *cookie, struct MHD_Connection *conn, void **context,
	enum MHD_ConnectionNotificationCode what)
{
	struct wb_http *h = cookie;
	struct conn *c = *context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = h->adding;
		h->adding->mhd = conn;
	} else if (c) {
		if (h->adding == c)
			h->adding = NULL;
		let_go(c);
		free_conn(c);
		*context = NULL;
	}
}

static void run(struct wb_http *h)
{
	uint32_t n;

	MHD_run(h->daemon);
	(void)cut_late(h, &n);
	if (n)
		MHD_run(h->daemon);
}

static void turn(struct wb_http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;
	uint64_t now, after, due;
	uint32_t n;

	run(h);
	due = cut_late(h, &n);
	now = wb_now_ns(&wb_clock_real);
	after = due == UINT64_MAX ? UINT64_MAX : due > now && !n ? due - now : 0;
	if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
		after = WB_MIN(after, WB_MAX(ms, 1u) * WB_NS_PER_MS);
	if (h->first) /* not 0: the loop would call the timer before it looks at anything else */
		after = WB_MIN(after, WB_NS_PER_MS);
	if (after != UINT64_MAX)
		wb_timer_start(h->timer, after, 0);
	else
		wb_timer_stop(h->timer);
}

static void epoll_fired(void *cookie, int events)
{
	(void)events;
	turn(cookie);
}

static void timer_fired(void *cookie)
{
	go_on(cookie);
	turn(cookie);
}

/* There is no room: answer 503.  The request is read first, since closing a socket with unread
 * bytes could lose the answer. */
static void shed(int fd)
{
	static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
				   "Connection: close\r\nContent-Type: text/plain\r\n\r\n"
				   "too many connections: try again in a second\n";
	char text[4096];

	(void)!recv(fd, text, sizeof(text), MSG_DONTWAIT);
	(void)!send(fd, busy, sizeof(busy) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)shutdown(fd, SHUT_WR);
	close(fd);
}

/* Make room for a connection from @source; another connection may have to go.  False: no room. */
static bool make_room(struct wb_http *h, const struct wb__source *source)
{
	uint64_t now = wb_now_ns(&wb_clock_real);
	struct wb__place *gone;

	/* When many come at once, the earlier ones may be done by now, or have asked: let
	 * libmicrohttpd look at them first. */
	if (!wb__places_room(&h->places, source, now, &gone) || gone) {
		run(h);
		if (!wb__places_room(&h->places, source, now, &gone))
			return false;
	}
	if (gone) {
		cut(wb_container_of(gone, struct conn, place));
		MHD_run(h->daemon);
	}
	return true;
}

static struct conn *add_conn(struct wb_http *h, const struct wb__source *source, int fd)
{
	struct conn *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->h = h;
	c->fd = fd;
	c->place.source = *source;
	c->place.since_ns = wb_now_ns(&wb_clock_real);
	c->place.patience_ns = h->slow_ns;
	c->due_ns = c->place.since_ns + h->request_ns;
	wb__place_take(&h->places, &c->place);
	c->next = h->conn;
	c->prev = &h->conn;
	if (c->next)
		c->next->prev = &c->next;
	h->conn = c;
	return c;
}

static void take(struct wb_http *h, int fd, const struct sockaddr *sa, socklen_t len)
{
	struct wb__source source = wb__source_of(sa);

	if (!make_room(h, &source)) {
		shed(fd);
		return;
	}
	h->adding = add_conn(h, &source, fd);
	if (!h->adding) {
		close(fd);
		return;
	}
	/* When this fails, libmicrohttpd has closed the socket. */
	if (MHD_add_connection(h->daemon, fd, sa, len) != MHD_YES && h->adding)
		free_conn(h->adding);
	h->adding = NULL;
}

static void pause_over(void *cookie)
{
	struct wb_http *h = cookie;

	wb_watch_set(h->accept, WB_READABLE);
}

static void accept_fired(void *cookie, int events)
{
	struct wb_http *h = cookie;

	(void)events;
	for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t len = sizeof(sa);
		int fd = accept4(h->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			take(h, fd, (const struct sockaddr *)&sa, len);
			continue;
		}
		if (wb__accept_pause(errno)) {
			wb_watch_set(h->accept, 0);
			wb_timer_start(h->pause, WB__ACCEPT_PAUSE_NS, 0);
		}
		if (errno != ECONNABORTED && errno != EINTR)
			break;
	}
	turn(h);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int start_daemon(struct wb_http *h)
{
	/* Twice as many as we let in: connections that were cut may not be gone yet. */
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
		on_request, h, MHD_OPTION_CONNECTION_LIMIT, 2 * h->places.n_max,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, h, MHD_OPTION_END);
	return h->daemon ? 0 : -ENOMEM;
}

static int start_watching(struct wb_http *h)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	int rc = wb_timer_create(h->loop, timer_fired, h, &h->timer);

	if (!rc)
		rc = wb_timer_create(h->loop, pause_over, h, &h->pause);
	if (!rc)
		rc = wb_watch_create(
			h->loop, info->epoll_fd, WB_READABLE, epoll_fired, h, &h->watch);
	if (!rc)
		rc = wb_watch_create(h->loop, h->fd, WB_READABLE, accept_fired, h, &h->accept);
	return rc;
}

int wb_http_start(struct wb_loop *loop, const struct wb_http_opts *o, struct wb_http **out,
	struct wb_err *err)
{
	struct wb_http *h = wb_zalloc(1, sizeof(*h));
	int rc;

	if (!h)
		return wb_err_set(err, -ENOMEM, "http: out of memory");
	h->loop = loop;
	h->last = &h->first;
	h->fd = -1;
	h->fn = o->fn;
	h->cookie = o->cookie;
	h->request_ns = o->request_ns ? o->request_ns : REQUEST_NS;
	h->slow_ns = o->slow_ns ? o->slow_ns : SLOW_NS;
	h->reply_ns = o->reply_ns ? o->reply_ns : REPLY_NS;
	wb__places_init(&h->places, o->conns_max ? o->conns_max : CONNS_MAX,
		o->source_max ? o->source_max : SOURCE_MAX);
	rc = o->socket ? wb__unix_bind(o->socket, SOCK_STREAM, 0600, &h->file, &h->fd, err)
		       : wb__tcp_bind("http", o->host, o->port, &h->fd, &h->port, err);
	if (!rc) {
		rc = start_daemon(h);
		if (!rc)
			rc = start_watching(h);
		if (rc < 0)
			wb_err_set(err, rc, "http: %s", wb_strerror(rc));
	}
	if (rc < 0) {
		wb_http_stop(h);
		return rc;
	}
	*out = h;
	return 0;
}

uint16_t wb_http_port(const struct wb_http *h)
{
	return h->port;
}

void wb_http_stop(struct wb_http *h)
{
	if (!h)
		return;
	wb_watch_destroy(h->accept);
	wb_watch_destroy(h->watch);
	wb_timer_destroy(h->timer);
	wb_timer_destroy(h->pause);
	wb__unix_remove(&h->file);
	if (h->fd >= 0)
		close(h->fd);
	for (struct conn *c = h->conn; c; c = c->next)
		if (is_suspended(c))
			MHD_resume_connection(c->mhd);
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	wb_free(h);
}
