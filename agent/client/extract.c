/* SPDX-License-Identifier: Apache-2.0 */
#include "weightbridge/extract.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "extract/probe.h"
#include "extract/srcmap.h"

#include <errno.h>
#include <string.h>

/* The public face of extraction: the same calls with C strings and public errors. */

#define BLOB_MAX (SIZE_MAX / 4)

_Static_assert(WB_EXTRACT_NDIM == WB_NDIM_MAX, "dimensions of the public structs");
_Static_assert((int)WB_EXTRACT_FILL_ONE == (int)WB_FILL_ONE, "kinds of fill");
_Static_assert((int)WB_EXTRACT_WITNESS == (int)WB_PROBE_WITNESS, "roles");
_Static_assert((int)WB_CODE_NOT_COPY == (int)WB_ENOTCOPY, "codes");

struct wb_extract {
	struct wb_probe *probe; /* owned */
	struct wb_probe_param *param; /* owned; room for the parameters of a call */
	uint32_t n;
};

struct wb_sourcemap {
	struct wb_srcmap *s; /* owned */
};

static int give(int rc, const struct wb_err *from, struct wb_error *to)
{
	size_t n = strnlen(from->msg, sizeof(from->msg) - 1);

	if (rc >= 0 || !to)
		return rc;
	to->code = rc;
	n = WB_MIN(n, sizeof(to->msg) - 1);
	memcpy(to->msg, from->msg, n);
	to->msg[n] = '\0';
	return rc;
}

static int give_text(int rc, struct wb_error *to, const char *text)
{
	struct wb_err err = {0};

	return give(wb_err_set(&err, rc, "%s", text), &err, to);
}

/* The buffer's bytes and a NUL after them, when @rc says that it was filled. */
static int take_blob(int rc, struct wb_buf *b, struct wb_extract_blob *out)
{
	uint8_t *data;
	size_t bytes;

	if (rc < 0) {
		wb_buf_finish(b);
		return rc;
	}
	wb_buf_u8(b, 0);
	rc = wb_buf_take(b, &data, &bytes);
	if (rc < 0)
		return rc;
	*out = (struct wb_extract_blob){data, bytes - 1};
	return 0;
}

void wb_extract_free(void *data)
{
	wb_free(data);
}

/* ---- manifest ---- */

int wb_manifest_open(const struct wb_extract_tensor *tensor, uint32_t n, struct wb_manifest **out,
	struct wb_error *error)
{
	struct wb_tensor *t = wb_zalloc(n, sizeof(*t));
	struct wb_err err = {0};
	int rc = 0;

	if (!t)
		return give_text(-ENOMEM, error, "manifest");
	for (uint32_t i = 0; i < n && !rc; i++) {
		const struct wb_extract_tensor *k = &tensor[i];

		/* wb_manifest_create() copies the names. */
		memcpy(&t[i].name, &k->name, sizeof(t[i].name));
		t[i].dtype = k->dtype ? wb_dtype_parse(k->dtype) : WB_DT_NONE;
		t[i].ndim = k->ndim;
		memcpy(t[i].shape, k->shape, sizeof(t[i].shape));
		if (!wb_dtype_bytes(t[i].dtype))
			rc = wb_err_set(&err, -EINVAL, "tensor %s: type %s is not supported",
				k->name ? k->name : "without a name", k->dtype ? k->dtype : "none");
		else if (k->ndim > WB_NDIM_MAX)
			rc = wb_err_set(&err, -EINVAL, "tensor %s has more than %d dimensions",
				k->name ? k->name : "without a name", WB_NDIM_MAX);
	}
	if (!rc)
		rc = wb_manifest_create(t, n, out, &err);
	wb_free(t);
	return give(rc, &err, error);
}

void wb_manifest_close(struct wb_manifest *m)
{
	wb_manifest_destroy(m);
}

void wb_manifest_digest(const struct wb_manifest *m, char *text)
{
	wb_digest_text(m->digest, text);
}

int wb_manifest_blob(const struct wb_manifest *m, struct wb_extract_blob *out)
{
	struct wb_buf b = {.max = BLOB_MAX};

	return take_blob(wb_manifest_encode(m, &b), &b, out);
}

/* ---- probing ---- */

static int take_params(const struct wb_extract_param *from, uint32_t n, struct wb_probe_param *to,
	struct wb_err *err)
{
	for (uint32_t i = 0; i < n; i++) {
		to[i].name = from[i].name;
		to[i].dtype = from[i].dtype ? wb_dtype_parse(from[i].dtype) : WB_DT_NONE;
		to[i].ndim = from[i].ndim;
		memcpy(to[i].shape, from[i].shape, sizeof(to[i].shape));
		memcpy(to[i].stride, from[i].stride, sizeof(to[i].stride));
		to[i].data = from[i].data;
		if (!wb_dtype_bytes(to[i].dtype))
			return wb_err_set(err, -EINVAL, "parameter %s: type %s is not supported",
				from[i].name ? from[i].name : "without a name",
				from[i].dtype ? from[i].dtype : "none");
	}
	return 0;
}

int wb_extract_open(const struct wb_manifest *m, const struct wb_extract_param *param, uint32_t n,
	const struct wb_extract_opts *opts, struct wb_extract **out, struct wb_error *error)
{
	struct wb_extract_opts given = {0};
	struct wb_probe_opts o = {0};
	struct wb_err err = {0};
	struct wb_extract *x;
	int rc;

	if (opts) {
		/* A caller built with an older header has fewer fields, a newer one more. */
		memcpy(&given, opts, WB_MIN(opts->size, sizeof(given)));
		o.threads = given.threads;
		o.n_hash = given.n_hash;
		o.record_max = given.record_max;
		o.seed = given.seed;
		o.keep_no_snapshot = given.reload != 0;
		o.cache_dir = given.cache_dir;
		o.cache_key = given.cache_key;
		o.agree = given.agree;
		o.agree_cookie = given.cookie;
		o.has_devices = given.devices != 0;
	}
	x = wb_zalloc(1, sizeof(*x));
	if (x)
		x->param = wb_zalloc(n, sizeof(*x->param));
	if (!x || !x->param) {
		wb_extract_close(x);
		return give_text(-ENOMEM, error, "parameters");
	}
	x->n = n;
	rc = take_params(param, n, x->param, &err);
	for (uint32_t i = 0; i < n && given.role; i++)
		x->param[i].role = (enum wb_probe_role)given.role[i];
	if (!rc)
		rc = wb_probe_create(m, x->param, n, &o, &x->probe, &err);
	if (rc < 0) {
		wb_extract_close(x);
		return give(rc, &err, error);
	}
	*out = x;
	return 0;
}

void wb_extract_close(struct wb_extract *x)
{
	if (!x)
		return;
	wb_probe_destroy(x->probe);
	wb_free(x->param);
	wb_free(x);
}

int wb_extract_next_pass(struct wb_extract *x, struct wb_extract_pass *pass, struct wb_error *error)
{
	struct wb_err err = {0};
	struct wb_pass p;
	int rc = wb_probe_next_pass(x->probe, &p, &err);

	if (rc == 1) {
		pass->kind = (uint32_t)p.kind;
		pass->index = p.index;
		pass->n_expected = p.n_expected;
		pass->digit = p.digit;
		_Static_assert(sizeof(pass->name) == sizeof(p.name), "names of passes");
		memcpy(pass->name, p.name, sizeof(pass->name));
	}
	return give(rc, &err, error);
}

int wb_extract_fill_kind(const struct wb_extract *x, uint32_t tensor)
{
	return (int)wb_probe_fill_kind(x->probe, tensor);
}

int wb_extract_fill(
	const struct wb_extract *x, uint32_t tensor, int expand, void *out, size_t bytes)
{
	return wb_probe_fill(x->probe, tensor, expand != 0, out, bytes);
}

int wb_extract_end_pass(struct wb_extract *x, const struct wb_extract_param *param, uint32_t n,
	struct wb_error *error)
{
	struct wb_err err = {0};
	int rc;

	if (param && n != x->n)
		return give_text(-EINVAL, error, "another number of parameters than at open");
	rc = param ? take_params(param, n, x->param, &err) : 0;
	if (!rc)
		rc = wb_probe_end_pass(x->probe, param ? x->param : NULL, n, &err);
	return give(rc, &err, error);
}

void wb_extract_gone(struct wb_extract *x, uint32_t i, const void *data)
{
	if (i < x->n)
		wb_probe_gone(x->probe, i, data);
}

static int wrap(struct wb_srcmap *s, struct wb_sourcemap **out)
{
	struct wb_sourcemap *w = wb_zalloc(1, sizeof(*w));

	if (!w) {
		wb_srcmap_destroy(s);
		return -ENOMEM;
	}
	w->s = s;
	*out = w;
	return 0;
}

int wb_extract_finish(struct wb_extract *x, struct wb_sourcemap **out, struct wb_error *error)
{
	struct wb_err err = {0};
	struct wb_srcmap *s;
	int rc = wb_probe_finish(x->probe, &s, &err);

	return rc < 0 ? give(rc, &err, error) : wrap(s, out);
}

const char *wb_extract_outside(struct wb_extract *x)
{
	return wb_probe_outside(x->probe);
}

const char *wb_extract_faults(struct wb_extract *x)
{
	return wb_probe_faults(x->probe);
}

const char *wb_extract_notes(struct wb_extract *x)
{
	return wb_probe_notes(x->probe);
}

/* ---- source map ---- */

void wb_sourcemap_close(struct wb_sourcemap *w)
{
	if (!w)
		return;
	wb_srcmap_destroy(w->s);
	wb_free(w);
}

void wb_sourcemap_digest(const struct wb_sourcemap *w, char *text)
{
	wb_digest_text(w->s->map->digest, text);
}

int wb_sourcemap_manifest_blob(const struct wb_sourcemap *w, struct wb_extract_blob *out)
{
	return wb_manifest_blob(w->s->manifest, out);
}

int wb_sourcemap_map_blob(const struct wb_sourcemap *w, struct wb_extract_blob *out)
{
	struct wb_buf b = {.max = BLOB_MAX};

	return take_blob(wb_map_encode(w->s->map, &b), &b, out);
}

int wb_sourcemap_blob(const struct wb_sourcemap *w, struct wb_extract_blob *out)
{
	struct wb_buf b = {.max = BLOB_MAX};

	return take_blob(wb_srcmap_encode(w->s, &b), &b, out);
}

int wb_sourcemap_read(
	const void *data, size_t bytes, struct wb_sourcemap **out, struct wb_error *error)
{
	struct wb_err err = {0};
	struct wb_srcmap *s;
	int rc = wb_srcmap_decode(data, bytes, &s, &err);

	return rc < 0 ? give(rc, &err, error) : wrap(s, out);
}

int wb_sourcemap_json(const struct wb_sourcemap *w, struct wb_extract_blob *out)
{
	struct wb_buf b = {.max = BLOB_MAX};

	return take_blob(wb_map_json(w->s->manifest, w->s->map, &b), &b, out);
}

int wb_sourcemap_report(const struct wb_sourcemap *w, struct wb_extract_blob *out)
{
	struct wb_buf b = {.max = BLOB_MAX};

	return take_blob(wb_srcmap_report(w->s, &b), &b, out);
}

int wb_sourcemap_gaps(const struct wb_sourcemap *w, uint32_t shown_max, struct wb_extract_blob *out)
{
	struct wb_buf b = {.max = BLOB_MAX};

	return take_blob(wb_srcmap_gaps(w->s, shown_max, &b), &b, out);
}

uint32_t wb_sourcemap_n_tensor(const struct wb_sourcemap *w)
{
	return w->s->manifest->n;
}

int wb_sourcemap_tensor(const struct wb_sourcemap *w, uint32_t i, struct wb_extract_tensor *out)
{
	const struct wb_tensor *t;

	if (i >= w->s->manifest->n)
		return -ENOENT;
	t = &w->s->manifest->tensor[i];
	*out = (struct wb_extract_tensor){
		.name = t->name, .dtype = wb_dtype_name(t->dtype), .ndim = t->ndim};
	memcpy(out->shape, t->shape, sizeof(out->shape));
	return 0;
}

uint32_t wb_sourcemap_n_param(const struct wb_sourcemap *w)
{
	return w->s->map->n_param;
}

/* Regions are sorted by parameter. */
static uint32_t first_region(const struct wb_map *map, uint32_t param)
{
	uint32_t lo = 0, hi = map->n_region;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (map->region[mid].param < param)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int wb_sourcemap_param(const struct wb_sourcemap *w, uint32_t i, struct wb_sourcemap_param *out)
{
	const struct wb_map *map = w->s->map;
	const struct wb_param *p;
	int64_t nests;

	if (i >= map->n_param)
		return -ENOENT;
	nests = wb_srcmap_nests(w->s, i);
	if (nests < 0)
		return (int)nests;
	p = &map->param[i];
	*out = (struct wb_sourcemap_param){
		.name = p->name,
		.dtype = wb_dtype_name(p->dtype),
		.ndim = p->ndim,
		.span = p->span,
		.n_op = w->s->op_first[i + 1] - w->s->op_first[i],
		.n_nest = (uint32_t)nests,
		.owner = -1,
	};
	memcpy(out->shape, p->shape, sizeof(out->shape));
	memcpy(out->stride, p->stride, sizeof(out->stride));
	if (w->s->alias[i].owner != WB_ALIAS_NONE) {
		out->owner = w->s->alias[i].owner;
		out->owner_offset = w->s->alias[i].offset;
	}
	for (uint32_t k = first_region(map, i); k < map->n_region && map->region[k].param == i;
		k++) {
		out->n_constant += map->region[k].kind == WB_REGION_CONSTANT;
		out->n_unwritten += map->region[k].kind == WB_REGION_UNWRITTEN;
	}
	return 0;
}

void wb_sourcemap_constants(const struct wb_sourcemap *w, void *const *param)
{
	wb_srcmap_constants(w->s, param);
}

int wb_sourcemap_write_constants(
	const struct wb_sourcemap *w, void *const *param, struct wb_error *error)
{
	struct wb_err err = {0};

	return give(wb_srcmap_write_constants(w->s, param, &err), &err, error);
}

int wb_sourcemap_apply(const struct wb_sourcemap *w, const void *const *tensor, void *const *param,
	struct wb_error *error)
{
	struct wb_err err = {0};

	return give(wb_srcmap_apply(w->s, tensor, param, &err), &err, error);
}
