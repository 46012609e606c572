/* SPDX-License-Identifier: Apache-2.0 */
/*
 * geometry MODELS.JSON [TITLE...]: plan whole deployments without weights; one JSON object a line
 * with the counts, the bounds and the time that planning took.  --explain prints the plan as well.
 */
#include "tests/common/geometry.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>

static double ms_since(uint64_t t0)
{
	return (double)(wb_now_ns(&wb_clock_real) - t0) / 1e6;
}

static double busiest(const struct wb_plan *p)
{
	static uint64_t out[WB_WORKERS_MAX], in[WB_WORKERS_MAX];
	uint64_t most = 0;

	memset(out, 0, sizeof(out));
	memset(in, 0, sizeof(in));
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		uint64_t n =
			WB_MIN((uint64_t)r->chunk_end * p->chunk_bytes, p->cls[r->class_id].bytes) -
			(uint64_t)r->chunk_begin * p->chunk_bytes;

		if (r->stage == WB_STAGE_INTERNAL)
			continue;
		out[r->src] += n;
		in[r->dst] += n;
		most = WB_MAX(most, WB_MAX(out[r->src], in[r->dst]));
	}
	return (double)most / (double)p->worker[0].rail_bytes_per_s * 1e3;
}

static int run(const struct geo_setting *s, const char *models, bool explain)
{
	struct geometry g;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};
	struct wb_buf b;
	uint64_t t0 = wb_now_ns(&wb_clock_real);
	double made_ms, planned_ms, checked_ms;
	int rc;

	geo_make(&g, s, models);
	made_ms = ms_since(t0);
	t0 = wb_now_ns(&wb_clock_real);
	rc = wb_plan_create(&g.in, &p, &err);
	planned_ms = ms_since(t0);
	t0 = wb_now_ns(&wb_clock_real);
	if (!rc)
		rc = wb_plan_check(p, g.m, g.in.layout, &err);
	checked_ms = ms_since(t0);
	if (rc < 0) {
		fprintf(stderr, "%s: %s\n", s->title, err.msg);
		wb_plan_destroy(p);
		geo_finish(&g);
		return 1;
	}
	wb_buf_init(&b, SIZE_MAX / 2);
	wb_plan_encode(p, &b);
	printf("{\"deployment\":\"%s\",\"model\":\"%s\",\"tensors\":%u,\"trainers\":%u,"
	       "\"rollouts\":%u,\"layouts\":%u,\"model_gb\":%.2f,\"segments\":%u,\"classes\":%u,"
	       "\"set_pairs\":%u,\"routes\":%u,\"chunk_kib\":%u,\"node_bound_ms\":%.1f,"
	       "\"worker_bound_ms\":%.1f,\"busiest_rail_ms\":%.1f,\"plan_bytes\":%zu,"
	       "\"layouts_ms\":%.0f,\"plan_ms\":%.0f,\"check_ms\":%.0f}\n",
		s->title, s->model, g.m->n, g.n_trainer, p->n_worker - g.n_trainer, p->n_layout,
		(double)p->model_bytes / 1e9, p->n_segment, p->n_class, geo_set_pairs(p),
		p->n_route, p->chunk_bytes >> 10, (double)p->node_bound_ns / 1e6,
		(double)p->worker_bound_ns / 1e6, busiest(p), b.len, made_ms, planned_ms,
		checked_ms);
	wb_buf_reset(&b);
	if (explain && !wb_plan_explain(p, g.m, NULL, false, &b))
		fputs(wb_buf_cstr(&b), stdout);
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	geo_finish(&g);
	return 0;
}

int main(int argc, char **argv)
{
	bool explain = argc > 1 && !strcmp(argv[1], "--explain");
	int first = explain ? 2 : 1, rc = 0;

	if (argc <= first) {
		fprintf(stderr, "usage: geometry [--explain] MODELS.JSON [TITLE...]\n");
		return 2;
	}
	for (uint32_t i = 0; i < geo_n_setting; i++) {
		bool is_asked = argc == first + 1;

		for (int a = first + 1; a < argc; a++)
			is_asked |= !strcmp(argv[a], geo_settings[i].title);
		if (is_asked)
			rc |= run(&geo_settings[i], argv[first], explain);
	}
	return rc;
}
