/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of wb_xport_ops, over every transport. */
#include "base/base.h"
#include "base/hash.h"
#include "base/mem.h"
#include "tests/common/fx_xport.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const kinds[] = {"tcp", "shm", "sim"};
#define KINDS WB_ARRAY_SIZE(kinds)

/* One chunk on both sides. */
struct job {
	struct iovec src_iov[600], dst_iov[600];
	uint32_t n_src, n_dst;
	uint64_t bytes, seen[2], pieces[2];
	_Atomic bool is_broken; /* an observer saw the wrong bytes or order */
	uint8_t *image; /* what must arrive, in wire order */
};

struct look {
	struct job *job;
	int side; /* 0 source, 1 receiver */
};

static void observe(void *ctx, const void *data, size_t bytes, uint64_t off)
{
	struct look *l = ctx;
	struct job *j = l->job;

	if (off != j->seen[l->side] || off + bytes > j->bytes ||
		memcmp(data, j->image + off, bytes))
		atomic_store(&j->is_broken, true);
	j->seen[l->side] += bytes;
	j->pieces[l->side]++;
}

static void put_trailer(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES])
{
	struct look *l = ctx;

	/* After the last byte was shown. */
	memset(out, l->job->seen[0] == l->job->bytes ? 0x5a : 0, WB_XPORT_TRAILER_BYTES);
	memcpy(out, &l->job->bytes, 8);
}

/* Cut [base, base + bytes) into up to @max ranges, in a random order of places with gaps. */
static uint32_t scatter(
	struct wb_rng *r, uint8_t *base, uint64_t bytes, uint32_t max, struct iovec *v)
{
	uint32_t n = 0;
	uint64_t left = bytes;

	while (left) {
		uint64_t len = n + 1 == max ? left : 1 + wb_rng_below(r, left);
		uint64_t few = 1 + wb_rng_below(r, 100);

		if (n + 1 < max && wb_rng_below(r, 3) == 0)
			len = WB_MIN(len, few);
		v[n].iov_base = base;
		v[n++].iov_len = len;
		base += len + wb_rng_below(r, 2) * wb_rng_below(r, 64);
		left -= len;
	}
	return n;
}

/* A chunk of @bytes, cut into up to @ranges ranges on each side; source bytes are filled in. */
static void job_make(
	struct fx_xport *f, struct job *j, uint64_t bytes, uint32_t ranges, uint64_t seed)
{
	struct wb_rng r = {seed};
	uint64_t at = 0;

	memset(j, 0, sizeof(*j));
	j->bytes = bytes;
	j->image = malloc(bytes);
	fx_fill(j->image, bytes, seed);
	j->n_src = scatter(&r, f->src.mem + wb_rng_below(&r, 9), bytes, ranges, j->src_iov);
	j->n_dst = scatter(&r, f->dst.mem + wb_rng_below(&r, 9), bytes, ranges, j->dst_iov);
	for (uint32_t i = 0; i < j->n_src; i++) {
		memcpy(j->src_iov[i].iov_base, j->image + at, j->src_iov[i].iov_len);
		at += j->src_iov[i].iov_len;
	}
}

static bool job_arrived(const struct job *j)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < j->n_dst; i++) {
		if (memcmp(j->dst_iov[i].iov_base, j->image + at, j->dst_iov[i].iov_len))
			return false;
		at += j->dst_iov[i].iov_len;
	}
	return true;
}

static bool is_only(const uint8_t *p, uint8_t value, size_t n)
{
	return p[0] == value && !memcmp(p, p + 1, n - 1);
}

static struct wb_xport_grant grant_of(const struct job *j, uint64_t cookie, struct look *l)
{
	struct wb_xport_grant g = {.cookie = cookie,
		.chunk = {.transfer = 9,
			.bytes = j->bytes,
			.cls = 1,
			.chunk = (uint32_t)cookie,
			.gen = 3,
			.src = 4,
			.dst = 5},
		.iov = j->dst_iov,
		.n_iov = j->n_dst};

	if (l) {
		g.observe = observe;
		g.ctx = l;
	}
	return g;
}

static struct wb_xport_write write_of(const struct job *j, uint64_t grant, struct look *l)
{
	struct wb_xport_write w = {
		.grant = grant, .cookie = grant ^ 0xff, .iov = j->src_iov, .n_iov = j->n_src};

	if (l) {
		w.observe = observe;
		w.trailer = put_trailer;
		w.ctx = l;
	}
	return w;
}

/* Ask, answer, wait for the arrival. */
static void run_job(struct fx_xport *f, struct job *j, bool looks)
{
	struct look ls = {j, 0}, ld = {j, 1};
	struct wb_xport_grant g = grant_of(j, 77, looks ? &ld : NULL);
	struct wb_xport_write w;
	struct wb_xport_event *e;
	int at_src = f->src.n_ev, at_dst = f->dst.n_ev;
	int done = f->src.count[WB_XP_WRITE_DONE] + 1, arrived = f->dst.count[WB_XP_ARRIVED] + 1;
	uint8_t want[WB_XPORT_TRAILER_BYTES];

	ck_assert_int_eq(wb_xport_grant(f->dst.x, f->conn, &g), 0);
	fx_wait(f, &f->src, WB_XP_GRANT, f->src.count[WB_XP_GRANT] + 1);
	e = fx_take(&f->src, WB_XP_GRANT, &at_src);
	ck_assert_uint_eq(e->conn, f->src_conn);
	ck_assert_mem_eq(&e->chunk, &g.chunk, offsetof(struct wb_xport_chunk, dst) + 4);
	w = write_of(j, e->grant, looks ? &ls : NULL);
	ck_assert_int_eq(wb_xport_write(f->src.x, f->src_conn, &w), 0);
	fx_wait(f, &f->dst, WB_XP_ARRIVED, arrived);
	fx_wait(f, &f->src, WB_XP_WRITE_DONE, done);
	e = fx_take(&f->dst, WB_XP_ARRIVED, &at_dst);
	ck_assert_uint_eq(e->cookie, 77);
	ck_assert_uint_eq(e->conn, f->conn);
	e = fx_take(&f->src, WB_XP_WRITE_DONE, &at_src);
	ck_assert_uint_eq(e->cookie, w.cookie);
	ck_assert_int_eq(e->code, 0);
	ck_assert(job_arrived(j));
	at_dst = 0;
	while ((e = fx_take(&f->dst, WB_XP_ARRIVED, &at_dst)))
		memcpy(want, e->trailer, sizeof(want));
	if (looks) {
		uint8_t expect[WB_XPORT_TRAILER_BYTES];

		memset(expect, 0x5a, sizeof(expect));
		memcpy(expect, &j->bytes, 8);
		ck_assert_mem_eq(want, expect, sizeof(want));
		ck_assert(!atomic_load(&j->is_broken));
		ck_assert_uint_eq(j->seen[0], j->bytes);
		ck_assert_uint_eq(j->seen[1], j->bytes);
	}
}

/* ---- connections ------------------------------------------------------------------------------
 */

START_TEST(connect_tells_both_sides_who_it_is)
{
	struct fx_xport f;
	struct wb_xport_event *e;
	int at = 0;

	fx_open(&f, kinds[_i], &(struct fx_opts){.sockets = 3, .n_rail = 2});
	f.conn = fx_dial(&f, &fx_epoch, "src");
	while (!f.dst.count[WB_XP_CONN_UP] || !f.src.count[WB_XP_CONN_UP]) {
		fx_pump(&f);
		at = 0;
		if ((e = fx_take(&f.dst, WB_XP_CONN_UP, &at)) && e->info) {
			ck_assert_uint_eq(e->conn, f.conn);
			ck_assert(e->info->is_dialer);
			ck_assert_str_eq(e->info->peer, "src");
			ck_assert_uint_eq(e->info->user, 42);
			ck_assert_uint_eq(e->info->object, FX_OBJECT);
			e->info = NULL;
		}
		at = 0;
		if ((e = fx_take(&f.src, WB_XP_CONN_UP, &at)) && e->info) {
			ck_assert(!e->info->is_dialer);
			ck_assert_str_eq(e->info->peer, "dst");
			ck_assert_uint_eq(e->info->number, fx_epoch.number);
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
	wb_xport_epoch_remove(f.dst.x, &fx_epoch);
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
	struct wb_xport_epoch e = fx_epoch;

	e.key[31] ^= 1;
	expect_refused(kinds[_i], &e, "src", -EKEYREJECTED, "does not hold our key of epoch 3.7");
}
END_TEST

START_TEST(unknown_epoch_is_refused_and_named)
{
	struct wb_xport_epoch e = fx_epoch;

	e.number = 8;
	expect_refused(kinds[_i], &e, "src", WB_ESTALE, "does not know epoch 3.8");
}
END_TEST

START_TEST(wrong_name_is_refused_and_named)
{
	expect_refused(kinds[_i], &fx_epoch, "other", -EADDRNOTAVAIL, "this is agent src");
}
END_TEST

START_TEST(epoch_with_another_key_is_eexist)
{
	struct fx_xport f;
	struct wb_xport_epoch e = fx_epoch;
	struct wb_err err = {0};

	fx_open(&f, kinds[_i], &(struct fx_opts){0});
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), 0);
	e.key[0] ^= 1;
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), -EEXIST);
	ck_assert_int_eq(wb_xport_epoch_remove(f.src.x, &e), 0);
	ck_assert_int_eq(wb_xport_epoch_remove(f.src.x, &e), -ENOENT);
	fx_close(&f);
}
END_TEST

START_TEST(nobody_listening_is_conn_down)
{
	struct fx_xport f;
	struct wb_xport_peer p = {.name = "src", .endpoint = "127.0.0.1:1", .epoch = fx_epoch};
	struct wb_err err = {0};
	wb_conn_t c;
	int rc;

	fx_open(&f, kinds[_i], &(struct fx_opts){0});
	if (!strcmp(kinds[_i], "shm"))
		p.endpoint = "unix:@weightbridge-nobody";
	if (!strcmp(kinds[_i], "sim"))
		p.endpoint = "sim:nobody";
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

/* ---- bytes ------------------------------------------------------------------------------------
 */

static const uint64_t sizes[] = {
	1, 2, 3, 63, 64, 65, 4095, 4097, 65537, 131072, 131073, (1 << 20) + 1, 5000011, 16 << 20};

START_TEST(bytes_of_every_size_arrive_once_in_order)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));

	fx_open(&f, kinds[_i], &(struct fx_opts){.mem_bytes = (17 << 20) + 65536});
	fx_join(&f);
	for (size_t k = 0; k < WB_ARRAY_SIZE(sizes); k++) {
		uint32_t ranges[] = {1, 7, 600};

		for (size_t r = 0; r < 3; r++) {
			if (sizes[k] > 1 << 20 && r != k % 3)
				continue; /* time */
			job_make(&f, j, sizes[k], ranges[r], k * 3 + r + 1);
			run_job(&f, j, k % 4 != 3);
			free(j->image);
		}
	}
	free(j);
	fx_close(&f);
}
END_TEST

START_TEST(pieces_are_cut_at_multiples_of_64)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));

	fx_open(&f, kinds[_i], &(struct fx_opts){.mem_bytes = 4 << 20});
	fx_join(&f);
	job_make(&f, j, 3000001, 1, 5);
	run_job(&f, j, true);
	/* One range, so: whole pieces and one rest. */
	ck_assert_uint_ge(j->pieces[0], 3000001 / (128 << 10));
	ck_assert_uint_le(j->pieces[0], 3000001 / 64);
	free(j->image);
	free(j);
	fx_close(&f);
}
END_TEST

#define MANY 200
#define MANY_BYTES 4000

/* Grants both ways on two connections, as many as the depth lets through. */
START_TEST(many_chunks_both_ways_end_once_each)
{
	struct fx_xport f;
	struct wb_xport_peer p = {.name = "dst", .epoch = fx_epoch};
	struct fx_side *side[2] = {&f.dst, &f.src};
	wb_conn_t conn[2], back[2] = {0, 0};
	struct iovec *to = malloc(2 * MANY * sizeof(*to)), *from = malloc(2 * MANY * sizeof(*from));
	int asked[2] = {0, 0}, at[2] = {0, 0};
	bool ended[2][MANY] = {{false}};
	struct wb_err err = {0};

	fx_open(&f, kinds[_i],
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

static struct wb_xport_event *ask(
	struct fx_xport *f, struct job *j, uint64_t cookie, struct look *l)
{
	struct wb_xport_grant g = grant_of(j, cookie, l);
	int at = f->src.n_ev;

	ck_assert_int_eq(wb_xport_grant(f->dst.x, f->conn, &g), 0);
	fx_wait(f, &f->src, WB_XP_GRANT, f->src.count[WB_XP_GRANT] + 1);
	return fx_take(&f->src, WB_XP_GRANT, &at);
}

START_TEST(refusal_carries_its_code)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_xport_event *e;
	int at = 0;

	fx_open(&f, kinds[_i], &(struct fx_opts){0});
	fx_join(&f);
	job_make(&f, j, 1000, 3, 1);
	e = ask(&f, j, 5, NULL);
	ck_assert_int_eq(wb_xport_refuse(f.src.x, f.src_conn, e->grant, 1), -EINVAL);
	ck_assert_int_eq(wb_xport_refuse(f.src.x, f.src_conn, e->grant, WB_ESTALE), 0);
	ck_assert_int_eq(wb_xport_refuse(f.src.x, f.src_conn, e->grant, WB_ESTALE), -ENOENT);
	fx_wait(&f, &f.dst, WB_XP_REFUSED, 1);
	e = fx_take(&f.dst, WB_XP_REFUSED, &at);
	ck_assert_uint_eq(e->cookie, 5);
	ck_assert_int_eq(e->code, WB_ESTALE);
	run_job(&f, j, true); /* the connection lives on */
	free(j->image);
	free(j);
	fx_close(&f);
}
END_TEST

START_TEST(wrong_answers_are_errors_and_leave_the_grant_open)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_xport_event *e;
	struct wb_xport_write w;
	static uint8_t stray[1000];
	struct iovec v = {stray, 1000};

	fx_open(&f, kinds[_i], &(struct fx_opts){0});
	fx_join(&f);
	job_make(&f, j, 1000, 3, 1);
	e = ask(&f, j, 5, NULL);
	w = write_of(j, e->grant, NULL);
	w.grant ^= 1 << 20;
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -ENOENT);
	w.grant = e->grant;
	j->src_iov[0].iov_len++;
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -EINVAL);
	j->src_iov[0].iov_len--;
	if (wb_xport_caps(f.src.x) & WB_XPORT_CAP_REGIONS) {
		w.iov = &v;
		w.n_iov = 1;
		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -EINVAL);
		w = write_of(j, e->grant, NULL);
	}
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -ENOENT);
	ck_assert_int_eq(wb_xport_write(f.src.x, 12345, &w), -ENOTCONN);
	ck_assert_int_eq(wb_xport_write(f.dst.x, f.conn, &w), -ENOENT);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	fx_wait(&f, &f.src, WB_XP_WRITE_DONE, 1);
	ck_assert(job_arrived(j));
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), -ENOENT);
	free(j->image);
	free(j);
	fx_close(&f);
}
END_TEST

START_TEST(wrong_grants_are_errors)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_xport_grant g;

	fx_open(&f, kinds[_i], &(struct fx_opts){.depth = 4, .sockets = 2});
	fx_join(&f);
	job_make(&f, j, 1000, 3, 1);
	g = grant_of(j, 1, NULL);
	ck_assert_int_eq(wb_xport_grant(f.src.x, f.src_conn, &g), -EINVAL);
	ck_assert_int_eq(wb_xport_grant(f.dst.x, 999, &g), -ENOTCONN);
	g.chunk.bytes++;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	g.n_iov = 0;
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EINVAL);
	g = grant_of(j, 1, NULL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), -EAGAIN);
	free(j->image);
	free(j);
	fx_close(&f);
}
END_TEST

START_TEST(cancel_before_the_answer_takes_the_grant_back)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_xport_event *e;
	struct wb_xport_write w;
	int at = 0;

	fx_open(&f, kinds[_i], &(struct fx_opts){.depth = 1, .sockets = 1});
	fx_join(&f);
	job_make(&f, j, 1000, 3, 1);
	memset(f.dst.mem, 0xee, 4096);
	e = ask(&f, j, 5, NULL);
	w = write_of(j, e->grant, NULL);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 6), -ENOENT);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 5), 0);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 5), -EALREADY);
	fx_wait(&f, &f.dst, WB_XP_CANCELLED, 1);
	fx_wait(&f, &f.src, WB_XP_GRANT_GONE, 1);
	ck_assert_uint_eq(fx_take(&f.src, WB_XP_GRANT_GONE, &at)->grant, w.grant);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), -ENOENT);
	ck_assert_int_eq(wb_xport_cancel(f.dst.x, f.conn, 5), -ENOENT);
	ck_assert(is_only(f.dst.mem, 0xee, 4096));
	/* The one slot comes back by itself. */
	for (;;) {
		struct wb_xport_grant g = grant_of(j, 8, NULL);
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
	ck_assert(job_arrived(j));
	free(j->image);
	free(j);
	fx_close(&f);
}
END_TEST

/* Cancel while bytes may be under way, many times: one end each, nothing lands after it. */
START_TEST(cancel_in_flight_ends_once_and_nothing_lands_after)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_rng r = {11};
	int at = 0, ends = 0, cancelled = 0;

	fx_open(&f, kinds[_i], &(struct fx_opts){.mem_bytes = 8 << 20});
	fx_join(&f);
	job_make(&f, j, 3 << 20, 1, 1);
	for (int i = 0; i < 30; i++) {
		struct wb_xport_event *e = ask(&f, j, (uint64_t)i, NULL);
		struct wb_xport_write w = write_of(j, e->grant, NULL);
		uint64_t spins = wb_rng_below(&r, 200000);
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
			ck_assert(is_only(f.dst.mem, 0xee, 8 << 20));
	}
	ck_assert_int_eq(ends, 30);
	ck_assert_int_eq(f.dst.count[WB_XP_ARRIVED] + f.dst.count[WB_XP_CANCELLED], 30);
	run_job(&f, j, true);
	free(j->image);
	free(j);
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
	struct job *j = malloc(sizeof(*j));
	struct wb_rng r = {(uint64_t)_i + 5};
	enum how how = _i / (int)KINDS;
	int at = 0, writes = 0, ended[PARTS] = {0}, wrote[PARTS] = {0};
	struct iovec landing[PARTS];
	struct wb_xport_event *e;

	fx_open(&f, kinds[_i % (int)KINDS],
		&(struct fx_opts){.sockets = 2, .n_rail = 2, .mem_bytes = 4 << 20});
	fx_join(&f);
	job_make(&f, j, 300000, 2, 1);
	for (uint64_t i = 0; i < PARTS; i++) {
		struct wb_xport_grant g = grant_of(j, i, NULL);

		landing[i] = (struct iovec){f.dst.mem + i * j->bytes, j->bytes};
		g.iov = &landing[i];
		g.n_iov = 1;
		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, PARTS);
	while ((e = fx_take(&f.src, WB_XP_GRANT, &at)) && writes < PARTS - 4) {
		struct wb_xport_write w = write_of(j, e->grant, NULL);

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
		ck_assert_int_eq(wb_xport_epoch_remove(f.dst.x, &fx_epoch), 1);
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
	ck_assert(is_only(f.dst.mem, 0xee, f.dst.mem_bytes));
	if (f.src.x && how != BY_EPOCH) { /* and a new connection works */
		at = f.src.n_ev;
		f.conn = fx_dial(&f, &fx_epoch, "src");
		fx_wait(&f, &f.dst, WB_XP_CONN_UP, 2);
		fx_wait(&f, &f.src, WB_XP_CONN_UP, 2);
	}
	free(j->image);
	free(j);
	fx_close(&f);
}
END_TEST

START_TEST(closing_in_the_middle_of_everything_is_clean)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_xport_event *e;
	int at = 0;

	fx_open(&f, kinds[_i], &(struct fx_opts){.mem_bytes = 4 << 20});
	fx_join(&f);
	job_make(&f, j, 3 << 20, 2, 1);
	for (uint64_t i = 0; i < 8; i++) {
		struct wb_xport_grant g = grant_of(j, i, NULL);

		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, 8);
	while ((e = fx_take(&f.src, WB_XP_GRANT, &at))) {
		struct wb_xport_write w = write_of(j, e->grant, NULL);

		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	}
	fx_dial(&f, &fx_epoch, "src"); /* and a challenge under way */
	fx_close(&f);
	free(j->image);
	free(j);
}
END_TEST

/* A peer that takes 200 kB/s has megabytes outstanding; another gets all of its own meanwhile. */
START_TEST(slow_reader_does_not_stop_other_connections)
{
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_xport_rail rail = {.addr = strcmp(kinds[_i], "shm") ? "127.0.0.1:0" : "unix:@",
		.rate_bytes_per_s = 200000};
	struct wb_xport_opts o = {.name = "slow", .rail = &rail, .n_rail = 1};
	struct wb_xport_peer p = {.name = "src", .epoch = fx_epoch};
	struct wb_xport_event ev[8], *e;
	struct wb_err err = {0};
	struct wb_xport *slow;
	wb_conn_t conn;
	uint8_t *landing = malloc(3 << 20);
	struct iovec v = {landing, 3 << 20};
	int at = 0, arrived = 0, up = 0;

	fx_open(&f, kinds[_i], &(struct fx_opts){.mem_bytes = 4 << 20});
	fx_join(&f);
	job_make(&f, j, 3 << 20, 2, 1);
	o.sim = f.net;
	p.endpoint = f.src.endpoint;
	ck_assert_int_eq(wb_xport_open(kinds[_i], &o, &slow, &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(slow, &fx_epoch, &err), 0);
	ck_assert_int_eq(wb_xport_connect(slow, &p, &conn, &err), 0);
	while (!up) {
		fx_pump(&f);
		if (wb_xport_poll(slow, ev, 8) == 1)
			up = ev[0].kind == WB_XP_CONN_UP;
	}
	for (uint64_t i = 0; i < 4; i++) {
		struct wb_xport_grant g = grant_of(j, i, NULL);

		g.iov = &v;
		g.n_iov = 1;
		ck_assert_int_eq(wb_xport_grant(slow, conn, &g), 0);
	}
	fx_wait(&f, &f.src, WB_XP_GRANT, 4);
	while ((e = fx_take(&f.src, WB_XP_GRANT, &at))) {
		struct wb_xport_write w = write_of(j, e->grant, NULL);

		ck_assert_int_eq(wb_xport_write(f.src.x, e->conn, &w), 0);
	}
	for (int i = 0; i < 5; i++) {
		struct wb_xport_grant g = grant_of(j, 77, NULL);
		struct wb_xport_write w;

		at = f.src.n_ev;
		ck_assert_int_eq(wb_xport_grant(f.dst.x, f.conn, &g), 0);
		fx_wait(&f, &f.src, WB_XP_GRANT, 5 + i);
		w = write_of(j, fx_take(&f.src, WB_XP_GRANT, &at)->grant, NULL);
		ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
		fx_wait(&f, &f.dst, WB_XP_ARRIVED, i + 1);
	}
	for (int n = wb_xport_poll(slow, ev, 8); n--;)
		arrived += ev[n].kind == WB_XP_ARRIVED;
	ck_assert_int_eq(arrived, 0);
	wb_xport_close(slow);
	fx_close(&f);
	free(landing);
	free(j->image);
	free(j);
}
END_TEST

/* ---- faults and strangers ----------------------------------------------------------------------
 */

#define REAL_KINDS 2 /* tcp and shm; the simulated net has its own faults */

START_TEST(flip_fault_changes_one_bit_at_the_receiver_only)
{
	struct wb_fault *fault;
	struct wb_err err = {0};
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct look ls = {j, 0}, ld = {j, 1};
	struct wb_xport_event *e;
	struct wb_xport_write w;
	int bits = 0, at = 0;

	ck_assert_int_eq(wb_fault_parse("flip=wire", &fault, &err), 0);
	fx_open(&f, kinds[_i], &(struct fx_opts){.src_fault = fault, .dst_fault = fault});
	fx_join(&f);
	job_make(&f, j, 100001, 5, 1);
	e = ask(&f, j, 1, &ld);
	w = write_of(j, e->grant, &ls);
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
	free(j->image);
	free(j);
}
END_TEST

START_TEST(drop_fault_loses_the_grant_by_name)
{
	struct wb_fault *fault;
	struct wb_err err = {0};
	struct fx_xport f;
	struct job *j = malloc(sizeof(*j));
	struct wb_xport_event *e;
	struct wb_xport_write w;

	ck_assert_int_eq(wb_fault_parse("drop=wire:chunk=1;delay=wire:1ms", &fault, &err), 0);
	fx_open(&f, kinds[_i], &(struct fx_opts){.src_fault = fault, .dst_fault = fault});
	fx_join(&f);
	job_make(&f, j, 100001, 5, 1);
	e = ask(&f, j, 1, NULL);
	w = write_of(j, e->grant, NULL);
	ck_assert_int_eq(wb_xport_write(f.src.x, f.src_conn, &w), 0);
	fx_wait(&f, &f.dst, WB_XP_LOST, 1);
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	fx_wait(&f, &f.src, WB_XP_CONN_DOWN, 1);
	ck_assert(strstr(f.src.reason, "WB_FAULT") || strstr(f.dst.reason, "WB_FAULT"));
	fx_close(&f);
	wb_fault_destroy(fault);
	free(j->image);
	free(j);
}
END_TEST

START_TEST(garbage_and_silence_are_rejected)
{
	struct fx_xport f;
	struct wb_err err = {0};
	struct wb_rng r = {3};
	int fd[2];

	fx_open(&f, kinds[_i], &(struct fx_opts){.handshake_ns = 300 * WB_NS_PER_MS});
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
	struct wb_xport_rail rail = {.addr = strcmp(kinds[_i], "shm") ? "127.0.0.1:0" : "unix:@"};
	struct wb_xport_opts o = {.name = "a", .rail = &rail, .n_rail = 2};
	struct wb_xport_rail two[2] = {rail, rail};

	o.rail = two;
	for (uint64_t n = 1; n < 100; n++) {
		struct wb_xport *x = (void *)1;
		struct wb_err err = {0};
		int rc;

		wb_mem_fail_at(n);
		rc = wb_xport_open(kinds[_i], &o, &x, &err);
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

/* ---- main -------------------------------------------------------------------------------------
 */

int main(void)
{
	Suite *s = suite_create("xport");
	TCase *c = tcase_create("contract"), *d = tcase_create("real");
	SRunner *r;
	int failed;

	suite_add_tcase(s, c);
	suite_add_tcase(s, d);
	tcase_add_loop_test(c, connect_tells_both_sides_who_it_is, 0, KINDS);
	tcase_add_loop_test(c, wrong_key_is_refused_and_named, 0, KINDS);
	tcase_add_loop_test(c, unknown_epoch_is_refused_and_named, 0, KINDS);
	tcase_add_loop_test(c, wrong_name_is_refused_and_named, 0, KINDS);
	tcase_add_loop_test(c, epoch_with_another_key_is_eexist, 0, KINDS);
	tcase_add_loop_test(c, nobody_listening_is_conn_down, 0, KINDS);
	tcase_add_loop_test(c, bytes_of_every_size_arrive_once_in_order, 0, KINDS);
	tcase_add_loop_test(c, pieces_are_cut_at_multiples_of_64, 0, KINDS);
	tcase_add_loop_test(c, many_chunks_both_ways_end_once_each, 0, KINDS);
	tcase_add_loop_test(c, refusal_carries_its_code, 0, KINDS);
	tcase_add_loop_test(c, wrong_answers_are_errors_and_leave_the_grant_open, 0, KINDS);
	tcase_add_loop_test(c, wrong_grants_are_errors, 0, KINDS);
	tcase_add_loop_test(c, cancel_before_the_answer_takes_the_grant_back, 0, KINDS);
	tcase_add_loop_test(c, cancel_in_flight_ends_once_and_nothing_lands_after, 0, KINDS);
	tcase_add_loop_test(
		c, each_grant_and_write_ends_once_when_the_connection_ends, 0, KINDS * HOWS);
	tcase_add_loop_test(c, closing_in_the_middle_of_everything_is_clean, 0, KINDS);
	tcase_add_loop_test(c, slow_reader_does_not_stop_other_connections, 0, KINDS);
	tcase_add_loop_test(d, flip_fault_changes_one_bit_at_the_receiver_only, 0, REAL_KINDS);
	tcase_add_loop_test(d, drop_fault_loses_the_grant_by_name, 0, REAL_KINDS);
	tcase_add_loop_test(d, garbage_and_silence_are_rejected, 0, REAL_KINDS);
	tcase_add_loop_test(d, open_without_memory_is_enomem_and_clean, 0, REAL_KINDS);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
