/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's endpoint against scripted agents, over channels in memory and a fake clock. */
#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "operator-shim/serve/serve.h"
#include "proto/messages.h"
#include "tests/common/fx_plan.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S WB_NS_PER_S

/* One end of a channel in memory: what the operator sends is kept until it is looked at. */
struct wire {
	struct wb_chan ch;
	struct wb_buf out;
	size_t read;
	bool is_closed, is_told;
};

static struct wb_fake_clock clk;
static struct wb_serve *s;
static uint64_t due;
static void (*job_work)(void *), (*job_done)(void *);
static void *job_cookie;
static uint8_t seed;

static int wire_send(struct wb_chan *ch, const void *frame, size_t bytes)
{
	struct wire *w = wb_container_of(ch, struct wire, ch);

	if (w->is_closed)
		return -ENOTCONN;
	wb_buf_put(&w->out, frame, bytes);
	return 0;
}

static void wire_close(struct wb_chan *ch)
{
	wb_container_of(ch, struct wire, ch)->is_closed = true;
}

static const char *wire_peer(const struct wb_chan *ch)
{
	(void)ch;
	return "wire";
}

static size_t wire_queued(const struct wb_chan *ch)
{
	(void)ch;
	return 0;
}

static const struct wb_chan_ops wire_ops = {
	wire_send, wire_close, wire_peer, wire_peer, wire_queued};

static uint64_t wall(void *ctx)
{
	(void)ctx;
	return 1700000000 * S + clk.now;
}

static int fill_random(void *ctx, void *out, size_t bytes)
{
	(void)ctx;
	memset(out, ++seed, bytes);
	return 0;
}

static void arm(void *ctx, uint64_t at_ns)
{
	(void)ctx;
	due = at_ns;
}

static int work(void *ctx, void (*w)(void *), void (*d)(void *), void *cookie)
{
	(void)ctx;
	job_work = w;
	job_done = d;
	job_cookie = cookie;
	return 0;
}

static void run_job(void)
{
	ck_assert_ptr_nonnull(job_work);
	job_work(job_cookie);
	job_done(job_cookie);
	job_work = NULL;
}

static const char spec_text[] =
	"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
	"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n";

static void set_up(void)
{
	struct wb_serve_env env = {.clock = &clk.clock,
		.wall_ns = wall,
		.random = fill_random,
		.arm = arm,
		.work = work};
	struct wb_serve_opts o = {.name = "op"};
	struct wb_spec *spec = NULL;
	struct wb_err err = {0};
	size_t n = 0;

	wb_log_level_max = -1;
	wb_fake_clock_init(&clk, 1000 * S);
	ck_assert_int_eq(wb_spec_load("f", spec_text, sizeof(spec_text) - 1, &spec, &n, &err), 0);
	o.spec = spec;
	o.n_spec = n;
	ck_assert_int_eq(wb_serve_create(&o, &env, &s, &err), 0);
	wb_free(spec);
}

static void tear_down(void)
{
	wb_serve_destroy(s);
	s = NULL;
}

static void open_wire(struct wire *w)
{
	memset(w, 0, sizeof(*w));
	w->ch.ops = &wire_ops;
	wb_buf_init(&w->out, 16 << 20);
	wb_serve_accept(s, &w->ch);
}

static void end_wire(struct wire *w)
{
	struct wb_err none = {0};

	if (!w->is_told)
		w->ch.cb.on_closed(w->ch.cb.cookie, &w->ch, &none);
	w->is_told = true;
	wb_buf_finish(&w->out);
}

static void say(struct wire *w, uint16_t type, const void *msg)
{
	struct wb_frame f = {.version = WBP_VERSION_MAX, .type = type};
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, 16 << 20);
	ck_assert_msg(wb_msg_encode(&f, msg, &b, &err) == 0, "%s", err.msg);
	w->ch.cb.on_frame(w->ch.cb.cookie, &w->ch, b.data, b.len);
	wb_buf_finish(&b);
}

/* Next message of the operator, or WBP_NONE.  Free with wb_msg_free(). */
static uint16_t hear(struct wire *w, union wb_msg *m)
{
	const uint8_t *p = w->out.data + w->read, *body;
	struct wb_err err = {0};
	struct wb_frame f;

	if (w->read == w->out.len)
		return WBP_NONE;
	ck_assert_int_eq(wb_frame_decode(p, w->out.len - w->read, &f, &err), 0);
	body = p + WB_FRAME_BYTES;
	ck_assert_msg(wb_msg_decode(&f, body, m, &err) == 0, "%s", err.msg);
	w->read += WB_FRAME_BYTES + f.bytes;
	return f.type;
}

/* Skips news of progress. */
static void expect(struct wire *w, uint16_t type, union wb_msg *m)
{
	uint16_t got = hear(w, m);

	while (got == WBP_PROGRESS) {
		wb_msg_free(got, m);
		got = hear(w, m);
	}
	ck_assert_str_eq(wb_msg_name(got), wb_msg_name(type));
}

static void expect_nothing(struct wire *w)
{
	union wb_msg m;

	expect(w, WBP_NONE, &m);
}

static void hello(struct wire *w, const char *name, uint64_t instance)
{
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.build = "t",
		.agent = name,
		.node = name,
		.host = "10.0.0.1",
		.port = 7444,
		.bulk = "tcp",
		.rail_bytes_per_s = 1000000,
		.instance = instance};

	say(w, WBP_HELLO, &h);
}

/* ---- a model of one tensor, copied whole by everybody ---- */

static struct wb_buf manifest_bytes, map_bytes;
static struct wb_digest manifest_digest, map_digest;

static void make_model(void)
{
	struct wb_tensor t = fx_tensor("w", WB_BF16, 512, 256);
	struct wb_manifest *m = NULL;
	struct fx_map f = {0};
	struct wb_err err = {0};
	struct wb_map *map;

	ck_assert_int_eq(wb_manifest_create(&t, 1, &m, &err), 0);
	f.m = m;
	fx_copy(&f, fx_param(&f, "w", WB_BF16, 512, 256), "w",
		(struct fx_box){0, 512, 0, 256, 0, 0});
	map = fx_map_done(&f);
	wb_buf_init(&manifest_bytes, 1 << 20);
	wb_buf_init(&map_bytes, 1 << 20);
	ck_assert_int_eq(wb_manifest_encode(m, &manifest_bytes), 0);
	ck_assert_int_eq(wb_map_encode(map, &map_bytes), 0);
	manifest_digest = m->digest;
	map_digest = map->digest;
	wb_map_destroy(map);
	wb_manifest_destroy(m);
}

static void workers(struct wire *w, uint32_t role, const char *engine)
{
	struct wb_p_worker p = {.id = 5,
		.name = role == 1 ? "train/5" : "roll/5",
		.role = role,
		.engine = engine,
		.rank = -1,
		.manifest = manifest_digest,
		.map = map_digest,
		.mem_kind = 1,
		.version = -1};
	struct wb_msg_workers m = {.object = "default/a", .workers = &p, .n_workers = 1};

	say(w, WBP_WORKERS, &m);
}

static void content(struct wire *w, uint32_t kind, struct wb_digest d, const struct wb_buf *b)
{
	size_t half = b->len / 2;
	struct wb_msg_content m = {.object = "default/a",
		.kind = kind,
		.digest = d,
		.total_bytes = b->len,
		.data = b->data,
		.n_data = (uint32_t)half};

	say(w, WBP_CONTENT, &m);
	m.offset = half;
	m.data = b->data + half;
	m.n_data = (uint32_t)(b->len - half);
	say(w, WBP_CONTENT, &m);
}

static void welcome(struct wire *w, uint64_t term)
{
	union wb_msg m;

	expect(w, WBP_WELCOME, &m);
	ck_assert_uint_eq(m.welcome.term, term);
	ck_assert_uint_eq(m.welcome.heartbeat_ns, 5 * S);
	ck_assert_uint_eq(m.welcome.n_objects, 1);
	ck_assert_str_eq(m.welcome.objects[0].name, "default/a");
	ck_assert_uint_eq(m.welcome.objects[0].rollout_buffer_bytes, 4ull << 30);
	wb_msg_free(WBP_WELCOME, &m);
}

static void want(struct wire *w, struct wb_digest d)
{
	char text[WB_DIGEST_TEXT];
	union wb_msg m;

	expect(w, WBP_WANT, &m);
	ck_assert_uint_eq(m.want.n_digests, 1);
	ck_assert_str_eq(m.want.digests[0], wb_digest_text(d, text));
	wb_msg_free(WBP_WANT, &m);
}

/* Takes the plan, checks what stands beside it, says READY. */
static void take_plan(struct wire *w, uint64_t number)
{
	struct wb_msg_ready r = {.object = "default/a", .epoch = {1, number}};
	struct wb_plan *plan = NULL;
	struct wb_err err = {0};
	union wb_msg m;

	expect(w, WBP_CONTENT, &m);
	ck_assert_uint_eq(m.content.kind, 3);
	ck_assert_uint_eq(m.content.total_bytes, m.content.n_data);
	ck_assert_msg(
		wb_plan_decode(m.content.data, m.content.n_data, &plan, &err) == 0, "%s", err.msg);
	r.digest = plan->digest;
	ck_assert(wb_digest_eq(m.content.digest, plan->digest));
	ck_assert_uint_eq(plan->n_worker, 2);
	wb_plan_destroy(plan);
	wb_msg_free(WBP_CONTENT, &m);
	expect(w, WBP_PLAN, &m);
	ck_assert_uint_eq(m.plan.epoch.term, 1);
	ck_assert_uint_eq(m.plan.epoch.number, number);
	ck_assert_uint_eq(strlen(m.plan.key), 64);
	ck_assert_uint_eq(m.plan.n_agents, 2);
	ck_assert_str_eq(m.plan.agents[0].agent, "train");
	ck_assert_str_eq(m.plan.agents[1].agent, "roll");
	ck_assert_uint_eq(m.plan.agents[1].workers[0], 1);
	ck_assert_uint_eq(m.plan.agents[1].ids[0], 5);
	ck_assert_str_eq(m.plan.agents[1].names[0], "roll/5");
	ck_assert_uint_eq(m.plan.n_engines, 1);
	ck_assert_str_eq(m.plan.engines[0], "e1");
	wb_msg_free(WBP_PLAN, &m);
	say(w, WBP_READY, &r);
}

static void activated(struct wire *w)
{
	union wb_msg m;

	expect(w, WBP_ACTIVATE, &m);
	ck_assert_uint_eq(m.activate.epoch.term, 1);
	wb_msg_free(WBP_ACTIVATE, &m);
}

static struct wire train, roll;

/* Two agents up to the active plan. */
static void run_job_to_active(void)
{
	make_model();
	open_wire(&train);
	hello(&train, "train", 11);
	welcome(&train, 1);
	workers(&train, 1, NULL);
	expect_nothing(&train);
	open_wire(&roll);
	hello(&roll, "roll", 12);
	welcome(&roll, 1);
	workers(&roll, 2, "e1");
	want(&train, manifest_digest);
	want(&train, map_digest);
	expect_nothing(&roll); /* the same map: asked for once */
	content(&train, 1, manifest_digest, &manifest_bytes);
	ck_assert_ptr_null(job_work);
	content(&train, 2, map_digest, &map_bytes);
	run_job();
	take_plan(&train, 1);
	expect_nothing(&train);
	take_plan(&roll, 1);
	activated(&train);
	activated(&roll);
}

static void end_both(void)
{
	end_wire(&train);
	end_wire(&roll);
	wb_buf_finish(&manifest_bytes);
	wb_buf_finish(&map_bytes);
}

static json_t *status(void)
{
	json_t *o = wb_serve_object(s, "a"), *st = json_incref(json_object_get(o, "status"));

	json_decref(o);
	return st;
}

static const char *ready_reason(void)
{
	static char text[128];
	json_t *st = status();
	json_t *c = json_array_get(json_object_get(st, "conditions"), 0);

	snprintf(text, sizeof(text), "%s %s", json_string_value(json_object_get(c, "status")),
		json_string_value(json_object_get(c, "reason")));
	json_decref(st);
	return text;
}

START_TEST(hello_to_activate)
{
	size_t bytes = 0;

	run_job_to_active();
	ck_assert_str_eq(ready_reason(), "True Idle");
	ck_assert_ptr_nonnull(wb_serve_plan(s, NULL, &bytes));
	ck_assert_uint_gt(bytes, 100);
	ck_assert_ptr_nonnull(wb_serve_manifest(s, "default/a", &bytes));
	ck_assert_uint_eq(bytes, manifest_bytes.len);
	ck_assert_ptr_null(wb_serve_plan(s, "other", &bytes));
	end_both();
}
END_TEST

static struct wb_p_worker_report times(uint32_t worker, uint64_t stop, uint64_t resume)
{
	static struct wb_p_phase ph;

	ph = (struct wb_p_phase){"wire", stop + 10, resume - 10};
	return (struct wb_p_worker_report){.worker = worker,
		.stop_ns = stop,
		.resume_ns = resume,
		.phases = &ph,
		.n_phases = 1};
}

START_TEST(reports_are_summed_up_over_clock_offsets)
{
	struct wb_p_engine_state e = {
		.engine = "e1", .state = "Committed", .version = 60, .transfer = 6};
	struct wb_p_worker_report w;
	uint64_t bytes[3] = {262144, 0, 0};
	struct wb_msg_report m = {.object = "default/a",
		.epoch = {1, 1},
		.transfer = 6,
		.version = 60,
		.state = "Started",
		.begin_wall_ns = 1700001000 * S};
	json_t *st, *last, *trace;
	struct wb_buf b;

	run_job_to_active();
	say(&train, WBP_REPORT, &m);
	ck_assert_str_eq(ready_reason(), "True TransferInProgress");
	/* The trainer's clock is 5 s ahead of the operator's, the rollout's 2 s behind. */
	w = times(0, 105 * S, 106 * S);
	m.state = "Succeeded";
	m.is_final = true;
	m.end_wall_ns = m.begin_wall_ns + 9 * S;
	m.engines = &e;
	m.n_engines = 1;
	m.workers = &w;
	m.n_workers = 1;
	m.clock_offset_ns = (int64_t)(5 * S);
	m.clock_error_ns = 1000000;
	say(&train, WBP_REPORT, &m);
	st = status();
	last = json_object_get(st, "lastTransfer");
	ck_assert_int_eq(json_integer_value(json_object_get(last, "endToEndMilliseconds")), 1000);
	json_decref(st);
	w = times(1, 98 * S + S / 2, 100 * S + S / 2);
	m.state = "Workers";
	m.is_final = false;
	m.n_engines = 0;
	m.clock_offset_ns = -(int64_t)(2 * S);
	m.clock_error_ns = 2000000;
	m.bytes = bytes;
	m.n_bytes = 3;
	say(&roll, WBP_REPORT, &m);
	st = status();
	last = json_object_get(st, "lastTransfer");
	/* Trainer 100..101, rollout 100.5..102.5 on the operator's clock. */
	ck_assert_int_eq(json_integer_value(json_object_get(last, "endToEndMilliseconds")), 2500);
	ck_assert_int_eq(
		json_integer_value(json_object_get(last, "averageStallMilliseconds")), 1500);
	ck_assert_int_eq(json_integer_value(json_object_get(last, "networkBytes")), 262144);
	ck_assert_int_eq(json_integer_value(json_object_get(st, "version")), 60);
	ck_assert_int_eq(json_integer_value(json_object_get(st, "updatedEngines")), 1);
	json_decref(st);
	st = wb_serve_object(s, NULL);
	last = json_array_get(json_object_get(json_object_get(st, "detail"), "transfers"), 0);
	ck_assert(json_real_value(json_object_get(last, "endToEndUncertaintyMilliseconds")) == 3.0);
	json_decref(st);
	wb_buf_init(&b, 1 << 20);
	ck_assert(wb_serve_trace(s, NULL, &b));
	trace = json_loads(wb_buf_cstr(&b), 0, NULL);
	ck_assert_msg(trace != NULL, "%s", wb_buf_cstr(&b));
	ck_assert_uint_eq(json_array_size(json_object_get(trace, "traceEvents")), 8);
	json_decref(trace);
	wb_buf_reset(&b);
	wb_serve_metrics(s, &b);
	ck_assert_ptr_nonnull(
		strstr(wb_buf_cstr(&b), "wb_transfers_total{result=\"Succeeded\"} 1\n"));
	ck_assert_ptr_nonnull(
		strstr(wb_buf_cstr(&b), "wb_bytes_total{stage=\"receive\"} 262144\n"));
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "wb_agents 2\n"));
	wb_buf_finish(&b);
	end_both();
}
END_TEST

START_TEST(planner_refusal_names_workers)
{
	union wb_msg m;
	struct wb_msg_progress last = {0};
	char text[1200] = "";

	make_model();
	/* The rollout wants a tensor that no trainer has: an empty map there. */
	{
		struct wb_tensor t = fx_tensor("w", WB_BF16, 512, 256);
		struct wb_manifest *mf = NULL;
		struct fx_map f = {0};
		struct wb_err err = {0};
		struct wb_map *map;
		struct wb_buf half;
		struct wb_digest whole = map_digest;

		ck_assert_int_eq(wb_manifest_create(&t, 1, &mf, &err), 0);
		f.m = mf;
		fx_copy(&f, fx_param(&f, "w", WB_BF16, 256, 256), "w",
			(struct fx_box){0, 256, 0, 256, 0, 0});
		map = fx_map_done(&f);
		wb_buf_init(&half, 1 << 20);
		ck_assert_int_eq(wb_map_encode(map, &half), 0);
		open_wire(&train);
		hello(&train, "train", 11);
		map_digest = map->digest;
		workers(&train, 1, NULL);
		open_wire(&roll);
		hello(&roll, "roll", 12);
		map_digest = whole;
		workers(&roll, 2, "e1");
		content(&train, 1, manifest_digest, &manifest_bytes);
		content(&train, 2, map->digest, &half);
		content(&roll, 2, whole, &map_bytes);
		wb_buf_finish(&half);
		wb_map_destroy(map);
		wb_manifest_destroy(mf);
	}
	run_job();
	for (;;) {
		uint16_t type = hear(&roll, &m);

		if (type == WBP_NONE)
			break;
		if (type == WBP_PROGRESS) {
			last.code = m.progress.code;
			snprintf(text, sizeof(text), "%s", m.progress.sentence);
		}
		wb_msg_free(type, &m);
	}
	ck_assert_int_eq(last.code, WB_EPLAN);
	ck_assert_msg(strstr(text, "w") != NULL && strstr(text, "worker") != NULL, "%s", text);
	ck_assert_str_eq(ready_reason(), "False TensorMismatch");
	end_both();
}
END_TEST

static void expect_reject(struct wire *w, int code, const char *part)
{
	union wb_msg m;

	expect(w, WBP_REJECT, &m);
	ck_assert_int_eq(m.reject.code, code);
	ck_assert_msg(strstr(m.reject.sentence, part) != NULL, "%s", m.reject.sentence);
	wb_msg_free(WBP_REJECT, &m);
}

START_TEST(other_protocol_version_is_refused_with_a_sentence)
{
	struct wb_msg_hello h = {.version_min = 90,
		.version_max = 91,
		.build = "t",
		.agent = "x",
		.node = "n",
		.host = "h",
		.bulk = "",
		.instance = 1};

	open_wire(&train);
	say(&train, WBP_HELLO, &h);
	expect_reject(&train, WB_EVERSION, "agent x");
	ck_assert(train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(unknown_object_is_refused_and_names_those_there_are)
{
	const char *list[] = {"default/b"};
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = 1,
		.build = "t",
		.agent = "x",
		.node = "n",
		.host = "h",
		.bulk = "",
		.instance = 1,
		.objects = list,
		.n_objects = 1};

	open_wire(&train);
	say(&train, WBP_HELLO, &h);
	expect_reject(&train, -ENOENT, "no object default/b; it serves default/a");
	end_wire(&train);
}
END_TEST

START_TEST(another_message_before_hello_is_refused)
{
	struct wb_msg_heartbeat h = {.sent_ns = 1};

	open_wire(&train);
	say(&train, WBP_HEARTBEAT, &h);
	expect_reject(&train, -EPROTO, "HELLO must be first");
	ck_assert(train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(truncated_frame_is_refused)
{
	uint8_t junk[WB_FRAME_BYTES] = {1, 2, 3};

	open_wire(&train);
	train.ch.cb.on_frame(train.ch.cb.cookie, &train.ch, junk, sizeof(junk));
	ck_assert(train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(content_under_a_wrong_digest_is_refused)
{
	make_model();
	open_wire(&train);
	hello(&train, "train", 11);
	welcome(&train, 1);
	workers(&train, 1, NULL);
	open_wire(&roll);
	hello(&roll, "roll", 12);
	workers(&roll, 2, "e1");
	want(&train, manifest_digest);
	want(&train, map_digest);
	content(&train, 2, map_digest, &manifest_bytes);
	expect_reject(&train, WB_ECKSUM, "digest");
	ck_assert(train.is_closed);
	end_both();
}
END_TEST

START_TEST(content_out_of_order_is_refused)
{
	struct wb_msg_content m = {.object = "default/a", .kind = 2, .offset = 7};

	make_model();
	open_wire(&train);
	hello(&train, "train", 11);
	welcome(&train, 1);
	workers(&train, 1, NULL);
	open_wire(&roll);
	hello(&roll, "roll", 12);
	workers(&roll, 2, "e1");
	want(&train, manifest_digest);
	want(&train, map_digest);
	m.digest = map_digest;
	m.total_bytes = map_bytes.len;
	m.data = map_bytes.data;
	m.n_data = 5;
	say(&train, WBP_CONTENT, &m);
	expect_reject(&train, -EBADMSG, "follow");
	end_both();
}
END_TEST

START_TEST(adapter_staging_must_agree_with_the_spec)
{
	struct wb_p_worker p = {.id = 5,
		.name = "train/5",
		.role = 1,
		.rank = -1,
		.mem_kind = 1,
		.sender_staging = WB_APP_STAGING_HOST_MEMORY,
		.version = -1};
	struct wb_msg_workers m = {.object = "default/a", .workers = &p, .n_workers = 1};
	union wb_msg got;

	open_wire(&train);
	hello(&train, "train", 11);
	welcome(&train, 1);
	say(&train, WBP_WORKERS, &m);
	expect(&train, WBP_REJECT, &got);
	ck_assert_uint_eq(got.reject.worker, 6);
	ck_assert_str_eq(got.reject.object, "default/a");
	ck_assert_ptr_nonnull(strstr(got.reject.sentence, "spec.staging.trainer is None"));
	wb_msg_free(WBP_REJECT, &got);
	ck_assert(!train.is_closed);
	end_wire(&train);
}
END_TEST

START_TEST(silent_agent_is_closed_and_then_lost)
{
	struct wb_msg_heartbeat h = {.sent_ns = 7};
	union wb_msg m;

	run_job_to_active();
	clk.now += 10 * S;
	wb_serve_tick(s);
	ck_assert(!roll.is_closed);
	say(&train, WBP_HEARTBEAT, &h);
	expect(&train, WBP_HEARTBEAT, &m);
	ck_assert_uint_eq(m.heartbeat.echo_ns, 7);
	ck_assert_uint_eq(m.heartbeat.echo_received_ns, clk.now);
	clk.now += 5 * S;
	ck_assert_uint_le(due, clk.now);
	wb_serve_tick(s);
	ck_assert(roll.is_closed);
	ck_assert(!train.is_closed);
	end_wire(&roll);
	ck_assert_str_eq(ready_reason(), "False AgentLost");
	clk.now += 15 * S;
	say(&train, WBP_HEARTBEAT, &h);
	wb_serve_tick(s);
	ck_assert_str_eq(ready_reason(), "False WaitingForAgents");
	end_wire(&train);
	wb_buf_finish(&manifest_bytes);
	wb_buf_finish(&map_bytes);
}
END_TEST

START_TEST(drain_is_not_a_loss)
{
	struct wb_msg_drain d = {.sentence = "the pod ends"};
	struct wb_buf b;

	run_job_to_active();
	say(&roll, WBP_DRAIN, &d);
	ck_assert_str_eq(ready_reason(), "False WaitingForAgents");
	end_wire(&roll);
	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	ck_assert_ptr_nonnull(strstr(wb_buf_cstr(&b), "wb_agents_lost_total 0\n"));
	wb_buf_finish(&b);
	end_wire(&train);
	wb_buf_finish(&manifest_bytes);
	wb_buf_finish(&map_bytes);
}
END_TEST

START_TEST(operator_that_leaves_says_so)
{
	union wb_msg m;

	run_job_to_active();
	wb_serve_drain(s, "stopping");
	expect(&train, WBP_DRAIN, &m);
	ck_assert_str_eq(m.drain.sentence, "stopping");
	wb_msg_free(WBP_DRAIN, &m);
	ck_assert(train.is_closed && roll.is_closed);
	end_both();
}
END_TEST

START_TEST(destroy_while_a_job_runs_is_safe)
{
	make_model();
	open_wire(&train);
	hello(&train, "train", 11);
	workers(&train, 1, NULL);
	open_wire(&roll);
	hello(&roll, "roll", 12);
	workers(&roll, 2, "e1");
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, map_digest, &map_bytes);
	ck_assert_ptr_nonnull(job_work);
	wb_serve_destroy(s);
	s = NULL;
	run_job();
	end_both();
}
END_TEST

/* ---- objects that come and go ---- */

static void open_set_up(void)
{
	struct wb_serve_env env = {.clock = &clk.clock,
		.wall_ns = wall,
		.random = fill_random,
		.arm = arm,
		.work = work};
	struct wb_serve_opts o = {.name = "op"};
	struct wb_err err = {0};

	wb_log_level_max = -1;
	wb_fake_clock_init(&clk, 1000 * S);
	ck_assert_int_eq(wb_serve_create(&o, &env, &s, &err), 0);
}

static int put_object(const char *change, uint64_t uid)
{
	struct wb_spec *spec = NULL;
	struct wb_err err = {0};
	char text[512];
	size_t n = 0;
	int rc;

	snprintf(text, sizeof(text), "%s%s", spec_text, change);
	ck_assert_msg(wb_spec_load("f", text, strlen(text), &spec, &n, &err) == 0, "%s", err.msg);
	rc = wb_serve_put(s, &(struct wb_serve_object_desc){.spec = spec, .uid = uid}, &err);
	wb_free(spec);
	return rc;
}

static void hello_to_a(struct wire *w, const char *name, uint64_t instance)
{
	const char *object = "default/a";
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = name,
		.host = "10.0.0.1",
		.port = 7444,
		.instance = instance,
		.objects = &object,
		.n_objects = 1};

	say(w, WBP_HELLO, &h);
}

START_TEST(object_may_come_after_its_agents)
{
	union wb_msg m;

	open_wire(&train);
	hello_to_a(&train, "train", 11);
	expect(&train, WBP_REJECT, &m);
	ck_assert(m.reject.retry); /* unlike with files: it may yet come */
	ck_assert(train.is_closed);
	wb_msg_free(WBP_REJECT, &m);
	end_wire(&train);
	ck_assert_int_eq(put_object("", 7), 0);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	welcome(&train, 1);
	end_wire(&train);
}
END_TEST

START_TEST(object_that_goes_lets_its_agents_go)
{
	union wb_msg m;
	json_t *st;

	make_model();
	ck_assert_int_eq(put_object("", 7), 0);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	welcome(&train, 1);
	workers(&train, 1, NULL);
	open_wire(&roll);
	hello_to_a(&roll, "roll", 12);
	welcome(&roll, 1);
	workers(&roll, 2, "e1");
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, map_digest, &map_bytes);
	ck_assert_ptr_nonnull(job_work);
	st = wb_serve_status(s, "default/a");
	ck_assert_int_eq(json_integer_value(json_object_get(st, "connectedAgents")), 2);
	json_decref(st);
	wb_serve_remove(s, "default/a");
	run_job(); /* its result is dropped */
	ck_assert_ptr_null(wb_serve_status(s, "default/a"));
	want(&train, manifest_digest);
	want(&train, map_digest);
	expect(&train, WBP_DRAIN, &m);
	wb_msg_free(WBP_DRAIN, &m);
	ck_assert(train.is_closed && roll.is_closed);
	/* The same name again is another object; the old connections end after. */
	ck_assert_int_eq(put_object("", 8), 0);
	end_both();
	st = wb_serve_status(s, "default/a");
	ck_assert_int_eq(json_integer_value(json_object_get(st, "connectedAgents")), 0);
	json_decref(st);
}
END_TEST

START_TEST(object_made_again_is_another_one)
{
	uint64_t looks;

	ck_assert_int_eq(put_object("", 7), 0);
	looks = wb_serve_looks(s, "default/a");
	ck_assert_int_eq(put_object("", 7), 0);
	ck_assert_uint_eq(wb_serve_looks(s, "default/a"), looks); /* nothing new */
	ck_assert_int_eq(put_object("", 8), 0);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	welcome(&train, 1);
	ck_assert_int_eq(put_object("", 9), 0);
	ck_assert(train.is_closed);
	end_wire(&train);
	ck_assert_uint_eq(wb_serve_looks(s, "default/b"), 0);
	wb_serve_remove(s, "default/b");
}
END_TEST

START_TEST(standby_names_the_leader)
{
	union wb_msg m;

	wb_serve_redirect(s, "10.0.0.9", 7443);
	open_wire(&train);
	hello_to_a(&train, "train", 11);
	expect(&train, WBP_REDIRECT, &m);
	ck_assert_str_eq(m.redirect.host, "10.0.0.9");
	ck_assert_uint_eq(m.redirect.port, 7443);
	ck_assert(train.is_closed);
	wb_msg_free(WBP_REDIRECT, &m);
	end_wire(&train);
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("serve");
	TCase *tc = tcase_create("agents");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, hello_to_activate);
	tcase_add_test(tc, reports_are_summed_up_over_clock_offsets);
	tcase_add_test(tc, planner_refusal_names_workers);
	tcase_add_test(tc, other_protocol_version_is_refused_with_a_sentence);
	tcase_add_test(tc, unknown_object_is_refused_and_names_those_there_are);
	tcase_add_test(tc, another_message_before_hello_is_refused);
	tcase_add_test(tc, truncated_frame_is_refused);
	tcase_add_test(tc, content_under_a_wrong_digest_is_refused);
	tcase_add_test(tc, content_out_of_order_is_refused);
	tcase_add_test(tc, adapter_staging_must_agree_with_the_spec);
	tcase_add_test(tc, silent_agent_is_closed_and_then_lost);
	tcase_add_test(tc, drain_is_not_a_loss);
	tcase_add_test(tc, operator_that_leaves_says_so);
	tcase_add_test(tc, destroy_while_a_job_runs_is_safe);
	suite_add_tcase(su, tc);
	tc = tcase_create("objects");
	tcase_add_checked_fixture(tc, open_set_up, tear_down);
	tcase_add_test(tc, object_may_come_after_its_agents);
	tcase_add_test(tc, object_that_goes_lets_its_agents_go);
	tcase_add_test(tc, object_made_again_is_another_one);
	tcase_add_test(tc, standby_names_the_leader);
	suite_add_tcase(su, tc);
	return su;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int n;

	srunner_run_all(sr, CK_ENV);
	n = srunner_ntests_failed(sr);
	srunner_free(sr);
	return n ? EXIT_FAILURE : EXIT_SUCCESS;
}
