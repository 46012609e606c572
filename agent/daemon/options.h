/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_OPTIONS_H
#define WB_DAEMON_OPTIONS_H
/*
 * Command line of weightbridge-agent: one table gives the parser and the help text.
 *
 * Layer: daemon (L4).
 */
#include "base/cli.h"
#include "xport/xport.h"

#include <stdint.h>

struct wb_err;

#define WB_AGENT_SOCKET "/run/weightbridge/agent.sock"
#define WB_AGENT_PAGES_SUFFIX ".http" /* of the socket beside it, for probes and wbctl */

#define WB__OBJECTS_MAX 8 /* served by one agent */

/* An object that is served here, and how we prove to the operator that we may speak for it. */
struct wb__served {
	const char *object; /* "" = the object that the operator names */
	const char *psk_file; /* "" = a token instead */
	const char *token_file;
};

struct wb__options {
	const char *name, *node; /* borrowed from argv or static, like all strings here */
	const char *socket;
	uint32_t socket_mode; /* 0 = 0600, with a token 0666 */
	struct wb_cli_addr operator;
	struct wb__served served[WB__OBJECTS_MAX];
	uint32_t n_served, n_psk_file, n_token_file;
	const char *ca_file, *operator_name; /* "" = none, the host dialled */
	struct wb_cli_addr listen;
	const char *advertise; /* "" = the listen address, or this host's own */
	const char *transport; /* names with commas, or "auto" */
	const char *shm_folder; /* "" = agents of this host meet in their network namespace */
	const char *gpu_lane; /* "worker" or "agent" */
	bool imports; /* gpu_lane is "agent" */
	uint64_t rail_bytes_per_s; /* 0 = no cap */
	uint32_t n_rail;
	const char *rail_device; /* verbs: "" = any; else "DEVICE[/PORT],.." one a rail */
	uint32_t rdma_traffic_class, rdma_service_level; /* verbs */
	bool no_rdma_windows; /* verbs */
	/* What each rail is (rails.h); n_named 0: all alike. */
	const char *named[WB_XPORT_RAILS_MAX];
	uint32_t n_named;
	uint64_t staging_limit_bytes; /* 0 = as much as the control group leaves */
	uint64_t buffer_bytes; /* 0 = by the object and the number of workers */
	const char *port_file; /* NULL = none */
	struct wb_cli_addr http;
	bool asks_for_metrics; /* metrics are shown only for a token that may read them */
	bool no_bench; /* nobody measures from or to here */
	uint64_t grace_ns;
	const char *probe; /* "" = run; else ask a running agent: see probe.h */
};

/** wb__options_parse - read the command line; returns as wb_cli_parse(). */
int wb__options_parse(int argc, char **argv, struct wb__options *o, struct wb_err *err);

#endif
