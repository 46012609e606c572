/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's endpoint in a cluster: objects that come and go, agents that show tokens. */
#include "operator-shim/serve/budget.h"
#include "operator-shim/serve/metrics.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

/* ---- objects that come and go ---- */

static void open_set_up(void)
{
	start_serve((struct wb_serve_opts){0}, (struct wb_serve_env){0});
}

static int put_object(uint64_t uid)
{
	struct wb_err err = {0};
	size_t n;

	return put_spec(load_specs(spec_text, &n), (struct wb_serve_object_desc){.uid = uid}, &err);
}

/* A second object, whose name alone may be the first one's too. */
static void put_another(const char *object)
{
	struct wb_err err = {0};

	ck_assert_int_eq(
		put_spec(object_spec(object, ""), (struct wb_serve_object_desc){.uid = 9}, &err),
		0);
}

static void hello_to_a(struct wire *w, const char *name, uint64_t instance)
{
	const char *object = "default/a";
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = name,
		.host = "10.0.0.1",
		.port = 7444,
		.instance = instance,
		.objects = &object,
		.n_objects = 1};

	agent_says(w, WBP_HELLO, &h);
}

START_TEST(object_may_come_after_its_agents)
{
	union wb_msg m;

	open_wire(&train);
	hello_to_a(&train, "train", 11);
	expect(&train, WBP_REJECT, &m);
	ck_assert(m.reject.retry); /* unlike with files: it may yet come */
	ck_assert(train.is_closed);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&train);
	ck_assert_int_eq(put_object(7), 0);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	welcome(&train, 1);
	end_wire(&train);
}
END_TEST

/* All agents are new, and the operator as well: numbers go on where the stored status ends. */
START_TEST(numbers_of_transfers_go_on_after_a_stored_status)
{
	json_t *stored = json_pack("{s:i, s:i, s:{s:i}, s:[{s:i, s:s}]}", "transfer", 40, "version",
		3, "currentTransfer", "transfer", 42, "recentTransfers", "transfer", 41, "result",
		"Aborted");
	struct wb_err err = {0};
	union wb_msg m;
	size_t n;

	ck_assert_int_eq(put_spec(load_specs(spec_text, &n),
				 (struct wb_serve_object_desc){.uid = 7, .stored = stored}, &err),
		0);
	json_decref(stored);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	expect(&train, WBP_WELCOME, &m);
	ck_assert_uint_eq(m.welcome.n_objects, 1);
	ck_assert_uint_eq(m.welcome.objects[0].last_transfer, 42);
	wb_msg_free(WBP_WELCOME, &m);
	end_wire(&train);
}
END_TEST

START_TEST(object_that_goes_lets_its_agents_go)
{
	union wb_msg m;
	json_t *st;

	make_model();
	ck_assert_int_eq(put_object(7), 0);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	welcome(&train, 1);
	say_workers(&train, 1, NULL);
	open_wire(&roll);
	hello_to_a(&roll, "roll", 12);
	welcome(&roll, 1);
	say_workers(&roll, 2, "e1");
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, map_digest, &map_bytes);
	ck_assert_ptr_nonnull(job_work);
	st = wb_serve_status(s, "default/a");
	ck_assert_int_eq(json_integer_value(json_object_get(st, "connectedAgents")), 2);
	json_decref(st);
	wb_serve_remove(s, "default/a", "it was deleted");
	run_job(); /* its result is dropped */
	ck_assert_ptr_null(wb_serve_status(s, "default/a"));
	want(&train, manifest_digest);
	want(&train, map_digest);
	expect(&train, WBP_DRAIN, &m);
	wb_msg_free(WBP_DRAIN, &m);
	ck_assert(train.is_closed && roll.is_closed);
	/* The same name again is another object; the old connections end after. */
	ck_assert_int_eq(put_object(8), 0);
	end_both();
	st = wb_serve_status(s, "default/a");
	ck_assert_int_eq(json_integer_value(json_object_get(st, "connectedAgents")), 0);
	json_decref(st);
}
END_TEST

START_TEST(object_made_again_is_another_one)
{
	uint64_t looks;

	ck_assert_int_eq(put_object(7), 0);
	looks = wb_serve_looks(s, "default/a");
	ck_assert_int_eq(put_object(7), 0);
	ck_assert_uint_eq(wb_serve_looks(s, "default/a"), looks); /* nothing new */
	ck_assert_int_eq(put_object(8), 0);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	welcome(&train, 1);
	ck_assert_int_eq(put_object(9), 0);
	ck_assert(train.is_closed);
	end_wire(&train);
	ck_assert_uint_eq(wb_serve_looks(s, "default/b"), 0);
	wb_serve_remove(s, "default/b", "it was deleted");
}
END_TEST

START_TEST(standby_names_the_leader)
{
	union wb_msg m;

	wb_serve_redirect(s, "10.0.0.9", 7443);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	expect(&train, WBP_REDIRECT, &m);
	ck_assert_str_eq(m.redirect.host, "10.0.0.9");
	ck_assert_uint_eq(m.redirect.port, 7443);
	ck_assert(train.is_closed);
	wb_msg_free(WBP_REDIRECT, &m);
	end_wire(&train);
}
END_TEST

/* ---- tokens ---- */

static uint32_t claimed_peer;
static uint32_t unclaimed_peer;
static char claimed[128];
static const char *hello_binding;
static uint32_t hello_version;
static char events[400]; /* "object: text" each, and " (pod uid)" where one is known */
static const struct wb_serve_who pod_of_default = {"default", "train", "u-1"};

static void authenticate(void *ctx, uint32_t peer, const struct wb_serve_claim *c)
{
	(void)ctx;
	claimed_peer = peer;
	snprintf(claimed, sizeof(claimed), "%s %s %zu %s", c->agent, c->token, c->n_object,
		c->object[0]);
}

static void unclaim(void *ctx, uint32_t peer)
{
	(void)ctx;
	unclaimed_peer = peer;
}

static void event(void *ctx, const struct wb_serve_event *e)
{
	size_t at = strlen(events);

	(void)ctx;
	at += (size_t)snprintf(events + at, sizeof(events) - at, "%s: %s", e->object, e->text);
	snprintf(
		events + at, sizeof(events) - at, e->pod ? " (%s %s)\n" : "\n", e->pod, e->pod_uid);
}

static struct {
	uint32_t peer;
	uint64_t number;
	char token[32], ns[32];
} asked; /* by an agent, for somebody who wants its metrics */

static void reader(void *ctx, uint32_t peer, uint64_t number, const char *token, const char *ns)
{
	(void)ctx;
	asked.peer = peer;
	asked.number = number;
	snprintf(asked.token, sizeof(asked.token), "%s", token);
	snprintf(asked.ns, sizeof(asked.ns), "%s", ns);
}

static void start_with_tokens(const struct wb_budget_limits *limits)
{
	start_serve((struct wb_serve_opts){.limits = limits},
		(struct wb_serve_env){.authenticate = authenticate,
			.unclaim = unclaim,
			.reader = reader,
			.event = event});
}

static void token_set_up(void)
{
	start_with_tokens(NULL);
	memset(&asked, 0, sizeof(asked));
	ck_assert_int_eq(put_object(7), 0);
	claimed_peer = unclaimed_peer = 0;
	claimed[0] = '\0';
	hello_binding = NULL;
	hello_version = 1;
	events[0] = '\0';
}

static void hello_with(struct wire *w, const char *token, const char *object)
{
	struct wb_msg_hello h = {.version_min = hello_version,
		.version_max = WB_MAX(WBP_VERSION_MAX, hello_version),
		.agent = "train",
		.host = "10.0.0.1",
		.port = 7444,
		.instance = 11,
		.token = token,
		.binding = hello_binding,
		.objects = &object,
		.n_objects = object ? 1 : 0};

	agent_says(w, WBP_HELLO, &h);
}

START_TEST(token_is_asked_about_before_anything_is_told)
{
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	ck_assert_str_eq(claimed, "train secret 1 default/a"); /* the whole name */
	expect_nothing(&train);
	ck_assert(train.trust[WB_CHAN_CLAIMS] == 1 && !train.trust[WB_CHAN_PROVED]);
	wb_serve_authenticated(s, claimed_peer + 1, &pod_of_default, 0, ""); /* nobody */
	expect_nothing(&train);
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	ck_assert_int_eq(train.trust[WB_CHAN_PROVED], 1);
	welcome(&train, 1);
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, -EPERM, "late"); /* it is in */
	ck_assert(!train.is_closed);
	wb_serve_let_go(s, "default/a", "other", "gone");
	ck_assert(!train.is_closed);
	wb_serve_let_go(s, "default/a", "train", "gone");
	ck_assert(train.is_closed);
	end_wire(&train);
}
END_TEST

static void expect_answer(struct wire *w, uint64_t number, int code, const char *part)
{
	union wb_msg m;

	expect(w, WBP_READER_ANSWER, &m);
	ck_assert_uint_eq(m.reader_answer.number, number);
	ck_assert_int_eq(m.reader_answer.code, code);
	ck_assert_msg(
		strstr(m.reader_answer.sentence ? m.reader_answer.sentence : "", part) != NULL,
		"%s", m.reader_answer.sentence);
	wb_msg_free(WBP_READER_ANSWER, &m);
}

START_TEST(reader_of_an_agent_is_asked_about_and_the_agent_told)
{
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	welcome(&train, 1);
	agent_says(&train, WBP_READER, &(struct wb_msg_reader){.number = 7, .token = "prometheus"});
	ck_assert_str_eq(asked.token, "prometheus");
	ck_assert_str_eq(asked.ns, "default"); /* whose turn it is */
	expect_nothing(&train);
	wb_serve_reader(s, asked.peer + 1, 7, 0, ""); /* nobody */
	expect_nothing(&train);
	wb_serve_reader(s, asked.peer, asked.number, -EPERM, "it may not");
	expect_answer(&train, 7, -EPERM, "it may not");
	wb_serve_let_go(s, "default/a", "train", "gone");
	wb_serve_reader(s, asked.peer, asked.number, 0, ""); /* too late */
	end_wire(&train);
}
END_TEST

START_TEST(refused_token_is_told_why_and_may_come_again)
{
	union wb_msg m;

	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, -EPERM, "not of this pod");
	expect(&train, WBP_REJECT, &m);
	ck_assert_str_eq(m.reject.sentence, "not of this pod");
	ck_assert(m.reject.retry && train.is_closed);
	wb_msg_free(WBP_REJECT, &m);
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, ""); /* too late */
	expect_nothing(&train);
	end_wire(&train);
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, ""); /* gone */
}
END_TEST

START_TEST(a_claim_too_many_is_told_and_may_come_again)
{
	union wb_msg m;

	open_wire(&train);
	train.is_crowded = true;
	hello_with(&train, "secret", "default/a");
	ck_assert_str_eq(claimed, "");
	expect(&train, WBP_REJECT, &m);
	ck_assert(m.reject.retry && train.is_closed);
	ck_assert_ptr_nonnull(strstr(m.reject.sentence, "too many agents of this address"));
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&train);
}
END_TEST

/* What the object says of its members, then the events. */
static const char *told(void)
{
	static char text[1000];
	json_t *st = wb_serve_status(s, "default/a"), *list = json_object_get(st, "conditions"), *c;
	size_t i;

	text[0] = '\0';
	json_array_foreach(list, i, c)
	{
		if (!strcmp(json_string_value(json_object_get(c, "type")), "MembersConnected"))
			snprintf(text, sizeof(text), "%s: %s\n%s",
				json_string_value(json_object_get(c, "reason")),
				json_string_value(json_object_get(c, "message")), events);
	}
	json_decref(st);
	return text;
}

static bool is_reason(const char *reason, const char *words)
{
	return !strncmp(told(), reason, strlen(reason)) && strstr(told(), words);
}

static void turned_away_from(
	const char *object, const struct wb_serve_who *who, int rc, const char *sentence)
{
	union wb_msg m;

	open_wire(&train);
	hello_with(&train, "secret", object);
	wb_serve_authenticated(s, claimed_peer, who, rc, sentence);
	expect(&train, WBP_REJECT, &m);
	ck_assert_str_eq(m.reject.sentence, sentence);
	ck_assert(m.reject.retry);
	wb_msg_free(WBP_REJECT, &m);
	ck_assert(train.is_closed);
	end_wire(&train);
}

static void turned_away(const struct wb_serve_who *who, int rc, const char *sentence)
{
	turned_away_from("default/a", who, rc, sentence);
}

static double unproved(const char *reason)
{
	return wb_metric_get(wb_serve_own_metrics(s), WB_SM_UNPROVED, WB_LABELS(reason));
}

/* Whose token it is, and what of a refusal is known outside of the operator. */
static const struct wb_serve_who pod_of_other = {"other", "train", "u-9"};
static const struct {
	const struct wb_serve_who *who;
	int rc;
	const char *counted; /* reason; NULL = the object speaks of it */
} claims[] = {
	{NULL, -EACCES, "token"},
	{NULL, -EAGAIN, "unchecked"},
	{&pod_of_other, -EACCES, "namespace"},
	{&pod_of_other, -EPERM, "namespace"},
	{&pod_of_default, -EPERM, NULL},
};

/* Also not of one that calls itself as a pod that is awaited: names are no secret. */
START_TEST(claim_that_nothing_proves_is_only_counted)
{
	const char *counted = claims[_i].counted;

	wb_serve_pod(s, "default/a", &(struct wb_serve_pod){.name = "train", .has_sidecar = true});
	for (int i = 0; i < 3; i++)
		turned_away(claims[_i].who, claims[_i].rc, "not known");
	if (counted) {
		ck_assert_str_eq(events, "");
		ck_assert_ptr_null(strstr(told(), "not known"));
		ck_assert(unproved(counted) == 3);
		return;
	}
	ck_assert(is_reason("AuthenticationRejected", "agent train was refused: not known"));
	ck_assert_ptr_nonnull(strstr(told(), "default/a: not known (train u-1)\n"));
	ck_assert(unproved("token") + unproved("namespace") + unproved("unchecked") == 0);
}
END_TEST

/* A token may be for audiences of any namespace: it speaks for its own alone. */
START_TEST(claim_to_two_namespaces_is_told_in_the_one_that_is_proved)
{
	static const char *const both[] = {"default/a", "other/b"};
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = "train",
		.host = "10.0.0.1",
		.port = 7444,
		.instance = 11,
		.token = "secret",
		.objects = (void *)(uintptr_t)both,
		.n_objects = 2};

	put_another("other/b");
	open_wire(&train);
	agent_says(&train, WBP_HELLO, &h);
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, -EPERM, "not its name");
	ck_assert_str_eq(events, "default/a: not its name (train u-1)\n");
	end_wire(&train);
}
END_TEST

START_TEST(other_protocol_version_is_told_of_after_the_token)
{
	union wb_msg m;

	hello_version = 99;
	turned_away(NULL, -EACCES, "not known");
	ck_assert_ptr_null(strstr(told(), "99"));
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	expect_nothing(&train);
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	expect(&train, WBP_REJECT, &m);
	ck_assert_ptr_nonnull(strstr(m.reject.sentence, "99"));
	ck_assert(!m.reject.retry && train.is_closed);
	wb_msg_free(WBP_REJECT, &m);
	ck_assert(is_reason("ProtocolVersionMismatch", "agent train was refused: "));
	end_wire(&train);
}
END_TEST

/* What an agent without a word for it hears about @object, its name left out. */
static void refusal_of(const char *token, const char *object, char out[400])
{
	union wb_msg m;
	char *at;

	open_wire(&train);
	hello_with(&train, token, object);
	if (token && *token && strchr(object, '/')) {
		snprintf(out, 400, "the token is not for %s", object);
		wb_serve_authenticated(s, claimed_peer, NULL, -EACCES, out);
	}
	expect(&train, WBP_REJECT, &m);
	snprintf(out, 400, "%s (%lld, %d)", m.reject.sentence, (long long)m.reject.code,
		m.reject.retry);
	at = strchr(object, '/') ? strstr(out, object) : NULL;
	if (at)
		memset(at, '#', strlen(object));
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&train);
}

static const char *const tokens[] = {NULL, "", "stolen"};

START_TEST(strangers_hear_the_same_of_objects_that_are_there_and_that_are_not)
{
	char there[400], absent[400];

	refusal_of(tokens[_i], "default/a", there);
	refusal_of(tokens[_i], "default/x", absent);
	ck_assert_str_eq(there, absent);
	/* A short name would be found, or not. */
	refusal_of(tokens[_i], "a", there);
	refusal_of(tokens[_i], "x", absent);
	ck_assert_str_eq(there, absent);
}
END_TEST

/* Two connections that have not been let in for seconds, train's the older one, and a third that
 * wants a place. */
static const struct {
	bool train_claims, roll_claims; /* it showed a token, which is being checked */
	bool is_roll_closed; /* else train is */
} lingering[] = {
	{false, false, false}, {true, false, true}, {false, true, false},
	{true, true, false}, /* tokens may be made up */
};

START_TEST(who_waits_for_us_makes_room_after_those_who_say_nothing)
{
	static struct wire third;
	struct wb_budget_limits limits;

	wb_budget_size(1u << 30, &limits);
	ck_assert_int_eq(wb_budget_override(&limits, "connections=2"), 0);
	tear_down_serve();
	start_with_tokens(&limits);
	open_wire(&train);
	if (lingering[_i].train_claims)
		hello_with(&train, "secret", "default/a");
	clk.now += S / 10;
	open_wire(&roll);
	if (lingering[_i].roll_claims)
		hello_with(&roll, "secret", "default/a");
	clk.now += 3 * S;
	open_wire(&third);
	ck_assert(!third.is_closed);
	ck_assert_int_eq(roll.is_closed, lingering[_i].is_roll_closed);
	ck_assert_int_eq(train.is_closed, !lingering[_i].is_roll_closed);
	end_wire(&train);
	end_wire(&roll);
	end_wire(&third);
}
END_TEST

START_TEST(who_has_a_token_for_it_hears_that_there_is_no_such_object)
{
	union wb_msg m;

	open_wire(&train);
	hello_with(&train, "secret", "default/x");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	expect(&train, WBP_REJECT, &m);
	ck_assert_ptr_nonnull(strstr(m.reject.sentence, "no object default/x"));
	ck_assert_ptr_null(strstr(m.reject.sentence, "default/a"));
	ck_assert(m.reject.retry);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&train);
}
END_TEST

static json_int_t connected(const char *object)
{
	json_t *st = wb_serve_status(s, object);
	json_int_t n = json_integer_value(json_object_get(st, "connectedAgents"));

	ck_assert_ptr_nonnull(st);
	json_decref(st);
	return n;
}

/* What a token is for is all that its agent may join: its plan holds the key of the others. */
START_TEST(agent_joins_no_object_but_what_its_token_is_for)
{
	struct wb_msg_workers m = {.object = "other/b"};
	union wb_msg r;

	put_another("other/b");
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	welcome(&train, 1);
	if (_i)
		m.object = "b";
	agent_says(&train, WBP_WORKERS, &m);
	expect(&train, WBP_REJECT, &r);
	ck_assert_ptr_nonnull(strstr(r.reject.sentence, "HELLO"));
	wb_msg_free(WBP_REJECT, &r);
	ck_assert(train.is_closed);
	ck_assert_int_eq(connected("other/b"), 0);
	end_wire(&train);
}
END_TEST

START_TEST(agent_reports_of_no_object_but_its_own)
{
	struct wb_p_engine_state e = {.engine = "e1", .state = WB_ENGINE_TORN, .transfer = 4};
	struct wb_msg_report m = {.object = "other/b",
		.transfer = 4,
		.version = 4,
		.state = WB_REPORT_FINAL_TORN,
		.is_final = true,
		.engines = &e,
		.n_engines = 1};
	uint64_t looks;

	put_another("other/b");
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	welcome(&train, 1);
	looks = wb_serve_looks(s, "other/b");
	agent_says(&train, WBP_REPORT, &m);
	ck_assert_uint_eq(wb_serve_looks(s, "other/b"), looks);
	end_wire(&train);
}
END_TEST

/* What was asked about is what is served, though its short name means another one by now. */
START_TEST(short_name_means_what_it_meant_when_it_was_claimed)
{
	struct wb_msg_workers m = {.object = "a"};
	union wb_msg r;

	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	ck_assert_str_eq(claimed, "train secret 1 default/a");
	put_another("other/a");
	wb_serve_remove(s, "default/a", "it was deleted");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	expect(&train, WBP_REJECT, &r);
	wb_msg_free(WBP_REJECT, &r);
	agent_says(&train, WBP_WORKERS, &m);
	ck_assert_int_eq(connected("other/a"), 0);
	end_wire(&train);
}
END_TEST

static const struct {
	const char *token, *object;
} nothing_claimed[] = {{NULL, "default/a"}, {"", "default/a"}, {"secret", NULL}};

START_TEST(claim_without_token_or_object_is_refused)
{
	union wb_msg m;

	open_wire(&train);
	hello_with(&train, nothing_claimed[_i].token, nothing_claimed[_i].object);
	expect(&train, WBP_REJECT, &m);
	wb_msg_free(WBP_REJECT, &m);
	ck_assert(train.is_closed && !claimed_peer);
	end_wire(&train);
}
END_TEST

START_TEST(hello_of_another_connection_is_refused)
{
	char ours[WB_CHAN_BINDING_TEXT] = "", other[WB_CHAN_BINDING_TEXT];
	union wb_msg m;

	memset(other, '0', sizeof(other) - 1);
	other[sizeof(other) - 1] = '\0';
	for (int i = 0; i < WB_CHAN_BINDING_BYTES; i++)
		strcat(ours, "ab");
	hello_binding = other;
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	expect(&train, WBP_REJECT, &m);
	ck_assert(strstr(m.reject.sentence, "made for another connection"));
	wb_msg_free(WBP_REJECT, &m);
	ck_assert(train.is_closed && !claimed_peer);
	end_wire(&train);
	hello_binding = ours;
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	welcome(&train, 1);
	wb_serve_drain(s, "end");
	end_wire(&train);
}
END_TEST

START_TEST(token_is_used_by_one_connection_at_a_time)
{
	struct wb_msg_heartbeat beat = {.sent_ns = 1, .echo_received_ns = 1};
	union wb_msg m;

	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	welcome(&train, 1);
	open_wire(&roll);
	hello_with(&roll, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, -EPERM, "twice"); /* nothing */
	expect_nothing(&roll);
	expect(&train, WBP_HEARTBEAT, &m);
	beat.echo_ns = m.heartbeat.sent_ns;
	agent_says(&train, WBP_HEARTBEAT, &beat);
	expect(&roll, WBP_REJECT, &m);
	ck_assert(strstr(m.reject.sentence, "agent train is connected already, from wire"));
	ck_assert(m.reject.retry && roll.is_closed && !train.is_closed);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&roll);
	/* The first is dead: it is closed when it has been silent, and its successor comes in. */
	clk.now += 15 * S;
	wb_serve_tick(s);
	ck_assert(train.is_closed);
	open_wire(&roll);
	hello_with(&roll, "secret", "default/a");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	welcome(&roll, 1);
	end_wire(&train);
	wb_serve_drain(s, "end");
	end_wire(&roll);
}
END_TEST

START_TEST(claimed_peer_may_not_speak_and_not_wait_for_ever)
{
	union wb_msg m;
	struct wb_msg_heartbeat beat = {.sent_ns = 1};

	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	agent_says(&train, WBP_HEARTBEAT, &beat);
	expect(&train, WBP_REJECT, &m);
	wb_msg_free(WBP_REJECT, &m);
	ck_assert(train.is_closed);
	end_wire(&train);
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	clk.now += 29 * S;
	wb_serve_tick(s);
	ck_assert(!train.is_closed);
	clk.now += S;
	wb_serve_tick(s);
	ck_assert(train.is_closed && unclaimed_peer != claimed_peer);
	/* The object goes while the answer is awaited. */
	end_wire(&train);
	ck_assert_uint_eq(unclaimed_peer, claimed_peer);
	open_wire(&train);
	hello_with(&train, "secret", "default/a");
	wb_serve_remove(s, "default/a", "it was deleted");
	wb_serve_authenticated(s, claimed_peer, &pod_of_default, 0, "");
	expect(&train, WBP_REJECT, &m);
	ck_assert(m.reject.retry);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&train);
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("serve_objects");
	TCase *tc;

	tc = tcase_create("objects");
	tcase_add_checked_fixture(tc, open_set_up, tear_down_serve);
	tcase_add_test(tc, object_may_come_after_its_agents);
	tcase_add_test(tc, numbers_of_transfers_go_on_after_a_stored_status);
	tcase_add_test(tc, object_that_goes_lets_its_agents_go);
	tcase_add_test(tc, object_made_again_is_another_one);
	tcase_add_test(tc, standby_names_the_leader);
	suite_add_tcase(su, tc);
	tc = tcase_create("tokens");
	tcase_add_checked_fixture(tc, token_set_up, tear_down_serve);
	tcase_add_test(tc, token_is_asked_about_before_anything_is_told);
	tcase_add_test(tc, reader_of_an_agent_is_asked_about_and_the_agent_told);
	tcase_add_test(tc, refused_token_is_told_why_and_may_come_again);
	tcase_add_test(tc, a_claim_too_many_is_told_and_may_come_again);
	tcase_add_loop_test(
		tc, claim_that_nothing_proves_is_only_counted, 0, (int)WB_ARRAY_SIZE(claims));
	tcase_add_test(tc, claim_to_two_namespaces_is_told_in_the_one_that_is_proved);
	tcase_add_test(tc, other_protocol_version_is_told_of_after_the_token);
	tcase_add_loop_test(tc, strangers_hear_the_same_of_objects_that_are_there_and_that_are_not,
		0, (int)WB_ARRAY_SIZE(tokens));
	tcase_add_loop_test(tc, who_waits_for_us_makes_room_after_those_who_say_nothing, 0,
		WB_ARRAY_SIZE(lingering));
	tcase_add_test(tc, who_has_a_token_for_it_hears_that_there_is_no_such_object);
	tcase_add_loop_test(tc, claim_without_token_or_object_is_refused, 0,
		(int)WB_ARRAY_SIZE(nothing_claimed));
	tcase_add_loop_test(tc, agent_joins_no_object_but_what_its_token_is_for, 0, 2);
	tcase_add_test(tc, agent_reports_of_no_object_but_its_own);
	tcase_add_test(tc, short_name_means_what_it_meant_when_it_was_claimed);
	tcase_add_test(tc, claimed_peer_may_not_speak_and_not_wait_for_ever);
	tcase_add_test(tc, hello_of_another_connection_is_refused);
	tcase_add_test(tc, token_is_used_by_one_connection_at_a_time);
	suite_add_tcase(su, tc);
	return su;
}

int main(void)
{
	return fx_run(suite());
}
