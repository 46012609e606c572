/* SPDX-License-Identifier: Apache-2.0 */
/* Every field of spec.transport: done, refused by name, or said to be done with less. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

#include "operator-shim/spec/transport.h"

#define VERBS_TCP                                                                                  \
	{                                                                                          \
		2,                                                                                 \
		{                                                                                  \
			WB_PROTOCOL_VERBS, WB_PROTOCOL_TCP                                         \
		}                                                                                  \
	}
#define TCP_VERBS                                                                                  \
	{                                                                                          \
		2,                                                                                 \
		{                                                                                  \
			WB_PROTOCOL_TCP, WB_PROTOCOL_VERBS                                         \
		}                                                                                  \
	}
#define TCP                                                                                        \
	{                                                                                          \
		1,                                                                                 \
		{                                                                                  \
			WB_PROTOCOL_TCP                                                            \
		}                                                                                  \
	}
#define VERBS                                                                                      \
	{                                                                                          \
		1,                                                                                 \
		{                                                                                  \
			WB_PROTOCOL_VERBS                                                          \
		}                                                                                  \
	}
#define ANY WB_DEVICE_ANY
#define AUTO WB_GPU_DIRECT_AUTO
#define MLX                                                                                        \
	{                                                                                          \
		1,                                                                                 \
		{                                                                                  \
			"mlx5_"                                                                    \
		}                                                                                  \
	}
#define NONE                                                                                       \
	{                                                                                          \
		0,                                                                                 \
		{                                                                                  \
			""                                                                         \
		}                                                                                  \
	}

static const struct {
	struct wb_spec_words protocols;
	uint32_t device_class, gpu_direct;
	struct wb_spec_strings prefixes;
	uint32_t via; /* of the engine's agent */
	const char *refused; /* NULL: it is planned */
	const char *degraded; /* NULL: it is not, when the engine was reached by TCP */
} asked[] = {
	/* The default, on machines without RDMA: as it should be. */
	{VERBS_TCP, ANY, AUTO, NONE, WB_VIA_TCP, NULL, NULL},
	{TCP_VERBS, ANY, AUTO, NONE, WB_VIA_TCP, NULL, NULL},
	{TCP, ANY, AUTO, NONE, WB_VIA_TCP, NULL, NULL},
	{TCP, ANY, WB_GPU_DIRECT_DISABLED, NONE, WB_VIA_TCP, NULL, NULL},
	{TCP, ANY, AUTO, NONE, 0, NULL, NULL}, /* an agent that does not say */
	{VERBS, ANY, AUTO, NONE, WB_VIA_SHM, NULL, NULL}, /* nothing travels */
	{VERBS, ANY, AUTO, NONE, WB_VIA_TCP | WB_VIA_VERBS, NULL, NULL},
	{VERBS, ANY, AUTO, NONE, WB_VIA_TCP,
		"spec.transport.protocols has Verbs alone, but agent roll moves weights over TCP "
		"alone: add TCP",
		NULL},
	{TCP, ANY, AUTO, NONE, WB_VIA_VERBS,
		"spec.transport.protocols has TCP alone, but agent roll moves weights over Verbs "
		"alone: add Verbs",
		NULL},
	{VERBS_TCP, ANY, WB_GPU_DIRECT_REQUIRED, NONE, WB_VIA_TCP,
		"spec.transport.gpuDirect is Required", NULL},
	{TCP, WB_DEVICE_HARDWARE, AUTO, NONE, WB_VIA_TCP,
		"spec.transport.deviceClass chooses among RDMA devices", NULL},
	{TCP, ANY, AUTO, MLX, WB_VIA_TCP,
		"spec.transport.devicePrefixes chooses among RDMA devices", NULL},
	{VERBS_TCP, WB_DEVICE_HARDWARE, AUTO, NONE, WB_VIA_TCP, NULL,
		"spec.transport.deviceClass asks for RDMA devices"},
	{VERBS_TCP, WB_DEVICE_SOFTWARE, AUTO, NONE, WB_VIA_TCP, NULL,
		"spec.transport.deviceClass asks for RDMA devices"},
	{VERBS_TCP, ANY, AUTO, MLX, WB_VIA_TCP, NULL,
		"spec.transport.devicePrefixes asks for RDMA devices"},
	/* Memory is no way to other hosts. */
	{VERBS, ANY, AUTO, NONE, WB_VIA_SHM | WB_VIA_TCP,
		"spec.transport.protocols has Verbs alone, but agent roll moves weights over TCP "
		"alone: add TCP",
		NULL},
	{VERBS, ANY, AUTO, NONE, WB_VIA_SHM | WB_VIA_SOFT | WB_VIA_TCP, NULL, NULL},
	{VERBS, WB_DEVICE_SOFTWARE, AUTO, NONE, WB_VIA_SOFT, NULL,
		"spec.transport.deviceClass asks for RDMA devices"},
	{VERBS, WB_DEVICE_HARDWARE, AUTO, NONE, WB_VIA_SOFT,
		"spec.transport.deviceClass is Hardware, but agent roll has RDMA in software alone",
		NULL},
	{VERBS, WB_DEVICE_SOFTWARE, AUTO, NONE, WB_VIA_VERBS,
		"spec.transport.deviceClass is Software, but agent roll has RDMA in hardware alone",
		NULL},
};

static struct wb_spec spec_with(int i)
{
	struct wb_spec s = spec_of(1, 1);

	s.protocols = asked[i].protocols;
	s.device_class = asked[i].device_class;
	s.gpu_direct = asked[i].gpu_direct;
	s.device_prefixes = asked[i].prefixes;
	return s;
}

static void members_come(uint32_t via)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10), e = rollout(1, "e1", 11);
	struct wb_reconcile_agent a = agent(1, "train", &t, 1), b = agent(2, "roll", &e, 1);

	b.via = via;
	up(a);
	up(b);
	blobs(1, 1);
	blobs(10, 11);
}

START_TEST(what_is_asked_of_the_transport_is_done_or_refused_by_name)
{
	struct wb_spec s = spec_with(_i), plain = spec_of(1, 1);
	struct wb_reconcile_engine_report e = {.engine = "e1",
		.state = WB_ENGINE_COMMITTED,
		.transfer = 5,
		.version = 50,
		.transport = "tcp"};
	const char *reason, *message;

	make(&s, 77);
	members_come(asked[_i].via);
	cond("Planned", &reason, &message);
	if (asked[_i].refused) {
		ck_assert_str_eq(reason, "NoUsableDevice");
		ck_assert_msg(strstr(message, asked[_i].refused) != NULL, "%s", message);
		/* Mended in the object: planned by itself. */
		did(false);
		ck_assert_int_eq(wb_reconcile_spec(r, now, &plain), 0);
		blobs(1, 1);
		blobs(10, 11);
		ck_assert_ptr_nonnull(strstr(did(false), "plan("));
		return;
	}
	ck_assert_ptr_nonnull(strstr(did(false), "plan("));
	planned(1, 99);
	ck_assert_int_eq(wb_reconcile_engine(r, now, &e), 0);
	ck_assert_str_eq(
		cond("Degraded", &reason, &message), asked[_i].degraded ? "True" : "False");
	ck_assert_str_eq(reason, asked[_i].degraded ? "TCPFallback" : "AsExpected");
	if (asked[_i].degraded)
		ck_assert_msg(strstr(message, asked[_i].degraded) != NULL, "%s", message);
}
END_TEST

/* The plan is none of theirs, so there is no new one. */
START_TEST(a_change_that_asks_for_nothing_else_makes_no_new_plan)
{
	struct wb_spec s = spec_with(0);

	make(&s, 77);
	members_come(WB_VIA_TCP);
	ck_assert_ptr_nonnull(strstr(did(false), "plan("));
	s.gpu_direct = WB_GPU_DIRECT_DISABLED;
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	ck_assert_ptr_null(strstr(did(false), "plan("));
	s.encryption = WB_ENCRYPTION_TLS; /* this is in the plan's epoch */
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	ck_assert_ptr_nonnull(strstr(did(false), "plan("));
}
END_TEST

/* Which of two is better stands in their order. */
START_TEST(a_change_of_the_order_makes_a_new_plan)
{
	struct wb_spec s = spec_with(0);

	make(&s, 77);
	members_come(WB_VIA_TCP | WB_VIA_VERBS);
	ck_assert_ptr_nonnull(strstr(did(false), "plan("));
	s.protocols = (struct wb_spec_words)TCP_VERBS;
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	blobs(1, 1);
	blobs(10, 11);
	ck_assert_ptr_nonnull(strstr(did(false), "plan("));
}
END_TEST

static const struct {
	uint32_t device_class;
	const char *transport, *fallback, *reason, *words;
} used[] = {
	{ANY, "shm", NULL, "AsExpected", ""},
	{ANY, "shm,verbs,tcp+tls", "", "AsExpected", ""},
	{ANY, "shm,tcp+tls", "agent train is reached by tcp and not verbs: no route", "TCPFallback",
		"engine e1: agent train is reached by tcp and not verbs: no route"},
	{ANY, "verbs", "an old word", "AsExpected", ""},
	{WB_DEVICE_HARDWARE, "verbs,tcp", NULL, "TCPFallback", "deviceClass asks for RDMA devices"},
	{WB_DEVICE_HARDWARE, "shm,verbs", NULL, "AsExpected", ""},
	{ANY, "verbs+soft", NULL, "SoftwareRDMA", "engine e1 is reached by RDMA in software"},
	{ANY, "shm,verbs+soft,tcp", "agent x is reached by tcp and not verbs+soft: so",
		"TCPFallback", "and not verbs+soft"},
	{WB_DEVICE_SOFTWARE, "verbs+soft", NULL, "AsExpected", ""},
};

START_TEST(what_carries_an_engines_weights_is_judged)
{
	struct wb_spec s = spec_with(0);
	struct wb_reconcile_engine_report e = {.engine = "e1",
		.state = WB_ENGINE_COMMITTED,
		.transfer = 5,
		.version = 50,
		.transport = used[_i].transport,
		.fallback = used[_i].fallback};
	const char *reason, *message;

	s.device_class = used[_i].device_class;
	make(&s, 77);
	members_come(WB_VIA_TCP | WB_VIA_VERBS | WB_VIA_SOFT);
	ck_assert_ptr_nonnull(strstr(did(false), "plan("));
	planned(1, 99);
	ck_assert_int_eq(wb_reconcile_engine(r, now, &e), 0);
	(void)cond("Degraded", &reason, &message);
	ck_assert_str_eq(reason, used[_i].reason);
	ck_assert_msg(strstr(message, used[_i].words) != NULL, "%s", message);
	/* Who does not say what carried them changes nothing of it; who does, does. */
	e.transport = NULL;
	ck_assert_int_eq(wb_reconcile_engine(r, now, &e), 0);
	(void)cond("Degraded", &reason, &message);
	ck_assert_str_eq(reason, used[_i].reason);
	e.transport = "shm";
	e.fallback = NULL;
	ck_assert_int_eq(wb_reconcile_engine(r, now, &e), 0);
	(void)cond("Degraded", &reason, &message);
	ck_assert_str_eq(reason, "AsExpected");
}
END_TEST

/* What is said of its rails, and of which transport its engine was reached by. */
static const struct {
	const char *transport, *train, *roll, *reason, *words;
} rails[] = {
	{"verbs", "", "", "AsExpected", ""},
	{"verbs", "fake1 port 1 is down", "", "ReducedRails", "agent train: fake1 port 1 is down"},
	{"shm,verbs+soft", "", "p is down", "ReducedRails", "agent roll: p is down"},
	{"verbs", "p is down", "q is down", "ReducedRails", "(and 1 more)"},
	{"shm", "p is down", "", "AsExpected", ""}, /* nothing goes by ports */
	{"shm,tcp", "p is down", "", "AsExpected", ""},
};

START_TEST(a_port_that_is_down_is_told_until_it_is_up)
{
	struct wb_spec s = spec_with(0);
	struct wb_reconcile_engine_report e = {.engine = "e1",
		.state = WB_ENGINE_COMMITTED,
		.transfer = 5,
		.version = 50,
		.transport = rails[_i].transport};
	const char *reason, *message;

	make(&s, 77);
	members_come(WB_VIA_TCP | WB_VIA_VERBS);
	planned(1, 99);
	ck_assert_int_eq(wb_reconcile_engine(r, now, &e), 0);
	ck_assert_int_eq(wb_reconcile_rails(r, now, 1, rails[_i].train), 0);
	ck_assert_int_eq(wb_reconcile_rails(r, now, 2, rails[_i].roll), 0);
	ck_assert_int_eq(wb_reconcile_rails(r, now, 99, "of nobody"), 0);
	(void)cond("Degraded", &reason, &message);
	ck_assert_str_eq(reason, rails[_i].reason);
	ck_assert_msg(strstr(message, rails[_i].words) != NULL, "%s", message);
	ck_assert_int_eq(wb_reconcile_rails(r, now, 1, ""), 0);
	ck_assert_int_eq(wb_reconcile_rails(r, now, 2, ""), 0);
	(void)cond("Degraded", &reason, &message);
	ck_assert_str_ne(reason, "ReducedRails");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reconcile_transport");
	TCase *c = tcase_create("reconcile_transport");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_loop_test(c, what_is_asked_of_the_transport_is_done_or_refused_by_name, 0,
		WB_ARRAY_SIZE(asked));
	tcase_add_test(c, a_change_that_asks_for_nothing_else_makes_no_new_plan);
	tcase_add_test(c, a_change_of_the_order_makes_a_new_plan);
	tcase_add_loop_test(c, what_carries_an_engines_weights_is_judged, 0, WB_ARRAY_SIZE(used));
	tcase_add_loop_test(c, a_port_that_is_down_is_told_until_it_is_up, 0, WB_ARRAY_SIZE(rails));
	return fx_run(s);
}
