/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H
/*
 * A small deployment in one thread: production agents (transfer, flow) on simulated nodes, workers
 * with real parameters that poll at random times, a plan, and no operator but the test.
 *
 * A model of a few bf16 matrices; trainers hold row shards, engines column shards (every second
 * tensor transposed), so that every chunk is cut and assembled.  Byte values follow from
 * (checkpoint position, version).
 */
#include "tests/common/sim.h"
#include "transfer/core.h"

#define WORLD_TENSORS 5
#define WORLD_TRUTHS 8
#define WORLD_AGENTS 1024
#define WORLD_ENGINES 1024
#define WORLD_WORKERS 2048

/* Where a worker's process stands; as in the client library (client/update.c). */
enum world_phase {
	WORLD_DOWN, /* no process */
	WORLD_CONNECTING, /* attached or not; connect() has not returned: it does not poll yet */
	WORLD_RUN,
	WORLD_PARKED,
	WORLD_BEFORE, /* before_update_hook runs */
	WORLD_BEGUN, /* its parameters may change, unless staged */
	WORLD_INSTALL, /* it copies its staging area into them */
	WORLD_INSTALLED,
	WORLD_AFTER, /* after_update_hook runs */
	WORLD_TORN,
};

const char *world_phase_name(enum world_phase p);

/* Memory of an attachment, as the transport knows it where it requires regions. */
struct world_regions {
	uint32_t worker, n, id[3]; /* worker: the attachment's number */
};

struct world_worker {
	struct world *world;
	char name[48];
	uint32_t index; /* in world.worker */
	uint32_t agent, tp_rank, tp;
	enum wb_role role;
	uint32_t engine;
	char engine_name[16];
	uint32_t id; /* of its attachment; 0 = not attached */
	uint32_t life; /* processes so far */
	enum world_phase phase;
	bool was_torn, poll_due, hook_raises, is_attaching;
	bool is_slow; /* a test slowed it down */
	uint32_t inside_at; /* the poll that has not returned, while it is parked or in an update */
	uint32_t parked_id, parked_count, begun_at;
	struct wb_transfer_past past; /* begun: it does not know how that ended */
	uint64_t transfer; /* of the update it is in */
	int64_t to_version;
	uint64_t phase_ns, stall_until_ns;
	struct world_line {
		struct world_worker *k;
		struct parcel *first, *last; /* owned, under way */
		uint64_t last_ns;
	} up, down; /* the socket */
	struct wb_map *map;
	uint8_t *memory; /* all parameters, one memory object */
	uint8_t *image; /* room for a snapshot; of its agent */
	uint32_t image_life; /* of the agent whose transport knows it */
	uint8_t *area; /* staging area; of its process */
	struct world_regions regions; /* of its attachment */
	uint64_t area_bytes;
	bool is_staged, is_given_up;
	struct wb_msg_app_begin next_begin; /* came while INSTALL was at work */
	size_t bytes;
	void **base;
	struct wb_place *place;
	struct wb_lane *lane;
	struct wb_poll_page *page;
	uint64_t poll_ns, hook_ns; /* greatest pause between polls, greatest time in a hook */
	/* what happened */
	int64_t version; /* installed */
	uint32_t changed_at; /* poll count of the last change */
	uint32_t n_updates, n_aborted, n_torn;
	bool is_torn_final;
	int send_state; /* enum wb_app_send; 0 = none */
	int64_t send_code;
	uint64_t send_transfer;
	uint64_t before_transfer; /* sent beside this one, which has not ended; 0 = none */
	bool held; /* released, and a hold stands */
	uint64_t send_ns;
	char why[512];
};

/* An agent's own clock: it begins anywhere, runs fast or slow, and may be set forwards. */
struct world_clock {
	struct wb_clock clock;
	const struct wb_sim_net *net;
	uint64_t since_ns, base_ns; /* the net's time, and this clock's then */
	uint32_t ppm; /* its speed; 1000000 = the net's */
};

struct world_agent {
	struct world *world;
	uint32_t index;
	char name[32];
	bool alive;
	bool is_silent; /* stopped for so long that others gave it up */
	uint32_t life; /* processes so far */
	struct wb_transfer_core *core;
	struct wb_transfer_env env;
	struct world_clock clock; /* of its host */
	struct wb_fault *fault; /* owned; NULL = none; before world_init's start or a restart */
	struct wb_xport *xport;
	uint8_t *arena;
	struct wb_transfer_store store;
	uint8_t file[4096]; /* survives the process */
	size_t n_file;
	uint64_t timer, stall_until_ns;
	uint64_t full_until_ns; /* its disk is full */
	char endpoint[WB_XPORT_ENDPOINT_MAX];
	struct world_regions leaving[64]; /* attachments that still are in use */
	uint32_t n_epoch; /* whose keys are good here */
	uint32_t n_leaving;
};

struct world_opts {
	uint64_t seed;
	uint32_t trainer_agents, trainers_per_agent; /* TP = all trainers */
	uint32_t engines, agents_per_engine, workers_per_agent;
	uint32_t scale; /* rows of the matrices, a multiple of 16; 0 = 64 */
	uint32_t chunk_bytes; /* 0 = the planner's choice */
	size_t arena_bytes; /* 0 = 64 chunks */
	uint64_t bytes_per_s; /* of each agent, each way; 0 = 1 GB/s */
	uint64_t poll_ns; /* 0 = 200 us */
	uint64_t hook_ns; /* greatest time in a hook */
	uint64_t socket_ns; /* greatest time of a message to or from a worker; 0 = 5 us, always */
	uint64_t lane_ns; /* greatest time of a lane's job; 0 = it is done when it is submitted */
	bool no_sums; /* spec.checksums off */
	uint32_t rails, rails_min; /* agents have up to so many, of different speed; 0 = 1 */
	bool own_rails; /* each belongs to workers: they go round among them */
	uint32_t xport_caps, piece_bytes; /* as of struct wb_sim_opts */
	bool is_unchecked; /* invariants are not looked at after each event: for benchmarks */
	uint32_t drift; /* polls an engine's worker may be ahead of the slowest; 0 = any, 1 = a
			 * collective in each step */
	bool deaf; /* a worker that waits in its collective does not attach again meanwhile */
	uint64_t step_deadline_ns, transfer_deadline_ns; /* 0 = 5 s, 5 s */
	bool naive; /* agents say the greatest count + 1 and promise nothing: what not to do */
	bool peers_reconnect; /* a broken control pipe between the living loses messages, no more */
	const char *fault; /* WB_FAULT of every agent; NULL = none */
	bool trainer_staged, rollout_staged, all_engines, supersede; /* the object's mode */
	uint32_t agents_per_node; /* that share memory, in the order of plans; 0 = 1 */
	bool one_pod; /* all engines have one agent; agents_per_engine is 1 */
	bool twins; /* rollouts have the first tensor twice */
	uint32_t window; /* grants outstanding from a worker for another; 0 = their own choice */
	uint32_t lane_depth; /* jobs a lane takes at a time; 0 = its own choice */
	bool older_agents; /* they speak version 1, as far as they know of each other */
	bool apart; /* trainers have addresses of both families, engines of one, in turn: those of
		     * one do not reach those of the other */
	bool hold; /* send_weights(hold=True): the test calls world_release() */
	bool keep; /* and the library ends a hold also after the end */
	bool lazy_trainers; /* those whose agent was lost come back when the test calls
			     * world_come_back(): with their next call, as they have no thread */
};

/* A plan and who takes part in it; indices are the world's. */
struct world_epoch {
	struct wb_epoch_id id;
	uint32_t n_agent, n_engine, n_worker;
	uint32_t agent[WORLD_AGENTS], life[WORLD_AGENTS];
	uint32_t engine[WORLD_ENGINES];
	uint32_t worker[WORLD_WORKERS], worker_id[WORLD_WORKERS];
	uint64_t seen; /* highest transfer its operator knew */
	uint8_t *bytes; /* the plan, packed: of each agent the part with its number in agent[] */
	size_t len;
	struct world_epoch *next; /* older */
};

struct world_junk {
	struct world_junk *next;
	struct wb_lane *lane;
	struct wb_poll_page *page;
	void *memory, *base, *area;
};

/* What a test may want to hear of.  Any may be NULL. */
struct world_watch {
	void *ctx;
	void (*phase)(void *ctx, struct world_worker *k, enum world_phase before);
	/* A step of an engine: the worker runs on with what it holds, from poll @count on. */
	void (*serve)(void *ctx, struct world_worker *k, uint32_t count);
	void (*trace)(void *ctx, struct world_agent *a, const char *what, const char *who,
		uint64_t transfer, uint64_t value);
	void (*report)(void *ctx, struct world_agent *a, const struct wb_transfer_report *r);
	void (*send_state)(void *ctx, struct world_worker *k);
	/* A hold that outlasted its transfer has ended. */
	void (*let_go)(void *ctx, struct world_worker *k);
	/* Before it is on its way. */
	void (*message)(void *ctx, const struct world_agent *from, const char *to,
		const struct wb_msg_peer *m, const void *data, size_t bytes);
};

struct world {
	struct world_opts o;
	struct wb_sim_net *net;
	struct wb_manifest *manifest;
	struct {
		int64_t version;
		uint16_t *words; /* owned */
	} truth[WORLD_TRUTHS]; /* the checkpoint at versions that were compared with last */
	uint32_t next_truth;
	struct world_agent *agent; /* owned, as all its workers */
	struct world_worker *worker;
	uint32_t n_agent, n_worker, n_trainer, next_id;
	uint64_t term, number;
	struct world_epoch *epochs; /* newest first */
	struct world_junk *junk;
	struct world_watch watch;
	bool is_tracing;
	uint64_t digest; /* of all that was said and marked so far */
	/* reports of coordinators */
	uint32_t n_final, n_mismatch, n_resent; /* n_resent: chunks asked for again */
	uint64_t n_slow_job; /* of lanes that take time */
	uint32_t n_unsaved; /* files that a full disk did not take */
	uint64_t n_overtaken; /* messages of workers that came before one sent earlier */
	uint64_t arrived_sent_ns; /* when the last sent of those that came was sent */
	uint64_t last_transfer;
	char last_result[32], last_culprit[1024];
	uint64_t violations; /* that agents which are gone had counted */
	char wrong[160]; /* what must not be, and a world sees by itself; "" = nothing */
};

extern const struct wb_object_id world_object;

void world_init(struct world *w, const struct world_opts *o);
void world_finish(struct world *w);
/** world_violations - messages so far that were not their sender's to say. */
uint64_t world_violations(const struct world *w);
/** world_plan - plan over all live workers, install and activate everywhere; new epoch. */
void world_plan(struct world *w);
/** world_send - every trainer writes @version into its parameters and calls send_weights. */
void world_send(struct world *w, int64_t version);
/** world_release - every trainer that holds ends its hold. */
void world_release(struct world *w);
/** world_release_one - that one does, if it holds; `held` says when nobody reads any more. */
void world_release_one(struct world_worker *k);
/** world_run - until every trainer's send is final, or @limit_ns of simulated time passed. */
bool world_run(struct world *w, uint64_t limit_ns);
/** world_run_for - just let time pass. */
void world_run_for(struct world *w, uint64_t ns);
uint64_t world_now(const struct world *w);
/** world_kill_agent - SIGKILL to the agent and, with @pod, to the workers of its pod; those that
 *  survive attach again when it is back. */
void world_kill_agent(struct world *w, uint32_t agent);
void world_kill_agent_only(struct world *w, uint32_t agent);
void world_kill_worker(struct world *w, uint32_t worker);
/** world_end_worker - its process ends; @why NULL: it has said so. */
void world_end_worker(struct world *w, uint32_t worker, const char *why);
/** world_come_back - one that lost its agent attaches to the next, when that is there. */
void world_come_back(struct world_worker *k);
/** world_start_agent - a killed agent comes back, without its dead workers. */
void world_start_agent(struct world *w, uint32_t agent);
/** world_start_worker - a new process with zeroed parameters, attached when its agent is there. */
void world_start_worker(struct world *w, uint32_t worker);
/** world_stall_agent - SIGSTOP for @ns; others give it up when that is long. */
void world_stall_agent(struct world *w, uint32_t agent, uint64_t ns);
/** world_fill_disk - what the agent would keep cannot be written for @ns. */
void world_fill_disk(struct world *w, uint32_t agent, uint64_t ns);
/** world_set_clock - the agent's clock goes @ns forwards, and on at @ppm millionths of the net's
 *  speed. */
void world_set_clock(struct world *w, uint32_t agent, uint64_t ns, uint32_t ppm);
/** world_restart - a killed agent and its dead workers come back, those with zeroed parameters. */
void world_restart(struct world *w, uint32_t agent);
/** world_epoch_make - plan over the workers that are attached, of engines that are complete; NULL:
 *  not all trainers are there, or no engine.  The world keeps it. */
struct world_epoch *world_epoch_make(struct world *w);
/** world_epoch_install - wb_transfer_install() of it at an agent. */
int world_epoch_install(
	struct world *w, const struct world_epoch *e, uint32_t agent, struct wb_err *err);
/** world_member - does the agent take part; its number there or -1. */
int world_epoch_agent(const struct world_epoch *e, uint32_t agent);
int world_epoch_engine(const struct world_epoch *e, uint32_t engine);
/** world_is_seen - the operator knows the worker as attached. */
bool world_is_seen(const struct world *w, const struct world_worker *k);
/** world_make_map - give a new worker its source map and the bytes of its parameters. */
void world_make_map(struct world_worker *k);
/** world_fill - write @version (< 0: zeroes) into a worker's parameters. */
void world_fill(struct world_worker *k, int64_t version);
/** world_send_one - one trainer calls send_weights with what it has. */
void world_send_one(struct world_worker *k, int64_t version);
/** world_after - let an agent go on after a call into its core. */
void world_after(struct world_agent *a);
/** world_note - add to the digest of the run. */
void world_note(struct world *w, const void *data, size_t bytes);

/* world.c and world_worker.c to each other */
void world_worker_create(struct world *w, uint32_t agent, enum wb_role role, uint32_t engine,
	uint32_t tp, uint32_t rank);
void world_worker_destroy(struct world_worker *k);
void world_worker_attach(struct world_worker *k);
void world_worker_agent_lost(struct world_worker *k);
/** world_lane_create - for a worker of @a: an inline one, or one that takes opts.lane_ns. */
struct wb_lane *world_lane_create(struct world_agent *a);
/** world_lane_is_busy - it will write, or read, what it was told to already. */
bool world_lane_is_busy(const struct wb_lane *l);
/** world_region_add, world_regions_remove - where the transport requires regions: memory is one,
 *  and not any more: what the core has let go of nothing may use. */
void world_region_add(struct world_agent *a, struct world_regions *r, void *base, size_t bytes);
void world_regions_remove(struct world_agent *a, const struct world_regions *r);
void world_to_worker(struct world_agent *a, uint32_t id, uint16_t type, const void *msg);
void world_must(int rc, const struct wb_err *err);

/** world_holds - every byte of the worker's parameters is that of @version. */
bool world_holds(const struct world *w, const struct world_worker *k, int64_t version);
/** world_agent_of_engine - the agent of its first worker, which leads it. */
uint32_t world_agent_of_engine(const struct world *w, uint32_t engine);

#endif
