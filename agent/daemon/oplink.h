/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_OPLINK_H
#define WB_DAEMON_OPLINK_H
/*
 * The connection to the operator, one for each object that is served here: who is here goes up,
 * plans come down.
 *
 * Lost connections are made again with backoff and jitter; transfers go on meanwhile.
 * Loop thread.  Layer: daemon (L4).
 */
#include "proto/messages.h"
#include "transfer/core.h"

struct wb__agent;
struct wb_transfer_times;
struct wb__oplink;

/** wb__oplink_start - for object @index of the options: read the key, begin to dial.  0 or negative
 *  with a sentence; then too @out is to be destroyed, unless it is NULL. */
int wb__oplink_start(
	struct wb__agent *a, uint32_t index, struct wb__oplink **out, struct wb_err *err);
/** wb__oplink_close - say goodbye and close; its end follows from the loop. */
void wb__oplink_close(struct wb__oplink *l);
/** wb__oplink_is_closed - the channel's end has come; may be destroyed. */
bool wb__oplink_is_closed(const struct wb__oplink *l);
/** wb__oplink_destroy - free it; its channel is closed by then.  NULL is allowed. */
void wb__oplink_destroy(struct wb__oplink *l);

/** wb__oplink_workers_changed - tell the operator soon who is attached. */
void wb__oplink_workers_changed(struct wb__oplink *l);
/** wb__oplink_report - of the core. */
void wb__oplink_report(struct wb__oplink *l, const struct wb_transfer_report *r);
/** wb__oplink_times - of the core. */
void wb__oplink_times(struct wb__oplink *l, const struct wb_transfer_times *t);
/** wb__oplink_find - which object a worker that attaches belongs to; NULL, "" = the only one, and
 *  any model.  0 or -ENOENT. */
int wb__oplink_find(struct wb__agent *a, const char *object, const char *model, uint32_t *index_out,
	struct wb_err *err);
/** wb__oplink_is_suspended - no transfers of this object begin, says its operator. */
bool wb__oplink_is_suspended(const struct wb__agent *a, uint32_t object_index);
/** wb__oplink_of - of the object that its operator has now; NULL. */
struct wb__oplink *wb__oplink_of(const struct wb__agent *a, const struct wb_object_id *object);
/** wb__oplink_ask_reader - ask the operator whether @token may read metrics; wb__gate_answer() gets
 *  what it says.  0; -ENOTCONN; -EPROTONOSUPPORT: it is too old to know. */
int wb__oplink_ask_reader(struct wb__oplink *l, uint64_t number, const char *token);
/** wb__oplink_draining - tell the operator that this agent leaves. */
void wb__oplink_draining(struct wb__oplink *l);

struct wb__oplink_state {
	bool is_up; /* welcomed now */
	const char *object; /* "" = not known yet */
	uint64_t term, number; /* of the active plan, 0 = none */
	int64_t clock_offset_ns; /* this clock less the operator's */
	uint64_t clock_error_ns; /* 0 = not known */
	uint64_t reconnects;
	const char *trouble; /* why it is down, "" = it is not */
};
/** wb__oplink_state - what is to be shown of it; strings are borrowed until the loop goes on. */
void wb__oplink_state(const struct wb__oplink *l, struct wb__oplink_state *out);
/** wb__oplink_all - of all objects together: the worst of each. */
void wb__oplink_all(const struct wb__agent *a, struct wb__oplink_state *out);
/** wb__memory_limit - of this process's control group, 0 = none. */
uint64_t wb__memory_limit(void);

#endif
