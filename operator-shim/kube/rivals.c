/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/rivals.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/mem.h"
#include "operator-shim/kube/lease.h"
#include "operator-shim/kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEAD_NS (60 * WB_NS_PER_S) /* more than any change of leaders takes */
#define PROOF_NS (60 * WB_NS_PER_S) /* asked anew after this: rights may change */
#define RIVALS_MAX 8192

void wb_kube_rivals_finish(struct wb_kube_rivals *r)
{
	wb_free(r->rival);
	*r = (struct wb_kube_rivals){0};
}

void wb_kube_rivals_begin(struct wb_kube_rivals *r)
{
	for (size_t i = 0; i < r->n; i++)
		r->rival[i].is_listed = false;
}

/* 0 with *@out NULL: enough Leases of that namespace, or of all namespaces, are kept.
 *
 * Of a namespace the first few of the list count, whether they were known before or not; others
 * that were known go when the list ends.  So a Lease that is gone takes no place from one that is
 * there. Until the list ends twice as many may be kept, and never more, however many lists fail
 * before their end. */
static int find_or_add(
	struct wb_kube_rivals *r, const char *ns, const char *name, struct wb_kube_rival **out)
{
	struct wb_kube_rival *known = NULL;
	unsigned n_kept = 0, n_listed = 0;
	int rc;

	*out = NULL;
	for (size_t i = 0; i < r->n; i++) {
		struct wb_kube_rival *x = &r->rival[i];

		if (strcmp(x->ns, ns) != 0)
			continue;
		if (!strcmp(x->name, name)) {
			known = x;
			continue;
		}
		n_kept++;
		n_listed += x->is_listed;
	}
	if (n_listed >= WB_KUBE_RIVALS_OF_NAMESPACE)
		return 0;
	*out = known;
	if (known || n_kept >= 2 * WB_KUBE_RIVALS_OF_NAMESPACE || r->n == RIVALS_MAX)
		return 0;
	rc = wb_grow(&r->rival, &r->cap, r->n + 1, RIVALS_MAX, sizeof(*r->rival));
	if (rc < 0)
		return rc;
	*out = &r->rival[r->n++];
	**out = (struct wb_kube_rival){0};
	snprintf((*out)->ns, sizeof((*out)->ns), "%s", ns);
	snprintf((*out)->name, sizeof((*out)->name), "%s", name);
	return 0;
}

static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* A service account can have this name.  About other names no question can be asked. */
static bool is_account(const char *name)
{
	size_t n = strlen(name);

	if (!n || n >= sizeof(((struct wb_kube_rival *)0)->account) || !is_plain(name[0]) ||
		!is_plain(name[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_plain(name[i]) && name[i] != '-' && name[i] != '.')
			return false;
	return true;
}

static void see(struct wb_kube_rival *x, const json_t *lease, uint64_t now_ns)
{
	const json_t *notes = json_object_get(json_object_get(lease, "metadata"), "annotations");
	const char *account = json_string_value(json_object_get(notes, WB_KUBE_LEASE_ACCOUNT));
	const char *version = wb_kube_meta(lease, "resourceVersion");

	account = account && is_account(account) ? account : "";
	if (strcmp(x->account, account) != 0) {
		x->asked_ns = 0;
		x->n_failed = 0;
		x->is_proved = false;
	}
	if (!x->seen_ns || strcmp(x->version, version) != 0)
		x->seen_ns = now_ns;
	snprintf(x->account, sizeof(x->account), "%s", account);
	snprintf(x->version, sizeof(x->version), "%s", version);
	snprintf(x->uid, sizeof(x->uid), "%s", wb_kube_meta(lease, "uid"));
	snprintf(x->born, sizeof(x->born), "%s", wb_kube_meta(lease, "creationTimestamp"));
	x->is_listed = true;
}

int wb_kube_rivals_page(
	struct wb_kube_rivals *r, const json_t *list, const char *own_uid, uint64_t now_ns)
{
	const json_t *lease;
	size_t i;

	json_array_foreach(json_object_get(list, "items"), i, lease)
	{
		struct wb_kube_rival *x;
		int rc;

		if (!strcmp(wb_kube_meta(lease, "uid"), own_uid))
			continue;
		rc = find_or_add(
			r, wb_kube_meta(lease, "namespace"), wb_kube_meta(lease, "name"), &x);
		if (rc < 0)
			return rc;
		if (x)
			see(x, lease, now_ns);
	}
	return 0;
}

void wb_kube_rivals_end(struct wb_kube_rivals *r)
{
	size_t keep = 0;

	for (size_t i = 0; i < r->n; i++)
		if (r->rival[i].is_listed)
			r->rival[keep++] = r->rival[i];
	r->n = keep;
}

static bool is_alive(const struct wb_kube_rival *x, uint64_t now_ns)
{
	return now_ns - x->seen_ns < DEAD_NS;
}

struct wb_kube_rival *wb_kube_rivals_unproved(struct wb_kube_rivals *r, uint64_t now_ns)
{
	for (size_t i = 0; i < r->n; i++) {
		struct wb_kube_rival *x = &r->rival[i];

		if (*x->account && is_alive(x, now_ns) &&
			(!x->asked_ns || now_ns - x->asked_ns >= PROOF_NS))
			return x;
	}
	return NULL;
}

void wb_kube_rivals_answered(struct wb_kube_rival *x, bool is_allowed, uint64_t now_ns)
{
	x->asked_ns = now_ns;
	x->n_failed = 0;
	x->is_proved = is_allowed;
}

void wb_kube_rivals_failed(struct wb_kube_rival *x, uint64_t now_ns)
{
	if (++x->n_failed < WB_KUBE_RIVALS_TRIES)
		return;
	x->asked_ns = now_ns;
	x->n_failed = 0;
}

const struct wb_kube_rival *wb_kube_rivals_live(
	const struct wb_kube_rivals *r, uint64_t now_ns, unsigned *n_out)
{
	const struct wb_kube_rival *first = NULL;

	*n_out = 0;
	for (size_t i = 0; i < r->n; i++) {
		const struct wb_kube_rival *x = &r->rival[i];

		if (!x->is_proved || !is_alive(x, now_ns))
			continue;
		first = first ? first : x;
		++*n_out;
	}
	return first;
}

bool wb_kube_rivals_is_eldest(
	const struct wb_kube_rivals *r, const char *born, const char *uid, uint64_t now_ns)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct wb_kube_rival *x = &r->rival[i];
		int c = strcmp(born, x->born);

		if (x->is_proved && is_alive(x, now_ns) && (c ? c > 0 : strcmp(uid, x->uid) >= 0))
			return false;
	}
	return true;
}
