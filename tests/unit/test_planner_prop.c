/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random deployments against oracles: routes are counted byte by byte, packing and assembling
 * against plain loops over the source maps.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/binding.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_deploy.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t first_seed = 1;

static struct wb_plan *plan_of(const struct fx_deploy *d)
{
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	ck_assert_msg(!wb_plan_create(&d->in, &p, &err), "%s", err.msg);
	return p;
}

/* ---- bytes ---- */

/* What a worker's parameters look like. */
struct memory {
	uint8_t **param;
	void **base;
};

static void memory_init(struct memory *x, const struct wb_map *map)
{
	x->param = calloc(map->n_param, sizeof(*x->param));
	for (uint32_t i = 0; i < map->n_param; i++) {
		size_t bytes = map->param[i].span * wb_dtype_bytes(map->param[i].dtype);

		x->param[i] = malloc(bytes);
		memset(x->param[i], 0xa5, bytes);
	}
}

static void memory_finish(struct memory *x, const struct wb_map *map)
{
	for (uint32_t i = 0; i < map->n_param; i++)
		free(x->param[i]);
	free(x->param);
}

static void cast(enum wb_dtype wire, enum wb_dtype param, const uint8_t *from, uint8_t *to)
{
	uint32_t u = 0;

	if (wire == param) {
		memcpy(to, from, wb_dtype_bytes(wire));
	} else if (wire == WB_BF16) {
		memcpy((uint8_t *)&u + 2, from, 2);
		memcpy(to, &u, 4);
	} else {
		memcpy(&u, from, 4);
		u += 0x7fff + (u >> 16 & 1);
		memcpy(to, (uint8_t *)&u + 2, 2);
	}
}

/* The oracle: every op, element by element. */
static void load(const struct wb_manifest *m, const struct wb_map *map, const uint8_t *image,
	struct memory *x)
{
	for (uint32_t i = 0; i < map->n_op; i++) {
		const struct wb_op *o = &map->op[i];
		const struct wb_tensor *t = &m->tensor[o->tensor];
		const struct wb_param *p = &map->param[o->param];
		size_t in = wb_dtype_bytes(t->dtype), out = wb_dtype_bytes(p->dtype);

		for (int64_t k = 0; k < o->repeat; k++)
			for (int64_t a = 0; a < o->n_row; a++)
				for (int64_t b = 0; b < o->n_col; b++) {
					uint64_t src = (o->row + a * o->row_step) * t->cols +
						       o->col + b * o->col_step;
					int64_t dst = (int64_t)o->dst + a * o->dst_row_stride +
						      b * o->dst_col_stride +
						      k * o->dst_repeat_stride;

					cast(t->dtype, p->dtype, image + t->byte_base + src * in,
						x->param[o->param] + dst * (int64_t)out);
				}
	}
}

/* Finite values everywhere: exponents of 64..191 in whatever 16-bit halves end a float. */
static uint8_t *random_image(const struct wb_manifest *m, struct wb_rng *rng)
{
	const struct wb_tensor *last = &m->tensor[m->n - 1];
	uint64_t n = wb_align_up(last->byte_base + last->rows * last->cols * 4, 64);
	uint8_t *image = malloc(n);

	for (uint64_t i = 0; i < n; i += 2) {
		uint64_t v = wb_rng_u64(rng);
		uint16_t h = (uint16_t)((v & 0x807f) | (64 + (v >> 16) % 128) << 7);

		memcpy(image + i, &h, 2);
	}
	return image;
}

/* The wire image of a class from the checkpoint image. */
static uint8_t *wire_of(
	const struct wb_plan *p, const struct wb_manifest *m, uint32_t cls, const uint8_t *image)
{
	const struct wb_class *k = &p->cls[cls];
	uint8_t *wire = malloc(k->bytes), *at = wire;

	for (uint32_t s = k->seg_begin; s < k->seg_end; s++) {
		const struct wb_segment *x = &p->segment[s];
		const struct wb_tensor *t = &m->tensor[x->tensor];
		size_t elem = wb_dtype_bytes(t->dtype);

		ck_assert_uint_eq(x->wire_off, (uint64_t)(at - wire));
		for (uint64_t a = 0; a < x->n_row; a++)
			for (uint64_t b = 0; b < x->n_col; b++, at += elem)
				memcpy(at,
					image + t->byte_base +
						((x->row + a * x->row_step) * t->cols + x->col +
							b * x->col_step) *
							elem,
					elem);
	}
	return wire;
}

/* The planner's grid is coarse; a fine one cuts rows in many ways. */
static void regrid(struct wb_plan *p, uint32_t chunk_bytes)
{
	uint32_t base = 0;

	p->chunk_bytes = chunk_bytes;
	for (uint32_t c = 0; c < p->n_class; c++) {
		p->cls[c].n_chunk = (uint32_t)wb_ceil_div(p->cls[c].bytes, chunk_bytes);
		p->cls[c].chunk_base = base;
		base += p->cls[c].n_chunk;
	}
	p->n_chunk = base;
}

struct mover {
	const struct wb_plan *p;
	const struct wb_manifest *m;
	const struct wb_map *map;
	struct wb_binding *b;
	struct memory x;
	struct wbk_box *box;
	uint32_t *param;
	void **base;
	size_t cap;
};

static void mover_init(
	struct mover *v, const struct fx_deploy *d, const struct wb_plan *p, uint32_t worker)
{
	struct wb_err err = {0};

	memset(v, 0, sizeof(*v));
	v->p = p;
	v->m = d->m;
	v->map = d->layout[d->worker[worker].layout];
	ck_assert_msg(!wb_binding_create(p, d->m, v->map, worker, &v->b, &err), "%s", err.msg);
	memory_init(&v->x, v->map);
	v->cap = wb_binding_boxes_max(v->b);
	v->box = calloc(v->cap + 1, sizeof(*v->box));
	v->param = calloc(v->cap + 1, sizeof(*v->param));
}

static void mover_finish(struct mover *v)
{
	wb_binding_destroy(v->b);
	memory_finish(&v->x, v->map);
	free(v->box);
	free(v->param);
}

static int boxes(struct mover *v, uint32_t cls, uint32_t chunk, bool all)
{
	int n = wb_binding_boxes(v->b, cls, chunk, all, v->box, v->param, v->cap);

	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(wb_binding_boxes(v->b, cls, chunk, all, v->box, v->param, n - 1), -E2BIG);
	return n;
}

/* Boxes one by one, since every parameter is its own memory here. */
static void pack_is(struct mover *v, uint32_t cls, const uint8_t *wire, const uint8_t *image)
{
	for (uint32_t c = 0; c < v->p->cls[cls].n_chunk; c++) {
		uint64_t at = (uint64_t)c * v->p->chunk_bytes, done = 0;
		uint64_t len = wb_chunk_len(v->p, &v->p->cls[cls], c);
		uint8_t *out = calloc(1, len);
		int n = boxes(v, cls, c, false);

		for (int i = 0; i < n; i++) {
			const struct wbk_box *x = &v->box[i];
			void *base = v->x.param[v->param[i]];

			wbk_pack(&base, x, 1, out, NULL, NULL);
			for (uint32_t r = 0; r < x->n_row; r++)
				for (uint32_t k = 0; k < x->n_col; k++)
					ck_assert(!memcmp(image + x->pos + r * x->pos_row_stride +
								  k * x->pos_col_stride,
						wire + at + x->wire_off +
							((uint64_t)r * x->n_col + k) * x->wire_elem,
						x->wire_elem));
			done += (uint64_t)x->n_row * x->n_col * x->wire_elem;
		}
		ck_assert_uint_eq(done, len);
		ck_assert(!memcmp(out, wire + at, len));
		free(out);
	}
}

static void assemble(struct mover *v, uint32_t cls, const uint8_t *wire)
{
	for (uint32_t c = 0; c < v->p->cls[cls].n_chunk; c++) {
		int n = boxes(v, cls, c, true);

		for (int i = 0; i < n; i++) {
			void *base = v->x.param[v->param[i]];

			wbk_assemble(&base, &v->box[i], 1, wire + (uint64_t)c * v->p->chunk_bytes,
				NULL, NULL);
		}
	}
}

static bool in(const struct wb_plan *p, uint32_t begin, uint32_t end, uint32_t worker)
{
	for (uint32_t i = begin; i < end; i++)
		if (p->member[i] == worker)
			return true;
	return false;
}

static void check_worker(const struct fx_deploy *d, const struct wb_plan *p, uint32_t worker,
	const uint8_t *image, uint8_t *const *wire)
{
	struct mover v;
	struct memory want;

	mover_init(&v, d, p, worker);
	memory_init(&want, v.map);
	load(d->m, v.map, image, &want);
	if (d->worker[worker].role == WB_ROLE_TRAINER)
		load(d->m, v.map, image, &v.x);
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];

		if (in(p, k->holder_begin, k->holder_end, worker))
			pack_is(&v, c, wire[c], image);
		if (!in(p, k->needer_begin, k->needer_end, worker))
			continue;
		assemble(&v, c, wire[c]);
		if (!k->is_direct)
			pack_is(&v, c, wire[c], image);
	}
	for (uint32_t i = 0; i < v.map->n_param; i++)
		ck_assert(!memcmp(want.param[i], v.x.param[i],
			v.map->param[i].span * wb_dtype_bytes(v.map->param[i].dtype)));
	memory_finish(&want, v.map);
	mover_finish(&v);
}

START_TEST(packed_bytes_assemble_to_what_a_load_gives)
{
	struct fx_deploy_opts o = {.seed = first_seed + (uint64_t)_i,
		.n_tensor = 12,
		.side_max = 40,
		.trainers_max = 4,
		.rollouts_max = 4};
	struct fx_deploy d;
	struct wb_rng rng = {o.seed ^ 77};
	struct wb_plan *p;
	uint8_t *image, **wire;

	fx_deploy_random(&d, &o);
	p = plan_of(&d);
	regrid(p, 64 << wb_rng_below(&rng, 4));
	image = random_image(d.m, &rng);
	wire = calloc(p->n_class, sizeof(*wire));
	for (uint32_t c = 0; c < p->n_class; c++)
		wire[c] = wire_of(p, d.m, c, image);
	for (uint32_t w = 0; w < p->n_worker; w++)
		check_worker(&d, p, w, image, wire);
	for (uint32_t c = 0; c < p->n_class; c++)
		free(wire[c]);
	free(wire);
	free(image);
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}
END_TEST

/* ---- volumes ---- */

static uint64_t route_bytes(const struct wb_plan *p, const struct wb_route *r)
{
	uint64_t n = 0;

	for (uint32_t c = r->chunk_begin; c < r->chunk_end; c++)
		n += wb_chunk_len(p, &p->cls[r->class_id], c);
	return n;
}

static void check_volumes(const struct wb_plan *p)
{
	uint64_t sent = 0, total = 0, direct = 0, chunks = 0;

	for (uint32_t i = 0; i < p->n_route; i++) {
		uint64_t n = route_bytes(p, &p->route[i]);

		total += n;
		if (p->route[i].stage == WB_STAGE_RECEIVE)
			chunks += p->route[i].chunk_end - p->route[i].chunk_begin;
		sent += p->route[i].stage == WB_STAGE_RECEIVE ? n : 0;
	}
	for (uint32_t c = 0; c < p->n_class; c++) {
		uint32_t needers = p->cls[c].needer_end - p->cls[c].needer_begin;

		/* By classes alone, as an agent counts them that has no routes of others. */
		chunks -= (uint64_t)(p->cls[c].is_direct ? needers : 1) * p->cls[c].n_chunk;
		if (p->cls[c].is_direct)
			direct += p->cls[c].bytes * needers -
				  (p->cls[c].primary == c ? p->cls[c].bytes : 0);
	}
	ck_assert_uint_eq(chunks, 0);
	ck_assert_uint_eq(sent, p->model_bytes + direct);
	ck_assert_uint_eq(total, p->delivered_bytes);
}

START_TEST(volumes_are_exact)
{
	struct fx_deploy_opts o = {
		first_seed + (uint64_t)_i, 30, 4000, 5, 4, _i % 2, .shares_memory = _i % 3 == 0};
	struct fx_deploy d;
	struct wb_err err = {0};
	struct wb_plan *p;

	fx_deploy_random(&d, &o);
	p = plan_of(&d);
	ck_assert_msg(!wb_plan_check(p, d.m, d.in.layout, &err), "seed %llu: %s",
		(unsigned long long)o.seed, err.msg);
	check_volumes(p);
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}
END_TEST

/* What is waited for comes before: a stage, and inside a node what leaves the agent, and then what
 * does not, for which no slot is held while it waits. */
static uint8_t order_of(const struct wb_plan *p, const struct wb_route *r)
{
	bool is_local = p->worker[r->src].domain == p->worker[r->dst].domain;

	return (uint8_t)(r->stage + (r->stage == WB_STAGE_INTERNAL && is_local));
}

/*
 * Pools are ordered receive -> exchange -> domain: what a chunk waits for has come by an earlier
 * one, and trainers wait for nobody.  So no cycle of waits exists, whatever the number of slots.
 */
static void check_pools(const struct wb_plan *p)
{
	const uint8_t none = 0xff;
	uint8_t *by = malloc((size_t)p->n_worker * p->n_chunk); /* order in which it arrives */

	memset(by, none, (size_t)p->n_worker * p->n_chunk);
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		for (uint32_t c = r->chunk_begin; c < r->chunk_end; c++) {
			uint8_t *at = &by[(size_t)r->dst * p->n_chunk +
					  p->cls[r->class_id].chunk_base + c];

			ck_assert_msg(*at == none, "a chunk arrives twice");
			*at = order_of(p, r);
		}
	}
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		bool trains = p->worker[r->src].role == WB_ROLE_TRAINER;

		ck_assert_int_eq(p->worker[r->dst].role, WB_ROLE_ROLLOUT);
		ck_assert_int_eq(r->stage == WB_STAGE_RECEIVE, trains);
		ck_assert(r->stage != WB_STAGE_INTERNAL ||
			  p->worker[r->src].node == p->worker[r->dst].node);
		for (uint32_t c = r->chunk_begin; !trains && c < r->chunk_end; c++) {
			uint8_t has = by[(size_t)r->src * p->n_chunk +
					 p->cls[r->class_id].chunk_base + c];

			/* Exchange passes on what trainers sent, never what exchange brought. */
			ck_assert_msg(has != none && has < order_of(p, r),
				"stage %u waits for what comes by %u", r->stage, has);
		}
	}
	free(by);
}

START_TEST(pools_wait_only_for_earlier_pools)
{
	struct fx_deploy_opts o = {first_seed + 500 + (uint64_t)_i, 30, 2000, 6, 5, _i % 2,
		.shares_memory = _i % 3 > 0};
	struct fx_deploy d;
	struct wb_plan *p;

	fx_deploy_random(&d, &o);
	p = plan_of(&d);
	check_pools(p);
	wb_plan_destroy(p);
	fx_deploy_finish(&d);
}
END_TEST

START_TEST(same_input_same_bytes_and_they_decode)
{
	struct fx_deploy_opts o = {
		first_seed + (uint64_t)_i, 20, 300, 4, 4, false, .shares_memory = _i % 2};
	struct fx_deploy d, d2;
	struct wb_plan *p, *p2, *back = NULL;
	struct wb_buf b, b2;

	fx_deploy_random(&d, &o);
	fx_deploy_random(&d2, &o);
	p = plan_of(&d);
	p2 = plan_of(&d2);
	ck_assert(wb_digest_eq(p->digest, p2->digest));
	wb_buf_init(&b, 1 << 28);
	wb_buf_init(&b2, 1 << 28);
	ck_assert(!wb_plan_encode(p, &b));
	ck_assert(!wb_plan_decode(b.data, b.len, &back, NULL));
	ck_assert(wb_digest_eq(p->digest, back->digest));
	ck_assert(!wb_plan_encode(back, &b2));
	ck_assert(b.len == b2.len && !memcmp(b.data, b2.data, b.len));
	ck_assert(!wb_plan_check(back, d.m, d.in.layout, NULL));
	wb_buf_finish(&b);
	wb_buf_finish(&b2);
	wb_plan_destroy(p);
	wb_plan_destroy(p2);
	wb_plan_destroy(back);
	fx_deploy_finish(&d);
	fx_deploy_finish(&d2);
}
END_TEST

/* ---- mutations ---- */

static void mutate(struct wb_plan *p, struct wb_rng *rng)
{
	struct wb_route *r = &p->route[wb_rng_below(rng, p->n_route)];
	struct wb_segment *s = &p->segment[wb_rng_below(rng, p->n_segment)];
	struct wb_class *k = &p->cls[wb_rng_below(rng, p->n_class)];
	uint32_t by = 1 + (uint32_t)wb_rng_below(rng, p->n_worker - 1);

	switch (wb_rng_below(rng, 10)) {
	case 0:
		r->dst = (r->dst + by) % p->n_worker;
		return;
	case 1:
		r->src = r->stage == WB_STAGE_RECEIVE ? p->n_worker - 1
						      : (r->src + by) % p->n_worker;
		return;
	case 2:
		r->chunk_begin++;
		return;
	case 3:
		r->chunk_end++;
		return;
	case 4:
		r->stage = (r->stage + 1) % WB_STAGES;
		return;
	case 5:
		s->row++;
		return;
	case 6:
		s->col++;
		return;
	case 7:
		p->n_route--;
		return;
	case 8:
		k->needer_end--;
		return;
	default:
		s->n_row++;
		return;
	}
}

START_TEST(mutated_plans_fail_the_check)
{
	struct fx_deploy_opts o = {
		first_seed + (uint64_t)_i, 10, 400, 3, 3, false, .shares_memory = _i % 2};
	struct wb_rng rng = {o.seed};
	struct fx_deploy d;
	struct wb_plan *p;

	fx_deploy_random(&d, &o);
	for (int i = 0; i < 20; i++) {
		p = plan_of(&d);
		if (p->n_class) {
			mutate(p, &rng);
			ck_assert_int_eq(wb_plan_check(p, d.m, d.in.layout, NULL), WB_EPLAN);
		}
		wb_plan_destroy(p);
	}
	fx_deploy_finish(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_prop");
	TCase *c = tcase_create("prop");
	const char *seed = getenv("WB_SEED");
	int n = getenv("WB_RUNS") ? atoi(getenv("WB_RUNS")) : 15;

	first_seed = seed ? strtoull(seed, NULL, 0) : 1;
	printf("seeds %llu and on (WB_SEED, WB_RUNS)\n", (unsigned long long)first_seed);
	suite_add_tcase(s, c);
	tcase_add_loop_test(c, packed_bytes_assemble_to_what_a_load_gives, 0, n);
	tcase_add_loop_test(c, volumes_are_exact, 0, n);
	tcase_add_loop_test(c, pools_wait_only_for_earlier_pools, 0, n);
	tcase_add_loop_test(c, same_input_same_bytes_and_they_decode, 0, n);
	tcase_add_loop_test(c, mutated_plans_fail_the_check, 0, n);
	return fx_run(s);
}
