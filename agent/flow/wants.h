/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_WANTS_H
#define WB_FLOW_WANTS_H
/*
 * Wants: the chunks that open sinks lack, whom each is asked for, and in which queue it waits.
 *
 * A want is WANT_CLOSED, or WANT_QUEUED in exactly one queue of the edge to its source's agent, or
 * taken out of it and on its way (fetch.c), or WANT_DONE.  Who takes one out of its queue with
 * wb__want_pop() puts it back, starts it, or enqueues it anew.  receive_pending counts the queued
 * ones whose source is a trainer.
 *
 * Opening and dropping sinks and losing workers (flow.h) are here, too: they only move wants.
 * Loop thread.  Not for others than flow.
 */
#include "flow/internal.h"

/** wb__want_push, wb__want_push_front - at the end or the front of a queue, as they are. */
void wb__want_push(struct wb_flow *f, struct want_list *q, uint32_t i);
void wb__want_push_front(struct wb_flow *f, struct want_list *q, uint32_t i);
/** wb__want_pop - the first, or FLOW_NONE; receive_pending is the caller's to lower. */
uint32_t wb__want_pop(struct wb_flow *f, struct want_list *q);
/** wb__want_from_trainer - is its present source a trainer worker? */
bool wb__want_from_trainer(const struct wb_flow *f, uint32_t i);
/** wb__want_of - @worker's own want of a chunk, FLOW_NONE when it has that already. */
uint32_t wb__want_of(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk);
/** wb__want_asks_around - @worker looks for the chunk among those who may have it.  They do not
 * wait for each other: it is no source for one that does, too. */
bool wb__want_asks_around(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk);
/** wb__want_count_trainer - does its sink wait for a trainer because of it?  Trainers may leave
 *  when no want of it does. */
void wb__want_count_trainer(struct wb_flow *f, uint32_t i, bool needed);
/**
 * wb__want_enqueue - choose a source by what was tried and lost, and queue it there
 * @code:	how the last try ended, 0 = none
 * Nobody left: its sink has failed, which env->on_failed hears once.
 */
void wb__want_enqueue(struct wb_flow *f, uint32_t i, int code);
/** wb__want_postpone - one that was taken out of its queue waits there again, behind the others, as
 *  its source may have those. */
void wb__want_postpone(struct wb_flow *f, uint32_t i);
/** wb__want_slot_rc - what it means that @pool gives no slot: -EAGAIN, one comes back; -ENOBUFS, it
 *  never had one, so that nothing is to be waited for. */
int wb__want_slot_rc(const struct wb_flow *f, enum wb_pool pool);
/** wb__want_failed - nobody can send it, or (-ENOBUFS) it has nowhere to land: close it, and its
 *  sink has failed. */
void wb__want_failed(struct wb_flow *f, uint32_t i, int code);
/** wb__want_drop_worker - what is queued for local worker @worker is wanted no more. */
void wb__want_drop_worker(struct wb_flow *f, uint32_t worker);
/** wb__flow_fetch_again - ask again for a chunk that was installed here and is found damaged;
 *  no-op where nothing may land any more. */
void wb__flow_fetch_again(
	struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk, enum wb_flow_place place);

#endif
