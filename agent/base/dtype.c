/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

#include "base/base.h"

#include <string.h>

static const struct {
	const char *name;
	size_t bytes;
} rows[WB_DT_COUNT] = {
	[WB_BF16] = {"BF16", 2},
	[WB_F32] = {"F32", 4},
	[WB_F16] = {"F16", 2},
	[WB_F8_E4M3] = {"F8_E4M3", 1},
	[WB_F8_E5M2] = {"F8_E5M2", 1},
	[WB_I8] = {"I8", 1},
	[WB_U8] = {"U8", 1},
	[WB_I32] = {"I32", 4},
};

static bool known(enum wb_dtype t)
{
	return t > WB_DT_NONE && t < WB_DT_COUNT;
}

size_t wb_dtype_bytes(enum wb_dtype t)
{
	return known(t) ? rows[t].bytes : 0;
}

const char *wb_dtype_name(enum wb_dtype t)
{
	return known(t) ? rows[t].name : "?";
}

enum wb_dtype wb_dtype_parse(const char *name)
{
	for (unsigned t = WB_DT_NONE + 1; t < WB_DT_COUNT; t++)
		if (!strcmp(rows[t].name, name))
			return (enum wb_dtype)t;
	return WB_DT_NONE;
}
