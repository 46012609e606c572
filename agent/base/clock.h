/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_CLOCK_H
#define WB_BASE_CLOCK_H
/*
 * A clock that is passed to its users, so that tests and the simulator can control time.
 *
 * Monotonic nanoseconds from an arbitrary start.  Layer: base (L0).
 */
#include <stdint.h>

#define WB_NS_PER_S 1000000000ull
#define WB_NS_PER_MS 1000000ull
#define WB_NS_PER_US 1000ull

struct wb_clock {
	uint64_t (*now_ns)(const struct wb_clock *c); /* any thread */
};

extern const struct wb_clock wb_clock_real; /* CLOCK_MONOTONIC */

/* A clock that tests set by hand. */
struct wb_fake_clock {
	struct wb_clock clock;
	uint64_t now;
};
/** wb_fake_clock_init - a clock that stands at @now_ns until a test writes @c->now.  One thread. */
void wb_fake_clock_init(struct wb_fake_clock *c, uint64_t now_ns);

/** wb_now_ns - nanoseconds of this clock; never less than before. */
static inline uint64_t wb_now_ns(const struct wb_clock *c)
{
	return c->now_ns(c);
}

/** wb_wall_ns - nanoseconds since the epoch (CLOCK_REALTIME), for people and traces only. */
uint64_t wb_wall_ns(void);

#endif
