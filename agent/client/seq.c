/* SPDX-License-Identifier: Apache-2.0 */
#include "client/seq.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

int wb__client_seq_send(
	int fd, const void *p, size_t bytes, const int *fds, unsigned n_fd, int timeout_ms)
{
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};
	int rc;

	while ((rc = wb_unix_send(fd, p, bytes, fds, n_fd)) == -EAGAIN)
		if (poll(&pfd, 1, timeout_ms) == 0)
			return -EAGAIN;
	return rc;
}

int64_t wb__client_seq_recv(int fd, void *p, size_t cap, int *fds, unsigned *n_fd)
{
	int flags;
	ssize_t got = wb_unix_recv(fd, p, cap, fds, n_fd, &flags);

	if (got < 0 || (got > 0 && !flags))
		return got;
	while (*n_fd)
		close(fds[--*n_fd]);
	/* A zero length is the end of the connection: no message is empty. */
	return got == 0 ? -ECONNRESET : -EMSGSIZE;
}
