/* SPDX-License-Identifier: Apache-2.0 */
/* What pods add to the decisions: engines by label, roles, missing sidecars, refused agents. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

static void pod(const char *name, const char *role, const char *engine_label, bool has_sidecar)
{
	struct wb_reconcile_pod p = {
		.name = name, .role = role, .engine = engine_label, .has_sidecar = has_sidecar};

	ck_assert_int_eq(wb_reconcile_pod(r, now, &p), 0);
}

static void make_with_pods(uint32_t trainers)
{
	struct wb_spec s = spec_of(trainers, 1);

	wb_reconcile_destroy(r);
	ck_assert_int_eq(
		wb_reconcile_create(
			&(struct wb_reconcile_opts){.operator_id = 77, .has_pods = true}, &s, &r),
		0);
	ck_assert_int_eq(wb_reconcile_tick(r, now), 0);
}

static void members_are(const char *status, const char *reason, const char *words)
{
	const char *why, *text;

	ck_assert_str_eq(cond("MembersConnected", &why, &text), status);
	ck_assert_str_eq(why, reason);
	ck_assert_msg(strstr(text, words), "'%s' does not say '%s'", text, words);
}

static const char *first_engine(void)
{
	static char name[256];
	json_t *o = wb_reconcile_status(r);
	json_t *e = json_array_get(json_object_get(o, "engines"), 0);

	snprintf(name, sizeof(name), "%s", e ? json_string_value(json_object_get(e, "name")) : "");
	json_decref(o);
	return name;
}

START_TEST(no_pods_is_waiting_for_pods)
{
	make_with_pods(1);
	members_are("False", "WaitingForPods", "trainer workers");
	pod("t-0", "trainer", NULL, true);
	members_are("False", "WaitingForAgents", "trainer workers");
	ck_assert_int_eq(wb_reconcile_pod_gone(r, now, "t-0"), 0);
	members_are("False", "WaitingForPods", "");
}
END_TEST

START_TEST(five_pods_without_sidecar_are_named)
{
	char name[24];

	make_with_pods(1);
	pod("t-0", "trainer", NULL, true);
	for (int i = 6; i-- > 0;) {
		snprintf(name, sizeof(name), "bare-%d", i);
		pod(name, "rollout", NULL, false);
	}
	members_are("False", "SidecarMissing",
		"6 pods have no container weightbridge-agent: bare-0, bare-1, bare-2, bare-3, "
		"bare-4, "
		"...");
	pod("bare-0", "rollout", NULL, true);
	for (int i = 2; i < 6; i++) {
		snprintf(name, sizeof(name), "bare-%d", i);
		ck_assert_int_eq(wb_reconcile_pod_gone(r, now, name), 0);
	}
	members_are("False", "SidecarMissing", "1 pod has no container weightbridge-agent: bare-1");
}
END_TEST

START_TEST(missing_sidecar_does_not_stop_a_complete_job)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10), e = rollout(1, "e", 12);

	make_with_pods(1);
	pod("t-0", "trainer", NULL, true);
	pod("r-0", "rollout", NULL, true);
	pod("r-1", "rollout", NULL, false);
	up(agent(1, "t-0", &t, 1));
	up(agent(2, "r-0", &e, 1));
	members_are("True", "AllAgentsConnected", "no container weightbridge-agent: r-1");
}
END_TEST

static const struct {
	const char *label, *app, *want;
} names[] = {{"3", "", "3"}, {"3", "a", "3/a"}, {NULL, "a", "a"}, {"3", NULL, "3"}};

START_TEST(engine_is_the_label_and_what_the_app_says)
{
	struct wb_reconcile_worker w = rollout(1, names[_i].app, 12);

	make_with_pods(1);
	pod("r-3", "rollout", names[_i].label, true);
	up(agent(2, "r-3", &w, 1));
	ck_assert_str_eq(first_engine(), names[_i].want);
}
END_TEST

/* Cut it might be another engine's. */
START_TEST(engine_whose_name_does_not_fit_beside_its_pod_s_is_refused)
{
	struct wb_reconcile_worker w;
	char name[65], want[64];

	memset(name, 'e', sizeof(name));
	name[63 + _i] = '\0';
	snprintf(want, sizeof(want), "3/%.60s", name);
	w = rollout(1, name, 12);
	make_with_pods(1);
	pod("r-3", "rollout", "3", true);
	up(agent(2, "r-3", &w, 1));
	if (_i)
		ck_assert_ptr_nonnull(strstr(did(true), "has more than the 63 bytes"));
	else
		ck_assert_int_eq(strncmp(first_engine(), want, strlen(want)), 0);
}
END_TEST

static void waits_for_a_node(const char *name, const char *why)
{
	struct wb_reconcile_pod p = {
		.name = name, .role = "rollout", .has_sidecar = true, .unscheduled = why};

	ck_assert_int_eq(wb_reconcile_pod(r, now, &p), 0);
}

/* With the scheduler's own words, made text; until it has a node. */
START_TEST(pod_without_a_node_is_named_with_its_reason)
{
	char wide[400];

	make_with_pods(1);
	pod("t-0", "trainer", NULL, true);
	waits_for_a_node("r-0", "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.");
	members_are("False", "PodUnschedulable",
		"pod r-0 has no node: Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.");
	ck_assert_str_eq(cond("Ready", NULL, NULL), "False");
	memset(wide, 'x', sizeof(wide));
	memcpy(wide, "a\n\xc3\xa9", 4);
	wide[399] = '\0';
	waits_for_a_node("r-1", wide);
	members_are("False", "PodUnschedulable", "2 pods have no node, r-0 among them: Unsch");
	pod("r-0", "rollout", NULL, true);
	members_are("False", "PodUnschedulable", "pod r-1 has no node: a???xxx");
	pod("r-1", "rollout", NULL, true);
	members_are("False", "WaitingForAgents", "trainer workers");
}
END_TEST

/* One more than is needed has no node: said, and nothing else stops. */
START_TEST(pod_without_a_node_beside_complete_members_is_told_of)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10), e = rollout(1, "e0", 12);

	make_with_pods(1);
	up(agent(1, "t-0", &t, 1));
	up(agent(2, "r-0", &e, 1));
	waits_for_a_node("r-1", "Unschedulable");
	members_are("True", "AllAgentsConnected", "; pod r-1 has no node: Unschedulable");
}
END_TEST

START_TEST(no_engine_at_all_is_engine_label_missing)
{
	struct wb_reconcile_worker w = rollout(1, "", 12);

	make_with_pods(1);
	pod("r-0", "rollout", NULL, true);
	up(agent(2, "r-0", &w, 1));
	members_are("False", "EngineLabelMissing", "has no label weightbridge.io/engine");
	ck_assert_ptr_nonnull(strstr(did(false), "reject(2/1: r-0/worker 1 has no engine"));
}
END_TEST

static const struct {
	const char *label;
	bool is_trainer, is_fine;
} roles[] = {
	{"trainer", true, true},
	{"rollout", true, false},
	{"both", true, true},
	{"both", false, true},
	{"trainer", false, false},
	{"Trainer", true, false},
	{NULL, true, true},
};

START_TEST(role_must_be_that_of_the_label)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10), e = rollout(1, "e", 12);

	make_with_pods(1);
	pod("p", roles[_i].label, NULL, true);
	up(agent(1, "p", roles[_i].is_trainer ? &t : &e, 1));
	if (roles[_i].is_fine) {
		ck_assert_ptr_null(strstr(did(false), "reject"));
		return;
	}
	members_are("False", "RoleMismatch", "label weightbridge.io/role of its pod is");
	ck_assert_ptr_nonnull(strstr(did(false), "reject(1/1: "));
	/* The worker ends and may come again; the next one is fine. */
	workers(1, NULL, 0);
	members_are("False", "RoleMismatch", "");
	pod("p", "both", NULL, true);
	t.id = e.id = 2;
	workers(1, roles[_i].is_trainer ? &t : &e, 1);
	members_are("False", "WaitingForAgents", "");
}
END_TEST

START_TEST(refused_agent_is_the_reason_until_it_is_let_in)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10);

	make_with_pods(1);
	pod("t-0", "trainer", NULL, true);
	ck_assert_int_eq(wb_reconcile_refused(r, now, WB_REFUSED_TOKEN, "t-0", "bad token"), 0);
	members_are("False", "AuthenticationRejected", "agent t-0 was refused: bad token");
	up(agent(1, "t-0", &t, 1));
	members_are("False", "WaitingForAgents", "engines");
	ck_assert_int_eq(wb_reconcile_refused(r, now, WB_REFUSED_VERSION, "t-9", "too old"), 0);
	members_are("False", "ProtocolVersionMismatch", "too old");
	/* One that stopped coming is no reason any more. */
	now.ns = wb_reconcile_due_ns(r);
	ck_assert_int_eq(wb_reconcile_tick(r, now), 0);
	members_are("False", "WaitingForAgents", "engines");
}
END_TEST

START_TEST(library_is_the_reason_until_its_agent_says_that_it_is_over)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10);

	make_with_pods(1);
	pod("t-0", "trainer", NULL, true);
	up(agent(1, "t-0", &t, 1));
	ck_assert_int_eq(
		wb_reconcile_refused(r, now, WB_REFUSED_LIBRARY, "t-0", "build 1, not 2"), 0);
	members_are(
		"False", "LibraryVersionMismatch", "a worker of agent t-0 was refused: build 1");
	later(600 * S);
	members_are("False", "LibraryVersionMismatch", "build 1");
	ck_assert_int_eq(wb_reconcile_refused(r, now, WB_REFUSED_LIBRARY, "t-1", ""), 0);
	members_are("False", "LibraryVersionMismatch", "build 1");
	ck_assert_int_eq(wb_reconcile_refused(r, now, WB_REFUSED_LIBRARY, "t-0", ""), 0);
	members_are("False", "WaitingForAgents", "engines");
}
END_TEST

START_TEST(news_that_say_nothing_new_change_nothing)
{
	uint64_t looks;

	make_with_pods(1);
	pod("t-0", "trainer", "x", true);
	looks = wb_reconcile_looks(r);
	pod("t-0", "trainer", "x", true);
	ck_assert_uint_eq(wb_reconcile_looks(r), looks);
	ck_assert_int_eq(wb_reconcile_pod_gone(r, now, "nobody"), 0);
	ck_assert_uint_eq(wb_reconcile_looks(r), looks);
	/* Names are cut as agents' names are. */
	pod("a-very-long-name-of-a-pod-that-goes-on-and-on-beyond-sixty-three-characters-0",
		"trainer", NULL, true);
	ck_assert_int_eq(wb_reconcile_pod_gone(r, now,
				 "a-very-long-name-of-a-pod-that-goes-on-and-on-beyond-sixty-three-"
				 "characters-0"),
		0);
	ck_assert_uint_eq(wb_reconcile_looks(r), looks + 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reconcile_pods");
	TCase *c = tcase_create("pods");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, no_pods_is_waiting_for_pods);
	tcase_add_test(c, pod_without_a_node_is_named_with_its_reason);
	tcase_add_test(c, pod_without_a_node_beside_complete_members_is_told_of);
	tcase_add_test(c, five_pods_without_sidecar_are_named);
	tcase_add_test(c, missing_sidecar_does_not_stop_a_complete_job);
	tcase_add_loop_test(c, engine_is_the_label_and_what_the_app_says, 0, WB_ARRAY_SIZE(names));
	tcase_add_loop_test(c, engine_whose_name_does_not_fit_beside_its_pod_s_is_refused, 0, 2);
	tcase_add_test(c, no_engine_at_all_is_engine_label_missing);
	tcase_add_loop_test(c, role_must_be_that_of_the_label, 0, WB_ARRAY_SIZE(roles));
	tcase_add_test(c, refused_agent_is_the_reason_until_it_is_let_in);
	tcase_add_test(c, library_is_the_reason_until_its_agent_says_that_it_is_over);
	tcase_add_test(c, news_that_say_nothing_new_change_nothing);
	suite_add_tcase(s, c);
	return fx_run(s);
}
