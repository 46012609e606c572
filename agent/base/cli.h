/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_CLI_H
#define WB_BASE_CLI_H
/*
 * Command lines: one table of typed options gives the parser, the help text and the sentences about
 * bad values.  --help and --version need no row, nor do --log-format and --log-level in daemons.
 *
 * Threads: one (getopt's state is the process's).  Nothing is allocated: strings stay in argv.
 * Layer: base (L0).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;

#define WB_CLI_ROWS_MAX 64

enum wb_cli_kind {
	WB_CLI_FLAG, /* takes no value; bool, set to true */
	WB_CLI_TEXT, /* const char *; of @min to @max bytes (0 = any) */
	WB_CLI_WORD, /* const char *; one of those in @arg, "a|b"; takes none: @word is stored */
	/* May be repeated: const char *[@max], not empty; uint32_t at @n_at: how many so far */
	WB_CLI_LIST,
	WB_CLI_U32, /* uint32_t; @min to @max */
	WB_CLI_U64, /* uint64_t; @min to @max, multiplied by @unit (0 = 1) */
	WB_CLI_OCTAL, /* uint32_t; @min to @max, in octal digits */
	WB_CLI_SIZE, /* uint64_t; wb_cli_size(), at least @min */
	WB_CLI_RATE, /* the same, per second */
	WB_CLI_ADDR, /* struct wb_cli_addr */
	WB_CLI_PEER, /* the same; host and port are required */
};

struct wb_cli_row {
	const char *name, *arg; /* arg NULL: takes no value */
	enum wb_cli_kind kind;
	char letter; /* short name; 0 = none */
	bool is_unique; /* LIST: a value that is there already is refused */
	size_t at, n_at; /* where in the caller's struct the value, and the count, are */
	size_t stride; /* LIST: bytes from one value to the next; 0 = values are in an array */
	uint64_t min, max, unit;
	bool (*fits)(
		const char *value); /* what else has to be true of a TEXT or LIST; NULL = nothing */
	const char *word;
	const char *want; /* what a value should have been, for "expected ..." */
	const char *help; /* one line */
};

struct wb_cli {
	const char *program, *version;
	const char *usage; /* before the options, ends with a newline */
	const char *notes; /* after them; NULL = none */
	/* Prints the help instead of usage, rows and notes; NULL = these are printed */
	void (*print_help)(void);
	const struct wb_cli_row *rows;
	size_t n_row; /* at most WB_CLI_ROWS_MAX */
	bool has_words; /* also takes words that are not options: argv from wb_cli_words() on */
};

struct wb_cli_addr {
	char host[256]; /* "" = all addresses */
	uint16_t port; /* 0 = any */
	bool is_given;
};

enum wb_cli_end { WB_CLI_RUN, WB_CLI_DONE };

#define WB_CLI_EXIT_USAGE 2 /* exit status of a command line that was not understood */

/**
 * wb_cli_parse - read a command line into @options, which holds the defaults, and set up logging
 * Prints the text of --help and --version to stdout.  Returns WB_CLI_RUN, WB_CLI_DONE, or -EINVAL
 * with a sentence that names the option.
 */
int wb_cli_parse(
	const struct wb_cli *cli, int argc, char **argv, void *options, struct wb_err *err);

/* Values.  Each returns 0, or -EINVAL and leaves @out alone. */

/** wb_cli_uint - decimal digits, @min to @max.  0 or -EINVAL. */
int wb_cli_uint(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/** wb_cli_size - "64Mi", "1.5G", "100MB/s" (with @per_second) in bytes.  0; -EINVAL, also above
 *  2^60. */
int wb_cli_size(const char *text, bool per_second, uint64_t *out);
/** wb_cli_addr - "host:port", "[::1]:port", ":port". */
int wb_cli_addr(const char *text, struct wb_cli_addr *out);
/** wb_cli_is_object - "namespace/name", each of at least one byte, together less than @max. */
bool wb_cli_is_object(const char *text, size_t max);
/** wb_cli_words - after wb_cli_parse(): index in argv of the first word that is no option. */
int wb_cli_words(void);
/** wb_cli_host_name - the machine's name, or "localhost" if it has none; static. */
const char *wb_cli_host_name(void);

#endif
