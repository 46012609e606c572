/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of the API server from anywhere: a stored status, a token review, an object's metadata. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/token.h"
#include "operator-shim/kube/watch.h"
#include "operator-shim/reconcile/reconcile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] =
	"{apiVersion: weightbridge.io/v1alpha1, kind: WeightTransfer, metadata: {name: a},"
	" spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}}";

/* The agents of the job come back, and say that they run the plan that the status names. */
static void come_back(struct wb_reconcile *r, struct wb_reconcile_now now, const json_t *o)
{
	const json_t *plan = json_object_get(o, "plan");
	const char *engine = json_string_value(
		json_object_get(json_array_get(json_object_get(o, "engines"), 0), "name"));
	const char *digest = json_string_value(json_object_get(plan, "digest"));
	struct wb_reconcile_worker w[2] = {{.id = 1, .role = WB_ROLE_TRAINER, .rank = 0},
		{.id = 1, .role = WB_ROLE_ROLLOUT, .engine = engine, .rank = -1}};
	struct wb_reconcile_action a;
	struct wb_reconcile_known known = {{2, 1}, {0, 7}, 2};

	if (!engine || !*engine)
		return;
	if (digest)
		(void)wb_digest_parse(digest, &known.plan);
	for (uint32_t i = 0; i < 2; i++) {
		struct wb_reconcile_agent up = {.id = 10 + i,
			.name = i ? "roll" : "train",
			.instance = i,
			.heard_term = 2,
			.heard_operator = 9,
			.running = known,
			.worker = &w[i],
			.n_worker = 1};

		w[i].map = w[i].manifest = (struct wb_digest){0, 5};
		w[i].plan_index = i;
		w[i].waiting_index = WB_RECONCILE_NONE;
		if (wb_reconcile_agent_up(r, now, &up) < 0)
			abort();
	}
	while (wb_reconcile_take(r, &a))
		wb_free(a.sentence);
}

/* What was restored is a status that can be restored again, and transfer does not fall. */
static void restore(const json_t *o)
{
	static struct wb_spec *spec;
	struct wb_reconcile_now now = {1000 * WB_NS_PER_S, 1700000000 * WB_NS_PER_S};
	struct wb_reconcile_opts ro = {.operator_id = 1};
	struct wb_reconcile *r = NULL;
	json_t *st;
	size_t n;

	if (!spec && wb_spec_load("f", text, sizeof(text) - 1, &spec, &n, NULL) < 0)
		abort();
	if (wb_reconcile_create(&ro, spec, &r) < 0 || wb_reconcile_restore(r, now, o) < 0)
		abort();
	come_back(r, now, o);
	now.ns += 60 * WB_NS_PER_S;
	wb_reconcile_tick(r, now);
	st = wb_reconcile_status(r);
	if (json_integer_value(json_object_get(st, "transfer")) >
		(json_int_t)wb_reconcile_transfer_seen(r))
		abort();
	wb_kube_observed(st, 3);
	json_decref(st);
	wb_reconcile_destroy(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *o = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	const char *object = "n/t";
	struct wb_kube_who who;
	struct wb_err err = {0};

	if (!o)
		return 0;
	restore(o);
	if (wb_kube_review_judge(o, &object, 1, &who, &err) < 0 ? !err.msg[0]
								: !who.pod[0] || !who.ns[0])
		abort();
	if (!wb_kube_meta(o, "name"))
		abort();
	json_decref(o);
	return 0;
}
