/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/mem.h"
#include "extract/device.h"
#include "extract/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/*
 * Finds the classes of elements, by two calls of load_weights with constants, A and B.  Elements
 * that do not hold A after the first call are "residual", and are kept with their values.  Before
 * the second call, parameters are filled with a sentinel.  The values r0 and r1 of an element after
 * the two calls give its class: (A, B) is a copy, r1 == sentinel is unwritten, r0 == r1 is a
 * constant, everything else is arithmetic on the value.
 */

struct sweep {
	struct wb_probe *p;
	const struct wb__piece *piece;
	enum wb_pass_kind kind;
};

#define BLOCK_BYTES 4096

/* The element size is a constant in each loop, so that the compiler can use vectors. */
#define COUNT(type)                                                                                \
	for (size_t i = 0; i < n; i++)                                                             \
	same += ((const type *)(const void *)p)[i] == (type)raw

static size_t count_slowly(const uint8_t *p, size_t elem_bytes, uint32_t raw, size_t n)
{
	size_t same = 0;

	if (elem_bytes == 1)
		COUNT(uint8_t);
	else if (elem_bytes == 2)
		COUNT(uint16_t);
	else
		COUNT(uint32_t);
	return same;
}

/* Count the elements that are equal to those of @block, which are all equal.  Nearly always all
 * are, so whole blocks are compared first. */
static size_t count_equal(
	const uint8_t *p, size_t elem_bytes, const uint8_t block[BLOCK_BYTES], size_t n)
{
	uint32_t raw = (uint32_t)wb__raw_at(block, elem_bytes);
	size_t same = 0, each = BLOCK_BYTES / elem_bytes;

	for (size_t at = 0; at < n; at += each) {
		size_t take = WB_MIN(each, n - at);

		same += !memcmp(p + at * elem_bytes, block, take * elem_bytes)
				? take
				: count_slowly(p + at * elem_bytes, elem_bytes, raw, take);
	}
	return same;
}

static void block_of(const struct wb__param *a, enum wb_pass_kind kind, uint8_t block[BLOCK_BYTES])
{
	wb__raw_fill(
		block, a->elem_bytes, wb__const_raw(a->dtype, kind), BLOCK_BYTES / a->elem_bytes);
}

static int count_task(void *ctx, size_t task)
{
	struct sweep *s = ctx;
	const struct wb__piece *k = &s->piece[task];
	struct wb__param *a = &s->p->param[k->param];
	uint8_t block[BLOCK_BYTES];
	uint64_t same = 0;

	block_of(a, s->kind, block);
	for (uint64_t r = k->row; r < k->row_end; r++)
		same += count_equal(a->data + (wb__geom_row(&a->geom, r) + k->col) * a->elem_bytes,
			a->elem_bytes, block, k->col_end - k->col);
	pthread_mutex_lock(&s->p->lock);
	a->n_equal += same;
	pthread_mutex_unlock(&s->p->lock);
	return 0;
}

static int count_all(struct wb_probe *p, enum wb_pass_kind kind)
{
	struct sweep s = {.p = p, .kind = kind};
	struct wb__piece *piece;
	size_t n;
	int rc = wb__pieces(p, &piece, &n);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < p->n_param; i++)
		p->param[i].n_equal = 0;
	s.piece = piece;
	rc = wb__parallel(p->threads, n, count_task, &s);
	wb_free(piece);
	return rc;
}

int wb__count_held(struct wb_probe *p)
{
	int rc = count_all(p, WB_PASS_CONST);

	if (!rc)
		rc = wb__dev_count(p, WB_PASS_CONST);
	for (uint32_t i = 0; i < p->n_param; i++)
		p->param[i].n_held = p->param[i].n_equal;
	return rc;
}

static int residual_put(struct wb__residual *res, uint64_t index, const uint8_t *elem, size_t bytes)
{
	struct wb__run *last = res->n ? &res->run[res->n - 1] : NULL;
	int rc;

	rc = wb_grow(&res->value, &res->value_cap, (res->n_value + 1) * bytes, SIZE_MAX / 2, 1);
	if (rc < 0)
		return rc;
	memcpy(res->value + res->n_value * bytes, elem, bytes);
	if (last && last->begin + last->n == index) {
		last->n++;
	} else {
		rc = wb_grow(&res->run, &res->cap, res->n + 1, SIZE_MAX / 64, sizeof(*res->run));
		if (rc < 0)
			return rc;
		res->run[res->n++] = (struct wb__run){index, 1, res->n_value};
	}
	res->n_value++;
	return 0;
}

static int residual_take(struct wb__param *a)
{
	const struct wb__geom *g = &a->geom;
	uint32_t raw = wb__const_raw(a->dtype, WB_PASS_CONST);
	uint8_t block[BLOCK_BYTES];
	int rc = 0;

	block_of(a, WB_PASS_CONST, block);
	for (uint64_t r = 0; r < g->rows_all && !rc; r++) {
		const uint8_t *row = a->data + wb__geom_row(g, r) * a->elem_bytes;

		if (count_equal(row, a->elem_bytes, block, g->cols) == g->cols)
			continue;
		for (uint64_t c = 0; c < g->cols && !rc; c++)
			if (wb__raw_at(row + c * a->elem_bytes, a->elem_bytes) != raw)
				rc = residual_put(&a->residual, r * g->cols + c,
					row + c * a->elem_bytes, a->elem_bytes);
	}
	return rc;
}

uint64_t wb__content_hash(const struct wb__param *a)
{
	const struct wb__geom *g = &a->geom;
	uint64_t h = 0;

	for (uint64_t r = 0; r < g->rows_all; r++)
		h = wb_hash64(
			a->data + wb__geom_row(g, r) * a->elem_bytes, g->cols * a->elem_bytes, h);
	return h;
}

static int first_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];

	if (a->dev || a->state != WB__ACTIVE || a->n_equal == a->geom.total)
		return 0;
	if (!a->n_equal && (!a->snapshot || wb__equals_snapshot(p, a))) {
		a->state = WB__LEFT;
		a->hash = wb__content_hash(a);
		return wb__region_whole(a, (uint32_t)task, WB_REGION_UNWRITTEN);
	}
	return residual_take(a);
}

int wb__classify_first(struct wb_probe *p)
{
	int rc = count_all(p, WB_PASS_CONST);

	if (!rc)
		rc = wb__parallel(p->threads, p->n_param, first_task, p);
	return rc < 0 ? rc : wb__dev_first(p);
}

void wb__prefill(struct wb__param *a)
{
	const struct wb__geom *g = &a->geom;

	for (uint64_t r = 0; r < g->rows_all; r++)
		wb__raw_fill(a->data + wb__geom_row(g, r) * a->elem_bytes, a->elem_bytes,
			wb__sentinel_raw(a->dtype), g->cols);
}

/* Walks the residual along with ascending indices. */
struct residual_at {
	const struct wb__residual *res;
	size_t run;
};

static uint64_t first_raw(const struct wb__param *a, struct residual_at *at, uint64_t index)
{
	const struct wb__residual *res = at->res;

	while (at->run < res->n && res->run[at->run].begin + res->run[at->run].n <= index)
		at->run++;
	if (at->run == res->n || res->run[at->run].begin > index)
		return wb__const_raw(a->dtype, WB_PASS_CONST);
	return wb__raw_at(res->value + (res->run[at->run].at + index - res->run[at->run].begin) *
					       a->elem_bytes,
		a->elem_bytes);
}

static void put_bad(struct wb__bad *b, uint64_t index)
{
	if (!b->n++)
		b->first = index;
	b->last = index;
}

static enum wb__class class_of(const struct wb__param *a, uint64_t index, uint64_t r0, uint64_t r1)
{
	if (r0 == wb__const_raw(a->dtype, WB_PASS_CONST) &&
		r1 == wb__const_raw(a->dtype, WB_PASS_CONST_B))
		return WB__COPY;
	/* With a snapshot, a constant that equals the sentinel can be told from an element that was
	 * not written. */
	if (r1 == wb__sentinel_raw(a->dtype) &&
		(!a->snapshot ||
			wb__raw_at(a->snapshot + index * a->elem_bytes, a->elem_bytes) == r0))
		return WB__UNWRITTEN;
	return r0 == r1 ? WB__CONSTANT : WB__ARITHMETIC;
}

/* Set the classes of one row.  If all of its elements are copies, one comparison finds that. */
static void class_row(struct wb__param *a, uint64_t row, const uint8_t *block,
	struct residual_at *at, struct wb__found *f)
{
	const struct wb__geom *g = &a->geom;
	const uint8_t *elem = a->data + wb__geom_row(g, row) * a->elem_bytes;
	uint64_t index = row * g->cols;

	first_raw(a, at, index); /* moves the walk to this row */
	if ((at->run == a->residual.n || a->residual.run[at->run].begin >= index + g->cols) &&
		count_equal(elem, a->elem_bytes, block, g->cols) == g->cols) {
		memset(a->cls + index, WB__COPY, g->cols);
		return;
	}
	for (uint64_t end = index + g->cols; index < end; index++, elem += a->elem_bytes) {
		uint64_t r0 = first_raw(a, at, index), r1 = wb__raw_at(elem, a->elem_bytes);
		bool is_once = r1 == wb__sentinel_raw(a->dtype) &&
			       r0 == wb__const_raw(a->dtype, WB_PASS_CONST);
		enum wb__class c = class_of(a, index, r0, r1);

		a->cls[index] = (uint8_t)c;
		if (is_once && (c == WB__ARITHMETIC || !a->snapshot))
			put_bad(&f->once, index);
		else if (c == WB__ARITHMETIC)
			put_bad(&f->arithmetic, index);
	}
}

bool wb__classify_judge(struct wb__param *a, const struct wb__found *f)
{
	const struct wb__bad *b = &f->arithmetic;
	char range[WB__RANGE_TEXT];

	if (b->n) {
		wb__fault(a, "%s (%" PRIu64 " elements): arithmetic on the value",
			wb__range_text(a, b->first, b->last, range), b->n);
		return true;
	}
	b = &f->once;
	if (b->n <= a->n_held)
		return false;
	wb__fault(a,
		"%s (%" PRIu64 " elements): written by the first call of load_weights and not by "
		"the second (it must do the same each time)",
		wb__range_text(a, b->first, b->last, range), b->n);
	return true;
}

void wb__classify_left(struct wb__param *a)
{
	wb__fault(a, "all %" PRIu64 " elements: %s", a->geom.total,
		a->has_snapshot ? "changed by the second call of load_weights and not by the "
				  "first (it must do the same each time)"
				: "arithmetic on the value");
}

static int second_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];
	const struct wb__geom *g = &a->geom;
	struct residual_at at = {&a->residual, 0};
	struct wb__found found = {0};
	uint8_t block[BLOCK_BYTES];

	if (a->dev)
		return 0;
	if (a->state == WB__LEFT && g->total && wb__content_hash(a) != a->hash)
		wb__classify_left(a);
	if (a->state != WB__ACTIVE || (a->n_equal == g->total && !a->residual.n))
		return 0;
	a->cls = wb_alloc(g->total);
	if (!a->cls)
		return -ENOMEM;
	block_of(a, WB_PASS_CONST_B, block);
	for (uint64_t r = 0; r < g->rows_all; r++)
		class_row(a, r, block, &at, &found);
	return wb__classify_judge(a, &found) ? 0 : wb__regions(p, a);
}

int wb__classify_second(struct wb_probe *p)
{
	int rc = count_all(p, WB_PASS_CONST_B);

	if (!rc)
		rc = wb__parallel(p->threads, p->n_param, second_task, p);
	return rc < 0 ? rc : wb__dev_second(p);
}
