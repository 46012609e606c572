/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/world_steps.h"

#include <stdio.h>
#include <string.h>

bool world_steps_serve(
	struct world_steps *s, const struct world_worker *k, uint32_t count, char *why, size_t cap)
{
	uint32_t en = k->engine, at = count % WORLD_STEPS;

	if (!s->step[en][at].is_set || s->step[en][at].count != count) {
		s->step[en][at].is_set = true;
		s->step[en][at].count = count;
		s->step[en][at].version = k->version;
		s->step[en][at].worker = k->index;
		return true;
	}
	if (s->step[en][at].version == k->version)
		return true;
	snprintf(why, cap,
		"engine %u serves a mix from poll %u on: worker %u version %lld, worker %u version "
		"%lld",
		en, count, s->step[en][at].worker, (long long)s->step[en][at].version, k->index,
		(long long)k->version);
	return false;
}

void world_steps_forget(struct world_steps *s, uint32_t engine)
{
	memset(s->step[engine], 0, sizeof(s->step[engine]));
}
