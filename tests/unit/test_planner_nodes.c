/* SPDX-License-Identifier: Apache-2.0 */
/* Pods of one node that reach each other's memory: what comes over the network comes once. */
#include "base/base.h"
#include "base/err.h"
#include "planner/deploy/deploy.h"
#include "planner/internal.h"
#include "planner/plan.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RAIL 1000000000

struct deployment {
	const char *model, *trainer, *rollout;
	uint32_t engines;
};

/* Of nodes of @per_node GPUs.  @pods: of an engine on a node, which share memory; 0 = one, and
 * those of engines share none. */
static struct wb_deploy *deploy(const struct deployment *x, uint32_t per_node, uint32_t pods)
{
	struct wb_deploy_spec s = {.model = *wb_model_find(x->model),
		.engines = x->engines,
		.gpus_per_node = per_node,
		.rail_bytes_per_s = RAIL,
		.pods = pods,
		.shares_memory = pods > 0};
	struct wb_deploy *d = NULL;
	struct wb_err err = {0};

	ck_assert_msg(!wb_parallel_parse(x->trainer, &s.trainer, &err), "%s", err.msg);
	ck_assert_msg(!wb_parallel_parse(x->rollout, &s.rollout, &err), "%s", err.msg);
	ck_assert_msg(!wb_deploy_create(&s, &d, &err), "%s", err.msg);
	return d;
}

/* The rail that is at work longest, in seconds: by the routes, counted here. */
static double busiest(const struct wb_plan *p)
{
	uint64_t *load = calloc(2 * (size_t)p->n_worker, sizeof(*load)), most = 0;

	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (p->worker[r->src].node == p->worker[r->dst].node)
			continue;
		for (uint32_t c = r->chunk_begin; c < r->chunk_end; c++) {
			load[2 * r->src_rail] += wb_chunk_len(p, &p->cls[r->class_id], c);
			load[2 * r->dst_rail + 1] += wb_chunk_len(p, &p->cls[r->class_id], c);
		}
	}
	for (uint32_t i = 0; i < 2 * p->n_worker; i++)
		most = WB_MAX(most, load[i]);
	free(load);
	return (double)most / RAIL;
}

struct times {
	double node_s, worker_s, busiest_s;
};

static struct times times_of(const struct deployment *x, uint32_t pods)
{
	struct wb_deploy *d = deploy(x, 8, pods);
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = NULL;
	struct wb_err err = {0};
	struct times t;

	ck_assert_msg(!wb_plan_create(&in, &p, &err), "%s", err.msg);
	ck_assert_msg(!wb_plan_check(p, d->manifest, in.layout, &err), "%s", err.msg);
	t = (struct times){
		(double)p->node_bound_ns / 1e9, (double)p->worker_bound_ns / 1e9, busiest(p)};
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
	return t;
}

static bool is_about(double a, double b)
{
	return a > 0.99 * b && a < 1.01 * b;
}

/* Two engines of four GPUs on a node of eight need the model twice, and it has eight NICs. */
START_TEST(pods_that_share_memory_take_as_long_as_one_pod_of_the_node)
{
	const struct deployment two = {"Qwen3-32B", "fsdp2:32", "vllm:tp4", 2};
	const struct deployment one = {"Qwen3-32B", "fsdp2:32", "vllm:tp8", 1};
	struct times by_two = times_of(&two, 1), by_one = times_of(&one, 1);
	struct times apart = times_of(&two, 0), cut = times_of(&one, 2);

	ck_assert(is_about(by_two.node_s, by_one.node_s));
	ck_assert(is_about(by_two.worker_s, by_one.worker_s));
	ck_assert_double_le(by_two.busiest_s, 1.02 * by_one.node_s);
	/* The same with the one engine's workers in two pods. */
	ck_assert(is_about(cut.node_s, by_one.node_s));
	ck_assert_double_le(cut.busiest_s, 1.02 * by_one.node_s);
	/* Without memory in common each pod's four NICs bring all of the model. */
	ck_assert(is_about(apart.node_s, 2 * by_one.node_s));
}
END_TEST

static const struct wb_route *source_of(
	const struct wb_plan *p, const struct wb_route *r, enum wb_stage stage)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *x = &p->route[i];

		if (x->stage == stage && x->dst == r->src && x->class_id == r->class_id &&
			x->chunk_begin < r->chunk_end && r->chunk_begin < x->chunk_end)
			return x;
	}
	return NULL;
}

/* An internal route to another domain of its node of what came there from another node; or inside a
 * domain, of what came there from another one. */
static struct wb_route *route_of(struct wb_plan *p, bool is_near)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		struct wb_route *r = &p->route[i];

		if (r->stage == WB_STAGE_INTERNAL && wb_route_is_near(p, r) == is_near &&
			source_of(p, r, is_near ? WB_STAGE_EXTERNAL : WB_STAGE_INTERNAL))
			return r;
	}
	ck_abort_msg("no such route");
}

/* The route brings the same from where its source has it. */
static void from_that_of(const struct wb_plan *p, struct wb_route *r, enum wb_stage stage)
{
	const struct wb_route *via = source_of(p, r, stage);

	r->stage = stage;
	r->chunk_begin = WB_MAX(r->chunk_begin, via->chunk_begin);
	r->chunk_end = WB_MIN(r->chunk_end, via->chunk_end);
	r->src = r->src_rail = via->src;
}

/* Another rollout worker, that neither sends nor gets: of the node, or of another. */
static uint16_t other_than(const struct wb_plan *p, const struct wb_route *r, bool is_inside)
{
	for (uint32_t w = 2; w < p->n_worker; w++)
		if (p->worker[w].domain != p->worker[r->src].domain &&
			p->worker[w].domain != p->worker[r->dst].domain &&
			(p->worker[w].node == p->worker[r->dst].node) == is_inside)
			return (uint16_t)w;
	ck_abort_msg("no such worker");
}

static const char *const broken[] = {
	"the source is in another node",
	"the source is not the one of its node that took this",
	"its domain gets this twice",
	"its node gets this twice",
};

/* Three engines of two on a node, and one on another: what all need comes to a node once. */
static struct wb_plan *plan_of_four(struct wb_deploy **d, struct wb_plan_input *in)
{
	const struct deployment x = {"Qwen3-0.6B", "fsdp2:2", "vllm:tp2", 4};
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	*d = deploy(&x, 6, 1);
	*in = wb_deploy_input(*d);
	ck_assert_msg(!wb_plan_create(in, &p, &err), "%s", err.msg);
	return p;
}

START_TEST(a_plan_that_takes_more_than_once_into_a_node_or_domain_fails_the_check)
{
	struct wb_plan_input in;
	struct wb_deploy *d;
	struct wb_plan *p = plan_of_four(&d, &in);
	struct wb_err err = {0};
	struct wb_route *r;

	r = route_of(p, _i != 2);
	if (_i < 2)
		r->src = r->src_rail = other_than(p, r, _i == 1);
	else /* from the one that its neighbour has it from, of the node or of another */
		from_that_of(p, r, _i == 2 ? WB_STAGE_INTERNAL : WB_STAGE_EXTERNAL);
	qsort(p->route, p->n_route, sizeof(*p->route), wb__route_order);
	ck_assert_int_eq(wb_plan_check(p, d->manifest, in.layout, &err), WB_EPLAN);
	ck_assert_msg(strstr(err.msg, broken[_i]) != NULL, "%s", err.msg);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

/* Bytes that go from pod to pod of a node go through memory: there is no rail to lend. */
START_TEST(a_rail_is_not_lent_for_what_stays_in_the_node)
{
	struct wb_plan_input in;
	struct wb_deploy *d;
	struct wb_plan *p = plan_of_four(&d, &in);
	struct wb_err err = {0};
	struct wb_route *r;

	ck_assert_int_eq(wb__plan_sane(p, &err), 0);
	r = route_of(p, true);
	for (uint32_t w = 0; w < p->n_worker; w++)
		if (w != r->dst && p->worker[w].domain == p->worker[r->dst].domain)
			r->dst_rail = (uint16_t)w;
	ck_assert(r->dst_rail != r->dst);
	ck_assert_int_lt(wb__plan_sane(p, &err), 0);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

START_TEST(an_agent_on_two_nodes_is_refused)
{
	const struct deployment x = {"Qwen3-0.6B", "fsdp2:2", "vllm:tp2", 1};
	struct wb_deploy *d = deploy(&x, 8, 1);
	struct wb_plan_input in = wb_deploy_input(d);
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	d->worker[3].node = 0;
	ck_assert_int_eq(wb_plan_create(&in, &p, &err), -EINVAL);
	ck_assert_str_eq(
		err.msg, "worker 3 of domain 1 is on node 0, others of the domain on node 1");
	wb_deploy_destroy(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_nodes");
	TCase *c = tcase_create("nodes");

	suite_add_tcase(s, c);
	tcase_add_test(c, pods_that_share_memory_take_as_long_as_one_pod_of_the_node);
	tcase_add_loop_test(c,
		a_plan_that_takes_more_than_once_into_a_node_or_domain_fails_the_check, 0,
		(int)WB_ARRAY_SIZE(broken));
	tcase_add_test(c, a_rail_is_not_lent_for_what_stays_in_the_node);
	tcase_add_test(c, an_agent_on_two_nodes_is_refused);
	tcase_set_timeout(c, 60);
	return fx_run(s);
}
