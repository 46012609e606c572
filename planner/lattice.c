/* SPDX-License-Identifier: Apache-2.0 */
/* One-dimensional lattices: how many values two have in common, and whether one contains the
 * other. */
#include "planner/internal.h"

#include "base/base.h"

typedef unsigned __int128 u128;

/* gcd of a and b; *inv: a * inv = gcd (mod b), in [0, b). */
static uint64_t gcd_inv(uint64_t a, uint64_t b, uint64_t *inv)
{
	__int128 r0 = b, r1 = a % b, t0 = 0, t1 = 1;

	while (r1) {
		__int128 q = r0 / r1, next = r0 - q * r1;

		r0 = r1;
		r1 = next;
		next = t0 - q * t1;
		t0 = t1;
		t1 = next;
	}
	*inv = (uint64_t)((t0 % (__int128)b + b) % b);
	return (uint64_t)r0;
}

static u128 last_of(struct wb__axis a)
{
	return (u128)a.first + (u128)(a.n - 1) * a.step;
}

uint64_t wb__axis_common(struct wb__axis a, struct wb__axis b)
{
	u128 end = WB_MIN(last_of(a), last_of(b)), begin = WB_MAX(a.first, b.first), at, lcm;
	uint64_t g, inv, b_over_g, diff;

	if (begin > end)
		return 0;
	if (a.step == 1 && b.step == 1)
		return (uint64_t)(end - begin + 1);
	if (a.n == 1 || b.n == 1) {
		struct wb__axis one = a.n == 1 ? a : b, many = a.n == 1 ? b : a;

		return one.first >= many.first && (one.first - many.first) % many.step == 0;
	}
	if (a.step == b.step) {
		if (a.first % a.step != b.first % a.step)
			return 0;
		return (uint64_t)(end - begin) / a.step + 1;
	}
	/* Find the first at = a.first + k * a.step with at = b.first (mod b.step), k >= 0.  The
	 * inverse of a.step / g gives k. */
	g = gcd_inv(a.step % b.step ? a.step % b.step : b.step, b.step, &inv);
	if (a.first % g != b.first % g)
		return 0;
	b_over_g = b.step / g;
	diff = (uint64_t)(((u128)(b.first % b.step) + b.step - a.first % b.step) % b.step) / g;
	if (b_over_g > 1) {
		gcd_inv(a.step / g % b_over_g, b_over_g, &inv);
		at = a.first + (u128)a.step * (uint64_t)((u128)diff * inv % b_over_g);
	} else {
		at = a.first;
	}
	lcm = (u128)a.step * b_over_g;
	if (at < begin)
		at += (begin - at + lcm - 1) / lcm * lcm;
	return at > end ? 0 : (uint64_t)((end - at) / lcm + 1);
}

bool wb__axis_has(struct wb__axis a, struct wb__axis in)
{
	uint64_t skip;

	if (in.first < a.first || (in.first - a.first) % a.step)
		return false;
	skip = (in.first - a.first) / a.step;
	if (skip >= a.n)
		return false;
	if (in.n == 1)
		return true;
	return in.step % a.step == 0 && (u128)(in.n - 1) * (in.step / a.step) <= a.n - 1 - skip;
}
