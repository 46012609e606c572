/* SPDX-License-Identifier: Apache-2.0 */
/* Packing and assembling: by plans of a model, by shapes, and what a launch costs. */
#include "base/err.h"
#include "kernels/gpu.h"
#include "planner/binding.h"
#include "planner/deploy/deploy.h"
#include "tests/bench/gpu/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS_MAX (1u << 20)
#define BOXES_MAX 65536u

/* ---- tables ---------------------------------------------------------------------------------- */

struct table {
	struct wbk_op *op;
	uint32_t *first;
	void **base;
	uint32_t n_op, n_base;
	uint64_t wire_bytes, mem_bytes; /* that one run moves */
	uint64_t dev_op, dev_first, dev_base, dev_keys, dev_sum;
	struct wbk_move_args a;
};

static void table_send(struct table *t, enum wbk_way way, uint64_t wire)
{
	uint32_t bad;
	struct wbk_op *op = malloc(sizeof(*op) * t->n_op);

	memcpy(op, t->op, sizeof(*op) * t->n_op);
	gb_must(wbk_move_prepare(op, t->n_op, way, t->first, &bad), "wbk_move_prepare");
	t->dev_op = gb_sent(op, sizeof(*op) * t->n_op);
	t->dev_first = gb_sent(t->first, sizeof(*t->first) * WBK_MOVES * (t->n_op + 1));
	t->dev_base = gb_sent(t->base, sizeof(*t->base) * t->n_base);
	t->dev_keys = gb_sent(&gb.keys, sizeof(gb.keys));
	t->dev_sum = gb_device(sizeof(struct wbk_sum));
	gb_must(gb.cu->fill(t->dev_sum, 0, sizeof(struct wbk_sum), gb.stream), "cuMemsetD8Async");
	t->a = (struct wbk_move_args){.op = (void *)(uintptr_t)t->dev_op,
		.first = (void *)(uintptr_t)t->dev_first,
		.bases = (void *)(uintptr_t)t->dev_base,
		.wire = way == WBK_WAY_SUM ? NULL : (void *)(uintptr_t)wire,
		.n_op = t->n_op,
		.way = (uint32_t)way};
	free(op);
}

static void table_forget(struct table *t)
{
	gb_must(gb.cu->stream_sync(gb.stream), "cuStreamSynchronize");
	gb.cu->mem_free(t->dev_op);
	gb.cu->mem_free(t->dev_first);
	gb.cu->mem_free(t->dev_base);
	gb.cu->mem_free(t->dev_keys);
	gb.cu->mem_free(t->dev_sum);
}

static void table_sums(struct table *t, bool has_sum)
{
	t->a.keys = has_sum ? (void *)(uintptr_t)t->dev_keys : NULL;
	t->a.sum = has_sum ? (void *)(uintptr_t)t->dev_sum : NULL;
}

static void table_run(void *arg)
{
	struct table *t = arg;

	struct wbk_move_args a = t->a;

	for (unsigned i = 0; i < WBK_MOVES; i++, a.first += t->n_op + 1) {
		uint32_t tiles = wbk_move_tiles(t->first, t->n_op, i);

		if (tiles)
			gb_launch((enum wbk_gpu)i, &a, tiles);
	}
}

/* The sum of one run. */
static struct wbk_sum table_sum(struct table *t)
{
	struct wbk_sum s;

	table_sums(t, true);
	gb_must(gb.cu->fill(t->dev_sum, 0, sizeof(s), gb.stream), "cuMemsetD8Async");
	table_run(t);
	gb_must(gb.cu->copy_out(&s, t->dev_sum, sizeof(s), gb.stream), "cuMemcpyDtoHAsync");
	gb_must(gb.cu->stream_sync(gb.stream), "cuStreamSynchronize");
	return s;
}

static uint64_t n_elem(const struct wbk_op *o)
{
	return (uint64_t)o->n[0] * o->n[1] * o->n[2] * o->n[3];
}

/* A table both ways round: with sums and without, and the sum is that of what lies there. */
static void bench_table(
	const char *name, struct table *t, enum wbk_way way, uint64_t wire, double bar)
{
	uint64_t half = (t->wire_bytes + t->mem_bytes) / 2;
	struct gb_copy c = {gb_device(half), gb_device(half), half};
	struct wbk_sum moved, there;
	struct gb_timed x, y;
	char text[256];

	gb_scribble(c.from, half);
	table_send(t, way, wire);
	moved = table_sum(t);
	x = gb_beside(table_run, t, gb_copy_on, &c);
	table_sums(t, false);
	y = gb_beside(table_run, t, gb_copy_on, &c);
	table_forget(t);
	table_send(t, WBK_WAY_SUM, 0);
	there = table_sum(t);
	table_forget(t);
	snprintf(text, sizeof(text), "%s, %u ops, summed", name, t->n_op);
	gb_row(text, x, 2 * (double)half, bar, "a copy of as many bytes");
	snprintf(text, sizeof(text), "%s, not summed", name);
	gb_row(text, y, 2 * (double)half, 0, "a copy of as many bytes");
	printf("{\"name\":\"gpu: %s, what the sum costs\",\"figure\":%.3f,\"unit\":\"of the time "
	       "without\",\"bar\":0.05,\"met\":%s,\"sum_is_right\":%s}\n",
		name, x.s / y.s - 1, x.s / y.s - 1 <= 0.05 ? "true" : "false",
		memcmp(&moved, &there, sizeof(moved)) ? "false" : "true");
	gb.cu->mem_free(c.to);
	gb.cu->mem_free(c.from);
}

/* ---- what plans of a model make of it ---------------------------------------------------------
 */

static const struct shared_model {
	const char *trainer, *rollout;
} shared[] = {
	{"megatron:tp4,ep8", "sglang:tp8,ep8"},
	{"megatron:tp2,pp2,ep4", "vllm:tp4"},
	{"fsdp2:8", "vllm:tp8"},
	{"fsdp2:8,stacked", "sglang:tp4,ep4"},
	{"fsdp2:8,masters", "vllm:tp4"},
};

struct plan {
	struct wb_deploy *d;
	struct wb_plan *p;
};

static struct plan plan_of(const struct shared_model *s)
{
	struct wb_deploy_spec spec = {.model = *wb_model_find("Qwen3-30B-A3B"),
		.engines = 1,
		.gpus_per_node = 8,
		.rail_bytes_per_s = 50000000000};
	struct wb_plan_input in;
	struct wb_err err = {0};
	struct plan x;

	gb_must_err(wb_parallel_parse(s->trainer, &spec.trainer, &err), &err);
	gb_must_err(wb_parallel_parse(s->rollout, &spec.rollout, &err), &err);
	gb_must_err(wb_deploy_create(&spec, &x.d, &err), &err);
	in = wb_deploy_input(x.d);
	gb_must_err(wb_plan_create(&in, &x.p, &err), &err);
	return x;
}

/* Each parameter has an allocation of its own, as frameworks make them. */
static uint64_t place(const struct wb_map *map, struct table *t)
{
	uint64_t bytes = 0, at;

	t->n_base = map->n_param;
	t->base = calloc(map->n_param, sizeof(*t->base));
	for (uint32_t i = 0; i < map->n_param; i++)
		bytes += (map->param[i].span * wb_dtype_bytes(map->param[i].dtype) + 511) / 512 *
			 512;
	at = gb_device(bytes);
	gb_scribble(at, bytes);
	bytes = 0;
	for (uint32_t i = 0; i < map->n_param; i++) {
		t->base[i] = (void *)(uintptr_t)(at + bytes);
		bytes += (map->param[i].span * wb_dtype_bytes(map->param[i].dtype) + 511) / 512 *
			 512;
	}
	return at;
}

static void add_chunk(struct table *t, const struct plan *x, const struct wb_binding *b,
	uint32_t cls, uint32_t chunk, bool is_all)
{
	static struct wbk_box box[BOXES_MAX];
	static uint32_t param[BOXES_MAX];
	uint64_t len = wb_chunk_len(x->p, &x->p->cls[cls], chunk);
	int n = wb_binding_boxes(b, cls, chunk, is_all, box, param, BOXES_MAX);

	if (t->wire_bytes + len > gb.wire_bytes)
		return;
	gb_must(n < 0 || t->n_op + (uint32_t)n > OPS_MAX, "wb_binding_boxes");
	for (int i = 0; i < n; i++) {
		struct wbk_op *o = &t->op[t->n_op++];

		*o = wbk_op_of_box(&box[i], 0);
		o->base = param[i];
		o->wire_off += t->wire_bytes;
		t->mem_bytes += n_elem(o) * o->mem_elem;
	}
	t->wire_bytes += (len + 255) / 256 * 256;
}

/* What trainer 0 sends, or what the first worker of the engine needs. */
static void fill_table(struct table *t, const struct plan *x, bool is_trainer)
{
	const struct wb_plan *p = x->p;
	uint32_t who = is_trainer ? 0 : x->d->n_trainer;
	const struct wb_map *map = wb_deploy_map(x->d, p->worker[who].role, 0);
	struct wb_binding *b;
	struct wb_err err = {0};

	t->op = malloc(sizeof(*t->op) * OPS_MAX);
	t->first = malloc(sizeof(*t->first) * WBK_MOVES * (OPS_MAX + 1));
	gb_must_err(wb_binding_create(p, x->d->manifest, map, who, &b, &err), &err);
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		bool is_its =
			is_trainer ? r->src == who && r->stage == WB_STAGE_RECEIVE : r->dst == who;

		for (uint32_t c = r->chunk_begin; is_its && c < r->chunk_end; c++)
			add_chunk(t, x, b, r->class_id, c, !is_trainer);
	}
	wb_binding_destroy(b);
}

static void bench_side(const char *name, const struct plan *x, bool is_trainer, uint64_t wire)
{
	struct table t = {0};
	uint64_t at;

	if (!gb_is_wanted(name))
		return;
	fill_table(&t, x, is_trainer);
	at = place(wb_deploy_map(x->d, is_trainer ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, 0), &t);
	bench_table(name, &t, is_trainer ? WBK_WAY_PACK : WBK_WAY_ASSEMBLE, wire, 0.85);
	gb.cu->mem_free(at);
	free(t.op);
	free(t.first);
	free(t.base);
}

static void bench_model(uint64_t wire)
{
	for (size_t i = 0; i < sizeof(shared) / sizeof(*shared); i++) {
		struct plan x = plan_of(&shared[i]);
		char name[128];

		snprintf(
			name, sizeof(name), "pack, %s to %s", shared[i].trainer, shared[i].rollout);
		bench_side(name, &x, true, wire);
		snprintf(name, sizeof(name), "assemble, %s to %s", shared[i].trainer,
			shared[i].rollout);
		bench_side(name, &x, false, wire);
		wb_plan_destroy(x.p);
		wb_deploy_destroy(x.d);
	}
}

/* ---- shapes ---------------------------------------------------------------------------------- */

#define SIDE 16384u

static void bench_shape(const char *name, struct wbk_op o, double bar, uint64_t wire)
{
	uint64_t bytes = o.mem_elem, at;
	uint32_t first[WBK_MOVES * 2];
	void *base;
	struct table t = {.op = &o,
		.first = first,
		.base = &base,
		.n_op = 1,
		.n_base = 1,
		.mem_bytes = n_elem(&o) * o.mem_elem,
		.wire_bytes = n_elem(&o) * o.wire_elem};
	char text[128];

	if (!gb_is_wanted(name))
		return;
	for (unsigned d = 0; d < WBK_DIMS; d++)
		bytes += (o.n[d] - 1) * (uint64_t)o.mem_stride[d];
	at = gb_device(bytes);
	gb_scribble(at, bytes);
	base = (void *)(uintptr_t)at;
	snprintf(text, sizeof(text), "pack, %s", name);
	bench_table(text, &t, WBK_WAY_PACK, wire, bar);
	snprintf(text, sizeof(text), "assemble, %s", name);
	bench_table(text, &t, WBK_WAY_ASSEMBLE, wire, bar);
	gb.cu->mem_free(at);
}

static struct wbk_op square(unsigned wire_elem, unsigned mem_elem, bool is_transposed)
{
	struct wbk_op o = {.n = {1, 1, SIDE, SIDE},
		.wire_elem = (uint8_t)wire_elem,
		.mem_elem = (uint8_t)mem_elem,
		.pos_stride = {0, 0, SIDE * wire_elem, wire_elem}};

	o.mem_stride[2] = is_transposed ? mem_elem : (int64_t)SIDE * mem_elem;
	o.mem_stride[3] = is_transposed ? (int64_t)SIDE * mem_elem : mem_elem;
	return o;
}

static void bench_shapes(uint64_t wire)
{
	struct wbk_op o = square(2, 2, false);

	bench_shape("16384 x 16384 of 2 bytes as they are", o, 0.85, wire);
	bench_shape("16384 x 16384 of 2 bytes transposed", square(2, 2, true), 0.7, wire);
	bench_shape("16384 x 16384 of 4 bytes transposed", square(4, 4, true), 0.7, wire);
	o = square(2, 4, false);
	o.cast = WBK_BF16_TO_F32;
	bench_shape("bf16 on the wire, f32 in memory", o, 0, wire);
	o = square(4, 2, false);
	o.cast = WBK_F32_TO_BF16;
	bench_shape("f32 on the wire, bf16 in memory", o, 0, wire);
	o = square(2, 2, false);
	o.n[3] = SIDE / 8; /* an eighth of each row */
	bench_shape("rows of 4 KiB, a slice", o, 0.85, wire);
	o.n[3] = 128;
	o.n[2] = SIDE * 8;
	o.mem_stride[2] = 512;
	o.pos_stride[2] = 512;
	bench_shape("rows of 256 bytes, a slice", o, 0, wire);
}

/* ---- a launch -------------------------------------------------------------------------------- */

static void bench_launch(void)
{
	struct wbk_op o = square(2, 2, false);
	uint32_t first[WBK_MOVES * 2];
	void *base = (void *)(uintptr_t)gb_device(4096);
	struct table t = {.op = &o, .first = first, .base = &base, .n_op = 1, .n_base = 1};
	struct gb_timed x;

	if (!gb_is_wanted("launch"))
		return;
	o.n[2] = 1;
	o.n[3] = 64;
	table_send(&t, WBK_WAY_PACK, gb_device(4096));
	table_sums(&t, true);
	x = gb_beside(table_run, &t, table_run, &t);
	printf("{\"name\":\"gpu: launch of a round of 128 bytes, in a queue\",\"figure\":%.1f,"
	       "\"unit\":\"us\",\"bar\":20,\"met\":%s}\n",
		1e6 * x.s, 1e6 * x.s <= 20 ? "true" : "false");
	table_forget(&t);
}

void gb_moves(void)
{
	uint64_t wire = gb_device(GB_WIRE_BYTES);

	bench_model(wire);
	bench_shapes(wire);
	bench_launch();
	gb.cu->mem_free(wire);
}
