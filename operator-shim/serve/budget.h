/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SERVE_BUDGET_H
#define WB_SERVE_BUDGET_H
/*
 * How much of the operator one tenant may take.
 *
 * Whatever agents or users can make the operator keep is charged before it is kept: to an account
 * of its object, to one of its namespace and to one for all together; the charge is released when
 * it is freed.  A charge above a budget is refused with a sentence that names the budget, the
 * figures and the remedy; accounts affect each other only because the sum of all is bounded.
 * Defaults are shares of the memory that the operator may use: together they stay below it.
 *
 * Pure accounting: no I/O, clock or thread.  Layer: operator-shim/serve (over base).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;
struct wb_budget; /* opaque */

enum wb_budget_kind {
	WB_BUDGET_OBJECTS, /* WeightTransfers served */
	WB_BUDGET_AGENTS, /* agents that were let in: one for each object of a HELLO */
	/* Connections that have not proved yet who they are; counted only in WB_BUDGET_ALL */
	WB_BUDGET_CONNECTIONS,
	WB_BUDGET_WORKERS, /* workers that agents have named */
	WB_BUDGET_MAPS, /* bytes of manifests and maps: announced or kept */
	WB_BUDGET_PLANS, /* bytes of kept plans */
	WB_BUDGET_FRAMES, /* bytes of messages that have begun to arrive */
	WB_BUDGET_REPORTS, /* bytes kept about transfers that have ended */
	WB_BUDGET_PAGES, /* bytes of pages that are being read */
	WB_BUDGET_PLANNING, /* plans being computed; more wait for their turn */
	WB_BUDGET_KINDS,
};

enum wb_budget_scope { WB_BUDGET_ALL, WB_BUDGET_NAMESPACE, WB_BUDGET_OBJECT, WB_BUDGET_SCOPES };

struct wb_budget_limits {
	uint64_t memory_bytes; /* memory from which the limits were sized; 0 = not known */
	uint64_t planning_bytes; /* memory that the computation of one plan may take */
	uint64_t v[WB_BUDGET_KINDS][WB_BUDGET_SCOPES];
};

/** wb_budget_size - defaults for an operator that may use @memory_bytes. */
void wb_budget_size(uint64_t memory_bytes, struct wb_budget_limits *out);
/**
 * wb_budget_override - take "KIND=ALL[/NAMESPACE[/OBJECT]]": figures, bytes with Ki, Mi, Gi
 * A limit that is left out becomes at most the one before it in the text.  0, or -EINVAL (nothing
 * changed).
 */
int wb_budget_override(struct wb_budget_limits *l, const char *text);
/** wb_budget_name - the kind's word in options and metrics.  Static. */
const char *wb_budget_name(enum wb_budget_kind k);

/** wb_budget_create - 0 or -ENOMEM.  The caller has the first reference. */
int wb_budget_create(const struct wb_budget_limits *l, struct wb_budget **out);
/** wb_budget_get - take one more reference, to be released with wb_budget_put(); returns @b.
 * References are counted by one thread. */
struct wb_budget *wb_budget_get(struct wb_budget *b);
/** wb_budget_put - release a reference; the last one frees @b, even if something is charged.  NULL
 * is allowed. */
void wb_budget_put(struct wb_budget *b);
/** wb_budget_limits - its limits; borrowed. */
const struct wb_budget_limits *wb_budget_limits(const struct wb_budget *b);

/**
 * wb_budget_charge - charge @amount of @kind to @object
 * @object:	"namespace/name"; "" = no object: counts only in WB_BUDGET_ALL
 * Returns 0; -EDQUOT with a sentence; -ENOMEM with one.  On failure nothing is charged.
 */
int wb_budget_charge(struct wb_budget *b, enum wb_budget_kind kind, const char *object,
	uint64_t amount, struct wb_err *err);
/** wb_budget_has_room - whether wb_budget_charge() would succeed. */
bool wb_budget_has_room(
	const struct wb_budget *b, enum wb_budget_kind kind, const char *object, uint64_t amount);
/** wb_budget_release - give back @amount, which was charged before. */
void wb_budget_release(
	struct wb_budget *b, enum wb_budget_kind kind, const char *object, uint64_t amount);

/** wb_budget_most - how much is used in all, and the most that any one namespace or object uses. */
void wb_budget_most(const struct wb_budget *b, uint64_t out[WB_BUDGET_KINDS][WB_BUDGET_SCOPES]);
/** wb_budget_refused - how often a charge was refused because of this scope's limit. */
uint64_t wb_budget_refused(
	const struct wb_budget *b, enum wb_budget_kind kind, enum wb_budget_scope scope);

#endif
