/* SPDX-License-Identifier: Apache-2.0 */
/* Handles WORKERS: checks the workers that an agent has attached, and reports them to reconcile. */
#include "base/mem.h"
#include "operator-shim/serve/internal.h"
#include "operator-shim/spec/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct joined *wb__serve_joined(const struct peer *p, const struct object *o)
{
	for (size_t i = 0; i < p->n_joined; i++)
		if (p->joined[i].o == o)
			return &p->joined[i];
	return NULL;
}

struct joined *wb__serve_join(struct peer *p, struct object *o)
{
	struct joined *j = wb__serve_joined(p, o);

	if (j || wb_grow(&p->joined, &p->joined_cap, p->n_joined + 1, UINT16_MAX,
			 sizeof(*p->joined)) < 0)
		return j;
	j = &p->joined[p->n_joined++];
	*j = (struct joined){.o = o};
	return j;
}

void wb__serve_free_joined(struct wb_serve *s, struct joined *j)
{
	wb_budget_release(s->budget, WB_BUDGET_WORKERS, j->o->key, j->n_charged);
	j->n_charged = 0;
	wb_msg_free(WBP_WORKERS, &j->workers);
}

static void refuse_worker(
	struct peer *p, const struct object *o, const struct wb_p_worker *w, const char *sentence)
{
	struct wb_msg_reject m = {
		.code = -EINVAL, .sentence = sentence, .object = o->key, .worker = w->id + 1};

	wb_metric_add(p->s->metrics, WB_SM_REFUSED, WB_LABELS("worker"), 1);
	wb__serve_log_worker(p->s, o, sentence);
	(void)wb_session_send(&p->session, WBP_REJECT, &m);
}

/* A worker whose adapter asks for another staging than the spec has is refused. */
static bool is_staging_agreed(struct peer *p, const struct object *o, const struct wb_p_worker *w)
{
	bool is_trainer = w->role == WB_ROLE_TRAINER;
	uint32_t asked = is_trainer ? w->sender_staging : w->receiver_staging;
	uint32_t spec = is_trainer ? o->spec.trainer_staging : o->spec.rollout_staging;
	char text[400];

	if (asked == WB_STAGING_UNSET || asked == spec)
		return true;
	snprintf(text, sizeof(text),
		"%.150s asks for %s_staging %s, but spec.staging.%s is %s: change one of "
		"them, or leave the argument out",
		w->name, is_trainer ? "sender" : "receiver", wb_word(&wb_staging_words, asked),
		wb_word(&wb_role_words, w->role), wb_word(&wb_staging_words, spec));
	refuse_worker(p, o, w, text);
	return false;
}

static bool is_worker_sound(struct peer *p, const struct object *o, const struct wb_p_worker *w)
{
	char text[400];

	if (w->role != WB_ROLE_TRAINER && w->role != WB_ROLE_ROLLOUT) {
		snprintf(text, sizeof(text), "%.150s has no role", w->name);
	} else if (w->engine && strlen(w->engine) > WB_RECONCILE_ENGINE_MAX) {
		snprintf(text, sizeof(text),
			"%.150s: the engine's name is longer than %d characters", w->name,
			WB_RECONCILE_ENGINE_MAX);
	} else {
		return is_staging_agreed(p, o, w);
	}
	refuse_worker(p, o, w, text);
	return false;
}

static size_t translate(struct peer *p, const struct object *o, const struct wb_msg_workers *m,
	struct wb_reconcile_worker *out)
{
	size_t n = 0;

	for (uint32_t i = 0; i < m->n_workers; i++) {
		const struct wb_p_worker *w = &m->workers[i];

		if (!is_worker_sound(p, o, w))
			continue;
		out[n++] = (struct wb_reconcile_worker){.id = w->id,
			.name = w->name && *w->name ? w->name : NULL,
			.role = (enum wb_role)w->role,
			.engine = w->engine,
			.rank = w->rank,
			.map = w->map,
			.manifest = w->manifest,
			.held = {w->transfer, w->version, w->torn},
			/* numbers in the message begin at 1; 0 = in no plan */
			.plan_index = w->plan_worker - 1,
			.waiting_index = w->ready_worker - 1,
			.rails = w->rails};
	}
	return n;
}

static uint32_t via_of(const struct wb_msg_hello *m)
{
	uint32_t via = 0;

	for (uint32_t i = 0; i < m->n_transports; i++)
		via |= wb_spec_via(m->transports[i]);
	return via;
}

static uint32_t family_of(const char *address)
{
	unsigned char room[16];
	char bare[64];

	if (inet_pton(AF_INET, address, room) == 1)
		return WB_RECONCILE_IPV4;
	snprintf(
		bare, sizeof(bare), "%.*s", (int)strcspn(address, "%"), address); /* fe80::1%eth0 */
	return inet_pton(AF_INET6, bare, room) == 1 ? WB_RECONCILE_IPV6 : 0;
}

static uint32_t families_of(const struct wb_msg_hello *m)
{
	uint32_t families = m->n_hosts ? 0 : family_of(m->host);

	for (uint32_t i = 0; i < m->n_hosts; i++)
		families |= family_of(m->hosts[i]);
	return families;
}

static void report(struct peer *p, struct object *o, const struct wb_msg_workers *m,
	const struct wb_reconcile_worker *w, size_t n)
{
	struct joined *j = wb__serve_joined(p, o);
	struct wb_reconcile_agent a = {.id = p->id,
		.name = p->hello.agent,
		.memory = p->hello.memory,
		.memory_bytes_per_s = p->hello.memory_bytes_per_s,
		.instance = p->hello.instance,
		.heard_term = p->hello.term,
		.heard_operator = p->hello.term_operator,
		.running = {{m->running.term, m->running.number}, m->plan, m->plan_workers},
		.waiting = {{m->ready.term, m->ready.number}, m->ready_plan, m->ready_workers},
		.transfer_seen = p->hello.last_transfer,
		.rail = p->hello.rails,
		.n_rail = p->hello.n_rails,
		.nic = p->hello.n_nics == p->hello.n_rails ? p->hello.nics : NULL,
		.rail_bytes_per_s = p->hello.rail_bytes_per_s,
		.needs_all = p->session.version < 2,
		.via = via_of(&p->hello),
		.families = families_of(&p->hello),
		.worker = w,
		.n_worker = n};
	int rc;

	if (j->is_in)
		rc = wb_reconcile_workers(wb__serve_touch(o), wb__serve_now(p->s), p->id, w, n);
	else
		rc = wb_reconcile_agent_up(wb__serve_touch(o), wb__serve_now(p->s), &a);
	j->is_in = true;
	if (rc < 0)
		WB_LOG_ERR(MOD, "report not taken", WB_S("object", o->key),
			WB_S("why", wb_strerror(rc)));
}

/* Charge the agent for @n workers, the length of its new list, instead of those of its last list.
 * False: it was refused. */
static bool count_workers(struct peer *p, struct object *o, struct joined *j, uint32_t n)
{
	struct wb_err err = {0};

	if (n > j->n_charged &&
		wb__serve_charge(p->s, WB_BUDGET_WORKERS, o, n - j->n_charged, &err) < 0) {
		wb__serve_over(p, &err);
		return false;
	}
	if (n < j->n_charged)
		wb_budget_release(p->s->budget, WB_BUDGET_WORKERS, o->key, j->n_charged - n);
	j->n_charged = n;
	return true;
}

/* Takes the message's content. */
void wb__serve_on_workers(struct peer *p, struct wb_msg_workers *m)
{
	struct object *o = wb__serve_object_of(p, m->object);
	struct wb_reconcile_worker *w;
	struct joined *j;

	if (p->is_orderly) /* it has left, and another of its name may be here */
		return;
	if (!o) {
		wb__serve_reject(p, -ENOENT, p->s->is_open,
			"WORKERS of an object that this operator does not have, or that this "
			"agent's HELLO did not name");
		return;
	}
	j = wb__serve_join(p, o);
	if (j && !count_workers(p, o, j, m->n_workers))
		return;
	w = j ? wb_zalloc(m->n_workers + 1, sizeof(*w)) : NULL;
	if (!w) {
		wb_session_end(&p->session, -ENOMEM, "memory is short");
		return;
	}
	report(p, o, m, w, translate(p, o, m, w));
	wb_free(w);
	(void)wb_reconcile_refused(wb__serve_touch(o), wb__serve_now(p->s), WB_REFUSED_LIBRARY,
		p->hello.agent, m->library ? m->library : "");
	(void)wb_reconcile_rails(
		wb__serve_touch(o), wb__serve_now(p->s), p->id, m->reduced ? m->reduced : "");
	j = wb__serve_joined(p, o);
	wb__serve_forget_told(o);
	wb_msg_free(WBP_WORKERS, &j->workers);
	j->workers = *m;
	memset(m, 0, sizeof(*m));
}

void wb__serve_leave(struct peer *p, struct object *o, bool is_orderly)
{
	struct joined *j = wb__serve_joined(p, o);

	wb__serve_drop_outgo(p, o);
	if (!j)
		return;
	wb__serve_forget_told(o);
	if (j->is_in)
		wb_reconcile_agent_down(wb__serve_touch(o), wb__serve_now(p->s), p->id, is_orderly);
	j->is_in = false;
	wb__serve_free_joined(p->s, j);
}
