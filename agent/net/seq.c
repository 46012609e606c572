/* SPDX-License-Identifier: Apache-2.0 */
#include "net/seq.h"

#include "base/clock.h"
#include "base/mem.h"
#include "net/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* newer than Debian 12's headers */
#define SO_PEERPIDFD 77
#endif
#define QUEUE_BYTES_DEFAULT (1u << 20)
#define MSGS_A_ROUND 32 /* then other connections have their turn */

struct datagram {
	struct datagram *next;
	size_t bytes;
	uint32_t n_fd;
	int fds[WB_SEQ_FDS_MAX]; /* owned */
	uint8_t data[];
};

struct wb_seq {
	struct wb_loop *loop;
	struct wb_seq_cb cb;
	struct wb_seq_peer peer;
	int fd;
	struct wb_watch *watch;
	struct wb_timer *linger;
	struct datagram *head, **tail;
	size_t queued_bytes, queue_bytes_max;
	bool is_closing, has_ended, was_reset;
	struct wb_err why;
	struct wb__defer end;
	void (*on_gone)(void *cookie); /* tells the listener; may be NULL */
	void *gone_cookie;
};

/* ---- end ------------------------------------------------------------------------------------- */

static void drop_datagram(struct wb_seq *s)
{
	struct datagram *d = s->head;

	s->head = d->next;
	if (!s->head)
		s->tail = &s->head;
	s->queued_bytes -= d->bytes;
	for (uint32_t i = 0; i < d->n_fd; i++)
		close(d->fds[i]);
	wb_free(d);
}

static void seq_ended(void *cookie)
{
	struct wb_seq *s = cookie;

	if (s->cb.on_closed)
		s->cb.on_closed(s->cb.cookie, s, &s->why);
	close(s->fd);
	if (s->on_gone)
		s->on_gone(s->gone_cookie);
	wb_free(s);
}

/* @why may be NULL: closed in order. */
static void seq_end(struct wb_seq *s, const struct wb_err *why)
{
	if (s->has_ended)
		return;
	s->has_ended = true;
	if (why)
		s->why = *why;
	wb_watch_destroy(s->watch);
	wb_timer_destroy(s->linger);
	while (s->head)
		drop_datagram(s);
	s->end.fn = seq_ended;
	s->end.cookie = s;
	wb__defer(s->loop, &s->end);
}

static void seq_fail(struct wb_seq *s, int code, const char *what)
{
	struct wb_err e = {0};

	wb_err_set(
		&e, code, "worker process %d: %s: %s", (int)s->peer.pid, what, wb_strerror(code));
	seq_end(s, &e);
}

static void linger_over(void *cookie)
{
	seq_end(cookie, NULL);
}

void wb_seq_close(struct wb_seq *s)
{
	if (s->is_closing || s->has_ended)
		return;
	s->is_closing = true;
	if (!s->head) {
		seq_end(s, NULL);
		return;
	}
	wb_watch_set(s->watch, WB_WRITABLE);
	wb_timer_start(s->linger, WB_NS_PER_S, 0);
}

/* ---- send ------------------------------------------------------------------------------------ */

/* The peer has closed, and reads nothing more.  This is no failure yet: we still have to read what
 * it sent before that, and then its end. */
static bool has_closed(int rc)
{
	return rc == -EPIPE || rc == -ECONNRESET;
}

static int enqueue(struct wb_seq *s, const void *msg, size_t bytes, const int *fds, uint32_t n_fd)
{
	struct datagram *d;

	if (s->queued_bytes + bytes > s->queue_bytes_max)
		return -EAGAIN;
	d = wb_alloc(sizeof(*d) + bytes);
	if (!d)
		return -ENOMEM;
	memset(d, 0, sizeof(*d));
	d->bytes = bytes;
	memcpy(d->data, msg, bytes);
	for (; d->n_fd < n_fd; d->n_fd++) {
		d->fds[d->n_fd] = fcntl(fds[d->n_fd], F_DUPFD_CLOEXEC, 3);
		if (d->fds[d->n_fd] < 0) {
			int rc = -errno;

			while (d->n_fd)
				close(d->fds[--d->n_fd]);
			wb_free(d);
			return rc;
		}
	}
	*s->tail = d;
	s->tail = &d->next;
	s->queued_bytes += bytes;
	wb_watch_set(s->watch, WB_READABLE | WB_WRITABLE);
	return 0;
}

int wb_seq_send(struct wb_seq *s, const void *msg, size_t bytes, const int *fds, uint32_t n_fd)
{
	int rc;

	if (!bytes || bytes > WB_SEQ_BYTES_MAX || n_fd > WB_SEQ_FDS_MAX)
		return -EMSGSIZE;
	if (s->is_closing || s->has_ended)
		return -ENOTCONN;
	if (s->head)
		return enqueue(s, msg, bytes, fds, n_fd);
	rc = wb_unix_send(s->fd, msg, bytes, fds, n_fd);
	/* ETOOMANYREFS: too many descriptors are in messages under way; soon there are fewer. */
	if (rc == -EAGAIN || rc == -ENOBUFS || rc == -ETOOMANYREFS)
		return enqueue(s, msg, bytes, fds, n_fd);
	if (rc == -EMSGSIZE || rc == -EBADF)
		return rc;
	if (has_closed(rc))
		return 0;
	if (rc < 0) {
		seq_fail(s, rc, "send");
		return -ENOTCONN;
	}
	return 0;
}

static void flush(struct wb_seq *s)
{
	int rc = 0;

	while (s->head && !rc) {
		rc = wb_unix_send(
			s->fd, s->head->data, s->head->bytes, s->head->fds, s->head->n_fd);
		if (has_closed(rc))
			rc = 0;
		if (!rc)
			drop_datagram(s);
	}
	if (rc < 0 && rc != -EAGAIN && rc != -ENOBUFS && rc != -ETOOMANYREFS) {
		seq_fail(s, rc, "send");
		return;
	}
	if (s->head)
		return;
	if (s->is_closing)
		seq_end(s, NULL);
	else
		wb_watch_set(s->watch, WB_READABLE);
}

/* ---- receive --------------------------------------------------------------------------------- */

/* One datagram; false when there is nothing more to read now. */
static bool receive(struct wb_seq *s, uint8_t *buf)
{
	int fds[WB_SEQ_FDS_MAX], flags;
	uint32_t n_fd;
	ssize_t n = wb_unix_recv(s->fd, buf, WB_SEQ_BYTES_MAX, fds, &n_fd, &flags);

	/* If a peer closed and left something unread, the kernel reports a reset once, before what
	 * the peer sent. */
	if (n == -ECONNRESET && !s->was_reset) {
		s->was_reset = true;
		return true;
	}
	if (n < 0) {
		if (n != -EAGAIN)
			seq_fail(s, (int)n, "receive");
		return false;
	}
	if (n == 0 && !n_fd)
		seq_end(s, NULL);
	else if (flags & MSG_TRUNC)
		seq_fail(s, -EMSGSIZE, "a datagram above the limit");
	else if (flags & MSG_CTRUNC)
		seq_fail(s, -EMFILE, "its descriptors did not fit");
	else if (s->cb.on_msg)
		s->cb.on_msg(s->cb.cookie, s, buf, (size_t)n, fds, n_fd);
	for (uint32_t i = 0; i < n_fd; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return !s->has_ended && !s->is_closing;
}

static void seq_fired(void *cookie, int events)
{
	struct wb_seq *s = cookie;
	uint8_t buf[WB_SEQ_BYTES_MAX];
	int n = 0;

	if (events & WB_WRITABLE)
		flush(s);
	if (!(events & WB_READABLE) || s->is_closing || s->has_ended)
		return;
	while (n++ < MSGS_A_ROUND && receive(s, buf))
		;
}

/* ---- making connections ---------------------------------------------------------------------- */

int wb_seq_adopt(struct wb_loop *loop, int fd_take, size_t queue_bytes_max, struct wb_seq **out,
	struct wb_err *err)
{
	struct wb_seq *s = wb_zalloc(1, sizeof(*s));
	struct ucred uc = {0};
	socklen_t len = sizeof(uc);
	int rc;

	if (!s)
		return wb_err_set(err, -ENOMEM, "worker connection: out of memory");
	s->loop = loop;
	s->fd = fd_take;
	s->tail = &s->head;
	s->queue_bytes_max = queue_bytes_max ? queue_bytes_max : QUEUE_BYTES_DEFAULT;
	if (!getsockopt(fd_take, SOL_SOCKET, SO_PEERCRED, &uc, &len))
		s->peer = (struct wb_seq_peer){uc.pid, uc.uid, uc.gid};
	rc = wb_timer_create(loop, linger_over, s, &s->linger);
	if (!rc) {
		rc = wb_watch_create(loop, fd_take, WB_READABLE, seq_fired, s, &s->watch);
		if (rc < 0)
			wb_timer_destroy(s->linger);
	}
	if (rc < 0) {
		wb_free(s);
		return wb_err_set(err, rc, "worker connection: %s", wb_strerror(rc));
	}
	*out = s;
	return 0;
}

void wb_seq_bind(struct wb_seq *s, const struct wb_seq_cb *cb)
{
	s->cb = *cb;
}

const struct wb_seq_peer *wb_seq_peer(const struct wb_seq *s)
{
	return &s->peer;
}

/* Find the process by its number.  If it has ended and the number was given again, this is another
 * process. */
static int process_of(pid_t pid)
{
	int fd;

	if (pid <= 0)
		return -ENOSYS; /* of another pid namespace */
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return errno == ESRCH ? -ESRCH : -ENOSYS;
	return fd;
}

int wb_seq_peer_process(const struct wb_seq *s)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	if (!getsockopt(s->fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &len))
		return fd;
	switch (errno) {
	case EMFILE:
	case ENFILE:
		return -EMFILE;
	case ENOMEM:
		return -ENOMEM;
	case EINVAL: /* in some kernels: the process has ended and was waited for */
	case ESRCH:
		return -ESRCH;
	}
	return process_of(s->peer.pid);
}

void wb__seq_set_gone(struct wb_seq *s, void (*on_gone)(void *cookie), void *cookie)
{
	s->on_gone = on_gone;
	s->gone_cookie = cookie;
}
