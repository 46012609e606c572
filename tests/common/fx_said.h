/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_SAID_H
#define WB_TESTS_FX_SAID_H
/*
 * One agent of a simulated world at a time, talked to by hand: a message is taken in as if another
 * agent had said it, and what is said to others is noted.  The network stands still meanwhile, so
 * that nobody answers.  Messages carry no number, as those of older agents.
 */
#include "tests/common/world_op.h"

#include "base/base.h"
#include "base/log.h"
#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/internal.h"
#include "transfer/wire.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAID_MAX 4096

static struct world w;
static struct world_op op; /* not alive, unless the test starts it */

/* What was said since forget_said(); no text of it but its sentence. */
static struct said {
	const struct world_agent *from;
	char to[32], sentence[256];
	struct wb_msg_peer m;
} said[SAID_MAX];
static uint32_t n_said;

/* The last report that an agent made of the end of a transfer or an engine. */
static struct {
	bool is_final;
	char state[32], sentence[512];
} told;

static inline void note_said(void *ctx, const struct world_agent *from, const char *to,
	const struct wb_msg_peer *m, const void *data, size_t bytes)
{
	struct said *s = &said[n_said % SAID_MAX];

	(void)ctx;
	(void)data;
	(void)bytes;
	n_said++;
	*s = (struct said){.from = from, .m = *m};
	snprintf(s->to, sizeof(s->to), "%s", to);
	snprintf(s->sentence, sizeof(s->sentence), "%s", m->sentence ? m->sentence : "");
}

static inline void note_report(
	void *ctx, struct world_agent *a, const struct wb_transfer_report *rep)
{
	(void)ctx;
	if (op.alive)
		world_op_report(&op, a, rep);
	if (rep->kind == WB_REPORT_STARTED)
		return;
	told.is_final = rep->kind == WB_REPORT_FINAL;
	snprintf(told.state, sizeof(told.state), "%s",
		rep->n_engine ? wb_word(&wb_engine_state_words, rep->state[0]) : "");
	snprintf(told.sentence, sizeof(told.sentence), "%s", rep->n_engine ? rep->sentence[0] : "");
}

static inline void forget_said(void)
{
	n_said = 0;
	memset(&told, 0, sizeof(told));
}

/* A world whose agents have their plan. */
static inline void begin(const struct world_opts *o)
{
	memset(&op, 0, sizeof(op));
	world_init(&w, o);
	w.watch = (struct world_watch){.message = note_said, .report = note_report};
	world_plan(&w);
	forget_said();
}

static inline void end(void)
{
	op.alive = false;
	w.watch = (struct world_watch){0};
	world_finish(&w);
}

static inline struct object *object_of(uint32_t agent)
{
	return w.agent[agent].core->objects;
}

static inline struct epoch *epoch_of(uint32_t agent)
{
	return object_of(agent)->cur;
}

static inline struct worker *worker_of(uint32_t worker)
{
	const struct world_worker *k = &w.worker[worker];
	struct wb_transfer_core *c = w.agent[k->agent].core;

	for (uint32_t i = 0; i < c->n_worker; i++)
		if (c->worker[i]->w.id == k->id)
			return c->worker[i];
	ck_abort_msg("worker %u is not attached", worker);
}

/* Agent @from says @m, under the plan that is newest at @to. */
static inline void say(uint32_t to, uint32_t from, struct wb_msg_peer m)
{
	struct wb_transfer_core *c = w.agent[to].core;
	const struct wb_roster *r = epoch_of(to)->r;
	uint32_t i = 0;

	while (i < r->n_agent && strcmp(r->agent[i].name, w.agent[from].name) != 0)
		i++;
	wb_transfer_peer_msg(c, &r->id, i, &m);
}

/* A worker's message, taken in at once. */
static inline void worker_says(uint32_t worker, uint16_t type, const void *msg)
{
	wb_transfer_worker_msg(
		w.agent[w.worker[worker].agent].core, w.worker[worker].id, type, msg);
}

/* To an agent another one is gone. */
static inline void is_gone(uint32_t to, uint32_t agent)
{
	const struct epoch *e = epoch_of(to);

	for (uint32_t i = 0; i < e->r->n_agent; i++)
		if (!strcmp(e->r->agent[i].name, w.agent[agent].name))
			wb_transfer_peer_down(w.agent[to].core, &e->r->id, i, "a test says so");
}

/* The last message of this kind; NULL when there is none. */
static inline const struct said *last(uint32_t from, const char *to, uint32_t kind)
{
	for (uint32_t i = WB_MIN(n_said, SAID_MAX); i-- > 0;)
		if (said[i].from == &w.agent[from] && said[i].m.kind == kind &&
			(!to || !strcmp(said[i].to, to)))
			return &said[i];
	return NULL;
}

static inline uint32_t n_times(uint32_t from, const char *to, uint32_t kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < WB_MIN(n_said, SAID_MAX); i++)
		n += said[i].from == &w.agent[from] && said[i].m.kind == kind &&
		     (!to || !strcmp(said[i].to, to));
	return n;
}

/* Event by event until @cond; the test fails when that takes 60 s of the world's time. */
#define RUN_UNTIL(cond)                                                                            \
	do {                                                                                       \
		uint64_t run_until_ = world_now(&w) + 60 * WB_NS_PER_S;                            \
		while (!(cond)) {                                                                  \
			ck_assert_msg(world_now(&w) < run_until_, "never: %s", #cond);             \
			ck_assert(wb_sim_step(w.net));                                             \
		}                                                                                  \
	} while (0)

static inline void commits(int64_t version)
{
	world_send(&w, version);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s: %s", w.last_result, w.last_culprit);
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert_msg(world_holds(&w, &w.worker[i], version), "worker %u: %s; %s", i,
			w.worker[i].why, w.last_culprit);
}

#endif
