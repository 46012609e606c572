/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_LINK_H
#define WB_TRANSFER_LINK_H
/*
 * A link: a bulk connection that this agent dials to another one of an epoch, when a flow first
 * wants a chunk from there.  (Control messages go by a wire.)
 *
 * Workers have rails (wb_roster_worker.rails), and those that have the same ones share links: of
 * two agents there is one link for each set of rails here and each set there.  Where all rails are
 * everybody's that is one.
 *
 * Not dialled (conn 0), being dialled (conn, not up), up.  Invariants: one that is up has a conn;
 * who is wanted is in the list of those, once.
 */
#include "transfer/internal.h"

/* Where nobody has listened for so long no process is coming back that would know this plan. */
#define TRANSFER_NOBODY_NS WB_NS_PER_S

struct link {
	uint32_t agent;
	uint32_t here, there; /* rails of this agent and of that one, a bit each; 0 = all */
	wb_conn_t conn; /* 0 = none */
	bool up;
	uint32_t at; /* which of the peer's addresses to dial */
	uint64_t retry_ns, backoff_ns;
	bool is_wanted; /* since the last tick */
	bool is_listed;
	bool is_unknown; /* the agent answered, and does not know this plan */
	uint64_t nobody_ns; /* all dials since then found nobody there; 0 = not so */
	uint64_t wanted_ns; /* somebody waits for it in vain since; 0 = nobody */
	uint64_t lost_transfer; /* when it was lost, so often, and the last time why */
	uint32_t n_lost;
	char lost[200];
};

/* Of an epoch. */
struct links {
	struct link *link; /* owned, n: by agent, by set here, by set there */
	uint32_t n;
	uint32_t *first, *n_set; /* owned, by agent: its first link; sets of rails */
	uint32_t *set; /* owned, by plan worker: which of its agent's */
	uint32_t *listed, n_listed; /* owned: those that somebody waits for, or did */
	bool lends; /* by the plan, workers here get some of their bytes by rails of others here */
};

/** wb__transfer_links_create - none is dialled; by the roster.  0 or -ENOMEM; then too
 *  wb__transfer_links_finish(). */
int wb__transfer_links_create(struct epoch *e);
/** wb__transfer_links_finish - forget them all, without a word to the transport. */
void wb__transfer_links_finish(struct epoch *e);
/** wb__transfer_links_window - grants of a pair of workers that keep all its rails busy; 0: the
 *  common window does. */
uint32_t wb__transfer_links_window(const struct epoch *e);
/** wb__transfer_link_conn - the connection from the rails of worker @src of another agent to those
 *  of worker @dst here, plan workers; 0: none yet, it is dialled.  @may_miss: nobody waits for it.
 */
wb_conn_t wb__transfer_link_conn(struct epoch *e, uint32_t dst, uint32_t src, bool may_miss);
/** wb__transfer_link_up - a dialled connection stands: flows of the epoch may ask there.  Nothing
 * when it is one that the other side dialled. */
void wb__transfer_link_up(struct epoch *e, wb_conn_t conn);
/** wb__transfer_link_down - a connection has ended: one that was never up is next dialled at the
 * peer's next address.  Nothing when it is none of the epoch's links. */
void wb__transfer_link_down(struct epoch *e, const struct wb_xport_event *ev);
/** wb__transfer_links_tick - dial again, and give up sources that cannot be reached; after the
 * flows' ticks, which say whom they miss.  When to call again, 0 = never. */
uint64_t wb__transfer_links_tick(struct object *o, uint64_t now);

#endif
