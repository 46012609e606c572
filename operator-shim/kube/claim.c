/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/claim.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "kube"
#define LIST                                                                                       \
	"/apis/coordination.k8s.io/v1/leases?labelSelector=" WB_KUBE_LEASE_SERVES "%3Dall&limit="  \
	"64"
#define YIELD_NS (10 * WB_NS_PER_S) /* a younger one has withdrawn long before, or serves */
#define DEAD_NS (60 * WB_NS_PER_S) /* more than any change of leaders takes */
#define SOON_NS (200 * WB_NS_PER_MS)
#define LATER_NS (5 * WB_NS_PER_S)
#define RIVALS_MAX 64
#define KEY_MAX 320

enum wb_kube_claim_step wb_kube_claim_judge(const struct wb_kube_claim_view *v)
{
	if (!v->n_rival)
		return v->is_staked ? WB_KUBE_CLAIM_SERVE : WB_KUBE_CLAIM_STAKE;
	/* A younger one that saw us withdraws; one that serves already does not look any more. */
	if (v->is_staked && v->is_eldest && v->staked_ns < YIELD_NS)
		return WB_KUBE_CLAIM_STAKE;
	return WB_KUBE_CLAIM_WAIT;
}

/* Another release's stake, as it was seen last. */
struct rival {
	char key[KEY_MAX], version[64];
	uint64_t seen_ns; /* when it became what it is */
	bool is_listed;
};

struct wb_kube_claim {
	struct wb_kube *k;
	struct wb_kube_lease *lease;
	struct wb_kube_claim_cb cb;
	struct wb_timer *timer;
	struct wb_kube_rq *rq;
	struct rival rival[RIVALS_MAX];
	size_t n_rival;
	uint64_t staked_ns; /* since when; 0 = not */
	char told[KEY_MAX];
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static struct rival *rival_of(struct wb_kube_claim *c, const char *key)
{
	for (size_t i = 0; i < c->n_rival; i++)
		if (!strcmp(c->rival[i].key, key))
			return &c->rival[i];
	if (c->n_rival == RIVALS_MAX)
		return NULL;
	c->rival[c->n_rival] = (struct rival){0};
	snprintf(c->rival[c->n_rival].key, KEY_MAX, "%s", key);
	return &c->rival[c->n_rival++];
}

static void see(struct rival *r, const char *version)
{
	if (strcmp(r->version, version) != 0 || !r->seen_ns)
		r->seen_ns = now_ns();
	snprintf(r->version, sizeof(r->version), "%s", version);
	r->is_listed = true;
}

static bool is_older(const json_t *a, const json_t *b)
{
	int c = strcmp(wb_kube_meta(a, "creationTimestamp"), wb_kube_meta(b, "creationTimestamp"));

	return c ? c < 0 : strcmp(wb_kube_meta(a, "uid"), wb_kube_meta(b, "uid")) < 0;
}

/* Counts live rivals; returns one of them. */
static const char *look(struct wb_kube_claim *c, const json_t *list, struct wb_kube_claim_view *v)
{
	const json_t *own = wb_kube_lease_record(c->lease), *o;
	const char *first = NULL;
	char key[KEY_MAX];
	size_t i, keep = 0;

	v->is_eldest = true;
	for (i = 0; i < c->n_rival; i++)
		c->rival[i].is_listed = false;
	json_array_foreach(json_object_get(list, "items"), i, o)
	{
		struct rival *r;

		if (!strcmp(wb_kube_meta(o, "uid"), wb_kube_meta(own, "uid")))
			continue;
		snprintf(key, sizeof(key), "%.63s/%.253s", wb_kube_meta(o, "namespace"),
			wb_kube_meta(o, "name"));
		r = rival_of(c, key);
		if (!r)
			continue;
		see(r, wb_kube_meta(o, "resourceVersion"));
		if (now_ns() - r->seen_ns >= DEAD_NS)
			continue;
		v->n_rival++;
		v->is_eldest &= is_older(own, o);
	}
	for (i = 0; i < c->n_rival; i++)
		if (c->rival[i].is_listed)
			c->rival[keep++] = c->rival[i];
	c->n_rival = keep;
	for (i = 0; i < keep && !first; i++)
		if (now_ns() - c->rival[i].seen_ns < DEAD_NS)
			first = c->rival[i].key;
	return first;
}

static void serve(struct wb_kube_claim *c)
{
	wb_timer_stop(c->timer);
	wb_kube_lease_stake(c->lease, true); /* also when it is deleted and made again */
	c->cb.on_serve(c->cb.cookie);
}

static void act(struct wb_kube_claim *c, const json_t *list)
{
	struct wb_kube_claim_view v = {.is_staked = wb_kube_lease_is_staked(c->lease)};
	const char *rival = look(c, list, &v);
	enum wb_kube_claim_step step;

	if (v.is_staked && !c->staked_ns)
		c->staked_ns = now_ns();
	v.staked_ns = v.is_staked ? now_ns() - c->staked_ns : 0;
	step = wb_kube_claim_judge(&v);
	if (step == WB_KUBE_CLAIM_SERVE) {
		serve(c);
		return;
	}
	wb_kube_lease_stake(c->lease, step == WB_KUBE_CLAIM_STAKE);
	if (step == WB_KUBE_CLAIM_WAIT)
		c->staked_ns = 0;
	wb_timer_start(c->timer, step == WB_KUBE_CLAIM_WAIT ? LATER_NS : SOON_NS, 0);
	if (step != WB_KUBE_CLAIM_WAIT || !rival || !strcmp(rival, c->told))
		return;
	snprintf(c->told, sizeof(c->told), "%s", rival);
	c->cb.on_idle(c->cb.cookie, rival);
}

static void on_listed(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_claim *c = cookie;

	c->rq = NULL;
	if (r->status == 403) { /* the role of an older chart */
		WB_LOG_WRN(MOD,
			"may not list Leases: another release that serves all namespaces would "
			"not be noticed",
			WB_S("why", r->err.msg));
		serve(c);
		return;
	}
	if (r->err.code) {
		WB_LOG_WRN(MOD, "leases not listed", WB_S("why", r->err.msg));
		wb_timer_start(c->timer, WB_NS_PER_S, 0);
		return;
	}
	act(c, r->body);
}

static void on_timer(void *cookie)
{
	struct wb_kube_claim *c = cookie;
	struct wb_kube_call call = {.method = "GET",
		.path = LIST,
		.total_ns = 5 * WB_NS_PER_S,
		.done = on_listed,
		.cookie = c};

	if (!c->rq && wb_kube_send(c->k, &call, &c->rq) < 0)
		wb_timer_start(c->timer, WB_NS_PER_S, 0);
}

int wb_kube_claim_start(struct wb_kube *k, struct wb_kube_lease *lease,
	const struct wb_kube_claim_cb *cb, struct wb_kube_claim **out)
{
	struct wb_kube_claim *c = wb_zalloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->k = k;
	c->lease = lease;
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
	wb_free(c);
}
