/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CLIENT_INTERNAL_H
#define WB_CLIENT_INTERNAL_H
/*
 * Inside libweightbridge: one client, its connection, its two roles.
 *
 * All state but `hot` is guarded by `lock`, held only for short, non-blocking stretches.  Whoever
 * waits polls the client's epoll descriptor without the lock, then takes it, takes in the news
 * (wb__client_pump) and looks at its own condition; a wait sleeps at most SLICE at a time, because
 * another waiting thread may have taken in the news.
 *
 * Functions named wb__* with a client expect the lock held, unless they say otherwise.
 * Layer: client (L3).
 */
#include "base/err.h"
#include "base/hash.h"
#include "base/unixsock.h"
#include "proto/session.h"
#include "weightbridge/weightbridge.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct wb_poll_page;
struct wb__client_lane;
struct wb__client_area;
struct wb_gpu;

#define WB__SLICE_MS 100
#define WB__MSG_MAX (128u << 10) /* bytes of a datagram */
#define WB__BACKOFF_MIN 20000000ull /* ns */

/* What poll touches.  Its page is wiped in a forked child (MADV_WIPEONFORK), so `alive` is 0 there
 * and the parent's poll word, which the child shares, is left alone. */
struct wb__client_hot {
	uint64_t alive; /* 1 */
	uint64_t *word; /* poll word of the present attachment */
	uint32_t attention; /* not 0: poll has to take the slow way; any thread sets it */
	uint32_t n; /* polls, to look at the clock now and then */
	uint32_t mask; /* look at the clock when (n & mask) == 0 */
	uint64_t look_ns, look_at_ns; /* interval and next time to look at the socket */
};

/* Where a rollout worker is in an update. */
enum wb__client_phase {
	WB__RUN,
	WB__PARKED, /* at its stop */
	WB__BEFORE, /* BEGIN came: the caller runs before_update_hook */
	WB__BEGUN, /* BEGUN sent: parameters change, unless the update is staged */
	WB__INSTALL, /* staged and decided: the caller's thread copies */
	WB__INSTALLED, /* the parameters are new, the other workers' may not be */
	WB__TORN, /* parameters are a mix */
	WB__AFTER, /* END came, committed: the caller runs after_update_hook */
};

/* Whether the agent may use the parameters' memory. */
enum wb__client_mem {
	WB__MEM_HELD,
	WB__MEM_RELEASING, /* asked the agent to let go */
	WB__MEM_RELEASED,
	WB__MEM_ACQUIRING, /* told the agent that it is there again */
};

/* What was attached, kept to attach again.  All descriptors are owned. */
struct wb__client_reg {
	int manifest_fd, map_fd, table_fd; /* sealed memfds */
	uint64_t manifest_bytes, map_bytes, table_bytes;
	uint32_t n_mem, n_param, n_fd;
	struct wb_client_mem *mem; /* owned; fd duplicated */
	struct wb_client_param *param; /* owned */
	struct wb_gpu *gpu; /* owned reference: of the objects on a GPU; NULL = there are none */
};

struct wb_client_transfer {
	struct wb_client *c; /* NULL once closed or followed by another; atomic */
	unsigned refs; /* the caller's and the client's */
	struct wb_client_transfer_info info;
	uint32_t flags;
	char **engine; /* info.n_engine, owned, as is the next */
	uint32_t *engine_state; /* enum wb_engine_state */
	bool reported; /* a failure has been returned to the caller */
	bool release_wanted, release_sent; /* of a hold */
	bool is_held; /* the agent may still read the parameters */
	bool is_lost; /* with its agent; the next may give its number to another transfer */
};

/* One install: what is asked, and what was found. */
struct wb__client_install {
	uint64_t transfer, flip; /* flip: of WB_FAULT, 0 = none */
	bool read_back;
	uint32_t n_bad,
		param; /* pieces that differed and were copied again; parameter of the first */
};

struct wb_client {
	struct wb__client_hot *hot; /* own page */
	pthread_mutex_t lock; /* guards: all below */

	/* options, owned */
	char *socket, *object, *model, *engine;
	uint32_t role, sender_staging, receiver_staging;
	int64_t rank;
	uint64_t connect_timeout, update_timeout, repair_timeout, reconnect_timeout;

	/* connection */
	struct wb_session session; /* its cause: why it is down */
	int fd; /* -1 when down */
	int epfd, timer_fd; /* epfd = {fd, timer_fd}, for waits in here */
	int user_epfd, wake_fd; /* user_epfd = {epfd, wake_fd}, what fileno gives */
	uint32_t attach_count; /* polls when it last asked to be attached */
	bool agent_imports; /* the agent of this connection wants descriptions of memory of a GPU */
	uint32_t owed; /* polls that a new page does not count yet */
	uint32_t generation; /* of the attachment; rises with each ATTACHED */
	uint64_t lost_ns; /* when the agent was lost, 0 = it is there */
	uint64_t tried_ns; /* when this was last seen to */
	uint64_t retry_at_ns, backoff_ns;
	struct wb_rng rng; /* jitter */
	struct wb_err refused; /* the agent's REJECT; code 0 = none */
	uint8_t *rx; /* WB__MSG_MAX */

	/* attachment */
	struct wb__client_reg *reg; /* NULL before attach */
	struct wb_poll_page *page;
	struct wb__client_lane *lane;
	bool is_exported; /* without a lane here the agent works on memory of the GPU */
	struct wb__client_area *area; /* staging; NULL = none */
	char worker[WB_ERROR_MSG_MAX];
	char status[WB_ERROR_MSG_MAX], status_out[WB_ERROR_MSG_MAX];
	uint64_t status_seq;
	bool is_status_over; /* a plan came after it */
	bool is_planned, was_planned; /* now; ever */
	struct wb_client_plan plan;

	/* the parameters' memory: release_memory, acquire_memory */
	enum wb__client_mem mem;
	int mem_code; /* of the agent's last answer */
	bool acquires; /* wb_client_acquire_memory() has not said yet what became of it */
	char mem_why[WB_ERROR_MSG_MAX];

	/* trainer */
	struct wb_client_transfer *cur; /* last transfer or NULL */
	struct wb_client_transfer *prev; /* the one before, when cur was sent beside it, or NULL */
	bool supersedes; /* a send may follow the release of the last */
	bool is_sending;

	/* rollout */
	enum wb__client_phase phase;
	uint64_t phase_ns; /* when phase was entered or the agent last spoke about it */
	uint32_t parked_count, parked_generation;
	bool is_wake; /* wake_fd is readable */
	bool is_staged; /* no parameter changes before INSTALL */
	bool is_copying; /* a thread is at it, without the lock */
	bool is_given_up; /* END came before the copy was made */
	/* Came before it was, too, and its END has not; transfer 0 = none did. */
	struct wb_msg_app_begin next_begin;
	struct wb__client_install install;
	bool was_torn; /* the update that runs repairs a torn worker */
	bool is_torn_final; /* the agent gave up: raise at once */
	/* The agent died between BEGUN and END: TORN, or not.  The next one says so. */
	bool is_in_doubt, is_touched; /* parameters may have been written in that update */
	uint32_t begun_at, done_at; /* poll counts of the stops for transfer and done */
	uint64_t done; /* last transfer that was committed here; 0 = none */
	uint64_t transfer;
	int64_t version;
	char digest[64];
	char why[WB_ERROR_MSG_MAX]; /* abort or tear */
};

/* ---- conn.c: the connection ---- */

/** wb__client_now - CLOCK_MONOTONIC, ns. */
uint64_t wb__client_now(void);
/** wb__client_deadline - now + @timeout without overflow. */
uint64_t wb__client_deadline(uint64_t timeout);
/** wb__client_fail - set the public error; returns @code. */
int wb__client_fail(struct wb_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#ifdef WB_ANALYZE /* see base/err.h */
#define wb__client_fail(err, rc, ...) (wb__client_fail(err, rc, __VA_ARGS__), wb__err_negative(rc))
#endif
/** wb__client_agents_code - a code that the agent gave: 0 when it is no failure.  -ETIMEDOUT,
 * -EAGAIN and -EINTR are what a call says of itself, so that a deadline that the agent missed is
 * @otherwise, and so is what is no code. */
int wb__client_agents_code(int64_t code, int otherwise);
/** wb__client_usable - 0, or -EPERM (forked child), -EINVAL (NULL).  No lock needed. */
int wb__client_usable(struct wb_client *c, struct wb_error *err);
/** wb__client_pump - reconnect when it is time, take in all messages.  Never blocks. */
void wb__client_pump(struct wb_client *c);
/** wb__client_drop - the connection is of no use any more: close it, plan a retry.  Nothing when it
 * is down. */
#define wb__client_drop(c, ...) wb_session_end(&(c)->session, __VA_ARGS__)
/** wb__client_send_msg - encode and send; on failure the connection is dropped.  0 or negative. */
int wb__client_send_msg(
	struct wb_client *c, uint16_t type, const void *msg, const int *fds, unsigned n_fd);
extern const struct wb_session_io wb__client_io;
/** wb__client_attaching - attach has been sent. */
void wb__client_attaching(struct wb_client *c);
/** wb__client_attention - recompute hot->attention. */
void wb__client_attention(struct wb_client *c);

/* What a condition says, where it is not a negative code with @err set. */
enum wb__client_ready {
	WB__CLIENT_NOT_YET = 0,
	WB__CLIENT_READY = 1,
	WB__CLIENT_OTHERWISE = 2, /* the wait is over, too, and the condition says for what */
};

/* A condition: enum wb__client_ready, < 0 failed with @err set.  Lock held. */
typedef int (*wb__client_ready_fn)(struct wb_client *c, void *arg, struct wb_error *err);

/**
 * wb__client_wait - wait for a condition; lock NOT held
 * @deadline:	ns
 * Returns what @ready gave when not NOT_YET; that at the deadline (@err left alone); -EINTR (err
 * set).
 */
int wb__client_wait(struct wb_client *c, uint64_t deadline, wb__client_ready_fn ready, void *arg,
	struct wb_error *err);
/** wb__client_lost - 0, or -ECONNRESET when the agent has been away for too long, or its refusal.
 */
int wb__client_lost(struct wb_client *c, const char *what, struct wb_error *err);

/* ---- attach.c ---- */

/** wb__client_attach_send - say ATTACH with the registered memory, and how far this worker has
 * come; an agent that cannot be told drops the connection. */
void wb__client_attach_send(struct wb_client *c);
/** wb__client_attached - the agent answered; takes the descriptors.  0 or negative: drop. */
int wb__client_attached(
	struct wb_client *c, uint32_t lane, int *fds, unsigned n_fd, struct wb_err *err);
/** wb__client_reg_destroy - close its descriptors and free it; NULL is allowed. */
void wb__client_reg_destroy(struct wb__client_reg *r);
/** wb__client_detach - let go of the poll page and the lane; @is_owner as wb__client_lane_stop().
 */
void wb__client_detach(struct wb_client *c, bool is_owner);

/** wb__client_sealed_copy - a memfd that holds a copy of @p and can never change again, so that the
 *  agent may map it.  The descriptor, or negative. */
int wb__client_sealed_copy(const char *name, const void *p, size_t bytes, struct wb_error *err);
/** wb__client_reg_make - check and copy a table of memory and parameters; @a without manifest and
 * map leaves those descriptors -1.  0 or negative. */
int wb__client_reg_make(
	const struct wb_client_attach *a, struct wb__client_reg **out, struct wb_error *err);

/* ---- device.c ---- */

/** wb__client_device_find - the GPU of the objects of @r that lie on one, held in r->gpu; each is
 *  checked with the driver.  0 or negative, as attach. */
int wb__client_device_find(struct wb__client_reg *r, struct wb_error *err);
/** wb__client_device_settle - the application's work on parameters on a GPU is done, as
 *  wb_gpu_settle() sees it.  Lock NOT held; blocks.  0, or a code as wb_gpu_rc(): -EIO for a
 *  device that is lost. */
int wb__client_device_settle(struct wb_client *c, struct wb_error *err);
/** wb__client_device_settle_on - the same of @g; NULL, no GPU, is allowed. */
int wb__client_device_settle_on(struct wb_gpu *g, struct wb_error *err);

/* What an agent is told of memory of a GPU, so that it may work on it itself. */
struct wb__client_exports {
	int fds[WB_UNIX_FDS_MAX]; /* owned: the descriptions, then their descriptors */
	unsigned n; /* 0 = none */
	uint64_t bytes; /* of the descriptions */
	char why[WB_ERROR_MSG_MAX]; /* there are none */
};

/**
 * wb__client_device_export - describe all that the agent cannot map as memfds
 * @room:	descriptors that the message still takes
 * Either all of it or nothing, with the reason: a lane is in one process.  Lock held or not; calls
 * of the driver, which take microseconds an allocation.
 */
void wb__client_device_export(
	const struct wb__client_reg *r, unsigned room, struct wb__client_exports *out);
/** wb__client_exports_close - when the message has gone. */
void wb__client_exports_close(struct wb__client_exports *x);

/* ---- memory.c ---- */

struct wb_msg_app_mem_released;
struct wb_msg_app_mem_acquired;
/** wb__client_on_mem_released - the agent let the worker's memory go, or says why not. */
void wb__client_on_mem_released(struct wb_client *c, const struct wb_msg_app_mem_released *m);
/** wb__client_on_mem_acquired - the agent has the memory again, or says why not; starts the lane
 * where the worker runs it.  What is taken of @fds becomes -1. */
void wb__client_on_mem_acquired(
	struct wb_client *c, const struct wb_msg_app_mem_acquired *m, int *fds, unsigned n_fd);
/** wb__client_mem_lost - the connection is gone: so is the agent's use of the memory. */
void wb__client_mem_lost(struct wb_client *c);

/* ---- area.c ---- */

/** wb__client_area_take - the agent's staging area takes the place of an earlier one; @fd: taken.
 *  0 or negative; parameters on a GPU: codes as wb_area_gpu_create(). */
int wb__client_area_take(struct wb_client *c, uint64_t bytes, int *fd, struct wb_err *err);
/** wb__client_area_fd - to attach again with; -1 = none. */
int wb__client_area_fd(const struct wb__client_area *a, uint64_t *bytes);
/** wb__client_area_install - copy into the parameters; the lock is NOT needed.  0, WB_ESTALE when
 * the transfer is not whole in it, or WB_ECKSUM when what was read back went on being different;
 * parameters on a GPU: also as wb_area_gpu_copy().  Blocks for as long as the memory takes. */
int wb__client_area_install(struct wb__client_area *a, struct wb__client_install *x);
/** wb__client_area_holds - has the agent marked @transfer as committed? */
bool wb__client_area_holds(const struct wb__client_area *a, uint64_t transfer);
/** wb__client_area_destroy - unmap and close it; NULL is allowed.  Its content stays with the
 * agent.  @is_owner: as wb__client_lane_stop(). */
void wb__client_area_destroy(struct wb__client_area *a, bool is_owner);

/* ---- lane.c ---- */

#define WB__LANE_FDS 4 /* rings, submit, complete, slots */

/**
 * wb__client_lane_start - run the agent's jobs on the registered memory, in a thread
 * @reg:	borrowed until stop
 * @fds:	those taken become -1
 */
int wb__client_lane_start(const struct wb__client_reg *reg, int *fds, unsigned n_fd,
	struct wb__client_lane **out, struct wb_err *err);
/** wb__client_lane_stop - ends the thread after the jobs it has begun; @is_owner: false in a forked
 * child, which has no such thread.  NULL is allowed. */
void wb__client_lane_stop(struct wb__client_lane *l, bool is_owner);
/** wb__client_lane_pass - around every message: parameters change hands by messages.  NULL is
 * allowed. */
void wb__client_lane_pass(struct wb__client_lane *l);

/* ---- send.c, update.c: news for the roles ---- */

struct wb_msg_app_send_state;
struct wb_msg_app_begin;
struct wb_msg_app_end;
struct wb_msg_app_install;
/** wb__client_on_send_state - how far the last version, or the one before, has come; older news are
 *  dropped. */
void wb__client_on_send_state(struct wb_client *c, const struct wb_msg_app_send_state *m);
/** wb__client_on_begin - an update begins: before_update_hook is next.  While a copy is made it
 *  waits for that; else answered with a refusal when this worker is not parked. */
void wb__client_on_begin(struct wb_client *c, const struct wb_msg_app_begin *m);
/** wb__client_on_install - the staged version may be copied.  Answered with a refusal when this
 * worker is not in that update. */
void wb__client_on_install(struct wb_client *c, const struct wb_msg_app_install *m);
/** wb__client_on_end - an update has ended, and how; what is not about this worker's update changes
 *  nothing. */
void wb__client_on_end(struct wb_client *c, const struct wb_msg_app_end *m);
/** wb__client_on_go - a stop was taken back: a parked worker runs on, unless the next stop is at
 * the same poll. */
void wb__client_on_go(struct wb_client *c);
/** wb__client_on_wake - make wake_fd readable, so that who waits for it polls. */
void wb__client_on_wake(struct wb_client *c);
/** wb__client_send_finish - wait for the last transfer, report its failure; lock NOT held. */
int wb__client_send_finish(struct wb_client *c, uint64_t timeout, struct wb_error *err);
/** wb__client_transfer_orphan - from now on the handle holds a result and no client. */
void wb__client_transfer_orphan(struct wb_client_transfer *t);
/** wb__client_send_lost, wb__client_update_lost - the connection is gone; _again: attached anew. */
void wb__client_send_lost(struct wb_client *c);
void wb__client_update_lost(struct wb_client *c);
/** wb__client_update_again - attached to an agent that was started anew: release a parked worker,
 * and let the wait for a repair begin again. */
void wb__client_update_again(struct wb_client *c);
/** wb__client_poll_owed - count the polls that the page is owed, up to a stop. */
void wb__client_poll_owed(struct wb_client *c);

#endif
