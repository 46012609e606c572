/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a worker's memory: what an untrusted process may say of it, and what it may not. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/area.h"
#include "daemon/table.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char name[] = "w";
static struct wb_param param = {
	.name = name, .dtype = WB_BF16, .ndim = 1, .shape = {100}, .stride = {1}, .span = 100};
static const struct wb_map map = {.n_param = 1, .param = &param};

struct row {
	uint32_t kind;
	uint64_t bytes;
};

static int memfd(const void *data, size_t bytes, size_t len)
{
	int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)len), 0);
	ck_assert_int_eq(pwrite(fd, data, bytes, 0), (ssize_t)bytes);
	return fd;
}

/* A table of @n objects and one parameter at @off of object @mem. */
static int table(const struct row *row, uint32_t n, uint32_t mem, uint64_t off)
{
	struct wb_buf b;
	int fd;

	wb_buf_init(&b, 1 << 20);
	for (uint32_t i = 0; i < n; i++) {
		wb_buf_u32(&b, row[i].kind);
		wb_buf_u32(&b, 0);
		wb_buf_u64(&b, row[i].bytes);
		wb_buf_u64(&b, 0x1000);
	}
	wb_buf_u32(&b, mem);
	wb_buf_u32(&b, 0);
	wb_buf_u64(&b, off);
	fd = memfd(b.data, b.len, b.len);
	wb_buf_finish(&b);
	return fd;
}

static int read_it(const struct row *row, uint32_t n, uint32_t mem, uint64_t off, const int *more,
	uint32_t n_more, struct wb__table *t, struct wb_err *err)
{
	int fds[4] = {table(row, n, mem, off)}, rc;
	struct wb__table_in in = {.n_mem = n,
		.n_param = 1,
		.bytes = (uint64_t)n * 24 + 16,
		.fds = fds,
		.n_fd = 1 + n_more};

	memcpy(fds + 1, more, n_more * sizeof(*more));
	rc = wb__table_read(&in, &map, t, err);
	close(fds[0]);
	return rc;
}

START_TEST(a_parameter_of_each_kind_of_memory_is_taken)
{
	struct row row[2] = {{WB_MEM_MEMFD, 4096}, {WB_MEM_HEAP, 200}};
	int fd = memfd("x", 1, 4096);
	struct wb__table t;
	struct wb_err err = {0};

	ck_assert_msg(!read_it(row, 2, 1, 0, &fd, 1, &t, &err), "%s", err.msg);
	ck_assert(t.has_heap);
	ck_assert_uint_eq(t.n_mem, 2);
	ck_assert_ptr_nonnull(t.base[0]);
	ck_assert_int_eq(*(char *)t.base[0], 'x');
	ck_assert_ptr_null(t.base[1]);
	ck_assert_uint_eq(t.place[0].mem, 1);
	wb__table_release(&t);
	ck_assert_ptr_null(t.base[0]);
	ck_assert_uint_eq(t.mem[0].bytes, 4096); /* the area has its size */
	wb__table_finish(&t);
	ck_assert(!read_it(row, 1, 0, 3896, &fd, 1, &t, &err)); /* up to the last byte */
	ck_assert(!t.has_heap);
	wb__table_finish(&t);
	wb__table_finish(&t);
	close(fd);
}
END_TEST

static const struct {
	struct row row[2];
	uint32_t n, mem, n_fd;
	uint64_t off;
	const char *says;
} wrong[] = {
	{{{WB_MEM_HEAP, 0}}, 1, 0, 0, 0, "memory object 0 of 0 bytes"},
	{{{WB_MEM_HEAP, 1ull << 47}}, 1, 0, 0, 0, "at most"},
	{{{77, 4096}}, 1, 0, 0, 0, "unknown kind 77"},
	/* A row has neither their device nor what they travel as. */
	{{{WB_MEM_CUDA_VMM, 4096}}, 1, 0, 0, 0, "unknown kind 3"},
	{{{WB_MEM_CUDA_IPC, 4096}}, 1, 0, 0, 0, "unknown kind 4"},
	{{{WB_MEM_DMABUF, 4096}}, 1, 0, 1, 0, "unknown kind 5"},
	{{{WB_MEM_MEMFD, 4096}}, 1, 0, 0, 0, "no descriptor came"},
	{{{WB_MEM_MEMFD, 8192}}, 1, 0, 1, 0, "4096 bytes long, 8192 were registered"},
	{{{WB_MEM_HEAP, 4096}}, 1, 0, 1, 0, "1 descriptors more"},
	{{{WB_MEM_HEAP, 4096}}, 1, 1, 0, 0, "lies in memory object 1 of 1"},
	{{{WB_MEM_HEAP, 199}}, 1, 0, 0, 0, "reaches beyond its memory object of 199 bytes"},
	{{{WB_MEM_HEAP, 4096}}, 1, 0, 0, 3898, "reaches beyond"},
	{{{WB_MEM_HEAP, 4096}}, 1, 0, 0, UINT64_MAX - 1, "reaches beyond"},
	{{{WB_MEM_HEAP, 4096}}, 1, 0, 0, 1, "not aligned"},
	/* Each is small enough, both are not: their sum is the size of a staging area. */
	{{{WB_MEM_HEAP, 1ull << 46}, {WB_MEM_HEAP, 4096}}, 2, 0, 0, 0,
		"memory object 1 of 4096 bytes, after"},
};

START_TEST(a_table_that_lies_is_named)
{
	struct wb_err err = {0};
	struct wb__table t;
	int fd = memfd("x", 1, 4096);
	int rc = read_it(wrong[_i].row, wrong[_i].n, wrong[_i].mem, wrong[_i].off, &fd,
		wrong[_i].n_fd, &t, &err);

	ck_assert_int_eq(rc, -EINVAL);
	ck_assert_msg(strstr(err.msg, wrong[_i].says) != NULL, "%s", err.msg);
	wb__table_finish(&t);
	close(fd);
}
END_TEST

START_TEST(sizes_that_do_not_fit_each_other_are_einval)
{
	struct row row = {WB_MEM_HEAP, 4096};
	int fd = table(&row, 1, 0, 0), tty = STDIN_FILENO;
	struct wb__table_in good = {.n_mem = 1, .n_param = 1, .bytes = 40, .fds = &fd, .n_fd = 1};
	struct wb__table t;

	for (int i = 0; i < 8; i++) {
		struct wb__table_in in = good;
		struct wb_err err = {0};

		switch (i) {
		case 0:
			in.n_mem = 0;
			in.bytes = 16;
			break;
		case 1:
			in.n_mem = UINT32_MAX;
			in.bytes = 24ull * UINT32_MAX + 16;
			break;
		case 2:
			in.bytes = 39;
			break;
		case 3:
			in.bytes = 41;
			break;
		case 4: /* the map has one */
			in.n_param = 2;
			in.bytes = 56;
			break;
		case 5:
			in.n_fd = 0;
			break;
		case 6: /* the file is shorter than it says */
			in.n_mem = 2;
			in.bytes = 64;
			break;
		default:
			in.fds = &tty;
		}
		ck_assert_int_eq(wb__table_read(&in, &map, &t, &err), -EINVAL);
		ck_assert_msg(err.msg[0] != '\0', "case %d", i);
		wb__table_finish(&t);
	}
	close(fd);
}
END_TEST

START_TEST(each_lost_allocation_is_enomem)
{
	struct row row = {WB_MEM_HEAP, 4096};
	struct wb__table t;
	uint64_t n;

	for (n = 1; n < 100; n++) {
		int fd = table(&row, 1, 0, 0), rc;
		struct wb__table_in in = {
			.n_mem = 1, .n_param = 1, .bytes = 40, .fds = &fd, .n_fd = 1};

		wb_mem_fail_at(n);
		rc = wb__table_read(&in, &map, &t, NULL);
		close(fd);
		wb__table_finish(&t);
		if (!wb_mem_failed())
			break;
		ck_assert_int_eq(rc, -ENOMEM);
	}
	wb_mem_fail_at(0);
	ck_assert_uint_eq(n, 6); /* four arrays and the copy */
}
END_TEST

START_TEST(a_staging_area_of_another_process_is_checked)
{
	uint64_t mem[2] = {5000, 100}, off[2], bytes = wb_area_layout(mem, 2, off);
	struct wb_area_head h;
	struct wb__worker_area *a = NULL;
	struct wb_err err = {0};

	ck_assert_uint_eq(bytes, 4096 + 8192 + 4096);
	for (int i = 0; i < 6; i++) {
		int fd;

		wb_area_reset(&h, bytes);
		h.state = WB_AREA_WHOLE;
		h.n_judge = WB_AREA_JUDGES_MAX;
		h.n_judge += i == 1;
		h.state += i == 2 ? WB_AREA_INSTALLED : 0;
		h.magic += i == 3;
		h.bytes += i == 4;
		fd = memfd(&h, sizeof(h), i == 5 ? bytes - 1 : bytes);
		if (i) {
			ck_assert_int_eq(
				wb__worker_area_import(mem, 2, bytes, fd, &a, &err), -EINVAL);
			ck_assert_ptr_null(a);
		} else {
			ck_assert_msg(!wb__worker_area_import(mem, 2, bytes, fd, &a, &err), "%s",
				err.msg);
			ck_assert_uint_eq(wb_area_state(wb__worker_area_head(a)), WB_AREA_WHOLE);
			ck_assert_int_eq((char *)a->base[1] - (char *)a->base[0], 8192);
			wb__worker_area_destroy(a);
			a = NULL;
		}
		close(fd);
	}
	ck_assert_int_eq(wb__worker_area_import(mem, 1, bytes, -1, &a, &err), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("table");
	TCase *t = tcase_create("table");

	tcase_add_test(t, a_parameter_of_each_kind_of_memory_is_taken);
	tcase_add_loop_test(t, a_table_that_lies_is_named, 0, (int)WB_ARRAY_SIZE(wrong));
	tcase_add_test(t, sizes_that_do_not_fit_each_other_are_einval);
	tcase_add_test(t, each_lost_allocation_is_enomem);
	tcase_add_test(t, a_staging_area_of_another_process_is_checked);
	suite_add_tcase(s, t);
	return fx_run(s);
}
