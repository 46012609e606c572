/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed, while who was away?  Every pair of both, and every two such pairs in a row, by the
 * operator's own code in simulated time.  Afterwards, within a bounded time: a plan of the object
 * as it is now is in force at every agent, the next version is committed on every engine, the
 * status shows it, and at no time does a status tell of what is not.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_fleet.h"

#define BOUND_NS (90 * S)
#define TOLD_NS (50 * S)

enum change {
	NOTHING,
	EDITED,
	MADE_AGAIN,
	DELETED, /* and made again when all are back */
	SCALED_UP,
	SCALED_DOWN,
	TRAINER_RESTARTED,
	TRAINER_REPLACED, /* by one of another name */
	ENDED, /* a transfer that ran when somebody went away */
	ABORTED,
	CHANGES
};
static const char *const changes[CHANGES] = {"nothing", "spec edited", "made again", "deleted",
	"scaled up", "scaled down", "trainer restarted", "trainer replaced", "transfer ended",
	"transfer aborted"};

enum who { NOBODY, OPERATOR, TRAINERS, TRAINERS_DIE, ENGINE, ENGINE_DIES, API, WHO };
static const char *const who_names[WHO] = {
	"nobody", "operator", "trainers", "trainers die", "engine", "engine dies", "API server"};

static char at[200]; /* which cell, for messages */

/* ---- what a status may say ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *t = json_string_value(json_object_get(o, key));

	return t ? t : "";
}

static int64_t number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static const json_t *condition(const json_t *st, const char *type)
{
	const json_t *c;
	size_t i;

	json_array_foreach(json_object_get(st, "conditions"), i, c)
	{
		if (!strcmp(text_of(c, "type"), type))
			return c;
	}
	return NULL;
}

static bool is_true(const json_t *st, const char *type)
{
	const json_t *c = condition(st, type);

	return c && !strcmp(text_of(c, "status"), "True");
}

static void is_true_of_the_world(const json_t *st)
{
	const json_t *cur = json_object_get(st, "currentTransfer"), *o;
	int64_t t = number_of(cur, "transfer"), version = number_of(st, "version");
	uint64_t since;
	size_t i;

	ck_assert_msg(version <= fleet_versions, "%s: version %d was never sent", at, (int)version);
	if (cur) {
		ck_assert_msg(t < TRANSFERS && fleet_moved[t].uid == fleet_api.uid,
			"%s: current is transfer %d, which is of object %d, not %d", at, (int)t,
			(int)fleet_moved[t].uid, (int)fleet_api.uid);
		/* Known since it ended, or since there is an operator that could be told. */
		since = WB_MAX(fleet_moved[t].ended_ns, fleet_op.since_ns);
		ck_assert_msg(!fleet_moved[t].ended_ns || clk.now - since < TOLD_NS,
			"%s: transfer %d has ended %d s ago", at, (int)t,
			(int)((clk.now - fleet_moved[t].ended_ns) / S));
	}
	json_array_foreach(json_object_get(st, "recentTransfers"), i, o)
	{
		bool is_success = !strcmp(text_of(o, "result"), "Succeeded");

		t = number_of(o, "transfer");
		ck_assert_msg(
			t < TRANSFERS && (fleet_moved[t].uid == fleet_api.uid || fleet_is_old),
			"%s: transfer %d is of object %d, not %d", at, (int)t,
			(int)fleet_moved[t].uid, (int)fleet_api.uid);
		ck_assert_msg(!is_success || fleet_moved[t].is_committed, "%s: transfer %d: %s", at,
			(int)t, text_of(o, "result"));
	}
}

/* ---- what has to be so in the end ---- */

static const char *is_well(int64_t version)
{
	const json_t *st = fleet_api.status, *plan = json_object_get(st, "plan");
	int n = 0, n_engine = 0;

	for (uint32_t i = 0; i < AGENTS; i++) {
		const struct fleet_agent *a = &fleet[i];

		if (!a->is_alive)
			continue;
		n++;
		n_engine += i >= E0;
		if (a->core.uid != fleet_api.uid)
			return "an agent goes by a plan of the object before";
		if ((int64_t)a->core.term != number_of(plan, "term") ||
			(int64_t)a->core.number != number_of(plan, "number"))
			return "an agent goes by another plan than the status has";
		if (i >= E0 && a->version < version)
			return "an engine does not have the version";
	}
	for (uint32_t i = 0; i < AGENTS; i++)
		if (fleet[T0].core.has[i] != fleet[i].is_alive)
			return "the plan is not for those that are there";
	if (number_of(st, "version") < version)
		return "VERSION does not move";
	if (!is_true(st, "Ready") || !is_true(st, "MembersConnected") || !is_true(st, "Planned"))
		return "not Ready";
	if (number_of(st, "connectedAgents") != n || number_of(st, "engineCount") != n_engine ||
		number_of(st, "updatedEngines") < n_engine)
		return "the status counts others than there are";
	if (json_object_get(condition(st, "Degraded"), "status") && is_true(st, "Degraded"))
		return "Degraded";
	return NULL;
}

static void goes_on_for(uint64_t ns)
{
	for (uint64_t end = clk.now + ns; clk.now < end;)
		fleet_step(is_true_of_the_world);
}

static void is_well_in_time(void)
{
	uint64_t since = clk.now;
	int64_t version = fleet_versions + 1;
	const char *why = "";
	char *st;

	while (clk.now < since + BOUND_NS) {
		fleet_step(is_true_of_the_world);
		why = fleet_versions >= version ? is_well(version) : "no version is sent";
		if (!why)
			return;
	}
	st = json_dumps(fleet_api.status, JSON_INDENT(1));
	ck_abort_msg("%s: %s after %d s: %s", at, why, (int)(BOUND_NS / S), st);
}

/* ---- who is away ---- */

static void goes_away(enum who w)
{
	switch (w) {
	case OPERATOR:
		fleet_op.is_wanted = false;
		if (fleet_op.is_alive)
			operator_dies();
		break;
	case TRAINERS:
		fleet[T0].is_away = fleet[fleet_second()].is_away = true;
		break;
	case TRAINERS_DIE:
		agent_dies(T0, false);
		agent_dies(fleet_second(), false);
		break;
	case ENGINE:
		fleet[E0].is_away = true;
		break;
	case ENGINE_DIES:
		agent_dies(E0, false);
		break;
	case API:
		fleet_api.is_away = true;
		fleet_api.away_ns = clk.now;
		break;
	default:
		break;
	}
}

static void comes_back(enum who w)
{
	switch (w) {
	case OPERATOR:
		fleet_op.is_wanted = true;
		fleet_op.from_ns = clk.now;
		break;
	case TRAINERS:
		for (uint32_t i = T0; i <= T2; i++)
			fleet[i].is_away = false;
		break;
	case TRAINERS_DIE:
		if (!fleet[T0].is_alive)
			agent_starts(T0);
		if (!fleet[fleet_second()].is_alive)
			agent_starts(T1);
		break;
	case ENGINE:
		fleet[E0].is_away = false;
		break;
	case ENGINE_DIES:
		agent_starts(E0);
		break;
	case API:
		fleet_api.is_away = false;
		fleet_op.from_ns = clk.now + 2 * S;
		break;
	default:
		break;
	}
}

/* ---- what changes ---- */

/* A transfer runs, and does not end by itself. */
static void holds_a_transfer(void)
{
	for (int i = 0; i < 40 && !fleet_run.runs; i++)
		fleet_step(is_true_of_the_world);
	fleet_run.is_held = fleet_run.runs;
}

static void happens(enum change c)
{
	uint32_t n;

	switch (c) {
	case EDITED:
		fleet_api.deadline_s++;
		fleet_api.generation++;
		break;
	case MADE_AGAIN:
		object_is_made();
		break;
	case DELETED:
		fleet_api.exists = false;
		break;
	case SCALED_UP:
		if (!fleet[E2].is_alive)
			agent_starts(E2);
		break;
	case SCALED_DOWN:
		if (fleet[E1].is_alive)
			agent_dies(E1, true);
		break;
	case TRAINER_RESTARTED:
		n = fleet_second();
		agent_dies(n, false);
		agent_starts(n);
		break;
	case TRAINER_REPLACED:
		n = fleet_second();
		agent_dies(n, false);
		agent_starts(n == T1 ? T2 : T1);
		break;
	case ENDED:
	case ABORTED:
		if (fleet_run.runs)
			end_transfer(c == ABORTED);
		break;
	default:
		break;
	}
}

static void one(enum change c, enum who w, uint64_t away_ns)
{
	if (c == ENDED || c == ABORTED)
		holds_a_transfer();
	goes_away(w);
	goes_on_for(2 * S);
	happens(c);
	goes_on_for(away_ns);
	comes_back(w);
	if (c == DELETED) {
		goes_on_for(5 * S);
		object_is_made();
	}
}

#define CELLS (CHANGES * WHO)

static const uint64_t aways[] = {5 * S, 25 * S};

static void name_cell(int cell, char *out, size_t bytes)
{
	snprintf(out, bytes, "%s while away: %s", changes[cell % CHANGES],
		who_names[cell / CHANGES]);
}

static void runs(int first, int second, uint64_t away_ns, bool is_old)
{
	char a[64], b[64] = "";

	name_cell(first, a, sizeof(a));
	if (second >= 0)
		name_cell(second, b, sizeof(b));
	snprintf(at, sizeof(at), "%d %d %d %d: %s%s%s, %d s%s", first, second, (int)(away_ns / S),
		is_old, a, *b ? "; then " : "", b, (int)(away_ns / S),
		is_old ? ", old agents" : "");
	fleet_starts((uint64_t)(first * 1000 + second + 1), is_old);
	is_well_in_time();
	one(first % CHANGES, first / CHANGES, away_ns);
	if (second >= 0) {
		goes_on_for(S);
		one(second % CHANGES, second / CHANGES, away_ns);
	}
	is_well_in_time();
	fleet_ends();
}

START_TEST(after_each_pair_the_job_is_well)
{
	runs(_i % CELLS, -1, aways[_i / CELLS % 2], _i >= 2 * CELLS);
}
END_TEST

START_TEST(after_each_two_pairs_in_a_row_the_job_is_well)
{
	for (int second = 0; second < CELLS; second++)
		runs(_i % CELLS, second, aways[_i / CELLS], false);
}
END_TEST

/* WB_AWAY="FIRST SECOND SECONDS OLD" runs one of them, with the operator's log. */
START_TEST(one_that_is_asked_for)
{
	int first = 0, second = -1, seconds = 5, is_old = 0;

	sscanf(getenv("WB_AWAY"), "%d %d %d %d", &first, &second, &seconds, &is_old);
	runs(first, second, (uint64_t)seconds * S, is_old);
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("away");
	TCase *tc = tcase_create("away");

	tcase_set_timeout(tc, 600);
	suite_add_tcase(su, tc);
	if (getenv("WB_AWAY")) {
		tcase_add_test(tc, one_that_is_asked_for);
		return su;
	}
	fx_add_points(tc, after_each_pair_the_job_is_well, 0, 4 * CELLS);
	fx_add_points(tc, after_each_two_pairs_in_a_row_the_job_is_well, 0, 2 * CELLS);
	return su;
}

int main(void)
{
	return fx_run(suite());
}
