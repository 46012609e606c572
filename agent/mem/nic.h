/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_NIC_H
#define WB_MEM_NIC_H
/*
 * How fast a network interface is, and which is near to what, as the kernel tells it.
 *
 * For plans, which give slow rails less to carry, and for registering memory of GPUs: what is not
 * known holds nobody up.
 * Blocks (reads small files).  Any thread.  Layer: mem (L1).
 */
#include <stdint.h>

/**
 * wb_nic_bytes_per_s - what an interface can do, each direction: the rate of its link, or what its
 * PCI Express path carries if that is less
 * @root: where sysfs is; NULL = "/sys"
 * 0: there is none of that name, its link is down, or it is a virtual one (veth, bridge), which
 * says a number that means nothing.
 */
uint64_t wb_nic_bytes_per_s(const char *root, const char *name);

/**
 * wb_pci_bytes_per_s - what the PCI Express path of a device carries at most, each direction
 * @device: its folder in sysfs ("/sys/class/net/eth0/device")
 * That is its slowest link on the way to the processor as it was negotiated: lanes times
 * transfers a second, less what the line code takes (10 bits for 8 up to 5 GT/s, 130 for 128
 * above: PCI Express Base Specification).  Headers of packets take some 10 % more of it.
 * 0: not known: another bus, or a virtual machine that does not say.
 */
uint64_t wb_pci_bytes_per_s(const char *device);

#define WB_PCI_UNKNOWN UINT32_MAX

/**
 * wb_pci_distance - how far two devices are from each other, for who has to choose: less is nearer
 * @root: where sysfs is; NULL = "/sys"
 * @pci: address of the one, "0000:3b:00.0"
 * @device: folder of the other in sysfs ("/sys/class/infiniband/mlx5_0/device")
 * Within a tree of bridges the steps between them; then those that meet at a root of PCI Express
 * alone, then those of one NUMA node, then all others, each of which is as far as the next.
 * WB_PCI_UNKNOWN: one of them is not there, or no device of PCI.
 */
uint32_t wb_pci_distance(const char *root, const char *pci, const char *device);

#endif
