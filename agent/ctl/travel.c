/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/travel.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/parts.h"

#include <errno.h>

#define MIB 1048576.0

/* A deployment as an operator has it: the bytes that agents uploaded. */
struct uploads {
	struct wb_buf manifest, *layout; /* owned */
	uint32_t n_layout;
};

static void uploads_finish(struct uploads *u)
{
	wb_buf_finish(&u->manifest);
	for (uint32_t i = 0; i < u->n_layout; i++)
		wb_buf_finish(&u->layout[i]);
	wb_free(u->layout);
}

static int uploads_make(const struct wb_deploy *d, struct uploads *u)
{
	int rc;

	*u = (struct uploads){.layout = wb_zalloc(d->n_layout, sizeof(*u->layout))};
	wb_buf_init(&u->manifest, SIZE_MAX / 2);
	rc = u->layout ? wb_manifest_encode(d->manifest, &u->manifest) : -ENOMEM;
	for (uint32_t i = 0; i < d->n_layout && rc == 0; i++) {
		u->n_layout = i + 1;
		wb_buf_init(&u->layout[i], SIZE_MAX / 2);
		rc = wb_map_encode(d->layout[i], &u->layout[i]);
	}
	return rc;
}

/* Reads, plans and packs, as operator-shim/serve does. */
static int replan(const struct uploads *u, const struct wb_plan_input *of, struct wb_err *err)
{
	struct wb_map **map = wb_zalloc(u->n_layout, sizeof(struct wb_map *));
	struct wb_plan_input in = *of;
	struct wb_manifest *m = NULL;
	struct wb_plan *p = NULL;
	struct wb_buf b;
	int rc = map ? wb_manifest_decode(u->manifest.data, u->manifest.len, &m, err)
		     : wb_err_set(err, -ENOMEM, "%s", wb_strerror(-ENOMEM));

	wb_buf_init(&b, SIZE_MAX / 2);
	for (uint32_t i = 0; i < u->n_layout && rc == 0; i++)
		rc = wb_map_decode(m, u->layout[i].data, u->layout[i].len, &map[i], err);
	in.manifest = m;
	in.layout = (const struct wb_map *const *)map;
	if (rc == 0)
		rc = wb_plan_create(&in, &p, err);
	if (rc == 0)
		rc = wb_plan_pack(p, &b);
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	for (uint32_t i = 0; map && i < u->n_layout; i++)
		wb_map_destroy(map[i]);
	wb_free(map);
	wb_manifest_destroy(m);
	return rc;
}

/* Plans without one engine, and then with it; @ms: the longer time of both. */
static int time_replans(const struct wb_deploy *d, double *ms, struct wb_err *err)
{
	struct wb_plan_input in = wb_deploy_input(d);
	struct uploads u;
	int rc = uploads_make(d, &u);

	if (rc < 0)
		wb_err_set(err, rc, "maps as they are uploaded: %s", wb_strerror(rc));
	for (int i = 0; i < 2 && rc == 0; i++) {
		uint64_t t0 = wb_now_ns(&wb_clock_real);

		in.n_worker = d->n_worker;
		if (i == 0 && d->spec.engines > 1)
			in.n_worker -= d->spec.rollout.world;
		rc = replan(&u, &in, err);
		*ms = WB_MAX(*ms, (double)(wb_now_ns(&wb_clock_real) - t0) / 1e6);
	}
	uploads_finish(&u);
	return rc;
}

int wb__ctl_travel(const struct wb_deploy *d, const struct wb_plan *p, struct wb__ctl_travel *out,
	struct wb_err *err)
{
	struct wb_plan_slice *slice = NULL;
	struct wb_buf b;
	int n;

	*out = (struct wb__ctl_travel){0};
	wb_buf_init(&b, SIZE_MAX / 2);
	n = wb_plan_pack(p, &b);
	if (n < 0)
		wb_err_set(err, n, "pack the plan: %s", wb_strerror(n));
	else
		n = wb_plan_slices(b.data, b.len, &slice, err);
	for (int i = 0; i < n; i++) {
		double mib = (double)slice[i].bytes / MIB;

		if (i == 0)
			out->head_mib = mib;
		else
			out->part_max_mib = WB_MAX(out->part_max_mib, mib);
	}
	wb_buf_finish(&b);
	wb_free(slice);
	return n < 0 ? n : time_replans(d, &out->replan_ms, err);
}
