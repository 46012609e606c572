/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/store.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOD "store"

static int path_of(const void *ctx, const char *name, const char *more, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s.%s%s", (const char *)ctx, name, more);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int write_file(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;
	int rc = 0;

	if (fd < 0)
		return -errno;
	n = write(fd, data, bytes);
	if (n != (ssize_t)bytes)
		rc = n < 0 ? -errno : -ENOSPC;
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	return rc;
}

/* The process may die at any line, but the machine's end is not provided for: a rename is
 * enough. */
static int save(void *ctx, const char *name, const void *data, size_t bytes)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	int rc = path_of(ctx, name, "", path);

	if (rc == 0)
		rc = path_of(ctx, name, ".new", fresh);
	if (rc == 0)
		rc = write_file(fresh, data, bytes);
	if (rc == 0 && rename(fresh, path) < 0)
		rc = -errno;
	if (rc < 0)
		WB_LOG_ERR(MOD, "cannot be written", WB_S("file", path),
			WB_S("reason", strerror(-rc)));
	return rc;
}

static int64_t load(void *ctx, const char *name, void *data, size_t cap)
{
	char path[PATH_MAX];
	int64_t n = path_of(ctx, name, "", path);
	int fd;

	if (n < 0)
		return n;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	n = read(fd, data, cap);
	if (n < 0)
		n = -errno;
	close(fd);
	return n;
}

void wb__store_init(struct wb_transfer_store *s, const char *socket)
{
	*s = (struct wb_transfer_store){(void *)(uintptr_t)socket, save, load};
}
