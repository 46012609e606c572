/* SPDX-License-Identifier: Apache-2.0 */
/* Find runs, which are segments with their repetitions, and unfold them again. */
#include "planner/runs.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define RUNS_MAX (1u << 24)

/* Could one run be a repetition of the other?  Where they lie in the model and on the wire does not
 * matter. */
static bool is_alike(const struct wb__run *x, const struct wb__run *y)
{
	const struct wb_segment *a = &x->first, *b = &y->first;

	return a->n_row == b->n_row && a->n_col == b->n_col && a->row_step == b->row_step &&
	       a->col_step == b->col_step && a->col == b->col && x->n_level == y->n_level &&
	       !memcmp(x->level, y->level, x->n_level * sizeof(*x->level));
}

static uint64_t hash_of(const struct wb__run *r)
{
	const struct wb_segment *s = &r->first;
	uint64_t h = wb_mix64(s->col ^ (uint64_t)r->n_level << 56);

	h = wb_mix64(h ^ ((uint64_t)s->n_row << 32 | s->n_col));
	h = wb_mix64(h ^ ((uint64_t)s->row_step << 32 | s->col_step));
	for (uint32_t k = 0; k < r->n_level; k++) {
		const struct wb__level *l = &r->level[k];

		h = wb_mix64(h ^ ((uint64_t)l->n << 32 | l->tensor));
		h = wb_mix64(wb_mix64(h ^ l->row) ^ l->wire_off);
	}
	return h;
}

/* Is @r the next repetition of @run, which has been repeated as @l says?  Then it is added to @l.
 * A run without repetitions takes any @r as its first one. */
static bool continues(const struct wb__run *run, struct wb__level *l, const struct wb__run *r)
{
	uint32_t tensor = r->first.tensor - run->first.tensor - (l->n - 1) * l->tensor;
	uint64_t row = r->first.row - run->first.row - (l->n - 1) * l->row;
	uint64_t wire = r->first.wire_off - run->first.wire_off - (l->n - 1) * l->wire_off;

	if (l->n == 1)
		*l = (struct wb__level){2, tensor, row, wire};
	else if (l->tensor == tensor && l->row == row && l->wire_off == wire)
		l->n++;
	else
		return false;
	return true;
}

/* Make one level: each run is added to the last one that is like it, or begins a new one. */
static void fold_once(struct wb__runs *f, size_t n_slot)
{
	uint32_t n = 0;

	memset(f->slot, 0, n_slot * sizeof(*f->slot));
	for (uint32_t i = 0; i < f->n_run; i++) {
		const struct wb__run r = f->run[i];
		size_t at = hash_of(&r) & (n_slot - 1);
		uint32_t old;

		while (f->slot[at] && !is_alike(&f->run[f->slot[at] - 1], &r))
			at = (at + 1) & (n_slot - 1);
		old = f->slot[at];
		if (old && continues(&f->run[old - 1], &f->step[old - 1], &r))
			continue;
		f->run[n] = r;
		f->step[n].n = 1;
		f->slot[at] = ++n;
	}
	f->n_run = n;
	for (uint32_t i = 0; i < n; i++)
		if (f->step[i].n > 1)
			f->run[i].level[f->run[i].n_level++] = f->step[i];
}

int wb__runs_make(struct wb__runs *f, const struct wb_segment *s, uint32_t n)
{
	size_t n_slot = 2;
	int rc;

	while (n_slot < 2 * (size_t)n)
		n_slot *= 2;
	rc = wb_grow(&f->run, &f->cap_run, n, RUNS_MAX, sizeof(*f->run));
	if (!rc)
		rc = wb_grow(&f->step, &f->cap_step, n, RUNS_MAX, sizeof(*f->step));
	if (!rc)
		rc = wb_grow(&f->slot, &f->cap_slot, n_slot, 2 * RUNS_MAX, sizeof(*f->slot));
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		f->run[i].first = s[i];
		f->run[i].n_level = 0;
	}
	f->n_run = n;
	for (int k = 0; k < WB__RUN_LEVELS; k++)
		fold_once(f, n_slot);
	return 0;
}

void wb__runs_finish(struct wb__runs *f)
{
	wb_free(f->run);
	wb_free(f->step);
	wb_free(f->slot);
	*f = (struct wb__runs){0};
}

uint64_t wb__run_segments(const struct wb__run *r)
{
	uint64_t n = 1;

	for (uint32_t k = 0; k < r->n_level; k++)
		if (!wb_mul_u64(n, r->level[k].n, &n))
			return UINT64_MAX;
	return n;
}

void wb__run_unfold(const struct wb__run *r, struct wb_segment *out)
{
	uint64_t n = 1;

	out[0] = r->first;
	for (uint32_t k = 0; k < r->n_level; k++) {
		const struct wb__level *l = &r->level[k];

		for (uint64_t i = n; i < n * l->n; i++) {
			out[i] = out[i - n];
			out[i].tensor += l->tensor;
			out[i].row += l->row;
			out[i].wire_off += l->wire_off;
		}
		n *= l->n;
	}
}
