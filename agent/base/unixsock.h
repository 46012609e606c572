/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_UNIXSOCK_H
#define WB_BASE_UNIXSOCK_H
/*
 * Datagrams with descriptors over unix SOCK_SEQPACKET sockets: what a worker and its agent have in
 * common.  Each call is one try: waiting is up to the caller.
 *
 * No signal is raised; everything made is close-on-exec and non-blocking.  Any thread, one at a
 * time for each socket.  Layer: base (L0).
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WB_UNIX_FDS_MAX 32 /* of one datagram */

/** wb_unix_dial - connect; returns the socket, or a negative errno (-ENAMETOOLONG for a long path;
 * -EAGAIN, at once, while the backlog is full). */
int wb_unix_dial(const char *path);

/**
 * wb_unix_send - send one datagram, or nothing
 * @fds, @n_fd:	descriptors that travel with it, at most WB_UNIX_FDS_MAX; stay the caller's
 * 0 or a negative errno: -EAGAIN while the peer's queue is full, -ETOOMANYREFS while too many
 * descriptors of this user are under way.
 */
int wb_unix_send(int fd, const void *p, size_t bytes, const int *fds, uint32_t n_fd);

/**
 * wb_unix_recv - take one datagram if there is one
 * @fds:	WB_UNIX_FDS_MAX entries, written; the descriptors are the caller's, also those that
 *		came with a datagram that did not fit
 * @flags:	MSG_TRUNC: longer than @cap; MSG_CTRUNC: not all descriptors are here
 * Returns the length, 0 for an empty datagram and at the end of the connection, or a negative
 * errno.
 */
ssize_t wb_unix_recv(int fd, void *p, size_t cap, int *fds, uint32_t *n_fd, int *flags);

#endif
