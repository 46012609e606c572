/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs: a plan and its roster, as far as they concern this agent. */
#include "transfer/epoch.h"

#include "transfer/ballot.h"
#include "transfer/coordinator.h"
#include "transfer/doubt.h"
#include "transfer/flows.h"
#include "transfer/judge.h"
#include "transfer/lead.h"
#include "transfer/link.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/resume.h"
#include "transfer/states.h"
#include "transfer/trainers.h"
#include "transfer/wire.h"
#include "transfer/worker.h"

#include <errno.h>
#include <string.h>

/* The epoch's connections close, of which events come only later; what comes over them until then
 * belongs to no epoch. */
static void forget_conns(const struct epoch *e)
{
	struct wb_transfer_core *c = e->obj->core;

	size_t n = 0;

	for (size_t i = 0; i < c->n_conn; i++)
		if (c->conn[i].e != e)
			c->conn[n++] = c->conn[i];
	c->n_conn = n;
	for (uint32_t i = 0; i < c->n_orphan; i++)
		if (c->orphan[i].e == e)
			c->orphan[i--] = c->orphan[--c->n_orphan];
}

static void epoch_destroy(struct epoch *e)
{
	if (!e)
		return;
	if (e->obj)
		forget_conns(e);
	if (e->obj)
		wb__transfer_digest_cancel(e->obj);
	for (uint32_t i = 0; e->party && i < e->r->n_engine; i++)
		wb_free(e->party[i].feed);
	for (uint32_t i = 0; e->lead && i < e->r->n_engine; i++) {
		wb_free(e->lead[i].agent);
		wb_free(e->lead[i].resume.heard);
		wb_free(e->lead[i].doubt.agent);
	}
	for (uint32_t i = 0; e->image && i < e->local->n; i++)
		wb_image_destroy(e->image[i]);
	wb_free(e->image);
	wb_free(e->party);
	wb_free(e->lead);
	wb_free(e->trigger);
	for (uint32_t i = 0; e->wire && i < e->r->n_agent; i++)
		wb__transfer_wire_down(&e->wire[i], 0, 0);
	wb_free(e->wire);
	wb__transfer_links_finish(e);
	wb__transfer_roles_finish(e);
	wb_free(e->member);
	wb_local_destroy(e->staged);
	wb_local_destroy(e->local);
	wb_roster_put(e->r);
	wb_free(e);
}

void wb__transfer_object_destroy(struct object *o)
{
	for_flow (o, x)
		wb_flow_destroy(x->flow);
	epoch_destroy(o->cur);
	epoch_destroy(o->prev);
	wb_slots_finish(&o->slots);
	wb_free(o->coordinator.engine);
	while (o->feeds) {
		struct coordinator *next = o->feeds->next;

		wb_free(o->feeds->engine);
		wb_free(o->feeds);
		o->feeds = next;
	}
	wb_free(o->trainers.final_body);
	wb__transfer_leave_reset(&o->trainers);
	wb_free(o->name);
	wb_free(o);
}

struct epoch *wb__transfer_epoch_find(const struct object *o, const struct wb_epoch_id *id)
{
	if (o->cur && wb_epoch_id_eq(&o->cur->r->id, id))
		return o->cur;
	return o->prev && wb_epoch_id_eq(&o->prev->r->id, id) ? o->prev : NULL;
}

/* A worker's memory is gone: the epoch must not find the worker again. */
void wb__transfer_epoch_forget(struct epoch *e, const struct worker *w)
{
	for (uint32_t i = 0; e && i < e->local->n; i++)
		if (e->member[i] == w)
			e->member[i] = NULL;
}

bool wb__transfer_holds(struct epoch *e, uint32_t plan_worker, uint64_t transfer)
{
	const struct worker *w = wb__transfer_worker_of(e, plan_worker);

	if (!w || !transfer)
		return false;
	return w->w.role == WB_ROLE_ROLLOUT ? w->held_transfer == transfer
					    : wb__transfer_keeps(w, transfer);
}

static bool epoch_in_use(struct object *o, const struct epoch *e)
{
	for_flow (o, x)
		if (x->e == e)
			return true;
	if ((o->coordinator.state != COORDINATOR_IDLE && o->coordinator.e == e) ||
		(o->trainers.state != TRAINERS_IDLE && o->trainers.e == e))
		return true;
	for (const struct coordinator *f = o->feeds; f; f = f->next)
		if (f->e == e)
			return true;
	if (wb__transfer_wire_is_busy(e))
		return true;
	for (uint32_t i = 0; i < e->r->n_engine; i++)
		if (e->party[i].state != PARTY_NONE || wb__transfer_leads_run(&e->lead[i]))
			return true;
	return false;
}

bool wb__transfer_images_fit(const struct epoch *e)
{
	for (uint32_t i = 0; e->image && i < e->local->n; i++)
		if (e->image[i] && e->member[i] && e->image[i]->bytes > e->member[i]->image_bytes)
			return false;
	return true;
}

/* Memory was set aside for the newest plan: may a transfer of the one before begin in it? */
static bool still_fits(const struct object *o, const struct epoch *e)
{
	return e->plan->chunk_bytes == o->slot_bytes && wb__transfer_images_fit(e);
}

/* READY was said for the newest plan, and ACTIVATE does not come.  It may have come to others, who
 * keep the plan before until a transfer of the newest begins. */
uint64_t wb__transfer_usable_at(const struct object *o)
{
	bool waits = o->cur && !o->cur->is_active && o->prev && o->prev->is_active &&
		     still_fits(o, o->prev);

	return waits ? o->cur->ready_ns + TRANSFER_READY_NS : 0;
}

struct epoch *wb__transfer_usable(const struct object *o)
{
	uint64_t at = wb__transfer_usable_at(o);

	if (o->cur && o->cur->is_active)
		return o->cur;
	return at && now_ns(o->core) >= at ? o->prev : NULL;
}

uint64_t wb__transfer_usable_since(const struct object *o)
{
	return o->cur && o->cur->is_active ? o->cur->active_ns : wb__transfer_usable_at(o);
}

/* The plan before the newest goes once a transfer of the newest has begun and nothing uses it. */
uint64_t wb__transfer_epoch_tick(struct object *o, uint64_t now)
{
	uint64_t at = wb__transfer_usable_at(o);

	if (o->prev && o->cur->is_active && o->cur->has_begun) {
		/* Kept flows of the old plan serve feeds by their sums only: let them go. */
		wb__transfer_stop_kept_flows(o, o->prev);
		if (!epoch_in_use(o, o->prev)) {
			wb__transfer_wire_flush(o->prev);
			epoch_destroy(o->prev);
			o->prev = NULL;
		}
	}
	/* At that time, what was asked meanwhile goes on by the plan before. */
	return at > now ? at : 0;
}

static struct object *object_get(struct wb_transfer_core *c, const struct wb_roster *r)
{
	struct object *o = wb__transfer_object(c, &r->id.object);

	if (o)
		return o;
	o = wb_zalloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->core = c;
	o->id = r->id.object;
	o->name = wb_strdup(r->object);
	if (!o->name) {
		wb__transfer_object_destroy(o);
		return NULL;
	}
	o->next = c->objects;
	c->objects = o;
	wb__transfer_judge_load(o);
	return o;
}

static int collect_members(struct epoch *e, struct wb_err *err)
{
	struct wb_transfer_core *c = e->obj->core;
	struct wb_member *m = wb_zalloc(e->r->n_worker, sizeof(*m));
	uint32_t n = 0;
	int rc = -ENOENT;

	e->member = wb_zalloc(e->r->n_worker, sizeof(*e->member));
	if (!m || !e->member) {
		wb_free(m);
		return wb_err_set(err, -ENOMEM, "no memory for %u workers", e->r->n_worker);
	}
	for (uint32_t w = 0; w < e->plan->n_worker; w++) {
		struct worker *mine = NULL;

		if (e->plan->worker[w].domain != e->me)
			continue;
		for (uint32_t i = 0; i < c->n_worker; i++)
			if (c->worker[i]->w.id == e->r->worker[w].local && !c->worker[i]->gone)
				mine = c->worker[i];
		if (!mine) {
			wb_err_set(err, rc,
				"worker %u of the plan (%s) is not attached here any more", w,
				e->r->worker[w].name);
			goto out;
		}
		e->member[n] = mine;
		e->obj->highest = WB_MAX(e->obj->highest, mine->seen_transfer);
		m[n++] = (struct wb_member){
			.plan_worker = w,
			.map = mine->w.map,
			.place = mine->w.place,
			.base = mine->w.base,
			.lane = mine->w.lane,
		};
	}
	if (!n) {
		wb_err_set(err, rc, "the plan has no worker of this agent");
		goto out;
	}
	rc = wb_local_create(e->plan, e->member[0]->w.manifest, m, n, &e->local, err);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		e->member[i]->obj = e->obj;
out:
	wb_free(m);
	return rc;
}

static bool rolls(const struct epoch *e)
{
	for (uint32_t i = 0; i < e->local->n; i++)
		if (e->plan->worker[e->local->member[i].plan_worker].role == WB_ROLE_ROLLOUT)
			return true;
	return false;
}

/* An agent with trainers only has all its slots for sending: an engine that joins it has none to
 * receive in.  The slots of an agent that had an engine also suit one without. */
static bool slots_suit(const struct epoch *e)
{
	const struct object *o = e->obj;

	return o->slots.n && o->slot_bytes == e->plan->chunk_bytes &&
	       (!rolls(e) || o->slots.n_pool[WB_POOL_RECEIVE]);
}

static void *arena_of(const struct object *o, size_t *bytes)
{
	const struct wb_transfer_core *c = o->core;

	for (uint32_t i = 0; i < c->n_arena; i++)
		if (wb_object_id_eq(&c->arena[i].object, &o->id)) {
			*bytes = c->arena[i].bytes;
			return c->arena[i].base;
		}
	*bytes = c->o.arena_bytes;
	return c->o.arena;
}

/* What is whole in the areas is taken up under the plan to come (resume.c). */
static void hand_over(struct lead *l)
{
	wb__transfer_ballot_stop(&l->ballot);
	wb__transfer_lead_set(l, LEAD_DONE);
}

static void hand_over_party(struct party *p)
{
	wb__transfer_party_set(p, PARTY_NONE);
	p->flow = NULL;
}

/* A transfer that is whole in staging areas, and in doubt, waits for judges that perhaps only a
 * newer plan reaches. */
static void hand_over_staged(struct object *o, struct epoch *e)
{
	for (uint32_t en = 0; en < e->r->n_engine; en++) {
		struct lead *l = &e->lead[en];
		struct party *p = &e->party[en];

		if (l->state == LEAD_STAGED &&
			(l->ballot.state != BALLOT_NONE || p->state != PARTY_STAGED))
			hand_over(l);
		if (p->state == PARTY_STAGED && l->state != LEAD_STAGED)
			hand_over_party(p);
		wb__transfer_lead_hand_over(l); /* the next try to install finds it asking judges */
	}
	wb__transfer_coordinator_hand_over(e);
	wb__transfer_stop_kept_flows(o, e);
}

/* The same for a transfer that keeps the slots which the plan to come needs, and may still be in
 * order: nothing is ended that can still be decided as it should be.  A lead asks judges when its
 * coordinator is gone or silent past the deadline; a party may be read by other engines, which have
 * all ended their receive stage when it has been whole for as long as a transfer may take. */
static void hand_over_overdue(struct object *o, struct epoch *e)
{
	uint64_t now = now_ns(o->core);

	for (uint32_t en = 0; en < e->r->n_engine; en++) {
		struct lead *l = &e->lead[en];
		struct party *p = &e->party[en];
		bool is_asking = l->state == LEAD_STAGED && l->ballot.state != BALLOT_NONE;

		if (is_asking)
			hand_over(l);
		if (p->state == PARTY_STAGED && l->state != LEAD_STAGED &&
			(is_asking || now >= p->complete_ns + e->r->transfer_deadline_ns +
						      TRANSFER_LATE_NS))
			hand_over_party(p);
	}
	wb__transfer_coordinator_hand_over(e);
	wb__transfer_stop_kept_flows(o, e);
}

/* A transfer has the slots.  If they would do for the new plan, which only wants more or fewer of
 * them, the plan does not wait for ever: the transfer may be waiting for it (hand_over_staged()).
 * If they would not do, the transfer ends by its deadlines (hand_over_overdue()). */
static int wait_for_slots(struct epoch *e, struct wb_err *err)
{
	struct object *o = e->obj;
	uint64_t now = now_ns(o->core);

	if (!o->slots_wait_ns)
		o->slots_wait_ns = now;
	if (now - o->slots_wait_ns >= TRANSFER_VAIN_NS) {
		if (slots_suit(e))
			return 0;
		if (o->cur)
			hand_over_overdue(o, o->cur);
		if (o->prev)
			hand_over_overdue(o, o->prev);
	}
	return wb_err_set(err, -EBUSY,
		"the plan needs other slots, of %u bytes, while a transfer uses those that there "
		"are",
		e->plan->chunk_bytes);
}

/* This is the last step that may fail: if this plan is refused, the plan that runs still needs its
 * slots. */
static int make_slots(struct epoch *e, struct wb_err *err)
{
	struct object *o = e->obj;
	size_t bytes;
	void *base = arena_of(o, &bytes);
	struct wb_slots slots;
	uint8_t share[WB_POOLS];
	int rc = 0;

	if (!slots_suit(e) || o->slots_bytes != bytes) {
		wb_slots_shares(rolls(e), share);
		rc = wb_slots_init(&slots, base, bytes, e->plan->chunk_bytes, share, err);
		if (rc < 0)
			return rc;
		wb__transfer_stop_kept_flows(o, NULL);
		if (wb__transfer_has_flow(o)) {
			wb_slots_finish(&slots);
			rc = wait_for_slots(e, err);
		} else {
			wb_slots_finish(&o->slots);
			o->slots = slots;
			o->slot_bytes = e->plan->chunk_bytes;
			o->slots_bytes = bytes;
		}
	}
	if (rc == 0)
		o->slots_wait_ns = 0;
	return rc;
}

static int make_images(struct epoch *e, struct wb_err *err)
{
	if (!e->r->trainer_staged)
		return 0;
	e->image = wb_zalloc(e->local->n, sizeof(*e->image));
	if (!e->image)
		return wb_err_set(err, -ENOMEM, "no memory for snapshots");
	for (uint32_t i = 0; i < e->local->n; i++) {
		const struct worker *w = e->member[i];

		if (w->w.role != WB_ROLE_TRAINER)
			continue;
		if (wb_image_create(e->plan, e->local->member[i].plan_worker, &e->image[i]) < 0)
			return wb_err_set(err, -ENOMEM, "no memory for the layout of a snapshot");
		if (e->image[i]->bytes > w->image_bytes)
			return wb_err_set(err, -ENOBUFS,
				"the snapshot of %s takes %llu bytes, %llu are reserved", w->w.name,
				(unsigned long long)e->image[i]->bytes,
				(unsigned long long)w->image_bytes);
	}
	return 0;
}

/* The same plan over the areas instead of the rollouts' parameters. */
static int make_staged(struct epoch *e, struct wb_err *err)
{
	struct wb_member *m;
	int rc;

	if (!e->r->rollout_staged)
		return 0;
	m = wb_memdup(e->local->member, e->local->n * sizeof(*m));
	if (!m)
		return wb_err_set(err, -ENOMEM, "no memory for staging");
	for (uint32_t i = 0; i < e->local->n; i++) {
		const struct worker *w = e->member[i];

		if (w->w.role != WB_ROLE_ROLLOUT)
			continue;
		if (!w->area.head && !w->asleep) {
			wb_free(m);
			return wb_err_set(err, -ENOBUFS, "%s has no staging area", w->w.name);
		}
		m[i].base = w->area.base;
		m[i].lane = w->area.lane;
	}
	rc = wb_local_view(e->local, m, &e->staged);
	wb_free(m);
	return rc < 0 ? wb_err_set(err, rc, "no memory for staging") : 0;
}

static int build(struct epoch *e, struct wb_err *err)
{
	int rc = collect_members(e, err);

	if (rc == 0)
		rc = make_images(e, err);
	if (rc == 0)
		rc = make_staged(e, err);
	if (rc < 0)
		return rc;
	e->wire = wb_zalloc(e->r->n_agent, sizeof(*e->wire));
	e->party = wb_zalloc(e->r->n_engine, sizeof(*e->party));
	e->lead = wb_zalloc(e->r->n_engine, sizeof(*e->lead));
	e->trigger = wb_zalloc(e->r->n_agent, sizeof(*e->trigger));
	if (!e->wire || !e->party || !e->lead || !e->trigger || wb__transfer_links_create(e) < 0 ||
		wb__transfer_roles_create(e) < 0)
		return wb_err_set(err, -ENOMEM, "no memory for an epoch");
	wb__transfer_flow_env_init(e);
	return make_slots(e, err);
}

static int check_roster(const struct wb_plan *plan, const struct wb_roster *r, struct wb_err *err)
{
	uint32_t domains = 0, engines = 0;

	for (uint32_t w = 0; w < plan->n_worker; w++) {
		domains = WB_MAX(domains, plan->worker[w].domain + 1);
		if (plan->worker[w].role == WB_ROLE_ROLLOUT)
			engines = WB_MAX(engines, plan->worker[w].engine + 1);
	}
	if (r->n_worker != plan->n_worker || domains > r->n_agent || engines > r->n_engine ||
		r->coordinator >= r->n_agent || r->me >= r->n_agent)
		return wb_err_set(err, WB_EPLAN,
			"the roster (%u workers, %u agents, %u engines) does not fit the plan "
			"(%u, %u, %u)",
			r->n_worker, r->n_agent, r->n_engine, plan->n_worker, domains, engines);
	for (uint32_t en = 0; en < r->n_engine; en++)
		if (r->engine[en].lead >= r->n_agent)
			return wb_err_set(err, WB_EPLAN,
				"the roster says that agent %u leads engine %s, and there are %u",
				r->engine[en].lead, r->engine[en].name, r->n_agent);
	return 0;
}

int wb_transfer_install(struct wb_transfer_core *c, struct wb_roster *r, struct wb_err *err)
{
	struct object *o = NULL;
	struct epoch *e = wb_zalloc(1, sizeof(*e));
	int rc;

	if (!e)
		return wb_err_set(err, -ENOMEM, "no memory for an epoch");
	e->r = wb_roster_get(r);
	e->plan = r->plan;
	e->me = r->me;
	rc = check_roster(e->plan, r, err);
	if (rc == 0 && !(o = object_get(c, r)))
		rc = wb_err_set(err, -ENOMEM, "no memory for object %s", e->r->object);
	if (rc < 0)
		goto err_destroy;
	e->obj = o;
	e->ready_ns = now_ns(c);
	if (o->cur && !wb_epoch_id_is_newer(&r->id, &o->cur->r->id)) {
		rc = wb_err_set(err, WB_ESTALE, "epoch %llu.%llu is not newer than %llu.%llu",
			(unsigned long long)r->id.term, (unsigned long long)r->id.number,
			(unsigned long long)o->cur->r->id.term,
			(unsigned long long)o->cur->r->id.number);
		goto err_destroy;
	}
	if (o->prev && o->cur->is_active)
		hand_over_staged(o, o->prev);
	/* An epoch that never became active only gives up its place: what runs under the one before
	 * it may run on. */
	if (o->prev && o->cur->is_active && epoch_in_use(o, o->prev)) {
		rc = wb_err_set(err, -EBUSY, "a transfer of epoch %llu.%llu is still under way",
			(unsigned long long)o->prev->r->id.term,
			(unsigned long long)o->prev->r->id.number);
		goto err_destroy;
	}
	rc = build(e, err);
	if (rc < 0)
		goto err_destroy;
	/* An epoch that never became active is replaced; the active one is kept beside the new. */
	if (o->prev && o->cur->is_active) {
		epoch_destroy(o->prev);
		o->prev = NULL;
	}
	if (o->cur && !o->cur->is_active && !epoch_in_use(o, o->cur))
		epoch_destroy(o->cur);
	else
		o->prev = o->cur;
	o->cur = e;
	return 0;
err_destroy:
	epoch_destroy(e);
	return rc;
}

static void tell_planned(struct epoch *e)
{
	struct wb_transfer_core *c = e->obj->core;
	char digest[WB_DIGEST_TEXT];
	struct wb_msg_app_planned m = {
		.term = e->r->id.term,
		.number = e->r->id.number,
		.digest = wb_digest_text(e->plan->digest, digest),
		.supersede = e->r->supersede && e->r->rollout_staged,
	};

	for (uint32_t i = 0; i < e->local->n; i++) {
		if (!e->member[i] || e->member[i]->gone)
			continue;
		m.version = e->member[i]->held_version;
		c->env->to_worker(c->env->ctx, e->member[i]->w.id, WBP_APP_PLANNED, &m);
	}
}

void wb__transfer_activate(struct epoch *e)
{
	if (e->is_active)
		return;
	e->is_active = true;
	e->active_ns = now_ns(e->obj->core);
	wb__transfer_supersede(e);
	/* Readers of what workers hold come to the new plan's flow; the sums go along. */
	for (uint32_t i = 0; i < e->local->n; i++)
		if (e->member[i] && e->member[i]->held_transfer)
			(void)wb__transfer_flow_get(e, e->member[i]->held_transfer, true);
	tell_planned(e);
	wb__transfer_trainers_replanned(e);
	wb__transfer_resume_end_old(e);
	wb__transfer_doubt(e);
	wb__transfer_resume(e);
}

void wb_transfer_seen(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint64_t transfer)
{
	struct object *o = wb__transfer_object(c, object);

	if (!o)
		return;
	o->issued = WB_MAX(o->issued, transfer);
	if (o->cur)
		o->cur->seen = WB_MAX(o->cur->seen, transfer);
}

int wb_transfer_activate(struct wb_transfer_core *c, const struct wb_epoch_id *id)
{
	struct epoch *e = wb__transfer_epoch(c, id);

	if (!e)
		return -ENOENT;
	wb__transfer_activate(e);
	wb__transfer_drain_self(c);
	return 0;
}

/* The operator holds back plans and other feeds until it has heard how this one ended. */
static void say_no_feed(const struct epoch *e, uint32_t engine, const char *why)
{
	const struct wb_transfer_core *c = e->obj->core;
	const char *name = e->r->engine[engine].name;
	enum wb_engine_state state = WB_ENGINE_ABORTED;
	struct wb_transfer_report r = {
		.kind = WB_REPORT_FINAL,
		.epoch = &e->r->id,
		.object = e->obj->name,
		.transfer = WB_MAX(WB_MAX(e->obj->highest, e->obj->issued), 1),
		.version = -1,
		.is_feed = true,
		.result = WB_RESULT_ABORTED,
		.n_engine = 1,
		.engine = &name,
		.state = &state,
		.sentence = &why,
		.culprit = why,
		.begin_wall_ns = wb_wall_ns(),
		.end_wall_ns = wb_wall_ns(),
	};

	c->env->report(c->env->ctx, &r);
}

int wb_transfer_feed(struct wb_transfer_core *c, const struct wb_epoch_id *id, uint32_t engine,
	uint32_t source_engine, struct wb_err *err)
{
	struct epoch *e = wb__transfer_epoch(c, id);
	int rc;

	if (!e || engine >= e->r->n_engine || source_engine >= e->r->n_engine)
		return wb_err_set(err, -ENOENT, "no such epoch or engine for a feed");
	rc = wb__transfer_coordinator_feed(e, engine, source_engine, err);
	if (rc < 0)
		say_no_feed(e, engine, err ? err->msg : "no feed can begin here");
	wb__transfer_drain_self(c);
	return rc;
}

void wb_transfer_expect_feed(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint32_t engine)
{
	const struct object *o = wb__transfer_object(c, object);

	if (!o || !o->cur || engine >= o->cur->r->n_engine)
		return;
	for_party_worker (o->cur, engine, i) {
		struct worker *w = o->cur->member[i];

		/* A worker that holds a version serves with it until the feed stops it. */
		if (!w || !w->w.page || w->held_transfer || w->asleep)
			continue;
		w->expects_feed = true;
		wb_poll_promise(&w->w.page->word);
	}
}
