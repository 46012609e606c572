/* SPDX-License-Identifier: Apache-2.0 */
/* Two agents of one name: who lives keeps it, and who comes after the dead gets it. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

static const char two_specs[] =
	"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
	"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n---\n"
	"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: b}\n"
	"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n";

static struct wire first, second;

static void two_set_up(void)
{
	size_t n;
	struct wb_spec *spec = load_specs(two_specs, &n);

	start_serve((struct wb_serve_opts){.spec = spec, .n_spec = n}, (struct wb_serve_env){0});
	wb_free(spec);
}

static void hello_as(struct wire *w, uint32_t version, uint64_t instance, const char *object)
{
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = version,
		.build = "t",
		.agent = "pod",
		.node = "n",
		.objects = &object,
		.n_objects = object ? 1 : 0,
		.host = "10.0.0.1",
		.port = 7444,
		.bulk = "tcp",
		.instance = instance};

	open_wire(w);
	agent_says(w, WBP_HELLO, &h);
}

static void hello_of(struct wire *w, uint64_t instance, const char *object)
{
	hello_as(w, WBP_VERSION_MAX, instance, object);
}

static void is_welcomed(struct wire *w)
{
	union wb_msg m;

	expect(w, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
	ck_assert(!w->is_closed);
}

/* The time that the operator wants back from an agent whose name somebody else came with. */
static uint64_t is_asked(struct wire *w)
{
	union wb_msg m;
	uint64_t sent;

	expect(w, WBP_HEARTBEAT, &m);
	sent = m.heartbeat.sent_ns;
	ck_assert_uint_ne(sent, 0);
	return sent;
}

static void answers(struct wire *w, uint64_t echo)
{
	struct wb_msg_heartbeat m = {.sent_ns = 1, .echo_ns = echo, .echo_received_ns = 1};

	agent_says(w, WBP_HEARTBEAT, &m);
}

static void pass(uint64_t ns)
{
	clk.now += ns;
	wb_serve_tick(s);
}

/* "STATUS REASON: MESSAGE" of a condition of object a. */
static const char *condition(const char *type)
{
	static char text[1200];
	json_t *o = wb_serve_object(s, "default/a"), *c;
	size_t i;

	text[0] = '\0';
	json_array_foreach(json_object_get(json_object_get(o, "status"), "conditions"), i, c)
	{
		if (!strcmp(json_string_value(json_object_get(c, "type")), type))
			snprintf(text, sizeof(text), "%s %s: %s",
				json_string_value(json_object_get(c, "status")),
				json_string_value(json_object_get(c, "reason")),
				json_string_value(json_object_get(c, "message")));
	}
	json_decref(o);
	return text;
}

static void begin(void)
{
	hello_of(&first, 11, "default/a");
	is_welcomed(&first);
}

static void end(void)
{
	wb_serve_drain(s, "end");
	end_wire(&first);
	end_wire(&second);
}

START_TEST(who_lives_keeps_the_name)
{
	union wb_msg m;
	uint64_t sent;

	begin();
	hello_of(&second, 12, "default/a");
	expect_nothing(&second);
	sent = is_asked(&first);
	answers(&first, sent + 1); /* to something else */
	expect_nothing(&second);
	answers(&first, sent);
	expect(&second, WBP_REJECT, &m);
	ck_assert_int_eq((int)m.reject.code, -EEXIST);
	ck_assert(m.reject.retry && second.is_closed && !first.is_closed);
	ck_assert_msg(strstr(m.reject.sentence, "agent pod is connected already, from wire, and "
						"that one lives: give each agent a name of its own "
						"(--name)") != NULL,
		"%s", m.reject.sentence);
	wb_msg_free(WBP_REJECT, &m);
	expect_nothing(&first);
	end();
}
END_TEST

START_TEST(the_object_says_who_was_refused_for_its_name)
{
	begin();
	hello_of(&second, 12, "default/a");
	answers(&first, is_asked(&first));
	ck_assert_msg(!strncmp(condition("MembersConnected"), "False AgentNameTaken: ", 22), "%s",
		condition("MembersConnected"));
	ck_assert_ptr_nonnull(strstr(condition("Degraded"), "agent pod is connected already"));
	/* It does not come again: whoever it was has given up. */
	for (int i = 0; i < 4; i++) {
		pass(4 * S);
		answers(&first, 0);
	}
	ck_assert_ptr_null(strstr(condition("MembersConnected"), "AgentNameTaken"));
	ck_assert(!strncmp(condition("Degraded"), "False", 5));
	end();
}
END_TEST

START_TEST(who_does_not_answer_loses_the_name)
{
	begin();
	hello_of(&second, 12, "default/a");
	pass(5 * S - 1);
	expect_nothing(&second);
	ck_assert(!first.is_closed);
	pass(1);
	ck_assert(first.is_closed);
	is_welcomed(&second);
	end();
}
END_TEST

START_TEST(successor_of_one_that_ends_comes_in_at_once)
{
	begin();
	hello_of(&second, 12, "default/a");
	expect_nothing(&second);
	end_wire(&first);
	is_welcomed(&second);
	end();
}
END_TEST

START_TEST(refused_one_is_spoken_of_no_more_when_it_is_in)
{
	begin();
	hello_of(&second, 12, "default/a");
	answers(&first, is_asked(&first));
	end_wire(&second);
	end_wire(&first);
	ck_assert(!strncmp(condition("Degraded"), "True AgentNameTaken", 19));
	hello_of(&second, 12, "default/a");
	ck_assert(!strncmp(condition("Degraded"), "False", 5));
	end();
}
END_TEST

START_TEST(connection_of_the_same_process_replaces_its_old_one_at_once)
{
	begin();
	hello_of(&second, 11, "default/a");
	ck_assert(first.is_closed);
	is_welcomed(&second);
	end();
}
END_TEST

START_TEST(who_has_said_goodbye_has_no_name_any_more)
{
	struct wb_msg_drain bye = {.sentence = "SIGTERM"};
	struct wb_msg_workers none = {.object = "default/a"};

	begin();
	agent_says(&first, WBP_WORKERS, &none);
	agent_says(&first, WBP_DRAIN, &bye);
	hello_of(&second, 12, "default/a");
	is_welcomed(&second);
	agent_says(&second, WBP_WORKERS, &none);
	agent_says(&first, WBP_WORKERS, &none); /* its last workers have gone */
	ck_assert(!first.is_closed && !second.is_closed);
	expect_nothing(&second);
	end();
}
END_TEST

START_TEST(third_waits_for_the_second)
{
	struct wire third;
	union wb_msg m;

	begin();
	hello_of(&second, 12, "default/a");
	hello_of(&third, 13, "default/a");
	end_wire(&first);
	/* One of them is in; which one is theirs to settle. */
	if (third.out.len > third.read) {
		is_welcomed(&third);
		answers(&third, is_asked(&third));
		expect(&second, WBP_REJECT, &m);
	} else {
		is_welcomed(&second);
		answers(&second, is_asked(&second));
		expect(&third, WBP_REJECT, &m);
	}
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&third);
	end();
}
END_TEST

START_TEST(agents_of_different_objects_may_have_one_name)
{
	begin();
	hello_of(&second, 12, "default/b");
	is_welcomed(&second);
	expect_nothing(&first);
	end();
}
END_TEST

START_TEST(one_of_all_objects_is_a_second_one_of_each)
{
	begin();
	hello_of(&second, 12, NULL);
	expect_nothing(&second);
	is_asked(&first);
	end();
}
END_TEST

/* What an object asks of its agents may change while one waits for its name. */
START_TEST(who_waits_for_a_name_is_let_in_by_what_the_object_asks_for_then)
{
	size_t n;
	struct wb_spec *spec = load_specs(two_specs, &n);
	union wb_msg m;

	begin();
	hello_as(&second, 1, 12, "default/a");
	expect_nothing(&second);
	spec[0].encryption = WB_ENCRYPTION_TLS;
	ck_assert_int_eq(wb_serve_update(s, spec, n, NULL), 0);
	wb_free(spec);
	ck_assert(first.is_closed); /* to come back for what is new */
	pass(1);
	expect(&second, WBP_REJECT, &m);
	ck_assert_msg(strstr(m.reject.sentence, "cannot encrypt") != NULL, "%s", m.reject.sentence);
	wb_msg_free(WBP_REJECT, &m);
	end();
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("serve_twins");
	TCase *tc = tcase_create("twins");

	tcase_add_checked_fixture(tc, two_set_up, tear_down_serve);
	tcase_add_test(tc, who_lives_keeps_the_name);
	tcase_add_test(tc, the_object_says_who_was_refused_for_its_name);
	tcase_add_test(tc, who_does_not_answer_loses_the_name);
	tcase_add_test(tc, successor_of_one_that_ends_comes_in_at_once);
	tcase_add_test(tc, refused_one_is_spoken_of_no_more_when_it_is_in);
	tcase_add_test(tc, connection_of_the_same_process_replaces_its_old_one_at_once);
	tcase_add_test(tc, who_has_said_goodbye_has_no_name_any_more);
	tcase_add_test(tc, third_waits_for_the_second);
	tcase_add_test(tc, agents_of_different_objects_may_have_one_name);
	tcase_add_test(tc, one_of_all_objects_is_a_second_one_of_each);
	tcase_add_test(tc, who_waits_for_a_name_is_let_in_by_what_the_object_asks_for_then);
	suite_add_tcase(su, tc);
	return su;
}

int main(void)
{
	return fx_run(suite());
}
