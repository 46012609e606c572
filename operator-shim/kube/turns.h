/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_TURNS_H
#define WB_KUBE_TURNS_H
/*
 * Who is next, fair by namespace: the namespaces that wait take turns, and of one that has its turn
 * the entry that has waited longest goes.  Who has a thousand entries waits for them himself. Pure.
 *
 * Entries are the user's and are linked in place, so that waiting takes no memory.
 * Threads: one.  Layer: operator-shim/kube (over base).
 */
#include <stdbool.h>
#include <stddef.h>

struct wb_kube_turn {
	struct wb_kube_turn *next, *before; /* of the same namespace */
	struct wb_kube_lane *lane; /* NULL = does not wait */
};

struct wb_kube_turns {
	struct wb_kube_lane *last; /* ring; the one after it is next; NULL = nobody waits */
	size_t n, n_lane; /* entries, namespaces */
};

/** wb_kube_turns_push - wait at the end of @ns's queue; one that waits already keeps its place.  0
 * or -ENOMEM. */
int wb_kube_turns_push(struct wb_kube_turns *t, const char *ns, struct wb_kube_turn *e);
/** wb_kube_turns_pop - whose turn it is, NULL = nobody waits. */
struct wb_kube_turn *wb_kube_turns_pop(struct wb_kube_turns *t);
/** wb_kube_turns_remove - wait no more; nothing when it does not. */
void wb_kube_turns_remove(struct wb_kube_turns *t, struct wb_kube_turn *e);
/** wb_kube_turns_finish - who still waits is forgotten. */
void wb_kube_turns_finish(struct wb_kube_turns *t);

/** wb_kube_turns_has - true while the entry, zeroed before its first use, waits. */
static inline bool wb_kube_turns_has(const struct wb_kube_turn *e)
{
	return e->lane != NULL;
}

#endif
