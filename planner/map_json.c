/* SPDX-License-Identifier: Apache-2.0 */
/* Write a source map as JSON text. */
#include "base/buf.h"
#include "planner/map.h"

#include <inttypes.h>

static void param_json(struct wb_buf *b, const struct wb_param *p)
{
	wb_buf_printf(b, "{\"name\":");
	wb_buf_json_str(b, p->name);
	wb_buf_printf(b, ",\"dtype\":\"%s\",\"shape\":[", wb_dtype_name(p->dtype));
	for (uint32_t d = 0; d < p->ndim; d++)
		wb_buf_printf(b, "%s%" PRIu64, d ? "," : "", p->shape[d]);
	wb_buf_printf(b, "],\"stride\":[");
	for (uint32_t d = 0; d < p->ndim; d++)
		wb_buf_printf(b, "%s%" PRId64, d ? "," : "", p->stride[d]);
	wb_buf_printf(b, "],\"span\":%" PRIu64 "}", p->span);
}

static void op_json(struct wb_buf *b, const struct wb_manifest *m, const struct wb_map *map,
	const struct wb_op *o)
{
	wb_buf_printf(b, "{\"param\":");
	wb_buf_json_str(b, map->param[o->param].name);
	wb_buf_printf(b, ",\"tensor\":");
	wb_buf_json_str(b, m->tensor[o->tensor].name);
	wb_buf_printf(b,
		",\"row\":%" PRIu64 ",\"col\":%" PRIu64 ",\"n_row\":%" PRIu32 ",\"n_col\":%" PRIu32
		",\"row_step\":%" PRIu32 ",\"col_step\":%" PRIu32 ",\"dst\":%" PRIu64
		",\"dst_row_stride\":%" PRId64 ",\"dst_col_stride\":%" PRId64 ",\"repeat\":%" PRIu32
		",\"dst_repeat_stride\":%" PRId64 "}",
		o->row, o->col, o->n_row, o->n_col, o->row_step, o->col_step, o->dst,
		o->dst_row_stride, o->dst_col_stride, o->repeat, o->dst_repeat_stride);
}

static void region_json(struct wb_buf *b, const struct wb_map *map, const struct wb_region *r)
{
	wb_buf_printf(b, "{\"param\":");
	wb_buf_json_str(b, map->param[r->param].name);
	wb_buf_printf(b,
		",\"kind\":\"%s\",\"dst\":%" PRIu64 ",\"row_stride\":%" PRIu64 ",\"n_row\":%" PRIu32
		",\"n_col\":%" PRIu32 ",\"value\":%" PRIu64 "}",
		r->kind == WB_REGION_CONSTANT ? "constant" : "unwritten", r->dst, r->row_stride,
		r->n_row, r->n_col, r->value);
}

int wb_map_json(const struct wb_manifest *m, const struct wb_map *map, struct wb_buf *out)
{
	char text[WB_DIGEST_TEXT];

	wb_buf_printf(out, "{\"digest\":\"%s\",", wb_digest_text(map->digest, text));
	wb_buf_printf(
		out, "\"manifest\":\"%s\",\n\"params\":[", wb_digest_text(map->manifest, text));
	for (uint32_t i = 0; i < map->n_param; i++) {
		wb_buf_printf(out, i ? ",\n" : "\n");
		param_json(out, &map->param[i]);
	}
	wb_buf_printf(out, "],\n\"ops\":[");
	for (uint32_t i = 0; i < map->n_op; i++) {
		wb_buf_printf(out, i ? ",\n" : "\n");
		op_json(out, m, map, &map->op[i]);
	}
	wb_buf_printf(out, "],\n\"regions\":[");
	for (uint32_t i = 0; i < map->n_region; i++) {
		wb_buf_printf(out, i ? ",\n" : "\n");
		region_json(out, map, &map->region[i]);
	}
	wb_buf_printf(out, "]}\n");
	return out->rc;
}
