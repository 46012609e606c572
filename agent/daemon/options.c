/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include "base/base.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/probe.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(const char *s, size_t max)
{
	if (!*s || strlen(s) > max)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == '/' || *s == 127)
			return false;
	return true;
}

static int set_name(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->name = arg;
	return is_name(arg, WB_XPORT_NAME_MAX - 1) ? 0 : -EINVAL;
}

static int set_node(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->node = arg;
	return is_name(arg, 253) ? 0 : -EINVAL;
}

static int set_socket(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->socket = arg;
	return *arg && strlen(arg) <= 107 ? 0 : -EINVAL;
}

static int set_socket_mode(void *options, const char *arg)
{
	struct wb__options *o = options;
	char *end;
	unsigned long mode = strtoul(arg, &end, 8);

	o->socket_mode = (uint32_t)mode;
	return *arg < '0' || *arg > '7' || *end || !mode || mode > 0777 ? -EINVAL : 0;
}

static int set_operator(void *options, const char *arg)
{
	struct wb__options *o = options;

	return wb_cli_addr(arg, &o->operator) < 0 || !o->operator.host[0] || !o->operator.port
		       ? -EINVAL
		       : 0;
}

static int set_object(void *options, const char *arg)
{
	struct wb__options *o = options;

	for (uint32_t i = 0; i < o->n_served; i++)
		if (!strcmp(o->served[i].object, arg))
			return -EINVAL;
	if (o->n_served == WB__OBJECTS_MAX || !wb_cli_is_object(arg, 256))
		return -EINVAL;
	o->served[o->n_served++].object = arg;
	return 0;
}

static int set_psk_file(void *options, const char *arg)
{
	struct wb__options *o = options;

	if (!*arg || o->n_psk_file == WB__OBJECTS_MAX)
		return -EINVAL;
	o->served[o->n_psk_file++].psk_file = arg;
	return 0;
}

static int set_token_file(void *options, const char *arg)
{
	struct wb__options *o = options;

	if (!*arg || o->n_token_file == WB__OBJECTS_MAX)
		return -EINVAL;
	o->served[o->n_token_file++].token_file = arg;
	return 0;
}

static int set_listen(void *options, const char *arg)
{
	struct wb__options *o = options;

	return wb_cli_addr(arg, &o->listen);
}

static int set_advertise(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->advertise = arg;
	return *arg && strlen(arg) < 1024 ? 0 : -EINVAL;
}

static int set_transport(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->transport = arg;
	return !strcmp(arg, "tcp") || !strcmp(arg, "shm") ? 0 : -EINVAL;
}

static int set_rail_rate(void *options, const char *arg)
{
	struct wb__options *o = options;

	return wb_cli_size(arg, true, &o->rail_bytes_per_s);
}

static int set_rails(void *options, const char *arg)
{
	struct wb__options *o = options;
	uint64_t n = 0;
	int rc = wb_cli_uint(arg, 1, WB_XPORT_RAILS_MAX, &n);

	o->n_rail = (uint32_t)n;
	return rc;
}

static int set_rail_address(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->rail_address = arg;
	return *arg && strlen(arg) < 1024 ? 0 : -EINVAL;
}

static int set_buffer(void *options, const char *arg)
{
	struct wb__options *o = options;
	int rc = wb_cli_size(arg, false, &o->buffer_bytes);

	return rc < 0 || o->buffer_bytes < (1u << 20) ? -EINVAL : 0;
}

static int set_staging_limit(void *options, const char *arg)
{
	struct wb__options *o = options;

	int rc = wb_cli_size(arg, false, &o->staging_limit_bytes);

	return rc < 0 || !o->staging_limit_bytes ? -EINVAL : 0;
}

static int set_http(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->has_http = true;
	return wb_cli_addr(arg, &o->http);
}

static int set_probe(void *options, const char *arg)
{
	struct wb__options *o = options;

	o->probe = arg;
	return wb__probe_check(arg);
}

static int set_grace(void *options, const char *arg)
{
	struct wb__options *o = options;
	uint64_t s = 0;
	int rc = wb_cli_uint(arg, 0, 86400, &s);

	o->grace_ns = s * 1000000000ull;
	return rc;
}

#define TEXT(field) NULL, offsetof(struct wb__options, field)
static const struct wb_cli_row rows[] = {
	{"name", "NAME", set_name, 0, "a name without spaces or slashes, at most 63 bytes",
		"name of this agent, unique among the agents of an object (default: host name)"},
	{"node", "NAME", set_node, 0, "a name without spaces or slashes",
		"machine it runs on, for the bound (default: host name)"},
	{"socket", "PATH", set_socket, 0, "a path of 1 to 107 bytes",
		"socket that workers attach to (default: " WB_AGENT_SOCKET ")"},
	{"socket-mode", "MODE", set_socket_mode, 0, "three octal digits, such as 660",
		"who may attach (default: 600; with a token 666, as only the containers meant "
		"mount its folder)"},
	{"operator", "HOST:PORT", set_operator, 0, "HOST:PORT", "the operator to ask for plans"},
	{"psk-file", "FILE", set_psk_file, 0, "a file name",
		"key shared with the operator: 64 to 128 hex digits, mode 0600; with several "
		"objects one for all, or one for each in their order"},
	{"token-file", "FILE", set_token_file, 0, "a file name",
		"instead of a key: token of this pod, shown to the operator; one for each "
		"object"},
	{"ca-file", "FILE", TEXT(ca_file), "a file name",
		"with a token: authority that the operator's certificate must come from"},
	{"operator-name", "NAME", TEXT(operator_name), "a host name",
		"with a token: name in the operator's certificate (default: the host dialled)"},
	{"object", "NS/NAME", set_object, 0, "another NAMESPACE/NAME, at most 8 of them",
		"transfer object to serve; may be given again (default: the only one the operator "
		"has)"},
	{"listen", "HOST:PORT", set_listen, 0, "HOST:PORT, or :PORT for all addresses",
		"where other agents connect, control and bulk (default: :7444; port 0: "
		"any)"},
	{"advertise", "HOST[,HOST]...", set_advertise, 0, "host names or addresses",
		"addresses told to other agents, best first (default: the one the operator is "
		"reached from)"},
	{"transport", "tcp|shm", set_transport, 0, "tcp or shm",
		"transport of weights; shm only between agents of one machine (default: tcp)"},
	{"rail-rate", "BYTES/s", set_rail_rate, 0, "a rate such as 500M or 1.5Gi/s; 0 = none",
		"cap of each rail in each direction (default: none)"},
	{"rails", "N", set_rails, 0, "1 to 16",
		"threads that move bytes (default: 1, or one for each --rail-address)"},
	{"rail-address", "HOST[,HOST]...", set_rail_address, 0,
		"addresses of this host, one for each rail",
		"addresses that the rails use, one for each (default: the listen address)"},
	{"buffer", "SIZE", set_buffer, 0, "a size of at least 1Mi, such as 512Mi",
		"memory for slots (default: the object's bufferSize for each worker here)"},
	{"staging-limit", "SIZE", set_staging_limit, 0, "a size above 0, such as 8Gi",
		"greatest staging memory of this agent (default: the control group's limit)"},
	{"http", "HOST:PORT", set_http, 0, "HOST:PORT, or :PORT for all addresses",
		"serve /metrics /healthz /readyz /serving /status /digest /trace (default: not)"},
	{"port-file", "FILE", TEXT(port_file), "a file name",
		"write the ports in use to FILE once they listen"},
	{"grace", "SECONDS", set_grace, 0, "0 to 86400",
		"time for running transfers after SIGTERM (default: 25)"},
	{"probe", "WHICH", set_probe, 0, "startup, live or ready",
		"startup, live or ready: ask the running agent of this --socket, and exit"},
};
#undef TEXT

static const struct wb_cli cli = {.program = "weightbridge-agent",
	.version = WB_VERSION,
	.usage = "usage: weightbridge-agent --operator HOST:PORT --psk-file FILE [OPTION]...\n"
		 "       weightbridge-agent --operator HOST:PORT --token-file FILE --ca-file FILE "
		 "--object NS/NAME [OPTION]...\n"
		 "Moves weights between the workers of this pod and those of others.\n",
	.notes = "Environment: WB_FAULT (faults on demand, see weightbridge-agent(8)).\n",
	.rows = rows,
	.n_row = WB_ARRAY_SIZE(rows)};

static void set_defaults(struct wb__options *o)
{
	memset(o, 0, sizeof(*o));
	o->node = wb_cli_host_name();
	o->socket = WB_AGENT_SOCKET;
	for (uint32_t i = 0; i < WB__OBJECTS_MAX; i++)
		o->served[i] = (struct wb__served){"", "", ""};
	o->advertise = o->probe = o->ca_file = o->operator_name = o->rail_address = "";
	o->listen.port = 7444;
	o->transport = "tcp";
	o->grace_ns = 25000000000ull;
}

/* Keys and tokens belong to objects by their order; one key is for all. */
static int check_served(struct wb__options *o, struct wb_err *err)
{
	uint32_t n = o->n_served ? o->n_served : 1;

	if (!o->n_psk_file && !o->n_token_file)
		return wb_err_set(err, -EINVAL, "--psk-file FILE is missing");
	if (o->n_psk_file && o->n_token_file)
		return wb_err_set(err, -EINVAL, "--psk-file and --token-file exclude each other");
	if (!o->n_token_file != !o->ca_file[0])
		return wb_err_set(err, -EINVAL, "--token-file and --ca-file belong together");
	if (o->n_token_file && !o->n_served)
		return wb_err_set(err, -EINVAL, "--token-file needs --object NAMESPACE/NAME");
	if (o->n_token_file ? o->n_token_file != n : o->n_psk_file != 1 && o->n_psk_file != n)
		return wb_err_set(err, -EINVAL,
			"%u objects and %u %s files: give one for each, in their order", n,
			o->n_token_file ? o->n_token_file : o->n_psk_file,
			o->n_token_file ? "token" : "key");
	for (uint32_t i = 1; o->n_psk_file == 1 && i < n; i++)
		o->served[i].psk_file = o->served[0].psk_file;
	o->n_served = n;
	return 0;
}

static int check_rails(struct wb__options *o, struct wb_err *err)
{
	uint32_t n = 1;

	for (const char *s = o->rail_address; *s; s++)
		n += *s == ',';
	if (o->rail_address[0] && strcmp(o->transport, "tcp"))
		return wb_err_set(err, -EINVAL, "--rail-address goes with --transport tcp");
	if (n > WB_XPORT_RAILS_MAX || (o->rail_address[0] && o->n_rail && o->n_rail != n))
		return wb_err_set(err, -EINVAL,
			"%u addresses of rails: there are %u rails, and at most %d", n,
			o->n_rail ? o->n_rail : n, WB_XPORT_RAILS_MAX);
	o->n_rail = o->n_rail ? o->n_rail : n;
	return 0;
}

static int check(struct wb__options *o, struct wb_err *err)
{
	int rc = check_rails(o, err);

	if (rc < 0)
		return rc;
	if (o->probe[0])
		return 0;
	if (!o->name) {
		o->name = o->node;
		if (!is_name(o->name, WB_XPORT_NAME_MAX - 1))
			return wb_err_set(err, -EINVAL,
				"the host name '%s' cannot serve as a name: give --name", o->node);
	}
	if (!o->operator.port)
		return wb_err_set(err, -EINVAL, "--operator HOST:PORT is missing");
	return check_served(o, err);
}

int wb__options_parse(int argc, char **argv, struct wb__options *o, struct wb_err *err)
{
	int rc;

	set_defaults(o);
	rc = wb_cli_parse(&cli, argc, argv, o, err);
	return rc == WB_CLI_RUN ? check(o, err) : rc;
}
