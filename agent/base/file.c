/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST 4096

struct content {
	uint8_t *data;
	size_t n, cap; /* one byte of cap is kept for the NUL */
};

static void drop(struct content *c)
{
	wb_free_wiped(c->data);
	c->data = NULL;
}

/* realloc() is not used, since it may leave a copy of a secret in freed memory. */
static int grow(struct content *c, size_t cap)
{
	uint8_t *data = wb_alloc(cap);

	if (!data)
		return -ENOMEM;
	if (c->n)
		memcpy(data, c->data, c->n);
	drop(c);
	c->data = data;
	c->cap = cap;
	return 0;
}

/* Reads at most one byte more than @max, to find out whether there is more. */
static int read_all(int fd, size_t max, struct content *c)
{
	for (;;) {
		ssize_t got;
		int rc = c->n + 1 < c->cap ? 0 : grow(c, WB_MIN(2 * c->cap, max + 2));

		if (rc < 0)
			return rc;
		got = read(fd, c->data + c->n, c->cap - 1 - c->n);
		if (got == 0)
			return 0;
		if (got < 0 && errno != EINTR)
			return -errno;
		c->n += got > 0 ? (size_t)got : 0;
		if (c->n > max)
			return -EFBIG;
	}
}

int wb_file_read(const char *path, size_t max, uint8_t **out, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
	struct content c = {0};
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		rc = -errno;
	else if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > max)
		rc = -EFBIG;
	else /* + 2: for the NUL, and for a read that finds the end of a file of this size */
		rc = grow(&c, WB_MIN(WB_MAX((size_t)st.st_size + 2, (size_t)FIRST), max + 2));
	if (rc == 0)
		rc = read_all(fd, max, &c);
	close(fd);
	if (rc < 0) {
		drop(&c);
		return rc;
	}
	c.data[c.n] = '\0';
	*out = c.data;
	*bytes = c.n;
	return 0;
}

uint64_t wb_open_files_raise(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return 0;
	if (l.rlim_cur < l.rlim_max) {
		struct rlimit all = {.rlim_cur = l.rlim_max, .rlim_max = l.rlim_max};

		if (setrlimit(RLIMIT_NOFILE, &all) == 0)
			l = all;
	}
	return l.rlim_cur;
}
