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
/** wb__addr_towards - the own address from which packets to @host leave.  Blocks (name service);
 * sends nothing.  0 or negative. */
int wb__addr_towards(const char *host, uint16_t port, char out[WB__ADDR_MAX], struct wb_err *err);
#define WB__ADDRS_MAX 8

/* Numeric addresses of an agent, best first, each once. */
struct wb__addrs {
	char a[WB__ADDRS_MAX][WB__ADDR_MAX];
	uint32_t n;
};

/** wb__addrs_parse - read "HOST[,HOST]..." as numeric addresses.  Blocks (name service).  0;
 * -EINVAL: an empty HOST, or too many; -ENOENT with the name. */
int wb__addrs_parse(const char *list, struct wb__addrs *out, struct wb_err *err);
/**
 * wb__addrs_choose - which addresses of a peer to dial, best first
 * @mine:	own addresses: only addresses of their families can be dialled, those of the first
 *		one's family first
 * @theirs:	the peer's; within a family they keep their order; what is no address is left out
 * 0 in @out->n: they have no family in common.
 */
void wb__addrs_choose(
	const struct wb__addrs *mine, const char *const *theirs, uint32_t n, struct wb__addrs *out);
/** wb__addrs_text - "IPv4 10.0.0.1, IPv6 fd00::1" into @out, which it returns. */
const char *wb__addrs_text(const char *const *addr, uint32_t n, char *out, size_t bytes);
/** wb__addr_rehost - copy @endpoint ("A:1,A:1") with address @to in place of each @from.  Parts
 * with another address, or none ("unix:@x"), stay as they are.  0 or -ENOSPC. */
int wb__addr_rehost(
	const char *endpoint, const char *from, const char *to, char *out, size_t bytes);
/** wb__addr_join - write "a:1" or "[::1]:1" into @out. */
void wb__addr_join(const char *host, uint16_t port, char *out, size_t bytes);

#endif
