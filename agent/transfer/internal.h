/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_INTERNAL_H
#define WB_TRANSFER_INTERNAL_H
/*
 * The core itself: one for each agent.  It owns the workers that are attached, the objects whose
 * versions move here, and grants that came too early.  Everything else hangs on an object
 * (object.h).
 *
 * Invariants: events do not nest (env functions do not call back); what an agent says to itself is
 * queued, and handled at the end of the event that said it, so that no handler is entered twice.
 * Headers of this folder other than core.h and roster.h are for its own files, and for its tests.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "transfer/core.h"

#define TRANSFER_WORKERS_MAX 256
#define TRANSFER_ORPHANS_MAX 1024
#define TRANSFER_ARENAS_MAX 8
#define TRANSFER_RETRY_MIN_NS (50 * WB_NS_PER_MS)
#define TRANSFER_RETRY_MAX_NS (2 * WB_NS_PER_S)
#define TRANSFER_LATE_NS                                                                           \
	(WB_NS_PER_S / 2) /* for a party to say what it waits for at the deadline */

struct epoch;
struct object;
struct worker;

/* A grant that came before the flow that it is for.  It waits for that flow, for as long as a
 * transfer may take. */
struct orphan {
	struct wb_xport_event ev;
	struct epoch *e;
	uint64_t until_ns;
};

/* A message of this agent to itself, in another of its roles. */
struct loop_msg {
	struct loop_msg *next;
	struct wb_epoch_id epoch;
	uint8_t *bytes; /* owned: the message, encoded */
	size_t len;
};

struct wb_transfer_core {
	struct wb_transfer_opts o;
	struct {
		struct wb_object_id object;
		void *base;
		size_t bytes;
	} arena[TRANSFER_ARENAS_MAX];
	uint32_t n_arena;
	const struct wb_transfer_env *env;
	char *agent;
	struct wb_rng dials; /* spreads the times of the next dials */
	struct object *objects;
	struct worker *worker[TRANSFER_WORKERS_MAX];
	uint32_t n_worker;
	struct orphan *orphan;
	uint32_t n_orphan;
	struct loop_msg *self_head,
		**self_tail; /* messages to ourselves, handled after each event */
	bool draining_self;
	uint64_t violations; /* messages that their sender may not send */
	struct { /* runs of digest.c, by number */
		uint64_t begun, done;
		struct wb_buf page; /* what the last one found */
	} digest;
	struct {
		wb_conn_t conn;
		struct epoch *e;
		uint32_t agent; /* at its other end; n_agent of the roster = unknown */
		bool is_dialer; /* this agent has dialled: bytes come to it */
		const char *via; /* name of the transport, which owns it */
	} * conn;
	size_t n_conn, cap_conn; /* sorted by .conn */
};

/** now_ns - the env's clock. */
static inline uint64_t now_ns(const struct wb_transfer_core *c)
{
	return wb_now_ns(c->env->clock);
}

/** sooner - the earlier of two times; 0 is never. */
static inline uint64_t sooner(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/** wb__transfer_send - send @m, made by WB_PEER(), to an agent of the epoch, which may be this one.
 * @m is copied, and what every kind has (peers.h) is filled in. */
void wb__transfer_send(struct epoch *e, uint32_t agent, const struct wb_msg_peer *m);
/** wb__transfer_drain_self - handle what this agent has said to itself; called at the end of an
 * event. */
void wb__transfer_drain_self(struct wb_transfer_core *c);
/** wb__transfer_check - asserts what the headers of this folder call invariants (check.c). */
void wb__transfer_check(struct wb_transfer_core *c);
/** wb__transfer_trace - a mark for the trace: what happened to whom; @v is a count or bytes. */
void wb__transfer_trace(
	struct object *o, const char *what, const char *who, uint64_t transfer, uint64_t v);
/** wb__transfer_fault - WB_FAULT may end the process here. */
void wb__transfer_fault(
	const struct object *o, enum wb_fault_place place, uint64_t transfer, int64_t version);
/** wb__transfer_worker - by the daemon's number; NULL = not attached.  Borrowed. */
struct worker *wb__transfer_worker(const struct wb_transfer_core *c, uint32_t id);
/** wb__transfer_orphans_refuse - refuse grants that came before their flow if that flow will not
 * come any more. */
void wb__transfer_orphans_refuse(struct epoch *e);

#endif
