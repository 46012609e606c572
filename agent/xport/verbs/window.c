/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows of type 2B: each gives one queue pair the right to read one region. */
#include "xport/verbs/verbs.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

/* How long to wait while the rail's completion queue has no room for one more bind. */
#define RETRY_NS WB_NS_PER_MS

static struct wb__verbs_rail *rail_of(const struct wb__lane *l)
{
	return wb__verbs_rail(l->s->rail);
}

static struct wb__window *window_of(const struct wb__lane *l, uint32_t k, uint32_t region)
{
	return &l->window[region * WBP_BULK_QPS + k];
}

/* Free the window, before its region is let go and before its queue pair is destroyed. */
static void drop(struct wb__lane *l, struct wb__window *w)
{
	if (w->mw)
		ibv_dealloc_mw(w->mw);
	l->n_denied -= w->state == WB__WINDOW_DENIED;
	wb__host_let_go(rail_of(l)->h, w->memory);
	memset(w, 0, sizeof(*w));
}

static void deny(struct wb__lane *l, uint32_t k, struct wb__window *w, int err)
{
	const struct wb__device *d = &rail_of(l)->h->device[l->qp[k].device];

	w->state = WB__WINDOW_DENIED;
	l->n_denied++;
	WB_LOG_WRN("verbs",
		"no memory window can be made: that queue pair does not read the memory",
		WB_S("device", d->name), WB_S("peer", l->s->peer),
		WB_U("bytes", w->memory->r.bytes), WB_S("error", wb_strerror(-err)),
		WB_I("device_max", d->attr.max_mw),
		WB_S("remedy", "each queue pair of a peer takes one for each region: fewer peers, "
			       "rails or regions, or a device that has more"));
}

static int post(struct wb__lane *l, uint32_t k, struct wb__window *w)
{
	struct wb__qp *q = &l->qp[k];
	const struct wb_xport_region *r = &w->memory->r;
	struct ibv_send_wr *bad,
		wr = {.wr_id = q->number | (uint64_t)rail_of(l)->qp[q->number].gen << 16 |
			       (uint64_t)w->memory->id << 32,
			.opcode = IBV_WR_BIND_MW,
			.send_flags = IBV_SEND_SIGNALED,
			.bind_mw = {.mw = w->mw,
				.rkey = ibv_inc_rkey(w->mw->rkey),
				.bind_info = {.mr = w->memory->mr[q->device],
					.addr = (uintptr_t)r->base,
					.length = r->bytes,
					.mw_access_flags = IBV_ACCESS_REMOTE_READ}}};

	w->key = wr.bind_mw.rkey;
	return ibv_post_send(q->qp, &wr, &bad);
}

/* Begin to bind a window.  true: it is being bound, or is denied; false: not now. */
static bool begin(struct wb__lane *l, uint32_t k, struct wb__memory *m, struct wb__window *w)
{
	struct wb__qp *q = &l->qp[k];
	uint32_t *out = &rail_of(l)->n_out[q->device];
	uint64_t now = l->s->rail->now_ns;
	int err;

	if (q->n_out == WB__BINDS_MAX || *out >= rail_of(l)->n_entry[q->device]) {
		wb__verbs_look_at(l->s->rail, now + RETRY_NS);
		return false;
	}
	errno = 0;
	*w = (struct wb__window){.memory = m, .state = WB__WINDOW_BINDING};
	atomic_fetch_add(&m->refs, 1);
	w->mw = ibv_alloc_mw(m->mr[q->device]->pd, IBV_MW_TYPE_2);
	if (!w->mw) {
		deny(l, k, w, errno ? errno : ENOMEM);
		return true;
	}
	err = post(l, k, w);
	if (err) {
		wb__lane_lost(l, k, -err, "no memory window can be bound", false);
		return false;
	}
	if (!q->n_out)
		q->bound_ns = now;
	q->n_out++;
	++*out;
	wb__verbs_look_at(l->s->rail, now + WB__READ_DEADLINE_NS);
	return true;
}

bool wb__window_key(struct wb__lane *l, uint32_t k, struct wb__memory *m, uint32_t *key)
{
	struct wb__window *w = window_of(l, k, m->id);

	if (w->state != WB__WINDOW_NONE && w->memory != m)
		return false; /* the window of the region's former memory is still being bound */
	if (w->state == WB__WINDOW_NONE && !begin(l, k, m, w))
		return false;
	*key = w->state == WB__WINDOW_BOUND ? w->key : 0;
	return w->state != WB__WINDOW_BINDING;
}

void wb__window_bound(struct wb__lane *l, uint32_t k, uint32_t region)
{
	struct wb__qp *q = &l->qp[k];
	struct wb__window *w = window_of(l, k, region);

	assert(region < WB__REGIONS_MAX && w->state == WB__WINDOW_BINDING && q->n_out);
	q->n_out--;
	rail_of(l)->n_out[q->device]--;
	q->bound_ns = l->s->rail->now_ns;
	w->state = WB__WINDOW_BOUND;
	if (w->is_left)
		drop(l, w);
	wb__rail_ready(l->s->rail, l->s);
}

void wb__window_leave(struct wb__lane *l, uint32_t region)
{
	for (uint32_t k = 0; l->window && k < WBP_BULK_QPS; k++) {
		struct wb__window *w = window_of(l, k, region);

		if (w->state == WB__WINDOW_BINDING)
			w->is_left = true; /* the request names it */
		else if (w->state != WB__WINDOW_NONE)
			drop(l, w);
	}
}

void wb__window_close(struct wb__lane *l, uint32_t k)
{
	for (uint32_t i = 0; l->window && i < WB__REGIONS_MAX; i++)
		if (window_of(l, k, i)->state != WB__WINDOW_NONE)
			drop(l, window_of(l, k, i));
}

uint64_t wb__window_look(struct wb__lane *l, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t k = 0; l->window && k < WBP_BULK_QPS; k++) {
		struct wb__qp *q = &l->qp[k];

		if (q->state == WB__QP_UP && q->n_out && now - q->bound_ns >= WB__READ_DEADLINE_NS)
			wb__lane_lost(l, k, -ETIMEDOUT,
				"no memory window was bound within the deadline", false);
		if (q->state == WB__QP_UP && q->n_out)
			next = WB_MIN(next, q->bound_ns + WB__READ_DEADLINE_NS);
	}
	if (l->is_dirty) /* binding may have had no room */
		wb__rail_ready(l->s->rail, l->s);
	return next;
}
