/* SPDX-License-Identifier: Apache-2.0 */
/* What a transfer comes to when its engines have ended: a result, a code for the trainers, and
 * which engine is to be named. */
#include "transfer/outcome.h"

#include "base/base.h"
#include "transfer/epoch.h"

#include <stdio.h>

bool wb__transfer_is_joint(const struct coordinator *l)
{
	return l->e->r->all_engines && l->e->r->rollout_staged && !l->is_feed;
}

/* Engines, counted. */
struct tally {
	uint32_t n, committed, torn;
	const struct coordinator_engine *worst; /* worst that did not commit; NULL = none */
	const char *worst_name;
};

static unsigned badness(enum wb_engine_state s)
{
	switch (s) {
	case WB_ENGINE_COMMITTED:
		return 0;
	case WB_ENGINE_TORN:
		return 3;
	case WB_ENGINE_UNKNOWN:
		return 2;
	default:
		return 1;
	}
}

static void sum_up(const struct coordinator *l, struct tally *o)
{
	*o = (struct tally){0};
	for (uint32_t en = 0; en < l->e->r->n_engine; en++) {
		const struct coordinator_engine *x = &l->engine[en];

		if (!x->takes_part)
			continue;
		o->n++;
		o->committed += x->state == WB_ENGINE_COMMITTED;
		o->torn += x->state == WB_ENGINE_TORN;
		if (badness(x->state) > (o->worst ? badness(o->worst->state) : 0)) {
			o->worst = x;
			o->worst_name = l->e->r->engine[en].name;
		}
	}
}

static enum wb_result result_of(const struct coordinator *l, const struct tally *o)
{
	enum wb_engine_state worst = o->worst ? o->worst->state : WB_ENGINE_ABORTED;

	if (o->committed)
		return o->torn ? WB_RESULT_PARTLY_TORN : WB_RESULT_SUCCEEDED;
	if (l->is_superseded)
		return WB_RESULT_SUPERSEDED;
	return worst == WB_ENGINE_TORN      ? WB_RESULT_TORN
	       : worst == WB_ENGINE_UNKNOWN ? WB_RESULT_UNKNOWN
					    : WB_RESULT_ABORTED;
}

/* The code for all trainers: nobody is told that weights are intact if they may not be. */
static int code_of(const struct coordinator *l, const struct tally *o)
{
	if (l->is_superseded ||
		(o->committed && (!wb__transfer_is_joint(l) || o->committed == o->n)))
		return 0;
	if (o->worst && o->worst->state == WB_ENGINE_TORN)
		return WB_ETORN;
	return o->worst && o->worst->state == WB_ENGINE_UNKNOWN ? WB_EUNKNOWN : WB_EABORTED;
}

static void say_why(const struct tally *o, char *out, size_t bytes)
{
	const struct coordinator_engine *x = o->worst;

	out[0] = '\0';
	if (x && x->state == WB_ENGINE_TORN)
		snprintf(out, bytes,
			"%u of %u Torn: engine %.127s holds a mix of two versions until the next "
			"transfer: %s",
			o->torn, o->n, o->worst_name, x->sentence);
	else if (x && x->state == WB_ENGINE_UNKNOWN)
		snprintf(out, bytes, "it is not known which version engine %.127s holds: %s",
			o->worst_name, x->sentence);
	else if (x)
		snprintf(out, bytes, "%s", x->sentence);
}

void wb__transfer_outcome_free(struct outcome *f)
{
	wb_free(f->name);
	wb_free(f->why);
	wb_free(f->state);
}

void wb__transfer_outcome(const struct coordinator *l, struct outcome *f, struct wb_peer_FINAL *m)
{
	const struct epoch *e = l->e;
	struct tally o;

	*f = (struct outcome){.name = wb_zalloc(e->r->n_engine, sizeof(*f->name)),
		.why = wb_zalloc(e->r->n_engine, sizeof(*f->why)),
		.state = wb_zalloc(e->r->n_engine, sizeof(*f->state))};
	for (uint32_t en = 0; f->name && f->why && f->state && en < e->r->n_engine; en++) {
		const struct coordinator_engine *x = &l->engine[en];

		if (!x->takes_part)
			continue;
		f->name[f->n] = e->r->engine[en].name;
		f->state[f->n] = x->is_superseded ? WB_ENGINE_SUPERSEDED : x->state;
		f->why[f->n++] = x->sentence;
	}
	sum_up(l, &o);
	say_why(&o, f->text, sizeof(f->text));
	f->result = result_of(l, &o);
	*m = (struct wb_peer_FINAL)WB_PEER_FIELDS(FINAL, .transfer = l->transfer,
		.version = l->version, .engines = f->name, .n_engines = f->n, .states = f->state,
		.n_states = f->n, .elapsed_ns = l->idle_ns - l->begin_ns, .code = code_of(l, &o));
	m->sentence = f->text[0] || m->code ? f->text : NULL;
}
