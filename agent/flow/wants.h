/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_WANTS_H
#define WB_FLOW_WANTS_H
/*
 * Wants: the chunks that open sinks lack; for each, whom it is asked of and in which queue it
 * waits.
 *
 * A want is WANT_CLOSED; or WANT_QUEUED in exactly one queue, that of its pair or, where its source
 * is of this agent, of that source; or WANT_FLYING, taken out of the queue and on its way
 * (fetch.c); or WANT_DONE.  Whoever takes a want out of its queue with wb__want_pop() puts it back,
 * starts it, or enqueues it anew.  receive_pending counts the queued wants whose source is a
 * trainer.
 *
 * Opening and dropping sinks and losing workers (flow.h) are here, too, since they only move wants.
 * Loop thread.  Not for others than flow.
 */
#include "flow/internal.h"

/** wb__want_push, wb__want_push_front - put want @i at the end, or the front, of a queue; its state
 * is left as it is. */
void wb__want_push(struct wb_flow *f, struct want_list *q, uint32_t i);
void wb__want_push_front(struct wb_flow *f, struct want_list *q, uint32_t i);
/** wb__want_pop - take the first want out, or FLOW_NONE; the caller lowers receive_pending. */
uint32_t wb__want_pop(struct wb_flow *f, struct want_list *q);
/** wb__want_from_trainer - is the want's present source a trainer worker? */
bool wb__want_from_trainer(const struct wb_flow *f, uint32_t i);
/** wb__want_of - @worker's own want of a chunk; FLOW_NONE: it wants none, or has it already. */
uint32_t wb__want_of(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk);
/** wb__want_asks_around - is @worker itself looking for the chunk among workers that only may have
 * it?  Such workers do not wait for each other, so it is no source for another that is looking. */
bool wb__want_asks_around(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk);
/** wb__want_count_trainer - note whether the want's sink waits for a trainer because of it.
 * Trainers may leave when no want of any sink does. */
void wb__want_count_trainer(struct wb_flow *f, uint32_t i, bool needed);
/**
 * wb__want_enqueue - choose a source by what was tried and lost, and queue the want there
 * @code:	how the last try ended, 0 = there was none
 * When nobody is left to ask, the sink has failed, which env->on_failed hears once.
 */
void wb__want_enqueue(struct wb_flow *f, uint32_t i, int code);
/** wb__want_postpone - the source had no room for the want: put it at the end of the same source's
 * queue, since the source may have those before it. */
void wb__want_postpone(struct wb_flow *f, uint32_t i);
/** wb__want_slot_rc - the code when @pool gives no slot: -EAGAIN: one will come back; -ENOBUFS: the
 * pool has none at all, so waiting is useless. */
int wb__want_slot_rc(const struct wb_flow *f, enum wb_pool pool);
/** wb__want_failed - nobody can send the want, or (-ENOBUFS) it has nowhere to land: close it; its
 * sink has failed. */
void wb__want_failed(struct wb_flow *f, uint32_t i, int code);
/** wb__want_drop_worker - close all queued wants of local worker @worker. */
void wb__want_drop_worker(struct wb_flow *f, uint32_t worker);
/** wb__flow_fetch_again - ask again for a chunk that was installed here and is found damaged.  Does
 * nothing when nothing may land any more. */
void wb__flow_fetch_again(
	struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk, enum wb_flow_place place);

#endif
