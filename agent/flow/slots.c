/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/slots.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

void wb_slots_shares(bool rolls, uint8_t share[WB_POOLS])
{
	share[WB_POOL_RECEIVE] = rolls ? 6 : 0;
	share[WB_POOL_EXCHANGE] = rolls ? 4 : 0;
	share[WB_POOL_DOMAIN] = rolls ? 2 : 0;
	share[WB_POOL_SEND] = rolls ? 4 : 16;
}

int wb_slots_init(struct wb_slots *s, void *base, size_t bytes, size_t slot_bytes,
	const uint8_t share[WB_POOLS], struct wb_err *err)
{
	size_t n = bytes / slot_bytes, used = 0;

	memset(s, 0, sizeof(*s));
	if (n < WB_POOLS || n > UINT32_MAX / 16)
		return wb_err_set(err, -EINVAL,
			"%zu bytes of buffer hold %zu slots of %zu bytes, at least %d are needed",
			bytes, n, slot_bytes, (int)WB_POOLS);
	s->base = base;
	s->slot_bytes = slot_bytes;
	s->next = wb_zalloc(n, sizeof(*s->next));
	s->pool_of = wb_zalloc(n, 1);
	if (!s->next || !s->pool_of) {
		wb_slots_finish(s);
		return wb_err_set(err, -ENOMEM, "no memory for %zu slots", n);
	}
	for (int p = 0; p < WB_POOLS; p++) {
		size_t want = n * share[p] / 16;

		s->head[p] = WB_SLOT_NONE;
		if (share[p])
			want = WB_MAX(want, 1);
		for (size_t i = 0; i < want && used < n; i++) {
			s->pool_of[used] = (uint8_t)p;
			s->n_pool[p]++;
			wb_slots_put(s, (uint32_t)used++);
		}
	}
	s->n = (uint32_t)used;
	return 0;
}

void wb_slots_finish(struct wb_slots *s)
{
	wb_free(s->next);
	wb_free(s->pool_of);
	memset(s, 0, sizeof(*s));
}

uint32_t wb_slots_get(struct wb_slots *s, enum wb_pool pool)
{
	uint32_t slot = s->head[pool];

	if (slot == WB_SLOT_NONE)
		return slot;
	assert(s->pool_of[slot] == pool && s->n_free[pool]);
	s->head[pool] = s->next[slot];
	s->n_free[pool]--;
	return slot;
}

void wb_slots_put(struct wb_slots *s, uint32_t slot)
{
	uint8_t pool = s->pool_of[slot];

	s->next[slot] = s->head[pool];
	s->head[pool] = slot;
	s->n_free[pool]++;
	assert(s->n_free[pool] <= s->n_pool[pool]);
}
