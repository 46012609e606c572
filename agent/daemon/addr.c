/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/addr.h"

#include "base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int look_up(const char *host, const char *port, struct addrinfo **out, struct wb_err *err)
{
	struct addrinfo hint = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
	int rc = getaddrinfo(host, port, &hint, out);

	if (rc)
		return wb_err_set(err, -ENOENT, "the name %s has no address: %s", host,
			rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	return 0;
}

static int to_text(const struct sockaddr *a, socklen_t len, char out[WB__ADDR_MAX])
{
	return getnameinfo(a, len, out, WB__ADDR_MAX, NULL, 0, NI_NUMERICHOST) ? -EINVAL : 0;
}

int wb__addr_numeric(const char *host, char out[WB__ADDR_MAX], struct wb_err *err)
{
	struct addrinfo *list;
	int rc;

	if (!host[0]) {
		snprintf(out, WB__ADDR_MAX, "0.0.0.0");
		return 0;
	}
	rc = look_up(host, "0", &list, err);
	if (rc < 0)
		return rc;
	rc = to_text(list->ai_addr, list->ai_addrlen, out);
	freeaddrinfo(list);
	return rc < 0 ? wb_err_set(err, rc, "the address of %s is not understood", host) : 0;
}

bool wb__addr_is_any(const char *addr)
{
	return !strcmp(addr, "0.0.0.0") || !strcmp(addr, "::");
}

int wb__addr_towards(const char *host, uint16_t port, char out[WB__ADDR_MAX], struct wb_err *err)
{
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	struct addrinfo *list;
	char service[8];
	int fd, rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = look_up(host, service, &list, err);
	if (rc < 0)
		return rc;
	rc = -ENETUNREACH;
	for (const struct addrinfo *a = list; a && rc < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		/* Connecting a datagram socket only chooses the route. */
		if (!connect(fd, a->ai_addr, a->ai_addrlen) &&
			!getsockname(fd, (struct sockaddr *)&own, &len))
			rc = to_text((struct sockaddr *)&own, len, out);
		close(fd);
	}
	freeaddrinfo(list);
	return rc < 0 ? wb_err_set(err, rc,
				"no route to %s, so no own address to tell others: give "
				"--advertise",
				host)
		      : 0;
}

void wb__addr_join(const char *host, uint16_t port, char *out, size_t bytes)
{
	snprintf(out, bytes, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
}

int wb__addrs_parse(const char *list, struct wb__addrs *out, struct wb_err *err)
{
	char host[256], addr[WB__ADDR_MAX];

	memset(out, 0, sizeof(*out));
	for (const char *p = list, *end; p; p = *end ? end + 1 : NULL) {
		bool is_new = true;
		int rc;

		end = strchrnul(p, ',');
		if (end == p || (size_t)(end - p) >= sizeof(host))
			return wb_err_set(err, -EINVAL, "'%.200s' is not HOST[,HOST]...", list);
		snprintf(host, sizeof(host), "%.*s", (int)(end - p), p);
		rc = wb__addr_numeric(host, addr, err);
		if (rc < 0)
			return rc;
		for (uint32_t i = 0; i < out->n; i++)
			is_new &= strcmp(out->a[i], addr) != 0;
		if (is_new && out->n == WB__ADDRS_MAX)
			return wb_err_set(err, -EINVAL, "'%.200s' has more than %d addresses", list,
				WB__ADDRS_MAX);
		if (is_new)
			memcpy(out->a[out->n++], addr, sizeof(addr));
	}
	return 0;
}

/* AF_INET, AF_INET6, or AF_UNSPEC for what is no address. */
static int family(const char *addr)
{
	unsigned char room[16];
	char bare[WB__ADDR_MAX];

	if (inet_pton(AF_INET, addr, room) == 1)
		return AF_INET;
	snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(addr, "%"), addr); /* fe80::1%eth0 */
	return inet_pton(AF_INET6, bare, room) == 1 ? AF_INET6 : AF_UNSPEC;
}

void wb__addrs_choose(
	const struct wb__addrs *mine, const char *const *theirs, uint32_t n, struct wb__addrs *out)
{
	int tried = AF_UNSPEC;

	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < mine->n; i++) {
		int want = family(mine->a[i]);

		if (want == AF_UNSPEC || want == tried)
			continue;
		for (uint32_t k = 0; k < n && out->n < WB__ADDRS_MAX; k++)
			if (strlen(theirs[k]) < WB__ADDR_MAX && family(theirs[k]) == want)
				strcpy(out->a[out->n++], theirs[k]);
		if (tried != AF_UNSPEC)
			return; /* there are two */
		tried = want;
	}
}

const char *wb__addrs_text(const char *const *addr, uint32_t n, char *out, size_t bytes)
{
	size_t at = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < n && at < bytes; i++) {
		int f = family(addr[i]);

		at += (size_t)snprintf(out + at, bytes - at, "%s%s%.*s", i ? ", " : "",
			f == AF_INET    ? "IPv4 "
			: f == AF_INET6 ? "IPv6 "
					: "",
			WB__ADDR_MAX, addr[i]);
	}
	return out;
}

/* "verbs:" of "verbs:10.0.0.1:7000"; addresses begin with a digit or a bracket. */
static size_t scheme_length(const char *endpoint)
{
	size_t n = strspn(endpoint, "abcdefghijklmnopqrstuvwxyz");

	return n && endpoint[n] == ':' ? n + 1 : 0;
}

int wb__addr_rehost(const char *endpoint, const char *from, const char *to, char *out, size_t bytes)
{
	char old[WB__ADDR_MAX + 16], new[WB__ADDR_MAX + 16];
	size_t n_old, at = 0;

	/* With port 0, of which all but the last digit is what stands before every port. */
	wb__addr_join(from, 0, old, sizeof(old));
	wb__addr_join(to, 0, new, sizeof(new));
	n_old = strlen(old) - 1;
	for (const char *p = endpoint, *end; p; p = *end ? end + 1 : NULL) {
		size_t n_scheme = scheme_length(p);
		bool is_old = !strncmp(p + n_scheme, old, n_old);
		const char *rest = p + (is_old ? n_scheme + n_old : 0);
		int n;

		end = strchrnul(p, ',');
		n = snprintf(out + at, bytes - at, "%s%.*s%.*s%.*s", at ? "," : "",
			is_old ? (int)n_scheme : 0, p, is_old ? (int)strlen(new) - 1 : 0, new,
			(int)(end - rest), rest);
		if (n < 0 || (size_t)n >= bytes - at)
			return -ENOSPC;
		at += (size_t)n;
	}
	return 0;
}
