/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_WAYS_H
#define WB_XPORT_WAYS_H
/*
 * What stands in endpoint texts, and which transports there are: beside what xport.h says of them.
 *
 * A text has ways, best first, with semicolons between; a way has the address of each rail, with
 * commas between, and begins with its transport's scheme.  Pure but for the table of transports.
 * Layer: xport (L2), internal.
 */
#include "xport/xport.h"

#define WB__WAY_MAX 2048 /* of one transport: 16 rails with paths of sockets */

/** wb__xport_count - transports that are known. */
uint32_t wb__xport_count(void);
/** wb__xport_unknown - -EINVAL, and a sentence that says which there are. */
int wb__xport_unknown(const char *name, struct wb_err *err);
/** wb__xport_at - the @i-th of them, NULL above. */
const struct wb_xport_ops *wb__xport_at(uint32_t i);

/** wb__way_ops - the transport of a way: that with the longest scheme it begins with. */
const struct wb_xport_ops *wb__way_ops(const char *way);
/** wb__way_of - the way in @endpoint of a transport with that scheme, into @out.  false: none. */
bool wb__way_of(const char *endpoint, const char *scheme, char *out, size_t cap);
/** wb__way_word - the @i-th of the words in @list, with commas, into @out.  false: fewer, or no
 *  room. */
bool wb__way_word(const char *list, uint32_t i, char *out, size_t cap);

#endif
