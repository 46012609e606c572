/* SPDX-License-Identifier: Apache-2.0 */
#include "net/seq.h"

#include "base/log.h"
#include "base/mem.h"
#include "net/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct wb_seq_listener {
	struct wb_loop *loop;
	struct wb_watch *watch;
	struct wb_timer *pause;
	wb_seq_accept_fn on_accept;
	void *cookie;
	struct wb__unix_file file;
	uint32_t n_conn, conns_max;
	size_t queue_bytes_max;
	int fd;
	bool is_closed; /* freed when the last connection is gone */
};

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
		WB_LOG_WRN("net", "worker connection turned away", WB_S("socket", l->file.path),
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

static int open_listener(
	struct wb_seq_listener *l, const char *path, mode_t mode, struct wb_err *err)
{
	int rc = wb__unix_bind(path, SOCK_SEQPACKET, mode, &l->file, &l->fd, err);

	if (rc < 0)
		return rc;
	rc = wb_timer_create(l->loop, pause_over, l, &l->pause);
	if (!rc)
		rc = wb_watch_create(l->loop, l->fd, WB_READABLE, listener_fired, l, &l->watch);
	return rc < 0 ? wb_err_set(err, rc, "socket %s: %s", path, wb_strerror(rc)) : 0;
}

int wb_seq_listen(struct wb_loop *loop, const struct wb_seq_listen_opts *o,
	wb_seq_accept_fn on_accept, void *cookie, struct wb_seq_listener **out, struct wb_err *err)
{
	struct wb_seq_listener *l;
	int rc;

	l = wb_zalloc(1, sizeof(*l));
	if (!l)
		return wb_err_set(err, -ENOMEM, "socket %s: out of memory", o->path);
	l->fd = -1;
	l->loop = loop;
	l->on_accept = on_accept;
	l->cookie = cookie;
	l->conns_max = o->conns_max ? o->conns_max : 1024;
	l->queue_bytes_max = o->queue_bytes_max;
	rc = open_listener(l, o->path, o->mode, err);
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
	wb__unix_remove(&l->file);
	if (l->fd >= 0)
		close(l->fd);
	listener_free_if_idle(l);
}
