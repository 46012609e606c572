/* SPDX-License-Identifier: Apache-2.0 */
/* Write a plan's head and parts. */
#include "planner/parts.h"

#include "base/base.h"
#include "base/mem.h"
#include "planner/internal.h"
#include "planner/parts_internal.h"
#include "planner/runs.h"

#include <string.h>

#define FOLD_MAX (1u << 16) /* segments folded into runs at once: limits the memory for it */
#define ITEMS_MAX (1u << 28)

const struct wb__section wb__head_section[WB__HEAD_SECTIONS] = {
	[WB__HEAD_WORKER] = WB__SECTION_WORKER,
	[WB__HEAD_LAYOUT] = WB__SECTION_LAYOUT,
	[WB__HEAD_CLASS] = {"class", 48, WB__CLASSES_MAX},
	[WB__HEAD_MEMBER] = WB__SECTION_MEMBER,
	[WB__HEAD_PART] = {"part", WB__HEAD_PART_BYTES, WB_WORKERS_MAX},
};

const struct wb__section wb__part_section[WB__PART_SECTIONS] = {
	[WB__PART_CLASS] = {"class", 16, WB__CLASSES_MAX},
	[WB__PART_RUN] = {"run", WB__RUN_BYTES, WB__SEGMENTS_MAX},
	[WB__PART_LEVEL] = {"level", WB__LEVEL_BYTES, WB__SEGMENTS_MAX},
	[WB__PART_ROUTE] = WB__SECTION_ROUTE,
};

/* Lists of numbers, one for each domain: item[begin[d]] .. item[begin[d + 1]]. */
struct lists {
	uint32_t *item, *begin; /* owned */
};

/* What goes into the parts.  The records of a class are made once, and copied into each part that
 * has the class. */
struct packing {
	const struct wb_plan *p;
	uint32_t n_domain;
	struct wb_buf run, level; /* records of all classes, one after the other */
	uint32_t *run_begin, *level_begin; /* owned: where those of class c begin; n_class + 1 */
	struct lists cls, route; /* numbers of the classes and routes of each domain */
	uint32_t *seen; /* owned: by domain, scratch */
};

/* ---- runs of all classes ---- */

static void put_run(struct packing *k, const struct wb__run *r)
{
	const struct wb_segment *s = &r->first;

	wb_buf_u32(&k->run, s->tensor);
	wb_buf_u32(&k->run, s->n_row);
	wb_buf_u32(&k->run, s->n_col);
	wb_buf_u32(&k->run, s->row_step);
	wb_buf_u32(&k->run, s->col_step);
	wb_buf_u32(&k->run, r->n_level);
	wb_buf_u64(&k->run, s->row);
	wb_buf_u64(&k->run, s->col);
	wb_buf_u64(&k->run, s->wire_off);
	for (uint32_t i = 0; i < r->n_level; i++) {
		wb_buf_u32(&k->level, r->level[i].n);
		wb_buf_u32(&k->level, r->level[i].tensor);
		wb_buf_u64(&k->level, r->level[i].row);
		wb_buf_u64(&k->level, r->level[i].wire_off);
	}
}

static int fold_class(struct packing *k, struct wb__runs *f, const struct wb_class *c)
{
	for (uint32_t s = c->seg_begin; s < c->seg_end; s += FOLD_MAX) {
		int rc = wb__runs_make(f, &k->p->segment[s], WB_MIN(FOLD_MAX, c->seg_end - s));

		if (rc < 0)
			return rc;
		for (uint32_t i = 0; i < f->n_run; i++)
			put_run(k, &f->run[i]);
	}
	return k->run.rc ? k->run.rc : k->level.rc;
}

static int fold_classes(struct packing *k)
{
	const struct wb_plan *p = k->p;
	struct wb__runs f = {0};
	int rc = 0;

	k->run_begin = wb_zalloc((size_t)p->n_class + 1, sizeof(*k->run_begin));
	k->level_begin = wb_zalloc((size_t)p->n_class + 1, sizeof(*k->level_begin));
	if (!k->run_begin || !k->level_begin)
		return -ENOMEM;
	for (uint32_t c = 0; c < p->n_class && !rc; c++) {
		rc = fold_class(k, &f, &p->cls[c]);
		k->run_begin[c + 1] = (uint32_t)(k->run.len / WB__RUN_BYTES);
		k->level_begin[c + 1] = (uint32_t)(k->level.len / WB__LEVEL_BYTES);
	}
	wb__runs_finish(&f);
	return rc;
}

/* ---- what goes into which part ---- */

/* Lists are made in two passes: first (not @is_counted) items are counted, and make_room() sums up
 * begin[]; then the items are put in. */
static void add(struct lists *l, uint32_t domain, uint32_t item, bool is_counted)
{
	if (is_counted)
		l->item[l->begin[domain + 1]++] = item;
	else
		l->begin[domain + 2]++;
}

static int make_room(struct lists *l, uint32_t n_domain)
{
	uint64_t n = 0;

	for (uint32_t d = 0; d < n_domain; d++)
		n += l->begin[d + 2];
	if (n > ITEMS_MAX)
		return -E2BIG;
	for (uint32_t d = 2; d < n_domain + 2; d++)
		l->begin[d] += l->begin[d - 1];
	l->item = wb_zalloc(n, sizeof(*l->item));
	return l->item ? 0 : -ENOMEM;
}

static void list_members(
	struct packing *k, uint32_t cls, uint32_t begin, uint32_t end, bool is_counted)
{
	uint32_t stamp = 2 * cls + is_counted + 1;

	for (uint32_t i = begin; i < end; i++) {
		uint32_t d = k->p->worker[k->p->member[i]].domain;

		if (k->seen[d] == stamp)
			continue;
		k->seen[d] = stamp;
		add(&k->cls, d, cls, is_counted);
	}
}

static void list_all(struct packing *k, bool is_counted)
{
	const struct wb_plan *p = k->p;

	for (uint32_t c = 0; c < p->n_class; c++) {
		list_members(k, c, p->cls[c].holder_begin, p->cls[c].holder_end, is_counted);
		list_members(k, c, p->cls[c].needer_begin, p->cls[c].needer_end, is_counted);
	}
	for (uint32_t i = 0; i < p->n_route; i++) {
		uint32_t from = p->worker[p->route[i].src].domain;
		uint32_t to = p->worker[p->route[i].dst].domain;

		add(&k->route, from, i, is_counted);
		if (to != from)
			add(&k->route, to, i, is_counted);
	}
}

static int list_items(struct packing *k)
{
	int rc;

	k->seen = wb_zalloc(k->n_domain, sizeof(*k->seen));
	k->cls.begin = wb_zalloc((size_t)k->n_domain + 2, sizeof(*k->cls.begin));
	k->route.begin = wb_zalloc((size_t)k->n_domain + 2, sizeof(*k->route.begin));
	if (!k->seen || !k->cls.begin || !k->route.begin)
		return -ENOMEM;
	list_all(k, false);
	rc = make_room(&k->cls, k->n_domain);
	if (!rc)
		rc = make_room(&k->route, k->n_domain);
	if (!rc)
		list_all(k, true);
	return rc;
}

/* ---- the bytes ---- */

static void put_classes(struct wb_buf *b, const struct wb_plan *p)
{
	for (uint32_t i = 0; i < p->n_class; i++)
		wb__class_put(b, &p->cls[i]);
}

static void put_head(const struct packing *k, struct wb_buf *out)
{
	const struct wb_plan *p = k->p;
	const uint32_t count[WB__HEAD_SECTIONS] = {
		p->n_worker, p->n_layout, p->n_class, p->n_member, k->n_domain};
	size_t start = out->len;

	wb_buf_u32(out, WB__HEAD_MAGIC);
	wb_buf_u32(out, WB__PARTS_VERSION);
	wb_buf_u64(out, p->digest.hi);
	wb_buf_u64(out, p->digest.lo);
	wb_buf_u64(out, p->manifest.hi);
	wb_buf_u64(out, p->manifest.lo);
	wb_buf_u32(out, p->chunk_bytes);
	wb_buf_u32(out, p->n_chunk);
	wb__sums_put(out, p);
	wb__table_put(out, wb__head_section, count, WB__HEAD_SECTIONS, WB__HEAD_BYTES);
	wb__section_align(out, start);
	wb__workers_put(out, p);
	wb__section_align(out, start);
	wb__layouts_put(out, p);
	wb__section_align(out, start);
	put_classes(out, p);
	wb__section_align(out, start);
	wb__members_put(out, p);
	wb__section_align(out, start);
	for (uint32_t d = 0; d < k->n_domain * (WB__HEAD_PART_BYTES / sizeof(uint64_t)); d++)
		wb_buf_u64(out, 0); /* put_all() writes it once the part is there */
}

static uint32_t run_count(const struct packing *k, uint32_t cls)
{
	return k->run_begin[cls + 1] - k->run_begin[cls];
}

static void put_part_header(const struct packing *k, uint32_t domain, struct wb_buf *out)
{
	const uint32_t *cls = k->cls.item + k->cls.begin[domain];
	uint32_t count[WB__PART_SECTIONS] = {
		k->cls.begin[domain + 1] - k->cls.begin[domain],
		[WB__PART_ROUTE] = k->route.begin[domain + 1] - k->route.begin[domain],
	};

	for (uint32_t i = 0; i < count[WB__PART_CLASS]; i++) {
		count[WB__PART_RUN] += run_count(k, cls[i]);
		count[WB__PART_LEVEL] += k->level_begin[cls[i] + 1] - k->level_begin[cls[i]];
	}
	wb_buf_u32(out, WB__PART_MAGIC);
	wb_buf_u32(out, WB__PARTS_VERSION);
	wb_buf_u64(out, k->p->digest.hi);
	wb_buf_u64(out, k->p->digest.lo);
	wb_buf_u32(out, domain);
	wb_buf_u32(out, 0);
	wb__table_put(out, wb__part_section, count, WB__PART_SECTIONS, WB__PART_BYTES);
}

/* Append the records of @n classes.  The records of one class follow each other in @of. */
static void put_records(struct wb_buf *out, const struct wb_buf *of, const uint32_t *begin,
	const uint32_t *cls, uint32_t n, size_t bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t from = begin[cls[i]], to = begin[cls[i] + 1];

		if (to > from)
			wb_buf_put(out, of->data + from * bytes, (to - from) * bytes);
	}
}

static void put_part(const struct packing *k, uint32_t domain, struct wb_buf *out)
{
	const uint32_t *cls = k->cls.item + k->cls.begin[domain];
	uint32_t n = k->cls.begin[domain + 1] - k->cls.begin[domain], at = 0;
	size_t start = out->len;

	put_part_header(k, domain, out);
	wb__section_align(out, start);
	for (uint32_t i = 0; i < n; i++) {
		const struct wb_class *c = &k->p->cls[cls[i]];

		wb_buf_u32(out, cls[i]);
		wb_buf_u32(out, at);
		wb_buf_u32(out, at += run_count(k, cls[i]));
		wb_buf_u32(out, c->seg_end - c->seg_begin);
	}
	wb__section_align(out, start);
	put_records(out, &k->run, k->run_begin, cls, n, WB__RUN_BYTES);
	wb__section_align(out, start);
	put_records(out, &k->level, k->level_begin, cls, n, WB__LEVEL_BYTES);
	wb__section_align(out, start);
	for (uint32_t i = k->route.begin[domain]; i < k->route.begin[domain + 1]; i++)
		wb__route_put(out, &k->p->route[k->route.item[i]]);
}

static int put_all(const struct packing *k, struct wb_buf *out)
{
	size_t start = out->len, parts;

	put_head(k, out);
	parts = out->len - k->n_domain * (size_t)WB__HEAD_PART_BYTES;
	for (uint32_t d = 0; d < k->n_domain && !out->rc; d++) {
		size_t entry = parts + d * (size_t)WB__HEAD_PART_BYTES, at;
		struct wb_digest digest;

		wb__section_align(out, start);
		at = out->len;
		put_part(k, d, out);
		if (out->rc)
			break;
		digest = wb_digest_of(out->data + at, out->len - at);
		wb_buf_set_u64(out, entry, out->len - at);
		wb_buf_set_u64(out, entry + 8, digest.hi);
		wb_buf_set_u64(out, entry + 16, digest.lo);
	}
	return out->rc;
}

int wb_plan_pack(const struct wb_plan *p, struct wb_buf *out)
{
	struct packing k = {.p = p};
	int rc;

	assert(!p->is_part);
	for (uint32_t i = 0; i < p->n_worker; i++)
		k.n_domain = WB_MAX(k.n_domain, p->worker[i].domain + 1);
	wb_buf_init(&k.run, (size_t)WB__SEGMENTS_MAX * WB__RUN_BYTES);
	wb_buf_init(&k.level, (size_t)WB__SEGMENTS_MAX * WB__LEVEL_BYTES);
	rc = fold_classes(&k);
	if (!rc)
		rc = list_items(&k);
	if (!rc)
		rc = put_all(&k, out);
	wb_buf_finish(&k.run);
	wb_buf_finish(&k.level);
	wb_free(k.run_begin);
	wb_free(k.level_begin);
	wb_free(k.cls.item);
	wb_free(k.cls.begin);
	wb_free(k.route.item);
	wb_free(k.route.begin);
	wb_free(k.seen);
	return rc;
}
