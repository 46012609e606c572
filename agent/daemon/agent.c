/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/portfile.h"
#include "daemon/addr.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/gate.h"
#include "daemon/measure.h"
#include "daemon/metrics.h"
#include "daemon/oplink.h"
#include "daemon/peers.h"
#include "daemon/trace.h"
#include "net/listen.h"
#include "net/loop.h"
#include "proto/messages.h"
#include "weightbridge/version.h"
#include "xport/xport.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOD "agent"
#define TRACE_ENTRIES 8192
#define DRAIN_LOOK_NS (50 * WB_NS_PER_MS)
#define STOP_NS (3 * WB_NS_PER_S) /* for connections to end; then the process just exits */

static uint64_t now_ns(void)
{
	return wb_now_ns(&wb_clock_real);
}

void wb__agent_quit(struct wb__agent *a, int exit_code)
{
	if (a->is_stopping)
		return;
	a->is_stopping = true;
	a->exit_code = exit_code;
	wb_loop_stop(a->loop);
}

/* ---- SIGTERM --------------------------------------------------------------------------------- */

static void drain_look(void *cookie)
{
	struct wb__agent *a = cookie;

	if (!wb_transfer_is_busy(a->core)) {
		wb__agent_quit(a, 0);
	} else if (now_ns() >= a->drain_until_ns) {
		WB_LOG_ERR(MOD, "stopping in the middle of a transfer: the grace period is over");
		wb__agent_quit(a, 1);
	}
}

static void on_signal(void *cookie)
{
	struct wb__agent *a = cookie;

	if (a->drain_until_ns) { /* the second signal */
		unlink(a->o.socket);
		_exit(1);
	}
	a->drain_until_ns = now_ns() + a->o.grace_ns;
	WB_LOG_INFO(MOD, "stopping",
		WB_S("transfer", wb_transfer_is_busy(a->core) ? "running" : "none"));
	for (uint32_t i = 0; i < a->n_oplink; i++) {
		wb__oplink_draining(a->oplink[i]);
		wb__apps_status(a->apps, i, "agent %s is stopping", a->o.name);
	}
	wb__measure_stop(a->measure);
	wb_timer_start(a->drain_timer, 1, DRAIN_LOOK_NS);
}

/* ---- listener -------------------------------------------------------------------------------- */

static void on_chan(void *cookie, struct wb_chan *ch)
{
	struct wb__agent *a = cookie;

	wb__peers_accept(a->peers, ch);
}

static void on_raw(void *cookie, int fd_take, const char *peer)
{
	struct wb__agent *a = cookie;
	struct wb_err err = {0};

	if (wb_xport_adopt(a->xport, fd_take, &err) < 0 && wb__agent_may_log(a))
		WB_LOG_WRN(MOD, "bulk connection not taken", WB_S("address", peer),
			WB_S("reason", err.msg));
}

static void on_refused(void *cookie, const char *peer, const struct wb_err *why)
{
	if (wb__agent_may_log(cookie))
		WB_LOG_WRN(
			MOD, "connection refused", WB_S("address", peer), WB_S("reason", why->msg));
}

/* Listen on @host too, on the port that the first listener got. */
static int add_listener(struct wb__agent *a, const char *host, struct wb_err *err)
{
	struct wb_listen_cb cb = {.cookie = a,
		.on_chan = on_chan,
		.on_raw = wb_xport_caps(a->xport) & WB_XPORT_CAP_LOCAL ? NULL : on_raw,
		.on_refused = on_refused};
	struct wb_listen_opts o = {.host = host,
		.port = a->n_listener ? a->port : a->o.listen.port,
		.limits.framer = wb_frame_length,
		.conns_max = WB_XPORT_CONNS_MAX,
		.tls = a->tls};
	int rc = wb_listen(a->loop, &o, &cb, &a->listener[a->n_listener], err);

	if (rc == 0)
		a->port = wb_listener_port(a->listener[a->n_listener++]);
	return rc;
}

/* Does one of the listeners hear what comes to the rail's address? */
static bool is_heard(const struct wb__agent *a, const char *listen, uint32_t rail)
{
	const char *addr = a->rails.rail[rail].addr;

	if (!a->o.listen.host[0] ||
		(wb__addr_is_any(listen) && !strchr(listen, ':') == !strchr(addr, ':')))
		return true;
	for (uint32_t i = 0; i < rail; i++)
		if (!strcmp(a->rails.rail[i].addr, addr))
			return true;
	return !strcmp(listen, addr);
}

static int start_listeners(struct wb__agent *a, const char *listen, struct wb_err *err)
{
	struct wb_tls_opts t = {
		.mode = WB_TLS_PSK, .psk_find = wb__peers_psk_find, .psk_cookie = a->peers};
	int rc = wb_tls_server_create(&t, &a->tls, err);

	if (rc == 0)
		rc = add_listener(a, a->o.listen.host[0] ? listen : NULL, err);
	for (uint32_t i = 0; i < a->rails.n && rc == 0; i++)
		if (!is_heard(a, listen, i))
			rc = add_listener(a, a->rails.rail[i].addr, err);
	return rc;
}

/* ---- transport ------------------------------------------------------------------------------- */

static int open_xport(struct wb__agent *a, struct wb_err *err)
{
	struct wb_xport_rail rail[WB_XPORT_RAILS_MAX];
	struct wb_xport_opts o = {.name = a->o.name,
		.rail = rail,
		.n_rail = a->rails.n,
		.is_apart = a->rails.is_named,
		.traffic_class = (uint8_t)a->o.rdma_traffic_class,
		.service_level = (uint8_t)a->o.rdma_service_level,
		.no_windows = a->o.no_rdma_windows,
		.folder = a->o.shm_folder[0] ? a->o.shm_folder : NULL,
		.fault = a->fault};
	char addr[WB_XPORT_RAILS_MAX][WB__ADDR_MAX + 16];
	char name[WB_XPORT_RAILS_MAX][WB__DEVICE_MAX];
	const char *device = a->o.rail_device;

	for (uint32_t i = 0; i < a->rails.n; i++) {
		const struct wb__rail *r = &a->rails.rail[i];
		size_t n = strcspn(device, ",");

		if (n >= WB__DEVICE_MAX)
			return wb_err_set(
				err, -EINVAL, "--rail-device: '%.64s' is no device", device);
		snprintf(name[i], sizeof(name[i]), "%.*s", (int)n, device);
		device += n + (device[n] == ',');
		wb__addr_join(r->addr, 0, addr[i], sizeof(addr[i]));
		rail[i] = (struct wb_xport_rail){.addr = addr[i],
			.device = n ? name[i] : NULL,
			.rate_bytes_per_s = r->bytes_per_s,
			.cpus = CPU_COUNT(&r->cpus) ? &r->cpus : NULL};
	}
	return wb_xport_open_set(a->o.transport, &o, &a->xport, err);
}

/* Bulk connections from other hosts come to the control port, at the address of each rail. */
static int say_bulk(struct wb__agent *a, struct wb_err *err)
{
	char addr[WB_XPORT_RAILS_MAX][WB__ADDR_MAX + 16];
	const char *at[WB_XPORT_RAILS_MAX];
	int rc;

	for (uint32_t i = 0; i < a->rails.n; i++) {
		wb__addr_join(a->rails.is_named ? a->rails.rail[i].addr : a->o.advertise, a->port,
			addr[i], sizeof(addr[i]));
		at[i] = addr[i];
	}
	rc = wb_xport_serve(a->xport, at, a->rails.n, a->bulk, sizeof(a->bulk), err);
	while (rc == 0 && a->n_ways < WB_XPORT_SET_MAX &&
		wb_xport_way(a->bulk, a->n_ways, a->way[a->n_ways], sizeof(a->way[0]))) {
		a->ways[a->n_ways] = a->way[a->n_ways];
		a->n_ways++;
	}
	if (rc == 0 && (!a->n_ways || strlen(a->ways[a->n_ways - 1]) > WBP_TEXT_MAX))
		return wb_err_set(err, -ENOSPC,
			"the addresses of the rails take more than %d characters: use fewer rails, "
			"or a shorter --shm-folder",
			WBP_TEXT_MAX);
	return rc;
}

/* Find the memory that neighbours share.  If it is not known, weights go to neighbours as to
 * anybody else. */
static void find_memory(struct wb__agent *a)
{
	int rc = -ENOENT;

	for (uint32_t i = 0; i < a->n_ways; i++)
		if (!strcmp(wb_xport_of_endpoint(a->ways[i]), "shm"))
			rc = wb_xport_memory(a->o.shm_folder[0] ? a->o.shm_folder : NULL, a->memory,
				sizeof(a->memory));
	if (rc == 0)
		a->memory_bytes_per_s = wb_xport_memory_rate();
	if (rc < 0 && rc != -ENOENT)
		WB_LOG_WRN(MOD, "neighbours are not known", WB_S("why", wb_strerror(rc)));
}

/* What others dial: as told, else the address listened on, else the one that faces the operator. */
static int find_advertise(struct wb__agent *a, const char *listen, struct wb_err *err)
{
	struct wb__addrs *out = &a->addrs;
	int rc = 0;

	if (a->o.advertise[0]) {
		rc = wb__addrs_parse(a->o.advertise, out, err);
	} else {
		out->n = 1;
		if (wb__addr_is_any(listen))
			rc = wb__addr_towards(
				a->o.operator.host, a->o.operator.port, out->a[0], err);
		else
			snprintf(out->a[0], WB__ADDR_MAX, "%s", listen);
	}
	for (uint32_t i = 0; i < out->n; i++)
		a->hosts[i] = out->a[i];
	a->o.advertise = out->a[0];
	return rc;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static int start_signals(struct wb__agent *a, struct wb_err *err)
{
	int rc = wb_signal_create(a->loop, SIGTERM, on_signal, a, &a->sigterm);

	if (rc == 0)
		rc = wb_signal_create(a->loop, SIGINT, on_signal, a, &a->sigint);
	if (rc == 0)
		rc = wb_timer_create(a->loop, drain_look, a, &a->drain_timer);
	return rc < 0 ? wb_err_set(err, rc, "signals: %s", wb_strerror(rc)) : 0;
}

static int start_oplinks(struct wb__agent *a, struct wb_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < a->o.n_served && rc == 0; i++) {
		a->n_oplink++;
		rc = wb__oplink_start(a, i, &a->oplink[i], err);
	}
	return rc;
}

static int start(struct wb__agent *a, struct wb_err *err)
{
	char listen[WB__ADDR_MAX];
	int rc = wb_fault_parse(getenv("WB_FAULT"), &a->fault, err);

	if (rc == 0)
		rc = wb_fault_check(a->fault, "this agent", WB_FAULT_ALL, a->o.n_rail, err);
	if (rc == 0)
		rc = wb_random_bytes(&a->instance, sizeof(a->instance));
	a->open_files = wb_open_files_raise();
	a->instance |= 1; /* never 0 */
	if (rc == 0)
		rc = wb__addr_numeric(a->o.listen.host, listen, err);
	if (rc == 0)
		rc = find_advertise(a, listen, err);
	if (rc == 0)
		rc = wb__rails_find(&a->o, listen, a->hosts[0], &a->rails, err);
	if (rc == 0)
		rc = wb_loop_create(&a->loop, err);
	if (rc < 0)
		return rc;
	a->trace = wb__trace_create(a->o.name, TRACE_ENTRIES);
	if (!a->trace)
		return wb_err_set(err, -ENOMEM, "no memory for the trace");
	rc = open_xport(a, err);
	if (rc == 0)
		rc = wb__env_start(a, &a->env, err);
	if (rc == 0)
		rc = wb__apps_start(a, &a->apps, err);
	if (rc == 0)
		rc = wb__peers_start(a, &a->peers, err);
	if (rc == 0)
		rc = start_listeners(a, listen, err);
	if (rc == 0)
		rc = say_bulk(a, err);
	find_memory(a);
	if (rc == 0 && a->o.asks_for_metrics && wb__gate_create(a, &a->gate) < 0)
		rc = wb_err_set(err, -ENOMEM, "no memory for questions of who may read metrics");
	if (rc == 0 && wb__measure_create(a, &a->measure) < 0)
		rc = wb_err_set(err, -ENOMEM, "no memory for measurements");
	if (rc == 0)
		rc = wb__http_start(a, &a->http, err);
	if (rc == 0)
		rc = start_signals(a, err);
	if (rc == 0)
		rc = wb_port_file_write(a->o.port_file,
			&(struct wb_ports){a->port, wb__http_port(a->http), 0}, err);
	if (rc == 0)
		rc = start_oplinks(a, err);
	return rc;
}

static void wake_up(void *cookie)
{
	(void)cookie;
}

static bool is_quiet(const struct wb__agent *a)
{
	for (uint32_t i = 0; i < a->n_oplink; i++)
		if (a->oplink[i] && !wb__oplink_is_closed(a->oplink[i]))
			return false;
	return (!a->apps || wb__apps_is_empty(a->apps)) &&
	       (!a->peers || wb__peers_is_empty(a->peers));
}

/* Ask everything to end, and wait for it: ends come from the loop. */
static bool end_connections(struct wb__agent *a)
{
	uint64_t until = now_ns() + STOP_NS;
	struct wb_timer *tick = NULL;

	while (a->n_listener)
		wb_listener_close(a->listener[--a->n_listener]);
	if (a->apps)
		wb__apps_close(a->apps);
	if (a->peers)
		wb__peers_close(a->peers);
	for (uint32_t i = 0; i < a->n_oplink; i++)
		if (a->oplink[i])
			wb__oplink_close(a->oplink[i]);
	if (wb_timer_create(a->loop, wake_up, a, &tick) < 0)
		return false;
	wb_timer_start(tick, 1, 10 * WB_NS_PER_MS); /* so that a round always ends */
	while (!is_quiet(a) && now_ns() < until) {
		wb_loop_run_once(a->loop, true);
		if (a->core)
			wb_transfer_pump(a->core);
		if (a->apps)
			wb__apps_reap(a->apps);
	}
	wb_timer_destroy(tick);
	return is_quiet(a);
}

static void stop(struct wb__agent *a)
{
	if (!a->loop)
		goto out;
	a->is_stopping = true;
	wb__http_stop(a->http);
	a->http = NULL; /* the core still reports things until it is gone */
	wb__gate_destroy(a->gate);
	a->gate = NULL;
	wb__measure_destroy(a->measure);
	a->measure = NULL;
	if (!end_connections(a)) {
		/* Something does not end; the kernel takes everything back. */
		WB_LOG_WRN(MOD, "not all connections ended in time");
		_exit(a->exit_code ? a->exit_code : 1);
	}
	for (uint32_t i = 0; i < a->n_oplink; i++)
		wb__oplink_destroy(a->oplink[i]);
	wb__env_stop(a->env); /* core and transport, before the maps they use */
	wb_xport_close(a->xport);
	wb__apps_destroy(a->apps);
	wb__peers_destroy(a->peers);
	wb_tls_put(a->tls);
	if (a->drain_timer)
		wb_timer_destroy(a->drain_timer);
	if (a->sigterm)
		wb_signal_destroy(a->sigterm);
	if (a->sigint)
		wb_signal_destroy(a->sigint);
	wb_loop_destroy(a->loop);
	wb__trace_destroy(a->trace);
out:
	wb_fault_destroy(a->fault);
}

int wb__agent_run(const struct wb__options *o)
{
	struct wb__agent a = {.o = *o};
	char advertise[WB__ADDRS_MAX * WB__ADDR_MAX], state[128];
	struct wb_err err = {0};

	if (start(&a, &err) < 0) {
		fprintf(stderr, "weightbridge-agent: %s\n", err.msg[0] ? err.msg : "cannot start");
		a.exit_code = 1;
		stop(&a);
		return 1;
	}
	snprintf(state, sizeof(state), "%s.decisions-*", a.o.socket);
	WB_LOG_INFO(MOD, "started", WB_S("version", WB_VERSION), WB_S("socket", a.o.socket),
		WB_S("state", state),
		WB_S("advertise", wb__addrs_text(a.hosts, a.addrs.n, advertise, sizeof(advertise))),
		WB_U("port", a.port), WB_S("transport", wb_xport_name(a.xport)),
		WB_U("rails", a.rails.n), WB_U("open_files", a.open_files));
	for (uint32_t i = 0; a.rails.is_named && i < a.rails.n; i++)
		WB_LOG_INFO(MOD, "rail", WB_U("rail", i), WB_S("address", a.rails.rail[i].addr),
			WB_S("interface", a.rails.rail[i].interface),
			WB_U("bytes_per_s", wb__rail_rate(&a.rails.rail[i])),
			WB_I("numa", a.rails.rail[i].numa));
	if (a.fault)
		WB_LOG_WRN(MOD, "faults on demand", WB_S("WB_FAULT", getenv("WB_FAULT")));
	if (!a.is_stopping)
		wb_loop_run(a.loop);
	stop(&a);
	WB_LOG_INFO(MOD, "stopped", WB_I("exit", a.exit_code));
	return a.exit_code;
}
