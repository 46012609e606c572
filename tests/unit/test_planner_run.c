/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of random deployments, carried out from their bytes: every agent reads the head and its
 * part, every worker has its parameters in memory, every route moves its bytes in the order of the
 * stages, and each element is held against what a load of the checkpoint gives.  Bounds are held
 * against brute force over elements and sets of workers.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/binding.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_deploy.h"
#include "tests/common/fx_oracle.h"
#include "tests/common/fx_plan.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY 0xa5

static uint64_t first_seed = 1;

/* ---- workers ---- */

struct body {
	const struct fx_deploy *d;
	const struct fx_oracle *o;
	const struct wb_map *map;
	struct wb_binding *b;
	uint8_t **mem, **want; /* by parameter */
	uint8_t **wrote, **once; /* by parameter: times an element was written, and should be */
	struct wbk_box *box;
	uint32_t *param;
	size_t cap;
};

static size_t param_bytes(const struct wb_param *p)
{
	return p->span * wb_dtype_bytes(p->dtype);
}

static void load(void *cookie, const struct wb_op *op, uint64_t e, uint64_t at)
{
	struct body *b = cookie;
	enum wb_dtype wire = b->d->m->tensor[op->tensor].dtype;
	enum wb_dtype type = b->map->param[op->param].dtype;

	fx_cast(wire, type, fx_image_at(b->d, b->o, op->tensor, e - b->d->base[op->tensor]),
		b->want[op->param] + at * wb_dtype_bytes(type));
	b->once[op->param][at]++;
}

static void body_init(struct body *b, const struct fx_deploy *d, const struct fx_oracle *o,
	const struct wb_plan *p, uint32_t worker)
{
	const struct wb_map *map = fx_deploy_map(d, worker);
	struct wb_err err = {0};

	*b = (struct body){.d = d, .o = o, .map = map};
	ck_assert_msg(!wb_binding_create(p, d->m, map, worker, &b->b, &err), "%s", err.msg);
	b->mem = calloc(map->n_param, sizeof(*b->mem));
	b->want = calloc(map->n_param, sizeof(*b->want));
	b->wrote = calloc(map->n_param, sizeof(*b->wrote));
	b->once = calloc(map->n_param, sizeof(*b->once));
	for (uint32_t i = 0; i < map->n_param; i++) {
		size_t n = param_bytes(&map->param[i]);

		b->mem[i] = malloc(n);
		b->want[i] = malloc(n);
		memset(b->mem[i], CANARY, n);
		memset(b->want[i], CANARY, n);
		b->wrote[i] = calloc(map->param[i].span, 1);
		b->once[i] = calloc(map->param[i].span, 1);
	}
	fx_walk(d, map, load, b);
	for (uint32_t i = 0; i < map->n_param && d->worker[worker].role == WB_ROLE_TRAINER; i++)
		memcpy(b->mem[i], b->want[i], param_bytes(&map->param[i]));
	b->cap = wb_binding_boxes_max(b->b);
	b->box = calloc(b->cap + 1, sizeof(*b->box));
	b->param = calloc(b->cap + 1, sizeof(*b->param));
}

static void body_finish(struct body *b)
{
	for (uint32_t i = 0; i < b->map->n_param; i++) {
		free(b->mem[i]);
		free(b->want[i]);
		free(b->wrote[i]);
		free(b->once[i]);
	}
	free(b->mem);
	free(b->want);
	free(b->wrote);
	free(b->once);
	free(b->box);
	free(b->param);
	wb_binding_destroy(b->b);
}

static void count_writes(struct body *b, const struct wbk_box *x, uint32_t param)
{
	for (int64_t k = 0; k < x->repeat; k++)
		for (int64_t r = 0; r < x->n_row; r++)
			for (int64_t c = 0; c < x->n_col; c++) {
				int64_t at = (int64_t)x->mem_off + r * x->row_stride +
					     c * x->col_stride + k * x->repeat_stride;

				ck_assert(at >= 0 && at % x->mem_elem == 0);
				at /= x->mem_elem;
				ck_assert_uint_lt((uint64_t)at, b->map->param[param].span);
				b->wrote[param][at]++;
			}
}

static void check_body(const struct body *b)
{
	for (uint32_t i = 0; i < b->map->n_param; i++) {
		const struct wb_param *p = &b->map->param[i];

		ck_assert_msg(
			!memcmp(b->mem[i], b->want[i], param_bytes(p)), "parameter %s", p->name);
		ck_assert(!memcmp(b->wrote[i], b->once[i], p->span));
	}
}

/* ---- carrying a plan out ---- */

/* The wire image of a class, and which element of the checkpoint each of its elements is. */
struct wire {
	uint8_t *data;
	uint64_t *elem;
	size_t width;
};

static struct wire wire_of(
	const struct fx_deploy *d, const struct fx_oracle *o, const struct wb_plan *p, uint32_t cls)
{
	const struct wb_class *k = &p->cls[cls];
	struct wire w = {malloc(k->bytes), NULL, wb_dtype_bytes((enum wb_dtype)k->dtype)};
	uint64_t n = 0;

	w.elem = calloc(k->bytes / w.width, sizeof(*w.elem));
	for (uint32_t s = k->seg_begin; s < k->seg_end; s++) {
		const struct wb_segment *x = &p->segment[s];

		ck_assert_uint_eq(x->wire_off, n * w.width);
		for (uint64_t a = 0; a < x->n_row; a++)
			for (uint64_t b = 0; b < x->n_col; b++, n++) {
				uint64_t i =
					(x->row + a * x->row_step) * d->m->tensor[x->tensor].cols +
					x->col + b * x->col_step;

				w.elem[n] = d->base[x->tensor] + i;
				memcpy(w.data + n * w.width, fx_image_at(d, o, x->tensor, i),
					w.width);
			}
	}
	ck_assert_uint_eq(n * w.width, k->bytes);
	return w;
}

struct run {
	const struct fx_deploy *d;
	const struct fx_oracle *o;
	const struct wb_plan *p;
	struct wb_plan *part[FX_DEPLOY_WORKERS]; /* by domain: what its agent has of the plan */
	uint32_t n_part;
	struct body body[FX_DEPLOY_WORKERS];
	struct wire *wire; /* by class */
	uint8_t *sent; /* by element: times trainers sent it for those who pass it on */
	uint8_t *came[FX_DEPLOY_WORKERS]; /* by node: times it came over the network to share */
	uint8_t *into[FX_DEPLOY_WORKERS]; /* by domain: times it came there to share */
	uint8_t *rounded[FX_DEPLOY_WORKERS]; /* by worker: times it came to be rounded */
	uint64_t out[WB_STAGES][FX_DEPLOY_WORKERS], in[WB_STAGES][FX_DEPLOY_WORKERS]; /* bytes */
	uint64_t net_out[FX_DEPLOY_WORKERS], net_in[FX_DEPLOY_WORKERS]; /* those between nodes */
	uint64_t near; /* those between agents of a node, after the network */
	uint64_t lent[FX_DEPLOY_WORKERS]; /* of in: for other workers */
};

/* Each element of a box says where in the checkpoint it is, which keys the checksum. */
static void check_positions(
	const struct run *x, const struct wbk_box *b, const struct wire *w, uint64_t at)
{
	for (uint64_t r = 0; r < b->n_row; r++)
		for (uint64_t c = 0; c < b->n_col; c++) {
			uint64_t e = w->elem[(at + b->wire_off) / w->width + r * b->n_col + c];
			uint32_t t = fx_tensor_of(x->d, e);

			ck_assert_uint_eq(b->pos + r * b->pos_row_stride + c * b->pos_col_stride,
				x->d->m->tensor[t].byte_base + (e - x->d->base[t]) * w->width);
		}
}

static void move_chunk(struct run *x, const struct wb_route *r, uint32_t c)
{
	const struct wb_class *k = &x->p->cls[r->class_id];
	const struct wire *w = &x->wire[r->class_id];
	const struct wb_plan_worker *a = &x->d->worker[r->src], *b = &x->d->worker[r->dst];
	struct body *from = &x->body[r->src], *to = &x->body[r->dst];
	uint64_t at = (uint64_t)c * x->p->chunk_bytes, len = wb_chunk_len(x->p, k, c);
	uint8_t *slot = malloc(len);
	int n = wb_binding_boxes(from->b, r->class_id, c, false, from->box, from->param, from->cap);

	ck_assert_int_gt(n, 0);
	memset(slot, CANARY, len);
	for (int i = 0; i < n; i++) {
		void *base = from->mem[from->param[i]];

		wbk_pack(&base, &from->box[i], 1, slot, NULL, NULL);
		check_positions(x, &from->box[i], w, at);
	}
	ck_assert_msg(!memcmp(slot, w->data + at, len),
		"worker %u sends other bytes of class %u, chunk %u, in stage %u", r->src,
		r->class_id, c, r->stage);
	n = wb_binding_boxes(to->b, r->class_id, c, true, to->box, to->param, to->cap);
	ck_assert_int_gt(n, 0);
	for (int i = 0; i < n; i++) {
		void *base = to->mem[to->param[i]];

		wbk_assemble(&base, &to->box[i], 1, slot, NULL, NULL);
		count_writes(to, &to->box[i], to->param[i]);
	}
	for (uint64_t i = at / w->width; i < (at + len) / w->width; i++) {
		if (k->is_direct)
			x->rounded[r->dst][w->elem[i]]++;
		else if (r->stage != WB_STAGE_INTERNAL)
			x->came[b->node][w->elem[i]]++;
		if (!k->is_direct && (r->stage != WB_STAGE_INTERNAL || a->domain != b->domain))
			x->into[b->domain][w->elem[i]]++;
		x->sent[w->elem[i]] += r->stage == WB_STAGE_RECEIVE && !k->is_direct;
	}
	x->out[r->stage][r->src_rail] += len;
	x->in[r->stage][r->dst_rail] += len;
	x->lent[r->dst_rail] += r->dst_rail == r->dst ? 0 : len;
	if (a->node != b->node) {
		x->net_out[r->src_rail] += len;
		x->net_in[r->dst_rail] += len;
	} else if (r->stage == WB_STAGE_INTERNAL && a->domain != b->domain) {
		x->near += len;
	}
	free(slot);
}

static const struct wb_plan *part_of(const struct run *x, uint32_t worker)
{
	return x->part[x->d->worker[worker].domain];
}

static void unpack(struct run *x)
{
	struct wb_plan_slice *slice;
	struct wb_buf b;
	int n = fx_packed(x->p, &b, &slice);

	x->n_part = (uint32_t)n - 1;
	for (uint32_t d = 0; d < x->n_part; d++)
		x->part[d] = fx_part(&b, slice, d);
	wb_buf_finish(&b);
	wb_free(slice);
}

/* Both ends find the route in their parts. */
static void carry_out(struct run *x, const struct wb_route *r)
{
	const struct wb_plan *from = part_of(x, r->src);
	uint32_t i = 0;

	while (i < from->n_route && memcmp(&from->route[i], r, sizeof(*r)) != 0)
		i++;
	ck_assert_uint_lt(i, from->n_route);
	for (uint32_t c = r->chunk_begin; c < r->chunk_end; c++)
		move_chunk(x, r, c);
}

/* What the workers of each agent are to get of others, or of each other. */
static void carry_out_stage(struct run *x, uint32_t stage, bool is_local)
{
	for (uint32_t d = 0; d < x->n_part; d++)
		for (uint32_t i = 0; i < x->part[d]->n_route; i++) {
			const struct wb_route *r = &x->part[d]->route[i];
			bool comes_from_here = x->d->worker[r->src].domain == d;

			if (r->stage == stage && x->d->worker[r->dst].domain == d &&
				(stage != WB_STAGE_INTERNAL || comes_from_here == is_local))
				carry_out(x, r);
		}
}

static void run_init(struct run *x, const struct fx_deploy *d, const struct fx_oracle *o,
	const struct wb_plan *p)
{
	memset(x, 0, sizeof(*x));
	x->d = d;
	x->o = o;
	x->p = p;
	x->wire = calloc(p->n_class + 1, sizeof(*x->wire));
	x->sent = calloc(d->n_elem, 1);
	unpack(x);
	for (uint32_t c = 0; c < p->n_class; c++) {
		uint32_t needer = p->member[p->cls[c].needer_begin];

		x->wire[c] = wire_of(d, o, part_of(x, needer), c);
	}
	for (uint32_t i = 0; i < p->n_worker; i++) {
		body_init(&x->body[i], d, o, part_of(x, i), i);
		x->came[i] = calloc(d->n_elem, 1);
		x->into[i] = calloc(d->n_elem, 1);
		x->rounded[i] = calloc(d->n_elem, 1);
	}
	for (uint32_t s = 0; s < WB_STAGES; s++)
		carry_out_stage(x, s, false);
	carry_out_stage(x, WB_STAGE_INTERNAL, true);
}

static void run_finish(struct run *x)
{
	for (uint32_t c = 0; c < x->p->n_class; c++) {
		free(x->wire[c].data);
		free(x->wire[c].elem);
	}
	for (uint32_t i = 0; i < x->p->n_worker; i++) {
		body_finish(&x->body[i]);
		free(x->came[i]);
		free(x->into[i]);
		free(x->rounded[i]);
	}
	for (uint32_t i = 0; i < x->n_part; i++)
		wb_plan_destroy(x->part[i]);
	free(x->wire);
	free(x->sent);
}

/* What of an element the rollouts of @node (UINT32_MAX: all) need. */
static uint8_t needed(const struct run *x, uint32_t node, uint64_t e)
{
	uint8_t need = 0;

	for (uint32_t i = x->d->n_trainer; i < x->p->n_worker; i++) {
		uint8_t has = x->o->has[x->d->worker[i].layout][e];

		if (node == UINT32_MAX || x->d->worker[i].node == node)
			need |= has & HAS_EXACT ? HAS_EXACT : has;
	}
	return need;
}

/* A bit for each domain of @node whose rollouts need the element exactly. */
static uint32_t needing(const struct run *x, uint32_t node, uint64_t e)
{
	uint32_t set = 0;

	for (uint32_t i = x->d->n_trainer; i < x->p->n_worker; i++)
		if (x->d->worker[i].node == node &&
			x->o->has[x->d->worker[i].layout][e] & HAS_EXACT)
			set |= 1u << x->d->worker[i].domain;
	return set;
}

static void check_volumes(const struct run *x)
{
	const struct fx_deploy *d = x->d;

	for (uint64_t e = 0; e < d->n_elem; e++) {
		ck_assert_uint_eq(x->sent[e], needed(x, UINT32_MAX, e) & HAS_EXACT ? 1 : 0);
		for (uint32_t v = 0; v < x->p->n_worker; v++) {
			bool is_rollout = v >= d->n_trainer;
			uint8_t has = is_rollout ? x->o->has[d->worker[v].layout][e] : 0;

			ck_assert_uint_eq(x->came[v][e], needed(x, v, e) & HAS_EXACT ? 1 : 0);
			ck_assert_uint_eq(x->into[d->worker[v].domain][e],
				needing(x, d->worker[v].node, e) >> d->worker[v].domain & 1);
			ck_assert_uint_eq(x->rounded[v][e], has == HAS_ROUNDED);
		}
	}
}

/* ---- bounds ---- */

/* Bytes that only members of a set can carry, over what the set carries in a second: at least this
 * long it takes, whatever the split; and by duality not longer.  @bytes: by set of members. */
static double dual(const double *bytes, uint32_t n, const double *rate)
{
	double best = 0;

	for (uint32_t s = 1; s < 1u << n; s++) {
		double sum = 0, all = 0;

		for (uint32_t t = s; t; t = (t - 1) & s)
			sum += bytes[t];
		for (uint32_t i = 0; i < n; i++)
			all += s >> i & 1 ? rate[i] : 0;
		best = fmax(best, sum / all);
	}
	return best;
}

/* Node @node has an element from its own trainers: it comes through memory.  Not where @is_all
 * asks for bounds as if all went by rails. */
static bool is_near(const struct run *x, uint32_t node, uint64_t e, bool is_all)
{
	uint8_t want = fx_held(x->d, x->o, e) & HAS_EXACT ? HAS_EXACT : HAS_ROUNDED, has = 0;

	for (uint32_t i = 0; i < x->d->n_trainer && !is_all; i++)
		if (x->d->worker[i].node == node)
			has |= x->o->has[x->d->worker[i].layout][e] & want;
	return has;
}

/* Is there a worker with @need of an element whose node has it from its own trainers? */
static bool is_near_any(const struct run *x, uint8_t need, uint64_t e, bool is_all)
{
	for (uint32_t v = 0; v < x->p->n_worker; v++)
		if (needed(x, v, e) & need && is_near(x, v, e, is_all))
			return true;
	return false;
}

static double send_bound(const struct run *x, bool is_all)
{
	const struct fx_deploy *d = x->d;
	double *bytes = calloc(1u << d->n_trainer, sizeof(*bytes)), rate[FX_DEPLOY_WORKERS], best;

	for (uint32_t i = 0; i < d->n_trainer; i++)
		rate[i] = (double)d->worker[i].rail_bytes_per_s;
	for (uint64_t e = 0; e < d->n_elem; e++) {
		uint32_t set = 0, copies = needed(x, UINT32_MAX, e) & HAS_EXACT ? 1 : 0;
		uint8_t want = fx_held(d, x->o, e) & HAS_EXACT ? HAS_EXACT : HAS_ROUNDED;

		if (is_near_any(x, HAS_EXACT, e, is_all))
			copies = 0;
		for (uint32_t i = 0; i < d->n_trainer; i++)
			set |= (uint32_t) !!(x->o->has[d->worker[i].layout][e] & want) << i;
		for (uint32_t i = d->n_trainer; i < x->p->n_worker; i++)
			copies += x->o->has[d->worker[i].layout][e] == HAS_ROUNDED &&
				  !is_near(x, d->worker[i].node, e, is_all);
		bytes[set] += (double)copies * (double)fx_elem_bytes(d, e);
	}
	best = dual(bytes, d->n_trainer, rate);
	free(bytes);
	return best;
}

/* What a node takes over what its rails take in a second, as any of them may land it. */
static double take_bound(const struct run *x, uint32_t node, bool is_all)
{
	const struct fx_deploy *d = x->d;
	double bytes = 0, rate = 0;

	for (uint32_t i = d->n_trainer; i < x->p->n_worker; i++)
		rate += d->worker[i].node == node ? (double)d->worker[i].rail_bytes_per_s : 0;
	for (uint64_t e = 0; e < d->n_elem; e++) {
		uint32_t copies = needed(x, node, e) & HAS_EXACT ? 1 : 0;

		for (uint32_t i = d->n_trainer; i < x->p->n_worker; i++)
			copies += d->worker[i].node == node &&
				  x->o->has[d->worker[i].layout][e] == HAS_ROUNDED;
		if (!is_near(x, node, e, is_all))
			bytes += copies * (double)fx_elem_bytes(d, e);
	}
	return bytes > 0 ? bytes / rate : 0;
}

/* Rails of domains @set: what only they may land, as one lands what its own domain needs, over what
 * they take in a second. */
static double take_time(const struct run *x, uint32_t node, uint32_t set)
{
	const struct fx_deploy *d = x->d;
	double bytes = 0, rate = 0;

	for (uint32_t i = d->n_trainer; i < x->p->n_worker; i++)
		rate += set >> d->worker[i].domain & 1 ? (double)d->worker[i].rail_bytes_per_s : 0;
	for (uint64_t e = 0; e < d->n_elem; e++) {
		uint32_t by = needing(x, node, e), copies = by && !(by & ~set);

		for (uint32_t i = d->n_trainer; i < x->p->n_worker; i++)
			copies += set >> d->worker[i].domain & 1 &&
				  x->o->has[d->worker[i].layout][e] == HAS_ROUNDED;
		bytes += copies * (double)fx_elem_bytes(d, e);
	}
	return bytes > 0 ? bytes / rate : 0;
}

/* The least time in which a node's rails take what it needs, if all went by rails. */
static double take_least(const struct run *x, uint32_t node)
{
	uint32_t all = 0;
	double best = 0;

	for (uint32_t i = x->d->n_trainer; i < x->p->n_worker; i++)
		all |= x->d->worker[i].node == node ? 1u << x->d->worker[i].domain : 0;
	for (uint32_t set = all; set; set = (set - 1) & all)
		best = fmax(best, take_time(x, node, set));
	return best;
}

/* max(M / B_T, max_v M_v / B_v), from elements and nodes. */
static double node_bound(const struct run *x)
{
	const struct fx_deploy *d = x->d;
	double egress = 0, model = 0, best;

	for (uint64_t e = 0; e < d->n_elem; e++) {
		uint8_t need = needed(x, UINT32_MAX, e);

		need = need & HAS_EXACT ? HAS_EXACT : need;
		model += need && !is_near_any(x, need, e, false) ? (double)fx_elem_bytes(d, e) : 0;
	}
	for (uint32_t i = 0; i < d->n_trainer; i++)
		egress += (double)d->worker[i].rail_bytes_per_s;
	best = model / egress;
	for (uint32_t v = 0; v < x->p->n_worker; v++) {
		double need = 0, ingress = 0;

		for (uint32_t i = d->n_trainer; i < x->p->n_worker; i++)
			ingress +=
				d->worker[i].node == v ? (double)d->worker[i].rail_bytes_per_s : 0;
		for (uint64_t e = 0; ingress > 0 && e < d->n_elem; e++) {
			uint8_t any = 0;

			for (uint32_t i = d->n_trainer; i < x->p->n_worker; i++)
				if (d->worker[i].node == v && !is_near(x, v, e, false))
					any |= x->o->has[d->worker[i].layout][e];
			need += any ? (double)fx_elem_bytes(d, e) : 0;
		}
		best = ingress > 0 ? fmax(best, need / ingress) : best;
	}
	return best;
}

static double net_seconds(const struct run *x, uint32_t i)
{
	return (double)WB_MAX(x->net_out[i], x->net_in[i]) /
	       (double)x->d->worker[i].rail_bytes_per_s;
}

static void check_bounds(const struct run *x)
{
	double node = node_bound(x), worker = send_bound(x, false), all = send_bound(x, true);
	double model = 0, most = 0;

	for (uint32_t v = 0; v < x->p->n_worker; v++) {
		worker = fmax(worker, take_bound(x, v, false));
		all = fmax(all, take_least(x, v));
	}
	for (uint64_t e = 0; e < x->d->n_elem; e++)
		model += needed(x, UINT32_MAX, e) ? (double)fx_elem_bytes(x->d, e) : 0;
	ck_assert_double_eq_tol((double)x->p->model_bytes, model, 0.5);
	ck_assert_double_eq_tol((double)x->p->node_bound_ns, node * 1e9, 2 + node);
	/* Never above the least time there is, and close to it. */
	ck_assert_msg((double)x->p->worker_bound_ns <= worker * 1e9 * (1 + 1e-9) + 1 &&
			      (double)x->p->worker_bound_ns >= worker * 1e9 * (1 - 2e-4) - 20000,
		"bound %llu ns, brute force %f s", (unsigned long long)x->p->worker_bound_ns,
		worker);
	for (uint32_t i = 0; i < x->p->n_worker; i++) {
		double slack = (double)(x->p->chunk_bytes * (x->p->n_worker + 3)) /
			       (double)x->d->worker[i].rail_bytes_per_s;

		most = fmax(most, net_seconds(x, i));
		ck_assert_double_le(net_seconds(x, i), 1.02 * all + slack);
	}
	ck_assert_double_ge(most * 1e9 + 1, (double)x->p->worker_bound_ns);
}

/* ---- what is said of it ---- */

static json_int_t number(const json_t *o, const char *key)
{
	ck_assert_msg(json_is_integer(json_object_get(o, key)), "%s", key);
	return json_integer_value(json_object_get(o, key));
}

static uint32_t count_peers(const struct run *x, uint32_t worker)
{
	bool seen[FX_DEPLOY_WORKERS] = {0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->p->n_route; i++) {
		const struct wb_route *r = &x->p->route[i];

		if (x->d->worker[r->src].node != x->d->worker[r->dst].node &&
			(r->src_rail == worker || r->dst_rail == worker))
			seen[r->src_rail == worker ? r->dst_rail : r->src_rail] = true;
	}
	for (uint32_t i = 0; i < FX_DEPLOY_WORKERS; i++)
		n += seen[i];
	return n;
}

static void check_said(const struct run *x)
{
	static const char *const out[] = {"send_bytes", "external_out_bytes", "internal_out_bytes"};
	static const char *const in[] = {"receive_bytes", "external_in_bytes", "internal_in_bytes"};
	uint64_t total[WB_STAGES] = {0};
	double most = 0;
	struct wb_buf b;
	json_t *said;

	wb_buf_init(&b, 1 << 24);
	ck_assert(!wb_plan_explain(x->p, x->d->m, NULL, true, &b));
	said = json_loadb((const char *)b.data, b.len, 0, NULL);
	ck_assert_ptr_nonnull(said);
	for (uint32_t i = 0; i < x->p->n_worker; i++) {
		const json_t *rail = json_array_get(json_object_get(said, "rails"), i);

		for (int s = 0; s < WB_STAGES; s++) {
			ck_assert_uint_eq(number(rail, out[s]), x->out[s][i]);
			ck_assert_uint_eq(number(rail, in[s]), x->in[s][i]);
			total[s] += x->in[s][i];
		}
		ck_assert_uint_eq(number(rail, "lent_bytes"), x->lent[i]);
		ck_assert_uint_eq(number(rail, "peers"), count_peers(x, i));
		most = fmax(most, net_seconds(x, i));
	}
	for (int s = 0; s < WB_STAGES; s++)
		ck_assert_uint_eq(
			number(json_array_get(json_object_get(said, "stages"), s), "bytes"),
			total[s]);
	ck_assert_uint_eq(number(said, "internal_near_bytes"), x->near);
	if (x->p->worker_bound_ns)
		ck_assert_double_eq_tol(
			(double)number(said, "busiest_rail_ns"), most * 1e9, 2 + most);
	json_decref(said);
	wb_buf_finish(&b);
}

START_TEST(a_plan_carried_out_gives_what_a_load_gives)
{
	struct fx_deploy d;
	struct fx_oracle o;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};
	struct run x;

	fx_deploy_mixed(&d, first_seed + (uint64_t)_i);
	fx_oracle_init(&o, &d);
	ck_assert_msg(!wb_plan_create(&d.in, &p, &err), "%s", err.msg);
	ck_assert_msg(!wb_plan_check(p, d.m, d.in.layout, &err), "%s", err.msg);
	run_init(&x, &d, &o, p);
	for (uint32_t i = d.n_trainer; i < p->n_worker; i++)
		check_body(&x.body[i]);
	check_volumes(&x);
	check_bounds(&x);
	check_said(&x);
	run_finish(&x);
	wb_plan_destroy(p);
	fx_oracle_finish(&o, &d);
	fx_deploy_finish(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_run");
	TCase *c = tcase_create("run");
	const char *seed = getenv("WB_SEED");
	int n = getenv("WB_RUNS") ? atoi(getenv("WB_RUNS")) : 100;

	first_seed = seed ? strtoull(seed, NULL, 0) : 1;
	printf("seeds %llu and on (WB_SEED, WB_RUNS)\n", (unsigned long long)first_seed);
	suite_add_tcase(s, c);
	fx_add_points(c, a_plan_carried_out_gives_what_a_load_gives, 0, n);
	return fx_run(s);
}
