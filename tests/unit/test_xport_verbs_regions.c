/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a region over verbs: its direction and rights, who may touch a GPU's memory, and
 * whose the descriptor of a dma-buf is. */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_far.h"
#include "tests/common/fx_verbs.h"

#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)
#define FAR_BYTES (4u * MIB)
#define TEXT 400

static void open_pair(struct fx_xport *f)
{
	fx_open(f, "verbs", &(struct fx_opts){.mem_bytes = FAR_BYTES});
	fx_join(f);
}

static struct fakeverbs_counts counts(const struct fx_verbs *v)
{
	struct fakeverbs_counts n;

	v->count(&n);
	return n;
}

/* ---- direction and rights
 * ---------------------------------------------------------------------------------
 */

static const struct {
	enum wb_xport_direction direction;
	bool is_gpu;
	uint32_t rights;
} rights[] = {
	{WB_XPORT_SOURCE, false, IBV_ACCESS_REMOTE_READ},
	{WB_XPORT_LANDING, false, IBV_ACCESS_LOCAL_WRITE},
	{WB_XPORT_BOTH, false, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE},
	{WB_XPORT_SOURCE, true, IBV_ACCESS_REMOTE_READ},
	{WB_XPORT_LANDING, true, IBV_ACCESS_LOCAL_WRITE},
	{WB_XPORT_BOTH, true, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE},
};

START_TEST(a_region_has_the_rights_of_its_direction_and_no_others)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];

	v->windows(0, false);
	v->windows(1, false);
	open_pair(&f);
	fx_far_make(&m, FAR_BYTES);
	fx_far_settle(v, &f);
	r = fx_far_region(&m, rights[_i].direction);
	if (!rights[_i].is_gpu)
		r = (struct wb_xport_region){.object = FX_OBJECT,
			.fd = f.src.mem_fd,
			.base = f.src.mem,
			.bytes = f.src.mem_bytes,
			.direction = rights[_i].direction};
	(void)fx_far_path(&f, &f.src, fx_region_add(&f.src, &r), says);
	ck_assert_uint_eq(counts(v).region_rights, rights[_i].rights);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

/* Also when the same memory is known twice, once for each way. */
START_TEST(a_landing_is_no_source_and_a_source_no_landing)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct fx_xport f;
	struct fx_far from, to;
	char says[TEXT];
	uint32_t first, second;

	open_pair(&f);
	fx_far_make(&from, FAR_BYTES);
	fx_far_make(&to, FAR_BYTES);
	fx_fill(from.see, FAR_BYTES, 3);
	fx_far_settle(v, &f);
	first = fx_far_add(&f.src, &from, WB_XPORT_LANDING);
	ck_assert_int_eq(fx_far_move(&f, from.addr, f.dst.mem, MIB, NULL), -EINVAL);
	second = fx_far_add(&f.src, &from, WB_XPORT_SOURCE);
	(void)fx_far_path(&f, &f.src, second, says);
	ck_assert_int_eq(fx_far_move(&f, from.addr, f.dst.mem, MIB, NULL), 0);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, first), 0);
	(void)fx_far_path(&f, &f.dst, fx_far_add(&f.dst, &to, WB_XPORT_SOURCE), says);
	ck_assert_int_eq(fx_far_move(&f, from.addr, to.addr, MIB, &to), 0);
	ck_assert_int_gt(to.puts, 0); /* no device may write there */
	to.puts = 0;
	(void)fx_far_path(&f, &f.dst, fx_far_add(&f.dst, &to, WB_XPORT_LANDING), says);
	ck_assert_int_eq(fx_far_move(&f, from.addr, to.addr, MIB, &to), 0);
	ck_assert_int_eq(to.puts, 0);
	/* The host's likewise. */
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	r = (struct wb_xport_region){.object = FX_OBJECT,
		.fd = f.src.mem_fd,
		.base = f.src.mem,
		.bytes = f.src.mem_bytes,
		.direction = WB_XPORT_LANDING};
	(void)fx_region_add(&f.src, &r);
	ck_assert_int_eq(fx_far_move(&f, f.src.mem, f.dst.mem, MIB, NULL), -EINVAL);
	fx_close(&f);
	fx_far_free(&from);
	fx_far_free(&to);
}
END_TEST

static void look(void *ctx, const void *data, size_t bytes, uint64_t off)
{
	(void)ctx, (void)data, (void)bytes, (void)off;
}

/* Half of a range, too. */
START_TEST(the_cpu_neither_looks_at_a_gpu_s_memory_nor_fills_it)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_grant g = {.cookie = 1, .chunk = {.bytes = MIB}, .n_iov = 1};
	struct wb_xport_write w = {.cookie = 1, .n_iov = 1};
	struct wb_xport_event *e;
	struct iovec here, beyond;
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];
	int at = 0;

	open_pair(&f);
	fx_far_make(&m, FAR_BYTES);
	fx_far_settle(v, &f);
	(void)fx_far_path(&f, &f.dst, fx_far_add(&f.dst, &m, WB_XPORT_BOTH), says);
	(void)fx_far_path(&f, &f.src, fx_far_add(&f.src, &m, WB_XPORT_BOTH), says);
	here = (struct iovec){m.addr, MIB};
	beyond = (struct iovec){m.addr + FAR_BYTES - MIB / 2, MIB};
	g.iov = &here;
	g.ctx = &m;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL); /* nobody can copy */
	g.copy = fx_far_put;
	g.observe = look;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	g.observe = NULL;
	g.iov = &beyond;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	beyond.iov_base = m.addr - MIB / 2;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	g.iov = &here;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	fx_wait(&f, &f.src, WB_XP_GRANT, 1);
	e = fx_take(&f.src, WB_XP_GRANT, &at);
	w.grant = e->grant;
	w.iov = &here;
	w.observe = look;
	ck_assert_int_eq(wb_xport_write(f.src.x, e->conn, &w), -EINVAL);
	w.observe = NULL;
	ck_assert_int_eq(wb_xport_write(f.src.x, e->conn, &w), 0);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

START_TEST(no_bit_is_flipped_in_a_gpu_s_memory)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_fault *fault;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];

	ck_assert_int_eq(wb_fault_parse("flip=wire", &fault, &err), 0);
	fx_open(&f, "verbs", &(struct fx_opts){.mem_bytes = FAR_BYTES, .dst_fault = fault});
	fx_join(&f);
	fx_far_make(&m, FAR_BYTES);
	fx_fill(f.src.mem, FAR_BYTES, 9);
	fx_far_settle(v, &f);
	for (int i = 0; i < 2; i++) { /* by a device, and by the copy function */
		v->dmabuf(FAKEVERBS_ANY, i ? EOPNOTSUPP : 0);
		(void)fx_far_path(&f, &f.dst, fx_far_add(&f.dst, &m, WB_XPORT_LANDING), says);
		ck_assert_int_eq(fx_far_move(&f, f.src.mem, m.addr, MIB, &m), 0);
		ck_assert(!memcmp(m.see, f.src.mem, MIB));
	}
	fx_close(&f);
	wb_fault_destroy(fault);
	fx_far_free(&m);
}
END_TEST

static const char *const others[] = {"tcp", "shm", "tls", "sim"};

START_TEST(other_transports_refuse_a_gpu_s_memory)
{
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];
	uint32_t id;

	fx_open(&f, others[_i], &(struct fx_opts){0});
	fx_join(&f);
	fx_far_make(&m, MIB);
	id = fx_far_add(&f.src, &m, WB_XPORT_BOTH);
	(void)fx_far_add(&f.dst, &m, WB_XPORT_BOTH);
	if (strcmp(others[_i], "sim") != 0) {
		ck_assert_int_eq(fx_far_path(&f, &f.src, id, says), WB_XPORT_PATH_BOUNCE);
		ck_assert_msg(strstr(says, "moves no memory of a GPU") != NULL, "%s", says);
	}
	ck_assert_int_eq(fx_far_move(&f, f.src.mem, m.addr, 4096, &m), -ENOTSUP);
	ck_assert_int_eq(fx_far_move(&f, m.addr, f.dst.mem, 4096, NULL), -ENOTSUP);
	ck_assert_int_eq(fx_far_move(&f, f.src.mem, f.dst.mem, 4096, NULL), 0);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

/* Of a set the one that can says how; those that cannot know that it is not theirs to touch. */
START_TEST(a_set_moves_a_gpu_s_memory_by_verbs_alone)
{
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];
	uint32_t id;

	fx_verbs_fresh();
	fx_open(&f, _i ? "set:tcp,shm/tcp" : "set:shm,verbs,tcp/verbs,tcp", &(struct fx_opts){0});
	fx_join(&f);
	fx_far_make(&m, MIB);
	fx_fill(m.see, MIB, 5);
	id = fx_far_add(&f.src, &m, WB_XPORT_SOURCE);
	ck_assert_int_eq(fx_far_path(&f, &f.src, id, says),
		_i ? WB_XPORT_PATH_BOUNCE : WB_XPORT_PATH_DMABUF);
	ck_assert_msg(strstr(says, _i ? "moves no memory of a GPU" : "fake0 dma-buf"), "%s", says);
	ck_assert_int_eq(fx_far_move(&f, m.addr, f.dst.mem, 4096, NULL), _i ? -ENOTSUP : 0);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	ck_assert_int_eq(fx_far_path(&f, &f.src, id, says), WB_XPORT_PATH_FAILED);
	fx_close(&f);
	fx_far_free(&m);
}
END_TEST

/* ---- descriptors --------------------------------------------------------------------------------
 */

/* Descriptors of this process that are of its file: one is the test's. */
static int held(const struct fx_far *m)
{
	struct stat mine, st;
	int n = 0;

	ck_assert_int_eq(fstat(m->fd, &mine), 0);
	for (int fd = 0; fd < 1024; fd++) { /* by its name: another thread may close it */
		char name[32];

		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		n += !stat(name, &st) && st.st_ino == mine.st_ino && st.st_dev == mine.st_dev;
	}
	return n;
}

/* The caller's may be closed at once; ours is when devices have the memory. */
START_TEST(a_dmabuf_is_borrowed_for_the_call_and_kept_until_it_is_registered)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct fx_xport f;
	struct fx_far m;
	char says[TEXT];
	uint32_t id;

	open_pair(&f);
	fx_far_make(&m, FAR_BYTES);
	fx_fill(m.see, FAR_BYTES, 5);
	fx_far_settle(v, &f);
	r = fx_far_region(&m, WB_XPORT_SOURCE);
	r.gpu.dmabuf_fd = dup(m.fd);
	v->slow(20 * WB_NS_PER_MS);
	id = fx_region_add(&f.src, &r);
	ck_assert_int_eq(close(r.gpu.dmabuf_fd), 0);
	ck_assert_int_eq(held(&m), 2);
	ck_assert_int_eq(fx_far_path(&f, &f.src, id, says), WB_XPORT_PATH_DMABUF);
	ck_assert_int_eq(held(&m), 1);
	ck_assert_int_eq(fx_far_move(&f, m.addr, f.dst.mem, MIB, NULL), 0);
	/* Gone before it was looked at, behind one that takes its time. */
	for (int i = 0; i < 3; i++) {
		r = fx_far_region(&m, WB_XPORT_SOURCE);
		id = fx_region_add(&f.src, &r);
		ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	}
	while (held(&m) > 1)
		fx_pump_some(&f);
	for (int i = 0; i < 3; i++) /* nobody has looked at them when all ends */
		(void)fx_far_add(&f.src, &m, WB_XPORT_SOURCE);
	fx_close(&f);
	ck_assert_int_eq(held(&m), 1);
	ck_assert_int_eq(counts(v).mrs, 0);
	fx_far_free(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_regions");
	TCase *c = tcase_create("xport_verbs_regions");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, a_region_has_the_rights_of_its_direction_and_no_others, 0,
		(int)WB_ARRAY_SIZE(rights));
	tcase_add_test(c, a_landing_is_no_source_and_a_source_no_landing);
	tcase_add_test(c, the_cpu_neither_looks_at_a_gpu_s_memory_nor_fills_it);
	tcase_add_test(c, no_bit_is_flipped_in_a_gpu_s_memory);
	tcase_add_loop_test(
		c, other_transports_refuse_a_gpu_s_memory, 0, (int)WB_ARRAY_SIZE(others));
	tcase_add_loop_test(c, a_set_moves_a_gpu_s_memory_by_verbs_alone, 0, 2);
	tcase_add_test(c, a_dmabuf_is_borrowed_for_the_call_and_kept_until_it_is_registered);
	return fx_run(s);
}
