/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rc_semantics [DEVICE DEVICE]   What the verbs transport relies on, of any libibverbs.
 *
 * Two RC queue pairs, on the first two devices or those named, in one process.  Each case is a
 * claim; "ok NAME" or "FAILED NAME: ...".  The fake (tests/fakeverbs) and devices have to agree, so
 * nothing here knows which of them it is.  Exit status: 0, 1 failed, 77 fewer than two devices.
 */
#include "tests/roce/rc_pair.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static void a_read_brings_what_the_other_side_has(void)
{
	struct pair p;
	struct request r;
	struct ibv_wc wc;

	open_usual(&p);
	r = read_of(&p, 0, BYTES);
	r.id = 77;
	must(!post(&p, &r));
	wc = wait_wc(&p.a);
	must(wc.status == IBV_WC_SUCCESS && wc.wr_id == 77 && wc.opcode == IBV_WC_RDMA_READ);
	must(!memcmp(p.a.buf, p.b.buf, BYTES));
	close_pair(&p);
}

static void more_reads_than_may_be_under_way_are_taken_and_end_in_order(void)
{
	struct pair p;

	open_usual(&p);
	for (uint32_t i = 0; i < WRS; i++) {
		struct request r = read_of(&p, i * 4096, 4096);

		r.id = i;
		must(!post(&p, &r));
	}
	for (uint32_t i = 0; i < WRS && !is_failing(); i++) {
		struct ibv_wc wc = wait_wc(&p.a);

		must(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
	}
	must(!memcmp(p.a.buf, p.b.buf, WRS * 4096));
	close_pair(&p);
}

static void a_signalled_read_tells_of_those_before_it(void)
{
	struct pair p;
	struct ibv_wc wc;

	open_usual(&p);
	for (uint32_t i = 0; i < 8; i++) {
		struct request r = read_of(&p, i * 65536, 65536);

		r.id = i;
		r.is_quiet = i < 7;
		must(!post(&p, &r));
	}
	wc = wait_wc(&p.a);
	must(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7);
	must(!memcmp(p.a.buf, p.b.buf, 8 * 65536));
	must(!ibv_poll_cq(p.a.cq, 1, &wc));
	close_pair(&p);
}

static void an_error_flushes_what_comes_after_it(void)
{
	struct pair p;
	struct request bad;
	struct ibv_wc wc;

	open_usual(&p);
	memset(p.a.buf, 0xee, BYTES);
	bad = read_of(&p, 0, 4096);
	bad.rkey ^= 0x55;
	must(!post(&p, &bad));
	for (uint32_t i = 1; i < 4; i++) {
		struct request r = read_of(&p, 0, 4096);

		r.id = i;
		r.is_quiet = true; /* what fails is told, signalled or not */
		must(!post(&p, &r));
	}
	must(wait_wc(&p.a).status == IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 1; i < 4 && !is_failing(); i++) {
		wc = wait_wc(&p.a);
		must(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i);
	}
	must(p.a.buf[0] == 0xee && !memcmp(p.a.buf, p.a.buf + 1, BYTES - 1));
	close_pair(&p);
}

static void beyond_the_region_is_refused(void)
{
	struct pair p;
	struct request r;

	open_usual(&p);
	r = read_of(&p, BYTES - 4096, 4096);
	r.remote++;
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	close_pair(&p);
}

static void a_region_without_the_right_is_not_read(void)
{
	struct pair p;
	struct request r;

	open_pair(&p, IBV_ACCESS_LOCAL_WRITE, 0, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	close_pair(&p);
}

static void who_may_read_may_not_write(void)
{
	struct pair p;
	struct request r;
	uint8_t before;

	open_usual(&p);
	before = p.b.buf[0];
	p.a.buf[0] = (uint8_t)~before;
	r = read_of(&p, 0, 4096);
	r.opcode = IBV_WR_RDMA_WRITE;
	must(!post(&p, &r));
	must(wait_wc(&p.a).status != IBV_WC_SUCCESS);
	must(p.b.buf[0] == before);
	close_pair(&p);
}

static void a_region_of_another_domain_is_not_read(void)
{
	struct pair p;
	struct request r;
	struct ibv_pd *other;
	struct ibv_mr *mr;

	open_usual(&p);
	other = ibv_alloc_pd(p.b.ctx);
	mr = ibv_reg_mr(other, p.b.buf, BYTES, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	r.rkey = mr->rkey;
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	must(!ibv_dereg_mr(mr));
	must(!ibv_dealloc_pd(other));
	close_pair(&p);
}

/* Two objects of one agent have a domain each, on the same devices. */
static void a_key_is_worth_nothing_on_a_queue_pair_of_another_domain(void)
{
	struct pair p, other;
	struct request r;

	open_usual(&p);
	open_usual(&other);
	r = read_of(&other, 0, 4096);
	r.rkey = p.b.mr->rkey;
	r.remote = (uintptr_t)p.b.buf;
	expect_status(&other, &r, IBV_WC_REM_ACCESS_ERR);
	r = read_of(&p, 0, 4096); /* and it was a good one */
	expect_status(&p, &r, IBV_WC_SUCCESS);
	close_pair(&other);
	close_pair(&p);
}

static void a_key_is_worth_nothing_when_its_region_is_gone(void)
{
	struct pair p;
	struct request r;

	open_usual(&p);
	r = read_of(&p, 0, 4096);
	must(!ibv_dereg_mr(p.b.mr));
	p.b.mr = NULL;
	expect_status(&p, &r, IBV_WC_REM_ACCESS_ERR);
	close_pair(&p);
}

static void a_landing_must_be_writable_and_registered(void)
{
	struct pair p;
	struct request r;

	open_pair(&p, 0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	must(!post(&p, &r));
	must(wait_wc(&p.a).status != IBV_WC_SUCCESS);
	close_pair(&p);
}

static void nobody_there_is_an_error_after_a_finite_time(void)
{
	struct pair p;
	struct request r;
	double t0, budget = (1 + RETRIES) * 4.096e-6 * (1 << TIMEOUT);

	open_usual(&p);
	r = read_of(&p, 0, 4096);
	must(!ibv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	t0 = now();
	expect_status(&p, &r, IBV_WC_RETRY_EXC_ERR);
	must(now() - t0 > budget / 2 && now() - t0 < 10 * budget);
	close_pair(&p);
}

static void nothing_lands_when_the_queue_pair_is_gone(void)
{
	struct pair p;

	open_usual(&p);
	for (uint32_t i = 0; i < 8; i++) {
		struct request r = read_of(&p, i * 131072, 131072);

		must(!post(&p, &r));
	}
	must(!ibv_destroy_qp(p.a.qp));
	p.a.qp = NULL;
	memset(p.a.buf, 0xee, BYTES);
	for (int i = 0; i < 2000; i++) /* 0.1 s and more: as long as all of it takes */
		nap();
	must(p.a.buf[0] == 0xee && !memcmp(p.a.buf, p.a.buf + 1, BYTES - 1));
	close_pair(&p);
}

static void nothing_lands_in_a_queue_pair_in_error(void)
{
	struct pair p;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	uint32_t told = 0;

	open_usual(&p);
	for (uint32_t i = 0; i < 8; i++) {
		struct request r = read_of(&p, i * 131072, 131072);

		must(!post(&p, &r));
	}
	must(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE));
	for (; told < 8 && !is_failing(); told++)
		wait_wc(&p.a); /* success or flushed, but each is told */
	memset(p.a.buf, 0xee, BYTES);
	for (int i = 0; i < 2000; i++)
		nap();
	must(p.a.buf[0] == 0xee && !memcmp(p.a.buf, p.a.buf + 1, BYTES - 1));
	close_pair(&p);
}

static void nothing_is_posted_before_it_is_connected(void)
{
	struct pair p;
	struct request r;

	open_side(&p.a, 0, IBV_ACCESS_LOCAL_WRITE);
	open_side(&p.b, 1, IBV_ACCESS_REMOTE_READ);
	r = read_of(&p, 0, 4096);
	must(post(&p, &r));
	must(!to_init(&p.a, 0));
	must(post(&p, &r));
	close_pair(&p);
}

static void an_armed_queue_wakes_who_sleeps(void)
{
	struct pair p;
	struct request r;
	struct pollfd f;
	struct ibv_cq *cq;
	void *user;

	open_usual(&p);
	must(!ibv_req_notify_cq(p.a.cq, 0));
	r = read_of(&p, 0, 4096);
	must(!post(&p, &r));
	f = (struct pollfd){.fd = p.a.channel->fd, .events = POLLIN};
	must(poll(&f, 1, (int)(PATIENCE_S * 1000)) == 1);
	must(!ibv_get_cq_event(p.a.channel, &cq, &user) && cq == p.a.cq);
	ibv_ack_cq_events(cq, 1);
	must(wait_wc(&p.a).status == IBV_WC_SUCCESS);
	close_pair(&p);
}

static void what_is_used_is_not_let_go(void)
{
	struct pair p;

	open_usual(&p);
	must(ibv_dealloc_pd(p.a.pd) == EBUSY);
	must(ibv_destroy_cq(p.a.cq) == EBUSY);
	close_pair(&p);
}

static const struct rc_case cases[] = {CASE(a_read_brings_what_the_other_side_has),
	CASE(more_reads_than_may_be_under_way_are_taken_and_end_in_order),
	CASE(a_signalled_read_tells_of_those_before_it), CASE(an_error_flushes_what_comes_after_it),
	CASE(beyond_the_region_is_refused), CASE(a_region_without_the_right_is_not_read),
	CASE(who_may_read_may_not_write), CASE(a_region_of_another_domain_is_not_read),
	CASE(a_key_is_worth_nothing_on_a_queue_pair_of_another_domain),
	CASE(a_key_is_worth_nothing_when_its_region_is_gone),
	CASE(a_landing_must_be_writable_and_registered),
	CASE(nobody_there_is_an_error_after_a_finite_time),
	CASE(nothing_lands_when_the_queue_pair_is_gone),
	CASE(nothing_lands_in_a_queue_pair_in_error),
	CASE(nothing_is_posted_before_it_is_connected), CASE(an_armed_queue_wakes_who_sleeps),
	CASE(what_is_used_is_not_let_go)};

static size_t run_windows(size_t *n)
{
	const struct rc_case *c = window_cases(n);

	return run_cases(c, *n);
}

int main(int argc, char **argv)
{
	size_t n = sizeof(cases) / sizeof(cases[0]), n_window = 0, failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3)
		on_devices(argv[1], argv[2]);
	failed = run_cases(cases, n);
	if (has_windows())
		failed += run_windows(&n_window);
	else
		printf("no memory windows of type 2B\n");
	printf("%zu passed, %zu failed\n", n + n_window - failed, failed);
	return failed ? 1 : 0;
}
