/* SPDX-License-Identifier: Apache-2.0 */
/* Describe a plan, as text for people or as JSON for tools. */
#include "planner/plan.h"

#include "base/base.h"
#include "base/mem.h"
#include "planner/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES_SHOWN 40 /* in the text; JSON has all */

static const char *const stage_name[WB_STAGES] = {"receive", "external", "internal"};

/* What goes over one worker's rail, and inside its node. */
struct rail {
	uint64_t out[WB_STAGES], in[WB_STAGES];
	uint64_t inside_out, inside_in; /* of the receive stage: inside its node, through memory */
	uint64_t lent; /* part of in[]: landed for other workers of its domain */
	uint64_t chunks; /* sent or taken, the greater of both; without the internal stage */
	uint32_t peers; /* other rails with which it exchanges bytes over the network */
};

struct domain {
	uint64_t in[WB_STAGES];
	uint32_t n_worker;
};

struct pair { /* of domains; key: from << 32 | to */
	uint64_t key, bytes;
};

struct explain {
	const struct wb_plan *p;
	const struct wb_manifest *m; /* NULL: no tensor names */
	const char *const *name;
	struct wb_buf *b;
	struct rail *rail; /* by worker */
	struct domain *domain;
	uint64_t bytes[WB_STAGES], chunks[WB_STAGES], inside, near, lent; /* near: of internal */
	uint32_t routes[WB_STAGES], n_role[3], n_engine, n_domain, n_node;
	uint32_t bound_node, busiest; /* node (UINT32_MAX = trainer egress) and worker */
	bool is_out; /* direction of the busiest rail */
	uint64_t rounds, rail_ns, expected_ns; /* ns are 0 when a rate is unknown */
};

static uint64_t net_out(const struct rail *r)
{
	return r->out[WB_STAGE_RECEIVE] + r->out[WB_STAGE_EXTERNAL] - r->inside_out;
}

static uint64_t net_in(const struct rail *r)
{
	return r->in[WB_STAGE_RECEIVE] + r->in[WB_STAGE_EXTERNAL] - r->inside_in;
}

static uint64_t route_bytes(const struct wb_plan *p, const struct wb_route *r)
{
	const struct wb_class *k = &p->cls[r->class_id];
	uint64_t end = WB_MIN((uint64_t)r->chunk_end * p->chunk_bytes, k->bytes);

	return end - (uint64_t)r->chunk_begin * p->chunk_bytes;
}

static int by_u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int count_peers(struct explain *e)
{
	const struct wb_plan *p = e->p;
	uint64_t *pair = wb_zalloc(p->n_route, sizeof(*pair));
	size_t n = 0;

	if (!pair)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (r->stage != WB_STAGE_INTERNAL && !wb_route_is_inside(p, r))
			pair[n++] = (uint64_t)WB_MIN(r->src_rail, r->dst_rail) << 32 |
				    WB_MAX(r->src_rail, r->dst_rail);
	}
	if (n)
		qsort(pair, n, sizeof(*pair), by_u64);
	for (size_t i = 0; i < n; i++) {
		if (i && pair[i] == pair[i - 1])
			continue;
		e->rail[pair[i] >> 32].peers++;
		e->rail[(uint32_t)pair[i]].peers++;
	}
	wb_free(pair);
	return 0;
}

static int count_routes(struct explain *e)
{
	const struct wb_plan *p = e->p;
	uint64_t *sent = wb_zalloc(2 * (size_t)p->n_worker, sizeof(*sent));
	uint64_t *taken;

	if (!sent)
		return -ENOMEM;
	taken = sent + p->n_worker;
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		uint64_t n = route_bytes(p, r), chunks = r->chunk_end - r->chunk_begin;

		e->routes[r->stage]++;
		e->bytes[r->stage] += n;
		e->chunks[r->stage] += chunks;
		e->rail[r->src_rail].out[r->stage] += n;
		e->rail[r->dst_rail].in[r->stage] += n;
		e->rail[r->dst_rail].lent += r->dst_rail == r->dst ? 0 : n;
		e->lent += r->dst_rail == r->dst ? 0 : n;
		e->domain[p->worker[r->dst].domain].in[r->stage] += n;
		if (r->stage != WB_STAGE_INTERNAL) {
			sent[r->src_rail] += chunks;
			taken[r->dst_rail] += chunks;
		}
		e->near += r->stage == WB_STAGE_INTERNAL && wb_route_is_near(p, r) ? n : 0;
		if (r->stage == WB_STAGE_RECEIVE && wb_route_is_inside(p, r)) {
			e->rail[r->src].inside_out += n;
			e->rail[r->dst].inside_in += n;
			e->inside += n;
		}
	}
	for (uint32_t i = 0; i < p->n_worker; i++) {
		e->rail[i].chunks = WB_MAX(sent[i], taken[i]);
		e->rounds = WB_MAX(e->rounds, wb_ceil_div(e->rail[i].chunks, WB_POOL_DEPTH));
	}
	wb_free(sent);
	return count_peers(e);
}

/* Count the engines, domains and nodes that occur, since their numbers may have gaps. */
static int count_workers(struct explain *e)
{
	const struct wb_plan *p = e->p;
	uint8_t *seen = wb_zalloc(p->n_worker, sizeof(*seen));

	if (!seen)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_worker; i++) {
		const struct wb_plan_worker *w = &p->worker[i];

		e->n_role[w->role]++;
		e->domain[w->domain].n_worker++;
		e->n_domain += !(seen[w->domain] & 1);
		seen[w->domain] |= 1;
		e->n_node += !(seen[w->node] & 2);
		seen[w->node] |= 2;
		if (w->role != WB_ROLE_ROLLOUT)
			continue;
		e->n_engine += !(seen[w->engine] & 4);
		seen[w->engine] |= 4;
	}
	wb_free(seen);
	return 0;
}

/* Find the rail that ends last, and estimate how long the transfer takes: the time of this rail,
 * and the time of one chunk, or of two with an external stage, to fill and drain the pipeline. */
static void find_busiest(struct explain *e)
{
	const struct wb_plan *p = e->p;
	double best = -1;
	double rate, fill;

	for (uint32_t i = 0; i < p->n_worker; i++) {
		double r =
			p->worker[i].rail_bytes_per_s ? (double)p->worker[i].rail_bytes_per_s : 1;
		double out = (double)net_out(&e->rail[i]) / r, in = (double)net_in(&e->rail[i]) / r;

		if (WB_MAX(out, in) <= best)
			continue;
		best = WB_MAX(out, in);
		e->busiest = i;
		e->is_out = out >= in;
	}
	if (!p->worker_bound_ns)
		return;
	rate = (double)WB_MAX(p->worker[e->busiest].rail_bytes_per_s, 1);
	fill = (e->bytes[WB_STAGE_EXTERNAL] ? 2.0 : 1.0) * p->chunk_bytes / rate;
	e->rail_ns = (uint64_t)wb__ns_of(best);
	e->expected_ns = (uint64_t)wb__ns_of(best + fill);
}

static int measure(struct explain *e)
{
	const struct wb_plan *p = e->p;
	int64_t bound;
	int rc;

	e->rail = wb_zalloc(p->n_worker, sizeof(*e->rail));
	e->domain = wb_zalloc(p->n_worker, sizeof(*e->domain));
	if (!e->rail || !e->domain)
		return -ENOMEM;
	rc = count_workers(e);
	if (!rc)
		rc = count_routes(e);
	if (rc < 0)
		return rc;
	find_busiest(e);
	bound = wb__node_bound(p, &e->bound_node);
	return bound < 0 ? (int)bound : 0;
}

static void release(struct explain *e)
{
	wb_free(e->rail);
	wb_free(e->domain);
}

int wb_plan_summarize(const struct wb_plan *p, struct wb_plan_summary *out)
{
	struct explain e = {.p = p};
	int rc;

	assert(!p->is_part);
	rc = measure(&e);
	if (rc == 0) {
		*out = (struct wb_plan_summary){.busiest_ns = e.rail_ns, .near_bytes = e.near};
		for (int s = 0; s < WB_STAGES; s++)
			out->messages += e.chunks[s];
		for (uint32_t i = 0; i < p->n_worker; i++)
			out->peers_max = WB_MAX(out->peers_max, e.rail[i].peers);
	}
	release(&e);
	return rc;
}

/* ---- text ---- */

static const char *amount(uint64_t bytes, char out[24])
{
	if (bytes >= 1000000000)
		snprintf(out, 24, "%.2f GB", (double)bytes / 1e9);
	else if (bytes >= 1000000)
		snprintf(out, 24, "%.2f MB", (double)bytes / 1e6);
	else
		snprintf(out, 24, "%.1f KB", (double)bytes / 1e3);
	return out;
}

static const char *who(const struct explain *e, uint32_t worker, char out[32])
{
	if (e->name && e->name[worker] && e->name[worker][0])
		return e->name[worker];
	snprintf(out, 32, "worker %" PRIu32, worker);
	return out;
}

static void text_unrated(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	uint32_t n = 0, first = 0;
	char w[32];

	for (uint32_t i = p->n_worker; i-- > 0;)
		if (!p->worker[i].rail_bytes_per_s) {
			first = i;
			n++;
		}
	if (!n)
		wb_buf_printf(e->b, "bounds    under 1 ns\n");
	else if (n == p->n_worker)
		wb_buf_printf(e->b,
			"bounds    unknown: no rate of the rails is known (agents: --rail-rate)\n");
	else
		wb_buf_printf(e->b,
			"bounds    unknown: the rates of %" PRIu32 " of %" PRIu32
			" rails are not known, %s among them (agents: --rail-rate)\n",
			n, p->n_worker, who(e, first, w));
}

static void text_bounds(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	char w[32], what[64];

	if (!p->worker_bound_ns) {
		text_unrated(e);
		return;
	}
	if (e->bound_node == UINT32_MAX)
		snprintf(what, sizeof(what), "egress of all trainers");
	else
		snprintf(what, sizeof(what), "ingress of node %" PRIu32, e->bound_node);
	wb_buf_printf(e->b, "bounds    node level %.3f ms, set by %s\n",
		(double)p->node_bound_ns / 1e6, what);
	wb_buf_printf(e->b,
		"          worker level %.3f ms; this plan's busiest rail %.3f ms (%.3f "
		"of the bound), %s of %s\n",
		(double)p->worker_bound_ns / 1e6, (double)e->rail_ns / 1e6,
		(double)e->rail_ns / (double)WB_MAX(p->worker_bound_ns, 1),
		e->is_out ? "egress" : "ingress", who(e, e->busiest, w));
	wb_buf_printf(e->b, "expected  %.3f ms, with the pipeline filled and drained\n",
		(double)e->expected_ns / 1e6);
}

static void text_head(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	char a[24], d[24], id[WB_DIGEST_TEXT];

	wb_buf_printf(e->b, "plan      %s\n", wb_digest_text(p->digest, id));
	wb_buf_printf(e->b, "manifest  %s\n", wb_digest_text(p->manifest, id));
	wb_buf_printf(e->b,
		"workers   %" PRIu32 " trainers, %" PRIu32 " rollouts in %" PRIu32
		" engines; %" PRIu32 " exchange domains on %" PRIu32 " nodes; %" PRIu32
		" layouts\n",
		e->n_role[WB_ROLE_TRAINER], e->n_role[WB_ROLE_ROLLOUT], e->n_engine, e->n_domain,
		e->n_node, p->n_layout);
	wb_buf_printf(e->b, "model     %s needed once, %s delivered to all rollouts\n",
		amount(p->model_bytes, a), amount(p->delivered_bytes, d));
	wb_buf_printf(e->b,
		"classes   %" PRIu32 " of %" PRIu32 " segments, %" PRIu32 " chunks of %" PRIu32
		" KiB; %" PRIu64 " rounds of %d chunks on the busiest "
		"worker\n",
		p->n_class, p->n_segment, p->n_chunk, p->chunk_bytes >> 10, e->rounds,
		WB_POOL_DEPTH);
	wb_buf_printf(e->b, "memory    at least %s of slots a trainer worker,",
		amount(p->trainer_slot_min_bytes, a));
	wb_buf_printf(e->b, " %s a rollout worker\n", amount(p->rollout_slot_min_bytes, a));
}

static void text_rails(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	char c[4][24], w[32];

	wb_buf_printf(e->b, "\nstage     routes     chunks       bytes\n");
	for (int s = 0; s < WB_STAGES; s++)
		wb_buf_printf(e->b, "%-9s %6" PRIu32 " %10" PRIu64 " %11s\n", stage_name[s],
			e->routes[s], e->chunks[s], amount(e->bytes[s], c[0]));
	if (e->inside)
		wb_buf_printf(e->b,
			"%s of the receive stage stay inside their node and load no rail\n",
			amount(e->inside, c[0]));
	if (e->near)
		wb_buf_printf(e->b,
			"%s of the internal stage go to another agent of their node, through "
			"memory\n",
			amount(e->near, c[0]));
	if (e->lent)
		wb_buf_printf(e->b,
			"%s land by rails that others of the domain lend (* below): the own ones "
			"are too slow\n",
			amount(e->lent, c[0]));
	wb_buf_printf(e->b, "\n%-32s %11s %11s %11s %11s %6s\n", "rail", "sends", "receives",
		"ext. out", "ext. in", "peers");
	for (uint32_t i = 0; i < p->n_worker; i++) {
		const struct rail *r = &e->rail[i];

		wb_buf_printf(e->b, "%-32s %11s %11s %11s %11s %6" PRIu32 "%s\n", who(e, i, w),
			amount(r->out[WB_STAGE_RECEIVE], c[0]),
			amount(r->in[WB_STAGE_RECEIVE], c[1]),
			amount(r->out[WB_STAGE_EXTERNAL], c[2]),
			amount(r->in[WB_STAGE_EXTERNAL], c[3]), r->peers, r->lent ? " *" : "");
	}
	wb_buf_printf(e->b, "\ndomain  workers    receives     ext. in    internal\n");
	for (uint32_t d = 0; d < p->n_worker; d++) {
		const struct domain *x = &e->domain[d];

		if (x->in[0] + x->in[1] + x->in[2])
			wb_buf_printf(e->b, "%6" PRIu32 " %8" PRIu32 " %11s %11s %11s\n", d,
				x->n_worker, amount(x->in[0], c[0]), amount(x->in[1], c[1]),
				amount(x->in[2], c[2]));
	}
}

static const char *first_tensor(const struct explain *e, const struct wb_class *k)
{
	uint32_t t = e->p->segment[k->seg_begin].tensor;

	return e->m && t < e->m->n ? e->m->tensor[t].name : "";
}

static int text_classes(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	struct wb__sized *order = wb__classes_by_size(p);
	uint32_t shown = WB_MIN(p->n_class, CLASSES_SHOWN);
	char a[24];

	if (!order)
		return -ENOMEM;
	wb_buf_printf(e->b, "\n class       bytes dtype    holders needers segments chunks  first "
			    "tensor\n");
	for (uint32_t i = 0; i < shown; i++) {
		const struct wb_class *k = &p->cls[order[i].cls];

		wb_buf_printf(e->b,
			"%6" PRIu32 " %11s %-8s %7" PRIu32 " %7" PRIu32 " %8" PRIu32 " %6" PRIu32
			"  %s%s\n",
			order[i].cls, amount(k->bytes, a), wb_dtype_name((enum wb_dtype)k->dtype),
			k->holder_end - k->holder_begin, k->needer_end - k->needer_begin,
			k->seg_end - k->seg_begin, k->n_chunk, first_tensor(e, k),
			k->is_direct ? " (direct: its needers round it)" : "");
	}
	if (shown < p->n_class)
		wb_buf_printf(e->b, "       and %" PRIu32 " smaller ones\n", p->n_class - shown);
	wb_free(order);
	return 0;
}

/* ---- JSON ---- */

static void json_stages(const struct explain *e)
{
	wb_buf_printf(e->b, "\"stages\":[");
	for (int s = 0; s < WB_STAGES; s++)
		wb_buf_printf(e->b,
			"%s{\"stage\":\"%s\",\"routes\":%" PRIu32 ",\"chunks\":%" PRIu64
			",\"bytes\":%" PRIu64 "}",
			s ? "," : "", stage_name[s], e->routes[s], e->chunks[s], e->bytes[s]);
	wb_buf_printf(e->b,
		"],\"receive_inside_bytes\":%" PRIu64 ",\"internal_near_bytes\":%" PRIu64 ",\n",
		e->inside, e->near);
}

static void json_head(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	char id[WB_DIGEST_TEXT];

	wb_buf_printf(e->b, "{\"digest\":\"%s\",", wb_digest_text(p->digest, id));
	wb_buf_printf(e->b, "\"manifest\":\"%s\",", wb_digest_text(p->manifest, id));
	wb_buf_printf(e->b,
		"\"trainers\":%" PRIu32 ",\"rollouts\":%" PRIu32 ",\"engines\":%" PRIu32
		",\"domains\":%" PRIu32 ",\"nodes\":%" PRIu32 ",\"layouts\":%" PRIu32 ",\n",
		e->n_role[WB_ROLE_TRAINER], e->n_role[WB_ROLE_ROLLOUT], e->n_engine, e->n_domain,
		e->n_node, p->n_layout);
	wb_buf_printf(e->b,
		"\"model_bytes\":%" PRIu64 ",\"delivered_bytes\":%" PRIu64
		",\"chunk_bytes\":%" PRIu32 ",\"n_class\":%" PRIu32 ",\"n_segment\":%" PRIu32
		",\"n_chunk\":%" PRIu32 ",\"n_route\":%" PRIu32 ",\"rounds\":%" PRIu64 ",\n",
		p->model_bytes, p->delivered_bytes, p->chunk_bytes, p->n_class, p->n_segment,
		p->n_chunk, p->n_route, e->rounds);
	wb_buf_printf(e->b,
		"\"trainer_slot_min_bytes\":%" PRIu64 ",\"rollout_slot_min_bytes\":%" PRIu64 ",\n",
		p->trainer_slot_min_bytes, p->rollout_slot_min_bytes);
	if (p->worker_bound_ns) {
		wb_buf_printf(e->b,
			"\"node_bound_ns\":%" PRIu64 ",\"worker_bound_ns\":%" PRIu64
			",\"busiest_rail_ns\":%" PRIu64 ",\"expected_ns\":%" PRIu64 ",",
			p->node_bound_ns, p->worker_bound_ns, e->rail_ns, e->expected_ns);
		wb_buf_printf(e->b,
			"\"busiest_rail\":{\"worker\":%" PRIu32 ",\"direction\":\"%s\"},",
			e->busiest, e->is_out ? "egress" : "ingress");
		if (e->bound_node == UINT32_MAX)
			wb_buf_printf(e->b, "\"node_bound_set_by\":\"trainer egress\",\n");
		else
			wb_buf_printf(e->b,
				"\"node_bound_set_by\":\"ingress of node %" PRIu32 "\",\n",
				e->bound_node);
	}
	json_stages(e);
}

static void json_rails(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	const char *sep = "";

	wb_buf_printf(e->b, "\"rails\":[");
	for (uint32_t i = 0; i < p->n_worker; i++) {
		const struct rail *r = &e->rail[i];
		const struct wb_plan_worker *w = &p->worker[i];
		char name[32];

		wb_buf_printf(e->b, "%s\n{\"worker\":%" PRIu32 ",\"name\":", i ? "," : "", i);
		wb_buf_json_str(e->b, who(e, i, name));
		wb_buf_printf(e->b,
			",\"role\":\"%s\",\"layout\":%" PRIu32 ",\"engine\":%" PRIu32
			",\"domain\":%" PRIu32 ",\"node\":%" PRIu32 ",\"rail_bytes_per_s\":%" PRIu64
			",",
			wb_word(&wb_role_words, w->role), w->layout, w->engine, w->domain, w->node,
			w->rail_bytes_per_s);
		wb_buf_printf(e->b,
			"\"send_bytes\":%" PRIu64 ",\"receive_bytes\":%" PRIu64
			",\"external_out_bytes\":%" PRIu64 ",\"external_in_bytes\":%" PRIu64
			",\"internal_out_bytes\":%" PRIu64 ",\"internal_in_bytes\":%" PRIu64
			",\"lent_bytes\":%" PRIu64 ",\"chunks\":%" PRIu64 ",\"peers\":%" PRIu32 "}",
			r->out[0], r->in[0], r->out[1], r->in[1], r->out[2], r->in[2], r->lent,
			r->chunks, r->peers);
	}
	wb_buf_printf(e->b, "],\n\"domains_in\":[");
	for (uint32_t d = 0; d < p->n_worker; d++) {
		const struct domain *x = &e->domain[d];

		if (!(x->in[0] + x->in[1] + x->in[2]))
			continue;
		wb_buf_printf(e->b,
			"%s\n{\"domain\":%" PRIu32 ",\"workers\":%" PRIu32
			",\"receive_bytes\":%" PRIu64 ",\"external_bytes\":%" PRIu64
			",\"internal_bytes\":%" PRIu64 "}",
			sep, d, x->n_worker, x->in[0], x->in[1], x->in[2]);
		sep = ",";
	}
}

static int by_pair(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

/* Bytes that each domain sends to each other domain over the network. */
static int json_pairs(const struct explain *e)
{
	const struct wb_plan *p = e->p;
	struct pair *pair = wb_zalloc(p->n_route, sizeof(*pair));
	size_t n = 0;

	if (!pair)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (r->stage == WB_STAGE_INTERNAL || wb_route_is_inside(p, r))
			continue;
		pair[n++] = (struct pair){
			(uint64_t)p->worker[r->src].domain << 32 | p->worker[r->dst].domain,
			route_bytes(p, r)};
	}
	if (n)
		qsort(pair, n, sizeof(*pair), by_pair);
	wb_buf_printf(e->b, "],\n\"domain_pairs\":[");
	for (size_t i = 0, k; i < n; i = k) {
		uint64_t bytes = 0;

		for (k = i; k < n && pair[k].key == pair[i].key; k++)
			bytes += pair[k].bytes;
		wb_buf_printf(e->b, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", i ? "," : "",
			pair[i].key >> 32, pair[i].key & UINT32_MAX, bytes);
	}
	wb_free(pair);
	return 0;
}

static void json_members(const struct explain *e, uint32_t begin, uint32_t end)
{
	for (uint32_t i = begin; i < end; i++)
		wb_buf_printf(e->b, "%s%" PRIu32, i > begin ? "," : "", e->p->member[i]);
}

static void json_classes(const struct explain *e)
{
	const struct wb_plan *p = e->p;

	wb_buf_printf(e->b, "],\n\"classes\":[");
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];

		wb_buf_printf(e->b,
			"%s\n{\"class\":%" PRIu32 ",\"bytes\":%" PRIu64
			",\"dtype\":\"%s\",\"segments\":%" PRIu32 ",\"chunks\":%" PRIu32
			",\"direct\":%s,\"first_tensor\":",
			c ? "," : "", c, k->bytes, wb_dtype_name((enum wb_dtype)k->dtype),
			k->seg_end - k->seg_begin, k->n_chunk, k->is_direct ? "true" : "false");
		wb_buf_json_str(e->b, first_tensor(e, k));
		wb_buf_printf(e->b, ",\"holders\":[");
		json_members(e, k->holder_begin, k->holder_end);
		wb_buf_printf(e->b, "],\"needers\":[");
		json_members(e, k->needer_begin, k->needer_end);
		wb_buf_printf(e->b, "]}");
	}
	wb_buf_printf(e->b, "]}\n");
}

int wb_plan_explain(const struct wb_plan *p, const struct wb_manifest *m,
	const char *const *worker_name, bool as_json, struct wb_buf *out)
{
	struct explain e = {.p = p, .m = m, .name = worker_name, .b = out};
	int rc;

	assert(!p->is_part);
	rc = measure(&e);
	if (!rc && as_json) {
		json_head(&e);
		json_rails(&e);
		rc = json_pairs(&e);
		json_classes(&e);
	} else if (!rc) {
		text_head(&e);
		text_bounds(&e);
		text_rails(&e);
		rc = text_classes(&e);
	}
	release(&e);
	return rc ? rc : out->rc;
}
