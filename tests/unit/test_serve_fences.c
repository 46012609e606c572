/* SPDX-License-Identifier: Apache-2.0 */
/* Single fences of the operator's endpoint, each in the smallest world in which it counts. */
#include "base/hash.h"
#include "operator-shim/serve/budget.h"
#include "operator-shim/serve/metrics.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

#include <unistd.h>

static struct wire one, two, three;

/* ---- a world in which objects come and go, with budgets ---- */

/* @overrides: options, with spaces between. */
static void start(const char *overrides)
{
	struct wb_budget_limits l;
	char text[200], *at = text, *word;

	wb_budget_size(UINT64_C(64) << 30, &l);
	snprintf(text, sizeof(text), "%s", overrides);
	while ((word = strsep(&at, " ")))
		if (*word)
			ck_assert_int_eq(wb_budget_override(&l, word), 0);
	start_serve((struct wb_serve_opts){.limits = &l}, (struct wb_serve_env){0});
	make_model();
	job_work = NULL;
	job_cookie = NULL;
}

static void finish(void)
{
	tear_down_serve();
	free_model();
}

static void put_with(const char *object, const char *more)
{
	struct wb_err err = {0};

	ck_assert_int_eq(
		put_spec(object_spec(object, more), (struct wb_serve_object_desc){.uid = 7}, &err),
		0);
}

static void put(const char *object)
{
	put_with(object, "");
}

static void hello_of(struct wire *w, const char *agent, const char *const *object, uint32_t n)
{
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = agent,
		.host = "10.0.0.1",
		.port = 7444,
		.instance = wb_hash64(agent, strlen(agent), 0),
		.objects = (void *)(uintptr_t)object,
		.n_objects = n};

	open_wire(w);
	agent_says(w, WBP_HELLO, &h);
}

static void workers_of(
	struct wire *w, const char *object, uint32_t role, const char *engine, struct wb_digest map)
{
	struct wb_p_worker p = {.id = 5,
		.name = "w",
		.role = role,
		.engine = engine,
		.rank = -1,
		.manifest = manifest_digest,
		.map = map,
		.mem_kind = 1,
		.version = -1};
	struct wb_msg_workers m = {.object = object, .workers = &p, .n_workers = role ? 1 : 0};

	agent_says(w, WBP_WORKERS, &m);
}

/* It is let in, and has a worker. */
static void join(struct wire *w, const char *agent, const char *object, uint32_t role,
	const char *engine, struct wb_digest map)
{
	union wb_msg m;

	hello_of(w, agent, &object, 1);
	expect(w, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
	workers_of(w, object, role, engine, map);
}

static void part_of(struct wire *w, const char *object, uint32_t kind, struct wb_digest d,
	const uint8_t *data, uint64_t total, uint64_t offset, uint64_t bytes)
{
	struct wb_msg_content m = {.object = object,
		.kind = kind,
		.digest = d,
		.total_bytes = total,
		.offset = offset,
		.data = data + offset,
		.n_data = (uint32_t)bytes};

	agent_says(w, WBP_CONTENT, &m);
}

static void upload(struct wire *w, const char *object)
{
	part_of(w, object, 1, manifest_digest, manifest_bytes.data, manifest_bytes.len, 0,
		manifest_bytes.len);
	part_of(w, object, 2, map_digest, map_bytes.data, map_bytes.len, 0, map_bytes.len);
}

static uint64_t used(enum wb_budget_kind kind)
{
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	wb_buf_finish(&b);
	return (uint64_t)wb_metric_get(
		wb_serve_own_metrics(s), WB_SM_BUDGET_USED, WB_LABELS(wb_budget_name(kind), "all"));
}

static void refused(struct wire *w, int code, const char *words)
{
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_REJECT) {
		ck_assert_str_ne(wb_msg_name(type), wb_msg_name(WBP_NONE));
		wb_msg_free(type, &m);
	}
	ck_assert_msg(strstr(m.reject.sentence, words), "%s", m.reject.sentence);
	ck_assert_int_eq(m.reject.code, code);
	ck_assert(w->is_closed);
	wb_msg_free(WBP_REJECT, &m);
}

/* ---- charges ---- */

START_TEST(an_agent_is_charged_to_each_of_its_objects)
{
	static const char *const both[] = {"a/x", "b/y"};

	start("agents=100/8/1");
	put("a/x");
	put("b/y");
	join(&one, "one", "b/y", 1, NULL, map_digest);
	hello_of(&two, "two", both, 2);
	refused(&two, -EDQUOT, "WeightTransfer b/y has 1 connected agents");
	ck_assert_uint_eq(used(WB_BUDGET_AGENTS), 1); /* nor is it to the other one */
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

START_TEST(an_object_is_told_and_charged_once_however_often_it_is_named)
{
	static const char *const twice[] = {"a/x", "a/x"};
	union wb_msg m;

	start("agents=100/8/1");
	put("a/x");
	hello_of(&one, "one", twice, 2);
	expect(&one, WBP_WELCOME, &m);
	ck_assert_uint_eq(m.welcome.n_objects, 1);
	wb_msg_free(WBP_WELCOME, &m);
	end_wire(&one);
	ck_assert_uint_eq(used(WB_BUDGET_AGENTS), 0);
	finish();
}
END_TEST

START_TEST(who_has_shown_who_it_is_takes_no_place_of_those_who_have_not)
{
	start("connections=1");
	put("a/x");
	join(&one, "one", "a/x", 1, NULL, map_digest);
	ck_assert_uint_eq(used(WB_BUDGET_CONNECTIONS), 0);
	join(&two, "two", "a/x", 2, "e", map_digest);
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

START_TEST(an_upload_is_charged_once_whatever_its_parts)
{
	start("");
	put("a/x");
	join(&one, "one", "a/x", 1, NULL, map_digest);
	join(&two, "two", "a/x", 2, "e", map_digest);
	for (uint64_t at = 0; at < map_bytes.len; at++) {
		part_of(&one, "a/x", 2, map_digest, map_bytes.data, map_bytes.len, at, 1);
		ck_assert_uint_eq(used(WB_BUDGET_MAPS), map_bytes.len);
	}
	wb_serve_remove(s, "a/x", "it was deleted");
	ck_assert_uint_eq(used(WB_BUDGET_MAPS), 0);
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

/* Its agents' channels end later. */
START_TEST(what_is_half_here_goes_with_its_object)
{
	start("");
	put("a/x");
	join(&one, "one", "a/x", 1, NULL, map_digest);
	join(&two, "two", "a/x", 2, "e", map_digest);
	part_of(&one, "a/x", 2, map_digest, map_bytes.data, map_bytes.len, 0, 1);
	wb_serve_remove(s, "a/x", "it was deleted");
	ck_assert_uint_eq(used(WB_BUDGET_MAPS), 0);
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

/* ---- maps that nobody needs now ---- */

#define OLD_BYTES 8192

/* A trainer is there, and an engine that has left again; its map, which is none, stays. */
static struct wb_digest leave_map(struct wire *t, const char *object, int byte)
{
	static uint8_t map[OLD_BYTES];
	struct wb_digest d;

	memset(map, byte, sizeof(map));
	d = wb_digest_of(map, sizeof(map));
	join(t, object, object, 1, NULL, map_digest); /* an agent of the object's name */
	join(&three, "roll", object, 2, "e", d);
	upload(t, object);
	part_of(&three, object, 2, d, map, sizeof(map), 0, sizeof(map));
	if (job_work)
		run_job();
	workers_of(&three, object, 0, NULL, d);
	end_wire(&three);
	return d;
}

/* The worker that had it is asked for it, or not. */
static bool is_still_here(const char *object, struct wb_digest d)
{
	bool was_asked = false;
	union wb_msg m;
	uint16_t type;

	join(&three, "roll", object, 2, "e", d);
	while ((type = hear(&three, &m)) != WBP_NONE) {
		was_asked |= type == WBP_WANT;
		wb_msg_free(type, &m);
	}
	end_wire(&three);
	return !was_asked;
}

START_TEST(a_map_stays_for_who_comes_back_while_there_is_room)
{
	struct wb_digest d;

	start("");
	put("a/x");
	put("b/y");
	d = leave_map(&one, "a/x", 1);
	leave_map(&two, "b/y", 2);
	ck_assert(is_still_here("a/x", d));
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

/* There is room for two old maps and what is in use.  A third one of the second namespace takes the
 * place of that one's own, though the first's is older. */
START_TEST(ones_own_maps_go_before_those_of_others)
{
	uint64_t in_use;
	struct wb_digest first, own;
	char option[100];

	start("");
	in_use = manifest_bytes.len + map_bytes.len;
	finish();
	snprintf(option, sizeof(option), "maps=%llu",
		(unsigned long long)(2 * in_use + 2 * OLD_BYTES + OLD_BYTES / 2));
	start(option);
	put("a/x");
	put("b/y");
	first = leave_map(&one, "a/x", 1);
	own = leave_map(&two, "b/y", 2);
	end_wire(&two);
	leave_map(&two, "b/y", 3);
	ck_assert(is_still_here("a/x", first));
	ck_assert(!is_still_here("b/y", own));
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

/* ---- plans ---- */

/* One that is made on another thread. */
struct work {
	void (*work)(void *), (*done)(void *);
	void *cookie;
};

static struct work take_job(void)
{
	struct work j = {job_work, job_done, job_cookie};

	ck_assert_ptr_nonnull(job_work);
	job_work = NULL;
	return j;
}

static void end_job(struct work j)
{
	j.work(j.cookie);
	j.done(j.cookie);
}

/* The next PLAN that it hears: of how many agents, and by which key they know each other. */
static uint32_t agents_of_plan(struct wire *w, char key[100])
{
	uint32_t n;
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_PLAN) {
		ck_assert_str_ne(wb_msg_name(type), wb_msg_name(WBP_NONE));
		wb_msg_free(type, &m);
	}
	n = m.plan.n_agents;
	snprintf(key, 100, "%s", m.plan.key);
	wb_msg_free(WBP_PLAN, &m);
	return n;
}

static struct work begin_two_and_a_third(const char *budget)
{
	struct work first;

	start(budget);
	put("a/x");
	join(&one, "one", "a/x", 1, NULL, map_digest);
	join(&two, "two", "a/x", 2, "e", map_digest);
	upload(&one, "a/x");
	first = take_job();
	join(&three, "three", "a/x", 2, "f", map_digest);
	return first;
}

static void end_three(void)
{
	end_wire(&one);
	end_wire(&two);
	end_wire(&three);
	ck_assert_uint_eq(used(WB_BUDGET_PLANNING), 0);
	finish();
}

/* Where two plans of an object may be made at a time, the older may be ready last. */
START_TEST(a_plan_that_is_late_does_not_take_the_place_of_a_newer_one)
{
	struct work first = begin_two_and_a_third("planning=8/4/2"), second = take_job();
	char key[100];

	end_job(second);
	end_job(first);
	ck_assert_uint_eq(agents_of_plan(&one, key), 3);
	end_wire(&three);
	join(&three, "three", "a/x", 2, "f", map_digest); /* back before all are READY */
	ck_assert_uint_eq(agents_of_plan(&three, key), 3);
	end_three();
}
END_TEST

START_TEST(agents_of_a_plan_have_one_key_also_when_they_come_back)
{
	struct wire *const wires[] = {&one, &two, &three, &three};
	struct work first = begin_two_and_a_third("");
	char key[WB_ARRAY_SIZE(wires)][100];

	end_job(first);
	end_job(take_job());
	for (size_t i = 0; i < WB_ARRAY_SIZE(wires); i++) {
		if (i == 3) {
			end_wire(&three);
			join(&three, "three", "a/x", 2, "f", map_digest);
		}
		ck_assert_uint_eq(agents_of_plan(wires[i], key[i]), 3);
		ck_assert_str_eq(key[i], key[0]);
	}
	end_three();
}
END_TEST

static void joins_with_plan(struct wire *w, const char *agent, uint32_t role, uint32_t number)
{
	static const char *const object[] = {"a/x"};
	struct wb_p_worker p = {.id = 5,
		.name = "w",
		.role = role,
		.engine = role == 2 ? "e" : NULL,
		.rank = -1,
		.manifest = manifest_digest,
		.map = map_digest,
		.mem_kind = 1,
		.version = -1,
		.plan_worker = number + 1};
	struct wb_msg_workers m = {.object = *object,
		.workers = &p,
		.n_workers = 1,
		.running = {3, 5},
		.plan = wb_digest_of("plan", 4),
		.plan_workers = 2};

	hello_of(w, agent, object, 1);
	agent_says(w, WBP_WORKERS, &m);
}

/* An operator that is new knows what runs by its digest alone.  What it plans meanwhile is another
 * plan, and not the one that agents are told to go on with. */
START_TEST(a_plan_that_waits_for_agents_is_not_shown_as_the_one_they_run)
{
	struct wb_lent none;

	start("");
	put("a/x");
	joins_with_plan(&one, "one", 1, 0);
	joins_with_plan(&two, "two", 2, 1);
	upload(&one, "a/x");
	end_job(take_job());
	put_with("a/x", ", suspend: true"); /* is told to all, with the plan that runs */
	ck_assert(!wb_serve_plan(s, "a/x", &none));
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

/* It waits for the first; meanwhile the engine it was for is gone. */
START_TEST(a_plan_whose_turn_has_not_come_is_not_made_for_who_has_left)
{
	struct work first = begin_two_and_a_third("");

	ck_assert_ptr_null(job_work);
	workers_of(&three, "a/x", 0, NULL, map_digest);
	end_job(first);
	if (job_work) /* for the two, once more */
		end_job(take_job());
	ck_assert_ptr_null(job_work);
	end_three();
}
END_TEST

/* ---- one object that is there from the beginning ---- */

/* The offset is tested elsewhere.  0: more than was said; 1: longer than any may be; 2: nothing,
 * which could be said for ever. */
START_TEST(content_is_what_was_said_at_first_or_refused)
{
	static uint8_t byte[2];
	uint64_t total = _i == 1 ? (UINT64_C(1) << 30) + 1 : 1;

	join_both();
	part_of(&train, "default/a", 2, map_digest, byte, total, 0, _i ? _i == 1 : 2);
	refused(&train, -EBADMSG, "follow");
	end_both();
}
END_TEST

static int64_t number(const char *list, const char *key)
{
	json_t *o = wb_serve_object(s, NULL),
	       *x = json_object_get(json_object_get(o, "detail"), list);
	json_int_t n = json_integer_value(json_object_get(json_array_get(x, 0), key));

	json_decref(o);
	return n;
}

/* After a reconnection, by an agent that does not know what has come. */
START_TEST(what_is_reported_twice_counts_once)
{
	struct wb_p_worker_report w = {
		.worker = 0, .stop_ns = S, .resume_ns = 2 * S, .resent_chunks = 3};
	uint64_t bytes[3] = {1000, 0, 0};
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {1, 1},
		.transfer = 6,
		.version = 60,
		.state = WB_REPORT_FINAL,
		.is_final = true,
		.bytes = bytes,
		.n_bytes = 3};

	run_job_to_active();
	for (int i = 0; i < 2; i++)
		agent_says(&train, WBP_REPORT, &m);
	ck_assert(wb_metric_get(wb_serve_own_metrics(s), WB_SM_TRANSFERS, WB_LABELS("Succeeded")) ==
		  1);
	ck_assert(
		wb_metric_get(wb_serve_own_metrics(s), WB_SM_BYTES, WB_LABELS("receive")) == 1000);
	m.state = WB_REPORT_WORKERS;
	m.is_final = false;
	m.n_bytes = 0;
	m.workers = &w;
	m.n_workers = 1;
	for (int i = 0; i < 2; i++)
		agent_says(&train, WBP_REPORT, &m);
	ck_assert_int_eq(number("transfers", "resentChunks"), 3);
	ck_assert_int_eq(number("agents", "workers"), 1);
	end_both();
}
END_TEST

static json_int_t connected(const char *object)
{
	json_t *st = wb_serve_status(s, object);
	json_int_t n = json_integer_value(json_object_get(st, "connectedAgents"));

	json_decref(st);
	return n;
}

/* Its old channel may take a while to end. */
START_TEST(what_is_put_out_is_in_no_object_from_then_on)
{
	join_both();
	ck_assert_int_eq(connected("default/a"), 2);
	open_wire(&one);
	hello(&one, "roll", 12); /* the same process */
	ck_assert(roll.is_closed);
	ck_assert_int_eq(connected("default/a"), 1);
	end_wire(&one);
	end_both();
}
END_TEST

START_TEST(who_has_left_joins_nothing_any_more)
{
	struct wb_msg_drain bye = {.sentence = "SIGTERM"};

	join_both();
	agent_says(&roll, WBP_DRAIN, &bye);
	ck_assert_int_eq(connected("default/a"), 1);
	say_workers(&roll, 2, "e1");
	ck_assert_int_eq(connected("default/a"), 1);
	end_both();
}
END_TEST

START_TEST(agents_of_other_objects_stay_when_one_goes)
{
	start("");
	put("a/x");
	put("b/y");
	join(&one, "one", "a/x", 1, NULL, map_digest);
	join(&two, "two", "b/y", 1, NULL, map_digest);
	wb_serve_remove(s, "a/x", "it was deleted");
	ck_assert(one.is_closed && !two.is_closed);
	end_wire(&one);
	end_wire(&two);
	finish();
}
END_TEST

/* ---- what anybody can cause ---- */

/* Lines that @cause writes into the log. */
static int lines_of(void (*cause)(void))
{
	FILE *f = tmpfile();
	int n = 0, c, old = dup(2);

	ck_assert(f && old >= 0 && dup2(fileno(f), 2) == 2);
	wb_log_level_max = WB_LOG_INFO_;
	cause();
	wb_log_level_max = -1;
	ck_assert_int_eq(dup2(old, 2), 2);
	close(old);
	rewind(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static void come(const char *agent)
{
	static const char *const nobodys[] = {"a/none"};

	hello_of(&one, agent, nobodys, 1);
	ck_assert(one.is_closed);
	end_wire(&one);
}

static void one_comes_again_and_again(void)
{
	for (int i = 0; i < 10; i++)
		come("one");
}

static void many_come(void)
{
	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		come(name);
	}
}

START_TEST(the_same_refusal_is_logged_once_a_minute)
{
	start("");
	ck_assert_int_eq(lines_of(one_comes_again_and_again), 1);
	clk.now += 59 * S;
	ck_assert_int_eq(lines_of(one_comes_again_and_again), 0);
	clk.now += 1 * S;
	ck_assert_int_eq(lines_of(one_comes_again_and_again), 1);
	finish();
}
END_TEST

static void connections_are_refused(void)
{
	for (int i = 0; i < 100; i++) {
		struct wb_err err = {.code = -EPROTO, .msg = "does not speak TLS"};
		char from[32];

		snprintf(from, sizeof(from), "10.0.0.1:%d", 30000 + i);
		wb_serve_refused(s, from, &err);
	}
}

static void nonsense_is_said(void)
{
	for (int i = 0; i < 100; i++) {
		open_wire(&one);
		say_workers(&one, 1, NULL); /* before HELLO */
		ck_assert(one.is_closed);
		end_wire(&one);
	}
}

/* One agent, one message: in tenants' hands that is all of the log. */
static void workers_are_refused(void)
{
	struct wb_p_worker w[100];
	char name[100][16];
	struct wb_msg_workers m = {.object = "a/x", .workers = w, .n_workers = 100};

	for (int i = 0; i < 100; i++) {
		snprintf(name[i], sizeof(name[i]), "w%d", i);
		w[i] = (struct wb_p_worker){.id = (uint64_t)i,
			.name = name[i],
			.rank = -1,
			.version = -1}; /* no role */
	}
	agent_says(&three, WBP_WORKERS, &m);
}

static void an_agent_leaves_and_leaves(void)
{
	struct wb_msg_drain m = {.object = "a/x", .sentence = "I go"};

	for (int i = 0; i < 100; i++)
		agent_says(&three, WBP_DRAIN, &m);
}

static const struct {
	void (*cause)(void); /* of a hundred lines */
	int each; /* kinds of them, each with a bound of its own */
} causes[] = {{many_come, 1}, {connections_are_refused, 1}, {nonsense_is_said, 2},
	{workers_are_refused, 1}, {an_agent_leaves_and_leaves, 1}};

START_TEST(whatever_comes_the_log_has_its_bound)
{
	int n;

	start("");
	put("a/x");
	join(&three, "three", "a/x", 1, NULL, map_digest);
	n = lines_of(causes[_i].cause);
	ck_assert_msg(n >= 20 && n <= 20 * causes[_i].each, "%d lines", n);
	clk.now += 6 * S; /* two more lines, before them how many were left out */
	n = lines_of(causes[_i].cause);
	ck_assert_msg(n >= 3 && n <= 3 * causes[_i].each, "%d lines", n);
	end_wire(&three);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("serve_fences");
	TCase *tc = tcase_create("objects"), *file = tcase_create("file");

	tcase_add_test(tc, an_agent_is_charged_to_each_of_its_objects);
	tcase_add_test(tc, an_object_is_told_and_charged_once_however_often_it_is_named);
	tcase_add_test(tc, who_has_shown_who_it_is_takes_no_place_of_those_who_have_not);
	tcase_add_test(tc, an_upload_is_charged_once_whatever_its_parts);
	tcase_add_test(tc, what_is_half_here_goes_with_its_object);
	tcase_add_test(tc, a_map_stays_for_who_comes_back_while_there_is_room);
	tcase_add_test(tc, ones_own_maps_go_before_those_of_others);
	tcase_add_test(tc, a_plan_that_is_late_does_not_take_the_place_of_a_newer_one);
	tcase_add_test(tc, agents_of_a_plan_have_one_key_also_when_they_come_back);
	tcase_add_test(tc, a_plan_that_waits_for_agents_is_not_shown_as_the_one_they_run);
	tcase_add_test(tc, a_plan_whose_turn_has_not_come_is_not_made_for_who_has_left);
	tcase_add_test(tc, agents_of_other_objects_stay_when_one_goes);
	tcase_add_test(tc, the_same_refusal_is_logged_once_a_minute);
	tcase_add_loop_test(tc, whatever_comes_the_log_has_its_bound, 0, WB_ARRAY_SIZE(causes));
	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(file, set_up_serve, tear_down_serve);
	tcase_add_loop_test(file, content_is_what_was_said_at_first_or_refused, 0, 3);
	tcase_add_test(file, what_is_reported_twice_counts_once);
	tcase_add_test(file, what_is_put_out_is_in_no_object_from_then_on);
	tcase_add_test(file, who_has_left_joins_nothing_any_more);
	suite_add_tcase(suite, file);
	return fx_run(suite);
}
