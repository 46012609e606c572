/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_job.h"
#include "tests/common/fx_check.h"

#include <stdlib.h>
#include <string.h>

const char *const fx_kinds[FX_ALL_KINDS] = {"tcp", "shm", "tls", "verbs", "set", "sim", "skeleton"};

static void observe(void *ctx, const void *data, size_t bytes, uint64_t off)
{
	struct fx_look *l = ctx;
	struct fx_job *j = l->job;

	if (off != j->seen[l->side] || off + bytes > j->bytes ||
		memcmp(data, j->image + off, bytes))
		atomic_store(&j->is_broken, true);
	j->seen[l->side] += bytes;
	j->pieces[l->side]++;
}

static void copy(void *ctx, void *to, const void *from, size_t bytes, uint64_t off)
{
	if (!bytes)
		return; /* what was copied is visible: memcpy streams nothing */
	memcpy(to, from, bytes);
	observe(ctx, to, bytes, off);
}

static void put_trailer(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES])
{
	struct fx_look *l = ctx;

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

struct fx_job *fx_job_make_at(
	struct fx_xport *f, size_t off, uint64_t bytes, uint32_t ranges, uint64_t seed)
{
	struct fx_job *j = calloc(1, sizeof(*j));
	struct wb_rng r = {seed};
	uint64_t at = 0;

	j->bytes = bytes;
	j->image = malloc(bytes);
	fx_fill(j->image, bytes, seed);
	j->n_src = scatter(&r, f->src.mem + off + wb_rng_below(&r, 9), bytes, ranges, j->src_iov);
	j->n_dst = scatter(&r, f->dst.mem + off + wb_rng_below(&r, 9), bytes, ranges, j->dst_iov);
	for (uint32_t i = 0; i < j->n_src; i++) {
		memcpy(j->src_iov[i].iov_base, j->image + at, j->src_iov[i].iov_len);
		at += j->src_iov[i].iov_len;
	}
	return j;
}

struct fx_job *fx_job_make(struct fx_xport *f, uint64_t bytes, uint32_t ranges, uint64_t seed)
{
	return fx_job_make_at(f, 0, bytes, ranges, seed);
}

void fx_job_free(struct fx_job *j)
{
	free(j->image);
	free(j);
}

bool fx_job_arrived(const struct fx_job *j)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < j->n_dst; i++) {
		if (memcmp(j->dst_iov[i].iov_base, j->image + at, j->dst_iov[i].iov_len))
			return false;
		at += j->dst_iov[i].iov_len;
	}
	return true;
}

bool fx_is_only(const uint8_t *p, uint8_t value, size_t n)
{
	return p[0] == value && !memcmp(p, p + 1, n - 1);
}

struct wb_xport_grant fx_grant_of(const struct fx_job *j, uint64_t cookie, struct fx_look *l)
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
		/* Half of the jobs move their bytes themselves, where the transport lets them. */
		g.copy = j->bytes % 2 ? copy : NULL;
		g.ctx = l;
	}
	return g;
}

struct wb_xport_write fx_write_of(const struct fx_job *j, uint64_t grant, struct fx_look *l)
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
void fx_job_run(struct fx_xport *f, struct fx_job *j, bool looks)
{
	struct fx_look ls = {j, 0}, ld = {j, 1};
	struct wb_xport_grant g = fx_grant_of(j, 77, looks ? &ld : NULL);
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
	w = fx_write_of(j, e->grant, looks ? &ls : NULL);
	ck_assert_int_eq(wb_xport_write(f->src.x, f->src_conn, &w), 0);
	fx_wait(f, &f->dst, WB_XP_ARRIVED, arrived);
	fx_wait(f, &f->src, WB_XP_WRITE_DONE, done);
	e = fx_take(&f->dst, WB_XP_ARRIVED, &at_dst);
	ck_assert_uint_eq(e->cookie, 77);
	ck_assert_uint_eq(e->conn, f->conn);
	e = fx_take(&f->src, WB_XP_WRITE_DONE, &at_src);
	ck_assert_uint_eq(e->cookie, w.cookie);
	ck_assert_int_eq(e->code, 0);
	ck_assert(fx_job_arrived(j));
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

struct wb_xport_event *fx_ask(
	struct fx_xport *f, struct fx_job *j, uint64_t cookie, struct fx_look *l)
{
	struct wb_xport_grant g = fx_grant_of(j, cookie, l);
	int at = f->src.n_ev;

	ck_assert_int_eq(wb_xport_grant(f->dst.x, f->conn, &g), 0);
	fx_wait(f, &f->src, WB_XP_GRANT, f->src.count[WB_XP_GRANT] + 1);
	return fx_take(&f->src, WB_XP_GRANT, &at);
}
