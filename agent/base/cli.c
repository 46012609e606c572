/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cli.h"

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

/* Options that every program has after its own; programs that take no words (daemons) also have
 * those about logs. */
enum { HELP, VERSION, LOG_FORMAT, LOG_LEVEL, N_COMMON };
static const struct wb_cli_row common[N_COMMON] = {
	[LOG_FORMAT] = {"log-format", "FORMAT", WB_CLI_TEXT,
		.at = offsetof(struct log_options, format), .want = "text, json or auto",
		.help = "text, json, or auto: text on a terminal (default: auto)"},
	[LOG_LEVEL] = {"log-level", "LEVEL", WB_CLI_TEXT, .at = offsetof(struct log_options, level),
		.want = "error, warn, info or debug",
		.help = "error, warn, info or debug (default: info)"},
	[HELP] = {"help", .help = "print this and exit"},
	[VERSION] = {"version", .help = "print the version and exit"},
};
static const int shown[N_COMMON] = {LOG_FORMAT, LOG_LEVEL, HELP, VERSION};

static size_t n_rows(const struct wb_cli *cli)
{
	return cli->n_row + (cli->has_words ? LOG_FORMAT : N_COMMON);
}

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
	if (cli->print_help) {
		cli->print_help();
		return;
	}
	printf("%s\n", cli->usage);
	for (size_t i = 0; i < cli->n_row; i++)
		print_row(&cli->rows[i]);
	for (size_t i = 0; i < N_COMMON; i++)
		print_row(&common[shown[i]]);
	if (cli->notes)
		printf("\n%s", cli->notes);
}

/* ---- values --------------------------------------------------------------------------------- */

static bool is_word(const char *words, const char *value)
{
	size_t n = strlen(value);

	for (const char *w = words; w; w = strchr(w, '|'), w = w ? w + 1 : NULL)
		if (!strncmp(w, value, n) && n && (!w[n] || w[n] == '|'))
			return !strchr(value, '|');
	return false;
}

static int set_text(const struct wb_cli_row *row, const char **to, const char *value)
{
	size_t n = strlen(value);

	if (n < row->min || (row->max && n > row->max) || (row->fits && !row->fits(value)))
		return -EINVAL;
	*to = value;
	return 0;
}

static int add_text(const struct wb_cli_row *row, char *options, const char *value)
{
	size_t stride = row->stride ? row->stride : sizeof(char *);
	uint32_t *n = (uint32_t *)(void *)(options + row->n_at);

	if (!*value || *n == row->max || (row->fits && !row->fits(value)))
		return -EINVAL;
	for (uint32_t i = 0; row->is_unique && i < *n; i++)
		if (!strcmp(*(const char **)(void *)(options + row->at + i * stride), value))
			return -EINVAL;
	*(const char **)(void *)(options + row->at + *n * stride) = value;
	++*n;
	return 0;
}

static int read_octal(const struct wb_cli_row *row, const char *value, uint64_t *v)
{
	char *end;

	*v = strtoul(value, &end, 8);
	return *value < '0' || *value > '7' || *end || *v < row->min || *v > row->max ? -EINVAL : 0;
}

static int read_number(const struct wb_cli_row *row, const char *value, uint64_t *v)
{
	if (row->kind == WB_CLI_OCTAL)
		return read_octal(row, value, v);
	if (row->kind == WB_CLI_SIZE || row->kind == WB_CLI_RATE)
		return wb_cli_size(value, row->kind == WB_CLI_RATE, v) < 0 || *v < row->min
			       ? -EINVAL
			       : 0;
	return wb_cli_uint(value, row->min, row->max, v);
}

static int set_number(const struct wb_cli_row *row, void *to, const char *value)
{
	uint64_t v;

	if (read_number(row, value, &v) < 0)
		return -EINVAL;
	if (row->kind == WB_CLI_U32 || row->kind == WB_CLI_OCTAL)
		*(uint32_t *)to = (uint32_t)v;
	else
		*(uint64_t *)to = v * (row->unit ? row->unit : 1);
	return 0;
}

/* @value: NULL when the option takes none. */
static int set(const struct wb_cli_row *row, void *options, const char *value)
{
	void *to = (char *)options + row->at;
	struct wb_cli_addr *addr = to;

	switch (row->kind) {
	case WB_CLI_FLAG:
		*(bool *)to = true;
		return 0;
	case WB_CLI_WORD:
		if (value && !is_word(row->arg, value))
			return -EINVAL;
		*(const char **)to = value ? value : row->word;
		return 0;
	case WB_CLI_TEXT:
		return set_text(row, to, value);
	case WB_CLI_LIST:
		return add_text(row, options, value);
	case WB_CLI_ADDR:
		return wb_cli_addr(value, addr);
	case WB_CLI_PEER:
		return wb_cli_addr(value, addr) < 0 || !addr->host[0] || !addr->port ? -EINVAL : 0;
	default:
		return set_number(row, to, value);
	}
}

/* ---- the line ------------------------------------------------------------------------------- */

static int take(const struct wb_cli *cli, const struct wb_cli_row *row, void *options,
	struct log_options *log, struct wb_err *err)
{
	bool is_log = row == &common[LOG_FORMAT] || row == &common[LOG_LEVEL];
	char letter[] = {'-', row->letter, '\0'};
	int rc;

	if (row == &common[HELP]) {
		print_help(cli);
		return WB_CLI_DONE;
	}
	if (row == &common[VERSION]) {
		printf("%s %s\n", cli->program, cli->version);
		return WB_CLI_DONE;
	}
	rc = set(row, is_log ? (void *)log : options, row->arg ? optarg : NULL);
	if (rc == 0 && is_log)
		rc = wb_log_setup(log->format, log->level);
	if (rc < 0)
		return wb_err_set(err, -EINVAL, "%s%s %s: expected %s", row->letter ? letter : "--",
			row->letter ? "" : row->name, *optarg ? optarg : "''", row->want);
	return WB_CLI_RUN;
}

/* @word: the option as the user wrote it. */
static int refuse(const struct wb_cli *cli, int c, const char *word, struct wb_err *err)
{
	if (c == ':')
		return wb_err_set(err, -EINVAL, "%s needs a value%s", word,
			cli->has_words ? " (see --help)" : "");
	/* The unknown letter is in optopt.  @word may be the word before: getopt stays at a word of
	 * several letters until all of them are read. */
	if (optopt > ' ')
		return wb_err_set(err, -EINVAL, "unknown option -%c (see --help)", optopt);
	return wb_err_set(err, -EINVAL, "unknown option %s (see --help)", word);
}

/* Was the option written out?  getopt_long() also accepts abbreviations, but an abbreviation may
 * mean something else as soon as there is another option. */
static bool is_whole(char *const *argv, const char *name)
{
	const char *word = argv[optind - 1];
	size_t n = strlen(name);

	if (optarg == word)
		word = argv[optind - 2];
	return !strncmp(word, "--", 2) && !strncmp(word + 2, name, n) &&
	       (!word[2 + n] || word[2 + n] == '=');
}

static void list_options(const struct wb_cli *cli, struct option *longs, char *letters)
{
	*letters++ = ':';
	for (size_t i = 0; i < n_rows(cli); i++) {
		const struct wb_cli_row *row = row_at(cli, i);

		longs[i] = (struct option){
			.name = row->name, .has_arg = row->arg ? required_argument : no_argument};
		if (row->letter) {
			*letters++ = row->letter;
			if (row->arg)
				*letters++ = ':';
		}
	}
}

static int row_of_letter(const struct wb_cli *cli, int letter)
{
	size_t i = 0;

	while (i < cli->n_row && cli->rows[i].letter != letter)
		i++;
	return (int)i;
}

int wb_cli_parse(const struct wb_cli *cli, int argc, char **argv, void *options, struct wb_err *err)
{
	struct option longs[WB_CLI_ROWS_MAX + N_COMMON + 1] = {{0}};
	char letters[2 * WB_CLI_ROWS_MAX + 2] = "";
	struct log_options log = {"auto", "info"};
	int c, at = -1, rc = WB_CLI_RUN;

	list_options(cli, longs, letters);
	if (!cli->has_words)
		(void)wb_log_setup(log.format, log.level);
	optind = 0;
	opterr = 0;
	while (rc == WB_CLI_RUN && (c = getopt_long(argc, argv, letters, longs, &at)) != -1) {
		if (c == ':' || c == '?')
			return refuse(cli, c, argv[optind - 1], err);
		if (!c && !is_whole(argv, longs[at].name))
			return wb_err_set(err, -EINVAL,
				"unknown option (--%s is to be written out; see --help)",
				longs[at].name);
		at = c ? row_of_letter(cli, c) : at;
		rc = take(cli, row_at(cli, (size_t)at), options, &log, err);
	}
	if (rc == WB_CLI_RUN && !cli->has_words && optind < argc)
		return wb_err_set(
			err, -EINVAL, "unexpected argument '%s' (see --help)", argv[optind]);
	return rc;
}

int wb_cli_words(void)
{
	return optind;
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
	if (n && word[n - 1] == 'K') /* many write K for k */
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
	out->is_given = true;
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
