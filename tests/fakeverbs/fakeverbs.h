/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FAKEVERBS_H
#define WB_TESTS_FAKEVERBS_H
/*
 * A libibverbs without devices: libibverbs.so.1 as far as an RC transport needs it, over the memory
 * of processes of this host.
 *
 * It is built as build/VARIANT/fake/libibverbs.so.1.  What opens the library by its name gets it
 * where that was loaded before (dlopen() by path), or where LD_LIBRARY_PATH names the folder.
 * Devices fake0, fake1 have a port each with GID ::ffff:127.99.DEVICE.PORT at index 1 (RoCE v2) and
 * a RoCE v1 one at index 0; FAKEVERBS_DEVICES="fake0:2 fake1:1" says other names and numbers of
 * ports.  Processes that are to reach each other name the same file in FAKEVERBS_WORLD.
 *
 * A dma-buf is any file that can be mapped; the memory begins in it where the descriptor's position
 * is (tests/cuda/driver makes such).  Memory that the CPU does not reach cannot be registered by
 * its address (EFAULT), but for a peer's.
 *
 * What is kept of the rules: states of queue pairs and what may be posted in each, order of
 * completions of a queue pair, access rights, protection domains, keys and bounds on both sides,
 * requests in flight, retry counts, flushes, errors that break the other side too, asynchronous
 * events, and -EBUSY for what is still used.  Windows are bound to one queue pair, by a request
 * that works in order with others, on a region of the same domain that may be bound to; what has
 * windows is used by them, and so is a queue pair (rxe waits for them).  A thread of the library
 * moves the bytes, so they arrive when they like; a queue pair that is destroyed or in error moves
 * none any more.
 *
 * Below is what a test does to it.  All of it may be called from any thread; a test that loaded the
 * library by path finds the functions by dlsym().
 */
#include <stdbool.h>
#include <stdint.h>

#define FAKEVERBS_ANY (-1)

/* What happens to work requests that match, from the @after-th on, @count times (0 = always).  A
 * rule that is used up makes way for the next. */
struct fakeverbs_rule {
	int device, port; /* number of the device, port from 1; or FAKEVERBS_ANY */
	int opcode; /* enum ibv_wr_opcode, or FAKEVERBS_ANY: of what goes to the other side */
	uint32_t after, count;
	int status; /* completes with this enum ibv_wc_status; 0 = as it comes */
	bool lands; /* with an error: the bytes, or the first half of them, arrive all the same */
	uint64_t delay_ns; /* before anything happens */
	bool hangs; /* nothing happens until the queue pair is in error or destroyed */
};

/* Objects that are there now, and what was done so far. */
struct fakeverbs_counts {
	int64_t contexts, pds, mrs, windows, channels, cqs, qps;
	uint64_t posted, doorbells, completions, arms, bytes, registered_bytes;
	uint64_t looks; /* for an event of a completion queue or of a device, also in vain */
	/* READs of one queue pair, and of all, at once, since fakeverbs_reset(). */
	uint64_t in_flight_max, all_in_flight_max;
	/* The least and the most that queue pairs were given since fakeverbs_reset(). */
	uint8_t traffic_class[2], service_level[2], path_mtu[2];
	/* Since then, too: all IBV_ACCESS_* that regions and queue pairs were given, and queue
	 * pairs that others may ask by and that may ask, too. */
	uint32_t region_rights, qp_rights, both_ways, window_rights;
	/* Registered now by dma-buf, and by a peer's address. */
	int64_t dmabufs, peers;
	/* What was asked for by the last dma-buf. */
	uint64_t dmabuf_inode, dmabuf_off, dmabuf_bytes, dmabuf_iova;
};

/** fakeverbs_reset - forget rules and the failing of calls; all ports are active, devices there.
 *  Objects stay. */
void fakeverbs_reset(void);
/** fakeverbs_rule - add a rule; of several that match the first one counts. */
void fakeverbs_rule(const struct fakeverbs_rule *r);
/** fakeverbs_port - the port comes up or goes down, with its event in every process, in this one
 *  before it returns; what is under way over it is lost. */
void fakeverbs_port(int device, int port, bool is_up);
/** fakeverbs_remove - the device goes: DEVICE_FATAL, its queue pairs end in error, nothing of it
 *  works any more (in this process). */
void fakeverbs_remove(int device);
/** fakeverbs_fatal - DEVICE_FATAL, and nothing else: it still answers what it is asked. */
void fakeverbs_fatal(int device);
/** fakeverbs_folder - the device's folder of the kernel's (ibv_device.dev_path); there is none at
 *  first.  A test makes and removes it: some drivers say no more of a device that goes. */
void fakeverbs_folder(int device, const char *path);
/** fakeverbs_regid - the port's GID at index 1 becomes ::ffff:127.99.DEVICE.@last, with GID_CHANGE;
 *  what was sent to the old one is lost. */
void fakeverbs_regid(int device, int port, uint8_t last);
/** fakeverbs_apart - each device is on a network of its own from now on: a queue pair of one cannot
 * be connected to a GID of another (-ETIMEDOUT, as the kernel says of a neighbour that does not
 * answer). */
void fakeverbs_apart(bool is_so);
/** fakeverbs_fail - the next @times calls of that function of the library ("ibv_reg_mr") fail with
 *  @err. */
void fakeverbs_fail(const char *function, int err, uint32_t times);
/** fakeverbs_slow - each registration takes so long. */
void fakeverbs_slow(uint64_t reg_ns);
/** fakeverbs_dmabuf - registering a dma-buf with that device (or FAKEVERBS_ANY) fails with @err;
 *  0 = works, as at first. */
void fakeverbs_dmabuf(int device, int err);
/** fakeverbs_peer - [@addr, @addr + @bytes), which the CPU need not reach, can be registered by its
 *  address from now on: a peer's driver knows it.  Its bytes are in @fd, from @off on; borrowed. */
void fakeverbs_peer(const void *addr, uint64_t bytes, int fd, uint64_t off);
/** fakeverbs_limit - what devices say of themselves: READs in flight a queue pair, bytes of one
 *  message, completions a queue holds; 0 = 16, 1 GiB and 65536. */
void fakeverbs_limit(int rd_atomic, uint32_t max_msg, int max_cqe);
/** fakeverbs_mtu - what the ports of a device say of their packets: an enum ibv_mtu. */
void fakeverbs_mtu(int device, int mtu);
/** fakeverbs_windows - the device has memory windows of type 2B, or none, as at first (but where
 *  FAKEVERBS_WINDOWS is set).  For those who ask what it can from now on. */
void fakeverbs_windows(int device, bool has);
void fakeverbs_count(struct fakeverbs_counts *out);

#endif
