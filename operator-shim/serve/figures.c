/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures for Prometheus: of the operator as a whole, and by object.
 *
 * Only a limited number of objects have series of their own; this is decided when an object comes.
 * All other objects share one series, whose labels are "other".  So a counter never decreases when
 * objects come and go, and nobody can make the page grow.  An object is counted anew only when it
 * has changed since the last page.
 */
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <stdio.h>
#include <string.h>

#define OTHER "other"

enum object_state { READY, NOT_READY, SUSPENDED, N_STATE };
enum engine_state { UPDATED, BEHIND, AT_REST, N_ENGINE };

static const char *const state_names[N_STATE] = {"Ready", "NotReady", "Suspended"};
/* An engine of a suspended object is behind on purpose, which should raise no alert: so it has a
 * state of its own. */
static const char *const engine_names[N_ENGINE] = {"Updated", "Behind", "Suspended"};

enum { ALL, OTHERS }; /* of wb_serve.figures */

static const char *first_label(const struct object *o)
{
	return o && o->has_series ? o->spec.namespace_ : OTHER;
}

static const char *second_label(const struct object *o)
{
	return o && o->has_series ? o->spec.name : OTHER;
}

/* An object gets series of its own only while its namespace has fewer of them than are free.  So
 * one tenant, with however many objects, cannot take them all. */
void wb__serve_name_series(struct wb_serve *s, struct object *o)
{
	const struct object *x;
	unsigned own = 0;

	for (x = TAILQ_FIRST(&s->series); x; x = TAILQ_NEXT(x, series))
		own += !strcmp(x->spec.namespace_, o->spec.namespace_);
	o->has_series = s->series_used < s->n_series && own < s->n_series - s->series_used;
	if (o->has_series) {
		TAILQ_INSERT_TAIL(&s->series, o, series);
		s->series_used++;
	}
	/* Start the counters at 0: Prometheus sees no increase in a series that begins with 1. */
	for (uint32_t i = 0; i < wb_result_words.n; i++)
		wb_metric_add(s->metrics, WB_SM_OBJECT_TRANSFERS,
			WB_LABELS(first_label(o), second_label(o), wb_word(&wb_result_words, i)),
			0);
}

static void forget_series(struct wb_serve *s, struct object *o)
{
	static const enum wb_serve_metric own[] = {WB_SM_OBJECT_STATE, WB_SM_OBJECT_ENGINES,
		WB_SM_OBJECT_WORKERS, WB_SM_OBJECT_TRANSFERS, WB_SM_OBJECT_BYTES,
		WB_SM_OBJECT_SECONDS};

	TAILQ_REMOVE(&s->series, o, series);
	s->series_used--;
	for (size_t i = 0; i < WB_ARRAY_SIZE(own); i++)
		wb_metric_forget(
			s->metrics, own[i], 2, WB_LABELS(o->spec.namespace_, o->spec.name));
}

void wb__serve_count_transfer(struct wb_serve *s, const struct object *o, const char *result)
{
	wb_metric_add(s->metrics, WB_SM_TRANSFERS, WB_LABELS(result), 1);
	wb_metric_add(s->metrics, WB_SM_OBJECT_TRANSFERS,
		WB_LABELS(first_label(o), second_label(o), result), 1);
}

void wb__serve_show_seconds(struct wb_serve *s, const struct object *o, double seconds)
{
	if (o->has_series) /* others share a series, which cannot say whose time it is */
		wb_metric_set(s->metrics, WB_SM_OBJECT_SECONDS,
			WB_LABELS(o->spec.namespace_, o->spec.name), seconds);
}

void wb__serve_count_bytes(
	struct wb_serve *s, const struct object *o, const char *stage, uint64_t bytes)
{
	wb_metric_add(s->metrics, WB_SM_BYTES, WB_LABELS(stage), (double)bytes);
	wb_metric_add(s->metrics, WB_SM_OBJECT_BYTES, WB_LABELS(first_label(o), second_label(o)),
		(double)bytes);
}

static bool is_ready(const json_t *status)
{
	const json_t *c;
	size_t k;

	json_array_foreach(json_object_get(status, "conditions"), k, c)
	{
		const char *type = json_string_value(json_object_get(c, "type"));
		const char *is = json_string_value(json_object_get(c, "status"));

		if (type && is && !strcmp(type, "Ready"))
			return !strcmp(is, "True");
	}
	return false;
}

static double number(const json_t *status, const char *field)
{
	return (double)json_integer_value(json_object_get(status, field));
}

static bool count(const struct object *o, struct figures *out)
{
	json_t *st = wb_reconcile_status(o->r);
	double updated = number(st, "updatedEngines");

	if (!st)
		return false; /* memory is short: the next page counts it */
	*out = (struct figures){.worker = number(st, "connectedWorkers")};
	out->state[o->spec.suspend ? SUSPENDED : is_ready(st) ? READY : NOT_READY] = 1;
	out->engine[UPDATED] = updated;
	out->engine[o->spec.suspend ? AT_REST : BEHIND] = number(st, "engineCount") - updated;
	json_decref(st);
	return true;
}

/* Figures are small whole numbers, so subtracting what was added leaves no rounding error. */
static void add(struct figures *to, const struct figures *f, int sign)
{
	for (unsigned i = 0; i < N_STATE; i++)
		to->state[i] += sign * f->state[i];
	for (unsigned i = 0; i < N_ENGINE; i++)
		to->engine[i] += sign * f->engine[i];
	to->worker += sign * f->worker;
}

static void replace(struct wb_serve *s, struct object *o, struct figures now)
{
	for (int i = ALL; i <= (o->has_series ? ALL : OTHERS); i++) {
		add(&s->figures[i], &o->figures, -1);
		add(&s->figures[i], &now, 1);
	}
	o->figures = now;
}

void wb__serve_stale(struct object *o)
{
	if (!o->is_stale)
		TAILQ_INSERT_TAIL(&o->s->stale, o, stale);
	o->is_stale = true;
}

static void take_stale(struct wb_serve *s, struct object *o)
{
	if (o->is_stale)
		TAILQ_REMOVE(&s->stale, o, stale);
	o->is_stale = false;
}

void wb__serve_forget_figures(struct wb_serve *s, struct object *o)
{
	take_stale(s, o);
	replace(s, o, (struct figures){.worker = 0});
	if (o->has_series)
		forget_series(s, o);
}

/* Set the metrics of @o; NULL = of all objects without series of their own together. */
static void show(struct wb_serve *s, const struct object *o, const struct figures *f)
{
	const char *ns = first_label(o), *name = second_label(o);

	for (unsigned i = 0; i < N_STATE; i++)
		wb_metric_set(s->metrics, WB_SM_OBJECT_STATE, WB_LABELS(ns, name, state_names[i]),
			f->state[i]);
	for (unsigned i = 0; i < N_ENGINE; i++)
		wb_metric_set(s->metrics, WB_SM_OBJECT_ENGINES,
			WB_LABELS(ns, name, engine_names[i]), f->engine[i]);
	wb_metric_set(s->metrics, WB_SM_OBJECT_WORKERS, WB_LABELS(ns, name), f->worker);
}

void wb_serve_metrics(struct wb_serve *s, struct wb_buf *out)
{
	const struct figures *all = &s->figures[ALL];
	struct object *o, *next;
	struct figures now;

	for (o = TAILQ_FIRST(&s->stale); o; o = next) {
		next = TAILQ_NEXT(o, stale);
		if (!count(o, &now))
			continue;
		take_stale(s, o);
		replace(s, o, now);
		if (o->has_series)
			show(s, o, &now);
	}
	show(s, NULL, &s->figures[OTHERS]);
	wb_metric_set(s->metrics, WB_SM_OBJECTS, NULL, (double)s->n_object);
	wb_metric_set(s->metrics, WB_SM_READY, NULL, all->state[READY]);
	wb_metric_set(s->metrics, WB_SM_SUSPENDED, NULL, all->state[SUSPENDED]);
	wb_metric_set(s->metrics, WB_SM_AGENTS, NULL, (double)wb_serve_n_agent(s));
	wb_metric_set(s->metrics, WB_SM_WORKERS, NULL, all->worker);
	wb_metric_set(s->metrics, WB_SM_ENGINES, NULL,
		all->engine[UPDATED] + all->engine[BEHIND] + all->engine[AT_REST]);
	wb_metric_set(s->metrics, WB_SM_ENGINES_UPDATED, NULL, all->engine[UPDATED]);
	wb__serve_budget_metrics(s);
	wb_metrics_write(s->metrics, out);
}
