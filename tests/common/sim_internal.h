/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_SIM_INTERNAL_H
#define WB_TESTS_SIM_INTERNAL_H
/*
 * The event queue, nodes and faults that sim_net.c gives to the transport in sim.c.
 * One thread.  Layer: xport (L2), internal.
 */
#include "tests/common/sim.h"
#include "xport/xport.h"

#define WB__SIM_NAME_MAX 64

struct wb__simx;

/* Something that will happen.  First member of what is scheduled; run() or drop() frees it. */
struct wb__sim_ev {
	uint64_t at_ns, seq;
	size_t heap_at; /* its place in the queue */
	struct wb__sim_node *to; /* a stalled or dead node delays or drops it; NULL = nobody's */
	void (*run)(struct wb_sim_net *net, struct wb__sim_ev *e);
	void (*drop)(struct wb_sim_net *net, struct wb__sim_ev *e);
};

struct wb__sim_node {
	char name[WB__SIM_NAME_MAX];
	bool is_dead;
	const struct wb_sim_node_ops *ops;
	void *ctx;
	uint64_t stall_until_ns;
	uint32_t n_rail;
	struct wb__sim_rail {
		double rate; /* bytes/s of bulk data, each way */
		uint64_t egress_free_ns, ingress_free_ns;
	} rail[WB_XPORT_RAILS_MAX];
	struct wb__simx *x; /* its transport */
	bool is_ready_due; /* on_ready is scheduled */
	struct wb__sim_node *next;
};

/* What the rules do to one item. */
struct wb__sim_fate {
	bool is_dropped, is_doubled, is_flipped;
	uint64_t delay_ns, late_ns, hold_until_ns; /* late: overtaken by what follows */
};

/** wb__sim_schedule - let @e happen; takes it.  0, or -ENOMEM (then it is dropped). */
int wb__sim_schedule(struct wb_sim_net *net, struct wb__sim_ev *e, uint64_t at_ns);
/** wb__sim_now - the net's time in ns. */
uint64_t wb__sim_now(const struct wb_sim_net *net);
/** wb__sim_node_find - the living node of that name, or NULL. */
struct wb__sim_node *wb__sim_node_find(struct wb_sim_net *net, const char *name);
/** wb__sim_node_get - the living node of that name, made when missing; NULL: no memory. */
struct wb__sim_node *wb__sim_node_get(struct wb_sim_net *net, const char *name);
/** wb__sim_node_ready - its transport has events: on_ready follows. */
void wb__sim_node_ready(struct wb_sim_net *net, struct wb__sim_node *n);
/** wb__sim_fate - ask the rules about an item that is sent now. */
struct wb__sim_fate wb__sim_fate(
	struct wb_sim_net *net, unsigned item, struct wb__sim_node *from, struct wb__sim_node *to);
/** wb__sim_latency - one latency with its jitter. */
uint64_t wb__sim_latency(struct wb_sim_net *net);
/** wb__sim_rate - bytes a second of a rail that says no rate of its own. */
double wb__sim_rate(const struct wb_sim_net *net);
/** wb__sim_caps - WB_XPORT_CAP_* that its transports have. */
uint32_t wb__sim_caps(const struct wb_sim_net *net);
/** wb__sim_piece - bytes in which bulk data arrives. */
size_t wb__sim_piece(const struct wb_sim_net *net);
/** wb__sim_counts - the same as wb_sim_counts(), to count into. */
struct wb_sim_counts *wb__sim_counts(struct wb_sim_net *net);

/* sim.c: the transport, which the first net registers. */
extern const struct wb_xport_ops wb__xport_sim;

/** wb__simx_kill - sim.c: the node of @x died. */
void wb__simx_kill(struct wb__simx *x);

#endif
