/* SPDX-License-Identifier: Apache-2.0 */
/* The bulk transport of the simulated net. */
#include "base/base.h"
#include "base/mem.h"
#include "xport/sim/sim_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEPTH 64
#define PIECE_SEEN (128u << 10)

static int sim_poll(struct wb_xport *base, struct wb_xport_event *ev, int max)
{
	struct wb__simx *x = wb__simx_of(base);
	int n = 0;

	wb__sim_told_free(x->old);
	x->old = NULL;
	if (x->is_dead)
		return 0;
	while (n < max && x->head) {
		struct wb__sim_told *t = x->head;

		x->head = t->next;
		if (!x->head)
			x->tail = &x->head;
		ev[n++] = t->ev;
		t->next = x->old;
		x->old = t;
	}
	return n;
}

static struct wb__sim_end *end_get(struct wb__simx *x, wb_conn_t conn)
{
	return x->is_dead || !conn || conn > x->next_conn ? NULL : x->by_conn[conn];
}

static int sum_iov(const struct iovec *iov, uint32_t n_iov, uint64_t bytes)
{
	uint64_t sum = 0;

	if (!n_iov || n_iov > WB_XPORT_IOV_MAX || !bytes || bytes > WB_XPORT_CHUNK_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n_iov; i++) {
		if (!iov[i].iov_base || !iov[i].iov_len || iov[i].iov_len > bytes - sum)
			return -EINVAL;
		sum += iov[i].iov_len;
	}
	return sum == bytes ? 0 : -EINVAL;
}

static int sim_connect(
	struct wb_xport *base, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb_xport_epoch *known;
	struct wb__sim_node *node;
	struct wb__sim_link *l;
	struct wb__sim_end *e;
	struct wb__sim_item *it;

	if (!wb__name_ok(p->name) || !p->endpoint || strncmp(p->endpoint, "sim:", 4) ||
		!wb__name_ok(p->endpoint + 4))
		return wb_err_set(err, -EINVAL, "endpoint '%.100s' is not like sim:NAME",
			p->endpoint ? p->endpoint : "");
	known = wb__sim_epoch_find(x, &p->epoch);
	if (!known)
		return wb_err_set(err, -ENOENT, "epoch %llu.%llu is not known here",
			(unsigned long long)p->epoch.term, (unsigned long long)p->epoch.number);
	if (x->n_end >= x->conns_max)
		return wb_err_set(err, -ENOSPC, "too many connections");
	node = wb__sim_node_get(x->net, p->endpoint + 4);
	l = wb_zalloc(1, sizeof(*l));
	if (!l || !node) {
		wb_free(l);
		return wb_err_set(err, -ENOMEM, "no memory to connect to agent %s", p->name);
	}
	l->epoch = *known;
	l->n_socket = x->sockets ? x->sockets : WB_MAX(x->node->n_rail, node->n_rail);
	l->depth = x->depth;
	e = wb__sim_end_create(x, l, 0, p->name);
	if (!e) {
		wb_free(l);
		return wb_err_set(err, -ENOMEM, "no memory to connect to agent %s", p->name);
	}
	e->info.user = p->user;
	l->node[1] = node;
	it = wb__sim_item_make(l, 1, WB__SIM_CONNECT, 0);
	snprintf(it->text, sizeof(it->text), "%s", p->name);
	snprintf(it->peer, sizeof(it->peer), "%s", x->name);
	*out = e->info.conn;
	wb__sim_item_send(x->net, it);
	return 0;
}

static int sim_grant(struct wb_xport *base, wb_conn_t conn, const struct wb_xport_grant *g)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_end *e = end_get(x, conn);
	struct wb__op *op;
	struct wb__sim_item *it;

	if (!e)
		return -ENOTCONN;
	if (e->side || !e->is_up || sum_iov(g->iov, g->n_iov, g->chunk.bytes))
		return -EINVAL;
	if (e->outstanding == e->link->depth)
		return -EAGAIN;
	for (op = e->op; op->state != WB__OP_FREE; op++)
		;
	*op = (struct wb__op){.cookie = g->cookie,
		.id = ++x->next_id,
		.bytes = g->chunk.bytes,
		.iov = g->iov,
		.n_iov = g->n_iov,
		.observe = g->observe,
		.copy = g->copy,
		.ctx = g->ctx,
		.state = WB__OP_OUT};
	e->outstanding++;
	wb__sim_counts(x->net)->deep += e->outstanding > 4;
	it = wb__sim_item_of(e->link, 1, WB__SIM_GRANT, op->id, 0);
	it->chunk = g->chunk;
	wb__sim_item_send(x->net, it);
	return 0;
}

static int sim_cancel(struct wb_xport *base, wb_conn_t conn, uint64_t cookie)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_end *e = end_get(x, conn);
	struct wb__sim_item *it;

	if (!e)
		return -ENOTCONN;
	for (uint32_t i = 0; e->op && i < e->link->depth; i++) {
		struct wb__op *op = &e->op[i];

		if (op->state != WB__OP_OUT || op->cookie != cookie)
			continue;
		op->state = WB__OP_CANCELLING; /* until the user polls the event */
		wb__sim_tell(x, WB_XP_CANCELLED, e, 0)->cookie = cookie;
		it = wb__sim_item_of(e->link, 1, WB__SIM_CANCEL, op->id, 0);
		wb__sim_item_send(x->net, it);
		return 0;
	}
	for (struct wb__sim_told *t = x->head; t; t = t->next) {
		if (t->ev.kind == WB_XP_CANCELLED && t->ev.conn == conn && t->ev.cookie == cookie)
			return -EALREADY;
	}
	return -ENOENT;
}

static int sim_refuse(struct wb_xport *base, wb_conn_t conn, uint64_t grant, int code)
{
	struct wb__sim_end *e = end_get(wb__simx_of(base), conn);
	struct wb__sim_ask **p, *a;

	if (!e)
		return -ENOTCONN;
	if (code >= 0)
		return -EINVAL;
	p = wb__sim_ask_find(e, grant, false);
	a = *p;
	if (!a)
		return -ENOENT;
	*p = a->next;
	wb__sim_refuse(e, a->op, code);
	wb_free(a);
	return 0;
}

static bool in_region(const struct wb__simx *x, uint64_t object, const struct iovec *v)
{
	const uint8_t *p = v->iov_base;

	for (uint32_t i = 0; i < x->n_region; i++) {
		const struct wb_xport_region *r = &x->region[i];
		const uint8_t *base = r->base;

		if (x->has_region[i] && r->fd >= 0 && r->object == object && p >= base &&
			p < base + r->bytes && v->iov_len <= (size_t)(base + r->bytes - p))
			return true;
	}
	return false;
}

/* Where regions are required: are all of these in one? */
static bool in_regions(struct wb__simx *x, uint64_t object, const struct iovec *iov, uint32_t n_iov)
{
	if (!(x->base.ops->caps & WB_XPORT_CAP_REGIONS))
		return true;
	wb__sim_counts(x->net)->in_regions++;
	for (uint32_t i = 0; i < n_iov; i++)
		if (!in_region(x, object, &iov[i])) {
			wb__sim_counts(x->net)->outside++;
			return false;
		}
	return true;
}

static int sim_write(struct wb_xport *base, wb_conn_t conn, const struct wb_xport_write *g)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_end *e = end_get(x, conn);
	struct wb__sim_ask **p, *a;
	struct wb__sim_write *w;

	if (!e)
		return -ENOTCONN;
	p = wb__sim_ask_find(e, g->grant, false);
	a = *p;
	if (!a)
		return -ENOENT;
	if (sum_iov(g->iov, g->n_iov, a->bytes) || !in_regions(x, e->info.object, g->iov, g->n_iov))
		return -EINVAL;
	w = wb_zalloc(1, sizeof(*w));
	if (!w)
		return -EAGAIN;
	w->op = (struct wb__op){.cookie = g->cookie,
		.id = a->op,
		.bytes = a->bytes,
		.iov = g->iov,
		.n_iov = g->n_iov,
		.observe = g->observe,
		.trailer = g->trailer,
		.ctx = g->ctx};
	w->end = e;
	w->next = e->write;
	e->write = w;
	*p = a->next;
	wb_free(a);
	wb__sim_tx_add(x, w);
	return 0;
}

static int sim_disconnect(struct wb_xport *base, wb_conn_t conn)
{
	struct wb__sim_end *e = end_get(wb__simx_of(base), conn);

	if (!e)
		return -ENOTCONN;
	wb__sim_say_down(e);
	wb__sim_end_down(e, -ECONNABORTED, "disconnected here");
	return 0;
}

static void sim_close(struct wb_xport *base)
{
	struct wb__simx *x = wb__simx_of(base);

	wb__simx_kill(x);
	if (x->node)
		x->node->x = NULL;
	wb__sim_told_free(x->head);
	wb__sim_told_free(x->old);
	wb_free(x->by_conn);
	wb_free(x);
}

/* Rails without a cap of their own share what the node has. */
static void set_rails(struct wb__sim_node *n, const struct wb_xport_opts *o, double all)
{
	n->n_rail = WB_MAX(1u, WB_MIN(o->n_rail, (uint32_t)WB_XPORT_RAILS_MAX));
	for (uint32_t i = 0; i < n->n_rail; i++) {
		uint64_t cap = i < o->n_rail ? o->rail[i].rate_bytes_per_s : 0;

		n->rail[i] = (struct wb__sim_rail){.rate = cap ? (double)cap : all / n->n_rail};
	}
}

#define KINDS_MASK (WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_LOCAL)
static const struct wb_xport_ops kinds[KINDS_MASK + 1];

static int sim_open(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	struct wb__simx *x;
	if (!o->sim || !wb__name_ok(o->name))
		return wb_err_set(err, -EINVAL, "transport sim needs a net and a name");
	x = wb_zalloc(1, sizeof(*x));
	if (!x)
		return wb_err_set(err, -ENOMEM, "no memory for transport sim");
	x->net = o->sim;
	x->tail = &x->head;
	x->tx_tail = &x->tx_head;
	x->depth = o->depth ? o->depth : DEPTH;
	x->conns_max = o->conns_max ? o->conns_max : WB_XPORT_CONNS_MAX;
	x->piece_bytes = o->piece_bytes ? WB_MAX(o->piece_bytes, 4096u) : PIECE_SEEN;
	snprintf(x->name, sizeof(x->name), "%s", o->name);
	x->node = wb__sim_node_get(o->sim, o->name);
	if (!x->node || x->node->x) {
		int rc = x->node ? -EEXIST : -ENOMEM;

		wb_free(x);
		return wb_err_set(err, rc, "node %s: %s", o->name,
			rc == -EEXIST ? "has a transport already" : "no memory");
	}
	x->node->x = x;
	x->base.ops = &kinds[wb__sim_caps(o->sim) & KINDS_MASK];
	x->sockets = WB_MIN(o->sockets, (uint32_t)WB_XPORT_SOCKETS_MAX);
	set_rails(x->node, o, wb__sim_rate(o->sim));
	*out = &x->base;
	return 0;
}

static int sim_listen(struct wb_xport *base, char *endpoint, size_t cap, struct wb_err *err)
{
	struct wb__simx *x = wb__simx_of(base);

	if (x->is_listening)
		return wb_err_set(err, -EALREADY, "the transport listens already");
	if ((size_t)snprintf(endpoint, cap, "sim:%s", x->name) >= cap)
		return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
	x->is_listening = true;
	return 0;
}

static int sim_adopt(struct wb_xport *base, int fd_take, struct wb_err *err)
{
	(void)base;
	(void)fd_take;
	return wb_err_set(err, -ENOTSUP, "transport sim has no sockets");
}

static int sim_epoch_add(struct wb_xport *base, const struct wb_xport_epoch *e, struct wb_err *err)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb_xport_epoch *known = wb__sim_epoch_find(x, e);

	if (known)
		return memcmp(known->key, e->key, sizeof(e->key))
			       ? wb_err_set(err, -EEXIST,
					 "epoch %llu.%llu is known with another key",
					 (unsigned long long)e->term, (unsigned long long)e->number)
			       : 0;
	if (e->is_encrypted)
		return wb_err_set(err, -ENOTSUP,
			"transport sim has no encryption: set spec.transport.encryption to None, "
			"or use transport tcp");
	if (x->n_epoch == WB__EPOCHS_MAX)
		return wb_err_set(err, -ENOSPC, "more than %d epochs at once", WB__EPOCHS_MAX);
	x->epoch[x->n_epoch++] = *e;
	return 0;
}

static int sim_epoch_remove(struct wb_xport *base, const struct wb_xport_epoch *e)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb_xport_epoch *known = wb__sim_epoch_find(x, e);
	struct wb__sim_end *end, *next;
	int n = 0;

	if (!known)
		return -ENOENT;
	*known = x->epoch[--x->n_epoch];
	for (end = x->end; end; end = next) {
		next = end->next;
		if (end->info.object != e->object || end->info.term != e->term ||
			end->info.number != e->number)
			continue;
		wb__sim_say_down(end);
		wb__sim_end_down(end, -ECONNABORTED, "the epoch was revoked here");
		n++;
	}
	return n;
}

static int sim_region_add(
	struct wb_xport *base, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err)
{
	struct wb__simx *x = wb__simx_of(base);

	if (!r->bytes || !r->base)
		return wb_err_set(err, -EINVAL, "an empty region");
	for (uint32_t i = 0; i < WB__REGIONS_MAX; i++) {
		if (x->has_region[i])
			continue;
		x->has_region[i] = true;
		x->region[i] = *r;
		x->n_region = WB_MAX(x->n_region, i + 1);
		*id = i;
		return 0;
	}
	return wb_err_set(err, -ENOSPC, "more than %d regions", WB__REGIONS_MAX);
}

static bool region_is_busy(struct wb__simx *x, const struct wb_xport_region *r)
{
	const uint8_t *lo = r->base, *hi = lo + r->bytes;

	for (struct wb__sim_end *e = x->end; e; e = e->next) {
		for (struct wb__sim_write *w = e->write; w; w = w->next) {
			for (uint32_t i = 0; i < w->op.n_iov; i++) {
				const uint8_t *p = w->op.iov[i].iov_base;

				if (p >= lo && p < hi)
					return true;
			}
		}
	}
	return false;
}

static int sim_region_remove(struct wb_xport *base, uint32_t id)
{
	struct wb__simx *x = wb__simx_of(base);

	if (id >= WB__REGIONS_MAX || !x->has_region[id])
		return -ENOENT;
	if (region_is_busy(x, &x->region[id]))
		return -EBUSY;
	x->has_region[id] = false;
	return 0;
}

static int sim_event_fd(struct wb_xport *base)
{
	(void)base;
	return -1;
}

static int sim_stats(struct wb_xport *base, uint32_t rail, struct wb_xport_stats *out)
{
	const struct wb__simx *x = wb__simx_of(base);

	if (rail >= x->node->n_rail)
		return -EINVAL;
	*out = (struct wb_xport_stats){0};
	if (rail == 0)
		*out = x->stats; /* all on the first */
	return 0;
}

/* One table for each kind of net (wb_sim_opts.caps). */
#define SIM_OPS(has)                                                                               \
	{                                                                                          \
		.name = "sim", .caps = (has), .open = sim_open, .close = sim_close,                \
		.listen = sim_listen, .adopt = sim_adopt, .epoch_add = sim_epoch_add,              \
		.epoch_remove = sim_epoch_remove, .region_add = sim_region_add,                    \
		.region_remove = sim_region_remove, .connect = sim_connect,                        \
		.disconnect = sim_disconnect, .grant = sim_grant, .cancel = sim_cancel,            \
		.write = sim_write, .refuse = sim_refuse, .poll = sim_poll,                        \
		.event_fd = sim_event_fd, .stats = sim_stats,                                      \
	}

static const struct wb_xport_ops kinds[KINDS_MASK + 1] = {
	[0] = SIM_OPS(0),
	[WB_XPORT_CAP_REGIONS] = SIM_OPS(WB_XPORT_CAP_REGIONS),
	[WB_XPORT_CAP_LOCAL] = SIM_OPS(WB_XPORT_CAP_LOCAL),
	[KINDS_MASK] = SIM_OPS(KINDS_MASK),
};

const struct wb_xport_ops wb_xport_sim = SIM_OPS(0);
