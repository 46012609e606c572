/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_LANE_SHARED_H
#define WB_LANE_SHARED_H
/*
 * The memory that a remote lane's two sides share: fixed layout, little-endian.
 *
 * An entry is a part of a job: the agent writes request and boxes into entry submitted % n_entry,
 * raises `submitted` (release) and signals the submit eventfd.  The worker runs entries in order,
 * writes the result into the same entry, raises `done` (release) and signals the complete eventfd.
 * At most n_entry entries are between the two counters, so an entry has one owner at any time.
 * Neither side trusts the other: each keeps its own counter privately and checks the other's.
 */
#include "base/base.h"
#include "kernels/kernels.h"

#include <stdatomic.h>
#include <stdint.h>

#define WB_LANE_SHM_MAGIC 0x314c4257u /* "WBL1" */
#define WB_LANE_SHM_BOXES 128u /* most boxes of an entry */
#define WB_LANE_SHM_ENTRIES 64u

struct wb_lane_shm_entry {
	uint32_t kind; /* enum wb_lane_kind */
	uint32_t n_box; /* <= WB_LANE_SHM_BOXES */
	uint64_t wire_off, wire_bytes; /* in the arena */
	uint64_t seed[2]; /* lane seeds of the sum keys */
	uint32_t has_keys;
	int32_t rc; /* result: 0 or -errno */
	uint64_t sum[2]; /* result */
	uint64_t pad;
	struct wbk_box box[WB_LANE_SHM_BOXES];
};

struct wb_lane_shm {
	uint32_t magic, n_entry, entry_bytes, pad;
	_Alignas(64) _Atomic uint32_t submitted; /* written by the agent */
	_Alignas(64) _Atomic uint32_t done; /* written by the worker */
	_Alignas(64) struct wb_lane_shm_entry entry[WB_LANE_SHM_ENTRIES];
};

_Static_assert(sizeof(struct wbk_box) == 88, "boxes are part of the layout");
_Static_assert(sizeof(struct wb_lane_shm_entry) == 72 + 88 * WB_LANE_SHM_BOXES, "layout");
_Static_assert(offsetof(struct wb_lane_shm, entry) == 192, "layout");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "shared counters must not hide a lock");

#endif
