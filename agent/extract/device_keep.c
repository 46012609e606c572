/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the content of parameters on devices, and puts it back. */
#include "base/base.h"
#include "base/mem.h"
#include "extract/table.h"

#include <errno.h>
#include <string.h>

/* ---- snapshots ------------------------------------------------------------------------------- */

/* How many bytes snapshots may take on the device.  The loader needs memory there, too, so some of
 * it stays free. */
static uint64_t most_for_snapshots(struct wb__dev *d)
{
	size_t is = 0, all = 0;

	if (d->gpu->cu->mem_info(&is, &all))
		return 0;
	return is > all / 16 ? is - all / 16 : 0;
}

/* Choose the store of each snapshot, and where it begins in that store. */
static void divide(struct wb__dev *d, uint64_t most, uint64_t bytes[2])
{
	bytes[0] = bytes[1] = 0;
	for_on_device (d, a) {
		uint64_t n = wb__room(wb__dense_bytes(a));
		int to;

		if (!wb__is_kept(d->p, a))
			continue;
		to = bytes[0] + n > most;
		a->kept.store = (uint8_t)to;
		a->kept.before = bytes[to];
		bytes[to] += n;
	}
}

static int get_stores(struct wb__dev *d)
{
	uint64_t bytes[2];
	int rc = 0;

	divide(d, most_for_snapshots(d), bytes);
	if (bytes[0])
		rc = wb__store_get(d, bytes[0], true, &d->before[0]);
	if (!rc && bytes[1])
		rc = wb__store_get_host(d, bytes[1], &d->before[1]);
	for_on_device (d, a)
		a->kept.before = !rc && wb__is_kept(d->p, a)
					 ? a->kept.before + d->before[a->kept.store].addr
					 : 0;
	return rc;
}

static int snapshot(struct wb__dev *d, void *ctx)
{
	struct wb__moves m = {.d = d, .way = WBK_WAY_PACK};
	int rc = get_stores(d);

	(void)ctx;
	for (uint32_t i = 0; i < 2; i++)
		for_on_device (d, a)
			if (!rc && a->kept.before && a->kept.store == i)
				rc = wb__moves_add(&m, a, a->data, a->kept.before, &d->before[i]);
	if (!rc)
		rc = wb__moves_flush(&m);
	for_on_device (d, a)
		a->has_snapshot = !rc && a->kept.before;
	return rc;
}

int wb__dev_snapshot(struct wb_probe *p)
{
	return wb__dev_each(p, snapshot, NULL);
}

/* ---- putting back ---------------------------------------------------------------------------- */

static bool is_looked_at(const struct wb__param *a)
{
	return a->state != WB__ALIAS && a->state != WB__OUT && a->data && a->geom.total;
}

/* Find the LEFT parameters that have changed: load_weights may have written one in a later call,
 * which then failed.  If this cannot be found out, all count as changed. */
static void find_written(struct wb__dev *d)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_EQUAL, sizeof(struct wbk_equal));
	struct wb__count c = {WB_PASS_CONST, true};
	int rc = 0;

	s.found = wb__count_take;
	for_on_device (d, a)
		if (!rc && is_looked_at(a) && a->state == WB__LEFT && a->has_snapshot)
			rc = wb__count_one(&s, a, &c);
	rc = rc ? rc : wb__scan_flush(&s);
	for_on_device (d, a)
		a->n_unlike = rc ? 1 : a->n_unlike;
}

/* Keep the first failure; the rest is tried all the same. */
static void also(int *rc, int next)
{
	*rc = *rc ? *rc : next;
}

static int put_back(struct wb__dev *d)
{
	struct wb__moves m = {.d = d, .way = WBK_WAY_ASSEMBLE};
	int rc = 0;

	find_written(d);
	for (uint32_t i = 0; i < 2; i++)
		for_on_device (d, a) {
			if (!is_looked_at(a) || !a->has_snapshot || a->kept.store != i ||
				(a->state == WB__LEFT && !a->n_unlike))
				continue;
			also(&rc, wb__moves_add(&m, a, a->data, a->kept.before, &d->before[i]));
		}
	also(&rc, wb__moves_flush(&m));
	return rc;
}

static void unwritten_at(void *item, const struct wb__param *a, uint64_t index)
{
	struct wbk_put *k = item;

	if (a->kept.was)
		k->from = (void *)(uintptr_t)(a->kept.was + index * a->elem_bytes);
	if (a->kept.cls)
		k->cls = (void *)(uintptr_t)(a->kept.cls + index);
}

/* Without a snapshot, put back only what load_weights will not write again.  If the classes are not
 * known, put back everything that was there after the first pass. */
static int put_back_unwritten(struct wb__dev *d)
{
	struct wb__scan s = wb__scan_of(d, WBK_GPU_PUT, sizeof(struct wbk_put));
	int rc = 0;

	for_on_device (d, a) {
		struct wbk_put item = {.value = wb__const_raw(a->dtype, WB_PASS_CONST),
			.only = WBK_CLASS_UNWRITTEN};

		if (!is_looked_at(a) || a->has_snapshot || a->state == WB__LEFT ||
			(!a->kept.cls && d->p->pass.kind != WB_PASS_CONST_B))
			continue;
		also(&rc, wb__scan_planes(&s, &item, a, unwritten_at));
	}
	also(&rc, wb__scan_flush(&s));
	return rc;
}

static int restore(struct wb__dev *d, void *ctx)
{
	int rc = put_back(d);

	(void)ctx;
	also(&rc, put_back_unwritten(d));
	return rc;
}

int wb__dev_restore(struct wb_probe *p)
{
	return wb__dev_each(p, restore, NULL);
}

/* ---- elsewhere: a loader put other memory in a parameter's place ----------------------------- */

#define CHUNK_BYTES ((uint64_t)4 << 20)

struct elsewhere {
	struct wb__param *a;
	struct wb__dev *to; /* NULL: memory of the host */
	uint8_t *chunk; /* owned; CHUNK_BYTES */
};

/* Read bytes [@at, @at + @bytes) of the snapshot. */
static int read_chunk(struct wb__dev *d, const struct elsewhere *x, uint64_t at, uint64_t bytes)
{
	const struct wb__store *s = &d->before[x->a->kept.store];
	uint64_t from = x->a->kept.before + at;

	if (!x->a->dev)
		memcpy(x->chunk, x->a->snapshot + at, bytes);
	else if (s->host)
		memcpy(x->chunk, (uint8_t *)s->host + (from - s->addr), bytes);
	else
		return wb__dev_out(d, x->chunk, from, bytes);
	return 0;
}

static int write_chunk(struct wb__dev *d, const struct elsewhere *x, uint8_t *to, uint64_t bytes)
{
	int rc;

	if (!x->to) {
		memcpy(to, x->chunk, bytes);
		return 0;
	}
	rc = d->gpu->cu->copy_in((uintptr_t)to, x->chunk, bytes, d->stream);
	if (!rc)
		rc = wb__dev_wait(d);
	return wb__dev_fails(d, rc, "cuMemcpyHtoDAsync");
}

/* Copy row by row.  This is slow, but only loaders that are refused need it. */
static int through_host(struct wb__dev *d, const struct elsewhere *x)
{
	const struct wb__geom *g = &x->a->geom;
	uint64_t e = x->a->elem_bytes, row_bytes = g->cols * e;
	int rc = 0;

	for (uint64_t r = 0; r < g->rows_all; r++)
		for (uint64_t c = 0; c < row_bytes && !rc; c += CHUNK_BYTES) {
			uint64_t n = WB_MIN(row_bytes - c, CHUNK_BYTES);

			rc = read_chunk(d, x, r * row_bytes + c, n);
			if (!rc)
				rc = write_chunk(
					d, x, x->a->moved_to + wb__geom_row(g, r) * e + c, n);
		}
	return rc;
}

static int elsewhere(struct wb__dev *d, void *ctx)
{
	struct elsewhere *x = ctx;
	struct wb__moves m = {.d = d, .way = WBK_WAY_ASSEMBLE};
	int rc;

	if (x->a->dev != x->to)
		return through_host(d, x);
	rc = wb__moves_add(
		&m, x->a, x->a->moved_to, x->a->kept.before, &d->before[x->a->kept.store]);
	return rc ? rc : wb__moves_flush(&m);
}

int wb__dev_put_elsewhere(struct wb_probe *p, struct wb__param *a)
{
	struct elsewhere x = {.a = a, .to = wb__dev_of(p, a->moved_to)};
	struct wb__dev *d = a->dev ? a->dev : x.to;
	int rc = wb__dev_where(p, a->moved_to);

	if (rc > 0 && !x.to)
		rc = -ENOTSUP;
	if (rc < 0)
		return wb__probe_says(p, rc, "memory that load_weights put in a parameter's place");
	x.chunk = wb_alloc(CHUNK_BYTES);
	rc = x.chunk ? wb__dev_do(d, elsewhere, &x) : -ENOMEM;
	wb_free(x.chunk);
	return rc;
}
