/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/cgroup.h"

#include "base/err.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read a small file as a string. */
static int read_text(const char *path, char *out, size_t cap)
{
	FILE *f = fopen(path, "re");
	size_t n;
	int rc;

	if (!f)
		return -errno;
	n = fread(out, 1, cap - 1, f);
	rc = ferror(f) ? -EIO : 0;
	fclose(f);
	out[n] = '\0';
	return rc;
}

/* Read "max" (then UINT64_MAX) or a number of bytes, and a newline. */
static int read_bytes(const char *path, uint64_t *out, struct wb_err *err)
{
	char text[64], *end;
	int rc = read_text(path, text, sizeof(text));

	if (rc < 0)
		return rc;
	text[strcspn(text, "\n")] = '\0';
	if (!strcmp(text, "max")) {
		*out = UINT64_MAX;
		return 0;
	}
	errno = 0;
	*out = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-')
		return wb_err_set(err, -EBADMSG, "%s: \"%s\" is not a number of bytes", path, text);
	return 0;
}

/* Find the path of the own group below the mount point, in the line "0::/path". */
static int own_group(const char *self, char *out, size_t cap, struct wb_err *err)
{
	char text[PATH_MAX + 256], *line, *save = NULL;
	int rc = read_text(self, text, sizeof(text));

	if (rc < 0)
		return wb_err_set(err, rc, "%s: %s", self, strerror(-rc));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "0::/", 4))
			continue;
		/* A process outside the mount's root sees a path with "..": the root is used
		 * instead. */
		if (strstr(line, "/..") || strlen(line + 3) >= cap)
			line[4] = '\0';
		memcpy(out, line + 3, strlen(line + 3) + 1);
		return 0;
	}
	return wb_err_set(err, -ENOENT, "%s: no version 2 control group", self);
}

int wb_cgroup_memory(
	const char *root, const char *self, struct wb_cgroup_memory *out, struct wb_err *err)
{
	char group[PATH_MAX], dir[2 * PATH_MAX], file[2 * PATH_MAX + 32];
	uint64_t limit, used;
	bool seen = false;
	char *slash;
	int rc;

	out->limit_bytes = UINT64_MAX;
	out->used_bytes = 0;
	root = root ? root : "/sys/fs/cgroup";
	rc = own_group(self ? self : "/proc/self/cgroup", group, sizeof(group), err);
	if (rc < 0)
		return rc;
	/* The group and all its parents.  In a container the path may be the host's, and the
	 * group's files lie at the root. */
	for (;;) {
		snprintf(dir, sizeof(dir), "%s%s", root, strcmp(group, "/") ? group : "");
		snprintf(file, sizeof(file), "%s/memory.max", dir);
		rc = read_bytes(file, &limit, err);
		if (rc == -EBADMSG)
			return rc;
		if (!rc) {
			snprintf(file, sizeof(file), "%s/memory.current", dir);
			used = 0;
			if (read_bytes(file, &used, err) == -EBADMSG)
				return -EBADMSG;
			if (!seen || limit < out->limit_bytes) {
				out->limit_bytes = limit;
				out->used_bytes = used;
			}
			seen = true;
		}
		slash = strrchr(group, '/');
		if (!slash || !strcmp(group, "/"))
			break;
		slash[slash == group ? 1 : 0] = '\0';
	}
	return seen ? 0 : wb_err_set(err, -ENOENT, "%s: no memory controller of version 2", root);
}
