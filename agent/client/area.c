/* SPDX-License-Identifier: Apache-2.0 */
/* The staging area of a rollout worker: kept across agents, installed by the polling thread. */
#include "lane/area.h"
#include "base/mem.h"
#include "client/internal.h"
#include "mem/mem.h"
#include "planner/map.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define READ_BACK_TRIES 16 /* pieces copied again, in one install */

struct wb__client_area {
	int fd;
	uint64_t bytes;
	uint8_t *map;
	void **from, **to; /* owned: by memory object */
	struct wb_area_range *range; /* owned */
	uint32_t n_range;
};

void wb__client_area_destroy(struct wb__client_area *a)
{
	if (!a)
		return;
	if (a->map)
		munmap(a->map, a->bytes);
	if (a->fd >= 0)
		close(a->fd);
	wb_free(a->from);
	wb_free(a->to);
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
	if (size && off && a->from && a->to) {
		for (uint32_t i = 0; i < r->n_mem; i++)
			size[i] = r->mem[i].bytes;
		need = wb_area_layout(size, r->n_mem, off);
		for (uint32_t i = 0; i < r->n_mem; i++) {
			a->from[i] = a->map + off[i];
			a->to[i] = r->mem[i].base;
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
	if (c->reg->gpu)
		return wb_err_set(err, -ENOTSUP,
			"a staging area came, but parameters on a GPU are not staged in host "
			"memory yet");
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
	if (rc < 0) {
		wb__client_area_destroy(a);
		return rc;
	}
	wb__client_area_destroy(c->area);
	c->area = a;
	c->is_area_given = true;
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

/* What differs is copied again; false: something does not stay as it is written. */
static bool read_back(struct wb__client_area *a, struct wb__client_install *x)
{
	const struct wb_area_range *r = a->range;
	uint32_t i = 0, tries = 0;

	while ((i = wb_area_differs(r, a->n_range, i, a->from, a->to)) < a->n_range) {
		if (!x->n_bad++)
			x->param = r[i].param;
		if (tries++ == READ_BACK_TRIES)
			return false;
		wb_area_copy(&r[i], 1, a->from, a->to);
	}
	return true;
}

int wb__client_area_install(struct wb__client_area *a, struct wb__client_install *x)
{
	struct wb_area_head *h = (struct wb_area_head *)(void *)a->map;

	x->n_bad = x->param = 0;
	if (wb_area_state(h) < WB_AREA_WHOLE || h->transfer != x->transfer)
		return WB_ESTALE;
	h->held_transfer = 0;
	wb_area_set(h, WB_AREA_INSTALLING);
	wb_area_copy(a->range, a->n_range, a->from, a->to);
	if (x->flip)
		wb_area_flip(a->range, a->n_range, a->to, x->flip - 1);
	if (x->read_back && !read_back(a, x))
		return WB_ECKSUM; /* the area is whole: a repair may take it from there */
	/* A restarted agent may have begun to fill it anew. */
	return wb_area_move(h, WB_AREA_INSTALLING, WB_AREA_INSTALLED) ? 0 : WB_ESTALE;
}
