/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cut every tensor into boxes on which the set of covering ops does not change.
 *
 * Rows are swept in bands, which begin and end where ops do.  In a band, columns are cut where an
 * op that covers the band begins or ends.  A box that is covered by the same ops as the box above
 * it continues that box.  A tensor with stepped ops is first split into residue classes of rows and
 * columns, in each of which every op is a plain box.  Where the common step would be large, stepped
 * ops are cut into single rows or columns instead.
 */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most residue classes of one axis; most ops times residue classes of a tensor. */
#define STEP_MAX 1024
#define RESIDUES_MAX (1u << 20)
#define RECTS_MAX (1u << 22)
#define SEGMENTS_MAX (1u << 23)
#define COMBOS_MAX (1u << 26)
#define BAND_REFS_MAX (1u << 24)
#define OPEN_WORK 32 /* units of work for each of n ops open over a band, times log2(n) */

struct ref {
	uint32_t layout, op;
};

/* An op's box in the coordinates of the residue class. */
struct rect {
	uint64_t r0, r1, c0, c1;
	uint32_t ref; /* number in the tensor's list */
};

/* A cell of the band: columns and the refs that cover them. */
struct cell {
	uint64_t r0, c0, c1;
	uint32_t begin, n; /* into band.ref */
};

struct band {
	struct cell *cell;
	uint32_t *ref;
	size_t cap_cell, cap_ref, n_cell, n_ref;
	uint64_t end; /* row after the last */
};

struct refine {
	struct wb__work *w;
	const struct ref *ref; /* of the tensor */
	uint32_t tensor, n_ref;
	uint64_t row_step, row_off, col_step, col_off; /* residue class */
	struct rect *rect;
	size_t cap_rect, n_rect;
	uint32_t *open; /* rects that cover the band, in the order of their refs */
	size_t cap_open, n_open;
	uint64_t *cut; /* columns at which the band's cells change */
	const struct rect **by_col, **over; /* open rects by first column; those over the cell */
	size_t cap_cut, cap_by_col, cap_over, n_over;
	struct band band[2];
	uint32_t *layout; /* scratch of sort_layouts(): three lists of n_layout */
	/* Needed elements of the tensor that no trainer holds, for one sentence about them. */
	uint64_t missing, miss_row[2], miss_col[2];
	struct ref miss_needer, miss_caster;
	bool has_caster;
};

static const struct wb_op *op_of(const struct refine *f, struct ref r)
{
	return &f->w->layout[r.layout].map->op[r.op];
}

static const struct wb_param *param_of(const struct refine *f, struct ref r)
{
	const struct wb_map *map = f->w->layout[r.layout].map;

	return &map->param[map->op[r.op].param];
}

static int by_u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void sort_unique(uint64_t *v, size_t *n)
{
	size_t kept = 0;

	if (!*n)
		return;
	qsort(v, *n, sizeof(*v), by_u64);
	for (size_t i = 1; i < *n; i++)
		if (v[i] != v[kept])
			v[++kept] = v[i];
	*n = kept + 1;
}

static int add_rect(struct refine *f, struct rect r)
{
	int rc = wb_grow(&f->rect, &f->cap_rect, f->n_rect + 1, RECTS_MAX, sizeof(r));

	if (!rc)
		f->rect[f->n_rect++] = r;
	return rc;
}

/* The part of an axis that is in residue class (step, off), as quotients by step; false: none. */
static bool residue(struct wb__axis a, uint64_t step, uint64_t off, uint64_t *begin, uint64_t *end)
{
	uint64_t skip = 0, stride = step / a.step;

	if (a.n == 1) {
		*begin = a.first / step;
		*end = *begin + 1;
		return a.first % step == off;
	}
	if (step % a.step || a.first % a.step != off % a.step)
		return false;
	while ((a.first + skip * a.step) % step != off)
		skip++;
	if (skip >= a.n)
		return false;
	*begin = (a.first + skip * a.step) / step;
	*end = *begin + (a.n - 1 - skip) / stride + 1;
	return true;
}

/* Add the rects of one op.  An axis whose step does not divide the residue class's step is cut into
 * single lines. */
static int add_op(struct refine *f, uint32_t ref)
{
	const struct wb_op *o = op_of(f, f->ref[ref]);
	struct wb__axis rows = wb__op_rows(o), cols = wb__op_cols(o);
	uint64_t n_r = f->row_step % rows.step ? rows.n : 1;
	uint64_t n_c = f->col_step % cols.step ? cols.n : 1;
	struct rect x = {.ref = ref};

	for (uint64_t i = 0; i < n_r; i++) {
		struct wb__axis r = rows;

		if (n_r > 1)
			r = (struct wb__axis){rows.first + i * rows.step, 1, 1};
		if (!residue(r, f->row_step, f->row_off, &x.r0, &x.r1))
			continue;
		for (uint64_t k = 0; k < n_c; k++) {
			struct wb__axis c = cols;
			int rc;

			if (n_c > 1)
				c = (struct wb__axis){cols.first + k * cols.step, 1, 1};
			if (!residue(c, f->col_step, f->col_off, &x.c0, &x.c1))
				continue;
			rc = add_rect(f, x);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

/*
 * Sort the layouts of a cell into those that hold it, need it exactly, and need it rounded; len[]
 * are the lengths of these lists.  Lists stay ascending since refs are.  A trainer that rounds what
 * another trainer has exactly does not count as a holder: else the contents of chunks would depend
 * on the sender.
 */
static void sort_layouts(struct refine *f, const uint32_t *ref, uint32_t n, uint32_t len[3],
	struct ref *needer, struct ref *caster)
{
	uint32_t n_layout = f->w->in->n_layout;
	uint32_t *held = f->layout, *exact = held + n_layout, *lossy = exact + n_layout;
	enum wb_dtype wire = f->w->in->manifest->tensor[f->tensor].dtype;
	bool is_held_exact = false;

	memset(len, 0, 3 * sizeof(*len));
	needer->layout = caster->layout = UINT32_MAX;
	for (uint32_t i = 0; i < n; i++) {
		struct ref r = f->ref[ref[i]];
		const struct wb__layout *l = &f->w->layout[r.layout];
		bool is_exact = false;
		int cast = wb_cast_between(wire, param_of(f, r)->dtype, &is_exact);

		if (cast < 0)
			*caster = r;
		if (cast >= 0 && l->trainer != UINT32_MAX && is_exact && !is_held_exact) {
			is_held_exact = true;
			len[0] = 0;
		}
		if (cast >= 0 && l->trainer != UINT32_MAX && is_exact == is_held_exact &&
			(!len[0] || held[len[0] - 1] != r.layout))
			held[len[0]++] = r.layout;
		if (l->rollout == UINT32_MAX)
			continue;
		*needer = r;
		/* A layout with one exact copy can be a source, even if it has rounded copies
		 * too. */
		if (is_exact && len[2] && lossy[len[2] - 1] == r.layout)
			len[2]--;
		if (len[1] && exact[len[1] - 1] == r.layout)
			continue;
		if (is_exact)
			exact[len[1]++] = r.layout;
		else if (!len[2] || lossy[len[2] - 1] != r.layout)
			lossy[len[2]++] = r.layout;
	}
}

static int combo_rehash(struct wb__work *w)
{
	size_t n_slot = w->n_combo_slot ? 2 * w->n_combo_slot : 1024;
	uint32_t *slot = wb_zalloc(n_slot, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->n_combo; i++) {
		size_t at = wb_hash64(&w->combo[i], 4 * sizeof(uint32_t), 0) & (n_slot - 1);

		while (slot[at])
			at = (at + 1) & (n_slot - 1);
		slot[at] = i + 1;
	}
	wb_free(w->combo_slot);
	w->combo_slot = slot;
	w->n_combo_slot = n_slot;
	return 0;
}

static int64_t combo_put(struct wb__work *w, struct wb__combo c)
{
	size_t at;
	int rc = 0;

	_Static_assert(
		offsetof(struct wb__combo, cls_exact) == 4 * sizeof(uint32_t), "hashed part");
	if (2 * (size_t)w->n_combo >= w->n_combo_slot)
		rc = combo_rehash(w);
	if (!rc)
		rc = wb_grow(&w->combo, &w->cap_combo, w->n_combo + 1, COMBOS_MAX, sizeof(c));
	if (rc < 0)
		return rc;
	at = wb_hash64(&c, 4 * sizeof(uint32_t), 0) & (w->n_combo_slot - 1);
	for (; w->combo_slot[at]; at = (at + 1) & (w->n_combo_slot - 1))
		if (!memcmp(&w->combo[w->combo_slot[at] - 1], &c, 4 * sizeof(uint32_t)))
			return w->combo_slot[at] - 1;
	w->combo[w->n_combo] = c;
	w->combo_slot[at] = ++w->n_combo;
	return w->n_combo - 1;
}

static void note_missing(struct refine *f, const struct wb_segment *s)
{
	uint64_t last_row = s->row + (uint64_t)(s->n_row - 1) * s->row_step;
	uint64_t last_col = s->col + (uint64_t)(s->n_col - 1) * s->col_step;

	if (!f->missing) {
		f->miss_row[0] = s->row;
		f->miss_row[1] = last_row;
		f->miss_col[0] = s->col;
		f->miss_col[1] = last_col;
	}
	f->missing += (uint64_t)s->n_row * s->n_col;
	f->miss_row[0] = WB_MIN(f->miss_row[0], s->row);
	f->miss_row[1] = WB_MAX(f->miss_row[1], last_row);
	f->miss_col[0] = WB_MIN(f->miss_col[0], s->col);
	f->miss_col[1] = WB_MAX(f->miss_col[1], last_col);
}

/* Make a finished cell a segment if a rollout needs it; if no trainer holds it, note that it is
 * missing. */
static int emit(struct refine *f, const struct band *b, const struct cell *c)
{
	struct wb__work *w = f->w;
	uint32_t n_layout = w->in->n_layout, len[3];
	struct wb__combo combo = {.dtype = w->in->manifest->tensor[f->tensor].dtype};
	struct ref needer, caster;
	struct wb_segment s = {
		.tensor = f->tensor,
		.row = c->r0 * f->row_step + f->row_off,
		.col = c->c0 * f->col_step + f->col_off,
		.n_row = (uint32_t)(b->end - c->r0),
		.n_col = (uint32_t)(c->c1 - c->c0),
	};
	int64_t set[3], id;
	int rc;

	s.row_step = s.n_row > 1 ? (uint32_t)f->row_step : 1;
	s.col_step = s.n_col > 1 ? (uint32_t)f->col_step : 1;
	sort_layouts(f, b->ref + c->begin, c->n, len, &needer, &caster);
	if (!len[1] && !len[2])
		return 0;
	if (!len[0]) {
		note_missing(f, &s);
		f->miss_needer = needer;
		f->has_caster = caster.layout != UINT32_MAX;
		f->miss_caster = caster;
		return 0;
	}
	for (int i = 0; i < 3; i++) {
		set[i] = wb__sets_put(&w->sets, f->layout + (size_t)i * n_layout, len[i]);
		if (set[i] < 0)
			return (int)set[i];
	}
	combo.held = (uint32_t)set[0];
	combo.exact = (uint32_t)set[1];
	combo.lossy = (uint32_t)set[2];
	id = combo_put(w, combo);
	if (id < 0)
		return (int)id;
	s.class_id = (uint32_t)id;
	rc = wb_grow(&w->seg, &w->cap_seg, w->n_seg + 1, SEGMENTS_MAX, sizeof(s));
	if (!rc)
		w->seg[w->n_seg++] = s;
	return rc;
}

/* Cells of @next that continue a cell of @prev get its first row.  The other cells of @prev end,
 * and are emitted. */
static int join(struct refine *f, const struct band *prev, struct band *next, uint64_t row)
{
	size_t k = 0;

	for (size_t i = 0; i < prev->n_cell; i++) {
		const struct cell *p = &prev->cell[i];
		struct cell *n;
		int rc;

		while (k < next->n_cell && next->cell[k].c0 < p->c0)
			k++;
		n = k < next->n_cell && prev->end == row ? &next->cell[k] : NULL;
		if (n && n->c0 == p->c0 && n->c1 == p->c1 && n->n == p->n &&
			!memcmp(next->ref + n->begin, prev->ref + p->begin,
				p->n * sizeof(*prev->ref))) {
			n->r0 = p->r0;
			continue;
		}
		rc = emit(f, prev, p);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int by_first_col(const void *a, const void *b)
{
	const struct rect *x = *(const struct rect *const *)a, *y = *(const struct rect *const *)b;

	if (x->c0 != y->c0)
		return x->c0 < y->c0 ? -1 : 1;
	return x->ref < y->ref ? -1 : x->ref > y->ref;
}

/* Go on to column @at: drop rects that end there from f->over, and add those that begin there, in
 * the order of their refs. */
static void turn_column(struct refine *f, uint64_t at, size_t *next)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->n_over; i++)
		if (f->over[i]->c1 > at)
			f->over[kept++] = f->over[i];
	for (; *next < f->n_open && f->by_col[*next]->c0 == at; ++*next) {
		size_t i = kept++;

		for (; i && f->over[i - 1]->ref > f->by_col[*next]->ref; i--)
			f->over[i] = f->over[i - 1];
		f->over[i] = f->by_col[*next];
	}
	f->n_over = kept;
}

static int band_scratch(struct refine *f)
{
	int rc = wb_grow(&f->cut, &f->cap_cut, 2 * f->n_open, SIZE_MAX / 64, sizeof(*f->cut));

	if (!rc)
		rc = wb_grow(
			&f->by_col, &f->cap_by_col, f->n_open, SIZE_MAX / 64, sizeof(*f->by_col));
	if (!rc)
		rc = wb_grow(&f->over, &f->cap_over, f->n_open, SIZE_MAX / 64, sizeof(*f->over));
	return rc;
}

/* Make the cells of the band of rows [row, end) from the open rects. */
static int make_band(struct refine *f, struct band *b, uint64_t row, uint64_t end)
{
	size_t n_cut = 0, next = 0;
	int rc = band_scratch(f);

	if (!rc)
		rc = wb__spend(f->w,
			(uint64_t)f->n_open * OPEN_WORK * (64 - __builtin_clzll(f->n_open | 1)));
	if (rc < 0)
		return rc;
	b->n_cell = b->n_ref = f->n_over = 0;
	b->end = end;
	for (size_t i = 0; i < f->n_open; i++) {
		f->by_col[i] = &f->rect[f->open[i]];
		f->cut[n_cut++] = f->by_col[i]->c0;
		f->cut[n_cut++] = f->by_col[i]->c1;
	}
	sort_unique(f->cut, &n_cut);
	if (f->n_open)
		qsort(f->by_col, f->n_open, sizeof(*f->by_col), by_first_col);
	for (size_t k = 0; k + 1 < n_cut; k++) {
		struct cell c = {row, f->cut[k], f->cut[k + 1], (uint32_t)b->n_ref, 0};

		turn_column(f, c.c0, &next);
		if (!f->n_over)
			continue;
		c.n = (uint32_t)f->n_over;
		rc = wb__spend(f->w, 4 * (uint64_t)c.n);
		if (!rc)
			rc = wb_grow(&b->ref, &b->cap_ref, b->n_ref + c.n, BAND_REFS_MAX,
				sizeof(*b->ref));
		if (!rc)
			rc = wb_grow(&b->cell, &b->cap_cell, b->n_cell + 1, UINT32_MAX, sizeof(c));
		if (rc < 0)
			return rc;
		for (size_t i = 0; i < f->n_over; i++)
			b->ref[b->n_ref++] = f->over[i]->ref;
		b->cell[b->n_cell++] = c;
	}
	return 0;
}

static int by_first_row(const void *a, const void *b)
{
	const struct rect *x = a, *y = b;

	if (x->r0 != y->r0)
		return x->r0 < y->r0 ? -1 : 1;
	if (x->ref != y->ref)
		return x->ref < y->ref ? -1 : 1;
	return x->c0 < y->c0 ? -1 : x->c0 > y->c0;
}

/* Drop rects that end at @row, add those that begin there; the list stays in ref order. */
static int open_rects(struct refine *f, uint64_t row, size_t *next)
{
	size_t kept = 0;
	int rc;

	for (size_t i = 0; i < f->n_open; i++)
		if (f->rect[f->open[i]].r1 > row)
			f->open[kept++] = f->open[i];
	f->n_open = kept;
	for (; *next < f->n_rect && f->rect[*next].r0 == row; ++*next) {
		size_t at;

		rc = wb_grow(&f->open, &f->cap_open, f->n_open + 1, RECTS_MAX, sizeof(*f->open));
		if (rc < 0)
			return rc;
		for (at = f->n_open++; at; at--) {
			if (f->rect[f->open[at - 1]].ref <= f->rect[*next].ref)
				break;
			f->open[at] = f->open[at - 1];
		}
		f->open[at] = (uint32_t)*next;
	}
	return 0;
}

/* All rows at which a rect begins or ends, sorted. */
static int row_cuts(const struct refine *f, uint64_t **out, size_t *n_out)
{
	uint64_t *v = wb_alloc(2 * f->n_rect * sizeof(*v));
	size_t n = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < f->n_rect; i++) {
		v[n++] = f->rect[i].r0;
		v[n++] = f->rect[i].r1;
	}
	sort_unique(v, &n);
	*out = v;
	*n_out = n;
	return 0;
}

static int sweep(struct refine *f)
{
	struct band *prev = &f->band[0], *next = &f->band[1], *swap;
	uint64_t *cut = NULL;
	size_t n_cut = 0, at = 0;
	int rc;

	if (!f->n_rect)
		return 0;
	qsort(f->rect, f->n_rect, sizeof(*f->rect), by_first_row);
	rc = row_cuts(f, &cut, &n_cut);
	f->n_open = prev->n_cell = 0;
	for (size_t i = 0; i + 1 < n_cut && !rc; i++) {
		rc = open_rects(f, cut[i], &at);
		if (!rc)
			rc = make_band(f, next, cut[i], cut[i + 1]);
		if (!rc)
			rc = join(f, prev, next, cut[i]);
		swap = prev;
		prev = next;
		next = swap;
	}
	for (size_t k = 0; k < prev->n_cell && !rc; k++)
		rc = emit(f, prev, &prev->cell[k]);
	wb_free(cut);
	return rc;
}

static uint64_t common_step(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b;

	while (y) {
		uint64_t r = x % y;

		x = y;
		y = r;
	}
	return a / x * b;
}

/* Find the common steps of the tensor's ops.  An op that would make them too large is left out:
 * add_op() cuts it into single lines. */
static void steps(struct refine *f)
{
	f->row_step = f->col_step = 1;
	for (uint32_t i = 0; i < f->n_ref; i++) {
		const struct wb_op *o = op_of(f, f->ref[i]);
		uint64_t row = common_step(f->row_step, o->row_step);
		uint64_t col = common_step(f->col_step, o->col_step);

		if (row <= STEP_MAX && row * f->col_step * f->n_ref <= RESIDUES_MAX)
			f->row_step = row;
		if (col <= STEP_MAX && col * f->row_step * f->n_ref <= RESIDUES_MAX)
			f->col_step = col;
	}
}

static void say_missing(const struct refine *f)
{
	const struct wb_tensor *t = &f->w->in->manifest->tensor[f->tensor];
	char who[160], by[160], cast[320] = "";

	wb__who(f->w->in, f->w->layout[f->miss_needer.layout].rollout, who, sizeof(who));
	if (f->has_caster && f->w->layout[f->miss_caster.layout].trainer != UINT32_MAX) {
		wb__who(f->w->in, f->w->layout[f->miss_caster.layout].trainer, by, sizeof(by));
		snprintf(cast, sizeof(cast), " (%s has it as %s in %.64s: no known cast to %s)", by,
			wb_dtype_name(param_of(f, f->miss_caster)->dtype),
			param_of(f, f->miss_caster)->name, wb_dtype_name(t->dtype));
	}
	wb__plan_fault(&f->w->faults,
		"tensor %.120s: %" PRIu64 " elements in rows %" PRIu64 "-%" PRIu64
		", columns %" PRIu64 "-%" PRIu64 " are held by no trainer%s; %s needs them for "
		"parameter %.120s",
		t->name, f->missing, f->miss_row[0], f->miss_row[1], f->miss_col[0], f->miss_col[1],
		cast, who, param_of(f, f->miss_needer)->name);
}

static int by_seg(const void *a, const void *b)
{
	const struct wb_segment *x = a, *y = b;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	return x->col < y->col ? -1 : x->col > y->col;
}

static int refine_tensor(struct refine *f)
{
	size_t first = f->w->n_seg;
	int rc = 0;

	steps(f);
	f->missing = 0;
	f->has_caster = false;
	for (f->row_off = 0; f->row_off < f->row_step; f->row_off++) {
		for (f->col_off = 0; f->col_off < f->col_step; f->col_off++) {
			f->n_rect = 0;
			for (uint32_t i = 0; i < f->n_ref && !rc; i++)
				rc = add_op(f, i);
			if (!rc)
				rc = wb__spend(
					f->w, (uint64_t)f->n_ref * (f->row_step + f->col_step));
			if (!rc)
				rc = sweep(f);
			if (rc < 0)
				return rc;
		}
	}
	if (f->missing)
		say_missing(f);
	if (f->w->n_seg > first)
		qsort(f->w->seg + first, f->w->n_seg - first, sizeof(*f->w->seg), by_seg);
	return 0;
}

/* Note a fault for each op of a rollout layout whose parameter cannot take the type of its
 * tensor. */
static void check_casts(struct wb__work *w)
{
	for (uint32_t l = 0; l < w->in->n_layout; l++) {
		const struct wb_map *map = w->layout[l].map;

		for (uint32_t i = 0; w->layout[l].rollout != UINT32_MAX && i < map->n_op; i++) {
			const struct wb_op *o = &map->op[i];
			const struct wb_tensor *t = &w->in->manifest->tensor[o->tensor];
			bool is_exact;
			char who[160];

			if (wb_cast_between(t->dtype, map->param[o->param].dtype, &is_exact) >= 0)
				continue;
			wb__who(w->in, w->layout[l].rollout, who, sizeof(who));
			wb__plan_fault(&w->faults,
				"%s: parameter %.120s is %s, its source %.120s is %s: no known "
				"cast",
				who, map->param[o->param].name,
				wb_dtype_name(map->param[o->param].dtype), t->name,
				wb_dtype_name(t->dtype));
		}
	}
}

/* List the ops of all layouts that a worker has, by tensor: ref[begin[t]] .. ref[begin[t + 1]]. */
static int list_refs(struct wb__work *w, struct ref **ref_out, uint32_t **begin_out)
{
	uint32_t n_tensor = w->in->manifest->n;
	uint32_t *begin = wb_zalloc((size_t)n_tensor + 2, sizeof(*begin));
	struct ref *ref = NULL;
	uint64_t n = 0;

	for (uint32_t l = 0; l < w->in->n_layout; l++)
		n += w->layout[l].map->n_op;
	if (begin && n < UINT32_MAX)
		ref = wb_alloc(n * sizeof(*ref));
	if (!ref) {
		wb_free(begin);
		return n < UINT32_MAX ? -ENOMEM : -E2BIG;
	}
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t l = 0; l < w->in->n_layout; l++) {
			const struct wb__layout *x = &w->layout[l];

			if (x->trainer == UINT32_MAX && x->rollout == UINT32_MAX)
				continue;
			for (uint32_t i = 0; i < x->map->n_op; i++) {
				uint32_t t = x->map->op[i].tensor;

				if (pass)
					ref[begin[t + 1]++] = (struct ref){l, i};
				else
					begin[t + 2]++;
			}
		}
		for (uint32_t t = 2; !pass && t < n_tensor + 2; t++)
			begin[t] += begin[t - 1];
	}
	*ref_out = ref;
	*begin_out = begin;
	return 0;
}

int wb__refine(struct wb__work *w)
{
	struct refine f = {.w = w};
	struct ref *ref = NULL;
	uint32_t *begin = NULL;
	int rc;

	check_casts(w);
	rc = list_refs(w, &ref, &begin);
	if (rc < 0)
		return rc;
	f.layout = wb_alloc(3 * (size_t)w->in->n_layout * sizeof(*f.layout));
	if (!f.layout)
		rc = -ENOMEM;
	for (uint32_t t = 0; t < w->in->manifest->n && !rc; t++) {
		f.tensor = t;
		f.ref = ref + begin[t];
		f.n_ref = begin[t + 1] - begin[t];
		rc = refine_tensor(&f);
		if (rc == -E2BIG)
			snprintf(w->limit, sizeof(w->limit),
				"tensor %.120s: the layouts cut the checkpoint into more than %u "
				"pieces, or into ones that lie across each other (%zu so far)",
				w->in->manifest->tensor[t].name, SEGMENTS_MAX, w->n_seg);
	}
	wb_free(f.layout);
	wb_free(f.rect);
	wb_free(f.open);
	wb_free(f.cut);
	wb_free((void *)f.by_col);
	wb_free((void *)f.over);
	for (int i = 0; i < 2; i++) {
		wb_free(f.band[i].cell);
		wb_free(f.band[i].ref);
	}
	wb_free(ref);
	wb_free(begin);
	return rc;
}
