/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_APPS_INTERNAL_H
#define WB_DAEMON_APPS_INTERNAL_H
/* Connections of workers, for the files that serve them.  Layer: daemon (L4). */
#include "base/err.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "proto/session.h"

#define WB__LANE_FDS 4

/* An APP_MEM_ACQUIRE that waits for pages, or for an import. */
struct wb__wish {
	struct wb_msg_app_mem_acquire m;
	char unshared[WBP_TEXT_MAX]; /* text that m points to */
	uint32_t n_fd;
	int fd[]; /* owned */
};

/* A connection; it may become a worker. */
struct app {
	struct app *next;
	struct wb__apps *s;
	struct wb_seq *conn;
	struct wb_session session;
	uint32_t pid;
	struct wb__worker *w; /* NULL before ATTACH is answered, and after the worker left */
	struct wb__worker *coming; /* owned; a worker whose ATTACH waits for an import */
	/* A worker that left while some of its memory is here; when that is gone, this ends. */
	struct wb__worker *going;
	struct wb_err bye; /* the cause that it ends with then; code 0: in order */
	struct wb__wish *wish; /* owned; NULL = none waits */
	/* Refusal of APP_MEM_ACQUIRE, said when nothing of its memory is here; code 0 = none. */
	struct wb_err no;
};

struct wb__apps {
	struct wb__agent *a;
	struct wb_seq_listener *listener;
	struct wb_timer *timer; /* runs while somebody has not said HELLO */
	struct wb_timer *wish_timer; /* runs while a wish waits for pages */
	struct app *apps;
	struct wb__worker *workers;
	struct wb__contents *contents;
	uint32_t last_id;
	char status[WB__OBJECTS_MAX][WB_ERR_MSG_MAX]; /* last news for workers that wait */
	bool is_awaited[WB__OBJECTS_MAX]; /* status is what the operator says is awaited */
	char library[WB_ERR_MSG_MAX]; /* why the last worker was refused for its library, or "" */
};

/** wb__apps_put_lane - fill in the descriptors that a worker with a lane of its own needs for it;
 * returns how many. */
uint32_t wb__apps_put_lane(const struct wb__worker *w, int fds[WB__LANE_FDS]);

/* ---- apps_memory.c: memory that goes and comes ---- */

/** wb__app_mem_release - APP_MEM_RELEASE of an attached worker: refused at once if a transfer needs
 * the memory, else answered by wb__app_released(). */
void wb__app_mem_release(struct app *app);
/** wb__app_mem_acquire - APP_MEM_ACQUIRE of a worker.  What it brings is borrowed, and copied if it
 * has to wait.  Answered now or from the loop. */
void wb__app_mem_acquire(
	struct app *app, const struct wb_msg_app_mem_acquire *m, const int *fds, uint32_t n_fd);
/** wb__app_released - nothing uses the worker's memory any more. */
void wb__app_released(struct app *app);
/** wb__apps_try_wishes - look whether wishes that wait can be granted.  @apps: a struct
 * wb__apps. */
void wb__apps_try_wishes(void *apps);
/** wb__app_wish_free - free the app's wish: it does not wait any more. */
void wb__app_wish_free(struct app *app);

#endif
