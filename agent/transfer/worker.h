/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_WORKER_H
#define WB_TRANSFER_WORKER_H
/*
 * A worker: a process attached to this agent, trainer or rollout.  Owned by the core; epochs and
 * flows have borrowed pointers, which wb_transfer_is_detached() clears before it frees the worker.
 *
 * It has no state of its own; its party has one, or the trainers have.  Here are facts about its
 * memory and about how far it is.  Invariants: while `asleep` it holds nothing; it waits for a
 * repair only while it is torn, and for an end only while it has begun an update; fields about
 * polls, hooks and feeds are set for rollouts only, fields about sending for trainers only.
 */
#include "transfer/internal.h"

struct worker {
	struct wb_transfer_worker w;
	struct object *obj; /* of the plan that it is in; NULL = in none yet */
	uint64_t held_transfer; /* transfer that its parameters hold; 0 = no version */
	int64_t held_version;
	uint64_t seen_transfer; /* greatest transfer that it was in */
	bool gone; /* detached; freed when nothing uses its memory any more */
	/* same step */
	bool is_parked; /* it stands in its poll, at parked_at */
	bool begun; /* its before_update_hook of this run has returned */
	uint64_t resuming; /* transfer whose after_update_hook it runs; 0 = none */
	uint32_t parked_at;
	bool expects_feed; /* it must not run before it is fed */
	uint64_t hold_transfer; /* a feed that ended without it being told yet; 0 = none */
	int64_t hold_version;
	struct wb_transfer_past past; /* as it attached, and what has happened here since */
	/* repair_transfer tore the worker, or did not repair it; until repair_ns it waits for a
	 * repair (0 = it does not). */
	uint64_t repair_ns, repair_transfer;
	/* Until when its agent waits to hear how past.begun ended; 0 = it does not. */
	uint64_t doubt_ns;
	/* The transfer of an update after which it was told Torn only because nobody said how that
	 * ended; 0 = none, or the worker was stopped again since. */
	uint64_t guess;
	int64_t guess_version;
	uint32_t guess_at;
	uint64_t late_ns; /* of a guess: until when the answer is awaited; 0 = not, or no more */
	/* trainer */
	bool has_sent; /* it is in send_weights, and not in a transfer yet */
	bool sent_hold; /* called with hold=True */
	bool sent_keep; /* and its library can end a hold after the transfer's end, too */
	bool holds; /* its parameters stay as they are beyond the receive stage */
	bool letting_go; /* it has ended its hold; there may be readers left */
	/* A transfer that has ended, but not this worker's hold of it; 0 = none. */
	uint64_t kept_transfer;
	int64_t kept_version;
	/* It has ended that hold: when readers are cut off; 0 = it has not. */
	uint64_t keep_drain_ns;
	int64_t sent_version;
	uint64_t sent_ns;
	struct wb_transfer_area area; /* rollout; head NULL = none */
	bool installed; /* it has copied its area in this run */
	bool asleep; /* its memory is away; slept_*: what it held before */
	uint64_t slept_transfer;
	int64_t slept_version;
	uint8_t *image; /* borrowed */
	uint64_t image_bytes;
	uint64_t stop_ns, begun_ns, resume_ns; /* of the last transfer */
};

/** page_of - the poll page of a rollout worker; each of them has one. */
static inline struct wb_poll_page *page_of(struct worker *w)
{
	assert(w->w.page);
	return w->w.page;
}

/** wb__transfer_to_worker - send the worker a message, unless it is gone.  @msg is borrowed for the
 * call. */
void wb__transfer_to_worker(struct worker *w, uint16_t type, const void *msg);
/** wb__transfer_holds_now - the worker has the transfer, verified; it stopped for it at poll
 * @count. */
void wb__transfer_holds_now(struct worker *w, uint64_t transfer, int64_t version, uint32_t count);
/** wb__transfer_is_in_run - is the worker's party in a run, in whatever state? */
bool wb__transfer_is_in_run(const struct worker *w);

/* sleep.c */

/** wb__transfer_refuse_asleep - refuse STOP or STAGE @m if the memory of a worker of the engine
 * here is away; then nobody is stopped.  False: no memory is away, nothing was refused. */
bool wb__transfer_refuse_asleep(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_can_take_part - may the worker be in a transfer?  False with a sentence in @text.
 */
bool wb__transfer_can_take_part(struct epoch *e, uint32_t local, char *text, size_t cap);

/* keep.c: holds that outlast their transfer. */

/** wb__transfer_keep - the transfer has ended for all engines, and the trainer worker's hold goes
 * on. */
void wb__transfer_keep(struct worker *w, uint64_t transfer, int64_t version);
/** wb__transfer_keeps - may the trainer worker's parameters be read for that transfer, which is
 * over?
 */
bool wb__transfer_keeps(const struct worker *w, uint64_t transfer);
/** wb__transfer_keep_end - the worker ends its hold.  It is told RELEASED when nobody reads any
 * more, or at once if it keeps nothing of that transfer. */
void wb__transfer_keep_end(struct worker *w, uint64_t transfer);
/** wb__transfer_keep_forget - the worker's parameters change or go away now, so its hold is over.
 * It is not told. */
void wb__transfer_keep_forget(struct worker *w);
/** wb__transfer_keep_tick - wait for readers of holds that have ended, and cut off the late ones;
 * when to call again, 0 = never. */
uint64_t wb__transfer_keep_tick(struct object *o, uint64_t now);

/* repair.c: what is torn are workers, whatever plan they are in. */

/** wb__transfer_repair_await - if the worker is torn, it waits from now on for a transfer that
 * repairs it, one transfer deadline at the most.  @transfer: the one that tore it or did not repair
 * it. */
void wb__transfer_repair_await(struct worker *w, const struct epoch *e, uint64_t transfer);
/** wb__transfer_repair_tick - tell workers that no transfer has repaired in time; when to call
 * again, 0 = never. */
uint64_t wb__transfer_repair_tick(struct object *o, uint64_t now);

#endif
