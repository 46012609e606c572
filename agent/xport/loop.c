/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of tcp and shm on the loop thread. */
#include "net/psk.h"
#include "xport/conn.h"
#include "xport/secure.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_DEPTH 64
#define DEFAULT_PIECE (128u << 10)
#define DEFAULT_HANDSHAKE_NS (5 * WB_NS_PER_S)
#define DEFAULT_SPIN_NS (50 * WB_NS_PER_US)
#define DEFAULT_REKEY (64ull << 30) /* a sixth of what RFC 8446 allows for AES-GCM */
#define SPIN_CORES_MIN 4

/* ---- open and close ---------------------------------------------------------------------------
 */

static void set_defaults(struct wb_xport_opts *o)
{
	o->depth = o->depth ? o->depth : DEFAULT_DEPTH;
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

int wb__sx_open(const struct wb_xport_ops *ops, const struct wb__link_ops *link,
	const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	struct wb__sx *x;
	int rc = check_opts(o, err);

	if (rc)
		return rc;
	x = wb_zalloc(1, sizeof(*x));
	if (!x)
		return wb_err_set(err, -ENOMEM, "no memory for transport %s", ops->name);
	x->base.ops = ops;
	x->link = link;
	x->o = *o;
	set_defaults(&x->o);
	snprintf(x->name, sizeof(x->name), "%s", o->name);
	x->o.name = x->name;
	x->o.rail = NULL;
	x->dying_tail = &x->dying;
	pthread_mutex_init(&x->epoch_lock, NULL);
	x->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	x->rail = wb_zalloc(o->n_rail, sizeof(*x->rail));
	rc = x->event_fd < 0 ? -errno : !x->rail ? -ENOMEM : 0;
	for (uint32_t i = 0; !rc && i < o->n_rail; i++) {
		x->n_rail = i + 1;
		rc = wb__rail_open(x, i, &o->rail[i]);
	}
	if (rc) {
		wb__sx_close(&x->base);
		return wb_err_set(
			err, rc, "cannot start transport %s: %s", ops->name, wb_strerror(rc));
	}
	*out = &x->base;
	return 0;
}

void wb__sx_close(struct wb_xport *base)
{
	struct wb__sx *x = wb__sx(base);

	for (uint32_t i = 0; i < x->n_rail; i++)
		wb__rail_close(&x->rail[i]);
	for (uint32_t i = 0; i < x->conn_cap; i++)
		wb__conn_free(x->conn[i]);
	while (x->dead) {
		struct wb__conn *c = x->dead;

		x->dead = c->next;
		wb__conn_free(c);
	}
	for (uint32_t i = 0; i < x->n_region; i++) {
		if (x->region[i].is_used && x->region[i].r.fd >= 0)
			close(x->region[i].r.fd);
	}
	if (x->event_fd >= 0)
		close(x->event_fd);
	pthread_mutex_destroy(&x->epoch_lock);
	explicit_bzero(x->epoch, sizeof(x->epoch));
	wb__secure_ctx_destroy(x->secure);
	wb_free(x->conn);
	wb_free(x->rail);
	wb_free(x);
}

int wb__sx_listen(struct wb_xport *base, char *endpoint, size_t cap, struct wb_err *err)
{
	struct wb__sx *x = wb__sx(base);
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

/* The rail whose address it came to; of several, and where it is none's, the next in turn. */
static struct wb__rail *home_of(struct wb__sx *x, int fd)
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

int wb__sx_adopt(struct wb_xport *base, int fd_take, struct wb_err *err)
{
	struct wb__sx *x = wb__sx(base);
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

int wb__sx_event_fd(struct wb_xport *base)
{
	return wb__sx(base)->event_fd;
}

int wb__sx_stats(struct wb_xport *base, uint32_t rail, struct wb_xport_stats *out)
{
	struct wb__sx *x = wb__sx(base);
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
	return 0;
}

/* ---- epochs -----------------------------------------------------------------------------------
 */

static bool same_epoch(
	const struct wb_xport_epoch *e, uint64_t object, uint64_t term, uint64_t number)
{
	return e->object == object && e->term == term && e->number == number;
}

bool wb__sx_epoch_find(struct wb__sx *x, uint64_t object, uint64_t term, uint64_t number,
	struct wb_xport_epoch *out)
{
	bool found = false;

	pthread_mutex_lock(&x->epoch_lock);
	for (uint32_t i = 0; i < x->n_epoch && !found; i++) {
		found = same_epoch(&x->epoch[i], object, term, number);
		if (found && out)
			*out = x->epoch[i];
	}
	pthread_mutex_unlock(&x->epoch_lock);
	return found;
}

/* Rails see the context behind the epoch, whose lock they take. */
static int prepare_secure(struct wb__sx *x, const struct wb_xport_epoch *e, struct wb_err *err)
{
	int rc = 0;

	if (wb__sx_over(x, e) == WBP_BULK_OVER_TLS && !x->secure)
		rc = wb__secure_ctx_create(x->o.rekey_bytes, &x->secure);
	if (rc)
		wb_err_set(err, rc, "no TLS for epoch %llu.%llu: %s", (unsigned long long)e->term,
			(unsigned long long)e->number,
			rc == -ENOTSUP ? "OpenSSL here lacks TLS 1.3 with AES-GCM"
				       : wb_strerror(rc));
	return rc;
}

int wb__sx_epoch_add(struct wb_xport *base, const struct wb_xport_epoch *e, struct wb_err *err)
{
	struct wb__sx *x = wb__sx(base);
	struct wb_xport_epoch known;
	int rc;

	if (wb__sx_epoch_find(x, e->object, e->term, e->number, &known)) {
		if (wb_bytes_equal(known.key, e->key, sizeof(known.key)) &&
			known.is_encrypted == e->is_encrypted)
			return 0;
		return wb_err_set(err, -EEXIST,
			"epoch %llu.%llu is known with another key or encryption",
			(unsigned long long)e->term, (unsigned long long)e->number);
	}
	if (x->n_epoch == WB__EPOCHS_MAX)
		return wb_err_set(err, -ENOSPC, "more than %d epochs at once", WB__EPOCHS_MAX);
	rc = prepare_secure(x, e, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&x->epoch_lock);
	x->epoch[x->n_epoch++] = *e;
	pthread_mutex_unlock(&x->epoch_lock);
	return 0;
}

int wb__sx_epoch_remove(struct wb_xport *base, const struct wb_xport_epoch *e)
{
	struct wb__sx *x = wb__sx(base);
	int n = 0;
	uint32_t i;

	for (i = 0; i < x->n_epoch; i++) {
		if (same_epoch(&x->epoch[i], e->object, e->term, e->number))
			break;
	}
	if (i == x->n_epoch)
		return -ENOENT;
	pthread_mutex_lock(&x->epoch_lock);
	x->epoch[i] = x->epoch[--x->n_epoch];
	explicit_bzero(&x->epoch[x->n_epoch], sizeof(x->epoch[0]));
	pthread_mutex_unlock(&x->epoch_lock);
	for (i = 0; i < x->conn_cap; i++) {
		struct wb__conn *c = x->conn[i];

		if (!c || !same_epoch(e, c->info.object, c->info.term, c->info.number))
			continue;
		n += c->was_announced;
		wb__conn_close(x, c, -ECONNABORTED, "the epoch was revoked here");
	}
	return n;
}

/* ---- regions ----------------------------------------------------------------------------------
 */

/* Each rail has its own descriptor: then no order of closing matters.  All of them, or none and
 * -errno. */
static int dup_for_rails(const struct wb__sx *x, int fd, int *out)
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

static void tell_rails(struct wb__sx *x, struct wb__cmd *c, const int *fd)
{
	for (uint32_t i = 0; i < x->n_rail; i++) {
		c->region.fd = fd ? fd[i] : -1;
		wb__cmd_must(&x->rail[i], c);
	}
}

int wb__sx_region_add(
	struct wb_xport *base, const struct wb_xport_region *r, uint32_t *id, struct wb_err *err)
{
	struct wb__sx *x = wb__sx(base);
	struct wb__cmd c = {.kind = WB__CMD_REGION};
	char path[32];
	uint32_t i;
	int fd = -1, rail_fd[WB_XPORT_RAILS_MAX], rc;

	if (!r->bytes || !r->base || r->bytes > (uintptr_t)-1 - (uintptr_t)r->base)
		return wb_err_set(err, -EINVAL, "an empty region");
	for (i = 0; i < WB__REGIONS_MAX && x->region[i].is_used; i++)
		;
	if (i == WB__REGIONS_MAX)
		return wb_err_set(err, -ENOSPC, "more than %d regions", WB__REGIONS_MAX);
	if (x->link->region && r->fd >= 0) {
		/* Peers map it; they must be sure that it does not shrink under them. */
		if (fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK) &&
			!(fcntl(r->fd, F_GET_SEALS) & F_SEAL_SHRINK))
			return wb_err_set(err, -EPERM,
				"the region's memory cannot be sealed against shrinking: %s "
				"(is it a memfd made with MFD_ALLOW_SEALING?)",
				strerror(errno));
		/* A descriptor that only reads, for the peers. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", r->fd);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return wb_err_set(err, -errno, "cannot reopen the region read-only: %s",
				strerror(errno));
	}
	rc = dup_for_rails(x, fd, rail_fd);
	if (rc) {
		close(fd);
		return wb_err_set(
			err, rc, "no descriptor of the region for each rail: %s", strerror(-rc));
	}
	x->region[i] = (struct wb__region){.is_used = true, .r = *r};
	x->n_region = WB_MAX(x->n_region, i + 1);
	x->region[i].r.fd = fd; /* ours, or -1 */
	if (fd >= 0)
		wb__regions_put(&x->by_address, i, r);
	if (x->link->region) {
		c.n = i;
		c.region = *r;
		tell_rails(x, &c, rail_fd);
	}
	*id = i;
	return 0;
}

int wb__sx_region_remove(struct wb_xport *base, uint32_t id)
{
	struct wb__sx *x = wb__sx(base);
	struct wb__cmd c = {.kind = WB__CMD_UNREGION, .n = id};

	if (id >= x->n_region || !x->region[id].is_used)
		return -ENOENT;
	if (x->region[id].refs)
		return -EBUSY;
	if (x->link->region) {
		if (x->region[id].r.fd >= 0)
			close(x->region[id].r.fd);
		tell_rails(x, &c, NULL);
	}
	wb__regions_drop(&x->by_address, id);
	x->region[id].is_used = false;
	return 0;
}

/* ---- connections ------------------------------------------------------------------------------
 */

/* The @i-th of the comma-separated parts, going round; false: no parts. */
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

static int dial(struct wb__sx *x, struct wb__conn *c, const struct wb_xport_peer *p, uint32_t i,
	struct wb_err *err)
{
	struct wb__rail *r = &x->rail[i % x->n_rail];
	struct wb_xport_epoch e = p->epoch;
	struct wb__sock *s;
	char part[256];
	int fd, rc;

	if (!endpoint_part(p->endpoint, i, part, sizeof(part)))
		return wb_err_set(err, -EINVAL, "endpoint '%.100s' of agent %s is not valid",
			p->endpoint, p->name);
	rc = x->link->dial(r, part, &fd, err);
	if (rc)
		return wb_err_wrap(err, rc, "agent %s", p->name);
	x->link->tune(x, fd);
	s = wb__sock_create(r, fd, true);
	if (!s || wb__sock_tables(s, c->n_slot)) {
		wb__sock_free(s);
		close(fd);
		return wb_err_set(err, -ENOMEM, "no memory to connect to agent %s", p->name);
	}
	wb__sx_epoch_find(x, e.object, e.term, e.number, &e);
	memcpy(s->key, e.key, sizeof(s->key));
	s->conn = c;
	s->state = WB__S_CONNECTING;
	s->hello = (struct wb__hello){.object = e.object,
		.term = e.term,
		.number = e.number,
		.session = c->session,
		.index = (uint16_t)i,
		.count = (uint16_t)c->info.n_socket,
		.slots = (uint16_t)c->n_slot,
		.over = wb__sx_over(x, &e)};
	snprintf(s->hello.dialer, sizeof(s->hello.dialer), "%s", x->name);
	snprintf(s->hello.acceptor, sizeof(s->hello.acceptor), "%s", p->name);
	snprintf(s->peer, sizeof(s->peer), "%s", p->name);
	c->sock[i] = s;
	c->n_present++;
	return 0;
}

int wb__sx_connect(
	struct wb_xport *base, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	struct wb__sx *x = wb__sx(base);
	struct wb_xport_conn_info info = {.is_dialer = true, .user = p->user};
	struct wb__conn *c = NULL;
	int rc;

	if (!wb__name_ok(p->name) || !p->endpoint)
		return wb_err_set(err, -EINVAL, "a peer needs a name and an endpoint");
	if (!wb__sx_epoch_find(x, p->epoch.object, p->epoch.term, p->epoch.number, NULL))
		return wb_err_set(err, -ENOENT, "epoch %llu.%llu is not known here",
			(unsigned long long)p->epoch.term, (unsigned long long)p->epoch.number);
	info.object = p->epoch.object;
	info.term = p->epoch.term;
	info.number = p->epoch.number;
	info.n_socket = x->o.sockets ? x->o.sockets : wb_xport_sockets(x->n_rail, p->endpoint);
	info.n_socket = WB_MIN(info.n_socket, x->o.depth);
	info.depth = x->o.depth;
	snprintf(info.peer, sizeof(info.peer), "%s", p->name);
	rc = wb__conn_create(x, &info, (uint32_t)wb_ceil_div(info.depth, info.n_socket), &c);
	if (rc)
		return wb_err_set(err, rc, "cannot connect to agent %s: %s", p->name,
			rc == -ENOSPC ? "too many connections" : "no memory");
	rc = wb_random_bytes(&c->session, sizeof(c->session));
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
		wb__conn_drop(x, c);
		wb__conn_free(c);
		return rc;
	}
	c->was_announced = true;
	*out = c->id;
	return 0;
}

int wb__sx_disconnect(struct wb_xport *base, wb_conn_t id)
{
	struct wb__sx *x = wb__sx(base);
	struct wb__conn *c = wb__conn_get(x, id);

	if (!c || c->state == WB__C_DYING)
		return -ENOTCONN;
	wb__conn_close(x, c, -ECONNABORTED, "disconnected here");
	return 0;
}

/* ---- chunks -----------------------------------------------------------------------------------
 */

static int sum_iov(const struct iovec *iov, uint32_t n_iov, uint64_t *bytes)
{
	uint64_t sum = 0;

	if (!n_iov || n_iov > WB_XPORT_IOV_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n_iov; i++) {
		if (!iov[i].iov_base || !iov[i].iov_len || iov[i].iov_len > WB_XPORT_CHUNK_MAX)
			return -EINVAL;
		sum += iov[i].iov_len;
	}
	if (sum > WB_XPORT_CHUNK_MAX)
		return -EINVAL;
	*bytes = sum;
	return 0;
}

/* The socket with the least to do that has a free slot, or NULL.  Of equal ones the next in turn:
 * where fewer grants are out than there are rails, all of them work nevertheless. */
static struct wb__sock *pick_socket(struct wb__conn *c, uint32_t *index)
{
	struct wb__sock *best = NULL;

	for (uint32_t k = 0; k < c->info.n_socket; k++) {
		uint32_t i = (c->turn + k) % c->info.n_socket;

		if (!c->n_free[i] || (best && c->load[i] >= c->load[*index]))
			continue;
		best = c->sock[i];
		*index = i;
	}
	return best;
}

int wb__sx_grant(struct wb_xport *base, wb_conn_t id, const struct wb_xport_grant *g)
{
	struct wb__conn *c = wb__conn_get(wb__sx(base), id);
	struct wb__cmd cmd = {.kind = WB__CMD_GRANT};
	struct wb__op *op;
	uint64_t bytes;
	uint32_t i, slot;
	int rc;

	if (!c || c->state >= WB__C_CLOSING)
		return -ENOTCONN;
	if (!c->info.is_dialer || c->state != WB__C_UP)
		return -EINVAL;
	if (sum_iov(g->iov, g->n_iov, &bytes) || bytes != g->chunk.bytes)
		return -EINVAL;
	if (c->outstanding >= c->info.depth)
		return -EAGAIN;
	cmd.sock = pick_socket(c, &i);
	if (!cmd.sock)
		return -EAGAIN;
	slot = c->free_slot[i * c->n_slot + c->n_free[i] - 1];
	op = &c->op[i * c->n_slot + slot];
	op->gen++;
	op->id = slot | (uint64_t)op->gen << 16;
	op->cookie = g->cookie;
	op->bytes = bytes;
	op->iov = g->iov;
	op->n_iov = g->n_iov;
	op->observe = g->observe;
	op->copy = g->copy;
	op->ctx = g->ctx;
	cmd.op = op;
	cmd.chunk = g->chunk;
	rc = wb__cmd(cmd.sock->rail, &cmd);
	if (rc)
		return rc;
	op->state = WB__OP_OUT;
	c->turn = (i + 1) % c->info.n_socket;
	c->n_free[i]--;
	c->load[i] += bytes;
	c->outstanding++;
	return 0;
}

int wb__sx_cancel(struct wb_xport *base, wb_conn_t id, uint64_t cookie)
{
	struct wb__conn *c = wb__conn_get(wb__sx(base), id);
	struct wb__cmd cmd = {.kind = WB__CMD_CANCEL};
	uint32_t n;
	int rc;

	if (!c || c->state >= WB__C_CLOSING)
		return -ENOTCONN;
	if (!c->info.is_dialer)
		return -ENOENT;
	n = c->info.n_socket * c->n_slot;
	for (uint32_t k = 0; k < n; k++) {
		struct wb__op *op = &c->op[k];

		if (op->state == WB__OP_FREE || op->state == WB__OP_CANCELLED ||
			op->cookie != cookie)
			continue;
		if (op->state == WB__OP_CANCELLING)
			return -EALREADY;
		cmd.sock = c->sock[k / c->n_slot];
		cmd.op = op;
		cmd.id = op->id;
		rc = wb__cmd(cmd.sock->rail, &cmd);
		if (!rc)
			op->state = WB__OP_CANCELLING;
		return rc;
	}
	return -ENOENT;
}

static struct wb__ask *open_ask(struct wb__conn *c, uint64_t grant, uint32_t *k)
{
	uint32_t socket = (uint32_t)(grant >> 48), slot = (uint32_t)(grant & 0xffff);

	if (c->info.is_dialer || socket >= c->info.n_socket || slot >= c->n_slot)
		return NULL;
	*k = socket * c->n_slot + slot;
	if (c->ask[*k].state != WB__ASK_OPEN || c->ask[*k].id != (grant & ~(0xffffull << 48)))
		return NULL;
	return &c->ask[*k];
}

int wb__sx_write(struct wb_xport *base, wb_conn_t id, const struct wb_xport_write *w)
{
	struct wb__sx *x = wb__sx(base);
	struct wb__conn *c = wb__conn_get(x, id);
	struct wb__cmd cmd = {.kind = WB__CMD_WRITE};
	struct wb__ask *ask;
	struct wb__op *op;
	uint64_t bytes;
	uint32_t k;
	int rc;

	if (!c || c->state != WB__C_UP)
		return -ENOTCONN;
	ask = open_ask(c, w->grant, &k);
	if (!ask)
		return -ENOENT;
	if (sum_iov(w->iov, w->n_iov, &bytes) || bytes != ask->bytes)
		return -EINVAL;
	if (base->ops->caps & WB_XPORT_CAP_REGIONS &&
		wb__region_hold(x, c->info.object, w->iov, w->n_iov))
		return -EINVAL;
	op = &c->op[k];
	op->id = ask->id;
	op->cookie = w->cookie;
	op->bytes = bytes;
	op->iov = w->iov;
	op->n_iov = w->n_iov;
	op->observe = w->observe;
	op->copy = NULL;
	op->trailer = w->trailer;
	op->ctx = w->ctx;
	cmd.op = op;
	cmd.id = ask->id;
	cmd.sock = c->sock[k / c->n_slot];
	rc = wb__cmd(cmd.sock->rail, &cmd);
	if (rc) {
		if (base->ops->caps & WB_XPORT_CAP_REGIONS)
			wb__region_drop(x, c->info.object, w->iov, w->n_iov);
		return rc;
	}
	op->state = WB__OP_OUT;
	ask->state = WB__ASK_ANSWERED;
	return 0;
}

int wb__sx_refuse(struct wb_xport *base, wb_conn_t id, uint64_t grant, int code)
{
	struct wb__conn *c = wb__conn_get(wb__sx(base), id);
	struct wb__cmd cmd = {.kind = WB__CMD_REFUSE, .code = code};
	struct wb__ask *ask;
	uint32_t k;
	int rc;

	if (!c || c->state != WB__C_UP)
		return -ENOTCONN;
	if (code >= 0)
		return -EINVAL;
	ask = open_ask(c, grant, &k);
	if (!ask)
		return -ENOENT;
	cmd.id = ask->id;
	cmd.sock = c->sock[k / c->n_slot];
	rc = wb__cmd(cmd.sock->rail, &cmd);
	if (!rc)
		ask->state = WB__ASK_NONE;
	return rc;
}
