/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_said.h"

struct world w;
struct world_op op;
struct said said[SAID_MAX];
uint32_t n_said;
struct told told;

static void note_said(void *ctx, const struct world_agent *from, const char *to,
	const struct wb_msg_peer *m, const void *data, size_t bytes)
{
	struct said *s = &said[n_said % SAID_MAX];

	(void)ctx;
	(void)data;
	(void)bytes;
	n_said++;
	*s = (struct said){.from = from, .m = *m};
	snprintf(s->to, sizeof(s->to), "%s", to);
	snprintf(s->sentence, sizeof(s->sentence), "%s", m->sentence ? m->sentence : "");
}

static void note_report(void *ctx, struct world_agent *a, const struct wb_transfer_report *rep)
{
	(void)ctx;
	if (op.alive)
		world_op_report(&op, a, rep);
	if (rep->kind == WB_REPORT_STARTED)
		return;
	told.is_final = rep->kind == WB_REPORT_FINAL;
	snprintf(told.state, sizeof(told.state), "%s",
		rep->n_engine ? wb_word(&wb_engine_state_words, rep->state[0]) : "");
	snprintf(told.sentence, sizeof(told.sentence), "%s", rep->n_engine ? rep->sentence[0] : "");
}

void forget_said(void)
{
	n_said = 0;
	memset(&told, 0, sizeof(told));
}

void begin(const struct world_opts *o)
{
	memset(&op, 0, sizeof(op));
	world_init(&w, o);
	w.watch = (struct world_watch){.message = note_said, .report = note_report};
	world_plan(&w);
	forget_said();
}

void end(void)
{
	op.alive = false;
	w.watch = (struct world_watch){0};
	world_finish(&w);
}

struct object *object_of(uint32_t agent)
{
	return w.agent[agent].core->objects;
}

struct epoch *epoch_of(uint32_t agent)
{
	return object_of(agent)->cur;
}

struct worker *worker_of(uint32_t worker)
{
	const struct world_worker *k = &w.worker[worker];
	struct wb_transfer_core *c = w.agent[k->agent].core;

	for (uint32_t i = 0; i < c->n_worker; i++)
		if (c->worker[i]->w.id == k->id)
			return c->worker[i];
	ck_abort_msg("worker %u is not attached", worker);
}

void say(uint32_t to, uint32_t from, struct wb_msg_peer m)
{
	struct wb_transfer_core *c = w.agent[to].core;
	const struct wb_roster *r = epoch_of(to)->r;
	uint32_t i = 0;

	while (i < r->n_agent && strcmp(r->agent[i].name, w.agent[from].name) != 0)
		i++;
	wb_transfer_peer_msg(c, &r->id, i, &m);
}

void worker_says(uint32_t worker, uint16_t type, const void *msg)
{
	wb_transfer_worker_msg(
		w.agent[w.worker[worker].agent].core, w.worker[worker].id, type, msg);
}

void is_gone(uint32_t to, uint32_t agent)
{
	const struct epoch *e = epoch_of(to);

	for (uint32_t i = 0; i < e->r->n_agent; i++)
		if (!strcmp(e->r->agent[i].name, w.agent[agent].name))
			wb_transfer_peer_down(w.agent[to].core, &e->r->id, i, "a test says so");
}

const struct said *last(uint32_t from, const char *to, uint32_t kind)
{
	for (uint32_t i = WB_MIN(n_said, SAID_MAX); i-- > 0;)
		if (said[i].from == &w.agent[from] && said[i].m.kind == kind &&
			(!to || !strcmp(said[i].to, to)))
			return &said[i];
	return NULL;
}

uint32_t n_times(uint32_t from, const char *to, uint32_t kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < WB_MIN(n_said, SAID_MAX); i++)
		n += said[i].from == &w.agent[from] && said[i].m.kind == kind &&
		     (!to || !strcmp(said[i].to, to));
	return n;
}

void commits(int64_t version)
{
	world_send(&w, version);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s: %s", w.last_result, w.last_culprit);
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert_msg(world_holds(&w, &w.worker[i], version), "worker %u: %s; %s", i,
			w.worker[i].why, w.last_culprit);
}
