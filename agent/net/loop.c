/* SPDX-License-Identifier: Apache-2.0 */
#include "net/loop.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <uv.h>

struct call { /* heap: wb_loop_defer() */
	struct wb__defer d;
	wb_loop_fn fn;
	void *cookie;
};

struct wb_loop {
	uv_loop_t uv;
	uv_idle_t idle; /* active while calls are deferred: the loop then does not wait */
	uv_prepare_t prepare;
	struct wb__defer *head, **tail;
	bool is_running;
	uint64_t round_ns, round_idle_ns; /* time and idle time when it last began to wait */
	uv_check_t check;
	uint64_t n_polled; /* how often it has polled for events */
	struct wb_loop_lag lag;
};

/* ---- loop ------------------------------------------------------------------------------------ */

static void run_deferred(uv_idle_t *h)
{
	struct wb_loop *l = h->data;
	struct wb__defer *d = l->head;

	/* What these calls defer belongs to the next round. */
	l->head = NULL;
	l->tail = &l->head;
	uv_idle_stop(h);
	while (d) {
		struct wb__defer *next = d->next;

		d->fn(d->cookie);
		d = next;
	}
}

/* The loop is about to wait: callbacks took the time since it last began to wait, less the time
 * that it waited. */
static void measure(uv_prepare_t *h)
{
	struct wb_loop *l = h->data;
	uint64_t now = uv_hrtime(), idle = uv_metrics_idle_time(&l->uv), busy;

	if (l->lag.rounds++) {
		busy = now - l->round_ns;
		busy -= WB_MIN(busy, idle - l->round_idle_ns);
		l->lag.busy_ns += busy;
		l->lag.busy_max_ns = WB_MAX(l->lag.busy_max_ns, busy);
	}
	l->round_ns = now;
	l->round_idle_ns = idle;
}

static void polled(uv_check_t *h)
{
	struct wb_loop *l = h->data;

	l->n_polled++;
}

int wb_loop_create(struct wb_loop **out, struct wb_err *err)
{
	struct wb_loop *l = wb_zalloc(1, sizeof(*l));
	int rc;

	if (!l)
		return wb_err_set(err, -ENOMEM, "event loop: out of memory");
	rc = uv_loop_init(&l->uv);
	if (rc < 0) {
		wb_free(l);
		return wb_err_set(err, rc, "event loop: %s", uv_strerror(rc));
	}
	uv_loop_configure(&l->uv, UV_METRICS_IDLE_TIME);
	uv_idle_init(&l->uv, &l->idle);
	uv_prepare_init(&l->uv, &l->prepare);
	uv_prepare_start(&l->prepare, measure);
	uv_unref((uv_handle_t *)&l->prepare);
	uv_check_init(&l->uv, &l->check);
	uv_check_start(&l->check, polled);
	uv_unref((uv_handle_t *)&l->check);
	l->idle.data = l->prepare.data = l->check.data = l;
	l->tail = &l->head;
	signal(SIGPIPE, SIG_IGN);
	*out = l;
	return 0;
}

static void must_be_closing(uv_handle_t *h, void *cookie)
{
	(void)cookie;
	if (!uv_is_closing(h))
		WB_LOG_ERR("net", "a handle outlives its loop",
			WB_S("kind", uv_handle_type_name(uv_handle_get_type(h))));
	assert(uv_is_closing(h));
}

void wb_loop_destroy(struct wb_loop *l)
{
	int rc;

	if (!l)
		return;
	assert(!l->is_running);
	while (l->head)
		uv_run(&l->uv, UV_RUN_NOWAIT);
	uv_close((uv_handle_t *)&l->idle, NULL);
	uv_close((uv_handle_t *)&l->prepare, NULL);
	uv_close((uv_handle_t *)&l->check, NULL);
	uv_walk(&l->uv, must_be_closing, NULL);
	uv_run(&l->uv, UV_RUN_DEFAULT);
	rc = uv_loop_close(&l->uv);
	assert(rc == 0);
	wb_free(l);
}

void wb_loop_run(struct wb_loop *l)
{
	assert(!l->is_running);
	l->is_running = true;
	uv_run(&l->uv, UV_RUN_DEFAULT);
	l->is_running = false;
}

bool wb_loop_run_once(struct wb_loop *l, bool wait)
{
	int more;

	assert(!l->is_running);
	l->is_running = true;
	more = uv_run(&l->uv, wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
	l->is_running = false;
	return more != 0;
}

void wb_loop_stop(struct wb_loop *l)
{
	uv_stop(&l->uv);
}

struct uv_loop_s *wb_loop_uv(struct wb_loop *l)
{
	return &l->uv;
}

void wb_loop_lag(struct wb_loop *l, struct wb_loop_lag *out)
{
	*out = l->lag;
	l->lag.busy_max_ns = 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

void wb__defer(struct wb_loop *l, struct wb__defer *d)
{
	d->next = NULL;
	*l->tail = d;
	l->tail = &d->next;
	uv_idle_start(&l->idle, run_deferred);
}

static void run_call(void *cookie)
{
	struct call *c = cookie;
	wb_loop_fn fn = c->fn;
	void *arg = c->cookie;

	wb_free(c);
	fn(arg);
}

int wb_loop_defer(struct wb_loop *l, wb_loop_fn fn, void *cookie)
{
	struct call *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->d.fn = run_call;
	c->d.cookie = c;
	c->fn = fn;
	c->cookie = cookie;
	wb__defer(l, &c->d);
	return 0;
}

struct work {
	uv_work_t uv;
	wb_loop_fn work, done;
	void *cookie;
};

static void work_run(uv_work_t *uv)
{
	struct work *w = wb_container_of(uv, struct work, uv);

	w->work(w->cookie);
}

static void work_done(uv_work_t *uv, int status)
{
	struct work *w = wb_container_of(uv, struct work, uv);

	(void)status; /* never cancelled */
	w->done(w->cookie);
	wb_free(w);
}

int wb_loop_work(struct wb_loop *l, wb_loop_fn work, wb_loop_fn done, void *cookie)
{
	struct work *w = wb_zalloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->work = work;
	w->done = done;
	w->cookie = cookie;
	uv_queue_work(&l->uv, &w->uv, work_run, work_done);
	return 0;
}

/* ---- timers ---------------------------------------------------------------------------------- */

#define LATE_MS 20

struct wb_timer {
	struct wb_loop *loop;
	uv_timer_t uv;
	wb_loop_fn fn;
	void *cookie;
	uint64_t due_ms, repeat_ms; /* by the loop's clock */
	uint64_t fired_in; /* in which turn of the loop; 0 = it has not fired yet */
	uint64_t n_polled; /* the loop's, when this began to wait for the next poll */
	bool is_waiting;
};

static void free_handle(uv_handle_t *h)
{
	wb_free(h->data);
}

/* The present turn of the loop, from 1 on.  A turn ends when the loop has polled for events. */
static uint64_t turn_of(const struct wb_timer *t)
{
	return t->loop->n_polled + 1;
}

/* Whether the loop has to poll for events before this timer may fire.  There are two reasons.  The
 * timer is late, because the loop was busy or the process stopped: an event that the timer is to
 * report as missing may have come.  Or the timer has fired in this turn already: if its function
 * starts it again without delay, libuv would call this function forever, and nothing else. */
static bool is_to_wait(struct wb_timer *t)
{
	bool is_late = uv_now(t->uv.loop) >= t->due_ms + LATE_MS;

	if (!t->is_waiting && (is_late || t->fired_in == turn_of(t))) {
		t->is_waiting = true;
		t->n_polled = t->loop->n_polled;
	}
	return t->is_waiting && t->n_polled == t->loop->n_polled;
}

static void timer_fired(uv_timer_t *uv)
{
	struct wb_timer *t = uv->data;

	if (is_to_wait(t)) {
		uv_timer_start(uv, timer_fired, 1, t->repeat_ms);
		return;
	}
	t->is_waiting = false;
	t->fired_in = turn_of(t);
	t->due_ms = uv_now(uv->loop) + t->repeat_ms;
	t->fn(t->cookie);
}

int wb_timer_create(struct wb_loop *l, wb_loop_fn fn, void *cookie, struct wb_timer **out)
{
	struct wb_timer *t = wb_zalloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	uv_timer_init(&l->uv, &t->uv);
	t->loop = l;
	t->uv.data = t;
	t->fn = fn;
	t->cookie = cookie;
	*out = t;
	return 0;
}

void wb_timer_start(struct wb_timer *t, uint64_t after_ns, uint64_t repeat_ns)
{
	/* libuv counts from the start of the round, which may lie some time back. */
	uv_update_time(t->uv.loop);
	t->is_waiting = false;
	t->repeat_ms = wb_ceil_div(repeat_ns, WB_NS_PER_MS);
	t->due_ms = uv_now(t->uv.loop) + wb_ceil_div(after_ns, WB_NS_PER_MS);
	uv_timer_start(&t->uv, timer_fired, wb_ceil_div(after_ns, WB_NS_PER_MS), t->repeat_ms);
}

void wb_timer_stop(struct wb_timer *t)
{
	uv_timer_stop(&t->uv);
}

bool wb_timer_is_running(const struct wb_timer *t)
{
	return uv_is_active((const uv_handle_t *)&t->uv);
}

void wb_timer_destroy(struct wb_timer *t)
{
	if (t)
		uv_close((uv_handle_t *)&t->uv, free_handle);
}

/* ---- watchers -------------------------------------------------------------------------------- */

struct wb_watch {
	uv_poll_t uv;
	wb_watch_fn fn;
	void *cookie;
};

static void watch_fired(uv_poll_t *uv, int status, int events)
{
	struct wb_watch *w = uv->data;
	int ev = 0;

	if (events & UV_READABLE)
		ev |= WB_READABLE;
	if (events & UV_WRITABLE)
		ev |= WB_WRITABLE;
	/* The owner's next read or write tells it what is wrong. */
	w->fn(w->cookie, status < 0 ? WB_READABLE | WB_WRITABLE : ev);
}

int wb_watch_create(
	struct wb_loop *l, int fd, int events, wb_watch_fn fn, void *cookie, struct wb_watch **out)
{
	struct wb_watch *w = wb_zalloc(1, sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	rc = uv_poll_init(&l->uv, &w->uv, fd);
	if (rc < 0) {
		wb_free(w);
		return rc;
	}
	w->uv.data = w;
	w->fn = fn;
	w->cookie = cookie;
	wb_watch_set(w, events);
	*out = w;
	return 0;
}

void wb_watch_set(struct wb_watch *w, int events)
{
	int ev =
		(events & WB_READABLE ? UV_READABLE : 0) | (events & WB_WRITABLE ? UV_WRITABLE : 0);

	if (ev)
		uv_poll_start(&w->uv, ev, watch_fired);
	else
		uv_poll_stop(&w->uv);
}

void wb_watch_destroy(struct wb_watch *w)
{
	if (!w)
		return;
	/* Takes the descriptor out of the poll set now: the caller may close it. */
	uv_poll_stop(&w->uv);
	uv_close((uv_handle_t *)&w->uv, free_handle);
}

/* ---- signals --------------------------------------------------------------------------------- */

struct wb_signal {
	uv_signal_t uv;
	wb_loop_fn fn;
	void *cookie;
};

static void signal_fired(uv_signal_t *uv, int signum)
{
	struct wb_signal *s = uv->data;

	(void)signum;
	s->fn(s->cookie);
}

int wb_signal_create(
	struct wb_loop *l, int signum, wb_loop_fn fn, void *cookie, struct wb_signal **out)
{
	struct wb_signal *s = wb_zalloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = uv_signal_init(&l->uv, &s->uv);
	if (rc < 0) {
		wb_free(s);
		return rc;
	}
	s->uv.data = s;
	s->fn = fn;
	s->cookie = cookie;
	uv_unref((uv_handle_t *)&s->uv);
	rc = uv_signal_start(&s->uv, signal_fired, signum);
	if (rc < 0) {
		wb_signal_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void wb_signal_destroy(struct wb_signal *s)
{
	if (s)
		uv_close((uv_handle_t *)&s->uv, free_handle);
}
