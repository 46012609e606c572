/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows of type 2B: for the queue pair that they are bound on, until they are let go. */
#include "tests/fakeverbs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct fv_mw {
	struct ibv_mw m;
	uint32_t index;
};

static struct fv_wmr *entry_of(uint32_t key)
{
	struct fv_wmr *m = key >> 8 < FV_MRS ? &fv.w->mr[key >> 8] : NULL;

	return m && m->is_used && m->tag == (uint8_t)key ? m : NULL;
}

static struct fv_wmr *lies_in(struct fv_wmr *m, uint64_t addr, uint64_t length)
{
	return addr < m->addr || length > m->length || addr - m->addr > m->length - length ? NULL
											   : m;
}

struct fv_wmr *fv_mr_find(
	uint32_t key, uint32_t pd, uint64_t addr, uint64_t length, uint32_t access)
{
	struct fv_wmr *m = entry_of(key);

	if (!m || m->is_window || m->pd != pd || (m->access & access) != access)
		return NULL;
	return lies_in(m, addr, length);
}

struct fv_wmr *fv_remote_find(
	uint32_t key, const struct fv_wqp *by, uint64_t addr, uint64_t length, uint32_t access)
{
	struct fv_wmr *m = entry_of(key);

	if (!m || m->pd != by->pd || (m->access & access) != access)
		return NULL;
	if (m->is_window && m->qpn != (uint32_t)(by - fv.w->qp))
		return NULL;
	return lies_in(m, addr, length);
}

struct ibv_mw *fv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct fv_context *c = (struct fv_context *)pd->context;
	struct fv_mw *w;
	int64_t i;

	if (fv_fails("ibv_alloc_mw"))
		return NULL;
	if (type != IBV_MW_TYPE_2 || !c->dev->has_windows) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	w = calloc(1, sizeof(*w));
	fv_lock();
	i = c->dev->is_removed ? -EIO : fv_free_region();
	if (i < 0) {
		fv_unlock();
		free(w);
		errno = (int)-i;
		return NULL;
	}
	w->index = (uint32_t)i;
	fv.w->mr[i] = (struct fv_wmr){.is_used = true,
		.is_window = true,
		.tag = (uint8_t)(fv.w->mr[i].tag + 1),
		.pid = getpid(),
		.pd = ((struct fv_pd *)pd)->number};
	w->m = (struct ibv_mw){.context = pd->context,
		.pd = pd,
		.rkey = (uint32_t)i << 8 | fv.w->mr[i].tag,
		.type = type};
	((struct fv_pd *)pd)->users++;
	fv.n.windows++;
	fv_unlock();
	return &w->m;
}

static void unbind(struct fv_wmr *m)
{
	if (!m->qpn)
		return;
	fv.w->qp[m->qpn].windows--;
	fv.w->mr[m->of].windows--;
	m->qpn = m->access = 0;
	m->length = 0;
}

int fv_dealloc_mw(struct ibv_mw *mw)
{
	struct fv_mw *w = (struct fv_mw *)mw;

	fv_lock();
	unbind(&fv.w->mr[w->index]);
	fv.w->mr[w->index].is_used = false;
	fv_wait_for_copies();
	((struct fv_pd *)mw->pd)->users--;
	fv.n.windows--;
	fv_unlock();
	free(w);
	return 0;
}

/* A region of this domain that may be bound to, with all of the window in it. */
static struct fv_wmr *region_for(const struct fv_qp *q, const struct fv_wqe *e)
{
	struct fv_wmr *m = entry_of(e->lkey);
	bool writes = e->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);

	if (!m || m->is_window || m->pd != q->w->pd || !(m->access & IBV_ACCESS_MW_BIND) ||
		(writes && !(m->access & IBV_ACCESS_LOCAL_WRITE)))
		return NULL;
	return lies_in(m, e->remote, e->length);
}

int fv_bind(struct fv_qp *q, const struct fv_wqe *e)
{
	struct fv_wmr *w = entry_of(e->window), *m = region_for(q, e);

	if (!w || !w->is_window || w->qpn || w->pd != q->w->pd || !m || !e->length ||
		e->rkey >> 8 != e->window >> 8 || e->rkey == e->window)
		return IBV_WC_MW_BIND_ERR;
	w->tag = (uint8_t)e->rkey;
	w->access = e->access;
	w->addr = e->remote;
	w->length = e->length;
	w->at = m->at + (e->remote - m->addr);
	w->of = e->lkey >> 8;
	w->qpn = q->q.qp_num;
	m->windows++;
	q->w->windows++;
	fv.n.window_rights |= e->access;
	return 0;
}

int fv_invalidate(struct fv_qp *q, const struct fv_wqe *e)
{
	struct fv_wmr *w = entry_of(e->rkey);

	if (!w || !w->is_window || w->qpn != q->q.qp_num)
		return IBV_WC_MW_BIND_ERR;
	unbind(w);
	fv_wait_for_copies();
	return 0;
}
