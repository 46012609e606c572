/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/env.h"
#include "daemon/peers_internal.h"
#include "net/loop.h"
#include "net/ticket.h"
#include "proto/beat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOD "peers"
#define QUEUE_MAX 4096
#define RETRY_NS (100 * WB_NS_PER_MS)
#define RETRY_MAX_NS (2 * WB_NS_PER_S)
#define REFUSED_NS WB_NS_PER_S

static void dial(struct peer *peer);

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* ---- queue ---------------------------------------------------------------------------------- */

/* An agent that is gone was dialled by all others, so they must not dial again all at once.  The
 * longer a busy agent takes, the less it is given to do. */
static uint64_t retry_at(const struct peer *peer, uint64_t now)
{
	uint64_t ns = WB_MIN(WB_MAX((now - peer->failed_ns) / 4, RETRY_NS), RETRY_MAX_NS);

	return now + wb_apart_ns(ns, peer->e->p->a->instance ^ now);
}

static void queue_flush(struct peer *peer)
{
	assert(peer->out && peer->out->peer == peer);
	(void)wb_keep_send(&peer->queue, &peer->out->session, 1);
	wb_keep_confirm(&peer->queue, 1);
}

/* ---- life of a peer -------------------------------------------------------------------------- */

static struct conn *any_up(const struct peer *peer)
{
	for (struct conn *c = peer->e->p->conns; c; c = c->next)
		if (c->peer == peer && wb_session_is_up(&c->session))
			return c;
	return NULL;
}

void wb__peers_arm(struct wb__peers *p)
{
	uint64_t due = UINT64_MAX, now = now_ns();

	for (const struct conn *c = p->conns; c; c = c->next)
		due = WB_MIN(due, wb_session_due(&c->session));
	for (const struct peer_epoch *e = p->epochs; e; e = e->next)
		for (uint32_t i = 0; i < e->r->n_agent; i++)
			if (e->peer[i].retry_ns && !e->peer[i].out)
				due = WB_MIN(due, e->peer[i].retry_ns);
	if (due == UINT64_MAX || p->is_closing)
		wb_timer_stop(p->timer);
	else
		wb_timer_start(p->timer, due > now ? due - now : 1, 0);
}

static void give_up(struct peer *peer, const char *why)
{
	struct peer_epoch *e = peer->e;
	struct wb__peers *p = e->p;
	char text[WB_ERR_MSG_MAX];

	assert(!peer->out);
	snprintf(text, sizeof(text), "agent %s at %s is gone: %.768s", peer->at->name,
		peer->at->control, why);
	wb_keep_drop(&peer->queue);
	peer->retry_ns = peer->failed_ns = peer->answered_ns = 0;
	WB_LOG_WRN(MOD, "peer down", WB_S("peer", peer->at->name), WB_S("epoch", e->psk.id),
		WB_S("reason", text));
	if (p->a->core) {
		wb_transfer_peer_down(p->a->core, &e->r->id, (uint32_t)(peer - e->peer), text);
		wb__env_kick(p->a->env);
	}
}

/* Was nothing said that could be held against the peer?  A machine that has too much to do is late,
 * and ends what took too long (or what is in the way of others) in the midst of it. */
static bool is_silence(int code)
{
	return code == -ETIMEDOUT || code == -ECONNRESET || code == -EPIPE || code == -ECONNABORTED;
}

static void note_failure(struct peer *peer, int code, uint64_t heard_ns, uint64_t now)
{
	if (!peer->failed_ns)
		peer->failed_ns = code == -ETIMEDOUT ? heard_ns : now;
	if (is_silence(code))
		peer->answered_ns = 0;
	else if (!peer->answered_ns)
		peer->answered_ns = now;
}

/* The peer has no channel any more: try again, or say that it is gone. */
static void lost(struct peer *peer, int code, bool is_final, uint64_t heard_ns, const char *why)
{
	uint64_t now = now_ns(), patience = peer->e->r->patience_ns;
	char text[WB_ERR_MSG_MAX];

	peer->out = any_up(peer);
	if (peer->out) {
		queue_flush(peer);
		return;
	}
	note_failure(peer, code, heard_ns, now);
	if (is_final)
		peer->refused_ns = now;
	if (is_final || (peer->answered_ns && now - peer->answered_ns >= REFUSED_NS)) {
		give_up(peer, why);
	} else if (now + RETRY_NS >= peer->failed_ns + patience) {
		snprintf(text, sizeof(text),
			"it has not been heard for %.1f s (spec.heartbeatTimeoutSeconds, at least "
			"%.0f s): %.600s",
			(double)(now - peer->failed_ns) / 1e9, WB_BEAT_PATIENCE_NS / 1e9, why);
		give_up(peer, text);
	} else {
		peer->retry_ns = retry_at(peer, now);
	}
	wb__peers_arm(peer->e->p);
}

void wb__peer_up(struct peer *peer, struct conn *c)
{
	assert(wb_session_is_up(&c->session) && c->peer == peer);
	peer->failed_ns = peer->answered_ns = peer->retry_ns = 0;
	wb__peers_arm(peer->e->p); /* for heartbeats; an accepted channel has armed nothing yet */
	WB_LOG_INFO(MOD, "peer up", WB_S("peer", peer->at->name), WB_S("epoch", peer->e->psk.id),
		WB_S("address", wb_chan_peer(c->chan)),
		WB_S("dialled", c->session.side == WB_SIDE_DIALLED ? "yes" : "no"));
	if (peer->out && peer->out != c && wb_session_is_up(&peer->out->session))
		return; /* this channel is for the other side's messages */
	peer->out = c;
	queue_flush(peer);
}

void wb__peer_lost(struct peer *peer, struct conn *c, int code, bool is_final, const char *why)
{
	if (peer->out == c)
		lost(peer, code, is_final, c->session.heard_ns, why);
}

/* A try gets all of the patience that is left: if it is ended for another try, a busy peer has to
 * do the same again. */
static uint64_t patience_left(const struct peer *peer)
{
	uint64_t now = now_ns();
	uint64_t until = (peer->failed_ns ? peer->failed_ns : now) + peer->e->r->patience_ns;

	return until > now + REFUSED_NS ? until - now : REFUSED_NS;
}

static void dial(struct peer *peer)
{
	struct wb__peers *p = peer->e->p;
	uint32_t n_any = WB_MIN(peer->at->n_addr, WB_DIAL_ADDRS_MAX);
	uint64_t left = patience_left(peer);
	struct wb_chan_limits limits = {
		.framer = wb_frame_length, .connect_ns = left, .dial_ns = left};
	struct wb_dial_to to = {(const char *const *)peer->at->addr, n_any, peer->addr.port};
	struct conn *c = wb__peer_conn_create(p, WB_SIDE_DIALLED, peer->e->r->patience_ns);
	struct wb_chan_cb cb;
	int rc = -ENOMEM;

	assert(!peer->out && peer->addr.port && !peer->at->is_foreign);
	peer->retry_ns = 0;
	if (c) {
		c->peer = peer;
		cb = wb__peer_conn_callbacks(c);
		rc = n_any ? wb_tls_connect_any(
				     p->a->loop, peer->e->tls, &to, &limits, &cb, &c->chan)
			   : wb_tls_connect(p->a->loop, peer->e->tls, peer->addr.host,
				     peer->addr.port, &limits, &cb, &c->chan);
		if (rc < 0)
			wb__peer_conn_free(c);
	}
	if (rc == 0) {
		wb_session_dial(&c->session, c->chan, now_ns());
		peer->out = c;
	} else { /* no callback comes, and none may be made from here */
		if (!peer->failed_ns)
			peer->failed_ns = now_ns();
		peer->retry_ns = retry_at(peer, now_ns());
	}
	wb__peers_arm(p);
}

static void try_again(struct peer *peer)
{
	if (peer->at->is_foreign)
		give_up(peer, "it has no address of a family that is here");
	else if (peer->addr.port)
		dial(peer);
	else
		give_up(peer, "it was absent when this was planned");
}

static void on_timer(void *cookie)
{
	struct wb__peers *p = cookie;
	struct wb_err err = {0};
	uint64_t now = now_ns();

	for (struct peer_epoch *e = p->epochs; e; e = e->next)
		for (uint32_t i = 0; i < e->r->n_agent; i++)
			if (e->peer[i].retry_ns && now >= e->peer[i].retry_ns && !e->peer[i].out)
				try_again(&e->peer[i]);
	for (struct conn *c = p->conns; c; c = c->next)
		if (wb_session_tick(&c->session, now, &err) < 0)
			wb_session_end(&c->session, err.code, "%s", err.msg);
	wb__peers_arm(p);
}

/* ---- epochs ---------------------------------------------------------------------------------- */

static void epoch_free(struct peer_epoch *e)
{
	for (uint32_t i = 0; e->peer && i < e->r->n_agent; i++)
		wb_keep_drop(&e->peer[i].queue);
	wb_tls_put(e->tls);
	wb_psk_clear(&e->psk);
	wb_free(e->peer);
	wb_free(e);
}

void wb__peers_epoch_over(struct wb__peers *p, const struct wb_roster *r)
{
	struct peer_epoch **at = &p->epochs, *e;

	while (*at && (*at)->r != r)
		at = &(*at)->next;
	e = *at;
	if (!e)
		return;
	*at = e->next;
	/* The epoch's channels outlive it by a moment, and must not look at it. */
	for (struct conn *c = p->conns; c; c = c->next) {
		if (!c->peer || c->peer->e != e)
			continue;
		c->peer = NULL;
		wb_session_end(&c->session, 0, "its epoch is over");
	}
	epoch_free(e);
}

static int add_peers(struct peer_epoch *e)
{
	const struct wb_roster *r = e->r;

	e->peer = wb_zalloc(r->n_agent, sizeof(*e->peer));
	if (!e->peer)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->n_agent; i++) {
		e->peer[i].e = e;
		e->peer[i].at = &r->agent[i];
		if (wb_cli_addr(r->agent[i].control, &e->peer[i].addr) < 0)
			return -EINVAL;
	}
	return 0;
}

/* The key of an epoch, and the name by which agents show it. */
static void set_psk(const struct wb_roster *r, struct wb_psk *psk)
{
	snprintf(psk->id, sizeof(psk->id), "%s/%llu/%llu", r->id.object.text,
		(unsigned long long)r->id.term, (unsigned long long)r->id.number);
	memcpy(psk->key, r->key, sizeof(r->key));
	psk->bytes = sizeof(r->key);
}

struct peer_epoch *wb__peers_epoch(const struct wb__peers *p, const char *psk_id)
{
	for (struct peer_epoch *e = p->epochs; e; e = e->next)
		if (!strcmp(e->psk.id, psk_id))
			return e;
	return NULL;
}

static struct peer_epoch *find(const struct wb__peers *p, const struct wb_epoch_id *id)
{
	for (struct peer_epoch *e = p->epochs; e; e = e->next)
		if (wb_epoch_id_eq(&e->r->id, id))
			return e;
	return NULL;
}

int wb__peers_epoch_add(struct wb__peers *p, const struct wb_roster *r, struct wb_err *err)
{
	struct wb_tls_opts o = {.mode = WB_TLS_PSK};
	struct peer_epoch *e;
	int rc;

	if (find(p, &r->id))
		return wb_err_set(err, -EEXIST, "there is another plan of epoch %llu.%llu here",
			(unsigned long long)r->id.term, (unsigned long long)r->id.number);
	e = wb_zalloc(1, sizeof(*e));
	if (!e)
		return wb_err_set(err, -ENOMEM, "no memory for the agents of a plan");
	e->p = p;
	e->r = r;
	set_psk(r, &e->psk);
	o.psk = &e->psk;
	rc = add_peers(e);
	if (rc == 0)
		rc = wb_tls_client_create(&o, &e->tls, NULL);
	if (rc < 0) {
		epoch_free(e);
		return wb_err_set(err, rc, "agents of the plan: %s", wb_strerror(rc));
	}
	e->next = p->epochs;
	p->epochs = e;
	return 0;
}

int wb__peers_psk_find(void *cookie, const char *id, struct wb_psk *out)
{
	const struct peer_epoch *e = wb__peers_epoch(cookie, id);

	if (!e)
		return -ENOENT;
	*out = e->psk;
	return 0;
}

/* ---- who may read the pages of another ----------------------------------------------------------
 */

static struct wb_ticket_key ticket_key(const struct peer_epoch *e)
{
	struct wb_ticket_key k;

	wb_ticket_key_set(&k, e->psk.key, e->psk.bytes);
	return k;
}

static bool is_newest(const struct wb__peers *p, const struct peer_epoch *e)
{
	for (const struct peer_epoch *n = p->epochs; n != e; n = n->next)
		if (wb_object_id_eq(&n->r->id.object, &e->r->id.object))
			return false;
	return true;
}

static void make_ticket(
	const struct peer_epoch *e, const char *path, char out[static WB__PEERS_TICKET])
{
	struct wb_ticket_key k = ticket_key(e);
	char text[WB_TICKET_TEXT];

	wb_ticket_make(&k, path, e->psk.id, wb_wall_ns(), text);
	snprintf(out, WB__PEERS_TICKET, "%s:%s", e->psk.id, text);
}

void wb__peers_tickets(const struct wb__peers *p, const char *path, struct wb_buf *out)
{
	for (const struct peer_epoch *e = p->epochs; e; e = e->next) {
		char text[WB__PEERS_TICKET];

		if (!is_newest(p, e))
			continue;
		make_ticket(e, path, text);
		wb_buf_printf(out, "%s\n", text);
	}
}

const struct wb_roster *wb__peers_newest(const struct wb__peers *p, uint32_t i)
{
	for (const struct peer_epoch *e = p->epochs; e; e = e->next)
		if (is_newest(p, e) && !i--)
			return e->r;
	return NULL;
}

void wb__peers_ticket(const struct wb__peers *p, const struct wb_roster *r, const char *path,
	char out[static WB__PEERS_TICKET])
{
	const struct peer_epoch *e = find(p, &r->id);

	*out = '\0';
	if (e)
		make_ticket(e, path, out);
}

/* The epoch that a ticket names; NULL: none of ours. */
static struct peer_epoch *epoch_of(const struct wb__peers *p, const char *ticket)
{
	const char *colon = ticket ? strrchr(ticket, ':') : NULL;
	char id[WB_PSK_ID_MAX];

	if (!colon || (size_t)(colon - ticket) >= sizeof(id))
		return NULL;
	snprintf(id, sizeof(id), "%.*s", (int)(colon - ticket), ticket);
	return wb__peers_epoch(p, id);
}

bool wb__peers_ticket_holds(struct wb__peers *p, const char *path, const char *text)
{
	const struct peer_epoch *e = epoch_of(p, text);
	struct wb_ticket_key k;

	if (!e)
		return false;
	k = ticket_key(e);
	return wb_ticket_holds(&k, path, e->psk.id, strrchr(text, ':') + 1, wb_wall_ns());
}

int wb__peers_derive(const struct wb__peers *p, const char *ticket, const char *purpose,
	const char *text, uint8_t out[WB_MAC_BYTES])
{
	const struct peer_epoch *e = epoch_of(p, ticket);

	return e ? wb_derive(e->psk.key, e->psk.bytes, purpose, text, out) : -ENOENT;
}

/* ---- from the rest of the agent -------------------------------------------------------------- */

static bool is_broken_on_demand(struct wb__peers *p, const struct wb_msg_peer *msg)
{
	struct wb_fault_at at = {
		.version = (uint64_t)msg->version, .transfer = msg->transfer, .rail = WB_FAULT_ANY};
	struct wb_fault_hit hit;

	return wb_fault_hit(p->a->fault, WB_FAULT_CTRL, &at, &hit) & WB_FAULT_DROP;
}

void wb__peers_send(struct wb__peers *p, const struct wb_roster *r, uint32_t agent,
	const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes)
{
	struct peer_epoch *e = find(p, &r->id);
	struct peer *peer;

	if (!e || agent >= r->n_agent || p->is_closing)
		return;
	peer = &e->peer[agent];
	if (msg)
		WB_LOG_DEBUG(MOD, "send", WB_S("peer", peer->at->name), WB_U("kind", msg->kind),
			WB_U("transfer", msg->transfer), WB_U("engine", msg->engine));
	if (peer->out && wb_session_is_up(&peer->out->session) &&
		wb_session_send_frame(&peer->out->session, frame, bytes) == 0) {
		if (msg && is_broken_on_demand(p, msg))
			wb_session_end(&peer->out->session, -ECONNRESET, "cut by WB_FAULT");
		return;
	}
	/* What is said because the peer has refused us would be refused, too, and so for ever. */
	if (!peer->out && peer->refused_ns && now_ns() - peer->refused_ns < RETRY_NS)
		return;
	if (wb_keep_add_frame(&peer->queue, frame, bytes, QUEUE_MAX) < 0) {
		WB_LOG_ERR(MOD, "message to a peer lost", WB_S("peer", peer->at->name));
		return;
	}
	if (!peer->out && !peer->retry_ns) {
		if (peer->addr.port && !peer->at->is_foreign) {
			dial(peer);
			return;
		}
		peer->retry_ns = now_ns(); /* nobody may be called back from in here */
		wb__peers_arm(p);
	}
}

int wb__peers_start(struct wb__agent *a, struct wb__peers **out, struct wb_err *err)
{
	struct wb__peers *p = wb_zalloc(1, sizeof(*p));
	int rc;

	if (!p)
		return wb_err_set(err, -ENOMEM, "no memory for peers");
	p->a = a;
	rc = wb_timer_create(a->loop, on_timer, p, &p->timer);
	if (rc < 0) {
		wb_free(p);
		return wb_err_set(err, rc, "no memory for peers");
	}
	*out = p;
	return 0;
}

void wb__peers_close(struct wb__peers *p)
{
	p->is_closing = true;
	wb_timer_stop(p->timer);
	for (struct conn *c = p->conns; c; c = c->next) {
		c->peer = NULL;
		wb_session_end(&c->session, 0, "this agent stops");
	}
}

bool wb__peers_is_empty(const struct wb__peers *p)
{
	return !p->conns;
}

void wb__peers_destroy(struct wb__peers *p)
{
	if (!p)
		return;
	assert(wb__peers_is_empty(p) && !p->epochs);
	wb_timer_destroy(p->timer);
	wb_free(p);
}

uint32_t wb__peers_n_up(const struct wb__peers *p)
{
	uint32_t n = 0;

	for (const struct conn *c = p->conns; c; c = c->next)
		n += wb_session_is_up(&c->session);
	return n;
}
