/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_CTL_H
#define WB_CTL_CTL_H
/*
 * Commands of wbctl.  Each prints to stdout and returns 0, or a negative code and a sentence.
 * Layer: ctl (L4).
 */
#include <stdbool.h>
#include <stdint.h>

struct wb_err;

#define WB_CTL_OPERATOR "127.0.0.1:9402"

/* Of simulate, as they were written; NULL = not given. */
struct wb__ctl_simulate {
	const char *name, *model, *trainer, *rollout;
	const char *engines, *gpus_per_node, *rail_gbit, *pods, *pod_memory;
	const char *staging, *mode, *set; /* of the prediction */
	const char *dump_maps; /* folder */
	bool plan_only;
};

/* Of bench, as they were written; NULL = not given. */
struct wb__ctl_bench {
	const char *transport, *key_file;
	const char *listen, *memory; /* of the source */
	const char *to, *from, *sizes, *depths, *sums, *seconds; /* of the receiver */
	const char *rails, *timeout; /* of both */
	const char *wait; /* of the source: for its receiver */
	const char *parent; /* of the source: the process that has started it */
	bool is_encrypted, is_spinning, is_forced;
	bool is_apart; /* a rail's bytes go by its own device, as those of an agent's --rail */
	uint32_t traffic_class, service_level; /* verbs */
	bool no_windows; /* verbs */
	/* Of --to AGENT, when that is known; NULL = addresses were given. */
	const char *agent_here, *agent_there, *key;
};

struct wb__ctl_opts {
	const char *operator_addr; /* HOST:PORT of the operator's pages; NULL = not given */
	const char
		*agent_addr; /* of an agent's pages, or their socket; several; NULL = not given */
	const char *object; /* NULL = the only one */
	const char *file; /* of a plan, or to inject into; NULL = from the operator, stdin */
	const char *manifest; /* file; NULL = none */
	const char *ns; /* -n: namespace of inject, seconds of top; NULL = not given */
	const char *image; /* of inject; NULL = the default */
	bool asks_for_metrics; /* of inject: for a token */
	const char *token_file; /* shown to an operator; NULL = none */
	const char *tls_addr, *ca_file; /* of check; NULL = TLS is not looked at */
	struct wb__ctl_simulate simulate;
	struct wb__ctl_bench bench;
	const char *html; /* file for a picture instead of text; NULL = none */
	const char *output; /* "wide", "json", "yaml"; NULL = not given */
	bool is_json, is_yaml, is_wide; /* by that; is_json also where it is YAML */
	bool is_watch; /* get: go on, and show what changes */
	const char *interval; /* top: seconds from one table to the next; NULL = not given */
	bool is_once; /* top: one table */
};

/** wb__ctl_get - a line for each object of the operator, or for @o->object alone; as JSON the
 *  object's status, or all.  With @o->is_watch until it fails or is ended. */
int wb__ctl_get(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_describe - an object's status in full.  @o->object NULL: the operator's only one. */
int wb__ctl_describe(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_status - what an agent is at; without an agent's address the same as wb__ctl_get(). */
int wb__ctl_status(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_top - what each worker of the agents in @o->agent_addr (separated by commas; NULL: of
 *  this container's) is at, again and again until it is ended, or once.  Negative when no agent
 *  answers the first time, or one that is asked is none. */
int wb__ctl_top(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_plan_explain - a plan in words: of @o->file and @o->manifest, or else the operator's.
 *  WB_EPLAN or -EINVAL when it is no plan, or not of that manifest. */
int wb__ctl_plan_explain(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_verify - compare content sums of all agents in @o->agent_addr (separated by commas).  A
 *  negative code also when two of them hold different weights. */
int wb__ctl_verify(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_trace - what the agent, or the operator, has recorded of transfers, as a Chrome trace;
 *  an empty one is said on stderr and is no failure. */
int wb__ctl_trace(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_check - is the operator there, ready, and its TLS in order?  A line for each question as
 *  soon as it is answered, up to the first failure. */
int wb__ctl_check(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_doctor - what this machine can do of what objects in @o->file ask for.  -ENODEV names
 *  what is missing. */
int wb__ctl_doctor(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_bench - how fast a transport is from one place to another: one end of a pair, as
 *  @o->bench says (ctl/bench.h), or both ends of two agents' places.  Negative names who did not
 *  come, or went away, and at what. */
int wb__ctl_bench(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_inject - write the Kubernetes documents of @o->file, or stdin, with the agent in each
 *  labelled pod template; how many, on stderr. */
int wb__ctl_inject(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_simulate - plan the deployment that @o->simulate, or the YAML file @o->file, describes,
 *  from its geometry alone, and print what the plan tells, and how long a transfer would take.
 */
int wb__ctl_simulate(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__ctl_bundle - a tar file for support: pages of the operator and the agents, and which could
 *  not be reached.  -ENOENT when none was, -EINVAL when stdout is a terminal. */
int wb__ctl_bundle(const struct wb__ctl_opts *o, struct wb_err *err);

/** wb__ctl_operator - address of the operator: given, $WEIGHTBRIDGE_OPERATOR_HTTP or default. */
const char *wb__ctl_operator(const struct wb__ctl_opts *o);

/**
 * wb__ctl_agent - address of an agent's pages: given, or of the agent whose container this is
 * @text:	for the second
 * NULL when neither.
 */
const char *wb__ctl_agent(const struct wb__ctl_opts *o, char text[static 32]);

#endif
