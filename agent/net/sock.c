/* SPDX-License-Identifier: Apache-2.0 */
/* Makes sockets that listen, and reads the addresses from which connections come: what all
 * listeners have in common. */
#include "base/unixsock.h"
#include "net/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 4096 /* the system may allow fewer; agents of a plan dial at once */

/* ---- addresses ------------------------------------------------------------------------------- */

void wb__addr_text(const struct sockaddr *sa, char *out, size_t cap)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)(const void *)sa;
	const struct sockaddr_in *s4 = (const struct sockaddr_in *)(const void *)sa;
	char host[INET6_ADDRSTRLEN] = "?";

	if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&s6->sin6_addr)) {
		inet_ntop(AF_INET, s6->sin6_addr.s6_addr + 12, host, sizeof(host));
		snprintf(out, cap, "%s:%u", host, ntohs(s6->sin6_port));
	} else if (sa->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &s6->sin6_addr, host, sizeof(host));
		snprintf(out, cap, "[%s]:%u", host, ntohs(s6->sin6_port));
	} else {
		inet_ntop(AF_INET, &s4->sin_addr, host, sizeof(host));
		snprintf(out, cap, "%s:%u", host, ntohs(s4->sin_port));
	}
}

struct wb__source wb__source_of(const struct sockaddr *sa)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)(const void *)sa;
	const struct sockaddr_in *s4 = (const struct sockaddr_in *)(const void *)sa;
	struct wb__source s = {.a = {0}};

	if (sa->sa_family == AF_INET6) {
		memcpy(s.a, &s6->sin6_addr, sizeof(s.a));
	} else if (sa->sa_family == AF_INET) {
		s.a[10] = s.a[11] = 0xff;
		memcpy(s.a + 12, &s4->sin_addr, 4);
	}
	return s;
}

/* Not all of 127/8: proxies of service meshes use such addresses to pass on connections that came
 * from elsewhere. */
bool wb__source_is_here(const struct wb__source *s)
{
	static const uint8_t here4[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
	static const uint8_t unix_socket[16] = {0};

	return !memcmp(s->a, here4, 16) || !memcmp(s->a, &in6addr_loopback, 16) ||
	       !memcmp(s->a, unix_socket, 16);
}

bool wb__accept_pause(int e)
{
	return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM;
}

/* ---- ports ----------------------------------------------------------------------------------- */

static int bind_refused(
	const char *what, const char *host, unsigned port, int rc, struct wb_err *err)
{
	const char *why = wb_strerror(rc);

	if (rc == -EADDRINUSE)
		why = "another process has the port: stop it or choose another";
	else if (rc == -EADDRNOTAVAIL)
		why = "this machine has no such address";
	else if (rc == -EACCES)
		why = "this user may not have that port: choose one from 1024 on";
	return wb_err_set(err, rc, "%s on %s:%u: %s", what, host && *host ? host : "*", port, why);
}

static int bind_one(const struct addrinfo *ai, int *out, uint16_t *port)
{
	const int on = 1, off = 0;
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int fd, rc;

	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
		getsockname(fd, (struct sockaddr *)&sa, &len) < 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	*out = fd;
	*port = ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
					       : ((struct sockaddr_in *)&sa)->sin_port);
	return 0;
}

int wb__tcp_bind(const char *what, const char *name, uint16_t port, int *fd, uint16_t *port_out,
	struct wb_err *err)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	const char *host = name && *name ? name : NULL;
	struct addrinfo *list, *ai;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc)
		return wb_err_set(err, -EADDRNOTAVAIL, "%s on %s:%s: %s", what, host ? host : "*",
			service, gai_strerror(rc));
	/* Without a host, try IPv6 first: such a socket serves both families. */
	rc = -EADDRNOTAVAIL;
	for (ai = list; ai && !host && rc < 0; ai = ai->ai_next)
		if (ai->ai_family == AF_INET6)
			rc = bind_one(ai, fd, port_out);
	for (ai = list; ai && rc < 0 && rc != -EADDRINUSE; ai = ai->ai_next)
		rc = bind_one(ai, fd, port_out);
	freeaddrinfo(list);
	return rc < 0 ? bind_refused(what, host, port, rc, err) : 0;
}

/* ---- the socket file ------------------------------------------------------------------------- */

/* 0: nobody answers on @path.  An error: somebody does, or it cannot be found out, or the file is
 * no socket. */
static int is_stale(const char *path, struct wb_err *err)
{
	struct stat st;
	int fd;

	if (lstat(path, &st) < 0)
		return errno == ENOENT
			       ? 0
			       : wb_err_set(err, -errno, "socket %s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return wb_err_set(err, -EEXIST,
			"socket %s: a file that is no socket is in the way: remove it or choose "
			"another path",
			path);
	fd = wb_unix_dial(path);
	if (fd == -ECONNREFUSED || fd == -ENOENT)
		return 0;
	/* -EAGAIN: its backlog is full.  -EPROTOTYPE: it is a socket of another type. */
	if (fd < 0 && fd != -EAGAIN && fd != -EPROTOTYPE)
		return wb_err_set(err, fd,
			"socket %s: it is there already, and whether another process answers on it "
			"cannot be found out (%s): remove it if none does, or choose another path",
			path, strerror(-fd));
	if (fd >= 0)
		close(fd);
	return wb_err_set(err, -EADDRINUSE,
		"socket %s: another process answers on it: stop that agent or choose another path",
		path);
}

#define LOCK_NAP_NS 10000000
#define LOCK_NAPS 500

/* Holds the folder's lock, so that two agents that start at once do not remove each other's file.
 * Returns the descriptor to close. */
static int lock_folder(const char *path, struct wb_err *err)
{
	char copy[PATH_MAX];
	int fd, rc;

	strcpy(copy, path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return wb_err_set(err, -errno,
			"socket %s: its folder cannot be opened (%s): make it for this user, or "
			"choose another path",
			path, strerror(errno));
	/* Others hold the lock only while they bind, so waiting for it is short. */
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		struct timespec nap = {0, LOCK_NAP_NS};

		if (errno == EWOULDBLOCK && i < LOCK_NAPS) {
			nanosleep(&nap, NULL);
			continue;
		}
		rc = -errno;
		close(fd);
		if (rc != -EWOULDBLOCK)
			return wb_err_set(err, rc, "socket %s: cannot lock its folder: %s", path,
				strerror(-rc));
		return wb_err_set(err, -EADDRINUSE,
			"socket %s: another agent is starting in the same folder, and has not "
			"come up for 5 s",
			path);
	}
	return fd;
}

static int bind_file(struct wb__unix_file *f, mode_t mode, int fd, struct wb_err *err)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct stat st;
	int rc;

	strcpy(sa.sun_path, f->path);
	rc = is_stale(f->path, err);
	if (rc < 0)
		return rc;
	unlink(f->path);
	/* Nobody can connect before listen(), so the mode is right from the first moment. */
	if (bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ||
		chmod(f->path, mode ? mode : 0600) < 0 || lstat(f->path, &st) < 0 ||
		listen(fd, 128) < 0)
		return wb_err_set(err, -errno, "socket %s: %s", f->path, strerror(errno));
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	return 0;
}

int wb__unix_bind(const char *path, int type, mode_t mode, struct wb__unix_file *f, int *fd,
	struct wb_err *err)
{
	int lock, rc;

	if (strlen(path) >= sizeof(f->path))
		return wb_err_set(err, -ENAMETOOLONG,
			"socket %s: a path of at most %zu bytes is possible", path,
			sizeof(f->path) - 1);
	strcpy(f->path, path);
	*fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return wb_err_set(err, -errno, "socket %s: %s", path, strerror(errno));
	lock = lock_folder(path, err);
	if (lock < 0)
		return lock;
	rc = bind_file(f, mode, *fd, err);
	close(lock);
	return rc;
}

void wb__unix_remove(const struct wb__unix_file *f)
{
	struct stat st;

	if (f->ino && !lstat(f->path, &st) && st.st_dev == f->dev && st.st_ino == f->ino)
		unlink(f->path);
}
