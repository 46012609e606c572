/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_SERVE_H
#define WB_TESTS_FX_SERVE_H
/*
 * The operator's endpoint with scripted agents: channels in memory, a fake clock, one job by hand.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "operator-shim/serve/serve.h"
#include "proto/messages.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S WB_NS_PER_S

/* One end of a channel in memory: what the operator sends is kept until it is looked at. */
struct wire {
	struct wb_chan ch;
	struct wb_buf out;
	size_t read;
	bool is_closed, is_told;
	bool is_crowded; /* its listener has no room for a claim */
	bool is_slow; /* what is sent stays queued until make_room() */
	size_t queued;
	uint32_t version; /* of the protocol, that its agent speaks; 0 = the newest */
	struct wb_lent lent[8]; /* of what is queued, or was */
	unsigned n_lent; /* not given back */
	int n_resumed; /* times that a message which was put off may come */
	int trust[2]; /* calls */
};

extern struct wb_fake_clock clk;
extern struct wb_serve *s;
extern uint64_t due; /* of the next tick */
/* What serve has begun; job_work NULL = nothing. */
extern void (*job_work)(void *), (*job_done)(void *);
extern void *job_cookie;
extern const char spec_text[]; /* of set_up_serve() */

/* The job that serve began, from its beginning to its end. */
void run_job(void);

/* Wall clock that goes with clk; of any @ctx. */
uint64_t wall(void *ctx);
/* Clock, chance and the job as above: what serve has of all there is outside of it. */
void fill_env(struct wb_serve_env *env);
/* The @n_out objects of a text, which is as it should be; wb_free(). */
struct wb_spec *load_specs(const char *text, size_t *n_out);
/* "namespace/name" of one trainer worker and engines of one; @more of its spec: "" or ", key:
 * value". wb_free(). */
struct wb_spec *object_spec(const char *object, const char *more);
/* The operator is told of an object that is there; @with: all but the spec, which is freed. */
int put_spec(struct wb_spec *spec, struct wb_serve_object_desc with, struct wb_err *err);
/* An operator with these objects; @env: what it has besides the clock, chance and the job. */
void start_serve(struct wb_serve_opts o, struct wb_serve_env env);
/* One object, default/a, of one trainer worker and engines of one. */
void set_up_serve(void);
/* The same, with these budgets; NULL = those of a large machine. */
void set_up_limited_serve(const struct wb_budget_limits *limits);
void tear_down_serve(void);
/* An agent connects; end_wire() also takes what was not looked at. */
void open_wire(struct wire *w);
void end_wire(struct wire *w);
/* All that is queued is given to the system. */
void make_room(struct wire *w);
/* One message of the agent, as it comes over the wire. */
void agent_says(struct wire *w, uint16_t type, const void *msg);
/* Next message of the operator, or WBP_NONE.  Free with wb_msg_free(). */
uint16_t hear(struct wire *w, union wb_msg *m);
/* Skips news of progress. */
void expect(struct wire *w, uint16_t type, union wb_msg *m);
/* There is no other message for it. */
void expect_nothing(struct wire *w);
/* HELLO; the one called train has two addresses. */
void hello(struct wire *w, const char *name, uint64_t instance);

/* ---- two agents of the model that make_model() has made; end_both() frees that ---- */

/* WORKERS: one worker of role 1 (trainer) or 2. */
void say_workers(struct wire *w, uint32_t role, const char *engine);
/* CONTENT, in two parts. */
void content(struct wire *w, uint32_t kind, struct wb_digest d, const struct wb_buf *b);
/* WELCOME of that term is the next message. */
void welcome(struct wire *w, uint64_t term);
/* WANT of that digest alone is the next message. */
void want(struct wire *w, struct wb_digest d);
/* The next messages are its share of a plan: head and part, which belong together, or of version 1
 * the list.  What it has of the plan; wb_plan_destroy().  @head: of PLAN. */
struct wb_plan *hear_share(struct wire *w, struct wb_digest *head);
/* Takes the plan, checks what stands beside it, says READY. */
void take_plan(struct wire *w, uint64_t number);
/* ACTIVATE is the next message. */
void activated(struct wire *w);

extern struct wire train, roll;
extern uint32_t
	roll_version; /* of the protocol, that roll speaks from open_wire() on; 0 = the newest */

/* Two agents, each with a worker, up to the operator's questions for manifest and map. */
void join_both(void);
/* And on to the active plan. */
void run_job_to_active(void);
void end_both(void);
/* Status of object a; a new reference. */
json_t *status(void);
/* "True Ready" or the like; valid until the next call. */
const char *ready_reason(void);

#endif
