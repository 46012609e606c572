/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_NIC_H
#define WB_MEM_NIC_H
/*
 * How fast a network interface is, and how near devices are to each other, as the kernel reports
 * it.
 *
 * Used for plans, which give slow rails less to carry, and for registering memory of GPUs.  Missing
 * information is not an error.
 * Blocks (reads small files).  Any thread.  Layer: mem (L1).
 */
#include <stdint.h>

/**
 * wb_nic_bytes_per_s - throughput of an interface in each direction: the rate of its link, or what
 * its PCI Express path carries if that is less
 * @root: where sysfs is; NULL = "/sys"
 * 0: there is no interface of this name, its link is down, or it is virtual (veth, bridge), and the
 * rate that it reports means nothing.
 */
uint64_t wb_nic_bytes_per_s(const char *root, const char *name);

/**
 * wb_pci_bytes_per_s - the most that the PCI Express path of a device carries in each direction
 * @device: its folder in sysfs ("/sys/class/net/eth0/device")
 * This is the negotiated rate of the slowest link on the way to the processor: lanes times
 * transfers a second, less what the line code takes (10 bits for 8 up to 5 GT/s, 130 for 128 above:
 * PCI Express Base Specification).  Packet headers, about 10 %, are not subtracted.
 * 0: not known: another bus, or a virtual machine that does not say.
 */
uint64_t wb_pci_bytes_per_s(const char *device);

#define WB_PCI_UNKNOWN UINT32_MAX

/**
 * wb_pci_distance - distance between two devices, for choosing the nearest: less is nearer
 * @root: where sysfs is; NULL = "/sys"
 * @pci: address of one device, "0000:3b:00.0"
 * @device: folder of the other device in sysfs ("/sys/class/infiniband/mlx5_0/device")
 * Within a tree of bridges it is the number of steps between them; pairs that meet only at a root
 * of PCI Express are farther, then pairs of one NUMA node, then all others, which are equally far.
 * WB_PCI_UNKNOWN: one of them does not exist, or is not a PCI device.
 */
uint32_t wb_pci_distance(const char *root, const char *pci, const char *device);

#endif
