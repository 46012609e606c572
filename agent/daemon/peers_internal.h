/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_PEERS_INTERNAL_H
#define WB_DAEMON_PEERS_INTERNAL_H
/*
 * Shared by peers.c (who is needed, retries, epochs) and conn.c (one channel).  Not for others.
 */
#include "base/cli.h"
#include "daemon/peers.h"
#include "net/tls.h"
#include "proto/session.h"

struct wb_timer;

struct conn {
	struct conn *next;
	struct wb__peers *p;
	struct peer *peer; /* NULL: not known yet, or its epoch is over */
	struct wb_chan *chan;
	struct wb_session session;
};

struct peer {
	struct peer_epoch *e;
	const struct wb_roster_agent *at; /* borrowed from the roster */
	struct wb_cli_addr addr;
	struct conn *out; /* channel that our messages take; NULL = none */
	struct wb_keep queue; /* messages that wait until a channel is up */
	/* Time of the first failure in a row, or when the agent was last heard before it; 0 = no
	 * failure. */
	uint64_t failed_ns;
	uint64_t answered_ns; /* since when all tries have been refused in some way; 0 = not so */
	uint64_t retry_ns; /* when to dial again, 0 = not */
	uint64_t refused_ns; /* when it last would not speak with us, 0 = never */
};

/* The entry of an epoch that is in use.  It has no reference to the roster: it goes when the roster
 * does. */
struct peer_epoch {
	struct peer_epoch *next; /* newest first */
	struct wb__peers *p;
	const struct wb_roster *r;
	struct wb_psk psk; /* its name in TLS: object, term and number as text */
	struct wb_tls *tls; /* TLS context to dial with */
	struct peer *peer; /* by agent */
};

struct wb__peers {
	struct wb__agent *a;
	struct peer_epoch *epochs;
	struct conn *conns;
	struct wb_timer *timer;
	bool is_closing;
};

/** wb__peers_epoch - the epoch whose key has this name in TLS, or NULL. */
struct peer_epoch *wb__peers_epoch(const struct wb__peers *p, const char *psk_id);
/** wb__peer_up - both ends know each other: send what waited, unless another channel of the pair is
 * there for that. */
void wb__peer_up(struct peer *peer, struct conn *c);
/** wb__peer_lost - the connection @c has ended.  @code 0: in order; @is_final: there is no use in
 * trying again. */
void wb__peer_lost(struct peer *peer, struct conn *c, int code, bool is_final, const char *why);

/** wb__peers_arm - a session or a retry has begun or ended: set the timer for what comes next. */
void wb__peers_arm(struct wb__peers *p);

/** wb__peer_conn_create - a connection in the list, without a channel yet; NULL: no memory.
 * @patience_ns: that of its epoch; half of it is spent on this channel, the rest is to make
 * another. */
struct conn *wb__peer_conn_create(
	struct wb__peers *p, enum wb_session_side side, uint64_t patience_ns);
/** wb__peer_conn_free - free a connection that never had a channel, or whose channel has ended. */
void wb__peer_conn_free(struct conn *c);
/** wb__peer_conn_callbacks - callbacks to bind to its channel. */
struct wb_chan_cb wb__peer_conn_callbacks(struct conn *c);

#endif
