/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/lists.h"

#include "base/base.h"
#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>

#define OUT (UINT32_MAX - 1) /* not in a ring */

int wb_turns_init(struct wb_turns *r, uint32_t cap)
{
	*r = (struct wb_turns){.head = LIST_NONE, .tail = LIST_NONE};
	r->next = wb_alloc(cap * sizeof(*r->next));
	if (!r->next)
		return -ENOMEM;
	for (uint32_t i = 0; i < cap; i++)
		r->next[i] = OUT;
	return 0;
}

void wb_turns_finish(struct wb_turns *r)
{
	wb_free(r->next);
	r->next = NULL;
}

void wb_turns_add(struct wb_turns *r, uint32_t member)
{
	assert((r->tail == LIST_NONE) == !r->n);
	if (r->next[member] != OUT)
		return;
	r->next[member] = LIST_NONE;
	if (r->tail == LIST_NONE)
		r->head = member;
	else
		r->next[r->tail] = member;
	r->tail = member;
	r->n++;
}

uint32_t wb_turns_take(struct wb_turns *r)
{
	uint32_t member = r->head;

	if (member == LIST_NONE)
		return member;
	assert(r->n && r->next[member] != OUT);
	r->head = r->next[member];
	if (r->head == LIST_NONE)
		r->tail = LIST_NONE;
	r->next[member] = OUT;
	r->n--;
	return member;
}

int wb_least_init(struct wb_least *h, uint32_t cap)
{
	*h = (struct wb_least){.cap = cap};
	h->at = wb_alloc(cap * sizeof(*h->at));
	return h->at ? 0 : -ENOMEM;
}

void wb_least_finish(struct wb_least *h)
{
	wb_free(h->at);
	*h = (struct wb_least){0};
}

static bool is_less(const struct wb_ranked *a, const struct wb_ranked *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->member < b->member;
}

void wb_least_add(struct wb_least *h, uint32_t member, uint64_t rank)
{
	struct wb_ranked new = {rank, member};
	uint32_t i = h->n++;

	assert(i < h->cap);
	for (; i && is_less(&new, &h->at[(i - 1) / 2]); i = (i - 1) / 2)
		h->at[i] = h->at[(i - 1) / 2];
	h->at[i] = new;
}

uint32_t wb_least_take(struct wb_least *h)
{
	struct wb_ranked last;
	uint32_t i = 0, member;

	if (!h->n)
		return LIST_NONE;
	member = h->at[0].member;
	last = h->at[--h->n];
	for (;;) {
		uint32_t c = 2 * i + 1;

		c += c + 1 < h->n && is_less(&h->at[c + 1], &h->at[c]);
		if (c >= h->n || !is_less(&h->at[c], &last))
			break;
		h->at[i] = h->at[c];
		i = c;
	}
	h->at[i] = last;
	return member;
}

int wb_keyed_init(struct wb_keyed *t, uint32_t cap)
{
	uint32_t n = 16;

	while (n < cap && n < 1u << 31)
		n *= 2;
	*t = (struct wb_keyed){.mask = n - 1, .oldest = LIST_NONE, .newest = LIST_NONE};
	t->bucket = wb_alloc(n * sizeof(*t->bucket));
	t->entry = wb_zalloc(cap, sizeof(*t->entry));
	if (!t->bucket || !t->entry)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		t->bucket[i] = (struct wb_bucket){LIST_NONE, LIST_NONE};
	return 0;
}

void wb_keyed_finish(struct wb_keyed *t)
{
	wb_free(t->bucket);
	wb_free(t->entry);
	*t = (struct wb_keyed){0};
}

static struct wb_bucket *bucket_of(const struct wb_keyed *t, uint64_t key)
{
	return &t->bucket[wb_mix64(key) & t->mask];
}

void wb_keyed_add(struct wb_keyed *t, uint32_t member, uint64_t key)
{
	struct wb_bucket *b = bucket_of(t, key);
	struct wb_entry *e = &t->entry[member];

	assert(!e->is_in && (t->oldest == LIST_NONE) == !t->n);
	*e = (struct wb_entry){.key = key,
		.next = LIST_NONE,
		.prev = b->tail,
		.later = LIST_NONE,
		.earlier = t->newest,
		.is_in = true};
	*(b->tail == LIST_NONE ? &b->head : &t->entry[b->tail].next) = member;
	b->tail = member;
	*(t->newest == LIST_NONE ? &t->oldest : &t->entry[t->newest].later) = member;
	t->newest = member;
	t->n++;
}

void wb_keyed_remove(struct wb_keyed *t, uint32_t member)
{
	struct wb_entry *e = &t->entry[member];
	struct wb_bucket *b = bucket_of(t, e->key);

	assert(e->is_in && t->n && (b->head == member) == (e->prev == LIST_NONE));
	*(e->prev == LIST_NONE ? &b->head : &t->entry[e->prev].next) = e->next;
	*(e->next == LIST_NONE ? &b->tail : &t->entry[e->next].prev) = e->prev;
	*(e->earlier == LIST_NONE ? &t->oldest : &t->entry[e->earlier].later) = e->later;
	*(e->later == LIST_NONE ? &t->newest : &t->entry[e->later].earlier) = e->earlier;
	e->is_in = false;
	t->n--;
}

static uint32_t find(const struct wb_keyed *t, uint32_t at, uint64_t key)
{
	while (at != LIST_NONE && t->entry[at].key != key)
		at = t->entry[at].next;
	return at;
}

uint32_t wb_keyed_first(const struct wb_keyed *t, uint64_t key)
{
	return find(t, bucket_of(t, key)->head, key);
}

uint32_t wb_keyed_next(const struct wb_keyed *t, uint32_t member)
{
	return find(t, t->entry[member].next, t->entry[member].key);
}

uint32_t wb_keyed_take(struct wb_keyed *t, uint64_t key)
{
	uint32_t member = wb_keyed_first(t, key);

	if (member != LIST_NONE)
		wb_keyed_remove(t, member);
	return member;
}

uint32_t wb_keyed_oldest(const struct wb_keyed *t)
{
	return t->oldest;
}

uint32_t wb_keyed_later(const struct wb_keyed *t, uint32_t member)
{
	assert(t->entry[member].is_in);
	return t->entry[member].later;
}
