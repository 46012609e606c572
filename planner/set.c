/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of numbers, each stored once. */
#include "planner/internal.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define SLOTS_MIN 64
#define SETS_MAX (1u << 26)
#define VALUES_MAX (1u << 30)

int wb__sets_init(struct wb__sets *s)
{
	memset(s, 0, sizeof(*s));
	s->slot = wb_zalloc(SLOTS_MIN, sizeof(*s->slot));
	if (!s->slot || wb_grow(&s->begin, &s->cap_begin, 2, SETS_MAX, sizeof(*s->begin))) {
		wb__sets_finish(s);
		return -ENOMEM;
	}
	s->n_slot = SLOTS_MIN;
	s->begin[0] = s->begin[1] = 0;
	s->n = 1;
	return 0;
}

void wb__sets_finish(struct wb__sets *s)
{
	wb_free(s->val);
	wb_free(s->begin);
	wb_free(s->slot);
	memset(s, 0, sizeof(*s));
}

static uint64_t hash_of(const uint32_t *v, uint32_t n)
{
	return wb_hash64(v, n * sizeof(*v), n);
}

static int rehash(struct wb__sets *s)
{
	size_t n_slot = 2 * s->n_slot;
	uint32_t *slot = wb_zalloc(n_slot, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	for (uint32_t i = 1; i < s->n; i++) {
		size_t at = hash_of(s->val + s->begin[i], wb__set_len(s, i)) & (n_slot - 1);

		while (slot[at])
			at = (at + 1) & (n_slot - 1);
		slot[at] = i + 1;
	}
	wb_free(s->slot);
	s->slot = slot;
	s->n_slot = n_slot;
	return 0;
}

int64_t wb__sets_put(struct wb__sets *s, const uint32_t *v, uint32_t n)
{
	size_t at = hash_of(v, n) & (s->n_slot - 1);
	uint32_t end = s->begin[s->n];
	int rc;

	if (!n)
		return 0;
	for (; s->slot[at]; at = (at + 1) & (s->n_slot - 1)) {
		uint32_t i = s->slot[at] - 1;

		if (wb__set_len(s, i) == n && !memcmp(s->val + s->begin[i], v, n * sizeof(*v)))
			return i;
	}
	rc = wb_grow(&s->val, &s->cap_val, (size_t)end + n, VALUES_MAX, sizeof(*s->val));
	if (!rc)
		rc = wb_grow(
			&s->begin, &s->cap_begin, (size_t)s->n + 2, SETS_MAX, sizeof(*s->begin));
	if (rc < 0)
		return rc;
	memcpy(s->val + end, v, n * sizeof(*v));
	s->begin[s->n + 1] = end + n;
	s->slot[at] = ++s->n;
	if (2 * (size_t)s->n > s->n_slot && rehash(s) < 0) {
		s->n--; /* the slot is cleared, so the table stays usable */
		s->slot[at] = 0;
		return -ENOMEM;
	}
	return s->n - 1;
}
