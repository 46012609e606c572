/* SPDX-License-Identifier: Apache-2.0 */
/* Reads YAML into a tree with libyaml, and refuses what is too large or not supported. */
#include "operator-shim/spec/yaml.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
	const char *file;
	struct wb_err *err;
	yaml_parser_t parser;
	struct wb_yaml_node *stack[WB_YAML_DEPTH_MAX];
	uint32_t depth;
	uint32_t n_node;
	/* At each level: the key whose value has not come yet. */
	char *key[WB_YAML_DEPTH_MAX];
	uint32_t key_line[WB_YAML_DEPTH_MAX];
	struct wb_yaml_node *root; /* of the document being read */
};

static void free_node(struct wb_yaml_node *n)
{
	if (!n)
		return;
	/* Depth is bounded by the reader, so this recursion is too. */
	for (uint32_t i = 0; i < n->n; i++) {
		wb_free(n->child[i].key);
		free_node(n->child[i].value);
	}
	wb_free(n->child);
	wb_free(n->text);
	wb_free(n);
}

void wb_yaml_free(struct wb_yaml_node **doc, size_t n)
{
	for (size_t i = 0; doc && i < n; i++)
		free_node(doc[i]);
	wb_free(doc);
}

const struct wb_yaml_node *wb_yaml_get(const struct wb_yaml_node *node, const char *key)
{
	if (!node || node->kind != WB_YAML_MAP)
		return NULL;
	for (uint32_t i = 0; i < node->n; i++)
		if (!strcmp(node->child[i].key, key))
			return node->child[i].value;
	return NULL;
}

static bool is_one_of(const char *s, const char *const *word)
{
	for (; *word; word++)
		if (!strcmp(s, *word))
			return true;
	return false;
}

bool wb_yaml_is_null(const struct wb_yaml_node *node)
{
	static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};

	return node->kind == WB_YAML_SCALAR && node->is_plain && is_one_of(node->text, words);
}

static uint32_t line_of(yaml_mark_t m)
{
	return m.line < UINT32_MAX ? (uint32_t)m.line + 1 : UINT32_MAX;
}

static int refuse(struct reader *r, uint32_t line, const char *what)
{
	return wb_err_set(r->err, -EINVAL, "%s:%u: %s", r->file, line, what);
}

/* Put @v where the parent expects it; takes @v, also on failure. */
static int attach(struct reader *r, struct wb_yaml_node *v)
{
	struct wb_yaml_node *p;
	uint32_t d = r->depth;
	int rc;

	if (!d) {
		r->root = v;
		return 0;
	}
	p = r->stack[d - 1];
	rc = wb_grow(&p->child, &p->cap, p->n + 1, WB_YAML_NODES_MAX, sizeof(*p->child));
	if (rc < 0) {
		free_node(v);
		return wb_err_set(r->err, rc, "%s: out of memory", r->file);
	}
	p->child[p->n++] = (struct wb_yaml_child){
		r->key[d - 1], p->kind == WB_YAML_MAP ? r->key_line[d - 1] : v->line, v};
	r->key[d - 1] = NULL;
	return 0;
}

static int take_key(struct reader *r, const yaml_event_t *e)
{
	const struct wb_yaml_node *p = r->stack[r->depth - 1];
	const char *text = (const char *)e->data.scalar.value;
	uint32_t line = line_of(e->start_mark);

	for (uint32_t i = 0; i < p->n; i++)
		if (!strcmp(p->child[i].key, text))
			return wb_err_set(r->err, -EINVAL, "%s:%u: %.64s is already set at line %u",
				r->file, line, text, p->child[i].line);
	r->key[r->depth - 1] = wb_strdup(text);
	r->key_line[r->depth - 1] = line;
	if (!r->key[r->depth - 1])
		return wb_err_set(r->err, -ENOMEM, "%s: out of memory", r->file);
	return 0;
}

static bool wants_key(const struct reader *r)
{
	return r->depth && r->stack[r->depth - 1]->kind == WB_YAML_MAP && !r->key[r->depth - 1];
}

static int new_node(
	struct reader *r, enum wb_yaml_kind kind, uint32_t line, struct wb_yaml_node **out)
{
	struct wb_yaml_node *n;

	if (++r->n_node > WB_YAML_NODES_MAX)
		return wb_err_set(r->err, -E2BIG, "%s:%u: more than %u values", r->file, line,
			WB_YAML_NODES_MAX);
	n = wb_zalloc(1, sizeof(*n));
	if (!n)
		return wb_err_set(r->err, -ENOMEM, "%s: out of memory", r->file);
	n->kind = kind;
	n->line = line;
	*out = n;
	return 0;
}

static int on_scalar(struct reader *r, const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;
	uint32_t line = line_of(e->start_mark);
	struct wb_yaml_node *n;
	int rc;

	if (e->data.scalar.anchor)
		return refuse(r, line, "anchors are not supported, write the value out");
	if (e->data.scalar.tag)
		return refuse(r, line, "tags are not supported");
	if (strlen(text) != e->data.scalar.length)
		return refuse(r, line, "a NUL character inside a value");
	if (wants_key(r))
		return take_key(r, e);
	rc = new_node(r, WB_YAML_SCALAR, line, &n);
	if (rc < 0)
		return rc;
	n->is_plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	n->text = wb_strdup(text);
	if (!n->text) {
		free_node(n);
		return wb_err_set(r->err, -ENOMEM, "%s: out of memory", r->file);
	}
	return attach(r, n);
}

static int on_open(struct reader *r, enum wb_yaml_kind kind, const yaml_event_t *e)
{
	bool is_map = kind == WB_YAML_MAP;
	const void *anchor = is_map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
	const void *tag = is_map ? e->data.mapping_start.tag : e->data.sequence_start.tag;
	uint32_t line = line_of(e->start_mark);
	struct wb_yaml_node *n;
	int rc;

	if (anchor)
		return refuse(r, line, "anchors are not supported, write the value out");
	if (tag)
		return refuse(r, line, "tags are not supported");
	if (wants_key(r))
		return refuse(r, line, "a key must be a word, not a map or a list");
	if (r->depth == WB_YAML_DEPTH_MAX)
		return refuse(r, line, "nested more than 32 levels deep");
	rc = new_node(r, kind, line, &n);
	if (rc < 0)
		return rc;
	rc = attach(r, n);
	if (rc < 0)
		return rc;
	r->stack[r->depth++] = n;
	return 0;
}

static int on_event(struct reader *r, const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_ALIAS_EVENT:
		return refuse(r, line_of(e->start_mark),
			"aliases are not supported, write the value out");
	case YAML_SCALAR_EVENT:
		return on_scalar(r, e);
	case YAML_MAPPING_START_EVENT:
		return on_open(r, WB_YAML_MAP, e);
	case YAML_SEQUENCE_START_EVENT:
		return on_open(r, WB_YAML_LIST, e);
	case YAML_MAPPING_END_EVENT:
	case YAML_SEQUENCE_END_EVENT:
		assert(r->depth > 0);
		r->depth--;
		return 0;
	default:
		return 0;
	}
}

static int keep_document(struct reader *r, struct wb_yaml_node ***doc, size_t *cap, size_t *n)
{
	int rc;

	if (!r->root)
		return 0;
	if (wb_yaml_is_null(r->root)) {
		free_node(r->root);
		r->root = NULL;
		return 0;
	}
	rc = wb_grow(doc, cap, *n + 1, WB_YAML_NODES_MAX, sizeof(**doc));
	if (rc < 0)
		return wb_err_set(r->err, rc, "%s: out of memory", r->file);
	(*doc)[(*n)++] = r->root;
	r->root = NULL;
	return 0;
}

static int read_all(struct reader *r, struct wb_yaml_node ***doc, size_t *n)
{
	bool is_end = false;
	size_t cap = 0;
	int rc = 0;

	while (!is_end && rc == 0) {
		yaml_event_t e;

		if (!yaml_parser_parse(&r->parser, &e))
			return wb_err_set(r->err,
				r->parser.error == YAML_MEMORY_ERROR ? -ENOMEM : -EINVAL,
				"%s:%u: not YAML: %s", r->file, line_of(r->parser.problem_mark),
				r->parser.problem ? r->parser.problem : "unreadable");
		is_end = e.type == YAML_STREAM_END_EVENT;
		rc = e.type == YAML_DOCUMENT_END_EVENT ? keep_document(r, doc, &cap, n)
						       : on_event(r, &e);
		yaml_event_delete(&e);
	}
	return rc;
}

int wb_yaml_read(const char *file, const void *text, size_t bytes, struct wb_yaml_node ***doc,
	size_t *n, struct wb_err *err)
{
	struct reader r = {.file = file, .err = err};
	struct wb_yaml_node **got = NULL;
	size_t n_got = 0;
	int rc;

	if (bytes > WB_YAML_BYTES_MAX)
		return wb_err_set(
			err, -E2BIG, "%s: %zu bytes, more than %u", file, bytes, WB_YAML_BYTES_MAX);
	if (!yaml_parser_initialize(&r.parser))
		return wb_err_set(err, -ENOMEM, "%s: out of memory", file);
	yaml_parser_set_input_string(&r.parser, text, bytes);
	rc = read_all(&r, &got, &n_got);
	yaml_parser_delete(&r.parser);
	for (size_t i = 0; i < WB_YAML_DEPTH_MAX; i++)
		wb_free(r.key[i]);
	if (rc < 0) {
		free_node(r.root);
		wb_yaml_free(got, n_got);
		return rc;
	}
	*doc = got;
	*n = n_got;
	return 0;
}

static json_t *scalar_json(const struct wb_yaml_node *node)
{
	static const char *const yes[] = {"true", "True", "TRUE", NULL};
	static const char *const no[] = {"false", "False", "FALSE", NULL};
	const char *s = node->text;
	char *end;
	long long v;

	if (!node->is_plain)
		return json_string(s);
	if (wb_yaml_is_null(node))
		return json_null();
	if (is_one_of(s, yes))
		return json_true();
	if (is_one_of(s, no))
		return json_false();
	if (strspn(s, "0123456789.eE+-") != strlen(s) || !strpbrk(s, "0123456789"))
		return json_string(s);
	errno = 0;
	v = strtoll(s, &end, 10);
	if (!*end && !errno)
		return json_integer(v);
	errno = 0;
	{
		double f = strtod(s, &end);

		return *end || errno ? json_string(s) : json_real(f);
	}
}

json_t *wb_yaml_json(const struct wb_yaml_node *node)
{
	json_t *out;

	if (node->kind == WB_YAML_SCALAR)
		return scalar_json(node);
	out = node->kind == WB_YAML_MAP ? json_object() : json_array();
	for (uint32_t i = 0; out && i < node->n; i++) {
		json_t *v = wb_yaml_json(node->child[i].value);
		int rc = node->kind == WB_YAML_MAP ? json_object_set_new(out, node->child[i].key, v)
						   : json_array_append_new(out, v);

		if (rc < 0) {
			json_decref(out);
			out = NULL;
		}
	}
	return out;
}
