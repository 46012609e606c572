/* SPDX-License-Identifier: Apache-2.0 */
#include "base/names.h"

#include <errno.h>
#include <search.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

int wb_names_add(struct wb_names *t, const char *name)
{
	const char *const *at = tsearch(name, &t->root, compare);

	if (!at)
		return -ENOMEM;
	return *at == name ? 0 : -EEXIST;
}

const char *wb_names_find(const struct wb_names *t, const char *name)
{
	const char *const *at = tfind(name, &t->root, compare);

	return at ? *at : NULL;
}

void wb_names_drop(struct wb_names *t, const char *name)
{
	if (wb_names_find(t, name) == name)
		(void)tdelete(name, &t->root, compare);
}
