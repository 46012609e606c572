/* SPDX-License-Identifier: Apache-2.0 */
/* One control channel between two agents: hello, welcome, messages, end. */
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/env.h"
#include "daemon/peers_internal.h"
#include "daemon/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "peers"

static struct wb_session_counts *counts(struct conn *c)
{
	return &c->p->a->wire[WB__WIRE_AGENT];
}

struct conn *wb__peer_conn_create(struct wb__peers *p, bool is_dialled)
{
	struct conn *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->p = p;
	c->is_dialled = is_dialled;
	c->state = is_dialled ? CONN_DIALLING : CONN_AWAIT_HELLO;
	c->proto = WBP_VERSION_MAX;
	c->heard_ns = wb_now_ns(&wb_clock_real);
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

void wb__peer_conn_end(struct conn *c, int code, const char *why)
{
	if (c->state == CONN_ENDING)
		return;
	c->state = CONN_ENDING;
	c->has_cause = true;
	wb_err_set(&c->cause, code, "%s", why);
	wb_chan_close(c->chan);
}

void wb__peer_conn_beat(struct conn *c, uint64_t now)
{
	struct wb_msg_heartbeat m = {.sent_ns = now};

	c->beat_ns = now;
	(void)wb__wire_send(c->chan, c->proto, WBP_HEARTBEAT, &m, counts(c));
}

static void reject(struct conn *c, int code, const char *sentence)
{
	char text[WBP_TEXT_MAX];
	struct wb_msg_reject m = {.code = code, .sentence = text};

	snprintf(text, sizeof(text), "%s", sentence);
	(void)wb__wire_send(c->chan, c->proto, WBP_REJECT, &m, counts(c));
	wb__peer_conn_end(c, code, text);
}

static void on_open(void *cookie, struct wb_chan *ch)
{
	struct conn *c = cookie;
	struct epoch_keys *e = c->peer ? c->peer->e : NULL;
	struct wb_msg_peer_hello m = {
		.version_min = WBP_VERSION_MIN, .version_max = WBP_VERSION_MAX};
	char name[WBP_NAME_MAX];

	(void)ch;
	if (!e || c->state != CONN_DIALLING)
		return;
	snprintf(name, sizeof(name), "%s", c->p->a->o.name);
	m.agent = name;
	m.to = c->peer->name;
	m.object = e->object;
	m.epoch.term = e->term;
	m.epoch.number = e->number;
	c->state = CONN_AWAIT_WELCOME;
	if (wb__wire_send(c->chan, WBP_VERSION_MAX, WBP_PEER_HELLO, &m, counts(c)) < 0)
		wb__peer_conn_end(c, -ECONNRESET, "hello could not be sent");
}

static int check_hello(struct conn *c, const struct wb_msg_peer_hello *m, struct wb_err *err)
{
	struct epoch_keys *e = wb__peers_epoch(c->p, wb_chan_identity(c->chan));
	const char *me = c->p->a->o.name;
	char who[WBP_NAME_MAX + 16];

	if (!e || e->object != m->object || e->term != m->epoch.term ||
		e->number != m->epoch.number)
		return wb_err_set(err, WB_ESTALE,
			"agent %s speaks of epoch %llu.%llu, its key is another's", m->agent,
			(unsigned long long)m->epoch.term, (unsigned long long)m->epoch.number);
	if (strcmp(m->to, me))
		return wb_err_set(err, -ENOENT,
			"agent %s looks for %s and reached %s: check --advertise of %s", m->agent,
			m->to, me, m->to);
	for (uint32_t i = 0; i < e->n; i++)
		if (!strcmp(e->peer[i].name, m->agent))
			c->peer = &e->peer[i];
	if (!c->peer)
		return wb_err_set(
			err, -ENOENT, "agent %s is not part of epoch %s", m->agent, e->id);
	snprintf(who, sizeof(who), "agent %s", m->agent);
	return wb_version_agree(who, WBP_VERSION_MIN, WBP_VERSION_MAX, m->version_min,
		m->version_max, &c->proto, err);
}

static void on_hello(struct conn *c, const struct wb_msg_peer_hello *m)
{
	struct wb_msg_peer_welcome out = {0};
	char name[WBP_NAME_MAX];
	struct wb_err err = {0};
	int rc = check_hello(c, m, &err);

	if (rc < 0) {
		c->peer = NULL;
		reject(c, rc, err.msg);
		return;
	}
	snprintf(name, sizeof(name), "%s", c->p->a->o.name);
	out.version = c->proto;
	out.agent = name;
	out.last_transfer = wb_core_highest(c->p->a->core, NULL);
	if (wb__wire_send(c->chan, c->proto, WBP_PEER_WELCOME, &out, counts(c)) < 0) {
		wb__peer_conn_end(c, -ECONNRESET, "welcome could not be sent");
		return;
	}
	c->state = CONN_UP;
	wb__peer_up(c->peer, c);
}

static void on_welcome(struct conn *c, const struct wb_msg_peer_welcome *m)
{
	if (strcmp(m->agent, c->peer->name) || m->version < WBP_VERSION_MIN ||
		m->version > WBP_VERSION_MAX) {
		wb__peer_conn_end(c, -EPROTO, "another agent answered");
		return;
	}
	c->proto = m->version;
	c->state = CONN_UP;
	wb__peer_up(c->peer, c);
}

static void act(struct conn *c, uint16_t type, const union wb_msg *m)
{
	char why[64];

	if (type == WBP_HEARTBEAT && c->state == CONN_UP) {
		return;
	} else if (type == WBP_PEER && c->state == CONN_UP) {
		if (!c->peer)
			return;
		/* The key of an epoch says nothing about another object, or another membership. */
		if (strcmp(m->peer.uid, c->peer->e->uid) || m->peer.term != c->peer->e->term ||
			m->peer.number != c->peer->e->number) {
			wb__peer_conn_end(c, -EPROTO, "it speaks of another epoch than its key's");
			return;
		}
		WB_LOG_DEBUG(MOD, "received", WB_S("peer", c->peer->name),
			WB_U("kind", m->peer.kind), WB_U("transfer", m->peer.transfer),
			WB_U("engine", m->peer.engine));
		wb_core_peer_msg(c->p->a->core, c->peer->name, type, &m->peer);
		wb__env_kick(c->p->a->env);
	} else if (type == WBP_PEER_HELLO && c->state == CONN_AWAIT_HELLO) {
		on_hello(c, &m->peer_hello);
	} else if (type == WBP_PEER_WELCOME && c->state == CONN_AWAIT_WELCOME && c->peer) {
		on_welcome(c, &m->peer_welcome);
	} else if (type == WBP_REJECT && c->is_dialled) {
		c->is_refused = !m->reject.retry;
		wb__peer_conn_end(c, -ECONNREFUSED, m->reject.sentence);
	} else {
		snprintf(why, sizeof(why), "%s is out of place", wb_msg_name(type));
		wb__peer_conn_end(c, -EPROTO, why);
	}
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	struct conn *c = cookie;
	struct wb_err err = {0};
	struct wb_frame f;
	union wb_msg m;
	int rc;

	(void)ch;
	if (c->state == CONN_ENDING)
		return;
	c->heard_ns = wb_now_ns(&wb_clock_real);
	rc = wb__wire_decode(frame, bytes, counts(c), &f, &m, &err);
	if (rc < 0) {
		wb__peer_conn_end(c, rc, err.msg);
		return;
	}
	act(c, f.type, &m);
	wb_msg_free(f.type, &m);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct conn *c = cookie;
	struct peer *peer = c->peer;
	const struct wb_err *cause = c->has_cause ? &c->cause : why;
	bool was_up = c->state == CONN_UP || c->has_cause;
	/* A peer that leaves before it has answered has not left in order. */
	int code = !cause->code && !was_up ? -ECONNRESET : cause->code;

	if (!peer && cause->code)
		WB_LOG_WRN(MOD, "peer refused", WB_S("address", wb_chan_peer(ch)),
			WB_S("reason", cause->msg));
	if (peer && !c->p->is_closing) {
		c->state = CONN_ENDING;
		wb__peer_lost(peer, c, code, c->is_refused,
			cause->msg[0] ? cause->msg : "it closed the connection");
	}
	wb__peer_conn_free(c);
}

struct wb_chan_cb wb__peer_conn_callbacks(struct conn *c)
{
	return (struct wb_chan_cb){
		.cookie = c, .on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
}

void wb__peers_accept(struct wb__peers *p, struct wb_chan *ch)
{
	struct conn *c = p->is_closing ? NULL : wb__peer_conn_create(p, false);
	struct wb_chan_cb cb;

	if (!c) {
		wb_chan_close(ch);
		return;
	}
	c->chan = ch;
	cb = wb__peer_conn_callbacks(c);
	wb_chan_bind(ch, &cb);
}
