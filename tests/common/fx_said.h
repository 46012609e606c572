/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_SAID_H
#define WB_TESTS_FX_SAID_H
/*
 * One agent of a simulated world at a time, talked to by hand: a message is taken in as if another
 * agent had said it, and what is said to others is noted.  The network stands still meanwhile, so
 * that nobody answers.  Messages carry no number, as those of older agents.
 */
#include "tests/common/fx_check.h"
#include "tests/common/world_op.h"

#include "base/base.h"
#include "base/log.h"
#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/internal.h"
#include "transfer/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAID_MAX 4096

extern struct world w;
extern struct world_op op; /* not alive, unless the test starts it */

/* What was said since forget_said(); no text of it but its sentence. */
extern struct said {
	const struct world_agent *from;
	char to[32], sentence[256];
	struct wb_msg_peer m;
} said[SAID_MAX];
extern uint32_t n_said;

/* The last report that an agent made of the end of a transfer or an engine. */
extern struct told {
	bool is_final;
	char state[32], sentence[512];
} told;

/* Nothing was said, and nothing reported, so far. */
void forget_said(void);
/* A world whose agents have their plan. */
void begin(const struct world_opts *o);
/* The world of begin() is gone. */
void end(void);
/* What an agent knows of the one object, of its plan, and of a worker of its own. */
struct object *object_of(uint32_t agent);
struct epoch *epoch_of(uint32_t agent);
struct worker *worker_of(uint32_t worker);
/* Agent @from says @m, under the plan that is newest at @to. */
void say(uint32_t to, uint32_t from, struct wb_msg_peer m);
/* A worker's message, taken in at once. */
void worker_says(uint32_t worker, uint16_t type, const void *msg);
/* To an agent another one is gone. */
void is_gone(uint32_t to, uint32_t agent);
/* The last message of this kind; NULL when there is none. */
const struct said *last(uint32_t from, const char *to, uint32_t kind);
/* How many messages of this kind; to NULL: to whomever. */
uint32_t n_times(uint32_t from, const char *to, uint32_t kind);

/* Event by event until @cond; the test fails when that takes 60 s of the world's time. */
#define RUN_UNTIL(cond)                                                                            \
	do {                                                                                       \
		uint64_t run_until_ = world_now(&w) + 60 * WB_NS_PER_S;                            \
		while (!(cond)) {                                                                  \
			ck_assert_msg(world_now(&w) < run_until_, "never: %s", #cond);             \
			ck_assert(wb_sim_step(w.net));                                             \
		}                                                                                  \
	} while (0)

/* A version is sent, and is in every engine within 20 s of the world's time. */
void commits(int64_t version);

#endif
