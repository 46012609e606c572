/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FAKECUDA_INTERNAL_H
#define WB_TESTS_FAKECUDA_INTERNAL_H
/*
 * Inside the stand-in: one lock guards all of a process's state, another the world's counting.
 *
 * A block is memory of a device (a memfd), a mapping is a part of this process's addresses where a
 * block lies.  Work is one list in the order in which it was queued; what is before a piece in the
 * list and in its way keeps it waiting.
 */
#include "agent/mem/cuda.h"
#include "tests/cuda/driver/fakecuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* The library's functions are all that others see of it; they are what the products call. */
#define FC_API __attribute__((visibility("default")))
#define FC_DECLARE(member, symbol, args) FC_API int symbol args;
WBCU_FUNCTIONS(FC_DECLARE)
#undef FC_DECLARE
/* What the tests of kernels use besides. */
FC_API int cuCtxSetCurrent(void *context);
FC_API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
FC_API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);

#define FC_DEVICES 8
#define FC_BLOCK ((size_t)2 << 20) /* what memory is handed out in */
#define FC_ARGS 256 /* bytes of a kernel's arguments */
#define FC_ATTRIBUTES 256
/* Results that the product does not tell from others. */
#define FC_OPERATING_SYSTEM 304
#define FC_CONTEXT_IS_DESTROYED 709

struct fc_device {
	int number; /* of the machine; where it stands in fc.visible is its number here */
	int attribute[FC_ATTRIBUTES];
	long retained;
};

struct fc_block {
	struct fc_block *next;
	uint64_t id; /* the handle, in this process */
	uint64_t serial; /* the same in all processes */
	int fd, device; /* device: of the machine */
	size_t bytes;
	int handle_types;
	bool is_legacy, is_import;
	unsigned n_handle, n_map; /* who holds it */
};

struct fc_mapping {
	struct fc_mapping *next;
	uint64_t addr;
	size_t bytes, used; /* used: of a legacy block, handed out */
	struct fc_block *block; /* NULL: addresses that are only reserved */
	bool is_open; /* devices may touch it */
	unsigned n_alloc; /* legacy allocations in it */
	unsigned n_ipc; /* times that what lies in it was opened by IPC handles; 0 = ours */
};

struct fc_alloc { /* legacy */
	struct fc_alloc *next;
	uint64_t addr;
	size_t bytes;
	struct fc_mapping *in;
	unsigned n_open; /* times that it was opened by an IPC handle; 0 = ours */
};

struct fc_host { /* pinned */
	struct fc_host *next;
	uint64_t addr;
	size_t bytes;
	bool is_ours; /* of cuMemHostAlloc() */
};

struct fc_stream {
	struct fc_stream *next;
	bool is_blocking;
};

struct fc_module; /* work.c */

struct fc_event {
	struct fc_event *next;
	uint64_t piece; /* that it was recorded by; 0 = none */
};

enum fc_kind { FC_COPY, FC_FILL, FC_LAUNCH, FC_CALL, FC_RECORD, FC_WAIT };

struct fc_piece {
	struct fc_piece *next;
	uint64_t id, ready_ns;
	struct fc_stream *stream; /* NULL: the legacy one */
	enum fc_kind kind;
	bool runs;
	uint64_t to, from, bytes; /* copy, fill */
	bool to_device, from_device;
	bool is_waited_for; /* by the call: what it names of the host is there as long as it takes
			     */
	uint8_t value;
	int kernel; /* number of it */
	unsigned grid, threads;
	unsigned char args[FC_ARGS];
	void (*fn)(void *);
	void *arg;
	uint64_t wait_for; /* a piece */
};

struct fc {
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t changed;
	pid_t pid; /* that called cuInit(); 0 = nobody */
	int n_visible;
	int visible[FC_DEVICES];
	struct fc_device device[FC_DEVICES];
	struct fc_block *block;
	struct fc_mapping *mapping, *reserved;
	struct fc_alloc *alloc;
	struct fc_host *host;
	struct fc_stream *stream;
	struct fc_event *event;
	struct fc_module *module;
	struct fc_piece *piece; /* oldest first */
	uint64_t next_id; /* of blocks and pieces */
	bool is_running; /* a piece is: memory is open */
	int lost; /* what calls return that need a device; 0 */
	struct fakecuda_counts count;
	/* script */
	bool is_held;
	long go; /* pieces that go while it is held */
	uint64_t order;
	long lose_after; /* -1 = not */
	int lose_with;
};
extern struct fc fc;

/* What a function of the library needs: nothing, so that a lost device is no matter to it; a device
 * that is not lost; a context that is current as well. */
enum fc_need { FC_NOTHING, FC_SOUND, FC_CONTEXT };
/** fc_enter - the beginning of a function of the library: lock, and what is in its way.  0: the
 *  lock is held until fc_leave(); else what to return. */
int fc_enter(const char *function, enum fc_need need);
/** fc_leave - unlock; returns @rc. */
int fc_leave(int rc);
/** fc_current - the device whose context is current in this thread; NULL = none. */
struct fc_device *fc_current(void);
/** fc_visible - the machine's number of this process's device @dev; -1 = there is none. */
int fc_visible(int dev);
/** fc_number - the other way round. */
int fc_number(int device);
/** fc_now - CLOCK_MONOTONIC, ns. */
uint64_t fc_now(void);

/* ---- script.c ---- */

/** fc_script_fail - what a call of @function has to return; 0 = as usual. */
int fc_script_fail(const char *function);
/** fc_script_late - what its work takes more, ns. */
uint64_t fc_script_late(const char *function);

/* ---- world.c ---- */

/** fc_world_open - before the first use. */
void fc_world_open(void);
/** fc_world_hold - this process holds memory of a device; 0, or WBCU_OUT_OF_MEMORY. */
int fc_world_hold(uint64_t serial, size_t bytes, int device);
/** fc_world_let_go - not any more. */
void fc_world_let_go(uint64_t serial);
/** fc_world_memory - of each device; 0 = as it is.  Returns what there is. */
uint64_t fc_world_memory(uint64_t set);
/** fc_world_used - of a device, by processes that live. */
uint64_t fc_world_used(int device);

/* ---- serve.c ---- */

/** fc_serve_start - from now on other processes may ask for legacy blocks of this one; once. */
void fc_serve_start(void);
/** fc_serve_name - what they ask at; a number that no other process has. */
uint64_t fc_serve_name(void);
/** fc_ask - a descriptor of a block (the caller's), from the process that serves at @name; -1: it
 *  has ended, or has no such block any more.  The lock is let go meanwhile. */
int fc_ask(uint64_t name, uint64_t serial);

/* ---- memory.c ---- */

/** fc_block_new - memory of a device; @fd: of another process's (taken), -1 = new. */
int fc_block_new(size_t bytes, int device, int fd, uint64_t serial, struct fc_block **out);
/** fc_block_put - free it when nobody holds it. */
void fc_block_put(struct fc_block *b);
/** fc_map - a mapping of the first @bytes of a block at @addr (0 = anywhere). */
int fc_map(struct fc_block *b, uint64_t addr, size_t bytes, struct fc_mapping **out);
/** fc_unmap - and forget the mapping; the block goes with its last. */
void fc_unmap(struct fc_mapping *m);
/** fc_mapping_at - that holds [@addr, @addr + @bytes); NULL. */
struct fc_mapping *fc_mapping_at(const struct fc_mapping *list, uint64_t addr, size_t bytes);
/** fc_alloc_at - the legacy allocation that @addr lies in; NULL. */
const struct fc_alloc *fc_alloc_at(uint64_t addr);
/** fc_alloc_open - once more by an IPC handle: all of its block is mapped, and what is known of it
 *  here is the allocation, @bytes at @offset.  Its address; fc_alloc_close(). */
uint64_t fc_alloc_open(struct fc_mapping *m, uint64_t offset, size_t bytes);
/** fc_alloc_close - once less; with the last the mapping goes.  WBCU_INVALID_VALUE: not open. */
int fc_alloc_close(uint64_t addr);
/** fc_open - devices may touch memory, or not any more: so may the host. */
void fc_open(bool is_open);
/** fc_is_open - may devices touch [@addr, @addr + @bytes), over neighbouring mappings too? */
bool fc_is_open(uint64_t addr, size_t bytes);
/** fc_is_one - and is it no more than one allocation, where that is legacy?  What copies and fills
 *  ask; kernels touch whatever is open. */
bool fc_is_one(uint64_t addr, size_t bytes);
/** fc_is_pinned - is it all pinned memory of the host? */
bool fc_is_pinned(uint64_t addr, size_t bytes);

/* ---- work.c ---- */

/** fc_queue - a copy of @p to the end of the list, with what the script says of @function. */
int fc_queue(const char *function, void *stream, const struct fc_piece *p, uint64_t *id_out);
/** fc_wait - until the piece is done (0: all are).  The sticky result. */
int fc_wait(uint64_t id);
/** fc_is_done - is it? */
bool fc_is_done(uint64_t id);
/** fc_work_start - the thread; once. */
void fc_work_start(void);

/* ---- kernels.c ---- */

/** fc_kernel_find - its number; -1. */
int fc_kernel_find(const char *name);
/** fc_kernel_bytes - of its arguments. */
size_t fc_kernel_bytes(int kernel);
/** fc_kernel_reaches - is the memory there that it stores to?  Of the kernels of the product that
 * is not known: true. */
bool fc_kernel_reaches(int kernel, const void *args);
/** fc_kernel_run - here and now. */
void fc_kernel_run(int kernel, const void *args, unsigned grid, unsigned threads);

#endif
