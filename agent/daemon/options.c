/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include "base/base.h"
#include "base/err.h"
#include "base/log.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*set_fn)(struct wb__options *o, const char *arg);

struct option_row {
	const char *name, *arg; /* arg NULL: takes none */
	set_fn set;
	const char *want; /* for the sentence about a bad value */
	const char *help;
};

int wb__parse_size(const char *text, bool per_second, uint64_t *out)
{
	static const struct {
		const char *name;
		double factor;
	} units[] = {
		{"", 1},
		{"k", 1e3},
		{"K", 1e3},
		{"M", 1e6},
		{"G", 1e9},
		{"T", 1e12},
		{"Ki", 0x1p10},
		{"Mi", 0x1p20},
		{"Gi", 0x1p30},
		{"Ti", 0x1p40},
	};
	char unit[8];
	size_t n;
	char *end;
	double v;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	v = strtod(text, &end);
	n = strlen(end);
	if (per_second && n >= 2 && !strcmp(end + n - 2, "/s"))
		n -= 2;
	if (n && end[n - 1] == 'B')
		n--;
	if (n >= sizeof(unit))
		return -EINVAL;
	memcpy(unit, end, n);
	unit[n] = '\0';
	for (size_t i = 0; i < WB_ARRAY_SIZE(units); i++) {
		if (strcmp(unit, units[i].name))
			continue;
		v = floor(v * units[i].factor);
		if (!(v >= 0 && v <= 0x1p60))
			return -EINVAL;
		*out = (uint64_t)v;
		return 0;
	}
	return -EINVAL;
}

static int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	unsigned long long v;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

int wb__parse_host_port(const char *text, char *host_out, size_t host_bytes, uint16_t *port_out)
{
	const char *colon = strrchr(text, ':');
	size_t n;
	uint64_t port;

	if (!colon || parse_u64(colon + 1, 0, UINT16_MAX, &port) < 0)
		return -EINVAL;
	n = (size_t)(colon - text);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	} else if (memchr(text, ':', n)) {
		return -EINVAL;
	}
	if (n >= host_bytes)
		return -EINVAL;
	memcpy(host_out, text, n);
	host_out[n] = '\0';
	*port_out = (uint16_t)port;
	return 0;
}

static bool is_name(const char *s, size_t max)
{
	if (!*s || strlen(s) > max)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == '/' || *s == 127)
			return false;
	return true;
}

static int set_name(struct wb__options *o, const char *arg)
{
	o->name = arg;
	return is_name(arg, WB_XPORT_NAME_MAX - 1) ? 0 : -EINVAL;
}

static int set_node(struct wb__options *o, const char *arg)
{
	o->node = arg;
	return is_name(arg, 253) ? 0 : -EINVAL;
}

static int set_socket(struct wb__options *o, const char *arg)
{
	o->socket = arg;
	return *arg && strlen(arg) <= 107 ? 0 : -EINVAL;
}

static int set_operator(struct wb__options *o, const char *arg)
{
	int rc = wb__parse_host_port(
		arg, o->operator_host, sizeof(o->operator_host), &o->operator_port);

	return rc < 0 || !o->operator_host[0] || !o->operator_port ? -EINVAL : 0;
}

static int set_psk_file(struct wb__options *o, const char *arg)
{
	o->psk_file = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_token_file(struct wb__options *o, const char *arg)
{
	o->token_file = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_ca_file(struct wb__options *o, const char *arg)
{
	o->ca_file = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_operator_name(struct wb__options *o, const char *arg)
{
	o->operator_name = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_object(struct wb__options *o, const char *arg)
{
	const char *slash = strchr(arg, '/');

	o->object = arg;
	return slash && slash != arg && slash[1] && !strchr(slash + 1, '/') && strlen(arg) < 256
		       ? 0
		       : -EINVAL;
}

static int set_listen(struct wb__options *o, const char *arg)
{
	return wb__parse_host_port(arg, o->listen_host, sizeof(o->listen_host), &o->listen_port);
}

static int set_advertise(struct wb__options *o, const char *arg)
{
	o->advertise = arg;
	return *arg && strlen(arg) < 256 ? 0 : -EINVAL;
}

static int set_transport(struct wb__options *o, const char *arg)
{
	o->transport = arg;
	return !strcmp(arg, "tcp") || !strcmp(arg, "shm") ? 0 : -EINVAL;
}

static int set_rail_rate(struct wb__options *o, const char *arg)
{
	return wb__parse_size(arg, true, &o->rail_bytes_per_s);
}

static int set_rails(struct wb__options *o, const char *arg)
{
	uint64_t n = 0;
	int rc = parse_u64(arg, 1, WB_XPORT_RAILS_MAX, &n);

	o->n_rail = (uint32_t)n;
	return rc;
}

static int set_buffer(struct wb__options *o, const char *arg)
{
	int rc = wb__parse_size(arg, false, &o->buffer_bytes);

	return rc < 0 || o->buffer_bytes < (1u << 20) ? -EINVAL : 0;
}

static int set_staging_limit(struct wb__options *o, const char *arg)
{
	return wb__parse_size(arg, false, &o->staging_limit_bytes);
}

static int set_http(struct wb__options *o, const char *arg)
{
	o->has_http = true;
	return wb__parse_host_port(arg, o->http_host, sizeof(o->http_host), &o->http_port);
}

static int set_port_file(struct wb__options *o, const char *arg)
{
	o->port_file = arg;
	return *arg ? 0 : -EINVAL;
}

static int set_checksums(struct wb__options *o, const char *arg)
{
	o->sums = !strcmp(arg, "on");
	return o->sums || !strcmp(arg, "off") ? 0 : -EINVAL;
}

static int set_grace(struct wb__options *o, const char *arg)
{
	uint64_t s = 0;
	int rc = parse_u64(arg, 0, 86400, &s);

	o->grace_ns = s * 1000000000ull;
	return rc;
}

static int set_log_format(struct wb__options *o, const char *arg)
{
	o->log_format = arg;
	return wb_log_setup(arg, o->log_level);
}

static int set_log_level(struct wb__options *o, const char *arg)
{
	o->log_level = arg;
	return wb_log_setup(o->log_format, arg);
}

static const struct option_row rows[] = {
	{"name", "NAME", set_name, "a name without spaces or slashes, at most 63 bytes",
		"name of this agent, unique among the agents of an object (default: host name)"},
	{"node", "NAME", set_node, "a name without spaces or slashes",
		"machine it runs on, for the bound (default: host name)"},
	{"socket", "PATH", set_socket, "a path of 1 to 107 bytes",
		"socket that workers attach to (default: " WB_AGENT_SOCKET ")"},
	{"operator", "HOST:PORT", set_operator, "HOST:PORT", "the operator to ask for plans"},
	{"psk-file", "FILE", set_psk_file, "a file name",
		"key shared with the operator: 64 to 128 hex digits, mode 0600"},
	{"token-file", "FILE", set_token_file, "a file name",
		"instead of a key: token of this pod, shown to the operator"},
	{"ca-file", "FILE", set_ca_file, "a file name",
		"with a token: authority that the operator's certificate must come from"},
	{"operator-name", "NAME", set_operator_name, "a host name",
		"with a token: name in the operator's certificate (default: the host dialled)"},
	{"object", "NS/NAME", set_object, "NAMESPACE/NAME",
		"transfer object to serve (default: the only one the operator has)"},
	{"listen", "HOST:PORT", set_listen, "HOST:PORT, or :PORT for all addresses",
		"where other agents connect, control and bulk (default: 0.0.0.0:7444; port 0: "
		"any)"},
	{"advertise", "HOST", set_advertise, "a host name or address",
		"address told to other agents (default: the one the operator is reached from)"},
	{"transport", "tcp|shm", set_transport, "tcp or shm",
		"transport of weights; shm only between agents of one machine (default: tcp)"},
	{"rail-rate", "BYTES/s", set_rail_rate, "a rate such as 500M or 1.5Gi/s; 0 = none",
		"cap of each rail in each direction (default: none)"},
	{"rails", "N", set_rails, "1 to 16", "threads and sockets groups (default: 1)"},
	{"buffer", "SIZE", set_buffer, "a size of at least 1Mi, such as 512Mi",
		"memory for slots (default: the object's bufferSize for each worker here)"},
	{"staging-limit", "SIZE", set_staging_limit, "a size such as 8Gi",
		"greatest staging memory of this agent (default: the control group's limit)"},
	{"http", "HOST:PORT", set_http, "HOST:PORT, or :PORT for all addresses",
		"serve /metrics /healthz /readyz /status /trace (default: not)"},
	{"port-file", "FILE", set_port_file, "a file name",
		"write the ports in use to FILE once they listen"},
	{"checksums", "on|off", set_checksums, "on or off",
		"sums of every chunk on the wire; off is for benchmarks (default: on)"},
	{"grace", "SECONDS", set_grace, "0 to 86400",
		"time for running transfers after SIGTERM (default: 25)"},
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

	printf("usage: weightbridge-agent --operator HOST:PORT --psk-file FILE [OPTION]...\n"
	       "Moves weights between the workers of this pod and those of others.\n\n");
	for (size_t i = 0; i < N_ROWS; i++) {
		snprintf(left, sizeof(left), "--%s %s", rows[i].name,
			rows[i].arg ? rows[i].arg : "");
		printf("  %-24s %s\n", left, rows[i].help);
	}
	printf("\nEnvironment: WB_FAULT (faults on demand, see weightbridge-agent(8)).\n");
}

static void set_defaults(struct wb__options *o)
{
	static char host[254];

	if (!host[0] && (gethostname(host, sizeof(host) - 1) || !host[0]))
		snprintf(host, sizeof(host), "localhost");
	memset(o, 0, sizeof(*o));
	o->node = host;
	o->socket = WB_AGENT_SOCKET;
	o->psk_file = o->object = o->advertise = "";
	o->token_file = o->ca_file = o->operator_name = "";
	snprintf(o->listen_host, sizeof(o->listen_host), "0.0.0.0");
	o->listen_port = 7444;
	o->transport = "tcp";
	o->n_rail = 1;
	o->sums = true;
	o->grace_ns = 25000000000ull;
	o->log_format = "auto";
	o->log_level = "info";
}

static int check(struct wb__options *o, struct wb_err *err)
{
	if (!o->name) {
		o->name = o->node;
		if (!is_name(o->name, WB_XPORT_NAME_MAX - 1))
			return wb_err_set(err, -EINVAL,
				"the host name '%s' cannot serve as a name: give --name", o->node);
	}
	if (!o->operator_port)
		return wb_err_set(err, -EINVAL, "--operator HOST:PORT is missing");
	if (!o->psk_file[0] && !o->token_file[0])
		return wb_err_set(err, -EINVAL, "--psk-file FILE is missing");
	if (o->psk_file[0] && o->token_file[0])
		return wb_err_set(err, -EINVAL, "--psk-file and --token-file exclude each other");
	if (!o->token_file[0] != !o->ca_file[0])
		return wb_err_set(err, -EINVAL, "--token-file and --ca-file belong together");
	if (o->token_file[0] && !o->object[0])
		return wb_err_set(err, -EINVAL, "--token-file needs --object NAMESPACE/NAME");
	return 0;
}

int wb__options_parse(int argc, char **argv, struct wb__options *o, struct wb_err *err)
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
			return WB__OPTIONS_DONE;
		}
		if ((size_t)at > ROW_HELP) {
			printf("weightbridge-agent %s\n", WB_VERSION);
			return WB__OPTIONS_DONE;
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
