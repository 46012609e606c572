/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torn: the parameters of a worker are a mix of two versions.  That is a property of the worker's
 * memory: plans and transfers come and go beside it, and a process that takes the worker's place is
 * not torn.  A torn worker stands in its update until a transfer repairs it, and no longer than the
 * deadline of a transfer after the last one that did not.
 */
#include "transfer/worker.h"

#include "transfer/epoch.h"
#include "transfer/object.h"
#include "transfer/party.h"

#include <stdio.h>

void wb__transfer_repair_await(struct worker *w, const struct epoch *e, uint64_t transfer)
{
	if (!w->past.is_torn)
		return;
	w->repair_transfer = transfer;
	w->repair_ns = now_ns(e->obj->core) + e->r->transfer_deadline_ns;
}

bool wb__transfer_is_in_run(const struct worker *w)
{
	for (int k = 0; w->obj && k < 2; k++) {
		const struct epoch *e = k ? w->obj->prev : w->obj->cur;

		for (uint32_t i = 0; e && i < e->local->n; i++) {
			const struct wb_plan_worker *pw =
				&e->plan->worker[e->local->member[i].plan_worker];

			if (e->member[i] == w && pw->role == WB_ROLE_ROLLOUT &&
				e->party[pw->engine].state != PARTY_NONE)
				return true;
		}
	}
	return false;
}

static void torn_for_good(struct worker *w, const struct epoch *e)
{
	char text[160];
	struct wb_msg_app_end end = {
		.transfer = w->repair_transfer,
		.version = -1,
		.result = WB_APP_END_TORN_FINAL,
		.code = WB_ETORN,
		.sentence = text,
	};

	snprintf(text, sizeof(text),
		"no transfer repaired the torn weights within spec.transferDeadlineSeconds (%.0f "
		"s)",
		(double)e->r->transfer_deadline_ns / 1e9);
	w->repair_ns = 0;
	wb__transfer_to_worker(w, WBP_APP_END, &end);
}

uint64_t wb__transfer_repair_tick(struct object *o, uint64_t now)
{
	uint64_t next = 0;

	for (uint32_t i = 0; o->cur && i < o->core->n_worker; i++) {
		struct worker *w = o->core->worker[i];

		if (w->obj != o || w->gone || !w->repair_ns)
			continue;
		/* The time of a run that may repair it does not count. */
		if (w->doubt_ns || wb__transfer_is_in_run(w))
			w->repair_ns = now + o->cur->r->transfer_deadline_ns;
		if (now >= w->repair_ns)
			torn_for_good(w, o->cur);
		else
			next = sooner(next, w->repair_ns);
	}
	return next;
}
