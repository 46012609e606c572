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
 * been heard for a while.  A heartbeat without sent_ns wants no answer.
 *
 * Pure; any thread.  Layer: proto (L1), inline.
 */
#include <stdbool.h>
#include <stdint.h>

#define WB_BEAT_SLOTS 5 /* common times in one interval, so that not all agents send at once */
#define WB_BEATS_MISSED 4 /* intervals of silence after which an operator is taken for gone */

/* An agent without a connection has one again WB_REDIAL_NS after a leader begins to serve, at the
 * latest: it may just have dialled an address where nobody answers any more, then pauses before its
 * next try, and a standby may then send it on to the leader.  A name lookup that hangs may take
 * longer. */
#define WB_DIAL_NS 4000000000ull /* for an answer to a connect: TCP asks again after 1 and 3 s */
#define WB_REDIAL_PAUSE_NS 3000000000ull /* longest pause between two tries */
#define WB_REDIAL_NS (2 * WB_DIAL_NS + WB_REDIAL_PAUSE_NS + 1000000000ull)

/** wb_beat_interval_ns - interval of heartbeats for a timeout: two and a half of them, so that an
 *  agent is lost only when two heartbeats were missed in a row. */
static inline uint64_t wb_beat_interval_ns(uint64_t timeout_ns)
{
	return timeout_ns * 2 / 5;
}

/** wb_beat_timeout_ns - the timeout for which wb_beat_interval_ns() gives @interval_ns. */
static inline uint64_t wb_beat_timeout_ns(uint64_t interval_ns)
{
	return interval_ns / 2 * 5;
}

/* Agents tolerate each other's silence as long as the operator tolerates theirs, and at least so
 * long. */
#define WB_BEAT_PATIENCE_NS 10000000000ull

/** wb_beat_patience_ns - how long an agent may be silent before another agent takes it for gone;
 *  @interval_ns: of the heartbeats that their operator wants. */
static inline uint64_t wb_beat_patience_ns(uint64_t interval_ns)
{
	uint64_t ns = wb_beat_timeout_ns(interval_ns);

	return ns > WB_BEAT_PATIENCE_NS ? ns : WB_BEAT_PATIENCE_NS;
}

/**
 * wb_beat_return_ns - how long after the first agent the last one comes to a new operator
 * An agent notices that its operator vanished when it has heard nothing for WB_BEATS_MISSED
 * intervals and its next heartbeat is due.  A healthy operator is heard every second interval, so
 * agents notice at most three intervals apart.  Then they dial.
 */
static inline uint64_t wb_beat_return_ns(uint64_t timeout_ns)
{
	return (WB_BEATS_MISSED - 1) * wb_beat_interval_ns(timeout_ns) + WB_REDIAL_NS;
}

/**
 * wb_beat_after_ns - how long from now to the next heartbeat: an interval, more or less half a slot
 * @now_ns:	own clock
 * @offset_ns:	own clock minus the operator's
 * @interval_ns: more than WB_BEAT_SLOTS
 */
static inline uint64_t wb_beat_after_ns(uint64_t now_ns, int64_t offset_ns, uint64_t interval_ns)
{
	uint64_t slot = interval_ns / WB_BEAT_SLOTS;
	uint64_t there = now_ns - (uint64_t)offset_ns; /* now, by the operator's clock */
	uint64_t late = (there + slot / 2) % slot; /* since the middle between two common times */

	return interval_ns + slot / 2 - late;
}

/** wb_beat_wants_answer - should the next heartbeat ask for an answer?  Yes, when the operator has
 *  been silent for more than one and a half intervals. */
static inline bool wb_beat_wants_answer(uint64_t now_ns, uint64_t heard_ns, uint64_t interval_ns)
{
	return now_ns - heard_ns > interval_ns + interval_ns / 2;
}

#endif
