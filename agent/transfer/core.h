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

/* What the coordinator reports when a transfer begins and when it ends, and a lead when its engine
 * ends. */
struct wb_transfer_report {
	enum wb_report kind; /* STARTED, ENGINE or FINAL */
	const struct wb_epoch_id *epoch;
	const char *object; /* its name */
	uint64_t transfer;
	int64_t version;
	bool is_feed;
	enum wb_result result; /* FINAL only */
	uint32_t n_engine; /* STARTED: 1 (the engine that is fed) for a feed, else 0 */
	const char *const *engine, *const *sentence;
	const enum wb_engine_state *state; /* ENGINE and FINAL only, as sentence */
	const char *culprit;
	/* stall_ns: mean over the rollout workers of these engines */
	uint64_t begin_wall_ns, end_wall_ns, stall_ns;
	uint64_t bytes[WB_STAGES];
};

/* When each worker of this agent stood still for a transfer, and in which phases; times of the
 * env's clock. */
struct wb_transfer_times {
	const struct wb_epoch_id *epoch;
	uint64_t transfer;
	int64_t version;
	struct wb_p_worker_report *worker;
	uint32_t n_worker;
};

/* Bytes whose sum was wrong: where they were found, in the memory of worker dst; worker src had
 * sent them.  Names are borrowed for the call. */
struct wb_transfer_mismatch {
	const char *place; /* wire, slot, relay, install */
	const char *object, *src, *dst, *param; /* src NULL: a copy of dst's own staging area */
	const struct wb_object_id *id; /* of the object; transfer numbers are its own */
	uint64_t transfer;
	uint32_t cls, chunk, rail; /* rail: or WB_FLOW_NO_RAIL */
	uint32_t n; /* how many such chunks at once; the first is described */
};

struct wb_transfer_env {
	void *ctx;
	const struct wb_clock *clock;
	struct wb_xport *xport;
	struct wb_fault *fault; /* borrowed; NULL = none */
	void (*to_worker)(void *ctx, uint32_t worker, uint16_t type, const void *msg);
	/* Send @frame (borrowed), which is @msg in our newest protocol version.  @msg NULL: the
	 * frame was sent before, and goes again. */
	void (*to_peer)(void *ctx, const struct wb_roster *r, uint32_t agent,
		const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes);
	void (*report)(void *ctx, const struct wb_transfer_report *r);
	void (*times)(void *ctx, const struct wb_transfer_times *t); /* may be NULL */
	/* Bytes did not have the trainer's sum; they are asked for again.  May be NULL. */
	void (*mismatch)(void *ctx, const struct wb_transfer_mismatch *m);
	/* A mark for the trace: what happened to whom; value is a count or bytes.  May be NULL. */
	void (*trace)(
		void *ctx, const char *what, const char *who, uint64_t transfer, uint64_t value);
};

/* Files that outlive this process: what this agent has said as a judge (judge.c). */
struct wb_transfer_store {
	void *ctx;
	/* Replace what is kept under @name.  Once it has returned, a process that is killed and
	 * restarted finds the new data.  0 or < 0. */
	int (*save)(void *ctx, const char *name, const void *data, size_t bytes);
	/* Returns how many bytes it read into @data (<= @cap); 0: nothing is kept under @name; < 0:
	 * whether there is something cannot be known. */
	int64_t (*load)(void *ctx, const char *name, void *data, size_t cap);
};

struct wb_transfer_opts {
	const char *agent; /* this agent's name */
	/* Grants a pair of workers may have out (flow.h); 0: by the number of rails. */
	uint32_t window;
	uint32_t n_rail; /* rails that serve workers without rails of their own; 0 = 1 */
	const struct wb_transfer_store *store; /* borrowed; NULL = nothing outlives this process */
	bool is_checked; /* assert all invariants after each event; debug builds do in any case */
	void *arena; /* for slots of an object without wb_transfer_set_arena() */
	size_t arena_bytes;
};

/* What a rollout worker that attaches again knows of its updates under earlier agents. */
struct wb_transfer_past {
	uint64_t begun; /* transfer whose END it has not heard; 0 = none */
	int64_t begun_version;
	uint32_t begun_at; /* poll count at which it stopped for it */
	bool is_touched; /* its parameters may have been written in that update */
	bool is_torn; /* its parameters are a mix of two versions, and it knows that */
	uint64_t done; /* last transfer that it saw committed; 0 = none */
	uint32_t done_at; /* poll count at which it stopped for that one */
};

/* A worker as attached.  Pointers are borrowed until nothing uses the worker's memory any more
 * (wb_transfer_detach(), wb_transfer_is_detached()). */
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
/** wb_transfer_set_arena - give an object memory for its slots.  How much it needs is known only
 * when a plan comes: call this before that plan's wb_transfer_install().  When the size differs
 * from before, that install cuts the slots anew; until then, and when the install fails, the
 * present slots stay in use.  0; -ENOSPC: too many objects. */
int wb_transfer_set_arena(
	struct wb_transfer_core *c, const struct wb_object_id *object, void *arena, size_t bytes);
/** wb_transfer_arena_used - bytes of its arena that an object's slots were cut from; 0 = it has
 * none yet. */
size_t wb_transfer_arena_used(const struct wb_transfer_core *c, const struct wb_object_id *object);

/**
 * wb_transfer_set_image - memory for the snapshots of a trainer worker; before an epoch with staged
 * trainers is installed
 * @bytes: wb_image_bytes() of the plan at least; @base is borrowed until the worker is detached and
 *	idle
 */
void wb_transfer_set_image(struct wb_transfer_core *c, uint32_t worker, void *base, uint64_t bytes);
/* The staging area of a rollout worker; what it points to is borrowed until the worker is detached
 * and idle. */
struct wb_transfer_area {
	struct wb_area_head *head; /* wb_area_check()ed */
	void *const *base; /* each memory object's shadow, mapped here */
	struct wb_lane *lane; /* of this process: packs and assembles in the area */
};
/** wb_transfer_set_area - before an epoch with staged rollouts is installed.  What the head of the
 * area says is taken up when the epoch becomes active.  @a is copied. */
void wb_transfer_set_area(
	struct wb_transfer_core *c, uint32_t worker, const struct wb_transfer_area *a);
/** wb_transfer_is_sending - is a transfer under way in which trainer workers of this agent send for
 * the object?  A send_weights call that the coordinator has not answered yet does not count. */
bool wb_transfer_is_sending(const struct wb_transfer_core *c, const struct wb_object_id *object);
/**
 * wb_transfer_sleep - the worker's memory goes away for a while; its place in the plan stays
 * From now on nothing new uses the memory: transfers for its engine are refused with a sentence
 * that names the worker.  What is under way ends: call wb_transfer_is_quiet() after events.
 * Returns 0; -EBUSY with a sentence when a transfer needs the memory; -ENOENT: not attached.
 */
int wb_transfer_sleep(struct wb_transfer_core *c, uint32_t worker, struct wb_err *err);
/** wb_transfer_is_quiet - nothing uses the worker's memory any more; true for one that is not
 * known. */
bool wb_transfer_is_quiet(const struct wb_transfer_core *c, uint32_t worker);
/** wb_transfer_is_asleep - the worker has let its memory go; false for one that is not known. */
bool wb_transfer_is_asleep(const struct wb_transfer_core *c, uint32_t worker);
/**
 * wb_transfer_wake - the worker's memory is there again, perhaps at other addresses
 * @place, @base: as in wb_transfer_attach(); a staging area has been set before
 * @kept: the parameters hold what they held before wb_transfer_sleep()
 */
void wb_transfer_wake(struct wb_transfer_core *c, uint32_t worker, const struct wb_place *place,
	void *const *base, bool kept);
/** wb_transfer_attach - a worker has come; @w itself is copied.  0; -ENOSPC: too many workers;
 * -ENOMEM. */
int wb_transfer_attach(
	struct wb_transfer_core *c, const struct wb_transfer_worker *w, struct wb_err *err);
/** wb_transfer_detach - the worker left (@why NULL: by its own wish) or died (@why: a sentence).
 * True: nothing uses its memory any more; false: call wb_transfer_is_detached() after events until
 * it returns true. */
bool wb_transfer_detach(struct wb_transfer_core *c, uint32_t worker, const char *why);
bool wb_transfer_is_detached(struct wb_transfer_core *c, uint32_t worker);

/**
 * wb_transfer_install - a plan and its roster arrived
 * @r:	the transport knows its epoch; a reference is kept as long as the core uses the epoch
 * Returns 0 (say READY); -EBUSY: a transfer is in the way, call again later; WB_EPLAN, WB_ESTALE
 * (not newer than the newest installed), -ENOENT (a worker that is not here), -EINVAL (the arena is
 * too small), -ENOBUFS (no staging area, or too little memory for a snapshot), -ENOMEM.
 */
int wb_transfer_install(struct wb_transfer_core *c, struct wb_roster *r, struct wb_err *err);
/** wb_transfer_seen - others have seen transfer numbers up to @transfer; a coordinator here numbers
 * the next one above them. */
void wb_transfer_seen(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint64_t transfer);
/** wb_transfer_activate - transfers may use the epoch; tells the workers that they are planned.  0;
 * -ENOENT: no such epoch here. */
int wb_transfer_activate(struct wb_transfer_core *c, const struct wb_epoch_id *id);
/** wb_transfer_feed - lead a feed: bring @engine to what @source_engine (of this agent) holds.  A
 * feed that cannot begin is also reported as ended.  0; -ENOENT (no such plan, nothing held),
 * -EAFNOSUPPORT (no address of @engine can be reached from here), -EBUSY (a feed of an older
 * version is not over), -ENOMEM. */
int wb_transfer_feed(struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t engine,
	uint32_t source_engine, struct wb_err *err);
/** wb_transfer_expect_feed - the workers of @engine (a number of the newest plan) in this agent
 * must not run before they are fed; one that holds a version runs until the feed stops it. */
void wb_transfer_expect_feed(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint32_t engine);

/** wb_transfer_worker_msg - a message of local worker @worker; borrowed.  What a worker of its role
 * may not say changes nothing. */
void wb_transfer_worker_msg(
	struct wb_transfer_core *c, uint32_t worker, uint16_t type, const void *msg);
/** wb_transfer_peer_msg - a message of agent @from of the epoch, both of which its channel proved.
 * One that is not the next on its wire, or is of an epoch that is not here, is not acted on.  @msg
 * is borrowed. */
void wb_transfer_peer_msg(struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t from,
	const struct wb_msg_peer *msg);
/** wb_transfer_peer_down - the control channel to an agent of an epoch is gone and stays so. */
void wb_transfer_peer_down(
	struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t agent, const char *why);
/** wb_transfer_pump - drain transport and lane events (call when their fds are readable). */
void wb_transfer_pump(struct wb_transfer_core *c);
/** wb_transfer_tick - timers; returns when to call again (ns, the env's clock), 0 = never. */
uint64_t wb_transfer_tick(struct wb_transfer_core *c);

/** wb_transfer_via - write the names of transports to @out, with commas: those over which this
 * agent gets bytes of the epoch now, or, where it gets none, gives them; "" = none.  Returns
 * @out. */
const char *wb_transfer_via(
	const struct wb_transfer_core *c, const struct wb_epoch_id *id, char *out, size_t cap);
/** wb_transfer_violations - how many messages so far were ignored because their sender may not send
 * them. */
uint64_t wb_transfer_violations(const struct wb_transfer_core *c);
/** wb_transfer_held - transfer that the worker holds; @version: its version.  0 and -1 = none. */
uint64_t wb_transfer_held(const struct wb_transfer_core *c, uint32_t worker, int64_t *version);
/** wb_transfer_highest - greatest number of a transfer that is known here, of @object or (NULL) of
 * all; 0 = none. */
uint64_t wb_transfer_highest(const struct wb_transfer_core *c, const char *object);
/** wb_transfer_running - the object's newest plan that is active, by wb_transfer_activate() or by a
 * message of a transfer.  NULL = none; borrowed until the next event. */
struct wb_roster *wb_transfer_running(
	const struct wb_transfer_core *c, const struct wb_object_id *object);
/** wb_transfer_ready - the object's newest plan, while it is not active yet; NULL = there is no
 * such plan.  Borrowed until the next event. */
struct wb_roster *wb_transfer_ready(
	const struct wb_transfer_core *c, const struct wb_object_id *object);
/** wb_transfer_is_busy - a transfer runs here, or a worker waits to be repaired: the agent should
 * not leave now. */
bool wb_transfer_is_busy(const struct wb_transfer_core *c);
/** wb_transfer_let_go - has @object, which was deleted and made again, stopped using its memory?
 * False: a transfer of it is under way; ask again later.  (A Torn engine that waits for a transfer
 * has none under way.)  @waited_ns: how long the caller has been asking. */
bool wb_transfer_let_go(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint64_t waited_ns);
struct wb_buf;
/**
 * wb_transfer_digest_json - begin to sum what workers hold, or append the sums
 * @number:	of the run whose sums are wanted (those of a later run will do); 0: of the run under
 *		way, or of a new one
 * While the sums are not there, appends {"done": false, "number": N}: call wb_transfer_tick(), and
 * ask again for N.  There is one run at a time, and it takes a fifth of the loop's time at most,
 * however often this is called.
 */
void wb_transfer_digest_json(struct wb_transfer_core *c, uint64_t number, struct wb_buf *out);
/** wb_transfer_torn - name of an engine with workers here whose parameters are a mix of versions,
 * NULL = none.  Borrowed. */
const char *wb_transfer_torn(const struct wb_transfer_core *c);
/**
 * wb_transfer_progress_json - how far worker @worker of this agent is
 * Appends {"transfer", "phase", "inBytes", "inPlannedBytes", "outBytes", "outPlannedBytes",
 * "ageMs", "waitsFor", "waitsWhy"}: bytes and age of its newest transfer here, and the name of who
 * is waited for, as far as this agent knows ("" = nobody).  Appends null when no plan has the
 * worker.
 */
void wb_transfer_progress_json(
	const struct wb_transfer_core *c, uint32_t worker, struct wb_buf *out);
/** wb_transfer_status_json - append the state of all objects as a JSON array. */
void wb_transfer_status_json(const struct wb_transfer_core *c, struct wb_buf *out);

#endif
