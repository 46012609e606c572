/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text, against the format's rules. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UP, BYTES, SECONDS };

static const struct wb_metric table[] = {
	[UP] = {"wb_up", "Whether it is up.\nSecond \\ line.", WB_METRIC_GAUGE, {NULL}, 0, 0},
	[BYTES] = {"wb_bytes_total", "Bytes.", WB_METRIC_COUNTER, {"dir", "stage", NULL}, 0, 0},
	[SECONDS] = {"wb_wait_seconds", "Waits.", WB_METRIC_HISTOGRAM, {NULL}, -2, 1},
};

START_TEST(text_is_what_prometheus_reads)
{
	struct wb_metrics *m = NULL;
	struct wb_buf b;

	ck_assert_int_eq(wb_metrics_create(table, 3, &m), 0);
	wb_metric_add(m, BYTES, WB_LABELS("rx", "a\"b\\c\nd"), 5);
	wb_metric_add(m, BYTES, WB_LABELS("rx", "a\"b\\c\nd"), 0.5);
	wb_metric_set(m, UP, NULL, 1);
	wb_metric_observe(m, SECONDS, NULL, 0.1);
	wb_metric_observe(m, SECONDS, NULL, 0.25);
	wb_metric_observe(m, SECONDS, NULL, 1.5);
	wb_metric_observe(m, SECONDS, NULL, 99);
	wb_buf_init(&b, 65536);
	wb_metrics_write(m, &b);
	ck_assert_str_eq(wb_buf_cstr(&b),
		"# HELP wb_up Whether it is up.\\nSecond \\\\ line.\n"
		"# TYPE wb_up gauge\n"
		"wb_up 1\n"
		"# HELP wb_bytes_total Bytes.\n"
		"# TYPE wb_bytes_total counter\n"
		"wb_bytes_total{dir=\"rx\",stage=\"a\\\"b\\\\c\\nd\"} 5.5\n"
		"# HELP wb_wait_seconds Waits.\n"
		"# TYPE wb_wait_seconds histogram\n"
		"wb_wait_seconds_bucket{le=\"0.25\"} 2\n"
		"wb_wait_seconds_bucket{le=\"0.5\"} 2\n"
		"wb_wait_seconds_bucket{le=\"1\"} 2\n"
		"wb_wait_seconds_bucket{le=\"2\"} 3\n"
		"wb_wait_seconds_bucket{le=\"+Inf\"} 4\n"
		"wb_wait_seconds_sum 100.84999999999999\n"
		"wb_wait_seconds_count 4\n");
	ck_assert(wb_metric_get(m, SECONDS, NULL) == 4);
	ck_assert(wb_metric_get(m, BYTES, WB_LABELS("tx", "x")) == 0);
	wb_buf_finish(&b);
	wb_metrics_destroy(m);
}
END_TEST

START_TEST(series_are_bounded)
{
	struct wb_metrics *m = NULL;
	char v[16];

	ck_assert_int_eq(wb_metrics_create(table, 3, &m), 0);
	for (int i = 0; i < 2 * WB_METRIC_SERIES_MAX; i++) {
		snprintf(v, sizeof(v), "%d", i);
		wb_metric_add(m, BYTES, WB_LABELS("rx", v), 1);
	}
	snprintf(v, sizeof(v), "%d", WB_METRIC_SERIES_MAX - 2);
	ck_assert(wb_metric_get(m, BYTES, WB_LABELS("rx", v)) == 1); /* nobody else's */
	ck_assert(wb_metric_get(m, BYTES, WB_LABELS("other", "other")) == WB_METRIC_SERIES_MAX + 1);
	wb_metrics_destroy(m);
}
END_TEST

START_TEST(series_go_by_their_first_labels)
{
	struct wb_metrics *m = NULL;

	ck_assert_int_eq(wb_metrics_create(table, 3, &m), 0);
	wb_metric_add(m, BYTES, WB_LABELS("rx", "a"), 1);
	wb_metric_add(m, BYTES, WB_LABELS("tx", "a"), 2);
	wb_metric_add(m, BYTES, WB_LABELS("rx", "b"), 4);
	wb_metric_forget(m, BYTES, 1, WB_LABELS("rx"));
	ck_assert(wb_metric_get(m, BYTES, WB_LABELS("rx", "a")) == 0);
	ck_assert(wb_metric_get(m, BYTES, WB_LABELS("rx", "b")) == 0);
	ck_assert(wb_metric_get(m, BYTES, WB_LABELS("tx", "a")) == 2);
	wb_metric_forget(m, BYTES, 2, WB_LABELS("tx", "b"));
	ck_assert(wb_metric_get(m, BYTES, WB_LABELS("tx", "a")) == 2);
	wb_metrics_destroy(m);
}
END_TEST

START_TEST(create_survives_each_failed_allocation)
{
	struct wb_metrics *m = NULL;
	int rc;

	for (uint64_t at = 1;; at++) {
		wb_mem_fail_at(at);
		rc = wb_metrics_create(table, 3, &m);
		wb_mem_fail_at(0);
		if (!rc)
			break;
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert_ptr_null(m);
	}
	wb_metrics_destroy(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics");
	TCase *tc = tcase_create("text");

	tcase_add_test(tc, text_is_what_prometheus_reads);
	tcase_add_test(tc, series_are_bounded);
	tcase_add_test(tc, series_go_by_their_first_labels);
	tcase_add_test(tc, create_survives_each_failed_allocation);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
