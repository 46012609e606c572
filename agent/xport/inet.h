/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_INET_H
#define WB_XPORT_INET_H
/*
 * Addresses and stream sockets of the network, for links whose frames travel over TCP.  The
 * functions are entries of struct wb__link_ops, with the contracts given there.  Addresses are
 * numeric: no name service, and nothing here blocks.
 * Threads: the loop's; rail_open before the rail's thread starts.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"

/** wb__inet_listen - make a non-blocking listener at the rail's address; @endpoint: what peers
 * dial.  0, -EINVAL (address), -ENOSPC (@cap), or what the system says. */
int wb__inet_listen(
	struct wb__rail *r, int *fd_out, char *endpoint, size_t cap, struct wb_err *err);
/** wb__inet_dial - make a socket that connects to @endpoint, from the rail's own address if that is
 * of the same family.  0, -EINVAL, or what the system says. */
int wb__inet_dial(struct wb__rail *r, const char *endpoint, int *fd_out, struct wb_err *err);
/** wb__inet_tune - set what makes @fd better: no delay, keep-alives, no pacing within a host. */
void wb__inet_tune(struct wb__xport_stream *x, int fd);
/** wb__inet_is_home - did the connection @fd come in at the rail's address? */
bool wb__inet_is_home(const struct wb__rail *r, int fd);
/** wb__inet_recv - as recv(), on a socket in the clear. */
ssize_t wb__inet_recv(struct wb__sock *s, void *p, size_t n);
/** wb__inet_ip - the IP address in "HOST:PORT", IPv4 mapped into IPv6; false: it is not numeric. */
bool wb__inet_ip(const char *text, uint8_t out[16]);
/** wb__inet_net_bits - on an interface of this host that has address @ip (as wb__inet_ip() gives
 * it): how many leading bits of it name the network; 0: no interface has this address. */
uint8_t wb__inet_net_bits(const uint8_t ip[16]);
/** wb__inet_rail_open - 0, or -EINVAL when the rail's address is no address. */
int wb__inet_rail_open(struct wb__rail *r);

#endif
