/* SPDX-License-Identifier: Apache-2.0 */
/* Workers' memory that goes and comes. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/apps_internal.h"
#include "daemon/env.h"
#include "daemon/oplink.h"
#include "net/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOD "apps"
#define WISH_RETRY_NS (50 * WB_NS_PER_MS)

static void say_released(struct app *app, int code, const char *sentence)
{
	char text[WBP_TEXT_MAX];
	struct wb_msg_app_mem_released m = {.code = code, .sentence = text};

	snprintf(text, sizeof(text), "%s", sentence);
	(void)wb_session_send(&app->session, WBP_APP_MEM_RELEASED, &m);
}

void wb__app_mem_release(struct app *app)
{
	struct wb_err err = {0};
	int rc = wb_transfer_sleep(app->s->a->core, app->w->id, &err);

	if (rc < 0)
		say_released(app, rc, err.msg);
	else
		app->w->is_releasing = true;
	wb__env_kick(app->s->a->env); /* reaps: answers when nothing uses it any more */
}

void wb__app_released(struct app *app)
{
	struct wb__worker *w = app->w;

	assert(w->is_releasing && !w->is_leaving);
	w->is_releasing = false;
	WB_LOG_INFO(MOD, "memory released", WB_S("worker", w->name));
	if (wb__apps_all_asleep(app->s, w->object_index))
		wb__env_sleep(app->s->a->env, w->object_index);
	say_released(app, 0, "");
}

void wb__app_wish_free(struct app *app)
{
	for (uint32_t i = 0; app->wish && i < app->wish->n_fd; i++)
		close(app->wish->fd[i]);
	wb_free(app->wish);
	app->wish = NULL;
}

/* Keep what the worker asks for, to try it again; 0 or negative. */
static int wish_keep(struct app *app, const struct wb_msg_app_mem_acquire *m, const int *fds,
	uint32_t n_fd, struct wb_err *err)
{
	assert(!app->wish);
	app->wish = wb_zalloc(1, sizeof(*app->wish) + n_fd * sizeof(int));
	if (!app->wish)
		return wb_err_set(err, -ENOMEM, "no memory to wait for memory");
	app->wish->m = *m;
	snprintf(app->wish->unshared, sizeof(app->wish->unshared), "%s",
		m->unshared ? m->unshared : "");
	app->wish->m.unshared = app->wish->unshared;
	for (uint32_t i = 0; i < n_fd; i++) {
		app->wish->fd[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (app->wish->fd[i] < 0) {
			int rc = -errno;

			wb__app_wish_free(app);
			return wb_err_set(err, rc, "keep a descriptor: %s", wb_strerror(rc));
		}
		app->wish->n_fd = i + 1;
	}
	wb_timer_start(app->s->wish_timer, WISH_RETRY_NS, 0);
	return 0;
}

static int check_released(const struct app *app, struct wb_err *err)
{
	const struct wb__worker *w = app->w;

	if (w->is_releasing || !wb_transfer_is_asleep(app->s->a->core, w->id))
		return wb_err_set(err, -EALREADY, "the memory of %s is not released", w->name);
	return 0;
}

static int acquire(struct app *app, const struct wb_msg_app_mem_acquire *m, const int *fds,
	uint32_t n_fd, struct wb_err *err)
{
	struct wb__worker *w = app->w;
	int rc = check_released(app, err);

	if (rc < 0)
		return rc;
	rc = wb__env_wake(app->s->a->env, w->object_index, err);
	return rc < 0 ? rc : wb__worker_remap(w, m, fds, n_fd, err);
}

static void say_acquired(struct app *app, int code, const char *why)
{
	struct wb__worker *w = app->w;
	char text[WBP_TEXT_MAX];
	struct wb_msg_app_mem_acquired out = {.code = code,
		.lane = wb__worker_lane_is_here(w) ? WB_APP_LANE_AGENT : WB_APP_LANE_WORKER,
		.sentence = text};
	int lane[WB__LANE_FDS];
	uint32_t n_fd = 0;

	snprintf(text, sizeof(text), "%s", why);
	if (out.code == 0)
		n_fd = wb__apps_put_lane(w, lane);
	WB_LOG_INFO(MOD, out.code ? "memory not acquired" : "memory acquired",
		WB_S("worker", w->name), WB_S("reason", text),
		WB_S("lane", wb__worker_lane_is_here(w) ? "agent" : "worker"),
		WB_S("lane_reason", w->lane_why));
	wb__oplink_workers_changed(w->a->oplink[w->object_index]); /* with another lane, perhaps */
	(void)wb_session_send_fds(&app->session, WBP_APP_MEM_ACQUIRED, &out, lane, n_fd);
}

/* The worker may do what it likes with its memory when it hears this: what was imported of that
 * memory is let go before. */
static void try_to_refuse(struct app *app)
{
	struct wb_err no = app->no;

	assert(no.code < 0 && !app->wish);
	if (!wb__worker_let_go(app->w))
		return;
	app->no = (struct wb_err){0};
	say_acquired(app, no.code, no.msg);
}

/* What came of trying; @rc is not -EINPROGRESS. */
static void answer(struct app *app, int rc, const struct wb_err *err)
{
	wb__app_wish_free(app);
	if (rc == 0) {
		say_acquired(app, 0, "");
		return;
	}
	(void)wb_err_set(&app->no, rc, "%s", err->msg);
	try_to_refuse(app);
}

void wb__app_mem_acquire(
	struct app *app, const struct wb_msg_app_mem_acquire *m, const int *fds, uint32_t n_fd)
{
	struct wb_err err = {0};
	int rc = check_released(app, &err);

	app->no.code = 0; /* an answer that the worker does not wait for any more */
	wb__app_wish_free(app); /* nor for this wish */
	if (rc < 0) { /* its memory is in use, and so is what is imported of it */
		say_acquired(app, rc, err.msg);
		return;
	}
	wb__worker_lane_anew(app->w); /* the worker may have offered other memory before */
	rc = acquire(app, m, fds, n_fd, &err);
	if (rc == -EINPROGRESS)
		rc = wish_keep(app, m, fds, n_fd, &err);
	if (!app->wish)
		answer(app, rc, &err);
}

/* Trying all of it again is for pages only: on_lane() says when an import is done. */
static void try_wish(struct app *app)
{
	struct wb_err err = {0};
	int rc;

	if (wb__worker_lane_is_awaited(app->w))
		return;
	rc = acquire(app, &app->wish->m, app->wish->fd, app->wish->n_fd, &err);
	if (rc != -EINPROGRESS)
		answer(app, rc, &err);
	else
		wb_timer_start(app->s->wish_timer, WISH_RETRY_NS, 0);
}

void wb__apps_try_wishes(void *apps)
{
	struct wb__apps *s = apps;

	for (struct app *app = s->apps; app; app = app->next) {
		if (!wb_session_is_up(&app->session) || !app->w)
			continue;
		if (app->wish)
			try_wish(app);
		else if (app->no.code)
			try_to_refuse(app);
	}
	wb__env_kick(s->a->env);
}
