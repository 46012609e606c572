/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_GATE_H
#define WB_DAEMON_GATE_H
/*
 * Who may read this agent's metrics, with --metrics-auth: an agent may ask the API server nothing,
 * so it asks the operator, over the connection that it has anyway (READER).
 *
 * No answer is remembered here: without the operator nobody reads, and its word is as young as it
 * says.  Bounded: a few questions at a time, so many a second, and each for a few seconds.  Anybody
 * can show made-up tokens, so no address has all of that, and tokens that were good before are
 * asked about whatever else is (a digest is kept of them, by a key of this run).
 *
 * Invariant: each question ends once, with the answer, its time, its connection or the agent.
 * Threads: the loop's.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb__agent;
struct wb__gate; /* opaque */
struct wb__oplink;
struct wb_http_held;
struct wb_msg_reader_answer;

/** wb__gate_create - 0 or -ENOMEM. */
int wb__gate_create(struct wb__agent *a, struct wb__gate **out);
/** wb__gate_destroy - who still waits hears that the agent stops.  NULL is allowed. */
void wb__gate_destroy(struct wb__gate *g);
/** wb__gate_ask - @held goes on, now or later: with 0, or with -EACCES (@token is of nobody),
 *  -EPERM (its owner may not), or what kept us from finding out; and a sentence.
 *  @source: where it was asked from (wb_http_source), copied. */
void wb__gate_ask(
	struct wb__gate *g, const char *token, const char *source, struct wb_http_held *held);
/** wb__gate_answer - the operator's, which came over @l.  Of an unknown question it is dropped.
 *  @g NULL: nobody has asked. */
void wb__gate_answer(
	struct wb__gate *g, const struct wb__oplink *l, const struct wb_msg_reader_answer *m);
/** wb__gate_lost - the connection @l is gone, and with it what was asked over it.  @g as above. */
void wb__gate_lost(struct wb__gate *g, const struct wb__oplink *l);

#endif
