/* SPDX-License-Identifier: Apache-2.0 */
/* Loads specs from a file, checks updates, and writes a spec as JSON. */
#include "base/file.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "operator-shim/spec/spec.h"
#include "operator-shim/spec/table.h"
#include "operator-shim/spec/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int wb_spec_load_file(const char *path, struct wb_spec **spec, size_t *n, struct wb_err *err)
{
	uint8_t *text;
	size_t bytes;
	int rc = wb_file_read(path, WB_YAML_BYTES_MAX, &text, &bytes);

	if (rc < 0)
		return wb_err_set(err, rc, "read %s: %s", path, wb_strerror(rc));
	rc = wb_spec_load(path, (const char *)text, bytes, spec, n, err);
	wb_free(text);
	return rc;
}

int wb_spec_check_update(const struct wb_spec *old, const struct wb_spec *now, struct wb_err *err)
{
	for (size_t i = 0; i < wb_spec_n_rule; i++)
		if (wb_spec_rules[i].is_broken(now, old))
			return wb_err_set(err, -EINVAL, "%s/%s: %s: %s", now->namespace_, now->name,
				wb_spec_rules[i].path, wb_spec_rules[i].message);
	return 0;
}

uint64_t wb_spec_uid(const struct wb_spec *spec)
{
	char key[WB_SPEC_NAME_MAX + WB_SPEC_NAMESPACE_MAX + 2];
	uint64_t uid;

	snprintf(key, sizeof(key), "%s/%s", spec->namespace_, spec->name);
	uid = wb_hash64(key, strlen(key), 0);
	return uid ? uid : 1;
}

static json_t *quantity_json(uint64_t bytes)
{
	static const char *const unit[] = {"", "Ki", "Mi", "Gi", "Ti"};
	size_t u = 0;

	for (; u < 4 && bytes && bytes % 1024 == 0; u++)
		bytes /= 1024;
	return u ? json_sprintf("%llu%s", (unsigned long long)bytes, unit[u])
		 : json_integer((json_int_t)bytes);
}

static json_t *words_json(const struct wb_spec_field *f, const struct wb_spec_words *w)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < w->n; i++)
		json_array_append_new(list, json_string(wb_word(f->words, w->v[i])));
	return list;
}

static json_t *strings_json(const struct wb_spec_strings *s)
{
	json_t *list = s->n ? json_array() : NULL;

	for (uint32_t i = 0; i < s->n; i++)
		json_array_append_new(list, json_string(s->v[i]));
	return list;
}

/* The value of a field as JSON.  NULL: it is not given, or there is no memory; it is left out
 * then. */
static json_t *value_json(const struct wb_spec_field *f, const void *at)
{
	uint32_t n;

	switch (f->type) {
	case WB_SPEC_OBJECT:
		return json_object();
	case WB_SPEC_BOOL:
		return json_boolean(*(const bool *)at);
	case WB_SPEC_INT:
		n = *(const uint32_t *)at;
		return n ? json_integer(n) : NULL;
	case WB_SPEC_QUANTITY:
		return quantity_json(*(const uint64_t *)at);
	case WB_SPEC_STRING:
		return json_string(at);
	case WB_SPEC_WORD:
		return json_string(wb_word(f->words, *(const uint32_t *)at));
	case WB_SPEC_WORDS:
		return words_json(f, at);
	case WB_SPEC_STRINGS:
		return strings_json(at);
	}
	return NULL;
}

/* The object in which @path lies; parents come first in the table. */
static json_t *parent_of(json_t *root, const char *path)
{
	char part[64];

	for (;;) {
		size_t n = strcspn(path, ".");

		if (!path[n])
			return root;
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		root = json_object_get(root, part);
		path += n + 1;
	}
}

json_t *wb_spec_json(const struct wb_spec *spec)
{
	json_t *root = json_object(), *out;

	for (size_t i = 0; root && i < wb_spec_n_field; i++) {
		const struct wb_spec_field *f = &wb_spec_fields[i];
		json_t *v = value_json(f, (const char *)spec + f->off);

		if (v)
			json_object_set_new(parent_of(root, f->path), wb_spec_leaf(f->path), v);
	}
	out = json_incref(json_object_get(root, "spec"));
	json_decref(root);
	return out;
}
