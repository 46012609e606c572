/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_MEASURE_H
#define WB_DAEMON_MEASURE_H
/*
 * Measurements from this agent's place to that of another (wbctl bench --to AGENT).
 *
 * Who measures asks two agents.  The one of his own container (wb__measure_ticket(), on its unix
 * socket alone) knows the other by the plan: where it is, by which transport weights would go, and
 * the key of their epoch.  Of that it makes a ticket, which covers every word of the request, and
 * the key of this one measurement.  The other one (wb__measure_ask(), with the ticket) makes the
 * same key of the same words, starts the source as a process of its own, and says where it
 * listens.  No key goes over HTTP.  Whoever repeats a ticket that he has seen on the way is refused
 * once it was used, for as long as it would hold; and a source that it starts gives nobody without
 * the key a byte.
 *
 * Bounds: one source at a time; WB__MEASURE_MEMORY_MAX of memory; 20 seconds to start, five until
 * somebody comes (the source's own, --wait), ten minutes in all; 8 KiB of what it says.  It is a
 * child of this process (net/child.h): it is killed and reaped when the agent drains or stops, and
 * ends by itself when the agent is killed.  While a transfer is under way here none is begun,
 * unless the request says so.
 *
 * Memory: a control group that runs out of it may lose all of its processes at once
 * (memory.oom.group), and the agent with them.  So a source, and the receiver of who asks for a
 * ticket, get half of what the group has left at most, where what this agent's plans have set
 * aside and not written yet counts as taken (wb__staging_due()): a transfer that begins later finds
 * its memory.  The other half is for what nobody can know before: a plan that wants more, and
 * buffers of connections.
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
#define WB__MEASURE_USED_MAX 32
#define WB__MEASURE_HOLDS_S 121 /* a ticket at most, where the clock is as wrong as may be */
#define WB__MEASURE_TEXT 320 /* a request, with the NUL */
#define WB__MEASURE_LIST 4096 /* addresses of rails, with the NUL */

/* ---- what is asked for (measure_request.c; pure) -----------------------------------------------
 */

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
/** wb__measure_left - memory of which a measurement may have half.  @rc, @m: of wb_cgroup_memory();
 *  @due: as wb__staging_due() has it.  UINT64_MAX: there is no limit. */
uint64_t wb__measure_left(int rc, const struct wb_cgroup_memory *m, uint64_t due);
/** wb__measure_room - may a source take @bytes of what is @left?  0; -ENOMEM with a sentence that
 *  says how much there is. */
int wb__measure_room(uint64_t bytes, uint64_t left, struct wb_err *err);
/** wb__measure_landing - the same for a receiver here, whose user has chosen how much. */
int wb__measure_landing(uint64_t bytes, uint64_t left, struct wb_err *err);

/* Tickets that were used, for as long as they hold. */
struct wb__measure_used {
	struct {
		char nonce[WB__MEASURE_NONCE + 1];
		uint64_t at_ns;
	} last[WB__MEASURE_USED_MAX]; /* a ring */
	uint32_t n;
};

/** wb__measure_may_use - 0; -EEXIST: it was used; -EAGAIN: so many were used lately that this one
 *  could not be told from them later. */
int wb__measure_may_use(const struct wb__measure_used *u, const char *nonce, uint64_t now_ns);
/** wb__measure_use - it is used from now on; after wb__measure_may_use(). */
void wb__measure_use(struct wb__measure_used *u, const char *nonce, uint64_t now_ns);
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
 * /bench, and the key
 * Query: bench=AGENT; transport=, rails=, memory=, landing= (bytes that the receiver here takes),
 * encrypt=1, force=1 where they are given.
 * Fills in @r: JSON, or another status and a sentence.
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
