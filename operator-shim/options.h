/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_OPTIONS_H
#define WB_OPERATOR_OPTIONS_H
/*
 * Command line of weightbridge-operator: one table gives the parser and the help text.
 */
#include "base/cli.h"

#include <stdbool.h>
#include <stdint.h>

struct wb_err;

#define WB_OPERATOR_FILES_MAX 64
#define WB_OPERATOR_NAMES_MAX 16
#define WB_OPERATOR_BUDGETS_MAX 32
#define WB_OPERATOR_WATCHED_MAX 16
#define WB_OPERATOR_PORT 7443

struct wb__operator_options {
	const char *file[WB_OPERATOR_FILES_MAX]; /* borrowed from argv, as all strings here */
	uint32_t n_file;
	struct wb_cli_addr listen, http, probes;
	bool asks_for_metrics; /* metrics are given only to those who show a token */
	const char *psk_file; /* "" = tokens */
	const char *tls_cert, *tls_key; /* "" = a shared key, or a Secret */
	const char *tls_ca; /* "" = agents get it from elsewhere */
	const char *tls_secret; /* "" = the certificate is not in a Secret */
	const char *tls_name[WB_OPERATOR_NAMES_MAX];
	uint32_t n_tls_name;
	const char *port_file; /* "" = none */
	const char *name;
	/* A cluster instead of files. */
	bool is_in_cluster;
	const char *kubeconfig; /* "" = not given */
	const char *watch_namespace[WB_OPERATOR_WATCHED_MAX]; /* none = all */
	uint32_t n_watch_namespace;
	const char *lease; /* "namespace/name"; "" = default */
	const char *advertise; /* "host:port", an IPv6 address in brackets; "" = not known */
	char advertise_text[300];
	uint64_t settle_ns;
	uint32_t n_series;
	/* Memory from which budgets are sized; 0 = what the process may use */
	uint64_t memory_bytes;
	uint64_t planning_bytes; /* 0 = a share of memory_bytes */
	const char *budget[WB_OPERATOR_BUDGETS_MAX]; /* see wb_budget_override() */
	uint32_t n_budget;
};

/** wb__operator_has_tokens - agents show tokens of their pods, not a shared key. */
static inline bool wb__operator_has_tokens(const struct wb__operator_options *o)
{
	return o->tls_cert[0] || o->tls_secret[0];
}

struct wb_budget_limits;
/** wb__operator_limits - compute the budgets: sized from the memory, then changed as the options
 * say.  @memory: bytes that the process may use. */
void wb__operator_limits(
	const struct wb__operator_options *o, uint64_t memory, struct wb_budget_limits *out);

/** wb__operator_parse - read the command line.  Returns as wb_cli_parse(). */
int wb__operator_parse(int argc, char **argv, struct wb__operator_options *o, struct wb_err *err);

#endif
