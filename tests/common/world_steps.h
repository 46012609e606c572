/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_WORLD_STEPS_H
#define TESTS_WORLD_STEPS_H
/*
 * Never a mix: a step of an engine goes from one poll to the next, and all its workers that serve
 * in it must hold the same version.  Workers that are stopped, in an update or Torn do not serve.
 */
#include "tests/common/world.h"

#define WORLD_STEPS 1024 /* of an engine that are remembered */
#define WORLD_STEPS_ENGINES 64

struct world_steps {
	struct {
		int64_t version;
		uint32_t count, worker;
		bool is_set;
	} step[WORLD_STEPS_ENGINES][WORLD_STEPS];
};

/** world_steps_serve - for world_watch.serve; false: @why says who serves what. */
bool world_steps_serve(
	struct world_steps *s, const struct world_worker *k, uint32_t count, char *why, size_t cap);
/** world_steps_forget - the engine's processes are dead: its counts begin again. */
void world_steps_forget(struct world_steps *s, uint32_t engine);

#endif
