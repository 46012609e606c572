/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_ARENA_H
#define WB_MEM_ARENA_H
/*
 * Slots of equal size in one sealed memfd, mapped once.
 *
 * The owner creates it and hands slots out; another process may map the same descriptor with
 * wb_arena_open() and address slots by number.  A slot's generation rises at every put, so a
 * late writer's claim can be told from the present one.
 *
 * Threads: get and put: one thread; addresses may be used anywhere.  Layer: mem (L1).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_arena;
struct wb_err;

#define WB_ARENA_NONE UINT32_MAX
#define WB_ARENA_SLOTS_MAX (1u << 20)

struct wb_arena_opts {
	const char *name; /* shown in /proc/PID/maps */
	uint64_t slot_bytes; /* a multiple of 4096 */
	uint32_t n_slot;
	bool populate; /* touch all pages now, so that later use neither faults nor fails */
};

/** wb_arena_create - 0; -EINVAL; -ENOMEM (with the figures), -EMFILE.  Blocks when populating.
 *  Release with wb_arena_destroy(). */
int wb_arena_create(const struct wb_arena_opts *o, struct wb_arena **out, struct wb_err *err);
/** wb_arena_open - map an arena another process made.  @fd: borrowed.  No get or put on it.
 *  0; -EINVAL when it is shorter than said; -EPERM when unsealed; -ENOMEM. */
int wb_arena_open(
	int fd, uint64_t slot_bytes, uint32_t n_slot, struct wb_arena **out, struct wb_err *err);
/** wb_arena_destroy - unmap and close; slots still out are forgotten.  NULL is allowed. */
void wb_arena_destroy(struct wb_arena *a);

/** wb_arena_get - a free slot's number, or WB_ARENA_NONE.  O(1). */
uint32_t wb_arena_get(struct wb_arena *a);
/** wb_arena_put - give @slot back and raise its generation; it must be out.  O(1). */
void wb_arena_put(struct wb_arena *a, uint32_t slot);
uint32_t wb_arena_gen(const struct wb_arena *a, uint32_t slot);
bool wb_arena_is_out(const struct wb_arena *a, uint32_t slot);
uint32_t wb_arena_n_free(const struct wb_arena *a);
uint32_t wb_arena_n_slot(const struct wb_arena *a);
uint64_t wb_arena_slot_bytes(const struct wb_arena *a);
/** wb_arena_addr - first byte of @slot. */
void *wb_arena_addr(const struct wb_arena *a, uint32_t slot);
/** wb_arena_base - first byte of the whole, wb_arena_bytes() long; wb_arena_fd - its descriptor,
 *  owned by the arena. */
void *wb_arena_base(const struct wb_arena *a);
uint64_t wb_arena_bytes(const struct wb_arena *a);
int wb_arena_fd(const struct wb_arena *a);

#endif
