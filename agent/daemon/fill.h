/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_FILL_H
#define WB_DAEMON_FILL_H
/*
 * Taking the pages of a memfd on a thread of the loop's pool.
 *
 * Pages are taken when a plan comes, so that a transfer cannot fail for want of them.  Taking tens
 * of gigabytes takes longer than a heartbeat may be delayed, so the loop does not do it.
 * Loop thread.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb_loop;
struct wb__fill; /* a fill that is under way, or done and not asked about yet */

/**
 * wb__fill - take the pages [@off, @off + @bytes) of @fd
 * @at:	where the caller keeps the fill that is under way; NULL there at first
 * Called again and again until it is done.  Returns 0: they are taken; -EINPROGRESS: not yet, ask
 * again later; -ENOMEM, -ENOSPC, ... as posix_fallocate().  After anything but -EINPROGRESS *@at is
 * NULL.  @fd is borrowed for the call.  If there is little to take it is done within the call.
 */
int wb__fill(struct wb_loop *loop, struct wb__fill **at, int fd, uint64_t off, uint64_t bytes);
/** wb__fill_drop - nobody asks about this fill any more: it stops soon, and frees itself.  NULL is
 * allowed. */
void wb__fill_drop(struct wb__fill *f);

#endif
