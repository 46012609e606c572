/* SPDX-License-Identifier: Apache-2.0 */
/* Regions by address: what is found, and that it costs what there is to find. */
#include "base/base.h"
#include "base/hash.h"
#include "tests/common/fx_check.h"
#include "xport/regions.h"

#include <string.h>

#define PAGE 4096u
#define ROUNDS 2000

static struct wb__regions x;
static struct wb_xport_region all[WB__REGIONS_MAX];
static uint64_t age[WB__REGIONS_MAX], now;

static void set_up(void)
{
	memset(&x, 0, sizeof(x));
	memset(all, 0, sizeof(all));
	now = 0;
}

static void put(uint32_t id, uint64_t object, uintptr_t base, size_t bytes)
{
	all[id] = (struct wb_xport_region){.object = object, .base = (void *)base, .bytes = bytes};
	age[id] = ++now;
	wb__regions_put(&x, id, &all[id]);
}

static uint32_t find(uint64_t object, uintptr_t at, size_t bytes)
{
	return wb__regions_find(&x, object, (const void *)at, bytes);
}

/* The same by looking at all of them. */
static uint32_t look(uint64_t object, uintptr_t at, size_t bytes)
{
	uint32_t best = WB__REGION_NONE;

	for (uint32_t i = 0; i < WB__REGIONS_MAX; i++) {
		uintptr_t base = (uintptr_t)all[i].base;

		if (!all[i].bytes || all[i].object != object || at < base ||
			at + bytes > base + all[i].bytes)
			continue;
		if (best == WB__REGION_NONE || age[i] < age[best])
			best = i;
	}
	return best;
}

static bool touches(uint64_t object, uintptr_t at, size_t bytes)
{
	bool is = false;

	for (uint32_t i = 0; i < WB__REGIONS_MAX; i++) {
		uintptr_t base = (uintptr_t)all[i].base;

		is |= all[i].bytes && all[i].object == object && at < base + all[i].bytes &&
		      base < at + bytes;
	}
	return is;
}

START_TEST(whatever_comes_and_goes_the_oldest_that_holds_a_range_is_found)
{
	struct wb_rng r = {(uint64_t)_i};

	for (int k = 0; k < ROUNDS; k++) {
		uint32_t id = (uint32_t)wb_rng_below(&r, 40);
		uint64_t object = wb_rng_below(&r, 3);
		uintptr_t at = PAGE + wb_rng_below(&r, 64) * PAGE;
		size_t bytes = 1 + wb_rng_below(&r, 8 * PAGE);

		if (all[id].bytes) {
			wb__regions_drop(&x, id);
			all[id].bytes = 0;
		} else {
			put(id, object, at, bytes);
		}
		for (int n = 0; n < 20; n++) {
			object = wb_rng_below(&r, 3);
			at = PAGE + wb_rng_below(&r, 72 * PAGE);
			bytes = 1 + wb_rng_below(&r, PAGE);
			ck_assert(find(object, at, bytes) == look(object, at, bytes));
			ck_assert(wb__regions_touch(&x, object, (const void *)at, bytes) ==
				  touches(object, at, bytes));
		}
	}
}
END_TEST

START_TEST(a_range_costs_no_more_where_there_are_more_regions)
{
	struct wb_rng r = {1};
	uint64_t before;

	for (uint32_t i = 0; i < WB__REGIONS_MAX; i++)
		put(i, 7, (uintptr_t)(1 + 2 * i) * PAGE, PAGE);
	before = x.n_looked;
	for (int k = 0; k < ROUNDS; k++) {
		uint32_t i = (uint32_t)wb_rng_below(&r, WB__REGIONS_MAX);

		ck_assert(find(7, (uintptr_t)(1 + 2 * i) * PAGE + 5, 64) == i);
	}
	/* A hint, ten halvings and the one itself, and its neighbour. */
	ck_assert_uint_le(x.n_looked - before, 14 * ROUNDS);
	before = x.n_looked;
	for (int k = 0; k < ROUNDS; k++) /* from one range to the next */
		ck_assert(find(7, 3 * PAGE + (uintptr_t)k, 64) == 1);
	ck_assert_uint_le(x.n_looked - before, ROUNDS + 14);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("regions");
	TCase *t = tcase_create("regions");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, set_up, NULL);
	tcase_add_loop_test(
		t, whatever_comes_and_goes_the_oldest_that_holds_a_range_is_found, 1, 6);
	tcase_add_test(t, a_range_costs_no_more_where_there_are_more_regions);
	return fx_run(s);
}
