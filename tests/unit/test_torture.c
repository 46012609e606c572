/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Torture: what makes something fails with -ENOMEM and leaks nothing, whichever of its allocations
 * fails.  For modules whose own tests do not do it; leaks are the sanitizer's to find.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/area.h"
#include "daemon/content.h"
#include "daemon/trace.h"
#include "extract/srcmap.h"
#include "flow/flow.h"
#include "flow/image.h"
#include "flow/local.h"
#include "flow/slots.h"
#include "lane/area.h"
#include "lane/lane.h"
#include "mem/mem.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/psk.h"
#include "net/seq.h"
#include "net/tls.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/pki.h"
#include "operator-shim/reconcile/reconcile.h"
#include "operator-shim/serve/serve.h"
#include "operator-shim/spec/spec.h"
#include "operator-shim/spec/yaml.h"
#include "planner/binding.h"
#include "planner/plan.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_model.h"
#include "tests/common/sim.h"
#include "transfer/core.h"
#include "weightbridge/extract.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TRIES_MAX 1000

/* A trainer with the upper rows, one with the lower, a rollout with all; all in one agent. */
static struct deployment {
	struct wb_manifest *m;
	struct wb_map *map[3];
	struct wb_plan_worker worker[3];
	struct wb_plan *plan;
	struct wb_place place;
	struct wb_member member[3];
	struct wb_lane *lane;
	struct wb_local *local;
	struct wb_loop *loop;
	struct wb_spec *spec;
	size_t n_spec;
	json_t *status;
	struct wb_buf manifest, srcmap;
	struct wb_lane *remote;
	struct wb_lane_remote_fds lane_fds;
	int fd;
} d;

static uint8_t memory[1 << 20];
static struct wb_poll_page page;
static void *base[1] = {memory};

static void set_up_blobs(void)
{
	struct wb_alias *alias = wb_zalloc(1, sizeof(*alias));
	struct wb_manifest *m = NULL;
	struct wb_map *map = NULL;
	struct wb_srcmap *s = NULL;

	alias->owner = WB_ALIAS_NONE;
	wb_buf_init(&d.manifest, 1 << 20);
	wb_buf_init(&d.srcmap, 1 << 20);
	ck_assert(!wb_manifest_encode(d.m, &d.manifest));
	ck_assert(!wb_manifest_decode(d.manifest.data, d.manifest.len, &m, NULL));
	ck_assert(!wb_map_encode(d.map[2], &d.srcmap));
	ck_assert(!wb_map_decode(m, d.srcmap.data, d.srcmap.len, &map, NULL));
	wb_buf_reset(&d.srcmap);
	ck_assert(!wb_srcmap_create(m, map, alias, &s));
	ck_assert(!wb_srcmap_encode(s, &d.srcmap));
	wb_srcmap_destroy(s);
}

static void set_up(void)
{
	static const char text[] =
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
		"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n";
	struct wb_lane_opts lo = {0};
	struct wb_err err = {0};

	wb_log_level_max = -1;
	d.m = fx_model_manifest();
	d.map[0] = fx_model_rows(d.m, 0, MODEL_ROWS / 2);
	d.map[1] = fx_model_rows(d.m, MODEL_ROWS / 2, MODEL_ROWS / 2);
	d.map[2] = fx_model_rows(d.m, 0, MODEL_ROWS);
	for (uint32_t i = 0; i < 3; i++)
		d.worker[i] = (struct wb_plan_worker){
			i < 2 ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, i, 0, 0, 0, 0};
	struct wb_plan_input in = {.manifest = d.m,
		.layout = (const struct wb_map *const *)d.map,
		.n_layout = 3,
		.worker = d.worker,
		.n_worker = 3};

	ck_assert_msg(!wb_plan_create(&in, &d.plan, &err), "%s", err.msg);
	ck_assert_msg(!wb_lane_create_inline(&lo, &d.lane, &err), "%s", err.msg);
	for (uint32_t i = 0; i < 3; i++)
		d.member[i] = (struct wb_member){i, d.map[i], &d.place, base, d.lane};
	ck_assert_msg(!wb_local_create(d.plan, d.m, d.member, 3, &d.local, &err), "%s", err.msg);
	ck_assert(!wb_loop_create(&d.loop, NULL));
	ck_assert(!wb_spec_load("f", text, sizeof(text) - 1, &d.spec, &d.n_spec, &err));
	d.status = json_loads("{\"transfer\": 5, \"plan\": {\"term\": 2}}", 0, NULL);
	ck_assert_ptr_nonnull(d.status);
	set_up_blobs();
	ck_assert(!wb_lane_create_remote(&lo, NULL, 0, &d.remote, &d.lane_fds, NULL));
	d.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void tear_down(void)
{
	close(d.fd);
	json_decref(d.status);
	wb_buf_finish(&d.manifest);
	wb_buf_finish(&d.srcmap);
	wb_lane_destroy(d.remote);
	wb_free(d.spec);
	wb_loop_destroy(d.loop);
	wb_local_destroy(d.local);
	wb_lane_destroy(d.lane);
	wb_plan_destroy(d.plan);
	for (int i = 0; i < 3; i++)
		wb_map_destroy(d.map[i]);
	wb_manifest_destroy(d.m);
}

/* ---- the makers: make it, and when that went well destroy it; the result ------------------ */

static int fault(void)
{
	struct wb_fault *f = NULL;
	int rc = wb_fault_parse("flip=wire:0.01;kill=recv:chunk=5:version=6", &f, NULL);

	wb_fault_destroy(f);
	return rc;
}

static int trace_ring(void)
{
	struct wb__trace_ring *t = wb__trace_create("a", 16);

	wb__trace_destroy(t);
	return t ? 0 : -ENOMEM;
}

static int contents(void)
{
	struct wb__contents *c = wb__contents_create();

	wb__contents_destroy(c);
	return c ? 0 : -ENOMEM;
}

static int loop(void)
{
	struct wb_loop *l = NULL;
	int rc = wb_loop_create(&l, NULL);

	wb_loop_destroy(l);
	return rc;
}

static void nothing(void *cookie)
{
	(void)cookie;
}

static void nothing_ready(void *cookie, int events)
{
	(void)cookie;
	(void)events;
}

static int timer(void)
{
	struct wb_timer *t = NULL;
	int rc = wb_timer_create(d.loop, nothing, NULL, &t);

	wb_timer_destroy(t);
	return rc;
}

static int watch(void)
{
	struct wb_watch *w = NULL;
	int rc = wb_watch_create(d.loop, d.fd, WB_READABLE, nothing_ready, NULL, &w);

	if (!rc)
		wb_watch_destroy(w);
	return rc;
}

static int signals(void)
{
	struct wb_signal *s = NULL;
	int rc = wb_signal_create(d.loop, SIGUSR1, nothing, NULL, &s);

	if (!rc)
		wb_signal_destroy(s);
	return rc;
}

static void on_accept(void *cookie, struct wb_seq *s)
{
	(void)cookie;
	wb_seq_close(s);
}

static int seq_listener(void)
{
	char path[100];
	struct wb_seq_listen_opts o = {.path = path};
	struct wb_seq_listener *l = NULL;
	const char *tmp = getenv("TMPDIR");
	int rc;

	snprintf(path, sizeof(path), "%.60s/torture-%d", tmp ? tmp : "/tmp", (int)getpid());
	rc = wb_seq_listen(d.loop, &o, on_accept, NULL, &l, NULL);
	if (!rc)
		wb_seq_listener_close(l);
	return rc;
}

static int not_found(
	void *cookie, const char *path, struct wb_http_request *rq, struct wb_http_reply *r)
{
	(void)cookie;
	(void)path;
	(void)rq;
	(void)r;
	return -ENOENT;
}

static int http(void)
{
	struct wb_http_opts o = {.host = "127.0.0.1", .fn = not_found};
	struct wb_http *h = NULL;
	int rc = wb_http_start(d.loop, &o, &h, NULL);

	wb_http_stop(h);
	return rc;
}

static int sim_net(void)
{
	struct wb_sim_opts o = {.seed = 1};
	struct wb_sim_net *n = NULL;
	int rc = wb_sim_net_create(&o, &n);

	if (!rc)
		wb_sim_net_destroy(n);
	return rc;
}

static int binding(void)
{
	struct wb_binding *b = NULL;
	int rc = wb_binding_create(d.plan, d.m, d.map[2], 2, &b, NULL);

	wb_binding_destroy(b);
	return rc;
}

static int local(void)
{
	struct wb_local *l = NULL;
	int rc = wb_local_create(d.plan, d.m, d.member, 3, &l, NULL);

	wb_local_destroy(l);
	return rc;
}

static int local_view(void)
{
	struct wb_local *l = NULL;
	int rc = wb_local_view(d.local, d.member, &l);

	if (!rc)
		wb_local_destroy(l);
	return rc;
}

static int image(void)
{
	struct wb_image *i = NULL;
	int rc = wb_image_create(d.plan, 0, &i);

	if (!rc)
		wb_image_destroy(i);
	return rc;
}

static int slots(void)
{
	static const uint8_t share[WB_POOLS] = {8, 8};
	struct wb_slots s = {0};
	int rc = wb_slots_init(&s, memory, sizeof(memory), 65536, share, NULL);

	if (!rc)
		wb_slots_finish(&s);
	return rc;
}

static int area_ranges(void)
{
	struct wb_area_range *r = NULL;
	uint32_t n = 0;
	int rc = wb_area_ranges(d.member[0].map, d.member[0].place, &r, &n);

	if (!rc)
		wb_free(r);
	return rc;
}

static int area(void)
{
	static const uint64_t bytes[] = {4096, 8192};
	const struct wb__area_in in = {.mem_bytes = bytes, .n_mem = 2, .used = 100};
	struct wb__worker_area *a = NULL;
	struct wb__area_raw raw = {0};
	int rc = wb__worker_area_create(&in, &raw, &a, NULL);

	if (!rc)
		wb__worker_area_destroy(a);
	return rc;
}

static int flow(void)
{
	struct wb_flow_env env = {.clock = &wb_clock_real};
	struct wb_slots s = {0};
	struct wb_flow_opts o = {.local = d.local,
		.slots = &s,
		.env = &env,
		.transfer = 1,
		.sums = true,
		.read_back = true};
	struct wb_flow *f = NULL;
	int rc = wb_flow_create(&o, &f, NULL);

	if (!rc)
		wb_flow_destroy(f);
	return rc;
}

static void to_worker(void *ctx, uint32_t worker, uint16_t type, const void *msg)
{
	(void)ctx;
	(void)worker;
	(void)type;
	(void)msg;
}

static void to_peer(void *ctx, const struct wb_roster *r, uint32_t agent,
	const struct wb_msg_peer *msg, const uint8_t *frame, size_t bytes)
{
	(void)ctx;
	(void)r;
	(void)agent;
	(void)msg;
	(void)frame;
	(void)bytes;
}

static void report(void *ctx, const struct wb_transfer_report *r)
{
	(void)ctx;
	(void)r;
}

static void mark(void *ctx, const char *what, const char *who, uint64_t transfer, uint64_t value)
{
	(void)ctx;
	(void)what;
	(void)who;
	(void)transfer;
	(void)value;
}

static int core(void)
{
	struct wb_transfer_env env = {.clock = &wb_clock_real};
	struct wb_transfer_opts o = {.agent = "a"};
	struct wb_transfer_core *c = NULL;
	int rc = wb_transfer_create(&o, &env, &c, NULL);

	if (!rc)
		wb_transfer_destroy(c);
	return rc;
}

static uint64_t wall(void *ctx)
{
	(void)ctx;
	return 1;
}

static int zeros(void *ctx, void *out, size_t bytes)
{
	(void)ctx;
	memset(out, 0, bytes);
	return 0;
}

static void arm(void *ctx, uint64_t at_ns)
{
	(void)ctx;
	(void)at_ns;
}

static int serve(void)
{
	struct wb_serve_env env = {
		.clock = &wb_clock_real, .wall_ns = wall, .random = zeros, .arm = arm};
	struct wb_serve_opts o = {.name = "op", .spec = d.spec, .n_spec = d.n_spec};
	struct wb_serve *s = NULL;
	int rc = wb_serve_create(&o, &env, &s, NULL);

	if (!rc)
		wb_serve_destroy(s);
	return rc;
}

/* Workers come, a plan, and they leave: all that the core makes on the way. */
static int installed(void)
{
	struct wb_transfer_env env = {.clock = &wb_clock_real,
		.to_worker = to_worker,
		.to_peer = to_peer,
		.report = report,
		.trace = mark};
	struct wb_transfer_opts o = {.agent = "a", .arena = memory, .arena_bytes = sizeof(memory)};
	struct wb_transfer_core *c = NULL;
	int rc = wb_transfer_create(&o, &env, &c, NULL);

	for (uint32_t i = 0; i < 3 && rc == 0; i++) {
		struct wb_transfer_worker w = {.id = i + 1,
			.object = "default/a",
			.engine = i == 2 ? "e" : "",
			.name = "w",
			.role = i < 2 ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT,
			.manifest = d.m,
			.map = d.map[i],
			.place = &d.place,
			.base = base,
			.lane = d.lane,
			.page = i == 2 ? &page : NULL};

		rc = wb_transfer_attach(c, &w, NULL);
	}
	for (uint32_t i = 0; i < 3 && c; i++)
		(void)wb_transfer_detach(c, i + 1, NULL);
	wb_transfer_destroy(c);
	return rc;
}

static int reconcile(void)
{
	struct wb_reconcile_opts o = {.operator_id = 1};
	struct wb_reconcile_now now = {1, 1};
	struct wb_reconcile *r = NULL;
	int rc = wb_reconcile_create(&o, d.spec, &r);

	if (rc == 0)
		rc = wb_reconcile_restore(r, now, d.status);
	wb_reconcile_destroy(r);
	return rc;
}

static int reconcile_agent(void)
{
	struct wb_reconcile_worker w = {
		.id = 1, .role = WB_ROLE_ROLLOUT, .engine = "e", .rank = -1};
	struct wb_reconcile_agent a = {.id = 1, .name = "a", .worker = &w, .n_worker = 1};
	struct wb_reconcile_opts o = {.operator_id = 1};
	struct wb_reconcile_now now = {1, 1};
	struct wb_reconcile *r = NULL;
	int rc = wb_reconcile_create(&o, d.spec, &r);

	if (rc == 0)
		rc = wb_reconcile_agent_up(r, now, &a);
	wb_reconcile_destroy(r);
	return rc;
}

static int manifest(void)
{
	struct wb_extract_tensor t = {.name = "w", .dtype = "BF16", .ndim = 1, .shape = {5}};
	struct wb_manifest *m = NULL;
	int rc = wb_manifest_open(&t, 1, &m, NULL);

	wb_manifest_destroy(m);
	return rc;
}

static int manifest_read(void)
{
	struct wb_manifest *m = NULL;
	int rc = wb_manifest_decode(d.manifest.data, d.manifest.len, &m, NULL);

	wb_manifest_destroy(m);
	return rc;
}

static int srcmap(void)
{
	struct wb_sourcemap *s = NULL;
	int rc = wb_sourcemap_read(d.srcmap.data, d.srcmap.len, &s, NULL);

	wb_sourcemap_close(s);
	return rc;
}

static int extract(void)
{
	struct wb_extract_param p = {.name = "w",
		.dtype = "BF16",
		.ndim = 1,
		.shape = {5},
		.stride = {1},
		.data = memory};
	struct wb_extract *x = NULL;
	int rc = wb_extract_open(d.m, &p, 1, NULL, &x, NULL);

	wb_extract_close(x);
	return rc;
}

static int lane_worker(void)
{
	struct wb_lane_mem mem = {memory, sizeof(memory), false};
	struct wb_lane_worker_opts o = {.fds = d.lane_fds, .mem = &mem, .n_mem = 1};
	struct wb_lane_worker *w = NULL;
	int rc;

	o.fds.shared = dup(o.fds.shared);
	o.fds.submit = dup(o.fds.submit);
	o.fds.complete = dup(o.fds.complete);
	rc = wb_lane_worker_open(&o, &w, NULL);
	if (rc == 0) {
		wb_lane_worker_close(w);
		return 0;
	}
	close(o.fds.shared);
	close(o.fds.submit);
	close(o.fds.complete);
	return rc;
}

static int tls(void)
{
	struct wb_psk k = {.id = "i", .bytes = 32};
	struct wb_tls_opts o = {.mode = WB_TLS_PSK, .psk = &k};
	struct wb_tls *t = NULL;
	int rc = wb_tls_client_create(&o, &t, NULL);

	wb_tls_put(t);
	return rc;
}

static int yaml(void)
{
	static const char text[] = "a: [1, {b: c}, \"x\"]\n---\n- d\n";
	struct wb_yaml_node **doc = NULL;
	size_t n = 0;
	int rc = wb_yaml_read("f", text, sizeof(text) - 1, &doc, &n, NULL);

	if (rc == 0)
		wb_yaml_free(doc, n);
	return rc;
}

static int base64(void)
{
	uint8_t *out = NULL;
	size_t n;
	int rc = wb_kube_base64("aGVsbG8=", &out, &n);

	wb_free(out);
	return rc;
}

static int authority(void)
{
	static const char *const name[] = {"op.ns.svc"};
	struct wb__pki_want w = {name, 1, 1700000000};
	struct wb__pki p = {0};
	struct wb_err err = {0};
	int rc = wb__pki_make(&p, &w, WB__PKI_CA | WB__PKI_CERT, &err);

	wb__pki_finish(&p);
	/* OpenSSL does not say whose memory it was. */
	return rc == -EIO && strstr(err.msg, "out of memory") ? -ENOMEM : rc;
}

static const struct {
	const char *name;
	int (*make)(void);
} makers[] = {{"fault", fault}, {"trace", trace_ring}, {"contents", contents}, {"loop", loop},
	{"timer", timer}, {"watch", watch}, {"signal", signals}, {"seq listener", seq_listener},
	{"http", http}, {"sim net", sim_net}, {"binding", binding}, {"local", local},
	{"local view", local_view}, {"image", image}, {"area ranges", area_ranges}, {"area", area},
	{"slots", slots}, {"flow", flow}, {"core", core}, {"serve", serve},
	{"workers of a core", installed}, {"reconcile", reconcile},
	{"agent of a reconcile", reconcile_agent}, {"manifest", manifest},
	{"decoded manifest", manifest_read}, {"source map", srcmap}, {"extraction", extract},
	{"worker's lane", lane_worker}, {"tls", tls}, {"yaml", yaml}, {"base64", base64},
	{"authority", authority}};

START_TEST(each_lost_allocation_is_enomem)
{
	/* The operator's look at an object is repeated by the next event, and its series of metrics
	 * are lost, as all metrics and notices are when memory is short. */
	int spare = makers[_i].make == serve ? 30 : makers[_i].make == reconcile_agent ? 10 : 0;
	uint64_t n;

	for (n = 1; n < TRIES_MAX; n++) {
		int rc;

		wb_mem_fail_at(n);
		rc = makers[_i].make();
		if (!wb_mem_failed())
			break;
		if (rc == 0 && spare-- > 0)
			continue;
		ck_assert_msg(rc == -ENOMEM, "%s: allocation %d lost: %d (%s)", makers[_i].name,
			(int)n, rc, wb_strerror(rc));
	}
	wb_mem_fail_at(0);
	ck_assert_msg(n > 1 && n < TRIES_MAX, "%s: %d allocations", makers[_i].name, (int)n - 1);
	ck_assert_msg(makers[_i].make() == 0, "%s", makers[_i].name);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("torture");
	TCase *t = tcase_create("makers");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, each_lost_allocation_is_enomem, 0, (int)WB_ARRAY_SIZE(makers));
	suite_add_tcase(s, t);
	return fx_run(s);
}
