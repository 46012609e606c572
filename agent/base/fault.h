/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_FAULT_H
#define WB_BASE_FAULT_H
/*
 * Faults on demand (WB_FAULT), so that a user can see what the system does when things break.
 *
 *	WB_FAULT = RULE [; RULE]...		RULE = ACTION=PLACE[:PROPERTY]...
 *
 * Actions
 *	drop	break the connection		delay	hold back for a time
 *	flip	change one bit of the bytes	kill	SIGKILL to this process
 *	stall	stop a rail once for a time	misplace	put bytes where others belong
 * Places
 *	wire	bytes on their way, at the side that moves them (tcp: source, shm: receiver)
 *	railN	what rail N does (rail: any)	send	a source answers a grant
 *	recv	a chunk arrived			relay	a re-pack from installed parameters
 *	slot	bytes in a receive slot		assemble  a chunk about to be put into parameters
 *	install	parameters after install
 *	copy	parameters after a staging area was copied into them
 *	ctrl	a control message
 *	attach	a worker attached		plan	agent: a plan came; operator: one leaves
 *	ready	agent: is about to say READY; operator: an agent said so
 *	activate	agent: ACTIVATE came; operator: one leaves
 *	prepare	a transfer reaches this agent	release	trainers are about to be let go
 *	commit	the outcome reaches this agent: its engine commits, its trainers are done
 * kill has a meaning everywhere; drop at wire, rail, send (the source refuses) and ctrl; flip at
 * wire, slot, relay, install and copy; misplace at assemble; delay and stall at wire and rail.
 * Other pairs are refused.
 * Properties
 *	0.01		probability of each hit (default 1)
 *	2s 5ms 100us	a time (delay, stall; default 1s)
 *	chunk=K		only the K-th time the rest matches, from 1 (counted from the start, or
 *			within the version / transfer that is named)
 *	version=V	only this version		transfer=T	only this transfer
 *	rail=N		only this rail			seed=S		of the probability
 * At wire and rail only the rail is known; at attach, plan, ready and activate nothing; elsewhere
 * version and transfer.  A rule that names a property that is not known at its place is refused.
 *
 * e.g. `flip=wire:0.01`, `kill=recv:chunk=5:version=6`, `stall=rail0:2s`, `delay=wire:5ms:0.1`.
 *
 * A NULL table costs one comparison.  Any thread (counters are atomic).  Layer: base (L0).
 */
#include <stdint.h>

struct wb_err;
struct wb_fault; /* rules */

enum wb_fault_action {
	WB_FAULT_DROP = 1u << 0,
	WB_FAULT_DELAY = 1u << 1,
	WB_FAULT_FLIP = 1u << 2,
	WB_FAULT_KILL = 1u << 3, /* carried out by wb_fault_hit() itself */
	WB_FAULT_STALL = 1u << 4,
	WB_FAULT_MISPLACE = 1u << 5,
};

enum wb_fault_place {
	WB_FAULT_WIRE,
	WB_FAULT_SEND,
	WB_FAULT_RECV,
	WB_FAULT_RELAY,
	WB_FAULT_SLOT,
	WB_FAULT_ASSEMBLE,
	WB_FAULT_INSTALL,
	WB_FAULT_COPY,
	WB_FAULT_RAIL,
	WB_FAULT_CTRL,
	WB_FAULT_ATTACH,
	WB_FAULT_PLAN,
	WB_FAULT_READY,
	WB_FAULT_ACTIVATE,
	WB_FAULT_PREPARE,
	WB_FAULT_RELEASE,
	WB_FAULT_COMMIT,
	WB_FAULT_PLACES,
};

/* Where a program is when it asks.  Unknown numbers are WB_FAULT_ANY and match no rule that names
 * one. */
#define WB_FAULT_ANY UINT64_MAX
struct wb_fault_at {
	uint64_t version, transfer, rail;
};

struct wb_fault_hit {
	unsigned actions; /* OR of enum wb_fault_action that fire now; 0 = go on */
	uint64_t delay_ns; /* DELAY, STALL */
	uint64_t bit; /* FLIP: a random number; take it modulo the bits there are */
};

/** wb_fault_parse - read the rules in @text (NULL or "" gives *out = NULL).  0, -EINVAL with a
 * sentence that names the rule, -ENOMEM.  Release with wb_fault_destroy(). */
int wb_fault_parse(const char *text, struct wb_fault **out, struct wb_err *err);
void wb_fault_destroy(struct wb_fault *f);
#define WB_FAULT_ALL ((1u << WB_FAULT_PLACES) - 1)
/** wb_fault_check - check that program @who ("the operator") has all places and rails that the
 * rules of @f name; @has: its places, bits of enum wb_fault_place.  0, or -EINVAL with a sentence
 * that lists what it has. */
int wb_fault_check(const struct wb_fault *f, const char *who, unsigned has, uint32_t n_rail,
	struct wb_err *err);

/** wb__fault_hit - see wb_fault_hit(). */
unsigned wb__fault_hit(struct wb_fault *f, enum wb_fault_place place, const struct wb_fault_at *at,
	struct wb_fault_hit *hit);

/** wb_fault_hit - what goes wrong at @place now; fills @hit and returns hit->actions.  A kill does
 *  not return. */
static inline unsigned wb_fault_hit(struct wb_fault *f, enum wb_fault_place place,
	const struct wb_fault_at *at, struct wb_fault_hit *hit)
{
	return f ? wb__fault_hit(f, place, at, hit) : (hit->actions = 0);
}

/** wb_fault_phase - wb_fault_hit() for places outside of transfers, where only kill has an
 * effect. */
static inline void wb_fault_phase(struct wb_fault *f, enum wb_fault_place place)
{
	struct wb_fault_at at = {WB_FAULT_ANY, WB_FAULT_ANY, WB_FAULT_ANY};
	struct wb_fault_hit hit;

	(void)wb_fault_hit(f, place, &at, &hit);
}

#endif
