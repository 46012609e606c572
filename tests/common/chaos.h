/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CHAOS_H
#define TESTS_CHAOS_H
/*
 * Simulation testing: from one seed a deployment, transfers, faults at any event, and invariants
 * that are checked after each event.
 *
 *	shape		trainers, engines, pods, workers, sizes, deadlines, the mode
 *	faults		processes killed and stopped (agents, workers, the operator), connections
 *			cut, messages lost, late, doubled, overtaken, bits flipped (on
 *			the wire, in a slot, at a relay), hooks that raise, engines that
 *			are scaled down and up
 *	hooks		of the seed's length, or a given one, also beyond the deadline of a step:
 *			they are short when the faults are over
 *	at the end	late frames of plans that are over; an operator that dies between two
 *			ACTIVATEs of a plan and does not come back
 *	checked		no worker runs with anything but the version it was told; nothing is written
 *			outside BEGUN; the workers of an engine that serve a step (from one poll to
 *			the next) do it with one version, and change at the same poll; Committed
 *			only when every worker of the engine holds every byte; trainers are told
 *			"old weights intact" only of what no engine committed or is torn by; every
 *			wait ends
 *			within its deadline, and what failed is named; when faults stop, the next
 *			transfer commits everywhere
 *
 * The same seed gives the same run: chaos.digest is over all messages and marks with their times.
 */
#include "tests/common/chaos_wide.h"
#include "tests/common/world_op.h"
#include "tests/common/world_steps.h"

/* Staging of trainers (1) and rollouts (2); 4 and 5: as 2 and 3, all engines commit together.  The
 * same again: patient, with deadlines of minutes and faults that one hears of, where nothing may
 * wait for a deadline. */
#define CHAOS_MODES 6

struct chaos_opts {
	bool one_pod; /* engines share a pod, where each has one */
	uint64_t seed;
	int mode; /* 0 to 2 * CHAOS_MODES - 1; -1 = from the seed */
	uint64_t hook_ns; /* greatest time in a hook; 0 = from the seed */
	bool is_quiet; /* no faults */
	bool wide; /* also what chaos_wide.h has */
	bool is_tracing;
};

/* Of a transfer. */
struct chaos_account {
	uint64_t transfer;
	bool has_no_effect; /* so trainers were told */
	bool is_torn, is_committed; /* by a worker, by a lead */
	char why[200]; /* that they were told */
};

struct chaos {
	struct chaos_opts o;
	struct world *w;
	struct world_op op;
	struct wb_rng rng;
	uint32_t rounds, fault_ppm, fault_kinds; /* kinds: a mask */
	uint32_t wide; /* a mask of enum chaos_wide */
	uint64_t wide_fired[CHAOS_WIDE];
	struct wb_rng wide_rng;
	char says[256]; /* the world in a line */
	bool is_patient;
	bool is_away[WORLD_OP_ENGINES]; /* engines that are scaled down */
	bool is_over; /* no more faults */
	bool is_paused; /* no new versions */
	int64_t version; /* of the present round */
	uint64_t round_ns; /* when it began, or a trainer last called */
	uint64_t fault_ns; /* when the last fault ends */
	uint64_t idle_ns; /* some trainers are idle while others wait since */
	uint64_t events, n_look;
	uint32_t n_fault, n_restart; /* restarts under way */
	uint32_t n_superseded; /* transfers that none committed and some dropped for the next */
	uint32_t n_committed, n_aborted, n_torn, n_updates, n_feed;
	uint32_t n_left; /* trainer workers let go before the receive stage was over */
	uint32_t n_doubt, n_resumed; /* leads that had to ask, and that took a transfer up */
	struct world_steps steps;
	struct {
		uint64_t transfer, hash;
		bool has_hash;
	} torn[WORLD_WORKERS];
	struct {
		struct {
			uint64_t transfer;
			uint32_t count;
			bool is_set;
		} poll, poll_before; /* where it changes in this run, and did in the one before */
		uint64_t prepared;
		uint64_t committed; /* decided by its lead */
		uint64_t last; /* the last of those: a feed may bring an older one */
		uint64_t aborted; /* by its lead; not a feed */
		uint64_t feed; /* transfer that another engine brings */
	} engine[WORLD_OP_ENGINES];
	struct {
		uint64_t transfer;
		int64_t version;
	} versions[64];
	uint32_t n_version;
	struct chaos_account account[256]; /* by transfer */
	struct chaos_late *late; /* owned */
	uint64_t digest;
	char wrong[2048]; /* the first violation; "" = none */
};

static inline uint64_t chaos_below(struct chaos *c, uint64_t n)
{
	return wb_rng_below(&c->rng, n);
}

static inline uint64_t chaos_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Faults go on until then, at the least. */
static inline void chaos_until(struct chaos *c, uint64_t ns)
{
	c->fault_ns = chaos_later(c->fault_ns, ns);
}

/* chaos_faults.c: which kinds this run has; one of them, now. */
void chaos_choose_faults(struct chaos *c);
void chaos_inject(struct chaos *c);

/** chaos_run - the whole run of a seed; false: c->wrong says what was violated. */
bool chaos_run(struct chaos *c, const struct chaos_opts *o);

/* chaos_account.c: a transfer begins; what a trainer was told; a rollout worker is torn; a lead
 * commits. */
void chaos_account_begin(struct chaos *c, uint64_t transfer);
void chaos_account_told(struct chaos *c, const struct world_worker *k);
void chaos_account_torn(struct chaos *c, const struct world_worker *k);
void chaos_account_committed(struct chaos *c, uint64_t transfer);

/* chaos_late.c: what only the end of a run makes; each returns when it is over or c->wrong is set.
 */
bool chaos_step(struct chaos *c);
void chaos_wrong(struct chaos *c, const char *why);
/** chaos_transfer - another version, which must commit everywhere before its deadline. */
void chaos_transfer(struct chaos *c);
void chaos_late_message(void *ctx, const struct world_agent *from, const char *to,
	const struct wb_msg_peer *m, const void *data, size_t bytes);
void chaos_late_free(struct chaos *c);
/** chaos_late_frames - what was said under plans that are over comes again while it goes on. */
void chaos_late_frames(struct chaos *c);
/** chaos_half_activated - an engine's workers are restarted, and the operator dies when at least
 *  one of the trainers' agents has taken the new plan's ACTIVATE, for good. */
void chaos_half_activated(struct chaos *c);

#endif
