/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quantity.h"

#include "base/base.h"

#include <errno.h>
#include <string.h>

#define LEN_MAX 24

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

/* Reads digits at *@s as a number, advances *@s, and multiplies *@scale by 10 for each digit.  At
 * most LEN_MAX digits do not overflow. */
static unsigned __int128 digits(const char **s, unsigned __int128 *scale)
{
	unsigned __int128 v = 0;

	for (; **s >= '0' && **s <= '9'; ++*s) {
		v = v * 10 + (unsigned)(**s - '0');
		*scale *= 10;
	}
	return v;
}

int wb_quantity(const char *s, uint64_t *out)
{
	unsigned __int128 whole, part = 0, scale = 1, unused = 1;
	const char *at = s;

	if (strlen(s) > LEN_MAX)
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
		/* The product fits, since part < 10^22 and factor < 2^41.  A part of a byte counts
		 * as one byte. */
		v = whole * units[i].factor + (part * units[i].factor + scale - 1) / scale;
		if (v > INT64_MAX)
			return -ERANGE;
		*out = (uint64_t)v;
		return 0;
	}
	return -EINVAL;
}
