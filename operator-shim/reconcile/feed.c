/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that are behind get the current version from one that has it. */
#include "base/mem.h"
#include "operator-shim/reconcile/internal.h"

#include <stdio.h>
#include <string.h>

#define ATTEMPTS_MAX 5
#define BACKOFF_NS WB_NS_PER_S

bool wb__reconcile_is_source(const struct wb_reconcile *r, const struct engine *e)
{
	return e->n_up == r->spec.workers_per_engine && !e->is_mixed && !e->held.is_torn &&
	       e->held.transfer && e->held.transfer == r->top.transfer &&
	       wb__reconcile_has_engine(&r->active.who, e->name);
}

static bool is_behind(const struct wb_reconcile *r, const struct engine *e)
{
	return e->n_up == r->spec.workers_per_engine && r->top.transfer &&
	       (e->is_mixed || e->held.is_torn || e->held.transfer < r->top.transfer) &&
	       wb__reconcile_has_engine(&r->active.who, e->name);
}

/* Whether each agent of one engine has an address family in common with each agent of the other. */
static bool is_in_reach(const struct engine *a, const struct engine *b)
{
	return !(a->only & WB_RECONCILE_IPV4 && b->only & WB_RECONCILE_IPV6) &&
	       !(a->only & WB_RECONCILE_IPV6 && b->only & WB_RECONCILE_IPV4);
}

/* The sources that @e reaches take turns, so that each try asks another one.  @n_apart: how many
 * sources it does not reach. */
static const struct engine *pick_source(
	const struct wb_reconcile *r, const struct engine *e, uint32_t turn, uint32_t *n_apart)
{
	uint32_t n = 0;

	*n_apart = 0;
	for (size_t i = 0; i < r->n_engine; i++)
		if (wb__reconcile_is_source(r, &r->engine[i]))
			++*(is_in_reach(e, &r->engine[i]) ? &n : n_apart);
	if (!n)
		return NULL;
	turn %= n;
	for (size_t i = 0; i < r->n_engine; i++)
		if (wb__reconcile_is_source(r, &r->engine[i]) && is_in_reach(e, &r->engine[i]) &&
			turn-- == 0)
			return &r->engine[i];
	return NULL;
}

/* Raise the event once for each version, since only the next version or another source helps. */
static int say_apart(struct wb_reconcile *r, struct engine *e, uint32_t n_apart)
{
	char text[400];

	if (!n_apart || e->apart_transfer == r->top.transfer)
		return 0;
	e->apart_transfer = r->top.transfer;
	snprintf(text, sizeof(text),
		"engine %s is behind and cannot be fed: of %u engines with version %lld none has "
		"addresses of its family (IPv4, IPv6); the next version brings it up to date",
		e->name, n_apart, (long long)r->top.version);
	return wb__reconcile_event_about(r, "EngineNotFed", e->name, text);
}

static void end_feed(struct engine *e)
{
	memset(&e->feed, 0, sizeof(e->feed));
	e->feed_until_ns = e->feed_next_ns = 0;
}

void wb__reconcile_stop_feeds(struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->n_engine; i++)
		end_feed(&r->engine[i]);
	r->n_feed = 0;
}

void wb__reconcile_feed_failed(
	struct wb_reconcile *r, struct engine *e, struct wb_reconcile_now now)
{
	(void)r;
	e->feed_until_ns = 0;
	e->feed_next_ns = now.ns + (BACKOFF_NS << e->feed.attempt);
}

static int start_feed(struct wb_reconcile *r, struct engine *e, struct wb_reconcile_now now)
{
	const struct engine *src;
	uint32_t n_apart;
	char text[400];

	if (e->feed.transfer != r->top.transfer)
		e->feed.attempt = 0;
	src = pick_source(r, e, e->feed.attempt, &n_apart);
	if (!src)
		return say_apart(r, e, n_apart);
	memcpy(e->feed.engine, e->name, sizeof(e->feed.engine));
	memcpy(e->feed.source, src->name, sizeof(e->feed.source));
	e->feed.transfer = r->top.transfer;
	e->feed.version = r->top.version;
	e->feed.attempt++;
	/* Agents may know the serial of a try of an earlier operator: begin at a number that comes
	 * from our own id. */
	if (!r->feed_serial)
		r->feed_serial = (uint32_t)wb_mix64(r->o.operator_id);
	r->feed_serial += r->feed_serial == UINT32_MAX ? 2 : 1;
	e->feed.serial = r->feed_serial;
	e->feed_until_ns = now.ns + r->spec.transfer_deadline_s * WB_NS_PER_S;
	r->feed_gen++;
	snprintf(text, sizeof(text), "engine %s gets version %lld from engine %s", e->name,
		(long long)r->top.version, src->name);
	return wb__reconcile_event_about(r, "EngineFed", e->name, text);
}

/* Whether all workers of the engine are connected.  A source that died does not report the end of
 * its feed. */
static bool is_there(struct wb_reconcile *r, const char *engine)
{
	const struct engine *e = wb__reconcile_engine(r, engine);

	return e && e->n_up == r->spec.workers_per_engine;
}

/* Whether the engine dropped the last transfer for the next version, which is still expected.  A
 * feed would stop the engine, write parameters in place and be overtaken by that version: the
 * engine would be torn, where it is intact now. */
static bool gets_the_next(
	struct wb_reconcile *r, const struct engine *e, struct wb_reconcile_now now)
{
	if (!e->superseded || e->superseded != r->transfer_seen || now.ns >= e->next_comes_ns)
		return false;
	wb__reconcile_due(r, e->next_comes_ns);
	return true;
}

static int look_at(struct wb_reconcile *r, struct engine *e, struct wb_reconcile_now now)
{
	if (!is_behind(r, e)) {
		if (e->feed_until_ns)
			wb__reconcile_due(r, now.ns); /* a plan may have waited for it */
		end_feed(e);
		return 0;
	}
	if (e->feed_until_ns && (now.ns >= e->feed_until_ns || !is_there(r, e->feed.source)))
		wb__reconcile_feed_failed(r, e, now);
	if (e->feed_until_ns) {
		wb__reconcile_due(r, e->feed_until_ns);
		return 0;
	}
	if (e->feed.transfer == r->top.transfer && e->feed.attempt >= ATTEMPTS_MAX)
		return 0; /* the next transfer brings it up to date */
	if (now.ns < e->feed_next_ns) {
		wb__reconcile_due(r, e->feed_next_ns);
		return 0;
	}
	if (gets_the_next(r, e, now))
		return 0;
	return start_feed(r, e, now);
}

static int list_feeds(struct wb_reconcile *r)
{
	size_t n = 0;
	int rc;

	rc = wb_grow(&r->feed, &r->feed_cap, r->n_engine, WB_WORKERS_MAX, sizeof(*r->feed));
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < r->n_engine; i++)
		if (r->engine[i].feed_until_ns)
			r->feed[n++] = r->engine[i].feed;
	r->n_feed = n;
	return 0;
}

int wb__reconcile_feed(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	bool is_allowed = r->active.epoch.term && !r->current.t.transfer && !r->spec.suspend &&
			  (r->stage == STAGE_NONE || r->stage == STAGE_FAILED || r->is_checking);
	int rc = 0;

	for (size_t i = 0; i < r->n_engine && rc == 0; i++)
		if (is_allowed || r->engine[i].feed_until_ns)
			rc = look_at(r, &r->engine[i], now);
	return rc == 0 ? list_feeds(r) : rc;
}
