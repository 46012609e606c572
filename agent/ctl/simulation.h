/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_SIMULATION_H
#define WB_CTL_SIMULATION_H
/*
 * What wbctl simulate is asked for: by options, and by a file of the same settings that options
 * overrule.  Layer: ctl (L4).
 */
#include "ctl/ctl.h"
#include "planner/deploy/deploy.h"

struct wb_err;
struct wb_yaml_node;

struct wb__ctl_simulation {
	struct wb__ctl_simulate as; /* texts, none missing; of the options and of doc */
	struct wb_deploy_spec spec;
	struct wb_yaml_node **doc; /* owned */
	size_t n_doc;
};

/** wb__ctl_simulation_read - of @o; blocks for its files.  0, or negative with a sentence that
 * names the option or the file's line; wb__ctl_simulation_finish() in either case. */
int wb__ctl_simulation_read(
	const struct wb__ctl_opts *o, struct wb__ctl_simulation *out, struct wb_err *err);
void wb__ctl_simulation_finish(struct wb__ctl_simulation *s);

#endif
