/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gate.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/agent.h"
#include "daemon/oplink.h"
#include "net/http.h"
#include "net/loop.h"

#include <errno.h>
#include <stdio.h>

#define ASKED_MAX 8
#define ANSWER_NS (5 * WB_NS_PER_S)
#define PER_S 10 /* questions, and twice as many at once */
#define QUESTION_NS (WB_NS_PER_S / PER_S)

struct question {
	struct wb_http_held *held; /* NULL = free */
	const struct wb__oplink *l; /* that it went over */
	uint64_t number, until_ns;
};

struct wb__gate {
	struct wb__agent *a;
	struct wb_timer *timer; /* while there are questions */
	struct question asked[ASKED_MAX];
	uint64_t last; /* number */
	uint64_t spent_ns; /* allowance is used up to here; behind the clock by what is left */
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static void end(struct question *q, int rc, const char *sentence)
{
	struct wb_http_held *held = q->held;

	q->held = NULL;
	wb_http_go_on(held, rc, sentence);
}

static void on_timer(void *cookie)
{
	struct wb__gate *g = cookie;
	uint64_t now = now_ns(), next = UINT64_MAX;

	for (size_t i = 0; i < ASKED_MAX; i++) {
		struct question *q = &g->asked[i];

		if (q->held && q->until_ns <= now)
			end(q, -ETIMEDOUT,
				"the operator has not said in time whether this token may");
		else if (q->held)
			next = WB_MIN(next, q->until_ns);
	}
	if (next != UINT64_MAX)
		wb_timer_start(g->timer, next - now, 0);
}

static bool may_ask(struct wb__gate *g)
{
	uint64_t now = now_ns(), full = 2 * WB_NS_PER_S;

	if (now > full && g->spent_ns < now - full)
		g->spent_ns = now - full;
	if (g->spent_ns + QUESTION_NS > now)
		return false;
	g->spent_ns += QUESTION_NS;
	return true;
}

static struct question *free_one(struct wb__gate *g)
{
	for (size_t i = 0; i < ASKED_MAX; i++)
		if (!g->asked[i].held)
			return &g->asked[i];
	return NULL;
}

/* Any connection will do: tokens are the cluster's, and not of an object. */
static int send(struct wb__gate *g, struct question *q, const char *token, struct wb_err *err)
{
	struct wb__oplink_state st;
	int rc = -ENOTCONN;

	q->number = ++g->last;
	for (uint32_t i = 0; i < g->a->n_oplink && rc < 0; i++) {
		q->l = g->a->oplink[i];
		rc = wb__oplink_ask_reader(g->a->oplink[i], q->number, token);
	}
	if (rc == -EPROTONOSUPPORT)
		return wb_err_set(err, rc,
			"the operator says who may read metrics, and this one is of an earlier "
			"version that cannot: upgrade it");
	if (rc < 0) {
		wb__oplink_all(g->a, &st);
		return wb_err_set(err, rc,
			"the operator says who may read metrics, and it is not connected%s%.600s",
			st.trouble[0] ? ": " : "", st.trouble);
	}
	return 0;
}

void wb__gate_ask(struct wb__gate *g, const char *token, struct wb_http_held *held)
{
	struct question *q = free_one(g);
	struct wb_err err = {0};
	int rc;

	if (!q || !may_ask(g)) {
		wb_http_go_on(held, -EBUSY, "too much is asked at once: try again");
		return;
	}
	q->held = held;
	q->until_ns = now_ns() + ANSWER_NS;
	rc = send(g, q, token, &err);
	if (rc < 0)
		end(q, rc, err.msg);
	else
		on_timer(g);
}

void wb__gate_answer(
	struct wb__gate *g, const struct wb__oplink *l, const struct wb_msg_reader_answer *m)
{
	int rc = m->code <= 0 && m->code > -4096 ? (int)m->code : -EPROTO;

	for (size_t i = 0; g && i < ASKED_MAX; i++) {
		struct question *q = &g->asked[i];

		if (!q->held || q->l != l || q->number != m->number)
			continue;
		end(q, rc, m->sentence ? m->sentence : "the operator does not say why");
		return;
	}
}

void wb__gate_lost(struct wb__gate *g, const struct wb__oplink *l)
{
	for (size_t i = 0; g && i < ASKED_MAX; i++)
		if (g->asked[i].held && g->asked[i].l == l)
			end(&g->asked[i], -ENOTCONN,
				"the operator says who may read metrics, and its connection was "
				"lost: try again");
}

int wb__gate_create(struct wb__agent *a, struct wb__gate **out)
{
	struct wb__gate *g = wb_zalloc(1, sizeof(*g));
	int rc = g ? wb_timer_create(a->loop, on_timer, g, &g->timer) : -ENOMEM;

	if (rc < 0) {
		wb_free(g);
		return rc;
	}
	g->a = a;
	*out = g;
	return 0;
}

void wb__gate_destroy(struct wb__gate *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < ASKED_MAX; i++)
		if (g->asked[i].held)
			end(&g->asked[i], -ESHUTDOWN, "this agent stops");
	wb_timer_destroy(g->timer);
	wb_free(g);
}
