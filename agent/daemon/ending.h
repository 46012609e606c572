/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_ENDING_H
#define WB_DAEMON_ENDING_H
/*
 * Waiting for the end of a process whose connection is gone.
 *
 * What works on slots in a worker's process ends with that process.  The library ends that work
 * before it closes its connection.  But when a process is killed, the kernel closes its descriptors
 * one by one, and a device may go on copying until its own descriptor is closed.
 * Loop thread.  Layer: daemon (L4).
 */
#include "net/loop.h"

#include <stdbool.h>

/* How long to wait: a process that does not end has closed its connection by itself, and has ended
 * before that what it had begun. */
#define WB__ENDING_MAX_NS (10 * WB_NS_PER_S)
/* The same where nobody can tell when the process ends.  A device is done long before with the
 * little that was begun. */
#define WB__ENDING_BLIND_NS (2 * WB_NS_PER_S)

struct wb__ending;

/**
 * wb__ending_begin - wait for the end of a process
 * @process:	what wb_seq_peer_process() returned: a descriptor, which is taken even on failure,
 *		or the reason why there is none
 * @on_over:	called once, from the loop, when the process has ended, or was waited for long
 *		enough
 * Returns 0, and then *@out is NULL if it has ended already; -ENOMEM: nothing is waited for.
 */
int wb__ending_begin(struct wb_loop *loop, int process, wb_loop_fn on_over, void *cookie,
	struct wb__ending **out);
/** wb__ending_is_over - was on_over() called? */
bool wb__ending_is_over(const struct wb__ending *e);
/** wb__ending_destroy - stop waiting: on_over() is not called any more.  NULL is allowed. */
void wb__ending_destroy(struct wb__ending *e);

#endif
