/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/options.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*set_fn)(struct wb__operator_options *o, const char *arg);

struct option_row {
	const char *name, *arg; /* arg NULL: takes none */
	set_fn set;
	const char *want; /* for the sentence about a bad value */
	const char *help;
};

static int parse_number(const char *text, unsigned long max, unsigned long *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoul(text, &end, 10);
	return errno || *end || *out > max ? -EINVAL : 0;
}

/* "host:port", "[::1]:port" or ":port". */
static int parse_addr(const char *text, struct wb__operator_addr *out)
{
	const char *colon = strrchr(text, ':');
	unsigned long port;
	size_t n;

	if (!colon || parse_number(colon + 1, UINT16_MAX, &port) < 0)
		return -EINVAL;
	n = (size_t)(colon - text);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	} else if (memchr(text, ':', n)) {
		return -EINVAL;
	}
	if (n >= sizeof(out->host))
		return -EINVAL;
	memcpy(out->host, text, n);
	out->host[n] = '\0';
	out->port = (uint16_t)port;
	return 0;
}

static int set_file(struct wb__operator_options *o, const char *arg)
{
	if (!*arg || o->n_file == WB_OPERATOR_FILES_MAX)
		return -EINVAL;
	o->file[o->n_file++] = arg;
	return 0;
}

static int set_listen(struct wb__operator_options *o, const char *arg)
{
	return parse_addr(arg, &o->listen);
}

static int set_psk_file(struct wb__operator_options *o, const char *arg)
{
	o->psk_file = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_tls_cert(struct wb__operator_options *o, const char *arg)
{
	o->tls_cert = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_tls_key(struct wb__operator_options *o, const char *arg)
{
	o->tls_key = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_http(struct wb__operator_options *o, const char *arg)
{
	o->has_http = true;
	return parse_addr(arg, &o->http);
}

static int set_port_file(struct wb__operator_options *o, const char *arg)
{
	o->port_file = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_name(struct wb__operator_options *o, const char *arg)
{
	o->name = arg;
	return *arg && strlen(arg) < 254 ? 0 : -EINVAL;
}

static int set_kubeconfig(struct wb__operator_options *o, const char *arg)
{
	o->kubeconfig = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_in_cluster(struct wb__operator_options *o, const char *arg)
{
	(void)arg;
	o->is_in_cluster = true;
	return 0;
}

static int set_watch_namespace(struct wb__operator_options *o, const char *arg)
{
	o->watch_namespace = arg;
	return strlen(arg) < 64 ? 0 : -EINVAL;
}

static int set_lease(struct wb__operator_options *o, const char *arg)
{
	const char *slash = strchr(arg, '/');

	o->lease = arg;
	return slash && slash != arg && slash[1] && slash - arg < 64 && strlen(slash) < 254
		       ? 0
		       : -EINVAL;
}

static int set_advertise(struct wb__operator_options *o, const char *arg)
{
	struct wb__operator_addr a;

	o->advertise = arg;
	return parse_addr(arg, &a) == 0 && a.host[0] ? 0 : -EINVAL;
}

static int set_settle(struct wb__operator_options *o, const char *arg)
{
	unsigned long ms = 0;
	int rc = parse_number(arg, 600000, &ms);

	o->settle_ns = ms * WB_NS_PER_MS;
	return rc;
}

static int set_log_format(struct wb__operator_options *o, const char *arg)
{
	o->log_format = arg;
	return wb_log_setup(arg, o->log_level);
}

static int set_log_level(struct wb__operator_options *o, const char *arg)
{
	o->log_level = arg;
	return wb_log_setup(o->log_format, arg);
}

static const struct option_row rows[] = {
	{"file", "FILE", set_file, "at most 64 file names",
		"WeightTransfer objects to serve, YAML; may be given several times"},
	{"in-cluster", NULL, set_in_cluster, NULL,
		"serve the WeightTransfers of the cluster this pod runs in"},
	{"kubeconfig", "FILE", set_kubeconfig, "a file name",
		"serve the WeightTransfers of the cluster that FILE names"},
	{"watch-namespace", "NS", set_watch_namespace, "at most 63 characters",
		"only those of this namespace (default: all)"},
	{"lease", "NS/NAME", set_lease, "NAMESPACE/NAME",
		"Lease that says which replica leads (default: weightbridge-operator in the "
		"namespace of the pod or of the context)"},
	{"advertise", "HOST:PORT", set_advertise, "HOST:PORT",
		"where other replicas send agents to when this one leads"},
	{"listen", "HOST:PORT", set_listen, "HOST:PORT, or :PORT for all addresses",
		"where agents connect (default: 0.0.0.0:7443; port 0: any)"},
	{"psk-file", "FILE", set_psk_file, "a file name",
		"key shared with the agents: 64 to 128 hex digits, mode 0600"},
	{"tls-cert", "FILE", set_tls_cert, "a file name",
		"instead: certificate for agents, who show tokens of their pods (with a cluster)"},
	{"tls-key", "FILE", set_tls_key, "a file name", "its key; both are read again each minute"},
	{"http", "HOST:PORT", set_http, "HOST:PORT, or :PORT for all addresses",
		"serve /metrics /healthz /readyz /status /objects /plan /manifest /trace "
		"(default: not)"},
	{"port-file", "FILE", set_port_file, "a file name",
		"write the ports in use to FILE once they listen"},
	{"name", "NAME", set_name, "at most 253 characters",
		"name told to agents (default: host name)"},
	{"settle-ms", "N", set_settle, "0 to 600000",
		"plan when the members have not changed for N milliseconds (default: 500)"},
	{"log-format", "FORMAT", set_log_format, "text, json or auto",
		"text, json, or auto: text on a terminal (default: auto)"},
	{"log-level", "LEVEL", set_log_level, "error, warn, info or debug", "(default: info)"},
	{"help", NULL, NULL, NULL, "print this and exit"},
	{"version", NULL, NULL, NULL, "print the version and exit"},
};
#define N_ROWS WB_ARRAY_SIZE(rows)
#define ROW_HELP (N_ROWS - 2)

static void print_help(void)
{
	char left[64];

	printf("usage: weightbridge-operator --file FILE --psk-file FILE [OPTION]...\n"
	       "       weightbridge-operator --in-cluster --psk-file FILE [OPTION]...\n"
	       "Plans weight transfers and tells agents what to do.\n\n");
	for (size_t i = 0; i < N_ROWS; i++) {
		snprintf(left, sizeof(left), "--%s %s", rows[i].name,
			rows[i].arg ? rows[i].arg : "");
		printf("  %-24s %s\n", left, rows[i].help);
	}
	printf("\nSIGHUP reads the files again.  See weightbridge-operator(8).\n");
}

static void set_defaults(struct wb__operator_options *o)
{
	static char host[254];

	if (!host[0] && (gethostname(host, sizeof(host) - 1) || !host[0]))
		snprintf(host, sizeof(host), "localhost");
	memset(o, 0, sizeof(*o));
	o->listen.port = WB_OPERATOR_PORT;
	o->psk_file = o->port_file = o->tls_cert = o->tls_key = "";
	o->kubeconfig = o->watch_namespace = o->lease = o->advertise = "";
	o->name = host;
	o->settle_ns = 500 * WB_NS_PER_MS;
	o->log_format = "auto";
	o->log_level = "info";
	wb_log_setup(o->log_format, o->log_level);
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
	if (!o->psk_file[0] && !o->tls_cert[0])
		return wb_err_set(err, -EINVAL, "--psk-file FILE is missing");
	if (!o->tls_cert[0] != !o->tls_key[0] || (o->psk_file[0] && o->tls_cert[0]))
		return wb_err_set(err, -EINVAL,
			"give either --psk-file, or --tls-cert and --tls-key together");
	if (o->tls_cert[0] && o->n_file)
		return wb_err_set(err, -EINVAL,
			"--tls-cert: tokens need a cluster (--in-cluster or --kubeconfig) to check "
			"them");
	return 0;
}

int wb__operator_parse(int argc, char **argv, struct wb__operator_options *o, struct wb_err *err)
{
	struct option longs[N_ROWS + 1] = {{0}};
	int c, at = -1;

	set_defaults(o);
	for (size_t i = 0; i < N_ROWS; i++)
		longs[i] = (struct option){.name = rows[i].name,
			.has_arg = rows[i].arg ? required_argument : no_argument};
	optind = 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, &at)) != -1) {
		if (c == ':')
			return wb_err_set(err, -EINVAL, "%s needs a value", argv[optind - 1]);
		if (c)
			return wb_err_set(
				err, -EINVAL, "unknown option %s (see --help)", argv[optind - 1]);
		if ((size_t)at == ROW_HELP) {
			print_help();
			return WB_OPERATOR_DONE;
		}
		if ((size_t)at > ROW_HELP) {
			printf("weightbridge-operator %s\n", WB_VERSION);
			return WB_OPERATOR_DONE;
		}
		if (rows[at].set(o, optarg) < 0)
			return wb_err_set(err, -EINVAL, "--%s %s: expected %s", rows[at].name,
				optarg, rows[at].want);
	}
	if (optind < argc)
		return wb_err_set(
			err, -EINVAL, "unexpected argument '%s' (see --help)", argv[optind]);
	return check(o, err);
}
