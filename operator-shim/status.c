/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/status.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/dues.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/watch.h"
#include "operator-shim/serve/metrics.h"
#include "operator-shim/serve/serve.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "status"
#define WRITE_EVERY_NS WB_NS_PER_S
/* For what cannot wait (wb_kube_is_news()), such as the end of a transfer: a training program may
 * read it in its next step. */
#define NEWS_EVERY_NS (WB_NS_PER_S / 2)
/* A changed status that waits is compared again after this time, since that takes a millisecond
 * for 500 engines. */
#define LOOK_AGAIN_NS (100 * WB_NS_PER_MS)
/* Writes at a time.  The others wait here, where namespaces take turns, and not in the client's
 * queue. */
#define IN_FLIGHT 8
/* Agents report in bursts: we wait this long, so that one look finds many changes. */
#define LOOK_NS (20 * WB_NS_PER_MS)
/* So many statuses are compared with the stored ones before other work has its turn. */
#define SLICE 16
/* Each object has an interval of its own, CONFIRM_NS and a part of CONFIRM_SPREAD_NS, so that
 * confirmations do not come all at once. */
#define CONFIRM_NS (240 * WB_NS_PER_S)
#define CONFIRM_SPREAD_NS (60 * WB_NS_PER_S)
/* How long new fields are left out after a resource (CRD) that does not know them was found. */
#define OLD_NS (600 * WB_NS_PER_S)

struct wb__statuses {
	struct wb_kube *kube; /* owned */
	struct wb_serve *serve;
	const struct wb_kube_watch *watch;
	struct wb_timer *timer;
	struct wb_dues dues; /* when to look at which status */
	struct wb_kube_turns turns;
	unsigned n_writing;
	uint64_t old_until_ns; /* until then new fields are left out */
	char name[128];
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* When the timer is to fire.  Statuses that wait for their turn are a reason only when one of them
 * can be written now. */
static uint64_t next_ns(const struct wb__statuses *a)
{
	return a->turns.n && a->n_writing < IN_FLIGHT ? 0 : wb_dues_at(&a->dues);
}

static void arm(struct wb__statuses *a)
{
	uint64_t now = now_ns(), at_ns = next_ns(a);

	if (at_ns == WB_NEVER || !a->watch)
		wb_timer_stop(a->timer);
	else
		wb_timer_start(a->timer, at_ns > now ? at_ns - now : 0, 0);
}

/* Look at the status at @at_ns, or earlier if that is planned already. */
static void look_by(struct wb__status *st, uint64_t at_ns)
{
	if (!st->due.is_in || at_ns < st->due.at_ns)
		wb_dues_set(&st->all->dues, &st->due, at_ns);
}

static void wake(struct wb__status *st, uint64_t at_ns)
{
	look_by(st, at_ns);
	arm(st->all);
}

static void count(struct wb__statuses *a, const char *what)
{
	wb_metric_add(wb_serve_own_metrics(a->serve), WB_SM_KUBE_WRITES, WB_LABELS(what), 1);
}

static void look(struct wb__status *st);
static void pump(struct wb__statuses *a);

static uint64_t confirm_every(const struct wb__status *st)
{
	return CONFIRM_NS + wb_hash64(st->key, strlen(st->key), 0) % CONFIRM_SPREAD_NS;
}

/* ---- one write ---- */

/* Somebody else has written meanwhile: continue from what the watch has seen last. */
static void refresh(struct wb__status *st)
{
	const struct wb_kube_watch *w = st->all->watch;
	const json_t *o = w ? wb_kube_watch_get(w, st->ns, st->name) : NULL;

	if (!o)
		return;
	snprintf(st->version, sizeof(st->version), "%s", wb_kube_meta(o, "resourceVersion"));
	json_decref(st->written);
	st->written = json_incref(json_object_get(o, "status"));
}

static uint64_t hash_of(const char *version)
{
	return wb_hash64(version, strlen(version), 0);
}

/* A write succeeds only on the version that it names, so if somebody else wrote while ours was
 * under way, theirs came after ours. */
static void keep_written(struct wb__status *st, const char *version)
{
	json_decref(st->written);
	st->written = st->sending;
	st->sending = NULL;
	st->confirm_ns = now_ns() + confirm_every(st);
	snprintf(st->version, sizeof(st->version), "%s", version);
	st->own[st->own_at++ % WB__OWN_VERSIONS] = hash_of(version);
	if (*st->beside && strcmp(st->beside, version) != 0) {
		refresh(st);
		st->is_changed = true;
	}
}

/* A resource of an earlier version refuses the whole status for a field that it does not know. */
static bool is_too_new(struct wb__statuses *a, const struct wb_kube_reply *r)
{
	if (now_ns() < a->old_until_ns || !strstr(r->err.msg, "field not declared in schema"))
		return false;
	a->old_until_ns = now_ns() + OLD_NS;
	WB_LOG_ERR(MOD,
		"the WeightTransfer resource is older than this operator, which leaves new fields "
		"of the status out: apply crds/weighttransfer.yaml, or let the chart do so",
		WB_S("why", r->err.msg));
	return true;
}

/* Somebody else has written meanwhile, or deleted the object: that may happen at any time, and is
 * no fault.  Where the resource itself (the CRD) is gone there is a 404 without a reason. */
static bool is_overtaken(const struct wb_kube_reply *r)
{
	return r->status == 409 || (r->status == 404 && !strcmp(r->reason, "NotFound"));
}

/* 409: somebody wrote in between, and the watch shows the version to continue from. */
static void not_applied(struct wb__status *st, const struct wb_kube_reply *r)
{
	uint64_t now = now_ns();
	bool is_soon = r->status == 409 || is_too_new(st->all, r);

	json_decref(st->sending);
	st->sending = NULL;
	st->is_changed = true;
	if (r->status == 409)
		refresh(st);
	st->next_write_ns = now + (is_soon ? WRITE_EVERY_NS
					   : wb_kube_backoff_next(&st->backoff, now,
						     wb_kube_random(), r->retry_after_ns));
	st->next_news_ns = st->next_write_ns;
	if (is_overtaken(r))
		WB_LOG_DEBUG(MOD, "status overtaken", WB_S("object", st->key));
	else
		WB_LOG_WRN(MOD, "status not written", WB_S("object", st->key),
			WB_S("why", r->err.msg));
}

static void on_applied(void *cookie, const struct wb_kube_reply *r)
{
	struct wb__status *st = cookie;
	struct wb__statuses *a = st->all;

	st->rq = NULL;
	a->n_writing--;
	count(a, !r->err.code ? "status" : is_overtaken(r) ? "status overtaken" : "status failed");
	if (r->err.code)
		not_applied(st, r);
	else
		keep_written(st, wb_kube_meta(r->body, "resourceVersion"));
	look(st);
	pump(a);
}

static void apply(struct wb__status *st, json_t *status)
{
	struct wb_kube_call call = {
		.method = "PATCH", .content_type = WB_KUBE_APPLY, .done = on_applied, .cookie = st};
	struct wb_buf b;

	*st->beside = '\0';
	wb_buf_init(&b, 8192);
	wb_kube_wt_path(
		&b, st->ns, st->name, "/status?force=true&fieldManager=" WB_KUBE_FIELD_MANAGER);
	call.path = wb_buf_cstr(&b);
	call.body = wb_kube_apply_status(st->ns, st->name, st->version, status);
	st->next_write_ns = now_ns() + WRITE_EVERY_NS;
	st->next_news_ns = now_ns() + NEWS_EVERY_NS;
	if (call.body && !b.rc && wb_kube_send(st->all->kube, &call, &st->rq) == 0) {
		st->sending = json_incref(status);
		st->all->n_writing++;
	} else {
		st->is_changed = true; /* memory was short: once more, a second later */
		st->next_news_ns = st->next_write_ns;
	}
	json_decref(call.body);
	wb_buf_finish(&b);
}

/* The status as this operator knows it; of an object that it never served, the stored one. */
static json_t *compose(struct wb__status *st)
{
	struct wb_kube_verdict v = {.generation = st->generation,
		.reason = st->reason ? st->reason : "SpecAccepted",
		.why = st->reason ? (st->why ? st->why : "") : NULL,
		.wall_ns = wb_wall_ns()};
	json_t *status = st->is_served ? wb_serve_status(st->all->serve, st->key)
			 : st->written ? json_deep_copy(st->written)
				       : json_object();

	if (!status)
		return NULL;
	if (st->is_served) {
		wb_kube_observed(status, st->in_force);
		json_object_set_new(status, "acceptedSpec", wb_serve_spec(st->all->serve, st->key));
	} else {
		wb_kube_not_ready(status, st->written, &v);
	}
	wb_kube_accepted(status, st->written, &v);
	wb_kube_confirm(status, st->all->name, v.wall_ns);
	if (now_ns() < st->all->old_until_ns)
		wb_kube_without_news(status);
	return status;
}

/* Whether to write @status now.  A change that can wait is held back until next_write_ns, and
 * looked at again before that if more has changed. */
static bool is_to_go(struct wb__status *st, const json_t *status)
{
	uint64_t now = now_ns();

	st->is_held = false;
	if (now >= st->confirm_ns)
		return true;
	if (wb_kube_same_status(status, st->written))
		return false;
	st->is_held = now < st->next_write_ns && !wb_kube_is_news(status, st->written);
	if (st->is_held)
		st->next_news_ns = now + LOOK_AGAIN_NS;
	return !st->is_held;
}

/* It is the turn of @st: write it if that is necessary. */
static void write_one(struct wb__status *st)
{
	uint64_t looks = wb_serve_looks(st->all->serve, st->key);
	json_t *status = compose(st);

	if (!status) { /* memory was short */
		look_by(st, now_ns() + WRITE_EVERY_NS);
		return;
	}
	st->looks = looks;
	st->is_changed = false;
	if (is_to_go(st, status))
		apply(st, status);
	json_decref(status);
	if (!st->rq)
		look(st); /* when it is to be confirmed, or may be written */
}

/* ---- who is next ---- */

/* Let @st wait for its turn if it may be written now; else plan when to look again. */
static void look(struct wb__status *st)
{
	uint64_t now = now_ns(), at = st->next_news_ns;

	if (!st->is_judged || st->rq || wb_kube_turns_has(&st->turn))
		return; /* the end of the write, or the turn, comes here again */
	if (!st->is_changed && wb_serve_looks(st->all->serve, st->key) == st->looks)
		at = st->is_held ? st->next_write_ns : WB_MAX(st->next_write_ns, st->confirm_ns);
	if (now < at)
		look_by(st, at);
	else if (wb_kube_turns_push(&st->all->turns, st->ns, &st->turn) < 0)
		look_by(st, now + WRITE_EVERY_NS);
}

static void pump(struct wb__statuses *a)
{
	struct wb_kube_turn *t;

	for (int n = 0; n < SLICE && a->watch && a->n_writing < IN_FLIGHT; n++) {
		t = wb_kube_turns_pop(&a->turns);
		if (!t)
			break;
		write_one(wb_container_of(t, struct wb__status, turn));
	}
	arm(a);
}

static void on_timer(void *cookie)
{
	struct wb__statuses *a = cookie;
	uint64_t now = now_ns();
	struct wb_due *e;

	if (!a->watch)
		return;
	while ((e = wb_dues_take(&a->dues, now)))
		look(wb_container_of(e, struct wb__status, due));
	pump(a);
}

void wb__status_changed(struct wb__status *st)
{
	wake(st, now_ns() + LOOK_NS);
}

/* ---- objects ---- */

void wb__status_begin(struct wb__status *st, struct wb__statuses *a, const char *ns,
	const char *name, const char *key)
{
	*st = (struct wb__status){.all = a, .ns = ns, .name = name, .key = key};
	st->backoff = (struct wb_kube_backoff){
		.min_ns = WB_NS_PER_S, .max_ns = 30 * WB_NS_PER_S, .healthy_ns = 60 * WB_NS_PER_S};
}

void wb__status_finish(struct wb__status *st)
{
	struct wb__statuses *a = st->all;

	wb_dues_set(&a->dues, &st->due, WB_NEVER);
	wb_kube_turns_remove(&a->turns, &st->turn);
	if (st->rq) {
		wb_kube_cancel(st->rq);
		a->n_writing--;
		arm(a);
	}
	json_decref(st->written);
	json_decref(st->sending);
	wb_free(st->why);
}

static bool is_own(const struct wb__status *st, const char *version)
{
	uint64_t hash = hash_of(version);

	for (unsigned k = 0; k < WB__OWN_VERSIONS; k++)
		if (st->own[k] == hash)
			return true;
	return false;
}

/* When to confirm first: where an earlier leader has confirmed, when that leader would have done it
 * next. */
static uint64_t first_confirm(const struct wb__status *st)
{
	uint64_t wall = wb_wall_ns(), last = wb_kube_confirmed_ns(st->written);
	uint64_t every = confirm_every(st);

	if (last > wall || wall - last >= every)
		return 0;
	return now_ns() + every - (wall - last);
}

void wb__status_seen(struct wb__status *st, const json_t *o)
{
	const char *version = wb_kube_meta(o, "resourceVersion");
	bool is_first = !*st->version;

	wake(st, now_ns());
	if (is_own(st, version))
		return;
	if (st->rq) {
		snprintf(st->beside, sizeof(st->beside), "%s", version);
		return;
	}
	snprintf(st->version, sizeof(st->version), "%s", version);
	json_decref(st->written);
	st->written = json_incref(json_object_get(o, "status"));
	st->is_changed = true;
	if (is_first)
		st->confirm_ns = first_confirm(st);
}

void wb__status_served(struct wb__status *st, int64_t generation)
{
	st->in_force = generation;
	st->is_served = true;
}

void wb__status_judged(
	struct wb__status *st, int64_t generation, const char *reason, const char *why)
{
	wb_free(st->why);
	st->why = reason ? wb_strdup(why) : NULL;
	st->reason = reason;
	st->generation = generation;
	st->is_judged = true;
	st->is_changed = true;
	if (!reason)
		wb__status_served(st, generation);
	wake(st, now_ns());
}

/* ---- life ---- */

void wb__statuses_follow(struct wb__statuses *a, const struct wb_kube_watch *w)
{
	a->watch = w;
}

int wb__statuses_start(struct wb_loop *loop, struct wb_kube *kube_take, struct wb_serve *serve,
	const char *name, struct wb__statuses **out)
{
	struct wb__statuses *a = wb_zalloc(1, sizeof(*a));

	if (!a) {
		wb_kube_destroy(kube_take);
		return -ENOMEM;
	}
	a->kube = kube_take;
	a->serve = serve;
	snprintf(a->name, sizeof(a->name), "%s", name);
	if (wb_timer_create(loop, on_timer, a, &a->timer) < 0) {
		wb__statuses_stop(a);
		return -ENOMEM;
	}
	*out = a;
	return 0;
}

void wb__statuses_stop(struct wb__statuses *a)
{
	if (!a)
		return;
	wb_kube_turns_finish(&a->turns);
	wb_timer_destroy(a->timer);
	wb_kube_destroy(a->kube);
	wb_free(a);
}
