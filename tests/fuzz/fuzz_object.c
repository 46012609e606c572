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

/* What was restored is a status that can be restored again, and transfer does not fall. */
static void restore(const json_t *o)
{
	static struct wb_spec *spec;
	struct wb_recon_now now = {1000 * WB_NS_PER_S, 1700000000 * WB_NS_PER_S};
	struct wb_recon_opts ro = {.operator_id = 1};
	struct wb_recon *r = NULL;
	json_t *st;
	size_t n;

	if (!spec && wb_spec_load("f", text, sizeof(text) - 1, &spec, &n, NULL) < 0)
		abort();
	if (wb_recon_create(&ro, spec, &r) < 0 || wb_recon_restore(r, now, o) < 0)
		abort();
	now.ns += 60 * WB_NS_PER_S;
	wb_recon_tick(r, now);
	st = wb_recon_status(r);
	if (json_integer_value(json_object_get(st, "transfer")) >
		(json_int_t)wb_recon_transfer_seen(r))
		abort();
	wb_kube_observed(st, 3);
	json_decref(st);
	wb_recon_destroy(r);
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
