/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "operator-shim/spec/table.h"

#include <errno.h>
#include <string.h>

#define WORD_MAX 64

const char *wb_spec_leaf(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot ? dot + 1 : path;
}

unsigned wb_spec_distance(const char *a, const char *b)
{
	unsigned row[3][WORD_MAX + 1];
	size_t la = strnlen(a, WORD_MAX), lb = strnlen(b, WORD_MAX);

	for (size_t j = 0; j <= lb; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= la; i++) {
		unsigned *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= lb; j++) {
			unsigned cost = a[i - 1] != b[j - 1];

			now[j] = WB_MIN(WB_MIN(up[j], now[j - 1]) + 1, up[j - 1] + cost);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = WB_MIN(now[j], up2[j - 2] + 1);
		}
	}
	return row[la % 3][lb];
}

static const struct {
	const char *suffix;
	uint64_t factor;
} units[] = {
	{"", 1},
	{"k", 1000},
	{"M", 1000000},
	{"G", 1000000000},
	{"T", 1000000000000},
	{"Ki", 1ull << 10},
	{"Mi", 1ull << 20},
	{"Gi", 1ull << 30},
	{"Ti", 1ull << 40},
};

/* Digits of @s as a number; advances @s.  More than 24 digits cannot come here (len_max). */
static unsigned __int128 digits(const char **s, unsigned __int128 *scale)
{
	unsigned __int128 v = 0;

	for (; **s >= '0' && **s <= '9'; ++*s) {
		v = v * 10 + (unsigned)(**s - '0');
		*scale *= 10;
	}
	return v;
}

int wb_spec_quantity(const char *s, uint64_t *out)
{
	unsigned __int128 whole, part = 0, scale = 1, unused = 1;
	const char *at = s;

	if (strlen(s) > 24)
		return -EINVAL;
	whole = digits(&s, &unused);
	if (s == at)
		return -EINVAL;
	if (*s == '.') {
		at = ++s;
		part = digits(&s, &scale);
		if (s == at)
			return -EINVAL;
	}
	for (size_t i = 0; i < WB_ARRAY_SIZE(units); i++) {
		unsigned __int128 v;

		if (strcmp(s, units[i].suffix) != 0)
			continue;
		if (whole > INT64_MAX)
			return -ERANGE;
		/* part < 10^22 and factor < 2^41 fit; a part of a byte counts as one. */
		v = whole * units[i].factor + (part * units[i].factor + scale - 1) / scale;
		if (v > INT64_MAX)
			return -ERANGE;
		*out = (uint64_t)v;
		return 0;
	}
	return -EINVAL;
}
