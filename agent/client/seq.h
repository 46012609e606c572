/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CLIENT_SEQ_H
#define WB_CLIENT_SEQ_H
/*
 * Datagrams with descriptors to the agent: base/unixsock.h with timeouts that suit a worker.
 *
 * Any thread, but only one at a time for each socket.  Layer: client (L3).
 */
#include "base/unixsock.h"

#define WB__SEQ_FDS_MAX WB_UNIX_FDS_MAX

/**
 * wb__client_seq_send - send one datagram
 * @fds:	descriptors that travel with it (stay the caller's); NULL when @n_fd is 0
 * Blocks up to @timeout_ms while the peer's queue is full.  Returns 0; -EPIPE or -ECONNRESET when
 * the peer is gone; -EAGAIN at the timeout; -EMSGSIZE.
 */
int wb__client_seq_send(
	int fd, const void *p, size_t bytes, const int *fds, unsigned n_fd, int timeout_ms);

/**
 * wb__client_seq_recv - take one datagram if there is one
 * @p, @cap:	buffer
 * @fds:	WB__SEQ_FDS_MAX entries, written; owned by the caller
 * @n_fd:	number received
 * Never blocks.  Returns the length > 0; -EAGAIN; -ECONNRESET when the peer closed; -EMSGSIZE when
 * the datagram or its descriptors did not fit (nothing is kept).
 */
int64_t wb__client_seq_recv(int fd, void *p, size_t cap, int *fds, unsigned *n_fd);

#endif
