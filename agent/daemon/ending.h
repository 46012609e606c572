/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_ENDING_H
#define WB_DAEMON_ENDING_H
/*
 * Waiting for the end of a process whose connection is gone.
 *
 * What works on slots in a worker's process ends with that process.  The library ends it before it
 * closes its connection; of a process that is killed the kernel closes descriptors one by one, and
 * a device may go on copying until its own is closed.  Loop thread.  Layer: daemon (L4).
 */
#include "net/loop.h"

#include <stdbool.h>

/* A process that does not end closed its connection by itself, and has ended what it had begun. */
#define WB__ENDING_MAX_NS (10 * WB_NS_PER_S)
/* Where nobody can tell.  A device is done with the little that it has begun long before. */
#define WB__ENDING_BLIND_NS (2 * WB_NS_PER_S)

struct wb__ending;

/**
 * wb__ending_begin - wait for the end of a process
 * @process:	from wb_seq_peer_process(), that is a descriptor, which goes to the callee even on
 *		failure, or why there is none
 * @on_over:	called once, from the loop, when it has ended, or was waited for long enough
 * Returns 0, and *@out is NULL where it has ended already; -ENOMEM: nothing is waited for.
 */
int wb__ending_begin(struct wb_loop *loop, int process, wb_loop_fn on_over, void *cookie,
	struct wb__ending **out);
/** wb__ending_is_over - on_over() was called. */
bool wb__ending_is_over(const struct wb__ending *e);
/** wb__ending_destroy - on_over() is not called any more.  NULL is allowed. */
void wb__ending_destroy(struct wb__ending *e);

#endif
