/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dues.h"

#include <stddef.h>

/* Merges two heaps: the root that is due later becomes a child of the other root. */
static struct wb_due *join(struct wb_due *a, struct wb_due *b)
{
	struct wb_due *first = b->at_ns < a->at_ns ? b : a, *other = first == a ? b : a;

	other->next = first->child;
	if (other->next)
		other->next->before = other;
	other->before = first;
	first->child = other;
	return first;
}

/* Takes the first heap out of a list of heaps; NULL when the list is empty. */
static struct wb_due *take_head(struct wb_due **list)
{
	struct wb_due *e = *list;

	if (!e)
		return NULL;
	*list = e->next;
	e->next = e->before = NULL;
	return e;
}

/* Merges a list of heaps: neighbours in pairs, then the pairs.  This order is what makes taking an
 * entry out cost log n. */
static struct wb_due *join_all(struct wb_due *list)
{
	struct wb_due *pairs = NULL, *all = NULL, *a, *b;

	while ((a = take_head(&list))) {
		b = take_head(&list);
		if (b)
			a = join(a, b);
		a->next = pairs;
		pairs = a;
	}
	while ((a = take_head(&pairs)))
		all = all ? join(all, a) : a;
	return all;
}

static void take_out(struct wb_dues *d, struct wb_due *e)
{
	struct wb_due *rest = join_all(e->child);

	if (e == d->first) {
		d->first = rest;
	} else {
		if (e->before->child == e)
			e->before->child = e->next;
		else
			e->before->next = e->next;
		if (e->next)
			e->next->before = e->before;
		if (rest)
			d->first = join(d->first, rest);
	}
	*e = (struct wb_due){0};
}

void wb_dues_set(struct wb_dues *d, struct wb_due *e, uint64_t at_ns)
{
	if (e->is_in && e->at_ns == at_ns)
		return;
	if (e->is_in)
		take_out(d, e);
	if (at_ns == WB_NEVER)
		return;
	*e = (struct wb_due){.at_ns = at_ns, .is_in = true};
	d->first = d->first ? join(d->first, e) : e;
}

struct wb_due *wb_dues_take(struct wb_dues *d, uint64_t now_ns)
{
	struct wb_due *e = d->first;

	if (!e || e->at_ns > now_ns)
		return NULL;
	take_out(d, e);
	return e;
}
