/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_SLOTS_H
#define WB_FLOW_SLOTS_H
/*
 * Slots: the agent's registered buffer, cut into equal parts that belong to pools by purpose.
 *
 * The pools are ordered receive -> exchange -> domain -> parameters, and sending has its own: a
 * chunk in one pool waits only for a later one, so that no cycle of waits exists (internal.h, enum
 * fetch_kind).  Each pool has its own share, which is never lent: a slot goes back to the pool that
 * it belongs to, which never has more than its share free (asserted).
 * Loop thread.  Layer: L3.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wb_pool { WB_POOL_RECEIVE, WB_POOL_EXCHANGE, WB_POOL_DOMAIN, WB_POOL_SEND, WB_POOLS };

#define WB_SLOT_NONE UINT32_MAX

struct wb_slots {
	uint8_t *base; /* borrowed: the arena as mapped here */
	size_t slot_bytes;
	uint32_t n;
	uint32_t *next; /* owned, by slot: next in the free list */
	uint32_t head[WB_POOLS], n_free[WB_POOLS], n_pool[WB_POOLS];
	uint8_t *pool_of; /* owned */
};

struct wb_err;

/**
 * wb_slots_init - cut @bytes at @base into slots
 * @share:	slots of each pool in sixteenths of all; a pool with a share gets at least one
 * Returns 0; -EINVAL when the memory holds fewer than WB_POOLS slots, or far too many (the sentence
 * has the figures); -ENOMEM.  Release with wb_slots_finish().
 */
int wb_slots_init(struct wb_slots *s, void *base, size_t bytes, size_t slot_bytes,
	const uint8_t share[WB_POOLS], struct wb_err *err);
/** wb_slots_shares - fill @share with what an agent gives each pool.  @rolls: it has rollout
 * workers.  Without them all slots are for sending, so an engine that joins the agent later needs
 * them cut anew. */
void wb_slots_shares(bool rolls, uint8_t share[WB_POOLS]);
/** wb_slots_finish - free the lists; the memory is the caller's.  Calling it again does nothing. */
void wb_slots_finish(struct wb_slots *s);
/** wb_slots_get - take a free slot of @pool out, or WB_SLOT_NONE. */
uint32_t wb_slots_get(struct wb_slots *s, enum wb_pool pool);
/** wb_slots_put - give a slot back, to its own pool. */
void wb_slots_put(struct wb_slots *s, uint32_t slot);
/** wb_slots_at - the slot's memory, slot_bytes of it. */
static inline void *wb_slots_at(const struct wb_slots *s, uint32_t slot)
{
	return s->base + (size_t)slot * s->slot_bytes;
}

#endif
