/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/nic.h"

#include "base/file.h"
#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX 64u
#define BYTES_A_MBIT 125000u
#define GT_PER_S_MAX 1024 /* far above what exists; more is an error */
#define LANES_MAX 32

/* Read the number in a small file of @folder; 0 = there is no such file, or no number in it. */
static double number_in(const char *folder, const char *name)
{
	char path[PATH_MAX];
	uint8_t *text = NULL;
	size_t bytes;
	double n;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) ||
		wb_file_read(path, TEXT_MAX, &text, &bytes) < 0)
		return 0;
	n = strtod((const char *)text, NULL);
	wb_free(text);
	return n;
}

/* Throughput of the link of the device at @folder; 0 = it does not say. */
static uint64_t pci_link(const char *folder)
{
	double speed = number_in(folder, "current_link_speed"); /* "16.0 GT/s PCIe", "Unknown" */
	double width = number_in(folder, "current_link_width");

	if (!(speed > 0 && speed <= GT_PER_S_MAX) || !(width > 0 && width <= LANES_MAX))
		return 0;
	return (uint64_t)(speed * width * 1e9 / 8 * (speed > 5 ? 128.0 / 130 : 8.0 / 10));
}

/* The bridges and switches on the way are the folders above the device's own, and have the same
 * files. */
uint64_t wb_pci_bytes_per_s(const char *device)
{
	char at[PATH_MAX], file[PATH_MAX + sizeof("/current_link_speed")];
	uint64_t least = 0, link;

	if (!realpath(device, at))
		return 0;
	for (char *end; (end = strrchr(at, '/')) && end != at; *end = '\0') {
		snprintf(file, sizeof(file), "%s/current_link_speed", at);
		if (access(file, F_OK) != 0)
			break;
		link = pci_link(at);
		if (link && (!least || link < least))
			least = link;
	}
	return least;
}

/* Is there a device behind the interface?  A virtual function has one, too. */
static int has_device(const char *root, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/class/net/%s/device", root, name);
	return access(path, F_OK) == 0;
}

uint64_t wb_nic_bytes_per_s(const char *root, const char *name)
{
	char path[PATH_MAX];
	uint8_t *text = NULL;
	size_t bytes;
	uint64_t rate, pci;
	long mbit;

	root = root ? root : "/sys";
	if (!*name || strchr(name, '/') || *name == '.' || !has_device(root, name))
		return 0;
	snprintf(path, sizeof(path), "%s/class/net/%s/speed", root, name);
	if (wb_file_read(path, TEXT_MAX, &text, &bytes) < 0)
		return 0; /* -EINVAL while the link is down */
	mbit = strtol((const char *)text, NULL, 10); /* -1: not known */
	wb_free(text);
	if (mbit <= 0)
		return 0;
	rate = (uint64_t)mbit * BYTES_A_MBIT;
	snprintf(path, sizeof(path), "%s/class/net/%s/device", root, name);
	pci = wb_pci_bytes_per_s(path);
	return pci && pci < rate ? pci : rate;
}

/* ---- how near devices are to each other ------------------------------------------------------ */

#define AT_ROOT 100u
#define AT_NODE 200u
#define FAR 300u

/* The part of @path behind the last "/devices/": "pci0000:00/0000:00:01.0/..". */
static const char *below_devices(const char *path)
{
	static const char mark[] = "/devices/";
	const char *at = strstr(path, mark), *next;

	while (at && (next = strstr(at + 1, mark)))
		at = next;
	return at ? at + sizeof(mark) - 1 : NULL;
}

static uint32_t parts(const char *path)
{
	uint32_t n = *path ? 1 : 0;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* Count the names with which both paths begin; *a and *b move behind them. */
static uint32_t common(const char **a, const char **b)
{
	uint32_t n = 0;

	for (;;) {
		size_t k = strcspn(*a, "/");

		if (!k || strcspn(*b, "/") != k || strncmp(*a, *b, k) != 0)
			return n;
		n++;
		*a += k + ((*a)[k] == '/');
		*b += k + ((*b)[k] == '/');
	}
}

/* The NUMA node that the folder of a device names, or -1. */
static int node_of(const char *folder)
{
	double n = number_in(folder, "numa_node");
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/numa_node", folder) >= (int)sizeof(path) ||
		access(path, F_OK) != 0)
		return -1;
	return (int)n;
}

uint32_t wb_pci_distance(const char *root, const char *pci, const char *device)
{
	char link[PATH_MAX], one[PATH_MAX], other[PATH_MAX];
	const char *a, *b;
	uint32_t n;

	if (!*pci || strchr(pci, '/') || *pci == '.')
		return WB_PCI_UNKNOWN;
	snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", root ? root : "/sys", pci);
	if (!realpath(link, one) || !realpath(device, other))
		return WB_PCI_UNKNOWN;
	a = below_devices(one);
	b = below_devices(other);
	if (!a || !b || strncmp(a, "pci", 3) != 0 || strncmp(b, "pci", 3) != 0)
		return WB_PCI_UNKNOWN;
	n = common(&a, &b);
	if (n > 1)
		return parts(a) + parts(b);
	if (n == 1)
		return AT_ROOT;
	return node_of(one) >= 0 && node_of(one) == node_of(other) ? AT_NODE : FAR;
}
