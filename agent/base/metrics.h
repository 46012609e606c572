/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_METRICS_H
#define WB_BASE_METRICS_H
/*
 * Counters, gauges and histograms, written as Prometheus text.
 *
 * A program has one static table of metrics; a metric's number is its row.  Names follow
 * wb_<noun>_<unit>_total, base units (seconds, bytes); labels come from small sets, never from
 * names of peers or versions.  A histogram has buckets at powers of two.
 * Threads: one (the loop).  Other threads keep their own counts, which the loop writes here when
 * metrics are asked for.  Layer: base (L0).
 */
#include <stddef.h>
#include <stdint.h>

struct wb_buf;
struct wb_metrics; /* opaque */

enum wb_metric_type { WB_METRIC_COUNTER, WB_METRIC_GAUGE, WB_METRIC_HISTOGRAM };

#define WB_METRIC_LABELS_MAX 4
#define WB_METRIC_SERIES_MAX 1024 /* of one metric; more are counted into one, all "other" */

struct wb_metric {
	const char *name, *help;
	enum wb_metric_type type;
	const char *label[WB_METRIC_LABELS_MAX + 1]; /* names, ended by NULL */
	int8_t log2_lo, log2_hi; /* histograms: first and last bucket, powers of two */
};

/** wb_metrics_create - @table is borrowed for ever.  Metrics without labels exist from the start,
 *  with 0.  0 or -ENOMEM.  Release with wb_metrics_destroy(). */
int wb_metrics_create(const struct wb_metric *table, size_t n, struct wb_metrics **out);
void wb_metrics_destroy(struct wb_metrics *m);

/* @label: values in the order of the table's names (NULL without labels); copied.  When memory is
 * short the value is lost: a metric is never a reason to fail. */
/** wb_metric_add - add @v to a counter or gauge. */
void wb_metric_add(struct wb_metrics *m, unsigned id, const char *const *label, double v);
/** wb_metric_set - set a gauge, or a counter that is kept elsewhere, to @v. */
void wb_metric_set(struct wb_metrics *m, unsigned id, const char *const *label, double v);
/** wb_metric_observe - add a value to a histogram. */
void wb_metric_observe(struct wb_metrics *m, unsigned id, const char *const *label, double v);
/** wb_metric_forget - drop all series whose first @n_label labels are @label. */
void wb_metric_forget(
	struct wb_metrics *m, unsigned id, unsigned n_label, const char *const *label);
/** wb_metric_get - value of a counter or gauge, number of values of a histogram; for tests. */
double wb_metric_get(const struct wb_metrics *m, unsigned id, const char *const *label);

/** wb_metrics_write - append the exposition format, version 0.0.4. */
void wb_metrics_write(const struct wb_metrics *m, struct wb_buf *out);

/* Shorthand for label values: WB_LABELS("receive", "rx"). */
#define WB_LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
