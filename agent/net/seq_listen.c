/* SPDX-License-Identifier: Apache-2.0 */
#include "net/seq.h"

#include "base/base.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct wb_seq_listener {
	struct wb_loop *loop;
	struct wb_watch *watch;
	struct wb_timer *pause;
	wb_seq_accept_fn on_accept;
	void *cookie;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	dev_t dev; /* of the socket file, to know it again */
	ino_t ino;
	uint32_t n_conn, conns_max;
	size_t queue_bytes_max;
	int fd;
	bool is_closed; /* freed when the last connection is gone */
};

/* ---- the socket file ------------------------------------------------------------------------- */

/* Nobody answers on @path: 0.  Somebody does, or it is no socket: an error. */
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
	/* Held for as long as a bind takes. */
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

static int bind_file(struct wb_seq_listener *l, mode_t mode, struct wb_err *err)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct stat st;
	int rc;

	strcpy(sa.sun_path, l->path);
	rc = is_stale(l->path, err);
	if (rc < 0)
		return rc;
	unlink(l->path);
	/* Nobody can connect before listen(), so the mode is right from the first moment. */
	if (bind(l->fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ||
		chmod(l->path, mode ? mode : 0600) < 0 || lstat(l->path, &st) < 0 ||
		listen(l->fd, 128) < 0)
		return wb_err_set(err, -errno, "socket %s: %s", l->path, strerror(errno));
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	return 0;
}

static void remove_file(const struct wb_seq_listener *l)
{
	struct stat st;

	if (l->ino && !lstat(l->path, &st) && st.st_dev == l->dev && st.st_ino == l->ino)
		unlink(l->path);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void listener_free_if_idle(struct wb_seq_listener *l)
{
	if (l->is_closed && !l->n_conn)
		wb_free(l);
}

static void conn_gone(void *cookie)
{
	struct wb_seq_listener *l = cookie;

	l->n_conn--;
	listener_free_if_idle(l);
}

static void pause_over(void *cookie)
{
	struct wb_seq_listener *l = cookie;

	wb_watch_set(l->watch, WB_READABLE);
}

static void take_connection(struct wb_seq_listener *l, int fd)
{
	struct wb_seq *s;

	if (l->n_conn >= l->conns_max || wb_seq_adopt(l->loop, fd, l->queue_bytes_max, &s, NULL)) {
		WB_LOG_WRN("net", "worker connection turned away", WB_S("socket", l->path),
			WB_U("connections", l->n_conn));
		close(fd);
		return;
	}
	l->n_conn++;
	wb__seq_set_gone(s, conn_gone, l);
	l->on_accept(l->cookie, s);
}

static void listener_fired(void *cookie, int events)
{
	struct wb_seq_listener *l = cookie;

	(void)events;
	for (int i = 0; i < 16 && !l->is_closed; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			take_connection(l, fd);
			continue;
		}
		if (wb__accept_pause(errno)) {
			wb_watch_set(l->watch, 0);
			wb_timer_start(l->pause, WB__ACCEPT_PAUSE_NS, 0);
		}
		return;
	}
}

static int open_listener(struct wb_seq_listener *l, mode_t mode, struct wb_err *err)
{
	int lock, rc;

	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return wb_err_set(err, -errno, "socket %s: %s", l->path, strerror(errno));
	lock = lock_folder(l->path, err);
	if (lock < 0)
		return lock;
	rc = bind_file(l, mode, err);
	close(lock);
	if (rc < 0)
		return rc;
	rc = wb_timer_create(l->loop, pause_over, l, &l->pause);
	if (!rc)
		rc = wb_watch_create(l->loop, l->fd, WB_READABLE, listener_fired, l, &l->watch);
	return rc < 0 ? wb_err_set(err, rc, "socket %s: %s", l->path, wb_strerror(rc)) : 0;
}

int wb_seq_listen(struct wb_loop *loop, const struct wb_seq_listen_opts *o,
	wb_seq_accept_fn on_accept, void *cookie, struct wb_seq_listener **out, struct wb_err *err)
{
	struct wb_seq_listener *l;
	int rc;

	if (strlen(o->path) >= sizeof(l->path))
		return wb_err_set(err, -ENAMETOOLONG,
			"socket %s: a path of at most %zu bytes is possible", o->path,
			sizeof(l->path) - 1);
	l = wb_zalloc(1, sizeof(*l));
	if (!l)
		return wb_err_set(err, -ENOMEM, "socket %s: out of memory", o->path);
	strcpy(l->path, o->path);
	l->loop = loop;
	l->on_accept = on_accept;
	l->cookie = cookie;
	l->conns_max = o->conns_max ? o->conns_max : 1024;
	l->queue_bytes_max = o->queue_bytes_max;
	rc = open_listener(l, o->mode, err);
	if (rc < 0) {
		wb_seq_listener_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

void wb_seq_listener_close(struct wb_seq_listener *l)
{
	if (!l)
		return;
	l->is_closed = true;
	wb_watch_destroy(l->watch);
	wb_timer_destroy(l->pause);
	remove_file(l);
	if (l->fd >= 0)
		close(l->fd);
	listener_free_if_idle(l);
}
