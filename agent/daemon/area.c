/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/area.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void wb__worker_area_destroy(struct wb__worker_area *a)
{
	if (!a)
		return;
	if (a->map)
		munmap(a->map, a->bytes);
	if (a->fd >= 0)
		close(a->fd);
	wb_free(a->base);
	wb_free(a);
}

/* Takes @fd. */
static int map_area(const uint64_t *mem_bytes, uint32_t n_mem, uint64_t bytes, int fd,
	struct wb__worker_area **out, struct wb_err *err)
{
	struct wb__worker_area *a = wb_zalloc(1, sizeof(*a));
	uint64_t *off = wb_zalloc(n_mem, sizeof(*off));
	void *p;

	assert(bytes >= WB_AREA_HEAD_BYTES && fd >= 0);
	if (a)
		a->base = wb_zalloc(n_mem, sizeof(*a->base));
	if (!a || !off || !a->base) {
		close(fd);
		wb_free(off);
		if (a)
			a->fd = -1;
		wb__worker_area_destroy(a);
		return wb_err_set(err, -ENOMEM, "no memory for a staging area");
	}
	a->fd = fd;
	a->bytes = bytes;
	a->region = UINT32_MAX;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED) {
		wb_free(off);
		wb__worker_area_destroy(a);
		return wb_err_set(err, -ENOMEM, "map a staging area of %llu bytes: %s",
			(unsigned long long)bytes, strerror(errno));
	}
	a->map = p;
	wb_area_layout(mem_bytes, n_mem, off);
	for (uint32_t i = 0; i < n_mem; i++)
		a->base[i] = a->map + off[i];
	wb_free(off);
	*out = a;
	return 0;
}

void wb__area_raw_drop(struct wb__area_raw *raw)
{
	wb__fill_drop(raw->fill);
	if (raw->is_made)
		close(raw->fd);
	*raw = (struct wb__area_raw){0};
}

static int make_raw(struct wb__area_raw *raw, uint64_t bytes, struct wb_err *err)
{
	if (raw->is_made && raw->bytes == bytes)
		return 0;
	wb__area_raw_drop(raw);
	raw->fd = wb_memfd_create("weightbridge staging", bytes, err);
	if (raw->fd < 0)
		return raw->fd;
	raw->bytes = bytes;
	raw->is_made = true;
	return 0;
}

int wb__worker_area_create(const struct wb__area_in *in, struct wb__area_raw *raw,
	struct wb__worker_area **out, struct wb_err *err)
{
	uint64_t bytes = wb_area_layout(in->mem_bytes, in->n_mem, NULL);
	int rc = make_raw(raw, bytes, err), fd;

	if (rc < 0)
		return rc;
	if (in->used + in->used / 8 + WB_AREA_HEAD_BYTES >= bytes)
		rc = wb__fill(in->loop, &raw->fill, raw->fd, 0, bytes);
	if (rc == -EINPROGRESS)
		return wb_err_set(err, rc, "memory for a staging area is being taken");
	if (rc < 0) {
		wb__area_raw_drop(raw);
		return wb_err_set(err, rc, "no memory for a staging area of %llu bytes: %s",
			(unsigned long long)bytes, wb_strerror(rc));
	}
	assert(raw->is_made && raw->bytes == bytes && !raw->fill);
	fd = raw->fd;
	*raw = (struct wb__area_raw){0};
	rc = map_area(in->mem_bytes, in->n_mem, bytes, fd, out, err);
	if (rc < 0)
		return rc;
	wb_area_reset(wb__worker_area_head(*out), bytes);
	(*out)->is_new = true;
	return 0;
}

int wb__worker_area_import(const uint64_t *mem_bytes, uint32_t n_mem, uint64_t bytes, int fd,
	struct wb__worker_area **out, struct wb_err *err)
{
	int rc, mine;

	if (bytes != wb_area_layout(mem_bytes, n_mem, NULL))
		return wb_err_set(err, -EINVAL, "a staging area of other parameters");
	rc = wb_memfd_check(fd, bytes, NULL, err);
	if (rc < 0)
		return rc;
	mine = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (mine < 0)
		return wb_err_set(err, -errno, "duplicate a staging area: %s", strerror(errno));
	rc = map_area(mem_bytes, n_mem, bytes, mine, out, err);
	if (rc < 0)
		return rc;
	if (wb_area_check(wb__worker_area_head(*out), bytes))
		return 0;
	wb__worker_area_destroy(*out);
	*out = NULL;
	return wb_err_set(err, -EINVAL, "a staging area whose head is not one");
}
