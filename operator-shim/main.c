/* SPDX-License-Identifier: Apache-2.0 */
/* The program weightbridge-operator: sets up the loop, signals, TLS, ports and the cluster; serve/
 * does the work. */
#include "base/base.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/portfile.h"
#include "mem/cgroup.h"
#include "net/listen.h"
#include "net/loop.h"
#include "operator-shim/cluster.h"
#include "operator-shim/kube/http.h"
#include "operator-shim/options.h"
#include "operator-shim/pages.h"
#include "operator-shim/serve/budget.h"
#include "proto/messages.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOD "operator"
#define PROBES_SOURCE_MAX 4
#define PROBES_SLOW_NS WB_NS_PER_MS
#define STUCK_NS (5 * WB_NS_PER_S)
#define TLS_RELOAD_NS (60 * WB_NS_PER_S)

struct app {
	struct wb__operator_options o;
	struct wb_loop *loop;
	struct wb_timer *timer, *tls_timer;
	struct wb_signal *sigterm, *sigint, *sighup;
	struct wb_tls *tls;
	struct wb_listener *listener;
	struct wb_http *http, *probes;
	struct wb_serve *serve;
	struct wb__cluster *cluster; /* NULL = files */
	struct wb__pages pages;
	struct wb_fault *fault;
	bool is_stopping, is_lost;
};

/* ---- calls that serve makes ---- */

static uint64_t wall_ns(void *ctx)
{
	(void)ctx;
	return wb_wall_ns();
}

static int fill_random(void *ctx, void *out, size_t bytes)
{
	(void)ctx;
	return wb_random_bytes(out, bytes);
}

static void arm(void *ctx, uint64_t at_ns)
{
	struct app *a = ctx;
	uint64_t now = wb_now_ns(&wb_clock_real);

	if (!a->timer)
		return; /* stopping */
	if (at_ns == UINT64_MAX)
		wb_timer_stop(a->timer);
	else
		wb_timer_start(a->timer, at_ns > now ? at_ns - now : 0, 0);
}

static int work(void *ctx, void (*fn)(void *), void (*done)(void *), void *cookie)
{
	struct app *a = ctx;

	return wb_loop_work(a->loop, fn, done, cookie);
}

static void on_serve_event(void *ctx, const struct wb_serve_event *e)
{
	struct app *a = ctx;

	wb__cluster_event(a->cluster, e);
}

static void on_serve_claim(void *ctx, uint32_t peer, const struct wb_serve_claim *claim)
{
	struct app *a = ctx;

	wb__cluster_authenticate(a->cluster, peer, claim);
}

static void on_serve_unclaim(void *ctx, uint32_t peer)
{
	struct app *a = ctx;

	wb__cluster_forget(a->cluster, peer);
}

static void on_serve_reader(
	void *ctx, uint32_t peer, uint64_t number, const char *token, const char *ns)
{
	struct app *a = ctx;

	wb__cluster_reader(a->cluster, peer, number, token, ns);
}

static void on_serve_changed(void *ctx, const char *object)
{
	struct app *a = ctx;

	wb__cluster_changed(a->cluster, object);
}

/* ---- events ---- */

static void on_timer(void *cookie)
{
	struct app *a = cookie;

	if (!a->is_stopping)
		wb_serve_tick(a->serve);
}

static void on_chan(void *cookie, struct wb_chan *ch)
{
	struct app *a = cookie;

	wb_serve_accept(a->serve, ch);
}

static void on_refused(void *cookie, const char *peer, const struct wb_err *why)
{
	struct app *a = cookie;

	wb_serve_refused(a->serve, peer, why);
}

static void close_inputs(struct app *a)
{
	wb_listener_close(a->listener);
	wb_http_stop(a->http);
	wb_http_stop(a->probes);
	wb_timer_destroy(a->timer);
	wb_timer_destroy(a->tls_timer);
	wb_signal_destroy(a->sighup);
	a->listener = NULL;
	a->http = a->probes = NULL;
	a->timer = a->tls_timer = NULL;
	a->sighup = NULL;
}

static void end_cluster(void *cookie)
{
	struct app *a = cookie;

	wb__cluster_stop(a->cluster);
	a->cluster = NULL;
}

/* The cluster must not be destroyed from inside a callback of its API client. */
static void on_released(void *cookie)
{
	struct app *a = cookie;

	if (wb_loop_defer(a->loop, end_cluster, a) < 0)
		_exit(EXIT_FAILURE);
}

/* Agents go on without us; the loop ends when the last channel has closed. */
static void stop(struct app *a, const char *why)
{
	a->is_stopping = true;
	a->pages.is_ready = false;
	a->pages.cluster = NULL;
	a->pages.readers = NULL;
	WB_LOG_INFO(MOD, "stopping");
	wb_serve_drain(a->serve, why);
	close_inputs(a);
}

static void on_stop(void *cookie)
{
	struct app *a = cookie;

	if (a->is_stopping)
		_exit(EXIT_FAILURE); /* asked twice */
	stop(a, "the operator stops; transfers go on without it");
	if (a->cluster)
		wb__cluster_release(a->cluster, on_released, a);
}

/* Another replica may lead already: say nothing more, and let agents find it. */
static void on_lost(void *cookie, const char *why)
{
	struct app *a = cookie;

	WB_LOG_ERR(MOD, "this replica leads no more", WB_S("why", why));
	a->is_lost = true;
	if (a->is_stopping)
		return;
	stop(a, "another replica leads");
	on_released(a);
}

/* ---- start ---- */

struct specs {
	struct wb_spec *list; /* owned */
	size_t n;
};

static bool has_name(const struct specs *all, const struct wb_spec *s)
{
	for (size_t i = 0; i < all->n; i++)
		if (!strcmp(all->list[i].name, s->name) &&
			!strcmp(all->list[i].namespace_, s->namespace_))
			return true;
	return false;
}

static int add_specs(
	struct specs *all, const char *file, const struct wb_spec *s, size_t n, struct wb_err *err)
{
	struct wb_spec *list = wb_realloc_array(all->list, all->n + n, sizeof(*list));

	if (!list)
		return wb_err_set(err, -ENOMEM, "out of memory");
	all->list = list;
	for (size_t i = 0; i < n; i++) {
		if (has_name(all, &s[i]))
			return wb_err_set(err, -EINVAL, "%s: %s/%s is in an earlier file already",
				file, s[i].namespace_, s[i].name);
		all->list[all->n++] = s[i];
	}
	return 0;
}

static int read_specs(const struct wb__operator_options *o, struct specs *out, struct wb_err *err)
{
	struct specs all = {0};
	int rc = 0;

	for (size_t i = 0; i < o->n_file && rc == 0; i++) {
		struct wb_spec *s = NULL;
		size_t n = 0;

		rc = wb_spec_load_file(o->file[i], &s, &n, err);
		if (rc == 0)
			rc = add_specs(&all, o->file[i], s, n, err);
		wb_free(s);
	}
	if (rc < 0)
		wb_free(all.list);
	else
		*out = all;
	return rc;
}

static void on_reload(void *cookie)
{
	struct app *a = cookie;
	struct wb_err err = {0};
	struct specs all = {0};

	if (!a->o.n_file)
		return; /* the cluster tells what changes */
	if (read_specs(&a->o, &all, &err) < 0 ||
		wb_serve_update(a->serve, all.list, all.n, &err) < 0)
		WB_LOG_ERR(MOD, "files not taken, the old objects stay", WB_S("why", err.msg));
	else
		WB_LOG_INFO(MOD, "files read again");
	wb_free(all.list);
}

/* What this process may use: the limit of its control group, or else what the machine has. */
static uint64_t memory_of_process(void)
{
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct wb_cgroup_memory m;

	if (wb_cgroup_memory(NULL, NULL, &m, NULL) < 0)
		return machine;
	return WB_MIN(m.limit_bytes, machine);
}

static int start_serve(struct app *a, struct wb_err *err)
{
	struct wb_budget_limits limits;
	struct wb_serve_env env = {.ctx = a,
		.clock = &wb_clock_real,
		.wall_ns = wall_ns,
		.random = fill_random,
		.arm = arm,
		.work = work,
		.authenticate = wb__operator_has_tokens(&a->o) ? on_serve_claim : NULL,
		.unclaim = on_serve_unclaim,
		.reader = a->o.n_file ? NULL : on_serve_reader,
		.event = on_serve_event,
		.changed = on_serve_changed,
		.fault = a->fault};
	struct wb_serve_opts so = {.name = a->o.name,
		.settle_ns = a->o.settle_ns,
		.n_series = a->o.n_series,
		.limits = &limits};
	struct specs all = {0};
	int rc;

	wb__operator_limits(&a->o, memory_of_process(), &limits);
	rc = read_specs(&a->o, &all, err);
	if (rc < 0)
		return rc;
	so.spec = all.list;
	so.n_spec = all.n;
	rc = wb_serve_create(&so, &env, &a->serve, err);
	wb_free(all.list);
	return rc;
}

static void on_pair(void *cookie, const char *cert, const char *key)
{
	struct app *a = cookie;
	struct wb_err err = {0};

	if (wb_tls_set_pem(a->tls, cert, key, &err) < 0)
		WB_LOG_ERR(MOD, "certificate not taken", WB_S("why", err.msg));
	else
		WB_LOG_INFO(MOD, "certificate in use");
	wb_ticket_key_set(&a->pages.ticket, key, strlen(key));
}

static int start_cluster(struct app *a, struct wb_err *err)
{
	struct wb__cluster_cb cb = {a, on_lost, on_pair};
	char ns[WB_SPEC_NAMESPACE_MAX + 1] = "";
	const char *slash = strchr(a->o.lease, '/');
	struct wb__cluster_opts o = {.kubeconfig = a->o.is_in_cluster ? NULL : a->o.kubeconfig,
		.watched = a->o.watch_namespace,
		.n_watched = a->o.n_watch_namespace,
		.lease_namespace = ns,
		.lease_name = slash ? slash + 1 : "",
		.name = a->o.name,
		.address = a->o.advertise,
		.tls_secret = a->o.tls_secret,
		.tls_ca = a->o.tls_ca,
		.tls_name = a->o.tls_name,
		.n_tls_name = a->o.n_tls_name,
		.has_tokens = wb__operator_has_tokens(&a->o)};

	if (a->o.n_file)
		return 0;
	if (slash)
		snprintf(ns, sizeof(ns), "%.*s", (int)(slash - a->o.lease), a->o.lease);
	return wb__cluster_start(a->loop, a->serve, &o, &cb, &a->cluster, err);
}

static void read_ticket_key(struct app *a)
{
	char *text = NULL;

	if (wb_kube_read_pem(a->o.tls_key, &text) == 0)
		wb_ticket_key_set(&a->pages.ticket, text, strlen(text));
	wb_kube_scrub(text);
}

/* The files of a certificate may be renewed in place, so they are read again each minute. */
static void on_tls_timer(void *cookie)
{
	struct app *a = cookie;
	struct wb_err err = {0};

	if (wb_tls_reload(a->tls, &err) < 0)
		WB_LOG_ERR(MOD, "certificate not read, the old one stays", WB_S("why", err.msg));
	else
		read_ticket_key(a);
}

static int start_tls(struct app *a, struct wb_err *err)
{
	struct wb_tls_opts to = {.mode = WB_TLS_PSK};
	struct wb_psk psk;
	int rc;

	if (a->o.tls_cert[0]) {
		to = (struct wb_tls_opts){
			.mode = WB_TLS_CERT, .cert_file = a->o.tls_cert, .key_file = a->o.tls_key};
		rc = wb_tls_server_create(&to, &a->tls, err);
		if (rc == 0)
			read_ticket_key(a);
		if (rc == 0)
			rc = wb_timer_create(a->loop, on_tls_timer, a, &a->tls_timer);
		if (rc == 0)
			wb_timer_start(a->tls_timer, TLS_RELOAD_NS, TLS_RELOAD_NS);
		return rc;
	}
	if (a->o.tls_secret[0]) {
		to.mode = WB_TLS_CERT; /* no agent gets in before there is a certificate */
		return wb_tls_server_create(&to, &a->tls, err);
	}
	rc = wb_psk_read(a->o.psk_file, WBP_OPERATOR_PSK_ID, &psk, err);
	if (rc < 0)
		return rc;
	to.psk = &psk;
	wb_ticket_key_set(&a->pages.ticket, psk.key, psk.bytes);
	rc = wb_tls_server_create(&to, &a->tls, err);
	wb_psk_clear(&psk);
	return rc;
}

/* Agents, and peers that have not proved yet who they are.  The latter count twice: a peer for
 * which there is no room also needs a channel, on which it is told so. */
static uint32_t conns_max(const struct app *a)
{
	struct wb_budget_limits l;
	uint64_t n;

	wb__operator_limits(&a->o, memory_of_process(), &l);
	n = l.v[WB_BUDGET_AGENTS][WB_BUDGET_ALL] + 2 * l.v[WB_BUDGET_CONNECTIONS][WB_BUDGET_ALL];
	return (uint32_t)WB_MIN(n, UINT32_MAX);
}

static int start_listener(struct app *a, struct wb_err *err)
{
	struct wb_listen_opts lo = {.host = a->o.listen.host,
		.port = a->o.listen.port,
		.tls = a->tls,
		.limits = {.framer = wb_frame_length, .stuck_ns = STUCK_NS},
		.conns_max = conns_max(a),
		.proves_later = wb__operator_has_tokens(&a->o)};
	struct wb_listen_cb cb = {a, on_chan, NULL, on_refused};

	return wb_listen(a->loop, &lo, &cb, &a->listener, err);
}

/* This port is for the kubelet alone: its connections are short, and the chart's NetworkPolicy lets
 * nobody else connect.  Where that policy is not enforced, pods of a hundred addresses may connect.
 * But a connection that has sent no request after PROBES_SLOW_NS makes room for others, and the
 * kubelet, which is on this node, asks sooner than that. */
static int start_probes(struct app *a, struct wb_err *err)
{
	struct wb_http_opts o = {.host = a->o.probes.host,
		.port = a->o.probes.port,
		.source_max = PROBES_SOURCE_MAX,
		.slow_ns = PROBES_SLOW_NS,
		.request_ns = WB_NS_PER_S,
		.reply_ns = WB_NS_PER_S,
		.fn = wb__pages_probe,
		.cookie = &a->pages};

	return a->o.probes.is_given ? wb_http_start(a->loop, &o, &a->probes, err) : 0;
}

static int start_http(struct app *a, struct wb_err *err)
{
	struct wb_http_opts o = {.host = a->o.http.host,
		.port = a->o.http.port,
		.fn = wb__pages_answer,
		.cookie = &a->pages};
	int rc = 0;

	a->pages.serve = a->serve;
	a->pages.loop = a->loop;
	a->pages.is_ready = true;
	a->pages.cluster = a->cluster;
	a->pages.readers = a->cluster ? wb__cluster_readers(a->cluster) : NULL;
	a->pages.asks_for_metrics = a->o.asks_for_metrics;
	if (a->o.http.is_given)
		rc = wb_http_start(a->loop, &o, &a->http, err);
	a->pages.port = a->http ? wb_http_port(a->http) : 0;
	return rc ? rc : start_probes(a, err);
}

static int start_signals(struct app *a, struct wb_err *err)
{
	int rc = wb_signal_create(a->loop, SIGTERM, on_stop, a, &a->sigterm);

	if (rc == 0)
		rc = wb_signal_create(a->loop, SIGINT, on_stop, a, &a->sigint);
	if (rc == 0)
		rc = wb_signal_create(a->loop, SIGHUP, on_reload, a, &a->sighup);
	return rc < 0 ? wb_err_set(err, rc, "signals: %s", wb_strerror(rc)) : 0;
}

static int start(struct app *a, struct wb_err *err)
{
	const unsigned has = 1u << WB_FAULT_PLAN | 1u << WB_FAULT_READY | 1u << WB_FAULT_ACTIVATE;
	int rc = wb_fault_parse(getenv("WB_FAULT"), &a->fault, err);

	if (rc == 0)
		rc = wb_fault_check(a->fault, "the operator", has, 0, err);
	if (rc == 0)
		rc = wb_loop_create(&a->loop, err);
	if (rc < 0)
		return rc;
	rc = wb_timer_create(a->loop, on_timer, a, &a->timer);
	if (rc < 0)
		return wb_err_set(err, rc, "timer: %s", wb_strerror(rc));
	/* This comes before our signal handlers, so that a signal ends the program while it waits
	 * for a file that is a pipe to which nobody writes. */
	rc = start_serve(a, err);
	if (rc == 0)
		rc = start_signals(a, err);
	if (rc == 0)
		rc = start_tls(a, err);
	if (rc == 0)
		rc = start_listener(a, err);
	if (rc == 0)
		rc = start_cluster(a, err);
	if (rc == 0)
		rc = start_http(a, err);
	if (rc < 0)
		return rc;
	return wb_port_file_write(a->o.port_file,
		&(struct wb_ports){wb_listener_port(a->listener),
			a->http ? wb_http_port(a->http) : 0,
			a->probes ? wb_http_port(a->probes) : 0},
		err);
}

static void finish(struct app *a)
{
	close_inputs(a);
	wb_signal_destroy(a->sigterm);
	wb_signal_destroy(a->sigint);
	wb__cluster_stop(a->cluster);
	a->cluster = NULL;
	wb_serve_destroy(a->serve);
	wb_tls_put(a->tls);
	wb_loop_destroy(a->loop);
	wb_fault_destroy(a->fault);
}

int main(int argc, char **argv)
{
	struct wb_err err = {0};
	struct app a = {0};
	int rc, end = WB_CLI_EXIT_USAGE;

	wb_kube_wipe_json();
	(void)wb_open_files_raise(); /* each agent takes a connection */
	rc = wb__operator_parse(argc, argv, &a.o, &err);
	if (rc == WB_CLI_DONE)
		return EXIT_SUCCESS;
	if (rc == 0) {
		end = EXIT_FAILURE;
		rc = start(&a, &err);
	}
	if (rc < 0) {
		/* For a refused file there are several lines, for people and not for the log. */
		fprintf(stderr, "weightbridge-operator: %s\n", err.msg);
		finish(&a);
		return end;
	}
	if (a.fault)
		WB_LOG_WRN(MOD, "faults on demand", WB_S("WB_FAULT", getenv("WB_FAULT")));
	WB_LOG_INFO(MOD, "listening", WB_U("port", wb_listener_port(a.listener)),
		WB_U("http", a.http ? wb_http_port(a.http) : 0));
	wb_loop_run(a.loop);
	WB_LOG_INFO(MOD, "stopped");
	finish(&a);
	return a.is_lost ? EXIT_FAILURE : EXIT_SUCCESS;
}
