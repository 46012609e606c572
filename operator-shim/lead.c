/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/lead.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "net/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TEXT_MAX 600
#define COUNT_NS WB_NS_PER_S

/* What the thread reports, in the order in which it can happen. */
enum news { NEWS_OTHER, NEWS_LEADING, NEWS_IDLE, NEWS_SERVE, NEWS_LOST, NEWS_RELEASED, NEWS_COUNT };

/* One side of the mailbox.  The other side writes, and then wakes this side by its eventfd. */
struct side {
	int fd;
	struct wb_watch *watch;
};

struct wb__lead {
	struct wb__lead_cb cb;
	void (*released)(void *cookie);
	void *released_cookie;
	bool serves_all, has_thread, has_lock;
	pthread_t thread;
	struct side here, there;
	_Atomic uint64_t last_ok_ns;

	pthread_mutex_t lock; /* for the fields down to is_to_stop */
	bool is_news[NEWS_COUNT];
	uint64_t transitions;
	char text[NEWS_COUNT][TEXT_MAX]; /* the last text of each kind */
	bool is_to_release, is_to_stop;

	/* Used by the thread alone, once it runs. */
	struct wb_loop *loop;
	struct wb_kube *kube;
	struct wb_kube_lease *lease;
	struct wb_kube_claim *claim;
	struct wb_timer *timer;
};

static void wake(const struct side *s)
{
	uint64_t one = 1;

	/* Fails only when the counter is full; then the side is awake already. */
	if (write(s->fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

static void take(const struct side *s)
{
	uint64_t n;

	if (read(s->fd, &n, sizeof(n)) < 0)
		assert(errno == EAGAIN);
}

static int open_side(struct wb_loop *loop, wb_watch_fn fn, struct wb__lead *l, struct side *out)
{
	out->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (out->fd < 0)
		return -errno;
	return wb_watch_create(loop, out->fd, WB_READABLE, fn, l, &out->watch);
}

static void close_side(struct side *s)
{
	wb_watch_destroy(s->watch);
	s->watch = NULL;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/* ---- the thread ---- */

static void note_answers(void *cookie)
{
	struct wb__lead *l = cookie;
	struct wb_kube_stats st;

	wb_kube_get_stats(l->kube, &st);
	atomic_store(&l->last_ok_ns, st.last_ok_ns);
}

static void tell(struct wb__lead *l, enum news what, const char *text, uint64_t transitions)
{
	note_answers(l);
	pthread_mutex_lock(&l->lock);
	l->is_news[what] = true;
	if (what == NEWS_LEADING)
		l->transitions = transitions;
	snprintf(l->text[what], TEXT_MAX, "%s", text);
	pthread_mutex_unlock(&l->lock);
	wake(&l->here);
}

static void on_serve(void *cookie)
{
	tell(cookie, NEWS_SERVE, "", 0);
}

static void on_idle(void *cookie, const char *rival)
{
	tell(cookie, NEWS_IDLE, rival, 0);
}

static void on_leading(void *cookie, uint64_t transitions)
{
	struct wb_kube_claim_cb cb = {cookie, on_serve, on_idle};
	struct wb__lead *l = cookie;

	tell(l, NEWS_LEADING, "", transitions);
	if (!l->serves_all)
		on_serve(l);
	else if (wb_kube_claim_start(l->kube, l->lease, &cb, &l->claim) < 0)
		tell(l, NEWS_LOST, "out of memory", 0);
}

static void end_claim(struct wb__lead *l)
{
	wb_kube_claim_stop(l->claim);
	l->claim = NULL;
}

/* Stop with the Lease.  So after a loss we do not take it again before the operator ends. */
static void end_lease(struct wb__lead *l)
{
	end_claim(l);
	wb_kube_lease_stop(l->lease);
	l->lease = NULL;
}

static void on_lost(void *cookie, const char *why)
{
	tell(cookie, NEWS_LOST, why, 0);
	end_lease(cookie);
}

static void on_other(void *cookie, const char *holder, const char *address)
{
	(void)holder;
	tell(cookie, NEWS_OTHER, address, 0);
}

static void on_released(void *cookie)
{
	tell(cookie, NEWS_RELEASED, "", 0);
}

static void end_thread(struct wb__lead *l)
{
	end_lease(l);
	wb_timer_destroy(l->timer);
	wb_kube_destroy(l->kube);
	wb_watch_destroy(l->there.watch);
	l->there.watch = NULL;
}

static void release(struct wb__lead *l)
{
	end_claim(l);
	if (l->lease)
		wb_kube_lease_release(l->lease, on_released);
	else
		on_released(l);
}

static void on_asked(void *cookie, int events)
{
	struct wb__lead *l = cookie;
	bool is_to_release, is_to_stop;

	(void)events;
	take(&l->there);
	pthread_mutex_lock(&l->lock);
	is_to_release = l->is_to_release;
	is_to_stop = l->is_to_stop;
	l->is_to_release = false;
	pthread_mutex_unlock(&l->lock);
	if (is_to_stop)
		end_thread(l); /* then the loop has nothing left to wait for, and returns */
	else if (is_to_release)
		release(l);
}

static void *thread_main(void *cookie)
{
	struct wb__lead *l = cookie;

	wb_timer_start(l->timer, COUNT_NS, COUNT_NS);
	wb_loop_run(l->loop);
	return NULL;
}

/* ---- the caller's loop ---- */

static void on_news(void *cookie, int events)
{
	struct wb__lead *l = cookie;
	bool is_news[NEWS_COUNT];
	char text[NEWS_COUNT][TEXT_MAX];
	uint64_t transitions;

	(void)events;
	take(&l->here);
	pthread_mutex_lock(&l->lock);
	memcpy(is_news, l->is_news, sizeof(is_news));
	memcpy(text, l->text, sizeof(text));
	memset(l->is_news, 0, sizeof(l->is_news));
	transitions = l->transitions;
	pthread_mutex_unlock(&l->lock);
	if (l->released) {
		if (is_news[NEWS_RELEASED])
			l->released(l->released_cookie);
		return;
	}
	if (is_news[NEWS_OTHER])
		l->cb.on_other(l->cb.cookie, text[NEWS_OTHER]);
	if (is_news[NEWS_LEADING])
		l->cb.on_leading(l->cb.cookie, transitions);
	if (is_news[NEWS_IDLE])
		l->cb.on_idle(l->cb.cookie, text[NEWS_IDLE]);
	if (is_news[NEWS_SERVE] && !is_news[NEWS_LOST])
		l->cb.on_serve(l->cb.cookie);
	if (is_news[NEWS_LOST])
		l->cb.on_lost(l->cb.cookie, text[NEWS_LOST]);
}

static void ask(struct wb__lead *l, bool *what)
{
	pthread_mutex_lock(&l->lock);
	*what = true;
	pthread_mutex_unlock(&l->lock);
	wake(&l->there);
}

void wb__lead_release(struct wb__lead *l, void (*done)(void *cookie), void *cookie)
{
	l->released = done;
	l->released_cookie = cookie;
	ask(l, &l->is_to_release);
}

uint64_t wb__lead_last_ok_ns(const struct wb__lead *l)
{
	return atomic_load(&l->last_ok_ns);
}

/* ---- life ---- */

static int open_all(struct wb__lead *l, struct wb_loop *loop, struct wb_kube_config *config_take,
	const struct wb_kube_lease_opts *o, struct wb_err *err)
{
	const struct wb_kube_opts ko = {.per_s = 10, .burst = 10, .in_flight = 4};
	struct wb_kube_lease_cb cb = {l, on_leading, on_lost, on_other};
	int rc = wb_loop_create(&l->loop, err);

	if (rc < 0) {
		wb_kube_config_finish(config_take);
		return rc;
	}
	rc = wb_kube_create(l->loop, config_take, &ko, &l->kube, err);
	if (rc < 0)
		return rc;
	rc = -pthread_mutex_init(&l->lock, NULL);
	l->has_lock = rc == 0;
	if (rc == 0)
		rc = open_side(loop, on_news, l, &l->here);
	if (rc == 0)
		rc = open_side(l->loop, on_asked, l, &l->there);
	if (rc == 0)
		rc = wb_timer_create(l->loop, note_answers, l, &l->timer);
	if (rc == 0)
		rc = wb_kube_lease_start(l->kube, o, &cb, &l->lease);
	if (rc == 0)
		rc = wb_thread_start(&l->thread, "wb-lead", thread_main, l);
	l->has_thread = rc == 0;
	return rc < 0 ? wb_err_set(err, rc, "the thread that leads: %s", wb_strerror(rc)) : 0;
}

int wb__lead_start(struct wb_loop *loop, struct wb_kube_config *config_take,
	const struct wb__lead_opts *o, const struct wb__lead_cb *cb, struct wb__lead **out,
	struct wb_err *err)
{
	struct wb__lead *l = wb_zalloc(1, sizeof(*l));
	int rc;

	if (!l) {
		wb_kube_config_finish(config_take);
		return wb_err_set(err, -ENOMEM, "out of memory");
	}
	l->cb = *cb;
	l->serves_all = o->serves_all;
	l->here.fd = l->there.fd = -1;
	rc = open_all(l, loop, config_take, &o->lease, err);
	if (rc < 0) {
		wb__lead_stop(l);
		return rc;
	}
	*out = l;
	return 0;
}

void wb__lead_stop(struct wb__lead *l)
{
	if (!l)
		return;
	if (l->has_thread) {
		ask(l, &l->is_to_stop);
		pthread_join(l->thread, NULL);
	} else {
		end_thread(l);
	}
	wb_loop_destroy(l->loop);
	close_side(&l->here);
	close_side(&l->there);
	if (l->has_lock)
		pthread_mutex_destroy(&l->lock);
	wb_free(l);
}
