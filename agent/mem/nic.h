/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_NIC_H
#define WB_MEM_NIC_H
/*
 * How fast a network interface is, as the kernel tells it.
 *
 * For plans, which give slow rails less to carry: what is not known holds nobody up.
 * Blocks (reads small files).  Any thread.  Layer: mem (L1).
 */
#include <stdint.h>

/**
 * wb_nic_bytes_per_s - the rate of an interface's link, each direction
 * @root: where sysfs is; NULL = "/sys"
 * 0: there is none of that name, its link is down, or it is a virtual one (veth, bridge), which
 * says a number that means nothing.
 */
uint64_t wb_nic_bytes_per_s(const char *root, const char *name);

#endif
