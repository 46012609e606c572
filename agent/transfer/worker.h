/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_WORKER_H
#define WB_TRANSFER_WORKER_H
/*
 * A worker: a process attached to this agent, trainer or rollout.  Owned by the core; epochs and
 * flows have borrowed pointers, which wb_transfer_is_detached() takes away before it is freed.
 *
 * It has no state of its own: that is its party's, or the trainers'.  Here are facts about its
 * memory and about where it stands.  Invariants: while `asleep` it holds nothing; it waits for a
 * repair only while it is torn, and for an end only while it has begun an update; what is about
 * polls, hooks and feeds is a rollout's, what is about sending a trainer's.
 */
#include "transfer/internal.h"

struct worker {
	struct wb_transfer_worker w;
	struct object *obj; /* that a plan has it in; NULL = none yet */
	uint64_t held_transfer; /* what its parameters hold; 0 = no version */
	int64_t held_version;
	uint64_t seen_transfer; /* greatest number that it was in */
	bool gone; /* detached; waits for its last job */
	/* same step */
	bool is_parked; /* it stands in its poll, at parked_at */
	bool begun; /* its before_update_hook of this run has returned */
	uint64_t resuming; /* transfer whose after_update_hook it runs; 0 = none */
	uint32_t parked_at;
	bool expects_feed; /* it must not run before it is fed */
	uint64_t hold_transfer; /* a feed that ended, of which it has not heard; 0 = none */
	int64_t hold_version;
	struct wb_transfer_past past; /* goes on with what happens here */
	/* Torn by that transfer, or not repaired by it: it waits until then; 0 = no more. */
	uint64_t repair_ns, repair_transfer;
	uint64_t doubt_ns; /* until then its agent waits for the end of past.begun; 0 = it does not
			    */
	/* Torn since nobody said how that update ended; 0 = not so, or it was stopped again since.
	 */
	uint64_t guess;
	int64_t guess_version;
	uint32_t guess_at;
	uint64_t late_ns; /* of a guess: so long the answer is waited for; 0 = not, or no more */
	/* trainer */
	bool has_sent; /* it is in send_weights, and not in a transfer yet */
	bool sent_hold; /* called with hold=True */
	bool sent_keep; /* and its library ends a hold also after the end */
	bool holds; /* its parameters stay as they are beyond the receive stage */
	bool letting_go; /* it has ended its hold, readers may be left */
	uint64_t kept_transfer; /* whose end its hold has outlasted; 0 = none */
	int64_t kept_version;
	uint64_t keep_drain_ns; /* it has ended that; readers are cut off then; 0 = it has not */
	int64_t sent_version;
	uint64_t sent_ns;
	struct wb_transfer_area area; /* rollout; head NULL = none */
	bool installed; /* it has copied its area in this run */
	bool asleep; /* its memory is away; slept_*: what it held */
	uint64_t slept_transfer;
	int64_t slept_version;
	uint8_t *image; /* borrowed */
	uint64_t image_bytes;
	uint64_t stop_ns, begun_ns, resume_ns; /* of the last transfer */
};

/** page_of - the poll page of a rollout worker: every one has one. */
static inline struct wb_poll_page *page_of(struct worker *w)
{
	assert(w->w.page);
	return w->w.page;
}

/** wb__transfer_to_worker - unless it is gone.  @msg is borrowed for the call. */
void wb__transfer_to_worker(struct worker *w, uint16_t type, const void *msg);
/** wb__transfer_holds_now - it has the transfer, verified; it stopped for it at poll @count. */
void wb__transfer_holds_now(struct worker *w, uint64_t transfer, int64_t version, uint32_t count);
/** wb__transfer_is_in_run - of a party, also to its very end? */
bool wb__transfer_is_in_run(const struct worker *w);

/* sleep.c */

/** wb__transfer_refuse_asleep - STOP or STAGE for an engine whose memory is away here: refused,
 * nobody is stopped.  False: it is not away. */
bool wb__transfer_refuse_asleep(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_can_take_part - may the worker be in a transfer?  False with a sentence in @text.
 */
bool wb__transfer_can_take_part(struct epoch *e, uint32_t local, char *text, size_t cap);

/* keep.c: holds that outlast their transfer. */

/** wb__transfer_keep - all engines have an outcome, and the trainer worker holds on. */
void wb__transfer_keep(struct worker *w, uint64_t transfer, int64_t version);
/** wb__transfer_keeps - may the trainer worker's parameters be read for that transfer, which is
 * over?
 */
bool wb__transfer_keeps(const struct worker *w, uint64_t transfer);
/** wb__transfer_keep_end - the worker lets go: told so when nobody reads any more, at once when it
 * keeps nothing of that transfer. */
void wb__transfer_keep_end(struct worker *w, uint64_t transfer);
/** wb__transfer_keep_forget - its parameters change, or go, now.  It is not told. */
void wb__transfer_keep_forget(struct worker *w);
/** wb__transfer_keep_tick - readers of what was let go; when to call again, 0 = never. */
uint64_t wb__transfer_keep_tick(struct object *o, uint64_t now);

/* repair.c: what is torn are workers, whatever plan they are in. */

/** wb__transfer_repair_await - one that is torn waits for a transfer that repairs it, and no longer
 *  than until that one's deadline. */
void wb__transfer_repair_await(struct worker *w, const struct epoch *e, uint64_t transfer);
/** wb__transfer_repair_tick - those that waited in vain are told; when to call again, 0 = never. */
uint64_t wb__transfer_repair_tick(struct object *o, uint64_t now);

#endif
