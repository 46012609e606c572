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
/* For us to check a claim; agents wait for less time */
#define CLAIM_DEADLINE_NS (30 * WB_NS_PER_S)
#define CONTENT_PART_BYTES (1u << 20)
#define MANIFEST_BYTES_MAX (256u << 20)
#define MAP_BYTES_MAX (1u << 30)
#define UPLOADS_MAX 4096
/* Kind of a blob with a page for readers; no message has it */
#define CONTENT_PAGE ((enum wb_content)0)
/* A message up to this size is not charged: it is part of what an agent costs */
#define FRAME_FREE_BYTES (32u << 10)
#define FRAME_WAIT_NS (60 * WB_NS_PER_S)
/* At most this much is under way from agents that have not yet heard that we want no more */
#define UNASKED_BYTES_MAX (16u << 20)
#define KEY_BYTES 32
#define XFERS_MAX 16

/* Immutable bytes, found by digest.  References are counted on the loop thread only. */
struct blob {
	uint32_t refs;
	enum wb_content kind;
	struct wb_digest digest;
	uint8_t *data; /* owned */
	size_t bytes;
	bool is_secret; /* wiped when it is freed */
	struct wb_plan_slice *slice; /* owned; only for a packed plan: its head and parts */
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
	uint8_t *data; /* owned; grows with the bytes that have come, never on the sender's word */
	size_t got_bytes, cap;
	bool is_charged; /* total_bytes are charged */
};

/* What a peer says about one object. */
struct joined {
	struct object *o;
	bool is_in;
	struct wb_msg_workers workers; /* last list, owned */
	uint32_t n_charged; /* how many of the workers are charged */
};

/* The part of a plan that one agent gets: two slices of the packed plan, which all agents share; an
 * agent of version 1 gets the list of the whole plan. */
struct share {
	struct blob *of; /* reference; NULL = not made yet */
	struct wb_plan_slice slice[2];
	enum wb_content kind[2];
	uint32_t n;
};

/* A plan on its way to an agent, piece by piece as its connection has room.  There is one for each
 * object: a newer plan replaces what is left of an older one. */
struct outgo {
	struct object *o;
	struct wb_reconcile_epoch epoch;
	struct share share;
	struct blob *told; /* reference; the body of PLAN, which is sent after the share */
	uint32_t slice; /* the slice that is being sent */
	uint64_t at; /* bytes of this slice that were sent */
	struct wb_reconcile_action activate; /* sent after PLAN, if has_activate */
	bool has_activate;
};

struct peer {
	struct peer *next;
	struct wb_serve *s; /* NULL once serve is gone */
	struct wb_chan *ch;
	struct wb_session session; /* state ASKED: its claim is being checked, or is_second */
	bool is_second; /* another peer has its name, and was asked whether it is still alive */
	uint32_t id; /* reconcile's agent id */
	struct wb_msg_hello hello; /* owned */
	/* When it was asked whether it is alive, because of a second peer of its name; 0 = not
	 * asked */
	uint64_t asked_ns;
	struct joined *joined; /* owned; the objects that it has reported about */
	size_t n_joined, joined_cap;
	struct upload *upload; /* owned; what it was asked for, and has not come completely */
	size_t n_upload, upload_cap;
	struct outgo *outgo; /* owned; in the order of sending */
	size_t n_outgo, outgo_cap;
	bool is_orderly;
	bool is_let_go; /* we closed it: it will come back */
	bool was_claimed, is_admitted;
	/* What its token has proved; "" and NULL = nothing. */
	char ns[WB_SPEC_NAMESPACE_MAX + 1];
	char *pod, *pod_uid; /* owned */
	bool is_counted; /* charged as one that has not shown yet who it is */
	/* How many of hello.objects it is charged to as their agent; 1 if they are none */
	uint32_t n_charged;
	uint64_t unasked_bytes;
	uint64_t frame_bytes; /* charged for the message that is arriving */
	/* While is_waiting: it waits for room for a message of waits_bytes, and is in
	 * s->waiting. */
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
	uint64_t last_transfer; /* that the body names */
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
	uint64_t stall_sum_ns, n_stall; /* if only means were reported */
	uint64_t resent, mismatched, error_ns;
	char mismatch[320]; /* the last one, by name */
	struct worker_times *worker; /* owned */
	size_t n_worker, cap;
	/* owned; hash table of 1 + the worker's index, 0 = free; n_place is a power of 2 */
	uint32_t *place;
	size_t n_place;
	struct { /* of the workers that stopped */
		int64_t first_ns, last_ns;
		uint64_t first_error_ns, last_error_ns, stall_ns, n;
	} sum;
	uint64_t charged; /* bytes charged for worker[] */
	bool is_cut; /* there was not room for all workers */
};

/* What metrics say of one object, or of several together. */
struct figures {
	double state[3], engine[3], worker;
};

struct object {
	struct wb_serve *s;
	size_t at; /* in s->object */
	uint64_t born; /* one more than the object that came before it */
	struct wb_due due; /* when reconcile wants to look */
	TAILQ_ENTRY(object) touched; /* while is_touched: in s->touched */
	TAILQ_ENTRY(object) stale; /* while is_stale: in s->stale */
	TAILQ_ENTRY(object) keeping; /* while n_blob: in s->keeping */
	TAILQ_ENTRY(object) series; /* while has_series: in s->series */
	bool is_touched, is_stale;
	uint64_t looks_told; /* reconcile's looks when its last change was reported */
	struct figures figures; /* as counted in s->figures */
	struct wb_spec spec;
	char ways[WB_SPEC_WAYS_MAX]; /* transports of the spec, as WELCOME last named them */
	char key[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2]; /* namespace/name */
	uint64_t uid;
	struct wb_reconcile *r;
	struct epoch_key epoch_key[2]; /* newest first */
	uint32_t job; /* the last job that was started */
	struct blob *plan, *next_plan; /* references; packed */
	struct blob *list; /* reference; next_plan for agents of version 1, NULL = not asked for */
	struct told_plan told_plan[WBP_VERSION_MAX - WBP_VERSION_MIN + 1]; /* by version */
	struct blob *manifest, *next_manifest;
	/* Owned references: what its agents have uploaded.  They are kept by object, since digests
	 * are no proof against a forger: what one tenant uploads is never used as another tenant's
	 * map. */
	struct blob **blob;
	size_t n_blob, blob_cap;
	struct xfer xfer[XFERS_MAX]; /* ring */
	unsigned xfer_at;
	/* It has series of its own in metrics; else it is counted among the others */
	bool has_series;
};

TAILQ_HEAD(object_list, object);

struct job;

/* A refusal that was logged. */
struct told {
	uint64_t hash, at_ns;
};

/* Kinds of log lines that others can cause: each kind has a bound for all of them together. */
enum log_of { LOG_OF_CONNECTIONS, LOG_OF_CLAIMS, LOG_OF_KNOWN, LOG_OF_LEAVING, LOG_OF_N };

struct wb_serve {
	struct wb_serve_env env;
	char name[WBP_NAME_MAX + 1];
	uint64_t operator_id;
	uint64_t created_wall_ns;
	struct object **object; /* owned; in no order */
	size_t n_object, object_cap;
	uint64_t last_born;
	struct wb_names by_key; /* objects by their keys */
	struct object_list touched; /* objects whose reconcile may want something */
	struct object_list stale; /* objects whose figures are to be counted anew */
	struct object_list keeping; /* objects for which agents have uploaded something */
	struct object_list series; /* objects that have series of their own in metrics */
	/* Peers that wait for room for a message, in the order in which they came */
	struct peer_list waiting;
	struct wb_dues dues; /* of objects */
	struct figures figures[2]; /* of all objects; of those without series */
	uint64_t settle_ns;
	bool is_open; /* objects come and go: an unknown one may come later */
	char leader_host[256]; /* agents are redirected there; "" = we serve */
	uint16_t leader_port;
	char idle[WBP_TEXT_MAX]; /* why we serve nobody; "" = we do */
	struct peer *peer; /* list */
	uint32_t last_peer_id;
	struct job *job; /* list of running ones */
	struct wb_metrics *metrics;
	/* How many objects may have series of their own; how many have them */
	unsigned n_series, series_used;
	struct wb_budget *budget; /* reference */
	struct told told[16];
	struct wb_log_bound log_bound[LOG_OF_N];
	bool is_acting, is_draining;
	uint64_t check_ns; /* when peers have to be looked at, at the latest */
};

/* serve.c */
/** wb__serve_now - both clocks, for a report to reconcile. */
struct wb_reconcile_now wb__serve_now(const struct wb_serve *s);
/** wb__serve_object - find an object by "namespace/name", by a name that only one has, or the only
 * object ("" or NULL).  NULL when none matches, or several do. */
struct object *wb__serve_object(const struct wb_serve *s, const char *name);
/** wb__serve_object_of - the same for an agent: only the objects that its HELLO named, for which
 * its token is valid.  NULL when it is none of these. */
struct object *wb__serve_object_of(const struct peer *p, const char *name);
/** wb__serve_n_of, wb__serve_nth_of - number of objects that this agent serves, and object @i of
 * these: those that its HELLO named, or all; NULL for one that is gone. */
size_t wb__serve_n_of(const struct peer *p);
struct object *wb__serve_nth_of(const struct peer *p, size_t i);
/** wb__serve_touch - get @o's reconcile, to report something to it: the actions that it wants then
 * are carried out by the next wb__serve_act(), which looks only at touched objects. */
struct wb_reconcile *wb__serve_touch(struct object *o);
/** wb__serve_act - carry out the actions that reconcile wants; call it after reports to
 * reconcile. */
void wb__serve_act(struct wb_serve *s);
/** wb__serve_check_by - peers have to be checked at @at_ns or earlier. */
void wb__serve_check_by(struct wb_serve *s, uint64_t at_ns);
/** wb__serve_heartbeat_timeout_ns - the shortest timeout of the objects that this agent serves. */
uint64_t wb__serve_heartbeat_timeout_ns(const struct peer *p);

/* peer.c */
/** wb__serve_peer - the connection of an agent that is let in, or NULL. */
struct peer *wb__serve_peer(const struct wb_serve *s, uint32_t id);
/** wb__serve_serves - @o is among the objects that the peer's HELLO named. */
bool wb__serve_serves(const struct peer *p, const struct object *o);
/** wb__serve_admit - send WELCOME; or REJECT, when the agent cannot encrypt and an object of it
 * requires that. */
void wb__serve_admit(struct peer *p);
/** wb__serve_free_peer - free it, and wipe its token.  It must be in no list, and its channel must
 * be gone. */
void wb__serve_free_peer(struct peer *p);
/** wb__serve_check_peers - close silent peers; returns when to check again. */
uint64_t wb__serve_check_peers(struct wb_serve *s);

/* refuse.c */
/** wb__serve_reject - send REJECT with this sentence, and close.  @retry: it may come again. */
void wb__serve_reject(struct peer *p, int code, bool retry, const char *sentence);
/** wb__serve_turn_away - refuse an agent that may come again.  The objects that it has proved to
 * belong to report why; a refusal of an unproved claim is counted under @unproved (static), and
 * logged. */
void wb__serve_turn_away(struct peer *p, enum wb_reconcile_refusal what, int rc,
	const char *sentence, const char *unproved);
/** wb__serve_report_refused - let @o, which waits for this agent, report why it does not come. */
void wb__serve_report_refused(
	struct object *o, struct peer *p, enum wb_reconcile_refusal what, const char *sentence);
/** wb__serve_tell - raise an event about @o, caused by @p; @reason: static. */
void wb__serve_tell(
	const struct object *o, const struct peer *p, const char *reason, const char *sentence);
/** wb__serve_may_log - may one more line be logged, of a kind that others can cause as often as
 * they like?  false: there were enough; the line is only counted. */
bool wb__serve_may_log(struct wb_serve *s, enum log_of whose);
/** wb__serve_log_worker - log that a worker of an agent of @o is refused, if this is news and the
 * bound of such lines is not reached. */
void wb__serve_log_worker(struct wb_serve *s, const struct object *o, const char *sentence);

/* twin.c */
/** wb__serve_let_in - admit @p, once no other peer of its name is alive. */
void wb__serve_let_in(struct peer *p);
/** wb__serve_answered - an agent has sent back the time @echo_ns, so it is alive. */
void wb__serve_answered(struct peer *q, uint64_t echo_ns);
/** wb__serve_settle_twins - close peers that did not answer, and let in those that wait for their
 * names; returns when to check again. */
uint64_t wb__serve_settle_twins(struct wb_serve *s);

/* objects.c */
/** wb__serve_add_object - add an object, with its stored status if there is one; @d is copied.  0,
 * -E2BIG or -ENOMEM. */
int wb__serve_add_object(struct wb_serve *s, const struct wb_serve_object_desc *d);
/** wb__serve_free_object - free it, and wipe its keys.  No peer and no job may refer to it any
 * more. */
void wb__serve_free_object(struct object *o);

/* figures.c */
/** wb__serve_name_series - decide whether @o, which is not in the list yet, has series of its
 * own. */
void wb__serve_name_series(struct wb_serve *s, struct object *o);
/** wb__serve_forget_figures - remove the figures of @o, which is being removed. */
void wb__serve_forget_figures(struct wb_serve *s, struct object *o);
/** wb__serve_stale - note that what metrics say about @o may have changed. */
void wb__serve_stale(struct object *o);
/** wb__serve_count_transfer - count a transfer that has ended, as its coordinator or only its
 * engines said. */
void wb__serve_count_transfer(struct wb_serve *s, const struct object *o, const char *result);
/** wb__serve_show_seconds - set how long the last successful transfer of @o took. */
void wb__serve_show_seconds(struct wb_serve *s, const struct object *o, double seconds);
/** wb__serve_count_bytes - add the bytes that a stage of a transfer moved, to the series of all and
 * to those of the object.
 *  @stage: a label. */
void wb__serve_count_bytes(
	struct wb_serve *s, const struct object *o, const char *stage, uint64_t bytes);

/* members.c */
/** wb__serve_joined - what the peer has said about @o, or NULL. */
struct joined *wb__serve_joined(const struct peer *p, const struct object *o);
/** wb__serve_join - the same, made when there is none; NULL when memory is short. */
struct joined *wb__serve_join(struct peer *p, struct object *o);
/** wb__serve_free_joined - free what the peer has said, and release what was charged for it. */
void wb__serve_free_joined(struct wb_serve *s, struct joined *j);
/** wb__serve_on_workers - WORKERS came: the whole list of this agent's workers for one object.  The
 * content of @m is taken, and @m is empty afterwards; an agent that may not send this is
 * rejected. */
void wb__serve_on_workers(struct peer *p, struct wb_msg_workers *m);
/** wb__serve_leave - the peer has nothing to do with @o any more.  @is_orderly: the peer said so
 * itself, and is not waited for. */
void wb__serve_leave(struct peer *p, struct object *o, bool is_orderly);

/* content.c */
/** wb__serve_find_blob - what agents have uploaded under this digest, borrowed; NULL = nothing. */
struct blob *wb__serve_find_blob(const struct object *o, struct wb_digest d, enum wb_content kind);
/** wb__serve_forget_blobs - forget all that agents have uploaded for this object. */
void wb__serve_forget_blobs(struct object *o);
/** wb__serve_blob_put - release a reference; the last one frees the blob and gives back its charge.
 * NULL is allowed. */
void wb__serve_blob_put(struct blob *b);
/** wb__serve_blob_get - take one more reference; returns @b, which may be NULL. */
struct blob *wb__serve_blob_get(struct blob *b);
/** wb__serve_blob_make - make a blob with one reference; @data_take is taken.  NULL when memory is
 * short (then @data_take is freed). */
struct blob *wb__serve_blob_make(
	enum wb_content kind, struct wb_digest d, uint8_t *data_take, size_t bytes);
/** wb__serve_blob_charge - charge the blob's bytes until its last reference is released.  0;
 * -EDQUOT or -ENOMEM with a sentence.  @is_paid: the bytes are charged already. */
int wb__serve_blob_charge(struct wb_serve *s, const struct object *o, struct blob *b, bool is_paid,
	struct wb_err *err);
/** wb__serve_prune - forget uploads of @o's agents that no worker and no plan needs any more. */
void wb__serve_prune(struct object *o);
/** wb__serve_drop_uploads - of one object, or of all (NULL). */
void wb__serve_drop_uploads(struct peer *p, const struct object *o);
/** wb__serve_ask_for - send WANT: this agent shall upload the content.  Does nothing when the agent
 * is doing so already; closes the connection when memory is short. */
void wb__serve_ask_for(struct peer *p, struct object *o, struct wb_digest d, enum wb_content kind);
/** wb__serve_on_content - CONTENT came: a part of an upload, checked against its digest when it is
 * whole.  Content that was not asked for, is too large, or does not match its digest, leads to a
 * rejection. */
void wb__serve_on_content(struct peer *p, const struct wb_msg_content *m);

/* charge.c */
/** wb__serve_charge - as wb_budget_charge(), for @o; first makes room by dropping what is not
 * needed any more. */
int wb__serve_charge(struct wb_serve *s, enum wb_budget_kind kind, const struct object *o,
	uint64_t amount, struct wb_err *err);
/** wb__serve_over - refuse an agent that is over a budget; its objects report this. */
void wb__serve_over(struct peer *p, const struct wb_err *err);
/** wb__serve_count_new - charge a connection that has said nothing yet; false: there are too
 * many. */
bool wb__serve_count_new(struct peer *p);
/** wb__serve_count_agent - charge an agent that is about to be let in; false: it was refused. */
bool wb__serve_count_agent(struct peer *p);
/** wb__serve_discount - release the charges of a peer that is gone. */
void wb__serve_discount(struct peer *p);
/** wb__serve_begin_frame - a message of @bytes begins to arrive.  0; -EAGAIN: it waits for room,
 * until wb_chan_resume(); another code: there will never be room for it, and its agent was
 * refused. */
int wb__serve_begin_frame(struct peer *p, uint64_t bytes);
/** wb__serve_end_frame - the message has arrived, or never will: others may have its room. */
void wb__serve_end_frame(struct peer *p);
/** wb__serve_tend_waiting - tell waiting peers that we are alive, and refuse those that have waited
 * too long; returns when to check again. */
uint64_t wb__serve_tend_waiting(struct wb_serve *s);
/** wb__serve_budget_metrics - set the metrics about budgets: what is used, and the limits. */
void wb__serve_budget_metrics(struct wb_serve *s);

/* plan.c */
/** wb__serve_start_job - compute a plan of the wanted membership as job @number: on another thread,
 * after the jobs that wait before it.  Its end is reported to reconcile; so is a failure to begin,
 * which is also returned. */
int wb__serve_start_job(struct wb_serve *s, struct object *o, uint32_t number);
/** wb__serve_start_list - have o->next_plan listed for agents of version 1, also on another thread.
 * wb__serve_listed() is called at the end.  Does nothing when this is under way already.  0 or
 * -ENOMEM. */
int wb__serve_start_list(struct wb_serve *s, struct object *o);
/** wb__serve_forget_jobs - of one object, or of all (NULL): their results are dropped. */
void wb__serve_forget_jobs(struct wb_serve *s, const struct object *o);

/* send.c */
/** wb__serve_send_plan - send CONTENT and PLAN of the next epoch, with its key, to the action's
 * agent; does nothing if the agent is gone. */
void wb__serve_send_plan(struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a);
/** wb__serve_forget_told - forget the bodies of PLAN, since the members of the plan, or their
 * addresses, have changed. */
void wb__serve_forget_told(struct object *o);
/** wb__serve_send_activate - send ACTIVATE with the feeds to the action's agent; the plan becomes
 * the active one here, even if the agent is gone. */
void wb__serve_send_activate(
	struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a);
/** wb__serve_worker_name - name of the worker with this id, "" when it is not in the list. */
const char *wb__serve_worker_name(const struct wb_msg_workers *w, uint32_t id);
/** wb__serve_fill_object - fill in @out with the spec as WELCOME carries it.  Strings are borrowed
 * from @o. */
void wb__serve_fill_object(struct object *o, struct wb_p_object *out);

/* share.c */
/** wb__serve_share - find the part of o->next_plan that @p gets, by its protocol version and its
 * place in the plan.  @out->of is the caller's reference.  The first agent of version 1 causes the
 * list to be made, once for each plan, on the planning thread: until it is there @out->of is NULL,
 * and wb__serve_listed() follows.  0; -ENOENT: the agent is not in the plan; -ENOMEM. */
int wb__serve_share(struct wb_serve *s, struct object *o, const struct peer *p, struct share *out,
	struct wb_err *err);
/** wb__serve_forget_list - forget the list, since next_plan has changed. */
void wb__serve_forget_list(struct object *o);
/** wb__serve_listed - the list of plan @of: agents that wait for it get it.  @list: taken; NULL:
 * there is none, @rc and @err say why, and these agents are refused; -EDQUOT: there is no room for
 * the list, or it is longer than such an agent accepts.  Does nothing if plan @of is not the next
 * plan any more. */
void wb__serve_listed(
	struct object *o, struct wb_digest of, struct blob *list, int rc, const struct wb_err *err);

/* outgo.c */
/** wb__serve_outgo - @share, then PLAN with the body @told, as the connection has room; replaces
 * what is left of an earlier plan of @o.  A reference to @told is taken; the share's reference is
 * handed over.  A share that is not there yet (of is NULL) is waited for, and what follows it waits
 * as well. */
void wb__serve_outgo(struct peer *p, struct object *o, struct wb_reconcile_epoch epoch,
	const struct share *share, struct blob *told);
/** wb__serve_outgo_activate - if the plan of the action's epoch is still on its way, send ACTIVATE
 * after it; false: it is not on its way. */
bool wb__serve_outgo_activate(
	struct peer *p, const struct object *o, const struct wb_reconcile_action *a);
/** wb__serve_outgo_waits - the peer waits for its share of @o's plan. */
bool wb__serve_outgo_waits(const struct peer *p, const struct object *o);
/** wb__serve_outgo_share - the share that the peer waited for is there now; its reference is handed
 * over. */
void wb__serve_outgo_share(struct peer *p, const struct object *o, const struct share *share);
/** wb__serve_pump - send as much of the waiting plans as the connection takes now. */
void wb__serve_pump(struct peer *p);
/** wb__serve_drop_outgo - of one object, or of all (NULL). */
void wb__serve_drop_outgo(struct peer *p, const struct object *o);

/* report.c */
/** wb__serve_on_report - REPORT came: pass engines, workers, bytes and the end of a transfer to
 * reconcile, metrics and trace.  A report that is repeated after a reconnection counts once. */
void wb__serve_on_report(struct peer *p, const struct wb_msg_report *m);
/** wb__serve_free_xfer - free what is kept about a transfer of @o; afterwards @x is zeroed, and
 * unused. */
void wb__serve_free_xfer(struct object *o, struct xfer *x);

#endif
