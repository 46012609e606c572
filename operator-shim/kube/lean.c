/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/lean.h"

#include "base/base.h"
#include "operator-shim/kube/lease.h"

#include <string.h>

#define UID_MAX 64
#define GROUP "weightbridge.io/"

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* Remove all keys of @o but two.  The objects inside are made anew instead (lean_meta()), since an
 * object from which keys are removed keeps a hash table of the old size. */
static void keep_two(json_t *o, const char *a, const char *b)
{
	const char *key;
	json_t *value;
	void *tmp;

	json_object_foreach_safe(o, tmp, key, value)
	{
		if (strcmp(key, a) != 0 && strcmp(key, b) != 0)
			json_object_del(o, key);
	}
}

static json_t *lean_meta(const json_t *meta)
{
	static const char *const kept[] = {"name", "namespace", "uid", "resourceVersion"};
	json_t *lean = json_object();

	for (size_t i = 0; i < WB_ARRAY_SIZE(kept); i++)
		if (json_object_get(meta, kept[i]))
			json_object_set(lean, kept[i], json_object_get(meta, kept[i]));
	return lean;
}

static json_t *lean_owners(const json_t *owners)
{
	json_t *lean = json_array();
	const json_t *o;
	size_t i;

	json_array_foreach(owners, i, o)
	{
		const char *uid = text(o, "uid");

		if (!strcmp(text(o, "kind"), "WeightTransfer") && *uid && strlen(uid) <= UID_MAX &&
			!strncmp(text(o, "apiVersion"), GROUP, strlen(GROUP)))
			json_array_append_new(lean, json_pack("{s:s}", "uid", uid));
		if (json_array_size(lean) == WB_KUBE_LEAN_OWNERS)
			break;
	}
	return lean;
}

size_t wb_kube_lean_map(json_t *map, const char *key)
{
	const json_t *meta = json_object_get(map, "metadata");
	json_t *text_of_key = json_object_get(json_object_get(map, "data"), key);
	json_t *lean = lean_meta(meta), *data = json_object();
	size_t n = json_string_length(text_of_key);

	if (json_is_string(text_of_key) && n <= WB_KUBE_LEAN_TEXT)
		json_object_set(data, key, text_of_key);
	json_object_set_new(
		lean, "ownerReferences", lean_owners(json_object_get(meta, "ownerReferences")));
	json_object_set_new(map, "metadata", lean);
	json_object_set_new(map, "data", data);
	keep_two(map, "metadata", "data");
	return n <= WB_KUBE_LEAN_TEXT ? 0 : n;
}

void wb_kube_lean_lease(json_t *lease)
{
	char holder[WB_KUBE_LEASE_HOLDER];

	wb_kube_lease_holder(lease, holder);
	json_object_set_new(lease, "metadata", lean_meta(json_object_get(lease, "metadata")));
	json_object_set_new(lease, "spec", json_pack("{s:s}", "holderIdentity", holder));
	keep_two(lease, "metadata", "spec");
}
