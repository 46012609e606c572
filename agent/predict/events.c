/* SPDX-License-Identifier: Apache-2.0 */
/* Events to come: a heap, ordered by time, and by order of arrival where times are equal. */
#include "predict/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>

#define EVENTS_MAX ((size_t)1 << 28)

static bool before(const struct event *a, const struct event *b)
{
	if (a->s < b->s || a->s > b->s)
		return a->s < b->s;
	return a->order < b->order;
}

int wb__predict_reserve(struct model *m, size_t n)
{
	int rc = wb_grow(
		&m->heap, &m->cap_heap, m->n_reserved + n, EVENTS_MAX, sizeof(struct event));

	if (rc < 0)
		return -ENOMEM;
	m->n_reserved += n;
	return 0;
}

void wb__predict_unreserve(struct model *m, size_t n)
{
	assert(m->n_reserved >= n);
	m->n_reserved -= n;
}

void wb__predict_at(struct model *m, double s, enum event_kind kind, uint32_t at, void *p)
{
	struct event e = {s, m->order++, kind, at, p};
	size_t i = m->n_heap++;

	assert(m->n_heap <= m->n_reserved);
	for (; i && before(&e, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
		m->heap[i] = m->heap[(i - 1) / 2];
	m->heap[i] = e;
}

bool wb__predict_next(struct model *m, struct event *out)
{
	struct event last;
	size_t i = 0, child;

	if (!m->n_heap)
		return false;
	*out = m->heap[0];
	m->now = out->s;
	last = m->heap[--m->n_heap];
	for (; (child = 2 * i + 1) < m->n_heap; i = child) {
		if (child + 1 < m->n_heap && before(&m->heap[child + 1], &m->heap[child]))
			child++;
		if (!before(&m->heap[child], &last))
			break;
		m->heap[i] = m->heap[child];
	}
	m->heap[i] = last;
	return true;
}
