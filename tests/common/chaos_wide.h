/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CHAOS_WIDE_H
#define TESTS_CHAOS_WIDE_H
/*
 * What simulated deployments have beside the usual when they are asked to be wide
 * (chaos_opts.wide): each a knob that the seed turns on, and a count of how often it did
 * something.  They have random numbers of their own, so that seeds mean the same without them.
 */
#include "tests/common/world.h"

enum chaos_wide {
	WIDE_NO_SUMS, /* spec.checksums off */
	WIDE_SOCKETS, /* the sockets of workers are of very different speed */
	WIDE_SLOW, /* one worker of an engine polls and updates slowly */
	WIDE_DISK, /* a judge cannot keep what it decides, for a while */
	WIDE_CLOCKS, /* agents' clocks differ, run fast or slow, and jump forwards */
	WIDE_ASYMMETRIC, /* A does not reach B, B reaches A */
	WIDE_PARTIAL, /* some bytes of bulk data stand still; messages, and others, do not */
	WIDE_RAILS, /* agents have several, and a connection's items overtake each other */
	WIDE_REGIONS, /* sources must lie in regions */
	WIDE_PODS, /* several workers a pod, one host: receivers read sources' memory, far ahead */
	WIDE_BIG, /* up to 256 agents, or 64 engines */
	WIDE_LANES, /* packing and assembling take time */
	WIDE_HOLDS, /* trainers hold versions, and let go at any time */
	WIDE_APART, /* engines of one address family, and of another */
	WIDE_NODES, /* two to four agents share memory, and take from the network together */
	CHAOS_WIDE
};

struct chaos;

/* "no sums", and what is counted: "chunks". */
const char *chaos_wide_name(enum chaos_wide kind);
const char *chaos_wide_unit(enum chaos_wide kind);
/** chaos_wide_shape - which of them the seed has, and what that changes in the world. */
void chaos_wide_shape(struct chaos *c, struct world_opts *o);
/** chaos_wide_begin - the same, of what a new world has. */
void chaos_wide_begin(struct chaos *c);
/** chaos_wide_inject - one of its faults, now. */
void chaos_wide_inject(struct chaos *c);
/** chaos_wide_holds - those that hold end it now and then; before they call again, each. */
void chaos_wide_holds(struct chaos *c);
/** chaos_wide_end - faults are over. */
void chaos_wide_end(struct chaos *c);
/** chaos_wide_count - before the world goes: take its counts. */
void chaos_wide_count(struct chaos *c);
/** chaos_wide_say - the world's shape in one line. */
void chaos_wide_say(const struct chaos *c, char *out, size_t cap);

#endif
