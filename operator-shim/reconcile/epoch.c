/* SPDX-License-Identifier: Apache-2.0 */
/* From a membership to an active plan, one stage after the other. */
#include "base/err.h"
#include "base/mem.h"
#include "operator-shim/reconcile/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LATE_REASON "PlanDeadlineExceeded"
#define RETRY_NS (30 * WB_NS_PER_S) /* after -EDQUOT; others may have made room */

void wb__reconcile_fail(struct wb_reconcile *r, const char *reason, const char *sentence)
{
	r->stage = STAGE_FAILED;
	r->fail_reason = reason;
	snprintf(r->fail, sizeof(r->fail), "%s", sentence);
	wb__reconcile_event(r, "PlanFailed", sentence);
}

/* Note which agents have members in the active and in the next plan.  Set the agent ids of the
 * members, since an agent gets a new id with each connection. */
static void mark_agents(struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->n_agent; i++)
		r->agent[i].is_in_active = r->agent[i].is_in_next = false;
	for (size_t i = 0; i < r->active.who.n + r->next.who.n; i++) {
		bool is_active = i < r->active.who.n;
		struct wb_reconcile_member *m =
			is_active ? &r->active.who.m[i] : &r->next.who.m[i - r->active.who.n];
		struct agent *a =
			m->is_absent ? NULL : wb__reconcile_agent_by_instance(r, m->instance);

		if (!a)
			continue;
		m->agent = a->id;
		if (is_active)
			a->is_in_active = true;
		else
			a->is_in_next = true;
	}
}

static void forget_next(struct wb_reconcile *r)
{
	r->held_since_ns = 0;
	wb__reconcile_membership_finish(&r->next.who);
	memset(&r->next, 0, sizeof(r->next));
	r->stage = STAGE_NONE;
	r->is_checking = false;
	mark_agents(r);
}

void wb__reconcile_retry(struct wb_reconcile *r)
{
	r->fail_reason = NULL;
	if (r->stage == STAGE_FAILED)
		forget_next(r);
}

void wb__reconcile_retry_later(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	if (r->stage != STAGE_FAILED)
		r->retry_ns = 0;
	if (!r->retry_ns)
		return;
	if (now.ns < r->retry_ns) {
		wb__reconcile_due(r, r->retry_ns);
		return;
	}
	r->retry_ns = 0;
	wb__reconcile_retry(r);
}

static int copy_membership(struct membership *to, const struct membership *from)
{
	struct membership c = *from;

	c.m = wb_memdup(from->m, from->n * sizeof(*from->m));
	c.layout = wb_memdup(from->layout, from->n_layout * sizeof(*from->layout));
	c.cap = from->n;
	c.layout_cap = from->n_layout;
	if (!c.m || !c.layout) {
		wb__reconcile_membership_finish(&c);
		return -ENOMEM;
	}
	*to = c;
	return 0;
}

/* ---- adoption ---- */

static bool is_plan(const struct wb_reconcile_known *a, const struct wb_reconcile_known *b)
{
	return a->epoch.term && same_epoch(a->epoch, b->epoch) && wb_digest_eq(a->plan, b->plan) &&
	       a->n_worker == b->n_worker;
}

/* Whether the wanted workers are the workers of this plan, and all their agents run it or are READY
 * for it.  Then plan_index of each member is its number in the plan. */
static bool fits(
	const struct wb_reconcile *r, struct membership *m, const struct wb_reconcile_known *plan)
{
	if (m->n != plan->n_worker)
		return false;
	for (size_t i = 0; i < m->n; i++) {
		const struct agent *a = wb__reconcile_agent_by_id(r, m->m[i].agent);

		if (!a || !(is_plan(&a->running, plan) || is_plan(&a->waiting, plan)))
			return false;
		if (!is_plan(&a->running, plan))
			m->m[i].plan_index = m->m[i].waiting_index;
		if (m->m[i].plan_index >= m->n)
			return false;
	}
	return true;
}

/* Put members in the order of the plan; -EINVAL when two claim one place. */
static int order_by_index(struct membership *m)
{
	struct wb_reconcile_member *to = wb_zalloc(m->n, sizeof(*to));

	if (!to)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++) {
		struct wb_reconcile_member *at = &to[m->m[i].plan_index];

		if (at->plan.role) {
			wb_free(to);
			return -EINVAL;
		}
		*at = m->m[i];
	}
	wb_free(m->m);
	m->m = to;
	m->cap = m->n;
	return 0;
}

/* All agents of the adopted plan have it and are READY for it, so that it is not sent again.
 * ACTIVATE is still sent to them. */
static void mark_adopted(struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->n_agent; i++) {
		struct agent *a = &r->agent[i];

		if (same_epoch(a->running.epoch, r->active.epoch) ||
			same_epoch(a->waiting.epoch, r->active.epoch))
			a->sent = a->ready = r->active.epoch;
	}
}

static int adopt(
	struct wb_reconcile *r, const struct wb_reconcile_known *plan, const struct membership *who)
{
	char text[200], digest[WB_DIGEST_TEXT];

	r->active.who = *who;
	r->active.epoch = plan->epoch;
	r->active.digest = plan->plan;
	wb__reconcile_restore_plan(r);
	mark_adopted(r);
	mark_agents(r);
	r->is_checking = true; /* plan it here too, for /plan and the bounds */
	r->stage = STAGE_BLOBS;
	snprintf(text, sizeof(text), "kept the running plan, epoch %llu.%llu, %s",
		(unsigned long long)plan->epoch.term, (unsigned long long)plan->epoch.number,
		wb_digest_text(plan->plan, digest));
	return wb__reconcile_event(r, "PlanAdopted", text);
}

/* Adopt this plan if it fits.  1: adopted; 0: it does not fit; or -ENOMEM. */
static int try_plan(struct wb_reconcile *r, const struct wb_reconcile_known *plan)
{
	struct membership who;
	int rc;

	if (!plan->epoch.term)
		return 0;
	rc = copy_membership(&who, &r->wanted);
	if (rc < 0)
		return rc;
	rc = fits(r, &who, plan) ? order_by_index(&who) : -EINVAL;
	if (rc < 0) {
		wb__reconcile_membership_finish(&who);
		return rc == -EINVAL ? 0 : rc;
	}
	rc = adopt(r, plan, &who);
	return rc < 0 ? rc : 1;
}

/* Adopt the waiting plan of an agent, which is newer, or else its running plan.  1: adopted; 0:
 * neither fits; or -ENOMEM. */
static int try_adopt(struct wb_reconcile *r)
{
	const struct agent *a =
		r->wanted.n ? wb__reconcile_agent_by_id(r, r->wanted.m[0].agent) : NULL;
	int rc;

	if (!a)
		return 0;
	rc = try_plan(r, &a->waiting);
	return rc ? rc : try_plan(r, &a->running);
}

/* Until when members of a running plan are waited for.  If a wanted worker is in no plan, there has
 * to be a new plan whoever else comes; then the others have only the usual
 * heartbeatTimeoutSeconds. */
static uint64_t adopt_until_ns(const struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->wanted.n; i++)
		if (r->wanted.m[i].plan_index == WB_RECONCILE_NONE &&
			r->wanted.m[i].waiting_index == WB_RECONCILE_NONE)
			return r->adopt_since_ns + r->spec.heartbeat_timeout_s * WB_NS_PER_S;
	return r->adopt_since_ns + wb__reconcile_return_ns(r);
}

/* ---- stages ---- */

static struct blob *find_blob(const struct wb_reconcile *r, struct wb_digest d)
{
	for (size_t i = 0; i < r->n_blob; i++)
		if (wb_digest_eq(r->blob[i].digest, d))
			return &r->blob[i];
	return NULL;
}

bool wb__reconcile_has_blob(const struct wb_reconcile *r, struct wb_digest d)
{
	const struct blob *b = find_blob(r, d);

	return b && b->is_here;
}

static bool is_used_by(const struct membership *m, struct wb_digest d)
{
	for (size_t i = 0; i < m->n; i++)
		if (wb_digest_eq(m->m[i].map, d) || wb_digest_eq(m->m[i].manifest, d))
			return true;
	return false;
}

bool wb_reconcile_forget(struct wb_reconcile *r, struct wb_digest d)
{
	struct blob *b = find_blob(r, d);

	for (size_t i = 0; i < r->n_worker; i++)
		if (wb_digest_eq(r->worker[i].map, d) || wb_digest_eq(r->worker[i].manifest, d))
			return false;
	if (is_used_by(&r->active.who, d) || is_used_by(&r->next.who, d) ||
		is_used_by(&r->wanted, d))
		return false;
	if (b)
		*b = r->blob[--r->n_blob];
	return true;
}

static int want_blob(
	struct wb_reconcile *r, struct wb_digest d, bool is_manifest, uint32_t agent, bool *is_here)
{
	struct blob *b = find_blob(r, d);
	int rc;

	if (!b) {
		rc = wb_grow(&r->blob, &r->blob_cap, r->n_blob + 1, 2 * WB_WORKERS_MAX,
			sizeof(*r->blob));
		if (rc < 0)
			return rc;
		b = &r->blob[r->n_blob++];
		*b = (struct blob){
			.digest = d, .is_manifest = is_manifest, .asked = WB_RECONCILE_NONE};
	}
	*is_here = b->is_here;
	if (b->is_here || (b->asked != WB_RECONCILE_NONE && wb__reconcile_agent_by_id(r, b->asked)))
		return 0;
	rc = wb__reconcile_act(r,
		&(struct wb_reconcile_action){.what = WB_DO_NEED_BLOB,
			.agent = agent,
			.digest = d,
			.is_manifest = is_manifest},
		NULL);
	if (rc == 0)
		b->asked = agent;
	return rc;
}

static int gather_blobs(struct wb_reconcile *r, const struct membership *m)
{
	bool is_all = true, is_here;
	int rc = 0;

	if (!wb__reconcile_transport_fits(r, m))
		return 0;
	for (size_t i = 0; i < m->n && rc == 0; i++) {
		const struct agent *a = wb__reconcile_agent_by_instance(r, m->m[i].instance);

		if (m->m[i].is_absent)
			continue; /* its map is here */
		if (!a || !a->is_up) {
			is_all = false; /* it may come back, or will be expired */
			continue;
		}
		rc = want_blob(r, m->m[i].manifest, true, a->id, &is_here);
		is_all &= rc == 0 && is_here;
		if (rc == 0)
			rc = want_blob(r, m->m[i].map, false, a->id, &is_here);
		is_all &= rc == 0 && is_here;
	}
	if (rc < 0 || !is_all)
		return rc;
	r->stage = STAGE_COMPUTING;
	return wb__reconcile_act(
		r, &(struct wb_reconcile_action){.what = WB_DO_PLAN, .job = ++r->job}, NULL);
}

static bool is_feeding(const struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->n_engine; i++)
		if (r->engine[i].feed_until_ns)
			return true;
	return false;
}

static int activate(struct wb_reconcile *r)
{
	char text[300];

	wb__reconcile_membership_finish(&r->active.who);
	r->active = r->next;
	memset(&r->next, 0, sizeof(r->next));
	r->stage = STAGE_NONE;
	r->fail_reason = NULL;
	mark_agents(r);
	wb__reconcile_stop_feeds(r);
	snprintf(text, sizeof(text), "epoch %llu.%llu: %zu workers, %u engines%s",
		(unsigned long long)r->active.epoch.term,
		(unsigned long long)r->active.epoch.number, r->active.who.n, r->active.who.n_engine,
		r->active.who.n_absent
			? "; trainer workers are absent, engines bring others what they hold"
			: "");
	return wb__reconcile_event(r, "PlanActivated", text);
}

/* With AllEngines the agents of trainers are the judges, who decide together whether to commit.  A
 * judge that was restarted can be reached only under the next plan, so a transfer whose decision is
 * open cannot end before that plan comes.  Without an active plan it is not known who the judges
 * are, and one counts as lost.  That does no harm: agents refuse a new plan unless their decision
 * is open. */
static bool is_judge_lost(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	bool is_lost = !r->active.epoch.term;

	for (size_t i = 0; i < r->active.who.n; i++) {
		const struct wb_reconcile_member *m = &r->active.who.m[i];

		is_lost |= m->plan.role == WB_ROLE_TRAINER &&
			   !wb__reconcile_agent_by_instance(r, m->instance);
	}
	if (!is_lost || r->spec.commit_policy != WB_COMMIT_ALL_ENGINES) {
		r->judge_lost_ns = 0;
		return false;
	}
	if (!r->judge_lost_ns)
		r->judge_lost_ns = now.ns;
	if (now.ns < r->judge_lost_ns + ALONE_NS)
		wb__reconcile_due(r, r->judge_lost_ns + ALONE_NS);
	return now.ns >= r->judge_lost_ns + ALONE_NS;
}

/* Whether the next plan has to wait.  A new plan moves buffers, so a running transfer or feed ends
 * first.  A plan waits for transfers only as long as one may take, or it would wait for ever when
 * each transfer begins before the end of the last one is reported.  Sending it then does no harm,
 * since agents too see to it that a running transfer ends first. */
static bool is_held(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	if (is_feeding(r))
		return true;
	if (!r->current.t.transfer || is_judge_lost(r, now)) {
		r->held_since_ns = 0;
		return false;
	}
	if (!r->held_since_ns)
		r->held_since_ns = now.ns;
	if (now.ns >= r->held_since_ns + wb__reconcile_transfer_ns(r))
		return false;
	wb__reconcile_due(r, r->held_since_ns + wb__reconcile_transfer_ns(r));
	return true;
}

static bool are_all_up(const struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->n_agent; i++)
		if (r->agent[i].is_in_next && !r->agent[i].is_up)
			return false;
	return true;
}

static int send_plan(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	bool is_ready = true;

	/* PLAN tells each agent the addresses of all others, so all must be connected: an agent
	 * that is not comes back or is given up. */
	if (!are_all_up(r))
		return 0;

	if (!r->next.epoch.term && is_held(r, now))
		return 0;
	r->held_since_ns = 0;
	if (!r->next.epoch.term)
		r->next.epoch = (struct wb_reconcile_epoch){r->term, ++r->last_number};
	for (size_t i = 0; i < r->n_agent; i++) {
		struct agent *a = &r->agent[i];
		int rc;

		if (!a->is_in_next)
			continue;
		is_ready &= same_epoch(a->ready, r->next.epoch);
		if (same_epoch(a->sent, r->next.epoch))
			continue;
		rc = wb__reconcile_act(r,
			&(struct wb_reconcile_action){.what = WB_DO_SEND_PLAN,
				.agent = a->id,
				.epoch = r->next.epoch,
				.digest = r->next.digest},
			NULL);
		if (rc < 0)
			return rc;
		a->sent = r->next.epoch;
	}
	return is_ready ? activate(r) : 0;
}

int wb__reconcile_tell_active(struct wb_reconcile *r)
{
	if (!r->active.epoch.term)
		return 0;
	for (size_t i = 0; i < r->n_agent; i++) {
		struct agent *a = &r->agent[i];
		int rc;

		if (!a->is_up || !a->is_in_active ||
			(same_epoch(a->told, r->active.epoch) && a->told_gen == r->feed_gen))
			continue;
		rc = wb__reconcile_act(r,
			&(struct wb_reconcile_action){.what = WB_DO_ACTIVATE,
				.agent = a->id,
				.epoch = r->active.epoch,
				.digest = r->active.digest},
			NULL);
		if (rc < 0)
			return rc;
		a->told = r->active.epoch;
		a->told_gen = r->feed_gen;
	}
	return 0;
}

/* Note when a plan has been waited for longer than planDeadlineSeconds.  The status then names what
 * is late, and the wait goes on; if it is for READY, planning counts as failed until that comes.
 * Time in which a running transfer has to end first does not count, since that has its own
 * deadline. */
static void run_deadline(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	uint64_t bound = r->spec.plan_deadline_s * WB_NS_PER_S;
	bool is_held = r->active.epoch.term && r->stage == STAGE_SENDING && !r->next.epoch.term;
	bool is_waiting = r->n_worker && !is_held &&
			  (!r->active.epoch.term || (r->stage != STAGE_NONE && !r->is_checking));
	char text[WB_RECONCILE_SENTENCE_MAX];

	r->is_late = false;
	if (!is_waiting) {
		r->wait_since_ns = 0;
		return;
	}
	if (!r->wait_since_ns)
		r->wait_since_ns = now.ns;
	if (now.ns - r->wait_since_ns < bound) {
		wb__reconcile_due(r, r->wait_since_ns + bound);
		return;
	}
	r->is_late = true;
	if (r->stage == STAGE_SENDING && r->next.epoch.term) {
		wb__reconcile_say_wait(r, text, sizeof(text));
		wb__reconcile_fail(r, LATE_REASON, text);
	}
}

/* Decide whether the wanted membership needs another plan, and start on it. */
static int start_next(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	bool is_new = !r->active.epoch.term;
	int rc;

	if (!is_new && wb_digest_eq(r->wanted.print, r->active.who.print)) {
		if (!r->is_checking && (r->stage != STAGE_NONE || r->next.who.n))
			forget_next(r);
		return 0;
	}
	if (!r->is_complete && !r->is_interim) {
		if (!r->is_checking && (r->stage != STAGE_NONE || r->next.who.n))
			forget_next(r);
		return 0;
	}
	if (is_new && r->adopt_since_ns) {
		uint64_t until = adopt_until_ns(r);

		rc = try_adopt(r);
		if (rc)
			return rc < 0 ? rc : 0;
		if (now.ns < until && !wb__reconcile_all_pods_connected(r)) {
			wb__reconcile_due(r, until);
			return 0;
		}
	}
	if (r->stage != STAGE_NONE && !r->is_checking &&
		wb_digest_eq(r->wanted.print, r->next.who.print))
		return 0;
	forget_next(r);
	r->stage_due_ns = now.ns + r->o.settle_ns;
	r->stage = STAGE_SETTLING;
	rc = copy_membership(&r->next.who, &r->wanted);
	mark_agents(r);
	return rc;
}

static int run_stage(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	if (r->is_checking)
		return r->stage == STAGE_BLOBS ? gather_blobs(r, &r->active.who) : 0;
	if (r->stage == STAGE_SETTLING) {
		if (now.ns < r->stage_due_ns) {
			wb__reconcile_due(r, r->stage_due_ns);
			return 0;
		}
		r->stage = STAGE_BLOBS;
	}
	if (r->stage == STAGE_BLOBS)
		return gather_blobs(r, &r->next.who);
	if (r->stage == STAGE_SENDING)
		return send_plan(r, now);
	return 0;
}

int wb__reconcile_advance(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	enum stage before;
	int rc = 0;

	/* If wanted members are missing, the choice also depends on the active plan and on what
	 * engines hold. */
	if (r->is_dirty || (!r->is_complete && r->active.epoch.term)) {
		struct membership m;

		rc = wb__reconcile_choose(r, &m);
		if (rc < 0)
			return rc;
		wb__reconcile_membership_finish(&r->wanted);
		r->wanted = m;
		r->is_dirty = false;
		mark_agents(r);
	}
	rc = start_next(r, now);
	do {
		before = r->stage;
		if (rc == 0)
			rc = run_stage(r, now);
	} while (rc == 0 && r->stage != before);
	run_deadline(r, now);
	return rc;
}

/* ---- reports ---- */

int wb_reconcile_blob(struct wb_reconcile *r, struct wb_reconcile_now now, struct wb_digest digest,
	int rc, const char *sentence)
{
	struct blob *b = find_blob(r, digest);

	if (!b)
		return 0;
	b->is_here = rc == 0;
	b->asked = WB_RECONCILE_NONE;
	if (rc < 0 && r->stage == STAGE_BLOBS && !r->is_checking)
		wb__reconcile_fail(r, "TensorMismatch", sentence ? sentence : wb_strerror(rc));
	return wb__reconcile_look(r, now);
}

/* The planner explains a failure in a sentence.  The condition needs one word as its reason, so
 * look for known words in the sentence. */
static const char *reason_of(const struct wb_reconcile_planned *p)
{
	const char *s = p->sentence ? p->sentence : "";

	if (p->rc == -EDQUOT)
		return "BudgetExceeded";
	if (strstr(s, "different checkpoints")) /* first, since it also names tensors */
		return "TensorMismatch";
	if (strstr(s, "buffer") || strstr(s, "slot"))
		return "BufferTooSmall";
	if (strstr(s, "cast") || strstr(s, "dtype"))
		return "DtypeMismatch";
	return "TensorMismatch";
}

static void keep_info(struct routing *p, const struct wb_reconcile_planned *in, uint64_t wall_ns)
{
	p->digest = in->plan;
	p->info = *in;
	snprintf(p->bound, sizeof(p->bound), "%s", in->bound ? in->bound : "");
	p->info.sentence = p->info.bound = NULL;
	p->computed_wall_ns = wall_ns;
	p->has_info = true;
}

int wb_reconcile_planned(
	struct wb_reconcile *r, struct wb_reconcile_now now, const struct wb_reconcile_planned *p)
{
	if (p->job != r->job || r->stage != STAGE_COMPUTING)
		return 0; /* the membership has changed in the meantime */
	if (r->is_checking) {
		r->is_checking = false;
		r->stage = STAGE_NONE;
		if (p->rc == 0 && wb_digest_eq(p->plan, r->active.digest))
			keep_info(&r->active, p,
				r->active.has_info ? r->active.computed_wall_ns : now.wall_ns);
		else
			wb__reconcile_event(r, "PlanDiffers",
				"this operator would plan otherwise; the running plan stays until "
				"the membership changes");
	} else if (p->rc < 0) {
		wb__reconcile_fail(r, reason_of(p), p->sentence ? p->sentence : wb_strerror(p->rc));
		if (p->rc == -EDQUOT)
			r->retry_ns = now.ns + RETRY_NS;
	} else {
		keep_info(&r->next, p, now.wall_ns);
		r->stage = STAGE_SENDING;
	}
	return wb__reconcile_look(r, now);
}

/* The plan failed only because of planDeadlineSeconds, and now all its agents are READY. */
static bool is_late_but_ready(const struct wb_reconcile *r)
{
	if (r->stage != STAGE_FAILED || !r->next.epoch.term ||
		strcmp(r->fail_reason, LATE_REASON) != 0)
		return false;
	for (size_t i = 0; i < r->n_agent; i++)
		if (r->agent[i].is_in_next && !same_epoch(r->agent[i].ready, r->next.epoch))
			return false;
	return true;
}

int wb_reconcile_ready(struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent,
	struct wb_reconcile_epoch epoch, int rc, const char *sentence)
{
	struct agent *a = wb__reconcile_agent_by_id(r, agent);
	char text[WB_RECONCILE_SENTENCE_MAX];

	if (!a)
		return 0;
	if (rc == 0) {
		a->ready = epoch;
		if (is_late_but_ready(r))
			r->stage = STAGE_SENDING;
	} else if (r->stage == STAGE_SENDING && same_epoch(epoch, r->next.epoch)) {
		snprintf(text, sizeof(text), "agent %.200s cannot take the plan: %.700s", a->name,
			sentence ? sentence : wb_strerror(rc));
		wb__reconcile_fail(r,
			rc == -ENOMEM || rc == -ENOSPC ? "MemoryLimitTooSmall"
			: rc == -ENODEV                ? "NoUsableDevice"
			: rc == -EAFNOSUPPORT          ? "NoCommonAddressFamily"
			: rc == -EPROTONOSUPPORT       ? "NoCommonTransport"
			: rc == -EMFILE                ? "OpenFilesLimitTooSmall"
						       : "PlanRefused",
			text);
	}
	return wb__reconcile_look(r, now);
}
