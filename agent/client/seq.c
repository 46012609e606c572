/* SPDX-License-Identifier: Apache-2.0 */
#include "client/seq.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

union cmsg_space {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * WB__SEQ_FDS_MAX)];
};

int wb__seq_connect(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	size_t n = strlen(path);
	int fd, rc;

	if (n >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	memcpy(sa.sun_path, path, n + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* A full backlog gives EAGAIN at once on unix sockets: the caller's backoff retries. */
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int wb__seq_send(int fd, const void *p, size_t bytes, const int *fds, unsigned n_fd, int timeout_ms)
{
	union {
		const void *in;
		void *out;
	} data = {.in = p}; /* iovec has no const */
	struct iovec iov = {data.out, bytes};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};
	union cmsg_space space;

	assert(n_fd <= WB__SEQ_FDS_MAX);
	if (n_fd) {
		struct cmsghdr *cm = &space.align;

		memset(&space, 0, sizeof(space));
		mh.msg_control = &space;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * n_fd);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int) * n_fd);
		memcpy(CMSG_DATA(cm), fds, sizeof(int) * n_fd);
	}
	for (;;) {
		if (sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		if (poll(&pfd, 1, timeout_ms) == 0)
			return -EAGAIN;
	}
}

int64_t wb__seq_recv(int fd, void *p, size_t cap, int *fds, unsigned *n_fd)
{
	struct iovec iov = {p, cap};
	union cmsg_space space;
	struct msghdr mh = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &space,
		.msg_controllen = sizeof(space)};
	struct cmsghdr *cm;
	unsigned i, n;
	ssize_t got;

	*n_fd = 0;
	do {
		got = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	for (cm = CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (unsigned)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		assert(*n_fd + n <= WB__SEQ_FDS_MAX);
		memcpy(fds + *n_fd, CMSG_DATA(cm), sizeof(int) * n);
		*n_fd += n;
	}
	if (got > 0 && !(mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return got;
	for (i = 0; i < *n_fd; i++)
		close(fds[i]);
	*n_fd = 0;
	/* A zero length is the end of the connection: no message is empty. */
	return got == 0 ? -ECONNRESET : -EMSGSIZE;
}
