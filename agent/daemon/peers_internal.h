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
	struct peer *peer; /* NULL: not known yet, or of no interest any more */
	struct wb_chan *chan;
	struct wb_session session;
};

struct peer {
	struct peer_epoch *e;
	const struct wb_roster_agent *at; /* the roster's */
	struct wb_cli_addr addr;
	struct conn *out; /* channel that our messages take; NULL = none */
	struct wb_keep queue; /* messages until it is up */
	/* Of the first failure in a row, or when it was heard before that; 0 = none. */
	uint64_t failed_ns;
	uint64_t answered_ns; /* all tries since then were refused somehow; 0 = not so */
	uint64_t retry_ns; /* dial again then, 0 = no */
	uint64_t refused_ns; /* it would not speak with us, 0 = never */
};

/* An entry of an epoch that somebody goes by: no reference, it goes with the roster. */
struct peer_epoch {
	struct peer_epoch *next; /* newest first */
	struct wb__peers *p;
	const struct wb_roster *r;
	struct wb_psk psk; /* its name in TLS: object, term and number as text */
	struct wb_tls *tls; /* to dial with */
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
/** wb__peer_up - both ends know each other: what waited is sent, unless another connection of the
 *  pair is there for that. */
void wb__peer_up(struct peer *peer, struct conn *c);
/** wb__peer_lost - @code 0: in order; @is_final: no use to try again. */
void wb__peer_lost(struct peer *peer, struct conn *c, int code, bool is_final, const char *why);

/** wb__peers_arm - a session or a retry has begun or ended: look when there is something to do. */
void wb__peers_arm(struct wb__peers *p);

/** wb__peer_conn_create - in the list, without a channel yet; NULL when memory is short.
 *  @patience_ns: of its epoch; half of it on a channel, the rest to make another. */
struct conn *wb__peer_conn_create(
	struct wb__peers *p, enum wb_session_side side, uint64_t patience_ns);
/** wb__peer_conn_free - one whose channel never was, or has ended. */
void wb__peer_conn_free(struct conn *c);
/** wb__peer_conn_callbacks - what to bind to its channel. */
struct wb_chan_cb wb__peer_conn_callbacks(struct conn *c);

#endif
