/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a YAML value into a field of the spec, by the type of the field, or refuses it. */
#include "base/base.h"
#include "base/quantity.h"
#include "operator-shim/spec/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void wb__spec_refuse(
	struct wb__spec_check *c, uint32_t line, const char *path, const char *fmt, ...)
{
	size_t used = strlen(c->text);
	char what[384];
	va_list ap;

	c->n++;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	snprintf(c->text + used, sizeof(c->text) - used, "%s%s:%u: %.256s: %s", used ? "\n" : "",
		c->file, line, path, what);
}

unsigned wb__spec_tolerance(const char *word)
{
	return (unsigned)WB_MAX(strlen(word) / 3, 2u);
}

static bool parse_int(const char *s, int64_t *out)
{
	bool is_minus = *s == '-';
	int64_t v = 0;

	s += is_minus;
	if (!*s || strlen(s) > 18 || strspn(s, "0123456789") != strlen(s))
		return false;
	for (; *s; s++)
		v = v * 10 + (*s - '0');
	*out = is_minus ? -v : v;
	return true;
}

static bool is_bool_text(const char *s)
{
	return !strcmp(s, "true") || !strcmp(s, "false");
}

bool wb__spec_is_string(const struct wb_yaml_node *v)
{
	int64_t unused;

	return v->kind == WB_YAML_SCALAR &&
	       (!v->is_plain || (!parse_int(v->text, &unused) && !is_bool_text(v->text)));
}

static void set_bool(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, void *at)
{
	if (v->kind != WB_YAML_SCALAR || !v->is_plain || !is_bool_text(v->text)) {
		wb__spec_refuse(c, v->line, f->path, "must be true or false");
		return;
	}
	*(bool *)at = v->text[0] == 't';
}

static void set_int(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, void *at)
{
	int64_t n;

	if (v->kind != WB_YAML_SCALAR || !v->is_plain || !parse_int(v->text, &n)) {
		wb__spec_refuse(c, v->line, f->path, "must be a whole number, without quotes");
		return;
	}
	if (n < f->min)
		wb__spec_refuse(c, v->line, f->path, "%lld is below the minimum of %lld",
			(long long)n, (long long)f->min);
	else if (n > f->max)
		wb__spec_refuse(c, v->line, f->path, "%lld is above the maximum of %lld",
			(long long)n, (long long)f->max);
	else
		*(uint32_t *)at = (uint32_t)n;
}

static void set_quantity(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, void *at)
{
	uint64_t *out = at;
	int rc = -EINVAL;
	int64_t n;

	if (v->kind == WB_YAML_SCALAR && v->is_plain && parse_int(v->text, &n)) {
		/* A negative number becomes 0, which the rule about the least size refuses. */
		*out = n < 0 ? 0 : (uint64_t)n;
		return;
	}
	if (v->kind == WB_YAML_SCALAR)
		rc = wb_quantity(v->text, out);
	if (rc == -ERANGE)
		wb__spec_refuse(c, v->line, f->path, "%.24s is too large", v->text);
	else if (rc < 0)
		wb__spec_refuse(c, v->line, f->path,
			"must be a number of bytes or a quantity such as 512Mi or 1.5Gi");
}

static void set_string(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, void *at)
{
	if (!wb__spec_is_string(v))
		wb__spec_refuse(c, v->line, f->path, "must be a string");
	else if (strlen(v->text) > (size_t)f->max)
		wb__spec_refuse(
			c, v->line, f->path, "is longer than %lld characters", (long long)f->max);
	else
		memcpy(at, v->text, strlen(v->text) + 1);
}

static void list_words(const struct wb_spec_field *f, char *out, size_t bytes)
{
	size_t used = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < f->words->n && used < bytes; i++)
		if (f->words->text[i])
			used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? ", " : "",
				f->words->text[i]);
}

static bool find_word(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, uint32_t *out)
{
	const char *meant = NULL, *text = v->kind == WB_YAML_SCALAR ? v->text : "";
	unsigned least = wb__spec_tolerance(text) + 1;
	int number = wb__spec_is_string(v) ? wb_word_number(f->words, text) : -1;
	char all[128];

	if (number >= 0) {
		*out = (uint32_t)number;
		return true;
	}
	for (uint32_t i = 0; i < f->words->n; i++) {
		const char *word = f->words->text[i];
		unsigned d = word ? wb_spec_distance(text, word) : UINT_MAX;

		if (word && (d < least || !strcasecmp(text, word))) {
			meant = word;
			least = d;
		}
	}
	list_words(f, all, sizeof(all));
	if (meant)
		wb__spec_refuse(c, v->line, f->path, "%.64s is none of %s; did you mean %s?", text,
			all, meant);
	else
		wb__spec_refuse(c, v->line, f->path, "%.64s is none of %s", text, all);
	return false;
}

static void set_word(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, void *at)
{
	find_word(c, f, v, at);
}

static bool check_list(
	struct wb__spec_check *c, const struct wb_spec_field *f, const struct wb_yaml_node *v)
{
	if (v->kind != WB_YAML_LIST) {
		wb__spec_refuse(c, v->line, f->path, "must be a list");
		return false;
	}
	if (v->n < f->min || v->n > f->max) {
		wb__spec_refuse(c, v->line, f->path, "has %u items, allowed are %lld to %lld", v->n,
			(long long)f->min, (long long)f->max);
		return false;
	}
	return true;
}

static void set_words(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, void *at)
{
	struct wb_spec_words got = {0};

	if (!check_list(c, f, v))
		return;
	for (uint32_t i = 0; i < v->n; i++) {
		uint32_t w;

		if (!find_word(c, f, v->child[i].value, &w))
			return;
		for (uint32_t k = 0; k < got.n; k++)
			if (got.v[k] == w) {
				wb__spec_refuse(c, v->child[i].line, f->path, "%s is there twice",
					wb_word(f->words, w));
				return;
			}
		assert(got.n < WB_ARRAY_SIZE(got.v));
		got.v[got.n++] = w;
	}
	*(struct wb_spec_words *)at = got;
}

static void set_strings(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, void *at)
{
	struct wb_spec_strings *out = at;

	if (!check_list(c, f, v))
		return;
	out->n = 0;
	for (uint32_t i = 0; i < v->n; i++) {
		const struct wb_yaml_node *s = v->child[i].value;

		if (!wb__spec_is_string(s) || strlen(s->text) < f->len_min ||
			strlen(s->text) > f->len_max) {
			wb__spec_refuse(c, v->child[i].line, f->path,
				"an item must be a string of %u to %u characters", f->len_min,
				f->len_max);
			return;
		}
		for (uint32_t k = 0; k < out->n; k++)
			if (!strcmp(out->v[k], s->text)) {
				wb__spec_refuse(
					c, v->child[i].line, f->path, "%s is there twice", s->text);
				return;
			}
		memcpy(out->v[out->n++], s->text, strlen(s->text) + 1);
	}
}

static void (*const setters[])(struct wb__spec_check *, const struct wb_spec_field *,
	const struct wb_yaml_node *, void *) = {
	[WB_SPEC_OBJECT] = NULL,
	[WB_SPEC_BOOL] = set_bool,
	[WB_SPEC_INT] = set_int,
	[WB_SPEC_QUANTITY] = set_quantity,
	[WB_SPEC_STRING] = set_string,
	[WB_SPEC_WORD] = set_word,
	[WB_SPEC_WORDS] = set_words,
	[WB_SPEC_STRINGS] = set_strings,
};

void wb__spec_set_field(struct wb__spec_check *c, const struct wb_spec_field *f,
	const struct wb_yaml_node *v, struct wb_spec *s)
{
	assert(f->type != WB_SPEC_OBJECT);
	setters[f->type](c, f, v, (char *)s + f->off);
}
