/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any order of calls keeps the contract of wb_xport_ops: grants, answers, cancels, regions and ends
 * in a random order over several connections.  A connection ends only when somebody ended it, every
 * grant and every write ends once, and a call on a living connection never says that it is gone.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNS 4
#define GRANTS 300
#define STEPS 100000
#define LEAST 100 /* grants, or it has shown little; slow devices need more steps for them */
#define BYTES_MAX 300000
#define SEEDS 3

struct link {
	wb_conn_t dst, src; /* numbers at each side; src 0 = not up there yet */
	bool is_up, is_ended; /* up at the dialer; somebody ended it */
};

struct grant {
	struct link *link;
	struct iovec to, from;
	uint64_t id; /* at the source */
	bool is_open; /* at the source: not answered */
	int ends, writes, writes_ended;
	bool is_cancelled, is_dead; /* its connection went down at the source */
};

struct world {
	struct fx_xport f;
	struct wb_rng r;
	struct link link[200];
	struct grant grant[GRANTS];
	uint32_t n_link, n_grant;
	int at_src, at_dst;
	bool has_region;
};

static struct link *link_of(struct world *w, wb_conn_t conn, bool is_src)
{
	for (uint32_t i = 0; i < w->n_link; i++) {
		if ((is_src ? w->link[i].src : w->link[i].dst) == conn)
			return &w->link[i];
	}
	ck_abort_msg("an event of an unknown connection");
	return NULL;
}

/* Both sides know who dialled when, so the first that has no number at the source is meant. */
static void src_up(struct world *w, const struct wb_xport_event *e)
{
	for (uint32_t i = 0; i < w->n_link; i++) {
		if (w->link[i].src)
			continue;
		w->link[i].src = e->conn;
		return;
	}
	ck_abort_msg("a connection that nobody dialled");
}

static void look_at_src(struct world *w, const struct wb_xport_event *e)
{
	struct link *l;

	switch (e->kind) {
	case WB_XP_CONN_UP:
		src_up(w, e);
		break;
	case WB_XP_GRANT:
		w->grant[e->chunk.chunk].id = e->grant;
		w->grant[e->chunk.chunk].is_open = true;
		break;
	case WB_XP_GRANT_GONE:
		for (uint32_t i = 0; i < w->n_grant; i++) {
			struct grant *g = &w->grant[i];

			if (g->is_open && g->id == e->grant && g->link->src == e->conn)
				g->is_open = false;
		}
		break;
	case WB_XP_WRITE_DONE:
		w->grant[e->cookie].writes_ended++;
		break;
	case WB_XP_CONN_DOWN:
		l = link_of(w, e->conn, true);
		ck_assert_msg(l->is_ended, "src: %d %s", e->code, w->f.src.reason);
		for (uint32_t i = 0; i < w->n_grant; i++) {
			if (w->grant[i].link == l)
				w->grant[i].is_dead = true;
		}
		break;
	default:
		break;
	}
}

static void look_at_dst(struct world *w, const struct wb_xport_event *e)
{
	switch (e->kind) {
	case WB_XP_CONN_UP:
		link_of(w, e->conn, false)->is_up = true;
		break;
	case WB_XP_ARRIVED:
		ck_assert_int_eq(
			memcmp(w->grant[e->cookie].to.iov_base, w->grant[e->cookie].from.iov_base,
				w->grant[e->cookie].to.iov_len),
			0);
		w->grant[e->cookie].ends++;
		break;
	case WB_XP_CANCELLED:
		ck_assert(w->grant[e->cookie].is_cancelled);
		w->grant[e->cookie].ends++;
		break;
	case WB_XP_REFUSED:
	case WB_XP_LOST:
		ck_assert(e->code < 0);
		w->grant[e->cookie].ends++;
		break;
	case WB_XP_CONN_DOWN:
		ck_assert_msg(link_of(w, e->conn, false)->is_ended, "dst: %d %s / %s", e->code,
			w->f.dst.reason, w->f.src.reason);
		break;
	default:
		break;
	}
}

static void look(struct world *w)
{
	while (w->at_src < w->f.src.n_ev)
		look_at_src(w, &w->f.src.ev[w->at_src++]);
	while (w->at_dst < w->f.dst.n_ev)
		look_at_dst(w, &w->f.dst.ev[w->at_dst++]);
}

static struct link *any_link(struct world *w)
{
	uint32_t from = w->n_link > CONNS ? w->n_link - CONNS : 0;

	return &w->link[from + wb_rng_below(&w->r, w->n_link - from)];
}

static void do_grant(struct world *w)
{
	struct link *l = any_link(w);
	struct grant *g = &w->grant[w->n_grant];
	uint64_t bytes = 1 + wb_rng_below(&w->r, BYTES_MAX);
	struct wb_xport_grant x = {.cookie = w->n_grant, .n_iov = 1};
	int rc;

	if (w->n_grant == GRANTS)
		return;
	g->link = l;
	/* Landings overlap: only whole arrivals are compared, so each has its own place in turn. */
	g->to = (struct iovec){w->f.dst.mem + (w->n_grant % 32) * BYTES_MAX, bytes};
	g->from = (struct iovec){w->f.src.mem + wb_rng_below(&w->r, BYTES_MAX), bytes};
	for (uint32_t i = w->n_grant > 32 ? w->n_grant - 32 : 0; i < w->n_grant; i++) {
		if (!w->grant[i].ends)
			return; /* its landing may be this one */
	}
	x.chunk.bytes = bytes;
	x.chunk.chunk = w->n_grant;
	x.iov = &g->to;
	rc = wb_xport_grant(w->f.dst.x, l->dst, &x);
	if (l->is_ended)
		ck_assert(!rc || rc == -ENOTCONN || rc == -EINVAL || rc == -EAGAIN);
	else
		ck_assert_msg(rc == (l->is_up ? 0 : -EINVAL) || (l->is_up && rc == -EAGAIN),
			"grant: %d, up %d", rc, l->is_up);
	w->n_grant += !rc;
}

static void do_answer(struct world *w)
{
	uint32_t i, n = w->n_grant, from = n ? (uint32_t)wb_rng_below(&w->r, n) : 0;
	struct grant *g = NULL;
	int rc;

	for (i = 0; i < n && !(g && g->is_open && !g->is_dead); i++)
		g = &w->grant[(from + i) % n];
	if (!g || !g->is_open || g->is_dead)
		return;
	g->is_open = false;
	if (wb_rng_below(&w->r, 8)) {
		struct wb_xport_write x = {
			.grant = g->id, .cookie = (uint64_t)(g - w->grant), .iov = &g->from};

		x.n_iov = 1;
		rc = wb_xport_write(w->f.src.x, g->link->src, &x);
		if (!w->has_region && rc == -EINVAL)
			rc = wb_xport_refuse(w->f.src.x, g->link->src, g->id, -EIO);
		else
			g->writes += !rc;
	} else {
		rc = wb_xport_refuse(w->f.src.x, g->link->src, g->id, -EIO);
	}
	ck_assert_msg(!rc || (g->link->is_ended && rc == -ENOTCONN), "answer: %d", rc);
}

static void do_cancel(struct world *w)
{
	struct grant *g = w->n_grant ? &w->grant[wb_rng_below(&w->r, w->n_grant)] : NULL;
	int rc;

	if (!g || g->ends)
		return;
	rc = wb_xport_cancel(w->f.dst.x, g->link->dst, (uint64_t)(g - w->grant));
	if (rc == -EALREADY)
		ck_assert(g->is_cancelled);
	else
		ck_assert_msg(!rc || rc == -ENOENT || (g->link->is_ended && rc == -ENOTCONN),
			"cancel: %d", rc);
	g->is_cancelled |= !rc;
}

static void do_end(struct world *w)
{
	struct link *l = any_link(w);
	bool by_src = wb_rng_below(&w->r, 2);
	int rc;

	if (!l->is_up || !l->src)
		return;
	rc = by_src ? wb_xport_disconnect(w->f.src.x, l->src)
		    : wb_xport_disconnect(w->f.dst.x, l->dst);
	ck_assert_msg(!rc || (l->is_ended && rc == -ENOTCONN), "disconnect: %d", rc);
	l->is_ended = true;
	if (!wb_rng_below(&w->r, 3)) /* twice */
		rc = wb_xport_disconnect(w->f.dst.x, l->dst);
	ck_assert(!rc || rc == -ENOTCONN);
}

static void do_region(struct world *w)
{
	struct wb_xport_region r = {.object = FX_OBJECT,
		.fd = w->f.src.mem_fd,
		.base = w->f.src.mem,
		.bytes = w->f.src.mem_bytes};
	struct wb_err err = {0};
	int rc;

	if (w->has_region) {
		rc = wb_xport_region_remove(w->f.src.x, w->f.src.region);
		ck_assert(!rc || rc == -EBUSY);
		w->has_region = rc;
	} else {
		ck_assert_int_eq(wb_xport_region_add(w->f.src.x, &r, &w->f.src.region, &err), 0);
		w->has_region = true;
	}
}

/* A new connection when the last one is known to both sides and one of the latest ended. */
static void do_dial(struct world *w)
{
	struct link *l = w->n_link ? &w->link[w->n_link - 1] : NULL;
	uint32_t ended = 0;

	for (uint32_t i = 0; i < w->n_link; i++)
		ended += w->link[i].is_ended;
	if (w->n_link == 200 || w->n_link - ended >= CONNS || (l && (!l->src || !l->is_up)))
		return;
	w->link[w->n_link++].dst = fx_dial(&w->f, &fx_epoch, "src");
}

static void step(struct world *w)
{
	switch (wb_rng_below(&w->r, 40)) {
	case 0:
		do_end(w);
		break;
	case 1 ... 2:
		do_region(w);
		break;
	case 3 ... 6:
		do_cancel(w);
		break;
	case 7 ... 18:
		do_grant(w);
		break;
	case 19 ... 29:
		do_answer(w);
		break;
	case 30 ... 32:
		do_dial(w);
		break;
	default:
		fx_pump_some(&w->f);
		look(w);
		break;
	}
}

START_TEST(any_order_of_calls_keeps_the_contract)
{
	struct world *w = calloc(1, sizeof(*w));
	uint64_t seed = (uint64_t)_i / FX_KINDS + 1;
	int downs = 0;

	printf("%s seed %llu\n", fx_kinds[_i % FX_KINDS], (unsigned long long)seed);
	w->r.state = seed;
	w->has_region = true;
	fx_open(&w->f, fx_kinds[_i % FX_KINDS],
		&(struct fx_opts){.sockets = (uint32_t)(1 + seed % 3),
			.depth = 8,
			.n_rail = (uint32_t)(1 + seed % 2),
			.mem_bytes = 33 * BYTES_MAX});
	fx_fill(w->f.src.mem, 3 * BYTES_MAX, seed);
	w->link[w->n_link++].dst = fx_dial(&w->f, &fx_epoch, "src");
	for (int i = 0; (i < STEPS || w->n_grant <= LEAST) && w->n_grant < GRANTS; i++)
		step(w);
	for (uint32_t i = 0; i < w->n_link; i++) {
		w->link[i].is_ended = true;
		wb_xport_disconnect(w->f.dst.x, w->link[i].dst);
		downs += w->link[i].src != 0;
	}
	fx_wait(&w->f, &w->f.dst, WB_XP_CONN_DOWN, (int)w->n_link);
	fx_wait(&w->f, &w->f.src, WB_XP_CONN_DOWN, downs);
	look(w);
	for (uint32_t i = 0; i < w->n_grant; i++) {
		ck_assert_int_eq(w->grant[i].ends, 1);
		ck_assert_int_eq(w->grant[i].writes, w->grant[i].writes_ended);
	}
	ck_assert_uint_gt(w->n_grant, LEAST);
	fx_close(&w->f);
	free(w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_random");
	TCase *c = tcase_create("xport_random");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, any_order_of_calls_keeps_the_contract, 0, FX_KINDS * SEEDS);
	return fx_run(s);
}
