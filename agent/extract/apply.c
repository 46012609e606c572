/* SPDX-License-Identifier: Apache-2.0 */
/* Builds parameters from checkpoint tensors, by a source map. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "extract/srcmap.h"
#include "kernels/kernels.h"

#include <errno.h>
#include <string.h>

#define TILE_ELEMS (64u << 10)

struct apply {
	const struct wb_srcmap *s;
	const void *const *tensor;
	void *const *param;
	uint8_t *wire; /* owned; TILE_ELEMS of 4 bytes */
};

/* Rows [row, +rows), columns [col, +cols) of an op's lattice. */
struct tile {
	uint32_t row, rows, col, cols;
};

static void take_row(const uint8_t *src, uint64_t step, size_t elem, uint8_t *out, uint32_t n)
{
	if (step == 1) {
		memcpy(out, src, n * elem);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		memcpy(out + i * elem, src + i * step * elem, elem);
}

/* Write the tile as it would be on the wire, then assemble it as a transfer does. */
static void apply_tile(const struct apply *a, const struct wb_op *o, const struct tile *t)
{
	const struct wb_tensor *k = &a->s->manifest->tensor[o->tensor];
	const struct wb_param *p = &a->s->map->param[o->param];
	size_t elem = wb_dtype_bytes(k->dtype), mem = wb_dtype_bytes(p->dtype);
	bool is_exact;
	struct wbk_box box = {
		.n_row = t->rows,
		.n_col = t->cols,
		.repeat = o->repeat,
		.mem_off = (o->dst + (uint64_t)(t->row * o->dst_row_stride +
						t->col * o->dst_col_stride)) *
			   mem,
		.row_stride = o->dst_row_stride * (int64_t)mem,
		.col_stride = o->dst_col_stride * (int64_t)mem,
		.repeat_stride = o->dst_repeat_stride * (int64_t)mem,
		.wire_elem = (uint8_t)elem,
		.mem_elem = (uint8_t)mem,
		.cast = (uint8_t)wb_cast_between(k->dtype, p->dtype, &is_exact),
	};

	for (uint32_t r = 0; r < t->rows; r++) {
		uint64_t row = o->row + (uint64_t)(t->row + r) * o->row_step;
		uint64_t col = o->col + (uint64_t)t->col * o->col_step;

		take_row((const uint8_t *)a->tensor[o->tensor] + (row * k->cols + col) * elem,
			o->col_step, elem, a->wire + (size_t)r * t->cols * elem, t->cols);
	}
	wbk_assemble(&a->param[o->param], &box, 1, a->wire, NULL, NULL);
}

static void apply_op(const struct apply *a, const struct wb_op *o)
{
	uint32_t cols = WB_MIN(o->n_col, TILE_ELEMS), rows = WB_MAX(TILE_ELEMS / cols, 1);

	for (uint32_t r = 0; r < o->n_row; r += WB_MIN(rows, o->n_row - r))
		for (uint32_t c = 0; c < o->n_col; c += WB_MIN(cols, o->n_col - c))
			apply_tile(a, o,
				&(struct tile){r, WB_MIN(rows, o->n_row - r), c,
					WB_MIN(cols, o->n_col - c)});
}

static void apply_region(const struct wb_map *map, const struct wb_region *r, uint8_t *base)
{
	size_t mem = wb_dtype_bytes(map->param[r->param].dtype);

	for (uint32_t k = 0; k < r->n_row; k++)
		for (uint32_t c = 0; c < r->n_col; c++)
			memcpy(base + (r->dst + k * r->row_stride + c) * mem, &r->value, mem);
}

void wb_srcmap_constants(const struct wb_srcmap *s, void *const *param)
{
	const struct wb_map *map = s->map;

	for (uint32_t i = 0; i < map->n_region; i++) {
		const struct wb_region *r = &map->region[i];

		if (r->kind == WB_REGION_CONSTANT && param[r->param])
			apply_region(map, r, param[r->param]);
	}
}

int wb_srcmap_apply(const struct wb_srcmap *s, const void *const *tensor, void *const *param,
	struct wb_err *err)
{
	struct apply a = {s, tensor, param, NULL};
	const struct wb_map *map = s->map;

	for (uint32_t i = 0; i < map->n_op; i++)
		if (param[map->op[i].param] && !tensor[map->op[i].tensor])
			return wb_err_set(err, -EINVAL, "parameter %s needs tensor %s",
				map->param[map->op[i].param].name,
				s->manifest->tensor[map->op[i].tensor].name);
	a.wire = wb_alloc(TILE_ELEMS * 4);
	if (!a.wire)
		return wb_err_set(err, -ENOMEM, "room for a tile");
	for (uint32_t i = 0; i < map->n_op; i++)
		if (param[map->op[i].param])
			apply_op(&a, &map->op[i]);
	wb_srcmap_constants(s, param);
	wb_free(a.wire);
	return 0;
}
