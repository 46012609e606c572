/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_HTTP_H
#define WB_NET_HTTP_H
/*
 * A small HTTP server on the loop for metrics, probes and status: GET and HEAD only, one request a
 * connection.
 *
 * libmicrohttpd underneath, polled by the loop; no thread.  Connections are accepted here, so that
 * nobody can keep others out: so many in all and of one address; a request has to be there within
 * a few seconds, however it trickles; when all places are taken, the oldest connection that has not
 * said what it wants makes room, of the address that has most, and of one that has far more any;
 * and who finds no room even so is told 503.  What is answered for has a server of its own (see
 * wb_http_opts): the place of a probe is not a place of a page.  Threads: the loop's.  Layer: net
 * (L1).
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
	/* Instead of body, where lent.put is set: given back when the reader has taken it, or never
	 * will.  Of a failure nothing is taken. */
	struct wb_lent lent;
};

/**
 * wb_http_fn - answer a request
 * @path:	decoded, without the query, begins with '/'
 * Fill @r, or return -ENOENT for "404 Not Found"; another error gives 500 with its words, but
 * -EINPROGRESS after wb_http_hold(): then it is called again.
 */
typedef int (*wb_http_fn)(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r);
/** wb_http_query - value of query argument @name, or NULL.  Valid inside the handler. */
const char *wb_http_query(struct wb_http_request *rq, const char *name);
/** wb_http_bearer - token of "Authorization: Bearer", or NULL.  Valid inside the handler; secret.
 */
const char *wb_http_bearer(struct wb_http_request *rq);
#define WB_HTTP_SOURCE_TEXT 40
/** wb_http_source - the address it was asked from, as text to tell one from another. */
void wb_http_source(const struct wb_http_request *rq, char out[WB_HTTP_SOURCE_TEXT]);
/** wb_http_is_local - asked over a unix socket, or from 127.0.0.1 or ::1: by this pod, or by who
 * may enter it (kubectl exec, port-forward). */
bool wb_http_is_local(const struct wb_http_request *rq);

/* ---- answers that need something first ---- */

struct wb_http_held; /* a request that waits; lives until wb_http_go_on() */
/** wb_http_hold - the answer comes later: return -EINPROGRESS now, and see to it that
 *  wb_http_go_on() is called, once.  NULL: no memory. */
struct wb_http_held *wb_http_hold(struct wb_http_request *rq);
/** wb_http_go_on - the handler is called again, later, and finds @rc and @sentence (copied): one
 *  of all a turn of the loop, so that however many ask, what else the loop does goes between two
 *  answers.  Also right, and necessary, when the server has been stopped meanwhile. */
void wb_http_go_on(struct wb_http_held *held, int rc, const char *sentence);
/** wb_http_outcome - true in the second call: what wb_http_go_on() was given. */
bool wb_http_outcome(const struct wb_http_request *rq, int *rc, const char **sentence);

/* ---- the server ---- */

struct wb_http_opts {
	const char *host; /* "" = all addresses */
	uint16_t port; /* 0 = any */
	const char *socket; /* instead: path of a unix socket for this user alone; NULL = TCP */
	uint32_t conns_max, source_max; /* in all, of one address but our own; 0 = 64, 16 */
	uint64_t request_ns, reply_ns; /* to ask, to take the answer, in all; 0 = 5 s, 60 s */
	uint64_t slow_ns; /* who has not asked by then makes room for others; 0 = 10 ms */
	wb_http_fn fn;
	void *cookie;
};

/** wb_http_start - listen.  0; -EADDRINUSE, ... with the address; -ENOMEM.  Release with
 *  wb_http_stop(). */
int wb_http_start(struct wb_loop *loop, const struct wb_http_opts *o, struct wb_http **out,
	struct wb_err *err);
/** wb_http_port - 0 for a unix socket. */
uint16_t wb_http_port(const struct wb_http *h);
/** wb_http_stop - close all connections and free.  NULL is allowed. */
void wb_http_stop(struct wb_http *h);

#endif
