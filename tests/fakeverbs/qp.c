/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: their life, their states, and what may be posted in each. */
#include "tests/fakeverbs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct fv_qp *qp_of(struct ibv_qp *q)
{
	return (struct fv_qp *)q;
}

static void link_qp(struct fv_qp *q)
{
	q->next = fv.qp;
	q->back = &fv.qp;
	if (fv.qp)
		fv.qp->back = &q->next;
	fv.qp = q;
}

static void unlink_qp(struct fv_qp *q)
{
	*q->back = q->next;
	if (q->next)
		q->next->back = q->back;
}

void fv_qp_last(struct fv_qp *q)
{
	struct fv_qp **at = &fv.qp;

	unlink_qp(q);
	while (*at)
		at = &(*at)->next;
	*at = q;
	q->back = at;
	q->next = NULL;
}

/* Numbers are not used again soon. */
static int64_t free_number(void)
{
	for (uint32_t i = 0; i < FV_QPS; i++) {
		uint32_t n = 1 + (fv.w->next_qp + i) % (FV_QPS - 1);

		if (fv.w->qp[n].is_used)
			continue;
		fv.w->next_qp = n;
		return n;
	}
	return -1;
}

FV_API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fv_context *c = (struct fv_context *)pd->context;
	struct fv_qp *q;
	int64_t n;

	if (fv_fails("ibv_create_qp"))
		return NULL;
	if (init->qp_type != IBV_QPT_RC || init->srq || init->cap.max_send_wr > FV_WR_MAX ||
		init->cap.max_recv_wr > FV_WR_MAX || init->cap.max_send_sge > FV_SGE) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	q->init = *init;
	q->sq = calloc(init->cap.max_send_wr + 1, sizeof(*q->sq));
	q->rq = calloc(init->cap.max_recv_wr + 1, sizeof(*q->rq));
	q->ctx = c;
	fv_lock();
	n = c->dev->is_removed ? -1 : free_number();
	if (n < 0) {
		fv_unlock();
		free(q->sq);
		free(q->rq);
		free(q);
		errno = EIO;
		return NULL;
	}
	q->w = &fv.w->qp[n];
	*q->w = (struct fv_wqp){.is_used = true,
		.pid = getpid(),
		.device = c->dev->index,
		.pd = ((struct fv_pd *)pd)->number};
	q->is_all_signalled = init->sq_sig_all;
	q->q = (struct ibv_qp){.context = pd->context,
		.qp_context = init->qp_context,
		.pd = pd,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.qp_num = (uint32_t)n,
		.qp_type = init->qp_type};
	((struct fv_pd *)pd)->users++;
	((struct fv_cq *)init->send_cq)->users++;
	((struct fv_cq *)init->recv_cq)->users++;
	c->users++;
	fv.n.qps++;
	link_qp(q);
	fv_unlock();
	return &q->q;
}

/* No bytes of it move: it reads nothing, and nobody reads or writes by it. */
static void still(struct fv_qp *q)
{
	for (int i = 0; q->is_moving || (q->w->busy && i < 2000); i++) {
		fv_unlock();
		nanosleep(&(struct timespec){0, 200000}, NULL);
		fv_lock();
	}
}

FV_API int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct fv_qp *q = qp_of(qp);

	fv_lock();
	if (q->w->windows) { /* rxe waits for them for a while, and then says something like it */
		fv_unlock();
		return EBUSY;
	}
	q->w->state = IBV_QPS_ERR;
	q->sq_n = q->rq_n = 0;
	still(q);
	unlink_qp(q);
	q->w->is_used = false;
	((struct fv_pd *)qp->pd)->users--;
	((struct fv_cq *)qp->send_cq)->users--;
	((struct fv_cq *)qp->recv_cq)->users--;
	q->ctx->users--;
	fv.n.qps--;
	fv_unlock();
	free(q->sq);
	free(q->rq);
	free(q);
	return 0;
}

/* ---- states -------------------------------------------------------------------------------------
 */

#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR                                                                                     \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                                     \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
		IBV_QP_MAX_QP_RD_ATOMIC)

static const struct {
	enum ibv_qp_state from, to;
	int needs;
} step[] = {{IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT}, {IBV_QPS_INIT, IBV_QPS_INIT, IBV_QP_STATE},
	{IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR}, {IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS},
	{IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_STATE}};

static bool may_step(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++)
		if (step[i].from == from && step[i].to == to)
			return (mask & step[i].needs) == step[i].needs;
	return false;
}

static void note(uint8_t least_most[2], uint8_t x)
{
	least_most[0] = x < least_most[0] ? x : least_most[0];
	least_most[1] = x > least_most[1] ? x : least_most[1];
}

#define GID_DEVICE 14 /* the byte of a GID that says which device it is of */

static int take(struct fv_qp *q, const struct ibv_qp_attr *a, int mask)
{
	int most = fv.rd_atomic ? fv.rd_atomic : 16;

	if (mask & IBV_QP_PORT && (a->port_num < 1 || a->port_num > q->ctx->dev->n_port))
		return EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > most)
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > most)
		return EINVAL;
	if (mask & IBV_QP_AV && (!a->ah_attr.is_global || a->ah_attr.grh.sgid_index > 1))
		return EINVAL;
	if (mask & IBV_QP_AV && fv.is_apart &&
		a->ah_attr.grh.dgid.raw[GID_DEVICE] != q->ctx->dev->index)
		return ETIMEDOUT;
	if (mask & IBV_QP_PORT)
		q->w->port = a->port_num;
	if (mask & IBV_QP_ACCESS_FLAGS)
		q->w->access = a->qp_access_flags;
	if (mask & IBV_QP_ACCESS_FLAGS)
		fv.n.qp_rights |= (uint32_t)a->qp_access_flags;
	if (mask & IBV_QP_PATH_MTU)
		note(fv.n.path_mtu, (uint8_t)a->path_mtu);
	if (mask & IBV_QP_DEST_QPN)
		q->w->dest_qpn = a->dest_qp_num;
	if (mask & IBV_QP_AV) {
		q->w->dest = a->ah_attr.grh.dgid;
		note(fv.n.traffic_class, a->ah_attr.grh.traffic_class);
		note(fv.n.service_level, a->ah_attr.sl);
	}
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		q->w->dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		q->attr.max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_TIMEOUT)
		q->attr.timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		q->attr.retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		q->attr.rnr_retry = a->rnr_retry;
	return 0;
}

FV_API int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct fv_qp *q = qp_of(qp);
	int rc;

	if (fv_fails("ibv_modify_qp"))
		return errno;
	fv_lock();
	if (q->ctx->dev->is_removed)
		rc = EIO;
	else if (!(mask & IBV_QP_STATE) || !may_step(q->w->state, a->qp_state, mask))
		rc = EINVAL;
	else
		rc = take(q, a, mask);
	if (!rc && a->qp_state == IBV_QPS_ERR) {
		q->w->state = IBV_QPS_ERR;
		still(q);
		fv_qp_error(q);
	} else if (!rc) {
		if (a->qp_state == IBV_QPS_RESET)
			q->sq_n = q->rq_n = 0;
		fv.n.both_ways += a->qp_state == IBV_QPS_RTS && q->w->access;
		q->w->state = qp->state = a->qp_state;
	}
	pthread_cond_broadcast(&fv.work);
	fv_unlock();
	return rc;
}

FV_API int ibv_query_qp(
	struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct fv_qp *q = qp_of(qp);

	(void)mask;
	fv_lock();
	*a = q->attr;
	a->qp_state = a->cur_qp_state = q->w->state;
	a->dest_qp_num = q->w->dest_qpn;
	a->port_num = (uint8_t)q->w->port;
	a->qp_access_flags = q->w->access;
	a->cap = q->init.cap;
	*init = q->init;
	fv_unlock();
	return 0;
}

static void flush(struct fv_qp *q, struct fv_cq *cq, struct fv_wqe *ring, uint32_t size,
	uint32_t *at, uint32_t *n)
{
	for (; *n; *at = (*at + 1) % size, --*n) {
		struct ibv_wc wc = {.wr_id = ring[*at].wr_id,
			.status = IBV_WC_WR_FLUSH_ERR,
			.qp_num = q->q.qp_num};

		fv_complete(cq, &wc);
	}
}

void fv_qp_error(struct fv_qp *q)
{
	q->w->state = q->q.state = IBV_QPS_ERR;
	flush(q, (struct fv_cq *)q->q.send_cq, q->sq, q->init.cap.max_send_wr + 1, &q->sq_at,
		&q->sq_n);
	flush(q, (struct fv_cq *)q->q.recv_cq, q->rq, q->init.cap.max_recv_wr + 1, &q->rq_at,
		&q->rq_n);
}

/* ---- posting ------------------------------------------------------------------------------------
 */

static void take_bind(struct fv_wqe *e, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;

	e->window = wr->bind_mw.mw->rkey;
	e->rkey = wr->bind_mw.rkey;
	e->lkey = b->mr ? b->mr->lkey : 0;
	e->remote = b->addr;
	e->length = b->length;
	e->access = b->mw_access_flags;
}

static int take_wr(struct fv_qp *q, const struct ibv_send_wr *wr)
{
	uint32_t size = q->init.cap.max_send_wr + 1;
	struct fv_wqe *e = &q->sq[(q->sq_at + q->sq_n) % size];

	if (q->w->state < IBV_QPS_RTS || wr->num_sge < 0 ||
		(uint32_t)wr->num_sge > q->init.cap.max_send_sge)
		return EINVAL;
	if (q->sq_n == q->init.cap.max_send_wr)
		return ENOMEM;
	*e = (struct fv_wqe){.wr_id = wr->wr_id,
		.opcode = wr->opcode,
		.flags = wr->send_flags,
		.remote = wr->wr.rdma.remote_addr,
		.rkey = wr->wr.rdma.rkey,
		.imm = wr->imm_data,
		.n_sge = (uint32_t)wr->num_sge};
	if (e->n_sge)
		memcpy(e->sge, wr->sg_list, e->n_sge * sizeof(e->sge[0]));
	if (wr->opcode == IBV_WR_BIND_MW)
		take_bind(e, wr);
	if (wr->opcode == IBV_WR_LOCAL_INV)
		e->rkey = wr->invalidate_rkey;
	q->sq_n++;
	fv.n.posted++;
	return 0;
}

int fv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fv_qp *q = qp_of(qp);
	int rc = 0;

	if (fv_fails("ibv_post_send")) {
		*bad = wr;
		return errno;
	}
	fv_lock();
	fv.n.doorbells++;
	for (; wr && !rc; wr = rc ? wr : wr->next)
		if ((rc = take_wr(q, wr)))
			*bad = wr;
	if (q->w->state == IBV_QPS_ERR)
		fv_qp_error(q);
	pthread_cond_broadcast(&fv.work);
	fv_unlock();
	return rc;
}

int fv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fv_qp *q = qp_of(qp);
	uint32_t size = q->init.cap.max_recv_wr + 1;
	int rc = 0;

	fv_lock();
	for (; wr && !rc; wr = rc ? wr : wr->next) {
		struct fv_wqe *e = &q->rq[(q->rq_at + q->rq_n) % size];

		if (q->w->state == IBV_QPS_RESET)
			rc = EINVAL;
		else if (q->rq_n == q->init.cap.max_recv_wr)
			rc = ENOMEM;
		if (rc) {
			*bad = wr;
			continue;
		}
		*e = (struct fv_wqe){.wr_id = wr->wr_id, .n_sge = (uint32_t)wr->num_sge};
		memcpy(e->sge, wr->sg_list, e->n_sge * sizeof(e->sge[0]));
		q->rq_n++;
	}
	if (q->w->state == IBV_QPS_ERR)
		fv_qp_error(q);
	pthread_cond_broadcast(&fv.work);
	fv_unlock();
	return rc;
}
