/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files, however they come: of a known size, in drops, too large. */
#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[200], path[220];
static uint8_t *data;
static size_t bytes;

static void set_up(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%.150s/file-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/f", dir);
	data = NULL;
	bytes = 77;
}

static void tear_down(void)
{
	wb_free(data);
	unlink(path);
	rmdir(dir);
}

static void write_bytes(const char *name, size_t n)
{
	FILE *f = fopen(name, "we");

	ck_assert_ptr_nonnull(f);
	setvbuf(f, NULL, _IOFBF, 100); /* a pipe gets it in drops */
	for (size_t i = 0; i < n; i++)
		fputc((int)(i * 7 % 251), f);
	fclose(f);
}

static void holds(size_t n)
{
	ck_assert_uint_eq(bytes, n);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(data[i], i * 7 % 251);
	ck_assert_uint_eq(data[n], 0);
}

static const size_t sizes[] = {0, 1, 4094, 4095, 4096, 5000, 100000};

START_TEST(a_file_is_read_whole_up_to_the_limit)
{
	size_t n = sizes[_i];

	write_bytes(path, n);
	ck_assert_int_eq(wb_file_read(path, n, &data, &bytes), 0);
	holds(n);
	if (n)
		ck_assert_int_eq(wb_file_read(path, n - 1, &data, &bytes), -EFBIG);
	holds(n); /* untouched */
}
END_TEST

static size_t to_write;

static void *writer(void *arg)
{
	(void)arg;
	write_bytes(path, to_write);
	return NULL;
}

static int read_pipe(size_t n, size_t max)
{
	pthread_t t;
	int rc;

	to_write = n;
	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, writer, NULL), 0);
	rc = wb_file_read(path, max, &data, &bytes);
	pthread_join(t, NULL);
	return rc;
}

START_TEST(a_pipe_is_read_to_its_end)
{
	ck_assert_int_eq(read_pipe(sizes[_i], sizes[_i]), 0);
	holds(sizes[_i]);
}
END_TEST

START_TEST(a_pipe_that_says_more_than_the_limit_is_refused)
{
	ck_assert_int_eq(read_pipe(100000, 4999 + (size_t)_i), -EFBIG);
	ck_assert_ptr_null(data);
}
END_TEST

START_TEST(a_file_whose_size_nobody_says_is_read_all_the_same)
{
	ck_assert_int_eq(wb_file_read("/proc/self/maps", 1 << 20, &data, &bytes), 0);
	ck_assert_uint_gt(bytes, 100);
}
END_TEST

START_TEST(what_cannot_be_read_has_the_systems_word)
{
	ck_assert_int_eq(wb_file_read(path, 10, &data, &bytes), -ENOENT);
	ck_assert_int_eq(wb_file_read(dir, 1 << 20, &data, &bytes), -EISDIR);
	ck_assert(!data && bytes == 77);
}
END_TEST

START_TEST(no_memory_is_an_error_and_loses_nothing)
{
	int rc = -ENOMEM;

	write_bytes(path, 100);
	for (int n = 1; rc; n++) {
		wb_mem_fail_at(n);
		rc = wb_file_read(path, 100, &data, &bytes);
		ck_assert(!rc || rc == -ENOMEM);
	}
	wb_mem_fail_at(0);
	holds(100);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("file");
	TCase *t = tcase_create("file");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, a_file_is_read_whole_up_to_the_limit, 0, (int)WB_ARRAY_SIZE(sizes));
	tcase_add_loop_test(t, a_pipe_is_read_to_its_end, 0, (int)WB_ARRAY_SIZE(sizes));
	tcase_add_loop_test(t, a_pipe_that_says_more_than_the_limit_is_refused, 0, 3);
	tcase_add_test(t, a_file_whose_size_nobody_says_is_read_all_the_same);
	tcase_add_test(t, what_cannot_be_read_has_the_systems_word);
	tcase_add_test(t, no_memory_is_an_error_and_loses_nothing);
	suite_add_tcase(s, t);
	return fx_run(s);
}
