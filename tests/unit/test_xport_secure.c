/* SPDX-License-Identifier: Apache-2.0 */
/* Encrypted epochs: what somebody on the wire sees and can do, and peers that do not fit. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_proxy.h"
#include "tests/common/fx_raw.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEEP (24u << 20)
#define WINDOW 32 /* bytes of the weights that nobody may see in a row */

/* ---- somebody who looks ---------------------------------------------------------------------- */

static struct fx_proxy *stand_between(
	struct fx_xport *f, const char *kind, const struct fx_opts *o, const struct fx_tamper *t)
{
	struct fx_proxy *p;

	fx_open(f, kind, o);
	p = fx_proxy_open(f->src.endpoint, t, KEEP);
	snprintf(f->src.endpoint, sizeof(f->src.endpoint), "%s", fx_proxy_endpoint(p));
	return p;
}

static uint32_t windows_seen(const struct fx_proxy *p, const struct fx_job *j, uint32_t n)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < n; i++)
		seen += fx_proxy_saw(p, j->image + j->bytes / n * i, WINDOW);
	return seen;
}

/* In the clear everybody reads the weights; so this way of looking finds them. */
START_TEST(the_weights_are_seen_on_the_wire_in_the_clear_and_not_in_tls)
{
	const char *kind = _i % 2 ? "tls" : "tcp";
	bool looks = _i / 2;
	struct fx_xport f;
	struct fx_proxy *p = stand_between(
		&f, kind, &(struct fx_opts){.sockets = 2, .mem_bytes = 17 << 20}, NULL);
	struct fx_job *j = fx_job_make(&f, 16 << 20, 40, 3);
	struct wb_xport_stats st;

	fx_join(&f);
	fx_job_run(&f, j, looks); /* observers and trailers see the plaintext, as always */
	ck_assert_int_eq(wb_xport_rail_stats(f.src.x, 0, &st), 0);
	ck_assert_uint_eq(st.tx_bytes, j->bytes);
	fx_proxy_stop(p);
	ck_assert_uint_eq(windows_seen(p, j, 64), strcmp(kind, "tls") ? 64 : 0);
	ck_assert(fx_proxy_passed(p, FX_TO_DIALER) > 0);
	fx_proxy_close(p);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(keys_are_renewed_under_way)
{
	struct fx_xport f;
	struct fx_job *j;
	struct wb_xport_stats st;

	fx_open(&f, "tls",
		&(struct fx_opts){.sockets = 1, .mem_bytes = 9 << 20, .rekey_bytes = 1 << 18});
	fx_join(&f);
	j = fx_job_make(&f, 8 << 20, 3, 1);
	for (int i = 0; i < 3; i++) {
		j->seen[0] = j->seen[1] = 0;
		fx_job_run(&f, j, true);
		f.dst.count[WB_XP_ARRIVED] = f.src.count[WB_XP_GRANT] = 0;
		f.src.count[WB_XP_WRITE_DONE] = f.src.n_ev = f.dst.n_ev = 0;
	}
	ck_assert_int_eq(wb_xport_rail_stats(f.src.x, 0, &st), 0);
	ck_assert_uint_ge(st.rekeys, 3 * (8 << 20) / (1 << 18) - 1);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- somebody who meddles -------------------------------------------------------------------- */

/* Bytes of a connection in one direction until it is up, and the first @cap of them in @out. */
static uint64_t handshake(int dir, uint8_t *out, size_t cap)
{
	struct fx_xport f;
	struct fx_proxy *p = stand_between(&f, "tls", &(struct fx_opts){.sockets = 1}, NULL);
	const uint8_t *kept;
	uint64_t all;
	size_t n;

	fx_join(&f);
	fx_proxy_stop(p);
	all = fx_proxy_passed(p, dir);
	kept = fx_proxy_kept(p, dir, &n);
	if (out)
		memcpy(out, kept, WB_MIN(n, cap));
	fx_proxy_close(p);
	fx_close(&f);
	return all;
}

/* What arrived, arrived whole; the rest is lost by name. */
static void run_meddled(struct fx_xport *f, struct fx_job *j)
{
	struct wb_xport_grant g = fx_grant_of(j, 1, NULL);
	struct wb_xport_write w;
	int at = 0;

	while (!f->dst.count[WB_XP_CONN_UP] && !f->dst.count[WB_XP_CONN_DOWN])
		fx_pump(f);
	if (f->dst.count[WB_XP_CONN_DOWN])
		return;
	ck_assert_int_eq(wb_xport_grant(f->dst.x, f->conn, &g), 0);
	while (!f->src.count[WB_XP_GRANT] && !f->dst.count[WB_XP_CONN_DOWN])
		fx_pump(f);
	if (f->src.count[WB_XP_GRANT]) {
		struct wb_xport_event *e = fx_take(&f->src, WB_XP_GRANT, &at);

		w = fx_write_of(j, e->grant, NULL);
		(void)wb_xport_write(f->src.x, e->conn, &w); /* it may be down by now */
	}
	while (!f->dst.count[WB_XP_ARRIVED] && !f->dst.count[WB_XP_CONN_DOWN])
		fx_pump(f);
	if (f->dst.count[WB_XP_ARRIVED])
		ck_assert(fx_job_arrived(j));
}

#define AFTER (1ull << 40) /* counted from the end of the handshake */
#define FOREIGN "\x17\x03\x03\x00\x20................................"
static const struct {
	const char *name;
	struct fx_tamper t;
	const char *dst_words,
		*src_words; /* at the receiver, at the source; "" = does not matter */
} meddlings[] = {
	{"a flipped bit of HELLO", {FX_FLIP, FX_TO_ACCEPTOR, 60, NULL, 0}, "does not hold our key",
		""},
	{"a flipped bit of the nonce", {FX_FLIP, FX_TO_DIALER, 20, NULL, 0},
		"does not hold our key", ""},
	{"a flipped bit of a grant", {FX_FLIP, FX_TO_ACCEPTOR, AFTER + 30, NULL, 0}, "",
		"changed on the way"},
	{"a flipped bit of the payload", {FX_FLIP, FX_TO_DIALER, AFTER + 300000, NULL, 0},
		"changed on the way", ""},
	{"a cut in the payload", {FX_CUT, FX_TO_DIALER, AFTER + 300000, NULL, 0},
		"in the middle of a chunk", ""},
	{"a record of other data",
		{FX_INSERT, FX_TO_DIALER, AFTER, (const uint8_t *)FOREIGN, sizeof(FOREIGN) - 1},
		"changed on the way", ""},
	{"a record that is too large",
		{FX_INSERT, FX_TO_DIALER, AFTER, (const uint8_t *)"\x17\x03\x03\xff\xff", 5},
		"TLS with agent src ended", ""},
	{"a frame in the clear",
		{FX_INSERT, FX_TO_ACCEPTOR, AFTER, (const uint8_t *)"WBLK\1\7\x10\0........", 16},
		"", "TLS with agent dst ended"},
	{"a new handshake",
		{FX_INSERT, FX_TO_ACCEPTOR, AFTER,
			(const uint8_t *)"\x16\x03\x03\x00\x04\x01\0\0\0", 9},
		"", "TLS with agent dst ended"},
};

START_TEST(what_was_changed_on_the_way_ends_the_connection_by_name)
{
	struct fx_tamper t = meddlings[_i].t;
	struct fx_xport f;
	struct fx_proxy *p;
	struct fx_job *j;

	if (t.at >= AFTER)
		t.at += handshake(t.dir, NULL, 0) - AFTER;
	p = stand_between(&f, "tls", &(struct fx_opts){.sockets = 1}, &t);
	j = fx_job_make(&f, 900001, 3, 1);
	f.conn = fx_dial(&f, &fx_epoch, "src");
	run_meddled(&f, j);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	while (!f.src.reason[0])
		fx_pump(&f);
	ck_assert_int_eq(f.dst.count[WB_XP_ARRIVED], 0);
	ck_assert_msg(strstr(f.dst.reason, meddlings[_i].dst_words) != NULL, "%s: %s / %s",
		meddlings[_i].name, f.dst.reason, f.src.reason);
	ck_assert_msg(strstr(f.src.reason, meddlings[_i].src_words) != NULL, "%s: %s / %s",
		meddlings[_i].name, f.dst.reason, f.src.reason);
	fx_proxy_close(p);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* Where records begin in what was kept, and the two bytes of them that mean nothing. */
static bool is_record_version(const uint8_t *b, size_t n, size_t from, uint64_t at)
{
	while (from + 5 <= n) {
		if (at == from + 1 || at == from + 2)
			return true;
		from += 5u + ((size_t)b[from + 3] << 8 | b[from + 4]);
	}
	return false;
}

/* One bit of any byte of the handshake, in either direction: no connection. */
START_TEST(no_byte_of_the_handshake_can_be_changed)
{
	int dir = _i;
	size_t tls_at = dir == FX_TO_ACCEPTOR ? WBP_BULK_HELLO_BYTES + 40 : 72;
	uint8_t good[4096];
	uint64_t n = handshake(dir, good, sizeof(good));
	struct fx_xport f;
	struct fx_proxy *p;

	ck_assert(n > tls_at + 100 && n < sizeof(good));
	for (uint64_t at = 0; at < n; at += at < tls_at ? 37 : 7) {
		struct fx_tamper t = {FX_FLIP, dir, at, NULL, 0};
		bool is_void = is_record_version(good, n, tls_at, at);

		p = stand_between(&f, "tls",
			&(struct fx_opts){.sockets = 1, .handshake_ns = 200 * WB_NS_PER_MS}, &t);
		f.conn = fx_dial(&f, &fx_epoch, "src");
		while (!f.dst.count[WB_XP_CONN_DOWN] && !(is_void && f.dst.count[WB_XP_CONN_UP]))
			fx_pump(&f);
		if (!is_void && dir == FX_TO_DIALER)
			ck_assert_int_eq(f.dst.count[WB_XP_CONN_UP], 0);
		if (!is_void && dir == FX_TO_ACCEPTOR)
			ck_assert_int_eq(f.src.count[WB_XP_CONN_UP], 0);
		fx_proxy_close(p);
		fx_close(&f);
	}
}
END_TEST

/* ---- peers that do not fit ------------------------------------------------------------------- */

/* dst's epoch says otherwise than src's; whose key it is does not help. */
START_TEST(one_in_the_clear_and_one_in_tls_refuse_each_other)
{
	static const char *const words[] = {"would send in the clear, but encryption is TLS",
		"wants TLS, but encryption is None"};
	struct wb_xport_epoch e = fx_epoch_of(_i ? "tls" : "tcp");
	struct fx_xport f;
	struct wb_err err = {0};

	fx_open(&f, _i ? "tcp" : "tls", &(struct fx_opts){.sockets = 1});
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &e, &err), -EEXIST);
	ck_assert_ptr_nonnull(strstr(err.msg, "another key or encryption"));
	wb_xport_epoch_remove(f.dst.x, &e.id);
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &e, &err), 0);
	f.conn = fx_dial(&f, &e, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	fx_wait(&f, &f.src, WB_XP_REJECTED, 1);
	ck_assert_msg(strstr(f.dst.reason, words[_i]) != NULL, "%s", f.dst.reason);
	ck_assert_msg(strstr(f.src.reason, words[_i]) != NULL, "%s", f.src.reason);
	ck_assert_int_eq(f.src.count[WB_XP_CONN_UP] + f.dst.count[WB_XP_CONN_UP], 0);
	fx_close(&f);
}
END_TEST

/* It knows the key and passes the challenge; then comes something else than TLS, or nothing. */
static const struct {
	const char *bytes;
	size_t n;
	const char *words;
} after_proof[] = {
	{"", 0, "did not finish the challenge in time"},
	{"\x16\x03\x01\x02", 4, "did not finish the challenge in time"},
	{"\x16\x03\x01\xff\xff", 5, "TLS with agent raw did not begin"},
	{"WBLK\1\4\x08\0WBLK\1\4\x08\0", 16, "TLS with agent raw did not begin"},
	{"\x17\x03\x03\x00\x05hello", 10, "TLS with agent raw did not begin"},
	{"GET / HTTP/1.1\r\n\r\n", 18, "TLS with agent raw did not begin"},
};

START_TEST(what_follows_the_challenge_is_tls_or_nothing)
{
	struct wb__hello h = fx_raw_hello(WBP_BULK_OVER_TLS);
	struct fx_xport f;
	struct fx_raw r;

	fx_open(&f, "tls", &(struct fx_opts){.handshake_ns = WB_NS_PER_S});
	fx_raw_prove(&f, &r, &h);
	ck_assert_int_eq(send(r.fd, after_proof[_i].bytes, after_proof[_i].n, MSG_NOSIGNAL),
		after_proof[_i].n);
	fx_wait(&f, &f.src, WB_XP_REJECTED, 1);
	ck_assert_msg(
		strstr(f.src.reason, after_proof[_i].words) != NULL, "%d: %s", _i, f.src.reason);
	ck_assert_int_eq(f.src.count[WB_XP_CONN_UP], 0);
	close(r.fd);
	fx_join(&f); /* others are served */
	fx_close(&f);
}
END_TEST

/* The link stays and nothing moves: both give up in time. */
START_TEST(a_handshake_that_stops_ends_in_time)
{
	static const struct fx_tamper stop[] = {
		{FX_HOLD, FX_TO_ACCEPTOR, WBP_BULK_HELLO_BYTES + 40 + 50, NULL, 0},
		{FX_HOLD, FX_TO_DIALER, 72 + 20, NULL, 0},
	};
	struct fx_xport f;
	struct fx_proxy *p = stand_between(&f, "tls",
		&(struct fx_opts){.sockets = 1, .handshake_ns = 300 * WB_NS_PER_MS}, &stop[_i]);

	f.conn = fx_dial(&f, &fx_epoch, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	fx_wait(&f, &f.src, WB_XP_REJECTED, 1);
	ck_assert_msg(strstr(f.dst.reason, "in time") || strstr(f.src.reason, "in time"), "%s / %s",
		f.dst.reason, f.src.reason);
	fx_proxy_close(p);
	fx_close(&f);
}
END_TEST

START_TEST(a_transport_that_cannot_encrypt_says_so_and_shm_need_not)
{
	struct wb_xport_epoch e = fx_epoch_of("tls");
	struct fx_xport f;
	struct fx_job *j;
	struct wb_err err = {0};

	e.id.number++;
	fx_open(&f, "sim", &(struct fx_opts){0});
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), -ENOTSUP);
	ck_assert_msg(strstr(err.msg, "transport sim has no encryption") != NULL, "%s", err.msg);
	fx_close(&f);
	/* Within a host no byte leaves the memory that both agents map. */
	fx_open(&f, "shm", &(struct fx_opts){0});
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &e, &err), 0);
	f.conn = fx_dial(&f, &e, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_UP, 1);
	fx_wait(&f, &f.src, WB_XP_CONN_UP, 1);
	j = fx_job_make(&f, 4097, 3, 1);
	f.src_conn = f.src.ev[0].conn;
	fx_job_run(&f, j, true);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_secure");
	TCase *c = tcase_create("xport_secure");

	suite_add_tcase(s, c);
	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, the_weights_are_seen_on_the_wire_in_the_clear_and_not_in_tls, 0, 4);
	tcase_add_test(c, keys_are_renewed_under_way);
	tcase_add_loop_test(c, what_was_changed_on_the_way_ends_the_connection_by_name, 0,
		WB_ARRAY_SIZE(meddlings));
	tcase_add_loop_test(c, no_byte_of_the_handshake_can_be_changed, 0, 2);
	tcase_add_loop_test(c, one_in_the_clear_and_one_in_tls_refuse_each_other, 0, 2);
	tcase_add_loop_test(
		c, what_follows_the_challenge_is_tls_or_nothing, 0, WB_ARRAY_SIZE(after_proof));
	tcase_add_loop_test(c, a_handshake_that_stops_ends_in_time, 0, 2);
	tcase_add_test(c, a_transport_that_cannot_encrypt_says_so_and_shm_need_not);
	return fx_run(s);
}
