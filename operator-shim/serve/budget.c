/* SPDX-License-Identifier: Apache-2.0 */
/* Charges what tenants use to accounts, and refuses what is above a limit. */
#include "operator-shim/serve/budget.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 320 /* namespace, slash, name */
#define KI UINT64_C(1024)
#define MI (KI * KI)

/* Kinds of budget: what one thing of a kind costs, and which part of the memory all things of the
 * kind together may take.  The parts add up to less than the whole, since the program itself needs
 * the rest.  A namespace and an object may use only a share of the limit for all, so that one
 * tenant at its limit leaves room for others. */
static const struct kind {
	const char *name; /* of the option */
	const char *what; /* in sentences */
	uint64_t cost; /* bytes for one; 1 for kinds counted in bytes */
	unsigned part; /* the limit for all is what memory / part pays for */
	/* The limit for all is divided by these; object_share 0 = a limit of 1 */
	unsigned namespace_share, object_share;
	uint64_t least; /* the limit for all is never below this */
	bool is_bytes;
} kinds[WB_BUDGET_KINDS] = {
	[WB_BUDGET_OBJECTS] = {"objects", "WeightTransfers", 128 * KI, 8, 4, 0, 16, false},
	[WB_BUDGET_AGENTS] = {"agents", "connected agents", 64 * KI, 4, 2, 2, 64, false},
	[WB_BUDGET_CONNECTIONS] = {"connections",
		"connections that have not shown yet who they are", 128 * KI, 16, 1, 1, 64, false},
	[WB_BUDGET_WORKERS] = {"workers", "workers of connected agents", 2 * KI, 16, 2, 2, 256,
		false},
	[WB_BUDGET_MAPS] = {"maps", "of manifests and source maps", 1, 8, 2, 2, 4 * MI, true},
	[WB_BUDGET_PLANS] = {"plans", "of plans", 1, 16, 2, 2, 4 * MI, true},
	[WB_BUDGET_FRAMES] = {"frames", "of messages that have not come whole", 1, 64, 2, 2,
		16 * MI, true},
	[WB_BUDGET_REPORTS] = {"reports", "of reports of transfers", 1, 64, 2, 2, 4 * MI, true},
	[WB_BUDGET_PAGES] = {"pages", "of pages that are being read", 1, 32, 2, 2, 4 * MI, true},
	[WB_BUDGET_PLANNING] = {"planning", "plans being computed", 0, 0, 2, 2, 2, false},
};

/* At most two plans are computed at a time, one for each namespace.  Together they may take three
 * sixteenths of the memory. */
#define PLANNING_AT_ONCE 2
#define PLANNING_BYTES(memory) ((memory) / 32 * 3)
#define PLANNING_LEAST (16 * MI)

struct account {
	char key[KEY_MAX]; /* "namespace/name", or "namespace/" */
	uint64_t used[WB_BUDGET_KINDS];
};

struct wb_budget {
	uint32_t refs;
	struct wb_budget_limits limits;
	uint64_t all[WB_BUDGET_KINDS];
	struct account **account; /* owned; sorted by key; those that use something */
	size_t n, cap;
	uint64_t refused[WB_BUDGET_KINDS][WB_BUDGET_SCOPES];
};

const char *wb_budget_name(enum wb_budget_kind k)
{
	return kinds[k].name;
}

void wb_budget_size(uint64_t memory_bytes, struct wb_budget_limits *out)
{
	*out = (struct wb_budget_limits){.memory_bytes = memory_bytes};
	out->planning_bytes = WB_MAX(PLANNING_BYTES(memory_bytes), PLANNING_LEAST);
	for (int i = 0; i < WB_BUDGET_KINDS; i++) {
		const struct kind *k = &kinds[i];
		uint64_t all = k->cost ? memory_bytes / k->part / k->cost : PLANNING_AT_ONCE;
		uint64_t *v = out->v[i];

		v[WB_BUDGET_ALL] = WB_MAX(all, k->least);
		v[WB_BUDGET_NAMESPACE] = WB_MAX(v[WB_BUDGET_ALL] / k->namespace_share, 1);
		v[WB_BUDGET_OBJECT] =
			k->object_share ? WB_MAX(v[WB_BUDGET_ALL] / k->object_share, 1) : 1;
	}
}

/* ---- the option ---- */

/* Read "64", or for a kind that is counted in bytes also "64Mi"; *at is moved behind the figure. */
static int read_figure(const char **at, bool is_bytes, uint64_t *out)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;

	if (**at < '0' || **at > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoull(*at, &end, 10);
	if (errno || !*out || *out >> 53)
		return -EINVAL;
	unit = *end && is_bytes ? strchr(units, *end) : NULL;
	if (unit && end[1] == 'i') {
		unsigned shift = 10 * (unsigned)(unit - units + 1);

		if (*out >> (53 - shift))
			return -EINVAL;
		*out <<= shift;
		end += 2;
	}
	*at = end;
	return 0;
}

static int find_kind(const char *text, size_t n)
{
	for (int i = 0; i < WB_BUDGET_KINDS; i++)
		if (strlen(kinds[i].name) == n && !strncmp(kinds[i].name, text, n))
			return i;
	return -EINVAL;
}

int wb_budget_override(struct wb_budget_limits *l, const char *text)
{
	const char *at = strchr(text, '=');
	int kind = at ? find_kind(text, (size_t)(at - text)) : -EINVAL, n = 0;
	uint64_t v[WB_BUDGET_SCOPES];

	if (kind < 0)
		return kind;
	memcpy(v, l->v[kind], sizeof(v));
	do {
		at++;
		if (n == WB_BUDGET_SCOPES || read_figure(&at, kinds[kind].is_bytes, &v[n]) < 0)
			return -EINVAL;
		if (n && v[n] > v[n - 1])
			return -EINVAL; /* more for one than for all */
		n++;
	} while (*at == '/');
	if (*at)
		return -EINVAL;
	for (; n < WB_BUDGET_SCOPES; n++)
		v[n] = WB_MIN(v[n], v[n - 1]);
	memcpy(l->v[kind], v, sizeof(v));
	return 0;
}

/* ---- accounts ---- */

int wb_budget_create(const struct wb_budget_limits *l, struct wb_budget **out)
{
	struct wb_budget *b = wb_zalloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->refs = 1;
	b->limits = *l;
	*out = b;
	return 0;
}

struct wb_budget *wb_budget_get(struct wb_budget *b)
{
	b->refs++;
	return b;
}

void wb_budget_put(struct wb_budget *b)
{
	if (!b || --b->refs)
		return;
	for (size_t i = 0; i < b->n; i++)
		wb_free(b->account[i]);
	wb_free(b->account);
	wb_free(b);
}

const struct wb_budget_limits *wb_budget_limits(const struct wb_budget *b)
{
	return &b->limits;
}

/* The key of an account; false if there is no object.  A namespace's key ends with the slash, and
 * an object's key never does, since names are not empty: so the two are never the same. */
static bool key_of(const char *object, enum wb_budget_scope scope, char out[KEY_MAX])
{
	const char *slash = strchr(object, '/');
	int n = slash && scope == WB_BUDGET_NAMESPACE ? (int)(slash - object) + 1 : KEY_MAX - 1;

	if (!*object)
		return false;
	snprintf(out, KEY_MAX, "%.*s", n, object);
	return true;
}

/* Index of the account with this key, or the index where it would be inserted. */
static size_t place(const struct wb_budget *b, const char *key)
{
	size_t lo = 0, hi = b->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (strcmp(b->account[mid]->key, key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct account *find(const struct wb_budget *b, const char *key)
{
	size_t i = place(b, key);

	return i < b->n && !strcmp(b->account[i]->key, key) ? b->account[i] : NULL;
}

/* As find(), but an account is made if there is none; NULL when memory is short. */
static struct account *get(struct wb_budget *b, const char *key)
{
	size_t i = place(b, key);
	struct account *a;

	if (i < b->n && !strcmp(b->account[i]->key, key))
		return b->account[i];
	if (wb_grow(&b->account, &b->cap, b->n + 1, SIZE_MAX / 64, sizeof(a)) < 0)
		return NULL;
	a = wb_zalloc(1, sizeof(*a));
	if (!a)
		return NULL;
	snprintf(a->key, sizeof(a->key), "%s", key);
	memmove(&b->account[i + 1], &b->account[i], (b->n - i) * sizeof(a));
	b->account[i] = a;
	b->n++;
	return a;
}

static void drop_if_unused(struct wb_budget *b, struct account *a)
{
	size_t i = place(b, a->key);

	for (int k = 0; k < WB_BUDGET_KINDS; k++)
		if (a->used[k])
			return;
	memmove(&b->account[i], &b->account[i + 1], (b->n - i - 1) * sizeof(a));
	b->n--;
	wb_free(a);
}

static uint64_t used_of(const struct wb_budget *b, enum wb_budget_kind kind, const char *object,
	enum wb_budget_scope scope)
{
	char key[KEY_MAX];
	const struct account *a;

	if (scope == WB_BUDGET_ALL)
		return b->all[kind];
	if (!key_of(object, scope, key))
		return 0;
	a = find(b, key);
	return a ? a->used[kind] : 0;
}

/* The narrowest scope without room, with what is used of it; WB_BUDGET_SCOPES = there is room. */
static enum wb_budget_scope full_scope(const struct wb_budget *b, enum wb_budget_kind kind,
	const char *object, uint64_t amount, uint64_t *used)
{
	for (int scope = WB_BUDGET_SCOPES - 1; scope >= 0; scope--) {
		uint64_t limit = b->limits.v[kind][scope];

		if (!*object && scope != WB_BUDGET_ALL)
			continue;
		*used = used_of(b, kind, object, (enum wb_budget_scope)scope);
		if (amount > limit || *used > limit - amount)
			return (enum wb_budget_scope)scope;
	}
	return WB_BUDGET_SCOPES;
}

static const char *figure(const struct kind *k, uint64_t v, char out[32])
{
	if (k->is_bytes && v >= 10 * MI)
		snprintf(out, 32, "%" PRIu64 " MiB", v / MI);
	else if (k->is_bytes)
		snprintf(out, 32, "%" PRIu64 " KiB", wb_ceil_div(v, KI));
	else
		snprintf(out, 32, "%" PRIu64, v);
	return out;
}

static int refuse(struct wb_budget *b, enum wb_budget_kind kind, const char *object,
	enum wb_budget_scope scope, uint64_t used, uint64_t amount, struct wb_err *err)
{
	const struct kind *k = &kinds[kind];
	char has[32], wants[32], limit[32], who[400], key[KEY_MAX] = "";

	b->refused[kind][scope]++;
	(void)key_of(object, scope, key);
	if (scope == WB_BUDGET_NAMESPACE)
		key[strcspn(key, "/")] = '\0';
	switch (scope) {
	case WB_BUDGET_NAMESPACE:
		snprintf(who, sizeof(who), "namespace %.63s has", key);
		break;
	case WB_BUDGET_OBJECT:
		snprintf(who, sizeof(who), "WeightTransfer %.317s has", key);
		break;
	default:
		snprintf(who, sizeof(who), "all tenants of this operator together have");
	}
	return wb_err_set(err, -EDQUOT,
		"%s %s %s, %s more would be above the budget of %s: use less, or raise the "
		"operator's "
		"memory limit (resources.limits.memory) or --budget %s (chart value budgets.%s)",
		who, figure(k, used, has), k->what, figure(k, amount, wants),
		figure(k, b->limits.v[kind][scope], limit), k->name, k->name);
}

int wb_budget_charge(struct wb_budget *b, enum wb_budget_kind kind, const char *object,
	uint64_t amount, struct wb_err *err)
{
	char key[KEY_MAX];
	struct account *a[WB_BUDGET_SCOPES] = {NULL};
	uint64_t used = 0;
	enum wb_budget_scope full = full_scope(b, kind, object, amount, &used);

	if (full != WB_BUDGET_SCOPES)
		return refuse(b, kind, object, full, used, amount, err);
	if (!amount)
		return 0;
	for (int s = WB_BUDGET_NAMESPACE; s < WB_BUDGET_SCOPES && *object; s++) {
		key_of(object, (enum wb_budget_scope)s, key);
		a[s] = get(b, key);
		if (!a[s]) {
			if (s > WB_BUDGET_NAMESPACE)
				drop_if_unused(b, a[WB_BUDGET_NAMESPACE]);
			return wb_err_set(err, -ENOMEM, "the operator is out of memory");
		}
	}
	b->all[kind] += amount;
	for (int s = WB_BUDGET_NAMESPACE; s < WB_BUDGET_SCOPES && *object; s++)
		a[s]->used[kind] += amount;
	return 0;
}

bool wb_budget_has_room(
	const struct wb_budget *b, enum wb_budget_kind kind, const char *object, uint64_t amount)
{
	uint64_t used;

	return full_scope(b, kind, object, amount, &used) == WB_BUDGET_SCOPES;
}

void wb_budget_release(
	struct wb_budget *b, enum wb_budget_kind kind, const char *object, uint64_t amount)
{
	char key[KEY_MAX];

	assert(b->all[kind] >= amount);
	b->all[kind] -= amount;
	for (int s = WB_BUDGET_NAMESPACE; s < WB_BUDGET_SCOPES && *object && amount; s++) {
		struct account *a;

		key_of(object, (enum wb_budget_scope)s, key);
		a = find(b, key);
		assert(a && a->used[kind] >= amount);
		if (!a)
			continue;
		a->used[kind] -= amount;
		drop_if_unused(b, a);
	}
}

void wb_budget_most(const struct wb_budget *b, uint64_t out[WB_BUDGET_KINDS][WB_BUDGET_SCOPES])
{
	for (int k = 0; k < WB_BUDGET_KINDS; k++) {
		out[k][WB_BUDGET_ALL] = b->all[k];
		out[k][WB_BUDGET_NAMESPACE] = out[k][WB_BUDGET_OBJECT] = 0;
	}
	for (size_t i = 0; i < b->n; i++) {
		const struct account *a = b->account[i];
		bool is_object = a->key[strlen(a->key) - 1] != '/';
		enum wb_budget_scope scope = is_object ? WB_BUDGET_OBJECT : WB_BUDGET_NAMESPACE;

		for (int k = 0; k < WB_BUDGET_KINDS; k++)
			out[k][scope] = WB_MAX(out[k][scope], a->used[k]);
	}
}

uint64_t wb_budget_refused(
	const struct wb_budget *b, enum wb_budget_kind kind, enum wb_budget_scope scope)
{
	return b->refused[kind][scope];
}
