/* SPDX-License-Identifier: Apache-2.0 */
/* Adds, changes and removes the objects that are served, and passes on what their pods do. */
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OBJECTS_MAX (1u << 20) /* normally the budget refuses earlier */

void wb__serve_free_object(struct object *o)
{
	wb_reconcile_destroy(o->r);
	wb__serve_blob_put(o->plan);
	wb__serve_blob_put(o->next_plan);
	wb__serve_forget_list(o);
	wb__serve_blob_put(o->manifest);
	wb__serve_blob_put(o->next_manifest);
	wb__serve_forget_blobs(o);
	wb__serve_forget_told(o);
	if (o->is_touched)
		TAILQ_REMOVE(&o->s->touched, o, touched);
	for (size_t i = 0; i < XFERS_MAX; i++)
		wb__serve_free_xfer(o, &o->xfer[i]);
	explicit_bzero(o->epoch_key, sizeof(o->epoch_key));
	wb_free(o);
}

int wb__serve_add_object(struct wb_serve *s, const struct wb_serve_object_desc *d)
{
	struct wb_reconcile_opts ro = {.operator_id = s->operator_id,
		.settle_ns = s->settle_ns,
		.term_min = d->term_min,
		.has_pods = d->has_pods};
	struct wb_reconcile_now now = wb__serve_now(s);
	struct object *o;
	int rc = wb_grow(
		&s->object, &s->object_cap, s->n_object + 1, OBJECTS_MAX, sizeof(*s->object));

	if (rc < 0)
		return rc;
	o = wb_zalloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->s = s;
	o->at = s->n_object;
	o->born = ++s->last_born;
	o->spec = *d->spec;
	o->uid = d->uid;
	snprintf(o->key, sizeof(o->key), "%s/%s", o->spec.namespace_, o->spec.name);
	rc = wb_reconcile_create(&ro, &o->spec, &o->r);
	if (rc == 0 && d->stored)
		rc = wb_reconcile_restore(o->r, now, d->stored);
	if (rc == 0)
		rc = wb_reconcile_tick(wb__serve_touch(o), now);
	if (rc == 0)
		rc = wb_names_add(&s->by_key, o->key);
	if (rc < 0) {
		wb__serve_free_object(o);
		return rc;
	}
	wb__serve_name_series(s, o);
	wb__serve_stale(o);
	s->object[s->n_object++] = o;
	return 0;
}

static struct object *object_of(struct wb_serve *s, const struct wb_spec *spec)
{
	char key[sizeof(((struct object *)0)->key)];

	snprintf(key, sizeof(key), "%s/%s", spec->namespace_, spec->name);
	return wb__serve_object(s, key);
}

/* Close the connections of agents that serve @o; NULL: of agents whose HELLO named no object, which
 * serve all.  They come back, and get a new list of objects. */
static void let_go(struct wb_serve *s, const struct object *o, const char *why)
{
	struct wb_msg_drain m = {.sentence = why};

	for (struct peer *p = s->peer; p; p = p->next) {
		if (!wb_session_is_up(&p->session) ||
			!(o ? wb__serve_serves(p, o) : p->hello.n_objects == 0))
			continue;
		p->is_let_go = true;
		(void)wb_session_send(&p->session, WBP_DRAIN, &m);
		wb_session_end(&p->session, 0, "%s", why);
	}
}

/* Whether the two specs are the same in all that WELCOME tells agents. */
static bool is_as_told(const struct wb_spec *a, const struct wb_spec *b)
{
	char ways[WB_SPEC_WAYS_MAX], others[WB_SPEC_WAYS_MAX];

	return !strcmp(wb_spec_ways(a, ways), wb_spec_ways(b, others)) &&
	       a->trainer_staging == b->trainer_staging &&
	       a->rollout_staging == b->rollout_staging && a->overlap == b->overlap &&
	       a->checksums == b->checksums && a->encryption == b->encryption &&
	       a->commit_policy == b->commit_policy &&
	       a->trainer_buffer_bytes == b->trainer_buffer_bytes &&
	       a->rollout_buffer_bytes == b->rollout_buffer_bytes &&
	       a->heartbeat_timeout_s == b->heartbeat_timeout_s &&
	       a->plan_deadline_s == b->plan_deadline_s &&
	       a->transfer_deadline_s == b->transfer_deadline_s &&
	       a->engine_step_deadline_s == b->engine_step_deadline_s;
}

/* Set a new spec.  If WELCOME would say something else now, agents are disconnected, and hear it
 * when they come back. */
static int change(struct wb_serve *s, struct object *o, const struct wb_spec *spec)
{
	if (!is_as_told(&o->spec, spec))
		let_go(s, o, "the object has changed");
	o->spec = *spec;
	wb__serve_stale(o);
	return wb_reconcile_spec(wb__serve_touch(o), wb__serve_now(s), spec);
}

int wb_serve_update(struct wb_serve *s, const struct wb_spec *spec, size_t n, struct wb_err *err)
{
	int rc = 0;

	if (n != s->n_object)
		return wb_err_set(err, -EINVAL,
			"%zu objects were served and %zu are in the files: restart to change that",
			s->n_object, n);
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct object *o = object_of(s, &spec[i]);

		rc = o ? wb_spec_check_update(&o->spec, &spec[i], err)
		       : wb_err_set(err, -EINVAL, "%s/%s is new: restart to serve it",
				 spec[i].namespace_, spec[i].name);
	}
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct object *o = object_of(s, &spec[i]);

		if (!o) /* found above */
			continue;
		rc = change(s, o, &spec[i]);
	}
	wb__serve_act(s);
	return rc;
}

static void drop_object(struct wb_serve *s, struct object *o, const char *why)
{
	let_go(s, o, why);
	wb__serve_forget_jobs(s, o);
	wb__serve_forget_figures(s, o);
	for (struct peer *p = s->peer; p; p = p->next) {
		struct joined *j = wb__serve_joined(p, o);

		wb__serve_drop_uploads(p, o);
		wb__serve_drop_outgo(p, o);
		if (!j)
			continue;
		wb__serve_free_joined(s, j);
		*j = p->joined[--p->n_joined];
	}
	s->object[o->at] = s->object[--s->n_object];
	s->object[o->at]->at = o->at;
	wb_names_drop(&s->by_key, o->key);
	wb_dues_set(&s->dues, &o->due, WB_NEVER);
	wb_budget_release(s->budget, WB_BUDGET_OBJECTS, o->key, 1);
	wb__serve_free_object(o);
}

static bool is_same_spec(const struct wb_spec *a, const struct wb_spec *b)
{
	json_t *x = wb_spec_json(a), *y = wb_spec_json(b);
	bool is_same = json_equal(x, y);

	json_decref(x);
	json_decref(y);
	return is_same;
}

static int add_charged(struct wb_serve *s, const struct wb_serve_object_desc *d, struct wb_err *err)
{
	char key[sizeof(((struct object *)0)->key)];
	int rc;

	snprintf(key, sizeof(key), "%s/%s", d->spec->namespace_, d->spec->name);
	rc = wb_budget_charge(s->budget, WB_BUDGET_OBJECTS, key, 1, err);
	if (rc < 0)
		return rc;
	rc = wb__serve_add_object(s, d);
	if (rc == 0)
		return 0;
	wb_budget_release(s->budget, WB_BUDGET_OBJECTS, key, 1);
	return wb_err_set(err, rc, "the operator is out of memory");
}

int wb_serve_put(struct wb_serve *s, const struct wb_serve_object_desc *d, struct wb_err *err)
{
	struct object *o = object_of(s, d->spec);
	int rc;

	assert(s->is_open && d->uid);
	if (o && o->uid != d->uid) {
		drop_object(s, o, "the object was deleted and made again");
		o = NULL;
	}
	if (!o) {
		rc = add_charged(s, d, err);
		if (rc < 0)
			return rc;
		let_go(s, NULL, "there is another object"); /* agents that serve all objects */
	} else if (!is_same_spec(&o->spec, d->spec)) {
		rc = wb_spec_check_update(&o->spec, d->spec, err);
		if (rc < 0)
			return rc;
		rc = change(s, o, d->spec);
		if (rc < 0)
			return wb_err_set(err, rc, "out of memory");
	}
	wb__serve_act(s);
	return 0;
}

bool wb_serve_has_room(const struct wb_serve *s, const char *name)
{
	return wb_budget_has_room(s->budget, WB_BUDGET_OBJECTS, name, 1);
}

void wb_serve_remove(struct wb_serve *s, const char *name, const char *why)
{
	struct object *o = wb__serve_object(s, name);

	if (!o || strcmp(o->key, name) != 0)
		return;
	drop_object(s, o, why);
	wb__serve_act(s);
}

json_t *wb_serve_status(const struct wb_serve *s, const char *name)
{
	const struct object *o = wb__serve_object(s, name);

	return o ? wb_reconcile_status(o->r) : NULL;
}

json_t *wb_serve_spec(const struct wb_serve *s, const char *name)
{
	const struct object *o = wb__serve_object(s, name);

	return o ? wb_spec_json(&o->spec) : NULL;
}

uint64_t wb_serve_looks(const struct wb_serve *s, const char *name)
{
	const struct object *o = wb__serve_object(s, name);

	return o ? wb_reconcile_looks(o->r) : 0;
}

static const char *label(const struct wb_serve_pod *p, const char *key)
{
	return json_string_value(json_object_get(p->labels, key));
}

void wb_serve_pod(struct wb_serve *s, const char *object, const struct wb_serve_pod *p)
{
	struct object *o = wb__serve_object(s, object);
	struct wb_reconcile_pod rp = {
		.name = p->name, .unscheduled = p->unscheduled, .has_sidecar = p->has_sidecar};

	if (!o)
		return;
	rp.role = label(p, "weightbridge.io/role");
	rp.engine = label(p, o->spec.engine_label_key);
	(void)wb_reconcile_pod(
		wb__serve_touch(o), wb__serve_now(s), &rp); /* no memory: its next change helps */
	wb__serve_act(s);
}

void wb_serve_pod_gone(struct wb_serve *s, const char *object, const char *name)
{
	struct object *o = wb__serve_object(s, object);

	if (!o)
		return;
	(void)wb_reconcile_pod_gone(wb__serve_touch(o), wb__serve_now(s), name);
	wb__serve_act(s);
}

const char *wb_serve_leader(const struct wb_serve *s)
{
	return s->leader_host;
}

void wb_serve_idle(struct wb_serve *s, const char *sentence)
{
	snprintf(s->idle, sizeof(s->idle), "%s", sentence);
}

void wb_serve_redirect(struct wb_serve *s, const char *host, uint16_t port)
{
	snprintf(s->leader_host, sizeof(s->leader_host), "%s", host);
	s->leader_port = port;
}

void wb_serve_let_go(struct wb_serve *s, const char *object, const char *agent, const char *why)
{
	const struct object *o = wb__serve_object(s, object);
	struct wb_msg_drain m = {.sentence = why};

	for (struct peer *p = s->peer; p; p = p->next) {
		if (!o || wb_session_is_over(&p->session) || !p->hello.agent ||
			strcmp(p->hello.agent, agent) != 0 || !p->hello.n_objects ||
			!wb__serve_serves(p, o))
			continue;
		if (wb_session_is_up(&p->session))
			(void)wb_session_send(&p->session, WBP_DRAIN, &m);
		wb_session_end(&p->session, 0, "%s", why);
	}
	wb__serve_act(s);
}
