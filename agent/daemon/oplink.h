/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_OPLINK_H
#define WB_DAEMON_OPLINK_H
/*
 * The connection to the operator, one for each object that is served here: it reports who is here,
 * and brings plans.
 *
 * Lost connections are made again with backoff and jitter; transfers go on meanwhile.
 * Loop thread.  Layer: daemon (L4).
 */
#include "proto/messages.h"
#include "transfer/core.h"

struct wb__agent;
struct wb_transfer_times;
struct wb__oplink;

/** wb__oplink_start - for object @index of the options: read the key, and begin to dial.  0;
 * negative with a sentence, and then @out has to be destroyed as well, unless it is NULL. */
int wb__oplink_start(
	struct wb__agent *a, uint32_t index, struct wb__oplink **out, struct wb_err *err);
/** wb__oplink_close - say goodbye and close; the channel ends later, from the loop. */
void wb__oplink_close(struct wb__oplink *l);
/** wb__oplink_is_closed - has the channel ended, so that it may be destroyed? */
bool wb__oplink_is_closed(const struct wb__oplink *l);
/** wb__oplink_destroy - free it; its channel must have ended.  NULL is allowed. */
void wb__oplink_destroy(struct wb__oplink *l);

/** wb__oplink_workers_changed - tell the operator soon who is attached. */
void wb__oplink_workers_changed(struct wb__oplink *l);
/** wb__oplink_report - send a report of the core to the operator. */
void wb__oplink_report(struct wb__oplink *l, const struct wb_transfer_report *r);
/** wb__oplink_times - send times of the core to the operator. */
void wb__oplink_times(struct wb__oplink *l, const struct wb_transfer_times *t);
/** wb__oplink_find - which object a worker that attaches belongs to.  @object, @model: NULL or "" =
 * the only object, and any model.  0 or -ENOENT. */
int wb__oplink_find(struct wb__agent *a, const char *object, const char *model, uint32_t *index_out,
	struct wb_err *err);
/** wb__oplink_is_suspended - has the operator of this object said that no transfers begin? */
bool wb__oplink_is_suspended(const struct wb__agent *a, uint32_t object_index);
/** wb__oplink_of - the connection whose object is @object now; NULL = none. */
struct wb__oplink *wb__oplink_of(const struct wb__agent *a, const struct wb_object_id *object);
/** wb__oplink_ask_reader - ask the operator whether @token may read metrics; wb__gate_answer() gets
 * the answer.  0; -ENOTCONN; -EPROTONOSUPPORT: the operator is too old to know. */
int wb__oplink_ask_reader(struct wb__oplink *l, uint64_t number, const char *token);
/** wb__oplink_draining - tell the operator that this agent leaves. */
void wb__oplink_draining(struct wb__oplink *l);

struct wb__oplink_state {
	bool is_up; /* the operator has welcomed us, and is connected */
	const char *object; /* "" = not known yet */
	uint64_t term, number; /* of the active plan; 0 = there is none */
	int64_t clock_offset_ns; /* this clock minus the operator's */
	uint64_t clock_error_ns; /* 0 = not known */
	uint64_t reconnects;
	const char *trouble; /* why it is down; "" = it is up */
};
/** wb__oplink_state - fill in @out with what is shown of the connection; strings are borrowed until
 * the loop goes on. */
void wb__oplink_state(const struct wb__oplink *l, struct wb__oplink_state *out);
/** wb__oplink_all - the same for all objects together: the worst of each field. */
void wb__oplink_all(const struct wb__agent *a, struct wb__oplink_state *out);
/** wb__memory_limit - memory limit of this process's control group in bytes, 0 = none. */
uint64_t wb__memory_limit(void);

#endif
