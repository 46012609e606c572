/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/scopes.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/identity.h"
#include "operator-shim/kube/lease.h"
#include "operator-shim/others.h"
#include "operator-shim/serve/metrics.h"
#include "operator-shim/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "cluster"
/* Long, since the namespace must stay ours while this loop is late.  Which replica leads is decided
 * elsewhere (lead.h). */
#define HELD_NS (60 * WB_NS_PER_S)
#define RENEW_NS (5 * WB_NS_PER_S)
/* Longer than a first answer takes.  Later, other namespaces do not wait for this one any more. */
#define UNKNOWN_NS (15 * WB_NS_PER_S)
#define UNLISTED_NS (60 * WB_NS_PER_S)
#define LOOK_NS WB_NS_PER_S

struct scope {
	struct wb__scopes *s;
	char ns[WB_SPEC_NAMESPACE_MAX + 1]; /* "" = all */
	struct wb_kube_lease *lease; /* NULL = the scope is all namespaces */
	char rival[WB_KUBE_LEASE_HOLDER]; /* release that serves it; "" = not known */
	uint64_t since_ns; /* since when it is ours, or nobody knows whose it is */
	bool is_silent; /* its Lease can neither be read nor made, or not be renewed */
	bool was_ready; /* why_unready() was NULL once */
	struct wb__identity *identity; /* this and the rest: while it is served here */
	struct wb__statuses *statuses;
	struct wb__objects *objects;
};

struct wb__scopes {
	struct wb__scopes_opts o;
	char release[320], address[300];
	struct scope *scope; /* owned */
	size_t n;
	struct wb_timer *timer; /* NULL = we serve all namespaces */
	struct wb__others *others; /* namespaces that others serve; NULL = we serve some only */
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* ---- the scope of an object ---- */

/* The scope of object "namespace/name"; NULL = its namespace is not watched. */
static struct scope *scope_of(const struct wb__scopes *s, const char *object)
{
	size_t n = strcspn(object, "/");

	for (size_t i = 0; i < s->n; i++) {
		const char *ns = s->scope[i].ns;

		if (!*ns || (strlen(ns) == n && !strncmp(ns, object, n)))
			return &s->scope[i];
	}
	return NULL;
}

void wb__scopes_changed(struct wb__scopes *s, const char *object)
{
	struct scope *c = s ? scope_of(s, object) : NULL;

	if (c && c->objects)
		wb__objects_changed(c->objects, object);
}

void wb__scopes_event(struct wb__scopes *s, const struct wb_serve_event *e)
{
	struct scope *c = s ? scope_of(s, e->object) : NULL;

	if (c && c->objects)
		wb__objects_event(c->objects, e);
}

/* ---- namespaces that another release serves ---- */

/* The release that serves object "namespace/name" of scope @c; NULL = we do, or it is not known. */
static const char *rival_of(const struct wb__scopes *s, const struct scope *c, const char *object)
{
	char ns[WB_SPEC_NAMESPACE_MAX + 1];

	if (c && *c->rival)
		return c->rival;
	snprintf(ns, sizeof(ns), "%.*s", (int)strcspn(object, "/"), object);
	return wb__others_release(s->others, ns);
}

static void count_idle(const struct wb__scopes *s)
{
	size_t n = wb__others_count(s->others);

	for (size_t i = 0; i < s->n; i++)
		n += *s->scope[i].rival || s->scope[i].is_silent;
	wb_metric_set(
		wb_serve_own_metrics(s->o.parts.serve), WB_SM_IDLE_NAMESPACES, NULL, (double)n);
}

static void say_idle(const struct wb__scopes *s, const char *ns, const char *release)
{
	count_idle(s);
	if (release)
		WB_LOG_WRN(MOD, "this operator is idle for a namespace that another release serves",
			WB_S("namespace", ns), WB_S("release", release),
			WB_S("remedy",
				"if that is not wanted, uninstall one of the two, or give each "
				"namespaces of its own"));
	else
		WB_LOG_INFO(MOD, "namespace served", WB_S("namespace", ns));
}

static void note_silent(struct scope *c)
{
	c->is_silent = true;
	count_idle(c->s);
	WB_LOG_WRN(MOD,
		"this operator is idle for a namespace whose Lease it can neither read nor make",
		WB_S("namespace", c->ns), WB_S("lease", WB__SCOPE_LEASE),
		WB_S("remedy",
			"see that the namespace exists, and that this operator's account may get, "
			"create and update Leases there (a Role of the chart): it tries on"));
}

/* ---- agents ---- */

#define REFUSAL_MAX 900

/* Told later, from the loop: serve does not allow an answer before its call has returned. */
struct refusal {
	struct wb_serve *serve;
	uint32_t peer;
	char text[REFUSAL_MAX];
};

static void refuse(void *cookie)
{
	struct refusal *r = cookie;

	wb_serve_authenticated(r->serve, r->peer, NULL, -EAGAIN, r->text);
	wb_free(r);
}

void wb__scopes_refuse(
	struct wb_loop *loop, struct wb_serve *serve, uint32_t peer, const char *sentence)
{
	struct refusal *r = wb_zalloc(1, sizeof(*r));

	if (!r)
		return; /* the agent is closed at its deadline, and comes again */
	r->serve = serve;
	r->peer = peer;
	snprintf(r->text, sizeof(r->text), "%s", sentence);
	if (wb_loop_defer(loop, refuse, r) < 0)
		wb_free(r);
}

static void refuse_object(
	struct wb__scopes *s, const struct scope *c, uint32_t peer, const char *object)
{
	const char *rival = rival_of(s, c, object);
	char text[REFUSAL_MAX];

	if (rival)
		snprintf(text, sizeof(text),
			"this operator is idle for namespace %.*s: release %.317s serves it; "
			"connect its agents to that one",
			(int)strcspn(object, "/"), object, rival);
	else
		snprintf(text, sizeof(text), "this operator %s: %s",
			c ? "does not serve that namespace yet"
			  : "does not serve the namespace of that object",
			c ? "try again" : "connect the agent to the one that does (--operator)");
	wb__scopes_refuse(s->o.parts.loop, s->o.parts.serve, peer, text);
}

void wb__scopes_ask(struct wb__scopes *s, uint32_t peer, const struct wb_serve_claim *claim)
{
	const char *object = claim->object[0];
	struct scope *c = s ? scope_of(s, object) : NULL;

	if (c && c->identity && !rival_of(s, c, object))
		wb__identity_ask(c->identity, peer, claim);
	else if (s && s->o.has_tokens)
		refuse_object(s, c, peer, object);
}

void wb__scopes_forget(struct wb__scopes *s, uint32_t peer)
{
	for (size_t i = 0; s && i < s->n; i++)
		if (s->scope[i].identity)
			wb__identity_forget(s->scope[i].identity, peer);
}

/* ---- serving ---- */

static void unserve(struct scope *c)
{
	wb__objects_stop(c->objects);
	wb__statuses_stop(c->statuses);
	wb__identity_stop(c->identity);
	c->objects = NULL;
	c->statuses = NULL;
	c->identity = NULL;
}

static const char *served_by(void *cookie, const char *ns)
{
	const struct scope *c = cookie;

	return wb__others_release(c->s->others, ns);
}

static int serve(struct scope *c)
{
	struct wb__scopes *s = c->s;
	struct wb__objects_parts p = s->o.parts;
	struct wb_kube *kube = NULL;
	int rc = s->o.connect(s->o.cookie, true, &kube);

	if (rc == 0)
		rc = wb__statuses_start(p.loop, kube, p.serve, s->o.instance, &c->statuses);
	if (rc == 0 && s->o.has_tokens)
		rc = s->o.connect(s->o.cookie, false, &kube);
	if (rc == 0 && s->o.has_tokens)
		rc = wb__identity_start(p.kube, kube, p.serve, c->ns, &c->identity);
	p.identity = c->identity;
	p.statuses = c->statuses;
	p.watch_namespace = c->ns;
	p.served_by = served_by;
	p.cookie = c;
	return rc < 0 ? rc : wb__objects_start(&p, &c->objects);
}

static void on_held(void *cookie, uint64_t transitions)
{
	struct scope *c = cookie;

	(void)transitions; /* plans are fenced by the terms that agents have heard */
	c->rival[0] = '\0';
	c->is_silent = false;
	c->since_ns = now_ns();
	say_idle(c->s, c->ns, NULL);
	if (serve(c) < 0)
		c->s->o.on_lost(c->s->o.cookie, "out of memory");
}

/* Somebody else holds the Lease. */
static void note_rival(struct scope *c)
{
	char holder[WB_KUBE_LEASE_HOLDER];

	wb_kube_lease_holder(wb_kube_lease_record(c->lease), holder);
	c->is_silent = false;
	if (!strcmp(c->rival, holder))
		return;
	memcpy(c->rival, holder, sizeof(holder));
	say_idle(c->s, c->ns, c->rival);
}

/* Stop serving this namespace, and nothing else: people with rights in the namespace may write its
 * Lease. */
static void on_taken(void *cookie, const char *why)
{
	struct scope *c = cookie;
	const json_t *record = wb_kube_lease_record(c->lease);
	char holder[WB_KUBE_LEASE_HOLDER], text[400];

	WB_LOG_WRN(MOD, "namespace lost", WB_S("namespace", c->ns), WB_S("why", why));
	c->since_ns = now_ns();
	snprintf(text, sizeof(text), "its operator may not serve namespace %s any more: %.200s",
		c->ns, why);
	if (c->objects)
		wb__objects_leave(c->objects, text);
	unserve(c);
	wb_kube_lease_holder(record, holder);
	if (record && !*holder)
		return; /* nobody holds it: we take it again at the next look */
	if (record && strcmp(holder, c->s->release) != 0)
		note_rival(c);
	else
		note_silent(c); /* we did not renew it in time */
}

static void on_other(void *cookie, const char *holder, const char *address)
{
	(void)holder;
	(void)address;
	note_rival(cookie);
}

static void on_timer(void *cookie)
{
	struct wb__scopes *s = cookie;

	for (size_t i = 0; i < s->n; i++) {
		struct scope *c = &s->scope[i];

		if (!c->objects && !*c->rival && !c->is_silent &&
			now_ns() - c->since_ns >= UNKNOWN_NS)
			note_silent(c);
	}
}

/* Where we serve all namespaces there is one scope. */
static void on_known(void *cookie)
{
	struct wb__scopes *s = cookie;

	if (serve(&s->scope[0]) < 0)
		s->o.on_lost(s->o.cookie, "out of memory");
}

static void on_changed(void *cookie, const char *ns, const char *release)
{
	struct wb__scopes *s = cookie;

	say_idle(s, ns, release);
	if (s->scope[0].objects)
		wb__objects_revise(s->scope[0].objects, ns);
}

static int start_scope(struct scope *c)
{
	struct wb_kube_lease_opts lo = {.namespace_ = c->ns,
		.name = WB__SCOPE_LEASE,
		.identity = c->s->release,
		.address = c->s->address,
		.duration_ns = HELD_NS,
		.renew_ns = HELD_NS * 3 / 4,
		.retry_ns = RENEW_NS};
	struct wb_kube_lease_cb cb = {c, on_held, on_taken, on_other};
	struct wb__others_cb ocb = {c->s, on_known, on_changed};

	c->since_ns = now_ns();
	if (*c->ns)
		return wb_kube_lease_start(c->s->o.claims, &lo, &cb, &c->lease);
	return wb__others_start(c->s->o.parts.kube, c->s->release, &ocb, &c->s->others);
}

/* ---- life ---- */

int wb__scopes_start(const struct wb__scopes_opts *o, struct wb__scopes **out)
{
	struct wb__scopes *s = wb_zalloc(1, sizeof(*s));
	int rc = 0;

	if (!s)
		return -ENOMEM;
	*out = s;
	s->o = *o;
	snprintf(s->release, sizeof(s->release), "%s", o->release);
	snprintf(s->address, sizeof(s->address), "%s", o->address);
	s->scope = wb_zalloc(WB_MAX(o->n_watched, (size_t)1), sizeof(*s->scope));
	if (!s->scope)
		return -ENOMEM;
	s->n = WB_MAX(o->n_watched, (size_t)1);
	for (size_t i = 0; i < s->n; i++) {
		s->scope[i].s = s;
		snprintf(s->scope[i].ns, sizeof(s->scope[i].ns), "%s",
			o->n_watched ? o->watched[i] : "");
	}
	for (size_t i = 0; i < s->n && rc == 0; i++)
		rc = start_scope(&s->scope[i]);
	if (rc == 0 && o->n_watched)
		rc = wb_timer_create(o->parts.loop, on_timer, s, &s->timer);
	if (rc == 0 && s->timer)
		wb_timer_start(s->timer, LOOK_NS, LOOK_NS);
	return rc;
}

void wb__scopes_stop(struct wb__scopes *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++) {
		wb_kube_lease_stop(s->scope[i].lease);
		unserve(&s->scope[i]);
	}
	wb__others_stop(s->others);
	wb_timer_destroy(s->timer);
	wb_free(s->scope);
	wb_free(s);
}

static const char *why_unready(const struct scope *c)
{
	bool is_some = *c->ns != '\0'; /* all: there is no other scope to serve meanwhile */

	if (!c->objects && !*c->rival && !c->is_silent)
		return "it is not known yet who serves each namespace";
	if (is_some && c->objects && now_ns() - c->since_ns >= UNLISTED_NS)
		return NULL;
	if (c->objects && !wb__objects_is_synced(c->objects))
		return "WeightTransfers are not listed yet";
	if (c->identity && !wb__identity_is_synced(c->identity))
		return "pods are not listed yet";
	return NULL;
}

const char *wb__scopes_why_unready(struct wb__scopes *s)
{
	for (size_t i = 0; s && i < s->n; i++) {
		struct scope *c = &s->scope[i];
		const char *why = c->was_ready ? NULL : why_unready(c);

		if (why)
			return why;
		c->was_ready = true;
	}
	return NULL;
}
