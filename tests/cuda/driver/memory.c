/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and where they lie: legacy allocations, VMM, pinned memory, what a pointer is. */
#include "tests/cuda/driver/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define SMALL (FC_BLOCK / 2) /* larger legacy allocations have blocks of their own */
#define ALIGN 512u

/* ---- blocks ---------------------------------------------------------------------------------- */

static int new_fd(size_t bytes, int device, uint64_t serial)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "fakecuda-%d-%llx", device, (unsigned long long)serial);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
		return fd;
	abort();
}

int fc_block_new(size_t bytes, int device, int fd, uint64_t serial, struct fc_block **out)
{
	struct fc_block *b;
	int rc;

	if (fd < 0 && getrandom(&serial, sizeof(serial), 0) != sizeof(serial))
		abort();
	rc = fc_world_hold(serial, bytes, device);
	if (rc)
		return rc;
	b = calloc(1, sizeof(*b));
	if (!b)
		abort();
	*b = (struct fc_block){.next = fc.block,
		.id = fc.next_id++,
		.serial = serial,
		.fd = fd < 0 ? new_fd(bytes, device, serial) : fd,
		.device = device,
		.bytes = bytes,
		.is_import = fd >= 0};
	fc.block = b;
	fc.count.blocks++;
	fc.count.imports += b->is_import;
	*out = b;
	return WBCU_SUCCESS;
}

void fc_block_put(struct fc_block *b)
{
	struct fc_block **at = &fc.block;

	if (b->n_handle || b->n_map)
		return;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	fc_world_let_go(b->serial);
	close(b->fd);
	fc.count.blocks--;
	fc.count.imports -= b->is_import;
	free(b);
}

/* ---- mappings -------------------------------------------------------------------------------- */

struct fc_mapping *fc_mapping_at(const struct fc_mapping *list, uint64_t addr, size_t bytes)
{
	for (const struct fc_mapping *m = list; m; m = m->next)
		if (addr >= m->addr && addr - m->addr < m->bytes &&
			bytes <= m->bytes - (addr - m->addr))
			return (struct fc_mapping *)(uintptr_t)m;
	return NULL;
}

static void protect(const struct fc_mapping *m)
{
	int how = fc.is_running && m->is_open ? PROT_READ | PROT_WRITE : PROT_NONE;

	if (mprotect((void *)(uintptr_t)m->addr, m->bytes, how))
		abort();
}

void fc_open(bool is_open)
{
	fc.is_running = is_open;
	for (struct fc_mapping *m = fc.mapping; m; m = m->next)
		protect(m);
}

bool fc_is_one(uint64_t addr, size_t bytes)
{
	const struct fc_mapping *m = fc_mapping_at(fc.mapping, addr, 1);
	const struct fc_alloc *a = fc_alloc_at(addr);

	if (m && m->block->is_legacy)
		return a && bytes <= a->bytes - (addr - a->addr);
	return fc_is_open(addr, bytes);
}

bool fc_is_open(uint64_t addr, size_t bytes)
{
	while (bytes) {
		const struct fc_mapping *m = fc_mapping_at(fc.mapping, addr, 1);
		size_t n;

		if (!m || !m->is_open)
			return false;
		n = m->bytes - (addr - m->addr);
		n = n < bytes ? n : bytes;
		addr += n;
		bytes -= n;
	}
	return true;
}

/* Addresses that nothing else uses, aligned to a block. */
static uint64_t reserve(size_t bytes)
{
	uint8_t *p = mmap(NULL, bytes + FC_BLOCK, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t skip;

	if (p == MAP_FAILED)
		return 0;
	skip = (size_t)(-(uintptr_t)p & (FC_BLOCK - 1));
	if (skip)
		munmap(p, skip);
	munmap(p + skip + bytes, FC_BLOCK - skip);
	return (uintptr_t)p + skip;
}

int fc_map(struct fc_block *b, uint64_t addr, size_t bytes, struct fc_mapping **out)
{
	bool is_ours = !addr;
	struct fc_mapping *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	if (is_ours)
		addr = reserve(bytes);
	if (!addr || mmap((void *)(uintptr_t)addr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, b->fd,
			     0) == MAP_FAILED)
		abort();
	*m = (struct fc_mapping){
		.next = fc.mapping, .addr = addr, .bytes = bytes, .block = b, .is_open = is_ours};
	b->n_map++;
	fc.mapping = m;
	fc.count.mappings++;
	protect(m);
	*out = m;
	return WBCU_SUCCESS;
}

static void forget(struct fc_mapping **list, struct fc_mapping *m)
{
	while (*list != m)
		list = &(*list)->next;
	*list = m->next;
	free(m);
}

void fc_unmap(struct fc_mapping *m)
{
	struct fc_block *b = m->block;

	/* Addresses of a reservation stay taken. */
	if (fc_mapping_at(fc.reserved, m->addr, m->bytes))
		mmap((void *)(uintptr_t)m->addr, m->bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		munmap((void *)(uintptr_t)m->addr, m->bytes);
	forget(&fc.mapping, m);
	fc.count.mappings--;
	b->n_map--;
	fc_block_put(b);
}

/* ---- legacy allocations ---------------------------------------------------------------------- */

static int mapping_for(size_t bytes, struct fc_mapping **out)
{
	struct fc_block *b;
	int rc;

	for (struct fc_mapping *m = fc.mapping; bytes <= SMALL && m; m = m->next) {
		if (!m->block->is_legacy || m->n_ipc || m->block->device != fc_current()->number ||
			m->bytes != FC_BLOCK || m->used + bytes > m->bytes)
			continue;
		*out = m;
		return WBCU_SUCCESS;
	}
	rc = fc_block_new(
		(bytes + FC_BLOCK - 1) / FC_BLOCK * FC_BLOCK, fc_current()->number, -1, 0, &b);
	if (rc)
		return rc;
	b->is_legacy = true;
	return fc_map(b, 0, b->bytes, out);
}

int cuMemAlloc_v2(uint64_t *addr, size_t bytes)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_mapping *m;
	struct fc_alloc *a;

	if (rc)
		return rc;
	if (!bytes)
		return fc_leave(WBCU_INVALID_VALUE);
	rc = mapping_for(bytes, &m);
	if (rc)
		return fc_leave(rc);
	a = calloc(1, sizeof(*a));
	if (!a)
		abort();
	*a = (struct fc_alloc){fc.alloc, m->addr + m->used, bytes, m, 0};
	fc.alloc = a;
	m->used += bytes > SMALL ? m->bytes : (bytes + ALIGN - 1) / ALIGN * ALIGN;
	m->n_alloc++;
	*addr = a->addr;
	return fc_leave(WBCU_SUCCESS);
}

static struct fc_alloc *alloc_of(uint64_t addr, bool is_ours)
{
	for (struct fc_alloc *a = fc.alloc; a; a = a->next)
		if (a->addr == addr && !a->n_open == is_ours)
			return a;
	return NULL;
}

static void forget_alloc(struct fc_alloc *a)
{
	struct fc_alloc **at = &fc.alloc;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	free(a);
}

/* It is there for the work that is queued, and no longer. */
int cuMemFree_v2(uint64_t addr)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	struct fc_mapping *in;
	struct fc_alloc *a;

	if (rc)
		return rc;
	if (!alloc_of(addr, true))
		return fc_leave(WBCU_INVALID_VALUE);
	rc = fc_wait(0);
	a = alloc_of(addr, true);
	if (!a)
		return fc_leave(WBCU_INVALID_VALUE); /* another thread's call was before */
	in = a->in;
	forget_alloc(a);
	if (!--in->n_alloc)
		fc_unmap(in);
	return fc_leave(rc);
}

uint64_t fc_alloc_open(struct fc_mapping *m, uint64_t offset, size_t bytes)
{
	uint64_t addr = m->addr + offset;
	struct fc_alloc *a = alloc_of(addr, false);

	if (!a) {
		a = calloc(1, sizeof(*a));
		if (!a)
			abort();
		*a = (struct fc_alloc){fc.alloc, addr, bytes, m, 0};
		fc.alloc = a;
	}
	a->n_open++;
	m->n_ipc++;
	return addr;
}

int fc_alloc_close(uint64_t addr)
{
	struct fc_alloc *a = alloc_of(addr, false);
	struct fc_mapping *in;
	int rc = WBCU_SUCCESS;

	if (a && a->n_open == 1) {
		rc = fc_wait(0);
		a = alloc_of(addr, false);
	}
	if (!a)
		return WBCU_INVALID_VALUE;
	in = a->in;
	if (!--a->n_open)
		forget_alloc(a);
	if (!--in->n_ipc)
		fc_unmap(in);
	return rc;
}

const struct fc_alloc *fc_alloc_at(uint64_t addr)
{
	for (const struct fc_alloc *a = fc.alloc; a; a = a->next)
		if (addr >= a->addr && addr - a->addr < a->bytes)
			return a;
	return NULL;
}

int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t addr)
{
	int rc = fc_enter(__func__, FC_CONTEXT);
	const struct fc_mapping *m;
	const struct fc_alloc *a;

	if (rc)
		return rc;
	m = fc_mapping_at(fc.mapping, addr, 1);
	a = fc_alloc_at(addr);
	if (!m)
		return fc_leave(WBCU_NOT_FOUND);
	if (base)
		*base = a ? a->addr : m->addr;
	if (bytes)
		*bytes = a ? a->bytes : m->bytes;
	return fc_leave(WBCU_SUCCESS);
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	*total_bytes = fc_world_memory(0);
	*free_bytes = *total_bytes - fc_world_used(fc_current()->number);
	return fc_leave(WBCU_SUCCESS);
}

/* ---- VMM ------------------------------------------------------------------------------------- */

static struct fc_block *block_of(uint64_t handle)
{
	for (struct fc_block *b = fc.block; b; b = b->next)
		if (b->id == handle && b->n_handle)
			return b;
	return NULL;
}

static bool is_whole(uint64_t x)
{
	return x && x % FC_BLOCK == 0;
}

static bool is_described(const struct wbcu_allocation *w)
{
	return w && w->type == WBCU_ALLOCATION_PINNED && !(w->handle_types & ~WBCU_HANDLE_FD) &&
	       w->location.type == WBCU_LOCATION_DEVICE && fc_visible(w->location.id) >= 0 &&
	       !w->unused;
}

int cuMemGetAllocationGranularity(size_t *bytes, const struct wbcu_allocation *what, int option)
{
	int rc = fc_enter(__func__, FC_SOUND);

	if (rc)
		return rc;
	if (!is_described(what) || option < 0 || option > 1)
		return fc_leave(WBCU_INVALID_VALUE);
	*bytes = FC_BLOCK;
	return fc_leave(WBCU_SUCCESS);
}

int cuMemCreate(uint64_t *handle, size_t bytes, const struct wbcu_allocation *what,
	unsigned long long flags)
{
	int rc = fc_enter(__func__, FC_SOUND);
	const struct fc_device *d;
	struct fc_block *b;

	if (rc)
		return rc;
	if (!is_described(what) || flags || !is_whole(bytes))
		return fc_leave(WBCU_INVALID_VALUE);
	d = &fc.device[fc_visible(what->location.id)];
	if (!d->attribute[WBCU_DEVICE_HAS_VMM] ||
		(what->handle_types && !d->attribute[WBCU_DEVICE_EXPORTS_FD]))
		return fc_leave(WBCU_NOT_SUPPORTED);
	rc = fc_block_new(bytes, d->number, -1, 0, &b);
	if (rc)
		return fc_leave(rc);
	b->handle_types = what->handle_types;
	b->n_handle = 1;
	fc.count.handles++;
	*handle = b->id;
	return fc_leave(WBCU_SUCCESS);
}

int cuMemRelease(uint64_t handle)
{
	int rc = fc_enter(__func__, FC_SOUND);
	struct fc_block *b;

	if (rc)
		return rc;
	b = block_of(handle);
	if (!b)
		return fc_leave(WBCU_INVALID_VALUE);
	b->n_handle--;
	fc.count.handles--;
	fc_block_put(b);
	return fc_leave(WBCU_SUCCESS);
}

int cuMemRetainAllocationHandle(uint64_t *handle, void *addr)
{
	int rc = fc_enter(__func__, FC_SOUND);
	struct fc_mapping *m;

	if (rc)
		return rc;
	m = fc_mapping_at(fc.mapping, (uintptr_t)addr, 1);
	if (!m || m->block->is_legacy)
		return fc_leave(WBCU_INVALID_VALUE);
	m->block->n_handle++;
	fc.count.handles++;
	*handle = m->block->id;
	return fc_leave(WBCU_SUCCESS);
}

int cuMemGetAllocationPropertiesFromHandle(struct wbcu_allocation *out, uint64_t handle)
{
	int rc = fc_enter(__func__, FC_SOUND);
	const struct fc_block *b;

	if (rc)
		return rc;
	b = block_of(handle);
	if (!b)
		return fc_leave(WBCU_INVALID_VALUE);
	*out = (struct wbcu_allocation){.type = WBCU_ALLOCATION_PINNED,
		.handle_types = b->handle_types,
		.location = {WBCU_LOCATION_DEVICE, fc_number(b->device)}};
	return fc_leave(WBCU_SUCCESS);
}

int cuMemAddressReserve(
	uint64_t *addr, size_t bytes, size_t align, uint64_t wish, unsigned long long flags)
{
	int rc = fc_enter(__func__, FC_NOTHING);
	struct fc_mapping *m;

	(void)wish;
	if (rc)
		return rc;
	if (!is_whole(bytes) || flags || (align && align > FC_BLOCK))
		return fc_leave(WBCU_INVALID_VALUE);
	m = calloc(1, sizeof(*m));
	if (!m)
		abort();
	*m = (struct fc_mapping){.next = fc.reserved, .addr = reserve(bytes), .bytes = bytes};
	if (!m->addr) {
		free(m);
		return fc_leave(WBCU_OUT_OF_MEMORY);
	}
	fc.reserved = m;
	fc.count.reservations++;
	*addr = m->addr;
	return fc_leave(WBCU_SUCCESS);
}

enum part { NOTHING, IN_PART, ALL_OF_IT };

/* How much of a mapping lies in [@addr, @end). */
static enum part is_within(const struct fc_mapping *m, uint64_t addr, uint64_t end)
{
	if (m->addr >= end || addr >= m->addr + m->bytes)
		return NOTHING;
	return m->addr >= addr && m->addr + m->bytes <= end ? ALL_OF_IT : IN_PART;
}

static bool is_mapped_in(uint64_t addr, size_t bytes)
{
	for (const struct fc_mapping *m = fc.mapping; m; m = m->next)
		if (is_within(m, addr, addr + bytes) != NOTHING)
			return true;
	return false;
}

int cuMemAddressFree(uint64_t addr, size_t bytes)
{
	int rc = fc_enter(__func__, FC_SOUND);
	struct fc_mapping *m;

	if (rc)
		return rc;
	m = fc_mapping_at(fc.reserved, addr, bytes);
	if (!m || m->addr != addr || m->bytes != bytes || is_mapped_in(addr, bytes))
		return fc_leave(WBCU_INVALID_VALUE);
	munmap((void *)(uintptr_t)addr, bytes);
	forget(&fc.reserved, m);
	fc.count.reservations--;
	return fc_leave(WBCU_SUCCESS);
}

int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
	int rc = fc_enter(__func__, FC_SOUND);
	struct fc_mapping *m;
	struct fc_block *b;

	if (rc)
		return rc;
	b = block_of(handle);
	if (!b || flags || offset % FC_BLOCK || !is_whole(bytes) || addr % FC_BLOCK ||
		!fc_mapping_at(fc.reserved, addr, bytes) || is_mapped_in(addr, bytes))
		return fc_leave(WBCU_INVALID_VALUE);
	if (offset || bytes != b->bytes) /* all of an allocation is mapped, or nothing */
		return fc_leave(WBCU_NOT_SUPPORTED);
	return fc_leave(fc_map(b, addr, bytes, &m));
}

/* Whole mappings, in addresses that are reserved; where there are none, there is nothing to do. */
int cuMemUnmap(uint64_t addr, size_t bytes)
{
	int rc = fc_enter(__func__, FC_NOTHING);
	uint64_t end = addr + bytes;

	if (rc)
		return rc;
	if (!bytes || !fc_mapping_at(fc.reserved, addr, bytes))
		return fc_leave(WBCU_INVALID_VALUE);
	for (const struct fc_mapping *m = fc.mapping; m; m = m->next)
		if (is_within(m, addr, end) == IN_PART)
			return fc_leave(WBCU_INVALID_VALUE);
	for (struct fc_mapping *m = fc.mapping, *next; m; m = next) {
		next = m->next;
		if (is_within(m, addr, end) == ALL_OF_IT)
			fc_unmap(m);
	}
	return fc_leave(WBCU_SUCCESS);
}

int cuMemSetAccess(uint64_t addr, size_t bytes, const struct wbcu_access *access, size_t n)
{
	int rc = fc_enter(__func__, FC_SOUND);

	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		if (access[i].location.type != WBCU_LOCATION_DEVICE ||
			fc_visible(access[i].location.id) < 0)
			return fc_leave(WBCU_INVALID_DEVICE);
	for (uint64_t at = addr; at < addr + bytes;) {
		struct fc_mapping *m = fc_mapping_at(fc.mapping, at, 1);

		if (!m || m->addr != at || m->bytes > addr + bytes - at)
			return fc_leave(WBCU_INVALID_VALUE);
		at += m->bytes;
	}
	for (uint64_t at = addr; at < addr + bytes;) {
		struct fc_mapping *m = fc_mapping_at(fc.mapping, at, 1);

		m->is_open = n && access[0].flags == WBCU_ACCESS_READWRITE;
		protect(m);
		at += m->bytes;
	}
	return fc_leave(WBCU_SUCCESS);
}

/* ---- pinned memory of the host --------------------------------------------------------------- */

bool fc_is_pinned(uint64_t addr, size_t bytes)
{
	for (const struct fc_host *h = fc.host; h; h = h->next)
		if (addr >= h->addr && addr - h->addr < h->bytes &&
			bytes <= h->bytes - (addr - h->addr))
			return true;
	return false;
}

static void pin(void *p, size_t bytes, bool is_ours)
{
	struct fc_host *h = calloc(1, sizeof(*h));

	if (!h)
		abort();
	*h = (struct fc_host){fc.host, (uintptr_t)p, bytes, is_ours};
	fc.host = h;
	fc.count.pinned++;
}

static int unpin(void *p, bool is_ours)
{
	struct fc_host **at = &fc.host, *h;

	while (*at && (*at)->addr != (uintptr_t)p)
		at = &(*at)->next;
	h = *at;
	if (!h)
		return is_ours ? WBCU_INVALID_VALUE : WBCU_HOST_MEMORY_NOT_REGISTERED;
	if (h->is_ours != is_ours)
		return WBCU_INVALID_VALUE;
	*at = h->next;
	free(h);
	fc.count.pinned--;
	return WBCU_SUCCESS;
}

int cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	if (!bytes || flags & ~7u)
		return fc_leave(WBCU_INVALID_VALUE);
	if (posix_memalign(p, 4096, bytes))
		return fc_leave(WBCU_OUT_OF_MEMORY);
	pin(*p, bytes, true);
	return fc_leave(WBCU_SUCCESS);
}

int cuMemFreeHost(void *p)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	rc = unpin(p, true);
	if (!rc) {
		rc = fc_wait(0);
		free(p);
	}
	return fc_leave(rc);
}

int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	if (!p || !bytes || flags & ~15u)
		return fc_leave(WBCU_INVALID_VALUE);
	for (const struct fc_host *h = fc.host; h; h = h->next)
		if (h->addr < (uintptr_t)p + bytes && (uintptr_t)p < h->addr + h->bytes)
			return fc_leave(WBCU_HOST_MEMORY_ALREADY_REGISTERED);
	pin(p, bytes, false);
	return fc_leave(WBCU_SUCCESS);
}

int cuMemHostUnregister(void *p)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	return rc ? rc : fc_leave(unpin(p, false));
}

int cuMemHostGetDevicePointer_v2(uint64_t *addr, void *p, unsigned flags)
{
	int rc = fc_enter(__func__, FC_CONTEXT);

	if (rc)
		return rc;
	if (flags || !fc_is_pinned((uintptr_t)p, 1))
		return fc_leave(WBCU_INVALID_VALUE);
	*addr = (uintptr_t)p;
	return fc_leave(WBCU_SUCCESS);
}

/* ---- what a pointer is ----------------------------------------------------------------------- */

static int attribute_of(void *value, int attribute, uint64_t addr)
{
	const struct fc_mapping *m = fc_mapping_at(fc.mapping, addr, 1), *r;
	const struct fc_alloc *a = fc_alloc_at(addr);

	if (!m && !(attribute == WBCU_POINTER_MEMORY_TYPE && fc_is_pinned(addr, 1)))
		return WBCU_INVALID_VALUE;
	r = m ? fc_mapping_at(fc.reserved, addr, 1) : NULL;
	r = r ? r : m;
	switch (attribute) {
	case WBCU_POINTER_MEMORY_TYPE:
		*(unsigned *)value = m ? WBCU_MEMORY_DEVICE : WBCU_MEMORY_HOST;
		return WBCU_SUCCESS;
	case WBCU_POINTER_DEVICE:
		*(int *)value = fc_number(m->block->device);
		return WBCU_SUCCESS;
	case WBCU_POINTER_IS_IPC_CAPABLE:
		*(int *)value = m->block->is_legacy && !m->block->is_import;
		return WBCU_SUCCESS;
	case WBCU_POINTER_RANGE_START:
		*(uint64_t *)value = a ? a->addr : r->addr;
		return WBCU_SUCCESS;
	case WBCU_POINTER_RANGE_BYTES:
		*(size_t *)value = a ? a->bytes : r->bytes;
		return WBCU_SUCCESS;
	case WBCU_POINTER_HANDLE_TYPES:
		*(uint64_t *)value = (uint64_t)m->block->handle_types;
		return WBCU_SUCCESS;
	case WBCU_POINTER_BLOCK_BYTES:
		*(size_t *)value = m->bytes;
		return WBCU_SUCCESS;
	case WBCU_POINTER_BLOCK_START:
		*(uint64_t *)value = m->addr;
		return WBCU_SUCCESS;
	default:
		return WBCU_INVALID_VALUE;
	}
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t addr)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	return rc ? rc : fc_leave(attribute_of(value, attribute, addr));
}

/* What the driver does not know is all zeros here, and no error. */
int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uint64_t addr)
{
	int rc = fc_enter(__func__, FC_NOTHING);

	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++)
		if (attribute_of(values[i], attributes[i], addr))
			memset(values[i], 0, sizeof(int));
	return fc_leave(WBCU_SUCCESS);
}
