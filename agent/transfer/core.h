/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_CORE_H
#define WB_TRANSFER_CORE_H
/*
 * The agent's brain: workers, epochs and the state machines of transfers.
 *
 * Events in (a worker's message, a peer's message, a transport or lane event, time), actions out
 * through struct wb_transfer_env.  No sockets, no clock of its own, no threads: the daemon drives
 * it with libuv and TLS, the simulator with a fake clock.  Everything an env function is given is
 * borrowed for the call; env functions must not call back into the core.
 *
 * Roles played for each object (agent/DESIGN.md): the *coordinator* of a transfer, the *lead*
 * of an engine, a *party* (an engine's workers in this agent), the *trainers* of this agent.
 *
 * Threads: loop thread.  Layer: transfer (L3).
 */
#include "flow/flow.h"
#include "lane/area.h"
#include "proto/messages.h"
#include "proto/pollword.h"
#include "transfer/roster.h"

struct wb_transfer_core;
struct wb_err;

/* What is told about a transfer that has begun, or has ended (coordinator), or an engine's end
 * (lead).
 */
struct wb_transfer_report {
	enum wb_report kind; /* STARTED, ENGINE or FINAL */
	const struct wb_epoch_id *epoch;
	const char *object; /* its name */
	uint64_t transfer;
	int64_t version;
	bool is_feed;
	enum wb_result result; /* FINAL */
	uint32_t n_engine; /* STARTED: of a feed the one that is fed, else none */
	const char *const *engine, *const *sentence;
	const enum wb_engine_state *state; /* ends */
	const char *culprit;
	uint64_t begin_wall_ns, end_wall_ns, stall_ns; /* stall: mean of this agent's workers */
	uint64_t bytes[WB_STAGES];
};

/* When workers of this agent stood still for a transfer, and for what; the env's clock. */
struct wb_transfer_times {
	const struct wb_epoch_id *epoch;
	uint64_t transfer;
	int64_t version;
	struct wb_p_worker_report *worker;
	uint32_t n_worker;
};

/* Where, in whose memory, of whom; names are borrowed for the call. */
struct wb_transfer_mismatch {
	const char *place; /* wire, slot, relay, install */
	const char *object, *src, *dst, *param; /* src NULL: a copy of dst's own staging area */
	const struct wb_object_id *id; /* of the object, which counts its transfers */
	uint64_t transfer;
	uint32_t cls, chunk, rail; /* WB_FLOW_NO_RAIL */
	uint32_t n; /* so many at once; the first is described */
};

struct wb_transfer_env {
	void *ctx;
	const struct wb_clock *clock;
	struct wb_xport *xport;
	struct wb_fault *fault; /* borrowed; NULL = none */
	void (*to_worker)(void *ctx, uint32_t worker, uint16_t type, const void *msg);
	/* Send @frame, which is borrowed: @msg in our newest version.  NULL @msg: it goes again. */
	void (*to_peer)(void *ctx, const struct wb_roster *r, uint32_t agent,
		const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes);
	void (*report)(void *ctx, const struct wb_transfer_report *r);
	void (*times)(void *ctx, const struct wb_transfer_times *t); /* may be NULL */
	/* Bytes did not have the trainer's sum, and are asked for again; may be NULL. */
	void (*mismatch)(void *ctx, const struct wb_transfer_mismatch *m);
	/* A mark for the trace: what happened to whom; value is a count or bytes. */
	void (*trace)(
		void *ctx, const char *what, const char *who, uint64_t transfer, uint64_t value);
};

/* Files that outlive this process: the decisions that this agent is a judge of. */
struct wb_transfer_store {
	void *ctx;
	/* Replace what is kept under @name; on return a killed process finds it again.  0 or < 0.
	 */
	int (*save)(void *ctx, const char *name, const void *data, size_t bytes);
	/* Bytes read into @data (<= @cap); 0 = nothing there; < 0: it cannot be known. */
	int64_t (*load)(void *ctx, const char *name, void *data, size_t cap);
};

struct wb_transfer_opts {
	const char *agent; /* this agent's name */
	uint32_t window; /* grants of a pair of workers (flow.h); 0 = as rails ask for */
	uint32_t n_rail; /* that workers without rails of their own have; 0 = 1 */
	const struct wb_transfer_store *store; /* borrowed; NULL = this process is all there is */
	bool is_checked; /* assert all invariants after each event; debug builds do in any case */
	void *arena; /* slots of an object without wb_transfer_set_arena() */
	size_t arena_bytes;
};

/* A worker as attached.  Pointers are borrowed until wb_transfer_detach(). */
/* What a rollout worker that attaches again knows of its updates under earlier agents. */
struct wb_transfer_past {
	uint64_t begun; /* transfer whose END it has not heard; 0 = none */
	int64_t begun_version;
	uint32_t begun_at; /* poll count at which it stopped for it */
	bool is_touched; /* its parameters may have been written in that */
	bool is_torn; /* they are a mix, and it knows */
	uint64_t done; /* last transfer that it saw committed; 0 = none */
	uint32_t done_at;
};

struct wb_transfer_worker {
	uint32_t id; /* the daemon's number, unique for ever */
	const char *object, *engine, *name;
	enum wb_role role;
	const struct wb_manifest *manifest;
	const struct wb_map *map;
	const struct wb_place *place;
	void *const *base;
	struct wb_lane *lane;
	struct wb_poll_page *page; /* rollouts; shared with the worker */
	struct wb_transfer_past past;
};

/** wb_transfer_create - a core without objects; @env is borrowed until wb_transfer_destroy(), @o's
 * name is copied.  0 or -ENOMEM. */
int wb_transfer_create(const struct wb_transfer_opts *o, const struct wb_transfer_env *env,
	struct wb_transfer_core **out, struct wb_err *err);
/** wb_transfer_destroy - only after the transport is closed and the lanes are destroyed: nothing
 * may touch the core's buffers any more.  NULL is allowed. */
void wb_transfer_destroy(struct wb_transfer_core *c);
/** wb_transfer_set_arena - memory for an object's slots, known only when a plan comes; before its
 * wb_transfer_install().  Where it has another size than before, that install cuts the slots anew;
 * until then, and where it fails, all goes on in those that there are.  0 or -ENOSPC. */
int wb_transfer_set_arena(
	struct wb_transfer_core *c, const struct wb_object_id *object, void *arena, size_t bytes);
/** wb_transfer_arena_used - bytes of its arena that an object's slots were cut from; 0 = it has
 * none yet. */
size_t wb_transfer_arena_used(const struct wb_transfer_core *c, const struct wb_object_id *object);

/**
 * wb_transfer_set_image - memory for the snapshots of a trainer worker; before an epoch with staged
 * trainers is installed
 * @base, @bytes: wb_image_bytes() of the plan at least; borrowed until detached and idle
 */
void wb_transfer_set_image(struct wb_transfer_core *c, uint32_t worker, void *base, uint64_t bytes);
/* The staging area of a rollout worker; borrowed until detached and idle. */
struct wb_transfer_area {
	struct wb_area_head *head; /* wb_area_check()ed */
	void *const *base; /* each memory object's shadow, mapped here */
	struct wb_lane *lane; /* of this process: packs and assembles in the area */
};
/** wb_transfer_set_area - before an epoch with staged rollouts is installed; what its head says is
 *  taken up when the epoch becomes active. */
void wb_transfer_set_area(
	struct wb_transfer_core *c, uint32_t worker, const struct wb_transfer_area *a);
/** wb_transfer_is_sending - a transfer of this object's trainers here is under way; a call of
 * theirs that the coordinator has not answered yet is none. */
bool wb_transfer_is_sending(const struct wb_transfer_core *c, const struct wb_object_id *object);
/**
 * wb_transfer_sleep - the worker's memory goes away for a while; its place in the plan stays
 * From now on nothing new uses it: transfers are refused for its engine, by name.  What is under
 * way ends: call wb_transfer_is_quiet() after events.  0; -EBUSY with a sentence when a transfer
 * needs it.
 */
int wb_transfer_sleep(struct wb_transfer_core *c, uint32_t worker, struct wb_err *err);
bool wb_transfer_is_quiet(const struct wb_transfer_core *c, uint32_t worker);
/** wb_transfer_is_asleep - the worker has let its memory go; false for one that is not known. */
bool wb_transfer_is_asleep(const struct wb_transfer_core *c, uint32_t worker);
/**
 * wb_transfer_wake - its memory is there again, perhaps elsewhere
 * @place, @base: as in wb_transfer_attach(); a staging area has been set before
 * @kept: the parameters hold what they held
 */
void wb_transfer_wake(struct wb_transfer_core *c, uint32_t worker, const struct wb_place *place,
	void *const *base, bool kept);
int wb_transfer_attach(
	struct wb_transfer_core *c, const struct wb_transfer_worker *w, struct wb_err *err);
/** wb_transfer_detach - the worker left (@why NULL: by its own wish) or died (a sentence).  Returns
 *  true when nothing uses its memory; else false: call wb_transfer_is_detached() after events. */
bool wb_transfer_detach(struct wb_transfer_core *c, uint32_t worker, const char *why);
bool wb_transfer_is_detached(struct wb_transfer_core *c, uint32_t worker);

/**
 * wb_transfer_install - a plan and its roster arrived
 * @r:	the transport knows its epoch; a reference is kept as long as the core goes by it
 * Returns 0 (say READY); -EBUSY while a transfer is in its way: again later; WB_EPLAN, WB_ESTALE
 * (older term), -ENOENT (a worker that is not here), -EINVAL (buffer), -ENOMEM.
 */
int wb_transfer_install(struct wb_transfer_core *c, struct wb_roster *r, struct wb_err *err);
/** wb_transfer_seen - others have seen transfer numbers up to @transfer; a coordinator here goes on
 * above.
 */
void wb_transfer_seen(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint64_t transfer);
/** wb_transfer_activate - transfers may use the epoch; tells the workers that they are planned. */
int wb_transfer_activate(struct wb_transfer_core *c, const struct wb_epoch_id *id);
/** wb_transfer_feed - lead a feed: bring @engine to what @source_engine (of this agent) holds.  One
 * that cannot begin is reported as ended, too.  0; -ENOENT (no such plan, nothing held),
 * -EAFNOSUPPORT (no address of it can be reached from here), -EBUSY (a feed of an older version is
 * not over), -ENOMEM. */
int wb_transfer_feed(struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t engine,
	uint32_t source_engine, struct wb_err *err);
/** wb_transfer_expect_feed - an engine of this agent must not run before it is fed. */
void wb_transfer_expect_feed(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint32_t engine);

/** wb_transfer_worker_msg - a message of local worker @worker; borrowed.  What a worker of its role
 * may not say changes nothing. */
void wb_transfer_worker_msg(
	struct wb_transfer_core *c, uint32_t worker, uint16_t type, const void *msg);
/** wb_transfer_peer_msg - a message of agent @from of the epoch that its channel proved; what is
 * not the next of its wire, or of an epoch that is not here, changes nothing.  Borrowed. */
void wb_transfer_peer_msg(struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t from,
	const struct wb_msg_peer *msg);
/** wb_transfer_peer_down - the control channel to an agent of an epoch is gone and stays so. */
void wb_transfer_peer_down(
	struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t agent, const char *why);
/** wb_transfer_pump - drain transport and lane events (call when their fds are readable). */
void wb_transfer_pump(struct wb_transfer_core *c);
/** wb_transfer_tick - timers; returns when to call again (ns, the env's clock), 0 = never. */
uint64_t wb_transfer_tick(struct wb_transfer_core *c);

/** wb_transfer_via - transports over which this agent gets bytes of that epoch now, or gives them
 * where it gets none, with commas, into @out, which it returns; "" = none. */
const char *wb_transfer_via(
	const struct wb_transfer_core *c, const struct wb_epoch_id *id, char *out, size_t cap);
/** wb_transfer_violations - messages so far that were not their sender's to say, and were not
 * heard. */
uint64_t wb_transfer_violations(const struct wb_transfer_core *c);
/* For HELLO and status: what a worker's engine holds, the highest transfer and term seen. */
uint64_t wb_transfer_held(const struct wb_transfer_core *c, uint32_t worker, int64_t *version);
/** wb_transfer_highest - greatest number of a transfer that is known here, of @object or (NULL) of
 * all; 0 = none. */
uint64_t wb_transfer_highest(const struct wb_transfer_core *c, const char *object);
/** wb_transfer_running - the newest plan of the object that is active: by wb_transfer_activate(),
 * or by a message of a transfer.  NULL = none; borrowed until the next event. */
struct wb_roster *wb_transfer_running(
	const struct wb_transfer_core *c, const struct wb_object_id *object);
/** wb_transfer_ready - the one that was installed after it, and is not active; as above. */
struct wb_roster *wb_transfer_ready(
	const struct wb_transfer_core *c, const struct wb_object_id *object);
/** wb_transfer_is_busy - a transfer runs here, or a worker waits to be repaired: not the moment to
 *  leave. */
bool wb_transfer_is_busy(const struct wb_transfer_core *c);
/** wb_transfer_let_go - nothing of @object, which was deleted and made again, uses its memory
 * any more.  False: a transfer of it is under way; ask again.  (An engine that is Torn waits for
 * one, and has none.)  @waited_ns: for how long this was asked. */
bool wb_transfer_let_go(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint64_t waited_ns);
struct wb_buf;
/**
 * wb_transfer_digest_json - begin to sum what workers hold, or append the sums
 * @number:	of a run: its sums, or a later one's, once they are there; 0: of the one under way,
 *		or a new one
 * {"done": false, "number": N} says to ask again for N (and to call wb_transfer_tick()).  One run
 * at a time, a fifth of the loop's time at the most, whoever asks how often.
 */
void wb_transfer_digest_json(struct wb_transfer_core *c, uint64_t number, struct wb_buf *out);
/** wb_transfer_torn - name of an engine with workers here whose parameters are a mix of versions,
 * NULL = none.  Borrowed. */
const char *wb_transfer_torn(const struct wb_transfer_core *c);
/**
 * wb_transfer_progress_json - what local worker @worker is at
 * Appends {"transfer", "phase", "inBytes", "inPlannedBytes", "outBytes", "outPlannedBytes",
 * "ageMs", "waitsFor", "waitsWhy"}: bytes of its newest transfer here, the age of that one, and who
 * is waited for, by name, as far as this agent knows; "" = nobody.  null: no plan has the worker.
 */
void wb_transfer_progress_json(
	const struct wb_transfer_core *c, uint32_t worker, struct wb_buf *out);
/** wb_transfer_status_json - append the state of all objects as a JSON array. */
void wb_transfer_status_json(const struct wb_transfer_core *c, struct wb_buf *out);

#endif
