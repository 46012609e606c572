/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics by object: who has some, that they are bounded, and what they say of suspended ones. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

#define N_SERIES 16

static struct wb_buf page;

static void open_set_up(void)
{
	start_serve((struct wb_serve_opts){.n_series = N_SERIES}, (struct wb_serve_env){0});
	wb_buf_init(&page, 16 << 20);
}

static void none_set_up(void)
{
	start_serve((struct wb_serve_opts){0}, (struct wb_serve_env){0});
	wb_buf_init(&page, 16 << 20);
}

static void job_set_up(void)
{
	set_up_serve();
	wb_buf_init(&page, 16 << 20);
}

static void figures_tear_down(void)
{
	wb_buf_finish(&page);
	tear_down_serve();
}

static void put(const char *ns, int i)
{
	struct wb_err err = {0};
	char object[64];

	snprintf(object, sizeof(object), "%s/o%d", ns, i);
	ck_assert_int_eq(
		put_spec(object_spec(object, ""), (struct wb_serve_object_desc){.uid = 7}, &err),
		0);
}

static const char *look(void)
{
	wb_buf_reset(&page);
	wb_serve_metrics(s, &page);
	return wb_buf_cstr(&page);
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)) != NULL; text++)
		n++;
	return n;
}

#define ASSERT_HAS(what) ck_assert_msg(strstr(look(), (what)) != NULL, "no %s in\n%s", what, look())
#define ASSERT_HAS_NO(what) ck_assert_msg(!strstr(look(), (what)), "%s in\n%s", what, look())

/* One tenant has many objects: its own are cut, another's not, and no object is counted nowhere. */
START_TEST(a_namespace_leaves_names_for_others)
{
	for (int i = 0; i < 200; i++)
		put("big", i);
	ck_assert_uint_eq(
		count(look(), "wb_object_state{object_namespace=\"big\""), N_SERIES / 2 * 3);
	for (int i = 0; i < 3; i++)
		put("small", i);
	ck_assert_uint_eq(count(look(), "wb_object_state{object_namespace=\"small\""), 3 * 3);
	ASSERT_HAS(
		"wb_object_state{object_namespace=\"small\",object=\"o2\",state=\"NotReady\"} 1\n");
	ASSERT_HAS("wb_object_state{object_namespace=\"other\",object=\"other\",state=\"NotReady\"}"
		   " 192\n");
	ASSERT_HAS("wb_objects 203\n");
	for (int ns = 0; ns < 60; ns++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", ns);
		put(name, 0);
	}
	ck_assert_uint_eq(count(look(), "state=\"NotReady\"} 1\n"), N_SERIES);
}
END_TEST

/* Its series go with it, and its place is free for the next; what is counted together stays. */
START_TEST(an_object_takes_its_series_along)
{
	for (int i = 0; i < 10; i++)
		put("ns", i);
	ASSERT_HAS("object=\"o7\"");
	ASSERT_HAS_NO("object=\"o8\"");
	wb_serve_remove(s, "ns/o7", "it was deleted");
	ASSERT_HAS_NO("object=\"o7\"");
	ASSERT_HAS("wb_object_state{object_namespace=\"other\",object=\"other\",state=\"NotReady\"}"
		   " 2\n");
	put("ns", 20);
	ASSERT_HAS("object=\"o20\"");
}
END_TEST

START_TEST(no_object_is_named_where_none_is_wanted)
{
	put("ns", 0);
	ASSERT_HAS_NO("\"ns\"");
	ASSERT_HAS("wb_object_state{object_namespace=\"other\",object=\"other\",state=\"NotReady\"}"
		   " 1\n");
}
END_TEST

static void suspend(bool is)
{
	struct wb_err err = {0};
	size_t n = 0;
	struct wb_spec *spec = load_specs(spec_text, &n);

	spec->suspend = is;
	ck_assert_int_eq(wb_serve_update(s, spec, n, &err), 0);
	wb_free(spec);
}

#define OF_A "{object_namespace=\"default\",object=\"a\""

/* What an alert asks for is not so of a suspended object: neither it nor its engines. */
START_TEST(a_suspended_object_is_told_from_one_that_is_not_ready)
{
	struct wb_p_engine_state e = {.engine = "e1", .version = 60, .state = WB_ENGINE_COMMITTED};
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {1, 1},
		.transfer = 6,
		.version = 60,
		.state = WB_REPORT_FINAL,
		.is_final = true,
		.engines = &e,
		.n_engines = 1};

	ASSERT_HAS("wb_object_state" OF_A ",state=\"NotReady\"} 1\n");
	run_job_to_active();
	ASSERT_HAS("wb_object_state" OF_A ",state=\"Ready\"} 1\n");
	ASSERT_HAS("wb_object_engines" OF_A ",state=\"Behind\"} 1\n");
	ASSERT_HAS("wb_object_workers" OF_A "} 2\n");
	suspend(true);
	ASSERT_HAS("wb_object_state" OF_A ",state=\"NotReady\"} 0\n");
	ASSERT_HAS("wb_object_state" OF_A ",state=\"Suspended\"} 1\n");
	ASSERT_HAS("wb_object_engines" OF_A ",state=\"Behind\"} 0\n");
	ASSERT_HAS("wb_object_engines" OF_A ",state=\"Suspended\"} 1\n");
	ASSERT_HAS("wb_objects_suspended 1\n");
	suspend(false);
	ASSERT_HAS("wb_object_state" OF_A ",state=\"Suspended\"} 0\n");
	agent_says(&train, WBP_REPORT, &m);
	ASSERT_HAS("wb_object_transfers_total" OF_A ",result=\"Succeeded\"} 1\n");
	ASSERT_HAS("wb_transfers_total{result=\"Succeeded\"} 1\n");
	end_wire(&train);
	end_wire(&roll);
	free_model();
}
END_TEST

/* The engine has said how the transfer ended for it, and its coordinator says nothing. */
START_TEST(a_transfer_that_its_coordinator_does_not_end_is_counted_once)
{
	struct wb_p_engine_state e = {
		.engine = "e1", .version = -1, .state = WB_ENGINE_TORN, .code = WB_ETORN};
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {1, 1},
		.transfer = 6,
		.version = 60,
		.state = WB_REPORT_STARTED,
		.begin_wall_ns = 1};

	run_job_to_active();
	agent_says(&train, WBP_REPORT, &m);
	m.state = WB_REPORT_ENGINE;
	m.engines = &e;
	m.n_engines = 1;
	agent_says(&roll, WBP_REPORT, &m);
	ASSERT_HAS_NO("wb_object_transfers_total" OF_A ",result=\"Torn\"} 1\n");
	clk.now += 6 * S;
	wb_serve_tick(s);
	ASSERT_HAS("wb_object_transfers_total" OF_A ",result=\"Torn\"} 1\n");
	m.state = WB_REPORT_FINAL_TORN;
	m.is_final = true;
	agent_says(&train, WBP_REPORT, &m);
	ASSERT_HAS("wb_object_transfers_total" OF_A ",result=\"Torn\"} 1\n");
	ASSERT_HAS("wb_transfers_total{result=\"Torn\"} 1\n");
	end_wire(&train);
	end_wire(&roll);
	free_model();
}
END_TEST

/* Each agent tells of its workers when it gets to it. */
START_TEST(chunks_that_were_sent_again_count_though_the_transfer_is_over)
{
	struct wb_p_engine_state e = {.engine = "e1", .version = 60, .state = WB_ENGINE_COMMITTED};
	struct wb_p_worker_report w = {.worker = 1,
		.stop_ns = S,
		.resume_ns = 2 * S,
		.resent_chunks = 3,
		.mismatched_chunks = 2};
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {1, 1},
		.transfer = 6,
		.version = 60,
		.state = WB_REPORT_FINAL,
		.is_final = true,
		.engines = &e,
		.n_engines = 1};

	run_job_to_active();
	agent_says(&train, WBP_REPORT, &m);
	m.state = WB_REPORT_WORKERS;
	m.is_final = false;
	m.n_engines = 0;
	m.workers = &w;
	m.n_workers = 1;
	for (int i = 0; i < 2; i++) { /* the second time after a reconnection */
		agent_says(&roll, WBP_REPORT, &m);
		ASSERT_HAS("wb_chunks_retried_total 3\n");
		ASSERT_HAS("wb_checksum_mismatches_total 2\n");
	}
	end_wire(&train);
	end_wire(&roll);
	free_model();
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("serve_figures");
	TCase *tc;

	tc = tcase_create("bounded");
	tcase_add_checked_fixture(tc, open_set_up, figures_tear_down);
	tcase_add_test(tc, a_namespace_leaves_names_for_others);
	tcase_add_test(tc, an_object_takes_its_series_along);
	suite_add_tcase(su, tc);
	tc = tcase_create("none");
	tcase_add_checked_fixture(tc, none_set_up, figures_tear_down);
	tcase_add_test(tc, no_object_is_named_where_none_is_wanted);
	suite_add_tcase(su, tc);
	tc = tcase_create("job");
	tcase_add_checked_fixture(tc, job_set_up, figures_tear_down);
	tcase_add_test(tc, a_suspended_object_is_told_from_one_that_is_not_ready);
	tcase_add_test(tc, a_transfer_that_its_coordinator_does_not_end_is_counted_once);
	tcase_add_test(tc, chunks_that_were_sent_again_count_though_the_transfer_is_over);
	suite_add_tcase(su, tc);
	return su;
}

int main(void)
{
	return fx_run(suite());
}
