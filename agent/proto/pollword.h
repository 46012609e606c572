/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_POLLWORD_H
#define WB_PROTO_POLLWORD_H
/*
 * The page that a rollout worker and its agent share, and the rules of its poll word.
 *
 * The word is {stop:32 high, count:32 low}.  Only the worker adds to count, only the agent sets
 * stop.  stop 0 = none; count passes from 2^32 - 1 to 1, so that 0 means "never polled" and never
 * a stop.  The agent promises "this worker stops at count + 1" by compare-and-swap: either the
 * worker's next poll sees the stop, or the swap sees the new count.  stop is then only raised or
 * cleared.  The word is in this machine's byte order: it never leaves the machine.
 *
 * Threads: one polling thread, one agent thread.  Layer: proto (L1), inline.
 */
#include <stdbool.h>
#include <stdint.h>

#define WB_POLL_PAGE_BYTES 4096

struct wb_poll_page {
	uint64_t word;
	uint64_t pad[7]; /* the word has its cache line for itself */
	uint64_t transfer, version; /* last committed, only shown to users */
	/* Transfer of which bytes may be in the parameters, or, when staged, which other workers of
	 * the engine may be installing; 0 = none since the update began.  A worker reads this when
	 * its agent died. */
	uint64_t touched;
};

/** wb_poll_count - polls so far; 0 = never polled. */
static inline uint32_t wb_poll_count(uint64_t word)
{
	return (uint32_t)word;
}

/** wb_poll_stop - count at which the worker stops; 0 = none. */
static inline uint32_t wb_poll_stop(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

/** wb_poll_next - the count after @count (skips 0). */
static inline uint32_t wb_poll_next(uint32_t count)
{
	return count + 1 ? count + 1 : 1;
}

/** wb_poll_later - true when count @a comes after @b (they are less than 2^31 polls apart). */
static inline bool wb_poll_later(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/** wb_poll_is_parked - the worker has reached its stop and waits there. */
static inline bool wb_poll_is_parked(uint64_t word)
{
	return wb_poll_stop(word) && wb_poll_stop(word) == wb_poll_count(word);
}

/** wb_poll_is_ahead - a stop is set that this worker has not reached yet. */
static inline bool wb_poll_is_ahead(uint64_t word)
{
	return wb_poll_stop(word) && wb_poll_later(wb_poll_stop(word), wb_poll_count(word));
}

/** wb_poll_load - the word as it is now, with acquire: what the worker did before that poll is
 *  seen. */
static inline uint64_t wb_poll_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/** wb_poll_add - worker: one poll; returns the new word.  Never carries into stop. */
static inline uint64_t wb_poll_add(uint64_t *word)
{
	uint64_t w = __atomic_load_n(word, __ATOMIC_RELAXED);
	uint64_t next;

	/* Only this thread adds to count: if it is not 2^32 - 1 now, adding 1 does not carry. */
	if (__builtin_expect((uint32_t)w != UINT32_MAX, 1))
		return __atomic_add_fetch(word, 1, __ATOMIC_ACQ_REL);
	do {
		next = (w & ~(uint64_t)UINT32_MAX) | wb_poll_next(wb_poll_count(w));
	} while (!__atomic_compare_exchange_n(
		word, &w, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	return next;
}

/**
 * wb_poll_promise - agent: promise for the worker that it stops at its next poll
 * Returns that count; when a stop is set already, that stop.
 */
static inline uint32_t wb_poll_promise(uint64_t *word)
{
	uint64_t w = wb_poll_load(word);
	uint32_t stop;

	do {
		if (wb_poll_stop(w))
			return wb_poll_stop(w);
		stop = wb_poll_next(wb_poll_count(w));
	} while (!__atomic_compare_exchange_n(word, &w, (uint64_t)stop << 32 | wb_poll_count(w),
		false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	return stop;
}

/** wb_poll_set_stop - agent: raise a promised stop to the target, or clear it (0).  Afterwards send
 *  APP_GO, since a parked worker sleeps. */
static inline void wb_poll_set_stop(uint64_t *word, uint32_t stop)
{
	uint64_t w = wb_poll_load(word);

	while (!__atomic_compare_exchange_n(word, &w, (uint64_t)stop << 32 | wb_poll_count(w),
		false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
}

#endif
