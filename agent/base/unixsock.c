/* SPDX-License-Identifier: Apache-2.0 */
#include "base/unixsock.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

union cmsg_space {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * WB_UNIX_FDS_MAX)];
};

int wb_unix_dial(const char *path)
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
	if (!connect(fd, (const struct sockaddr *)&sa, sizeof(sa)))
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int wb_unix_send(int fd, const void *p, size_t bytes, const int *fds, uint32_t n_fd)
{
	union {
		const void *in;
		void *out;
	} data = {.in = p}; /* iovec has no const */
	struct iovec iov = {data.out, bytes};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	union cmsg_space space;
	ssize_t n;

	assert(n_fd <= WB_UNIX_FDS_MAX);
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
	do {
		n = sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static uint32_t take_fds(struct msghdr *mh, int *fds)
{
	uint32_t n = 0;

	for (struct cmsghdr *cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		size_t k = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		assert(n + k <= WB_UNIX_FDS_MAX);
		memcpy(fds + n, CMSG_DATA(cm), k * sizeof(int));
		n += (uint32_t)k;
	}
	return n;
}

ssize_t wb_unix_recv(int fd, void *p, size_t cap, int *fds, uint32_t *n_fd, int *flags)
{
	struct iovec iov = {p, cap};
	union cmsg_space space;
	struct msghdr mh = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &space,
		.msg_controllen = sizeof(space)};
	ssize_t n;

	*n_fd = 0;
	*flags = 0;
	do {
		n = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*n_fd = take_fds(&mh, fds);
	*flags = mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	return n;
}
