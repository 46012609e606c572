/* SPDX-License-Identifier: Apache-2.0 */
/* Lets in only one agent of a name at each object.  A second one is turned away while the first one
 * answers; it is let in when the first one has ended, has sent DRAIN, or does not answer any
 * more. */
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Less than the 10 s for which an agent waits for the answer to its HELLO. */
#define ANSWER_NS (5 * WB_NS_PER_S)

static bool is_second(const struct peer *p)
{
	return p->is_second && p->session.state == WB_SESSION_ASKED;
}

static bool share_an_object(const struct peer *p, const struct peer *q)
{
	for (size_t i = 0; i < wb__serve_n_of(p); i++) {
		const struct object *o = wb__serve_nth_of(p, i);

		if (o && wb__serve_serves(q, o))
			return true;
	}
	return false;
}

static struct peer *find_twin(const struct peer *p)
{
	for (struct peer *q = p->s->peer; q; q = q->next)
		if (q != p && wb_session_is_up(&q->session) && !q->is_orderly &&
			!strcmp(q->hello.agent, p->hello.agent) && share_an_object(p, q))
			return q;
	return NULL;
}

/* End the connection of @q in favour of another agent of its name.  It leaves its objects now, not
 * only when its channel is closed. */
static void put_out(struct peer *q, const char *why)
{
	WB_LOG_WRN(MOD, "agent connection ended", WB_S("agent", q->hello.agent),
		WB_S("peer", wb_chan_peer(q->ch)), WB_S("why", why));
	q->is_let_go = true;
	for (size_t i = 0; i < q->n_joined; i++)
		wb__serve_leave(q, q->joined[i].o, false);
	wb_session_end(&q->session, -EEXIST, "%s", why);
}

static void ask(struct peer *q)
{
	uint64_t now = wb_now_ns(q->s->env.clock);
	struct wb_msg_heartbeat m = {.sent_ns = now};

	if (q->asked_ns)
		return;
	q->asked_ns = now;
	wb__serve_check_by(q->s, now + ANSWER_NS);
	(void)wb_session_send(&q->session, WBP_HEARTBEAT, &m);
}

/* Whether @p is the same process as @q.  The instance number proves that where all agents share one
 * key.  Where each agent has a token, whoever has stolen a token may know the instance number
 * too. */
static bool is_itself(const struct peer *p, const struct peer *q)
{
	return p->hello.instance == q->hello.instance && !p->was_claimed;
}

void wb__serve_let_in(struct peer *p)
{
	struct peer *q;

	if (p->session.state == WB_SESSION_HELLO)
		wb_session_enter(&p->session, WB_SESSION_ASKED, wb_now_ns(p->s->env.clock));
	p->is_second = true;
	for (q = find_twin(p); q && is_itself(p, q); q = find_twin(p))
		put_out(q, "it has connected anew");
	if (q)
		ask(q);
	else
		wb__serve_admit(p);
}

static void refuse(struct peer *p, const struct peer *first)
{
	char text[400];

	snprintf(text, sizeof(text),
		"agent %.63s is connected already, from %.128s, and that one lives: %s",
		p->hello.agent, wb_chan_peer(first->ch),
		p->was_claimed ? "the token of its pod was used a second time"
			       : "give each agent a name of its own (--name), or end the other");
	wb__serve_turn_away(
		p, p->was_claimed ? WB_REFUSED_TOKEN : WB_REFUSED_NAME, -EEXIST, text, "name");
}

void wb__serve_answered(struct peer *q, uint64_t echo_ns)
{
	if (!q->asked_ns || echo_ns != q->asked_ns)
		return;
	q->asked_ns = 0;
	for (struct peer *p = q->s->peer; p; p = p->next)
		if (is_second(p) && find_twin(p) == q)
			refuse(p, q);
	wb__serve_act(q->s);
}

uint64_t wb__serve_settle_twins(struct wb_serve *s)
{
	uint64_t now = wb_now_ns(s->env.clock), due = UINT64_MAX;

	for (struct peer *q = s->peer; q; q = q->next) {
		if (!wb_session_is_up(&q->session) || !q->asked_ns)
			continue;
		if (now >= q->asked_ns + ANSWER_NS)
			put_out(q, "another agent of its name has come, and it does not answer");
		else
			due = WB_MIN(due, q->asked_ns + ANSWER_NS);
	}
	for (struct peer *p = s->peer; p; p = p->next)
		if (is_second(p))
			wb__serve_let_in(p);
	return due;
}
