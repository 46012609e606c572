/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_FLOW_H
#define WB_TESTS_FX_FLOW_H
/*
 * One agent's flow whose transport only notes what it is asked and whose lane runs at once, so that
 * events come in the order that a test wants.  One at a time.
 *
 * One class of eight chunks, and five agents of one worker each (its number is that of its domain):
 * trainers 0 and 1, engines 2, 3 and 4.  Each holds, or wants, all of it.
 */
#include "base/clock.h"
#include "base/err.h"
#include "flow/flow.h"
#include "lane/lane.h"
#include "planner/plan.h"
#include "tests/common/fx_model.h"
#include "tests/common/fx_notes.h"

#define FX_CHUNKS 8
#define FX_CHUNK (MODEL_BYTES / FX_CHUNKS)
#define FX_MEMORY (FX_CHUNKS * FX_CHUNK)
#define FX_WORKERS 5
#define FX_TRAINERS 2
#define FX_TRANSFER 7
#define FX_SEND_SLOTS 8

extern struct fx_flow {
	struct fx_notes notes;
	struct wb_manifest *m;
	struct wb_map *map;
	struct wb_plan *plan;
	struct wb_place place;
	uint8_t memory[FX_MEMORY];
	void *base[1];
	struct wb_lane *lane;
	struct wb_local *local;
	struct wb_slots slots;
	struct wb_clock clock;
	uint64_t now;
	struct wb_flow_env env;
	struct wb_flow *f;
	uint32_t lane_depth; /* 0 = as many jobs as a lane takes; of the next fx_flow_open() */
	int n_sum; /* that the lane was asked for alone */
	int n_received, n_complete, n_failed, n_mismatch, n_snapped;
} fx;

#define FX_SUMS ((struct wb_flow_opts){.sums = true})
/* How its worker has the chunks: each in one piece; transposed, so that it goes through slots; or
 * in pieces of MODEL_BLOCK. */
enum fx_shape { FX_WHOLE, FX_TURNED, FX_BLOCKS };
#define FX_READ_BACK ((struct wb_flow_opts){.sums = true, .read_back = true})

/* What comes of a grant. */
enum how { GOOD, WRONG_SUM, OTHER_TRANSFER, LANDED_ELSEWHERE, REFUSED, TAKEN_BACK };

/** fx_flow_open - the flow of the agent of @worker. */
void fx_flow_open(uint32_t worker, enum fx_shape shape, struct wb_flow_opts o);
/** fx_flow_close - end all that is under way; the flow has to be idle then. */
void fx_flow_close(void);
/** fx_run_lane - all that the lane did. */
void fx_run_lane(void);
/** fx_sum_of - what a chunk of these bytes sums to. */
struct wbk_sum fx_sum_of(uint32_t chunk, const void *bytes);
/** fx_end_grant - grant @k of fx.notes ends so; bytes are 40 + the chunk's number. */
void fx_end_grant(int k, enum how how);
/** fx_end_all - all that are out, to trainers or to others. */
void fx_end_all(bool from_trainers, enum how how);
/** fx_last_for - the last grant for @chunk. */
int fx_last_for(uint32_t chunk);
/** fx_first_out - the first grant that is out, to a trainer or to another engine. */
int fx_first_out(bool to_trainer);
/** fx_install - engine 2 opens, gets all and is complete. */
void fx_install(struct wb_flow_opts o);
/** fx_is_installed - all of it is here, as 40 + its chunk, and nothing failed. */
void fx_is_installed(void);

#endif
