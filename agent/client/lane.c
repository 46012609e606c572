/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread the library may have: it packs and assembles for an agent that cannot map the
 * parameters.  It never takes the client's lock. */
#include "lane/lane.h"
#include "base/mem.h"
#include "base/thread.h"
#include "client/internal.h"
#include "mem/gpu.h"
#include "mem/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct wb__client_lane {
	struct wb_lane_worker *worker;
	void *arena;
	uint64_t arena_bytes;
	pthread_t thread;
	bool is_running;
};

static void *lane_main(void *arg)
{
	struct wb__client_lane *l = arg;

	/* Rings that make no sense end the lane; the agent finds its jobs unanswered. */
	wb_lane_worker_run(l->worker);
	return NULL;
}

static int start_thread(struct wb__client_lane *l)
{
	int rc = wb_thread_start(&l->thread, "wb-lane", lane_main, l);

	l->is_running = rc == 0;
	return rc;
}

static int open_worker(struct wb__client_lane *l, const struct wb__client_reg *reg, const int *fds,
	struct wb_err *err)
{
	struct wb_lane_worker_opts o = {
		.fds = {fds[0], fds[1], fds[2]}, .n_mem = reg->n_mem, .arena = l->arena};
	struct wb_lane_mem *mem = wb_zalloc(reg->n_mem, sizeof(*mem));
	uint32_t i;
	int rc;

	if (!mem)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	for (i = 0; i < reg->n_mem; i++) {
		mem[i].addr = reg->mem[i].base;
		mem[i].bytes = reg->mem[i].bytes;
		mem[i].is_device = reg->mem[i].kind == WB_CLIENT_MEM_DEVICE;
	}
	if (reg->gpu)
		o.device = reg->gpu->uuid.bytes;
	o.mem = mem;
	o.arena_bytes = l->arena_bytes;
	rc = wb_lane_worker_open(&o, &l->worker, err);
	wb_free(mem);
	return rc;
}

int wb__client_lane_start(const struct wb__client_reg *reg, int *fds, unsigned n_fd,
	struct wb__client_lane **out, struct wb_err *err)
{
	struct wb__client_lane *l;
	int rc;

	if (n_fd < WB__LANE_FDS)
		return wb_err_set(err, -EPROTO, "the agent asks for a lane without its rings");
	l = wb_zalloc(1, sizeof(*l));
	if (!l)
		return wb_err_set(err, -ENOMEM, "no memory for a lane");
	rc = wb_memfd_check(fds[3], 1, &l->arena_bytes, err);
	if (rc)
		goto fail;
	l->arena = mmap(NULL, l->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[3], 0);
	if (l->arena == MAP_FAILED) {
		l->arena = NULL;
		rc = wb_err_set(err, -errno, "map %llu bytes of slots: %s",
			(unsigned long long)l->arena_bytes, strerror(errno));
		goto fail;
	}
	rc = open_worker(l, reg, fds, err);
	if (rc)
		goto fail;
	fds[0] = fds[1] = fds[2] = -1; /* the lane's now */
	rc = start_thread(l);
	if (rc) {
		wb_err_set(err, rc, "start the thread of a lane: %s", wb_strerror(rc));
		goto fail;
	}
	*out = l;
	return 0;
fail:
	wb__client_lane_stop(l, true);
	return rc;
}

void wb__client_lane_pass(struct wb__client_lane *l)
{
	if (l)
		wb_lane_worker_pass(l->worker);
}

void wb__client_lane_stop(struct wb__client_lane *l, bool is_owner)
{
	if (!l)
		return;
	/* In a forked child the thread does not exist, and the eventfds are the parent's. */
	if (l->is_running && is_owner) {
		wb_lane_worker_stop(l->worker);
		pthread_join(l->thread, NULL);
	}
	if (l->worker && !is_owner)
		wb_lane_worker_forked(l->worker);
	wb_lane_worker_close(l->worker);
	if (l->arena)
		munmap(l->arena, l->arena_bytes);
	wb_free(l);
}
