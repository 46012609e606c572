/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_LINK_H
#define WB_TRANSFER_LINK_H
/*
 * A link: a bulk connection that this agent dials to another one of an epoch, when a flow first
 * wants a chunk from there.  (Control messages go by a wire.)
 *
 * Workers have rails (wb_roster_worker.rails), and workers with the same rails share links: between
 * two agents there is one link for each pair of a set of rails here and a set there.  Where each
 * worker has all rails, that is one link.
 *
 * A link is not dialled (conn 0), being dialled (conn, not up), or up.  Invariants: a link that is
 * up has a conn; a link that is wanted is in `listed`, once.
 */
#include "transfer/internal.h"

/* When nobody has listened for this long, no process that would know this plan is coming back. */
#define TRANSFER_NOBODY_NS WB_NS_PER_S

struct link {
	uint32_t agent;
	uint32_t here, there; /* rails of this agent and of that one, a bit each; 0 = all */
	wb_conn_t conn; /* 0 = none */
	bool up;
	uint32_t at; /* which of the peer's addresses to dial */
	uint64_t retry_ns, backoff_ns;
	bool is_wanted; /* somebody asked for it since the last tick */
	bool is_listed;
	bool is_unknown; /* the agent answered, and does not know this plan */
	uint64_t nobody_ns; /* all dials since then found nobody there; 0 = not so */
	uint64_t wanted_ns; /* since when somebody has waited for it in vain; 0 = nobody */
	/* In which transfer it was last lost, how often in that one, and why the last time. */
	uint64_t lost_transfer;
	uint32_t n_lost;
	char lost[200];
};

/* The links of an epoch. */
struct links {
	struct link *link; /* owned, n of them: by agent, by set here, by set there */
	uint32_t n;
	/* Owned, by agent: its first link; how many sets of rails it has. */
	uint32_t *first, *n_set;
	uint32_t *set; /* owned, by plan worker: its set among those of its agent */
	/* owned: links that somebody waits for, or did until the last tick */
	uint32_t *listed, n_listed;
	bool lends; /* by the plan, workers here get some of their bytes by rails of others here */
};

/** wb__transfer_links_create - make the links by the roster, none of them dialled.  0 or -ENOMEM;
 * call wb__transfer_links_finish() after either. */
int wb__transfer_links_create(struct epoch *e);
/** wb__transfer_links_finish - free all links, without telling the transport. */
void wb__transfer_links_finish(struct epoch *e);
/** wb__transfer_links_window - how many grants of a pair of workers keep all its rails busy; 0: the
 * common window is enough. */
uint32_t wb__transfer_links_window(const struct epoch *e);
/** wb__transfer_link_conn - the connection from the rails of plan worker @src, of another agent, to
 * those of plan worker @dst here; 0: there is none yet, it is dialled when it can be.  @may_miss:
 * nobody waits for it. */
wb_conn_t wb__transfer_link_conn(struct epoch *e, uint32_t dst, uint32_t src, bool may_miss);
/** wb__transfer_link_up - a dialled connection stands: flows of the epoch may ask there.  Does
 * nothing for one that the other side dialled. */
void wb__transfer_link_up(struct epoch *e, wb_conn_t conn);
/** wb__transfer_link_down - a connection has ended.  If it was never up, the peer's next address is
 * dialled next.  Does nothing when it is none of the epoch's links. */
void wb__transfer_link_down(struct epoch *e, const struct wb_xport_event *ev);
/** wb__transfer_links_tick - dial again, and give up sources that cannot be reached; after the
 * flows' ticks, which say whom they miss.  When to call again, 0 = never. */
uint64_t wb__transfer_links_tick(struct object *o, uint64_t now);

#endif
