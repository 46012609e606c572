/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows of type 2B: a key that one queue pair may use, and no other. */
#include "tests/roce/rc_pair.h"

#include <stdlib.h>
#include <string.h>

bool has_windows(void)
{
	static const unsigned need = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	struct ibv_context *c = open_device(1);
	struct ibv_device_attr a;
	bool has = !ibv_query_device(c, &a) && a.device_cap_flags & need;

	ibv_close_device(c);
	return has;
}

/* A window on all of b's memory, which may only be bound to, for b's queue pair. */
struct windowed {
	struct pair p;
	struct ibv_mw *mw;
	uint32_t rkey;
};

static int post_bind(struct side *s, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t bytes)
{
	struct ibv_send_wr *bad,
		w = {.wr_id = 5,
			.opcode = IBV_WR_BIND_MW,
			.send_flags = IBV_SEND_SIGNALED,
			.bind_mw = {.mw = mw,
				.rkey = ibv_inc_rkey(mw->rkey),
				.bind_info = {.mr = mr,
					.addr = (uintptr_t)s->buf,
					.length = bytes,
					.mw_access_flags = IBV_ACCESS_REMOTE_READ}}};

	return ibv_post_send(s->qp, &w, &bad);
}

static void open_windowed(struct windowed *w)
{
	struct ibv_wc wc;

	open_pair(&w->p, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_READ);
	must(!to_rts(&w->p.b)); /* who binds has to be able to ask */
	w->mw = ibv_alloc_mw(w->p.b.pd, IBV_MW_TYPE_2);
	must(w->mw != NULL);
	if (!w->mw)
		exit(1);
	w->rkey = ibv_inc_rkey(w->mw->rkey);
	must(!post_bind(&w->p.b, w->mw, w->p.b.mr, BYTES));
	wc = wait_wc(&w->p.b);
	must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 5);
}

static void close_windowed(struct windowed *w)
{
	if (w->mw)
		must(!ibv_dealloc_mw(w->mw));
	close_pair(&w->p);
}

static struct request read_by(struct windowed *w, struct pair *p)
{
	struct request r = read_of(&w->p, 0, 65536);

	r.rkey = w->rkey;
	r.lkey = p->a.mr->lkey;
	r.local = (uintptr_t)p->a.buf;
	return r;
}

static void a_window_is_read_by_its_queue_pair(void)
{
	struct windowed w;
	struct request r;

	open_windowed(&w);
	r = read_by(&w, &w.p);
	expect_status(&w.p, &r, IBV_WC_SUCCESS);
	must(!memcmp(w.p.a.buf, w.p.b.buf, r.bytes));
	close_windowed(&w);
}

/* Of the same domain, connected just the same. */
static void a_window_is_not_read_by_another_queue_pair(void)
{
	struct windowed w;
	struct pair other;
	struct request r;

	open_windowed(&w);
	other = w.p;
	other.a.qp = make_qp(&other.a, WRS);
	other.b.qp = make_qp(&other.b, WRS);
	must(!to_init(&other.a, 0) && !to_init(&other.b, IBV_ACCESS_REMOTE_READ));
	must(!to_rtr(&other.a, &other.b) && !to_rtr(&other.b, &other.a) && !to_rts(&other.a));
	r = read_by(&w, &w.p);
	expect_status(&other, &r, IBV_WC_REM_ACCESS_ERR);
	expect_status(&w.p, &r, IBV_WC_SUCCESS); /* and it was a good one */
	must(!ibv_destroy_qp(other.a.qp) && !ibv_destroy_qp(other.b.qp));
	close_windowed(&w);
}

static void a_window_is_not_read_in_another_domain(void)
{
	struct windowed w;
	struct pair other;
	struct request r;

	open_windowed(&w);
	open_usual(&other);
	r = read_by(&w, &other);
	expect_status(&other, &r, IBV_WC_REM_ACCESS_ERR);
	close_pair(&other);
	close_windowed(&w);
}

static void what_may_only_be_bound_to_is_not_read_by_its_own_key(void)
{
	struct windowed w;
	struct request r;

	open_windowed(&w);
	r = read_by(&w, &w.p);
	r.rkey = w.p.b.mr->rkey;
	expect_status(&w.p, &r, IBV_WC_REM_ACCESS_ERR);
	close_windowed(&w);
}

static void a_window_to_read_is_not_written(void)
{
	struct windowed w;
	struct request r;
	uint8_t before;

	open_windowed(&w);
	before = w.p.b.buf[0];
	w.p.a.buf[0] = (uint8_t)~before;
	r = read_by(&w, &w.p);
	r.opcode = IBV_WR_RDMA_WRITE;
	must(!post(&w.p, &r));
	must(wait_wc(&w.p.a).status != IBV_WC_SUCCESS);
	must(w.p.b.buf[0] == before);
	close_windowed(&w);
}

static void a_window_s_key_is_worth_nothing_when_it_is_invalidated(void)
{
	struct ibv_send_wr *bad,
		inv = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};
	struct windowed w;
	struct request r;

	open_windowed(&w);
	inv.invalidate_rkey = w.rkey;
	must(!ibv_post_send(w.p.b.qp, &inv, &bad));
	must(wait_wc(&w.p.b).status == IBV_WC_SUCCESS);
	r = read_by(&w, &w.p);
	expect_status(&w.p, &r, IBV_WC_REM_ACCESS_ERR);
	close_windowed(&w);
}

static void a_window_s_key_is_worth_nothing_when_it_is_let_go(void)
{
	struct windowed w;
	struct request r;

	open_windowed(&w);
	r = read_by(&w, &w.p);
	must(!ibv_dealloc_mw(w.mw)); /* bound as it is */
	w.mw = NULL;
	expect_status(&w.p, &r, IBV_WC_REM_ACCESS_ERR);
	close_windowed(&w);
}

static void a_window_is_bound_to_regions_of_its_domain_that_may_be(void)
{
	struct windowed w;
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	open_windowed(&w);
	mr = ibv_reg_mr(w.p.b.pd, w.p.b.buf, BYTES, IBV_ACCESS_REMOTE_READ);
	mw = ibv_alloc_mw(w.p.b.pd, IBV_MW_TYPE_2);
	must(mr && mw && !post_bind(&w.p.b, mw, mr, BYTES));
	must(wait_wc(&w.p.b).status != IBV_WC_SUCCESS);
	must(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
	close_windowed(&w);
}

static void a_region_is_not_let_go_while_windows_are_bound_to_it(void)
{
	struct windowed w;

	open_windowed(&w);
	must(ibv_dereg_mr(w.p.b.mr) != 0);
	must(!ibv_dealloc_mw(w.mw));
	w.mw = NULL;
	close_windowed(&w);
}

static const struct rc_case cases[] = {CASE(a_window_is_read_by_its_queue_pair),
	CASE(a_window_is_not_read_by_another_queue_pair),
	CASE(a_window_is_not_read_in_another_domain),
	CASE(what_may_only_be_bound_to_is_not_read_by_its_own_key),
	CASE(a_window_to_read_is_not_written),
	CASE(a_window_s_key_is_worth_nothing_when_it_is_invalidated),
	CASE(a_window_s_key_is_worth_nothing_when_it_is_let_go),
	CASE(a_window_is_bound_to_regions_of_its_domain_that_may_be),
	CASE(a_region_is_not_let_go_while_windows_are_bound_to_it)};

const struct rc_case *window_cases(size_t *n)
{
	*n = sizeof(cases) / sizeof(cases[0]);
	return cases;
}
