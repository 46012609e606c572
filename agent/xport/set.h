/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_SET_H
#define WB_XPORT_SET_H
/*
 * A set of transports: what set.c (its operations) and set_open.c (which transports it has) share.
 *
 * Each member is a transport of its own and keeps its own book.  Its place in the set is its tag,
 * in the upper bits of its connections' numbers (wb_xport_opts.tag).  The set itself keeps:
 * regions, which have a number in each member; epochs, with the members that may carry them; and,
 * for a peer that can be reached in several ways, how often each way has failed.
 *
 * Invariants: an epoch has at least one member, and no more than the set has; an event that names a
 * connection comes from the member whose tag the connection's number has.
 * Threads: the loop's.  Layer: xport (L2), internal.
 */
#include "base/base.h"
#include "xport/book.h"
#include "xport/ways.h"

#define WB__SET_NAMES_MAX 64
#define WB__SET_OBJECTS_MAX 64

struct wb__member {
	struct wb_xport *x;
	char endpoint[WB__WAY_MAX]; /* its part of the endpoint text; "" = it does not serve */
	uint64_t off[WB__SET_OBJECTS_MAX]; /* objects whose memory it cannot have */
	uint32_t n_off;
};

struct wb__set_epoch {
	struct wb_epoch_id id;
	uint8_t order[WB_XPORT_SET_MAX]; /* members that may carry it, best first */
	uint32_t n;
};

struct wb__set_region {
	bool is_used;
	struct wb_xport_region r;
	uint32_t id[WB_XPORT_SET_MAX]; /* WB__REGION_NONE = not there */
};

/* A peer of an epoch that more than one member may reach. */
struct wb__trial {
	struct wb_epoch_id epoch;
	char peer[WB_XPORT_NAME_MAX];
	uint8_t usable; /* members that may reach it, a bit each */
	uint8_t fails[WB_XPORT_SET_MAX], is_said[WB_XPORT_SET_MAX];
	/* Why the last way that leaves the host was given up for another one; "" = none was. */
	char why[200];
};

struct wb__set {
	struct wb_xport base; /* first */
	struct wb_xport_ops ops; /* a copy of wb__set_ops with name and caps of this set */
	char name[WB__SET_NAMES_MAX];
	struct wb__member m[WB_XPORT_SET_MAX];
	uint32_t n, turn;
	int epfd;
	struct wb__set_epoch epoch[WB__EPOCHS_MAX];
	uint32_t n_epoch;
	struct wb__set_region *region;
	size_t n_region, cap_region;
	struct wb__trial *trial;
	size_t n_trial, cap_trial;
};

/** wb__set_ops - operations of a set; each set fills in .name and .caps. */
extern const struct wb_xport_ops wb__set_ops;
/** wb__set_close - close the members and free the set; also one that was not opened whole. */
void wb__set_close(struct wb_xport *x);

#endif
