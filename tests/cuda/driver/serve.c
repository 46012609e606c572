/* SPDX-License-Identifier: Apache-2.0 */
/* IPC handles over all borders: who exports answers at a socket with a name of its own, which
 * namespaces of processes, IPC and mounts and users do not matter to, with a block's descriptor. */
#include "tests/cuda/driver/internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_S 5 /* with a socket whose process died and left it to a child */

static uint64_t own_name; /* guarded by fc.lock */

static socklen_t address_of(uint64_t name, struct sockaddr_un *a)
{
	int n;

	*a = (struct sockaddr_un){.sun_family = AF_UNIX}; /* and a 0: it is in no folder */
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "fakecuda-%llx",
		(unsigned long long)name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void send_fd(int sock, int fd)
{
	char byte = 1, room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof(room)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	*h = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	(void)sendmsg(sock, &m, MSG_NOSIGNAL); /* who asked may have ended */
}

/* Of a block that lives, and is ours. */
static void answer(int sock, uint64_t serial)
{
	pthread_mutex_lock(&fc.lock);
	for (const struct fc_block *b = fc.block; b; b = b->next)
		if (b->serial == serial && b->is_legacy && !b->is_import)
			send_fd(sock, b->fd);
	pthread_mutex_unlock(&fc.lock);
}

static void be_patient(int sock)
{
	struct timeval limit = {.tv_sec = PATIENCE_S};

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static void *serve(void *listener)
{
	int from = (int)(intptr_t)listener;

	for (;;) {
		struct pollfd p = {.fd = from, .events = POLLIN};
		uint64_t serial;
		int sock;

		/* An accept that waits has a descriptor taken, which tests that count them see. */
		if (poll(&p, 1, -1) < 1)
			continue;
		sock = accept4(from, NULL, NULL, SOCK_CLOEXEC);
		if (sock < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (sock < 0)
			return NULL; /* no descriptors are left: handles open no more */
		be_patient(sock);
		if (recv(sock, &serial, sizeof(serial), 0) == (ssize_t)sizeof(serial))
			answer(sock, serial);
		close(sock);
	}
	return NULL;
}

void fc_serve_start(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;
	sigset_t all, old;
	pthread_t t;

	if (sock < 0 || getrandom(&own_name, sizeof(own_name), 0) != sizeof(own_name))
		abort();
	if (bind(sock, (struct sockaddr *)&a, address_of(own_name, &a)) || listen(sock, 64))
		abort();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&t, NULL, serve, (void *)(intptr_t)sock))
		abort();
	pthread_detach(t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

uint64_t fc_serve_name(void)
{
	return own_name;
}

static int receive_fd(int sock)
{
	char byte, room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof(room)};
	int fd;

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

int fc_ask(uint64_t name, uint64_t serial)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd = -1;
	struct sockaddr_un a;
	socklen_t n = address_of(name, &a);

	if (sock < 0)
		return -1;
	pthread_mutex_unlock(&fc.lock); /* who answers may be asking us */
	be_patient(sock);
	if (!connect(sock, (struct sockaddr *)&a, n) &&
		send(sock, &serial, sizeof(serial), MSG_NOSIGNAL) == (ssize_t)sizeof(serial))
		fd = receive_fd(sock);
	close(sock);
	pthread_mutex_lock(&fc.lock);
	return fd;
}
