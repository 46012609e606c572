/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_LISTS_H
#define WB_FLOW_LISTS_H
/*
 * Rings of members that take turns, heaps from which the least member comes first, and tables of
 * members by a key.  They let what happens to one chunk be looked up by its number, without a walk
 * over all others.
 *
 * Members are small numbers below a fixed count.  Only the init functions allocate.  One thread.
 * Invariants, asserted: n is how many are in; the ends of a list are LIST_NONE exactly when n is 0;
 * a member of a table is in it once, in the bucket of its key.
 * Layer: flow (L3).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIST_NONE UINT32_MAX

/* A ring: first in, first out; each member is in at most once. */
struct wb_turns {
	uint32_t *next; /* owned, by member */
	uint32_t head, tail, n;
};

/** wb_turns_init - for members below @cap; 0 or -ENOMEM.  Release with wb_turns_finish(). */
int wb_turns_init(struct wb_turns *r, uint32_t cap);
/** wb_turns_finish - free it, whoever is in.  Calling it again does nothing. */
void wb_turns_finish(struct wb_turns *r);
/** wb_turns_add - add @member at the end; does nothing when it is in. */
void wb_turns_add(struct wb_turns *r, uint32_t member);
/** wb_turns_take - take the first member out, or LIST_NONE. */
uint32_t wb_turns_take(struct wb_turns *r);

/* A heap: members by rank, the least first; of equal ranks the lesser member. */
struct wb_least {
	struct wb_ranked {
		uint64_t rank;
		uint32_t member;
	} * at; /* owned: a heap */
	uint32_t n, cap;
};

/** wb_least_init - for at most @cap members at a time; 0 or -ENOMEM.  Release with
 * wb_least_finish(). */
int wb_least_init(struct wb_least *h, uint32_t cap);
/** wb_least_finish - free it, whoever is in.  Calling it again does nothing. */
void wb_least_finish(struct wb_least *h);
/** wb_least_add - add a member that is not in; there must be room.  Costs O(log n), as taking
 * does. */
void wb_least_add(struct wb_least *h, uint32_t member, uint64_t rank);
/** wb_least_take - take the member of the least rank out, or LIST_NONE. */
uint32_t wb_least_take(struct wb_least *h);

/* A table: members by a key, those of one key in the order in which they came.  An operation costs
 * the same however many are in, also of one key. */
struct wb_keyed {
	struct wb_bucket {
		uint32_t head, tail;
	} * bucket; /* owned */
	struct wb_entry {
		uint64_t key;
		uint32_t next, prev; /* neighbours in the bucket */
		uint32_t later, earlier; /* of all */
		bool is_in;
	} * entry; /* owned, by member */
	uint32_t mask, n;
	uint32_t oldest, newest; /* of all */
};

/** wb_keyed_init - for members below @cap; 0 or -ENOMEM.  Release with wb_keyed_finish(). */
int wb_keyed_init(struct wb_keyed *t, uint32_t cap);
/** wb_keyed_finish - free it, whoever is in.  Calling it again does nothing. */
void wb_keyed_finish(struct wb_keyed *t);
/** wb_keyed_add - add a member that is not in. */
void wb_keyed_add(struct wb_keyed *t, uint32_t member, uint64_t key);
/** wb_keyed_remove - remove a member that is in. */
void wb_keyed_remove(struct wb_keyed *t, uint32_t member);
/** wb_keyed_first - first member of @key, which stays in; LIST_NONE = none. */
uint32_t wb_keyed_first(const struct wb_keyed *t, uint64_t key);
/** wb_keyed_next - the member of the same key that came after @member; LIST_NONE = none. */
uint32_t wb_keyed_next(const struct wb_keyed *t, uint32_t member);
/** wb_keyed_take - take the first member of @key out; LIST_NONE = none. */
uint32_t wb_keyed_take(struct wb_keyed *t, uint64_t key);
/** wb_keyed_oldest - of all members that are in, the one that came first; LIST_NONE = none. */
uint32_t wb_keyed_oldest(const struct wb_keyed *t);
/** wb_keyed_later - of all members, the one that came after @member, which is in; LIST_NONE =
 * none. */
uint32_t wb_keyed_later(const struct wb_keyed *t, uint32_t member);

#endif
