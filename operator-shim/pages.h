/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_PAGES_H
#define WB_OPERATOR_PAGES_H
/*
 * The operator's HTTP pages: metrics, probes, objects, plans, traces.
 *
 * Everybody may read probes, and also metrics unless these require a token.  Pages about objects
 * are given to requests over loopback, to those with a token that readers.h accepts, and to those
 * that a standby has redirected with a ticket.  Threads: the loop's.
 */
#include "net/http.h"
#include "net/ticket.h"
#include "operator-shim/serve/serve.h"

struct wb_loop;
struct wb__cluster;
struct wb__readers;

struct wb__pages {
	struct wb_serve *serve;
	struct wb_loop *loop;
	bool is_ready; /* agents can connect */
	const struct wb__cluster *cluster; /* NULL = files */
	uint16_t port; /* of these pages; the leader serves its pages at the same port */
	struct wb__readers *readers; /* NULL: tokens cannot be checked */
	bool asks_for_metrics; /* metrics require a token, too */
	struct wb_ticket_key ticket;
};

/** wb__pages_answer - a wb_http_fn; the cookie is a struct wb__pages. */
int wb__pages_answer(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r);
/** wb__pages_probe - the same for a port with probes only: /healthz and /readyz. */
int wb__pages_probe(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r);

#endif
