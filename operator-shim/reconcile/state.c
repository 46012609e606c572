/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one object: creation, actions, queries, and the look at everything after each
 * report. */
#include "base/mem.h"
#include "operator-shim/reconcile/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ACTIONS_MAX (1u << 20)

int wb_reconcile_create(
	const struct wb_reconcile_opts *o, const struct wb_spec *spec, struct wb_reconcile **out)
{
	struct wb_reconcile *r;

	if (!o->operator_id)
		return -EINVAL;
	r = wb_zalloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->hint = wb_zalloc(HINTS, sizeof(*r->hint));
	if (!r->hint) {
		wb_free(r);
		return -ENOMEM;
	}
	r->o = *o;
	r->spec = *spec;
	r->term = o->term_min;
	r->due_ns = UINT64_MAX;
	r->is_dirty = true;
	for (size_t i = 0; i < CONDS; i++)
		r->cond[i].reason = "Initializing";
	*out = r;
	return 0;
}

static void finish_routing(struct routing *p)
{
	wb__reconcile_membership_finish(&p->who);
}

void wb_reconcile_destroy(struct wb_reconcile *r)
{
	if (!r)
		return;
	for (size_t i = r->action_at; i < r->n_action; i++)
		wb_free(r->action[i].sentence);
	wb_free(r->action);
	wb_free(r->agent);
	wb_free(r->hint);
	wb_free(r->worker);
	wb_free(r->engine);
	wb_free(r->pod);
	wb_free(r->blob);
	wb_free(r->feed);
	json_decref(r->stored);
	finish_routing(&r->active);
	finish_routing(&r->next);
	wb__reconcile_membership_finish(&r->wanted);
	wb_free(r);
}

int wb__reconcile_act(
	struct wb_reconcile *r, const struct wb_reconcile_action *a, const char *sentence)
{
	char *copy = NULL;
	int rc;

	rc = wb_grow(&r->action, &r->action_cap, r->n_action + 1, ACTIONS_MAX, sizeof(*r->action));
	if (rc < 0)
		return rc;
	if (sentence) {
		copy = wb_strdup(sentence);
		if (!copy)
			return -ENOMEM;
	}
	r->action[r->n_action] = *a;
	r->action[r->n_action].sentence = copy;
	r->n_action++;
	return 0;
}

int wb__reconcile_event(struct wb_reconcile *r, const char *reason, const char *sentence)
{
	return wb__reconcile_event_about(r, reason, "", sentence);
}

int wb__reconcile_event_about(
	struct wb_reconcile *r, const char *reason, const char *about, const char *sentence)
{
	struct wb_reconcile_action a = {.what = WB_DO_EVENT, .reason = reason};

	snprintf(a.about, sizeof(a.about), "%.*s", WB_RECONCILE_ENGINE_MAX, about);
	return wb__reconcile_act(r, &a, sentence);
}

bool wb_reconcile_take(struct wb_reconcile *r, struct wb_reconcile_action *out)
{
	if (r->action_at == r->n_action) {
		r->action_at = r->n_action = 0;
		return false;
	}
	*out = r->action[r->action_at++];
	return true;
}

void wb__reconcile_due(struct wb_reconcile *r, uint64_t at_ns)
{
	r->due_ns = WB_MIN(r->due_ns, at_ns);
}

uint64_t wb_reconcile_due_ns(const struct wb_reconcile *r)
{
	return r->due_ns;
}

uint64_t wb_reconcile_looks(const struct wb_reconcile *r)
{
	return r->looks;
}

uint64_t wb_reconcile_term(const struct wb_reconcile *r)
{
	return r->term;
}

uint64_t wb_reconcile_transfer_seen(const struct wb_reconcile *r)
{
	return r->transfer_seen;
}

struct wb_reconcile_epoch wb_reconcile_active(
	const struct wb_reconcile *r, struct wb_digest *digest_out)
{
	if (digest_out)
		*digest_out = r->active.digest;
	return r->active.epoch;
}

static const struct membership *shown(const struct wb_reconcile *r)
{
	bool is_next = r->stage == STAGE_COMPUTING || r->stage == STAGE_SENDING;

	return is_next && !r->is_checking ? &r->next.who : &r->active.who;
}

const struct wb_reconcile_member *wb_reconcile_members(const struct wb_reconcile *r, size_t *n)
{
	*n = shown(r)->n;
	return shown(r)->m;
}

const struct wb_reconcile_member *wb_reconcile_active_members(
	const struct wb_reconcile *r, size_t *n)
{
	*n = r->active.who.n;
	return r->active.who.m;
}

const struct wb_digest *wb_reconcile_layouts(const struct wb_reconcile *r, size_t *n)
{
	*n = shown(r)->n_layout;
	return shown(r)->layout;
}

const struct wb_reconcile_feed *wb_reconcile_feeds(const struct wb_reconcile *r, size_t *n)
{
	*n = r->n_feed;
	return r->feed;
}

static int tell_one(struct wb_reconcile *r, struct agent *a)
{
	int rc;

	if (a->notice_gen == r->notice_gen)
		return 0;
	rc = wb__reconcile_act(r,
		&(struct wb_reconcile_action){
			.what = WB_DO_NOTICE, .agent = a->id, .code = r->notice_code},
		r->notice);
	if (rc == 0)
		a->notice_gen = r->notice_gen;
	return rc;
}

/* Tell workers that wait for a plan how far planning is, or why there is no plan. */
static int tell_waiting(struct wb_reconcile *r)
{
	int rc = 0;

	for (size_t i = 0; i < r->n_agent && rc == 0; i++)
		if (r->agent[i].is_up)
			rc = tell_one(r, &r->agent[i]);
	return rc;
}

int wb__reconcile_look(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	int rc;

	r->due_ns = UINT64_MAX;
	wb__reconcile_expire_agents(r, now);
	wb__reconcile_expire_refusal(r, now);
	rc = wb__reconcile_judge_waiting(r);
	if (rc < 0)
		return rc;
	rc = wb__reconcile_check_current(r, now);
	if (rc < 0)
		return rc;
	wb__reconcile_retry_later(r, now);
	rc = wb__reconcile_count_engines(r);
	if (rc == 0)
		rc = wb__reconcile_advance(r, now);
	if (rc == 0)
		rc = wb__reconcile_feed(r, now);
	if (rc == 0)
		rc = wb__reconcile_tell_active(r);
	wb__reconcile_drop_engines(r);
	wb__reconcile_settle_stored(r, now);
	wb__reconcile_conditions(r, now);
	r->looks++;
	if (rc == 0)
		rc = tell_waiting(r);
	if (rc < 0)
		wb__reconcile_due(r, now.ns + WB_NS_PER_S); /* memory was short: look again */
	return rc;
}

int wb_reconcile_tick(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	return wb__reconcile_look(r, now);
}

int wb_reconcile_spec(
	struct wb_reconcile *r, struct wb_reconcile_now now, const struct wb_spec *spec)
{
	if (r->spec.suspend != spec->suspend)
		r->feed_gen++; /* ACTIVATE tells agents of it */
	r->spec = *spec;
	wb__reconcile_retry(r);
	r->is_dirty = true;
	/* Refusals of workers depend on the counts in the spec.  Refused workers are judged again
	 * when they attach the next time. */
	return wb__reconcile_look(r, now);
}
