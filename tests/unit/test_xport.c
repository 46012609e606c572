/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of wb_xport_ops, over every transport: connections, bytes, misuse. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- connections ------------------------------------------------------------------------------
 */

START_TEST(an_address_that_is_none_is_named)
{
	struct wb_xport_rail rail = {.addr = "nonsense:7445"};
	struct wb_xport_opts o = {.name = "src", .rail = &rail, .n_rail = 1};
	struct wb_err err = {0};
	struct wb_xport *x;

	ck_assert_int_eq(wb_xport_open("tcp", &o, &x, &err), -EINVAL);
	ck_assert_msg(
		strstr(err.msg, "rail 0: 'nonsense:7445' is no address") != NULL, "%s", err.msg);
}
END_TEST

START_TEST(connect_tells_both_sides_who_it_is)
{
	struct fx_xport f;
	struct wb_xport_event *e;
	int at = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.sockets = 3, .n_rail = 2});
	f.conn = fx_dial(&f, &fx_epoch, "src");
	while (!f.dst.count[WB_XP_CONN_UP] || !f.src.count[WB_XP_CONN_UP]) {
		fx_pump(&f);
		at = 0;
		if ((e = fx_take(&f.dst, WB_XP_CONN_UP, &at)) && e->info) {
			ck_assert_uint_eq(e->conn, f.conn);
			ck_assert(e->info->is_dialer);
			ck_assert_str_eq(e->info->peer, "src");
			ck_assert_uint_eq(e->info->user, 42);
			ck_assert_uint_eq(e->info->epoch.object.hash, FX_OBJECT);
			e->info = NULL;
		}
		at = 0;
		if ((e = fx_take(&f.src, WB_XP_CONN_UP, &at)) && e->info) {
			ck_assert(!e->info->is_dialer);
			ck_assert_str_eq(e->info->peer, "dst");
			ck_assert_uint_eq(e->info->epoch.number, fx_epoch.id.number);
			e->info = NULL;
		}
	}
	fx_close(&f);
}
END_TEST

static void expect_refused(const char *kind, const struct wb_xport_epoch *theirs, const char *name,
	int code, const char *words)
{
	struct fx_xport f;
	struct wb_err err = {0};
	int at = 0;

	fx_open(&f, kind, &(struct fx_opts){0});
	wb_xport_epoch_remove(f.dst.x, &fx_epoch.id);
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, theirs, &err), 0);
	f.conn = fx_dial(&f, theirs, name);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert_int_eq(fx_take(&f.dst, WB_XP_CONN_DOWN, &at)->code, code);
	ck_assert_msg(strstr(f.dst.reason, words) != NULL, "%s", f.dst.reason);
	fx_wait(&f, &f.src, WB_XP_REJECTED, 1);
	ck_assert_int_eq(f.dst.count[WB_XP_CONN_UP], 0);
	ck_assert_int_eq(f.src.count[WB_XP_CONN_UP], 0);
	ck_assert_int_eq(f.src.count[WB_XP_CONN_DOWN], 0);
	fx_close(&f);
}

START_TEST(wrong_key_is_refused_and_named)
{
	struct wb_xport_epoch e = fx_epoch_of(fx_kinds[_i]);

	e.key[31] ^= 1;
	expect_refused(
		fx_kinds[_i], &e, "src", -EKEYREJECTED, "does not hold our key of epoch 3.7");
}
END_TEST

START_TEST(unknown_epoch_is_refused_and_named)
{
	struct wb_xport_epoch e = fx_epoch_of(fx_kinds[_i]);

	e.id.number = 8;
	expect_refused(fx_kinds[_i], &e, "src", WB_ESTALE, "does not know epoch 3.8");
}
END_TEST

START_TEST(wrong_name_is_refused_and_named)
{
	struct wb_xport_epoch e = fx_epoch_of(fx_kinds[_i]);

	expect_refused(fx_kinds[_i], &e, "other", -EADDRNOTAVAIL, "this is agent src");
}
END_TEST

START_TEST(epoch_with_another_key_is_eexist)
{
	struct fx_xport f;
	struct wb_xport_epoch e = fx_epoch_of(fx_kinds[_i]);
	struct wb_err err = {0};

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){0});
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), 0);
	e.key[0] ^= 1;
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), -EEXIST);
	ck_assert_int_eq(wb_xport_epoch_remove(f.src.x, &e.id), 0);
	ck_assert_int_eq(wb_xport_epoch_remove(f.src.x, &e.id), -ENOENT);
	fx_close(&f);
}
END_TEST

START_TEST(nobody_listening_is_conn_down)
{
	struct fx_xport f;
	struct wb_xport_peer p = {.name = "src", .endpoint = "127.0.0.1:1", .epoch = &fx_epoch.id};
	struct wb_err err = {0};
	wb_conn_t c;
	int rc;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){0});
	if (!strcmp(fx_kinds[_i], "shm"))
		p.endpoint = "unix:@weightbridge-nobody";
	if (!strcmp(fx_kinds[_i], "sim"))
		p.endpoint = "sim:nobody";
	if (!strcmp(fx_kinds[_i], "skeleton"))
		p.endpoint = "skeleton:nobody";
	if (!strcmp(fx_kinds[_i], "verbs"))
		p.endpoint = "verbs:127.0.0.1:1";
	rc = wb_xport_connect(f.dst.x, &p, &c, &err);
	if (!rc)
		fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	else
		ck_assert_int_eq(rc, -ECONNREFUSED);
	p.endpoint = "nonsense";
	ck_assert_int_eq(wb_xport_connect(f.dst.x, &p, &c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "nonsense"));
	fx_close(&f);
}
END_TEST

static _Atomic bool has_no_random;

/* In place of the C library's. */
ssize_t getrandom(void *out, size_t bytes, unsigned flags)
{
	if (!has_no_random)
		return syscall(SYS_getrandom, out, bytes, flags);
	errno = ENOSYS;
	return -1;
}

START_TEST(a_system_without_random_bytes_is_named)
{
	struct fx_xport f;
	struct wb_xport_peer p = {.name = "src", .epoch = &fx_epoch.id};
	struct wb_err err = {0};
	wb_conn_t c;
	int rc;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){0});
	p.endpoint = f.src.endpoint;
	has_no_random = true;
	rc = wb_xport_connect(f.dst.x, &p, &c, &err);
	has_no_random = false;
	ck_assert_int_eq(rc, -EIO);
	ck_assert_str_eq(err.msg, "cannot connect to agent src: the system gives no random bytes");
	fx_close(&f);
}
END_TEST

/* ---- bytes ------------------------------------------------------------------------------------
 */

static const uint64_t sizes[] = {
	1, 2, 3, 63, 64, 65, 4095, 4097, 65537, 131072, 131073, (1 << 20) + 1, 5000011, 16 << 20};

START_TEST(bytes_of_every_size_arrive_once_in_order)
{
	struct fx_xport f;
	struct fx_job *j;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.mem_bytes = (17 << 20) + 65536});
	fx_join(&f);
	for (size_t k = 0; k < WB_ARRAY_SIZE(sizes); k++) {
		uint32_t ranges[] = {1, 7, 600};

		for (size_t r = 0; r < 3; r++) {
			if (sizes[k] > 1 << 20 && r != k % 3)
				continue; /* time */
			j = fx_job_make(&f, sizes[k], ranges[r], k * 3 + r + 1);
			fx_job_run(&f, j, k % 4 != 3);
			fx_job_free(j);
		}
	}
	fx_close(&f);
}
END_TEST

START_TEST(pieces_are_cut_at_multiples_of_64)
{
	struct fx_xport f;
	struct fx_job *j;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.mem_bytes = 4 << 20});
	fx_join(&f);
	j = fx_job_make(&f, 3000001, 1, 5);
	fx_job_run(&f, j, true);
	/* One range, so: whole pieces and one rest. */
	ck_assert_uint_ge(j->pieces[0], 3000001 / (128 << 10));
	ck_assert_uint_le(j->pieces[0], 3000001 / 64);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

#define MANY 200
#define MANY_BYTES 4000

/* Grants both ways on two connections, as many as the depth lets through. */
START_TEST(many_chunks_both_ways_end_once_each)
{
	struct fx_xport f;
	struct wb_xport_peer p = {.name = "dst", .epoch = &fx_epoch.id};
	struct fx_side *side[2] = {&f.dst, &f.src};
	wb_conn_t conn[2], back[2] = {0, 0};
	struct iovec *to = malloc(2 * MANY * sizeof(*to)), *from = malloc(2 * MANY * sizeof(*from));
	int asked[2] = {0, 0}, at[2] = {0, 0};
	bool ended[2][MANY] = {{false}};
	struct wb_err err = {0};

	fx_open(&f, fx_kinds[_i],
		&(struct fx_opts){.sockets = 3, .depth = 16, .n_rail = 2, .mem_bytes = 4 << 20});
	fx_join(&f);
	conn[0] = f.conn;
	p.endpoint = f.dst.endpoint;
	ck_assert_int_eq(wb_xport_connect(f.src.x, &p, &conn[1], &err), 0);
	fx_wait(&f, &f.src, WB_XP_CONN_UP, 2);
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, 2);
	fx_fill(f.src.mem, 1 << 20, 1);
	fx_fill(f.dst.mem, 1 << 20, 2);
	while (f.dst.count[WB_XP_ARRIVED] < MANY || f.src.count[WB_XP_ARRIVED] < MANY) {
		for (int d = 0; d < 2; d++) {
			struct wb_xport_event *e;

			while (asked[d] < MANY) {
				int k = d * MANY + asked[d], rc;
				struct wb_xport_grant g = {.cookie = (uint64_t)asked[d],
					.chunk = {.bytes = MANY_BYTES, .chunk = (uint32_t)asked[d]},
					.iov = &to[k],
					.n_iov = 1};

				to[k].iov_base = side[d]->mem + (2 << 20) + asked[d] * MANY_BYTES;
				to[k].iov_len = MANY_BYTES;
				rc = wb_xport_grant(side[d]->x, conn[d], &g);
				if (rc == -EAGAIN)
					break;
				ck_assert_int_eq(rc, 0);
				asked[d]++;
			}
			while (at[d] < side[d]->n_ev) {
				e = &side[d]->ev[at[d]++];
				if (e->kind == WB_XP_GRANT) {
					int k = (1 - d) * MANY + (int)e->chunk.chunk;
					struct wb_xport_write w = {
						.grant = e->grant, .iov = &from[k], .n_iov = 1};

					back[d] = e->conn;
					from[k].iov_base =
						side[d]->mem + e->chunk.chunk * MANY_BYTES;
					from[k].iov_len = MANY_BYTES;
					ck_assert_int_eq(
						wb_xport_write(side[d]->x, back[d], &w), 0);
				} else if (e->kind == WB_XP_ARRIVED) {
					ck_assert(!ended[d][e->cookie]);
					ended[d][e->cookie] = true;
				}
			}
		}
		fx_pump(&f);
	}
	ck_assert_mem_eq(f.dst.mem + (2 << 20), f.src.mem, MANY * MANY_BYTES);
	ck_assert_mem_eq(f.src.mem + (2 << 20), f.dst.mem, MANY * MANY_BYTES);
	free(to);
	free(from);
	fx_close(&f);
}
END_TEST

/* ---- refusals, cancels, misuse ----------------------------------------------------------------
 */
START_TEST(refusal_carries_its_code)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_event *e;
	int at = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){0});
	fx_join(&f);
	j = fx_job_make(&f, 1000, 3, 1);
	e = fx_ask(&f, j, 5, NULL);
	ck_assert_int_eq(wb_xport_refuse(f.src.x, f.src_conn, e->grant, 1), -EINVAL);
	ck_assert_int_eq(wb_xport_refuse(f.src.x, f.src_conn, e->grant, WB_ESTALE), 0);
	ck_assert_int_eq(wb_xport_refuse(f.src.x, f.src_conn, e->grant, WB_ESTALE), -ENOENT);
	fx_wait(&f, &f.dst, WB_XP_REFUSED, 1);
	e = fx_take(&f.dst, WB_XP_REFUSED, &at);
	ck_assert_uint_eq(e->cookie, 5);
	ck_assert_int_eq(e->code, WB_ESTALE);
	fx_job_run(&f, j, true); /* the connection lives on */
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(wrong_answers_are_errors_and_leave_the_grant_open)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_event *e;
	struct wb_xport_write w;
	static uint8_t stray[1000];
	struct iovec v = {stray, 1000};

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){0});
	fx_join(&f);
	j = fx_job_make(&f, 1000, 3, 1);
	e = fx_ask(&f, j, 5, NULL);
	w = fx_write_of(j, e->grant, NULL);
	w.grant ^= 1 << 20;
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -ENOENT);
	w.grant = e->grant;
	j->src_iov[0].iov_len++;
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -EINVAL);
	j->src_iov[0].iov_len--;
	/* Of a set the connection's transport decides. */
	if (wb_xport_caps(f.src.x) & WB_XPORT_CAP_REGIONS && strcmp(f.kind, "set") != 0) {
		w.iov = &v;
		w.n_iov = 1;
		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -EINVAL);
		w = fx_write_of(j, e->grant, NULL);
	}
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -ENOENT);
	ck_assert_int_eq(wb_xport_write(f.src.x, 12345, &w), -ENOTCONN);
	ck_assert_int_eq(wb_xport_write(f.dst.x, f.conn, &w), -ENOENT);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	fx_wait(&f, &f.src, WB_XP_WRITE_DONE, 1);
	ck_assert(fx_job_arrived(j));
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), -ENOENT);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(regions_may_overlap)
{
	struct fx_xport f;
	struct wb_xport_region r = {.object = FX_OBJECT, .bytes = 4096};
	struct wb_err err = {0};
	struct fx_job *j;
	uint32_t id, before = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){0});
	fx_join(&f);
	before = f.src.region;
	r.fd = f.src.mem_fd;
	r.base = f.src.mem; /* a part, in a place before that of the whole */
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, before), 0);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
	r.bytes = f.src.mem_bytes;
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &f.src.region, &err), 0);
	j = fx_job_make(&f, 100000, 1, 1);
	fx_job_run(&f, j, true);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	fx_job_run(&f, j, false);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Rails and threads let go of theirs later, and a last socket of those that join may come later. */
START_TEST(regions_that_come_and_go_leave_no_descriptor)
{
	struct fx_xport f;
	struct wb_err err = {0};
	struct wb_xport_region r = {.object = FX_OBJECT};
	const int regions = 20;
	uint32_t id;
	int before;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.n_rail = 2});
	fx_join(&f);
	before = open_files();
	r.fd = f.src.mem_fd;
	r.base = f.src.mem;
	r.bytes = f.src.mem_bytes;
	for (int i = 0; i < regions; i++) {
		ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
		ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	}
	for (int i = 0; i < 20000 && open_files() >= before + regions; i++)
		fx_pump_some(&f);
	ck_assert_int_lt(open_files(), before + regions);
	fx_close(&f);
}
END_TEST

START_TEST(wrong_grants_are_errors)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_grant g;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.depth = 4, .sockets = 2});
	fx_join(&f);
	j = fx_job_make(&f, 1000, 3, 1);
	g = fx_grant_of(j, 1, NULL);
	ck_assert_int_eq(wb_xport_grant(f.src.x, f.src_conn, &g), -EINVAL);
	ck_assert_int_eq(wb_xport_grant(f.dst.x, 999, &g), -ENOTCONN);
	g.chunk.bytes++;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	g.n_iov = 0;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	g = fx_grant_of(j, 1, NULL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EAGAIN);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(registered_transport_is_known_by_name_and_endpoint)
{
	static const struct wb_xport_ops mine = {.name = "mine",
						 .scheme = "mine:",
						 .sockets_min = 3},
					 same_name = {.name = "mine", .scheme = "other:"},
					 same_scheme = {.name = "other", .scheme = "unix:"};
	struct wb_xport *x;
	struct wb_err err = {0};

	ck_assert_ptr_null(wb_xport_find("mine"));
	ck_assert_str_eq(wb_xport_of_endpoint("mine:a"), "tcp");
	ck_assert_int_eq(wb_xport_open("mine", &(struct wb_xport_opts){0}, &x, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "there is no transport 'mine'; there are tcp") == err.msg,
		"%s", err.msg);
	ck_assert_int_eq(wb_xport_register(&mine), 0);
	ck_assert_int_eq(wb_xport_register(&mine), 0);
	ck_assert_int_eq(wb_xport_register(&same_name), -EEXIST);
	ck_assert_int_eq(wb_xport_register(&same_scheme), -EEXIST);
	ck_assert_ptr_eq(wb_xport_find("mine"), &mine);
	ck_assert_str_eq(wb_xport_of_endpoint("mine:a"), "mine");
	ck_assert_uint_eq(wb_xport_sockets(1, "mine:a"), 3);
	ck_assert_str_eq(wb_xport_of_endpoint("unix:@a"), "shm");
	ck_assert_str_eq(wb_xport_of_endpoint("10.0.0.1:1"), "tcp");
	ck_assert_str_eq(wb_xport_of_endpoint(""), "");
}
END_TEST

/* ---- main -------------------------------------------------------------------------------------
 */

int main(void)
{
	Suite *s = suite_create("xport");
	TCase *c = tcase_create("xport");

	suite_add_tcase(s, c);
	tcase_add_test(c, an_address_that_is_none_is_named);
	tcase_add_loop_test(c, connect_tells_both_sides_who_it_is, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, wrong_key_is_refused_and_named, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, unknown_epoch_is_refused_and_named, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, wrong_name_is_refused_and_named, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, epoch_with_another_key_is_eexist, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, nobody_listening_is_conn_down, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, a_system_without_random_bytes_is_named, 0, FX_REAL_KINDS);
	tcase_add_loop_test(c, bytes_of_every_size_arrive_once_in_order, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, pieces_are_cut_at_multiples_of_64, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, many_chunks_both_ways_end_once_each, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, refusal_carries_its_code, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, wrong_answers_are_errors_and_leave_the_grant_open, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, regions_that_come_and_go_leave_no_descriptor, 0, FX_REAL_KINDS);
	tcase_add_loop_test(c, wrong_grants_are_errors, 0, FX_ALL_KINDS);
	tcase_add_loop_test(c, regions_may_overlap, 0, FX_ALL_KINDS);
	tcase_add_test(c, registered_transport_is_known_by_name_and_endpoint);
	return fx_run(s);
}
