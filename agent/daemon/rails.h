/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_RAILS_H
#define WB_DAEMON_RAILS_H
/*
 * The rails of this agent: which network interfaces they are, and which workers each rail belongs
 * to.
 *
 * A rail that is named (--rail) is one network interface, by its address, and belongs to workers:
 * what they send and get goes over it only.  Rails that are only counted (--rails) share the listen
 * address, and all of them carry for everybody.
 *
 * Layer: daemon (L4).
 */
#include "base/hash.h"
#include "daemon/addr.h"
#include "daemon/options.h"
#include "planner/plan.h"

#include <sched.h>
#include <string.h>

#define WB__RAIL_PLACES_MAX 64

struct wb__rail {
	char addr[WB__ADDR_MAX]; /* own address, numeric */
	char interface[64]; /* interface that has the address; "" = not found */
	uint64_t bytes_per_s; /* cap in each direction; 0 = none */
	uint64_t link_bytes_per_s; /* what the interface can do; 0 = not known */
	int numa; /* node of the interface, WB_NUMA_UNKNOWN */
	uint64_t places; /* places of workers that --rail names, a bit each; 0 = it names none */
	cpu_set_t cpus; /* CPUs of its NUMA node */
};

struct wb__rails {
	struct wb__rail rail[WB_XPORT_RAILS_MAX];
	uint32_t n;
	/* Named by --rail; else they share one address, and no worker has a rail of its own. */
	bool is_named;
};

/** wb__rail_rate - bytes a second that a rail carries in each direction, for plans: its cap, or
 * what its interface can do if that is less.  0 = not known. */
static inline uint64_t wb__rail_rate(const struct wb__rail *r)
{
	return r->bytes_per_s && (!r->link_bytes_per_s || r->bytes_per_s < r->link_bytes_per_s)
		       ? r->bytes_per_s
		       : r->link_bytes_per_s;
}

/** wb__rail_nic - a number that stands for the rail's interface, made from its address, so that it
 * is the same in all agents that use the interface; 0 = the rail's cap is less than what the
 * interface can do, or nothing is known. */
static inline uint64_t wb__rail_nic(const struct wb__rail *r)
{
	return r->link_bytes_per_s && wb__rail_rate(r) == r->link_bytes_per_s
		       ? wb_hash64(r->addr, strlen(r->addr), 0)
		       : 0;
}

/** wb__rails_find - the rails that the options ask for
 * @listen:	own address of rails that are only counted
 * @family:	an address; when an interface has several, one of this address's family is taken; ""
 *		= any
 * Blocks (name service).  0, or negative with the option named: no address of this host, the same
 * address twice.
 */
int wb__rails_find(const struct wb__options *o, const char *listen, const char *family,
	struct wb__rails *out, struct wb_err *err);

struct wb__rails_worker {
	enum wb_role role;
	const char *engine; /* borrowed; NULL or "" = none */
	int64_t rank; /* as claimed, -1 = none */
	uint32_t id; /* decides between workers that are equal otherwise */
	int numa; /* node that it runs on, WB_NUMA_UNKNOWN */
	uint32_t rails; /* out: rails that carry its bytes, a bit each; 0 = all */
};

/**
 * wb__rails_share - decide which workers each rail belongs to
 * @w:	all @n workers of one object here; are sorted, and .rails is set
 * Trainers have places from 0 on, and so have rollouts, each in the order of engine and rank: a
 * trainer and a rollout of one place are taken to share a GPU.  A rail that names places belongs to
 * the workers there.  The other rails go round among the workers that no rail names: rails of a
 * NUMA node among its workers, and where the node is not known, or has no worker, among the rest.
 * No rail is left over; a worker that gets none uses all.  Pure.
 */
void wb__rails_share(const struct wb__rails *r, struct wb__rails_worker *w, uint32_t n);

#endif
