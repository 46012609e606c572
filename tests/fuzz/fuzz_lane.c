/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings that a remote lane's two sides share.  To the worker, the agent is hostile: whatever
 * requests it writes, nothing outside of the registered memory and of the arena is touched, and
 * the lane ends.  To the agent, the worker is: whatever counters and results it writes, jobs come
 * back once, in order, with an errno.
 */
#include "base/base.h"
#include "base/err.h"
#include "lane/lane.h"
#include "lane/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA 1024
#define MEM 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p;
	size_t left;
};

static void take(struct input *in, void *out, size_t n)
{
	size_t have = WB_MIN(n, in->left);

	memset(out, 0, n);
	memcpy(out, in->p, have);
	in->p += have;
	in->left -= have;
}

static uint8_t byte(struct input *in)
{
	uint8_t v;

	take(in, &v, 1);
	return v;
}

/* Small numbers find their way past the checks, others are there to be refused. */
static void shrink(struct wbk_box *b, uint8_t how)
{
	if (how & 1)
		b->base %= 2;
	if (how & 2)
		b->mem_off %= MEM, b->wire_off %= ARENA;
	if (how & 4)
		b->n_row %= 16, b->n_col %= 16, b->repeat %= 4;
	if (how & 8)
		b->row_stride %= 64, b->col_stride %= 64, b->repeat_stride %= 64;
	if (how & 16)
		b->wire_elem = b->mem_elem = (__typeof__(b->mem_elem))(1u << how / 32 % 4),
		b->cast = 0;
}

static void fill(struct wb_lane_shm *m, struct input *in, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct wb_lane_shm_entry *e = &m->entry[i];
		uint8_t how = byte(in);

		take(in, e, offsetof(struct wb_lane_shm_entry, box));
		if (how & 1)
			e->n_box %= 3;
		if (how & 2)
			e->kind %= 4;
		if (how & 4)
			e->wire_off = 0, e->wire_bytes = ARENA;
		for (uint32_t k = 0; k < 2; k++) {
			take(in, &e->box[k], sizeof(e->box[k]));
			shrink(&e->box[k], byte(in));
		}
	}
}

static struct wb_lane_shm *rings(int *fd)
{
	struct wb_lane_shm *m;

	*fd = memfd_create("l", MFD_ALLOW_SEALING);
	if (*fd < 0 || ftruncate(*fd, sizeof(*m)) < 0)
		abort();
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (m == MAP_FAILED)
		abort();
	return m;
}

static void hostile_agent(struct input *in)
{
	struct wb_lane_mem mem[2] = {{malloc(MEM), MEM, false}, {malloc(MEM / 2), MEM / 2, false}};
	uint8_t *arena = malloc(ARENA), flags = byte(in);
	uint32_t n = byte(in) % 4;
	struct wb_lane_worker *w = NULL;
	struct wb_err err = {0};
	int fd, ends[2], rc;
	struct wb_lane_shm *m = rings(&fd);
	struct wb_lane_worker_opts o = {
		.mem = mem, .n_mem = 2, .arena = arena, .arena_bytes = ARENA};

	/* A submit "eventfd" that ends when it is read: the lane runs what is there. */
	if (pipe(ends) < 0 || !mem[0].addr || !mem[1].addr || !arena)
		abort();
	close(ends[1]);
	m->magic = WB_LANE_SHM_MAGIC + (flags & 1);
	m->n_entry = WB_LANE_SHM_ENTRIES;
	m->entry_bytes = sizeof(m->entry[0]);
	if (!(flags & 2) && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		abort();
	m->submitted = flags & 4 ? 1000 : n;
	fill(m, in, n);
	memset(mem[0].addr, 1, MEM);
	memset(mem[1].addr, 2, MEM / 2);
	memset(arena, 3, ARENA);
	o.fds = (struct wb_lane_remote_fds){fd, ends[0], eventfd(0, EFD_NONBLOCK)};
	rc = wb_lane_worker_open(&o, &w, &err);
	if (rc < 0) {
		if (!err.msg[0] || !(flags & 3))
			abort();
		close(o.fds.shared);
		close(o.fds.submit);
		close(o.fds.complete);
	} else {
		if (wb_lane_worker_run(w) != -EPROTO || m->done != (flags & 4 ? 0 : n))
			abort();
		wb_lane_worker_close(w);
	}
	munmap(m, sizeof(*m));
	free(mem[0].addr);
	free(mem[1].addr);
	free(arena);
}

/* What the worker may write between two looks of the agent: results, and its counter. */
static void scribble(struct wb_lane_shm *m, struct input *in)
{
	uint8_t n = byte(in), to = byte(in) % WB_LANE_SHM_ENTRIES;

	take(in, &m->entry[to].rc, 4);
	take(in, m->entry[to].sum, sizeof(m->entry[to].sum));
	m->done = n < 250 ? m->done + n % 4 : n;
}

static void hostile_worker(struct input *in)
{
	static uint8_t arena[ARENA];
	struct wbk_box box[3] = {{.wire_elem = 2, .mem_elem = 2, .n_row = 1, .n_col = 1}};
	struct wbk_sum_keys keys = {.seed = {1, 2}};
	struct wb_lane_opts lo = {.depth = 8};
	struct wb_lane_remote_fds fds;
	struct wb_lane *l = NULL;
	struct wb_lane_shm *m;
	uint64_t next = 0, got = 0;

	if (wb_lane_create_remote(&lo, arena, ARENA, &l, &fds, NULL) < 0)
		abort();
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED, fds.shared, 0);
	if (m == MAP_FAILED)
		abort();
	while (in->left) {
		struct wb_lane_job out[8], job = {.kind = byte(in) % 3,
						   .box = box,
						   .n_box = 1 + next % 3,
						   .wire = arena + next % 4 * 8,
						   .wire_bytes = 8,
						   .keys = next % 2 ? &keys : NULL,
						   .cookie = next};
		int n, rc = wb_lane_submit(l, &job);

		if (rc == 0)
			next++;
		else if (rc != -EAGAIN && rc != -EPIPE)
			abort();
		scribble(m, in);
		n = wb_lane_reap(l, out, 8);
		for (int i = 0; i < n; i++)
			if (out[i].cookie != got++ || out[i].rc > 0 || out[i].rc < -4096)
				abort();
	}
	wb_lane_abort(l);
	for (struct wb_lane_job out; wb_lane_reap(l, &out, 1);)
		if (out.cookie != got++)
			abort();
	if (got != next)
		abort();
	munmap(m, sizeof(*m));
	wb_lane_destroy(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (byte(&in) & 1)
		hostile_agent(&in);
	else
		hostile_worker(&in);
	return 0;
}
