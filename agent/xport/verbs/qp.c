/* SPDX-License-Identifier: Apache-2.0 */
/* One queue pair: made, connected, posted to and destroyed. */
#include "xport/verbs/verbs.h"

#include "net/psk.h"

#include <errno.h>
#include <string.h>

#define HOP_LIMIT 64
#define RNR_TIMER 12 /* nothing is received here, but libibverbs wants a value */

static struct wb__verbs_rail *rail_of(const struct wb__lane *l)
{
	return wb__verbs_rail(l->s->rail);
}

/* ---- its number ---------------------------------------------------------------------------------
 */

static bool give_number(struct wb__lane *l, uint32_t k)
{
	struct wb__verbs_rail *vr = rail_of(l);

	for (uint32_t i = 0; i < WB__RAIL_QPS; i++) {
		uint32_t n = (vr->qp_hint + i) % WB__RAIL_QPS;

		if (vr->qp[n].lane)
			continue;
		vr->qp[n].lane = l;
		vr->qp[n].k = k;
		vr->qp_hint = n + 1;
		l->qp[k].number = n;
		l->qp[k].has_number = true;
		return true;
	}
	return false;
}

/* Completions of the queue pair that still come are ignored from now on. */
static void take_number(struct wb__lane *l, uint32_t k)
{
	struct wb__rail_qp *q = &rail_of(l)->qp[l->qp[k].number];

	if (!l->qp[k].has_number)
		return;
	assert(q->lane == l);
	l->qp[k].has_number = false;
	q->lane = NULL;
	q->gen++;
}

/* ---- states -------------------------------------------------------------------------------------
 */

static int to_init(struct wb__lane *l, struct wb__qp *q, bool is_reader)
{
	const struct wb__ibv *ibv = rail_of(l)->h->ibv;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = rail_of(l)->h->port[q->port].num,
		.qp_access_flags = is_reader ? 0 : IBV_ACCESS_REMOTE_READ};

	return ibv->modify_qp(
		q->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int wb__qp_make(struct wb__lane *l, uint32_t k, uint32_t port, bool is_reader)
{
	struct wb__verbs_rail *vr = rail_of(l);
	struct wb__qp *q = &l->qp[k];
	uint32_t d = vr->h->port[port].device;
	bool binds = !is_reader && vr->h->device[d].has_windows;
	struct ibv_qp_init_attr init = {.send_cq = vr->cq[d],
		.recv_cq = vr->cq[d],
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = is_reader ? WB__READS_MAX
				       : binds   ? WB__BINDS_MAX
						 : 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	struct ibv_pd *pd;

	assert(q->state == WB__QP_NONE || q->state == WB__QP_DEAD);
	errno = 0; /* these may fail without saying why, as when a table is full */
	pd = wb__host_pd(vr->h, d, l->s->hello.object);
	if (!pd || (is_reader && !wb__verbs_bounce(vr, l->s->hello.object, d)))
		return errno ? -errno : -ENOMEM;
	memset(q, 0, sizeof(*q));
	q->tail = &q->head;
	q->port = port;
	q->device = d;
	q->at = wb__host_at(vr->h, port);
	q->state = WB__QP_DEAD;
	if (wb_random_bytes(&q->psn, sizeof(q->psn)))
		return -EIO;
	q->psn &= 0xffffff;
	errno = 0;
	q->qp = vr->h->ibv->create_qp(pd, &init);
	if (!q->qp)
		return errno ? -errno : -EIO;
	if (to_init(l, q, is_reader) || ((is_reader || binds) && !give_number(l, k))) {
		vr->h->ibv->destroy_qp(q->qp);
		q->qp = NULL;
		return -EIO;
	}
	q->state = WB__QP_MADE;
	return 0;
}

/* How many READs at once this device answers (source) or has out (dialer). */
static uint8_t reads_of(const struct wb__lane *l, const struct wb__qp *q)
{
	const struct ibv_device_attr *a = &rail_of(l)->h->device[q->device].attr;
	int n = l->s->is_dialer ? a->max_qp_init_rd_atom : a->max_qp_rd_atom;

	return (uint8_t)WB_MAX(1, WB_MIN(n, WB__READS_MAX));
}

static int to_rtr(struct wb__lane *l, struct wb__qp *q, const struct wb__qp_frame *peer)
{
	const struct wb_xport_opts *o = &l->s->rail->x->o;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)WB_MIN(q->at.mtu, peer->mtu),
		.dest_qp_num = peer->number,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = l->s->is_dialer ? 1 : reads_of(l, q),
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {.dlid = peer->lid,
			.sl = o->service_level,
			.port_num = rail_of(l)->h->port[q->port].num}};

	if (q->at.gid_index >= 0) {
		a.ah_attr.is_global = 1;
		memcpy(a.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
		a.ah_attr.grh.sgid_index = (uint8_t)q->at.gid_index;
		a.ah_attr.grh.hop_limit = HOP_LIMIT;
		a.ah_attr.grh.traffic_class = o->traffic_class;
	}
	return rail_of(l)->h->ibv->modify_qp(q->qp, &a,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct wb__lane *l, struct wb__qp *q)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
		.timeout = WB__QP_TIMEOUT,
		.retry_cnt = WB__QP_RETRIES,
		.rnr_retry = WB__QP_RETRIES,
		.sq_psn = q->psn,
		.max_rd_atomic = (uint8_t)(l->s->is_dialer ? q->full_depth : 0)};

	return rail_of(l)->h->ibv->modify_qp(q->qp, &a,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int wb__qp_connect(struct wb__lane *l, uint32_t k, const struct wb__frame *f)
{
	struct wb__qp *q = &l->qp[k];
	int rc;

	assert(q->state == WB__QP_MADE && f->qp.k == k);
	if (f->qp.has_gid != (q->at.gid_index >= 0))
		return -EPROTONOSUPPORT; /* one side is Ethernet, the other InfiniBand */
	q->full_depth = WB_MIN(reads_of(l, q), f->qp.reads);
	q->depth = l->again_at[k].n_lost ? 1 : q->full_depth;
	q->max_msg = WB_MAX(q->at.max_msg, 4096u);
	rc = to_rtr(l, q, &f->qp);
	if (rc)
		return -rc;
	/* A queue pair that is only read from stays in RTR, where it cannot send requests.  To bind
	 * windows it has to be in RTS; it may still have no READ out, and the other side grants it
	 * nothing. */
	if ((l->s->is_dialer || q->has_number) && to_rts(l, q))
		return -EIO;
	q->state = WB__QP_UP;
	return 0;
}

struct wb__frame wb__qp_frame(const struct wb__lane *l, uint32_t k)
{
	const struct wb__qp *q = &l->qp[k];
	struct wb__frame f = {.type = WBP_BULK_QP, .qp = {.k = (uint16_t)k}};

	if (q->state != WB__QP_MADE && q->state != WB__QP_UP)
		return f;
	f.qp.number = q->qp->qp_num;
	f.qp.psn = q->psn;
	f.qp.lid = q->at.lid;
	f.qp.mtu = q->at.mtu;
	f.qp.reads = reads_of(l, q);
	f.qp.has_gid = q->at.gid_index >= 0;
	memcpy(f.qp.gid, q->at.gid.raw, sizeof(f.qp.gid));
	return f;
}

struct wb__part *wb__qp_kill(struct wb__lane *l, uint32_t k)
{
	struct wb__qp *q = &l->qp[k];
	struct wb__part *list = q->head;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

	if (!q->qp)
		return NULL;
	assert(rail_of(l)->n_out[q->device] >= q->n_out && (q->has_number || !q->n_out));
	if (l->window && q->has_number) {
		/* In error the queue pair does not answer a peer that still reads; otherwise the
		 * peer would be told that its key is bad. */
		(void)rail_of(l)->h->ibv->modify_qp(q->qp, &error, IBV_QP_STATE);
		wb__window_close(l, k);
	}
	rail_of(l)->h->ibv->destroy_qp(q->qp);
	q->qp = NULL;
	q->state = WB__QP_DEAD;
	rail_of(l)->n_out[q->device] -= q->n_out;
	take_number(l, k);
	q->head = NULL;
	q->tail = &q->head;
	q->n_out = q->n_chain = 0;
	q->bytes_out = 0;
	return list;
}

/* ---- READs --------------------------------------------------------------------------------------
 */

void wb__qp_add(struct wb__lane *l, uint32_t k, struct wb__part *p, uint32_t lkey)
{
	struct wb__qp *q = &l->qp[k];
	const struct wb__remote *m = &l->remote[p->region];
	uint32_t i = q->n_chain++;

	assert(q->n_out < q->depth && i < WB__READS_MAX);
	q->sge[i] = (struct ibv_sge){.addr = (uintptr_t)p->to, .length = p->bytes, .lkey = lkey};
	p->seq = ++q->seq;
	q->wr[i] = (struct ibv_send_wr){.wr_id = q->number |
						 (uint64_t)rail_of(l)->qp[q->number].gen << 16 |
						 (uint64_t)p->seq << 32,
		.sg_list = &q->sge[i],
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = {.remote_addr = m->base + p->off, .rkey = m->key[k]}};
	p->posted_ns = l->s->rail->now_ns;
	p->next = NULL;
	*q->tail = p;
	q->tail = &p->next;
	q->n_out++;
	q->bytes_out += p->bytes;
	rail_of(l)->n_out[q->device]++;
}

int wb__qp_ring(struct wb__lane *l, uint32_t k)
{
	struct wb__qp *q = &l->qp[k];
	struct ibv_send_wr *bad;
	uint32_t n = q->n_chain;

	if (!n)
		return 0;
	for (uint32_t i = 0; i + 1 < n; i++)
		q->wr[i].next = &q->wr[i + 1];
	/* A queue pair completes READs in order, so one completion, of the last READ, is enough for
	 * all. */
	q->wr[n - 1].send_flags = IBV_SEND_SIGNALED;
	q->n_chain = 0;
	wb__count(&l->s->rail->requests, n);
	wb__count(&l->s->rail->doorbells, 1);
	return ibv_post_send(q->qp, q->wr, &bad);
}
