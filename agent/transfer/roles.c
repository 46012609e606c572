/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is who in an epoch, by its plan and roster, and whether a message is one that its sender may
 * say.  What it means at this moment only the receiver knows: this file looks at no run's state.
 */
#include "transfer/epoch.h"

#include "base/log.h"
#include "proto/peers.h"
#include "transfer/object.h"

#include <errno.h>
#include <string.h>

static size_t bit_of(const struct epoch *e, uint32_t engine, uint32_t agent)
{
	return (size_t)engine * e->r->n_agent + agent;
}

int wb__transfer_roles_create(struct epoch *e)
{
	e->trains = wb_zalloc(e->r->n_agent, sizeof(*e->trains));
	e->leads = wb_zalloc(e->r->n_agent, sizeof(*e->leads));
	e->has_party = wb_zalloc((size_t)e->r->n_engine * e->r->n_agent / 8 + 1, 1);
	if (!e->trains || !e->leads || !e->has_party)
		return -ENOMEM;
	for (uint32_t en = 0; en < e->r->n_engine; en++)
		e->leads[e->r->engine[en].lead] = true;
	for (uint32_t w = 0; w < e->plan->n_worker; w++) {
		const struct wb_plan_worker *pw = &e->plan->worker[w];
		size_t bit;

		if (pw->role == WB_ROLE_TRAINER) {
			e->trains[pw->domain] = true;
			continue;
		}
		bit = bit_of(e, pw->engine, pw->domain);
		e->has_party[bit / 8] |= (uint8_t)(1u << bit % 8);
	}
	return 0;
}

void wb__transfer_roles_finish(struct epoch *e)
{
	wb_free(e->trains);
	wb_free(e->leads);
	wb_free(e->has_party);
}

static uint32_t roles_of(const struct epoch *e, uint32_t agent, const struct wb_msg_peer *m)
{
	/* The lead of an engine may also coordinate a feed from it. */
	bool leads_it = agent == e->r->coordinator || (m->feed && e->leads[agent]);
	uint32_t roles = leads_it ? WBP_ROLE_COORDINATOR : 0;
	size_t bit;

	if (e->trains[agent])
		roles |= WBP_ROLE_TRAINERS;
	if (m->engine >= e->r->n_engine)
		return roles;
	if (e->r->engine[m->engine].lead == agent)
		roles |= WBP_ROLE_LEAD;
	bit = bit_of(e, m->engine, agent);
	if (e->has_party[bit / 8] >> bit % 8 & 1)
		roles |= WBP_ROLE_PARTY;
	return roles;
}

bool wb__transfer_has_trainer(const struct epoch *e, uint32_t agent)
{
	return e->trains[agent];
}

uint32_t wb__transfer_engine_in(const struct epoch *to, const struct epoch *e, uint32_t engine)
{
	for (uint32_t en = 0; to && en < to->r->n_engine; en++)
		if (!strcmp(to->r->engine[en].name, e->r->engine[engine].name))
			return en;
	return UINT32_MAX;
}

bool wb__transfer_may_say(struct epoch *e, uint32_t from, const struct wb_msg_peer *m)
{
	struct wb_err err = {0};
	uint64_t n;

	if (wb_peer_check(m, e->r->n_engine, roles_of(e, from, m), roles_of(e, e->me, m), &err) ==
		0)
		return true;
	n = ++e->obj->core->violations;
	if ((n & (n - 1)) == 0) /* the 1st, 2nd, 4th ... */
		WB_LOG_WRN("transfer", "a message that its sender may not say is not heard",
			WB_S("agent", e->r->agent[from].name), WB_S("reason", err.msg),
			WB_U("so_far", n));
	return false;
}

uint64_t wb_transfer_violations(const struct wb_transfer_core *c)
{
	return c->violations;
}
