/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_APPS_H
#define WB_DAEMON_APPS_H
/*
 * The workers of this pod: the socket that they attach to, their messages, how they come and go.
 *
 * Loop thread.  Layer: daemon (L4).
 */
#include "daemon/worker.h"

struct wb__apps;
struct wb__contents;

/** wb__apps_start - serve the socket.  0; -EADDRINUSE, ... with the path. */
int wb__apps_start(struct wb__agent *a, struct wb__apps **out, struct wb_err *err);
/** wb__apps_close - take no new workers, and close the connections of all: they end later, from the
 * loop. */
void wb__apps_close(struct wb__apps *s);
/** wb__apps_has_lanes - do workers of object @index have remote lanes, whose other side (theirs or
 * imports) pins our slots? */
bool wb__apps_has_lanes(const struct wb__apps *s, uint32_t index);
/** wb__apps_is_empty - all connections have ended and no worker is left. */
bool wb__apps_is_empty(const struct wb__apps *s);
/** wb__apps_destroy - free it; it must be empty.  NULL is allowed. */
void wb__apps_destroy(struct wb__apps *s);

/** wb__apps_send_fd - wb__apps_send() with a descriptor, which is borrowed. */
void wb__apps_send_fd(struct wb__apps *s, uint32_t worker, uint16_t type, const void *msg, int fd);
/** wb__apps_send - send a message of the core to a worker. */
void wb__apps_send(struct wb__apps *s, uint32_t worker, uint16_t type, const void *msg);
/** wb__apps_library - why the last worker that came was refused because of its library; "" = it was
 * not.  Borrowed. */
const char *wb__apps_library(const struct wb__apps *s);
/** wb__apps_awaited - tell workers of object @index that wait for a plan, and all its trainers,
 * what the operator says is awaited ("": nothing any more).  The sentence is kept for workers that
 * come later. */
void wb__apps_awaited(struct wb__apps *s, uint32_t index, const char *sentence);
/** wb__apps_status - tell workers without a plan how this agent gets on towards one; kept in the
 * same way. */
void wb__apps_status(struct wb__apps *s, uint32_t index, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** wb__apps_give_up - tell workers of object @index that wait for a plan why there will be none,
 * and close their connections. */
void wb__apps_give_up(struct wb__apps *s, uint32_t index, int code, const char *sentence);
/** wb__apps_refuse - the operator cannot take this worker: tell it why, and close its
 * connection. */
void wb__apps_refuse(struct wb__apps *s, uint32_t worker, int code, const char *sentence);
/** wb__apps_reap - free workers that nothing uses any more. */
void wb__apps_reap(struct wb__apps *s);

/** wb__apps_all_asleep - have all workers of object @index that are here released their memory? */
bool wb__apps_all_asleep(const struct wb__apps *s, uint32_t index);

/** wb__apps_first - the first worker in the list, which has leaving ones, too; w->next goes on. */
struct wb__worker *wb__apps_first(const struct wb__apps *s);
/** wb__apps_find - the worker with that number; NULL = it left. */
struct wb__worker *wb__apps_find(const struct wb__apps *s, uint32_t id);
/** wb__apps_contents - manifests and maps of all workers; borrowed, for as long as @s lives. */
struct wb__contents *wb__apps_contents(struct wb__apps *s);
/** wb__apps_check_object - object @index is known now: refuse workers that meant another one. */
void wb__apps_check_object(
	struct wb__apps *s, uint32_t index, const char *object, const char *model);

#endif
