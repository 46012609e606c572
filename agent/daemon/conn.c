/* SPDX-License-Identifier: Apache-2.0 */
/* One control channel between two agents: hello, welcome, messages, end. */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/env.h"
#include "daemon/peers_internal.h"
#include "proto/beat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "peers"
static const struct wb_session_io io = {
	wb_chan_put, wb_chan_stop, wb_msg_encode, wb_msg_decode, wb_chan_put_lent};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

struct conn *wb__peer_conn_create(
	struct wb__peers *p, enum wb_session_side side, uint64_t patience_ns)
{
	struct conn *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->p = p;
	c->session = (struct wb_session){.io = &io,
		.side = side,
		.bounds.hello_ns = patience_ns / 2,
		.bounds.silent_ns = patience_ns / 2,
		.bounds.beat_ns = wb_beat_interval_ns(patience_ns / 2),
		.counts = &p->a->control[WB__CONTROL_AGENT]};
	c->next = p->conns;
	p->conns = c;
	return c;
}

void wb__peer_conn_free(struct conn *c)
{
	struct conn **at = &c->p->conns;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	wb_free(c);
}

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct conn *c = cookie;
	const struct peer_epoch *e = c->peer ? c->peer->e : NULL;
	struct wb_msg_peer_hello m = {
		.version_min = WBP_VERSION_MIN, .version_max = WBP_VERSION_MAX};
	char name[WBP_NAME_MAX];

	(void)ch;
	if (!e || c->session.state != WB_SESSION_DIALLING)
		return;
	snprintf(name, sizeof(name), "%s", c->p->a->o.name);
	m.agent = name;
	m.to = c->peer->at->name;
	m.object = e->r->id.object.uid;
	m.epoch.term = e->r->id.term;
	m.epoch.number = e->r->id.number;
	(void)wb_session_open(&c->session, &m, now_ns());
	wb__peers_arm(c->p);
}

static int check_hello(struct conn *c, const struct wb_msg_peer_hello *m, struct wb_err *err)
{
	struct peer_epoch *e = wb__peers_epoch(c->p, wb_chan_identity(c->chan));
	const char *me = c->p->a->o.name;
	char who[WBP_NAME_MAX + 16];

	if (!e || e->r->id.object.uid != m->object || e->r->id.term != m->epoch.term ||
		e->r->id.number != m->epoch.number)
		return wb_err_set(err, WB_ESTALE,
			"agent %s speaks of epoch %llu.%llu, its key is another's", m->agent,
			(unsigned long long)m->epoch.term, (unsigned long long)m->epoch.number);
	if (strcmp(m->to, me))
		return wb_err_set(err, -ENOENT,
			"agent %s looks for %s and reached %s: check --advertise of %s", m->agent,
			m->to, me, m->to);
	for (uint32_t i = 0; i < e->r->n_agent; i++)
		if (!strcmp(e->r->agent[i].name, m->agent))
			c->peer = &e->peer[i];
	if (!c->peer)
		return wb_err_set(
			err, -ENOENT, "agent %s is not part of epoch %s", m->agent, e->psk.id);
	snprintf(who, sizeof(who), "agent %s", m->agent);
	return wb_session_agree(&c->session, who, m->version_min, m->version_max, err);
}

static void on_hello(struct conn *c, const struct wb_msg_peer_hello *m)
{
	struct wb_msg_peer_welcome out = {0};
	char name[WBP_NAME_MAX];
	struct wb_err err = {0};
	int rc = check_hello(c, m, &err);

	if (rc < 0) {
		c->peer = NULL;
		wb_session_reject(&c->session, rc, false, err.msg);
		return;
	}
	snprintf(name, sizeof(name), "%s", c->p->a->o.name);
	out.version = c->session.version;
	out.agent = name;
	out.last_transfer = wb_transfer_highest(c->p->a->core, NULL);
	if (wb_session_send(&c->session, WBP_PEER_WELCOME, &out) < 0)
		return;
	wb_session_enter(&c->session, WB_SESSION_UP, now_ns());
	wb__peer_up(c->peer, c);
}

static void on_welcome(struct conn *c, const struct wb_msg_peer_welcome *m)
{
	struct wb_err err = {0};

	if (strcmp(m->agent, c->peer->at->name)) {
		wb_session_end(&c->session, -EPROTO, "another agent answered");
	} else if (wb_session_chosen(&c->session, "it", m->version, &err) < 0) {
		wb_session_end(&c->session, err.code, "%s", err.msg);
	} else {
		wb_session_enter(&c->session, WB_SESSION_UP, now_ns());
		wb__peer_up(c->peer, c);
	}
}

static void on_peer(struct conn *c, const struct wb_msg_peer *m)
{
	const struct peer_epoch *e = c->peer->e;
	const struct wb_epoch_id *id = &e->r->id;

	/* The key of an epoch says nothing about another object, or another membership. */
	if (strcmp(m->uid, id->object.text) || m->term != id->term || m->number != id->number) {
		wb_session_end(&c->session, -EPROTO, "it speaks of another epoch than its key's");
		return;
	}
	WB_LOG_DEBUG(MOD, "received", WB_S("peer", c->peer->at->name), WB_U("kind", m->kind),
		WB_U("transfer", m->transfer), WB_U("engine", m->engine));
	wb_transfer_peer_msg(c->p->a->core, id, (uint32_t)(c->peer - e->peer), m);
	wb__env_kick(c->p->a->env);
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	struct conn *c = cookie;
	struct wb_err err = {0};
	struct wb_frame f;
	union wb_msg m;
	int rc = wb_session_take(&c->session, frame, bytes, now_ns(), &f, &m, &err);

	(void)ch;
	if (rc < 0)
		wb_session_end(&c->session, rc, "%s", err.msg);
	if (rc <= 0)
		return;
	if (f.type == WBP_PEER) {
		on_peer(c, &m.peer);
	} else if (f.type == WBP_PEER_HELLO) {
		on_hello(c, &m.peer_hello);
	} else if (f.type == WBP_PEER_WELCOME) {
		on_welcome(c, &m.peer_welcome);
	} else if (f.type == WBP_REJECT) {
		c->session.is_refused = !m.reject.retry;
		wb_session_end(&c->session, -ECONNREFUSED, "%s", m.reject.sentence);
	}
	wb_msg_free(f.type, &m);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct conn *c = cookie;
	struct peer *peer = c->peer;
	const struct wb_err *cause = wb_session_closed(&c->session, why);
	/* A peer that is busy with others ends a channel that is being opened. */
	int code = !cause->code && !c->session.was_up ? -ECONNRESET : cause->code;

	if (!peer && cause->code && wb__agent_may_log(c->p->a))
		WB_LOG_WRN(MOD, "peer refused", WB_S("address", wb_chan_peer(ch)),
			WB_S("reason", cause->msg));
	if (peer && !c->p->is_closing)
		wb__peer_lost(peer, c, code, c->session.is_refused, cause->msg);
	wb__peer_conn_free(c);
}

struct wb_chan_cb wb__peer_conn_callbacks(struct conn *c)
{
	return (struct wb_chan_cb){
		.cookie = c, .on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
}

void wb__peers_accept(struct wb__peers *p, struct wb_chan *ch)
{
	const struct peer_epoch *e = wb__peers_epoch(p, wb_chan_identity(ch));
	uint64_t patience = e ? e->r->patience_ns : WB_BEAT_PATIENCE_NS;
	struct conn *c = p->is_closing ? NULL : wb__peer_conn_create(p, WB_SIDE_ACCEPTED, patience);
	struct wb_chan_cb cb;

	if (!c) {
		wb_chan_close(ch);
		return;
	}
	c->chan = ch;
	wb_session_accept(&c->session, ch, now_ns());
	cb = wb__peer_conn_callbacks(c);
	wb_chan_bind(ch, &cb);
	wb__peers_arm(p);
}
