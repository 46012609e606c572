/* SPDX-License-Identifier: Apache-2.0 */
/* What the operator says. */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/gate.h"
#include "daemon/oplink_internal.h"
#include "net/loop.h"
#include "proto/beat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "oplink"
#define BEAT_DEFAULT_NS (3 * WB_NS_PER_S)
#define BEAT_MIN_NS (10 * WB_NS_PER_MS)

static void hear_term(struct wb__oplink *l, uint64_t term, uint64_t operator_id)
{
	if (term < l->term)
		return;
	l->term = term;
	l->term_operator = operator_id;
}

/* A connection is for one object. */
static const struct wb_p_object *choose(struct wb__oplink *l, const struct wb_msg_welcome *m)
{
	const char *want = l->object[0] ? l->object : l->served->object;

	for (uint32_t i = 0; i < m->n_objects; i++)
		if (m->n_objects == 1 || !strcmp(m->objects[i].name, want))
			return &m->objects[i];
	return NULL;
}

static void on_welcome(struct wb__oplink *l, const struct wb_msg_welcome *m)
{
	const struct wb_p_object *o = choose(l, m);
	struct wb_session *s = &l->session;
	struct wb_err err = {0};

	if (wb_session_chosen(s, "the operator", m->version, &err) < 0) {
		wb_session_end(s, err.code, "%s", err.msg);
		return;
	}
	if (!o) {
		s->is_refused = true;
		wb_session_end(s, -ENOENT, "%s",
			m->n_objects ? "the operator has several objects: name those of this pod "
				       "with --object"
				     : "the operator has no object for this agent");
		return;
	}
	s->bounds.beat_ns =
		m->heartbeat_ns ? WB_MAX(m->heartbeat_ns, BEAT_MIN_NS) : BEAT_DEFAULT_NS;
	s->bounds.silent_ns = WB_BEATS_MISSED * s->bounds.beat_ns;
	hear_term(l, m->term, m->operator_id);
	snprintf(l->object, sizeof(l->object), "%s", o->name);
	snprintf(l->model, sizeof(l->model), "%s", o->model);
	if (l->id.uid && l->id.uid != o->uid)
		wb_keep_drop(&l->reports); /* of an object of this name that was deleted */
	l->id = wb_object_id_of(o->uid);
	wb__plans_object(l->plans, &l->id, o, wb_beat_patience_ns(s->bounds.beat_ns));
	wb_session_enter(s, WB_SESSION_UP, wb_now_ns(&wb_clock_real));
	l->trouble[0] = '\0';
	l->n_up++;
	wb__oplink_arm(l);
	WB_LOG_INFO(MOD, "operator connected", WB_S("operator", l->address),
		WB_S("name", m->operator_name), WB_S("object", l->object), WB_U("term", m->term));
	wb__apps_check_object(l->a->apps, l->index, l->object, l->model);
	wb__apps_status(l->a->apps, l->index, "agent %s waits for the operator's word on object %s",
		l->a->o.name, l->object);
	(void)wb_keep_send(&l->reports, s, wb_now_ns(&wb_clock_real));
	wb__oplink_look_at_rails(l);
	wb__oplink_workers_changed(l);
}

static void on_reject(struct wb__oplink *l, const struct wb_msg_reject *m)
{
	int code = m->code < 0 && m->code > -100000 ? (int)m->code : -EPERM;

	if (m->worker) { /* one worker, not this agent */
		wb__apps_refuse(l->a->apps, m->worker - 1, code, m->sentence);
		return;
	}
	l->session.is_refused = !m->retry;
	wb_session_end(&l->session, code, "%s", m->sentence);
}

static void on_progress(struct wb__oplink *l, const struct wb_msg_progress *m)
{
	if (m->code < 0)
		wb__apps_give_up(l->a->apps, l->index, (int)m->code, m->sentence);
	wb__apps_awaited(l->a->apps, l->index, m->sentence);
}

static void on_drain(const struct wb__oplink *l, const struct wb_msg_drain *m)
{
	WB_LOG_INFO(
		MOD, "operator leaves", WB_S("operator", l->address), WB_S("reason", m->sentence));
}

static bool is_ours(struct wb__oplink *l, const char *object)
{
	return !strcmp(object, l->object);
}

static void on_content(struct wb__oplink *l, const struct wb_msg_content *m)
{
	struct wb_err err = {0};
	int rc = wb__plans_content(l->plans, m, &err);

	if (rc < 0)
		wb_session_end(&l->session, rc, "%s", err.msg);
}

static void on_redirect(struct wb__oplink *l, const struct wb_msg_redirect *m)
{
	snprintf(l->leader_host, sizeof(l->leader_host), "%s", m->host);
	l->leader_port = (uint16_t)m->port;
	wb_session_end(&l->session, -EAGAIN, "it is a standby; the leader is at %.64s:%u", m->host,
		m->port);
}

static void on_plan(struct wb__oplink *l, const struct wb_msg_plan *m)
{
	wb_fault_phase(l->a->fault, WB_FAULT_PLAN);
	hear_term(l, m->epoch.term, l->term_operator);
	wb__plans_plan(l->plans, m);
}

void wb__oplink_act(struct wb__oplink *l, uint16_t type, union wb_msg *m)
{
	switch (type) {
	case WBP_WELCOME:
		on_welcome(l, &m->welcome);
		break;
	case WBP_REJECT:
		on_reject(l, &m->reject);
		break;
	case WBP_REDIRECT:
		on_redirect(l, &m->redirect);
		break;
	case WBP_HEARTBEAT:
		wb__oplink_on_heartbeat(l, &m->heartbeat);
		break;
	case WBP_WANT:
		if (is_ours(l, m->want.object))
			wb__uploads_add(l, &m->want);
		break;
	case WBP_CONTENT:
		if (is_ours(l, m->content.object))
			on_content(l, &m->content);
		break;
	case WBP_PLAN:
		if (is_ours(l, m->plan.object))
			on_plan(l, &m->plan);
		break;
	case WBP_ACTIVATE:
		wb_fault_phase(l->a->fault, WB_FAULT_ACTIVATE);
		if (is_ours(l, m->activate.object))
			wb__plans_activate(l->plans, &m->activate);
		break;
	case WBP_PROGRESS:
		if (is_ours(l, m->progress.object))
			on_progress(l, &m->progress);
		break;
	case WBP_READER_ANSWER:
		wb__gate_answer(l->a->gate, l, &m->reader_answer);
		break;
	default:
		on_drain(l, &m->drain);
	}
}

static const char *name_of(const struct wb__oplink *l)
{
	return l->object[0] ? l->object : l->served->object;
}

int wb__oplink_find(struct wb__agent *a, const char *object, const char *model, uint32_t *index_out,
	struct wb_err *err)
{
	const struct wb__oplink *l = NULL;
	char names[512] = "";

	for (uint32_t i = 0; i < a->n_oplink; i++) {
		const char *ours = name_of(a->oplink[i]);
		size_t at = strlen(names);

		snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "", ours);
		if (object && object[0] ? !strcmp(object, ours) || !ours[0] : a->n_oplink == 1)
			l = a->oplink[i];
	}
	if (!l && !(object && object[0]))
		return wb_err_set(err, -ENOENT,
			"agent %s serves several objects (%s): name the worker's", a->o.name,
			names);
	if (!l)
		return wb_err_set(err, -ENOENT, "agent %s serves object %s, not %s", a->o.name,
			names, object);
	if (model && model[0] && l->model[0] && strcmp(model, l->model))
		return wb_err_set(err, -ENOENT, "object %s has model %s, not %s", name_of(l),
			l->model, model);
	*index_out = l->index;
	return 0;
}

bool wb__oplink_is_suspended(const struct wb__agent *a, uint32_t object_index)
{
	const struct wb__oplink *l = object_index < a->n_oplink ? a->oplink[object_index] : NULL;

	return l && wb__plans_is_suspended(l->plans);
}

struct wb__oplink *wb__oplink_of(const struct wb__agent *a, const struct wb_object_id *object)
{
	for (uint32_t i = 0; i < a->n_oplink; i++)
		if (a->oplink[i] && wb_object_id_eq(&a->oplink[i]->id, object))
			return a->oplink[i];
	return NULL;
}
