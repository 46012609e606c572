/* SPDX-License-Identifier: Apache-2.0 */
#include "xport/ways.h"

#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 32

/* Copy the @i-th of the parts into which @sep divides @text to @out. */
static bool part(const char *text, char sep, uint32_t i, char *out, size_t cap)
{
	size_t len;

	for (; i; i--) {
		text = strchr(text, sep);
		if (!text)
			return false;
		text++;
	}
	len = (size_t)(strchrnul(text, sep) - text);
	if (!len || len >= cap)
		return false;
	memcpy(out, text, len);
	out[len] = 0;
	return true;
}

bool wb__way_word(const char *list, uint32_t i, char *out, size_t cap)
{
	return part(list, ',', i, out, cap);
}

bool wb_xport_way(const char *endpoint, uint32_t i, char *out, size_t cap)
{
	return part(endpoint, ';', i, out, cap);
}

const struct wb_xport_ops *wb__way_ops(const char *way)
{
	const struct wb_xport_ops *best = NULL, *x;
	size_t longest = 0;

	for (uint32_t i = 0; (x = wb__xport_at(i)); i++) {
		size_t n = strlen(x->scheme);

		if (strncmp(way, x->scheme, n) || (best && n < longest))
			continue;
		best = x;
		longest = n;
	}
	assert(best); /* the scheme of tcp is empty, so it fits any text */
	return best;
}

bool wb__way_of(const char *endpoint, const char *scheme, char *out, size_t cap)
{
	for (uint32_t i = 0; wb_xport_way(endpoint, i, out, cap); i++)
		if (!strcmp(wb__way_ops(out)->scheme, scheme))
			return true;
	return false;
}

const char *wb_xport_of_endpoint(const char *endpoint)
{
	return endpoint[0] ? wb__way_ops(endpoint)->name : "";
}

/* Does @allowed contain the transport?  Endpoint texts do not say whether a transport is in
 * software, so "verbs+soft" in @allowed counts as "verbs". */
static bool is_allowed(const char *allowed, const char *name)
{
	char word[WORD_MAX];

	for (uint32_t i = 0; allowed && wb__way_word(allowed, i, word, sizeof(word)); i++) {
		word[strcspn(word, "+")] = 0;
		if (!strcmp(word, name))
			return true;
	}
	return !allowed;
}

bool wb_xport_meet(const char *mine, const char *theirs, const char *allowed, bool is_encrypted)
{
	char way[WB__WAY_MAX], other[WB__WAY_MAX];

	for (uint32_t i = 0; wb_xport_way(mine, i, way, sizeof(way)); i++) {
		const struct wb_xport_ops *x = wb__way_ops(way);

		if (!is_allowed(allowed, x->name) || (is_encrypted && x->caps & WB_XPORT_CAP_CLEAR))
			continue;
		if (wb__way_of(theirs, x->scheme, other, sizeof(other)) &&
			(!x->is_near || x->is_near(way, other)))
			return true;
	}
	return false;
}

static uint32_t sockets_of(uint32_t n_rail, const char *way)
{
	uint32_t n = wb__way_ops(way)->sockets_min, theirs = 1;

	for (const char *s = way; *s; s++)
		theirs += *s == ',';
	n = WB_MAX(n, WB_MAX(n_rail, theirs));
	return WB_MIN(n, (uint32_t)WB_XPORT_SOCKETS_MAX);
}

uint32_t wb_xport_sockets(uint32_t n_rail, const char *endpoint)
{
	char way[WB__WAY_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; wb_xport_way(endpoint, i, way, sizeof(way)); i++)
		n = WB_MAX(n, sockets_of(n_rail, way));
	return n ? n : sockets_of(n_rail, endpoint);
}

/* Append the addresses of @rails in @way to @out. */
static int some_of(const char *way, uint32_t rails, char *out, size_t cap)
{
	uint32_t left = rails, i = 0;
	size_t at = strlen(out);
	bool is_first = true;

	for (const char *s = way, *end; s; s = *end ? end + 1 : NULL, i++) {
		int n;

		end = strchrnul(s, ',');
		if (rails && !(i < 32 && rails >> i & 1))
			continue;
		left &= ~(uint32_t)(1ull << i);
		n = snprintf(out + at, cap - at, "%s%.*s", is_first ? "" : ",", (int)(end - s), s);
		if (n < 0 || (size_t)n >= cap - at)
			return -ENOSPC;
		at += (size_t)n;
		is_first = false;
	}
	return left ? -EINVAL : 0;
}

int wb_xport_endpoint_of(const char *endpoint, uint32_t rails, char *out, size_t cap)
{
	char way[WB__WAY_MAX];
	int rc = 0;

	if (!cap)
		return -ENOSPC;
	out[0] = 0;
	for (uint32_t i = 0; rc == 0 && wb_xport_way(endpoint, i, way, sizeof(way)); i++) {
		size_t at = strlen(out);

		if (i && at + 1 >= cap)
			return -ENOSPC;
		if (i)
			memcpy(out + at, ";", 2);
		rc = some_of(way, rails, out, cap);
	}
	return rc == 0 && !out[0] && rails ? -EINVAL : rc;
}
