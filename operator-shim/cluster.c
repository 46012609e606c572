/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/cluster.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/certs.h"
#include "operator-shim/identity.h"
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/lease.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/watch.h"
#include "operator-shim/serve/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOD "cluster"
#define WRITE_EVERY_NS WB_NS_PER_S
#define COMPLETED_EVERY_NS (60 * WB_NS_PER_S)
#define STALE_NS (30 * WB_NS_PER_S)
#define OWN_VERSIONS 4
#define VERSION_BYTES 64

struct item {
	struct item *next;
	struct wb__cluster *c;
	char key[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2];
	char ns[WB_SPEC_NAMESPACE_MAX + 1], name[WB_SPEC_NAME_MAX + 1];
	char uid[64], version[VERSION_BYTES];
	int64_t generation;
	bool is_served; /* else its spec was refused */
	json_t *written; /* status that the API server has */
	json_t *sending; /* status under way */
	struct wb_kube_rq *rq;
	uint64_t looks; /* of what was compared last */
	uint64_t next_write_ns;
	struct wb_kube_backoff backoff;
	char own[OWN_VERSIONS][VERSION_BYTES]; /* versions that our writes gave */
	unsigned own_at;
	uint64_t completed_at_ns; /* last event about a completed transfer */
	unsigned n_completed; /* not told since */
	uint64_t refused; /* hash of the last refusal that was told */
};

struct wb__cluster {
	struct wb_loop *loop;
	struct wb_serve *serve;
	struct wb__cluster_cb cb;
	struct wb_kube *kube;
	struct wb_kube *own; /* for the lease: a queue of writes must not cost the lead */
	struct wb_kube *reviews; /* until identity takes it; NULL = agents show no tokens */
	struct wb__identity *identity; /* while leading */
	struct wb__certs *certs; /* NULL = agents show no tokens */
	struct wb_kube_lease *lease;
	struct wb_kube_watch *watch;
	struct wb_timer *timer;
	struct item *item; /* list */
	char instance[WB_SPEC_NAME_MAX + 1];
	char watch_namespace[WB_SPEC_NAMESPACE_MAX + 1];
	uint64_t term_min;
	uint64_t due_ns; /* when the timer goes off, UINT64_MAX = not running */
	bool is_leading, is_ending;
	void (*released)(void *cookie);
	void *released_cookie;
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

static void count(struct wb__cluster *c, enum wb_serve_metric m, const char *label)
{
	wb_metric_add(wb_serve_own_metrics(c->serve), m, label ? WB_LABELS(label) : NULL, 1);
}

/* ---- events ---- */

static void on_posted(void *cookie, const struct wb_kube_reply *r)
{
	struct wb__cluster *c = cookie;

	count(c, WB_SM_KUBE_WRITES, r->err.code ? "event failed" : "event");
	if (r->err.code)
		WB_LOG_WRN(MOD, "event not written", WB_S("why", r->err.msg));
}

static void post(struct item *i, const char *reason, const char *note)
{
	struct wb__cluster *c = i->c;
	struct wb_kube_event_about e = {.ns = i->ns,
		.name = i->name,
		.uid = i->uid,
		.instance = c->instance,
		.reason = reason,
		.note = note,
		.wall_ns = wb_wall_ns(),
		.unique = wb_kube_random()};
	struct wb_kube_call call = {.method = "POST", .done = on_posted, .cookie = c};
	struct wb_buf b;

	wb_buf_init(&b, 4096);
	wb_buf_printf(&b, "/apis/events.k8s.io/v1/namespaces/");
	wb_kube_put_escaped(&b, i->ns);
	wb_buf_printf(&b, "/events?fieldManager=" WB_KUBE_FIELD_MANAGER);
	call.path = wb_buf_cstr(&b);
	call.body = wb_kube_event_body(&e);
	if (call.body && !b.rc)
		wb_kube_send(c->kube, &call, NULL);
	json_decref(call.body);
	wb_buf_finish(&b);
}

static struct item *find(struct wb__cluster *c, const char *key)
{
	struct item *i = c->item;

	while (i && strcmp(i->key, key) != 0)
		i = i->next;
	return i;
}

/* The first completed transfer, then at most one a minute for all in between. */
static void post_completed(struct item *i, const char *text)
{
	uint64_t now = now_ns();
	char note[WB_KUBE_NOTE_MAX];

	if (i->completed_at_ns && now - i->completed_at_ns < COMPLETED_EVERY_NS) {
		i->n_completed++;
		return;
	}
	if (i->n_completed)
		snprintf(note, sizeof(note), "%.900s; %u more completed since the last event", text,
			i->n_completed);
	else
		snprintf(note, sizeof(note), "%.1000s", text);
	i->n_completed = 0;
	i->completed_at_ns = now;
	post(i, "TransferCompleted", note);
}

/* An agent that is refused comes again and again: told once. */
static void post_refused(struct item *i, const char *text)
{
	uint64_t hash = wb_hash64(text, strlen(text), 0);

	if (i->refused == hash)
		return;
	i->refused = hash;
	post(i, "AuthenticationRejected", text);
}

void wb__cluster_authenticate(
	struct wb__cluster *c, uint32_t peer, const struct wb_serve_claim *claim)
{
	if (c && c->identity)
		wb__identity_ask(c->identity, peer, claim);
	/* Else: closed at the deadline of its HELLO, and it comes again. */
}

void wb__cluster_forget(struct wb__cluster *c, uint32_t peer)
{
	if (c && c->identity)
		wb__identity_forget(c->identity, peer);
}

void wb__cluster_event(struct wb__cluster *c, const struct wb_serve_event *e)
{
	struct item *i = c && c->is_leading ? find(c, e->object) : NULL;

	if (!i)
		return;
	if (!strcmp(e->reason, "TransferCompleted"))
		post_completed(i, e->text ? e->text : "");
	else if (!strcmp(e->reason, "AuthenticationRejected"))
		post_refused(i, e->text ? e->text : "");
	else
		post(i, e->reason, e->text ? e->text : "");
}

/* ---- status ---- */

static void wake(struct wb__cluster *c, uint64_t at_ns)
{
	uint64_t now = now_ns();

	if (at_ns >= c->due_ns)
		return;
	c->due_ns = at_ns;
	wb_timer_start(c->timer, at_ns > now ? at_ns - now : 0, 0);
}

/* What the watch has seen last, when a write was refused for its version. */
static void refresh(struct item *i)
{
	const json_t *o = wb_kube_watch_get(i->c->watch, i->ns, i->name);

	if (!o)
		return;
	snprintf(i->version, sizeof(i->version), "%s", wb_kube_meta(o, "resourceVersion"));
	json_decref(i->written);
	i->written = json_incref(json_object_get(o, "status"));
}

static void on_applied(void *cookie, const struct wb_kube_reply *r)
{
	struct item *i = cookie;
	const char *version = wb_kube_meta(r->body, "resourceVersion");

	i->rq = NULL;
	count(i->c, WB_SM_KUBE_WRITES, r->err.code ? "status failed" : "status");
	if (r->err.code == 0) {
		json_decref(i->written);
		i->written = i->sending;
		i->sending = NULL;
		snprintf(i->version, sizeof(i->version), "%s", version);
		snprintf(i->own[i->own_at++ % OWN_VERSIONS], VERSION_BYTES, "%s", version);
	} else {
		/* 409: somebody wrote in between; the watch brings the version to write on. */
		json_decref(i->sending);
		i->sending = NULL;
		i->looks = 0;
		if (r->status == 409 && i->c->watch)
			refresh(i);
		i->next_write_ns =
			r->status == 409 ? now_ns() + WRITE_EVERY_NS
					 : now_ns() + wb_kube_backoff_next(&i->backoff, now_ns(),
							      wb_kube_random(), r->retry_after_ns);
		WB_LOG_WRN(
			MOD, "status not written", WB_S("object", i->key), WB_S("why", r->err.msg));
	}
	wake(i->c, i->next_write_ns);
}

static void apply(struct item *i, json_t *status)
{
	struct wb_kube_call call = {
		.method = "PATCH", .content_type = WB_KUBE_APPLY, .done = on_applied, .cookie = i};
	struct wb_buf b;

	wb_buf_init(&b, 8192);
	wb_kube_wt_path(
		&b, i->ns, i->name, "/status?force=true&fieldManager=" WB_KUBE_FIELD_MANAGER);
	call.path = wb_buf_cstr(&b);
	call.body = wb_kube_apply_status(i->ns, i->name, i->version, status);
	i->next_write_ns = now_ns() + WRITE_EVERY_NS;
	if (call.body && !b.rc && wb_kube_send(i->c->kube, &call, &i->rq) == 0)
		i->sending = json_incref(status);
	else
		i->looks = 0; /* memory was short: the next change tries again */
	json_decref(call.body);
	wb_buf_finish(&b);
}

/* Returns when to look again, UINT64_MAX = when something changes. */
static uint64_t look(struct item *i)
{
	uint64_t looks = wb_serve_looks(i->c->serve, i->key);
	json_t *status;

	if (!i->is_served || i->rq || looks == i->looks)
		return UINT64_MAX;
	if (now_ns() < i->next_write_ns)
		return i->next_write_ns;
	status = wb_serve_status(i->c->serve, i->key);
	if (!status)
		return UINT64_MAX;
	wb_kube_observed(status, i->generation);
	i->looks = looks;
	if (!json_equal(status, i->written))
		apply(i, status);
	json_decref(status);
	return UINT64_MAX;
}

static void sweep(void *cookie)
{
	struct wb__cluster *c = cookie;

	c->due_ns = UINT64_MAX;
	if (c->is_ending || !c->is_leading)
		return;
	for (struct item *i = c->item; i; i = i->next)
		wake(c, look(i));
}

void wb__cluster_changed(struct wb__cluster *c)
{
	if (c && c->item)
		wake(c, 0);
}

/* ---- objects ---- */

static uint64_t uid_of(const char *uid)
{
	return wb_hash64(uid, strlen(uid), 0) | 1;
}

static void free_item(struct item *i)
{
	wb_kube_cancel(i->rq);
	json_decref(i->written);
	json_decref(i->sending);
	wb_free(i);
}

static struct item *make_item(struct wb__cluster *c, const json_t *o, const char *key)
{
	struct item *i = wb_zalloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->c = c;
	snprintf(i->key, sizeof(i->key), "%s", key);
	snprintf(i->ns, sizeof(i->ns), "%s", wb_kube_meta(o, "namespace"));
	snprintf(i->name, sizeof(i->name), "%s", wb_kube_meta(o, "name"));
	snprintf(i->uid, sizeof(i->uid), "%s", wb_kube_meta(o, "uid"));
	wb__certs_owner(c->certs, i->ns, i->name, i->uid, true);
	i->backoff = (struct wb_kube_backoff){
		.min_ns = WB_NS_PER_S, .max_ns = 30 * WB_NS_PER_S, .healthy_ns = 60 * WB_NS_PER_S};
	i->written = json_incref(json_object_get(o, "status"));
	i->next = c->item;
	c->item = i;
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

static bool is_own(const struct item *i, const char *version)
{
	for (unsigned k = 0; k < OWN_VERSIONS; k++)
		if (!strcmp(i->own[k], version))
			return true;
	return false;
}

/* What somebody else wrote into the status is put right; what we wrote comes back late and does
 * not count. */
static void note_version(struct item *i, const json_t *o)
{
	const char *version = wb_kube_meta(o, "resourceVersion");

	i->generation =
		json_integer_value(json_object_get(json_object_get(o, "metadata"), "generation"));
	if (is_own(i, version) || i->rq)
		return;
	snprintf(i->version, sizeof(i->version), "%s", version);
	json_decref(i->written);
	i->written = json_incref(json_object_get(o, "status"));
	i->looks = 0;
}

static void on_put(void *cookie, json_t *o)
{
	struct wb__cluster *c = cookie;
	struct wb_serve_object_desc d = {.uid = uid_of(wb_kube_meta(o, "uid")),
		.term_min = c->term_min,
		.stored = json_object_get(o, "status"),
		.has_pods = c->identity != NULL};
	char key[sizeof(((struct item *)0)->key)];
	struct wb_spec *spec = NULL;
	struct wb_err err = {0};
	struct item *i;
	int rc;

	snprintf(key, sizeof(key), "%s/%s", wb_kube_meta(o, "namespace"), wb_kube_meta(o, "name"));
	i = find(c, key);
	if (!i)
		i = make_item(c, o, key);
	if (!i)
		return; /* the next change brings it again */
	note_version(i, o);
	rc = read_spec(o, key, &spec, &err);
	d.spec = spec;
	if (rc == 0)
		rc = wb_serve_put(c->serve, &d, &err);
	wb_free(spec);
	if (rc < 0) {
		WB_LOG_ERR(MOD, "object not taken", WB_S("object", key), WB_S("why", err.msg));
		post(i, "SpecRefused", err.msg);
	}
	i->is_served |= rc == 0;
	if (rc == 0 && c->identity)
		wb__identity_tell(c->identity, i->ns, i->name);
	wake(c, 0);
}

static void on_gone(void *cookie, json_t *o)
{
	struct wb__cluster *c = cookie;
	char key[sizeof(((struct item *)0)->key)];
	struct item **at = &c->item, *i;

	snprintf(key, sizeof(key), "%s/%s", wb_kube_meta(o, "namespace"), wb_kube_meta(o, "name"));
	while ((i = *at) && strcmp(i->key, key) != 0)
		at = &i->next;
	if (!i)
		return;
	*at = i->next;
	wb__certs_owner(c->certs, i->ns, i->name, i->uid, false);
	free_item(i);
	wb_serve_remove(c->serve, key);
}

static void on_synced(void *cookie)
{
	struct wb__cluster *c = cookie;

	WB_LOG_INFO(MOD, "objects listed", WB_U("count", wb_kube_watch_count(c->watch)));
}

/* kubectl keeps the whole object once more in there. */
static void trim(void *cookie, json_t *o)
{
	(void)cookie;
	json_object_del(json_object_get(o, "metadata"), "annotations");
}

/* ---- leading ---- */

static void on_leading(void *cookie, uint64_t transitions)
{
	struct wb__cluster *c = cookie;
	struct wb_kube_watch_cb cb = {c, on_put, on_gone, on_synced, trim};
	struct wb_kube_watch_opts o = {0};
	struct wb_buf b;

	WB_LOG_INFO(MOD, "leading", WB_U("transitions", transitions));
	c->is_leading = true;
	c->term_min = transitions;
	wb_serve_redirect(c->serve, "", 0);
	wb_metric_set(wb_serve_own_metrics(c->serve), WB_SM_LEADER, NULL, 1);
	wb_buf_init(&b, 4096);
	wb_kube_wt_path(&b, c->watch_namespace, NULL, "");
	o.path = wb_buf_cstr(&b);
	if (c->reviews && wb__identity_start(c->kube, c->reviews, c->serve, c->watch_namespace,
				  &c->identity) < 0)
		b.rc = -ENOMEM;
	c->reviews = NULL;
	wb__certs_lead(c->certs);
	if (b.rc || wb_kube_watch_start(c->kube, &o, &cb, &c->watch) < 0)
		c->cb.on_lost(c->cb.cookie, "out of memory");
	wb_buf_finish(&b);
}

static void on_lost(void *cookie, const char *why)
{
	struct wb__cluster *c = cookie;

	c->is_leading = false;
	wb_metric_set(wb_serve_own_metrics(c->serve), WB_SM_LEADER, NULL, 0);
	c->cb.on_lost(c->cb.cookie, why);
}

static void on_other(void *cookie, const char *holder, const char *address)
{
	struct wb__cluster *c = cookie;
	const char *colon = strrchr(address, ':');
	char host[256];
	size_t n = colon ? (size_t)(colon - address) : 0;

	(void)holder;
	if (!n || n >= sizeof(host))
		return;
	if (address[0] == '[' && address[n - 1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)n - 2, address + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)n, address);
	wb_serve_redirect(c->serve, host, (uint16_t)strtoul(colon + 1, NULL, 10));
}

/* ---- life ---- */

static int load_config(
	const struct wb__cluster_opts *o, struct wb_kube_config *out, struct wb_err *err)
{
	if (o->kubeconfig)
		return wb_kube_config_load(o->kubeconfig, out, err);
	return wb_kube_config_in_cluster(getenv("KUBERNETES_SERVICE_HOST"),
		getenv("KUBERNETES_SERVICE_PORT"), WB_KUBE_ACCOUNT_DIR, out, err);
}

static int connect_api(
	struct wb__cluster *c, const struct wb__cluster_opts *o, char **ns, struct wb_err *err)
{
	struct wb_kube_opts ko = {0}, reviews = {.per_s = 200, .burst = 32, .in_flight = 32};
	struct wb_kube_opts own = {.per_s = 10, .burst = 10, .in_flight = 4};
	struct wb_kube_config config;
	int rc = load_config(o, &config, err);

	if (rc < 0)
		return rc;
	*ns = wb_strdup(config.namespace_ ? config.namespace_ : "default");
	rc = wb_kube_create(c->loop, &config, &ko, &c->kube, err);
	if (rc == 0)
		rc = load_config(o, &config, err);
	if (rc == 0)
		rc = wb_kube_create(c->loop, &config, &own, &c->own, err);
	if (rc == 0 && o->has_tokens)
		rc = load_config(o, &config, err);
	if (rc == 0 && o->has_tokens)
		rc = wb_kube_create(c->loop, &config, &reviews, &c->reviews, err);
	return rc;
}

static int start_lease(struct wb__cluster *c, const struct wb__cluster_opts *o, const char *ns)
{
	struct wb_kube_lease_opts lo = {.namespace_ = *o->lease_namespace ? o->lease_namespace : ns,
		.name = *o->lease_name ? o->lease_name : "weightbridge-operator",
		.identity = c->instance,
		.address = o->address};
	struct wb_kube_lease_cb cb = {c, on_leading, on_lost, on_other};

	return wb_kube_lease_start(c->own, &lo, &cb, &c->lease);
}

static int start_certs(struct wb__cluster *c, const struct wb__cluster_opts *o, const char *ns)
{
	struct wb__certs_opts co = {.ns = *o->lease_namespace ? o->lease_namespace : ns,
		.secret = *o->tls_secret ? o->tls_secret : NULL,
		.ca_file = o->tls_ca,
		.name = o->tls_name,
		.n_name = o->n_tls_name,
		.watch_namespace = o->watch_namespace};
	struct wb__certs_cb cb = {c->cb.cookie, c->cb.on_pair};

	return o->has_tokens ? wb__certs_start(c->kube, &co, &cb, &c->certs) : 0;
}

int wb__cluster_start(struct wb_loop *loop, struct wb_serve *serve,
	const struct wb__cluster_opts *o, const struct wb__cluster_cb *cb, struct wb__cluster **out,
	struct wb_err *err)
{
	struct wb__cluster *c = wb_zalloc(1, sizeof(*c));
	char *ns = NULL;
	int rc;

	if (!c)
		return wb_err_set(err, -ENOMEM, "out of memory");
	c->loop = loop;
	c->serve = serve;
	c->cb = *cb;
	c->due_ns = UINT64_MAX;
	/* Events take at most 128 characters here. */
	snprintf(c->instance, sizeof(c->instance), "%.100s-%08x", o->name,
		(unsigned)wb_kube_random());
	snprintf(c->watch_namespace, sizeof(c->watch_namespace), "%s", o->watch_namespace);
	rc = connect_api(c, o, &ns, err);
	if (rc == 0 && (!ns || wb_timer_create(loop, sweep, c, &c->timer) < 0 ||
			       start_certs(c, o, ns) < 0 || start_lease(c, o, ns) < 0))
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	wb_free(ns);
	if (rc < 0) {
		wb__cluster_stop(c);
		return rc;
	}
	*out = c;
	return 0;
}

void wb__cluster_stop(struct wb__cluster *c)
{
	struct item *i;

	if (!c)
		return;
	wb__identity_stop(c->identity);
	wb__certs_stop(c->certs);
	wb_kube_destroy(c->reviews);
	wb_kube_watch_stop(c->watch);
	wb_kube_lease_stop(c->lease);
	while ((i = c->item)) {
		c->item = i->next;
		free_item(i);
	}
	wb_timer_destroy(c->timer);
	wb_kube_destroy(c->own);
	wb_kube_destroy(c->kube);
	wb_free(c);
}

static void on_released(void *cookie)
{
	struct wb__cluster *c = cookie;

	c->released(c->released_cookie);
}

void wb__cluster_release(struct wb__cluster *c, void (*done)(void *cookie), void *cookie)
{
	c->is_ending = true;
	c->is_leading = false;
	c->released = done;
	c->released_cookie = cookie;
	wb_kube_watch_stop(c->watch);
	c->watch = NULL;
	wb_kube_lease_release(c->lease, on_released);
}

const char *wb__cluster_why_unready(const struct wb__cluster *c)
{
	struct wb_kube_stats st;

	wb_kube_get_stats(c->own, &st); /* the lease is looked at all the time, by all replicas */
	if (!st.last_ok_ns || now_ns() - st.last_ok_ns > STALE_NS)
		return "the API server does not answer";
	if (!wb__certs_has_pair(c->certs))
		return "there is no certificate yet";
	if (c->is_leading && (!c->watch || !wb_kube_watch_is_synced(c->watch)))
		return "WeightTransfers are not listed yet";
	if (c->identity && !wb__identity_is_synced(c->identity))
		return "pods are not listed yet";
	return NULL;
}
