/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/turns.h"

#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* A namespace with entries that wait. */
struct wb_kube_lane {
	struct wb_kube_lane *after, *ahead; /* ring */
	struct wb_kube_turn *first, *last;
	uint64_t hash;
	char ns[];
};

static struct wb_kube_lane *find_lane(const struct wb_kube_turns *t, const char *ns, uint64_t hash)
{
	struct wb_kube_lane *l = t->last;

	if (!l)
		return NULL;
	do {
		if (l->hash == hash && !strcmp(l->ns, ns))
			return l;
		l = l->after;
	} while (l != t->last);
	return NULL;
}

/* Add a namespace at the end of the ring, so its first turn comes after those of all others. */
static struct wb_kube_lane *make_lane(struct wb_kube_turns *t, const char *ns, uint64_t hash)
{
	size_t n = strlen(ns) + 1;
	struct wb_kube_lane *l = wb_zalloc(1, sizeof(*l) + n);

	if (!l)
		return NULL;
	memcpy(l->ns, ns, n);
	l->hash = hash;
	l->ahead = t->last ? t->last : l;
	l->after = t->last ? t->last->after : l;
	l->ahead->after = l;
	l->after->ahead = l;
	t->last = l;
	t->n_lane++;
	return l;
}

static void drop_lane(struct wb_kube_turns *t, struct wb_kube_lane *l)
{
	l->ahead->after = l->after;
	l->after->ahead = l->ahead;
	if (t->last == l)
		t->last = l->ahead == l ? NULL : l->ahead;
	t->n_lane--;
	wb_free(l);
}

int wb_kube_turns_push(struct wb_kube_turns *t, const char *ns, struct wb_kube_turn *e)
{
	uint64_t hash = wb_hash64(ns, strlen(ns), 0);
	struct wb_kube_lane *l;

	if (e->lane)
		return 0;
	l = find_lane(t, ns, hash);
	if (!l)
		l = make_lane(t, ns, hash);
	if (!l)
		return -ENOMEM;
	*e = (struct wb_kube_turn){NULL, l->last, l};
	if (l->last)
		l->last->next = e;
	else
		l->first = e;
	l->last = e;
	t->n++;
	return 0;
}

struct wb_kube_turn *wb_kube_turns_pop(struct wb_kube_turns *t)
{
	struct wb_kube_turn *e;

	if (!t->last)
		return NULL;
	t->last = t->last->after; /* its turn is now, so its next one comes last */
	e = t->last->first;
	wb_kube_turns_remove(t, e);
	return e;
}

void wb_kube_turns_remove(struct wb_kube_turns *t, struct wb_kube_turn *e)
{
	struct wb_kube_lane *l = e->lane;

	if (!l)
		return;
	if (e->before)
		e->before->next = e->next;
	else
		l->first = e->next;
	if (e->next)
		e->next->before = e->before;
	else
		l->last = e->before;
	*e = (struct wb_kube_turn){0};
	t->n--;
	if (!l->first)
		drop_lane(t, l);
}

void wb_kube_turns_finish(struct wb_kube_turns *t)
{
	while (wb_kube_turns_pop(t))
		;
}
