/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_PROTO_H
#define WB_TESTS_FX_PROTO_H
/*
 * Messages with random content, by their tables.  Tests only.
 */
#include "base/hash.h"
#include "proto/messages.h"

#include <stdbool.h>

/** fx_fill_table - fill zeroed @msg by @t, the same for the same @rng; @is_small: short lists.
 * Release with wb_table_clear(). */
void fx_fill_table(const struct wb_table *t, void *msg, struct wb_rng *rng, bool is_small);
/** fx_fill_msg - the same of a message that can be sent: a PEER is of no kind that peers.h has, as
 * a kind's fields are not random.  Release with wb_msg_free(). */
void fx_fill_msg(const struct wb_table *t, void *msg, struct wb_rng *rng, bool is_small);

#endif
