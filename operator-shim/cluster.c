/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/cluster.h"

#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "operator-shim/certs.h"
#include "operator-shim/events.h"
#include "operator-shim/lead.h"
#include "operator-shim/readers.h"
#include "operator-shim/scopes.h"
#include "operator-shim/serve/metrics.h"
#include "proto/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOD "cluster"
#define STALE_NS (30 * WB_NS_PER_S)

struct wb__cluster {
	struct wb_loop *loop;
	struct wb_serve *serve;
	struct wb__cluster_cb cb;
	struct wb_kube *kube; /* for watches and certificates */
	struct wb_kube *claims; /* for the Leases of namespaces; NULL = all are watched */
	struct wb__lead *lead; /* on its own thread: other work must not cost the lead */
	struct wb__readers *readers;
	struct wb__certs *certs; /* NULL = agents show no tokens */
	uint64_t transitions; /* of the lease that we hold */
	struct wb__events *events;
	struct wb__scopes *scopes; /* NULL = we do not serve */
	char instance[WB_SPEC_NAME_MAX + 1];
	struct wb__cluster_opts o; /* its strings are borrowed */
	char release[WB_SPEC_NAMESPACE_MAX + WB_SPEC_NAME_MAX +
		     2]; /* "namespace/name" of the lease */
	bool is_leading;
	void (*released)(void *cookie);
	void *released_cookie;
};

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

/* ---- calls that serve makes ---- */

void wb__cluster_authenticate(
	struct wb__cluster *c, uint32_t peer, const struct wb_serve_claim *claim)
{
	if (!c)
		return; /* the agent is closed at the deadline of its HELLO, and comes again */
	if (c->scopes)
		wb__scopes_ask(c->scopes, peer, claim);
	else
		wb__scopes_refuse(c->loop, c->serve, peer,
			"this operator does not lead, and does not know yet who does: try again");
}

void wb__cluster_forget(struct wb__cluster *c, uint32_t peer)
{
	if (c)
		wb__scopes_forget(c->scopes, peer);
}

struct question {
	struct wb_serve *serve;
	uint32_t peer;
	uint64_t number;
};

static void on_reader(void *cookie, int rc, const char *sentence)
{
	struct question *q = cookie;

	wb_serve_reader(q->serve, q->peer, q->number, rc, sentence);
	wb_free(q);
}

void wb__cluster_reader(
	struct wb__cluster *c, uint32_t peer, uint64_t number, const char *token, const char *ns)
{
	struct wb__reader who = {.token = token, .path = WBP_READER_PATH, .turn = ns};
	struct question *q = c ? wb_zalloc(1, sizeof(*q)) : NULL;

	if (!q)
		return; /* the agent waits a few seconds, and then says so */
	*q = (struct question){c->serve, peer, number};
	wb__readers_ask(c->readers, &who, on_reader, q);
}

void wb__cluster_event(struct wb__cluster *c, const struct wb_serve_event *e)
{
	if (c)
		wb__scopes_event(c->scopes, e);
}

void wb__cluster_changed(struct wb__cluster *c, const char *object)
{
	if (c)
		wb__scopes_changed(c->scopes, object);
}

static int load_config(
	const struct wb__cluster_opts *o, struct wb_kube_config *out, struct wb_err *err)
{
	if (o->kubeconfig)
		return wb_kube_config_load(o->kubeconfig, out, err);
	return wb_kube_config_in_cluster(getenv("KUBERNETES_SERVICE_HOST"),
		getenv("KUBERNETES_SERVICE_PORT"), WB_KUBE_ACCOUNT_DIR, out, err);
}

static int connect_one(struct wb__cluster *c, const struct wb__cluster_opts *o,
	const struct wb_kube_opts *ko, struct wb_kube **out, struct wb_err *err)
{
	struct wb_kube_config config;
	int rc = load_config(o, &config, err);

	return rc < 0 ? rc : wb_kube_create(c->loop, &config, ko, out, err);
}

/* ---- leading ---- */

/* Requests that must not wait for others have a client, and so a queue, of their own. */
static int connect_scope(void *cookie, bool is_for_status, struct wb_kube **out)
{
	const struct wb_kube_opts status = {0},
				  reviews = {.per_s = 200, .burst = 32, .in_flight = 32};
	struct wb__cluster *c = cookie;
	struct wb_err err = {0};
	int rc = connect_one(c, &c->o, is_for_status ? &status : &reviews, out, &err);

	if (rc < 0)
		WB_LOG_ERR(MOD, "no client for the API server", WB_S("why", err.msg));
	return rc;
}

static void on_scope_lost(void *cookie, const char *why)
{
	struct wb__cluster *c = cookie;

	c->cb.on_lost(c->cb.cookie, why);
}

static int lead(struct wb__cluster *c, uint64_t transitions)
{
	struct wb__scopes_opts so = {.parts = {.loop = c->loop,
					     .kube = c->kube,
					     .serve = c->serve,
					     .events = c->events,
					     .certs = c->certs,
					     .term_min = transitions},
		.claims = c->claims,
		.watched = c->o.watched,
		.n_watched = c->o.n_watched,
		.release = c->release,
		.address = c->o.address,
		.has_tokens = c->o.has_tokens,
		.connect = connect_scope,
		.instance = c->instance,
		.on_lost = on_scope_lost,
		.cookie = c};

	return wb__scopes_start(&so, &c->scopes);
}

static void on_serve(void *cookie)
{
	struct wb__cluster *c = cookie;

	c->is_leading = true;
	wb_serve_idle(c->serve, "");
	wb_serve_redirect(c->serve, "", 0);
	wb_metric_set(wb_serve_own_metrics(c->serve), WB_SM_LEADER, NULL, 1);
	if (lead(c, c->transitions) < 0)
		c->cb.on_lost(c->cb.cookie, "out of memory");
}

/* We do not serve as well: each of the two releases would undo what the other writes. */
static void on_idle(void *cookie, const char *rival)
{
	struct wb__cluster *c = cookie;
	char text[600];

	snprintf(text, sizeof(text),
		"this operator is idle: another release, with Lease %.317s, serves the "
		"WeightTransfers of all namespaces; connect agents to that one, or uninstall one "
		"of "
		"the two, or give each namespaces of its own (watchNamespaces)",
		rival);
	WB_LOG_WRN(MOD, text);
	wb_serve_redirect(c->serve, "", 0);
	wb_serve_idle(c->serve, text);
}

static void on_leading(void *cookie, uint64_t transitions)
{
	struct wb__cluster *c = cookie;

	WB_LOG_INFO(MOD, "leading", WB_U("transitions", transitions));
	c->transitions = transitions;
	wb__certs_lead(c->certs); /* also if we stay idle: agents see our certificate */
}

static void on_lost(void *cookie, const char *why)
{
	struct wb__cluster *c = cookie;

	c->is_leading = false;
	wb__scopes_stop(c->scopes); /* another replica writes statuses now */
	c->scopes = NULL;
	wb_metric_set(wb_serve_own_metrics(c->serve), WB_SM_LEADER, NULL, 0);
	c->cb.on_lost(c->cb.cookie, why);
}

static void on_other(void *cookie, const char *address)
{
	struct wb__cluster *c = cookie;
	const char *colon = strrchr(address, ':');
	char host[256];
	size_t n = colon ? (size_t)(colon - address) : 0;

	if (!n || n >= sizeof(host))
		return;
	if (address[0] == '[' && address[n - 1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)n - 2, address + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)n, address);
	wb_serve_redirect(c->serve, host, (uint16_t)strtoul(colon + 1, NULL, 10));
}

/* ---- life ---- */

/* Requests that must not wait for others have a client, and so a queue, of their own. */
static int connect_api(struct wb__cluster *c, const struct wb__cluster_opts *o, struct wb_err *err)
{
	const struct wb_kube_opts all = {0}, claims = {.per_s = 10, .burst = 32, .in_flight = 4};
	const struct wb_kube_opts readers = {.per_s = 20, .burst = 20, .in_flight = 8};
	const struct wb_kube_opts events = {.per_s = 20, .burst = 40, .in_flight = 4};
	struct wb_kube *written = NULL, *read = NULL;
	int rc = connect_one(c, o, &all, &c->kube, err);

	if (rc == 0 && o->n_watched)
		rc = connect_one(c, o, &claims, &c->claims, err);
	if (rc == 0)
		rc = connect_one(c, o, &readers, &read, err);
	if (rc == 0 && wb__readers_start(read, &c->readers) < 0)
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	if (rc == 0)
		rc = connect_one(c, o, &events, &written, err);
	if (rc == 0 && wb__events_start(c->loop, written, wb_serve_own_metrics(c->serve),
			       c->instance, &c->events) < 0)
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	return rc;
}

static int name_namespace(const struct wb__cluster_opts *o, char **ns, struct wb_err *err)
{
	struct wb_kube_config config;
	int rc = load_config(o, &config, err);

	if (rc < 0)
		return rc;
	*ns = wb_strdup(config.namespace_ ? config.namespace_ : "default");
	wb_kube_config_finish(&config);
	return *ns ? 0 : wb_err_set(err, -ENOMEM, "out of memory");
}

static int start_lead(
	struct wb__cluster *c, const struct wb__cluster_opts *o, const char *ns, struct wb_err *err)
{
	struct wb__lead_opts lo = {
		.lease = {.namespace_ = *o->lease_namespace ? o->lease_namespace : ns,
			.name = *o->lease_name ? o->lease_name : "weightbridge-operator",
			.identity = c->instance,
			.address = o->address},
		.serves_all = !o->n_watched};
	struct wb__lead_cb cb = {c, on_leading, on_serve, on_idle, on_lost, on_other};
	struct wb_kube_config config;
	int rc = load_config(o, &config, err);

	snprintf(c->release, sizeof(c->release), "%s/%s", lo.lease.namespace_, lo.lease.name);
	return rc < 0 ? rc : wb__lead_start(c->loop, &config, &lo, &cb, &c->lead, err);
}

static int start_certs(struct wb__cluster *c, const struct wb__cluster_opts *o, const char *ns)
{
	struct wb__certs_opts co = {.ns = *o->lease_namespace ? o->lease_namespace : ns,
		.secret = *o->tls_secret ? o->tls_secret : NULL,
		.ca_file = o->tls_ca,
		.name = o->tls_name,
		.n_name = o->n_tls_name,
		.watched = o->watched,
		.n_watched = o->n_watched};
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
	/* reportingInstance of an Event may have at most 128 characters. */
	snprintf(c->instance, sizeof(c->instance), "%.100s-%08x", o->name,
		(unsigned)wb_kube_random());
	c->o = *o;
	rc = name_namespace(o, &ns, err);
	if (rc == 0)
		rc = connect_api(c, o, err);
	if (rc == 0 && start_certs(c, o, ns) < 0)
		rc = wb_err_set(err, -ENOMEM, "out of memory");
	if (rc == 0)
		rc = start_lead(c, o, ns, err);
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
	if (!c)
		return;
	wb__scopes_stop(c->scopes);
	wb__events_stop(c->events);
	wb__certs_stop(c->certs);
	wb__readers_stop(c->readers);
	wb__lead_stop(c->lead);
	wb_kube_destroy(c->claims);
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
	c->is_leading = false;
	c->released = done;
	c->released_cookie = cookie;
	wb__scopes_stop(c->scopes);
	c->scopes = NULL;
	wb__lead_release(c->lead, on_released, c);
}

struct wb__readers *wb__cluster_readers(const struct wb__cluster *c)
{
	return c->readers;
}

const char *wb__cluster_why_unready(const struct wb__cluster *c)
{
	uint64_t last_ok_ns =
		wb__lead_last_ok_ns(c->lead); /* each replica reads the Lease all the time */

	if (!last_ok_ns || now_ns() - last_ok_ns > STALE_NS)
		return "the API server does not answer";
	if (!wb__certs_has_pair(c->certs))
		return "there is no certificate yet";
	if (c->is_leading && !c->scopes)
		return "WeightTransfers are not listed yet";
	return wb__scopes_why_unready(c->scopes);
}
