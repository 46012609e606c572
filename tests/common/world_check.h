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

#endif
