/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_SEVERAL_H
#define WB_TESTS_FX_SEVERAL_H
/*
 * The flow of an agent of several workers, between a transport that only notes what it is asked and
 * a lane that runs at once: events come in the order that a test wants.  One at a time.
 *
 * Workers of one class, two chunks: trainers 0 (domain 0) and 3 (domain 1), rollouts 1 and 2
 * (domain 0) and 4 (domain 2).  Each domain is a node, or 0 and 2 are one.
 */
#include "base/clock.h"
#include "base/err.h"
#include "flow/flow.h"
#include "lane/lane.h"
#include "planner/plan.h"
#include "tests/common/fx_model.h"
#include "tests/common/fx_notes.h"

#define FX_SEVERAL_BYTES MODEL_BYTES
#define FX_SEVERAL_WORKERS 5
#define FX_SEVERAL_READERS                                                                         \
	12 /* more rollouts, each in an agent of its own, where a test has them */

extern struct fx_several {
	struct fx_notes notes;
	struct wb_fake_clock clock;
	struct wb_manifest *m;
	struct wb_map *map;
	struct wb_plan *plan;
	struct wb_place place;
	struct wb_member member[FX_SEVERAL_WORKERS];
	uint8_t memory[FX_SEVERAL_WORKERS][FX_SEVERAL_BYTES];
	void *base[FX_SEVERAL_WORKERS][1];
	struct wb_lane *lane;
	struct wb_local *local;
	struct wb_slots slots;
	struct wb_flow_env env;
	struct wb_flow *f;
	int n_complete, n_failed, failed_code, n_mismatch;
	char why[WB_ERR_MSG_MAX]; /* it has failed */
	bool is_down; /* no connection to anybody */
} fx_several;
struct fx_several_shape {
	uint32_t first, n; /* of the plan's workers of domain 0, which are this agent's */
	bool sums, is_turned;
	bool only_sends; /* its slots are cut for an agent without rollout workers */
	uint32_t readers;
	bool is_near; /* domain 2 is of the node of domain 0 */
	uint32_t n_slot; /* 0: 32 */
};

/** fx_several_open_shape - the flow of an agent as @is says; all of its memory is its worker's
 * number and one. */
void fx_several_open_shape(const struct fx_several_shape *is);
void fx_several_open_with(uint32_t first, uint32_t n, bool sums);
void fx_several_open(uint32_t first, uint32_t n);
/** fx_several_close - the flow has to be idle. */
void fx_several_close(void);
/** fx_several_run_lane - all that the lane did. */
void fx_several_run_lane(void);
/** fx_several_end_grant_with - grant @k of those that were sent ends so, with this sum, or none. */
void fx_several_end_grant_with(int k, enum wb_xport_event_kind kind, const struct wbk_sum *sum);
void fx_several_end_grant(int k, enum wb_xport_event_kind kind);
/** fx_several_ask - somebody asks for a chunk. */
void fx_several_ask(wb_conn_t conn, uint64_t grant, uint32_t src, uint32_t dst, uint32_t chunk);
/** fx_several_end_write - answer @i has been written, if it is one with bytes. */
void fx_several_end_write(int i);
void fx_several_end_writes(void);
const struct wb_xport_write *fx_several_last_write(void);

#endif
