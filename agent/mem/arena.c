/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/arena.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct wb_arena {
	uint8_t *base; /* mapping of bytes bytes */
	uint64_t slot_bytes, bytes;
	uint32_t n_slot, n_free;
	int fd; /* owned */
	bool is_owner; /* created here: get and put are allowed */
	uint32_t *free; /* stack of free slots: the last one put is still in the cache */
	uint32_t *gen;
	bool *is_out;
};

static int arena_alloc(uint64_t slot_bytes, uint32_t n_slot, bool is_owner, struct wb_arena **out,
	struct wb_err *err)
{
	struct wb_arena *a;
	uint64_t bytes;

	if (!slot_bytes || slot_bytes % 4096 || !n_slot || n_slot > WB_ARENA_SLOTS_MAX ||
		!wb_mul_u64(slot_bytes, n_slot, &bytes) || bytes > INT64_MAX)
		return wb_err_set(err, -EINVAL, "arena: %u slots of %llu bytes", n_slot,
			(unsigned long long)slot_bytes);
	a = wb_zalloc(1, sizeof(*a));
	if (!a)
		return wb_err_set(err, -ENOMEM, "arena: out of memory");
	a->slot_bytes = slot_bytes;
	a->n_slot = n_slot;
	a->bytes = bytes;
	a->is_owner = is_owner;
	a->fd = -1;
	*out = a;
	if (!is_owner)
		return 0;
	a->free = wb_zalloc(n_slot, sizeof(*a->free));
	a->gen = wb_zalloc(n_slot, sizeof(*a->gen));
	a->is_out = wb_zalloc(n_slot, sizeof(*a->is_out));
	if (!a->free || !a->gen || !a->is_out) {
		wb_arena_destroy(a);
		return wb_err_set(err, -ENOMEM, "arena: out of memory for %u slots", n_slot);
	}
	/* The lowest number is handed out first. */
	for (uint32_t i = 0; i < n_slot; i++)
		a->free[i] = n_slot - 1 - i;
	a->n_free = n_slot;
	return 0;
}

static int arena_map(struct wb_arena *a, struct wb_err *err)
{
	void *p = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);

	if (p == MAP_FAILED)
		return wb_err_set(err, -errno, "arena: map %llu bytes: %s",
			(unsigned long long)a->bytes, strerror(errno));
	a->base = p;
	return 0;
}

static int arena_populate(struct wb_arena *a, struct wb_err *err)
{
	if (!madvise(a->base, a->bytes, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return wb_err_set(err, -ENOMEM,
			"arena: %llu bytes of memory are not to be had (%s): lower the buffer size "
			"or raise the memory limit",
			(unsigned long long)a->bytes, strerror(errno));
	/* Kernels before 5.14. */
	for (uint64_t at = 0; at < a->bytes; at += 4096)
		*(volatile uint8_t *)(a->base + at) = 0;
	return 0;
}

int wb_arena_create(const struct wb_arena_opts *o, struct wb_arena **out, struct wb_err *err)
{
	struct wb_arena *a;
	int rc = arena_alloc(o->slot_bytes, o->n_slot, true, &a, err);

	if (rc < 0)
		return rc;
	rc = wb_memfd_create(o->name, a->bytes, err);
	if (rc >= 0) {
		a->fd = rc;
		rc = arena_map(a, err);
	}
	if (rc >= 0 && o->populate)
		rc = arena_populate(a, err);
	if (rc < 0) {
		wb_arena_destroy(a);
		return rc;
	}
	*out = a;
	return 0;
}

int wb_arena_open(
	int fd, uint64_t slot_bytes, uint32_t n_slot, struct wb_arena **out, struct wb_err *err)
{
	struct wb_arena *a;
	int rc = arena_alloc(slot_bytes, n_slot, false, &a, err);

	if (rc < 0)
		return rc;
	rc = wb_memfd_check(fd, a->bytes, NULL, err);
	if (!rc) {
		a->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		rc = a->fd < 0 ? wb_err_set(err, -errno, "arena: dup: %s", strerror(errno))
			       : arena_map(a, err);
	}
	if (rc < 0) {
		wb_arena_destroy(a);
		return rc;
	}
	*out = a;
	return 0;
}

void wb_arena_destroy(struct wb_arena *a)
{
	if (!a)
		return;
	if (a->base)
		munmap(a->base, a->bytes);
	if (a->fd >= 0)
		close(a->fd);
	wb_free(a->free);
	wb_free(a->gen);
	wb_free(a->is_out);
	wb_free(a);
}

uint32_t wb_arena_get(struct wb_arena *a)
{
	uint32_t slot;

	assert(a->is_owner);
	if (!a->n_free)
		return WB_ARENA_NONE;
	slot = a->free[--a->n_free];
	a->is_out[slot] = true;
	return slot;
}

void wb_arena_put(struct wb_arena *a, uint32_t slot)
{
	assert(a->is_owner && slot < a->n_slot && a->is_out[slot]);
	a->is_out[slot] = false;
	a->gen[slot]++;
	a->free[a->n_free++] = slot;
}

uint32_t wb_arena_gen(const struct wb_arena *a, uint32_t slot)
{
	assert(a->is_owner && slot < a->n_slot);
	return a->gen[slot];
}

bool wb_arena_is_out(const struct wb_arena *a, uint32_t slot)
{
	assert(a->is_owner && slot < a->n_slot);
	return a->is_out[slot];
}

uint32_t wb_arena_n_free(const struct wb_arena *a)
{
	return a->n_free;
}

uint32_t wb_arena_n_slot(const struct wb_arena *a)
{
	return a->n_slot;
}

uint64_t wb_arena_slot_bytes(const struct wb_arena *a)
{
	return a->slot_bytes;
}

void *wb_arena_addr(const struct wb_arena *a, uint32_t slot)
{
	assert(slot < a->n_slot);
	return a->base + a->slot_bytes * slot;
}

void *wb_arena_base(const struct wb_arena *a)
{
	return a->base;
}

uint64_t wb_arena_bytes(const struct wb_arena *a)
{
	return a->bytes;
}

int wb_arena_fd(const struct wb_arena *a)
{
	return a->fd;
}
