/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_BEAT_H
#define WB_PROTO_BEAT_H
/*
 * When an agent sends heartbeats to its operator, and which of them want an answer.
 *
 * An operator may have thousands of agents.  Waking up for each of their heartbeats would cost it
 * more than the heartbeats themselves, so agents send them at common times, by the operator's
 * clock, which they know from earlier answers; and an answer is asked for only when nothing has
 * been heard for a while.  A heartbeat without sent_ns wants none.
 *
 * Pure; any thread.  Layer: proto (L1), inline.
 */
#include <stdbool.h>
#include <stdint.h>

#define WB_BEAT_SLOTS 5 /* of one interval: agents do not all come at once, either */

/**
 * wb_beat_after_ns - how long from now to the next heartbeat: an interval, more or less half a slot
 * @now_ns:	own clock
 * @offset_ns:	own clock less the operator's
 * @interval_ns: more than WB_BEAT_SLOTS
 */
static inline uint64_t wb_beat_after_ns(uint64_t now_ns, int64_t offset_ns, uint64_t interval_ns)
{
	uint64_t slot = interval_ns / WB_BEAT_SLOTS;
	uint64_t there = now_ns - (uint64_t)offset_ns; /* now, by the operator's clock */
	uint64_t late = (there + slot / 2) % slot; /* after the middle between two points */

	return interval_ns + slot / 2 - late;
}

/** wb_beat_wants_answer - the operator has been silent for more than one heartbeat. */
static inline bool wb_beat_wants_answer(uint64_t now_ns, uint64_t heard_ns, uint64_t interval_ns)
{
	return now_ns - heard_ns > interval_ns + interval_ns / 2;
}

#endif
