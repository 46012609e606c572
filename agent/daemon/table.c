/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/table.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/content.h"

#include <errno.h>

#define MEM_ROW_BYTES 24
#define PARAM_ROW_BYTES 16

/* The table as it is read. */
struct reader {
	const struct wb__table_in *in;
	const struct wb_map *map;
	struct wb__table *t;
	struct wb_cursor c;
	uint32_t at; /* descriptors taken */
	uint64_t bytes; /* of the objects so far */
};

static int import_mem(struct reader *r, uint32_t i, struct wb_err *err)
{
	struct wb_mem_desc d = {.fd = -1};
	int rc;

	assert(i < r->t->n_mem);
	d.kind = (enum wb_mem_kind)wb_cur_u32(&r->c);
	(void)wb_cur_u32(&r->c); /* a device's number there, which says nothing here */
	d.bytes = wb_cur_u64(&r->c);
	(void)wb_cur_u64(&r->c); /* its address in the worker: only the worker's lane needs it */
	if (!d.bytes || d.bytes > WB__TABLE_BYTES_MAX - r->bytes)
		return wb_err_set(err, -EINVAL,
			"memory object %u of %llu bytes, after %llu of those before it: at most "
			"%llu are taken",
			i, (unsigned long long)d.bytes, (unsigned long long)r->bytes,
			WB__TABLE_BYTES_MAX);
	r->bytes += d.bytes;
	/* Other kinds need more than a row of this table says; memory of a device needs even its
	 * driver. */
	if (d.kind != WB_MEM_MEMFD && d.kind != WB_MEM_HEAP)
		return wb_err_set(err, -EINVAL,
			"memory object %u: unknown kind %u: a table has memfds and memory that "
			"only the worker can touch",
			i, (unsigned)d.kind);
	if (d.kind == WB_MEM_MEMFD) {
		if (r->at == r->in->n_fd)
			return wb_err_set(err, -EINVAL,
				"memory object %u is a memfd, but no descriptor came for it", i);
		d.fd = r->in->fds[r->at++];
	}
	rc = wb_mem_import(&d, &r->t->mem[i], err);
	if (rc < 0)
		return wb_err_wrap(err, rc, "memory object %u", i);
	if (r->t->mem[i].access == WB_MEM_AT_HOST)
		r->t->base[i] = r->t->mem[i].addr;
	r->t->has_heap |= r->t->mem[i].access != WB_MEM_AT_HOST;
	return 0;
}

static int read_place(
	struct reader *r, const struct wb_param *p, struct wb_place *at, struct wb_err *err)
{
	size_t elem = wb_dtype_bytes(p->dtype);
	uint64_t bytes, end;

	at->mem = wb_cur_u32(&r->c);
	(void)wb_cur_u32(&r->c);
	at->off_bytes = wb_cur_u64(&r->c);
	if (at->mem >= r->t->n_mem)
		return wb_err_set(err, -EINVAL, "parameter %s lies in memory object %u of %u",
			p->name, at->mem, r->t->n_mem);
	if (!wb_mul_u64(p->span, elem, &bytes) || !wb_add_u64(at->off_bytes, bytes, &end) ||
		end > r->t->mem[at->mem].bytes)
		return wb_err_set(err, -EINVAL,
			"parameter %s of %llu elements at byte %llu reaches beyond its memory "
			"object of %llu bytes",
			p->name, (unsigned long long)p->span, (unsigned long long)at->off_bytes,
			(unsigned long long)r->t->mem[at->mem].bytes);
	if (at->off_bytes % elem)
		return wb_err_set(err, -EINVAL, "parameter %s is not aligned to its %zu bytes",
			p->name, elem);
	return 0;
}

static int check_sizes(const struct wb__table_in *in, const struct wb_map *map, struct wb_err *err)
{
	if (!in->n_mem || in->n_mem > WB_PARAMS_MAX || !in->n_fd ||
		in->bytes != (uint64_t)in->n_mem * MEM_ROW_BYTES +
				     (uint64_t)in->n_param * PARAM_ROW_BYTES)
		return wb_err_set(err, -EINVAL,
			"the table of %u memory objects and %u parameters has %llu bytes",
			in->n_mem, in->n_param, (unsigned long long)in->bytes);
	if (in->n_param != map->n_param)
		return wb_err_set(err, -EINVAL, "the table has %u parameters, the source map %u",
			in->n_param, map->n_param);
	return 0;
}

static int make_room(const struct wb__table_in *in, struct wb__table *t, struct wb_err *err)
{
	t->mem = wb_zalloc(in->n_mem, sizeof(*t->mem));
	t->base = wb_zalloc(in->n_mem, sizeof(*t->base));
	t->region = wb_zalloc(in->n_mem, sizeof(*t->region));
	t->place = wb_zalloc(in->n_param, sizeof(*t->place));
	if (!t->mem || !t->base || !t->region || !t->place)
		return wb_err_set(err, -ENOMEM, "no memory for %u parameters", in->n_param);
	for (uint32_t i = 0; i < in->n_mem; i++) {
		t->mem[i].fd = -1;
		t->region[i] = WB__REGION_NONE;
	}
	t->n_mem = in->n_mem;
	return 0;
}

int wb__table_read(const struct wb__table_in *in, const struct wb_map *map, struct wb__table *out,
	struct wb_err *err)
{
	struct reader r = {.in = in, .map = map, .t = out, .at = 1};
	uint8_t *table = NULL;
	int rc = check_sizes(in, map, err);

	*out = (struct wb__table){0};
	if (rc == 0)
		rc = make_room(in, out, err);
	if (rc == 0)
		rc = wb__read_memfd(
			"table of parameters", in->fds[0], in->bytes, in->bytes, &table, err);
	if (rc < 0)
		return rc;
	/* The sizes fit each other, so the cursor does not run out. */
	r.c = wb_cursor(table, in->bytes);
	for (uint32_t i = 0; rc == 0 && i < in->n_mem; i++)
		rc = import_mem(&r, i, err);
	for (uint32_t i = 0; rc == 0 && i < map->n_param; i++)
		rc = read_place(&r, &map->param[i], &out->place[i], err);
	assert(!r.c.bad && r.at <= in->n_fd);
	if (rc == 0 && r.at != in->n_fd)
		rc = wb_err_set(err, -EINVAL, "attach came with %u descriptors more than its table",
			in->n_fd - r.at);
	wb_free(table);
	return rc;
}

void wb__table_release(struct wb__table *t)
{
	assert(!t->n_mem || (t->mem && t->base));
	for (uint32_t i = 0; i < t->n_mem; i++) {
		uint64_t bytes = t->mem[i].bytes;

		wb_mem_release(&t->mem[i]);
		t->mem[i].bytes = bytes;
		t->base[i] = NULL;
	}
}

void wb__table_finish(struct wb__table *t)
{
	wb__table_release(t);
	wb_free(t->mem);
	wb_free(t->base);
	wb_free(t->region);
	wb_free(t->place);
	*t = (struct wb__table){0};
}
