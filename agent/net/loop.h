/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_NET_LOOP_H
#define WB_NET_LOOP_H
/*
 * The loop thread: timers, descriptors, signals, deferred calls and work on a pool, over libuv.
 *
 * A loop belongs to the thread that runs it; every function here is for that thread.  No callback
 * runs from inside the call that set it up.  Destroying a timer, watcher or signal ends it at once:
 * its callback does not run again, even when it is destroyed from inside this callback.  Layer: net
 * (L1).
 */
#include <stdbool.h>
#include <stdint.h>

struct uv_loop_s;
struct wb_clock;
struct wb_err;
struct wb_loop;
struct wb_timer;
struct wb_watch;
struct wb_signal;

typedef void (*wb_loop_fn)(void *cookie);

/** wb_loop_create - a loop; ignores SIGPIPE for the process.  0, -ENOMEM or -EMFILE.
 *  Release with wb_loop_destroy(). */
int wb_loop_create(struct wb_loop **out, struct wb_err *err);
/** wb_loop_destroy - finish closing handles, then free.  Everything made on the loop must have been
 * destroyed or closed before: a handle that is still open is a programming error (asserted).  NULL
 * is allowed. */
void wb_loop_destroy(struct wb_loop *loop);
/** wb_loop_run - run callbacks until wb_loop_stop() or until nothing is left to wait for. */
void wb_loop_run(struct wb_loop *loop);
/** wb_loop_run_once - wait for and run one round of callbacks (@wait false: only what is ready);
 *  true when something is left to wait for.  For tests. */
bool wb_loop_run_once(struct wb_loop *loop, bool wait);
/** wb_loop_stop - wb_loop_run() returns after this round.  Call from a callback. */
void wb_loop_stop(struct wb_loop *loop);
/** wb_loop_uv - the libuv loop inside, only for files of net. */
struct uv_loop_s *wb_loop_uv(struct wb_loop *loop);

/** wb_loop_defer - call @fn soon, from the loop, not before this returns.  0 or -ENOMEM.  It cannot
 * be cancelled: @cookie must live until then. */
int wb_loop_defer(struct wb_loop *loop, wb_loop_fn fn, void *cookie);
/** wb_loop_work - run @work on a pool thread, then @done on the loop.  0 or -ENOMEM. */
int wb_loop_work(struct wb_loop *loop, wb_loop_fn work, wb_loop_fn done, void *cookie);

struct wb_loop_lag {
	uint64_t busy_max_ns; /* longest round of callbacks since the last reading */
	uint64_t busy_ns; /* all rounds since creation */
	uint64_t rounds;
};
/** wb_loop_lag - read the figures; resets busy_max_ns. */
void wb_loop_lag(struct wb_loop *loop, struct wb_loop_lag *out);

/** wb_timer_create - a timer that is not running.  0 or -ENOMEM. */
int wb_timer_create(struct wb_loop *loop, wb_loop_fn fn, void *cookie, struct wb_timer **out);
/** wb_timer_start - fire in @after_ns (rounded up to milliseconds), then every @repeat_ns (0 =
 * once).  A running timer is restarted.  A timer that is late, because the loop was busy or the
 * process stopped, fires after watchers have been called for what came meanwhile, so that a
 * deadline is not judged before an answer that has arrived is read.  A timer that is started by its
 * own function also fires after them, even with @after_ns 0, so work that is done in slices lets
 * others have their turn. */
void wb_timer_start(struct wb_timer *t, uint64_t after_ns, uint64_t repeat_ns);
/** wb_timer_stop - the timer does not fire any more; does nothing when it is not running. */
void wb_timer_stop(struct wb_timer *t);
/** wb_timer_is_running - true until the timer has fired; for a timer that repeats, until it is
 * stopped. */
bool wb_timer_is_running(const struct wb_timer *t);
/** wb_timer_destroy - NULL is allowed. */
void wb_timer_destroy(struct wb_timer *t);

enum { WB_READABLE = 1, WB_WRITABLE = 2 };

/* @events: WB_READABLE | WB_WRITABLE; both when the descriptor is in error. */
typedef void (*wb_watch_fn)(void *cookie, int events);

/**
 * wb_watch_create - watch a descriptor (socket, eventfd, pipe), level-triggered
 * @fd:		borrowed; non-blocking is set; close it only after wb_watch_destroy() has returned
 * @events:	0 = nothing for now
 * Only one watcher per descriptor.  Returns 0, -ENOMEM, -EPERM (not pollable), -EEXIST.
 */
int wb_watch_create(struct wb_loop *loop, int fd, int events, wb_watch_fn fn, void *cookie,
	struct wb_watch **out);
/** wb_watch_set - set what to watch for from now on; 0 = nothing. */
void wb_watch_set(struct wb_watch *w, int events);
void wb_watch_destroy(struct wb_watch *w);

/** wb_signal_create - call @fn on each @signum.  Does not keep the loop running.  0 or -errno. */
int wb_signal_create(
	struct wb_loop *loop, int signum, wb_loop_fn fn, void *cookie, struct wb_signal **out);
/** wb_signal_destroy - no callback is called afterwards; the signal's earlier action is restored.
 * NULL is allowed. */
void wb_signal_destroy(struct wb_signal *s);

#endif
