/* SPDX-License-Identifier: Apache-2.0 */
/* Says what a plan waits for, and who holds it up: for conditions, and for workers that wait. */
#include "base/buf.h"
#include "operator-shim/reconcile/internal.h"

#include <stdio.h>

#define NAMED_MAX 5

/* A list of names in a sentence: "a, b, ..." */
struct names {
	struct wb_buf b;
	unsigned n;
};

static void add_name(struct names *l, const char *name)
{
	if (l->n < NAMED_MAX)
		wb_buf_printf(&l->b, "%s%s", l->n ? ", " : "", name);
	else if (l->n == NAMED_MAX)
		wb_buf_printf(&l->b, ", ...");
	l->n++;
}

static void say_not_ready(const struct wb_reconcile *r, char *out, size_t bytes)
{
	struct names missing;

	wb_buf_init(&missing.b, 4096);
	missing.n = 0;
	for (size_t i = 0; i < r->n_agent; i++)
		if (r->agent[i].is_in_next && !same_epoch(r->agent[i].ready, r->next.epoch))
			add_name(&missing, r->agent[i].name);
	snprintf(out, bytes, "the plan is sent; READY missing from agent%s %s",
		missing.n == 1 ? "" : "s", wb_buf_cstr(&missing.b));
	wb_buf_finish(&missing.b);
}

/* The coordinator reports the end after all engines have ended, so it is named only when no engine
 * is left. */
static void say_transfer(const struct wb_reconcile *r, char *out, size_t bytes)
{
	unsigned long long transfer = r->current.t.transfer;
	struct names missing;

	wb_buf_init(&missing.b, 4096);
	missing.n = 0;
	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		if (e->n_worker && e->ended_transfer < transfer &&
			wb__reconcile_has_engine(&r->active.who, e->name))
			add_name(&missing, e->name);
	}
	if (missing.n)
		snprintf(out, bytes,
			"the plan waits for transfer %llu to end: not ended on engine%s %s",
			transfer, missing.n == 1 ? "" : "s", wb_buf_cstr(&missing.b));
	else
		snprintf(out, bytes,
			"the plan waits for transfer %llu to end: its coordinator, agent %s, has "
			"not "
			"said that it has",
			transfer, r->current_coordinator_name);
	wb_buf_finish(&missing.b);
}

static bool say_feed(const struct wb_reconcile *r, char *out, size_t bytes)
{
	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		if (!e->feed_until_ns)
			continue;
		snprintf(out, bytes,
			"the plan waits until engine %s has version %lld from engine %s", e->name,
			(long long)e->feed.version, e->feed.source);
		return true;
	}
	return false;
}

static bool say_lost(const struct wb_reconcile *r, char *out, size_t bytes)
{
	for (size_t i = 0; i < r->n_agent; i++)
		if (r->agent[i].is_in_next && !r->agent[i].is_up) {
			snprintf(out, bytes,
				"the plan waits for agent %s, whose connection is lost, to come "
				"back or be given up",
				r->agent[i].name);
			return true;
		}
	return false;
}

static void say_sending(const struct wb_reconcile *r, char *out, size_t bytes)
{
	if (say_lost(r, out, bytes))
		return;
	if (r->next.epoch.term)
		say_not_ready(r, out, bytes);
	else if (r->current.t.transfer)
		say_transfer(r, out, bytes);
	else if (!say_feed(r, out, bytes))
		snprintf(out, bytes, "the plan is about to be sent");
}

/* Name the agents that were asked for a map or manifest that has not come. */
static void say_maps(const struct wb_reconcile *r, char *out, size_t bytes)
{
	struct names missing;

	wb_buf_init(&missing.b, 4096);
	missing.n = 0;
	for (size_t k = 0; k < r->n_agent; k++) {
		bool is_asked = false;

		for (size_t i = 0; i < r->n_blob && r->agent[k].is_up; i++)
			is_asked |= !r->blob[i].is_here && r->blob[i].asked == r->agent[k].id;
		if (is_asked)
			add_name(&missing, r->agent[k].name);
	}
	snprintf(out, bytes, "reading source maps%s%s%s", missing.n ? " of agent" : "",
		missing.n > 1    ? "s "
		: missing.n == 1 ? " "
				 : "",
		wb_buf_cstr(&missing.b));
	wb_buf_finish(&missing.b);
}

void wb__reconcile_say_wait(const struct wb_reconcile *r, char *out, size_t bytes)
{
	out[0] = '\0';
	switch (r->stage) {
	case STAGE_NONE:
		snprintf(out, bytes, "waiting for members");
		break;
	case STAGE_SETTLING:
		snprintf(out, bytes, "all members are here, waiting a moment for more");
		break;
	case STAGE_BLOBS:
		say_maps(r, out, bytes);
		break;
	case STAGE_COMPUTING:
		snprintf(out, bytes, "planning");
		break;
	case STAGE_SENDING:
		say_sending(r, out, bytes);
		break;
	case STAGE_FAILED:
		break; /* conditions say the reason */
	}
}
