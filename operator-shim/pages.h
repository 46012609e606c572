/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_PAGES_H
#define WB_OPERATOR_PAGES_H
/*
 * The operator's HTTP pages: metrics, probes, objects, plans, traces.
 *
 * Probes are everybody's, and so are metrics unless they are asked for with a token.  What tells of
 * objects is answered to who asks from within (loopback), to who shows a token that readers.h
 * takes, and to whom a standby has sent with a ticket.  Threads: the loop's.
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
	uint16_t port; /* of the pages; a replica that leads has them at the same */
	struct wb__readers *readers; /* NULL: nobody can say whose token it is */
	bool asks_for_metrics; /* also they take a token */
	struct wb_ticket_key ticket;
};

/** wb__pages_answer - a wb_http_fn; the cookie is a struct wb__pages. */
int wb__pages_answer(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r);
/** wb__pages_probe - the same for probes alone: nothing but /healthz and /readyz is there. */
int wb__pages_probe(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r);

#endif
