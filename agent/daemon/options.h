/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_OPTIONS_H
#define WB_DAEMON_OPTIONS_H
/*
 * Command line of weightbridge-agent: one table gives the parser and the help text.
 *
 * Layer: daemon (L4).
 */
#include "xport/xport.h"

#include <stdbool.h>
#include <stdint.h>

struct wb_err;

#define WB_AGENT_SOCKET "/run/weightbridge/agent.sock"

struct wb__options {
	const char *name, *node; /* borrowed from argv or static, as all strings here */
	const char *socket;
	char operator_host[256];
	uint16_t operator_port; /* 0 = no operator was named */
	const char *psk_file; /* "" = a token instead */
	const char *token_file, *ca_file, *operator_name; /* "" = none, none, the host dialled */
	const char *object; /* "" = what the operator says */
	char listen_host[256];
	uint16_t listen_port;
	const char *advertise; /* "" = the listen address, or this host's own */
	const char *transport;
	uint64_t rail_bytes_per_s; /* 0 = no cap */
	uint32_t n_rail;
	uint64_t staging_limit_bytes; /* 0 = what the control group leaves */
	uint64_t buffer_bytes; /* 0 = from the object and the number of workers */
	const char *port_file; /* NULL = none */
	bool has_http;
	char http_host[256];
	uint16_t http_port;
	bool sums;
	uint64_t grace_ns;
	const char *log_format, *log_level;
};

enum wb__options_end { WB__OPTIONS_RUN, WB__OPTIONS_DONE };

/**
 * wb__options_parse - read the command line
 * Prints the text of --help and --version to stdout.  Returns WB__OPTIONS_RUN, WB__OPTIONS_DONE, or
 * -EINVAL with a sentence that names the option.
 */
int wb__options_parse(int argc, char **argv, struct wb__options *o, struct wb_err *err);

/** wb__parse_size - "64Mi", "1.5G", "100MB/s" (with @per_second) to bytes.  0 or -EINVAL. */
int wb__parse_size(const char *text, bool per_second, uint64_t *out);
/** wb__parse_host_port - "host:port", "[::1]:port", ":port" ("" host).  0 or -EINVAL. */
int wb__parse_host_port(const char *text, char *host_out, size_t host_bytes, uint16_t *port_out);

#endif
