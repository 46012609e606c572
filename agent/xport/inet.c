/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/inet.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Many agents of a plan dial at once.  The system may allow fewer than this. */
#define BACKLOG 4096
/* A dead host is noticed after about 25 s.  A host that is only slow is left to the deadlines of
 * edges. */
#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_EVERY_S 5
#define KEEPALIVE_TRIES 3
#define USER_TIMEOUT_MS 25000

/* Parse "1.2.3.4:5" or "[::1]:5".  No name is looked up, since nothing here may block. */
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

bool wb__inet_ip(const char *text, uint8_t out[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_storage a;
	socklen_t len;

	if (parse_addr(text, &a, &len, NULL) < 0)
		return false;
	if (a.ss_family == AF_INET6) {
		memcpy(out, &((const struct sockaddr_in6 *)&a)->sin6_addr, 16);
		return true;
	}
	memcpy(out, mapped, sizeof(mapped));
	memcpy(out + sizeof(mapped), &((const struct sockaddr_in *)&a)->sin_addr, 4);
	return true;
}

/* An address or a netmask as 16 bytes; the first 10 bytes of an IPv4 one become @first.  false: it
 * belongs to another family. */
static bool to_ip(const struct sockaddr *a, uint8_t first, uint8_t out[16])
{
	if (a && a->sa_family == AF_INET6) {
		memcpy(out, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
		return true;
	}
	if (!a || a->sa_family != AF_INET)
		return false;
	memset(out, first, 10);
	memset(out + 10, 0xff, 2);
	memcpy(out + 12, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
	return true;
}

uint8_t wb__inet_net_bits(const uint8_t ip[16])
{
	uint8_t own[16], mask[16], bits = 0;
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all))
		return 0;
	for (const struct ifaddrs *a = all; a && !bits; a = a->ifa_next) {
		if (!to_ip(a->ifa_addr, 0, own) || memcmp(own, ip, sizeof(own)) ||
			!to_ip(a->ifa_netmask, 0xff, mask))
			continue;
		while (bits < 128 && mask[bits / 8] & 0x80 >> bits % 8)
			bits++;
	}
	freeifaddrs(all);
	return bits;
}

static void set(int fd, int level, int name, int value)
{
	/* An option that the system refuses costs only speed. */
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

	/* A socket for both families shows an IPv4 peer by a mapped address. */
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

/* Are both ends on this host?  Then the connection shares no network link with others. */
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

/* Turn an IPv4 address that is mapped into IPv6, as sockets for both families show it, back into
 * IPv4. */
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

bool wb__inet_is_home(const struct wb__rail *r, int fd)
{
	struct sockaddr_storage here, mine;
	socklen_t n = sizeof(here), m;

	if (getsockname(fd, (struct sockaddr *)&here, &n) || parse_addr(r->addr, &mine, &m, NULL))
		return false;
	unmap(&here);
	return is_any(&mine) || same_address(&here, &mine);
}

void wb__inet_tune(struct wb__xport_stream *x, int fd)
{
	/* Pacing (bbr) arms a timer for every few segments, which takes a third of the CPU time of
	 * a transfer within a host, where pacing has no use.  reno does not pace, and every process
	 * may choose it.  On a network the host's own choice stays. */
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

int wb__inet_listen(struct wb__rail *r, int *fd_out, char *endpoint, size_t cap, struct wb_err *err)
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
	/* Accepted sockets inherit the buffer sizes.  They are set before listen() because the
	 * window scale is agreed on in the TCP handshake. */
	set_buffers(r->x, fd);
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

/* Bind to the rail's own address if it is of the peer's family. */
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

int wb__inet_dial(struct wb__rail *r, const char *endpoint, int *fd_out, struct wb_err *err)
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

int wb__inet_rail_open(struct wb__rail *r)
{
	struct sockaddr_storage a;
	socklen_t len;

	return r->addr[0] ? parse_addr(r->addr, &a, &len, NULL) : 0;
}

ssize_t wb__inet_recv(struct wb__sock *s, void *p, size_t n)
{
	return recv(s->fd, p, n, MSG_DONTWAIT);
}
