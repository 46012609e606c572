/* SPDX-License-Identifier: Apache-2.0 */
/* A rail of verbs whose loop takes no events: completions wait in their queue until there is room
 * for all that they may say.  There are no devices: the completion queue is the test's. */
#include "base/mem.h"
#include "tests/common/fx_check.h"
#include "xport/verbs/verbs.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define LANES 8
#define QPS (LANES * WBP_BULK_QPS)
/* Of a lane: a chunk for each READ that may be out. */
#define SLOTS (WBP_BULK_QPS * WB__READS_MAX)
#define CHUNKS (LANES * SLOTS)

/* All queue pairs are full of READs that are whole chunks.  They were posted together, as after the
 * loss of other queue pairs, so the last one of each has a completion for all. */
static struct {
	struct wb__xport_stream x;
	struct wb__host host;
	struct wb__verbs_rail vr;
	struct wb__rail_qp qp[WB__RAIL_QPS];
	struct wb__rail r;
	struct wb__sock sock[LANES];
	struct wb__lane lane[LANES];
	struct wb__memory landing;
	struct wb__op op[CHUNKS];
	struct ibv_cq cq;
	struct ibv_context ctx;
	uint32_t n_polled;
	uint8_t said[CHUNKS]; /* events of each chunk */
	uint8_t byte; /* of every landing */
	struct iovec to;
} * w;

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int n = 0;

	(void)cq;
	for (; n < max && w->n_polled < QPS; n++, w->n_polled++)
		wc[n] = (struct ibv_wc){.wr_id = w->n_polled | (uint64_t)WB__READS_MAX << 32,
			.status = IBV_WC_SUCCESS};
	return n;
}

static void begin_chunk(uint32_t i, uint32_t slot, struct wb__lane *l, uint32_t k, bool is_dead)
{
	struct wb__op *op = &w->op[i];
	struct wb__flight *f = &l->flight[slot];
	struct wb__part *p = &l->part[slot];
	struct wb__qp *q = &l->qp[k];

	op->id = slot;
	op->bytes = 1;
	op->iov = &w->to;
	op->n_iov = 1;
	op->flip_bit = UINT64_MAX;
	op->is_dead = is_dead;
	l->s->grant[slot] = op;
	l->s->n_grant++;
	*f = (struct wb__flight){.op = op, .first = p, .left = 1, .n_out = 1, .has_trailer = true};
	f->last = &p->after;
	*p = (struct wb__part){.f = f, .bytes = 1, .memory = &w->landing, .seq = ++q->seq};
	*q->tail = p;
	q->tail = &p->next;
	q->n_out++;
	q->bytes_out++;
	w->vr.n_out[0]++;
}

static void begin_lane(uint32_t i, bool is_dead)
{
	struct wb__sock *s = &w->sock[i];
	struct wb__lane *l = &w->lane[i];

	*s = (struct wb__sock){
		.rail = &w->r, .is_dialer = true, .n_slot = SLOTS, .state = WB__S_UP, .link = l};
	s->tx_cap = SLOTS * WBP_BULK_FRAME_MAX;
	s->txb = wb_alloc(s->tx_cap);
	s->grant = wb_zalloc(SLOTS, sizeof(*s->grant));
	ck_assert(s->txb && s->grant);
	l->s = s;
	ck_assert_int_eq(wb__take_open(l), 0);
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		uint32_t number = i * WBP_BULK_QPS + k;

		l->qp[k] = (struct wb__qp){.state = WB__QP_UP, .number = number};
		l->qp[k].tail = &l->qp[k].head;
		w->qp[number] = (struct wb__rail_qp){.lane = l, .k = k};
		for (uint32_t j = 0; j < WB__READS_MAX; j++) {
			uint32_t slot = k * WB__READS_MAX + j;

			begin_chunk(i * SLOTS + slot, slot, l, k, is_dead);
		}
	}
}

static void open_rail(bool is_dead)
{
	w = wb_zalloc(1, sizeof(*w));
	ck_assert_ptr_nonnull(w);
	w->x.o.clock = &wb_clock_real;
	w->x.o.piece_bytes = 1;
	w->x.signalled = 1; /* nobody is to be woken */
	w->r.x = &w->x;
	w->r.index = 1; /* not the one that looks for devices */
	w->r.link = &w->vr;
	w->r.late_tail = &w->r.late_head;
	w->r.wake_ns = UINT64_MAX;
	ck_assert_int_eq(wb_ring_init(&w->r.ev, WB__RING_ITEMS, sizeof(struct wb__ev)), 0);
	w->vr.h = &w->host;
	w->vr.qp = w->qp;
	w->vr.look_ns = UINT64_MAX;
	w->host.n_device = 1;
	w->cq.context = &w->ctx;
	w->ctx.ops.poll_cq = poll_cq;
	w->vr.cq[0] = &w->cq;
	w->landing.refs = CHUNKS + 1;
	w->to = (struct iovec){&w->byte, 1};
	for (uint32_t i = 0; i < LANES; i++)
		begin_lane(i, is_dead);
}

static void close_rail(void)
{
	for (uint32_t i = 0; i < LANES; i++) {
		wb__take_close(&w->lane[i]);
		wb_free(w->sock[i].txb);
		wb_free(w->sock[i].grant);
	}
	wb_ring_finish(&w->r.ev);
	wb_free(w);
}

/* As the loop does: take what there is, and see that each chunk says what it has to, in order. */
static void take_events(bool is_dead)
{
	struct wb__ev e;

	while (!wb_ring_pop(&w->r.ev, &e)) {
		uint8_t *said;

		if (!e.op)
			continue; /* one of those that were in the way */
		said = &w->said[e.op - w->op];
		ck_assert_int_eq(e.kind, !is_dead ? WB__EV_ARRIVED
					 : *said  ? WB__EV_RETIRED
						  : WB__EV_CANCELLED);
		++*said;
	}
}

static const uint32_t rooms[] = {0, 1, CHUNKS / 2, CHUNKS, CHUNKS + 8 * WB__READS_MAX,
	2 * CHUNKS - 1, 2 * CHUNKS, 3 * CHUNKS, WB__RING_ITEMS};

START_TEST(a_batch_of_completions_finds_room_for_all_that_it_says)
{
	bool is_dead = _i % 2;
	uint32_t room = rooms[_i / 2];
	struct wb__ev e = {.kind = WB__EV_GRANT};

	open_rail(is_dead);
	for (uint32_t i = room; i < WB__RING_ITEMS; i++)
		ck_assert_int_eq(wb_ring_push(&w->r.ev, &e), 0);
	(void)wb__verbs_rail_poll(&w->r);
	ck_assert_ptr_null(w->r.late_head);
	take_events(is_dead);
	(void)wb__verbs_rail_poll(&w->r); /* now there is room */
	take_events(is_dead);
	for (uint32_t i = 0; i < CHUNKS; i++)
		ck_assert_uint_eq(w->said[i], is_dead ? 2 : 1);
	close_rail();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_room");
	TCase *c = tcase_create("xport_verbs_room");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, a_batch_of_completions_finds_room_for_all_that_it_says, 0,
		2 * (int)WB_ARRAY_SIZE(rooms));
	return fx_run(s);
}
