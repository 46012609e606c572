/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cli.h"

#include "base/base.h"
#include "base/err.h"
#include "base/log.h"
#include "base/quantity.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct log_options {
	const char *format, *level;
};

static int set_log_format(void *options, const char *value)
{
	struct log_options *o = options;

	o->format = value;
	return wb_log_setup(o->format, o->level);
}

static int set_log_level(void *options, const char *value)
{
	struct log_options *o = options;

	o->level = value;
	return wb_log_setup(o->format, o->level);
}

/* Those of every program, behind its own. */
enum { LOG_FORMAT, LOG_LEVEL, HELP, VERSION, N_COMMON };
static const struct wb_cli_row common[N_COMMON] = {
	[LOG_FORMAT] = {"log-format", "FORMAT", set_log_format, 0, "text, json or auto",
		"text, json, or auto: text on a terminal (default: auto)"},
	[LOG_LEVEL] = {"log-level", "LEVEL", set_log_level, 0, "error, warn, info or debug",
		"error, warn, info or debug (default: info)"},
	[HELP] = {"help", NULL, NULL, 0, NULL, "print this and exit"},
	[VERSION] = {"version", NULL, NULL, 0, NULL, "print the version and exit"},
};

static const struct wb_cli_row *row_at(const struct wb_cli *cli, size_t i)
{
	return i < cli->n_row ? &cli->rows[i] : &common[i - cli->n_row];
}

static void print_row(const struct wb_cli_row *row)
{
	char left[64];

	snprintf(left, sizeof(left), "--%s %s", row->name, row->arg ? row->arg : "");
	printf("  %-24s %s\n", left, row->help);
}

static void print_help(const struct wb_cli *cli)
{
	printf("%s\n", cli->usage);
	for (size_t i = 0; i < cli->n_row + N_COMMON; i++)
		print_row(row_at(cli, i));
	if (cli->notes)
		printf("\n%s", cli->notes);
}

static int set(const struct wb_cli_row *row, void *options, const char *value)
{
	if (row->set)
		return row->set(options, value);
	if (!*value)
		return -EINVAL;
	*(const char **)((char *)options + row->at) = value;
	return 0;
}

int wb_cli_parse(const struct wb_cli *cli, int argc, char **argv, void *options, struct wb_err *err)
{
	struct option longs[WB_CLI_ROWS_MAX + N_COMMON + 1] = {{0}};
	struct log_options log = {"auto", "info"};
	int c, at = -1;

	for (size_t i = 0; i < cli->n_row + N_COMMON; i++)
		longs[i] = (struct option){.name = row_at(cli, i)->name,
			.has_arg = row_at(cli, i)->arg ? required_argument : no_argument};
	(void)wb_log_setup(log.format, log.level);
	optind = 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, &at)) != -1) {
		const struct wb_cli_row *row;

		if (c == ':')
			return wb_err_set(err, -EINVAL, "%s needs a value", argv[optind - 1]);
		if (c)
			return wb_err_set(
				err, -EINVAL, "unknown option %s (see --help)", argv[optind - 1]);
		row = row_at(cli, (size_t)at);
		if (!wb_cli_is_whole(argv, row->name))
			return wb_err_set(err, -EINVAL,
				"unknown option (--%s is to be written out; see --help)",
				row->name);
		if (row == &common[HELP]) {
			print_help(cli);
			return WB_CLI_DONE;
		}
		if (row == &common[VERSION]) {
			printf("%s %s\n", cli->program, cli->version);
			return WB_CLI_DONE;
		}
		if (set(row, (size_t)at < cli->n_row ? options : &log, optarg) < 0)
			return wb_err_set(err, -EINVAL, "--%s %s: expected %s", row->name,
				*optarg ? optarg : "''", row->want);
	}
	if (optind < argc)
		return wb_err_set(
			err, -EINVAL, "unexpected argument '%s' (see --help)", argv[optind]);
	return WB_CLI_RUN;
}

bool wb_cli_is_whole(char *const *argv, const char *name)
{
	const char *word = argv[optind - 1];
	size_t n = strlen(name);

	if (optarg == word)
		word = argv[optind - 2];
	return !strncmp(word, "--", 2) && !strncmp(word + 2, name, n) &&
	       (!word[2 + n] || word[2 + n] == '=');
}

int wb_cli_uint(const char *text, uint64_t min, uint64_t max, uint64_t *out)
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

int wb_cli_size(const char *text, bool per_second, uint64_t *out)
{
	size_t n = strlen(text);
	char word[32];
	uint64_t v;

	if (per_second && n >= 2 && !strcmp(text + n - 2, "/s"))
		n -= 2;
	if (n && text[n - 1] == 'B')
		n--;
	if (n >= sizeof(word))
		return -EINVAL;
	memcpy(word, text, n);
	word[n] = '\0';
	if (n && word[n - 1] == 'K') /* as often written as k */
		word[n - 1] = 'k';
	if (wb_quantity(word, &v) < 0 || v > 1ull << 60)
		return -EINVAL;
	*out = v;
	return 0;
}

int wb_cli_addr(const char *text, struct wb_cli_addr *out)
{
	const char *colon = strrchr(text, ':');
	size_t n;
	uint64_t port;

	if (!colon || wb_cli_uint(colon + 1, 0, UINT16_MAX, &port) < 0)
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

bool wb_cli_is_object(const char *text, size_t max)
{
	const char *slash = strchr(text, '/');

	return slash && slash != text && slash[1] && !strchr(slash + 1, '/') && strlen(text) < max;
}

const char *wb_cli_host_name(void)
{
	static char host[254];

	if (!host[0] && (gethostname(host, sizeof(host) - 1) || !host[0]))
		snprintf(host, sizeof(host), "localhost");
	return host;
}
