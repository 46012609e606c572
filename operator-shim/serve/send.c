/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and sends PLAN and ACTIVATE, and fills in an object of WELCOME. */
#include "base/buf.h"
#include "base/fault.h"
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void wb__serve_fill_object(struct object *o, struct wb_p_object *out)
{
	*out = (struct wb_p_object){.name = o->key,
		.uid = o->uid,
		.model = "",
		.sender_staging = o->spec.trainer_staging,
		.receiver_staging = o->spec.rollout_staging,
		.overlap = o->spec.overlap,
		.commit = o->spec.commit_policy,
		.trainer_buffer_bytes = o->spec.trainer_buffer_bytes,
		.rollout_buffer_bytes = o->spec.rollout_buffer_bytes,
		.transfer_deadline_ns = o->spec.transfer_deadline_s * WB_NS_PER_S,
		.step_deadline_ns = o->spec.engine_step_deadline_s * WB_NS_PER_S,
		.plan_deadline_ns = o->spec.plan_deadline_s * WB_NS_PER_S,
		.checksums = o->spec.checksums != WB_CHECKSUMS_NONE,
		.read_back = o->spec.checksums == WB_CHECKSUMS_INSTALLED,
		.encrypted = o->spec.encryption == WB_ENCRYPTION_TLS,
		.allowed = wb_spec_ways(&o->spec, o->ways),
		.last_transfer = wb_reconcile_transfer_seen(o->r)};
}

/* The key of an epoch: made once, and kept so that an agent that reconnects gets the same key.
 * NULL: there are no random bytes. */
static const uint8_t *key_of(struct wb_serve *s, struct object *o, struct wb_reconcile_epoch e)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(o->epoch_key); i++)
		if (o->epoch_key[i].epoch.term == e.term &&
			o->epoch_key[i].epoch.number == e.number)
			return o->epoch_key[i].key;
	o->epoch_key[1] = o->epoch_key[0];
	o->epoch_key[0].epoch = e;
	if (s->env.random(s->env.ctx, o->epoch_key[0].key, KEY_BYTES) < 0) {
		o->epoch_key[0].epoch = (struct wb_reconcile_epoch){0};
		return NULL;
	}
	return o->epoch_key[0].key;
}

static void hex(const uint8_t *p, size_t n, char *out)
{
	static const char digit[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digit[p[i] >> 4];
		out[2 * i + 1] = digit[p[i] & 15];
	}
	out[2 * n] = '\0';
}

const char *wb__serve_worker_name(const struct wb_msg_workers *w, uint32_t id)
{
	for (uint32_t i = 0; i < w->n_workers; i++)
		if (w->workers[i].id == id)
			return w->workers[i].name;
	return "";
}

/* The workers of one endpoint while they are collected. */
struct listed {
	uint32_t *number, *id, *rails; /* owned */
	const char **name; /* owned; the strings are borrowed */
	uint32_t n;
	bool has_rails; /* a worker has rails of its own */
};

static void free_listed(struct listed *r, size_t n)
{
	for (size_t i = 0; r && i < n; i++) {
		wb_free(r[i].number);
		wb_free(r[i].id);
		wb_free(r[i].rails);
		wb_free(r[i].name);
	}
	wb_free(r);
}

static int make_listed(
	const struct wb_reconcile_member *w, size_t n, uint32_t n_domain, struct listed **out)
{
	struct listed *r = wb_zalloc(n_domain, sizeof(*r));
	bool is_whole = r != NULL;

	for (size_t i = 0; r && i < n; i++)
		r[w[i].plan.domain].n++;
	for (uint32_t d = 0; r && d < n_domain; d++) {
		r[d].number = wb_zalloc(r[d].n, sizeof(*r[d].number));
		r[d].id = wb_zalloc(r[d].n, sizeof(*r[d].id));
		r[d].rails = wb_zalloc(r[d].n, sizeof(*r[d].rails));
		r[d].name = wb_zalloc(r[d].n, sizeof(*r[d].name));
		is_whole &= r[d].number && r[d].id && r[d].rails && r[d].name;
		r[d].n = 0;
	}
	if (!is_whole) {
		free_listed(r, n_domain);
		return -ENOMEM;
	}
	*out = r;
	return 0;
}

/* The endpoint of an absent agent has no address, so nobody tries to reach it. */
static void set_absent(
	struct wb_p_endpoint *e, const struct wb_reconcile_member *w, struct listed *r)
{
	*e = (struct wb_p_endpoint){.agent = w->agent_name,
		.host = "",
		.bulk = "",
		.workers = r->number,
		.n_workers = r->n,
		.ids = r->id,
		.n_ids = r->n,
		.names = r->name,
		.n_names = r->n};
}

static void set_endpoint(struct wb_p_endpoint *e, const struct peer *p, const struct listed *r)
{
	*e = (struct wb_p_endpoint){.agent = p->hello.agent,
		.host = p->hello.host,
		.port = p->hello.port,
		.hosts = p->hello.hosts,
		.n_hosts = p->hello.n_hosts,
		.bulk = p->hello.bulk,
		.ways = p->hello.ways,
		.n_ways = p->hello.n_ways,
		.workers = r->number,
		.n_workers = r->n,
		.ids = r->id,
		.n_ids = r->n,
		.names = r->name,
		.n_names = r->n,
		.rails = r->rails,
		.n_rails = r->has_rails ? r->n : 0,
		.version = p->session.version};
}

/* Endpoint i is domain i of the plan.  Strings are borrowed from the peers, lists from @listed. */
static int fill_endpoints(const struct wb_serve *s, const struct object *o, struct wb_msg_plan *m,
	struct listed **listed)
{
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_members(o->r, &n);
	int rc;

	for (size_t i = 0; i < n; i++)
		m->n_agents = WB_MAX(m->n_agents, w[i].plan.domain + 1);
	rc = make_listed(w, n, m->n_agents, listed);
	m->agents = wb_zalloc(m->n_agents, sizeof(*m->agents));
	if (rc < 0 || !m->agents)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct peer *p = wb__serve_peer(s, w[i].agent);
		const struct joined *j = p ? wb__serve_joined(p, o) : NULL;
		struct listed *r = &(*listed)[w[i].plan.domain];

		if (!j && !w[i].is_absent)
			return -ENOTCONN;
		r->number[r->n] = (uint32_t)i;
		r->id[r->n] = w[i].worker;
		r->rails[r->n] = w[i].rails;
		r->has_rails |= w[i].rails != 0;
		if (w[i].is_absent) {
			r->name[r->n++] = "";
			set_absent(&m->agents[w[i].plan.domain], &w[i], r);
			continue;
		}
		r->name[r->n++] = wb__serve_worker_name(&j->workers, w[i].worker);
		set_endpoint(&m->agents[w[i].plan.domain], p, r);
	}
	return 0;
}

static int fill_engines(const struct object *o, struct wb_msg_plan *m)
{
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_members(o->r, &n);

	m->engines = wb_zalloc(n, sizeof(*m->engines));
	if (!m->engines)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (w[i].plan.role == WB_ROLE_ROLLOUT) {
			m->engines[w[i].plan.engine] = w[i].engine;
			m->n_engines = WB_MAX(m->n_engines, w[i].plan.engine + 1);
		}
	return 0;
}

/* The body of PLAN: the message without its frame's head, in a blob that is charged as the plan is.
 * On failure *out stays NULL, so that the next agent tries again. */
static int encode_told(struct wb_serve *s, struct object *o, uint32_t version,
	const struct wb_msg_plan *m, struct blob **out, struct wb_err *err)
{
	struct wb_frame f = {.version = (uint8_t)version, .type = WBP_PLAN};
	struct blob *body;
	uint8_t *data = NULL;
	size_t bytes = 0;
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, (size_t)wb_msg_info(WBP_PLAN)->cap + WB_FRAME_BYTES);
	b.is_secret = true;
	rc = wb_msg_encode(&f, m, &b, err);
	if (rc == 0)
		rc = wb_buf_take(&b, &data, &bytes);
	wb_buf_finish(&b);
	if (rc < 0)
		return rc;
	bytes -= WB_FRAME_BYTES;
	memmove(data, data + WB_FRAME_BYTES, bytes);
	body = wb__serve_blob_make(WB_CONTENT_PLAN, m->digest, data, bytes);
	if (!body)
		return -ENOMEM;
	body->is_secret = true;
	rc = wb__serve_blob_charge(s, o, body, false, err);
	if (rc < 0)
		wb__serve_blob_put(body);
	else
		*out = body;
	return rc;
}

static int make_told(struct wb_serve *s, struct object *o, uint32_t version,
	const struct wb_reconcile_action *a, struct blob **out, struct wb_err *err)
{
	const uint8_t *key = key_of(s, o, a->epoch);
	char text[2 * KEY_BYTES + 1];
	struct wb_msg_plan m = {.object = o->key,
		.epoch = {a->epoch.term, a->epoch.number},
		.digest = a->digest,
		.head = o->next_plan->slice[0].digest,
		.key = text,
		.last_transfer = wb_reconcile_transfer_seen(o->r)};
	struct listed *listed = NULL;
	int rc = key ? 0 : -EIO;

	if (rc == 0) {
		hex(key, KEY_BYTES, text);
		rc = fill_endpoints(s, o, &m, &listed);
	}
	if (rc == 0)
		rc = fill_engines(o, &m);
	if (rc == 0)
		rc = encode_told(s, o, version, &m, out, err);
	free_listed(listed, m.n_agents);
	wb_free(m.agents);
	wb_free(m.engines);
	explicit_bzero(text, sizeof(text));
	return rc;
}

void wb__serve_forget_told(struct object *o)
{
	for (size_t i = 0; i < WB_ARRAY_SIZE(o->told_plan); i++) {
		wb__serve_blob_put(o->told_plan[i].body);
		o->told_plan[i].body = NULL;
	}
}

/* Find or make the body of PLAN.  It is made once for all agents of a protocol version, and kept
 * until the plan, its members or the last transfer change. */
static int tell(struct wb_serve *s, struct object *o, uint32_t version,
	const struct wb_reconcile_action *a, struct blob **out, struct wb_err *err)
{
	struct told_plan *t = &o->told_plan[version - WBP_VERSION_MIN];
	uint64_t last = wb_reconcile_transfer_seen(o->r);
	int rc = 0;

	if (!t->body || t->epoch.term != a->epoch.term || t->epoch.number != a->epoch.number ||
		t->last_transfer != last) {
		wb__serve_blob_put(t->body);
		*t = (struct told_plan){.epoch = a->epoch, .last_transfer = last};
		rc = make_told(s, o, version, a, &t->body, err);
	}
	*out = t->body;
	return rc;
}

void wb__serve_send_plan(struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a)
{
	struct peer *p = wb__serve_peer(s, a->agent);
	struct wb_err err = {0};
	struct share share;
	struct blob *told;
	int rc;

	if (!p || !o->next_plan || !wb_digest_eq(o->next_plan->digest, a->digest)) {
		WB_LOG_ERR(MOD, "plan not sent", WB_S("object", o->key));
		return;
	}
	rc = tell(s, o, p->session.version, a, &told, &err);
	if (rc == 0)
		rc = wb__serve_share(s, o, p, &share, &err);
	if (rc == 0)
		wb__serve_outgo(p, o, a->epoch, &share, told);
	else if (rc == -EDQUOT)
		wb__serve_over(p, &err);
	else if (rc != -ENOTCONN) /* an agent has just left: reconcile decides */
		wb_session_end(&p->session, rc, "its PLAN cannot be made: %s",
			err.code ? err.msg : wb_strerror(rc)); /* the agent will come back */
}

/* The number of an engine in the active plan, which ACTIVATE is about; UINT32_MAX = none. */
static uint32_t engine_number(const struct object *o, const char *name)
{
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_active_members(o->r, &n);

	for (size_t i = 0; i < n; i++)
		if (w[i].plan.role == WB_ROLE_ROLLOUT && !strcmp(w[i].engine, name))
			return w[i].plan.engine;
	return UINT32_MAX;
}

/* The plan that was next is now the active one. */
static void promote(struct object *o, struct wb_digest active)
{
	if (!o->next_plan || !wb_digest_eq(o->next_plan->digest, active) ||
		(o->plan && wb_digest_eq(o->plan->digest, active)))
		return;
	wb__serve_blob_put(o->plan);
	wb__serve_blob_put(o->manifest);
	o->plan = wb__serve_blob_get(o->next_plan);
	o->manifest = wb__serve_blob_get(o->next_manifest);
}

void wb__serve_send_activate(
	struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a)
{
	struct peer *p = wb__serve_peer(s, a->agent);
	size_t n;
	const struct wb_reconcile_feed *f = wb_reconcile_feeds(o->r, &n);
	struct wb_msg_activate m = {.object = o->key,
		.epoch = {a->epoch.term, a->epoch.number},
		.last_transfer = wb_reconcile_transfer_seen(o->r),
		.suspended = o->spec.suspend};
	uint32_t *list;

	promote(o, a->digest);
	if (!p || wb__serve_outgo_activate(p, o, a))
		return;
	list = wb_zalloc(3 * n + 1, sizeof(*list));
	if (!list) {
		wb_session_end(&p->session, -ENOMEM, "memory is short");
		return;
	}
	for (size_t i = 0; i < n; i++) {
		list[i] = engine_number(o, f[i].engine);
		list[n + i] = engine_number(o, f[i].source);
		list[2 * n + i] = f[i].serial;
	}
	m.feed = list;
	m.feed_source = list + n;
	m.feed_attempt = list + 2 * n;
	m.n_feed = m.n_feed_source = m.n_feed_attempt = (uint32_t)n;
	wb_fault_phase(s->env.fault, WB_FAULT_ACTIVATE);
	(void)wb_session_send(&p->session, WBP_ACTIVATE, &m);
	wb_free(list);
}
