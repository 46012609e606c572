/* SPDX-License-Identifier: Apache-2.0 */
/* Compute all workers of a deployment: where each is placed, and what it holds. */
#include "planner/deploy/deploy.h"

#include "base/base.h"
#include "base/mem.h"
#include "planner/deploy/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Most pieces in all maps together: so many the planner handles in minutes and a few GiB. */
#define PIECES_MAX (UINT64_C(1) << 24)

static int number(void *ctx, const struct wb__new_tensor *t)
{
	(void)ctx;
	(void)t;
	return 0;
}

static int find_tensors(const struct wb_deploy *d, struct wb__tensors *t, struct wb_err *err)
{
	const struct wb_model *m = &d->spec.model;

	*t = (struct wb__tensors){.model = m, .m = d->manifest};
	t->layer = wb_zalloc(m->layers + m->mtp_layers, sizeof(*t->layer));
	if (!t->layer)
		return wb_err_set(err, -ENOMEM, "%s", wb_strerror(-ENOMEM));
	return wb__tensors_list(m, t, number, NULL);
}

static int make_map(const struct wb__tensors *t, const struct wb_parallel *p, uint32_t rank,
	struct wb_map **out, struct wb_err *err)
{
	struct wb__maker k = {.t = t, .model = t->model};

	if (p->framework == WB_MEGATRON)
		wb__megatron(&k, p, rank);
	else if (wb_framework_is_trainer(p->framework))
		wb__fsdp2(&k, p, rank);
	else
		wb__rollout(&k, p, rank);
	return wb__maker_done(&k, out, err);
}

/* ---- nodes ---- */

struct place {
	uint32_t per_node, node, used, domain; /* used: GPUs taken on the node */
	bool is_open; /* the domain has a worker */
	bool shares_memory;
	uint32_t pods, pod_size, in_pod; /* of a node; workers of a pod here; in the last pod */
	uint32_t left; /* workers of this side without a place so far */
};

static void next_node(struct place *p)
{
	p->node += p->used > 0;
	p->used = 0;
}

static void next_pod(struct place *p)
{
	p->domain += p->is_open;
	p->is_open = false;
	p->in_pod = 0;
}

/* Divide into pods the workers that are left, as far as this node has room for them. */
static void size_pods(struct place *p)
{
	uint32_t here = WB_MIN(p->left, p->per_node - p->used);

	p->pod_size = (uint32_t)wb_ceil_div(here, p->pods);
	next_pod(p);
}

/* To be called before the first of @n workers that belong together. */
static void begin_pods(struct place *p, uint32_t n)
{
	bool fits = p->used + n <= p->per_node;

	if (!fits)
		next_node(p);
	p->left = n;
	size_pods(p);
}

static void put(struct place *p, struct wb_plan_worker *w)
{
	if (p->used == p->per_node) {
		next_node(p);
		size_pods(p);
	} else if (p->in_pod == p->pod_size) {
		next_pod(p);
	}
	w->domain = p->domain;
	w->node = p->shares_memory ? p->node : p->domain;
	p->used++;
	p->in_pod++;
	p->left--;
	p->is_open = true;
}

/* Add the workers of one side.  Workers that hold the same share the map of the first of them. */
static int add_side(struct wb_deploy *d, const struct wb__tensors *t, const struct wb_parallel *p,
	struct place *place, uint32_t engine, uint32_t *layout_of, struct wb_err *err)
{
	bool is_trainer = wb_framework_is_trainer(p->framework);

	begin_pods(place, p->world);
	for (uint32_t r = 0; r < p->world; r++) {
		struct wb_plan_worker *w = &d->worker[d->n_worker++];
		uint32_t *layout = &layout_of[wb__twin(p, t->model, r)];

		if (*layout == UINT32_MAX) {
			int rc = make_map(t, p, r, &d->layout[d->n_layout], err);

			if (rc < 0)
				return rc;
			*layout = d->n_layout++;
		}
		*w = (struct wb_plan_worker){.role = is_trainer ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT,
			.layout = *layout,
			.engine = engine,
			.rail_bytes_per_s = d->spec.rail_bytes_per_s};
		put(place, w);
	}
	return 0;
}

static int add_workers(struct wb_deploy *d, const struct wb__tensors *t, struct wb_err *err)
{
	const struct wb_deploy_spec *s = &d->spec;
	uint32_t most = WB_MAX(s->trainer.world, s->rollout.world);
	uint32_t *layout_of = wb_alloc(most * sizeof(*layout_of));
	struct place place = {.per_node = s->gpus_per_node,
		.pods = WB_MAX(s->pods, 1),
		.shares_memory = s->shares_memory};
	int rc = layout_of ? 0 : wb_err_set(err, -ENOMEM, "%s", wb_strerror(-ENOMEM));

	if (rc == 0) {
		memset(layout_of, 0xff, most * sizeof(*layout_of));
		rc = add_side(d, t, &s->trainer, &place, 0, layout_of, err);
		d->n_trainer = d->n_worker;
		next_node(&place);
		memset(layout_of, 0xff, most * sizeof(*layout_of));
	}
	for (uint32_t e = 0; e < s->engines && rc == 0; e++)
		rc = add_side(d, t, &s->rollout, &place, e, layout_of, err);
	d->n_node = place.node + 1;
	wb_free(layout_of);
	return rc;
}

/* ---- checks ---- */

/* Most workers of a side on one node. */
static uint32_t on_a_node(const struct wb_deploy_spec *s, const struct wb_parallel *side)
{
	return WB_MIN(side->world, s->gpus_per_node);
}

/* Check the number of pods.  All pods of a node but the last have one size, so some numbers of pods
 * are not possible. */
static int check_pods(const struct wb_deploy_spec *s, struct wb_err *err)
{
	static const char *const of[] = {"the trainer", "an engine"};
	const uint32_t n[] = {on_a_node(s, &s->trainer), on_a_node(s, &s->rollout)};

	if (s->pods > WB_MAX(n[0], n[1]))
		return wb_err_set(err, -EINVAL,
			"pods %" PRIu32 ": expected 1 to %" PRIu32 ", since a node has %" PRIu32
			" workers of the trainer and %" PRIu32 " of an engine at most",
			s->pods, WB_MAX(n[0], n[1]), n[0], n[1]);
	for (size_t i = 0; s->pods && i < WB_ARRAY_SIZE(n); i++) {
		uint32_t want = WB_MIN(s->pods, n[i]), size = (uint32_t)wb_ceil_div(n[i], want),
			 made = (uint32_t)wb_ceil_div(n[i], size);

		if (made < want)
			return wb_err_set(err, -EINVAL,
				"pods %" PRIu32 ": the %" PRIu32
				" workers of %s on a node would be in %" PRIu32
				" pods: give %" PRIu32 ", or a number that divides %" PRIu32,
				s->pods, n[i], of[i], made, made, n[i]);
	}
	return 0;
}

static int check_spec(struct wb_deploy_spec *s, struct wb_err *err)
{
	uint64_t n;
	int rc = wb_model_check(&s->model, err);

	if (rc < 0)
		return wb_err_wrap(err, rc, "%s", s->model.name);
	if (!wb_framework_is_trainer(s->trainer.framework))
		return wb_err_set(err, -EINVAL,
			"%s does not train: megatron, fsdp2 and transformers do",
			wb_framework_name(s->trainer.framework));
	if (wb_framework_is_trainer(s->rollout.framework))
		return wb_err_set(err, -EINVAL, "%s does not serve: vllm and sglang do",
			wb_framework_name(s->rollout.framework));
	if (!s->engines || !s->gpus_per_node || !s->rail_bytes_per_s)
		return wb_err_set(err, -EINVAL,
			"engines, GPUs of a node and the rate of a NIC are at least 1");
	rc = wb_parallel_fit(&s->trainer, &s->model, err);
	if (rc == 0)
		rc = wb_parallel_fit(&s->rollout, &s->model, err);
	if (rc == 0)
		rc = check_pods(s, err);
	if (rc < 0)
		return rc;
	n = s->trainer.world + (uint64_t)s->rollout.world * s->engines;
	return n > WB_WORKERS_MAX ? wb_err_set(err, -E2BIG, "%" PRIu64 " workers are more than %d",
					    n, WB_WORKERS_MAX)
				  : 0;
}

/* Check that an FSDP2 trainer does not cut tensors into too many pieces: each rank has a piece of
 * each tensor. */
static int check_pieces(const struct wb_deploy *d, struct wb_err *err)
{
	const struct wb_deploy_spec *s = &d->spec;
	uint64_t n = (uint64_t)d->manifest->n * s->trainer.world;

	if (s->trainer.framework != WB_FSDP2 || s->trainer.is_stacked || n <= PIECES_MAX)
		return 0;
	return wb_err_set(err, -E2BIG,
		"fsdp2:%" PRIu32 " cuts %" PRIu32 " tensors into %" PRIu64
		" pieces, more than the planner takes (%" PRIu64
		"): fewer ranks, or experts stacked (fsdp2:%" PRIu32 ",stacked)",
		s->trainer.world, d->manifest->n, n, PIECES_MAX, s->trainer.world);
}

int wb_deploy_create(const struct wb_deploy_spec *spec, struct wb_deploy **out, struct wb_err *err)
{
	struct wb_deploy *d = wb_zalloc(1, sizeof(*d));
	struct wb__tensors t = {0};
	size_t n;
	int rc;

	if (!d)
		return wb_err_set(err, -ENOMEM, "%s", wb_strerror(-ENOMEM));
	d->spec = *spec;
	rc = check_spec(&d->spec, err);
	if (rc == 0)
		rc = wb_model_manifest(&d->spec.model, &d->manifest, err);
	if (rc == 0)
		rc = check_pieces(d, err);
	if (rc == 0)
		rc = find_tensors(d, &t, err);
	if (rc == 0) {
		n = d->spec.trainer.world + (size_t)d->spec.rollout.world * d->spec.engines;
		d->worker = wb_zalloc(n, sizeof(*d->worker));
		d->layout = wb_zalloc(n, sizeof(*d->layout));
		rc = d->worker && d->layout ? add_workers(d, &t, err)
					    : wb_err_set(err, -ENOMEM, "%s", wb_strerror(-ENOMEM));
	}
	wb_free(t.layer);
	if (rc < 0)
		wb_deploy_destroy(d);
	else
		*out = d;
	return rc;
}

void wb_deploy_destroy(struct wb_deploy *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; i < d->n_layout; i++)
		wb_map_destroy(d->layout[i]);
	wb_manifest_destroy(d->manifest);
	wb_free(d->layout);
	wb_free(d->worker);
	wb_free(d);
}

const struct wb_map *wb_deploy_map(const struct wb_deploy *d, enum wb_role role, uint32_t rank)
{
	return d->layout[d->worker[role == WB_ROLE_TRAINER ? rank : d->n_trainer + rank].layout];
}

struct wb_plan_input wb_deploy_input(const struct wb_deploy *d)
{
	return (struct wb_plan_input){.manifest = d->manifest,
		.layout = (const struct wb_map *const *)d->layout,
		.n_layout = d->n_layout,
		.worker = d->worker,
		.n_worker = d->n_worker,
		.lends_rails = true}; /* as the operator plans */
}
