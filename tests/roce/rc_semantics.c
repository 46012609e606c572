/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rc_semantics [DEVICE DEVICE]   What the verbs transport relies on, of any libibverbs.
 *
 * Two RC queue pairs, on the first two devices or those named, in one process.  Each case is a
 * claim; "ok NAME" or "FAILED NAME: ...".  The fake (tests/fakeverbs) and devices have to agree, so
 * nothing here knows which of them it is.  Exit status: 0, 1 failed, 77 fewer than two devices.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES (1u << 20)
#define PATIENCE_S 20.0
#define TIMEOUT 16 /* 0.27 s a try: a guest without hardware help is slow */
#define RETRIES 2
#define WRS 64

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr; /* all of buf, all rights that a case has not taken away */
	uint8_t *buf;
	union ibv_gid gid;
	int gid_index, rd_atomic;
};

struct pair {
	struct side a, b; /* a asks, b answers */
};

static const char *name, *device[2];
static int failed;
static bool is_failing;

static void fail(const char *what, int line)
{
	if (!is_failing)
		printf("FAILED %s: line %d: %s\n", name, line, what);
	is_failing = true;
}
#define must(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			fail(#x, __LINE__);                                                        \
	} while (0)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(void)
{
	nanosleep(&(struct timespec){0, 50000}, NULL);
}

/* ---- two sides ----------------------------------------------------------------------------------
 */

static struct ibv_context *open_device(int which)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;

	for (int i = 0; list && list[i]; i++)
		if (device[which] ? !strcmp(ibv_get_device_name(list[i]), device[which])
				  : i == which)
			c = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (c)
		return c;
	printf("SKIP: fewer than two devices\n");
	exit(77);
}

/* The last RoCE v2 address of an IPv4 network, else the first there is. */
static void find_gid(struct side *s)
{
	struct ibv_port_attr port;

	must(!ibv_query_port(s->ctx, 1, &port));
	must(!ibv_query_gid(s->ctx, 1, 0, &s->gid));
	for (int i = 0; i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry e;

		if (ibv_query_gid_ex(s->ctx, 1, (uint32_t)i, &e, 0) ||
			e.gid_type != IBV_GID_TYPE_ROCE_V2 || e.gid.raw[0] || e.gid.raw[10] != 0xff)
			continue;
		s->gid = e.gid;
		s->gid_index = i;
	}
}

static struct ibv_qp *make_qp(struct side *s, uint32_t wrs)
{
	struct ibv_qp_init_attr i = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = wrs,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1}};

	return ibv_create_qp(s->pd, &i);
}

static void open_side(struct side *s, int which, int rights)
{
	struct ibv_device_attr attr;

	memset(s, 0, sizeof(*s));
	s->ctx = open_device(which);
	must(!ibv_query_device(s->ctx, &attr));
	s->rd_atomic = attr.max_qp_rd_atom < 16 ? attr.max_qp_rd_atom : 16;
	find_gid(s);
	s->pd = ibv_alloc_pd(s->ctx);
	s->channel = ibv_create_comp_channel(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 256, NULL, s->channel, 0);
	s->buf = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (uint32_t i = 0; i < BYTES; i++)
		s->buf[i] = (uint8_t)(which * 101 + i * 7 + i / 4093);
	s->mr = ibv_reg_mr(s->pd, s->buf, BYTES, rights);
	s->qp = make_qp(s, WRS);
	must(s->mr && s->qp);
}

static int to_init(struct side *s, unsigned rights)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};

	return ibv_modify_qp(
		s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = 7,
		.max_dest_rd_atomic = (uint8_t)s->rd_atomic,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = peer->gid,
				.sgid_index = (uint8_t)s->gid_index,
				.hop_limit = 64}}};

	return ibv_modify_qp(s->qp, &a,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct side *s)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = 6,
		.sq_psn = 7,
		.max_rd_atomic = (uint8_t)s->rd_atomic};

	return ibv_modify_qp(s->qp, &a,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void open_pair(struct pair *p, int a_rights, int b_rights, unsigned b_qp_rights)
{
	open_side(&p->a, 0, a_rights);
	open_side(&p->b, 1, b_rights);
	must(!to_init(&p->a, 0) && !to_init(&p->b, b_qp_rights));
	must(!to_rtr(&p->a, &p->b) && !to_rtr(&p->b, &p->a));
	must(!to_rts(&p->a)); /* and b is not: who only answers need not be able to ask */
}

static void open_usual(struct pair *p)
{
	open_pair(p, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
}

static void close_side(struct side *s)
{
	if (s->qp)
		must(!ibv_destroy_qp(s->qp));
	if (s->mr)
		must(!ibv_dereg_mr(s->mr));
	must(!ibv_destroy_cq(s->cq));
	must(!ibv_destroy_comp_channel(s->channel));
	must(!ibv_dealloc_pd(s->pd));
	must(!ibv_close_device(s->ctx));
	munmap(s->buf, BYTES);
}

static void close_pair(struct pair *p)
{
	close_side(&p->a);
	close_side(&p->b);
}

/* ---- requests -----------------------------------------------------------------------------------
 */

struct request {
	uint64_t id, local, remote;
	uint32_t bytes, lkey, rkey;
	enum ibv_wr_opcode opcode;
	bool is_quiet;
};

static struct request read_of(struct pair *p, uint32_t off, uint32_t bytes)
{
	return (struct request){.local = (uintptr_t)p->a.buf + off,
		.remote = (uintptr_t)p->b.buf + off,
		.bytes = bytes,
		.lkey = p->a.mr->lkey,
		.rkey = p->b.mr->rkey,
		.opcode = IBV_WR_RDMA_READ};
}

static int post(struct pair *p, const struct request *r)
{
	struct ibv_sge g = {.addr = r->local, .length = r->bytes, .lkey = r->lkey};
	struct ibv_send_wr w = {.wr_id = r->id,
		.sg_list = &g,
		.num_sge = 1,
		.opcode = r->opcode,
		.send_flags = r->is_quiet ? 0 : IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = r->remote, .rkey = r->rkey}};
	struct ibv_send_wr *bad;

	return ibv_post_send(p->a.qp, &w, &bad);
}

static struct ibv_wc wait_wc(struct side *s)
{
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR, .wr_id = UINT64_MAX};

	for (double end = now() + PATIENCE_S; now() < end; nap())
		if (ibv_poll_cq(s->cq, 1, &wc))
			return wc;
	fail("no completion came", __LINE__);
	return wc;
}

static void expect_status(struct pair *p, const struct request *r, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	must(!post(p, r));
	wc = wait_wc(&p->a);
	if (wc.status != status) {
		printf("  %s, not %s\n", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
		fail("another status was expected", __LINE__);
	}
}

/* ---- cases --------------------------------------------------------------------------------------
 */

static void a_read_brings_what_the_other_side_has(void)
{
	struct pair p;
	struct request r;
	struct ibv_wc wc;

	open_usual(&p);
	r = read_of(&p, 0, BYTES);
	r.id = 77;
	must(!post(&p, &r));
	wc = wait_wc(&p.a);
	must(wc.status == IBV_WC_SUCCESS && wc.wr_id == 77 && wc.opcode == IBV_WC_RDMA_READ);
	must(!memcmp(p.a.buf, p.b.buf, BYTES));
	close_pair(&p);
}

static void more_reads_than_may_be_under_way_are_taken_and_end_in_order(void)
{
	struct pair p;

	open_usual(&p);
	for (uint32_t i = 0; i < WRS; i++) {
		struct request r = read_of(&p, i * 4096, 4096);

		r.id = i;
		must(!post(&p, &r));
	}
	for (uint32_t i = 0; i < WRS && !is_failing; i++) {
		struct ibv_wc wc = wait_wc(&p.a);

		must(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
	}
	must(!memcmp(p.a.buf, p.b.buf, WRS * 4096));
	close_pair(&p);
}

static void a_signalled_read_tells_of_those_before_it(void)
{
	struct pair p;
	struct ibv_wc wc;

	open_usual(&p);
	for (uint32_t i = 0; i < 8; i++) {
		struct request r = read_of(&p, i * 65536, 65536);

		r.id = i;
		r.is_quiet = i < 7;
		must(!post(&p, &r));
	}
	wc = wait_wc(&p.a);
	must(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7);
	must(!memcmp(p.a.buf, p.b.buf, 8 * 65536));
	must(!ibv_poll_cq(p.a.cq, 1, &wc));
	close_pair(&p);
}

static void an_error_flushes_what_comes_after_it(void)
{
	struct pair p;
	struct request bad;
	struct ibv_wc wc;

	open_usual(&p);
	memset(p.a.buf, 0xee, BYTES);
	bad = read_of(&p, 0, 4096);
	bad.rkey ^= 0x55;
	must(!post(&p, &bad));
	for (uint32_t i = 1; i < 4; i++) {
		struct request r = read_of(&p, 0, 4096);

		r.id = i;
		r.is_quiet = true; /* what fails is told, signalled or not */
		must(!post(&p, &r));
	}
	must(wait_wc(&p.a).status == IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 1; i < 4 && !is_failing; i++) {
		wc = wait_wc(&p.a);
		must(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i);
	}
	must(p.a.buf[0] == 0xee && !memcmp(p.a.buf, p.a.buf + 1, BYTES - 1));
	close_pair(&p);
}

static void beyond_the_region_is_refused(void)
{
	struct pair p;
	struct request r;

	open_usual(&p);
	r = read_of(&p, BYTES - 4096, 4096);
	r.remote++;
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	close_pair(&p);
}

static void a_region_without_the_right_is_not_read(void)
{
	struct pair p;
	struct request r;

	open_pair(&p, IBV_ACCESS_LOCAL_WRITE, 0, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	close_pair(&p);
}

static void who_may_read_may_not_write(void)
{
	struct pair p;
	struct request r;
	uint8_t before;

	open_usual(&p);
	before = p.b.buf[0];
	p.a.buf[0] = (uint8_t)~before;
	r = read_of(&p, 0, 4096);
	r.opcode = IBV_WR_RDMA_WRITE;
	must(!post(&p, &r));
	must(wait_wc(&p.a).status != IBV_WC_SUCCESS);
	must(p.b.buf[0] == before);
	close_pair(&p);
}

static void a_region_of_another_domain_is_not_read(void)
{
	struct pair p;
	struct request r;
	struct ibv_pd *other;
	struct ibv_mr *mr;

	open_usual(&p);
	other = ibv_alloc_pd(p.b.ctx);
	mr = ibv_reg_mr(other, p.b.buf, BYTES, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	r.rkey = mr->rkey;
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	must(!ibv_dereg_mr(mr));
	must(!ibv_dealloc_pd(other));
	close_pair(&p);
}

/* Two objects of one agent have a domain each, on the same devices. */
static void a_key_is_worth_nothing_on_a_queue_pair_of_another_domain(void)
{
	struct pair p, other;
	struct request r;

	open_usual(&p);
	open_usual(&other);
	r = read_of(&other, 0, 4096);
	r.rkey = p.b.mr->rkey;
	r.remote = (uintptr_t)p.b.buf;
	expect_status(&other, &r, IBV_WC_REM_ACCESS_ERR);
	r = read_of(&p, 0, 4096); /* and it was a good one */
	expect_status(&p, &r, IBV_WC_SUCCESS);
	close_pair(&other);
	close_pair(&p);
}

static void a_key_is_worth_nothing_when_its_region_is_gone(void)
{
	struct pair p;
	struct request r;

	open_usual(&p);
	r = read_of(&p, 0, 4096);
	must(!ibv_dereg_mr(p.b.mr));
	p.b.mr = NULL;
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	close_pair(&p);
}

static void a_landing_must_be_writable_and_registered(void)
{
	struct pair p;
	struct request r;

	open_pair(&p, 0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	must(!post(&p, &r));
	must(wait_wc(&p.a).status != IBV_WC_SUCCESS);
	close_pair(&p);
}

static void nobody_there_is_an_error_after_a_finite_time(void)
{
	struct pair p;
	struct request r;
	double t0, budget = (1 + RETRIES) * 4.096e-6 * (1 << TIMEOUT);

	open_usual(&p);
	r = read_of(&p, 0, 4096);
	must(!ibv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	t0 = now();
	expect_status(&p, &r, IBV_WC_RETRY_EXC_ERR);
	must(now() - t0 > budget / 2 && now() - t0 < 10 * budget);
	close_pair(&p);
}

static void nothing_lands_when_the_queue_pair_is_gone(void)
{
	struct pair p;

	open_usual(&p);
	for (uint32_t i = 0; i < 8; i++) {
		struct request r = read_of(&p, i * 131072, 131072);

		must(!post(&p, &r));
	}
	must(!ibv_destroy_qp(p.a.qp));
	p.a.qp = NULL;
	memset(p.a.buf, 0xee, BYTES);
	for (int i = 0; i < 2000; i++) /* 0.1 s and more: as long as all of it takes */
		nap();
	must(p.a.buf[0] == 0xee && !memcmp(p.a.buf, p.a.buf + 1, BYTES - 1));
	close_pair(&p);
}

static void nothing_lands_in_a_queue_pair_in_error(void)
{
	struct pair p;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	uint32_t told = 0;

	open_usual(&p);
	for (uint32_t i = 0; i < 8; i++) {
		struct request r = read_of(&p, i * 131072, 131072);

		must(!post(&p, &r));
	}
	must(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE));
	for (; told < 8 && !is_failing; told++)
		wait_wc(&p.a); /* success or flushed, but each is told */
	memset(p.a.buf, 0xee, BYTES);
	for (int i = 0; i < 2000; i++)
		nap();
	must(p.a.buf[0] == 0xee && !memcmp(p.a.buf, p.a.buf + 1, BYTES - 1));
	close_pair(&p);
}

static void nothing_is_posted_before_it_is_connected(void)
{
	struct pair p;
	struct request r;

	open_side(&p.a, 0, IBV_ACCESS_LOCAL_WRITE);
	open_side(&p.b, 1, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	must(post(&p, &r));
	must(!to_init(&p.a, 0));
	must(post(&p, &r));
	close_pair(&p);
}

static void an_armed_queue_wakes_who_sleeps(void)
{
	struct pair p;
	struct request r;
	struct pollfd f;
	struct ibv_cq *cq;
	void *user;

	open_usual(&p);
	must(!ibv_req_notify_cq(p.a.cq, 0));
	r = read_of(&p, 0, 4096);
	must(!post(&p, &r));
	f = (struct pollfd){.fd = p.a.channel->fd, .events = POLLIN};
	must(poll(&f, 1, (int)(PATIENCE_S * 1000)) == 1);
	must(!ibv_get_cq_event(p.a.channel, &cq, &user) && cq == p.a.cq);
	ibv_ack_cq_events(cq, 1);
	must(wait_wc(&p.a).status == IBV_WC_SUCCESS);
	close_pair(&p);
}

static void what_is_used_is_not_let_go(void)
{
	struct pair p;

	open_usual(&p);
	must(ibv_dealloc_pd(p.a.pd) == EBUSY);
	must(ibv_destroy_cq(p.a.cq) == EBUSY);
	close_pair(&p);
}

/* ---- memory windows -----------------------------------------------------------------------------
 */

static bool has_windows(void)
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

/* ---- main ---------------------------------------------------------------------------------------
 */

#define CASE(x)                                                                                    \
	{                                                                                          \
#x, x                                                                              \
	}
struct named {
	const char *name;
	void (*run)(void);
};
static const struct named cases[] = {CASE(a_read_brings_what_the_other_side_has),
	CASE(more_reads_than_may_be_under_way_are_taken_and_end_in_order),
	CASE(a_signalled_read_tells_of_those_before_it), CASE(an_error_flushes_what_comes_after_it),
	CASE(beyond_the_region_is_refused), CASE(a_region_without_the_right_is_not_read),
	CASE(who_may_read_may_not_write), CASE(a_region_of_another_domain_is_not_read),
	CASE(a_key_is_worth_nothing_on_a_queue_pair_of_another_domain),
	CASE(a_key_is_worth_nothing_when_its_region_is_gone),
	CASE(a_landing_must_be_writable_and_registered),
	CASE(nobody_there_is_an_error_after_a_finite_time),
	CASE(nothing_lands_when_the_queue_pair_is_gone),
	CASE(nothing_lands_in_a_queue_pair_in_error),
	CASE(nothing_is_posted_before_it_is_connected), CASE(an_armed_queue_wakes_who_sleeps),
	CASE(what_is_used_is_not_let_go)};

/* Where devices have windows of type 2B. */
static const struct named window_cases[] = {CASE(a_window_is_read_by_its_queue_pair),
	CASE(a_window_is_not_read_by_another_queue_pair),
	CASE(a_window_is_not_read_in_another_domain),
	CASE(what_may_only_be_bound_to_is_not_read_by_its_own_key),
	CASE(a_window_to_read_is_not_written),
	CASE(a_window_s_key_is_worth_nothing_when_it_is_invalidated),
	CASE(a_window_s_key_is_worth_nothing_when_it_is_let_go),
	CASE(a_window_is_bound_to_regions_of_its_domain_that_may_be),
	CASE(a_region_is_not_let_go_while_windows_are_bound_to_it)};

static size_t run(const struct named *c, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		name = c[i].name;
		is_failing = false;
		c[i].run();
		failed += is_failing;
		if (!is_failing)
			printf("ok %s\n", name);
	}
	return n;
}

int main(int argc, char **argv)
{
	size_t n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3) {
		device[0] = argv[1];
		device[1] = argv[2];
	}
	n = run(cases, sizeof(cases) / sizeof(cases[0]));
	if (has_windows())
		n += run(window_cases, sizeof(window_cases) / sizeof(window_cases[0]));
	else
		printf("no memory windows of type 2B\n");
	printf("%zu passed, %d failed\n", n - (size_t)failed, failed);
	return failed ? 1 : 0;
}
