/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SERVE_METRICS_H
#define WB_SERVE_METRICS_H
/*
 * The operator's metrics: rows of one table.  Layer: operator-shim/serve.
 */
#include "base/metrics.h"

enum wb_serve_metric {
	WB_SM_BUILD_INFO,
	WB_SM_OBJECTS,
	WB_SM_READY,
	WB_SM_AGENTS,
	WB_SM_WORKERS,
	WB_SM_ENGINES,
	WB_SM_ENGINES_UPDATED,
	WB_SM_CONNECTIONS,
	WB_SM_REFUSED,
	WB_SM_LOST,
	WB_SM_FRAMES,
	WB_SM_CONTENT_BYTES,
	WB_SM_PLANS,
	WB_SM_PLANNING_SECONDS,
	WB_SM_TRANSFERS,
	WB_SM_TRANSFER_SECONDS,
	WB_SM_STALL_SECONDS,
	WB_SM_BYTES,
	WB_SM_RESENT,
	WB_SM_MISMATCHED,
	WB_SM_BOUND_RATIO,
	WB_SM_LOOP_LAG,
	WB_SM_LEADER,
	WB_SM_KUBE_WRITES,
	WB_SM_COUNT,
};

extern const struct wb_metric wb_serve_metric_table[WB_SM_COUNT];

#endif
