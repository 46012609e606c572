/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/numa.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64u << 10)

static const char *at(const char *root)
{
	return root ? root : "/sys";
}

/* Read a decimal number at *@p, and move *@p behind it; -1 = there is none. */
static long number(const char **p)
{
	char *end;
	long v;

	if (**p < '0' || **p > '9')
		return -1;
	v = strtol(*p, &end, 10);
	*p = end;
	return v;
}

/* Read a list such as "0-3,8,10-11"; false: it is not one. */
static bool parse_list(const char *p, cpu_set_t *out)
{
	CPU_ZERO(out);
	for (;;) {
		long first = number(&p), last = first;

		if (first < 0)
			return false;
		if (*p == '-') {
			p++;
			last = number(&p);
		}
		if (last < first || last >= CPU_SETSIZE)
			return false;
		for (long i = first; i <= last; i++)
			CPU_SET((size_t)i, out);
		if (*p != ',')
			return true;
		p++;
	}
}

int wb_numa_cpus(const char *root, int node, cpu_set_t *out)
{
	char path[PATH_MAX];
	uint8_t *text = NULL;
	size_t bytes;
	bool is_list;

	CPU_ZERO(out);
	snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", at(root), node);
	if (node < 0 || wb_file_read(path, TEXT_MAX, &text, &bytes) < 0)
		return -ENOENT;
	is_list = parse_list((const char *)text, out);
	wb_free(text);
	if (!is_list)
		CPU_ZERO(out);
	return is_list ? 0 : -ENOENT; /* a node that has only memory has an empty list */
}

int wb_numa_of_cpus(const char *root, const cpu_set_t *cpus)
{
	int found = WB_NUMA_UNKNOWN, n = 0;

	for (int node = 0; node < WB_NUMA_NODES_MAX; node++) {
		cpu_set_t of_node, both;

		if (wb_numa_cpus(root, node, &of_node) < 0)
			continue;
		n++;
		CPU_AND(&both, &of_node, cpus);
		if (CPU_COUNT(&both) && CPU_EQUAL(&both, cpus))
			found = node;
	}
	return n > 1 ? found : WB_NUMA_UNKNOWN;
}

int wb_numa_of_interface(const char *root, const char *name)
{
	char path[PATH_MAX];
	uint8_t *text = NULL;
	const char *p;
	size_t bytes;
	long node;

	if (!*name || strchr(name, '/') || *name == '.')
		return WB_NUMA_UNKNOWN;
	snprintf(path, sizeof(path), "%s/class/net/%s/device/numa_node", at(root), name);
	if (wb_file_read(path, TEXT_MAX, &text, &bytes) < 0)
		return WB_NUMA_UNKNOWN;
	p = (const char *)text;
	node = number(&p); /* "-1": the firmware does not say */
	wb_free(text);
	return node >= 0 && node < WB_NUMA_NODES_MAX ? (int)node : WB_NUMA_UNKNOWN;
}
