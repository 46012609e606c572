/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/objects.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "operator-shim/certs.h"
#include "operator-shim/events.h"
#include "operator-shim/identity.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/watch.h"
#include "operator-shim/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOD "cluster"
#define REFUSED "SpecRefused"

struct item {
	struct item *next;
	char key[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2];
	char ns[WB_SPEC_NAMESPACE_MAX + 1], name[WB_SPEC_NAME_MAX + 1];
	char uid[64];
	struct wb__status status;
	bool is_over; /* it was refused because there are too many objects */
};

struct wb__objects {
	struct wb__objects_parts p;
	struct wb_kube_watch *watch;
	struct item *item; /* list */
};

static struct item *find(struct wb__objects *d, const char *key)
{
	struct item *i = d->item;

	while (i && strcmp(i->key, key) != 0)
		i = i->next;
	return i;
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

/* ---- what the watch tells ---- */

static uint64_t uid_of(const char *uid)
{
	return wb_hash64(uid, strlen(uid), 0) | 1;
}

static void free_item(struct item *i)
{
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
	wb__certs_owner(d->p.certs, i->ns, i->name, i->uid, true);
	wb__status_begin(&i->status, d->p.statuses, i->ns, i->name, i->key);
	i->next = d->item;
	d->item = i;
	return i;
}

/* The same reader as for files: same defaults, same refusals. */
static int read_spec(const json_t *o, const char *key, struct wb_spec **out, struct wb_err *err)
{
	json_t *lean = json_pack("{s:O, s:O, s:{s:s, s:s}, s:O}", "apiVersion",
		json_object_get(o, "apiVersion"), "kind", json_object_get(o, "kind"), "metadata",
		"name", wb_kube_meta(o, "name"), "namespace", wb_kube_meta(o, "namespace"), "spec",
		json_object_get(o, "spec"));
	char *text = lean ? json_dumps(lean, JSON_INDENT(1)) : NULL;
	size_t n = 0;
	int rc;

	rc = text ? wb_spec_load(key, text, strlen(text), out, &n, err)
		  : wb_err_set(err, -EINVAL, "%s: not a WeightTransfer", key);
	free(text);
	json_decref(lean);
	return rc;
}

static int serve_it(
	struct wb__objects *d, const struct item *i, const json_t *o, struct wb_err *err)
{
	const json_t *stored = json_object_get(o, "status");
	struct wb_serve_object_desc desc = {.uid = uid_of(i->uid),
		.term_min = d->p.term_min,
		/* One that answers no spec only says that none was accepted. */
		.stored = json_object_get(stored, "observedGeneration") ? stored : NULL,
		.has_pods = d->p.identity != NULL};
	struct wb_spec *spec = NULL;
	int rc = read_spec(o, i->key, &spec, err);

	desc.spec = spec;
	if (rc == 0)
		rc = wb_serve_put(d->p.serve, &desc, err);
	wb_free(spec);
	return rc;
}

/* Whatever is said of it, its spec is judged once: most news is what we wrote ourselves.  What was
 * refused for want of room is tried again. */
static bool is_news(const struct item *i, int64_t generation)
{
	const struct wb__status *st = &i->status;

	return !st->is_judged || !generation || st->generation != generation ||
	       (st->reason && strcmp(st->reason, REFUSED) != 0);
}

static void judge(struct wb__objects *d, struct item *i, json_t *o, int64_t generation)
{
	struct wb_err err = {0};
	int rc = serve_it(d, i, o, &err);
	const char *reason = rc == 0 ? NULL : rc == -EINVAL ? REFUSED : "NotServed";

	i->is_over = rc == -EDQUOT;
	if (reason) {
		WB_LOG_ERR(MOD, "object not taken", WB_S("object", i->key), WB_S("why", err.msg));
		post(d, i, reason, "", err.msg);
	}
	wb__status_judged(&i->status, generation, reason, err.msg);
	if (!reason && d->p.identity)
		wb__identity_tell(d->p.identity, i->ns, i->name);
}

static void on_put(void *cookie, json_t *o)
{
	struct wb__objects *d = cookie;
	char key[sizeof(((struct item *)0)->key)];
	int64_t generation =
		json_integer_value(json_object_get(json_object_get(o, "metadata"), "generation"));
	struct item *i;

	snprintf(key, sizeof(key), "%s/%s", wb_kube_meta(o, "namespace"), wb_kube_meta(o, "name"));
	i = find(d, key);
	if (!i)
		i = make_item(d, o, key);
	if (!i)
		return; /* the next change brings it again */
	wb__status_seen(&i->status, o);
	if (is_news(i, generation))
		judge(d, i, o, generation);
}

/* One that there was no room for takes the place of one that has gone: of its own namespace, or of
 * all. */
static void fill_room(struct wb__objects *d)
{
	for (struct item *i = d->item; i; i = i->next) {
		json_t *o = i->is_over ? wb_kube_watch_get(d->watch, i->ns, i->name) : NULL;

		if (!o || !wb_serve_has_room(d->p.serve, i->key))
			continue;
		on_put(d, o);
		return;
	}
}

static void on_gone(void *cookie, json_t *o)
{
	struct wb__objects *d = cookie;
	char key[sizeof(((struct item *)0)->key)];
	struct item **at = &d->item, *i;

	snprintf(key, sizeof(key), "%s/%s", wb_kube_meta(o, "namespace"), wb_kube_meta(o, "name"));
	while ((i = *at) && strcmp(i->key, key) != 0)
		at = &i->next;
	if (!i)
		return;
	*at = i->next;
	wb__certs_owner(d->p.certs, i->ns, i->name, i->uid, false);
	free_item(i);
	wb_serve_remove(d->p.serve, key);
	fill_room(d);
}

static void on_synced(void *cookie)
{
	struct wb__objects *d = cookie;

	WB_LOG_INFO(MOD, "objects listed", WB_U("count", wb_kube_watch_count(d->watch)));
}

/* kubectl keeps the whole object once more in there. */
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
	rc = b.rc ? b.rc : wb_kube_watch_start(p->kube, &o, &cb, &d->watch);
	wb_buf_finish(&b);
	if (rc < 0) {
		wb_free(d);
		return rc;
	}
	wb__statuses_follow(p->statuses, d->watch);
	*out = d;
	return 0;
}

void wb__objects_stop(struct wb__objects *d)
{
	struct item *i;

	if (!d)
		return;
	wb__statuses_follow(d->p.statuses, NULL);
	wb_kube_watch_stop(d->watch);
	while ((i = d->item)) {
		d->item = i->next;
		free_item(i);
	}
	wb_free(d);
}

bool wb__objects_is_synced(const struct wb__objects *d)
{
	return wb_kube_watch_is_synced(d->watch);
}
