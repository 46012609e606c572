/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that run beside this one. */
#include "net/child.h"

#include "base/base.h"
#include "base/err.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_loop.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct wb_child *child;
static struct wb_err err;
static int news, ends;
static wb_loop_fn news_fn; /* NULL = on_news() */

static void on_news(void *cookie)
{
	(void)cookie;
	news++;
	ends += wb_child_is_over(child);
}

static int start(const char *file, const char *script, const char *input, size_t output_max)
{
	char sh[] = "sh", c[] = "-c", one[] = "ONE=1", path[] = "PATH=/usr/bin:/bin", text[1024];
	char *const argv[] = {sh, c, text, NULL}, *const env[] = {one, path, NULL};
	struct wb_child_opts o = {.file = file,
		.argv = argv,
		.env = env,
		.input = input,
		.input_bytes = strlen(input),
		.output_max = output_max,
		.on_news = news_fn ? news_fn : on_news};

	snprintf(text, sizeof(text), "%s", script);
	news = ends = 0;
	child = NULL;
	return wb_child_start(fx_loop, &o, &child, &err);
}

static void run(const char *script, const char *input, size_t output_max)
{
	ck_assert_int_eq(start("/bin/sh", script, input, output_max), 0);
	fx_loop_until(&ends, 1);
}

static void end(void)
{
	wb_child_destroy(child);
	child = NULL;
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* all are reaped */
}

START_TEST(what_it_writes_is_kept_and_what_it_reads_ends)
{
	run("cat; echo $ONE; echo first >&2; echo second >&2", "to it\n", 100);
	ck_assert_str_eq(wb_child_output(child), "to it\n1\n");
	ck_assert_str_eq(wb_child_words(child), "first");
	ck_assert(wb_child_is_well(child) && !wb_child_is_cut(child));
	end();
}
END_TEST

START_TEST(more_than_is_kept_is_thrown_away_and_it_does_not_wait)
{
	run("head -c 300000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero | tr '\\0' y >&2; "
	    "exit 3",
		"", 10);
	ck_assert_str_eq(wb_child_output(child), "xxxxxxxxxx");
	ck_assert(wb_child_is_cut(child));
	ck_assert_uint_lt(strlen(wb_child_words(child)), 1024);
	ck_assert(!wb_child_is_well(child));
	end();
}
END_TEST

START_TEST(what_it_says_is_told_while_it_runs)
{
	ck_assert_int_eq(start("/bin/sh", "echo here; exec cat /dev/zero >/dev/null", "", 100), 0);
	fx_loop_until(&news, 1);
	ck_assert_str_eq(wb_child_output(child), "here\n");
	ck_assert(!wb_child_is_over(child));
	wb_child_kill(child);
	fx_loop_until(&ends, 1);
	ck_assert(!wb_child_is_well(child));
	wb_child_kill(child); /* of no use any more, and of no harm */
	end();
}
END_TEST

START_TEST(one_that_runs_is_killed_and_reaped_with_its_owner)
{
	ck_assert_int_eq(start("/bin/sh", "trap '' TERM; while :; do :; done", "", 100), 0);
	end();
}
END_TEST

START_TEST(it_has_no_descriptor_of_ours_and_no_signal_blocked)
{
	int mine = open("/dev/null", O_RDONLY); /* as of a library that forgets O_CLOEXEC */
	sigset_t block, before;

	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, &before);
	run("ls /proc/self/fd | wc -l; grep SigBlk /proc/self/status", "", 200);
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(mine);
	/* Three, and that of the folder that ls reads. */
	ck_assert_msg(!strncmp(wb_child_output(child), "4\n", 2), "%s", wb_child_output(child));
	ck_assert_ptr_nonnull(strstr(wb_child_output(child), "0000000000000000"));
	end();
}
END_TEST

START_TEST(the_kernel_takes_it_first_where_memory_is_short)
{
	/* It waits for its input, which comes after that was said. */
	run("read x; cat /proc/$$/oom_score_adj", "\n", 100);
	ck_assert_str_eq(wb_child_output(child), "1000\n");
	end();
}
END_TEST

enum { PIPES = 6 }; /* descriptors of its pipes, both ends */

/* As of a process that has opened all it may, or whose kernel has no pidfd. */
START_TEST(one_that_cannot_be_followed_is_killed_and_reaped)
{
	struct rlimit all, few;
	int fd[PIPES], top = 0;

	for (int i = 0; i < PIPES; i++) {
		fd[i] = dup(STDERR_FILENO);
		top = WB_MAX(top, fd[i]);
	}
	for (int i = 0; i < PIPES; i++)
		close(fd[i]);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = (struct rlimit){(rlim_t)top + 1, all.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_int_eq(start("/bin/sh", "while :; do :; done", "", 100), -EMFILE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

START_TEST(how_it_ends_is_known_although_sigchld_was_ignored)
{
	signal(SIGCHLD, SIG_IGN); /* as who has started us left it */
	run("exit 0", "", 100);
	ck_assert(wb_child_is_well(child));
	end();
}
END_TEST

START_TEST(one_that_somebody_else_has_reaped_is_over_but_not_well)
{
	char path[] = "/tmp/wb-child-XXXXXX", script[100];
	int fd = mkstemp(path);

	/* It ends when the file is gone: not before SIGCHLD is ignored. */
	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(script, sizeof(script), "while [ -e %s ]; do :; done; exit 0", path);
	ck_assert_int_eq(start("/bin/sh", script, "", 100), 0);
	signal(SIGCHLD, SIG_IGN);
	unlink(path);
	fx_loop_until(&ends, 1);
	signal(SIGCHLD, SIG_DFL);
	ck_assert(!wb_child_is_well(child));
	end();
}
END_TEST

enum { MUCH = 4 << 20, TURN = 16 * 4096 };

static size_t longest, before;

static void on_much(void *cookie)
{
	size_t now = strlen(wb_child_output(child));

	if (!wb_child_is_over(child))
		longest = WB_MAX(longest, now - before);
	before = now;
	on_news(cookie);
}

/* Who writes without an end would keep the loop, and what it writes is more than one turn takes. */
START_TEST(one_that_writes_fast_gets_a_part_of_each_turn)
{
	news_fn = on_much;
	run("yes | head -c 4194304", "", MUCH);
	ck_assert_uint_eq(before, MUCH);
	ck_assert_uint_le(longest, TURN);
	ck_assert(!wb_child_is_cut(child));
	end();
}
END_TEST

START_TEST(a_program_that_is_not_there_is_named)
{
	ck_assert_int_eq(start("/nowhere/sh", "", "", 100), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/sh cannot be started: No such file"));
	ck_assert_int_eq(start("/etc/passwd", "", "", 100), -EACCES);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net child");
	TCase *t = tcase_create("child");

	tcase_add_checked_fixture(t, fx_loop_set_up, fx_loop_tear_down);
	tcase_add_test(t, what_it_writes_is_kept_and_what_it_reads_ends);
	tcase_add_test(t, more_than_is_kept_is_thrown_away_and_it_does_not_wait);
	tcase_add_test(t, what_it_says_is_told_while_it_runs);
	tcase_add_test(t, one_that_runs_is_killed_and_reaped_with_its_owner);
	tcase_add_test(t, it_has_no_descriptor_of_ours_and_no_signal_blocked);
	tcase_add_test(t, the_kernel_takes_it_first_where_memory_is_short);
	tcase_add_test(t, one_that_cannot_be_followed_is_killed_and_reaped);
	tcase_add_test(t, how_it_ends_is_known_although_sigchld_was_ignored);
	tcase_add_test(t, one_that_somebody_else_has_reaped_is_over_but_not_well);
	tcase_add_test(t, one_that_writes_fast_gets_a_part_of_each_turn);
	tcase_add_test(t, a_program_that_is_not_there_is_named);
	suite_add_tcase(s, t);
	return fx_run(s);
}
