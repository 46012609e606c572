/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plans.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/intake.h"
#include "daemon/limits.h"
#include "daemon/oplink.h"
#include "daemon/peers.h"
#include "daemon/roster.h"
#include "daemon/staging.h"
#include "daemon/worker.h"
#include "net/loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "plan"
#define BUSY_RETRY_NS (50 * WB_NS_PER_MS)
#define PLAN_ROOM_LEAST (16u << 20) /* if slots take too much, the slots are refused */
#define PAGES_RETRY_MAX_NS (800 * WB_NS_PER_MS) /* a try reads all of the plan */

struct wb__plans {
	struct wb__agent *a;
	uint32_t index; /* of the object among those served here */
	struct wb__plans_cb cb;
	struct wb_p_object object; /* name, model: not ours, so NULL; .allowed is the one below */
	char allowed[64];
	struct wb_object_id id; /* the object's */
	uint64_t patience_ns; /* of rosters */
	struct wb__intake intake;
	struct wb_roster *waiting; /* ours until the core took or refused it; NULL = none */
	uint64_t waiting_seen; /* last transfer that there was, by its PLAN */
	struct wb_timer *busy_timer;
	uint64_t busy_ns; /* until the next try, while pages are taken */
	bool is_suspended;
};

/* ---- what comes ------------------------------------------------------------------------------ */

/* Memory of slots, before the plan is there: of the workers that are attached (buffer_bytes() goes
 * by the plan). */
static uint64_t attached_buffers(const struct wb__plans *p)
{
	uint64_t bytes = 0;

	if (p->a->o.buffer_bytes)
		return p->a->o.buffer_bytes;
	for (const struct wb__worker *w = wb__apps_first(p->a->apps); w; w = w->next)
		if (w->object_index == p->index)
			bytes += w->role == WB_ROLE_TRAINER ? p->object.trainer_buffer_bytes
							    : p->object.rollout_buffer_bytes;
	return bytes;
}

/* Half of what is left: the other half is for what is made of the plan, and for the next plan
 * beside it. */
static uint64_t memory_for_plan(const struct wb__plans *p)
{
	return WB_MAX(wb__staging_left(p->a, p->index, attached_buffers(p)) / 2, PLAN_ROOM_LEAST);
}

int wb__plans_content(struct wb__plans *p, const struct wb_msg_content *m, struct wb_err *err)
{
	return wb__intake_add(&p->intake, m, memory_for_plan(p), err);
}

/* ---- install --------------------------------------------------------------------------------- */

static int say_limit(struct wb_err *err)
{
	struct wb_err why = *err;

	return wb_err_set(err, -EFBIG,
		"%s: the agent's memory limit of %llu bytes leaves no more beside slots and "
		"staging; raise it (chart value baseMemory)",
		why.msg, (unsigned long long)wb__memory_limit());
}

static int read_plan(struct wb__plans *p, const struct wb_msg_plan *m, struct wb_err *err)
{
	struct wb__roster_in in = {.me = p->a->o.name,
		.object = &p->object,
		.id = &p->id,
		.m = m,
		.mine = &p->a->addrs,
		.patience_ns = p->patience_ns};
	struct wb_plan *plan = NULL;
	int rc = wb__intake_plan(&p->intake, m, memory_for_plan(p), &plan, err);

	if (rc == -EFBIG && wb__memory_limit())
		return say_limit(err);
	return rc < 0 ? rc : wb__roster_create(&in, plan, &p->waiting, err);
}

/* Memory of slots: what was asked for on the command line, or what the workers here lend. */
static uint64_t buffer_bytes(const struct wb__plans *p, const struct wb_roster *r)
{
	uint64_t bytes = 0;

	if (p->a->o.buffer_bytes)
		return p->a->o.buffer_bytes;
	for (uint32_t w = 0; w < r->n_worker; w++)
		if (r->plan->worker[w].domain == r->me)
			bytes += r->plan->worker[w].role == WB_ROLE_TRAINER
					 ? p->object.trainer_buffer_bytes
					 : p->object.rollout_buffer_bytes;
	return bytes;
}

static int prepare_memory(struct wb__plans *p, const struct wb_roster *r, struct wb_err *err)
{
	uint64_t buffers = buffer_bytes(p, r);
	struct wb__staging_in in = {.roster = r,
		.object = &p->object,
		.object_index = p->index,
		.buffer_bytes = buffers};
	int rc = wb__staging_check(p->a, &in, err); /* before anything is taken */

	assert(p->id.uid && p->index < p->a->o.n_served);
	if (rc == 0)
		rc = wb__env_arena_use(p->a->env, p->index, buffers, &p->id, err);
	if (rc == 0)
		rc = wb__staging_reserve(p->a, &in, err);
	for (struct wb__worker *w = wb__apps_first(p->a->apps); w && rc == 0; w = w->next)
		if (!w->is_leaving && w->object_index == p->index)
			rc = wb__worker_regions_add(w, p->id.hash, err);
	return rc;
}

static int check_limits(const struct wb__plans *p, const struct wb_roster *roster,
	struct wb__limits_need *out, struct wb_err *err)
{
	struct wb__limits_in in = {.n_rail = p->a->rails.n,
		.roster = roster,
		.has = p->a->need,
		.object = p->index,
		.open_files = p->a->open_files,
		.n_memory = p->a->o.n_served}; /* slots */

	if (!(wb_xport_caps(p->a->xport) & WB_XPORT_CAP_REGIONS))
		in.n_memory = 0;
	else
		for (const struct wb__worker *w = wb__apps_first(p->a->apps); w; w = w->next)
			in.n_memory += w->t.n_mem + 1; /* staging */

	return wb__limits_check(&in, out, err);
}

/* The one place where an epoch expires: nobody goes by it any more, and a peer that shows its key
 * is a stranger from now on. */
static void epoch_over(void *ctx, const struct wb_roster *r)
{
	struct wb__agent *a = ctx;

	wb__peers_epoch_over(a->peers, r);
	if (a->xport)
		(void)wb_xport_epoch_remove(a->xport, &r->id);
}

/* The epoch's key is good from now on, even while a transfer is in the way of the plan here: others
 * may be faster. */
static int make_known(struct wb__agent *a, struct wb_roster *r, struct wb_err *err)
{
	struct wb_xport_epoch e = {
		.id = r->id, .is_encrypted = r->encrypted, .allowed = r->allowed};
	int rc;

	if (r->gone) /* an earlier try has made it known */
		return 0;
	rc = wb__peers_epoch_add(a->peers, r, err);
	if (rc < 0)
		return rc;
	memcpy(e.key, r->key, sizeof(e.key));
	rc = wb_xport_epoch_add(a->xport, &e, err);
	explicit_bzero(e.key, sizeof(e.key));
	if (rc < 0)
		wb__peers_epoch_over(a->peers, r);
	else
		wb_roster_on_end(r, epoch_over, a);
	return rc;
}

static int install(struct wb__plans *p, struct wb_roster *r, struct wb_err *err)
{
	struct wb__limits_need need = {0};
	int rc = check_limits(p, r, &need, err);

	if (rc == 0)
		rc = prepare_memory(p, r, err);
	if (rc == 0)
		rc = make_known(p->a, r, err);
	if (rc < 0)
		return rc;
	rc = wb_transfer_install(p->a->core, r, err);
	/* A coordinator that was restarted has forgotten which numbers it used. */
	wb_transfer_seen(p->a->core, &p->id, p->waiting_seen);
	wb__env_kick(p->a->env);
	if (rc < 0)
		return rc;
	p->a->need[p->index] = need;
	wb__env_arena_trim(p->a->env, p->index);
	return 0;
}

static void log_installed(const struct wb_roster *r)
{
	char digest[WB_DIGEST_TEXT];

	WB_LOG_INFO(MOD, "plan installed", WB_U("term", r->id.term), WB_U("number", r->id.number),
		WB_S("digest", wb_digest_text(r->plan->digest, digest)), WB_U("agents", r->n_agent),
		WB_U("engines", r->n_engine));
}

static void refuse(struct wb__plans *p, const struct wb_p_epoch *epoch, struct wb_digest digest,
	const struct wb_err *why)
{
	WB_LOG_WRN(MOD, "plan refused", WB_U("term", epoch->term), WB_U("number", epoch->number),
		WB_S("reason", why->msg));
	p->cb.on_installed(p->cb.cookie, epoch, digest, why);
}

static void try_install(struct wb__plans *p)
{
	struct wb_roster *r = p->waiting;
	struct wb_p_epoch epoch = {r->id.term, r->id.number};
	struct wb_digest digest = r->plan->digest;
	struct wb_err err = {0};
	int rc = install(p, r, &err);

	if (rc == -EBUSY) { /* a transfer runs: its end makes room */
		wb_timer_start(p->busy_timer, BUSY_RETRY_NS, 0);
		return;
	}
	if (rc == -EINPROGRESS) {
		wb_timer_start(p->busy_timer, p->busy_ns, 0);
		p->busy_ns = WB_MIN(2 * p->busy_ns, PAGES_RETRY_MAX_NS);
		return;
	}
	if (rc == 0)
		log_installed(r);
	p->waiting = NULL; /* the core has a reference of its own, or it is over */
	wb_roster_put(r);
	if (rc < 0)
		refuse(p, &epoch, digest, &err);
	else
		p->cb.on_installed(p->cb.cookie, &epoch, digest, NULL);
}

static void busy_over(void *cookie)
{
	struct wb__plans *p = cookie;

	if (p->waiting)
		try_install(p);
}

static bool is_epoch(const struct wb_roster *r, const struct wb_p_epoch *e)
{
	return r && r->id.term == e->term && r->id.number == e->number;
}

/* The plan of that epoch, of the two that an operator may find here. */
static struct wb_roster *known(const struct wb__plans *p, const struct wb_p_epoch *e)
{
	struct wb_roster *running = wb_transfer_running(p->a->core, &p->id);
	struct wb_roster *ready = wb_transfer_ready(p->a->core, &p->id);

	return is_epoch(ready, e) ? ready : is_epoch(running, e) ? running : NULL;
}

static void stop_waiting(struct wb__plans *p)
{
	wb_timer_stop(p->busy_timer);
	wb_roster_put(p->waiting);
	p->waiting = NULL;
}

void wb__plans_plan(struct wb__plans *p, const struct wb_msg_plan *m)
{
	const struct wb_roster *r = known(p, &m->epoch);
	struct wb_err err = {0};
	int rc;

	stop_waiting(p);
	if (r && wb_digest_eq(r->plan->digest, m->digest)) { /* we had reconnected */
		p->cb.on_installed(p->cb.cookie, &m->epoch, m->digest, NULL);
		return;
	}
	rc = read_plan(p, m, &err);
	wb__intake_clear(&p->intake);
	p->waiting_seen = m->last_transfer;
	p->busy_ns = BUSY_RETRY_NS;
	if (rc < 0)
		refuse(p, &m->epoch, m->digest, &err);
	else
		try_install(p);
}

/* ---- activate -------------------------------------------------------------------------------- */

static bool feed_is_new(const struct wb_roster *r, uint32_t engine, uint32_t attempt)
{
	return engine < r->n_engine && r->engine[engine].attempt != attempt;
}

static void expect_feeds(
	struct wb__plans *p, const struct wb_roster *r, const struct wb_msg_activate *m)
{
	for (uint32_t i = 0; i < m->n_feed; i++)
		if (feed_is_new(r, m->feed[i], m->feed_attempt[i]))
			wb_transfer_expect_feed(p->a->core, &p->id, m->feed[i]);
}

static void start_feeds(struct wb__plans *p, struct wb_roster *r, const struct wb_msg_activate *m)
{
	for (uint32_t i = 0; i < m->n_feed; i++) {
		uint32_t engine = m->feed[i], source = m->feed_source[i];
		struct wb_err err = {0};
		int rc;

		if (!feed_is_new(r, engine, m->feed_attempt[i]))
			continue;
		r->engine[engine].attempt = m->feed_attempt[i];
		if (source >= r->n_engine || r->engine[source].lead != r->me)
			continue;
		rc = wb_transfer_feed(p->a->core, &r->id, engine, source, &err);
		if (rc < 0)
			WB_LOG_WRN(MOD, "feed cannot begin", WB_S("engine", r->engine[engine].name),
				WB_S("source", r->engine[source].name),
				WB_S("reason", err.code ? err.msg : wb_strerror(rc)));
	}
}

void wb__plans_activate(struct wb__plans *p, const struct wb_msg_activate *m)
{
	struct wb_roster *r = known(p, &m->epoch);
	int rc;

	if (!r || m->n_feed != m->n_feed_source || m->n_feed != m->n_feed_attempt) {
		WB_LOG_WRN(MOD, "cannot activate: no such plan here", WB_U("term", m->epoch.term),
			WB_U("number", m->epoch.number));
		return;
	}
	if (r == wb_transfer_ready(p->a->core, &p->id))
		WB_LOG_INFO(MOD, "plan active", WB_U("term", m->epoch.term),
			WB_U("number", m->epoch.number), WB_U("feeds", m->n_feed));
	p->is_suspended = m->suspended;
	expect_feeds(p, r, m);
	wb_transfer_seen(p->a->core, &p->id, m->last_transfer);
	rc = wb_transfer_activate(p->a->core, &r->id);
	assert(rc == 0);
	(void)rc;
	start_feeds(p, r, m);
	wb__env_kick(p->a->env);
}

/* ---- the rest -------------------------------------------------------------------------------- */

int wb__plans_create(struct wb__agent *a, uint32_t object_index, const struct wb__plans_cb *cb,
	struct wb__plans **out)
{
	struct wb__plans *p = wb_zalloc(1, sizeof(*p));
	int rc;

	assert(object_index < WB__OBJECTS_MAX && cb->on_installed);
	if (!p)
		return -ENOMEM;
	p->a = a;
	p->index = object_index;
	p->cb = *cb;
	rc = wb_timer_create(a->loop, busy_over, p, &p->busy_timer);
	if (rc < 0) {
		wb_free(p);
		return rc;
	}
	*out = p;
	return 0;
}

void wb__plans_destroy(struct wb__plans *p)
{
	if (!p)
		return;
	wb__plans_reset(p);
	p->a->need[p->index] = (struct wb__limits_need){0};
	wb_timer_destroy(p->busy_timer);
	wb_free(p);
}

void wb__plans_object(struct wb__plans *p, const struct wb_object_id *id,
	const struct wb_p_object *o, uint64_t patience_ns)
{
	p->patience_ns = patience_ns;
	p->object = *o;
	p->object.name = p->object.model = NULL; /* not ours */
	snprintf(p->allowed, sizeof(p->allowed), "%s", o->allowed ? o->allowed : "");
	p->object.allowed = p->allowed;
	if (p->id.uid && !wb_object_id_eq(&p->id, id)) {
		/* Deleted and made again: plans of the old object are not the new one's. */
		p->a->need[p->index] = (struct wb__limits_need){0};
		p->is_suspended = false;
	}
	p->id = *id;
}

void wb__plans_reset(struct wb__plans *p)
{
	wb__intake_clear(&p->intake);
	stop_waiting(p);
}

bool wb__plans_is_suspended(const struct wb__plans *p)
{
	return p->is_suspended;
}
