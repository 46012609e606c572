/* SPDX-License-Identifier: Apache-2.0 */
/* Checks YAML documents against the table of fields and rules, and makes specs of them. */
#include "operator-shim/spec/spec.h"

#include "base/base.h"
#include "base/mem.h"
#include "operator-shim/spec/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct wb_spec_field *find_field(const char *path)
{
	for (size_t i = 0; i < wb_spec_n_field; i++)
		if (!strcmp(wb_spec_fields[i].path, path))
			return &wb_spec_fields[i];
	return NULL;
}

static bool is_child(const char *parent, const char *path)
{
	size_t n = strlen(parent);

	return !strncmp(parent, path, n) && path[n] == '.' && !strchr(path + n + 1, '.');
}

/* The field that @key under @parent was probably meant to be: a field of the same parent with a
 * similar name, else one with the same name elsewhere (@is_far). */
static const struct wb_spec_field *guess_field(const char *parent, const char *key, bool *is_far)
{
	const struct wb_spec_field *best = NULL;
	unsigned least = wb__spec_tolerance(key) + 1;

	*is_far = false;
	for (size_t i = 0; i < wb_spec_n_field; i++) {
		const struct wb_spec_field *f = &wb_spec_fields[i];
		unsigned d = wb_spec_distance(key, wb_spec_leaf(f->path));

		if (is_child(parent, f->path) && d < least) {
			best = f;
			least = d;
		}
	}
	for (size_t i = 0; i < wb_spec_n_field && !best; i++)
		if (!strcmp(wb_spec_leaf(wb_spec_fields[i].path), key)) {
			best = &wb_spec_fields[i];
			*is_far = true;
		}
	return best;
}

static void refuse_word(
	struct wb__spec_check *c, uint32_t line, const char *path, const char *meant)
{
	if (meant)
		wb__spec_refuse(c, line, path, "unknown field, did you mean %s?", meant);
	else
		wb__spec_refuse(c, line, path, "unknown field");
}

static void refuse_unknown(
	struct wb__spec_check *c, uint32_t line, const char *parent, const char *key)
{
	const struct wb_spec_field *f;
	char path[256];
	bool is_far;

	f = guess_field(parent, key, &is_far);
	snprintf(path, sizeof(path), "%s.%.128s", parent, key);
	refuse_word(c, line, path, !f ? NULL : is_far ? f->path : wb_spec_leaf(f->path));
}

static int set_defaults(struct wb_spec *s, struct wb_err *err)
{
	memset(s, 0, sizeof(*s));
	memcpy(s->namespace_, "default", sizeof("default"));
	for (size_t i = 0; i < wb_spec_n_field; i++) {
		const struct wb_spec_field *f = &wb_spec_fields[i];
		struct wb__spec_check c = {.file = "defaults"};
		struct wb_yaml_node **doc = NULL;
		size_t n = 0;
		int rc;

		if (!f->dflt || f->type == WB_SPEC_OBJECT)
			continue;
		/* JSON is YAML, so the code for values from the user reads defaults too. */
		rc = wb_yaml_read(c.file, f->dflt, strlen(f->dflt), &doc, &n, err);
		if (rc < 0)
			return rc;
		wb__spec_set_field(&c, f, doc[0], s);
		wb_yaml_free(doc, n);
		assert(!c.n);
	}
	return 0;
}

static void check_required(
	struct wb__spec_check *c, const char *parent, const struct wb_yaml_node *map)
{
	for (size_t i = 0; i < wb_spec_n_field; i++) {
		const struct wb_spec_field *f = &wb_spec_fields[i];
		const struct wb_yaml_node *v;

		if (!f->is_required || !is_child(parent, f->path))
			continue;
		v = wb_yaml_get(map, wb_spec_leaf(f->path));
		if (!v || wb_yaml_is_null(v))
			wb__spec_refuse(c, map->line, f->path, "is required");
	}
}

static void check_map(struct wb__spec_check *c, const char *path, const struct wb_yaml_node *map,
	struct wb_spec *s)
{
	if (map->kind != WB_YAML_MAP) {
		wb__spec_refuse(c, map->line, path, "must be a map of fields");
		return;
	}
	for (uint32_t i = 0; i < map->n; i++) {
		const struct wb_yaml_child *ch = &map->child[i];
		const struct wb_spec_field *f;
		char child[320];

		snprintf(child, sizeof(child), "%s.%.128s", path, ch->key);
		f = find_field(child);
		if (!f)
			refuse_unknown(c, ch->line, path, ch->key);
		else if (wb_yaml_is_null(ch->value))
			continue; /* as if it were not there */
		else if (f->type == WB_SPEC_OBJECT)
			check_map(c, f->path, ch->value, s);
		else
			wb__spec_set_field(c, f, ch->value, s);
	}
	check_required(c, path, map);
}

/* RFC 1123 subdomain, as Kubernetes wants names; one @is_label has no dots, as namespaces do. */
static bool is_dns_name(const char *s, size_t max, bool is_label)
{
	size_t n = strlen(s);

	if (!n || n > max || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") != n ||
		(is_label && strchr(s, '.')))
		return false;
	for (size_t i = 0; i < n; i++) {
		bool is_edge = i == 0 || i == n - 1 || s[i - 1] == '.' || s[i + 1] == '.';

		if (is_edge && (s[i] == '-' || s[i] == '.') &&
			!(s[i] == '.' && i && i < n - 1 && s[i - 1] != '.' && s[i + 1] != '.'))
			return false;
	}
	return true;
}

static void check_name(struct wb__spec_check *c, const struct wb_yaml_node *map, const char *key,
	char *out, size_t max)
{
	const struct wb_yaml_node *v = wb_yaml_get(map, key);
	bool is_label = !strcmp(key, "namespace");
	char path[64];

	snprintf(path, sizeof(path), "metadata.%s", key);
	if (!v || wb_yaml_is_null(v)) {
		if (!strcmp(key, "name"))
			wb__spec_refuse(c, map->line, path, "is required");
		return;
	}
	if (!wb__spec_is_string(v) || !is_dns_name(v->text, max, is_label)) {
		wb__spec_refuse(c, v->line, path,
			"must be lower-case letters, digits%s, at most %zu characters, with a "
			"letter or digit at both ends",
			is_label ? " and '-'" : ", '-' and '.'", max);
		return;
	}
	memcpy(out, v->text, strlen(v->text) + 1);
}

static bool is_known(const char *const *known, const char *key)
{
	while (*known && strcmp(*known, key) != 0)
		known++;
	return *known;
}

/* The word of @known that is most similar to @key; NULL = none is similar enough. */
static const char *nearest(const char *const *known, const char *key)
{
	unsigned least = wb__spec_tolerance(key) + 1;
	const char *best = NULL;

	for (; *known; known++) {
		unsigned d = wb_spec_distance(key, *known);

		if (d < least) {
			best = *known;
			least = d;
		}
	}
	return best;
}

static void check_metadata(
	struct wb__spec_check *c, const struct wb_yaml_node *root, struct wb_spec *s)
{
	static const char *const known[] = {"name", "namespace", "labels", "annotations", "uid",
		"resourceVersion", "generation", "creationTimestamp", "managedFields",
		"ownerReferences", "finalizers", "deletionTimestamp", "selfLink",
		"deletionGracePeriodSeconds", NULL};
	const struct wb_yaml_node *m = wb_yaml_get(root, "metadata");

	if (!m || m->kind != WB_YAML_MAP) {
		wb__spec_refuse(
			c, m ? m->line : root->line, "metadata", "is required, with a name");
		return;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		const char *key = m->child[i].key;
		char path[80];

		snprintf(path, sizeof(path), "metadata.%.64s", key);
		if (!is_known(known, key))
			refuse_word(c, m->child[i].line, path, nearest(known, key));
	}
	check_name(c, m, "name", s->name, WB_SPEC_NAME_MAX);
	check_name(c, m, "namespace", s->namespace_, WB_SPEC_NAMESPACE_MAX);
}

static void check_word(struct wb__spec_check *c, const struct wb_yaml_node *root, const char *key,
	const char *want)
{
	const struct wb_yaml_node *v = wb_yaml_get(root, key);

	if (!v || v->kind != WB_YAML_SCALAR || strcmp(v->text, want) != 0)
		wb__spec_refuse(c, v ? v->line : root->line, key, "must be %s", want);
}

/* Line of the value at @path, or of its nearest parent that is there. */
static uint32_t line_at(const struct wb_yaml_node *root, const char *path)
{
	const struct wb_yaml_node *at = root;
	uint32_t line = root->line;
	char part[64];

	while (at && *path) {
		size_t n = strcspn(path, ".");

		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		at = wb_yaml_get(at, part);
		if (at)
			line = at->line;
		path += n + (path[n] == '.');
	}
	return line;
}

static void check_rules(
	struct wb__spec_check *c, const struct wb_yaml_node *root, const struct wb_spec *s)
{
	for (size_t i = 0; i < wb_spec_n_rule; i++) {
		const struct wb_spec_rule *r = &wb_spec_rules[i];

		if (r->is_broken(s, NULL))
			wb__spec_refuse(c, line_at(root, r->blame),
				*r->path ? r->path : "metadata.name", "%s", r->message);
	}
}

static void check_document(
	struct wb__spec_check *c, const struct wb_yaml_node *root, struct wb_spec *s)
{
	static const char *const known[] = {
		"apiVersion", "kind", "metadata", "spec", "status", NULL};
	const struct wb_yaml_node *spec;

	if (root->kind != WB_YAML_MAP) {
		wb__spec_refuse(c, root->line, "document", "must be a map of fields");
		return;
	}
	check_word(c, root, "apiVersion", WB_SPEC_API_VERSION);
	check_word(c, root, "kind", WB_SPEC_KIND);
	for (uint32_t i = 0; i < root->n; i++) {
		const char *key = root->child[i].key, *meant = nearest(known, key);
		const struct wb_spec_field *f;
		bool is_far;

		if (is_known(known, key))
			continue;
		f = meant ? NULL : guess_field("spec", key, &is_far);
		refuse_word(c, root->child[i].line, key, f ? f->path : meant);
	}
	check_metadata(c, root, s);
	spec = wb_yaml_get(root, "spec");
	if (!spec || wb_yaml_is_null(spec)) {
		wb__spec_refuse(c, root->line, "spec", "is required");
		return;
	}
	check_map(c, "spec", spec, s);
	/* If fields themselves are wrong, refusals by rules would only confuse. */
	if (!c->n)
		check_rules(c, root, s);
}

static int load_documents(struct wb__spec_check *c, struct wb_yaml_node *const *doc, size_t n,
	struct wb_spec *spec, struct wb_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = set_defaults(&spec[i], err);

		if (rc < 0)
			return rc;
		check_document(c, doc[i], &spec[i]);
		for (size_t k = 0; k < i; k++)
			if (!strcmp(spec[k].name, spec[i].name) &&
				!strcmp(spec[k].namespace_, spec[i].namespace_))
				wb__spec_refuse(c, doc[i]->line, "metadata.name",
					"%s/%s is there twice", spec[i].namespace_, spec[i].name);
	}
	if (c->n)
		return wb_err_set(err, -EINVAL, "%s", c->text);
	return 0;
}

int wb_spec_load(const char *file, const void *text, size_t bytes, struct wb_spec **spec, size_t *n,
	struct wb_err *err)
{
	struct wb__spec_check c = {.file = file};
	struct wb_yaml_node **doc = NULL;
	struct wb_spec *got = NULL;
	size_t n_doc = 0;
	int rc;

	rc = wb_yaml_read(file, text, bytes, &doc, &n_doc, err);
	if (rc < 0)
		return rc;
	if (!n_doc || n_doc > WB_SPEC_OBJECTS_MAX) {
		rc = wb_err_set(err, -EINVAL, "%s:1: %s", file,
			n_doc ? "more than 64 objects" : "no object in this file");
		goto out;
	}
	got = wb_zalloc(n_doc, sizeof(*got));
	if (!got) {
		rc = wb_err_set(err, -ENOMEM, "%s: out of memory", file);
		goto out;
	}
	rc = load_documents(&c, doc, n_doc, got, err);
	if (rc < 0) {
		wb_free(got);
		goto out;
	}
	*spec = got;
	*n = n_doc;
out:
	wb_yaml_free(doc, n_doc);
	return rc;
}
