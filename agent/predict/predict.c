/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the model of one transfer from the call to the end, and computes the figures. */
#include "predict/predict.h"

#include "base/base.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/mem.h"
#include "predict/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *wb_predict_part_name(enum wb_predict_part p)
{
	static const char *const name[] = {"rail out", "rail in", "lane", "loop"};

	return (unsigned)p < WB_ARRAY_SIZE(name) ? name[p] : "?";
}

/* The clock begins at one second, since a flow takes 0 for "not set". */
static uint64_t now_ns(const struct wb_clock *c)
{
	const struct model_clock *mc = (const struct model_clock *)(const void *)c;

	return (uint64_t)(1e9 + mc->m->now * 1e9);
}

/* Makes spans twice as long, when time has gone beyond the last. */
static void fold(struct wb_predict_line *l)
{
	for (int stage = 0; stage < WB_STAGES; stage++)
		for (uint32_t i = 0; i < WB_PREDICT_SPANS; i++) {
			uint64_t sum = 2 * i + 1 < WB_PREDICT_SPANS
					       ? l->bytes[stage][2 * i] + l->bytes[stage][2 * i + 1]
					       : 0;

			l->bytes[stage][i] = sum;
		}
	l->span_s *= 2;
}

void wb__predict_arrived(
	struct model *m, enum wb_stage stage, uint32_t src, uint32_t dst, uint64_t n)
{
	uint32_t at;

	while (m->now / m->line.span_s >= WB_PREDICT_SPANS)
		fold(&m->line);
	at = (uint32_t)(m->now / m->line.span_s);
	m->line.bytes[stage][at] += n;
	m->line.n = at + 1;
	m->tail = (struct wb_predict_tail){m->now, src, dst, stage};
}

static int begin(struct model *m, struct wb_predict_result *out, struct wb_err *err)
{
	const struct wb_plan *p = m->in.plan;
	int rc;

	for (uint32_t w = 0; w < p->n_worker; w++)
		if (p->worker[w].role == WB_ROLE_ROLLOUT)
			m->n_engine = WB_MAX(m->n_engine, p->worker[w].engine + 1);
	out->n_engine = m->n_engine;
	out->engine = m->engine = wb_zalloc(m->n_engine, sizeof(*m->engine));
	m->left_received = wb_zalloc(m->n_engine, sizeof(*m->left_received));
	m->left_complete = wb_zalloc(m->n_engine, sizeof(*m->left_complete));
	if (!m->engine || !m->left_received || !m->left_complete)
		return wb_err_set(err, -ENOMEM, "no memory for %u engines", m->n_engine);
	for (uint32_t w = 0; w < p->n_worker; w++)
		if (p->worker[w].role == WB_ROLE_ROLLOUT) {
			m->left_received[p->worker[w].engine]++;
			m->left_complete[p->worker[w].engine]++;
		}
	rc = wb__predict_rails(m, err);
	return rc < 0 ? rc : wb__predict_agents(m, err);
}

/* Nothing moves any more, and @engine does not have everything: says what is waited for. */
static int stuck(const struct model *m, uint32_t engine, struct wb_err *err)
{
	char what[256] = "";
	uint32_t who = 0;

	for (uint32_t d = 0; d < m->n_agent && !*what; d++)
		for (uint32_t i = 0; i < m->agent[d].n && !*what; i++) {
			who = m->agent[d].member[i].plan_worker;
			wb_flow_waiting_for(m->agent[d].flow, i, what, sizeof(what));
		}
	return wb_err_set(err, -EDEADLK, "engine %u never has all of it: worker %u waits for %s",
		engine, who, what);
}

static int run(struct model *m, struct wb_err *err)
{
	struct event e;

	while (wb__predict_next(m, &e)) {
		if (e.kind == EV_RAIL)
			wb__predict_rail(m, e.at);
		else if (e.kind == EV_PIECE)
			wb__predict_piece(m, e.p);
		else
			wb__predict_event(m, &e);
		if (m->rc && !m->is_stopping)
			wb__predict_agents_stop(m);
	}
	if (m->rc)
		return wb_err_set(
			err, m->rc, "the transfer cannot be followed: %s", wb_strerror(m->rc));
	for (uint32_t i = 0; i < m->n_engine; i++)
		if (m->left_complete[i])
			return stuck(m, i, err);
	return 0;
}

/* ---- figures ---- */

static void note_busy(struct wb_predict_busy *b, double s, uint32_t of)
{
	if (s > b->s)
		*b = (struct wb_predict_busy){s, of};
}

static void find_busiest(const struct model *m, struct wb_predict_result *out)
{
	for (uint32_t w = 0; w < m->in.plan->n_worker; w++) {
		note_busy(&out->busiest[WB_PREDICT_OUT], m->out[w].busy_s, w);
		note_busy(&out->busiest[WB_PREDICT_IN], m->into[w].busy_s, w);
	}
	for (uint32_t d = 0; d < m->n_agent; d++) {
		const struct model_agent *a = &m->agent[d];
		struct wb_flow_stats st;

		note_busy(&out->busiest[WB_PREDICT_LOOP], a->loop_busy_s, d);
		for (uint32_t i = 0; i < a->n; i++)
			note_busy(&out->busiest[WB_PREDICT_LANE], a->lane[i].busy_s,
				a->lane[i].worker);
		wb_flow_get_stats(a->flow, &st);
		out->resent += st.resent;
		out->refused += st.refused;
		out->loop_events_max = WB_MAX(out->loop_events_max, a->n_event);
	}
}

/* How long a staged worker copies its area into its parameters, once the engine has stopped. */
static double install_s(const struct model *m, uint32_t worker)
{
	const struct wb_map *map = m->in.layout[m->in.plan->worker[worker].layout];
	uint64_t bytes = 0;

	if (!m->in.rollout_staged)
		return 0;
	for (uint32_t i = 0; i < map->n_op; i++) {
		const struct wb_op *op = &map->op[i];

		bytes += (uint64_t)op->n_row * op->n_col * op->repeat *
			 wb_dtype_bytes(map->param[op->param].dtype);
	}
	return (double)bytes / (m->in.params.host_gbs * 1e9);
}

static double sooner_or(double s, double dflt)
{
	return s < 0 ? dflt : s;
}

/* When a trainer worker goes on: when its snapshot is taken, or what others lack of it is in slots;
 * at the latest when all engines have what trainers send. */
static double goes_on_s(const struct model *m, uint32_t worker, double released)
{
	double own = m->trainer_s[worker], early = own + m->in.params.release_ms * 1e-3 / 2;

	if (m->in.trainer_staged)
		return own;
	return own > 0 ? WB_MIN(early, released) : released;
}

/* How long each worker stands still, and when the last of them goes on. */
static void sum_up(const struct model *m, struct wb_predict_result *out)
{
	const struct wb_predict_params *k = &m->in.params;
	const struct wb_plan *p = m->in.plan;
	double received = 0, stall = 0, early = 0, stay = 0, released;

	for (uint32_t e = 0; e < m->n_engine; e++)
		received = WB_MAX(received, m->engine[e].received_s);
	released = received + k->release_ms * 1e-3;
	for (uint32_t w = 0; w < p->n_worker; w++) {
		double own = goes_on_s(m, w, released), end;

		if (p->worker[w].role == WB_ROLE_TRAINER) {
			stall += own;
			stay += m->in.trainer_staged ? own : released;
			out->trainer_s = WB_MAX(out->trainer_s, own);
			out->early_s = WB_MAX(out->early_s,
				m->in.trainer_staged ? own : sooner_or(m->early_s[w], received));
			continue;
		}
		end = m->engine[p->worker[w].engine].complete_s + install_s(m, w) +
		      k->commit_ms * 1e-3;
		out->ewtt_s = WB_MAX(out->ewtt_s, end);
		end = m->in.rollout_staged
			      ? k->prepare_ms * 1e-3 + install_s(m, w) + k->commit_ms * 1e-3
			      : end;
		stall += end;
		stay += end;
		early += end;
	}
	for (uint32_t w = 0; w < p->n_worker; w++)
		if (p->worker[w].role == WB_ROLE_TRAINER)
			early += out->early_s + k->release_ms * 1e-3;
	out->agst_s = stall / p->n_worker;
	out->agst_stay_s = stay / p->n_worker;
	out->agst_early_s = WB_MIN(early / p->n_worker, out->agst_s);
	out->bound_s = (double)p->node_bound_ns * 1e-9;
	out->moved_s = m->moved_s;
	out->line = m->line;
	out->tail = m->tail;
	out->events = m->n_event;
}

int wb_predict(const struct wb_predict_input *in, struct wb_predict_result *out, struct wb_err *err)
{
	struct model m = {.clock = {{now_ns}, &m}, .in = *in, .line.span_s = 1e-5};
	int rc;

	*out = (struct wb_predict_result){.bound_s = 0};
	rc = begin(&m, out, err);
	if (rc == 0)
		rc = run(&m, err);
	if (rc == 0) {
		find_busiest(&m, out);
		sum_up(&m, out);
	}
	wb__predict_agents_finish(&m);
	wb_free(m.heap);
	wb__predict_rails_finish(&m);
	wb_free(m.left_received);
	wb_free(m.left_complete);
	return rc;
}

void wb_predict_finish(struct wb_predict_result *r)
{
	wb_free(r->engine);
	r->engine = NULL;
	r->n_engine = 0;
}
