/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_INTERNAL_H
#define WB_LANE_INTERNAL_H
/* Shared by the kinds of lanes. */
#include "lane/kind.h"

#define WB__LANE_DEPTH 64u
#define WB__LANE_DEPTH_MAX 4096u

/** wb__lane_depth - the depth asked for, or -EINVAL. */
int wb__lane_depth(const struct wb_lane_opts *o, uint32_t *depth_out, struct wb_err *err);
/** wb__lane_run - do @job in this thread, and set its results. */
void wb__lane_run(struct wb_lane_job *job);
/* Bytes [begin, end) of the wire. */
struct wb__lane_span {
	uint64_t begin, end;
};
/** wb__lane_spans - the spans of the wire that @n boxes cover, in order, no two touching each
 * other; @out has room for @n.  Returns their number.  Boxes must end before 2^64. */
uint32_t wb__lane_spans(const struct wbk_box *box, uint32_t n, struct wb__lane_span *out);
/** wb__lane_signal - add one to an eventfd; wb__lane_drain - take all, without blocking. */
void wb__lane_signal(int fd);
void wb__lane_drain(int fd);
/** wb__lane_wait - take all from an eventfd, blocking.  0 or -errno. */
int wb__lane_wait(int fd);

#endif
