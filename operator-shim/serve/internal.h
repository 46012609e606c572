/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SERVE_INTERNAL_H
#define WB_SERVE_INTERNAL_H
/*
 * State of the operator's endpoint, shared by the files of this folder.
 */
#include "base/base.h"
#include "base/dues.h"
#include "base/err.h"
#include "base/log.h"
#include "base/names.h"
#include "operator-shim/reconcile/reconcile.h"
#include "operator-shim/serve/budget.h"
#include "operator-shim/serve/metrics.h"
#include "operator-shim/serve/serve.h"
#include "operator-shim/spec/transport.h"
#include "planner/parts.h"
#include "proto/session.h"

#include <sys/queue.h>

#define MOD "operator"
#define HELLO_DEADLINE_NS (5 * WB_NS_PER_S)
#define CLAIM_DEADLINE_NS (30 * WB_NS_PER_S) /* for us to find out; agents wait less */
#define CONTENT_PART_BYTES (1u << 20)
#define MANIFEST_BYTES_MAX (256u << 20)
#define MAP_BYTES_MAX (1u << 30)
#define UPLOADS_MAX 4096
#define CONTENT_PAGE ((enum wb_content)0) /* of a blob: what readers take; no message has it */
#define FRAME_FREE_BYTES (32u << 10) /* a message of so many is part of what an agent costs */
#define FRAME_WAIT_NS (60 * WB_NS_PER_S)
#define UNASKED_BYTES_MAX (16u << 20) /* agents have so much under way when they hear no more */
#define KEY_BYTES 32
#define XFERS_MAX 16

/* Immutable bytes by digest.  Counted on the loop thread only. */
struct blob {
	uint32_t refs;
	enum wb_content kind;
	struct wb_digest digest;
	uint8_t *data; /* owned */
	size_t bytes;
	bool is_secret; /* wiped when it goes */
	struct wb_plan_slice *slice; /* owned; of a plan as it is kept, packed: head and parts */
	uint32_t n_slice;
	/* Where it is charged; NULL = nowhere. */
	struct wb_budget *budget; /* reference */
	enum wb_budget_kind charged;
	char *account; /* owned */
};

struct upload {
	struct object *o;
	enum wb_content kind;
	struct wb_digest digest;
	uint64_t total_bytes;
	uint8_t *data; /* owned; grows with what has come, never on the sender's word */
	size_t got_bytes, cap;
	bool is_charged; /* total_bytes */
};

/* What a peer says about one object. */
struct joined {
	struct object *o;
	bool is_in;
	struct wb_msg_workers workers; /* last list, owned */
	uint32_t n_charged; /* of them */
};

/* What an agent gets of a plan: two slices of what all are sent from, or for one of version 1 the
 * list of all of it. */
struct share {
	struct blob *of; /* reference; NULL = not made yet */
	struct wb_plan_slice slice[2];
	enum wb_content kind[2];
	uint32_t n;
};

/* A plan on its way to an agent, piece by piece as its connection has room.  One for an object: a
 * newer plan takes the place of what is left of this. */
struct outgo {
	struct object *o;
	struct wb_reconcile_epoch epoch;
	struct share share;
	struct blob *told; /* reference; the body of PLAN, which comes after it */
	uint32_t slice; /* that goes now */
	uint64_t at; /* bytes of it that went */
	struct wb_reconcile_action activate; /* what comes after that, where has_activate */
	bool has_activate;
};

struct peer {
	struct peer *next;
	struct wb_serve *s; /* NULL once serve is gone */
	struct wb_chan *ch;
	struct wb_session session; /* ASKED: its claim is looked at, or is_second */
	bool is_second; /* somebody has its name, and is asked whether it still lives */
	uint32_t id; /* reconcile's agent id */
	struct wb_msg_hello hello; /* owned */
	uint64_t asked_ns; /* whether it lives, for a second one of its name; 0 = not */
	struct joined *joined; /* owned; those it has spoken of */
	size_t n_joined, joined_cap;
	struct upload *upload; /* owned; what was asked for and has not come whole */
	size_t n_upload, upload_cap;
	struct outgo *outgo; /* owned; in the order they go */
	size_t n_outgo, outgo_cap;
	bool is_orderly;
	bool is_let_go; /* by us: it will come back */
	bool was_claimed, is_admitted;
	/* What its token has proved; "" and NULL = nothing. */
	char ns[WB_SPEC_NAMESPACE_MAX + 1];
	char *pod, *pod_uid; /* owned */
	bool is_counted; /* charged as one that has not shown yet who it is */
	uint32_t n_charged; /* of hello.objects, as their agent; of none: 1 */
	uint64_t unasked_bytes;
	uint64_t frame_bytes; /* charged for the message that comes */
	/* While is_waiting: for room for a message of so many bytes; in s->waiting. */
	TAILQ_ENTRY(peer) waiting;
	bool is_waiting;
	uint64_t waits_bytes, waits_since_ns;
};

TAILQ_HEAD(peer_list, peer);

struct epoch_key {
	struct wb_reconcile_epoch epoch;
	uint8_t key[KEY_BYTES];
};

/* The body of PLAN, the same for all agents of an epoch that speak one version. */
struct told_plan {
	struct wb_reconcile_epoch epoch;
	uint64_t last_transfer; /* that it names */
	struct blob *body; /* reference; NULL = none */
};

struct phase {
	char name[32];
	int64_t start_ns, end_ns; /* operator's clock */
};

struct worker_times {
	uint32_t worker; /* plan number */
	uint64_t agent_instance;
	char agent[64], name[WB_RECONCILE_WORKER_MAX + 1];
	int64_t stop_ns, resume_ns; /* operator's clock */
	uint64_t error_ns;
	struct phase *phase; /* owned */
	uint32_t n_phase;
};

struct xfer {
	uint64_t transfer; /* 0 = free */
	int64_t version;
	bool is_final;
	struct wb_reconcile_transfer_report end; /* texts point into the fields below */
	char message[WB_RECONCILE_SENTENCE_MAX], culprit[WBP_NAME_MAX + 1];
	uint64_t bytes[WB_STAGES];
	uint64_t stall_sum_ns, n_stall; /* where only means were reported */
	uint64_t resent, mismatched, error_ns;
	char mismatch[320]; /* the last one, by name */
	struct worker_times *worker; /* owned */
	size_t n_worker, cap;
	uint32_t *place; /* owned; by hash: 1 + the worker's, 0 = free; n_place is a power of 2 */
	size_t n_place;
	struct { /* of those that stopped */
		int64_t first_ns, last_ns;
		uint64_t first_error_ns, last_error_ns, stall_ns, n;
	} sum;
	uint64_t charged; /* bytes, for these */
	bool is_cut; /* there was no room for all */
};

/* What metrics say of one object, or of several together. */
struct figures {
	double state[3], engine[3], worker;
};

struct object {
	struct wb_serve *s;
	size_t at; /* in s->object */
	uint64_t born; /* one more than who came before */
	struct wb_due due; /* when reconcile wants to look */
	TAILQ_ENTRY(object) touched; /* while is_touched: in s->touched */
	TAILQ_ENTRY(object) stale; /* while is_stale: in s->stale */
	TAILQ_ENTRY(object) keeping; /* while n_blob: in s->keeping */
	TAILQ_ENTRY(object) series; /* while has_series: in s->series */
	bool is_touched, is_stale;
	uint64_t looks_told; /* when its last change was told */
	struct figures figures; /* as counted in s->figures */
	struct wb_spec spec;
	char ways[WB_SPEC_WAYS_MAX]; /* of the spec, as WELCOME said them last */
	char key[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2]; /* namespace/name */
	uint64_t uid;
	struct wb_reconcile *r;
	struct epoch_key epoch_key[2]; /* newest first */
	uint32_t job; /* the last one that was started */
	struct blob *plan, *next_plan; /* references; packed */
	struct blob *list; /* reference; next_plan for agents of version 1, NULL = not asked for */
	struct told_plan told_plan[WBP_VERSION_MAX - WBP_VERSION_MIN + 1]; /* by version */
	struct blob *manifest, *next_manifest;
	/* Owned references: what its agents have uploaded.  Digests are no proof against a forger,
	 * so that what one tenant uploads is never another one's map. */
	struct blob **blob;
	size_t n_blob, blob_cap;
	struct xfer xfer[XFERS_MAX]; /* ring */
	unsigned xfer_at;
	bool has_series; /* in metrics; else it is among the others */
};

TAILQ_HEAD(object_list, object);

struct job;

/* A refusal that was logged. */
struct told {
	uint64_t hash, at_ns;
};

/* Lines that others can cause in the log: each kind has a bound, whoever they are. */
enum log_of { LOG_OF_CONNECTIONS, LOG_OF_CLAIMS, LOG_OF_KNOWN, LOG_OF_LEAVING, LOG_OF_N };

struct wb_serve {
	struct wb_serve_env env;
	char name[WBP_NAME_MAX + 1];
	uint64_t operator_id;
	uint64_t created_wall_ns;
	struct object **object; /* owned; in no order */
	size_t n_object, object_cap;
	uint64_t last_born;
	struct wb_names by_key; /* their keys */
	struct object_list touched; /* reconcile may want something */
	struct object_list stale; /* figures are to be counted anew */
	struct object_list keeping; /* have something that agents uploaded */
	struct object_list series; /* have series of their own in metrics */
	struct peer_list waiting; /* for room for a message, the first one first */
	struct wb_dues dues; /* of objects */
	struct figures figures[2]; /* of all objects; of those without series */
	uint64_t settle_ns;
	bool is_open; /* objects come and go: an unknown one may yet come */
	char leader_host[256]; /* agents are sent there; "" = we serve */
	uint16_t leader_port;
	char idle[WBP_TEXT_MAX]; /* why we serve nobody; "" = we do */
	struct peer *peer; /* list */
	uint32_t last_peer_id;
	struct job *job; /* list of running ones */
	struct wb_metrics *metrics;
	unsigned n_series, series_used; /* objects that may have series of their own, that do */
	struct wb_budget *budget; /* reference */
	struct told told[16];
	struct wb_log_bound log_bound[LOG_OF_N];
	bool is_acting, is_draining;
	uint64_t check_ns; /* when peers have to be looked at, at the latest */
};

/* serve.c */
/** wb__serve_now - both clocks, for a report to reconcile. */
struct wb_reconcile_now wb__serve_now(const struct wb_serve *s);
/** wb__serve_object - by "namespace/name", by a name that only one has, or the only one ("" or
 *  NULL).  NULL when it is none or several. */
struct object *wb__serve_object(const struct wb_serve *s, const char *name);
/** wb__serve_object_of - the same for an agent: only what its HELLO named, which is what its token
 *  is for.  NULL when it is none of those. */
struct object *wb__serve_object_of(const struct peer *p, const char *name);
/** wb__serve_n_of, wb__serve_nth_of - the objects that this agent serves: those that its HELLO
 *  named, or all; NULL for one that has gone. */
size_t wb__serve_n_of(const struct peer *p);
struct object *wb__serve_nth_of(const struct peer *p, size_t i);
/** wb__serve_touch - @o's reconcile, to be told something: what it wants then is carried out by the
 *  next wb__serve_act(), which looks at no other object. */
struct wb_reconcile *wb__serve_touch(struct object *o);
/** wb__serve_act - carry out what reconcile wants; call after reports to it. */
void wb__serve_act(struct wb_serve *s);
/** wb__serve_check_by - peers have to be looked at then, or before. */
void wb__serve_check_by(struct wb_serve *s, uint64_t at_ns);
/** wb__serve_heartbeat_timeout_ns - the least of the objects that this agent serves. */
uint64_t wb__serve_heartbeat_timeout_ns(const struct peer *p);

/* peer.c */
/** wb__serve_peer - the connection of an agent that is let in, or NULL. */
struct peer *wb__serve_peer(const struct wb_serve *s, uint32_t id);
/** wb__serve_serves - this object is among those that its HELLO named. */
bool wb__serve_serves(const struct peer *p, const struct object *o);
/** wb__serve_admit - WELCOME, or REJECT when it cannot encrypt what an object of it wants so. */
void wb__serve_admit(struct peer *p);
/** wb__serve_free_peer - free it, its token wiped.  It is in no list and its channel is gone. */
void wb__serve_free_peer(struct peer *p);
/** wb__serve_check_peers - close silent ones; returns when to look again. */
uint64_t wb__serve_check_peers(struct wb_serve *s);

/* refuse.c */
/** wb__serve_reject - REJECT with this sentence, and close.  @retry: it may come again. */
void wb__serve_reject(struct peer *p, int code, bool retry, const char *sentence);
/** wb__serve_turn_away - refuse an agent that may come again.  Objects that it has proved to belong
 *  to say why; a claim that nothing proves is counted under @unproved (static) and logged. */
void wb__serve_turn_away(struct peer *p, enum wb_reconcile_refusal what, int rc,
	const char *sentence, const char *unproved);
/** wb__serve_report_refused - objects that wait for this agent say why it does not come. */
void wb__serve_report_refused(
	struct object *o, struct peer *p, enum wb_reconcile_refusal what, const char *sentence);
/** wb__serve_tell - an event about @o that @p is the cause of; @reason: static. */
void wb__serve_tell(
	const struct object *o, const struct peer *p, const char *reason, const char *sentence);
/** wb__serve_may_log - one more line that others can cause as often as they like; false: there were
 *  enough, it is only counted. */
bool wb__serve_may_log(struct wb_serve *s, enum log_of whose);
/** wb__serve_log_worker - a worker of an agent of @o is refused: a line, where that is news and
 * there were not enough. */
void wb__serve_log_worker(struct wb_serve *s, const struct object *o, const char *sentence);

/* twin.c */
/** wb__serve_let_in - admit @p, once nobody lives who has its name. */
void wb__serve_let_in(struct peer *p);
/** wb__serve_answered - an agent has sent back the time @echo_ns. */
void wb__serve_answered(struct peer *q, uint64_t echo_ns);
/** wb__serve_settle_twins - end who did not answer, let in who waits; returns when to look again.
 */
uint64_t wb__serve_settle_twins(struct wb_serve *s);

/* objects.c */
/** wb__serve_add_object - one more object, from its stored status where there is one; @d is copied.
 *  0, -E2BIG or -ENOMEM. */
int wb__serve_add_object(struct wb_serve *s, const struct wb_serve_object_desc *d);
/** wb__serve_free_object - free it, its keys wiped.  No peer speaks of it any more and no job. */
void wb__serve_free_object(struct object *o);

/* figures.c */
/** wb__serve_name_series - whether @o, which is not in the list yet, has series of its own. */
void wb__serve_name_series(struct wb_serve *s, struct object *o);
/** wb__serve_forget_figures - @o goes. */
void wb__serve_forget_figures(struct wb_serve *s, struct object *o);
/** wb__serve_stale - what metrics say of @o may have changed. */
void wb__serve_stale(struct object *o);
/** wb__serve_count_transfer - one has ended, whoever said so: its coordinator or the engines. */
void wb__serve_count_transfer(struct wb_serve *s, const struct object *o, const char *result);
/** wb__serve_show_seconds - what the last one that succeeded took. */
void wb__serve_show_seconds(struct wb_serve *s, const struct object *o, double seconds);
/** wb__serve_count_bytes - bytes that a stage of a transfer moved, to all and to the object's own.
 *  @stage: a label. */
void wb__serve_count_bytes(
	struct wb_serve *s, const struct object *o, const char *stage, uint64_t bytes);

/* members.c */
/** wb__serve_joined - what the peer has said about @o, or NULL. */
struct joined *wb__serve_joined(const struct peer *p, const struct object *o);
/** wb__serve_join - the same, made when there is none; NULL when memory is short. */
struct joined *wb__serve_join(struct peer *p, struct object *o);
/** wb__serve_free_joined - what it has said, and what that is charged. */
void wb__serve_free_joined(struct wb_serve *s, struct joined *j);
/** wb__serve_on_workers - WORKERS came: the whole list of this agent's workers for one object.
 *  What it holds is taken, @m is empty after; an agent that may not say so is rejected. */
void wb__serve_on_workers(struct peer *p, struct wb_msg_workers *m);
/** wb__serve_leave - the peer has nothing to do with @o any more.  @is_orderly: it said so itself
 *  and is not waited for. */
void wb__serve_leave(struct peer *p, struct object *o, bool is_orderly);

/* content.c */
/** wb__serve_find_blob - what agents have uploaded under this digest, borrowed; NULL = nothing. */
struct blob *wb__serve_find_blob(const struct object *o, struct wb_digest d, enum wb_content kind);
/** wb__serve_forget_blobs - all that agents have uploaded for this object. */
void wb__serve_forget_blobs(struct object *o);
/** wb__serve_blob_put - one reference less; the last one frees it and gives back what it was
 *  charged.  NULL is allowed. */
void wb__serve_blob_put(struct blob *b);
/** wb__serve_blob_get - one more reference; returns @b, which may be NULL. */
struct blob *wb__serve_blob_get(struct blob *b);
/** wb__serve_blob_make - takes @data_take.  NULL when memory is short (then it is freed). */
struct blob *wb__serve_blob_make(
	enum wb_content kind, struct wb_digest d, uint8_t *data_take, size_t bytes);
/** wb__serve_blob_charge - until the last reference goes; 0, -EDQUOT or -ENOMEM with a sentence.
 *  @is_paid: its bytes are charged already. */
int wb__serve_blob_charge(struct wb_serve *s, const struct object *o, struct blob *b, bool is_paid,
	struct wb_err *err);
/** wb__serve_prune - forget what agents of @o have uploaded and no worker and no plan needs any
 *  more. */
void wb__serve_prune(struct object *o);
/** wb__serve_drop_uploads - of one object, or of all (NULL). */
void wb__serve_drop_uploads(struct peer *p, const struct object *o);
/** wb__serve_ask_for - WANT: this agent shall upload that.  Nothing when it does already; closed
 *  when memory is short. */
void wb__serve_ask_for(struct peer *p, struct object *o, struct wb_digest d, enum wb_content kind);
/** wb__serve_on_content - CONTENT came: a part of an upload, checked against its digest when it is
 *  whole.  What nobody asked for, is too large or differs ends in a rejection. */
void wb__serve_on_content(struct peer *p, const struct wb_msg_content *m);

/* charge.c */
/** wb__serve_charge - as wb_budget_charge(), for @o; what is not needed any more makes room first.
 */
int wb__serve_charge(struct wb_serve *s, enum wb_budget_kind kind, const struct object *o,
	uint64_t amount, struct wb_err *err);
/** wb__serve_over - refuse an agent that is over a budget; its objects say so. */
void wb__serve_over(struct peer *p, const struct wb_err *err);
/** wb__serve_count_new - a connection that has said nothing yet; false: there are too many. */
bool wb__serve_count_new(struct peer *p);
/** wb__serve_count_agent - it is let in; false: it was refused. */
bool wb__serve_count_agent(struct peer *p);
/** wb__serve_discount - it is gone. */
void wb__serve_discount(struct peer *p);
/** wb__serve_begin_frame - a message of @bytes begins to come: 0, -EAGAIN: it waits for room, which
 *  ends with wb_chan_resume(); another code: it never has room, its agent was turned away. */
int wb__serve_begin_frame(struct peer *p, uint64_t bytes);
/** wb__serve_end_frame - it has come, or never will: others may have its room. */
void wb__serve_end_frame(struct peer *p);
/** wb__serve_tend_waiting - those that wait hear that we live, and are turned away in the end;
 *  returns when to look again. */
uint64_t wb__serve_tend_waiting(struct wb_serve *s);
/** wb__serve_budget_metrics - what is used, and the bounds. */
void wb__serve_budget_metrics(struct wb_serve *s);

/* plan.c */
/** wb__serve_start_job - compute a plan of the wanted membership as job @number: on another thread,
 *  after those that wait before it.  Its end is reported to reconcile, also a failure to begin,
 *  which is returned, too. */
int wb__serve_start_job(struct wb_serve *s, struct object *o, uint32_t number);
/** wb__serve_start_list - have o->next_plan listed for agents of version 1, on such a thread, too.
 *  wb__serve_listed() tells the end.  Nothing when that is under way; 0 or -ENOMEM. */
int wb__serve_start_list(struct wb_serve *s, struct object *o);
/** wb__serve_forget_jobs - of one object, or of all (NULL): their results are dropped. */
void wb__serve_forget_jobs(struct wb_serve *s, const struct object *o);

/* send.c */
/** wb__serve_send_plan - CONTENT and PLAN of the next epoch, with its key, to the action's agent;
 *  one that is gone gets nothing. */
void wb__serve_send_plan(struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a);
/** wb__serve_forget_told - who is in the plan, or where it is, has changed. */
void wb__serve_forget_told(struct object *o);
/** wb__serve_send_activate - ACTIVATE with the feeds to the action's agent; the plan becomes the
 *  active one here, also when that is gone. */
void wb__serve_send_activate(
	struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a);
/** wb__serve_worker_name - name of the worker with this id, "" when it is not in the list. */
const char *wb__serve_worker_name(const struct wb_msg_workers *w, uint32_t id);
/** wb__serve_fill_object - the spec as WELCOME says it.  Strings are borrowed from @o. */
void wb__serve_fill_object(struct object *o, struct wb_p_object *out);

/* share.c */
/** wb__serve_share - what @p gets of o->next_plan, by its version and its place in the plan.
 *  @out->of is the caller's reference.  The first one of version 1 has the list made, once a plan,
 *  on the planning thread: until then @out->of is NULL, and wb__serve_listed() comes.  0; -ENOENT:
 *  it is not in it; -ENOMEM. */
int wb__serve_share(struct wb_serve *s, struct object *o, const struct peer *p, struct share *out,
	struct wb_err *err);
/** wb__serve_forget_list - next_plan is another one. */
void wb__serve_forget_list(struct object *o);
/** wb__serve_listed - the list of plan @of: agents that wait for it get it.  @list: taken; NULL:
 *  there is none, @rc and @err say why, and those agents are turned away: -EDQUOT: there is no room
 *  for it, or it is longer than such an agent takes.  Of a plan that is not next any more nothing
 *  happens. */
void wb__serve_listed(
	struct object *o, struct wb_digest of, struct blob *list, int rc, const struct wb_err *err);

/* outgo.c */
/** wb__serve_outgo - @share, then PLAN with the body @told, as the connection has room; instead of
 *  what is left of an earlier plan of @o.  References are taken; the share's is handed over.  One
 *  that is not there yet (of NULL) is waited for, and so does what follows it. */
void wb__serve_outgo(struct peer *p, struct object *o, struct wb_reconcile_epoch epoch,
	const struct share *share, struct blob *told);
/** wb__serve_outgo_activate - the plan of that epoch is on its way still: ACTIVATE comes after it;
 *  false: it is not. */
bool wb__serve_outgo_activate(
	struct peer *p, const struct object *o, const struct wb_reconcile_action *a);
/** wb__serve_outgo_waits - it waits for its share of @o's plan. */
bool wb__serve_outgo_waits(const struct peer *p, const struct object *o);
/** wb__serve_outgo_share - that is there now; the reference is handed over. */
void wb__serve_outgo_share(struct peer *p, const struct object *o, const struct share *share);
/** wb__serve_pump - send as much of what is on its way as the connection takes now. */
void wb__serve_pump(struct peer *p);
/** wb__serve_drop_outgo - of one object, or of all (NULL). */
void wb__serve_drop_outgo(struct peer *p, const struct object *o);

/* report.c */
/** wb__serve_on_report - REPORT came: engines, workers, bytes and the end of a transfer, to
 *  reconcile, metrics and trace.  Said again after a reconnection it counts once. */
void wb__serve_on_report(struct peer *p, const struct wb_msg_report *m);
/** wb__serve_free_xfer - free what is kept of a transfer of @o; zeroed, and unused after. */
void wb__serve_free_xfer(struct object *o, struct xfer *x);

#endif
