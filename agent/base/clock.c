/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * WB_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t real_now(const struct wb_clock *c)
{
	(void)c;
	return read_clock(CLOCK_MONOTONIC);
}

const struct wb_clock wb_clock_real = {real_now};

static uint64_t fake_now(const struct wb_clock *c)
{
	return ((const struct wb_fake_clock *)(const void *)c)->now; /* clock is its first member */
}

void wb_fake_clock_init(struct wb_fake_clock *c, uint64_t now_ns)
{
	c->clock.now_ns = fake_now;
	c->now = now_ns;
}

uint64_t wb_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}
