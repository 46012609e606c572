/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_RECONCILE_H
#define WB_TESTS_FX_RECONCILE_H
/*
 * One reconcile under test: reports in short words, actions as text so that a test reads like a
 * log.
 */
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "operator-shim/reconcile/reconcile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S WB_NS_PER_S

extern struct wb_reconcile *r;
extern struct wb_reconcile_now now;

/* A spec of object a, with its other fields as they are by default. */
struct wb_spec spec_of(uint32_t trainers, uint32_t per_engine);
/* Another reconcile in the place of the last one. */
void make(const struct wb_spec *spec, uint64_t id);
/* For two trainer workers and engines of one; with tear_down() a fixture of Check. */
void set_up(void);
void tear_down(void);
/* A digest that is written as @v. */
struct wb_digest dig(unsigned v);
/* Actions since the last call; notices only when asked for. */
const char *did(bool with_notices);
/* Workers, in no plan so far; @map and the manifest, 1, are digests. */
struct wb_reconcile_worker trainer(uint32_t id, int64_t rank, unsigned map);
struct wb_reconcile_worker rollout(uint32_t id, const char *engine, unsigned map);
struct wb_reconcile_agent agent(
	uint32_t id, const char *name, const struct wb_reconcile_worker *w, size_t n);
/* Reports, which must be taken.  Ids are those of agents; an agent's instance is its id. */
void up(struct wb_reconcile_agent a);
/* All workers that the agent has from now on. */
void workers(uint32_t agent_id, const struct wb_reconcile_worker *w, size_t n);
/* Digests @from to @to have arrived whole. */
void blobs(unsigned from, unsigned to);
/* Time passes, and what waits for it is done. */
void later(uint64_t ns);
/* The plan of job @job is there, and is @digest. */
void planned(uint32_t job, unsigned digest);
void ready(uint32_t agent_id, uint64_t term, uint64_t number);
void engine(const char *name, enum wb_engine_state s, uint64_t transfer, bool is_feed);
void transfer(uint64_t t, bool is_end, enum wb_result result);
/* Two trainer workers on agent 1, one-worker engines e1 on agent 2 and e2 on agent 3; active. */
void run_two_engines(void);
/* Status of a condition, "" without one; @reason and @message may be NULL.  Static text. */
const char *cond(const char *type, const char **reason, const char **message);
/* A number in the status, under @a or under @a.@b; -1 = there is none. */
int64_t field(const char *a, const char *b);

#endif
