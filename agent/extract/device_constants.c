/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a map's constants into parameters that may lie on devices.  This is no probe, but uses the
 * tables of one. */
#include "base/base.h"
#include "base/mem.h"
#include "extract/table.h"

#include <errno.h>

static bool is_put(const struct wb_region *r, void *const *param)
{
	return r->kind == WB_REGION_CONSTANT && param[r->param];
}

/* Describe the parameters that get constants, as far as tables need it. */
static void describe(struct wb_probe *p, const struct wb_map *map, void *const *param)
{
	for (uint32_t i = 0; i < map->n_region; i++) {
		const struct wb_param *from = &map->param[map->region[i].param];
		struct wb__param *a = &p->param[map->region[i].param];

		if (!is_put(&map->region[i], param))
			continue;
		a->name = from->name; /* borrowed from the map */
		a->dtype = from->dtype;
		a->elem_bytes = wb_dtype_bytes(from->dtype);
		a->data = param[map->region[i].param];
		a->geom.total = a->geom.span = from->span;
	}
}

static int put_all(struct wb__dev *d, void *ctx)
{
	const struct wb_map *map = ctx;
	struct wb__scan s = wb__scan_of(d, WBK_GPU_PUT, sizeof(struct wbk_put));
	int rc = 0;

	for (uint32_t i = 0; i < map->n_region && !rc; i++) {
		const struct wb_region *r = &map->region[i];
		const struct wb__param *a = &d->p->param[r->param];
		struct wbk_put item = {.p = {.rows = r->n_row,
					       .cols = r->n_col,
					       .row_stride = (int64_t)r->row_stride,
					       .row_end = r->n_row,
					       .elem = (uint8_t)a->elem_bytes},
			.value = (uint32_t)r->value};

		if (r->kind != WB_REGION_CONSTANT || a->dev != d)
			continue;
		item.p.data = a->data + r->dst * a->elem_bytes;
		rc = wb__scan_add(&s, &item, &(struct wb__extent){r->n_row, r->n_col, 1}, a);
	}
	return rc ? rc : wb__scan_flush(&s);
}

static int write_all(struct wb_probe *p, const struct wb_srcmap *s, void **host, struct wb_err *err)
{
	int rc = wb__dev_find(p, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < s->map->n_param; i++)
		host[i] = p->param[i].dev ? NULL : p->param[i].data;
	rc = wb__dev_settle(p);
	if (!rc)
		rc = wb__dev_each(p, put_all, s->map);
	if (rc)
		return wb_err_set(err, rc, "constants of parameters: %.300s", p->dev_err.msg);
	wb_srcmap_constants(s, host);
	return 0;
}

int wb_srcmap_write_constants(const struct wb_srcmap *s, void *const *param, struct wb_err *err)
{
	struct wb_probe p = {.opts = {.has_devices = true}};
	void **host = wb_zalloc(s->map->n_param, sizeof(*host));
	int rc = -ENOMEM;

	p.param = wb_zalloc(s->map->n_param, sizeof(*p.param));
	p.n_param = s->map->n_param;
	pthread_mutex_init(&p.lock, NULL);
	if (host && p.param) {
		describe(&p, s->map, param);
		rc = write_all(&p, s, host, err);
	} else {
		wb_err_set(err, rc, "parameters");
	}
	wb__dev_finish(&p);
	pthread_mutex_destroy(&p.lock);
	wb_free(p.param);
	wb_free(host);
	return rc;
}
