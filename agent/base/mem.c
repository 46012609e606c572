/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Thread_local uint64_t fail_in;
static _Thread_local int fail_fired;
static _Thread_local uint64_t allowed, taken; /* bytes: wb_mem_allow() */
static _Thread_local int is_over;

void wb_mem_fail_at(uint64_t n)
{
	fail_in = n;
	fail_fired = 0;
}

int wb_mem_failed(void)
{
	return fail_fired;
}

void wb_mem_offer(int pid)
{
	char path[64] = "/proc/self/oom_score_adj";
	int fd;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, "1000", 4);
	close(fd);
}

void wb_mem_allow(uint64_t bytes)
{
	allowed = bytes;
	taken = 0;
	is_over = 0;
}

int wb_mem_over(void)
{
	return is_over;
}

/* Would an allocation of @n times @bytes exceed what wb_mem_allow() allows?  Notes that it would.
 * @had: bytes that are freed in exchange. */
static int is_too_much(size_t n, size_t bytes, size_t had)
{
	size_t want;

	if (!allowed)
		return 0;
	if (!__builtin_mul_overflow(n, bytes, &want) && want <= allowed &&
		taken - (had < taken ? had : taken) <= allowed - want)
		return 0;
	is_over = 1;
	return 1;
}

static void take(const void *p)
{
	if (allowed && p)
		taken += malloc_usable_size((void *)(uintptr_t)p);
}

/* taken stays at 0 or more: memory that was allocated earlier, or by another thread, may be freed
 * here, and never makes room for more than was allowed. */
static void give(size_t bytes)
{
	taken -= bytes < taken ? bytes : taken;
}

static int must_fail(void)
{
	if (!fail_in || --fail_in)
		return 0;
	fail_fired = 1;
	return 1;
}

void *wb_alloc(size_t bytes)
{
	void *p = must_fail() || is_too_much(1, bytes, 0) ? NULL : malloc(bytes ? bytes : 1);

	take(p);
	return p;
}

void *wb_zalloc(size_t n, size_t bytes)
{
	void *p = must_fail() || is_too_much(n, bytes, 0) ? NULL
							  : calloc(n ? n : 1, bytes ? bytes : 1);

	take(p);
	return p;
}

void *wb_pages_alloc(size_t bytes)
{
	void *p = must_fail() || is_too_much(1, bytes, 0)
			  ? MAP_FAILED
			  : mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (allowed)
		taken += bytes;
	return p;
}

void wb_pages_free(void *p, size_t bytes)
{
	if (!p)
		return;
	if (allowed)
		give(bytes);
	munmap(p, bytes ? bytes : 1);
}

void *wb_realloc_array(void *p, size_t n, size_t bytes)
{
	size_t had = allowed && p ? malloc_usable_size(p) : 0;
	void *grown = must_fail() || is_too_much(n, bytes, had)
			      ? NULL
			      : reallocarray(p, n ? n : 1, bytes ? bytes : 1);

	if (!grown)
		return NULL;
	give(had);
	take(grown);
	return grown;
}

void *wb_memdup(const void *p, size_t bytes)
{
	void *copy = wb_alloc(bytes);

	if (copy && bytes)
		memcpy(copy, p, bytes);
	return copy;
}

char *wb_strndup(const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *copy = wb_alloc(len + 1);

	if (!copy)
		return NULL;
	memcpy(copy, s, len);
	copy[len] = '\0';
	return copy;
}

char *wb_strdup(const char *s)
{
	return wb_strndup(s, strlen(s));
}

void wb_free(void *p)
{
	if (allowed && p)
		give(malloc_usable_size(p));
	free(p);
}

void wb_free_wiped(void *p)
{
	if (allowed && p)
		give(malloc_usable_size(p));
	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

int wb_grow(void *pp, size_t *cap, size_t need, size_t max, size_t elem_bytes)
{
	void *old, *grown;
	size_t want = *cap ? *cap : 8;

	if (need <= *cap)
		return 0;
	if (need > max)
		return -E2BIG;
	while (want < need)
		want *= 2;
	if (want > max)
		want = max;
	memcpy(&old, pp, sizeof(old));
	grown = wb_realloc_array(old, want, elem_bytes);
	if (!grown)
		return -ENOMEM;
	memcpy(pp, &grown, sizeof(grown));
	*cap = want;
	return 0;
}
