/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's memory that goes away for a while (release_memory), while its place in the plan stays.
 */
#include "transfer/worker.h"

#include "proto/peers.h"
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/trainers.h"

#include <errno.h>
#include <stdio.h>

bool wb__transfer_can_take_part(struct epoch *e, uint32_t local, char *text, size_t cap)
{
	const struct worker *w = e->member[local];
	const char *name = wb__transfer_worker_name(e, e->local->member[local].plan_worker);

	text[0] = '\0';
	if (!w || w->gone)
		snprintf(text, cap, "%s is not attached", name);
	else if (w->asleep)
		snprintf(text, cap,
			"%s has released its memory (release_memory) and takes no transfer before "
			"acquire_memory",
			name);
	return !text[0];
}

bool wb__transfer_refuse_asleep(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	/* No party begins that an end could call torn: a worker that is asleep holds no mix. */
	char text[512];

	for_party_worker (e, m->engine, i) {
		if (!e->member[i] || !e->member[i]->asleep)
			continue;
		(void)wb__transfer_can_take_part(e, i, text, sizeof(text));
		e->obj->highest = WB_MAX(e->obj->highest, m->transfer);
		wb__transfer_party_refuse(e, from, m, -ENOTCONN, text);
		return true;
	}
	return false;
}

static int trainer_is_free(const struct worker *w, struct wb_err *err)
{
	const struct trainers *t = &w->obj->trainers;

	if (w->has_sent)
		return wb_err_set(err, -EBUSY, "send_weights of %s is under way", w->w.name);
	if (w->holds || w->letting_go)
		return wb_err_set(err, -EBUSY, "transfer %llu holds the parameters of %s",
			(unsigned long long)t->transfer, w->w.name);
	if (t->state == TRAINERS_IDLE || t->state == TRAINERS_RELEASED)
		return 0;
	for (uint32_t i = 0; i < t->e->local->n; i++)
		if (t->e->member[i] == w && wb__transfer_has_left(t, i))
			return 0;
	return wb_err_set(err, -EBUSY, "transfer %llu may read the parameters of %s still",
		(unsigned long long)t->transfer, w->w.name);
}

static bool is_member(const struct party *p, const struct worker *w)
{
	for_party_worker (p->e, p->engine, i)
		if (p->e->member[i] == w)
			return true;
	return false;
}

/* Receiving while the workers run is given up; a stop, or what is whole, is not. */
static int rollout_is_free(struct worker *w, struct epoch *e, struct wb_err *err)
{
	for (uint32_t en = 0; e && en < e->r->n_engine; en++) {
		struct party *p = &e->party[en];
		char text[512];

		if (p->state == PARTY_NONE || !is_member(p, w))
			continue;
		if (!p->is_staged || (p->state != PARTY_CLEARING && p->state != PARTY_MOVING))
			return wb_err_set(err, -EBUSY,
				"engine %s is in transfer %llu: poll until it is over",
				e->r->engine[en].name, (unsigned long long)p->transfer);
		snprintf(text, sizeof(text), "%s released its memory (release_memory)", w->w.name);
		wb__transfer_party_fail(p, -ECANCELED, text);
	}
	return 0;
}

int wb_transfer_sleep(struct wb_transfer_core *c, uint32_t worker, struct wb_err *err)
{
	struct worker *w = wb__transfer_worker(c, worker);
	int rc = 0;

	if (!w || w->gone)
		return wb_err_set(err, -ENOENT, "this worker is not attached");
	if (w->asleep)
		return 0;
	if (w->obj && w->w.role == WB_ROLE_TRAINER)
		rc = trainer_is_free(w, err);
	else if (w->past.is_torn)
		rc = wb_err_set(err, -EBUSY,
			"the parameters of %s are a mix of two versions and wait for repair",
			w->w.name);
	else if (w->obj && w->expects_feed)
		rc = wb_err_set(err, -EBUSY, "%s is about to be fed: poll until it is", w->w.name);
	for (int k = 0; rc == 0 && w->obj && w->w.role == WB_ROLE_ROLLOUT && k < 2; k++)
		rc = rollout_is_free(w, k ? w->obj->prev : w->obj->cur, err);
	if (rc < 0)
		return rc;
	if (w->obj)
		wb__transfer_keep_forget(w);
	w->asleep = true;
	w->slept_transfer = w->held_transfer;
	w->slept_version = w->held_version;
	w->held_transfer = 0; /* nobody can read it from here */
	w->area.head = NULL;
	if (w->obj) {
		wb__transfer_digest_cancel(w->obj);
		wb__transfer_flows_drop_worker(w->obj, w);
		wb__transfer_flows_reap(w->obj);
		wb__transfer_trace(w->obj, "memory released", w->w.name, 0, 0);
	}
	wb__transfer_drain_self(c);
	return 0;
}

bool wb_transfer_is_quiet(const struct wb_transfer_core *c, uint32_t worker)
{
	const struct worker *w = wb__transfer_worker(c, worker);

	return !w || !wb__transfer_flows_use(w);
}

bool wb_transfer_is_asleep(const struct wb_transfer_core *c, uint32_t worker)
{
	const struct worker *w = wb__transfer_worker(c, worker);

	return w && w->asleep;
}

static void bind_again(struct epoch *e, const struct worker *w)
{
	for (uint32_t i = 0; e && i < e->local->n; i++) {
		if (e->member[i] != w)
			continue;
		e->local->member[i].place = w->w.place;
		e->local->member[i].base = w->w.base;
		if (!e->staged)
			continue;
		e->staged->member[i].place = w->w.place;
		e->staged->member[i].base = w->area.head ? w->area.base : w->w.base;
		if (w->area.head)
			e->staged->member[i].lane = w->area.lane;
	}
}

void wb_transfer_wake(struct wb_transfer_core *c, uint32_t worker, const struct wb_place *place,
	void *const *base, bool kept)
{
	struct worker *w = wb__transfer_worker(c, worker);

	if (!w || !w->asleep)
		return;
	w->w.place = place;
	w->w.base = base;
	w->asleep = false;
	w->held_transfer = kept ? w->slept_transfer : 0;
	w->held_version = kept ? w->slept_version : -1;
	if (w->area.head) {
		w->area.head->held_transfer = w->held_transfer;
		w->area.head->held_version = w->held_version;
	}
	if (!w->obj)
		return;
	bind_again(w->obj->cur, w);
	bind_again(w->obj->prev, w);
	wb__transfer_trace(w->obj, "memory acquired", w->w.name, w->held_transfer, 0);
}
