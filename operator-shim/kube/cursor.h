/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_CURSOR_H
#define WB_KUBE_CURSOR_H
/*
 * Cuts a watch stream into events: each line is one JSON object; chunks of the stream may end
 * anywhere.
 *
 * Pure.  The result does not depend on how the bytes were cut.  The callback gets an event as soon
 * as its line is whole; wb_kube_cursor_end() gives it a last line that has no line end.
 * Threads: one at a time.  Layer: operator-shim/kube (over base).
 */
#include "base/buf.h"

#include <jansson.h>

struct wb_err;

enum wb_kube_event {
	WB_KUBE_ADDED,
	WB_KUBE_MODIFIED,
	WB_KUBE_DELETED,
	WB_KUBE_BOOKMARK,
	WB_KUBE_ERROR, /* the object is a Status */
	WB_KUBE_OTHER, /* of a newer server: skip it */
};

/** wb_kube_event_fn - one event; @object is borrowed, an object or NULL (OTHER).  A negative value
 *  ends the cursor with that code. */
typedef int (*wb_kube_event_fn)(void *cookie, enum wb_kube_event what, json_t *object);

struct wb_kube_cursor {
	struct wb_buf line;
	wb_kube_event_fn fn;
	void *cookie;
	int rc; /* first failure; after it the cursor takes no more bytes */
};

/** wb_kube_cursor_init - @max_line: bytes; longer lines are refused.  Release with
 * wb_kube_cursor_finish(). */
void wb_kube_cursor_init(
	struct wb_kube_cursor *c, size_t max_line, wb_kube_event_fn fn, void *cookie);
/** wb_kube_cursor_finish - free the part of a line that is kept. */
void wb_kube_cursor_finish(struct wb_kube_cursor *c);
/** wb_kube_cursor_feed - more bytes.  0; -E2BIG, -EPROTO (not an event) with a sentence, -ENOMEM,
 * or what the callback returned; after a failure each call returns the same code. */
int wb_kube_cursor_feed(struct wb_kube_cursor *c, const void *bytes, size_t n, struct wb_err *err);
/** wb_kube_cursor_end - the stream has ended. */
int wb_kube_cursor_end(struct wb_kube_cursor *c, struct wb_err *err);

#endif
