/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between agents.  A worker's rail sends and takes at its rate; chunks take turns by pieces,
 * and a chunk waits while as many of its pieces as the parameters allow are on their way.  A piece
 * is passed on while it comes in (cut-through), so that an idle path costs its latency once.  Each
 * worker has another such path, through memory, for agents of the same node.
 */
#include "predict/internal.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

static struct model_agent *agent_of(struct wb_xport *x)
{
	return wb_container_of(x, struct model_agent, x);
}

/* Most events of an op at one time: its pieces, and one for each end. */
static size_t n_event(const struct model *m)
{
	return (size_t)m->in.params.pieces + 2;
}

static struct op *op_new(struct model *m)
{
	struct op *op;

	if (wb__predict_reserve(m, n_event(m)) < 0) {
		wb__predict_fail(m, -ENOMEM);
		return NULL;
	}
	op = wb_zalloc(1, sizeof(*op));
	if (!op) {
		wb__predict_unreserve(m, n_event(m));
		wb__predict_fail(m, -ENOMEM);
		return NULL;
	}
	op->refs = 2;
	op->next = m->ops;
	if (op->next)
		op->next->prev = op;
	return m->ops = op;
}

void wb__predict_op_put(struct model *m, struct op *op)
{
	if (--op->refs)
		return;
	if (op->next)
		op->next->prev = op->prev;
	*(op->prev ? &op->prev->next : &m->ops) = op->next;
	wb__predict_unreserve(m, n_event(m));
	wb_free(op);
}

wb_conn_t wb__predict_conn(const struct model *m, uint32_t dst, uint32_t src)
{
	_Static_assert((uint64_t)WB_WORKERS_MAX * WB_WORKERS_MAX < UINT32_MAX, "numbers of ways");
	return dst * m->in.plan->n_worker + src + 1;
}

static double latency(const struct model *m)
{
	return wb__predict_us(m->in.params.latency_us);
}

/* Does the connection go through memory that the two agents share? */
static bool is_within_node(const struct wb_plan *p, wb_conn_t conn)
{
	return p->worker[(conn - 1) / p->n_worker].node == p->worker[(conn - 1) % p->n_worker].node;
}

/* ---- what a flow asks for ---- */

static int grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g)
{
	struct model_agent *a = agent_of(x);
	const struct wb_plan *p = a->m->in.plan;
	struct op *op = op_new(a->m);

	if (!op)
		return -ENOMEM;
	op->cookie = g->cookie;
	op->chunk = g->chunk;
	op->conn = conn;
	op->into = (conn - 1) / p->n_worker;
	op->out = (conn - 1) % p->n_worker;
	op->reader = a->domain;
	op->source = p->worker[op->out].domain;
	if (is_within_node(p, conn)) {
		op->into += p->n_worker;
		op->out += p->n_worker;
	}
	wb__predict_at(a->m, a->m->now + latency(a->m), EV_GRANT, op->source, op);
	return 0;
}

/* Each cancel comes too late.  Nothing fails here, so this costs at most a grant in vain. */
static int cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie)
{
	(void)x, (void)conn, (void)cookie;
	return -EALREADY;
}

static int disconnect(struct wb_xport *x, wb_conn_t conn)
{
	(void)conn;
	wb__predict_fail(agent_of(x)->m, -ENOTCONN); /* only a bug of the flow gets here */
	return -ENOTCONN;
}

static int refuse(struct wb_xport *x, wb_conn_t conn, uint64_t number, int code)
{
	struct model *m = agent_of(x)->m;
	struct op *op = (struct op *)(uintptr_t)number;

	(void)conn;
	op->code = code;
	wb__predict_op_put(m, op);
	wb__predict_at(m, m->now + latency(m), EV_REFUSED, op->reader, op);
	return 0;
}

static void enqueue(struct model *m, uint32_t at, struct op *op)
{
	struct rail *r = &m->out[at];

	op->behind = NULL;
	op->is_queued = true;
	*(r->tail ? &r->tail->behind : &r->head) = op;
	r->tail = op;
	if (r->is_due)
		return;
	r->is_due = true;
	wb__predict_at(m, WB_MAX(r->free_s, m->now), EV_RAIL, at, NULL);
}

static int write_chunk(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w)
{
	struct model *m = agent_of(x)->m;
	struct op *op = (struct op *)(uintptr_t)w->grant;

	(void)conn;
	op->serve_cookie = w->cookie;
	if (w->trailer)
		w->trailer(w->ctx, op->trailer);
	op->left = op->coming = op->chunk.bytes;
	enqueue(m, op->out, op);
	return 0;
}

#define OPERATIONS                                                                                 \
	.name = "model", .scheme = "model:", .sockets_min = 1, .disconnect = disconnect,           \
	.grant = grant, .cancel = cancel, .write = write_chunk, .refuse = refuse

static const struct wb_xport_ops memory_ops = {OPERATIONS, .caps = WB_XPORT_CAP_LOCAL};
static struct wb_xport memory = {.ops = &memory_ops}; /* only its caps are read */

static struct wb_xport *carrier(struct wb_xport *x, wb_conn_t conn)
{
	return is_within_node(agent_of(x)->m->in.plan, conn) ? &memory : x;
}

const struct wb_xport_ops wb__predict_xport = {OPERATIONS, .carrier = carrier};

/* ---- the rails ---- */

/* @n bytes have left by path @at: count them if they are of a trainer. */
static void count_sent(struct model *m, uint32_t at, uint64_t n)
{
	uint32_t worker = at % m->in.plan->n_worker;
	uint64_t slots = (uint64_t)(m->in.params.trainer_mib * 1048576);

	if (m->in.plan->worker[worker].role != WB_ROLE_TRAINER)
		return;
	m->unsent[worker] -= n;
	if (m->unsent[worker] <= slots && m->early_s[worker] < 0)
		m->early_s[worker] = m->now;
	m->moved_s = WB_MAX(m->moved_s, m->out[at].free_s);
}

void wb__predict_rail(struct model *m, uint32_t at)
{
	const struct wb_predict_params *p = &m->in.params;
	struct rail *r = &m->out[at], *to;
	struct op *op = r->head;
	uint64_t n = WB_MIN(op->left, (uint64_t)(p->piece_kib * 1024));
	double there;

	r->is_due = false;
	r->head = op->behind;
	if (!r->head)
		r->tail = NULL;
	op->is_queued = false;
	r->busy_s += (double)n / r->bytes_per_s;
	r->free_s = m->now + (double)n / r->bytes_per_s;
	to = &m->into[op->into];
	to->busy_s += (double)n / to->bytes_per_s;
	there = r->free_s + latency(m);
	to->free_s = there = WB_MAX(there, to->free_s + (double)n / to->bytes_per_s);
	op->left -= n;
	op->flying++;
	count_sent(m, at, n);
	if (!op->left)
		wb__predict_at(m, r->free_s, EV_WRITTEN, op->source, op);
	else if (op->flying < (uint32_t)p->pieces)
		enqueue(m, at, op);
	wb__predict_at(m, there, EV_PIECE, at, op);
	if (r->head && !r->is_due) {
		r->is_due = true;
		wb__predict_at(m, r->free_s, EV_RAIL, at, NULL);
	}
}

void wb__predict_piece(struct model *m, struct op *op)
{
	uint64_t piece = (uint64_t)(m->in.params.piece_kib * 1024);

	op->flying--;
	piece = WB_MIN(op->coming, piece); /* all pieces but the last are full */
	op->coming -= piece;
	wb__predict_arrived(m,
		m->in.plan->worker[op->chunk.src].role == WB_ROLE_TRAINER ? WB_STAGE_RECEIVE
		: op->out < m->in.plan->n_worker                          ? WB_STAGE_EXTERNAL
									  : WB_STAGE_INTERNAL,
		op->chunk.src, op->chunk.dst, piece);
	if (!op->coming)
		wb__predict_at(m, m->now, EV_ARRIVED, op->reader, op);
	else if (op->left && !op->is_queued)
		enqueue(m, op->out, op);
}

static void count_unsent(struct model *m)
{
	const struct wb_plan *p = m->in.plan;
	uint64_t slots = (uint64_t)(m->in.params.trainer_mib * 1048576);

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (r->stage != WB_STAGE_RECEIVE ||
			p->worker[r->src].domain == p->worker[r->dst].domain)
			continue;
		for (uint32_t c = r->chunk_begin; c < r->chunk_end; c++)
			m->unsent[r->src] += wb_chunk_len(p, &p->cls[r->class_id], c);
	}
	for (uint32_t w = 0; w < p->n_worker; w++)
		m->early_s[w] = m->unsent[w] > slots ? -1 : m->in.params.prepare_ms * 1e-3;
}

int wb__predict_rails(struct model *m, struct wb_err *err)
{
	const struct wb_plan *p = m->in.plan;
	uint32_t n = p->n_worker;

	m->out = wb_zalloc(2 * (size_t)n, sizeof(*m->out));
	m->into = wb_zalloc(2 * (size_t)n, sizeof(*m->into));
	m->unsent = wb_zalloc(n, sizeof(*m->unsent));
	m->early_s = wb_zalloc(n, sizeof(*m->early_s));
	m->trainer_s = wb_zalloc(n, sizeof(*m->trainer_s));
	if (!m->out || !m->into || !m->unsent || !m->early_s || !m->trainer_s)
		return wb_err_set(err, -ENOMEM, "no memory for %u rails", n);
	for (uint32_t w = 0; w < n; w++) {
		if (!p->worker[w].rail_bytes_per_s)
			return wb_err_set(
				err, -EINVAL, "the rate of worker %u's rail is not known", w);
		m->out[w].bytes_per_s = m->into[w].bytes_per_s =
			(double)p->worker[w].rail_bytes_per_s * m->in.params.goodput;
		m->out[n + w].bytes_per_s = m->into[n + w].bytes_per_s =
			m->in.params.near_gbs * 1e9;
	}
	count_unsent(m);
	if (wb__predict_reserve(m, 2 * (size_t)n) < 0) /* an EV_RAIL of each path out */
		return wb_err_set(err, -ENOMEM, "no memory for events of %u rails", n);
	return 0;
}

void wb__predict_rails_finish(struct model *m)
{
	while (m->ops) {
		m->ops->refs = 1;
		wb__predict_op_put(m, m->ops);
	}
	wb_free(m->out);
	wb_free(m->into);
	wb_free(m->unsent);
	wb_free(m->early_s);
	wb_free(m->trainer_s);
}
