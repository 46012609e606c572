/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_TENANTS_H
#define WB_TESTS_FX_TENANTS_H
/*
 * The operator's endpoint of fx_serve with objects of several namespaces, whose owners do not trust
 * each other: evil/a takes what it can get, and victim/v is to notice nothing of it.  One endpoint
 * at a time; nothing here is for threads.  Everything asserts instead of returning errors.
 */
#include "operator-shim/serve/budget.h"
#include "tests/common/fx_serve.h"

#define WIRES 8
#define EVENTS_BYTES 2000

/* Of a test's agents as it likes; 6 and 7 are victim_gets_its_plan()'s. */
extern struct wire wires[WIRES];
/* Events of objects since start_tenants(), "evil/a BudgetExceeded", a line each. */
extern char events[EVENTS_BYTES];

/* ---- the endpoint ---- */

/* An operator without objects, with the budgets of a machine of 1 GiB but for @overrides: values of
 * --budget, with spaces between.  @planning_bytes: what one plan may take; 0 = as by default.  And
 * the bytes of make_model(). */
void start_tenants(const char *overrides, uint64_t planning_bytes);
/* All of that is gone; wires were ended before. */
void finish_tenants(void);
/* WeightTransfer @object, "namespace/name", of one trainer worker and engines of one, is there or
 * has changed.  @more: further fields of its spec, ", key: value".  What the endpoint says: 0 or a
 * negative errno with the sentence in @err. */
int put_object(const char *object, const char *more, struct wb_err *err);
void must_put(const char *object);

/* ---- what agents say ---- */

/* @w is opened, and its agent says HELLO for the one object. */
void hello_of(struct wire *w, const char *agent, const char *object);
/* WORKERS: @n of them, 16 at most, of role 1 (trainer) or 2. */
void workers_of(struct wire *w, const char *object, uint32_t role, struct wb_digest manifest,
	struct wb_digest map, uint32_t n);
/* One agent with the trainer's worker and one with the engine's. */
void join_pair(struct wire *t, struct wire *r, const char *object);
/* CONTENT: @n bytes of @total from @offset on; @kind 1 = the manifest, 2 = a map. */
void content_of(struct wire *w, const char *object, uint32_t kind, struct wb_digest d,
	uint64_t total, uint64_t offset, const void *data, size_t n);
/* The model's manifest and map, whole. */
void upload(struct wire *w, const char *object);

/* ---- what comes of it ---- */

/* WELCOME is the next message. */
void welcomed(struct wire *w);
/* What it hears last is a refusal that says @words; it may come again. */
void refused(struct wire *w, const char *words);
/* A PLAN is among the next messages, and the last that was looked at. */
void gets_plan_of(struct wire *w);
/* From HELLO to the plan, while the attacker is at its bounds. */
void victim_gets_its_plan(void);
/* "Reason: message" of a condition, "" without one; valid until the next call. */
const char *condition_of(const char *object, const char *type);
/* Its reason begins so, and its message has @words in it. */
void condition_says(const char *object, const char *type, const char *reason, const char *words);
/* What all together use, in the unit of that budget. */
uint64_t budget_used(enum wb_budget_kind kind);

#endif
