/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl: look at operators, agents and plans. */
#include "base/base.h"
#include "base/cli.h"
#include "base/err.h"
#include "base/log.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "weightbridge/version.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name; /* one word, or two */
	const char *arg; /* of the positional argument, for the help */
	int (*run)(const struct wb__ctl_opts *o, struct wb_err *err);
	bool takes_file; /* the argument is a file, else an object */
	bool has_yaml, has_html;
	const char *help;
} commands[] = {
	{"get", "[OBJECT]", wb__ctl_get, false, true, false,
		"one line an object, as kubectl get wt"},
	{"describe", "[OBJECT]", wb__ctl_describe, false, true, false,
		"all that is known of an object"},
	{"status", "[OBJECT]", wb__ctl_status, false, true, false,
		"of an agent (--agent), else as get"},
	{"top", "", wb__ctl_top, false, false, false,
		"what each worker of agents is at, live (--agent A,B,...)"},
	{"plan explain", "[FILE|OBJ]", wb__ctl_plan_explain, true, false, true,
		"volumes, stages, bounds and memory of a plan: of FILE, else the active one"},
	{"verify", "[OBJECT]", wb__ctl_verify, false, true, false,
		"compare what engines hold with the trainers (--agent A,B,...)"},
	{"trace", "[OBJECT]", wb__ctl_trace, false, false, true,
		"the last transfers as a trace; open the output in Perfetto"},
	{"check", "", wb__ctl_check, false, true, false,
		"whether an operator works (--operator), and shows its certificate (--tls)"},
	{"doctor", "[FILE|OBJECT]", wb__ctl_doctor, true, true, false,
		"what this build can do on this machine, and whether that is what an object asks "
		"for"},
	{"bench", "", wb__ctl_bench, false, true, false,
		"bandwidth and latency from another agent's place (--to AGENT), or between any "
		"two"},
	{"inject", "-f FILE|-", wb__ctl_inject, false, false, false,
		"add the agent to the pod templates of FILE that have label "
		"weightbridge.io/inject=enabled"},
	{"simulate", "[FILE]", wb__ctl_simulate, true, false, true,
		"plan a deployment from a model and its layouts alone, and predict a transfer"},
	{"support-bundle", "", wb__ctl_bundle, false, false, false,
		"all that can be seen from here as a tar file on stdout, without secrets"},
};

#define AT(field) .at = offsetof(struct wb__ctl_opts, field)
static const struct wb_cli_row rows[] = {
	{"operator", "HOST:PORT", WB_CLI_TEXT, AT(operator_addr)},
	{"agent", "HOST:PORT|PATH", WB_CLI_TEXT, AT(agent_addr)},
	{"object", "NAME", WB_CLI_TEXT, AT(object)},
	{"manifest", "FILE", WB_CLI_TEXT, AT(manifest)},
	{"tls", "HOST:PORT", WB_CLI_TEXT, AT(tls_addr)},
	{"token-file", "FILE", WB_CLI_TEXT, AT(token_file)},
	{"ca-file", "FILE", WB_CLI_TEXT, AT(ca_file)},
	{"namespace", "NAMESPACE", WB_CLI_TEXT, 'n', AT(ns)},
	{"image", "IMAGE", WB_CLI_TEXT, AT(image)},
	{"metrics-auth", NULL, WB_CLI_FLAG, AT(asks_for_metrics)},
	{"model", "MODEL", WB_CLI_TEXT, AT(simulate.model)},
	{"trainer", "LAYOUT", WB_CLI_TEXT, AT(simulate.trainer)},
	{"rollout", "LAYOUT", WB_CLI_TEXT, AT(simulate.rollout)},
	{"engines", "N", WB_CLI_TEXT, AT(simulate.engines)},
	{"gpus-per-node", "N", WB_CLI_TEXT, AT(simulate.gpus_per_node)},
	{"rail-gbit", "N", WB_CLI_TEXT, AT(simulate.rail_gbit)},
	{"pods", "N", WB_CLI_TEXT, AT(simulate.pods)},
	{"pod-memory", "own|shared", WB_CLI_TEXT, AT(simulate.pod_memory)},
	{"staging", "none|trainer|rollout|both", WB_CLI_TEXT, AT(simulate.staging)},
	{"mode", "weightbridge|paper", WB_CLI_TEXT, AT(simulate.mode)},
	{"set", "WORD=NUMBER,...", WB_CLI_TEXT, AT(simulate.set)},
	{"plan-only", NULL, WB_CLI_FLAG, AT(simulate.plan_only)},
	{"dump-maps", "FOLDER", WB_CLI_TEXT, AT(simulate.dump_maps)},
	{"transport", "tcp|shm|verbs", WB_CLI_WORD, AT(bench.transport),
		.want = "tcp, shm or verbs"},
	{"listen", "ADDRESS,...", WB_CLI_TEXT, AT(bench.listen), .min = 1, .want = "addresses"},
	{"to", "AGENT|ADDRESS,...", WB_CLI_TEXT, AT(bench.to), .min = 1,
		.want = "an agent, or addresses"},
	{"from", "ADDRESS,...", WB_CLI_TEXT, AT(bench.from), .min = 1, .want = "addresses"},
	{"key-file", "FILE", WB_CLI_TEXT, AT(bench.key_file), .min = 1, .want = "a file name"},
	{"rails", "N,...", WB_CLI_TEXT, AT(bench.rails)},
	{"sizes", "SIZE,...", WB_CLI_TEXT, AT(bench.sizes)},
	{"depths", "N,...", WB_CLI_TEXT, AT(bench.depths)},
	{"sums", "on|off|both", WB_CLI_WORD, AT(bench.sums), .want = "on, off or both"},
	{"seconds", "SECONDS", WB_CLI_TEXT, AT(bench.seconds)},
	{"timeout", "SECONDS", WB_CLI_TEXT, AT(bench.timeout)},
	{"memory", "SIZE", WB_CLI_TEXT, AT(bench.memory)},
	{"encrypt", NULL, WB_CLI_FLAG, AT(bench.is_encrypted)},
	{"spin", NULL, WB_CLI_FLAG, AT(bench.is_spinning)},
	{"force", NULL, WB_CLI_FLAG, AT(bench.is_forced)},
	{"wait", "SECONDS", WB_CLI_TEXT, AT(bench.wait)},
	{"parent", "PID", WB_CLI_TEXT, AT(bench.parent)},
	{"apart", NULL, WB_CLI_FLAG, AT(bench.is_apart)},
	{"rdma-traffic-class", "N", WB_CLI_U32, AT(bench.traffic_class), .max = 255,
		.want = "0 to 255"},
	{"rdma-service-level", "N", WB_CLI_U32, AT(bench.service_level), .max = 15,
		.want = "0 to 15"},
	{"no-rdma-windows", NULL, WB_CLI_FLAG, AT(bench.no_windows)},
	{"file", "FILE", WB_CLI_TEXT, 'f', AT(file)},
	{"html", "FILE", WB_CLI_TEXT, AT(html)},
	{"watch", NULL, WB_CLI_FLAG, 'w', AT(is_watch)},
	{"interval", "SECONDS", WB_CLI_TEXT, AT(interval)},
	{"once", NULL, WB_CLI_FLAG, AT(is_once)},
	{"output", "wide|json|yaml", WB_CLI_WORD, 'o', AT(output), .want = "wide, json or yaml"},
	{"json", NULL, WB_CLI_WORD, AT(output), .word = "json"},
};

static void print_bench(void)
{
	printf("  bench                    measures between two processes of its own, not with "
	       "running\n"
	       "                           agents; of two agents' places one command does, in the "
	       "container\n"
	       "                           of one (kubectl exec POD -c weightbridge-agent -- wbctl "
	       "bench\n"
	       "                           --to OTHER-POD); wbctl(1) says more under BENCH\n"
	       "  --to AGENT, --force, --agent HOST:PORT\n"
	       "                           bench: from that agent's place; also while a transfer "
	       "is "
	       "under\n"
	       "                           way; where that agent's pages are\n"
	       "  --listen ADDRESS,...     bench: the end that has the bytes: where it waits\n"
	       "                           (tcp, verbs: ADDRESS[:PORT]; shm: /PATH, @NAME)\n"
	       "  --to ADDRESS,...         bench: the other end, which measures: what --listen "
	       "printed\n"
	       "  --transport tcp|shm|verbs\n"
	       "                           bench: which one (default: by the addresses)\n"
	       "  --key-file FILE          bench: key of both ends (- = stdin; default: "
	       "--listen makes\n"
	       "                           one and prints it, and "
	       "$WEIGHTBRIDGE_BENCH_KEY has it)\n"
	       "  --sizes SIZE,..., --depths N,..., --rails N,..., --sums on|off|both\n"
	       "                           bench: bytes of a chunk, chunks asked for at once, "
	       "rails,\n"
	       "                           checksums (default: 64Ki,1Mi,8Mi  1,16  1  both)\n"
	       "  --seconds SECONDS, --timeout SECONDS\n"
	       "                           bench: time for all of it (10); longest silence of the "
	       "other\n"
	       "                           end (10)\n"
	       "  --from ADDRESS,..., --memory SIZE, --encrypt, --spin\n"
	       "                           bench: of the receiver's rails; of the source (64Mi); "
	       "TLS;\n"
	       "                           never sleep (see wbctl(1))\n");
}

static void print_help(void)
{
	char left[64];

	printf("usage: wbctl COMMAND [OPTION]...\nLooks at operators, agents and plans.\n\n");
	for (size_t i = 0; i < WB_ARRAY_SIZE(commands); i++) {
		snprintf(left, sizeof(left), "%s %s", commands[i].name, commands[i].arg);
		printf("  %-24s %s\n", left, commands[i].help);
	}
	printf("\n"
	       "  --operator HOST:PORT     the operator's --http address (default: "
	       "$WEIGHTBRIDGE_OPERATOR_HTTP,\n"
	       "                           else " WB_CTL_OPERATOR ")\n"
	       "  --agent HOST:PORT|PATH   an agent's --http address, or its SOCKET.http (default: "
	       "of this\n"
	       "                           container)\n"
	       "  --object NAME            object, when the operator has several\n"
	       "  --token-file FILE        token of the object's namespace, for an operator in "
	       "another "
	       "pod\n"
	       "  --manifest FILE          manifest of the plan in FILE, for tensor names\n"
	       "  --tls HOST:PORT, --ca-file FILE\n"
	       "                           check: where agents connect, and its authority\n"
	       "  -f FILE, -n NAMESPACE, --image IMAGE, --operator HOST:PORT\n"
	       "                           inject: manifests (- = stdin), of objects that name "
	       "none,\n"
	       "                           the agent's image, where agents find the operator\n"
	       "  --metrics-auth           inject: agents ask for a token before they show "
	       "metrics\n"
	       "  --model NAME|PATH, --trainer LAYOUT, --rollout LAYOUT, --engines N\n"
	       "                           simulate: a built-in model or a config.json, who trains "
	       "it\n"
	       "                           (megatron:tp4,pp4,cp2,ep16  fsdp2:64  transformers:8), "
	       "who\n"
	       "                           serves it (vllm:tp8,pp2,dp2,ep16  sglang:tp32,ep32)\n"
	       "  --gpus-per-node N, --rail-gbit N\n"
	       "                           simulate: GPUs of a node, rate of the NIC of each "
	       "(default:\n"
	       "                           8, 400)\n"
	       "  --pods N, --pod-memory own|shared\n"
	       "                           simulate: pods of an engine, or the trainer, on a "
	       "node;\n"
	       "                           whether pods of a node reach each other's memory "
	       "(default:\n"
	       "                           1, own)\n"
	       "  --staging none|trainer|rollout|both, --set WORD=NUMBER,...\n"
	       "                           simulate: who keeps versions in host memory; parameters "
	       "of\n"
	       "                           the prediction (--set list: all of them)\n"
	       "  --mode weightbridge|paper\n"
	       "                           simulate: the agents' flow, or that of the paper, in "
	       "rounds\n"
	       "  --plan-only              simulate: no prediction\n"
	       "  --dump-maps DIR          simulate: write the manifest and each worker's map\n");
	print_bench();
	printf("  --html FILE              plan explain, simulate, trace: a page with pictures for "
	       "a\n"
	       "                           browser (- = stdout)\n"
	       "  --json, -o json          machine-readable output\n"
	       "  -o yaml                  the same as YAML, where others than plan explain, top, "
	       "simulate "
	       "and\n"
	       "                           trace have it\n"
	       "  -o wide                  more columns\n"
	       "  -w, --watch              get: go on, and show each object that changes\n"
	       "  -n SECONDS, --once       top: from one table to the next (default: 1); one "
	       "table\n"
	       "  --help, --version\n");
}

const char *wb__ctl_operator(const struct wb__ctl_opts *o)
{
	const char *env = getenv("WEIGHTBRIDGE_OPERATOR_HTTP");

	if (o->operator_addr)
		return o->operator_addr;
	return env && *env ? env : WB_CTL_OPERATOR;
}

/* In an agent's container: the socket of the agent's pages, or their port, where an older agent has
 * no such socket. */
const char *wb__ctl_agent(const struct wb__ctl_opts *o, char text[static 32])
{
	const char *pages = getenv("WEIGHTBRIDGE_AGENT_PAGES");
	const char *path = getenv("WEIGHTBRIDGE_AGENT_PORTS");
	FILE *f;
	unsigned port, found = 0;
	char key[16];

	if (o->agent_addr || o->operator_addr)
		return o->agent_addr;
	if (pages && *pages)
		return pages;
	f = path ? fopen(path, "re") : NULL;
	while (f && fscanf(f, "%15s %u", key, &port) == 2)
		if (!strcmp(key, "http") && port < 65536)
			found = port;
	if (f)
		fclose(f);
	if (!found)
		return NULL;
	snprintf(text, 32, "127.0.0.1:%u", found);
	return text;
}

/* Is @word NAMESPACE/NAME, and not a file? */
static bool is_object(const char *word)
{
	const char *slash = strchr(word, '/');

	return slash && slash != word && slash[1] && !strchr(slash + 1, '/') &&
	       access(word, F_OK) != 0;
}

static bool is_command(size_t i, char **word, int n, int *used)
{
	const char *space = strchr(commands[i].name, ' ');
	size_t first = space ? (size_t)(space - commands[i].name) : strlen(commands[i].name);

	if (n < 1 || strlen(word[0]) != first || strncmp(word[0], commands[i].name, first) != 0)
		return false;
	*used = space ? 2 : 1;
	return !space || (n > 1 && !strcmp(word[1], space + 1));
}

/* Finds the command, and the object or file that it is about.  Returns its index, or negative. */
static int take_words(char **word, int n, struct wb__ctl_opts *o, struct wb_err *err)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(commands); i++) {
		int used = 0;

		if (!is_command(i, word, n, &used))
			continue;
		/* users of kubectl write: get wt NAME */
		if (used < n &&
			(!strcmp(word[used], "wt") || !strcmp(word[used], "weighttransfer")))
			used++;
		if (n - used > (commands[i].arg[0] == '[' ? 1 : 0))
			return wb_err_set(err, -EINVAL, "%s: unexpected argument '%s' (see --help)",
				commands[i].name, word[n - 1]);
		if (n - used == 1 && commands[i].takes_file && !is_object(word[used]))
			o->file = word[used];
		else if (n - used == 1)
			o->object = word[used];
		return (int)i;
	}
	if (!n)
		return wb_err_set(err, -EINVAL, "no command (see --help)");
	for (size_t i = 0; i < WB_ARRAY_SIZE(commands); i++)
		if (n == 1 && !strncmp(commands[i].name, word[0], strlen(word[0])) &&
			commands[i].name[strlen(word[0])] == ' ')
			return wb_err_set(err, -EINVAL, "'%s' is not all: %s (see --help)", word[0],
				commands[i].name);
	return wb_err_set(err, -EINVAL, "unknown command '%s%s%s' (see --help)", word[0],
		n > 1 ? " " : "", n > 1 ? word[1] : "");
}

static bool is_given(const struct wb_cli_row *row, const struct wb__ctl_opts *o)
{
	const char *at = (const char *)o + row->at;

	if (row->kind == WB_CLI_U32)
		return *(const uint32_t *)(const void *)at != 0;
	return row->kind == WB_CLI_FLAG ? *(const bool *)at
					: *(const char *const *)(const void *)at != NULL;
}

#define IS_OF(row, part)                                                                           \
	((row)->at >= offsetof(struct wb__ctl_opts, part) &&                                       \
		(row)->at < offsetof(struct wb__ctl_opts, part) +                                  \
				    sizeof(((struct wb__ctl_opts *)0)->part))

/* Options in the struct of bench or simulate are for that command only. */
static int check_owner(size_t command, const struct wb__ctl_opts *o, struct wb_err *err)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(rows); i++) {
		bool is_bench = IS_OF(&rows[i], bench), is_simulate = IS_OF(&rows[i], simulate);

		if ((is_bench && commands[command].run != wb__ctl_bench && is_given(&rows[i], o)) ||
			(is_simulate && commands[command].run != wb__ctl_simulate &&
				is_given(&rows[i], o)))
			return wb_err_set(err, -EINVAL, "--%s is of %s, not of %s", rows[i].name,
				is_bench ? "bench" : "simulate", commands[command].name);
	}
	return 0;
}

/* 0, or a sentence for an option that the command does not have. */
static int check_options(size_t command, const struct wb__ctl_opts *o, struct wb_err *err)
{
	if (o->is_yaml && !commands[command].has_yaml)
		return wb_err_set(err, -EINVAL, "%s has no YAML: -o json", commands[command].name);
	if (o->is_watch && commands[command].run != wb__ctl_get)
		return wb_err_set(
			err, -EINVAL, "--watch is of get, not of %s", commands[command].name);
	if ((o->is_once || o->interval) && commands[command].run != wb__ctl_top)
		return wb_err_set(err, -EINVAL, "--%s is of top, not of %s",
			o->is_once ? "once" : "interval", commands[command].name);
	if (o->html && !commands[command].has_html)
		return wb_err_set(err, -EINVAL,
			"--html is of plan explain, trace and simulate, not of %s",
			commands[command].name);
	return check_owner(command, o, err);
}

static int run(size_t command, const struct wb__ctl_opts *o, struct wb_err *err)
{
	int rc;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	wb__ctl_show_token(wb__ctl_operator(o), o->token_file, o->object);
	rc = commands[command].run(o, err);
	curl_global_cleanup();
	if (rc == 0 && (fflush(stdout) || ferror(stdout)))
		rc = wb_err_set(err, -EIO, "write to stdout: %s", strerror(errno));
	return rc;
}

int main(int argc, char **argv)
{
	static const struct wb_cli cli = {.program = "wbctl",
		.version = WB_VERSION,
		.print_help = print_help,
		.rows = rows,
		.n_row = WB_ARRAY_SIZE(rows),
		.has_words = true};
	struct wb__ctl_opts o = {0};
	struct wb_err err = {0};
	int rc, end = WB_CLI_EXIT_USAGE;

	/* What transports log for information is meant for the log of an agent. */
	wb_log_level_max = WB_LOG_WARN;
	rc = wb_cli_parse(&cli, argc, argv, &o, &err);
	if (rc == WB_CLI_DONE)
		return EXIT_SUCCESS;
	if (rc == WB_CLI_RUN) {
		o.is_yaml = o.output && !strcmp(o.output, "yaml");
		o.is_json = o.is_yaml || (o.output && !strcmp(o.output, "json"));
		o.is_wide = o.output && !strcmp(o.output, "wide");
		if (o.file && !strcmp(o.file, "-"))
			o.file = NULL;
		rc = take_words(argv + wb_cli_words(), argc - wb_cli_words(), &o, &err);
	}
	if (rc >= 0 && check_options((size_t)rc, &o, &err) < 0)
		rc = -EINVAL;
	if (rc >= 0) {
		end = EXIT_FAILURE;
		rc = run((size_t)rc, &o, &err);
	}
	if (rc < 0)
		fprintf(stderr, "wbctl: %s\n", err.msg);
	return rc < 0 ? end : EXIT_SUCCESS;
}
