/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_BENCH_H
#define WB_DAEMON_BENCH_H
/*
 * Measurements from this agent's place to that of another (wbctl bench --to AGENT).
 *
 * Who measures asks two agents.  The one of his own container (wb__measure_ticket(), on its unix
 * socket alone) knows the other by the plan: where it is, by which transport weights would go, and
 * the key of their epoch.  Of that it makes a ticket, which covers every word of the request, and
 * the key of this one measurement.  The other one (wb__measure_ask(), with the ticket) makes the
 * same key of the same words, starts the source as a process of its own, and says where it
 * listens.  No key goes over HTTP.  Whoever repeats a ticket that he has seen on the way is refused
 * once it was used; and a source that it starts gives nobody without the key a byte.
 *
 * Bounds: one source at a time; WB__MEASURE_MEMORY_MAX of memory, and half of what the control
 * group has left; ten seconds to start, fifteen until somebody comes (the source's own, --wait),
 * ten minutes in all; 8 KiB of what it says.  It is a child of this process (net/child.h): it is
 * killed and reaped when the agent drains or stops, and ends by itself when the agent is killed.
 * While a transfer is under way here none is begun, unless the request says so.
 *
 * Ownership: the agent owns one struct wb__measure, and that owns the child and a request that
 * waits for it.  Errors: sentences for the asker; the log has a line for each beginning and end.
 * Threads: the loop's; starting a program blocks for less than a millisecond as a rule, killing one
 * until it is gone (two seconds at most) when the agent stops.  Layer: daemon (L4).
 */
#include "mem/cgroup.h"
#include "net/http.h"
#include "xport/xport.h"

#include <stdbool.h>
#include <stdint.h>

struct wb__agent;
struct wb__measure;

#define WB__MEASURE_MEMORY_MAX (256ull << 20)
#define WB__MEASURE_MEMORY (64ull << 20) /* where none is asked for */
#define WB__MEASURE_NONCE 32 /* hex digits */
#define WB__MEASURE_TEXT 320 /* a request, with the NUL */
#define WB__MEASURE_LIST 4096 /* addresses of rails, with the NUL */

/* ---- what is asked for (bench_request.c; pure) ----------------------------------------------- */

struct wb__measure_request {
	char nonce[WB__MEASURE_NONCE + 1];
	char transport[8];
	uint32_t rails;
	uint64_t memory;
	bool is_v6, is_encrypted,
		is_forced; /* is_v6: the receiver dials an address of that family */
	char from[WB_XPORT_NAME_MAX],
		to[WB_XPORT_NAME_MAX]; /* who asks, and who is to have the source */
};

/** wb__measure_text - a request as one text: "NONCE/tcp/2/67108864/4e-/r0/t0". */
void wb__measure_text(const struct wb__measure_request *q, char out[static WB__MEASURE_TEXT]);
/** wb__measure_parse - the reverse.  0; -EINVAL: it is none, or of what no agent asks for. */
int wb__measure_parse(const char *text, struct wb__measure_request *out);
/** wb__measure_room - may a source take @bytes?  @rc, @m: of wb_cgroup_memory().  0; -ENOMEM with a
 *  sentence that says how much there is. */
int wb__measure_room(uint64_t bytes, int rc, const struct wb_cgroup_memory *m, struct wb_err *err);
/** wb__measure_rails - this agent's addresses for a transport, one a rail, as wbctl bench takes
 * them; of shm for the source of @q (NULL: for a receiver).  0 or -ENOSPC. */
int wb__measure_rails(const struct wb__agent *a, const char *transport, bool is_v6,
	const struct wb__measure_request *q, char out[static WB__MEASURE_LIST]);

/* ---- the agent's ----------------------------------------------------------------------------- */

/** wb__measure_create - nothing is measured yet.  0 or -ENOMEM; release with
 *  wb__measure_destroy(). */
int wb__measure_create(struct wb__agent *a, struct wb__measure **out);
/** wb__measure_stop - the agent drains: kill the source; none is started any more. */
void wb__measure_stop(struct wb__measure *m);
/** wb__measure_destroy - the same, and wait until it is gone.  After the server has been stopped.
 *  NULL is allowed. */
void wb__measure_destroy(struct wb__measure *m);

/**
 * wb__measure_ticket - for wbctl in this container: where an agent is, a ticket for its page
 * /bench, and the key Query: bench=AGENT; transport=, rails=, memory=, encrypt=1, force=1 where
 *they are given. Fills in @r: JSON, or another status and a sentence.
 */
void wb__measure_ticket(struct wb__measure *m, struct wb_http_request *rq, struct wb_http_reply *r);
/**
 * wb__measure_ask - start a source, for=REQUEST and ticket=TICKET in the query
 * Returns 0 when it listens, and then wb__measure_answer() writes that; -EACCES: @r says why not;
 * -EINPROGRESS: it is being started, and the handler is called again; -ENOMEM.
 */
int wb__measure_ask(struct wb__measure *m, struct wb_http_request *rq, struct wb_http_reply *r);
/** wb__measure_answer - {"agent": NAME, "source": what wbctl bench --listen --json says}. */
void wb__measure_answer(const struct wb__measure *m, struct wb_http_reply *r);

#endif
