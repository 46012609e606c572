/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of APP_ATTACH and the staging area that may come with it: refused with a sentence, or
 * every parameter lies whole in an object that is mapped, and the area fits the objects.
 *
 * Input: claims of the message, 8 bytes; the table; what is left goes into the area's head.
 */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/area.h"
#include "daemon/table.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_PARAM 2
#define N_FD 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char names[N_PARAM][2] = {"a", "b"};
static struct wb_param param[N_PARAM] = {
	{.name = names[0], .dtype = WB_BF16, .ndim = 1, .shape = {300}, .stride = {1}, .span = 300},
	{.name = names[1], .dtype = WB_F32, .ndim = 1, .shape = {64}, .stride = {1}, .span = 64},
};
static struct wb_map map = {.n_param = N_PARAM, .param = param};

/* A page, more, one that cannot be sealed, and something that is no memfd. */
static const int *objects(void)
{
	static int fd[N_FD];

	if (fd[0])
		return fd;
	for (int i = 0; i < N_FD; i++)
		fd[i] = i == N_FD - 1 ? open("/dev/zero", O_RDWR)
				      : memfd_create("f", i < 2 ? MFD_ALLOW_SEALING : 0);
	for (int i = 0; i < N_FD - 1; i++)
		if (fd[i] < 0 || ftruncate(fd[i], i == 1 ? 65536 : 4096) < 0)
			abort();
	return fd;
}

static int file_of(const void *data, size_t size)
{
	int fd = memfd_create("t", MFD_ALLOW_SEALING);

	if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
		abort();
	return fd;
}

static void check(const struct wb__table *t)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < t->n_mem; i++) {
		sum += t->mem[i].bytes;
		if (!t->mem[i].bytes || sum > WB__TABLE_BYTES_MAX || t->base[i] != t->mem[i].addr ||
			t->region[i] != WB__REGION_NONE || (!t->base[i] && !t->has_heap))
			abort();
		if (t->base[i]) /* mapped to its last byte */
			((volatile char *)t->base[i])[t->mem[i].bytes - 1] = 1;
	}
	for (uint32_t i = 0; i < N_PARAM; i++) {
		uint64_t bytes = param[i].span * wb_dtype_bytes(param[i].dtype);

		if (t->place[i].mem >= t->n_mem || bytes > t->mem[t->place[i].mem].bytes ||
			t->place[i].off_bytes > t->mem[t->place[i].mem].bytes - bytes ||
			t->place[i].off_bytes % wb_dtype_bytes(param[i].dtype))
			abort();
	}
}

static void import_area(const struct wb__table *t, const uint8_t *head, size_t size)
{
	uint64_t bytes[16], off[16], total;
	struct wb__worker_area *a = NULL;
	struct wb_err err = {0};
	int fd;

	if (t->n_mem > WB_ARRAY_SIZE(bytes))
		return;
	for (uint32_t i = 0; i < t->n_mem; i++)
		bytes[i] = t->mem[i].bytes;
	total = wb_area_layout(bytes, t->n_mem, off);
	for (uint32_t i = 0; i < t->n_mem; i++)
		if (off[i] < WB_AREA_HEAD_BYTES || off[i] > total || bytes[i] > total - off[i])
			abort();
	if (total > 1 << 20)
		return;
	fd = file_of(head, size);
	if (size && head[size - 1] % 8 && ftruncate(fd, (off_t)total) < 0)
		abort();
	if (size && head[size - 1] == 7)
		wb_mem_fail_at(1 + head[0] % 3);
	if (wb__worker_area_import(bytes, t->n_mem, total, fd, &a, &err) == 0) {
		const struct wb_area_head *h = wb__worker_area_head(a);

		if (h->state > WB_AREA_INSTALLED || h->n_judge > WB_AREA_JUDGES_MAX ||
			h->bytes != total)
			abort();
		for (uint32_t i = 0; i < t->n_mem; i++)
			((volatile char *)a->base[i])[bytes[i] - 1] = 1;
	} else if (!err.msg[0] || a) {
		abort();
	}
	wb_mem_fail_at(0);
	wb__worker_area_destroy(a);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd[8];
	struct wb__table_in in = {.fds = fd};
	struct wb__table t;
	struct wb_err err = {0};
	size_t want;

	if (size < 8)
		return 0;
	in.n_mem = data[0] == 255 ? UINT32_MAX : data[0];
	in.n_param = data[1] == 255 ? UINT32_MAX : data[1] % 4;
	in.n_fd = data[2] % 8;
	want = WB_MIN((size_t)in.n_mem * 24 + in.n_param * 16, size - 8);
	in.bytes = data[3] ? (uint64_t)in.n_mem * 24 + (uint64_t)in.n_param * 16 : want;
	fd[0] = file_of(data + 8, want);
	for (uint32_t i = 1; i < 8; i++)
		fd[i] = objects()[data[3 + i % 5] % N_FD];
	if (wb__table_read(&in, &map, &t, &err) == 0) {
		check(&t);
		import_area(&t, data + 8 + want, size - 8 - want);
		wb__table_release(&t);
		if (t.mem[0].addr || t.mem[0].fd >= 0 || t.base[0] || !t.mem[0].bytes)
			abort();
	} else if (!err.msg[0]) {
		abort();
	}
	wb__table_finish(&t);
	close(fd[0]);
	return 0;
}
