/* SPDX-License-Identifier: Apache-2.0 */
/* What the operator says. */
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/agent.h"
#include "daemon/apps.h"
#include "daemon/env.h"
#include "daemon/oplink_internal.h"
#include "net/loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "oplink"

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
	char uid[sizeof(l->uid)];

	if (m->version < WBP_VERSION_MIN || m->version > WBP_VERSION_MAX) {
		l->is_refused = true;
		wb__oplink_end(
			l, WB_EVERSION, "the operator chose a protocol version unknown here");
		return;
	}
	if (!o) {
		l->is_refused = true;
		wb__oplink_end(l, -ENOENT,
			m->n_objects ? "the operator has several objects: name those of this pod "
				       "with --object"
				     : "the operator has no object for this agent");
		return;
	}
	l->proto = m->version;
	l->heartbeat_ns = m->heartbeat_ns ? m->heartbeat_ns : 3000000000ull;
	hear_term(l, m->term, m->operator_id);
	snprintf(l->object, sizeof(l->object), "%s", o->name);
	snprintf(l->model, sizeof(l->model), "%s", o->model);
	snprintf(uid, sizeof(uid), "%016llx", (unsigned long long)o->uid);
	if (l->uid[0] && strcmp(uid, l->uid) != 0)
		wb__reports_drop(l); /* of an object of this name that was deleted */
	memcpy(l->uid, uid, sizeof(l->uid));
	wb__plans_object(l->plans, o);
	l->state = OP_UP;
	l->is_welcomed = l->was_up = true;
	l->trouble[0] = '\0';
	l->n_up++;
	l->n_beat = 0;
	wb_timer_start(l->timer, 1, l->heartbeat_ns);
	WB_LOG_INFO(MOD, "operator connected", WB_S("operator", l->address),
		WB_S("name", m->operator_name), WB_S("object", l->object), WB_U("term", m->term));
	wb__apps_check_object(l->a->apps, l->index, l->object, l->model);
	wb__apps_status(l->a->apps, l->index, "agent %s waits for the operator's word on object %s",
		l->a->o.name, l->object);
	wb__reports_flush(l);
	wb__oplink_workers_changed(l);
}

static void on_reject(struct wb__oplink *l, const struct wb_msg_reject *m)
{
	int code = m->code < 0 && m->code > -100000 ? (int)m->code : -EPERM;

	if (m->worker) { /* one worker, not this agent */
		wb__apps_refuse(l->a->apps, m->worker - 1, code, m->sentence);
		return;
	}
	l->is_refused = !m->retry;
	wb__oplink_end(l, code, m->sentence);
}

static void on_progress(struct wb__oplink *l, const struct wb_msg_progress *m)
{
	if (m->code < 0)
		wb__apps_give_up(l->a->apps, l->index, (int)m->code, m->sentence);
	else
		wb__apps_status(l->a->apps, l->index, "%s", m->sentence);
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
		wb__oplink_end(l, rc, err.msg);
}

static void act_up(struct wb__oplink *l, uint16_t type, union wb_msg *m)
{
	char why[64];

	switch (type) {
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
		if (is_ours(l, m->plan.object)) {
			wb_fault_phase(l->a->fault, WB_FAULT_PLAN);
			hear_term(l, m->plan.epoch.term, l->term_operator);
			wb__plans_plan(l->plans, &m->plan);
		}
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
	case WBP_DRAIN:
		on_drain(l, &m->drain);
		break;
	default:
		snprintf(why, sizeof(why), "%s is out of place", wb_msg_name(type));
		wb__oplink_end(l, -EPROTO, why);
	}
}

void wb__oplink_act(struct wb__oplink *l, uint16_t type, union wb_msg *m)
{
	char why[128];

	if (type == WBP_REJECT) {
		on_reject(l, &m->reject);
	} else if (type == WBP_REDIRECT) {
		snprintf(why, sizeof(why), "it is a standby; the leader is at %.64s:%u",
			m->redirect.host, m->redirect.port);
		snprintf(l->leader_host, sizeof(l->leader_host), "%s", m->redirect.host);
		l->leader_port = (uint16_t)m->redirect.port;
		wb__oplink_end(l, -EAGAIN, why);
	} else if (l->state == OP_UP) {
		act_up(l, type, m);
	} else if (type == WBP_WELCOME && l->state == OP_HELLO) {
		on_welcome(l, &m->welcome);
	} else {
		snprintf(why, sizeof(why), "%s is out of place", wb_msg_name(type));
		wb__oplink_end(l, -EPROTO, why);
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

struct wb__oplink *wb__oplink_by_uid(const struct wb__agent *a, const char *uid)
{
	for (uint32_t i = 0; i < a->n_oplink; i++)
		if (a->oplink[i] && !strcmp(a->oplink[i]->uid, uid))
			return a->oplink[i];
	return NULL;
}
