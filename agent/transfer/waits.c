/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for whom, in sentences: each wait has a name and an end. */
#include "transfer/object.h"

#include "base/buf.h"
#include "transfer/ballot.h"
#include "transfer/coordinator.h"
#include "transfer/epoch.h"
#include "transfer/lead.h"
#include "transfer/party.h"
#include "transfer/states.h"
#include "transfer/trainers.h"
#include "transfer/worker.h"

#include <stdio.h>
#include <string.h>

#define WAIT_MAX 768

struct waits {
	struct wb_buf *out;
	const struct object *o;
	uint64_t now;
	bool any;
};

/* One sentence: in which transfer and epoch, what waits for whom, and for how long at most. */
static void put_wait(struct waits *x, const struct epoch *e, uint64_t transfer, const char *what,
	const char *whom, uint64_t deadline_ns)
{
	char text[2 * WAIT_MAX], left[64] = "";

	if (deadline_ns)
		snprintf(left, sizeof(left), ", for %.1f s more at most",
			deadline_ns > x->now ? (double)(deadline_ns - x->now) / 1e9 : 0.0);
	snprintf(text, sizeof(text), "transfer %llu, epoch %llu.%llu: %s%s%s%s",
		(unsigned long long)transfer, (unsigned long long)e->r->id.term,
		(unsigned long long)e->r->id.number, what, whom[0] ? " waits for " : "", whom,
		left);
	wb_buf_printf(x->out, "%s", x->any ? "," : "");
	wb_buf_json_str(x->out, text);
	x->any = true;
}

/* A list of names, short. */
static void add_name(char *out, size_t cap, const char *name, const char *what)
{
	size_t at = strlen(out);

	if (at + 80 < cap)
		snprintf(out + at, cap - at, "%s%.200s%s%s", at ? ", " : "", name,
			what[0] ? " " : "", what);
}

const char *wb__transfer_owes(const struct party *p, const struct worker *w)
{
	switch (p->state) {
	case PARTY_STOPPING:
		return !w || !w->is_parked || !p->has_target || w->parked_at != p->target
			       ? "to stop at the target"
			       : NULL;
	case PARTY_HOOKS:
		return !w || !w->begun ? "in before_update_hook" : NULL;
	case PARTY_COPYING:
		return !w || !w->installed ? "to install" : NULL;
	case PARTY_ENDING:
		return w && w->resuming == p->transfer ? "in after_update_hook" : NULL;
	default:
		return NULL;
	}
}

/* A party waits for its own workers, unless its lead or others are awaited. */
static void say_party(const struct party *p, char *whom, size_t cap)
{
	const char *lead = p->e->r->agent[p->lead].name;
	char text[256];

	for_party_worker (p->e, p->engine, i) {
		const struct worker *w = p->e->member[i];
		const char *name =
			wb__transfer_worker_name(p->e, p->e->local->member[i].plan_worker);
		const char *owes = wb__transfer_owes(p, w);

		if (owes) {
			snprintf(text, sizeof(text), "%s%s", owes,
				!w || w->gone ? " (it is gone)" : "");
			add_name(whom, cap, name, text);
		} else if (p->state == PARTY_MOVING && p->flow &&
			   !wb_flow_sink_complete(p->flow, i)) {
			snprintf(whom, cap, "%s",
				wb_flow_waiting_for(p->flow, i, text, sizeof(text)));
			return;
		}
	}
	if (p->state == PARTY_OPENING || p->state == PARTY_CLEARING)
		snprintf(whom, cap, "readers of the version before");
	else if (!whom[0])
		snprintf(whom, cap, "the engine's lead, agent %s", lead);
	else if (p->state == PARTY_STOPPING && !p->has_target)
		snprintf(whom, cap, "the target from the engine's lead, agent %s", lead);
}

static void put_lead(struct waits *x, const struct lead *l)
{
	char whom[WAIT_MAX] = "", what[256];

	if (!wb__transfer_leads_run(l))
		return;
	for (uint32_t a = 0; a < l->e->r->n_agent; a++)
		if (wb__transfer_lead_is_late(l, a))
			add_name(whom, sizeof(whom), l->e->r->agent[a].name,
				l->agent[a].down ? "(gone)" : "");
	if (l->state == LEAD_STAGED)
		snprintf(whom, sizeof(whom), "%s",
			l->ballot.state != BALLOT_NONE ? "judges (agents with trainer workers)"
						       : "the coordinator's decision");
	snprintf(what, sizeof(what), "lead of engine %.100s (%s%s)",
		l->e->r->engine[l->engine].name, wb__transfer_lead_name(l->state),
		l->is_feed ? ", feed" : "");
	put_wait(x, l->e, l->transfer, what, whom, l->deadline_ns);
}

static void put_coordinator(struct waits *x, const struct coordinator *l)
{
	char whom[WAIT_MAX] = "", text[128];

	if (l->state == COORDINATOR_IDLE)
		return;
	for (uint32_t en = 0; en < l->e->r->n_engine; en++) {
		const struct coordinator_engine *g = &l->engine[en];

		if (!g->takes_part || wb__transfer_is_end(g->state))
			continue;
		snprintf(text, sizeof(text), "of agent %.60s (%s)",
			l->e->r->agent[l->e->r->engine[en].lead].name,
			wb_word(&wb_engine_state_words, g->state));
		add_name(whom, sizeof(whom), l->e->r->engine[en].name, text);
	}
	put_wait(x, l->e, l->transfer, l->is_feed ? "coordinator of a feed" : "coordinator", whom,
		l->deadline_ns);
}

static void put_trainers(struct waits *x)
{
	const struct trainers *t = &x->o->trainers;
	char whom[WAIT_MAX], what[64];

	if (t->state == TRAINERS_IDLE || !t->e)
		return;
	snprintf(what, sizeof(what), "send_weights (%s)", wb__transfer_trainers_name(t->state));
	if (t->state == TRAINERS_RELEASING)
		snprintf(whom, sizeof(whom), "readers of the parameters");
	else
		snprintf(whom, sizeof(whom), "the coordinator, agent %.200s",
			t->e->r->agent[t->e->r->coordinator].name);
	put_wait(x, t->e, t->transfer, what, whom, t->state == TRAINERS_ASKED ? 0 : t->deadline_ns);
}

/* Workers here that are torn, between two runs. */
static void put_torn(struct waits *x, const struct epoch *e, uint32_t engine)
{
	const struct worker *first = NULL;
	char what[256];

	for_party_worker (e, engine, i) {
		const struct worker *w = e->member[i];

		if (w && !w->gone && w->past.is_torn && !first)
			first = w;
	}
	if (!first)
		return;
	snprintf(what, sizeof(what), "workers here of engine %.100s (Torn)",
		e->r->engine[engine].name);
	put_wait(x, e, first->repair_transfer, what, "a repair", first->repair_ns);
}

void wb__transfer_waits_json(const struct object *o, struct wb_buf *out)
{
	struct waits x = {.out = out, .o = o, .now = now_ns(o->core)};

	wb_buf_printf(out, ",\"waits\":[");
	put_coordinator(&x, &o->coordinator);
	for (const struct coordinator *f = o->feeds; f; f = f->next)
		put_coordinator(&x, f);
	put_trainers(&x);
	for (int k = 0; k < 2; k++) {
		const struct epoch *e = k ? o->prev : o->cur;

		for (uint32_t en = 0; e && en < e->r->n_engine; en++) {
			const struct party *p = &e->party[en];
			char what[256], whom[WAIT_MAX] = "";

			put_lead(&x, &e->lead[en]);
			if (p->state == PARTY_NONE) {
				if (!k)
					put_torn(&x, e, en);
				continue;
			}
			say_party(p, whom, sizeof(whom));
			snprintf(what, sizeof(what), "workers here of engine %.100s (%s%s)",
				e->r->engine[en].name, wb__transfer_party_name(p->state),
				p->is_feed ? ", feed" : "");
			put_wait(&x, e, p->transfer, what, whom, p->deadline_ns);
		}
	}
	wb_buf_u8(out, ']');
}
