/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as it comes to an agent, piece by piece: what is taken, and what is refused by name. */
#include "daemon/intake.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_plan.h"
#include "tests/common/fx_small.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PIECE 100
#define ENOUGH (1u << 20)

static struct fx_small small;
static struct wb_plan *plan;
static struct wb_buf packed, listed;
static struct wb_plan_slice *slice;
static struct wb__intake in;
static struct wb_err err;

static void set_up(void)
{
	plan = fx_small_plan(&small);
	fx_packed(plan, &packed, &slice);
	wb_buf_init(&listed, 1 << 20);
	ck_assert(!wb_plan_encode(plan, &listed));
	in = (struct wb__intake){0};
	err = (struct wb_err){0};
}

static void tear_down(void)
{
	wb__intake_clear(&in);
	wb_buf_finish(&packed);
	wb_buf_finish(&listed);
	wb_free(slice);
	wb_plan_destroy(plan);
	fx_small_finish(&small);
}

static int piece_comes(enum wb_content kind, const uint8_t *data, struct wb_plan_slice s,
	uint64_t at, uint64_t memory_max)
{
	struct wb_msg_content m = {.kind = kind,
		.digest = s.digest,
		.total_bytes = s.bytes,
		.offset = at,
		.data = (void *)(uintptr_t)(data + s.at + at),
		.n_data = (uint32_t)WB_MIN(PIECE, s.bytes - at)};

	return wb__intake_add(&in, &m, memory_max, &err);
}

static void comes(
	enum wb_content kind, const uint8_t *data, struct wb_plan_slice s, uint64_t memory_max)
{
	for (uint64_t at = 0; at < s.bytes; at += PIECE)
		ck_assert_msg(!piece_comes(kind, data, s, at, memory_max), "%s", err.msg);
}

static void parts_come(uint64_t memory_max)
{
	comes(WB_CONTENT_HEAD, packed.data, slice[0], memory_max);
	comes(WB_CONTENT_PART, packed.data, slice[2], memory_max);
}

/* PLAN comes: 0 when it is that plan. */
static int plan_comes(struct wb_digest head, struct wb_digest digest, uint64_t memory_max)
{
	const struct wb_msg_plan m = {.digest = digest, .head = head};
	struct wb_plan *got = NULL;
	int rc = wb__intake_plan(&in, &m, memory_max, &got, &err);

	if (rc == 0) {
		ck_assert(wb_digest_eq(got->digest, plan->digest));
		ck_assert_int_eq(got->is_part, !wb_digest_is_none(head));
		wb_plan_destroy(got);
	}
	return rc;
}

START_TEST(head_and_part_or_the_list_are_the_plan)
{
	struct wb_plan_slice whole = {0, listed.len, plan->digest};

	parts_come(ENOUGH);
	ck_assert_msg(!plan_comes(slice[0].digest, plan->digest, ENOUGH), "%s", err.msg);
	wb__intake_clear(&in);
	comes(WB_CONTENT_PLAN, listed.data, whole, ENOUGH);
	ck_assert_msg(!plan_comes((struct wb_digest){0}, plan->digest, ENOUGH), "%s", err.msg);
}
END_TEST

/* A newer plan may come instead of the rest. */
START_TEST(a_piece_that_does_not_follow_is_refused_and_a_new_beginning_is_not)
{
	const struct wb_plan_slice s = slice[0];
	struct wb_plan_slice other = s;

	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, s, PIECE, ENOUGH), -EBADMSG);
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, s, 0, ENOUGH), 0);
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, s, (uint64_t)2 * PIECE, ENOUGH),
		-EBADMSG);
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, s, 0, ENOUGH), 0);
	other.digest.lo++;
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, other, PIECE, ENOUGH), -EBADMSG);
	other.bytes++;
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, s, 0, ENOUGH), 0);
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, other, 0, ENOUGH), 0);
	parts_come(ENOUGH);
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, ENOUGH), 0);
	ck_assert_int_eq(piece_comes(WB_CONTENT_MAP, packed.data, s, 0, ENOUGH), -EBADMSG);
	ck_assert_str_eq(err.msg, "CONTENT of kind 2 is not for agents");
}
END_TEST

START_TEST(what_has_not_come_whole_is_refused)
{
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, ENOUGH), -EBADMSG);
	comes(WB_CONTENT_HEAD, packed.data, slice[0], ENOUGH);
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, ENOUGH), -EBADMSG);
	ck_assert_int_eq(piece_comes(WB_CONTENT_PART, packed.data, slice[1], 0, ENOUGH), 0);
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, ENOUGH), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.msg, "has not come whole"));
}
END_TEST

START_TEST(another_plan_or_head_than_plan_names_is_refused)
{
	struct wb_digest other = plan->digest;

	other.hi++;
	parts_come(ENOUGH);
	ck_assert_int_eq(plan_comes(slice[0].digest, other, ENOUGH), WB_EPLAN);
	ck_assert_int_eq(plan_comes(other, plan->digest, ENOUGH), -EBADMSG);
	/* It says that it is the right one, and is not. */
	packed.data[slice[0].bytes - 1] ^= 1;
	parts_come(ENOUGH);
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, ENOUGH), WB_EPLAN);
	ck_assert_str_eq(err.msg, "the head of the plan does not have the digest it came under");
}
END_TEST

START_TEST(what_is_too_large_is_not_kept_and_refused_with_figures)
{
	uint64_t both = slice[0].bytes + slice[2].bytes;
	char want[200];

	parts_come(both - 1);
	ck_assert_ptr_null(in.part.data);
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, both - 1), -EFBIG);
	snprintf(want, sizeof(want),
		"this agent's part of the plan comes in %llu bytes, and %llu are left for it",
		(unsigned long long)both, (unsigned long long)both - 1);
	ck_assert_str_eq(err.msg, want);
	/* More room by then does not bring it back. */
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, ENOUGH), -EFBIG);
	wb__intake_clear(&in);
	parts_come(both);
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, 100), -EFBIG);
	ck_assert_ptr_nonnull(strstr(err.msg, "the plan takes "));
	ck_assert_int_eq(plan_comes(slice[0].digest, plan->digest, ENOUGH), 0);
}
END_TEST

START_TEST(the_senders_word_takes_no_memory)
{
	struct wb_plan_slice s = slice[0];

	s.bytes = 1u << 30;
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, s, 0, UINT64_MAX), 0);
	ck_assert_uint_le(in.head.cap, 4 * PIECE);
	s.bytes = UINT64_MAX;
	ck_assert_int_eq(piece_comes(WB_CONTENT_HEAD, packed.data, s, 0, UINT64_MAX), 0);
	ck_assert_ptr_null(in.head.data);
	ck_assert_int_eq(piece_comes(WB_CONTENT_PART, packed.data, s, 0, UINT64_MAX), 0);
	ck_assert_ptr_null(in.part.data);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("daemon_intake");
	TCase *tc = tcase_create("intake");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, head_and_part_or_the_list_are_the_plan);
	tcase_add_test(tc, a_piece_that_does_not_follow_is_refused_and_a_new_beginning_is_not);
	tcase_add_test(tc, what_has_not_come_whole_is_refused);
	tcase_add_test(tc, another_plan_or_head_than_plan_names_is_refused);
	tcase_add_test(tc, what_is_too_large_is_not_kept_and_refused_with_figures);
	tcase_add_test(tc, the_senders_word_takes_no_memory);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
