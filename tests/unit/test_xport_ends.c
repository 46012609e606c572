/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of wb_xport_ops, over every transport: cancels, ends, peers that are slow. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- cancels ----------------------------------------------------------------------------------
 */

START_TEST(cancel_before_the_answer_takes_the_grant_back)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_event *e;
	struct wb_xport_write w;
	int at = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.depth = 1, .sockets = 1});
	fx_join(&f);
	j = fx_job_make(&f, 1000, 3, 1);
	memset(f.dst.mem, 0xee, 4096);
	e = fx_ask(&f, j, 5, NULL);
	w = fx_write_of(j, e->grant, NULL);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 6), -ENOENT);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 5), 0);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 5), -EALREADY);
	fx_wait(&f, &f.dst, WB_XP_CANCELLED, 1);
	fx_wait(&f, &f.src, WB_XP_GRANT_GONE, 1);
	ck_assert_uint_eq(fx_take(&f.src, WB_XP_GRANT_GONE, &at)->grant, w.grant);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -ENOENT);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 5), -ENOENT);
	ck_assert(fx_is_only(f.dst.mem, 0xee, 4096));
	/* The one slot comes back by itself. */
	for (;;) {
		struct wb_xport_grant g = fx_grant_of(j, 8, NULL);
		int rc = wb_xport_grant(f.dst.x, f.conn, &g);

		if (!rc)
			break;
		ck_assert_int_eq(rc, -EAGAIN);
		fx_pump(&f);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, 2);
	at = 0;
	fx_take(&f.src, WB_XP_GRANT, &at);
	w.grant = fx_take(&f.src, WB_XP_GRANT, &at)->grant;
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	ck_assert(fx_job_arrived(j));
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/*
 * Cancel while bytes may be under way, many times: one end each, nothing lands after it. A busy
 * machine may let all of the first bytes arrive before their cancel is asked, which shows nothing:
 * it goes on then until one was in time.
 */
START_TEST(cancel_in_flight_ends_once_and_nothing_lands_after)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_rng r = {11};
	int at = 0, ends = 0, cancelled = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.mem_bytes = 8 << 20});
	fx_join(&f);
	j = fx_job_make(&f, 3 << 20, 1, 1);
	for (int i = 0; i < 30 || (!cancelled && i < 500); i++) {
		struct wb_xport_event *e = fx_ask(&f, j, (uint64_t)i, NULL);
		struct wb_xport_write w = fx_write_of(j, e->grant, NULL);
		uint64_t spins = i % 2 ? wb_rng_below(&r, 200000) : 0;
		int rc;

		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
		for (volatile uint64_t k = 0; k < spins; k++)
			;
		rc = wb_xport_cancel(f.dst.x, f.conn, (uint64_t)i);
		ck_assert(!rc || rc == -ENOENT);
		for (e = NULL; !e; fx_pump(&f)) {
			while (!e && at < f.dst.n_ev) {
				e = &f.dst.ev[at++];
				if (e->kind != WB_XP_ARRIVED && e->kind != WB_XP_CANCELLED)
					e = NULL;
			}
			if (e)
				break;
		}
		ck_assert_uint_eq(e->cookie, i);
		ends++;
		if (e->kind == WB_XP_CANCELLED) {
			cancelled++;
			memset(f.dst.mem, 0xee, 8 << 20);
		}
		fx_wait(&f, &f.src, WB_XP_WRITE_DONE, i + 1);
		if (e->kind == WB_XP_CANCELLED)
			ck_assert(fx_is_only(f.dst.mem, 0xee, 8 << 20));
	}
	ck_assert_int_ge(ends, 30);
	ck_assert_int_gt(cancelled, 0); /* or this has shown nothing */
	ck_assert_int_eq(f.dst.count[WB_XP_ARRIVED] + f.dst.count[WB_XP_CANCELLED], ends);
	fx_job_run(&f, j, true);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- ends -------------------------------------------------------------------------------------
 */

#define PARTS 12

enum how { BY_DST, BY_SRC, BY_EPOCH, BY_CLOSE, HOWS };

/* Twelve chunks outstanding, some answered, some not; then the connection ends in one of four
 * ways.  Each grant and each write ends once, CONN_DOWN comes last, nothing lands after it. */
START_TEST(each_grant_and_write_ends_once_when_the_connection_ends)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_rng r = {(uint64_t)_i + 5};
	enum how how = _i / (int)FX_KINDS;
	int at = 0, writes = 0, ended[PARTS] = {0}, wrote[PARTS] = {0};
	struct iovec landing[PARTS];
	struct wb_xport_event *e;

	fx_open(&f, fx_kinds[_i % (int)FX_KINDS],
		&(struct fx_opts){.sockets = 2, .n_rail = 2, .mem_bytes = 4 << 20});
	fx_join(&f);
	j = fx_job_make(&f, 300000, 2, 1);
	for (uint64_t i = 0; i < PARTS; i++) {
		struct wb_xport_grant g = fx_grant_of(j, i, NULL);

		landing[i] = (struct iovec){f.dst.mem + i * j->bytes, j->bytes};
		g.iov = &landing[i];
		g.n_iov = 1;
		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, PARTS);
	while ((e = fx_take(&f.src, WB_XP_GRANT, &at)) && writes < PARTS - 4) {
		struct wb_xport_write w = fx_write_of(j, e->grant, NULL);

		w.cookie = (uint64_t)writes++;
		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	}
	if (wb_rng_below(&r, 2))
		fx_wait(&f, &f.dst, WB_XP_ARRIVED, 2);
	if (how == BY_DST)
		ck_assert_int_eq(wb_xport_disconnect(f.dst.x, f.conn), 0);
	if (how == BY_SRC)
		ck_assert_int_eq(wb_xport_disconnect(f.src.x, f.src_conn), 0);
	if (how == BY_EPOCH)
		ck_assert_int_eq(wb_xport_epoch_remove(f.dst.x, &fx_epoch.id), 1);
	if (how == BY_CLOSE) {
		wb_xport_close(f.src.x);
		f.src.x = NULL;
	}
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	memset(f.dst.mem, 0xee, f.dst.mem_bytes);
	ck_assert_int_eq(wb_xport_disconnect(f.dst.x, f.conn), -ENOTCONN);
	for (int i = 0; i < f.dst.n_ev; i++) {
		e = &f.dst.ev[i];
		if (e->kind == WB_XP_ARRIVED || e->kind == WB_XP_LOST)
			ended[e->cookie]++;
		if (e->kind == WB_XP_LOST)
			ck_assert_int_lt(e->code, 0);
	}
	ck_assert_int_eq(f.dst.ev[f.dst.n_ev - 1].kind, WB_XP_CONN_DOWN);
	for (int i = 0; i < PARTS; i++)
		ck_assert_int_eq(ended[i], 1);
	if (f.src.x) {
		fx_wait(&f, &f.src, WB_XP_CONN_DOWN, 1);
		for (int i = 0; i < f.src.n_ev; i++) {
			e = &f.src.ev[i];
			if (e->kind == WB_XP_WRITE_DONE)
				wrote[e->cookie]++;
		}
		for (int i = 0; i < writes; i++)
			ck_assert_int_eq(wrote[i], 1);
		ck_assert_int_eq(f.src.ev[f.src.n_ev - 1].kind, WB_XP_CONN_DOWN);
		ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	}
	ck_assert(fx_is_only(f.dst.mem, 0xee, f.dst.mem_bytes));
	if (f.src.x && how != BY_EPOCH) { /* and a new connection works */
		at = f.src.n_ev;
		f.conn = fx_dial(&f, &fx_epoch, "src");
		fx_wait(&f, &f.dst, WB_XP_CONN_UP, 2);
		fx_wait(&f, &f.src, WB_XP_CONN_UP, 2);
	}
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(closing_in_the_middle_of_everything_is_clean)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_event *e;
	int at = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.mem_bytes = 4 << 20});
	fx_join(&f);
	j = fx_job_make(&f, 3 << 20, 2, 1);
	for (uint64_t i = 0; i < 8; i++) {
		struct wb_xport_grant g = fx_grant_of(j, i, NULL);

		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, 8);
	while ((e = fx_take(&f.src, WB_XP_GRANT, &at))) {
		struct wb_xport_write w = fx_write_of(j, e->grant, NULL);

		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	}
	fx_dial(&f, &fx_epoch, "src"); /* and a challenge under way */
	fx_close(&f);
	fx_job_free(j);
}
END_TEST

/* A peer that takes 200 kB/s has megabytes outstanding; another gets all of its own meanwhile. */
START_TEST(slow_reader_does_not_stop_other_connections)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_rail rail = {.addr = strcmp(fx_kinds[_i], "shm") ? "127.0.0.1:0" : "unix:@",
		.rate_bytes_per_s = 200000};
	struct wb_xport_opts o = {.name = "slow", .rail = &rail, .n_rail = 1};
	struct wb_xport_peer p = {.name = "src", .epoch = &fx_epoch.id};
	struct wb_xport_epoch epoch = fx_epoch_of(fx_kinds[_i]);
	struct wb_xport_event ev[8], *e;
	struct wb_err err = {0};
	struct wb_xport *slow;
	wb_conn_t conn;
	uint8_t *landing = malloc(3 << 20);
	struct iovec v = {landing, 3 << 20};
	int at = 0, arrived = 0, up = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.mem_bytes = 4 << 20});
	fx_join(&f);
	j = fx_job_make(&f, 3 << 20, 2, 1);
	o.medium = f.net;
	p.endpoint = f.src.endpoint;
	ck_assert_int_eq(fx_xport_open(fx_kinds[_i], true, &o, &slow, &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(slow, &epoch, &err), 0);
	ck_assert_int_eq(wb_xport_connect(slow, &p, &conn, &err), 0);
	while (!up) {
		fx_pump(&f);
		if (wb_xport_poll(slow, ev, 8) == 1)
			up = ev[0].kind == WB_XP_CONN_UP;
	}
	for (uint64_t i = 0; i < 4; i++) {
		struct wb_xport_grant g = fx_grant_of(j, i, NULL);

		g.iov = &v;
		g.n_iov = 1;
		ck_assert_int_eq(wb_xport_grant(slow, conn, &g), 0);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, 4);
	while ((e = fx_take(&f.src, WB_XP_GRANT, &at))) {
		struct wb_xport_write w = fx_write_of(j, e->grant, NULL);

		ck_assert_int_eq(wb_xport_write(f.src.x, e->conn, &w), 0);
	}
	for (int i = 0; i < 5; i++) {
		struct wb_xport_grant g = fx_grant_of(j, 77, NULL);
		struct wb_xport_write w;

		at = f.src.n_ev;
		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
		fx_wait(&f, &f.src, WB_XP_GRANT, 5 + i);
		w = fx_write_of(j, fx_take(&f.src, WB_XP_GRANT, &at)->grant, NULL);
		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
		fx_wait(&f, &f.dst, WB_XP_ARRIVED, i + 1);
	}
	for (int n = wb_xport_poll(slow, ev, 8); n--;)
		arrived += ev[n].kind == WB_XP_ARRIVED;
	ck_assert_int_eq(arrived, 0);
	wb_xport_close(slow);
	fx_close(&f);
	free(landing);
	fx_job_free(j);
}
END_TEST

#define TURN_CONNS 4
#define TURN_BYTES (1u << 20) /* what a socket moves in one turn */
#define TURN_CHUNKS 60 /* on each connection */

/* A chunk that ends with the turn is complete at the receiver before the source's rail has come
 * round to say so (stalls make that last): the next grant may use its slot at once. */
START_TEST(a_slot_is_free_as_soon_as_its_chunk_arrived)
{
	struct fx_xport f;
	struct iovec to[TURN_CONNS], from[TURN_CONNS];
	int asked[TURN_CONNS] = {0}, at_src = 0, at_dst = 0;
	wb_conn_t conn[TURN_CONNS];
	struct wb_fault *fault;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_fault_parse("stall=rail:5ms:0.1", &fault, &err), 0);
	fx_open(&f, fx_kinds[_i],
		&(struct fx_opts){.src_fault = fault,
			.sockets = 1,
			.depth = 1,
			.mem_bytes = TURN_CONNS * TURN_BYTES});
	for (int i = 0; i < TURN_CONNS; i++) {
		to[i] = (struct iovec){f.dst.mem + i * TURN_BYTES, TURN_BYTES};
		from[i] = (struct iovec){f.src.mem + i * TURN_BYTES, TURN_BYTES};
		conn[i] = fx_dial(&f, &fx_epoch, "src");
	}
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, TURN_CONNS);
	while (f.dst.count[WB_XP_ARRIVED] < TURN_CONNS * TURN_CHUNKS) {
		struct wb_xport_event *e;

		for (int i = 0; i < TURN_CONNS; i++) {
			struct wb_xport_grant g = {.chunk = {.bytes = TURN_BYTES},
				.cookie = (uint64_t)i,
				.iov = &to[i],
				.n_iov = 1};

			g.chunk.chunk = (uint32_t)i;
			if (asked[i] < TURN_CHUNKS) {
				int rc = wb_xport_grant(f.dst.x, conn[i], &g);

				ck_assert_msg(!rc || rc == -EAGAIN, "%d: %s", rc, f.src.reason);
				asked[i] += !rc;
			}
		}
		fx_pump(&f);
		while ((e = fx_take(&f.src, WB_XP_GRANT, &at_src))) {
			struct wb_xport_write w = {
				.grant = e->grant, .iov = &from[e->chunk.chunk], .n_iov = 1};
			int rc = wb_xport_write(f.src.x, e->conn, &w);

			ck_assert_msg(!rc, "%d: %s", rc, f.src.reason);
		}
		ck_assert_msg(!fx_take(&f.dst, WB_XP_CONN_DOWN, &at_dst), "%s", f.src.reason);
	}
	fx_close(&f);
	wb_fault_destroy(fault);
}
END_TEST

/* ---- main -------------------------------------------------------------------------------------
 */

int main(void)
{
	Suite *s = suite_create("xport_ends");
	TCase *c = tcase_create("xport_ends");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, cancel_before_the_answer_takes_the_grant_back, 0, FX_KINDS);
	tcase_add_loop_test(c, cancel_in_flight_ends_once_and_nothing_lands_after, 0, FX_KINDS);
	tcase_add_loop_test(
		c, each_grant_and_write_ends_once_when_the_connection_ends, 0, FX_KINDS * HOWS);
	tcase_add_loop_test(c, closing_in_the_middle_of_everything_is_clean, 0, FX_KINDS);
	tcase_add_loop_test(c, slow_reader_does_not_stop_other_connections, 0, FX_KINDS);
	tcase_add_loop_test(c, a_slot_is_free_as_soon_as_its_chunk_arrived, 0, FX_KINDS);
	return fx_run(s);
}
