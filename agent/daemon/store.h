/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_STORE_H
#define WB_DAEMON_STORE_H
/*
 * Small files beside the workers' socket, in a folder that outlives the agent's process (in a pod:
 * an emptyDir).  Saving replaces a whole file.  Blocks for a moment.  Layer: daemon (L4).
 */
#include "transfer/core.h"

/** wb__store_init - fill in @s.  @socket: path of the workers' socket, borrowed; files are
 * @socket.NAME. */
void wb__store_init(struct wb_transfer_store *s, const char *socket);

#endif
