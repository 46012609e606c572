/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_CTL_BENCH_H
#define WB_CTL_BENCH_H
/*
 * wbctl bench: how fast weights could travel from one place to another.
 *
 * Two processes, and no agent: an agent lends neither memory nor time to who only wants to measure.
 * It may start one of them (--to AGENT): the agent of this container says where the other one is,
 * with a ticket and a key, and the other one starts the source as a process of its own
 * (daemon/measure.h).
 * The source (--listen) has memory made for this and answers what is asked of it; the receiver
 * (--to) dials it, goes through the sweep and shows the figures.  Both use the transports of agents
 * (xport/xport.h) as agents do: the receiver asks, sums are taken where agents take them.  They
 * belong to an epoch that exists nowhere else, whose key both must hold before a byte moves.
 *
 * All that they say to each other are chunks.  What is asked for stands in the chunk's class (enum
 * wb__bench_ask); what the source has to tell, in the trailer: four little-endian words.
 *
 *	PLAIN	bytes of the source's memory; nothing in the trailer
 *	SUMMED	the same; both lanes of their sum
 *	FACTS	one byte; WB__BENCH_MAGIC, rails, bytes of memory, nanoseconds of CPU time so far
 *	END	one byte: the receiver is through, and the source may go
 *	READ	WB__BENCH_READS ranges of memory, so that each takes a READ of its own (verbs);
 *		nothing in the trailer
 *
 * Every wait has a deadline (--timeout), and its sentence names who was waited for, and with what.
 * Threads: one, beside the rails of the transport.  Layer: ctl (L4), internal.
 */
#include "ctl/ctl.h"
#include "kernels/kernels.h"
#include "xport/xport.h"

#define WB__BENCH_MAGIC 0x3268636e65626277u /* "wbbench2": another version is another word */
#define WB__BENCH_SOURCE "bench-source"
#define WB__BENCH_RECEIVER "bench-receiver"
#define WB__BENCH_POINTS_MAX 256
#define WB__BENCH_RAILS_MAX WB_XPORT_RAILS_MAX
#define WB__BENCH_ADDR_MAX 256
#define WB__BENCH_SUM_SEED 1
#define WB__BENCH_READS 512u /* of a chunk, one after the other: the one answer weighs little */
#define WB__BENCH_READ_BYTES 64u /* of each */

#define WB__BENCH_MEMCPY_BYTES (32ull << 20) /* of each of two buffers, from one to the other */
#define WB__BENCH_MEMORY (64ull << 20) /* of a source, where --memory says nothing */

enum wb__bench_ask {
	WB__BENCH_PLAIN = 1,
	WB__BENCH_SUMMED,
	WB__BENCH_FACTS,
	WB__BENCH_END,
	WB__BENCH_READ,
};

/* ---- what is to be measured (bench_sweep.c) ------------------------------------------------- */

struct wb__bench_point {
	uint32_t rails, depth; /* depth: chunks asked for and not yet there */
	uint64_t bytes; /* of a chunk */
	bool has_sums;
	bool is_latency; /* small chunks, one at a time: times matter, and no rate */
	/* The same of READs that were granted and answered before: one under way, and the next when
	 * it is over.  depth and bytes are of one READ. */
	bool is_read;
};

struct wb__bench_sweep {
	struct wb__bench_point point[WB__BENCH_POINTS_MAX]; /* those of equal rails in a row */
	uint32_t n;
	uint32_t rails_max, depth_max;
	uint64_t bytes_max; /* of a chunk */
	uint64_t point_ns, latency_ns; /* time for each; those of latency need no more than a second
					*/
};

struct wb__bench_result {
	uint64_t chunks; /* that were counted; is_read: READs */
	double seconds, bytes_per_s;
	/* From asking for a chunk until it is there; is_read: from the landing of one READ to that
	 * of the next. */
	double min_us, median_us, p99_us;
	double cpu_here, cpu_there; /* CPU seconds a GiB */
	/* A GiB, at the receiver: bytes of words, and of verbs work requests, doorbells,
	 * completions. */
	double word_bytes, requests, doorbells, completions;
};

/** wb__bench_sweep - the points that @b asks for.  0; -EINVAL names the option and what it may be.
 */
int wb__bench_sweep(const struct wb__ctl_bench *b, struct wb__bench_sweep *out, struct wb_err *err);
/** wb__bench_is_same_run - are two points measured by one transport? */
bool wb__bench_is_same_run(const struct wb__bench_point *a, const struct wb__bench_point *b);
/** wb__bench_landing - bytes that the receiver needs for the run which begins with point @i: page
 *  for page, no two chunks in one. */
uint64_t wb__bench_landing(const struct wb__bench_sweep *s, uint32_t i);
/** wb__bench_room - bytes that the receiver needs at one time: two runs in a row overlap. */
uint64_t wb__bench_room(const struct wb__bench_sweep *s);
/** wb__bench_point_text - "1 MiB, 16 deep, 2 rails, sums on" into @out; returns it. */
const char *wb__bench_point_text(const struct wb__bench_point *p, char out[static 64]);
/** wb__bench_size_text - "64 B", "1.5 MiB" into @out; returns it. */
const char *wb__bench_size_text(uint64_t bytes, char out[static 32]);
/** wb__bench_point_times - what the times of a point are of: "ask" or "READ". */
const char *wb__bench_point_times(const struct wb__bench_point *p);
/** wb__bench_times - least, middle and 99th percentile of @n times (sorted by this), as
 *  microseconds; all 0 without any. */
void wb__bench_times(uint64_t *ns, size_t n, struct wb__bench_result *out);
/** wb__bench_seconds - an option's seconds, @least to a day, as nanoseconds; @absent where it is
 *  NULL.  0 or -EINVAL. */
int wb__bench_seconds(const char *option, const char *text, double least, double absent,
	uint64_t *ns, struct wb_err *err);
/** wb__bench_memory - bytes of a source, by --memory; left alone without it.  0 or -EINVAL. */
int wb__bench_memory(const struct wb__ctl_bench *b, uint64_t *bytes, struct wb_err *err);
/** wb__bench_transport - which one: --transport, else what the addresses look like. */
const char *wb__bench_transport(const struct wb__ctl_bench *b);
/** wb__bench_rail - address @i (going round) of the list @text as struct wb_xport_rail has it:
 *  without a port that is any, /PATH and @NAME are of shm.  0, -EINVAL. */
int wb__bench_rail(const char *transport, const char *text, uint32_t i,
	char out[static WB__BENCH_ADDR_MAX], struct wb_err *err);
/** wb__bench_endpoint - the first @n addresses (0 = all) of what --to says, as
 *  struct wb_xport_peer has it.  0; -EINVAL: they are of another transport, or too long. */
int wb__bench_endpoint(const char *transport, const char *text, uint32_t n,
	char out[static WB_XPORT_ENDPOINT_MAX], struct wb_err *err);

/* ---- an end (bench_end.c) ------------------------------------------------------------------- */

struct wb__bench_end {
	const char *transport;
	struct wb_xport *x;
	struct wb_fault *fault; /* of WB_FAULT; owned */
	struct wb_xport_epoch epoch; /* holds the key: wiped at close */
	int fd; /* of the memory; owned */
	uint8_t *mem; /* mapped; owned */
	uint64_t bytes, patience_ns;
	bool is_spinning;
	struct wbk_sum_keys keys;
	enum wb_xport_direction what; /* its memory is */
};

/**
 * wb__bench_key - the key of both ends: of --key-file (- = stdin), WEIGHTBRIDGE_BENCH_KEY, or a new
 * one
 * @text:	of a new one, for the other end: 64 hex digits and a NUL; "" where it was given
 * What is kept in @out is derived from it.  0; -EINVAL for the receiver without one; as
 * wb_psk_read().
 */
int wb__bench_key(const struct wb__ctl_bench *b, uint8_t out[static WB_XPORT_KEY_BYTES],
	char text[static 65], struct wb_err *err);
/**
 * wb__bench_open - a transport, which has no memory yet
 * @e:		zeroed, but for its epoch's key and .what; wb__bench_close() also after a failure
 * @addr:	list of addresses, as wb__bench_rail() takes them
 * @reads_max:	as struct wb_xport_opts has it
 * 0, or what the system or the transport says, with a sentence.  Blocks.
 */
int wb__bench_open(struct wb__bench_end *e, const struct wb__ctl_bench *b, const char *addr,
	uint32_t n_rail, uint32_t reads_max, struct wb_err *err);
/** wb__bench_fill - @bytes, filled, which are the transport's source or landing.  Takes a second
 *  for some GiB.  0; negative with a sentence. */
int wb__bench_fill(struct wb__bench_end *e, uint64_t bytes, struct wb_err *err);
/** wb__bench_close - all of it, and the key. */
void wb__bench_close(struct wb__bench_end *e);
/** wb__bench_take - up to @max events, as soon as there is one; 0: none came until @until_ns. */
int wb__bench_take(struct wb__bench_end *e, struct wb_xport_event *ev, int max, uint64_t until_ns);
/** wb__bench_cpu_ns - CPU time of this process so far. */
uint64_t wb__bench_cpu_ns(void);

/* ---- with agents (bench_agent.c) --------------------------------------------------------------
 */

/** wb__bench_is_agent - is it a name of an agent, and no address?  No address is without ':', '/'
 * and
 *  '@'. */
bool wb__bench_is_agent(const char *to);
/** wb__bench_from_agent - have the agent @o->bench.to start a source, and measure from it to here.
 *  0, or negative with a sentence: of this agent, of that one, or of wb__bench_receiver(). */
int wb__bench_from_agent(const struct wb__ctl_opts *o, struct wb_err *err);

/* ---- the two programs ----------------------------------------------------------------------- */

/** wb__bench_source - serve one receiver until it is through.  0; negative: who went away, or did
 *  not come. */
int wb__bench_source(const struct wb__ctl_opts *o, struct wb_err *err);
/** wb__bench_receiver - dial, measure each point of the sweep, and show what came out.  0;
 * negative: who went away at what. */
int wb__bench_receiver(const struct wb__ctl_opts *o, struct wb_err *err);

/* What the receiver has found out; what is shown (bench.c). */
struct wb__bench_sheet {
	const char *transport, *from; /* from: the endpoint */
	const char *agent_here, *agent_there; /* NULL = none takes part */
	bool is_encrypted, is_spinning;
	uint32_t source_rails;
	uint64_t source_bytes;
	double memcpy_bytes_per_s; /* one thread, between two buffers */
	const struct wb__bench_sweep *sweep;
	struct wb__bench_result result[WB__BENCH_POINTS_MAX]; /* by the sweep's points */
};

/** wb__bench_show - to stdout, as a table, JSON or YAML.  0 or -ENOMEM. */
int wb__bench_show(const struct wb__bench_sheet *s, const struct wb__ctl_opts *o);

#endif
