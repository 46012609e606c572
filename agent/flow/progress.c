/* SPDX-License-Identifier: Apache-2.0 */
/* What others are shown of a flow: counts, and who is waited for. */
#include "flow/internal.h"

#include <stdio.h>
#include <string.h>

void wb_flow_get_stats(const struct wb_flow *f, struct wb_flow_stats *out)
{
	*out = f->stats;
}

const char *wb_flow_waiting_for(struct wb_flow *f, uint32_t worker, char *out, size_t cap)
{
	out[0] = '\0';
	for (uint32_t i = 0; i < f->local->n_want; i++) {
		const struct wb_want *w = &f->local->want[i];

		if (w->worker != worker || f->want[i].state == WANT_DONE)
			continue;
		snprintf(out, cap,
			"chunk %u of class %u from worker %u, %s stage, %u of %u chunks left",
			w->chunk, w->cls, f->want[i].src,
			f->plan->worker[f->want[i].src].role == WB_ROLE_TRAINER ? "receive"
										: "exchange",
			f->sink[worker].left, f->local->n_want);
		break;
	}
	return out;
}

void wb_flow_get_progress(const struct wb_flow *f, uint32_t worker, struct wb_flow_progress *out)
{
	const struct wb_local_bytes *plan = &f->local->bytes[worker];

	*out = (struct wb_flow_progress){
		.in_bytes = f->moved[worker].in,
		.in_planned = wb_flow_was_opened(f, worker) ? plan->in : 0,
		.out_bytes = f->moved[worker].out,
		.out_planned = plan->out,
		.age_ns = wb_now_ns(f->o.env->clock) - f->created_ns,
	};
}

/* Of what is asked of other agents: the pair with most in its queue and on the wire. */
static void worst_pair(const struct wb_flow *f, uint32_t worker, struct wb_flow_lack *out)
{
	for (uint32_t src = 0; worker < f->n_asker && src < f->plan->n_worker; src++) {
		const struct pair *p = &f->pair[(size_t)worker * f->plan->n_worker + src];
		uint32_t n = p->n_all - p->n_asked + p->outstanding;

		if (n > out->chunks)
			*out = (struct wb_flow_lack){src, n, p->is_held};
	}
}

/* What the worker lacks from workers of this agent or, if that is nothing, what is in its lane. */
static void worst_here(const struct wb_flow *f, uint32_t worker, struct wb_flow_lack *out)
{
	uint32_t first = FLOW_NONE;

	for_wants (f, worker, i) {
		if (f->want[i].state == WANT_DONE || f->local->index_of[f->want[i].src] < 0)
			continue;
		if (first == FLOW_NONE)
			first = f->want[i].src;
		out->chunks += f->want[i].src == first;
	}
	out->src = first;
	if (first != FLOW_NONE)
		return;
	out->src = f->local->member[worker].plan_worker;
	out->chunks = f->sink[worker].left;
}

bool wb_flow_lacks(const struct wb_flow *f, uint32_t worker, struct wb_flow_lack *out)
{
	*out = (struct wb_flow_lack){.chunks = 0};
	if (!f->sink[worker].open || !f->sink[worker].left)
		return false;
	worst_pair(f, worker, out);
	if (!out->chunks)
		worst_here(f, worker, out);
	return true;
}
