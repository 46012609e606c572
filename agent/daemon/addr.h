/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_ADDR_H
#define WB_DAEMON_ADDR_H
/*
 * Which addresses this agent listens on and tells to others.  Layer: daemon (L4).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_err;

#define WB__ADDR_MAX 64 /* numeric address with its NUL */

/** wb__addr_numeric - @host ("" = all addresses) as a numeric address.  Blocks (name service).  0
 * or -ENOENT with the name. */
int wb__addr_numeric(const char *host, char out[WB__ADDR_MAX], struct wb_err *err);
/** wb__addr_is_any - 0.0.0.0 or ::. */
bool wb__addr_is_any(const char *addr);
/** wb__addr_towards - own address that packets to @host leave from.  Blocks (name service); sends
 *  nothing.  0 or negative. */
int wb__addr_towards(const char *host, uint16_t port, char out[WB__ADDR_MAX], struct wb_err *err);
/** wb__addr_join - "a:1" or "[::1]:1" into @out. */
void wb__addr_join(const char *host, uint16_t port, char *out, size_t bytes);

#endif
