/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/probe.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	struct wb_err err = {0};
	struct wb__options o;
	int rc = wb__options_parse(argc, argv, &o, &err);

	if (rc < 0) {
		fprintf(stderr, "weightbridge-agent: %s\n", err.msg);
		return WB_CLI_EXIT_USAGE;
	}
	if (rc == WB_CLI_DONE)
		return 0;
	if (o.probe[0])
		return wb__probe(&o);
	wb_log_set_name(o.name);
	return wb__agent_run(&o);
}
