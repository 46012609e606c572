/* SPDX-License-Identifier: Apache-2.0 */
/* Spec of a WeightTransfer: refusals, defaults, and agreement with crds/weighttransfer.yaml. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "operator-shim/spec/table.h"
#include "operator-shim/spec/yaml.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD                                                                                       \
	"apiVersion: weightbridge.io/v1alpha1\n"                                                   \
	"kind: WeightTransfer\n"                                                                   \
	"metadata: {name: a}\n"
#define GOOD HEAD "spec:\n  trainer: {workers: 4}\n  rollout: {workersPerEngine: 2}\n"

static const char *top_file(const char *rel)
{
	static char path[1024];
	const char *top = getenv("WB_TOP");

	snprintf(path, sizeof(path), "%s/%s", top ? top : ".", rel);
	return path;
}

static int load(const char *text, struct wb_spec *out, struct wb_err *err)
{
	struct wb_spec *spec = NULL;
	size_t n = 0;
	int rc = wb_spec_load("transfer.yaml", text, strlen(text), &spec, &n, err);

	if (rc == 0 && out)
		*out = spec[0];
	wb_free(spec);
	return rc;
}

static const struct {
	const char *text, *want;
} refusals[] = {
	{GOOD "  suspnd: true\n",
		"transfer.yaml:7: spec.suspnd: unknown field, did you mean suspend?"},
	{HEAD "spec:\n  trainer: {workers: 4}\n  rollout:\n    workersPerEngin: 2\n"
	      "    workersPerEngine: 2\n",
		"transfer.yaml:7: spec.rollout.workersPerEngin: unknown field, did you mean "
		"workersPerEngine?"},
	{HEAD "spec:\n  trainer: {wrokers: 4, workers: 4}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:5: spec.trainer.wrokers: unknown field, did you mean workers?"},
	{GOOD "  workersPerEngine: 2\n",
		"transfer.yaml:7: spec.workersPerEngine: unknown field, did you mean "
		"spec.rollout.workersPerEngine?"},
	{GOOD "  zzzzzzzzzzzz: 2\n", "transfer.yaml:7: spec.zzzzzzzzzzzz: unknown field"},
	{GOOD "sapec: {}\n", "transfer.yaml:7: sapec: unknown field, did you mean spec?"},
	{GOOD "zzzzzzzz: {}\n", "transfer.yaml:7: zzzzzzzz: unknown field"},
	{GOOD "metdata: {}\n", "transfer.yaml:7: metdata: unknown field, did you mean metadata?"},
	{"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
	 "metadata: {name: a, namespce: b, moon: c}\n"
	 "spec:\n  trainer: {workers: 4}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:3: metadata.namespce: unknown field, did you mean namespace?\n"
		"transfer.yaml:3: metadata.moon: unknown field"},
	{GOOD "overlap: Wait\n", "transfer.yaml:7: overlap: unknown field, did you mean "
				 "spec.overlap?"},
	{HEAD "spec:\n  trainer: {}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:5: spec.trainer.workers: is required"},
	{HEAD "spec:\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:5: spec.trainer: is required"},
	{HEAD, "transfer.yaml:1: spec: is required"},
	{HEAD "spec:\n  trainer: {workers: 0}\n  rollout: {workersPerEngine: 1025}\n",
		"transfer.yaml:5: spec.trainer.workers: 0 is below the minimum of 1\n"
		"transfer.yaml:6: spec.rollout.workersPerEngine: 1025 is above the maximum of "
		"1024"},
	{HEAD "spec:\n  trainer: {workers: \"4\"}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:5: spec.trainer.workers: must be a whole number, without quotes"},
	{HEAD "spec:\n  trainer: {workers: 4.5}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:5: spec.trainer.workers: must be a whole number, without quotes"},
	{GOOD "  overlap: wait\n", "transfer.yaml:7: spec.overlap: wait is none of Wait, "
				   "Supersede; did you mean Wait?"},
	{GOOD "  checksums: On\n", "transfer.yaml:7: spec.checksums: On is none of None, Wire, "
				   "Installed"},
	{GOOD "  overlap: Never\n", "transfer.yaml:7: spec.overlap: Never is none of Wait, "
				    "Supersede"},
	{GOOD "  suspend: yes\n", "transfer.yaml:7: spec.suspend: must be true or false"},
	{GOOD "  suspend: \"true\"\n", "transfer.yaml:7: spec.suspend: must be true or false"},
	{GOOD "  transport: {protocols: []}\n",
		"transfer.yaml:7: spec.transport.protocols: has 0 items, allowed are 1 to 2"},
	{GOOD "  transport: {protocols: [TCP, TCP]}\n",
		"transfer.yaml:7: spec.transport.protocols: TCP is there twice"},
	{GOOD "  transport: {protocols: TCP}\n",
		"transfer.yaml:7: spec.transport.protocols: must be a list"},
	{GOOD "  transport: {devicePrefixes: [\"\"]}\n",
		"transfer.yaml:7: spec.transport.devicePrefixes: an item must be a string of 1 to "
		"64 characters"},
	{GOOD "  transport: 5\n", "transfer.yaml:7: spec.transport: must be a map of fields"},
	{GOOD "  heartbeatTimeoutSeconds: 4\n",
		"transfer.yaml:7: spec.heartbeatTimeoutSeconds: 4 is below the minimum of 5"},
	{GOOD "  commitPolicy: AllEngines\n",
		"transfer.yaml:7: spec: commitPolicy AllEngines needs staging.rollout HostMemory, "
		"parameters written in place cannot be held back"},
	{GOOD "  overlap: Supersede\n",
		"transfer.yaml:7: spec: overlap Supersede needs staging.rollout HostMemory"},
	{GOOD "  transport: {deviceClass: Software, gpuDirect: Required}\n",
		"transfer.yaml:7: spec.transport: gpuDirect must not be Required when deviceClass "
		"is Software"},
	{HEAD "spec:\n  trainer: {workers: 4, bufferSize: 63Mi}\n"
	      "  rollout: {workersPerEngine: 2, bufferSize: 67108863}\n",
		"transfer.yaml:5: spec.trainer.bufferSize: must be at least 64Mi\n"
		"transfer.yaml:6: spec.rollout.bufferSize: must be at least 64Mi"},
	{HEAD "spec:\n  trainer: {workers: 4, bufferSize: 1GiB}\n  rollout: {workersPerEngine: "
	      "2}\n",
		"transfer.yaml:5: spec.trainer.bufferSize: must be a number of bytes or a quantity "
		"such as 512Mi or 1.5Gi"},
	{HEAD "spec:\n  trainer: {workers: 4, bufferSize: 99999999Ti}\n"
	      "  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:5: spec.trainer.bufferSize: 99999999Ti is too large"},
	{"apiVersion: weightbridge.io/v1\nkind: WeightTransfer\nmetadata: {name: a}\nspec:\n"
	 "  trainer: {workers: 4}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:1: apiVersion: must be weightbridge.io/v1alpha1"},
	{"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\nmetadata: {}\nspec:\n"
	 "  trainer: {workers: 4}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:3: metadata.name: is required"},
	{"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
	 "metadata: {name: a23456789012345678901234567890123456789012345678901x3}\nspec:\n"
	 "  trainer: {workers: 4}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:3: metadata.name: metadata.name must be no more than 52 "
		"characters"},
	{"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
	 "metadata: {name: A_b}\nspec:\n"
	 "  trainer: {workers: 4}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:3: metadata.name: must be lower-case letters, digits, '-' and '.', "
		"at most 253 characters, with a letter or digit at both ends"},
	{"apiVersion: weightbridge.io/v1alpha1\nkind: WeightTransfer\n"
	 "metadata: {name: a.b, namespace: c.d}\n"
	 "spec:\n  trainer: {workers: 4}\n  rollout: {workersPerEngine: 2}\n",
		"transfer.yaml:3: metadata.namespace: must be lower-case letters, digits and '-', "
		"at most 63 characters, with a letter or digit at both ends"},
	{GOOD "---\n" GOOD, "transfer.yaml:8: metadata.name: default/a is there twice"},
	{"", "transfer.yaml:1: no object in this file"},
	{"- a\n", "transfer.yaml:1: document: must be a map of fields"},
	{"a: 1\na: 2\n", "transfer.yaml:2: a is already set at line 1"},
	{"a: &x 1\nb: *x\n", "transfer.yaml:1: anchors are not supported, write the value out"},
	{"b: *x\n", "transfer.yaml:1: aliases are not supported, write the value out"},
	{"b: !!python/object:os.system x\n", "transfer.yaml:1: tags are not supported"},
	{"b: \"\\0\"\n", "transfer.yaml:1: a NUL character inside a value"},
	{"? [a]\n: b\n", "transfer.yaml:1: a key must be a word, not a map or a list"},
	{"a: [1\n", "transfer.yaml:2: not YAML: did not find expected ',' or ']'"},
};

START_TEST(refusal_names_file_line_and_field)
{
	struct wb_err err = {0};

	ck_assert_int_eq(load(refusals[_i].text, NULL, &err), -EINVAL);
	ck_assert_str_eq(err.msg, refusals[_i].want);
}
END_TEST

START_TEST(minimal_object_gets_the_defaults)
{
	struct wb_err err = {0};
	struct wb_spec s;

	ck_assert_msg(load(GOOD, &s, &err) == 0, "%s", err.msg);
	ck_assert_str_eq(s.name, "a");
	ck_assert_str_eq(s.namespace_, "default");
	ck_assert_uint_eq(s.trainer_workers, 4);
	ck_assert_uint_eq(s.workers_per_engine, 2);
	ck_assert_uint_eq(s.engines, 0);
	ck_assert_uint_eq(s.trainer_buffer_bytes, 1ull << 30);
	ck_assert_uint_eq(s.rollout_buffer_bytes, 4ull << 30);
	ck_assert_str_eq(s.engine_label_key, "weightbridge.io/engine");
	ck_assert_uint_eq(s.protocols.n, 2);
	ck_assert_uint_eq(s.protocols.v[0], WB_PROTOCOL_VERBS);
	ck_assert_uint_eq(s.protocols.v[1], WB_PROTOCOL_TCP);
	ck_assert_uint_eq(s.device_class, WB_DEVICE_ANY);
	ck_assert_uint_eq(s.plan_deadline_s, 600);
	ck_assert_uint_eq(s.transfer_deadline_s, 120);
	ck_assert_uint_eq(s.engine_step_deadline_s, 600);
	ck_assert_uint_eq(s.heartbeat_timeout_s, 15);
	ck_assert(!s.suspend);
}
END_TEST

static const char *const example_files[] = {
	"crds/examples/minimal.yaml", "crds/examples/full.yaml"};

START_TEST(example_loads)
{
	struct wb_spec *s = NULL;
	struct wb_err err = {0};
	size_t n = 0;

	ck_assert_msg(
		wb_spec_load_file(top_file(example_files[_i]), &s, &n, &err) == 0, "%s", err.msg);
	ck_assert_uint_eq(n, 1);
	wb_free(s);
}
END_TEST

START_TEST(full_example_sets_every_field)
{
	struct wb_spec *s = NULL;
	struct wb_err err = {0};
	size_t n = 0;

	ck_assert_int_eq(wb_spec_load_file(top_file(example_files[1]), &s, &n, &err), 0);
	ck_assert_str_eq(s->namespace_, "training");
	ck_assert_uint_eq(s->rollout_buffer_bytes, (3ull << 30) / 2);
	ck_assert_uint_eq(s->commit_policy, WB_COMMIT_ALL_ENGINES);
	ck_assert_uint_eq(s->overlap, WB_OVERLAP_SUPERSEDE);
	ck_assert_uint_eq(s->checksums, WB_CHECKSUMS_INSTALLED);
	ck_assert_uint_eq(s->device_prefixes.n, 1);
	ck_assert_str_eq(s->device_prefixes.v[0], "mlx5_");
	for (size_t i = 0; i < wb_spec_n_field; i++) {
		char path[128], *part = path, *dot;
		json_t *root = json_pack("{s:o}", "spec", wb_spec_json(s)), *at = root;

		snprintf(path, sizeof(path), "%s", wb_spec_fields[i].path);
		while ((dot = strchr(part, '.'))) {
			*dot = '\0';
			at = json_object_get(at, part);
			part = dot + 1;
		}
		ck_assert_msg(json_object_get(at, part) != NULL, "%s", wb_spec_fields[i].path);
		json_decref(root);
	}
	wb_free(s);
}
END_TEST

START_TEST(json_of_a_spec_loads_to_the_same_spec)
{
	struct wb_spec *s = NULL, *back = NULL;
	struct wb_err err = {0};
	size_t n = 0;
	json_t *o;
	char *text;

	ck_assert_int_eq(wb_spec_load_file(top_file(example_files[_i]), &s, &n, &err), 0);
	o = json_pack("{s:s, s:s, s:{s:s, s:s}, s:o}", "apiVersion", WB_SPEC_API_VERSION, "kind",
		WB_SPEC_KIND, "metadata", "name", s->name, "namespace", s->namespace_, "spec",
		wb_spec_json(s));
	text = json_dumps(o, JSON_INDENT(1));
	ck_assert_msg(wb_spec_load("x", text, strlen(text), &back, &n, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(memcmp(s, back, sizeof(*s)), 0);
	ck_assert_uint_eq(wb_spec_uid(s), wb_spec_uid(back));
	free(text);
	json_decref(o);
	wb_free(s);
	wb_free(back);
}
END_TEST

START_TEST(immutable_field_may_not_change)
{
	struct wb_err err = {0};
	struct wb_spec a, b;

	ck_assert_int_eq(load(GOOD, &a, &err), 0);
	b = a;
	ck_assert_int_eq(wb_spec_check_update(&a, &b, &err), 0);
	snprintf(b.engine_label_key, sizeof(b.engine_label_key), "other");
	ck_assert_int_eq(wb_spec_check_update(&a, &b, &err), -EINVAL);
	ck_assert_str_eq(err.msg, "default/a: spec.rollout.engineLabelKey: Value is immutable");
}
END_TEST

#define CHARS_63 "a23456789b23456789c23456789d23456789e23456789f23456789g23456789"

static const struct {
	const char *key;
	bool is_good;
} label_keys[] = {
	{"engine", true},
	{"weightbridge.io/engine", true},
	{"a-b.c-d.example/E_1.x-y", true},
	{CHARS_63, true},
	{"x/" CHARS_63, true},
	{"", false},
	{"/engine", false},
	{"example.com/", false},
	{"a/b/c", false},
	{"Example.com/engine", false},
	{"a..b/engine", false},
	{"a./engine", false},
	{"-a/engine", false},
	{"a-/engine", false},
	{"-engine", false},
	{"engine-", false},
	{"engine.", false},
	{"en gine", false},
	{"engine=", false},
	{CHARS_63 "4", false},
	{CHARS_63 "." CHARS_63 "." CHARS_63 "." CHARS_63 "/x", false},
};

START_TEST(engine_label_key_is_the_key_of_a_label)
{
	struct wb_err err = {0};
	char text[1024];
	int rc;

	snprintf(text, sizeof(text),
		HEAD "spec:\n  trainer: {workers: 4}\n  rollout:\n    workersPerEngine: 2\n"
		     "    engineLabelKey: \"%s\"\n",
		label_keys[_i].key);
	rc = load(text, NULL, &err);
	ck_assert_msg((rc == 0) == label_keys[_i].is_good, "%s", label_keys[_i].key);
	if (rc < 0)
		ck_assert_str_eq(err.msg, "transfer.yaml:8: spec.rollout.engineLabelKey: must be "
					  "the key of a label, such as example.com/engine");
}
END_TEST

static const struct {
	const char *text;
	int rc;
	uint64_t want;
} quantities[] = {
	{"1", 0, 1},
	{"64Mi", 0, 67108864},
	{"1.5Gi", 0, 1610612736},
	{"0.5", 0, 1},
	{"1.0001k", 0, 1001},
	{"2T", 0, 2000000000000},
	{"8388607Ti", 0, 9223370937343148032ull},
	{"8388608Ti", -ERANGE, 0},
	{"9223372036854775808", -ERANGE, 0},
	{"1.", -EINVAL, 0},
	{".5", -EINVAL, 0},
	{"", -EINVAL, 0},
	{"1K", -EINVAL, 0},
	{"-1", -EINVAL, 0},
	{"1e3", -EINVAL, 0},
	{"1234567890123456789012345", -EINVAL, 0},
	{"0.0000000000000000000001", 0, 1},
};

START_TEST(quantity_row)
{
	uint64_t v = 0;

	ck_assert_int_eq(wb_quantity(quantities[_i].text, &v), quantities[_i].rc);
	if (!quantities[_i].rc)
		ck_assert_uint_eq(v, quantities[_i].want);
}
END_TEST

START_TEST(distance_counts_edits_and_swaps)
{
	ck_assert_uint_eq(wb_spec_distance("", ""), 0);
	ck_assert_uint_eq(wb_spec_distance("abc", "abc"), 0);
	ck_assert_uint_eq(wb_spec_distance("abc", "acb"), 1);
	ck_assert_uint_eq(wb_spec_distance("abc", "ab"), 1);
	ck_assert_uint_eq(wb_spec_distance("abc", "xabc"), 1);
	ck_assert_uint_eq(wb_spec_distance("kitten", "sitting"), 3);
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
	struct wb_yaml_node **doc = NULL;
	struct wb_err err = {0};
	char text[80];
	size_t n = 0;

	memset(text, '[', 33);
	memset(text + 33, ']', 33);
	ck_assert_int_eq(wb_yaml_read("f", text, 66, &doc, &n, &err), -EINVAL);
	ck_assert_str_eq(err.msg, "f:1: nested more than 32 levels deep");
	ck_assert_int_eq(wb_yaml_read("f", text + 1, 64, &doc, &n, &err), 0);
	ck_assert_uint_eq(n, 1);
	wb_yaml_free(doc, n);
}
END_TEST

START_TEST(too_many_values_and_bytes_are_refused)
{
	size_t bytes = WB_YAML_BYTES_MAX;
	char *text = malloc(bytes + 1);
	struct wb_yaml_node **doc = NULL;
	struct wb_err err = {0};
	size_t n = 0;

	for (size_t i = 0; i + 1 < bytes; i += 2)
		memcpy(text + i, i ? "1," : "[ ", 2);
	ck_assert_int_eq(wb_yaml_read("f", text, bytes, &doc, &n, &err), -E2BIG);
	ck_assert_str_eq(err.msg, "f:1: more than 65536 values");
	ck_assert_int_eq(wb_yaml_read("f", text, bytes + 1, &doc, &n, &err), -E2BIG);
	free(text);
}
END_TEST

START_TEST(load_survives_each_failed_allocation)
{
	struct wb_err err = {0};
	bool is_done = false;

	for (uint64_t at = 1; !is_done; at++) {
		int rc;

		wb_mem_fail_at(at);
		rc = load(GOOD, NULL, &err);
		is_done = !wb_mem_failed();
		wb_mem_fail_at(0);
		ck_assert_int_eq(rc, is_done ? 0 : -ENOMEM);
	}
}
END_TEST

/* ---- the CRD ---- */

static json_t *crd;

static void read_crd(void)
{
	struct wb_yaml_node **doc = NULL;
	struct wb_err err = {0};
	char *text = malloc(WB_YAML_BYTES_MAX);
	FILE *f = fopen(top_file("crds/weighttransfer.yaml"), "r");
	size_t n = 0, bytes;

	ck_assert_ptr_nonnull(f);
	bytes = fread(text, 1, WB_YAML_BYTES_MAX, f);
	fclose(f);
	ck_assert_msg(wb_yaml_read("crd", text, bytes, &doc, &n, &err) == 0, "%s", err.msg);
	crd = wb_yaml_json(doc[0]);
	wb_yaml_free(doc, n);
	free(text);
}

static void drop_crd(void)
{
	json_decref(crd);
}

static json_t *schema(void)
{
	json_t *v = json_array_get(json_object_get(json_object_get(crd, "spec"), "versions"), 0);

	return json_object_get(json_object_get(v, "schema"), "openAPIV3Schema");
}

static void compare_rules(const char *path, const json_t *node, unsigned *n_rule)
{
	size_t i;
	json_t *r, *list = json_object_get(node, "x-kubernetes-validations");

	json_array_foreach(list, i, r)
	{
		const char *cel = json_string_value(json_object_get(r, "rule"));
		const char *msg = json_string_value(json_object_get(r, "message"));
		bool is_found = false;

		ck_assert_uint_eq(json_object_size(r), 2);
		for (size_t k = 0; k < wb_spec_n_rule; k++)
			is_found |= !strcmp(wb_spec_rules[k].path, path) &&
				    !strcmp(wb_spec_rules[k].cel, cel) &&
				    !strcmp(wb_spec_rules[k].message, msg);
		ck_assert_msg(is_found, "%s: rule not in the table: %s", path, cel);
		++*n_rule;
	}
}

static const char *want_type(const struct wb_spec_field *f)
{
	switch (f->type) {
	case WB_SPEC_OBJECT:
		return "object";
	case WB_SPEC_BOOL:
		return "boolean";
	case WB_SPEC_INT:
		return "integer";
	case WB_SPEC_QUANTITY:
		return NULL;
	case WB_SPEC_STRING:
	case WB_SPEC_WORD:
		return "string";
	default:
		return "array";
	}
}

static bool same_words(const json_t *list, const struct wb_words *words)
{
	size_t n = 0;

	for (uint32_t i = 0; words && i < words->n; i++) {
		const char *w = json_string_value(json_array_get(list, n));

		if (!words->text[i])
			continue;
		if (!w || strcmp(w, words->text[i]) != 0)
			return false;
		n++;
	}
	return json_array_size(list) == n;
}

/* Every keyword of the CRD must be one that this test knows and finds in the table. */
static void compare_keyword(
	const struct wb_spec_field *f, const char *key, const json_t *v, const json_t *all)
{
	json_t *dflt;

	if (!strcmp(key, "description") || !strcmp(key, "properties") || !strcmp(key, "required") ||
		!strcmp(key, "x-kubernetes-validations"))
		return; /* compared elsewhere */
	if (!strcmp(key, "type"))
		ck_assert_str_eq(json_string_value(v), want_type(f));
	else if (!strcmp(key, "default")) {
		ck_assert_msg(f->dflt != NULL, "%s: default only in the CRD", f->path);
		dflt = json_loads(f->dflt, JSON_DECODE_ANY, NULL);
		ck_assert_msg(json_equal(dflt, v), "%s: default", f->path);
		json_decref(dflt);
	} else if (!strcmp(key, "minimum") || !strcmp(key, "minItems"))
		ck_assert_int_eq(json_integer_value(v), f->min);
	else if (!strcmp(key, "maximum") || !strcmp(key, "maxItems"))
		ck_assert_int_eq(json_integer_value(v), f->max);
	else if (!strcmp(key, "maxLength"))
		ck_assert_int_eq(
			json_integer_value(v), f->type == WB_SPEC_STRING ? f->max : f->len_max);
	else if (!strcmp(key, "format"))
		ck_assert_str_eq(json_string_value(v), "int32");
	else if (!strcmp(key, "enum"))
		ck_assert_msg(same_words(v, f->words), "%s: enum", f->path);
	else if (!strcmp(key, "pattern"))
		ck_assert_str_eq(json_string_value(v), f->pattern);
	else if (!strcmp(key, "x-kubernetes-list-type"))
		ck_assert_str_eq(json_string_value(v), "set");
	else if (!strcmp(key, "x-kubernetes-int-or-string"))
		ck_assert(json_is_true(v) && f->type == WB_SPEC_QUANTITY);
	else if (!strcmp(key, "anyOf"))
		ck_assert(json_array_size(v) == 2 && f->type == WB_SPEC_QUANTITY);
	else if (!strcmp(key, "items")) {
		ck_assert(same_words(json_object_get(v, "enum"), f->words));
		ck_assert_int_eq(json_integer_value(json_object_get(v, "maxLength")), f->len_max);
		ck_assert_int_eq(json_integer_value(json_object_get(v, "minLength")), f->len_min);
	} else
		ck_abort_msg("%s: keyword %s is not compared", f->path, key);
	(void)all;
}

/* What the table says must stand in the CRD. */
static void compare_field(const struct wb_spec_field *f, const json_t *node)
{
	bool is_list = f->type == WB_SPEC_WORDS || f->type == WB_SPEC_STRINGS;

	ck_assert_msg(!f->dflt == !json_object_get(node, "default"), "%s: default", f->path);
	if (f->type == WB_SPEC_INT || is_list) {
		const char *lo = is_list ? "minItems" : "minimum";
		const char *hi = is_list ? "maxItems" : "maximum";

		ck_assert_int_eq(json_integer_value(json_object_get(node, lo)), f->min);
		ck_assert_int_eq(json_integer_value(json_object_get(node, hi)), f->max);
	}
	if (f->type == WB_SPEC_WORD)
		ck_assert_ptr_nonnull(json_object_get(node, "enum"));
	if (is_list)
		ck_assert_ptr_nonnull(json_object_get(node, "items"));
	if (f->pattern)
		ck_assert_ptr_nonnull(json_object_get(node, "pattern"));
	if (f->type == WB_SPEC_STRING || f->type == WB_SPEC_QUANTITY)
		ck_assert_ptr_nonnull(json_object_get(node, "maxLength"));
}

static bool has_string(const json_t *list, const char *s)
{
	const json_t *v;
	size_t i;

	json_array_foreach(list, i, v) if (!strcmp(json_string_value(v), s)) return true;
	return false;
}

static void compare_tree(
	const char *path, const json_t *node, bool is_required, unsigned *n_field, unsigned *n_rule)
{
	const struct wb_spec_field *f = NULL;
	json_t *v, *props = json_object_get(node, "properties");
	const char *key;
	void *it;

	for (size_t i = 0; i < wb_spec_n_field; i++)
		if (!strcmp(wb_spec_fields[i].path, path))
			f = &wb_spec_fields[i];
	ck_assert_msg(f != NULL, "%s is not in the table", path);
	++*n_field;
	ck_assert_msg(f->is_required == is_required, "%s: required", path);
	for (it = json_object_iter((json_t *)(uintptr_t)node); it;
		it = json_object_iter_next((json_t *)(uintptr_t)node, it))
		compare_keyword(f, json_object_iter_key(it), json_object_iter_value(it), node);
	compare_field(f, node);
	compare_rules(path, node, n_rule);
	json_object_foreach(props, key, v)
	{
		char child[256];

		snprintf(child, sizeof(child), "%s.%s", path, key);
		compare_tree(child, v, has_string(json_object_get(node, "required"), key), n_field,
			n_rule);
	}
}

START_TEST(crd_and_table_say_the_same)
{
	json_t *root = schema(), *spec;
	unsigned n_field = 0, n_rule = 0;

	spec = json_object_get(json_object_get(root, "properties"), "spec");
	compare_rules("", root, &n_rule);
	compare_tree("spec", spec, has_string(json_object_get(root, "required"), "spec"), &n_field,
		&n_rule);
	ck_assert_uint_eq(n_field, wb_spec_n_field);
	ck_assert_uint_eq(n_rule, wb_spec_n_rule);
}
END_TEST

static unsigned check_described(const char *path, const json_t *node)
{
	json_t *v, *props = json_object_get(node, "properties");
	json_t *items = json_object_get(node, "items");
	const char *key, *text = json_string_value(json_object_get(node, "description"));
	char child[512];
	unsigned n = 1;

	if (!strcmp(path, ".metadata")) /* Kubernetes refuses a description here */
		ck_assert_uint_eq(json_object_size(node), 1);
	else
		ck_assert_msg(text && strlen(text) > 8, "%s has no description", path);
	json_object_foreach(props, key, v)
	{
		snprintf(child, sizeof(child), "%s.%s", path, key);
		n += check_described(child, v);
	}
	if (items) {
		snprintf(child, sizeof(child), "%s[]", path);
		n += check_described(child, items);
	}
	return n;
}

START_TEST(every_field_of_the_crd_is_described)
{
	ck_assert_uint_gt(check_described("", schema()), 80);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("spec");
	TCase *tc = tcase_create("file"), *crd_tc = tcase_create("crd");

	tcase_add_loop_test(tc, refusal_names_file_line_and_field, 0, (int)WB_ARRAY_SIZE(refusals));
	tcase_add_test(tc, minimal_object_gets_the_defaults);
	tcase_add_loop_test(tc, example_loads, 0, (int)WB_ARRAY_SIZE(example_files));
	tcase_add_test(tc, full_example_sets_every_field);
	tcase_add_loop_test(tc, json_of_a_spec_loads_to_the_same_spec, 0, 2);
	tcase_add_test(tc, immutable_field_may_not_change);
	tcase_add_loop_test(
		tc, engine_label_key_is_the_key_of_a_label, 0, (int)WB_ARRAY_SIZE(label_keys));
	tcase_add_loop_test(tc, quantity_row, 0, (int)WB_ARRAY_SIZE(quantities));
	tcase_add_test(tc, distance_counts_edits_and_swaps);
	tcase_add_test(tc, deep_nesting_is_refused);
	tcase_add_test(tc, too_many_values_and_bytes_are_refused);
	tcase_add_test(tc, load_survives_each_failed_allocation);
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(crd_tc, read_crd, drop_crd);
	tcase_add_test(crd_tc, crd_and_table_say_the_same);
	tcase_add_test(crd_tc, every_field_of_the_crd_is_described);
	suite_add_tcase(s, crd_tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
