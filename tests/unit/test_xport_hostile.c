/* SPDX-License-Identifier: Apache-2.0 */
/* Faults and strangers: what the real transports do when a peer, or memory, is not as it should. */
#include "base/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_raw.h"
#include "xport/frame.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FD_LIMIT 256

START_TEST(flip_fault_changes_one_bit_at_the_receiver_only)
{
	struct wb_fault *fault;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fx_job *j;
	struct fx_look ls, ld;
	struct wb_xport_event *e;
	struct wb_xport_write w;
	int bits = 0, at = 0;

	ck_assert_int_eq(wb_fault_parse("flip=wire", &fault, &err), 0);
	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.src_fault = fault, .dst_fault = fault});
	fx_join(&f);
	j = fx_job_make(&f, 100001, 5, 1);
	ls = (struct fx_look){j, 0};
	ld = (struct fx_look){j, 1};
	e = fx_ask(&f, j, 1, &ld);
	w = fx_write_of(j, e->grant, &ls);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	ck_assert_int_eq(fx_take(&f.dst, WB_XP_ARRIVED, &at)->trailer[31], 0x5a);
	at = 0;
	for (uint32_t i = 0; i < j->n_dst; i++) {
		const uint8_t *p = j->dst_iov[i].iov_base;

		for (size_t k = 0; k < j->dst_iov[i].iov_len; k++)
			bits += __builtin_popcount(p[k] ^ j->image[at++]);
	}
	ck_assert_int_eq(bits, 1);
	ck_assert(atomic_load(&j->is_broken)); /* dst's observer saw it */
	fx_close(&f);
	wb_fault_destroy(fault);
	fx_job_free(j);
}
END_TEST

START_TEST(drop_fault_loses_the_grant_by_name)
{
	struct wb_fault *fault;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_event *e;
	struct wb_xport_write w;

	ck_assert_int_eq(wb_fault_parse("drop=wire:chunk=1;delay=wire:1ms", &fault, &err), 0);
	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.src_fault = fault, .dst_fault = fault});
	fx_join(&f);
	j = fx_job_make(&f, 100001, 5, 1);
	e = fx_ask(&f, j, 1, NULL);
	w = fx_write_of(j, e->grant, NULL);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	fx_wait(&f, &f.dst, WB_XP_LOST, 1);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	fx_wait(&f, &f.src, WB_XP_CONN_DOWN, 1);
	ck_assert(strstr(f.src.reason, "WB_FAULT") || strstr(f.dst.reason, "WB_FAULT"));
	fx_close(&f);
	wb_fault_destroy(fault);
	fx_job_free(j);
}
END_TEST

START_TEST(who_wakes_a_sleeping_rail_has_all_of_its_time)
{
	const uint64_t patience = WB_NS_PER_S; /* a busy machine takes some of it */
	struct fx_xport f;
	uint64_t t0 = wb_now_ns(&wb_clock_real);

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.handshake_ns = patience});
	while (wb_now_ns(&wb_clock_real) - t0 < 2 * patience)
		fx_pump_some(&f);
	fx_join(&f);
	ck_assert_int_eq(f.src.count[WB_XP_REJECTED], 0);
	fx_close(&f);
}
END_TEST

START_TEST(garbage_and_silence_are_rejected)
{
	struct fx_xport f;
	struct wb_err err = {0};
	struct wb_rng r = {3};
	int fd[2];

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.handshake_ns = 300 * WB_NS_PER_MS});
	for (int i = 0; i < 8; i++) {
		uint8_t junk[300];

		for (size_t k = 0; k < sizeof(junk); k++)
			junk[k] = (uint8_t)wb_rng_u64(&r);
		if (i == 1)
			memcpy(junk, "WBLK\1\1\xd8\0", 8); /* HELLO with random inside */
		if (i == 2)
			memcpy(junk, "WBLK\2\1\xd8\0", 8); /* another version */
		if (i == 3)
			memcpy(junk, "WBLK\1\6\x40\0", 8); /* GRANT before the challenge */
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
		ck_assert_int_eq(wb_xport_adopt(f.src.x, fd[0], &err), 0);
		if (i < 7) /* the last says nothing */
			ck_assert_int_eq(send(fd[1], junk, sizeof(junk), 0), sizeof(junk));
		fx_wait(&f, &f.src, WB_XP_REJECTED, i + 1);
		if (i == 2)
			ck_assert_ptr_nonnull(strstr(f.src.reason, "another version"));
		if (i == 7)
			ck_assert_ptr_nonnull(strstr(f.src.reason, "in time"));
		close(fd[1]);
	}
	fx_join(&f);
	fx_close(&f);
}
END_TEST

START_TEST(open_without_memory_is_enomem_and_clean)
{
	struct wb_xport_rail rail = {
		.addr = strcmp(fx_kinds[_i], "shm") ? "127.0.0.1:0" : "unix:@"};
	struct wb_xport_opts o = {.name = "a", .rail = &rail, .n_rail = 2};
	struct wb_xport_rail two[2] = {rail, rail};

	o.rail = two;
	for (uint64_t n = 1; n < 100; n++) {
		struct wb_xport *x = (void *)1;
		struct wb_err err = {0};
		int rc;

		wb_mem_fail_at(n);
		rc = wb_xport_open(fx_kinds[_i], &o, &x, &err);
		wb_mem_fail_at(0);
		if (!rc) {
			wb_xport_close(x);
			ck_assert_uint_gt(n, 3);
			return;
		}
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert_ptr_eq(x, (void *)1);
	}
	ck_abort_msg("never succeeded");
}
END_TEST

/* ---- peers that hold the key and misbehave ----------------------------------------------------
 */

static void raw_join(struct fx_xport *f, struct fx_raw *r)
{
	struct wb__hello h =
		fx_raw_hello(strcmp(f->kind, "shm") ? WBP_BULK_OVER_TCP : WBP_BULK_OVER_SHM);
	struct wb__frame in;
	int up = f->src.count[WB_XP_CONN_UP] + 1;

	fx_raw_prove(f, r, &h);
	fx_wait(f, &f->src, WB_XP_CONN_UP, up);
	ck_assert(fx_raw_recv(r->fd, &in));
	ck_assert_int_eq(in.type, WBP_BULK_WELCOME);
}

/* What an admitted dialer may not do. */
static const struct {
	struct wb__frame f[2];
	const char *words;
} dialer_faults[] = {
	{{{.type = WBP_BULK_GRANT, .id = 4, .chunk = {.bytes = 1}}}, "more than was agreed"},
	{{{.type = WBP_BULK_GRANT, .id = 1ull << 48, .chunk = {.bytes = 1}}},
		"more than was agreed"},
	{{{.type = WBP_BULK_GRANT, .chunk = {.bytes = 1}},
		 {.type = WBP_BULK_GRANT, .id = 1 << 16, .chunk = {.bytes = 1}}},
		"more than was agreed"},
	{{{.type = WBP_BULK_GRANT, .chunk = {.bytes = 0}}}, "damaged frame"},
	{{{.type = WBP_BULK_GRANT, .chunk = {.bytes = WB_XPORT_CHUNK_MAX + 1u}}}, "damaged frame"},
	{{{.type = WBP_BULK_WRITE, .bytes = 1}}, "unexpected frame"},
	{{{.type = WBP_BULK_PROOF}}, "unexpected frame"},
	{{{.type = WBP_BULK_REFUSE, .code = -5}}, "unexpected frame"},
	{{{.type = WBP_BULK_RELEASE}}, "release"},
};

START_TEST(a_dialer_that_breaks_the_rules_is_dropped_and_named)
{
	struct fx_xport f;
	int n = 0, at = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){0});
	for (size_t i = 0; i < WB_ARRAY_SIZE(dialer_faults); i++) {
		const char *words = dialer_faults[i].words;
		struct fx_raw r;

		if (!strcmp(words, "release"))
			words = _i ? "released what was not sent" : "unexpected frame";
		raw_join(&f, &r);
		for (int k = 0; k < 2 && dialer_faults[i].f[k].type; k++)
			fx_raw_send(r.fd, &dialer_faults[i].f[k]);
		fx_wait(&f, &f.src, WB_XP_CONN_DOWN, ++n);
		ck_assert_msg(strstr(f.src.reason, words) && strstr(f.src.reason, "raw"), "%zu: %s",
			i, f.src.reason);
		ck_assert_int_ne(fx_take(&f.src, WB_XP_CONN_DOWN, &at)->code, -ENOTCONN);
		close(r.fd);
	}
	fx_join(&f);
	fx_close(&f);
}
END_TEST

/* A full queue: connects are not answered, and nothing happens that would wake the rail. */
START_TEST(a_connect_that_is_never_answered_ends_in_time)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct wb_xport_peer p = {.name = "src", .epoch = &fx_epoch.id};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), filler;
	socklen_t len = sizeof(sa);
	struct fx_xport f;
	char endpoint[32];
	wb_conn_t c;

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(fd, 0), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(filler, (struct sockaddr *)&sa, sizeof(sa)), 0);
	fx_open(&f, "tcp", &(struct fx_opts){.handshake_ns = 300 * WB_NS_PER_MS});
	snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", ntohs(sa.sin_port));
	p.endpoint = endpoint;
	ck_assert_int_eq(wb_xport_connect(f.dst.x, &p, &c, NULL), 0);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert_msg(strstr(f.dst.reason, "(not connected)") != NULL, "%s", f.dst.reason);
	close(fd);
	close(filler);
	fx_close(&f);
}
END_TEST

START_TEST(a_hello_that_asks_for_too_much_is_refused)
{
	struct fx_xport f;
	struct wb__hello good, h;
	int n = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.handshake_ns = 300 * WB_NS_PER_MS});
	good = fx_raw_hello(_i ? WBP_BULK_OVER_SHM : WBP_BULK_OVER_TCP);
	for (int i = 0; i < 7; i++) {
		const char *words = "damaged frame";
		struct fx_raw r;

		h = good;
		if (i == 0)
			h.count = 0;
		if (i == 1)
			h.count = WB_XPORT_SOCKETS_MAX + 1;
		if (i == 2)
			h.index = h.count;
		if (i == 3)
			h.slots = 0;
		if (i == 4)
			h.slots = WB_XPORT_DEPTH_MAX + 1;
		if (i == 5)
			h.dialer[0] = '\n';
		if (i == 6) {
			h.over = 9;
			words = "another transport";
		}
		fx_raw_prove(&f, &r, &h);
		fx_wait(&f, &f.src, WB_XP_REJECTED, ++n);
		ck_assert_msg(strstr(f.src.reason, words) != NULL, "%d: %s", i, f.src.reason);
		close(r.fd);
	}
	ck_assert_int_eq(f.src.count[WB_XP_CONN_UP], 0);
	fx_join(&f);
	fx_close(&f);
}
END_TEST

/* Two sockets of a session that say different things, or the same: not one connection. */
START_TEST(sockets_of_a_session_must_agree)
{
	struct fx_xport f;
	struct fx_raw a, b;
	struct wb__hello h;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.handshake_ns = 300 * WB_NS_PER_MS});
	h = fx_raw_hello(_i ? WBP_BULK_OVER_SHM : WBP_BULK_OVER_TCP);
	h.count = 2;
	fx_raw_prove(&f, &a, &h);
	fx_raw_prove(&f, &b, &h); /* socket 0 again */
	fx_wait(&f, &f.src, WB_XP_REJECTED, 1);
	h.index = 1;
	h.slots++;
	close(b.fd);
	fx_raw_prove(&f, &b, &h);
	fx_wait(&f, &f.src, WB_XP_REJECTED, 2);
	close(a.fd); /* the first waits in vain and goes: nobody was told of a connection */
	close(b.fd);
	fx_wait(&f, &f.src, WB_XP_REJECTED, 3);
	ck_assert_int_eq(f.src.count[WB_XP_CONN_UP] + f.src.count[WB_XP_CONN_DOWN], 0);
	fx_join(&f);
	fx_close(&f);
}
END_TEST

/* Every prefix of HELLO, then silence or the end. */
START_TEST(a_hello_cut_short_costs_nothing)
{
	struct fx_xport f;
	struct wb__frame hello = {.type = WBP_BULK_HELLO};
	uint8_t buf[WBP_BULK_FRAME_MAX];
	struct wb_err err = {0};
	int fd[2], n = 0;

	fx_open(&f, fx_kinds[_i], &(struct fx_opts){.handshake_ns = 300 * WB_NS_PER_MS});
	hello.hello = fx_raw_hello(_i ? WBP_BULK_OVER_SHM : WBP_BULK_OVER_TCP);
	wb__frame_encode(&hello, buf);
	for (size_t len = 0; len < WBP_BULK_HELLO_BYTES; len += 9) {
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
		ck_assert_int_eq(wb_xport_adopt(f.src.x, fd[0], &err), 0);
		ck_assert_int_eq(send(fd[1], buf, len, 0), len);
		close(fd[1]);
		fx_wait(&f, &f.src, WB_XP_REJECTED, ++n);
		ck_assert_msg(
			strstr(f.src.reason, "closed the connection") != NULL, "%s", f.src.reason);
	}
	fx_join(&f);
	fx_close(&f);
}
END_TEST

/* ---- a source made by hand --------------------------------------------------------------------
 */

/* Listen, answer the challenge of f->dst, and give the socket. */
static int raw_accept(struct fx_xport *f, wb_conn_t *conn)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	struct wb_xport_peer p = {
		.name = "src", .endpoint = f->src.endpoint, .epoch = &fx_epoch.id};
	struct wb__frame in, out = {.type = WBP_BULK_CHALLENGE};
	uint8_t raw[WBP_BULK_HELLO_BYTES];
	struct wb_err err = {0};
	int lfd = socket(AF_INET, SOCK_STREAM, 0), fd, up = f->dst.count[WB_XP_CONN_UP] + 1;

	ck_assert_int_eq(bind(lfd, (struct sockaddr *)&a, len), 0);
	ck_assert_int_eq(listen(lfd, 4), 0);
	ck_assert_int_eq(getsockname(lfd, (struct sockaddr *)&a, &len), 0);
	snprintf(f->src.endpoint, sizeof(f->src.endpoint), "127.0.0.1:%d", ntohs(a.sin_port));
	ck_assert_int_eq(wb_xport_connect(f->dst.x, &p, conn, &err), 0);
	fd = accept(lfd, NULL, NULL);
	close(lfd);
	ck_assert_int_eq(recv(fd, raw, sizeof(raw), MSG_WAITALL), sizeof(raw));
	ck_assert_int_eq(wb__mac(fx_epoch.key, WB__MAC_ACCEPTOR, raw, out.nonce, out.mac), 0);
	fx_raw_send(fd, &out);
	ck_assert(fx_raw_recv(fd, &in));
	ck_assert_int_eq(in.type, WBP_BULK_PROOF);
	out.type = WBP_BULK_WELCOME;
	fx_raw_send(fd, &out);
	fx_wait(f, &f->dst, WB_XP_CONN_UP, up);
	return fd;
}

enum {
	NOT_ASKED,
	WRONG_SIZE,
	REFUSE_UNKNOWN,
	REFUSE_WELL,
	GRANT_BACK,
	CUT_FRAME,
	CUT_CHUNK,
	JUNK,
	SOURCE_FAULTS
};
static const char *const source_words[SOURCE_FAULTS] = {"not asked for", "where 1000 were asked",
	"refused what was not asked", "", "unexpected frame", "closed the connection",
	"in the middle of a chunk", "not a frame"};

START_TEST(a_source_that_breaks_the_rules_is_dropped_and_its_grants_are_lost)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb__frame in, out;
	struct wb_xport_grant g;
	wb_conn_t conn;
	uint8_t junk[64] = "this is not a frame of ours, not at all";
	int fd;

	fx_open(&f, "tcp", &(struct fx_opts){.sockets = 1});
	j = fx_job_make(&f, 1000, 1, 1);
	g = fx_grant_of(j, 7, NULL);
	fd = raw_accept(&f, &conn);
	ck_assert_int_eq(wb_xport_grant(f.dst.x, conn, &g), 0);
	g.cookie = 8;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, conn, &g), 0);
	ck_assert(fx_raw_recv(fd, &in) && fx_raw_recv(fd, &in) && in.type == WBP_BULK_GRANT);
	out = (struct wb__frame){.type = WBP_BULK_WRITE, .id = in.id, .bytes = 1000};
	if (_i == NOT_ASKED)
		out.id ^= 1 << 16;
	if (_i == WRONG_SIZE)
		out.bytes++;
	if (_i == REFUSE_UNKNOWN || _i == REFUSE_WELL) {
		out.type = WBP_BULK_REFUSE;
		out.id ^= _i == REFUSE_UNKNOWN ? 9 : 0;
		out.code = 5; /* not a negative errno */
	}
	if (_i == GRANT_BACK)
		out = in;
	if (_i == JUNK)
		ck_assert_int_eq(send(fd, junk, sizeof(junk), 0), sizeof(junk));
	else if (_i == CUT_FRAME)
		ck_assert_int_eq(send(fd, "WBLK\1", 5, 0), 5);
	else
		fx_raw_send(fd, &out);
	if (_i == CUT_CHUNK)
		ck_assert_int_eq(send(fd, junk, sizeof(junk), 0), sizeof(junk));
	if (_i == REFUSE_WELL) {
		fx_wait(&f, &f.dst, WB_XP_REFUSED, 1);
		ck_assert_int_eq(f.dst.ev[f.dst.n_ev - 1].code, -EPROTO);
	}
	if (_i == CUT_FRAME || _i == CUT_CHUNK || _i == REFUSE_WELL)
		close(fd);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert_int_eq(f.dst.count[WB_XP_LOST], _i == REFUSE_WELL ? 1 : 2);
	ck_assert_int_eq(f.dst.count[WB_XP_ARRIVED], 0);
	ck_assert_msg(strstr(f.dst.reason, source_words[_i]) != NULL, "%s", f.dst.reason);
	if (_i != CUT_FRAME && _i != CUT_CHUNK && _i != REFUSE_WELL)
		close(fd);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- main -------------------------------------------------------------------------------------
 */

/* Takes all descriptors but @n_left below a limit; returns how many it took. */
static int take_descriptors(int *fd, int n_left)
{
	struct rlimit r;
	int n = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &r), 0);
	r.rlim_cur = FD_LIMIT;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
	while ((fd[n] = dup(0)) >= 0)
		n++;
	ck_assert_int_eq(errno, EMFILE);
	for (int i = 0; i < n_left; i++)
		close(fd[--n]);
	return n;
}

START_TEST(a_region_without_descriptors_is_refused_here_or_named_there)
{
	struct wb_xport_region r = {.object = FX_OBJECT};
	int fd[FD_LIMIT], n,
		left = _i ? 3 : 2; /* the region's own, and one for each of two rails */
	struct wb_err err = {0};
	struct fx_xport f;
	uint32_t id;

	fx_open(&f, "shm", &(struct fx_opts){.n_rail = 2});
	fx_join(&f);
	r.fd = f.src.mem_fd;
	r.base = f.src.mem;
	r.bytes = f.src.mem_bytes;
	n = take_descriptors(fd, left);
	if (_i) {
		ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
		fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
		ck_assert_ptr_nonnull(strstr(f.dst.reason, strerror(EMFILE)));
	} else {
		ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), -EMFILE);
		for (int i = 0; i < left; i++) /* and keeps none */
			ck_assert_int_ge(fd[n++] = dup(0), 0);
	}
	while (n)
		close(fd[--n]);
	fx_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_hostile");
	TCase *c = tcase_create("xport_hostile");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, flip_fault_changes_one_bit_at_the_receiver_only, 0, FX_REAL_KINDS);
	tcase_add_loop_test(c, drop_fault_loses_the_grant_by_name, 0, FX_REAL_KINDS);
	tcase_add_loop_test(c, who_wakes_a_sleeping_rail_has_all_of_its_time, 0, FX_REAL_KINDS);
	tcase_add_loop_test(c, garbage_and_silence_are_rejected, 0, FX_REAL_KINDS);
	tcase_add_loop_test(c, open_without_memory_is_enomem_and_clean, 0, FX_CLEAR_KINDS);
	tcase_add_loop_test(
		c, a_dialer_that_breaks_the_rules_is_dropped_and_named, 0, FX_CLEAR_KINDS);
	tcase_add_test(c, a_connect_that_is_never_answered_ends_in_time);
	tcase_add_loop_test(c, a_hello_that_asks_for_too_much_is_refused, 0, FX_CLEAR_KINDS);
	tcase_add_loop_test(c, sockets_of_a_session_must_agree, 0, FX_CLEAR_KINDS);
	tcase_add_loop_test(c, a_hello_cut_short_costs_nothing, 0, FX_CLEAR_KINDS);
	tcase_add_loop_test(c, a_source_that_breaks_the_rules_is_dropped_and_its_grants_are_lost, 0,
		SOURCE_FAULTS);
	tcase_add_loop_test(c, a_region_without_descriptors_is_refused_here_or_named_there, 0, 2);
	return fx_run(s);
}
