/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_PARTY_H
#define WB_TRANSFER_PARTY_H
/*
 * A party: the workers of one engine in this agent, on their way through a transfer.  Owned by its
 * epoch, one for each engine; takes orders from the engine's lead alone.
 *
 * Invariants: a party that is not NONE has an epoch, a transfer and its engine's lead; a feed is
 * never staged, and a run that is not staged is never CLEARING, STAGED or COPYING; parameters
 * change from MOVING on (staged: from COPYING on), not before; a party in HOOKS or STOPPED knows
 * the target; only a party that has stopped knows that all have.
 */
#include "transfer/flows.h"

enum party_state {
	PARTY_NONE,
	PARTY_CLEARING, /* staged: old readers of the areas finish */
	PARTY_STAGED, /* whole in the areas; the workers run */
	PARTY_STOPPING, /* promised; workers run to the target */
	PARTY_HOOKS, /* all parked; before_update_hook runs */
	PARTY_STOPPED, /* waits for OPEN */
	PARTY_OPENING, /* old readers of the parameters finish */
	PARTY_MOVING, /* into parameters, or areas */
	PARTY_COPYING, /* the workers install */
	PARTY_COMPLETE, /* waits for END */
	PARTY_ENDING, /* after_update_hook runs */
};

struct party {
	enum party_state state;
	struct epoch *e;
	struct wb_flow *flow; /* borrowed (flows.h); NULL = not opened, or gone */
	uint32_t engine, lead, losses;
	uint64_t transfer;
	int64_t version;
	bool is_feed; /* brings what others hold */
	bool is_opened; /* a parameter may have been written */
	bool has_target; /* the common poll is known */
	/* STOPPING: its promise waits until wb__transfer_doubt_asks_late() is false */
	bool owes_promise;
	/* The engine's other parties have stopped, too: their parameters may change. */
	bool knows_all_stopped;
	bool is_staged; /* by areas */
	bool is_decided; /* no hook can stop it any more */
	bool opening; /* sinks are being opened: no conclusions yet */
	uint32_t source_engine, target;
	uint8_t *feed; /* owned: plan workers to fetch from */
	uint64_t deadline_ns, drain_ns;
	/* The lead has a deadline of its own; this one is for a lead that is silent. */
	uint64_t lead_ns;
	/* when its phases began and ended */
	uint64_t begin_ns, open_ns, complete_ns, copy_ns, copied_ns, end_ns;
};

/* PROGRESS.state: how far a party came; on the wire. */
enum progress { PROGRESS_RECEIVED = 1, PROGRESS_COMPLETE, PROGRESS_FAILED, PROGRESS_INSTALLED };

/* party.c */

/** wb__transfer_party_engine_lost - LOST came from the lead: what that engine would have sent comes
 * from others. */
void wb__transfer_party_engine_lost(struct epoch *e, const struct wb_msg_peer *m);
/** wb__transfer_party_worker - a rollout worker has said something. */
void wb__transfer_party_worker(struct worker *w, uint16_t type, const void *msg);
/** wb__transfer_party_worker_lost - the worker left; its run, if it is in one, fails. */
void wb__transfer_party_worker_lost(struct worker *w, const char *why);
/** wb__transfer_party_received - worker @local has what trainers send; @f NULL is allowed. */
void wb__transfer_party_received(struct epoch *e, struct wb_flow *f, uint32_t local);
/** wb__transfer_party_complete - worker @local has everything, verified. */
void wb__transfer_party_complete(struct epoch *e, struct wb_flow *f, uint32_t local);
/** wb__transfer_party_failed - worker @local will not get everything. */
void wb__transfer_party_failed(
	struct epoch *e, struct wb_flow *f, uint32_t local, const struct wb_err *err);
/** wb__transfer_party_fail - tell the lead that this party cannot go on; the end is the lead's to
 * say.
 */
void wb__transfer_party_fail(struct party *p, int code, const char *sentence);
/** wb__transfer_party_refuse - an order @m of the lead @from begins no run here; @sentence says
 * why. */
void wb__transfer_party_refuse(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, int code, char *sentence);
/** wb__transfer_party_begin - begin a run by order @m of @from; the party's run before is over.
 * The caller sets its first state. */
struct party *wb__transfer_party_begin(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, bool is_staged);
/** wb__transfer_party_promise - what the party's promise had to wait for may be over: send it, if
 * so.  Does nothing when no promise is owed. */
void wb__transfer_party_promise(struct party *p);
/** wb__transfer_party_open - nobody reads the memory that changes any more: receive. */
void wb__transfer_party_open(struct party *p);
/** wb__transfer_party_progress - tell the lead how far it came. */
void wb__transfer_party_progress(struct party *p, enum progress what);

/* party_ends.c */

/** wb__transfer_party_failed_end - end the run otherwise than Committed; @m says how, and why. */
void wb__transfer_party_failed_end(struct party *p, const struct wb_msg_peer *m);
/** wb__transfer_party_stop_flow - end what the workers receive: nothing lands any more, and nobody
 * waits for what they never got. */
void wb__transfer_party_stop_flow(struct party *p);
/** wb__transfer_party_lead_down - @agent is gone: parties that it leads end, or are in doubt.
 * Transfers above @upto are not affected. */
void wb__transfer_party_lead_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why);
/** wb__transfer_party_expect_end - an order of the lead begins something: set the time by which it
 * will have said how that ends. */
void wb__transfer_party_expect_end(struct party *p);
/** wb__transfer_party_overtaken - the engine has begun something under the newer plan @e: end its
 * run under the plan before. */
void wb__transfer_party_overtaken(struct epoch *e, uint32_t engine);
/** wb__transfer_party_broken - the run cannot end as it should: it fails, or its workers are in
 * doubt. */
void wb__transfer_party_broken(struct party *p, const char *why);
/** wb__transfer_party_tick - deadlines, and old readers; when to call again, 0 = never. */
uint64_t wb__transfer_party_tick(struct object *o, uint64_t now);

/* stage.c */

/** wb__transfer_party_stage - STAGE: receive into areas beside the running workers. */
void wb__transfer_party_stage(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_party_staged - all is in the areas and verified. */
void wb__transfer_party_staged(struct party *p);
/** wb__transfer_party_restage - STOP came, to install what is staged.  False: that cannot be done,
 * and the lead was told. */
bool wb__transfer_party_restage(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_party_install - INSTALL came: from here on there is only forward. */
void wb__transfer_party_install(struct party *p);
/** wb__transfer_party_copy - nobody reads the parameters any more: the workers install. */
void wb__transfer_party_copy(struct party *p);
/** wb__transfer_party_installed - the worker has installed, or could not. */
void wb__transfer_party_installed(
	struct worker *w, struct party *p, const struct wb_msg_app_installed *m);
/** wb__transfer_party_forget - the transfer was aborted: what areas hold of it does not count any
 * more. */
void wb__transfer_party_forget(struct epoch *e, uint32_t engine, uint64_t transfer);

/* waits.c */

/** wb__transfer_owes - what the party waits for @w to do (@w NULL: the worker is not here), as in
 * "to install"; NULL = nothing.  Static. */
const char *wb__transfer_owes(const struct party *p, const struct worker *w);

/* times.c */

/** wb__transfer_times_party - tell the env when the party's workers stood still, and in which
 * phases. */
void wb__transfer_times_party(struct party *p);

#endif
