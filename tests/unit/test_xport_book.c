/* SPDX-License-Identifier: Apache-2.0 */
/* The book of a transport, without a transport: what it promises whatever comes, in any order. */
#include "base/hash.h"
#include "tests/common/fx_check.h"
#include "xport/book.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT 7
#define LANES 3
#define SLOTS 2
#define DEPTH 5

static struct wb__book book; /* of the receiver, or of the source */
static uint8_t memory[8192] __attribute__((aligned(4096)));
static struct iovec range = {memory, 1000};
static struct wb_xport_event ev;

static void begin(uint32_t caps)
{
	memset(&book, 0, sizeof(book));
	wb__book_init(&book, 8, caps);
}

static struct wb__account *conn_of(bool is_dialer)
{
	struct wb_xport_conn_info info = {.is_dialer = is_dialer,
		.epoch = {{.uid = OBJECT, .hash = OBJECT}, 1, 2},
		.n_socket = LANES,
		.depth = DEPTH};
	struct wb__account *c = calloc(1, sizeof(*c));

	ck_assert_int_eq(wb__book_open(&book, c, &info, LANES, SLOTS), 0);
	return c;
}

static struct wb__account *up(bool is_dialer)
{
	struct wb__account *c = conn_of(is_dialer);

	wb__book_up(c, &ev);
	ck_assert_int_eq(ev.kind, WB_XP_CONN_UP);
	ck_assert_uint_eq(ev.conn, c->id);
	return c;
}

static void end(struct wb__account *c)
{
	wb__account_finish(c);
	free(c);
	wb__book_finish(&book);
}

static int grant(struct wb__account *c, uint64_t cookie, struct wb__entry *e)
{
	struct wb_xport_grant g = {
		.cookie = cookie, .chunk.bytes = range.iov_len, .iov = &range, .n_iov = 1};
	int rc = wb__book_grant(&book, c->id, &g, e);

	if (!rc)
		wb__book_commit(&book, e);
	return rc;
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

START_TEST(number_of_a_connection_does_not_come_back_soon)
{
	wb_conn_t seen[1000];

	begin(0);
	for (int i = 0; i < 1000; i++) {
		struct wb__account *c = conn_of(i % 2);

		seen[i] = c->id;
		ck_assert_ptr_eq(wb__book_get(&book, c->id), c);
		for (int k = 0; k < i; k++)
			ck_assert(seen[k] != c->id);
		wb__book_drop(&book, c);
		ck_assert_ptr_null(wb__book_get(&book, seen[i]));
		wb__account_finish(c);
		free(c);
	}
	wb__book_finish(&book);
}
END_TEST

START_TEST(no_more_connections_than_agreed)
{
	struct wb_xport_conn_info info = {.depth = 1};
	struct wb__account *c[8], extra = {0};

	begin(0);
	for (int i = 0; i < 8; i++)
		c[i] = conn_of(true);
	ck_assert_int_eq(wb__book_open(&book, &extra, &info, 1, 1), -ENOSPC);
	wb__book_drop(&book, c[3]);
	ck_assert_int_eq(wb__book_open(&book, &extra, &info, 1, 1), 0);
	wb__account_finish(&extra);
	for (int i = 0; i < 8; i++) {
		wb__account_finish(c[i]);
		free(c[i]);
	}
	wb__book_finish(&book);
}
END_TEST

START_TEST(epoch_is_known_as_it_is_or_not_at_all)
{
	struct wb_xport_epoch e = {.id = {{.uid = OBJECT, .hash = OBJECT}, 1, 2}, .key = {9}};
	struct wb_err err = {0};

	begin(0);
	ck_assert_int_eq(wb__book_epoch_known(&book, &e, &err), 0);
	ck_assert_int_eq(wb__book_epoch_put(&book, &e, &err), 0);
	ck_assert_int_eq(wb__book_epoch_known(&book, &e, &err), 1);
	e.key[31] = 1;
	ck_assert_int_eq(wb__book_epoch_known(&book, &e, &err), -EEXIST);
	e.key[31] = 0;
	e.is_encrypted = true;
	ck_assert_int_eq(wb__book_epoch_known(&book, &e, &err), -EEXIST);
	for (e.id.number = 3; e.id.number < 2 + WB__EPOCHS_MAX; e.id.number++)
		ck_assert_int_eq(wb__book_epoch_put(&book, &e, &err), 0);
	ck_assert_int_eq(wb__book_epoch_put(&book, &e, &err), -ENOSPC);
	e.id.number = 2;
	ck_assert_int_eq(wb__book_epoch_forget(&book, &e.id), 0);
	ck_assert_int_eq(wb__book_epoch_forget(&book, &e.id), -ENOENT);
	ck_assert_ptr_null(wb__book_epoch_find(&book, &e.id));
	ck_assert_ptr_null(wb__book_epoch_named(&book, OBJECT, 1, 2));
	for (size_t i = 0; i < sizeof(e.key); i++) /* its key is nowhere any more */
		ck_assert_uint_eq(book.epoch[WB__EPOCHS_MAX - 1].key[i], 0);
	for (e.id.number = 3; e.id.number < 2 + WB__EPOCHS_MAX; e.id.number++)
		ck_assert_ptr_nonnull(wb__book_epoch_named(&book, OBJECT, 1, e.id.number));
	wb__book_finish(&book);
}
END_TEST

/* ---- grants -----------------------------------------------------------------------------------
 */

START_TEST(grants_spread_over_lanes_up_to_the_depth)
{
	struct wb__account *c;
	struct wb__entry e;
	int n[LANES] = {0};

	begin(0);
	c = up(true);
	for (uint64_t i = 0; i < DEPTH; i++) {
		ck_assert_int_eq(grant(c, i, &e), 0);
		ck_assert_uint_eq(wb__book_lane(c, e.op), e.lane);
		ck_assert_ptr_eq(wb__book_op(c, e.lane, e.id), e.op);
		n[e.lane]++;
	}
	for (int i = 0; i < LANES; i++)
		ck_assert_int_ge(n[i], 1);
	ck_assert_int_eq(grant(c, 99, &e), -EAGAIN);
	end(c);
}
END_TEST

START_TEST(the_lane_with_least_to_do_gets_the_next_and_equal_ones_take_turns)
{
	struct iovec large = {memory, 8000}, small = range;
	struct wb__entry e, of[LANES];
	struct wb__account *c;

	begin(0);
	c = up(true);
	for (uint32_t i = 0; i < 2 * LANES; i++) { /* one at a time */
		ck_assert_int_eq(grant(c, i, &e), 0);
		ck_assert_uint_eq(e.lane, i % LANES);
		ck_assert(wb__book_ended(c, e.op, WB__ARRIVED, &ev));
	}
	for (uint32_t i = 0; i < LANES; i++) {
		range = i == 1 ? small : large;
		ck_assert_int_eq(grant(c, i, &of[i]), 0);
	}
	range = small;
	ck_assert_int_eq(grant(c, LANES, &e), 0);
	ck_assert_uint_eq(e.lane, of[1].lane);
	end(c);
}
END_TEST

START_TEST(a_connection_that_ends_takes_nothing)
{
	struct wb_xport_chunk chunk = {.bytes = 1000};
	struct wb_xport_write w = {.iov = &range, .n_iov = 1};
	struct wb__account *c, *source;
	struct wb__entry e;

	begin(0);
	c = up(true);
	source = up(false);
	ck_assert_int_eq(grant(c, 1, &e), 0);
	ck_assert_int_eq(wb__book_asked(source, 0, 1, &chunk, &ev), 1);
	w.grant = ev.grant;
	ck_assert(wb__book_close(c, -ECONNRESET, "gone"));
	ck_assert(wb__book_close(source, -ECONNRESET, "gone"));
	ck_assert_int_eq(grant(c, 2, &e), -ENOTCONN);
	ck_assert_int_eq(wb__book_cancel(&book, c->id, 1, &e), -ENOTCONN);
	ck_assert_int_eq(wb__book_write(&book, source->id, &w, &e), -ENOTCONN);
	ck_assert_int_eq(wb__book_refuse(&book, source->id, w.grant, -EIO, &e), -ENOTCONN);
	ck_assert_int_eq(wb__book_asked(source, 1, 1, &chunk, &ev), 0);
	wb__account_finish(source);
	free(source);
	end(c);
}
END_TEST

START_TEST(what_could_not_be_sent_was_not_asked_for)
{
	struct wb_xport_grant g = {.chunk.bytes = range.iov_len, .iov = &range, .n_iov = 1};
	struct wb__account *c;
	struct wb__entry e;

	begin(0);
	c = up(true);
	for (int i = 0; i < 3 * DEPTH; i++) {
		ck_assert_int_eq(wb__book_grant(&book, c->id, &g, &e), 0);
		wb__book_abandon(&book, &e);
		ck_assert_ptr_null(wb__book_op(c, e.lane, e.id));
	}
	for (uint64_t i = 0; i < DEPTH; i++)
		ck_assert_int_eq(grant(c, i, &e), 0);
	ck_assert_int_eq(wb__book_cancel(&book, c->id, 2, &e), 0);
	wb__book_abandon(&book, &e);
	ck_assert_int_eq(wb__book_cancel(&book, c->id, 2, &e), 0); /* not -EALREADY */
	end(c);
}
END_TEST

/* Until the source has answered, its bytes may be on their way to the slot of a cancelled grant. */
START_TEST(slot_of_a_cancelled_grant_waits_for_the_answer)
{
	struct wb__account *c;
	struct wb__entry e, first, again;

	begin(0);
	c = up(true);
	c->info.depth = LANES * SLOTS; /* so that no slot is to spare */
	ck_assert_int_eq(grant(c, 0, &first), 0);
	for (uint64_t i = 1; i < LANES * SLOTS; i++)
		ck_assert_int_eq(grant(c, i, &e), 0);
	ck_assert_int_eq(wb__book_cancel(&book, c->id, 0, &e), 0);
	wb__book_commit(&book, &e);
	ck_assert_int_eq(wb__book_cancel(&book, c->id, 0, &e), -EALREADY);
	ck_assert_int_eq(grant(c, 9, &again), -EAGAIN);
	ck_assert(wb__book_ended(c, first.op, WB__CANCELLED, &ev));
	ck_assert_int_eq(ev.kind, WB_XP_CANCELLED);
	ck_assert_int_eq(wb__book_cancel(&book, c->id, 0, &e), -ENOENT);
	ck_assert_int_eq(grant(c, 9, &again), -EAGAIN);
	ck_assert(!wb__book_ended(c, first.op, WB__RETIRED, &ev));
	ck_assert_int_eq(grant(c, 9, &again), 0);
	ck_assert_ptr_eq(again.op, first.op);
	ck_assert_uint_ne(again.id, first.id);
	ck_assert_ptr_null(wb__book_op(c, first.lane, first.id));
	end(c);
}
END_TEST

START_TEST(peer_that_asks_for_a_slot_in_use_breaks_the_rules)
{
	struct wb_xport_chunk chunk = {.bytes = 1000};
	struct wb__account *c;

	begin(0);
	c = up(false);
	ck_assert_int_eq(wb__book_asked(c, 1, 1 | 5 << 16, &chunk, &ev), 1);
	ck_assert_int_eq(ev.kind, WB_XP_GRANT);
	ck_assert_int_eq(wb__book_asked(c, 1, 1 | 6 << 16, &chunk, &ev), -EPROTO);
	ck_assert_int_eq(wb__book_asked(c, 1, SLOTS, &chunk, &ev), -EPROTO);
	ck_assert_int_eq(wb__book_asked(c, LANES, 0, &chunk, &ev), -EPROTO);
	/* Nor one whose first slot would be that of the first lane, were it counted in 32 bits. */
	ck_assert_int_eq(wb__book_asked(c, 1u << 31, 0, &chunk, &ev), -EPROTO);
	ck_assert_int_eq(wb__book_asked(c, 0, 1ull << WB__LANE_SHIFT, &chunk, &ev), -EPROTO);
	ck_assert(!wb__book_gone(c, 1, 1 | 6 << 16, &ev));
	ck_assert(wb__book_gone(c, 1, 1 | 5 << 16, &ev));
	ck_assert_int_eq(wb__book_asked(c, 1, 1 | 6 << 16, &chunk, &ev), 1);
	end(c);
}
END_TEST

/* ---- regions ----------------------------------------------------------------------------------
 */

static int answer(struct wb__account *c, uint64_t id, const struct iovec *iov, struct wb__entry *e)
{
	struct wb_xport_chunk chunk = {.bytes = 1000};
	struct wb_xport_write w = {.iov = iov, .n_iov = 1};

	ck_assert_int_eq(wb__book_asked(c, 0, id, &chunk, &ev), 1);
	w.grant = ev.grant;
	return wb__book_write(&book, c->id, &w, e);
}

START_TEST(an_answer_is_the_whole_chunk_or_a_refusal)
{
	struct iovec shorter = {memory, 999}, longer = {memory, 1001};
	struct wb__account *c;
	struct wb__entry e;

	begin(0);
	c = up(false);
	ck_assert_int_eq(answer(c, 0, &shorter, &e), -EINVAL);
	ck_assert_int_eq(answer(c, 1, &longer, &e), -EINVAL);
	ck_assert_int_eq(wb__book_refuse(&book, c->id, ev.grant, 0, &e), -EINVAL);
	ck_assert_int_eq(wb__book_refuse(&book, c->id, ev.grant, -EIO, &e), 0);
	wb__book_commit(&book, &e);
	ck_assert_int_eq(wb__book_refuse(&book, c->id, ev.grant, -EIO, &e), -ENOENT);
	end(c);
}
END_TEST

/* Half of it lies in a region: that one is not held by what is not sent. */
START_TEST(a_write_that_is_refused_holds_no_region)
{
	struct wb_xport_region r = {.object = OBJECT, .base = memory, .bytes = 4096};
	struct iovec halves[] = {{memory, 500}, {memory + 4096, 500}};
	struct wb_xport_write w = {.iov = halves, .n_iov = 2};
	struct wb_xport_chunk chunk = {.bytes = 1000};
	struct wb__account *c;
	struct wb_err err = {0};
	struct wb__entry e;
	uint32_t id;

	begin(WB_XPORT_CAP_REGIONS);
	c = up(false);
	ck_assert_int_eq(wb__book_region_put(&book, &r, &id, &err), 0);
	ck_assert_int_eq(wb__book_asked(c, 0, 0, &chunk, &ev), 1);
	w.grant = ev.grant;
	ck_assert_int_eq(wb__book_write(&book, c->id, &w, &e), -EINVAL);
	ck_assert_int_eq(wb__book_region_drop(&book, id), 0);
	end(c);
}
END_TEST

#define GPU .gpu.is_there = true
static const struct {
	struct wb_xport_region r;
	const char *says; /* "" = it is taken */
} records[] = {
	{{.base = memory, .bytes = 4096, .fd = -1}, ""},
	{{.base = memory, .bytes = 4096, .direction = WB_XPORT_LANDING}, ""},
	{{.base = memory, .bytes = 4096, .direction = (enum wb_xport_direction)3},
		"no direction 3"},
	{{.base = memory, .fd = -1}, "an empty region"},
	{{.base = memory, .bytes = 4096, .fd = -1, .gpu.pci = "0000:01:00.0"},
		"the host's memory, and says where a GPU is"},
	{{.base = memory, .bytes = 4096, .fd = -1, .gpu.any_nic = true}, "the host's memory, and"},
	{{.base = memory, .bytes = 4096, .fd = -1, .gpu.dmabuf_off = 1}, "the host's memory, and"},
	{{.base = memory, .bytes = 4096, .fd = -1, GPU, .gpu.dmabuf_fd = -1}, ""},
	{{.base = memory, .bytes = 4096, .fd = 0, GPU, .gpu.dmabuf_fd = -1}, "has a memfd"},
	{{.base = memory, .bytes = 4096, .fd = -1, GPU, .gpu.dmabuf_off = 8192}, ""},
	{{.base = memory, .bytes = 4096, .fd = -1, GPU, .gpu.dmabuf_off = 8193},
		"begins at 0x2001 of its dma-buf"},
	{{.base = memory, .bytes = 4096, .fd = -1, GPU, .gpu.pci = "../x"},
		"a PCI address that sysfs does not know"},
	{{.base = memory, .bytes = 4096, .fd = -1, GPU, .gpu.pci = "0123456789abcdef"},
		"a PCI address that sysfs does not know"},
};

START_TEST(a_record_of_a_region_makes_sense_or_is_refused_by_its_field)
{
	struct wb_err err = {0};
	uint32_t id;
	int rc;

	begin(WB_XPORT_CAP_REGIONS);
	rc = wb__book_region_put(&book, &records[_i].r, &id, &err);
	ck_assert_int_eq(rc, records[_i].says[0] ? -EINVAL : 0);
	ck_assert_msg(strstr(err.msg, records[_i].says) != NULL, "%s", err.msg);
	if (!rc)
		ck_assert_int_eq(wb__book_region_drop(&book, id), 0);
	wb__book_finish(&book);
}
END_TEST

START_TEST(region_stays_while_a_write_uses_it)
{
	struct wb_xport_region r = {.object = OBJECT, .base = memory, .bytes = 4096};
	struct iovec outside = {memory + 4000, 1000};
	struct wb__account *c, *ended;
	struct wb_err err = {0};
	struct wb__entry e;
	uint32_t id;

	begin(WB_XPORT_CAP_REGIONS);
	c = up(false);
	ck_assert_int_eq(wb__book_region_put(&book, &r, &id, &err), 0);
	ck_assert_int_eq(answer(c, 0 | 1 << 16, &range, &e), 0);
	ck_assert_int_eq(wb__book_region_drop(&book, id), -EBUSY);
	wb__book_abandon(&book, &e);
	ck_assert_int_eq(wb__book_region_drop(&book, id), 0);
	ck_assert_int_eq(wb__book_region_drop(&book, id), -ENOENT);

	ck_assert_int_eq(wb__book_region_put(&book, &r, &id, &err), 0);
	ck_assert_int_eq(answer(c, 1 | 1 << 16, &outside, &e), -EINVAL);
	ck_assert(wb__book_gone(c, 0, 0 | 1 << 16, &ev));
	ck_assert_int_eq(answer(c, 0 | 2 << 16, &range, &e), 0);
	wb__book_commit(&book, &e);
	ck_assert_int_eq(wb__book_region_drop(&book, id), -EBUSY);
	wb__book_written(&book, c, e.op, 0, &ev);
	ck_assert_int_eq(ev.kind, WB_XP_WRITE_DONE);
	ck_assert_int_eq(wb__book_region_drop(&book, id), 0);

	ck_assert_int_eq(wb__book_region_put(&book, &r, &id, &err), 0);
	ck_assert_int_eq(answer(c, 0 | 3 << 16, &range, &e), 0);
	wb__book_commit(&book, &e);
	ck_assert(wb__book_close(c, -ECONNRESET, "gone"));
	ck_assert_int_eq(wb__book_region_drop(&book, id), -EBUSY); /* bytes may still move */
	wb__book_down(&book, c);
	ck_assert(wb__book_tell(&book, &ev, &ended));
	ck_assert_int_eq(ev.kind, WB_XP_WRITE_DONE);
	ck_assert_int_eq(wb__book_region_drop(&book, id), 0);
	ck_assert(wb__book_tell(&book, &ev, &ended));
	ck_assert_ptr_eq(ended, c);
	end(c);
}
END_TEST

/* ---- ends -------------------------------------------------------------------------------------
 */

START_TEST(connection_nobody_heard_of_ends_as_a_rejection)
{
	struct wb__account *c, *ended;

	begin(0);
	c = conn_of(false);
	ck_assert(wb__book_close(c, -EPROTO, "first"));
	ck_assert(!wb__book_close(c, -EIO, "second"));
	wb__book_down(&book, c);
	ck_assert(wb__book_tell(&book, &ev, &ended));
	ck_assert_int_eq(ev.kind, WB_XP_REJECTED);
	ck_assert_uint_eq(ev.conn, 0);
	ck_assert_int_eq(ev.code, -EPROTO);
	ck_assert_str_eq(ev.reason, "first");
	ck_assert(!wb__book_tell(&book, &ev, &ended));
	end(c);
}
END_TEST

#define STEPS 400

/* What became of each grant: its cookie is its place here. */
static int ends[STEPS];

static void count_end(void)
{
	ends[ev.cookie]++;
}

/* A rail that does anything it may, to any op, in any order. */
static void something_happens(struct wb__account *c, struct wb_rng *r)
{
	struct wb__op *op = &c->op[wb_rng_below(r, LANES * SLOTS)];
	struct wb__entry e;

	switch (op->state) {
	case WB__OP_OUT:
		if (!wb_rng_below(r, 3) && !wb__book_cancel(&book, c->id, op->cookie, &e))
			wb__book_commit(&book, &e);
		else if (wb__book_ended(c, op, wb_rng_below(r, 2) ? WB__ARRIVED : WB__REFUSED, &ev))
			count_end();
		break;
	case WB__OP_CANCELLING:
		/* The answer may have crossed with the cancel. */
		if (wb__book_ended(c, op, wb_rng_below(r, 2) ? WB__ARRIVED : WB__CANCELLED, &ev))
			count_end();
		break;
	case WB__OP_CANCELLED:
		ck_assert(!wb__book_ended(c, op, WB__RETIRED, &ev));
		break;
	default:
		break;
	}
}

START_TEST(each_grant_ends_once_whatever_happens)
{
	struct wb_rng r = {(uint64_t)_i + 1};
	struct wb__account *c, *ended = NULL;
	uint64_t n = 0;

	begin(0);
	memset(ends, 0, sizeof(ends));
	c = up(true);
	for (int i = 0; i < STEPS; i++) {
		struct wb__entry e;

		if (wb_rng_below(&r, 2) && !grant(c, n, &e))
			n++;
		else
			something_happens(c, &r);
	}
	ck_assert(wb__book_close(c, -ECONNRESET, "over"));
	wb__book_down(&book, c);
	while (!ended) {
		ck_assert(wb__book_tell(&book, &ev, &ended));
		if (ended)
			break;
		ck_assert_int_eq(ev.kind, WB_XP_LOST);
		count_end();
	}
	ck_assert_int_eq(ev.kind, WB_XP_CONN_DOWN);
	for (uint64_t i = 0; i < n; i++)
		ck_assert(ends[i] == 1);
	ck_assert_uint_gt(n, 20);
	end(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_book");
	TCase *c = tcase_create("book");

	suite_add_tcase(s, c);
	tcase_add_test(c, number_of_a_connection_does_not_come_back_soon);
	tcase_add_test(c, no_more_connections_than_agreed);
	tcase_add_test(c, epoch_is_known_as_it_is_or_not_at_all);
	tcase_add_test(c, grants_spread_over_lanes_up_to_the_depth);
	tcase_add_test(c, the_lane_with_least_to_do_gets_the_next_and_equal_ones_take_turns);
	tcase_add_test(c, a_connection_that_ends_takes_nothing);
	tcase_add_test(c, what_could_not_be_sent_was_not_asked_for);
	tcase_add_test(c, slot_of_a_cancelled_grant_waits_for_the_answer);
	tcase_add_test(c, peer_that_asks_for_a_slot_in_use_breaks_the_rules);
	tcase_add_test(c, an_answer_is_the_whole_chunk_or_a_refusal);
	tcase_add_test(c, a_write_that_is_refused_holds_no_region);
	tcase_add_loop_test(c, a_record_of_a_region_makes_sense_or_is_refused_by_its_field, 0,
		(int)WB_ARRAY_SIZE(records));
	tcase_add_test(c, region_stays_while_a_write_uses_it);
	tcase_add_test(c, connection_nobody_heard_of_ends_as_a_rejection);
	tcase_add_loop_test(c, each_grant_ends_once_whatever_happens, 0, 50);
	return fx_run(s);
}
