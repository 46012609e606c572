/* SPDX-License-Identifier: Apache-2.0 */
#include "net/places.h"

/* An address has far more if it has so many times what the newcomer's address would have: it takes
 * all places, and is not merely unlucky. */
#define FAR_MORE 4

void wb__places_init(struct wb__places *s, uint32_t n_max, uint32_t source_max)
{
	*s = (struct wb__places){.n_max = n_max, .source_max = source_max};
	s->tail = &s->first;
}

static uint32_t count(const struct wb__places *s, const struct wb__source *source)
{
	uint32_t n = 0;

	for (const struct wb__place *p = s->first; p; p = p->next)
		n += wb__source_equal(&p->source, source);
	return n;
}

enum who { LATE, SILENT, ANY }; /* have had their time; or are not firm either; all */

/* The oldest place of @source that may go (@source NULL: of all addresses that have at least
 * @at_least places). */
static struct wb__place *oldest(const struct wb__places *s, const struct wb__source *source,
	uint32_t at_least, enum who who, uint64_t now_ns)
{
	for (struct wb__place *p = s->first; p; p = p->next) {
		if (source && !wb__source_equal(&p->source, source))
			continue;
		if (now_ns - p->since_ns <= p->patience_ns && (who < SILENT || p->is_firm) &&
			who < ANY)
			continue;
		if (source || count(s, &p->source) >= at_least)
			return p;
	}
	return NULL;
}

static const struct wb__source *greediest(const struct wb__places *s, uint32_t *n_out)
{
	const struct wb__source *found = NULL;

	*n_out = 0;
	for (const struct wb__place *p = s->first; p; p = p->next) {
		uint32_t n = count(s, &p->source);

		if (n <= *n_out)
			continue;
		*n_out = n;
		found = &p->source;
	}
	return found;
}

bool wb__places_room(const struct wb__places *s, const struct wb__source *source, uint64_t now_ns,
	struct wb__place **out)
{
	const struct wb__source *from;
	uint32_t n, most;

	*out = NULL;
	if (s->n < s->source_max && s->n < s->n_max)
		return true;
	n = count(s, source);
	if (n >= s->source_max && !wb__source_is_here(source)) {
		*out = oldest(s, source, 0, LATE, now_ns);
		return *out != NULL;
	}
	if (s->n < s->n_max)
		return true;
	from = greediest(s, &most);
	*out = oldest(s, most > n ? from : source, 0, most > n + 1 ? SILENT : LATE, now_ns);
	if (!*out)
		*out = oldest(s, NULL, n + 1, LATE, now_ns);
	if (!*out && most >= FAR_MORE * (n + 1))
		*out = oldest(s, from, 0, ANY, now_ns);
	return *out != NULL;
}

void wb__place_take(struct wb__places *s, struct wb__place *p)
{
	p->next = NULL;
	p->prev = s->tail;
	*p->prev = p;
	s->tail = &p->next;
	s->n++;
}

void wb__place_leave(struct wb__places *s, struct wb__place *p)
{
	if (!p->prev)
		return;
	*p->prev = p->next;
	*(p->next ? &p->next->prev : &s->tail) = p->prev;
	p->prev = NULL;
	s->n--;
}
