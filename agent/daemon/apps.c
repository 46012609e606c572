/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/apps_internal.h"
#include "daemon/content.h"
#include "daemon/env.h"
#include "daemon/oplink.h"
#include "daemon/trace.h"
#include "lane/lane.h"
#include "net/loop.h"
#include "net/seq.h"
#include "proto/build.h"
#include "proto/session.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOD "apps"
#define HELLO_NS (5 * WB_NS_PER_S) /* from connecting to saying who it is */

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static int link_send(void *conn, const void *frame, size_t bytes, const int *fds, uint32_t n_fd)
{
	return wb_seq_send(conn, frame, bytes, fds, n_fd);
}

static void link_close(void *conn)
{
	wb_seq_close(conn);
}

static const struct wb_session_io io = {
	link_send, link_close, wb_msg_encode_bin, wb_msg_decode_bin, NULL};

/* The worker may do what it likes with its memory when it hears this: what was imported of that
 * memory was let go before (reap). */
static void end(struct app *app)
{
	if (app->bye.code)
		wb_session_reject(&app->session, app->bye.code, false, app->bye.msg);
	else
		wb_session_end(&app->session, 0, "it was detached");
}

static void refuse(struct app *app, int code, const char *sentence)
{
	WB_LOG_WRN(MOD, "worker refused", WB_U("pid", app->pid), WB_S("reason", sentence));
	(void)wb_err_set(&app->bye, code, "%s", sentence);
	if (!app->going)
		end(app);
}

/* The operator tells people this: those who started the worker may not see what it says. */
static void note_library(struct wb__apps *s, const char *sentence)
{
	if (!strcmp(s->library, sentence))
		return;
	snprintf(s->library, sizeof(s->library), "%s", sentence);
	for (uint32_t i = 0; i < s->a->o.n_served; i++)
		wb__oplink_workers_changed(s->a->oplink[i]);
}

const char *wb__apps_library(const struct wb__apps *s)
{
	return s->library;
}

static void refuse_library(struct app *app, int code, const char *sentence)
{
	note_library(app->s, sentence);
	refuse(app, code, sentence);
}

static void leave(struct app *app, const char *why);

/* The worker has said no goodbye, and its lane may be at work. */
static void await_end(struct app *app)
{
	if (app->w)
		wb__worker_await_end(app->w);
}

/* What the worker sent makes no sense, or what it had to send did not come. */
static void cut_off(struct app *app, int code, const char *why)
{
	char text[WB_ERR_MSG_MAX];

	text[0] = '\0';
	if (app->w)
		snprintf(text, sizeof(text), "%s (pid %u) was cut off: %.512s", app->w->name,
			app->pid, why);
	await_end(app);
	leave(app, text);
	refuse(app, code, why);
}

/* ---- hello and attach --------------------------------------------------------------------- */

static void on_hello(struct app *app, const struct wb_msg_app_hello *m)
{
	struct wb__agent *a = app->s->a;
	struct wb_msg_app_welcome out;
	struct wb_err err = {0};
	char build[WB_BUILD_TEXT], name[WB_XPORT_NAME_MAX];
	uint32_t proto;
	int rc;

	assert(!app->w);
	if (!app->pid) /* another pid namespace: the number the worker itself knows */
		app->pid = m->pid;
	rc = wb_session_agree(
		&app->session, "the client library", m->proto_min, m->proto_max, &err);
	proto = app->session.version;
	if (rc == 0) {
		wb_build_text(WB_VERSION, proto, proto, build);
		if (!wb_build_is_same(m->lib_version, m->proto_min, proto))
			rc = wb_err_set(&err, WB_EVERSION,
				"the worker's libweightbridge is build %.64s, agent %s is %s, and "
				"they do "
				"not understand each other: take both from one release, in the "
				"images of "
				"the worker and of its sidecar",
				m->lib_version, a->o.name, build);
	}
	if (rc < 0) {
		refuse_library(app, rc, err.msg);
		return;
	}
	snprintf(name, sizeof(name), "%s", a->o.name);
	out = (struct wb_msg_app_welcome){
		.proto = proto, .agent_version = build, .agent = name, .imports = a->o.imports};
	wb_session_enter(&app->session, WB_SESSION_WELCOMED, now_ns());
	(void)wb_session_send(&app->session, WBP_APP_WELCOME, &out);
}

static int check_claim(const struct wb__apps *s, uint32_t role, int64_t rank, const char *engine,
	uint32_t object_index, struct wb_err *err)
{
	if (wb__agent_is_draining(s->a))
		return wb_err_set(err, -ESHUTDOWN, "agent %s is stopping", s->a->o.name);
	for (const struct wb__worker *w = s->workers; w; w = w->next) {
		if (w->is_leaving || w->object_index != object_index || (uint32_t)w->role != role ||
			w->rank < 0 || w->rank != rank || strcmp(w->engine, engine ? engine : ""))
			continue;
		return wb_err_set(err, -EEXIST,
			"rank %lld of %s%s is claimed already by %s (pid %u)", (long long)rank,
			role == WB_ROLE_TRAINER ? "the trainer" : "engine ", w->engine, w->name,
			w->pid);
	}
	return 0;
}

uint32_t wb__apps_put_lane(const struct wb__worker *w, int fds[WB__LANE_FDS])
{
	if (wb__worker_lane_is_here(w))
		return 0;
	fds[0] = w->lane_fds->shared;
	fds[1] = w->lane_fds->submit;
	fds[2] = w->lane_fds->complete;
	fds[3] = wb__env_arena_fd(w->a->env, w->object_index);
	return WB__LANE_FDS;
}

static int send_attached(struct app *app, struct wb__worker *w)
{
	struct wb_msg_app_attached m = {
		.worker = w->id,
		.name = w->name,
		.lane = wb__worker_lane_is_here(w) ? WB_APP_LANE_AGENT : WB_APP_LANE_WORKER,
	};
	int fds[1 + WB__LANE_FDS] = {w->page_fd};
	uint32_t n_fd = 1 + wb__apps_put_lane(w, fds + 1);

	return wb_session_send_fds(&app->session, WBP_APP_ATTACHED, &m, fds, n_fd);
}

/* A trainer hears what is awaited also when it has a plan: its send begins when all other trainer
 * workers have sent, and one of those may be gone.  The empty sentence tells it that nothing is
 * awaited any more. Rollout workers that have a plan wait for nothing. */
static void send_status(struct app *app)
{
	struct wb_msg_app_status m = {.sentence = app->s->status[app->w->object_index]};
	bool is_awaited = app->s->is_awaited[app->w->object_index];
	bool wants =
		app->w->is_planned ? app->w->role == WB_ROLE_TRAINER && is_awaited : *m.sentence;

	assert(!app->w->is_leaving);
	if (wants && wb_session_is_up(&app->session))
		(void)wb_session_send(&app->session, WBP_APP_STATUS, &m);
}

static int enter_core(struct wb__worker *w, struct wb_err *err)
{
	const struct wb_transfer_worker cw = {
		.id = w->id,
		.object = w->object,
		.engine = w->engine,
		.name = w->name,
		.role = w->role,
		.manifest = w->manifest,
		.map = w->map,
		.place = w->t.place,
		.base = w->t.has_heap ? NULL : w->t.base, /* NULL: all work goes to its lane */
		.lane = w->lane,
		.page = w->role == WB_ROLE_ROLLOUT ? w->page : NULL,
		.past = w->past,
	};
	int rc = wb_transfer_attach(w->a->core, &cw, err);

	w->in_core = rc == 0;
	return rc;
}

static void log_attached(const struct wb__worker *w)
{
	char map[WB_DIGEST_TEXT];

	WB_LOG_INFO(MOD, "worker attached", WB_S("worker", w->name), WB_U("pid", w->pid),
		WB_S("role", wb_word(&wb_role_words, w->role)), WB_S("engine", w->engine),
		WB_I("rank", w->rank), WB_U("params", w->map->n_param),
		WB_S("map", wb_digest_text(w->map->digest, map)),
		WB_S("lane", wb__worker_lane_is_here(w) ? "agent" : "worker"),
		WB_S("lane_reason", w->lane_why));
}

/* Drop a worker that is not attached after all; what was imported of it goes first. */
static void discard(struct app *app, struct wb__worker *w)
{
	assert(!app->going && !w->in_core);
	w->is_leaving = true;
	if (wb__worker_let_go(w)) {
		wb__worker_destroy(w);
		return;
	}
	w->next = app->s->workers;
	app->s->workers = w;
	app->going = w;
}

static void attached(struct app *app, struct wb__worker *w)
{
	struct wb__apps *s = app->s;

	w->conn = app->conn;
	w->pid = app->pid;
	w->next = s->workers;
	s->workers = w;
	app->w = w;
	wb_session_enter(&app->session,
		w->role == WB_ROLE_TRAINER ? WB_SESSION_TRAINER : WB_SESSION_ROLLOUT, now_ns());
	log_attached(w);
	note_library(s, "");
	wb_fault_phase(s->a->fault, WB_FAULT_ATTACH);
	wb__trace_mark(s->a->trace, "attached", w->name, 0, w->pid);
	send_status(app);
	wb__oplink_workers_changed(s->a->oplink[w->object_index]);
	wb__env_kick(s->a->env);
}

/* Attach the worker; it is known now who has its lane. */
static void attach(struct app *app, struct wb__worker *w, struct wb_err *err)
{
	int rc;

	wb__worker_name(w); /* others may have come while it was imported */
	rc = enter_core(w, err);
	if (rc == 0)
		rc = send_attached(app, w);
	if (rc == 0) {
		attached(app, w);
		return;
	}
	if (w->in_core)
		(void)wb_transfer_detach(app->s->a->core, w->id, NULL);
	w->in_core = false;
	discard(app, w);
	refuse(app, rc, err->code ? err->msg : wb_strerror(rc));
}

/* Much may have changed while the worker was imported: other workers may have come, and its object
 * may be another one. */
static int check_again(const struct wb__apps *s, const struct wb__worker *w, struct wb_err *err)
{
	uint32_t index;
	int rc = wb__oplink_find(s->a, w->object, w->model, &index, err);

	if (rc == 0 && index != w->object_index)
		rc = wb_err_set(err, -ENOENT,
			"the object that is meant is another one of agent %s by now: attach anew",
			s->a->o.name);
	return rc < 0 ? rc : check_claim(s, w->role, w->rank, w->engine, index, err);
}

/* Go on with a worker that has waited for its import, if that is done. */
static void arrive(struct app *app)
{
	struct wb__worker *w = app->coming;
	struct wb_err err = {0};
	int rc;

	if (wb__worker_lane(w, &w->t, NULL) == -EINPROGRESS)
		return;
	app->coming = NULL;
	rc = check_again(app->s, w, &err);
	if (rc == 0) {
		attach(app, w, &err);
		return;
	}
	discard(app, w);
	refuse(app, rc, err.msg);
}

/* What was out on the worker's lane fails with it.  The worker is sent away so that it comes again,
 * with another lane: it takes -ESHUTDOWN for a passing thing. */
static void lose_lane(struct app *app)
{
	char text[WBP_TEXT_MAX];

	snprintf(text, sizeof(text), "the lane of %s ended by itself: attach anew", app->w->name);
	leave(app, text);
	refuse(app, -ESHUTDOWN, text);
}

static void lane_changed(void *cookie)
{
	struct wb__apps *s = cookie;

	for (struct app *app = s->apps, *next; app; app = next) {
		next = app->next;
		if (app->coming)
			arrive(app);
		else if (app->w && wb__worker_lane_is_lost(app->w))
			lose_lane(app);
	}
	wb__apps_try_wishes(s);
}

static void on_attach(
	struct app *app, const struct wb_msg_app_attach *m, const int *fds, uint32_t n_fd)
{
	struct wb__apps *s = app->s;
	struct wb__attach_in in = {.id = s->last_id + 1,
		.m = m,
		.fds = fds,
		.n_fd = n_fd,
		.on_lane = lane_changed,
		.on_lane_cookie = s};
	struct wb__worker *w = NULL;
	struct wb__exports x = {
		.bytes = m->export_bytes, .n_fd = m->export_fds, .unshared = m->unshared};
	struct wb_err err = {0};
	int rc = wb__oplink_find(s->a, m->object, m->model, &in.object_index, &err);

	assert(!app->w && app->conn);
	if (rc == 0)
		rc = check_claim(s, m->role, m->rank, m->engine, in.object_index, &err);
	if (rc == 0)
		rc = wb__worker_exports(&x, fds, n_fd, m->area_bytes != 0, &err);
	if (rc == 0)
		rc = wb__worker_create(s->a, s->contents, &in, &w, &err);
	if (rc) {
		refuse(app, rc, err.code ? err.msg : wb_strerror(rc));
		return;
	}
	s->last_id++;
	if (wb__worker_lane(w, &w->t, &x) == -EINPROGRESS)
		app->coming = w;
	else
		attach(app, w, &err);
}

static bool is_coming(const struct wb__apps *s, uint32_t index)
{
	for (const struct app *app = s->apps; app; app = app->next)
		if (app->coming && app->coming->object_index == index && app->coming->lane_fds)
			return true;
	return false;
}

/* A worker that is about to be attached is not asleep. */
bool wb__apps_all_asleep(const struct wb__apps *s, uint32_t index)
{
	if (is_coming(s, index))
		return false;
	for (const struct wb__worker *w = s->workers; w; w = w->next)
		if (!w->is_leaving && w->object_index == index &&
			(!wb_transfer_is_asleep(s->a->core, w->id) || w->is_releasing))
			return false;
	return true;
}

bool wb__apps_has_lanes(const struct wb__apps *s, uint32_t index)
{
	for (const struct wb__worker *w = s->workers; w; w = w->next)
		if (w->object_index == index && w->lane_fds)
			return true;
	return is_coming(s, index);
}

/* ---- leaving ------------------------------------------------------------------------------- */

static void leave(struct app *app, const char *why)
{
	struct wb__worker *w = app->w;

	if (app->coming)
		discard(app, app->coming);
	app->coming = NULL;
	if (!w)
		return;
	assert(w->in_core && !w->is_leaving && w->conn == app->conn);
	app->w = NULL;
	w->conn = NULL;
	w->is_leaving = true;
	if (why)
		WB_LOG_WRN(MOD, "worker lost", WB_S("worker", w->name), WB_U("pid", w->pid),
			WB_S("engine", w->engine), WB_S("reason", why));
	else
		WB_LOG_INFO(MOD, "worker detached", WB_S("worker", w->name), WB_U("pid", w->pid),
			WB_S("engine", w->engine));
	wb__trace_mark(app->s->a->trace, why ? "lost" : "detached", w->name, 0, w->pid);
	if (!wb__worker_let_go(w) && w->imports) /* it hears of the end when nothing is imported */
		app->going = w;
	(void)wb_transfer_detach(app->s->a->core, w->id, why);
	wb__oplink_workers_changed(app->s->a->oplink[w->object_index]);
	wb__env_kick(app->s->a->env); /* reaps */
}

/* Nothing of the worker is imported any more, so its connection may end.  True: nothing uses the
 * worker. */
static bool is_over(struct wb__apps *s, struct wb__worker *w)
{
	for (struct app *app = s->apps; app; app = app->next)
		if (app->going == w) {
			app->going = NULL;
			end(app);
		}
	return !w->in_core ||
	       (wb_transfer_is_detached(s->a->core, w->id) && wb__worker_regions_remove(w));
}

void wb__apps_reap(struct wb__apps *s)
{
	struct wb__worker **at = &s->workers, *w;

	for (struct app *app = s->apps; app; app = app->next)
		if (app->w && app->w->is_releasing &&
			wb_transfer_is_quiet(s->a->core, app->w->id) && wb__worker_unmap(app->w))
			wb__app_released(app);
	while ((w = *at)) {
		if (!w->is_leaving || !wb__worker_let_go(w) || !is_over(s, w)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		wb__worker_destroy(w);
	}
}

/* ---- messages ------------------------------------------------------------------------------ */

/* Refuse a send: a transfer that begins now would not end here, or is not wanted. */
static void refuse_send(struct app *app, const struct wb_msg_app_send *m)
{
	const struct wb__agent *a = app->s->a;
	bool is_draining = wb__agent_is_draining(a);
	char text[WBP_TEXT_MAX];
	struct wb_msg_app_send_state out = {.version = m->version,
		.state = WB_APP_SEND_FINAL,
		.code = is_draining ? -ESHUTDOWN : -ECANCELED,
		.sentence = text};

	if (is_draining)
		snprintf(text, sizeof(text), "agent %s is stopping and begins no transfer",
			a->o.name);
	else
		snprintf(text, sizeof(text),
			"the WeightTransfer is suspended: no transfer begins until its "
			"spec.suspend "
			"is false");
	wb__apps_send(app->s, app->w->id, WBP_APP_SEND_STATE, &out);
}

static void on_msg(void *cookie, struct wb_seq *conn, const uint8_t *msg, size_t bytes, int *fds,
	uint32_t n_fd)
{
	struct app *app = cookie;
	struct wb_err err = {0};
	struct wb_frame f;
	union wb_msg m;
	int rc;

	(void)conn;
	rc = wb_session_take(&app->session, msg, bytes, now_ns(), &f, &m, &err);
	if (rc == 0)
		return;
	if (rc < 0 && rc != -EPROTO && app->session.state == WB_SESSION_HELLO) {
		wb_err_wrap(&err, rc,
			"the worker's libweightbridge is of another release than agent %s",
			app->s->a->o.name);
		refuse_library(app, rc, err.msg);
		return;
	}
	if (rc < 0) {
		cut_off(app, rc, err.msg);
		return;
	}
	if (app->going || (app->coming && f.type != WBP_APP_DETACH)) {
		wb_msg_free(f.type, &m); /* it is on its way out, or has asked to be attached */
		return;
	}
	assert(!wb_session_is_up(&app->session) || app->w);
	if (f.type == WBP_APP_HELLO) {
		on_hello(app, &m.app_hello);
	} else if (f.type == WBP_APP_ATTACH) {
		on_attach(app, &m.app_attach, fds, n_fd);
	} else if (f.type == WBP_APP_MEM_RELEASE) {
		wb__app_mem_release(app);
	} else if (f.type == WBP_APP_MEM_ACQUIRE) {
		wb__app_mem_acquire(app, &m.app_mem_acquire, fds, n_fd);
	} else if (f.type == WBP_APP_DETACH) {
		leave(app, NULL);
		if (!app->going)
			end(app);
	} else if (f.type == WBP_APP_SEND &&
		   (wb__agent_is_draining(app->s->a) ||
			   wb__oplink_is_suspended(app->s->a, app->w->object_index))) {
		refuse_send(app, &m.app_send);
	} else {
		wb_transfer_worker_msg(app->s->a->core, app->w->id, f.type, &m);
		wb__env_kick(app->s->a->env);
	}
	wb_msg_free(f.type, &m);
}

static void on_closed(void *cookie, struct wb_seq *conn, const struct wb_err *why)
{
	struct app *app = cookie, **at = &app->s->apps;
	char text[WB_ERR_MSG_MAX];

	assert(conn == app->conn);
	(void)wb_session_closed(&app->session, why);
	if (app->w && why->code && why->code != -ECONNRESET)
		snprintf(text, sizeof(text), "%s (pid %u) was cut off: %.512s", app->w->name,
			app->pid, why->msg);
	else if (app->w)
		snprintf(text, sizeof(text), "%s (pid %u) exited", app->w->name, app->pid);
	else if (why->code && why->code != -ECONNRESET)
		WB_LOG_WRN(MOD, "worker refused", WB_U("pid", app->pid), WB_S("reason", why->msg));
	await_end(app);
	leave(app, text);
	while (*at != app)
		at = &(*at)->next;
	*at = app->next;
	wb__app_wish_free(app);
	wb_free(app);
}

/* The library says HELLO at once; a process that does not is not the library, and would hold a
 * descriptor for ever. */
static void end_silent(void *cookie)
{
	struct wb__apps *s = cookie;
	uint64_t now = now_ns(), due = UINT64_MAX;
	struct wb_err err = {0};

	for (struct app *app = s->apps; app; app = app->next) {
		if (wb_session_tick(&app->session, now, &err) < 0)
			cut_off(app, err.code, err.msg);
		due = WB_MIN(due, wb_session_due(&app->session));
	}
	if (due != UINT64_MAX)
		wb_timer_start(s->timer, due - now, 0);
}

static void on_accept(void *cookie, struct wb_seq *conn)
{
	struct wb__apps *s = cookie;
	struct app *app = wb_zalloc(1, sizeof(*app));
	const struct wb_seq_peer *peer = wb_seq_peer(conn);

	if (!app) {
		wb_seq_close(conn);
		return;
	}
	app->s = s;
	app->conn = conn;
	app->pid = peer && peer->pid > 0 ? (uint32_t)peer->pid : 0;
	app->session = (struct wb_session){.io = &io,
		.side = WB_SIDE_WORKERS,
		.bounds.hello_ns = HELLO_NS,
		.counts = &s->a->control[WB__CONTROL_WORKER]};
	wb_session_accept(&app->session, conn, now_ns());
	app->next = s->apps;
	s->apps = app;
	if (!wb_timer_is_running(s->timer))
		wb_timer_start(s->timer, HELLO_NS, 0);
	wb_seq_bind(
		conn, &(struct wb_seq_cb){.cookie = app, .on_msg = on_msg, .on_closed = on_closed});
}

/* ---- from the rest of the agent ------------------------------------------------------------ */

int wb__apps_start(struct wb__agent *a, struct wb__apps **out, struct wb_err *err)
{
	/* In a pod the app has a user of its own: the volume says who may come, not the mode. */
	mode_t mode = a->o.socket_mode ? a->o.socket_mode : a->o.n_token_file ? 0666 : 0600;
	struct wb_seq_listen_opts o = {.path = a->o.socket, .mode = mode};
	struct wb__apps *s = wb_zalloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (s)
		s->contents = wb__contents_create();
	if (!s || !s->contents) {
		wb_err_set(err, rc, "no memory for the workers' socket");
		goto err_destroy;
	}
	s->a = a;
	rc = wb_timer_create(a->loop, end_silent, s, &s->timer);
	if (rc == 0)
		rc = wb_timer_create(a->loop, wb__apps_try_wishes, s, &s->wish_timer);
	if (rc == 0)
		rc = wb_seq_listen(a->loop, &o, on_accept, s, &s->listener, err);
	if (rc < 0)
		goto err_destroy;
	*out = s;
	return 0;
err_destroy:
	wb__apps_destroy(s);
	return rc;
}

void wb__apps_close(struct wb__apps *s)
{
	if (s->listener)
		wb_seq_listener_close(s->listener);
	s->listener = NULL;
	for (struct app *app = s->apps; app; app = app->next) {
		leave(app, NULL);
		if (!app->going)
			end(app);
	}
	for (struct wb__worker *w = s->workers; w; w = w->next)
		wb__worker_forget_end(w);
}

bool wb__apps_is_empty(const struct wb__apps *s)
{
	return !s->apps && !s->workers;
}

void wb__apps_destroy(struct wb__apps *s)
{
	if (!s)
		return;
	assert(wb__apps_is_empty(s));
	wb_timer_destroy(s->timer);
	wb_timer_destroy(s->wish_timer);
	wb__contents_destroy(s->contents);
	wb_free(s);
}

static struct app *app_of(const struct wb__apps *s, uint32_t worker)
{
	for (struct app *app = s->apps; app; app = app->next)
		if (app->w && app->w->id == worker)
			return app;
	return NULL;
}

void wb__apps_send(struct wb__apps *s, uint32_t worker, uint16_t type, const void *msg)
{
	wb__apps_send_fd(s, worker, type, msg, -1);
}

void wb__apps_send_fd(struct wb__apps *s, uint32_t worker, uint16_t type, const void *msg, int fd)
{
	struct app *app = app_of(s, worker);

	if (!app || !wb_session_is_up(&app->session))
		return;
	/* Without this message the worker would wait for ever: a failure ends the session. */
	if (wb_session_send_fds(&app->session, type, msg, &fd, fd >= 0) < 0)
		WB_LOG_ERR(MOD, "cannot send to worker", WB_S("worker", app->w->name),
			WB_S("reason", app->session.cause.msg));
	if (type != WBP_APP_PLANNED)
		return;
	if (!app->w->is_planned)
		WB_LOG_INFO(MOD, "worker planned", WB_S("worker", app->w->name));
	app->w->is_planned = true;
	send_status(app); /* the plan ended the status from before it, which may still hold */
}

void wb__apps_refuse(struct wb__apps *s, uint32_t worker, int code, const char *sentence)
{
	struct app *app = app_of(s, worker);

	if (!app)
		return;
	await_end(app);
	leave(app, NULL);
	refuse(app, code, sentence);
}

static void set_status(struct wb__apps *s, uint32_t index, const char *text, bool is_awaited)
{
	assert(index < s->a->o.n_served);
	if (is_awaited == s->is_awaited[index] && !strcmp(text, s->status[index]))
		return;
	snprintf(s->status[index], sizeof(s->status[index]), "%s", text);
	s->is_awaited[index] = is_awaited;
	for (struct app *app = s->apps; app; app = app->next)
		if (app->w && app->w->object_index == index)
			send_status(app);
}

void wb__apps_awaited(struct wb__apps *s, uint32_t index, const char *sentence)
{
	set_status(s, index, sentence, true);
}

void wb__apps_status(struct wb__apps *s, uint32_t index, const char *fmt, ...)
{
	char text[sizeof(s->status[index])];
	va_list ap;

	assert(index < s->a->o.n_served);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	set_status(s, index, text, false);
}

void wb__apps_give_up(struct wb__apps *s, uint32_t index, int code, const char *sentence)
{
	assert(index < s->a->o.n_served);
	for (struct app *app = s->apps; app; app = app->next) {
		const struct wb__worker *w = app->w ? app->w : app->coming;

		if (!w || w->object_index != index || w->is_planned)
			continue;
		leave(app, NULL);
		refuse(app, code, sentence);
	}
}

struct wb__worker *wb__apps_first(const struct wb__apps *s)
{
	return s->workers;
}

struct wb__worker *wb__apps_find(const struct wb__apps *s, uint32_t id)
{
	for (struct wb__worker *w = s->workers; w; w = w->next)
		if (w->id == id && !w->is_leaving)
			return w;
	return NULL;
}

struct wb__contents *wb__apps_contents(struct wb__apps *s)
{
	return s->contents;
}

void wb__apps_check_object(
	struct wb__apps *s, uint32_t index, const char *object, const char *model)
{
	char text[WBP_TEXT_MAX];

	for (struct app *app = s->apps; app; app = app->next) {
		const struct wb__worker *w = app->w ? app->w : app->coming;

		if (!w || w->object_index != index ||
			((!w->object[0] || !strcmp(w->object, object)) &&
				(!w->model[0] || !model[0] || !strcmp(w->model, model))))
			continue;
		snprintf(text, sizeof(text),
			"this agent serves object %s with model %s, the worker wants object %s, "
			"model %s",
			object, model, w->object[0] ? w->object : "(any)",
			w->model[0] ? w->model : "(any)");
		await_end(app);
		leave(app, NULL);
		refuse(app, -ENOENT, text);
	}
}
