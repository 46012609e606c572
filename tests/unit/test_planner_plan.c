/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of small deployments by hand: classes, routes, refusals, encoding. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/binding.h"
#include "planner/plan.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_plan.h"
#include "tests/common/fx_small.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(row_shards_meet_column_shards)
{
	struct fx_small s;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	fx_small_init(&s, WB_F32);
	ck_assert_msg(!wb_plan_create(&s.in, &p, &err), "%s", err.msg);
	ck_assert_uint_eq(p->n_class, 5); /* 2 x 2 quarters and the norm */
	ck_assert_uint_eq(p->n_segment, 5);
	ck_assert_uint_eq(p->model_bytes, 4096 * 4096 * 2 + 4096 * 4);
	ck_assert_uint_eq(p->delivered_bytes, 2 * 4096 * 4096 * 2 + 4 * 4096 * 4);
	/* A domain's two workers take half the model each, at 1 MB/s; as do the two trainers. */
	ck_assert_uint_eq(p->worker_bound_ns, (p->model_bytes / 2) * 1000);
	ck_assert_uint_eq(p->node_bound_ns, p->worker_bound_ns);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

/* ---- refusals ---- */

/* What is done to the small deployment, and what the sentence must say. */
static void no_change(struct fx_small *s)
{
	(void)s;
}

static void drop_trainer(struct fx_small *s)
{
	/* Worker 1 becomes a copy of worker 0: the lower rows are held by nobody. */
	s->worker[1].layout = 0;
}

static void small_trainer_buffer(struct fx_small *s)
{
	s->in.trainer_buffer_bytes = 700000;
}

static void small_rollout_buffer(struct fx_small *s)
{
	s->in.rollout_buffer_bytes = 2000000;
}

static void large_chunk(struct fx_small *s)
{
	s->in.chunk_bytes = WB_CHUNK_BYTES_MAX + 64;
}

static void bad_layout(struct fx_small *s)
{
	s->worker[3].layout = 4;
}

static void no_rollout(struct fx_small *s)
{
	s->in.n_worker = 2;
}

static void relayout(struct fx_small *s, int i, struct fx_map *f)
{
	wb_map_destroy(s->layout[i]);
	s->layout[i] = fx_map_done(f);
}

static void int_norm(struct fx_small *s)
{
	struct fx_map f = {.m = s->m};
	uint32_t n = fx_param(&f, "norm", WB_I8, 0, 4096);

	fx_copy(&f, n, "norm", (struct fx_box){0, 1, 0, 4096, 0, 0});
	relayout(s, 2, &f);
}

static void int_masters(struct fx_small *s)
{
	struct fx_map f;
	uint32_t w;

	for (int i = 0; i < 2; i++) {
		memset(&f, 0, sizeof(f));
		f.m = s->m;
		w = fx_param(&f, "w", WB_I32, 4096, 4096);
		fx_copy(&f, w, "w", (struct fx_box){0, 4096, 0, 4096, 0, 0});
		w = fx_param(&f, "norm", WB_F32, 0, 4096);
		fx_copy(&f, w, "norm", (struct fx_box){0, 1, 0, 4096, 0, 0});
		relayout(s, i, &f);
	}
}

/* Two ops of the fused parameter share rows 1000-1023. */
static void overlap(struct fx_small *s)
{
	struct fx_map f = {.m = s->m};
	uint32_t w = fx_param(&f, "fused", WB_BF16, 2024, 4096);

	fx_copy(&f, w, "w", (struct fx_box){0, 1024, 0, 4096, 0, 0});
	fx_copy(&f, w, "lm_head", (struct fx_box){0, 1024, 0, 4096, 1000, 0});
	relayout(s, 3, &f);
}

static void hole(struct fx_small *s)
{
	struct fx_map f = {.m = s->m};
	uint32_t w = fx_param(&f, "holed", WB_BF16, 10, 4096);

	fx_copy(&f, w, "w", (struct fx_box){0, 9, 0, 4096, 0, 0});
	relayout(s, 3, &f);
}

static void lm_head_needed(struct fx_small *s)
{
	struct fx_map f = {.m = s->m};
	uint32_t w = fx_param(&f, "head", WB_BF16, 10, 4096);

	fx_copy(&f, w, "lm_head", (struct fx_box){100, 10, 0, 4096, 0, 0});
	relayout(s, 3, &f);
}

static void many(struct fx_small *s)
{
	drop_trainer(s);
	int_norm(s);
	overlap(s);
}

static const struct {
	void (*change)(struct fx_small *);
	int rc;
	const char *want[3];
} refusals[] = {
	{no_change, 0, {""}},
	{drop_trainer, WB_EPLAN,
		{"tensor w: 8388608 elements in rows 2048-4095, columns 0-4095 are held by no "
		 "trainer",
			"rollout worker 3 needs them for parameter w"}},
	{small_trainer_buffer, WB_EPLAN,
		{"trainer workers have 700000 bytes", "at least 786432",
			"spec.trainer.bufferSize"}},
	{small_rollout_buffer, WB_EPLAN,
		{"rollout workers have 2000000 bytes", "at least 2359296",
			"spec.rollout.bufferSize"}},
	{large_chunk, -EINVAL, {"16777280"}},
	{bad_layout, -EINVAL, {"worker 3 is in layout 4 of 4"}},
	{no_rollout, -EINVAL, {"there are 2 and 0"}},
	{int_norm, WB_EPLAN, {"rollout worker 2: parameter norm is I8, its source norm is F32"}},
	{int_masters, WB_EPLAN, {"has it as I32 in w: no known cast to BF16"}},
	{overlap, WB_EPLAN,
		{"rollout worker 3: parameter fused: elements 0-4194303 and 4096000-8290303 "
		 "overlap"}},
	{hole, WB_EPLAN, {"parameter holed: 4096 of 40960 elements are neither copied"}},
	{lm_head_needed, WB_EPLAN, {"tensor lm_head: 40960 elements in rows 100-109"}},
	{many, WB_EPLAN, {"parameter fused", "norm is I8", "tensor lm_head: 4194304"}},
};

START_TEST(bad_input_is_refused_with_a_sentence)
{
	struct fx_small s;
	struct wb_plan *p = (void *)1;
	struct wb_err err = {0};
	int rc;

	fx_small_init(&s, WB_F32);
	refusals[_i].change(&s);
	rc = wb_plan_create(&s.in, &p, &err);
	ck_assert_msg(rc == refusals[_i].rc, "%d: %s", rc, err.msg);
	for (int i = 0; i < 3 && refusals[_i].want[i]; i++)
		ck_assert_msg(strstr(err.msg, refusals[_i].want[i]), "%s", err.msg);
	if (rc)
		ck_assert_ptr_eq(p, (void *)1);
	else
		wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

/* A trainer that has all of an I8 tensor of @rows x @cols, a rollout with one parameter of @f. */
static int plan_one(struct fx_map *f, uint64_t rows, uint64_t cols, struct wb_err *err)
{
	struct fx_map whole = {.m = f->m};
	struct wb_map *layout[2];
	struct wb_plan_worker w[2] = {
		{WB_ROLE_TRAINER, 0, 0, 0, 0, 0}, {WB_ROLE_ROLLOUT, 1, 0, 1, 1, 0}};
	struct wb_plan_input in = {.manifest = f->m, .n_layout = 2, .worker = w, .n_worker = 2};
	struct wb_plan *p = NULL;
	int rc;

	fx_copy(&whole, fx_param(&whole, "w", WB_I8, rows, cols), "w",
		(struct fx_box){0, rows, 0, cols, 0, 0});
	layout[0] = fx_map_done(&whole);
	layout[1] = fx_map_done(f);
	in.layout = (const struct wb_map *const *)layout;
	rc = wb_plan_create(&in, &p, err);
	wb_plan_destroy(p);
	wb_map_destroy(layout[0]);
	wb_map_destroy(layout[1]);
	return rc;
}

static struct wb_manifest *one_tensor(uint64_t rows, uint64_t cols)
{
	struct wb_tensor t = fx_tensor("w", WB_I8, rows, cols);
	struct wb_manifest *m = NULL;

	ck_assert(!wb_manifest_create(&t, 1, &m, NULL));
	return m;
}

/* Its 2^64 elements all lie within 2^23: their number is 0 where it wraps. */
START_TEST(an_op_whose_elements_wrap_is_refused)
{
	uint64_t rows = 1 << 22, cols = 1 << 21;
	struct wb_manifest *m = one_tensor(rows, cols);
	struct fx_map f = {.m = m};
	struct wb_err err = {0};

	fx_op(&f, (struct wb_op){.param = fx_param(&f, "p", WB_I8, 0, 1 << 24),
			  .n_row = (uint32_t)rows,
			  .n_col = (uint32_t)cols,
			  .row_step = 1,
			  .col_step = 1,
			  .dst_row_stride = 1,
			  .dst_col_stride = 1,
			  .dst_repeat_stride = 1,
			  .repeat = 1 << 21});
	ck_assert_int_eq(plan_one(&f, rows, cols, &err), WB_EPLAN);
	ck_assert_msg(strstr(err.msg, "parameter p: elements 0-") && strstr(err.msg, "twice"), "%s",
		err.msg);
	wb_manifest_destroy(m);
}
END_TEST

/* Ops of a map made to cost time or memory: the square of their number. */
static const struct {
	uint32_t n;
	bool is_comb;
	const char *want;
} tangles[] = {
	/* Op i has columns i and on: 18 million pairs of column and op. */
	{6000, false, "tensor w: the layouts cut the checkpoint into"},
	/* WB_SLOW=1: op i is every n-th element of the parameter: all lie across each other. */
	{65536, true, "rollout worker 1: parameter p: too many ops lie across each other"},
};

START_TEST(ops_that_cost_their_square_are_refused)
{
	uint64_t n = tangles[_i].n;
	bool is_comb = tangles[_i].is_comb;
	struct wb_manifest *m = one_tensor(n, n);
	struct wb_err err = {0};
	struct fx_map f = {.m = m};
	uint32_t p = fx_param(&f, "p", WB_I8, 0, n * n);

	for (uint64_t i = 0; i < n; i++)
		fx_op(&f, (struct wb_op){.param = p,
				  .dst = is_comb ? i : i * n,
				  .col = i,
				  .n_row = is_comb ? (uint32_t)n : 1,
				  .n_col = is_comb ? 1 : (uint32_t)(n - i),
				  .row_step = 1,
				  .col_step = 1,
				  .dst_row_stride = (int64_t)n,
				  .dst_col_stride = 1,
				  .repeat = 1});
	/* The columns before i are no business of the test. */
	for (uint64_t i = 1; !is_comb && i < n; i++)
		fx_region(&f, (struct wb_region){
				      p, WB_REGION_UNWRITTEN, i * n + n - i, 0, 1, (uint32_t)i, 0});
	ck_assert_int_eq(plan_one(&f, n, n, &err), -E2BIG);
	ck_assert_msg(strstr(err.msg, tangles[_i].want), "%s", err.msg);
	wb_manifest_destroy(m);
}
END_TEST

START_TEST(names_are_used_and_the_rest_is_counted)
{
	const char *names[6] = {"t-0/0", "t-0/1", "r-0/0", "r-0/1", "r-1/0", "r-1/1"};
	struct wb_tensor t[200];
	struct wb_map *layout[2];
	struct fx_map f = {0};
	char name[200][32];
	struct fx_small s = {0};
	struct wb_plan *p;
	struct wb_err err = {0};

	for (int i = 0; i < 200; i++) {
		snprintf(name[i], sizeof(name[i]), "layers.%d.w", i);
		t[i] = fx_tensor(name[i], WB_BF16, 4, 4);
	}
	ck_assert(!wb_manifest_create(t, 200, &s.m, NULL));
	f.m = s.m;
	layout[0] = fx_map_done(&f);
	f.m = s.m;
	for (int i = 0; i < 200; i++)
		fx_copy(&f, fx_param(&f, name[i], WB_BF16, 4, 4), name[i],
			(struct fx_box){0, 4, 0, 4, 0, 0});
	layout[1] = fx_map_done(&f);
	s.worker[0] = (struct wb_plan_worker){WB_ROLE_TRAINER, 0, 0, 0, 0, 0};
	s.worker[1] = (struct wb_plan_worker){WB_ROLE_ROLLOUT, 1, 0, 1, 1, 0};
	s.in = (struct wb_plan_input){.manifest = s.m,
		.layout = (const struct wb_map *const *)layout,
		.n_layout = 2,
		.worker = s.worker,
		.n_worker = 2,
		.worker_name = names + 1};
	ck_assert_int_eq(wb_plan_create(&s.in, &p, &err), WB_EPLAN);
	ck_assert_msg(strstr(err.msg, "rollout worker r-0/0 needs them"), "%s", err.msg);
	ck_assert_msg(strstr(err.msg, "; and 19"), "%s", err.msg);
	wb_map_destroy(layout[0]);
	wb_map_destroy(layout[1]);
	wb_manifest_destroy(s.m);
}
END_TEST

/* ---- what a plan looks like ---- */

START_TEST(a_needer_that_rounds_is_nobodys_source)
{
	struct fx_small s;
	struct wb_plan *p = NULL;
	uint32_t n_direct = 0;

	fx_small_init(&s, WB_BF16);
	ck_assert(!wb_plan_create(&s.in, &p, NULL));
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (!p->cls[r->class_id].is_direct)
			continue;
		n_direct++;
		ck_assert_uint_eq(r->stage, WB_STAGE_RECEIVE);
		ck_assert_uint_lt(r->src, 2);
	}
	ck_assert_uint_eq(n_direct, 4);
	ck_assert(!wb_plan_check(p, s.m, s.in.layout, NULL));
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

/* A load of 192 chunks or more, and memory for 16 of them in each pool. */
static const struct {
	uint64_t mib, trainer_mib, rollout_mib; /* of the tensor; of slots, 0 = no limit */
	uint32_t chunk_mib;
} sizes[] = {
	{8192, 0, 0, 16},
	{3072, 0, 0, 16},
	{3071, 0, 0, 8},
	{1535, 0, 0, 4},
	{255, 0, 0, 2},
	{8192, 256, 1024, 16},
	{8192, 255, 1024, 8},
	{8192, 256, 1023, 8},
	{8192, 0, 511, 4},
	{8192, 12, 36, 4},
	{8192, 12, 11, 2},
};

START_TEST(a_large_load_is_cut_into_large_chunks_where_there_are_slots_for_them)
{
	struct wb_tensor t = fx_tensor("w", WB_BF16, sizes[_i].mib, 1u << 19);
	struct wb_plan_worker worker[] = {
		{.role = WB_ROLE_TRAINER}, {.role = WB_ROLE_ROLLOUT, .domain = 1, .node = 1}};
	struct wb_manifest *m;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};
	struct wb_map *map;

	ck_assert(!wb_manifest_create(&t, 1, &m, NULL));
	struct fx_map f = {.m = m};
	fx_copy(&f, fx_param(&f, "w", WB_BF16, sizes[_i].mib, 1u << 19), "w",
		(struct fx_box){0, sizes[_i].mib, 0, 1u << 19, 0, 0});
	map = fx_map_done(&f);
	struct wb_plan_input in = {.manifest = m,
		.layout = (const struct wb_map *const *)&map,
		.n_layout = 1,
		.worker = worker,
		.n_worker = 2,
		.trainer_buffer_bytes = sizes[_i].trainer_mib << 20,
		.rollout_buffer_bytes = sizes[_i].rollout_mib << 20};

	ck_assert_msg(!wb_plan_create(&in, &p, &err), "%s", err.msg);
	ck_assert_uint_eq(p->chunk_bytes, sizes[_i].chunk_mib << 20);
	ck_assert_uint_le(p->rollout_slot_min_bytes,
		in.rollout_buffer_bytes ? in.rollout_buffer_bytes : UINT64_MAX);
	wb_plan_destroy(p);
	wb_map_destroy(map);
	wb_manifest_destroy(m);
}
END_TEST

START_TEST(a_tensor_larger_than_the_buffer_is_cut)
{
	struct fx_small s;
	struct wb_plan *p = NULL;

	fx_small_init(&s, WB_F32);
	s.in.trainer_buffer_bytes = 3 * WB_CHUNK_BYTES_MIN;
	s.in.rollout_buffer_bytes = 9 * WB_CHUNK_BYTES_MIN;
	ck_assert(!wb_plan_create(&s.in, &p, NULL));
	ck_assert_uint_eq(p->chunk_bytes, WB_CHUNK_BYTES_MIN);
	ck_assert_uint_gt(p->cls[0].bytes, s.in.rollout_buffer_bytes);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

/* A step that is too large for residue classes: every row is an op of its own. */
START_TEST(large_steps_are_cut_into_lines)
{
	struct wb_tensor t = fx_tensor("w", WB_BF16, 2500, 3);
	struct wb_map *layout[3];
	struct fx_small s = {0};
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	ck_assert(!wb_manifest_create(&t, 1, &s.m, NULL));
	for (uint32_t l = 0; l < 3; l++) {
		struct fx_map f = {.m = s.m};
		uint32_t w = fx_param(&f, "w", WB_BF16, l < 2 ? 1250 : 2500, 3);

		/* Trainers interleave rows in pairs 1250 apart; the rollout has them all. */
		for (uint64_t i = 0; i < 625 && l < 2; i++)
			fx_op(&f, (struct wb_op){.param = w,
					  .row = 2 * i + l,
					  .n_row = 2,
					  .n_col = 3,
					  .row_step = 1250,
					  .col_step = 1,
					  .dst = 6 * i,
					  .dst_row_stride = 3,
					  .dst_col_stride = 1,
					  .repeat = 1});
		if (l == 2)
			fx_copy(&f, w, "w", (struct fx_box){0, 2500, 0, 3, 0, 0});
		layout[l] = fx_map_done(&f);
		s.worker[l] = (struct wb_plan_worker){
			l < 2 ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, l, 0, l, l, 0};
	}
	s.in = (struct wb_plan_input){.manifest = s.m,
		.layout = (const struct wb_map *const *)layout,
		.n_layout = 3,
		.worker = s.worker,
		.n_worker = 3};
	ck_assert_msg(!wb_plan_create(&s.in, &p, &err), "%s", err.msg);
	ck_assert_uint_eq(p->n_segment, 2500);
	ck_assert_uint_eq(p->n_class, 2);
	ck_assert_msg(!wb_plan_check(p, s.m, s.in.layout, &err), "%s", err.msg);
	wb_plan_destroy(p);
	for (int l = 0; l < 3; l++)
		wb_map_destroy(layout[l]);
	wb_manifest_destroy(s.m);
}
END_TEST

START_TEST(uneven_rates_get_uneven_shares)
{
	struct fx_small s;
	struct wb_plan *p = NULL;
	uint64_t sent[6] = {0};

	fx_small_init(&s, WB_F32);
	s.worker[1].layout = 0; /* both trainers hold the upper rows */
	for (int i = 2; i < 6; i++)
		s.worker[i].layout = 0;
	s.worker[1].rail_bytes_per_s = 3000000;
	ck_assert(!wb_plan_create(&s.in, &p, NULL));
	for (uint32_t i = 0; i < p->n_route; i++)
		if (p->route[i].stage == WB_STAGE_RECEIVE)
			sent[p->route[i].src] += p->route[i].chunk_end - p->route[i].chunk_begin;
	ck_assert_uint_eq(sent[0] + sent[1], p->n_chunk);
	ck_assert_uint_le(sent[0], p->n_chunk / 4 + 1);
	ck_assert_uint_ge(sent[0], p->n_chunk / 4 - 1);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

/* ---- bytes ---- */

START_TEST(the_encoding_is_the_one_of_the_golden_file)
{
	struct fx_small s;
	struct wb_plan *p = fx_small_plan(&s);
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	ck_assert(!wb_plan_encode(p, &b));
	fx_golden("plan-1.bin", b.data, b.len);
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

START_TEST(damaged_plans_are_refused_or_canonical)
{
	struct fx_small s;
	struct wb_plan *p = fx_small_plan(&s), *got;
	struct wb_buf b, b2;

	wb_buf_init(&b, 1 << 20);
	wb_buf_init(&b2, 1 << 20);
	ck_assert(!wb_plan_encode(p, &b));
	for (size_t n = 0; n < b.len; n++)
		ck_assert_int_eq(wb_plan_decode(b.data, n, &got, NULL), -EBADMSG);
	for (size_t bit = 0; bit < 8 * b.len; bit++) {
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (!wb_plan_decode(b.data, b.len, &got, NULL)) {
			wb_buf_reset(&b2);
			ck_assert(!wb_plan_encode(got, &b2));
			ck_assert(b.len == b2.len && !memcmp(b.data, b2.data, b.len));
			wb_plan_check(got, s.m, s.in.layout, NULL);
			wb_buf_reset(&b2);
			wb_plan_explain(got, s.m, NULL, true, &b2);
			wb_plan_destroy(got);
		}
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	wb_buf_finish(&b);
	wb_buf_finish(&b2);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

START_TEST(allocation_failures_leave_outputs_untouched)
{
	struct fx_small s;
	struct wb_plan *p = fx_small_plan(&s), *got;
	struct wb_binding *b;
	struct wb_buf bytes;
	int rc = -ENOMEM;

	wb_buf_init(&bytes, 1 << 20);
	ck_assert(!wb_plan_encode(p, &bytes));
	for (uint64_t n = 1; rc; n++) {
		got = (void *)1;
		wb_mem_fail_at(n);
		rc = wb_plan_create(&s.in, &got, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || (rc == -ENOMEM && got == (void *)1));
	}
	wb_plan_destroy(got);
	rc = -ENOMEM;
	for (uint64_t n = 1; rc; n++) {
		got = (void *)1;
		wb_mem_fail_at(n);
		rc = wb_plan_decode(bytes.data, bytes.len, &got, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || (rc == -ENOMEM && got == (void *)1));
	}
	wb_plan_destroy(got);
	rc = -ENOMEM;
	for (uint64_t n = 1; rc; n++) {
		b = (void *)1;
		wb_mem_fail_at(n);
		rc = wb_binding_create(p, s.m, s.layout[2], 2, &b, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || (rc == -ENOMEM && b == (void *)1));
	}
	wb_binding_destroy(b);
	rc = -ENOMEM;
	for (uint64_t n = 1; rc; n++) {
		wb_mem_fail_at(n);
		rc = wb_plan_check(p, s.m, s.in.layout, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || rc == -ENOMEM);
	}
	wb_buf_finish(&bytes);
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

START_TEST(a_binding_of_another_layout_is_refused)
{
	struct fx_small s;
	struct wb_plan *p = fx_small_plan(&s);
	struct wb_binding *b = NULL;
	struct wb_err err = {0};

	ck_assert_int_eq(wb_binding_create(p, s.m, s.layout[3], 2, &b, &err), WB_EPLAN);
	ck_assert_ptr_nonnull(strstr(err.msg, "another layout of worker 2"));
	wb_plan_destroy(p);
	fx_small_finish(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_plan");
	TCase *c = tcase_create("plan"), *slow = tcase_create("slow");

	suite_add_tcase(s, c);
	suite_add_tcase(s, slow);
	tcase_set_timeout(slow, 120);
	if (getenv("WB_SLOW"))
		tcase_add_loop_test(
			slow, ops_that_cost_their_square_are_refused, 1, WB_ARRAY_SIZE(tangles));
	tcase_add_test(c, row_shards_meet_column_shards);
	tcase_add_loop_test(c, bad_input_is_refused_with_a_sentence, 0, WB_ARRAY_SIZE(refusals));
	tcase_add_test(c, an_op_whose_elements_wrap_is_refused);
	tcase_add_loop_test(c, ops_that_cost_their_square_are_refused, 0, 1);
	tcase_add_test(c, names_are_used_and_the_rest_is_counted);
	tcase_add_test(c, a_needer_that_rounds_is_nobodys_source);
	tcase_add_test(c, a_tensor_larger_than_the_buffer_is_cut);
	tcase_add_loop_test(c, a_large_load_is_cut_into_large_chunks_where_there_are_slots_for_them,
		0, (int)WB_ARRAY_SIZE(sizes));
	tcase_add_test(c, large_steps_are_cut_into_lines);
	tcase_add_test(c, uneven_rates_get_uneven_shares);
	tcase_add_test(c, the_encoding_is_the_one_of_the_golden_file);
	tcase_add_test(c, damaged_plans_are_refused_or_canonical);
	tcase_add_test(c, allocation_failures_leave_outputs_untouched);
	tcase_add_test(c, a_binding_of_another_layout_is_refused);
	return fx_run(s);
}
