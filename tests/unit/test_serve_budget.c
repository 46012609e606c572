/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's endpoint with tenants who take too much, and others who are to notice nothing. */
#include "operator-shim/serve/budget.h"
#include "operator-shim/serve/metrics.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

#define WIRES 8
static struct wire wires[WIRES]; /* wires[0] and wires[1]: the attacker's; wires[2]: the victim's */
static char events[2000];

static void event(void *ctx, const struct wb_serve_event *e)
{
	size_t at = strlen(events);

	(void)ctx;
	snprintf(events + at, sizeof(events) - at, "%s %s\n", e->object, e->reason);
}

/* @overrides: options, with spaces between. */
static void start(const char *overrides, uint64_t planning_bytes)
{
	struct wb_budget_limits l;
	char text[200], *at = text, *one;

	wb_budget_size(UINT64_C(1) << 30, &l);
	snprintf(text, sizeof(text), "%s", overrides);
	while ((one = strsep(&at, " ")))
		if (*one)
			ck_assert_int_eq(wb_budget_override(&l, one), 0);
	if (planning_bytes)
		l.planning_bytes = planning_bytes;
	start_serve((struct wb_serve_opts){.limits = &l}, (struct wb_serve_env){.event = event});
	make_model();
	events[0] = '\0';
	job_work = NULL;
	job_cookie = NULL;
}

static void finish(void)
{
	tear_down_serve();
	wb_buf_finish(&manifest_bytes);
	wb_buf_finish(&map_bytes);
}

static int put(const char *object, const char *more, struct wb_err *err)
{
	const char *slash = strchr(object, '/');
	struct wb_spec *spec = NULL;
	struct wb_err bad = {0};
	char text[512];
	size_t n = 0;
	int rc;

	snprintf(text, sizeof(text),
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
		"metadata: {name: %s, namespace: %.*s}\n"
		"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}%s}\n",
		slash + 1, (int)(slash - object), object, more);
	ck_assert_msg(wb_spec_load("f", text, strlen(text), &spec, &n, &bad) == 0, "%s", bad.msg);
	rc = wb_serve_put(s,
		&(struct wb_serve_object_desc){
			.spec = spec, .uid = wb_hash64(object, strlen(object), 0) | 1},
		err);
	wb_free(spec);
	return rc;
}

static void must_put(const char *object)
{
	struct wb_err err = {0};

	ck_assert_msg(put(object, "", &err) == 0, "%s", err.msg);
}

static void hello_of(struct wire *w, const char *agent, const char *object)
{
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = agent,
		.host = "10.0.0.1",
		.port = 7444,
		.instance = wb_hash64(agent, strlen(agent), wb_hash64(object, strlen(object), 0)),
		.objects = &object,
		.n_objects = 1};

	open_wire(w);
	agent_says(w, WBP_HELLO, &h);
}

static void workers_of(struct wire *w, const char *object, uint32_t role, struct wb_digest manifest,
	struct wb_digest map, uint32_t n)
{
	struct wb_p_worker p[16] = {0};
	struct wb_msg_workers m = {.object = object, .workers = p, .n_workers = n};

	for (uint32_t i = 0; i < n; i++)
		p[i] = (struct wb_p_worker){.id = i,
			.name = "w",
			.role = role,
			.engine = "e",
			.rank = -1,
			.manifest = manifest,
			.map = map,
			.mem_kind = 1,
			.version = -1};
	agent_says(w, WBP_WORKERS, &m);
}

static void welcomed(struct wire *w)
{
	union wb_msg m;

	expect(w, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
}

/* One agent with the trainer's worker and one with the engine's. */
static void join_pair(struct wire *t, struct wire *r, const char *object)
{
	hello_of(t, "train", object);
	welcomed(t);
	workers_of(t, object, 1, manifest_digest, map_digest, 1);
	hello_of(r, "roll", object);
	welcomed(r);
	workers_of(r, object, 2, manifest_digest, map_digest, 1);
}

static void content_of(struct wire *w, const char *object, uint32_t kind, struct wb_digest d,
	uint64_t total, uint64_t offset, const void *data, size_t n)
{
	struct wb_msg_content m = {.object = object,
		.kind = kind,
		.digest = d,
		.total_bytes = total,
		.offset = offset,
		.data = data,
		.n_data = (uint32_t)n};

	agent_says(w, WBP_CONTENT, &m);
}

static void upload(struct wire *w, const char *object)
{
	content_of(w, object, 1, manifest_digest, manifest_bytes.len, 0, manifest_bytes.data,
		manifest_bytes.len);
	content_of(w, object, 2, map_digest, map_bytes.len, 0, map_bytes.data, map_bytes.len);
}

/* What it hears last is a refusal that says @words; it may come again. */
static void refused(struct wire *w, const char *words)
{
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_REJECT || m.reject.worker) {
		ck_assert_str_ne(wb_msg_name(type), wb_msg_name(WBP_NONE));
		wb_msg_free(type, &m);
	}
	ck_assert_msg(strstr(m.reject.sentence, words), "%s", m.reject.sentence);
	ck_assert_int_eq(m.reject.code, -EDQUOT);
	ck_assert(m.reject.retry && w->is_closed);
	wb_msg_free(WBP_REJECT, &m);
}

/* Reason and message of a condition. */
static const char *condition(const char *object, const char *type)
{
	static char text[1200];
	json_t *st = wb_serve_status(s, object), *c;
	size_t i;

	text[0] = '\0';
	json_array_foreach(json_object_get(st, "conditions"), i, c)
	{
		if (!strcmp(json_string_value(json_object_get(c, "type")), type))
			snprintf(text, sizeof(text), "%s: %s",
				json_string_value(json_object_get(c, "reason")),
				json_string_value(json_object_get(c, "message")));
	}
	json_decref(st);
	return text;
}

static void says(const char *object, const char *type, const char *reason, const char *words)
{
	const char *text = condition(object, type);

	ck_assert_msg(!strncmp(text, reason, strlen(reason)) && strstr(text, words), "%s", text);
}

static void gets_plan_of(struct wire *w)
{
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_PLAN) {
		ck_assert_str_ne(wb_msg_name(type), wb_msg_name(WBP_NONE));
		wb_msg_free(type, &m);
	}
	wb_msg_free(WBP_PLAN, &m);
}

/* From HELLO to the plan, while the attacker is at its bounds. */
static void victim_gets_its_plan(void)
{
	must_put("victim/v");
	join_pair(&wires[6], &wires[7], "victim/v");
	upload(&wires[6], "victim/v");
	run_job();
	gets_plan_of(&wires[6]);
	gets_plan_of(&wires[7]);
	end_wire(&wires[6]);
	end_wire(&wires[7]);
}

static uint64_t used(enum wb_budget_kind kind)
{
	static const char *const scope[] = {"all", "namespace", "object"};
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	wb_buf_finish(&b);
	return (uint64_t)wb_metric_get(wb_serve_own_metrics(s), WB_SM_BUDGET_USED,
		WB_LABELS(wb_budget_name(kind), scope[0]));
}

START_TEST(agent_above_the_budget_is_refused_and_comes_in_when_there_is_room)
{
	start("agents=100/2/2", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	hello_of(&wires[1], "x1", "evil/a");
	hello_of(&wires[2], "x2", "evil/a");
	welcomed(&wires[0]);
	welcomed(&wires[1]);
	refused(&wires[2], "WeightTransfer evil/a has 2 connected agents, 1 more would be above "
			   "the budget of 2: use less, or raise the operator's memory limit");
	says("evil/a", "MembersConnected", "BudgetExceeded",
		"(resources.limits.memory) or --budget agents (chart value budgets.agents)");
	ck_assert_ptr_nonnull(strstr(events, "evil/a BudgetExceeded"));
	end_wire(&wires[2]);
	victim_gets_its_plan();
	end_wire(&wires[0]);
	ck_assert_uint_eq(used(WB_BUDGET_AGENTS), 1);
	hello_of(&wires[2], "x2", "evil/a");
	welcomed(&wires[2]);
	end_wire(&wires[1]);
	end_wire(&wires[2]);
	ck_assert_uint_eq(used(WB_BUDGET_AGENTS), 0);
	finish();
}
END_TEST

START_TEST(workers_above_the_budget_are_refused_with_their_agent)
{
	start("workers=100/8/8", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	workers_of(&wires[0], "evil/a", 2, manifest_digest, map_digest, 8);
	workers_of(&wires[0], "evil/a", 2, manifest_digest, map_digest, 3);
	ck_assert_uint_eq(used(WB_BUDGET_WORKERS), 3);
	workers_of(&wires[0], "evil/a", 2, manifest_digest, map_digest, 9);
	refused(&wires[0], "WeightTransfer evil/a has 3 workers of connected agents, 6 more");
	victim_gets_its_plan();
	end_wire(&wires[0]);
	ck_assert_uint_eq(used(WB_BUDGET_WORKERS), 0);
	finish();
}
END_TEST

/* The sender's word is enough to refuse, never to take memory. */
START_TEST(map_above_the_budget_is_refused_before_it_comes)
{
	static uint8_t part[4096];

	start("maps=8Mi/2Mi/1Mi", 0);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	content_of(&wires[0], "evil/a", 2, map_digest, UINT64_C(1) << 30, 0, part, sizeof(part));
	refused(&wires[0], "WeightTransfer evil/a has 0 KiB of manifests and source maps, 1024 MiB "
			   "more would be above the budget of 1024 KiB");
	end_wire(&wires[0]);
	says("evil/a", "MembersConnected", "BudgetExceeded", "budgets.maps");
	victim_gets_its_plan();
	end_wire(&wires[1]);
	ck_assert_uint_eq(used(WB_BUDGET_MAPS), manifest_bytes.len + map_bytes.len);
	finish();
}
END_TEST

START_TEST(uploads_that_are_given_up_make_room)
{
	static uint8_t part[4096];

	start("maps=8Mi/2Mi/1Mi", 0);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	content_of(&wires[0], "evil/a", 2, map_digest, 1 << 20, 0, part, sizeof(part));
	ck_assert_uint_eq(used(WB_BUDGET_MAPS), 1 << 20);
	/* The next one, of the same object, waits for room and is refused. */
	content_of(&wires[0], "evil/a", 1, manifest_digest, 1 << 20, 0, part, sizeof(part));
	refused(&wires[0], "has 1024 KiB");
	end_wire(&wires[0]);
	ck_assert_uint_eq(used(WB_BUDGET_MAPS), 0);
	end_wire(&wires[1]);
	finish();
}
END_TEST

START_TEST(flood_of_what_nobody_asked_for_is_ended)
{
	static uint8_t part[1 << 20];
	union wb_msg m;
	int n = 0;

	start("", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	welcomed(&wires[0]);
	while (!wires[0].is_closed && n++ < 100)
		content_of(&wires[0], "evil/a", 2, map_digest, UINT64_C(1) << 30, 0, part,
			sizeof(part));
	ck_assert_int_le(n, 20);
	expect(&wires[0], WBP_REJECT, &m);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&wires[0]);
	finish();
}
END_TEST

/* An engine that is started again and again brings another map each time. */
START_TEST(maps_of_workers_that_left_make_room_for_others)
{
	start("maps=1Mi/64Ki/64Ki", 0);
	must_put("a/a");
	hello_of(&wires[0], "train", "a/a");
	workers_of(&wires[0], "a/a", 1, manifest_digest, map_digest, 1);
	for (unsigned i = 0; i < 40; i++) {
		static uint8_t map[8192];
		struct wb_digest d;

		memset(map, (int)i, sizeof(map));
		d = wb_digest_of(map, sizeof(map));
		hello_of(&wires[1], "roll", "a/a");
		workers_of(&wires[1], "a/a", 2, manifest_digest, d, 1);
		if (!i)
			upload(&wires[0], "a/a");
		content_of(&wires[1], "a/a", 2, d, sizeof(map), 0, map, sizeof(map));
		ck_assert_msg(!wires[1].is_closed, "map %u", i);
		workers_of(&wires[1], "a/a", 2, manifest_digest, d, 0);
		end_wire(&wires[1]);
		if (job_work)
			run_job(); /* it is no map */
	}
	ck_assert_uint_le(used(WB_BUDGET_MAPS), 64 << 10);
	end_wire(&wires[0]);
	finish();
}
END_TEST

START_TEST(objects_of_a_namespace_are_bounded_and_the_sentence_says_by_what)
{
	struct wb_err err = {0};

	start("objects=8/2/1", 0);
	must_put("evil/a");
	must_put("evil/b");
	ck_assert_int_eq(put("evil/c", "", &err), -EDQUOT);
	ck_assert_msg(strstr(err.msg, "namespace evil has 2 WeightTransfers, 1 more would be above "
				      "the budget of 2") &&
			      strstr(err.msg, "budgets.objects"),
		"%s", err.msg);
	ck_assert_ptr_null(wb_serve_status(s, "evil/c"));
	must_put("evil/a"); /* one that is there may change */
	victim_gets_its_plan();
	wb_serve_remove(s, "evil/b", "it was deleted");
	must_put("evil/c");
	finish();
}
END_TEST

START_TEST(one_namespace_plans_one_at_a_time_and_keeps_nobody_waiting)
{
	void (*work_of)(void *), (*done_of)(void *);
	void *cookie;

	start("", 0);
	must_put("evil/a");
	must_put("evil/b");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	work_of = job_work;
	done_of = job_done;
	cookie = job_cookie;
	ck_assert_ptr_nonnull(work_of);
	join_pair(&wires[2], &wires[3], "evil/b");
	upload(&wires[2], "evil/b");
	ck_assert_ptr_eq(job_cookie, cookie); /* it waits */
	ck_assert_uint_eq(used(WB_BUDGET_PLANNING), 1);
	victim_gets_its_plan();
	job_work = NULL;
	work_of(cookie);
	done_of(cookie);
	gets_plan_of(&wires[1]);
	ck_assert_ptr_nonnull(job_work); /* its turn */
	run_job();
	gets_plan_of(&wires[3]);
	ck_assert_uint_eq(used(WB_BUDGET_PLANNING), 0);
	for (int i = 0; i < 4; i++)
		end_wire(&wires[i]);
	finish();
}
END_TEST

START_TEST(object_that_goes_while_its_plan_waits_or_runs_leaves_nothing)
{
	start("", 0);
	must_put("evil/a");
	must_put("evil/b");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	join_pair(&wires[2], &wires[3], "evil/b");
	upload(&wires[2], "evil/b");
	wb_serve_remove(s, "evil/b", "it was deleted");
	wb_serve_remove(s, "evil/a", "it was deleted");
	ck_assert_uint_eq(used(WB_BUDGET_PLANNING), 1); /* a thread cannot be stopped */
	ck_assert_uint_gt(used(WB_BUDGET_MAPS), 0); /* and reads what it was given */
	run_job();
	ck_assert_ptr_null(job_work);
	for (int i = 0; i < 4; i++)
		end_wire(&wires[i]);
	for (int k = 0; k < WB_BUDGET_KINDS; k++)
		ck_assert_uint_eq(used((enum wb_budget_kind)k), 0);
	finish();
}
END_TEST

static const struct {
	const char *overrides;
	uint64_t planning_bytes;
	const char *says;
} plans[] = {
	{"", 4096,
		"that one plan may take: raise its memory limit (resources.limits.memory) or "
		"--planning-memory (chart value planningMemory)"},
	{"plans=10Ki/1Ki/100", 0, "WeightTransfer evil/a has 0 KiB of plans"},
};

START_TEST(plan_above_the_budget_is_refused_and_tried_again)
{
	start(plans[_i].overrides, plans[_i].planning_bytes);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	run_job();
	says("evil/a", "Planned", "BudgetExceeded", plans[_i].says);
	ck_assert(!wires[0].is_closed);
	clk.now += 29 * S;
	for (int i = 0; i < 2; i++)
		agent_says(&wires[i], WBP_HEARTBEAT, &(struct wb_msg_heartbeat){0});
	wb_serve_tick(s);
	ck_assert_ptr_null(job_work);
	clk.now += 2 * S;
	wb_serve_tick(s);
	ck_assert_ptr_nonnull(job_work);
	run_job();
	end_wire(&wires[0]);
	end_wire(&wires[1]);
	finish();
}
END_TEST

static void gets_no_plan(struct wire *w)
{
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_NONE) {
		ck_assert_int_ne(type, WBP_PLAN);
		wb_msg_free(type, &m);
	}
}

/* What became of the pair of evil/a under that budget of plans. */
enum fate { PLAN_REFUSED, MESSAGE_REFUSED, PLAN_TOLD };

static enum fate fate_under(unsigned bytes)
{
	enum fate fate = PLAN_TOLD;
	char budget[64];

	snprintf(budget, sizeof(budget), "plans=%u/%u/%u", bytes, bytes, bytes);
	start(budget, 0);
	must_put("evil/a");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	run_job();
	if (!strncmp(condition("evil/a", "Planned"), "BudgetExceeded", 14)) {
		fate = PLAN_REFUSED;
	} else if (wires[0].is_closed || wires[1].is_closed) {
		fate = MESSAGE_REFUSED;
		for (int i = 0; i < 2; i++) {
			if (!wires[i].is_closed) {
				gets_no_plan(&wires[i]); /* the one refused is missing */
				continue;
			}
			refused(&wires[i], "of plans");
			end_wire(&wires[i]);
		}
		says("evil/a", "MembersConnected", "BudgetExceeded", "budgets.plans");
	} else {
		for (int i = 0; i < 2; i++)
			gets_plan_of(&wires[i]);
	}
	end_wire(&wires[0]);
	end_wire(&wires[1]);
	finish();
	return fate;
}

/* The plan and the message that tells of it are charged one after the other. */
START_TEST(plan_that_fits_while_its_message_does_not_is_told_to_nobody)
{
	enum fate fate = PLAN_REFUSED;
	unsigned seen[3] = {0};

	for (unsigned bytes = 64; bytes <= 4096; bytes += 64) {
		enum fate now = fate_under(bytes);

		ck_assert_msg(now >= fate, "less for more, at %u bytes", bytes);
		fate = now;
		seen[now]++;
	}
	ck_assert(seen[PLAN_REFUSED] && seen[MESSAGE_REFUSED] && seen[PLAN_TOLD]);
}
END_TEST

START_TEST(silent_connections_make_room_for_those_that_speak)
{
	start("connections=2", 0);
	must_put("a/a");
	open_wire(&wires[0]);
	open_wire(&wires[1]);
	open_wire(&wires[2]);
	refused(&wires[2], "2 connections that have not shown yet who they are");
	end_wire(&wires[2]);
	clk.now += 3 * S;
	hello_of(&wires[3], "x", "a/a"); /* the oldest has lingered */
	welcomed(&wires[3]);
	ck_assert(wires[0].is_closed != wires[1].is_closed);
	for (int i = 0; i < 4; i++)
		if (i != 2)
			end_wire(&wires[i]);
	ck_assert_uint_eq(used(WB_BUDGET_CONNECTIONS), 0);
	finish();
}
END_TEST

/* ---- messages that do not come whole ---- */

static int begins(struct wire *w, size_t bytes)
{
	return w->ch.cb.on_head(w->ch.cb.cookie, &w->ch, bytes);
}

START_TEST(messages_that_do_not_end_are_charged_and_others_notice_nothing)
{
	start("frames=64Mi/8Mi/8Mi", 0);
	must_put("evil/a");
	for (int i = 0; i < 4; i++)
		hello_of(&wires[i], i ? i == 1 ? "x1" : i == 2 ? "x2" : "x3" : "x0", "evil/a");
	ck_assert_int_eq(begins(&wires[0], 4 << 20), 0);
	ck_assert_int_eq(begins(&wires[1], 4 << 20), 0);
	ck_assert_int_eq(begins(&wires[2], 4 << 20), -EAGAIN); /* it is not read */
	ck_assert_int_eq(begins(&wires[3], 1000), 0); /* what is small costs nothing */
	ck_assert_uint_eq(used(WB_BUDGET_FRAMES), 8 << 20);
	victim_gets_its_plan();
	ck_assert_int_eq(wires[2].n_resumed, 0);
	end_wire(&wires[0]);
	ck_assert_int_eq(wires[2].n_resumed, 1);
	ck_assert_int_eq(begins(&wires[2], 4 << 20), 0); /* as it was promised */
	ck_assert_uint_eq(used(WB_BUDGET_FRAMES), 8 << 20);
	agent_says(&wires[2], WBP_HEARTBEAT, &(struct wb_msg_heartbeat){0}); /* it has come whole */
	ck_assert_uint_eq(used(WB_BUDGET_FRAMES), 4 << 20);
	for (int i = 1; i < 4; i++)
		end_wire(&wires[i]);
	ck_assert_uint_eq(used(WB_BUDGET_FRAMES), 0);
	finish();
}
END_TEST

/* It is not silent: nobody listens to it. */
START_TEST(agent_whose_message_waits_for_room_is_kept_and_told_in_the_end)
{
	struct wb_err err = {0};
	union wb_msg m;

	start("frames=64Mi/4Mi/4Mi", 0);
	ck_assert_int_eq(put("evil/a", ", heartbeatTimeoutSeconds: 5", &err), 0);
	hello_of(&wires[0], "x0", "evil/a");
	hello_of(&wires[1], "x1", "evil/a");
	welcomed(&wires[1]);
	ck_assert_int_eq(begins(&wires[0], 4 << 20), 0);
	ck_assert_int_eq(begins(&wires[1], 1 << 20), -EAGAIN);
	for (int n = 0; n < 59; n++) {
		clk.now += 1 * S;
		if (clk.now >= due)
			wb_serve_tick(s);
		ck_assert_msg(!wires[1].is_closed, "after %d s", n);
		ck_assert_msg(wires[0].is_closed == (n >= 4), "after %d s", n);
	}
	expect(&wires[1], WBP_HEARTBEAT, &m); /* the operator lives */
	wb_msg_free(WBP_HEARTBEAT, &m);
	clk.now += 2 * S;
	wb_serve_tick(s);
	refused(&wires[1], "WeightTransfer evil/a has 4096 KiB of messages that have not come "
			   "whole, 1024 KiB more");
	end_wire(&wires[1]);
	end_wire(&wires[0]);
	ck_assert_uint_eq(used(WB_BUDGET_FRAMES), 0);
	finish();
}
END_TEST

START_TEST(message_that_never_has_room_is_refused_at_once)
{
	start("frames=64Mi/1Mi/1Mi", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	ck_assert_int_eq(begins(&wires[0], 2 << 20), -EDQUOT);
	refused(&wires[0], "budgets.frames");
	end_wire(&wires[0]);
	finish();
}
END_TEST

START_TEST(peer_that_does_not_get_on_is_told_so)
{
	struct wb_err why = {.code = -ETIMEDOUT, .msg = "it has begun a frame"};
	union wb_msg m;

	start("", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	welcomed(&wires[0]);
	wires[0].ch.cb.on_stuck(wires[0].ch.cb.cookie, &wires[0].ch, &why);
	expect(&wires[0], WBP_REJECT, &m);
	ck_assert_str_eq(m.reject.sentence, "it has begun a frame");
	ck_assert(m.reject.retry && wires[0].is_closed);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&wires[0]);
	finish();
}
END_TEST

/* ---- reports ---- */

static void reports(
	struct wire *w, const char *object, uint64_t transfer, uint32_t first, uint32_t n)
{
	struct wb_p_worker_report *r = wb_zalloc(n, sizeof(*r));
	struct wb_p_phase phase = {.name = "wire", .start_ns = 1, .end_ns = 2};
	struct wb_msg_report m = {.object = object,
		.transfer = transfer,
		.version = (int64_t)transfer,
		.state = "Workers",
		.workers = r,
		.n_workers = n};

	for (uint32_t i = 0; i < n; i++)
		r[i] = (struct wb_p_worker_report){.worker = first + i,
			.stop_ns = 1,
			.resume_ns = 2,
			.phases = &phase,
			.n_phases = 1};
	agent_says(w, WBP_REPORT, &m);
	wb_free(r);
}

/* Workers and transfers that there never were. */
START_TEST(reports_are_kept_as_far_as_the_budget_goes_the_newest_first)
{
	uint64_t one;

	start("reports=64Mi/256Ki/256Ki", 0);
	must_put("evil/a");
	hello_of(&wires[0], "x0", "evil/a");
	welcomed(&wires[0]);
	reports(&wires[0], "evil/a", 1, 0, 100);
	one = used(WB_BUDGET_REPORTS);
	ck_assert_uint_gt(one, 100 * 100);
	for (uint64_t t = 2; t < 40; t++)
		reports(&wires[0], "evil/a", t, 0, 100);
	ck_assert_uint_le(used(WB_BUDGET_REPORTS), 256 << 10);
	ck_assert_uint_ge(used(WB_BUDGET_REPORTS), one);
	ck_assert(!strstr(events, "BudgetExceeded")); /* the oldest just go */
	for (uint32_t i = 0; i < 20; i++)
		reports(&wires[0], "evil/a", 40, 1000 * i, 1000);
	ck_assert_uint_le(used(WB_BUDGET_REPORTS), 256 << 10);
	ck_assert_ptr_nonnull(strstr(events, "evil/a BudgetExceeded"));
	ck_assert(!wires[0].is_closed);
	victim_gets_its_plan();
	wb_serve_remove(s, "evil/a", "it was deleted");
	ck_assert_uint_eq(used(WB_BUDGET_REPORTS), 0);
	end_wire(&wires[0]);
	finish();
}
END_TEST

/* Digests of contents are no proof against a forger. */
START_TEST(map_of_one_object_is_never_anothers)
{
	start("", 0);
	must_put("evil/a");
	must_put("good/b");
	join_pair(&wires[0], &wires[1], "evil/a");
	upload(&wires[0], "evil/a");
	run_job();
	join_pair(&wires[2], &wires[3], "good/b");
	want(&wires[2], manifest_digest); /* though there is one with this digest */
	want(&wires[2], map_digest);
	/* Nor by naming the other object. */
	content_of(&wires[0], "good/b", 2, map_digest, map_bytes.len, 0, map_bytes.data,
		map_bytes.len);
	content_of(&wires[0], "good/b", 1, manifest_digest, manifest_bytes.len, 0,
		manifest_bytes.data, manifest_bytes.len);
	ck_assert_ptr_null(job_work);
	upload(&wires[2], "good/b");
	run_job();
	gets_plan_of(&wires[3]);
	for (int i = 0; i < 4; i++)
		end_wire(&wires[i]);
	finish();
}
END_TEST

/* ---- heartbeats ---- */

static uint64_t beat_of(struct wire *w, const char *object)
{
	union wb_msg m;
	uint64_t ns;

	hello_of(w, "x", object);
	expect(w, WBP_WELCOME, &m);
	ns = m.welcome.heartbeat_ns;
	wb_msg_free(WBP_WELCOME, &m);
	return ns;
}

START_TEST(agents_keep_the_time_of_their_own_object)
{
	struct wb_err err = {0};

	start("", 0);
	ck_assert_int_eq(put("evil/a", ", heartbeatTimeoutSeconds: 5", &err), 0);
	ck_assert_int_eq(put("good/b", ", heartbeatTimeoutSeconds: 100", &err), 0);
	ck_assert_uint_eq(beat_of(&wires[0], "evil/a"), 2 * S);
	ck_assert_uint_eq(beat_of(&wires[1], "good/b"), 40 * S);
	clk.now += 6 * S;
	wb_serve_tick(s);
	ck_assert(wires[0].is_closed && !wires[1].is_closed);
	clk.now += 95 * S;
	wb_serve_tick(s);
	ck_assert(wires[1].is_closed);
	end_wire(&wires[0]);
	end_wire(&wires[1]);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("serve_budget");
	TCase *tc = tcase_create("tenants");

	tcase_add_test(tc, agent_above_the_budget_is_refused_and_comes_in_when_there_is_room);
	tcase_add_test(tc, workers_above_the_budget_are_refused_with_their_agent);
	tcase_add_test(tc, map_above_the_budget_is_refused_before_it_comes);
	tcase_add_test(tc, uploads_that_are_given_up_make_room);
	tcase_add_test(tc, flood_of_what_nobody_asked_for_is_ended);
	tcase_add_test(tc, maps_of_workers_that_left_make_room_for_others);
	tcase_add_test(tc, objects_of_a_namespace_are_bounded_and_the_sentence_says_by_what);
	tcase_add_test(tc, one_namespace_plans_one_at_a_time_and_keeps_nobody_waiting);
	tcase_add_test(tc, object_that_goes_while_its_plan_waits_or_runs_leaves_nothing);
	tcase_add_loop_test(
		tc, plan_above_the_budget_is_refused_and_tried_again, 0, WB_ARRAY_SIZE(plans));
	tcase_add_test(tc, plan_that_fits_while_its_message_does_not_is_told_to_nobody);
	tcase_add_test(tc, silent_connections_make_room_for_those_that_speak);
	tcase_add_test(tc, messages_that_do_not_end_are_charged_and_others_notice_nothing);
	tcase_add_test(tc, agent_whose_message_waits_for_room_is_kept_and_told_in_the_end);
	tcase_add_test(tc, message_that_never_has_room_is_refused_at_once);
	tcase_add_test(tc, peer_that_does_not_get_on_is_told_so);
	tcase_add_test(tc, reports_are_kept_as_far_as_the_budget_goes_the_newest_first);
	tcase_add_test(tc, map_of_one_object_is_never_anothers);
	tcase_add_test(tc, agents_keep_the_time_of_their_own_object);
	suite_add_tcase(suite, tc);
	return fx_run(suite);
}
