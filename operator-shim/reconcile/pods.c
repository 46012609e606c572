/* SPDX-License-Identifier: Apache-2.0 */
/* What the cluster says about an object's pods: the engine and role of their workers, and which
 * pods have no agent.  The last refusal of an agent or worker is kept here too. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "operator-shim/reconcile/internal.h"

#include <stdio.h>
#include <string.h>

#define LIBRARY_NS (3600 * WB_NS_PER_S) /* the agent withdraws it earlier */
#define REFUSAL_NS (60 * WB_NS_PER_S) /* refused agents come again at least every 30 s */
#define NAME_NS (15 * WB_NS_PER_S) /* agents whose name is taken come again every 3 s */
#define NAMED_MAX 5
#define ENGINE_IN_POD_MAX 63 /* longest name that an app adds to the engine of its pod */

/* Position of the first pod whose name is not below @name. */
static size_t place(const struct wb_reconcile *r, const char *name)
{
	size_t lo = 0, hi = r->n_pod;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (strcmp(r->pod[mid].name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The pod of an agent, or NULL. */
static const struct pod *pod_of(const struct wb_reconcile *r, const char *agent)
{
	size_t i = place(r, agent);

	return i < r->n_pod && !strcmp(r->pod[i].name, agent) ? &r->pod[i] : NULL;
}

/* Copy a text that others wrote.  What is not printable ASCII becomes '?', since a status must not
 * contain characters that are cut or invalid. */
static void keep_plain(char *out, size_t bytes, const char *text)
{
	snprintf(out, bytes, "%s", text ? text : "");
	for (char *c = out; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static void fill(struct pod *to, const struct wb_reconcile_pod *p)
{
	memset(to, 0, sizeof(*to));
	snprintf(to->name, sizeof(to->name), "%.*s", WB_RECONCILE_AGENT_MAX, p->name);
	snprintf(to->role, sizeof(to->role), "%.63s", p->role ? p->role : "");
	snprintf(to->engine, sizeof(to->engine), "%.63s", p->engine ? p->engine : "");
	keep_plain(to->unscheduled, sizeof(to->unscheduled), p->unscheduled);
	to->has_sidecar = p->has_sidecar;
}

int wb_reconcile_pod(
	struct wb_reconcile *r, struct wb_reconcile_now now, const struct wb_reconcile_pod *p)
{
	struct pod next;
	size_t i;
	int rc;

	fill(&next, p);
	i = place(r, next.name);
	if (i == r->n_pod || strcmp(r->pod[i].name, next.name) != 0) {
		rc = wb_grow(&r->pod, &r->pod_cap, r->n_pod + 1, WB_RECONCILE_AGENTS_MAX,
			sizeof(*r->pod));
		if (rc < 0)
			return rc;
		memmove(&r->pod[i + 1], &r->pod[i], (r->n_pod - i) * sizeof(*r->pod));
		r->n_pod++;
	} else if (!memcmp(&r->pod[i], &next, sizeof(next))) {
		return 0; /* most changes of a pod are not in these fields */
	}
	r->pod[i] = next;
	wb__reconcile_has_pod_again(r, next.name);
	return wb__reconcile_look(r, now);
}

int wb_reconcile_pod_gone(struct wb_reconcile *r, struct wb_reconcile_now now, const char *name)
{
	char key[WB_RECONCILE_AGENT_MAX + 1];
	size_t i;

	snprintf(key, sizeof(key), "%.*s", WB_RECONCILE_AGENT_MAX, name);
	i = place(r, key);
	if (i == r->n_pod || strcmp(r->pod[i].name, key) != 0)
		return 0;
	if (!strcmp(r->refusal.agent, key))
		r->refusal.until_ns = 0; /* a new pod of this name is judged anew */
	memmove(&r->pod[i], &r->pod[i + 1], (r->n_pod - i - 1) * sizeof(*r->pod));
	r->n_pod--;
	wb__reconcile_pod_is_gone(r, key);
	return wb__reconcile_look(r, now);
}

int wb_reconcile_refused(struct wb_reconcile *r, struct wb_reconcile_now now,
	enum wb_reconcile_refusal what, const char *agent, const char *sentence)
{
	static const uint64_t hold_ns[] = {[WB_REFUSED_TOKEN] = REFUSAL_NS,
		[WB_REFUSED_VERSION] = REFUSAL_NS,
		[WB_REFUSED_NAME] = NAME_NS,
		[WB_REFUSED_LIBRARY] = LIBRARY_NS,
		[WB_REFUSED_BUDGET] = REFUSAL_NS};
	struct refusal *f = &r->refusal;

	if (!*sentence) {
		if (!f->until_ns || f->what != what || strcmp(f->agent, agent) != 0)
			return 0;
		f->until_ns = 0;
		return wb__reconcile_look(r, now);
	}
	f->what = what;
	f->until_ns = now.ns + hold_ns[what];
	snprintf(f->agent, sizeof(f->agent), "%.*s", WB_RECONCILE_AGENT_MAX, agent);
	snprintf(f->text, sizeof(f->text), "%s %s was refused: %.800s",
		what == WB_REFUSED_LIBRARY ? "a worker of agent" : "agent", f->agent, sentence);
	return wb__reconcile_look(r, now);
}

/* The refused worker ends, and may come again: until then the reason is kept. */
void wb__reconcile_note_fault(struct wb_reconcile *r, const struct agent *a,
	enum member_fault fault, struct wb_reconcile_now now, const char *sentence)
{
	struct refusal *f = &r->refusal;

	f->what = fault == FAULT_ROLE ? WB_REFUSED_ROLE : WB_REFUSED_ENGINE;
	f->until_ns = now.ns + REFUSAL_NS;
	snprintf(f->agent, sizeof(f->agent), "%.*s", WB_RECONCILE_AGENT_MAX, a->name);
	snprintf(f->text, sizeof(f->text), "%.900s", sentence);
}

/* Whether what was refused has been let in after all.  Refusals for a library, a name or a budget
 * are withdrawn by their own reports. */
static bool is_over(const struct wb_reconcile *r, const struct refusal *f, const struct agent *a)
{
	if (!a->is_up || strcmp(a->name, f->agent) != 0)
		return false;
	if (f->what == WB_REFUSED_LIBRARY || f->what == WB_REFUSED_NAME ||
		f->what == WB_REFUSED_BUDGET)
		return false;
	if (f->what == WB_REFUSED_TOKEN || f->what == WB_REFUSED_VERSION)
		return true;
	for (size_t i = 0; i < r->n_worker; i++)
		if (r->worker[i].instance == a->instance && !r->worker[i].is_refused)
			return true;
	return false;
}

void wb__reconcile_expire_refusal(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	struct refusal *f = &r->refusal;

	if (!f->until_ns)
		return;
	for (size_t i = 0; i < r->n_agent; i++)
		if (is_over(r, f, &r->agent[i]))
			f->until_ns = now.ns;
	if (now.ns >= f->until_ns)
		f->until_ns = 0;
	else
		wb__reconcile_due(r, f->until_ns);
}

static bool is_role(const struct pod *p, enum wb_role role)
{
	return !*p->role || !strcmp(p->role, "both") ||
	       !strcmp(p->role, wb_word(&wb_role_words, role));
}

enum member_fault wb__reconcile_place_worker(const struct wb_reconcile *r, const struct agent *a,
	struct worker *w, const char *app_engine, char *why, size_t bytes)
{
	const struct pod *p = pod_of(r, a->name);

	if (!app_engine)
		app_engine = "";
	if (p && !is_role(p, w->role)) {
		snprintf(why, bytes,
			"%s is a %s worker, but label weightbridge.io/role of its "
			"pod is '%s': change one of them",
			w->name, wb_word(&wb_role_words, w->role), p->role);
		return FAULT_ROLE;
	}
	if (w->role == WB_ROLE_TRAINER)
		return FAULT_NONE;
	if (p && *p->engine && strlen(app_engine) > ENGINE_IN_POD_MAX) {
		snprintf(why, bytes,
			"%s: the name of its engine, '%s', has more than the %d bytes that there "
			"are for it beside the engine of its pod, %s",
			w->name, app_engine, ENGINE_IN_POD_MAX, p->engine);
		return FAULT_ENGINE;
	}
	if (p && *p->engine)
		snprintf(w->engine, sizeof(w->engine), "%s%s%.63s", p->engine,
			*app_engine ? "/" : "", app_engine);
	else
		snprintf(w->engine, sizeof(w->engine), "%s", app_engine);
	if (*w->engine)
		return FAULT_NONE;
	if (p)
		snprintf(why, bytes,
			"%s has no engine: its pod has no label %s, and the "
			"worker named none",
			w->name, r->spec.engine_label_key);
	else
		snprintf(why, bytes, "%s has no engine: name its engine", w->name);
	return FAULT_ENGINE;
}

bool wb__reconcile_all_pods_connected(const struct wb_reconcile *r)
{
	size_t n = 0, n_up = 0;

	for (size_t i = 0; i < r->n_pod; i++)
		n += r->pod[i].has_sidecar;
	for (size_t i = 0; i < r->n_agent; i++) {
		const struct pod *p = pod_of(r, r->agent[i].name);

		n_up += r->agent[i].is_up && p && p->has_sidecar;
	}
	return n && n_up == n;
}

const char *wb__reconcile_without_sidecar(const struct wb_reconcile *r, char *out, size_t bytes)
{
	struct wb_buf b;
	size_t n = 0;

	wb_buf_init(&b, 4096);
	for (size_t i = 0; i < r->n_pod; i++) {
		if (r->pod[i].has_sidecar)
			continue;
		if (n++ < NAMED_MAX)
			wb_buf_printf(&b, "%s%s", n == 1 ? "" : ", ", r->pod[i].name);
	}
	if (!n)
		out[0] = '\0';
	else
		snprintf(out, bytes, "%zu pod%s ha%s no container weightbridge-agent: %s%s", n,
			n == 1 ? "" : "s", n == 1 ? "s" : "ve", wb_buf_cstr(&b),
			n > NAMED_MAX ? ", ..." : "");
	wb_buf_finish(&b);
	return out;
}

const char *wb__reconcile_unscheduled(const struct wb_reconcile *r, char *out, size_t bytes)
{
	const struct pod *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < r->n_pod; i++) {
		if (!*r->pod[i].unscheduled)
			continue;
		first = first ? first : &r->pod[i];
		n++;
	}
	if (n > 1)
		snprintf(out, bytes, "%zu pods have no node, %s among them: %s", n, first->name,
			first->unscheduled);
	else
		snprintf(out, bytes, "%s%s%s%s", n ? "pod " : "", n ? first->name : "",
			n ? " has no node: " : "", n ? first->unscheduled : "");
	return out;
}

const char *wb__reconcile_members_reason(
	const struct wb_reconcile *r, bool is_lost, const char *bare, const char *unscheduled)
{
	static const char *const refusals[] = {
		[WB_REFUSED_TOKEN] = "AuthenticationRejected",
		[WB_REFUSED_VERSION] = "ProtocolVersionMismatch",
		[WB_REFUSED_NAME] = "AgentNameTaken",
		[WB_REFUSED_LIBRARY] = "LibraryVersionMismatch",
		[WB_REFUSED_BUDGET] = "BudgetExceeded",
		[WB_REFUSED_ROLE] = "RoleMismatch",
		[WB_REFUSED_ENGINE] = "EngineLabelMissing",
	};

	if (r->refusal.until_ns)
		return refusals[r->refusal.what];
	if (*bare)
		return "SidecarMissing";
	if (*unscheduled)
		return "PodUnschedulable";
	if (is_lost)
		return "AgentLost";
	if (r->o.has_pods && !r->n_pod)
		return "WaitingForPods";
	return "WaitingForAgents";
}
