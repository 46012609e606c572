/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_FILL_H
#define WB_DAEMON_FILL_H
/*
 * Taking the pages of a memfd on a thread of the loop's pool.
 *
 * Pages are taken when a plan comes, so that a transfer cannot fail for want of them; tens of
 * gigabytes take longer than a heartbeat may stay away.  Loop thread.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb_loop;
struct wb__fill; /* one that is under way, or done and not asked about yet */

/**
 * wb__fill - take the pages [@off, @off + @bytes) of @fd
 * @at:	where the caller keeps what is under way; NULL there at first
 * Called again and again until it is done.  Returns 0: they are taken; -EINPROGRESS: not yet, ask
 * again later; -ENOMEM, -ENOSPC, ... as posix_fallocate().  After anything but -EINPROGRESS *@at is
 * NULL.  @fd is borrowed for the call.  Little is taken at once.
 */
int wb__fill(struct wb_loop *loop, struct wb__fill **at, int fd, uint64_t off, uint64_t bytes);
/** wb__fill_drop - nobody asks any more: it stops soon.  NULL is allowed. */
void wb__fill_drop(struct wb__fill *f);

#endif
