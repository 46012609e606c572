/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PROTO_BEAT_H
#define WB_PROTO_BEAT_H
/*
 * When an agent sends heartbeats to its operator, which of them want an answer, and how long it may
 * take until all agents have found a new operator.
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
#define WB_BEATS_MISSED 4 /* of the operator: it answers every second one */

/* An agent without a connection is back within WB_REDIAL_NS of the moment a leader serves: it may
 * have just dialled an address where nobody answers any more, waits for its turn, and may be sent
 * on by a standby.  (Name service that hangs is not in it.) */
#define WB_DIAL_NS 4000000000ull /* to answer a connect: asked again after 1 and 3 s */
#define WB_REDIAL_PAUSE_NS 3000000000ull /* greatest, between two tries */
#define WB_REDIAL_NS (2 * WB_DIAL_NS + WB_REDIAL_PAUSE_NS + 1000000000ull)

/** wb_beat_interval_ns - of heartbeats, so that an agent is lost when two are missed and a third is
 *  late. */
static inline uint64_t wb_beat_interval_ns(uint64_t timeout_ns)
{
	return timeout_ns * 2 / 5;
}

/** wb_beat_timeout_ns - the timeout that has this interval. */
static inline uint64_t wb_beat_timeout_ns(uint64_t interval_ns)
{
	return interval_ns / 2 * 5;
}

/* Two agents bear with each other as long as the operator bears with them, and at least so long. */
#define WB_BEAT_PATIENCE_NS 10000000000ull

/** wb_beat_patience_ns - how long one agent may say nothing to another one until that takes it for
 *  gone, where their operator wants heartbeats so often. */
static inline uint64_t wb_beat_patience_ns(uint64_t interval_ns)
{
	uint64_t ns = wb_beat_timeout_ns(interval_ns);

	return ns > WB_BEAT_PATIENCE_NS ? ns : WB_BEAT_PATIENCE_NS;
}

/**
 * wb_beat_return_ns - how long after the first agent the last one comes to a new operator
 * An operator that vanished without a word is noticed when WB_BEATS_MISSED intervals have passed
 * since it was heard and the next heartbeat is due.  In health it is heard every second interval,
 * so that agents notice at most three intervals apart; then they dial.
 */
static inline uint64_t wb_beat_return_ns(uint64_t timeout_ns)
{
	return (WB_BEATS_MISSED - 1) * wb_beat_interval_ns(timeout_ns) + WB_REDIAL_NS;
}

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
