/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_HTTP_H
#define WB_NET_HTTP_H
/*
 * A small HTTP server on the loop for metrics, probes and status: GET and HEAD only, one request
 * per connection.
 *
 * It uses libmicrohttpd, polled by the loop; there is no thread.  Connections are accepted here, so
 * that nobody can keep others out: their number is bounded in all and for each address; a request
 * has to be complete within a few seconds, however slowly it comes.  When all places are taken, a
 * connection of the address that has most makes room: its oldest one that has sent no request yet,
 * or any one if it has far more; and a client that finds no room even so is told 503.  Probes and
 * pages that must not displace each other need servers of their own (see wb_http_opts).  Threads:
 * the loop's.  Layer: net (L1).
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/lent.h"

#include <stdbool.h>
#include <stdint.h>

struct wb_loop;
struct wb_http;
struct wb_http_request;

#define WB_HTTP_BODY_MAX (16u << 20)

struct wb_http_reply {
	unsigned status; /* 200 when the handler starts */
	const char *content_type; /* static text; "text/plain; charset=utf-8" to start with */
	char location[512]; /* of a redirection; "" to start with */
	struct wb_buf body; /* empty to start with, at most WB_HTTP_BODY_MAX; server frees */
	/* Used instead of body if lent.put is set: given back when the reader has taken it, or
	 * never will.  When the handler fails it is not taken. */
	struct wb_lent lent;
};

/**
 * wb_http_fn - answer a request
 * @path:	decoded, without the query, begins with '/'
 * Fill in @r, or return -ENOENT for "404 Not Found"; another error gives 500 with the error's
 * words, except -EINPROGRESS after wb_http_hold(): then the handler is called again.
 */
typedef int (*wb_http_fn)(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r);
/** wb_http_query - value of query argument @name, or NULL.  Valid inside the handler. */
const char *wb_http_query(struct wb_http_request *rq, const char *name);
/** wb_http_bearer - token of "Authorization: Bearer", or NULL.  Valid inside the handler; secret.
 */
const char *wb_http_bearer(struct wb_http_request *rq);
#define WB_HTTP_SOURCE_TEXT 40
/** wb_http_source - the address from which the request came, as text that tells addresses apart. */
void wb_http_source(const struct wb_http_request *rq, char out[WB_HTTP_SOURCE_TEXT]);
/** wb_http_is_local - the request came over a unix socket, or from 127.0.0.1 or ::1: from this pod,
 * or from somebody who may enter it (kubectl exec, port-forward). */
bool wb_http_is_local(const struct wb_http_request *rq);
/** wb_http_is_unix - the request came over a unix socket: from a process of this user that sees the
 * socket's folder, by no network. */
bool wb_http_is_unix(const struct wb_http_request *rq);

/* ---- answers that need something first ---- */

struct wb_http_held; /* a request that waits; lives until wb_http_go_on() */
/** wb_http_hold - the answer comes later: the handler must return -EINPROGRESS now, and make sure
 * that wb_http_go_on() is called exactly once.  NULL: no memory. */
struct wb_http_held *wb_http_hold(struct wb_http_request *rq);
/** wb_http_go_on - the handler is called again, later, and finds @rc and @sentence (copied).  In
 * each turn of the loop only one held request goes on, so that other work of the loop gets its turn
 * between two answers, however many ask.  Must also be called when the server has been stopped
 * meanwhile. */
void wb_http_go_on(struct wb_http_held *held, int rc, const char *sentence);
/** wb_http_outcome - true in the handler's second call, with what wb_http_go_on() was given. */
bool wb_http_outcome(const struct wb_http_request *rq, int *rc, const char **sentence);

/* ---- the server ---- */

struct wb_http_opts {
	const char *host; /* "" = all addresses */
	uint16_t port; /* 0 = any */
	const char *socket; /* instead: path of a unix socket for this user alone; NULL = TCP */
	uint32_t conns_max, source_max; /* in all, and of one address except our own; 0 = 64, 16 */
	/* Time to send the whole request, and to take the whole answer; 0 = 5 s, 60 s */
	uint64_t request_ns, reply_ns;
	/* A client that has sent no request by then makes room for others; 0 = 10 ms */
	uint64_t slow_ns;
	wb_http_fn fn;
	void *cookie;
};

/** wb_http_start - listen.  0; -EADDRINUSE, ... with the address; -ENOMEM.  Release with
 *  wb_http_stop(). */
int wb_http_start(struct wb_loop *loop, const struct wb_http_opts *o, struct wb_http **out,
	struct wb_err *err);
/** wb_http_port - the port; 0 for a unix socket. */
uint16_t wb_http_port(const struct wb_http *h);
/** wb_http_stop - close all connections and free.  NULL is allowed. */
void wb_http_stop(struct wb_http *h);

#endif
