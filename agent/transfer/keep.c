/* SPDX-License-Identifier: Apache-2.0 */
/* Trainer workers whose hold goes on after the end of their transfer.  Engines that are fed with
 * its version, and have no engine left to get it from, get it from their parameters. */
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/worker.h"

static bool is_of(const struct worker *w, const struct flow_slot *x, uint32_t i)
{
	return x->e->member[i] == w && wb_flow_transfer(x->flow) == w->kept_transfer;
}

static void close_sources(const struct worker *w)
{
	for_flow (w->obj, x)
		for (uint32_t i = 0; i < x->e->local->n; i++)
			if (is_of(w, x, i))
				wb_flow_close_source(x->flow, i);
}

/* Does anybody still read the worker's parameters?  @cut: cut readers off now. */
static bool is_read(const struct worker *w, bool cut)
{
	bool busy = false;

	for_flow (w->obj, x)
		for (uint32_t i = 0; i < x->e->local->n; i++) {
			if (!is_of(w, x, i) || !wb_flow_source_busy(x->flow, i))
				continue;
			busy = true;
			if (cut)
				wb_flow_cut_source(x->flow, i);
		}
	return busy;
}

static void tell(struct worker *w, uint64_t transfer, int64_t version)
{
	struct wb_msg_app_send_state m = {
		.transfer = transfer, .version = version, .state = WB_APP_SEND_RELEASED};

	wb__transfer_to_worker(w, WBP_APP_SEND_STATE, &m);
}

static bool let_go(struct worker *w)
{
	if (is_read(w, now_ns(w->obj->core) >= w->keep_drain_ns))
		return false;
	tell(w, w->kept_transfer, w->kept_version);
	w->kept_transfer = w->keep_drain_ns = 0;
	return true;
}

void wb__transfer_keep(struct worker *w, uint64_t transfer, int64_t version)
{
	w->kept_transfer = transfer;
	w->kept_version = version;
	w->keep_drain_ns = 0;
}

bool wb__transfer_keeps(const struct worker *w, uint64_t transfer)
{
	return !w->gone && transfer && w->kept_transfer == transfer && !w->keep_drain_ns;
}

void wb__transfer_keep_end(struct worker *w, uint64_t transfer)
{
	if (w->kept_transfer != transfer) {
		tell(w, transfer, -1);
		return;
	}
	if (w->keep_drain_ns)
		return;
	w->keep_drain_ns = now_ns(w->obj->core) + TRANSFER_DRAIN_NS;
	close_sources(w);
	(void)let_go(w);
}

void wb__transfer_keep_forget(struct worker *w)
{
	if (w->kept_transfer)
		close_sources(w);
	w->kept_transfer = w->keep_drain_ns = 0;
}

uint64_t wb__transfer_keep_tick(struct object *o, uint64_t now)
{
	const struct wb_transfer_core *c = o->core;
	uint64_t next = 0;

	for (uint32_t i = 0; i < c->n_worker; i++) {
		struct worker *w = c->worker[i];

		if (w->obj == o && w->keep_drain_ns && !let_go(w))
			next = now + WB_NS_PER_MS;
	}
	return next;
}
