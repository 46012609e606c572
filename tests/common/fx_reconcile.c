/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_reconcile.h"

struct wb_reconcile *r;
struct wb_reconcile_now now;
static struct wb_buf out;

struct wb_spec spec_of(uint32_t trainers, uint32_t per_engine)
{
	static char text[512];
	struct wb_spec *s = NULL, got;
	struct wb_err err = {0};
	size_t n = 0;

	snprintf(text, sizeof(text),
		"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {name: a}\n"
		"spec: {trainer: {workers: %u}, rollout: {workersPerEngine: %u}}\n",
		trainers, per_engine);
	ck_assert_msg(wb_spec_load("f", text, strlen(text), &s, &n, &err) == 0, "%s", err.msg);
	got = *s;
	wb_free(s);
	return got;
}

void make(const struct wb_spec *spec, uint64_t id)
{
	wb_reconcile_destroy(r);
	ck_assert_int_eq(
		wb_reconcile_create(&(struct wb_reconcile_opts){.operator_id = id}, spec, &r), 0);
}

void set_up(void)
{
	struct wb_spec s = spec_of(2, 1);

	now = (struct wb_reconcile_now){1000 * S, 1700000000 * S};
	wb_buf_init(&out, 1 << 20);
	make(&s, 77);
}

void tear_down(void)
{
	wb_reconcile_destroy(r);
	r = NULL;
	wb_buf_finish(&out);
}

struct wb_digest dig(unsigned v)
{
	return (struct wb_digest){0, v};
}

static void put_action(const struct wb_reconcile_action *a)
{
	static const char *const names[] = {
		"need", "plan", "send", "activate", "reject", "notice", "event"};
	size_t n;

	if (out.len)
		wb_buf_printf(&out, " ");
	wb_buf_printf(&out, "%s", names[a->what]);
	if (a->what == WB_DO_NEED_BLOB)
		wb_buf_printf(&out, "(%s%u@%u)", a->is_manifest ? "M" : "m", (unsigned)a->digest.lo,
			a->agent);
	if (a->what == WB_DO_PLAN)
		wb_buf_printf(&out, "(%u)", a->job);
	if (a->what == WB_DO_SEND_PLAN || a->what == WB_DO_ACTIVATE)
		wb_buf_printf(&out, "(%u:%u.%u)", a->agent, (unsigned)a->epoch.term,
			(unsigned)a->epoch.number);
	if (a->what == WB_DO_ACTIVATE) {
		const struct wb_reconcile_feed *f = wb_reconcile_feeds(r, &n);

		for (size_t i = 0; i < n; i++)
			wb_buf_printf(&out, "<-%s:%s/%u#%u", f[i].engine, f[i].source,
				(unsigned)f[i].transfer, f[i].attempt);
	}
	if (a->what == WB_DO_REJECT)
		wb_buf_printf(&out, "(%u/%d: %s)", a->agent, (int)a->worker, a->sentence);
	if (a->what == WB_DO_EVENT)
		wb_buf_printf(&out, "(%s)", a->reason);
	if (a->what == WB_DO_NOTICE)
		wb_buf_printf(&out, "(%u %d %s)", a->agent, a->code, a->sentence);
}

const char *did(bool with_notices)
{
	struct wb_reconcile_action a;

	wb_buf_reset(&out);
	while (wb_reconcile_take(r, &a)) {
		if (a.what != WB_DO_NOTICE || with_notices)
			put_action(&a);
		wb_free(a.sentence);
	}
	return wb_buf_cstr(&out);
}

struct wb_reconcile_worker trainer(uint32_t id, int64_t rank, unsigned map)
{
	return (struct wb_reconcile_worker){.id = id,
		.role = WB_ROLE_TRAINER,
		.rank = rank,
		.map = dig(map),
		.manifest = dig(1),
		.plan_index = WB_RECONCILE_NONE,
		.waiting_index = WB_RECONCILE_NONE};
}

struct wb_reconcile_worker rollout(uint32_t id, const char *engine, unsigned map)
{
	struct wb_reconcile_worker w = trainer(id, -1, map);

	w.role = WB_ROLE_ROLLOUT;
	w.engine = engine;
	return w;
}

struct wb_reconcile_agent agent(
	uint32_t id, const char *name, const struct wb_reconcile_worker *w, size_t n)
{
	return (struct wb_reconcile_agent){
		.id = id, .name = name, .instance = id, .worker = w, .n_worker = n};
}

void up(struct wb_reconcile_agent a)
{
	ck_assert_int_eq(wb_reconcile_agent_up(r, now, &a), 0);
}

void workers(uint32_t agent_id, const struct wb_reconcile_worker *w, size_t n)
{
	ck_assert_int_eq(wb_reconcile_workers(r, now, agent_id, w, n), 0);
}

void blobs(unsigned from, unsigned to)
{
	for (unsigned i = from; i <= to; i++)
		ck_assert_int_eq(wb_reconcile_blob(r, now, dig(i), 0, NULL), 0);
}

void later(uint64_t ns)
{
	now.ns += ns;
	ck_assert_int_eq(wb_reconcile_tick(r, now), 0);
}

void planned(uint32_t job, unsigned digest)
{
	struct wb_reconcile_planned p = {.job = job,
		.plan = dig(digest),
		.model_bytes = 1190000000,
		.rounds = 3,
		.worker_bound_ns = 153000000,
		.bound = "rollout ingress"};

	ck_assert_int_eq(wb_reconcile_planned(r, now, &p), 0);
}

void ready(uint32_t agent_id, uint64_t term, uint64_t number)
{
	ck_assert_int_eq(wb_reconcile_ready(r, now, agent_id,
				 (struct wb_reconcile_epoch){term, number}, 0, NULL),
		0);
}

void engine(const char *name, enum wb_engine_state s, uint64_t transfer, bool is_feed)
{
	struct wb_reconcile_engine_report e = {.engine = name,
		.state = s,
		.transfer = transfer,
		.version = (int64_t)transfer * 10,
		.is_feed = is_feed};

	ck_assert_int_eq(wb_reconcile_engine(r, now, &e), 0);
}

void transfer(uint64_t t, bool is_end, enum wb_result result)
{
	struct wb_reconcile_transfer_report rep = {.transfer = t,
		.version = (int64_t)t * 10,
		.agent = "train",
		.instance = 1,
		.epoch = wb_reconcile_active(r, NULL),
		.is_end = is_end,
		.result = result,
		.start_wall_ns = now.wall_ns,
		.end_wall_ns = now.wall_ns + S,
		.ewtt_ns = 188 * WB_NS_PER_MS,
		.stall_ns = 138 * WB_NS_PER_MS,
		.network_bytes = 10,
		.delivered_bytes = 235000000,
		.culprit.worker = WB_RECONCILE_NONE};

	ck_assert_int_eq(wb_reconcile_transfer(r, now, &rep), 0);
}

void run_two_engines(void)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_spec s = spec_of(2, 1);

	s.engines = 2;
	make(&s, 77);
	up(agent(1, "train", t, 2));
	up(agent(2, "roll-a", &e1, 1));
	up(agent(3, "roll-b", &e2, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ready(1, 1, 1);
	ready(2, 1, 1);
	ready(3, 1, 1);
	did(false);
	ck_assert_uint_eq(wb_reconcile_active(r, NULL).term, 1);
}

const char *cond(const char *type, const char **reason, const char **message)
{
	static char status[16], why[128], text[2048];
	json_t *o = wb_reconcile_status(r), *c;
	size_t i;

	status[0] = '\0';
	json_array_foreach(json_object_get(o, "conditions"), i, c)
	{
		if (strcmp(json_string_value(json_object_get(c, "type")), type) != 0)
			continue;
		snprintf(status, sizeof(status), "%s",
			json_string_value(json_object_get(c, "status")));
		snprintf(why, sizeof(why), "%s", json_string_value(json_object_get(c, "reason")));
		snprintf(
			text, sizeof(text), "%s", json_string_value(json_object_get(c, "message")));
	}
	json_decref(o);
	if (reason)
		*reason = why;
	if (message)
		*message = text;
	return status;
}

int64_t field(const char *a, const char *b)
{
	json_t *o = wb_reconcile_status(r), *v = json_object_get(o, a);
	int64_t n;

	v = b ? json_object_get(v, b) : v;
	n = v ? json_integer_value(v) : -1;
	json_decref(o);
	return n;
}
