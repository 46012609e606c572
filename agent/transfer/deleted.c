/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object that was deleted, and made again under another uid: same name, same workers, same
 * memory.  Versions move by the plan of the old object until there is a plan of the new one.
 *
 * The new plan is installed here once nothing of the old object moves any more
 * (wb_transfer_let_go()).  The old object answers others until the new plan is active, since each
 * agent comes to it in its own time; after that nobody goes by the old object, and it is forgotten.
 */
#include "transfer/object.h"

#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/trainers.h"
#include "transfer/worker.h"

#include <string.h>

/* A trainer worker has called, and the coordinator, which may have the new plan already, does not
 * answer.  The call is made to the coordinator again under the new plan. */
static bool is_in_vain(const struct object *o, uint64_t waited_ns)
{
	const struct trainers *t = &o->trainers;

	return t->state == TRAINERS_ASKED && waited_ns >= TRANSFER_VAIN_NS &&
	       now_ns(o->core) >= t->begin_ns + TRANSFER_VAIN_NS;
}

bool wb_transfer_let_go(
	struct wb_transfer_core *c, const struct wb_object_id *object, uint64_t waited_ns)
{
	struct object *o = wb__transfer_object(c, object);

	if (!o)
		return true;
	if (is_in_vain(o, waited_ns))
		wb__transfer_trainers_forget(&o->trainers);
	if (wb__transfer_is_moving(o))
		return false;
	wb__transfer_stop_kept_flows(
		o, NULL); /* they would use the memory that goes to the new one */
	return !wb__transfer_has_flow(o);
}

void wb__transfer_supersede(struct epoch *e)
{
	for (struct object *o = e->obj->core->objects; o; o = o->next)
		o->is_deleted |=
			!wb_object_id_eq(&o->id, &e->obj->id) && !strcmp(o->name, e->obj->name);
}

static bool is_idle(struct object *o)
{
	if (wb__transfer_is_moving(o) || wb__transfer_has_flow(o))
		return false;
	for (const struct loop_msg *m = o->core->self_head; m; m = m->next)
		if (wb_object_id_eq(&m->epoch.object, &o->id))
			return false;
	return true;
}

/* The workers leave the old object; numbers of transfers go on where they were. */
static void leave_workers(struct object *o)
{
	struct wb_transfer_core *c = o->core;
	uint64_t seen = WB_MAX(o->highest, o->issued);

	for (uint32_t i = 0; i < c->n_worker; i++) {
		struct worker *w = c->worker[i];

		if (strcmp(w->w.object, o->name) != 0)
			continue;
		w->seen_transfer = WB_MAX(w->seen_transfer, seen);
		if (w->obj == o)
			w->obj = NULL;
	}
}

void wb__transfer_forget_deleted(struct wb_transfer_core *c)
{
	struct object **at = &c->objects, *o;

	while ((o = *at)) {
		if (o->is_deleted)
			wb__transfer_stop_kept_flows(o, NULL);
		if (!o->is_deleted || !is_idle(o)) {
			at = &o->next;
			continue;
		}
		leave_workers(o);
		*at = o->next;
		wb__transfer_object_destroy(o);
	}
}
