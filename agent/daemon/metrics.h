/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_METRICS_H
#define WB_DAEMON_METRICS_H
/*
 * What the agent shows over HTTP: /metrics, /healthz, /readyz, /status, /trace.
 *
 * Loop thread.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb__agent;
struct wb__http;
struct wb_buf;
struct wb_transfer_mismatch;
struct wb_transfer_report;
struct wb_err;

/** wb__http_start - make the counters, and the server if an address was given.  0 or negative. */
int wb__http_start(struct wb__agent *a, struct wb__http **out, struct wb_err *err);
/** wb__http_port - port of the pages, 0 = none. */
uint16_t wb__http_port(const struct wb__http *h);
/** wb__http_stop - stop the server and free the counters.  NULL is allowed. */
void wb__http_stop(struct wb__http *h);
/** wb__metrics_report - count an engine or a transfer that has ended.  @h NULL is allowed. */
void wb__metrics_report(struct wb__http *h, const struct wb_transfer_report *r);
/** wb__metrics_mismatch - count a checksum that differed.  @h NULL is allowed. */
void wb__metrics_mismatch(struct wb__http *h, const struct wb_transfer_mismatch *m);
/** wb__metrics_mismatches_json - append how many checksums differed, by place, as an object. */
void wb__metrics_mismatches_json(const struct wb__http *h, struct wb_buf *out);

#endif
