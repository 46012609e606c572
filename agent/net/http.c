/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/internal.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define CONNS_MAX 32
#define IDLE_S 10

struct wb_http {
	struct wb_loop *loop;
	struct MHD_Daemon *daemon;
	struct wb_watch *watch;
	struct wb_timer *timer;
	wb_http_fn fn;
	void *cookie;
};

struct wb_http_request {
	struct MHD_Connection *conn;
};

const char *wb_http_query(struct wb_http_request *rq, const char *name)
{
	return MHD_lookup_connection_value(rq->conn, MHD_GET_ARGUMENT_KIND, name);
}

/* ---- answering ------------------------------------------------------------------------------- */

struct head {
	unsigned status;
	const char *type, *location; /* location "" = none */
};

static enum MHD_Result reply_bytes(struct MHD_Connection *conn, const struct head *head, void *data,
	size_t bytes, enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(bytes, data, mode);
	enum MHD_Result ok;

	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			wb_free(data);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, head->type);
	if (head->location[0])
		MHD_add_response_header(r, MHD_HTTP_HEADER_LOCATION, head->location);
	if (head->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	ok = MHD_queue_response(conn, head->status, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result reply_text(struct MHD_Connection *conn, unsigned status, const char *text)
{
	struct head head = {status, "text/plain; charset=utf-8", ""};
	char line[256];

	snprintf(line, sizeof(line), "%s\n", text);
	return reply_bytes(conn, &head, line, strlen(line), MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result answer(struct wb_http *h, struct MHD_Connection *conn, const char *path)
{
	struct wb_http_reply r = {
		.status = MHD_HTTP_OK, .content_type = "text/plain; charset=utf-8"};
	struct wb_http_request rq = {conn};
	uint8_t *data;
	size_t bytes;
	int rc;

	wb_buf_init(&r.body, WB_HTTP_BODY_MAX);
	rc = h->fn(h->cookie, path, &rq, &r);
	if (rc < 0) {
		wb_buf_finish(&r.body);
		return rc == -ENOENT
			       ? reply_text(conn, MHD_HTTP_NOT_FOUND, "404 Not Found")
			       : reply_text(conn, MHD_HTTP_INTERNAL_SERVER_ERROR, wb_strerror(rc));
	}
	rc = wb_buf_take(&r.body, &data, &bytes);
	if (rc < 0)
		return reply_text(conn, MHD_HTTP_INTERNAL_SERVER_ERROR, wb_strerror(rc));
	/* libmicrohttpd frees with free(), as wb_free() does. */
	return reply_bytes(conn, &(struct head){r.status, r.content_type, r.location}, data, bytes,
		MHD_RESPMEM_MUST_FREE);
}

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd sets the parameters. */
static enum MHD_Result on_request(void *cookie, struct MHD_Connection *conn, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_bytes,
	void **state)
{
	static char seen;

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
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return reply_text(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "405 only GET and HEAD");
	/* The library takes any word for an address; handlers go on from its first slash. */
	if (url[0] != '/')
		return reply_text(conn, MHD_HTTP_BAD_REQUEST, "400 not an address of this server");
	return answer(cookie, conn, url);
}

/* ---- on the loop ----------------------------------------------------------------------------- */

static void turn(struct wb_http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;

	MHD_run(h->daemon);
	if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
		wb_timer_start(h->timer, WB_MAX(ms, 1u) * WB_NS_PER_MS, 0);
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
	turn(cookie);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int start_daemon(struct wb_http *h, const char *host, uint16_t port, struct wb_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_family = host && *host ? AF_UNSPEC : AF_INET6,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	const bool has_host = host && *host;
	struct addrinfo *list = NULL;
	unsigned flags = MHD_USE_EPOLL;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(has_host ? host : NULL, service, &hints, &list);
	if (rc && has_host)
		return wb_err_set(
			err, -EADDRNOTAVAIL, "http on %s:%u: %s", host, port, gai_strerror(rc));
	if (list && list->ai_family == AF_INET6)
		flags |= has_host ? MHD_USE_IPv6 : MHD_USE_DUAL_STACK;
	for (int i = 0; i < 2 && !h->daemon; i++) {
		errno = 0;
		h->daemon = MHD_start_daemon(i ? MHD_USE_EPOLL : flags, port, NULL, NULL,
			on_request, h, MHD_OPTION_CONNECTION_LIMIT, CONNS_MAX,
			MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384,
			MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
			list && (!i || has_host) ? MHD_OPTION_SOCK_ADDR : MHD_OPTION_END,
			list ? list->ai_addr : NULL, MHD_OPTION_END);
		if (has_host)
			break; /* the second try is for machines without IPv6 */
	}
	rc = h->daemon ? 0 : errno ? -errno : -EADDRINUSE;
	if (list)
		freeaddrinfo(list);
	return rc < 0 ? wb__bind_refused("http", host, port, rc, err) : 0;
}

int wb_http_start(struct wb_loop *loop, const char *host, uint16_t port, wb_http_fn fn,
	void *cookie, struct wb_http **out, struct wb_err *err)
{
	struct wb_http *h = wb_zalloc(1, sizeof(*h));
	const union MHD_DaemonInfo *info;
	int rc;

	if (!h)
		return wb_err_set(err, -ENOMEM, "http: out of memory");
	h->loop = loop;
	h->fn = fn;
	h->cookie = cookie;
	rc = start_daemon(h, host, port, err);
	if (!rc) {
		info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
		rc = wb_timer_create(loop, timer_fired, h, &h->timer);
		if (!rc)
			rc = wb_watch_create(
				loop, info->epoll_fd, WB_READABLE, epoll_fired, h, &h->watch);
		if (rc < 0)
			wb_err_set(err, rc, "http: %s", wb_strerror(rc));
	}
	if (rc < 0) {
		wb_http_stop(h);
		return rc;
	}
	turn(h);
	*out = h;
	return 0;
}

uint16_t wb_http_port(const struct wb_http *h)
{
	return MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
}

void wb_http_stop(struct wb_http *h)
{
	if (!h)
		return;
	wb_watch_destroy(h->watch);
	wb_timer_destroy(h->timer);
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	wb_free(h);
}
