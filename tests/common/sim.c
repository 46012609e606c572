/* SPDX-License-Identifier: Apache-2.0 */
/* The bulk transport of the simulated net. */
#include "base/base.h"
#include "base/mem.h"
#include "tests/common/sim_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_SEEN (128u << 10)

/* Until now another cancel of it was one too many, and from now on there is nothing to cancel. */
static void note_cancelled(struct wb__simx *x, const struct wb__sim_told *t)
{
	struct wb__account *c = wb__book_get(&x->desk.book, t->ev.conn);
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

/* "sim:a", or "sim:a/0,sim:a/2" of some of its rails; false: neither. */
static bool read_endpoint(const char *text, char name[WB_XPORT_NAME_MAX], uint32_t *rails)
{
	size_t n;

	*rails = 0;
	if (!text || strncmp(text, "sim:", 4))
		return false;
	n = strcspn(text + 4, "/");
	if (n >= WB_XPORT_NAME_MAX)
		return false;
	snprintf(name, WB_XPORT_NAME_MAX, "%.*s", (int)n, text + 4);
	for (const char *p = text; (p = strchr(p, '/')); p++)
		*rails |= 1u << strtoul(p + 1, NULL, 10);
	return wb__name_ok(name);
}

static uint32_t n_of(const struct wb__sim_node *n, uint32_t rails)
{
	return rails ? (uint32_t)__builtin_popcount(rails) : n->n_rail;
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
	char name[WB_XPORT_NAME_MAX];
	uint32_t rails;

	if (!wb__name_ok(p->name) || !read_endpoint(p->endpoint, name, &rails))
		return wb_err_set(err, -EINVAL, "endpoint '%.100s' is not like sim:NAME",
			p->endpoint ? p->endpoint : "");
	if (p->rails >> x->node->n_rail || p->depth > WB_XPORT_DEPTH_MAX)
		return wb_err_set(err, -EINVAL, "rails %#x or depth %u", p->rails, p->depth);
	known = wb__book_epoch_find(&x->desk.book, p->epoch);
	if (!known)
		return wb_err_set(err, -ENOENT, "epoch %llu.%llu is not known here",
			(unsigned long long)p->epoch->term, (unsigned long long)p->epoch->number);
	if (x->desk.book.n_conn >= x->desk.book.conns_max)
		return wb_err_set(err, -ENOSPC, "too many connections");
	node = wb__sim_node_get(x->net, name);
	if (node && rails >> node->n_rail)
		return wb_err_set(err, -EADDRNOTAVAIL, "no rails %#x at %s", rails, name);
	l = wb_zalloc(1, sizeof(*l));
	if (!l || !node) {
		wb_free(l);
		return wb_err_set(err, -ENOMEM, "no memory to connect to agent %s", p->name);
	}
	l->epoch = *known;
	l->rails[0] = p->rails;
	l->rails[1] = rails;
	l->n_socket = x->sockets ? x->sockets : WB_MAX(n_of(x->node, p->rails), n_of(node, rails));
	l->depth = p->depth ? p->depth : x->depth;
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

static void send_cancel(struct wb__simx *x, struct wb__sim_end *end, const struct wb__entry *e)
{
	struct wb_xport_event ev = {
		.kind = WB_XP_CANCELLED, .conn = end->a.id, .cookie = e->op->cookie};
	struct wb__sim_told *t = wb__sim_tell(x, &ev);

	t->lane = e->lane;
	t->id = e->id;
	wb__sim_item_send(x->net, wb__sim_item_of(end->link, 1, WB__SIM_CANCEL, e->lane, e->id, 0));
}

static void send_write(struct wb__simx *x, struct wb__sim_end *end, const struct wb__entry *e)
{
	struct wb__sim_write *w = wb_zalloc(1, sizeof(*w));

	assert(w);
	w->op = e->op;
	w->end = end;
	w->id = wb__sim_theirs(end, e->lane, e->id);
	w->next = end->write;
	end->write = w;
	wb__sim_tx_add(x, w);
}

static void sim_send(struct wb__desk *d, const struct wb__entry *e)
{
	struct wb__simx *x = wb__simx_of(&d->base);
	struct wb__sim_end *end = wb_container_of(e->c, struct wb__sim_end, a);
	struct wb__sim_item *it;

	switch (e->kind) {
	case WB__ENTRY_GRANT:
		wb__sim_counts(x->net)->deep += e->c->outstanding > 4;
		it = wb__sim_item_of(end->link, 1, WB__SIM_GRANT, e->lane, e->id, 0);
		it->chunk = *e->chunk;
		wb__sim_item_send(x->net, it);
		break;
	case WB__ENTRY_CANCEL:
		send_cancel(x, end, e);
		break;
	case WB__ENTRY_WRITE:
		send_write(x, end, e);
		break;
	case WB__ENTRY_REFUSE:
		wb__sim_refuse(end, e->lane, wb__sim_theirs(end, e->lane, e->id), e->code);
		break;
	}
}

static void sim_hang_up(struct wb__desk *d, struct wb__account *c, const char *reason)
{
	struct wb__sim_end *end = wb_container_of(c, struct wb__sim_end, a);

	(void)d;
	wb__sim_say_down(end);
	wb__sim_end_down(end, -ECONNABORTED, reason);
}

/* All that is told here is told at once, and its end freed. */
static void sim_free(struct wb__account *c)
{
	assert(!c);
}

static const struct wb__desk_ops desk_ops = {
	.send = sim_send, .hang_up = sim_hang_up, .free = sim_free};

/* Where regions are required, so that a run can say how often that mattered. */
static void count_regions(
	struct wb__simx *x, wb_conn_t conn, const struct wb_xport_write *g, int rc)
{
	const struct wb__account *c = wb__book_get(&x->desk.book, conn);
	bool is_outside =
		rc == -EINVAL && c &&
		!wb__book_in_regions(&x->desk.book, c->info.epoch.object.hash, g->iov, g->n_iov);

	if (!(x->desk.base.ops->caps & WB_XPORT_CAP_REGIONS) || (rc && !is_outside))
		return;
	wb__sim_counts(x->net)->in_regions++;
	wb__sim_counts(x->net)->outside += is_outside;
}

static int sim_write(struct wb_xport *base, wb_conn_t conn, const struct wb_xport_write *g)
{
	int rc = wb__desk_write(base, conn, g);

	count_regions(wb__simx_of(base), conn, g, rc);
	return rc;
}

static void sim_close(struct wb_xport *base)
{
	struct wb__simx *x = wb__simx_of(base);

	wb__simx_kill(x);
	if (x->node)
		x->node->x = NULL;
	wb__sim_told_free(x->head);
	wb__sim_told_free(x->old);
	wb__desk_finish(&x->desk);
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

/* wb_sim_opts.caps as small numbers: the bit of CAP_THREADS, which no simulated rail has, stands
 * for CAP_UNTOUCHED. */
#define KINDS_MASK (WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_LOCAL)
#define KIND_UNTOUCHED WB_XPORT_CAP_THREADS
static const struct wb_xport_ops kinds[(KINDS_MASK | KIND_UNTOUCHED) + 1];

static const struct wb_xport_ops *kind_of(uint32_t caps)
{
	return &kinds[(caps & KINDS_MASK) | (caps & WB_XPORT_CAP_UNTOUCHED ? KIND_UNTOUCHED : 0)];
}

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
	x->depth = o->depth ? o->depth : WB_XPORT_DEPTH;
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
	wb__desk_init(&x->desk, kind_of(wb__sim_caps(x->net)), &desk_ops, o->conns_max);
	x->sockets = WB_MIN(o->sockets, (uint32_t)WB_XPORT_SOCKETS_MAX);
	set_rails(x->node, o, wb__sim_rate(x->net));
	*out = &x->desk.base;
	return 0;
}

static int sim_listen(struct wb_xport *base, char *endpoint, size_t cap, struct wb_err *err)
{
	struct wb__simx *x = wb__simx_of(base);
	size_t at = 0;

	if (x->is_listening)
		return wb_err_set(err, -EALREADY, "the transport listens already");
	for (uint32_t i = 0; i < x->node->n_rail; i++) {
		int n = x->node->n_rail == 1 ? snprintf(endpoint, cap, "sim:%s", x->name)
					     : snprintf(endpoint + at, cap - at, "%ssim:%s/%u",
						       i ? "," : "", x->name, i);

		if ((size_t)n >= cap - at)
			return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
		at += (size_t)n;
	}
	x->is_listening = true;
	return 0;
}

/* As wb__desk_epoch_remove(), but in the order that the seeds know: the newest first. */
static int sim_epoch_remove(struct wb_xport *base, const struct wb_epoch_id *id)
{
	struct wb__simx *x = wb__simx_of(base);
	struct wb__sim_end *end, *next;
	int n = 0, rc = wb__book_epoch_forget(&x->desk.book, id);

	if (rc)
		return rc;
	for (end = x->end; end; end = next) {
		next = end->next;
		if (!wb_epoch_id_eq(&end->a.info.epoch, id))
			continue;
		wb__sim_say_down(end);
		wb__sim_end_down(end, -ECONNABORTED, "the epoch was revoked here");
		n++;
	}
	return n;
}

static int sim_stats(struct wb_xport *base, uint32_t rail, struct wb_xport_stats *out)
{
	const struct wb__simx *x = wb__simx_of(base);

	if (rail >= x->node->n_rail)
		return -EINVAL;
	*out = x->stats[rail];
	return 0;
}

/* One table for each kind of net (wb_sim_opts.caps). */
#define SIM_OPS(has)                                                                               \
	{                                                                                          \
		.name = "sim", .scheme = "sim:", .sockets_min = 2, .caps = (has),                  \
		.open = sim_open, .close = sim_close, .listen = sim_listen,                        \
		.epoch_add = wb__desk_epoch_add, .epoch_remove = sim_epoch_remove,                 \
		.region_add = wb__desk_region_add, .region_remove = wb__desk_region_remove,        \
		.connect = sim_connect, .disconnect = wb__desk_disconnect,                         \
		.grant = wb__desk_grant, .cancel = wb__desk_cancel, .write = sim_write,            \
		.refuse = wb__desk_refuse, .poll = sim_poll, .stats = sim_stats,                   \
	}

#define UNTOUCHED(and) [KIND_UNTOUCHED | (and)] = SIM_OPS(WB_XPORT_CAP_UNTOUCHED | (and))

static const struct wb_xport_ops kinds[(KINDS_MASK | KIND_UNTOUCHED) + 1] = {
	[0] = SIM_OPS(0),
	[WB_XPORT_CAP_REGIONS] = SIM_OPS(WB_XPORT_CAP_REGIONS),
	[WB_XPORT_CAP_LOCAL] = SIM_OPS(WB_XPORT_CAP_LOCAL),
	[KINDS_MASK] = SIM_OPS(KINDS_MASK),
	UNTOUCHED(0),
	UNTOUCHED(WB_XPORT_CAP_REGIONS),
	UNTOUCHED(WB_XPORT_CAP_LOCAL),
	UNTOUCHED(KINDS_MASK),
};

const struct wb_xport_ops wb__xport_sim = SIM_OPS(0);
