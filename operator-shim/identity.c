/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/identity.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/mem.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/token.h"
#include "operator-shim/kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES (WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2)
#define OBJECTS_MAX 64
#define AGENT_NAME_MAX 63 /* of an agent; longer names of pods are cut */

struct wb__identity {
	struct wb_kube *reviews; /* owned */
	struct review *review; /* list: under way, or waiting to be sent */
	struct wb_serve *serve;
	struct wb_kube_watch *pods;
	json_t *label; /* "namespace/pod" -> the object that its label names */
	json_t *of; /* "namespace/object" -> its pods: "namespace/pod" -> pod */
};

struct review {
	struct review *next;
	struct wb__identity *d;
	struct wb_kube_rq *rq;
	uint32_t peer;
	char agent[AGENT_NAME_MAX + 1];
	char **object; /* owned */
	size_t n;
};

static void free_review(struct review *v)
{
	struct review **at = &v->d->review;

	while (*at && *at != v)
		at = &(*at)->next;
	if (*at)
		*at = v->next;
	for (size_t i = 0; v->object && i < v->n; i++)
		wb_free(v->object[i]);
	wb_free(v->object);
	wb_free(v);
}

static const char *label_of(const json_t *pod)
{
	const char *s = json_string_value(json_object_get(
		json_object_get(json_object_get(pod, "metadata"), "labels"), WB__LABEL_NAME));

	return s ? s : "";
}

static int check_pod(const struct wb__identity *d, const struct wb_kube_who *who,
	const char *object, const char *agent, struct wb_err *err)
{
	const json_t *pod = wb_kube_watch_get(d->pods, who->ns, who->pod);
	const char *name = strchr(object, '/') + 1;

	/* We know whose token it is, but no object of another namespace reports the refusal. */
	if (strlen(who->ns) != (size_t)(name - 1 - object) ||
		strncmp(object, who->ns, strlen(who->ns)) != 0)
		return wb_err_set(err, -EACCES,
			"the token is of namespace %s, object %.320s is in another", who->ns,
			object);
	if (!pod || strcmp(wb_kube_meta(pod, "uid"), who->pod_uid) != 0 ||
		*wb_kube_meta(pod, "deletionTimestamp"))
		return wb_err_set(err, -EPERM,
			"the token is of pod %s/%.253s, which is not there (any more) with label "
			"%s",
			who->ns, who->pod, WB__LABEL_NAME);
	if (strcmp(label_of(pod), name) != 0)
		return wb_err_set(err, -EPERM, "pod %.253s has label %s: %.253s, not %.253s",
			who->pod, WB__LABEL_NAME, label_of(pod), name);
	if (strncmp(who->pod, agent, AGENT_NAME_MAX) != 0)
		return wb_err_set(err, -EPERM,
			"the token is of pod %.253s, but the agent calls itself %.63s: an agent "
			"has "
			"the name of its pod",
			who->pod, agent);
	return 0;
}

static void on_review(void *cookie, const struct wb_kube_reply *r)
{
	struct review *v = cookie;
	const char *const *object = (const char *const *)v->object;
	struct wb_err err = {0};
	struct wb_kube_who who;
	struct wb_serve_who proved = {who.ns, who.pod, who.pod_uid};
	int rc;
	bool is_known;

	if (r->err.code)
		rc = wb_err_set(
			&err, -EAGAIN, "the token could not be checked: %.800s", r->err.msg);
	else if (!wb_kube_watch_is_synced(v->d->pods))
		rc = wb_err_set(&err, -EAGAIN,
			"this operator has just begun to lead and does not "
			"know the pods yet");
	else
		rc = wb_kube_review_judge(r->body, object, v->n, &who, &err);
	is_known = rc == 0;
	for (size_t i = 0; i < v->n && rc == 0; i++)
		rc = check_pod(v->d, &who, object[i], v->agent, &err);
	wb_serve_authenticated(v->d->serve, v->peer, is_known ? &proved : NULL, rc, err.msg);
	free_review(v);
}

static struct review *make_review(
	struct wb__identity *d, uint32_t peer, const struct wb_serve_claim *c)
{
	struct review *v = wb_zalloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->d = d;
	v->peer = peer;
	snprintf(v->agent, sizeof(v->agent), "%s", c->agent);
	v->n = WB_MIN(c->n_object, OBJECTS_MAX);
	v->object = wb_zalloc(v->n, sizeof(*v->object));
	for (size_t i = 0; v->object && i < v->n; i++) {
		v->object[i] = wb_strdup(c->object[i]);
		if (!v->object[i]) {
			free_review(v);
			return NULL;
		}
	}
	if (v->object)
		return v;
	free_review(v);
	return NULL;
}

void wb__identity_ask(struct wb__identity *d, uint32_t peer, const struct wb_serve_claim *c)
{
	struct review *v = make_review(d, peer, c);
	struct wb_kube_call call = {
		.method = "POST", .path = WB_KUBE_REVIEWS, .done = on_review, .cookie = v};

	if (!v)
		return; /* the agent is closed at the deadline of its HELLO, and comes again */
	call.body = wb_kube_review_body(c->token, c->object, v->n);
	if (!call.body || wb_kube_send(d->reviews, &call, &v->rq) < 0) {
		free_review(v);
	} else {
		v->next = d->review;
		d->review = v;
	}
	json_decref(call.body);
}

/* Without this, when a thousand agents come at once, reviews for agents that have given up would
 * make others wait until they give up too. */
void wb__identity_forget(struct wb__identity *d, uint32_t peer)
{
	struct review *v = d->review;

	while (v && v->peer != peer)
		v = v->next;
	if (!v)
		return;
	wb_kube_cancel(v->rq);
	free_review(v);
}

/* ---- pods ---- */

/* Keys that trim() adds to a pod: */
#define LIVE "live" /* the pod has not ended, and is not being deleted */
#define SIDECAR "sidecar" /* the pod has a container with an agent */
#define UNSCHEDULED "unscheduled" /* why the pod has no node; absent: see unscheduled() */

static void tell(struct wb__identity *d, const json_t *pod)
{
	struct wb_serve_pod p = {.name = wb_kube_meta(pod, "name"),
		.labels = json_object_get(json_object_get(pod, "metadata"), "labels"),
		.unscheduled = json_string_value(json_object_get(pod, UNSCHEDULED)),
		.has_sidecar = json_is_true(json_object_get(pod, SIDECAR))};
	char key[KEY_BYTES];

	snprintf(key, sizeof(key), "%.63s/%.253s", wb_kube_meta(pod, "namespace"), label_of(pod));
	if (json_is_true(json_object_get(pod, LIVE)))
		wb_serve_pod(d->serve, key, &p);
	else
		wb_serve_pod_gone(d->serve, key, p.name);
}

void wb__identity_tell(struct wb__identity *d, const char *ns, const char *name)
{
	char of[KEY_BYTES];
	const char *pod;
	json_t *o;

	snprintf(of, sizeof(of), "%.63s/%.253s", ns, name);
	json_object_foreach(json_object_get(d->of, of), pod, o)
	{
		tell(d, o);
	}
}

/* From now on @pod belongs to @object. */
static void enter(struct wb__identity *d, const char *key, const char *object, json_t *pod)
{
	json_t *all = json_object_get(d->of, object);

	if (!all) {
		all = json_object();
		json_object_set_new(d->of, object, all);
	}
	json_object_set(all, key, pod);
	json_object_set_new(d->label, key, json_string(object));
}

/* The pod does not belong to @object any more, so its agent is disconnected. */
static void leave(struct wb__identity *d, const char *key, const char *object, const char *why)
{
	json_t *all = json_object_get(d->of, object);
	const char *pod = strchr(key, '/') + 1;
	char agent[AGENT_NAME_MAX + 1];

	json_object_del(all, key);
	if (!json_object_size(all))
		json_object_del(d->of, object);
	snprintf(agent, sizeof(agent), "%.63s", pod);
	wb_serve_let_go(d->serve, object, agent, why);
	wb_serve_pod_gone(d->serve, object, pod);
}

static void keys_of(const json_t *pod, char key[KEY_BYTES], char object[KEY_BYTES])
{
	const char *ns = wb_kube_meta(pod, "namespace");

	snprintf(key, KEY_BYTES, "%.63s/%.253s", ns, wb_kube_meta(pod, "name"));
	snprintf(object, KEY_BYTES, "%.63s/%.253s", ns, label_of(pod));
}

static void on_put(void *cookie, json_t *pod)
{
	char key[KEY_BYTES], object[KEY_BYTES], old[KEY_BYTES];
	struct wb__identity *d = cookie;
	const char *before;

	keys_of(pod, key, object);
	before = json_string_value(json_object_get(d->label, key));
	if (before && strcmp(before, object) != 0) {
		snprintf(old, sizeof(old), "%s", before);
		leave(d, key, old, "the label of its pod names another object now");
	}
	enter(d, key, object, pod);
	tell(d, pod);
}

static void on_gone(void *cookie, json_t *pod)
{
	char key[KEY_BYTES], object[KEY_BYTES];
	struct wb__identity *d = cookie;

	keys_of(pod, key, object);
	json_object_del(d->label, key);
	leave(d, key, object, "the pod of this agent was deleted");
}

static bool has_container(const json_t *spec, const char *list)
{
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(spec, list), i, o)
	{
		const char *name = json_string_value(json_object_get(o, "name"));

		if (name && !strcmp(name, WB__SIDECAR_NAME))
			return true;
	}
	return false;
}

static const char *text_at(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* What the scheduler says of a pod that has no node; NULL = the pod has a node, or the scheduler
 * has not looked at it yet. */
static json_t *unscheduled(const json_t *status)
{
	const json_t *c;
	size_t i;

	if (strcmp(text_at(status, "phase"), "Pending") != 0)
		return NULL;
	json_array_foreach(json_object_get(status, "conditions"), i, c)
	{
		if (!strcmp(text_at(c, "type"), "PodScheduled") &&
			!strcmp(text_at(c, "status"), "False"))
			return json_sprintf("%s%s%s", text_at(c, "reason"),
				*text_at(c, "message") ? ": " : "", text_at(c, "message"));
	}
	return NULL;
}

/* There may be thousands of pods, so only the parts that we use are kept. */
static void trim(void *cookie, json_t *pod)
{
	static const char *const kept[] = {
		"name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp"};
	const json_t *spec = json_object_get(pod, "spec"), *meta = json_object_get(pod, "metadata");
	const char *phase = text_at(json_object_get(pod, "status"), "phase");
	json_t *lean = json_object(), *why = unscheduled(json_object_get(pod, "status"));
	bool is_over;

	(void)cookie;
	json_object_del(pod, UNSCHEDULED);
	if (why)
		json_object_set_new(pod, UNSCHEDULED, why);
	is_over = !strcmp(phase, "Succeeded") || !strcmp(phase, "Failed") ||
		  *wb_kube_meta(pod, "deletionTimestamp");
	json_object_set_new(pod, LIVE, json_boolean(!is_over));
	json_object_set_new(pod, SIDECAR,
		json_boolean(has_container(spec, "initContainers") ||
			     has_container(spec, "containers")));
	for (size_t i = 0; i < WB_ARRAY_SIZE(kept); i++)
		if (json_object_get(meta, kept[i]))
			json_object_set(lean, kept[i], json_object_get(meta, kept[i]));
	json_object_set_new(pod, "metadata", lean);
	json_object_del(pod, "spec");
	json_object_del(pod, "status");
}

int wb__identity_start(struct wb_kube *kube, struct wb_kube *reviews_take, struct wb_serve *serve,
	const char *ns, struct wb__identity **out)
{
	struct wb__identity *d = wb_zalloc(1, sizeof(*d));
	struct wb_kube_watch_cb cb = {d, on_put, on_gone, NULL, trim};
	struct wb_kube_watch_opts o = {.label_selector = WB__LABEL_NAME};
	struct wb_buf b;
	int rc;

	if (!d) {
		wb_kube_destroy(reviews_take);
		return -ENOMEM;
	}
	d->reviews = reviews_take;
	d->serve = serve;
	d->label = json_object();
	d->of = json_object();
	wb_buf_init(&b, 1024);
	wb_buf_printf(&b, *ns ? "/api/v1/namespaces/" : "/api/v1");
	wb_kube_put_escaped(&b, ns);
	wb_buf_printf(&b, "/pods");
	o.path = wb_buf_cstr(&b);
	rc = !d->label || !d->of ? -ENOMEM : b.rc;
	if (rc == 0)
		rc = wb_kube_watch_start(kube, &o, &cb, &d->pods);
	wb_buf_finish(&b);
	if (rc < 0) {
		wb__identity_stop(d);
		return rc;
	}
	*out = d;
	return 0;
}

void wb__identity_stop(struct wb__identity *d)
{
	if (!d)
		return;
	wb_kube_watch_stop(d->pods);
	while (d->review)
		wb__identity_forget(d, d->review->peer);
	wb_kube_destroy(d->reviews);
	json_decref(d->label);
	json_decref(d->of);
	wb_free(d);
}

bool wb__identity_is_synced(const struct wb__identity *d)
{
	return wb_kube_watch_is_synced(d->pods);
}
