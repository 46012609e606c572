/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: frames of old plans, and an operator that is gone in the middle of a plan. */
#include "tests/common/chaos.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 128 /* messages: of the last 4 times as many, every 4th */
#define PLAN_NS (60 * WB_NS_PER_S)
#define REPLAY_NS (20 * WB_NS_PER_MS)

struct kept {
	struct chaos *c;
	char from[32], to[32];
	uint64_t term, number;
	void *data; /* owned */
	size_t bytes;
};

struct chaos_late {
	struct kept kept[KEPT];
	uint64_t n; /* so many came by */
};

void chaos_late_message(void *ctx, const struct world_agent *from, const char *to,
	const struct wb_msg_peer *m, const void *data, size_t bytes)
{
	struct chaos *c = ctx;
	struct kept *k;

	if (!c->late)
		c->late = calloc(1, sizeof(*c->late));
	if (c->late->n++ % 4)
		return;
	k = &c->late->kept[c->late->n / 4 % KEPT];
	free(k->data);
	*k = (struct kept){.c = c, .term = m->term, .number = m->number, .bytes = bytes};
	k->data = malloc(bytes);
	memcpy(k->data, data, bytes);
	snprintf(k->from, sizeof(k->from), "%s", from->name);
	snprintf(k->to, sizeof(k->to), "%s", to);
}

void chaos_late_free(struct chaos *c)
{
	for (uint32_t i = 0; c->late && i < KEPT; i++)
		free(c->late->kept[i].data);
	free(c->late);
	c->late = NULL;
}

static void on_late(void *ctx)
{
	struct kept *k = ctx;

	if (!k->c->digest)
		(void)wb_sim_send(k->c->w->net, k->from, k->to, k->data, k->bytes);
}

void chaos_late_frames(struct chaos *c)
{
	const struct world_epoch *e = c->op.active;
	struct world *w = c->w;

	for (uint32_t i = 0; c->late && i < KEPT; i++) {
		struct kept *k = &c->late->kept[i];

		if (!k->data || (k->term == e->id.term && k->number == e->id.number))
			continue;
		wb_sim_timer(w->net, world_now(w) + wb_rng_below(&c->rng, REPLAY_NS), on_late, k);
	}
}

static bool has_trainer_activated(const struct chaos *c)
{
	for (uint32_t i = 0; i < c->w->n_trainer; i++)
		if (c->op.activated[c->w->worker[i].agent])
			return true;
	return false;
}

void chaos_half_activated(struct chaos *c)
{
	struct world *w = c->w;
	uint32_t engine = (uint32_t)wb_rng_below(&c->rng, w->o.engines);
	const struct world_epoch *before = c->op.active;
	uint64_t end = world_now(w) + PLAN_NS;

	for (uint32_t i = w->n_trainer; i < w->n_worker; i++)
		if (w->worker[i].engine == engine) {
			world_kill_worker(w, i);
			world_start_worker(w, i);
		}
	while (c->op.active == before || !has_trainer_activated(c))
		if (!chaos_step(c))
			return;
		else if (world_now(w) > end) {
			chaos_wrong(c, "no plan with the new workers of an engine");
			return;
		}
	world_op_kill(&c->op);
	/* The others have waited for ACTIVATE long enough, or not. */
	for (end = world_now(w) + wb_rng_below(&c->rng, 2 * WB_NS_PER_S); world_now(w) < end;)
		if (!chaos_step(c))
			return;
	chaos_late_frames(c);
	chaos_transfer(c);
}
