/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_GATE_H
#define WB_DAEMON_GATE_H
/*
 * Who may read this agent's metrics, with --metrics-auth: an agent may ask the API server nothing,
 * so it asks the operator, over the connection that it has anyway (READER).
 *
 * No answer is remembered here: without the operator nobody may read, and an answer is no older
 * than what the operator says.  Bounded: only a few questions at a time, only so many a second, and
 * each for a few seconds.  Anybody can show made-up tokens.  So no single address can use up all of
 * that, and there are a few more places for tokens that were good before (of which digests are
 * kept, by a key of this run).
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
/** wb__gate_destroy - answer those who still wait that the agent stops, and free it.  NULL is
 * allowed. */
void wb__gate_destroy(struct wb__gate *g);
/** wb__gate_ask - ask whether @token may read.  @held goes on now or later, with a sentence and 0,
 * -EACCES (@token is nobody's), -EPERM (its owner may not read), or what kept us from finding out.
 * @source: where the question came from (wb_http_source), copied. */
void wb__gate_ask(
	struct wb__gate *g, const char *token, const char *source, struct wb_http_held *held);
/** wb__gate_answer - the operator's answer, which came over @l; dropped if the question is not
 * known.  @g NULL: nobody has asked. */
void wb__gate_answer(
	struct wb__gate *g, const struct wb__oplink *l, const struct wb_msg_reader_answer *m);
/** wb__gate_lost - the connection @l is gone, and with it the questions that were asked over it.
 * @g NULL is allowed. */
void wb__gate_lost(struct wb__gate *g, const struct wb__oplink *l);

#endif
