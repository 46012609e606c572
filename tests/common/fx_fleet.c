/* SPDX-License-Identifier: Apache-2.0 */
/* What the agents of a fleet say, and what they make of what they hear. */
#include "tests/common/fx_fleet.h"

#include "proto/beat.h"

const char *const fleet_names[AGENTS] = {"t0", "t1", "t2", "r0", "r1", "r2"};
const char *const fleet_engines[AGENTS] = {NULL, NULL, NULL, "e0", "e1", "e2"};
struct fleet_agent fleet[AGENTS];
bool fleet_is_old;

bool fleet_same_plan(const struct fleet_plan *a, const struct fleet_plan *b)
{
	return a->term && a->uid == b->uid && a->term == b->term && a->number == b->number;
}

bool fleet_is_here(uint32_t i)
{
	return fleet[i].is_alive && !fleet[i].is_away;
}

/* ---- what agents say ---- */

static void say_report(struct fleet_agent *a, const struct fleet_report *r)
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
		bool is_done = r->engine_state[i] == WB_ENGINE_COMMITTED;

		e[m.n_engines++] = (struct wb_p_engine_state){.engine = fleet_engines[r->who[i]],
			.state = r->engine_state[i],
			.version = is_done ? r->version : -1,
			.transfer = is_done ? r->transfer : 0,
			.code = is_done ? 0 : WB_EABORTED};
	}
	agent_says(a->wire, WBP_REPORT, &m);
}

static bool is_heard(const struct fleet_agent *a)
{
	return a->is_up && !a->is_away && !a->wire->is_closed && !a->wire->is_told;
}

/* They are kept until they were heard; by older agents until they were said. */
static void say_reports(struct fleet_agent *a)
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
void fleet_report(uint32_t who, struct fleet_report r)
{
	struct fleet_agent *a = &fleet[who];
	bool is_started = r.state == WB_REPORT_STARTED;

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

static void send_workers(struct fleet_agent *a)
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
	agent_says(a->wire, WBP_WORKERS, &m);
}

static void say_hello(struct fleet_agent *a)
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

	agent_says(a->wire, WBP_HELLO, &h);
}

/* ---- what they hear ---- */

static void on_welcome(struct fleet_agent *a, const struct wb_msg_welcome *m)
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

static void say_ready(struct fleet_agent *a, const struct fleet_plan *p)
{
	struct wb_msg_ready r = {
		.object = "default/a", .epoch = {p->term, p->number}, .digest = p->digest};

	agent_says(a->wire, WBP_READY, &r);
}

static bool is_busy(uint32_t i)
{
	return (fleet_run.runs && fleet_run.in[i] &&
		       fleet_run.in_instance[i] == fleet[i].instance) ||
	       (fleet_feed.end_ns && (fleet_feed.target == i || fleet_feed.source == i));
}

static void try_install(struct fleet_agent *a)
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

static void on_plan(struct fleet_agent *a, const struct wb_msg_plan *m)
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
	if (fleet_same_plan(&p, &a->running) || fleet_same_plan(&p, &a->installed)) {
		say_ready(a, &p);
		return;
	}
	a->waiting = p;
	try_install(a);
}

static int engine_agent(const char *name)
{
	for (int i = E0; i < AGENTS; i++)
		if (!strcmp(fleet_engines[i], name))
			return i;
	return -1;
}

void fleet_activate(struct fleet_agent *a)
{
	a->running = a->core = a->installed;
	memset(&a->installed, 0, sizeof(a->installed));
}

static void on_activate(struct fleet_agent *a, const struct wb_msg_activate *m)
{
	struct fleet_plan p = {a->uid, m->epoch.term, m->epoch.number, {0}, 0, 0, 0, {{0}}, {0}};

	a->highest = WB_MAX(a->highest, m->last_transfer);
	if (fleet_same_plan(&p, &a->installed))
		fleet_activate(a);
	for (uint32_t i = 0; i < m->n_feed && fleet_same_plan(&p, &a->running); i++) {
		int to = engine_agent(a->running.engine[m->feed[i]]);
		int from = engine_agent(a->running.engine[m->feed_source[i]]);

		if (from != a - fleet || m->feed_attempt[i] == a->serial || fleet_feed.end_ns ||
			fleet_run.runs)
			continue;
		a->serial = m->feed_attempt[i];
		fleet_feed.target = (uint32_t)to;
		fleet_feed.source = (uint32_t)from;
		fleet_feed.end_ns = clk.now + S;
		fleet_feed.target_instance = fleet[to].instance;
		fleet_feed.source_instance = a->instance;
	}
}

void fleet_lose_wire(struct fleet_agent *a)
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

static void on_beat(struct fleet_agent *a, const struct wb_msg_heartbeat *m)
{
	struct wb_msg_heartbeat reply = {clk.now, m->sent_ns, clk.now};
	uint32_t keep = 0;

	if (!m->echo_ns && m->sent_ns)
		agent_says(a->wire, WBP_HEARTBEAT, &reply);
	for (uint32_t i = 0; i < a->n_q; i++)
		if (!m->echo_ns || !a->q[i].sent_ns || a->q[i].sent_ns >= m->echo_ns)
			a->q[keep++] = a->q[i];
	a->n_q = keep;
}

static void take(struct fleet_agent *a, uint16_t type, union wb_msg *m)
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

void fleet_agent_step(struct fleet_agent *a)
{
	struct wb_msg_heartbeat beat = {.sent_ns = clk.now};
	union wb_msg m;
	uint16_t type;

	if (!a->is_alive || a->is_away)
		return;
	if (a->wire && a->wire->is_told)
		fleet_lose_wire(a);
	if (!a->wire) {
		if (clk.now < a->dial_ns)
			return;
		a->dial_ns = clk.now + STEP + fleet_random(WB_REDIAL_PAUSE_NS);
		if (!fleet_op.is_alive)
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
		fleet_lose_wire(a);
		return;
	}
	if (!a->is_up)
		return;
	if (clk.now >= a->beat_ns) {
		a->beat_ns = clk.now + a->beat_every_ns;
		agent_says(a->wire, WBP_HEARTBEAT, &beat);
	}
	say_reports(a);
	if (a->workers_due)
		send_workers(a);
	try_install(a);
}
