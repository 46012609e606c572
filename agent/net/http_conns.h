/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_HTTP_CONNS_H
#define WB_NET_HTTP_CONNS_H
/*
 * Who is connected to the HTTP server, and who has to go: for http.c.  No sockets are read here.
 * Layer: net (L1), internal.
 */
#include "net/http.h"
#include "net/internal.h"

struct MHD_Connection;

struct wb__http_conn {
	struct wb__http_conn *next, **prev; /* oldest first */
	struct wb__http_conns *of;
	struct MHD_Connection *mhd;
	struct wb_http_held *held; /* NULL = goes on by itself */
	struct wb__source source;
	uint64_t since_ns, due_ns; /* due: it is cut then */
	int fd; /* libmicrohttpd's */
	bool is_asked; /* the request is here */
	bool is_cut; /* libmicrohttpd will notice */
};

struct wb__http_conns {
	struct wb__http_conn *first, **tail;
	uint32_t n_max, source_max;
	uint64_t request_ns, reply_ns;
};

void wb__http_conns_init(struct wb__http_conns *s, const struct wb_http_opts *o);
/** wb__http_conns_room - is there a place for one from @source?  @out: who has to be cut for it, or
 *  NULL.  False: no room. */
bool wb__http_conns_room(const struct wb__http_conns *s, const struct wb__source *source,
	uint64_t now_ns, struct wb__http_conn **out);
/** wb__http_conn_add - -ENOMEM. */
int wb__http_conn_add(struct wb__http_conns *s, const struct wb__source *source, int fd,
	uint64_t now_ns, struct wb__http_conn **out);
/** wb__http_conn_asked - its request is here; it has so long to take the answer. */
void wb__http_conn_asked(struct wb__http_conn *c, uint64_t now_ns);
/** wb__http_conn_cut - end it: both ends see a closed connection. */
void wb__http_conn_cut(struct wb__http_conn *c);
void wb__http_conn_free(struct wb__http_conn *c);
/** wb__http_conns_late - cut those whose time is over; when the next one's is (UINT64_MAX = none).
 *  @n_cut: how many were. */
uint64_t wb__http_conns_late(struct wb__http_conns *s, uint64_t now_ns, uint32_t *n_cut);

#endif
