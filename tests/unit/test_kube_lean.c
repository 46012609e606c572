/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of objects that tenants write as long as they like. */
#include "operator-shim/kube/lean.h"
#include "operator-shim/kube/lease.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON with ' for ". */
static json_t *json(const char *text)
{
	char *copy = strdup(text);
	json_t *o;

	for (char *c = copy; *c; c++)
		if (*c == '\'')
			*c = '"';
	o = json_loads(copy, 0, NULL);
	ck_assert_msg(o != NULL, "%s", copy);
	free(copy);
	return o;
}

/* @o, which is freed, is what @want says. */
static void is(json_t *o, const char *want)
{
	json_t *w = json(want);
	char *text = json_dumps(o, JSON_SORT_KEYS);

	ck_assert_msg(json_equal(o, w), "%s", text);
	free(text);
	json_decref(w);
	json_decref(o);
}

static size_t lean(json_t *map)
{
	return wb_kube_lean_map(map, "ca.crt");
}

START_TEST(of_a_config_map_there_stays_what_is_looked_at)
{
	json_t *map =
		json("{'kind': 'ConfigMap', 'immutable': true, 'binaryData': {'b': 'eA=='},"
		     " 'metadata': {'name': 'm', 'namespace': 'n', 'uid': 'u',"
		     "  'resourceVersion': '7', 'labels': {'a': 'b'}, 'annotations': {'c': 'd'},"
		     "  'finalizers': ['x/y'], 'ownerReferences': ["
		     "   {'apiVersion': 'v1', 'kind': 'Pod', 'name': 'p', 'uid': 'other'},"
		     "   {'apiVersion': 'weightbridge.io/v1alpha1', 'kind': 'WeightTransfer',"
		     "    'name': 't', 'uid': 'ours', 'controller': true}]},"
		     " 'data': {'ca.crt': 'pem', 'more': 'x', 'ca.crt2': 'y'}}");

	ck_assert_uint_eq(lean(map), 0);
	is(map, "{'metadata': {'name': 'm', 'namespace': 'n', 'uid': 'u', 'resourceVersion': '7',"
		" 'ownerReferences': [{'uid': 'ours'}]}, 'data': {'ca.crt': 'pem'}}");
}
END_TEST

static const struct {
	const char *map, *stays;
} odd[] = {
	{"{}", "{'metadata': {'ownerReferences': []}, 'data': {}}"},
	{"{'metadata': {'name': 'm', 'ownerReferences': 7}, 'data': []}",
		"{'metadata': {'name': 'm', 'ownerReferences': []}, 'data': {}}"},
	{"{'metadata': {'name': 'm'}, 'data': {'ca.crt': 7}}",
		"{'metadata': {'name': 'm', 'ownerReferences': []}, 'data': {}}"},
};

START_TEST(what_is_no_config_map_does_no_harm)
{
	json_t *map = json(odd[_i].map);

	ck_assert_uint_eq(lean(map), 0);
	is(map, odd[_i].stays);
}
END_TEST

static json_t *map_of(size_t bytes, unsigned owners)
{
	char *long_one = calloc(1, bytes + 1);
	json_t *list = json_array(), *map;

	memset(long_one, 'x', bytes);
	for (unsigned i = 0; i < owners; i++)
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:o}", "apiVersion", "weightbridge.io/v1alpha1",
				      "kind", "WeightTransfer", "uid", json_sprintf("u%u", i)));
	map = json_pack("{s:{s:o}, s:{s:s}}", "metadata", "ownerReferences", list, "data", "ca.crt",
		long_one);
	free(long_one);
	return map;
}

START_TEST(a_long_authority_does_not_stay_and_its_length_is_told)
{
	json_t *map = map_of(WB_KUBE_LEAN_TEXT, 0);

	ck_assert_uint_eq(lean(map), 0);
	ck_assert_uint_eq(
		json_string_length(json_object_get(json_object_get(map, "data"), "ca.crt")),
		WB_KUBE_LEAN_TEXT);
	json_decref(map);
	map = map_of(WB_KUBE_LEAN_TEXT + 1, 0);
	ck_assert_uint_eq(lean(map), WB_KUBE_LEAN_TEXT + 1);
	is(map, "{'metadata': {'ownerReferences': []}, 'data': {}}");
}
END_TEST

START_TEST(of_a_thousand_owners_so_many_stay)
{
	json_t *map = map_of(1, 1000);
	const json_t *list;

	ck_assert_uint_eq(lean(map), 0);
	list = json_object_get(json_object_get(map, "metadata"), "ownerReferences");
	ck_assert_uint_eq(json_array_size(list), WB_KUBE_LEAN_OWNERS);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "uid")), "u0");
	json_decref(map);
}
END_TEST

START_TEST(of_a_lease_there_stays_who_holds_it)
{
	json_t *lease = json("{'kind': 'Lease', 'metadata': {'name': 'l', 'namespace': 'n', 'uid':"
			     " 'u', 'resourceVersion': '7', 'annotations': {'c': 'd'}, 'labels':"
			     " {'a': 'b'}, 'ownerReferences': [{'uid': 'x'}]}, 'spec':"
			     " {'holderIdentity': 'ops/some', 'strategy': 'x'}}");

	wb_kube_lean_lease(lease);
	is(lease, "{'metadata': {'name': 'l', 'namespace': 'n', 'uid': 'u', 'resourceVersion':"
		  " '7'}, 'spec': {'holderIdentity': 'ops/some'}}");
	wb_kube_lean_lease(lease = json("{'spec': {'holderIdentity': 'a b'}}"));
	is(lease, "{'metadata': {}, 'spec': {'holderIdentity': '?'}}");
	wb_kube_lean_lease(lease = json("{'spec': 7}"));
	is(lease, "{'metadata': {}, 'spec': {'holderIdentity': ''}}");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kube lean");
	TCase *tc = tcase_create("lean");

	tcase_add_test(tc, of_a_config_map_there_stays_what_is_looked_at);
	tcase_add_loop_test(
		tc, what_is_no_config_map_does_no_harm, 0, (int)(sizeof(odd) / sizeof(odd[0])));
	tcase_add_test(tc, a_long_authority_does_not_stay_and_its_length_is_told);
	tcase_add_test(tc, of_a_thousand_owners_so_many_stay);
	tcase_add_test(tc, of_a_lease_there_stays_who_holds_it);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
