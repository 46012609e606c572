/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include "base/base.h"
#include "base/err.h"
#include "base/log.h"
#include "daemon/probe.h"
#include "weightbridge/version.h"

#include <errno.h>
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

static bool is_agent_name(const char *s)
{
	return is_name(s, WB_XPORT_NAME_MAX - 1);
}

static bool is_node_name(const char *s)
{
	return is_name(s, 253);
}

static bool is_folder(const char *s)
{
	return *s == '/' && !strpbrk(s, ",;") && s[strlen(s) - 1] != '/';
}

static bool is_transports(const char *s)
{
	return wb_xport_check_names(s, NULL) == 0;
}

static bool is_side(const char *s)
{
	return !strcmp(s, "worker") || !strcmp(s, "agent");
}

/* Does one of the transports leave the machine? */
static bool leaves(const char *transports)
{
	return strcmp(transports, "shm") != 0;
}

static bool may_be_verbs(const char *transports)
{
	return !strcmp(transports, "auto") || strstr(transports, "verbs");
}

static bool is_object(const char *s)
{
	return wb_cli_is_object(s, 256);
}

#define AT(field) .at = offsetof(struct wb__options, field)
#define FILE_AT(field) WB_CLI_TEXT, AT(field), .min = 1, .want = "a file name"
#define OF_OBJECT(field, count)                                                                    \
	WB_CLI_LIST, AT(served[0].field), .n_at = offsetof(struct wb__options, count),             \
					  .stride = sizeof(struct wb__served),                     \
					  .max = WB__OBJECTS_MAX
static const struct wb_cli_row rows[] = {
	{"name", "NAME", WB_CLI_TEXT, AT(name), .fits = is_agent_name,
		.want = "a name without spaces or slashes, at most 63 bytes",
		.help = "name of this agent, unique among the agents of an object (default: host "
			"name)"},
	{"node", "NAME", WB_CLI_TEXT, AT(node), .fits = is_node_name,
		.want = "a name without spaces or slashes",
		.help = "machine it runs on, for people (default: host name)"},
	{"socket", "PATH", WB_CLI_TEXT, AT(socket), .min = 1, .max = 107,
		.want = "a path of 1 to 107 bytes",
		.help = "socket that workers attach to (default: " WB_AGENT_SOCKET ")"},
	{"socket-mode", "MODE", WB_CLI_OCTAL, AT(socket_mode), .min = 1, .max = 0777,
		.want = "three octal digits, such as 660",
		.help = "who may attach (default: 600; with a token 666, as only the containers "
			"meant mount its folder)"},
	{"operator", "HOST:PORT", WB_CLI_PEER, AT(operator), .want = "HOST:PORT",
		.help = "the operator to ask for plans"},
	{"psk-file", "FILE", OF_OBJECT(psk_file, n_psk_file), .want = "a file name",
		.help = "key shared with the operator: 64 to 128 hex digits, mode 0600; with "
			"several "
			"objects one for all, or one for each in their order"},
	{"token-file", "FILE", OF_OBJECT(token_file, n_token_file), .want = "a file name",
		.help = "instead of a key: token of this pod, shown to the operator; one for each "
			"object"},
	{"ca-file", "FILE", FILE_AT(ca_file),
		.help = "with a token: authority that the operator's certificate must come from"},
	{"operator-name", "NAME", WB_CLI_TEXT, AT(operator_name), .min = 1, .want = "a host name",
		.help = "with a token: name in the operator's certificate (default: the host "
			"dialled)"},
	{"object", "NS/NAME", OF_OBJECT(object, n_served), .is_unique = true, .fits = is_object,
		.want = "another NAMESPACE/NAME, at most 8 of them",
		.help = "transfer object to serve; may be given again (default: the only one the "
			"operator has)"},
	{"listen", "HOST:PORT", WB_CLI_ADDR, AT(listen),
		.want = "HOST:PORT, or :PORT for all addresses",
		.help = "where other agents connect, control and bulk (default: :7444; port 0: "
			"any)"},
	{"advertise", "HOST[,HOST]...", WB_CLI_TEXT, AT(advertise), .min = 1, .max = 1023,
		.want = "host names or addresses",
		.help = "addresses told to other agents, best first (default: the one the operator "
			"is reached from)"},
	{"transport", "NAME[,NAME]...", WB_CLI_TEXT, AT(transport), .fits = is_transports,
		.want = "auto, or some of shm, verbs and tcp",
		.help = "transports of weights, best first; a peer is reached by the first that "
			"both have: shm only within a machine, verbs over RDMA (default: auto, all "
			"that there are: shm,verbs,tcp)"},
	{"shm-folder", "DIR", WB_CLI_TEXT, AT(shm_folder), .min = 1, .max = 60, .fits = is_folder,
		.want = "a path of at most 60 characters that begins with / and ends without",
		.help = "folder that agents of this machine share, for shm between those that do "
			"not share a network namespace (default: none)"},
	{"gpu-lane", "WHERE", WB_CLI_TEXT, AT(gpu_lane), .fits = is_side, .want = "worker or agent",
		.help = "who packs and assembles parameters on a GPU: worker, a thread in the "
			"worker's process; agent, this process, where it can import that memory, "
			"for half a GiB of each GPU (default: worker)"},
	{"rail-rate", "BYTES/s", WB_CLI_RATE, AT(rail_bytes_per_s),
		.want = "a rate such as 500M or 1.5Gi/s; 0 = none",
		.help = "cap of each rail in each direction (default: none)"},
	{"rails", "N", WB_CLI_U32, AT(n_rail), .min = 1, .max = WB_XPORT_RAILS_MAX,
		.want = "1 to 16",
		.help = "threads that move bytes, for all workers alike (default: 1, or one for "
			"each device of --rail-device)"},
	{"rail", "INTERFACE[,WORD]...", WB_CLI_LIST, AT(named),
		.n_at = offsetof(struct wb__options, n_named), .max = WB_XPORT_RAILS_MAX,
		.is_unique = true, .want = "another network interface, or address; at most 16",
		.help = "instead, tcp and verbs: a network interface of this host, by name or "
			"address, for workers of its own; once for each. Words: rate=BYTES/s, "
			"numa=NODE, workers=PLACE[+PLACE]..."},
	{"rail-device", "DEVICE[/PORT][,...]...", WB_CLI_TEXT, AT(rail_device), .min = 1,
		.max = 1023, .want = "RDMA devices of this host, one for each rail",
		.help = "verbs: devices, or their ports, that the rails use (default: all active "
			"ports; with --rail, the one that has its address)"},
	{"rdma-traffic-class", "N", WB_CLI_U32, AT(rdma_traffic_class), .max = 255,
		.want = "0 to 255",
		.help = "verbs: traffic class of its packets, such as 106 where the network keeps "
			"a lossless class by DSCP 26; the same at all agents (default: 0)"},
	{"rdma-service-level", "N", WB_CLI_U32, AT(rdma_service_level), .max = 15,
		.want = "0 to 15",
		.help = "verbs: service level of its packets, the priority on Ethernet (default: "
			"0)"},
	{"no-rdma-windows", NULL, WB_CLI_FLAG, AT(no_rdma_windows),
		.help = "verbs: keys are of regions, also where devices have memory windows, which "
			"make a key one queue pair's (default: windows, where there are)"},
	{"buffer", "SIZE", WB_CLI_SIZE, AT(buffer_bytes), .min = 1u << 20,
		.want = "a size of at least 1Mi, such as 512Mi",
		.help = "memory for slots (default: the object's bufferSize for each worker here)"},
	{"staging-limit", "SIZE", WB_CLI_SIZE, AT(staging_limit_bytes), .min = 1,
		.want = "a size above 0, such as 8Gi",
		.help = "greatest staging memory of this agent (default: the control group's "
			"limit)"},
	{"http", "HOST:PORT", WB_CLI_ADDR, AT(http),
		.want = "HOST:PORT, or :PORT for all addresses",
		.help = "serve /metrics /healthz /readyz /serving /status /digest /trace (default: "
			"not)"},
	{"metrics-auth", NULL, WB_CLI_FLAG, AT(asks_for_metrics),
		.help = "answer /metrics to who may get /metrics/weightbridge by the cluster's "
			"roles, which the operator finds out (default: to all)"},
	{"no-bench", NULL, WB_CLI_FLAG, AT(no_bench),
		.help = "take no part in measurements of other agents, or of this container (wbctl "
			"bench --to AGENT)"},
	{"port-file", "FILE", FILE_AT(port_file),
		.help = "write the ports in use to FILE once they listen"},
	{"grace", "SECONDS", WB_CLI_U64, AT(grace_ns), .max = 86400, .unit = 1000000000ull,
		.want = "0 to 86400",
		.help = "time for running transfers after SIGTERM (default: 25)"},
	{"probe", "WHICH", WB_CLI_TEXT, AT(probe), .fits = wb__probe_is_known,
		.want = "startup, live or ready",
		.help = "startup, live or ready: ask the running agent of this --socket, and exit"},
};

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
	o->advertise = o->probe = o->ca_file = o->operator_name = o->rail_device = "";
	o->shm_folder = "";
	o->listen.port = 7444;
	o->transport = "auto";
	o->gpu_lane = "worker";
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

static uint32_t parts_of(const char *list)
{
	uint32_t n = 1;

	for (const char *s = list; *s; s++)
		n += *s == ',';
	return n;
}

static int check_rails(struct wb__options *o, struct wb_err *err)
{
	uint32_t n_device = o->rail_device[0] ? parts_of(o->rail_device) : 0;

	if (o->n_named && !leaves(o->transport))
		return wb_err_set(err, -EINVAL,
			"--rail goes with --transport tcp or verbs: over shm no byte leaves the "
			"machine");
	if (n_device && !may_be_verbs(o->transport))
		return wb_err_set(err, -EINVAL, "--rail-device goes with --transport verbs");
	if ((o->rdma_traffic_class || o->rdma_service_level) && !may_be_verbs(o->transport))
		return wb_err_set(err, -EINVAL,
			"--rdma-traffic-class and --rdma-service-level go with --transport verbs");
	if (o->no_rdma_windows && !may_be_verbs(o->transport))
		return wb_err_set(err, -EINVAL, "--no-rdma-windows goes with --transport verbs");
	if (o->n_named && o->n_rail)
		return wb_err_set(err, -EINVAL,
			"--rail and --rails exclude each other: with --rail there is one for each");
	if (!o->n_rail)
		o->n_rail = o->n_named ? o->n_named : WB_MAX(1, n_device);
	if (o->n_rail > WB_XPORT_RAILS_MAX || (n_device && n_device != o->n_rail))
		return wb_err_set(err, -EINVAL,
			"--rail-device names %u devices, and there are %u rails, at most %d",
			n_device, o->n_rail, WB_XPORT_RAILS_MAX);
	return 0;
}

static int check(struct wb__options *o, struct wb_err *err)
{
	int rc = check_rails(o, err);

	if (rc < 0)
		return rc;
	o->imports = !strcmp(o->gpu_lane, "agent");
	if (o->probe[0])
		return 0;
	if (!o->name) {
		o->name = o->node;
		if (!is_agent_name(o->name))
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
