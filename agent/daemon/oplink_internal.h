/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_OPLINK_INTERNAL_H
#define WB_DAEMON_OPLINK_INTERNAL_H
/*
 * Shared by oplink.c (the connection), opmsg.c (what messages mean) and uplink.c (what goes up).
 * Not for others.
 *
 * Invariants: there is a channel exactly while the session is not DOWN, and what comes is from that
 * channel; content is uploaded one item after the other, and only the first has been begun.
 */
#include "base/err.h"
#include "base/hash.h"
#include "base/ident.h"
#include "daemon/oplink.h"
#include "daemon/plans.h"
#include "net/tls.h"
#include "proto/session.h"

struct wb_timer;

#define UPLOADS_MAX 4096

struct clock_sample {
	int64_t offset_ns; /* this agent's clock minus the operator's */
	uint64_t error_ns;
};

/* Content that the operator asked for. */
struct upload {
	struct wb_digest digest;
	enum wb_content kind;
	uint8_t *data; /* owned; NULL = not begun */
	size_t bytes, at;
};

struct wb__oplink {
	struct wb__agent *a;
	const struct wb__served *served; /* borrowed from the options */
	uint32_t index; /* of the object among those served here */
	struct wb_object_id id; /* of the object; uid 0 = not known yet */
	struct wb_tls *tls;
	struct wb_chan *chan;
	struct wb_session session;
	struct wb_timer *timer; /* when down: the next try; else: what the session has to do */
	struct wb_timer *news_timer; /* sends the list of workers, and uploads */
	struct wb_rng rng;
	uint64_t backoff_ns;
	bool is_closing;
	uint64_t n_up;
	char address[300];
	/* Where a standby operator sent us; "" = dial the address. */
	char leader_host[WBP_HOST_MAX + 1];
	uint16_t leader_port;
	bool is_sent_on; /* the present dial goes where a standby sent us */
	char trouble[WB_ERR_MSG_MAX];
	uint64_t term, term_operator; /* highest terms that were heard */
	uint64_t memory_limit_bytes;
	char object[WBP_NAME_MAX + 1], model[WBP_NAME_MAX + 1]; /* "" = not known yet */
	struct clock_sample clock, sample[8];
	uint64_t n_sample;
	struct wb__plans *plans;
	bool workers_due;
	char reduced[300]; /* the port that is down, as the operator was told; "" = none */
	struct upload *upload; /* owned */
	size_t n_upload, upload_cap;
	/* Reports, each kept until the operator has answered something that was sent after it. */
	struct wb_keep reports;
};

/** wb__oplink_arm - the session's state has changed: set the timer for what it has to do next. */
void wb__oplink_arm(struct wb__oplink *l);
/** wb__oplink_on_heartbeat - the answer to a heartbeat of ours: it says which reports were heard,
 * and how far the operator's clock is from this one.  (The session answers the operator's own
 * heartbeats.) */
void wb__oplink_on_heartbeat(struct wb__oplink *l, const struct wb_msg_heartbeat *m);

/* opmsg.c */
/** wb__oplink_act - do what the operator says; a message that has no place in the present state
 * ends the channel.  @m stays the caller's, except what is taken out of it. */
void wb__oplink_act(struct wb__oplink *l, uint16_t type, union wb_msg *m);

/* uplink.c */
/** wb__oplink_news - timer function: send the list of workers, and parts of uploads. */
void wb__oplink_news(void *cookie);
/** wb__oplink_look_at_rails - tell the operator when a port went down, or came up. */
void wb__oplink_look_at_rails(struct wb__oplink *l);
/** wb__uploads_add - WANT came: queue its digests; news_timer sends their content.  A digest that
 * is malformed, or too many of them, ends the channel. */
void wb__uploads_add(struct wb__oplink *l, const struct wb_msg_want *m);
/** wb__uploads_reset - forget all uploads, since a new channel begins without any. */
void wb__uploads_reset(struct wb__oplink *l);

/* optls.c */
/** wb__oplink_tls - make or refresh the TLS context for the next dial.  0 or negative.  Blocks for
 * small files. */
int wb__oplink_tls(struct wb__oplink *l, struct wb_err *err);
/** wb__oplink_token - read the pod's token, which is secret; NULL or "" = none.  Release with
 * wb__oplink_token_free(). */
char *wb__oplink_token(const struct wb__oplink *l);
void wb__oplink_token_free(char *token);

#endif
