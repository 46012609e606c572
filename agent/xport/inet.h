/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_INET_H
#define WB_XPORT_INET_H
/*
 * Addresses and stream sockets of the network, for links whose frames travel over TCP: entries of
 * struct wb__link_ops, as it says them.  Addresses are numeric: no name service, nothing here
 * blocks.
 * Threads: the loop's; rail_open before the rail's thread starts.  Layer: xport (L2), internal.
 */
#include "xport/internal.h"

/** wb__inet_listen - a non-blocking listener at the rail's address, and what peers dial: 0, -EINVAL
 *  (address), -ENOSPC (@cap), or what the system says. */
int wb__inet_listen(
	struct wb__rail *r, int *fd_out, char *endpoint, size_t cap, struct wb_err *err);
/** wb__inet_dial - a socket that connects to @endpoint, from the rail's own address where it has
 * one of that family: 0, -EINVAL, or what the system says. */
int wb__inet_dial(struct wb__rail *r, const char *endpoint, int *fd_out, struct wb_err *err);
/** wb__inet_tune - what @fd is better with: no delay, signs of life, no pacing within a host. */
void wb__inet_tune(struct wb__xport_stream *x, int fd);
/** wb__inet_is_home - did @fd come in at the rail's address? */
bool wb__inet_is_home(const struct wb__rail *r, int fd);
/** wb__inet_recv - as recv(), of a socket in the clear. */
ssize_t wb__inet_recv(struct wb__sock *s, void *p, size_t n);
/** wb__inet_ip - the IP address in "HOST:PORT", IPv4 mapped into IPv6; false: it is not numeric. */
bool wb__inet_ip(const char *text, uint8_t out[16]);
/** wb__inet_net_bits - how many leading bits of @ip (as wb__inet_ip() gives it) the network shares
 * that an interface of this host has there; 0: no interface has this address. */
uint8_t wb__inet_net_bits(const uint8_t ip[16]);
/** wb__inet_rail_open - 0, or -EINVAL when the rail's address is not one. */
int wb__inet_rail_open(struct wb__rail *r);

#endif
