/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

struct series {
	char *value[WB_METRIC_LABELS_MAX]; /* owned */
	double v; /* histograms: the sum */
	uint64_t count;
	uint64_t *bucket; /* owned; not cumulative; the last is +Inf */
};

struct metric {
	struct series *s; /* owned */
	size_t n, cap;
};

struct wb_metrics {
	const struct wb_metric *def;
	size_t n;
	struct metric *metric; /* owned */
};

static size_t n_bucket(const struct wb_metric *d)
{
	int n = d->log2_hi - d->log2_lo + 2;

	assert(n > 1);
	return (size_t)n;
}

static void finish_series(struct series *s)
{
	for (size_t i = 0; i < WB_METRIC_LABELS_MAX; i++)
		wb_free(s->value[i]);
	wb_free(s->bucket);
}

static bool is_series(const struct wb_metric *d, const struct series *s, const char *const *label)
{
	for (size_t i = 0; d->label[i]; i++)
		if (strcmp(s->value[i], label[i]) != 0)
			return false;
	return true;
}

static int fill_series(const struct wb_metric *d, const char *const *label, struct series *s)
{
	memset(s, 0, sizeof(*s));
	for (size_t i = 0; d->label[i]; i++) {
		s->value[i] = wb_strdup(label[i]);
		if (!s->value[i])
			return -ENOMEM;
	}
	if (d->type == WB_METRIC_HISTOGRAM) {
		s->bucket = wb_zalloc(n_bucket(d), sizeof(*s->bucket));
		if (!s->bucket)
			return -ENOMEM;
	}
	return 0;
}

static struct series *find(
	const struct wb_metrics *m, unsigned id, const char *const *label, bool make)
{
	static const char *const other[WB_METRIC_LABELS_MAX] = {"other", "other", "other", "other"};
	const struct wb_metric *d;
	struct metric *t;

	assert(id < m->n);
	d = &m->def[id];
	t = &m->metric[id];
	assert(!d->label[0] || label);
	for (size_t i = 0; i < t->n; i++)
		if (is_series(d, &t->s[i], label))
			return &t->s[i];
	if (!make)
		return NULL;
	if (t->n == WB_METRIC_SERIES_MAX - 1)
		label = other;
	else if (t->n == WB_METRIC_SERIES_MAX)
		return &t->s[t->n - 1];
	if (wb_grow(&t->s, &t->cap, t->n + 1, WB_METRIC_SERIES_MAX, sizeof(*t->s)) < 0)
		return NULL;
	if (fill_series(d, label, &t->s[t->n]) < 0) {
		finish_series(&t->s[t->n]);
		return NULL;
	}
	return &t->s[t->n++];
}

int wb_metrics_create(const struct wb_metric *table, size_t n, struct wb_metrics **out)
{
	struct wb_metrics *m = wb_zalloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->def = table;
	m->n = n;
	m->metric = wb_zalloc(n, sizeof(*m->metric));
	for (unsigned i = 0; m->metric && i < n; i++)
		if (!table[i].label[0] && !find(m, i, NULL, true)) {
			wb_metrics_destroy(m);
			return -ENOMEM;
		}
	if (!m->metric) {
		wb_free(m);
		return -ENOMEM;
	}
	*out = m;
	return 0;
}

void wb_metrics_destroy(struct wb_metrics *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++) {
		for (size_t k = 0; k < m->metric[i].n; k++)
			finish_series(&m->metric[i].s[k]);
		wb_free(m->metric[i].s);
	}
	wb_free(m->metric);
	wb_free(m);
}

void wb_metric_add(struct wb_metrics *m, unsigned id, const char *const *label, double v)
{
	struct series *s = find(m, id, label, true);

	if (s)
		s->v += v;
}

void wb_metric_set(struct wb_metrics *m, unsigned id, const char *const *label, double v)
{
	struct series *s = find(m, id, label, true);

	if (s)
		s->v = v;
}

void wb_metric_forget(struct wb_metrics *m, unsigned id, unsigned n_label, const char *const *label)
{
	struct metric *t = &m->metric[id];

	for (size_t i = t->n; i-- > 0;) {
		unsigned k = 0;

		while (k < n_label && !strcmp(t->s[i].value[k], label[k]))
			k++;
		if (k < n_label)
			continue;
		finish_series(&t->s[i]);
		t->s[i] = t->s[--t->n];
	}
}

/* 2^e for small e, without libm. */
static double power(int e)
{
	double v = 1;

	for (; e > 0; e--)
		v *= 2;
	for (; e < 0; e++)
		v /= 2;
	return v;
}

void wb_metric_observe(struct wb_metrics *m, unsigned id, const char *const *label, double v)
{
	const struct wb_metric *d = &m->def[id];
	struct series *s = find(m, id, label, true);
	double le = power(d->log2_lo);
	size_t b = 0;

	assert(d->type == WB_METRIC_HISTOGRAM);
	if (!s)
		return;
	for (; b < n_bucket(d) - 1 && !(v <= le); b++)
		le *= 2;
	s->bucket[b]++;
	s->count++;
	s->v += v;
}

double wb_metric_get(const struct wb_metrics *m, unsigned id, const char *const *label)
{
	const struct series *s = find(m, id, label, false);

	if (!s)
		return 0;
	return m->def[id].type == WB_METRIC_HISTOGRAM ? (double)s->count : s->v;
}

static void put_escaped(struct wb_buf *out, const char *s, bool is_label)
{
	for (; *s; s++) {
		if (*s == '\\')
			wb_buf_printf(out, "\\\\");
		else if (*s == '\n')
			wb_buf_printf(out, "\\n");
		else if (*s == '"' && is_label)
			wb_buf_printf(out, "\\\"");
		else
			wb_buf_u8(out, (uint8_t)*s);
	}
}

/* Writes name{labels}; @le is one more label, unless it is NULL. */
static void put_name(const struct wb_metric *d, const struct series *s, const char *suffix,
	const char *le, struct wb_buf *out)
{
	const char *sep = "{";

	wb_buf_printf(out, "%s%s", d->name, suffix);
	for (size_t i = 0; d->label[i]; i++) {
		wb_buf_printf(out, "%s%s=\"", sep, d->label[i]);
		put_escaped(out, s->value[i], true);
		wb_buf_u8(out, '"');
		sep = ",";
	}
	if (le)
		wb_buf_printf(out, "%sle=\"%s\"", sep, le);
	wb_buf_printf(out, "%s ", d->label[0] || le ? "}" : "");
}

static void put_histogram(const struct wb_metric *d, const struct series *s, struct wb_buf *out)
{
	double le = power(d->log2_lo);
	uint64_t sum = 0;
	char text[32];

	for (size_t b = 0; b < n_bucket(d); b++, le *= 2) {
		struct wb_buf num;

		wb_buf_init(&num, sizeof(text));
		wb_buf_printf(&num, "%.9g", le);
		sum += s->bucket[b];
		put_name(d, s, "_bucket", b == n_bucket(d) - 1 ? "+Inf" : wb_buf_cstr(&num), out);
		wb_buf_printf(out, "%llu\n", (unsigned long long)sum);
		wb_buf_finish(&num);
	}
	put_name(d, s, "_sum", NULL, out);
	wb_buf_printf(out, "%.17g\n", s->v);
	put_name(d, s, "_count", NULL, out);
	wb_buf_printf(out, "%llu\n", (unsigned long long)s->count);
}

void wb_metrics_write(const struct wb_metrics *m, struct wb_buf *out)
{
	static const char *const types[] = {"counter", "gauge", "histogram"};

	for (size_t i = 0; i < m->n; i++) {
		const struct wb_metric *d = &m->def[i];

		/* Metrics without a value are written too, so that readers learn which metrics
		 * there are. */
		wb_buf_printf(out, "# HELP %s ", d->name);
		put_escaped(out, d->help, false);
		wb_buf_printf(out, "\n# TYPE %s %s\n", d->name, types[d->type]);
		for (size_t k = 0; k < m->metric[i].n; k++) {
			const struct series *s = &m->metric[i].s[k];

			if (d->type == WB_METRIC_HISTOGRAM) {
				put_histogram(d, s, out);
				continue;
			}
			put_name(d, s, "", NULL, out);
			wb_buf_printf(out, "%.17g\n", s->v);
		}
	}
}
