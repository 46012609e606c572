/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs transport on a libibverbs whose devices do as they are told: registering memory, and
 * opening and closing devices. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_job.h"
#include "tests/common/fx_verbs.h"
#include "xport/verbs/host.h"

#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)
#define LONG_NS (200 * WB_NS_PER_MS) /* slow enough for something to happen */

/* The fake with devices as they should be. */
static void open_pair(struct fx_xport *f)
{
	fx_open(f, "verbs", &(struct fx_opts){.mem_bytes = 17 * MIB});
	fx_join(f);
}

/* Ask for the chunk and answer; who waits for what comes of it is the caller. */
static void begin(struct fx_xport *f, struct fx_job *j, uint64_t cookie)
{
	struct wb_xport_event *e = fx_ask(f, j, cookie, NULL);
	struct wb_xport_write w = fx_write_of(j, e->grant, NULL);

	ck_assert_int_eq(wb_xport_write(f->src.x, e->conn, &w), 0);
}

static struct fakeverbs_rule any(void)
{
	return (struct fakeverbs_rule){.device = FAKEVERBS_ANY,
		.port = FAKEVERBS_ANY,
		.opcode = FAKEVERBS_ANY,
		.count = 1};
}

/* ---- registering --------------------------------------------------------------------------------
 */

static struct wb_xport_region memory_of(const struct fx_side *s)
{
	return (struct wb_xport_region){
		.object = FX_OBJECT, .fd = s->mem_fd, .base = s->mem, .bytes = s->mem_bytes};
}

START_TEST(registering_takes_time_and_stops_nobody)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fx_job *j;
	uint64_t t0;

	open_pair(&f);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	v->slow(LONG_NS);
	r = memory_of(&f.src);
	t0 = wb_now_ns(&wb_clock_real);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &f.src.region, &err), 0);
	ck_assert_uint_lt(wb_now_ns(&wb_clock_real) - t0, LONG_NS / 2);
	j = fx_job_make(&f, MIB, 3, 1);
	fx_job_run(&f, j, true); /* the answer waits */
	ck_assert_uint_ge(wb_now_ns(&wb_clock_real) - t0, LONG_NS);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(memory_that_cannot_be_registered_is_refused_by_its_code)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fakeverbs_counts n;
	struct fx_job *j;
	int at = 0;

	open_pair(&f);
	do { /* or it would be the receiver's that fails */
		usleep(1000);
		v->count(&n);
	} while (n.registered_bytes < 4 * f.src.mem_bytes);
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	v->break_calls("ibv_reg_mr", ENOMEM, 1);
	r = memory_of(&f.src);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &f.src.region, &err), 0);
	j = fx_job_make(&f, MIB, 3, 1);
	begin(&f, j, 1);
	fx_wait(&f, &f.dst, WB_XP_REFUSED, 1);
	ck_assert_int_eq(fx_take(&f.dst, WB_XP_REFUSED, &at)->code, -ENOMEM);
	fx_wait(&f, &f.src, WB_XP_WRITE_DONE, 1);
	at = 0;
	ck_assert_int_eq(fx_take(&f.src, WB_XP_WRITE_DONE, &at)->code, -ENOMEM);
	/* Registered anew, it is read. */
	ck_assert_int_eq(wb_xport_region_remove(f.src.x, f.src.region), 0);
	ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &f.src.region, &err), 0);
	begin(&f, j, 2);
	fx_wait(&f, &f.dst, WB_XP_ARRIVED, 1);
	ck_assert(fx_job_arrived(j));
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

START_TEST(a_region_that_comes_and_goes_before_it_is_registered_is_let_go)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_region r;
	struct wb_err err = {0};
	struct fx_xport f;
	struct fx_job *j;
	uint32_t id;

	open_pair(&f);
	v->slow(WB_NS_PER_MS);
	r = memory_of(&f.src);
	r.bytes = 4096;
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(wb_xport_region_add(f.src.x, &r, &id, &err), 0);
		ck_assert_int_eq(wb_xport_region_remove(f.src.x, id), 0);
	}
	j = fx_job_make(&f, MIB, 3, 1);
	fx_job_run(&f, j, true);
	fx_job_free(j);
	fx_close(&f);
}
END_TEST

/* ---- devices ------------------------------------------------------------------------------------
 */

static int try_open(const char *addr, struct wb_err *err)
{
	struct wb_xport_rail rail = {.addr = addr};
	struct wb_xport_opts o = {.name = "a", .rail = &rail, .n_rail = 1};
	struct wb_xport *x = NULL;
	int rc = wb_xport_open("verbs", &o, &x, err);

	wb_xport_close(rc ? NULL : x);
	return rc;
}

START_TEST(a_device_that_cannot_be_opened_is_left_out)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_err err = {0};

	v->break_calls("ibv_open_device", EACCES, 1);
	ck_assert_int_eq(try_open("127.0.0.1:0", &err), 0);
	v->break_calls("ibv_open_device", EACCES, 2);
	ck_assert_int_eq(try_open("127.0.0.1:0", &err), -ENODEV);
	ck_assert_msg(strstr(err.msg, "no RDMA: no device") != NULL, "%s", err.msg);
	v->limit(0, 0, 31); /* a queue that holds too little to work with */
	ck_assert_int_eq(try_open("127.0.0.1:0", &err), -ENODEV);
	v->limit(0, 0, 32);
	ck_assert_int_eq(try_open("127.0.0.1:0", &err), 0);
}
END_TEST

START_TEST(rails_may_name_their_device)
{
	struct wb_err err = {0};

	fx_verbs_fresh();
	ck_assert_int_eq(try_open("fake1@127.0.0.1:0", &err), 0);
	ck_assert_int_eq(try_open("fake1/1@127.0.0.1:0", &err), 0);
	ck_assert_int_eq(try_open("fake1/2@127.0.0.1:0", &err), -ENODEV);
	ck_assert_msg(strstr(err.msg, "that rails name") != NULL, "%s", err.msg);
	ck_assert_int_eq(try_open("fake2@127.0.0.1:0", &err), -ENODEV);
	ck_assert_msg(strstr(err.msg, "no device 'fake2', which rail 0 names"), "%s", err.msg);
}
END_TEST

/* Each object has a domain of its own, and the table of them is full: no function of libibverbs has
 * failed, so what errno held before says nothing. */
START_TEST(an_object_too_many_ends_its_connection_for_lack_of_memory)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct wb_xport_epoch e = fx_epoch;
	struct fakeverbs_counts n;
	struct wb_err err = {0};
	struct fx_xport f;
	uint32_t id;

	open_pair(&f);
	for (uint64_t i = 1; i < WB__DOMAINS_MAX; i++) {
		struct wb_xport_region r = memory_of(&f.dst);

		r.object = FX_OBJECT + i;
		r.bytes = 4096;
		ck_assert_int_eq(wb_xport_region_add(f.dst.x, &r, &id, &err), 0);
	}
	do { /* of the receiver and of the source, on both devices */
		usleep(1000);
		v->count(&n);
	} while (n.pds < 2 * (WB__DOMAINS_MAX + 1));
	e.id.object.uid = e.id.object.hash = FX_OBJECT + WB__DOMAINS_MAX;
	ck_assert_int_eq(wb_xport_epoch_add(f.src.x, &e, &err), 0);
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &e, &err), 0);
	(void)fx_dial(&f, &e, "src");
	fx_wait(&f, &f.dst, WB_XP_CONN_DOWN, 1);
	ck_assert_msg(f.dst.ev[f.dst.n_ev - 1].code == -ENOMEM, "%s", f.dst.reason);
	fx_close(&f);
}
END_TEST

START_TEST(an_encrypted_epoch_is_refused_by_name)
{
	struct wb_xport_epoch e = fx_epoch;
	struct wb_err err = {0};
	struct fx_xport f;

	fx_verbs_fresh();
	fx_open(&f, "verbs", &(struct fx_opts){0});
	e.id.number++;
	e.is_encrypted = true;
	ck_assert_int_eq(wb_xport_epoch_add(f.dst.x, &e, &err), -ENOTSUP);
	ck_assert_msg(strstr(err.msg, "encryption is TLS") != NULL, "%s", err.msg);
	fx_close(&f);
}
END_TEST

START_TEST(nothing_is_left_when_it_closes)
{
	const struct fx_verbs *v = fx_verbs_fresh();
	struct fakeverbs_counts n;
	struct fakeverbs_rule r = any();
	struct fx_xport f;
	struct fx_job *j;

	open_pair(&f);
	r.after = 3;
	r.status = IBV_WC_RETRY_EXC_ERR;
	v->rule(&r);
	j = fx_job_make(&f, 16 * MIB, 300, 1);
	fx_job_run(&f, j, true);
	begin(&f, j, 7); /* and one under way */
	fx_close(&f);
	fx_job_free(j);
	v->count(&n);
	ck_assert_int_eq(n.qps, 0);
	ck_assert_int_eq(n.cqs, 0);
	ck_assert_int_eq(n.channels, 0);
	ck_assert_int_eq(n.mrs, 0);
	ck_assert_int_eq(n.pds, 0);
	ck_assert_int_eq(n.contexts, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xport_verbs_devices");
	TCase *c = tcase_create("xport_verbs_devices");

	suite_add_tcase(s, c);
	tcase_add_test(c, registering_takes_time_and_stops_nobody);
	tcase_add_test(c, memory_that_cannot_be_registered_is_refused_by_its_code);
	tcase_add_test(c, a_region_that_comes_and_goes_before_it_is_registered_is_let_go);
	tcase_add_test(c, a_device_that_cannot_be_opened_is_left_out);
	tcase_add_test(c, rails_may_name_their_device);
	tcase_add_test(c, an_object_too_many_ends_its_connection_for_lack_of_memory);
	tcase_add_test(c, an_encrypted_epoch_is_refused_by_name);
	tcase_add_test(c, nothing_is_left_when_it_closes);
	return fx_run(s);
}
