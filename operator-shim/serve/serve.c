/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys the operator's endpoint, finds objects, and carries out reconcile's
 * actions. */
#include "base/buf.h"
#include "base/mem.h"
#include "operator-shim/serve/internal.h"
#include "weightbridge/version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HEARTBEAT_TIMEOUT_S 15u
#define LARGE_MEMORY (UINT64_C(64) << 30)

struct wb_reconcile_now wb__serve_now(const struct wb_serve *s)
{
	return (struct wb_reconcile_now){wb_now_ns(s->env.clock), s->env.wall_ns(s->env.ctx)};
}

struct object *wb__serve_object(const struct wb_serve *s, const char *name)
{
	struct object *by_name = NULL;
	const char *key;
	unsigned n = 0;

	if (!name || !*name)
		return s->n_object == 1 ? s->object[0] : NULL;
	key = wb_names_find(&s->by_key, name);
	if (key)
		return (struct object *)(uintptr_t)(key - offsetof(struct object, key));
	/* A name without a namespace: used on one machine, or where all agents share one key. */
	for (size_t i = 0; i < s->n_object && !strchr(name, '/'); i++)
		if (!strcmp(s->object[i]->spec.name, name)) {
			by_name = s->object[i];
			n++;
		}
	return n == 1 ? by_name : NULL;
}

size_t wb__serve_n_of(const struct peer *p)
{
	return p->hello.n_objects ? p->hello.n_objects : p->s->n_object;
}

struct object *wb__serve_nth_of(const struct peer *p, size_t i)
{
	return p->hello.n_objects ? wb__serve_object(p->s, p->hello.objects[i]) : p->s->object[i];
}

uint64_t wb__serve_heartbeat_timeout_ns(const struct peer *p)
{
	uint32_t least = UINT32_MAX;

	for (size_t i = 0; i < wb__serve_n_of(p); i++) {
		const struct object *o = wb__serve_nth_of(p, i);

		if (o)
			least = WB_MIN(least, o->spec.heartbeat_timeout_s);
	}
	return (least == UINT32_MAX ? HEARTBEAT_TIMEOUT_S : least) * WB_NS_PER_S;
}

static int make_budget(struct wb_serve *s, const struct wb_budget_limits *given)
{
	struct wb_budget_limits l;

	wb_budget_size(LARGE_MEMORY, &l);
	return wb_budget_create(given ? given : &l, &s->budget);
}

int wb_serve_create(const struct wb_serve_opts *o, const struct wb_serve_env *env,
	struct wb_serve **out, struct wb_err *err)
{
	struct wb_serve *s = wb_zalloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (!s)
		return wb_err_set(err, rc, "out of memory");
	s->env = *env;
	s->created_wall_ns = env->wall_ns(env->ctx);
	snprintf(s->name, sizeof(s->name), "%s", o->name);
	s->settle_ns = o->settle_ns;
	s->n_series = WB_MIN(o->n_series, (unsigned)WB_SERVE_SERIES_MAX);
	s->is_open = o->n_spec == 0;
	s->check_ns = WB_NEVER;
	TAILQ_INIT(&s->touched);
	TAILQ_INIT(&s->stale);
	TAILQ_INIT(&s->keeping);
	TAILQ_INIT(&s->series);
	TAILQ_INIT(&s->waiting);
	rc = wb_metrics_create(wb_serve_metric_table, WB_SM_COUNT, &s->metrics);
	if (rc == 0)
		rc = make_budget(s, o->limits);
	if (rc == 0)
		rc = env->random(env->ctx, &s->operator_id, sizeof(s->operator_id));
	/* 63 bits, so that every JSON parser can read it as an integer; and not 0, which means
	 * unknown. */
	s->operator_id = (s->operator_id >> 1) | 1;
	for (size_t i = 0; i < o->n_spec && rc == 0; i++)
		rc = wb__serve_add_object(s, &(struct wb_serve_object_desc){.spec = &o->spec[i],
						     .uid = wb_spec_uid(&o->spec[i])});
	if (rc < 0) {
		wb_serve_destroy(s);
		return wb_err_set(err, rc, "start the operator: %s", wb_strerror(rc));
	}
	wb_metric_set(s->metrics, WB_SM_BUILD_INFO, WB_LABELS(WB_VERSION), 1);
	*out = s;
	return 0;
}

void wb_serve_destroy(struct wb_serve *s)
{
	struct peer *p;

	if (!s)
		return;
	wb__serve_forget_jobs(s, NULL);
	while ((p = s->peer)) {
		s->peer = p->next;
		p->s = NULL; /* its last callback frees it */
		wb_chan_close(p->ch);
	}
	for (size_t i = 0; i < s->n_object; i++) {
		wb_names_drop(&s->by_key, s->object[i]->key);
		wb__serve_free_object(s->object[i]);
	}
	wb_free(s->object);
	wb_metrics_destroy(s->metrics);
	wb_budget_put(s->budget);
	wb_free(s);
}

size_t wb_serve_n_agent(const struct wb_serve *s)
{
	size_t n = 0;

	for (const struct peer *p = s->peer; p; p = p->next)
		n += wb_session_is_up(&p->session);
	return n;
}

struct wb_metrics *wb_serve_own_metrics(struct wb_serve *s)
{
	return s->metrics;
}

void wb_serve_refused(struct wb_serve *s, const char *peer, const struct wb_err *why)
{
	wb_metric_add(s->metrics, WB_SM_REFUSED, WB_LABELS("connection"), 1);
	if (wb__serve_may_log(s, LOG_OF_CONNECTIONS))
		WB_LOG_WRN(MOD, "connection refused", WB_S("peer", peer), WB_S("why", why->msg));
}

/* ---- actions ---- */

static void need_blob(struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a)
{
	enum wb_content kind = a->is_manifest ? WB_CONTENT_MANIFEST : WB_CONTENT_MAP;
	struct peer *p;

	if (wb__serve_find_blob(o, a->digest, kind)) {
		wb_reconcile_blob(wb__serve_touch(o), wb__serve_now(s), a->digest, 0, NULL);
		return;
	}
	p = wb__serve_peer(s, a->agent);
	if (p)
		wb__serve_ask_for(p, o, a->digest, kind);
}

static void reject(struct wb_serve *s, const struct object *o, const struct wb_reconcile_action *a)
{
	struct wb_msg_reject m = {.code = a->code,
		.sentence = a->sentence,
		.object = o->key,
		.worker = a->worker + 1};
	struct peer *p = wb__serve_peer(s, a->agent);

	wb_metric_add(s->metrics, WB_SM_REFUSED, WB_LABELS("worker"), 1);
	wb__serve_log_worker(s, o, a->sentence);
	if (!p)
		return;
	if (a->reason)
		wb__serve_tell(o, p, a->reason, a->sentence);
	(void)wb_session_send(&p->session, WBP_REJECT, &m);
}

static void notice(struct wb_serve *s, const struct object *o, const struct wb_reconcile_action *a)
{
	struct wb_msg_progress m = {.object = o->key, .sentence = a->sentence, .code = a->code};
	struct peer *p = wb__serve_peer(s, a->agent);

	if (p)
		(void)wb_session_send(&p->session, WBP_PROGRESS, &m);
}

static void act(struct wb_serve *s, struct object *o, const struct wb_reconcile_action *a)
{
	int rc;

	switch (a->what) {
	case WB_DO_NEED_BLOB:
		need_blob(s, o, a);
		break;
	case WB_DO_PLAN:
		rc = wb__serve_start_job(s, o, a->job);
		if (rc < 0)
			WB_LOG_ERR(MOD, "planning did not start", WB_S("object", o->key),
				WB_S("why", wb_strerror(rc)));
		break;
	case WB_DO_SEND_PLAN:
		wb__serve_send_plan(s, o, a);
		break;
	case WB_DO_ACTIVATE:
		wb__serve_send_activate(s, o, a);
		break;
	case WB_DO_REJECT:
		reject(s, o, a);
		break;
	case WB_DO_NOTICE:
		notice(s, o, a);
		break;
	case WB_DO_EVENT:
		WB_LOG_INFO(MOD, a->reason, WB_S("object", o->key), WB_S("text", a->sentence));
		if (a->result)
			wb__serve_count_transfer(s, o, a->result);
		if (s->env.event)
			s->env.event(s->env.ctx, &(struct wb_serve_event){.object = o->key,
							 .reason = a->reason,
							 .text = a->sentence,
							 .about = a->about});
		break;
	}
}

struct wb_reconcile *wb__serve_touch(struct object *o)
{
	if (!o->is_touched)
		TAILQ_INSERT_TAIL(&o->s->touched, o, touched);
	o->is_touched = true;
	return o->r;
}

/* The actions are done: note when reconcile wants to look again, and tell if the status may have
 * changed. */
static void settle(struct wb_serve *s, struct object *o)
{
	uint64_t looks = wb_reconcile_looks(o->r);

	wb_dues_set(&s->dues, &o->due, wb_reconcile_due_ns(o->r));
	if (looks == o->looks_told)
		return;
	o->looks_told = looks;
	wb__serve_stale(o);
	if (s->env.changed)
		s->env.changed(s->env.ctx, o->key);
}

static void act_on(struct wb_serve *s, struct object *o)
{
	struct wb_reconcile_action a;

	TAILQ_REMOVE(&s->touched, o, touched);
	o->is_touched = false;
	while (wb_reconcile_take(o->r, &a)) {
		act(s, o, &a);
		wb_free(a.sentence);
	}
	settle(s, o);
}

void wb__serve_check_by(struct wb_serve *s, uint64_t at_ns)
{
	s->check_ns = WB_MIN(s->check_ns, at_ns);
}

void wb__serve_act(struct wb_serve *s)
{
	/* Actions report to reconcile, which touches objects again and calls this function: the
	 * loop below of the first call handles these objects too. */
	if (s->is_acting)
		return;
	s->is_acting = true;
	do {
		while (!TAILQ_EMPTY(&s->touched))
			act_on(s, TAILQ_FIRST(&s->touched));
		if (s->check_ns <= wb_now_ns(s->env.clock)) {
			s->check_ns = WB_NEVER;
			wb__serve_check_by(s, wb__serve_check_peers(s));
		}
	} while (!TAILQ_EMPTY(&s->touched));
	s->is_acting = false;
	s->env.arm(s->env.ctx, WB_MIN(s->check_ns, wb_dues_at(&s->dues)));
}

void wb_serve_tick(struct wb_serve *s)
{
	struct wb_reconcile_now now = wb__serve_now(s);
	struct wb_due *e;

	while ((e = wb_dues_take(&s->dues, now.ns)))
		wb_reconcile_tick(wb__serve_touch(wb_container_of(e, struct object, due)), now);
	wb__serve_act(s);
}

void wb_serve_drain(struct wb_serve *s, const char *why)
{
	struct wb_msg_drain m = {.sentence = why};

	s->is_draining = true;
	for (struct peer *p = s->peer; p; p = p->next) {
		if (wb_session_is_up(&p->session))
			(void)wb_session_send(&p->session, WBP_DRAIN, &m);
		wb_session_end(&p->session, 0, "%s", why);
	}
}
