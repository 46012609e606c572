/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/claim.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/kube/rivals.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/token.h"
#include "operator-shim/kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "kube"
#define LIST                                                                                       \
	"/apis/coordination.k8s.io/v1/leases?labelSelector=" WB_KUBE_LEASE_SERVES "%3Dall&limit="
#define WHO_AM_I "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#define YIELD_NS (10 * WB_NS_PER_S) /* by then a younger rival has withdrawn, or it serves */
#define FORBIDDEN_TRIES 3 /* a second apart */
#define SOON_NS (200 * WB_NS_PER_MS)
#define LATER_NS (5 * WB_NS_PER_S)
#define KEY_MAX 320
#define PAGE 500 /* Leases in one list request, at first */

enum wb_kube_claim_step wb_kube_claim_judge(const struct wb_kube_claim_view *v)
{
	if (!v->n_rival)
		return v->is_staked ? WB_KUBE_CLAIM_SERVE : WB_KUBE_CLAIM_STAKE;
	/* A younger rival that sees our label withdraws, so we wait for that.  But a rival that
	 * serves already does not look again, so we do not wait for long. */
	if (v->is_staked && v->is_eldest && v->staked_ns < YIELD_NS)
		return WB_KUBE_CLAIM_STAKE;
	return WB_KUBE_CLAIM_WAIT;
}

struct wb_kube_claim {
	struct wb_kube *k;
	struct wb_kube_lease *lease;
	struct wb_kube_claim_cb cb;
	struct wb_timer *timer;
	struct wb_kube_rq *rq;
	struct wb_kube_rivals rivals;
	unsigned page; /* Leases in one list request */
	struct wb_kube_rival *asked; /* the rival whose account is being asked about */
	uint64_t staked_ns; /* since when our Lease has the label; 0 = it has not */
	bool is_named; /* the API server has said who we are, or cannot tell */
	unsigned n_forbidden; /* answers that it may not be asked */
	char told[KEY_MAX];
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static void serve(struct wb_kube_claim *c)
{
	wb_timer_stop(c->timer);
	wb_kube_lease_stake(c->lease, true); /* also when the Lease is deleted and made again */
	c->cb.on_serve(c->cb.cookie);
}

static void act(struct wb_kube_claim *c)
{
	const json_t *own = wb_kube_lease_record(c->lease);
	struct wb_kube_claim_view v = {.is_staked = wb_kube_lease_is_staked(c->lease)};
	const struct wb_kube_rival *rival = wb_kube_rivals_live(&c->rivals, now_ns(), &v.n_rival);
	enum wb_kube_claim_step step;
	char key[KEY_MAX];

	if (v.is_staked && !c->staked_ns)
		c->staked_ns = now_ns();
	v.staked_ns = v.is_staked ? now_ns() - c->staked_ns : 0;
	v.is_eldest = wb_kube_rivals_is_eldest(&c->rivals, wb_kube_meta(own, "creationTimestamp"),
		wb_kube_meta(own, "uid"), now_ns());
	step = wb_kube_claim_judge(&v);
	if (step == WB_KUBE_CLAIM_SERVE) {
		serve(c);
		return;
	}
	wb_kube_lease_stake(c->lease, step == WB_KUBE_CLAIM_STAKE);
	if (step == WB_KUBE_CLAIM_WAIT)
		c->staked_ns = 0;
	wb_timer_start(c->timer, step == WB_KUBE_CLAIM_WAIT ? LATER_NS : SOON_NS, 0);
	if (step != WB_KUBE_CLAIM_WAIT || !rival)
		return;
	snprintf(key, sizeof(key), "%s/%s", rival->ns, rival->name);
	if (!strcmp(key, c->told))
		return;
	snprintf(c->told, sizeof(c->told), "%s", key);
	c->cb.on_idle(c->cb.cookie, key);
}

/* ---- looking ---- */

static void again(struct wb_kube_claim *c)
{
	wb_timer_start(c->timer, WB_NS_PER_S, 0);
}

/* In a POST, @body_take NULL means that there was no memory to make the body. */
static int send(struct wb_kube_claim *c, const char *method, const char *path, json_t *body_take,
	wb_kube_fn done)
{
	struct wb_kube_call call = {.method = method,
		.path = path,
		.body = body_take,
		.total_ns = 5 * WB_NS_PER_S,
		.body_max = WB_KUBE_PAGE_MAX,
		.done = done,
		.cookie = c};
	int rc = body_take || strcmp(method, "POST") != 0 ? wb_kube_send(c->k, &call, &c->rq)
							  : -ENOMEM;

	json_decref(body_take);
	return rc;
}

/* True when the answer is of no use; then we serve, or will try again. */
static bool has_failed(struct wb_kube_claim *c, const struct wb_kube_reply *r)
{
	c->rq = NULL;
	if (r->status == 403) { /* the operator has the role of an older chart */
		WB_LOG_WRN(MOD,
			"may not list Leases, or ask who writes statuses: another release that "
			"serves all namespaces would not be noticed",
			WB_S("why", r->err.msg));
		serve(c);
		return true;
	}
	if (r->err.code) {
		WB_LOG_WRN(MOD, "other releases not looked for", WB_S("why", r->err.msg));
		again(c);
	}
	return r->err.code != 0;
}

static void prove_next(struct wb_kube_claim *c);

/* A question is tried only a few times, so a forged Lease cannot keep us from asking about the
 * next one. */
static void unanswered(struct wb_kube_claim *c)
{
	uint64_t now = now_ns();

	wb_kube_rivals_failed(c->asked, now);
	if (c->asked->asked_ns == now)
		prove_next(c);
	else
		again(c);
}

static void on_access(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_claim *c = cookie;

	if (r->err.code && r->status != 403) {
		c->rq = NULL;
		WB_LOG_WRN(MOD, "not known whether another release serves all namespaces",
			WB_S("namespace", c->asked->ns), WB_S("lease", c->asked->name),
			WB_S("account", c->asked->account), WB_S("why", r->err.msg));
		unanswered(c);
		return;
	}
	if (has_failed(c, r))
		return;
	wb_kube_rivals_answered(c->asked, wb_kube_is_allowed(r->body), now_ns());
	prove_next(c);
}

static void prove_next(struct wb_kube_claim *c)
{
	struct wb_kube_rival *x = wb_kube_rivals_unproved(&c->rivals, now_ns());

	c->asked = x;
	if (!x)
		act(c);
	else if (send(c, "POST", WB_KUBE_ACCESS, wb_kube_server_body(x->ns, x->account),
			 on_access) < 0)
		unanswered(c);
}

static void list(struct wb_kube_claim *c, const char *more);

static void on_listed(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_claim *c = cookie;
	const char *own = wb_kube_meta(wb_kube_lease_record(c->lease), "uid"),
		   *more = wb_kube_meta(r->body, "continue");

	if (r->err.code == -E2BIG && c->page > 1) /* others' Leases may be of any length */
		c->page /= 2;
	if (has_failed(c, r))
		return;
	if (wb_kube_rivals_page(&c->rivals, r->body, own, now_ns()) < 0) {
		again(c);
		return;
	}
	if (*more) {
		list(c, more);
		return;
	}
	wb_kube_rivals_end(&c->rivals);
	prove_next(c);
}

static void list(struct wb_kube_claim *c, const char *more)
{
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, 65536);
	wb_buf_printf(&b, "%s%u%s", LIST, c->page, *more ? "&continue=" : "");
	wb_kube_put_escaped(&b, more);
	rc = b.rc ? b.rc : send(c, "GET", wb_buf_cstr(&b), NULL, on_listed);
	wb_buf_finish(&b);
	if (rc < 0)
		again(c);
}

static void on_self(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_claim *c = cookie;
	const json_t *user = json_object_get(json_object_get(r->body, "status"), "userInfo");
	const char *name = json_string_value(json_object_get(user, "username"));
	struct wb_kube_who who;

	/* The server is too old to tell, or the cluster forbids the question (a server that has
	 * just started may say so for a moment).  We still look for others, but they will not
	 * believe our claim. */
	if (r->status == 404 || (r->status == 403 && ++c->n_forbidden >= FORBIDDEN_TRIES)) {
		WB_LOG_WRN(MOD,
			"this API server does not tell who this operator is: another release that "
			"serves all namespaces would not believe that this one does",
			WB_S("why", r->err.msg));
		c->rq = NULL;
		c->is_named = true;
		wb_timer_start(c->timer, 0, 0);
		return;
	}
	if (r->status == 403) {
		c->rq = NULL;
		again(c);
		return;
	}
	if (has_failed(c, r))
		return;
	c->is_named = true;
	if (name && wb_kube_account(name, &who) == 0 &&
		!strcmp(who.ns, wb_kube_meta(wb_kube_lease_record(c->lease), "namespace")))
		wb_kube_lease_account(c->lease, who.account);
	else
		WB_LOG_WRN(MOD,
			"this operator does not run as a service account of its Lease's "
			"namespace: another release that serves all namespaces would not believe "
			"that this one does",
			WB_S("user", name ? name : "?"));
	wb_timer_start(c->timer, 0, 0);
}

static void on_timer(void *cookie)
{
	struct wb_kube_claim *c = cookie;

	if (c->rq)
		return;
	if (!c->is_named) {
		if (send(c, "POST", WHO_AM_I,
			    json_pack("{s:s, s:s}", "apiVersion", "authentication.k8s.io/v1",
				    "kind", "SelfSubjectReview"),
			    on_self) < 0)
			again(c);
		return;
	}
	wb_kube_rivals_begin(&c->rivals);
	list(c, "");
}

int wb_kube_claim_start(struct wb_kube *k, struct wb_kube_lease *lease,
	const struct wb_kube_claim_cb *cb, struct wb_kube_claim **out)
{
	struct wb_kube_claim *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->k = k;
	c->lease = lease;
	c->page = PAGE;
	c->cb = *cb;
	if (wb_timer_create(wb_kube_loop(k), on_timer, c, &c->timer) < 0) {
		wb_free(c);
		return -ENOMEM;
	}
	wb_timer_start(c->timer, 0, 0);
	*out = c;
	return 0;
}

void wb_kube_claim_stop(struct wb_kube_claim *c)
{
	if (!c)
		return;
	wb_kube_cancel(c->rq);
	wb_timer_destroy(c->timer);
	wb_kube_rivals_finish(&c->rivals);
	wb_free(c);
}
