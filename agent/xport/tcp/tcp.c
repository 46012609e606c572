/* SPDX-License-Identifier: Apache-2.0 */
/* Payload follows the WRITE frame in the stream: bytes, then the 32-byte trailer. */
#include "xport/internal.h"
#include "xport/secure.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096 /* as far as the system goes: agents of a plan dial at once */
#define SEND_MAX (512u << 10) /* bytes in one call when nobody looks at them */
#define RECV_MAX (512u << 10)
/* A dead host is noticed after about 25 s; a slow one is the business of the edge deadlines. */
#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_EVERY_S 5
#define KEEPALIVE_TRIES 3
#define USER_TIMEOUT_MS 25000

/* ---- addresses --------------------------------------------------------------------------------
 */

/* "1.2.3.4:5" or "[::1]:5" into numbers; no name service: nothing here may block. */
static int parse_addr(
	const char *text, struct sockaddr_storage *out, socklen_t *len, struct wb_err *err)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
	struct addrinfo *list = NULL;
	const char *colon = strrchr(text, ':'), *host = text;
	char buf[128];
	size_t n;
	int rc = EAI_NONAME;

	if (colon) {
		n = (size_t)(colon - text);
		if (*host == '[' && n > 2 && colon[-1] == ']') {
			host++;
			n -= 2;
		}
		if (n && n < sizeof(buf)) {
			memcpy(buf, host, n);
			buf[n] = 0;
			rc = getaddrinfo(buf, colon + 1, &hint, &list);
		}
	}
	if (rc)
		return wb_err_set(err, -EINVAL,
			"'%.100s' is not a numeric address like 10.0.0.1:7000 or [::1]:7000", text);
	memcpy(out, list->ai_addr, list->ai_addrlen);
	*len = list->ai_addrlen;
	freeaddrinfo(list);
	return 0;
}

static void set(int fd, int level, int name, int value)
{
	/* Tuning only: a refusal changes speed, not meaning. */
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

static void set_buffers(struct wb__xport_stream *x, int fd)
{
	if (x->o.sock_buf_bytes) {
		set(fd, SOL_SOCKET, SO_SNDBUF, (int)x->o.sock_buf_bytes);
		set(fd, SOL_SOCKET, SO_RCVBUF, (int)x->o.sock_buf_bytes);
	}
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
	const struct in6_addr *s6 = &((const struct sockaddr_in6 *)a)->sin6_addr;

	/* What came in at a socket for both families has an IPv4 address inside. */
	return IN6_IS_ADDR_LOOPBACK(s6) || (IN6_IS_ADDR_V4MAPPED(s6) && s6->s6_addr[12] == 127);
}

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
		&((const struct sockaddr_in6 *)b)->sin6_addr);
}

/* Both ends on this host: then no link is shared with others. */
static bool is_within_host(int fd)
{
	struct sockaddr_storage here, there;
	socklen_t n = sizeof(here), m = sizeof(there);

	if (getsockname(fd, (struct sockaddr *)&here, &n) ||
		getpeername(fd, (struct sockaddr *)&there, &m))
		return false;
	return is_loopback(&there) || same_address(&here, &there);
}

static bool is_any(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* Of an IPv4 address that came in at a socket for both families, the address itself. */
static void unmap(struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)a;
	struct sockaddr_in s4 = {.sin_family = AF_INET};

	if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&s6->sin6_addr))
		return;
	memcpy(&s4.sin_addr, s6->sin6_addr.s6_addr + 12, sizeof(s4.sin_addr));
	memset(a, 0, sizeof(*a));
	memcpy(a, &s4, sizeof(s4));
}

static bool tcp_is_home(const struct wb__rail *r, int fd)
{
	struct sockaddr_storage here, mine;
	socklen_t n = sizeof(here), m;

	if (getsockname(fd, (struct sockaddr *)&here, &n) || parse_addr(r->addr, &mine, &m, NULL))
		return false;
	unmap(&here);
	return is_any(&mine) || same_address(&here, &mine);
}

static void tcp_tune(struct wb__xport_stream *x, int fd)
{
	/* Pacing (bbr) arms a timer for every few segments: a third of the CPU time of a transfer
	 * within a host, where there is nothing to pace for.  On a network the host's choice stays;
	 * reno is the one that every process may choose. */
	if (is_within_host(fd))
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);

	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TRIES);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
	set_buffers(x, fd);
}

static int say_endpoint(
	const struct wb__rail *r, int fd, char *endpoint, size_t cap, struct wb_err *err)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	char host[64], port[16];
	const char *h = r->advertise[0] ? r->advertise : host;
	int n;

	if (getsockname(fd, (struct sockaddr *)&a, &len) ||
		getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return wb_err_set(err, -EIO, "cannot tell the address of a listener");
	n = snprintf(endpoint, cap, strchr(h, ':') ? "[%s]:%s" : "%s:%s", h, port);
	if (n < 0 || (size_t)n >= cap)
		return wb_err_set(err, -ENOSPC, "no room for the endpoint text");
	return 0;
}

static int tcp_listen(
	struct wb__rail *r, int *fd_out, char *endpoint, size_t cap, struct wb_err *err)
{
	struct sockaddr_storage a;
	socklen_t len;
	int rc = parse_addr(r->addr, &a, &len, err), fd;

	if (rc)
		return rc;
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return wb_err_set(
			err, -errno, "cannot make a socket for %s: %s", r->addr, strerror(errno));
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	set_buffers(r->x, fd); /* inherited; the window's scale is agreed at the handshake */
	if (bind(fd, (struct sockaddr *)&a, len) || listen(fd, BACKLOG))
		rc = wb_err_set(err, -errno, "rail %u cannot listen on %s: %s", r->index, r->addr,
			strerror(errno));
	else
		rc = say_endpoint(r, fd, endpoint, cap, err);
	if (rc)
		close(fd);
	else
		*fd_out = fd;
	return rc;
}

/* Leave through the rail's own address, where it has one of the peer's family. */
static void bind_local(struct wb__rail *r, int fd, sa_family_t family)
{
	struct sockaddr_storage a;
	socklen_t len;

	if (!r->addr[0] || parse_addr(r->addr, &a, &len, NULL) || a.ss_family != family)
		return;
	if (family == AF_INET)
		((struct sockaddr_in *)&a)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&a)->sin6_port = 0;
	set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	(void)!bind(fd, (struct sockaddr *)&a, len);
}

static int tcp_dial(struct wb__rail *r, const char *endpoint, int *fd_out, struct wb_err *err)
{
	struct sockaddr_storage a;
	socklen_t len;
	int rc = parse_addr(endpoint, &a, &len, err), fd;

	if (rc)
		return rc;
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return wb_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	set_buffers(r->x, fd);
	bind_local(r, fd, a.ss_family);
	if (connect(fd, (struct sockaddr *)&a, len) && errno != EINPROGRESS) {
		rc = wb_err_set(err, -errno, "cannot connect to %s: %s", endpoint, strerror(errno));
		close(fd);
		return rc;
	}
	*fd_out = fd;
	return 0;
}

/* ---- receiver ---------------------------------------------------------------------------------
 */

static ssize_t tcp_recv(struct wb__sock *s, void *p, size_t n)
{
	struct iovec v = {p, n};

	return s->secure ? wb__secure_readv(s, &v, 1) : recv(s->fd, p, n, MSG_DONTWAIT);
}

static int tcp_rx_begin(struct wb__sock *s)
{
	s->in_payload = true;
	return 0;
}

/* Once; 1 = *got bytes came, 0 = none now, negative. */
static int receive(struct wb__sock *s, struct iovec *iov, int n_iov, size_t want, size_t *got)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n_iov};
	ssize_t n;

	do {
		n = s->secure ? wb__secure_readv(s, iov, n_iov) : recvmsg(s->fd, &m, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		s->rd_ready = false;
		return 0;
	}
	if (n <= 0)
		return wb__sock_errno(s, n ? errno : 0);
	/* A short read has emptied the socket, unless an end or an error waits behind it. */
	if ((size_t)n < want && !s->is_hup)
		s->rd_ready = false;
	*got = (size_t)n;
	return 1;
}

static int rx_trailer(struct wb__sock *s)
{
	struct iovec v = {s->trailer + s->trailer_have, sizeof(s->trailer) - s->trailer_have};
	size_t got;
	int rc;

	if (!s->rd_ready)
		return WB__IDLE;
	rc = receive(s, &v, 1, v.iov_len, &got);
	if (rc <= 0)
		return rc;
	s->trailer_have += (uint32_t)got;
	if (s->trailer_have == sizeof(s->trailer))
		wb__sock_arrived(s);
	return 0;
}

static void landed(struct wb__sock *s, size_t got)
{
	struct wb__op *op = s->rx_op;

	wb__op_skip(op, &op->at, got);
	wb__op_observe(op, op->at.done, s->rail->x->o.piece_bytes);
}

static int tcp_rx_payload(struct wb__sock *s, uint32_t *budget)
{
	struct wb__rail *r = s->rail;
	struct wb__op *op = s->rx_op;
	struct iovec iov[WB__IOV_BATCH];
	size_t want, got;
	int n, rc;

	if (!s->rx_left)
		return rx_trailer(s);
	while (s->rx_left) {
		if (!*budget)
			return WB__AGAIN;
		if (!s->rd_ready)
			return WB__IDLE;
		if (!wb__bucket_ok(r, &r->rx))
			return WB__WAIT;
		want = WB_MIN(s->rx_left, op->observe ? r->x->o.piece_bytes : RECV_MAX);
		if (op->is_dead) { /* cancelled: to nowhere */
			want = WB_MIN(want, (size_t)WB__SCRATCH);
			iov[0] = (struct iovec){r->scratch, want};
			n = 1;
		} else {
			n = wb__op_gather(op, &op->at, want, iov);
			want = 0;
			for (int i = 0; i < n; i++)
				want += iov[i].iov_len;
		}
		rc = receive(s, iov, n, want, &got);
		if (rc <= 0)
			return rc;
		wb_dassert(got <= s->rx_left);
		s->rx_left -= got;
		*budget -= (uint32_t)WB_MIN(got, (size_t)*budget);
		wb__bucket_take(&r->rx, got);
		wb__count(&r->rx_bytes, got);
		if (!op->is_dead)
			landed(s, got);
	}
	return rx_trailer(s);
}

/* ---- source -----------------------------------------------------------------------------------
 */

static int tcp_tx_begin(struct wb__sock *s)
{
	struct wb__frame f = {.type = WBP_BULK_WRITE, .id = s->tx_in->id, .bytes = s->tx_in->bytes};
	int rc = wb__fault_begin(s, s->tx_in->op);

	return rc ? rc : wb__sock_send(s, &f);
}

/* Flip fault: the byte with the bit goes alone, from a copy; the source memory stays whole. */
static size_t apply_flip(
	struct wb__op *op, struct iovec *iov, int *n_iov, size_t want, uint8_t *one)
{
	uint64_t at = op->flip_bit / 8, off = 0;

	if (op->flip_bit == UINT64_MAX || at < op->at.done || at >= op->at.done + want)
		return want;
	if (at == op->at.done) {
		*one = (uint8_t)(*(uint8_t *)iov[0].iov_base ^ (1u << op->flip_bit % 8));
		iov[0] = (struct iovec){one, 1};
		*n_iov = 1;
		return 1;
	}
	for (int i = 0; i < *n_iov; i++) { /* up to it */
		if (op->at.done + off + iov[i].iov_len >= at) {
			iov[i].iov_len = at - op->at.done - off;
			*n_iov = i + 1;
			break;
		}
		off += iov[i].iov_len;
	}
	return at - op->at.done;
}

static int send_piece(struct wb__sock *s, struct wb__op *op, size_t want, size_t *sent)
{
	struct iovec iov[WB__IOV_BATCH];
	int n = wb__op_gather(op, &op->at, want, iov);
	struct msghdr m = {.msg_iov = iov};
	uint8_t one;
	ssize_t k;

	want = 0;
	for (int i = 0; i < n; i++)
		want += iov[i].iov_len;
	want = apply_flip(op, iov, &n, want, &one);
	m.msg_iovlen = (size_t)n;
	do {
		k = s->secure ? wb__secure_writev(s, iov, n, MSG_MORE)
			      : sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
	} while (k < 0 && errno == EINTR);
	if (k < 0 && errno == EAGAIN) {
		s->wr_ready = false;
		return 0;
	}
	if (k < 0)
		return wb__sock_errno(s, errno);
	if ((size_t)k < want)
		s->wr_ready = false;
	*sent = (size_t)k;
	return 1;
}

static int tx_trailer(struct wb__sock *s, struct wb__op *op)
{
	uint8_t *out = s->txb + s->tx_have;

	if (s->is_trailer_queued) { /* and flushed, else we were not called */
		struct wb__in *in = s->tx_in;

		s->tx_in = NULL;
		wb__sock_written(s, in);
		return 0;
	}
	assert(s->tx_cap - s->tx_have >= WB_XPORT_TRAILER_BYTES);
	if (op->trailer)
		op->trailer(op->ctx, out);
	else
		memset(out, 0, WB_XPORT_TRAILER_BYTES);
	s->tx_have += WB_XPORT_TRAILER_BYTES;
	s->is_trailer_queued = true;
	return 0;
}

static int tcp_tx_payload(struct wb__sock *s, uint32_t *budget)
{
	struct wb__rail *r = s->rail;
	struct wb__op *op = s->tx_in->op;
	size_t want, sent;
	int rc;

	while (op->at.done < op->bytes) {
		if (!*budget)
			return WB__AGAIN;
		if (!s->wr_ready)
			return WB__IDLE;
		if (!wb__bucket_ok(r, &r->tx))
			return WB__WAIT;
		want = op->bytes - op->at.done;
		if (op->observe) {
			if (op->seen.done == op->at.done)
				wb__op_observe(op,
					WB_MIN(op->at.done + r->x->o.piece_bytes, op->bytes),
					r->x->o.piece_bytes);
			want = op->seen.done - op->at.done;
		}
		rc = send_piece(s, op, WB_MIN(want, (size_t)SEND_MAX), &sent);
		if (rc <= 0)
			return rc;
		wb__op_skip(op, &op->at, sent);
		*budget -= (uint32_t)WB_MIN(sent, (size_t)*budget);
		wb__bucket_take(&r->tx, sent);
		wb__count(&r->tx_bytes, sent);
		if (s->drop_soon && op->at.done >= op->bytes / 2)
			return wb__sock_fail(s, -ECONNABORTED, "dropped by WB_FAULT");
	}
	return tx_trailer(s, op);
}

static int tcp_rail_open(struct wb__rail *r)
{
	struct sockaddr_storage a;
	socklen_t len;

	return r->addr[0] ? parse_addr(r->addr, &a, &len, NULL) : 0;
}

const struct wb__link_ops wb__link_tcp = {
	.over = WBP_BULK_OVER_TCP,
	.over_secure = WBP_BULK_OVER_TLS,
	.rx_exact = true,
	.tx_extra = WB_XPORT_TRAILER_BYTES,
	.listen = tcp_listen,
	.dial = tcp_dial,
	.tune = tcp_tune,
	.is_home = tcp_is_home,
	.rail_open = tcp_rail_open,
	.recv = tcp_recv,
	.rx_begin = tcp_rx_begin,
	.rx_payload = tcp_rx_payload,
	.tx_begin = tcp_tx_begin,
	.tx_payload = tcp_tx_payload,
};

static int tcp_open(const struct wb_xport_opts *o, struct wb_xport **out, struct wb_err *err)
{
	return wb__xport_stream_open(&wb_xport_tcp, &wb__link_tcp, o, out, err);
}

const struct wb_xport_ops wb_xport_tcp = {
	WB__STREAM_OPERATIONS,
	.name = "tcp",
	.scheme = "",
	.sockets_min = 2,
	.caps = WB_XPORT_CAP_THREADS,
	.open = tcp_open,
};
