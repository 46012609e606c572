/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_PLANNER_INTERNAL_H
#define WB_PLANNER_INTERNAL_H
/* Shared between the files of the planner, not outside.  Layer: planner (L1). */
#include "base/buf.h"
#include "planner/map.h"

/** wb__name_read - a name of 1..WB_NAME_MAX bytes, owned; -EBADMSG or -ENOMEM. */
int wb__name_read(struct wb_cursor *c, char **out);

#endif
