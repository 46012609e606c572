/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_FLEET_H
#define WB_TESTS_FX_FLEET_H
/*
 * The operator as it is shipped (serve and reconcile) in simulated time, under a small world that
 * may go away piece by piece: two trainer agents, up to three engines of one agent, and an API
 * server that has the object and keeps its status.
 *
 * Agents are models: they say what real ones say to an operator, and move fleet_versions among
 * themselves all the time, whether there is an operator or not.  A transfer runs by the plan that
 * the coordinator's core has, which may be that of an object that was deleted.  Time goes by in
 * steps; everything is decided by the seed.
 */
#include "tests/common/fx_serve.h"

#define STEP (250 * WB_NS_PER_MS)
#define AGENTS 6
#define LEASE_NS (10 * S) /* without an API server a leader gives up */
#define TRANSFERS 1024
#define QUEUE 64

enum fleet_who { T0, T1, T2, E0, E1, E2 }; /* T1 or T2: a successor has another name */

/* A plan as an agent knows it; term 0 = none. */
struct fleet_plan {
	uint64_t uid, term, number;
	struct wb_digest digest;
	uint32_t n_worker, index, n_engine;
	char engine[4][8];
	bool has[AGENTS];
};

struct fleet_report {
	uint64_t uid, term, number, transfer, sent_ns;
	int64_t version;
	enum wb_report state;
	enum wb_engine_state engine_state[AGENTS];
	uint32_t who[AGENTS], n;
	bool is_final, is_feed;
	bool is_in_flight; /* said into a connection whose other end hears nothing */
};

struct fleet_agent {
	const char *name, *engine;
	bool is_alive, is_away, is_up, workers_due;
	uint64_t instance;
	uint32_t worker;
	struct wire *wire;
	uint64_t dial_ns, heard_ns, beat_ns, beat_every_ns;
	uint64_t uid, term, term_operator, highest, serial;
	struct fleet_plan running, installed, waiting; /* of object uid */
	struct fleet_plan core; /* what its transfers run by */
	uint64_t held;
	int64_t version;
	struct fleet_report q[QUEUE];
	uint32_t n_q;
};

extern const char *const fleet_names[AGENTS], *const fleet_engines[AGENTS];

extern struct fleet_agent fleet[AGENTS];
extern bool fleet_is_old; /* agents as of before they kept reports until they were heard */

/* What is so, whoever knows it. */
extern struct fleet_run {
	bool runs, is_held; /* held: it ends when the test says so */
	struct fleet_plan plan;
	uint64_t number, coordinator_instance, begin_ns, end_ns, next_ns;
	int64_t version;
	bool in[AGENTS];
	uint64_t in_instance[AGENTS];
} fleet_run;
extern struct fleet_feed {
	uint32_t target, source;
	uint64_t end_ns, target_instance, source_instance; /* 0 = none */
} fleet_feed;
extern struct fleet_moved {
	uint64_t uid, ended_ns; /* uid 0 = never begun */
	bool is_committed;
} fleet_moved[TRANSFERS];
extern int64_t fleet_versions; /* that were sent */

extern struct fleet_api {
	bool exists, is_away;
	uint64_t uid, next_uid, generation, away_ns;
	uint32_t deadline_s; /* of the spec: what is edited */
	json_t *status;
} fleet_api;
extern struct fleet_op {
	bool is_alive, is_wanted;
	uint64_t uid, generation; /* of the object, as it has seen it */
	uint64_t transitions, from_ns, since_ns, looks;
} fleet_op;

/* ---- agents ---- */

/* Below @below, by the seed of fleet_starts(). */
uint64_t fleet_random(uint64_t below);
/* Equal, and @a is a plan. */
bool fleet_same_plan(const struct fleet_plan *a, const struct fleet_plan *b);
/* It runs, and hears and is heard. */
bool fleet_is_here(uint32_t i);
/* Agent @who has this to report; it is kept until the operator has heard it. */
void fleet_report(uint32_t who, struct fleet_report r);
/* What it has installed runs from now on. */
void fleet_activate(struct fleet_agent *a);
/* Its connection is gone, it dials again; nothing when there is none. */
void fleet_lose_wire(struct fleet_agent *a);
/* It hears what came, dials, beats and reports, as its time has come. */
void fleet_agent_step(struct fleet_agent *a);

/* ---- the world around them ---- */

/* A new fleet: the object, the operator, two trainer agents and two engines.  @chance is the seed;
 * @is_old: agents as of before they kept reports. */
void fleet_starts(uint64_t chance, bool is_old);
void fleet_ends(void);
/* A quarter of a second of all; @check looks at each new status. */
void fleet_step(void (*check)(const json_t *status));
/* The trainer agent beside T0. */
uint32_t fleet_second(void);
/* The transfer that runs ends, Aborted also when one of those it began with has gone. */
void end_transfer(bool is_aborted);
void operator_dies(void);
void agent_starts(uint32_t i);
/* @is_orderly: it says DRAIN before. */
void agent_dies(uint32_t i, bool is_orderly);
/* A new object of that name, with a uid of its own. */
void object_is_made(void);

#endif
