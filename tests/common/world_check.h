/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_WORLD_CHECK_H
#define TESTS_WORLD_CHECK_H
/* What tests of a whole world do and claim again and again; each fails the test that calls it. */
#include "tests/common/world.h"

/** world_check_send - the trainers send @version, and hear within @limit_ns how that ended; then a
 *  moment more, in which engines come to rest. */
void world_check_send(struct world *w, int64_t version, uint64_t limit_ns);
/** world_check_hold - each rollout worker that is not down holds @version, to the last byte. */
void world_check_hold(const struct world *w, int64_t version);

/* Two engines of one worker, and deadlines that nobody meets who is not asked to. */
extern const struct world_opts world_small;

/** world_check_begin - a world of this shape whose agents have their plan. */
void world_check_begin(struct world *w, const struct world_opts *o);
/** world_check_commits - @version is sent, and all who are not down hold it, all within 20 s. */
void world_check_commits(struct world *w, int64_t version);
/** world_check_call - one trainer worker calls for @version, filled with it. */
void world_check_call(struct world *w, uint32_t trainer, int64_t version);
/** world_check_phase - run until the worker is in that phase, at most 20 s. */
void world_check_phase(struct world *w, uint32_t worker, enum world_phase phase);
/** world_check_take - every agent takes the plan: none is busy with a run of the plan before the
 *  last. */
void world_check_take(struct world *w, const struct world_epoch *e);

/* Worlds of different sizes, and how trainers and rollouts are staged in them. */
#define WORLD_SHAPES 6
#define WORLD_MODES 6
extern const struct world_opts world_shapes[WORLD_SHAPES];
extern const struct world_mode {
	const char *name;
	bool trainer_staged, rollout_staged, all_engines;
} world_modes[WORLD_MODES];
/** world_with_mode - that shape, staged so. */
struct world_opts world_with_mode(const struct world_opts *shape, const struct world_mode *m);

#endif
