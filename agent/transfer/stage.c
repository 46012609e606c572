/* SPDX-License-Identifier: Apache-2.0 */
/* A staged party: receives into areas while its workers run, and has them install at the stop. */
#include "transfer/party.h"

#include "transfer/ballot.h"
#include "transfer/epoch.h"
#include "transfer/flows.h"
#include "transfer/object.h"
#include "transfer/states.h"
#include "transfer/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_attached(struct party *p)
{
	for_party_worker (p->e, p->engine, i) {
		char text[512];

		if (wb__transfer_can_take_part(p->e, i, text, sizeof(text)) &&
			p->e->member[i]->area.head)
			continue;
		wb__transfer_party_fail(p, -ENOTCONN, text);
		return false;
	}
	return true;
}

/* Nothing of an older transfer is read from the areas or lands there any more: fill them. */
static void clear(struct party *p)
{
	struct epoch *e = p->e;

	for_party_worker (e, p->engine, i) {
		struct wb_area_head *h = e->member[i]->area.head;

		wb_area_set(h, WB_AREA_FILLING);
		h->transfer = p->transfer;
		h->version = p->version;
		h->n_judge = e->r->all_engines ? wb__transfer_judges(e, h->judge) : 0;
	}
	p->drain_ns = now_ns(e->obj->core) + TRANSFER_DRAIN_NS;
	if (wb__transfer_flows_quiet(e, p->engine, p->transfer, QUIET_AREAS, false))
		wb__transfer_party_open(p);
}

void wb__transfer_party_stage(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p;

	if (!e->staged)
		return;
	p = wb__transfer_party_begin(e, from, m, true);
	wb__transfer_party_set(p, PARTY_CLEARING);
	wb__transfer_party_expect_end(p);
	/* The same engine's party under the plan before ends: what it knew is in the areas, and its
	 * workers are let go. */
	wb__transfer_party_overtaken(e, p->engine);
	e->obj->highest = WB_MAX(e->obj->highest, m->transfer);
	wb__transfer_flows_prune(e->obj, m->transfer);
	if (is_attached(p))
		clear(p);
}

/* Everything is in the areas and verified.  The areas themselves say so, for the agent that comes
 * next. */
void wb__transfer_party_staged(struct party *p)
{
	wb__transfer_party_set(p, PARTY_STAGED);
	for_party_worker (p->e, p->engine, i) {
		struct wb_area_head *h = p->e->member[i] ? p->e->member[i]->area.head : NULL;
		struct wbk_sum s = wb_flow_worker_sum(p->flow, i);

		if (!h)
			continue; /* it left: the lead knows */
		h->sum[0] = s.lane[0];
		h->sum[1] = s.lane[1];
		wb_area_set(h, WB_AREA_WHOLE);
	}
	wb__transfer_trace(p->e->obj, "staged", p->e->r->engine[p->engine].name, p->transfer, 0);
}

static bool is_whole(const struct worker *w, uint64_t transfer)
{
	return w && w->area.head && w->area.head->transfer == transfer &&
	       wb_area_state(w->area.head) >= WB_AREA_WHOLE;
}

/* STOP for a staged install.  False: it is not possible, and the lead has been told. */
bool wb__transfer_party_restage(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct party *p = &e->party[m->engine];

	if (p->transfer != m->transfer || p->state != PARTY_STAGED) {
		wb__transfer_party_begin(e, from, m, true);
		wb__transfer_party_set(p, PARTY_STAGED);
		wb__transfer_party_overtaken(e, p->engine);
	}
	p->lead = from;
	p->is_decided = m->is_decided;
	e->obj->highest = WB_MAX(e->obj->highest, m->transfer);
	if (!is_attached(p))
		return false;
	for_party_worker (e, p->engine, i) {
		char text[512];

		if (is_whole(e->member[i], p->transfer))
			continue;
		snprintf(text, sizeof(text), "%s has lost what was staged", e->member[i]->w.name);
		wb__transfer_party_fail(p, -ENODATA, text);
		return false;
	}
	return true;
}

/* INSTALL: from here on there is no way back. */
void wb__transfer_party_install(struct party *p)
{
	wb__transfer_party_set(p, PARTY_OPENING);
	p->drain_ns = now_ns(p->e->obj->core) + TRANSFER_DRAIN_NS;
	if (wb__transfer_flows_quiet(p->e, p->engine, p->transfer, QUIET_PARAMS, false))
		wb__transfer_party_copy(p);
}

void wb__transfer_party_copy(struct party *p)
{
	const struct wb_transfer_core *c = p->e->obj->core;
	struct wb_msg_app_install m = {.transfer = p->transfer, .version = p->version};
	struct wb_fault_at at = {(uint64_t)p->version, p->transfer, WB_FAULT_ANY};
	struct wb_fault_hit hit;

	m.read_back = p->e->r->read_back;
	wb__transfer_party_set(p, PARTY_COPYING);
	p->copy_ns = now_ns(p->e->obj->core);
	p->is_opened = true;
	wb__transfer_trace(p->e->obj, "install", p->e->r->engine[p->engine].name, p->transfer, 0);
	for_party_worker (p->e, p->engine, i) {
		struct worker *w = p->e->member[i];

		if (!w)
			continue;
		w->installed = false;
		w->held_transfer = 0;
		wb_fault_hit(c->env->fault, WB_FAULT_COPY, &at, &hit);
		m.flip = hit.actions & WB_FAULT_FLIP ? (hit.bit >> 1) + 1 : 0;
		wb__transfer_to_worker(w, WBP_APP_INSTALL, &m);
	}
}

/* Report mismatches with names, and count them, one for each piece. */
static void tell_mismatch(
	const struct worker *w, const struct party *p, const struct wb_msg_app_installed *m)
{
	const struct wb_transfer_env *env = p->e->obj->core->env;
	const struct wb_map *map = w->w.map;
	struct wb_transfer_mismatch x = {.place = wb_flow_place_name(WB_FLOW_INSTALL),
		.object = p->e->obj->name,
		.id = &p->e->obj->id,
		.dst = w->w.name,
		.param = m->param < map->n_param ? map->param[m->param].name : "?",
		.transfer = p->transfer,
		.rail = WB_FLOW_NO_RAIL,
		.n = WB_MIN(m->mismatched, 1000u)};

	if (!x.n)
		return;
	wb__transfer_trace(p->e->obj, "mismatch", w->w.name, p->transfer, m->param);
	if (env->mismatch)
		env->mismatch(env->ctx, &x);
}

void wb__transfer_party_installed(
	struct worker *w, struct party *p, const struct wb_msg_app_installed *m)
{
	char text[WB_ERR_MSG_MAX];

	if (p->state != PARTY_COPYING || m->transfer != p->transfer)
		return;
	tell_mismatch(w, p, m);
	if (m->code < 0) {
		snprintf(text, sizeof(text), "%s did not install: %.800s", w->w.name,
			m->sentence && m->sentence[0] ? m->sentence : wb_strerror((int)m->code));
		wb__transfer_party_fail(p, (int)m->code, text);
		return;
	}
	w->installed = true;
	for_party_worker (p->e, p->engine, i)
		if (!p->e->member[i] || !p->e->member[i]->installed)
			return;
	wb__transfer_party_set(p, PARTY_COMPLETE);
	p->copied_ns = now_ns(p->e->obj->core);
	wb__transfer_party_progress(p, PROGRESS_INSTALLED);
}

/* Aborted: the areas hold nothing that counts. */
void wb__transfer_party_forget(struct epoch *e, uint32_t engine, uint64_t transfer)
{
	for_party_worker (e, engine, i) {
		struct wb_area_head *h = e->member[i] ? e->member[i]->area.head : NULL;

		if (h && h->transfer == transfer && h->held_transfer != transfer &&
			wb_area_state(h) <= WB_AREA_WHOLE)
			wb_area_set(h, WB_AREA_EMPTY);
	}
}
