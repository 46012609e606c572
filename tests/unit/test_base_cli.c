/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cli.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/err.h"
#include "base/log.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct opts {
	const char *file;
	uint64_t n;
	bool is_on;
};

#define AT(field) .at = offsetof(struct opts, field)
static const struct wb_cli_row rows[] = {
	{"file", "FILE", WB_CLI_TEXT, AT(file), .min = 1, .want = "a file name",
		.help = "what to read"},
	{"number", "N", WB_CLI_U64, AT(n), .min = 1, .max = 9, .want = "1 to 9",
		.help = "how many"},
	{"on", NULL, WB_CLI_FLAG, AT(is_on), .help = "switch it on"},
};
static const struct wb_cli cli = {.program = "toy",
	.version = "1.2",
	.usage = "usage: toy\n",
	.notes = "The end.\n",
	.rows = rows,
	.n_row = WB_ARRAY_SIZE(rows)};

static const struct {
	const char *argv[5];
	const char *says; /* NULL: taken */
} lines[] = {
	{{"toy"}, NULL},
	{{"toy", "--file", "x", "--number=7", "--on"}, NULL},
	{{"toy", "--file="}, "--file '': expected a file name"},
	{{"toy", "--number", "10"}, "--number 10: expected 1 to 9"},
	{{"toy", "--number", "x"}, "--number x: expected 1 to 9"},
	{{"toy", "--number"}, "--number needs a value"},
	{{"toy", "--numbr", "1"}, "unknown option --numbr (see --help)"},
	{{"toy", "--num", "1"}, "unknown option (--number is to be written out; see --help)"},
	{{"toy", "--fil=x"}, "unknown option (--file is to be written out; see --help)"},
	{{"toy", "--o"}, "unknown option (--on is to be written out; see --help)"},
	{{"toy", "-x"}, "unknown option -x (see --help)"},
	{{"toy", "--log-level", "loud"}, "--log-level loud: expected error, warn, info or debug"},
	{{"toy", "--log-format="}, "--log-format '': expected text, json or auto"},
	{{"toy", "--on", "more"}, "unexpected argument 'more' (see --help)"},
};

START_TEST(a_line_is_taken_or_refused_by_option)
{
	struct opts o = {.file = "default"};
	struct wb_err err = {0};
	char *argv[6] = {0};
	int argc = 0, rc;

	for (; argc < 5 && lines[_i].argv[argc]; argc++)
		argv[argc] = strdup(lines[_i].argv[argc]);
	rc = wb_cli_parse(&cli, argc, argv, &o, &err);
	ck_assert_int_eq(rc, lines[_i].says ? -EINVAL : WB_CLI_RUN);
	if (lines[_i].says)
		ck_assert_str_eq(err.msg, lines[_i].says);
	else if (argc > 1)
		ck_assert(!strcmp(o.file, "x") && o.n == 7 && o.is_on);
	else
		ck_assert(!strcmp(o.file, "default") && !o.n && !o.is_on);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
}
END_TEST

/* ---- kinds ---- */

static bool is_even(const char *s)
{
	return strlen(s) % 2 == 0;
}

struct all {
	bool flag;
	const char *text, *even, *word, *list[2];
	struct {
		uint32_t other;
		const char *text;
	} apart[2];
	uint32_t n_list, n_apart, u32, octal;
	uint64_t u64, size, rate;
	struct wb_cli_addr addr, peer;
};

#undef AT
#define AT(field) .at = offsetof(struct all, field)
#define N_AT(field) .n_at = offsetof(struct all, field)
static const struct wb_cli_row kinds[] = {
	{"flag", NULL, WB_CLI_FLAG, AT(flag)},
	{"text", "T", WB_CLI_TEXT, 't', AT(text), .max = 3, .want = "short"},
	{"even", "T", WB_CLI_TEXT, AT(even), .fits = is_even, .want = "even"},
	{"word", "one|two", WB_CLI_WORD, 'w', AT(word), .want = "one or two"},
	{"two", NULL, WB_CLI_WORD, AT(word), .word = "two"},
	{"list", "T", WB_CLI_LIST, AT(list), N_AT(n_list), .max = 2, .fits = is_even,
		.want = "two"},
	{"apart", "T", WB_CLI_LIST, AT(apart[0].text), N_AT(n_apart), .max = 2, .is_unique = true,
		.stride = sizeof(((struct all *)0)->apart[0]), .want = "another"},
	{"u32", "N", WB_CLI_U32, AT(u32), .max = 7, .want = "small"},
	{"u64", "N", WB_CLI_U64, AT(u64), .max = 7, .unit = 1000, .want = "small"},
	{"octal", "N", WB_CLI_OCTAL, AT(octal), .min = 1, .max = 0777, .want = "octal"},
	{"size", "N", WB_CLI_SIZE, AT(size), .min = 2, .want = "a size"},
	{"rate", "N", WB_CLI_RATE, AT(rate), .want = "a rate"},
	{"addr", "A", WB_CLI_ADDR, AT(addr), .want = "HOST:PORT"},
	{"peer", "A", WB_CLI_PEER, AT(peer), .want = "all of it"},
};
static const struct wb_cli tool = {.program = "tool",
	.version = "3",
	.usage = "usage: tool\n",
	.rows = kinds,
	.n_row = WB_ARRAY_SIZE(kinds),
	.has_words = true};

static const struct {
	const char *argv[6], *says;
} kind_lines[] = {
	{{"tool", "--text", "four"}, "-t four: expected short"},
	{{"tool", "-t", "four"}, "-t four: expected short"},
	{{"tool", "-t"}, "-t needs a value (see --help)"},
	{{"tool", "--text"}, "--text needs a value (see --help)"},
	{{"tool", "-x"}, "unknown option -x (see --help)"},
	{{"tool", "--log-level", "info"}, "unknown option --log-level (see --help)"},
	{{"tool", "--even", "odd"}, "--even odd: expected even"},
	{{"tool", "-w", "on"}, "-w on: expected one or two"},
	{{"tool", "-w", "one|two"}, "-w one|two: expected one or two"},
	{{"tool", "-w", ""}, "-w '': expected one or two"},
	{{"tool", "--list="}, "--list '': expected two"},
	{{"tool", "--list=odd"}, "--list odd: expected two"},
	{{"tool", "--list=ab", "--list=cd", "--list=ef"}, "--list ef: expected two"},
	{{"tool", "--apart=a", "--apart=a"}, "--apart a: expected another"},
	{{"tool", "--u32", "8"}, "--u32 8: expected small"},
	{{"tool", "--u64", "8"}, "--u64 8: expected small"},
	{{"tool", "--octal", "0"}, "--octal 0: expected octal"},
	{{"tool", "--octal", "1000"}, "--octal 1000: expected octal"},
	{{"tool", "--octal", "8"}, "--octal 8: expected octal"},
	{{"tool", "--octal", "-1"}, "--octal -1: expected octal"},
	{{"tool", "--size", "1"}, "--size 1: expected a size"},
	{{"tool", "--size", "5/s"}, "--size 5/s: expected a size"},
	{{"tool", "--rate", "x"}, "--rate x: expected a rate"},
	{{"tool", "--addr", "a"}, "--addr a: expected HOST:PORT"},
	{{"tool", "--peer", ":5"}, "--peer :5: expected all of it"},
	{{"tool", "--peer", "a:0"}, "--peer a:0: expected all of it"},
};

static int parse_tool(const char *const *words, struct all *o, struct wb_err *err)
{
	static char room[24][24]; /* what is stored points into it */
	char *argv[24] = {0};
	int argc = 0, rc;

	for (; words[argc]; argc++) {
		snprintf(room[argc], sizeof(room[argc]), "%s", words[argc]);
		argv[argc] = room[argc];
	}
	rc = wb_cli_parse(&tool, argc, argv, o, err);
	return rc == WB_CLI_RUN ? argc - wb_cli_words() : rc;
}

START_TEST(a_value_that_its_kind_does_not_have_is_refused)
{
	struct wb_err err = {0};
	struct all o = {0};

	ck_assert_int_eq(parse_tool(kind_lines[_i].argv, &o, &err), -EINVAL);
	ck_assert_str_eq(err.msg, kind_lines[_i].says);
}
END_TEST

START_TEST(values_are_stored_by_their_kind)
{
	static const char *const words[] = {"tool", "--flag", "-tx", "--even=", "--two", "-w",
		"one", "verb", "--list", "ab", "--list=ab", "--apart=a", "--apart=b", "--u32=7",
		"--u64=7", "--octal=640", "--size=2k", "--rate=5/s", "--addr=:7", "--peer=h:8",
		"noun", NULL};
	struct wb_err err = {0};
	struct all o = {0};

	ck_assert_int_eq(parse_tool(words, &o, &err), 2); /* words */
	ck_assert(o.flag && !strcmp(o.text, "x") && !*o.even && !strcmp(o.word, "one"));
	ck_assert(o.n_list == 2 && !strcmp(o.list[1], "ab"));
	ck_assert(o.n_apart == 2 && !strcmp(o.apart[0].text, "a") &&
		  !strcmp(o.apart[1].text, "b") && !o.apart[0].other && !o.apart[1].other);
	ck_assert(o.u32 == 7 && o.u64 == 7000 && o.octal == 0640 && o.size == 2000 && o.rate == 5);
	ck_assert(o.addr.is_given && !*o.addr.host && o.addr.port == 7);
	ck_assert(o.peer.is_given && !strcmp(o.peer.host, "h") && o.peer.port == 8);
}
END_TEST

START_TEST(help_lists_every_row_and_ends)
{
	char toy[] = "toy", help[] = "--help", version[] = "--version";
	char *argv[] = {toy, _i ? version : help, NULL};
	char text[1024] = {0};
	struct opts o = {0};
	FILE *f = tmpfile();
	int out = dup(STDOUT_FILENO);

	ck_assert_ptr_nonnull(f);
	fflush(stdout);
	ck_assert_int_ge(dup2(fileno(f), STDOUT_FILENO), 0);
	ck_assert_int_eq(wb_cli_parse(&cli, 2, argv, &o, NULL), WB_CLI_DONE);
	fflush(stdout);
	ck_assert_int_ge(dup2(out, STDOUT_FILENO), 0);
	rewind(f);
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, f), 0);
	if (_i)
		ck_assert_str_eq(text, "toy 1.2\n");
	else
		ck_assert_str_eq(text, "usage: toy\n\n"
				       "  --file FILE              what to read\n"
				       "  --number N               how many\n"
				       "  --on                     switch it on\n"
				       "  --log-format FORMAT      text, json, or auto: text on a "
				       "terminal (default: auto)\n"
				       "  --log-level LEVEL        error, warn, info or debug "
				       "(default: info)\n"
				       "  --help                   print this and exit\n"
				       "  --version                print the version and exit\n"
				       "\nThe end.\n");
	fclose(f);
	close(out);
}
END_TEST

START_TEST(a_log_level_is_set_whatever_comes_with_it)
{
	char toy[] = "toy", level[] = "--log-level=debug", format[] = "--log-format=json";
	char *argv[] = {toy, _i ? format : level, _i ? level : format, NULL};
	struct opts o = {0};

	wb_log_level_max = WB_LOG_ERROR;
	ck_assert_int_eq(wb_cli_parse(&cli, 1, argv, &o, NULL), WB_CLI_RUN);
	ck_assert_int_eq(wb_log_level_max, WB_LOG_INFO_);
	ck_assert_int_eq(wb_cli_parse(&cli, 3, argv, &o, NULL), WB_CLI_RUN);
	ck_assert_int_eq(wb_log_level_max, WB_LOG_DEBUG_);
}
END_TEST

static const struct {
	const char *text;
	bool per_second;
	uint64_t bytes; /* UINT64_MAX: refused */
} sizes[] = {
	{"0", false, 0},
	{"64Mi", false, 64u << 20},
	{"1.5Gi", false, 3ull << 29},
	{"1k", false, 1000},
	{"2K", false, 2000},
	{"0x10", false, UINT64_MAX},
	{"1e9", false, UINT64_MAX},
	{"1.M", false, UINT64_MAX},
	{"B", false, UINT64_MAX},
	{"99999999999999999999999999", false, UINT64_MAX},
	{"100MB", false, 100000000},
	{"100MB/s", true, 100000000},
	{"100M/s", false, UINT64_MAX},
	{"1048576Ti", false, 1ull << 60},
	{"1048577Ti", false, UINT64_MAX},
	{"", false, UINT64_MAX},
	{"-1", false, UINT64_MAX},
	{" 1", false, UINT64_MAX},
	{"inf", false, UINT64_MAX},
	{"1e400", false, UINT64_MAX},
	{"5 M", false, UINT64_MAX},
	{"5megabytes", false, UINT64_MAX},
};

START_TEST(a_size_has_decimal_and_binary_units)
{
	uint64_t got = 77;
	int rc = wb_cli_size(sizes[_i].text, sizes[_i].per_second, &got);

	if (sizes[_i].bytes == UINT64_MAX) {
		ck_assert_int_eq(rc, -EINVAL);
		ck_assert_uint_eq(got, 77);
	} else {
		ck_assert_int_eq(rc, 0);
		ck_assert_uint_eq(got, sizes[_i].bytes);
	}
}
END_TEST

static const struct {
	const char *text, *host; /* host NULL: refused */
	uint16_t port;
} addrs[] = {
	{"a:1", "a", 1},
	{":7444", "", 7444},
	{"[::1]:65535", "::1", 65535},
	{"::1:5", NULL, 0},
	{"a", NULL, 0},
	{"a:", NULL, 0},
	{"a:65536", NULL, 0},
	{"a:-1", NULL, 0},
	{"a:1x", NULL, 0},
};

START_TEST(an_address_is_host_and_port)
{
	struct wb_cli_addr a = {.host = "kept"};
	int rc = wb_cli_addr(addrs[_i].text, &a);

	ck_assert_int_eq(rc, addrs[_i].host ? 0 : -EINVAL);
	ck_assert_str_eq(a.host, addrs[_i].host ? addrs[_i].host : "kept");
	ck_assert_uint_eq(a.port, addrs[_i].port);
}
END_TEST

START_TEST(a_host_name_that_does_not_fit_is_refused)
{
	struct wb_cli_addr a;
	char text[300];

	memset(text, 'h', sizeof(text));
	snprintf(text + 256, sizeof(text) - 256, ":1");
	ck_assert_int_eq(wb_cli_addr(text, &a), -EINVAL);
	snprintf(text + 255, sizeof(text) - 255, ":1");
	ck_assert_int_eq(wb_cli_addr(text, &a), 0);
	ck_assert_uint_eq(strlen(a.host), 255);
}
END_TEST

START_TEST(an_object_is_namespace_and_name)
{
	static const char *const bad[] = {"", "a", "/a", "a/", "a/b/c", "aaaa/bbbb"};

	ck_assert(wb_cli_is_object("a/b", 9));
	for (size_t i = 0; i < WB_ARRAY_SIZE(bad); i++)
		ck_assert_msg(!wb_cli_is_object(bad[i], 9), "%s", bad[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cli");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, a_line_is_taken_or_refused_by_option, 0, WB_ARRAY_SIZE(lines));
	tcase_add_loop_test(
		t, a_value_that_its_kind_does_not_have_is_refused, 0, WB_ARRAY_SIZE(kind_lines));
	tcase_add_test(t, values_are_stored_by_their_kind);
	tcase_add_loop_test(t, help_lists_every_row_and_ends, 0, 2);
	tcase_add_loop_test(t, a_log_level_is_set_whatever_comes_with_it, 0, 2);
	tcase_add_loop_test(t, a_size_has_decimal_and_binary_units, 0, WB_ARRAY_SIZE(sizes));
	tcase_add_loop_test(t, an_address_is_host_and_port, 0, WB_ARRAY_SIZE(addrs));
	tcase_add_test(t, a_host_name_that_does_not_fit_is_refused);
	tcase_add_test(t, an_object_is_namespace_and_name);
	suite_add_tcase(s, t);
	return fx_run(s);
}
