/* SPDX-License-Identifier: Apache-2.0 */
/* The staging area of a rollout worker: kept across agents, installed by the polling thread. */
#include "lane/area.h"
#include "base/base.h"
#include "base/mem.h"
#include "client/internal.h"
#include "lane/area_gpu.h"
#include "mem/gpu.h"
#include "mem/mem.h"
#include "planner/map.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define READ_BACK_TRIES 16 /* most pieces that are copied again in one install */

struct wb__client_area {
	int fd;
	uint64_t bytes;
	uint8_t *map;
	void **from, **to; /* owned: by memory object */
	bool *is_device; /* owned: by memory object; is it on the worker's GPU? */
	struct wb_area_range *range; /* owned */
	uint32_t n_range;
	struct wb_area_gpu *gpu; /* owned; NULL = no object is a GPU's */
};

void wb__client_area_destroy(struct wb__client_area *a, bool is_owner)
{
	if (!a)
		return;
	if (!is_owner)
		wb_area_gpu_forked(a->gpu);
	wb_area_gpu_destroy(a->gpu);
	if (a->map)
		munmap(a->map, a->bytes);
	if (a->fd >= 0)
		close(a->fd);
	wb_free(a->from);
	wb_free(a->to);
	wb_free(a->is_device);
	wb_free(a->range);
	wb_free(a);
}

static const void *map_blob(int fd, uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* The ranges follow from the source map that was attached. */
static int make_ranges(struct wb__client_area *a, const struct wb__client_reg *r,
	const struct wb_map *map, struct wb_err *err)
{
	struct wb_place *place = wb_zalloc(r->n_param, sizeof(*place));
	int rc = -ENOMEM;

	if (place) {
		for (uint32_t i = 0; i < r->n_param; i++)
			place[i] = (struct wb_place){r->param[i].mem, r->param[i].offset};
		rc = wb_area_ranges(map, place, &a->range, &a->n_range);
	}
	wb_free(place);
	return rc < 0 ? wb_err_set(err, rc, "no memory for a staging area") : 0;
}

static int read_map(struct wb__client_area *a, const struct wb__client_reg *r, struct wb_err *err)
{
	const void *mb = map_blob(r->manifest_fd, r->manifest_bytes);
	const void *pb = map_blob(r->map_fd, r->map_bytes);
	struct wb_manifest *manifest = NULL;
	struct wb_map *map = NULL;
	int rc = mb && pb ? 0 : wb_err_set(err, -ENOMEM, "map the source map");

	if (rc == 0)
		rc = wb_manifest_decode(mb, r->manifest_bytes, &manifest, err);
	if (rc == 0)
		rc = wb_map_decode(manifest, pb, r->map_bytes, &map, err);
	if (rc == 0 && map->n_param != r->n_param)
		rc = wb_err_set(err, -EINVAL, "%u parameters were attached, the map has %u",
			r->n_param, map->n_param);
	if (rc == 0)
		rc = make_ranges(a, r, map, err);
	wb_map_destroy(map);
	wb_manifest_destroy(manifest);
	if (mb)
		munmap((void *)(uintptr_t)mb, r->manifest_bytes);
	if (pb)
		munmap((void *)(uintptr_t)pb, r->map_bytes);
	return rc;
}

static int lay_out(struct wb__client_area *a, const struct wb__client_reg *r, struct wb_err *err)
{
	uint64_t *size = wb_zalloc(r->n_mem, sizeof(*size)), *off, need = 0;
	int rc = -ENOMEM;

	off = wb_zalloc(r->n_mem, sizeof(*off));
	a->from = wb_zalloc(r->n_mem, sizeof(*a->from));
	a->to = wb_zalloc(r->n_mem, sizeof(*a->to));
	a->is_device = wb_zalloc(r->n_mem, sizeof(*a->is_device));
	if (size && off && a->from && a->to && a->is_device) {
		for (uint32_t i = 0; i < r->n_mem; i++)
			size[i] = r->mem[i].bytes;
		need = wb_area_layout(size, r->n_mem, off);
		for (uint32_t i = 0; i < r->n_mem; i++) {
			a->from[i] = a->map + off[i];
			a->to[i] = r->mem[i].base;
			a->is_device[i] = r->mem[i].kind == WB_CLIENT_MEM_DEVICE;
		}
		rc = 0;
	}
	wb_free(size);
	wb_free(off);
	if (rc == 0 && need > a->bytes)
		return wb_err_set(err, -EPROTO,
			"a staging area of %llu bytes for parameters that need %llu",
			(unsigned long long)a->bytes, (unsigned long long)need);
	return rc < 0 ? wb_err_set(err, rc, "no memory for a staging area") : 0;
}

int wb__client_area_take(struct wb_client *c, uint64_t bytes, int *fd, struct wb_err *err)
{
	struct wb__client_area *a;
	void *p;
	int rc;

	if (c->phase == WB__INSTALL)
		return wb_err_set(err, -EPROTO, "a staging area came while one is installed");
	rc = wb_memfd_check(*fd, bytes, NULL, err);
	if (rc < 0 || bytes < WB_AREA_HEAD_BYTES)
		return rc < 0 ? rc : wb_err_set(err, -EPROTO, "a staging area without a head");
	a = wb_zalloc(1, sizeof(*a));
	if (!a)
		return wb_err_set(err, -ENOMEM, "no memory for a staging area");
	a->fd = *fd;
	*fd = -1;
	a->bytes = bytes;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, a->fd, 0);
	if (p != MAP_FAILED)
		a->map = p;
	rc = a->map ? lay_out(a, c->reg, err)
		    : wb_err_set(err, -errno, "map a staging area of %llu bytes",
			      (unsigned long long)bytes);
	if (rc == 0)
		rc = read_map(a, c->reg, err);
	if (rc == 0 && c->reg->gpu)
		rc = wb_area_gpu_create(c->reg->gpu->uuid.bytes, a->map, bytes, &a->gpu, err);
	if (rc < 0) {
		wb__client_area_destroy(a, true);
		return rc;
	}
	wb__client_area_destroy(c->area, true);
	c->area = a;
	return 0;
}

int wb__client_area_fd(const struct wb__client_area *a, uint64_t *bytes)
{
	*bytes = a ? a->bytes : 0;
	return a ? a->fd : -1;
}

bool wb__client_area_holds(const struct wb__client_area *a, uint64_t transfer)
{
	const struct wb_area_head *h = a ? (const struct wb_area_head *)(const void *)a->map : NULL;

	return h && wb_area_state(h) == WB_AREA_INSTALLED && h->transfer == transfer &&
	       h->held_transfer == transfer;
}

/* End of the ranges from @i on that lie where range @i does: on the host, or on the GPU. */
static uint32_t run_end(const struct wb__client_area *a, uint32_t i)
{
	bool is_device = i < a->n_range && a->is_device[a->range[i].mem];

	while (i < a->n_range && a->is_device[a->range[i].mem] == is_device)
		i++;
	return i;
}

static int copy(struct wb__client_area *a, uint32_t i, uint32_t end)
{
	int rc = 0;

	while (!rc && i < end) {
		uint32_t n = WB_MIN(run_end(a, i), end) - i;
		const struct wb_area_range *r = &a->range[i];

		if (a->is_device[r->mem])
			rc = wb_area_gpu_copy(a->gpu, r, n, a->from, a->to);
		else
			wb_area_copy(r, n, a->from, a->to);
		i += n;
	}
	return rc;
}

/* The first range, from *i on, that is not as it is in the area; n_range = none. */
static int differs(struct wb__client_area *a, uint32_t *i)
{
	int rc = 0;

	while (!rc && *i < a->n_range) {
		uint32_t end = run_end(a, *i);

		if (a->is_device[a->range[*i].mem])
			rc = wb_area_gpu_differs(a->gpu, a->range, end, *i, a->from, a->to, i);
		else
			*i = wb_area_differs(a->range, end, *i, a->from, a->to);
		if (*i < end)
			break;
	}
	return rc;
}

/* WB_FAULT: a bit is wrong in what was copied.  The CPU reaches no GPU: there the wrong bit is
 * copied as well. */
static int flip(struct wb__client_area *a, uint64_t bit)
{
	uint32_t i = a->n_range ? (uint32_t)(bit % a->n_range) : 0;
	int rc;

	if (!a->n_range || !a->is_device[a->range[i].mem]) {
		wb_area_flip(a->range, a->n_range, a->to, bit);
		return 0;
	}
	wb_area_flip(a->range, a->n_range, a->from, bit);
	rc = copy(a, i, i + 1);
	wb_area_flip(a->range, a->n_range, a->from, bit);
	return rc;
}

/* What differs is copied again.  WB_ECKSUM: something does not stay as it was written. */
static int read_back(struct wb__client_area *a, struct wb__client_install *x)
{
	uint32_t i = 0, tries = 0;
	int rc = differs(a, &i);

	while (!rc && i < a->n_range) {
		if (!x->n_bad++)
			x->param = a->range[i].param;
		if (tries++ == READ_BACK_TRIES)
			return WB_ECKSUM;
		rc = copy(a, i, i + 1);
		if (!rc)
			rc = differs(a, &i);
	}
	return rc;
}

int wb__client_area_install(struct wb__client_area *a, struct wb__client_install *x)
{
	struct wb_area_head *h = (struct wb_area_head *)(void *)a->map;
	int rc;

	x->n_bad = x->param = 0;
	if (wb_area_state(h) < WB_AREA_WHOLE || h->transfer != x->transfer)
		return WB_ESTALE;
	h->held_transfer = 0;
	wb_area_set(h, WB_AREA_INSTALLING);
	rc = copy(a, 0, a->n_range);
	if (!rc && x->flip)
		rc = flip(a, x->flip - 1);
	if (!rc && x->read_back)
		rc = read_back(a, x);
	if (rc)
		return rc; /* the area is whole: a repair may take the weights from there */
	/* A restarted agent may have begun to fill the area anew. */
	return wb_area_move(h, WB_AREA_INSTALLING, WB_AREA_INSTALLED) ? 0 : WB_ESTALE;
}
