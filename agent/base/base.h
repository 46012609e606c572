/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_BASE_H
#define WB_BASE_BASE_H
/*
 * Small words every module uses: array length, min/max, checked arithmetic, assertions.
 *
 * assert() stays on in release builds; wb_dassert() is for the chunk path, debug builds only.
 * Layer: base (L0).  Any thread.
 */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WB_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define WB_MIN(a, b) ((a) < (b) ? (a) : (b))
#define WB_MAX(a, b) ((a) > (b) ? (a) : (b))
#define wb_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#ifdef WB_DEBUG
#define wb_dassert(x) assert(x)
#else
#define wb_dassert(x) ((void)0)
#endif

static inline bool wb_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

static inline bool wb_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

static inline uint64_t wb_ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static inline uint64_t wb_align_up(uint64_t a, uint64_t align)
{
	return wb_ceil_div(a, align) * align;
}

#endif
