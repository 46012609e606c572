/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/addr.h"

#include "base/err.h"

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
