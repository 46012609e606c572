/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/mem.h"

#include "base/err.h"
#include "mem/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int wb_memfd_create(const char *name, uint64_t bytes, struct wb_err *err)
{
	int fd, rc;

	if (!bytes || bytes > INT64_MAX)
		return wb_err_set(err, -EINVAL, "shared memory %s: %llu bytes", name,
			(unsigned long long)bytes);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return wb_err_set(
			err, -errno, "shared memory %s: memfd_create: %s", name, strerror(errno));
	if (ftruncate(fd, (off_t)bytes) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		rc = wb_err_set(err, -errno, "shared memory %s of %llu bytes: %s", name,
			(unsigned long long)bytes, strerror(errno));
		close(fd);
		return rc;
	}
	return fd;
}

int wb_memfd_check(int fd, uint64_t bytes, uint64_t *size_out, struct wb_err *err)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	/* Sealed first and measured afterwards, so that it cannot become shorter in between. */
	if (seals < 0 || (!(seals & F_SEAL_SHRINK) && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0))
		return wb_err_set(err, -EPERM,
			"memory object: cannot be sealed against shrinking (%s): create it with "
			"memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)",
			strerror(errno));
	if (fstat(fd, &st) < 0)
		return wb_err_set(err, -errno, "memory object: fstat: %s", strerror(errno));
	if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return wb_err_set(err, -EINVAL,
			"memory object: %lld bytes long, %llu were registered",
			(long long)st.st_size, (unsigned long long)bytes);
	if (size_out)
		*size_out = (uint64_t)st.st_size;
	return 0;
}

static int memfd_probe(const uint8_t *uuid, struct wb_err *err)
{
	(void)uuid;
	(void)err;
	return 0;
}

static int memfd_import(const struct wb_mem_desc *d, struct wb_mem *out, struct wb_err *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end;
	void *p;
	int fd, rc;

	if (d->fd < 0)
		return wb_err_set(err, -EINVAL, "memory object: no descriptor came with it");
	if (!d->bytes || d->offset % page || __builtin_add_overflow(d->offset, d->bytes, &end))
		return wb_err_set(err, -EINVAL,
			"memory object: %llu bytes at offset %llu (offsets are multiples of %llu)",
			(unsigned long long)d->bytes, (unsigned long long)d->offset,
			(unsigned long long)page);
	rc = wb_memfd_check(d->fd, end, NULL, err);
	if (rc < 0)
		return rc;
	fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return wb_err_set(err, -errno, "memory object: dup: %s", strerror(errno));
	p = mmap(NULL, d->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)d->offset);
	if (p == MAP_FAILED) {
		rc = wb_err_set(err, -errno, "memory object: map %llu bytes: %s",
			(unsigned long long)d->bytes, strerror(errno));
		close(fd);
		return rc;
	}
	out->addr = p;
	out->fd = fd;
	out->fd_offset = d->offset;
	return 0;
}

static void memfd_release(struct wb_mem *m)
{
	munmap(m->addr, m->bytes);
	close(m->fd);
}

const struct wb_mem_ops wb__mem_memfd = {.name = "memfd",
	.kind = WB_MEM_MEMFD,
	.access = WB_MEM_AT_HOST,
	.probe = memfd_probe,
	.import = memfd_import,
	.release = memfd_release};
