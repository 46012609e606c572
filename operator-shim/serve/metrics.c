/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the operator's metrics. */
#include "operator-shim/serve/metrics.h"

#define COUNTER(name, help, ...)                                                                   \
	{                                                                                          \
		name, help, WB_METRIC_COUNTER, {__VA_ARGS__}, 0, 0                                 \
	}
#define GAUGE(name, help, ...)                                                                     \
	{                                                                                          \
		name, help, WB_METRIC_GAUGE, {__VA_ARGS__}, 0, 0                                   \
	}
#define HISTOGRAM(name, help, lo, hi)                                                              \
	{                                                                                          \
		name, help, WB_METRIC_HISTOGRAM, {NULL}, lo, hi                                    \
	}

/* Not just "namespace": Prometheus sets that label itself, to the namespace of the pod that it
 * scrapes. */
#define OBJECT "object_namespace", "object"

const struct wb_metric wb_serve_metric_table[WB_SM_COUNT] = {
	[WB_SM_BUILD_INFO] = GAUGE("wb_build_info", "Always 1; version of the program.", "version"),
	[WB_SM_OBJECTS] = GAUGE("wb_objects", "WeightTransfer objects served.", NULL),
	[WB_SM_READY] = GAUGE("wb_objects_ready", "Objects whose Ready condition is True.", NULL),
	[WB_SM_SUSPENDED] =
		GAUGE("wb_objects_suspended", "Objects whose spec.suspend is true.", NULL),
	[WB_SM_AGENTS] = GAUGE("wb_agents", "Agents connected.", NULL),
	[WB_SM_WORKERS] = GAUGE("wb_workers", "Workers attached to those agents.", NULL),
	[WB_SM_ENGINES] = GAUGE("wb_engines", "Engines with at least one worker.", NULL),
	[WB_SM_ENGINES_UPDATED] =
		GAUGE("wb_engines_updated", "Engines that run the newest transfer.", NULL),
	[WB_SM_OBJECT_STATE] = GAUGE("wb_object_state",
		"1 for what the object is: Ready, NotReady or Suspended; of the others, how many.",
		OBJECT, "state"),
	[WB_SM_OBJECT_ENGINES] = GAUGE("wb_object_engines",
		"Engines that run the newest transfer, are behind, or are behind in a suspended "
		"object.",
		OBJECT, "state"),
	[WB_SM_OBJECT_WORKERS] = GAUGE("wb_object_workers", "Workers attached.", OBJECT, NULL),
	[WB_SM_OBJECT_TRANSFERS] = COUNTER("wb_object_transfers_total",
		"Transfers of the object that have ended.", OBJECT, "result"),
	[WB_SM_OBJECT_BYTES] =
		COUNTER("wb_object_bytes_total", "Verified bytes of the object.", OBJECT, NULL),
	[WB_SM_OBJECT_SECONDS] = GAUGE("wb_object_transfer_seconds",
		"First worker stops to last worker resumes, of its last succeeded transfer.",
		OBJECT, NULL),
	[WB_SM_CONNECTIONS] = COUNTER("wb_connections_total", "Connections of agents.", NULL),
	[WB_SM_REFUSED] =
		COUNTER("wb_refused_total", "Connections and workers turned away.", "what"),
	[WB_SM_UNPROVED] = COUNTER("wb_claims_unproved_total",
		"Agents turned away whose token proves nothing for their object.", "reason"),
	[WB_SM_LOST] =
		COUNTER("wb_agents_lost_total", "Connections that ended without DRAIN.", NULL),
	[WB_SM_FRAMES] = COUNTER("wb_frames_total", "Messages of agents.", NULL),
	[WB_SM_CONTENT_BYTES] =
		COUNTER("wb_content_bytes_total", "Bytes of manifests, maps and plans.", "dir"),
	[WB_SM_PLANS] = COUNTER("wb_plans_total", "Plans computed.", "result"),
	[WB_SM_PLANNING_SECONDS] =
		HISTOGRAM("wb_planning_seconds", "Time to compute a plan.", -10, 7),
	[WB_SM_TRANSFERS] = COUNTER("wb_transfers_total", "Transfers that have ended.", "result"),
	[WB_SM_TRANSFER_SECONDS] = HISTOGRAM("wb_transfer_seconds",
		"First worker stops to last worker resumes, of succeeded transfers.", -10, 9),
	[WB_SM_STALL_SECONDS] = HISTOGRAM(
		"wb_stall_seconds", "Mean time a worker stood still, a transfer.", -10, 9),
	[WB_SM_BYTES] = COUNTER("wb_bytes_total", "Verified bytes.", "stage"),
	[WB_SM_RESENT] =
		COUNTER("wb_chunks_retried_total", "Chunks that were asked for again.", NULL),
	[WB_SM_MISMATCHED] = COUNTER("wb_checksum_mismatches_total",
		"Chunks without the trainer's sum, asked for again.", NULL),
	[WB_SM_BOUND_RATIO] = GAUGE("wb_plan_lower_bound_ratio",
		"Last transfer's time by the lower bound of its plan.", NULL),
	[WB_SM_LOOP_LAG] = GAUGE(
		"wb_loop_lag_seconds", "Longest round of the loop since the last scrape.", NULL),
	[WB_SM_LEADER] =
		GAUGE("wb_leader", "1 when this replica leads (0 without a cluster).", NULL),
	[WB_SM_IDLE_NAMESPACES] = GAUGE("wb_idle_namespaces",
		"Namespaces that this operator watches and does not serve: another release does, "
		"or their Lease cannot be had.",
		NULL),
	[WB_SM_KUBE_WRITES] = COUNTER("wb_kube_writes_total", "Writes to the API server.", "what"),
	[WB_SM_EVENTS_LEFT_OUT] = COUNTER("wb_events_left_out_total",
		"Kubernetes events that were not written: above the budget of their namespace, or "
		"refused.",
		"why"),
	[WB_SM_MEMORY] =
		GAUGE("wb_budget_memory_bytes", "Memory that budgets were sized from.", NULL),
	[WB_SM_BUDGET] = GAUGE("wb_budget_limit",
		"What all, one namespace, one object may use (bytes of maps and plans).", "budget",
		"scope"),
	[WB_SM_BUDGET_USED] = GAUGE("wb_budget_used",
		"What all, the fullest namespace, the fullest object use.", "budget", "scope"),
	[WB_SM_BUDGET_REFUSED] = COUNTER("wb_budget_refused_total",
		"Refusals for want of budget, by the scope that was full.", "budget", "scope"),
};
