/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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

void wb__ctl_dump(const json_t *v)
{
	json_dumpf(v, stdout, JSON_INDENT(2));
	putchar('\n');
}
