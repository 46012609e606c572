/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/probe.h"

#include "base/base.h"
#include "daemon/addr.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_MAX 4096

static const struct {
	const char *what, *page; /* page NULL: workers' socket */
} probes[] = {
	{"startup", NULL},
	{"live", "/healthz"},
	{"ready", "/serving"},
};

bool wb__probe_is_known(const char *what)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(probes); i++)
		if (!strcmp(what, probes[i].what))
			return true;
	return false;
}

static int no(const char *why, const char *detail)
{
	fprintf(stderr, "%s%s\n", why, detail);
	return EXIT_FAILURE;
}

static int probe_socket(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc;

	strncpy(sa.sun_path, path, sizeof(sa.sun_path) - 1);
	rc = fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	return rc ? no("workers cannot attach yet: ", strerror(rc)) : EXIT_SUCCESS;
}

/* The port that was asked for, or the one that was taken. */
static uint16_t page_port(const struct wb__options *o)
{
	FILE *f = o->port_file ? fopen(o->port_file, "re") : NULL;
	unsigned port = o->http.port;
	char key[16];
	unsigned value;

	while (f && fscanf(f, "%15s %u", key, &value) == 2)
		if (!strcmp(key, "http"))
			port = value;
	if (f)
		fclose(f);
	return (uint16_t)port;
}

static void set_limit(int fd)
{
	struct timeval limit = {.tv_sec = 4};

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int connect_to(int family, const struct sockaddr *sa, socklen_t len)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	set_limit(fd);
	if (connect(fd, sa, len) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/* The socket that only this pod reaches: nobody elsewhere can take its places. */
static int connect_local(const struct wb__options *o)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s" WB_AGENT_PAGES_SUFFIX, o->socket);

	if (n < 0 || (size_t)n >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	return connect_to(AF_UNIX, (struct sockaddr *)&sa, sizeof(sa));
}

/* Connect to where the agent's pages are.  An agent that listens on all addresses is reached by the
 * loopback of either family, which a pod of the other family has, too. */
static int connect_page(const struct wb__options *o)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	bool is_any = !o->http.host[0] || wb__addr_is_any(o->http.host);
	const char *const host[] = {is_any ? "127.0.0.1" : o->http.host, is_any ? "::1" : NULL};
	struct addrinfo *list;
	int rc = -EADDRNOTAVAIL;
	char port[8];

	snprintf(port, sizeof(port), "%u", page_port(o));
	for (int i = 0; i < 2 && host[i] && rc < 0; i++) {
		if (getaddrinfo(host[i], port, &hints, &list) != 0)
			continue;
		for (const struct addrinfo *ai = list; ai && rc < 0; ai = ai->ai_next)
			rc = connect_to(ai->ai_family, ai->ai_addr, ai->ai_addrlen);
		freeaddrinfo(list);
	}
	return rc;
}

static int probe_page(const struct wb__options *o, const char *page)
{
	char text[REPLY_MAX], *body;
	int fd = connect_local(o), n;
	size_t len = 0;
	ssize_t got = 0;

	/* The agent is from before there was such a socket, or its path is too long for one. */
	if ((fd == -ENOENT || fd == -ECONNREFUSED || fd == -ENAMETOOLONG) && o->http.is_given)
		fd = connect_page(o);
	if (fd < 0)
		return no("the agent is not reached: ", strerror(-fd));
	n = snprintf(text, sizeof(text), "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", page);
	if (send(fd, text, (size_t)n, MSG_NOSIGNAL) == n)
		while (len < sizeof(text) - 1 &&
			(got = recv(fd, text + len, sizeof(text) - 1 - len, 0)) > 0)
			len += (size_t)got;
	close(fd);
	text[len] = '\0';
	body = strstr(text, "\r\n\r\n");
	if (got < 0 || !body || strncmp(text, "HTTP/1.", 7) != 0)
		return no("the agent does not answer", "");
	if (!strncmp(text + 8, " 200", 4))
		return EXIT_SUCCESS;
	return no(body + 4, "");
}

int wb__probe(const struct wb__options *o)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(probes); i++) {
		if (strcmp(o->probe, probes[i].what) != 0)
			continue;
		return probes[i].page ? probe_page(o, probes[i].page) : probe_socket(o->socket);
	}
	return EXIT_FAILURE;
}
