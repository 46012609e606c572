/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as it travels: head and parts.  What they say is held against the whole plan that they
 * were made from; that they can be carried out is test_planner_run's.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/binding.h"
#include "planner/deploy/deploy.h"
#include "planner/parts.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_deploy.h"
#include "tests/common/fx_plan.h"
#include "tests/common/fx_small.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t first_seed = 1;

/* A plan with its bytes. */
struct fx {
	struct fx_small s;
	struct wb_plan *p;
	struct wb_buf b;
	struct wb_plan_slice *slice;
	int n;
};

static void fx_init(struct fx *f)
{
	f->p = fx_small_plan(&f->s);
	f->n = fx_packed(f->p, &f->b, &f->slice);
}

static void fx_finish(struct fx *f)
{
	wb_buf_finish(&f->b);
	wb_free(f->slice);
	wb_plan_destroy(f->p);
	fx_small_finish(&f->s);
}

static int unpack(
	const struct fx *f, int part, uint64_t memory_max, struct wb_plan **out, struct wb_err *err)
{
	struct wb_plan_piece head = {f->b.data, f->slice[0].bytes};
	struct wb_plan_piece x = {f->b.data + f->slice[part].at, f->slice[part].bytes};

	return wb_plan_unpack(head, x, memory_max, out, err);
}

/* ---- models whose tensors repeat ---- */

/* Layers of @layers with experts, as a deployment of several agents. */
static struct wb_plan *plan_of_layers(uint32_t layers, const char *trainer, struct wb_deploy **d)
{
	struct wb_deploy_spec s = {.model = {.name = "tiny",
					   .arch = WB_ARCH_QWEN3_MOE,
					   .dtype = WB_BF16,
					   .layers = layers,
					   .hidden = 64,
					   .vocab = 256,
					   .heads = 4,
					   .kv_heads = 2,
					   .head_dim = 16,
					   .intermediate = 128,
					   .experts = 8,
					   .moe_intermediate = 32},
		.engines = 2,
		.gpus_per_node = 2,
		.rail_bytes_per_s = 1000000000};
	struct wb_plan_input in;
	struct wb_plan *p = NULL;
	struct wb_err err = {0};

	ck_assert_msg(!wb_parallel_parse(trainer, &s.trainer, &err), "%s", err.msg);
	ck_assert_msg(!wb_parallel_parse("sglang:tp4,ep4", &s.rollout, &err), "%s", err.msg);
	ck_assert_msg(!wb_deploy_create(&s, d, &err), "%s", err.msg);
	in = wb_deploy_input(*d);
	in.chunk_bytes = 4096;
	ck_assert_msg(!wb_plan_create(&in, &p, &err), "%s", err.msg);
	return p;
}

START_TEST(the_bytes_are_those_of_the_golden_file)
{
	struct wb_deploy *d;
	struct wb_plan *p = plan_of_layers(3, "megatron:tp2,ep2", &d);
	struct wb_plan_slice *slice;
	struct wb_buf b;

	ck_assert_int_eq(fx_packed(p, &b, &slice), 1 + 5);
	fx_golden("plan-2.bin", b.data, b.len);
	wb_buf_finish(&b);
	wb_free(slice);
	wb_plan_destroy(p);
	wb_deploy_destroy(d);
}
END_TEST

/* Twice the layers, and eight times the experts' pieces: not more bytes. */
START_TEST(equal_tensors_are_one_record)
{
	static const char *const trainer[] = {"megatron:tp2,ep2", "fsdp2:4", "fsdp2:4,stacked"};
	uint64_t bytes[2][2];

	for (uint32_t i = 0; i < 2; i++) {
		struct wb_deploy *d;
		struct wb_plan *p = plan_of_layers(4 << i, trainer[_i], &d);
		struct wb_plan_slice *slice;
		struct wb_buf b;
		int n = fx_packed(p, &b, &slice);

		bytes[i][0] = p->n_segment;
		bytes[i][1] = 0;
		for (int k = 1; k < n; k++)
			bytes[i][1] += slice[k].bytes;
		/* Routes are of chunks, of which there are more. */
		for (uint32_t r = 0; r < p->n_route; r++)
			bytes[i][1] -= 24 * (1 + (p->worker[p->route[r].src].domain !=
							 p->worker[p->route[r].dst].domain));
		wb_buf_finish(&b);
		wb_free(slice);
		wb_plan_destroy(p);
		wb_deploy_destroy(d);
	}
	ck_assert_uint_gt(bytes[1][0], bytes[0][0] * 19 / 10);
	ck_assert_uint_le(bytes[1][1], bytes[0][1] + 256);
}
END_TEST

/* ---- what is in them ---- */

static void same_bytes(const struct wb_plan *a, const struct wb_plan *b)
{
	struct wb_buf x, y;

	wb_buf_init(&x, 1u << 28);
	wb_buf_init(&y, 1u << 28);
	ck_assert(!wb_plan_encode(a, &x));
	ck_assert(!wb_plan_encode(b, &y));
	ck_assert(x.len == y.len && !memcmp(x.data, y.data, x.len));
	ck_assert(wb_digest_eq(a->digest, b->digest));
	wb_buf_finish(&x);
	wb_buf_finish(&y);
}

/* Segments of a class, or none of them. */
static void same_class(const struct wb_plan *whole, const struct wb_plan *part, uint32_t c)
{
	const struct wb_class *x = &whole->cls[c], *y = &part->cls[c];
	uint32_t n = x->seg_end - x->seg_begin;
	bool is_own = false;

	for (uint32_t w = 0; w < whole->n_worker; w++)
		is_own |=
			whole->worker[w].domain == part->domain && wb_class_has_member(whole, x, w);
	ck_assert_uint_eq(y->seg_end - y->seg_begin, is_own ? n : 0);
	ck_assert(!is_own || !memcmp(&whole->segment[x->seg_begin], &part->segment[y->seg_begin],
				     n * sizeof(*whole->segment)));
	ck_assert_uint_eq(x->bytes, y->bytes);
	ck_assert_uint_eq(x->chunk_base, y->chunk_base);
	ck_assert_uint_eq(x->primary, y->primary);
	ck_assert_uint_eq(x->is_direct, y->is_direct);
	ck_assert_uint_eq(x->holder_end - x->holder_begin, y->holder_end - y->holder_begin);
}

static void check_part(const struct wb_plan *whole, const struct wb_plan *part)
{
	uint32_t n = 0;

	ck_assert(part->is_part && wb_digest_eq(whole->digest, part->digest));
	ck_assert_uint_eq(whole->n_class, part->n_class);
	ck_assert_uint_eq(whole->n_chunk, part->n_chunk);
	ck_assert_uint_eq(whole->chunk_bytes, part->chunk_bytes);
	ck_assert_uint_eq(whole->rollout_slot_min_bytes, part->rollout_slot_min_bytes);
	ck_assert(!memcmp(whole->worker, part->worker, whole->n_worker * sizeof(*whole->worker)));
	ck_assert(!memcmp(whole->member, part->member, whole->n_member * sizeof(*whole->member)));
	for (uint32_t c = 0; c < whole->n_class; c++)
		same_class(whole, part, c);
	for (uint32_t i = 0; i < whole->n_route; i++) {
		const struct wb_route *r = &whole->route[i];

		if (whole->worker[r->src].domain != part->domain &&
			whole->worker[r->dst].domain != part->domain)
			continue;
		ck_assert_uint_lt(n, part->n_route);
		ck_assert(!memcmp(r, &part->route[n++], sizeof(*r)));
	}
	ck_assert_uint_eq(n, part->n_route);
}

START_TEST(parts_together_are_the_plan_and_each_has_what_is_its_own)
{
	struct fx_deploy d;
	struct wb_plan_slice *slice;
	struct wb_plan *p = NULL, *back = NULL;
	struct wb_err err = {0};
	struct wb_buf b;
	int n;

	fx_deploy_mixed(&d, first_seed + (uint64_t)_i);
	ck_assert_msg(!wb_plan_create(&d.in, &p, &err), "%s", err.msg);
	n = fx_packed(p, &b, &slice);
	for (int k = 1; k < n; k++) {
		struct wb_plan *part = fx_part(&b, slice, (uint32_t)k - 1);

		check_part(p, part);
		wb_plan_destroy(part);
	}
	ck_assert_msg(!wb_plan_decode(b.data, b.len, &back, &err), "%s", err.msg);
	same_bytes(p, back);
	ck_assert_msg(!wb_plan_check(back, d.m, d.in.layout, &err), "%s", err.msg);
	wb_plan_destroy(back);
	wb_plan_destroy(p);
	wb_buf_finish(&b);
	wb_free(slice);
	fx_deploy_finish(&d);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(no_damaged_byte_of_a_packed_plan_is_taken)
{
	struct fx f;
	struct wb_plan *got;
	struct wb_plan_slice *slice;

	fx_init(&f);
	for (size_t n = 0; n < f.b.len; n++) {
		ck_assert_int_eq(wb_plan_decode(f.b.data, n, &got, NULL), -EBADMSG);
		ck_assert_int_eq(wb_plan_slices(f.b.data, n, &slice, NULL), -EBADMSG);
	}
	for (size_t bit = 0; bit < 8 * f.b.len; bit++) {
		f.b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_msg(wb_plan_decode(f.b.data, f.b.len, &got, NULL) == -EBADMSG, "byte %zu",
			bit / 8);
		f.b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	fx_finish(&f);
}
END_TEST

/* Sums over a part keep what is damaged from being read at all: here they are right again. */
START_TEST(what_is_damaged_before_it_was_summed_is_in_range_or_refused)
{
	struct fx f;
	struct wb_plan *got;
	uint32_t n_taken = 0;

	fx_init(&f);
	for (int k = 1; k < f.n; k++) {
		uint8_t *part = f.b.data + f.slice[k].at;
		uint8_t *entry = f.b.data + f.slice[0].bytes - (size_t)(f.n - k) * 24;

		for (size_t bit = 0; bit < 8 * f.slice[k].bytes; bit++) {
			struct wb_digest sum;

			part[bit / 8] ^= (uint8_t)(1 << bit % 8);
			ck_assert_int_eq(unpack(&f, k, UINT64_MAX, &got, NULL), -EBADMSG);
			sum = wb_digest_of(part, f.slice[k].bytes);
			memcpy(entry + 8, &sum.hi, 8);
			memcpy(entry + 16, &sum.lo, 8);
			if (!unpack(&f, k, 1u << 20, &got, NULL)) {
				n_taken++;
				wb_plan_destroy(got);
			}
			part[bit / 8] ^= (uint8_t)(1 << bit % 8);
			memcpy(entry + 8, &f.slice[k].digest.hi, 8);
			memcpy(entry + 16, &f.slice[k].digest.lo, 8);
		}
	}
	ck_assert_uint_gt(n_taken, 0);
	fx_finish(&f);
}
END_TEST

START_TEST(a_part_of_another_plan_is_refused_by_the_head)
{
	struct fx a, b;
	struct wb_plan *got = NULL;
	struct wb_err err = {0};

	fx_init(&a);
	fx_init(&b);
	wb_plan_destroy(b.p);
	wb_buf_finish(&b.b);
	wb_free(b.slice);
	b.s.in.chunk_bytes = 1024;
	ck_assert(!wb_plan_create(&b.s.in, &b.p, NULL));
	fx_packed(b.p, &b.b, &b.slice);
	for (int k = 1; k < a.n; k++) {
		struct wb_plan_piece head = {a.b.data, a.slice[0].bytes};
		struct wb_plan_piece part = {b.b.data + b.slice[k].at, b.slice[k].bytes};

		ck_assert_int_eq(wb_plan_unpack(head, part, UINT64_MAX, &got, &err), -EBADMSG);
		ck_assert_ptr_nonnull(strstr(err.msg, "a part of another plan"));
	}
	fx_finish(&a);
	fx_finish(&b);
}
END_TEST

START_TEST(memory_is_counted_before_it_is_taken)
{
	struct fx f;
	struct wb_plan *got = NULL;
	struct wb_err err = {0};
	unsigned long long need, have;
	uint64_t least;

	fx_init(&f);
	ck_assert_int_eq(unpack(&f, 1, 100, &got, &err), -EFBIG);
	ck_assert_int_eq(sscanf(err.msg, "the plan takes %llu bytes here, and %llu are left for it",
				 &need, &have),
		2);
	ck_assert_uint_eq(have, 100);
	least = f.p->n_worker * sizeof(*f.p->worker) + f.p->n_class * sizeof(*f.p->cls);
	ck_assert_uint_gt(need, least);
	ck_assert_int_eq(unpack(&f, 1, need - 1, &got, &err), -EFBIG);
	ck_assert_int_eq(unpack(&f, 1, need, &got, &err), 0);
	ck_assert_uint_eq(need, least + sizeof(*got) + got->n_layout * sizeof(*got->layout) +
					got->n_member * sizeof(*got->member) +
					got->n_segment * sizeof(*got->segment) +
					got->n_route * sizeof(*got->route));
	wb_plan_destroy(got);
	fx_finish(&f);
}
END_TEST

START_TEST(a_worker_of_another_agent_is_not_bound)
{
	struct fx f;
	struct wb_plan *part;
	struct wb_binding *b = NULL;
	struct wb_err err = {0};

	fx_init(&f);
	part = fx_part(&f.b, f.slice, f.p->worker[0].domain);
	for (uint32_t w = 0; w < f.p->n_worker; w++) {
		bool is_own = f.p->worker[w].domain == part->domain;
		int rc = wb_binding_create(
			part, f.s.m, f.s.layout[f.p->worker[w].layout], w, &b, &err);

		ck_assert_int_eq(rc, is_own ? 0 : WB_EPLAN);
		if (is_own)
			wb_binding_destroy(b);
	}
	wb_plan_destroy(part);
	fx_finish(&f);
}
END_TEST

START_TEST(allocation_failures_leave_outputs_untouched)
{
	struct fx f;
	struct wb_plan *got;
	struct wb_plan_slice *slice;
	struct wb_buf b;
	int rc = -ENOMEM;

	fx_init(&f);
	for (uint64_t n = 1; rc; n++) {
		got = (void *)1;
		wb_mem_fail_at(n);
		rc = unpack(&f, 1, UINT64_MAX, &got, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || (rc == -ENOMEM && got == (void *)1));
	}
	wb_plan_destroy(got);
	rc = -ENOMEM;
	for (uint64_t n = 1; rc; n++) {
		got = (void *)1;
		wb_mem_fail_at(n);
		rc = wb_plan_decode(f.b.data, f.b.len, &got, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || (rc == -ENOMEM && got == (void *)1));
	}
	wb_plan_destroy(got);
	rc = -ENOMEM;
	for (uint64_t n = 1; rc < 0; n++) {
		slice = (void *)1;
		wb_mem_fail_at(n);
		rc = wb_plan_slices(f.b.data, f.b.len, &slice, NULL);
		wb_mem_fail_at(0);
		ck_assert(rc > 0 || (rc == -ENOMEM && slice == (void *)1));
	}
	wb_free(slice);
	rc = -ENOMEM;
	for (uint64_t n = 1; rc; n++) {
		wb_buf_init(&b, 1 << 20);
		wb_mem_fail_at(n);
		rc = wb_plan_pack(f.p, &b);
		wb_mem_fail_at(0);
		ck_assert(rc == 0 || rc == -ENOMEM);
		wb_buf_finish(&b);
	}
	fx_finish(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("planner_parts");
	TCase *c = tcase_create("parts");
	const char *seed = getenv("WB_SEED");

	first_seed = seed ? strtoull(seed, NULL, 0) : 1;
	printf("seeds %llu and on (WB_SEED)\n", (unsigned long long)first_seed);
	suite_add_tcase(s, c);
	tcase_add_test(c, the_bytes_are_those_of_the_golden_file);
	tcase_add_loop_test(c, equal_tensors_are_one_record, 0, 3);
	fx_add_points(c, parts_together_are_the_plan_and_each_has_what_is_its_own, 0, 100);
	tcase_add_test(c, no_damaged_byte_of_a_packed_plan_is_taken);
	tcase_add_test(c, what_is_damaged_before_it_was_summed_is_in_range_or_refused);
	tcase_add_test(c, a_part_of_another_plan_is_refused_by_the_head);
	tcase_add_test(c, memory_is_counted_before_it_is_taken);
	tcase_add_test(c, a_worker_of_another_agent_is_not_bound);
	tcase_add_test(c, allocation_failures_leave_outputs_untouched);
	return fx_run(s);
}
