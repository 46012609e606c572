/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_DUES_H
#define WB_BASE_DUES_H
/*
 * Entries that are due at a time each, and which of them is due first.
 *
 * Entries are the user's and are linked in place (a pairing heap): setting a time takes no memory
 * and cannot fail.  With n entries it costs log n; looking at the first costs nothing.
 *
 * Threads: one at a time.  Layer: base.
 */
#include <stdbool.h>
#include <stdint.h>

#define WB_NEVER UINT64_MAX

/* All zero = has no time. */
struct wb_due {
	struct wb_due *child, *next, *before; /* before: for a first child, its parent */
	uint64_t at_ns;
	bool is_in;
};

/* All zero = empty. */
struct wb_dues {
	struct wb_due *first;
};

/** wb_dues_set - make @e due at @at_ns, whatever was set before; WB_NEVER takes it out. */
void wb_dues_set(struct wb_dues *d, struct wb_due *e, uint64_t at_ns);

/** wb_dues_at - when the first is due; WB_NEVER when there is none. */
static inline uint64_t wb_dues_at(const struct wb_dues *d)
{
	return d->first ? d->first->at_ns : WB_NEVER;
}

/** wb_dues_take - take out the first entry that is due at @now_ns or earlier; NULL = none is. */
struct wb_due *wb_dues_take(struct wb_dues *d, uint64_t now_ns);

#endif
