/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu [--move FILE] [--scan FILE] [--blocks N] [--only WORD] [--mib N]
 *
 * Kernels on a GPU beside what its driver does with as many bytes, one JSON object a line.  A row's
 * figure is a ratio of medians of seven, taken in turns: 1 = as fast as the driver's copy.  Without
 * a device one line says so.
 *	--move, --scan	other images of kernels/move.cu and scan.cu, to compare them
 *	--blocks	of a multiprocessor, instead of what wbk_gpu_grid() says
 *	--only		rows with that word in their name
 *	--mib		of a plan's bytes, at most; 2048 if absent
 */
#include "kernels/gpu.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "kernels/codes.h"
#include "lane/gpu.h"
#include "mem/gpu.h"
#include "planner/binding.h"
#include "planner/deploy/deploy.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REPS 7
#define CALLS 5 /* queued at once, so that the host's part is hidden */
#define WIRE_BYTES ((uint64_t)2 << 30) /* of the largest shape */
#define OPS_MAX (1u << 20)
#define BOXES_MAX 65536u

static struct wb_gpu *gpu;
static const struct wbcu *cu;
static void *stream;
static struct wbk_sum_keys keys;
static struct {
	const char *move, *scan, *only;
	uint32_t blocks;
	uint64_t wire_bytes;
} args = {.wire_bytes = WIRE_BYTES};

static void must(int rc, const char *what)
{
	struct wb_err err = {0};

	if (!rc)
		return;
	wb_gpu_rc(gpu, rc, what, &err);
	fprintf(stderr, "gpu: %s: %d %s\n", what, rc, err.msg);
	exit(1);
}

static void must_err(int rc, const struct wb_err *err)
{
	if (!rc)
		return;
	fprintf(stderr, "gpu: %s\n", err->msg);
	exit(1);
}

/* ---- a device -------------------------------------------------------------------------------- */

static uint64_t device(uint64_t bytes)
{
	uint64_t at;

	must(cu->mem_alloc(&at, bytes + 256), "cuMemAlloc");
	return at;
}

static void *pinned(uint64_t bytes)
{
	void *p;

	must(cu->host_alloc(&p, bytes, WBCU_HOST_PORTABLE | WBCU_HOST_MAPPED), "cuMemHostAlloc");
	return p;
}

static uint64_t sent(const void *p, uint64_t bytes)
{
	uint64_t at = device(bytes);

	must(cu->copy_in(at, p, bytes, stream), "cuMemcpyHtoDAsync");
	must(cu->stream_sync(stream), "cuStreamSynchronize");
	return at;
}

/* Bytes that do not compress, and are as good as random to a kernel. */
static void scribble(uint64_t at, uint64_t bytes)
{
	uint64_t have = WB_MIN(bytes, (uint64_t)16 << 20), n;
	uint64_t *p = malloc(have + 8);
	struct wb_rng rng = {20261127};

	for (uint64_t i = 0; i < have / 8 + 1; i++)
		p[i] = wb_rng_u64(&rng);
	must(cu->copy_in(at, p, have, stream), "cuMemcpyHtoDAsync");
	for (; have < bytes; have += n) {
		n = WB_MIN(have, bytes - have);
		must(cu->copy_on(at + have, at, n, stream), "cuMemcpyDtoDAsync");
	}
	must(cu->stream_sync(stream), "cuStreamSynchronize");
	free(p);
}

static void *image_of(const char *file)
{
	FILE *f = fopen(file, "rb");
	char *p = malloc(8 << 20);
	size_t n = f ? fread(p, 1, (8 << 20) - 1, f) : 0;

	if (!n) {
		fprintf(stderr, "gpu: cannot read %s\n", file);
		exit(1);
	}
	p[n] = 0;
	fclose(f);
	return p;
}

static void *function(const void *image, const char *name)
{
	void *module, *fn;

	must(cu->module_load(&module, image), "cuModuleLoadData");
	must(cu->module_function(&fn, module, name), name);
	return fn;
}

static void *kernel(enum wbk_gpu which)
{
	static void *fn[WBK_GPU_COUNT];
	const struct wbk_gpu_kernel *k = wbk_gpu_kernel(which);
	const char *file = which <= WBK_GPU_IMAGE ? args.move : args.scan;

	if (!fn[which])
		fn[which] = function(file ? image_of(file) : k->image, k->name);
	return fn[which];
}

static void launch(enum wbk_gpu which, void *a, uint32_t n_tile)
{
	uint32_t grid = wbk_gpu_grid(which, n_tile, (uint32_t)gpu->n_sm);
	void *param[] = {a};

	if (args.blocks)
		grid = WB_MIN(n_tile, args.blocks * (uint32_t)gpu->n_sm);
	must(cu->launch(kernel(which), grid, 1, 1, wbk_gpu_kernel(which)->threads, 1, 1, 0, stream,
		     param, NULL),
		"cuLaunchKernel");
}

/* ---- measuring ------------------------------------------------------------------------------- */

typedef void queue_fn(void *arg);

static double seconds(queue_fn *fn, void *arg)
{
	uint64_t t;

	must(cu->stream_sync(stream), "cuStreamSynchronize");
	t = wb_now_ns(&wb_clock_real);
	for (int i = 0; i < CALLS; i++)
		fn(arg);
	must(cu->stream_sync(stream), "the kernel");
	return 1e-9 * (double)(wb_now_ns(&wb_clock_real) - t) / CALLS;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct timed {
	double s, ratio; /* median seconds; median of the other's seconds over these */
};

static struct timed beside(queue_fn *fn, void *arg, queue_fn *other, void *with)
{
	double t[REPS], q[REPS];

	fn(arg);
	other(with);
	for (int i = 0; i < REPS; i++) {
		double ref = seconds(other, with);

		t[i] = seconds(fn, arg);
		q[i] = ref / t[i];
	}
	qsort(t, REPS, sizeof(*t), by_value);
	qsort(q, REPS, sizeof(*q), by_value);
	return (struct timed){t[REPS / 2], q[REPS / 2]};
}

static bool is_wanted(const char *name)
{
	return !args.only || strstr(name, args.only);
}

/* @bytes: read and written, for the rate. */
static void row(const char *name, struct timed t, double bytes, double bar, const char *more)
{
	printf("{\"name\":\"gpu: %s\",\"figure\":%.3f,\"unit\":\"of %s\",\"GBps\":%.0f,\"ms\":%."
	       "3f,",
		name, t.ratio, more, bytes / t.s / 1e9, t.s * 1e3);
	if (bar)
		printf("\"bar\":%.2f,\"met\":%s}\n", bar, t.ratio >= bar ? "true" : "false");
	else
		printf("\"bar\":null,\"met\":null}\n");
	fflush(stdout);
}

struct copy {
	uint64_t to, from, bytes;
};

static void copy_on(void *arg)
{
	struct copy *c = arg;

	must(cu->copy_on(c->to, c->from, c->bytes, stream), "cuMemcpyDtoDAsync");
}

static void copy_out(void *arg)
{
	struct copy *c = arg;

	must(cu->copy_out((void *)(uintptr_t)c->to, c->from, c->bytes, stream), "cuMemcpyDtoH");
}

static void copy_in(void *arg)
{
	struct copy *c = arg;

	must(cu->copy_in(c->to, (void *)(uintptr_t)c->from, c->bytes, stream), "cuMemcpyHtoD");
}

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
	must(wbk_move_prepare(op, t->n_op, way, t->first, &bad), "wbk_move_prepare");
	t->dev_op = sent(op, sizeof(*op) * t->n_op);
	t->dev_first = sent(t->first, sizeof(*t->first) * 2 * (t->n_op + 1));
	t->dev_base = sent(t->base, sizeof(*t->base) * t->n_base);
	t->dev_keys = sent(&keys, sizeof(keys));
	t->dev_sum = device(sizeof(struct wbk_sum));
	must(cu->fill(t->dev_sum, 0, sizeof(struct wbk_sum), stream), "cuMemsetD8Async");
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
	must(cu->stream_sync(stream), "cuStreamSynchronize");
	cu->mem_free(t->dev_op);
	cu->mem_free(t->dev_first);
	cu->mem_free(t->dev_base);
	cu->mem_free(t->dev_keys);
	cu->mem_free(t->dev_sum);
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

	if (t->first[t->n_op])
		launch(WBK_GPU_ROWS, &a, t->first[t->n_op]);
	a.first += t->n_op + 1;
	if (t->first[2 * t->n_op + 1])
		launch(WBK_GPU_IMAGE, &a, t->first[2 * t->n_op + 1]);
}

/* The sum of one run. */
static struct wbk_sum table_sum(struct table *t)
{
	struct wbk_sum s;

	table_sums(t, true);
	must(cu->fill(t->dev_sum, 0, sizeof(s), stream), "cuMemsetD8Async");
	table_run(t);
	must(cu->copy_out(&s, t->dev_sum, sizeof(s), stream), "cuMemcpyDtoHAsync");
	must(cu->stream_sync(stream), "cuStreamSynchronize");
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
	struct copy c = {device(half), device(half), half};
	struct wbk_sum moved, there;
	struct timed x, y;
	char text[256];

	scribble(c.from, half);
	table_send(t, way, wire);
	moved = table_sum(t);
	x = beside(table_run, t, copy_on, &c);
	table_sums(t, false);
	y = beside(table_run, t, table_run, t);
	y = beside(table_run, t, copy_on, &c);
	table_forget(t);
	table_send(t, WBK_WAY_SUM, 0);
	there = table_sum(t);
	table_forget(t);
	snprintf(text, sizeof(text), "%s, %u ops, summed", name, t->n_op);
	row(text, x, 2 * (double)half, bar, "a copy of as many bytes");
	snprintf(text, sizeof(text), "%s, not summed", name);
	row(text, y, 2 * (double)half, 0, "a copy of as many bytes");
	printf("{\"name\":\"gpu: %s, what the sum costs\",\"figure\":%.3f,\"unit\":\"of the time "
	       "without\",\"bar\":0.05,\"met\":%s,\"sum_is_right\":%s}\n",
		name, x.s / y.s - 1, x.s / y.s - 1 <= 0.05 ? "true" : "false",
		memcmp(&moved, &there, sizeof(moved)) ? "false" : "true");
	cu->mem_free(c.to);
	cu->mem_free(c.from);
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

	must_err(wb_parallel_parse(s->trainer, &spec.trainer, &err), &err);
	must_err(wb_parallel_parse(s->rollout, &spec.rollout, &err), &err);
	must_err(wb_deploy_create(&spec, &x.d, &err), &err);
	in = wb_deploy_input(x.d);
	must_err(wb_plan_create(&in, &x.p, &err), &err);
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
	at = device(bytes);
	scribble(at, bytes);
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

	if (t->wire_bytes + len > args.wire_bytes)
		return;
	must(n < 0 || t->n_op + (uint32_t)n > OPS_MAX, "wb_binding_boxes");
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
	t->first = malloc(sizeof(*t->first) * 2 * (OPS_MAX + 1));
	must_err(wb_binding_create(p, x->d->manifest, map, who, &b, &err), &err);
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

	if (!is_wanted(name))
		return;
	fill_table(&t, x, is_trainer);
	at = place(wb_deploy_map(x->d, is_trainer ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, 0), &t);
	bench_table(name, &t, is_trainer ? WBK_WAY_PACK : WBK_WAY_ASSEMBLE, wire, 0.85);
	cu->mem_free(at);
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
	uint32_t first[4];
	void *base;
	struct table t = {.op = &o,
		.first = first,
		.base = &base,
		.n_op = 1,
		.n_base = 1,
		.mem_bytes = n_elem(&o) * o.mem_elem,
		.wire_bytes = n_elem(&o) * o.wire_elem};
	char text[128];

	if (!is_wanted(name))
		return;
	for (unsigned d = 0; d < WBK_DIMS; d++)
		bytes += (o.n[d] - 1) * (uint64_t)o.mem_stride[d];
	at = device(bytes);
	scribble(at, bytes);
	base = (void *)(uintptr_t)at;
	snprintf(text, sizeof(text), "pack, %s", name);
	bench_table(text, &t, WBK_WAY_PACK, wire, bar);
	snprintf(text, sizeof(text), "assemble, %s", name);
	bench_table(text, &t, WBK_WAY_ASSEMBLE, wire, bar);
	cu->mem_free(at);
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

/* ---- extraction ------------------------------------------------------------------------------ */

struct scan {
	uint64_t dev_n;
	uint32_t n_tile;
	enum wbk_gpu which;
	struct wbk_scan_args a;
};

#define SCAN_ROWS 65536u
#define SCAN_COLS 8192u
#define SCAN_BYTES ((uint64_t)SCAN_ROWS * SCAN_COLS * 2)
#define HITS 65536u

static void scan_run(void *arg)
{
	struct scan *s = arg;

	must(cu->fill(s->dev_n, 0, 8, stream), "cuMemsetD8Async");
	launch(s->which, &s->a, s->n_tile);
}

struct reduce {
	void *fn;
	uint64_t from, n, out;
};

static void reduce_run(void *arg)
{
	struct reduce *r = arg;
	void *param[] = {&r->from, &r->n, &r->out};

	must(cu->launch(r->fn, 4 * (uint32_t)gpu->n_sm, 1, 1, 512, 1, 1, 0, stream, param, NULL),
		"cuLaunchKernel");
}

/* A parameter that a pass of column digits has come to: every row is the same ramp. */
static uint64_t ramps(void)
{
	static uint16_t one[SCAN_COLS];
	uint64_t at = device(SCAN_BYTES), have = sizeof(one), n;

	wbk_encode_ramp(WBK_CODE_BF16, 0, 0, 0x7fff, one, SCAN_COLS);
	must(cu->copy_in(at, one, sizeof(one), stream), "cuMemcpyHtoDAsync");
	for (; have < SCAN_BYTES; have += n) {
		n = WB_MIN(have, SCAN_BYTES - have);
		must(cu->copy_on(at + have, at, n, stream), "cuMemcpyDtoDAsync");
	}
	must(cu->stream_sync(stream), "cuStreamSynchronize");
	return at;
}

static void bench_scan(
	const char *name, enum wbk_gpu which, const void *item, size_t item_bytes, double bar)
{
	uint32_t first[2] = {0};
	struct scan s = {.which = which};
	struct wbk_found out = wbk_found_none();
	/* What an item begins with is where its matrix is. */
	struct reduce r = {.from = *(const uint64_t *)item, .n = SCAN_BYTES / 16, .out = device(4)};
	char file[4096];
	const char *o = getenv("WB_REDUCE");

	if (!is_wanted(name))
		return;
	snprintf(file, sizeof(file), "%s", o ? o : WBT_REDUCE);
	r.fn = function(image_of(file), "wbt_gpu_reduce");
	must(wbk_tiles_add(first, SCAN_ROWS, SCAN_COLS, 1), "wbk_tiles_add");
	s.n_tile = first[1];
	s.dev_n = device(8);
	s.a = (struct wbk_scan_args){.item = (void *)(uintptr_t)sent(item, item_bytes),
		.first = (void *)(uintptr_t)sent(first, sizeof(first)),
		.out = (void *)(uintptr_t)sent(&out, sizeof(out)),
		.hit = (void *)(uintptr_t)device(HITS * sizeof(struct wbk_hit)),
		.n_hit = (void *)(uintptr_t)s.dev_n,
		.cap = HITS,
		.n_item = 1};
	row(name, beside(scan_run, &s, reduce_run, &r), (double)SCAN_BYTES, bar,
		"reading as many bytes");
}

static void bench_scans(void)
{
	struct wbk_diff2 diff2 = {.f = {.rows = SCAN_ROWS,
					  .cols = SCAN_COLS,
					  .row_stride = SCAN_COLS,
					  .code = WBK_CODE_BF16},
		.row_end = SCAN_ROWS};
	struct wbk_plane plane = {.rows = SCAN_ROWS,
		.cols = SCAN_COLS,
		.row_stride = SCAN_COLS,
		.row_end = SCAN_ROWS,
		.elem = 2};
	struct wbk_equal equal = {.want = 0x3f3f};
	struct wbk_classify classify = {.first = 0x3f3f, .second = 0x3f3f, .sentinel = 0x1234};
	uint64_t at;

	if (!is_wanted("second differences") && !is_wanted("classes") && !is_wanted("constants"))
		return;
	at = ramps();
	diff2.f.data = plane.data = (void *)(uintptr_t)at;
	bench_scan("second differences, 65536 x 8192 of bf16", WBK_GPU_DIFF2, &diff2, sizeof(diff2),
		0.8);
	must(cu->fill(at, 0x3f, SCAN_BYTES, stream), "cuMemsetD8Async");
	equal.p = classify.p = plane;
	classify.cls = (uint8_t *)(uintptr_t)device(SCAN_BYTES / 2);
	bench_scan("constants, 65536 x 8192 of bf16", WBK_GPU_EQUAL, &equal, sizeof(equal), 0);
	bench_scan(
		"classes, 65536 x 8192 of bf16", WBK_GPU_CLASSIFY, &classify, sizeof(classify), 0);
	cu->mem_free((uintptr_t)classify.cls);
	cu->mem_free(at);
}

/* ---- a lane's jobs --------------------------------------------------------------------------- */

#define CHUNK ((uint64_t)16 << 20)
#define CHUNKS 16u

struct jobs {
	struct wb_lane_gpu *lane;
	struct wb_lane *remote; /* instead: the lane of another thread, by its rings */
	struct wb_lane_job job;
	struct wbk_box box;
	void *base;
	uint8_t *arena;
	uint32_t n;
};

static void end_job(struct jobs *j)
{
	struct wbk_sum sum;

	must(wb_lane_gpu_end(j->lane, &sum), "a job of the lane");
}

/* As many under way as a worker's lane has. */
static void jobs_run(void *arg)
{
	struct jobs *j = arg;

	for (uint32_t i = 0; i < j->n; i++) {
		if (wb_lane_gpu_under_way(j->lane) == WB_LANE_GPU_JOBS)
			end_job(j);
		j->job.wire = j->arena + i * CHUNK;
		wb_lane_gpu_begin(j->lane, &j->job);
	}
	while (wb_lane_gpu_under_way(j->lane))
		end_job(j);
}

/* As an agent has them run. */
static void jobs_send(void *arg)
{
	struct jobs *j = arg;
	struct pollfd p = {.fd = wb_lane_fd(j->remote), .events = POLLIN};
	struct wb_lane_job done;

	for (uint32_t i = 0; i < j->n; i++) {
		j->job.wire = j->arena + i * CHUNK;
		must(wb_lane_submit(j->remote, &j->job), "wb_lane_submit");
	}
	for (uint32_t i = 0; i < j->n;) {
		if (!wb_lane_reap(j->remote, &done, 1)) {
			must(poll(&p, 1, 60000) != 1, "a job of the worker");
			continue;
		}
		must(done.rc, "a job of the worker");
		i++;
	}
}

static void bench_chunks(struct jobs *j, const char *how, queue_fn *run)
{
	struct copy c = {.bytes = CHUNKS * CHUNK};
	char name[128];

	c.from = device(c.bytes);
	c.to = (uintptr_t)pinned(c.bytes);
	j->n = CHUNKS;
	j->box.n_row = 1024;
	j->job.keys = &keys;
	j->job.kind = WB_LANE_PACK;
	snprintf(name, sizeof(name), "staging, pack into slots of the host, 16 chunks of 16 MiB%s",
		how);
	row(name, beside(run, j, copy_out, &c), (double)c.bytes, 0.9, "cuMemcpyDtoHAsync, pinned");
	j->job.kind = WB_LANE_ASSEMBLE;
	c = (struct copy){c.from, c.to, c.bytes};
	snprintf(name, sizeof(name),
		"staging, assemble from slots of the host, 16 chunks of 16 MiB%s", how);
	row(name, beside(run, j, copy_in, &c), (double)c.bytes, 0.9, "cuMemcpyHtoDAsync, pinned");
	cu->mem_free(c.to);
	cu->host_free((void *)(uintptr_t)c.from);
}

/* @n jobs of @rows times 16 KiB, in microseconds a job. */
static void bench_small(struct jobs *j, const char *name, queue_fn *run, uint32_t rows, uint32_t n,
	bool has_sum, double bar)
{
	struct timed t;

	j->n = n;
	j->box.n_row = rows;
	j->job.kind = WB_LANE_PACK;
	j->job.keys = has_sum ? &keys : NULL;
	t = beside(run, j, run, j);
	printf("{\"name\":\"gpu: staging, %s\",\"figure\":%.1f,\"unit\":\"us\",", name,
		1e6 * t.s / n);
	if (bar > 0)
		printf("\"bar\":%.0f,\"met\":%s}\n", bar, 1e6 * t.s / n <= bar ? "true" : "false");
	else
		printf("\"bar\":null,\"met\":null}\n");
	fflush(stdout);
}

static void bench_lane(struct jobs *j)
{
	struct wb_err err = {0};

	must_err(wb_lane_gpu_create(NULL, j->arena, CHUNKS * CHUNK, &j->lane, &err), &err);
	bench_chunks(j, "", jobs_run);
	bench_small(j, "a job of 16 KiB from its call to its end", jobs_run, 1, 1, true, 20);
	bench_small(j, "a job of 16 KiB from its call to its end, not summed", jobs_run, 1, 1,
		false, 0);
	bench_small(j, "a job of 16 KiB, four under way", jobs_run, 1, CHUNKS, true, 0);
	bench_small(j, "a job of 256 KiB, the kernel writes the slot, four under way", jobs_run, 16,
		CHUNKS, true, 0);
	bench_small(
		j, "a job of 272 KiB, by a buffer, four under way", jobs_run, 17, CHUNKS, true, 0);
	bench_small(
		j, "a job of 1 MiB, by a buffer, four under way", jobs_run, 64, CHUNKS, true, 0);
	wb_lane_gpu_destroy(j->lane);
}

static void *worker_main(void *worker)
{
	must(wb_lane_worker_run(worker), "wb_lane_worker_run");
	return NULL;
}

/* The same by a thread that takes them from the rings, as in the library. */
static void bench_worker(struct jobs *j)
{
	struct wb_lane_mem mem = {.addr = j->base, .bytes = CHUNK, .is_device = true};
	struct wb_lane_worker_opts o = {.mem = &mem,
		.n_mem = 1,
		.arena = j->arena,
		.arena_bytes = CHUNKS * CHUNK,
		.device = gpu->uuid.bytes};
	struct wb_lane_remote_fds fds;
	struct wb_lane_worker *worker;
	struct wb_err err = {0};
	pthread_t thread;

	must_err(wb_lane_create_remote(NULL, j->arena, CHUNKS * CHUNK, &j->remote, &fds, &err),
		&err);
	o.fds = (struct wb_lane_remote_fds){dup(fds.shared), dup(fds.submit), dup(fds.complete)};
	must_err(wb_lane_worker_open(&o, &worker, &err), &err);
	must(pthread_create(&thread, NULL, worker_main, worker), "pthread_create");
	bench_chunks(j, ", through the rings of a worker", jobs_send);
	bench_small(j, "a job of 16 KiB through the rings of a worker", jobs_send, 1, 1, true, 0);
	wb_lane_worker_stop(worker);
	pthread_join(thread, NULL);
	wb_lane_worker_close(worker);
	wb_lane_destroy(j->remote);
}

static void bench_jobs(void)
{
	struct jobs j = {0};

	if (!is_wanted("staging"))
		return;
	j.arena = mmap(
		NULL, CHUNKS * CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	j.base = (void *)(uintptr_t)device(CHUNK);
	scribble((uintptr_t)j.base, CHUNK);
	j.box = (struct wbk_box){.n_col = CHUNK / 2048,
		.row_stride = CHUNK / 1024,
		.col_stride = 2,
		.pos_row_stride = CHUNK / 1024,
		.pos_col_stride = 2,
		.wire_elem = 2,
		.mem_elem = 2};
	j.job = (struct wb_lane_job){
		.bases = &j.base, .box = &j.box, .n_box = 1, .wire_bytes = CHUNK};
	bench_lane(&j);
	bench_worker(&j);
	cu->mem_free((uintptr_t)j.base);
	munmap(j.arena, CHUNKS * CHUNK);
}

static void queue_nothing(void *arg)
{
	struct table *t = arg;

	table_run(t);
}

static void bench_launch(void)
{
	struct wbk_op o = square(2, 2, false);
	uint32_t first[4];
	void *base = (void *)(uintptr_t)device(4096);
	struct table t = {.op = &o, .first = first, .base = &base, .n_op = 1, .n_base = 1};
	struct timed x;

	if (!is_wanted("launch"))
		return;
	o.n[2] = 1;
	o.n[3] = 64;
	table_send(&t, WBK_WAY_PACK, device(4096));
	table_sums(&t, true);
	x = beside(queue_nothing, &t, queue_nothing, &t);
	printf("{\"name\":\"gpu: launch of a round of 128 bytes, in a queue\",\"figure\":%.1f,"
	       "\"unit\":\"us\",\"bar\":20,\"met\":%s}\n",
		1e6 * x.s, 1e6 * x.s <= 20 ? "true" : "false");
	table_forget(&t);
}

static void usage(void)
{
	fprintf(stderr,
		"usage: gpu [--move FILE] [--scan FILE] [--blocks N] [--only WORD] [--mib N]\n");
	exit(2);
}

static void parse(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--move"))
			args.move = argv[i + 1];
		else if (!strcmp(argv[i], "--scan"))
			args.scan = argv[i + 1];
		else if (!strcmp(argv[i], "--only"))
			args.only = argv[i + 1];
		else if (!strcmp(argv[i], "--blocks"))
			args.blocks = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--mib"))
			args.wire_bytes = strtoull(argv[i + 1], NULL, 10) << 20;
		else
			usage();
	}
	if (argc % 2 == 0)
		usage();
}

int main(int argc, char **argv)
{
	struct wb_err err = {0};
	int version = 0, rc;
	uint64_t wire;

	parse(argc, argv);
	rc = wb_gpu_get(NULL, &gpu, &err);
	if (rc || !wbk_gpu_kernel(WBK_GPU_ROWS)->image) {
		printf("{\"name\":\"gpu\",\"figure\":null,\"skipped\":\"%s\"}\n",
			rc ? err.msg : "built without a CUDA compiler: make CUDA=yes");
		return getenv("STRICT") ? 1 : 0;
	}
	cu = gpu->cu;
	must_err(wb_gpu_enter(gpu, &err), &err);
	cu->driver_version(&version);
	must(cu->stream_create(&stream, WBCU_STREAM_NON_BLOCKING), "cuStreamCreate");
	printf("{\"name\":\"gpu\",\"device\":\"%s\",\"driver\":\"CUDA %d.%d\",\"sm\":%d}\n",
		gpu->name, version / 1000, version % 1000 / 10, gpu->n_sm);
	wbk_sum_keys_init(&keys, 0);
	wire = device(WIRE_BYTES);
	bench_model(wire);
	bench_shapes(wire);
	bench_scans();
	bench_jobs();
	bench_launch();
	wb_gpu_leave(gpu);
	wb_gpu_put(gpu);
	return 0;
}
