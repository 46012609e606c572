/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_TRAVEL_H
#define WB_CTL_TRAVEL_H
/* What an operator has to do for a plan: make it from what agents uploaded, and send it out. */
#include "planner/deploy/deploy.h"

struct wb_err;

struct wb__ctl_travel {
	double head_mib,
		part_max_mib; /* what every agent gets, and the most that one gets beside it */
	/* From uploaded maps to the plan as it travels, when an engine leaves or joins: the greater
	 * time of both.  Of a deployment with one engine, to plan it again. */
	double replan_ms;
};

/** wb__ctl_travel - of the plan @p of deployment @d; 0, or a negative code with a sentence. */
int wb__ctl_travel(const struct wb_deploy *d, const struct wb_plan *p, struct wb__ctl_travel *out,
	struct wb_err *err);

#endif
