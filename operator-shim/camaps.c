/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/camaps.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/certs.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/lean.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "certs"
#define RETRY_NS (2 * WB_NS_PER_S)
#define NS_BYTES 64
#define VERSION_BYTES 64
#define KEY "ca.crt"
#define LONG "tooLong" /* key in a kept map: bytes of a KEY that was too long to keep */
#define SAID_NS (60 * WB_NS_PER_S)
/* In a namespace with more objects than this, only some of them own the map.  It is deleted with
 * the last of these, and written again for the objects that are left. */
#define OWNERS_MAX 8

struct space {
	struct space *next;
	struct wb__camaps *m;
	char ns[NS_BYTES];
	json_t *owner; /* uid -> name */
	/* resourceVersion of the map after our last write: in that version it has our owners.  This
	 * has to be noted, since only the first owners of a map are kept (lean.h), and ours may
	 * come after any number of others.  "" = our owners have changed since. */
	char written[VERSION_BYTES];
	bool is_changed; /* the owners have changed since the last write began */
	struct wb_kube_rq *rq;
	uint64_t next_ns; /* no write before this */
	uint64_t said_ns; /* when say_long() last logged */
};

struct wb__camaps {
	struct wb_kube *kube;
	char *pem; /* owned; NULL = not known yet */
	struct {
		char ns[NS_BYTES]; /* "" = all */
		struct wb_kube_watch *watch; /* while leading */
	} * watched; /* owned */
	size_t n_watched; /* at least 1 */
	bool is_leading;
	struct wb_timer *timer;
	struct space *space; /* list */
};

static struct space *find(struct wb__camaps *m, const char *ns)
{
	struct space *s = m->space;

	while (s && strcmp(s->ns, ns) != 0)
		s = s->next;
	return s;
}

/* The watch that shows the map of @ns; NULL = there is none, or it has not listed yet. */
static const struct wb_kube_watch *watch_of(const struct wb__camaps *m, const char *ns)
{
	for (size_t i = 0; i < m->n_watched; i++)
		if (!*m->watched[i].ns || !strcmp(m->watched[i].ns, ns))
			return m->watched[i].watch && wb_kube_watch_is_synced(m->watched[i].watch)
				       ? m->watched[i].watch
				       : NULL;
	return NULL;
}

static void wake(struct wb__camaps *m)
{
	if (m->is_leading)
		wb_timer_start(m->timer, 0, 0);
}

/* ---- what the map should be, and what it is ---- */

static json_t *owners(const struct space *s)
{
	json_t *list = json_array(), *name;
	const char *uid;

	json_object_foreach(s->owner, uid, name)
	{
		if (json_array_size(list) == OWNERS_MAX)
			break;
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:s, s:O}", "apiVersion", "weightbridge.io/v1alpha1",
				"kind", "WeightTransfer", "uid", uid, "name", name));
	}
	return list;
}

/* True when the map has our content and our owners.  It may have other owners too. */
static bool is_as_wanted(const struct space *s)
{
	const struct wb_kube_watch *w = watch_of(s->m, s->ns);
	const json_t *o = wb_kube_watch_get(w, s->ns, WB__CA_CONFIGMAP), *list, *owner;
	const char *pem = json_string_value(json_object_get(json_object_get(o, "data"), KEY));
	size_t i, n = 0;

	if (!o || !pem || strcmp(pem, s->m->pem) != 0)
		return false;
	if (*s->written && !strcmp(s->written, wb_kube_meta(o, "resourceVersion")))
		return true;
	list = json_object_get(json_object_get(o, "metadata"), "ownerReferences");
	json_array_foreach(list, i, owner)
	{
		const char *uid = json_string_value(json_object_get(owner, "uid"));

		n += uid && json_object_get(s->owner, uid);
	}
	return n >= WB_MIN(json_object_size(s->owner), OWNERS_MAX);
}

/* ---- writing ---- */

static void on_written(void *cookie, const struct wb_kube_reply *r)
{
	struct space *s = cookie;

	s->rq = NULL;
	if (r->err.code) {
		WB_LOG_WRN(MOD, "authority not written", WB_S("namespace", s->ns),
			WB_S("why", r->err.msg));
		s->next_ns = wb_now_ns(&wb_clock_real) + RETRY_NS;
	} else {
		if (!s->is_changed)
			snprintf(s->written, sizeof(s->written), "%s",
				wb_kube_meta(r->body, "resourceVersion"));
		/* Do not write again before the watch has shown what was written. */
		s->next_ns = wb_now_ns(&wb_clock_real) + RETRY_NS / 4;
	}
	wb_timer_start(s->m->timer, RETRY_NS / 4, 0);
}

/* A ca.crt that is too long to keep is always overwritten.  Log why, for whoever wrote it. */
static void say_long(struct space *s)
{
	const json_t *o = wb_kube_watch_get(watch_of(s->m, s->ns), s->ns, WB__CA_CONFIGMAP);
	json_int_t n = json_integer_value(json_object_get(o, LONG));
	uint64_t now = wb_now_ns(&wb_clock_real);

	if (!n || (s->said_ns && now - s->said_ns < SAID_NS))
		return;
	s->said_ns = now;
	WB_LOG_WRN(MOD, "a ConfigMap holds more than an authority: it is written again",
		WB_S("namespace", s->ns), WB_S("configmap", WB__CA_CONFIGMAP), WB_S("key", KEY),
		WB_U("bytes", n), WB_U("max", WB_KUBE_LEAN_TEXT));
}

static void write_map(struct space *s)
{
	struct wb_kube_call call = {
		.method = "PATCH", .content_type = WB_KUBE_APPLY, .done = on_written, .cookie = s};
	struct wb_buf b;

	say_long(s);
	s->is_changed = false;
	wb_buf_init(&b, 4096);
	wb_buf_printf(&b, "/api/v1/namespaces/");
	wb_kube_put_escaped(&b, s->ns);
	wb_buf_printf(&b,
		"/configmaps/" WB__CA_CONFIGMAP "?force=true&fieldManager=" WB_KUBE_FIELD_MANAGER);
	call.path = wb_buf_cstr(&b);
	call.body = json_pack("{s:s, s:s, s:{s:s, s:s, s:o}, s:{s:s}}", "apiVersion", "v1", "kind",
		"ConfigMap", "metadata", "name", WB__CA_CONFIGMAP, "namespace", s->ns,
		"ownerReferences", owners(s), "data", KEY, s->m->pem);
	if (!call.body || b.rc || wb_kube_send(s->m->kube, &call, &s->rq) < 0)
		wb_timer_start(s->m->timer, RETRY_NS, 0);
	json_decref(call.body);
	wb_buf_finish(&b);
}

static void free_space(struct space *s)
{
	wb_kube_cancel(s->rq);
	json_decref(s->owner);
	wb_free(s);
}

static void sweep(void *cookie)
{
	struct wb__camaps *m = cookie;
	struct space **at = &m->space, *s;
	uint64_t now = wb_now_ns(&wb_clock_real), next_ns = UINT64_MAX;

	if (!m->pem || !m->is_leading)
		return;
	while ((s = *at)) {
		if (!json_object_size(s->owner)) {
			*at = s->next; /* Kubernetes deletes the map with its owners */
			free_space(s);
			continue;
		}
		at = &s->next;
		if (s->rq || !watch_of(m, s->ns) || is_as_wanted(s))
			continue;
		if (s->next_ns > now)
			next_ns = WB_MIN(next_ns, s->next_ns);
		else
			write_map(s);
	}
	if (next_ns != UINT64_MAX)
		wb_timer_start(m->timer, next_ns - now, 0);
}

/* ---- events ---- */

static void on_put(void *cookie, json_t *map)
{
	struct wb__camaps *m = cookie;

	if (find(m, wb_kube_meta(map, "namespace")))
		wake(m);
}

static void on_synced(void *cookie)
{
	wake(cookie);
}

void wb__camaps_set(struct wb__camaps *m, const char *pem)
{
	char *copy;

	if (!pem || (m->pem && !strcmp(m->pem, pem)))
		return;
	copy = wb_strdup(pem);
	if (!copy)
		return; /* the caller sets it again in a few seconds */
	wb_free(m->pem);
	m->pem = copy;
	wake(m);
}

void wb__camaps_owner(
	struct wb__camaps *m, const char *ns, const char *name, const char *uid, bool is_there)
{
	struct space *s = find(m, ns);

	if (!s && is_there) {
		s = wb_zalloc(1, sizeof(*s));
		if (!s)
			return;
		s->m = m;
		s->owner = json_object();
		snprintf(s->ns, sizeof(s->ns), "%s", ns);
		s->next = m->space;
		m->space = s;
	}
	if (!s || is_there == !!json_object_get(s->owner, uid))
		return; /* known already */
	if (is_there)
		json_object_set_new(s->owner, uid, json_string(name));
	else
		json_object_del(s->owner, uid);
	s->is_changed = true;
	s->written[0] = '\0';
	wake(m);
}

/* Whoever may write ConfigMaps in a namespace can put anything into this one, so only the parts
 * that we need are kept. */
static void trim(void *cookie, json_t *map)
{
	size_t n = wb_kube_lean_map(map, KEY);

	(void)cookie;
	if (n)
		json_object_set_new(map, LONG, json_integer((json_int_t)n));
}

/* ---- life ---- */

static void watch(struct wb__camaps *m, const char *ns, struct wb_kube_watch **out)
{
	struct wb_kube_watch_cb cb = {m, on_put, on_put, on_synced, trim};
	struct wb_kube_watch_opts o = {.name = WB__CA_CONFIGMAP};
	struct wb_buf b;

	wb_buf_init(&b, 1024);
	wb_buf_printf(&b, *ns ? "/api/v1/namespaces/" : "/api/v1");
	wb_kube_put_escaped(&b, ns);
	wb_buf_printf(&b, "/configmaps");
	o.path = wb_buf_cstr(&b);
	if (b.rc || wb_kube_watch_start(m->kube, &o, &cb, out) < 0)
		WB_LOG_ERR(MOD, "out of memory: authorities are not written");
	wb_buf_finish(&b);
}

void wb__camaps_lead(struct wb__camaps *m)
{
	m->is_leading = true;
	for (size_t i = 0; i < m->n_watched; i++)
		if (!m->watched[i].watch)
			watch(m, m->watched[i].ns, &m->watched[i].watch);
}

int wb__camaps_create(
	struct wb_kube *kube, const char *const *watched, size_t n_watched, struct wb__camaps **out)
{
	struct wb__camaps *m = wb_zalloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->kube = kube;
	m->watched = wb_zalloc(n_watched ? n_watched : 1, sizeof(*m->watched));
	if (!m->watched || wb_timer_create(wb_kube_loop(kube), sweep, m, &m->timer) < 0) {
		wb__camaps_destroy(m);
		return -ENOMEM;
	}
	m->n_watched = n_watched ? n_watched : 1;
	for (size_t i = 0; i < n_watched; i++)
		snprintf(m->watched[i].ns, NS_BYTES, "%s", watched[i]);
	*out = m;
	return 0;
}

void wb__camaps_destroy(struct wb__camaps *m)
{
	struct space *s;

	if (!m)
		return;
	for (size_t i = 0; i < m->n_watched; i++)
		wb_kube_watch_stop(m->watched[i].watch);
	while ((s = m->space)) {
		m->space = s->next;
		free_space(s);
	}
	wb_timer_destroy(m->timer);
	wb_free(m->watched);
	wb_free(m->pem);
	wb_free(m);
}
