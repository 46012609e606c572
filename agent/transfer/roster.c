/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/roster.h"

#include "base/base.h"
#include "base/mem.h"
#include "planner/plan.h"

#include <string.h>

struct wb_roster *wb_roster_create(const struct wb_epoch_id *id)
{
	struct wb_roster *r = wb_zalloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->id = *id;
	r->refs = 1;
	return r;
}

struct wb_roster *wb_roster_get(struct wb_roster *r)
{
	assert(r->refs && r->refs < UINT32_MAX);
	r->refs++;
	return r;
}

void wb_roster_on_end(
	struct wb_roster *r, void (*gone)(void *ctx, const struct wb_roster *r), void *ctx)
{
	assert(r->refs && !r->gone);
	r->gone = gone;
	r->gone_ctx = ctx;
}

static void free_agent(struct wb_roster_agent *a)
{
	wb_free(a->name);
	wb_free(a->control);
	wb_free(a->bulk);
	for (uint32_t k = 0; k < a->n_addr; k++) {
		wb_free(a->addr[k]);
		if (k)
			wb_free(a->more_bulk[k - 1]);
	}
	wb_free(a->addr);
	wb_free(a->more_bulk);
}

void wb_roster_put(struct wb_roster *r)
{
	if (!r)
		return;
	assert(r->refs);
	if (--r->refs)
		return;
	if (r->gone)
		r->gone(r->gone_ctx, r);
	for (uint32_t i = 0; r->agent && i < r->n_agent; i++)
		free_agent(&r->agent[i]);
	for (uint32_t i = 0; r->engine && i < r->n_engine; i++)
		wb_free(r->engine[i].name);
	for (uint32_t i = 0; r->worker && i < r->n_worker; i++)
		wb_free(r->worker[i].name);
	wb_free(r->agent);
	wb_free(r->engine);
	wb_free(r->worker);
	wb_free(r->object);
	wb_free(r->allowed);
	wb_plan_destroy(r->plan);
	explicit_bzero(r->key, sizeof(r->key));
	wb_free(r);
}
