/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_ENV_H
#define WB_DAEMON_ENV_H
/*
 * What is around the core: its calls out, its events in, its timer, the arenas for slots.
 *
 * Each object served here has an arena, a sparse memfd that is mapped at start.  How much of it
 * becomes slots is known only when a plan comes (--buffer, or the object's buffer size for every
 * worker here), and changes with the next plan if that size was changed, or workers came or left.
 * Loop thread.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb__agent;
struct wb__env;
struct wb_err;
struct wb_msg_plan;
struct wb_object_id;

/** wb__env_start - make the arenas, the core, and what ties them to the loop.  0 or negative with a
 * sentence; *out is set as soon as there is anything, for wb__env_stop(). */
int wb__env_start(struct wb__agent *a, struct wb__env **out, struct wb_err *err);
/** wb__env_stop - close the transport, then destroy the core, which all workers have left.  NULL is
 * allowed. */
void wb__env_stop(struct wb__env *e);

/* First byte of object @index's arena. */
void *wb__env_arena(const struct wb__env *e, uint32_t index);
/** wb__env_arena_fd - the memfd of object @index's arena; borrowed, -1: none. */
int wb__env_arena_fd(const struct wb__env *e, uint32_t index);
/** wb__env_arena_reserve - bytes of the arena that are mapped; slots take the first part of
 * them. */
uint64_t wb__env_arena_reserve(const struct wb__env *e, uint32_t index);
/** wb__env_arena_use - for a plan of object @index: @bytes of the arena become slots when the core
 * installs the plan, and are a source of @object for the transport.  What the plan before uses
 * stays good, since this plan may still be refused.  0; -EBUSY while what is there is being read:
 * call it again later; -EINVAL. */
int wb__env_arena_use(struct wb__env *e, uint32_t index, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err);
/** wb__env_arena_trim - the plan was installed: what slots took before, and do not take any more,
 * goes back to the system. */
void wb__env_arena_trim(struct wb__env *e, uint32_t index);
/** wb__env_images - make room of @bytes for snapshots behind the slots; call it after
 * wb__env_arena_use().  The room grows and never shrinks.  0; -EINPROGRESS while its pages are
 * taken, -EBUSY while a transfer reads what is there: call it again later; -EINVAL, -ENOMEM. */
int wb__env_images(struct wb__env *e, uint32_t index, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err);
/** wb__env_images_base - first byte of the room for snapshots, page aligned. */
uint8_t *wb__env_images_base(const struct wb__env *e, uint32_t index);
/** wb__env_arena_used - bytes of the slots of all objects. */
uint64_t wb__env_arena_used(const struct wb__env *e);
/** wb__env_slots_used - bytes of the slots of an object. */
uint64_t wb__env_slots_used(const struct wb__env *e, uint32_t index);
/** wb__env_images_used - bytes of the snapshots of an object. */
uint64_t wb__env_images_used(const struct wb__env *e, uint32_t index);
/** wb__env_due - bytes of an object's slots and snapshots that have no memory yet, and get it when
 *  they are written. */
uint64_t wb__env_due(const struct wb__env *e, uint32_t index);

/** wb__env_pump - take in events of the transport and the lanes. */
void wb__env_pump(struct wb__env *e);
/** wb__env_kick - the core was called: look at its timers soon. */
void wb__env_kick(struct wb__env *e);

/** wb__env_sleep - the memory of all workers of an object is away: give the pages of its slots and
 * snapshots back.  If they are still in use that happens afterwards, unless a worker is awake by
 * then. */
void wb__env_sleep(struct wb__env *e, uint32_t index);
/** wb__env_wake - take the pages of the snapshots again.  0; -EINPROGRESS while they are taken:
 * call it again later; or negative. */
int wb__env_wake(struct wb__env *e, uint32_t index, struct wb_err *err);

#endif
