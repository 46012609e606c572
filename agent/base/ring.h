/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_RING_H
#define WB_BASE_RING_H
/*
 * A bounded queue between exactly two threads: one pushes, one pops.
 *
 * Items have a fixed size and are copied; what they point to changes owner with them.  When the
 * queue is full a push returns -EAGAIN and the caller keeps the item: back-pressure instead of
 * growth.  Push releases, pop acquires: what the producer wrote before the push is seen after the
 * pop.  No lock, no system call; waking the other side is the caller's business.  Layer: base (L0).
 */
#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

struct wb_ring {
	_Alignas(64) _Atomic size_t head; /* next to pop; written by the consumer */
	size_t tail_seen; /* consumer's copy of tail */
	_Alignas(64) _Atomic size_t tail; /* next to push; written by the producer */
	size_t head_seen; /* producer's copy of head */
	_Alignas(64) uint8_t *item; /* owned */
	size_t mask, item_bytes;
};

/** wb_ring_init - room for at least @items items of @item_bytes.  0, -EINVAL or -ENOMEM.
 *  Release with wb_ring_finish(). */
static inline int wb_ring_init(struct wb_ring *r, size_t items, size_t item_bytes)
{
	size_t n = 1;

	memset(r, 0, sizeof(*r));
	if (!items || items > (SIZE_MAX >> 2) || !item_bytes)
		return -EINVAL;
	while (n < items)
		n *= 2;
	r->item = wb_zalloc(n, item_bytes);
	if (!r->item)
		return -ENOMEM;
	r->mask = n - 1;
	r->item_bytes = item_bytes;
	return 0;
}

/* Free the ring; both sides must have stopped. */
static inline void wb_ring_finish(struct wb_ring *r)
{
	wb_free(r->item);
	r->item = NULL;
}

/** wb_ring_room - number of items that can be pushed now; producer only. */
static inline size_t wb_ring_room(struct wb_ring *r)
{
	size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
	return r->mask + 1 - (tail - r->head_seen);
}

/** wb_ring_push - 0, or -EAGAIN when full; producer only. */
static inline int wb_ring_push(struct wb_ring *r, const void *item)
{
	size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	if (tail - r->head_seen > r->mask && wb_ring_room(r) == 0)
		return -EAGAIN;
	memcpy(r->item + (tail & r->mask) * r->item_bytes, item, r->item_bytes);
	atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
	return 0;
}

/** wb_ring_pop - 0, or -EAGAIN when empty; consumer only. */
static inline int wb_ring_pop(struct wb_ring *r, void *item_out)
{
	size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (head == r->tail_seen) {
		r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
		if (head == r->tail_seen)
			return -EAGAIN;
	}
	memcpy(item_out, r->item + (head & r->mask) * r->item_bytes, r->item_bytes);
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
	return 0;
}

/** wb_ring_is_empty - consumer only; seq_cst, so that "say I sleep, then look once more" works
 *  against "push, then look whether the other sleeps". */
static inline bool wb_ring_is_empty(struct wb_ring *r)
{
	return atomic_load(&r->tail) == atomic_load_explicit(&r->head, memory_order_relaxed);
}

#endif
