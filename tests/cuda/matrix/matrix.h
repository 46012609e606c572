/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_CUDA_MATRIX_H
#define WB_TESTS_CUDA_MATRIX_H
/*
 * The parts of cuda_matrix (matrix.c says what it is): lines and processes (common.c), the worker,
 * which has memory of each kind (worker.c), the agent, which imports it (agent.c), what an agent
 * costs (cost.c).
 *
 * A worker and who asks it are processes with a socket pair.  The first process never begins a
 * driver, as none outlives a fork: whoever needs one is a child.
 *
 * Errors: of a driver, negative as in mem/gpu.h, with a sentence.  A process that cannot do what it
 * is for ends with MX_DIED, or with MX_NO_RIGHT where the machine does not let it.
 */
#include "mem/gpu.h"
#include "mem/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MX_LIMIT_S 115 /* of all of it */
#define MX_WAYS_S 75 /* after which no way is begun */
#define MX_ONE_S 20 /* of one */

enum { MX_DIED = 2, MX_NO_RIGHT = 3 }; /* exit statuses */

/* ---- common.c: an object of JSON under way --------------------------------------------------- */

struct mx_line {
	char text[4096];
	size_t len;
};

void mx_text(struct mx_line *l, const char *name, const char *value);
void mx_number(struct mx_line *l, const char *name, double value);
/** mx_say - on the standard output, in one piece: several processes share it. */
void mx_say(struct mx_line *l);

/* ---- common.c: processes --------------------------------------------------------------------- */

/** mx_must - end this process with MX_NO_RIGHT and errno's words when @rc is negative. */
void mx_must(int rc, const char *what);
/** mx_fork - a child that ends with its parent, and after @limit_s seconds (0 = never).  0 in it.
 */
pid_t mx_fork(unsigned limit_s);
/** mx_wait - its status, as of wait(). */
int mx_wait(pid_t pid);
/** mx_serve - a child that runs @run with one end of a socket pair; returns the other end. */
int mx_serve(void (*run)(int sock, int more), int more, pid_t *pid);

/* ---- worker.c -------------------------------------------------------------------------------- */

struct mx_memory {
	const char *name;
	enum wb_mem_kind kind; /* as which it is meant to travel; HEAP: it shall not */
	bool is_vmm, is_exported, is_rdma_capable;
	unsigned n_block; /* allocations of VMM, side by side */
	uint64_t block, offset, bytes; /* of each; what is shared of them */
};

#define MX_MEMORIES 7u
extern const struct mx_memory mx_memories[MX_MEMORIES];
enum { MX_VMM = 0, MX_IPC = 1 }; /* of these */

struct mx_question {
	enum { MX_GIVE, MX_CHECK, MX_END } what;
	uint32_t memory; /* of the table */
	unsigned seed; /* GIVE: of what is written first; CHECK: of what has to be there */
};

struct mx_answer {
	int rc, pid; /* pid: of the worker */
	struct wb_mem_desc desc; /* GIVE: what is given, with its descriptors */
	uint64_t piece[WB_MEM_PIECES_MAX];
	char why[512]; /* of rc, or why it cannot travel */
};

/** mx_worker - a process with memory of each kind, which answers until its peer is gone, or says
 *  MX_END. */
void mx_worker(int sock, int none) __attribute__((noreturn));
/** mx_write, mx_read - bytes of a device's memory, others for each seed; its context is current.
 *  0; mx_read: -EILSEQ: they differ; -EIO, ... */
int mx_write(struct wb_gpu *g, uint64_t addr, uint64_t bytes, unsigned seed, struct wb_err *err);
int mx_read(struct wb_gpu *g, uint64_t addr, uint64_t bytes, unsigned seed, struct wb_err *err);
/** mx_pattern - the same bytes, of the host. */
void mx_pattern(uint8_t *p, uint64_t bytes, unsigned seed);

/* ---- agent.c --------------------------------------------------------------------------------- */

/* A way to run it. */
struct mx_way {
	unsigned own; /* which namespaces are not the worker's: a set of MX_OWN_* */
	unsigned users; /* of mx_users */
};

enum { MX_OWN_PID = 1, MX_OWN_IPC = 2, MX_OWN_MNT = 4 };
#define MX_OWN 8u

struct mx_users {
	const char *worker, *agent;
};

#define MX_USERS 3u
extern const struct mx_users mx_users[MX_USERS];

/* What came of each import, for the table at the end, a word; NULL: not tried.  Shared by all
 * processes. */
typedef const char *mx_results[MX_USERS][MX_OWN][MX_MEMORIES];
extern mx_results *mx_result;
#define MX_DIFFER "DIFFER" /* the word for what no driver may do */

/** mx_ask - what a worker answers; its descriptors are the caller's: mx_forget().
 *  @piece:	WB_MEM_PIECES_MAX of them; what the description points to */
void mx_ask(int sock, const struct mx_question *q, struct mx_answer *a, struct wb_mem_piece *piece);
void mx_forget(const struct wb_mem_desc *d);
/** mx_put_way - how it was run. */
void mx_put_way(struct mx_line *l, const struct mx_way *w);
/** mx_agent - a process that imports all that the worker at @sock has, and says what came of it. */
void mx_agent(int sock, const struct mx_way *w) __attribute__((noreturn));

/* ---- cost.c ---------------------------------------------------------------------------------- */

/** mx_observer - a process that holds a context and tells how much of the device is free. */
void mx_observer(int sock, int none) __attribute__((noreturn));
/** mx_wake - wait until the observer at @seen has its context. */
void mx_wake(int seen);
/** mx_costs - what an agent costs the device and the host, step by step; false: a process died. */
bool mx_costs(int seen);

#endif
