/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a source map, for people. */
#include "base/base.h"
#include "base/buf.h"
#include "base/mem.h"
#include "extract/cover.h"
#include "extract/srcmap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SOURCES_SHOWN 4

static void put_shape(struct wb_buf *out, const struct wb_param *p)
{
	wb_buf_printf(out, "%s[", wb_dtype_name(p->dtype));
	for (uint32_t d = 0; d < p->ndim; d++)
		wb_buf_printf(out, "%s%" PRIu64, d ? "," : "", p->shape[d]);
	wb_buf_printf(out, "]");
}

static void put_range(
	struct wb_buf *out, const char *what, uint64_t first, uint32_t n, uint32_t step)
{
	wb_buf_printf(out, " %s %" PRIu64, what, first);
	if (n > 1)
		wb_buf_printf(out, "..%" PRIu64, first + (uint64_t)(n - 1) * step);
	if (n > 1 && step > 1)
		wb_buf_printf(out, " step %" PRIu32, step);
}

static void put_op(struct wb_buf *out, const struct wb_srcmap *s, const struct wb_op *o)
{
	const struct wb_tensor *t = &s->manifest->tensor[o->tensor];
	const struct wb_param *p = &s->map->param[o->param];
	bool is_transposed =
		o->n_row > 1 && o->n_col > 1 && llabs(o->dst_row_stride) < llabs(o->dst_col_stride);

	wb_buf_printf(out, "    at %" PRIu64 " <- %s", o->dst, t->name);
	if (o->n_row != t->rows)
		put_range(out, "rows", o->row, o->n_row, o->row_step);
	if (o->n_col != t->cols)
		put_range(out, "columns", o->col, o->n_col, o->col_step);
	if (is_transposed)
		wb_buf_printf(out, ", transposed");
	if (o->repeat > 1)
		wb_buf_printf(out, ", %" PRIu32 " times", o->repeat);
	if (t->dtype != p->dtype)
		wb_buf_printf(out, ", %s to %s", wb_dtype_name(t->dtype), wb_dtype_name(p->dtype));
	wb_buf_printf(out, "\n");
}

static void put_param(
	struct wb_buf *out, const struct wb_srcmap *s, uint32_t i, const struct wb__cover *row)
{
	const struct wb_param *p = &s->map->param[i];
	int64_t nests;

	wb_buf_printf(out, "%s  ", p->name);
	put_shape(out, p);
	if (s->alias[i].owner != WB_ALIAS_NONE) {
		wb_buf_printf(out, "  a view of %s at element %" PRIu64 "\n",
			s->map->param[s->alias[i].owner].name, s->alias[i].offset);
		return;
	}
	nests = wb_srcmap_nests(s, i);
	if (row->n_op)
		wb_buf_printf(out, "  %" PRIu32 " op%s, %" PRId64 " nest%s", row->n_op,
			row->n_op == 1 ? "" : "s", nests, nests == 1 ? "" : "s");
	if (row->constant)
		wb_buf_printf(out, "  constant: %" PRIu64 " elements (raw 0x%" PRIx64 "%s)",
			row->constant, row->value, row->n_constant > 1 ? " and others" : "");
	if (row->unwritten)
		wb_buf_printf(out, "  unwritten: %" PRIu64 " elements", row->unwritten);
	wb_buf_printf(out, "\n");
	for (uint32_t k = 0; k < WB_MIN(row->n_op, SOURCES_SHOWN); k++)
		put_op(out, s, &s->map->op[s->op_order[s->op_first[i] + k]]);
	if (row->n_op > SOURCES_SHOWN)
		wb_buf_printf(out, "    and %" PRIu32 " more\n", row->n_op - SOURCES_SHOWN);
}

/* "1.503 GB", "12.0 kB". */
static const char *size_text(uint64_t bytes, char out[32])
{
	if (bytes >= 1000000000)
		snprintf(out, 32, "%.3f GB", (double)bytes / 1e9);
	else if (bytes >= 1000000)
		snprintf(out, 32, "%.1f MB", (double)bytes / 1e6);
	else
		snprintf(out, 32, "%.1f kB", (double)bytes / 1e3);
	return out;
}

static void put_head(struct wb_buf *out, const struct wb_srcmap *s, const struct wb__cover *row)
{
	char map[WB_DIGEST_TEXT], manifest[WB_DIGEST_TEXT], size[32];
	uint64_t copied = 0;
	int64_t nests = 0;

	for (uint32_t i = 0; i < s->map->n_param; i++) {
		copied += row[i].copied * wb_dtype_bytes(s->map->param[i].dtype);
		nests += row[i].n_op ? wb_srcmap_nests(s, i) : 0;
	}
	wb_buf_printf(out, "source map  %s\n", wb_digest_text(s->map->digest, map));
	wb_buf_printf(out, "manifest    %s  %" PRIu32 " tensors, %s\n",
		wb_digest_text(s->manifest->digest, manifest), s->manifest->n,
		size_text(s->manifest->bytes, size));
	wb_buf_printf(out,
		"parameters  %" PRIu32 ", %" PRIu32 " ops, %" PRId64 " nests, %s copied\n",
		s->map->n_param, s->map->n_op, nests, size_text(copied, size));
	if (s->stats.n_pass)
		wb_buf_printf(out,
			"probing     %" PRIu32 " passes%s, load_weights %.3f s, own work %.3f s, "
			"%" PRIu64 " records\n",
			s->stats.n_pass, s->stats.from_cache ? " (map from the cache)" : "",
			(double)s->stats.load_ns / 1e9, (double)s->stats.host_ns / 1e9,
			s->stats.n_record);
	wb_buf_printf(out, "\n");
}

int wb_srcmap_report(const struct wb_srcmap *s, struct wb_buf *out)
{
	struct wb__cover *row = wb_zalloc(s->map->n_param, sizeof(*row));

	if (!row)
		return -ENOMEM;
	wb__cover_of(s, row);
	put_head(out, s, row);
	for (uint32_t i = 0; i < s->map->n_param; i++)
		put_param(out, s, i, &row[i]);
	wb_free(row);
	wb_buf_printf(out, "\n");
	return wb_srcmap_gaps(s, UINT32_MAX, out);
}
