/* SPDX-License-Identifier: Apache-2.0 */
/* Charges agents and objects for what they use, lets messages wait for room, and refuses agents
 * that are over a budget. */
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A connection that has not been let in after this time may have to make room for a new one.  An
 * honest agent sends HELLO long before. */
#define LINGER_NS (2 * WB_NS_PER_S)

static bool is_same_namespace(const struct object *a, const struct object *b)
{
	return !strcmp(a->spec.namespace_, b->spec.namespace_);
}

static void prune(struct wb_serve *s, const struct object *o, uint64_t amount, bool is_near)
{
	struct object *x, *next;

	for (x = TAILQ_FIRST(&s->keeping); x; x = next) {
		next = TAILQ_NEXT(x, keeping);
		if (wb_budget_has_room(s->budget, WB_BUDGET_MAPS, o->key, amount))
			break;
		if (!is_near || is_same_namespace(x, o))
			wb__serve_prune(x);
	}
}

int wb__serve_charge(struct wb_serve *s, enum wb_budget_kind kind, const struct object *o,
	uint64_t amount, struct wb_err *err)
{
	/* First forget uploads that nobody needs any more in the object's namespace, then those of
	 * all objects: the charge counts in the accounts of both. */
	if (kind == WB_BUDGET_MAPS) {
		prune(s, o, amount, true);
		prune(s, o, amount, false);
	}
	return wb_budget_charge(s->budget, kind, o->key, amount, err);
}

void wb__serve_over(struct peer *p, const struct wb_err *err)
{
	wb__serve_turn_away(p, WB_REFUSED_BUDGET, err->code, err->msg, "budget");
}

/* ---- connections ---- */

static bool is_waiting(const struct peer *p)
{
	return p->is_counted &&
	       (p->session.state == WB_SESSION_HELLO || p->session.state == WB_SESSION_ASKED);
}

static void discount_new(struct peer *p)
{
	if (p->is_counted)
		wb_budget_release(p->s->budget, WB_BUDGET_CONNECTIONS, "", 1);
	p->is_counted = false;
}

/* Whether @a shall make room rather than @b: one that has not said HELLO, else who has waited
 * longer. */
static bool goes_before(const struct peer *a, const struct peer *b)
{
	bool is_asked = a->session.state == WB_SESSION_ASKED;

	if (is_asked != (b->session.state == WB_SESSION_ASKED))
		return !is_asked;
	return a->session.heard_ns < b->session.heard_ns;
}

/* The connection that is the first to make room, of those that have waited for at least LINGER_NS
 * to be let in; or NULL.  One that has said HELLO waits for us: we ask the API server, which may be
 * slow, so it goes only when all others are like it.  Then it does go, since anybody can show a
 * token that is made up: if those kept their places for as long as the API server is slow, nobody
 * else would get one. */
static struct peer *find_lingering(struct wb_serve *s)
{
	uint64_t before = wb_now_ns(s->env.clock) - LINGER_NS;
	struct peer *first = NULL;

	for (struct peer *p = s->peer; p; p = p->next)
		if (is_waiting(p) && p->session.heard_ns <= before &&
			(!first || goes_before(p, first)))
			first = p;
	return first;
}

bool wb__serve_count_new(struct peer *p)
{
	struct wb_serve *s = p->s;
	struct wb_err err = {0};
	struct peer *first;

	if (!wb_budget_has_room(s->budget, WB_BUDGET_CONNECTIONS, "", 1)) {
		first = find_lingering(s);
		if (first) {
			discount_new(first);
			wb_session_end(&first->session, -EDQUOT, "others want its place");
		}
	}
	if (wb_budget_charge(s->budget, WB_BUDGET_CONNECTIONS, "", 1, &err) < 0) {
		wb_metric_add(s->metrics, WB_SM_REFUSED, WB_LABELS("budget"), 1);
		wb__serve_reject(p, err.code, true, err.msg);
		return false;
	}
	p->is_counted = true;
	return true;
}

/* ---- agents ---- */

static const char *account(const struct peer *p, uint32_t i)
{
	return p->hello.n_objects ? p->hello.objects[i] : "";
}

static void discount_agent(struct peer *p)
{
	while (p->n_charged) {
		p->n_charged--;
		wb_budget_release(p->s->budget, WB_BUDGET_AGENTS, account(p, p->n_charged), 1);
	}
}

bool wb__serve_count_agent(struct peer *p)
{
	uint32_t n = WB_MAX(p->hello.n_objects, 1);
	struct wb_err err = {0};

	while (p->n_charged < n) {
		if (wb_budget_charge(p->s->budget, WB_BUDGET_AGENTS, account(p, p->n_charged), 1,
			    &err) == 0) {
			p->n_charged++;
			continue;
		}
		discount_agent(p);
		wb__serve_over(p, &err);
		return false;
	}
	discount_new(p);
	return true;
}

/* ---- messages that have begun to come ---- */

/* Charge the peer for the whole message, since it may hold memory for all of it while the message
 * arrives.  Room is asked for first, because a charge that fails is counted as a refusal. */
static bool charge_frame(struct peer *p, uint64_t bytes)
{
	struct wb_budget *b = p->s->budget;

	if (!wb_budget_has_room(b, WB_BUDGET_FRAMES, account(p, 0), bytes) ||
		wb_budget_charge(b, WB_BUDGET_FRAMES, account(p, 0), bytes, NULL) < 0)
		return false;
	p->frame_bytes = bytes;
	return true;
}

static void stop_waiting(struct peer *p)
{
	if (p->is_waiting)
		TAILQ_REMOVE(&p->s->waiting, p, waiting);
	p->is_waiting = false;
}

/* Let the waiting peers continue for which there is room now, in the order in which they came.  A
 * peer whose account is full does not hold up those behind it. */
static void wake(struct wb_serve *s)
{
	struct peer *p, *next;

	for (p = TAILQ_FIRST(&s->waiting); p; p = next) {
		next = TAILQ_NEXT(p, waiting);
		if (!wb_session_is_up(&p->session) || !charge_frame(p, p->waits_bytes))
			continue;
		stop_waiting(p);
		p->session.heard_ns = wb_now_ns(s->env.clock);
		wb_chan_resume(p->ch);
	}
}

/* Charge the peer for the message, or refuse its agent with the reason when there is no room. */
static int turn_away(struct peer *p, uint64_t bytes)
{
	struct wb_err err = {0};
	int rc = wb_budget_charge(p->s->budget, WB_BUDGET_FRAMES, account(p, 0), bytes, &err);

	if (rc == 0)
		p->frame_bytes = bytes;
	else
		wb__serve_over(p, &err);
	return rc;
}

int wb__serve_begin_frame(struct peer *p, uint64_t bytes)
{
	struct wb_serve *s = p->s;

	if (bytes <= FRAME_FREE_BYTES || !wb_session_is_up(&p->session))
		return 0;
	if (p->frame_bytes || charge_frame(p, bytes)) /* it has waited, and was charged then */
		return 0;
	if (bytes > wb_budget_limits(s->budget)->v[WB_BUDGET_FRAMES][WB_BUDGET_OBJECT])
		return turn_away(p, bytes);
	p->is_waiting = true;
	p->waits_bytes = bytes;
	p->waits_since_ns = wb_now_ns(s->env.clock);
	TAILQ_INSERT_TAIL(&s->waiting, p, waiting);
	wb__serve_check_by(s, p->waits_since_ns + p->session.bounds.silent_ns / 4);
	return -EAGAIN;
}

void wb__serve_end_frame(struct peer *p)
{
	if (!p->frame_bytes)
		return;
	wb_budget_release(p->s->budget, WB_BUDGET_FRAMES, account(p, 0), p->frame_bytes);
	p->frame_bytes = 0;
	wake(p->s);
}

uint64_t wb__serve_tend_waiting(struct wb_serve *s)
{
	uint64_t now = wb_now_ns(s->env.clock), due = WB_NEVER;
	struct peer *p, *next;

	for (p = TAILQ_FIRST(&s->waiting); p; p = next) {
		next = TAILQ_NEXT(p, waiting);
		if (now >= p->waits_since_ns + FRAME_WAIT_NS) {
			stop_waiting(p);
			if (turn_away(p, p->waits_bytes) == 0)
				wb_chan_resume(p->ch);
			continue;
		}
		/* We do not read from this peer, so it only seems silent.  The peer does read, and
		 * would think that we are dead if it got no heartbeat. */
		p->session.heard_ns = now;
		(void)wb_session_send(&p->session, WBP_HEARTBEAT, &(struct wb_msg_heartbeat){0});
		due = WB_MIN(due, p->waits_since_ns + FRAME_WAIT_NS);
		due = WB_MIN(due, now + p->session.bounds.silent_ns / 4);
	}
	return due;
}

void wb__serve_discount(struct peer *p)
{
	stop_waiting(p);
	wb__serve_end_frame(p);
	discount_new(p);
	discount_agent(p);
	wb__serve_drop_uploads(p, NULL);
}

/* ---- figures ---- */

void wb__serve_budget_metrics(struct wb_serve *s)
{
	static const char *const scopes[] = {"all", "namespace", "object"};
	const struct wb_budget_limits *l = wb_budget_limits(s->budget);
	uint64_t most[WB_BUDGET_KINDS][WB_BUDGET_SCOPES];

	wb_budget_most(s->budget, most);
	wb_metric_set(s->metrics, WB_SM_MEMORY, NULL, (double)l->memory_bytes);
	for (int k = 0; k < WB_BUDGET_KINDS; k++)
		for (int i = 0; i < WB_BUDGET_SCOPES; i++) {
			enum wb_budget_kind kind = (enum wb_budget_kind)k;
			enum wb_budget_scope scope = (enum wb_budget_scope)i;
			const char *const *label = WB_LABELS(wb_budget_name(kind), scopes[i]);

			wb_metric_set(s->metrics, WB_SM_BUDGET_USED, label, (double)most[k][i]);
			wb_metric_set(s->metrics, WB_SM_BUDGET, label, (double)l->v[k][i]);
			wb_metric_set(s->metrics, WB_SM_BUDGET_REFUSED, label,
				(double)wb_budget_refused(s->budget, kind, scope));
		}
}
