/* SPDX-License-Identifier: Apache-2.0 */
#include "extract/probe.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "extract/device.h"
#include "extract/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define SEED 0x77656967687462ull
#define TEXT_MAX (64u << 20)

/* The stride of a dimension that has only one element says nothing about the layout.  It is set to
 * that of dense memory, so that one layout has one description. */
static void canon_strides(struct wb__param *a)
{
	uint64_t dense = 1;

	for (uint32_t d = a->ndim; d-- > 0;) {
		if (a->shape[d] == 1 || !a->geom.total)
			a->stride[d] = (int64_t)dense;
		dense = (uint64_t)a->stride[d] * WB_MAX(a->shape[d], 1);
	}
}

static int take_param(
	struct wb_probe *p, uint32_t i, const struct wb_probe_param *from, struct wb_err *err)
{
	struct wb__param *a = &p->param[i];
	int rc;

	if (!from->name || !from->name[0] || strlen(from->name) > WB_NAME_MAX)
		return wb_err_set(
			err, -EINVAL, "parameter %" PRIu32 " has no name, or a long one", i);
	if (!wb_dtype_bytes(from->dtype) || from->ndim > WB_NDIM_MAX)
		return wb_err_set(err, -EINVAL,
			"parameter %s has an unknown dtype or more than %d dimensions", from->name,
			WB_NDIM_MAX);
	a->name = wb_strdup(from->name);
	if (!a->name)
		return wb_err_set(err, -ENOMEM, "parameter %s", from->name);
	a->dtype = from->dtype;
	a->elem_bytes = wb_dtype_bytes(from->dtype);
	a->code = wb__code_of(from->dtype);
	a->role = from->role;
	a->ndim = from->ndim;
	memcpy(a->shape, from->shape, sizeof(a->shape));
	memcpy(a->stride, from->stride, sizeof(a->stride));
	a->data = from->data;
	a->alias.owner = WB_ALIAS_NONE;
	rc = wb__geom_init(&a->geom, from, false, a->role == WB_PROBE_PARAM ? err : NULL);
	if (!rc && a->geom.total && (!a->data || (uintptr_t)a->data % a->elem_bytes))
		rc = wb_err_set(err, -EINVAL, "parameter %s: its address is not that of %s",
			a->name, wb_dtype_name(a->dtype));
	if (rc < 0 && a->role != WB_PROBE_PARAM) {
		a->geom = (struct wb__geom){0};
		a->state = WB__OUT;
		return 0;
	}
	if (rc < 0)
		return rc;
	if (!a->geom.total)
		a->state = WB__LEFT;
	canon_strides(a);
	return 0;
}

static int take_opts(struct wb_probe *p, const struct wb_probe_opts *opts)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (opts)
		p->opts = *opts;
	if (!p->opts.record_max)
		p->opts.record_max = WB__RECORD_MAX;
	if (!p->opts.seed)
		p->opts.seed = SEED;
	if (!p->opts.n_hash)
		p->opts.n_hash = 1;
	p->threads = p->opts.threads ? p->opts.threads : cpus < 2 ? 1 : 2;
	p->cache_dir = p->opts.cache_dir ? wb_strdup(p->opts.cache_dir) : NULL;
	p->cache_key = wb_strdup(p->opts.cache_key ? p->opts.cache_key : "");
	if (!p->cache_key || (p->opts.cache_dir && !p->cache_dir))
		return -ENOMEM;
	return 0;
}

/* The same name twice would make one parameter stand for two. */
static int check_names(const struct wb_probe *p, struct wb_err *err)
{
	size_t size = 16;
	uint32_t *slot;

	while (size < 2 * (size_t)p->n_param)
		size *= 2;
	slot = wb_zalloc(size, sizeof(*slot));
	if (!slot)
		return wb_err_set(err, -ENOMEM, "parameter names");
	for (uint32_t i = 0; i < p->n_param; i++) {
		const char *name = p->param[i].name;
		size_t at = wb_hash64(name, strlen(name), 0) & (size - 1);

		for (; slot[at]; at = (at + 1) & (size - 1)) {
			if (strcmp(p->param[slot[at] - 1].name, name) != 0)
				continue;
			wb_free(slot);
			return wb_err_set(err, -EINVAL, "two parameters are called %s", name);
		}
		slot[at] = i + 1;
	}
	wb_free(slot);
	return 0;
}

/* All ranks must agree on what tensors are filled with, and on whether a map is only checked. */
static int agree_first(struct wb_probe *p, struct wb_err *err)
{
	uint32_t said = wb__codes_types(p) | (p->is_cached ? 0 : WB__SAID_NO_MAP), all;
	int rc = wb__agree(p, said, &all, err);

	if (rc < 0)
		return rc;
	wb__codes_setup(p, all);
	if (p->is_cached && (all & WB__SAID_NO_MAP)) {
		wb__note(p, "another rank has no map in its cache: probing anew");
		wb__cache_forget(p);
	}
	return 0;
}

int wb_probe_create(const struct wb_manifest *m, const struct wb_probe_param *param, uint32_t n,
	const struct wb_probe_opts *opts, struct wb_probe **out, struct wb_err *err)
{
	struct wb_probe *p;
	int rc;

	assert(m && (param || !n) && out);
	if (n > WB_PARAMS_MAX)
		return wb_err_set(err, -EINVAL, "%" PRIu32 " parameters", n);
	p = wb_zalloc(1, sizeof(*p));
	if (!p)
		return wb_err_set(err, -ENOMEM, "probe");
	p->manifest = m;
	pthread_mutex_init(&p->lock, NULL);
	wb_buf_init(&p->fault, TEXT_MAX);
	wb_buf_init(&p->note, TEXT_MAX);
	wb_buf_init(&p->outside, TEXT_MAX);
	p->param = wb_zalloc(n, sizeof(*p->param));
	if (!p->param || take_opts(p, opts) < 0) {
		rc = wb_err_set(err, -ENOMEM, "probe of %" PRIu32 " parameters", n);
		goto err_destroy;
	}
	for (uint32_t i = 0; i < n; i++) {
		p->n_param = i + 1;
		rc = take_param(p, i, &param[i], err);
		if (rc < 0)
			goto err_destroy;
	}
	rc = check_names(p, err);
	if (!rc && p->opts.has_devices)
		rc = wb__dev_find(p, err);
	if (!rc)
		rc = wb__alias_find(p, err);
	if (rc < 0)
		goto err_destroy;
	if (p->cache_dir)
		wb__cache_load(p);
	rc = agree_first(p, err);
	if (rc < 0)
		goto err_destroy;
	rc = wb__dev_settle(p);
	if (!rc)
		rc = wb__snapshot(p);
	if (rc < 0) {
		wb_err_set(err, rc, "%s%s%s",
			rc == -ENOMEM ? "no memory for a copy of the parameters (a loader that can "
					"run again does without: reload)"
				      : "no copy of the parameters",
			p->dev_err.code ? ": " : "", p->dev_err.msg);
		goto err_destroy;
	}
	*out = p;
	return 0;
err_destroy:
	p->is_restored = true; /* nothing was touched */
	wb_probe_destroy(p);
	return rc;
}

void wb_probe_destroy(struct wb_probe *p)
{
	if (!p)
		return;
	if (!p->is_restored && p->stats.n_pass)
		(void)wb__restore(p); /* there is nobody to report a failure to */
	wb__dev_finish(p);
	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];

		wb_free(a->name);
		wb_free(a->snapshot);
		wb_free(a->residual.run);
		wb_free(a->residual.value);
		wb_free(a->cls);
		wb__recs_finish(&a->field[0]);
		wb__recs_finish(&a->field[1]);
		wb_free(a->op);
		wb_free(a->region);
	}
	wb_free(p->param);
	wb_free(p->cache_dir);
	wb_free(p->cache_key);
	wb_buf_finish(&p->fault);
	wb_buf_finish(&p->note);
	wb_buf_finish(&p->outside);
	pthread_mutex_destroy(&p->lock);
	wb_free(p);
}

static int fill_param(const struct wb__param *a, struct wb_param *to)
{
	to->name = wb_strdup(a->name);
	to->dtype = a->dtype;
	to->ndim = a->ndim;
	to->span = a->geom.span;
	for (uint32_t d = 0; d < a->ndim; d++) {
		to->shape[d] = a->shape[d];
		to->stride[d] = a->stride[d];
	}
	return to->name ? 0 : -ENOMEM;
}

static void drop_arrays(struct wb_map *map)
{
	for (uint32_t i = 0; map->param && i < map->n_param; i++)
		wb_free(map->param[i].name);
	wb_free(map->param);
	wb_free(map->op);
	wb_free(map->region);
}

/* Append one parameter's part to the arrays, which have room for it. */
static int gather_param(const struct wb__param *a, struct wb_map *map)
{
	int rc = fill_param(a, &map->param[a->out]);

	for (size_t i = 0; i < a->n_op; i++) {
		map->op[map->n_op] = a->op[i];
		map->op[map->n_op++].param = a->out;
	}
	for (size_t i = 0; i < a->n_region; i++) {
		map->region[map->n_region] = a->region[i];
		map->region[map->n_region++].param = a->out;
	}
	return rc;
}

/* Make the map's own arrays from those of the @n parameters that go into it. */
static int gather(const struct wb_probe *p, uint32_t n, struct wb_map *map)
{
	uint64_t n_op = 0, n_region = 0;
	int rc = 0;

	for (uint32_t i = 0; i < p->n_param; i++) {
		if (p->param[i].out == WB__NOT_OUT)
			continue;
		n_op += p->param[i].n_op;
		n_region += p->param[i].n_region;
	}
	if (n_op > WB_OPS_MAX || n_region > WB_OPS_MAX)
		return -E2BIG;
	map->param = wb_zalloc(n, sizeof(*map->param));
	map->op = wb_zalloc(n_op, sizeof(*map->op));
	map->region = wb_zalloc(n_region, sizeof(*map->region));
	if (!map->param || !map->op || !map->region)
		return -ENOMEM;
	map->n_param = n;
	for (uint32_t i = 0; i < p->n_param && !rc; i++)
		if (p->param[i].out != WB__NOT_OUT)
			rc = gather_param(&p->param[i], map);
	return rc;
}

/* Number aliases and owners as the map does.  Owners are parameters, which are all in the map. */
static void take_aliases(const struct wb_probe *p, struct wb_alias *alias)
{
	for (uint32_t i = 0; i < p->n_param; i++) {
		const struct wb__param *a = &p->param[i];

		if (a->out == WB__NOT_OUT)
			continue;
		alias[a->out] = a->alias;
		if (a->alias.owner != WB_ALIAS_NONE)
			alias[a->out].owner = p->param[a->alias.owner].out;
	}
}

static int make_srcmap(
	const struct wb_probe *p, uint32_t n, struct wb_srcmap **out, struct wb_err *err)
{
	struct wb_alias *alias = wb_zalloc(n, sizeof(*alias));
	struct wb_manifest *manifest = NULL;
	struct wb_map arrays = {0}, *map = NULL;
	int rc = alias ? gather(p, n, &arrays) : -ENOMEM;

	if (rc < 0)
		wb_err_set(err, rc, "source map");
	else
		rc = wb_map_create(p->manifest, &arrays, &map, err);
	if (!rc) {
		arrays = (struct wb_map){0};
		rc = wb_manifest_create(p->manifest->tensor, p->manifest->n, &manifest, err);
	}
	if (!rc) {
		take_aliases(p, alias);
		rc = wb_srcmap_create(manifest, map, alias, out);
		if (rc < 0)
			wb_err_set(err, rc, "source map");
	}
	if (rc < 0) {
		drop_arrays(&arrays);
		wb_map_destroy(map);
		wb_manifest_destroy(manifest);
		wb_free(alias);
	}
	return rc;
}

/* Refuse a loader that copies nothing: it is of another model, or writes other memory than was
 * named, and by its map nothing would ever move.  A shard without elements may have no copies. */
static int check_copies(const struct wb_probe *p, struct wb_err *err)
{
	const char *first = NULL;
	uint32_t n = 0;
	uint64_t total = 0;

	for (uint32_t i = 0; i < p->n_param; i++) {
		const struct wb__param *a = &p->param[i];

		if (a->role != WB_PROBE_PARAM)
			continue;
		if (a->n_op)
			return 0;
		n++;
		if (!first && a->geom.total)
			first = a->name;
		total += a->alias.owner == WB_ALIAS_NONE ? a->geom.total : 0;
	}
	if (!first)
		return 0;
	return wb_err_set(err, -EINVAL,
		"load_weights copies nothing of the checkpoint: called %" PRIu32
		" times with %" PRIu32 " tensors (the first %.200s), it made none of the %" PRIu64
		" elements of %" PRIu32
		" parameters (the first %.200s) depend on them: does it load tensors of this "
		"manifest, and into these parameters?",
		p->stats.n_pass, p->manifest->n, p->manifest->n ? p->manifest->tensor[0].name : "-",
		total, n, first);
}

int wb_probe_finish(struct wb_probe *p, struct wb_srcmap **out, struct wb_err *err)
{
	uint64_t t0 = wb_now_ns(&wb_clock_real);
	struct wb_srcmap *s;
	uint32_t n, n_out;
	int rc;

	if (!p->is_done)
		return wb_err_set(err, -EINVAL, "passes are left");
	if (p->is_restored)
		return wb_err_set(err, -EINVAL, "finished before");
	(void)wb__dev_settle(p); /* a failure is noticed when the parameters are put back */
	n_out = wb__outside_settle(p);
	rc = wb__restore(p);
	p->is_restored = true;
	if (rc < 0)
		return wb_err_set(err, rc,
			"parameters on a GPU could not be put back as they were: %.300s",
			p->dev_err.msg);
	n = wb__faults_text(p);
	if (n)
		return wb_err_set(err, WB_ENOTCOPY,
			"load_weights does what is not a copy for %" PRIu32 " parameter%s: %s", n,
			n == 1 ? "" : "s", wb_buf_cstr(&p->fault));
	rc = check_copies(p, err);
	if (rc == 0)
		rc = make_srcmap(p, n_out, &s, err);
	if (rc < 0)
		return rc;
	p->stats.host_ns += wb_now_ns(&wb_clock_real) - t0;
	p->stats.from_cache = p->is_cached;
	p->stats.dev_out_bytes = wb__dev_out_bytes(p);
	s->stats = p->stats;
	if (p->cache_dir && !p->is_cached)
		wb__cache_store(p, s);
	*out = s;
	return 0;
}

const char *wb_probe_faults(struct wb_probe *p)
{
	wb__faults_text(p);
	return wb_buf_cstr(&p->fault);
}

const char *wb_probe_notes(struct wb_probe *p)
{
	return wb_buf_cstr(&p->note);
}
