/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/series.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GAP_MIN_NS (5 * WB_NS_PER_S)
#define GAP_MAX_NS (60 * WB_NS_PER_S)
#define QUIET_NS (600 * WB_NS_PER_S) /* a series that was quiet for so long is over */
#define TOKEN_NS (60 * WB_NS_PER_S / WB_KUBE_SERIES_PER_MIN)
#define SPACES_MAX (1u << 20)

struct series {
	uint64_t id;
	const char *api, *kind, *reason; /* static */
	char *name, *uid, *about, *note; /* owned */
	char event[232];
	uint64_t count, told,
		sending; /* occurrences: all; known to the API server; in a write now */
	uint64_t first_wall_ns, last_wall_ns, last_ns;
	uint64_t next_ns, gap_ns; /* earliest time of the next write; the wait that leads to it */
	bool is_posted, is_writing;
};

/* A namespace. */
struct space {
	char *ns; /* owned */
	uint64_t hash;
	struct series **series; /* owned */
	size_t n, cap;
	uint32_t tokens;
	uint64_t filled_ns;
};

struct wb_kube_series {
	struct space *space; /* owned */
	size_t n, cap, turn;
	uint64_t last_id, swept_ns;
};

struct wb_kube_series *wb_kube_series_create(void)
{
	return wb_zalloc(1, sizeof(struct wb_kube_series));
}

static void free_series(struct series *e)
{
	if (!e)
		return;
	wb_free(e->name);
	wb_free(e->uid);
	wb_free(e->about);
	wb_free(e->note);
	wb_free(e);
}

static void drop(struct space *p, size_t i)
{
	free_series(p->series[i]);
	p->series[i] = p->series[--p->n];
}

static void finish_space(struct space *p)
{
	while (p->n)
		drop(p, p->n - 1);
	wb_free(p->series);
	wb_free(p->ns);
}

void wb_kube_series_destroy(struct wb_kube_series *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		finish_space(&s->space[i]);
	wb_free(s->space);
	wb_free(s);
}

/* ---- series and namespaces ---- */

static bool is_pending(const struct series *e)
{
	return e->count != e->told;
}

static bool is_over(const struct series *e, uint64_t now)
{
	return !is_pending(e) && !e->is_writing && now - e->last_ns > QUIET_NS;
}

static void refill(struct space *p, uint64_t now)
{
	uint64_t got = (now - p->filled_ns) / TOKEN_NS;

	if (p->tokens + got >= WB_KUBE_SERIES_BURST) {
		p->tokens = WB_KUBE_SERIES_BURST;
		p->filled_ns = now;
		return;
	}
	p->tokens += (uint32_t)got;
	p->filled_ns += got * TOKEN_NS;
}

/* Drop series that are over, and namespaces that have no series left and all of their budget. */
static void sweep(struct wb_kube_series *s, uint64_t now)
{
	if (now - s->swept_ns < QUIET_NS)
		return;
	s->swept_ns = now;
	for (size_t k = s->n; k-- > 0;) {
		struct space *p = &s->space[k];

		for (size_t i = p->n; i-- > 0;)
			if (is_over(p->series[i], now))
				drop(p, i);
		refill(p, now);
		if (p->n || p->tokens < WB_KUBE_SERIES_BURST)
			continue;
		finish_space(p);
		*p = s->space[--s->n];
	}
}

static struct space *get_space(struct wb_kube_series *s, uint64_t now, const char *ns)
{
	uint64_t hash = wb_hash64(ns, strlen(ns), 0);
	struct space *p;

	for (size_t i = 0; i < s->n; i++)
		if (s->space[i].hash == hash && !strcmp(s->space[i].ns, ns))
			return &s->space[i];
	if (wb_grow(&s->space, &s->cap, s->n + 1, SPACES_MAX, sizeof(*s->space)) < 0)
		return NULL;
	p = &s->space[s->n];
	*p = (struct space){.ns = wb_strdup(ns),
		.hash = hash,
		.tokens = WB_KUBE_SERIES_BURST,
		.filled_ns = now};
	if (!p->ns)
		return NULL;
	s->n++;
	return p;
}

static bool is_alike(const struct series *e, const struct wb_kube_occurrence *o)
{
	return !strcmp(e->reason, o->reason) && !strcmp(e->uid, o->uid) &&
	       !strcmp(e->kind, o->kind) && !strcmp(e->name, o->name);
}

/* The series of @o; NULL = none yet.  When WB_KUBE_ABOUT_MAX other things have a series already,
 * *@about becomes "", and the series is the one that all further things share. */
static struct series *find(
	const struct space *p, const struct wb_kube_occurrence *o, const char **about)
{
	struct series *shared = NULL;
	unsigned n = 0;

	for (size_t i = 0; i < p->n; i++) {
		struct series *e = p->series[i];

		if (!is_alike(e, o))
			continue;
		if (!strcmp(e->about, o->about))
			return e;
		if (!*e->about)
			shared = e;
		else
			n++;
	}
	if (n < WB_KUBE_ABOUT_MAX)
		return NULL;
	*about = "";
	return shared;
}

/* ---- occurrences ---- */

static void name_event(struct series *e, uint64_t unique)
{
	int n = (int)strnlen(e->name, 200);

	while (n && (e->name[n - 1] == '.' || e->name[n - 1] == '-'))
		n--; /* followed by a dot, it would be an invalid name */
	snprintf(
		e->event, sizeof(e->event), "%.*s.%016llx", n, e->name, (unsigned long long)unique);
}

/* Begin another Event, for the occurrences that the API server does not know yet. */
static void begin(struct series *e, uint64_t now, uint64_t wall, uint64_t unique)
{
	e->count -= e->told;
	e->told = 0;
	e->is_posted = false;
	e->first_wall_ns = wall;
	e->next_ns = now;
	e->gap_ns = 0;
	name_event(e, unique);
}

/* Make room for one more series.  If there is none, drop the series that has been quiet for longest
 * among those that have nothing to write. */
static bool make_room(struct space *p)
{
	size_t oldest = SIZE_MAX;

	if (p->n < WB_KUBE_SERIES_MAX)
		return true;
	for (size_t i = 0; i < p->n; i++)
		if (!is_pending(p->series[i]) && !p->series[i]->is_writing &&
			(oldest == SIZE_MAX || p->series[i]->last_ns < p->series[oldest]->last_ns))
			oldest = i;
	if (oldest == SIZE_MAX)
		return false;
	drop(p, oldest);
	return true;
}

static int make(struct wb_kube_series *s, struct space *p, const struct wb_kube_occurrence *o,
	const char *about, struct series **out)
{
	struct series *e;

	if (!make_room(p))
		return -ENOBUFS;
	if (wb_grow(&p->series, &p->cap, p->n + 1, WB_KUBE_SERIES_MAX, sizeof(*p->series)) < 0)
		return -ENOMEM;
	e = wb_zalloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	*e = (struct series){.id = ++s->last_id,
		.api = o->api,
		.kind = o->kind,
		.reason = o->reason,
		.name = wb_strdup(o->name),
		.uid = wb_strdup(o->uid),
		.about = wb_strdup(about)};
	if (!e->name || !e->uid || !e->about) {
		free_series(e);
		return -ENOMEM;
	}
	p->series[p->n++] = e;
	*out = e;
	return 0;
}

int wb_kube_series_add(struct wb_kube_series *s, uint64_t now_ns, uint64_t wall_ns, uint64_t unique,
	const struct wb_kube_occurrence *o)
{
	const char *about = o->about;
	struct space *p;
	struct series *e;
	char *note;
	int rc = 0;

	sweep(s, now_ns);
	p = get_space(s, now_ns, o->ns);
	if (!p)
		return -ENOMEM;
	e = find(p, o, &about);
	if (!e)
		rc = make(s, p, o, about, &e);
	if (rc < 0)
		return rc;
	note = wb_strdup(o->note);
	if (!note)
		return -ENOMEM;
	wb_free(e->note);
	e->note = wb_utf8_mend(note); /* it may have been cut inside a character */
	if (!e->count || is_over(e, now_ns))
		begin(e, now_ns, wall_ns, unique);
	else if (now_ns - e->last_ns > GAP_MAX_NS)
		e->next_ns = e->gap_ns = 0; /* after a quiet minute, write it at once */
	e->count++;
	e->last_ns = now_ns;
	e->last_wall_ns = wall_ns;
	return 0;
}

/* ---- what to write ---- */

static bool is_due(const struct series *e, uint64_t now)
{
	return is_pending(e) && !e->is_writing && e->next_ns <= now;
}

/* The series that has been due for the longest time. */
static struct series *pick(const struct space *p, uint64_t now)
{
	struct series *best = NULL;

	for (size_t i = 0; i < p->n; i++)
		if (is_due(p->series[i], now) && (!best || p->series[i]->next_ns < best->next_ns))
			best = p->series[i];
	return best;
}

bool wb_kube_series_next(
	struct wb_kube_series *s, uint64_t now_ns, struct wb_kube_series_write *out)
{
	for (size_t i = 0; i < s->n; i++) {
		struct space *p = &s->space[(s->turn + i) % s->n];
		struct series *e;

		refill(p, now_ns);
		e = p->tokens ? pick(p, now_ns) : NULL;
		if (!e)
			continue;
		p->tokens--;
		s->turn = (s->turn + i + 1) % s->n;
		e->is_writing = true;
		e->sending = e->count;
		*out = (struct wb_kube_series_write){.id = e->id,
			.is_new = !e->is_posted,
			.event = e->event,
			.of = {e->api, e->kind, p->ns, e->name, e->uid, e->reason, e->about,
				e->note},
			.count = e->count,
			.first_wall_ns = e->first_wall_ns,
			.last_wall_ns = e->last_wall_ns};
		return true;
	}
	return false;
}

static struct series *by_id(const struct wb_kube_series *s, uint64_t id)
{
	for (size_t k = 0; k < s->n; k++)
		for (size_t i = 0; i < s->space[k].n; i++)
			if (s->space[k].series[i]->id == id)
				return s->space[k].series[i];
	return NULL;
}

void wb_kube_series_wrote(
	struct wb_kube_series *s, uint64_t now_ns, uint64_t id, enum wb_kube_written how)
{
	struct series *e = by_id(s, id);

	if (!e || !e->is_writing)
		return;
	e->is_writing = false;
	if (how == WB_KUBE_VANISHED) {
		begin(e, now_ns, e->last_wall_ns, wb_mix64(e->id ^ now_ns));
		return;
	}
	if (how == WB_KUBE_IS_THERE) { /* it is ours: nobody else makes such names */
		e->is_posted = true;
		e->next_ns = now_ns;
		return;
	}
	e->told = e->sending;
	e->is_posted |= how == WB_KUBE_WRITTEN;
	e->gap_ns = e->gap_ns ? WB_MIN(2 * e->gap_ns, GAP_MAX_NS) : GAP_MIN_NS;
	e->next_ns = now_ns + e->gap_ns;
}

static uint64_t due_of(const struct space *p)
{
	uint64_t due = UINT64_MAX;

	for (size_t i = 0; i < p->n; i++)
		if (is_pending(p->series[i]) && !p->series[i]->is_writing)
			due = WB_MIN(due, p->series[i]->next_ns);
	return due == UINT64_MAX || p->tokens ? due : WB_MAX(due, p->filled_ns + TOKEN_NS);
}

uint64_t wb_kube_series_due(const struct wb_kube_series *s, uint64_t now_ns)
{
	uint64_t due = UINT64_MAX;

	for (size_t i = 0; i < s->n && due > now_ns; i++)
		due = WB_MIN(due, due_of(&s->space[i]));
	return due;
}

size_t wb_kube_series_count(const struct wb_kube_series *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->space[i].n;
	return n;
}
