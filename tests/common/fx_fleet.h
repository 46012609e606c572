/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_FLEET_H
#define WB_TESTS_FX_FLEET_H
/*
 * The operator as it is shipped (serve and reconcile) in simulated time, under a small world that
 * may go away piece by piece: two trainer agents, up to three engines of one agent, and an API
 * server that has the object and keeps its status.
 *
 * Agents are models: they say what real ones say to an operator, and move versions among
 * themselves all the time, whether there is an operator or not.  A transfer runs by the plan that
 * the coordinator's core has, which may be that of an object that was deleted.  Time goes by in
 * steps; everything is decided by the seed.
 */
#include "tests/common/fx_serve.h"

#include "proto/beat.h"

#define STEP (250 * WB_NS_PER_MS)
#define AGENTS 6
#define LEASE_NS (10 * S) /* without an API server a leader gives up */
#define TRANSFERS 1024
#define QUEUE 64

enum fleet_who { T0, T1, T2, E0, E1, E2 }; /* T1 or T2: a successor has another name */

/* A plan as an agent knows it; term 0 = none. */
struct fleet_plan {
	uint64_t uid, term, number;
	struct wb_digest digest;
	uint32_t n_worker, index, n_engine;
	char engine[4][8];
	bool has[AGENTS];
};

struct fleet_report {
	uint64_t uid, term, number, transfer, sent_ns;
	int64_t version;
	const char *state, *engine_state[AGENTS];
	uint32_t who[AGENTS], n;
	bool is_final, is_feed;
	bool is_in_flight; /* said into a connection whose other end hears nothing */
};

struct fleet_agent {
	const char *name, *engine;
	bool is_alive, is_away, is_up, workers_due;
	uint64_t instance;
	uint32_t worker;
	struct wire *wire;
	uint64_t dial_ns, heard_ns, beat_ns, beat_every_ns;
	uint64_t uid, term, term_operator, highest, serial;
	struct fleet_plan running, installed, waiting; /* of object uid */
	struct fleet_plan core; /* what its transfers run by */
	uint64_t held;
	int64_t version;
	struct fleet_report q[QUEUE];
	uint32_t n_q;
};

static const char *const fleet_names[AGENTS] = {"t0", "t1", "t2", "r0", "r1", "r2"};
static const char *const fleet_engines[AGENTS] = {NULL, NULL, NULL, "e0", "e1", "e2"};

static struct fleet_agent fleet[AGENTS];
static uint64_t fleet_rng;
static bool fleet_is_old; /* agents as of before they kept reports until they were heard */

/* What is so, whoever knows it. */
static struct {
	bool runs, is_held; /* held: it ends when the test says so */
	struct fleet_plan plan;
	uint64_t number, coordinator_instance, begin_ns, end_ns, next_ns;
	int64_t version;
	bool in[AGENTS];
	uint64_t in_instance[AGENTS];
} run;
static struct {
	uint32_t target, source;
	uint64_t end_ns, target_instance, source_instance; /* 0 = none */
} feed;
static struct {
	uint64_t uid, ended_ns; /* uid 0 = never begun */
	bool is_committed;
} moved[TRANSFERS];
static int64_t versions; /* that were sent */
static uint64_t committed_version;

static struct {
	bool exists, is_away;
	uint64_t uid, next_uid, generation, away_ns;
	uint32_t deadline_s; /* of the spec: what is edited */
	json_t *status;
} api;
static struct {
	bool is_alive, is_wanted;
	uint64_t uid, generation; /* of the object, as it has seen it */
	uint64_t transitions, from_ns, since_ns, looks;
} op;

static inline uint64_t fleet_random(uint64_t below)
{
	fleet_rng = wb_mix64(fleet_rng + 0x9e3779b97f4a7c15ull);
	return fleet_rng % below;
}

static inline bool same_plan(const struct fleet_plan *a, const struct fleet_plan *b)
{
	return a->term && a->uid == b->uid && a->term == b->term && a->number == b->number;
}

static inline bool is_here(uint32_t i)
{
	return fleet[i].is_alive && !fleet[i].is_away;
}

/* ---- what agents say ---- */

static inline void say_report(struct fleet_agent *a, const struct fleet_report *r)
{
	struct wb_p_engine_state e[AGENTS];
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {r->term, r->number},
		.transfer = r->transfer,
		.version = r->version,
		.state = r->state,
		.is_final = r->is_final,
		.is_feed = r->is_feed,
		.engines = e,
		.begin_wall_ns = wall(NULL),
		.end_wall_ns = wall(NULL) + 1};

	for (uint32_t i = 0; i < r->n; i++) {
		bool is_done = !strcmp(r->engine_state[i], "Committed");

		e[m.n_engines++] = (struct wb_p_engine_state){.engine = fleet_engines[r->who[i]],
			.state = r->engine_state[i],
			.version = is_done ? r->version : -1,
			.transfer = is_done ? r->transfer : 0,
			.code = is_done ? 0 : WB_EABORTED};
	}
	say(a->wire, WBP_REPORT, &m);
}

static inline bool is_heard(const struct fleet_agent *a)
{
	return a->is_up && !a->is_away && !a->wire->is_closed && !a->wire->is_told;
}

/* They are kept until they were heard; by older agents until they were said. */
static inline void say_reports(struct fleet_agent *a)
{
	uint32_t keep = 0;

	for (uint32_t i = 0; i < a->n_q; i++) {
		struct fleet_report *r = &a->q[i];

		if (!r->sent_ns && is_heard(a)) {
			say_report(a, r);
			r->sent_ns = clk.now;
		}
		if (!fleet_is_old || !r->sent_ns)
			a->q[keep++] = *r;
	}
	a->n_q = keep;
}

/* Reports of another object than the one that is served are nobody's. */
static inline void fleet_report(uint32_t who, struct fleet_report r)
{
	struct fleet_agent *a = &fleet[who];
	bool is_started = !strcmp(r.state, "Started");

	if (!a->is_alive)
		return;
	if (is_started) {
		if (!fleet_is_old && !a->running.term)
			return;
		r.term = a->running.term;
		r.number = a->running.number;
	} else if (r.uid != a->uid) {
		return;
	}
	r.is_in_flight = a->is_up;
	if (a->n_q == QUEUE)
		memmove(a->q, a->q + 1, --a->n_q * sizeof(*a->q));
	a->q[a->n_q++] = r;
	say_reports(a);
}

static inline void send_workers(struct fleet_agent *a)
{
	struct wb_p_worker p = {.id = a->worker,
		.name = a->name,
		.role = a->engine ? 2 : 1,
		.engine = a->engine,
		.rank = a->engine || a == &fleet[T0] ? 0 : 1,
		.manifest = manifest_digest,
		.map = map_digest,
		.mem_kind = 1,
		.transfer = a->held,
		.version = a->held ? a->version : -1,
		.plan_worker = a->running.term ? a->running.index + 1 : 0,
		.ready_worker = a->installed.term ? a->installed.index + 1 : 0};
	struct wb_msg_workers m = {.object = "default/a",
		.workers = &p,
		.n_workers = 1,
		.running = {a->running.term, a->running.number},
		.plan = a->running.digest,
		.plan_workers = a->running.n_worker,
		.ready = {a->installed.term, a->installed.number},
		.ready_plan = a->installed.digest,
		.ready_workers = a->installed.n_worker};

	a->workers_due = false;
	say(a->wire, WBP_WORKERS, &m);
}

static inline void say_hello(struct fleet_agent *a)
{
	const char *object = "default/a", *transport = "tcp";
	struct wb_msg_hello h = {.version_min = WBP_VERSION_MAX,
		.version_max = WBP_VERSION_MAX,
		.build = "t",
		.agent = a->name,
		.node = a->name,
		.host = "10.0.0.1",
		.port = 7444,
		.bulk = "tcp",
		.transports = &transport,
		.n_transports = 1,
		.objects = &object,
		.n_objects = 1,
		.last_transfer = a->highest,
		.term = a->term,
		.term_operator = a->term_operator,
		.instance = a->instance};

	say(a->wire, WBP_HELLO, &h);
}

/* ---- what they hear ---- */

static inline void on_welcome(struct fleet_agent *a, const struct wb_msg_welcome *m)
{
	ck_assert_uint_eq(m->n_objects, 1);
	if (a->uid && a->uid != m->objects[0].uid) {
		memset(&a->running, 0, sizeof(a->running));
		memset(&a->installed, 0, sizeof(a->installed));
		a->n_q = fleet_is_old ? a->n_q : 0;
	}
	a->uid = m->objects[0].uid;
	if (m->term >= a->term) {
		a->term = m->term;
		a->term_operator = m->operator_id;
	}
	a->beat_every_ns = m->heartbeat_ns;
	a->is_up = true;
	say_reports(a);
	a->workers_due = true;
}

static inline void say_ready(struct fleet_agent *a, const struct fleet_plan *p)
{
	struct wb_msg_ready r = {
		.object = "default/a", .epoch = {p->term, p->number}, .digest = p->digest};

	say(a->wire, WBP_READY, &r);
}

static inline bool is_busy(uint32_t i)
{
	return (run.runs && run.in[i] && run.in_instance[i] == fleet[i].instance) ||
	       (feed.end_ns && (feed.target == i || feed.source == i));
}

static inline void try_install(struct fleet_agent *a)
{
	if (!a->waiting.term || !a->is_up)
		return;
	/* The memory of the object before goes over when that moves nothing any more. */
	if (a->core.uid && a->core.uid != a->uid && is_busy((uint32_t)(a - fleet)))
		return;
	if (a->core.uid != a->uid)
		memset(&a->core, 0, sizeof(a->core));
	a->installed = a->waiting;
	memset(&a->waiting, 0, sizeof(a->waiting));
	say_ready(a, &a->installed);
}

static inline void on_plan(struct fleet_agent *a, const struct wb_msg_plan *m)
{
	struct fleet_plan p = {.uid = a->uid,
		.term = m->epoch.term,
		.number = m->epoch.number,
		.digest = m->digest,
		.n_engine = m->n_engines};

	for (uint32_t i = 0; i < m->n_engines; i++)
		snprintf(p.engine[i], sizeof(p.engine[i]), "%s", m->engines[i]);
	for (uint32_t i = 0; i < m->n_agents; i++) {
		p.n_worker += m->agents[i].n_workers;
		for (uint32_t k = 0; k < AGENTS; k++)
			p.has[k] |=
				m->agents[i].port && !strcmp(m->agents[i].agent, fleet_names[k]);
		if (!strcmp(m->agents[i].agent, a->name))
			p.index = m->agents[i].workers[0];
	}
	a->highest = WB_MAX(a->highest, m->last_transfer);
	if (same_plan(&p, &a->running) || same_plan(&p, &a->installed)) {
		say_ready(a, &p);
		return;
	}
	a->waiting = p;
	try_install(a);
}

static inline int engine_agent(const char *name)
{
	for (int i = E0; i < AGENTS; i++)
		if (!strcmp(fleet_engines[i], name))
			return i;
	return -1;
}

static inline void activate(struct fleet_agent *a)
{
	a->running = a->core = a->installed;
	memset(&a->installed, 0, sizeof(a->installed));
}

static inline void on_activate(struct fleet_agent *a, const struct wb_msg_activate *m)
{
	struct fleet_plan p = {a->uid, m->epoch.term, m->epoch.number, {0}, 0, 0, 0, {{0}}, {0}};

	a->highest = WB_MAX(a->highest, m->last_transfer);
	if (same_plan(&p, &a->installed))
		activate(a);
	for (uint32_t i = 0; i < m->n_feed && same_plan(&p, &a->running); i++) {
		int to = engine_agent(a->running.engine[m->feed[i]]);
		int from = engine_agent(a->running.engine[m->feed_source[i]]);

		if (from != a - fleet || m->feed_attempt[i] == a->serial || feed.end_ns || run.runs)
			continue;
		a->serial = m->feed_attempt[i];
		feed.target = (uint32_t)to;
		feed.source = (uint32_t)from;
		feed.end_ns = clk.now + S;
		feed.target_instance = fleet[to].instance;
		feed.source_instance = a->instance;
	}
}

static inline void lose_wire(struct fleet_agent *a)
{
	uint32_t keep = 0;

	if (!a->wire)
		return;
	end_wire(a->wire);
	free(a->wire);
	a->wire = NULL;
	a->is_up = false;
	memset(&a->waiting, 0, sizeof(a->waiting));
	for (uint32_t i = 0; i < a->n_q; i++) {
		a->q[i].sent_ns = 0;
		if (!fleet_is_old || !a->q[i].is_in_flight)
			a->q[keep++] = a->q[i];
	}
	a->n_q = keep;
	a->dial_ns = clk.now + 2 * STEP + fleet_random(WB_REDIAL_PAUSE_NS);
}

static inline void on_beat(struct fleet_agent *a, const struct wb_msg_heartbeat *m)
{
	struct wb_msg_heartbeat reply = {clk.now, m->sent_ns, clk.now};
	uint32_t keep = 0;

	if (!m->echo_ns && m->sent_ns)
		say(a->wire, WBP_HEARTBEAT, &reply);
	for (uint32_t i = 0; i < a->n_q; i++)
		if (!m->echo_ns || !a->q[i].sent_ns || a->q[i].sent_ns >= m->echo_ns)
			a->q[keep++] = a->q[i];
	a->n_q = keep;
}

static inline void take(struct fleet_agent *a, uint16_t type, union wb_msg *m)
{
	char text[WB_DIGEST_TEXT];

	switch (type) {
	case WBP_WELCOME:
		on_welcome(a, &m->welcome);
		break;
	case WBP_HEARTBEAT:
		on_beat(a, &m->heartbeat);
		break;
	case WBP_WANT:
		for (uint32_t i = 0; i < m->want.n_digests; i++)
			if (!strcmp(m->want.digests[i], wb_digest_text(map_digest, text)))
				content(a->wire, 2, map_digest, &map_bytes);
			else
				content(a->wire, 1, manifest_digest, &manifest_bytes);
		break;
	case WBP_PLAN:
		on_plan(a, &m->plan);
		break;
	case WBP_ACTIVATE:
		on_activate(a, &m->activate);
		break;
	case WBP_REJECT:
		ck_assert_msg(m->reject.retry && !m->reject.worker, "%s: %s", a->name,
			m->reject.sentence);
		break;
	default:
		break;
	}
}

static inline void agent_step(struct fleet_agent *a)
{
	struct wb_msg_heartbeat beat = {.sent_ns = clk.now};
	union wb_msg m;
	uint16_t type;

	if (!a->is_alive || a->is_away)
		return;
	if (a->wire && a->wire->is_told)
		lose_wire(a);
	if (!a->wire) {
		if (clk.now < a->dial_ns)
			return;
		a->dial_ns = clk.now + STEP + fleet_random(WB_REDIAL_PAUSE_NS);
		if (!op.is_alive)
			return;
		a->wire = calloc(1, sizeof(*a->wire));
		a->heard_ns = clk.now;
		a->beat_every_ns = 3 * S;
		open_wire(a->wire);
		say_hello(a);
	}
	while ((type = hear(a->wire, &m)) != WBP_NONE) {
		a->heard_ns = clk.now;
		take(a, type, &m);
		wb_msg_free(type, &m);
	}
	if (a->wire->is_closed || clk.now - a->heard_ns > WB_BEATS_MISSED * a->beat_every_ns) {
		lose_wire(a);
		return;
	}
	if (!a->is_up)
		return;
	if (clk.now >= a->beat_ns) {
		a->beat_ns = clk.now + a->beat_every_ns;
		say(a->wire, WBP_HEARTBEAT, &beat);
	}
	say_reports(a);
	if (a->workers_due)
		send_workers(a);
	try_install(a);
}

#endif
