/* SPDX-License-Identifier: Apache-2.0 */
/* Make a plan: check the input, take the steps of planning in turn, and choose the chunk size. */
#include "planner/plan.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define CHUNK_ALIGN 64
#define CHUNKS_MAX (1u << 30)
#define CHUNK_ENOUGH (4u << 20)
#define ROUNDING 1.02 /* whole chunks may take this many times as long as the shares */
#define SLOTS_IN_FLIGHT 16 /* slots of a pool; a pool has a quarter of a rollout's buffer */

static int check_worker(const struct wb_plan_input *in, uint32_t i, struct wb_err *err)
{
	const struct wb_plan_worker *w = &in->worker[i];

	if (w->role != WB_ROLE_TRAINER && w->role != WB_ROLE_ROLLOUT)
		return wb_err_set(err, -EINVAL, "worker %" PRIu32 " has no known role", i);
	if (w->layout >= in->n_layout || w->engine >= in->n_worker || w->domain >= in->n_worker ||
		w->node >= in->n_worker)
		return wb_err_set(err, -EINVAL,
			"worker %" PRIu32 " is in layout %" PRIu32 " of %" PRIu32
			", engine %" PRIu32 ", domain %" PRIu32 ", node %" PRIu32
			": a number is too large",
			i, w->layout, in->n_layout, w->engine, w->domain, w->node);
	return 0;
}

/* Check that all workers of a domain are on one node. */
static int check_nodes(const struct wb_plan_input *in, struct wb_err *err)
{
	uint32_t *node = wb_zalloc(in->n_worker, sizeof(*node)); /* by domain: node + 1; 0 = none */
	int rc = node ? 0 : wb_err_set(err, -ENOMEM, "%s", wb_strerror(-ENOMEM));

	for (uint32_t i = 0; i < in->n_worker && rc == 0; i++) {
		const struct wb_plan_worker *w = &in->worker[i];

		if (node[w->domain] && node[w->domain] != w->node + 1)
			rc = wb_err_set(err, -EINVAL,
				"worker %" PRIu32 " of domain %" PRIu32 " is on node %" PRIu32
				", others of the domain on node %" PRIu32,
				i, w->domain, w->node, node[w->domain] - 1);
		node[w->domain] = w->node + 1;
	}
	wb_free(node);
	return rc;
}

static int check_input(const struct wb_plan_input *in, struct wb_err *err)
{
	uint32_t n_role[3] = {0};

	if (in->n_worker > WB_WORKERS_MAX)
		return wb_err_set(err, -E2BIG, "%" PRIu32 " workers, at most %d", in->n_worker,
			WB_WORKERS_MAX);
	if (in->chunk_bytes &&
		(in->chunk_bytes < WB_CHUNK_BYTES_LEAST || in->chunk_bytes > WB_CHUNK_BYTES_MAX ||
			in->chunk_bytes % CHUNK_ALIGN))
		return wb_err_set(err, -EINVAL,
			"chunks of %" PRIu32 " bytes: a multiple of %d from %u to %u is wanted",
			in->chunk_bytes, CHUNK_ALIGN, WB_CHUNK_BYTES_LEAST, WB_CHUNK_BYTES_MAX);
	for (uint32_t i = 0; i < in->n_layout; i++)
		if (!wb_digest_eq(in->layout[i]->manifest, in->manifest->digest))
			return wb_err_set(err, -EINVAL,
				"layout %" PRIu32 " was made for another manifest", i);
	for (uint32_t i = 0; i < in->n_worker; i++) {
		int rc = check_worker(in, i, err);

		if (rc < 0)
			return rc;
		n_role[in->worker[i].role]++;
	}
	if (!n_role[WB_ROLE_TRAINER] || !n_role[WB_ROLE_ROLLOUT])
		return wb_err_set(err, -EINVAL,
			"a plan needs a trainer and a rollout worker; there are %" PRIu32
			" and %" PRIu32,
			n_role[WB_ROLE_TRAINER], n_role[WB_ROLE_ROLLOUT]);
	return check_nodes(in, err);
}

/* For each layout, find the first worker of each role that has it. */
static int find_roles(struct wb__work *w)
{
	const struct wb_plan_input *in = w->in;

	w->layout = wb_zalloc(in->n_layout, sizeof(*w->layout));
	if (!w->layout)
		return -ENOMEM;
	for (uint32_t l = 0; l < in->n_layout; l++)
		w->layout[l] = (struct wb__layout){in->layout[l], UINT32_MAX, UINT32_MAX};
	for (uint32_t i = in->n_worker; i-- > 0;) {
		struct wb__layout *l = &w->layout[in->worker[i].layout];

		if (in->worker[i].role == WB_ROLE_TRAINER)
			l->trainer = i;
		else
			l->rollout = i;
	}
	return 0;
}

static int start_plan(struct wb__work *w)
{
	const struct wb_plan_input *in = w->in;
	struct wb_plan *p = w->plan = wb_zalloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->worker = wb_memdup(in->worker, in->n_worker * sizeof(*p->worker));
	p->layout = wb_zalloc(in->n_layout, sizeof(*p->layout));
	if (!p->worker || !p->layout)
		return -ENOMEM;
	p->n_worker = in->n_worker;
	p->n_layout = in->n_layout;
	p->manifest = in->manifest->digest;
	for (uint32_t l = 0; l < in->n_layout; l++)
		p->layout[l] = in->layout[l]->digest;
	return 0;
}

static int cut_grids(struct wb_plan *p)
{
	uint64_t base = 0;

	for (uint32_t c = 0; c < p->n_class; c++) {
		uint64_t n = wb_ceil_div(p->cls[c].bytes, p->chunk_bytes);

		p->cls[c].chunk_base = (uint32_t)base;
		p->cls[c].n_chunk = (uint32_t)n;
		base += n;
		if (n > CHUNKS_MAX || base > CHUNKS_MAX)
			return -E2BIG;
	}
	p->n_chunk = (uint32_t)base;
	return 0;
}

static bool has_exchange(const struct wb_plan *p)
{
	for (uint32_t c = 0; c < p->n_class; c++)
		if (!p->cls[c].is_direct && p->cls[c].needer_end - p->cls[c].needer_begin > 1)
			return true;
	return false;
}

static bool fits(uint64_t buffer_bytes, uint64_t chunk, uint64_t slots)
{
	return !buffer_bytes || chunk * slots <= buffer_bytes;
}

/*
 * Choose the size of chunks.  Chunks of 4 MiB keep a rail busy.  A worker's load should be at least
 * 64 chunks, so that rounding to whole chunks costs less than 2 %.  The work of the agents' loops
 * for a chunk does not depend on its size, so larger chunks are better where they cost nothing
 * else: where a load is at least 192 chunks (rounding costs about 0.5 %), and the pools of slots
 * hold all that a worker has in flight.
 */
static uint32_t choose_chunk(
	const struct wb_plan_input *in, const struct wb_plan *p, const struct wb__shares *s)
{
	uint64_t load = WB_MAX(s->send_max, s->take_max), chunk = WB_CHUNK_BYTES_MIN;
	uint64_t pools = has_exchange(p) ? 3 : 1;

	while (chunk < WB_CHUNK_BYTES_MAX) {
		uint64_t next = 2 * chunk;
		bool is_large = next > CHUNK_ENOUGH;
		uint64_t slots = is_large ? SLOTS_IN_FLIGHT : WB_POOL_DEPTH;

		if (load / next < (is_large ? 192 : 64) ||
			!fits(in->trainer_buffer_bytes, next, slots) ||
			!fits(in->rollout_buffer_bytes, next, slots * (is_large ? 4 : pools)))
			break;
		chunk = next;
	}
	return (uint32_t)chunk;
}

static void check_buffer(struct wb__work *w, enum wb_role role, uint64_t have, uint64_t min)
{
	bool is_trainer = role == WB_ROLE_TRAINER;

	if (!have || have >= min)
		return;
	wb__plan_fault(&w->faults,
		"%s workers have %" PRIu64 " bytes of slots, this plan needs at least %" PRIu64
		" (%" PRIu64 " chunks of %" PRIu32 "): raise %s",
		wb_word(&wb_role_words, role), have, min, min / w->plan->chunk_bytes,
		w->plan->chunk_bytes,
		is_trainer ? "spec.trainer.bufferSize" : "spec.rollout.bufferSize");
}

static int size_slots(struct wb__work *w, uint32_t chunk_bytes)
{
	struct wb_plan *p = w->plan;
	uint64_t pool;
	int rc;

	p->chunk_bytes = chunk_bytes;
	rc = cut_grids(p);
	if (rc < 0)
		return rc;
	pool = (uint64_t)WB_POOL_DEPTH * p->chunk_bytes;
	p->trainer_slot_min_bytes = pool;
	p->rollout_slot_min_bytes = has_exchange(p) ? 3 * pool : pool;
	check_buffer(w, WB_ROLE_TRAINER, w->in->trainer_buffer_bytes, p->trainer_slot_min_bytes);
	check_buffer(w, WB_ROLE_ROLLOUT, w->in->rollout_buffer_bytes, p->rollout_slot_min_bytes);
	return 0;
}

static int add_sums(struct wb_plan *p, const struct wb__shares *s)
{
	int64_t bound = wb__node_bound(p, NULL);

	if (bound < 0)
		return (int)bound;
	p->node_bound_ns = (uint64_t)bound;
	if (s->is_rated)
		p->worker_bound_ns = (uint64_t)wb__ns_of(WB_MAX(s->send_time, s->take_time));
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];

		p->model_bytes += k->primary == c ? k->bytes : 0;
		p->delivered_bytes += k->bytes * (k->needer_end - k->needer_begin);
	}
	return 0;
}

static void forget_routes(struct wb_plan *p)
{
	wb_free(p->route);
	p->route = NULL;
	p->n_route = 0;
}

/* Make the routes.  They are most even when each class is split over all nodes.  If a rail would
 * have too many peers, try routes that are less even, and take those if they have fewer peers. */
static int make_routes(struct wb_plan *p, const struct wb__shares *s, struct wb_plan_summary *out)
{
	struct wb_plan_summary even = {0};
	int rc = wb__routes_make(p, s, false);

	if (!rc)
		rc = wb_plan_summarize(p, &even);
	*out = even;
	if (rc || even.peers_max <= WB_PEERS_GOAL)
		return rc;
	forget_routes(p);
	rc = wb__routes_make(p, s, true);
	if (!rc)
		rc = wb_plan_summarize(p, out);
	if (rc || out->peers_max < even.peers_max)
		return rc;
	forget_routes(p);
	*out = even;
	return wb__routes_make(p, s, false);
}

/* Make the routes, with the chunk size that is given or chosen.  A size that was chosen is halved,
 * down to CHUNK_ENOUGH, while rounding to whole chunks costs a rail too much time: a worker that
 * receives one chunk more than others passes it on to many. */
static int route_in_chunks(struct wb__work *w, const struct wb__shares *s)
{
	struct wb_plan *p = w->plan;
	uint32_t chunk = w->in->chunk_bytes ? w->in->chunk_bytes : choose_chunk(w->in, p, s);
	struct wb_plan_summary sum;
	int rc = add_sums(p, s);

	for (bool is_done = false; !is_done && !rc; chunk /= 2) {
		forget_routes(p);
		rc = size_slots(w, chunk);
		if (rc < 0 || w->faults.n)
			return rc;
		rc = make_routes(p, s, &sum);
		is_done = w->in->chunk_bytes || chunk <= CHUNK_ENOUGH ||
			  (double)sum.busiest_ns <= ROUNDING * s->time * 1e9;
	}
	return rc;
}

static int make(struct wb__work *w)
{
	struct wb__shares s = {0};
	int rc = wb__classes(w);

	if (!rc)
		rc = wb__shares_make(w->plan, w->in->lends_rails, &s);
	if (!rc)
		rc = route_in_chunks(w, &s);
	if (!rc && !w->faults.n)
		rc = wb__plan_name(w->plan);
	wb__shares_finish(&s);
	return rc;
}

int wb_plan_create(const struct wb_plan_input *in, struct wb_plan **out, struct wb_err *err)
{
	struct wb__work w = {.in = in};
	int rc;

	assert(in && in->manifest && out);
	rc = check_input(in, err);
	if (rc < 0)
		return rc;
	rc = wb__sets_init(&w.sets);
	if (!rc)
		rc = find_roles(&w);
	if (!rc)
		rc = start_plan(&w);
	for (uint32_t l = 0; l < in->n_layout && !rc; l++)
		if (w.layout[l].trainer != UINT32_MAX || w.layout[l].rollout != UINT32_MAX)
			rc = wb__overlap(&w, &w.layout[l]);
	if (!rc)
		rc = wb__refine(&w);
	if (!rc)
		rc = make(&w);
	if (rc < 0)
		wb_err_set(err, rc, "planning for %" PRIu32 " workers: %s", in->n_worker,
			w.limit[0]     ? w.limit
			: rc == -E2BIG ? "the plan would be too large"
				       : wb_strerror(rc));
	else
		rc = wb__plan_faults_rc(&w.faults, err);
	if (!rc) {
		*out = w.plan;
		w.plan = NULL;
	}
	wb_plan_destroy(w.plan);
	wb__sets_finish(&w.sets);
	wb_free(w.layout);
	wb_free(w.combo);
	wb_free(w.combo_slot);
	wb_free(w.seg);
	return rc;
}

void wb_plan_destroy(struct wb_plan *p)
{
	if (!p)
		return;
	wb_free(p->worker);
	wb_free(p->layout);
	wb_free(p->cls);
	wb_free(p->segment);
	wb_free(p->member);
	wb_free(p->route);
	wb_free(p);
}

static bool is_in(const struct wb_plan *p, uint32_t begin, uint32_t end, uint32_t worker)
{
	while (begin < end) {
		uint32_t mid = begin + (end - begin) / 2;

		if (p->member[mid] == worker)
			return true;
		if (p->member[mid] < worker)
			begin = mid + 1;
		else
			end = mid;
	}
	return false;
}

bool wb_class_has_member(const struct wb_plan *p, const struct wb_class *k, uint32_t worker)
{
	return is_in(p, k->holder_begin, k->holder_end, worker) ||
	       is_in(p, k->needer_begin, k->needer_end, worker);
}
