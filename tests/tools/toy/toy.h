/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_TOY_H
#define WB_TESTS_TOY_H
/*
 * The parts of toy_worker: what its parameters hold (values.c), where they lie and how they are
 * attached (layout.c), how a trainer sends (send.c).  Options, commands and polls: ../toy_worker.c.
 *
 * Failures are lines "error CODE ...".  A worker that cannot begin ends with one, and gives nothing
 * back before.
 */
#include "base/hash.h"
#include "weightbridge/weightbridge.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct toy {
	const char *socket, *engine, *object;
	int role;
	uint32_t index, of, rows, cols, tensors;
	int64_t rank;
	uint32_t hook_ms, step_ms;
	const char *collective;
	uint64_t polls, *steps; /* steps: of all workers of the engine, shared; NULL = none */
	struct wb_rng rng;
	bool waits;
	bool by_cols, is_heap, scribbles;
	/* --device: parameters lie on GPU 0, in memory that is "legacy", "ipc" (legacy of whole
	 * blocks, which has a handle) or "vmm" */
	const char *device;
	uint32_t late_ms; /* --late: so long the GPU computes new values */
	bool floats, rounds; /* elements are numbers; parameters are BF16 */
	bool terms; /* SIGTERM is "quit" */
	/* derived: this worker's part */
	uint32_t row0, n_row, col0, n_col;
	uint32_t *data; /* tensors x n_row x n_col */
	size_t bytes;
	uint64_t on_device; /* --device: their address there; data is a copy to compute on */
	int fd;
	struct wb_client *c;
	struct wb_client_transfer *held;
	/* --watch: a thread reads the parameters all the time */
	bool watches;
	uint64_t first_ns, begin_ns; /* first changed byte since the last update; hook before it */
	unsigned looks; /* of the thread, at all of them */
};

/** toy_say - a line on stdout, at once. */
void toy_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/** toy_must - end the process, with a line, unless @rc is fine. */
void toy_must(int rc, const char *what, const char *sentence);
uint64_t toy_now(void);

/* ---- values.c -------------------------------------------------------------------------------- */

/** toy_fill - the parameters hold @version. */
void toy_fill(struct toy *t, int64_t version);
/** toy_say_checked - whether they do: "@verb V ok", or what is wrong. */
void toy_say_checked(const struct toy *t, const char *verb, int64_t version);

/** toy_watch - a thread's body: notes when a parameter changes first (first_ns). */
void *toy_watch(void *toy);
/** toy_watched - wait until that thread has seen all that is there now. */
void toy_watched(const struct toy *t);
/** toy_before - before_update_hook of who watches: complains when something has changed. */
int toy_before(void *toy, const struct wb_client_update *u);
/** toy_say_blocked - how long the update took, and when the first byte changed. */
void toy_say_blocked(struct toy *t, int64_t version);

/* ---- device.c -------------------------------------------------------------------------------- */

/** toy_device_make - memory of the GPU for the parameters; toy_device_drop gives it back. */
void toy_device_make(struct toy *t);
void toy_device_drop(struct toy *t);
/** toy_device_push - what data holds goes to the GPU, some time after the call, as what an
 * optimizer computes does; toy_device_pull - and back, at once.  Nothing without --device. */
void toy_device_push(struct toy *t);
void toy_device_pull(const struct toy *t);

/* ---- layout.c -------------------------------------------------------------------------------- */

void toy_make_memory(struct toy *t);
/** toy_attach - connect, attach, and wait for the plan. */
void toy_attach(struct toy *t);
/** toy_sleep, toy_wake - as vLLM's sleep: the memory goes, and comes back elsewhere, empty. */
void toy_sleep(struct toy *t);
void toy_wake(struct toy *t);

/* ---- send.c: commands of ../toy_worker.c ----------------------------------------------------- */

void toy_send(struct toy *t, int64_t version);
void toy_hold(struct toy *t, int64_t version);
/** toy_doze - a send; its memory is released before the outcome is known. */
void toy_doze(struct toy *t, int64_t version);
void toy_release(struct toy *t);
void toy_burst(struct toy *t, int64_t first, int64_t last);
void toy_send_thrice(struct toy *t, int64_t version);
/** toy_send_only - a send by who has no parameters, which must be refused. */
void toy_send_only(struct toy *t, int64_t version);
void toy_send_and_go(struct toy *t, int64_t version, bool closes);
/** toy_quit - close in order and end the process. */
void toy_quit(struct toy *t) __attribute__((noreturn));

#endif
