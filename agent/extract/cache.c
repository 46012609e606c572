/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "extract/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Keeps maps on disk.  The name of a file is a digest of what its map depends on: manifest,
 * parameter table, the caller's key.  A file is magic, version, name (two u64), digest of the
 * payload (two u64), u64 length, payload (an encoded source map).  Its map is only ever a guess:
 * the hash pass proves it against load_weights.
 */
#define MAGIC 0x434d4257u /* "WBMC" */
#define VERSION 1
#define FILE_MAX (UINT64_C(1) << 30)

/* What a map in the cache is valid for: a digest of the manifest, the caller's key and the
 * parameters; 0 when memory is short. */
static struct wb_digest cache_name(const struct wb_probe *p)
{
	struct wb_digest d = {0, 0};
	struct wb_buf b;

	wb_buf_init(&b, FILE_MAX);
	wb_buf_u32(&b, VERSION);
	wb_buf_u64(&b, p->manifest->digest.hi);
	wb_buf_u64(&b, p->manifest->digest.lo);
	wb_buf_str(&b, p->cache_key);
	for (uint32_t i = 0; i < p->n_param; i++) {
		const struct wb__param *a = &p->param[i];

		wb_buf_str(&b, a->name);
		wb_buf_u32(&b, a->role);
		wb_buf_u32(&b, a->dtype);
		wb_buf_u32(&b, a->ndim);
		for (uint32_t k = 0; k < a->ndim; k++) {
			wb_buf_u64(&b, a->shape[k]);
			wb_buf_u64(&b, (uint64_t)a->stride[k]);
		}
		wb_buf_u32(&b, a->alias.owner);
		wb_buf_u64(&b, a->alias.offset);
	}
	if (!b.rc)
		d = wb_digest_of(b.data, b.len);
	wb_buf_finish(&b);
	return d;
}

const uint8_t *wb__cache_check(const void *file, size_t bytes, struct wb_digest name,
	size_t *payload_bytes, const char **why)
{
	struct wb_cursor c = wb_cursor(file, bytes);
	struct wb_digest is, sum;
	const uint8_t *payload;
	uint64_t n;

	if (wb_cur_u32(&c) != MAGIC || wb_cur_u32(&c) != VERSION) {
		*why = "it is no map cache of this version";
		return NULL;
	}
	is.hi = wb_cur_u64(&c);
	is.lo = wb_cur_u64(&c);
	sum.hi = wb_cur_u64(&c);
	sum.lo = wb_cur_u64(&c);
	n = wb_cur_u64(&c);
	if (c.bad || n != wb_cur_left(&c)) {
		*why = "it is cut off or too long";
		return NULL;
	}
	payload = wb_cur_bytes(&c, (size_t)n);
	if (!wb_digest_eq(is, name)) {
		*why = "it belongs to other parameters";
		return NULL;
	}
	if (!wb_digest_eq(wb_digest_of(payload, (size_t)n), sum)) {
		*why = "its content is damaged";
		return NULL;
	}
	*payload_bytes = (size_t)n;
	return payload;
}

static int path_of(
	const struct wb_probe *p, struct wb_digest name, const char *end, char *path, size_t bytes)
{
	int n = snprintf(path, bytes, "%s/%016" PRIx64 "%016" PRIx64 "%s", p->cache_dir, name.hi,
		name.lo, end);

	return n < 0 || (size_t)n >= bytes ? -ENAMETOOLONG : 0;
}

/* Is no element of the parameter written?  Then the passes do not touch it. */
static bool is_left(const struct wb__param *a)
{
	for (size_t i = 0; i < a->n_region; i++)
		if (a->region[i].kind != WB_REGION_UNWRITTEN)
			return false;
	return !a->n_op;
}

/* Take the ops and regions of @map.  @to: the probe's numbers of the map's parameters, as
 * match_table() gives them. */
static int take_map(struct wb_probe *p, const struct wb_map *map, const uint32_t *to)
{
	for (uint32_t i = 0; i < map->n_op; i++) {
		struct wb__param *a = &p->param[to[map->op[i].param]];

		if (wb_grow(&a->op, &a->op_cap, a->n_op + 1, WB_OPS_MAX, sizeof(*a->op)) < 0)
			return -ENOMEM;
		a->op[a->n_op] = map->op[i];
		a->op[a->n_op++].param = to[map->op[i].param];
	}
	for (uint32_t i = 0; i < map->n_region; i++) {
		struct wb__param *a = &p->param[to[map->region[i].param]];

		if (a->state == WB__ALIAS)
			continue; /* it got its region when it was found to be an alias */
		if (wb_grow(&a->region, &a->region_cap, a->n_region + 1, WB_OPS_MAX,
			    sizeof(*a->region)) < 0)
			return -ENOMEM;
		a->region[a->n_region] = map->region[i];
		a->region[a->n_region++].param = to[map->region[i].param];
		a->needs_snapshot = true; /* the check of a region overwrites it with a sentinel */
	}
	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];

		if (a->state != WB__ACTIVE || !is_left(a))
			continue;
		a->state = a->role == WB_PROBE_PARAM ? WB__LEFT : WB__ASIDE;
		a->needs_snapshot = a->role != WB_PROBE_PARAM;
	}
	return 0;
}

/* The name of the file depends on all of this, too; a second check costs nothing. */
static bool is_same(const struct wb_probe *p, uint32_t i, const struct wb_srcmap *s, uint32_t k)
{
	return !strcmp(s->map->param[k].name, p->param[i].name) &&
	       s->map->param[k].dtype == p->param[i].dtype &&
	       s->map->param[k].span == p->param[i].geom.span;
}

/* Find the probe's numbers of the map's parameters, for @to.  Both are in the same order; the map
 * has all of the probe's that are parameters, and some of the others.  false: the map belongs to
 * other parameters. */
static bool match_table(const struct wb_probe *p, const struct wb_srcmap *s, uint32_t *to)
{
	uint32_t n = s->map->n_param, k = 0;
	bool is_ok = wb_digest_eq(s->manifest->digest, p->manifest->digest);

	for (uint32_t i = 0; i < p->n_param && is_ok; i++)
		if (k < n && is_same(p, i, s, k) && p->param[i].state != WB__OUT)
			to[k++] = i;
		else
			is_ok = p->param[i].role != WB_PROBE_PARAM;
	is_ok = is_ok && k == n;
	for (k = 0; k < n && is_ok; k++) {
		uint32_t owner = s->alias[k].owner;

		is_ok = p->param[to[k]].alias.owner ==
			(owner == WB_ALIAS_NONE ? WB_ALIAS_NONE : to[owner]);
	}
	return is_ok;
}

/* Take the map over.  Returns why it cannot be used, or NULL. */
static const char *use(struct wb_probe *p, const struct wb_srcmap *s)
{
	uint32_t *to = wb_zalloc(s->map->n_param, sizeof(*to));
	const char *why = NULL;

	if (!to)
		why = "no memory";
	else if (!match_table(p, s, to))
		why = "it belongs to other parameters";
	else if (take_map(p, s->map, to) < 0)
		why = "no memory";
	wb_free(to);
	return why;
}

void wb__cache_forget(struct wb_probe *p)
{
	p->is_cached = false;
	for (uint32_t i = 0; i < p->n_param; i++) {
		p->param[i].n_op = 0;
		p->param[i].needs_snapshot = false;
		if (p->param[i].state != WB__ALIAS)
			p->param[i].n_region = 0;
		if (p->param[i].geom.total &&
			(p->param[i].state == WB__LEFT || p->param[i].state == WB__ASIDE))
			p->param[i].state = WB__ACTIVE;
	}
}

void wb__cache_load(struct wb_probe *p)
{
	struct wb_digest name = cache_name(p);
	struct wb_srcmap *s = NULL;
	const char *why = "";
	struct wb_err err = {0};
	const uint8_t *payload;
	char path[4096];
	uint8_t *data = NULL;
	size_t bytes = 0, n = 0;
	int rc = path_of(p, name, ".map", path, sizeof(path));

	if (!rc)
		rc = wb_file_read(path, FILE_MAX, &data, &bytes);
	if (rc < 0) {
		if (rc != -ENOENT)
			wb__note(p, "map cache %s not read: %s", path, strerror(-rc));
		return;
	}
	payload = wb__cache_check(data, bytes, name, &n, &why);
	rc = payload ? wb_srcmap_decode(payload, n, &s, &err) : 0;
	if (rc < 0)
		why = rc == -ENOMEM ? "no memory" : err.msg;
	else if (s)
		why = use(p, s);
	p->is_cached = s && !why;
	if (!p->is_cached) {
		wb__cache_forget(p);
		wb__note(p, "map cache %s ignored: %s", path, why);
	}
	wb_srcmap_destroy(s);
	wb_free(data);
}

static int make_dirs(const char *dir)
{
	char path[4096];
	size_t n = strlen(dir);

	if (!n || n >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, dir, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i])
			continue;
		path[i] = '\0';
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return -errno;
		path[i] = i < n ? '/' : '\0';
	}
	return 0;
}

static int write_all(int fd, const uint8_t *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, data, bytes);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			data += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

/* Write a file beside its place and rename it, so that there is a whole file of its name, or
 * none. */
static int write_file(const struct wb_probe *p, struct wb_digest name, const struct wb_buf *b)
{
	char path[4096], beside[4096];
	int fd, rc = path_of(p, name, ".map", path, sizeof(path));

	if (!rc)
		rc = path_of(p, name, ".XXXXXX", beside, sizeof(beside));
	if (!rc)
		rc = make_dirs(p->cache_dir);
	if (rc < 0)
		return rc;
	fd = mkostemp(beside, O_CLOEXEC); /* mode 0600 */
	if (fd < 0)
		return -errno;
	rc = write_all(fd, b->data, b->len);
	if (close(fd) < 0 && !rc)
		rc = -errno;
	if (!rc && rename(beside, path) < 0)
		rc = -errno;
	if (rc < 0)
		unlink(beside);
	return rc;
}

void wb__cache_store(struct wb_probe *p, const struct wb_srcmap *s)
{
	struct wb_digest name = cache_name(p), sum;
	size_t begin, at;
	struct wb_buf b;
	int rc;

	/* The map does not hold the values of merged constants, so one pass could not prove it. */
	for (uint32_t i = 0; i < p->n_param; i++) {
		if (!p->param[i].is_merged)
			continue;
		wb__note(p, "map not kept in %s: parameter %s has more than %d ranges of constants",
			p->cache_dir, p->param[i].name, WB__CONSTANT_REGIONS_MAX);
		return;
	}
	wb_buf_init(&b, FILE_MAX);
	wb_buf_u32(&b, MAGIC);
	wb_buf_u32(&b, VERSION);
	wb_buf_u64(&b, name.hi);
	wb_buf_u64(&b, name.lo);
	at = b.len;
	for (int i = 0; i < 3; i++)
		wb_buf_u64(&b, 0);
	begin = b.len;
	rc = wb_srcmap_encode(s, &b);
	if (!rc) {
		sum = wb_digest_of(b.data + begin, b.len - begin);
		wb_buf_set_u64(&b, at, sum.hi);
		wb_buf_set_u64(&b, at + 8, sum.lo);
		wb_buf_set_u64(&b, at + 16, b.len - begin);
		rc = write_file(p, name, &b);
	}
	if (rc < 0)
		wb__note(p, "map not kept in %s: %s", p->cache_dir, strerror(-rc));
	wb_buf_finish(&b);
}
