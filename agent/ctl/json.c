/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/json.h"

#include "base/base.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <yaml.h>

const json_t *wb__ctl_at(const json_t *v, const char *path)
{
	char part[64];

	while (v && *path) {
		size_t n = strcspn(path, ".");

		if (n >= sizeof(part))
			return NULL;
		memcpy(part, path, n);
		part[n] = '\0';
		v = json_object_get(v, part);
		path += n + (path[n] == '.');
	}
	return v;
}

const char *wb__ctl_text(const json_t *v, const char *path, char *out, size_t bytes)
{
	const json_t *at = wb__ctl_at(v, path);

	out[0] = '\0';
	if (json_is_string(at))
		snprintf(out, bytes, "%s", json_string_value(at));
	else if (json_is_integer(at))
		snprintf(out, bytes, "%lld", (long long)json_integer_value(at));
	else if (json_is_real(at))
		snprintf(out, bytes, "%.3f", json_real_value(at));
	else if (json_is_boolean(at))
		snprintf(out, bytes, "%s", json_is_true(at) ? "true" : "false");
	return out;
}

double wb__ctl_number(const json_t *v, const char *path, double absent)
{
	const json_t *at = wb__ctl_at(v, path);

	return json_is_number(at) ? json_number_value(at) : absent;
}

const json_t *wb__ctl_condition(const json_t *object, const char *type)
{
	const json_t *c, *list = wb__ctl_at(object, "status.conditions");
	size_t i;

	json_array_foreach(list, i, c)
	{
		const char *name = json_string_value(json_object_get(c, "type"));

		if (name && !strcmp(name, type))
			return c;
	}
	return NULL;
}

double wb__ctl_since(const json_t *v, const char *path)
{
	const char *text = json_string_value(wb__ctl_at(v, path));
	struct tm tm = {0};

	if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm))
		return -1;
	return difftime(time(NULL), timegm(&tm));
}

bool wb__ctl_is_meant(const char *key, const char *asked)
{
	const char *slash = strchr(key, '/');

	return !asked || !strcmp(asked, key) || (slash && !strcmp(asked, slash + 1));
}

/* ---- printing ---- */

/* Is @text, without quotes, text for every reader?  Versions of YAML differ in the words that they
 * take for other things. */
static bool is_sure_text(const char *text)
{
	static const char *const words[] = {
		"true", "false", "yes", "no", "on", "off", "null", "y", "n", "inf", "nan"};

	if (!isalpha((unsigned char)text[0]) && text[0] != '/')
		return false;
	for (size_t i = 0; i < WB_ARRAY_SIZE(words); i++)
		if (!strcasecmp(words[i], text))
			return false;
	return !text[strspn(
		text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._/-")];
}

static void put_scalar(yaml_emitter_t *out, const char *text, bool is_string)
{
	bool is_quoted = is_string && !is_sure_text(text);
	yaml_scalar_style_t style =
		is_quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE;
	yaml_event_t e;

	yaml_scalar_event_initialize(
		&e, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1, style);
	yaml_emitter_emit(out, &e);
}

static void put_value(yaml_emitter_t *out, const json_t *v)
{
	yaml_event_t e;
	const json_t *at;
	const char *key;
	char *text;
	size_t i;

	if (json_is_object(v)) {
		yaml_mapping_start_event_initialize(&e, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE);
		yaml_emitter_emit(out, &e);
		json_object_foreach((json_t *)(uintptr_t)v, key, at)
		{
			put_scalar(out, key, true);
			put_value(out, at);
		}
		yaml_mapping_end_event_initialize(&e);
		yaml_emitter_emit(out, &e);
	} else if (json_is_array(v)) {
		yaml_sequence_start_event_initialize(&e, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE);
		yaml_emitter_emit(out, &e);
		json_array_foreach(v, i, at)
		{
			put_value(out, at);
		}
		yaml_sequence_end_event_initialize(&e);
		yaml_emitter_emit(out, &e);
	} else if (json_is_string(v)) {
		put_scalar(out, json_string_value(v), true);
	} else {
		text = json_dumps(v, JSON_ENCODE_ANY);
		put_scalar(out, text ? text : "null", false);
		free(text);
	}
}

static void dump_yaml(const json_t *v)
{
	yaml_emitter_t out;
	yaml_event_t e;

	if (!yaml_emitter_initialize(&out))
		return;
	yaml_emitter_set_output_file(&out, stdout);
	yaml_emitter_set_unicode(&out, 1);
	yaml_emitter_set_width(&out, -1);
	yaml_stream_start_event_initialize(&e, YAML_UTF8_ENCODING);
	yaml_emitter_emit(&out, &e);
	yaml_document_start_event_initialize(&e, NULL, NULL, NULL, 1);
	yaml_emitter_emit(&out, &e);
	put_value(&out, v);
	yaml_document_end_event_initialize(&e, 1);
	yaml_emitter_emit(&out, &e);
	yaml_stream_end_event_initialize(&e);
	yaml_emitter_emit(&out, &e);
	yaml_emitter_delete(&out);
}

void wb__ctl_dump(const json_t *v, bool is_yaml)
{
	if (is_yaml) {
		dump_yaml(v);
		return;
	}
	json_dumpf(v, stdout, JSON_INDENT(2));
	putchar('\n');
}
