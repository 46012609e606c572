/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/xport_skeleton.h"

#include "net/psk.h"
#include "xport/desk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SCHEME "skeleton:"
#define PIECE (128u << 10)
#define EVENTS 2048

struct skeleton {
	struct wb__desk desk; /* first */
	char name[WB_XPORT_NAME_MAX];
	uint32_t sockets, depth;
	bool is_listening;
	int event_fd;
	struct wb_xport_event event[EVENTS]; /* [head, tail) are to be taken */
	uint32_t head, tail;
	char why[WB__REASON_MAX]; /* of the last rejection */
	struct skeleton *next; /* of this process */
};

/* One side of a connection. */
struct end {
	struct wb__account a; /* first */
	struct skeleton *x;
	struct end *peer; /* stands as long as this one is up: both go down at once */
};

static struct skeleton *all;

static struct skeleton *find(const char *name)
{
	struct skeleton *x = all;

	while (x && strcmp(x->name, name))
		x = x->next;
	return x;
}

static struct skeleton *skeleton_of(struct wb_xport *x)
{
	return wb_container_of(x, struct skeleton, desk.base);
}

static struct end *end_of(struct wb__account *a)
{
	return wb_container_of(a, struct end, a);
}

static void wake(struct skeleton *x)
{
	(void)!write(x->event_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void note(struct skeleton *x, const struct wb_xport_event *ev)
{
	assert(x->tail - x->head < EVENTS);
	x->event[x->tail % EVENTS] = *ev;
	x->event[x->tail++ % EVENTS].at_ns = wb_now_ns(&wb_clock_real);
	wake(x);
}

/* The receiver's grant is answered, and what was written is over. */
static void answer(struct end *from, const struct wb__entry *e)
{
	struct wb__account *a = &from->peer->a;
	struct wb__op *op = wb__book_op(a, e->lane, e->id);
	struct wb_xport_event ev = {.conn = a->id, .code = e->code};

	if (e->op) {
		wb__op_observe(e->op, e->op->bytes, PIECE);
		if (e->op->trailer)
			e->op->trailer(e->op->ctx, ev.trailer);
		wb__op_take(op, e->op);
	}
	wb__book_ended(a, op, e->op ? WB__ARRIVED : WB__REFUSED, &ev);
	note(from->peer->x, &ev);
	ev = (struct wb_xport_event){.conn = from->a.id};
	if (!e->op)
		return;
	wb__book_written(&from->x->desk.book, &from->a, e->op, 0, &ev);
	note(from->x, &ev);
}

/* Nothing is ever under way here: the source is told, and the slot is free at once. */
static void cancel(struct end *to, const struct wb__entry *e)
{
	struct wb_xport_event ev = {.conn = to->peer->a.id};

	if (wb__book_gone(&to->peer->a, e->lane, e->id, &ev))
		note(to->peer->x, &ev);
	ev = (struct wb_xport_event){.conn = to->a.id};
	wb__book_ended(&to->a, e->op, WB__CANCELLED, &ev);
	note(to->x, &ev);
	wb__book_ended(&to->a, e->op, WB__RETIRED, &ev);
}

static void skeleton_send(struct wb__desk *d, const struct wb__entry *e)
{
	struct end *peer = end_of(e->c)->peer;
	struct wb_xport_event ev = {.conn = peer->a.id};

	(void)d;
	if (e->kind == WB__ENTRY_CANCEL)
		cancel(end_of(e->c), e);
	else if (e->kind != WB__ENTRY_GRANT)
		answer(end_of(e->c), e);
	else if (wb__book_asked(&peer->a, e->lane, e->id, e->chunk, &ev) > 0)
		note(peer->x, &ev);
}

static void take_down(struct end *e, int code, const char *reason)
{
	if (!e || !wb__book_close(&e->a, code, reason))
		return;
	wb__book_down(&e->x->desk.book, &e->a); /* what would move moves inside a call */
	wake(e->x);
}

static void skeleton_hang_up(struct wb__desk *d, struct wb__account *a, const char *reason)
{
	struct end *e = end_of(a);

	(void)d;
	take_down(e->peer, -ECONNRESET, "the other side closed the connection");
	take_down(e, -ECONNABORTED, reason);
}

static void skeleton_free(struct wb__account *a)
{
	wb__account_finish(a);
	free(end_of(a));
}

static const struct wb__desk_ops desk_ops = {
	.send = skeleton_send, .hang_up = skeleton_hang_up, .free = skeleton_free};

/* What a challenge would find out: 0, or a code and, in x->why, a sentence. */
static int judge(struct skeleton *x, struct skeleton *from, const struct wb_xport_peer *p)
{
	const struct wb_xport_epoch *e = wb__book_epoch_find(&from->desk.book, p->epoch);
	const struct wb_xport_epoch *known = wb__book_epoch_find(&x->desk.book, p->epoch);

	if (!x->is_listening || strcmp(p->name, x->name)) {
		snprintf(x->why, sizeof(x->why), "this is agent %s", x->name);
		return -EADDRNOTAVAIL;
	}
	if (known && wb_bytes_equal(known->key, e->key, sizeof(e->key)))
		return 0;
	snprintf(x->why, sizeof(x->why), "agent %s does not %s %llu.%llu", x->name,
		known ? "hold our key of epoch" : "know epoch", (unsigned long long)e->id.term,
		(unsigned long long)e->id.number);
	return known ? -EKEYREJECTED : WB_ESTALE;
}

static struct end *end_create(struct skeleton *x, const struct wb_xport_conn_info *info)
{
	uint32_t n_slot = (uint32_t)wb_ceil_div(info->depth, info->n_socket);
	struct end *e = calloc(1, sizeof(*e));

	assert(e);
	e->x = x;
	if (!wb__book_open(&x->desk.book, &e->a, info, info->n_socket, n_slot))
		return e;
	free(e);
	return NULL;
}

static void join(struct end *a, struct end *b)
{
	struct wb_xport_event ev = {0};

	a->peer = b;
	wb__book_up(&a->a, &ev);
	note(a->x, &ev);
}

static int skeleton_connect(
	struct wb_xport *base, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	struct skeleton *x = skeleton_of(base), *to;
	struct wb_xport_event ev = {.kind = WB_XP_REJECTED};
	struct wb_xport_conn_info info;
	struct end *mine, *theirs = NULL;
	int rc = wb__desk_dial(&x->desk, p, &info, err);

	if (rc)
		return rc;
	if (strncmp(p->endpoint, SCHEME, strlen(SCHEME)))
		return wb_err_set(err, -EINVAL, "'%.99s' is not " SCHEME "NAME", p->endpoint);
	to = find(p->endpoint + strlen(SCHEME));
	if (!to)
		return wb_err_set(err, -ECONNREFUSED, "there is no %.99s", p->endpoint);
	info.n_socket = x->sockets;
	info.depth = x->depth;
	mine = end_create(x, &info);
	if (!mine)
		return wb_err_set(err, -ENOSPC, "cannot connect to agent %s", p->name);
	mine->a.was_announced = true;
	*out = mine->a.id;
	info.is_dialer = false;
	info.user = 0;
	memcpy(info.peer, x->name, sizeof(info.peer));
	ev.code = judge(to, x, p);
	if (!ev.code && (theirs = end_create(to, &info))) {
		join(theirs, mine);
		join(mine, theirs);
		return 0;
	}
	ev.code = ev.code ? ev.code : -ENOSPC;
	ev.reason = to->why;
	note(to, &ev);
	take_down(mine, ev.code, to->why);
	return 0;
}

static int skeleton_listen(struct wb_xport *base, char *endpoint, size_t cap, struct wb_err *err)
{
	struct skeleton *x = skeleton_of(base);

	if (x->is_listening || (size_t)snprintf(endpoint, cap, SCHEME "%s", x->name) >= cap)
		return wb_err_set(err, x->is_listening ? -EALREADY : -ENOSPC, "cannot listen");
	x->is_listening = true;
	return 0;
}

static int skeleton_poll(struct wb_xport *base, struct wb_xport_event *ev, int max)
{
	struct skeleton *x = skeleton_of(base);
	int n = 0;

	wb__desk_bury(&x->desk);
	(void)!read(x->event_fd, &(uint64_t){0}, sizeof(uint64_t));
	while (n < max && x->head != x->tail)
		ev[n++] = x->event[x->head++ % EVENTS];
	return n + wb__desk_tell(&x->desk, ev + n, max - n, wb_now_ns(&wb_clock_real));
}

static int skeleton_event_fd(struct wb_xport *base)
{
	return skeleton_of(base)->event_fd;
}

static void skeleton_close(struct wb_xport *base)
{
	struct skeleton *x = skeleton_of(base), **p = &all;
	struct wb__account *a;

	while (*p != x)
		p = &(*p)->next;
	*p = x->next;
	for (uint32_t at = 0; (a = wb__book_next(&x->desk.book, &at));)
		if (a->state < WB__C_CLOSING)
			skeleton_hang_up(&x->desk, a, "closed");
	wb__desk_finish(&x->desk);
	close(x->event_fd);
	free(x);
}

static int skeleton_open(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	struct skeleton *x = find(o->name) ? NULL : calloc(1, sizeof(*x));

	if (!x)
		return wb_err_set(err, -EEXIST, "agent %s has a transport already", o->name);
	snprintf(x->name, sizeof(x->name), "%s", o->name);
	x->sockets = o->sockets ? o->sockets : 1;
	x->depth = o->depth ? o->depth : 64;
	x->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	wb__desk_init(&x->desk, wb_xport_find("skeleton"), &desk_ops, o->conns_max);
	x->next = all;
	all = x;
	*out = &x->desk.base;
	return 0;
}

/* adopt and stats: there are no sockets and no rails. */
static const struct wb_xport_ops skeleton_ops = {WB__DESK_OPERATIONS, .name = "skeleton",
	.scheme = SCHEME, .sockets_min = 1, .caps = WB_XPORT_CAP_LOCAL, .open = skeleton_open,
	.close = skeleton_close, .listen = skeleton_listen, .connect = skeleton_connect,
	.poll = skeleton_poll, .event_fd = skeleton_event_fd};

void fx_skeleton_register(void)
{
	wb_xport_register(&skeleton_ops);
}
