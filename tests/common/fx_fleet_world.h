/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_FLEET_WORLD_H
#define WB_TESTS_FX_FLEET_WORLD_H
/*
 * What moves between the agents of fx_fleet.h, the object with its API server and its operator, and
 * what a test may do to them.
 */
#include "tests/common/fx_fleet.h"

/* ---- what moves ---- */

/* PREPARE implies ACTIVATE. */
static inline bool goes_by(uint32_t i, const struct fleet_plan *p)
{
	struct fleet_agent *a = &fleet[i];

	if (!is_here(i) || !p->has[i])
		return false;
	if (!same_plan(&a->core, p) && same_plan(&a->installed, p))
		activate(a);
	return same_plan(&a->core, p);
}

static inline struct fleet_report report_of(const char *state, bool is_final)
{
	return (struct fleet_report){.uid = run.plan.uid,
		.term = run.plan.term,
		.number = run.plan.number,
		.transfer = run.number,
		.version = run.version,
		.state = state,
		.is_final = is_final};
}

/* The trainer agent beside T0. */
static inline uint32_t second(void)
{
	return fleet[T2].is_alive ? T2 : T1;
}

static inline void begin_transfer(void)
{
	struct fleet_plan p = fleet[T0].core;
	uint64_t number = 0;

	run.next_ns = clk.now + S;
	if (!p.term || !goes_by(T0, &p) || !goes_by(second(), &p))
		return;
	for (uint32_t i = 0; i < AGENTS; i++) {
		run.in[i] = goes_by(i, &p);
		run.in_instance[i] = fleet[i].instance;
		if (run.in[i])
			number = WB_MAX(number, fleet[i].highest);
	}
	run.runs = true;
	run.plan = p;
	run.number = ++number;
	run.version = ++versions;
	run.coordinator_instance = fleet[T0].instance;
	run.begin_ns = clk.now;
	run.end_ns = clk.now + 3 * STEP;
	feed.end_ns = 0; /* overtaken */
	ck_assert_uint_lt(number, TRANSFERS);
	ck_assert_msg(moved[number].uid != p.uid, "transfer %u has begun twice", (unsigned)number);
	memset(&moved[number], 0, sizeof(moved[number]));
	moved[number].uid = p.uid;
	for (uint32_t i = 0; i < AGENTS; i++)
		if (run.in[i])
			fleet[i].highest = number;
	WB_LOG_INFO("world", "transfer begins", WB_U("transfer", number), WB_U("uid", p.uid),
		WB_U("s", clk.now / S));
	fleet_report(T0, report_of("Started", false));
}

static inline void end_transfer(bool is_aborted)
{
	bool has_coordinator = fleet[T0].is_alive && fleet[T0].instance == run.coordinator_instance;
	struct fleet_report all = report_of("Aborted", true);

	is_aborted |= !has_coordinator;
	for (uint32_t i = T0; i <= T2; i++)
		is_aborted |= run.in[i] && (!is_here(i) || fleet[i].instance != run.in_instance[i]);
	for (uint32_t i = E0; i < AGENTS; i++) {
		bool is_done = !is_aborted && run.in[i] && is_here(i) &&
			       fleet[i].instance == run.in_instance[i];
		struct fleet_report one = report_of("Engine", false);

		if (!run.in[i])
			continue;
		all.who[all.n] = one.who[one.n++] = i;
		all.engine_state[all.n++] = one.engine_state[0] = is_done ? "Committed" : "Aborted";
		if (is_done) {
			all.state = "Succeeded";
			fleet[i].held = run.number;
			fleet[i].version = run.version;
			moved[run.number].is_committed = true;
			committed_version = (uint64_t)run.version;
		}
		if (fleet[i].instance == run.in_instance[i])
			fleet_report(i, one);
	}
	moved[run.number].ended_ns = clk.now;
	run.runs = run.is_held = false;
	run.next_ns = clk.now + S;
	WB_LOG_INFO("world", "transfer ends", WB_U("transfer", run.number),
		WB_S("state", all.state), WB_U("s", clk.now / S));
	if (has_coordinator)
		fleet_report(T0, all);
}

static inline void end_feed(void)
{
	struct fleet_agent *to = &fleet[feed.target], *from = &fleet[feed.source];
	bool is_done = is_here(feed.target) && is_here(feed.source) &&
		       to->instance == feed.target_instance &&
		       from->instance == feed.source_instance && goes_by(feed.target, &from->core);
	struct fleet_report r = {.uid = from->core.uid,
		.term = from->core.term,
		.number = from->core.number,
		.transfer = from->held,
		.version = from->version,
		.state = "Engine",
		.is_feed = true,
		.n = 1,
		.who = {feed.target},
		.engine_state = {is_done ? "Committed" : "Aborted"}};

	feed.end_ns = 0;
	if (is_done) {
		to->held = from->held;
		to->version = from->version;
		to->highest = WB_MAX(to->highest, from->held);
	}
	fleet_report(is_done ? feed.target : feed.source, r);
}

static inline void move(void)
{
	if (run.runs && !run.is_held && clk.now >= run.end_ns)
		end_transfer(false);
	if (feed.end_ns && clk.now >= feed.end_ns)
		end_feed();
	if (!run.runs && !feed.end_ns && clk.now >= run.next_ns)
		begin_transfer();
}

/* ---- the object, its API server and its operator ---- */

static inline struct wb_spec *fleet_spec(void)
{
	struct wb_spec *spec = NULL;
	struct wb_err err = {0};
	char text[512];
	size_t n = 0;

	snprintf(text, sizeof(text),
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
		"spec: {trainer: {workers: 2}, rollout: {workersPerEngine: 1}, "
		"transferDeadlineSeconds: %u, engineStepDeadlineSeconds: 20}\n",
		api.deadline_s);
	ck_assert_msg(wb_spec_load("f", text, strlen(text), &spec, &n, &err) == 0, "%s", err.msg);
	return spec;
}

static inline void operator_starts(void)
{
	struct wb_serve_env env = {0};
	struct wb_serve_opts o = {.name = "op", .settle_ns = 2 * S};
	struct wb_err err = {0};

	fill_env(&env);
	ck_assert_int_eq(wb_serve_create(&o, &env, &s, &err), 0);
	op.is_alive = true;
	op.uid = op.generation = op.looks = 0;
	op.transitions++;
	op.since_ns = clk.now;
}

static inline void operator_dies(void)
{
	wb_serve_destroy(s);
	s = NULL;
	if (job_work) /* on its thread it ends all the same, and finds nobody */
		run_job();
	due = UINT64_MAX;
	op.is_alive = false;
	for (uint32_t i = 0; i < AGENTS; i++)
		if (fleet[i].wire && !fleet[i].wire->is_told)
			fleet[i].wire->is_closed = true;
}

/* Its watch brings what is new. */
static inline void operator_watches(void)
{
	struct wb_serve_object_desc d = {.term_min = op.transitions, .stored = api.status};
	struct wb_err err = {0};
	struct wb_spec *spec;

	if (op.uid && !api.exists) {
		wb_serve_remove(s, "default/a");
		op.uid = 0;
	}
	if (!api.exists || (op.uid == api.uid && op.generation == api.generation))
		return;
	spec = fleet_spec();
	d.spec = spec;
	d.uid = api.uid;
	ck_assert_msg(wb_serve_put(s, &d, &err) == 0, "%s", err.msg);
	wb_free(spec);
	op.uid = api.uid;
	op.generation = api.generation;
}

static inline void operator_step(void)
{
	if (op.is_alive && api.is_away && clk.now >= api.away_ns + LEASE_NS)
		operator_dies();
	if (!op.is_alive && op.is_wanted && !api.is_away && clk.now >= op.from_ns)
		operator_starts();
	if (!op.is_alive)
		return;
	if (!api.is_away)
		operator_watches();
	if (due <= clk.now)
		wb_serve_tick(s);
	if (job_work)
		run_job();
}

/* What it has to say of the object goes into the status; @check looks at each new one. */
static inline void operator_writes(void (*check)(const json_t *status))
{
	uint64_t looks = op.is_alive ? wb_serve_looks(s, "default/a") : 0;
	json_t *st;

	if (!looks || looks == op.looks || api.is_away || !api.exists || op.uid != api.uid)
		return;
	op.looks = looks;
	st = wb_serve_status(s, "default/a");
	if (!st)
		return;
	json_decref(api.status);
	api.status = st;
	check(st);
}

static inline void fleet_step(void (*check)(const json_t *status))
{
	clk.now += STEP;
	operator_step();
	for (uint32_t i = 0; i < AGENTS; i++)
		agent_step(&fleet[i]);
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

static inline void agent_starts(uint32_t i)
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

static inline void agent_dies(uint32_t i, bool is_orderly)
{
	struct wb_msg_drain m = {.sentence = "told to stop"};
	struct fleet_agent *a = &fleet[i];

	if (is_orderly && a->is_up && !a->wire->is_closed)
		say(a->wire, WBP_DRAIN, &m);
	lose_wire(a);
	a->is_alive = false;
}

static inline void object_is_made(void)
{
	api.exists = true;
	api.uid = api.next_uid++;
	api.generation = 1;
	json_decref(api.status);
	api.status = NULL;
}

static inline void fleet_starts(uint64_t chance, bool is_old)
{
	wb_log_level_max = getenv("WB_AWAY") ? WB_LOG_DEBUG_ : -1;
	wb_fake_clock_init(&clk, 1000 * S);
	memset(&run, 0, sizeof(run));
	memset(&feed, 0, sizeof(feed));
	memset(moved, 0, sizeof(moved));
	memset(&op, 0, sizeof(op));
	memset(fleet, 0, sizeof(fleet));
	memset(&api, 0, sizeof(api));
	versions = 0;
	committed_version = 0;
	due = UINT64_MAX;
	fleet_rng = chance;
	fleet_is_old = is_old;
	api.next_uid = 100;
	api.deadline_s = 20;
	op.is_wanted = true;
	make_model();
	object_is_made();
	for (uint32_t i = T0; i <= E1; i++)
		if (i != T2)
			agent_starts(i);
}

static inline void fleet_ends(void)
{
	if (op.is_alive)
		operator_dies();
	for (uint32_t i = 0; i < AGENTS; i++)
		lose_wire(&fleet[i]);
	json_decref(api.status);
	wb_buf_finish(&manifest_bytes);
	wb_buf_finish(&map_bytes);
}

#endif
