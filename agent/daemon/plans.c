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
#include "daemon/limits.h"
#include "daemon/peers.h"
#include "daemon/roll.h"
#include "daemon/staging.h"
#include "daemon/worker.h"
#include "net/loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "plan"
#define BUSY_RETRY_NS (50 * WB_NS_PER_MS)
#define PAGES_RETRY_MAX_NS (800 * WB_NS_PER_MS) /* a try reads all of the plan */

/* What has come of a plan's bytes. */
struct parts {
	struct wb_digest digest;
	uint8_t *data; /* owned */
	size_t total, got, cap;
};

/* A plan as this agent has to remember it beside the core. */
struct epoch_note {
	struct wb_p_epoch epoch; /* term 0 = none */
	struct wb_digest digest;
	struct wb__roll roll;
};

struct wb__plans {
	struct wb__agent *a;
	uint32_t index; /* of the object among those served here */
	struct wb__plans_cb cb;
	struct wb_p_object object; /* name and model owned here */
	char uid[17]; /* the object's, 16 hex digits */
	struct parts parts;
	struct wb_msg_plan waiting; /* owned; object NULL = none */
	struct wb_timer *busy_timer;
	uint64_t busy_ns; /* until the next try, while pages are taken */
	struct epoch_note installed, active;
	bool is_suspended;
};

static unsigned long long ull(uint64_t v)
{
	return v;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void parts_clear(struct parts *p)
{
	wb_free(p->data);
	memset(p, 0, sizeof(*p));
}

int wb__plans_content(struct wb__plans *p, const struct wb_msg_content *m, struct wb_err *err)
{
	struct parts *x = &p->parts;
	int rc;

	if (m->kind != WB_CONTENT_PLAN)
		return wb_err_set(err, -EBADMSG, "CONTENT of kind %u is not for agents", m->kind);
	if (!m->offset || !wb_digest_eq(x->digest, m->digest)) {
		parts_clear(x);
		x->digest = m->digest;
		x->total = m->total_bytes;
	}
	if (!x->total || x->total > WB__PLAN_BYTES_MAX || m->total_bytes != x->total ||
		m->offset != x->got || m->n_data > x->total - x->got || !m->n_data) {
		parts_clear(x);
		return wb_err_set(err, -EBADMSG, "the parts of a plan do not follow each other");
	}
	/* Grows with what has come, never on the sender's word. */
	rc = wb_grow(&x->data, &x->cap, x->got + m->n_data, WB__PLAN_BYTES_MAX, 1);
	if (rc < 0)
		return wb_err_set(err, rc, "no memory for a plan of %zu bytes", x->total);
	memcpy(x->data + x->got, m->data, m->n_data);
	x->got += m->n_data;
	assert(x->got <= x->total && x->got <= x->cap);
	return 0;
}

/* ---- install --------------------------------------------------------------------------------- */

static int decode(
	struct wb__plans *p, const struct wb_msg_plan *m, struct wb_plan **out, struct wb_err *err)
{
	const struct parts *x = &p->parts;
	struct wb_plan *plan;
	int rc;

	if (!wb_digest_eq(x->digest, m->digest) || !x->total || x->got != x->total)
		return wb_err_set(err, -EBADMSG, "the content of the plan has not come whole");
	rc = wb_plan_decode(x->data, x->got, &plan, err);
	if (rc < 0)
		return rc;
	if (!wb_digest_eq(plan->digest, m->digest)) {
		wb_plan_destroy(plan);
		return wb_err_set(err, WB_EPLAN, "the plan does not have the digest it came under");
	}
	*out = plan;
	return 0;
}

/* Memory of slots: what was asked for on the command line, or what the workers here lend. */
static uint64_t buffer_bytes(
	const struct wb__plans *p, const struct wb_plan *plan, const struct wb__roll *roll)
{
	uint64_t bytes = 0;

	if (p->a->o.buffer_bytes)
		return p->a->o.buffer_bytes;
	for (uint32_t w = 0; w < plan->n_worker; w++)
		if (plan->worker[w].domain == roll->me)
			bytes += plan->worker[w].role == WB_ROLE_TRAINER
					 ? p->object.trainer_buffer_bytes
					 : p->object.rollout_buffer_bytes;
	return bytes;
}

static int prepare_memory(struct wb__plans *p, const struct wb_plan *plan,
	const struct wb__roll *roll, struct wb_err *err)
{
	uint64_t object = wb_hash64(p->uid, strlen(p->uid), 0); /* as the core names it */
	uint64_t buffers = buffer_bytes(p, plan, roll);
	struct wb__staging_in in = {.plan = plan,
		.roll = roll,
		.object = &p->object,
		.object_index = p->index,
		.uid = p->uid,
		.buffer_bytes = buffers};
	int rc = wb__env_arena_use(p->a->env, p->index, buffers, p->uid, err);

	assert(p->uid[0] && p->index < p->a->o.n_served);
	if (rc == 0)
		rc = wb__staging_reserve(p->a, &in, err);
	for (struct wb__worker *w = wb__apps_first(p->a->apps); w && rc == 0; w = w->next)
		if (!w->is_leaving && w->object_index == p->index)
			rc = wb__worker_regions_add(w, object, err);
	return rc;
}

static int check_limits(const struct wb__plans *p, const struct wb_plan *plan,
	const struct wb_roster *roster, uint32_t me, struct wb__limits_need *out,
	struct wb_err *err)
{
	const struct wb__limits_in in = {.n_rail = p->a->o.n_rail,
		.plan = plan,
		.roster = roster,
		.me = me,
		.has = p->a->need,
		.object = p->index,
		.open_files = p->a->open_files};

	return wb__limits_check(&in, out, err);
}

static int install(struct wb__plans *p, const struct wb_msg_plan *m, struct wb_err *err)
{
	struct wb__limits_need need = {0};
	struct wb__roll roll = {0};
	struct wb_roster roster = {0};
	struct wb_plan *plan = NULL;
	struct wb__roll_in in = {.me = p->a->o.name,
		.object = &p->object,
		.uid = p->uid,
		.m = m,
		.mine = &p->a->addrs};
	int rc = decode(p, m, &plan, err);

	if (rc < 0)
		return rc;
	in.plan = plan;
	rc = wb__roll_create(&in, &roster, &roll, err);
	assert(rc || (roll.me < roster.n_agent && roll.n_worker == plan->n_worker));
	if (rc == 0)
		rc = check_limits(p, plan, &roster, roll.me, &need, err);
	if (rc == 0)
		rc = prepare_memory(p, plan, &roll, err);
	if (rc == 0) {
		rc = wb__peers_epoch_add(p->a->peers, &roster);
		if (rc < 0)
			wb_err_set(err, rc, "peers of the plan: %s", wb_strerror(rc));
	}
	if (rc < 0) {
		wb_plan_destroy(plan);
		wb_roster_finish(&roster);
	} else {
		rc = wb_transfer_install(p->a->core, plan, &roster, err);
		/* A coordinator that was restarted has forgotten which numbers it used. */
		wb_transfer_seen(p->a->core, p->uid, m->last_transfer);
		wb__env_kick(p->a->env);
	}
	if (rc < 0) {
		wb__roll_finish(&roll);
		return rc;
	}
	wb__roll_finish(&p->installed.roll);
	p->installed = (struct epoch_note){m->epoch, m->digest, roll};
	p->a->need[p->index] = need;
	return 0;
}

static void try_install(struct wb__plans *p)
{
	struct wb_msg_plan *m = &p->waiting;
	struct wb_err err = {0};
	char digest[WB_DIGEST_TEXT];
	int rc;

	rc = install(p, m, &err);
	if (rc == -EBUSY) { /* a transfer runs: its end makes room */
		wb_timer_start(p->busy_timer, BUSY_RETRY_NS, 0);
		return;
	}
	if (rc == -EINPROGRESS) {
		wb_timer_start(p->busy_timer, p->busy_ns, 0);
		p->busy_ns = WB_MIN(2 * p->busy_ns, PAGES_RETRY_MAX_NS);
		return;
	}
	if (rc < 0)
		WB_LOG_WRN(MOD, "plan refused", WB_U("term", m->epoch.term),
			WB_U("number", m->epoch.number), WB_S("reason", err.msg));
	else
		WB_LOG_INFO(MOD, "plan installed", WB_U("term", m->epoch.term),
			WB_U("number", m->epoch.number),
			WB_S("digest", wb_digest_text(m->digest, digest)),
			WB_U("agents", m->n_agents), WB_U("engines", m->n_engines));
	parts_clear(&p->parts);
	p->cb.on_installed(p->cb.cookie, &m->epoch, m->digest, rc < 0 ? &err : NULL);
	wb_msg_free(WBP_PLAN, m);
}

static void busy_over(void *cookie)
{
	struct wb__plans *p = cookie;

	if (p->waiting.object)
		try_install(p);
}

static bool same_epoch(const struct wb_p_epoch *a, const struct wb_p_epoch *b)
{
	return a->term == b->term && a->number == b->number;
}

static bool is_known(const struct epoch_note *n, const struct wb_msg_plan *m)
{
	return n->epoch.term && same_epoch(&n->epoch, &m->epoch) &&
	       wb_digest_eq(n->digest, m->digest);
}

void wb__plans_plan(struct wb__plans *p, struct wb_msg_plan *m)
{
	wb_timer_stop(p->busy_timer);
	if (is_known(&p->installed, m) || is_known(&p->active, m)) { /* we had reconnected */
		p->cb.on_installed(p->cb.cookie, &m->epoch, m->digest, NULL);
		return;
	}
	wb_msg_free(WBP_PLAN, &p->waiting);
	p->waiting = *m;
	memset(m, 0, sizeof(*m));
	p->busy_ns = BUSY_RETRY_NS;
	try_install(p);
}

/* ---- activate -------------------------------------------------------------------------------- */

static void settle(struct wb__plans *p);

static void expect_feeds(struct wb__plans *p, struct epoch_note *n, const struct wb_msg_activate *m)
{
	for (uint32_t i = 0; i < m->n_feed; i++)
		if (wb__roll_feed_is_new(&n->roll, m->feed[i], m->feed_attempt[i]) &&
			n->roll.is_mine[m->feed[i]])
			wb_transfer_expect_feed(p->a->core, p->uid, m->feed[i]);
}

static void start_feeds(struct wb__plans *p, struct epoch_note *n, const struct wb_msg_activate *m)
{
	struct wb__roll *r = &n->roll;

	for (uint32_t i = 0; i < m->n_feed; i++) {
		uint32_t engine = m->feed[i], source = m->feed_source[i];
		struct wb_err err = {0};
		int rc;

		if (!wb__roll_feed_is_new(r, engine, m->feed_attempt[i]))
			continue;
		assert(engine < r->n_engine);
		r->attempt[engine] = m->feed_attempt[i];
		if (source >= r->n_engine || r->lead[source] != r->me)
			continue;
		rc = wb_transfer_feed(
			p->a->core, p->uid, n->epoch.term, n->epoch.number, engine, source, &err);
		if (rc < 0)
			WB_LOG_WRN(MOD, "feed cannot begin", WB_S("engine", r->engine[engine]),
				WB_S("source", r->engine[source]),
				WB_S("reason", err.code ? err.msg : wb_strerror(rc)));
	}
}

void wb__plans_activate(struct wb__plans *p, const struct wb_msg_activate *m)
{
	bool is_installed = p->installed.epoch.term && same_epoch(&m->epoch, &p->installed.epoch);
	struct epoch_note *n = is_installed ? &p->installed : &p->active;
	int rc;

	if (!n->epoch.term || !same_epoch(&m->epoch, &n->epoch) || m->n_feed != m->n_feed_source ||
		m->n_feed != m->n_feed_attempt) {
		WB_LOG_WRN(MOD, "cannot activate: no such plan here", WB_U("term", m->epoch.term),
			WB_U("number", m->epoch.number));
		return;
	}
	p->is_suspended = m->suspended;
	expect_feeds(p, n, m);
	wb_transfer_seen(p->a->core, p->uid, m->last_transfer);
	rc = wb_transfer_activate(p->a->core, p->uid, m->epoch.term, m->epoch.number);
	if (rc < 0)
		WB_LOG_WRN(MOD, "cannot activate", WB_U("number", m->epoch.number),
			WB_S("reason", wb_strerror(rc)));
	else if (is_installed)
		WB_LOG_INFO(MOD, "plan active", WB_U("term", m->epoch.term),
			WB_U("number", m->epoch.number), WB_U("feeds", m->n_feed));
	if (rc == 0)
		start_feeds(p, n, m);
	settle(p);
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
	wb__roll_finish(&p->installed.roll);
	wb__roll_finish(&p->active.roll);
	wb_timer_destroy(p->busy_timer);
	wb_free(p);
}

static void drop_note(struct epoch_note *n)
{
	wb__roll_finish(&n->roll);
	memset(n, 0, sizeof(*n));
}

bool wb__plans_is_encrypted(const struct wb__plans *p)
{
	return p->object.encrypted;
}

void wb__plans_object(struct wb__plans *p, const struct wb_p_object *o)
{
	char uid[sizeof(p->uid)];

	p->object = *o;
	p->object.name = p->object.model = NULL; /* not ours */
	snprintf(uid, sizeof(uid), "%016llx", ull(o->uid));
	if (p->uid[0] && strcmp(uid, p->uid) != 0) {
		/* Deleted and made again: plans of the old one are not of this one. */
		drop_note(&p->active);
		drop_note(&p->installed);
		p->a->need[p->index] = (struct wb__limits_need){0};
		p->is_suspended = false;
	}
	memcpy(p->uid, uid, sizeof(uid));
}

void wb__plans_reset(struct wb__plans *p)
{
	wb_timer_stop(p->busy_timer);
	parts_clear(&p->parts);
	wb_msg_free(WBP_PLAN, &p->waiting);
}

/* The core may have begun to use a plan by itself: PREPARE implies ACTIVATE. */
static void settle(struct wb__plans *p)
{
	const struct wb_p_epoch *e = &p->installed.epoch;

	if (!e->term || !wb_transfer_is_active(p->a->core, p->uid, e->term, e->number))
		return;
	wb__roll_finish(&p->active.roll);
	p->active = p->installed;
	memset(&p->installed, 0, sizeof(p->installed));
}

static void tell(const struct epoch_note *n, struct wb__plan_note *out)
{
	*out = (struct wb__plan_note){n->epoch, n->digest, n->roll.n_worker};
}

bool wb__plans_is_suspended(const struct wb__plans *p)
{
	return p->is_suspended;
}

void wb__plans_running(struct wb__plans *p, struct wb__plan_note *out)
{
	settle(p);
	tell(&p->active, out);
}

void wb__plans_ready(struct wb__plans *p, struct wb__plan_note *out)
{
	settle(p);
	tell(&p->installed, out);
}

static uint32_t number_in(const struct wb__roll *r, uint32_t id)
{
	for (uint32_t w = 0; w < r->n_worker; w++)
		if (r->local[w] == id)
			return w + 1;
	return 0;
}

void wb__plans_worker(struct wb__plans *p, uint32_t id, uint32_t *active, uint32_t *ready)
{
	settle(p);
	*active = number_in(&p->active.roll, id);
	*ready = number_in(&p->installed.roll, id);
}
