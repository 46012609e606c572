/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_JOB_H
#define WB_TESTS_FX_JOB_H
/*
 * One chunk between the two agents of fx_xport: its memory on both sides, what must arrive, and
 * observers that check what they are shown.
 */
#include "base/base.h"
#include "tests/common/fx_xport.h"

#include <stdatomic.h>

/* tcp, shm, tls, verbs, set, sim; tls is tcp in an encrypted epoch, verbs is over tests/fakeverbs,
 * set is tcp and shm of which the receiver takes tcp */
#define FX_KINDS 6
#define FX_REAL_KINDS 5 /* all but sim: the simulated net has its own faults */
#define FX_BARE_KINDS 4 /* and but the set: what is asked of one transport */
#define FX_CLEAR_KINDS 2 /* tcp and shm: frames can be made and read by hand */
#define FX_ALL_KINDS 7 /* and the skeleton of a transport, which is asked for less */
extern const char *const fx_kinds[FX_ALL_KINDS];

struct fx_job {
	struct iovec src_iov[600], dst_iov[600];
	uint32_t n_src, n_dst;
	uint64_t bytes, seen[2], pieces[2];
	_Atomic bool is_broken; /* an observer saw the wrong bytes or order */
	uint8_t *image; /* what must arrive, in wire order */
};

struct fx_look {
	struct fx_job *job;
	int side; /* 0 source, 1 receiver */
};

/** fx_job_make - a chunk of @bytes, cut into up to @ranges ranges on each side; source bytes are
 *  filled in.  Release with fx_job_free(). */
struct fx_job *fx_job_make(struct fx_xport *f, uint64_t bytes, uint32_t ranges, uint64_t seed);
/** fx_job_make_at - the same, in the memory from @off on, for jobs that are under way together; up
 *  to 64 bytes a range are left between ranges. */
struct fx_job *fx_job_make_at(
	struct fx_xport *f, size_t off, uint64_t bytes, uint32_t ranges, uint64_t seed);
void fx_job_free(struct fx_job *j);
bool fx_job_arrived(const struct fx_job *j);
/** fx_grant_of, fx_write_of - calls for the chunk; @l NULL: nobody looks. */
struct wb_xport_grant fx_grant_of(const struct fx_job *j, uint64_t cookie, struct fx_look *l);
struct wb_xport_write fx_write_of(const struct fx_job *j, uint64_t grant, struct fx_look *l);
/** fx_ask - grant and wait until the source knows; its event. */
struct wb_xport_event *fx_ask(
	struct fx_xport *f, struct fx_job *j, uint64_t cookie, struct fx_look *l);
/** fx_job_run - ask, answer, wait for the arrival, compare everything. */
void fx_job_run(struct fx_xport *f, struct fx_job *j, bool looks);
/** fx_is_only - all @n bytes are @value. */
bool fx_is_only(const uint8_t *p, uint8_t value, size_t n);

#endif
