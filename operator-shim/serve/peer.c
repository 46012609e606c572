/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of agents, from HELLO until they are closed, and the messages that come by them. */
#include "base/buf.h"
#include "base/fault.h"
#include "base/mem.h"
#include "operator-shim/serve/internal.h"
#include "proto/beat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ADDRESS_MAX 63 /* numeric */
#define WELCOME_OBJECTS_MAX 64 /* limit of the message; agents in clusters name theirs */

struct peer *wb__serve_peer(const struct wb_serve *s, uint32_t id)
{
	for (struct peer *p = s->peer; p; p = p->next)
		if (p->id == id && wb_session_is_up(&p->session))
			return p;
	return NULL;
}

static void link_close(void *chan)
{
	const struct peer *p = ((const struct wb_chan *)chan)->cb.cookie;

	if (p->is_admitted && p->s) /* another agent may wait for its name */
		wb__serve_check_by(p->s, 0);
	wb_chan_stop(chan);
}

static const struct wb_session_io io = {
	wb_chan_put, link_close, wb_msg_encode, wb_msg_decode, wb_chan_put_lent};

void wb__serve_free_peer(struct peer *p)
{
	if (p->hello.token)
		explicit_bzero((char *)(uintptr_t)p->hello.token, strlen(p->hello.token));
	wb_msg_free(WBP_HELLO, &p->hello);
	wb__serve_drop_uploads(p, NULL);
	wb_free(p->upload);
	wb__serve_drop_outgo(p, NULL);
	wb_free(p->outgo);
	for (size_t i = 0; i < p->n_joined; i++)
		wb_msg_free(WBP_WORKERS, &p->joined[i].workers);
	wb_free(p->joined);
	wb_free(p->pod);
	wb_free(p->pod_uid);
	wb_free(p);
}

static void on_closed(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct peer *p = cookie, **at;
	const struct wb_err *cause = wb_session_closed(&p->session, why);
	struct wb_serve *s = p->s;

	if (s) {
		for (at = &s->peer; *at != p; at = &(*at)->next)
			;
		*at = p->next;
		if (p->was_claimed && s->env.unclaim)
			s->env.unclaim(s->env.ctx, p->id);
		if (p->is_admitted && !p->is_orderly && !p->is_let_go && !s->is_draining) {
			wb_metric_add(s->metrics, WB_SM_LOST, NULL, 1);
			WB_LOG_WRN(MOD, "agent connection lost", WB_S("agent", p->hello.agent),
				WB_S("why", cause->msg));
		}
		if (!p->hello.agent && why->code)
			wb_serve_refused(s, wb_chan_peer(ch), why);
		for (size_t i = 0; i < p->n_joined; i++)
			wb__serve_leave(p, p->joined[i].o, p->is_orderly);
		wb__serve_discount(p);
		if (p->is_admitted)
			wb__serve_check_by(s, 0);
		wb__serve_act(s);
	}
	wb__serve_free_peer(p);
}

/* ---- HELLO ---- */

static void list_objects(const struct wb_serve *s, struct wb_buf *b)
{
	for (size_t i = 0; i < s->n_object && i < 8; i++)
		wb_buf_printf(b, "%s%s", i ? ", " : "", s->object[i]->key);
	if (!s->n_object)
		wb_buf_printf(b, "none");
}

static bool knows_objects(struct peer *p)
{
	for (uint32_t i = 0; i < p->hello.n_objects; i++) {
		struct wb_buf b;

		if (wb__serve_object(p->s, p->hello.objects[i]))
			continue;
		wb_buf_init(&b, WBP_TEXT_MAX);
		wb_buf_printf(&b, "this operator has no object %.100s", p->hello.objects[i]);
		if (!p->s->env.authenticate) { /* else tenants would learn of others */
			wb_buf_printf(&b, "; it serves ");
			list_objects(p->s, &b);
		}
		wb__serve_reject(p, -ENOENT, p->s->is_open, wb_buf_cstr(&b));
		wb_buf_finish(&b);
		return false;
	}
	return true;
}

bool wb__serve_serves(const struct peer *p, const struct object *o)
{
	for (uint32_t i = 0; i < p->hello.n_objects; i++)
		if (!strcmp(p->hello.objects[i], o->key)) /* these are full names by now */
			return true;
	return p->hello.n_objects == 0;
}

struct object *wb__serve_object_of(const struct peer *p, const char *name)
{
	bool is_short = name && *name && !strchr(name, '/');
	/* Where agents show tokens, only full names count: a short one would be searched among the
	 * objects of all tenants. */
	struct object *o = is_short && p->s->env.authenticate ? NULL : wb__serve_object(p->s, name);

	return o && wb__serve_serves(p, o) ? o : NULL;
}

/* Replace short names in HELLO by full ones: a short name may mean another object later. */
static bool make_whole(struct peer *p)
{
	for (uint32_t i = 0; i < p->hello.n_objects; i++) {
		char *key = wb_strdup(wb__serve_object(p->s, p->hello.objects[i])->key);

		if (!key)
			return false;
		wb_free((char *)(uintptr_t)p->hello.objects[i]);
		p->hello.objects[i] = key;
	}
	return true;
}

/* The highest term of the objects that the agent serves. */
static uint64_t highest_term(const struct peer *p)
{
	uint64_t term = 0;

	for (size_t i = 0; i < wb__serve_n_of(p); i++) {
		const struct object *o = wb__serve_nth_of(p, i);

		term = WB_MAX(term, o ? wb_reconcile_term(o->r) : 0);
	}
	return term;
}

static void redirect(struct peer *p)
{
	struct wb_msg_redirect m = {.host = p->s->leader_host, .port = p->s->leader_port};

	(void)wb_session_send(&p->session, WBP_REDIRECT, &m);
	wb_session_end(&p->session, 0, "it was sent to the leader");
}

static void send_welcome(struct peer *p)
{
	struct wb_serve *s = p->s;
	struct wb_msg_welcome m = {.version = p->session.version,
		.operator_name = s->name,
		.operator_id = s->operator_id,
		.term = highest_term(p),
		.heartbeat_ns = wb_beat_interval_ns(p->session.bounds.silent_ns)};

	m.objects = wb_zalloc(WELCOME_OBJECTS_MAX, sizeof(*m.objects));
	if (!m.objects) {
		wb_session_end(&p->session, -ENOMEM, "memory is short");
		return;
	}
	for (size_t i = 0; i < wb__serve_n_of(p) && m.n_objects < WELCOME_OBJECTS_MAX; i++) {
		struct object *o = wb__serve_nth_of(p, i);

		if (o)
			wb__serve_fill_object(o, &m.objects[m.n_objects++]);
	}
	(void)wb_session_send(&p->session, WBP_WELCOME, &m);
	wb_free(m.objects); /* its strings are borrowed */
}

/* An agent that is older than encryption would send weights in the clear, and nothing would tell it
 * not to: reject it if an object requires encryption. */
static bool can_encrypt(struct peer *p)
{
	char text[WBP_TEXT_MAX];

	for (size_t i = 0; i < wb__serve_n_of(p) && p->session.version < 2; i++) {
		struct object *o = wb__serve_nth_of(p, i);

		if (!o || o->spec.encryption != WB_ENCRYPTION_TLS)
			continue;
		snprintf(text, sizeof(text),
			"agent %.200s speaks protocol version %u, which cannot encrypt what agents "
			"send each other, but spec.transport.encryption of %.320s is TLS: upgrade "
			"that agent",
			p->hello.agent, p->session.version, o->key);
		wb__serve_report_refused(o, p, WB_REFUSED_VERSION, text);
		wb__serve_reject(p, WB_EVERSION, false, text);
		return false;
	}
	return true;
}

/* Remove names that HELLO repeats, so that each object counts once. */
static void drop_repeated(struct wb_msg_hello *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->n_objects; i++) {
		uint32_t k = 0;

		while (k < n && strcmp(m->objects[k], m->objects[i]) != 0)
			k++;
		if (k == n)
			m->objects[n++] = m->objects[i];
		else
			wb_free((char *)(uintptr_t)m->objects[i]);
	}
	m->n_objects = n;
}

void wb__serve_admit(struct peer *p)
{
	struct wb_serve *s = p->s;

	drop_repeated(&p->hello);
	if (!can_encrypt(p)) /* asked here: an object may have changed while it waited */
		return;
	if (!wb__serve_count_agent(p))
		return;
	p->session.bounds.silent_ns = wb__serve_heartbeat_timeout_ns(p);
	wb_session_enter(&p->session, WB_SESSION_UP, wb_now_ns(s->env.clock));
	p->is_admitted = true;
	wb__serve_check_by(s, wb_session_due(&p->session));
	wb_chan_limit(p->ch, 0);
	WB_LOG_INFO(MOD, "agent connected", WB_S("agent", p->hello.agent),
		WB_S("peer", wb_chan_peer(p->ch)), WB_S("build", p->hello.build));
	/* The term that an agent has heard of matters only to the objects that it serves. */
	for (size_t i = 0; i < wb__serve_n_of(p); i++) {
		struct object *o = wb__serve_nth_of(p, i);

		if (!o)
			continue;
		wb_reconcile_hear(wb__serve_touch(o), p->hello.term, p->hello.term_operator);
		wb__serve_report_refused(o, p, WB_REFUSED_NAME, "");
	}
	send_welcome(p);
}

static int agree(struct peer *p, struct wb_err *err)
{
	char who[300];

	snprintf(who, sizeof(who), "agent %s", p->hello.agent);
	return wb_session_agree(&p->session, who, p->hello.version_min, p->hello.version_max, err);
}

/* Whether the agent speaks a protocol version that we speak.  If not, its objects report this, and
 * it is rejected.  Where agents show tokens, this is checked only after the token, since the
 * objects may then speak of the agent. */
static bool speaks_ours(struct peer *p)
{
	struct wb_err err = {0};
	int rc = agree(p, &err);

	if (rc == 0)
		return true;
	for (uint32_t i = 0; i < p->hello.n_objects; i++) {
		struct object *o = wb__serve_object(p->s, p->hello.objects[i]);

		if (o)
			wb__serve_report_refused(o, p, WB_REFUSED_VERSION, err.msg);
	}
	wb__serve_reject(p, rc, false, err.msg);
	return false;
}

/* A HELLO names the connection that it was made for, so a recorded HELLO is of no use on another
 * connection. */
static bool is_bound(struct peer *p)
{
	char text[WB_CHAN_BINDING_TEXT];

	if (!p->hello.binding || !*p->hello.binding)
		return true; /* from an older agent, which does not send it */
	return wb_chan_binding(p->ch, text) == 0 && !strcmp(text, p->hello.binding);
}

/* A token is for objects with their full names; a short name could be that of another tenant. */
static bool names_are_whole(const struct peer *p)
{
	for (uint32_t i = 0; i < p->hello.n_objects; i++) {
		const char *slash = strchr(p->hello.objects[i], '/');

		if (!slash || slash == p->hello.objects[i] || !slash[1] || strchr(slash + 1, '/'))
			return false;
	}
	return true;
}

/* Have the agent's token checked (env.authenticate).  Until the answer comes the agent is told
 * nothing, not even whether the object exists. */
static void claim(struct peer *p)
{
	struct wb_serve_claim c = {.agent = p->hello.agent,
		.token = p->hello.token,
		.object = p->hello.objects,
		.n_object = p->hello.n_objects};

	if (!c.token || !*c.token || !c.n_object) {
		wb__serve_reject(p, -EPERM, false,
			!c.n_object ? "name the object this agent serves (--object)"
				    : "this operator wants a token (--token-file)");
		return;
	}
	if (!names_are_whole(p)) {
		wb__serve_reject(p, -EINVAL, false, "name the object as NAMESPACE/NAME (--object)");
		return;
	}
	if (!is_bound(p)) {
		wb__serve_turn_away(p, WB_REFUSED_TOKEN, -EACCES,
			"this HELLO was made for another connection: it was sent again",
			"connection");
		return;
	}
	if (wb_chan_trust(p->ch, WB_CHAN_CLAIMS) < 0) {
		wb__serve_reject(p, -EUSERS, true,
			"too many agents of this address have not proved yet who they are: try "
			"again");
		return;
	}
	wb_session_enter(&p->session, WB_SESSION_ASKED, wb_now_ns(p->s->env.clock));
	p->was_claimed = true;
	p->s->env.authenticate(p->s->env.ctx, p->id, &c);
	explicit_bzero((char *)(uintptr_t)p->hello.token, strlen(p->hello.token));
}

/* Takes the message's content. */
static void on_hello(struct peer *p, struct wb_msg_hello *m)
{
	struct wb_serve *s = p->s;

	p->hello = *m;
	memset(m, 0, sizeof(*m));
	if (s->env.authenticate)
		(void)agree(p, NULL); /* sets the version of the answer's frame */
	else if (!speaks_ours(p))
		return;
	if (!p->hello.agent[0] || !p->hello.instance) {
		wb__serve_reject(p, -EINVAL, false, "HELLO needs the agent's name and instance");
		return;
	}
	/* Hosts are sent to every agent of the plan: refuse what is too long to be an address. */
	for (uint32_t i = 0; i < p->hello.n_hosts; i++)
		if (strlen(p->hello.hosts[i]) > ADDRESS_MAX) {
			wb__serve_reject(
				p, -EINVAL, false, "HELLO lists a host that is no address");
			return;
		}
	if (s->leader_host[0]) {
		redirect(p);
		return;
	}
	if (s->idle[0]) {
		wb__serve_reject(p, -EAGAIN, true, s->idle);
		return;
	}
	if (s->env.authenticate) { /* which objects exist is told only after the token is checked */
		claim(p);
		return;
	}
	if (!knows_objects(p))
		return;
	if (make_whole(p))
		wb__serve_let_in(p);
	else
		wb_session_end(&p->session, -ENOMEM, "memory is short");
}

static bool keep_proof(struct peer *p, const struct wb_serve_who *who)
{
	snprintf(p->ns, sizeof(p->ns), "%s", who->ns);
	p->pod = wb_strdup(who->pod);
	p->pod_uid = wb_strdup(who->pod_uid);
	return p->pod && p->pod_uid;
}

void wb_serve_authenticated(struct wb_serve *s, uint32_t peer, const struct wb_serve_who *who,
	int rc, const char *sentence)
{
	struct peer *p = s->peer;

	while (p && p->id != peer)
		p = p->next;
	if (!p || p->session.state != WB_SESSION_ASKED || p->is_second)
		return;
	if (who && !keep_proof(p, who))
		wb_session_end(&p->session, -ENOMEM, "memory is short"); /* it comes again */
	else if (rc < 0)
		wb__serve_turn_away(p, WB_REFUSED_TOKEN, rc, sentence,
			who             ? "namespace"
			: rc == -EAGAIN ? "unchecked"
					: "token");
	else if (wb_chan_trust(p->ch, WB_CHAN_PROVED) == 0 && speaks_ours(p) && knows_objects(p))
		wb__serve_let_in(p);
	wb__serve_act(s);
}

/* ---- frames ---- */

static void on_heartbeat(struct peer *p, const struct wb_msg_heartbeat *m)
{
	if (m->echo_ns)
		wb__serve_answered(p, m->echo_ns);
}

static void on_ready(
	struct peer *p, const char *object, struct wb_p_epoch epoch, int rc, const char *sentence)
{
	struct object *o = wb__serve_object_of(p, object);
	struct wb_reconcile_epoch e = {epoch.term, epoch.number};

	wb_fault_phase(p->s->env.fault, WB_FAULT_READY);
	if (o)
		wb_reconcile_ready(wb__serve_touch(o), wb__serve_now(p->s), p->id, e, rc, sentence);
}

static void on_drain(struct peer *p, const struct wb_msg_drain *m)
{
	struct object *o;

	if (wb__serve_may_log(p->s, LOG_OF_LEAVING))
		WB_LOG_INFO(MOD, "agent leaves", WB_S("agent", p->hello.agent),
			WB_S("object", m->object && *m->object ? m->object : "all"),
			WB_S("why", m->sentence));
	if (m->object && *m->object) {
		o = wb__serve_object_of(p, m->object);
		if (o)
			wb__serve_leave(p, o, true);
		return;
	}
	p->is_orderly = true;
	for (size_t i = 0; i < p->n_joined; i++)
		wb__serve_leave(p, p->joined[i].o, true);
	wb__serve_check_by(p->s, 0); /* another agent may wait for its name */
}

void wb_serve_reader(
	struct wb_serve *s, uint32_t peer, uint64_t number, int rc, const char *sentence)
{
	struct wb_msg_reader_answer m = {.number = number, .code = rc, .sentence = sentence};
	struct peer *p = s->peer;

	while (p && p->id != peer)
		p = p->next;
	if (p)
		(void)wb_session_send(&p->session, WBP_READER_ANSWER, &m);
}

static void on_reader(struct peer *p, const struct wb_msg_reader *m)
{
	struct wb_serve *s = p->s;

	if (s->env.reader)
		s->env.reader(s->env.ctx, p->id, m->number, m->token ? m->token : "", p->ns);
	else
		wb_serve_reader(s, p->id, m->number, -ENOTSUP,
			"this operator serves files: it knows no cluster that could say whose "
			"token it is");
	if (m->token)
		explicit_bzero((char *)(uintptr_t)m->token, strlen(m->token));
}

static void dispatch(struct peer *p, uint16_t type, union wb_msg *m)
{
	switch (type) {
	case WBP_WORKERS:
		wb__serve_on_workers(p, &m->workers);
		break;
	case WBP_CONTENT:
		wb__serve_on_content(p, &m->content);
		break;
	case WBP_READY:
		on_ready(p, m->ready.object, m->ready.epoch, 0, NULL);
		break;
	case WBP_REFUSE:
		on_ready(p, m->refuse.object, m->refuse.epoch,
			m->refuse.code < 0 ? (int)m->refuse.code : -EINVAL, m->refuse.sentence);
		break;
	case WBP_REPORT:
		wb__serve_on_report(p, &m->report);
		break;
	case WBP_READER:
		on_reader(p, &m->reader);
		break;
	case WBP_HEARTBEAT:
		on_heartbeat(p, &m->heartbeat);
		break;
	case WBP_DRAIN:
		on_drain(p, &m->drain);
		break;
	default: /* REJECT */
		WB_LOG_WRN(MOD, "agent refused this operator", WB_S("agent", p->hello.agent),
			WB_S("why", m->reject.sentence));
		wb_session_end(&p->session, -ECONNREFUSED, "%s", m->reject.sentence);
	}
}

static void on_frame(void *cookie, struct wb_chan *ch, const uint8_t *frame, size_t bytes)
{
	struct peer *p = cookie;
	struct wb_serve *s = p->s;
	struct wb_err err = {0};
	struct wb_frame f = {0};
	union wb_msg m;
	int rc;

	(void)ch;
	if (!s)
		return;
	wb__serve_end_frame(p);
	rc = wb_session_take(&p->session, frame, bytes, wb_now_ns(s->env.clock), &f, &m, &err);
	if (rc == 0)
		return;
	wb_metric_add(s->metrics, WB_SM_FRAMES, NULL, 1);
	if (rc < 0) {
		wb_metric_add(s->metrics, WB_SM_REFUSED, WB_LABELS("frame"), 1);
		if (wb__serve_may_log(s, LOG_OF_CONNECTIONS))
			WB_LOG_WRN(MOD, "bad message", WB_S("peer", wb_chan_peer(p->ch)),
				WB_S("why", err.msg));
		wb__serve_reject(p, rc, false, err.msg);
		return;
	}
	if (f.type == WBP_HELLO)
		on_hello(p, &m.hello);
	else
		dispatch(p, f.type, &m);
	wb_msg_free(f.type, &m);
	/* Heartbeats are most of what comes, and report nothing to reconcile. */
	if (f.type != WBP_HEARTBEAT)
		wb__serve_act(s);
}

static int on_head(void *cookie, struct wb_chan *ch, size_t bytes)
{
	struct peer *p = cookie;
	struct wb_serve *s = p->s;
	int rc = s ? wb__serve_begin_frame(p, bytes) : 0;

	(void)ch;
	if (rc < 0)
		wb__serve_act(s);
	return rc;
}

static void on_stuck(void *cookie, struct wb_chan *ch, const struct wb_err *why)
{
	struct peer *p = cookie;

	if (!p->s) {
		wb_chan_close(ch);
		return;
	}
	wb__serve_reject(p, why->code, true, why->msg);
	wb__serve_act(p->s);
}

static void on_room(void *cookie, struct wb_chan *ch)
{
	struct peer *p = cookie;

	(void)ch;
	if (!p->s || !p->n_outgo)
		return;
	wb__serve_pump(p);
	wb__serve_act(p->s);
}

void wb_serve_accept(struct wb_serve *s, struct wb_chan *ch)
{
	struct peer *p = s->is_draining ? NULL : wb_zalloc(1, sizeof(*p));
	struct wb_chan_cb cb = {.cookie = p,
		.on_frame = on_frame,
		.on_closed = on_closed,
		.on_head = on_head,
		.on_stuck = on_stuck,
		.on_room = on_room};

	if (!p) {
		wb_chan_close(ch);
		return;
	}
	wb_metric_add(s->metrics, WB_SM_CONNECTIONS, NULL, 1);
	p->s = s;
	p->ch = ch;
	p->id = ++s->last_peer_id;
	p->session = (struct wb_session){.io = &io, .side = WB_SIDE_OPERATOR};
	p->session.bounds.hello_ns = HELLO_DEADLINE_NS;
	p->session.bounds.asked_ns = CLAIM_DEADLINE_NS;
	wb_session_accept(&p->session, ch, wb_now_ns(s->env.clock));
	p->next = s->peer;
	s->peer = p;
	wb_chan_bind(ch, &cb);
	/* Memory for a frame is allocated when its head has come, and anybody can send a head: so
	 * nothing longer than a HELLO may come until the agent is let in. */
	wb_chan_limit(ch, wb_msg_info(WBP_HELLO)->cap + WB_FRAME_BYTES);
	(void)wb__serve_count_new(p);
	wb__serve_check_by(s, wb_session_due(&p->session));
	wb__serve_act(s);
}

uint64_t wb__serve_check_peers(struct wb_serve *s)
{
	uint64_t now = wb_now_ns(s->env.clock), due = wb__serve_settle_twins(s);
	uint64_t waiting = wb__serve_tend_waiting(s);
	struct wb_err err = {0};

	due = WB_MIN(due, waiting);

	for (struct peer *p = s->peer; p; p = p->next) {
		if (wb_session_tick(&p->session, now, &err) == 0) {
			due = WB_MIN(due, wb_session_due(&p->session));
			continue;
		}
		WB_LOG_WRN(MOD, "agent is silent",
			WB_S("agent", p->hello.agent ? p->hello.agent : wb_chan_peer(p->ch)),
			WB_S("why", err.msg));
		wb_session_end(&p->session, err.code, "%s", err.msg);
	}
	return due;
}
