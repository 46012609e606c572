/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what the checkpoint tensors hold in a pass. */
#include "extract/device.h"
#include "extract/internal.h"

#include <errno.h>
#include <string.h>

enum wb_fill_kind wb_probe_fill_kind(const struct wb_probe *p, uint32_t tensor)
{
	(void)tensor;
	switch (p->pass.kind) {
	case WB_PASS_CONST:
	case WB_PASS_CONST_B:
		return WB_FILL_ONE;
	case WB_PASS_COLUMN:
		return WB_FILL_COLUMNS;
	case WB_PASS_ROW:
		return WB_FILL_ROWS;
	default:
		return WB_FILL_FULL;
	}
}

struct wb__digit wb__digit_of(const struct wb_probe *p, enum wb_dtype t)
{
	unsigned shift = p->pass.digit * wb__code_width(p, t);

	/* A type with narrow digits takes more passes than one with wide digits, which then carries
	 * 0. */
	if (shift >= 62)
		return (struct wb__digit){0, 0};
	return (struct wb__digit){shift, wb__code_mask(p, t)};
}

static void fill_rows(const struct wb_probe *p, const struct wb_tensor *t, uint8_t *out)
{
	struct wb__digit d = wb__digit_of(p, t->dtype);
	size_t elem = wb_dtype_bytes(t->dtype);
	uint8_t one[8];

	for (uint64_t r = 0; r < t->rows; r++) {
		wb__ramp(p, t->dtype, &d, t->row_base + r, one, 1);
		wb__raw_fill(out + r * t->cols * elem, elem, wb__raw_at(one, elem), t->cols);
	}
}

static void fill_columns(
	const struct wb_probe *p, const struct wb_tensor *t, uint64_t rows, uint8_t *out)
{
	struct wb__digit d = wb__digit_of(p, t->dtype);
	size_t row_bytes = t->cols * wb_dtype_bytes(t->dtype);

	wb__ramp(p, t->dtype, &d, 0, out, t->cols);
	for (uint64_t r = 1; r < rows; r++)
		memcpy(out + r * row_bytes, out, row_bytes);
}

static void fill_hash(const struct wb_probe *p, const struct wb_tensor *t, uint8_t *out)
{
	size_t row_bytes = t->cols * wb_dtype_bytes(t->dtype);

	for (uint64_t r = 0; r < t->rows; r++) {
		struct wb__hash_at at = {p->opts.seed + p->hash_done, t->row_base + r, 0, 1};

		wb__hash_row(p, t->dtype, &at, out + r * row_bytes, t->cols);
	}
}

int wb_probe_fill(const struct wb_probe *p, uint32_t tensor, bool expand, void *out, size_t bytes)
{
	enum wb_fill_kind kind = wb_probe_fill_kind(p, tensor);
	const struct wb_tensor *t;
	uint64_t rows, cols;
	int where;

	if (!p->in_pass || tensor >= p->manifest->n)
		return -EINVAL;
	t = &p->manifest->tensor[tensor];
	rows = expand && (kind == WB_FILL_COLUMNS || kind == WB_FILL_ONE) ? 1 : t->rows;
	cols = expand && (kind == WB_FILL_ROWS || kind == WB_FILL_ONE) ? 1 : t->cols;
	if (bytes != rows * cols * wb_dtype_bytes(t->dtype))
		return -EINVAL;
	where = wb__dev_where(p, out);
	if (where)
		return where < 0 ? where
				 : wb__dev_fill(p, t, &(struct wb__fill_at){out, rows, cols});
	if (kind == WB_FILL_ONE) {
		wb__raw_fill(out, wb_dtype_bytes(t->dtype), wb__const_raw(t->dtype, p->pass.kind),
			rows * cols);
	} else if (kind == WB_FILL_COLUMNS) {
		fill_columns(p, t, rows, out);
	} else if (kind == WB_FILL_ROWS && expand) {
		struct wb__digit d = wb__digit_of(p, t->dtype);

		wb__ramp(p, t->dtype, &d, t->row_base, out, rows);
	} else if (kind == WB_FILL_ROWS) {
		fill_rows(p, t, out);
	} else {
		fill_hash(p, t, out);
	}
	return 0;
}
