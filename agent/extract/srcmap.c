/* SPDX-License-Identifier: Apache-2.0 */
#include "extract/srcmap.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>

/*
 * Encoding: magic, version, u64 length and bytes of the manifest, the same of the map, then owner
 * (u32) and offset (u64) of each parameter.  Little-endian.
 */
#define MAGIC 0x4d534257u /* "WBSM" */
#define VERSION 1

/* Op numbers grouped by parameter, in the map's order. */
static int index_ops(struct wb_srcmap *s)
{
	const struct wb_map *map = s->map;
	uint32_t *at;

	s->op_first = wb_zalloc((size_t)map->n_param + 2, sizeof(*s->op_first));
	s->op_order = wb_zalloc(map->n_op, sizeof(*s->op_order));
	if (!s->op_first || !s->op_order)
		return -ENOMEM;
	at = s->op_first + 1; /* shifted by one while filling */
	for (uint32_t i = 0; i < map->n_op; i++)
		at[map->op[i].param + 1]++;
	for (uint32_t i = 0; i < map->n_param; i++)
		at[i + 1] += at[i];
	for (uint32_t i = 0; i < map->n_op; i++)
		s->op_order[at[map->op[i].param]++] = i;
	return 0;
}

int wb_srcmap_create(struct wb_manifest *manifest, struct wb_map *map, struct wb_alias *alias,
	struct wb_srcmap **out)
{
	struct wb_srcmap *s = wb_zalloc(1, sizeof(*s));

	assert(manifest && map && alias);
	if (!s)
		return -ENOMEM;
	s->map = map;
	if (index_ops(s) < 0) {
		s->map = NULL;
		wb_srcmap_destroy(s);
		return -ENOMEM;
	}
	s->manifest = manifest;
	s->alias = alias;
	*out = s;
	return 0;
}

void wb_srcmap_destroy(struct wb_srcmap *s)
{
	if (!s)
		return;
	wb_manifest_destroy(s->manifest);
	wb_map_destroy(s->map);
	wb_free(s->alias);
	wb_free(s->op_first);
	wb_free(s->op_order);
	wb_free(s);
}

int wb_srcmap_encode(const struct wb_srcmap *s, struct wb_buf *out)
{
	size_t at, begin;

	wb_buf_u32(out, MAGIC);
	wb_buf_u32(out, VERSION);
	for (int part = 0; part < 2; part++) {
		at = out->len;
		wb_buf_u64(out, 0);
		begin = out->len;
		if (part)
			(void)wb_map_encode(s->map, out);
		else
			(void)wb_manifest_encode(s->manifest, out);
		if (!out->rc)
			wb_buf_set_u64(out, at, out->len - begin);
	}
	for (uint32_t i = 0; i < s->map->n_param; i++) {
		wb_buf_u32(out, s->alias[i].owner);
		wb_buf_u64(out, s->alias[i].offset);
	}
	return out->rc;
}

/* A view must lie inside its owner, which must not be a view itself. */
static bool alias_fits(const struct wb_map *map, const struct wb_alias *alias, uint32_t i)
{
	const struct wb_alias *a = &alias[i];
	uint64_t end;

	if (a->owner == WB_ALIAS_NONE)
		return a->offset == 0;
	return a->owner < map->n_param && alias[a->owner].owner == WB_ALIAS_NONE &&
	       map->param[a->owner].dtype == map->param[i].dtype &&
	       wb_add_u64(a->offset, map->param[i].span, &end) && end <= map->param[a->owner].span;
}

static int read_aliases(struct wb_cursor *c, const struct wb_map *map, struct wb_alias *alias)
{
	for (uint32_t i = 0; i < map->n_param; i++) {
		alias[i].owner = wb_cur_u32(c);
		alias[i].offset = wb_cur_u64(c);
	}
	if (c->bad || wb_cur_left(c))
		return -EBADMSG;
	for (uint32_t i = 0; i < map->n_param; i++)
		if (!alias_fits(map, alias, i))
			return -EBADMSG;
	return 0;
}

static const uint8_t *read_part(struct wb_cursor *c, size_t *bytes)
{
	uint64_t n = wb_cur_u64(c);

	if (c->bad || n > wb_cur_left(c))
		return NULL;
	*bytes = (size_t)n;
	return wb_cur_bytes(c, (size_t)n);
}

int wb_srcmap_decode(const void *p, size_t bytes, struct wb_srcmap **out, struct wb_err *err)
{
	struct wb_cursor c = wb_cursor(p, bytes);
	struct wb_manifest *manifest = NULL;
	struct wb_alias *alias = NULL;
	struct wb_map *map = NULL;
	const uint8_t *part;
	size_t n = 0;
	int rc;

	if (wb_cur_u32(&c) != MAGIC || wb_cur_u32(&c) != VERSION)
		return wb_err_set(err, -EBADMSG, "not a source map file of format %d", VERSION);
	part = read_part(&c, &n);
	if (!part)
		return wb_err_set(err, -EBADMSG, "source map: cut off in the manifest");
	rc = wb_manifest_decode(part, n, &manifest, err);
	if (rc < 0)
		return rc;
	part = read_part(&c, &n);
	rc = part ? wb_map_decode(manifest, part, n, &map, err)
		  : wb_err_set(err, -EBADMSG, "source map: cut off in the map");
	if (rc < 0)
		goto err_free;
	alias = wb_zalloc(map->n_param, sizeof(*alias));
	rc = alias ? read_aliases(&c, map, alias) : -ENOMEM;
	if (!rc)
		rc = wb_srcmap_create(manifest, map, alias, out);
	if (!rc)
		return 0;
	wb_err_set(err, rc, "source map: the list of views is damaged");
err_free:
	wb_free(alias);
	wb_map_destroy(map);
	wb_manifest_destroy(manifest);
	return rc;
}
