/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors past 2^40 bytes and 2^32 rows, planned and bound without their memory. */
#include "base/base.h"
#include "base/err.h"
#include "planner/binding.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_plan.h"

#include <check.h>

/* Rows of two trainers meet columns of two rollouts that hold them turned; behind them a tensor of
 * 2^33 rows, every fourth of them an op. */
#define HUGE_ROWS (UINT64_C(1) << 22)
#define HUGE_COLS (UINT64_C(1) << 20)
#define LONG_ROWS (UINT64_C(1) << 33)

static struct wb_map *huge_half(const struct wb_manifest *m, bool is_rollout, uint64_t i)
{
	struct fx_map f = {.m = m};
	uint64_t rows = is_rollout ? HUGE_ROWS : HUGE_ROWS / 2;
	uint64_t cols = is_rollout ? HUGE_COLS / 2 : HUGE_COLS;
	uint32_t w = fx_param(&f, "w", WB_BF16, is_rollout ? cols : rows, is_rollout ? rows : cols);
	uint32_t v = fx_param(&f, "v", WB_I8, 0, LONG_ROWS);

	fx_op(&f, (struct wb_op){.param = w,
			  .row = is_rollout ? 0 : i * rows,
			  .col = is_rollout ? i * cols : 0,
			  .n_row = (uint32_t)rows,
			  .n_col = (uint32_t)cols,
			  .row_step = 1,
			  .col_step = 1,
			  .dst_row_stride = is_rollout ? 1 : (int64_t)cols,
			  .dst_col_stride = is_rollout ? (int64_t)rows : 1,
			  .repeat = 1});
	for (uint64_t k = 0; k < 4; k++)
		fx_op(&f, (struct wb_op){.param = v,
				  .tensor = 1,
				  .dst = LONG_ROWS - 1 - k,
				  .row = k,
				  .n_row = (uint32_t)(LONG_ROWS / 4),
				  .n_col = 1,
				  .row_step = 4,
				  .col_step = 1,
				  .dst_row_stride = -4,
				  .repeat = 1});
	return fx_map_done(&f);
}

/* Place in parameter @param of a worker, bytes, of an element of tensor @t. */
static uint64_t huge_place(bool is_rollout, uint64_t half, uint32_t t, uint64_t row, uint64_t col)
{
	if (t == 1)
		return LONG_ROWS - 1 - row;
	if (is_rollout)
		return 2 * ((col - half * (HUGE_COLS / 2)) * HUGE_ROWS + row);
	return 2 * ((row - half * (HUGE_ROWS / 2)) * HUGE_COLS + col);
}

/* The boxes of a chunk are elements of its wire image in order, each at its place in the checkpoint
 * and the parameter; the corners of each box stand for it. */
static void check_huge_chunk(const struct wb_plan *p, const struct wb_manifest *m,
	const struct wb_binding *b, uint32_t worker, uint32_t cls, uint32_t chunk)
{
	static struct wbk_box box[4096];
	static uint32_t param[4096];
	int n = wb_binding_boxes(b, cls, chunk, true, box, param, WB_ARRAY_SIZE(box));
	bool is_rollout = p->worker[worker].role == WB_ROLE_ROLLOUT;
	uint64_t done = 0;

	ck_assert_int_gt(n, 0);
	for (int i = 0; i < n; i++) {
		const struct wbk_box *x = &box[i];
		const struct wb_tensor *t = &m->tensor[param[i]];

		ck_assert_uint_eq(x->wire_off, done);
		done += (uint64_t)x->n_row * x->n_col * x->wire_elem;
		for (int k = 0; k < 4; k++) {
			uint64_t r = k & 1 ? x->n_row - 1 : 0, c = k & 2 ? x->n_col - 1 : 0;
			uint64_t pos = x->pos + r * x->pos_row_stride + c * x->pos_col_stride;
			uint64_t e = (pos - t->byte_base) / x->wire_elem;
			uint64_t at = x->mem_off + r * (uint64_t)x->row_stride +
				      c * (uint64_t)x->col_stride;

			ck_assert_uint_lt(e, t->rows * t->cols);
			ck_assert_uint_eq(at, huge_place(is_rollout, worker % 2, param[i],
						      e / t->cols, e % t->cols));
		}
	}
	ck_assert_uint_eq(done, wb_chunk_len(p, &p->cls[cls], chunk));
}

START_TEST(tensors_past_2_to_the_40_bytes_keep_their_places)
{
	struct wb_tensor t[] = {
		fx_tensor("w", WB_BF16, HUGE_ROWS, HUGE_COLS), fx_tensor("v", WB_I8, LONG_ROWS, 1)};
	struct wb_rng rng = {7};
	struct wb_manifest *m = NULL;
	struct wb_map *layout[4];
	struct wb_plan_worker worker[4];
	struct wb_plan_input in;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};
	struct wb_binding *b;

	ck_assert(!wb_manifest_create(t, 2, &m, NULL));
	ck_assert_uint_eq(m->tensor[1].byte_base, 2 * HUGE_ROWS * HUGE_COLS);
	for (uint32_t i = 0; i < 4; i++) {
		layout[i] = huge_half(m, i >= 2, i % 2);
		worker[i] = (struct wb_plan_worker){
			i < 2 ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, i, 0, i / 2, i / 2, 1000000000};
	}
	in = (struct wb_plan_input){.manifest = m,
		.layout = (const struct wb_map *const *)layout,
		.n_layout = 4,
		.worker = worker,
		.n_worker = 4};
	ck_assert_msg(!wb_plan_create(&in, &p, &err), "%s", err.msg);
	ck_assert_msg(!wb_plan_check(p, m, in.layout, &err), "%s", err.msg);
	ck_assert_uint_eq(p->model_bytes, 2 * HUGE_ROWS * HUGE_COLS + LONG_ROWS);
	ck_assert_uint_eq(p->delivered_bytes, 2 * HUGE_ROWS * HUGE_COLS + 2 * LONG_ROWS);
	/* Half the model each, at 1 GB/s: a ns a byte. */
	ck_assert_double_eq_tol((double)p->worker_bound_ns, (double)p->model_bytes / 2, 1e9);
	for (uint32_t w = 0; w < 4; w++) {
		ck_assert(!wb_binding_create(p, m, layout[w], w, &b, &err));
		for (uint32_t c = 0; c < p->n_class; c++)
			for (int i = 0; i < 200 && wb_class_has_member(p, &p->cls[c], w); i++)
				check_huge_chunk(p, m, b, w, c,
					i ? (uint32_t)wb_rng_below(&rng, p->cls[c].n_chunk)
					  : p->cls[c].n_chunk - 1);
		wb_binding_destroy(b);
	}
	wb_plan_destroy(p);
	for (uint32_t i = 0; i < 4; i++)
		wb_map_destroy(layout[i]);
	wb_manifest_destroy(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_huge");
	TCase *c = tcase_create("huge");

	suite_add_tcase(s, c);
	tcase_add_test(c, tensors_past_2_to_the_40_bytes_keep_their_places);
	return fx_run(s);
}
