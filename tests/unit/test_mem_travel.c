/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of memory as bytes: what comes back, and what another process may not say. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "mem/travel.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const struct wb_mem_piece pieces[3] = {{7, 4096}, {8, 1u << 21}, {9, 3u << 21}};

static struct wb_mem_desc desc_of(enum wb_mem_kind kind, uint32_t n_piece)
{
	struct wb_mem_desc d = {.kind = kind, .fd = -1, .offset = 512, .bytes = 100000};

	memset(d.uuid, 0x3c, sizeof(d.uuid));
	memset(d.handle, 0x5a, sizeof(d.handle));
	d.piece = pieces;
	d.n_piece = n_piece;
	return d;
}

START_TEST(what_was_put_is_taken)
{
	struct wb_mem_desc a = desc_of(WB_MEM_CUDA_IPC, 0), b = desc_of(WB_MEM_CUDA_VMM, 3);
	int fds[4] = {17, 18, 19, 20};
	struct wb_mem_taken t;
	struct wb_cursor c;
	struct wb_buf out;

	wb_buf_init(&out, 4096);
	wb_mem_put(&out, &a);
	wb_mem_put(&out, &b);
	ck_assert_uint_eq(out.len, 2 * WB_MEM_TRAVEL_BYTES + 3 * 8);
	c = wb_cursor(out.data, out.len);
	ck_assert_int_eq(wb_mem_take(&c, fds, 0, &t, NULL), 0);
	ck_assert(t.desc.kind == a.kind && t.desc.offset == a.offset && t.desc.bytes == a.bytes);
	ck_assert_int_eq(t.desc.fd, -1);
	ck_assert(!memcmp(t.desc.handle, a.handle, sizeof(a.handle)));
	ck_assert(!memcmp(t.desc.uuid, a.uuid, sizeof(a.uuid)));
	ck_assert_int_eq(wb_mem_take(&c, fds, 4, &t, NULL), 0);
	ck_assert(t.desc.kind == b.kind && t.desc.n_piece == 3 && t.desc.piece == t.piece);
	for (int i = 0; i < 3; i++)
		ck_assert(t.piece[i].fd == fds[i] && t.piece[i].bytes == pieces[i].bytes);
	ck_assert_uint_eq(wb_cur_left(&c), 0);
	wb_buf_finish(&out);
}
END_TEST

static const struct {
	uint32_t kind, n_piece, n_fd;
	uint32_t cut; /* bytes that are missing at the end */
	const char *says;
} wrong[] = {
	{WB_MEM_HEAP, 0, 0, 0, "memory of kind 2 does not travel"},
	{WB_MEM_DMABUF, 0, 0, 0, "memory of kind 5 does not travel"},
	{WB_MEM_CUDA_VMM, 3, 2, 0, "memory of 3 allocations: 2 descriptors came for it"},
	{WB_MEM_CUDA_VMM, WB_MEM_PIECES_MAX + 1, UINT32_MAX, 0, "at most 64 are taken"},
	{WB_MEM_CUDA_VMM, 3, 3, 1, "cut short"},
	{WB_MEM_CUDA_VMM, 3, 3, 3 * 8 + 1, "cut short"},
	{WB_MEM_CUDA_IPC, 0, 0, WB_MEM_TRAVEL_BYTES, "cut short"},
};

START_TEST(what_cannot_be_is_einval)
{
	int fds[3] = {1, 2, 3};
	struct wb_mem_taken t;
	struct wb_err err = {0};
	struct wb_cursor c;
	struct wb_buf out;

	wb_buf_init(&out, 4096);
	wb_buf_u32(&out, wrong[_i].kind);
	wb_buf_u32(&out, wrong[_i].n_piece);
	for (size_t i = 8; i < WB_MEM_TRAVEL_BYTES; i++)
		wb_buf_u8(&out, 1);
	for (uint32_t i = 0; i < 3 && wrong[_i].n_piece == 3; i++)
		wb_buf_u64(&out, 4096);
	c = wb_cursor(out.data, out.len - wrong[_i].cut);
	ck_assert_int_eq(wb_mem_take(&c, fds, wrong[_i].n_fd, &t, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, wrong[_i].says) != NULL, "%s", err.msg);
	wb_buf_finish(&out);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mem travel");
	TCase *t = tcase_create("all");

	tcase_add_test(t, what_was_put_is_taken);
	tcase_add_loop_test(t, what_cannot_be_is_einval, 0, (int)WB_ARRAY_SIZE(wrong));
	suite_add_tcase(suite, t);
	return fx_run(suite);
}
