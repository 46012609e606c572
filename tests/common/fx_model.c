/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_model.h"
#include "tests/common/fx_check.h"

#include "tests/common/fx_plan.h"

struct wb_buf manifest_bytes, map_bytes;
struct wb_digest manifest_digest, map_digest;

struct wb_manifest *fx_model_manifest(void)
{
	struct wb_tensor t = fx_tensor("w", WB_BF16, MODEL_ROWS, MODEL_COLS);
	struct wb_manifest *m = NULL;

	ck_assert_int_eq(wb_manifest_create(&t, 1, &m, NULL), 0);
	return m;
}

struct wb_map *fx_model_rows(const struct wb_manifest *m, uint64_t row, uint64_t n)
{
	struct fx_map f = {.m = m};

	fx_copy(&f, fx_param(&f, "w", WB_BF16, n, MODEL_COLS), "w",
		(struct fx_box){row, n, 0, MODEL_COLS, 0, 0});
	return fx_map_done(&f);
}

struct wb_map *fx_model_turned(const struct wb_manifest *m)
{
	struct fx_map f = {.m = m};

	fx_param(&f, "w", WB_BF16, MODEL_COLS, MODEL_ROWS);
	fx_op(&f, (struct wb_op){.n_row = MODEL_ROWS,
			  .n_col = MODEL_COLS,
			  .row_step = 1,
			  .col_step = 1,
			  .dst_row_stride = 1,
			  .dst_col_stride = MODEL_ROWS,
			  .repeat = 1});
	return fx_map_done(&f);
}

struct wb_map *fx_model_blocks(const struct wb_manifest *m)
{
	const uint64_t n = MODEL_BLOCK / (MODEL_COLS * 2);
	struct fx_map f = {.m = m};
	uint32_t p = fx_param(&f, "w", WB_BF16, MODEL_ROWS, MODEL_COLS);

	for (uint64_t row = 0; row < MODEL_ROWS; row += n)
		fx_copy(&f, p, "w",
			(struct fx_box){row, n, 0, MODEL_COLS, MODEL_ROWS - n - row, 0});
	return fx_map_done(&f);
}

struct wb_digest fx_model_encode(uint64_t row, uint64_t n, struct wb_buf *b)
{
	struct wb_manifest *m = fx_model_manifest();
	struct wb_map *map = fx_model_rows(m, row, n);
	struct wb_digest d = map->digest;

	wb_buf_init(b, 1 << 20);
	ck_assert_int_eq(wb_map_encode(map, b), 0);
	wb_map_destroy(map);
	wb_manifest_destroy(m);
	return d;
}

void make_model(void)
{
	struct wb_manifest *m = fx_model_manifest();

	wb_buf_init(&manifest_bytes, 1 << 20);
	ck_assert_int_eq(wb_manifest_encode(m, &manifest_bytes), 0);
	manifest_digest = m->digest;
	wb_manifest_destroy(m);
	map_digest = fx_model_encode(0, MODEL_ROWS, &map_bytes);
}

void free_model(void)
{
	wb_buf_finish(&manifest_bytes);
	wb_buf_finish(&map_bytes);
}
