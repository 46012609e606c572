/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/world_check.h"

#include <check.h>

void world_check_send(struct world *w, int64_t version, uint64_t limit_ns)
{
	world_send(w, version);
	ck_assert_msg(world_run(w, limit_ns), "version %lld hangs", (long long)version);
	world_run_for(w, WB_NS_PER_MS);
}

void world_check_hold(const struct world *w, int64_t version)
{
	for (uint32_t i = w->n_trainer; i < w->n_worker; i++) {
		const struct world_worker *k = &w->worker[i];

		if (k->phase == WORLD_DOWN)
			continue;
		ck_assert_msg(world_holds(w, k, version),
			"worker %u does not hold version %lld: %s", i, (long long)version, k->why);
		ck_assert_int_eq(k->version, version);
	}
}
