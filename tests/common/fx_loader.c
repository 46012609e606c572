/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_loader.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "kernels/gpu.h"
#include "tests/common/fx_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum { HOST, DEVICE, ALL } where;

static const struct wbcu *driver(void)
{
	static const struct wbcu *cu; /* with a context for as long as the process lives */

	if (!cu)
		cu = fx_cuda_driver(0);
	return cu;
}

bool fxl_here(void)
{
	if (!fx_cuda_is_device())
		return true;
	if (!wbk_gpu_kernel(WBK_GPU_FILL)->image) {
		printf("built without a CUDA compiler: make CUDA=yes\n");
		return false;
	}
	return fx_cuda_here();
}

void fxl_use_device(void)
{
	where = DEVICE;
}

void fxl_use_all(void)
{
	where = ALL;
}

void fxl_use_host(void)
{
	where = HOST;
}

uint64_t fxl_numel(const uint64_t *shape, uint32_t ndim)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < ndim; i++)
		n *= shape[i];
	return n;
}

uint32_t fxl_tensor(
	struct sim *s, enum wb_dtype t, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c)
{
	struct wb_tensor *k = &s->tensor[s->n_tensor];
	char name[32];

	snprintf(name, sizeof(name), "t%u", s->n_tensor);
	*k = (struct wb_tensor){.name = strdup(name), .dtype = t, .ndim = ndim, .shape = {a, b, c}};
	return s->n_tensor++;
}

/* A parameter with dense strides; every element unwritten. */
struct sim_param *fxl_param(
	struct sim *s, enum wb_dtype t, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c)
{
	struct sim_param *p = &s->param[s->n_param];
	char name[32];
	int64_t stride = 1;

	snprintf(name, sizeof(name), "p%u", s->n_param++);
	p->p = (struct wb_probe_param){
		.name = strdup(name), .dtype = t, .ndim = ndim, .shape = {a, b, c}};
	for (uint32_t d = ndim; d-- > 0;) {
		p->p.stride[d] = stride;
		stride *= (int64_t)p->p.shape[d];
	}
	p->n = fxl_numel(p->p.shape, ndim);
	p->src = malloc((p->n + 1) * sizeof(*p->src));
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = NONE;
	return p;
}

int64_t fxl_src(uint32_t tensor, uint64_t elem)
{
	return (int64_t)((uint64_t)tensor << 40 | elem);
}

/* Offset in elements of logical element @i. */
static uint64_t place(const struct wb_probe_param *p, uint64_t i)
{
	uint64_t at = 0;

	for (uint32_t d = p->ndim; d-- > 0;) {
		at += i % p->shape[d] * (uint64_t)p->stride[d];
		i /= p->shape[d];
	}
	return at;
}

static size_t mem_bytes(const struct sim_param *p)
{
	return (p->span + 2) * wb_dtype_bytes(p->p.dtype);
}

void fxl_pull(const struct sim *s)
{
	for (uint32_t i = 0; i < s->n_param; i++)
		if (s->param[i].dev)
			fx_cuda_read(s->param[i].mem, s->param[i].dev, mem_bytes(&s->param[i]));
}

static void push(const struct sim *s)
{
	for (uint32_t i = 0; i < s->n_param; i++)
		if (s->param[i].dev)
			fx_cuda_write(s->param[i].dev, s->param[i].mem, mem_bytes(&s->param[i]));
}

/* Where the host has the first element of a parameter, which may be a view of another. */
static uint8_t *host_of(const struct sim *s, const struct sim_param *p)
{
	uint64_t at = (uintptr_t)p->p.data;

	for (uint32_t i = 0; i < s->n_param; i++) {
		const struct sim_param *o = &s->param[i];

		if (o->dev && at >= o->dev && at < o->dev + mem_bytes(o))
			return o->mem + (at - o->dev);
	}
	return p->p.data;
}

static void to_device(struct sim_param *p, int device)
{
	static void *context[2];

	if (!context[device])
		ck_assert_int_eq(driver()->context_retain(&context[device], device), 0);
	ck_assert_int_eq(driver()->context_push(context[device]), 0);
	ck_assert_int_eq(driver()->mem_alloc(&p->dev, mem_bytes(p)), 0);
	ck_assert_int_eq(driver()->context_pop(&(void *){NULL}), 0);
	fx_cuda_write(p->dev, p->mem, mem_bytes(p));
	p->p.data = (void *)(uintptr_t)(p->dev + wb_dtype_bytes(p->p.dtype));
}

static void free_memory(struct sim_param *p)
{
	free(p->mem);
	free(p->before);
	if (p->dev)
		driver()->mem_free(p->dev);
	p->mem = p->before = NULL;
	p->dev = 0;
}

void fxl_view(struct sim *s, uint32_t i, uint32_t owner, uint64_t offset)
{
	free_memory(&s->param[i]);
	s->param[i].p.data = (uint8_t *)s->param[owner].p.data + offset;
}

void fxl_allocate(struct sim *s)
{
	s->opts.has_devices = where != HOST;
	for (uint32_t i = 0; i < s->n_param; i++) {
		struct sim_param *p = &s->param[i];
		size_t e = wb_dtype_bytes(p->p.dtype), bytes;

		if (p->mem || p->p.data)
			continue;
		p->span = p->n ? place(&p->p, p->n - 1) + 1 : 0;
		bytes = (p->span + 2) * e;
		p->mem = malloc(bytes);
		for (size_t k = 0; k < bytes; k++)
			p->mem[k] = (uint8_t)wb_rng_u64(&s->rng);
		p->before = malloc(bytes);
		memcpy(p->before, p->mem, bytes);
		p->p.data = p->mem + e;
		if (where == DEVICE || (where == ALL && i % 3 < 2))
			to_device(p, where == ALL && i % 3 ? fx_cuda_second() : 0);
	}
}

static double to_number(enum wb_dtype t, const uint8_t *p)
{
	uint16_t h;
	uint32_t w;
	float f;

	switch (t) {
	case WB_BF16:
		memcpy(&h, p, 2);
		w = (uint32_t)h << 16;
		memcpy(&f, &w, 4);
		return f;
	case WB_F32:
		memcpy(&f, p, 4);
		return f;
	case WB_F16:
		wbk_cast_fwd(WBK_F16_TO_F32, p, &f, 1);
		return f;
	default:
		memcpy(&w, p, 1);
		return (uint8_t)w;
	}
}

void fxl_number(enum wb_dtype t, double v, uint8_t *p)
{
	float f = (float)v;

	if (t == WB_BF16)
		wbk_cast_fwd(WBK_F32_TO_BF16, &f, p, 1);
	else if (t == WB_F16)
		wbk_cast_fwd(WBK_F32_TO_F16, &f, p, 1);
	else if (t == WB_F32)
		memcpy(p, &f, 4);
	else
		*p = (uint8_t)v;
}

/* What the "engine" does with one element. */
void fxl_elem(const struct sim *s, const struct sim_param *p, uint64_t i, int64_t src,
	uint8_t *const *data)
{
	size_t e = wb_dtype_bytes(p->p.dtype);
	uint8_t *to = host_of(s, p) + place(&p->p, i) * e;
	const struct wb_tensor *t;
	const uint8_t *from;

	if (src == NONE)
		return;
	if (src == ZERO) {
		memset(to, 0, e);
		return;
	}
	if (src == ONE_HALF) {
		fxl_number(p->p.dtype, 1.5, to);
		return;
	}
	if (src == NINETY) {
		*to = 90;
		return;
	}
	if (src == FIRST || src == CUT) {
		double v = to_number(s->tensor[0].dtype, data[0]);

		if (src == CUT || !s->calls)
			fxl_number(p->p.dtype, src == CUT && v != 1.5 && v != -5 ? 0 : v, to);
		return;
	}
	if (src == ODD) {
		fxl_number(p->p.dtype, to_number(s->tensor[0].dtype, data[0]) + 1, to);
		return;
	}
	t = &s->tensor[src >> 40];
	from = data[src >> 40] + (src & ((INT64_C(1) << 40) - 1)) * wb_dtype_bytes(t->dtype);
	if (t->dtype == p->p.dtype)
		memcpy(to, from, e);
	else
		fxl_number(p->p.dtype, to_number(t->dtype, from), to);
}

static uint8_t *filled(const struct sim *s, const struct wb_probe *p, uint32_t t)
{
	const struct wb_tensor *k = &s->m->tensor[t];
	size_t e = wb_dtype_bytes(k->dtype);
	uint8_t *out = malloc(k->rows * k->cols * e), *small;
	enum wb_fill_kind kind = wb_probe_fill_kind(p, t);
	uint64_t rows = kind == WB_FILL_COLUMNS || kind == WB_FILL_ONE ? 1 : k->rows;
	uint64_t cols = kind == WB_FILL_ROWS || kind == WB_FILL_ONE ? 1 : k->cols;

	if (!s->expand) {
		ck_assert_int_eq(wb_probe_fill(p, t, false, out, k->rows * k->cols * e), 0);
		return out;
	}
	small = malloc(rows * cols * e);
	ck_assert_int_eq(wb_probe_fill(p, t, true, small, rows * cols * e), 0);
	for (uint64_t r = 0; r < k->rows; r++)
		for (uint64_t c = 0; c < k->cols; c++)
			memcpy(out + (r * k->cols + c) * e,
				small + ((rows > 1 ? r : 0) * cols + (cols > 1 ? c : 0)) * e, e);
	free(small);
	return out;
}

void fxl_load(struct sim *s, const struct wb_probe *p, const struct wb_pass *pass)
{
	uint8_t *data[64];

	for (uint32_t t = 0; t < s->n_tensor; t++)
		data[t] = filled(s, p, t);
	fxl_pull(s);
	for (uint32_t i = 0; i < s->n_param; i++) {
		struct sim_param *q = &s->param[i];

		for (uint64_t k = 0; k < q->n; k++) {
			uint64_t from = k;

			if (s->flaky_from && pass->index >= s->flaky_from && q->n > 1)
				from = (k + pass->index) % q->n;
			fxl_elem(s, q, k, q->src[from], data);
		}
	}
	push(s);
	for (uint32_t t = 0; t < s->n_tensor; t++)
		free(data[t]);
	s->calls++;
}

int fxl_manifest(struct sim *s, struct wb_err *err)
{
	return s->m ? 0 : wb_manifest_create(s->tensor, s->n_tensor, &s->m, err);
}

int fxl_extract(struct sim *s, struct wb_srcmap **out, char *faults, struct wb_err *err)
{
	struct wb_probe_param param[64];
	struct wb_probe *p;
	struct wb_pass pass;
	int rc = fxl_manifest(s, err);

	ck_assert_msg(!rc, "%s", err->msg);
	fxl_allocate(s);
	for (uint32_t i = 0; i < s->n_param; i++)
		param[i] = s->param[i].p;
	rc = wb_probe_create(s->m, param, s->n_param, &s->opts, &p, err);
	if (rc)
		return rc;
	s->calls = 0;
	while ((rc = wb_probe_next_pass(p, &pass, err)) == 1) {
		fxl_load(s, p, &pass);
		if (s->moves && pass.index == 1)
			param[0].data = s->moved;
		rc = wb_probe_end_pass(p, s->moves ? param : NULL, s->n_param, err);
		ck_assert_msg(!rc, "%s", err->msg);
	}
	ck_assert_msg(!rc, "%s", err->msg);
	rc = wb_probe_finish(p, out, err);
	if (faults)
		snprintf(faults, 4096, "%s%s", wb_probe_faults(p), wb_probe_notes(p));
	wb_probe_destroy(p);
	return rc;
}

/* Parameters and what lies around and between them are as before. */
void fxl_check_intact(const struct sim *s)
{
	fxl_pull(s);
	for (uint32_t i = 0; i < s->n_param; i++) {
		const struct sim_param *p = &s->param[i];

		if (p->mem)
			ck_assert_msg(!memcmp(p->mem, p->before,
					      (p->span + 2) * wb_dtype_bytes(p->p.dtype)),
				"parameter %u changed", i);
	}
}

/* The table a map stands for, by memory offset; walked here element by element. */
void fxl_check_map(const struct sim *s, const struct wb_srcmap *map)
{
	for (uint32_t i = 0; i < s->n_param; i++) {
		const struct sim_param *p = &s->param[i];
		int64_t *got = malloc((p->span + 1) * sizeof(*got));

		if (!p->mem) {
			free(got);
			continue; /* a view */
		}
		for (uint64_t k = 0; k < p->span; k++)
			got[k] = INT64_MIN;
		for (uint32_t k = 0; k < map->map->n_op; k++) {
			const struct wb_op *o = &map->map->op[k];
			const struct wb_tensor *t = &s->m->tensor[o->tensor];

			if (o->param != i)
				continue;
			for (uint32_t r = 0; r < o->n_row; r++)
				for (uint32_t c = 0; c < o->n_col; c++)
					for (uint32_t n = 0; n < o->repeat; n++) {
						uint64_t at = o->dst +
							      (uint64_t)(r * o->dst_row_stride +
									 c * o->dst_col_stride +
									 n * o->dst_repeat_stride);

						ck_assert_uint_lt(at, p->span);
						ck_assert(got[at] == INT64_MIN);
						got[at] = fxl_src(o->tensor,
							(o->row + (uint64_t)r * o->row_step) *
									t->cols +
								o->col + (uint64_t)c * o->col_step);
					}
		}
		for (uint32_t k = 0; k < map->map->n_region; k++) {
			const struct wb_region *r = &map->map->region[k];

			if (r->param != i)
				continue;
			for (uint32_t y = 0; y < r->n_row; y++)
				for (uint32_t x = 0; x < r->n_col; x++) {
					uint64_t at = r->dst + y * r->row_stride + x;

					ck_assert_uint_lt(at, p->span);
					ck_assert(got[at] == INT64_MIN);
					got[at] = r->kind == WB_REGION_UNWRITTEN ? NONE
						  : r->value == 0                ? ZERO
						  : r->value == 90               ? NINETY
										 : ONE_HALF;
				}
		}
		for (uint64_t k = 0; k < p->n; k++)
			ck_assert_msg(got[place(&p->p, k)] == p->src[k],
				"param %u element %" PRIu64 ": %" PRIx64 " for %" PRIx64, i, k,
				(uint64_t)got[place(&p->p, k)], (uint64_t)p->src[k]);
		free(got);
	}
}

void fxl_clear(struct sim *s)
{
	for (uint32_t i = 0; i < s->n_tensor; i++)
		free(s->tensor[i].name);
	for (uint32_t i = 0; i < s->n_param; i++) {
		free((void *)(uintptr_t)s->param[i].p.name);
		free(s->param[i].src);
		free_memory(&s->param[i]);
	}
	wb_manifest_destroy(s->m);
	*s = (struct sim){.rng = s->rng};
}

void fxl_case_plain(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 40, 24, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 40, 24, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = fxl_src(t, i);
}

void fxl_case_zero_padding(struct sim *s)
{
	uint32_t t = fxl_tensor(s, WB_BF16, 2, 8, 10, 0);
	struct sim_param *p = fxl_param(s, WB_BF16, 2, 11, 12, 0);

	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = i / 12 < 8 && i % 12 < 10 ? fxl_src(t, i / 12 * 10 + i % 12) : ZERO;
	p = fxl_param(s, WB_BF16, 1, 5, 0, 0); /* a bias of zeros, another of 1.5 */
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = ZERO;
	p = fxl_param(s, WB_F32, 1, 5, 0, 0);
	for (uint64_t i = 0; i < p->n; i++)
		p->src[i] = ONE_HALF;
}
