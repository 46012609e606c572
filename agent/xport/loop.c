/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of tcp, shm and verbs on the loop thread, except poll (poll.c). */
#include "net/psk.h"
#include "xport/conn.h"
#include "xport/secure.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_PIECE (128u << 10)
#define DEFAULT_HANDSHAKE_NS (5 * WB_NS_PER_S)
#define DEFAULT_SPIN_NS (50 * WB_NS_PER_US)
#define DEFAULT_REKEY (64ull << 30) /* a sixth of what RFC 8446 allows for AES-GCM */
#define SPIN_CORES_MIN 4

/* ---- words to rails ---------------------------------------------------------------------------
 */

static struct wb__sock *sock_of(const struct wb__entry *e)
{
	return wb__conn_of(e->c)->sock[e->lane];
}

static bool has_room(struct wb__desk *d, const struct wb__entry *e)
{
	(void)d;
	return wb__cmd_has_room(sock_of(e)->rail);
}

static void send_entry(struct wb__desk *d, const struct wb__entry *e)
{
	static const enum wb__cmd_kind kind[] = {
		[WB__ENTRY_GRANT] = WB__CMD_GRANT,
		[WB__ENTRY_CANCEL] = WB__CMD_CANCEL,
		[WB__ENTRY_WRITE] = WB__CMD_WRITE,
		[WB__ENTRY_REFUSE] = WB__CMD_REFUSE,
	};
	struct wb__cmd c = {.kind = kind[e->kind],
		.code = e->code,
		.id = e->id,
		.sock = sock_of(e),
		.op = e->op};
	int rc;

	(void)d;
	if (e->chunk)
		c.chunk = *e->chunk;
	rc = wb__cmd(c.sock->rail, &c);
	assert(!rc); /* has_room() found room, and only the loop pushes */
}

static void hang_up(struct wb__desk *d, struct wb__account *a, const char *reason)
{
	wb__conn_close(wb__xport_stream(&d->base), wb__conn_of(a), -ECONNABORTED, reason);
}

static const struct wb__desk_ops desk_ops = {has_room, send_entry, hang_up, wb__conn_free};

/* ---- open and close ---------------------------------------------------------------------------
 */

static void set_defaults(struct wb_xport_opts *o)
{
	o->depth = o->depth ? o->depth : WB_XPORT_DEPTH;
	o->conns_max = o->conns_max ? o->conns_max : WB_XPORT_CONNS_MAX;
	o->piece_bytes = o->piece_bytes ? o->piece_bytes : DEFAULT_PIECE;
	o->piece_bytes = WB_MAX(o->piece_bytes, 4096u);
	if (!o->handshake_timeout_ns)
		o->handshake_timeout_ns = DEFAULT_HANDSHAKE_NS;
	if (!o->spin_ns && sysconf(_SC_NPROCESSORS_ONLN) >= SPIN_CORES_MIN)
		o->spin_ns = DEFAULT_SPIN_NS;
	o->rekey_bytes = o->rekey_bytes ? o->rekey_bytes : DEFAULT_REKEY;
	o->clock = o->clock ? o->clock : &wb_clock_real;
}

static int check_opts(const struct wb_xport_opts *o, struct wb_err *err)
{
	if (!wb__name_ok(o->name))
		return wb_err_set(err, -EINVAL,
			"an agent's name has 1 to %d printable characters without blanks",
			WB_XPORT_NAME_MAX - 1);
	if (!o->n_rail || o->n_rail > WB_XPORT_RAILS_MAX)
		return wb_err_set(err, -EINVAL, "a transport has 1 to %d rails, not %u",
			WB_XPORT_RAILS_MAX, o->n_rail);
	if (o->sockets > WB_XPORT_SOCKETS_MAX || o->depth > WB_XPORT_DEPTH_MAX ||
		o->conns_max > WB_XPORT_CONNS_MAX)
		return wb_err_set(err, -EINVAL,
			"at most %d sockets a peer, %d grants outstanding, %d connections",
			WB_XPORT_SOCKETS_MAX, WB_XPORT_DEPTH_MAX, WB_XPORT_CONNS_MAX);
	return 0;
}

int wb__xport_stream_open(const struct wb_xport_ops *ops, const struct wb__link_ops *link,
	const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	struct wb__xport_stream *x;
	struct wb_err why = {0};
	int rc = check_opts(o, err);

	if (rc)
		return rc;
	x = wb_zalloc(1, sizeof(*x));
	if (!x)
		return wb_err_set(err, -ENOMEM, "no memory for transport %s", ops->name);
	x->link = link;
	x->o = *o;
	set_defaults(&x->o);
	snprintf(x->name, sizeof(x->name), "%s", o->name);
	x->o.name = x->name;
	x->o.rail = NULL;
	wb__desk_init(&x->desk, ops, &desk_ops, x->o.conns_max);
	assert(o->tag < WB_XPORT_SET_MAX);
	x->desk.book.tag = o->tag;
	pthread_mutex_init(&x->epoch_lock, NULL);
	x->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	x->rail = wb_zalloc(o->n_rail, sizeof(*x->rail));
	rc = x->event_fd < 0 ? -errno : !x->rail ? -ENOMEM : 0;
	if (!rc && link->open)
		rc = link->open(x, o, &why);
	for (uint32_t i = 0; !rc && i < o->n_rail; i++) {
		x->n_rail = i + 1;
		rc = wb__rail_open(x, i, &o->rail[i]);
		if (rc == -EINVAL)
			wb_err_set(&why, rc,
				"rail %u: '%.100s' is no address it could have; names are not "
				"looked up",
				i, o->rail[i].addr ? o->rail[i].addr : "");
	}
	if (rc) {
		wb__xport_stream_close(&x->desk.base);
		return wb_err_set(err, rc, "cannot start transport %s: %s", ops->name,
			why.msg[0] ? why.msg : wb_strerror(rc));
	}
	*out = &x->desk.base;
	return 0;
}

/* The book keeps a descriptor of our own for each region, or -1. */
static void close_region(const struct wb_xport_region *r)
{
	if (r && r->fd >= 0)
		close(r->fd);
}

void wb__xport_stream_close(struct wb_xport *base)
{
	struct wb__xport_stream *x = wb__xport_stream(base);

	for (uint32_t i = 0; i < x->n_rail; i++)
		wb__rail_close(&x->rail[i]);
	if (x->link->close)
		x->link->close(x);
	for (uint32_t i = 0; i < x->desk.book.n_region; i++)
		close_region(wb__book_region_get(&x->desk.book, i));
	if (x->event_fd >= 0)
		close(x->event_fd);
	pthread_mutex_destroy(&x->epoch_lock);
	wb__desk_finish(&x->desk);
	wb__secure_ctx_destroy(x->secure);
	wb_free(x->rail);
	wb_free(x);
}

int wb__xport_stream_listen(struct wb_xport *base, char *endpoint, size_t cap, struct wb_err *err)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	int fd[WB_XPORT_RAILS_MAX];
	size_t at = 0;
	uint32_t i;
	int rc;

	if (x->is_listening)
		return wb_err_set(err, -EALREADY, "the transport listens already");
	if (!cap)
		return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
	for (i = 0; i < x->n_rail; i++) {
		if (i && at + 1 < cap)
			endpoint[at++] = ',';
		rc = x->link->listen(&x->rail[i], &fd[i], endpoint + at, cap - at, err);
		if (rc)
			goto fail;
		at += strlen(endpoint + at);
	}
	for (i = 0; i < x->n_rail; i++) {
		struct wb__cmd c = {.kind = WB__CMD_LISTEN, .n = fd[i]};

		wb__cmd_must(&x->rail[i], &c);
	}
	x->is_listening = true;
	return 0;
fail:
	while (i--)
		close(fd[i]);
	return rc;
}

/* The rail whose address the socket came to.  Several rails with that address take turns; so do all
 * rails if none has it. */
static struct wb__rail *home_of(struct wb__xport_stream *x, int fd)
{
	for (uint32_t k = 0; k < x->n_rail; k++) {
		uint32_t i = (x->adopt_next + k) % x->n_rail;

		if (x->link->is_home && !x->link->is_home(&x->rail[i], fd))
			continue;
		x->adopt_next = i + 1;
		return &x->rail[i];
	}
	return &x->rail[x->adopt_next++ % x->n_rail];
}

int wb__xport_stream_adopt(struct wb_xport *base, int fd_take, struct wb_err *err)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	struct wb__cmd c = {.kind = WB__CMD_ADOPT, .n = fd_take};
	int flags = fcntl(fd_take, F_GETFL);

	if (flags < 0 || fcntl(fd_take, F_SETFL, flags | O_NONBLOCK) ||
		wb__cmd(home_of(x, fd_take), &c)) {
		int rc = flags < 0 ? -errno : -EAGAIN;

		close(fd_take);
		return wb_err_set(err, rc, "cannot adopt the socket: %s", wb_strerror(rc));
	}
	return 0;
}

int wb__xport_stream_event_fd(struct wb_xport *base)
{
	return wb__xport_stream(base)->event_fd;
}

int wb__xport_stream_stats(struct wb_xport *base, uint32_t rail, struct wb_xport_stats *out)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	struct wb__rail *r = &x->rail[rail];

	if (rail >= x->n_rail)
		return -EINVAL;
	out->rx_bytes = atomic_load_explicit(&r->rx_bytes, memory_order_relaxed);
	out->tx_bytes = atomic_load_explicit(&r->tx_bytes, memory_order_relaxed);
	out->rx_chunks = atomic_load_explicit(&r->rx_chunks, memory_order_relaxed);
	out->tx_chunks = atomic_load_explicit(&r->tx_chunks, memory_order_relaxed);
	out->sleeps = atomic_load_explicit(&r->sleeps, memory_order_relaxed);
	out->rejected = atomic_load_explicit(&r->rejected, memory_order_relaxed);
	out->throttled_ns = atomic_load_explicit(&r->throttled_ns, memory_order_relaxed);
	out->rekeys = atomic_load_explicit(&r->rekeys, memory_order_relaxed);
	out->word_bytes = atomic_load_explicit(&r->word_bytes, memory_order_relaxed);
	out->requests = atomic_load_explicit(&r->requests, memory_order_relaxed);
	out->doorbells = atomic_load_explicit(&r->doorbells, memory_order_relaxed);
	out->completions = atomic_load_explicit(&r->completions, memory_order_relaxed);
	out->rails_lost = atomic_load_explicit(&r->rails_lost, memory_order_relaxed);
	return 0;
}

/* ---- epochs -----------------------------------------------------------------------------------
 */

bool wb__xport_stream_epoch_of(
	struct wb__xport_stream *x, const struct wb__hello *h, struct wb_xport_epoch *out)
{
	const struct wb_xport_epoch *e;

	pthread_mutex_lock(&x->epoch_lock);
	e = wb__book_epoch_named(&x->desk.book, h->object, h->term, h->number);
	if (e)
		*out = *e;
	pthread_mutex_unlock(&x->epoch_lock);
	return e != NULL;
}

/* Make the TLS context if the epoch needs one.  This happens before the epoch is entered, so a rail
 * that finds the epoch (under epoch_lock) also sees the context. */
static int prepare_secure(
	struct wb__xport_stream *x, const struct wb_xport_epoch *e, struct wb_err *err)
{
	int rc = 0;

	if (e->is_encrypted && x->link->is_clear)
		return wb_err_set(err, -ENOTSUP,
			"encryption is TLS for this object, and transport %s moves bytes in the "
			"clear",
			x->desk.base.ops->name);
	if (wb__xport_stream_over(x, e) == WBP_BULK_OVER_TLS && !x->secure)
		rc = wb__secure_ctx_create(x->o.rekey_bytes, &x->secure);
	if (rc)
		wb_err_set(err, rc, "no TLS for epoch %llu.%llu: %s",
			(unsigned long long)e->id.term, (unsigned long long)e->id.number,
			rc == -ENOTSUP ? "OpenSSL here lacks TLS 1.3 with AES-GCM"
				       : wb_strerror(rc));
	return rc;
}

int wb__xport_stream_epoch_add(
	struct wb_xport *base, const struct wb_xport_epoch *e, struct wb_err *err)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	int rc = wb__book_epoch_known(&x->desk.book, e, err);

	if (rc)
		return rc > 0 ? 0 : rc;
	rc = prepare_secure(x, e, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&x->epoch_lock);
	rc = wb__book_epoch_put(&x->desk.book, e, err);
	pthread_mutex_unlock(&x->epoch_lock);
	return rc;
}

int wb__xport_stream_epoch_remove(struct wb_xport *base, const struct wb_epoch_id *id)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	struct wb__account *a;
	int n = 0, rc;

	pthread_mutex_lock(&x->epoch_lock);
	rc = wb__book_epoch_forget(&x->desk.book, id);
	pthread_mutex_unlock(&x->epoch_lock);
	for (uint32_t at = 0; !rc && (a = wb__book_of_epoch(&x->desk.book, id, &at));) {
		n += a->was_announced;
		wb__conn_close(x, wb__conn_of(a), -ECONNABORTED, "the epoch was revoked here");
	}
	return rc ? rc : n;
}

/* ---- regions ----------------------------------------------------------------------------------
 */

/* Give each rail a descriptor of its own, so that they can be closed in any order.  0, or -errno;
 * then none is left. */
static int dup_for_rails(const struct wb__xport_stream *x, int fd, int *out)
{
	for (uint32_t i = 0; i < x->n_rail; i++) {
		out[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (fd >= 0 && out[i] < 0) {
			int rc = -errno;

			while (i--)
				close(out[i]);
			return rc;
		}
	}
	return 0;
}

static void tell_rails(struct wb__xport_stream *x, struct wb__cmd *c, const int *fd)
{
	for (uint32_t i = 0; i < x->n_rail; i++) {
		c->region.fd = fd ? fd[i] : -1;
		wb__cmd_must(&x->rail[i], c);
	}
}

/* Make a read-only descriptor of the region for the peers, which map it, and seal the memory, since
 * a mapping must not shrink while a peer uses it.  *fd stays -1 where no peer maps it. */
static int region_fd(
	struct wb__xport_stream *x, const struct wb_xport_region *r, int *fd, struct wb_err *err)
{
	char path[32];

	*fd = -1;
	if (r->fd < 0 || !wb__region_is_source(r))
		return 0;
	if (x->link->region_add) { /* no peer maps it, but the book wants a descriptor */
		*fd = fcntl(r->fd, F_DUPFD_CLOEXEC, 0);
		return *fd < 0 ? wb_err_set(err, -errno, "no descriptor: %s", strerror(errno)) : 0;
	}
	if (!x->link->region)
		return 0;
	if (fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK) &&
		!(fcntl(r->fd, F_GET_SEALS) & F_SEAL_SHRINK))
		return wb_err_set(err, -EPERM,
			"the region's memory cannot be sealed against shrinking: %s "
			"(is it a memfd made with MFD_ALLOW_SEALING?)",
			strerror(errno));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", r->fd);
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return wb_err_set(
			err, -errno, "cannot reopen the region read-only: %s", strerror(errno));
	return 0;
}

int wb__xport_stream_region_add(
	struct wb_xport *base, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	struct wb__cmd c = {.kind = WB__CMD_REGION, .region = *r};
	struct wb_xport_region ours = *r;
	int rail_fd[WB_XPORT_RAILS_MAX], rc = wb__region_check(r, err);

	if (!rc)
		rc = region_fd(x, r, &ours.fd, err);
	if (rc)
		return rc;
	ours.gpu.dmabuf_fd = -1; /* the link has the caller's, and duplicates it if it needs it */
	rc = wb__book_region_put(&x->desk.book, &ours, id, err);
	if (rc) {
		close_region(&ours);
		return rc;
	}
	rc = x->link->region ? dup_for_rails(x, ours.fd, rail_fd) : 0;
	if (rc) {
		wb__book_region_drop(&x->desk.book, *id);
		close_region(&ours);
		return wb_err_set(
			err, rc, "no descriptor of the region for each rail: %s", strerror(-rc));
	}
	c.n = *id;
	if (x->link->region)
		tell_rails(x, &c, rail_fd);
	if (x->link->region_add)
		rc = x->link->region_add(x, *id, r, err);
	if (rc) {
		wb__book_region_drop(&x->desk.book, *id);
		close_region(&ours);
	}
	return rc;
}

enum wb_xport_path wb__xport_stream_region_path(
	struct wb_xport *base, uint32_t id, char *out, size_t cap)
{
	struct wb__xport_stream *x = wb__xport_stream(base);

	if (x->link->region_path && wb__book_region_get(&x->desk.book, id))
		return x->link->region_path(x, id, out, cap);
	return wb__desk_region_path(base, id, out, cap);
}

int wb__xport_stream_region_remove(struct wb_xport *base, uint32_t id)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	struct wb__cmd c = {.kind = WB__CMD_UNREGION, .n = id};
	const struct wb_xport_region *r = wb__book_region_get(&x->desk.book, id);
	int fd = r ? r->fd : -1, rc = wb__book_region_drop(&x->desk.book, id);

	if (rc)
		return rc;
	if (fd >= 0)
		close(fd);
	if (x->link->region)
		tell_rails(x, &c, NULL);
	if (x->link->region_remove)
		x->link->region_remove(x, id);
	return 0;
}

/* ---- connections ------------------------------------------------------------------------------
 */

/* Copy the @i-th of the comma-separated parts to @out, beginning again after the last one.  false:
 * the part is empty or too long. */
static bool endpoint_part(const char *text, uint32_t i, char *out, size_t cap)
{
	uint32_t n = 1, k;
	size_t len;

	for (const char *s = text; *s; s++)
		n += *s == ',';
	for (k = i % n; k; k--)
		text = strchr(text, ',') + 1;
	len = strcspn(text, ",");
	if (!len || len >= cap)
		return false;
	memcpy(out, text, len);
	out[len] = 0;
	return true;
}

/* The @i-th of the rails in @rails, beginning again after the last one; @rails 0: of all rails. */
static struct wb__rail *own_rail(struct wb__xport_stream *x, uint32_t rails, uint32_t i)
{
	if (!rails)
		return &x->rail[i % x->n_rail];
	for (i %= (uint32_t)__builtin_popcount(rails); i; i--)
		rails &= rails - 1;
	return &x->rail[__builtin_ctz(rails)];
}

static int dial(struct wb__xport_stream *x, struct wb__conn *c, const struct wb_xport_peer *p,
	uint32_t i, struct wb_err *err)
{
	struct wb__rail *r = own_rail(x, p->rails, i);
	const struct wb_epoch_id *id = &c->a.info.epoch;
	const struct wb_xport_epoch *e = wb__book_epoch_find(&x->desk.book, id);
	struct wb__sock *s;
	char part[256];
	int fd, rc;

	if (!endpoint_part(p->endpoint, i, part, sizeof(part)))
		return wb_err_set(err, -EINVAL, "endpoint '%.100s' of agent %s is not valid",
			p->endpoint, p->name);
	rc = x->link->dial(r, part, &fd, err);
	if (rc)
		return wb_err_wrap(err, rc, "agent %s", p->name);
	if (x->link->tune)
		x->link->tune(x, fd);
	s = wb__sock_create(r, fd, true);
	if (!s || wb__sock_tables(s, c->a.n_slot)) {
		wb__sock_free(s);
		close(fd);
		return wb_err_set(err, -ENOMEM, "no memory to connect to agent %s", p->name);
	}
	memcpy(s->key, e->key, sizeof(s->key));
	s->conn = c;
	s->state = WB__S_CONNECTING;
	s->hello = (struct wb__hello){.object = id->object.hash,
		.term = id->term,
		.number = id->number,
		.session = c->session,
		.index = (uint16_t)i,
		.count = (uint16_t)c->a.n_lane,
		.slots = (uint16_t)c->a.n_slot,
		.over = wb__xport_stream_over(x, e)};
	snprintf(s->hello.dialer, sizeof(s->hello.dialer), "%s", x->name);
	snprintf(s->hello.acceptor, sizeof(s->hello.acceptor), "%s", p->name);
	snprintf(s->peer, sizeof(s->peer), "%s", p->name);
	c->sock[i] = s;
	c->n_present++;
	return 0;
}

int wb__xport_stream_connect(
	struct wb_xport *base, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	struct wb__xport_stream *x = wb__xport_stream(base);
	struct wb_xport_conn_info info;
	struct wb__conn *c = NULL;
	uint32_t n_rail;
	int rc = wb__desk_dial(&x->desk, p, &info, err);

	if (rc)
		return rc;
	if (p->rails >> x->n_rail || p->depth > WB_XPORT_DEPTH_MAX)
		return wb_err_set(err, -EINVAL,
			"rails %#x and %u grants for agent %s: there are %u rails here, and at "
			"most %d grants",
			p->rails, p->depth, p->name, x->n_rail, WB_XPORT_DEPTH_MAX);
	n_rail = p->rails ? (uint32_t)__builtin_popcount(p->rails) : x->n_rail;
	info.via = wb__xport_stream_via(x, wb__book_epoch_find(&x->desk.book, p->epoch));
	info.depth = p->depth ? p->depth : x->o.depth;
	info.n_socket = x->o.sockets ? x->o.sockets : wb_xport_sockets(n_rail, p->endpoint);
	info.n_socket = WB_MIN(info.n_socket, info.depth);
	rc = wb__conn_create(x, &info, (uint32_t)wb_ceil_div(info.depth, info.n_socket), &c);
	if (rc)
		return wb_err_set(err, rc, "cannot connect to agent %s: %s", p->name,
			rc == -ENOSPC ? "too many connections" : "no memory");
	rc = wb_random_bytes(&c->session, sizeof(c->session));
	if (rc)
		wb_err_set(err, rc, "cannot connect to agent %s: the system gives no random bytes",
			p->name);
	for (uint32_t i = 0; !rc && i < info.n_socket; i++)
		rc = dial(x, c, p, i, err);
	for (uint32_t i = 0; i < info.n_socket; i++) {
		struct wb__cmd cmd = {.kind = WB__CMD_DIAL, .sock = c->sock[i]};

		if (!rc) {
			wb__cmd_must(c->sock[i]->rail, &cmd);
		} else if (c->sock[i]) {
			close(c->sock[i]->fd);
			wb__sock_free(c->sock[i]);
		}
	}
	if (rc) {
		wb__book_drop(&x->desk.book, &c->a);
		wb__conn_free(&c->a);
		return rc;
	}
	c->a.was_announced = true;
	*out = c->a.id;
	return 0;
}
