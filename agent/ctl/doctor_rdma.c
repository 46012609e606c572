/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices as the kernel shows them in its files: which can be used, and what to do about the
 * others. */
#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "ctl/doctor.h"
#include "mem/nic.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_BYTES 400 /* longer paths are cut */
#define TEXT_BYTES 128
#define DEVICES_MAX 16 /* devices that are looked at, and ports of each */
#define GIDS_MAX 256
#define NET_MTU_WISHED                                                                             \
	4200 /* of an Ethernet link: packets of 4096 bytes fit, together with their headers */
#define NET_MTU_AROUND 96
#define CAP_IPC_LOCK_BIT 14

/* ---- small files -------------------------------------------------------------------------------
 */

/* The first line of a file below @root, without its newline; "" = there is no such file.  Always
 * returns @out. */
__attribute__((format(printf, 3, 4))) static const char *get(
	const char *root, char out[static TEXT_BYTES], const char *fmt, ...)
{
	char path[PATH_MAX_BYTES];
	uint8_t *text = NULL;
	size_t n = 0, at = (size_t)snprintf(path, sizeof(path), "%.200s", root);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path + at, sizeof(path) - at, fmt, ap);
	va_end(ap);
	out[0] = '\0';
	if (wb_file_read(path, 65536, &text, &n) == 0)
		snprintf(out, TEXT_BYTES, "%.*s", (int)strcspn((char *)text, "\n"), (char *)text);
	wb_free(text);
	return out;
}

/* The word after @key in a file of lines "key  word .."; "" = not there. */
static const char *get_word(
	const char *root, const char *file, const char *key, char out[static TEXT_BYTES])
{
	char path[PATH_MAX_BYTES];
	uint8_t *text = NULL;
	size_t n = 0;
	const char *at = NULL;

	snprintf(path, sizeof(path), "%.200s%.100s", root, file);
	out[0] = '\0';
	if (wb_file_read(path, 65536, &text, &n) == 0)
		at = strstr((char *)text, key);
	if (at) {
		at += strlen(key);
		at += strspn(at, " \t");
		snprintf(out, TEXT_BYTES, "%.*s", (int)strcspn(at, " \t\n"), at);
	}
	wb_free(text);
	return out;
}

static bool is_there(const char *root, const char *file)
{
	char path[PATH_MAX_BYTES];

	snprintf(path, sizeof(path), "%.200s%.150s", root, file);
	return access(path, F_OK) == 0;
}

/* Names in a folder, sorted; at most @max, cut at 63 bytes. */
static size_t list(const char *root, const char *folder, char (*out)[64], size_t max)
{
	char path[PATH_MAX_BYTES];
	struct dirent **e;
	size_t n = 0;
	int found;

	snprintf(path, sizeof(path), "%.200s%.150s", root, folder);
	found = scandir(path, &e, NULL, alphasort);
	for (int i = 0; i < found; i++) {
		if (e[i]->d_name[0] != '.' && n < max)
			snprintf(out[n++], 64, "%.63s", e[i]->d_name);
		free(e[i]);
	}
	if (found >= 0)
		free(e);
	return n;
}

/* ---- ports -------------------------------------------------------------------------------------
 */

struct port {
	const char *root, *device, *number; /* borrowed */
	bool is_ethernet;
	char gid[TEXT_BYTES], gid_type[TEXT_BYTES],
		net[TEXT_BYTES]; /* of the GID that is chosen; "" = none */
	int gid_index, gid_rank; /* rank: rank_gid() */
	char about[TEXT_BYTES * 2]; /* for people */
};

/* Ranks a GID as the transport does: RoCE v2 with an IPv4 address is best, then with a global IPv6
 * address, then with a link-local one, then other types; 0 = not set.  Routers pass on GIDs of rank
 * GLOBAL and more. */
#define GLOBAL 3
static int rank_gid(const struct in6_addr *a, const char *type)
{
	if (IN6_IS_ADDR_UNSPECIFIED(a))
		return 0;
	if (strcmp(type, "RoCE v2") != 0)
		return 1;
	if (IN6_IS_ADDR_V4MAPPED(a))
		return 4;
	return IN6_IS_ADDR_LINKLOCAL(a) ? 2 : GLOBAL;
}

static void choose_gid(struct port *p)
{
	char text[TEXT_BYTES], type[TEXT_BYTES];
	struct in6_addr a;

	for (int i = 0; i < GIDS_MAX; i++) {
		int rank;

		get(p->root, text, "/sys/class/infiniband/%s/ports/%s/gids/%d", p->device,
			p->number, i);
		if (!text[0] && i > 0)
			break;
		if (inet_pton(AF_INET6, text, &a) != 1)
			continue;
		get(p->root, type, "/sys/class/infiniband/%s/ports/%s/gid_attrs/types/%d",
			p->device, p->number, i);
		rank = rank_gid(&a, type);
		if (rank <= p->gid_rank)
			continue;
		p->gid_rank = rank;
		p->gid_index = i;
		inet_ntop(AF_INET6, &a, p->gid, sizeof(p->gid));
		snprintf(p->gid_type, sizeof(p->gid_type), "%s", type);
		get(p->root, p->net, "/sys/class/infiniband/%s/ports/%s/gid_attrs/ndevs/%d",
			p->device, p->number, i);
	}
}

/* Tries to open the device's node.  Returns 0 or a positive errno.  @node: its path here. */
static int open_node(const struct port *p, char node[static PATH_MAX_BYTES])
{
	char names[64][64], of[TEXT_BYTES];
	size_t n = list(p->root, "/sys/class/infiniband_verbs", names, 64);
	int fd;

	snprintf(node, PATH_MAX_BYTES, "/dev/infiniband/uverbs*");
	for (size_t i = 0; i < n; i++) {
		get(p->root, of, "/sys/class/infiniband_verbs/%s/ibdev", names[i]);
		if (strcmp(of, p->device) != 0)
			continue;
		snprintf(node, PATH_MAX_BYTES, "%.200s/dev/infiniband/%.63s", p->root, names[i]);
		fd = open(node, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return errno;
		close(fd);
		return 0;
	}
	return ENOENT;
}

static int net_mtu(const struct port *p)
{
	char text[TEXT_BYTES];

	return p->net[0] ? atoi(get(p->root, text, "/sys/class/net/%s/mtu", p->net)) : 0;
}

/* How many bytes a packet carries on a link with MTU @net. */
static int path_mtu(int net)
{
	int mtu = 4096;

	while (mtu > 256 && mtu + NET_MTU_AROUND > net)
		mtu /= 2;
	return mtu;
}

static void describe(struct port *p)
{
	char layer[TEXT_BYTES], rate[TEXT_BYTES], parent[TEXT_BYTES], node[TEXT_BYTES];
	int net;
	size_t at;

	get(p->root, layer, "/sys/class/infiniband/%s/ports/%s/link_layer", p->device, p->number);
	get(p->root, rate, "/sys/class/infiniband/%s/ports/%s/rate", p->device, p->number);
	get(p->root, parent, "/sys/class/infiniband/%s/parent", p->device);
	get(p->root, node, "/sys/class/infiniband/%s/device/numa_node", p->device);
	p->is_ethernet = strcmp(layer, "InfiniBand") != 0;
	choose_gid(p);
	net = net_mtu(p);
	at = (size_t)snprintf(p->about, sizeof(p->about), "%.20s, %.20s",
		parent[0] ? "software" : layer, rate[0] ? rate : "rate unknown");
	if (p->gid[0] && at < sizeof(p->about))
		at += (size_t)snprintf(p->about + at, sizeof(p->about) - at,
			", GID %d %.46s (%.12s%s%.16s)", p->gid_index, p->gid, p->gid_type,
			p->net[0] ? " on " : "", p->net);
	if (net > 0 && at < sizeof(p->about))
		at += (size_t)snprintf(
			p->about + at, sizeof(p->about) - at, ", MTU %d", path_mtu(net));
	if (node[0] && node[0] != '-' && at < sizeof(p->about))
		snprintf(p->about + at, sizeof(p->about) - at, ", NUMA node %.8s", node);
}

/* Does anything keep the port from being used?  Then @out gets a sentence with the remedy. */
static bool is_kept(const struct port *p, char *out, size_t cap)
{
	char state[TEXT_BYTES], node[PATH_MAX_BYTES];
	const char *shown;
	int err = open_node(p, node);

	shown = strstr(node, "/dev/");
	get(p->root, state, "/sys/class/infiniband/%s/ports/%s/state", p->device, p->number);
	if (!strstr(state, "ACTIVE"))
		snprintf(out, cap, "is %.20s: %s",
			strchr(state, ' ') ? strchr(state, ' ') + 1 : "not up",
			p->is_ethernet ? "look at cable and switch, ip link set LINK up"
				       : "look at the cable, and whether the fabric has a subnet "
					 "manager");
	else if (p->is_ethernet && !p->gid[0])
		snprintf(out, cap, "has no GID: give its network link an address (ip addr add)");
	else if (err == ENOENT)
		snprintf(out, cap,
			"%s is not there: load ib_uverbs; in a pod ask for the device plugin's "
			"resource (charts: rdma.resourceName)",
			shown);
	else if (err == EPERM)
		snprintf(out, cap,
			"%s may not be opened in this control group: a hostPath is not enough, ask "
			"for "
			"the device plugin's resource (charts: rdma.resourceName)",
			shown);
	else if (err)
		snprintf(out, cap, "%s: %s: this user has to be able to read and write it", shown,
			strerror(err));
	else
		return false;
	return true;
}

/* Gb/s of the PCI path from the device to the processor, if that is less than the port's rate; 0 =
 * it is not, or is not known. */
static unsigned narrow_pci(const struct port *p)
{
	char rate[TEXT_BYTES], folder[PATH_MAX_BYTES];
	double port = strtod(
		get(p->root, rate, "/sys/class/infiniband/%s/ports/%s/rate", p->device, p->number),
		NULL);
	double path;

	snprintf(folder, sizeof(folder), "%.200s/sys/class/infiniband/%.64s/device", p->root,
		p->device);
	path = (double)wb_pci_bytes_per_s(folder) * 8 / 1e9;
	return path > 0 && path < port ? (unsigned)path : 0;
}

/* Says of a port that can be used whether it works as it should, or worse, with the remedy. */
static void judge(struct wb__ctl_sheet *t, const struct port *p)
{
	size_t at = strlen(t->ports);
	unsigned pci = narrow_pci(p);
	int net = net_mtu(p);

	snprintf(t->ports + at, sizeof(t->ports) - at, "%s%s/%s", at ? ", " : "", p->device,
		p->number);
	if (net > 0 && path_mtu(net) < 4096)
		wb__ctl_say(t, "rdma-port", WB_CTL_WORSE,
			"%s/%s (%s): small packets; ip link set %s mtu %d here, on the peers and "
			"on the switch gives 4096",
			p->device, p->number, p->about, p->net, NET_MTU_WISHED);
	else if (p->is_ethernet && p->gid_rank < GLOBAL)
		wb__ctl_say(t, "rdma-port", WB_CTL_WORSE,
			"%s/%s (%s): no router passes this GID on, only peers on the same switch "
			"are reached; give the link an IP address (ip addr add ADDRESS dev %s)",
			p->device, p->number, p->about, p->net[0] ? p->net : "LINK");
	else if (pci)
		wb__ctl_say(t, "rdma-port", WB_CTL_WORSE,
			"%s/%s (%s): its PCI Express path carries %u Gb/s, less than the port; "
			"look at LnkSta in lspci -vv: another slot, or the firmware's settings",
			p->device, p->number, p->about, pci);
	else
		wb__ctl_say(
			t, "rdma-port", WB_CTL_YES, "%s/%s (%s)", p->device, p->number, p->about);
}

/* Looks at the ports of one device; returns how many can be used. */
static size_t look_ports(struct wb__ctl_sheet *t, const char *root, const char *device)
{
	char numbers[DEVICES_MAX][64], folder[TEXT_BYTES], why[300];
	size_t usable = 0, n;

	snprintf(folder, sizeof(folder), "/sys/class/infiniband/%.64s/ports", device);
	n = list(root, folder, numbers, DEVICES_MAX);
	for (size_t i = 0; i < n; i++) {
		struct port p = {.root = root, .device = device, .number = numbers[i]};

		describe(&p);
		if (is_kept(&p, why, sizeof(why))) {
			wb__ctl_say(t, "rdma-port", WB_CTL_NO, "%s/%s %s (%s)", device, p.number,
				why, p.about);
			continue;
		}
		usable++;
		judge(t, &p);
	}
	return usable;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static bool may_lock(const char *root, const char *status)
{
	char caps[TEXT_BYTES];

	get_word(root, status, "CapEff:", caps);
	return strtoull(caps, NULL, 16) >> CAP_IPC_LOCK_BIT & 1;
}

/* Can the agent of this container lock memory?  There it is process 1.  It has the capability from
 * its program's file, and this process does not have it. */
static bool may_agent_lock(const char *root)
{
	static const char agent[] = "weightbridge-ag"; /* the kernel cuts names to 15 bytes */
	char name[TEXT_BYTES];

	get_word(root, "/proc/1/status", "Name:", name);
	return !strcmp(name, agent) && may_lock(root, "/proc/1/status");
}

static void look_locked(struct wb__ctl_sheet *t, const char *root, bool has_devices)
{
	char limit[TEXT_BYTES];

	get_word(root, "/proc/self/limits", "Max locked memory", limit);
	if (!strcmp(limit, "unlimited"))
		wb__ctl_say(t, "locked-memory", has_devices ? WB_CTL_YES : WB_CTL_INFO,
			"no limit (ulimit -l)");
	else if (may_lock(root, "/proc/self/status") || may_agent_lock(root))
		wb__ctl_say(t, "locked-memory", has_devices ? WB_CTL_YES : WB_CTL_INFO,
			"%s bytes (ulimit -l), and the capability IPC_LOCK, which knows no limit",
			limit);
	else if (!has_devices)
		wb__ctl_say(t, "locked-memory", WB_CTL_INFO,
			"%s bytes (ulimit -l); only RDMA locks memory", limit);
	else
		wb__ctl_say(t, "locked-memory", WB_CTL_WORSE,
			"%s bytes (ulimit -l), no capability IPC_LOCK: memory beyond that cannot "
			"be "
			"registered; raise it (LimitMEMLOCK=infinity of containerd, * hard memlock "
			"unlimited), or give IPC_LOCK (charts: rdma.ipcLock)",
			limit);
}

/* Can the device's driver register memory of other devices by dma-buf? */
static bool has_dmabuf(const char *root, const char *device)
{
	static const char *const drivers[] = {
		"mlx5_core", "ice", "irdma", "efa", "bnxt_en", "mana"};
	char path[PATH_MAX_BYTES], to[PATH_MAX_BYTES];
	const char *name;
	ssize_t n;

	snprintf(path, sizeof(path), "%.200s/sys/class/infiniband/%.64s/device/driver", root,
		device);
	n = readlink(path, to, sizeof(to) - 1);
	if (n <= 0)
		return false;
	to[n] = '\0';
	name = strrchr(to, '/') ? strrchr(to, '/') + 1 : to;
	for (size_t i = 0; i < WB_ARRAY_SIZE(drivers); i++)
		if (!strcmp(name, drivers[i]))
			return true;
	return false;
}

/* Kernels from 5.12 on pass dma-bufs to RDMA drivers. */
static bool kernel_has_dmabuf(const char *root)
{
	char release[TEXT_BYTES], *end;
	unsigned long major = strtoul(get(root, release, "/proc/sys/kernel/osrelease"), &end, 10);
	unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	return major > 5 || (major == 5 && minor >= 12);
}

static void look_gpu_paths(
	struct wb__ctl_sheet *t, const char *root, char (*device)[64], size_t n_device)
{
	bool has_gpu = is_there(root, "/proc/driver/nvidia/version");
	bool has_peer = is_there(root, "/sys/module/nvidia_peermem") ||
			is_there(root, "/sys/kernel/mm/memory_peers/nv_mem");
	size_t n = 0;

	for (size_t i = 0; i < n_device; i++)
		n += has_dmabuf(root, device[i]);
	if (!kernel_has_dmabuf(root))
		n = 0;
	wb__ctl_say(t, "dma-buf", WB_CTL_INFO,
		"%zu of %zu RDMA devices can take memory of other devices by dma-buf%s", n,
		n_device, n == n_device ? "" : " (kernel 5.12 or newer, and a driver that has it)");
	wb__ctl_say(t, "peer-memory", WB_CTL_INFO, "%s",
		has_peer ? "nvidia_peermem is loaded"
		: has_gpu
			? "nvidia_peermem is not loaded: modprobe nvidia_peermem, where dma-buf is "
			  "not to be had"
			: "none, and no GPU that would need it");
}

size_t wb__ctl_look_rdma(struct wb__ctl_sheet *t, const char *root)
{
	char device[DEVICES_MAX][64];
	size_t usable = 0, n = list(root, "/sys/class/infiniband", device, DEVICES_MAX);

	for (size_t i = 0; i < n; i++)
		usable += look_ports(t, root, device[i]);
	look_locked(t, root, n > 0);
	if (n > 0)
		look_gpu_paths(t, root, device, n);
	return usable;
}
