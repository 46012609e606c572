/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_INTERNAL_H
#define WB_LANE_INTERNAL_H
/* Shared by the kinds of lanes. */
#include "lane/lane.h"

#include <stdbool.h>

#define WB__LANE_DEPTH 64u
#define WB__LANE_DEPTH_MAX 4096u

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

/** wb__lane_depth - the depth asked for, or -EINVAL. */
int wb__lane_depth(const struct wb_lane_opts *o, uint32_t *depth_out, struct wb_err *err);
/** wb__lane_run - do @job here and set its results. */
void wb__lane_run(struct wb_lane_job *job);
/** wb__lane_signal - add one to an eventfd; wb__lane_drain - take all, without blocking. */
void wb__lane_signal(int fd);
void wb__lane_drain(int fd);
/** wb__lane_wait - take all from an eventfd, blocking.  0 or -errno. */
int wb__lane_wait(int fd);

#endif
