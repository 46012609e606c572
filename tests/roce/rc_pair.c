/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/roce/rc_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const char *name, *device[2];
static bool has_failed;

/* ---- cases --------------------------------------------------------------------------------------
 */

void on_devices(const char *a, const char *b)
{
	device[0] = a;
	device[1] = b;
}

void fail(const char *what, int line)
{
	if (!has_failed)
		printf("FAILED %s: line %d: %s\n", name, line, what);
	has_failed = true;
}

bool is_failing(void)
{
	return has_failed;
}

size_t run_cases(const struct rc_case *c, size_t n)
{
	size_t failed = 0;

	for (size_t i = 0; i < n; i++) {
		name = c[i].name;
		has_failed = false;
		c[i].run();
		failed += has_failed;
		if (!has_failed)
			printf("ok %s\n", name);
	}
	return failed;
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void nap(void)
{
	nanosleep(&(struct timespec){0, 50000}, NULL);
}

/* ---- two sides ----------------------------------------------------------------------------------
 */

struct ibv_context *open_device(int which)
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

struct ibv_qp *make_qp(struct side *s, uint32_t wrs)
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

void open_side(struct side *s, int which, int rights)
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

int to_init(struct side *s, unsigned rights)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};

	return ibv_modify_qp(
		s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(struct side *s, const struct side *peer)
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

int to_rts(struct side *s)
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

void open_pair(struct pair *p, int a_rights, int b_rights, unsigned b_qp_rights)
{
	open_side(&p->a, 0, a_rights);
	open_side(&p->b, 1, b_rights);
	must(!to_init(&p->a, 0) && !to_init(&p->b, b_qp_rights));
	must(!to_rtr(&p->a, &p->b) && !to_rtr(&p->b, &p->a));
	must(!to_rts(&p->a)); /* and b is not: who only answers need not be able to ask */
}

void open_usual(struct pair *p)
{
	open_pair(p, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
}

void close_side(struct side *s)
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

void close_pair(struct pair *p)
{
	close_side(&p->a);
	close_side(&p->b);
}

/* ---- requests -----------------------------------------------------------------------------------
 */

struct request read_of(struct pair *p, uint32_t off, uint32_t bytes)
{
	return (struct request){.local = (uintptr_t)p->a.buf + off,
		.remote = (uintptr_t)p->b.buf + off,
		.bytes = bytes,
		.lkey = p->a.mr->lkey,
		.rkey = p->b.mr->rkey,
		.opcode = IBV_WR_RDMA_READ};
}

int post(struct pair *p, const struct request *r)
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

struct ibv_wc wait_wc(struct side *s)
{
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR, .wr_id = UINT64_MAX};

	for (double end = now() + PATIENCE_S; now() < end; nap())
		if (ibv_poll_cq(s->cq, 1, &wc))
			return wc;
	fail("no completion came", __LINE__);
	return wc;
}

void expect_status(struct pair *p, const struct request *r, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	must(!post(p, r));
	wc = wait_wc(&p->a);
	if (wc.status != status) {
		printf("  %s, not %s\n", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
		fail("another status was expected", __LINE__);
	}
}
