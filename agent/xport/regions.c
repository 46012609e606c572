/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/regions.h"

#include "base/base.h"

#include <string.h>

static bool is_before(uint64_t object, uintptr_t base, const struct wb__region_key *k)
{
	return object != k->object ? object < k->object : base < k->base;
}

/* Index of the first key that has a greater base, or belongs to a greater object. */
static uint32_t above(struct wb__regions *x, uint64_t object, uintptr_t base)
{
	uint32_t lo = 0, hi = x->n;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		x->n_looked++;
		if (is_before(object, base, &x->key[mid]))
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static void reach_from(struct wb__regions *x, uint32_t i)
{
	for (; i < x->n; i++) {
		struct wb__region_key *k = &x->key[i];

		k->reach = k->end;
		if (i && k[-1].object == k->object)
			k->reach = WB_MAX(k->reach, k[-1].reach);
	}
}

void wb__regions_put(struct wb__regions *x, uint32_t id, const struct wb_xport_region *r)
{
	uintptr_t base = (uintptr_t)r->base;
	uint32_t i = above(x, r->object, base);

	assert(x->n < WB__REGIONS_MAX && r->bytes && r->bytes <= (uintptr_t)-1 - base);
	memmove(&x->key[i + 1], &x->key[i], (x->n - i) * sizeof(x->key[0]));
	x->key[i] = (struct wb__region_key){.object = r->object,
		.base = base,
		.end = base + r->bytes,
		.age = ++x->age,
		.id = id};
	x->n++;
	reach_from(x, i);
}

void wb__regions_drop(struct wb__regions *x, uint32_t id)
{
	for (uint32_t i = 0; i < x->n; i++) {
		if (x->key[i].id != id)
			continue;
		x->n--;
		memmove(&x->key[i], &x->key[i + 1], (x->n - i) * sizeof(x->key[0]));
		reach_from(x, i);
		return;
	}
}

/* Does the region that was found last hold the range, and no other region?  The ranges of a chunk
 * mostly follow each other in one region, so this is tried first. */
static bool is_hint(const struct wb__regions *x, uint64_t object, uintptr_t at, uintptr_t end)
{
	const struct wb__region_key *k = &x->key[x->hint];

	return x->hint < x->n && k->object == object && at >= k->base && end <= k->end &&
	       (!x->hint || k[-1].object != object || k[-1].reach <= at) &&
	       (x->hint + 1 == x->n || k[1].object != object || k[1].base > at);
}

bool wb__regions_touch(struct wb__regions *x, uint64_t object, const void *p, size_t bytes)
{
	uintptr_t at = (uintptr_t)p;
	uint32_t i = bytes ? above(x, object, at + bytes - 1) : 0;

	return i && x->key[i - 1].object == object && x->key[i - 1].reach > at;
}

uint32_t wb__regions_find(struct wb__regions *x, uint64_t object, const void *p, size_t bytes)
{
	uintptr_t at = (uintptr_t)p, end = at + bytes;
	const struct wb__region_key *best = NULL;
	uint32_t i;

	x->n_looked++;
	if (is_hint(x, object, at, end))
		return x->key[x->hint].id;
	for (i = above(x, object, at); i--;) {
		const struct wb__region_key *k = &x->key[i];

		x->n_looked++;
		if (k->object != object || k->reach <= at)
			break;
		if (end <= k->end && (!best || k->age < best->age))
			best = k;
	}
	if (!best)
		return WB__REGION_NONE;
	x->hint = (uint32_t)(best - x->key);
	return best->id;
}
