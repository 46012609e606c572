/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_DTYPE_H
#define WB_BASE_DTYPE_H
/*
 * Element types, with safetensors' names.  Values are part of the map and plan formats: append
 * only.  Layer: base (L0).  Any thread.
 */
#include <stddef.h>

enum wb_dtype {
	WB_DT_NONE = 0,
	WB_BF16 = 1,
	WB_F32 = 2,
	WB_F16 = 3,
	WB_F8_E4M3 = 4,
	WB_F8_E5M2 = 5,
	WB_I8 = 6,
	WB_U8 = 7,
	WB_I32 = 8,
	WB_DT_COUNT,
};

/** wb_dtype_bytes - bytes of one element; 0 for an unknown type. */
size_t wb_dtype_bytes(enum wb_dtype t);
/** wb_dtype_name - "BF16", "F32", ... or "?". */
const char *wb_dtype_name(enum wb_dtype t);
/** wb_dtype_parse - type of a safetensors name, WB_DT_NONE when unknown. */
enum wb_dtype wb_dtype_parse(const char *name);

#endif
