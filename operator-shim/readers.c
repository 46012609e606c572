/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/readers.h"

#include "base/base.h"
#include "base/mem.h"
#include "net/psk.h"
#include "operator-shim/kube/answers.h"
#include "operator-shim/kube/config.h"
#include "operator-shim/kube/token.h"
#include "operator-shim/kube/turns.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define UNDER_WAY 8
/* Limits of open questions, and of callers that wait for their answers: in all, and for each that
 * takes turns (struct wb__reader). */
#define ASKS_MAX 256
#define ASKS_TURN_MAX 32
#define WAITERS_MAX 1024
#define WAITERS_TURN_MAX 256
#define TURN_BYTES 64

struct waiter {
	struct waiter *next;
	char turn_of[TURN_BYTES];
	wb__readers_fn fn;
	void *cookie;
};

struct ask {
	struct ask *next;
	struct wb_kube_turn turn; /* place in the queue until it is sent */
	struct wb__readers *r;
	struct wb_kube_rq *rq; /* NULL = not sent */
	uint8_t key[WB_KUBE_ANSWER_KEY];
	char turn_of[TURN_BYTES]; /* of the caller that asked first */
	char *token; /* owned, secret; NULL once it is sent */
	char *object; /* owned; NULL = metrics */
	const char *path; /* of metrics; static text */
	struct waiter *waiter; /* owned */
};

struct wb__readers {
	struct wb_kube *kube; /* owned */
	struct ask *ask; /* owned */
	struct wb_kube_turns turns;
	unsigned under_way;
	uint8_t secret[WB_MAC_BYTES]; /* new in each run: keys of answers are useless elsewhere */
	struct wb_kube_answers answers;
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* ---- one question ---- */

static void free_ask(struct ask *a)
{
	wb_kube_turns_remove(&a->r->turns, &a->turn);
	wb_kube_scrub(a->token);
	wb_free(a->object);
	wb_free(a);
}

static void settle(struct ask *a, int rc, const char *sentence)
{
	struct ask **at = &a->r->ask;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	a->r->under_way -= a->rq != NULL;
	if (rc == 0 || rc == -EACCES || rc == -EPERM)
		wb_kube_answers_put(&a->r->answers, a->key, rc, sentence, now_ns());
	while (a->waiter) {
		struct waiter *w = a->waiter;

		a->waiter = w->next;
		w->fn(w->cookie, rc, sentence);
		wb_free(w);
	}
	free_ask(a);
}

static int send(struct ask *a, const char *path, json_t *body_take, wb_kube_fn done)
{
	struct wb_kube_call call = {
		.method = "POST", .path = path, .body = body_take, .done = done, .cookie = a};
	int rc = body_take ? wb_kube_send(a->r->kube, &call, &a->rq) : -ENOMEM;

	json_decref(body_take);
	return rc;
}

static void begin_next(struct wb__readers *r);

static bool has_failed(struct ask *a, const struct wb_kube_reply *reply)
{
	struct wb_err err = {0};

	if (!reply->err.code)
		return false;
	wb_err_set(&err, -EAGAIN, "the token could not be checked: %.800s", reply->err.msg);
	settle(a, -EAGAIN, err.msg);
	return true;
}

static void on_access(void *cookie, const struct wb_kube_reply *reply)
{
	struct ask *a = cookie;
	struct wb__readers *r = a->r;
	struct wb_err err = {0};
	int rc;

	if (!has_failed(a, reply)) {
		rc = wb_kube_access_judge(reply->body, a->path, &err);
		settle(a, rc, err.msg);
	}
	begin_next(r);
}

static void on_review(void *cookie, const struct wb_kube_reply *reply)
{
	struct ask *a = cookie;
	struct wb__readers *r = a->r;
	struct wb_err err = {0};
	int rc;

	if (!has_failed(a, reply)) {
		rc = wb_kube_review_reader(reply->body, a->object, &err);
		if (rc < 0 || a->object)
			settle(a, rc, err.msg);
		else if (send(a, WB_KUBE_ACCESS, wb_kube_access_body(reply->body, a->path),
				 on_access) < 0)
			settle(a, -EAGAIN, "out of memory");
	}
	begin_next(r);
}

static void begin(struct ask *a)
{
	const char *object = a->object;
	json_t *body = wb_kube_review_body(a->token, &object, object ? 1 : 0);

	wb_kube_scrub(a->token);
	a->token = NULL;
	if (send(a, WB_KUBE_REVIEWS, body, on_review) < 0)
		settle(a, -EAGAIN, "out of memory");
	else
		a->r->under_way++;
}

static void begin_next(struct wb__readers *r)
{
	while (r->under_way < UNDER_WAY && r->turns.n)
		begin(wb_container_of(wb_kube_turns_pop(&r->turns), struct ask, turn));
}

/* ---- who asks ---- */

static int key_of(
	const struct wb__readers *r, const struct wb__reader *who, uint8_t key[WB_KUBE_ANSWER_KEY])
{
	const char *what = who->object ? who->object : who->path;
	size_t n = strlen(what) + 1, bytes = n + strlen(who->token);
	char *text = wb_alloc(bytes + 1);
	int rc;

	if (!text)
		return -ENOMEM;
	snprintf(text, bytes + 1, "%s", what);
	snprintf(text + n, bytes + 1 - n, "%s", who->token);
	rc = wb_hmac_sha256(r->secret, sizeof(r->secret), text, bytes, key);
	explicit_bzero(text, bytes);
	wb_free(text);
	return rc;
}

static bool has_room(const struct wb__readers *r, const char *turn, bool is_new)
{
	unsigned asks = 0, asks_of = 0, waiters = 0, waiters_of = 0;

	for (const struct ask *a = r->ask; a; a = a->next) {
		asks++;
		asks_of += !strcmp(a->turn_of, turn);
		for (const struct waiter *w = a->waiter; w; w = w->next) {
			waiters++;
			waiters_of += !strcmp(w->turn_of, turn);
		}
	}
	return waiters < WAITERS_MAX && waiters_of < WAITERS_TURN_MAX &&
	       (!is_new || (asks < ASKS_MAX && asks_of < ASKS_TURN_MAX));
}

static struct ask *make_ask(struct wb__readers *r, const struct wb__reader *who, const uint8_t *key)
{
	struct ask *a = wb_zalloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->r = r;
	a->path = who->path;
	memcpy(a->key, key, sizeof(a->key));
	snprintf(a->turn_of, sizeof(a->turn_of), "%s", who->turn);
	a->token = wb_strdup(who->token);
	a->object = who->object ? wb_strdup(who->object) : NULL;
	if (!a->token || (who->object && !a->object) ||
		wb_kube_turns_push(&r->turns, a->turn_of, &a->turn) < 0) {
		free_ask(a);
		return NULL;
	}
	a->next = r->ask;
	r->ask = a;
	return a;
}

static struct ask *find_ask(const struct wb__readers *r, const uint8_t *key)
{
	struct ask *a = r->ask;

	while (a && memcmp(a->key, key, sizeof(a->key)) != 0)
		a = a->next;
	return a;
}

static int join(struct wb__readers *r, const struct wb__reader *who, const uint8_t *key,
	wb__readers_fn fn, void *cookie)
{
	struct ask *a = find_ask(r, key);
	struct waiter *w;

	if (!has_room(r, who->turn, !a))
		return -EBUSY;
	w = wb_zalloc(1, sizeof(*w));
	if (w && !a)
		a = make_ask(r, who, key);
	if (!w || !a) {
		wb_free(w);
		return -ENOMEM;
	}
	w->fn = fn;
	w->cookie = cookie;
	snprintf(w->turn_of, sizeof(w->turn_of), "%s", who->turn);
	w->next = a->waiter;
	a->waiter = w;
	begin_next(r);
	return 0;
}

void wb__readers_ask(
	struct wb__readers *r, const struct wb__reader *who, wb__readers_fn fn, void *cookie)
{
	const struct wb_kube_answer *known = NULL;
	uint8_t key[WB_KUBE_ANSWER_KEY];
	int rc = key_of(r, who, key);

	if (rc == 0)
		known = wb_kube_answers_find(&r->answers, key, now_ns());
	if (known) {
		fn(cookie, known->rc, known->sentence);
		return;
	}
	if (rc == 0)
		rc = join(r, who, key, fn, cookie);
	if (rc < 0)
		fn(cookie, -EAGAIN,
			rc == -EBUSY ? "too much is asked at once: try again" : "out of memory");
}

/* ---- life ---- */

int wb__readers_start(struct wb_kube *kube_take, struct wb__readers **out)
{
	struct wb__readers *r = wb_zalloc(1, sizeof(*r));
	int rc = r ? wb_random_bytes(r->secret, sizeof(r->secret)) : -ENOMEM;

	if (rc < 0) {
		wb_kube_destroy(kube_take);
		wb_free(r);
		return rc;
	}
	r->kube = kube_take;
	*out = r;
	return 0;
}

void wb__readers_stop(struct wb__readers *r)
{
	if (!r)
		return;
	while (r->ask) {
		wb_kube_cancel(r->ask->rq);
		settle(r->ask, -ESHUTDOWN, "this operator stops");
	}
	wb_kube_turns_finish(&r->turns);
	wb_kube_destroy(r->kube);
	wb_free(r);
}
