/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/lease.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "kube"

enum wb_kube_lease_step wb_kube_lease_judge(
	const struct wb_kube_lease_view *v, const char *me, bool leading, uint64_t renew_ns)
{
	bool is_mine = !strcmp(v->holder, me);

	if (leading)
		return !is_mine || v->since_renewal_ns >= renew_ns ? WB_KUBE_LEASE_LOST
								   : WB_KUBE_LEASE_RENEW;
	/* The Lease names us from an earlier time, or nobody, or it has expired. */
	if (is_mine || !*v->holder || v->unchanged_ns >= v->duration_s * WB_NS_PER_S)
		return WB_KUBE_LEASE_TAKE;
	return WB_KUBE_LEASE_WAIT;
}

struct wb_kube_lease {
	struct wb_kube *k;
	char *namespace_, *name, *identity, *address; /* owned */
	char *account; /* owned; NULL = not known */
	uint64_t duration_ns, renew_ns, retry_ns;
	struct wb_kube_lease_cb cb;
	char *path, *collection; /* owned */
	struct wb_timer *timer, *deadline;
	struct wb_kube_rq *rq;
	json_t *record; /* last seen */
	uint64_t seen_ns; /* when we last saw it change */
	uint64_t asked_ns, renewed_ns;
	bool is_leading, is_releasing;
	bool is_deciding, stake; /* is_deciding: have the label if stake; else it stays */
	void (*released)(void *cookie);
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static const json_t *spec_of(const json_t *record)
{
	return json_object_get(record, "spec");
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

void wb_kube_lease_holder(const json_t *lease, char out[WB_KUBE_LEASE_HOLDER])
{
	const char *holder = text(spec_of(lease), "holderIdentity");
	size_t n = strlen(holder);
	bool is_name = n < WB_KUBE_LEASE_HOLDER;

	for (size_t i = 0; is_name && i < n; i++)
		is_name = holder[i] > ' ' && holder[i] <= '~';
	snprintf(out, WB_KUBE_LEASE_HOLDER, "%s", is_name ? holder : "?");
}

static uint64_t transitions(const json_t *record)
{
	json_int_t n = json_integer_value(json_object_get(spec_of(record), "leaseTransitions"));

	return n > 0 ? (uint64_t)n : 0;
}

/* Each renewal changes the resourceVersion, and any change counts as a sign of life. */
static void see(struct wb_kube_lease *l, json_t *record)
{
	bool is_same = l->record && !strcmp(wb_kube_meta(l->record, "resourceVersion"),
					    wb_kube_meta(record, "resourceVersion"));

	if (!is_same)
		l->seen_ns = now_ns();
	json_incref(record);
	json_decref(l->record);
	l->record = record;
}

static void lose(struct wb_kube_lease *l, const char *why)
{
	if (!l->is_leading)
		return;
	l->is_leading = false;
	wb_timer_stop(l->deadline);
	l->cb.on_lost(l->cb.cookie, why);
}

static void again(struct wb_kube_lease *l)
{
	/* Up to a fifth earlier, at random, so that replicas do not all ask at the same time. */
	wb_timer_start(l->timer, l->retry_ns - wb_kube_random() % (l->retry_ns / 5 + 1), 0);
}

/* ---- writing ---- */

static const json_t *labels_of(const json_t *record)
{
	return json_object_get(json_object_get(record, "metadata"), "labels");
}

bool wb_kube_lease_is_staked(const struct wb_kube_lease *l)
{
	return !strcmp(text(labels_of(l->record), WB_KUBE_LEASE_SERVES), "all");
}

const json_t *wb_kube_lease_record(const struct wb_kube_lease *l)
{
	return l->record;
}

static void set(json_t *o, const char *key, const char *text)
{
	json_object_set_new(o, key, json_string(text));
}

/* A PUT replaces the whole object, so we copy what others have put into the metadata. */
static json_t *metadata_json(const struct wb_kube_lease *l, bool is_held)
{
	static const char *const others[] = {
		"labels", "annotations", "finalizers", "ownerReferences"};
	const json_t *old = json_object_get(l->record, "metadata");
	json_t *meta = json_pack("{s:s, s:s, s:{}, s:{}}", "name", l->name, "namespace",
		l->namespace_, "labels", "annotations");
	json_t *labels, *notes;

	for (size_t i = 0; i < WB_ARRAY_SIZE(others); i++)
		if (json_object_get(old, others[i]))
			json_object_set_new(
				meta, others[i], json_deep_copy(json_object_get(old, others[i])));
	if (l->record)
		set(meta, "resourceVersion", wb_kube_meta(l->record, "resourceVersion"));
	labels = json_object_get(meta, "labels");
	notes = json_object_get(meta, "annotations");
	if (l->is_deciding && l->stake)
		set(labels, WB_KUBE_LEASE_SERVES, "all");
	else if (l->is_deciding)
		json_object_del(labels, WB_KUBE_LEASE_SERVES);
	set(notes, WB_KUBE_LEASE_ADDRESS, is_held ? l->address : "");
	if (l->account)
		set(notes, WB_KUBE_LEASE_ACCOUNT, l->account);
	return meta;
}

static json_t *lease_json(const struct wb_kube_lease *l, const char *holder)
{
	const json_t *old = spec_of(l->record);
	bool is_mine = !strcmp(text(old, "holderIdentity"), l->identity);
	uint64_t count = transitions(l->record) + (is_mine ? 0 : 1);
	char now[WB_KUBE_TIME_TEXT];

	wb_kube_time(wb_wall_ns(), now);
	return json_pack("{s:s, s:s, s:o, s:{s:s, s:i, s:s, s:s, s:I}}", "apiVersion",
		"coordination.k8s.io/v1", "kind", "Lease", "metadata",
		metadata_json(l, *holder != '\0'), "spec", "holderIdentity", holder,
		"leaseDurationSeconds", *holder ? (int)(l->duration_ns / WB_NS_PER_S) : 1,
		"acquireTime",
		is_mine && *text(old, "acquireTime") ? text(old, "acquireTime") : now, "renewTime",
		now, "leaseTransitions", (json_int_t)count);
}

static void on_written(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_lease *l = cookie;
	bool was_leading = l->is_leading;

	l->rq = NULL;
	if (l->is_releasing) {
		l->released(l->cb.cookie);
		return;
	}
	again(l);
	if (r->err.code) {
		/* 409: somebody else wrote first; the next read shows what is there now. */
		if (r->status != 409)
			WB_LOG_WRN(MOD, "lease not written", WB_S("why", r->err.msg));
		return;
	}
	see(l, r->body);
	/* Counted from when the request was sent: other replicas see the renewal later than that,
	 * so they do not take over before we have given up. */
	l->renewed_ns = l->asked_ns;
	l->is_leading = true;
	wb_timer_start(l->deadline, l->renew_ns - WB_MIN(now_ns() - l->asked_ns, l->renew_ns), 0);
	if (!was_leading)
		l->cb.on_leading(l->cb.cookie, transitions(l->record));
}

static void write_lease(struct wb_kube_lease *l, const char *holder)
{
	struct wb_kube_call c = {.method = l->record ? "PUT" : "POST",
		.path = l->record ? l->path : l->collection,
		.body = lease_json(l, holder),
		.total_ns = l->renew_ns / 2,
		.done = on_written,
		.cookie = l};
	int rc = c.body ? 0 : -ENOMEM;

	l->asked_ns = now_ns();
	if (rc == 0)
		rc = wb_kube_send(l->k, &c, &l->rq);
	json_decref(c.body);
	if (rc < 0)
		again(l);
}

/* ---- reading ---- */

static void act(struct wb_kube_lease *l)
{
	const json_t *spec = spec_of(l->record);
	json_int_t s = json_integer_value(json_object_get(spec, "leaseDurationSeconds"));
	struct wb_kube_lease_view v = {.holder = text(spec, "holderIdentity"),
		.duration_s = s > 0 && s < 3600 ? (uint64_t)s : 15,
		.unchanged_ns = now_ns() - l->seen_ns,
		.since_renewal_ns = now_ns() - l->renewed_ns};

	switch (wb_kube_lease_judge(&v, l->identity, l->is_leading, l->renew_ns)) {
	case WB_KUBE_LEASE_TAKE:
	case WB_KUBE_LEASE_RENEW:
		write_lease(l, l->identity);
		break;
	case WB_KUBE_LEASE_WAIT:
		again(l);
		l->cb.on_other(l->cb.cookie, v.holder,
			text(json_object_get(json_object_get(l->record, "metadata"), "annotations"),
				WB_KUBE_LEASE_ADDRESS));
		break;
	case WB_KUBE_LEASE_LOST:
		again(l);
		lose(l, "another replica holds the lease");
		break;
	}
}

static void on_read(void *cookie, const struct wb_kube_reply *r)
{
	struct wb_kube_lease *l = cookie;

	l->rq = NULL;
	if (r->status == 404) {
		json_decref(l->record);
		l->record = NULL;
		write_lease(l, l->identity); /* the Lease was deleted, or never made */
		return;
	}
	if (r->err.code) {
		WB_LOG_WRN(MOD, "lease not read", WB_S("why", r->err.msg));
		again(l);
		return;
	}
	see(l, r->body);
	act(l);
}

static void on_timer(void *cookie)
{
	struct wb_kube_lease *l = cookie;
	struct wb_kube_call c = {.method = "GET",
		.path = l->path,
		.total_ns = l->renew_ns / 2,
		.done = on_read,
		.cookie = l};

	if (l->rq)
		return;
	if (wb_kube_send(l->k, &c, &l->rq) < 0)
		again(l);
}

static void on_deadline(void *cookie)
{
	lose(cookie, "the lease could not be renewed in time");
}

void wb_kube_lease_stake(struct wb_kube_lease *l, bool stake)
{
	l->is_deciding = true;
	l->stake = stake;
	if (wb_kube_lease_is_staked(l) != stake && !l->rq && l->is_leading)
		wb_timer_start(l->timer, 0, 0); /* at once, not at the next renewal */
}

void wb_kube_lease_account(struct wb_kube_lease *l, const char *name)
{
	wb_free(l->account);
	l->account = wb_strdup(name);
}

/* ---- life ---- */

static char *make_path(const struct wb_kube_lease_opts *o, bool with_name)
{
	struct wb_buf b;
	uint8_t *out = NULL;
	size_t n;

	wb_buf_init(&b, 4096);
	wb_buf_printf(&b, "/apis/coordination.k8s.io/v1/namespaces/");
	wb_kube_put_escaped(&b, o->namespace_);
	wb_buf_printf(&b, "/leases%s", with_name ? "/" : "");
	if (with_name)
		wb_kube_put_escaped(&b, o->name);
	wb_buf_u8(&b, 0);
	wb_buf_take(&b, &out, &n);
	return (char *)out;
}

int wb_kube_lease_start(struct wb_kube *k, const struct wb_kube_lease_opts *o,
	const struct wb_kube_lease_cb *cb, struct wb_kube_lease **out)
{
	struct wb_kube_lease *l = wb_zalloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->k = k;
	l->cb = *cb;
	l->duration_ns = o->duration_ns ? o->duration_ns : 15 * WB_NS_PER_S;
	l->renew_ns = o->renew_ns ? o->renew_ns : 10 * WB_NS_PER_S;
	l->retry_ns = o->retry_ns ? o->retry_ns : 2 * WB_NS_PER_S;
	l->namespace_ = wb_strdup(o->namespace_);
	l->name = wb_strdup(o->name);
	l->identity = wb_strdup(o->identity);
	l->address = wb_strdup(o->address);
	l->path = make_path(o, true);
	l->collection = make_path(o, false);
	if (!l->namespace_ || !l->name || !l->identity || !l->address || !l->path ||
		!l->collection || wb_timer_create(wb_kube_loop(k), on_timer, l, &l->timer) < 0 ||
		wb_timer_create(wb_kube_loop(k), on_deadline, l, &l->deadline) < 0) {
		wb_kube_lease_stop(l);
		return -ENOMEM;
	}
	wb_timer_start(l->timer, 0, 0);
	*out = l;
	return 0;
}

void wb_kube_lease_stop(struct wb_kube_lease *l)
{
	if (!l)
		return;
	wb_kube_cancel(l->rq);
	wb_timer_destroy(l->timer);
	wb_timer_destroy(l->deadline);
	json_decref(l->record);
	wb_free(l->namespace_);
	wb_free(l->name);
	wb_free(l->identity);
	wb_free(l->address);
	wb_free(l->account);
	wb_free(l->path);
	wb_free(l->collection);
	wb_free(l);
}

static void on_nothing(void *cookie)
{
	struct wb_kube_lease *l = cookie;

	l->released(l->cb.cookie);
}

void wb_kube_lease_release(struct wb_kube_lease *l, void (*done)(void *cookie))
{
	bool was_leading = l->is_leading;

	wb_kube_cancel(l->rq);
	l->rq = NULL;
	l->is_releasing = true;
	l->is_leading = false;
	l->released = done;
	wb_timer_stop(l->timer);
	wb_timer_stop(l->deadline);
	if (was_leading)
		write_lease(l, "");
	else if (wb_loop_defer(wb_kube_loop(l->k), on_nothing, l) < 0)
		done(l->cb.cookie);
}
