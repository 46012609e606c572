/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl simulate: plan a deployment from its geometry, and predict a transfer, without weights,
 * workers or an operator. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "ctl/ctl.h"
#include "ctl/fetch.h"
#include "ctl/html.h"
#include "ctl/simulation.h"
#include "ctl/travel.h"
#include "planner/deploy/deploy.h"
#include "predict/paper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- maps ---- */

static int write_file(const char *dir, const char *name, struct wb_buf *b, struct wb_err *err)
{
	char path[4096];
	FILE *f;
	bool ok;

	if (b->rc)
		return wb_err_set(err, b->rc, "%s: %s", name, wb_strerror(b->rc));
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "wbe");
	ok = f && fwrite(b->data, 1, b->len, f) == b->len;
	if ((f && fclose(f)) || !ok)
		return wb_err_set(err, -errno, "write %s: %s", path, strerror(errno));
	return 0;
}

/* Writes the manifest, and the maps of all workers of the trainer and of one engine. */
static int dump_maps(const struct wb_deploy *d, const char *dir, struct wb_err *err)
{
	uint32_t n = d->n_trainer + d->spec.rollout.world;
	struct wb_buf b;
	char name[32];
	int rc;

	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return wb_err_set(err, -errno, "make %s: %s", dir, strerror(errno));
	wb_buf_init(&b, SIZE_MAX / 2);
	wb_manifest_encode(d->manifest, &b);
	rc = write_file(dir, "manifest.bin", &b, err);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		bool is_trainer = i < d->n_trainer;
		uint32_t rank = is_trainer ? i : i - d->n_trainer;

		snprintf(name, sizeof(name), "%s-%" PRIu32 ".bin",
			is_trainer ? "trainer" : "rollout", rank);
		wb_buf_reset(&b);
		wb_map_encode(
			wb_deploy_map(d, is_trainer ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, rank), &b);
		rc = write_file(dir, name, &b, err);
	}
	wb_buf_finish(&b);
	return rc;
}

/* ---- the plan ---- */

struct figures {
	const char *name;
	double plan_ms, rss_mib, t_min_ms, worker_bound_ms, load;
	struct wb_plan_summary sum;
	struct wb__ctl_travel travel;
	/* ideal: loops take no time; its engine[] is freed already.  real: loops take time. */
	struct wb_predict_result ideal, real;
	struct wb_predict_paper paper;
	bool is_paper; /* only paper is filled in */
};

static double peak_mib(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)r.ru_maxrss / 1024;
}

/* The part that was at work longest, which is what limits the transfer. */
static enum wb_predict_part busiest(const struct wb_predict_result *r)
{
	enum wb_predict_part most = 0;

	for (enum wb_predict_part p = 0; p < WB_PREDICT_PARTS; p++)
		if (r->busiest[p].s > r->busiest[most].s)
			most = p;
	return most;
}

static void put_rounds(struct wb_buf *b, const struct wb_predict_paper *r)
{
	wb_buf_printf(b,
		",\"mode\":\"paper\",\"rounds\":%" PRIu32 ",\"receive_peers\":%" PRIu32
		",\"exchange_peers\":%" PRIu32
		",\"ewtt_ms\":%.3f,\"agst_ms\":%.3f,\"trainer_ms\":%.3f,\"engine_ms\":%.3f,"
		"\"control_ms\":%.3f,\"ewtt_over_tmin\":%.4f,\"agst_over_tmin\":%.4f,"
		"\"busiest\":\"rail\",\"busiest_of\":%" PRIu32 ",\"busiest_share\":%.3f",
		r->rounds, r->peers[WB_STAGE_RECEIVE], r->peers[WB_STAGE_EXTERNAL], r->ewtt_s * 1e3,
		r->agst_s * 1e3, r->trainer_s * 1e3, r->engine_s * 1e3, r->control_s * 1e3,
		r->ewtt_s / r->bound_s, r->agst_s / r->bound_s, r->busiest.of,
		r->busiest.s / r->ewtt_s);
}

static void print_rounds(const struct wb_predict_paper *r)
{
	printf("rounds           %" PRIu32 ", of up to %" PRIu32 " trainers and %" PRIu32
	       " other workers to one\n",
		r->rounds, r->peers[WB_STAGE_RECEIVE], r->peers[WB_STAGE_EXTERNAL]);
	printf("ewtt_ms          %.3f, %.3f x t_min\n", r->ewtt_s * 1e3, r->ewtt_s / r->bound_s);
	printf("agst_ms          %.3f, %.3f x t_min\n", r->agst_s * 1e3, r->agst_s / r->bound_s);
	printf("trainer_ms       %.3f until trainers go on\n", r->trainer_s * 1e3);
	printf("engine_ms        %.3f until engines stop\n", r->engine_s * 1e3);
	printf("control_ms       %.3f before the stages of all rounds, in part beside others\n",
		r->control_s * 1e3);
	printf("busiest          rail of worker %" PRIu32 ", at work for %.0f %% of it\n",
		r->busiest.of, 100 * r->busiest.s / r->ewtt_s);
}

static void put_prediction(struct wb_buf *b, const struct figures *f)
{
	const struct wb_predict_result *i = &f->ideal, *r = &f->real;
	enum wb_predict_part by = busiest(r);

	if (f->is_paper) {
		put_rounds(b, &f->paper);
		return;
	}
	wb_buf_printf(b,
		",\"ewtt_ms\":%.3f,\"agst_ms\":%.3f,\"trainer_ms\":%.3f,\"ewtt_over_tmin\":%.4f,"
		"\"ewtt_over_tmin_loop\":%.4f,\"agst_over_tmin\":%.4f,\"agst_over_tmin_loop\":%.4f,"
		"\"agst_early_over_tmin\":%.4f,\"agst_stay_over_tmin\":%.4f,\"events\":%" PRIu64
		",\"loop_events_max\":%" PRIu64 ",\"refused\":%" PRIu64
		",\"busiest\":\"%s\",\"busiest_of\":%" PRIu32
		",\"busiest_share\":%.3f,\"ewtt_over_tmin_paper\":%.4f,"
		"\"agst_over_tmin_paper\":%.4f",
		r->ewtt_s * 1e3, r->agst_s * 1e3, r->trainer_s * 1e3, i->ewtt_s / i->bound_s,
		r->ewtt_s / r->bound_s, i->agst_s / i->bound_s, r->agst_s / r->bound_s,
		i->agst_early_s / i->bound_s, i->agst_stay_s / i->bound_s, r->events,
		r->loop_events_max, r->refused, wb_predict_part_name(by), r->busiest[by].of,
		r->busiest[by].s / r->ewtt_s, f->paper.ewtt_s / f->paper.bound_s,
		f->paper.agst_s / f->paper.bound_s);
}

static void print_prediction(const struct figures *f)
{
	const struct wb_predict_result *i = &f->ideal, *r = &f->real;
	enum wb_predict_part by = busiest(r);

	if (f->is_paper) {
		print_rounds(&f->paper);
		return;
	}
	printf("ewtt_ms          %.3f, %.3f x t_min (%.3f x if loops took no time)\n",
		r->ewtt_s * 1e3, r->ewtt_s / r->bound_s, i->ewtt_s / i->bound_s);
	printf("agst_ms          %.3f, %.3f x t_min (%.3f x)\n", r->agst_s * 1e3,
		r->agst_s / r->bound_s, i->agst_s / i->bound_s);
	printf("trainer_ms       %.3f until trainers go on\n", r->trainer_s * 1e3);
	printf("busiest          %s of %s %" PRIu32 ", at work for %.0f %% of it\n",
		wb_predict_part_name(by), by == WB_PREDICT_LOOP ? "agent" : "worker",
		r->busiest[by].of, 100 * r->busiest[by].s / r->ewtt_s);
	printf("events           %" PRIu64 ", %" PRIu64 " of them one agent's\n", r->events,
		r->loop_events_max);
}

static uint32_t count_pods(const struct wb_deploy *d)
{
	return d->worker[d->n_worker - 1].domain + 1; /* domains rise with the workers */
}

static void print_json(const struct wb__ctl_simulate *s, const struct wb_deploy *d,
	const struct wb_plan *p, const struct figures *f)
{
	struct wb_buf b;

	wb_buf_init(&b, 1u << 16);
	wb_buf_printf(&b, "{\"deployment\":");
	wb_buf_json_str(&b, f->name);
	wb_buf_printf(&b, ",\"model\":");
	wb_buf_json_str(&b, d->spec.model.name);
	wb_buf_printf(&b, ",\"trainer\":");
	wb_buf_json_str(&b, s->trainer);
	wb_buf_printf(&b, ",\"rollout\":");
	wb_buf_json_str(&b, s->rollout);
	wb_buf_printf(&b,
		",\"engines\":%" PRIu32 ",\"nodes\":%" PRIu32 ",\"pods\":%" PRIu32
		",\"pod_memory\":\"%s\",\"near_gb\":%.3f,\"tensors\":%" PRIu32
		",\"model_bytes\":%" PRIu64 ",\"workers\":%" PRIu32 ",\"layouts\":%" PRIu32
		",\"classes\":%" PRIu32 ",\"messages\":%" PRIu64 ",\"peers_max\":%" PRIu32
		",\"plan_ms\":%.1f,\"rss_mib\":%.1f,\"t_min_ms\":%.3f,\"worker_bound_ms\":%.3f,"
		"\"load_over_bound\":%.4f,\"head_mib\":%.3f,\"part_max_mib\":%.3f,"
		"\"replan_ms\":%.1f",
		d->spec.engines, d->n_node, count_pods(d), s->pod_memory,
		(double)f->sum.near_bytes / 1e9, d->manifest->n, p->model_bytes, d->n_worker,
		d->n_layout, p->n_class, f->sum.messages, f->sum.peers_max, f->plan_ms, f->rss_mib,
		f->t_min_ms, f->worker_bound_ms, f->load, f->travel.head_mib,
		f->travel.part_max_mib, f->travel.replan_ms);
	if (!s->plan_only)
		put_prediction(&b, f);
	wb_buf_printf(&b, "}\n");
	fputs(wb_buf_cstr(&b), stdout);
	wb_buf_finish(&b);
}

static void print_text(const struct wb__ctl_simulate *s, const struct wb_deploy *d,
	const struct wb_plan *p, const struct figures *f)
{
	const char *by = wb_plan_bound_by(p);

	printf("model            %s: %" PRIu32 " tensors, %.2f GB of them needed\n",
		d->spec.model.name, d->manifest->n, (double)p->model_bytes / 1e9);
	printf("trainer          %s: %" PRIu32 " workers\n", s->trainer, d->n_trainer);
	printf("rollout          %s: %" PRIu32 " engines of %" PRIu32 " workers\n", s->rollout,
		d->spec.engines, d->spec.rollout.world);
	printf("nodes            %" PRIu32 ", of %" PRIu32 " GPUs, a NIC of %s Gbit/s each\n",
		d->n_node, d->spec.gpus_per_node, s->rail_gbit);
	printf("pods             %" PRIu32 ", %s\n", count_pods(d),
		d->spec.shares_memory ? "those of a node share memory"
				      : "each with memory of its own");
	printf("workers          %" PRIu32 ", with %" PRIu32 " layouts\n", d->n_worker,
		d->n_layout);
	printf("classes          %" PRIu32 "\n", p->n_class);
	printf("near_gb          %.3f, through memory\n", (double)f->sum.near_bytes / 1e9);
	printf("messages         %" PRIu64 " of up to %" PRIu32 " KiB\n", f->sum.messages,
		p->chunk_bytes >> 10);
	printf("peers_max        %" PRIu32 "\n", f->sum.peers_max);
	printf("plan_ms          %.1f\n", f->plan_ms);
	printf("rss_mib          %.1f\n", f->rss_mib);
	printf("t_min_ms         %.3f (%s)\n", f->t_min_ms, by ? by : "no rate");
	printf("worker_bound_ms  %.3f\n", f->worker_bound_ms);
	printf("load_over_bound  %.4f\n", f->load);
	printf("head_mib         %.3f, which all agents get\n", f->travel.head_mib);
	printf("part_max_mib     %.3f\n", f->travel.part_max_mib);
	printf("replan_ms        %.1f\n", f->travel.replan_ms);
	if (!s->plan_only)
		print_prediction(f);
}

/* ---- pictures ---- */

static void put_line(struct wb_buf *b, const struct wb_predict_line *l)
{
	wb_buf_printf(b, ",\"span_ms\":%.6f,\"moved_spans\":%" PRIu32 ",\"moved\":[",
		l->span_s * 1e3, l->n);
	for (int stage = 0; stage < WB_STAGES; stage++) {
		wb_buf_printf(b, "%s[", stage ? "," : "");
		for (uint32_t i = 0; i < l->n; i++)
			wb_buf_printf(b, "%s%" PRIu64, i ? "," : "", l->bytes[stage][i]);
		wb_buf_printf(b, "]");
	}
	wb_buf_printf(b, "]");
}

/* Writes what page.html draws of a prediction. */
static void put_picture(struct wb_buf *b, const struct figures *f)
{
	static const char *const stage[] = {
		"from a trainer", "between engines", "inside an engine"};
	const struct wb_predict_result *r = &f->real;

	wb_buf_printf(b, "{\"t_min_ms\":%.3f", f->t_min_ms);
	put_prediction(b, f);
	put_line(b, &r->line);
	wb_buf_printf(b,
		",\"tail\":{\"ms\":%.3f,\"src\":%" PRIu32 ",\"dst\":%" PRIu32
		",\"stage\":\"%s\"},\"engines\":[",
		r->tail.s * 1e3, r->tail.src, r->tail.dst, stage[r->tail.stage]);
	for (uint32_t e = 0; e < r->n_engine; e++)
		wb_buf_printf(b, "%s[%.3f,%.3f]", e ? "," : "", r->engine[e].received_s * 1e3,
			r->engine[e].complete_s * 1e3);
	wb_buf_printf(b, "]}");
}

static int draw(const char *path, const struct wb__ctl_simulate *s, const struct wb_deploy *d,
	const struct wb_plan *p, const struct figures *f, struct wb_err *err)
{
	struct wb_page_part part[2];
	struct wb_buf plan, prediction, title;
	size_t n = 0;
	int rc;

	wb_buf_init(&plan, WB_CTL_PAGE_MAX);
	wb_buf_init(&prediction, WB_CTL_PAGE_MAX);
	wb_buf_init(&title, 1u << 12);
	wb_buf_printf(&title, "%s: %s to %" PRIu32 " x %s", f->name, s->trainer, d->spec.engines,
		s->rollout);
	rc = wb_plan_explain(p, d->manifest, NULL, true, &plan);
	part[n++] = (struct wb_page_part){"plan", wb_buf_cstr(&plan), plan.len};
	if (!s->plan_only) {
		put_picture(&prediction, f);
		part[n++] = (struct wb_page_part){
			"prediction", wb_buf_cstr(&prediction), prediction.len};
	}
	if (rc == 0)
		rc = prediction.rc;
	if (rc < 0)
		wb_err_set(err, rc, "draw %s: %s", path, wb_strerror(rc));
	else
		rc = wb__ctl_html(path, wb_buf_cstr(&title), part, n, err);
	wb_buf_finish(&plan);
	wb_buf_finish(&prediction);
	wb_buf_finish(&title);
	return rc;
}

/* ---- the transfer ---- */

static int predict(const struct wb__ctl_simulate *s, const struct wb_plan_input *of,
	const struct wb_plan *p, struct figures *f, struct wb_err *err)
{
	bool both = !strcmp(s->staging, "both");
	struct wb_predict_input in = {
		.plan = p,
		.manifest = of->manifest,
		.layout = of->layout,
		.params = wb_predict_defaults(),
		.trainer_staged = both || !strcmp(s->staging, "trainer"),
		.rollout_staged = both || !strcmp(s->staging, "rollout"),
	};
	int rc = wb_predict_set(&in.params, s->set, err);

	f->is_paper = !strcmp(s->mode, "paper");
	if (rc == 0)
		rc = wb_predict_paper(&in, &f->paper, err);
	if (rc < 0 || f->is_paper)
		return rc;
	rc = wb_predict(&in, &f->real, err);
	in.params.loop_us = 0;
	if (rc == 0)
		rc = wb_predict(&in, &f->ideal, err);
	wb_predict_finish(&f->ideal);
	return rc;
}

static int plan_it(const struct wb__ctl_opts *o, const struct wb__ctl_simulate *s,
	const struct wb_deploy *d, struct wb_err *err)
{
	struct wb_plan_input in = wb_deploy_input(d);
	struct figures f = {.name = *s->name ? s->name : d->spec.model.name};
	struct wb_plan *p = NULL;
	uint64_t t0 = wb_now_ns(&wb_clock_real);
	int rc = wb_plan_create(&in, &p, err);

	if (rc < 0)
		return rc;
	f.plan_ms = (double)(wb_now_ns(&wb_clock_real) - t0) / 1e6;
	f.rss_mib = peak_mib();
	rc = wb_plan_summarize(p, &f.sum);
	if (rc < 0)
		wb_err_set(err, rc, "summarize the plan: %s", wb_strerror(rc));
	else
		rc = wb__ctl_travel(d, p, &f.travel, err);
	if (rc == 0 && !s->plan_only)
		rc = predict(s, &in, p, &f, err);
	f.t_min_ms = (double)p->node_bound_ns / 1e6;
	f.worker_bound_ms = (double)p->worker_bound_ns / 1e6;
	f.load = (double)f.sum.busiest_ns / (double)WB_MAX(p->worker_bound_ns, 1);
	if (rc == 0 && o->html)
		rc = draw(o->html, s, d, p, &f, err);
	else if (rc == 0)
		(o->is_json ? print_json : print_text)(s, d, p, &f);
	wb_predict_finish(&f.real);
	wb_plan_destroy(p);
	return rc;
}

static int list_parameters(void)
{
	struct wb_buf b;

	wb_buf_init(&b, 1u << 16);
	wb_predict_list(&b);
	fputs(wb_buf_cstr(&b), stdout);
	wb_buf_finish(&b);
	return 0;
}

int wb__ctl_simulate(const struct wb__ctl_opts *o, struct wb_err *err)
{
	struct wb__ctl_simulation s;
	struct wb_deploy *d = NULL;
	int rc;

	if (o->simulate.set && !strcmp(o->simulate.set, "list"))
		return list_parameters();
	rc = wb__ctl_simulation_read(o, &s, err);
	if (rc == 0)
		rc = wb_deploy_create(&s.spec, &d, err);
	if (rc == 0 && s.as.dump_maps)
		rc = dump_maps(d, s.as.dump_maps, err);
	if (rc == 0)
		rc = plan_it(o, &s.as, d, err);
	wb_deploy_destroy(d);
	wb__ctl_simulation_finish(&s);
	return rc;
}
