/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BASE_MEM_H
#define WB_BASE_MEM_H
/*
 * Heap allocation that tests can make fail.
 *
 * All set-up code allocates through these; the chunk path does not allocate.  A thread-local
 * countdown lets a torture test fail the n-th call of this thread and require -ENOMEM, no leak and
 * untouched outputs.  Layer: base (L0).  Any thread.
 */
#include <stddef.h>
#include <stdint.h>

/** wb_alloc - malloc of @bytes (at least 1), or NULL.  Free with wb_free(). */
void *wb_alloc(size_t bytes) __attribute__((malloc));
/** wb_zalloc - zeroed array of @n elements of @bytes each; NULL on overflow, or when memory is
 * short. */
void *wb_zalloc(size_t n, size_t bytes) __attribute__((malloc));
/** wb_realloc_array - grow @p to @n elements of @bytes; @p is intact when NULL is returned. */
void *wb_realloc_array(void *p, size_t n, size_t bytes);
/** wb_strdup, wb_strndup - a copy of @s, or of at most @n of its bytes, with a NUL; NULL when
 * memory is short.  Release with wb_free(). */
char *wb_strdup(const char *s) __attribute__((malloc));
char *wb_strndup(const char *s, size_t n) __attribute__((malloc));
/** wb_pages_alloc - @bytes (at least 1) of zeroed memory in pages of its own, or NULL, for memory
 * of which most is never touched: an untouched page costs nothing, under sanitizers either.
 * Release with wb_pages_free(). */
void *wb_pages_alloc(size_t bytes);
/** wb_pages_free - @bytes: as allocated.  NULL is allowed. */
void wb_pages_free(void *p, size_t bytes);
/** wb_free - free memory; NULL is allowed. */
void wb_free(void *p);
/** wb_free_wiped - the same for memory from malloc() that held a secret: the whole block is zeroed
 * first. */
void wb_free_wiped(void *p);
/** wb_memdup - copy of @bytes bytes, or NULL. */
void *wb_memdup(const void *p, size_t bytes) __attribute__((malloc));

/**
 * wb_grow - make room for @need elements in a growing array (capacity doubles)
 * @pp:		address of the array pointer; @cap: its capacity in elements
 * @need:	elements wanted; @max: refused with -E2BIG above it
 * @elem_bytes:	size of one element
 * Returns 0, -E2BIG or -ENOMEM; the array is intact on failure.
 */
int wb_grow(void *pp, size_t *cap, size_t need, size_t max, size_t elem_bytes);

/** wb_mem_offer - where the kernel ends one process for want of memory, it takes @pid (0 = this
 * one) before others.  Nothing where that may not be said. */
void wb_mem_offer(int pid);

/** wb_mem_allow - from now on this thread may allocate at most @bytes more than it frees;
 * allocations above this fail, as if memory were short.  0 = no bound. */
void wb_mem_allow(uint64_t bytes);
/** wb_mem_over - has an allocation failed because of wb_mem_allow() since it was called? */
int wb_mem_over(void);

/* Tests: fail allocation number @n from now on this thread (1 = the next; 0 = never). */
void wb_mem_fail_at(uint64_t n);
/* Tests: true when the countdown above fired. */
int wb_mem_failed(void);

#endif
