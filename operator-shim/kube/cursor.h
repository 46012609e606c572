/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_CURSOR_H
#define WB_KUBE_CURSOR_H
/*
 * A watch stream cut into events: one JSON object a line, chunk borders anywhere.
 *
 * Pure.  The result does not depend on how the bytes were cut.  An event is given as soon as its
 * line is whole; a last line without its end is given by wb_kube_cursor_end().
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
	WB_KUBE_OTHER, /* of a newer server: to be skipped */
};

/** wb_kube_event_fn - one event; @object is borrowed, an object or NULL (OTHER).  A negative value
 *  ends the cursor with that code. */
typedef int (*wb_kube_event_fn)(void *cookie, enum wb_kube_event what, json_t *object);

struct wb_kube_cursor {
	struct wb_buf line;
	wb_kube_event_fn fn;
	void *cookie;
	int rc; /* first failure; the cursor then takes no more */
};

/** wb_kube_cursor_init - @max_line: bytes; longer lines are refused.  Release with _finish(). */
void wb_kube_cursor_init(
	struct wb_kube_cursor *c, size_t max_line, wb_kube_event_fn fn, void *cookie);
/** wb_kube_cursor_finish - free what is kept of a line that has not ended. */
void wb_kube_cursor_finish(struct wb_kube_cursor *c);
/** wb_kube_cursor_feed - more bytes.  0; -E2BIG, -EPROTO (not an event) with a sentence, -ENOMEM,
 * or what the callback gave; the same again from then on. */
int wb_kube_cursor_feed(struct wb_kube_cursor *c, const void *bytes, size_t n, struct wb_err *err);
/** wb_kube_cursor_end - the stream has ended. */
int wb_kube_cursor_end(struct wb_kube_cursor *c, struct wb_err *err);

#endif
