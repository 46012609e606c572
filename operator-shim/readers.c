/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/readers.h"

#include "base/mem.h"
#include "operator-shim/kube/token.h"

#include <errno.h>
#include <string.h>

#define ASKED_MAX 32 /* under way or waiting */

struct ask {
	struct ask *next;
	struct wb__readers *r;
	struct wb_kube_rq *rq;
	char *object; /* owned; NULL = metrics */
	wb__readers_fn fn;
	void *cookie;
};

struct wb__readers {
	struct wb_kube *kube; /* owned */
	struct ask *ask;
	unsigned n;
};

static void answer(struct ask *a, int rc, const char *sentence)
{
	struct ask **at = &a->r->ask;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	a->r->n--;
	a->fn(a->cookie, rc, sentence);
	wb_free(a->object);
	wb_free(a);
}

static int send(struct ask *a, const char *path, json_t *body_take, wb_kube_fn done)
{
	struct wb_kube_call call = {
		.method = "POST", .path = path, .body = body_take, .done = done, .cookie = a};
	int rc = body_take ? wb_kube_send(a->r->kube, &call, &a->rq) : -ENOMEM;

	json_decref(body_take);
	return rc;
}

static bool has_failed(struct ask *a, const struct wb_kube_reply *r)
{
	struct wb_err err = {0};

	if (!r->err.code)
		return false;
	wb_err_set(&err, -EAGAIN, "the token could not be checked: %.800s", r->err.msg);
	answer(a, -EAGAIN, err.msg);
	return true;
}

static void on_access(void *cookie, const struct wb_kube_reply *r)
{
	struct ask *a = cookie;
	struct wb_err err = {0};
	int rc;

	if (has_failed(a, r))
		return;
	rc = wb_kube_access_judge(r->body, &err);
	answer(a, rc, err.msg);
}

static void on_review(void *cookie, const struct wb_kube_reply *r)
{
	struct ask *a = cookie;
	struct wb_err err = {0};
	int rc;

	if (has_failed(a, r))
		return;
	rc = wb_kube_review_reader(r->body, a->object, &err);
	if (rc < 0 || a->object)
		answer(a, rc, err.msg);
	else if (send(a, WB_KUBE_ACCESS, wb_kube_access_body(r->body, "/metrics"), on_access) < 0)
		answer(a, -EAGAIN, "out of memory");
}

int wb__readers_ask(struct wb__readers *r, const char *token, const char *object, wb__readers_fn fn,
	void *cookie)
{
	struct ask *a = r->n < ASKED_MAX ? wb_zalloc(1, sizeof(*a)) : NULL;

	if (!a)
		return r->n < ASKED_MAX ? -ENOMEM : -EBUSY;
	a->r = r;
	a->fn = fn;
	a->cookie = cookie;
	a->object = object ? wb_strdup(object) : NULL;
	if ((object && !a->object) ||
		send(a, WB_KUBE_REVIEWS, wb_kube_review_body(token, &object, object ? 1 : 0),
			on_review) < 0) {
		wb_free(a->object);
		wb_free(a);
		return -ENOMEM;
	}
	a->next = r->ask;
	r->ask = a;
	r->n++;
	return 0;
}

int wb__readers_start(struct wb_kube *kube_take, struct wb__readers **out)
{
	struct wb__readers *r = wb_zalloc(1, sizeof(*r));

	if (!r) {
		wb_kube_destroy(kube_take);
		return -ENOMEM;
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
		answer(r->ask, -ESHUTDOWN, "this operator stops");
	}
	wb_kube_destroy(r->kube);
	wb_free(r);
}
