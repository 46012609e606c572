/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/sim/sim.h"

#include <errno.h>

int wb_sim_net_create(const struct wb_sim_opts *o, struct wb_sim_net **out)
{
	(void)o;
	(void)out;
	return -ENOSYS;
}

void wb_sim_net_destroy(struct wb_sim_net *net)
{
	(void)net;
}

bool wb_sim_step(struct wb_sim_net *net)
{
	(void)net;
	return false;
}
