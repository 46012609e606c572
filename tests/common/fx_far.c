/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_far.h"
#include "tests/common/fx_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *map(size_t bytes, int prot, int flags, int fd)
{
	void *p = mmap(NULL, bytes, prot, flags, fd, fd < 0 ? 0 : FX_FAR_LEAD);

	if (p == MAP_FAILED)
		abort();
	return p;
}

void fx_far_make(struct fx_far *m, size_t bytes)
{
	memset(m, 0, sizeof(*m));
	m->bytes = bytes;
	m->fd = memfd_create("far", MFD_CLOEXEC);
	if (m->fd < 0 || ftruncate(m->fd, (off_t)(FX_FAR_LEAD + bytes)))
		abort();
	m->see = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd);
	m->addr = map(bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void fx_far_free(struct fx_far *m)
{
	munmap(m->see, m->bytes);
	munmap(m->addr, m->bytes);
	close(m->fd);
}

struct wb_xport_region fx_far_region(const struct fx_far *m, enum wb_xport_direction direction)
{
	return (struct wb_xport_region){.object = FX_OBJECT,
		.fd = -1,
		.base = m->addr,
		.bytes = m->bytes,
		.direction = direction,
		.gpu = {.is_there = true, .dmabuf_fd = m->fd, .dmabuf_off = FX_FAR_LEAD}};
}

void fx_far_put(void *ctx, void *to, const void *from, size_t bytes, uint64_t off)
{
	struct fx_far *m = ctx;

	(void)off;
	if (!bytes)
		return;
	memcpy(m->see + ((uint8_t *)to - m->addr), from, bytes);
	m->puts++;
}

enum wb_xport_path fx_far_path(struct fx_xport *f, struct fx_side *side, uint32_t id, char *says)
{
	enum wb_xport_path path;

	while ((path = wb_xport_region_path(side->x, id, says, 400)) == WB_XPORT_PATH_PENDING)
		fx_pump_some(f);
	return path;
}

static struct wb_xport_event *last(struct fx_side *s, enum wb_xport_event_kind kind)
{
	struct wb_xport_event *e = NULL, *next;
	int at = 0;

	while ((next = fx_take(s, kind, &at)))
		e = next;
	return e;
}

static int ends(const struct fx_side *s)
{
	return s->count[WB_XP_ARRIVED] + s->count[WB_XP_REFUSED] + s->count[WB_XP_LOST];
}

int fx_far_move(struct fx_xport *f, void *from, void *to, size_t bytes, struct fx_far *into)
{
	struct iovec there = {from, bytes}, here = {to, bytes};
	struct wb_xport_grant g = {.cookie = (uint64_t)ends(&f->dst) + 1,
		.chunk = {.bytes = bytes},
		.iov = &here,
		.n_iov = 1,
		.copy = into ? fx_far_put : NULL,
		.ctx = into};
	struct wb_xport_write w = {.cookie = 1, .iov = &there, .n_iov = 1};
	int n_ask = f->src.count[WB_XP_GRANT], n_arrived = f->dst.count[WB_XP_ARRIVED];
	int n_lost = f->dst.count[WB_XP_LOST], n_end = ends(&f->dst);
	int n_done = f->src.count[WB_XP_WRITE_DONE], rc;
	struct wb_xport_event *e;

	rc = wb_xport_grant(f->dst.x, f->conn, &g);
	if (rc)
		return rc;
	fx_wait(f, &f->src, WB_XP_GRANT, n_ask + 1);
	e = last(&f->src, WB_XP_GRANT);
	w.grant = e->grant;
	rc = wb_xport_write(f->src.x, e->conn, &w);
	if (rc) {
		(void)wb_xport_refuse(f->src.x, e->conn, e->grant, -ECANCELED);
		fx_wait(f, &f->dst, WB_XP_REFUSED, f->dst.count[WB_XP_REFUSED] + 1);
		return rc;
	}
	while (ends(&f->dst) == n_end)
		fx_pump(f);
	fx_wait(f, &f->src, WB_XP_WRITE_DONE, n_done + 1); /* the list is ours till then */
	if (f->dst.count[WB_XP_ARRIVED] > n_arrived)
		return 0;
	return last(&f->dst, f->dst.count[WB_XP_LOST] > n_lost ? WB_XP_LOST : WB_XP_REFUSED)->code;
}

uint32_t fx_region_add(struct fx_side *side, const struct wb_xport_region *r)
{
	struct wb_err err = {0};
	uint32_t id;

	ck_assert_msg(wb_xport_region_add(side->x, r, &id, &err) == 0, "%s", err.msg);
	return id;
}

uint32_t fx_far_add(struct fx_side *side, const struct fx_far *m, enum wb_xport_direction direction)
{
	struct wb_xport_region r = fx_far_region(m, direction);

	return fx_region_add(side, &r);
}

void fx_far_settle(const struct fx_verbs *v, struct fx_xport *f)
{
	char says[400];

	(void)fx_far_path(f, &f->src, f->src.region, says);
	(void)fx_far_path(f, &f->dst, f->dst.region, says);
	v->reset();
}
