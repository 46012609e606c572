/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_SEQ_H
#define WB_NET_SEQ_H
/*
 * Datagram connections on a unix socket (SOCK_SEQPACKET) with descriptors, the agent's side.
 *
 * Life as for a channel (chan.h): on_closed is called exactly once, from the loop, and is the last
 * callback; after it returns the connection is freed.  What a peer sent before it closed is
 * delivered before on_closed, also when somebody sends to the peer meanwhile, or the peer has left
 * unread what was sent before.
 * Threads: the loop's.  Layer: net (L1).
 */
#include "base/err.h"
#include "base/unixsock.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct wb_loop;
struct wb_seq;
struct wb_seq_listener;

#define WB_SEQ_BYTES_MAX (128u << 10)
#define WB_SEQ_FDS_MAX WB_UNIX_FDS_MAX

struct wb_seq_cb {
	void *cookie;
	/* One datagram, borrowed for the call.  @fds: set entries to -1 to keep them; the others
	 * are closed afterwards. */
	void (*on_msg)(void *cookie, struct wb_seq *s, const uint8_t *msg, size_t bytes, int *fds,
		uint32_t n_fd);
	/* The connection has ended; why->code is 0 after wb_seq_close() or when the peer closed. */
	void (*on_closed)(void *cookie, struct wb_seq *s, const struct wb_err *why);
};

struct wb_seq_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* A new connection: bind callbacks, or close it, before returning. */
typedef void (*wb_seq_accept_fn)(void *cookie, struct wb_seq *s);

struct wb_seq_listen_opts {
	const char *path; /* at most 107 bytes */
	mode_t mode; /* of the socket file; 0 = 0600 */
	uint32_t conns_max; /* 0 = 1024; connections above it are accepted and closed at once */
	size_t queue_bytes_max; /* datagrams waiting for a slow peer; 0 = 1 MiB */
};

/**
 * wb_seq_listen - serve a socket file
 * A socket file left by a dead process, on which nobody answers, is replaced.  Returns 0;
 * -EADDRINUSE when somebody answers; -EEXIST when the path is no socket; -ENAMETOOLONG; -EACCES,
 * ...; -ENOMEM; each with the path.
 */
int wb_seq_listen(struct wb_loop *loop, const struct wb_seq_listen_opts *o,
	wb_seq_accept_fn on_accept, void *cookie, struct wb_seq_listener **out, struct wb_err *err);
/** wb_seq_listener_close - stop, and remove the file if it is still ours.  Connections continue. */
void wb_seq_listener_close(struct wb_seq_listener *l);

/** wb_seq_adopt - make a connection from a connected SEQPACKET socket; takes @fd_take on
 * success. */
int wb_seq_adopt(struct wb_loop *loop, int fd_take, size_t queue_bytes_max, struct wb_seq **out,
	struct wb_err *err);
/** wb_seq_bind - set the callbacks; a second call replaces them. */
void wb_seq_bind(struct wb_seq *s, const struct wb_seq_cb *cb);
/** wb_seq_peer - who connected, as the kernel reports it; borrowed, valid as long as the connection
 * lives. */
const struct wb_seq_peer *wb_seq_peer(const struct wb_seq *s);
/**
 * wb_seq_peer_process - a descriptor that becomes readable when the process that connected has
 * ended
 * Ended means: its memory, its descriptors and its work on devices are gone.  The end of the
 * connection says less: a process that is killed closes the connection before some of these are
 * gone.  May be called in on_closed.  The caller closes the descriptor.
 * -ESRCH: the process has ended; -ENOSYS: the kernel cannot tell (before 6.5, for another pid
 * namespace); -EMFILE, -ENOMEM.
 */
int wb_seq_peer_process(const struct wb_seq *s);

/**
 * wb_seq_send - send one datagram
 * @fds:	borrowed (duplicated if the datagram has to wait); NULL when @n_fd is 0
 * Returns 0; -EAGAIN when the queue is full; -EMSGSIZE above WB_SEQ_BYTES_MAX, for 0 bytes, or for
 * too many descriptors; -ENOTCONN when the connection has ended; -ENOMEM; -EMFILE.
 */
int wb_seq_send(struct wb_seq *s, const void *msg, size_t bytes, const int *fds, uint32_t n_fd);
/** wb_seq_close - send what is queued (for at most a second), then end the connection. */
void wb_seq_close(struct wb_seq *s);

#endif
