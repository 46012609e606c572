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

/* A device behind it: that of a virtual function, too. */
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
	long mbit;

	root = root ? root : "/sys";
	if (!*name || strchr(name, '/') || *name == '.' || !has_device(root, name))
		return 0;
	snprintf(path, sizeof(path), "%s/class/net/%s/speed", root, name);
	if (wb_file_read(path, TEXT_MAX, &text, &bytes) < 0)
		return 0; /* -EINVAL while it is down */
	mbit = strtol((const char *)text, NULL, 10); /* -1: not known */
	wb_free(text);
	return mbit > 0 ? (uint64_t)mbit * BYTES_A_MBIT : 0;
}
