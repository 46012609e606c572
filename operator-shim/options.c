/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/options.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "operator-shim/serve/budget.h"
#include "operator-shim/serve/serve.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_lease(const char *s)
{
	return wb_cli_is_object(s, 317) && strchr(s, '/') - s < 64;
}

/* Add the brackets of an IPv6 address: a pod knows its own address without them. */
static void put_brackets(const char *addr, char *out, size_t bytes)
{
	const char *colon = strrchr(addr, ':');

	if (colon && memchr(addr, ':', (size_t)(colon - addr)) && addr[0] != '[')
		snprintf(out, bytes, "[%.*s]%s", (int)(colon - addr), addr, colon);
	else
		snprintf(out, bytes, "%s", addr);
}

static bool is_reachable(const char *s)
{
	char text[300];
	struct wb_cli_addr a;

	put_brackets(s, text, sizeof(text));
	return wb_cli_addr(text, &a) == 0 && a.host[0];
}

/* The namespace becomes part of a path. */
static bool is_namespace(const char *s)
{
	return *s && strlen(s) <= 63 && !s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")];
}

/* The name becomes part of a certificate. */
static bool is_dns_name(const char *s)
{
	return strlen(s) <= 253 && !s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-")];
}

/* Other budgets and --memory may follow on the command line, so the budget is compared with the
 * limits for a very large memory only. */
static bool is_budget(const char *s)
{
	struct wb_budget_limits any;

	wb_budget_size(UINT64_C(1) << 50, &any);
	return wb_budget_override(&any, s) == 0;
}

void wb__operator_limits(
	const struct wb__operator_options *o, uint64_t memory, struct wb_budget_limits *out)
{
	wb_budget_size(o->memory_bytes ? o->memory_bytes : memory, out);
	if (o->planning_bytes)
		out->planning_bytes = o->planning_bytes;
	for (size_t i = 0; i < o->n_budget; i++)
		(void)wb_budget_override(out, o->budget[i]);
}

#define AT(field) .at = offsetof(struct wb__operator_options, field)
#define TEXT(field) WB_CLI_TEXT, AT(field), .min = 1
#define LIST(field, n)                                                                             \
	WB_CLI_LIST, AT(field), .n_at = offsetof(struct wb__operator_options, n_##field), .max = (n)
static const struct wb_cli_row rows[] = {
	{"file", "FILE", LIST(file, WB_OPERATOR_FILES_MAX),
		.want = "a file name, at most 64 of them",
		.help = "WeightTransfer objects to serve, YAML; may be given several times"},
	{"in-cluster", NULL, WB_CLI_FLAG, AT(is_in_cluster),
		.help = "serve the WeightTransfers of the cluster this pod runs in"},
	{"kubeconfig", "FILE", TEXT(kubeconfig), .want = "a file name",
		.help = "serve the WeightTransfers of the cluster that FILE names"},
	{"watch-namespace", "NS", LIST(watch_namespace, WB_OPERATOR_WATCHED_MAX), .is_unique = true,
		.fits = is_namespace, .want = "another namespace, at most 16 of them",
		.help = "only those of this namespace; may be given several times (default: all)"},
	{"lease", "NS/NAME", TEXT(lease), .fits = is_lease, .want = "NAMESPACE/NAME",
		.help = "Lease that says which replica leads (default: weightbridge-operator in "
			"the "
			"namespace of the pod or of the context)"},
	{"advertise", "HOST:PORT", TEXT(advertise), .max = 255, .fits = is_reachable,
		.want = "HOST:PORT",
		.help = "where other replicas send agents to when this one leads"},
	{"listen", "HOST:PORT", WB_CLI_ADDR, AT(listen),
		.want = "HOST:PORT, or :PORT for all addresses",
		.help = "where agents connect (default: 0.0.0.0:7443; port 0: any)"},
	{"psk-file", "FILE", TEXT(psk_file), .want = "a file name",
		.help = "key shared with the agents: 64 to 128 hex digits, mode 0600"},
	{"tls-cert", "FILE", TEXT(tls_cert), .want = "a file name",
		.help = "instead: certificate for agents, who show tokens of their pods (with a "
			"cluster)"},
	{"tls-key", "FILE", TEXT(tls_key), .want = "a file name",
		.help = "its key; both are read again each minute"},
	{"tls-ca", "FILE", TEXT(tls_ca), .want = "a file name",
		.help = "its authority, written into ConfigMap weightbridge-ca of each namespace "
			"with objects"},
	{"tls-secret", "NAME", TEXT(tls_secret), .want = "a name",
		.help = "instead of files: Secret that the leader keeps a certificate and its "
			"authority in"},
	{"tls-name", "NAME", LIST(tls_name, WB_OPERATOR_NAMES_MAX), .fits = is_dns_name,
		.want = "at most 16 DNS names in small letters",
		.help = "name in that certificate; may be given several times"},
	{"http", "HOST:PORT", WB_CLI_ADDR, AT(http),
		.want = "HOST:PORT, or :PORT for all addresses",
		.help = "serve /metrics /healthz /readyz /status /objects /plan /manifest /trace "
			"(default: not)"},
	{"metrics-auth", NULL, WB_CLI_FLAG, AT(asks_for_metrics),
		.help = "answer /metrics to who may get that path by the cluster's roles (default: "
			"to all)"},
	{"probes", "HOST:PORT", WB_CLI_ADDR, AT(probes),
		.want = "HOST:PORT, or :PORT for all addresses",
		.help = "serve /healthz and /readyz alone, whatever is done to the other ports "
			"(default: not)"},
	{"port-file", "FILE", TEXT(port_file), .want = "a file name",
		.help = "write the ports in use to FILE once they listen"},
	{"name", "NAME", TEXT(name), .max = 253, .want = "at most 253 characters",
		.help = "name told to agents (default: host name)"},
	{"settle-ms", "N", WB_CLI_U64, AT(settle_ns), .max = 600000, .unit = WB_NS_PER_MS,
		.want = "0 to 600000",
		.help = "plan when the members have not changed for N milliseconds (default: 500)"},
	{"metrics-objects", "N", WB_CLI_U32, AT(n_series), .max = WB_SERVE_SERIES_MAX,
		.want = "0 to 128",
		.help = "objects that have metrics by their name, at most half of them in one "
			"namespace; the others are counted together (default: 128)"},
	{"memory", "SIZE", WB_CLI_SIZE, AT(memory_bytes), .min = 1, .want = "a size as 1Gi",
		.help = "size budgets for so much memory (default: what this process may use)"},
	{"planning-memory", "SIZE", WB_CLI_SIZE, AT(planning_bytes), .min = 1,
		.want = "a size as 96Mi",
		.help = "memory that the computation of one plan may take (default: 3/32 of it)"},
	{"budget", "KIND=N/N/N", LIST(budget, WB_OPERATOR_BUDGETS_MAX), .fits = is_budget,
		.want = "objects, agents, connections, workers, maps, plans or planning, then what "
			"all, one namespace and one object may have of it, each no more than the "
			"one before",
		.help = "what all, one namespace, one object may take of KIND; may be given "
			"several "
			"times"},
};

static const struct wb_cli cli = {.program = "weightbridge-operator",
	.version = WB_VERSION,
	.usage = "usage: weightbridge-operator --file FILE --psk-file FILE [OPTION]...\n"
		 "       weightbridge-operator --in-cluster --psk-file FILE [OPTION]...\n"
		 "Plans weight transfers and tells agents what to do.\n",
	.notes = "SIGHUP reads the files again.  See weightbridge-operator(8).\n",
	.rows = rows,
	.n_row = WB_ARRAY_SIZE(rows)};

static void set_defaults(struct wb__operator_options *o)
{
	memset(o, 0, sizeof(*o));
	o->listen.port = WB_OPERATOR_PORT;
	o->psk_file = o->port_file = o->tls_cert = o->tls_key = "";
	o->tls_ca = o->tls_secret = "";
	o->kubeconfig = o->lease = o->advertise = "";
	o->name = wb_cli_host_name();
	o->settle_ns = 500 * WB_NS_PER_MS;
	o->n_series = WB_SERVE_SERIES_MAX;
}

static int check_tls(const struct wb__operator_options *o, struct wb_err *err)
{
	unsigned n = (o->psk_file[0] != 0) + (o->tls_cert[0] != 0) + (o->tls_secret[0] != 0);

	if (!n)
		return wb_err_set(err, -EINVAL, "--psk-file FILE is missing");
	if (n > 1 || !o->tls_cert[0] != !o->tls_key[0])
		return wb_err_set(err, -EINVAL,
			"give either --psk-file, or --tls-cert and --tls-key together, or "
			"--tls-secret");
	if (wb__operator_has_tokens(o) && o->n_file)
		return wb_err_set(err, -EINVAL,
			"--tls-cert, --tls-secret: tokens need a cluster (--in-cluster or "
			"--kubeconfig) to check them");
	if (o->tls_ca[0] && !o->tls_cert[0])
		return wb_err_set(err, -EINVAL, "--tls-ca goes with --tls-cert");
	if (!o->tls_secret[0] != !o->n_tls_name)
		return wb_err_set(err, -EINVAL, "--tls-secret and --tls-name belong together");
	return 0;
}

static int check(const struct wb__operator_options *o, struct wb_err *err)
{
	unsigned n = (o->n_file > 0) + o->is_in_cluster + (o->kubeconfig[0] != '\0');

	if (!n)
		return wb_err_set(err, -EINVAL,
			"--file FILE is missing (or --in-cluster, or --kubeconfig FILE)");
	if (n > 1)
		return wb_err_set(
			err, -EINVAL, "--file, --in-cluster and --kubeconfig exclude each other");
	if (o->asks_for_metrics && o->n_file)
		return wb_err_set(err, -EINVAL,
			"--metrics-auth: tokens need a cluster (--in-cluster or --kubeconfig) to "
			"check them");
	return check_tls(o, err);
}

int wb__operator_parse(int argc, char **argv, struct wb__operator_options *o, struct wb_err *err)
{
	int rc;

	set_defaults(o);
	rc = wb_cli_parse(&cli, argc, argv, o, err);
	if (rc != WB_CLI_RUN)
		return rc;
	if (o->advertise[0]) {
		put_brackets(o->advertise, o->advertise_text, sizeof(o->advertise_text));
		o->advertise = o->advertise_text;
	}
	return check(o, err);
}
