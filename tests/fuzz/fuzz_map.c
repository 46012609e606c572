/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source map decoder, for the manifest of the golden file: refused, or canonical; and what is
 * decoded can be planned for a trainer that holds everything.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "planner/plan.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct wb_manifest *manifest(void)
{
	static char names[3][20] = {"model.embed.weight", "model.norm.weight", "model.experts"};
	struct wb_tensor t[3] = {
		{.name = names[0], .dtype = WB_BF16, .ndim = 2, .shape = {100, 8}},
		{.name = names[1], .dtype = WB_F32, .ndim = 1, .shape = {8}},
		{.name = names[2], .dtype = WB_F16, .ndim = 3, .shape = {2, 3, 5}},
	};
	struct wb_manifest *m = NULL;
	int rc = wb_manifest_create(t, 3, &m, NULL);

	assert(!rc);
	return m;
}

static struct wb_map *everything(const struct wb_manifest *m)
{
	struct wb_map map = {.n_param = m->n, .n_op = m->n}, *out = NULL;
	int rc;

	map.param = wb_zalloc(m->n, sizeof(*map.param));
	map.op = wb_zalloc(m->n, sizeof(*map.op));
	for (uint32_t i = 0; i < m->n; i++) {
		const struct wb_tensor *t = &m->tensor[i];

		map.param[i] = (struct wb_param){.name = wb_strdup(t->name),
			.dtype = t->dtype,
			.ndim = 1,
			.shape = {t->rows * t->cols},
			.stride = {1},
			.span = t->rows * t->cols};
		map.op[i] = (struct wb_op){.param = i,
			.tensor = i,
			.n_row = (uint32_t)t->rows,
			.n_col = (uint32_t)t->cols,
			.row_step = 1,
			.col_step = 1,
			.dst_row_stride = (int64_t)t->cols,
			.dst_col_stride = 1,
			.repeat = 1};
	}
	rc = wb_map_create(m, &map, &out, NULL);
	assert(!rc);
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wb_manifest *m;
	static struct wb_map *all;
	const struct wb_map *layout[2];
	struct wb_plan_worker w[2] = {
		{WB_ROLE_TRAINER, 0, 0, 0, 0, 0}, {WB_ROLE_ROLLOUT, 1, 0, 1, 1, 0}};
	struct wb_plan_input in = {.layout = layout, .n_layout = 2, .worker = w, .n_worker = 2};
	struct wb_plan *p = NULL;
	struct wb_map *map = NULL;
	struct wb_buf b;

	m = m ? m : manifest();
	all = all ? all : everything(m);
	if (wb_map_decode(m, data, size, &map, NULL) < 0)
		return 0;
	wb_buf_init(&b, 2 * size + 64);
	assert(!wb_map_encode(map, &b));
	assert(b.len == size && !memcmp(b.data, data, size));
	wb_buf_finish(&b);
	layout[0] = all;
	layout[1] = map;
	in.manifest = m;
	if (!wb_plan_create(&in, &p, NULL)) {
		assert(!wb_plan_check(p, m, layout, NULL));
		wb_plan_destroy(p);
	}
	wb_map_destroy(map);
	return 0;
}
