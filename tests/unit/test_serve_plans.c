/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's endpoint while a plan is on its way and something else happens. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

static struct wire other;

static void join(struct wire *w, const char *name, uint64_t instance, const char *engine)
{
	union wb_msg m;

	open_wire(w);
	hello(w, name, instance);
	expect(w, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
	say_workers(w, engine ? 2 : 1, engine);
}

static void give_contents(void)
{
	want(&train, manifest_digest);
	want(&train, map_digest);
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, map_digest, &map_bytes);
}

static void join_three(void)
{
	make_model();
	join(&train, "train", 11, NULL);
	join(&roll, "roll", 12, "e1");
	give_contents();
}

/* Whose end begins another. */
static void end_first_job(void)
{
	void (*old_work)(void *) = job_work, (*old_done)(void *) = job_done;
	void *old = job_cookie;

	job_work = NULL;
	old_work(old);
	old_done(old);
}

/* The job for the two is over before that for the three. */
static void join_third(void)
{
	join(&other, "other", 13, "e2");
	end_first_job();
}

static void end_three(void)
{
	end_both();
	end_wire(&other);
}

static void gets_plan(struct wire *w, uint64_t number, uint32_t n_agent)
{
	struct wb_msg_ready r = {.object = "default/a", .epoch = {1, number}};
	struct wb_digest head;
	struct wb_plan *plan = hear_share(w, &head);
	union wb_msg m;

	r.digest = plan->digest;
	wb_plan_destroy(plan);
	expect(w, WBP_PLAN, &m);
	ck_assert_uint_eq(m.plan.epoch.number, number);
	ck_assert_uint_eq(m.plan.n_agents, n_agent);
	wb_msg_free(WBP_PLAN, &m);
	agent_says(w, WBP_READY, &r);
}

START_TEST(agent_back_while_it_is_planned_costs_nobody_the_plan)
{
	join_three();
	join_third();
	end_wire(&roll);
	join(&roll, "roll", 12, "e1");
	run_job();
	gets_plan(&train, 1, 3);
	gets_plan(&roll, 1, 3);
	gets_plan(&other, 1, 3);
	activated(&train);
	activated(&roll);
	activated(&other);
	end_three();
}
END_TEST

/* One job of an object runs at a time: a newer one waits for it, and its plan is what counts. */
START_TEST(slow_job_does_not_take_the_place_of_a_newer_plan)
{
	void *old;
	struct wb_lent plan;

	join_three();
	old = job_cookie;
	join(&other, "other", 13, "e2");
	ck_assert_ptr_eq(job_cookie, old);
	end_first_job();
	ck_assert_ptr_nonnull(job_work);
	run_job();
	gets_plan(&train, 1, 3);
	gets_plan(&roll, 1, 3);
	gets_plan(&other, 1, 3);
	ck_assert(wb_serve_plan(s, "a", &plan));
	plan.put(plan.cookie);
	end_three();
}
END_TEST

static void suspend(void)
{
	struct wb_err err = {0};
	size_t n;
	struct wb_spec *spec = load_specs(spec_text, &n);

	spec->suspend = true;
	ck_assert_int_eq(wb_serve_update(s, spec, 1, &err), 0);
	wb_free(spec);
}

/* The next plan is there, and waits for a feed; it has other numbers. */
START_TEST(engines_that_are_fed_have_the_numbers_of_the_active_plan)
{
	struct wb_p_engine_state e = {.engine = "e2", .state = WB_ENGINE_COMMITTED};
	struct wb_msg_report rep = {.object = "default/a",
		.transfer = 6,
		.version = 6,
		.epoch = {1, 1},
		.state = WB_REPORT_ENGINE,
		.engines = &e,
		.n_engines = 1};
	struct wire first;
	union wb_msg m;

	join_three();
	join_third();
	run_job();
	gets_plan(&train, 1, 3);
	gets_plan(&roll, 1, 3);
	gets_plan(&other, 1, 3);
	activated(&train);
	agent_says(&other, WBP_REPORT, &rep);
	activated(&train); /* with the feed */
	join(&first, "first", 14, "e0");
	run_job();
	suspend();
	expect(&train, WBP_ACTIVATE, &m);
	ck_assert(m.activate.suspended);
	ck_assert_uint_eq(m.activate.n_feed, 1);
	ck_assert_uint_eq(m.activate.feed[0], 0);
	ck_assert_uint_eq(m.activate.feed_source[0], 1);
	wb_msg_free(WBP_ACTIVATE, &m);
	end_wire(&first);
	end_three();
}
END_TEST

/* ---- objects that have nothing to do with each other ---- */

static void two_objects(void)
{
	static const char text[] =
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
		"metadata: {name: a}\n"
		"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n---\n"
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
		"metadata: {name: b}\n"
		"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n";
	size_t n;
	struct wb_spec *spec = load_specs(text, &n);

	ck_assert_uint_eq(n, 2);
	start_serve((struct wb_serve_opts){.spec = spec, .n_spec = n}, (struct wb_serve_env){0});
	wb_free(spec);
}

static uint64_t term_told(const char *object, uint64_t heard)
{
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = "x",
		.host = "10.0.0.1",
		.port = 7444,
		.instance = 11,
		.term = heard,
		.term_operator = 99,
		.objects = &object,
		.n_objects = 1};
	struct wire w;
	union wb_msg m;
	uint64_t term;

	open_wire(&w);
	agent_says(&w, WBP_HELLO, &h);
	expect(&w, WBP_WELCOME, &m);
	term = m.welcome.term;
	wb_msg_free(WBP_WELCOME, &m);
	end_wire(&w);
	return term;
}

START_TEST(agent_has_no_say_in_the_terms_of_objects_it_does_not_serve)
{
	ck_assert_uint_eq(term_told("default/a", 40), 41);
	ck_assert_uint_eq(term_told("default/b", 0), 1);
}
END_TEST

/* One more would be no term. */
START_TEST(term_that_cannot_be_is_not_heard)
{
	ck_assert_uint_eq(term_told("default/a", UINT64_MAX), 1);
	ck_assert_uint_eq(term_told("default/a", 3), 4);
}
END_TEST

/* ---- rails that are lent ---- */

static struct wb_buf half_bytes[2];
static struct wb_digest half_digest[2];

/* Beside what all need: what needs one half of it. */
static void make_halves(void)
{
	for (uint64_t i = 0; i < 2; i++)
		half_digest[i] =
			fx_model_encode(i * MODEL_ROWS / 2, MODEL_ROWS / 2, &half_bytes[i]);
}

static void say_hello(struct wire *w, const char *name, uint64_t *rate, uint32_t n)
{
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = w->version ? w->version : WBP_VERSION_MAX,
		.agent = name,
		.node = name,
		.host = "10.0.0.1",
		.port = 7444,
		.bulk = "tcp",
		.instance = n,
		.rail_bytes_per_s = rate[0],
		.rails = w->version == 1 ? NULL : rate,
		.n_rails = w->version == 1 ? 0 : n};
	union wb_msg m;

	agent_says(w, WBP_HELLO, &h);
	expect(w, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
}

/* Two engines at one agent, each with a half that nobody else needs, and a rail of its own. */
static void say_two_engines(struct wire *w)
{
	struct wb_p_worker p[2];
	struct wb_msg_workers m = {.object = "default/a", .workers = p, .n_workers = 2};

	for (uint32_t i = 0; i < 2; i++)
		p[i] = (struct wb_p_worker){.id = i + 1,
			.name = i ? "roll/2" : "roll/1",
			.role = 2,
			.engine = i ? "e2" : "e1",
			.rank = -1,
			.manifest = manifest_digest,
			.map = half_digest[i],
			.mem_kind = 1,
			.version = -1,
			.rails = 1u << i};
	agent_says(w, WBP_WORKERS, &m);
}

static uint32_t n_lent(const struct wb_plan *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_route; i++)
		n += p->route[i].dst_rail != p->route[i].dst;
	return n;
}

/* One of them is eight times as fast as the other: it is lent, where all agents can read that. */
START_TEST(rails_are_lent_where_all_agents_know_of_it)
{
	uint64_t fast = 8000000, rates[] = {1000000, 8000000};
	struct wb_digest head;
	struct wb_plan *plan;

	make_model();
	make_halves();
	open_wire(&train);
	train.version = _i ? 0 : 1;
	say_hello(&train, "train", &fast, 1);
	say_workers(&train, 1, NULL);
	open_wire(&roll);
	say_hello(&roll, "roll", rates, 2);
	say_two_engines(&roll);
	want(&train, manifest_digest);
	want(&train, map_digest);
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, map_digest, &map_bytes);
	for (int i = 0; i < 2; i++) {
		want(&roll, half_digest[i]);
		content(&roll, 2, half_digest[i], &half_bytes[i]);
		wb_buf_finish(&half_bytes[i]);
	}
	run_job();
	plan = hear_share(&roll, &head);
	ck_assert_uint_eq(plan->n_worker, 3);
	ck_assert_uint_eq(plan->worker[1].rail_bytes_per_s, rates[0]);
	ck_assert_int_eq(n_lent(plan) > 0, _i);
	wb_plan_destroy(plan);
	end_both();
}
END_TEST

static const char *members_reason(const char *object)
{
	static char text[128];
	json_t *st = wb_serve_status(s, object);
	json_t *c = json_array_get(json_object_get(st, "conditions"), 1);

	snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(c, "reason")));
	json_decref(st);
	return text;
}

START_TEST(pod_that_is_gone_is_of_its_object_no_more)
{
	struct wb_serve_pod p = {.name = "x"}; /* without a sidecar */

	wb_serve_pod(s, "default/a", &p);
	ck_assert_str_eq(members_reason("default/a"), "SidecarMissing");
	wb_serve_pod_gone(s, "other/b", "x"); /* another pod of this name */
	ck_assert_str_eq(members_reason("default/a"), "SidecarMissing");
	wb_serve_pod(s, "default/b", &p);
	wb_serve_pod_gone(s, "default/a", "x");
	ck_assert_str_eq(members_reason("default/a"), "WaitingForAgents");
	ck_assert_str_eq(members_reason("default/b"), "SidecarMissing");
}
END_TEST

static void put_object(uint64_t uid)
{
	struct wb_err err = {0};
	size_t n;

	ck_assert_int_eq(put_spec(load_specs(spec_text, &n),
				 (struct wb_serve_object_desc){.uid = uid}, &err),
		0);
}

static void open_set_up(void)
{
	start_serve((struct wb_serve_opts){0}, (struct wb_serve_env){0});
}

/* Jobs come and go for months. */
START_TEST(what_was_uploaded_goes_with_its_object)
{
	for (uint64_t uid = 7; uid < 9; uid++) {
		put_object(uid);
		join_three(); /* asked for each time */
		wb_serve_remove(s, "default/a", "it was deleted");
		run_job();
		end_both();
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("serve_plans");
	TCase *tc = tcase_create("plans"), *two = tcase_create("two"), *open = tcase_create("open");

	tcase_add_checked_fixture(tc, set_up_serve, tear_down_serve);
	tcase_add_test(tc, agent_back_while_it_is_planned_costs_nobody_the_plan);
	tcase_add_test(tc, slow_job_does_not_take_the_place_of_a_newer_plan);
	tcase_add_test(tc, engines_that_are_fed_have_the_numbers_of_the_active_plan);
	tcase_add_loop_test(tc, rails_are_lent_where_all_agents_know_of_it, 0, 2);
	suite_add_tcase(all, tc);
	tcase_add_checked_fixture(two, two_objects, tear_down_serve);
	tcase_add_test(two, agent_has_no_say_in_the_terms_of_objects_it_does_not_serve);
	tcase_add_test(two, term_that_cannot_be_is_not_heard);
	tcase_add_test(two, pod_that_is_gone_is_of_its_object_no_more);
	suite_add_tcase(all, two);
	tcase_add_checked_fixture(open, open_set_up, tear_down_serve);
	tcase_add_test(open, what_was_uploaded_goes_with_its_object);
	suite_add_tcase(all, open);
	return all;
}

int main(void)
{
	return fx_run(suite());
}
