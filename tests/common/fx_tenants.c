/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_tenants.h"

#include "operator-shim/serve/metrics.h"

struct wire wires[WIRES];
char events[EVENTS_BYTES];

static void event(void *ctx, const struct wb_serve_event *e)
{
	size_t at = strlen(events);

	(void)ctx;
	snprintf(events + at, sizeof(events) - at, "%s %s\n", e->object, e->reason);
}

void start_tenants(const char *overrides, uint64_t planning_bytes)
{
	struct wb_budget_limits l;
	char text[200], *at = text, *one;

	wb_budget_size(UINT64_C(1) << 30, &l);
	snprintf(text, sizeof(text), "%s", overrides);
	while ((one = strsep(&at, " ")))
		if (*one)
			ck_assert_int_eq(wb_budget_override(&l, one), 0);
	if (planning_bytes)
		l.planning_bytes = planning_bytes;
	start_serve((struct wb_serve_opts){.limits = &l}, (struct wb_serve_env){.event = event});
	make_model();
	events[0] = '\0';
	job_work = NULL;
	job_cookie = NULL;
}

void finish_tenants(void)
{
	tear_down_serve();
	free_model();
}

int put_object(const char *object, const char *more, struct wb_err *err)
{
	return put_spec(object_spec(object, more),
		(struct wb_serve_object_desc){.uid = wb_hash64(object, strlen(object), 0) | 1},
		err);
}

void must_put(const char *object)
{
	struct wb_err err = {0};

	ck_assert_msg(put_object(object, "", &err) == 0, "%s", err.msg);
}

void hello_of(struct wire *w, const char *agent, const char *object)
{
	struct wb_msg_hello h = {.version_min = 1,
		.version_max = WBP_VERSION_MAX,
		.agent = agent,
		.host = "10.0.0.1",
		.port = 7444,
		.instance = wb_hash64(agent, strlen(agent), wb_hash64(object, strlen(object), 0)),
		.objects = &object,
		.n_objects = 1};

	open_wire(w);
	agent_says(w, WBP_HELLO, &h);
}

void workers_of(struct wire *w, const char *object, uint32_t role, struct wb_digest manifest,
	struct wb_digest map, uint32_t n)
{
	struct wb_p_worker p[16] = {0};
	struct wb_msg_workers m = {.object = object, .workers = p, .n_workers = n};

	for (uint32_t i = 0; i < n; i++)
		p[i] = (struct wb_p_worker){.id = i,
			.name = "w",
			.role = role,
			.engine = "e",
			.rank = -1,
			.manifest = manifest,
			.map = map,
			.mem_kind = 1,
			.version = -1};
	agent_says(w, WBP_WORKERS, &m);
}

void welcomed(struct wire *w)
{
	union wb_msg m;

	expect(w, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
}

void join_pair(struct wire *t, struct wire *r, const char *object)
{
	hello_of(t, "train", object);
	welcomed(t);
	workers_of(t, object, 1, manifest_digest, map_digest, 1);
	hello_of(r, "roll", object);
	welcomed(r);
	workers_of(r, object, 2, manifest_digest, map_digest, 1);
}

void content_of(struct wire *w, const char *object, uint32_t kind, struct wb_digest d,
	uint64_t total, uint64_t offset, const void *data, size_t n)
{
	struct wb_msg_content m = {.object = object,
		.kind = kind,
		.digest = d,
		.total_bytes = total,
		.offset = offset,
		.data = data,
		.n_data = (uint32_t)n};

	agent_says(w, WBP_CONTENT, &m);
}

void upload(struct wire *w, const char *object)
{
	content_of(w, object, 1, manifest_digest, manifest_bytes.len, 0, manifest_bytes.data,
		manifest_bytes.len);
	content_of(w, object, 2, map_digest, map_bytes.len, 0, map_bytes.data, map_bytes.len);
}

void refused(struct wire *w, const char *words)
{
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_REJECT || m.reject.worker) {
		ck_assert_str_ne(wb_msg_name(type), wb_msg_name(WBP_NONE));
		wb_msg_free(type, &m);
	}
	ck_assert_msg(strstr(m.reject.sentence, words), "%s", m.reject.sentence);
	ck_assert_int_eq(m.reject.code, -EDQUOT);
	ck_assert(m.reject.retry && w->is_closed);
	wb_msg_free(WBP_REJECT, &m);
}

const char *condition_of(const char *object, const char *type)
{
	static char text[1200];
	json_t *st = wb_serve_status(s, object), *c;
	size_t i;

	text[0] = '\0';
	json_array_foreach(json_object_get(st, "conditions"), i, c)
	{
		if (!strcmp(json_string_value(json_object_get(c, "type")), type))
			snprintf(text, sizeof(text), "%s: %s",
				json_string_value(json_object_get(c, "reason")),
				json_string_value(json_object_get(c, "message")));
	}
	json_decref(st);
	return text;
}

void condition_says(const char *object, const char *type, const char *reason, const char *words)
{
	const char *text = condition_of(object, type);

	ck_assert_msg(!strncmp(text, reason, strlen(reason)) && strstr(text, words), "%s", text);
}

void gets_plan_of(struct wire *w)
{
	union wb_msg m;
	uint16_t type;

	while ((type = hear(w, &m)) != WBP_PLAN) {
		ck_assert_str_ne(wb_msg_name(type), wb_msg_name(WBP_NONE));
		wb_msg_free(type, &m);
	}
	wb_msg_free(WBP_PLAN, &m);
}

void victim_gets_its_plan(void)
{
	must_put("victim/v");
	join_pair(&wires[6], &wires[7], "victim/v");
	upload(&wires[6], "victim/v");
	run_job();
	gets_plan_of(&wires[6]);
	gets_plan_of(&wires[7]);
	end_wire(&wires[6]);
	end_wire(&wires[7]);
}

uint64_t budget_used(enum wb_budget_kind kind)
{
	static const char *const scope[] = {"all", "namespace", "object"};
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	wb_buf_finish(&b);
	return (uint64_t)wb_metric_get(wb_serve_own_metrics(s), WB_SM_BUDGET_USED,
		WB_LABELS(wb_budget_name(kind), scope[0]));
}
