/* SPDX-License-Identifier: Apache-2.0 */
/* The paper's flow, in which all workers go through rounds together: what a round carries, and when
 * each begins and ends. */
#include "predict/paper.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 2 /* rounds that there is memory for */
#define NETWORK 2 /* stages that use rails */
#define ROUNDS_MAX 100000
#define LEFT_LEAST 1e-3 /* bytes; less is a rounding error and counts as 0 */

/* A stage of a round on the rails. */
struct moving {
	bool is_on;
	uint32_t round;
	enum wb_stage stage;
	double *left; /* owned: bytes, by rail */
};

/* What begins or ends at a time that is known. */
enum step { STEP_PACKED, STEP_RECEIVE, STEP_EXCHANGE, STEP_FREE };
struct due {
	double s;
	enum step step;
	uint32_t round;
};

/*
 * Rails are numbered by worker, first all rails out, then all rails in.  All rounds are alike and
 * end in order, so it is enough to count how many are packed, begun (asked for), received, and free
 * (done with).
 */
struct lockstep {
	const struct wb_predict_input *in;
	uint32_t n_worker, n_rail, n_round;
	double *volume[NETWORK]; /* owned: bytes of one round, by rail */
	double *rate, *busy_s; /* owned: by rail */
	double *internal; /* owned: bytes of one round that come from workers of the node */
	double control_s[NETWORK], pack_s, finish_s; /* before a stage; at both ends of a round */
	bool has_exchange;
	struct moving moving[NETWORK * DEPTH];
	struct due due[8]; /* one STEP_PACKED, DEPTH of each other step */
	uint32_t n_due;
	uint32_t n_packing, n_packed, n_begun, n_received, n_free;
	double now, received_s, packed_s; /* received_s: the first round; packed_s: the last */
};

/* ---- what a round carries ---- */

static bool is_trainer(const struct lockstep *l, uint32_t worker)
{
	return l->in->plan->worker[worker].role == WB_ROLE_TRAINER;
}

static uint64_t bytes_of(const struct wb_plan *p, const struct wb_route *r)
{
	uint64_t n = 0;

	for (uint32_t c = r->chunk_begin; c < r->chunk_end; c++)
		n += wb_chunk_len(p, &p->cls[r->class_id], c);
	return n;
}

/* Adds up the bytes of the whole transfer; prepare() divides them by the rounds. */
static void add_volumes(struct lockstep *l)
{
	const struct wb_plan *p = l->in->plan;

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		double n = (double)bytes_of(p, r);

		if (wb_route_is_inside(p, r)) {
			l->internal[r->dst] += n;
			continue;
		}
		l->volume[r->stage][r->src_rail] += n;
		l->volume[r->stage][l->n_worker + r->dst_rail] += n;
	}
}

/* The fewest rounds of which two fit into memory.  A rollout worker's memory has to hold what comes
 * in and what it passes on, a trainer's what it sends. */
static double rounds_of(const struct lockstep *l)
{
	const struct wb_predict_params *k = &l->in->params;
	double most = 1;

	for (uint32_t w = 0; w < l->n_worker; w++) {
		double out = l->volume[0][w] + l->volume[1][w];
		double in = l->volume[0][l->n_worker + w] + l->volume[1][l->n_worker + w];
		double mib = is_trainer(l, w) ? k->round_trainer_mib : k->rollout_mib;

		most = WB_MAX(most, DEPTH * (in + out) / (mib * 1048576));
	}
	return ceil(most);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The greatest number of different pairs with the same upper half; @pair is sorted. */
static uint32_t most_of_one(const uint64_t *pair, uint32_t n)
{
	uint32_t most = 0, run = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (i && pair[i] == pair[i - 1])
			continue;
		run = i && pair[i] >> 32 == pair[i - 1] >> 32 ? run + 1 : 1;
		most = WB_MAX(most, run);
	}
	return most;
}

/* Most workers to which one worker sends, or from which it takes, in @stage.  @pair: room for all
 * routes. */
static uint32_t peers_of(const struct lockstep *l, enum wb_stage stage, uint64_t *pair)
{
	const struct wb_plan *p = l->in->plan;
	uint32_t most = 0;

	for (int way = 0; way < 2; way++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < p->n_route; i++) {
			const struct wb_route *r = &p->route[i];

			if (r->stage == stage && !wb_route_is_inside(p, r))
				pair[n++] = way ? (uint64_t)r->dst << 32 | r->src
						: (uint64_t)r->src << 32 | r->dst;
		}
		qsort(pair, n, sizeof(*pair), by_number);
		most = WB_MAX(most, most_of_one(pair, n));
	}
	return most;
}

/* Counts peers, and sets the seconds before a stage's first byte: what a round costs whoever takes
 * part, divided among the stages that there are, and a call for every peer. */
static int count_peers(struct lockstep *l, struct wb_predict_paper *out)
{
	const struct wb_predict_params *k = &l->in->params;
	uint64_t *pair = wb_alloc(l->in->plan->n_route * sizeof(*pair));
	int n = 0;

	if (!pair)
		return -ENOMEM;
	for (enum wb_stage s = 0; s < NETWORK; s++) {
		out->peers[s] = peers_of(l, s, pair);
		n += out->peers[s] > 0;
	}
	wb_free(pair);
	l->has_exchange = out->peers[WB_STAGE_EXTERNAL] > 0;
	for (int s = 0; s < NETWORK; s++)
		if (out->peers[s])
			l->control_s[s] = (k->round_ms / n + k->peer_ms * out->peers[s]) * 1e-3;
	return 0;
}

/* The time that workers need at both ends of a round: one kernel each, as long as on the worker
 * with the most bytes. */
static void time_ends(struct lockstep *l)
{
	const struct wb_predict_params *k = &l->in->params;
	double pack = 0, local = 0, come = 0;

	for (uint32_t w = 0; w < l->n_worker; w++) {
		pack = WB_MAX(pack, l->volume[0][w]);
		local = WB_MAX(local, l->internal[w]);
		come = WB_MAX(come, l->volume[0][l->n_worker + w] + l->volume[1][l->n_worker + w] +
					    l->internal[w]);
	}
	l->pack_s = pack / (k->lane_gbs * 1e9) + k->lane_us * 1e-6;
	l->finish_s =
		local / (k->fabric_gbs * 1e9) + come / (k->lane_gbs * 1e9) + k->lane_us * 1e-6;
}

static int prepare(struct lockstep *l, struct wb_predict_paper *out, struct wb_err *err)
{
	const struct wb_plan *p = l->in->plan;
	double n;

	for (uint32_t w = 0; w < l->n_worker; w++) {
		if (!p->worker[w].rail_bytes_per_s)
			return wb_err_set(
				err, -EINVAL, "the rate of worker %u's rail is not known", w);
		l->rate[w] = l->rate[l->n_worker + w] =
			(double)p->worker[w].rail_bytes_per_s * l->in->params.goodput;
	}
	add_volumes(l);
	n = rounds_of(l);
	if (n > ROUNDS_MAX)
		return wb_err_set(err, -EINVAL,
			"rolloutMiB=%g and roundTrainerMiB=%g make %.0f rounds: at most %d",
			l->in->params.rollout_mib, l->in->params.round_trainer_mib, n, ROUNDS_MAX);
	l->n_round = (uint32_t)n;
	for (uint32_t i = 0; i < l->n_rail; i++) {
		l->volume[0][i] /= l->n_round;
		l->volume[1][i] /= l->n_round;
	}
	for (uint32_t w = 0; w < l->n_worker; w++)
		l->internal[w] /= l->n_round;
	time_ends(l);
	return count_peers(l, out) < 0
		       ? wb_err_set(err, -ENOMEM, "no memory for %u routes", p->n_route)
		       : 0;
}

/* ---- the rails ---- */

/* Finds the stages that still have bytes at one rail, that with the fewest first.  Returns how
 * many. */
static uint32_t at_rail(const struct lockstep *l, uint32_t rail, uint32_t which[NETWORK * DEPTH])
{
	uint32_t n = 0;

	for (uint32_t m = 0; m < WB_ARRAY_SIZE(l->moving); m++) {
		uint32_t i = n;

		if (!l->moving[m].is_on || l->moving[m].left[rail] < LEFT_LEAST)
			continue;
		for (; i && l->moving[which[i - 1]].left[rail] > l->moving[m].left[rail]; i--)
			which[i] = which[i - 1];
		which[i] = m;
		n++;
	}
	return n;
}

/* When each stage under way will have left all its rails, if nothing else begins. */
static void foresee(const struct lockstep *l, double end[NETWORK * DEPTH])
{
	uint32_t which[NETWORK * DEPTH];

	for (uint32_t m = 0; m < WB_ARRAY_SIZE(l->moving); m++)
		end[m] = l->now;
	for (uint32_t i = 0; i < l->n_rail; i++) {
		uint32_t n = at_rail(l, i, which);
		double bytes = 0, before = 0;

		for (uint32_t k = 0; k < n; k++) {
			double left = l->moving[which[k]].left[i];

			bytes += (left - before) * (n - k);
			before = left;
			end[which[k]] = WB_MAX(end[which[k]], l->now + bytes / l->rate[i]);
		}
	}
}

static void move_on(struct lockstep *l, double to_s)
{
	uint32_t which[NETWORK * DEPTH];

	for (uint32_t i = 0; i < l->n_rail; i++) {
		uint32_t n = at_rail(l, i, which);
		double bytes = (to_s - l->now) * l->rate[i], before = 0;

		for (uint32_t k = 0; k < n; k++) {
			double *left = &l->moving[which[k]].left[i];
			double share = WB_MIN(*left - before, bytes / (n - k));

			bytes -= share * (n - k);
			l->busy_s[i] += share * (n - k) / l->rate[i];
			before += share;
			*left -= before;
		}
	}
	l->now = to_s;
}

/* ---- the rounds ---- */

static void at(struct lockstep *l, double s, enum step step, uint32_t round)
{
	assert(l->n_due < WB_ARRAY_SIZE(l->due));
	l->due[l->n_due++] = (struct due){s, step, round};
}

static void begin(struct lockstep *l, enum wb_stage stage, uint32_t round)
{
	struct moving *m = l->moving;

	while (m->is_on)
		m++;
	assert(m < l->moving + WB_ARRAY_SIZE(l->moving));
	m->is_on = true;
	m->round = round;
	m->stage = stage;
	memcpy(m->left, l->volume[stage], l->n_rail * sizeof(*m->left));
}

/* A round is packed when the round two before it has left its buffer.  It is asked for when it is
 * packed and its receivers are done with the round two before it. */
static void schedule(struct lockstep *l)
{
	if (l->n_packing == l->n_packed && l->n_packing < l->n_round &&
		l->n_packing < l->n_received + DEPTH)
		at(l, l->now + l->pack_s, STEP_PACKED, l->n_packing++);
	while (l->n_begun < l->n_packed && l->n_begun < l->n_free + DEPTH)
		at(l, l->now + l->control_s[0], STEP_RECEIVE, l->n_begun++);
}

static void take_step(struct lockstep *l, const struct due *d)
{
	switch (d->step) {
	case STEP_PACKED:
		l->n_packed++;
		l->packed_s = l->now;
		break;
	case STEP_RECEIVE:
		begin(l, WB_STAGE_RECEIVE, d->round);
		break;
	case STEP_EXCHANGE:
		begin(l, WB_STAGE_EXTERNAL, d->round);
		break;
	case STEP_FREE:
		l->n_free++;
	}
}

static void end_stage(struct lockstep *l, struct moving *m)
{
	m->is_on = false;
	if (m->stage == WB_STAGE_RECEIVE && !l->n_received++)
		l->received_s = l->now;
	if (m->stage == WB_STAGE_RECEIVE && l->has_exchange)
		at(l, l->now + l->control_s[1], STEP_EXCHANGE, m->round);
	else
		at(l, l->now + l->finish_s, STEP_FREE, m->round);
}

/* Goes on to what happens next: a step at a known time, or the end of a stage on the rails. */
static void step(struct lockstep *l)
{
	double end[NETWORK * DEPTH], s = INFINITY;
	struct moving *first = NULL;
	uint32_t next = 0;

	foresee(l, end);
	for (uint32_t m = 0; m < WB_ARRAY_SIZE(l->moving); m++)
		if (l->moving[m].is_on && end[m] < s) {
			first = &l->moving[m];
			s = end[m];
		}
	for (uint32_t i = 1; i < l->n_due; i++)
		next = l->due[i].s < l->due[next].s ? i : next;
	if (!l->n_due || (first && s <= l->due[next].s)) {
		move_on(l, s);
		end_stage(l, first);
	} else {
		struct due d = l->due[next];

		move_on(l, d.s);
		l->due[next] = l->due[--l->n_due];
		take_step(l, &d);
	}
	schedule(l);
}

/* ---- all of it ---- */

static int alloc_all(struct lockstep *l)
{
	bool ok = true;

	for (int s = 0; s < NETWORK; s++)
		ok &= (l->volume[s] = wb_zalloc(l->n_rail, sizeof(double))) != NULL;
	for (size_t m = 0; m < WB_ARRAY_SIZE(l->moving); m++)
		ok &= (l->moving[m].left = wb_zalloc(l->n_rail, sizeof(double))) != NULL;
	l->rate = wb_zalloc(l->n_rail, sizeof(double));
	l->busy_s = wb_zalloc(l->n_rail, sizeof(double));
	l->internal = wb_zalloc(l->n_worker, sizeof(double));
	return ok && l->rate && l->busy_s && l->internal ? 0 : -ENOMEM;
}

static void free_all(struct lockstep *l)
{
	for (int s = 0; s < NETWORK; s++)
		wb_free(l->volume[s]);
	for (size_t m = 0; m < WB_ARRAY_SIZE(l->moving); m++)
		wb_free(l->moving[m].left);
	wb_free(l->rate);
	wb_free(l->busy_s);
	wb_free(l->internal);
}

static void sum_up(const struct lockstep *l, struct wb_predict_paper *out)
{
	const struct wb_predict_params *k = &l->in->params;
	uint32_t n_trainer = 0;

	for (uint32_t w = 0; w < l->n_worker; w++)
		n_trainer += is_trainer(l, w);
	for (uint32_t i = 0; i < l->n_rail; i++)
		if (l->busy_s[i] > out->busiest.s)
			out->busiest = (struct wb_predict_busy){l->busy_s[i], i % l->n_worker};
	out->bound_s = (double)l->in->plan->node_bound_ns * 1e-9;
	out->rounds = l->n_round;
	out->control_s = l->n_round * (l->control_s[0] + l->control_s[1]);
	out->ewtt_s = l->now + k->commit_ms * 1e-3;
	out->trainer_s = l->packed_s;
	out->engine_s = l->received_s;
	out->agst_s = (n_trainer * out->trainer_s +
			      (l->n_worker - n_trainer) * (out->ewtt_s - out->engine_s)) /
		      l->n_worker;
}

int wb_predict_paper(
	const struct wb_predict_input *in, struct wb_predict_paper *out, struct wb_err *err)
{
	struct lockstep l = {.in = in,
		.n_worker = in->plan->n_worker,
		.n_rail = 2 * in->plan->n_worker,
		.now = in->params.prepare_ms * 1e-3};
	int rc = alloc_all(&l);

	*out = (struct wb_predict_paper){.rounds = 0};
	if (rc < 0)
		wb_err_set(err, rc, "no memory for %u rails", l.n_rail);
	else
		rc = prepare(&l, out, err);
	if (rc == 0) {
		schedule(&l);
		while (l.n_free < l.n_round)
			step(&l);
		sum_up(&l, out);
	}
	free_all(&l);
	return rc;
}
