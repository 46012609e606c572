/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CLIENT_INTERNAL_H
#define WB_CLIENT_INTERNAL_H
/*
 * Inside libweightbridge: one client, its connection, its two roles.
 *
 * All state but `hot` is guarded by `lock`, which is held only for short, non-blocking stretches.
 * A thread that waits polls the client's epoll descriptor without the lock, then takes the lock,
 * takes in the news (wb__client_pump) and looks at its own condition.  A wait sleeps at most SLICE
 * at a time, because another waiting thread may have taken in the news.
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
	uint32_t attention; /* not 0: poll has to take the slow path; any thread sets it */
	uint32_t n; /* polls, to look at the clock now and then */
	uint32_t mask; /* look at the clock when (n & mask) == 0 */
	uint64_t look_ns, look_at_ns; /* interval and next time to look at the socket */
};

/* Where a rollout worker is in an update. */
enum wb__client_phase {
	WB__RUN,
	WB__PARKED, /* it stands at its stop */
	WB__BEFORE, /* BEGIN came: the caller runs before_update_hook */
	WB__BEGUN, /* BEGUN sent: parameters change, unless the update is staged */
	WB__INSTALL, /* staged, and INSTALL came: the caller's thread copies */
	WB__INSTALLED, /* this worker's parameters are new, those of others may not be */
	WB__TORN, /* parameters are a mix */
	WB__AFTER, /* END came, committed: the caller runs after_update_hook */
};

/* Whether the agent may use the parameters' memory. */
enum wb__client_mem {
	WB__MEM_HELD,
	WB__MEM_RELEASING, /* the agent was asked to let the memory go */
	WB__MEM_RELEASED,
	WB__MEM_ACQUIRING, /* the agent was told that the memory is there again */
};

/* What was attached, kept to attach again.  All descriptors are owned. */
struct wb__client_reg {
	int manifest_fd, map_fd, table_fd; /* sealed memfds */
	uint64_t manifest_bytes, map_bytes, table_bytes;
	uint32_t n_mem, n_param, n_fd;
	struct wb_client_mem *mem; /* owned; fd duplicated */
	struct wb_client_param *param; /* owned */
	/* Owned reference to the GPU of the objects on one; NULL = there are none. */
	struct wb_gpu *gpu;
};

struct wb_client_transfer {
	/* NULL once the client was closed, or a later transfer replaced this one; atomic */
	struct wb_client *c;
	unsigned refs; /* references of the caller and the client */
	struct wb_client_transfer_info info;
	uint32_t flags;
	char **engine; /* info.n_engine, owned, as is the next */
	uint32_t *engine_state; /* enum wb_engine_state */
	bool reported; /* a failure has been returned to the caller */
	bool release_wanted, release_sent; /* of a hold */
	bool is_held; /* the agent may still read the parameters */
	/* Its agent is gone; the next agent may give its number to another transfer. */
	bool is_lost;
};

/* One install: what is asked, and what was found. */
struct wb__client_install {
	uint64_t transfer, flip; /* flip: bit that WB_FAULT flips, 0 = none */
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
	struct wb_session session; /* its cause says why it is down */
	int fd; /* -1 when down */
	int epfd, timer_fd; /* epfd = {fd, timer_fd}, for waits in here */
	int user_epfd, wake_fd; /* user_epfd = {epfd, wake_fd}, what fileno gives */
	uint32_t attach_count; /* poll count when this worker last asked to be attached */
	bool agent_imports; /* the agent of this connection wants descriptions of memory of a GPU */
	uint32_t owed; /* polls that were made and that a new page does not count yet */
	uint32_t generation; /* of the attachment; rises with each ATTACHED */
	uint64_t lost_ns; /* when the agent was lost, 0 = it is there */
	uint64_t tried_ns; /* when the reconnect was last seen to */
	uint64_t retry_at_ns, backoff_ns;
	struct wb_rng rng; /* jitter */
	struct wb_err refused; /* the agent's REJECT; code 0 = none */
	uint8_t *rx; /* WB__MSG_MAX */

	/* attachment */
	struct wb__client_reg *reg; /* NULL before attach */
	struct wb_poll_page *page;
	struct wb__client_lane *lane;
	bool is_exported; /* the agent works on memory of the GPU itself, unless a lane is here */
	struct wb__client_area *area; /* staging; NULL = none */
	char worker[WB_ERROR_MSG_MAX];
	char status[WB_ERROR_MSG_MAX], status_out[WB_ERROR_MSG_MAX];
	uint64_t status_seq;
	bool is_status_over; /* a plan has come since status was set */
	bool is_planned, was_planned; /* there is a plan now; there was one */
	struct wb_client_plan plan;

	/* the parameters' memory: release_memory, acquire_memory */
	enum wb__client_mem mem;
	int mem_code; /* code of the agent's last answer */
	/* wb_client_acquire_memory() has not returned yet what became of the acquire */
	bool acquires;
	char mem_why[WB_ERROR_MSG_MAX];

	/* trainer */
	struct wb_client_transfer *cur; /* last transfer or NULL */
	/* The transfer before, while cur was sent beside it, or NULL. */
	struct wb_client_transfer *prev;
	bool supersedes; /* a send may begin as soon as the last transfer has released */
	bool is_sending;

	/* rollout */
	enum wb__client_phase phase;
	uint64_t phase_ns; /* when phase was entered or the agent last spoke about it */
	uint32_t parked_count, parked_generation;
	bool is_wake; /* wake_fd is readable */
	bool is_staged; /* no parameter changes before INSTALL */
	bool is_copying; /* a thread copies, without the lock */
	bool is_given_up; /* END came while the copy was being made */
	/* The BEGIN of a next update came while the copy was being made, and its END has not come;
	 * transfer 0 = none. */
	struct wb_msg_app_begin next_begin;
	struct wb__client_install install;
	bool was_torn; /* the update that runs repairs a torn worker */
	bool is_torn_final; /* the agent gave up waiting for a repair: raise at once */
	/* The agent died between BEGUN and END: whether the parameters are TORN is not known here,
	 * and the next agent says it.  is_touched: they may have been written in that update. */
	bool is_in_doubt, is_touched;
	uint32_t begun_at, done_at; /* poll counts of the stops for transfer and done */
	uint64_t done; /* last transfer that was committed here; 0 = none */
	uint64_t transfer;
	int64_t version;
	char digest[64];
	char why[WB_ERROR_MSG_MAX]; /* why it was aborted, or is torn */
};

/* ---- conn.c: the connection ---- */

/** wb__client_now - CLOCK_MONOTONIC, ns. */
uint64_t wb__client_now(void);
/** wb__client_deadline - now + @timeout without overflow. */
uint64_t wb__client_deadline(uint64_t timeout);
/** wb__client_fail - set the public error @err; returns @code. */
int wb__client_fail(struct wb_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#ifdef WB_ANALYZE /* see base/err.h */
#define wb__client_fail(err, rc, ...) (wb__client_fail(err, rc, __VA_ARGS__), wb__err_negative(rc))
#endif
/** wb__client_agents_code - a code of the agent's, made fit to return: 0 when it is no failure.
 * -ETIMEDOUT, -EAGAIN and -EINTR are what a call says of its own wait, so in place of these, and of
 * numbers that are no codes, it returns @otherwise. */
int wb__client_agents_code(int64_t code, int otherwise);
/** wb__client_usable - may this client be used here?  0; -EPERM: in a forked child; -EINVAL: NULL.
 * No lock needed. */
int wb__client_usable(struct wb_client *c, struct wb_error *err);
/** wb__client_pump - reconnect when it is time, and take in all messages.  Never blocks. */
void wb__client_pump(struct wb_client *c);
/** wb__client_drop - the connection is of no use any more: close it, and plan a retry.  Does
 * nothing when it is down. */
#define wb__client_drop(c, ...) wb_session_end(&(c)->session, __VA_ARGS__)
/** wb__client_send_msg - encode and send a message; on failure the connection is dropped.  0 or
 * negative. */
int wb__client_send_msg(
	struct wb_client *c, uint16_t type, const void *msg, const int *fds, unsigned n_fd);
extern const struct wb_session_io wb__client_io;
/** wb__client_attaching - APP_ATTACH has been sent. */
void wb__client_attaching(struct wb_client *c);
/** wb__client_attention - recompute hot->attention. */
void wb__client_attention(struct wb_client *c);

/* What a condition returns, unless it is a negative code with @err set. */
enum wb__client_ready {
	WB__CLIENT_NOT_YET = 0,
	WB__CLIENT_READY = 1,
	WB__CLIENT_OTHERWISE = 2, /* the wait is over, too, for a reason that the condition notes */
};

/* A condition: returns enum wb__client_ready, or < 0 with @err set.  Called with the lock held. */
typedef int (*wb__client_ready_fn)(struct wb_client *c, void *arg, struct wb_error *err);

/**
 * wb__client_wait - wait for a condition; lock NOT held
 * @deadline:	of CLOCK_MONOTONIC, ns
 * Returns what @ready returned if that is not NOT_YET; NOT_YET at the deadline (@err is left
 * alone); -EINTR (@err is set).
 */
int wb__client_wait(struct wb_client *c, uint64_t deadline, wb__client_ready_fn ready, void *arg,
	struct wb_error *err);
/** wb__client_lost - 0; -ECONNRESET when the agent has been away for longer than reconnect_timeout;
 * or the code of its refusal.  @what: what was attempted, for the sentence. */
int wb__client_lost(struct wb_client *c, const char *what, struct wb_error *err);

/* ---- attach.c ---- */

/** wb__client_attach_send - send ATTACH with the registered memory, and how far this worker has
 * come.  If it cannot be sent the connection is dropped. */
void wb__client_attach_send(struct wb_client *c);
/** wb__client_attached - the agent answered ATTACH; takes the descriptors.  0; negative: drop the
 * connection. */
int wb__client_attached(
	struct wb_client *c, uint32_t lane, int *fds, unsigned n_fd, struct wb_err *err);
/** wb__client_reg_destroy - close its descriptors and free it; NULL is allowed. */
void wb__client_reg_destroy(struct wb__client_reg *r);
/** wb__client_detach - release the poll page and the lane; @is_owner as wb__client_lane_stop(). */
void wb__client_detach(struct wb_client *c, bool is_owner);

/** wb__client_sealed_copy - make a memfd that has a copy of @p and can never change again, so that
 * the agent may map it.  Returns the descriptor, or negative. */
int wb__client_sealed_copy(const char *name, const void *p, size_t bytes, struct wb_error *err);
/** wb__client_reg_make - check and copy a table of memory and parameters; if @a has no manifest and
 * map, their descriptors are -1.  0 or negative. */
int wb__client_reg_make(
	const struct wb_client_attach *a, struct wb__client_reg **out, struct wb_error *err);

/* ---- device.c ---- */

/** wb__client_device_find - find the GPU that objects of @r lie on, and hold it in r->gpu; each
 * such object is checked with the driver.  0 or negative, as wb_client_attach(). */
int wb__client_device_find(struct wb__client_reg *r, struct wb_error *err);
/** wb__client_device_settle - wait until the application's work on parameters on a GPU is done, as
 * wb_gpu_settle() sees it.  Lock NOT held; blocks.  0, or a code as wb_gpu_rc(): -EIO for a device
 * that is lost. */
int wb__client_device_settle(struct wb_client *c, struct wb_error *err);
/** wb__client_device_settle_on - the same for @g; NULL, no GPU, is allowed. */
int wb__client_device_settle_on(struct wb_gpu *g, struct wb_error *err);

/* What an agent is told of memory of a GPU, so that it may work on it itself. */
struct wb__client_exports {
	int fds[WB_UNIX_FDS_MAX]; /* owned: the descriptions, then their descriptors */
	unsigned n; /* 0 = none */
	uint64_t bytes; /* of the descriptions */
	char why[WB_ERROR_MSG_MAX]; /* why there are none */
};

/**
 * wb__client_device_export - describe all memory that the agent cannot map as memfds
 * @room:	how many descriptors the message can still carry
 * It describes either all of it or nothing, with the reason, since a lane is in one process.  The
 * lock may be held or not; calls the driver, which takes microseconds for each allocation.
 */
void wb__client_device_export(
	const struct wb__client_reg *r, unsigned room, struct wb__client_exports *out);
/** wb__client_exports_close - close the descriptors, after the message has gone. */
void wb__client_exports_close(struct wb__client_exports *x);

/* ---- memory.c ---- */

struct wb_msg_app_mem_released;
struct wb_msg_app_mem_acquired;
/** wb__client_on_mem_released - the agent has let the worker's memory go, or says why not. */
void wb__client_on_mem_released(struct wb_client *c, const struct wb_msg_app_mem_released *m);
/** wb__client_on_mem_acquired - the agent has the memory again, or says why not; starts the lane if
 * the worker runs it.  Descriptors that are taken become -1 in @fds. */
void wb__client_on_mem_acquired(
	struct wb_client *c, const struct wb_msg_app_mem_acquired *m, int *fds, unsigned n_fd);
/** wb__client_mem_lost - the connection is gone, and so is the agent's use of the memory. */
void wb__client_mem_lost(struct wb_client *c);

/* ---- area.c ---- */

/** wb__client_area_take - the agent's staging area replaces an earlier one; @fd is taken.  0 or
 * negative; with parameters on a GPU: codes as wb_area_gpu_create(). */
int wb__client_area_take(struct wb_client *c, uint64_t bytes, int *fd, struct wb_err *err);
/** wb__client_area_fd - the area's descriptor, to attach again with; -1 = none.  @bytes: its
 * size. */
int wb__client_area_fd(const struct wb__client_area *a, uint64_t *bytes);
/** wb__client_area_install - copy the area into the parameters; the lock is NOT needed.  0;
 * WB_ESTALE: the area does not have the whole transfer; WB_ECKSUM: what was read back kept being
 * different; with parameters on a GPU also as wb_area_gpu_copy().  Blocks for as long as the memory
 * takes. */
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
 * @reg:	borrowed until wb__client_lane_stop()
 * @fds:	descriptors that are taken become -1
 * 0 or negative.
 */
int wb__client_lane_start(const struct wb__client_reg *reg, int *fds, unsigned n_fd,
	struct wb__client_lane **out, struct wb_err *err);
/** wb__client_lane_stop - end the thread after the jobs that it has begun.  @is_owner: false in a
 * forked child, which has no such thread.  NULL is allowed. */
void wb__client_lane_stop(struct wb__client_lane *l, bool is_owner);
/** wb__client_lane_pass - called around every message, since parameters change hands by messages.
 * NULL is allowed. */
void wb__client_lane_pass(struct wb__client_lane *l);

/* ---- send.c, update.c: news for the roles ---- */

struct wb_msg_app_send_state;
struct wb_msg_app_begin;
struct wb_msg_app_end;
struct wb_msg_app_install;
/** wb__client_on_send_state - how far the last transfer, or the one before, has come; older news is
 * dropped. */
void wb__client_on_send_state(struct wb_client *c, const struct wb_msg_app_send_state *m);
/** wb__client_on_begin - an update begins: before_update_hook is next.  While a copy is being made
 * this waits for it; it is refused when this worker is not parked. */
void wb__client_on_begin(struct wb_client *c, const struct wb_msg_app_begin *m);
/** wb__client_on_install - the staged version may be copied.  Refused when this worker is not in
 * that update. */
void wb__client_on_install(struct wb_client *c, const struct wb_msg_app_install *m);
/** wb__client_on_end - an update has ended, and how; does nothing when it is not this worker's
 * update. */
void wb__client_on_end(struct wb_client *c, const struct wb_msg_app_end *m);
/** wb__client_on_go - a stop was taken back: a parked worker runs on, unless it is at the next stop
 * already. */
void wb__client_on_go(struct wb_client *c);
/** wb__client_on_wake - make wake_fd readable, so that whoever waits for it polls. */
void wb__client_on_wake(struct wb_client *c);
/** wb__client_send_finish - wait for the last transfer, and report its failure; lock NOT held. */
int wb__client_send_finish(struct wb_client *c, uint64_t timeout, struct wb_error *err);
/** wb__client_transfer_orphan - from now on the handle has a result and no client. */
void wb__client_transfer_orphan(struct wb_client_transfer *t);
/** wb__client_send_lost, wb__client_update_lost - the connection is gone; _again: attached anew. */
void wb__client_send_lost(struct wb_client *c);
void wb__client_update_lost(struct wb_client *c);
/** wb__client_update_again - attached to an agent that was started anew: release a parked worker,
 * and let the wait for a repair begin again. */
void wb__client_update_again(struct wb_client *c);
/** wb__client_poll_owed - count the polls that the page does not count yet, up to a stop. */
void wb__client_poll_owed(struct wb_client *c);

#endif
