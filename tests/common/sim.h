/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_SIM_H
#define WB_TESTS_SIM_H
/*
 * A network in one process and one thread: nodes, messages, timers, bulk transports, faults.
 *
 * Everything happens in wb_sim_step(), in the order of (time, number), by a fake clock that jumps
 * from event to event.  The same seed, rules and calls give the same run.  Bytes pass each node's
 * egress and each node's ingress at a rate, then take a latency and a random jitter; order is kept
 * within a message pipe (from, to) and within a socket of a connection, not across them, unless a
 * rule says so.  Rails are as with tcp: each has its own egress and ingress, and a connection has a
 * socket for each of the rails of either side.
 *
 * A node is an agent (or an operator, a worker).  Its transport (wb_xport_open("sim", ...) with
 * opts.medium = the net and opts.name = the node's name; the first net registers it) makes events
 * that wb_xport_poll() gives; on_ready says when to poll.  Callbacks run inside wb_sim_step() only
 * and may call anything here but wb_sim_step(), wb_sim_net_destroy(). What it owes its users the
 * book keeps (xport/book.h), as for tcp and shm.
 */
#include "base/clock.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_sim_net;

struct wb_sim_opts {
	uint64_t seed;
	uint64_t latency_ns; /* 0 = 20 us */
	uint64_t jitter_ns; /* up to so much more, random; may be 0 */
	uint64_t bytes_per_s; /* of each node, each direction; 0 = 10 GB/s */
	/* WB_XPORT_CAP_LOCAL: as with shm the receiver takes a chunk from the source's memory, when
	 * it hears of it, and says when it has done so.  WB_XPORT_CAP_REGIONS: sources must lie in
	 * regions.  WB_XPORT_CAP_UNTOUCHED is only said.  Of all transports of the net. */
	uint32_t caps;
	uint32_t piece_bytes; /* of a chunk on the wire at once; 0 = 256 KiB */
};

/** wb_sim_net_create - 0 or -ENOMEM.  Release with wb_sim_net_destroy(), after all transports of
 *  the net are closed. */
int wb_sim_net_create(const struct wb_sim_opts *o, struct wb_sim_net **out);
void wb_sim_net_destroy(struct wb_sim_net *net);
/** wb_sim_clock - the net's clock, valid as long as the net; starts at 1 s. */
const struct wb_clock *wb_sim_clock(const struct wb_sim_net *net);
/** wb_sim_rng - the net's random numbers, for whatever shall follow the seed. */
struct wb_rng *wb_sim_rng(struct wb_sim_net *net);
/** wb_sim_step - advance to the next event and let it happen; false: nothing left to happen. */
bool wb_sim_step(struct wb_sim_net *net);
/** wb_sim_run - step until nothing is left or the clock would pass @until_ns (then it stands
 *  there); returns the number of events. */
uint64_t wb_sim_run(struct wb_sim_net *net, uint64_t until_ns);

/* ---- timers --------------------------------------------------------------------------------- */

typedef void (*wb_sim_timer_fn)(void *ctx);
/** wb_sim_timer - call @fn once at @at_ns (now, when that is past; never from inside the call).
 *  Returns a number for wb_sim_timer_cancel(), or 0 when memory is out. */
uint64_t wb_sim_timer(struct wb_sim_net *net, uint64_t at_ns, wb_sim_timer_fn fn, void *ctx);
void wb_sim_timer_cancel(struct wb_sim_net *net, uint64_t timer);

/* ---- nodes and messages --------------------------------------------------------------------- */

struct wb_sim_node_ops { /* any may be NULL */
	/* bytes are borrowed for the call */
	void (*on_message)(void *ctx, const char *from, const void *data, size_t bytes);
	/* the pipe with @peer broke; what was under way either way is gone.  The next wb_sim_send()
	 * opens a new one. */
	void (*on_peer_down)(void *ctx, const char *peer);
	/* the node's transport has events */
	void (*on_ready)(void *ctx);
};

/** wb_sim_node_add - 0, -EEXIST, -EINVAL (name), -ENOMEM.  @ops and @ctx are borrowed. */
int wb_sim_node_add(
	struct wb_sim_net *net, const char *name, const struct wb_sim_node_ops *ops, void *ctx);
/** wb_sim_node_kill - the process dies now: no callback of it runs any more, nothing lands in its
 *  memory, its pipes and connections break.  Its transport only answers close.  The name may be
 *  added again. */
void wb_sim_node_kill(struct wb_sim_net *net, const char *name);
/** wb_sim_node_stall - SIGSTOP for @ns: what comes for the node waits. */
void wb_sim_node_stall(struct wb_sim_net *net, const char *name, uint64_t ns);
/** wb_sim_pipe_cut - break the pipe of messages between two nodes, both are told; no-op when there
 *  is none. */
void wb_sim_pipe_cut(struct wb_sim_net *net, const char *a, const char *b);
/** wb_sim_send - 0, -ENOENT (@from unknown), -ENOMEM, -EMSGSIZE (above 64 MiB).  A message to a
 *  node that does not exist breaks the pipe. */
int wb_sim_send(
	struct wb_sim_net *net, const char *from, const char *to, const void *data, size_t bytes);

/* ---- faults --------------------------------------------------------------------------------- */

enum wb_sim_fault_kind {
	WB_SIM_DROP, /* break the pipe or connection that carries the item; the item is lost */
	WB_SIM_DELAY, /* the item, and what follows it on its pipe, comes ns later */
	WB_SIM_DUP, /* messages and grants: the item comes twice (REORDER: the second one late) */
	WB_SIM_FLIP, /* data: one random bit of the piece is wrong */
	WB_SIM_STALL, /* the receiving node handles nothing for ns */
	WB_SIM_PARTITION, /* items wait until until_ns */
	WB_SIM_KILL, /* the receiving node dies */
	WB_SIM_REORDER, /* messages: the item comes up to ns later, what follows it may come before
			 */
};

enum { /* items */
	WB_SIM_MSG = 1u << 0,
	WB_SIM_GRANT = 1u << 1, /* grants and cancels */
	WB_SIM_DATA = 1u << 2, /* pieces of chunks, refusals, trailers */
	WB_SIM_CONNECT = 1u << 3,
	WB_SIM_ANY = 15,
};

struct wb_sim_fault {
	enum wb_sim_fault_kind kind;
	unsigned items; /* WB_SIM_MSG | ...; 0 = all */
	const char *from, *to; /* copied; NULL = any, "e1-*" = all whose names begin so */
	uint64_t from_ns, until_ns; /* window of the sending time; until 0 = for ever */
	uint64_t nth; /* only the n-th match, from 1; 0 = each */
	uint32_t ppm; /* probability of each match in millionths; 0 = always */
	uint64_t ns; /* DELAY, REORDER, STALL; the first two take a random time up to it */
	uint64_t *hits; /* counts those of this rule; NULL = nobody does */
};

/** wb_sim_fault_add - add a rule; at most 64.  0 or -ENOSPC, -ENOMEM. */
int wb_sim_fault_add(struct wb_sim_net *net, const struct wb_sim_fault *f);
/** wb_sim_faults_clear - forget all rules. */
void wb_sim_faults_clear(struct wb_sim_net *net);
/* What happened so far, for whoever wants to know that a simulation reached it. */
struct wb_sim_counts {
	uint64_t overtaken; /* items that came after a later one of their connection */
	uint64_t in_regions; /* writes whose source was looked for in regions */
	uint64_t outside; /* those of them that were not in one, and refused */
	uint64_t pulled; /* chunks that the receiver took from the source's memory */
	uint64_t deep; /* grants with more than 3 others outstanding on their connection */
};
/** wb_sim_counts - what has happened in the net so far; borrowed, goes on counting. */
const struct wb_sim_counts *wb_sim_counts(const struct wb_sim_net *net);
/** wb_sim_hits - how often any rule fired. */
uint64_t wb_sim_hits(const struct wb_sim_net *net);

#endif
