/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_HTTP_H
#define WB_NET_HTTP_H
/*
 * A small HTTP server on the loop for metrics, probes and status: GET and HEAD only.
 *
 * libmicrohttpd underneath, polled by the loop; no thread.  Bounded connections, memory a
 * connection and idle time.  Threads: the loop's.  Layer: net (L1).
 */
#include "base/buf.h"
#include "base/err.h"

struct wb_loop;
struct wb_http;

#define WB_HTTP_BODY_MAX (16u << 20)

struct wb_http_reply {
	unsigned status; /* 200 when the handler starts */
	const char *content_type; /* static text; "text/plain; charset=utf-8" to start with */
	char location[512]; /* of a redirection; "" to start with */
	struct wb_buf body; /* empty to start with, at most WB_HTTP_BODY_MAX; server frees */
};

/**
 * wb_http_fn - answer a request
 * @path:	decoded, without the query, begins with '/'
 * @query:	value of a query argument: wb_http_query()
 * Fill @r, or return -ENOENT for "404 Not Found"; another error gives 500 with its words.
 */
struct wb_http_request;
typedef int (*wb_http_fn)(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r);
/** wb_http_query - value of argument @name, or NULL.  Valid inside the handler. */
const char *wb_http_query(struct wb_http_request *rq, const char *name);

/** wb_http_start - listen on @host ("" = all) and @port (0 = any).  0; -EADDRINUSE, ... with the
 *  address; -ENOMEM.  Release with wb_http_stop(). */
int wb_http_start(struct wb_loop *loop, const char *host, uint16_t port, wb_http_fn fn,
	void *cookie, struct wb_http **out, struct wb_err *err);
uint16_t wb_http_port(const struct wb_http *h);
/** wb_http_stop - close all connections and free.  NULL is allowed. */
void wb_http_stop(struct wb_http *h);

#endif
