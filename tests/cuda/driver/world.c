/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices, counted over processes. */
#include "tests/cuda/driver/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENTRIES 4096
#define HOLDERS 16 /* processes that hold the same memory */

struct entry {
	uint64_t serial, bytes;
	int device;
	struct {
		pid_t pid;
		unsigned n;
	} holder[HOLDERS];
};

struct world {
	uint64_t memory_bytes;
	struct entry entry[ENTRIES];
};

static struct world *world;
static int fd = -1; /* whose lock guards it between processes, fc.lock within */

void fc_world_open(void)
{
	const char *file = getenv("FAKECUDA_WORLD");

	fd = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
		  : memfd_create("fakecuda", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof(*world)))
		abort();
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (world == MAP_FAILED)
		abort();
	flock(fd, LOCK_EX);
	if (!world->memory_bytes)
		world->memory_bytes = 1u << 30;
	flock(fd, LOCK_UN);
}

/* Who died holds nothing. */
static bool is_held(struct entry *e)
{
	bool is = false;

	for (int i = 0; i < HOLDERS; i++) {
		if (e->holder[i].n && kill(e->holder[i].pid, 0) && errno == ESRCH)
			e->holder[i].n = 0;
		is |= e->holder[i].n > 0;
	}
	if (!is)
		e->serial = 0;
	return is;
}

static uint64_t used(int device)
{
	uint64_t sum = 0;

	for (int i = 0; i < ENTRIES; i++) {
		struct entry *e = &world->entry[i];

		if (e->serial && e->device == device && is_held(e))
			sum += e->bytes;
	}
	return sum;
}

static struct entry *find(uint64_t serial)
{
	for (int i = 0; i < ENTRIES; i++)
		if (world->entry[i].serial == serial)
			return &world->entry[i];
	return NULL;
}

static void hold(struct entry *e)
{
	int at = -1;

	for (int i = HOLDERS - 1; i >= 0; i--) {
		if (!e->holder[i].n)
			at = i;
	}
	for (int i = 0; i < HOLDERS; i++)
		if (e->holder[i].n && e->holder[i].pid == getpid())
			at = i;
	if (at < 0)
		abort(); /* more processes than any test has */
	e->holder[at].pid = getpid();
	e->holder[at].n++;
}

int fc_world_hold(uint64_t serial, size_t bytes, int device)
{
	struct entry *e;
	int rc = WBCU_SUCCESS;

	flock(fd, LOCK_EX);
	e = find(serial);
	if (!e) {
		if (used(device) + bytes > world->memory_bytes)
			rc = WBCU_OUT_OF_MEMORY;
		e = find(0);
		if (!e)
			abort();
		if (!rc)
			*e = (struct entry){.serial = serial, .bytes = bytes, .device = device};
	}
	if (!rc)
		hold(e);
	flock(fd, LOCK_UN);
	return rc;
}

void fc_world_let_go(uint64_t serial)
{
	struct entry *e;

	flock(fd, LOCK_EX);
	e = find(serial);
	for (int i = 0; e && i < HOLDERS; i++)
		if (e->holder[i].n && e->holder[i].pid == getpid())
			e->holder[i].n--;
	if (e)
		is_held(e);
	flock(fd, LOCK_UN);
}

uint64_t fc_world_memory(uint64_t set)
{
	if (set)
		world->memory_bytes = set;
	return world->memory_bytes;
}

uint64_t fc_world_used(int device)
{
	uint64_t n;

	flock(fd, LOCK_EX);
	n = used(device);
	flock(fd, LOCK_UN);
	return n;
}
