/* SPDX-License-Identifier: Apache-2.0 */
/* The source's side of a verbs lane: tells the peer its keys, and answers grants with ranges and
 * sums. */
#include "xport/verbs/verbs.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* ---- open and close -----------------------------------------------------------------------------
 */

int wb__give_open(struct wb__lane *l)
{
	const struct wb__host *h = wb__verbs_rail(l->s->rail)->h;
	bool has_windows = false;

	for (uint32_t d = 0; d < h->n_device; d++)
		has_windows |= h->device[d].has_windows;
	l->told = wb_zalloc(WB__REGIONS_MAX, sizeof(*l->told));
	if (has_windows)
		l->window = wb_zalloc((size_t)WB__REGIONS_MAX * WBP_BULK_QPS, sizeof(*l->window));
	return l->told && (l->window || !has_windows) ? 0 : -ENOMEM;
}

void wb__give_close(struct wb__lane *l)
{
	wb_free(l->told);
	wb_free(l->window);
}

/* ---- what the peer knows ------------------------------------------------------------------------
 */

/* How often to look again for memory that is still being registered. */
#define READY_RETRY_NS WB_NS_PER_MS

/* Devices whose keys the peer gets, a bit each.  They have the memory, and a queue pair of this
 * lane is up on them.  If some of them are near the memory, only those.  0: none. */
static uint32_t devices_of(const struct wb__lane *l, const struct wb__memory *m)
{
	uint32_t has = 0;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
		if (l->qp[k].state == WB__QP_UP && m->mr[l->qp[k].device])
			has |= 1u << l->qp[k].device;
	return has & m->near ? has & m->near : has;
}

/* Fill in the MEMORY frame of @m; false: not yet, since windows are still being bound. */
static bool memory_frame(struct wb__lane *l, struct wb__memory *m, struct wb__frame *f)
{
	uint32_t devices = devices_of(l, m);
	bool is_all = true;

	*f = (struct wb__frame){.type = WBP_BULK_MEMORY,
		.region = m->id,
		.bytes = m->r.bytes,
		.id = (uintptr_t)m->r.base};
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		uint32_t d = l->qp[k].device;

		if (l->qp[k].state != WB__QP_UP || !(devices & 1u << d))
			continue;
		if (m->by_window & 1u << d)
			is_all &= wb__window_key(l, k, m, &f->key[k]);
		else {
			assert(m->state == WB__MEM_READY && m->mr[d]);
			f->key[k] = m->mr[d]->rkey;
		}
	}
	return is_all;
}

/* 1 = sent, 0 = socket full, negative. */
static int say(struct wb__sock *s, const struct wb__frame *f)
{
	int rc = wb__sock_send(s, f);

	return rc ? rc : wb__sock_flush(s, 0);
}

static bool is_theirs(const struct wb__sock *s, const struct wb__memory *m)
{
	return m && m->state == WB__MEM_READY && m->r.object == s->hello.object &&
	       wb__region_is_source(&m->r);
}

/* Is there a queue pair that is up and for which the peer has another key than @f says?  Keys of
 * lost queue pairs do not count: nobody uses them, and telling would cost a message for each region
 * and lost queue pair. */
static bool is_news(const struct wb__lane *l, const struct wb__told *t, const struct wb__frame *f)
{
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
		if (l->qp[k].state == WB__QP_UP && t->key[k] != f->key[k])
			return true;
	return false;
}

#define LATER 2

/* Tell the peer what has changed about region @i.  1 = it knows all, 0 = socket full, LATER:
 * windows are being bound, negative. */
static int tell_region(struct wb__sock *s, uint32_t i)
{
	struct wb__lane *l = wb__lane(s);
	struct wb__told *t = &l->told[i];
	struct wb__memory *m = wb__verbs_rail(s->rail)->known[i];
	struct wb__frame gone = {.type = WBP_BULK_UNREGION, .region = i}, is;
	int rc;

	if (t->serial && (!is_theirs(s, m) || t->serial != m->serial)) {
		t->serial = 0;
		rc = say(s, &gone);
		if (rc <= 0)
			return rc;
	}
	if (!is_theirs(s, m))
		return 1;
	if (!memory_frame(l, m, &is))
		return LATER;
	if (t->serial && !is_news(l, t, &is))
		return 1;
	t->serial = m->serial;
	memcpy(t->key, is.key, sizeof(t->key));
	return say(s, &is);
}

/* Answer for queue pairs that were made later, now that the peer has their keys. */
static int tell_qps(struct wb__sock *s)
{
	struct wb__lane *l = wb__lane(s);

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		struct wb__frame f = wb__qp_frame(l, k);
		int rc;

		if (!l->answer[k])
			continue;
		f.qp.answers = l->answer[k];
		l->answer[k] = 0;
		rc = say(s, &f);
		if (rc <= 0)
			return rc;
	}
	return 1;
}

int wb__give_idle(struct wb__sock *s)
{
	struct wb__lane *l = wb__lane(s);
	bool is_late = false;
	int rc = 1;

	/* Each key is for one queue pair, so first wait until the peer has named all of its own. */
	if (s->is_dialer || !l->is_dirty || l->seen != (1u << WBP_BULK_QPS) - 1)
		return 0;
	for (uint32_t i = 0; rc > 0 && i < wb__verbs_rail(s->rail)->n_known; i++)
		is_late |= (rc = tell_region(s, i)) == LATER;
	if (rc > 0 && is_late)
		return 1; /* a completion makes the socket ready */
	if (rc > 0)
		rc = tell_qps(s);
	if (rc <= 0)
		return rc < 0 ? rc : 1;
	l->is_dirty = false;
	return 0;
}

int wb__give_begin(struct wb__sock *s)
{
	wb__lane(s)->give.is_begun = false;
	return 0;
}

/* Is all memory of the running answer registered, and can the peer read it?  0 = yes, WB__WAIT, or
 * the code of what failed. */
static int is_ready(struct wb__sock *s)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(s->rail);
	const struct wb__op *op = s->tx_in->op;
	const struct wb__memory *m;

	for (uint32_t i = 0; i < op->n_iov; i++) {
		uint32_t id = wb__regions_find(
			&vr->sources, s->hello.object, op->iov[i].iov_base, op->iov[i].iov_len);

		if (id == WB__REGION_NONE)
			return vr->n_pending ? WB__WAIT : -EFAULT;
		m = vr->known[id];
		if (m->state == WB__MEM_FAILED)
			return m->code;
		if (m->r.gpu.is_there && !devices_of(wb__lane(s), m))
			return -ENOTSUP;
	}
	return 0;
}

/* Has the peer a key for all memory of the running answer?  Only asked when the device has denied
 * windows.  0 or -ENOMEM. */
static int is_reached(const struct wb__sock *s)
{
	const struct wb__lane *l = wb__lane(s);
	const struct wb__op *op = s->tx_in->op;

	for (uint32_t i = 0; i < op->n_iov; i++) {
		uint32_t id = wb__regions_find(l->give.by_address, s->hello.object,
			op->iov[i].iov_base, op->iov[i].iov_len);
		uint32_t keys = 0;

		for (uint32_t k = 0; id != WB__REGION_NONE && k < WBP_BULK_QPS; k++)
			keys |= l->qp[k].state == WB__QP_UP ? l->told[id].key[k] : 0;
		if (!keys)
			return -ENOMEM;
	}
	return 0;
}

int wb__give_payload(struct wb__sock *s, uint32_t *budget)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(s->rail);
	struct wb__lane *l = wb__lane(s);
	int rc;

	if (l->give.is_begun)
		return wb__give_step(s, &l->give, budget);
	if (vr->n_pending || vr->n_failed || vr->n_gpu) {
		rc = is_ready(s);
		if (rc == WB__WAIT)
			wb__rail_wake_at(s->rail, s->rail->now_ns + READY_RETRY_NS);
		if (rc)
			return rc == WB__WAIT ? rc : wb__sock_unwrite(s, rc);
	}
	rc = wb__give_idle(s); /* memory that has just become ready may not have been told yet */
	/* It is not the socket that has no room, but windows are being bound: a completion makes it
	 * ready. */
	if (rc > 0 && s->wr_ready)
		wb__rail_wake_at(s->rail, s->rail->now_ns + READY_RETRY_NS);
	if (rc)
		return rc < 0 ? rc : s->wr_ready ? WB__WAIT : WB__IDLE;
	if (l->n_denied && (rc = is_reached(s)))
		return wb__sock_unwrite(s, rc);
	return wb__give_step(s, &l->give, budget);
}
