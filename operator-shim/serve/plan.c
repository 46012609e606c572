/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on another thread: computing a plan, and listing a plan for agents of version 1.  A job
 * owns, or holds references to, all that it reads. */
#include "base/buf.h"
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIFFERENCES_SHOWN 4 /* tensors in the sentence about two manifests */
#define PACKED_MAX (1u << 30) /* bytes of a plan, head and all parts */
#define LIST_MAX (1u << 30) /* bytes that an agent of version 1 takes */

struct job {
	struct job *next;
	struct wb_serve *s; /* NULL once serve is gone */
	struct object *object; /* NULL once the object is gone */
	uint32_t number;
	bool is_running; /* and is charged for planning; else it waits for its turn */
	struct wb_budget *budget; /* reference */
	char account[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2]; /* the object's key */
	/* input */
	struct blob *manifest, **layout; /* references */
	struct blob *other; /* reference; a manifest that differs, NULL = none */
	size_t other_worker; /* the worker that has this one; worker 0 has the manifest above */
	size_t n_layout;
	struct wb_plan_worker *worker; /* owned */
	char **name; /* owned; names of the workers */
	size_t n_worker;
	uint64_t trainer_buffer_bytes, rollout_buffer_bytes;
	bool lends_rails; /* as in struct wb_plan_input */
	/* Reference; a plan to list, instead of the input above; NULL = compute a plan */
	struct blob *packed;
	/* output */
	int rc;
	struct wb_err err;
	uint8_t *plan; /* owned; packed, or the list */
	size_t plan_bytes;
	struct wb_plan_slice *slice; /* owned; slices of the packed plan */
	uint32_t n_slice;
	struct wb_digest digest;
	struct wb_reconcile_planned info;
	uint64_t began_ns;
};

static void free_job(struct job *j)
{
	if (j->is_running)
		wb_budget_release(j->budget, WB_BUDGET_PLANNING, j->account, 1);
	wb_budget_put(j->budget);
	wb__serve_blob_put(j->manifest);
	wb__serve_blob_put(j->other);
	wb__serve_blob_put(j->packed);
	for (size_t i = 0; i < j->n_layout; i++)
		wb__serve_blob_put(j->layout[i]);
	for (size_t i = 0; i < j->n_worker; i++)
		wb_free(j->name[i]);
	wb_free(j->layout);
	wb_free(j->name);
	wb_free(j->worker);
	wb_free(j->plan);
	wb_free(j->slice);
	wb_free(j);
}

/* ---- on the worker thread ---- */

/* The planner's sentences name workers by number ("worker 3"): put their names there instead. */
static void name_workers(struct job *j)
{
	static const char word[] = "worker ";
	struct wb_buf b;
	const char *s = j->err.msg;

	wb_buf_init(&b, WB_ERR_MSG_MAX * 4);
	while (*s) {
		unsigned long n;
		char *end;

		if (strncmp(s, word, sizeof(word) - 1) != 0 ||
			!isdigit((unsigned char)s[sizeof(word) - 1])) {
			wb_buf_u8(&b, (uint8_t)*s++);
			continue;
		}
		n = strtoul(s + sizeof(word) - 1, &end, 10);
		if (n < j->n_worker)
			wb_buf_printf(&b, "worker %s", j->name[n]);
		else
			wb_buf_put(&b, s, (size_t)(end - s));
		s = end;
	}
	snprintf(j->err.msg, sizeof(j->err.msg), "%s", wb_buf_cstr(&b));
	wb_buf_finish(&b);
}

/* How often the fullest rollout buffer is filled in one transfer. */
static uint32_t count_rounds(const struct job *j, const struct wb_plan *p)
{
	uint64_t *in = wb_zalloc(p->n_worker, sizeof(*in)), most = 0;

	if (!in)
		return 0;
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];
		const struct wb_class *k = &p->cls[r->class_id];

		for (uint32_t c = r->chunk_begin; c < r->chunk_end && r->stage != WB_STAGE_INTERNAL;
			c++)
			in[r->dst] += wb_chunk_len(p, k, c);
	}
	for (uint32_t i = 0; i < p->n_worker; i++)
		most = WB_MAX(most, in[i]);
	wb_free(in);
	return (uint32_t)wb_ceil_div(most, WB_MAX(j->rollout_buffer_bytes, 1));
}

/* If @rc is 0, the content of @b becomes the job's plan; else @b is freed and @rc returned. */
static int take_plan(struct job *j, struct wb_buf *b, int rc)
{
	if (rc == 0)
		return wb_buf_take(b, &j->plan, &j->plan_bytes);
	wb_buf_finish(b);
	return rc;
}

static int pack(struct job *j, const struct wb_manifest *m, const struct wb_plan *p)
{
	struct wb_buf b;
	int rc;

	wb_buf_init(&b, PACKED_MAX);
	rc = take_plan(j, &b, wb_plan_pack(p, &b));
	if (rc == -E2BIG)
		return wb_err_set(&j->err, rc,
			"the plan for %zu workers takes more than the %u MiB that a plan may have: "
			"give it fewer workers, or layouts that are more alike",
			j->n_worker, PACKED_MAX >> 20);
	if (rc < 0)
		return wb_err_set(&j->err, rc, "pack the plan: %s", wb_strerror(rc));
	rc = wb_plan_slices(j->plan, j->plan_bytes, &j->slice, &j->err);
	if (rc < 0)
		return rc;
	j->n_slice = (uint32_t)rc;
	j->digest = p->digest;
	j->info = (struct wb_reconcile_planned){.job = j->number,
		.plan = p->digest,
		.n_tensor = m->n,
		.rounds = count_rounds(j, p),
		.model_bytes = p->model_bytes,
		.delivered_bytes = p->delivered_bytes,
		.node_bound_ns = p->node_bound_ns,
		.worker_bound_ns = p->worker_bound_ns,
		.bound = wb_plan_bound_by(p)};
	return 0;
}

static int make_plan(struct job *j, const struct wb_manifest *m, struct wb_map **map)
{
	struct wb_plan_input in = {.manifest = m,
		.layout = (const struct wb_map *const *)map,
		.n_layout = (uint32_t)j->n_layout,
		.worker = j->worker,
		.n_worker = (uint32_t)j->n_worker,
		.trainer_buffer_bytes = j->trainer_buffer_bytes,
		.rollout_buffer_bytes = j->rollout_buffer_bytes,
		.lends_rails = j->lends_rails};
	struct wb_plan *plan = NULL;
	int rc = wb_plan_create(&in, &plan, &j->err);

	if (rc == 0) {
		rc = pack(j, m, plan);
		wb_plan_destroy(plan);
	}
	return rc;
}

/* Two workers describe different checkpoints: fail with a sentence that shows the differences. */
static int tell_difference(struct job *j, const struct wb_manifest *m)
{
	enum wb_role role[2] = {j->worker[0].role, j->worker[j->other_worker].role};
	const char *roles[2] = {wb_word(&wb_role_words, role[0]), wb_word(&wb_role_words, role[1])};
	const char *who[2] = {roles[0], roles[1]};
	const struct wb_manifest *both[2] = {m, NULL};
	struct wb_manifest *other = NULL;
	struct wb_buf b;
	int rc = wb_manifest_decode(j->other->data, j->other->bytes, &other, &j->err);

	if (rc < 0)
		return rc;
	both[1] = other;
	if (role[0] == role[1]) {
		who[0] = "the former";
		who[1] = "the latter";
	}
	wb_buf_init(&b, WB_ERR_MSG_MAX * 16);
	wb_manifest_differ(both, who, DIFFERENCES_SHOWN, &b);
	rc = wb_err_set(&j->err, WB_EPLAN,
		"workers describe different checkpoints, %s worker 0 and %s worker %zu: %.700s; "
		"all must list the same tensors, types and shapes in the same order",
		roles[0], roles[1], j->other_worker, wb_buf_cstr(&b));
	wb_buf_finish(&b);
	wb_manifest_destroy(other);
	return rc;
}

static int decode_and_plan(struct job *j)
{
	struct wb_map **map = wb_zalloc(j->n_layout, sizeof(struct wb_map *));
	struct wb_manifest *m = NULL;
	int rc = -ENOMEM;

	if (!map)
		return wb_err_set(&j->err, rc, "out of memory");
	rc = wb_manifest_decode(j->manifest->data, j->manifest->bytes, &m, &j->err);
	if (rc == 0 && j->other)
		rc = tell_difference(j, m);
	for (size_t i = 0; i < j->n_layout && rc == 0; i++)
		rc = wb_map_decode(m, j->layout[i]->data, j->layout[i]->bytes, &map[i], &j->err);
	if (rc == 0)
		rc = make_plan(j, m, map);
	for (size_t i = 0; i < j->n_layout; i++)
		wb_map_destroy(map[i]);
	wb_free(map);
	wb_manifest_destroy(m);
	return rc;
}

/* Encode the packed plan as one list. */
static int list(struct job *j)
{
	struct wb_plan *p = NULL;
	struct wb_buf b;
	int rc = wb_plan_decode(j->packed->data, j->packed->bytes, &p, &j->err);

	if (rc < 0)
		return rc;
	wb_buf_init(&b, LIST_MAX);
	rc = take_plan(j, &b, wb_plan_encode(p, &b));
	wb_plan_destroy(p);
	if (rc == -E2BIG)
		return wb_err_set(&j->err, -EDQUOT,
			"all of the plan, as an agent of protocol version 1 takes it, has more "
			"than %u MiB: upgrade the agents",
			LIST_MAX >> 20);
	return rc < 0 ? wb_err_set(&j->err, rc, "list the plan: %s", wb_strerror(rc)) : 0;
}

static void work(void *cookie)
{
	struct job *j = cookie;
	uint64_t bytes = wb_budget_limits(j->budget)->planning_bytes;
	bool is_over;

	/* How much memory planning needs depends on what agents upload: so it is limited where it
	 * is allocated. */
	wb_mem_allow(bytes);
	j->rc = j->packed ? list(j) : decode_and_plan(j);
	is_over = wb_mem_over();
	wb_mem_allow(0);
	if (j->rc < 0 && is_over)
		j->rc = wb_err_set(&j->err, -EDQUOT,
			"to plan WeightTransfer %.317s%s takes more than the %" PRIu64
			" MiB of the operator's memory that one plan may take: %sraise its memory "
			"limit (resources.limits.memory) or --planning-memory (chart value "
			"planningMemory)",
			j->account, j->packed ? " for agents of protocol version 1" : "",
			bytes >> 20, j->packed ? "upgrade those agents, or " : "");
	else if (j->rc < 0)
		name_workers(j);
}

/* ---- on the loop ---- */

/* Drop the previous next plan, since a newer one replaces it. */
static void drop_next(struct object *o)
{
	wb__serve_blob_put(o->next_plan);
	wb__serve_blob_put(o->next_manifest);
	o->next_plan = o->next_manifest = NULL;
	wb__serve_forget_list(o);
	wb__serve_forget_told(o);
}

static int keep_plan(struct wb_serve *s, struct object *o, struct job *j, struct wb_err *err)
{
	struct wb_digest active;
	struct blob *b = wb__serve_blob_make(WB_CONTENT_PLAN, j->digest, j->plan, j->plan_bytes);
	int rc;

	j->plan = NULL;
	drop_next(o);
	if (b) {
		b->slice = j->slice;
		b->n_slice = j->n_slice;
		j->slice = NULL;
	}
	rc = b ? wb__serve_blob_charge(s, o, b, false, err)
	       : wb_err_set(err, -ENOMEM, "the operator is out of memory");
	if (rc < 0) {
		wb__serve_blob_put(b);
		return rc;
	}
	wb_reconcile_active(o->r, &active);
	if (wb_digest_eq(active, j->digest)) {
		wb__serve_blob_put(o->plan);
		wb__serve_blob_put(o->manifest);
		o->plan = wb__serve_blob_get(b);
		o->manifest = wb__serve_blob_get(j->manifest);
	}
	o->next_plan = b;
	o->next_manifest = wb__serve_blob_get(j->manifest);
	return 0;
}

static void report(struct wb_serve *s, struct object *o, struct job *j)
{
	j->info.job = j->number;
	j->info.rc = j->rc;
	j->info.sentence = j->err.msg;
	j->info.planning_ns = wb_now_ns(s->env.clock) - j->began_ns;
	wb_metric_add(s->metrics, WB_SM_PLANS, WB_LABELS(j->rc ? "refused" : "planned"), 1);
	wb_metric_observe(
		s->metrics, WB_SM_PLANNING_SECONDS, NULL, (double)j->info.planning_ns / 1e9);
	if (j->rc == 0 && j->number == o->job) /* else: of a membership that is over, and slow */
		j->info.rc = keep_plan(s, o, j, &j->err);
	wb_reconcile_planned(wb__serve_touch(o), wb__serve_now(s), &j->info);
	if (j->info.rc == 0)
		wb__serve_prune(o);
}

static void listed(struct wb_serve *s, struct object *o, struct job *j)
{
	struct blob *b = NULL;

	if (j->rc == 0) {
		b = wb__serve_blob_make(WB_CONTENT_PLAN, j->packed->digest, j->plan, j->plan_bytes);
		j->plan = NULL;
		j->rc = b ? wb__serve_blob_charge(s, o, b, false, &j->err) : -ENOMEM;
	}
	if (j->rc < 0) {
		wb__serve_blob_put(b);
		b = NULL;
	}
	wb__serve_listed(o, j->packed->digest, b, j->rc, &j->err);
}

static void start_ready(struct wb_serve *s);

static void done(void *cookie)
{
	struct job *j = cookie, **at;
	struct wb_serve *s = j->s;
	struct object *o;

	if (!s) {
		free_job(j);
		return;
	}
	for (at = &s->job; *at != j; at = &(*at)->next)
		;
	*at = j->next;
	o = j->object;
	if (o && j->packed)
		listed(s, o, j);
	else if (o)
		report(s, o, j);
	free_job(j);
	start_ready(s);
	wb__serve_act(s);
}

static const char *worker_name(
	const struct wb_serve *s, const struct object *o, const struct wb_reconcile_member *m)
{
	const struct peer *p = wb__serve_peer(s, m->agent);
	const struct joined *j = p ? wb__serve_joined(p, o) : NULL;

	return j ? wb__serve_worker_name(&j->workers, m->worker) : m->agent_name;
}

/* Whether the agent of this member can read a plan that lends rails: agents of version 1 cannot.
 * An absent member reads no plan. */
static bool knows_lent_rails(const struct wb_serve *s, const struct wb_reconcile_member *m)
{
	const struct peer *p = wb__serve_peer(s, m->agent);

	return m->is_absent || (p && p->session.version >= WBP_PARTS_SINCE);
}

/* Copy what the thread needs; the members are valid only now. */
static int fill_job(struct wb_serve *s, struct object *o, struct job *j)
{
	size_t n, n_layout;
	const struct wb_reconcile_member *m = wb_reconcile_members(o->r, &n);
	const struct wb_digest *layout = wb_reconcile_layouts(o->r, &n_layout);

	j->worker = wb_zalloc(n, sizeof(*j->worker));
	j->name = wb_zalloc(n, sizeof(*j->name));
	j->layout = wb_zalloc(n_layout, sizeof(struct blob *));
	if (!j->worker || !j->name || !j->layout)
		return -ENOMEM;
	j->lends_rails = true;
	for (size_t i = 0; i < n; i++) {
		j->worker[i] = m[i].plan;
		j->lends_rails &= knows_lent_rails(s, &m[i]);
		j->name[i] = wb_strdup(worker_name(s, j->object, &m[i]));
		if (!j->name[i])
			return -ENOMEM;
		j->n_worker = i + 1;
	}
	for (size_t i = 0; i < n_layout; i++) {
		j->layout[i] =
			wb__serve_blob_get(wb__serve_find_blob(o, layout[i], WB_CONTENT_MAP));
		if (!j->layout[i])
			return -ENOENT;
		j->n_layout = i + 1;
	}
	j->manifest =
		wb__serve_blob_get(wb__serve_find_blob(o, m[0].manifest, WB_CONTENT_MANIFEST));
	if (!j->manifest)
		return -ENOENT;
	while (++j->other_worker < n)
		if (!wb_digest_eq(m[j->other_worker].manifest, m[0].manifest))
			break;
	if (j->other_worker >= n)
		return 0;
	j->other = wb__serve_blob_get(
		wb__serve_find_blob(o, m[j->other_worker].manifest, WB_CONTENT_MANIFEST));
	return j->other ? 0 : -ENOENT;
}

/* End a job that could not be started on the thread. */
static void fail(struct wb_serve *s, struct job *j, int rc)
{
	struct wb_reconcile_planned p = {
		.job = j->number, .rc = rc, .sentence = "planning could not start"};

	j->rc = rc;
	if (j->packed)
		listed(s, j->object, j);
	else
		wb_reconcile_planned(wb__serve_touch(j->object), wb__serve_now(s), &p);
	free_job(j);
}

/* Charge the job for planning, if it is its turn.  Room is asked for first, because a charge that
 * fails is counted as a refusal, and a job that waits for its turn is not refused. */
static bool takes_turn(struct wb_serve *s, const struct job *j)
{
	return wb_budget_has_room(s->budget, WB_BUDGET_PLANNING, j->account, 1) &&
	       wb_budget_charge(s->budget, WB_BUDGET_PLANNING, j->account, 1, NULL) == 0;
}

/* Start waiting jobs in the order in which they came, as far as budgets allow.  A job whose
 * namespace has no room does not hold up the jobs behind it. */
static void start_ready(struct wb_serve *s)
{
	for (struct job **at = &s->job, *j; (j = *at);) {
		int rc;

		if (j->is_running || !takes_turn(s, j)) {
			at = &j->next;
			continue;
		}
		j->is_running = true;
		rc = s->env.work(s->env.ctx, work, done, j);
		if (rc == 0) {
			at = &j->next;
			continue;
		}
		*at = j->next;
		fail(s, j, rc);
	}
}

/* Drop jobs that wait for their turn.  @o: NULL = of all objects.  Jobs that list a plan are
 * dropped only @with_lists: that plan exists, and a newer membership may keep it. */
static void drop_waiting(struct wb_serve *s, const struct object *o, bool with_lists)
{
	for (struct job **at = &s->job, *j; (j = *at);) {
		if (j->is_running || (o && j->object != o) || (j->packed && !with_lists)) {
			at = &j->next;
			continue;
		}
		*at = j->next;
		free_job(j);
	}
}

static struct job *make_job(struct wb_serve *s, struct object *o)
{
	struct job *j = wb_zalloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->s = s;
	j->object = o;
	j->budget = wb_budget_get(s->budget);
	snprintf(j->account, sizeof(j->account), "%s", o->key);
	j->began_ns = wb_now_ns(s->env.clock);
	return j;
}

static void start(struct wb_serve *s, struct job *j)
{
	struct job **end = &s->job;

	while (*end)
		end = &(*end)->next;
	*end = j;
	start_ready(s);
}

int wb__serve_start_job(struct wb_serve *s, struct object *o, uint32_t number)
{
	struct job *j = make_job(s, o);
	int rc;

	if (!j)
		return -ENOMEM;
	j->number = o->job = number;
	j->trainer_buffer_bytes = o->spec.trainer_buffer_bytes;
	j->rollout_buffer_bytes = o->spec.rollout_buffer_bytes;
	rc = fill_job(s, o, j);
	if (rc < 0) {
		fail(s, j, rc);
		return rc;
	}
	drop_waiting(s, o, false); /* of an earlier membership */
	start(s, j);
	return 0;
}

int wb__serve_start_list(struct wb_serve *s, struct object *o)
{
	struct job *j;

	for (j = s->job; j; j = j->next)
		if (j->object == o && j->packed &&
			wb_digest_eq(j->packed->digest, o->next_plan->digest))
			return 0;
	j = make_job(s, o);
	if (!j)
		return -ENOMEM;
	j->packed = wb__serve_blob_get(o->next_plan);
	start(s, j);
	return 0;
}

void wb__serve_forget_jobs(struct wb_serve *s, const struct object *o)
{
	drop_waiting(s, o, true);
	for (struct job *j = s->job, *next; j; j = next) {
		next = j->next;
		if (!o)
			j->s = NULL;
		if (!o || j->object == o)
			j->object = NULL;
	}
	if (!o)
		s->job = NULL;
}
