/* SPDX-License-Identifier: Apache-2.0 */
/* Adds to a status which spec it answers and who vouches for it, and compares statuses. */
#include "operator-shim/kube/bodies.h"
#include "operator-shim/kube/text.h"

#include <string.h>

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void set_new_if_absent(json_t *o, const char *key, json_t *v)
{
	if (json_object_get(o, key))
		json_decref(v);
	else
		json_object_set_new(o, key, v);
}

void wb_kube_observed(json_t *status, int64_t generation)
{
	json_t *c;
	size_t i;

	set_new_if_absent(status, "observedGeneration", json_integer(generation));
	json_array_foreach(json_object_get(status, "conditions"), i, c)
	{
		set_new_if_absent(c, "observedGeneration", json_integer(generation));
	}
}

/* Index of condition @type; the number of conditions when there is none. */
static size_t place(const json_t *status, const char *type)
{
	const json_t *list = json_object_get(status, "conditions");
	size_t i = 0, n = json_array_size(list);

	while (i < n && strcmp(text(json_array_get(list, i), "type"), type) != 0)
		i++;
	return i;
}

static const json_t *condition(const json_t *status, const char *type)
{
	return json_array_get(json_object_get(status, "conditions"), place(status, type));
}

/* Set condition @type.  While its status is the same as in @written, the time stays too. */
static void put_condition(json_t *status, const json_t *written, const char *type, bool is_true,
	const struct wb_kube_verdict *v)
{
	const char *is = is_true ? "True" : "False";
	const json_t *old = condition(written, type);
	bool is_same = !strcmp(text(old, "status"), is) && *text(old, "lastTransitionTime");
	char when[WB_KUBE_TIME_TEXT];
	json_t *c, *list;

	wb_kube_seconds(v->wall_ns, when);
	c = json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "type", type, "status", is,
		"observedGeneration", (json_int_t)v->generation, "lastTransitionTime",
		is_same ? text(old, "lastTransitionTime") : when, "reason", v->reason, "message",
		v->why ? v->why : "");
	set_new_if_absent(status, "conditions", json_array());
	list = json_object_get(status, "conditions");
	if (place(status, type) < json_array_size(list))
		json_array_set_new(list, place(status, type), c);
	else
		json_array_append_new(list, c);
}

void wb_kube_accepted(json_t *status, const json_t *written, const struct wb_kube_verdict *v)
{
	put_condition(status, written, "Accepted", !v->why, v);
}

void wb_kube_not_ready(json_t *status, const json_t *written, const struct wb_kube_verdict *v)
{
	put_condition(status, written, "Ready", false, v);
}

void wb_kube_confirm(json_t *status, const char *name, uint64_t wall_ns)
{
	char when[WB_KUBE_TIME_TEXT];

	json_object_set_new(status, "operator",
		json_pack("{s:s, s:s}", "name", name, "renewTime", wb_kube_seconds(wall_ns, when)));
}

uint64_t wb_kube_confirmed_ns(const json_t *status)
{
	return wb_kube_read_time(text(json_object_get(status, "operator"), "renewTime"));
}

static bool is_another(const json_t *a, const json_t *b, const char *key)
{
	const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

	return x && !json_equal(x, y);
}

bool wb_kube_is_news(const json_t *status, const json_t *written)
{
	const json_t *last = json_object_get(status, "lastTransfer");
	const json_t *before = json_object_get(written, "lastTransfer");
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(status, "conditions"), i, c)
	{
		if (is_another(c, condition(written, text(c, "type")), "status"))
			return true;
	}
	return is_another(status, written, "version") || is_another(last, before, "transfer") ||
	       is_another(last, before, "result");
}

bool wb_kube_same_status(const json_t *a, const json_t *b)
{
	json_t *x = json_copy((json_t *)(uintptr_t)a), *y = json_copy((json_t *)(uintptr_t)b);
	bool is_same;

	json_object_del(x, "operator");
	json_object_del(y, "operator");
	/* When acceptedSpec differs, the generation differs too.  A stored status that has no
	 * acceptedSpec, since an older operator wrote it, is no reason to write. */
	json_object_del(x, "acceptedSpec");
	json_object_del(y, "acceptedSpec");
	is_same = x && y && json_equal(x, y);
	json_decref(x);
	json_decref(y);
	return is_same;
}

static void trim_transfer(json_t *t)
{
	json_object_del(t, "throughputMegabitsPerSecond");
}

void wb_kube_without_news(json_t *status)
{
	json_t *t;
	size_t i;

	json_object_del(status, "operator");
	json_object_del(status, "acceptedSpec");
	trim_transfer(json_object_get(status, "lastTransfer"));
	json_array_foreach(json_object_get(status, "recentTransfers"), i, t)
	{
		trim_transfer(t);
	}
}
