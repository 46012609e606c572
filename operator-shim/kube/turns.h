/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_TURNS_H
#define WB_KUBE_TURNS_H
/*
 * A queue that is fair between namespaces: namespaces with waiting entries take turns, and in its
 * turn a namespace's oldest entry goes.  Only the owner of a thousand entries waits for them.
 * Pure.
 *
 * Entries are the user's and are linked in place, so that waiting takes no memory.
 * Threads: one.  Layer: operator-shim/kube (over base).
 */
#include <stdbool.h>
#include <stddef.h>

struct wb_kube_turn {
	struct wb_kube_turn *next, *before; /* neighbours in the queue of the same namespace */
	struct wb_kube_lane *lane; /* NULL = does not wait */
};

struct wb_kube_turns {
	/* Ring of namespaces; the one after this is next; NULL = nothing waits */
	struct wb_kube_lane *last;
	size_t n, n_lane; /* entries, namespaces */
};

/** wb_kube_turns_push - put @e at the end of the queue of @ns; an entry that waits already keeps
 * its place.  0 or -ENOMEM. */
int wb_kube_turns_push(struct wb_kube_turns *t, const char *ns, struct wb_kube_turn *e);
/** wb_kube_turns_pop - take the entry whose turn it is; NULL = nothing waits. */
struct wb_kube_turn *wb_kube_turns_pop(struct wb_kube_turns *t);
/** wb_kube_turns_remove - take @e out of its queue; does nothing when it is in none. */
void wb_kube_turns_remove(struct wb_kube_turns *t, struct wb_kube_turn *e);
/** wb_kube_turns_finish - forget all entries that still wait. */
void wb_kube_turns_finish(struct wb_kube_turns *t);

/** wb_kube_turns_has - true while the entry, zeroed before its first use, waits. */
static inline bool wb_kube_turns_has(const struct wb_kube_turn *e)
{
	return e->lane != NULL;
}

#endif
