/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_WAYS_H
#define WB_XPORT_WAYS_H
/*
 * What endpoint texts consist of, and which transports there are, beside what xport.h says of them.
 *
 * A text has ways, best first, separated by semicolons.  A way has the address of each rail,
 * separated by commas, and begins with its transport's scheme.  Pure but for the table of
 * transports.  Layer: xport (L2), internal.
 */
#include "xport/xport.h"

#define WB__WAY_MAX 2048 /* of one transport: 16 rails with paths of sockets */

/** wb__xport_count - how many transports are known. */
uint32_t wb__xport_count(void);
/** wb__xport_unknown - returns -EINVAL with a sentence that says which transports there are. */
int wb__xport_unknown(const char *name, struct wb_err *err);
/** wb__xport_at - the @i-th transport; NULL: there are fewer. */
const struct wb_xport_ops *wb__xport_at(uint32_t i);

/** wb__way_ops - the transport of a way: the one with the longest scheme that the way begins with.
 * Never NULL: tcp takes what no other does. */
const struct wb_xport_ops *wb__way_ops(const char *way);
/** wb__way_of - copy the way in @endpoint of the transport with that scheme to @out.  false:
 * none. */
bool wb__way_of(const char *endpoint, const char *scheme, char *out, size_t cap);
/** wb__way_word - copy the @i-th word of @list, whose words have commas between, to @out.  false:
 * there are fewer, or no room. */
bool wb__way_word(const char *list, uint32_t i, char *out, size_t cap);

#endif
