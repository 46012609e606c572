/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_serve.h"

#include "planner/parts.h"

struct wb_fake_clock clk;
struct wb_serve *s;
uint64_t due;
void (*job_work)(void *), (*job_done)(void *);
void *job_cookie;
static uint8_t seed;

static int wire_send(struct wb_chan *ch, const void *frame, size_t bytes)
{
	struct wire *w = wb_container_of(ch, struct wire, ch);

	if (w->is_closed)
		return -ENOTCONN;
	wb_buf_put(&w->out, frame, bytes);
	w->queued += w->is_slow ? bytes : 0;
	return 0;
}

static void give_back(struct wire *w)
{
	for (unsigned i = 0; i < w->n_lent; i++)
		w->lent[i].put(w->lent[i].cookie);
	w->n_lent = 0;
}

static int wire_send_lent(
	struct wb_chan *ch, const void *head, size_t bytes, const struct wb_lent *rest)
{
	struct wire *w = wb_container_of(ch, struct wire, ch);
	int rc = wire_send(ch, head, bytes);

	if (rc < 0)
		return rc;
	(void)wire_send(ch, rest->data, rest->bytes);
	ck_assert_uint_lt(w->n_lent, WB_ARRAY_SIZE(w->lent));
	w->lent[w->n_lent++] = *rest;
	if (!w->is_slow)
		give_back(w);
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
	return ((const struct wire *)(const void *)ch)->queued;
}

static int wire_binding(const struct wb_chan *ch, uint8_t *out)
{
	(void)ch;
	memset(out, 0xab, WB_CHAN_BINDING_BYTES);
	return 0;
}

static int wire_trust(struct wb_chan *ch, enum wb_chan_trust how_far)
{
	struct wire *w = wb_container_of(ch, struct wire, ch);

	w->trust[how_far]++;
	return how_far == WB_CHAN_CLAIMS && w->is_crowded ? -EUSERS : 0;
}

static void wire_resume(struct wb_chan *ch)
{
	wb_container_of(ch, struct wire, ch)->n_resumed++;
}

static const struct wb_chan_ops wire_ops = {.send = wire_send,
	.send_lent = wire_send_lent,
	.close = wire_close,
	.peer = wire_peer,
	.identity = wire_peer,
	.queued = wire_queued,
	.binding = wire_binding,
	.trust = wire_trust,
	.resume = wire_resume};

uint64_t wall(void *ctx)
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

void run_job(void)
{
	void (*w)(void *) = job_work;

	ck_assert_ptr_nonnull(w);
	w(job_cookie);
	job_work = NULL; /* the next one may begin at once */
	job_done(job_cookie);
}

const char spec_text[] =
	"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
	"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}}\n";

void fill_env(struct wb_serve_env *env)
{
	env->clock = &clk.clock;
	env->wall_ns = wall;
	env->random = fill_random;
	env->arm = arm;
	env->work = work;
}

void start_serve(struct wb_serve_opts o, struct wb_serve_env env)
{
	struct wb_err err = {0};

	wb_log_level_max = -1;
	wb_fake_clock_init(&clk, 1000 * S);
	o.name = "op";
	fill_env(&env);
	ck_assert_int_eq(wb_serve_create(&o, &env, &s, &err), 0);
}

void set_up_serve(void)
{
	set_up_limited_serve(NULL);
}

struct wb_spec *load_specs(const char *text, size_t *n_out)
{
	struct wb_spec *spec = NULL;
	struct wb_err err = {0};

	ck_assert_msg(
		wb_spec_load("f", text, strlen(text), &spec, n_out, &err) == 0, "%s", err.msg);
	return spec;
}

struct wb_spec *object_spec(const char *object, const char *more)
{
	const char *slash = strchr(object, '/');
	char text[512];
	size_t n;

	snprintf(text, sizeof(text),
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
		"metadata: {name: %s, namespace: %.*s}\n"
		"spec: {trainer: {workers: 1}, rollout: {workersPerEngine: 1}%s}\n",
		slash + 1, (int)(slash - object), object, more);
	return load_specs(text, &n);
}

int put_spec(struct wb_spec *spec, struct wb_serve_object_desc with, struct wb_err *err)
{
	int rc;

	with.spec = spec;
	rc = wb_serve_put(s, &with, err);
	wb_free(spec);
	return rc;
}

void set_up_limited_serve(const struct wb_budget_limits *limits)
{
	size_t n = 0;
	struct wb_spec *spec = load_specs(spec_text, &n);

	start_serve((struct wb_serve_opts){.spec = spec,
			    .n_spec = n,
			    .n_series = WB_SERVE_SERIES_MAX,
			    .limits = limits},
		(struct wb_serve_env){0});
	wb_free(spec);
}

void tear_down_serve(void)
{
	if (job_work)
		run_job(); /* it has what is its own to give back */
	wb_serve_destroy(s);
	s = NULL;
}

struct wire train, roll;
uint32_t roll_version;

void open_wire(struct wire *w)
{
	*w = (struct wire){.version = w == &roll ? roll_version : 0};
	w->ch.ops = &wire_ops;
	wb_buf_init(&w->out, 16 << 20);
	wb_serve_accept(s, &w->ch);
}

void end_wire(struct wire *w)
{
	struct wb_err none = {0};

	give_back(w);
	if (!w->is_told)
		w->ch.cb.on_closed(w->ch.cb.cookie, &w->ch, &none);
	w->is_told = true;
	wb_buf_finish(&w->out);
}

void make_room(struct wire *w)
{
	give_back(w);
	w->queued = 0;
	if (!w->is_closed)
		w->ch.cb.on_room(w->ch.cb.cookie, &w->ch);
}

void agent_says(struct wire *w, uint16_t type, const void *msg)
{
	struct wb_frame f = {.version = w->version ? w->version : WBP_VERSION_MAX, .type = type};
	struct wb_err err = {0};
	struct wb_buf b;

	wb_buf_init(&b, 16 << 20);
	ck_assert_msg(wb_msg_encode(&f, msg, &b, &err) == 0, "%s", err.msg);
	w->ch.cb.on_frame(w->ch.cb.cookie, &w->ch, b.data, b.len);
	wb_buf_finish(&b);
}

uint16_t hear(struct wire *w, union wb_msg *m)
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

void expect(struct wire *w, uint16_t type, union wb_msg *m)
{
	uint16_t got = hear(w, m);

	while (got == WBP_PROGRESS) {
		wb_msg_free(got, m);
		got = hear(w, m);
	}
	ck_assert_str_eq(wb_msg_name(got), wb_msg_name(type));
}

void expect_nothing(struct wire *w)
{
	union wb_msg m;

	expect(w, WBP_NONE, &m);
}

void hello(struct wire *w, const char *name, uint64_t instance)
{
	static const char *const both[] = {"10.0.0.1", "fd00::1"};
	struct wb_msg_hello h = {.version_min = 1,
		.hosts = (void *)(uintptr_t)both,
		.n_hosts = strcmp(name, "train") ? 0 : 2,
		.version_max = w->version ? w->version : WBP_VERSION_MAX,
		.build = "t",
		.agent = name,
		.node = name,
		.host = "10.0.0.1",
		.port = 7444,
		.bulk = "tcp",
		.rail_bytes_per_s = 1000000,
		.instance = instance};

	agent_says(w, WBP_HELLO, &h);
}

void say_workers(struct wire *w, uint32_t role, const char *engine)
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

	agent_says(w, WBP_WORKERS, &m);
}

void content(struct wire *w, uint32_t kind, struct wb_digest d, const struct wb_buf *b)
{
	size_t half = b->len / 2;
	struct wb_msg_content m = {.object = "default/a",
		.kind = kind,
		.digest = d,
		.total_bytes = b->len,
		.data = b->data,
		.n_data = (uint32_t)half};

	agent_says(w, WBP_CONTENT, &m);
	m.offset = half;
	m.data = b->data + half;
	m.n_data = (uint32_t)(b->len - half);
	agent_says(w, WBP_CONTENT, &m);
}

void welcome(struct wire *w, uint64_t term)
{
	union wb_msg m;

	expect(w, WBP_WELCOME, &m);
	ck_assert_uint_eq(m.welcome.term, term);
	ck_assert_uint_eq(m.welcome.heartbeat_ns, 6 * S);
	ck_assert_uint_eq(m.welcome.n_objects, 1);
	ck_assert_str_eq(m.welcome.objects[0].name, "default/a");
	ck_assert_uint_eq(m.welcome.objects[0].rollout_buffer_bytes, 4ull << 30);
	wb_msg_free(WBP_WELCOME, &m);
}

void want(struct wire *w, struct wb_digest d)
{
	char text[WB_DIGEST_TEXT];
	union wb_msg m;

	expect(w, WBP_WANT, &m);
	ck_assert_uint_eq(m.want.n_digests, 1);
	ck_assert_str_eq(m.want.digests[0], wb_digest_text(d, text));
	wb_msg_free(WBP_WANT, &m);
}

/* A small one comes in one piece. */
static void hear_content(struct wire *w, enum wb_content kind, union wb_msg *m)
{
	expect(w, WBP_CONTENT, m);
	ck_assert_uint_eq(m->content.kind, kind);
	ck_assert_uint_eq(m->content.total_bytes, m->content.n_data);
	ck_assert(
		wb_digest_eq(m->content.digest, wb_digest_of(m->content.data, m->content.n_data)));
}

struct wb_plan *hear_share(struct wire *w, struct wb_digest *head)
{
	struct wb_plan *plan = NULL;
	struct wb_err err = {0};
	union wb_msg m, more;

	*head = (struct wb_digest){0};
	if (w->version == 1) {
		hear_content(w, WB_CONTENT_PLAN, &m);
		ck_assert_msg(!wb_plan_decode(m.content.data, m.content.n_data, &plan, &err), "%s",
			err.msg);
		ck_assert(wb_digest_eq(m.content.digest, plan->digest));
	} else {
		hear_content(w, WB_CONTENT_HEAD, &m);
		hear_content(w, WB_CONTENT_PART, &more);
		*head = m.content.digest;
		ck_assert_msg(
			!wb_plan_unpack((struct wb_plan_piece){m.content.data, m.content.n_data},
				(struct wb_plan_piece){more.content.data, more.content.n_data},
				UINT64_MAX, &plan, &err),
			"%s", err.msg);
		wb_msg_free(WBP_CONTENT, &more);
	}
	wb_msg_free(WBP_CONTENT, &m);
	return plan;
}

void take_plan(struct wire *w, uint64_t number)
{
	struct wb_msg_ready r = {.object = "default/a", .epoch = {1, number}};
	struct wb_digest head;
	struct wb_plan *plan = hear_share(w, &head);
	union wb_msg m;

	r.digest = plan->digest;
	ck_assert_uint_eq(plan->n_worker, 2);
	expect(w, WBP_PLAN, &m);
	ck_assert(wb_digest_eq(m.plan.digest, plan->digest));
	ck_assert(wb_digest_eq(m.plan.head, head));
	if (plan->is_part)
		ck_assert_str_eq(m.plan.agents[plan->domain].agent, w == &train ? "train" : "roll");
	wb_plan_destroy(plan);
	ck_assert_uint_eq(m.plan.epoch.term, 1);
	ck_assert_uint_eq(m.plan.epoch.number, number);
	ck_assert_uint_eq(strlen(m.plan.key), 64);
	ck_assert_uint_eq(m.plan.n_agents, 2);
	ck_assert_str_eq(m.plan.agents[0].agent, "train");
	ck_assert_str_eq(m.plan.agents[1].agent, "roll");
	/* All addresses of an agent that has several go to the others. */
	ck_assert_uint_eq(m.plan.agents[0].n_hosts, w->version == 1 ? 0 : 2);
	if (w->version != 1) {
		ck_assert_str_eq(m.plan.agents[0].hosts[0], "10.0.0.1");
		ck_assert_str_eq(m.plan.agents[0].hosts[1], "fd00::1");
	}
	ck_assert_uint_eq(m.plan.agents[1].n_hosts, 0);
	ck_assert_uint_eq(m.plan.agents[1].workers[0], 1);
	ck_assert_uint_eq(m.plan.agents[1].ids[0], 5);
	ck_assert_str_eq(m.plan.agents[1].names[0], "roll/5");
	ck_assert_uint_eq(m.plan.n_engines, 1);
	ck_assert_str_eq(m.plan.engines[0], "e1");
	wb_msg_free(WBP_PLAN, &m);
	agent_says(w, WBP_READY, &r);
}

void activated(struct wire *w)
{
	union wb_msg m;

	expect(w, WBP_ACTIVATE, &m);
	ck_assert_uint_eq(m.activate.epoch.term, 1);
	wb_msg_free(WBP_ACTIVATE, &m);
}

void join_both(void)
{
	make_model();
	open_wire(&train);
	hello(&train, "train", 11);
	welcome(&train, 1);
	say_workers(&train, 1, NULL);
	expect_nothing(&train);
	open_wire(&roll);
	hello(&roll, "roll", 12);
	welcome(&roll, 1);
	say_workers(&roll, 2, "e1");
	want(&train, manifest_digest);
	want(&train, map_digest);
	expect_nothing(&roll); /* the same map: asked for once */
}

void run_job_to_active(void)
{
	join_both();
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

void end_both(void)
{
	end_wire(&train);
	end_wire(&roll);
	free_model();
}

json_t *status(void)
{
	json_t *o = wb_serve_object(s, "a"), *st = json_incref(json_object_get(o, "status"));

	json_decref(o);
	return st;
}

const char *ready_reason(void)
{
	static char text[128];
	json_t *st = status();
	json_t *c = json_array_get(json_object_get(st, "conditions"), 0);

	snprintf(text, sizeof(text), "%s %s", json_string_value(json_object_get(c, "status")),
		json_string_value(json_object_get(c, "reason")));
	json_decref(st);
	return text;
}
