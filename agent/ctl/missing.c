/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences for what an operator does not have, which name what it has instead. */
#include "base/buf.h"
#include "base/err.h"
#include "ctl/fetch.h"
#include "ctl/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *key_of(const json_t *o, char *out, size_t bytes)
{
	char name[256], ns[256];

	snprintf(out, bytes, "%s/%s", wb__ctl_text(o, "metadata.namespace", ns, sizeof(ns)),
		wb__ctl_text(o, "metadata.name", name, sizeof(name)));
	return out;
}

int wb__ctl_no_object(const json_t *items, const char *asked, struct wb_err *err)
{
	struct wb_buf b;
	const json_t *o;
	char key[520];
	size_t i;
	int rc;

	wb_buf_init(&b, 4096);
	json_array_foreach(items, i, o)
	{
		wb_buf_printf(&b, "%s%s", i ? ", " : "", key_of(o, key, sizeof(key)));
	}
	if (!b.len)
		rc = wb_err_set(err, -ENOENT, "this operator has no object");
	else if (asked)
		rc = wb_err_set(err, -ENOENT, "there is no object %.300s; this operator has %.600s",
			asked, wb_buf_cstr(&b));
	else
		rc = wb_err_set(err, -EINVAL, "this operator has several objects, name one: %.800s",
			wb_buf_cstr(&b));
	wb_buf_finish(&b);
	return rc;
}

/* Says why an object that is there does not have this page yet. */
static int say_why(const json_t *o, const char *path, struct wb_err *err)
{
	char key[520], why[600];
	const json_t *c = wb__ctl_condition(o, "Ready");

	return wb_err_set(err, -ENOENT, "%.300s has no %s yet: %s", key_of(o, key, sizeof(key)),
		path + 1, wb__ctl_text(c, "message", why, sizeof(why)));
}

int wb__ctl_missing(const char *addr, const char *path, const char *asked, struct wb_err *err)
{
	const json_t *o, *items, *found = NULL;
	json_t *list = NULL;
	char key[520];
	size_t i, n = 0;
	int rc = wb__ctl_fetch_json(addr, "/objects", NULL, &list, err);

	if (rc < 0)
		return rc;
	items = json_object_get(list, "items");
	json_array_foreach(items, i, o)
	{
		if (!wb__ctl_is_meant(key_of(o, key, sizeof(key)), asked))
			continue;
		found = o;
		n++;
	}
	rc = n == 1 ? say_why(found, path, err) : wb__ctl_no_object(items, n ? NULL : asked, err);
	json_decref(list);
	return rc;
}
