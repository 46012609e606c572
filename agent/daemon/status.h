/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_STATUS_H
#define WB_DAEMON_STATUS_H
/*
 * The agent's state as JSON, for /status.  Loop thread.  Layer: daemon (L4).
 */
struct wb__agent;
struct wb_buf;

/** wb__status_json - append one object: who the agent is, the operator, its workers, the core's
 * objects. */
void wb__status_json(struct wb__agent *a, struct wb_buf *out);

#endif
