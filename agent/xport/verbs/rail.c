/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs part of a rail: its completion queues, memory and bounce buffer, and what it looks at
 * in each round. */
#include "xport/verbs/verbs.h"

#include "base/mem.h"
#include "xport/inet.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#define BATCH 32 /* completions taken in one call */
/* Events that a batch may make, and some more.  A completion may end WB__READS_MAX READs, and each
 * of these a chunk.  A chunk that was cancelled makes two events: CANCELLED and RETIRED. */
#define BATCH_ROOM (2 * BATCH * WB__READS_MAX + WB__EV_ROOM)
_Static_assert(BATCH_ROOM <= WB__RING_ITEMS / 2, "other events must not be in the way for long");
#define RETRY_NS (100 * WB_NS_PER_US)

/* ---- open and close -----------------------------------------------------------------------------
 */

/* What a descriptor in the rail's epoll is.  A mark below these is the number of a device, and the
 * descriptor that of its completion channel. */
enum { MARK_EVENTS = WB__DEVICES_MAX, MARK_ALARM };
_Static_assert(MARK_ALARM < WB__LINK_MARKS, "one for each");

static int watch(struct wb__rail *r, int fd, uint32_t events, uint32_t mark)
{
	struct epoll_event e = {.events = events, .data.ptr = &r->link_mark[mark]};

	return epoll_ctl(r->epfd, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

static int open_queue(struct wb__rail *r, uint32_t d)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);
	struct wb__device *dev = &vr->h->device[d];
	int entries = WB_MIN(dev->attr.max_cqe, WB__CQ_ENTRIES), fd;

	assert(entries >= WB__COMPLETIONS_MIN);
	vr->n_entry[d] = (uint32_t)entries;

	errno = 0;
	vr->channel[d] = vr->h->ibv->create_comp_channel(dev->ctx);
	if (!vr->channel[d])
		return errno ? -errno : -EIO;
	errno = 0;
	vr->cq[d] = vr->h->ibv->create_cq(dev->ctx, entries, NULL, vr->channel[d], 0);
	if (!vr->cq[d])
		return errno ? -errno : -EIO;
	fd = vr->channel[d]->fd;
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return watch(r, fd, EPOLLIN, d);
}

static int open_memory(struct wb__verbs_rail *vr)
{
	void *p = mmap(NULL, WB__SLABS * (size_t)WB__SLAB_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	vr->slab = p;
	for (uint32_t i = 0; i < WB__SLABS; i++)
		vr->free_slab[vr->n_slab++] = vr->slab + i * (size_t)WB__SLAB_BYTES;
	vr->qp = wb_zalloc(WB__RAIL_QPS, sizeof(*vr->qp));
	return vr->qp ? 0 : -ENOMEM;
}

int wb__verbs_rail_open(struct wb__rail *r)
{
	struct wb__verbs_rail *vr = wb_zalloc(1, sizeof(*vr));
	const char *addr = wb__host_address(r->addr);
	int rc;

	if (!vr)
		return -ENOMEM;
	r->link = vr;
	vr->h = &wb__verbs_of(r->x)->host;
	vr->look_ns = UINT64_MAX;
	vr->port = wb__host_port_of(vr->h, r);
	memmove(r->addr, addr, strlen(addr) + 1);
	for (uint32_t i = 0; i < vr->h->n_port; i++)
		vr->turn[i] = atomic_load(&vr->h->port[i].turn);
	rc = wb__inet_rail_open(r);
	if (!rc)
		rc = open_memory(vr);
	for (uint32_t d = 0; !rc && d < vr->h->n_device; d++) {
		rc = open_queue(r, d);
		/* Only the first rail takes events of devices; it wakes the other rails by
		 * alarm_fd. */
		if (!rc && !r->index)
			rc = watch(r, vr->h->device[d].ctx->async_fd, EPOLLIN, MARK_EVENTS);
	}
	return rc ? rc : watch(r, vr->h->alarm_fd, EPOLLIN | EPOLLET, MARK_ALARM);
}

void wb__verbs_rail_close(struct wb__rail *r)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);

	if (!vr)
		return;
	for (uint32_t i = 0; i < vr->n_bounce; i++)
		for (uint32_t d = 0; d < WB__DEVICES_MAX; d++)
			if (vr->bounce[i].mr[d])
				vr->h->ibv->dereg_mr(vr->bounce[i].mr[d]);
	for (uint32_t d = 0; d < WB__DEVICES_MAX; d++) {
		if (vr->cq[d])
			vr->h->ibv->destroy_cq(vr->cq[d]);
		if (vr->channel[d])
			vr->h->ibv->destroy_comp_channel(vr->channel[d]);
	}
	if (vr->slab)
		munmap(vr->slab, WB__SLABS * (size_t)WB__SLAB_BYTES);
	wb_free(vr->qp);
	wb_free(vr);
}

/* ---- memory -------------------------------------------------------------------------------------
 */

static void tell_lanes(struct wb__rail *r)
{
	for (struct wb__sock *s = r->all; s; s = s->all_next) {
		if (!s->link)
			continue;
		wb__lane(s)->is_dirty = !s->is_dialer;
		wb__rail_ready(r, s);
	}
}

static void memory_is(struct wb__verbs_rail *vr, struct wb__memory *m)
{
	assert(m->state != WB__MEM_PENDING && m->id < WB__REGIONS_MAX && !vr->known[m->id]);
	assert(vr->n_pending);
	vr->n_pending--;
	vr->n_failed += m->state == WB__MEM_FAILED;
	vr->known[m->id] = m;
	vr->region[m->id] = m->r;
	vr->n_known = WB_MAX(vr->n_known, m->id + 1);
	vr->n_gpu += m->r.gpu.is_there;
	if (wb__region_is_source(&m->r))
		wb__regions_put(&vr->sources, m->id, &m->r);
	if (m->r.direction != WB_XPORT_SOURCE)
		wb__regions_put(&vr->landings, m->id, &m->r);
}

static void memory_goes(struct wb__rail *r, struct wb__memory *m)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);

	if (vr->known[m->id] == m) {
		for (struct wb__sock *s = r->all; s; s = s->all_next)
			if (s->link)
				wb__window_leave(wb__lane(s), m->id);
		assert(vr->n_failed >= (m->state == WB__MEM_FAILED));
		vr->n_failed -= m->state == WB__MEM_FAILED;
		vr->known[m->id] = NULL;
		vr->n_gpu -= m->r.gpu.is_there;
		wb__regions_drop(&vr->sources, m->id);
		wb__regions_drop(&vr->landings, m->id);
	} else {
		assert(vr->n_pending);
		vr->n_pending--;
	}
	wb__host_let_go(vr->h, m);
}

void wb__verbs_command(struct wb__rail *r, const struct wb__cmd *c)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);

	if (c->n == WB__MEM_COMES)
		vr->n_pending++;
	else if (c->n == WB__MEM_IS)
		memory_is(vr, c->p);
	else
		memory_goes(r, c->p);
	if (c->n != WB__MEM_COMES)
		tell_lanes(r);
}

struct wb__memory *wb__verbs_landing(
	struct wb__verbs_rail *vr, uint64_t object, const void *p, size_t bytes)
{
	uint32_t id = wb__regions_find(&vr->landings, object, p, bytes);
	struct wb__memory *m = id == WB__REGION_NONE ? NULL : vr->known[id];

	return m && m->state == WB__MEM_READY && !m->is_readonly ? m : NULL;
}

struct ibv_mr *wb__verbs_bounce(struct wb__verbs_rail *vr, uint64_t object, uint32_t d)
{
	struct wb__bounce *b = vr->bounce;
	struct ibv_pd *pd;

	while (b < vr->bounce + vr->n_bounce && b->object != object)
		b++;
	if (b == vr->bounce + vr->n_bounce) {
		if (vr->n_bounce == WB__DOMAINS_MAX)
			return NULL;
		vr->n_bounce++;
		b->object = object;
	}
	pd = b->mr[d] ? NULL : wb__host_pd(vr->h, d, object);
	if (pd)
		b->mr[d] = vr->h->ibv->mr_reg(
			pd, vr->slab, WB__SLABS * (size_t)WB__SLAB_BYTES, IBV_ACCESS_LOCAL_WRITE);
	return b->mr[d];
}

/* ---- completions --------------------------------------------------------------------------------
 */

/* Is this error about the request, so that neither port nor network is to blame? */
static bool is_ours(enum ibv_wc_status s)
{
	switch (s) {
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return true;
	default:
		return false;
	}
}

static void completed(struct wb__verbs_rail *vr, const struct ibv_wc *wc)
{
	uint32_t n = (uint32_t)(wc->wr_id & 0xffff);
	struct wb__rail_qp *q = n < WB__RAIL_QPS ? &vr->qp[n] : NULL;

	wb_dassert(!q || !q->lane || q->lane->qp[q->k].number == n);
	if (!q || !q->lane || q->gen != (uint16_t)(wc->wr_id >> 16))
		return; /* the queue pair is gone */
	if (wc->status == IBV_WC_SUCCESS && !q->lane->s->is_dialer)
		wb__window_bound(q->lane, q->k, (uint32_t)(wc->wr_id >> 32));
	else if (wc->status == IBV_WC_SUCCESS)
		wb__take_upto(q->lane, q->k, (uint32_t)(wc->wr_id >> 32));
	else if (wc->status == IBV_WC_WR_FLUSH_ERR)
		wb__lane_lost(q->lane, q->k, -EIO, "flushed without a first cause", false);
	else
		wb__lane_lost(q->lane, q->k, wc->status == IBV_WC_RETRY_EXC_ERR ? -ETIMEDOUT : -EIO,
			vr->h->ibv->wc_status_str(wc->status), is_ours(wc->status));
}

static bool poll_queue(struct wb__rail *r, uint32_t d)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);
	struct ibv_wc wc[BATCH];
	bool is_any = false;
	int n = BATCH;

	while (n == BATCH && vr->n_out[d]) {
		if (r->late_head || wb_ring_room(&r->ev) < BATCH_ROOM) {
			wb__rail_wake_at(r, r->now_ns + RETRY_NS);
			return false;
		}
		n = ibv_poll_cq(vr->cq[d], BATCH, wc);
		for (int i = 0; i < n; i++)
			completed(vr, &wc[i]);
		is_any |= n > 0;
		if (n > 0)
			wb__count(&r->completions, (uint64_t)n);
	}
	return is_any;
}

static bool poll_queues(struct wb__rail *r)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);
	bool is_any = false;

	for (uint32_t d = 0; d < vr->h->n_device; d++)
		is_any |= poll_queue(r, d);
	return is_any;
}

/* ---- the rail's round ---------------------------------------------------------------------------
 */

static void look_at_ports(struct wb__rail *r)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);

	for (uint32_t i = 0; i < vr->h->n_port; i++) {
		uint32_t turn = atomic_load(&vr->h->port[i].turn);

		if (turn == vr->turn[i])
			continue;
		vr->turn[i] = turn;
		for (struct wb__sock *s = r->all; s; s = s->all_next)
			if (s->link)
				wb__lane_ports(wb__lane(s), i);
	}
}

void wb__verbs_look_at(struct wb__rail *r, uint64_t ns)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);

	vr->look_ns = WB_MIN(vr->look_ns, ns);
	wb__rail_wake_at(r, ns); /* the rail may go to sleep before it looks at look_ns */
}

static void look_at_lanes(struct wb__rail *r)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);

	if (r->now_ns >= vr->look_ns) {
		vr->look_ns = UINT64_MAX;
		for (struct wb__sock *s = r->all; s; s = s->all_next)
			if (s->link)
				wb__verbs_look_at(r, wb__lane_look(wb__lane(s), r->now_ns));
	}
	if (vr->look_ns != UINT64_MAX)
		wb__rail_wake_at(r, vr->look_ns);
}

static void look_for_devices(struct wb__rail *r)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);

	if (r->index)
		return;
	if (r->now_ns >= vr->find_ns) {
		wb__host_find(vr->h);
		vr->find_ns = r->now_ns + WB__FIND_NS;
	}
	wb__rail_wake_at(r, vr->find_ns);
}

bool wb__verbs_rail_poll(struct wb__rail *r)
{
	bool is_any = poll_queues(r);

	look_for_devices(r);
	look_at_ports(r);
	look_at_lanes(r);
	return is_any;
}

bool wb__verbs_rail_arm(struct wb__rail *r)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);
	bool is_new = false;

	for (uint32_t d = 0; d < vr->h->n_device; d++) {
		if (!vr->n_out[d] || vr->is_armed[d])
			continue;
		vr->is_armed[d] = is_new = true;
		if (ibv_req_notify_cq(vr->cq[d], 0))
			vr->is_armed[d] = false;
	}
	/* A completion from before the queue was armed wakes nobody, so look once more. */
	return !is_new || !poll_queues(r);
}

/* Each look is a system call, and a chunk may have to wait for it.  So look only at what was ready,
 * and only once: arming makes one event, and epoll reports again what is left. */
void wb__verbs_rail_event(struct wb__rail *r, uint32_t mark)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(r);
	struct ibv_cq *cq;
	void *user;

	if (mark < vr->h->n_device && !vr->h->ibv->get_cq_event(vr->channel[mark], &cq, &user)) {
		vr->h->ibv->ack_cq_events(cq, 1);
		vr->is_armed[mark] = false;
	}
	for (uint32_t d = 0; mark == MARK_EVENTS && d < vr->h->n_device; d++)
		wb__host_look(vr->h, &vr->h->device[d]);
}
