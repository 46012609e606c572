/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm link, between agents of one host.  The socket carries no payload: after WRITE come TABLEs
 * of ranges in the source's regions and a TRAILER; the receiver copies from its read-only mappings
 * of these regions and answers RELEASE.
 */
#include "xport/ranges.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "net/psk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Many agents of a plan dial at once.  The system may allow fewer than this. */
#define BACKLOG 4096
#define TRIAL_BYTES (2u << 20)
#define CACHE_LINE 64 /* bytes; longer lines are flushed more than once */
#define TRIALS 4
#define FDS_MAX 8 /* descriptors received whose REGION frame has not been handled yet */

/* A rail's own list of this agent's regions, so that rails and loop share nothing. */
struct shm_rail {
	struct wb_xport_region region[WB__REGIONS_MAX]; /* bytes 0 = none; fd owned */
	uint32_t gen[WB__REGIONS_MAX];
	uint32_t n_region, gen_last;
	struct wb__regions by_address;
};

struct shm_map {
	uint8_t *base; /* NULL = none */
	size_t bytes;
};

struct shm_sock {
	/* source */
	uint32_t told[WB__REGIONS_MAX]; /* generation that the peer knows; 0 = none */
	bool is_dirty; /* regions have come or gone, and the peer may not know it */
	struct wb__giver give;
	/* receiver */
	struct shm_map map[WB__REGIONS_MAX];
	int fd[FDS_MAX];
	uint32_t n_fd;
	struct wb__taker take;
};

/* ---- addresses --------------------------------------------------------------------------------
 */

/* Parse "unix:/path", "unix:@name" or, to listen under any name, "unix:@". */
static int parse_addr(const char *text, bool may_be_any, struct sockaddr_un *a, socklen_t *len,
	struct wb_err *err)
{
	const char *name = text + 5;
	size_t n = strlen(text) < 5 ? 0 : strlen(name);

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	if (strncmp(text, "unix:", 5) || !n || n >= sizeof(a->sun_path) ||
		(*name != '/' && *name != '@') || (n == 1 && (*name == '/' || !may_be_any)))
		return wb_err_set(err, -EINVAL,
			"'%.100s' is not like unix:/path or unix:@name (at most %zu characters)",
			text, sizeof(a->sun_path) - 1);
	memcpy(a->sun_path, name, n);
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*name == '/'));
	if (*name == '@')
		a->sun_path[0] = 0;
	if (n == 1)
		*len = sizeof(sa_family_t); /* the kernel picks an abstract name */
	return 0;
}

/* A name that no other rail has on any host: "wb-BOOT-RANDOM".  BOOT is the same for all agents
 * that run under one kernel. */
#define NAME_BYTES (3 + 16 + 1 + 16)

static uint64_t boot(void)
{
	char text[64];
	ssize_t n;
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text));
	close(fd);
	return n > 0 ? wb_hash64(text, (size_t)n, 0) : 0;
}

int wb_xport_memory(const char *folder, char *out, size_t cap)
{
	struct stat st;
	int n;

	if (cap)
		out[0] = 0;
	if (stat(folder ? folder : "/proc/self/ns/net", &st))
		return -errno;
	n = snprintf(out, cap, "%016llx-%s-%llx-%llx", (unsigned long long)boot(),
		folder ? "folder" : "net", (unsigned long long)st.st_dev,
		(unsigned long long)st.st_ino);
	if (n >= 0 && (size_t)n < cap)
		return 0;
	if (cap)
		out[0] = 0;
	return -ENOSPC;
}

/* Remove memory from the caches.  Weights are larger than caches, so their copies cost what a copy
 * of uncached memory costs.  Writing other memory until the caches are full would take longer than
 * the whole trial. */
static void out_of_caches(const uint8_t *p, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t i = 0; i < bytes; i += CACHE_LINE)
		__builtin_ia32_clflush(p + i);
	__builtin_ia32_mfence();
#elif defined(__aarch64__)
	for (size_t i = 0; i < bytes; i += CACHE_LINE)
		__asm__ volatile("dc civac, %0" : : "r"(p + i) : "memory");
	__asm__ volatile("dsb ish" : : : "memory");
#else
	(void)p;
	(void)bytes;
#endif
}

uint64_t wb_xport_memory_rate(void)
{
	uint8_t *from = wb_alloc(TRIAL_BYTES), *to = wb_alloc(TRIAL_BYTES);
	uint64_t best = 0;

	if (from && to) { /* touch all pages, so that the kernel has allocated them */
		memset(from, 1, TRIAL_BYTES);
		memset(to, 2, TRIAL_BYTES);
	}
	for (int i = 0; from && to && i < TRIALS; i++) {
		uint64_t begin;

		out_of_caches(from, TRIAL_BYTES);
		out_of_caches(to, TRIAL_BYTES);
		begin = wb_now_ns(&wb_clock_real);
		memcpy(to, from, TRIAL_BYTES);
		__asm__ volatile("" : : "r"(to) : "memory");
		begin = WB_MAX(wb_now_ns(&wb_clock_real) - begin, 1);
		best = WB_MAX(best, (uint64_t)(TRIAL_BYTES * 1e9 / (double)begin));
	}
	wb_free(from);
	wb_free(to);
	return best;
}

static int own_name(char out[NAME_BYTES + 1])
{
	uint64_t random;
	int rc = wb_random_bytes(&random, sizeof(random));

	snprintf(out, NAME_BYTES + 1, "wb-%016llx-%016llx", (unsigned long long)boot(),
		(unsigned long long)random);
	return rc;
}

/* For "unix:@" and "unix:/folder/" the agent chooses the name. */
static int choose_name(const char *addr, char *out, size_t cap)
{
	char name[NAME_BYTES + 1] = "";
	size_t len = strlen(addr);
	int n, rc = 0;

	if (!strcmp(addr, "unix:@") || (len && addr[len - 1] == '/'))
		rc = own_name(name);
	n = snprintf(out, cap, "%s%s", addr, name);
	return rc ? rc : n < 0 || (size_t)n >= cap ? -ENOSPC : 0;
}

static int shm_rail_addr(const struct wb_xport_rail *r, const char *folder, char *out, size_t cap)
{
	int n = folder ? snprintf(out, cap, "unix:%s/", folder) : snprintf(out, cap, "unix:@");

	(void)r;
	return n < 0 || (size_t)n >= cap ? -ENOSPC : 0;
}

/* The part of the first rail's name that identifies the kernel (BOOT); NULL: the name has none. */
static const char *host_in(const char *endpoint)
{
	size_t n = strcspn(endpoint, ",;");
	const char *name = n >= NAME_BYTES ? endpoint + n - NAME_BYTES : endpoint;

	return n > NAME_BYTES && !strncmp(name, "wb-", 3) && name[19] == '-' &&
			       (name[-1] == '@' || name[-1] == '/')
		       ? name + 3
		       : NULL;
}

static bool shm_is_near(const char *mine, const char *theirs)
{
	const char *a = host_in(mine), *b = host_in(theirs);

	return !a || !b || !strncmp(a, b, 16);
}

/* Remove a socket file on which nobody listens: a process that died has left it. */
static void remove_stale(const struct sockaddr_un *a, socklen_t len)
{
	struct stat st;
	int fd;

	if (!a->sun_path[0] || stat(a->sun_path, &st) || !S_ISSOCK(st.st_mode))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)a, len) && errno == ECONNREFUSED)
		unlink(a->sun_path);
	close(fd);
}

static int shm_listen(
	struct wb__rail *r, int *fd_out, char *endpoint, size_t cap, struct wb_err *err)
{
	struct sockaddr_un a;
	socklen_t len;
	char addr[sizeof(r->addr) + NAME_BYTES];
	int rc = choose_name(r->addr, addr, sizeof(addr)), fd, n;

	if (rc)
		return wb_err_set(err, rc, "no name for a socket: %s", wb_strerror(rc));
	rc = parse_addr(addr, true, &a, &len, err);
	if (rc)
		return rc;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return wb_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	remove_stale(&a, len);
	if (bind(fd, (struct sockaddr *)&a, len) || listen(fd, BACKLOG)) {
		rc = wb_err_set(err, -errno, "rail %u cannot listen on %s: %s", r->index, addr,
			strerror(errno));
		close(fd);
		return rc;
	}
	if (a.sun_path[0])
		snprintf(r->unlink_path, sizeof(r->unlink_path), "%s", a.sun_path);
	len = sizeof(a);
	memset(&a, 0, sizeof(a));
	getsockname(fd, (struct sockaddr *)&a, &len);
	n = a.sun_path[0] ? snprintf(endpoint, cap, "unix:%s", a.sun_path)
			  : snprintf(endpoint, cap, "unix:@%.*s",
				    (int)(len - offsetof(struct sockaddr_un, sun_path) - 1),
				    a.sun_path + 1);
	if (n < 0 || (size_t)n >= cap) {
		close(fd);
		return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
	}
	*fd_out = fd;
	return 0;
}

static int shm_dial(struct wb__rail *r, const char *endpoint, int *fd_out, struct wb_err *err)
{
	struct sockaddr_un a;
	socklen_t len;
	int rc = parse_addr(endpoint, false, &a, &len, err), fd;

	(void)r;
	if (rc)
		return rc;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return wb_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&a, len)) {
		rc = wb_err_set(err, -errno, "cannot connect to %s: %s", endpoint, strerror(errno));
		close(fd);
		return rc;
	}
	*fd_out = fd;
	return 0;
}

/* ---- rails and sockets ------------------------------------------------------------------------
 */

static int shm_rail_open(struct wb__rail *r)
{
	r->link = wb_zalloc(1, sizeof(struct shm_rail));
	return r->link ? 0 : -ENOMEM;
}

static void shm_rail_close(struct wb__rail *r)
{
	struct shm_rail *sr = r->link;

	for (uint32_t i = 0; sr && i < sr->n_region; i++) {
		if (sr->region[i].bytes && sr->region[i].fd >= 0)
			close(sr->region[i].fd);
	}
	wb_free(sr);
}

static int shm_region(struct wb__rail *r, const struct wb__cmd *c)
{
	struct shm_rail *sr = r->link;
	struct wb_xport_region *g;

	assert(c->n >= 0 && c->n < WB__REGIONS_MAX);
	g = &sr->region[c->n];
	if (g->bytes && g->fd >= 0)
		close(g->fd);
	g->bytes = 0;
	wb__regions_drop(&sr->by_address, (uint32_t)c->n);
	if (c->kind == WB__CMD_REGION) {
		*g = c->region;
		if (g->fd >= 0) /* only sources have a descriptor */
			wb__regions_put(&sr->by_address, (uint32_t)c->n, g);
		sr->gen[c->n] = ++sr->gen_last;
		sr->n_region = WB_MAX(sr->n_region, (uint32_t)c->n + 1);
	}
	for (struct wb__sock *s = r->all; s; s = s->all_next) {
		if (!s->link || s->is_dialer)
			continue;
		((struct shm_sock *)s->link)->is_dirty = true;
		wb__rail_ready(r, s);
	}
	return 0;
}

static int shm_sock_open(struct wb__sock *s)
{
	struct shm_rail *sr = s->rail->link;
	struct shm_sock *h = wb_zalloc(1, sizeof(*h));

	if (!h)
		return wb__sock_fail(s, -ENOMEM, "no memory for the regions of agent %s", s->peer);
	h->is_dirty = !s->is_dialer;
	h->give = (struct wb__giver){.by_address = &sr->by_address, .region = sr->region};
	s->link = h;
	return 0;
}

static void unmap(struct shm_map *m)
{
	if (m->base)
		munmap(m->base, m->bytes);
	m->base = NULL;
}

static void shm_sock_close(struct wb__sock *s)
{
	struct shm_sock *h = s->link;

	for (uint32_t i = 0; i < WB__REGIONS_MAX; i++)
		unmap(&h->map[i]);
	while (h->n_fd)
		close(h->fd[--h->n_fd]);
	wb_free(h);
	s->link = NULL;
}

/* ---- receiver: frames and descriptors ---------------------------------------------------------
 */

static ssize_t shm_recv(struct wb__sock *s, void *p, size_t n)
{
	struct shm_sock *h = s->link;
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec v = {p, n};
	struct msghdr m = {.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	ssize_t got;

	/* Only a receiver takes descriptors, and only after the challenge (before that, there is no
	 * @h). */
	if (!h || !s->is_dialer)
		return recv(s->fd, p, n, MSG_DONTWAIT);
	got = recvmsg(s->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return got;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		size_t k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < k; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (h->n_fd < FDS_MAX)
				h->fd[h->n_fd++] = fd;
			else
				close(fd); /* its REGION will find none and fail */
		}
	}
	/* The kernel could not give us all descriptors.  Report this as our own error: otherwise
	 * REGION would find none, and the peer would be blamed. */
	if (m.msg_flags & MSG_CTRUNC) {
		errno = EMFILE;
		return -1;
	}
	return got;
}

static int on_region(struct wb__sock *s, const struct wb__frame *f)
{
	struct shm_sock *h = s->link;
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct stat st;
	uint64_t end;
	void *p;
	int fd, seals;

	if (!h->n_fd || f->region >= WB__REGIONS_MAX || h->map[f->region].base || !f->bytes ||
		f->id % page || !wb_add_u64(f->id, f->bytes, &end))
		return wb__sock_fail(s, -EPROTO, "agent %s announced a bad region", s->peer);
	fd = h->fd[0];
	memmove(h->fd, h->fd + 1, --h->n_fd * sizeof(int));
	/* A copy from memory that shrinks would end this process by SIGBUS. */
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || (uint64_t)st.st_size < end) {
		close(fd);
		return wb__sock_fail(s, -EPERM,
			"a region of agent %s is too small or not sealed against shrinking",
			s->peer);
	}
	p = mmap(NULL, f->bytes, PROT_READ, MAP_SHARED, fd, (off_t)f->id);
	close(fd);
	if (p == MAP_FAILED)
		return wb__sock_fail(
			s, -errno, "cannot map a region of agent %s: %s", s->peer, strerror(errno));
	h->map[f->region] = (struct shm_map){p, f->bytes};
	return 0;
}

static int on_unregion(struct wb__sock *s, const struct wb__frame *f)
{
	struct shm_sock *h = s->link;

	if (f->region >= WB__REGIONS_MAX || !h->map[f->region].base || s->rx_op)
		return wb__sock_fail(s, -EPROTO, "agent %s took back a bad region", s->peer);
	unmap(&h->map[f->region]);
	return 0;
}

static uint64_t bytes_of(const struct wb__sock *s, uint32_t region)
{
	const struct shm_map *m = &((const struct shm_sock *)s->link)->map[region];

	return m->base ? m->bytes : 0;
}

static int on_trailer(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__frame release = {.type = WBP_BULK_RELEASE, .id = f->id};

	if (!s->rx_op || s->rx_left || s->rx_op->id != f->id)
		return wb__sock_fail(s, -EPROTO, "agent %s ended a chunk too soon", s->peer);
	memcpy(s->trailer, f->mac, sizeof(s->trailer));
	wb__sock_arrived(s);
	/* A grant will soon follow, and one wake of the source is enough for both. */
	return wb__sock_send_lazy(s, &release);
}

static int shm_on_frame(struct wb__sock *s, const struct wb__frame *f)
{
	if (!s->is_dialer && f->type == WBP_BULK_RELEASE)
		return wb__give_released(s, f);
	if (s->is_dialer && f->type == WBP_BULK_REGION)
		return on_region(s, f);
	if (s->is_dialer && f->type == WBP_BULK_UNREGION)
		return on_unregion(s, f);
	if (s->is_dialer && f->type == WBP_BULK_TABLE)
		return wb__take_ranges(s, &((struct shm_sock *)s->link)->take, f, bytes_of);
	if (s->is_dialer && f->type == WBP_BULK_TRAILER)
		return on_trailer(s, f);
	return wb__sock_fail(
		s, -EPROTO, "agent %s sent an unexpected frame of type %d", s->peer, (int)f->type);
}

/* ---- receiver: the copy -----------------------------------------------------------------------
 */

static int shm_rx_begin(struct wb__sock *s)
{
	/* The receiver moves the bytes, so faults of the wire are carried out here. */
	return wb__fault_begin(s, s->rx_op);
}

/* Copy a piece of the first range that is left; returns its bytes. */
static size_t copy_piece(struct wb__sock *s, uint32_t budget)
{
	struct shm_sock *h = s->link;
	struct wb__range *g = &h->take.range[h->take.at];
	struct wb__op *op = s->rx_op;
	size_t n = WB_MIN(WB_MIN(g->bytes, s->rail->x->o.piece_bytes), budget);

	wb_dassert(g->off + g->bytes <= h->map[g->region].bytes);
	if (!op->is_dead) {
		size_t len;

		(void)wb__op_span(op, &op->at, &len);
		n = WB_MIN(n, len);
		if (n == g->bytes && h->take.at + 1 < h->take.n)
			wb__fetch_ahead(h->map[g[1].region].base + g[1].off, g[1].bytes);
		wb__op_move(op, h->map[g->region].base + g->off, n, s->rail->x->o.piece_bytes);
	}
	g->off += n;
	g->bytes -= (uint32_t)n;
	h->take.at += !g->bytes;
	wb_dassert(n <= s->rx_left);
	s->rx_left -= n;
	return n;
}

static int copy_ranges(struct wb__sock *s, uint32_t *budget)
{
	struct wb__rail *r = s->rail;
	struct shm_sock *h = s->link;

	while (h->take.at < h->take.n) {
		size_t n;

		if (!*budget)
			return WB__AGAIN;
		if (!wb__bucket_ok(r, &r->rx))
			return WB__WAIT;
		n = copy_piece(s, *budget);
		*budget -= (uint32_t)n;
		wb__bucket_take(&r->rx, n);
		wb__count(&r->rx_bytes, n);
		if (s->drop_soon && s->rx_left <= s->rx_op->bytes / 2)
			return wb__sock_fail(s, -ECONNABORTED, "dropped by WB_FAULT");
	}
	s->in_payload = false;
	return 0;
}

static int shm_rx_payload(struct wb__sock *s, uint32_t *budget)
{
	struct wb__rail *r = s->rail;
	struct wb__op *op = s->rx_op;
	int rc;

	if (r->now_ns < s->hold_until_ns) {
		wb__rail_wake_at(r, s->hold_until_ns);
		return WB__WAIT;
	}
	rc = copy_ranges(s, budget);
	if (op->copy && !op->is_dead)
		op->copy(op->ctx, NULL, NULL, 0, op->at.done);
	return rc;
}

/* ---- source -----------------------------------------------------------------------------------
 */

/* Send REGION with its descriptor in a message of its own; no other frame may be queued.  1 = sent,
 * 0 = full, negative. */
static int send_region(struct wb__sock *s, const struct wb_xport_region *g, uint32_t id)
{
	struct wb__frame f = {
		.type = WBP_BULK_REGION, .region = id, .bytes = g->bytes, .id = g->fd_off};
	uint8_t buf[WBP_BULK_FRAME_MAX];
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec v = {buf, wb__frame_encode(&f, buf)};
	struct msghdr m = {.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	ssize_t n;

	/* Otherwise the descriptor would come with another frame. */
	assert(!s->tx_have);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &g->fd, sizeof(int));
	do {
		n = sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == ETOOMANYREFS)) {
		s->wr_ready = false;
		return 0;
	}
	if (n < 0)
		return wb__sock_errno(s, errno);
	/* The descriptor went with the first byte; the rest of the frame follows without one. */
	memcpy(s->txb, buf + n, v.iov_len - (size_t)n);
	s->tx_have = (uint32_t)(v.iov_len - (size_t)n);
	return 1;
}

/* Tell the peer which regions have come and gone; 0 = all told, 1 = socket full, negative. */
static int shm_tx_idle(struct wb__sock *s)
{
	struct shm_rail *sr = s->rail->link;
	struct shm_sock *h = s->link;
	int rc;

	if (!h->is_dirty || s->is_dialer)
		return 0;
	for (uint32_t i = 0; i < sr->n_region; i++) {
		struct wb_xport_region *g = &sr->region[i];
		bool is_theirs = g->bytes && g->fd >= 0 && g->object == s->hello.object;
		struct wb__frame gone = {.type = WBP_BULK_UNREGION, .region = i};

		if (h->told[i] && (!is_theirs || h->told[i] != sr->gen[i])) {
			rc = wb__sock_send(s, &gone);
			h->told[i] = 0;
			if (!rc)
				rc = wb__sock_flush(s, 0);
			if (rc <= 0)
				return rc < 0 ? rc : 1;
		}
		if (!is_theirs || h->told[i])
			continue;
		rc = send_region(s, g, i);
		if (rc <= 0)
			return rc < 0 ? rc : 1;
		h->told[i] = sr->gen[i];
		rc = wb__sock_flush(s, 0);
		if (rc <= 0)
			return rc < 0 ? rc : 1;
	}
	h->is_dirty = false;
	return 0;
}

static int shm_tx_begin(struct wb__sock *s)
{
	((struct shm_sock *)s->link)->give.is_begun = false;
	return 0;
}

static int shm_tx_payload(struct wb__sock *s, uint32_t *budget)
{
	return wb__give_step(s, &((struct shm_sock *)s->link)->give, budget);
}

const struct wb__link_ops wb__link_shm = {
	.over = WBP_BULK_OVER_SHM,
	.tx_extra = 4 * WBP_BULK_FRAME_MAX,
	.listen = shm_listen,
	.dial = shm_dial,
	.rail_open = shm_rail_open,
	.rail_close = shm_rail_close,
	.region = shm_region,
	.sock_open = shm_sock_open,
	.sock_close = shm_sock_close,
	.recv = shm_recv,
	.on_frame = shm_on_frame,
	.rx_begin = shm_rx_begin,
	.rx_payload = shm_rx_payload,
	.tx_idle = shm_tx_idle,
	.tx_begin = shm_tx_begin,
	.tx_payload = shm_tx_payload,
};

static int shm_open_xport(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	struct wb_xport_opts mine = *o;

	/* More sockets than rails would only map the same regions more often. */
	mine.sockets = WB_MIN(mine.sockets, mine.n_rail);
	return wb__xport_stream_open(&wb_xport_shm, &wb__link_shm, &mine, out, err);
}

const struct wb_xport_ops wb_xport_shm = {
	WB__STREAM_OPERATIONS,
	.name = "shm",
	.scheme = "unix:",
	/* One is enough: no payload passes the sockets, and each maps all regions again. */
	.sockets_min = 1,
	.caps = WB_XPORT_CAP_THREADS | WB_XPORT_CAP_REGIONS | WB_XPORT_CAP_LOCAL,
	.rail_addr = shm_rail_addr,
	.is_near = shm_is_near,
	.open = shm_open_xport,
};
