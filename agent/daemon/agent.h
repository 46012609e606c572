/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_AGENT_H
#define WB_DAEMON_AGENT_H
/*
 * The agent: everything that lives as long as the process, and the order of start and stop.
 *
 * One loop thread runs all of this; rail and lane threads live inside xport and lane.  The core
 * (transfer/core.h) decides, the parts here carry: apps (workers), peers (agents), oplink (the
 * operator), env (the core's calls out, pumping, timers).
 * Layer: daemon (L4).
 */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/addr.h"
#include "daemon/limits.h"
#include "daemon/options.h"
#include "daemon/rails.h"
#include "net/tls.h"
#include "proto/session.h"
#include "transfer/core.h"

#include <stdbool.h>
#include <stdint.h>

struct wb__apps;
struct wb__env;
struct wb__gate;
struct wb__http;
struct wb__measure;
struct wb__oplink;
struct wb__peers;
struct wb__trace_ring;
struct wb_fault;
struct wb_listener;
struct wb_loop;
struct wb_signal;
struct wb_timer;
struct wb_xport;

enum wb__control {
	WB__CONTROL_OPERATOR,
	WB__CONTROL_AGENT, /* other agents */
	WB__CONTROL_WORKER,
	WB__CONTROL_KINDS,
};

#define WB__MISMATCH_TEXT 320
#define WB__DEVICE_MAX 68 /* "mlx5_0/1", with the NUL */

struct wb__agent {
	struct wb__options o;
	uint64_t instance; /* random number of this run */
	struct wb_loop *loop;
	struct wb_fault *fault;
	struct wb_xport *xport;
	struct wb__addrs addrs; /* told to other agents, best first */
	const char *hosts[WB__ADDRS_MAX]; /* the same, as a list */
	struct wb__rails rails;
	char bulk[WB_XPORT_ENDPOINT_MAX]; /* what peers dial for bytes: all ways, best first */
	/* The same, one way each: better ones first, last the one that every agent knows. */
	char way[WB_XPORT_SET_MAX][WB_XPORT_ENDPOINT_MAX];
	const char *ways[WB_XPORT_SET_MAX];
	uint32_t n_ways; /* how many; the last is the one that every agent knows */
	/* Names what agents here share memory by (wb_xport_memory()); "" = this one shares none. */
	char memory[65];
	uint64_t memory_bytes_per_s; /* how much of that memory one thread copies */
	struct wb__env *env; /* core, its timers and watches, the arena */
	struct wb_transfer_core *core; /* owned by env */
	struct wb__apps *apps;
	struct wb__peers *peers;
	struct wb__oplink *oplink[WB__OBJECTS_MAX]; /* by object served here */
	uint32_t n_oplink;
	struct wb__gate *gate; /* NULL = everybody may read metrics */
	struct wb__measure *measure;
	struct wb__http *http;
	struct wb_session_counts control[WB__CONTROL_KINDS];
	struct wb__trace_ring *trace;
	struct wb_listener
		*listener[1 + WB_XPORT_RAILS_MAX]; /* the agent's address, then those of rails */
	uint32_t n_listener;
	struct wb_tls *tls; /* server side, towards agents */
	uint16_t port; /* of the listener */
	uint64_t open_files; /* open files that this process may have */
	/* By object served here: what its plan needs. */
	struct wb__limits_need need[WB__OBJECTS_MAX];
	struct wb_signal *sigterm, *sigint;
	struct wb_timer *drain_timer;
	uint64_t drain_until_ns; /* 0 = not draining */
	bool is_stopping; /* the loop is being left */
	int exit_code;
	/* bounds log lines about those who connect and are refused */
	struct wb_log_bound log_bound;
	char mismatch[WB__MISMATCH_TEXT]; /* the last checksum that differed, of any object */
};

/** wb__agent_run - start, run until a signal or a failure, stop.  Returns the exit status of the
 *  program; says why on the log. */
int wb__agent_run(const struct wb__options *o);
/** wb__agent_may_log - may one more line be logged about somebody who connects to this agent's port
 * and is refused?  Anybody can cause such lines, as often as he likes. */
static inline bool wb__agent_may_log(struct wb__agent *a)
{
	return wb_log_may(&a->log_bound, "agent", wb_now_ns(&wb_clock_real));
}
/** wb__agent_quit - leave the loop with @exit_code (that of the first call counts). */
void wb__agent_quit(struct wb__agent *a, int exit_code);
/** wb__agent_is_draining - was the agent told to end, and does it still serve what has begun? */
static inline bool wb__agent_is_draining(const struct wb__agent *a)
{
	return a->drain_until_ns != 0;
}

#endif
