/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_TRACE_H
#define WB_DAEMON_TRACE_H
/*
 * The last few thousand marks and spans of this agent, for /trace (opens in Perfetto).
 *
 * Bounded: the oldest entries are overwritten.  Times are the wall clock.
 * Loop thread.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb_buf;
struct wb__trace_ring;

/** wb__trace_create - a ring of @n entries for agent @agent (borrowed).  NULL = no memory. */
struct wb__trace_ring *wb__trace_create(const char *agent, uint32_t n);
/** wb__trace_destroy - free it; NULL is allowed. */
void wb__trace_destroy(struct wb__trace_ring *t);
/** wb__trace_mark - something happened to @who (@what and @who are copied, and cut if too long). */
void wb__trace_mark(struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer,
	uint64_t value);
/** wb__trace_span - something lasted from @begin_wall_ns to @end_wall_ns. */
void wb__trace_span(struct wb__trace_ring *t, const char *what, const char *who, uint64_t transfer,
	uint64_t begin_wall_ns, uint64_t end_wall_ns);
/** wb__trace_json - append {"traceEvents": [...]} with the entries of @transfer (0 = all). */
void wb__trace_json(const struct wb__trace_ring *t, uint64_t transfer, struct wb_buf *out);

#endif
