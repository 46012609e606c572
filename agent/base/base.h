/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_BASE_H
#define WB_BASE_BASE_H
/*
 * Small helpers that every module uses: array length, min/max, checked arithmetic, assertions.
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

/** wb_mul_u64, wb_add_u64 - the result in *@out; false when it does not fit in 64 bits, and then
 * *@out is meaningless. */
static inline bool wb_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

/** wb_add_u64 - the sum in *@out; false when it does not fit in 64 bits, and then *@out is
 * meaningless. */
static inline bool wb_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

/** wb_ceil_div - @a / @b rounded up, without overflow; @b must not be 0. */
static inline uint64_t wb_ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/** wb_align_up - the smallest multiple of @align (any number above 0) that is not below @a; wraps
 *  round when that does not fit. */
static inline uint64_t wb_align_up(uint64_t a, uint64_t align)
{
	return wb_ceil_div(a, align) * align;
}

#endif
