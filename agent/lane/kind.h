/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_KIND_H
#define WB_LANE_KIND_H
/*
 * What a kind of lane has to implement; lane.h says what it promises to its user.
 *
 * Besides the kinds of this folder there are lanes that only model one: their time is simulated.
 * Threads: as lane.h says.  Layer: lane (L2).
 */
#include "lane/lane.h"

#include <stdbool.h>

struct wb_lane_ops {
	int (*submit)(struct wb_lane *l, const struct wb_lane_job *job); /* n_out < depth */
	int (*reap)(struct wb_lane *l, struct wb_lane_job *job, int n);
	bool (*is_due)(struct wb_lane *l); /* there is something to reap; NULL: fd is -1 */
	void (*abort)(struct wb_lane *l);
	void (*destroy)(struct wb_lane *l);
};

/* First member of every kind. */
struct wb_lane {
	const struct wb_lane_ops *ops;
	uint32_t depth, n_out;
	int fd; /* readable when there is something to reap; -1 = none */
	bool is_aborted;
};

#endif
