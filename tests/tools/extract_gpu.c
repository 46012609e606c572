/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extract_gpu [--layers N] [--experts N] [--hidden N] [--moe N] [--vocab N] [--ep] [--reload] [--n
 * N]
 *
 * Extraction of one of eight ranks of Qwen3-30B-A3B whose parameters lie on a GPU: its time, its
 * loads' time, and what it copied to the host, one JSON object a repetition.  The options make the
 * model smaller; --ep gives a rank whole experts instead of a part of each; --reload keeps no
 * snapshot.  The loader is what an engine does on a device: each tensor of the checkpoint in memory
 * of the device, and a kernel that copies the rank's part of it.  It needs a driver and nothing
 * else: no framework.  Exit status 77: no GPU.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "extract/cover.h"
#include "extract/probe.h"
#include "extract/srcmap.h"
#include "kernels/gpu.h"
#include "mem/gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRSTS (2 * WBK_MOVES) /* numbers of a table of one op */
#define TP 8u
#define RANK 3u
#define HEADS 32u
#define KV_HEADS 4u
#define HEAD_DIM 128u
#define PADDING 8u /* rows of zeros behind a vocabulary's part */
#define RING_BYTES ((uint64_t)256 << 20) /* of tensors beside the largest one */

struct model {
	uint32_t layers, experts, hidden, moe, vocab;
	bool is_ep, is_reload;
};

/* A rank's part of a tensor: rows and columns of it, to where in which parameter. */
struct part {
	uint32_t tensor, param;
	uint64_t row, col, rows, cols; /* of the tensor */
	uint64_t at, pitch; /* elements of the parameter */
};

struct worker {
	struct wb_gpu *gpu;
	const struct wbcu *cu;
	void *module, *move;
	struct wb_tensor *tensor;
	struct wb_probe_param *param;
	struct part *part; /* by tensor; one each, or none */
	size_t n_tensor, tensor_cap, n_param, param_cap, n_part, part_cap;
	struct wb_manifest *m;
	uint64_t memory, bytes; /* of all parameters */
	uint64_t ring, ring_bytes;
	uint64_t table; /* of the device: an op and its two tile numbers a part, then the bases */
	uint64_t ops, firsts, bases;
	uint32_t *first; /* four a part: two for each kernel */
	uint64_t padding[2]; /* address of zeros, of the two vocabularies */
	uint64_t fill_ns;
};

static void must(int rc, const char *what, const struct wb_err *err)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "extract_gpu: %s: %s\n", what, err && err->code ? err->msg : "failed");
	exit(1);
}

static void driver(const struct worker *w, int result, const char *what)
{
	struct wb_err err = {0};

	must(wb_gpu_rc(w->gpu, result, what, &err), what, &err);
}

/* ---- the model ------------------------------------------------------------------------------- */

static uint32_t add_tensor(struct worker *w, const char *name, uint64_t rows, uint64_t cols)
{
	bool is_vector = !rows;

	must(wb_grow(&w->tensor, &w->tensor_cap, w->n_tensor + 1, SIZE_MAX / 2, sizeof(*w->tensor)),
		name, NULL);
	w->tensor[w->n_tensor] = (struct wb_tensor){.name = wb_strdup(name),
		.dtype = WB_BF16,
		.ndim = is_vector ? 1 : 2,
		.shape = {is_vector ? cols : rows, cols}};
	return (uint32_t)w->n_tensor++;
}

static uint32_t add_param(struct worker *w, const char *name, const uint64_t *shape, uint32_t ndim)
{
	struct wb_probe_param *p;
	uint64_t dense = 1;

	must(wb_grow(&w->param, &w->param_cap, w->n_param + 1, SIZE_MAX / 2, sizeof(*w->param)),
		name, NULL);
	p = &w->param[w->n_param];
	*p = (struct wb_probe_param){.name = wb_strdup(name), .dtype = WB_BF16, .ndim = ndim};
	for (uint32_t d = ndim; d-- > 0;) {
		p->shape[d] = shape[d];
		p->stride[d] = (int64_t)dense;
		dense *= shape[d];
	}
	p->data = (void *)(uintptr_t)w->bytes; /* from the beginning of all, for now */
	w->bytes += (dense * 2 + 511) / 512 * 512;
	return (uint32_t)w->n_param++;
}

static void add_part(struct worker *w, const struct part *p)
{
	must(wb_grow(&w->part, &w->part_cap, w->n_part + 1, SIZE_MAX / 2, sizeof(*p)), "parts",
		NULL);
	w->part[w->n_part++] = *p;
}

/* A tensor that a parameter is: a vector, or all rows. */
static void add_whole(struct worker *w, const char *name, uint64_t rows, uint64_t cols)
{
	uint64_t shape[2] = {rows ? rows : cols, cols};
	uint32_t p = add_param(w, name, shape, rows ? 2 : 1), t = add_tensor(w, name, rows, cols);

	add_part(w, &(struct part){t, p, 0, 0, rows ? rows : 1, cols, 0, cols});
}

static void add_vocab(struct worker *w, const char *name, const struct model *m, int number)
{
	uint64_t rows = m->vocab / TP, shape[2] = {rows + PADDING, m->hidden};
	uint32_t p = add_param(w, name, shape, 2), t = add_tensor(w, name, m->vocab, m->hidden);

	add_part(w, &(struct part){t, p, RANK * rows, 0, rows, m->hidden, 0, m->hidden});
	w->padding[number] = (uint64_t)(uintptr_t)w->param[p].data + rows * m->hidden * 2;
}

static void add_attention(struct worker *w, const struct model *m, const char *layer)
{
	static const char *const of[] = {"q", "k", "v"};
	uint64_t q = HEADS / TP * HEAD_DIM, kv = HEAD_DIM, h = m->hidden, at = 0;
	uint64_t shape[2] = {q + 2 * kv, h};
	char name[128];
	uint32_t p;

	snprintf(name, sizeof(name), "%s.qkv_proj", layer);
	p = add_param(w, name, shape, 2);
	for (int i = 0; i < 3; i++) {
		uint64_t rows = i ? kv : q, first = i ? RANK * KV_HEADS / TP * kv : RANK * q;
		uint32_t t;

		snprintf(name, sizeof(name), "%s.%s_proj", layer, of[i]);
		t = add_tensor(w, name, (i ? KV_HEADS : HEADS) * (uint64_t)HEAD_DIM, h);
		add_part(w, &(struct part){t, p, first, 0, rows, h, at, h});
		at += rows * h;
	}
	snprintf(name, sizeof(name), "%s.o_proj", layer);
	shape[0] = h;
	shape[1] = q;
	p = add_param(w, name, shape, 2);
	add_part(w, &(struct part){add_tensor(w, name, h, (uint64_t)HEADS * HEAD_DIM), p, 0,
			    RANK * q, h, q, 0, q});
}

/* gate_up [E, 2 * I, H] and down [E, H, I] of a rank. */
static void add_experts(struct worker *w, const struct model *m, const char *layer)
{
	uint64_t h = m->hidden, e = m->is_ep ? m->experts / TP : m->experts;
	uint64_t i = m->is_ep ? m->moe : m->moe / TP, from = m->is_ep ? 0 : RANK * i;
	uint64_t up_shape[3] = {e, 2 * i, h}, down_shape[3] = {e, h, i};
	char name[128];
	uint32_t up, down;

	snprintf(name, sizeof(name), "%s.experts.w13", layer);
	up = add_param(w, name, up_shape, 3);
	snprintf(name, sizeof(name), "%s.experts.w2", layer);
	down = add_param(w, name, down_shape, 3);
	for (uint32_t k = 0; k < m->experts; k++) {
		uint64_t at = m->is_ep ? k - RANK * e : k;
		uint32_t t[3];

		for (int x = 0; x < 3; x++) {
			static const char *const of[] = {"gate", "up", "down"};

			snprintf(name, sizeof(name), "%s.experts.%" PRIu32 ".%s_proj", layer, k,
				of[x]);
			t[x] = x < 2 ? add_tensor(w, name, m->moe, h)
				     : add_tensor(w, name, h, m->moe);
		}
		if (at >= e)
			continue;
		add_part(w, &(struct part){t[0], up, from, 0, i, h, at * 2 * i * h, h});
		add_part(w, &(struct part){t[1], up, from, 0, i, h, (at * 2 + 1) * i * h, h});
		add_part(w, &(struct part){t[2], down, 0, from, h, i, at * h * i, i});
	}
}

static void make_model(struct worker *w, const struct model *m)
{
	static const char *const vector[] = {"input_layernorm", "post_attention_layernorm"};
	struct wb_err err = {0};
	char layer[64], name[128];

	add_vocab(w, "embed_tokens", m, 0);
	for (uint32_t l = 0; l < m->layers; l++) {
		snprintf(layer, sizeof(layer), "layers.%" PRIu32, l);
		for (int i = 0; i < 2; i++) {
			snprintf(name, sizeof(name), "%s.%s", layer, vector[i]);
			add_whole(w, name, 0, m->hidden);
			snprintf(name, sizeof(name), "%s.%c_norm", layer, "qk"[i]);
			add_whole(w, name, 0, HEAD_DIM);
		}
		add_attention(w, m, layer);
		snprintf(name, sizeof(name), "%s.gate", layer);
		add_whole(w, name, m->experts, m->hidden);
		add_experts(w, m, layer);
	}
	add_whole(w, "norm", 0, m->hidden);
	add_vocab(w, "lm_head", m, 1);
	must(wb_manifest_create(w->tensor, (uint32_t)w->n_tensor, &w->m, &err), "manifest", &err);
}

/* ---- the device ------------------------------------------------------------------------------ */

static const uint32_t no_code[4] = {0xBA55ED50u, 0x00100001u, 0, 0};

static void open_device(struct worker *w)
{
	const struct wbk_gpu_kernel *k = wbk_gpu_kernel(WBK_GPU_ROWS);
	struct wb_err err = {0};
	int rc = wb_gpu_get(NULL, &w->gpu, &err);

	if (rc) {
		printf("{\"name\": \"extract_gpu\", \"figure\": null, \"skipped\": \"%s\"}\n",
			err.msg);
		exit(77);
	}
	w->cu = w->gpu->cu;
	must(wb_gpu_enter(w->gpu, &err), "context", &err);
	driver(w, w->cu->module_load(&w->module, k->image ? k->image : no_code),
		"cuModuleLoadData");
	driver(w, w->cu->module_function(&w->move, w->module, k->name), k->name);
}

static uint8_t byte_of(size_t param)
{
	return (uint8_t)(1 + param % 251);
}

/* Memory, with a byte of its own in each parameter. */
static void make_memory(struct worker *w)
{
	driver(w, w->cu->mem_alloc(&w->memory, w->bytes), "memory of parameters");
	for (size_t i = 0; i < w->n_param; i++) {
		uint64_t end = i + 1 < w->n_param ? (uintptr_t)w->param[i + 1].data : w->bytes;
		uint64_t at = (uintptr_t)w->param[i].data;

		driver(w, w->cu->fill(w->memory + at, byte_of(i), end - at, NULL), "cuMemsetD8");
	}
	for (size_t i = 0; i < w->n_param; i++)
		w->param[i].data = (void *)(uintptr_t)(w->memory + (uintptr_t)w->param[i].data);
	for (size_t i = 0; i < w->n_tensor; i++) {
		uint64_t n = w->m->tensor[i].rows * w->m->tensor[i].cols * 2;

		w->ring_bytes = n > w->ring_bytes ? n : w->ring_bytes;
	}
	w->ring_bytes += RING_BYTES;
	driver(w, w->cu->mem_alloc(&w->ring, w->ring_bytes), "memory of tensors");
	driver(w, w->cu->stream_sync(NULL), "cuStreamSynchronize");
}

/* The loader's copies, made once: a launch of one op a part. */
static void make_copies(struct worker *w)
{
	struct wbk_op *op = calloc(w->n_part, sizeof(*op));
	void **base = calloc(w->n_part, sizeof(*base));
	uint64_t bytes = w->n_part * (sizeof(*op) + FIRSTS * sizeof(uint32_t) + sizeof(*base));

	w->first = calloc(w->n_part, FIRSTS * sizeof(*w->first));
	for (size_t i = 0; i < w->n_part; i++) {
		const struct part *p = &w->part[i];
		const struct wb_tensor *t = &w->m->tensor[p->tensor];
		uint32_t bad;

		/* A pack: the tensor is the side with strides, and the parameter the dense one. */
		op[i] = (struct wbk_op){.mem_off = (p->row * t->cols + p->col) * 2,
			.mem_stride = {0, 0, (int64_t)t->cols * 2, 2},
			.pos_stride = {0, 0, t->cols * 2, 2},
			.n = {1, 1, (uint32_t)p->rows, (uint32_t)p->cols},
			.wire_elem = 2,
			.mem_elem = 2};
		must(p->pitch == p->cols ? 0 : -1, "a part that is not dense", NULL);
		must(wbk_move_prepare(&op[i], 1, WBK_WAY_PACK, w->first + FIRSTS * i, &bad), "ops",
			NULL);
	}
	driver(w, w->cu->mem_alloc(&w->table, bytes), "memory of copies");
	w->ops = w->table;
	w->firsts = w->ops + w->n_part * sizeof(*op);
	w->bases = (w->firsts + w->n_part * FIRSTS * sizeof(uint32_t) + 7) / 8 * 8;
	driver(w, w->cu->copy_in(w->ops, op, w->n_part * sizeof(*op), NULL), "copies");
	driver(w, w->cu->copy_in(w->firsts, w->first, w->n_part * FIRSTS * 4, NULL), "copies");
	/* Where each tensor is put in the ring is the same at each load. */
	for (size_t i = 0, at = 0; i < w->n_part; i++) {
		const struct wb_tensor *t = &w->m->tensor[w->part[i].tensor];

		at = at + t->rows * t->cols * 2 > w->ring_bytes ? 0 : at;
		base[i] = (void *)(uintptr_t)(w->ring + at);
		at += (t->rows * t->cols * 2 + 255) / 256 * 256;
	}
	driver(w, w->cu->copy_in(w->bases, base, w->n_part * sizeof(*base), NULL), "copies");
	driver(w, w->cu->stream_sync(NULL), "cuStreamSynchronize");
	free(op);
	free(base);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void load_part(struct worker *w, const struct wb_probe *p, size_t i, uint64_t at)
{
	const struct wbk_gpu_kernel *k = wbk_gpu_kernel(WBK_GPU_ROWS);
	const struct part *x = &w->part[i];
	const struct wb_tensor *t = &w->m->tensor[x->tensor];
	struct wbk_move_args a = {.op = (void *)(uintptr_t)(w->ops + i * sizeof(struct wbk_op)),
		.first = (void *)(uintptr_t)(w->firsts + i * FIRSTS * 4),
		.bases = (void *)(uintptr_t)(w->bases + i * 8),
		.wire = (uint8_t *)w->param[x->param].data + x->at * 2,
		.n_op = 1,
		.way = WBK_WAY_PACK};
	void *args[] = {&a};
	uint64_t t0 = wb_now_ns(&wb_clock_real);

	must(wb_probe_fill(
		     p, x->tensor, false, (void *)(uintptr_t)(w->ring + at), t->rows * t->cols * 2),
		"wb_probe_fill", NULL);
	w->fill_ns += wb_now_ns(&wb_clock_real) - t0;
	driver(w,
		w->cu->launch(w->move,
			wbk_gpu_grid(
				WBK_GPU_ROWS, w->first[FIRSTS * i + 1], (uint32_t)w->gpu->n_sm),
			1, 1, k->threads, 1, 1, 0, NULL, args, NULL),
		"a copy of the loader");
}

/* All tensors that the rank has a part of; the ring is waited for where it begins anew. */
static void load(struct worker *w, const struct wb_probe *p)
{
	uint64_t at = 0, cols = w->param[0].shape[1];

	for (size_t i = 0; i < w->n_part; i++) {
		const struct wb_tensor *t = &w->m->tensor[w->part[i].tensor];

		if (at + t->rows * t->cols * 2 > w->ring_bytes) {
			driver(w, w->cu->stream_sync(NULL), "cuStreamSynchronize");
			at = 0;
		}
		load_part(w, p, i, at);
		at += (t->rows * t->cols * 2 + 255) / 256 * 256;
	}
	for (int i = 0; i < 2; i++)
		driver(w, w->cu->fill(w->memory + w->padding[i], 0, PADDING * cols * 2, NULL),
			"zeros");
	driver(w, w->cu->stream_sync(NULL), "cuStreamSynchronize");
}

/* ---- what is claimed ------------------------------------------------------------------------- */

/* Some bytes at the beginning, in the middle and at the end of each parameter are as before. */
static bool is_restored(struct worker *w)
{
	static uint8_t piece[4096];
	bool is_ok = true;

	for (size_t i = 0; i < w->n_param; i++) {
		uint64_t at = (uintptr_t)w->param[i].data;
		uint64_t end =
			i + 1 < w->n_param ? (uintptr_t)w->param[i + 1].data : w->memory + w->bytes;
		uint64_t n = end - at < sizeof(piece) ? end - at : sizeof(piece);
		uint64_t from[] = {at, at + (end - at - n) / 2, end - n};

		for (int k = 0; k < 3; k++) {
			driver(w, w->cu->copy_out(piece, from[k], n, NULL), "cuMemcpyDtoH");
			driver(w, w->cu->stream_sync(NULL), "cuStreamSynchronize");
			for (uint64_t b = 0; b < n; b++)
				is_ok &= piece[b] == byte_of(i);
		}
	}
	return is_ok;
}

/* Every op is the part of the model that it says, all parts are there. */
static bool is_right(const struct worker *w, const struct wb_srcmap *s)
{
	struct wb__cover *c = calloc(w->n_param, sizeof(*c));
	uint64_t copied = 0, constant = 0, want = 0, cols = w->param[0].shape[1];
	bool is_ok = s->map->n_op == w->n_part;

	wb__cover_of(s, c);
	for (size_t i = 0; i < w->n_param; i++) {
		copied += c[i].copied;
		constant += c[i].constant;
	}
	for (size_t i = 0; i < w->n_part && is_ok; i++) {
		const struct part *p = &w->part[i];
		bool is_found = false;

		want += p->rows * p->cols;
		for (uint32_t k = s->op_first[p->param]; k < s->op_first[p->param + 1]; k++) {
			const struct wb_op *o = &s->map->op[s->op_order[k]];

			is_found |= o->tensor == p->tensor && o->row == p->row &&
				    o->col == p->col && o->n_row == p->rows &&
				    o->n_col == p->cols && o->dst == p->at;
		}
		is_ok = is_found;
	}
	free(c);
	return is_ok && copied == want && constant == 2 * PADDING * cols;
}

#define PASSES 32

/* What a pass took: the loader, and the probe before it and after it. */
struct taken {
	char name[32];
	double load, before, after;
};

static double seconds(uint64_t begin, uint64_t end)
{
	return (double)(end - begin) / 1e9;
}

static void print_passes(const struct taken *t, uint32_t n)
{
	printf("\"passes\": [");
	for (uint32_t i = 0; i < n; i++)
		printf("%s{\"name\": \"%s\", \"load\": %.4f, \"before\": %.4f, \"after\": %.4f}",
			i ? ", " : "", t[i].name, t[i].load, t[i].before, t[i].after);
	printf("], ");
}

static bool run(struct worker *w, const struct model *m)
{
	struct wb_probe_opts opts = {.has_devices = true, .keep_no_snapshot = m->is_reload};
	uint64_t t0 = wb_now_ns(&wb_clock_real), t1, began, load_ns = 0, end;
	struct taken taken[PASSES];
	uint32_t n = 0;
	struct wb_srcmap *s = NULL;
	struct wb_err err = {0};
	struct wb_probe *p;
	struct wb_pass pass;
	bool is_ok;
	int rc;

	w->fill_ns = 0;
	must(wb_probe_create(w->m, w->param, (uint32_t)w->n_param, &opts, &p, &err), "create",
		&err);
	t1 = wb_now_ns(&wb_clock_real);
	began = t1;
	while ((rc = wb_probe_next_pass(p, &pass, &err)) == 1 && n < PASSES) {
		uint64_t begin = wb_now_ns(&wb_clock_real), loaded;

		load(w, p);
		loaded = wb_now_ns(&wb_clock_real);
		load_ns += loaded - begin;
		must(wb_probe_end_pass(p, NULL, 0, &err), "end", &err);
		memcpy(taken[n].name, pass.name, sizeof(pass.name));
		taken[n].load = seconds(begin, loaded);
		taken[n].before = seconds(began, begin);
		began = wb_now_ns(&wb_clock_real);
		taken[n++].after = seconds(loaded, began);
	}
	must(rc, "next", &err);
	must(wb_probe_finish(p, &s, &err), "finish", &err);
	wb_probe_destroy(p);
	end = wb_now_ns(&wb_clock_real);
	is_ok = is_right(w, s) && (m->is_reload || is_restored(w));
	printf("{\"name\": \"extract_gpu\", \"device\": \"%s\", ", w->gpu->name);
	print_passes(taken, n);
	printf("\"seconds\": %.4f, "
	       "\"load_seconds\": %.4f, \"fill_seconds\": %.4f, \"own_seconds\": %.4f, "
	       "\"create_seconds\": %.4f, \"finish_seconds\": %.4f, \"bytes\": %" PRIu64
	       ", \"to_host_bytes\": %" PRIu64 ", \"calls\": %" PRIu32
	       ", \"parameters\": %zu, \"tensors\": %zu, \"ops\": %" PRIu32
	       ", \"records\": %" PRIu64 ", \"snapshot\": %s, \"right\": %s}\n",
		seconds(t0, end), seconds(0, load_ns), seconds(0, w->fill_ns),
		seconds(t0 + load_ns, end), seconds(t0, t1), seconds(began, end), w->bytes,
		s->stats.dev_out_bytes, s->stats.n_pass, w->n_param, w->n_tensor, s->map->n_op,
		s->stats.n_record, m->is_reload ? "false" : "true", is_ok ? "true" : "false");
	fflush(stdout);
	wb_srcmap_destroy(s);
	return is_ok;
}

int main(int argc, char **argv)
{
	struct model m = {48, 128, 2048, 768, 151936, false, false};
	struct worker w = {.gpu = NULL};
	uint32_t n = 1;
	bool is_ok = true;

	for (int i = 1; i < argc; i++) {
		uint32_t *to = !strcmp(argv[i], "--layers")    ? &m.layers
			       : !strcmp(argv[i], "--experts") ? &m.experts
			       : !strcmp(argv[i], "--hidden")  ? &m.hidden
			       : !strcmp(argv[i], "--moe")     ? &m.moe
			       : !strcmp(argv[i], "--vocab")   ? &m.vocab
			       : !strcmp(argv[i], "--n")       ? &n
							       : NULL;

		m.is_ep |= !strcmp(argv[i], "--ep");
		m.is_reload |= !strcmp(argv[i], "--reload");
		if (to && i + 1 < argc)
			*to = (uint32_t)strtoul(argv[++i], NULL, 10);
	}
	open_device(&w);
	make_model(&w, &m);
	make_memory(&w);
	make_copies(&w);
	for (uint32_t i = 0; i < n; i++)
		is_ok &= run(&w, &m);
	wb_gpu_leave(w.gpu);
	return is_ok ? 0 : 1;
}
