/* SPDX-License-Identifier: Apache-2.0 */
/* The bulk transport of the simulated net. */
#include "base/base.h"
#include "base/mem.h"
#include "tests/common/sim_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEPTH 64
#define PIECE_SEEN (128u << 10)

/* Until now another cancel of it was one too many, and from now on there is nothing to cancel. */
static void note_cancelled(struct wb__simx *x, const struct wb__sim_told *t)
{
	struct wb__account *c = wb__book_get(&x->book, t->ev.conn);
	struct wb__op *op = c ? wb__book_op(c, t->lane, t->id) : NULL;
	struct wb_xport_event ev;

	if (op && op->state == WB__OP_CANCELLING)
		wb__book_ended(c, op, WB__CANCELLED, &ev);
}

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
		if (t->ev.kind == WB_XP_CANCELLED)
			note_cancelled(x, t);
		t->next = x->old;
		x->old = t;
	}
	return n;
}

static struct wb__sim_end *end_of(struct wb__account *c)
{
	return c ? wb_container_of(c, struct wb__sim_end, a) : NULL;
}

static int sim_connect(
	struct wb_xport *base, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	struct wb__simx *x = wb__simx_of(base);
	const struct wb_xport_epoch *known;
	struct wb__sim_node *node;
	struct wb__sim_link *l;
	struct wb__sim_end *e;
	struct wb__sim_item *it;

	if (!wb__name_ok(p->name) || !p->endpoint || strncmp(p->endpoint, "sim:", 4) ||
		!wb__name_ok(p->endpoint + 4))
		return wb_err_set(err, -EINVAL, "endpoint '%.100s' is not like sim:NAME",
			p->endpoint ? p->endpoint : "");
	known = wb__book_epoch_find(&x->book, p->epoch.object, p->epoch.term, p->epoch.number);
	if (!known)
		return wb_err_set(err, -ENOENT, "epoch %llu.%llu is not known here",
			(unsigned long long)p->epoch.term, (unsigned long long)p->epoch.number);
	if (x->book.n_conn >= x->book.conns_max)
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
	l->n_slot = (uint32_t)wb_ceil_div(l->depth, l->n_socket);
	e = wb__sim_end_create(x, l, 0, p->name);
	if (!e) {
		wb_free(l);
		return wb_err_set(err, -ENOMEM, "no memory to connect to agent %s", p->name);
	}
	e->a.info.user = p->user;
	e->a.was_announced = true;
	l->node[1] = node;
	it = wb__sim_item_make(l, 1, WB__SIM_CONNECT, 0);
	snprintf(it->text, sizeof(it->text), "%s", p->name);
	snprintf(it->peer, sizeof(it->peer), "%s", x->name);
	*out = e->a.id;
	wb__sim_item_send(x->net, it);
	return 0;
}

static int sim_grant(struct wb_xport *base, wb_conn_t conn, const struct wb_xport_grant *g)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_item *it;
	struct wb__entry e;
	int rc = wb__book_grant(&x->book, conn, g, &e);

	if (rc)
		return rc;
	wb__book_commit(&x->book, &e);
	wb__sim_counts(x->net)->deep += e.c->outstanding > 4;
	it = wb__sim_item_of(end_of(e.c)->link, 1, WB__SIM_GRANT, e.lane, e.id, 0);
	it->chunk = g->chunk;
	wb__sim_item_send(x->net, it);
	return 0;
}

static int sim_cancel(struct wb_xport *base, wb_conn_t conn, uint64_t cookie)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb_xport_event ev = {.kind = WB_XP_CANCELLED, .conn = conn, .cookie = cookie};
	struct wb__sim_told *t;
	struct wb__entry e;
	int rc = wb__book_cancel(&x->book, conn, cookie, &e);

	if (rc)
		return rc;
	wb__book_commit(&x->book, &e);
	t = wb__sim_tell(x, &ev);
	t->lane = e.lane;
	t->id = e.id;
	wb__sim_item_send(
		x->net, wb__sim_item_of(end_of(e.c)->link, 1, WB__SIM_CANCEL, e.lane, e.id, 0));
	return 0;
}

static int sim_refuse(struct wb_xport *base, wb_conn_t conn, uint64_t grant, int code)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_end *end;
	struct wb__entry e;
	int rc = wb__book_refuse(&x->book, conn, grant, code, &e);

	if (rc)
		return rc;
	wb__book_commit(&x->book, &e);
	end = end_of(e.c);
	wb__sim_refuse(end, e.lane, wb__sim_theirs(end, e.lane, e.id), code);
	return 0;
}

/* Where regions are required, so that a run can say how often that mattered. */
static void count_regions(
	struct wb__simx *x, wb_conn_t conn, const struct wb_xport_write *g, int rc)
{
	const struct wb__account *c = wb__book_get(&x->book, conn);
	bool is_outside = rc == -EINVAL && c &&
			  !wb__book_in_regions(&x->book, c->info.object, g->iov, g->n_iov);

	if (!(x->base.ops->caps & WB_XPORT_CAP_REGIONS) || (rc && !is_outside))
		return;
	wb__sim_counts(x->net)->in_regions++;
	wb__sim_counts(x->net)->outside += is_outside;
}

static int sim_write(struct wb_xport *base, wb_conn_t conn, const struct wb_xport_write *g)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_write *w;
	struct wb__entry e;
	int rc = wb__book_write(&x->book, conn, g, &e);

	count_regions(x, conn, g, rc);
	if (rc)
		return rc;
	w = wb_zalloc(1, sizeof(*w));
	if (!w) {
		wb__book_abandon(&x->book, &e);
		return -EAGAIN;
	}
	wb__book_commit(&x->book, &e);
	w->op = e.op;
	w->end = end_of(e.c);
	w->id = wb__sim_theirs(w->end, e.lane, e.id);
	w->next = w->end->write;
	w->end->write = w;
	wb__sim_tx_add(x, w);
	return 0;
}

static int sim_disconnect(struct wb_xport *base, wb_conn_t conn)
{
	struct wb__sim_end *e = end_of(wb__book_get(&wb__simx_of(base)->book, conn));

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
	wb__book_finish(&x->book);
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
	if (!o->medium || !wb__name_ok(o->name))
		return wb_err_set(err, -EINVAL, "transport sim needs a net and a name");
	x = wb_zalloc(1, sizeof(*x));
	if (!x)
		return wb_err_set(err, -ENOMEM, "no memory for transport sim");
	x->net = o->medium;
	x->tail = &x->head;
	x->tx_tail = &x->tx_head;
	x->depth = o->depth ? o->depth : DEPTH;
	x->piece_bytes = o->piece_bytes ? WB_MAX(o->piece_bytes, 4096u) : PIECE_SEEN;
	snprintf(x->name, sizeof(x->name), "%s", o->name);
	x->node = wb__sim_node_get(x->net, o->name);
	if (!x->node || x->node->x) {
		int rc = x->node ? -EEXIST : -ENOMEM;

		wb_free(x);
		return wb_err_set(err, rc, "node %s: %s", o->name,
			rc == -EEXIST ? "has a transport already" : "no memory");
	}
	x->node->x = x;
	x->base.ops = &kinds[wb__sim_caps(x->net) & KINDS_MASK];
	wb__book_init(
		&x->book, o->conns_max ? o->conns_max : WB_XPORT_CONNS_MAX, x->base.ops->caps);
	x->sockets = WB_MIN(o->sockets, (uint32_t)WB_XPORT_SOCKETS_MAX);
	set_rails(x->node, o, wb__sim_rate(x->net));
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
	int rc = wb__book_epoch_known(&x->book, e, err);

	if (rc)
		return rc > 0 ? 0 : rc;
	if (e->is_encrypted)
		return wb_err_set(err, -ENOTSUP,
			"transport sim has no encryption: set spec.transport.encryption to None, "
			"or use transport tcp");
	return wb__book_epoch_put(&x->book, e, err);
}

static int sim_epoch_remove(struct wb_xport *base, const struct wb_xport_epoch *e)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_end *end, *next;
	int n = 0, rc = wb__book_epoch_forget(&x->book, e);

	if (rc)
		return rc;
	for (end = x->end; end; end = next) {
		next = end->next;
		if (end->a.info.object != e->object || end->a.info.term != e->term ||
			end->a.info.number != e->number)
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
	return wb__book_region_put(&wb__simx_of(base)->book, r, id, err);
}

static int sim_region_remove(struct wb_xport *base, uint32_t id)
{
	return wb__book_region_drop(&wb__simx_of(base)->book, id);
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
		.name = "sim", .scheme = "sim:", .sockets_min = 2, .caps = (has),                  \
		.open = sim_open, .close = sim_close, .listen = sim_listen, .adopt = sim_adopt,    \
		.epoch_add = sim_epoch_add, .epoch_remove = sim_epoch_remove,                      \
		.region_add = sim_region_add, .region_remove = sim_region_remove,                  \
		.connect = sim_connect, .disconnect = sim_disconnect, .grant = sim_grant,          \
		.cancel = sim_cancel, .write = sim_write, .refuse = sim_refuse, .poll = sim_poll,  \
		.event_fd = sim_event_fd, .stats = sim_stats,                                      \
	}

static const struct wb_xport_ops kinds[KINDS_MASK + 1] = {
	[0] = SIM_OPS(0),
	[WB_XPORT_CAP_REGIONS] = SIM_OPS(WB_XPORT_CAP_REGIONS),
	[WB_XPORT_CAP_LOCAL] = SIM_OPS(WB_XPORT_CAP_LOCAL),
	[KINDS_MASK] = SIM_OPS(KINDS_MASK),
};

const struct wb_xport_ops wb__xport_sim = SIM_OPS(0);
