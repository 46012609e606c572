/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that carries out what was posted, one request of each queue pair after the other. */
#include "tests/fakeverbs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 5000000u /* what other processes did to ports is looked for so often */
#define RNR_NS 1000000u
#define LOST (-1) /* no answer comes */

/* ---- moving -------------------------------------------------------------------------------------
 */

/* By the system, which needs no mapping and knows no sanitizer; within a process where it may not,
 * by hand.  0, or -1: that process is gone. */
static int move(pid_t pid, uint64_t there, uint64_t here, size_t n, bool is_read)
{
	while (n) {
		struct iovec mine = {(void *)(uintptr_t)here, n};
		struct iovec theirs = {(void *)(uintptr_t)there, n};
		ssize_t k = is_read ? process_vm_readv(pid, &mine, 1, &theirs, 1, 0)
				    : process_vm_writev(pid, &mine, 1, &theirs, 1, 0);

		if (k <= 0 && pid == getpid() && errno != EFAULT) {
			memcpy(is_read ? mine.iov_base : theirs.iov_base,
				is_read ? theirs.iov_base : mine.iov_base, n);
			return 0;
		}
		if (k <= 0)
			return -1;
		here += (uint64_t)k;
		there += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

static uint64_t length_of(const struct fv_wqe *e)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < e->n_sge; i++)
		n += e->sge[i].length;
	return n;
}

/* Where the bytes of an address in a region are; without one it is not moved. */
static uint64_t place_of(const struct fv_wmr *m, uint64_t addr)
{
	return m ? m->at + (addr - m->addr) : addr;
}

/* Up to @left bytes between the ranges of @e and [there, ..) of @pid, without the lock. */
static int move_all(struct fv_qp *q, struct fv_wqp *peer, const struct fv_wqe *e, uint64_t there,
	uint64_t left, bool is_read)
{
	pid_t pid = peer->pid;
	uint64_t here[FV_SGE];
	int rc = 0;

	for (uint32_t i = 0; i < e->n_sge; i++)
		here[i] = place_of(
			fv_mr_find(e->sge[i].lkey, q->w->pd, e->sge[i].addr, e->sge[i].length, 0),
			e->sge[i].addr);
	q->is_moving = true;
	peer->busy++;
	fv_unlock();
	for (uint32_t i = 0; !rc && left && i < e->n_sge; i++) {
		uint64_t n = e->sge[i].length < left ? e->sge[i].length : left;

		rc = move(pid, there, here[i], n, is_read);
		there += n;
		left -= n;
	}
	fv_lock();
	q->is_moving = false;
	peer->busy--;
	return rc;
}

/* ---- the other side -----------------------------------------------------------------------------
 */

static bool is_up(int device, int port)
{
	return !fv.w->port[device][port - 1].is_down;
}

static bool has_gid(const struct fv_wqp *w, const union ibv_gid *gid)
{
	union ibv_gid g[2];

	fv_gid_of(w->device, w->port, 0, &g[0]);
	fv_gid_of(w->device, w->port, 1, &g[1]);
	return !memcmp(gid, &g[0], sizeof(*gid)) || !memcmp(gid, &g[1], sizeof(*gid));
}

/* The queue pair that answers; NULL: nobody does. */
static struct fv_wqp *answerer(struct fv_qp *q)
{
	struct fv_wqp *w = q->w->dest_qpn < FV_QPS ? &fv.w->qp[q->w->dest_qpn] : NULL;

	if (!w || !w->is_used || w->dest_qpn != q->q.qp_num || w->is_broken ||
		(w->state != IBV_QPS_RTR && w->state != IBV_QPS_RTS))
		return NULL;
	if (!is_up(q->w->device, q->w->port) || !is_up(w->device, w->port) ||
		!has_gid(w, &q->w->dest))
		return NULL;
	return w;
}

static struct fv_qp *local_of(const struct fv_wqp *w)
{
	for (struct fv_qp *q = fv.qp; q; q = q->next)
		if (q->w == w)
			return q;
	return NULL;
}

/* ---- one request --------------------------------------------------------------------------------
 */

static bool ranges_ok(struct fv_qp *q, const struct fv_wqe *e, uint32_t access)
{
	for (uint32_t i = 0; i < e->n_sge; i++)
		if (e->sge[i].length && !fv_mr_find(e->sge[i].lkey, q->w->pd, e->sge[i].addr,
						e->sge[i].length, access))
			return false;
	return true;
}

static int do_rdma(struct fv_qp *q, struct fv_wqe *e, struct fv_wqp *peer, uint64_t n)
{
	bool is_read = e->opcode == IBV_WR_RDMA_READ;
	uint32_t right = is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	struct fv_wmr *m = n ? fv_remote_find(e->rkey, peer, e->remote, n, right) : NULL;

	if (is_read && (!peer->dest_rd_atomic || !q->attr.max_rd_atomic))
		return IBV_WC_REM_INV_REQ_ERR;
	if (n && (!(peer->access & right) || !m)) {
		peer->is_broken = true;
		return IBV_WC_REM_ACCESS_ERR;
	}
	if (e->rule.status && e->rule.lands)
		n = (n + 1) / 2;
	fv.n.bytes += n;
	return n ? move_all(q, peer, e, place_of(m, e->remote), n, is_read) : 0;
}

/* A receive of the other side, in this process; NULL: none is posted. */
static struct fv_wqe *receive_of(struct fv_qp *to)
{
	return to && to->rq_n ? &to->rq[to->rq_at] : NULL;
}

static void received(struct fv_qp *to, const struct fv_wqe *e, uint64_t n, int status)
{
	struct ibv_wc wc = {.wr_id = to->rq[to->rq_at].wr_id,
		.status = (enum ibv_wc_status)status,
		.opcode = e->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM
								  : IBV_WC_RECV,
		.byte_len = (uint32_t)n,
		.imm_data = e->imm,
		.wc_flags = e->opcode == IBV_WR_SEND ? 0 : IBV_WC_WITH_IMM,
		.qp_num = to->q.qp_num};

	to->rq_at = (to->rq_at + 1) % (to->init.cap.max_recv_wr + 1);
	to->rq_n--;
	fv_complete((struct fv_cq *)to->q.recv_cq, &wc);
}

static int do_send(struct fv_wqe *e, struct fv_wqp *peer, uint64_t n)
{
	struct fv_qp *to = local_of(peer);
	struct fv_wqe *r = receive_of(to);

	if (!to)
		return LOST;
	if (n > length_of(r)) {
		peer->is_broken = true;
		received(to, e, 0, IBV_WC_LOC_LEN_ERR);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (!ranges_ok(to, r, IBV_ACCESS_LOCAL_WRITE)) {
		peer->is_broken = true;
		received(to, e, 0, IBV_WC_LOC_PROT_ERR);
		return IBV_WC_REM_OP_ERR;
	}
	for (uint32_t i = 0, k = 0, off = 0; i < e->n_sge; i++) {
		for (uint64_t done = 0; done < e->sge[i].length;) {
			uint64_t room = r->sge[k].length - off, some = e->sge[i].length - done;

			some = some < room ? some : room;
			memcpy((void *)(uintptr_t)(r->sge[k].addr + off),
				(void *)(uintptr_t)(e->sge[i].addr + done), some);
			done += some;
			off += (uint32_t)some;
			if (off == r->sge[k].length)
				k++, off = 0;
		}
	}
	fv.n.bytes += n;
	received(to, e, n, IBV_WC_SUCCESS);
	return 0;
}

static bool is_local(const struct fv_wqe *e)
{
	return e->opcode == IBV_WR_BIND_MW || e->opcode == IBV_WR_LOCAL_INV;
}

/* enum ibv_wc_status, or LOST. */
static int carry_out(struct fv_qp *q, struct fv_wqe *e, struct fv_wqp *peer)
{
	uint32_t access = e->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint64_t n = length_of(e);
	int rc;

	if (is_local(e))
		return e->opcode == IBV_WR_BIND_MW ? fv_bind(q, e) : fv_invalidate(q, e);
	if (n > (fv.max_msg ? fv.max_msg : 1u << 30))
		return IBV_WC_LOC_LEN_ERR;
	if (!ranges_ok(q, e, access))
		return IBV_WC_LOC_PROT_ERR;
	if (!peer)
		return LOST;
	switch (e->opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE:
		return do_rdma(q, e, peer, n);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		rc = do_rdma(q, e, peer, n);
		if (!rc && local_of(peer))
			received(local_of(peer), e, n, IBV_WC_SUCCESS);
		return rc;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return do_send(e, peer, n);
	default:
		return IBV_WC_LOC_QP_OP_ERR;
	}
}

static enum ibv_wc_opcode opcode_of(const struct fv_wqe *e)
{
	switch (e->opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

static void finish(struct fv_qp *q, int status)
{
	struct fv_wqe *e = &q->sq[q->sq_at];
	struct ibv_wc wc = {.wr_id = e->wr_id,
		.status = (enum ibv_wc_status)status,
		.opcode = opcode_of(e),
		.byte_len = e->opcode == IBV_WR_RDMA_READ ? (uint32_t)length_of(e) : 0,
		.qp_num = q->q.qp_num};
	bool is_told = status || e->flags & IBV_SEND_SIGNALED || q->is_all_signalled;

	q->sq_at = (q->sq_at + 1) % (q->init.cap.max_send_wr + 1);
	q->sq_n--;
	if (is_told)
		fv_complete((struct fv_cq *)q->q.send_cq, &wc);
	if (status)
		fv_qp_error(q);
}

static bool matches(const struct fakeverbs_rule *r, const struct fv_qp *q, const struct fv_wqe *e)
{
	return (r->device == FAKEVERBS_ANY || r->device == q->w->device) &&
	       (r->port == FAKEVERBS_ANY || r->port == q->w->port) &&
	       (r->opcode == (int)e->opcode || (r->opcode == FAKEVERBS_ANY && !is_local(e)));
}

static void count_reads(void)
{
	uint64_t all = 0;

	for (const struct fv_qp *q = fv.qp; q; q = q->next) {
		uint64_t reads = 0;

		for (uint32_t i = 0; i < q->sq_n; i++)
			reads += q->sq[(q->sq_at + i) % (q->init.cap.max_send_wr + 1)].opcode ==
				 IBV_WR_RDMA_READ;
		fv.n.in_flight_max = reads > fv.n.in_flight_max ? reads : fv.n.in_flight_max;
		all += reads;
	}
	fv.n.all_in_flight_max = all > fv.n.all_in_flight_max ? all : fv.n.all_in_flight_max;
}

static void begin(struct fv_qp *q, struct fv_wqe *e, uint64_t now)
{
	e->is_begun = true;
	e->began_ns = e->due_ns = now;
	count_reads();
	for (int i = 0; i < fv.n_rule; i++) {
		const struct fakeverbs_rule *r = &fv.rule[i];

		if (!matches(r, q, e) || (r->count && fv.hits[i] >= r->after + r->count))
			continue;
		if (fv.hits[i]++ < r->after)
			continue;
		e->rule = *r;
		e->due_ns = now + r->delay_ns;
		return;
	}
}

static uint64_t patience(const struct fv_qp *q)
{
	return q->attr.retry_cnt == 7 || !q->attr.timeout
		       ? UINT64_MAX / 2
		       : (uint64_t)(1 + q->attr.retry_cnt) * (4096ull << q->attr.timeout);
}

/* One step of its first request; when to look again. */
static uint64_t turn(struct fv_qp *q, uint64_t now)
{
	struct fv_wqe *e = &q->sq[q->sq_at];
	struct fv_wqp *peer;
	int rc;

	if (!e->is_begun)
		begin(q, e, now);
	if (e->rule.hangs)
		return UINT64_MAX;
	if (now < e->due_ns)
		return e->due_ns;
	peer = answerer(q);
	if (peer && !is_local(e) && e->opcode != IBV_WR_RDMA_READ &&
		e->opcode != IBV_WR_RDMA_WRITE && local_of(peer) && !receive_of(local_of(peer)) &&
		!e->rule.status) {
		if (q->attr.rnr_retry != 7 && e->rnr++ > q->attr.rnr_retry) {
			finish(q, IBV_WC_RNR_RETRY_EXC_ERR);
			return now;
		}
		return e->due_ns = now + RNR_NS;
	}
	rc = e->rule.status && !e->rule.lands ? 0 : carry_out(q, e, peer);
	if (q->w->state != IBV_QPS_RTS || !q->sq_n)
		return now; /* meanwhile */
	e->is_moved = true;
	if (rc == LOST) {
		if (now - e->began_ns < patience(q))
			return now + TICK_NS;
		rc = IBV_WC_RETRY_EXC_ERR;
	}
	finish(q, e->rule.status ? e->rule.status : rc);
	return now;
}

/* ---- the thread ---------------------------------------------------------------------------------
 */

void fv_tell_ports(struct fv_device *d)
{
	for (int p = 0; p < d->n_port; p++) {
		struct fv_wport *w = &fv.w->port[d->index][p];
		bool is_new = d->seen[p] != w->changes, is_gid = d->seen_gid[p] != w->gid_changes;

		d->seen[p] = w->changes;
		d->seen_gid[p] = w->gid_changes;
		for (struct fv_context *c = d->first; c; c = c->next) {
			if (is_new)
				fv_raise(c, w->is_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE,
					NULL, p + 1);
			if (is_gid)
				fv_raise(c, IBV_EVENT_GID_CHANGE, NULL, p + 1);
		}
	}
}

/* What the other side has broken ends in error here, with its event. */
static bool end_broken(void)
{
	for (struct fv_qp *q = fv.qp; q; q = q->next) {
		if (!q->w->is_broken || q->w->state == IBV_QPS_ERR)
			continue;
		fv_raise(q->ctx, IBV_EVENT_QP_ACCESS_ERR, &q->q, 0);
		fv_qp_error(q);
		return true;
	}
	return false;
}

/* Who had a turn goes to the end.  A turn lets the lock go, so the list may have changed: from the
 * beginning. */
static uint64_t run_all(uint64_t now)
{
	uint64_t next = now + TICK_NS, at;

	for (struct fv_qp *q = fv.qp; q; q = q->next) {
		if (q->w->state != IBV_QPS_RTS || !q->sq_n)
			continue;
		at = turn(q, now);
		next = at < next ? at : next;
		if (at > now)
			continue;
		fv_qp_last(q);
		return now;
	}
	return next;
}

static void *engine(void *arg)
{
	(void)arg;
	fv_lock();
	for (;;) {
		uint64_t now = fv_now(), next;
		struct timespec ts;

		for (int d = 0; d < fv.n_dev; d++)
			fv_tell_ports(&fv.dev[d]);
		while (end_broken())
			;
		next = run_all(now);
		if (next <= now)
			continue;
		ts = (struct timespec){(time_t)(next / 1000000000), (long)(next % 1000000000)};
		if (pthread_cond_timedwait(&fv.work, &fv.w->lock, &ts) == EOWNERDEAD)
			pthread_mutex_consistent(&fv.w->lock);
	}
	return NULL;
}

void fv_engine_start(void)
{
	pthread_t t;

	if (fv.has_engine)
		return;
	fv.has_engine = true;
	if (pthread_create(&t, NULL, engine, NULL))
		abort();
	pthread_detach(t);
}
