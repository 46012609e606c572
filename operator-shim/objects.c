/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/objects.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "net/loop.h"
#include "operator-shim/certs.h"
#include "operator-shim/events.h"
#include "operator-shim/identity.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/turns.h"
#include "operator-shim/kube/watch.h"
#include "operator-shim/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOD "cluster"
#define REFUSED "SpecRefused"
#define SLICE_NS (5 * WB_NS_PER_MS) /* of reading specs, at a time */

struct item {
	struct item *next, **at; /* in the list of all */
	struct wb_kube_turn unread; /* while its spec waits to be read */
	struct wb_kube_turn over; /* while there is no room for it */
	char key[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2];
	char ns[WB_SPEC_NAMESPACE_MAX + 1], name[WB_SPEC_NAME_MAX + 1];
	char uid[64];
	struct wb__status status;
};

struct wb__objects {
	struct wb__objects_parts p;
	struct wb_kube_watch *watch;
	struct item *item; /* list */
	struct wb_names by_key;
	struct wb_kube_turns unread, over;
	struct wb_timer *timer; /* while something is unread */
	bool is_read; /* the specs of all objects of the first list were read */
};

static struct item *find(const struct wb__objects *d, const char *key)
{
	const char *at = wb_names_find(&d->by_key, key);

	return at ? (struct item *)(uintptr_t)(at - offsetof(struct item, key)) : NULL;
}

/* ---- events ---- */

static void post(struct wb__objects *d, const struct item *i, const char *reason, const char *about,
	const char *note)
{
	wb__events_add(d->p.events, &(struct wb_kube_occurrence){.api = WB_KUBE_API,
					    .kind = "WeightTransfer",
					    .ns = i->ns,
					    .name = i->name,
					    .uid = i->uid,
					    .reason = reason,
					    .about = about ? about : "",
					    .note = note ? note : ""});
}

void wb__objects_event(struct wb__objects *d, const struct wb_serve_event *e)
{
	const struct item *i = find(d, e->object);

	if (!i)
		return;
	post(d, i, e->reason, e->about, e->text);
	if (e->pod && e->pod_uid)
		wb__events_add(d->p.events, &(struct wb_kube_occurrence){.api = "v1",
						    .kind = "Pod",
						    .ns = i->ns,
						    .name = e->pod,
						    .uid = e->pod_uid,
						    .reason = e->reason,
						    .about = "",
						    .note = e->text ? e->text : ""});
}

void wb__objects_changed(struct wb__objects *d, const char *object)
{
	struct item *i = find(d, object);

	if (i)
		wb__status_changed(&i->status);
}

/* ---- specs ---- */

static uint64_t uid_of(const char *uid)
{
	return wb_hash64(uid, strlen(uid), 0) | 1;
}

static void free_item(struct wb__objects *d, struct item *i)
{
	*i->at = i->next;
	if (i->next)
		i->next->at = i->at;
	wb_names_drop(&d->by_key, i->key);
	wb_kube_turns_remove(&d->unread, &i->unread);
	wb_kube_turns_remove(&d->over, &i->over);
	wb__status_finish(&i->status);
	wb_free(i);
}

static struct item *make_item(struct wb__objects *d, const json_t *o, const char *key)
{
	struct item *i = wb_zalloc(1, sizeof(*i));

	if (!i)
		return NULL;
	snprintf(i->key, sizeof(i->key), "%s", key);
	snprintf(i->ns, sizeof(i->ns), "%s", wb_kube_meta(o, "namespace"));
	snprintf(i->name, sizeof(i->name), "%s", wb_kube_meta(o, "name"));
	snprintf(i->uid, sizeof(i->uid), "%s", wb_kube_meta(o, "uid"));
	if (wb_names_add(&d->by_key, i->key) < 0) {
		wb_free(i);
		return NULL;
	}
	wb__certs_owner(d->p.certs, i->ns, i->name, i->uid, true);
	wb__status_begin(&i->status, d->p.statuses, i->ns, i->name, i->key);
	i->at = &d->item;
	i->next = d->item;
	if (i->next)
		i->next->at = &i->next;
	d->item = i;
	return i;
}

/* Read @spec as the spec of @o.  The reader is that for files, so defaults and refusals are the
 * same. */
static int read_spec(const json_t *o, const json_t *spec, const char *key, struct wb_spec **out,
	struct wb_err *err)
{
	json_t *lean = json_pack("{s:O, s:O, s:{s:s, s:s}, s:O}", "apiVersion",
		json_object_get(o, "apiVersion"), "kind", json_object_get(o, "kind"), "metadata",
		"name", wb_kube_meta(o, "name"), "namespace", wb_kube_meta(o, "namespace"), "spec",
		spec);
	char *text = lean ? json_dumps(lean, JSON_INDENT(1)) : NULL;
	size_t n = 0;
	int rc;

	rc = text ? wb_spec_load(key, text, strlen(text), out, &n, err)
		  : wb_err_set(err, -EINVAL, "%s: not a WeightTransfer", key);
	free(text);
	json_decref(lean);
	return rc;
}

static int64_t generation_in_force(const json_t *stored)
{
	return json_integer_value(json_object_get(stored, "observedGeneration"));
}

static int serve_it(struct wb__objects *d, struct item *i, const json_t *o, struct wb_err *err)
{
	const json_t *stored = json_object_get(o, "status");
	struct wb_serve_object_desc desc = {.uid = uid_of(i->uid),
		.term_min = d->p.term_min,
		/* A status without observedGeneration only says that no spec was accepted. */
		.stored = json_object_get(stored, "observedGeneration") ? stored : NULL,
		.has_pods = d->p.identity != NULL};
	json_t *accepted =
		i->status.is_served ? NULL : json_object_get(desc.stored, "acceptedSpec");
	struct wb_spec *spec = NULL, *before = NULL;
	int rc = read_spec(o, json_object_get(o, "spec"), i->key, &spec, err);

	/* The leader before us has left in the status the spec that was in force. */
	if (accepted && read_spec(o, accepted, i->key, &before, NULL) == 0 && rc == 0)
		rc = wb_spec_check_update(before, spec, err);
	desc.spec = rc == -EINVAL ? before : rc == 0 ? spec : NULL;
	if (desc.spec && desc.spec == before) {
		if (wb_serve_put(d->p.serve, &desc, NULL) == 0)
			wb__status_served(&i->status, generation_in_force(stored));
	} else if (desc.spec) {
		rc = wb_serve_put(d->p.serve, &desc, err);
	}
	wb_free(spec);
	wb_free(before);
	return rc;
}

static int64_t generation_of(const json_t *o)
{
	return json_integer_value(json_object_get(json_object_get(o, "metadata"), "generation"));
}

/* Whether the spec of @generation is to be judged.  Each spec is judged once, since most changes of
 * an object are our own writes.  A spec refused for lack of memory is tried again at each change,
 * and one refused for lack of room when fill_room() finds room. */
static bool is_news(const struct item *i, int64_t generation)
{
	const struct wb__status *st = &i->status;

	if (!st->is_judged || !generation || st->generation != generation)
		return true;
	return st->reason && strcmp(st->reason, REFUSED) != 0 && !wb_kube_turns_has(&i->over);
}

static void judge(struct wb__objects *d, struct item *i, const json_t *o)
{
	struct wb_err err = {0};
	bool was_served = i->status.is_served;
	int rc = serve_it(d, i, o, &err);
	const char *reason = rc == 0 ? NULL : rc == -EINVAL ? REFUSED : "NotServed";

	if (rc == -EDQUOT)
		(void)wb_kube_turns_push(&d->over, i->ns, &i->over);
	else
		wb_kube_turns_remove(&d->over, &i->over);
	if (reason) {
		WB_LOG_ERR(MOD, "object not taken", WB_S("object", i->key), WB_S("why", err.msg));
		post(d, i, reason, "", err.msg);
	}
	wb__status_judged(&i->status, generation_of(o), reason, err.msg);
	if (d->p.identity && (!reason || i->status.is_served != was_served))
		wb__identity_tell(d->p.identity, i->ns, i->name);
}

static void read_next(struct wb__objects *d)
{
	struct wb_kube_turn *t = wb_kube_turns_pop(&d->unread);
	struct item *i = wb_container_of(t, struct item, unread);
	const json_t *o = wb_kube_watch_get(d->watch, i->ns, i->name);

	if (o && is_news(i, generation_of(o)))
		judge(d, i, o);
}

static void on_timer(void *cookie)
{
	struct wb__objects *d = cookie;
	uint64_t end = wb_now_ns(&wb_clock_real) + SLICE_NS;

	while (d->unread.n && wb_now_ns(&wb_clock_real) < end)
		read_next(d);
	if (d->unread.n)
		wb_timer_start(d->timer, 0, 0);
	else
		d->is_read |= wb_kube_watch_is_synced(d->watch);
}

static void read_later(struct wb__objects *d, struct item *i)
{
	/* When memory is short, the next change of the object comes here again. */
	if (wb_kube_turns_push(&d->unread, i->ns, &i->unread) == 0)
		wb_timer_start(d->timer, 0, 0);
}

/* ---- what the watch tells ---- */

static const char *served_by(const struct wb__objects *d, const char *ns)
{
	return d->p.served_by ? d->p.served_by(d->p.cookie, ns) : NULL;
}

static void on_put(void *cookie, json_t *o)
{
	struct wb__objects *d = cookie;
	char key[sizeof(((struct item *)0)->key)];
	struct item *i;

	if (served_by(d, wb_kube_meta(o, "namespace")))
		return;
	snprintf(key, sizeof(key), "%s/%s", wb_kube_meta(o, "namespace"), wb_kube_meta(o, "name"));
	i = find(d, key);
	if (!i)
		i = make_item(d, o, key);
	if (!i)
		return; /* the next change of the object comes here again */
	wb__status_seen(&i->status, o);
	if (is_news(i, generation_of(o)))
		read_later(d, i);
}

/* An object has gone, and may have left room in its namespace, or in all, for an object that waits
 * for room.  Of each namespace the object that has waited longest is tried. */
static void fill_room(struct wb__objects *d)
{
	for (size_t n = d->over.n_lane; n; n--) {
		struct wb_kube_turn *t = wb_kube_turns_pop(&d->over);
		struct item *i = wb_container_of(t, struct item, over);

		if (wb_serve_has_room(d->p.serve, i->key)) {
			read_later(d, i);
			return;
		}
		(void)wb_kube_turns_push(&d->over, i->ns, &i->over);
	}
}

static void leave(struct wb__objects *d, struct item *i, const char *why)
{
	bool was_served = i->status.is_served;
	char key[sizeof(i->key)];

	snprintf(key, sizeof(key), "%s", i->key);
	wb__certs_owner(d->p.certs, i->ns, i->name, i->uid, false);
	free_item(d, i);
	if (!was_served)
		return;
	wb_serve_remove(d->p.serve, key, why);
	fill_room(d);
}

static void on_gone(void *cookie, json_t *o)
{
	struct wb__objects *d = cookie;
	char key[sizeof(((struct item *)0)->key)];
	struct item *i;

	snprintf(key, sizeof(key), "%s/%s", wb_kube_meta(o, "namespace"), wb_kube_meta(o, "name"));
	i = find(d, key);
	if (i)
		leave(d, i, "the object was deleted");
}

/* @ns: "" = all namespaces. */
static void leave_all(struct wb__objects *d, const char *ns, const char *why)
{
	struct item *next;

	for (struct item *i = d->item; i; i = next) {
		next = i->next;
		if (!*ns || !strcmp(i->ns, ns))
			leave(d, i, why);
	}
}

void wb__objects_leave(struct wb__objects *d, const char *why)
{
	leave_all(d, "", why);
}

void wb__objects_revise(struct wb__objects *d, const char *ns)
{
	const char *release = served_by(d, ns);
	char why[400];

	if (!release) {
		wb_kube_watch_again(d->watch, ns);
		return;
	}
	snprintf(why, sizeof(why), "release %.317s serves namespace %s", release, ns);
	leave_all(d, ns, why);
}

static void on_synced(void *cookie)
{
	struct wb__objects *d = cookie;

	WB_LOG_INFO(MOD, "objects listed", WB_U("count", wb_kube_watch_count(d->watch)));
	wb_timer_start(d->timer, 0, 0); /* on_timer() then sets is_read, even without objects */
}

/* `kubectl apply` keeps a copy of the whole object in an annotation. */
static void trim(void *cookie, json_t *o)
{
	(void)cookie;
	json_object_del(json_object_get(o, "metadata"), "annotations");
}

/* ---- life ---- */

int wb__objects_start(const struct wb__objects_parts *p, struct wb__objects **out)
{
	struct wb__objects *d = wb_zalloc(1, sizeof(*d));
	struct wb_kube_watch_cb cb = {d, on_put, on_gone, on_synced, trim};
	struct wb_kube_watch_opts o = {0};
	struct wb_buf b;
	int rc;

	if (!d)
		return -ENOMEM;
	d->p = *p;
	wb_buf_init(&b, 4096);
	wb_kube_wt_path(&b, p->watch_namespace, NULL, "");
	o.path = wb_buf_cstr(&b);
	rc = b.rc ? b.rc : wb_timer_create(p->loop, on_timer, d, &d->timer);
	if (rc == 0)
		rc = wb_kube_watch_start(p->kube, &o, &cb, &d->watch);
	wb_buf_finish(&b);
	if (rc < 0) {
		wb_timer_destroy(d->timer);
		wb_free(d);
		return rc;
	}
	wb__statuses_follow(p->statuses, d->watch);
	*out = d;
	return 0;
}

void wb__objects_stop(struct wb__objects *d)
{
	if (!d)
		return;
	wb__statuses_follow(d->p.statuses, NULL);
	wb_timer_destroy(d->timer);
	wb_kube_watch_stop(d->watch);
	while (d->item)
		free_item(d, d->item);
	wb_free(d);
}

bool wb__objects_is_synced(const struct wb__objects *d)
{
	return d->is_read;
}
