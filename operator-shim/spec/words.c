/* SPDX-License-Identifier: Apache-2.0 */
/* The last part of a path, and how different two words are. */
#include "base/base.h"
#include "operator-shim/spec/table.h"

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
