/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_plan.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fixture: %s\n", what);
	abort();
}

struct wb_tensor fx_tensor(const char *name, enum wb_dtype t, uint64_t rows, uint64_t cols)
{
	struct wb_tensor x = {.dtype = t, .ndim = rows ? 2 : 1};

	memcpy(&x.name, &name, sizeof(name)); /* wb_manifest_create() copies it */
	x.shape[0] = rows ? rows : cols;
	x.shape[1] = cols;
	return x;
}

uint32_t fx_param(struct fx_map *f, const char *name, enum wb_dtype t, uint64_t rows, uint64_t cols)
{
	struct wb_param *p;

	must(!wb_grow(&f->map.param, &f->cap_param, f->map.n_param + 1, WB_PARAMS_MAX, sizeof(*p)),
		"memory");
	p = &f->map.param[f->map.n_param];
	memset(p, 0, sizeof(*p));
	p->name = wb_strdup(name);
	must(p->name, "memory");
	p->dtype = t;
	p->ndim = rows ? 2 : 1;
	p->shape[0] = rows ? rows : cols;
	p->shape[1] = cols;
	p->stride[0] = rows ? (int64_t)cols : 1;
	p->stride[1] = 1;
	p->span = (rows ? rows : 1) * cols;
	return f->map.n_param++;
}

void fx_op(struct fx_map *f, struct wb_op op)
{
	must(!wb_grow(&f->map.op, &f->cap_op, f->map.n_op + 1, WB_OPS_MAX, sizeof(op)), "memory");
	f->map.op[f->map.n_op++] = op;
}

void fx_region(struct fx_map *f, struct wb_region r)
{
	must(!wb_grow(&f->map.region, &f->cap_region, f->map.n_region + 1, WB_OPS_MAX, sizeof(r)),
		"memory");
	f->map.region[f->map.n_region++] = r;
}

void fx_copy(struct fx_map *f, uint32_t param, const char *tensor, struct fx_box b)
{
	const struct wb_param *p = &f->map.param[param];
	uint64_t pitch = p->ndim == 2 ? p->shape[1] : 0;
	uint32_t t = 0;

	while (t < f->m->n && strcmp(f->m->tensor[t].name, tensor) != 0)
		t++;
	must(t < f->m->n, tensor);
	fx_op(f, (struct wb_op){.param = param,
			 .tensor = t,
			 .row = b.row,
			 .col = b.col,
			 .n_row = (uint32_t)b.n_row,
			 .n_col = (uint32_t)b.n_col,
			 .row_step = 1,
			 .col_step = 1,
			 .repeat = 1,
			 .dst = b.dst_row * pitch + b.dst_col,
			 .dst_row_stride = (int64_t)pitch,
			 .dst_col_stride = 1});
}

struct wb_map *fx_map_done(struct fx_map *f)
{
	struct wb_err err = {0};
	struct wb_map *out = NULL;

	wb_map_create(f->m, &f->map, &out, &err);
	must(out, err.msg);
	memset(f, 0, sizeof(*f));
	return out;
}

int fx_packed(const struct wb_plan *p, struct wb_buf *b, struct wb_plan_slice **slice)
{
	struct wb_err err = {0};
	int n;

	wb_buf_init(b, 1u << 30);
	must(!wb_plan_pack(p, b), "pack a plan");
	n = wb_plan_slices(b->data, b->len, slice, &err);
	must(n > 1, err.msg);
	return n;
}

struct wb_plan *fx_part(const struct wb_buf *b, const struct wb_plan_slice *slice, uint32_t domain)
{
	const struct wb_plan_slice *s = &slice[1 + domain];
	struct wb_plan_piece head = {b->data, slice[0].bytes}, part = {b->data + s->at, s->bytes};
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	must(!wb_plan_unpack(head, part, UINT64_MAX, &p, &err), err.msg);
	return p;
}

void fx_golden(const char *name, const void *data, size_t len)
{
	const char *top = getenv("WB_TOP");
	char path[512];
	uint8_t *have = NULL;
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/golden/%s", top ? top : ".", name);
	if (getenv("WB_GOLDEN_UPDATE")) {
		f = fopen(path, "wb");
		must(f && fwrite(data, 1, len, f) == len && !fclose(f), path);
		return;
	}
	f = fopen(path, "rb");
	must(f, path);
	have = malloc(len + 1);
	must(have, "memory");
	n = fread(have, 1, len + 1, f);
	fclose(f);
	must(n == len && !memcmp(have, data, len), path);
	free(have);
}
