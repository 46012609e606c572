/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/others.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "net/loop.h"
#include "operator-shim/kube/lean.h"
#include "operator-shim/kube/lease.h"
#include "operator-shim/kube/watch.h"
#include "operator-shim/scopes.h"
#include "operator-shim/spec/spec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOD "cluster"
#define DEAD_NS (60 * WB_NS_PER_S)
#define LOOK_NS WB_NS_PER_S
#define WAIT_NS (30 * WB_NS_PER_S) /* while the list fails; then all are served */

/* A namespace with a Lease WB__SCOPE_LEASE. */
struct space {
	struct space *next;
	char ns[WB_SPEC_NAMESPACE_MAX + 1];
	char release[WB_KUBE_LEASE_HOLDER];
	uint64_t seen_ns; /* when the Lease last changed, by our clock */
	bool is_theirs; /* as on_changed was last told */
};

struct wb__others {
	struct wb__others_cb cb;
	char release[320];
	struct wb_kube_watch *watch;
	struct wb_timer *timer;
	struct space *space; /* list, owned */
	struct wb_names by_ns;
	size_t n_theirs;
	uint64_t began_ns;
	bool is_known;
};

static struct space *find(const struct wb__others *t, const char *ns)
{
	const char *at = wb_names_find(&t->by_ns, ns);

	return at ? (struct space *)(uintptr_t)(at - offsetof(struct space, ns)) : NULL;
}

static struct space *find_or_add(struct wb__others *t, const char *ns)
{
	struct space *s = find(t, ns);

	if (s)
		return s;
	s = wb_zalloc(1, sizeof(*s));
	if (!s)
		return NULL;
	snprintf(s->ns, sizeof(s->ns), "%s", ns);
	if (wb_names_add(&t->by_ns, s->ns) < 0) {
		wb_free(s);
		return NULL;
	}
	s->next = t->space;
	t->space = s;
	return s;
}

static void judge(struct wb__others *t, struct space *s, bool is_renamed)
{
	bool is_theirs = *s->release && strcmp(s->release, t->release) != 0 &&
			 wb_now_ns(&wb_clock_real) - s->seen_ns < DEAD_NS;

	if (s->is_theirs == is_theirs && !(is_theirs && is_renamed))
		return;
	t->n_theirs += (size_t)is_theirs - (size_t)s->is_theirs;
	s->is_theirs = is_theirs;
	t->cb.on_changed(t->cb.cookie, s->ns, is_theirs ? s->release : NULL);
}

static void on_put(void *cookie, json_t *lease)
{
	char holder[WB_KUBE_LEASE_HOLDER];
	struct wb__others *t = cookie;
	struct space *s = find_or_add(t, wb_kube_meta(lease, "namespace"));
	bool is_renamed;

	if (!s)
		return; /* the next renewal, in a few seconds, comes here again */
	wb_kube_lease_holder(lease, holder);
	is_renamed = strcmp(s->release, holder) != 0;
	memcpy(s->release, holder, sizeof(holder));
	s->seen_ns = wb_now_ns(&wb_clock_real);
	judge(t, s, is_renamed);
}

static void on_gone(void *cookie, json_t *lease)
{
	struct wb__others *t = cookie;
	struct space *s = find(t, wb_kube_meta(lease, "namespace"));

	if (!s)
		return;
	s->release[0] = '\0';
	judge(t, s, false);
}

static void know(struct wb__others *t)
{
	if (t->is_known)
		return;
	t->is_known = true;
	t->cb.on_known(t->cb.cookie);
}

static void on_synced(void *cookie)
{
	know(cookie);
}

/* A single failure says nothing yet, and an operator that begins too early would write into objects
 * that another release serves. */
static void give_up(struct wb__others *t)
{
	const struct wb_kube_watch_stats *st = wb_kube_watch_get_stats(t->watch);

	if (t->is_known || !st->failures ||
		(st->last_status != 403 && wb_now_ns(&wb_clock_real) - t->began_ns < WAIT_NS))
		return;
	WB_LOG_WRN(MOD,
		"Leases cannot be listed: namespaces that another release serves are not known, "
		"and not left to it",
		WB_S("lease", WB__SCOPE_LEASE), WB_S("why", st->last_failure));
	know(t);
}

static void on_timer(void *cookie)
{
	struct wb__others *t = cookie;

	for (struct space *s = t->space; s; s = s->next)
		judge(t, s, false);
	give_up(t);
}

/* Anybody may make such a Lease in a namespace of their own, so only the parts that we need are
 * kept. */
static void trim(void *cookie, json_t *lease)
{
	(void)cookie;
	wb_kube_lean_lease(lease);
}

/* ---- life ---- */

int wb__others_start(struct wb_kube *kube, const char *release, const struct wb__others_cb *cb,
	struct wb__others **out)
{
	struct wb__others *t = wb_zalloc(1, sizeof(*t));
	struct wb_kube_watch_cb wcb = {t, on_put, on_gone, on_synced, trim};
	struct wb_kube_watch_opts o = {
		.path = "/apis/coordination.k8s.io/v1/leases", .name = WB__SCOPE_LEASE};

	if (!t)
		return -ENOMEM;
	t->cb = *cb;
	t->began_ns = wb_now_ns(&wb_clock_real);
	snprintf(t->release, sizeof(t->release), "%s", release);
	if (wb_timer_create(wb_kube_loop(kube), on_timer, t, &t->timer) < 0 ||
		wb_kube_watch_start(kube, &o, &wcb, &t->watch) < 0) {
		wb__others_stop(t);
		return -ENOMEM;
	}
	wb_timer_start(t->timer, LOOK_NS, LOOK_NS);
	*out = t;
	return 0;
}

void wb__others_stop(struct wb__others *t)
{
	struct space *s;

	if (!t)
		return;
	wb_kube_watch_stop(t->watch);
	wb_timer_destroy(t->timer);
	while ((s = t->space)) {
		t->space = s->next;
		wb_names_drop(&t->by_ns, s->ns);
		wb_free(s);
	}
	wb_free(t);
}

const char *wb__others_release(const struct wb__others *t, const char *ns)
{
	const struct space *s = t ? find(t, ns) : NULL;

	return s && s->is_theirs ? s->release : NULL;
}

size_t wb__others_count(const struct wb__others *t)
{
	return t ? t->n_theirs : 0;
}
