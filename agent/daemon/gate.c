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
#include "net/psk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STRANGERS_MAX 8 /* questions at a time about tokens of which nothing is known */
#define SOURCE_MAX 3 /* of these, from one address */
#define KNOWN_MAX 4 /* more than these, about tokens that were good */
#define ASKED_MAX (STRANGERS_MAX + KNOWN_MAX)
#define ANSWER_NS (5 * WB_NS_PER_S)
#define PER_S 10 /* questions about tokens of which nothing is known, and twice as many at once */
#define SOURCE_PER_S 3 /* the same, from one address */
#define SOURCES 16
#define GOOD_MAX 8

struct question {
	struct wb_http_held *held; /* NULL = free */
	const struct wb__oplink *l; /* the connection that it went over */
	uint64_t number, until_ns;
	bool is_known;
	char source[WB_HTTP_SOURCE_TEXT];
	uint8_t token[WB_MAC_BYTES]; /* its digest */
};

/* An address that asks.  spent_ns: its allowance is used up to this time, which is behind the clock
 * by what is left. */
struct source {
	char text[WB_HTTP_SOURCE_TEXT];
	uint64_t spent_ns;
};

struct wb__gate {
	struct wb__agent *a;
	struct wb_timer *timer; /* while there are questions */
	struct question asked[ASKED_MAX];
	uint64_t last; /* number */
	uint64_t spent_ns; /* as in a source, for all together */
	struct source source[SOURCES]; /* those that asked last */
	uint8_t secret[WB_MAC_BYTES]; /* of this run */
	uint8_t good[GOOD_MAX][WB_MAC_BYTES]; /* digests of tokens that were good; a ring */
	unsigned n_good;
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* ---- tokens that were good ---- */

static uint8_t *find_good(struct wb__gate *g, const uint8_t *token)
{
	for (unsigned i = 0; i < WB_MIN(g->n_good, GOOD_MAX); i++)
		if (!memcmp(g->good[i], token, WB_MAC_BYTES))
			return g->good[i];
	return NULL;
}

static void remember(struct wb__gate *g, const struct question *q, int rc)
{
	uint8_t *at = find_good(g, q->token);

	if (rc == 0 && !at)
		memcpy(g->good[g->n_good++ % GOOD_MAX], q->token, WB_MAC_BYTES);
	else if (at && (rc == -EACCES || rc == -EPERM))
		memset(at, 0, WB_MAC_BYTES);
}

/* ---- questions ---- */

static void end(struct wb__gate *g, struct question *q, int rc, const char *sentence)
{
	struct wb_http_held *held = q->held;

	assert(held);
	remember(g, q, rc);
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
			end(g, q, -ETIMEDOUT,
				"the operator has not said in time whether this token may");
		else if (q->held)
			next = WB_MIN(next, q->until_ns);
	}
	if (next != UINT64_MAX)
		wb_timer_start(g->timer, next - now, 0);
}

/* ---- how often strangers may ask ---- */

static bool has_left(uint64_t *spent_ns, unsigned per_s)
{
	uint64_t now = now_ns(), full = 2 * WB_NS_PER_S;

	if (now > full && *spent_ns < now - full)
		*spent_ns = now - full;
	return *spent_ns + WB_NS_PER_S / per_s <= now;
}

/* An address that is not there takes the place of the one that has asked least lately. */
static struct source *source_of(struct wb__gate *g, const char *text)
{
	struct source *at = &g->source[0];

	for (size_t i = 0; i < SOURCES; i++) {
		if (!strcmp(g->source[i].text, text))
			return &g->source[i];
		if (g->source[i].spent_ns < at->spent_ns)
			at = &g->source[i];
	}
	*at = (struct source){0};
	snprintf(at->text, sizeof(at->text), "%s", text);
	return at;
}

static bool may_ask(struct wb__gate *g, const char *source)
{
	struct source *s = source_of(g, source);

	if (!has_left(&s->spent_ns, SOURCE_PER_S) || !has_left(&g->spent_ns, PER_S))
		return false;
	s->spent_ns += WB_NS_PER_S / SOURCE_PER_S;
	g->spent_ns += WB_NS_PER_S / PER_S;
	return true;
}

/* A free place for a question; NULL: there are enough questions of its kind. */
static struct question *free_one(struct wb__gate *g, bool is_known, const char *source)
{
	struct question *found = NULL;
	unsigned strangers = 0, same = 0;

	for (size_t i = 0; i < ASKED_MAX; i++) {
		struct question *q = &g->asked[i];

		if (!q->held)
			found = q;
		else if (!q->is_known)
			strangers++;
		same += q->held && !q->is_known && !strcmp(q->source, source);
	}
	return is_known || (strangers < STRANGERS_MAX && same < SOURCE_MAX) ? found : NULL;
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

void wb__gate_ask(
	struct wb__gate *g, const char *token, const char *source, struct wb_http_held *held)
{
	struct question *q = NULL;
	uint8_t mac[WB_MAC_BYTES];
	struct wb_err err = {0};
	bool is_known = false;
	int rc = wb_hmac_sha256(g->secret, sizeof(g->secret), token, strlen(token), mac);

	if (rc == 0) {
		is_known = find_good(g, mac) != NULL;
		q = free_one(g, is_known, source);
		if (q && !is_known && !may_ask(g, source))
			q = NULL;
	}
	if (!q) {
		wb_http_go_on(held, -EBUSY, "too much is asked at once: try again");
		return;
	}
	assert(!q->held);
	*q = (struct question){
		.held = held, .until_ns = now_ns() + ANSWER_NS, .is_known = is_known};
	snprintf(q->source, sizeof(q->source), "%s", source);
	memcpy(q->token, mac, sizeof(mac));
	rc = send(g, q, token, &err);
	if (rc < 0)
		end(g, q, rc, err.msg);
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
		end(g, q, rc, m->sentence ? m->sentence : "the operator does not say why");
		return;
	}
}

void wb__gate_lost(struct wb__gate *g, const struct wb__oplink *l)
{
	for (size_t i = 0; g && i < ASKED_MAX; i++)
		if (g->asked[i].held && g->asked[i].l == l)
			end(g, &g->asked[i], -ENOTCONN,
				"the operator says who may read metrics, and its connection was "
				"lost: try again");
}

int wb__gate_create(struct wb__agent *a, struct wb__gate **out)
{
	struct wb__gate *g = wb_zalloc(1, sizeof(*g));
	int rc = g ? wb_timer_create(a->loop, on_timer, g, &g->timer) : -ENOMEM;

	if (rc == 0)
		rc = wb_random_bytes(g->secret, sizeof(g->secret));
	if (rc < 0) {
		if (g)
			wb_timer_destroy(g->timer);
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
			end(g, &g->asked[i], -ESHUTDOWN, "this agent stops");
	wb_timer_destroy(g->timer);
	wb_free(g);
}
