/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_OPLINK_INTERNAL_H
#define WB_DAEMON_OPLINK_INTERNAL_H
/*
 * Shared by oplink.c (the connection), opmsg.c (what messages mean) and uplink.c (what goes up).
 * Not for others.
 *
 * Invariants: there is a channel exactly while the session is not DOWN, and what comes is of that
 * one; content is uploaded one after the other, and only the first has been begun.
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
	int64_t offset_ns; /* our clock less the operator's */
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
	const struct wb__served *served; /* of the options */
	uint32_t index; /* of the object among those served here */
	struct wb_object_id id; /* the object's; uid 0 = not known yet */
	struct wb_tls *tls;
	struct wb_chan *chan;
	struct wb_session session;
	struct wb_timer *timer; /* retry when down, else what the session has to do */
	struct wb_timer *news_timer; /* list of workers, uploads */
	struct wb_rng rng;
	uint64_t backoff_ns;
	bool is_closing;
	uint64_t n_up;
	char address[300];
	char leader_host[WBP_HOST_MAX + 1]; /* where a standby sent us; "" = dial the address */
	uint16_t leader_port;
	bool is_sent_on; /* what is dialled is where a standby sent us */
	char trouble[WB_ERR_MSG_MAX];
	uint64_t term, term_operator; /* highest heard */
	uint64_t memory_limit_bytes;
	char object[WBP_NAME_MAX + 1], model[WBP_NAME_MAX + 1]; /* "" = not known yet */
	struct clock_sample clock, sample[8];
	uint64_t n_sample;
	struct wb__plans *plans;
	bool workers_due;
	char reduced[300]; /* a port that is down, as the operator was told; "" = none is */
	struct upload *upload; /* owned */
	size_t n_upload, upload_cap;
	struct wb_keep reports; /* until the operator has answered what was sent after */
};

/** wb__oplink_arm - the session's state has changed: look when it has something to do. */
void wb__oplink_arm(struct wb__oplink *l);
/** wb__oplink_on_heartbeat - the answer to ours: which reports were heard, and how far the
 *  operator's clock is from this one.  One that asks was answered by the session. */
void wb__oplink_on_heartbeat(struct wb__oplink *l, const struct wb_msg_heartbeat *m);

/* opmsg.c */
/** wb__oplink_act - do what the operator says; what has no place in the present state ends the
 *  channel.  @m is the caller's, as far as it is not taken. */
void wb__oplink_act(struct wb__oplink *l, uint16_t type, union wb_msg *m);

/* uplink.c */
/** wb__oplink_news - timer: send the list of workers and parts of uploads. */
void wb__oplink_news(void *cookie);
/** wb__oplink_look_at_rails - tell the operator when a port went down, or came up. */
void wb__oplink_look_at_rails(struct wb__oplink *l);
/** wb__uploads_add - WANT came: queue its digests; news_timer sends them.  What is no digest, or
 *  too many, ends the channel. */
void wb__uploads_add(struct wb__oplink *l, const struct wb_msg_want *m);
/** wb__uploads_reset - forget all of them, as a new channel begins without any. */
void wb__uploads_reset(struct wb__oplink *l);

/* optls.c */
/** wb__oplink_tls - make or refresh the context for the next dial.  Blocks for small files. */
int wb__oplink_tls(struct wb__oplink *l, struct wb_err *err);
/** wb__oplink_token - the pod's token, secret; NULL or "" = none.  wb__oplink_token_free(). */
char *wb__oplink_token(const struct wb__oplink *l);
void wb__oplink_token_free(char *token);

#endif
