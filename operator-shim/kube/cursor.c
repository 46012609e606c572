/* SPDX-License-Identifier: Apache-2.0 */
#include "operator-shim/kube/cursor.h"

#include "base/base.h"
#include "base/err.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {
	[WB_KUBE_ADDED] = "ADDED",
	[WB_KUBE_MODIFIED] = "MODIFIED",
	[WB_KUBE_DELETED] = "DELETED",
	[WB_KUBE_BOOKMARK] = "BOOKMARK",
	[WB_KUBE_ERROR] = "ERROR",
};

void wb_kube_cursor_init(
	struct wb_kube_cursor *c, size_t max_line, wb_kube_event_fn fn, void *cookie)
{
	*c = (struct wb_kube_cursor){.fn = fn, .cookie = cookie};
	wb_buf_init(&c->line, max_line);
}

void wb_kube_cursor_finish(struct wb_kube_cursor *c)
{
	wb_buf_finish(&c->line);
}

static bool is_blank(const char *line, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strchr(" \t\r", line[i]) || !line[i])
			return false;
	return true;
}

static int give_line(struct wb_kube_cursor *c, const char *line, size_t n, struct wb_err *err)
{
	enum wb_kube_event what = WB_KUBE_OTHER;
	json_error_t bad;
	json_t *o, *object;
	const char *type;
	int rc;

	if (is_blank(line, n))
		return 0;
	o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &bad);
	if (!o)
		return wb_err_set(err, -EPROTO, "the watch stream is not JSON: %s", bad.text);
	type = json_string_value(json_object_get(o, "type"));
	object = json_object_get(o, "object");
	for (size_t i = 0; type && i < WB_ARRAY_SIZE(names); i++)
		if (!strcmp(type, names[i]))
			what = (enum wb_kube_event)i;
	if (!type || (what != WB_KUBE_OTHER && !json_is_object(object)))
		rc = wb_err_set(err, -EPROTO, "the watch stream holds something that is no event");
	else
		rc = c->fn(c->cookie, what, json_is_object(object) ? object : NULL);
	json_decref(o);
	return rc;
}

/* Append to the line that is kept, without its line end; refuse a line that is too long. */
static int keep(struct wb_kube_cursor *c, const char *bytes, size_t n, struct wb_err *err)
{
	wb_buf_put(&c->line, bytes, n);
	if (!c->line.rc)
		return 0;
	return wb_err_set(err, c->line.rc,
		c->line.rc == -E2BIG ? "an event of the watch stream is longer than %zu bytes"
				     : "out of memory for an event of %zu bytes",
		c->line.max);
}

int wb_kube_cursor_feed(struct wb_kube_cursor *c, const void *bytes, size_t n, struct wb_err *err)
{
	const char *p = bytes, *end = p + n;

	while (c->rc == 0 && p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((nl ? nl : end) - p);

		if (!nl || c->line.len || len > c->line.max)
			c->rc = keep(c, p, len, err);
		if (c->rc == 0 && nl) {
			c->rc = c->line.len
					? give_line(c, (const char *)c->line.data, c->line.len, err)
					: give_line(c, p, len, err);
			wb_buf_reset(&c->line);
		}
		p += len + 1;
	}
	return c->rc;
}

int wb_kube_cursor_end(struct wb_kube_cursor *c, struct wb_err *err)
{
	if (c->rc == 0 && c->line.len)
		c->rc = give_line(c, (const char *)c->line.data, c->line.len, err);
	wb_buf_reset(&c->line);
	return c->rc;
}
