/* SPDX-License-Identifier: Apache-2.0 */
/* A verbs lane: the queue pairs behind one socket, how they are made, lost and made anew, and the
 * frames about them. */
#include "xport/verbs/verbs.h"

#include "base/log.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct wb__verbs_rail *rail_of(const struct wb__lane *l)
{
	return wb__verbs_rail(l->s->rail);
}

static int say_qp(struct wb__lane *l, uint32_t k, uint32_t answers)
{
	struct wb__frame f = wb__qp_frame(l, k);

	f.qp.answers = answers;
	wb__rail_ready(l->s->rail, l->s);
	return wb__sock_send(l->s, &f);
}

/* ---- making them --------------------------------------------------------------------------------
 */

/* The port of queue pair @k of a lane while all ports are up. */
static uint32_t first_port(const struct wb__rail *r, uint32_t k)
{
	const struct wb__verbs_rail *vr = r->link;

	return (vr->port + (r->x->o.is_apart ? 0 : k)) % vr->h->n_port;
}

uint32_t wb__rail_ports(const struct wb__rail *r)
{
	uint32_t used = 0;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
		used |= 1u << first_port(r, k);
	return used;
}

/* Make queue pair @k on @port; a source also connects it to what the dialer's frame @peer says. */
static int make_on(struct wb__lane *l, uint32_t k, uint32_t port, const struct wb__frame *peer)
{
	struct wb__host *h = rail_of(l)->h;
	char own[160], gid[INET6_ADDRSTRLEN];
	int rc = wb__qp_make(l, k, port, l->s->is_dialer);

	if (rc || !peer)
		return rc;
	rc = wb__qp_connect(l, k, peer);
	if (!rc)
		return 0;
	(void)wb__qp_kill(l, k);
	wb__host_name_port(h, port, own, sizeof(own));
	inet_ntop(AF_INET6, peer->qp.gid, gid, sizeof(gid));
	WB_LOG_WRN("verbs", "a queue pair cannot be connected", WB_S("port", own),
		WB_S("peer", l->s->peer), WB_S("gid", gid), WB_S("error", wb_strerror(rc)));
	return rc;
}

/* Make queue pair @k on the @k-th port after the rail's own, or on the next port that is up.  Where
 * rails are apart, it is on the rail's own port as long as that is up.  A source, which has the
 * dialer's frame, tries ports on the network of the dialer's port first: each port may be on a
 * network of its own, and the rail that the dialer's socket came to may be any. */
static int make(struct wb__lane *l, uint32_t k, const struct wb__frame *peer)
{
	struct wb__host *h = rail_of(l)->h;
	uint32_t first = first_port(l->s->rail, k);
	int rc = -ENETDOWN;

	for (uint32_t i = 0; i < 2 * h->n_port; i++) {
		uint32_t port = (first + i) % h->n_port;
		bool is_near = !peer || wb__host_is_near(h, port, peer->qp.gid) ||
			       (port == first && l->s->rail->x->o.is_apart);

		if (is_near != (i < h->n_port) || !atomic_load(&h->port[port].is_up))
			continue;
		rc = make_on(l, k, port, peer);
		if (!rc)
			return 0;
	}
	return rc;
}

static bool is_alive(const struct wb__lane *l)
{
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
		if (l->qp[k].state == WB__QP_MADE || l->qp[k].state == WB__QP_UP)
			return true;
	return false;
}

static int fail_without(struct wb__lane *l, int rc)
{
	char down[256] = "";

	(void)wb__host_reduced(rail_of(l)->h, wb__rail_ports(l->s->rail), down, sizeof(down));
	return wb__sock_fail(l->s, rc, "no queue pair to agent %s on any port: %s%s%s", l->s->peer,
		wb_strerror(rc), down[0] ? ": " : "", down);
}

/* Dialer: queue pair @k is dead; set the time when it is made again. */
static void make_later(struct wb__lane *l, uint32_t k)
{
	uint32_t doubled = WB_MIN(l->again_at[k].n_lost, (uint32_t)WB__REMAKE_DOUBLE);

	l->again_at[k].n_lost++;
	l->again_at[k].at_ns = l->s->rail->now_ns + (WB__REMAKE_NS << doubled);
	wb__verbs_look_at(l->s->rail, l->again_at[k].at_ns);
}

static int make_all(struct wb__lane *l)
{
	int rc = 0;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		int one = make(l, k, NULL);

		l->qp[k].state = one ? WB__QP_DEAD : WB__QP_MADE;
		rc = rc ? rc : one;
		if (one)
			make_later(l, k);
		if (say_qp(l, k, 0))
			return l->s->code;
	}
	if (!is_alive(l))
		return fail_without(l, rc);
	return 0;
}

int wb__lane_open(struct wb__sock *s)
{
	struct wb__verbs_rail *vr = wb__verbs_rail(s->rail);
	struct wb__lane *l = wb_zalloc(1, sizeof(*l));

	if (!l)
		return wb__sock_fail(s, -ENOMEM, "no memory for a lane to agent %s", s->peer);
	l->s = s;
	s->link = l;
	l->give = (struct wb__giver){.by_address = &vr->sources, .region = vr->region};
	l->is_dirty = !s->is_dialer;
	if (s->is_dialer ? wb__take_open(l) : wb__give_open(l))
		return wb__sock_fail(s, -ENOMEM, "no memory for a lane to agent %s", s->peer);
	return s->is_dialer ? make_all(l) : 0;
}

void wb__lane_close(struct wb__sock *s)
{
	struct wb__lane *l = wb__lane(s);

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
		(void)wb__qp_kill(l, k);
	wb__take_close(l);
	wb__give_close(l);
	wb_free(l);
	s->link = NULL;
}

/* ---- losing them --------------------------------------------------------------------------------
 */

uint32_t wb__lane_n_up(const struct wb__lane *l)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++)
		n += l->qp[k].state == WB__QP_UP;
	return n;
}

/* Receiver: are all queue pairs down while READs of the incoming chunk are not all posted?  The
 * source's answer about new queue pairs comes behind that chunk and would never be read. */
static bool is_stuck(const struct wb__lane *l)
{
	return l->s->in_payload && !wb__lane_n_up(l);
}

static void say_lost(struct wb__lane *l, uint32_t k, const char *why, char *out, size_t cap)
{
	char port[160];

	/* Name the GID that the queue pair was made with, since it may be lost because the GID has
	 * changed. */
	wb__host_name_gid(rail_of(l)->h, l->qp[k].port, &l->qp[k].at.gid, port, sizeof(port));
	snprintf(out, cap, "%s %s agent %s: %s (%u reads were under way)", port,
		l->s->is_dialer ? "reading from" : "read by", l->s->peer, why,
		l->s->is_dialer ? l->qp[k].n_out : 0);
}

void wb__lane_lost(struct wb__lane *l, uint32_t k, int code, const char *why, bool is_ours)
{
	struct wb__sock *s = l->s;
	struct wb__part *list;
	char text[WB__REASON_MAX];

	if (l->qp[k].state != WB__QP_MADE && l->qp[k].state != WB__QP_UP)
		return;
	say_lost(l, k, why, text, sizeof(text));
	list = wb__qp_kill(l, k);
	wb__count(&s->rail->rails_lost, 1);
	WB_LOG_WRN("verbs", "a queue pair is lost", WB_S("what", text));
	wb__rail_ready(s->rail, s);
	if (!s->is_dialer) {
		l->is_dirty = true; /* a GPU's memory may now go by devices that are farther away */
		(void)say_qp(l, k, 0);
		return;
	}
	wb__take_again(l, list);
	if (is_ours || !is_alive(l) || is_stuck(l)) {
		(void)wb__sock_fail(s, code, "%s", text);
		return;
	}
	(void)say_qp(l, k, 0);
	make_later(l, k);
	wb__take_pump(l);
}

static bool has_moved(struct wb__lane *l, const struct wb__qp *q)
{
	struct wb__port_at at = wb__host_at(rail_of(l)->h, q->port);

	return memcmp(at.gid.raw, q->at.gid.raw, sizeof(at.gid.raw)) || at.lid != q->at.lid ||
	       at.gid_index != q->at.gid_index;
}

static void lose_moved(struct wb__lane *l, uint32_t k)
{
	char now[160], why[WB__REASON_MAX];

	wb__host_name_port(rail_of(l)->h, l->qp[k].port, now, sizeof(now));
	snprintf(why, sizeof(why), "the port has another address, it is %s", now);
	wb__lane_lost(l, k, -EADDRNOTAVAIL, why, false);
}

/* Dialer: the port is up again.  Queue pairs that belong there go back, also those that work on
 * another port now; otherwise this port would carry nothing until the connection is made anew.  The
 * last queue pair that is up stays where it is: the port may not reach the peer yet, and without
 * any queue pair the connection would end. */
static void go_back(struct wb__lane *l, uint32_t port)
{
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		struct wb__qp *q = &l->qp[k];

		if (first_port(l->s->rail, k) == port && q->port != port &&
			(q->state != WB__QP_UP || wb__lane_n_up(l) > 1))
			wb__take_again(l, wb__qp_kill(l, k));
		if (q->state == WB__QP_DEAD)
			l->again_at[k].at_ns = l->again_at[k].n_lost = 0;
	}
	wb__verbs_look_at(l->s->rail, l->s->rail->now_ns);
	wb__take_pump(l);
}

void wb__lane_ports(struct wb__lane *l, uint32_t port)
{
	bool is_up = atomic_load(&rail_of(l)->h->port[port].is_up);

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		struct wb__qp *q = &l->qp[k];

		if (q->port != port || (q->state != WB__QP_MADE && q->state != WB__QP_UP))
			continue;
		if (!is_up)
			wb__lane_lost(l, k, -ENETDOWN, "the port went down", false);
		else if (has_moved(l, q))
			lose_moved(l, k);
	}
	if (is_up && l->s->is_dialer && !l->s->code)
		go_back(l, port);
}

/* Make dead queue pairs anew whose time has come.  Returns when to look again. */
static uint64_t remake(struct wb__lane *l, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		if (l->qp[k].state != WB__QP_DEAD)
			continue;
		if (now < l->again_at[k].at_ns)
			next = WB_MIN(next, l->again_at[k].at_ns);
		else if (!make(l, k, NULL))
			(void)say_qp(l, k, 0);
		else {
			make_later(l, k);
			next = WB_MIN(next, l->again_at[k].at_ns);
		}
	}
	return next;
}

uint64_t wb__lane_look(struct wb__lane *l, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	if (!l->s->is_dialer)
		return wb__window_look(l, now);
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		struct wb__qp *q = &l->qp[k];

		if (q->state == WB__QP_UP && q->head &&
			now - q->head->posted_ns >= WB__READ_DEADLINE_NS)
			wb__lane_lost(l, k, -ETIMEDOUT, "no answer within the deadline", false);
		if (q->state == WB__QP_UP && q->head)
			next = WB_MIN(next, q->head->posted_ns + WB__READ_DEADLINE_NS);
	}
	return WB_MIN(remake(l, now), next);
}

/* ---- frames -------------------------------------------------------------------------------------
 */

static int on_qp_answer(struct wb__lane *l, const struct wb__frame *f)
{
	struct wb__qp *q = &l->qp[f->qp.k];

	assert(f->qp.k < WBP_BULK_QPS && l->s->is_dialer);
	if (!f->qp.number) {
		if (!f->qp.answers || (q->qp && f->qp.answers == q->qp->qp_num))
			wb__lane_lost(l, f->qp.k, -ENETUNREACH,
				q->state == WB__QP_MADE ? "the other side reaches it from no port"
							: "the other side has lost it",
				false);
		return l->s->code;
	}
	if (q->state != WB__QP_MADE || f->qp.answers != q->qp->qp_num)
		return 0; /* an answer to a queue pair that is gone */
	if (wb__qp_connect(l, f->qp.k, f))
		wb__lane_lost(l, f->qp.k, -EIO, "it cannot be connected", false);
	wb__take_pump(l);
	wb__rail_ready(l->s->rail, l->s);
	return l->s->code;
}

/* The receiver has made or lost a queue pair: make its counterpart here, or destroy it. */
static int on_qp(struct wb__lane *l, const struct wb__frame *f)
{
	uint32_t k = f->qp.k;
	bool is_again = l->seen & 1u << k;

	assert(k < WBP_BULK_QPS && !l->s->is_dialer);
	(void)wb__qp_kill(l, k);
	l->seen |= 1u << k;
	l->is_dirty = true;
	if (!f->qp.number)
		return 0;
	(void)make(l, k, f);
	/* A later queue pair is answered after its keys are sent, since the receiver uses it as
	 * soon as the answer comes. */
	if (is_again) {
		l->answer[k] = f->qp.number;
		wb__rail_ready(l->s->rail, l->s);
		return 0;
	}
	return say_qp(l, k, f->qp.number);
}

int wb__lane_on_frame(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__lane *l = wb__lane(s);

	if (f->type == WBP_BULK_QP)
		return s->is_dialer ? on_qp_answer(l, f) : on_qp(l, f);
	if (!s->is_dialer && f->type == WBP_BULK_RELEASE)
		return wb__give_released(s, f);
	if (s->is_dialer && (f->type == WBP_BULK_MEMORY || f->type == WBP_BULK_UNREGION))
		return wb__take_memory(s, f);
	if (s->is_dialer && f->type == WBP_BULK_TABLE)
		return wb__take_table(s, f);
	if (s->is_dialer && f->type == WBP_BULK_TRAILER)
		return wb__take_trailer(s, f);
	return wb__sock_fail(
		s, -EPROTO, "agent %s sent an unexpected frame of type %d", s->peer, (int)f->type);
}
