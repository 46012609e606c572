/* SPDX-License-Identifier: Apache-2.0 */
/* What moves between the agents of a fleet, the object with its API server and its operator, and
 * what a test may do to them. */
#include "tests/common/fx_fleet.h"

struct fleet_run fleet_run;
struct fleet_feed fleet_feed;
struct fleet_moved fleet_moved[TRANSFERS];
struct fleet_api fleet_api;
struct fleet_op fleet_op;
int64_t fleet_versions;
static uint64_t fleet_rng;

uint64_t fleet_random(uint64_t below)
{
	fleet_rng = wb_mix64(fleet_rng + 0x9e3779b97f4a7c15ull);
	return fleet_rng % below;
}

/* ---- what moves ---- */

/* PREPARE implies ACTIVATE. */
static bool goes_by(uint32_t i, const struct fleet_plan *p)
{
	struct fleet_agent *a = &fleet[i];

	if (!fleet_is_here(i) || !p->has[i])
		return false;
	if (!fleet_same_plan(&a->core, p) && fleet_same_plan(&a->installed, p))
		fleet_activate(a);
	return fleet_same_plan(&a->core, p);
}

static struct fleet_report report_of(enum wb_report state, bool is_final)
{
	return (struct fleet_report){.uid = fleet_run.plan.uid,
		.term = fleet_run.plan.term,
		.number = fleet_run.plan.number,
		.transfer = fleet_run.number,
		.version = fleet_run.version,
		.state = state,
		.is_final = is_final};
}

/* The trainer agent beside T0. */
uint32_t fleet_second(void)
{
	return fleet[T2].is_alive ? T2 : T1;
}

static void begin_transfer(void)
{
	struct fleet_plan p = fleet[T0].core;
	uint64_t number = 0;

	fleet_run.next_ns = clk.now + S;
	if (!p.term || !goes_by(T0, &p) || !goes_by(fleet_second(), &p))
		return;
	for (uint32_t i = 0; i < AGENTS; i++) {
		fleet_run.in[i] = goes_by(i, &p);
		fleet_run.in_instance[i] = fleet[i].instance;
		if (fleet_run.in[i])
			number = WB_MAX(number, fleet[i].highest);
	}
	fleet_run.runs = true;
	fleet_run.plan = p;
	fleet_run.number = ++number;
	fleet_run.version = ++fleet_versions;
	fleet_run.coordinator_instance = fleet[T0].instance;
	fleet_run.begin_ns = clk.now;
	fleet_run.end_ns = clk.now + 3 * STEP;
	fleet_feed.end_ns = 0; /* overtaken */
	ck_assert_uint_lt(number, TRANSFERS);
	ck_assert_msg(
		fleet_moved[number].uid != p.uid, "transfer %u has begun twice", (unsigned)number);
	memset(&fleet_moved[number], 0, sizeof(fleet_moved[number]));
	fleet_moved[number].uid = p.uid;
	for (uint32_t i = 0; i < AGENTS; i++)
		if (fleet_run.in[i])
			fleet[i].highest = number;
	WB_LOG_INFO("world", "transfer begins", WB_U("transfer", number), WB_U("uid", p.uid),
		WB_U("s", clk.now / S));
	fleet_report(T0, report_of(WB_REPORT_STARTED, false));
}

void end_transfer(bool is_aborted)
{
	bool has_coordinator =
		fleet[T0].is_alive && fleet[T0].instance == fleet_run.coordinator_instance;
	struct fleet_report all = report_of(WB_REPORT_FINAL_ABORTED, true);

	is_aborted |= !has_coordinator;
	for (uint32_t i = T0; i <= T2; i++)
		is_aborted |= fleet_run.in[i] &&
			      (!fleet_is_here(i) || fleet[i].instance != fleet_run.in_instance[i]);
	for (uint32_t i = E0; i < AGENTS; i++) {
		bool is_done = !is_aborted && fleet_run.in[i] && fleet_is_here(i) &&
			       fleet[i].instance == fleet_run.in_instance[i];
		struct fleet_report one = report_of(WB_REPORT_ENGINE, false);

		if (!fleet_run.in[i])
			continue;
		all.who[all.n] = one.who[one.n++] = i;
		all.engine_state[all.n++] = one.engine_state[0] =
			is_done ? WB_ENGINE_COMMITTED : WB_ENGINE_ABORTED;
		if (is_done) {
			all.state = WB_REPORT_FINAL;
			fleet[i].held = fleet_run.number;
			fleet[i].version = fleet_run.version;
			fleet_moved[fleet_run.number].is_committed = true;
		}
		if (fleet[i].instance == fleet_run.in_instance[i])
			fleet_report(i, one);
	}
	fleet_moved[fleet_run.number].ended_ns = clk.now;
	fleet_run.runs = fleet_run.is_held = false;
	fleet_run.next_ns = clk.now + S;
	WB_LOG_INFO("world", "transfer ends", WB_U("transfer", fleet_run.number),
		WB_S("state", wb_word(&wb_report_words, all.state)), WB_U("s", clk.now / S));
	if (has_coordinator)
		fleet_report(T0, all);
}

static void end_feed(void)
{
	struct fleet_agent *to = &fleet[fleet_feed.target], *from = &fleet[fleet_feed.source];
	bool is_done = fleet_is_here(fleet_feed.target) && fleet_is_here(fleet_feed.source) &&
		       to->instance == fleet_feed.target_instance &&
		       from->instance == fleet_feed.source_instance &&
		       goes_by(fleet_feed.target, &from->core);
	struct fleet_report r = {.uid = from->core.uid,
		.term = from->core.term,
		.number = from->core.number,
		.transfer = from->held,
		.version = from->version,
		.state = WB_REPORT_ENGINE,
		.is_feed = true,
		.n = 1,
		.who = {fleet_feed.target},
		.engine_state = {is_done ? WB_ENGINE_COMMITTED : WB_ENGINE_ABORTED}};

	fleet_feed.end_ns = 0;
	if (is_done) {
		to->held = from->held;
		to->version = from->version;
		to->highest = WB_MAX(to->highest, from->held);
	}
	fleet_report(is_done ? fleet_feed.target : fleet_feed.source, r);
}

static void move(void)
{
	if (fleet_run.runs && !fleet_run.is_held && clk.now >= fleet_run.end_ns)
		end_transfer(false);
	if (fleet_feed.end_ns && clk.now >= fleet_feed.end_ns)
		end_feed();
	if (!fleet_run.runs && !fleet_feed.end_ns && clk.now >= fleet_run.next_ns)
		begin_transfer();
}

/* ---- the object, its API server and its operator ---- */

static struct wb_spec *fleet_spec(void)
{
	struct wb_spec *spec = NULL;
	struct wb_err err = {0};
	char text[512];
	size_t n = 0;

	snprintf(text, sizeof(text),
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
		"spec: {trainer: {workers: 2}, rollout: {workersPerEngine: 1}, "
		"transferDeadlineSeconds: %u, engineStepDeadlineSeconds: 20}\n",
		fleet_api.deadline_s);
	ck_assert_msg(wb_spec_load("f", text, strlen(text), &spec, &n, &err) == 0, "%s", err.msg);
	return spec;
}

static void operator_starts(void)
{
	struct wb_serve_env env = {0};
	struct wb_serve_opts o = {.name = "op", .settle_ns = 2 * S};
	struct wb_err err = {0};

	fill_env(&env);
	ck_assert_int_eq(wb_serve_create(&o, &env, &s, &err), 0);
	fleet_op.is_alive = true;
	fleet_op.uid = fleet_op.generation = fleet_op.looks = 0;
	fleet_op.transitions++;
	fleet_op.since_ns = clk.now;
}

void operator_dies(void)
{
	wb_serve_destroy(s);
	s = NULL;
	if (job_work) /* on its thread it ends all the same, and finds nobody */
		run_job();
	due = UINT64_MAX;
	fleet_op.is_alive = false;
	for (uint32_t i = 0; i < AGENTS; i++)
		if (fleet[i].wire && !fleet[i].wire->is_told)
			fleet[i].wire->is_closed = true;
}

/* Its watch brings what is new. */
static void operator_watches(void)
{
	struct wb_serve_object_desc d = {
		.term_min = fleet_op.transitions, .stored = fleet_api.status};
	struct wb_err err = {0};
	struct wb_spec *spec;

	if (fleet_op.uid && !fleet_api.exists) {
		wb_serve_remove(s, "default/a", "it was deleted");
		fleet_op.uid = 0;
	}
	if (!fleet_api.exists ||
		(fleet_op.uid == fleet_api.uid && fleet_op.generation == fleet_api.generation))
		return;
	spec = fleet_spec();
	d.spec = spec;
	d.uid = fleet_api.uid;
	ck_assert_msg(wb_serve_put(s, &d, &err) == 0, "%s", err.msg);
	wb_free(spec);
	fleet_op.uid = fleet_api.uid;
	fleet_op.generation = fleet_api.generation;
}

static void operator_step(void)
{
	if (fleet_op.is_alive && fleet_api.is_away && clk.now >= fleet_api.away_ns + LEASE_NS)
		operator_dies();
	if (!fleet_op.is_alive && fleet_op.is_wanted && !fleet_api.is_away &&
		clk.now >= fleet_op.from_ns)
		operator_starts();
	if (!fleet_op.is_alive)
		return;
	if (!fleet_api.is_away)
		operator_watches();
	if (due <= clk.now)
		wb_serve_tick(s);
	if (job_work)
		run_job();
}

/* What it has to say of the object goes into the status; @check looks at each new one. */
static void operator_writes(void (*check)(const json_t *status))
{
	uint64_t looks = fleet_op.is_alive ? wb_serve_looks(s, "default/a") : 0;
	json_t *st;

	if (!looks || looks == fleet_op.looks || fleet_api.is_away || !fleet_api.exists ||
		fleet_op.uid != fleet_api.uid)
		return;
	fleet_op.looks = looks;
	st = wb_serve_status(s, "default/a");
	if (!st)
		return;
	json_decref(fleet_api.status);
	fleet_api.status = st;
	check(st);
}

void fleet_step(void (*check)(const json_t *status))
{
	clk.now += STEP;
	operator_step();
	for (uint32_t i = 0; i < AGENTS; i++)
		fleet_agent_step(&fleet[i]);
	move();
	operator_writes(check);
	/* A channel that the operator has closed is gone there, whether the agent hears or not. */
	for (uint32_t i = 0; i < AGENTS; i++) {
		struct wire *w = fleet[i].wire;
		struct wb_err none = {0};

		if (w && w->is_closed && !w->is_told) {
			w->ch.cb.on_closed(w->ch.cb.cookie, &w->ch, &none);
			w->is_told = true;
		}
	}
}

/* ---- what a test does ---- */

void agent_starts(uint32_t i)
{
	struct fleet_agent *a = &fleet[i];

	memset(a, 0, sizeof(*a));
	a->name = fleet_names[i];
	a->engine = fleet_engines[i];
	a->is_alive = true;
	a->instance = 1 + fleet_random(UINT32_MAX);
	a->worker = 1 + (uint32_t)fleet_random(1000);
	a->dial_ns = clk.now + fleet_random(S);
}

void agent_dies(uint32_t i, bool is_orderly)
{
	struct wb_msg_drain m = {.sentence = "told to stop"};
	struct fleet_agent *a = &fleet[i];

	if (is_orderly && a->is_up && !a->wire->is_closed)
		agent_says(a->wire, WBP_DRAIN, &m);
	fleet_lose_wire(a);
	a->is_alive = false;
}

void object_is_made(void)
{
	fleet_api.exists = true;
	fleet_api.uid = fleet_api.next_uid++;
	fleet_api.generation = 1;
	json_decref(fleet_api.status);
	fleet_api.status = NULL;
}

void fleet_starts(uint64_t chance, bool is_old)
{
	wb_log_level_max = getenv("WB_AWAY") ? WB_LOG_DEBUG_ : -1;
	wb_fake_clock_init(&clk, 1000 * S);
	memset(&fleet_run, 0, sizeof(fleet_run));
	memset(&fleet_feed, 0, sizeof(fleet_feed));
	memset(fleet_moved, 0, sizeof(fleet_moved));
	memset(&fleet_op, 0, sizeof(fleet_op));
	memset(fleet, 0, sizeof(fleet));
	memset(&fleet_api, 0, sizeof(fleet_api));
	fleet_versions = 0;
	due = UINT64_MAX;
	fleet_rng = chance;
	fleet_is_old = is_old;
	fleet_api.next_uid = 100;
	fleet_api.deadline_s = 20;
	fleet_op.is_wanted = true;
	make_model();
	object_is_made();
	for (uint32_t i = T0; i <= E1; i++)
		if (i != T2)
			agent_starts(i);
}

void fleet_ends(void)
{
	if (fleet_op.is_alive)
		operator_dies();
	for (uint32_t i = 0; i < AGENTS; i++)
		fleet_lose_wire(&fleet[i]);
	json_decref(fleet_api.status);
	free_model();
}
