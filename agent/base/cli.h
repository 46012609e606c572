/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_CLI_H
#define WB_BASE_CLI_H
/*
 * Command lines of the daemons: one table of long options gives the parser, the help text and the
 * sentences about bad values.  --log-format, --log-level, --help and --version come by themselves.
 *
 * Threads: one (getopt's state is the process's).  Nothing is allocated: strings stay in argv.
 * Layer: base (L0).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;

#define WB_CLI_ROWS_MAX 64

struct wb_cli_row {
	const char *name, *arg; /* arg NULL: takes none */
	/* What it does: @set gets the caller's struct and the value (NULL when it takes none) and
	 * returns 0 or -errno.  Without @set the value, which must not be empty, is stored as a
	 * const char * @at bytes into the struct. */
	int (*set)(void *options, const char *value);
	size_t at;
	const char *want; /* what a value should have been, for "expected ..." */
	const char *help; /* a line */
};

struct wb_cli {
	const char *program, *version;
	const char *usage; /* before the options, ends with a newline */
	const char *notes; /* after them; NULL = none */
	const struct wb_cli_row *rows;
	size_t n_row; /* at most WB_CLI_ROWS_MAX */
};

struct wb_cli_addr {
	char host[256]; /* "" = all addresses */
	uint16_t port; /* 0 = any */
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

/** wb_cli_uint - decimal digits, @min to @max. */
int wb_cli_uint(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/** wb_cli_size - "64Mi", "1.5G", "100MB/s" (with @per_second) in bytes, at most 2^60. */
int wb_cli_size(const char *text, bool per_second, uint64_t *out);
/** wb_cli_addr - "host:port", "[::1]:port", ":port". */
int wb_cli_addr(const char *text, struct wb_cli_addr *out);
/** wb_cli_is_object - "namespace/name", each of at least one byte, together less than @max. */
bool wb_cli_is_object(const char *text, size_t max);
/**
 * wb_cli_is_whole - after getopt_long() took the long option @name: was it written out?
 * It accepts beginnings of words, which mean something else as soon as there is another option.
 */
bool wb_cli_is_whole(char *const *argv, const char *name);
/** wb_cli_host_name - the machine's name, "localhost" if it has none; static. */
const char *wb_cli_host_name(void);

#endif
