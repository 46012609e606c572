/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_ENV_H
#define WB_DAEMON_ENV_H
/*
 * The core in its surroundings: its calls out, its events in, its timer, the slot arena.
 *
 * The arena is a sparse memfd mapped at start; how much of it becomes slots is known when a plan
 * comes (--buffer, or the object's buffer size for every worker here), and another with the next
 * plan where that size was changed, or workers came or left.
 * Loop thread.  Layer: daemon (L4).
 */
#include <stdint.h>

struct wb__agent;
struct wb__env;
struct wb_err;
struct wb_msg_plan;
struct wb_object_id;

/** wb__env_start - the arena, the core and what ties both to the loop.  0 or negative with a
 *  sentence; *out is set as soon as there is anything, for wb__env_stop(). */
int wb__env_start(struct wb__agent *a, struct wb__env **out, struct wb_err *err);
/** wb__env_stop - destroys the core; all workers have left it.  NULL is allowed. */
void wb__env_stop(struct wb__env *e);

/* Each object served here has an arena of its own, a memfd. */
void *wb__env_arena(const struct wb__env *e, uint32_t index);
/** wb__env_arena_fd - the memfd of object @index's part of the arena; borrowed, -1: none. */
int wb__env_arena_fd(const struct wb__env *e, uint32_t index);
/** wb__env_arena_reserve - bytes mapped and of the memfd; slots take the first part. */
uint64_t wb__env_arena_reserve(const struct wb__env *e, uint32_t index);
/** wb__env_arena_use - a plan of object @index: so many bytes of its part become slots, when the
 * core installs it, and are a source of @object for the transport.  What the plan before uses stays
 * good: this one may be refused yet.  0; -EBUSY while what is there is being read: again later;
 * -EINVAL.
 */
int wb__env_arena_use(struct wb__env *e, uint32_t index, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err);
/** wb__env_arena_trim - the plan was installed: what slots took before and do not take any more
 * goes back to the system. */
void wb__env_arena_trim(struct wb__env *e, uint32_t index);
/** wb__env_images - room for snapshots behind the slots; after wb__env_arena_use().  Grows, never
 *  shrinks.  0; -EINPROGRESS while its pages are taken, -EBUSY while a transfer reads what is
 *  there: again later; -EINVAL, -ENOMEM. */
int wb__env_images(struct wb__env *e, uint32_t index, uint64_t bytes,
	const struct wb_object_id *object, struct wb_err *err);
/** wb__env_images_base - first byte of it, page aligned. */
uint8_t *wb__env_images_base(const struct wb__env *e, uint32_t index);
/** wb__env_arena_used - slots of all objects. */
uint64_t wb__env_arena_used(const struct wb__env *e);
/** wb__env_slots_used - slots of an object. */
uint64_t wb__env_slots_used(const struct wb__env *e, uint32_t index);
/** wb__env_images_used - snapshots of an object. */
uint64_t wb__env_images_used(const struct wb__env *e, uint32_t index);

/** wb__env_pump - transport or lanes have events. */
void wb__env_pump(struct wb__env *e);
/** wb__env_kick - the core was called: look at its timers soon. */
void wb__env_kick(struct wb__env *e);

/** wb__env_sleep - the memory of all workers of an object is away: give the pages of its slots and
 * snapshots back; where something of it is under way, after that, unless a worker is awake then. */
void wb__env_sleep(struct wb__env *e, uint32_t index);
/** wb__env_wake - take those of the snapshots again.  0 or -ENOMEM. */
int wb__env_wake(struct wb__env *e, uint32_t index, struct wb_err *err);

#endif
