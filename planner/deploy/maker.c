/* SPDX-License-Identifier: Apache-2.0 */
/* Build the source map of a worker, parameter by parameter. */
#include "base/base.h"
#include "base/mem.h"
#include "planner/deploy/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void wb__in(struct wb__maker *k, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(k->prefix, sizeof(k->prefix), fmt, ap);
	va_end(ap);
}

uint32_t wb__slot(const struct wb__maker *k, uint32_t slot)
{
	return k->t->layer[k->layer][slot];
}

const struct wb_tensor *wb__tensor(const struct wb__maker *k, uint32_t tensor)
{
	return &k->t->m->tensor[tensor];
}

struct wb__part wb__param(struct wb__maker *k, const char *name, enum wb_dtype dtype, uint32_t ndim,
	const uint64_t shape[3])
{
	struct wb__part part = {k->map.n_param, 0, shape[ndim - 1], false};
	char full[WB_NAME_MAX];
	struct wb_param *p;

	if (!k->rc)
		k->rc = wb_grow(&k->map.param, &k->cap_param, k->map.n_param + 1, WB_PARAMS_MAX,
			sizeof(*p));
	if (k->rc)
		return part;
	snprintf(full, sizeof(full), "%s%s", k->prefix, name);
	p = &k->map.param[k->map.n_param];
	*p = (struct wb_param){.name = wb_strdup(full), .dtype = dtype, .ndim = ndim, .span = 1};
	for (uint32_t d = ndim; d-- > 0;) {
		p->shape[d] = shape[d];
		p->stride[d] = (int64_t)p->span;
		p->span *= shape[d];
	}
	k->rc = p->name ? 0 : -ENOMEM;
	k->map.n_param += p->name != NULL;
	return part;
}

struct wb__part wb__matrix(struct wb__maker *k, const char *name, uint64_t rows, uint64_t cols)
{
	return wb__param(k, name, k->model->dtype, 2, (uint64_t[3]){rows, cols, 0});
}

struct wb__part wb__rows_at(struct wb__part p, uint64_t row)
{
	p.at += row * p.pitch;
	return p;
}

static void add_op(struct wb__maker *k, struct wb_op op)
{
	if (!k->rc)
		k->rc = wb_grow(
			&k->map.op, &k->cap_op, k->map.n_op + 1, WB_OPS_MAX, sizeof(*k->map.op));
	if (!k->rc)
		k->map.op[k->map.n_op++] = op;
}

void wb__copy(struct wb__maker *k, struct wb__part p, uint32_t tensor, struct wb__box b)
{
	int64_t pitch = (int64_t)p.pitch;

	if (!b.n_row || !b.n_col)
		return;
	add_op(k, (struct wb_op){.param = p.param,
			  .tensor = tensor,
			  .dst = p.at,
			  .row = b.row,
			  .col = b.col,
			  .n_row = (uint32_t)b.n_row,
			  .n_col = (uint32_t)b.n_col,
			  .row_step = 1,
			  .col_step = 1,
			  .dst_row_stride = p.is_transposed ? 1 : pitch,
			  .dst_col_stride = p.is_transposed ? pitch : 1,
			  .repeat = 1});
}

void wb__rows(struct wb__maker *k, struct wb__part p, uint32_t tensor, uint64_t i, uint64_t n)
{
	const struct wb_tensor *t = wb__tensor(k, tensor);
	uint64_t part = t->rows / n;

	wb__copy(k, p, tensor, (struct wb__box){i * part, part, 0, t->cols});
}

void wb__columns(struct wb__maker *k, struct wb__part p, uint32_t tensor, uint64_t i, uint64_t n)
{
	const struct wb_tensor *t = wb__tensor(k, tensor);
	uint64_t part = t->cols / n;

	wb__copy(k, p, tensor, (struct wb__box){0, t->rows, i * part, part});
}

void wb__row_shard(struct wb__maker *k, const char *name, uint32_t tensor, uint64_t i, uint64_t n)
{
	const struct wb_tensor *t = wb__tensor(k, tensor);
	uint64_t shape[3] = {t->shape[0] / n, t->shape[1], 0};

	wb__rows(k, wb__param(k, name, t->dtype, t->ndim, shape), tensor, i, n);
}

void wb__column_shard(
	struct wb__maker *k, const char *name, uint32_t tensor, uint64_t i, uint64_t n)
{
	const struct wb_tensor *t = wb__tensor(k, tensor);

	wb__columns(k, wb__matrix(k, name, t->rows, t->cols / n), tensor, i, n);
}

void wb__whole(struct wb__maker *k, const char *name, uint32_t tensor)
{
	wb__row_shard(k, name, tensor, 0, 1);
}

void wb__vocab_shard(struct wb__maker *k, const char *name, uint32_t tensor, uint64_t i, uint64_t n,
	uint64_t multiple)
{
	const struct wb_tensor *t = wb__tensor(k, tensor);
	uint64_t part = wb_align_up(t->rows, multiple) / n, from = WB_MIN(i * part, t->rows);
	uint64_t real = WB_MIN(part, t->rows - from);
	/* A probe of a loader cannot tell a parameter of only zeros from one that is not
	 * written. */
	enum wb_region_kind kind = real ? WB_REGION_CONSTANT : WB_REGION_UNWRITTEN;
	struct wb__part p = wb__matrix(k, name, part, t->cols), pad = wb__rows_at(p, real);

	wb__copy(k, p, tensor, (struct wb__box){from, real, 0, t->cols});
	if (real == part || k->rc)
		return;
	k->rc = wb_grow(&k->map.region, &k->cap_region, k->map.n_region + 1, WB_OPS_MAX,
		sizeof(*k->map.region));
	if (!k->rc)
		k->map.region[k->map.n_region++] = (struct wb_region){.param = p.param,
			.kind = kind,
			.dst = pad.at,
			.row_stride = t->cols,
			.n_row = (uint32_t)(part - real),
			.n_col = (uint32_t)t->cols};
}

void wb__gate_up(struct wb__maker *k, struct wb__part p, uint32_t mlp, uint64_t i, uint64_t n)
{
	wb__rows(k, p, mlp, i, n);
	wb__rows(k, wb__rows_at(p, wb__tensor(k, mlp)->rows / n), mlp + 1, i, n);
}

int wb__maker_done(struct wb__maker *k, struct wb_map **out, struct wb_err *err)
{
	int rc = k->rc;

	if (rc < 0)
		wb_err_set(err, rc, "the map of a worker: %s",
			rc == -E2BIG ? "too many parameters or ops" : wb_strerror(rc));
	else
		rc = wb_map_create(k->t->m, &k->map, out, err);
	if (rc < 0) {
		for (uint32_t i = 0; i < k->map.n_param; i++)
			wb_free(k->map.param[i].name);
		wb_free(k->map.param);
		wb_free(k->map.op);
		wb_free(k->map.region);
	}
	memset(k, 0, sizeof(*k));
	return rc;
}
