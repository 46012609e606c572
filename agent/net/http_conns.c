/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_conns.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>

#define CONNS_MAX 64
#define SOURCE_MAX 16 /* a scraper, probes and some people behind one address */
#define REQUEST_NS (5 * WB_NS_PER_S)
#define REPLY_NS (60 * WB_NS_PER_S)
#define SLOW_NS (100 * WB_NS_PER_MS) /* who means to ask has done so by then */

void wb__http_conns_init(struct wb__http_conns *s, const struct wb_http_opts *o)
{
	*s = (struct wb__http_conns){.n_max = o->conns_max ? o->conns_max : CONNS_MAX,
		.source_max = o->source_max ? o->source_max : SOURCE_MAX,
		.request_ns = o->request_ns ? o->request_ns : REQUEST_NS,
		.reply_ns = o->reply_ns ? o->reply_ns : REPLY_NS};
	s->tail = &s->first;
}

/* NULL: of all. */
static uint32_t count(const struct wb__http_conns *s, const struct wb__source *source)
{
	uint32_t n = 0;

	for (const struct wb__http_conn *c = s->first; c; c = c->next)
		n += !c->is_cut && (!source || wb__source_equal(&c->source, source));
	return n;
}

/* It had its time: to ask, or, with the answer before it, to take it. */
static bool is_slow(const struct wb__http_conns *s, const struct wb__http_conn *c, uint64_t now_ns)
{
	return !c->held && now_ns - c->since_ns > (c->is_asked ? s->request_ns : SLOW_NS);
}

/* The oldest of @source (NULL: of all) that may go; @any: also one that has just come. */
static struct wb__http_conn *oldest(
	const struct wb__http_conns *s, const struct wb__source *source, bool any, uint64_t now_ns)
{
	for (struct wb__http_conn *c = s->first; c; c = c->next) {
		if (c->is_cut || (source && !wb__source_equal(&c->source, source)))
			continue;
		if (is_slow(s, c, now_ns) || (any && !c->is_asked))
			return c;
	}
	return NULL;
}

static const struct wb__source *greediest(const struct wb__http_conns *s, uint32_t *n_out)
{
	const struct wb__source *found = NULL;

	*n_out = 0;
	for (const struct wb__http_conn *c = s->first; c; c = c->next) {
		uint32_t n = c->is_cut ? 0 : count(s, &c->source);

		if (n <= *n_out)
			continue;
		*n_out = n;
		found = &c->source;
	}
	return found;
}

bool wb__http_conns_room(const struct wb__http_conns *s, const struct wb__source *source,
	uint64_t now_ns, struct wb__http_conn **out)
{
	uint32_t n = count(s, source), most;
	const struct wb__source *from;

	*out = NULL;
	if (n >= s->source_max && !wb__source_is_here(source)) {
		*out = oldest(s, source, false, now_ns);
		return *out != NULL;
	}
	if (count(s, NULL) < s->n_max)
		return true;
	from = greediest(s, &most);
	*out = oldest(s, from, most > n + 1, now_ns);
	if (!*out)
		*out = oldest(s, NULL, false, now_ns);
	return *out != NULL;
}

int wb__http_conn_add(struct wb__http_conns *s, const struct wb__source *source, int fd,
	uint64_t now_ns, struct wb__http_conn **out)
{
	struct wb__http_conn *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->of = s;
	c->source = *source;
	c->fd = fd;
	c->since_ns = now_ns;
	c->due_ns = now_ns + s->request_ns;
	c->prev = s->tail;
	*c->prev = c;
	s->tail = &c->next;
	*out = c;
	return 0;
}

void wb__http_conn_asked(struct wb__http_conn *c, uint64_t now_ns)
{
	c->is_asked = true;
	c->since_ns = now_ns;
	c->due_ns = now_ns + c->of->reply_ns;
}

void wb__http_conn_cut(struct wb__http_conn *c)
{
	c->is_cut = true;
	(void)shutdown(c->fd, SHUT_RDWR);
}

void wb__http_conn_free(struct wb__http_conn *c)
{
	*c->prev = c->next;
	*(c->next ? &c->next->prev : &c->of->tail) = c->prev;
	wb_free(c);
}

uint64_t wb__http_conns_late(struct wb__http_conns *s, uint64_t now_ns, uint32_t *n_cut)
{
	uint64_t next = UINT64_MAX;

	*n_cut = 0;
	for (struct wb__http_conn *c = s->first; c; c = c->next) {
		if (c->is_cut)
			continue;
		if (now_ns >= c->due_ns) {
			wb__http_conn_cut(c);
			++*n_cut;
		} else {
			next = WB_MIN(next, c->due_ns);
		}
	}
	return next;
}
