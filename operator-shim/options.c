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

static int set_file(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	if (!*arg || o->n_file == WB_OPERATOR_FILES_MAX)
		return -EINVAL;
	o->file[o->n_file++] = arg;
	return 0;
}

static int set_listen(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	return wb_cli_addr(arg, &o->listen);
}

static int set_http(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	o->has_http = true;
	return wb_cli_addr(arg, &o->http);
}

static int set_probes(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	o->has_probes = true;
	return wb_cli_addr(arg, &o->probes);
}

static int set_metrics_auth(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	(void)arg;
	o->asks_for_metrics = true;
	return 0;
}

static int set_name(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	o->name = arg;
	return *arg && strlen(arg) < 254 ? 0 : -EINVAL;
}

static int set_in_cluster(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	(void)arg;
	o->is_in_cluster = true;
	return 0;
}

static int set_watch_namespace(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	o->watch_namespace = arg;
	return strlen(arg) < 64 ? 0 : -EINVAL;
}

static int set_lease(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	o->lease = arg;
	return wb_cli_is_object(arg, 317) && strchr(arg, '/') - arg < 64 ? 0 : -EINVAL;
}

static int set_advertise(void *options, const char *arg)
{
	struct wb__operator_options *o = options;
	const char *colon = strrchr(arg, ':');
	struct wb_cli_addr a;

	/* A pod knows its IPv6 address without brackets. */
	if (colon && memchr(arg, ':', (size_t)(colon - arg)) && arg[0] != '[')
		snprintf(o->advertise_text, sizeof(o->advertise_text), "[%.*s]%s",
			(int)(colon - arg), arg, colon);
	else
		snprintf(o->advertise_text, sizeof(o->advertise_text), "%s", arg);
	o->advertise = o->advertise_text;
	return strlen(arg) < 256 && wb_cli_addr(o->advertise, &a) == 0 && a.host[0] ? 0 : -EINVAL;
}

/* It becomes part of a certificate. */
static int set_tls_name(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	if (!*arg || strlen(arg) > 253 || o->n_tls_name == WB_OPERATOR_NAMES_MAX ||
		arg[strspn(arg, "abcdefghijklmnopqrstuvwxyz0123456789.-")])
		return -EINVAL;
	o->tls_name[o->n_tls_name++] = arg;
	return 0;
}

static int set_settle(void *options, const char *arg)
{
	struct wb__operator_options *o = options;
	uint64_t ms = 0;
	int rc = wb_cli_uint(arg, 0, 600000, &ms);

	o->settle_ns = ms * WB_NS_PER_MS;
	return rc;
}

static int set_series(void *options, const char *arg)
{
	struct wb__operator_options *o = options;
	uint64_t n = 0;
	int rc = wb_cli_uint(arg, 0, WB_SERVE_SERIES_MAX, &n);

	o->n_series = (unsigned)n;
	return rc;
}

static int set_memory(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	return wb_cli_size(arg, false, &o->memory_bytes) < 0 || !o->memory_bytes ? -EINVAL : 0;
}

static int set_planning(void *options, const char *arg)
{
	struct wb__operator_options *o = options;

	return wb_cli_size(arg, false, &o->planning_bytes) < 0 || !o->planning_bytes ? -EINVAL : 0;
}

/* Others may follow, and --memory too: only whether it can be read is known now. */
static int set_budget(void *options, const char *arg)
{
	struct wb__operator_options *o = options;
	struct wb_budget_limits any;

	wb_budget_size(UINT64_C(1) << 50, &any);
	if (o->n_budget == WB_OPERATOR_BUDGETS_MAX || wb_budget_override(&any, arg) < 0)
		return -EINVAL;
	o->budget[o->n_budget++] = arg;
	return 0;
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

#define TEXT(field) NULL, offsetof(struct wb__operator_options, field)
static const struct wb_cli_row rows[] = {
	{"file", "FILE", set_file, 0, "a file name, at most 64 of them",
		"WeightTransfer objects to serve, YAML; may be given several times"},
	{"in-cluster", NULL, set_in_cluster, 0, NULL,
		"serve the WeightTransfers of the cluster this pod runs in"},
	{"kubeconfig", "FILE", TEXT(kubeconfig), "a file name",
		"serve the WeightTransfers of the cluster that FILE names"},
	{"watch-namespace", "NS", set_watch_namespace, 0, "at most 63 characters",
		"only those of this namespace (default: all)"},
	{"lease", "NS/NAME", set_lease, 0, "NAMESPACE/NAME",
		"Lease that says which replica leads (default: weightbridge-operator in the "
		"namespace of the pod or of the context)"},
	{"advertise", "HOST:PORT", set_advertise, 0, "HOST:PORT",
		"where other replicas send agents to when this one leads"},
	{"listen", "HOST:PORT", set_listen, 0, "HOST:PORT, or :PORT for all addresses",
		"where agents connect (default: 0.0.0.0:7443; port 0: any)"},
	{"psk-file", "FILE", TEXT(psk_file), "a file name",
		"key shared with the agents: 64 to 128 hex digits, mode 0600"},
	{"tls-cert", "FILE", TEXT(tls_cert), "a file name",
		"instead: certificate for agents, who show tokens of their pods (with a cluster)"},
	{"tls-key", "FILE", TEXT(tls_key), "a file name",
		"its key; both are read again each minute"},
	{"tls-ca", "FILE", TEXT(tls_ca), "a file name",
		"its authority, written into ConfigMap weightbridge-ca of each namespace with "
		"objects"},
	{"tls-secret", "NAME", TEXT(tls_secret), "a name",
		"instead of files: Secret that the leader keeps a certificate and its authority "
		"in"},
	{"tls-name", "NAME", set_tls_name, 0, "at most 16 DNS names in small letters",
		"name in that certificate; may be given several times"},
	{"http", "HOST:PORT", set_http, 0, "HOST:PORT, or :PORT for all addresses",
		"serve /metrics /healthz /readyz /status /objects /plan /manifest /trace "
		"(default: not)"},
	{"metrics-auth", NULL, set_metrics_auth, 0, NULL,
		"answer /metrics to who may get that path by the cluster's roles (default: to "
		"all)"},
	{"probes", "HOST:PORT", set_probes, 0, "HOST:PORT, or :PORT for all addresses",
		"serve /healthz and /readyz alone, whatever is done to the other ports (default: "
		"not)"},
	{"port-file", "FILE", TEXT(port_file), "a file name",
		"write the ports in use to FILE once they listen"},
	{"name", "NAME", set_name, 0, "at most 253 characters",
		"name told to agents (default: host name)"},
	{"settle-ms", "N", set_settle, 0, "0 to 600000",
		"plan when the members have not changed for N milliseconds (default: 500)"},
	{"metrics-objects", "N", set_series, 0, "0 to 128",
		"objects that have metrics by their name, at most half of them in one namespace; "
		"the others are counted together (default: 128)"},
	{"memory", "SIZE", set_memory, 0, "a size as 1Gi",
		"size budgets for so much memory (default: what this process may use)"},
	{"planning-memory", "SIZE", set_planning, 0, "a size as 96Mi",
		"memory that the computation of one plan may take (default: 3/32 of it)"},
	{"budget", "KIND=N/N/N", set_budget, 0,
		"objects, agents, connections, workers, maps, plans or planning, then what all, "
		"one namespace and one object may have of it, each no more than the one before",
		"what all, one namespace, one object may take of KIND; may be given several times"},
};
#undef TEXT

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
	o->kubeconfig = o->watch_namespace = o->lease = o->advertise = "";
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
	return rc == WB_CLI_RUN ? check(o, err) : rc;
}
